"""Class-conditional counts of categorical columns: out[slot + code, class] += 1 or weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes._jit import kernel, readonly, reads, writes

U = np.uint64

SIGNATURES = {
    "direct": [
        (
            reads(codes, 2),
            *[reads("int64")] * 3,
            reads(classes),
            *["int64"] * 2,
            writes("int32"),
            writes("int64"),
        )
        for codes in ("uint8", "uint16", "uint32")
        for classes in ("uint8", "uint16")
    ],
    "weighted": [
        (
            reads(codes, 2),
            *[reads("int64")] * 2,
            reads(classes),
            reads("float64"),
            "int64",
            writes("float64"),
        )
        for codes in ("uint8", "uint16", "uint32")
        for classes in ("uint8", "uint16")
    ],
}


def add_counts(
    codes: NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    slots: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts.

    out[slots[i] + codes[i, r], y[r]] += 1, or += weight[r], in row order for every cell.

    codes   IN   (m, n) uint8 | uint16 | uint32   codes[i, r] < sizes[i]
    sizes   IN   (m,) int64   codes of each column
    slots   IN   (m,) int64   first slot of each column
    y       IN   (n,) uint8 | uint16   class < n_classes
    weight  IN   (n,) float64 or None
    out     OUT  (n_slots, n_classes) int64, float64 with weights
    """
    n_classes = out.shape[1]
    cells = out.reshape(-1)
    if not codes.size:
        return
    if out.dtype == np.float64:
        weight = np.ones(len(y)) if weight is None else weight
        weighted(
            readonly(codes),
            readonly(sizes),
            readonly(slots),
            readonly(y),
            readonly(weight),
            n_classes,
            cells,
        )
        return
    copies = 4
    counts = np.empty(copies * int(sizes.max()) * n_classes, np.int32)
    columns = np.arange(len(codes))
    direct(
        readonly(codes),
        readonly(columns),
        readonly(sizes),
        readonly(slots),
        readonly(y),
        n_classes,
        copies,
        counts,
        cells,
    )


def add_class_counts(
    y: NDArray[np.unsignedinteger], weight: NDArray[np.float64] | None, out: NDArray[Any]
) -> None:
    """Add one block of rows to the class counts: out[y[r]] += 1 or weight[r], in row order.

    y       IN   (n,) uint8 | uint16   class < n_classes
    weight  IN   (n,) float64 or None
    out     OUT  (n_classes,) int64, float64 with weights
    """
    add_counts(
        y[None],
        np.array([len(out)]),
        np.zeros(1, np.int64),
        np.zeros(len(y), np.uint8),
        weight,
        out[:, None],
    )


@kernel
def direct(codes, columns, sizes, slots, y, n_classes, copies, counts, out):
    """Count each column into private 32-bit tables, then add them to out."""
    one = np.int32(1)
    k = U(n_classes)
    n = U(y.size)
    n4 = U(y.size // 4 * 4)
    for t in range(columns.size):
        i = columns[t]
        x = codes[i]
        width = sizes[i] * n_classes
        h = counts[: copies * width]
        h[:] = 0
        b = U(width) if copies > 1 else U(0)
        c = U(2 * width) if copies == 4 else U(0)
        d = b + c
        r = U(0)
        while r < n4:
            h[U(x[r]) * k + U(y[r])] += one
            h[b + U(x[r + U(1)]) * k + U(y[r + U(1)])] += one
            h[c + U(x[r + U(2)]) * k + U(y[r + U(2)])] += one
            h[d + U(x[r + U(3)]) * k + U(y[r + U(3)])] += one
            r += U(4)
        while r < n:
            h[U(x[r]) * k + U(y[r])] += one
            r += U(1)
        first = slots[i] * n_classes
        for copy in range(copies):
            for cell in range(width):
                out[first + cell] += h[copy * width + cell]


@kernel
def weighted(codes, sizes, slots, y, weight, n_classes, out):
    """Add weights in row order, cell by cell."""
    k = U(n_classes)
    for i in range(codes.shape[0]):
        x = codes[i]
        first = slots[i] * n_classes
        h = out[first : first + sizes[i] * n_classes]
        for r in range(y.size):
            h[U(x[r]) * k + U(y[r])] += weight[r]
