"""What a source hands out: segments of record batches in blocks of an exact number of rows."""

from __future__ import annotations

import copy
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.doubles import doubles
from fastbayes.core.errors import (
    DataError,
    FastBayesError,
    FileFormatError,
    SchemaError,
    SystemLimitError,
)
from fastbayes.core.files import WEB, scheme_of
from fastbayes.core.ledger import Ledger
from fastbayes.data.store_errors import NotSkippedError, is_of_store, store_error
from fastbayes.data.unify import (
    Columns,
    Projection,
    index_columns,
    is_moment,
    is_text,
    readable,
    select,
    unify_types,
    without_dictionary,
)

# Blocks of one segment of a table, an IPC file, a stream: few, so that a million rows keep every
# worker busy and little is held. One number for all: floating-point sums are formed of so many
# blocks, so the same rows give the same bits however they arrive.
SEGMENT_BLOCKS = 2

# What a thread that reads decodes at a time, unless there is no room for so much: more is slower,
# since it no longer stays in the cache.
BATCH_BYTES = 1 << 26

# A table where there are many blocks, whose columns may have chunks of any length.
Rows: TypeAlias = "pa.RecordBatch | pa.Table"
Read = Callable[[], Iterator[Rows]]
# Takes note of what is wrong with a file, which is then left out.
OnError = Callable[[DataError], object]


class LateNumbers(ABC):
    """Columns of float64 that are decoded block by block, when their rows are worked on.

    names    of the columns
    threads  how many there are for these rows
    """

    names: Sequence[str]
    threads: int = 1

    @abstractmethod
    def read(self, first: int, n: int) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
        """Return n rows of all columns, and which columns hold NaN or infinity there.

        NaN where null. They are good until the next rows are read; the fastest is to read them in
        their order. `first` counts from the segment's first row. Raises DataError as
        `Segment.batches` does.
        """

    @abstractmethod
    def again(self, *, together: bool) -> Any:
        """Return what reads others like these by calls that can be noted down.

        Of all columns `together`, block after block, or of one column after the other.
        """


# Batches of a segment without some columns of numbers, and these; see `Segment.apart`.
Apart: TypeAlias = "AbstractContextManager[tuple[Iterator[Rows], LateNumbers | None]]"


class SegmentPart(NamedTuple):
    """Rows of a segment that are decoded at once.

    before  rows of the segment that stand before them
    n_rows  how many they are
    read    decodes them; to be called once
    """

    before: int
    n_rows: int
    read: Read


class AlikeParts(NamedTuple):
    """Parts of a segment that are decoded like others.

    path     of the local file
    starts   (n_parts, n_chunks) int64, where their column chunks begin in it
    sizes    (n_parts, n_chunks) int64, the bytes of these
    numbers  (n_parts, 2, n_numbers) int64, both of the columns that are read apart
    """

    path: str
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    numbers: NDArray[np.int64]


class Place(NamedTuple):
    """Where a batch stands, for messages.

    first_row  of the rows of the origin that are used; -1 if unknown
    unused     positions among all its rows, ascending, of those left out so far
    """

    origin: str
    first_row: int
    unused: Sequence[int] = ()

    def row(self, index: int) -> str:
        """Return the words for the row at `index` of the batch."""
        known = self.first_row >= 0
        at = self.first_row + index
        for place in self.unused:
            at += place <= at
        row = f"row {at}" if known else f"row {index} of a batch"
        return f"{row} of {self.origin}" if self.origin else row


