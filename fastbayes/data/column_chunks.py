"""Column chunks of Parquet files, decoded by the kernels: dictionaries stay dictionaries."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from operator import methodcaller
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import FileFormatError
from fastbayes.data.lent_memory import lend
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import first_line
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared import pages as p

# What one batch has at most, and what is read of a file at a time.
BATCH_ROWS = 1 << 20
LEAST_READ = 1 << 17
# Arrays within one buffer start cache lines.
LINE = 64

_TYPES = (
    *("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY"),
    "FIXED_LEN_BYTE_ARRAY",
)
_CODEC_NAMES = dict(enumerate(("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD")))
_CODEC_NAMES |= {7: "LZ4_RAW"}
_CODECS = {"UNCOMPRESSED": p.STORED, "SNAPPY": p.SNAPPY, "LZ4_RAW": p.LZ4} | dict.fromkeys(
    ("ZSTD", "GZIP", "BROTLI"), p.FOREIGN
)
DELTA_LENGTH = 6
_ENCODINGS = {
    5: "DELTA_BINARY_PACKED",
    DELTA_LENGTH: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    9: "BYTE_STREAM_SPLIT",
}
_OWN = 1 << p.PLAIN | 1 << p.PLAIN_DICTIONARY | 1 << p.RLE | 1 << p.BIT_PACKED
_OWN |= 1 << p.RLE_DICTIONARY
_BY_ENTRIES = 1 << p.PLAIN_DICTIONARY | 1 << p.RLE_DICTIONARY
_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


# Fills memory with the bytes of a file from an offset on.
Fill = Callable[[int, memoryview], None]


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


class Footer:
    """What a file tells of itself: as pyarrow reads it, and where its column chunks are.

    pyarrow's objects of column chunks are not asked: a damaged footer can end the process there.
    """

    def __init__(self, file: DataFile) -> None:
        import pyarrow.parquet as pq

        with file.open() as handle:
            self.metadata = pq.read_metadata(handle)
            size = self.metadata.serialized_size
            self._bytes = handle.read_at(size, handle.size() - 8 - size)
        columns = map(self.metadata.schema.column, range(self.metadata.num_columns))
        self._leaves = list(columns)
        self._chunks: NDArray[np.int64] | None = None

    def _places(self, kernels: ModuleType) -> NDArray[np.int64]:
        """Return where the chunks are; no bytes where the footer does not tell."""
        if self._chunks is None:
            shape = self.metadata.num_row_groups, len(self._leaves), p.N_CHUNK
            chunks = np.zeros(shape, np.int64)
            raw = np.frombuffer(self._bytes + bytes(p.SLACK), np.uint8)
            if not kernels.list_chunks(raw, chunks):
                chunks[...] = 0
            self._chunks = chunks
        return self._chunks

    def encoded(self, encoding: int, group: int, kernels: ModuleType) -> set[str]:
        """Return the columns of a row group some of whose pages are in an encoding."""
        chunks = self._places(kernels)[group, :, p.CHUNK_ENCODINGS]
        return {self._leaves[j].path for j in np.flatnonzero(chunks >> encoding & 1)}

    def divide(
        self, types: Mapping[str, pa.DataType], group: int, kernels: ModuleType
    ) -> tuple[list[ColumnChunk], dict[str, str]]:
        """Return the chunks that the kernels read, and why they do not read the other columns.

        `types` are the Arrow types that columns are read as, by their names.
        """
        chunks, reasons = [], {}
        n_rows = self.metadata.row_group(group).num_rows
        leaves: dict[str, list[int]] = {}
        for j, leaf in enumerate(self._leaves):
            leaves.setdefault(leaf.path, []).append(j)
        for name, kind in types.items():
            found = leaves.get(name, [])
            if len(found) != 1:
                reasons[name] = "its values are nested"
                continue
            places = self._places(kernels)[group, found[0]].tolist()
            chunk = _chunk(name, kind, self._leaves[found[0]], places, n_rows)
            if isinstance(chunk, str):
                reasons[name] = chunk
            else:
                chunks.append(chunk)
        return chunks, reasons


@contextmanager
def filling(file: DataFile) -> Iterator[Fill]:
    """Open a file; return what fills memory with its bytes."""
    if file.local:
        descriptor = os.open(file.path, os.O_RDONLY)
    handle = None if file.local else file.open()

    def fill(offset: int, memory: memoryview) -> None:
        while len(memory):
            if handle is None:
                n_read = os.preadv(descriptor, [memory], offset)
            else:
                found = handle.read_at(len(memory), offset)
                n_read = len(found)
                memory[:n_read] = found
            if n_read == 0:
                raise OSError("the file ends within a column chunk")
            offset, memory = offset + n_read, memory[n_read:]

    try:
        yield fill
    finally:
        if handle is None:
            os.close(descriptor)
        else:
            handle.close()


def _chunk(
    name: str, kind: pa.DataType, leaf: Any, places: list[int], n_rows: int
) -> ColumnChunk | str:
    """Return a chunk, or why the kernels do not read it."""
    if leaf.max_repetition_level or leaf.max_definition_level > 1:
        return "its values are nested"
    physical = leaf.physical_type
    if (found := _layout(kind, leaf)) is None:
        return f"{kind} stored as {physical}"
    compression = _CODEC_NAMES.get(places[p.CHUNK_CODEC], "an unknown codec")
    if compression not in _CODECS:
        return f"compressed as {compression}"
    encodings = places[p.CHUNK_ENCODINGS]
    for encoding, called in _ENCODINGS.items():
        if encodings >> encoding & 1:
            return f"encoded as {called}"
    dictionary, start = places[p.CHUNK_DICTIONARY], places[p.CHUNK_DATA]
    if found[0] == p.STRINGS and not (dictionary and encodings & _BY_ENTRIES):
        return "strings without a dictionary"
    if 0 < dictionary < start:
        start = dictionary
    size = places[p.CHUNK_SIZE]
    alike = places[p.CHUNK_VALUES] == n_rows and places[p.CHUNK_TYPE] == _TYPES.index(physical)
    if not alike or places[p.CHUNK_ELSEWHERE] or encodings & ~_OWN or start < 4 or size <= 0:
        return "the footer tells of something else"
    optional = leaf.max_definition_level == 1
    return ColumnChunk(name, kind, *found, optional, compression, start, size)


def _layout(kind: pa.DataType, leaf: Any) -> tuple[int, int, int] | None:
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
    place: str,
    chunks: Sequence[ColumnChunk],
    n_rows: int,
    fill: Fill,
    *,
    block_rows: int,
    batch_bytes: int,
    n_threads: int,
) -> Iterator[list[pa.Array]]:
    """Yield the columns of a row group in batches of whole blocks of rows.

    `place` says file and row group in messages; threads share the columns out.
    """
    n_parts = min(n_threads, len(chunks))
    usual = max(batch_bytes // len(chunks), LEAST_READ)
    bounds = [len(chunks) * k // n_parts for k in range(n_parts + 1)]
    readers = [
        ChunkReader(place, chunks[first:last], n_rows, fill, usual)
        for first, last in pairwise(bounds)
    ]
    with ThreadPoolExecutor(n_parts) if n_parts > 1 else nullcontext() as pool:
        every = map if pool is None else pool.map
        row_bytes = sum(every(ChunkReader.row_bytes, readers))
        most = min(batch_bytes // max(row_bytes, 1), BATCH_ROWS)
        step = max(most // block_rows, 1) * block_rows
        for first in range(0, n_rows, step):
            take = methodcaller("take", min(step, n_rows - first))
            yield [array for part in every(take, readers) for array in part]


class ChunkReader:
    """Chunks of one row group, decoded batch by batch.

    A batch takes whole pages: what they hold beyond its rows is held for the next one.
    """

    def __init__(
        self, place: str, chunks: Sequence[ColumnChunk], n_rows: int, fill: Fill, usual: int
    ) -> None:
        """Begin to read, `usual` bytes of a chunk at a time.

        `place` says file and row group in messages.
        """
        self._place, self._chunks, self._fill, self._usual = place, chunks, fill, usual
        self._kernels = dispatch.load("pages")
        n = len(self._chunks)
        self._columns = np.zeros((n, p.N_COLUMN), np.int64)
        self._columns[:, p.ROWS] = n_rows
        self._columns[:, [p.ENTRIES, p.FOUND]] = -1
        for name, field in (
            *(("size", p.MORE), ("kind", p.KIND), ("optional", p.OPTIONAL)),
            *(("width", p.WIDTH), ("unit", p.UNIT)),
        ):
            self._columns[:, field] = [getattr(chunk, name) for chunk in self._chunks]
        self._columns[:, p.CODEC] = [_CODECS[chunk.compression] for chunk in self._chunks]
        self._source = self._tables = self._out = np.zeros(p.SLACK, np.uint8)
        self._pages = np.zeros((4 * n + 64, p.N_PAGE), np.int64)
        self._dictionaries: list[pa.Array | None] = [None] * n

    def row_bytes(self) -> int:
        """Return how much memory a row takes when it is decoded; the first pages tell."""
        columns = self._columns
        self._list(1)
        strings = columns[:, p.KIND] == p.STRINGS
        few = [columns[:, p.FOUND] <= 1 << bits for bits in (8, 16)]
        columns[strings, p.UNIT] = np.select(few, [1, 2], 4)[strings]
        return int(columns[:, [p.UNIT, p.OPTIONAL]].sum())

    def take(self, n: int) -> list[pa.Array]:
        """Return the next n rows."""
        self._decode(self._list(n))
        return [self._taken(i, n) for i in range(len(self._chunks))]

    def _list(self, n: int) -> NDArray[np.int64]:
        """Return the pages that hold the next n rows; their bytes are there."""
        columns = self._columns
        columns[:, p.WANTED] = n
        while True:
            n_pages = self._kernels.list_pages(self._source, columns, self._pages)
            self._check()
            if n_pages > len(self._pages):
                self._pages = np.zeros((2 * n_pages, p.N_PAGE), np.int64)
            elif columns[:, p.NEEDED].any():
                self._fetch()
            else:
                return self._pages[:n_pages]

    def _fetch(self) -> None:
        """Read on in the chunks that need it; what is not used yet is kept."""
        columns = self._columns
        kept = columns[:, p.END] - columns[:, p.BEGIN]
        needed = columns[:, p.NEEDED]
        read = np.where(needed > 0, np.maximum(needed, self._usual), 0)
        read = np.minimum(read, columns[:, p.MORE])
        starts, total = _places(kept + read)
        source = lend(total + p.SLACK)
        view = source.data
        for i, chunk in enumerate(self._chunks):
            begin, start, middle = columns[i, p.BEGIN], starts[i], starts[i] + kept[i]
            source[start:middle] = self._source[begin : begin + kept[i]]
            if read[i]:
                offset = chunk.start + chunk.size - int(columns[i, p.MORE])
                self._fill(offset, view[middle : middle + read[i]])
        columns[:, p.BEGIN], columns[:, p.END] = starts, starts + kept + read
        columns[:, p.MORE] -= read
        self._source = source

    def _decode(self, pages: NDArray[np.int64]) -> None:
        """Decode pages behind the rows that are held."""
        columns, before = self._columns, self._out
        unpacked, largest = self._unpack(pages)
        if (columns[:, p.FOUND] > columns[:, p.ENTRIES]).any():
            self._make_tables()
        held, old = columns[:, p.HELD], columns[:, [p.OUT, p.KNOWN]]
        units = columns[:, [p.UNIT, p.OPTIONAL]]
        rooms = (held + columns[:, p.LISTED])[:, None] * units + p.SLACK
        starts, total = _places(rooms.ravel())
        columns[:, [p.OUT, p.KNOWN]] = new = starts.reshape(-1, 2)
        self._out = out = lend(total)
        for i in np.flatnonzero(held):
            for start, end, size in zip(old[i], new[i], held[i] * units[i], strict=True):
                out[end : end + size] = before[start : start + size]
        indices = lend(p.SCRATCH * largest + p.LEAD)
        self._kernels.decode(self._source, unpacked, columns, pages, self._tables, indices, out)
        self._check()
        columns[:, p.BEGIN] = columns[:, p.NEXT]

    def _unpack(self, pages: NDArray[np.int64]) -> tuple[NDArray[np.uint8], int]:
        """Return memory for pages to be decompressed, with those that `decode` does not.

        And the number of values of the largest page.
        """
        columns = self._columns
        packed = pages[:, p.COMPRESSED] > 0
        sizes = (pages[:, p.RAW] - pages[:, p.LEVELS]) * packed
        foreign = packed & (columns[pages[:, p.OF], p.CODEC] == p.FOREIGN) & (sizes > 0)
        starts, total = _places(sizes * foreign)
        unpacked = lend(total + int(sizes.max(initial=0)) + p.SLACK)
        pages[foreign, p.PLACE] = starts[foreign]
        begins, ends = pages[:, p.AT] + pages[:, p.LEVELS], pages[:, p.AT] + pages[:, p.PACKED]
        frames = np.stack([begins, ends, starts, sizes], 1)
        left = foreign.copy()
        of_zstd = np.array([chunk.compression == "ZSTD" for chunk in self._chunks])
        if (by_kernel := foreign & of_zstd[pages[:, p.OF]]).any():
            unpack = dispatch.load("zstd").unpack
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
        return unpacked, int(pages[:, p.VALUES].max(initial=0))

    def _make_tables(self) -> None:
        """Make room for the dictionaries that were found."""
        columns = self._columns
        entries = np.maximum(columns[:, p.FOUND], 0)
        strings = columns[:, p.KIND] == p.STRINGS
        ends = np.where(strings, 4 * (entries + 1), entries * columns[:, p.UNIT])
        parts = np.stack([ends, columns[:, p.SPACE] * strings], 1) + p.SLACK
        starts, total = _places(parts.ravel())
        columns[:, [p.TABLE, p.TEXT]] = starts.reshape(-1, 2)
        self._tables = np.empty(total, np.uint8)

    def _taken(self, i: int, n: int) -> pa.Array:
        """Return the next n rows of a column, which are no longer held."""
        column, kind = self._columns[i], self._chunks[i].type
        known, start = int(column[p.KNOWN]), int(column[p.OUT])
        unit, validity, nulls = int(column[p.UNIT]), None, 0
        if column[p.NULLS]:
            flags = self._out[known : known + n]
            nulls = n - int(np.count_nonzero(flags))
            validity = _bits(flags) if nulls else None
        column[p.HELD] -= n
        column[p.NULLS] -= nulls
        column[p.OUT] += n * unit
        column[p.KNOWN] += n
        if column[p.KIND] == p.TRUTHS:
            return pa.Array.from_buffers(
                kind, n, [validity, _bits(self._out[start : start + n])], nulls
            )
        values = pa.py_buffer(self._out).slice(start, n * unit)
        if column[p.KIND] != p.STRINGS:
            return pa.Array.from_buffers(kind, n, [validity, values], nulls)
        dictionary = self._dictionaries[i]
        if dictionary is None:
            dictionary = self._dictionaries[i] = self._dictionary(i)
        kind = pa.dictionary(_INDICES[unit], kind.value_type)
        return pa.DictionaryArray.from_buffers(kind, n, [validity, values], dictionary, nulls)

    def _dictionary(self, i: int) -> pa.Array:
        column, kind = self._columns[i], self._chunks[i].type.value_type
        entries, ends = max(int(column[p.ENTRIES]), 0), int(column[p.TABLE])
        if not entries:
            return pa.array([], kind)
        tables = pa.py_buffer(self._tables)
        buffers = [None, tables.slice(ends, 4 * (entries + 1)), tables.slice(int(column[p.TEXT]))]
        dictionary = pa.Array.from_buffers(kind, entries, buffers, 0)
        try:
            dictionary.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FileFormatError(
                f"{self._place}, column {self._chunks[i].name!r}: {first_line(error)}; write the "
                "file again as UTF-8"
            ) from error
        return dictionary

    def _check(self) -> None:
        """Raise what is wrong with the first column that is not sound."""
        for i in np.flatnonzero(self._columns[:, p.STATUS]):
            if self._columns[i, p.STATUS] == p.OTHER:
                raise HandedOver(self._chunks[int(i)].name)
            raise self._error(int(i), int(self._columns[i, p.STATUS]))

    def _error(self, i: int, status: int) -> FileFormatError:
        return FileFormatError(
            f"{self._place}, column {self._chunks[i].name!r}: {p.MEANINGS[status]}; write the "
            "file again or leave it out"
        )


_INDICES = {1: pa.uint8(), 2: pa.uint16(), 4: pa.int32()}


def _bits(flags: NDArray[np.uint8]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


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
