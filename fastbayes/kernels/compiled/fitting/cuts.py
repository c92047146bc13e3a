"""Class entropies on both sides of all cuts of ranges of columns: a pass over their values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, U

_FLOAT, _INT = "float64", "int64"
SIGNATURES = {
    "add_scatter": [
        (reads(kind, 2), reads(_FLOAT), reads(_INT), reads(_INT), writes(_FLOAT))
        for kind in (_INT, _FLOAT)
    ]
}


def scatter_of_cuts(
    cumulated: NDArray[Any], known: Floats, first: NDArray[np.int64], last: NDArray[np.int64]
) -> Floats:
    """Return N times the class entropy in nats within both sides of each cut of ranges.

    cumulated    (n_classes, n) int64 | float64   class weights of the first 0, 1, 2 ... values of a
                 column, of one column after the other
    known        x ln x of 0, 1, 2 ...: of all counts there are; empty where weights are no counts
    first, last  (n_ranges,) a range is of the values from first up to and without last: the cuts
                 stand behind its first, second ... value but the last one
    """
    found = np.zeros(int((last - first - 1).sum()))
    add_scatter(readonly(cumulated), readonly(known), readonly(first), readonly(last), found)
    return found


@helper
def x_log_x(x, known):
    """Return x ln x: of a count it is known."""
    if known.size:
        return known[U(x)]
    return x * np.log(x) if x > 0 else 0.0


@kernel
def add_scatter(cumulated, known, first, last, out):
    """Add Σ of both sides (N ln N - Σ_c n_c ln n_c) of each cut; see `scatter_of_cuts`.

    out  OUT  (cuts,) float64
    """
    at = 0
    for i in range(first.size):
        low, high = first[i], last[i]
        for v in range(low + 1, high):
            left = right = cumulated[0, low] - cumulated[0, low]
            inside = outside = 0.0
            for c in range(cumulated.shape[0]):
                here = cumulated[c, v] - cumulated[c, low]
                there = (cumulated[c, high] - cumulated[c, low]) - here
                left += here
                right += there
                inside += x_log_x(here, known)
                outside += x_log_x(there, known)
            found = (x_log_x(left, known) - inside) + (x_log_x(right, known) - outside)
            out[at] += found
            at += 1
