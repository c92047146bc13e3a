"""Readers of files with a schema of their own: Parquet, Arrow IPC, ORC."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import pyarrow as pa

from fastbayes.data.paths import DataFile
from fastbayes.data.segments import (
    SEGMENT_BLOCKS,
    Read,
    Segment,
    Source,
    reading,
    reblock,
    stream_segments,
)
from fastbayes.data.unify import Projection, is_text, select, unify_schemas
from fastbayes.errors import FileFormatError

# Bytes of one read from a Parquet column chunk, so that a huge row group is never held as a whole.
READ_BYTES = 1 << 20
# From this many files on, footers are read by several threads (latency, above all remote).
MANY_FILES = 16


class Piece(NamedTuple):
    """Rows of one file that one worker reads."""

    first_row: int
    n_rows: int | None
    read: Read


class FileReader(ABC):
    """One file: opened to learn its schema, closed, opened again for every piece."""

    # Whether a column that this file lacks is null in all its rows (formats that omit nulls).
    absent_is_null: ClassVar[bool] = False
    file: DataFile
    schema: pa.Schema
    n_rows: int | None

    @abstractmethod
    def pieces(self, schema: pa.Schema, block_rows: int) -> Iterator[Piece]:
        """Yield the pieces of the columns in `schema`, all of which the file has."""


R = TypeVar("R", bound=FileReader)


class FileSource(Source):
    """Files of one format, read one after another in pieces."""

    def __init__(
        self,
        readers: Sequence[FileReader],
        *,
        columns: Sequence[str] | None,
        null_values: Sequence[str] | None,
        description: str,
        native: Any,
    ) -> None:
        self.description = description
        self.native = native
        self._readers = readers
        self.schema = self._unified(columns)
        known = [reader.n_rows for reader in readers]
        self.n_rows = None if None in known else sum(n for n in known if n is not None)
        self._projection = Projection(self.schema, null_values)

    def _unified(self, columns: Sequence[str] | None) -> pa.Schema:
        first = self._readers[0]
        contract = select(_with_partitions(first), columns, first.file.origin)
        wanted = set(contract.names)
        parts = [(first.file.origin, contract)]
        last, last_file = contract, first
        for reader in self._readers[1:]:
            keys = [key for key, _ in reader.file.partitions]
            if reader.schema is not last_file.schema or keys != [
                key for key, _ in last_file.file.partitions
            ]:
                last = _with_partitions(reader)
                select(last, None, reader.file.origin)
                if columns is not None:
                    last = pa.schema([field for field in last if field.name in wanted])
                if reader.absent_is_null:
                    lacking = [
                        pa.field(n, pa.null()) for n in contract.names if n not in last.names
                    ]
                    last = pa.schema([*last, *lacking])
            parts.append((reader.file.origin, last))
            last_file = reader
        return unify_schemas(parts, strict=columns is None)

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the pieces of every file in turn."""
        index = 0
        for reader in self._readers:
            own = set(reader.schema.names)
            fields = [field for field in self.schema if field.name in own]
            fields = fields or [reader.schema.field(0)]  # only directories: rows must be counted
            origin = reader.file.origin
            with reading(origin):
                for piece in reader.pieces(pa.schema(fields), block_rows):
                    read = partial(self._read, reader, piece, block_rows)
                    yield Segment(index, origin, piece.first_row, piece.n_rows, read)
                    index += 1

    def _read(self, reader: FileReader, piece: Piece, block_rows: int) -> Iterator[pa.RecordBatch]:
        with reading(reader.file.origin):
            yield from reblock(self._conformed(reader, piece), block_rows)

    def _conformed(self, reader: FileReader, piece: Piece) -> Iterator[pa.RecordBatch]:
        for batch in piece.read():
            complete = self._completed(batch, reader)
            yield self._projection.blank(self._projection.conform(complete, reader.file.origin))

    def _completed(self, batch: pa.RecordBatch, reader: FileReader) -> pa.RecordBatch:
        """Add the columns that are not in the file: of its directories, or null."""
        absent = set(self.schema.names) - set(batch.schema.names)
        if not absent:
            return batch
        constant = dict(reader.file.partitions)
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in absent:
            n_rows = batch.num_rows
            arrays[name] = (
                _constant(constant[name], n_rows) if name in constant else pa.nulls(n_rows)
            )
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _with_partitions(reader: FileReader) -> pa.Schema:
    """Return the file's columns and those of its directories; where both have one, the file's."""
    kind = pa.dictionary(pa.int32(), pa.string())
    extra = [
        pa.field(key, kind) for key, _ in reader.file.partitions if key not in reader.schema.names
    ]
    return pa.schema([*reader.schema, *extra])


