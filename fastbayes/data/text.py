"""Readers of text: CSV and JSON lines, in blocks of whole rows that workers parse apart.

The types of a file are inferred from its first block, unified over all files, and then used for
every block. A block that does not fit is parsed again, that block alone: integers may turn out to
be floats (the batch then holds float64 where the schema says integer), dates timestamps, these of a
finer unit, and nulls anything; the rest is a conflict. So rows are never handed out twice, nothing
but a failing block is read again, and the outcome does not depend on which worker came first.
"""

from __future__ import annotations

import csv
import json
import math
import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.date_parts import zone_of
from fastbayes.core.errors import DataError, FileFormatError, SchemaError, refuse
from fastbayes.data.filesource import FileReader, Piece, open_all
from fastbayes.data.paths import DataFile
from fastbayes.data.rejects import BadRow, Rejects
from fastbayes.data.segments import OnError, first_line, waiting
from fastbayes.data.unify import Columns, check_names, is_moment, is_text, unify_types

# A row that does not end within so many bytes has an unclosed quote, or the file is no text.
LONGEST_ROW = 64 << 20
DELIMITERS = (",", "\t", ";", "|")

Positions = NDArray[np.int64]
# (text, whether it is the last of the file) -> bytes of whole rows at its start
Cut = Callable[[bytes, bool], int]


class UnclosedQuoteError(Exception):
    """The text ends inside a quoted cell, which starts at byte `args[0]`."""


def blocks(stream: pa.NativeFile, size: int, cut: Cut, origin: str) -> Iterator[bytes]:
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
        refuse(
            len(rest) > LONGEST_ROW,
            f"{origin}: a row of more than {LONGEST_ROW >> 20} MiB, starting {rest[:60]!r}; "
            "is a quote not closed, or is this not a text file?",
            FileFormatError,
        )


def cut_lines(text: bytes, last: bool) -> int:
    """Return where the last line ends."""
    return len(text) if last else text.rfind(b"\n") + 1


def cut_rows(delimiter: str) -> Cut:
    """Return the function that finds where the last row of CSV ends."""
    return partial(_cut_rows, delimiter.encode())


def _cut_rows(separators: bytes, text: bytes, last: bool) -> int:
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
    _refuse_packed(start, origin)
    refuse(
        start[:2] in (b"\xff\xfe", b"\xfe\xff"),
        f"{origin} is UTF-16; convert the file, for instance: iconv -f utf16 -t utf8",
        FileFormatError,
    )
    skip = 3 if start.startswith(b"\xef\xbb\xbf") else 0
    while start[skip : skip + 1] in (b"\n", b"\r"):
        skip += 1
    refuse(
        skip == len(start), f"{origin} is empty; it needs a row of column names", FileFormatError
    )
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


# How files of text that are compressed begin, by the suffix that says so.
_PACKED = {
    ".gz": rb"\x1f\x8b\x08",
    ".bz2": rb"BZh[1-9]1AY&SY",
    ".xz": rb"\xfd7zXZ\0",
    ".zst": rb"\(\xb5/\xfd",
}


def _refuse_packed(start: bytes, origin: str) -> None:
    """Raise FileFormatError where what is read as text is compressed."""
    for suffix, mark in _PACKED.items():
        refuse(
            re.match(mark, start) is not None,
            f"{origin} is compressed: its name must say so ({suffix} at its end), or decompress it",
            FileFormatError,
        )


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
    refuse(
        unclosed is not None,
        f"{origin}: a quote in the row of column names is never closed",
        FileFormatError,
    )
    return len(text), len(text)


# Bytes (decompressed) of one block, which one worker parses.
BLOCK_BYTES = 16 << 20
# Bytes looked at to infer types, over all files together: of many files, less of each.
INFER_BYTES = 512 << 20
LEAST_INFER_BYTES = 1 << 20

# Numbers as CSV has them.
_NUMBER = r"^\s*[-+]?((\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|(?i:nan|inf|infinity))\s*$"

_INFINITE = r"^\s*[-+]?(?i:inf|infinity)\s*$"
# A byte order mark.
_MARK = b"\xef\xbb\xbf"
# How many objects may stand in each other in a record: each level takes frames of Python's stack.
NESTING = 200

# How dates and timestamps begin, and times of day.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d\d:\d\d")

# Column -> type; None asks for inference.
Types = Mapping[str, pa.DataType | None]

