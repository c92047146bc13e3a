"""Passes of logistic regression over rows: margins, loss, gradient and Hessian.

Columns are joined, a few into one code, once for all passes. A pass adds up each row's cells of
tables of sums of coefficients, turns these margins into factors, and adds the factors to cells of
the same groups; what cells come to is then taken apart into the coefficients' own sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.layout import Layout
from fastbayes.kernels.compiled.plans.joint_tables import LARGEST, aligned, look_up, pack
from fastbayes.kernels.compiled.simd import gradient_steps as steps
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, unrolled, writes
from fastbayes.kernels.shared.arrays import Floats, Ints, U
from fastbayes.kernels.shared.codes import Columns, columns_of


@dataclass(frozen=True, slots=True, eq=False)
class GradientPlan:
    """Groups of columns; those whose codes fit 16 bits come first. Arguments of the kernels.

    A group's code is Σ radix times code of its members, a radix being the product of the sizes of
    the members before. A value that is missing or unseen has the code `known`.
    """

    bounds: Ints  # group g has the members [bounds[g], bounds[g + 1])
    column: Ints  # categorical feature of each member
    size: Ints  # its codes
    known: Ints  # its values
    row: Ints  # coefficients' row of its first value; -1 of both of a pair that others have
    radix: Ints  # factor of each member's code in its group's
    pairs: Ints  # (n_pairs, 4): group, both members, coefficients' row
    start: Ints  # first cell of each group, and the number of all cells

    @property
    def narrow(self) -> int:
        """Number of groups whose codes fit 16 bits."""
        return int((np.diff(self.start) <= 2**16).sum())


# Rows for each cell of a group, at least: a cell is filled and taken apart in every pass.
ROWS_OF_CELL = 16


def most_cells(n_rows: int, width: int) -> int:
    """Return how many cells, of `width` numbers, a group of columns may have for so many rows."""
    # A cell is read in one table and added to in another; both are to stay in the cache.
    return max(1, min(LARGEST // (2 * 8 * width), n_rows // ROWS_OF_CELL))


def plan_of(layout: Layout, absent: NDArray[np.bool_], most: int) -> GradientPlan:
    """Return the groups for rows in which some values of the features flagged are absent.

    most  cells of a group of several columns
    """
    sizes = np.maximum(layout.sizes + absent, 1)
    parts = _joined(sizes, layout.pairs, most)
    products = np.array([np.prod(sizes[part], dtype=np.float64) for part in parts])
    order, _, bounds = pack(np.minimum(products, 2**53).astype(np.int64), LARGEST // most)
    groups = [
        [j for part in order[begin:end] for j in parts[part]]
        for begin, end in itertools.pairwise(bounds)
        if end > begin
    ]
    rows = layout.rows
    members = [[(j, int(rows.values[j])) for j in group] for group in groups]
    group_of = {j: g for g, group in enumerate(groups) for j in group}
    pairs = []
    for (a, b), row in zip(layout.pairs, rows.pairs.tolist(), strict=True):
        g = group_of[a]
        if g != group_of[b]:
            g = len(members)
            members.append([(a, -1), (b, -1)])
        places = [j for j, _ in members[g]]
        pairs.append((g, places.index(a), places.index(b), row))
    return _laid_out(layout, sizes, members, pairs)


def _joined(sizes: Ints, pairs: Iterable[tuple[int, int]], most: int) -> list[list[int]]:
    """Return the columns, those of a pair together where their codes are no more than `most`."""
    size = sizes.tolist()
    parts = {j: [j] for j in range(len(size))}
    for a, b in pairs:
        if parts[a] is not parts[b]:
            both = parts[a] + parts[b]
            if math.prod(size[j] for j in both) <= most:
                parts.update(dict.fromkeys(both, both))
    return [part for j, part in parts.items() if part[0] == j]


def _laid_out(
    layout: Layout,
    sizes: Ints,
    members: list[list[tuple[int, int]]],
    pairs: list[tuple[int, int, int, int]],
) -> GradientPlan:
    # Before each member the product of the sizes of those before, and last that of all.
    of_group = [
        [*itertools.accumulate((int(sizes[j]) for j, _ in group), mul, initial=1)]
        for group in members
    ]
    cells = np.array([products[-1] for products in of_group], np.int64)
    order = np.argsort(cells > 2**16, kind="stable")
    place = np.argsort(order)
    ordered = [members[g] for g in order]
    flat = np.array([m for group in ordered for m in group], np.int64).reshape(-1, 2)
    bounds = np.cumsum([0, *map(len, ordered)])
    moved = [(g, bounds[g] + a, bounds[g] + b, row) for h, a, b, row in pairs for g in [place[h]]]
    radix = [product for g in order.tolist() for product in of_group[g][:-1]]
    parts = (
        bounds,
        flat[:, 0],
        sizes[flat[:, 0]],
        layout.sizes[flat[:, 0]],
        flat[:, 1],
        np.array(radix),
        np.array(moved, np.int64).reshape(-1, 4),
        np.cumsum([0, *cells[order]]),
    )
    return GradientPlan(*[readonly(part.astype(np.int64)) for part in parts])


def joint_codes(
    plan: GradientPlan, columns: Columns, n_rows: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint32]]:
    """Return the codes of the narrow and of the wide groups, (groups, n_rows up to eights)."""
    padded, n_narrow = padding(n_rows), plan.narrow
    narrow = np.zeros((n_narrow, padded), np.uint16)
    wide = np.zeros((len(plan.start) - 1 - n_narrow, padded), np.uint32)
    outs: list[NDArray[Any]] = [*narrow, *wide]
    members = [*zip(plan.column.tolist(), plan.radix.tolist(), strict=True)]
    capped = dict(columns)
    absent = np.flatnonzero(plan.size > plan.known)
    for j, known in {*zip(plan.column[absent].tolist(), plan.known[absent].tolist(), strict=True)}:
        capped[j] = np.minimum(capped[j], capped[j].dtype.type(known))
    for out, (begin, end) in zip(outs, itertools.pairwise(plan.bounds.tolist()), strict=True):
        codes = out[:n_rows]
        for j, radix in members[begin:end]:
            codes += np.multiply(capped[j], radix, dtype=codes.dtype, casting="unsafe")
    return narrow, wide


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows that are read repeatedly; all that is beyond the last is 0.

    plan         which columns are joined
    codes, wide  (groups, n_rows up to eights) uint16 and uint32
    numbers      (n_numeric, n_rows up to eights) z = (x - center) / scale, 0 where missing
    classes      (n_rows up to eights,) uint8 of two classes, else uint16; None where none are known
    weight       (n_rows up to eights,), or empty where every row weighs 1
    kept         bytes that a Hessian may keep of them in addition
    """

    n_rows: int
    plan: GradientPlan
    codes: NDArray[np.uint16]
    wide: NDArray[np.uint32]
    numbers: Floats
    classes: NDArray[np.unsignedinteger] | None
    weight: Floats
    kept: int

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take, and what a Hessian may keep of them."""
        parts = (self.codes, self.wide, self.numbers, self.classes, self.weight)
        return self.kept + sum(part.nbytes for part in parts if part is not None)


def packed_by(
    plan: GradientPlan, layout: Layout, columns: Columns, batch: Batch, weight: Floats | None
) -> Packed:
    """Return a copy of a batch's rows, of these weights."""
    codes, wide = joint_codes(plan, columns, batch.n_rows)
    n, padded = batch.n_rows, padding(batch.n_rows)
    numbers = _zeros(layout.n_numeric * padded).reshape(layout.n_numeric, padded)
    for z, x, center, scale in zip(
        numbers[:, :n], batch.numeric, layout.center, layout.scale, strict=True
    ):
        np.subtract(x, center, out=z)
        z /= scale
        z[np.isnan(z)] = 0.0
    classes: NDArray[np.unsignedinteger] | None = None
    own = np.zeros(0 if weight is None else padded)
    if batch.classes is not None:
        classes = np.zeros(padded, np.uint8 if layout.n_outputs == 1 else np.uint16)
        classes[:n] = batch.classes
        classes = readonly(classes)
    if weight is not None:
        own[:n] = weight
    kept = 4 * layout.n_outputs * padded
    return Packed(
        n, plan, readonly(codes), readonly(wide), readonly(numbers), classes, readonly(own), kept
    )


