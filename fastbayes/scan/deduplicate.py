"""Rows of categories that are equal, taken together: one row with the sum of their weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Columns = list[NDArray[np.unsignedinteger]]

# Rows of which a sample tells whether equal ones are worth taking together, and the share of
# different ones among them below which they are: sorting rows costs as much as some 20 counts.
SAMPLE, FEW = 8192, 0.5
# Joint values of which each has a place of its own in an array: 32 MiB.
DENSE = 1 << 22


def countable(sizes: NDArray[np.int64]) -> bool:
    """Return whether all joint values of columns of these sizes can be numbered."""
    return math.prod(sizes.tolist()) < 1 << 63


def joint(columns: Columns, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each row's joint value."""
    code = np.zeros(len(columns[0]), np.int64)
    for column, size in zip(columns, sizes.tolist(), strict=True):
        code *= size
        code += column
    return code


def apart(codes: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the values that joint values are of."""
    columns = []  # numpy's unravel_index ends at 64 columns
    for size in sizes.tolist()[::-1]:
        columns.append(codes % size)
        codes = codes // size
    return columns[::-1]


def summed(
    codes: NDArray[np.int64], weight: Floats | None, room: int
) -> tuple[NDArray[np.int64], Floats]:
    """Return the different ones of some joint values, ascending, and the weight of each.

    `room` is the number of joint values that there are.
    """
    if room <= DENSE and room <= 8 * len(codes):
        total = np.asarray(np.bincount(codes, weight, room), np.float64)
        found = np.flatnonzero(np.bincount(codes, minlength=room) if weight is not None else total)
        return found.astype(np.int64), total[found]
    if weight is None:
        found, times = np.unique(codes, return_counts=True)
        return found, times.astype(np.float64)
    found, place = np.unique(codes, return_inverse=True)
    return found, np.asarray(np.bincount(place, weight, len(found)), np.float64)


def repeats(codes: NDArray[np.int64]) -> bool:
    """Return whether a sample of joint values has equal ones enough."""
    few = codes
    if len(codes) > SAMPLE:
        few = codes[np.linspace(0, len(codes) - 1, SAMPLE).astype(np.int64)]
    return len(np.unique(few)) <= FEW * len(few)


def distinct(
    columns: Columns, sizes: NDArray[np.int64], weight: Floats | None
) -> tuple[Columns, Floats | None, bool]:
    """Return rows without their equals, weights in place of these, and whether that was done."""
    n = len(columns[0])
    if not countable(sizes):
        return columns, weight, False
    if n > SAMPLE:
        few = np.linspace(0, n - 1, SAMPLE).astype(np.int64)
        if not repeats(joint([column[few] for column in columns], sizes)):
            return columns, weight, False
    codes, total = summed(joint(columns, sizes), weight, math.prod(sizes.tolist()))
    if len(codes) > FEW * n:
        return columns, weight, False
    values = zip(apart(codes, sizes), columns, strict=True)
    return [some.astype(column.dtype) for some, column in values], total, True


class DistinctRows:
    """Joint values that come in parts, and the weight of each; parts are added in order.

    `sizes` are the values of each column.
    """

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self.sizes, self.room, self.n_rows = sizes, math.prod(sizes.tolist()), 0
        self._codes: list[NDArray[np.int64]] = []
        self._weight: list[Floats] = []
        self._waiting = self._settled = 0

    def add(self, codes: NDArray[np.int64], weight: Floats, n_rows: int) -> bool:
        """Add what `summed` returned of so many rows; return whether equal ones are many."""
        self.n_rows += n_rows
        self._codes.append(codes)
        self._weight.append(weight)
        self._waiting += len(codes)
        if self._waiting > max(self._settled, SAMPLE):
            self._settle()
        return self._settled <= max(FEW * self.n_rows, SAMPLE)

    def _settle(self) -> None:
        codes, weight = np.concatenate(self._codes), np.concatenate(self._weight)
        codes, weight = summed(codes, weight, self.room)
        self._codes, self._weight = [codes], [weight]
        self._settled, self._waiting = len(codes), 0

    def result(self) -> tuple[list[NDArray[np.int64]], Floats]:
        """Return the values of the different rows, by column, and the weight of each."""
        self._settle()
        return apart(self._codes[0], self.sizes), self._weight[0]
