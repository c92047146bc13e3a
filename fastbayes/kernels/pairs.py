"""Class-conditional counts of pairs of columns: out[start + (a, b, class)] += 1 or weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from fastbayes._jit import kernel, readonly, reads, writes
from fastbayes.kernels import bits, pair_plan, vector
from fastbayes.kernels.bitmaps import add_bitmap_counts
from fastbayes.kernels.memory import addresses, borrow
from fastbayes.kernels.pair_plan import Plan
from fastbayes.plain import pairs as plain

U = np.uint64
U16 = np.uint16

# Rows of one call of the kernels: their scratch counts with 32 bits, their rows with 16.
BLOCK = 1 << 16
# Rows of joint codes: 8 KiB each of up to four pairs.
CODE_ROWS, PAIRS_AT_ONCE = 1024, 4
# Adding a private cell to `out` and clearing it costs about as much as an increment: worth it
# only if the rows outnumber the cells by this factor.
ROWS_PER_CELL = 8
# Cells of a table of which four copies pay; two pay for twice as many.
COPIED_CELLS = 2048
PRIVATE_CELLS = BLOCK // ROWS_PER_CELL
AHEAD = 32  # rows

_INT64 = reads("int64")
_PAIRS = (_INT64, reads("uint16"), "int64", _INT64, _INT64, _INT64)

SIGNATURES = {
    "direct": [
        (reads("uint64"), *_PAIRS, _INT64, writes("uint16"), writes("int32"), writes("int64"))
    ],
    "wide": [
        (
            reads("uint64"),
            _INT64,
            *_PAIRS,
            _INT64,
            writes("uint64"),
            writes("int32"),
            writes("int64"),
        )
    ],
    "weighted": [
        (reads("uint64"), _INT64, *_PAIRS, reads("float64"), writes("uint64", 2), writes("float64"))
    ],
}

# Plans of late, by what is short of their pairs of columns.
_plans: dict[tuple[Any, ...], tuple[NDArray[np.int64], NDArray[np.int64], Plan]] = {}
MOST_PLANS = 16


def add_pair_counts(
    columns: Sequence[NDArray[np.unsignedinteger]],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    n_classes: int,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts of pairs of columns.

    For every pair q of columns i, j = first[q], second[q] and every row r, in row order for every
    cell: out[starts[q] + (columns[i][r] * sizes[j] + columns[j][r]) * n_classes + y[r]] += 1,
    or += weight[r].

    columns  IN   (n,) uint8 | uint16 | uint32 each   columns[i][r] < sizes[i]; of columns in no
                  pair only the place is taken
    sizes    IN   (m,) int64   codes of each column
    y        IN   (n,) uint8 | uint16   class < n_classes
    weight   IN   (n,) float64 or None
    first, second  IN  (n_pairs,) int64   columns of each pair
    starts   IN   (n_pairs,) int64   first cell of each pair
    out      OUT  int64, float64 with weights
    """
    if not len(first) or not len(y):
        return
    if not vector.AVAILABLE:  # without the compiler there are no pointers
        plain.add_pair_counts(columns, sizes, y, weight, n_classes, first, second, starts, out)
        return
    if len(y) > BLOCK:
        for start in range(0, len(y), BLOCK):
            rows = slice(start, start + BLOCK)
            part = None if weight is None else weight[rows]
            add_pair_counts(
                *([x[rows] for x in columns], sizes, y[rows], part, n_classes),
                *(first, second, starts, out),
            )
        return
    sizes, first, second, starts = map(readonly, (sizes, first, second, starts))
    plan = _plan(sizes, first, second, n_classes, len(y), y.itemsize == 1)
    columns = _as_bytes(columns, plan)
    pairs = first, second, starts
    if plan.bitmaps is not None and out.dtype != np.float64:
        add_bitmap_counts(plan.bitmaps, columns, sizes, y, n_classes, *pairs, out)
    if not (plan.direct.size or plan.wide.size or out.dtype == np.float64):
        return
    where = addresses(columns, plan.columns)
    widths = readonly(np.array([column.itemsize for column in columns]))
    classes = readonly(y.astype(np.uint16))
    if out.dtype == np.float64:
        weight = np.ones(len(y)) if weight is None else weight
        code = borrow("weighted_codes", (PAIRS_AT_ONCE, CODE_ROWS), np.uint64)
        weighted(where, widths, sizes, classes, n_classes, *pairs, readonly(weight), code, out)
        return
    counts = borrow("private_counts", (4 * PRIVATE_CELLS,), np.int32)
    if plan.direct.size:
        code = borrow("direct_codes", (4 * CODE_ROWS,), np.uint16)
        direct(where, sizes, classes, n_classes, *pairs, plan.direct, code, counts, out)
    if plan.wide.size:
        code = borrow("wide_codes", (CODE_ROWS,), np.uint64)
        wide(where, widths, sizes, classes, n_classes, *pairs, plan.wide, code, counts, out)


