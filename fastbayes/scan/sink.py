"""`predict_to`: predictions streamed into Parquet, Arrow IPC or CSV, one file or many."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.files import (
    atomic,
    atomic_directory,
    check_directory,
    check_target,
    sync,
    telling_full,
)
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import (
    SEGMENT_BLOCKS,
    Segment,
    Source,
    first_line,
    reading,
    row_bytes,
    sound,
    waiting,
)
from fastbayes.data.source import open_for
from fastbayes.scan import engine
from fastbayes.scan.budget import encoded_width
from fastbayes.scan.engine import Progress
from fastbayes.scan.prediction_columns import PredictionColumns, check_text
from fastbayes.scan.request import Counter, Partial, ScanRequest

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".csv": "csv",
}
SUFFIXES = {"parquet": ".parquet", "ipc": ".arrow", "csv": ".csv"}
# Rows of a Parquet row group or an Arrow record batch, where the source does not end sooner, and
# of the smallest part.
GROUP_ROWS = 4 * BLOCK_ROWS
# About so many parts at most: enough for the threads of any machine, few enough to handle.
MOST_PARTS = 128

logger = logging.getLogger("fastbayes")
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
        As in `fastbayes.count`; of files that workers read, each writes the parts of its share.
    path
        The file to write, or the directory for parts; it appears when it is complete. Workers write
        next to it, and need to find that place by the same path: they take directories alone.
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
        Worker threads, those of each worker; they never change a bit of the result.
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
    columns = partial(
        PredictionColumns,
        model,
        [opened.schema.field(name) for name in copied],
        proba=proba,
        explain=explain,
        loss=loss,
        reject=reject,
        precision=precision,
        csv_safe=csv_safe,
    )
    written = columns().schema
    if kind == "csv":
        check_text(written)
    refuse(csv_safe and kind != "csv", f"csv_safe is about CSV, and {os.fspath(path)} is {kind}")
    predicting = Predicting(model, columns, kind, opened.n_rows)
    if isinstance(opened, Counter):
        refuse(
            not opened.ordered,
            f"{opened.description}: its rows have no order in which parts could be written; "
            "`predict` returns the frame with columns appended: write that",
        )
        refuse(
            not parts,
            f"{os.fspath(path)}: workers write files of their own; name a directory for them "
            "(without a suffix), or pass parts=True",
        )
    if parts:
        with atomic_directory(path, force=force) as folder:
            total = _written_parts(predicting, opened, folder, path, threads, progress)
            opened.check_unchanged()
    else:
        with atomic(path, force=force) as temporary:
            total = _written_file(predicting, opened, temporary, threads, progress)
            opened.check_unchanged()
    n_rows, prior_rows, *unseen = total.tolist()
    names = [f.name for f in schema.categorical]
    found = {name: n for name, n in zip(names, unseen, strict=True) if n}
    return Written(n_rows, tuple(written.names), found, prior_rows)


@dataclass(frozen=True)
class Predicting:
    """How rows are predicted, whoever reads them; it may be pickled.

    Parameters
    ----------
    model
        A fitted model of named columns.
    columns
        Makes what is written of a block of rows.
    kind
        Format of the files.
    n_rows
        Of all rows, some of which may be read elsewhere; None if nobody knows.
    """

    model: Any
    columns: Callable[[], PredictionColumns]
    kind: str
    n_rows: int | None

    @property
    def nothing(self) -> NDArray[np.int64]:
        """How many rows, rows of the prior and unseen values by column there are in no rows."""
        return np.zeros(2 + len(self.model.schema_.categorical), dtype=np.int64)


class _Predicted:
    """Rows that are read here and turned into what is written, into one file or parts."""

    def __init__(
        self, how: Predicting, source: Source, threads: int | None, *, parts: bool
    ) -> None:
        self._kind, self._n_rows = how.kind, how.n_rows
        self._encoder = Encoder.applying_to(
            how.model.schema_, source.schema, unseen=how.model.unseen
        )
        self._encoder.expect(how.n_rows)
        self._columns = how.columns()
        width = row_bytes(self._columns.schema)
        share = engine.share_of(
            source,
            threads,
            getattr(how.model, "memory_limit", None),
            width=encoded_width(self._encoder),
            made=lambda n: width * _rows_held(source, n, parts=parts),
        )
        self.source, self.threads = share.source, share.threads
        at_once = engine.rows_at_once(self.source, self.threads, GROUP_ROWS)
        # Parts are whole groups.
        self.at_once = GROUP_ROWS if at_once == GROUP_ROWS else BLOCK_ROWS

    def parts(self) -> Iterator[list[Segment]]:
        """Yield the segments of part after part, at least one; threads do not change the cuts.

        Segments of a source that does not know its rows hold them: then parts are small.
        """
        least = GROUP_ROWS * max(1, -(-(self._n_rows or 0) // (MOST_PARTS * GROUP_ROWS)))
        held: list[Segment] = []
        n_rows = n_parts = 0
        for segment in self.source.segments(self.at_once):
            held.append(segment)
            n_rows += SEGMENT_BLOCKS * BLOCK_ROWS if segment.n_rows is None else segment.n_rows
            if n_rows >= least:
                yield held
                held, n_rows, n_parts = [], 0, n_parts + 1
        if held or not n_parts:
            yield held

    def blocks(self, segment: Segment) -> Iterator[tuple[Prepared, NDArray[np.int64]]]:
        """Yield what is written, with the numbers of rows, rows of the prior, unseen values."""
        for rows, encoded in engine.encoded_blocks(segment, self._encoder):
            with reading(segment.origin):
                sound(rows.select(self._columns.copied))
            batch, impossible = self._columns.of(rows, encoded)
            counts = np.array([batch.num_rows, impossible, *encoded.unseen])
            yield prepared(self._kind, batch), counts

    def writing(self, path: Path) -> AbstractContextManager[Write]:
        """Open a file for what blocks are; see `writing`."""
        return writing(self._kind, path, self._columns.written, self._columns.uncoded)


def _written_file(
    how: Predicting,
    source: Source,
    path: Path,
    threads: int | None,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """Write one file; return the numbers of rows, rows of the prior, and unseen values."""
    rows = _Predicted(how, source, threads, parts=False)
    total = how.nothing
    # One thread writes what it makes before it makes more.
    gathered = rows.blocks if rows.threads == 1 else lambda segment: [*rows.blocks(segment)]
    with rows.writing(path) as write:
        segments = rows.source.segments(rows.at_once)
        for made in engine.in_order(gathered, segments, rows.threads):
            for block, counts in made:
                write(block)
                np.add(total, counts, out=total)
                if progress is not None:
                    progress(int(counts[0]))
    return total


class PartFile(NamedTuple):
    """A file of some rows.

    share   position of the share whose rows these are
    number  of the part within it
    rows    how many
    name    of the file
    """

    share: int
    number: int
    rows: int
    name: str


class PartsWritten(NamedTuple):
    """Files that hold what was predicted of some rows.

    parts   the files
    counts  numbers of rows, rows of the prior, and unseen values by column
    """

    parts: tuple[PartFile, ...]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class WritingParts(ScanRequest[PartsWritten]):
    """Predictions, written where rows are read into a directory that all find by its name.

    A share that is tried again writes other files: the answer says which ones count.

    Parameters
    ----------
    predicting
        How rows are predicted.
    folder
        The directory.
    target
        What messages call it.
    """

    predicting: Predicting
    folder: Path
    target: str

    def count(
        self, rows: Source, threads: int | None, progress: Progress | None = None
    ) -> Partial[PartsWritten]:
        """Write the parts of some rows."""
        predicted = _Predicted(self.predicting, rows, threads, parts=True)
        stopped, attempt = threading.Event(), secrets.token_hex(8)

        def write_part(
            numbered: tuple[int, list[Segment]],
        ) -> tuple[PartFile, NDArray[np.int64]]:
            number, segments = numbered
            name = f"{rows.position:05d}-{number:05d}-{attempt}"
            file, counts = self.folder / name, self.predicting.nothing
            with predicted.writing(file) as write:
                for segment in segments:
                    for block, new in predicted.blocks(segment):
                        write(block)
                        counts += new
                    if stopped.is_set():
                        break
            sync(file)
            return PartFile(rows.position, number, int(counts[0]), name), counts

        parts, total = [], self.predicting.nothing
        with self._telling():
            numbered = enumerate(predicted.parts())
            for part, counts in engine.in_order(write_part, numbered, predicted.threads, stopped):
                parts.append(part)
                np.add(total, counts, out=total)
                if progress is not None:
                    progress(part.rows)
        return Partial(int(total[0]), PartsWritten(tuple(parts), total))

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn errors of writing into those that name the target."""
        try:
            with telling_full(self.target):
                yield
        except OSError as error:
            raise DataError(
                f"{self.target}: a part cannot be written ({first_line(error)}); name a directory "
                "that all who write parts find by this path, and may write in"
            ) from error

    def asked(
        self, rows: Source, threads: int | None, progress: Progress | None
    ) -> Partial[PartsWritten]:
        """Write the parts of all rows, whoever reads them."""
        if isinstance(rows, Counter):
            return rows.run(self, threads, progress)
        return self.count(rows, threads, progress)

    def zero(self) -> PartsWritten:
        """Return what no rows leave."""
        return PartsWritten((), self.predicting.nothing)

    def add(self, a: PartsWritten, b: PartsWritten) -> PartsWritten:
        """Return the files of both."""
        return PartsWritten(a.parts + b.parts, a.counts + b.counts)

    def to_bytes(self, value: PartsWritten) -> bytes:
        """Return the bytes of a list of files."""
        header = {"kind": "parts", "parts": [[*part] for part in value.parts]}
        return files.to_bytes(header, {"counts": value.counts})

    def from_bytes(self, data: bytes) -> PartsWritten:
        """Return the list of files whose bytes these are."""
        header, arrays = files.from_bytes(data, f"{len(data):,} bytes")
        parts = tuple(PartFile(*part) for part in header["parts"])
        return PartsWritten(parts, np.asarray(arrays["counts"]))


