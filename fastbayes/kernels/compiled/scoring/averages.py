"""Scoring of averaged one-dependence estimators (AODE).

Relative to naive Bayes, each one-dependence estimator is a product of lifts P(x_j | c, x_p) /
P(x_j | c), most of them near 1: a product in float64, without logarithm or exponential. A few
children at a time are joined into one code whose table holds the products of their lifts; every
value of a parent has a row of such tables. Classes are the lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans.average_plan import AverageTables
from fastbayes.kernels.compiled.plans.factor_plan import level_of, matrix
from fastbayes.kernels.compiled.plans.joint_tables import join
from fastbayes.kernels.compiled.plans.lift_tables import Kernels, Lifts
from fastbayes.kernels.compiled.scoring.log_joint import (
    BlockScorer,
    ColumnSum,
    Sum,
    by_width,
    odds_of,
)
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints, U
from fastbayes.kernels.shared.scoring import tie_of

LN_2 = float(np.log(2.0))

_INT, _FLOAT = "int64", "float64"
_SUMMED = (
    *[reads(_INT)] * 3,
    _INT,
    reads(_FLOAT),
    reads("uint16", 2),
    reads("uint64", 2),
    *[_INT] * 3,
)
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "write_lifts": [
        (
            *[reads(_FLOAT, 3), *[reads(_FLOAT, 2)] * 2, *[reads(_INT)] * 4],
            *[*[_INT] * 3, *[writes(_FLOAT)] * 3, writes(table)],
        )
        for table in (_FLOAT, "float32")
    ],
    "write_codes": [
        (
            *(reads("uint8", 2), reads("uint16", 2), reads(_INT), reads("uint16")),
            *([reads(_INT)] * 3 + [_INT] * 3),
            *(writes("uint16"), writes("uint16", 2), writes("uint64", 2)),
        )
    ],
    **{
        f"add_products_{width}": [
            (reads(table), *_SUMMED, writes(_FLOAT)) for table in (_FLOAT, "float32")
        ]
        for width in (2, 4, 8)
    },
    "add_scaled": [
        (reads(table), *_SUMMED, _INT, writes(_FLOAT, 2), *[writes(_FLOAT)] * 2)
        for table in (_FLOAT, "float32")
    ],
    "add_logs": [(*[reads(_FLOAT)] * 3, *[_INT] * 6, writes(_FLOAT), writes(_FLOAT, 2))],
}


class AverageScorer(BlockScorer):
    """Log joints, posteriors and predictions of AODE; see the numpy twin.

    `children` is called when rows are scored: for the first ones, for the first ones with
    something missing, and with something unseen; where tables of all parents would take more
    than 256 MiB, for every block of rows. Tables are of all values: `every` is never called.
    """

    def __init__(
        self,
        log_prior: Floats,
        tables: Floats,
        offsets: Ints,
        own: Floats,
        weight: Floats,
        children: Callable[[int], Any],
        precision: str = "exact",
        every: Callable[[Ints], Floats] | None = None,
        together: Callable[[Sequence[int]], Iterator[Floats]] | None = None,
    ) -> None:
        prior, offsets = np.array(log_prior, np.float64), np.array(offsets, np.int64)
        parts = (np.array(part, np.float64) for part in (tables, own, weight))
        likelihood, joint, weights = parts
        fast = precision == "fast"
        model = AverageTables(
            *(prior, likelihood, offsets, joint, weights, children, together, fast),
            partial(Lifts, KERNELS),
        )
        tie = tie_of(prior, likelihood, offsets)
        if fast:
            tie = min(tie + 2.0**-22 * len(offsets), 1e-5)
        odds = _AverageSum(model, odds=True) if len(prior) == 2 else None
        super().__init__(_AverageSum(model, odds=False), odds, tie)


class _AverageSum(Sum):
    """Log joints, or log odds: naive Bayes' reference, and the log of the sum of products."""

    def __init__(self, model: AverageTables[Lifts], odds: bool) -> None:
        super().__init__(odds_of(model.prior) if odds else model.prior, np.float64)
        self._model, self._odds = model, odds
        start = np.zeros(len(self.start))
        reference = odds_of(model.reference) if odds else model.reference
        nothing = np.empty((0, 4, len(start)))
        self._base = ColumnSum(start, reference, model.offsets, nothing, np.float64)

    def blocks(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, rows, acc) of block after block, acc[c, :rows] being the log joints."""
        model = self._model
        groups = [some for some in batch_codes if some.codes.size]
        level = level_of(groups, model.sizes)
        lifts = model.lifts(level) if groups else None
        if lifts is None:
            joint = np.empty((n_rows, len(model.prior)))
            model.slow.log_joint(batch_codes, numeric, joint)
            yield 0, n_rows, self._outputs(joint)
            return
        codes, place = matrix(groups, len(model.sizes))
        weight = model.weights(groups, n_rows, level)
        without = np.flatnonzero(weight == 0)
        for lo, n, acc in self._base.blocks(groups, (), n_rows):
            lifts.add(codes, place, readonly(weight), lo, n, self._odds, acc)
            rows = without[slice(*np.searchsorted(without, (lo, lo + n)))]
            if len(rows):
                acc[: len(self.start), rows - lo] = self._outputs(model.naive(groups, rows))
            yield lo, n, acc

    def _outputs(self, joint: Floats) -> Floats:
        """Return log joints (n, n_classes) class by class, or their log odds."""
        return np.ascontiguousarray((odds_of(joint) if self._odds else joint).T)


@helper
def _copy(x, value, n):
    """Copy n codes."""
    for r in range(n):
        value[r] = x[r]


@kernel
def write_codes(
    bytes_, codes, order, radix, bounds, within, parents, width, lo, n, code, values, quads
):  # fmt: skip
    """Write the codes of parents, and four rows' joint codes of children as one number.

    bytes_, codes  IN  (m, n_rows) uint8, uint16   a matrix of codes; the other one has no rows
    order    IN   (m,) int64   rows of `codes`, group after group
    radix    IN   (m,) uint16
    bounds   IN   (n_groups + 1,) int64
    within   IN   (n_groups,) int64   first element of each group
    parents  IN   (n_parents,) int64   rows of `codes`
    width    IN   elements of a cell
    lo       IN   first row
    n        IN   rows; up to the next multiple of four they have codes 0
    code     OUT  (any,) uint16   scratch; a multiple of four
    values   OUT  (n_parents, >= n) uint16
    quads    OUT  (>= n / 4, n_groups) uint64   four elements
    """
    size = np.uint16(width)
    for b in range(0, n, code.size):
        w = min(code.size, n - b)
        padded = (w + 3) // 4 * 4
        for i in range(parents.size):
            row, value = parents[i], values[i, b : b + padded]
            fill(value, w, value.size, 0)
            if bytes_.shape[0] > 0:
                _copy(bytes_[row, lo + b :], value, w)
            else:
                _copy(codes[row, lo + b :], value, w)
        for g in range(bounds.size - 1):
            fill(code, w, padded, 0)
            if bytes_.shape[0] > 0:
                join(bytes_, order, radix, bounds[g], bounds[g + 1], lo + b, code[:w])
            else:
                join(codes, order, radix, bounds[g], bounds[g + 1], lo + b, code[:w])
            begin = np.uint16(within[g])
            for r in range(padded):
                code[r] = np.uint16(np.uint16(code[r] * size) + begin)
            for r in range(0, padded, 4):  # LLVM reads one word
                low = U(code[r]) | U(code[r + 1]) << U(16)
                high = U(code[r + 2]) | U(code[r + 3]) << U(16)
                quads[(b + r) // 4, g] = low | high << U(32)


@kernel
def add_logs(total, power, weight, first, width, outputs, lo, at, n, logs, acc):
    """Add logs of sums: acc[first + lane, at + r] += ln(total 2^power [r, lane] / weight[lo + r]).

    total    IN   (>= n * width,) float64
    power    IN   (>= n * width,) float64, or (0,) for 0
    weight   IN   (>= lo + n,) float64, or (1,) for all rows
    first    IN   class of the first lane
    width    IN   lanes
    outputs  IN   lanes in use; 0 to add the log odds of class 1 over class 0 to acc[0]
    logs     OUT  (>= n * width,) float64   scratch
    acc      OUT  (>= first + outputs, >= at + n) float64
    """
    for i in range(n * width):
        logs[i] = lanes.log_positive(total[i])
    if power.size:
        for i in range(n * width):
            logs[i] += power[i] * LN_2
    if not outputs:
        a = acc[0, at : at + n]
        for r in range(n):
            a[r] += logs[r * width + 1] - logs[r * width]
        return
    for lane in range(outputs):
        a = acc[first + lane, at : at + n]
        for r in range(n):
            a[r] += logs[r * width + lane]
    for r in range(n):
        logs[r] = lanes.log_positive(weight[lo + r] if weight.size > 1 else weight[0])
    for lane in range(outputs):
        a = acc[first + lane, at : at + n]
        for r in range(n):
            a[r] -= logs[r]


def _sums_of(width: int) -> tuple[Any, Any, Any, Any]:
    @helper
    def multiply(table, codes, begin, end, p0, p1, p2, p3):
        """Return the products of groups begin to end - 1 for four rows, their tables from p on."""
        mask = U(0xFFFF)
        c = codes[begin]
        a0 = lanes.load(table, p0 + (c & mask), width)
        a1 = lanes.load(table, p1 + ((c >> U(16)) & mask), width)
        a2 = lanes.load(table, p2 + ((c >> U(32)) & mask), width)
        a3 = lanes.load(table, p3 + (c >> U(48)), width)
        g = begin + U(1)
        while g < end:
            c = codes[g]
            a0 = lanes.mul(a0, lanes.load(table, p0 + (c & mask), width))
            a1 = lanes.mul(a1, lanes.load(table, p1 + ((c >> U(16)) & mask), width))
            a2 = lanes.mul(a2, lanes.load(table, p2 + ((c >> U(32)) & mask), width))
            a3 = lanes.mul(a3, lanes.load(table, p3 + (c >> U(48)), width))
            g += U(1)
        return lanes.widen(a0), lanes.widen(a1), lanes.widen(a2), lanes.widen(a3)

    @kernel
    def add_products(table, begin, runs, at, row, init, values, quads, first, count, n, total):
        """Add what each parent says: total[r] += Σ_p init[x_p] Π_g table[x_p, code of (g, r)].

        table   IN   (values * row,) float64 | float32
        begin   IN   (count,) int64   first value of each parent in `table` and `init`
        runs    IN   (2 n_runs,) int64   first and last + 1 group multiplied in the table's type
        at      IN   (n_runs,) int64   first element of each run in a row
        row     IN   elements of a value
        init    IN   (values * width,) float64
        values  IN   (>= first + count, >= n) uint16
        quads   IN   (>= n / 4, n_groups) uint64   four rows' elements, within the run
        first   IN   row of `values` of the first parent
        n       IN   rows, taken as the next multiple of four
        total   OUT  (>= n * width,) float64
        """
        size, length = U(width), U(row)
        for p in range(count):
            x, base = values[first + p], U(begin[p])
            r = U(0)
            while r < U(n):
                v0, v1 = base + U(x[r]), base + U(x[r + U(1)])
                v2, v3 = base + U(x[r + U(2)]), base + U(x[r + U(3)])
                a0, a1 = lanes.load(init, v0 * size, width), lanes.load(init, v1 * size, width)
                a2, a3 = lanes.load(init, v2 * size, width), lanes.load(init, v3 * size, width)
                v0, v1, v2, v3 = v0 * length, v1 * length, v2 * length, v3 * length
                codes = quads[r >> U(2)]
                for s in range(at.size):
                    t, g0, g1 = U(at[s]), U(runs[2 * s]), U(runs[2 * s + 1])
                    b0, b1, b2, b3 = multiply(table, codes, g0, g1, v0 + t, v1 + t, v2 + t, v3 + t)
                    a0, a1 = lanes.mul(a0, b0), lanes.mul(a1, b1)
                    a2, a3 = lanes.mul(a2, b2), lanes.mul(a3, b3)
                q = r * size
                lanes.store(total, q, lanes.add(lanes.load(total, q, width), a0))
                q += size
                lanes.store(total, q, lanes.add(lanes.load(total, q, width), a1))
                q += size
                lanes.store(total, q, lanes.add(lanes.load(total, q, width), a2))
                q += size
                lanes.store(total, q, lanes.add(lanes.load(total, q, width), a3))
                r += U(4)

    @helper
    def begin_scaled(init, value, base, n, x):
        """Write what each row begins with: x[r] = init[base + value[r]]."""
        size = U(width)
        for r in range(U(n)):
            lanes.store(x, r * size, lanes.load(init, (base + U(value[r])) * size, width))

    @helper
    def multiply_scaled(table, quads, begin, end, value, base, row, at, n, x):
        """Multiply rows by the products of groups begin to end - 1, which are at `at` of a row."""
        size = U(width)
        r = U(0)
        while r < U(n):
            v0, v1 = base + U(value[r]), base + U(value[r + U(1)])
            v2, v3 = base + U(value[r + U(2)]), base + U(value[r + U(3)])
            b0, b1, b2, b3 = multiply(
                *(table, quads[r >> U(2)], begin, end),
                *(v0 * row + at, v1 * row + at, v2 * row + at, v3 * row + at),
            )
            q = r * size
            lanes.store(x, q, lanes.mul(lanes.load(x, q, width), b0))
            q += size
            lanes.store(x, q, lanes.mul(lanes.load(x, q, width), b1))
            q += size
            lanes.store(x, q, lanes.mul(lanes.load(x, q, width), b2))
            q += size
            lanes.store(x, q, lanes.mul(lanes.load(x, q, width), b3))
            r += U(4)

    @helper
    def multiply_cells(x, size, factor, at):
        """Multiply the first cells of x, `size` elements, by one: x[at + ...] = x[...] factor."""
        f = lanes.load(factor, U(0), width)
        for cell in range(U(0), U(size), U(width)):
            lanes.store(x, U(at) + cell, lanes.mul(lanes.load(x, cell, width), f))

    return add_products, begin_scaled, multiply_scaled, multiply_cells


add_products_2, _begin_2, _multiply_2, _multiply_cells_2 = _sums_of(2)
add_products_4, _begin_4, _multiply_4, _multiply_cells_4 = _sums_of(4)
add_products_8, _begin_8, _multiply_8, _multiply_cells_8 = _sums_of(8)


@kernel
def write_lifts(
    child, inverse, init, order, bounds, extents, offsets, parent, first, width,
    scratch, low, high, table,
):  # fmt: skip
    """Write products of lifts: Π_j child[a, j's code, c] inverse[j's code, c] of each joint code.

    child    IN   (>= n_values, n_slots, n_classes) float64   P(x_j | c, parent's value a)
    inverse  IN   (n_slots, n_classes) float64
    init     IN   (n_values, width) float64   values of nothing but 0 have lifts of 1
    order    IN   (m,) int64   features, group after group
    bounds   IN   (n_groups + 1,) int64
    extents  IN   (m,) int64   codes of each feature
    offsets  IN   (m + 1,) int64   first slot of each feature
    parent   IN   its own lifts are 1
    first    IN   class of the first lane
    width    IN   lanes: 2, 4 or 8
    scratch  OUT  ((1 + most cells of a group) * width,) float64
    low      OUT  (m,) float64   least positive lift of each feature, or less
    high     OUT  (m,) float64   largest lift of each feature, or more
    table    OUT  (>= n_values * elements of a row,) float64 | float32
    """
    lanes_used = min(width, inverse.shape[1] - first)
    lifts, products = scratch[:width], scratch[width:]
    at = 0
    for a in range(init.shape[0]):
        used = False
        for lane in range(width):
            used |= init[a, lane] > 0.0
        for g in range(bounds.size - 1):
            size = width
            fill(products, 0, width, 1.0)
            for q in range(bounds[g], bounds[g + 1]):
                j = order[q]
                silent = j == parent or not used
                fill(lifts, 0, width, 1.0)
                # Read and written once: they might be anywhere in what else is written.
                least, most = low[j], high[j]
                # From the last code on: the first one's products are what is multiplied.
                for v in range(extents[j] - 1, -1, -1):
                    given, alone = child[a, offsets[j] + v], inverse[offsets[j] + v]
                    for lane in range(0 if silent else lanes_used):
                        lift = given[first + lane] * alone[first + lane]
                        least = lift if 0.0 < lift < least else least
                        most = lift if lift > most else most
                        lifts[lane] = lift
                    if width == 2:
                        _multiply_cells_2(products, size, lifts, v * size)
                    elif width == 4:
                        _multiply_cells_4(products, size, lifts, v * size)
                    else:
                        _multiply_cells_8(products, size, lifts, v * size)
                low[j], high[j] = least, most
                size *= extents[j]
            for cell in range(size):
                table[at + cell] = products[cell]
            at += size


@kernel
def add_scaled(
    table, begin, runs, at, row, init, values, quads, first, count, n, width, scratch, total, power
):
    """Add what each parent says as numbers with their own exponents: total 2^power.

    Arguments as for `add_products`, and
    width    IN   lanes: 2, 4 or 8
    scratch  OUT  (2, rows * width) float64   a multiple of four rows
    power    OUT  (>= n * width,) float64   integers; very negative where total is 0
    """
    length, block = U(row), scratch.shape[1] // width
    x, e = scratch[0], scratch[1]
    bits = x.view(np.int64)
    for p in range(count):
        for b in range(0, n, block):
            rows = min(block, n - b)
            value, base = values[first + p, b:], U(begin[p])
            padded = (rows + 3) // 4 * 4
            cells = padded * width
            if width == 2:
                _begin_2(init, value, base, padded, x)
            elif width == 4:
                _begin_4(init, value, base, padded, x)
            else:
                _begin_8(init, value, base, padded, x)
            fill(e, 0, cells, 0.0)
            rescale(bits, e, cells)
            four = quads[b >> 2 :]
            for s in range(at.size):
                g0, g1, t = U(runs[2 * s]), U(runs[2 * s + 1]), U(at[s])
                if width == 2:
                    _multiply_2(table, four, g0, g1, value, base, length, t, rows, x)
                elif width == 4:
                    _multiply_4(table, four, g0, g1, value, base, length, t, rows, x)
                else:
                    _multiply_8(table, four, g0, g1, value, base, length, t, rows, x)
                rescale(bits, e, cells)
            y, f = total[b * width :], power[b * width :]
            for i in range(cells):
                own = e[i] if x[i] > 0.0 else f[i]
                most = max(own, f[i])
                y[i] = y[i] * power_of_2(f[i] - most) + x[i] * power_of_2(own - most)
                f[i] = most


@helper
def rescale(bits, exponents, n):
    """Bring normal floats > 0, given as their bits, to [1, 2), and add to their exponents."""
    for i in range(n):
        z = bits[i]
        exponents[i] += np.float64((z >> np.int64(52)) - np.int64(1023))
        one = (z & np.int64(0x000FFFFFFFFFFFFF)) | np.int64(0x3FF0000000000000)
        bits[i] = one if z != 0 else z


@helper
def power_of_2(n):
    """Return 2ⁿ for an integer n <= 0, no less than 2^-1022."""
    return lanes.scale(1.0, 6755399441055744.0 + max(n, -1022.0))


KERNELS = Kernels(
    write_lifts,
    lambda codes, *others: write_codes(*by_width(codes), *others),
    {2: add_products_2, 4: add_products_4, 8: add_products_8},
    add_scaled,
    add_logs,
)
