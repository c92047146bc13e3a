"""Information about the class, as pairs of a feature and the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Ints

# A cell of summed weights that differs from what independence expects by this share of itself
# differs by the rounding of the sums. What is taken from I is below the square of it.
ROUNDING = 1e-12
# A cell below this share of all weight is empty: the product of two such is still a number.
NOTHING = 1e-100


def class_pairs(
    counts: NDArray[Any], offsets: Ints, sizes: Ints
) -> tuple[NDArray[Any], Ints, Ints, Ints, Ints, Ints, int]:
    """Return counts of values as pairs (feature, class) within one class of all rows."""
    m, k = len(sizes), counts.shape[1]
    first, second = np.arange(m), np.full(m, m)
    width = np.append(np.diff(offsets), k)
    return counts.reshape(-1), first, second, offsets[:-1] * k, np.append(sizes, k), width, 1


def by_shape(first: Ints, second: Ints, sizes: Ints, widths: Ints) -> Iterator[Ints]:
    """Yield the positions of the pairs whose blocks have one shape, for every shape."""
    kinds = np.unique(np.stack([sizes, widths], axis=1), axis=0, return_inverse=True)[1]
    kinds = kinds.reshape(-1)
    keys = kinds[first] * len(sizes) + kinds[second]
    order = np.argsort(keys, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else ()