def _as_bytes(
    columns: Sequence[NDArray[np.unsignedinteger]], plan: Plan
) -> list[NDArray[np.unsignedinteger]]:
    """Return columns as kernels read them: contiguous, one byte a code where that can hold it."""
    result = list(columns)
    for i, few in zip(plan.columns, plan.few, strict=True):
        column = columns[i]
        if few and column.itemsize > 1:
            result[i] = column.astype(np.uint8)
        elif not (column.flags.c_contiguous and column.flags.aligned):
            result[i] = column.copy()
    return result


def _plan(
    sizes: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    n_classes: int,
    n_rows: int,
    bytes_only: bool,
) -> Plan:
    """Return the plan for a list of pairs, made anew only if it is another list."""
    # Rows to the nearest power of two below: a last, shorter block has its plan ready.
    about = 1 << n_rows.bit_length() >> 1
    key = sizes.tobytes(), len(first), n_classes, about, bytes_only
    found = _plans.get(key)
    if found and np.array_equal(found[0], first) and np.array_equal(found[1], second):
        return found[2]
    plan = pair_plan.choose(sizes, first, second, n_classes, about, bytes_only)
    if len(_plans) >= MOST_PLANS:
        _plans.clear()
    _plans[key] = first.copy(), second.copy(), plan
    return plan


