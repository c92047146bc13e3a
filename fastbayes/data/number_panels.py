"""Numbers of row groups that are alike, a few rows of all columns at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.data.column_chunks import LINE
from fastbayes.data.lent_memory import lend
from fastbayes.data.number_chunks import NumberCalls
from fastbayes.kernels import dispatch
from fastbayes.kernels.dispatch import Row
from fastbayes.kernels.shared import pages as p
from fastbayes.kernels.shared.columns import address_of

# The stretches of a column are listed if they have so many bytes on average; a few may be short.
LEAST_STRETCH, FEW_STRETCHES = 1 << 12, 16


class NumberPanels:
    """Columns of numbers, read by calls that can be noted down for one block of rows of many.

    Where numbers stand in the file as they are, no more of them is read than is worked on: it stays
    in the cache. Of the other columns a whole block is decoded before.

    Parameters
    ----------
    calls
        Read all columns together.

    Attributes
    ----------
    names, shapes
        As those of the calls.
    left
        (1,) int64, more than 0 if numbers were not there.
    whole
        Columns of which whole blocks are decoded.
    """

    def __init__(self, calls: NumberCalls) -> None:
        self.names, self.shapes = calls.names, calls.shapes
        self._calls, self._kernels = calls, dispatch.compiled_module("reading.stored")
        columns, self.left = calls.columns, np.zeros(1, np.int64)
        size = np.minimum(columns[:, p.MORE], 8 * columns[:, p.ROWS]).max(initial=0)
        most = int(size) // LEAST_STRETCH + FEW_STRETCHES
        stretches = np.zeros((len(columns), most, 2), np.int64)
        self._kernels.list_stretches(columns, stretches)
        n_stretches = columns[:, p.STRETCHES]
        self.whole = np.flatnonzero(n_stretches == 0).tolist()
        room = int(n_stretches.max(initial=0)) * 5 // 4 + FEW_STRETCHES
        self._stretches = stretches[:, : min(room, most)].copy()
        self._out: NDArray[np.uint8] | None = None

    @property
    def arrays(self) -> list[NDArray[np.int64]]:
        """Memory that belongs to one thread."""
        return [*self._calls.arrays, self._stretches, self.left]

    def find(self) -> None:
        """List where numbers stand in the file; to be called before others are read."""
        self._kernels.list_stretches(self._calls.columns, self._stretches)

    def read(self, first: int, n: int, most: int) -> Iterator[tuple[NDArray[np.uint64], int]]:
        """Yield where the next rows of n are, `most` at a time: the addresses of the columns.

        `first` is the first row, of a block of BLOCK_ROWS; for the blocks behind it the calls are
        made again.

        Yields
        ------
        tuple
            (n_columns,) uint64, written when the calls are made, and how many rows are there.
        """
        columns = self._calls.columns
        if self._out is None:
            size = -(-(8 * min(most, BLOCK_ROWS) + self._kernels.SPARE) // LINE) * LINE
            self._out = lend(len(columns) * size).reshape(len(columns), size)
        others, places = np.zeros((2, len(columns)), np.uint64)
        others[self.whole] = [address_of(self._calls.read(j, n)) for j in self.whole]
        how = Row(first // BLOCK_ROWS), BLOCK_ROWS
        for begin in range(0, n, most):
            some = begin, min(most, n - begin)
            memory = dispatch.readonly(others), self._out, places, self.left
            self._kernels.read_rows(columns, self._stretches, *how, *some, *memory)
            yield places, some[1]

    def elsewhere(self) -> Self:
        """Return the same for a thread whose calls have memory of their own."""
        other = copy.copy(self)
        other._calls, other.left = self._calls.elsewhere(), np.zeros_like(self.left)
        other._stretches = self._stretches.copy()
        return other

    def begin(self, descriptor: int, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Have the calls read other chunks: see `NumberCalls.begin`."""
        self._calls.begin(descriptor, starts, sizes)
        self.left[...] = 0

    def complete(self) -> bool:
        """Return whether all was read, in the room that there is."""
        found = self._calls.columns[:, p.STRETCHES] > 0
        found[self.whole] = True
        return bool(found.all()) and self._calls.complete() and not self.left[0]

    def gaps(self) -> bool:
        """Return whether a number is missing or not finite among those that were decoded before."""
        return self._calls.gaps()
