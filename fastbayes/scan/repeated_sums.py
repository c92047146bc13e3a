"""Sums of the numbers of a row group, by calls that are noted down once.

A column is read and added block after block while it is in the cache, without Python in between.
Of row groups that are alike the calls are made again: the numbers are read to where those of the
first one lay, and added to sums that begin anew. What is added up of numbers is one set for each
row group, whose bits depend on the order of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.schema import Shape
from fastbayes.data.encode import LookedUp
from fastbayes.data.segments import LateNumbers
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.columns import address_of
from fastbayes.statistics.base import FEW_CLASSES, Statistic
from fastbayes.statistics.parts import GrowingStatistics
from fastbayes.statistics.registry import kind_of

# Numbers of one call, which no signal interrupts: some tenths of a second.
MOST_NUMBERS = 1 << 27


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
        self._parts = {name: empty.empty(name, shape) for name in empty.wanted}
        self._by_column = all(part.by_column for part in self._parts.values())
        self.reader = numbers.again(together=not self._by_column)
        self._threads = numbers.threads
        self._classes = np.zeros(n, codes)
        # Whether the order of additions tells which classes a block lacks, and how many did.
        self._every, self._absent = rows.n_classes > FEW_CLASSES, np.zeros(1, np.int64)
        self._kernels = dispatch.load("reading.repeat", rows.coding)
        whole = n - n % BLOCK_ROWS
        blocks = [(first, BLOCK_ROWS) for first in range(0, whole, BLOCK_ROWS)]
        blocks += [(whole, n - whole)] if whole < n else []
        works = [(partial(rows.write_classes, self._classes), n, 1)]
        if self._every:
            works += [(partial(self._note_absent, *block), n, 1) for block in blocks]
        columns, adding = [*range(len(self.reader.columns))], []
        if self._by_column:  # what is done to the first one is done to the next
            adding.append((partial(self._add, [0], blocks), 1, len(columns)))
            self._moving = self._of_columns()
        else:
            for alike in (blocks[: whole // BLOCK_ROWS], blocks[whole // BLOCK_ROWS :]):
                if alike:
                    adding.append((partial(self._add, columns, alike[:1]), alike[0][1], len(alike)))
            self._moving = [(self._classes, self._classes.itemsize)]
        held = self.reader, self._parts, self._classes  # not this, which holds the calls
        self._coding, self._adding = (
            [self._kernels.BlockCalls(_noted(work), *times, held) for work, *times in some]
            for some in (works, adding)
        )

    @classmethod
    def of(
        cls, numbers: LateNumbers, empty: GrowingStatistics, shape: Shape, rows: LookedUp
    ) -> Self | None:
        """Return sums that calls can make; None if Python looks at the numbers."""
        kinds = {kind_of(name).class_codes(rows.n_classes) for name in empty.wanted}
        if len(kinds) != 1 or rows.n_rows * len(numbers.names) > MOST_NUMBERS:
            return None
        if numbers.threads > 1 and not all(kind_of(name).by_column for name in empty.wanted):
            return None  # the others can only read ahead
        codes = kinds.pop()
        compiled = dispatch.compiled(rows.coding) and not dispatch.interpreted()
        if not compiled or rows.n_classes > np.iinfo(codes).max:
            return None
        return cls(numbers, empty, shape, rows, codes)

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """Memory that belongs to one thread."""
        return [self._classes, self._absent, self.reader.columns, *_arrays(self._parts)]

    def elsewhere(self) -> Self:
        """Return the same for another thread."""
        other = copy.copy(self)
        other.reader, other._classes = self.reader.elsewhere(), np.zeros_like(self._classes)
        other._absent = np.zeros_like(self._absent)
        other._parts = {name: part.blank() for name, part in self._parts.items()}
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
        for array in [self._absent, *_arrays(self._parts)]:
            array[...] = 0

    def end(self) -> GrowingStatistics | None:
        """Return the sums; None if Python must read these numbers: to say what is wrong, too."""
        known = self._by_column or not self.reader.gaps()
        finite = all(bool(np.isfinite(array).all()) for array in _arrays(self._parts))
        if not (self.reader.complete() and known and finite) or self._absent[0]:
            return None
        sums = GrowingStatistics(self._wanted, weighted=self._weighted)
        sums.held = {name: part.copy() for name, part in self._parts.items()}
        return sums

    def _of_columns(self) -> list[tuple[NDArray[Any], int]]:
        """Return arrays that hold something of each column, and its bytes."""
        columns = self.reader.columns
        moving = [(columns, columns.strides[0])]
        for part in self._parts.values():
            first, last = part.of_number(0).arrays(), part.of_number(len(columns) - 1).arrays()
            for key, array in part.arrays().items():
                apart = address_of(last[key]) - address_of(first[key])
                moving.append((array, apart // max(len(columns) - 1, 1)))
        return moving

    def _note_absent(self, first: int, n: int) -> None:
        marks = np.zeros(self._n_classes, np.bool_)
        note = dispatch.load("reading.encode", self._cells).note_absent
        note(self._classes[first : first + n], marks, self._absent)

    def _add(self, columns: list[int], blocks: list[tuple[int, int]]) -> None:
        """Add columns to the sums, block after block: the first row and the rows of each."""
        none = np.zeros(0, np.bool_)
        for first, n in blocks:
            numbers = tuple(self.reader.read(j, n) for j in columns)
            how = self._n_classes, (), none, numbers, None, self._cells, self._every
            batch = Batch(n, self._classes[first : first + n], *how)
            for part in self._parts.values():
                (part.of_number(columns[0]) if self._by_column else part).update(batch)


def _noted(work: Callable[[], None]) -> list[Any]:
    """Return the calls of kernels that some work makes."""
    calls: list[Any] = []
    with dispatch.recording(calls):
        work()
    return calls


def _arrays(parts: dict[str, Statistic]) -> list[NDArray[Any]]:
    return [array for part in parts.values() for array in part.arrays().values()]
