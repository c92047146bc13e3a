"""Column chunks of plain numbers, decoded block by block when their rows are worked on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.threads import submitted
from fastbayes.data.column_chunks import CODECS, HEADER, LINE, ColumnChunk, wrong
from fastbayes.data.lent_memory import lend
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import LateNumbers
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared import pages as p

# What is read of a file at a time: it stays in the second-level cache, with what is made of it.
READ_BYTES = 1 << 20
# Pages have at most so many rows: what the last one of a block holds beyond it waits for the next
# block, for all columns.
MOST_ROWS = BLOCK_ROWS
# What else there is room for at first.
FEW_ROWS = 1 << 10

# Returns a whole column as float64, NaN where null, decoded by another library.
Other = Callable[[str], NDArray[np.float64]]


def of_numbers(chunk: ColumnChunk) -> bool:
    """Return whether a chunk holds float64 in plain pages that kernels decompress, or says so."""
    own = chunk.kind == p.NUMBERS and chunk.width == chunk.unit == 8 and chunk.plain
    return own and pa.types.is_float64(chunk.type) and CODECS[chunk.compression] != p.FOREIGN


@contextmanager
def reading_numbers(
    place: str,
    chunks: Sequence[ColumnChunk],
    n_rows: int,
    file: DataFile,
    other: Other,
    n_threads: int,
) -> Iterator[LateNumbers | None]:
    """Open a local file to read the numbers of a row group; None where its pages are too large.

    `place` says file and row group in messages; threads share the columns out.
    """
    descriptor = os.open(file.path, os.O_RDONLY)
    n_threads = min(n_threads, len(chunks))
    try:
        columns = _columns(chunks, n_rows)
        of_page = _rows_of_pages(descriptor, columns)
        if of_page > MOST_ROWS:
            yield None
            return
        rows = min(n_rows, BLOCK_ROWS) + of_page + of_page // 8 + FEW_ROWS
        with ThreadPoolExecutor(n_threads) if n_threads > 1 else nullcontext() as pool:
            how = columns, descriptor, other, rows, n_threads, pool
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
    ):
        columns[:, field] = values
    return columns


def _rows_of_pages(descriptor: int, columns: NDArray[np.int64]) -> int:
    """Return about how many rows a page has, by the first ones; 0 where that cannot be told."""
    most, list_pages = 0, dispatch.load("pages").list_pages
    pages = np.zeros((HEADER, p.N_PAGE), np.int64)
    for column in columns:
        source = np.frombuffer(os.pread(descriptor, HEADER, column[p.BEGIN]), np.uint8)
        one, end = column.copy()[None], min(len(source), int(column[p.MORE]))
        one[0, [p.BEGIN, p.END, p.WANTED, p.ENTRIES]] = 0, end, one[0, p.ROWS], -1
        one[0, p.MORE] -= end
        list_pages(source, one, pages)
        size = int(one[0, p.NEEDED] + end - one[0, p.NEXT])
        if one[0, p.STATUS] == p.SOUND and one[0, p.NEEDED] and not one[0, p.LISTED]:
            most = max(most, int(one[0, p.ROWS]) // (int(one[0, p.FURTHER]) // size + 1))
    return most


class NumberChunks(LateNumbers):
    """Columns of one row group, of which any rows are read, best in their order.

    Parameters
    ----------
    place
        File and row group, for messages.
    names, columns
        The columns, before their first rows.
    descriptor
        Of the open file.
    other
        Decodes a column that the kernels do not.
    rows
        Rows for which there is room at first, those of a block and of a page behind them.
    n_parts, pool
        So many parts of the columns are read at once by threads of a pool; without one by whoever
        asks. A pool has read the next rows when those before have been worked on.
    """

    def __init__(
        self,
        place: str,
        names: Sequence[str],
        columns: NDArray[np.int64],
        descriptor: int,
        other: Other,
        rows: int,
        n_parts: int,
        pool: Executor | None,
    ) -> None:
        self.names = names
        self._place, self._columns, self._start = place, columns, columns.copy()
        self._descriptor, self._other, self._pool = descriptor, other, pool
        self._kernels = dispatch.load("pages")
        self._at, self._n_rows = 0, int(columns[0, p.ROWS])
        self._foreign: dict[int, NDArray[np.float64]] = {}
        self._bounds = [len(names) * k // n_parts for k in range(n_parts + 1)]
        parts = [last - first for first, last in pairwise(self._bounds)]
        self._rooms = [[lend(READ_BYTES), *_rooms_of(READ_BYTES // 2)] for _ in parts]
        self._out = [_room_for(part, rows) for part in parts]
        # Where the rows before are, which are still worked on while a pool reads further ones.
        self._before = self._out if pool is None else [_room_for(part, rows) for part in parts]
        self._begun: list[Future[None]] = []
        self._wanted, self._given = -1, False

    def read(self, first: int, n: int) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
        """Return rows of all columns, and which columns hold NaN or infinity there."""
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
        held = [out[:, p.LEAD : p.LEAD + 8 * n].view(np.float64) for out in self._out]
        numbers = [column for out in held for column in out]
        for i, column in self._foreign.items():
            numbers[i] = column[self._at :][:n]
            columns[i, p.NULLS] = not np.isfinite(numbers[i]).all()
        columns[:, p.NEXT] = n
        columns[:, p.HELD] -= n
        self._at, self._wanted, self._given = self._at + n, -1, n > 0
        return numbers, columns[:, p.NULLS] != 0

    def _begin(self, n: int) -> None:
        """Have the next n rows read."""
        if self._given:
            self._out, self._before, self._given = self._before, self._out, False
        self._columns[:, p.WANTED] = self._wanted = n
        parts = range(len(self._rooms))
        if self._pool is None:
            for part in parts:
                self._fill(part)
        else:
            self._begun = [submitted(self._pool, self._fill, part) for part in parts]

    def _end(self) -> None:
        """Wait until the rows are there."""
        begun, self._begun = self._begun, []
        for part in begun:
            part.result()

    def _fill(self, part: int) -> None:
        """Have some columns read, with more room where a page needs it."""
        columns = self._columns[self._bounds[part] : self._bounds[part + 1]]
        rooms = self._rooms[part]
        while True:
            before, out = self._before[part], self._out[part]
            self._kernels.read_numbers(self._descriptor, columns, *rooms, before, out)
            needed, space, rows = columns[:, [p.NEEDED, p.SPACE, p.LISTED]].max(axis=0).tolist()
            if needed:
                rooms[0] = lend(needed + p.ALIGNED + p.SLACK)
            if space:
                rooms[1:] = _rooms_of(space)
            if rows:
                self._out[part] = _room_for(len(columns), rows)
                self._out[part][:, : out.shape[1]] = out
            if not (needed or space or rows):
                return

    def _hand_over(self, i: int) -> None:
        """Have another library decode a column that holds something legal, raise what is wrong."""
        status = int(self._columns[i, p.STATUS])
        if status != p.OTHER:
            raise wrong(self._place, self.names[i], status)
        self._foreign[i] = self._other(self.names[i])


def _rooms_of(space: int) -> list[NDArray[np.uint8]]:
    """Return room for the bytes or the rows of a page: as they are unpacked, and flags."""
    return [lend(space + 2 * p.SLACK), lend(space + p.LEAD + 2 * p.SLACK)]


def _room_for(n_columns: int, rows: int) -> NDArray[np.uint8]:
    """Return room for so many numbers of each column."""
    size = -(-(p.LEAD + 8 * rows + p.SLACK) // LINE) * LINE
    return lend(n_columns * size).reshape(n_columns, size)