def padding(n_rows: int) -> int:
    """Return so many rows up to eights, the rows that vectors take at a time."""
    return -(-n_rows // 8) * 8


def absent_in(layout: Layout, columns: Columns) -> NDArray[np.bool_]:
    """Return of each categorical feature whether a value is missing or unseen."""
    absent = np.zeros(len(layout.sizes), np.bool_)
    for j, column in columns.items():
        absent[j] = column.max(initial=0) >= layout.sizes[j] and len(column) > 0
    return absent


@kernel
def fill_cells(theta, width, first, bounds, size, known, row, radix, pairs, start, table):
    """Write sums of coefficients: table[(start[g] + code) width + lane] = Σ theta[·, first + lane].

    theta  IN   (P, M) float64
    width  IN   lanes of a cell; those beyond the last output are 0
    first  IN   output of the first lane
    bounds, size, known, row, radix, pairs, start  IN  the plan
    table  OUT  (cells * width,) float64
    """
    used = min(theta.shape[1] - first, width)
    for g in range(bounds.size - 1):
        t = table[start[g] * width : start[g + 1] * width]
        if row[bounds[g]] < 0:  # a pair, whose columns are in other groups
            fill(t, 0, t.size, 0.0)
            continue
        fill(t, 0, width, 0.0)
        for q in range(bounds[g], bounds[g + 1]):
            n = radix[q] * width
            # The first value's part is what the others are made of, so it is the last to change.
            for v in range(size[q] - 1, -1, -1):
                part = t[v * n : (v + 1) * n]
                for u in range(n):
                    part[u] = t[u]
                if v < known[q]:
                    for u in range(0, n, width):
                        for c in range(used):
                            part[u + c] += theta[row[q] + v, first + c]
    for i in range(pairs.shape[0]):
        g, a, b, row_of = pairs[i]
        # A code, from what counts least: members before, the low one's, between, the high one's.
        low, high = min(a, b), max(a, b)
        of_low, of_high = (known[b], 1) if a == low else (1, known[b])
        turns = known[high]
        if a == b:  # its values occur together with themselves alone
            of_low, turns = known[b] + 1, 1
        once, again = radix[low] * size[low], radix[high] * size[high]
        for beyond in range(start[g], start[g + 1], again):
            for t in range(turns):
                for between in range(0, radix[high], once):
                    for u in range(known[low]):
                        code = beyond + t * radix[high] + between + u * radix[low]
                        own = row_of + u * of_low + t * of_high
                        for x in range(code, code + radix[low]):
                            for c in range(used):
                                table[x * width + c] += theta[own, first + c]


@kernel
def take_apart(acc, width, first, bounds, size, known, row, radix, pairs, start, out):
    """Add cells up to each coefficient's sum: out[·, first + lane] += Σ acc[cell width + lane].

    acc    OUT  (cells * width,) float64   sums of the cells; overwritten
    out    OUT  (P, M) float64
    The others as for `fill_cells`.
    """
    used = min(out.shape[1] - first, width)
    for i in range(pairs.shape[0]):
        g, a, b, row_of = pairs[i]
        # A code, from what counts least: members before, the low one's, between, the high one's.
        low, high = min(a, b), max(a, b)
        of_low, of_high = (known[b], 1) if a == low else (1, known[b])
        turns = known[high]
        if a == b:  # its values occur together with themselves alone
            of_low, turns = known[b] + 1, 1
        once, again = radix[low] * size[low], radix[high] * size[high]
        for beyond in range(start[g], start[g + 1], again):
            for t in range(turns):
                for between in range(0, radix[high], once):
                    for u in range(known[low]):
                        code = beyond + t * radix[high] + between + u * radix[low]
                        own = row_of + u * of_low + t * of_high
                        for x in range(code, code + radix[low]):
                            for c in range(used):
                                out[own, first + c] += acc[x * width + c]
    for g in range(bounds.size - 1):
        if row[bounds[g]] < 0:  # a pair, whose columns are in other groups
            continue
        t = acc[start[g] * width : start[g + 1] * width]
        # The last member's sums, then all its values into one: the next is then the last.
        for q in range(bounds[g + 1] - 1, bounds[g] - 1, -1):
            n = radix[q] * width
            for v in range(known[q]):
                for c in range(used):
                    total = 0.0
                    for u in range(v * n + c, (v + 1) * n, width):
                        total += t[u]
                    out[row[q] + v, first + c] += total
            for v in range(1, size[q]):
                x, y = t[:n], t[v * n : (v + 1) * n]
                for u in range(n):
                    x[u] += y[u]


Coarse = NDArray[np.float32]

# Rows at a time of one output, and outputs times rows of more: they stay in the cache.
SINGLE_ROWS, LANE_CELLS = 1_024, 4_096
# Groups at a time whose tables are read for a row.
GROUPS = 16

# Plans that are kept, and bytes of the tables of each pass; at least so many tables.
PLANS, TABLES, LEAST = 256, 2**26, 8

# What a sweep of another kind takes for shares.
NO_SHARES = np.empty((0, 0), np.float32)

# What a sweep adds up, or writes.
RESIDUALS, PRODUCTS, CURVATURE, SHARES, MARGINS = range(5)

_INT, _FLOAT = "int64", "float64"
_INTS, _FLOATS = reads(_INT), reads(_FLOAT)
_ACC, _MATRIX = writes(_FLOAT), writes(_FLOAT, 2)
_PLAN = (*[_INTS] * 5, reads(_INT, 2), _INTS)
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    **{
        name: [
            (
                *kinds,
                *(reads("uint16", 2), reads("uint32", 2), _INTS, _FLOATS),
                *(reads(_FLOAT, 2), reads(_FLOAT, 2), _FLOATS, reads(classes), _FLOATS, _INT),
                *(writes("float32", 2), _MATRIX, _ACC, _MATRIX, _ACC, _MATRIX),
            )
        ]
        for name, kinds, classes in (
            ("sweep_single", [_INT], "uint8"),
            ("sweep_lanes", [_INT, _INT], "uint16"),
        )
    },
    "fill_cells": [(reads(_FLOAT, 2), _INT, _INT, *_PLAN, _ACC)],
    "take_apart": [(_ACC, _INT, _INT, *_PLAN, _MATRIX)],
}


