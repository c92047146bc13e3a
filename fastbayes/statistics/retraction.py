"""What is left of counts when others are taken away: exactly, or without what rounding leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS

_UNIT = float(np.finfo(np.float64).eps)
# Rows of a block are added one by one, and each time the sum may be rounded.
OF_ROWS = BLOCK_ROWS * _UNIT
# Statistics are added one by one, too: a few dozen roundings of what any cell ever was. A heavy
# one that came and went leaves its digits in cells, and classes, that are light without it.
OF_SUMS = 64 * _UNIT


def left(
    mine: NDArray[Any], theirs: NDArray[Any], largest: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return mine - theirs, where a difference that is no more than rounding is 0.

    Whole numbers below 2**53 come and go exactly, and a number from which nothing is taken stays as
    it is. Other sums of weights are off by rounding, which goes by the largest that they ever were.
    That is not kept: what there is of their class, and of the largest class, stands for it, and
    what is left is 0 up to 1.5e-11 of the one and 1.4e-14 of the other together. Where nearly all
    rows were taken away before, that is too little: the rest, taken away in its turn, may leave a
    trace, or be refused. It does neither where the heaviest rows are taken away last.

    Parameters
    ----------
    mine, theirs
        Counts or sums of weights, >= 0.
    largest
        The most that the class of each number has, as `mine` or as its last axes; by default that
        axis is the classes.

    Returns
    -------
    ndarray
        Below 0 only where rows were taken away that were never added.
    """
    result: NDArray[Any] = mine - theirs
    if result.dtype.kind != "f":
        return result
    if largest is None:
        largest = mine.max(axis=tuple(range(mine.ndim - 1)), initial=0.0)
    noise = np.abs(result) <= OF_ROWS * largest + OF_SUMS * largest.max(initial=0.0)
    noise &= (result != 0) & (theirs != 0)
    if noise.any() and not (_whole(mine) and _whole(theirs)):
        result[noise] = 0.0
    return result


def _whole(sums: NDArray[Any]) -> bool:
    """Return whether all are whole numbers, and their sums exact."""
    return bool(((sums == np.rint(sums)) & (sums < 2.0**53)).all())
