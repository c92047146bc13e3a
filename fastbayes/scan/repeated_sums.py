"""Sums of the numbers of a row group, by calls that are noted down once.

What is added up of each column for itself is read and added column by column, block after block;
scatter matrices a few rows of all columns at a time. So numbers are added while they are in the
cache, without Python in between.
Of row groups that are alike the calls are made again: the numbers are read to where those of the
first one lay, and added to sums that begin anew. What is added up of numbers is one set for each
row group, whose bits depend on the order of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.schema import Shape
from fastbayes.data.encode import LookedUp
from fastbayes.data.number_panels import NumberPanels
from fastbayes.data.segments import LateNumbers
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.columns import address_of
from fastbayes.statistics.base import FEW_CLASSES, Statistic
from fastbayes.statistics.class_scatter import ClassScatter
from fastbayes.statistics.parts import GrowingStatistics
from fastbayes.statistics.registry import kind_of

# Numbers of one call, which no signal interrupts: some tenths of a second.
MOST_NUMBERS = 1 << 27
# Bytes of the sums of blocks that are held apart, so that several threads make them.
MOST_APART = 1 << 22


class RepeatedSums:
    """What the numbers of a row group are read to, and their sums.

    Parameters
    ----------
    numbers
        Those of the first row group.
    empty
        A set of sums before its first row.
    shape
        What it has room for.
    rows
        Rows of which only the classes matter, all of the row group.
    codes
        Type of the codes of classes.

    Attributes
    ----------
    reader
        Reads the numbers.
    arrays
        Memory that belongs to one thread.
    """

    def __init__(
        self,
        numbers: LateNumbers,
        empty: GrowingStatistics,
        shape: Shape,
        rows: LookedUp,
        codes: type[np.unsignedinteger],
    ) -> None:
        self._wanted, self._weighted = empty.wanted, empty.weighted
        self._n_classes, self._cells, n = rows.n_classes, rows.cells, rows.n_rows
        parts = {name: empty.empty(name, shape) for name in empty.wanted}
        self._by_column = all(part.by_column for part in parts.values())
        calls = numbers.again(together=not self._by_column)
        self.reader: Any = calls if self._by_column else NumberPanels(calls)
        self._threads = numbers.threads
        self._classes = np.zeros(n, codes)
        # Whether the order of additions tells which classes a block lacks; and how many blocks lack
        # one, or hold what calls do not add.
        self._every, self._left = rows.n_classes > FEW_CLASSES, np.zeros(1, np.int64)
        self._kernels = dispatch.load("reading.repeat", rows.coding)
        whole = n - n % BLOCK_ROWS
        blocks = [(first, BLOCK_ROWS) for first in range(0, whole, BLOCK_ROWS)]
        blocks += [(whole, n - whole)] if whole < n else []
        works: list[tuple[Callable[[], None], int, int]]
        works = [(partial(rows.write_classes, self._classes), n, 1)]
        if self._every:
            works += [(partial(self._note_absent, *block), n, 1) for block in blocks]
        adding: list[tuple[Callable[[], None], int, int]]
        # Whether several threads add blocks to sums of their own.
        self._apart = False
        if self._by_column:  # what is done to the first column is done to the next
            self._hold(parts, 1)
            adding = [(partial(self._add, blocks), 1, len(calls.columns))]
            self._moving = self._of_columns()
        else:
            works.append((self.reader.find, n, 1))
            size = len(blocks) * sum(part.nbytes for part in parts.values())
            self._apart = size <= MOST_APART and not self.reader.whole and self._threads > 1
            self._hold(parts, len(blocks) if self._apart else 1)
            alike = blocks[: n // BLOCK_ROWS], blocks[n // BLOCK_ROWS :]
            adding = [(partial(self._add_few, *some[0]), 1, len(some)) for some in alike if some]
            self._moving = [(self._classes, self._classes.itemsize * BLOCK_ROWS)]
            if self._apart:
                self._moving += [(array, array.strides[0]) for array in self._arrays]
        held = self.reader, self._arrays, self._classes  # not this, which holds the calls
        self._coding, self._adding = (
            [self._kernels.BlockCalls(_noted(work), *times, held) for work, *times in some]
            for some in (works, adding)
        )

    def _hold(self, parts: Mapping[str, Statistic], n: int) -> None:
        """Hold n such sets of sums of no rows, which are to be added up."""
        self._arrays: list[NDArray[Any]] = []
        self._sums: dict[str, list[Statistic]] = {}
        for name, part in parts.items():
            self._sums[name], arrays = part.side_by_side(n)
            self._arrays += arrays

    @classmethod
    def of(
        cls, numbers: LateNumbers, empty: GrowingStatistics, shape: Shape, rows: LookedUp
    ) -> Self | None:
        """Return sums that calls can make; None if Python looks at the numbers."""
        kinds = {kind_of(name).class_codes(rows.n_classes) for name in empty.wanted}
        if len(kinds) != 1 or rows.n_rows * len(numbers.names) > MOST_NUMBERS:
            return None
        by_column = all(kind_of(name).by_column for name in empty.wanted)
        if not by_column and {*empty.wanted} != {ClassScatter.name}:
            return None
        codes = kinds.pop()
        compiled = dispatch.compiled(rows.coding) and not dispatch.interpreted()
        if not compiled or rows.n_classes > np.iinfo(codes).max:
            return None
        made = cls(numbers, empty, shape, rows, codes)
        # Where sums are in one place, or numbers decoded before, other threads can only read ahead.
        return made if numbers.threads == 1 or by_column or made._apart else None

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """Memory that belongs to one thread."""
        return [self._classes, self._left, *self.reader.arrays, *self._arrays]

    def elsewhere(self) -> Self:
        """Return the same for another thread."""
        other = copy.copy(self)
        other.reader, other._classes = self.reader.elsewhere(), np.zeros_like(self._classes)
        other._left = np.zeros_like(self._left)
        first = {name: parts[0] for name, parts in self._sums.items()}
        other._hold(first, max(map(len, self._sums.values())))
        return other

    def made(self) -> GrowingStatistics | None:
        """Add up the numbers of the first row group; see `end`."""
        self._kernels.run(self._coding, self._moving)
        self._kernels.run(self._adding, self._moving, self._threads)
        return self.end()

    def behind(self, calls: Any) -> Any:
        """Return calls that add up the numbers of all rows after some that count these."""
        noted = [*calls.noted, *self._coding, *self._adding]
        return self._kernels.RepeatedCalls(noted, self._moving)

    def begin(self, descriptor: int, places: NDArray[np.int64]) -> None:
        """Begin with the numbers of a row group of an open file: see `AlikeParts`."""
        self.reader.begin(descriptor, *places)
        for array in [self._left, *self._arrays]:
            array[...] = 0

    def end(self) -> GrowingStatistics | None:
        """Return the sums; None if Python must read these numbers: to say what is wrong, too."""
        known = self._by_column or not self.reader.gaps()
        finite = all(bool(np.isfinite(array).all()) for array in self._arrays)
        if not (self.reader.complete() and known and finite) or self._left[0]:
            return None
        sums = GrowingStatistics(self._wanted, weighted=self._weighted)
        sums.held = {name: reduce(add, parts).copy() for name, parts in self._sums.items()}
        return sums

    def _of_columns(self) -> list[tuple[NDArray[Any], int]]:
        """Return arrays that hold something of each column, and its bytes."""
        columns = self.reader.columns
        moving = [(columns, columns.strides[0])]
        for (part,) in self._sums.values():
            first, last = part.of_number(0).arrays(), part.of_number(len(columns) - 1).arrays()
            for key, array in part.arrays().items():
                apart = address_of(last[key]) - address_of(first[key])
                # What does not move is scratch: so the only column seems to move, too.
                moving.append((array, apart // max(len(columns) - 1, 1) or array.itemsize))
        return moving

    def _note_absent(self, first: int, n: int) -> None:
        marks = np.zeros(self._n_classes, np.bool_)
        note = dispatch.load("reading.encode", self._cells).note_absent
        note(self._classes[first : first + n], marks, self._left)

    def _add(self, blocks: list[tuple[int, int]]) -> None:
        """Add a column to the sums, block after block: the first row and the rows of each."""
        none = np.zeros(0, np.bool_)
        for first, n in blocks:
            how = self._n_classes, (), none, (self.reader.read(0, n),), None, self._cells
            batch = Batch(n, self._classes[first : first + n], *how, self._every)
            for (part,) in self._sums.values():
                part.of_number(0).update(batch)

    def _add_few(self, first: int, n: int) -> None:
        """Add a block to the scatter matrices, a few rows of all columns at a time."""
        (parts,) = self._sums.values()
        part = parts[first // BLOCK_ROWS % len(parts)]
        assert isinstance(part, ClassScatter)
        read = partial(self.reader.read, first, n)
        part.add_few(self._classes[first : first + n], read, self._left)


def _noted(work: Callable[[], None]) -> list[Any]:
    """Return the calls of kernels that some work makes."""
    calls: list[Any] = []
    with dispatch.recording(calls):
        work()
    return calls
