"""Class-conditional counts of categorical columns: out[slot + code, class] += 1 or weight.

Each column is counted by the cheapest of four methods. The choice depends on sizes alone, never on
the data:

* `minima`: byte vectors instead of counters in memory, indifferent to skew; few values times
  classes.
* `packed`: several columns in one 16-bit code, so one increment counts them all.
* `private`: one increment per cell, into up to four 32-bit tables, so that equal neighbours do
  not wait for each other's store.
* `in_place`: one increment per cell, straight into `out`: tables that are large compared with the
  number of rows.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import call, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U

# Costs in ns per cell, measured on one core of Zen 5 with 64-byte vectors; their ratios decide.
MINIMA_BASE, MINIMA_STEP = 0.012, 0.0021 * 64 / vector.WIDTH  # and per value and class
INCREMENT, CODE = 0.21, 0.03  # an increment; making its code, per column

# Cells of a packed table: four 32-bit copies are 32 KiB and leave the first-level cache room.
PACKED_CELLS = 2048
# Cells of all private copies of one table: 64 KiB, beyond which copies cost more than they save.
PRIVATE_CELLS = 16_384
# Clearing a private cell and adding it to `out` costs about as much as an increment: worth it
# only if the rows outnumber the cells by this factor.
ROWS_PER_CELL = 8
# Cells of a table that no cache holds: reading ahead gains a quarter there and loses below.
FAR_CELLS = 1 << 22
AHEAD = 32  # rows


class CountPlan(NamedTuple):
    """Which columns are counted how."""

    minima: NDArray[np.int64]
    packed: NDArray[np.int64]  # columns of group g: packed[borders[g] : borders[g + 1]]
    borders: NDArray[np.int64]
    radices: NDArray[np.uint16]  # what a code of the column is multiplied with
    private: list[tuple[int, NDArray[np.int64]]]  # by number of copies
    in_place: list[tuple[int, NDArray[np.int64]]]  # by rows read ahead


@functools.lru_cache(maxsize=64)
def choose(sizes_bytes: bytes, n_classes: int, n_rows: int, bytes_only: bool) -> CountPlan:
    """Choose the cheapest method for every column.

    sizes_bytes  IN   (m,) int64 as bytes, so that the choice is kept
    n_rows       IN   about how many
    bytes_only   IN   codes and classes are uint8
    """
    sizes = np.frombuffer(sizes_bytes, np.int64)
    cells = sizes * n_classes
    most = n_rows // ROWS_PER_CELL
    copies = np.select(
        [4 * cells <= min(most, PRIVATE_CELLS), 2 * cells <= min(most, PRIVATE_CELLS)],
        [4, 2],
        cells <= most,
    )
    ahead = np.where((cells >= FAR_CELLS) & vector.AVAILABLE, AHEAD, 0)
    minima = np.zeros(len(sizes), np.bool_)
    groups: list[list[int]] = []
    if bytes_only:
        together = np.maximum(np.log(PACKED_CELLS / n_classes) // np.log(np.maximum(sizes, 2)), 1)
        cost = MINIMA_BASE + MINIMA_STEP * cells
        minima = (cost < INCREMENT / together + CODE) & (cells <= 256) & vector.AVAILABLE
        groups = _pack(sizes, np.flatnonzero(~minima), n_classes)
    packed = [i for group in groups for i in group]
    radices = [n_classes * np.prod(sizes[g[:i]], dtype=int) for g in groups for i in range(len(g))]
    single = ~minima
    single[packed] = False
    return CountPlan(
        readonly(_widest_first(sizes, np.flatnonzero(minima))),
        readonly(np.array(packed, np.int64)),
        readonly(np.cumsum([0, *map(len, groups)])),
        readonly(np.array(radices, np.uint16)),
        _by(copies, single & (copies > 0)),
        _by(ahead, single & (copies == 0)),
    )


def _widest_first(sizes: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move one column of the largest size to the front.

    The others stay in order, so that reading ahead runs on from one column into the next.
    """
    if not len(columns):
        return columns
    widest = columns[np.argmax(sizes[columns])]
    return np.concatenate([[widest], columns[columns != widest]])


