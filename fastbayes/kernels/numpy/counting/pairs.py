"""Numpy twins of `fastbayes.kernels.compiled.counting.pairs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.numpy.counting.count import add_rows

# At a time: what is made of all columns takes 16 bytes a code, and of so many cells 24 each.
ROWS, CELLS = 1 << 14, 1 << 17


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
    order = starts.argsort(kind="stable")
    first, second, starts = first[order], second[order], starts[order]
    for first_row in range(0, len(y), ROWS):
        rows = slice(first_row, first_row + ROWS)
        classes = y[rows].astype(np.intp)
        n = len(classes)
        # Codes times what a step in them skips, for all pairs of a column.
        outer, inner = np.zeros((2, len(sizes), n), np.intp)
        for i in np.unique(first).tolist():
            outer[i] = columns[i][rows]
        for j in np.unique(second).tolist():
            inner[j] = columns[j][rows] * np.intp(n_classes) + classes
        # Of few rows many pairs at once, the cells of one behind those of the other.
        most = max(1, CELLS // max(n, 1))
        for at in range(0, len(first), most):
            some = slice(at, at + most)
            step, begin = sizes[second[some]] * n_classes, int(starts[at])
            index = outer[first[some]] * step[:, None] + inner[second[some]]
            index += (starts[some] - begin)[:, None]
            end = int(starts[some][-1]) + int(sizes[first[some][-1]] * step[-1])
            own = None if weight is None else np.tile(weight[rows], len(index))
            add_rows(index.ravel(), own, out[begin:end])
