"""Scoring of sums of tables over a few columns each: trees, stars and their like.

Tables that share columns are joined, so that a few siblings, or a piece of a chain, are one
look-up by the kernels of naive Bayes. Only rows in which a parent is not observed need more: its
values are summed out from the leaves up, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes._jit import kernel, readonly, reads, writes
from fastbayes.batch import Codes
from fastbayes.kernels import lanes
from fastbayes.kernels.factor_plan import (
    MOST_CELLS,
    Factor,
    columns_of,
    gathered,
    level_of,
    merge,
    plan_of,
)
from fastbayes.kernels.joint_tables import Plan
from fastbayes.kernels.log_joint import BlockScorer, Sum, add_wide, odds_of, tolerance
from fastbayes.plain.factors import children_first, largest_term

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Cells of rows that are summed out at a time.
HIDDEN_CELLS = 2**19

_INT, _FLOAT = "int64", "float64"
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "write_summed_out": [
        (
            reads("uint32", 2),
            *[reads(_INT)] * 6,
            reads("bool"),
            *[reads(_FLOAT)] * 2,
            reads(_INT),
            *[_INT] * 2,
            writes("bool"),
            *[writes(_FLOAT)] * 2,
            *[writes(_FLOAT, 2)] * 2,
        )
    ]
}


class FactorScorer(BlockScorer):
    """Log joints, posteriors and predictions of a sum of tables; immutable, thread-safe.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    factors
        Each a tuple of features, none twice, and a table (prod(S_j + 2), n_classes) of log
        factors in C order of the codes of these features; missing is S_j, unseen S_j + 1. -inf
        is a legal entry.
    sizes
        (n_features,) S_j.
    precision
        "exact" is float64 throughout. "fast" adds the tables of three and more classes in
        float32.
    """

    def __init__(
        self,
        log_prior: Floats,
        factors: Sequence[tuple[tuple[int, ...], Floats]],
        sizes: Integers,
        precision: str = "exact",
    ) -> None:
        prior, sizes = np.array(log_prior, np.float64), np.array(sizes, np.int64)
        n_classes = len(prior)
        shaped = [
            Factor(
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

    What is missing or unseen takes place in every table, hence three plans: for batches without
    either, without unseen values, and for all. Which one is taken depends on the batch alone.
    """

    def __init__(
        self,
        prior: Floats,
        factors: Sequence[Factor],
        sizes: Integers,
        dtype: type[np.floating],
        odds: bool = False,
    ) -> None:
        super().__init__(odds_of(prior) if odds else prior, dtype)
        self._factors, self._sizes, self._is_odds = factors, sizes, odds
        self._parts: dict[int, tuple[list[Factor], list[Factor], Floats]] = {}
        self._plans: dict[Any, list[_LookUp]] = {}

    def steps(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield each kernel with the arguments that are the same for every block of rows."""
        groups = [group for group in batch_codes if group.codes.size]
        level = level_of(groups, self._sizes)
        narrow, wide, constant = self._parted(level)
        if constant.any():
            yield _add_constant, (constant,)
        if not groups:
            return
        if wide:
            codes = np.array([_joint_codes(factor, groups) for factor in wide])
            start = np.cumsum([0, *(factor.table[..., 0].size for factor in wide)])
            table = np.concatenate([part.table.reshape(-1, len(self.start)) for part in wide])
            yield add_wide, (readonly(codes), readonly(start[:-1]), readonly(table))
        key = level, tuple((g.codes.dtype.itemsize, g.features.tobytes()) for g in groups)
        if key not in self._plans:
            self._plans[key] = self._arranged(narrow, groups)
        for group, features, plans in self._plans[key]:
            codes = readonly(groups[group].codes) if group >= 0 else gathered(features, groups)
            yield from self.lookups(codes, partial(_plan_from, plans))

    def _parted(self, level: int) -> tuple[list[Factor], list[Factor], Floats]:
        """Return the merged factors of few cells, those of many, and the sum of those of none."""
        if level not in self._parts:
            outputs = len(self.start)
            factors, constant = [], np.zeros(outputs)
            for features, table in self._factors:
                table = odds_of(table) if self._is_odds else table
                if features:
                    factors.append(Factor(features, table))
                else:
                    constant += table
            extents = np.maximum(self._sizes + level, 1)
            width = (self.tiles[0][1] if self.tiles else 1) * np.dtype(self.dtype).itemsize
            merged = merge(factors, extents, width)
            wide = [factor for factor in merged if factor.table[..., 0].size > MOST_CELLS]
            narrow = [factor for factor in merged if factor.table[..., 0].size <= MOST_CELLS]
            self._parts[level] = narrow, wide, constant
        return self._parts[level]

    def _arranged(self, factors: list[Factor], groups: list[Codes]) -> list[_LookUp]:
        """Return look-ups in the matrices of codes, and of what is in several of these in one."""
        holds = [set(g.features.tolist()) if g.codes.dtype.itemsize < 3 else set() for g in groups]
        parts: dict[int, list[Factor]] = {}
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
                for first, width, _ in self.tiles or [(0, 1, None)]
            }
            found.append(_LookUp(at, used, plans))
        return found


class _LookUp(NamedTuple):
    group: int  # matrix of codes; -1 for one of these features, made from several
    features: list[int]
    plans: dict[int, Plan]  # by first output


def _plan_from(plans: dict[int, Plan], first: int, width: int) -> Plan:
    return plans[first]


def _add_constant(constant: Floats, lo: int, n: int, acc: Floats) -> None:
    acc[: len(constant), :n] += constant[:, None]


def _joint_codes(factor: Factor, groups: Sequence[Codes]) -> NDArray[np.uint32]:
    columns = columns_of(groups)
    cell = np.zeros(groups[0].codes.shape[1], np.uint32)
    for feature, size in zip(factor.features, factor.table.shape, strict=False):
        cell *= np.uint32(size)
        cell += columns[feature]
    return cell


class TreeScorer(BlockScorer):
    """Log joints, posteriors and predictions of a forest of features; immutable, thread-safe.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    parents
        (n_features,) the parent of each feature, -1 for none.
    tables
        One per feature: (S_parent + 2, S_j + 2, n_classes) ln P(x_j | x_parent, c), or (1, S_j +
        2, n_classes) without a parent. Missing is S, unseen S + 1; -inf is a legal entry.
    hidden
        One per feature: (S_j + 2,) bool, codes that are not observations. The feature is then
        summed out over its S_j values, and missing where that is an observation. It has factor 1
        if nothing below it is observed, or if it has no values; below one without values, tables
        hold for its code of missing.
    precision
        "exact" is float64 throughout. "fast" adds the tables of three and more classes in
        float32.
    """

    def __init__(
        self,
        log_prior: Floats,
        parents: Integers,
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
        parents: Integers,
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
        states = np.maximum(self.sizes + [not codes[-2] for codes in flags], 1)
        self.largest = sum(map(largest_term, [prior, *self.tables])) + float(np.log(states).sum())
        for j, parent in enumerate(above.tolist()):
            # Without values there is nothing to sum over: the code of missing stands for them.
            if parent >= 0 and lengths[parent] == 2 and flags[parent].all():
                above[j], self.tables[j] = -1, self.tables[j][:1]
        inner = np.unique(above[above >= 0]).tolist()
        self.inner = [(j, flags[j], int(np.argmax(flags[j]))) for j in inner if flags[j].any()]
        start = np.cumsum([0, *(table.size for table in self.tables)])
        slots = np.cumsum([0, *lengths])
        below = np.cumsum(states) - states
        flat = np.concatenate([np.empty(0), *(table.ravel() for table in self.tables)])
        self._arrays = tuple(
            readonly(np.asarray(array, np.int64))
            for array in (order, above, states, slots, start, below)
        )
        self._flags = readonly(np.concatenate([np.empty(0, np.bool_), *flags]))
        self._floats = readonly(flat), readonly(prior)
        self._room = int(states.sum()), int(max(states, default=1))
        for j, parent in enumerate(above.tolist()):
            self.tables[j] = self.tables[j].copy()
            self.tables[j][:, flags[j]] = 0.0
            if parent >= 0:
                self.tables[j][flags[parent]] = 0.0
        self.parents = above

    def factors(self) -> list[Factor]:
        """Return what is added where every parent is observed."""
        return [
            Factor((j,), table[0]) if parent < 0 else Factor((parent, j), table)
            for j, (parent, table) in enumerate(
                zip(self.parents.tolist(), self.tables, strict=True)
            )
        ]

    def rows(self, batch_codes: Sequence[Codes], n_rows: int) -> Integers:
        """Return the rows in which a parent is not observed."""
        columns = columns_of(batch_codes)
        found = np.zeros(n_rows, np.bool_)
        for j, flags, least in self.inner:
            column = columns[j]
            if not n_rows or int(column.max()) < least:
                continue
            found |= column >= least if flags[least:].all() else flags[column]
        return np.flatnonzero(found)

    def write(
        self, batch_codes: Sequence[Codes], rows: Integers, lo: int, odds: bool, acc: Floats
    ) -> None:
        """Overwrite the sums of these rows; acc[:, 0] is those of row `lo`."""
        k = len(self.prior)
        together = max(HIDDEN_CELLS // max(len(self.sizes), 1), 1)
        scratch = (
            np.zeros(len(self.sizes), np.bool_),
            np.empty(self._room[0] * k),
            np.empty(self._room[1] * k),
            np.empty((4, k)),
        )
        for begin in range(0, len(rows), together):
            some = rows[begin : begin + together]
            codes = np.empty((len(self.sizes), len(some)), np.uint32)
            for group in batch_codes:
                codes[group.features] = group.codes[:, some]
            write_summed_out(
                *(readonly(codes), *self._arrays, self._flags, *self._floats),
                *(readonly(some), lo, int(odds), *scratch, acc),
            )


class _TreeSum(FactorSum):
    def __init__(self, forest: _Forest, dtype: type[np.floating], odds: bool) -> None:
        super().__init__(forest.prior, forest.factors(), forest.sizes, dtype, odds)
        self._forest = forest

    def blocks(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, rows, acc) of block after block, acc[c, :rows] being the sums."""
        hidden = self._forest.rows(batch_codes, n_rows)
        for lo, n, acc in super().blocks(batch_codes, numeric, n_rows):
            begin, end = np.searchsorted(hidden, (lo, lo + n))
            if begin < end:
                self._forest.write(batch_codes, hidden[begin:end], lo, self._is_odds, acc)
            yield lo, n, acc


@kernel
def write_summed_out(
    codes, order, parents, states, slots, start, places, flags, table, prior, rows, lo, odds,
    told, below, terms, scratch, acc,
):  # fmt: skip
    """Write ln Σ P(c, x) over what is not observed: acc[c, rows[i] - lo], from the leaves up.

    codes    IN   (m, n) uint32
    order    IN   (m,) int64   features, each before its parent
    parents  IN   (m,) int64   -1 for none
    states   IN   (m,) int64   values that a feature is summed over, the first ones
    slots    IN   (m + 1,) int64   first flag of each feature
    start    IN   (m + 1,) int64   first entry of each feature's table
    places   IN   (m,) int64   first state of each feature in `below`
    flags    IN   (n_codes,) bool   codes that are not observations
    table    IN   (entries,) float64   tables (codes of the parent, codes, n_classes)
    prior    IN   (n_classes,) float64   log prior
    rows     IN   (n,) int64   where the rows are
    lo       IN   row that is acc's first
    odds     IN   whether to write the log odds of class 1 over class 0 alone
    told     OUT  (m,) bool   scratch, all False: something below this feature is observed
    below    OUT  (states n_classes,) float64   scratch: what that says of each state
    terms    OUT  (most states n_classes,) float64   scratch
    scratch  OUT  (4, n_classes) float64
    acc      OUT  (>= n_classes or 1, > largest row - lo) float64
    """
    k = prior.size
    total, top, mass, value = scratch[0], scratch[1], scratch[2], scratch[3]
    for i in range(rows.size):
        for c in range(k):
            total[c] = prior[c]
        for j in order:
            code = np.int64(codes[j, i])
            gone = flags[slots[j] + code]
            if gone and not told[j]:
                continue
            told[j] = False
            above, first, last, inner = parents[j], 0, 1, False
            if above >= 0:
                first = np.int64(codes[above, i])
                last = first + 1
                inner = flags[slots[above] + first]
                if inner:
                    first, last = 0, states[above]
            for u in range(first, last):
                at = start[j] + u * (slots[j + 1] - slots[j]) * k
                if gone:
                    size = states[j] * k
                    rest, own = below[places[j] * k :], table[at : at + size]
                    for q in range(size):
                        terms[q] = own[q] + rest[q]
                    top[:] = -np.inf
                    for v in range(0, size, k):
                        for c in range(k):
                            top[c] = max(top[c], terms[v + c])
                    for c in range(k):
                        top[c] = top[c] if top[c] > -np.inf else 0.0
                        mass[c] = 0.0
                    for v in range(0, size, k):
                        for c in range(k):
                            terms[v + c] -= top[c]
                    for q in range(size):
                        terms[q] = lanes.exp_negative(terms[q])
                    for v in range(0, size, k):
                        for c in range(k):
                            mass[c] += terms[v + c]
                    for c in range(k):
                        value[c] = top[c] + np.log(mass[c])
                else:
                    for c in range(k):
                        value[c] = table[at + code * k + c]
                if not inner:
                    for c in range(k):
                        total[c] += value[c]
                elif told[above]:
                    for c in range(k):
                        below[(places[above] + u) * k + c] += value[c]
                else:
                    for c in range(k):
                        below[(places[above] + u) * k + c] = value[c]
            if inner:
                told[above] = True
        r = rows[i] - lo
        if odds:
            acc[0, r] = total[1] - total[0]
        else:
            for c in range(k):
                acc[c, r] = total[c]