def _pack(sizes: NDArray[np.int64], columns: NDArray[np.int64], n_classes: int) -> list[list[int]]:
    """Return groups of two or more, of like sizes, with joint tables of at most PACKED_CELLS."""
    groups: list[list[int]] = []
    cells = PACKED_CELLS
    for i in columns[np.argsort(-sizes[columns], kind="stable")]:
        cells *= sizes[i]
        if cells <= PACKED_CELLS and groups:
            groups[-1].append(int(i))
        else:
            groups.append([int(i)])
            cells = n_classes * sizes[i]
    return [group for group in groups if len(group) > 1]


def _by(values: NDArray[np.int64], among: NDArray[np.bool_]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return the columns of each value, among some."""
    return [
        (int(value), readonly(np.flatnonzero(among & (values == value))))
        for value in np.unique(values[among])
    ]


# Private 32-bit counters are added to `out` at least this often: they cannot overflow.
STRETCH = 1 << 30

# Rows of a block whose shifted classes stay in the second-level cache while columns pass by;
# shorter blocks break the stream of a column too often (0.038 ns per cell instead of 0.030).
BLOCK = 131_072
# Vectors after which a byte lane may be full; the last one is for the rows that fill no vector.
FULL = 254
# Thresholds taken in one pass, most first: what 32 registers hold.
PASSES = (12, 8, 4)
# Rows of a packed code: 8 KiB.
PACKED_ROWS = 4096

_CODES = ("uint8", "uint16", "uint32")
_CLASSES = ("uint8", "uint16")
_INT64 = reads("int64")

_COLUMNS = (_INT64, _INT64, _INT64)  # which of them, sizes, slots
_OUT = writes("int64")

SIGNATURES = {
    "minima": [
        (
            *(reads("uint8", 2), *_COLUMNS, reads("uint8"), "int64", writes("uint8")),
            *(writes("uint8"), writes("uint8"), writes("uint8", 2), _OUT, _OUT),
        )
    ],
    "packed": [
        (
            *(reads("uint8", 2), _INT64, _INT64, reads("uint16"), _INT64, _INT64),
            *(reads("uint8"), "int64", "int64", writes("uint16"), writes("int32"), _OUT),
        )
    ],
    "private": [
        (reads(code, 2), *_COLUMNS, reads(y), *["int64"] * 3, writes("int32"), _OUT)
        for code in _CODES
        for y in _CLASSES
    ],
    "in_place": [
        (reads(code, 2), *_COLUMNS, reads(y), "int64", "int64", _OUT)
        for code in _CODES
        for y in _CLASSES
    ],
    "weighted": [
        (reads(code, 2), _INT64, _INT64, reads(y), reads("float64"), "int64", writes("float64"))
        for code in _CODES
        for y in _CLASSES
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
    if not codes.size:
        return
    if out.dtype == np.float64:
        weight = np.ones(len(y)) if weight is None else weight
        arrays = [readonly(array) for array in (codes, sizes, slots, y, weight)]
        call(weighted, *arrays, n_classes, out.reshape(-1))
        return
    bytes_only = codes.itemsize == y.itemsize == 1
    # Rows to the nearest power of two below: a last, shorter block has its plan ready.
    plan = choose(sizes.tobytes(), n_classes, 1 << len(y).bit_length() >> 1, bytes_only)
    codes, sizes, slots, y = readonly(codes), readonly(sizes), readonly(slots), readonly(y)
    cells = out.reshape(-1)
    if plan.minima.size:
        _add_minima(plan.minima, codes, sizes, slots, y, n_classes, cells)
    if plan.packed.size:
        code, counts = np.empty(PACKED_ROWS, np.uint16), np.empty(4 * PACKED_CELLS, np.int32)
        call(
            packed,
            *(codes, plan.packed, plan.borders, plan.radices, sizes, slots, y),
            *(n_classes, STRETCH, code, counts, cells),
        )
    for copies, columns in plan.private:
        counts = np.empty(copies * int(sizes[columns].max()) * n_classes, np.int32)
        call(private, codes, columns, sizes, slots, y, n_classes, copies, STRETCH, counts, cells)
    for ahead, columns in plan.in_place:
        call(in_place, codes, columns, sizes, slots, y, n_classes, ahead, cells)


def add_class_counts(
    y: NDArray[np.unsignedinteger], weight: NDArray[np.float64] | None, out: NDArray[Any]
) -> None:
    """Add one block of rows to the class counts: out[y[r]] += 1 or weight[r], in row order.

    y       IN   (n,) uint8 | uint16   class < n_classes
    weight  IN   (n,) float64 or None
    out     OUT  (n_classes,) int64, float64 with weights
    """
    # The classes as a column, counted within one class.
    one = np.zeros(len(y), np.uint8)
    add_counts(y[None], np.array([len(out)]), np.zeros(1, np.int64), one, weight, out[:, None])


def _add_minima(
    columns: NDArray[np.int64],
    codes: NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    slots: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    out: NDArray[np.int64],
) -> None:
    """Prepare the scratch of `minima` and call it."""
    n, width = len(y), vector.WIDTH
    shift = np.empty(min(n, BLOCK) + width, np.uint8)
    limits = np.zeros(256 + PASSES[0], np.uint8)
    sums = np.empty((len(limits), width), np.uint8)
    call(
        minima,
        *(codes, columns, sizes, slots, y, n_classes, np.empty(width, np.uint8)),
        *(shift, limits, sums, np.empty(n_classes + 1, np.int64), out),
    )


@kernel
def minima(codes, columns, sizes, slots, y, n_classes, tail, shift, limits, sums, n_from, out):
    """Count by limits on z = code + stride * class: see `vector.sum_minima`.

    count(code = v, class = c) = count(z >= stride * c + v) - count(z >= stride * c + v + 1) for
    codes below stride; at the ends of a class these are counts of classes, n_from, which the
    first column yields: its size is the stride, so its limits have no gap.

    codes    IN   (m, n) uint8
    columns  IN   which rows of codes to count, one of the largest size first
    sizes    IN   (m,) int64   size * n_classes <= 256
    slots    IN   (m,) int64
    y        IN   (n,) uint8
    tail     OUT  (WIDTH,) uint8   scratch
    shift    OUT  (BLOCK + WIDTH,) uint8   scratch
    limits   OUT  (256 + PASSES[0],) uint8   scratch
    sums     OUT  (256 + PASSES[0], WIDTH) uint8   scratch
    n_from   OUT  (n_classes + 1,) int64   scratch: rows of class c or a later one
    out      OUT  (n_slots * n_classes,) int64
    """
    n = y.size
    stride = sizes[columns[0]]
    step = np.uint8(stride)
    for start in range(0, n, BLOCK):
        rows = min(BLOCK, n - start)
        whole = rows // vector.WIDTH * vector.WIDTH
        classes = y[start : start + rows]
        for r in range(rows):
            shift[r] = np.uint8(classes[r] * step)
        # Rows that do not exist have z = 0, which no limit counts.
        fill(shift, rows, whole + vector.WIDTH, 0)
        fill(n_from, 0, n_from.size, 0)
        n_from[0] = rows
        for t in range(columns.size):
            i = columns[t]
            size = sizes[i]
            cells = size * n_classes
            for c in range(n_classes):
                for v in range(size):
                    limits[c * size + v] = c * stride + v
            x = codes[i, start : start + rows]
            # The rows that fill no vector, then zeros.
            fill(tail, 0, tail.size, 0)
            for r in range(rows - whole):
                tail[r] = x[whole + r]
            base = slots[i] * n_classes
            first = 0
            while first < rows:
                sums[: cells + PASSES[0]] = 0
                last = min(first + FULL * vector.WIDTH, whole)
                # The rows that fill no vector come with the last ones that do.
                for part in range(1 if last < whole or whole == rows else 2):
                    if part == 0:
                        z, above, length = x[first:last], shift[first:], last - first
                    else:
                        z, above, length = tail, shift[whole:], vector.WIDTH
                    row = 1
                    while row < cells:
                        left = cells - row
                        if left > PASSES[1]:
                            vector.sum_minima(z, above, length, limits, row, sums, PASSES[0])
                            row += PASSES[0]
                        elif left > PASSES[2]:
                            vector.sum_minima(z, above, length, limits, row, sums, PASSES[1])
                            row += PASSES[1]
                        else:
                            vector.sum_minima(z, above, length, limits, row, sums, PASSES[2])
                            row += PASSES[2]
                first = last if last < whole else rows
                for c in range(n_classes):
                    if t == 0 and c > 0:
                        n_from[c] += vector.sum_steps(sums, c * size)
                    for v in range(1, size):
                        n_above = vector.sum_steps(sums, c * size + v)
                        out[base + (v - 1) * n_classes + c] -= n_above
                        out[base + v * n_classes + c] += n_above
            for c in range(n_classes):
                out[base + c] += n_from[c]
                out[base + (size - 1) * n_classes + c] -= n_from[c + 1]


@kernel
def packed(
    codes, columns, borders, radices, sizes, slots, y, n_classes, stretch, code, counts, out
):
    """Count groups of columns by one increment a row, then add each joint table's margins.

    codes, sizes, slots, y, out  as for `minima`
    columns  IN   the columns of group g: columns[borders[g] : borders[g + 1]], two or more
    borders  IN   (n_groups + 1,) int64
    radices  IN   (columns,) uint16   n_classes times the sizes before it in its group
    code     OUT  (block of rows,) uint16   scratch
    counts   OUT  (4 * PACKED_CELLS,) int32   scratch
    """
    one = np.int32(1)
    n = y.size
    for g in range(borders.size - 1):
        begin, end = borders[g], borders[g + 1]
        cells = np.int64(radices[end - 1]) * sizes[columns[end - 1]]
        h = counts[: 4 * cells]
        second, third, fourth = U(cells), U(2 * cells), U(3 * cells)
        for start in range(0, n, stretch):
            stop = min(start + stretch, n)
            fill(h, 0, h.size, 0)
            for first in range(start, stop, code.size):
                last = min(first + code.size, stop)
                joint = code[: last - first]
                classes = y[first:last]
                a, b = codes[columns[begin], first:last], codes[columns[begin + 1], first:last]
                p, q = radices[begin], radices[begin + 1]
                for r in range(joint.size):
                    joint[r] = np.uint16(
                        np.uint16(classes[r])
                        + np.uint16(np.uint16(a[r]) * p)
                        + np.uint16(np.uint16(b[r]) * q)
                    )
                for t in range(begin + 2, end):
                    a, p = codes[columns[t], first:last], radices[t]
                    for r in range(joint.size):
                        joint[r] = np.uint16(joint[r] + np.uint16(np.uint16(a[r]) * p))
                n4 = U(joint.size // 4 * 4)
                for r in range(U(0), n4, U(4)):
                    h[U(joint[r])] += one
                    h[second + U(joint[r + U(1)])] += one
                    h[third + U(joint[r + U(2)])] += one
                    h[fourth + U(joint[r + U(3)])] += one
                for r in range(n4, U(joint.size)):
                    h[U(joint[r])] += one
            table = h[:cells]
            for cell in range(cells):
                table[cell] += h[cells + cell] + h[2 * cells + cell] + h[3 * cells + cell]
            for t in range(begin, end):
                i = columns[t]
                inner = np.int64(radices[t]) // n_classes
                cell = 0
                while cell < cells:
                    for v in range(sizes[i]):
                        slot = (slots[i] + v) * n_classes
                        for _ in range(inner):
                            for c in range(n_classes):
                                out[slot + c] += table[cell]
                                cell += 1


@kernel
def private(codes, columns, sizes, slots, y, n_classes, copies, stretch, counts, out):
    """Count each column into private tables, then add them to out.

    codes, columns, sizes, slots, y, out  as for `minima`, of any width
    copies   IN   1, 2 or 4 tables, taken in turn
    counts   OUT  (copies * largest table,) int32   scratch
    """
    one = np.int32(1)
    k = U(n_classes)
    for t in range(columns.size):
        i = columns[t]
        cells = sizes[i] * n_classes
        h = counts[: copies * cells]
        b = U(cells) if copies > 1 else U(0)
        c = U(2 * cells) if copies == 4 else U(0)
        d = b + c
        for start in range(0, y.size, stretch):
            x, classes = codes[i, start : start + stretch], y[start : start + stretch]
            fill(h, 0, h.size, 0)
            n4 = U(x.size // 4 * 4)
            for r in range(U(0), n4, U(4)):
                h[U(x[r]) * k + U(classes[r])] += one
                h[b + U(x[r + U(1)]) * k + U(classes[r + U(1)])] += one
                h[c + U(x[r + U(2)]) * k + U(classes[r + U(2)])] += one
                h[d + U(x[r + U(3)]) * k + U(classes[r + U(3)])] += one
            for r in range(n4, U(x.size)):
                h[U(x[r]) * k + U(classes[r])] += one
            cell = slots[i] * n_classes
            for copy in range(copies):
                for offset in range(cells):
                    out[cell + offset] += h[copy * cells + offset]


@kernel
def in_place(codes, columns, sizes, slots, y, n_classes, ahead, out):
    """Count each column straight into out, reading `ahead` rows ahead; else as `private`."""
    k = U(n_classes)
    for t in range(columns.size):
        i = columns[t]
        x = codes[i]
        cell = slots[i] * n_classes
        h = out[cell : cell + sizes[i] * n_classes]
        n, d = U(y.size), U(ahead)
        first = U(max(y.size - ahead, 0) if ahead else 0)
        for r in range(first):
            vector.prefetch(h, U(x[r + d]) * k + U(y[r + d]))
            h[U(x[r]) * k + U(y[r])] += 1
        for r in range(first, n):
            h[U(x[r]) * k + U(y[r])] += 1


@kernel
def weighted(codes, sizes, slots, y, weight, n_classes, out):
    """Add weights, for every cell in row order, four columns at a time.

    Sums of one cell wait for each other; those of four columns do not.

    codes   IN   (m, n) uint8 | uint16 | uint32
    sizes   IN   (m,) int64
    slots   IN   (m,) int64
    y       IN   (n,) uint8 | uint16
    weight  IN   (n,) float64
    out     OUT  (n_slots * n_classes,) float64
    """
    k = U(n_classes)
    m = codes.shape[0]
    for i in range(0, m - 3, 4):
        a, b, c, d = codes[i], codes[i + 1], codes[i + 2], codes[i + 3]
        p, q = U(slots[i] * n_classes), U(slots[i + 1] * n_classes)
        s, t = U(slots[i + 2] * n_classes), U(slots[i + 3] * n_classes)
        for r in range(y.size):
            w, cls = weight[r], U(y[r])
            out[p + U(a[r]) * k + cls] += w
            out[q + U(b[r]) * k + cls] += w
            out[s + U(c[r]) * k + cls] += w
            out[t + U(d[r]) * k + cls] += w
    for i in range(m // 4 * 4, m):
        a, p = codes[i], U(slots[i] * n_classes)
        for r in range(y.size):
            out[p + U(a[r]) * k + U(y[r])] += weight[r]
