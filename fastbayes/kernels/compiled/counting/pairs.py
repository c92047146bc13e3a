"""Class-conditional counts of pairs of columns: out[start + (a, b, class)] += 1 or weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.counting.bitmaps import add_bitmap_counts, widened
from fastbayes.kernels.compiled.plans import pair_plan
from fastbayes.kernels.compiled.plans.pair_plan import PairMethods
from fastbayes.kernels.compiled.simd import bits, vector
from fastbayes.kernels.compiled.simd.instructions import carray
from fastbayes.kernels.compiled.simd.memory import addresses, borrow, fill
from fastbayes.kernels.dispatch import (
    call,
    helper,
    in_python,
    kernel,
    numpy_twin,
    readonly,
    reads,
    unrolled,
    writes,
)
from fastbayes.kernels.shared.arrays import U

# Rows of one call of the kernels: their scratch counts with 32 bits, their rows with 16.
BLOCK = 1 << 16
# Rows of joint codes: at most 8 KiB each of up to four pairs.
CODE_ROWS, PAIRS_AT_ONCE = 1024, 4
# Cells of a table of which four copies pay; two pay for twice as many. Equal neighbours do not
# wait for each other's store then.
COPIED_CELLS = 2048
# Cells of a private table: from this many on rows are fewer, and cells are not met twice.
PRIVATE_CELLS = BLOCK

_INT64 = reads("int64")
_COLUMNS = (reads("uint64"), _INT64, _INT64, reads("uint16"), "int64")
_PAIRS = (_INT64, _INT64, _INT64, _INT64)
_CODES = ("uint16", "uint64")

SIGNATURES = {
    "count": [
        (*_COLUMNS, *_PAIRS, writes(code), writes("int32"), writes("int64")) for code in _CODES
    ],
    "weigh": [
        (*_COLUMNS, *_PAIRS, reads("float64"), writes(code, 2), writes("float64"))
        for code in _CODES
    ],
}

# Plans of late, by what is short of their pairs of columns.
_plans: dict[tuple[Any, ...], tuple[bytes, bytes, PairMethods]] = {}
MOST_PLANS = 16


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
    """Add one block of rows to class-conditional counts of pairs of columns.

    For every pair q of columns i, j = first[q], second[q] and every row r, in row order for every
    cell: out[starts[q] + (columns[i][r] * sizes[j] + columns[j][r]) * n_classes + y[r]] += 1,
    or += weight[r].

    columns  IN   (n,) uint8 | uint16 | uint32 each   columns[i][r] < sizes[i]; of columns in no
                  pair only the place is taken. One (m, n) matrix of them is faster than a list
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
        arguments = columns, sizes, y, weight, n_classes, first, second, starts, out
        numpy_twin("counting.pairs").add_pair_counts(*arguments)
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
    weighing = out.dtype == np.float64
    plan = _plan(sizes, first, second, n_classes, len(y), y.itemsize == 1, weighing)
    columns = _as_bytes(columns, plan)
    pairs = first, second, starts
    if plan.bitmaps is not None:
        add_bitmap_counts(plan.bitmaps, columns, sizes, y, n_classes, *pairs, out)
    if not (plan.direct.size or plan.wide.size):
        return
    widths = readonly(np.array([column.itemsize for column in columns]))
    read = addresses(columns, plan.columns), widths, sizes, widened(y), n_classes
    for which, code in ((plan.direct, np.uint16), (plan.wide, np.uint64)):
        if not which.size:
            continue
        codes = borrow(f"codes of {code.__name__}", (PAIRS_AT_ONCE, CODE_ROWS), code)
        if weighing:
            weight = np.ones(len(y)) if weight is None else weight
            call(weigh, *read, *pairs, which, readonly(weight), codes, out)
        else:
            counts = borrow("private_counts", (PRIVATE_CELLS,), np.int32)
            call(count, *read, *pairs, which, codes.reshape(-1), counts, out)


def _as_bytes(
    columns: Sequence[NDArray[np.unsignedinteger]] | NDArray[np.unsignedinteger], plan: PairMethods
) -> Sequence[NDArray[np.unsignedinteger]] | NDArray[np.unsignedinteger]:
    """Return columns as kernels read them: contiguous, one byte a code where that can hold it."""
    if isinstance(columns, np.ndarray) and columns.itemsize == 1 and columns.flags.c_contiguous:
        return columns
    result = list(columns)
    for i, few in zip(plan.columns, plan.few, strict=True):
        column = columns[i]
        if few and column.itemsize > 1:
            in_python()
            result[i] = column.astype(np.uint8)
        elif not (column.flags.c_contiguous and column.flags.aligned):
            in_python()
            result[i] = column.copy()
    return result


