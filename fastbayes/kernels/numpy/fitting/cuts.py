"""Numpy twin of `fastbayes.kernels.compiled.fitting.cuts`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.cuts import scatter_of


def scatter_of_cuts(
    cumulated: NDArray[Any], known: Floats, first: NDArray[np.int64], last: NDArray[np.int64]
) -> Floats:
    """Return N times the class entropy within both sides of each cut; see the compiled twin."""
    n = last - first - 1
    ends = np.cumsum(n)
    # Of each cut the place in its column, and those where its range begins and ends.
    at = np.arange(n.sum()) + np.repeat(first + 1 - (ends - n), n)
    below, above = cumulated[:, first], cumulated[:, last]
    sides = np.empty((len(cumulated), 2, len(at)), cumulated.dtype)
    np.subtract(cumulated[:, at], np.repeat(below, n, axis=1), out=sides[:, 0])
    np.subtract(np.repeat(above - below, n, axis=1), sides[:, 0], out=sides[:, 1])
    left, right = scatter_of(sides, known)
    return np.asarray(left + right)