@dataclass(frozen=True)
class Segment:
    """A stretch of consecutive rows that one worker reads.

    index      position in the source: 0, 1, 2 ...
    origin     name of the file, "" for data in memory
    first_row  row within the origin, counted from 0, where the segment starts; -1 if unknown
    n_rows     rows of the segment, None if unknown
    before     rows of all origins that stand before it, -1 if unknown
    sum_rows   rows after which floating-point sums begin anew; None: they are of the whole segment
    read_apart  reads some columns apart from the others; None where that cannot be
    parts      what it consists of, where rows may take the place of earlier ones, in the order in
               which they are best read
    alike      tells of the parts from one on, up to the first that is not decoded like the rows of
               some earlier part, and the numbers that were read apart from these, if any were
    unused     positions of rows that are left out, known once it is read; see `Place`
    """

    index: int
    origin: str
    first_row: int
    n_rows: int | None
    read: Read = field(repr=False, compare=False)
    before: int = -1
    sum_rows: int | None = None
    read_apart: Callable[[Sequence[str]], Apart] | None = field(
        default=None, repr=False, compare=False
    )
    parts: Sequence[SegmentPart] = field(default=(), repr=False, compare=False)
    alike: Callable[[int, Any, Any], AlikeParts] | None = field(
        default=None, repr=False, compare=False
    )
    unused: Sequence[int] = field(default=(), repr=False, compare=False)

    def of(self, read: Read, *, whole: bool) -> Self:
        """Return the segment of a view of these rows, all or some, which reads them otherwise."""
        n_rows, before = (self.n_rows, self.before) if whole else (None, -1)
        return replace(self, read=read, n_rows=n_rows, before=before, read_apart=None, parts=())

    def place(self, done: int) -> Place:
        """Return where the rows stand that come after so many of the segment."""
        first_row = self.first_row + done if self.first_row >= 0 else -1
        return Place(self.origin, first_row, self.unused)

    def batches(self) -> Iterator[Rows]:
        """Decode the rows, in the calling thread; to be called once.

        All batches but the last have exactly `block_rows` rows; none is empty. They are record
        batches, tables only where there are more rows than a block. Dictionary indices
        of a damaged Parquet file may lie outside the dictionary: who does not hand them to an
        encoder, which checks them, calls `sound`. A DataError names the file and, where known,
        column, row and remedy.
        """
        return self.read()

    @contextmanager
    def apart(self, names: Sequence[str]) -> Iterator[tuple[Iterator[Rows], LateNumbers | None]]:
        """Open the rows as batches that lack some of these columns of numbers, and as those.

        Which ones are decoded block by block the numbers tell: none (None) where that is no use.
        What reads the batches is closed in the end, since errors hold what has a name.
        """
        late = self.read_apart if names else None
        opened = nullcontext((self.batches(), None)) if late is None else late(names)
        with opened as (batches, numbers):
            try:
                yield batches, numbers
            finally:
                if isinstance(batches, Generator):
                    batches.close()


