"""Column chunks of Parquet files, decoded by the kernels: dictionaries stay dictionaries."""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from operator import methodcaller
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import FileFormatError
from fastbayes.core.threads import mapped
from fastbayes.data.decoded_rows import DecodedRows, arrow_array
from fastbayes.data.lent_memory import lend
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import first_line
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared import pages as p

# Rows of a page of many a writer.
PAGE_ROWS = 20_000

# What a footer takes once it is parsed, over its bytes in the file; what those take that are kept.
PARSED, FOOTERS = 8, 1 << 24

# What one batch has at most, and what is read of a chunk at a time.
BATCH_ROWS = 1 << 20
LEAST_READ = 1 << 17
# Behind the pages that are wanted, so many bytes are read for the header of the next one.
HEADER = 1 << 8
# So much of a file is decoded before its memory takes the next bytes: about what caches hold.
RUN_BYTES = 1 << 23
# Parts of memory that one call of the system fills: what Linux and macOS take.
MOST_PARTS = 1024
# Zstandard's own library unpacks pages from so many bytes on at more than twice the speed of ours
# where they take less than half of that in the file: where more than literals is coded.
LARGE_PAGE = 1 << 15
# Arrays within one buffer start cache lines.
LINE = 64

_TYPES = (
    *("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY"),
    "FIXED_LEN_BYTE_ARRAY",
)
_CODEC_NAMES = dict(enumerate(("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD")))
_CODEC_NAMES |= {7: "LZ4_RAW"}
CODECS = {"UNCOMPRESSED": p.STORED, "SNAPPY": p.SNAPPY, "LZ4_RAW": p.LZ4} | dict.fromkeys(
    ("ZSTD", "GZIP", "BROTLI"), p.FOREIGN
)
_ENCODINGS = {
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    9: "BYTE_STREAM_SPLIT",
}
# Of texts so encoded pyarrow makes no dictionaries.
_NO_DICTIONARIES = 1 << 6 | 1 << 7
_OWN = 1 << p.PLAIN | 1 << p.PLAIN_DICTIONARY | 1 << p.RLE | 1 << p.BIT_PACKED
_OWN |= 1 << p.RLE_DICTIONARY
_BY_ENTRIES = 1 << p.PLAIN_DICTIONARY | 1 << p.RLE_DICTIONARY
# Unit of timestamps in 12 bytes (INT96, as Spark writes them): nanoseconds would wrap around before
# 1677 and after 2262, and pyarrow reads them as those unless it is told.
INSTANTS_IN = "us"
_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


# Fills memory with the bytes of a file from an offset on, part by part; parts that are full leave
# the list.
Fill = Callable[[int, list[memoryview]], None]


# A dictionary is short up to so many bytes.
SHORT = 1 << 12
# All columns, those that our kernels read, those that are read apart from them, and the rest.
MOST_SCHEMAS = 4

T = TypeVar("T")


class Dictionaries:
    """Short dictionaries that were met last, with their bytes: most row groups have the same."""

    def __init__(self) -> None:
        self.of_columns: dict[str, tuple[bytes, pa.Array]] = {}
        # of all columns of a row group
        self.of_group: tuple[pa.Schema, bytes, list[pa.Array | None]] | None = None


