"""`predict_to`: predictions streamed into a Parquet, Arrow IPC or CSV file."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.decisions import decide, loss_matrix
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.files import atomic, check_target
from fastbayes.data.encode import Encoded, Encoder
from fastbayes.data.segments import Segment, reading, sound
from fastbayes.data.source import open_for
from fastbayes.scan import engine
from fastbayes.scan.engine import Progress

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".csv": "csv",
}
# Rows of a Parquet row group or an Arrow record batch, where the source does not end sooner.
GROUP_ROWS = 4 * BLOCK_ROWS

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]
Write = Callable[[pa.RecordBatch], None]


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
    proba: bool = False,
    explain: bool = False,
    loss: Any = None,
    reject: float | None = None,
    keys: Iterable[str] | None = None,
    format: str | None = None,
    force: bool = False,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Written:
    """Score a source of any size into a file, in its order and with bounded memory.

    Parameters
    ----------
    model
        A fitted model of named columns.
    source
        As in `fastbayes.count`.
    path
        The file to write; it appears when it is complete.
    proba
        Whether to write `proba_<class>` besides `prediction`.
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
        "parquet", "ipc" or "csv"; by default what the suffix of `path` says.
    force
        Whether to replace a file that is there.
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
    """
    kind = format_of(path, format)
    check_target(path, force=force)
    schema = schema_of(model, "predict_to")
    workers = engine.resolved_threads(threads)
    copied = None if keys is None else list(keys)
    opened, rest = open_for(
        schema, source, also=copied or (), rest=copied is None, filesystem=filesystem
    )
    if copied is not None:
        log_rest(rest, opened.description)
    copied = rest if copied is None else copied
    encoder = Encoder.applying_to(schema, opened.schema, unseen=model.unseen)
    encoder.expect(opened.n_rows)
    copies = [opened.schema.field(name) for name in copied]
    answers = _Output(model, copies, proba=proba, explain=explain, loss=loss, reject=reject)
    if kind == "csv":
        _check_text(answers.schema)

    def score(segment: Segment) -> tuple[list[pa.RecordBatch], NDArray[np.int64], int]:
        unseen = np.zeros(len(schema.categorical), dtype=np.int64)
        batches, prior_rows = [], 0
        for rows, encoded in engine.encoded_blocks(segment, encoder):
            with reading(segment.origin):
                sound(rows.select(copied))
            batch, impossible = answers.of(rows, encoded)
            batches.append(batch)
            unseen += encoded.unseen
            prior_rows += impossible
        return batches, unseen, prior_rows

    total, prior_rows = 0, 0
    unseen = np.zeros(len(schema.categorical), dtype=np.int64)
    with (
        atomic(path, force=force) as temporary,
        writing(kind, temporary, answers.schema) as write,
    ):
        segments = opened.segments(BLOCK_ROWS)
        for batches, new, impossible in engine.in_order(score, segments, workers):
            for batch in batches:
                write(batch)
                total += batch.num_rows
                if progress is not None:
                    progress(batch.num_rows)
            unseen += new
            prior_rows += impossible
    names = [f.name for f in schema.categorical]
    found = {name: int(n) for name, n in zip(names, unseen, strict=True) if n}
    return Written(total, tuple(answers.schema.names), found, prior_rows)


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


class _Output:
    """Which columns are written, and how a block of rows turns into them."""

    def __init__(
        self,
        model: Any,
        copies: list[pa.Field],
        *,
        proba: bool,
        explain: bool,
        loss: Any,
        reject: float | None,
    ) -> None:
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
                self._labels = pa.array([str(name) for name in names.tolist()], pa.string())
        fields = [*self._copies, pa.field("prediction", self._labels.type)]
        if self._decides:
            fields.append(pa.field("expected_loss", pa.float64()))
        if proba:
            fields += [pa.field(f"proba_{label}", pa.float64()) for label in classes.to_pylist()]
        if explain:
            fields.append(pa.field("because", pa.string()))
            fields.append(pa.field("because_nats", pa.float64()))
        self.schema = pa.schema(fields)
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
        posterior = np.empty((batch.n_rows, len(model.classes_)))
        if self._decides or self._proba or self._explain:
            prior_rows = scorer.posterior(batch.codes, batch.numeric, posterior)
        if self._decides:
            decided = decide(posterior, model.classes_, self._loss, self._reject)
            columns.append(self._labels.take(pa.array(decided.index, mask=decided.index == -1)))
            columns.append(pa.array(decided.expected_loss))
        if self._explain or not self._decides:
            prior_rows = scorer.predict(batch.codes, batch.numeric, best)
        if not self._decides:
            columns.append(self._labels.take(pa.array(best)))
        if self._proba:
            columns += [pa.array(p) for p in posterior.T]
        if self._explain:
            columns += _because(model, batch, posterior, best)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), prior_rows


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


@contextlib.contextmanager
def writing(kind: str, path: Path, schema: pa.Schema) -> Iterator[Write]:
    """Give a function that writes record batches, gathered into groups of some size."""
    try:
        writer = _opened(kind, path, schema)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(f"{error}; choose the columns to copy by keys") from error
    held: list[pa.RecordBatch] = []

    def flush() -> None:
        if held:
            writer.write_table(pa.Table.from_batches(held).combine_chunks())
            held.clear()

    def write(batch: pa.RecordBatch) -> None:
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


def _opened(kind: str, path: Path, schema: pa.Schema) -> Any:
    if kind == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(path, schema)
    if kind == "ipc":
        return pa.ipc.new_file(path, schema)
    import pyarrow.csv as csv

    return csv.CSVWriter(path, schema)