class Gradient:
    """Loss, gradient and Hessian of logistic regression over rows; see the numpy twin."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        outputs = layout.n_outputs
        self.width = 1 if outputs == 1 else 4 if outputs <= 4 else 8 if outputs <= 8 else 16
        self.tiles = -(-outputs // self.width)
        self.height = self.tiles * self.width  # lanes of a row, those beyond the last output too
        self.rows = SINGLE_ROWS if outputs == 1 else max(LANE_CELLS // self.height // 8 * 8, 8)
        self.numeric = layout.numeric
        self.no_classes = readonly(np.empty(0, np.uint8 if outputs == 1 else np.uint16))
        # Rows that are read anew may lack other values in every block.
        self._plan_of = lru_cache(PLANS)(partial(_planned, layout))

    def packed(self, batch: Batch, weight: Floats | None) -> Packed:
        """Return a copy of a batch's rows, of these weights, for the passes."""
        columns = columns_of(batch.codes)
        absent, most = absent_in(self.layout, columns), most_cells(batch.n_rows, self.width)
        plan = self._plan_of(absent.tobytes(), most)
        return packed_by(plan, self.layout, columns, batch, weight)

    def loss_gradient(self, theta: Floats) -> Callable[[Packed], tuple[float, Floats]]:
        """Return the pass of the loss and its gradient: all float64, float32 is hardly faster."""
        sweep = _Sweep(self, RESIDUALS, theta)

        def run(packed: Packed) -> tuple[float, Floats]:
            assert packed.classes is not None
            loss, sums = sweep(packed)
            return float(loss[0] + loss[1]), sums

        return run

    def hessian(self, theta: Floats, keep: bool = False) -> Hessian:
        """Return the Hessian; 4 bytes of each output of each row are kept of rows that stay."""
        return Hessian(self, theta, keep)

    def hessian_product(self, theta: Floats, direction: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives the Hessian's product with a direction (P, M)."""
        return self.hessian(theta).product(direction)

    def curvature(self, theta: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives the diagonal of the Hessian (P, M)."""
        sweep = _Sweep(self, CURVATURE, theta)
        return lambda packed: sweep(packed)[1]

    def margins(self, theta: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives every row's margins (n_rows, M)."""
        sweep = _Sweep(self, MARGINS, theta)
        return lambda packed: sweep(packed)[1]


class Hessian:
    """Second derivatives of the loss of rows at some coefficients; see the numpy twin."""

    def __init__(self, gradient: Gradient, theta: Floats, keep: bool) -> None:
        self._gradient, self._shares = gradient, _Sweep(gradient, SHARES, theta)
        self._kept: dict[int, tuple[Packed, Coarse]] | None = {} if keep else None

    def matrix(self, products: float = 0.0) -> None:
        """Return no pass for the whole matrix: of many rows products take less."""

    def product(self, direction: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives the product with a direction (P, M).

        Each row's own part is float32.
        """
        sweep = _Sweep(self._gradient, PRODUCTS, direction)
        return lambda packed: sweep(packed, self._shares_of(packed))[1]

    def _shares_of(self, packed: Packed) -> Coarse:
        found = None if self._kept is None else self._kept.get(id(packed))
        if found is not None:
            return found[1]
        shares = np.empty((self._gradient.layout.n_outputs, padding(packed.n_rows)), np.float32)
        self._shares(packed, shares)
        if self._kept is not None:
            # The rows are kept with theirs, lest others take their place in memory.
            self._kept[id(packed)] = packed, shares
        return shares


class _Sweep:
    """One pass: coefficients or a direction as tables, of each plan when it first comes.

    Of few rows there are thousands of passes: what is the same in all of them is the gradient's.
    """

    def __init__(self, gradient: Gradient, kind: int, theta: Floats) -> None:
        self._gradient, self._kind = gradient, kind
        self._theta = readonly(np.array(theta, np.float64))
        self._tables: dict[GradientPlan, Floats] = {}

    def __call__(self, packed: Packed, shares: Coarse = NO_SHARES) -> tuple[Floats, Floats]:
        """Return loss and compensation (2,), and the sums (P, M) or the margins (n_rows, M).

        shares  OUT  (M, n_rows up to eights): written by SHARES, read by PRODUCTS
        """
        gradient, theta, plan, n = self._gradient, self._theta, packed.plan, packed.n_rows
        (n_coefficients, outputs), width = theta.shape, gradient.width
        length = int(plan.start[-1]) * width
        sweep, kinds = (sweep_lanes, (width,)) if width > 1 else (sweep_single, ())
        rows = min(gradient.rows, max(padding(n), 8))
        # One cache line more, lest all outputs of a row fall into the same cache set.
        scratch = aligned(gradient.height * (rows + 8), np.float64)
        adds = self._kind not in (SHARES, MARGINS)
        out = np.empty((n if self._kind == MARGINS else 0, outputs))
        acc = _zeros(gradient.tiles * length if adds else 0)
        sums, loss = np.zeros((1 + gradient.layout.n_numeric, outputs)), np.zeros(2)
        classes = gradient.no_classes if packed.classes is None else packed.classes
        sweep(
            *(self._kind, *kinds, packed.codes, packed.wide, plan.start),
            *(self._table(plan, length), packed.numbers, theta[gradient.numeric], theta[0]),
            *(classes, packed.weight, n, shares),
            *(scratch.reshape(gradient.height, rows + 8), acc, sums, loss, out),
        )
        if not adds:
            return loss, out
        result = np.zeros((n_coefficients, outputs))
        result[0] = sums[0]
        result[gradient.numeric] = sums[1:]
        members = _members(plan)
        for tile in range(gradient.tiles if length else 0):
            part = acc[tile * length : (tile + 1) * length]
            take_apart(part, width, tile * width, *members, result)
        return loss, result

    def _table(self, plan: GradientPlan, length: int) -> Floats:
        """Return the sums of coefficients in the cells of a plan, (tiles * length,)."""
        table = self._tables.get(plan)
        if table is None:
            most = TABLES // max(8 * self._gradient.tiles * length, 1)
            if len(self._tables) >= max(min(most, PLANS), LEAST):
                self._tables.clear()
            table = self._tables[plan] = self._filled(plan, length)
        return table

    def _filled(self, plan: GradientPlan, length: int) -> Floats:
        gradient, members = self._gradient, _members(plan)
        table = aligned(gradient.tiles * length, np.float64)
        for tile in range(gradient.tiles if length else 0):
            part = table[tile * length : (tile + 1) * length]
            fill_cells(self._theta, gradient.width, tile * gradient.width, *members, part)
        return readonly(table)


def _planned(layout: Layout, absent: bytes, most: int) -> GradientPlan:
    return plan_of(layout, np.frombuffer(absent, np.bool_), most)


def _members(plan: GradientPlan) -> tuple[Any, ...]:
    return (
        *(plan.bounds, plan.size, plan.known, plan.row, plan.radix),
        *(plan.pairs, plan.start),
    )


def _zeros(length: int) -> Floats:
    result: Floats = aligned(length, np.float64).view(np.float64)
    result[:] = 0.0
    return result


@kernel
def sweep_single(
    kind, codes, wide, start, table, numbers, slopes, intercepts, classes, weight, rows, shares,
    scratch, acc, sums, loss, out,
):  # fmt: skip
    """Pass over rows of one output: margins to factors, factors to sums of cells and columns.

    kind           IN   what is added up: RESIDUALS, PRODUCTS or CURVATURE; or written: SHARES or
                        MARGINS
    codes          IN   (narrow groups, >= rows up to eights) uint16
    wide           IN   (wide groups, >= rows up to eights) uint32
    start          IN   (groups + 1,) int64   first cell of each group, and the number of all
    table          IN   (cells,) float64   sums of coefficients, or of a direction
    numbers        IN   (p, >= rows up to eights) float64
    slopes         IN   (p, 1) float64   coefficients of the numbers
    intercepts     IN   (1,) float64
    classes        IN   (>= rows up to eights,) uint8, or empty where residuals are not asked for
    weight         IN   (>= rows up to eights,) float64, or empty
    shares         OUT  (1, >= rows up to eights) float32   P(0) P(1): written, or read by PRODUCTS
    scratch        OUT  (1, eight more than rows at a time) float64
    acc            OUT  (cells,) float64   += sums of the cells
    sums           OUT  (1 + p, 1) float64   += sums of the intercept and of the numbers
    loss           OUT  (2,) float64   the loss, and what is to be added to it
    out            OUT  (rows, 1) float64, or empty where margins are not asked for
    """
    narrow = codes.shape[0]
    most = scratch.shape[1] - 8
    for lo in range(0, rows, most):
        n = min(most, rows - lo)
        m = scratch[0]
        fill(m, 0, n + 7, intercepts[0])
        look_up(codes, start, table, lo, m[:n])
        steps.add_wide(wide, start[narrow:], table, 1, lo, n, 1, scratch)
        steps.add_numbers(numbers, slopes, lo, n, 1, scratch)
        if kind == MARGINS:
            for r in range(n):
                out[lo + r, 0] = m[r]
        elif kind == SHARES:
            steps.variances_of_odds(m, weight[:0], lo, n)
            steps.keep(m, n, shares[0], lo)
        if kind >= SHARES:
            continue
        if kind == RESIDUALS:
            steps.residuals_of_odds(m, classes, weight, lo, n, loss)
        elif kind == PRODUCTS:
            steps.products_of_odds(m, shares, weight, lo, n)
        else:
            steps.variances_of_odds(m, weight, lo, n)
        steps.scatter_single(codes, start, acc, lo, m[:n])
        steps.scatter_wide(wide, start[narrow:], acc, 1, lo, n, 1, scratch)
        steps.add_sums(numbers, kind == CURVATURE, lo, n, 1, scratch, sums)


def _tiles_of(width: int) -> tuple[Any, Any]:
    """Return what goes from the cells of a tile to margins, and back; `width` is a constant."""

    @helper
    @unrolled
    def add_cells(codes, start, table, lo, padded, scratch):
        """Add the cells of rows to margins: scratch[lane, r] += Σ_g table[cell of (g, lo + r)].

        codes    IN   (narrow groups, >= lo + padded) uint16
        start    IN   (groups + 1,) int64   first cell of each group
        table    IN   (cells * width,) float64
        padded   IN   rows, a multiple of four
        scratch  OUT  (>= width, >= padded) float64
        """
        flat, step, size = codes.reshape(-1), U(codes.shape[1]), U(width)
        for g0 in range(0, codes.shape[0], GROUPS):
            g1 = U(min(g0 + GROUPS, codes.shape[0]))
            for r in range(U(0), U(padded), U(4)):
                four = lanes.four_zeros(table, width)
                at = U(g0) * step + U(lo) + r
                for g in range(U(g0), g1):
                    b = U(start[g]) * size
                    b0, b1 = b + U(flat[at]) * size, b + U(flat[at + U(1)]) * size
                    b2, b3 = b + U(flat[at + U(2)]) * size, b + U(flat[at + U(3)]) * size
                    four = lanes.add(four, lanes.load_four(table, b0, b1, b2, b3, width))
                    at += step
                lanes.add_columns(scratch, r, U(scratch.shape[1]), four)

    @helper
    @unrolled
    def scatter_cells(codes, start, acc, lo, padded, scratch):
        """Add the factors of rows to their cells, the reverse of `add_cells`."""
        flat, step, size = codes.reshape(-1), U(codes.shape[1]), U(width)
        for g0 in range(0, codes.shape[0], GROUPS):
            g1 = U(min(g0 + GROUPS, codes.shape[0]))
            for r in range(U(0), U(padded), U(4)):
                x0, x1, x2, x3 = lanes.load_rows(scratch, r, U(scratch.shape[1]), width)
                at = U(g0) * step + U(lo) + r
                for g in range(U(g0), g1):
                    b = U(start[g]) * size
                    b0 = b + U(flat[at]) * size
                    lanes.store(acc, b0, lanes.add(lanes.load(acc, b0, width), x0))
                    b1 = b + U(flat[at + U(1)]) * size
                    lanes.store(acc, b1, lanes.add(lanes.load(acc, b1, width), x1))
                    b2 = b + U(flat[at + U(2)]) * size
                    lanes.store(acc, b2, lanes.add(lanes.load(acc, b2, width), x2))
                    b3 = b + U(flat[at + U(3)]) * size
                    lanes.store(acc, b3, lanes.add(lanes.load(acc, b3, width), x3))
                    at += step

    return add_cells, scatter_cells


(_add_4, _scatter_4), (_add_8, _scatter_8), (_add_16, _scatter_16) = map(_tiles_of, (4, 8, 16))


@kernel
def sweep_lanes(
    kind, width, codes, wide, start, table, numbers, slopes, intercepts, classes, weight, rows,
    shares, scratch, acc, sums, loss, out,
):  # fmt: skip
    """Pass over rows of k outputs, `width` of which, 4, 8 or 16, are a tile of a cell.

    As `sweep_single`, but table, acc (tiles * cells * width,); slopes (p, k); intercepts
    (k,); sums (1 + p, k); classes uint16; out (rows, k) or empty; shares (k, ...) P(c);
    scratch (tiles * width, eight more than rows at a time).
    """
    k = slopes.shape[1]
    tiles = (k + width - 1) // width
    narrow = codes.shape[0]
    most = scratch.shape[1] - 8
    length = start[start.size - 1] * width
    for lo in range(0, rows, most):
        n = min(most, rows - lo)
        padded = (n + 7) // 8 * 8
        for c in range(tiles * width):
            fill(scratch[c], 0, padded, intercepts[c] if c < k else 0.0)
        for tile in range(tiles):
            first = tile * width
            part, margins = table[tile * length :], scratch[first:]
            if width == 4:
                _add_4(codes, start, part, lo, padded, margins)
            elif width == 8:
                _add_8(codes, start, part, lo, padded, margins)
            else:
                _add_16(codes, start, part, lo, padded, margins)
            outputs = min(k - first, width)
            steps.add_wide(wide, start[narrow:], part, width, lo, n, outputs, margins)
        steps.add_numbers(numbers, slopes, lo, n, k, scratch)
        if kind == MARGINS:
            for c in range(k):
                for r in range(n):
                    out[lo + r, c] = scratch[c, r]
        elif kind == SHARES:
            steps.shares_of_margins(scratch, k, n)
            for c in range(k):
                steps.keep(scratch[c], n, shares[c], lo)
        if kind >= SHARES:
            continue
        if kind == RESIDUALS:
            steps.residuals_of_margins(scratch, k, classes, weight, lo, n, loss)
        elif kind == PRODUCTS:
            steps.products_of_shares(scratch, k, shares, weight, lo, n)
        else:
            steps.variances_of_margins(scratch, k, weight, lo, n)
        steps.add_sums(numbers, kind == CURVATURE, lo, n, k, scratch, sums)
        for tile in range(tiles):
            first = tile * width
            part, factors = acc[tile * length :], scratch[first:]
            if width == 4:
                _scatter_4(codes, start, part, lo, padded, factors)
            elif width == 8:
                _scatter_8(codes, start, part, lo, padded, factors)
            else:
                _scatter_16(codes, start, part, lo, padded, factors)
            outputs = min(k - first, width)
            steps.scatter_wide(wide, start[narrow:], part, width, lo, n, outputs, factors)
