"""Scatter matrices of numeric columns per group: panels of sorted rows, tiles of products."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import address, instruction, number_at
from fastbayes.kernels.compiled.simd.memory import addresses, fill
from fastbayes.kernels.dispatch import (
    call,
    helper,
    in_one_piece,
    in_python,
    kernel,
    readonly,
    reads,
    scalar,
    writes,
)
from fastbayes.kernels.shared.arrays import Floats, Ints, U

# Columns of a block, which is as many as there are numbers in a vector, and blocks along one side
# of a tile of products: their sums fill most registers, and wait for no addition.
WIDTH = vector.WIDTH // 8
ACROSS = 3 if WIDTH == 8 else 2

_LANES = ir.VectorType(to.DOUBLE, WIDTH)


@instruction(
    lambda places, i, group, slot, shift, roots, first, n, panel, weighted: types.void(
        places, types.int64, group, slot, shift, roots, *[types.int64] * 2, panel, weighted
    ),
    literal=True,
)
def put_rows(block, places, i, group, slot, shift, roots, first, n, panel, weighted):
    """Write rows of WIDTH columns: panel[i / WIDTH, slot[r]] = (x[r] - shift[group[first + r]]) √w.

    A square of numbers at a time is turned on its diagonal, so that rows are vectors.

    places    IN   (>= i + WIDTH,) uint64   addresses of the columns' first rows
    i         IN   the first column
    group     IN   (>= first + n,) uint32
    slot      IN   (n,) int32
    shift     IN   (n_groups, columns) float64
    roots     IN   (slots,) float64
    n         IN   rows, a multiple of WIDTH
    panel     OUT  (blocks, slots, WIDTH) float64
    weighted  IN   literal: 0 where all roots are 1
    """
    columns = [
        block.inttoptr(
            block.load(block.gep(places.data, [block.add(i, to.I64(lane))])),
            to.DOUBLE.as_pointer(),
        )
        for lane in range(WIDTH)
    ]
    stride = cgutils.unpack_tuple(block, shift.shape)[1]
    slots = cgutils.unpack_tuple(block, panel.shape)[1]
    out = block.gep(panel.data, [block.mul(i, slots)])
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(WIDTH)) as (r, _):
        square = [to.load_at(block, column, r, _LANES) for column in columns]
        for lane, row in enumerate(turned(block, square)):
            at = block.add(r, to.I64(lane))
            g = block.zext(block.load(block.gep(group.data, [block.add(first, at)])), to.I64)
            centre = to.load_at(block, shift.data, block.add(block.mul(g, stride), i), _LANES)
            row = block.fsub(row, centre)
            place = block.sext(block.load(block.gep(slot.data, [at])), to.I64)
            if weighted:
                root = block.load(block.gep(roots.data, [place]))
                row = block.fmul(row, to.splat(block, root, _LANES))
            to.store_at(block, row, out, block.mul(place, to.I64(WIDTH)), align=8 * WIDTH)


def turned(block: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of a square of numbers, of which these vectors are the rows."""
    step, n = 1, len(rows)
    while step < n:
        low = [lane if not lane & step else n + lane - step for lane in range(n)]
        high = [lane + step if not lane & step else n + lane for lane in range(n)]
        for k in range(n):
            if not k & step:
                a, b = rows[k], rows[k + step]
                rows[k], rows[k + step] = to.pick(block, a, b, low), to.pick(block, a, b, high)
        step *= 2
    return rows


