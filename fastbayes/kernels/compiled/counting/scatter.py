"""Scatter matrices of numeric columns per group: panels of sorted rows, tiles of products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import instruction, number_at
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

# Rows in a vector, and columns along either side of a tile: their sums fill half the registers,
# which leaves room for the columns, and waits for no addition.
WIDTH = vector.WIDTH // 8
TILE = 4 if WIDTH == 8 else 3

# Numbers from all over that are joined to be written together: of more, the places where they come
# from would not stay in registers.
JOINED = min(WIDTH, 4)

_LANES, _JOINED = ir.VectorType(to.DOUBLE, WIDTH), ir.VectorType(to.DOUBLE, JOINED)


@instruction(
    lambda panel, a, b, root, n, sums, diagonal: types.void(
        panel, *[types.int64] * 4, sums, diagonal
    ),
    literal=True,
)
def sum_products(block, panel, a, b, root, n, sums, diagonal):
    """Write sums[s, t] = sum over n rows of the columns a + s and b + t of a panel, s, t < TILE.

    a, b      IN   flat index of the first row, in the first of TILE columns
    root      IN   flat index of the first row in the column of roots of weights
    n         IN   rows, a multiple of WIDTH
    sums      OUT  (TILE + 1, TILE) float64
    diagonal  IN   literal: a is b, only s >= t is written, and sums[TILE, t] is that with the roots
    panel     IN   (columns, rows) float64
    """
    pairs = [(s, t) for s in range(TILE) for t in range(s + 1 if diagonal else TILE)]
    pairs += [(TILE, t) for t in range(TILE)] * bool(diagonal)
    stride = cgutils.unpack_tuple(block, panel.shape)[1]
    firsts = [[a], [b]]
    for side in firsts:
        for _ in range(TILE - 1):
            side.append(block.add(side[-1], stride))
    totals = to.variables(block, _LANES, len(pairs))
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(WIDTH)) as (r, _):

        def column(first: Any) -> Any:
            return to.load_at(block, panel.data, block.add(first, r), _LANES)

        right = [column(first) for first in firsts[1]]
        left = [*right, column(root)] if diagonal else [column(first) for first in firsts[0]]
        for total, (s, t) in zip(totals, pairs, strict=True):
            block.store(to.fma(block, left[s], right[t], block.load(total)), total)
    for total, (s, t) in zip(totals, pairs, strict=True):
        place = block.gep(sums.data, [to.I64(s * TILE + t)])
        block.store(to.sum_by_halves(block, block.load(total)), place)


@instruction(
    lambda out, index, row, n, factor: types.void(out, types.int64, row, types.int64, types.float64)
)
def add_row(block, out, index, row, n, factor):
    """Add a vector of numbers, factor * row[k], to out[index + k], k < n, a multiple of WIDTH.

    row  IN   (>= n,) float64
    out  OUT  float64, from the flat index on
    """
    factors = to.splat(block, factor, _LANES)
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(WIDTH)) as (k, _):
        place, value = block.add(index, k), to.load_at(block, row.data, k, _LANES)
        total = to.fma(block, factors, value, to.load_at(block, out.data, place, _LANES))
        to.store_at(block, total, out.data, place)


@instruction(
    lambda panel, firsts, root, order, k, places, later, centres, weighted: types.void(
        panel, firsts, types.int64, order, types.int64, places, later, centres, weighted
    ),
    literal=True,
)
def put_joined(block, panel, firsts, root, order, k, places, later, centres, weighted):
    """Write JOINED numbers of each of some columns: out[k] = (x[order[k]] - centre) * root[k].

    firsts    IN   flat index of the first row in each column of the panel
    root      IN   the same of the roots of weights
    order     IN   (rows,) int32
    places    IN   uint64   addresses of the columns
    later     IN   uint64   addresses of columns whose row k is asked for meanwhile
    centres   IN   float64   of each column
    weighted  IN   literal: 0 where all roots are 1
    panel     OUT  (columns, rows) float64
    """
    rows = [
        block.sext(block.load(block.gep(order.data, [block.add(k, to.I64(lane))])), to.I64)
        for lane in range(JOINED)
    ]
    roots = to.load_at(block, panel.data, block.add(root, k), _JOINED) if weighted else None
    for place in later:
        column = block.inttoptr(place, to.DOUBLE.as_pointer())
        vector.prefetch_at(block, block.gep(column, [k]), level=2)
    for first, place, centre in zip(firsts, places, centres, strict=True):
        column = block.inttoptr(place, to.DOUBLE.as_pointer())
        values = ir.Constant(_JOINED, ir.Undefined)
        for lane, row in enumerate(rows):
            value = block.load(block.gep(column, [row]), align=8)
            values = block.insert_element(values, value, to.I32(lane))
        values = block.fsub(values, to.splat(block, centre, _JOINED))
        values = values if roots is None else block.fmul(values, roots)
        to.store_at(block, values, panel.data, block.add(first, k))


# Rows of a group in one stretch of rows from which on tiles beat adding row by row.
FEW_ROWS = 2 * WIDTH
# Rows of which a tile is computed at a time: its columns stay in the first-level cache.
SEGMENT = 512
# A panel holds this many values, to stay in the second-level cache, but no fewer than so many
# rows, and so many for each group: below, the sums of a tile cost more than its products.
PANEL, PANEL_ROWS, GROUP_ROWS = 1 << 17, 1024, 64

# What is made of a block: products as they are; moments; moments that are added to those of other
# rows; or this where no value is missing, and nothing where one is.
PRODUCTS, MOMENTS, ADDED, ADDED_IF_KNOWN = range(4)
# Rows of a block that are looked at for missing values before all are taken for known.
FIRST_ROWS = 128

_NOWHERE = readonly(np.empty(0, np.int64))
# Where these are among the parts of `add_block`.
_MEAN, _REST = 2, 3

_X, _OUT, _GROUP = reads("float64"), writes("float64"), reads("uint32")
_TABLE, _TABLES = writes("float64", 2), writes("float64", 3)
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "add_block": [
        (
            *(reads("uint64"), _GROUP, weight, reads("int64"), "int64", "int64"),
            *(writes("int64", 2), writes("int32"), _TABLE, _TABLE, _OUT, _OUT, _TABLES, _TABLES),
            *(_OUT, _TABLE, _TABLE, _TABLES),
        )
        for weight in ("none", _X)
    ],
    "put_known": [(_X, _GROUP, _X, _OUT, _OUT)],
    "mirror": [(_TABLES,)],
}


def block_scatter(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    n_groups: int,
    weight: Floats | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return count, mean, its rest and scatter matrix of each group of rows; see the numpy twin."""
    _, count, (*_, mean, rest), scatter = _block(MOMENTS, columns, group, n_groups, weight)
    return count, mean, rest, scatter


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
    result = _block(PRODUCTS, columns, group, n_groups, weight)[-1]
    mirror(result)
    return result


