"""Readers of files with a schema of their own: Parquet, Arrow IPC, ORC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import FileFormatError
from fastbayes.data.filesource import FileReader, Piece, open_all
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import SEGMENT_BLOCKS, OnError, sound, stream_segments
from fastbayes.data.unify import is_text

# A row group is read in pieces of this many bytes of each column, and decoded block by block: what
# is decoded is then still in the cache when it is encoded, and no row group is held as a whole.
READ_BYTES = 1 << 20


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
        _check_total(file, sum(self._rows), metadata.num_rows)
        plain = metadata.schema.to_arrow_schema()
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

        metadata = self._footers(self.file)
        wanted = set(names)
        with (
            self.file.open() as handle,
            pq.ParquetFile(
                handle,
                metadata=metadata,
                read_dictionary=[name for name in self._text if name in wanted],
                # one round trip for many columns, where that counts
                pre_buffer=not self.file.local,
                buffer_size=READ_BYTES if self.file.local else 0,
                page_checksum_verification=True,
            ) as parquet,
        ):
            # Not `sound`: the encoder checks the indices, and another pass costs a tenth.
            yield from parquet.iter_batches(
                block_rows, [group], names, use_threads=self.use_threads
            )


def dictionary_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the dictionary type that a column of strings or bytes is read as."""
    if is_text(kind):
        return pa.dictionary(pa.int32(), pa.string())
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.dictionary(pa.int32(), pa.binary())
    return None


def _check_total(file: DataFile, found: int, said: int | None) -> None:
    if found != said:
        raise FileFormatError(
            f"{file.origin} holds {found} rows but its footer says {said}; write it again"
        )


def open_parquet(files: Sequence[DataFile], on_error: OnError | None = None) -> list[ParquetReader]:
    """Open Parquet files."""
    import pyarrow.parquet as pq

    def footer(file: DataFile) -> Any:
        with file.open() as handle:
            return pq.read_metadata(handle)

    # Footers of thousands of wide files would fill the memory: only those in use are kept.
    footers = lru_cache(maxsize=64)(footer)
    readers = open_all(files, lambda file: ParquetReader(file, footers), on_error)
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

    @contextmanager
    def _open(self, fields: Sequence[int] = ()) -> Iterator[Any]:
        options = pa.ipc.IpcReadOptions(included_fields=list(fields), use_threads=False)
        # what was read keeps the mapping alive after the file is closed
        with pa.memory_map(self.file.path) if self.file.local else self.file.open() as handle:
            yield pa.ipc.open_file(handle, options=options)

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
                    parts = -(-n_rows // step)
                    part = -(-n_rows // (parts * block_rows)) * block_rows
                    for start in range(0, n_rows, part):
                        count = min(part, n_rows - start)
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
                yield sound(reader.get_batch(index))

    def _slices(
        self, shared: _Shared, start: int, count: int, block_rows: int
    ) -> Iterator[pa.RecordBatch]:
        part = shared.get().slice(start, count)
        for first in range(0, count, block_rows):
            yield sound(part.slice(first, block_rows))


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
            batches = (sound(batch).select(schema.names) for batch in reader)
            for first, blocks in stream_segments(batches, block_rows):
                yield Piece(first, sum(block.num_rows for block in blocks), partial(iter, blocks))


def open_ipc(files: Sequence[DataFile], on_error: OnError | None = None) -> list[FileReader]:
    """Open Arrow IPC files of either kind."""

    def open_one(file: DataFile) -> FileReader:
        with file.open() as handle:
            magic = handle.read(6)
        if magic.startswith(b"FEA1"):
            raise FileFormatError(
                f"{file.origin}: Feather version 1; write it again as version 2 or Parquet"
            )
        return IpcReader(file) if magic == b"ARROW1" else IpcStreamReader(file)

    return open_all(files, open_one, on_error)


class OrcReader(FileReader):
    """ORC file, stripe by stripe."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        with file.open() as handle:
            orc = _orc(handle)
            self.schema = orc.schema
            self.n_rows = orc.nrows
            self._stripes = orc.nstripes
        if self._stripes == 0:
            _check_total(file, 0, self.n_rows)

    def pieces(self, schema: pa.Schema, block_rows: int) -> Iterator[Piece]:
        """Yield one piece per stripe."""
        # stripes do not tell their rows, so the whole is checked when the last one has been read
        found: list[int] = []
        for stripe in range(self._stripes):
            first = 0 if stripe == 0 else -1
            yield Piece(first, None, partial(self._read, schema.names, stripe, found))

    def _read(self, names: list[str], stripe: int, found: list[int]) -> Iterator[pa.RecordBatch]:
        with self.file.open() as handle:
            batch = _orc(handle).read_stripe(stripe, columns=names)
        found.append(batch.num_rows)
        if len(found) == self._stripes:
            _check_total(self.file, sum(found), self.n_rows)
        yield sound(batch)


def _orc(handle: Any) -> Any:
    import pyarrow.orc

    return pyarrow.orc.ORCFile(handle)