@instruction(
    lambda panel, a, b, roots, first, n, sums, total, across, last: types.void(
        panel, *[types.int64] * 2, roots, *[types.int64] * 2, sums, total, across, last
    ),
    literal=True,
)
def add_products(block, panel, a, b, roots, first, n, sums, total, across, last):
    """Add sums[a + s, b + t] += sum over n rows of the columns a + s and b + t, of blocks a and b.

    a, b    IN   blocks of columns; b is the first of so many
    roots   IN   (slots,) float64
    first   IN   the first row
    n       IN   rows
    across  IN   literal: blocks b ..., up to ACROSS
    last    IN   literal: whether total[b + t] += sum over the rows of column b + t times the root
    panel   IN   (blocks, slots, WIDTH) float64
    sums    OUT  (p, columns) float64   the rows that there are
    total   OUT  (columns,) float64
    """
    slots = cgutils.unpack_tuple(block, panel.shape)[1]
    p, stride = cgutils.unpack_tuple(block, sums.shape)
    width = to.I64(WIDTH)

    def start(which: Any) -> Any:
        row = block.add(block.mul(which, slots), first)
        return block.gep(panel.data, [block.mul(row, width)])

    left = start(a)
    right = [start(block.add(b, to.I64(t))) for t in range(across)]
    height = WIDTH + bool(last)
    totals = to.variables(block, _LANES, height * across)
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(1)) as (k, _):
        at = block.mul(k, width)
        vectors = [to.load_at(block, base, at, _LANES, align=8 * WIDTH) for base in right]
        for s in range(height):
            place = block.gep(left, [block.add(at, to.I64(s))])
            if s == WIDTH:
                place = block.gep(roots.data, [block.add(first, k)])
            one = to.splat(block, block.load(place, align=8), _LANES)
            for total_of, value in zip(totals[s * across :], vectors, strict=False):
                block.store(to.fma(block, one, value, block.load(total_of)), total_of)

    def add_to(out: Any, place: Any, s: int) -> None:
        for t in range(across):
            here = block.add(place, block.mul(block.add(b, to.I64(t)), width))
            found = block.load(totals[s * across + t])
            to.store_at(block, block.fadd(to.load_at(block, out, here, _LANES), found), out, here)

    for s in range(WIDTH):
        row = block.add(block.mul(a, width), to.I64(s))
        there = block.icmp_signed("<", row, p)
        with block.if_then(there) if last else nullcontext():
            add_to(sums.data, block.mul(row, stride), s)
    if last:
        add_to(total.data, to.I64(0), WIDTH)


# Rows of which a tile of products is computed at a time: they stay in the first-level cache.
SEGMENT = 128
# A panel holds this many values, to stay in the second-level cache with what it is made of, but
# no fewer than so many rows, and so many for each group: below, the sums of a tile cost more than
# its products.
PANEL, PANEL_ROWS, GROUP_ROWS = 1 << 16, 1024, 64

# What is made of a block: products as they are; moments; moments that are added to those of other
# rows; or this where no value is missing, and nothing where one is.
PRODUCTS, MOMENTS, ADDED, ADDED_IF_KNOWN = range(4)
# Rows of a block that are looked at for missing values before all are taken for known.
FIRST_ROWS = 128

_NOWHERE = readonly(np.empty(0, np.int64))
# Where these are among the marks and the parts of `add_block`.
SIZE, START, WANTED, FAR, SEEN = range(5)
TOTAL, MEAN, REST = range(3)

_X, _OUT, GROUP = reads("float64"), writes("float64"), reads("uint32")
_TABLE, _TABLES = writes("float64", 2), writes("float64", 3)
SCRATCH = (
    *(writes("int64", 2), writes("int32"), writes("uint64"), _OUT, _OUT, _TABLE),
    *(_TABLES, _OUT, _OUT, _TABLES, _TABLES),
)
HELD = _OUT, _TABLE, _TABLE, _TABLES
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "add_block": [
        (reads("uint64"), GROUP, weight, reads("int64"), "int64", *SCRATCH, *HELD)
        for weight in ("none", _X)
    ],
    "put_known": [(_X, GROUP, _X, _OUT, _OUT)],
    "mirror": [(_TABLES,)],
}