NOT_UTF8 = "is not UTF-8; convert the file, for instance: iconv -f latin1 -t utf8"


class TextReader(FileReader):
    """A file of text in blocks of whole rows."""

    n_rows = None
    by_rows = True
    # Blocks of text are of one size, with which sums begin anew, and hold every column.
    takes_less = "write the rows as Parquet, which is read in smaller pieces"

    def __init__(
        self, file: DataFile, cut: Cut, skip: int = 0, rejects: Rejects | None = None
    ) -> None:
        self.file = file
        self._cut = cut
        self._skip = skip
        self._rejects = rejects
        self._lock = threading.Lock()
        self._wider: dict[str, pa.DataType] = {}
        self._lines: list[int] = []  # of each block that was read, where none can be read again

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @abstractmethod
    def parse(self, text: bytes, types: Types) -> pa.Table:
        """Return the columns of a block, in the order of `types`."""

    @abstractmethod
    def fault(self, error: Exception, text: bytes, index: int, types: Types) -> DataError:
        """Return the error for a block that cannot be parsed, naming column and row."""

    @abstractmethod
    def count_rows(self, text: bytes) -> int:
        """Return the rows of a block."""

    @abstractmethod
    def ends(self, text: bytes) -> Positions:
        """Return where the rows of a block end, blank lines included."""

    def is_row(self, text: bytes) -> bool:
        """Return whether what ends where a row ends is one, and not a blank line."""
        return bool(text.strip())

    @abstractmethod
    def suspects(self, rows: Sequence[bytes], types: Types) -> dict[int, str]:
        """Return rows that cannot be used, by position, with the reason; those easily told."""

    @property
    def skipping(self) -> str:
        """What messages say of the way to do without rows that cannot be mended."""
        return "" if self.file.read_once else "; or leave such rows out (on_error='skip-rows')"

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """Yield the rows in blocks of about `size` bytes, by default what one worker gets."""
        with self.file.stream() as stream:
            stream.read(self._skip)
            yield from blocks(stream, size or BLOCK_BYTES, self._cut, self.file.origin)

    def infer(self, types: Types, size: int) -> dict[str, pa.DataType]:
        """Return the types of the first block of `size` bytes."""
        text = next(self.blocks(size), b"")
        if self._rejects is not None:
            text = self._usable(text, types)
        try:
            table = self.parse(text, types)
        except pa.ArrowException as error:
            raise self.fault(error, text, 0, types) from error
        return dict(zip(table.schema.names, table.schema.types, strict=True))

    def _usable(self, text: bytes, types: Types) -> bytes:
        """Return the rows of the first block without those that cannot be used."""
        assert self._rejects is not None
        rows = _cut_at(text, self.ends(text))
        bad = self.suspects(rows, types)
        found = self._bad_rows(rows, bad, self._first_line())
        self._rejects.check(self.file.origin, _n_rows(rows), found)
        return b"".join(row for i, row in enumerate(rows) if i not in bad)

    @staticmethod
    def _bad_rows(rows: Sequence[bytes], bad: Mapping[int, str], line: int) -> list[BadRow]:
        """Return the bad rows of a block that begins with a line of this number."""
        lines = np.cumsum([line, *(_n_lines([row]) for row in rows)])
        return [BadRow(int(lines[i]), bad[i], rows[i]) for i in sorted(bad)]

    def _first_line(self) -> int:
        """Return the number of the line in which the first block begins."""
        with self.file.stream() as stream:
            return 1 + _n_lines([stream.read(self._skip)])

    def held(self, schema: pa.Schema, threads: int, batch_bytes: int) -> int:
        """Return about how many bytes are held: text that waits, and the tables made of it.

        A block of text is cut off with the beginning of the next; parsed it is as large again, and
        so are the blocks of rows that it is joined to.
        """
        text = BLOCK_BYTES if self.file.compression else min(BLOCK_BYTES, self.file.size)
        return text * (2 + waiting(threads) + 3 * threads)

    def pieces(
        self, schema: pa.Schema, block_rows: int, batch_bytes: int, threads: int, merged: bool
    ) -> Iterator[Piece]:
        """Yield one piece per block of text; the bytes are read in the calling thread."""
        types = dict(zip(schema.names, schema.types, strict=True))
        line = 0 if self._rejects is None else self._first_line()
        self._lines.clear()
        for index, text in enumerate(self.blocks()):
            if self.file.read_once:
                self._lines.append(len(self.ends(text)))
            unused: list[int] = []
            read = partial(self._read, index, text, types, line, unused)
            yield Piece(0 if index == 0 else -1, None, read, unused=unused)
            line += 0 if self._rejects is None else _n_lines([text])

    def _read(
        self,
        index: int,
        text: bytes,
        types: dict[str, pa.DataType],
        line: int,
        unused: list[int],
    ) -> Iterator[pa.RecordBatch]:
        if self._rejects is None:
            yield from self._fitted(index, text, types).to_batches()
            return
        try:
            table = self._all_finite(self._tried(text, types))
        except (pa.ArrowException, _Conflict):
            text, unused[:] = self._without_bad(self._rejects, index, text, types, line)
            table = self._fitted(index, text, types)
        yield from table.to_batches()

    def _without_bad(
        self, rejects: Rejects, index: int, text: bytes, types: dict[str, pa.DataType], line: int
    ) -> tuple[bytes, list[int]]:
        """Return the rows of a block that can be used, and the positions of others, now noted."""
        rows = _cut_at(text, self.ends(text))
        bad = self.suspects(rows, types)
        left = [i for i in range(len(rows)) if i not in bad]
        bad |= self._by_halves(rows, left, types, rejects.most(len(rows)) + 1)
        found = self._bad_rows(rows, bad, line)
        rejects.add(self.file.origin, index, _n_rows(rows), found)
        places = np.cumsum([self.is_row(row) for row in rows]) - 1
        used = b"".join(row for i, row in enumerate(rows) if i not in bad)
        return used, places[sorted(bad)].tolist()

    def _by_halves(
        self, rows: Sequence[bytes], some: Sequence[int], types: dict[str, pa.DataType], most: int
    ) -> dict[int, str]:
        """Return which of some rows cannot be parsed, and why; no more than so many."""
        if not some or most <= 0:
            return {}
        try:
            self._all_finite(self._tried(b"".join(rows[i] for i in some), types, note=False))
        except (pa.ArrowException, _Conflict) as error:
            if len(some) == 1:
                return {some[0]: first_line(error)}
        else:
            return {}
        middle = len(some) // 2
        found = self._by_halves(rows, some[:middle], types, most)
        return found | self._by_halves(rows, some[middle:], types, most - len(found))

    def _all_finite(self, table: pa.Table) -> pa.Table:
        """Return a table without infinite numbers, which no model takes; ArrowInvalid if it has."""
        for name, column in zip(table.schema.names, table.columns, strict=True):
            if not pa.types.is_floating(column.type) or name in self.copied:
                continue
            if pc.any(pc.is_inf(column)).as_py():
                raise pa.ArrowInvalid(_infinite(name))
        return table

    def _fitted(self, index: int, text: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        try:
            return self._tried(text, types)
        except pa.ArrowException as error:
            raise self.fault(error, text, index, types) from error
        except _Conflict as found:
            raise self._conflict(found.name, found.kind, index, text) from None

    def _tried(self, text: bytes, types: dict[str, pa.DataType], *, note: bool = True) -> pa.Table:
        """Parse a block; types that it widens are noted for the other blocks."""
        loose = {name: None if _may_widen(kind) else kind for name, kind in types.items()}
        expected = {name: loose[name] if name in self._wider else types[name] for name in types}
        try:
            return self._widened(self.parse(text, expected), types, note)
        except pa.ArrowException:
            if loose == expected:
                raise
        return self._widened(self.parse(text, loose), types, note)

    def _widened(self, table: pa.Table, types: dict[str, pa.DataType], note: bool) -> pa.Table:
        """Check the types that were inferred anew against those of the other blocks."""
        wider: dict[str, pa.DataType] = {}
        columns = []
        with self._lock:
            for name, column in zip(table.schema.names, table.columns, strict=True):
                before = self._wider.get(name, types[name])
                after = unify_types(before, column.type)
                if after is None:
                    raise _Conflict(name, before, column.type)
                try:
                    if column.type != after:
                        column = column.cast(after, safe=is_moment(after))
                except pa.ArrowInvalid as error:  # years that its finer unit does not reach
                    raise _Conflict(name, after, column.type) from error
                wider[name] = after
                columns.append(column)
            if note:
                self._wider |= {name: kind for name, kind in wider.items() if kind != types[name]}
        return pa.table(columns, names=table.schema.names)

    def _conflict(self, name: str, kind: pa.DataType, index: int, text: bytes) -> DataError:
        """Return the error for a column that has one type in some blocks, another in this one."""
        widest = kind
        if pa.types.is_integer(kind):
            widest = pa.float64()
        elif is_moment(kind):
            of_day = pa.types.is_time(kind)
            widest = pa.time64("ns") if of_day else pa.timestamp("ns", zone_of(kind))
        try:
            self.parse(text, {name: widest})
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
            f"{value} here; {self.remedy(name)}{self.skipping}"
        )

    @abstractmethod
    def remedy(self, name: str) -> str:
        """Return what to do about a column of several types."""

    def rows_before(self, index: int) -> int:
        """Count the rows of the blocks before one, by reading the file once more.

        Of a pipe, the lines, which are more where some are blank.
        """
        if self.file.read_once:
            return sum(self._lines[:index])
        return sum(
            self.count_rows(text) for _, text in zip(range(index), self.blocks(), strict=False)
        )


