"""Numpy twins of `fastbayes.kernels.compiled.counting.bitmaps`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.numpy.counting.pairs import add_pair_counts


def add_bitmap_counts(
    chosen: Any,
    columns: Sequence[NDArray[np.unsignedinteger]] | NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Add one block of rows to the counts of the pairs of a plan; see the compiled twin."""
    pairs = (first[chosen.pairs], second[chosen.pairs], starts[chosen.pairs])
    add_pair_counts(columns, sizes, y, None, n_classes, *pairs, out)
