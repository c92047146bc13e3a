"""Entries of a sketch in numpy; what they mean stands in `kernels.shared.sketch`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.sketch import (
    FRACTION_BITS,
    NONE,
    Entries,
    allowed,
    differing,
    keys,
    least_shift,
    ordered,
)


class SketchEntries:
    """Entries of a sketch that grow with the rows; see the compiled twin."""

    def __init__(self, limit: int, few: int) -> None:
        self.limit = limit
        self.few = few
        self.shift = 0
        self._parts: list[Entries] = []
        self._settled = False  # since the last rows

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for part in self._parts for array in part)

    def add(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.uint16],
        whole: NDArray[np.int64],
        fraction: NDArray[np.int64],
    ) -> None:
        """Add a block of rows; see the compiled twin."""
        key = keys(values)
        kept = ~np.isnan(values) & ((whole | fraction) != 0)
        rows = Entries(labels, key, key, whole, fraction)
        self._take(Entries(*(array[kept] for array in rows)))

    def take(self, entries: Entries, shift: int) -> None:
        """Add the entries of another sketch; see the compiled twin."""
        self.shift = max(self.shift, shift)
        if self._parts or shift < self.shift:
            self._take(entries)
        else:  # in order and summed as they are
            self._parts, self._settled = [entries], False

    def entries(self) -> Entries:
        """Return the entries in order; see the compiled twin."""
        self.settle()
        return self._parts[0]

    def __len__(self) -> int:
        """Return how many entries there are."""
        self.settle()
        return len(self._parts[0].label)

    def _take(self, entries: Entries) -> None:
        self._parts.append(_summed(ordered(entries), self.shift))
        self._settled = False
        # Between two batches no more is held than a sketch may take.
        if sum(len(part.label) for part in self._parts) > self.few:
            self.settle()

    def settle(self) -> None:
        """Keep as many entries as are allowed; see the compiled twin."""
        if self._settled:
            return
        if len(self._parts) == 1 and len(self._parts[0].label) <= min(self.limit, self.few):
            self._settled = True
            return
        whole = ordered(_together(self._parts))
        first = np.searchsorted(whole.label, np.unique(whole.label))
        apart = [differing(part) for part in np.split(whole.least, first)[1:]]
        limit = allowed(whole.whole, whole.fraction, self.limit, self.few)
        self.shift = least_shift(apart, self.shift, limit)
        self._parts, self._settled = [_summed(whole, self.shift)], True


def _together(parts: Sequence[Entries]) -> Entries:
    return Entries(*(np.concatenate(arrays) for arrays in zip(NONE, *parts, strict=True)))


def _summed(entries: Entries, shift: int) -> Entries:
    """Return ordered entries with those of one class and cell made one."""
    label, least, greatest, whole, fraction = entries
    if not len(label):
        return entries
    cell = least >> np.uint64(shift)
    new = (cell[1:] != cell[:-1]) | (label[1:] != label[:-1])
    first = np.flatnonzero(np.concatenate(([True], new)))
    part = np.add.reduceat(fraction, first)
    return Entries(
        label[first],
        least[first],
        np.maximum.reduceat(greatest, first),
        np.add.reduceat(whole, first) + (part >> FRACTION_BITS),
        part & ((1 << FRACTION_BITS) - 1),
    )