def block_scatter(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    n_groups: int,
    weight: Floats | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return count, mean, its rest and scatter matrix of each group of rows; see the numpy twin."""
    _, count, parts, scatter = _block(MOMENTS, columns, group, n_groups, weight)
    return count, parts[MEAN], parts[REST], scatter


def add_scatter(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    here: Ints,
    weight: Floats | None,
    count: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
    *,
    missing: bool,
) -> bool:
    """Add the moments of rows to those of the rows before; see the numpy twin."""
    what = ADDED if missing else ADDED_IF_KNOWN
    held = count, mean, rest, scatter
    return _block(what, columns, group, len(here), weight, readonly(here), held)[0]


def block_products(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    n_groups: int,
    weight: Floats | None = None,
) -> Floats:
    """Return the sum of w x xᵀ over the rows of each group; see the numpy twin."""
    result = _block(PRODUCTS, columns, group, n_groups, weight)[-1].copy()
    mirror(result)
    return result


def grouped(group: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Return groups in 32 bits: a copy is nothing beside the work."""
    if group.dtype != np.uint32:
        in_python()
    return readonly(group.astype(np.uint32, copy=False))


def known_parts(
    values: Floats, group: NDArray[np.unsignedinteger], centre: Floats
) -> tuple[Floats, Floats]:
    """Return deviations from the centre of the group, and what is known; see the numpy twin."""
    deviation, known = np.empty((2, len(values)))
    put_known(readonly(values), grouped(group), readonly(centre), deviation, known)
    return deviation, known


def _block(
    what: int,
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    n_groups: int,
    weight: Floats | None,
    here: Ints = _NOWHERE,
    held: tuple[Floats, Floats, Floats, Floats] | None = None,
) -> tuple[bool, Floats, Floats, Floats]:
    """Make something of a block of rows; return whether it could be, and what `add_block` found."""
    if held is None:
        in_python()  # what is returned is looked at
    columns = [in_one_piece(x) for x in columns]
    p = len(columns)
    own = BlockMemory.of(len(group), p, n_groups)
    count, (_, mean, rest), scatter = own.counted, own.parts, own.scatter
    done = call(
        add_block,
        *(addresses(columns, [*range(p)]), grouped(group)),
        *(None if weight is None else readonly(weight), here, what, *own),
        *(held or (count, mean, rest, scatter)),  # these where nothing is added to others
    )
    return done != 0, count, own.parts[:, :, :p], scatter[:, :, :p]


class BlockMemory(NamedTuple):
    """Memory to work on a block in, as `add_block` takes it."""

    marks: Ints
    slot: NDArray[np.int32]
    whole: NDArray[np.uint64]
    zeros: Floats
    roots: Floats
    shift: Floats
    panel: Floats
    row: Floats
    counted: Floats
    parts: Floats
    scatter: Floats

    @classmethod
    def of(cls, n: int, p: int, n_groups: int) -> Self:
        """Return memory for n rows of p columns."""
        padded = -(-p // WIDTH) * WIDTH
        rows = max(1, min(n, max(PANEL_ROWS, PANEL // max(1, p), GROUP_ROWS * n_groups)))
        rows = -(-rows // WIDTH) * WIDTH
        return cls(
            np.empty((5, n_groups), np.int64),
            np.empty(rows, np.int32),
            np.empty(padded, np.uint64),
            *(np.empty(rows), np.empty(rows + 1), np.empty((n_groups, padded))),
            *(_panel(padded // WIDTH, rows + 1), np.empty(p), np.empty(n_groups)),
            *(np.empty((3, n_groups, padded)), np.empty((n_groups, p, padded))),
        )


def _panel(blocks: int, rows: int) -> Floats:
    """Return memory for blocks of columns, where each row of one starts where vectors do."""
    room = np.empty((blocks * rows + 1) * WIDTH)
    first = -room.ctypes.data % (8 * WIDTH) // 8
    return room[first : first + blocks * rows * WIDTH].reshape(blocks, rows, WIDTH)


@kernel
def add_block(
    places, group, weight, here, what, marks, slot, whole, zeros, roots, shift, panel, row, count,
    parts, scatter, counts, means, rests, scatters,
):  # fmt: skip
    """Make something of a block of rows; return 1, or 0 if it was not to be for a missing value.

    places   IN   (p,) uint64   addresses of the columns
    group    IN   (n,) uint32
    weight   IN   (n,) float64 or None   rows of weight 0 are left out
    here     IN   (n_groups,) int64   which groups these are of all, where moments are added to them
    what     IN   PRODUCTS, MOMENTS, ADDED, ADDED_IF_KNOWN
    marks    OUT  (5, n_groups) int64   scratch: rows of a group, its first slot, whether its rows
                  are wanted, whether its mean is far from the shift, whether it was seen
    slot     OUT  (rows,) int32   scratch: rows of a panel, a multiple of WIDTH
    whole    OUT  (padded,) uint64   scratch: p is filled up to a multiple of WIDTH
    zeros    OUT  (rows,) float64   scratch
    roots    OUT  (rows + 1,) float64   scratch
    shift    OUT  (n_groups, padded) float64   scratch
    panel    OUT  (padded / WIDTH, rows + 1, WIDTH) float64   scratch
    row      OUT  (p,) float64   scratch
    count    OUT  (n_groups,) float64
    parts    OUT  (3, n_groups, padded) float64   Σ w d, mean and rest
    scatter  OUT  (n_groups, p, padded) float64   of products the lower half
    counts, means, rests, scatters  OUT  moments of all rows, to which these are added
    """
    wanted, far, total, mean = marks[WANTED], marks[FAR], parts[TOTAL], parts[MEAN]
    begin_block(marks, zeros, roots, shift, count, parts, scatter)
    if what == ADDED_IF_KNOWN:
        for i in range(places.size):
            for r in range(min(group.size, FIRST_ROWS)):
                if np.isnan(number_at(places[i], U(r))):
                    return 0
    if what != PRODUCTS:
        put_shift(places, group, weight, marks[SEEN], shift)
    for _ in range(2):
        for begin in range(0, group.size, slot.size):
            end = min(group.size, begin + slot.size)
            add_range(places, group, weight, begin, end, marks, slot, whole, zeros, roots, shift,
                      panel, count, total, scatter)  # fmt: skip
        if what == PRODUCTS:
            return 1
        fill(far, 0, far.size, 0)
        if from_sums(places.size, shift, marks, count, parts, scatter) == 0:
            break
        for g in range(far.size):
            wanted[g] = far[g]
            if far[g]:
                count[g] = 0.0
                for i in range(places.size):
                    shift[g, i], total[g, i] = mean[g, i], 0.0
                    fill(scatter[g, i], 0, whole.size, 0.0)
    if what == ADDED_IF_KNOWN and is_missing(places.size, mean):
        return 0
    merge_groups(here, row, count, parts, scatter, counts, means, rests, scatters)
    return 1


@helper
def begin_block(marks, zeros, roots, shift, count, parts, scatter):
    """Begin with no row of any group; all are wanted, none was seen."""
    fill(zeros, 0, zeros.size, 0.0)
    fill(roots, 0, roots.size, 1.0)
    fill(marks[WANTED], 0, count.size, 1)
    fill(marks[SEEN], 0, count.size, 0)
    padded = shift.shape[1]
    for g in range(count.size):
        count[g] = 0.0
        fill(shift[g], 0, padded, 0.0)
        for k in range(parts.shape[0]):
            fill(parts[k, g], 0, padded, 0.0)
        for i in range(scatter.shape[1]):
            fill(scatter[g, i], 0, padded, 0.0)


@helper
def add_range(
    places, group, weight, begin, end, marks, slot, whole, zeros, roots, shift, panel, count, total,
    scatter,
):  # fmt: skip
    """Add the products of some rows, as many as a panel holds: see `add_block`."""
    size, start, wanted = marks[SIZE], marks[START], marks[WANTED]
    sort_rows(group, weight, wanted, begin, end, count, size, start, slot, roots)
    put_panel(places, group, weight, shift, begin, end, slot, whole, zeros, roots, panel)
    add_panel(panel, roots, size, start, total, scatter)


@helper
def is_missing(p, mean):
    """Return whether a value of some group is missing, so that its mean is NaN."""
    for g in range(mean.shape[0]):
        for i in range(p):
            if np.isnan(mean[g, i]):
                return True
    return False


@helper
def merge_groups(here, row, count, parts, scatter, counts, means, rests, scatters):
    """Add the moments of groups, which are `here` of all, to those of all rows."""
    mean, rest = parts[MEAN], parts[REST]
    for k in range(here.size):
        if count[k] > 0.0:
            g = here[k]
            merge(count[k], mean[k], rest[k], scatter[k], row, counts[g], means[g], rests[g],
                  scatters[g])  # fmt: skip
            counts[g] += count[k]


@helper
@scalar
def put_shift(places, group, weight, seen, shift):
    """Write one row of each group that was not seen: shift[g, i] = x_i[first r with group[r] = g].

    places  IN   (p,) uint64   addresses of the columns
    group   IN   (n,) uint32
    weight  IN   (n,) float64 or None   rows of weight 0 are passed over
    seen    OUT  (n_groups,) int64   1 from then on
    shift   OUT  (n_groups, >= p) float64   0 for what is not finite
    """
    left = 0
    for g in range(seen.size):
        left += 1 - seen[g]
    r = U(0)
    while r < U(group.size) and left > 0:
        g = U(group[r])
        if seen[g] == 0 and (weight is None or weight[r] > 0.0):
            seen[g] = 1
            left -= 1
            for i in range(places.size):
                value = number_at(places[i], r)
                shift[g, i] = value if np.isfinite(value) else 0.0
        r += U(1)


@helper
@scalar
def merge(n, mean, rest, scatter, apart, before, means, rests, scatters):
    """Add moments to those of so many rows before (Chan, Golub, LeVeque 1979, eq. 2.1).

    mean, rest, scatter     IN   (>= p,), (>= p,), (p, >= p) float64   of n > 0 rows, or of such a
                                 weight
    apart                   OUT  (p,) float64   scratch
    means, rests, scatters  OUT  float64   of all; an overflow is infinite, never NaN
    """
    share = n / (before + n)
    for i in range(apart.size):
        moved, left, apart[i] = mean[i], rest[i], 0.0
        if before != 0.0:
            apart[i] = (moved - means[i]) + (left - rests[i])
            more = rests[i] + apart[i] * share
            moved = means[i] + more
            part = moved - means[i]
            left = (means[i] - (moved - part)) + (more - part)
            left = left if np.isfinite(left) else 0.0
        means[i] = moved if moved == moved else np.inf
        rests[i] = left
    factor = before * share
    for i in range(apart.size):
        for j in range(apart.size):
            whole = apart[i] * apart[j] * factor + scatters[i, j] + scatter[i, j]
            scatters[i, j] = whole if whole == whole else np.inf


@helper
def sort_rows(group, weight, wanted, begin, end, count, size, start, slot, roots):
    """Order rows by group: row begin + r goes to slot[r], those of g from start[g] on.

    group   IN   (n,) uint32
    weight  IN   (n,) float64 or None   rows of weight 0 are left out
    wanted  IN   (n_groups,) int64   rows of groups with 0 are left out
    begin   IN   first row
    end     IN   last row, exclusive
    count   OUT  (n_groups,) float64   += sum of the weights
    size    OUT  (n_groups,) int64
    start   OUT  (n_groups,) int64
    slot    OUT  (>= end - begin,) int32   its size for a row that is left out
    roots   OUT  (rows + 1,) float64   roots of the weights, by slot
    """
    fill(size, 0, size.size, 0)
    for r in range(U(begin), U(end)):
        g = U(group[r])
        if weight is None:
            size[g] += 1
        else:
            w = weight[r]
            size[g] += w > 0.0
            count[g] += w if wanted[g] else 0.0
    at = 0
    for g in range(size.size):
        if not wanted[g]:
            size[g] = 0
        if weight is None:
            count[g] += size[g]
        start[g] = at
        at += size[g]
    for r in range(U(begin), U(end)):
        g, at = U(group[r]), slot.size
        if wanted[g] and (weight is None or weight[r] > 0.0):
            at = start[g]
            start[g] += 1
        slot[r - U(begin)] = at
        if weight is not None:
            roots[at] = np.sqrt(weight[r])
    for g in range(size.size):
        start[g] -= size[g]


@helper
def put_panel(places, group, weight, shift, begin, end, slot, whole, zeros, roots, panel):
    """Write rows in the order of the groups: panel[., slot[r]] = √w (x[begin + r] - shift[g]).

    places  IN   (p,) uint64   addresses of the columns
    group   IN   (n,) uint32
    weight  IN   (n,) float64 or None
    shift   IN   (n_groups, padded) float64   0 from p on
    begin, end, slot, roots  IN  as `sort_rows` wrote it
    whole   OUT  (padded,) uint64   scratch
    zeros   IN   (rows,) float64
    panel   OUT  (padded / WIDTH, rows + 1, WIDTH) float64   0 behind column p
    """
    n = end - begin
    for i in range(places.size):
        whole[i] = places[i] + U(8 * begin)
    for i in range(places.size, whole.size):
        whole[i] = address(zeros)
    squares = n - n % WIDTH
    for i in range(0, whole.size, WIDTH):
        if weight is None:
            put_rows(whole, i, group, slot, shift, roots, begin, squares, panel, 0)
        else:
            put_rows(whole, i, group, slot, shift, roots, begin, squares, panel, 1)
    for r in range(U(squares), U(n)):
        g, k = U(group[U(begin) + r]), U(slot[r])
        for i in range(U(whole.size)):
            value = (number_at(whole[i], r) - shift[g, i]) * roots[k]
            panel[i // U(WIDTH), k, i % U(WIDTH)] = value


@helper
def add_panel(panel, roots, size, start, total, scatter):
    """Add the products of the rows of each group: scatter[g, i, j] += Σ d_i d_j, j <= i.

    panel    IN   (blocks, slots, WIDTH) float64   d
    roots    IN   (slots,) float64   √w
    size     IN   (n_groups,) int64
    start    IN   (n_groups,) int64
    total    OUT  (n_groups, padded) float64   += Σ √w d
    scatter  OUT  (n_groups, p, padded) float64   its upper half is of no use
    """
    for g in range(size.size):
        end, sums, row = start[g] + size[g], scatter[g], total[g]
        for first in range(start[g], end, SEGMENT):
            n = min(SEGMENT, end - first)
            for a in range(panel.shape[0]):
                for b in range(0, a + 1, ACROSS):
                    add_tile(panel, a, b, roots, first, n, sums, row)


@helper
def add_tile(panel, a, b, roots, first, n, sums, total):
    """Call `add_products` for the blocks from b on that there are, up to a."""
    across = min(ACROSS, a + 1 - b)
    if a + 1 < panel.shape[0]:
        if across == 1:
            add_products(panel, a, b, roots, first, n, sums, total, 1, 0)
        elif across == 2:
            add_products(panel, a, b, roots, first, n, sums, total, 2, 0)
        else:
            add_products(panel, a, b, roots, first, n, sums, total, ACROSS, 0)
    elif across == 1:
        add_products(panel, a, b, roots, first, n, sums, total, 1, 1)
    elif across == 2:
        add_products(panel, a, b, roots, first, n, sums, total, 2, 1)
    else:
        add_products(panel, a, b, roots, first, n, sums, total, ACROSS, 1)


@helper
@scalar
def from_sums(p, shift, marks, count, parts, scatter):
    """Turn sums into moments: mean + rest = shift + Σwd / Σw, scatter = Σwddᵀ - Σwd Σwdᵀ / Σw.

    Return how many groups are far.

    p        IN   columns; all arrays have room for more
    shift    IN   (n_groups, p) float64
    marks    OUT  (5, n_groups) int64   WANTED: groups with 0 are left as they are; FAR: 0 at
                  entry, 1 where a shift so far from the mean cost digits
    count    IN   (n_groups,) float64   Σw
    parts    OUT  (3, n_groups, p) float64   Σwd; mean; rest
    scatter  OUT  (n_groups, p, p) float64   at entry the lower half of Σwddᵀ
    """
    wanted, far, n_far = marks[WANTED], marks[FAR], 0
    total, mean, rest = parts[TOTAL], parts[MEAN], parts[REST]
    for g in range(count.size):
        n = count[g]
        if not (wanted[g] and n > 0.0):
            continue
        matrix = scatter[g]
        for i in range(p):
            offset, centre = total[g, i] / n, shift[g, i]
            place = centre + offset
            part = place - centre
            left = (centre - (place - part)) + (offset - part)
            mean[g, i] = place
            rest[g, i] = left if np.isfinite(left) else 0.0
            for j in range(i + 1):
                matrix[i, j] -= total[g, j] * offset
            spread = matrix[i, i]
            far[g] |= np.isfinite(spread) and n * offset * offset > 256.0 * spread
        for i in range(p):
            # Rounding can leave ±1e-17 for 0; -inf is an overflow and must not become a number.
            if -np.inf < matrix[i, i] <= 0.0:
                for j in range(i):
                    matrix[i, j] = 0.0
                for j in range(i, p):
                    matrix[j, i] = 0.0
        for i in range(p):
            for j in range(i):
                matrix[j, i] = matrix[i, j]
        n_far += far[g]
    return n_far


@kernel
def put_known(x, group, centre, deviation, known):
    """Write x[r] - centre[group[r]] and 1 where x[r] is known, else 0 and 0: see `known_parts`."""
    for r in range(U(x.size)):
        here = x[r] == x[r]
        deviation[r] = x[r] - centre[U(group[r])] if here else 0.0
        known[r] = 1.0 if here else 0.0


@kernel
@scalar
def mirror(matrices):
    """Make matrices symmetric: matrices[g, j, i] = matrices[g, i, j], j < i."""
    for g in range(matrices.shape[0]):
        for i in range(matrices.shape[1]):
            for j in range(i):
                matrices[g, j, i] = matrices[g, i, j]
