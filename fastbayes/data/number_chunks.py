"""Column chunks of numbers, decoded block by block when their rows are worked on."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.threads import submitted
from fastbayes.data.column_chunks import CODECS, HEADER, LINE, ChunkShapes, ColumnChunk, wrong
from fastbayes.data.lent_memory import lend
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import LateNumbers
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared import pages as p

# What is read of a file at a time: it stays in the second-level cache, with what is made of it.
READ_BYTES = 1 << 20
# Pages have at most so many rows: what the last one of a block holds beyond it waits for the next
# block, for all columns. And so many bytes, dictionaries too: their numbers are found in the cache.
MOST_ROWS, MOST_BYTES = 1 << 17, 1 << 22
# Threads that share out the columns of a row group at most. Whoever asks for rows works on them
# alone, which takes a third of the time of reading them, if not more: further ones would wait.
MOST_THREADS = 4
# What else there is room for at first.
FEW_ROWS = 1 << 10
# The header of a page has more bytes.
LEAST_HEADER = 8

# Returns a whole column as float64, NaN where null, decoded by another library.
Other = Callable[[str], NDArray[np.float64]]


def of_numbers(chunk: ColumnChunk) -> bool:
    """Return whether a chunk holds float64 in pages that kernels decompress."""
    own = chunk.kind == p.NUMBERS and chunk.width == chunk.unit == 8
    return own and pa.types.is_float64(chunk.type) and CODECS[chunk.compression] != p.FOREIGN


@contextmanager
def reading_numbers(
    place: str,
    chunks: Sequence[ColumnChunk],
    shapes: ChunkShapes,
    n_rows: int,
    file: DataFile,
    other: Other,
    n_threads: int,
) -> Iterator[NumberChunks | None]:
    """Open a local file to read the numbers of a row group; None where its pages are too large.

    `place` says file and row group in messages; up to `MOST_THREADS` threads share the columns out.
    `shapes` are what the footer tells of the chunks.
    """
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        columns = _columns(chunks, n_rows)
        columns[:, p.FILE] = descriptor
        rooms = _rooms_for(columns)
        if rooms is None:
            yield None
            return
        # Helpers hold as many rows again, which of pages larger than blocks are too many.
        few = rooms.rows <= 9 * BLOCK_ROWS // 4
        readers = min(n_threads, len(chunks), MOST_THREADS) if few else 1
        with ThreadPoolExecutor(readers - 1) if readers > 1 else nullcontext() as pool:
            how = columns, shapes, other, rooms, n_threads, readers - 1, pool
            yield NumberChunks(place, [chunk.name for chunk in chunks], *how)
    finally:
        os.close(descriptor)


def _columns(chunks: Sequence[ColumnChunk], n_rows: int) -> NDArray[np.int64]:
    columns = np.zeros((len(chunks), p.N_COLUMN), np.int64)
    columns[:, [p.KIND, p.WIDTH, p.UNIT]] = p.NUMBERS, 8, 8
    columns[:, p.FOUND] = -1
    columns[:, p.ROWS] = n_rows
    for field, values in (
        (p.CODEC, [CODECS[chunk.compression] for chunk in chunks]),
        (p.OPTIONAL, [chunk.optional for chunk in chunks]),
        (p.BEGIN, [chunk.start for chunk in chunks]),
        (p.MORE, [chunk.size for chunk in chunks]),
        (p.TABLE, [p.ASIDE if chunk.plain else p.CODED_ASIDE for chunk in chunks]),
    ):
        columns[:, field] = values
    return _moving(columns)


def _moving(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Have plain pages, before the first of them, move only if there may be such."""
    plain = columns[:, p.TABLE] != p.CODED_ASIDE
    may = columns[:, p.MORE] >= 8 * columns[:, p.ROWS]
    columns[plain, p.TABLE] = np.where(may[plain], p.MOVED, p.ASIDE)
    return columns