class Source(ABC):
    """Columns to be scanned, whatever they come from.

    schema       selected columns, their types unified over all files. Batches have these
                 columns in this order; text may come in any encoding (string, large_string,
                 string_view, dictionary of any index width). Where types had to be inferred
                 from the first rows (CSV, JSON, streams), a later batch may be wider than
                 the schema: float64 for an integer column, timestamps of a finer unit than those,
                 any type for a null column
    available    names of all columns, selected or not
    index_columns  names of those that were the index of a pandas frame, which may not be there
    n_rows       None if it takes a scan to know
    rereadable   whether `segments` may be called more than once
    in_memory    arrays, tables and frames
    many_blocks  whether batches may have more rows than a block at no cost
    batch_bytes  what a thread decodes at a time, where it may choose
    threads      how many read, None for one on each processor
    merged       whether small segments may come as one, where there may be many blocks
    description  for messages: "flights/*.parquet (12 files)"
    native       the object that was opened
    versions     per file its path, size and time of change in ns: what tells changed data
    notes        what files lack, a line each
    of_whole     whether these are all rows that were named, and not a part of them
    position     which share of the rows of all it is, counted from 0
    """

    n_rows: int | None = None
    rereadable: bool = True
    in_memory: bool = False
    many_blocks: bool = False
    batch_bytes: int = BATCH_BYTES
    threads: int | None = None
    merged: bool = False
    of_whole: bool = True
    position: int = 0
    versions: Sequence[tuple[str, int, int | None]] = ()
    notes: Sequence[str] = ()

    def __init__(
        self,
        schema: pa.Schema,
        columns: Columns,
        null_values: Sequence[str] | None,
        description: str,
        native: Any = None,
    ) -> None:
        schema = readable(schema, columns)
        self.schema = select(schema, columns, description)
        self.available: Sequence[str] = schema.names
        self.index_columns: Sequence[str] = index_columns(schema)
        self.description = description
        self.native = native
        self._projection = Projection(self.schema, null_values)

    @abstractmethod
    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the segments in order; whoever iterates drives the reading.

        Every batch of a segment but the last has `block_rows` rows; if that is more than
        `BLOCK_ROWS`, which only sources of `many_blocks` take, batches have as many as lie or are
        decoded together. Raises DataError where a one-shot source is scanned a second time.
        """

    def handed_over(self) -> dict[str, str]:
        """Return the columns that another library decodes where our kernels could, with why."""
        return {}

    def check_unchanged(self) -> None:  # noqa: B027  # rows in memory do not change
        """Raise DataError where rows are known to be no longer those that were found."""

    def local_files(self) -> list[str]:
        """Return the paths of files of this machine that are read."""
        return []

    def ledger(self, read: Container[str] | None = None) -> Ledger:
        """Return the files whose rows these are; empty for rows that come from elsewhere.

        Of these alone some rows were `read`; None: of all.
        """
        return Ledger()

    def left_out(self) -> list[str]:
        """Return what was left out of the rows that were read so far, a line each."""
        return []

    def check_lost(self, origin: str, n_rows: int, error: DataError) -> None:  # noqa: B027
        """Raise RejectLimitError where so many rows may not be left out together for an error."""

    def copying(self, names: Sequence[str]) -> None:  # noqa: B027  # most leave out no rows
        """Take note of columns that are copied, so that no row is left out for what they hold."""

    def only(self, columns: Sequence[str]) -> Source:
        """Return a source of the same rows that has these of its columns, if not all of them."""
        return self

    def behind(self, rows: int) -> Source | None:
        """Return a source of all rows but the first; None where only its segments tell them."""
        return None

    def is_indexed(self, target: str | None) -> bool:
        """Return whether rows are looked up without a pass over them, however many there are.

        Their values are indices into dictionaries, and each has a value of the target.
        """
        return False

    def coded(self) -> Source:
        """Return a source of the same rows for many scans: texts are looked up in the first alone.

        Where that takes little memory they are indices into dictionaries.
        """
        return self

    @property
    def takes_less(self) -> str:
        """What to do for reading to take less memory, as an error says it."""
        return "read fewer with `columns`"

    def within(self, batch_bytes: int, threads: int) -> Self:
        """Return a source of the same rows, of which so many threads decode so much at a time."""
        other = copy.copy(self)
        other.batch_bytes, other.threads = batch_bytes, threads
        return other

    def merging(self) -> Self:
        """Return a source of the same rows, whose small segments may come as one."""
        other = copy.copy(self)
        other.merged = True
        return other

    def held(self, threads: int) -> int:
        """Return about how many bytes so many threads hold that read, and what waits for them.

        As the schema tells: what is wanted of a source in memory is there already, but for blocks
        that cross its chunks and values that are converted.
        """
        return threads * self.rows_of_block() * row_bytes(self.schema)

    def rows_of_segment(self) -> int:
        """Return about how many rows the largest segment has."""
        most = SEGMENT_BLOCKS * BLOCK_ROWS
        return most if self.n_rows is None else min(most, self.n_rows)

    def rows_of_block(self) -> int:
        """Return the rows of a block, at most those that there are."""
        return min(BLOCK_ROWS, BLOCK_ROWS if self.n_rows is None else self.n_rows)


class SourceView(Source):
    """The rows of another source, some of them or changed; a subclass gives those of a segment."""

    whole: bool = True  # whether a segment keeps its number of rows

    def __init__(self, source: Source, schema: pa.Schema | None = None) -> None:
        super().__init__(
            source.schema if schema is None else schema, None, None, source.description
        )
        self.source = source
        self.n_rows = source.n_rows
        self.rereadable = source.rereadable
        self.notes = source.notes

    @property
    def takes_less(self) -> str:
        """What to do for reading to take less memory, as an error says it."""
        return self.source.takes_less

    def within(self, batch_bytes: int, threads: int) -> Self:
        """Return a view of the source of which so many threads decode so much at a time."""
        other = super().within(batch_bytes, threads)
        other.source = self.source.within(batch_bytes, threads)
        return other

    def held(self, threads: int) -> int:
        """Return about how many bytes the threads hold that read; a view may copy a block."""
        return self.source.held(threads) + super().held(threads) * (not self.source.in_memory)

    def rows_of_segment(self) -> int:
        """Return about how many rows the largest segment has."""
        return self.source.rows_of_segment()

    def local_files(self) -> list[str]:
        """Return the paths of files of this machine that are read."""
        return self.source.local_files()

    def ledger(self, read: Container[str] | None = None) -> Ledger:
        """Return the files whose rows these are."""
        return self.source.ledger(read)

    def left_out(self) -> list[str]:
        """Return what was left out of the rows that were read so far."""
        return self.source.left_out()

    def check_lost(self, origin: str, n_rows: int, error: DataError) -> None:
        """Raise RejectLimitError where so many rows may not be left out together for an error."""
        self.source.check_lost(origin, n_rows, error)

    def copying(self, names: Sequence[str]) -> None:
        """Take note of columns that are copied."""
        self.source.copying(names)

    @abstractmethod
    def view(self, segment: Segment) -> Iterator[Rows]:
        """Yield the view's rows of a segment of the source."""

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the segments of the source as the view shows them."""
        for segment in self.source.segments(block_rows):
            yield segment.of(partial(self.view, segment), whole=self.whole)


def waiting(threads: int) -> int:
    """Return how many pieces are held that the thread reads which hands them to others."""
    return threads + 3 if threads > 1 else 1


def row_bytes(schema: pa.Schema) -> int:
    """Return about how many bytes a row takes in Arrow arrays; of text only the rows tell."""
    return sum(value_bytes(field.type) for field in schema)


def value_bytes(kind: pa.DataType) -> int:
    """Return about how many bytes a value takes: of a dictionary its index, of text 24."""
    if pa.types.is_dictionary(kind):
        return int(kind.index_type.bit_width) // 8
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:  # of variable length
        return 24


# What a process or a machine may have too little of, and the remedies.
EXHAUSTED = {
    errno.EMFILE: "raise the limit of open files (ulimit -n) or use fewer threads",
    errno.ENFILE: "close files of other processes or use fewer threads",
    errno.ENOMEM: "use fewer threads or a machine with more memory",
}


@contextmanager
def reading(origin: str, remedy: str = "") -> Iterator[None]:
    """Turn what pyarrow and the system raise while `origin` is read into a DataError.

    What the process or the machine has too little of is no fault of a file: a SystemLimitError.
    Nor is what a store says that gives none: a StoreError.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{origin}: no such file or directory") from error
    except PermissionError as error:
        raise DataError(f"{origin}: may not be read: permission denied") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            said = f"{os.strerror(error.errno).lower()}; {EXHAUSTED[error.errno]}"
            raise SystemLimitError(f"{origin}: {said}") from error
        said, hint = first_line(error), f"; {remedy}" if remedy else ""
        if is_of_store(said):
            raise store_error(origin, said) from error
        raise FileFormatError(f"{origin}: {said}{hint}") from error
    except ValueError as error:
        # Of fsspec, where a server gives a file from its beginning alone.
        if isinstance(error, FastBayesError) or scheme_of(origin) not in WEB:
            raise
        said = first_line(error).partition(". ")[0]  # then come parameters of its own
        raise FileFormatError(f"{origin}: {said}; download the file and name the copy") from error


