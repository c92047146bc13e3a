"""Class-conditional counts of triples of columns: out[start + (a, b, c, class)] += 1 or weight.

The codes of two columns are joined once for all third ones, a few thousand rows at a time. Small
blocks of cells are counted in four private copies, in which equal neighbouring rows do not wait
for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd.memory import borrow
from fastbayes.kernels.dispatch import kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U

# Rows at a time: the codes of all columns stay in the second-level cache.
ROWS = 4096

_CODES = writes("uint32", 2)
_SHAPE = (_CODES, reads("int64"), reads("uint16"), "int64", reads("int64"), "int64")
SIGNATURES = {
    "add_rows": [
        (*_SHAPE, _CODES, weight, writes("int32"), writes(cell))
        for weight, cell in (("none", "int64"), (reads("float64"), "float64"))
    ],
}


def add_triple_counts(
    columns: Sequence[NDArray[np.unsignedinteger]],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    n_classes: int,
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts of all triples of columns.

    For every triple q of columns i < j < k in lexicographic order, and every row in order:
    out[starts[q] + ((x_i sizes[j] + x_j) sizes[k] + x_k) n_classes + y] += 1, or += weight.

    columns   IN   m arrays (n,) uint8 | uint16 | uint32   columns[j][r] < sizes[j]
    sizes     IN   (m,) int64   codes of each column
    y         IN   (n,) uint8 | uint16   class < n_classes
    weight    IN   (n,) float64 or None
    starts    IN   (m (m - 1)(m - 2) / 6,) int64   first cell of each triple
    out       OUT  int64, float64 with weights
    """
    if not len(starts) or not len(y):
        return
    codes = borrow("triple_codes", (len(columns), ROWS), np.uint32)
    last = borrow("triple_digits", (len(columns) + 1, ROWS), np.uint32)
    given = readonly(sizes), readonly(y.astype(np.uint16)), n_classes, readonly(starts)
    if out.dtype == np.float64 and weight is None:
        weight = np.ones(len(y))
    weight = None if weight is None else readonly(weight)
    counts = borrow("triple_counts", (ROWS,), np.int32)
    for lo in range(0, len(y), ROWS):
        n = min(ROWS, len(y) - lo)
        for row, column in zip(codes, columns, strict=True):
            row[:n] = column[lo : lo + n]
        add_rows(codes, *given, lo, last, weight, counts, out)


@kernel
def add_rows(codes, sizes, y, n_classes, starts, lo, last, weight, counts, out):
    """Add 1 or its weight for each row from lo on, weights in row order.

    codes      IN   (m, rows) uint32   codes of these rows
    sizes      IN   (m,) int64
    y          IN   (n,) uint16   classes of all rows
    n_classes  IN   K
    starts     IN   (n_triples,) int64
    lo         IN   first row
    last       OUT  (m + 1, rows) uint32   scratch: x_k K + y, and below x_i sizes[j] + x_j
    weight     IN   (n,) float64 of all rows, or None
    counts     OUT  (4 or more,) int32   scratch
    out        OUT  int64, float64 with weights
    """
    m, n, q = codes.shape[0], min(codes.shape[1], y.size - lo), 0
    both = last[m]
    for k in range(m):
        for r in range(n):
            last[k, r] = codes[k, r] * np.uint32(n_classes) + y[lo + r]
    for i in range(m - 2):
        for j in range(i + 1, m - 1):
            size = np.uint32(sizes[j])
            for r in range(n):
                both[r] = codes[i, r] * size + codes[j, r]
            for k in range(j + 1, m):
                step, digit, start = U(sizes[k] * n_classes), last[k], U(starts[q])
                cells = sizes[i] * sizes[j] * sizes[k] * n_classes
                q += 1
                if weight is not None:
                    for r in range(n):
                        out[start + U(both[r]) * step + U(digit[r])] += weight[lo + r]
                    continue
                if 4 * cells > n or 4 * cells > counts.size:
                    for r in range(n):
                        out[start + U(both[r]) * step + U(digit[r])] += 1
                    continue
                a, b, c, d = U(0), U(cells), U(2 * cells), U(3 * cells)
                for cell in range(4 * cells):
                    counts[cell] = 0
                whole = n - n % 4
                for r in range(0, whole, 4):
                    counts[a + U(both[r]) * step + U(digit[r])] += 1
                    counts[b + U(both[r + 1]) * step + U(digit[r + 1])] += 1
                    counts[c + U(both[r + 2]) * step + U(digit[r + 2])] += 1
                    counts[d + U(both[r + 3]) * step + U(digit[r + 3])] += 1
                for r in range(whole, n):
                    counts[a + U(both[r]) * step + U(digit[r])] += 1
                for cell in range(cells):
                    at = U(cell)
                    total = counts[a + at] + counts[b + at] + counts[c + at] + counts[d + at]
                    out[start + at] += total
