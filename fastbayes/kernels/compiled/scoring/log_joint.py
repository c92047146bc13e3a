"""Scoring of naive Bayes: log joints, posteriors and predictions of blocks of rows.

Rows are scored in blocks, class-major: acc[c, r]. With two classes one row of log odds is
enough. A few columns at a time are joined into one 16-bit code whose table holds the sums of
their log likelihoods, so that memory is touched once for all of them.

Where all terms are such tables, posteriors and predictions of more classes come from products of
weights instead, row-major: weights[r, c].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans.joint_tables import JointTablePlan, join, join_tables, look_up
from fastbayes.kernels.compiled.plans.weight_tables import (
    MOST_REACH,
    WeightPlan,
    weight_plan,
    weights_of,
)
from fastbayes.kernels.compiled.scoring.density import add_curve, add_student
from fastbayes.kernels.compiled.scoring.posterior import (
    heaviest,
    normalise,
    to_class,
    to_posterior,
    to_rows,
)
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.compiled.simd.memory import borrow
from fastbayes.kernels.dispatch import call, helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, U
from fastbayes.kernels.shared.density import odds_of_curve
from fastbayes.kernels.shared.scoring import EXACT, Gaussian, largest_sum

# Rows and groups at a time: codes stay in the second-level cache, and rows of codes do not fall
# into the same cache set. Sums of a block of rows stay there, too.
SINGLE_ROWS, LANE_ROWS, GROUPS = 8_192, 2_080, 16
BLOCK_SUMS = 65_536
WIDTHS = (4, 8, 16)  # lanes
# Weights are passed over twice, so that fewer of them do.
BLOCK_WEIGHTS = 32_768

_INT, _FLOAT = "int64", "float64"
_CODES = (reads("uint8", 2), reads("uint16", 2))
_PLAN = (*_CODES, reads(_INT), reads("uint16"), reads(_INT), reads(_INT))
_CODE, _ACC = writes("uint16", 2), writes(_FLOAT, 2)
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "begin": [(reads(_FLOAT), _ACC)],
    "add_single": [(*_PLAN, reads(_FLOAT), _CODE, _INT, _INT, _ACC)],
    "add_lanes": [
        (*_PLAN, reads(table), _INT, _INT, _CODE, _INT, _INT, _ACC) for table in (_FLOAT, "float32")
    ],
    "multiply_lanes": [(*_PLAN, reads(_FLOAT), _CODE, _INT, _INT, reads(_FLOAT, 2), _ACC)],
    "add_wide": [(reads("uint32", 2), reads(_INT), reads(_FLOAT, 2), _INT, _INT, _ACC)],
    "add_gaussian": [(*[reads(_FLOAT)] * 2, reads(_FLOAT, 3), _INT, _INT, _INT, _ACC)],
}


class Sum:
    """What is added up for each row: a start and terms, for several outputs.

    The outputs are the log joints of the classes, or one: the log odds of class 1 over class 0.
    `start` is also what stands in where every class is impossible. A subclass says what is added.
    """

    def __init__(self, start: Floats, dtype: type[np.floating]) -> None:
        self.start = readonly(start)
        self.dtype = dtype
        self.tiles: list[tuple[int, int]] = []
        first = 0
        while first < len(start) > 1:
            left = len(start) - first
            width = next((width for width in WIDTHS if left <= width), WIDTHS[-1])
            self.tiles.append((first, width))
            first += width
        self._height = first or 1
        self._prior = weights_of(start)

    def blocks(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, rows, acc) of block after block, acc[c, :rows] being the sums."""
        rows = min(max(BLOCK_SUMS // self._height, 2 * LANE_ROWS), max(-(-n_rows // 4), 1) * 4)
        start = readonly(self.start)
        # One cache line more, lest all outputs of a row fall into the same cache set.
        acc = np.zeros((self._height, rows + 8))
        steps = list(self.steps(batch_codes, numeric))
        for lo in range(0, n_rows, rows):
            n = min(rows, n_rows - lo)
            call(begin, start, acc)
            for add, arguments in steps:
                add(*arguments, lo, n, acc)
            yield lo, n, acc

    def steps(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield what adds a term with the arguments that are the same for every block of rows."""
        raise NotImplementedError

    def factors(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> list[tuple[NDArray[np.unsignedinteger], WeightPlan]] | None:
        """Return matrices of codes with the tables that multiply weights.

        None where other terms than tables are added. Asked only if there is one tile.
        """
        return None

    def product(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Product | None:
        """Return the product whose logs are these sums, up to a term that all classes share.

        None where there is none, or where it can leave the range of numbers; and of coarse tables,
        whose sums are what posteriors and log joints have in common.
        """
        if len(self.tiles) != 1 or self.dtype != np.float64:
            return None
        factors = self.factors(batch_codes, numeric, n_rows)
        if not factors:
            return None
        if self._prior.reach + sum(plan.reach for _, plan in factors) > MOST_REACH:
            return None
        return Product(self._prior.values, self.tiles[0][1], factors)

    def repeatable(self, complete: bool) -> bool:
        """Return whether adding the terms of rows does nothing but call kernels.

        complete  whether no value is missing or unseen
        """
        return False

    def lookups(
        self, codes: NDArray[np.unsignedinteger], plan_of: Callable[[int, int], JointTablePlan]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield the kernels that add joint tables over the rows of one matrix of codes.

        plan_of(first, width) gives the tables of `width` outputs from `first` on; width 1 is one
        output that is not padded.
        """
        if not self.tiles:
            scratch = np.empty((4, SINGLE_ROWS), np.uint16)
            yield partial(call, add_single), (*by_width(codes), *plan_of(0, 1), scratch)
        else:
            scratch = np.empty((GROUPS, LANE_ROWS), np.uint16)
            for first, width in self.tiles:
                arguments = *by_width(codes), *plan_of(first, width), width, first, scratch
                yield partial(call, add_lanes), arguments


def by_width(codes: NDArray[np.unsignedinteger]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a matrix of codes as one of uint8 and one of uint16, of which the other has no rows.

    A kernel of both takes half the time to compile of one for each: they differ in little.
    """
    return (codes, _NO_CODES) if codes.itemsize == 1 else (_NO_BYTES, codes)


_NO_BYTES, _NO_CODES = (readonly(np.empty((0, 0), kind)) for kind in (np.uint8, np.uint16))


class Product:
    """What is multiplied up for each row: a prior and factors, for several classes.

    Parameters
    ----------
    prior
        (n_classes,) weights of the classes; also what stands in where every class is impossible.
    width
        Weights of a row, those beyond the classes being 0.
    factors
        Matrices of codes, and the tables for each.

    Attributes
    ----------
    rounding
        How close logs of weights are that differ by the rounding of products alone.
    """

    def __init__(
        self,
        prior: Floats,
        width: int,
        factors: Sequence[tuple[NDArray[np.unsignedinteger], WeightPlan]],
    ) -> None:
        self.prior = readonly(prior)
        self._width = width
        self._factors = factors
        self.rounding = EXACT * sum(len(plan.bounds) for _, (plan, _) in factors)

    def blocks(self, n_rows: int) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, rows, weights) of block after block: weights[:rows, c]."""
        rows = min(BLOCK_WEIGHTS // self._width, max(-(-n_rows // 4), 1) * 4)
        weights = borrow("weights", (rows, self._width), np.float64)
        scratch = borrow("joint codes", (GROUPS, LANE_ROWS), np.uint16)
        start = np.zeros((1, self._width))
        start[0, : len(self.prior)] = self.prior
        for lo in range(0, n_rows, rows):
            n = min(rows, n_rows - lo)
            source = readonly(start)
            for codes, (plan, _) in self._factors:
                arguments = *by_width(codes), *plan, scratch, lo, n, source, weights
                call(multiply_lanes, *arguments)
                source = readonly(weights)
            yield lo, n, weights


class BlockScorer:
    """Log joints, posteriors and predictions from sums over blocks of rows.

    Parameters
    ----------
    joint
        The sum of each class's log joint.
    odds
        With two classes their log odds, which are cheaper; else None.
    tie
        Log joints of a row this close to the best are equal to it.
    """

    def __init__(self, joint: Sum, odds: Sum | None, tie: float) -> None:
        self._joint, self._odds, self._tie = joint, odds, tie
        self._n_classes = len(joint.start)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write the log joint of every row and class; see `JointScorer`."""
        for lo, n, acc in self._joint.blocks(batch_codes, numeric, len(out)):
            to_rows(acc, out[lo : lo + n])

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> Any:
        """Write P(c | x); return how many rows took the prior; see `JointScorer`.

        Where the calls are noted down to be repeated, the number returned counts on.
        """
        total = self._odds or self._joint
        lost = np.zeros(1, np.int64)
        if (product := total.product(batch_codes, numeric, len(out))) is not None:
            tie = self._tie + product.rounding
            for lo, n, weights in product.blocks(len(out)):
                normalise(weights, product.prior, tie, out[lo : lo + n], lost)
            return lost.reshape(())
        for lo, n, acc in total.blocks(batch_codes, numeric, len(out)):
            to_posterior(acc, total.start, self._tie, out[lo : lo + n], lost)
        return lost.reshape(())

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> Any:
        """Write the most probable classes; return how many rows took the prior, as `posterior`."""
        total = self._odds or self._joint
        lost = np.zeros(1, np.int64)
        if (product := total.product(batch_codes, numeric, len(out))) is not None:
            tie = self._tie + product.rounding
            for lo, n, weights in product.blocks(len(out)):
                heaviest(weights, product.prior, tie, out[lo : lo + n], lost)
            return lost.reshape(())
        for lo, n, acc in total.blocks(batch_codes, numeric, len(out)):
            to_class(acc, total.start, self._tie, self._n_classes, out[lo : lo + n], lost)
        return lost.reshape(())

    def repeatable(self, complete: bool) -> bool:
        """Return whether scoring rows does nothing with them but call kernels.

        complete  whether no value is missing or unseen
        """
        return all(s.repeatable(complete) for s in (self._joint, self._odds) if s is not None)


def tolerance(largest: float, coarse: bool) -> float:
    """Return how close log joints are equal, for the largest sum that tables can form."""
    return min(2.0**-22 * largest, 1e-5) if coarse else EXACT * largest


def odds_of(tables: Floats) -> Floats:
    """Return the log odds (..., 1) of log joints (..., 2).

    ±inf where one class is impossible, NaN where both are: sums keep exactly that.
    """
    with np.errstate(invalid="ignore"):
        return np.diff(tables, axis=-1)


class NaiveScorer(BlockScorer):
    """Log joints, posteriors and predictions of naive Bayes; see the numpy twin."""

    def __init__(
        self,
        log_prior: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        gaussian: Gaussian | None = None,
        precision: str = "exact",
        curves: Mapping[int, Any] | None = None,
        students: Mapping[int, Floats] | None = None,
    ) -> None:
        prior = np.array(log_prior, np.float64)
        tables = np.array(tables, np.float64)
        offsets = np.array(offsets, np.int64)
        n_classes = len(prior)
        normals = np.empty((0, 4, n_classes)) if gaussian is None else np.stack(gaussian, axis=1)
        pieces, tails = dict(curves or {}), dict(students or {})
        coarse = precision == "fast" and n_classes > 2
        dtype = np.float32 if coarse else np.float64
        joint, odds = ColumnSum(prior, tables, offsets, normals, dtype, pieces, tails), None
        if n_classes == 2:
            normals[:, 1:3] *= [-1, 1]
            pieces = {p: [(0, odds_of_curve(both))] for p, ((_, both),) in pieces.items()}
            signs = np.ones((5, 2))
            signs[3:, 0] = -1
            tails = {place: parts * signs for place, parts in tails.items()}
            given = odds_of(prior), odds_of(tables), offsets, normals
            odds = ColumnSum(*given, np.float64, pieces, tails)
        largest = largest_sum(prior, tables, offsets, (curves or {}).values())
        super().__init__(joint, odds, tolerance(largest, coarse))


def from_class(first: int) -> Callable[..., None]:
    """Return `add_curve` for curves of the classes from one on."""

    def add(
        x: Any, place: Any, bounds: Any, ends: Any, rows: Any, lo: int, n: int, acc: Any
    ) -> None:
        call(add_curve, x, place, bounds, ends, rows, lo, n, acc[first:])

    return add


class ColumnSum(Sum):
    """Tables and densities of single columns.

    curves (n_numeric, 4, n_curves): mean, precision, constant and rest of one Gaussian per output,
    or of both classes' in the odds, the first with its sign changed. pieces and students: curves,
    and Student's t, of the columns that have none of these, by their place.
    """

    def __init__(
        self,
        start: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        curves: Floats,
        dtype: type[np.floating],
        pieces: Mapping[int, Any] | None = None,
        students: Mapping[int, Floats] | None = None,
    ) -> None:
        super().__init__(start, dtype)
        self._pieces = {
            place: [(from_class(first), [readonly(a) for a in curve]) for first, curve in found]
            for place, found in (pieces or {}).items()
        }
        self._students = {place: readonly(parts) for place, parts in (students or {}).items()}
        self._tables = readonly(tables)
        self._offsets = offsets
        # Two columns at a time: the last of an odd number goes with one that adds nothing.
        padded = np.zeros((len(curves) + len(curves) % 2, *curves.shape[1:]))
        padded[: len(curves)] = curves
        self._curves = [readonly(padded[j : j + 2]) for j in range(0, len(curves), 2)]
        self._plans: dict[tuple[bytes, int], JointTablePlan] = {}
        self._weight_plans: dict[bytes, WeightPlan] = {}

    def steps(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield each kernel with the arguments that are the same for every block of rows."""
        for group in batch_codes:
            if not len(group.features):
                continue
            codes = readonly(group.codes)
            if codes.dtype.itemsize > 2:
                yield (
                    partial(call, add_wide),
                    (codes, readonly(self._offsets[group.features]), self._tables),
                )
            else:
                yield from self.lookups(codes, partial(self._plan, group.features))
        for place, pieces in self._pieces.items():
            for add, curve in pieces:
                yield add, (readonly(numeric[place]), *curve)
        step = int(len(self.start) > 1)
        for place, parts in self._students.items():
            yield partial(call, add_student), (readonly(numeric[place]), parts, step)
        others = self._pieces.keys() | self._students.keys()
        columns = [readonly(x) for place, x in enumerate(numeric) if place not in others]
        for j, curves in zip(range(0, len(columns), 2), self._curves, strict=True):
            pair = columns[j], columns[min(j + 1, len(columns) - 1)]
            yield partial(call, add_gaussian), (*pair, curves, step)

    def factors(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> list[tuple[NDArray[np.unsignedinteger], WeightPlan]] | None:
        """Return matrices of codes with their tables, None where there are numbers, or wide codes.

        See `Sum`.
        """
        groups = [group for group in batch_codes if len(group.features)]
        if len(numeric) or any(group.codes.dtype.itemsize > 2 for group in groups):
            return None
        return [(readonly(group.codes), self._weight_plan(group.features)) for group in groups]

    def _weight_plan(self, features: NDArray[np.int64]) -> WeightPlan:
        key = features.tobytes()
        if key not in self._weight_plans:
            width = self.tiles[0][1]
            plan = self._plan(features, 0, width)
            self._weight_plans[key] = weight_plan(plan, len(self.start), width)
        return self._weight_plans[key]

    def repeatable(self, complete: bool) -> bool:
        """Return that all terms are added by kernels."""
        return True

    def _plan(self, features: NDArray[np.int64], first: int, width: int) -> JointTablePlan:
        """Return the joint tables of these features for `width` outputs from `first` on."""
        key = features.tobytes(), first
        plan = self._plans.get(key)
        if plan is None:
            outputs = slice(first, first + width)
            bounds = zip(self._offsets[features], self._offsets[features + 1], strict=True)
            tables = [self._tables[begin:end, outputs] for begin, end in bounds]
            plan = self._plans[key] = join_tables(tables, width, self.dtype)
        return plan


@kernel
def begin(start, acc):
    """Set every row of sums to where they start: acc[c, r] = start[c], 0 beyond the outputs.

    start  IN   (n_outputs,) float64
    acc    OUT  (>= n_outputs, any) float64
    """
    for c in range(acc.shape[0]):
        acc[c, :] = start[c] if c < start.size else 0.0


@kernel
def add_single(bytes_, codes, order, radix, bounds, start, table, code, lo, n, acc):
    """Add one number per row and group: acc[0, r] += Σ_g table[start[g] + joint code of (g, r)].

    bytes_, codes, order, radix, bounds, start, table  IN  as for `join_groups`, and the tables
    code  OUT  (4, any) uint16   scratch
    lo    IN   row of `codes` that is acc's first
    n     IN   rows
    acc   OUT  (1, >= n) float64
    """
    groups = bounds.size - 1
    for b in range(0, n, code.shape[1]):
        w = min(code.shape[1], n - b)
        a = acc[0, b : b + w]
        for g in range(0, groups, 4):
            together = min(4, groups - g)
            join_groups(bytes_, codes, order, radix, bounds, g, together, lo + b, w, w, code)
            look_up(code[:together], start[g:], table, 0, a)


@helper
def join_groups(bytes_, codes, order, radix, bounds, first, together, lo, n, padded, code):
    """Write the joint codes of some groups of columns, 0 in the rows from n up to `padded`.

    bytes_, codes  IN  (m, n_rows) uint8, uint16   a matrix of codes; the other one has no rows
    order, radix, bounds  IN  its plan
    first     IN   group
    together  IN   groups
    lo        IN   row of `codes`
    code      OUT  (>= together, >= padded) uint16
    """
    for k in range(together):
        begin, end = bounds[first + k], bounds[first + k + 1]
        if bytes_.shape[0] > 0:
            join(bytes_, order, radix, begin, end, lo, code[k, :n])
        else:
            join(codes, order, radix, begin, end, lo, code[k, :n])
        code[k, n:padded] = 0


def _terms_of(width: int) -> tuple[Any, Any]:
    """Return what adds, and multiplies, the terms of rows of so many lanes, a constant."""

    @helper
    def gathered(table, start, code, r, k):
        """Return the cells of four rows of a group."""
        t, c, size = U(start[k]), code[k], U(width)
        return lanes.load_four(
            table,
            t + U(c[r]) * size,
            t + U(c[r + U(1)]) * size,
            t + U(c[r + U(2)]) * size,
            t + U(c[r + U(3)]) * size,
            width,
        )

    @helper
    def add_terms(start, table, code, padded, at, acc):
        """Add to sums: acc.flat[at + lane * columns + r] += Σ_g table[start[g] + ... + lane]."""
        stride = U(acc.shape[1])
        for r in range(U(0), U(padded), U(4)):
            four = lanes.four_zeros(table, width)
            for k in range(U(code.shape[0])):
                four = lanes.add(four, gathered(table, start, code, r, k))
            lanes.add_columns(acc, at + r, stride, four)

    @helper
    def multiply_terms(start, table, code, padded, first, step, source, weights):
        """Multiply rows of weights from the first on, which are `step` apart in the source."""
        size = U(width)
        at, place = U(first) * size, U(first) * step
        for r in range(U(0), U(padded), U(4)):
            four = lanes.load_four(
                source, place, place + step, place + U(2) * step, place + U(3) * step, width
            )
            for k in range(U(code.shape[0])):
                four = lanes.mul(four, gathered(table, start, code, r, k))
            lanes.store_rows(weights, at, size, four)
            at += U(4) * size
            place += U(4) * step

    return add_terms, multiply_terms


(_add_4, _multiply_4), (_add_8, _multiply_8), (_add_16, _multiply_16) = map(_terms_of, WIDTHS)


@kernel
def add_lanes(
    bytes_, codes, order, radix, bounds, start, table, width, first, code, lo, n, acc
):  # fmt: skip
    """Add `width` outputs per row: acc[first + lane, r] += Σ_g table[start[g] + ... + lane].

    bytes_, codes, order, radix, bounds, start, table  IN  as for `join_groups`, and the tables
    width  IN   one of WIDTHS
    first  IN   output of the first lane
    code   OUT  (groups at a time, rows at a time) uint16   scratch; a multiple of 4 rows
    lo     IN   row of `codes` that is acc's first
    n      IN   rows
    acc    OUT  (>= first + width, >= n) float64   a multiple of 4 columns
    """
    groups = bounds.size - 1
    for b in range(0, n, code.shape[1]):
        w = min(code.shape[1], n - b)
        padded = (w + 3) // 4 * 4
        at = U(first * acc.shape[1] + b)
        for g0 in range(0, groups, code.shape[0]):
            together = min(code.shape[0], groups - g0)
            join_groups(bytes_, codes, order, radix, bounds, g0, together, lo + b, w, padded, code)
            starts, some = start[g0:], code[:together]
            if width == 4:
                _add_4(starts, table, some, padded, at, acc)
            elif width == 8:
                _add_8(starts, table, some, padded, at, acc)
            else:
                _add_16(starts, table, some, padded, at, acc)


@kernel
def multiply_lanes(
    bytes_, codes, order, radix, bounds, start, table, code, lo, n, source, weights
):  # fmt: skip
    """Multiply rows of weights: weights[r] = source[r] Π_g table[start[g] + joint code ...].

    bytes_, codes, order, radix, bounds, start, table  IN  as for `join_groups`, and the tables;
                                                           at least one
    code     OUT  (groups at a time, rows at a time) uint16   scratch; a multiple of 4 rows
    lo       IN   row of `codes` that is the first of the weights
    n        IN   rows
    source   IN   (1, width) float64, the same for all rows; or the weights themselves
    weights  OUT  (>= n up to fours, width) float64   at least two rows, of one of WIDTHS
    """
    groups, width = bounds.size - 1, weights.shape[1]
    for b in range(0, n, code.shape[1]):
        w = min(code.shape[1], n - b)
        padded = (w + 3) // 4 * 4
        old, step = source, U(0) if source.shape[0] == 1 else U(width)
        for g0 in range(0, groups, code.shape[0]):
            together = min(code.shape[0], groups - g0)
            join_groups(bytes_, codes, order, radix, bounds, g0, together, lo + b, w, padded, code)
            starts, some = start[g0:], code[:together]
            if width == 4:
                _multiply_4(starts, table, some, padded, b, step, old, weights)
            elif width == 8:
                _multiply_8(starts, table, some, padded, b, step, old, weights)
            else:
                _multiply_16(starts, table, some, padded, b, step, old, weights)
            old, step = weights, U(width)


@kernel
def add_wide(codes, offsets, tables, lo, n, acc):
    """Add columns of very many values one by one: acc[c, r] += tables[offsets[i] + codes[i, r], c].

    codes    IN   (m, n_rows) uint32
    offsets  IN   (m,) int64
    tables   IN   (n_slots, n_outputs) float64
    acc      OUT  (>= n_outputs, >= n) float64
    """
    for i in range(codes.shape[0]):
        x = codes[i, lo : lo + n]
        t = tables[offsets[i] :]
        for r in range(n):
            row = t[U(x[r])]
            for c in range(tables.shape[1]):
                acc[c, r] += row[c]


@kernel
def add_gaussian(x, y, curves, step, lo, n, acc):
    """Add two numeric columns: acc[c step, r] += Σ constant - ((x[r] - mean) - rest)² precision.

    x, y    IN   (n_rows,) float64   NaN contributes 0
    curves  IN   (2, 4, n_curves) float64   mean, precision, constant and rest for x and for y
    step    IN   1, or 0 to add all curves into acc[0]
    acc     OUT  (>= n_curves or 1, >= n) float64
    """
    for b in range(0, n, 512):
        w = min(512, n - b)
        u, v = x[lo + b : lo + b + w], y[lo + b : lo + b + w]
        for c in range(curves.shape[2]):
            a = acc[c * step, b : b + w]
            mu, hu, cu = curves[0, 0, c], -curves[0, 1, c], curves[0, 2, c]
            mv, hv, cv = curves[1, 0, c], -curves[1, 1, c], curves[1, 2, c]
            ru, rv = curves[0, 3, c], curves[1, 3, c]
            for r in range(w):
                du = (u[r] - mu) - ru
                dv = (v[r] - mv) - rv
                tu = lanes.fma(du * du, hu, cu)
                tv = lanes.fma(dv * dv, hv, cv)
                a[r] += (tu if tu == tu else 0.0) + (tv if tv == tv else 0.0)
