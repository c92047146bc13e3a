"""Numpy twins of `fastbayes.kernels.compiled.pairs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.numpy.count import add_rows

# At a time: what is made of all columns takes 16 bytes a code.
ROWS = 1 << 14


def add_pair_counts(
    columns: Sequence[NDArray[np.unsignedinteger]] | NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    n_classes: int,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts of pairs; see the compiled twin."""
    for first_row in range(0, len(y), ROWS):
        rows = slice(first_row, first_row + ROWS)
        classes = y[rows].astype(np.intp)
        # Codes times what a step in them skips, for all pairs of a column.
        outer = {int(i): columns[i][rows].astype(np.intp) for i in np.unique(first)}
        inner = {int(j): columns[j][rows] * np.intp(n_classes) + classes for j in np.unique(second)}
        for i, j, start in zip(first.tolist(), second.tolist(), starts.tolist(), strict=True):
            step = int(sizes[j]) * n_classes
            cells = out[start : start + int(sizes[i]) * step]
            index = outer[i] * step + inner[j]
            add_rows(index, None if weight is None else weight[rows], cells)
