"""Scoring of sums of tables over a few columns each: trees, stars and their like.

Tables that share columns are joined, so that a few siblings, or a piece of a chain, are one
look-up by the kernels of naive Bayes. Only rows in which a parent is not observed need more: its
values are summed out from the leaves up, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans.factor_plan import (
    MOST_CELLS,
    JoinedTable,
    gathered,
    level_of,
    merge,
    plan_of,
)
from fastbayes.kernels.compiled.plans.joint_tables import JointTablePlan
from fastbayes.kernels.compiled.plans.weight_tables import WeightPlan, weight_plan
from fastbayes.kernels.compiled.scoring.log_joint import (
    BlockScorer,
    Sum,
    add_wide,
    odds_of,
    tolerance,
)
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import call, in_python, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.kernels.shared.hidden import HiddenCodes
from fastbayes.kernels.shared.scoring import children_first, largest_term, states_of

_INT, _FLOAT = "int64", "float64"
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "add_summed_out": [
        (
            *[reads("uint32", 2), *[reads(_INT)] * 8, reads("bool"), reads(_FLOAT), reads(_INT)],
            *[_INT, _INT, writes("bool"), *[writes(_FLOAT)] * 2, *[writes(_FLOAT, 2)] * 2],
        )
    ]
}


class FactorScorer(BlockScorer):
    """Log joints, posteriors and predictions of a sum of tables; see the numpy twin."""

    def __init__(
        self,
        log_prior: Floats,
        factors: Sequence[tuple[tuple[int, ...], Floats]],
        sizes: Ints,
        precision: str = "exact",
    ) -> None:
        prior, sizes = np.array(log_prior, np.float64), np.array(sizes, np.int64)
        n_classes = len(prior)
        shaped = [
            JoinedTable(
                tuple(features),
                np.array(table, np.float64).reshape(*sizes[list(features)] + 2, n_classes),
            )
            for features, table in factors
        ]
        coarse = precision == "fast" and n_classes > 2
        largest = sum(map(largest_term, [prior, *(factor.table for factor in shaped)]))
        dtype = np.float32 if coarse else np.float64
        joint = FactorSum(prior, shaped, sizes, dtype)
        odds = FactorSum(prior, shaped, sizes, dtype, odds=True) if n_classes == 2 else None
        super().__init__(joint, odds, tolerance(largest, coarse))


class FactorSum(Sum):
    """Tables of joint codes, merged for the codes that occur in a batch.

    What is missing or unseen takes place in every table, so there are three plans: for batches
    without either, without unseen values, and for all. Which one depends on the batch alone.
    """

    def __init__(
        self,
        prior: Floats,
        factors: Sequence[JoinedTable],
        sizes: Ints,
        dtype: type[np.floating],
        odds: bool = False,
    ) -> None:
        super().__init__(odds_of(prior) if odds else prior, dtype)
        self._factors, self._sizes, self._is_odds = factors, sizes, odds
        self._parts: dict[int, tuple[list[JoinedTable], list[JoinedTable], Floats]] = {}
        self._plans: dict[Any, list[_LookUp]] = {}
        self._weight_plans: dict[Any, list[WeightPlan]] = {}

    def steps(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield each kernel with the arguments that are the same for every block of rows."""
        groups = [group for group in batch_codes if group.codes.size]
        level = level_of(groups, self._sizes)
        _, wide, constant = self._parted(level)
        if constant.any():
            in_python()
            yield _add_constant, (constant,)
        if not groups:
            return
        if wide:
            in_python()
            codes = np.array([_joint_codes(factor, groups) for factor in wide])
            start = np.cumsum([0, *(factor.table[..., 0].size for factor in wide)])
            table = np.concatenate([part.table.reshape(-1, len(self.start)) for part in wide])
            yield partial(call, add_wide), (readonly(codes), readonly(start[:-1]), readonly(table))
        _, found = self._found(level, groups)
        for look_up in found:
            yield from self.lookups(look_up.codes(groups), partial(_plan_from, look_up.plans))

    def factors(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> list[tuple[NDArray[np.unsignedinteger], WeightPlan]] | None:
        """Return matrices of codes with their tables, None where there are constants, or wide ones.

        See `Sum`.
        """
        groups = [group for group in batch_codes if group.codes.size]
        level = level_of(groups, self._sizes)
        _, wide, constant = self._parted(level)
        if wide or constant.any() or not groups:
            return None
        key, found = self._found(level, groups)
        if key not in self._weight_plans:
            first, width = self.tiles[0]
            self._weight_plans[key] = [
                weight_plan(look_up.plans[first], len(self.start), width) for look_up in found
            ]
        plans = self._weight_plans[key]
        return [(at.codes(groups), plan) for at, plan in zip(found, plans, strict=True)]

    def _found(self, level: int, groups: list[Codes]) -> tuple[Any, list[_LookUp]]:
        """Return the look-ups of the factors of few cells, and by what they are kept."""
        key = level, tuple((g.codes.dtype.itemsize, g.features.tobytes()) for g in groups)
        if key not in self._plans:
            self._plans[key] = self._arranged(self._parted(level)[0], groups)
        return key, self._plans[key]

    def repeatable(self, complete: bool) -> bool:
        """Return whether it is known without a look at the codes which plan serves."""
        return complete

    def _parted(self, level: int) -> tuple[list[JoinedTable], list[JoinedTable], Floats]:
        """Return the merged factors of few cells, those of many, and the sum of those of none."""
        if level not in self._parts:
            outputs = len(self.start)
            factors, constant = [], np.zeros(outputs)
            for features, table in self._factors:
                table = odds_of(table) if self._is_odds else table
                if features:
                    factors.append(JoinedTable(features, table))
                else:
                    constant = _sum_of(constant, table)
            extents = np.maximum(self._sizes + level, 1)
            width = (self.tiles[0][1] if self.tiles else 1) * np.dtype(self.dtype).itemsize
            merged = merge(factors, extents, width)
            wide = [factor for factor in merged if factor.table[..., 0].size > MOST_CELLS]
            narrow = [factor for factor in merged if factor.table[..., 0].size <= MOST_CELLS]
            self._parts[level] = narrow, wide, constant
        return self._parts[level]

    def _arranged(self, factors: list[JoinedTable], groups: list[Codes]) -> list[_LookUp]:
        """Return look-ups in the matrices of codes, and of what is in several of these in one."""
        holds = [set(g.features.tolist()) if g.codes.dtype.itemsize < 3 else set() for g in groups]
        parts: dict[int, list[JoinedTable]] = {}
        for factor in factors:
            at = next((at for at, some in enumerate(holds) if some.issuperset(factor.features)), -1)
            parts.setdefault(at, []).append(factor)
        found = []
        for at, some in sorted(parts.items()):
            used = sorted({feature for factor in some for feature in factor.features})
            rows = groups[at].features.tolist() if at >= 0 else used
            place = {feature: row for row, feature in enumerate(rows)}
            plans = {
                first: plan_of(some, place, slice(first, first + width), width, self.dtype)
                for first, width in self.tiles or [(0, 1)]
            }
            found.append(_LookUp(at, used, plans))
        return found


class _LookUp(NamedTuple):
    group: int  # matrix of codes; -1 for one of these features, made from several
    features: list[int]
    plans: dict[int, JointTablePlan]  # by first output

    def codes(self, groups: list[Codes]) -> NDArray[np.unsignedinteger]:
        """Return the matrix of codes."""
        if self.group >= 0:
            return readonly(groups[self.group].codes)
        in_python()
        return gathered(self.features, groups)


def _plan_from(plans: dict[int, JointTablePlan], first: int, width: int) -> JointTablePlan:
    return plans[first]


def _sum_of(a: Floats, b: Floats) -> Floats:
    """Return a + b: inf and -inf, the odds of one class and of the other impossible, are NaN."""
    with np.errstate(invalid="ignore"):
        return a + b


def _add_constant(constant: Floats, lo: int, n: int, acc: Floats) -> None:
    acc[: len(constant), :n] = _sum_of(acc[: len(constant), :n], constant[:, None])


def _joint_codes(factor: JoinedTable, groups: Sequence[Codes]) -> NDArray[np.uint32]:
    columns = columns_of(groups)
    cell = np.zeros(groups[0].codes.shape[1], np.uint32)
    for feature, size in zip(factor.features, factor.table.shape, strict=False):
        cell *= np.uint32(size)
        cell += columns[feature]
    return cell


class TreeScorer(BlockScorer):
    """Log joints, posteriors and predictions of a forest of features; see the numpy twin."""

    def __init__(
        self,
        log_prior: Floats,
        parents: Ints,
        tables: Sequence[Floats],
        hidden: Sequence[NDArray[np.bool_]],
        precision: str = "exact",
    ) -> None:
        prior = np.array(log_prior, np.float64)
        coarse = precision == "fast" and len(prior) > 2
        dtype = np.float32 if coarse else np.float64
        forest = _Forest(prior, parents, tables, hidden)
        joint = _TreeSum(forest, dtype, odds=False)
        odds = _TreeSum(forest, dtype, odds=True) if len(prior) == 2 else None
        super().__init__(joint, odds, tolerance(forest.largest, coarse))


class _Forest:
    """The arrays of a tree model, as its kernel takes them."""

    def __init__(
        self,
        prior: Floats,
        parents: Ints,
        tables: Sequence[Floats],
        hidden: Sequence[NDArray[np.bool_]],
    ) -> None:
        self.prior = prior
        above = np.array(parents, np.int64)
        self.tables = [np.array(table, np.float64) for table in tables]
        flags = [np.array(codes, np.bool_) for codes in hidden]
        lengths = np.array([len(codes) for codes in flags], np.int64)
        self.sizes = lengths - 2
        order = children_first(above)
        states = np.array([states_of(codes) for codes in flags], np.int64)
        self.largest = sum(map(largest_term, [prior, *self.tables])) + float(np.log(states).sum())
        for j, parent in enumerate(above.tolist()):
            # Without values there is nothing to sum over: the code of missing stands for them.
            if parent >= 0 and lengths[parent] == 2 and flags[parent].all():
                above[j], self.tables[j] = -1, self.tables[j][:1]
        inner = [j for j in order if flags[j].any() and (above == j).any()]
        self._hidden = HiddenCodes(flags, inner)
        # Children of one parent stand together, behind those without.
        children = np.argsort(above, kind="stable")
        first = np.searchsorted(above[children], np.arange(len(above) + 1))
        start = np.cumsum([0, *(table.size for table in self.tables)])
        slots = np.cumsum([0, *lengths])
        below = np.cumsum(states) - states
        self._arrays = tuple(
            readonly(np.asarray(array, np.int64))
            for array in (inner, above, children, first, states, slots, start, below)
        )
        self._flags = readonly(np.concatenate([np.empty(0, np.bool_), *flags]))
        flat = np.concatenate([np.empty(0), *(table.ravel() for table in self.tables)])
        self._flat = readonly(flat)
        self._room = int(states.sum()), int(max(states, default=1))
        self.parents = above
        # What is added to every row says nothing of what is not observed, nor given it.
        for j, parent in enumerate(above.tolist()):
            self.tables[j] = self.tables[j].copy()
            self.tables[j][:, flags[j]] = 0.0
            if parent >= 0:
                self.tables[j][flags[parent]] = 0.0

    def factors(self) -> list[JoinedTable]:
        """Return what is added where every parent is observed."""
        return [
            JoinedTable((j,), table[0]) if parent < 0 else JoinedTable((parent, j), table)
            for j, (parent, table) in enumerate(
                zip(self.parents.tolist(), self.tables, strict=True)
            )
        ]

    def rows(self, batch_codes: Sequence[Codes], n_rows: int) -> Ints:
        """Return the rows in which a parent is not observed."""
        return np.flatnonzero(self._hidden.rows(batch_codes, n_rows))

    def summed_out(
        self, batch_codes: Sequence[Codes], odds: bool
    ) -> Callable[[Ints, int, Floats], None]:
        """Return a function (rows, lo, acc) that adds what these rows need besides the tables."""
        k, columns = len(self.prior), columns_of(batch_codes)
        scratch = (
            np.zeros(len(self.sizes), np.bool_),
            *(np.empty(self._room[0] * k), np.empty(self._room[1] * k), np.empty((3, k))),
        )

        def add(rows: Ints, lo: int, acc: Floats) -> None:
            codes = np.empty((len(self.sizes), len(rows)), np.uint32)
            for j, some in enumerate(codes):
                some[:] = columns[j].take(rows)
            add_summed_out(
                *(readonly(codes), *self._arrays, self._flags, self._flat),
                *(readonly(rows), lo, int(odds), *scratch, acc),
            )

        return add


class _TreeSum(FactorSum):
    def __init__(self, forest: _Forest, dtype: type[np.floating], odds: bool) -> None:
        super().__init__(forest.prior, forest.factors(), forest.sizes, dtype, odds)
        self._forest = forest

    def factors(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> list[tuple[NDArray[np.unsignedinteger], WeightPlan]] | None:
        """Return matrices of codes with their tables; None where a parent is not observed."""
        if len(self._forest.rows(batch_codes, n_rows)):
            return None
        return super().factors(batch_codes, numeric, n_rows)

    def blocks(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, rows, acc) of block after block, acc[c, :rows] being the sums."""
        hidden = self._forest.rows(batch_codes, n_rows)
        add = self._forest.summed_out(batch_codes, self._is_odds) if len(hidden) else None
        for lo, n, acc in super().blocks(batch_codes, numeric, n_rows):
            rows = hidden[slice(*np.searchsorted(hidden, (lo, lo + n)))]
            if add is not None and len(rows):
                add(rows, lo, acc)
            yield lo, n, acc


@kernel
def add_summed_out(
    codes, inner, parents, children, first, states, slots, start, places, flags, table,
    rows, lo, odds, observed, below, terms, scratch, acc,
):  # fmt: skip
    """Add ln Σ P(x | c) over parents that are not observed: acc[c, row - lo], from the leaves up.

    codes     IN   (m, n) uint32   of these rows
    inner     IN   (any,) int64   features with children, each before its parent
    parents   IN   (m,) int64   -1 for none
    children  IN   (m,) int64   those of feature j are children[first[j]:first[j + 1]]
    first     IN   (m + 1,) int64
    states    IN   (m,) int64   values that a feature is summed over, the first ones
    slots     IN   (m + 1,) int64   first flag of each feature
    start     IN   (m + 1,) int64   first entry of each feature's table
    places    IN   (m,) int64   first state of each feature in `below`
    flags     IN   (n_codes,) bool   codes that are not observations
    table     IN   (entries,) float64   tables (codes of the parent, codes, n_classes)
    rows      IN   (n,) int64
    lo        IN   row that is acc's first
    odds      IN   whether to add to the log odds of class 1 over class 0 alone
    observed  OUT  (m,) bool   scratch, all False: something below this feature is observed
    below     OUT  (states n_classes,) float64   scratch: what that says of each state
    terms     OUT  (most states n_classes,) float64   scratch
    scratch   OUT  (3, n_classes) float64
    acc       OUT  (>= n_classes or 1, > largest row - lo) float64
    """
    k = scratch.shape[1]
    top, mass, value = scratch[0], scratch[1], scratch[2]
    for place in range(rows.size):
        r = rows[place]
        for j in inner:
            if not flags[slots[j] + np.int64(codes[j, place])]:
                continue
            size, heard = states[j] * k, observed[j]
            rest = below[places[j] * k : places[j] * k + size]
            observed[j] = False
            for q in range(first[j], first[j + 1]):
                child = children[q]
                code = np.int64(codes[child, place])
                if flags[slots[child] + code]:
                    continue
                at = start[child] + code * k
                for v in range(0, size, k):
                    for c in range(k):
                        rest[v + c] = (rest[v + c] if heard else 0.0) + table[at + c]
                    at += (slots[child + 1] - slots[child]) * k
                heard = True
            if not heard:
                continue
            above, begin, end, gone = parents[j], 0, 1, False
            if above >= 0:
                begin = np.int64(codes[above, place])
                end = begin + 1
                gone = flags[slots[above] + begin]
                if gone:
                    begin, end = 0, states[above]
            for u in range(begin, end):
                at = start[j] + u * (slots[j + 1] - slots[j]) * k
                own = table[at : at + size]
                for i in range(size):
                    terms[i] = own[i] + rest[i]
                fill(top, 0, k, -np.inf)
                for v in range(0, size, k):
                    for c in range(k):
                        top[c] = max(top[c], terms[v + c])
                for c in range(k):
                    top[c] = top[c] if top[c] > -np.inf else 0.0
                    mass[c] = 0.0
                for v in range(0, size, k):
                    for c in range(k):
                        terms[v + c] -= top[c]
                for i in range(size):
                    terms[i] = lanes.exp_negative(terms[i])
                for v in range(0, size, k):
                    for c in range(k):
                        mass[c] += terms[v + c]
                for c in range(k):
                    value[c] = top[c] + lanes.log_positive(mass[c])
                if gone:
                    of = (places[above] + u) * k
                    for c in range(k):
                        below[of + c] = (below[of + c] if observed[above] else 0.0) + value[c]
                elif odds:
                    acc[0, r - lo] += value[1] - value[0]
                else:
                    for c in range(k):
                        acc[c, r - lo] += value[c]
            if gone:
                observed[above] = True
