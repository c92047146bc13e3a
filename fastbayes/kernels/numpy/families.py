"""Numpy twin of `fastbayes.kernels.compiled.families`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def add_family_counts(
    columns: Sequence[NDArray[np.unsignedinteger]],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    n_classes: int,
    families: Sequence[Sequence[int]],
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts of families; see the compiled twin."""
    if out.dtype == np.float64 and weight is None:
        weight = np.ones(len(y))
    for family, start in zip(families, starts.tolist(), strict=True):
        index, cells = np.zeros(len(y), np.intp), n_classes
        for feature in family:
            index = index * int(sizes[feature]) + columns[feature]
            cells *= int(sizes[feature])
        index = index * n_classes + y
        mine = out[start : start + cells]
        if weight is not None:  # bincount would sum from zero: other bits than adding on
            np.add.at(mine, index, weight)
        elif cells > 4 * len(y):  # bincount would clear and add more cells than rows hit
            np.add.at(mine, index, 1)
        else:
            mine += np.bincount(index, minlength=cells)
