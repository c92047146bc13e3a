"""Numpy twins of `fastbayes.kernels.compiled.counting.families`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.numpy.counting.count import add_rows


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
    for family, start in zip(families, starts.tolist(), strict=True):
        index, cells = np.zeros(len(y), np.intp), n_classes
        for feature in family:
            index = index * int(sizes[feature]) + columns[feature]
            cells *= int(sizes[feature])
        index = index * n_classes + y
        mine = out[start : start + cells]
        add_rows(index, weight, mine)


def add_triple_counts(
    columns: Sequence[NDArray[np.unsignedinteger]],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    n_classes: int,
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts of triples; see the compiled twin."""
    m, q = len(columns), 0
    outer = [column.astype(np.intp) for column in columns]
    inner = [column * n_classes + y for column in outer]
    for i in range(m - 2):
        for j in range(i + 1, m - 1):
            both = outer[i] * int(sizes[j]) + outer[j]
            for k in range(j + 1, m):
                step, start = int(sizes[k]) * n_classes, int(starts[q])
                cells = out[start : start + int(sizes[i] * sizes[j]) * step]
                index = both * step + inner[k]
                q += 1
                add_rows(index, weight, cells)
