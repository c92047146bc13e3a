"""A sketch of one numeric column: how often each class occurs in each small range of values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.plain.sketch import FRACTION_BITS, Entries, entries, numbers, reduced

# Entries (cell and class) of a sketch. A column with no more different pairs of value and class
# is held exactly; one of a million different numbers as some ten thousands of ranges.
LIMIT = 65_536
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

    Parameters
    ----------
    limit
        Entries (cell and class) to keep at most.

    Notes
    -----
    The cells are as small as the limit allows: the values of a cell agree in all but the lowest
    `shift` bits of their order-preserving integers, and `shift` is the least one for which there
    are not too many entries. That depends on the set of all values and on nothing else, so
    rows may come in any order and batches, and sketches add in any order, to the same bits.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.shift = 0
        self._parts: list[Entries] = []
        self._held = 0

    def update(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.unsignedinteger],
        weight: NDArray[np.float64] | None = None,
    ) -> None:
        """Add rows; NaN is left out.

        Parameters
        ----------
        values
            (n_rows,) finite numbers or NaN.
        labels
            (n_rows,) uint8 or uint16 class codes.
        weight
            (n_rows,) positive weights up to `GREATEST_WEIGHT`; None when every row weighs 1.
        """
        self._take(entries(values, labels, weight, self.shift))

    def __iadd__(self, other: ValueSketch) -> ValueSketch:
        self.shift = max(self.shift, other.shift)
        for part in other._parts:
            self._take(part)
        return self

    def _take(self, part: Entries) -> None:
        self._parts.append(part)
        self._held += len(part.label)
        if self._held > 4 * self.limit:
            self._settle()

    def _settle(self) -> Entries:
        """Make the parts one, of as many entries as are allowed."""
        if not self._parts:
            return entries(np.empty(0), np.empty(0, np.uint8), None, 0)
        whole = reduced(self._parts, self.shift)
        while len(whole.label) > self.limit and self.shift < 63:
            self.shift += 1
            whole = reduced([whole], self.shift)
        self._parts, self._held = [whole], len(whole.label)
        return whole

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for part in self._parts for array in part)

    def profile(self, n_classes: int) -> Profile:
        """Return the cells of the column with the weights of the classes."""
        whole = self._settle()
        cells = np.sort(whole.least >> np.uint64(self.shift))
        cells = cells[np.concatenate(([True], cells[1:] != cells[:-1]))] if len(cells) else cells
        at = np.searchsorted(cells, whole.least >> np.uint64(self.shift))
        least = np.full(len(cells), np.iinfo(np.uint64).max, np.uint64)
        greatest = np.zeros(len(cells), np.uint64)
        np.minimum.at(least, at, whole.least)
        np.maximum.at(greatest, at, whole.greatest)
        weight = np.zeros((len(cells), n_classes))
        weight[at, whole.label] = whole.whole + whole.fraction / (1 << FRACTION_BITS)
        return Profile(numbers(least), numbers(greatest), weight)