class HandedOver(Exception):
    """A chunk holds something legal that the kernels do not read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class ColumnChunk(NamedTuple):
    """The values of one column in one row group: where they are, and what becomes of them."""

    name: str
    type: pa.DataType
    kind: int
    width: int  # bytes of a value in the file
    unit: int  # bytes of a value in an Arrow array
    optional: bool
    compression: str
    start: int
    size: int
    plain: bool  # whether all pages are plain, as the footer says
    place: str  # file and row group, for messages
    n_rows: int


class _Layout(NamedTuple):
    """How the values of a column lie in its chunks; see `ColumnChunk`."""

    column: int  # of the file
    name: str
    type: pa.DataType
    kind: int
    width: int
    unit: int
    optional: bool
    stored: int  # type in the file


class LastSchemas(Generic[T]):
    """What was made of the columns that were asked for last, by several threads."""

    def __init__(self) -> None:
        self._held: tuple[tuple[pa.Schema, T], ...] = ()

    def of(self, schema: pa.Schema, make: Callable[[pa.Schema], T]) -> T:
        """Return what a function makes of columns, which it has made if they were asked for."""
        for known, found in self._held:
            if known.equals(schema):
                return found
        found = make(schema)
        self._held = (schema, found), *self._held[: MOST_SCHEMAS - 1]
        return found


class FileColumns:
    """The columns of files that have the same: as pyarrow reads them, and how they are read here.

    schema  pyarrow's, of Parquet
    arrow   the columns as Arrow has them
    leaves  columns of values
    """

    def __init__(self, schema: Any, metadata: Any) -> None:
        import pyarrow.parquet as pq

        self.schema = schema
        nothing = pa.BufferReader(b"")  # all that is asked is in the footer
        with pq.ParquetFile(
            nothing, metadata=metadata, coerce_int96_timestamp_unit=INSTANTS_IN
        ) as file:
            self.arrow: pa.Schema = file.schema_arrow
        self.leaves = [*map(schema.column, range(metadata.num_columns))]
        self._by_path: dict[str, list[int]] = {}
        for j, leaf in enumerate(self.leaves):
            self._by_path.setdefault(leaf.path, []).append(j)
        self._laid_out: LastSchemas[tuple[list[_Layout], dict[str, str]]] = LastSchemas()

    def laid_out(self, schema: pa.Schema) -> tuple[list[_Layout], dict[str, str]]:
        """Return how values lie in the chunks of columns, or why the kernels do not read them."""
        return self._laid_out.of(schema, self._lay_out)

    def _lay_out(self, schema: pa.Schema) -> tuple[list[_Layout], dict[str, str]]:
        each = [(name, self._layout(name, schema.field(name).type)) for name in schema.names]
        layouts = [layout for _, layout in each if not isinstance(layout, str)]
        return layouts, {name: layout for name, layout in each if isinstance(layout, str)}

    def _layout(self, name: str, kind: pa.DataType) -> _Layout | str:
        found = self._by_path.get(name, [])
        return "its values are nested" if len(found) != 1 else self._found(found[0], kind)

    def _found(self, j: int, kind: pa.DataType) -> _Layout | str:
        leaf = self.leaves[j]
        if leaf.max_repetition_level or leaf.max_definition_level > 1:
            return "its values are nested"
        physical = leaf.physical_type
        if (found := _stored(kind, leaf)) is None:
            return f"{kind} stored as {physical}"
        optional = leaf.max_definition_level == 1
        return _Layout(j, leaf.path, kind, *found, optional, _TYPES.index(physical))


class Footer:
    """What a file tells of itself: as pyarrow reads it, and where its column chunks are.

    pyarrow's objects of column chunks are not asked: a damaged footer can end the process there.

    row_bytes  of columns, as its reader works them out
    """

    columns: FileColumns

    def __init__(self, file: DataFile, before: Footer | None = None) -> None:
        """Read the footer; it shares the columns of another one, if they are the same."""
        import pyarrow.parquet as pq

        self._file, self._parsed = file, None
        metadata = self.metadata
        self.n_rows = metadata.num_rows
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        self.rows = [group.num_rows for group in groups]
        # `metadata.schema` would refer back to the metadata, which only a collection would free.
        schema = pq.ParquetSchema(metadata)
        self._arrow = (metadata.metadata or {}).get(b"ARROW:schema")
        same = before and before._arrow == self._arrow and before.columns.schema.equals(schema)
        self._owns = not (before and same)
        if before and same:
            self.columns = before.columns
        else:
            self.columns = FileColumns(schema, metadata)
        self._chunks: NDArray[np.int64] | None = None
        self._shaped: tuple[tuple[Any, ...], ...] = ()
        self.row_bytes: LastSchemas[int] = LastSchemas()

    @property
    def metadata(self) -> Any:
        """The footer as pyarrow reads it."""
        import pyarrow.parquet as pq

        parsed = self._parsed
        if parsed is None:
            with self._file.open() as handle:
                self._parsed = parsed = pq.read_metadata(handle)
                size = parsed.serialized_size
                self._bytes = handle.read_at(size, handle.size() - 8 - size)
        return parsed

    @property
    def nbytes(self) -> int:
        """About the bytes that it takes: objects take more than what they were parsed from."""
        held = self._parsed is not None or self._owns  # a schema holds all that it was read with
        return len(self._bytes) * (PARSED if held else 1)

    def lighten(self) -> None:
        """Let go of what pyarrow has read: it is read again when it is asked for."""
        self._parsed = None

    def _places(self, kernels: ModuleType) -> NDArray[np.int64]:
        """Return where the chunks are; no bytes where the footer does not tell."""
        if self._chunks is None:
            shape = len(self.rows), len(self.columns.leaves), p.N_CHUNK
            chunks = np.zeros(shape, np.int64)
            raw = np.frombuffer(self._bytes + bytes(p.SLACK), np.uint8)
            if not kernels.list_chunks(raw, chunks):
                chunks[...] = 0
            self._chunks = chunks
        return self._chunks

    def without_dictionaries(self, group: int, kernels: ModuleType) -> set[str]:
        """Return the columns of a row group of whose texts pyarrow makes no dictionaries."""
        chunks = self._places(kernels)[group, :, p.CHUNK_ENCODINGS]
        return {self.columns.leaves[j].path for j in np.flatnonzero(chunks & _NO_DICTIONARIES)}

    def largest(self, group: int, kernels: ModuleType) -> int:
        """Return the bytes in the file of the largest column of a row group; 0 if unknown."""
        return int(self._places(kernels)[group, :, p.CHUNK_SIZE].max(initial=0))

    def decoded_bytes(self, schema: pa.Schema, group: int, kernels: ModuleType) -> int:
        """Return about how many bytes a row of columns that kernels decode takes."""
        layouts, _ = self.columns.laid_out(schema)
        chunks = self._places(kernels)[group, [layout.column for layout in layouts]]
        n, packed = chunks[:, p.CHUNK_VALUES], chunks[:, p.CHUNK_UNPACKED]
        units = np.array([layout.unit for layout in layouts])
        strings = np.array([layout.kind == p.STRINGS for layout in layouts], np.bool_)
        units[strings] = (1 + (packed > n) + 2 * (packed > 2 * n))[strings]
        # one says that it has no nulls
        flags = np.array([layout.optional for layout in layouts]) * (chunks[:, p.CHUNK_NULLS] != 1)
        return int(units.sum() + flags.sum())

    def sizes(self, group: int, kernels: ModuleType) -> dict[str, tuple[int, int]]:
        """Return how many values each column of a row group has, and their bytes decompressed."""
        chunks = self._places(kernels)[group, :, [p.CHUNK_VALUES, p.CHUNK_UNPACKED]].T.tolist()
        leaves = self.columns.leaves
        return {leaf.path: (n, size) for leaf, (n, size) in zip(leaves, chunks, strict=True)}

    def shapes(
        self, schema: pa.Schema, groups: NDArray[np.int64], kernels: ModuleType
    ) -> ChunkShapes:
        """Return where the chunks of columns are in row groups, and how they are read.

        groups  (n, n_groups) int64, row groups that are decoded together
        """
        layouts = self.columns.laid_out(schema)[0]
        known = next((each for each in self._shaped if each[0] is layouts), None)
        if known is None:
            found = self._places(kernels)[:, [layout.column for layout in layouts]]
            fields = np.dstack([found[:, :, _ALIKE], found[:, :, p.CHUNK_DICTIONARY] > 0])
            rows = np.array(self.rows, np.int64)
            sizes = found[:, :, p.CHUNK_SIZE]
            known = layouts, rows, fields, _starts(found), sizes
            self._shaped = known, *self._shaped[: MOST_SCHEMAS - 1]
        n, first, last = len(groups), int(groups[0, 0]), int(groups[-1, -1])
        # what is side by side is not copied
        every: Any = slice(first, last + 1) if last - first + 1 == groups.size else groups
        rows, fields, starts, sizes = (each[every] for each in known[1:])
        return ChunkShapes(
            *(self.columns.laid_out(schema), rows.reshape(n, -1), fields.reshape(n, -1)),
            *(starts.reshape(n, -1), sizes.reshape(n, -1)),
        )

    def divide(
        self, schema: pa.Schema, group: int, kernels: ModuleType
    ) -> tuple[list[ColumnChunk], dict[str, str]]:
        """Return the chunks that the kernels read, and why they do not read the other columns.

        `schema` are the columns, of the types that they are read as.
        """
        layouts, reasons = self.columns.laid_out(schema)
        chunks, reasons = [], dict(reasons)
        place = f"{self._file.origin}, row group {group}"
        found = self._places(kernels)[group, [layout.column for layout in layouts]]
        starts = _starts(found).tolist()
        for layout, each, start in zip(layouts, found.tolist(), starts, strict=True):
            chunk = _chunk(layout, each, start, self.rows[group], place)
            if isinstance(chunk, str):
                reasons[layout.name] = chunk
            else:
                chunks.append(chunk)
        return chunks, reasons


class ChunkShapes(NamedTuple):
    """Column chunks of row groups that are decoded together, as the footer tells of them.

    layout  of the columns
    rows    (n, n_groups) int64
    fields  (n, n_fields) int64, all but where they are: where layout, rows and fields are equal,
            they are read in the same way
    starts  (n, n_chunks) int64, row group by row group
    sizes   (n, n_chunks) int64
    """

    layout: tuple[Any, ...]
    rows: NDArray[np.int64]
    fields: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def like(self, first: ChunkShapes, size: int, most: int) -> int:
        """Return how many, from the first on, are read like others.

        They must be in a file of this size, and have so many bytes at most.
        """
        if first.layout != self.layout or first.rows.shape[1:] != self.rows.shape[1:]:
            return 0
        starts, sizes = self.starts, self.sizes
        alike = (self.rows == first.rows).all(1) & (self.fields == first.fields).all(1)
        alike &= (sizes > 0).all(1) & (sizes <= most).all(1) & (sizes.sum(1) <= most)
        alike &= ((starts >= 4) & (starts <= size - sizes)).all(1)
        return len(alike) if alike.all() else int(alike.argmin())


class Footers:
    """Footers of files, read when they are asked for; those used last stay, while there is room.

    Thousands of them, or those of wide files, would fill the memory. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[DataFile, Footer] = OrderedDict()  # the last one was used last
        self._parsed: OrderedDict[DataFile, Footer] = OrderedDict()  # of these, what can be lighter
        self._sizes: dict[DataFile, int] = {}
        self._taken = 0  # bytes: the sum of the sizes
        self._last: Footer | None = None

    def __call__(self, file: DataFile) -> Footer:
        """Return the footer of a file."""
        with self._lock:
            if (found := self._kept.get(file)) is not None:
                self._keep(file, found)
                return found
        found = Footer(file, self._last)  # twice, if two threads ask at once
        with self._lock:
            self._last = found
            self._keep(file, found)
            while self._taken > FOOTERS and len(self._parsed) > 1:
                other, footer = self._parsed.popitem(last=False)
                footer.lighten()
                self._weigh(other, footer.nbytes)
            while self._taken > FOOTERS and len(self._kept) > 1:
                other, _ = self._kept.popitem(last=False)
                self._parsed.pop(other, None)
                self._weigh(other, 0)
        return found

    def _keep(self, file: DataFile, footer: Footer) -> None:
        for some in (self._kept, self._parsed):
            some[file] = footer
            some.move_to_end(file)
        self._weigh(file, footer.nbytes)

    def _weigh(self, file: DataFile, size: int) -> None:
        """Take note of the bytes of a footer: to add up all for each file takes quadratic time."""
        self._taken += size - self._sizes.pop(file, 0)
        if size:
            self._sizes[file] = size