def _infinite(name: str) -> str:
    return f"column {name!r} holds an infinite number"


class _Conflict(Exception):
    """A column is of a type in one block that does not go with that of others."""

    def __init__(self, name: str, kind: pa.DataType, found: pa.DataType) -> None:
        super().__init__(f"column {name!r} is {kind} elsewhere but {found} here")
        self.name, self.kind = name, kind


def _cut_at(text: bytes, ends: Positions) -> list[bytes]:
    """Return the rows of a block."""
    starts = [0, *ends.tolist()]
    return [text[first:last] for first, last in pairwise(starts)]


def _n_lines(rows: Sequence[bytes]) -> int:
    return sum(row.count(b"\n") or row.count(b"\r") for row in rows)


def _n_rows(rows: Sequence[bytes]) -> int:
    """Return how many rows are not blank."""
    return sum(bool(row.strip(b"\r\n")) for row in rows)


def _may_widen(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind) or pa.types.is_integer(kind) or is_moment(kind))


def infer_bytes(files: Sequence[DataFile]) -> int:
    """Return how much of each file is looked at to infer its types."""
    return max(LEAST_INFER_BYTES, min(BLOCK_BYTES, INFER_BYTES // len(files)))


_HEADER_BYTES = 1 << 20


class CsvReader(TextReader):
    """One CSV file."""

    def __init__(
        self,
        file: DataFile,
        columns: Columns,
        types: Mapping[str, pa.DataType],
        null_values: Sequence[str],
        size: int,
        rejects: Rejects | None = None,
    ) -> None:
        with file.stream() as stream:
            start = stream.read(_HEADER_BYTES)
        tabs = re.search(r"\.(tsv|tab)(\.|$)", file.path.lower()) is not None
        self._names, self._delimiter, skip = csv_header(start, tabs, file.origin)
        check_names(self._names, file.origin)
        super().__init__(file, cut_rows(self._delimiter), skip, rejects)
        self._nulls = ["", *null_values]
        wanted: Types = {
            name: types.get(name) for name in self._names if columns is None or name in columns
        }
        found = self.infer(wanted, size)
        for name, kind in found.items():
            if pa.types.is_binary(kind):  # what pyarrow infers from bytes that are not UTF-8
                text = next(self.blocks(size))
                raise self._not_text(name, text)
        # Columns nobody asked for are not parsed: their type stays open.
        self.schema = pa.schema([(name, found.get(name, pa.null())) for name in self._names])

    def parse(self, text: bytes, types: Types) -> pa.Table:
        """Return the columns of a block, in the order of `types`."""
        table = self._parse(text, types, None)
        for i, field in enumerate(table.schema):
            # pyarrow takes no fractions of seconds for times of day, as it does for timestamps
            if types[field.name] is None and is_text(field.type):
                table = table.set_column(i, field.name, _as_moments(table[i], times_alone=True))
        return table

    def _parse(self, text: bytes, types: Types, on_ragged: Callable[[Any], str] | None) -> pa.Table:
        from pyarrow import csv as arrow_csv

        known = {name: kind for name, kind in types.items() if kind is not None}
        if not text or not types:
            return pa.schema([(name, known.get(name, pa.null())) for name in types]).empty_table()
        return arrow_csv.read_csv(
            pa.BufferReader(text),
            # one block in one thread: the workers are parallel, and rows keep their numbers
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=self._names
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                # in a file of one column an empty line is an empty cell
                ignore_empty_lines=len(self._names) > 1,
                invalid_row_handler=on_ragged,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=known,
                include_columns=list(types),
                null_values=self._nulls,
                strings_can_be_null=True,
                # RFC 4180 knows no difference between "" and an empty cell
                quoted_strings_can_be_null=True,
            ),
        )

    def count_rows(self, text: bytes) -> int:
        """Return the rows of a block, those of a wrong width included."""
        ragged: list[Any] = []

        def skip(row: Any) -> str:
            ragged.append(row)
            return "skip"

        return int(self._parse(text, {self._names[0]: pa.binary()}, skip).num_rows) + len(ragged)

    def fault(self, error: Exception, text: bytes, index: int, types: Types) -> DataError:
        """Return the error for a block that cannot be parsed, naming column and row."""
        said = str(error)
        row = self.rows_before(index)
        if ragged := re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): ?(.*)", said):
            return DataError(
                f"{self.file.origin}, row {row + int(ragged[1] or 1) - 1}: {ragged[3]} cells "
                f"instead of {ragged[2]}: {ragged[4][:80]!r}; mend the row, or quote the cell "
                f"that holds the delimiter {self._delimiter!r}{self.skipping}"
            )
        cell = re.search(r"CSV column #(\d+): (?:Row #(\d+): )?(.*)", said, re.DOTALL)
        if cell is None:
            return FileFormatError(f"{self.file.origin}, row {row} or after: {first_line(error)}")
        name = self._names[int(cell[1])]
        if "UTF8" in said:
            return self._not_text(name, text, row)
        value = cell[3].partition("invalid value ")[2]
        return self.misfit(name, types.get(name), value[:80], row + int(cell[2] or 1) - 1)

    def ends(self, text: bytes) -> Positions:
        """Return where the rows of a block end: lines end within quoted cells, too."""
        mark = b"\n" if b"\n" in text else b"\r"
        ends = self._outside(text, mark) + 1
        whole = len(ends) and ends[-1] == len(text)
        return ends if whole or not text else np.append(ends, len(text))

    def _outside(self, text: bytes, mark: bytes) -> Positions:
        """Return where a mark stands outside of quoted cells."""
        found = np.flatnonzero(np.frombuffer(text, np.uint8) == mark[0])
        edges, _ = _quoted(text, self._delimiter.encode())
        return found[np.searchsorted(edges, found) % 2 == 0] if len(edges) else found

    def is_row(self, text: bytes) -> bool:
        """Return whether it is no blank line, which is an empty cell where there is one column."""
        return len(self._names) == 1 or bool(text.strip(b"\r\n"))

    def suspects(self, rows: Sequence[bytes], types: Types) -> dict[int, str]:
        """Return rows of a wrong width, those that are not UTF-8, and what is no finite number.

        Where types are to be inferred, a column is of numbers if nearly all its cells are.
        """
        found: dict[int, str] = {}
        ends = np.cumsum([len(row) for row in rows])
        delimiters = self._outside(b"".join(rows), self._delimiter.encode())
        owners = np.searchsorted(ends, delimiters, "right")
        widths = np.bincount(owners, minlength=len(rows)) + 1
        n_names = len(self._names)
        for i in np.flatnonzero(widths != n_names).tolist():
            if rows[i].strip(b"\r\n"):
                found[i] = f"{widths[i]} cells instead of {n_names}"
        for i, row in enumerate(rows):
            try:
                row.decode()
            except UnicodeDecodeError:
                found.setdefault(i, "not UTF-8")
        # A blank line is no row where there are several columns.
        blank = {i for i, row in enumerate(rows) if not self.is_row(row)}
        left = [i for i in range(len(rows)) if i not in found and i not in blank]
        text = b"".join(rows[i] for i in left)
        numbers = {n: k for n, k in types.items() if k is None or _is_value(k)}
        try:
            columns = self.parse(text, dict.fromkeys(numbers, pa.binary()))
        except pa.ArrowException:
            return found
        for name, kind in numbers.items():
            if kind is not None and pa.types.is_boolean(kind):
                continue
            cells = columns[name]
            odd = pc.invert(pc.match_substring_regex(cells, _NUMBER)).fill_null(False)
            odd = np.flatnonzero(odd.to_numpy())
            known = len(cells) - cells.null_count
            assert self._rejects is not None
            if kind is None and (len(odd) > self._rejects.most(known) or 2 * len(odd) >= known):
                continue  # it is text
            if len(left) != len(cells):
                continue
            for at in odd.tolist():
                value = cells[at].as_py().decode()
                found.setdefault(left[at], f"column {name!r} holds {value[:80]!r}, no number")
            if kind is not None and name not in self.copied:
                infinite = pc.match_substring_regex(cells, _INFINITE).fill_null(False)
                for at in np.flatnonzero(infinite.to_numpy()).tolist():
                    found.setdefault(left[at], _infinite(name))
        return found

    def remedy(self, name: str) -> str:
        """Return what to do about a column of several types."""
        return (
            f"null_values=[...] with that text if it means missing, categorical=[{name!r}] to read "
            "the column as text (give both to `count`, then `fit_statistics` of the model: it "
            "reads later files in the same way)"
        )

    def _not_text(self, name: str, text: bytes, before: int = 0) -> DataError:
        for row, cell in enumerate(self._parse(text, {name: pa.binary()}, None)[name]):
            try:
                (cell.as_py() or b"").decode()
            except UnicodeDecodeError:
                where = f"{self.file.origin}, row {before + row}: column {name!r}"
                return FileFormatError(f"{where} {NOT_UTF8}")
        return FileFormatError(f"{self.file.origin}: column {name!r} {NOT_UTF8}")