class FileChangedError(NotSkippedError):
    """A file changed or vanished while it was read; no `on_error` leaves out what is in already."""


@contextmanager
def leaving_out(on_error: OnError | None) -> Iterator[None]:
    """Hand a DataError to `on_error`, if there is one, and go on behind the block."""
    try:
        yield
    except DataError as error:
        if on_error is None or isinstance(error, NotSkippedError):
            raise
        on_error(error)


def first_line(error: BaseException) -> str:
    """Return what an exception says, cut to one line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(". ")[:300]


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of a file if its offsets, indices and texts are sound.

    Arrow checks none of these on reading; whoever follows them in a corrupt file may crash.
    Numbers cannot be unsound, and of dictionary indices the maximum tells (a tenth of the time
    of reading them from Parquet, where a full validation takes half).
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = column.type
        if pa.types.is_dictionary(kind) and _within(column):
            column.dictionary.validate(full=True)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            column.validate()
        else:
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"column {name!r}: {error}") from error
    return batch


def _within(column: pa.DictionaryArray) -> bool:
    """Return whether all indices, garbage under nulls included, lie in the dictionary."""
    column.indices.validate()
    bits = column.type.index_type.bit_width
    if not len(column):
        return True
    unsigned = np.dtype(f"u{bits // 8}")  # what is negative becomes huge
    start = column.offset * unsigned.itemsize
    indices = np.frombuffer(column.indices.buffers()[1], unsigned, len(column), start)
    return bool(indices.max() < len(column.dictionary))


def reblock(
    batches: Iterable[pa.RecordBatch], block_rows: int, *, many: bool = False
) -> Iterator[pa.RecordBatch]:
    """Cut a stream into batches of exactly `block_rows` rows; the last one may be shorter.

    What lies within one incoming batch is a slice of it; only a block that crosses a boundary
    is copied. So results do not depend on how the stream was cut. Where there may be `many` blocks
    in one, those that lie together stay so.
    """
    pending: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        start = 0
        if held:
            start = min(block_rows - held, batch.num_rows)
            pending.append(batch.slice(0, start))
            held += start
            if held < block_rows:
                continue
            yield join(pending)
            pending, held = [], 0
        whole = start + (batch.num_rows - start) // block_rows * block_rows
        step = max(whole - start, 1) if many else block_rows
        for first in range(start, whole, step):
            yield batch if batch.num_rows == step else batch.slice(first, step)
        if whole < batch.num_rows:
            pending, held = [batch.slice(whole)], batch.num_rows - whole
    if held:
        yield join(pending)


def behind(n_rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what comes after so many rows."""
    for batch in batches:
        if n_rows < batch.num_rows:
            yield batch.slice(n_rows) if n_rows else batch
        n_rows = max(n_rows - batch.num_rows, 0)


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches of the same columns, in which dictionaries and encodings may differ."""
    batches = [batch for batch in batches if batch.num_rows] or list(batches[:1])
    if len(batches) == 1:
        return batches[0]
    columns = [
        combine([batch.column(j) for batch in batches]) for j in range(batches[0].num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batches[0].schema.names)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one record batch."""
    columns = [combine(column.chunks) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)