@kernel
def direct(addresses, sizes, y, n_classes, first, second, starts, pairs, code, counts, out):
    """Count pairs of columns of bytes by joint codes below 65,536.

    addresses  IN   (m,) uint64   of (n,) uint8 codes of each column
    sizes      IN   (m,) int64
    y          IN   (n,) uint16
    first, second, starts  IN  (n_pairs,) int64
    pairs      IN   which of them
    code       OUT  (block of rows,) uint16   scratch
    counts     OUT  (PRIVATE_CELLS,) int32   scratch
    out        OUT  int64
    """
    one = np.int32(1)
    n = y.size
    for p in pairs:
        i, j = first[p], second[p]
        x, z = (
            carray(bits.codes8_at(addresses[i]), (n,)),
            carray(bits.codes8_at(addresses[j]), (n,)),
        )
        step_i, step_j = U16(sizes[j] * n_classes), U16(n_classes)
        cells = sizes[i] * sizes[j] * n_classes
        table = out[starts[p] : starts[p] + cells]
        copies = copies_of(cells, n)
        private = counts[: copies * cells]
        private[:] = 0
        second_copy = U(cells) if copies > 1 else U(0)
        third_copy = U(2 * cells) if copies > 2 else U(0)
        fourth_copy = second_copy + third_copy
        for begin in range(0, n, code.size):
            end = min(begin + code.size, n)
            joint, a, b, classes = code[: end - begin], x[begin:end], z[begin:end], y[begin:end]
            for r in range(joint.size):
                joint[r] = U16(U16(U16(a[r]) * step_i) + U16(U16(U16(b[r]) * step_j) + classes[r]))
            r, whole = U(0), U(joint.size // 4 * 4 if copies else 0)
            while r < whole:
                private[U(joint[r])] += one
                private[second_copy + U(joint[r + U(1)])] += one
                private[third_copy + U(joint[r + U(2)])] += one
                private[fourth_copy + U(joint[r + U(3)])] += one
                r += U(4)
            while r < U(joint.size):
                table[U(joint[r])] += 1
                r += U(1)
        for copy in range(copies):
            for cell in range(cells):
                table[cell] += private[copy * cells + cell]


@kernel
def wide(
    addresses, widths, sizes, y, n_classes, first, second, starts, pairs, code, counts, out
):  # fmt: skip
    """Count pairs of columns by joint codes of any length.

    addresses  IN   (m,) uint64   of (n,) uint8 | uint16 | uint32 codes of each column
    widths     IN   (m,) int64   bytes of a code
    sizes      IN   (m,) int64
    y          IN   (n,) uint16
    first, second, starts  IN  (n_pairs,) int64
    pairs      IN   which of them
    code       OUT  (block of rows,) uint64   scratch
    counts     OUT  (PRIVATE_CELLS,) int32   scratch
    out        OUT  int64
    """
    one = np.int32(1)
    n = y.size
    for p in pairs:
        cells = sizes[first[p]] * sizes[second[p]] * n_classes
        table = out[starts[p] : starts[p] + cells]
        private = counts[: min(copies_of(cells, n), 1) * cells]
        private[:] = 0
        for begin in range(0, n, code.size):
            joint = code[: min(code.size, n - begin)]
            join(addresses, widths, sizes, y, n_classes, first[p], second[p], 0, begin, joint)
            if private.size:
                for cell in joint:
                    private[cell] += one
            else:
                ahead = joint[AHEAD:]
                for r in range(ahead.size):
                    vector.prefetch(table, ahead[r])
                    table[joint[r]] += 1
                for cell in joint[ahead.size :]:
                    table[cell] += 1
        for cell in range(private.size):
            table[cell] += private[cell]


@kernel
def weighted(
    addresses, widths, sizes, y, n_classes, first, second, starts, weight, codes, out
):  # fmt: skip
    """Add weights, for every cell in row order, four pairs at a time.

    Sums of one cell wait for each other; those of four pairs do not.

    addresses  IN   (m,) uint64   of (n,) uint8 | uint16 | uint32 codes of each column
    widths     IN   (m,) int64   bytes of a code
    sizes      IN   (m,) int64
    y          IN   (n,) uint16
    first, second, starts  IN  (n_pairs,) int64
    weight     IN   (n,) float64
    codes      OUT  (PAIRS_AT_ONCE, block of rows) uint64   scratch
    out        OUT  float64
    """
    for p in range(0, first.size, PAIRS_AT_ONCE):
        together = min(first.size - p, PAIRS_AT_ONCE)
        for begin in range(0, y.size, codes.shape[1]):
            weights = weight[begin : begin + codes.shape[1]]
            for t in range(together):
                q = p + t
                join(
                    *(addresses, widths, sizes, y, n_classes, first[q], second[q], starts[q]),
                    *(begin, codes[t, : weights.size]),
                )
            if together == PAIRS_AT_ONCE:
                for r in range(weights.size):
                    w = weights[r]
                    out[codes[0, r]] += w
                    out[codes[1, r]] += w
                    out[codes[2, r]] += w
                    out[codes[3, r]] += w
            else:
                for t in range(together):
                    for r in range(weights.size):
                        out[codes[t, r]] += weights[r]


@register_jitable
def copies_of(cells, n):
    """Return how many private tables of this many cells pay for n rows."""
    if cells * ROWS_PER_CELL > n:
        return 0
    if cells <= COPIED_CELLS:
        return 4
    return 2 if cells <= 2 * COPIED_CELLS else 1


@register_jitable
def join(addresses, widths, sizes, y, n_classes, i, j, start, begin, code):
    """Write start + (codes of column i, codes of column j, class) for rows from `begin` on."""
    classes = y[begin : begin + code.size]
    for r in range(code.size):
        code[r] = U(start) + U(classes[r])
    step = U(n_classes)
    for column in (j, i):
        address = addresses[column] + U(begin * widths[column])
        if widths[column] == 1:
            x = carray(bits.codes8_at(address), (code.size,))
            for r in range(code.size):
                code[r] += U(x[r]) * step
        elif widths[column] == 2:
            x = carray(bits.codes16_at(address), (code.size,))
            for r in range(code.size):
                code[r] += U(x[r]) * step
        else:
            x = carray(bits.codes32_at(address), (code.size,))
            for r in range(code.size):
                code[r] += U(x[r]) * step
        step *= U(sizes[column])