class _Rooms(NamedTuple):
    """What there is room for.

    rows   those of a block and of a page behind them
    page   bytes of a page in the file
    space  bytes or rows of a page that is unpacked
    table  bytes of a dictionary
    """

    rows: int
    page: int
    space: int
    table: int

    def scratch(self) -> list[NDArray[np.uint8]]:
        """Return what a thread needs to read pages: see `read_numbers`."""
        return [lend(self.page), *_unpacked(self.space)]


def _rooms_for(columns: NDArray[np.int64]) -> _Rooms | None:
    """Return what to make room for, by the first pages; None if they are too large."""
    first, sizes, pages = _first_pages(columns)
    largest, table = int(sizes.max(initial=0)), int(first[:, p.SPACE].max(initial=0))
    # Of some no more than a dictionary was read: the pages of values come behind it.
    if (
        coded := (first[:, p.SPACE] > 0) & (first[:, [p.LISTED, p.FURTHER]] == 0).all(axis=1)
    ).any():
        own, read, behind = first[coded], sizes[coded], columns[coded]
        read = np.where(own[:, p.FOUND] < 0, read, own[:, p.NEXT] - np.flatnonzero(coded) * HEADER)
        behind[:, p.BEGIN] += read
        behind[:, p.MORE] -= read
        behind[:, p.FOUND] = 0
        first[coded], sizes[coded], more = _first_pages(behind)
        pages, largest = np.concatenate([pages, more]), max(largest, int(sizes.max()))
    known = (first[:, p.STATUS] == p.SOUND) & (first[:, p.NEEDED] > 0) & (first[:, p.LISTED] == 0)
    rows = first[known, p.ROWS] // (first[known, p.FURTHER] // sizes[known] + 1)
    listed = pages[pages[:, p.TYPE] != p.DICTIONARY, p.VALUES]
    of_page = int(max(rows.max(initial=0), listed.max(initial=0)))
    if of_page > MOST_ROWS or max(largest, table) > MOST_BYTES:
        return None
    return _Rooms(
        min(int(columns[0, p.ROWS]), BLOCK_ROWS) + of_page + of_page // 8 + FEW_ROWS,
        max(READ_BYTES, largest + largest // 8 + p.ALIGNED + p.SLACK),
        max(READ_BYTES // 2, 10 * of_page),
        table + table // 8 + 2 * p.SLACK,
    )


def _first_pages(
    columns: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return what the first bytes of columns tell: of these, of pages that are whole, of others.

    Of the others the bytes from where the column begins on, (n_columns,).
    """
    kernels, n = dispatch.compiled_module("reading.pages"), len(columns)
    source = np.zeros(n * HEADER + p.SLACK, np.uint8)
    begin, size = np.arange(n) * HEADER, np.minimum(columns[:, p.MORE], HEADER)
    descriptor = int(columns[0, p.FILE])
    kernels.read_parts(descriptor, np.stack([columns[:, p.BEGIN], begin, size], axis=1), source)
    first = columns.copy()
    first[:, p.BEGIN], first[:, p.END], first[:, p.ENTRIES] = begin, begin + size, first[:, p.FOUND]
    first[:, p.MORE] -= size
    first[:, p.WANTED] = first[:, p.ROWS]
    pages = np.zeros((n * HEADER // LEAST_HEADER, p.N_PAGE), np.int64)
    found = kernels.list_pages(source, first, pages)
    return first, size + first[:, p.NEEDED], pages[:found]


class NumberChunks(LateNumbers):
    """Columns of one row group, of which any rows are read, best in their order.

    Parameters
    ----------
    place
        File and row group, for messages.
    names, columns
        The columns, before their first rows.
    shapes
        As in `reading_numbers`.
    other
        Decodes a column that the kernels do not.
    rooms
        What there is room for at first.
    n_threads
        How many there are for these rows.
    n_helpers, pool
        So many threads of a pool help whoever asks to read the next rows, and begin with it while
        those before are worked on.
    """

    def __init__(
        self,
        place: str,
        names: Sequence[str],
        columns: NDArray[np.int64],
        shapes: ChunkShapes,
        other: Other,
        rooms: _Rooms,
        n_threads: int,
        n_helpers: int,
        pool: Executor | None,
    ) -> None:
        self.names, self.shapes, self.threads = names, shapes, n_threads
        self._place, self._columns, self._start = place, columns, columns.copy()
        self._other, self._pool, self._rooms = other, pool, rooms
        self._kernels = dispatch.compiled_module("reading.pages")
        self._at, self._n_rows = 0, int(columns[0, p.ROWS])
        self._foreign: dict[int, NDArray[np.float64]] = {}
        self._n_helpers, self._scratch = n_helpers, list[list[NDArray[np.uint8]]]()
        # Columns that were taken, by all threads.
        self._turn = np.zeros(1, np.int64)
        self._begun: list[Future[None]] = []
        self._wanted, self._given = -1, False

    def _make_room(self) -> None:
        """Make room where rows are read for the first time: they may all be read by calls."""
        n, rooms = len(self.names), self._rooms
        self._scratch = [rooms.scratch() for _ in range(1 + self._n_helpers)]
        self._tables = _lines(n, rooms.table)
        self._out = _room_for(n, rooms.rows)
        # Where the rows before are, which are still worked on while a pool reads further ones.
        self._before = self._out if self._pool is None else _room_for(n, rooms.rows)

    def read(self, first: int, n: int) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
        """Return rows of all columns, and which columns hold NaN or infinity there."""
        if not self._scratch:
            self._make_room()
        self._end()
        if first < self._at:
            self._columns[...] = self._start
            self._at, self._wanted, self._given = 0, -1, False
        while self._at < first:
            self._next(min(first - self._at, BLOCK_ROWS))
        found = self._next(n)
        if self._pool is not None and n and self._at < self._n_rows:
            self._begin(min(n, self._n_rows - self._at))
        return found

    def _next(self, n: int) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
        columns = self._columns
        if n != self._wanted:
            self._begin(n)
            self._end()
        for i in np.flatnonzero(columns[:, p.STATUS]).tolist():
            if i not in self._foreign:
                self._hand_over(i)
        numbers = [*self._out[:, p.LEAD : p.LEAD + 8 * n].view(np.float64)]
        for i, column in self._foreign.items():
            numbers[i] = column[self._at :][:n]
            columns[i, p.NULLS] = not np.isfinite(numbers[i]).all()
        columns[:, p.NEXT] = n
        columns[:, p.HELD] -= n
        self._at, self._wanted, self._given = self._at + n, -1, n > 0
        return numbers, columns[:, p.NULLS] != 0

    def _begin(self, n: int) -> None:
        """Have helpers read the next n rows."""
        if self._given:
            self._out, self._before, self._given = self._before, self._out, False
        self._columns[:, p.WANTED] = self._wanted = n
        self._turn[0] = 0
        if self._pool is not None:
            self._begun = [submitted(self._pool, self._fill, own) for own in self._scratch[1:]]

    def _end(self) -> None:
        """Read what is left of the rows that were begun, with more room where a page needs it."""
        while self._wanted >= 0:
            self._fill(self._scratch[0])
            begun, self._begun = self._begun, []
            for helper in begun:
                helper.result()
            if not self._grow():
                return
            self._begin(self._wanted)

    def _fill(self, scratch: list[NDArray[np.uint8]]) -> None:
        """Read columns that no other thread has taken."""
        places = self._tables, self._before, self._out
        self._kernels.read_numbers(self._columns, self._turn, *scratch, *places)

    def _grow(self) -> bool:
        """Make room for pages where there was too little; return whether that is so."""
        lacking = [p.LISTED, p.NEEDED, p.SPACE, p.TEXT]
        rows, needed, space, table = self._columns[:, lacking].max(axis=0).tolist()
        for room in self._scratch:
            if needed:
                room[0] = lend(needed + p.ALIGNED + p.SLACK)
            if space:
                room[1:] = _unpacked(space)
        if rows:
            out, self._out = self._out, _room_for(len(self._columns), rows)
            self._out[:, : out.shape[1]] = out
            if self._before is out:
                self._before = self._out
        if table:
            tables, self._tables = self._tables, _lines(len(self._columns), table)
            self._tables[:, : tables.shape[1]] = tables
        return bool(needed or space or rows or table)

    def again(self, *, together: bool) -> NumberCalls:
        """Return what reads others like these by calls that can be noted down."""
        how = self.names, self.shapes, self._start.copy(), self._rooms
        return NumberCalls(*how, together=together)

    def _hand_over(self, i: int) -> None:
        """Have another library decode a column that holds something legal, raise what is wrong."""
        status = int(self._columns[i, p.STATUS])
        if status != p.OTHER:
            raise wrong(self._place, self.names[i], status)
        self._foreign[i] = self._other(self.names[i])


class NumberCalls:
    """Numbers of row groups that are alike, read by calls that are noted down once.

    Parameters
    ----------
    names, shapes, columns
        As in `NumberChunks`.
    rooms
        What there is room for.
    together
        Whether all columns are read for a block, each to a place of its own.

    Attributes
    ----------
    columns
        (n_columns, N_COLUMN) int64, where the calls stand in each column.
    """

    def __init__(
        self,
        names: Sequence[str],
        shapes: ChunkShapes,
        columns: NDArray[np.int64],
        rooms: _Rooms,
        *,
        together: bool,
    ) -> None:
        self.names, self.shapes, self._rooms = names, shapes, rooms
        self.columns, self._begun = columns, columns.copy()
        self._n_places = len(columns) if together else 1
        self._turn = np.zeros(1, np.int64)
        self._kernels = dispatch.compiled_module("reading.pages")

    def read(self, j: int, n: int) -> NDArray[np.float64]:
        """Return where the next n numbers of a column are, once the calls are made."""
        column, place = self.columns[j : j + 1], j % self._n_places
        table, out = (places[place : place + 1] for places in (self._tables, self._out))
        self._kernels.want_numbers(column, self._turn, n)
        self._kernels.read_numbers(column, self._turn, *self._scratch, table, out, out)
        return out[0, p.LEAD : p.LEAD + 8 * n].view(np.float64)

    @cached_property
    def _out(self) -> NDArray[np.uint8]:
        return _room_for(self._n_places, self._rooms.rows)

    @cached_property
    def _tables(self) -> NDArray[np.uint8]:
        return _lines(self._n_places, self._rooms.table)

    @cached_property
    def _scratch(self) -> list[NDArray[np.uint8]]:
        return self._rooms.scratch()

    def elsewhere(self) -> Self:
        """Return the same for a thread whose calls have memory of their own."""
        other = copy.copy(self)
        other.columns = self.columns.copy()
        return other

    def begin(self, descriptor: int, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Have the calls read the chunks of an open file that start there, of so many bytes."""
        self.columns[...] = self._begun
        self.columns[:, p.FILE], self.columns[:, p.BEGIN] = descriptor, starts
        self.columns[:, p.MORE] = sizes
        _moving(self.columns)

    @property
    def arrays(self) -> list[NDArray[np.int64]]:
        """Memory that belongs to one thread."""
        return [self.columns]

    def complete(self) -> bool:
        """Return whether all was read, in the room that there is."""
        columns = self.columns
        sound = columns[:, p.STATUS] == p.SOUND
        return bool((sound & (columns[:, p.HELD] >= columns[:, p.WANTED])).all())

    def gaps(self) -> bool:
        """Return whether a number is missing or not finite."""
        return bool(self.columns[:, [p.GAPS, p.NULLS]].any())


def _unpacked(space: int) -> list[NDArray[np.uint8]]:
    """Return room for the bytes or the rows of a page: as they are unpacked, and flags."""
    return [lend(space + 2 * p.SLACK), lend(space + p.LEAD + 2 * p.SLACK)]


def _room_for(n_columns: int, rows: int) -> NDArray[np.uint8]:
    return _lines(n_columns, p.LEAD + 8 * rows + p.SLACK)


def _lines(n_columns: int, n_bytes: int) -> NDArray[np.uint8]:
    """Return room for bytes of each column, from a line of the cache on."""
    size = -(-n_bytes // LINE) * LINE
    return lend(n_columns * size).reshape(n_columns, size)
