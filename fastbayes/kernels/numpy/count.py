"""Numpy twins of `fastbayes.kernels.compiled.count`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def add_counts(
    codes: NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    slots: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts; see the compiled twin."""
    n_classes = out.shape[1]
    classes = y.astype(np.intp)
    for i in range(len(codes)):
        cells = out[slots[i] : slots[i] + sizes[i]]
        _add(codes[i].astype(np.intp) * n_classes + classes, weight, cells)


def add_class_counts(
    y: NDArray[np.unsignedinteger], weight: NDArray[np.float64] | None, out: NDArray[Any]
) -> None:
    """Add one block of rows to the class counts; see the compiled twin."""
    _add(y.astype(np.intp), weight, out)


def _add(index: NDArray[np.intp], weight: NDArray[np.float64] | None, cells: NDArray[Any]) -> None:
    """Add 1 or weight[r] to cells.flat[index[r]], in row order."""
    if weight is None:
        cells += np.bincount(index, minlength=cells.size).reshape(cells.shape)
    else:  # bincount would sum from zero: other bits than adding on to what is there
        np.add.at(cells.reshape(-1), index, weight)
