"""Class-conditional counts of categorical columns: out[slot + code, class] += 1 or weight.

Each column is counted by the cheapest of four methods. The choice depends on sizes alone, never on
the data:

* `planes`: values and classes as rows of bits, whose meetings are counted many rows at a time,
  instead of counters in memory; indifferent to skew; few values times classes.
* `packed`: several columns in one 16-bit code, so one increment counts them all.
* `private`: one increment per cell, into up to four 32-bit tables, so that equal neighbours do
  not wait for each other's store.
* `in_place`: one increment per cell, straight into `out`: tables that are large compared with the
  number of rows.
"""

from __future__ import annotations

import functools
import itertools
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.counting.bitmaps import widened
from fastbayes.kernels.compiled.simd import bit_planes, bits, vector
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import call, helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U

# Costs in ns per cell, measured on one core of Zen 4 with 64-byte vectors; their ratios decide.
PLANES_BASE, CODE = 0.035, 0.03  # reading codes and splitting their bits; making a joint code
PLANES_VALUE = 0.0015 * 64 / vector.WIDTH
PLANES_CELL = (0.0011 if bit_planes.COUNTS else 0.003) * 64 / vector.WIDTH
CLASS_ROW = 0.04 * 64 / vector.WIDTH  # of each class, shared by all columns
INCREMENT = 0.36
# And in ns per column, or per cell of a table, however many rows there are.
PLANES_COLUMN, PLANES_SUM, PACKED_SUM = 250, 8, 2.4

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

    planes: NDArray[np.int64]
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
    planes = np.zeros(len(sizes), np.bool_)
    groups: list[list[int]] = []
    if bytes_only:
        together = np.maximum(np.log(PACKED_CELLS / n_classes) // np.log(np.maximum(sizes, 2)), 1)
        joint = PACKED_SUM * n_classes * sizes**together / n_rows
        pack_cost = (INCREMENT + joint) / together + CODE
        cost = PLANES_BASE + (sizes - 1) * (PLANES_VALUE + PLANES_CELL * n_classes)
        cost += CLASS_ROW * n_classes / len(sizes)
        cost += (PLANES_COLUMN + PLANES_SUM * cells) / n_rows
        planes = (cost < np.minimum(pack_cost, INCREMENT + CODE)) & vector.AVAILABLE
        groups = _pack(sizes, np.flatnonzero(~planes & (pack_cost < INCREMENT)), n_classes)
    packed = [i for group in groups for i in group]
    each = sizes.tolist()
    # The product of what comes before, of the classes first.
    radices = [
        product
        for group in groups
        for product in itertools.accumulate((each[i] for i in group[:-1]), mul, initial=n_classes)
    ]
    single = ~planes
    single[packed] = False
    return CountPlan(
        readonly(np.flatnonzero(planes)),
        readonly(np.array(packed, np.int64)),
        readonly(np.cumsum([0, *map(len, groups)])),
        readonly(np.array(radices, np.uint16)),
        _by(copies, single & (copies > 0)),
        _by(ahead, single & (copies == 0)),
    )


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

# Rows whose classes are turned into bits once for all columns, and those whose planes stay in the
# first-level cache while values are looked for in them; both are whole groups.
BLOCK, PART = 65_536, 16_384
# Rows of a packed code: 8 KiB.
PACKED_ROWS = 4096

_CODES = ("uint8", "uint16", "uint32")
_Y, _INT64 = reads("uint16"), reads("int64")

_COLUMNS = (_INT64, _INT64, _INT64)  # which of them, sizes, slots
_OUT = writes("int64")

SIGNATURES = {
    "planes": [
        (
            *(reads("uint8", 2), *_COLUMNS, reads("uint8"), "int64", writes("uint8")),
            *(writes("uint64", 2), writes("uint64", 3), writes("int64"), _OUT, _OUT),
        )
    ],
    "packed": [
        (
            *(reads("uint8", 2), _INT64, _INT64, reads("uint16"), _INT64, _INT64),
            *(reads("uint8"), "int64", "int64", writes("uint16"), writes("int32"), _OUT),
        )
    ],
    "private": [
        (reads(code, 2), *_COLUMNS, _Y, *["int64"] * 3, writes("int32"), _OUT) for code in _CODES
    ],
    "in_place": [(reads(code, 2), *_COLUMNS, _Y, "int64", "int64", _OUT) for code in _CODES],
    "weighted": [
        (reads(code, 2), _INT64, _INT64, _Y, reads("float64"), "int64", writes("float64"))
        for code in _CODES
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
        arrays = [readonly(array) for array in (codes, sizes, slots, widened(y), weight)]
        call(weighted, *arrays, n_classes, out.reshape(-1))
        return
    bytes_only = codes.itemsize == y.itemsize == 1
    # Rows to the nearest power of two below: a last, shorter block has its plan ready.
    plan = choose(sizes.tobytes(), n_classes, 1 << len(y).bit_length() >> 1, bytes_only)
    codes, sizes, slots, y = readonly(codes), readonly(sizes), readonly(slots), readonly(y)
    cells = out.reshape(-1)
    if plan.planes.size:
        _add_planes(plan.planes, codes, sizes, slots, y, n_classes, cells)
    if plan.packed.size:
        code, counts = np.empty(PACKED_ROWS, np.uint16), np.empty(4 * PACKED_CELLS, np.int32)
        call(
            packed,
            *(codes, plan.packed, plan.borders, plan.radices, sizes, slots, y),
            *(n_classes, STRETCH, code, counts, cells),
        )
    if plan.private or plan.in_place:
        y = widened(y)
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


def _add_planes(
    columns: NDArray[np.int64],
    codes: NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    slots: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    out: NDArray[np.int64],
) -> None:
    """Prepare the scratch of `planes` and call it."""
    group = bit_planes.GROUP
    rows = min(PART, -(-len(y) // group) * group)
    parts = -(-min(len(y), BLOCK) // rows)
    classes = np.empty((parts, n_classes, rows // 64), np.uint64)
    sums = np.empty((int(sizes[columns].max()) - 1) * n_classes * bits.LANES, np.int64)
    call(
        planes,
        *(codes, columns, sizes, slots, y, n_classes, np.empty(group, np.uint8)),
        *(np.empty((9, rows // 64), np.uint64), classes, sums, np.empty(n_classes, np.int64), out),
    )


@kernel
def planes(
    codes, columns, sizes, slots, y, n_classes, tail, held, classes, sums, n_class, out
):  # fmt: skip
    """Count the bits that are set both where a column has a value and where rows are of a class.

    The last value of a column has what the others leave of each class. Rows that do not exist, in
    the last group, count as code 0 of class 0, and are taken away again.

    codes    IN   (m, n) uint8
    columns  IN   which rows of codes to count
    sizes    IN   (m,) int64
    slots    IN   (m,) int64
    y        IN   (n,) uint8
    tail     OUT  (GROUP,) uint8   scratch
    held     OUT  (9, words of a part) uint64   scratch: planes, and rows that may have a value
    classes  OUT  (parts of a block, n_classes, words of a part) uint64   scratch
    sums     OUT  (LANES * n_classes * (largest size - 1),) int64   scratch
    n_class  OUT  (n_classes,) int64   scratch: rows of each class
    out      OUT  (n_slots * n_classes,) int64
    """
    words = held.shape[1]
    part = words * 64
    block = classes.shape[0] * part
    flat, rows_of = held.reshape(-1), classes.reshape(-1)
    for start in range(0, y.size, block):
        stop = min(start + block, y.size)
        fill(n_class, 0, n_classes, 0)
        n_bits = bits_of(n_classes - 1)
        for first in range(start, stop, part):
            n = turn(y[first : min(first + part, stop)], n_bits, tail, flat, words)
            for c in range(n_classes):
                row = classes[(first - start) // part, c]
                select(held, 0, n_bits, c, n, row)
                total = U(0)
                for w in range(n):
                    total += bits.popcount(row[w])
                n_class[c] += np.int64(total)
        for t in range(columns.size):
            i = columns[t]
            last = sizes[i] - 1
            n_bits = bits_of(last)
            fill(sums, 0, last * n_classes * bits.LANES, 0)
            for first in range(start, stop, part):
                n = turn(codes[i, first : min(first + part, stop)], n_bits, tail, flat, words)
                of_part = (first - start) // part * n_classes
                for v in range(0, last, 4):
                    select(held, 2, n_bits, v >> 2, n, held[8])
                    c = 0
                    while c < n_classes:
                        wide = 4 if n_classes - c >= 4 else 2 if n_classes - c >= 2 else 1
                        add_square(
                            *(flat, words, rows_of, (of_part + c) * words, n, sums),
                            *(v * n_classes + c, n_classes, min(4, last - v), wide),
                        )
                        c += wide
            base, rest = slots[i] * n_classes, (slots[i] + last) * n_classes
            for c in range(n_classes):
                out[rest + c] += n_class[c]
            for cell in range(last * n_classes):
                total = 0
                for lane in range(bits.LANES):
                    total += sums[cell * bits.LANES + lane]
                out[base + cell] += total
                out[rest + cell % n_classes] -= total
            out[base] -= -(stop - start) % bit_planes.GROUP


@helper
def bits_of(number):
    """Return the bits that a number takes."""
    n = 0
    while number >> n:
        n += 1
    return n


@helper
def turn(x, n_bits, tail, out, stride):
    """Write planes of codes of so many bits; return their words. See `bit_planes.split`."""
    whole = x.size // bit_planes.GROUP * bit_planes.GROUP
    fill(tail, 0, tail.size, 0)
    for r in range(x.size - whole):
        tail[r] = x[whole + r]
    for end in range(2):
        z, n, at = (tail, tail.size, whole // 64) if end else (x, whole, 0)
        if end and whole == x.size:
            break
        if n_bits <= 2:
            bit_planes.split(z, n, out, at, stride, 2)
        elif n_bits <= 4:
            bit_planes.split(z, n, out, at, stride, 4)
        else:
            bit_planes.split(z, n, out, at, stride, 8)
    return -(-x.size // bit_planes.GROUP) * bits.LANES


@helper
def select(planes, first, last, number, n, out):
    """Mark the rows whose bits from one plane to another are those of a number; all without any."""
    if first >= last:
        fill(out, 0, n, ~U(0))
    for k in range(first, last):
        plane, other = planes[k], U(number >> (k - first) & 1) - U(1)
        if k == first:
            for w in range(n):
                out[w] = plane[w] ^ other
        else:
            for w in range(n):
                out[w] &= plane[w] ^ other


@helper
def add_square(planes, stride, classes, first, n, sums, cell, step, values, wide):
    """Add the meetings of up to four values with 1, 2 or 4 classes: `bit_planes.add_meetings`."""
    p, high, s, y, f, k = planes, 8 * stride, stride, classes, first, step
    if wide == 4:
        if values == 4:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 4, 4)
        elif values == 3:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 3, 4)
        elif values == 2:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 2, 4)
        else:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 1, 4)
    elif wide == 2:
        if values == 4:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 4, 2)
        elif values == 3:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 3, 2)
        elif values == 2:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 2, 2)
        else:
            bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 1, 2)
    elif values == 4:
        bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 4, 1)
    elif values == 3:
        bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 3, 1)
    elif values == 2:
        bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 2, 1)
    else:
        bit_planes.add_meetings(p, high, s, y, f, n, sums, cell, k, 1, 1)


@kernel
def packed(
    codes, columns, borders, radices, sizes, slots, y, n_classes, stretch, code, counts, out
):
    """Count groups of columns by one increment a row, then add each joint table's margins.

    codes, sizes, slots, y, out  as for `planes`
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

    codes, columns, sizes, slots, out  as for `planes`, codes of any width
    y        IN   (n,) uint16
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
    y       IN   (n,) uint16
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
