"""A sketch of one numeric column: how often each class occurs in each small range of values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.sketch import FRACTION_BITS, NONE, differing, least_shift, numbers

# Entries (cell and class) of a sketch. A column with no more different pairs of value and class
# is held exactly; of a million different numbers there are some thousands of ranges. Four times
# as many take twice the time, since they do not fit the second-level cache.
LIMIT = 16_384
# Whatever so few rows hold is kept exactly.
FEW_ROWS = 65_536
# Weights of a profile, 128 MiB of them: 256 classes may have as many cells as there ever are.
MOST_WEIGHTS = 1 << 24
# Weights beyond this could overflow their sums.
GREATEST_WEIGHT = 2.0**32


class Profile(NamedTuple):
    """The values of a column, or ranges of them, in ascending order.

    least, greatest  (n,) float64             extremes of each range; equal for a single value
    weight           (n, n_classes) float64   rows, or the sum of their weights
    """

    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    weight: NDArray[np.float64]


class ValueSketch:
    """Class weights of the values of a numeric column, in bounded memory.

    At most `limit` entries (cell and class) are kept, or `few` as long as all rows together weigh
    no more than that. The cells are as small as the limit allows: the values of a cell agree in all
    but the lowest `shift` bits of their order-preserving integers, and `shift` is the least one for
    which there are not too many entries. That depends on the rows as a set and on nothing else, so
    they may come in any order and batches, and sketches add in any order, to the same bits.
    """

    def __init__(self, limit: int = LIMIT, few: int = FEW_ROWS) -> None:
        self.limit = limit
        self.few = few
        self._cells: Any = None

    def update(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.uint16],
        weight: tuple[NDArray[np.int64], NDArray[np.int64]],
        cells: float = math.inf,
    ) -> None:
        """Add a block of rows; NaN is left out.

        Weights are as `split` gives them, up to `GREATEST_WEIGHT`. `cells` are the rows x columns
        of the whole job: whether compiling pays is decided at the first block.
        """
        if self._cells is None:
            self._cells = dispatch.load("sketch", cells).SketchEntries(self.limit, self.few)
        self._cells.add(values, labels, *weight)

    def merge(self, other: ValueSketch) -> None:
        """Add the rows of another sketch."""
        if other._cells is not None:
            if self._cells is None:
                self._cells = type(other._cells)(self.limit, self.few)
            self._cells.take(other._cells.entries(), other._cells.shift)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 0 if self._cells is None else int(self._cells.nbytes)

    @property
    def shift(self) -> int:
        """Bits that the cells are short of; 0 where every value is held exactly."""
        if self._cells is None:
            return 0
        self._cells.settle()
        return int(self._cells.shift)

    def profile(self, classes: NDArray[np.intp]) -> Profile:
        """Return the cells of the column with the weights of these classes, by their codes.

        There are at most `MOST_WEIGHTS` weights: of hundreds of classes, the cells are larger.
        """
        whole = NONE if self._cells is None else self._cells.entries()
        limit = max(1, MOST_WEIGHTS // max(1, len(classes)))
        shift = np.uint64(least_shift([differing(whole.least)], self.shift, limit))
        cells = np.sort(whole.least >> shift)
        first = np.ones(len(cells), np.bool_)
        first[1:] = cells[1:] != cells[:-1]
        cells = cells[first]
        at = np.searchsorted(cells, whole.least >> shift)
        least = np.full(len(cells), np.iinfo(np.uint64).max, np.uint64)
        greatest = np.zeros(len(cells), np.uint64)
        np.minimum.at(least, at, whole.least)
        np.maximum.at(greatest, at, whole.greatest)
        place = np.empty(len(classes), np.intp)
        place[classes] = np.arange(len(classes))
        sums = [np.zeros((len(cells), len(classes)), np.int64) for _ in range(2)]
        for total, part in zip(sums, (whole.whole, whole.fraction), strict=True):
            np.add.at(total, (at, place[whole.label]), part)
        weight = sums[0] + sums[1] / (1 << FRACTION_BITS)
        return Profile(numbers(least), numbers(greatest), weight)