def open_csv(
    files: Sequence[DataFile],
    columns: Columns,
    types: Mapping[str, pa.DataType],
    null_values: Sequence[str],
    on_error: OnError | None = None,
    rejects: Rejects | None = None,
) -> list[CsvReader]:
    """Open CSV files."""
    given = columns, types, null_values, infer_bytes(files), rejects
    return open_all(files, lambda file: CsvReader(file, *given), on_error)


class JsonReader(TextReader):
    """One file of JSON lines. Values carry their type: where text is asked for, text is no date.

    Nothing else is text then, either: where all is null, another file may have numbers.
    """

    absent_is_null = True
    # All keys that a record may have; None: others are ignored.
    keys: Sequence[str] | None = None

    def __init__(
        self,
        file: DataFile,
        types: Mapping[str, pa.DataType],
        size: int,
        rejects: Rejects | None = None,
    ) -> None:
        super().__init__(file, cut_lines, rejects=rejects)
        with file.stream() as stream:
            start = stream.read(4096)
        _refuse_packed(start, file.origin)
        refuse(
            start.lstrip().startswith(b"["),
            f"{file.origin}: a JSON array; write JSON lines, one object per line",
            FileFormatError,
        )
        self._asked = types
        found = self.infer({}, size)
        numbers = {n: types[n] for n in found if n in types and not is_text(types[n])}
        self.schema = pa.schema([*(found | numbers).items()])

    def parse(self, text: bytes, types: Types) -> pa.Table:
        """Return the columns of a block, in the order of `types`; all of them if that is empty."""
        known = {
            name: kind
            for name, kind in types.items()
            if kind is not None and not pa.types.is_null(kind)
        }
        if not text.strip():
            return pa.schema([(name, known.get(name, pa.null())) for name in types]).empty_table()
        # Where it is the first value, pyarrow ends the process; later ones it takes for objects.
        if _NULL_FIRST.match(text) or _NULL_LATER.search(text):
            raise pa.ArrowInvalid("a line is null, which is no object")
        every = self.keys is not None or len(known) < len(types) or not types
        table = self._parse(text, known, every)
        # pyarrow takes no fractions of seconds for times, and forgets the zones of others.
        moments = [
            field.name
            for field in table.schema
            if field.name not in known and pa.types.is_timestamp(field.type)
        ]
        if moments:  # which come first then, as all whose types are given
            again = self._parse(text, known | dict.fromkeys(moments, pa.string()), every)
            table = again.select(table.schema.names)
        for i, field in enumerate(table.schema):
            if field.name in known and is_moment(known[field.name]):
                moments = _moments_of(table[i], known[field.name])
                table = table.set_column(i, field.name, moments)
            elif (
                field.name not in known
                and is_text(field.type)
                and not is_text(self._asked.get(field.name, pa.null()))
            ):
                table = table.set_column(i, field.name, _as_moments(table[i]))
        if not types:
            return table
        present = set(table.schema.names)
        if self.keys is not None and (late := present - set(self.keys)):
            raise SchemaError(
                f"{self.file.origin}: a key {min(late)!r} that the first rows lack; "
                "columns=[...] selects those to read"
            )
        return pa.table(
            {
                name: table[name] if name in present else pa.nulls(table.num_rows, known.get(name))
                for name in types
            }
        )

    def _parse(self, text: bytes, known: Mapping[str, pa.DataType], every: bool) -> pa.Table:
        """Return what pyarrow reads of a block; dates and timestamps of known types as text."""
        from pyarrow import json as arrow_json

        asked = {n: pa.string() if is_moment(kind) else kind for n, kind in known.items()}
        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(asked.items())),
                unexpected_field_behavior="infer" if every else "ignore",
            ),
        )
        table.validate(full=True)  # pyarrow does not check here that text is UTF-8
        if any(_is_deep(field.type) for field in table.schema):
            raise pa.ArrowInvalid("objects in objects, too deep")
        return table

    def count_rows(self, text: bytes) -> int:
        """Return the lines that are not blank."""
        return len(_lines(text))

    def ends(self, text: bytes) -> Positions:
        """Return where the lines of a block end."""
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
        whole = len(ends) and ends[-1] == len(text)
        return ends if whole or not text else np.append(ends, len(text))

    def suspects(self, rows: Sequence[bytes], types: Types) -> dict[int, str]:
        """Return rows that are no JSON objects, and those with values of another kind than others.

        Where types are to be inferred, that is the kind of nearly all values of a column.
        """
        found: dict[int, str] = {}
        kinds: dict[str, dict[str, list[int]]] = {}
        for i, row in enumerate(rows):
            if not row.strip():
                continue
            try:
                # pyarrow passes over a byte order mark where the block begins
                record = _record(row.removeprefix(_MARK) if i == 0 else row)
            except _OddRecordError as error:
                found[i] = str(error)
                continue
            except (ValueError, RecursionError) as error:
                found[i] = f"not JSON ({error})"
                continue
            if not isinstance(record, dict):
                found[i] = "no object"
                continue
            for name, value in record.items():
                if value in (math.inf, -math.inf) and name in types and name not in self.copied:
                    found[i] = _infinite(name)
                elif value is not None and (name in types or not types):
                    kinds.setdefault(name, {}).setdefault(_kind(value), []).append(i)
        assert self._rejects is not None
        for name, held in kinds.items():
            usual = _kind_of(types.get(name))
            if usual is None:
                n_values = sum(map(len, held.values()))
                most = max(held, key=lambda kind: len(held[kind]))
                if n_values - len(held[most]) <= self._rejects.most(n_values):
                    usual = most
            for kind, where in held.items():
                for i in where if usual not in (None, kind) else ():
                    found.setdefault(i, f"column {name!r} holds a {kind}, no {usual}")
        return found

    def remedy(self, name: str) -> str:
        """Return what to do about a column of several types."""
        return "write its values as one type, null where one is missing"

    def fault(self, error: Exception, text: bytes, index: int, types: Types) -> DataError:
        """Return the error for a block that cannot be parsed, naming column and row."""
        said = first_line(error)
        before = self.rows_before(index)
        kinds: dict[str, tuple[str, int]] = {}
        for row, line in enumerate(_lines(text), before):
            where = f"{self.file.origin}, row {row}"
            try:
                record = _record(line.removeprefix(_MARK) if row == before else line)
            except UnicodeDecodeError:
                return FileFormatError(f"{where} {NOT_UTF8}")
            except _OddRecordError as odd:
                return FileFormatError(f"{where}: {odd}; mend the row{self.skipping}")
            except (ValueError, RecursionError) as wrong:
                return FileFormatError(
                    f"{where} is not JSON ({wrong}): {line[:60]!r}{self.skipping}"
                )
            if not isinstance(record, dict):
                return FileFormatError(
                    f"{where}: {line[:60]!r} is no object; write one object per line{self.skipping}"
                )
            for name, value in record.items():
                if value is None or (types and name not in types):
                    continue
                kind = _kind_of(types.get(name)) or kinds.setdefault(name, (_kind(value), row))[0]
                if kind != _kind(value) or not _is_one(value, types.get(name)):
                    return self.misfit(name, types.get(name) or kind, f"{value!r:.80}", row)
        row, after = before, " or after"
        if match := re.search(r"(.*?),? in row (\d+)$", said):
            row, after, said = before + int(match[2]), "", match[1]
        return FileFormatError(f"{self.file.origin}, row {row}{after}: {said}; mend the row")


