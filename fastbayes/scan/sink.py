"""`predict_to`: predictions streamed into Parquet, Arrow IPC or CSV, one file or many."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.decisions import least_risk, loss_matrix
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.files import (
    atomic,
    atomic_directory,
    check_directory,
    check_target,
    sync,
)
from fastbayes.data.encode import Encoded, Encoder
from fastbayes.data.segments import (
    SEGMENT_BLOCKS,
    Segment,
    Source,
    reading,
    row_bytes,
    sound,
    waiting,
)
from fastbayes.data.source import open_for
from fastbayes.data.unify import is_text
from fastbayes.scan import engine
from fastbayes.scan.budget import encoded_width
from fastbayes.scan.engine import Progress

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".csv": "csv",
}
# What a spreadsheet takes text for a formula by, where it begins so.
FORMULA = r"([=+\-@\t\r])"
SUFFIXES = {"parquet": ".parquet", "ipc": ".arrow", "csv": ".csv"}
# Rows of a Parquet row group or an Arrow record batch, where the source does not end sooner, and
# of the smallest part.
GROUP_ROWS = 4 * BLOCK_ROWS
# About so many parts at most: enough for the threads of any machine, few enough to handle.
MOST_PARTS = 128

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]
# What a file takes: rows, or the lines of CSV that they are.
Prepared = Any
Write = Callable[[Prepared], object]


@dataclass(frozen=True)
class Written:
    """What `predict_to` did.

    Parameters
    ----------
    rows
        Rows written.
    columns
        Names of the columns written.
    unseen
        Values that were not seen at fit, by column.
    prior_rows
        Rows impossible under every class, answered from the prior.
    """

    rows: int
    columns: tuple[str, ...]
    unseen: dict[str, int]
    prior_rows: int


def predict_to(
    model: Any,
    source: Any,
    path: str | os.PathLike[str],
    *,
    proba: bool | str = False,
    explain: bool = False,
    loss: Any = None,
    reject: float | None = None,
    keys: Iterable[str] | None = None,
    format: str | None = None,
    parts: bool | None = None,
    precision: str = "exact",
    csv_safe: bool = False,
    force: bool = False,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Written:
    """Score a source of any size into files, in its order and with bounded memory.

    Parameters
    ----------
    model
        A fitted model of named columns.
    source
        As in `fastbayes.count`.
    path
        The file to write, or the directory for parts; it appears when it is complete.
    proba
        True writes `proba_<class>` for each class besides `prediction`, "predicted" only `proba`,
        the probability of the prediction.
    explain
        Whether to write `because`, the column that speaks most for the most probable class
        against the second, and `because_nats`, by how much.
    loss
        Loss matrix as in `decide`: `prediction` is then the decision, with `expected_loss`.
    reject
        Cost of not deciding; such rows have a null prediction.
    keys
        Columns of the source to copy; by default those that the model does not know.
    format
        "parquet", "ipc" or "csv"; by default what the suffix of `path` says, Parquet of parts.
    parts
        Whether to write a directory of files `part-00000.parquet`, ..., each by a thread of its
        own, whose names sort in the order of the rows; by default if `path` has no suffix.
    precision
        "exact" writes probabilities as float64, "fast" as float32.
    csv_safe
        Whether text and names of columns in CSV that a spreadsheet would run as a formula (they
        begin with =, +, -, @, a tab or a carriage return) are written after an apostrophe.
    force
        Whether to replace a file that is there, or a directory that holds nothing but parts.
    filesystem
        A pyarrow or fsspec file system for the source.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows written since the last call.

    Returns
    -------
    Written
        Rows, columns, unseen values by column, and rows answered from the prior.

    Raises
    ------
    DataError
        When the source or the target cannot be used; nothing is left half-written.

    Notes
    -----
    Text in `prediction` is dictionary-encoded. The threads prepare the rows of one file, and the
    calling one writes; parts are written by all, about 128 at most where the source knows its
    rows. Parquet stores probabilities without dictionaries, which take ten times as long.
    """
    kind, parts = check_output(path, format, parts, force=force)
    schema = schema_of(model, "predict_to")
    copied = None if keys is None else list(keys)
    opened, rest = open_for(
        schema,
        source,
        also=copied or (),
        rest=copied is None,
        lenient=takes_absent(model),
        filesystem=filesystem,
    )
    if copied is not None:
        log_rest(rest, opened.description)
    copied = rest if copied is None else copied
    encoder = Encoder.applying_to(schema, opened.schema, unseen=model.unseen)
    encoder.expect(opened.n_rows)
    copies = [opened.schema.field(name) for name in copied]
    answers = _Output(
        model,
        copies,
        proba=proba,
        explain=explain,
        loss=loss,
        reject=reject,
        precision=precision,
    )
    columns = answers.schema
    if kind == "csv":
        _check_text(columns)
    if csv_safe:
        refuse(kind != "csv", f"csv_safe is about CSV, and {os.fspath(path)} is {kind}")
        columns = columns.empty_table().rename_columns([*map(no_formula, columns.names)]).schema
    share = engine.share_of(
        opened,
        threads,
        getattr(model, "memory_limit", None),
        width=encoded_width(encoder),
        made=lambda n: row_bytes(answers.schema) * _rows_held(opened, n, parts=parts),
    )
    opened, workers = share.source, share.threads
    at_once = engine.rows_at_once(opened, workers, GROUP_ROWS)
    at_once = GROUP_ROWS if at_once == GROUP_ROWS else BLOCK_ROWS  # parts are whole groups

    def blocks(segment: Segment) -> Iterator[tuple[Prepared, NDArray[np.int64]]]:
        """Yield what is written, with the numbers of rows, rows of the prior, unseen values."""
        for rows, encoded in engine.encoded_blocks(segment, encoder):
            with reading(segment.origin):
                sound(rows.select(copied))
            batch, impossible = answers.of(rows, encoded)
            if csv_safe:
                batch = without_formulas(batch)
            yield prepared(kind, batch), np.array([batch.num_rows, impossible, *encoded.unseen])

    total = np.zeros(2 + len(schema.categorical), dtype=np.int64)

    def done(counts: NDArray[np.int64]) -> None:
        np.add(total, counts, out=total)
        if progress is not None:
            progress(int(counts[0]))

    if parts:
        stopped = threading.Event()

        def write_part(numbered: tuple[int, list[Segment]]) -> NDArray[np.int64]:
            number, segments = numbered
            file = folder / f"part-{number:05d}{SUFFIXES[kind]}"
            counts = np.zeros_like(total)
            with writing(kind, file, columns, answers.uncoded) as write:
                for segment in segments:
                    for rows, new in blocks(segment):
                        write(rows)
                        counts += new
                    if stopped.is_set():
                        break
            sync(file)
            return counts

        with atomic_directory(path, force=force) as folder:
            numbered = enumerate(_gathered(opened, at_once))
            for counts in engine.in_order(write_part, numbered, workers, stopped):
                done(counts)
    else:
        with (
            atomic(path, force=force) as temporary,
            writing(kind, temporary, columns, answers.uncoded) as write,
        ):
            segments = opened.segments(at_once)
            # One thread writes what it makes before it makes more.
            gathered = blocks if workers == 1 else lambda s: [*blocks(s)]
            for made in engine.in_order(gathered, segments, workers):
                for rows, counts in made:
                    write(rows)
                    done(counts)
    n_rows, prior_rows, *unseen = total.tolist()
    names = [f.name for f in schema.categorical]
    found = {name: n for name, n in zip(names, unseen, strict=True) if n}
    return Written(n_rows, tuple(answers.schema.names), found, prior_rows)


def _rows_held(source: Source, threads: int, *, parts: bool) -> int:
    """Return the rows of answers that are held: gathered to groups, of which a writer makes more.

    Of one file, what the other threads have made of a segment waits.
    """
    rows = 3 * min(GROUP_ROWS, GROUP_ROWS if source.n_rows is None else source.n_rows)
    if parts:
        return rows * threads
    segment = max(source.rows_of_segment(), rows // 3)
    return rows + (waiting(threads) * segment if threads > 1 else 0)


def _gathered(source: Source, at_once: int) -> Iterator[list[Segment]]:
    """Yield the segments of part after part, at least one; threads do not change the cuts.

    Segments of a source that does not know its rows hold them: then parts are small.
    """
    least = GROUP_ROWS * max(1, -(-(source.n_rows or 0) // (MOST_PARTS * GROUP_ROWS)))
    held: list[Segment] = []
    n_rows = n_parts = 0
    for segment in source.segments(at_once):
        held.append(segment)
        n_rows += SEGMENT_BLOCKS * BLOCK_ROWS if segment.n_rows is None else segment.n_rows
        if n_rows >= least:
            yield held
            held, n_rows, n_parts = [], 0, n_parts + 1
    if held or not n_parts:
        yield held


def schema_of(model: Any, job: str) -> Any:
    """Return the schema of a fitted model of named columns; `job` is who asks, for messages.

    Raises
    ------
    SchemaError
        When it reads bare arrays, or is no model.
    """
    if not hasattr(model, "_check_fitted"):
        raise SchemaError(f"{job} needs a fitted model, not {type(model).__name__}")
    model._check_fitted()
    if hasattr(model, "markov_blanket"):
        raise SchemaError(
            f"{job} needs a class, and a network has none: ask its predict_proba(data, node), or "
            "fit a NetworkClassifier to this graph"
        )
    if not hasattr(model, "schema_"):
        raise SchemaError(
            f"{job} needs a model of named columns, such as NaiveBayes; {type(model).__name__} "
            "reads bare arrays: use its predict"
        )
    return model.schema_


def takes_absent(model: Any) -> bool:
    """Return whether a column that is not there at predict is missing in all rows.

    Raises
    ------
    SchemaError
        When it would be a category of its own.
    """
    fitted = getattr(model, "model_", model)  # that of a meta-estimator
    lenient: bool = getattr(fitted, "missing_columns", "error") == "marginalize"
    refuse(
        lenient and model.schema_.missing == "category",
        "missing_columns='marginalize' goes with missing='marginalize': a missing value is a "
        "category of the model",
        SchemaError,
    )
    return lenient


def log_rest(names: list[str], description: str) -> None:
    """Log which columns of a source the model does not use."""
    if names:
        more = f" and {len(names) - 5} more columns" if len(names) > 5 else ""
        logger.info("%s: the model does not use %s%s", description, names[:5], more)


def format_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """Return the format in which predictions are written: `format`, or what the name says.

    Raises
    ------
    SchemaError
        When it is not one of these.
    """
    if format is None:
        format = FORMATS.get(Path(path).suffix.lower())
        if format is None:
            raise SchemaError(
                f"{os.fspath(path)}: the name says no format; end it in .parquet, .arrow or .csv"
            )
    if format not in FORMATS.values():
        raise SchemaError(f"format={format!r}: use 'parquet', 'ipc' or 'csv'")
    return format


def check_output(
    path: str | os.PathLike[str],
    format: str | None = None,
    parts: bool | None = None,
    *,
    force: bool = False,
) -> tuple[str, bool]:
    """Return the format of predictions, and whether they go into parts; check the target.

    Raises
    ------
    SchemaError
        When there is no such format.
    DataError
        When the target cannot be made, or is there and may not be replaced.
    """
    unnamed = not Path(path).suffix
    parts = unnamed if parts is None else bool(parts)
    kind = "parquet" if parts and unnamed and format is None else format_of(path, format)
    (check_directory if parts else check_target)(path, force=force)
    return kind, parts


class _Output:
    """Which columns are written, and how a block of rows turns into them."""

    def __init__(
        self,
        model: Any,
        copies: list[pa.Field],
        *,
        proba: bool | str,
        explain: bool,
        loss: Any,
        reject: float | None,
        precision: str,
    ) -> None:
        if not isinstance(proba, bool | np.bool_) and proba != "predicted":
            raise ValueError(f"proba={proba!r}: use True, False or 'predicted'")
        if precision not in ("exact", "fast"):
            raise ValueError(f"precision={precision!r}: use 'exact' or 'fast'")
        self._model = model
        self._scorers = model._scorers()
        self._copies = [field.with_type(_plain(field.type)) for field in copies]
        self._proba, self._explain = proba, explain
        self._reject = reject
        self._decides = loss is not None or reject is not None
        classes = model.schema_.classes
        self._labels, self._loss = classes, None
        if loss is not None:
            self._loss, names = loss_matrix(loss, model.classes_)
            if names.tolist() != model.classes_.tolist():
                refuse(
                    proba == "predicted",
                    f"proba='predicted': the decisions {names.tolist()} are not the classes, whose "
                    "probabilities are known; use proba=True",
                    SchemaError,
                )
                self._labels = pa.array([str(name) for name in names.tolist()], pa.string())
        self._coded = is_text(self._labels.type)
        self._index = np.min_scalar_type(-len(self._labels))
        label = self._labels.type
        if self._coded:
            label = pa.dictionary(pa.from_numpy_dtype(self._index), label)
        fields = [*self._copies, pa.field("prediction", label)]
        if self._decides:
            fields.append(pa.field("expected_loss", pa.float64()))
        self._number = pa.float64() if precision == "exact" else pa.float32()
        if proba == "predicted":
            fields.append(pa.field("proba", self._number))
        elif proba:
            fields += [pa.field(f"proba_{label}", self._number) for label in classes.to_pylist()]
        if explain:
            fields.append(pa.field("because", pa.string()))
            fields.append(pa.field("because_nats", pa.float64()))
        self.schema = pa.schema(fields)
        # Numbers that hardly repeat: looking for values that do costs more than all the rest.
        answers = fields[len(copies) + 1 :]
        self.uncoded = {field.name for field in answers if pa.types.is_floating(field.type)}
        names = self.schema.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise SchemaError(
                f"there would be two columns {twice[0]!r}: one copied, one of the answer; choose "
                "the columns to copy by keys, or rename it"
            )

    def of(self, rows: pa.RecordBatch, encoded: Encoded) -> tuple[pa.RecordBatch, int]:
        """Return what is written for a block, and how many rows the prior answered."""
        batch, model = encoded.batch, self._model
        scorer = self._scorers(batch.cells)
        columns = [_copy(rows.column(field.name), field) for field in self._copies]
        best = np.empty(batch.n_rows, dtype=np.intp)
        if self._decides or self._proba or self._explain:
            posterior = np.empty((batch.n_rows, len(model.classes_)))
            prior_rows = scorer.posterior(batch.codes, batch.numeric, posterior)
        if self._explain or not self._decides:
            prior_rows = scorer.predict(batch.codes, batch.numeric, best)
        index, missing = best, None
        if self._decides:
            index, expected = least_risk(posterior, self._loss, self._reject)
            missing = index == -1
        columns.append(self._predicted(index, missing))
        if self._decides:
            columns.append(pa.array(expected))
        if self._proba == "predicted":
            winners = np.take_along_axis(posterior, index[:, None], axis=1)[:, 0]
            columns.append(pa.array(winners, mask=missing).cast(self._number))
        elif self._proba:
            columns += [pa.array(p).cast(self._number) for p in posterior.T]
        if self._explain:
            columns += _because(model, batch, posterior, best)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), prior_rows

    def _predicted(self, index: NDArray[np.intp], missing: NDArray[np.bool_] | None) -> pa.Array:
        """Return labels by their positions."""
        places = pa.array(index.astype(self._index), mask=missing)
        if self._coded:
            return pa.DictionaryArray.from_arrays(places, self._labels)
        return self._labels.take(places)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a copied column: dictionaries would differ from block to block."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _copy(column: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        raise DataError(
            f"column {field.name!r} is {field.type} in the first rows and {column.type} later "
            f"({error}); leave it out of the columns to copy, or store it in one type"
        ) from error


def _check_text(schema: pa.Schema) -> None:
    """Refuse types that CSV cannot hold before any work is done."""
    for field in schema:
        try:
            pa.array([], field.type).cast(pa.string())
        except pa.ArrowNotImplementedError:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which CSV does not hold; choose the "
                "columns to copy by keys, or write Parquet"
            ) from None


def _because(
    model: Any, batch: Batch, posterior: Floats, best: NDArray[np.intp]
) -> tuple[pa.Array, pa.Array]:
    """Return per row the feature that speaks most for the best class against the second."""
    names = pa.array(model.schema_.names, pa.string())
    explained = np.empty((batch.n_rows, len(names), posterior.shape[1]))
    model._contributions(batch, explained)
    index = np.arange(batch.n_rows)
    margin = explained[index, :, best]
    if posterior.shape[1] > 1:
        others = posterior.copy()
        others[index, best] = -1.0
        with np.errstate(invalid="ignore"):  # what is impossible under both says nothing
            margin = margin - explained[index, :, others.argmax(axis=1)]
    margin[np.isnan(margin)] = 0.0
    top = margin.argmax(axis=1)
    return names.take(pa.array(top)), pa.array(margin[index, top])


def prepared(kind: str, batch: pa.RecordBatch) -> Prepared:
    """Return what a file of this kind takes for a batch, made in the calling thread."""
    return _lines(batch, header=False) if kind == "csv" else batch


def no_formula(text: str) -> str:
    """Return text that a spreadsheet takes for text."""
    return re.sub(f"^{FORMULA}", r"'\1", text)


def without_formulas(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose text a spreadsheet takes for text."""

    def harmless(column: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            return pa.DictionaryArray.from_arrays(column.indices, harmless(column.dictionary))
        if not is_text(column.type):
            return column
        return pc.replace_substring_regex(column, f"^{FORMULA}", r"'\1")

    return pa.RecordBatch.from_arrays([*map(harmless, batch.columns)], names=batch.schema.names)


def _lines(batch: pa.RecordBatch, *, header: bool) -> pa.Buffer:
    """Return rows as lines of CSV, or the line of their names."""
    import pyarrow.csv as csv

    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    values = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    lines = pa.BufferOutputStream()
    csv.write_csv(values, lines, csv.WriteOptions(include_header=header))
    return lines.getvalue()


@contextlib.contextmanager
def writing(
    kind: str, path: Path, schema: pa.Schema, uncoded: Collection[str] = ()
) -> Iterator[Write]:
    """Give a function that writes what was `prepared`, gathered into groups of some size.

    Parquet gives columns that are `uncoded` neither a dictionary nor statistics.
    """
    if kind == "csv":
        with open(path, "wb") as file:
            names = pa.RecordBatch.from_pylist([], schema)
            file.write(_lines(names, header=True))
            yield file.write
        return
    try:
        writer = _opened(kind, path, schema, uncoded)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(f"{error}; choose the columns to copy by keys") from error
    held: list[pa.RecordBatch] = []

    def flush() -> None:
        if held:
            writer.write_table(pa.Table.from_batches(held).combine_chunks())
            held.clear()

    def write(batch: Prepared) -> None:
        if sum(h.num_rows for h in held) + batch.num_rows > GROUP_ROWS:
            flush()
        held.append(batch)

    try:
        yield write
        flush()
    except BaseException:
        # What is in the file is thrown away, so that it cannot be closed in order does not matter.
        with contextlib.suppress(OSError, ValueError):
            writer.close()
        raise
    writer.close()


def _opened(kind: str, path: Path, schema: pa.Schema, uncoded: Collection[str]) -> Any:
    if kind == "ipc":
        return pa.ipc.new_file(path, schema)
    import pyarrow.parquet as pq

    coded: bool | list[str] = True
    if uncoded:
        # The writer names columns by their leaves.
        footer = pa.BufferOutputStream()
        pq.write_metadata(schema, footer)
        leaves = pq.read_metadata(pa.BufferReader(footer.getvalue())).schema
        paths = [leaves.column(i).path for i in range(len(leaves))]
        coded = [path for path in paths if path not in uncoded]
    return pq.ParquetWriter(path, schema, use_dictionary=coded, write_statistics=coded)