def _constant(value: str | None, n_rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(n_rows, pa.dictionary(pa.int32(), pa.string()))
    indices = pa.repeat(pa.scalar(0, pa.int32()), n_rows)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))


def open_all(files: Sequence[DataFile], open_one: Callable[[DataFile], R]) -> list[R]:
    """Read every footer up front, so that a broken file is found before counting starts."""

    def guarded(file: DataFile) -> R:
        with reading(file.origin, "write the file again or leave it out"):
            return open_one(file)

    if len(files) < MANY_FILES:
        readers = [guarded(file) for file in files]
    else:
        with ThreadPoolExecutor(8) as pool:
            readers = list(pool.map(guarded, files))
    for reader, before in zip(readers[1:], readers, strict=False):
        if reader.schema.equals(before.schema):
            reader.schema = before.schema  # ten thousand files, one schema
    return readers


class ParquetReader(FileReader):
    """Row group by row group; every column of strings is read as a dictionary."""

    # Workers decode a row group each; where there are fewer row groups than cores, Arrow's own
    # threads share out the columns.
    use_threads = False

    def __init__(self, file: DataFile, footers: Callable[[DataFile], Any]) -> None:
        self.file = file
        self._footers = footers
        metadata = footers(file)
        self.n_rows = metadata.num_rows
        self._rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        plain = metadata.schema.to_arrow_schema()
        select(plain, None, file.origin)
        self._text = [f.name for f in plain if dictionary_type(f.type) is not None]
        self.schema = pa.schema([f.with_type(dictionary_type(f.type) or f.type) for f in plain])

    @property
    def n_groups(self) -> int:
        """Number of row groups."""
        return len(self._rows)

    def pieces(self, schema: pa.Schema, block_rows: int) -> Iterator[Piece]:
        """Yield one piece per row group."""
        first = 0
        for group, n_rows in enumerate(self._rows):
            if n_rows:
                yield Piece(first, n_rows, partial(self._read, schema.names, group, block_rows))
            first += n_rows

    def _read(self, names: list[str], group: int, block_rows: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        local = self.file.local
        wanted = set(names)
        with (
            self.file.open() as handle,
            pq.ParquetFile(
                handle,
                metadata=self._footers(self.file),
                read_dictionary=[name for name in self._text if name in wanted],
                pre_buffer=not local,  # one round trip for many columns, where that counts
                buffer_size=READ_BYTES if local else 0,
                page_checksum_verification=True,
            ) as parquet,
        ):
            for batch in parquet.iter_batches(
                block_rows, row_groups=[group], columns=names, use_threads=self.use_threads
            ):
                _check_dictionaries(batch)
                yield batch


def dictionary_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the dictionary type that a column of strings or bytes is read as."""
    if is_text(kind):
        return pa.dictionary(pa.int32(), pa.string())
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.dictionary(pa.int32(), pa.binary())
    return None


def _check_dictionaries(batch: pa.RecordBatch) -> None:
    """Raise where a dictionary is not UTF-8, which pyarrow would tell only much later."""
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column.dictionary.validate(full=True)


def open_parquet(files: Sequence[DataFile]) -> list[ParquetReader]:
    """Open Parquet files."""
    import pyarrow.parquet as pq

    def footer(file: DataFile) -> Any:
        with file.open() as handle:
            return pq.read_metadata(handle)

    # Footers of thousands of wide files would fill the memory: only those in use are kept.
    footers = lru_cache(maxsize=64)(footer)
    readers = open_all(files, lambda file: ParquetReader(file, footers))
    if sum(reader.n_groups for reader in readers) < pa.cpu_count():
        for reader in readers:
            reader.use_threads = True
    return readers


class IpcReader(FileReader):
    """Arrow IPC file, mapped into memory where it is local; record batches grouped or cut."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        with self._open() as reader:
            self.schema = reader.schema
            self.n_rows = reader.count_rows()

    def _open(self, fields: Sequence[int] = ()) -> Any:
        handle = pa.memory_map(self.file.path) if self.file.local else self.file.open()
        options = pa.ipc.IpcReadOptions(included_fields=list(fields), use_threads=False)
        return pa.ipc.open_file(handle, options=options)

    def pieces(self, schema: pa.Schema, block_rows: int) -> Iterator[Piece]:
        """Yield pieces of up to a few blocks: whole record batches, or parts of a long one."""
        fields = [self.schema.get_field_index(name) for name in schema.names]
        step = SEGMENT_BLOCKS * block_rows
        first = rows = 0
        held: list[int] = []
        # the lengths of compressed batches are known only by decoding a column: the cheapest
        widths = {self.schema.field(j).name: _width(self.schema.field(j).type) for j in fields}
        narrow = min(widths, key=widths.__getitem__) if widths else self.schema.names[0]
        with self._open([self.schema.get_field_index(narrow)]) as reader:
            for index in range(reader.num_record_batches):
                n_rows = reader.get_batch(index).num_rows
                if held and rows + n_rows > step:
                    yield Piece(first, rows, partial(self._read, held, fields, block_rows))
                    first, rows, held = first + rows, 0, []
                if n_rows > step:
                    shared = _Shared(partial(self._batch, index, fields))
                    for start in range(0, n_rows, step):
                        count = min(step, n_rows - start)
                        read = partial(self._slices, shared, start, count, block_rows)
                        yield Piece(first + start, count, read)
                    first += n_rows
                elif n_rows:
                    held.append(index)
                    rows += n_rows
        if held:
            yield Piece(first, rows, partial(self._read, held, fields, block_rows))

    def _batch(self, index: int, fields: Sequence[int]) -> pa.RecordBatch:
        with self._open(fields) as reader:
            return reader.get_batch(index)

    def _read(
        self, indices: Sequence[int], fields: Sequence[int], block_rows: int
    ) -> Iterator[pa.RecordBatch]:
        with self._open(fields) as reader:
            for index in indices:
                yield validated(reader.get_batch(index))

    def _slices(
        self, shared: _Shared, start: int, count: int, block_rows: int
    ) -> Iterator[pa.RecordBatch]:
        part = shared.get().slice(start, count)
        for first in range(0, count, block_rows):
            yield validated(part.slice(first, block_rows))


class _Shared:
    """A record batch that several pieces are cut from, decoded by whichever comes first."""

    def __init__(self, decode: Callable[[], pa.RecordBatch]) -> None:
        self._decode = decode
        self._lock = threading.Lock()
        self._batch: pa.RecordBatch | None = None

    def get(self) -> pa.RecordBatch:
        with self._lock:
            if self._batch is None:
                self._batch = self._decode()
            return self._batch


def _width(kind: pa.DataType) -> int:
    try:
        return kind.bit_width
    except ValueError:
        return 1 << 20


def validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch if its offsets, indices and texts are sound: corrupt ones could crash."""
    batch.validate(full=True)
    return batch


class IpcStreamReader(FileReader):
    """Arrow IPC stream: read in the thread that asks for pieces, checked by the workers."""

    n_rows = None

    def __init__(self, file: DataFile) -> None:
        self.file = file
        with file.stream() as handle, pa.ipc.open_stream(handle) as reader:
            self.schema = reader.schema

    def pieces(self, schema: pa.Schema, block_rows: int) -> Iterator[Piece]:
        """Yield pieces of a few blocks."""
        with self.file.stream() as handle, pa.ipc.open_stream(handle) as reader:
            batches = (validated(batch).select(schema.names) for batch in reader)
            for first, blocks in stream_segments(batches, block_rows):
                yield Piece(first, sum(block.num_rows for block in blocks), partial(iter, blocks))


def open_ipc(files: Sequence[DataFile]) -> list[FileReader]:
    """Open Arrow IPC files of either kind."""

    def open_one(file: DataFile) -> FileReader:
        with file.open() as handle:
            magic = handle.read(6)
        if magic.startswith(b"FEA1"):
            raise FileFormatError(
                f"{file.origin}: Feather version 1; write it again as version 2 or Parquet"
            )
        return IpcReader(file) if magic == b"ARROW1" else IpcStreamReader(file)

    return open_all(files, open_one)


class OrcReader(FileReader):
    """ORC file, stripe by stripe."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        with file.open() as handle:
            orc = _orc(handle)
            self.schema = orc.schema
            self.n_rows = orc.nrows
            self._stripes = orc.nstripes

    def pieces(self, schema: pa.Schema, block_rows: int) -> Iterator[Piece]:
        """Yield one piece per stripe."""
        for stripe in range(self._stripes):
            yield Piece(
                0 if stripe == 0 else -1,
                self.n_rows if self._stripes == 1 else None,
                partial(self._read, schema.names, stripe),
            )

    def _read(self, names: list[str], stripe: int) -> Iterator[pa.RecordBatch]:
        with self.file.open() as handle:
            yield validated(_orc(handle).read_stripe(stripe, columns=names))


def _orc(handle: Any) -> Any:
    import pyarrow.orc

    return pyarrow.orc.ORCFile(handle)


def open_orc(files: Sequence[DataFile]) -> list[OrcReader]:
    """Open ORC files."""
    return open_all(files, OrcReader)