class _OddRecordError(ValueError):
    """A row that is JSON, but not as pyarrow reads it."""


def _record(row: bytes) -> Any:
    """Return what a row says. Raises _OddRecordError, or ValueError where it is no JSON."""
    if row.startswith(_MARK):
        raise _OddRecordError("begins with a byte order mark")
    record = json.loads(row, object_pairs_hook=_pairs, parse_float=_float)
    if b"\\ud" in row.lower():
        try:
            json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise _OddRecordError("holds half of a surrogate pair, which is no text") from error
    _check_depth(record)
    return record


def _is_deep(kind: pa.DataType) -> bool:
    """Return whether a type has structs in structs beyond what a record may hold."""
    level = [kind] if pa.types.is_struct(kind) else []
    for _ in range(NESTING):
        if not level:
            return False
        level = [field.type for one in level for field in one if pa.types.is_struct(field.type)]
    return bool(level)


def _check_depth(record: Any) -> None:
    """Raise _OddRecordError where objects stand in objects too deep for a recursion over them."""
    level = [record] if isinstance(record, dict) else []
    for _ in range(NESTING + 1):  # what stands in the record is a column, the record is none
        level = [value for one in level for value in one.values() if isinstance(value, dict)]
        if not level:
            return
    raise _OddRecordError(f"holds objects in objects over {NESTING} deep")


