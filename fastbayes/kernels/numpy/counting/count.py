"""Numpy twins of `fastbayes.kernels.compiled.counting.count`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats


def add_counts(
    codes: NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    slots: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts; see the compiled twin."""
    n_classes, classes = out.shape[1], y.astype(np.intp)
    for column, slot, size in zip(codes, slots.tolist(), sizes.tolist(), strict=True):
        cells = out[slot : slot + size].reshape(-1)
        add_rows(column.astype(np.intp) * n_classes + classes, weight, cells)


def add_class_counts(
    y: NDArray[np.unsignedinteger], weight: NDArray[np.float64] | None, out: NDArray[Any]
) -> None:
    """Add one block of rows to the class counts; see the compiled twin."""
    add_rows(y.astype(np.intp), weight, out)


def add_rows(index: NDArray[Any], weight: Floats | None, cells: NDArray[Any]) -> None:
    """Add 1 or weight[r] to cells[index[r]], in row order."""
    if weight is not None or cells.dtype == np.float64:
        # bincount would sum from zero: other bits than adding on to what is there
        np.add.at(cells, index, 1.0 if weight is None else weight)
    elif cells.size > 4 * len(index):  # bincount would clear and add more cells than rows hit
        np.add.at(cells, index, 1)
    else:
        cells += np.bincount(index, minlength=cells.size)