def _written_parts(
    how: Predicting,
    source: Source,
    folder: Path,
    target: str | os.PathLike[str],
    threads: int | None,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """Fill a directory with parts; return the numbers of rows, rows of the prior, unseen values.

    Parts get their names here, in the order of the rows: what attempts left that failed, or that
    nobody waits for any more, does not.
    """
    unordered = folder / "unordered"
    unordered.mkdir()
    request = WritingParts(how, unordered, os.fspath(target))
    parts, counts = request.asked(source, threads, progress).value
    kept = sorted(part for part in parts if part.rows) or sorted(parts)[:1]
    for number, part in enumerate(kept):
        (unordered / part.name).rename(folder / f"part-{number:05d}{SUFFIXES[how.kind]}")
    shutil.rmtree(unordered)
    return counts


def _rows_held(source: Source, threads: int, *, parts: bool) -> int:
    """Return the rows of answers that are held: gathered to groups, of which a writer makes more.

    Of one file, what the other threads have made of a segment waits.
    """
    rows = 3 * min(GROUP_ROWS, GROUP_ROWS if source.n_rows is None else source.n_rows)
    if parts:
        return rows * threads
    segment = max(source.rows_of_segment(), rows // 3)
    return rows + (waiting(threads) * segment if threads > 1 else 0)


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


def prepared(kind: str, batch: pa.RecordBatch) -> Prepared:
    """Return what a file of this kind takes for a batch, made in the calling thread."""
    return _lines(batch, header=False) if kind == "csv" else batch


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