def combine(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate arrays whose types unify."""
    if len(arrays) == 1:
        return arrays[0]
    if any(array.type != arrays[0].type for array in arrays[1:]):
        arrays = _same_type(arrays)
    if pa.types.is_dictionary(arrays[0].type):
        if any(array.dictionary.null_count for array in arrays):
            # pyarrow merges neither dictionaries that hold a null nor keeps their meaning
            return pa.concat_arrays([without_dictionary(array) for array in arrays])
        if arrays[0].type.index_type.bit_width < 32:  # the merged dictionary may need more
            wide = pa.dictionary(pa.int32(), arrays[0].type.value_type, arrays[0].type.ordered)
            arrays = [array.cast(wide) for array in arrays]
    return pa.concat_arrays(arrays)


def _same_type(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    if all(is_text(array.type) or pa.types.is_null(array.type) for array in arrays):
        target: pa.DataType | None = pa.large_string()
        arrays = [without_dictionary(array) for array in arrays]
    else:
        target = arrays[0].type
        for array in arrays[1:]:
            target = target and unify_types(target, array.type)
    if target is None:
        raise DataError(f"{arrays[0].type} cannot be joined with {arrays[-1].type}")
    if target == pa.float64():
        return [doubles(array) for array in arrays]
    return [array.cast(target, safe=is_moment(target)) for array in arrays]


def check_rereadable(source: Source, need: str, instead: str = "") -> None:
    """Raise SchemaError where rows that are read several times can be read only once."""
    if not source.rereadable:
        raise read_only_once(source.description, need, instead)


def read_only_once(description: str, need: str, instead: str = "") -> SchemaError:
    """Return the error that rows can be read only once, what needs more, and the remedies."""
    return SchemaError(
        f"{description} can be read only once, but {need}: pass a table or a path{instead}"
    )


def numbers(values: NDArray[Any]) -> pa.Array:
    """Return a contiguous array of numbers or truth values as an Arrow array over its memory.

    `pyarrow.array` would import pandas where that is installed.
    """
    kind, n = pa.from_numpy_dtype(values.dtype), len(values)
    if values.dtype.kind == "b":
        values = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(values)])


def stream_segments(
    batches: Iterable[pa.RecordBatch], block_rows: int
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield (first row, blocks) of a stream, a few blocks at a time, in the calling thread."""
    first, held = 0, []
    for batch in reblock(batches, block_rows):
        held.append(batch)
        if len(held) == SEGMENT_BLOCKS:
            yield first, held
            first, held = first + SEGMENT_BLOCKS * block_rows, []
    if held:
        yield first, held
