"""Reading of text: what CSV and JSON lines have in common.

The types of a file are inferred from its first block, unified over all files, and then used for
every block. A block that does not fit is parsed again, that block alone: integers may turn out to
be floats (the batch then holds float64 where the schema says integer), nulls anything; the rest is
a conflict. So rows are never handed out twice, nothing but a failing block is read again, and the
outcome does not depend on which worker came first.
"""

from __future__ import annotations

import csv
import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, FileFormatError
from fastbayes.data.filesource import FileReader, Piece
from fastbayes.data.paths import DataFile
from fastbayes.data.unify import unify_types

# A row that does not end within so many bytes has an unclosed quote, or the file is no text.
LONGEST_ROW = 64 << 20
DELIMITERS = (",", "\t", ";", "|")

Positions = NDArray[np.int64]
# (text, whether it is the last of the file) -> bytes of whole rows at its start
Cut = Callable[[bytes, bool], int]


class Stream(Protocol):
    """What blocks are read from."""

    def read(self, nbytes: int) -> bytes:
        """Return up to so many bytes, none at the end."""


class UnclosedQuoteError(Exception):
    """The text ends inside a quoted cell, which starts at byte `args[0]`."""


def blocks(stream: Stream, size: int, cut: Cut, origin: str) -> Iterator[bytes]:
    """Yield the text in blocks of about `size` bytes, each made of whole rows."""
    rest = b""
    while True:
        more = stream.read(size)
        text = rest + more
        try:
            end = cut(text, not more)
        except UnclosedQuoteError as error:
            start = text[error.args[0] : error.args[0] + 60].decode(errors="replace")
            raise DataError(
                f"{origin}: the quote that opens at {start!r} is never closed; mend that row"
            ) from error
        if end:
            yield text[:end]
        rest = text[end:]
        if not more:
            return
        if len(rest) > LONGEST_ROW:
            raise FileFormatError(
                f"{origin}: a row of more than {LONGEST_ROW >> 20} MiB, starting {rest[:60]!r}; "
                "is a quote not closed, or is this not a text file?"
            )


def cut_lines(text: bytes, last: bool) -> int:
    """Return where the last line ends."""
    return len(text) if last else text.rfind(b"\n") + 1


def cut_rows(delimiter: str) -> Cut:
    """Return the function that finds where the last row of CSV ends."""
    separators = delimiter.encode()

    def cut(text: bytes, last: bool) -> int:
        edges, unclosed = _quoted(text, separators)
        if last:
            if unclosed is not None:
                raise UnclosedQuoteError(unclosed)
            return len(text)
        # lines that end with a carriage return alone are rare: only where there is no newline
        mark = b"\n" if b"\n" in text else b"\r"
        end = len(text) if mark == b"\n" else len(text) - 1  # the newline may still follow
        if unclosed is not None:
            end = min(end, unclosed)
        while (at := text.rfind(mark, 0, end)) >= 0:
            edge = int(np.searchsorted(edges, at))
            if edge % 2 == 0:  # after as many closing as opening quotes
                return at + 1
            end = int(edges[edge - 1])
        return 0

    return cut


def _quoted(text: bytes, separators: bytes) -> tuple[Positions, int | None]:
    """Return where quoted cells open and close in turn, and where one opens that does not close."""
    if b'"' not in text:
        return np.zeros(0, np.int64), None
    data = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(data == ord('"'))
    if _well_formed(data, marks, separators):
        # every second quote closes (or is one of a doubled pair, which closes and opens again)
        if len(marks) % 2:
            return marks[:-1], int(marks[-1])
        return marks, None
    return _scan(text, separators)


def _well_formed(data: NDArray[np.uint8], marks: Positions, separators: bytes) -> bool:
    """Return whether quotes only open at the start of a cell and only close at its end."""
    opens, closes = marks[0::2], marks[1::2]
    # indices wrap around: what stands before the first byte and after the last one is no cell
    starts = _is_outside(data.take(opens - 1, mode="wrap"), separators)
    ends = _is_outside(data.take(closes + 1, mode="wrap"), separators)
    starts[0] |= opens[0] == 0
    if len(closes):
        ends[-1] |= closes[-1] == len(data) - 1
    return bool(starts.all() and ends.all())


def _is_outside(neighbours: NDArray[np.uint8], separators: bytes) -> NDArray[np.bool_]:
    found = neighbours == ord('"')
    for mark in b"\n\r" + separators:
        found |= neighbours == mark
    return found


def _scan(text: bytes, separators: bytes) -> tuple[Positions, int | None]:
    """Find quoted cells one after another, where quotes also stand inside unquoted cells."""
    cell = re.compile(rb'"(?<=[\r\n' + re.escape(separators) + rb']")(?:[^"]|"")*+("?)')
    edges: list[int] = []
    for found in cell.finditer(b"\n" + text):
        if not found[1]:
            return np.array(edges, np.int64), found.start() - 1
        edges += [found.start() - 1, found.end() - 2]
    return np.array(edges, np.int64), None


def csv_header(start: bytes, tabs: bool, origin: str) -> tuple[list[str], str, int]:
    """Return (column names, delimiter, bytes up to the first row) from the start of a file.

    The delimiter is a tab for .tsv; otherwise whichever of comma, tab, semicolon and bar is
    most frequent in the header row, outside quotes.
    """
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FileFormatError(
            f"{origin} is UTF-16; convert the file, for instance: iconv -f utf16 -t utf8"
        )
    skip = 3 if start.startswith(b"\xef\xbb\xbf") else 0
    while start[skip : skip + 1] in (b"\n", b"\r"):
        skip += 1
    if skip == len(start):
        raise FileFormatError(f"{origin} is empty; it needs a row of column names")
    end, begin = _first_row(start[skip:], origin)
    end, begin = end + skip, begin + skip
    try:
        header = start[skip:end].decode()
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{origin}: the row of column names is not UTF-8; convert the file, for instance: "
            "iconv -f latin1 -t utf8"
        ) from error
    bare = re.sub(r'"(?:[^"]|"")*"', "", header)
    delimiter = "\t" if tabs else max(DELIMITERS, key=bare.count)
    try:
        names = next(csv.reader([header], delimiter=delimiter))
    except csv.Error as error:
        raise FileFormatError(f"{origin}: the row of column names: {error}") from error
    return names, delimiter, begin


def _first_row(text: bytes, origin: str) -> tuple[int, int]:
    """Return where the first row ends and where the next begins."""
    edges, unclosed = _quoted(text, "".join(DELIMITERS).encode())
    at = 0
    while newline := re.compile(rb"\r?\n|\r").search(text, at):
        edge = int(np.searchsorted(edges, newline.start()))
        if edge % 2:
            at = int(edges[edge])
        elif unclosed is None or newline.start() < unclosed:
            return newline.start(), newline.end()
        else:
            break
    if unclosed is not None:
        raise FileFormatError(f"{origin}: a quote in the row of column names is never closed")
    return len(text), len(text)


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