def _grouped(group: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Return groups in 32 bits: a copy is nothing beside the work."""
    if group.dtype != np.uint32:
        in_python()
    return readonly(group.astype(np.uint32, copy=False))


def known_parts(
    values: Floats, group: NDArray[np.unsignedinteger], centre: Floats
) -> tuple[Floats, Floats]:
    """Return deviations from the centre of the group, and what is known; see the numpy twin."""
    deviation, known = np.empty((2, len(values)))
    put_known(readonly(values), _grouped(group), readonly(centre), deviation, known)
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
    n, p = len(group), len(columns)
    padded = -(-p // TILE) * TILE
    rows = max(1, min(n, max(PANEL_ROWS, PANEL // max(1, p), GROUP_ROWS * n_groups)))
    length = rows + min(n_groups, rows // FEW_ROWS + 1) * WIDTH
    panel = _panel(padded + 1, length)
    count, parts = np.empty(n_groups), np.empty((4, n_groups, p))
    scatter = np.empty((n_groups, p, p))
    done = call(
        add_block,
        *(addresses(columns, [*range(p)]), _grouped(group)),
        *(None if weight is None else readonly(weight), here, what, rows),
        *(np.empty((5, n_groups), np.int64), np.empty(panel.shape[1], np.int32), panel),
        *(np.zeros((TILE + 1, TILE)), np.zeros(padded), count, parts, scatter),
        *(held or (count, parts[_MEAN], parts[_REST], scatter)),
    )
    return done != 0, count, parts, scatter


def _panel(columns: int, rows: int) -> Floats:
    """Return memory for at least so many rows; each column starts where vectors do."""
    length = -(-rows // WIDTH) * WIDTH
    room = np.empty(columns * length + WIDTH)
    first = -room.ctypes.data % (8 * WIDTH) // 8
    return room[first : first + columns * length].reshape(columns, length)


@kernel
def add_block(
    places, group, weight, here, what, rows, marks, order, panel, sums, row, count, parts, scatter,
    counts, means, rests, scatters,
):  # fmt: skip
    """Make something of a block of rows; return 1, or 0 if it was not to be for a missing value.

    places   IN   (p,) uint64   addresses of the columns
    group    IN   (n,) uint32
    weight   IN   (n,) float64 or None   rows of weight 0 are left out
    here     IN   (n_groups,) int64   which groups these are of all, where moments are added to them
    what     IN   PRODUCTS, MOMENTS, ADDED, ADDED_IF_KNOWN
    rows     IN   of a panel
    marks    OUT  (5, n_groups) int64   scratch
    order    OUT  (>= rows, groups filled up) int32   scratch
    panel    OUT  (> p, as many) float64   scratch
    sums     OUT  (TILE + 1, TILE) float64   scratch
    row      OUT  (>= p) float64   scratch
    count    OUT  (n_groups,) float64
    parts    OUT  (4, n_groups, p) float64   shift, Σ w d, mean and rest
    scatter  OUT  (n_groups, p, p) float64   of products the lower half
    counts, means, rests, scatters  OUT  moments of all rows, to which these are added
    """
    size, start, wanted, far = marks[0], marks[1], marks[2], marks[3]
    shift, total, mean, rest = parts[0], parts[1], parts[_MEAN], parts[_REST]
    fill(order, 0, order.size, 0)
    for i in range(places.size, panel.shape[0]):
        fill(panel[i], 0, panel.shape[1], 0.0)
    for g in range(count.size):
        count[g] = 0.0
        for k in range(parts.shape[0]):
            fill(parts[k, g], 0, places.size, 0.0)
        for i in range(places.size):
            fill(scatter[g, i], 0, places.size, 0.0)
    if what == ADDED_IF_KNOWN:
        for i in range(places.size):
            for r in range(min(group.size, FIRST_ROWS)):
                if np.isnan(number_at(places[i], U(r))):
                    return 0
    fill(wanted, 0, wanted.size, 1)
    if what != PRODUCTS:
        put_shift(places, group, weight, marks[4], shift)
    for _ in range(2):
        for begin in range(0, group.size, rows):
            end = min(group.size, begin + rows)
            sort_rows(group, weight, wanted, begin, end, count, size, start, order)
            put_panel(places, begin, shift, weight, size, start, order, panel)
            add_panel(panel, size, start, sums, total, scatter)
            add_few(places, shift, weight, size, start, order, row, total, scatter)
        if what == PRODUCTS:
            return 1
        fill(far, 0, far.size, 0)
        if from_sums(shift, wanted, count, total, mean, rest, scatter, far) == 0:
            break
        for g in range(far.size):
            wanted[g] = far[g]
            if far[g]:
                count[g] = 0.0
                for i in range(places.size):
                    shift[g, i], total[g, i] = mean[g, i], 0.0
                    fill(scatter[g, i], 0, places.size, 0.0)
    if what == ADDED_IF_KNOWN:
        for g in range(count.size):
            for i in range(places.size):
                if np.isnan(mean[g, i]):
                    return 0
    for k in range(here.size):
        if count[k] > 0.0:
            g = here[k]
            merge(count[k], mean[k], rest[k], scatter[k], row, counts[g], means[g], rests[g],
                  scatters[g])  # fmt: skip
            counts[g] += count[k]
    return 1


@helper
@scalar
def put_shift(places, group, weight, first, shift):
    """Find one row of each group, and write it: shift[g, i] = x_i[first r with group[r] = g].

    places  IN   (p,) uint64   addresses of the columns
    group   IN   (n,) uint32
    weight  IN   (n,) float64 or None   rows of weight 0 are passed over
    first   OUT  (n_groups,) int64   scratch
    shift   OUT  (n_groups, p) float64   as it was where there is none, 0 for what is not finite
    """
    fill(first, 0, first.size, -1)
    left = first.size
    r = U(0)
    while r < U(group.size) and left > 0:
        g = U(group[r])
        if first[g] < 0 and (weight is None or weight[r] > 0.0):
            first[g] = r
            left -= 1
        r += U(1)
    for g in range(first.size):
        if first[g] >= 0:
            for i in range(places.size):
                value = number_at(places[i], U(first[g]))
                shift[g, i] = value if np.isfinite(value) else 0.0


@helper
@scalar
def merge(n, mean, rest, scatter, apart, before, means, rests, scatters):
    """Add moments to those of so many rows before (Chan, Golub, LeVeque 1979, eq. 2.1).

    mean, rest, scatter     IN   (p,), (p,), (p, p) float64   of n > 0 rows, or of such a weight
    apart                   OUT  (>= p,) float64   scratch
    means, rests, scatters  OUT  float64   of all; an overflow is infinite, never NaN
    """
    share = n / (before + n)
    for i in range(mean.size):
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
    for i in range(mean.size):
        for j in range(mean.size):
            whole = apart[i] * apart[j] * factor + scatters[i, j] + scatter[i, j]
            scatters[i, j] = whole if whole == whole else np.inf


@helper
def sort_rows(group, weight, wanted, begin, end, count, size, start, order):
    """Order rows by group: those of g are order[start[g] : start[g] + size[g]], ascending.

    Groups of at least FEW_ROWS are filled up to whole vectors.

    group   IN   (n,) uint32
    weight  IN   (n,) float64 or None   rows of weight 0 are left out
    wanted  IN   (n_groups,) int64   rows of groups with 0 are left out
    begin   IN   first row
    end     IN   last row, exclusive
    count   OUT  (n_groups,) float64   += sum of the weights
    size    OUT  (n_groups,) int64
    start   OUT  (n_groups,) int64
    order   OUT  (>= all sizes, filled up) int32
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
        n = size[g]
        at += (n + WIDTH - 1) // WIDTH * WIDTH if n >= FEW_ROWS else n
    for r in range(U(begin), U(end)):
        g = U(group[r])
        if wanted[g] and (weight is None or weight[r] > 0.0):
            k = U(start[g])
            order[k] = r
            start[g] += 1
    for g in range(size.size):
        start[g] -= size[g]


@helper
def filled(begin, end):
    """Return the end of a group's rows, filled up to whole vectors."""
    return begin + (end - begin + U(WIDTH - 1)) // U(WIDTH) * U(WIDTH)


@helper
def put_panel(places, begin, shift, weight, size, start, order, panel):
    """Write the columns in the order of the groups: panel[i, k] = √w (x_i[order[k]] - shift[g, i]).

    Groups of fewer than FEW_ROWS are left out.

    places     IN   (p,) uint64   addresses of the columns
    begin      IN   first row of all
    shift      IN   (n_groups, p) float64
    weight, size, start, order  IN  as for `sort_rows`
    panel      OUT  (> p, rows) float64   √w in the last row; 0 where groups are filled up
    """
    roots = panel[panel.shape[0] - 1]
    for g in range(size.size):
        if size[g] < FEW_ROWS:
            continue
        a, b = U(start[g]), U(start[g] + size[g])
        for k in range(a, b):
            roots[k] = 1.0 if weight is None else np.sqrt(weight[U(order[k])])
        for k in range(b, filled(a, b)):
            roots[k] = 0.0
    # Of several columns at once the processor waits for memory together, and further ones are on
    # their way: what lies far apart is not read ahead otherwise.
    fours = places.size // 4 * 4
    for i in range(0, fours, 4):
        for g in range(size.size):
            if size[g] >= FEW_ROWS:
                put_four(
                    places, begin, shift[g], weight, start[g], start[g] + size[g], order, i, panel
                )
    for i in range(fours, places.size):
        for g in range(size.size):
            if size[g] >= FEW_ROWS:
                put_one(places, shift[g], weight, start[g], start[g] + size[g], order, i, panel)


@helper
def put_four(places, row, shift, weight, begin, end, order, i, panel):
    """Write the rows of a group, from place to place, of the columns i to i + 3: see `put_panel`.

    row    IN   first row of all groups
    shift  IN   (n_columns,) float64   that of the group
    """
    length = panel.shape[1]
    root, stop = (panel.shape[0] - 1) * length, filled(U(begin), U(end))
    firsts = i * length, (i + 1) * length, (i + 2) * length, (i + 3) * length
    columns = places[i], places[i + 1], places[i + 2], places[i + 3]
    j, skip = min(i + 4, places.size - 4), U(8 * row)
    later = places[j] + skip, places[j + 1] + skip, places[j + 2] + skip, places[j + 3] + skip
    centres = shift[i], shift[i + 1], shift[i + 2], shift[i + 3]
    # Behind the last row stands any, until it is overwritten.
    for k in range(begin, np.int64(stop), JOINED):
        if weight is None:
            put_joined(panel, firsts, root, order, k, columns, later, centres, 0)
        else:
            put_joined(panel, firsts, root, order, k, columns, later, centres, 1)
    for k in range(U(end), stop):
        panel[i, k] = panel[i + 1, k] = panel[i + 2, k] = panel[i + 3, k] = 0.0


@helper
def put_one(places, shift, weight, begin, end, order, i, panel):
    """Do what `put_four` does for one column."""
    address, centre, out = places[i], shift[i], panel[i]
    roots = panel[panel.shape[0] - 1]
    for k in range(U(begin), U(end)):
        root = 1.0 if weight is None else roots[k]
        out[k] = (number_at(address, U(order[k])) - centre) * root
    for k in range(U(end), filled(U(begin), U(end))):
        out[k] = 0.0


@helper
def add_panel(panel, size, start, sums, total, scatter):
    """Add the products of the rows of each group: scatter[g, i, j] += Σ d_i d_j, j <= i.

    panel    IN   (> p, rows) float64   d, and √w in the last row
    size     IN   (n_groups,) int64
    start    IN   (n_groups,) int64
    sums     OUT  (TILE + 1, TILE) float64   scratch
    total    OUT  (n_groups, p) float64   += Σ √w d
    scatter  OUT  (n_groups, p, p) float64   its upper half is of no use
    """
    p, length = total.shape[1], panel.shape[1]
    root = (panel.shape[0] - 1) * length
    for g in range(size.size):
        n, out = size[g], scatter[g]
        if n < FEW_ROWS:
            continue
        end = start[g] + (n + WIDTH - 1) // WIDTH * WIDTH
        for first in range(start[g], end, SEGMENT):
            rows = min(SEGMENT, end - first)
            for a in range(0, p, TILE):
                left = a * length + first
                for b in range(0, a, TILE):
                    right = b * length + first
                    sum_products(panel, left, right, root, rows, sums, 0)
                    for s in range(min(TILE, p - a)):
                        for t in range(TILE):
                            out[a + s, b + t] += sums[s, t]
                sum_products(panel, left, left, root + first, rows, sums, 1)
                for s in range(min(TILE, p - a)):
                    total[g, a + s] += sums[TILE, s]
                    for t in range(s + 1):
                        out[a + s, a + t] += sums[s, t]


@helper
def add_few(places, shift, weight, size, start, order, row, total, scatter):
    """Add the products of groups of fewer than FEW_ROWS row by row: scatter[g, i, j] += d_i d_j.

    d = √w (x - shift[g]).

    places, shift ... order  IN  as for `put_panel`
    row        OUT  (>= p) float64   scratch
    total      OUT  (n_groups, p) float64   += Σ √w d
    scatter    OUT  (n_groups, p, p) float64
    """
    p = total.shape[1]
    whole = p // WIDTH * WIDTH
    for g in range(size.size):
        if not 0 < size[g] < FEW_ROWS:
            continue
        out, centre, sums = scatter[g], shift[g], total[g]
        for k in range(U(start[g]), U(start[g] + size[g])):
            r = U(order[k])
            root = 1.0 if weight is None else np.sqrt(weight[r])
            for i in range(p):
                d = (number_at(places[i], r) - centre[i]) * root
                row[i] = d
                sums[i] += d * root
            for i in range(p):
                add_row(out, i * p, row, whole, row[i])
                for j in range(whole, p):
                    out[i, j] += row[i] * row[j]


@helper
@scalar
def from_sums(shift, wanted, count, total, mean, rest, scatter, far):
    """Turn sums into moments: mean + rest = shift + Σwd / Σw, scatter = Σwddᵀ - Σwd Σwdᵀ / Σw.

    Return how many groups are far.

    shift    IN   (n_groups, p) float64
    wanted   IN   (n_groups,) int64   groups with 0 are left as they are
    count    IN   (n_groups,) float64   Σw
    total    IN   (n_groups, p) float64   Σwd
    mean     OUT  (n_groups, p) float64
    rest     OUT  (n_groups, p) float64
    scatter  OUT  (n_groups, p, p) float64   at entry the lower half of Σwddᵀ
    far      OUT  (n_groups,) int64   0 at entry, 1 where a shift so far from the mean cost digits
    """
    p, n_far = mean.shape[1], 0
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
