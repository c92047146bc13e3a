"""Reading of text: what CSV and JSON lines have in common.

The types of a file are inferred from its first block, unified over all files, and then used for
every block. A block that does not fit is parsed again, that block alone: integers may turn out to
be floats (the batch then holds float64 where the schema says integer), nulls anything; the rest is
a conflict. So rows are never handed out twice, nothing but a failing block is read again, and the
outcome does not depend on which worker came first.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import DataError
from fastbayes.data.filesource import FileReader, Piece
from fastbayes.data.paths import DataFile
from fastbayes.data.rows import Cut, blocks
from fastbayes.data.unify import unify_types

# Bytes (decompressed) of one block, which one worker parses.
BLOCK_BYTES = 16 << 20
# Bytes looked at to infer types, over all files together: of many files, less of each.
INFER_BYTES = 512 << 20
LEAST_INFER_BYTES = 1 << 20

# Column -> type; None asks for inference.
Types = Mapping[str, pa.DataType | None]

NOT_UTF8 = "is not UTF-8; convert the file, for instance: iconv -f latin1 -t utf8"


class TextReader(FileReader):
    """A file of text in blocks of whole rows."""

    n_rows = None

    def __init__(self, file: DataFile, cut: Cut, skip: int = 0) -> None:
        self.file = file
        self._cut = cut
        self._skip = skip
        self._lock = threading.Lock()
        self._wider: dict[str, pa.DataType] = {}

    @abstractmethod
    def parse(self, text: bytes, types: Types) -> pa.Table:
        """Return the columns of a block, in the order of `types`."""

    @abstractmethod
    def fault(self, error: Exception, text: bytes, index: int, types: Types) -> DataError:
        """Return the error for a block that cannot be parsed, naming column and row."""

    @abstractmethod
    def count_rows(self, text: bytes) -> int:
        """Return the rows of a block."""

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """Yield the rows in blocks of about `size` bytes, by default what one worker gets."""
        with self.file.stream() as stream:
            stream.read(self._skip)
            yield from blocks(stream, size or BLOCK_BYTES, self._cut, self.file.origin)

    def infer(self, types: Types, size: int) -> dict[str, pa.DataType]:
        """Return the types of the first block of `size` bytes."""
        text = next(self.blocks(size), b"")
        try:
            table = self.parse(text, types)
        except pa.ArrowException as error:
            raise self.fault(error, text, 0, types) from error
        return dict(zip(table.schema.names, table.schema.types, strict=True))

    def pieces(self, schema: pa.Schema, block_rows: int) -> Iterator[Piece]:
        """Yield one piece per block of text; the bytes are read in the calling thread."""
        types = dict(zip(schema.names, schema.types, strict=True))
        for index, text in enumerate(self.blocks()):
            yield Piece(0 if index == 0 else -1, None, partial(self._read, index, text, types))

    def _read(
        self, index: int, text: bytes, types: dict[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        yield from self._fitted(index, text, types).to_batches()

    def _fitted(self, index: int, text: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        loose = {name: None if _may_widen(kind) else kind for name, kind in types.items()}
        expected = {name: loose[name] if name in self._wider else types[name] for name in types}
        try:
            return self._widened(self.parse(text, expected), index, text, types)
        except pa.ArrowException as error:
            if loose == expected:
                raise self.fault(error, text, index, types) from error
        try:
            table = self.parse(text, loose)
        except pa.ArrowException as error:
            raise self.fault(error, text, index, types) from error
        return self._widened(table, index, text, types)

    def _widened(
        self, table: pa.Table, index: int, text: bytes, types: dict[str, pa.DataType]
    ) -> pa.Table:
        """Check the types that were inferred anew against those of the other blocks."""
        columns = []
        for name, column in zip(table.schema.names, table.columns, strict=True):
            with self._lock:
                before = self._wider.get(name, types[name])
                after = unify_types(before, column.type)
                if after is not None and after != types[name]:
                    self._wider[name] = after
            if after is None:
                raise self._conflict(name, before, index, text)
            columns.append(column if column.type == after else column.cast(after, safe=False))
        return pa.table(columns, names=table.schema.names)

    def _conflict(self, name: str, kind: pa.DataType, index: int, text: bytes) -> DataError:
        """Return the error for a column that has one type in some blocks, another in this one."""
        number = pa.float64() if pa.types.is_integer(kind) else kind
        try:
            self.parse(text, {name: number})
        except pa.ArrowException as error:
            return self.fault(error, text, index, {name: kind})
        row = self.rows_before(index)
        return DataError(
            f"{self.file.origin}, after row {row}: column {name!r} does not hold {kind} as it does "
            f"elsewhere; {self.remedy(name)}"
        )

    def misfit(self, name: str, kind: Any, value: str, row: int) -> DataError:
        """Return the error for a cell that does not have the type of its column."""
        return DataError(
            f"{self.file.origin}, row {row}: column {name!r} is {kind} elsewhere but holds "
            f"{value} here; {self.remedy(name)}"
        )

    @abstractmethod
    def remedy(self, name: str) -> str:
        """Return what to do about a column of several types."""

    def rows_before(self, index: int) -> int:
        """Count the rows of the blocks before one, by reading the file once more."""
        return sum(
            self.count_rows(text) for _, text in zip(range(index), self.blocks(), strict=False)
        )


def _may_widen(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind) or pa.types.is_integer(kind))


def infer_bytes(files: Sequence[DataFile]) -> int:
    """Return how much of each file is looked at to infer its types."""
    return max(LEAST_INFER_BYTES, min(BLOCK_BYTES, INFER_BYTES // len(files)))
