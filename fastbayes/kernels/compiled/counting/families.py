"""Class-conditional counts of several features together: of chosen families, or of all triples.

The codes of a family are joined to one, then counted. Of triples the codes of two columns are
joined once for all third ones, a few thousand rows at a time; small blocks of cells are counted in
four private copies, in which equal neighbouring rows do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import code_type
from fastbayes.kernels.compiled.counting import count
from fastbayes.kernels.compiled.simd.memory import borrow
from fastbayes.kernels.dispatch import (
    call,
    in_python,
    kernel,
    numpy_twin,
    readonly,
    reads,
    writes,
)
from fastbayes.kernels.shared.arrays import U

_CODES = ("uint8", "uint16", "uint32")

SIGNATURES = {
    "join": [
        (reads(column), code, writes(code))
        for width, code in enumerate(_CODES)
        for column in _CODES[: width + 1]
    ],
    "add_rows": [
        (
            *(writes("uint32", 2), reads("int64"), reads("uint16"), "int64"),
            *(reads("int64"), "int64"),
            *(writes("uint32", 2), weight, writes("int32"), writes(cell)),
        )
        for weight, cell in (("none", "int64"), (reads("float64"), "float64"))
    ],
}

# Bytes of joint codes made before they are counted: few enough for the caches, enough families for
# `count` to take together those that it can.
JOINED = 1 << 20
# Rows of triples at a time: the codes of all columns stay in the second-level cache.
ROWS = 4096


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
    """Add one block of rows to class-conditional counts of families.

    out[start + ((x_1 S_2 + x_2) S_3 + ...) n_classes + y] += 1, or += weight, in row order.

    columns   IN   m arrays (n,) uint8 | uint16 | uint32   columns[j][r] < sizes[j]
    sizes     IN   (m,) int64
    y         IN   (n,) uint8 | uint16   class < n_classes
    weight    IN   (n,) float64 or None
    families  IN   features of each family, one or more
    starts    IN   (n_families,) int64   multiples of n_classes
    out       OUT  (n_cells,) int64, float64 with weights
    """
    if not len(y):
        return
    cells = [int(np.prod([float(sizes[f]) for f in family])) for family in families]
    kinds = [
        np.result_type(code_type(size), *(columns[f].dtype for f in family))
        for size, family in zip(cells, families, strict=True)
    ]
    for kind in {*kinds}:
        alike = [q for q, its in enumerate(kinds) if its == kind]
        if kind.itemsize > 4:  # more cells than four bytes tell apart
            in_python()
            given = columns, sizes, y, weight, n_classes
            add = numpy_twin("counting.families").add_family_counts
            add(*given, [families[q] for q in alike], starts[alike], out)
            continue
        step = max(1, JOINED // (kind.itemsize * len(y)))
        codes = np.empty((min(step, len(alike)), len(y)), kind)
        for b in range(0, len(alike), step):
            some = alike[b : b + step]
            for code, q in zip(codes, some, strict=False):
                _join([columns[f] for f in families[q]], sizes[list(families[q])], code)
            of = np.array([cells[q] for q in some])
            slots = starts[some] // n_classes
            table = out.reshape(-1, n_classes)
            count.add_counts(codes[: len(some)], of, slots, y, weight, table)


def _join(
    columns: Sequence[NDArray[np.unsignedinteger]], sizes: NDArray[np.int64], code: NDArray[Any]
) -> None:
    """Write the joint code of columns of these sizes, the first of which does not matter."""
    for column, size in zip(columns, [0, *sizes[1:].tolist()], strict=True):
        # A size that the type cannot hold is that of a column whose parents have one value.
        call(join, readonly(column), code.dtype.type(size % (1 << 8 * code.itemsize)), code)


@kernel
def join(column, size, code):
    """Make column the last digit of a code, in the type of the code: code = code size + column."""
    for r in range(code.size):
        code[r] = code.dtype.type(code[r] * size) + code.dtype.type(column[r])


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
    sizes, starts, classes = readonly(sizes), readonly(starts), np.empty(len(y), np.uint16)
    _join([y], sizes[:1], classes)
    if out.dtype == np.float64 and weight is None:
        weight = np.ones(len(y))
    weight = None if weight is None else readonly(weight)
    counts = borrow("triple_counts", (ROWS,), np.int32)
    for lo in range(0, len(y), ROWS):
        n = min(ROWS, len(y) - lo)
        for row, column in zip(codes, columns, strict=True):
            _join([column[lo : lo + n]], sizes[:1], row[:n])
        given = codes, sizes, readonly(classes), n_classes, starts
        call(add_rows, *given, lo, last, weight, counts, out)


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