def _plan(
    sizes: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    n_classes: int,
    n_rows: int,
    bytes_only: bool,
    weighing: bool,
) -> PairMethods:
    """Return the plan for a list of pairs, made anew only if it is another list."""
    # Rows to the nearest power of two below: a last, shorter block has its plan ready.
    about = 1 << n_rows.bit_length() >> 1
    key = sizes.tobytes(), len(first), n_classes, about, bytes_only, weighing
    found = _plans.get(key)
    pairs = first.tobytes(), second.tobytes()
    if found and found[:2] == pairs:
        return found[2]
    plan = pair_plan.choose(sizes, first, second, n_classes, about, bytes_only, weighing)
    if len(_plans) >= MOST_PLANS:
        _plans.clear()
    _plans[key] = (*pairs, plan)
    return plan


@kernel
def count(
    addresses, widths, sizes, y, n_classes, first, second, starts, pairs, code, counts, out
):  # fmt: skip
    """Count pairs of columns by one joint code and one increment a row.

    addresses  IN   (m,) uint64   of (n,) uint8 | uint16 | uint32 codes of each column
    widths     IN   (m,) int64   bytes of a code
    sizes      IN   (m,) int64
    y          IN   (n,) uint16
    first, second, starts  IN  (n_pairs,) int64
    pairs      IN   which of them
    code       OUT  (block of rows,) uint16 | uint64   scratch; can hold the cells of a pair
    counts     OUT  (PRIVATE_CELLS,) int32   scratch
    out        OUT  int64
    """
    one = np.int32(1)
    n = y.size
    for p in pairs:
        cells = sizes[first[p]] * sizes[second[p]] * n_classes
        table = out[starts[p] : starts[p] + cells]
        copies = copies_of(cells, n)
        private = counts[: copies * cells]
        fill(private, 0, private.size, 0)
        b = U(cells) if copies > 1 else U(0)
        c = U(2 * cells) if copies == 4 else U(0)
        d = b + c
        for begin in range(0, n, code.size):
            joint = code[: min(code.size, n - begin)]
            join(addresses, widths, sizes, y, n_classes, first[p], second[p], begin, joint)
            whole = U(joint.size // 4 * 4 if copies else 0)
            for r in range(U(0), whole, U(4)):
                private[U(joint[r])] += one
                private[b + U(joint[r + U(1)])] += one
                private[c + U(joint[r + U(2)])] += one
                private[d + U(joint[r + U(3)])] += one
            for r in range(whole, U(joint.size)):
                table[U(joint[r])] += 1
        for copy in range(copies):
            for cell in range(cells):
                table[cell] += private[copy * cells + cell]


@kernel
def weigh(
    addresses, widths, sizes, y, n_classes, first, second, starts, pairs, weight, codes, out
):  # fmt: skip
    """Add weights, for every cell in row order, four pairs at a time.

    Sums of one cell wait for each other; those of four pairs do not.

    weight  IN   (n,) float64
    codes   OUT  (PAIRS_AT_ONCE, block of rows) uint16 | uint64   scratch, as for `count`
    out     OUT  float64
    The others as for `count`.
    """
    for t in range(0, pairs.size, PAIRS_AT_ONCE):
        four = pairs[t : t + PAIRS_AT_ONCE]
        for begin in range(0, y.size, codes.shape[1]):
            weights = weight[begin : begin + codes.shape[1]]
            for s in range(four.size):
                i, j = first[four[s]], second[four[s]]
                join(
                    *(addresses, widths, sizes, y, n_classes, i, j, begin),
                    codes[s, : weights.size],
                )
            if four.size == PAIRS_AT_ONCE:
                a, b = out[starts[four[0]] :], out[starts[four[1]] :]
                c, d = out[starts[four[2]] :], out[starts[four[3]] :]
                for r in range(weights.size):
                    w = weights[r]
                    a[U(codes[0, r])] += w
                    b[U(codes[1, r])] += w
                    c[U(codes[2, r])] += w
                    d[U(codes[3, r])] += w
            else:
                for s in range(four.size):
                    a = out[starts[four[s]] :]
                    for r in range(weights.size):
                        a[U(codes[s, r])] += weights[r]


@helper
def copies_of(cells, n):
    """Return how many private tables of this many cells pay for n rows."""
    if 4 * cells <= min(n, 4 * COPIED_CELLS):
        return 4
    if 2 * cells <= min(n, 4 * COPIED_CELLS):
        return 2
    return 1 if cells <= n else 0


@helper
@unrolled
def join(addresses, widths, sizes, y, n_classes, i, j, begin, code):
    """Write joint codes of column i, column j and class for the rows from `begin` on."""
    number = code.dtype.type  # products of wider integers take several times as long
    classes = y[begin : begin + code.size]
    for r in range(code.size):
        code[r] = classes[r]
    step = number(n_classes)
    for column in (j, i):
        address = addresses[column] + U(begin * widths[column])
        if widths[column] == 1:
            x8 = carray(bits.codes8_at(address), code.size)
            for r in range(code.size):
                code[r] += number(number(x8[r]) * step)
        elif widths[column] == 2:
            x16 = carray(bits.codes16_at(address), code.size)
            for r in range(code.size):
                code[r] += number(number(x16[r]) * step)
        else:
            x32 = carray(bits.codes32_at(address), code.size)
            for r in range(code.size):
                code[r] += number(number(x32[r]) * step)
        step = number(step * number(sizes[column]))