@contextmanager
def filling(file: DataFile) -> Iterator[Fill]:
    """Open a file; return what fills memory with its bytes."""
    if file.local:
        descriptor = os.open(file.path, os.O_RDONLY)
    handle = None if file.local else file.open()

    def fill(offset: int, parts: list[memoryview]) -> None:
        while parts:
            if handle is None:
                n_read = os.preadv(descriptor, parts[:MOST_PARTS], offset)
            else:
                found = handle.read_at(len(parts[0]), offset)
                n_read = len(found)
                parts[0][:n_read] = found
            if n_read == 0:
                raise OSError("the file ends within a column chunk")
            offset += n_read
            while parts and n_read >= len(parts[0]):
                n_read -= len(parts.pop(0))
            if n_read:
                parts[0] = parts[0][n_read:]

    try:
        yield fill
    finally:
        if handle is None:
            os.close(descriptor)
        else:
            handle.close()


def _starts(chunks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where chunks begin in the file: the dictionary comes first, if there is one."""
    data, dictionary = chunks[..., p.CHUNK_DATA], chunks[..., p.CHUNK_DICTIONARY]
    return np.where((dictionary > 0) & (dictionary < data), dictionary, data)


def _chunk(
    layout: _Layout, found: list[int], start: int, n_rows: int, place: str
) -> ColumnChunk | str:
    """Return the chunk of a column in a row group, or why the kernels do not read it.

    `found` is what the footer tells of it.
    """
    compression = _CODEC_NAMES.get(found[p.CHUNK_CODEC], "an unknown codec")
    if compression not in CODECS:
        return f"compressed as {compression}"
    encodings = found[p.CHUNK_ENCODINGS]
    if encodings & ~_OWN:
        for encoding, called in _ENCODINGS.items():
            if encodings >> encoding & 1:
                return f"encoded as {called}"
    dictionary = found[p.CHUNK_DICTIONARY]
    if layout.kind == p.STRINGS and not (dictionary and encodings & _BY_ENTRIES):
        return "strings without a dictionary"
    size = found[p.CHUNK_SIZE]
    alike = found[p.CHUNK_VALUES] == n_rows and found[p.CHUNK_TYPE] == layout.stored
    if not alike or found[p.CHUNK_ELSEWHERE] or encodings & ~_OWN or start < 4 or size <= 0:
        return "the footer tells of something else"
    plain = not (dictionary or encodings & _BY_ENTRIES)
    return ColumnChunk(*layout[1:7], compression, start, size, plain, place, n_rows)


def _stored(kind: pa.DataType, leaf: Any) -> tuple[int, int, int] | None:
    """Return the kind of a column, and the bytes of a value in the file and in Arrow."""
    physical, t = leaf.physical_type, pa.types
    if physical == "BYTE_ARRAY":
        return (p.STRINGS, 0, 4) if t.is_dictionary(kind) else None
    if physical == "BOOLEAN":
        return (p.TRUTHS, 0, 1) if t.is_boolean(kind) else None
    if physical == "FLOAT":
        return (p.NUMBERS, 4, 4) if t.is_float32(kind) else None
    if physical == "DOUBLE":
        return (p.NUMBERS, 8, 8) if t.is_float64(kind) else None
    if t.is_decimal128(kind):
        if physical in ("INT32", "INT64"):
            return p.WIDENED, 4 if physical == "INT32" else 8, 16
        return (p.REVERSED, leaf.length, 16) if 0 < leaf.length <= 16 else None
    if physical == "FIXED_LEN_BYTE_ARRAY":
        alike = t.is_fixed_size_binary(kind) or t.is_float16(kind)
        same = alike and 0 < leaf.length == kind.bit_width // 8
        return (p.NUMBERS, leaf.length, leaf.length) if same else None
    if physical == "INT96":
        return (p.INSTANTS, 12, 8) if kind == pa.timestamp(INSTANTS_IN) else None
    if physical == "INT32" and (t.is_integer(kind) or t.is_date32(kind) or t.is_time32(kind)):
        return (p.NUMBERS, 4, kind.bit_width // 8) if kind.bit_width <= 32 else None
    if physical == "INT64":
        if t.is_timestamp(kind) or t.is_time64(kind):
            stored = json.loads(leaf.logical_type.to_json()).get("timeUnit")
            return (p.NUMBERS, 8, 8) if stored == _UNITS.get(kind.unit) else None
        if t.is_int64(kind) or t.is_uint64(kind) or t.is_duration(kind):
            return p.NUMBERS, 8, 8
    return None


def read_chunks(
    chunks: Sequence[ColumnChunk],
    fill: Fill,
    dictionaries: Dictionaries,
    *,
    block_rows: int,
    batch_bytes: int,
    ahead: int,
    n_threads: int,
) -> Iterator[list[pa.Array]]:
    """Yield the columns of a row group in batches of whole blocks of rows.

    `dictionaries` are those met before; `ahead` bytes are read in advance, where that saves round
    trips; threads share the columns out.
    """
    n_rows, packed = chunks[0].n_rows, sum(chunk.size for chunk in chunks)
    share = min(batch_bytes / (n_rows * sum(chunk.unit for chunk in chunks)), 1)
    n_runs = min(max(n_threads, int(packed * share / RUN_BYTES)), len(chunks))
    bounds = [len(chunks) * k // n_runs for k in range(n_runs + 1)]
    # what is small is read at once
    least = RUN_BYTES if packed <= min(batch_bytes, RUN_BYTES) else LEAST_READ
    least = max(least, ahead // len(chunks))
    readers = [
        ChunkReader(chunks[first:last], fill, dictionaries, least)
        for first, last in pairwise(bounds)
    ]
    n_threads = min(n_threads, n_runs)
    with ThreadPoolExecutor(n_threads) if n_threads > 1 else nullcontext() as pool:
        every: Any = map if pool is None else partial(mapped, pool)
        row_bytes = sum(every(ChunkReader.row_bytes, readers))
        most = min(batch_bytes // max(row_bytes, 1), BATCH_ROWS)
        step = max(most // block_rows, 1) * block_rows
        parts = every(methodcaller("take", min(step, n_rows)), readers)
        for first in range(step, n_rows + step, step):
            arrays = [array for part in parts for array in part]
            if first < n_rows:
                # threads decode the next batch while this one is used
                parts = every(methodcaller("take", min(step, n_rows - first)), readers)
            yield arrays


class ChunkReader:
    """Column chunks, decoded batch by batch: those of one row group, or of several as a whole.

    A batch takes whole pages: what they hold beyond its rows is held for the next one.
    """

    def __init__(
        self,
        chunks: Sequence[ColumnChunk],
        fill: Fill,
        dictionaries: Dictionaries,
        least: int,
    ) -> None:
        """Begin to read, at least so many bytes of a chunk at a time."""
        self._chunks, self._fill = chunks, fill
        self._known, self._least = dictionaries, least
        self._kernels = dispatch.compiled_module("reading.pages")
        n = len(chunks)
        _, _, kinds, widths, units, optional, codecs, starts, sizes, _, _, rows = zip(
            *chunks, strict=True
        )
        self._columns = columns = np.zeros((n, p.N_COLUMN), np.int64)
        columns[:, [p.ENTRIES, p.FOUND]] = -1
        columns[:, _GIVEN] = np.array(
            [kinds, widths, units, optional, [CODECS[codec] for codec in codecs], sizes, rows]
        ).T
        self._starts = np.array(starts, np.int64)
        self._sizes, self._rows = columns[:, p.MORE].copy(), columns[:, p.ROWS].copy()
        self._source = self._tables = self._out = np.zeros(p.SLACK, np.uint8)
        self._unpacked = self._indices = self._source
        self._rooms = np.zeros(n, np.int64)  # the ends of the places of columns in the source
        self._pages = np.empty((4 * n + 64, p.N_PAGE), np.int64)
        self._dictionaries: list[pa.Array | None] = [None] * n

    def row_bytes(self) -> int:
        """Return how much memory a row takes when it is decoded; the first pages tell."""
        columns = self._columns
        if (columns[:, p.KIND] == p.STRINGS).any():
            self._list(1)
        self._set_units()
        return int(columns[:, [p.UNIT, p.OPTIONAL]].sum())

    def _set_units(self) -> None:
        """Take the narrowest indices for dictionaries that were found."""
        columns = self._columns
        strings, found = columns[:, p.KIND] == p.STRINGS, columns[:, p.FOUND]
        units = 1 + (found > 1 << 8) + 2 * (found > 1 << 16)
        columns[strings, p.UNIT] = units[strings]

    def take(self, n: int) -> list[pa.Array]:
        """Return the next n rows."""
        self._decode(self._list(n))
        self._find_dictionaries()
        columns = self._columns
        arrays = [
            arrow_array(chunk.type, column, n, self._out, dictionary)
            for chunk, column, dictionary in zip(
                self._chunks, columns, self._dictionaries, strict=True
            )
        ]
        for i in np.flatnonzero(columns[:, p.NULLS]).tolist():
            columns[i, p.NULLS] -= arrays[i].null_count
        columns[:, p.HELD] -= n
        columns[:, p.OUT] += n * columns[:, p.UNIT]
        columns[:, p.KNOWN] += n
        return arrays

    def _list(self, n: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pages that hold the next n rows of each chunk; their bytes are there."""
        columns = self._columns
        columns[:, p.WANTED] = n
        while True:
            n_pages = self._kernels.list_pages(self._source, columns, self._pages)
            self._check()
            if n_pages > len(self._pages):
                self._pages = np.empty((2 * n_pages, p.N_PAGE), np.int64)
            elif columns[:, p.NEEDED].any():
                self._fetch()
            else:
                return self._pages[:n_pages]

    def _fetch(self) -> None:
        """Read on in the chunks that need it."""
        columns = self._columns
        # pages that differ much from each other are not foreseen to be more than usual
        usual = np.minimum(2 * self._sizes * columns[:, p.WANTED] // self._rows, RUN_BYTES)
        needed = columns[:, p.NEEDED]
        read = np.minimum(needed + columns[:, p.FURTHER] + HEADER, usual)
        read = np.minimum(np.maximum(read, np.maximum(needed, self._least)), columns[:, p.MORE])
        read[needed == 0] = 0
        if (read == self._sizes).all() and self._fetch_whole():
            return
        if (columns[:, p.END] + read > self._rooms).any():
            self._move(read + (read >> 2))
        view, ends = self._source.data, columns[:, p.END].tolist()
        stops = (self._starts + self._sizes - columns[:, p.MORE]).tolist()
        parts: list[memoryview] = []
        first, behind = 0, -1
        # what stands side by side in the file is read at once
        for i, size in enumerate(read.tolist()):
            if size == 0:
                continue
            if stops[i] != behind:
                self._fill(first, parts)
                first, parts = stops[i], []
            parts.append(view[ends[i] : ends[i] + size])
            behind = stops[i] + size
        self._fill(first, parts)
        columns[:, p.END] += read
        columns[:, p.MORE] -= read

    def _fetch_whole(self) -> bool:
        """Read all chunks as they stand in the file, if little else stands between them."""
        first, stops = int(self._starts.min()), self._starts + self._sizes
        size = int(stops.max()) - first
        if size > self._sizes.sum() + LEAST_READ:
            return False
        self._source = _with_room(self._source, size + p.SLACK)
        self._fill(first, [self._source.data[:size]])
        self._columns[:, p.BEGIN] = self._starts - first
        self._columns[:, p.END] = self._rooms = stops - first
        self._columns[:, p.MORE] = 0
        return True

    def _move(self, rooms: NDArray[np.int64]) -> None:
        """Move what was read and not yet used to where there is so much room behind it."""
        columns = self._columns
        begins, kept = columns[:, p.BEGIN].copy(), columns[:, p.END] - columns[:, p.BEGIN]
        starts, total = _places(kept + rooms)
        source = lend(total + p.SLACK)
        self._kernels.move(self._source, np.stack([begins, starts, kept], axis=1), source)
        columns[:, p.BEGIN], columns[:, p.END] = starts, starts + kept
        self._source, self._rooms = source, starts + kept + rooms

    def _decode(self, pages: NDArray[np.int64]) -> None:
        """Decode pages behind the rows that are held."""
        columns = self._columns
        if not len(pages):
            return
        self._unpack(pages)
        if (columns[:, p.FOUND] > columns[:, p.ENTRIES]).any():
            self._make_tables()
        self._make_room()
        largest = int(pages[:, p.VALUES].max(initial=0))
        needed = (int(columns[:, p.UNIT].max()) + 4) * largest + p.LEAD
        self._indices = _with_room(self._indices, needed)
        memory = self._tables, self._indices, self._out
        self._kernels.decode(self._source, self._unpacked, columns, pages, *memory)
        self._check()
        columns[:, p.BEGIN] = columns[:, p.NEXT]
        left = columns[:, p.END] - columns[:, p.BEGIN]
        if columns[:, p.ROWS].any() and 2 * left.sum() <= len(self._source):
            self._move(np.zeros_like(left))

    def _make_room(self) -> None:
        """Make room for the rows that are listed, behind those that are held."""
        columns, before = self._columns, self._out
        held, old = columns[:, p.HELD], columns[:, [p.OUT, p.KNOWN]]
        units = columns[:, [p.UNIT, p.OPTIONAL]]
        rooms = (held + columns[:, p.LISTED])[:, None] * units + p.SLACK
        # flags behind all values: where nothing is null, nobody touches their memory
        starts, total = _places(rooms.T.ravel())
        columns[:, [p.OUT, p.KNOWN]] = new = starts.reshape(2, -1).T
        self._out = out = lend(total)
        parts = np.stack([old, new, held[:, None] * units], axis=2).reshape(-1, 3)
        self._kernels.move(before, parts, out)

    def _unpack(self, pages: NDArray[np.int64]) -> None:
        """Make room for pages to be decompressed, and decompress those that `decode` does not."""
        columns = self._columns
        packed = pages[:, p.COMPRESSED] > 0
        sizes = (pages[:, p.RAW] - pages[:, p.LEVELS]) * packed
        foreign = packed & (columns[pages[:, p.OF], p.CODEC] == p.FOREIGN) & (sizes > 0)
        starts, total = _places(sizes * foreign)
        needed = total + int(sizes.max(initial=0)) + p.SLACK
        self._unpacked = unpacked = _with_room(self._unpacked, needed)
        if not foreign.any():
            return
        pages[foreign, p.PLACE] = starts[foreign]
        begins, ends = pages[:, p.AT] + pages[:, p.LEVELS], pages[:, p.AT] + pages[:, p.PACKED]
        frames = np.stack([begins, ends, starts, sizes], 1)
        left = foreign.copy()
        of_zstd = np.array([chunk.compression == "ZSTD" for chunk in self._chunks])
        slow = (sizes >= LARGE_PAGE) & (sizes > 2 * pages[:, p.PACKED])
        if (by_kernel := foreign & of_zstd[pages[:, p.OF]] & ~slow).any():
            unpack = dispatch.compiled_module("reading.zstd").unpack
            left[by_kernel] = ~unpack(self._source, frames[by_kernel], unpacked)
        for k in np.flatnonzero(left).tolist():
            begin, end, start, size = frames[k].tolist()
            of = int(pages[k, p.OF])
            try:
                found = _decompressed(self._chunks[of].compression, self._source[begin:end], size)
            except (pa.ArrowException, OSError, zlib.error):
                found = None
            if found is None or len(found) != size:
                raise self._error(of, p.CODED)
            unpacked[start : start + size] = np.frombuffer(found, np.uint8)

    def _make_tables(self) -> None:
        """Make room for the dictionaries that were found."""
        columns = self._columns
        entries = np.maximum(columns[:, p.FOUND], 0)
        strings = columns[:, p.KIND] == p.STRINGS
        ends = np.where(strings, 4 * (entries + 1), entries * columns[:, p.UNIT])
        parts = np.stack([ends, columns[:, p.SPACE] * strings], 1) + p.SLACK
        starts, total = _places(parts.ravel())
        columns[:, [p.TABLE, p.TEXT]] = starts.reshape(-1, 2)
        # zeros, so that equal dictionaries are equal bytes from the first to the last
        self._tables = np.zeros(total, np.uint8)

    def _find_dictionaries(self, first: int = 0, last: int | None = None) -> None:
        """Find or make the dictionaries of columns of strings that were decoded last."""
        strings = self._columns[first:last, p.KIND] == p.STRINGS
        lacking = [
            i for i in (first + np.flatnonzero(strings)).tolist() if self._dictionaries[i] is None
        ]
        if not lacking:
            return
        entries, ends, texts = self._columns[lacking][:, [p.ENTRIES, p.TABLE, p.TEXT]].T
        entries = np.maximum(entries, 0)
        held, bytes_ = self._tables.data, np.zeros(len(entries), np.int64)
        full = entries > 0
        last = (ends + 4 * entries)[full]
        bytes_[full] = self._tables[: len(self._tables) & ~3].view(np.int32)[last >> 2]
        where = np.stack([entries, ends, texts, bytes_], axis=1).tolist()
        for i, each in zip(lacking, where, strict=True):
            self._dictionaries[i] = self._dictionary(i, each, held)

    def _dictionary(self, i: int, where: list[int], held: memoryview) -> pa.Array:
        """Return the dictionary of a column, whose entries and their bytes lie in `held`."""
        entries, ends, text, n_bytes = where
        kind, size = self._chunks[i].type.value_type, 4 * (entries + 1)
        if not entries:
            return pa.array([], kind)
        name, raw = self._chunks[i].name, b""
        if size + n_bytes <= SHORT:
            raw = b"".join((held[ends : ends + size], held[text : text + n_bytes]))
            before = self._known.of_columns.get(name)
            if before is not None and before[0] == raw and before[1].type == kind:
                return before[1]
            tables, ends, text = pa.py_buffer(raw), 0, size
        else:
            tables = pa.py_buffer(self._tables)
        buffers = [None, tables.slice(ends, size), tables.slice(text)]
        dictionary = pa.Array.from_buffers(kind, entries, buffers, 0)
        try:
            dictionary.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FileFormatError(
                f"{self._chunks[i].place}, column {name!r}: {first_line(error)}; write the "
                "file again as UTF-8"
            ) from error
        if raw:
            self._known.of_columns[name] = raw, dictionary
        return dictionary

    def _check(self) -> None:
        """Raise what is wrong with the first column that is not sound."""
        status = self._columns[:, p.STATUS]
        for i in np.flatnonzero(status) if status.any() else ():
            if self._columns[i, p.STATUS] == p.OTHER:
                raise HandedOver(self._chunks[int(i)].name)
            raise self._error(int(i), int(self._columns[i, p.STATUS]))

    def _error(self, i: int, status: int) -> FileFormatError:
        return wrong(self._chunks[i].place, self._chunks[i].name, status)


class GroupsReader(ChunkReader):
    """All columns of row groups, few enough to be decoded as a whole.

    Parameters
    ----------
    schema
        The columns.
    chunks
        Those of each row group in turn.
    shapes
        What the footer tells of them, as one.
    fill, dictionaries
        As in `ChunkReader`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        chunks: Sequence[ColumnChunk],
        shapes: ChunkShapes,
        fill: Fill,
        dictionaries: Dictionaries,
    ) -> None:
        super().__init__(chunks, fill, dictionaries, RUN_BYTES)
        self._schema, self.shapes = schema, shapes
        self._begun = self._columns.copy()

    def take_all(self) -> DecodedRows:
        """Return all rows."""
        n_pages = 2 * len(self._rows) + int(self._rows.sum()) // PAGE_ROWS
        self._pages = np.empty((2 * n_pages, p.N_PAGE), np.int64)
        pages = self._list(self._rows)
        self._set_units()
        n = len(self._schema)
        groups = self._columns.reshape(-1, n, p.N_COLUMN)
        groups[:, :, p.UNIT] = groups[:, :, p.UNIT].max(axis=0)
        self._decode(pages)
        ends = [*self._columns[n::n, p.TABLE].tolist(), len(self._tables)]
        for k, stop in enumerate(ends):
            self._find_dictionaries_of_group(k * n, stop)
        held = [self._dictionaries[k : k + n] for k in range(0, len(self._chunks), n)]
        self._begun[:, p.UNIT] = self._columns[:, p.UNIT]
        self._decoded = pages
        return DecodedRows(self._schema, self._rows[::n], groups, self._out, held, self)

    @property
    def again(self) -> bool:
        """Whether kernels alone decode others like these."""
        codecs = {chunk.compression for chunk in self._chunks}
        return all(codec == "ZSTD" or CODECS[codec] != p.FOREIGN for codec in codecs)

    def memory(self) -> dict[str, Any]:
        """Return where row groups like these may be decoded, and what these left there.

        As `reading.row_groups.Chunks` of the kernels takes it. The values of these lie there, too.
        """
        done, packed = self._columns, int(self._sizes.sum())
        largest = int(self._decoded[:, p.VALUES].max(initial=0))
        memory = {
            "columns": np.stack([done, self._begun, done]),
            "pages": self._pages,
            "held": self._dictionary_pages(),
            "source": lend(packed + packed // 4 + len(done) * p.ALIGNED + p.SLACK),
            "unpacked": lend(2 * len(self._unpacked)),
            "tables": np.empty_like(self._tables),
            "indices": lend(2 * largest * (int(done[:, p.UNIT].max()) + 4) + p.LEAD),
            "out": self._out,
            "first": self._tables,
        }
        self._source = self._unpacked = self._indices = self._source[:0]
        return memory

    def is_short(self, c: int) -> bool:
        """Return whether the only chunk of a column has few entries.

        These are found among those of another one.
        """
        alone = len(self._columns) == len(self._schema)
        return alone and bool(0 <= self._columns[c, p.ENTRIES] <= FEW_ENTRIES)

    def _dictionary_pages(self) -> list[bytes]:
        """Return the bytes of each column's dictionary as they stand in the file."""
        found, pages = [b""] * len(self._columns), self._decoded
        for of, at, size in pages[pages[:, p.TYPE] == p.DICTIONARY][:, _PLACED].tolist():
            found[of] = self._source[at : at + size].tobytes()
        return found

    def _find_dictionaries_of_group(self, first: int, stop: int) -> None:
        """Find or make the dictionaries of a row group: its first chunk, and its tables' end."""
        schema = self._schema
        last = first + len(schema)
        start = int(self._columns[first, p.TABLE])
        if stop - start > SHORT * len(schema):
            self._find_dictionaries(first, last)
            return
        where = self._columns[first:last, [p.ENTRIES, p.TABLE, p.TEXT]] - [0, start, start]
        raw, known = where.tobytes() + self._tables[start:stop].tobytes(), self._known.of_group
        if known is None or known[1] != raw or not known[0].equals(schema):
            self._find_dictionaries(first, last)
            self._known.of_group = schema, raw, self._dictionaries[first:last]
        else:
            self._dictionaries[first:last] = known[2]


def wrong(place: str, name: str, status: int) -> FileFormatError:
    """Return the error of a column that is not sound; `place` says file and row group."""
    return FileFormatError(
        f"{place}, column {name!r}: {p.MEANINGS[status]}; write the file again or leave it out"
    )


# Entries of a dictionary that are found among those of another one by one.
FEW_ENTRIES = 1 << 12
# What the footer tells of a chunk that is read in the same way.
_ALIKE = [p.CHUNK_TYPE, p.CHUNK_CODEC, p.CHUNK_VALUES, p.CHUNK_ENCODINGS, p.CHUNK_ELSEWHERE]
# Where a page is.
_PLACED = [p.OF, p.AT, p.PACKED]


def _with_room(memory: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return memory of at least so many bytes, whatever it holds."""
    return memory if len(memory) >= size else lend(size)


# What chunks say of columns, in the order of their fields.
_GIVEN = [p.KIND, p.WIDTH, p.UNIT, p.OPTIONAL, p.CODEC, p.MORE, p.ROWS]


def _places(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return where parts of these sizes start one behind the other, and where all end."""
    ends = np.cumsum(-(-sizes // LINE) * LINE)
    return np.concatenate([[0], ends[:-1]])[: len(sizes)], int(ends[-1]) if len(ends) else 0


def _decompressed(compression: str, body: NDArray[np.uint8], size: int) -> bytes:
    """Return the bytes of a page, which may be more or fewer than it says."""
    if compression == "GZIP":
        unpack = zlib.decompressobj(47)
        found = unpack.decompress(body.data, size + 1)
        return found if unpack.eof else b""
    # `pyarrow.Codec` would not tell how many bytes it found
    stream = pa.CompressedInputStream(pa.BufferReader(body), compression.lower())
    return bytes(stream.read(size + 1))
