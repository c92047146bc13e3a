"""Class entropies of ranges of a column, by which it is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats


def x_log_x(x: NDArray[Any], known: Floats) -> Floats:
    """Return x ln x of weights, in nats; where it is `known` of 0, 1, 2 ... they are counts."""
    if len(known):
        return np.asarray(known.take(x))
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


def scatter_of(weights: NDArray[Any], known: Floats) -> Floats:
    """Return N times the class entropy in nats of class weights, (n_classes, n, ...)."""
    # The classes one after the other: so numpy sums over an axis that others follow.
    total = x_log_x(np.add.reduce(weights, axis=0), known)
    return np.asarray(total - np.add.reduce(x_log_x(weights, known), axis=0))
