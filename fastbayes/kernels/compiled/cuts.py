"""Class entropies on both sides of all cuts of a range of a column: a pass over its values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, U

_FLOAT, _INT = "float64", "int64"
SIGNATURES = {
    "add_scatter": [
        (reads(kind, 2), reads(_FLOAT), _INT, _INT, writes(_FLOAT)) for kind in (_INT, _FLOAT)
    ]
}


def scatter_of_cuts(cumulated: NDArray[Any], known: Floats, first: int, last: int) -> Floats:
    """Return N times the class entropy in nats within both sides of each cut of a range.

    cumulated    (n_classes, n_values + 1) int64 | float64   class weights of the first 0, 1, 2 ...
                 values
    known        x ln x of 0, 1, 2 ...: of all counts there are; empty where weights are no counts
    first, last  the range is of the values from first up to and without last: the cuts stand
                 behind its first, second ... value but the last one
    """
    found = np.zeros(last - first - 1)
    add_scatter(readonly(cumulated), readonly(known), first, last, found)
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

    out  OUT  (last - first - 1,) float64
    """
    for v in range(first + 1, last):
        left = right = cumulated[0, first] - cumulated[0, first]
        inside = outside = 0.0
        for c in range(cumulated.shape[0]):
            here = cumulated[c, v] - cumulated[c, first]
            there = (cumulated[c, last] - cumulated[c, first]) - here
            left += here
            right += there
            inside += x_log_x(here, known)
            outside += x_log_x(there, known)
        found = (x_log_x(left, known) - inside) + (x_log_x(right, known) - outside)
        out[v - first - 1] += found