def _float(text: str) -> float:
    if math.isinf(found := float(text)):
        raise _OddRecordError(f"holds {text:.40}, more than float64 does")
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _OddRecordError(f"holds the key {twice!r} twice")
    return record


# A null that stands in no object, as JSON allows in a list of lines.
_NULL_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?\s*null")
_NULL_LATER = re.compile(rb"\}[ \t\r]*\n\s*null")


def _lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line.strip()]


def _is_value(kind: pa.DataType) -> bool:
    """Return whether JSON wrote it as a number or a truth value."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _kind(value: Any) -> str:
    kinds = {bool: "truth value", int: "number", float: "number", str: "string", list: "list"}
    return kinds.get(type(value), "object")


def _kind_of(kind: pa.DataType | None) -> str | None:
    if kind is None or pa.types.is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return "truth value"
    return "number" if _is_value(kind) else "string" if is_text(kind) or is_moment(kind) else None


def _is_one(value: Any, kind: pa.DataType | None) -> bool:
    """Return whether a text is a date or timestamp of a type; of other types anything is."""
    if kind is None or not is_moment(kind):
        return True
    try:
        _moments_of(pa.array([value]), kind)
    except pa.ArrowInvalid:
        return False
    return True


def _as_moments(column: pa.ChunkedArray, *, times_alone: bool = False) -> pa.ChunkedArray:
    """Return a column of text as timestamps or times of day, where all its values are.

    Of the unit that CSV reads.
    """
    known = column.drop_null() if column.null_count else column
    first = known[0].as_py() if len(known) else ""
    kinds: list[pa.DataType] = []
    if _TIME.match(first):
        kinds = [pa.time32("s"), pa.time64("ns")]
    elif _MOMENT.match(first) and not times_alone:
        kinds = [pa.timestamp(unit, zone) for unit, zone in product(("s", "ns"), (None, "UTC"))]
    for kind in kinds:
        try:
            return _moments_of(column, kind)
        except pa.ArrowInvalid:
            continue
    return column


def _moments_of(column: Any, kind: pa.DataType) -> Any:
    """Return text as dates, timestamps or times of day; ArrowInvalid where it is none of these.

    Arrow does not cast text to times of day: each is read as a time of 1970-01-01.
    """
    if not pa.types.is_time(kind) or not is_text(column.type):
        return column.cast(kind)
    day = pc.binary_join_element_wise(pa.scalar("1970-01-01T", column.type), column, "")
    return day.cast(pa.timestamp(kind.unit)).cast(kind)


def open_json(
    files: Sequence[DataFile],
    columns: Columns,
    types: Mapping[str, pa.DataType],
    on_error: OnError | None = None,
    schema_mode: str = "union",
    rejects: Rejects | None = None,
) -> list[JsonReader]:
    """Open files of JSON lines."""
    size = infer_bytes(files)
    readers = open_all(files, lambda file: JsonReader(file, types, size, rejects), on_error)
    if columns is None and schema_mode != "first":
        known = readers if schema_mode == "union" else readers[:1]
        keys = [*dict.fromkeys(name for reader in known for name in reader.schema.names)]
        for reader in readers:
            reader.keys = keys
    return readers
