"""Files of one format as one source: their schemas unified, their pieces handed out in order."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from fastbayes.core.errors import DataError, FileFormatError
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import (
    OnError,
    Read,
    Segment,
    Source,
    leaving_out,
    numbers,
    reading,
    reblock,
)
from fastbayes.data.unify import check_names, select, unify_schemas

# From this many files on, footers are read by several threads (latency, above all remote).
MANY_FILES = 16
_REMEDY = "write the file again or leave it out"


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
        on_error: OnError | None = None,
    ) -> None:
        self._readers = readers
        self._on_error = on_error
        super().__init__(self._unified(columns), None, null_values, description, native)
        self.available = _with_partitions(readers[0]).names
        self.versions = [(r.file.origin, r.file.size, r.file.modified) for r in readers]
        known = [reader.n_rows for reader in readers if reader.n_rows is not None]
        self.n_rows = sum(known) if len(known) == len(readers) else None

    def _unified(self, columns: Sequence[str] | None) -> pa.Schema:
        first = self._readers[0]
        contract = select(_with_partitions(first), columns, first.file.origin)
        parts = [(first.file.origin, contract)]
        seen: dict[tuple[int, tuple[str, ...]], pa.Schema] = {}
        for reader in self._readers[1:]:
            shape = (id(reader.schema), tuple(key for key, _ in reader.file.partitions))
            if shape not in seen:  # ten thousand files, one schema
                seen[shape] = _visible(reader, contract, columns is None)
            parts.append((reader.file.origin, seen[shape]))
        return unify_schemas(parts, strict=columns is None)

    def only(self, columns: Sequence[str]) -> FileSource:
        """Return the source with these columns; the others are not decoded."""
        fewer = copy.copy(self)
        fewer.schema = pa.schema([self.schema.field(name) for name in columns])
        fewer._projection = self._projection.onto(fewer.schema)
        return fewer

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the pieces of every file in turn."""
        index = 0
        for reader in self._readers:
            own = set(reader.schema.names)
            if reader.absent_is_null:  # the first rows may lack a key that later ones have
                own |= set(self.schema.names) - {key for key, _ in reader.file.partitions}
            fields = [field for field in self.schema if field.name in own]
            fields = fields or [reader.schema.field(0)]  # only directories: rows must be counted
            origin = reader.file.origin
            with leaving_out(self._on_error), reading(origin, _REMEDY):
                for piece in reader.pieces(pa.schema(fields), block_rows):
                    read = partial(self._read, reader, piece, block_rows)
                    yield Segment(index, origin, piece.first_row, piece.n_rows, read)
                    index += 1

    def _read(self, reader: FileReader, piece: Piece, block_rows: int) -> Iterator[pa.RecordBatch]:
        with reading(reader.file.origin, _REMEDY):
            yield from reblock(self._conformed(reader, piece), block_rows)

    def _conformed(self, reader: FileReader, piece: Piece) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        for batch in piece.read():
            complete = self._completed(batch, reader)
            n_rows += batch.num_rows
            yield self._projection.blank(self._projection.conform(complete, reader.file.origin))
        if piece.n_rows is not None and n_rows != piece.n_rows:
            raise FileFormatError(
                f"{reader.file.origin} holds {n_rows} rows from row {piece.first_row} on but its "
                f"metadata says {piece.n_rows}; write it again"
            )

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


def _visible(reader: FileReader, contract: pa.Schema, every: bool) -> pa.Schema:
    """Return the columns of a further file that are compared with those of the first."""
    fields = list(_with_partitions(reader))
    if not every:
        fields = [field for field in fields if field.name in contract.names]
    if reader.absent_is_null:
        names = {field.name for field in fields}
        fields += [pa.field(name, pa.null()) for name in contract.names if name not in names]
    return pa.schema(fields)


def _constant(value: str | None, n_rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(n_rows, pa.dictionary(pa.int32(), pa.string()))
    text = value.encode()
    ends = pa.py_buffer(np.array([0, len(text)], np.int32))
    dictionary = pa.StringArray.from_buffers(1, ends, pa.py_buffer(text))
    return pa.DictionaryArray.from_arrays(numbers(np.zeros(n_rows, np.int32)), dictionary)


def open_all(
    files: Sequence[DataFile], open_one: Callable[[DataFile], R], on_error: OnError | None
) -> list[R]:
    """Read every footer up front, so that a broken file is found before counting starts.

    `on_error` gets the error of each broken file, in order; without it the first one is raised.
    """

    def guarded(file: DataFile) -> R | DataError:
        try:
            with reading(file.origin, _REMEDY):
                reader = open_one(file)
                check_names(reader.schema.names, file.origin)
                return reader
        except DataError as error:
            return error

    readers: list[R] = []

    def take(outcomes: Iterable[R | DataError]) -> None:
        for outcome in outcomes:
            with leaving_out(on_error):
                if isinstance(outcome, DataError):
                    raise outcome
                readers.append(outcome)

    if len(files) < MANY_FILES:
        take(map(guarded, files))
    else:
        with ThreadPoolExecutor(8) as pool:
            take(pool.map(guarded, files))
    if not readers:
        raise FileFormatError(f"{files[0].origin}: none of the files can be read")
    for reader, before in zip(readers[1:], readers, strict=False):
        if reader.schema.equals(before.schema):
            reader.schema = before.schema  # ten thousand files, one schema
    return readers
