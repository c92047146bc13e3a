"""A2DE: the average of all two-dependence estimators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.pair_averages import Pair
from fastbayes.kernels.shared.scoring import tie_of
from fastbayes.models.discrete.aode import AODE
from fastbayes.models.discrete.averaged import Averaged, some_of_each
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, memory_limit, number, parameter
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, logs, totals_within
from fastbayes.scan.budget import default_limit
from fastbayes.statistics import TripleCounts
from fastbayes.statistics.bundle import Statistics

Ints = NDArray[np.int64]


class TripleTables:
    """What pairs of values say of the class and of all other features: counts of triples."""

    def __init__(self, cells: CountTables, triples: TripleCounts) -> None:
        self.cells, self.triples = cells, triples

    def pairs(self, min_count: float) -> list[Pair]:
        """Return the pairs of features of which some values are parents.

        Both values are observed, and stand together in min_count rows or more.
        """
        cells, found = self.cells, []
        seen = np.split(~cells.hidden, cells.offsets[1:-1])
        m = len(cells.sizes)
        for i in range(m - 1):
            for j in range(i + 1, m):
                often = cells.family(i, j).sum(axis=2) >= min_count
                here = often & seen[i][:, None] & seen[j]
                if here.any():
                    state = np.full(here.shape, -1)
                    state[here] = np.arange(here.sum())
                    found.append(Pair(i, j, state))
        return found

    def own(self, i: int, j: int, smoothing: Smoothing, prior: Floats | None) -> Floats:
        """Return P(c, x_i = a, x_j = b), (S_i + 2, S_j + 2, K).

        (n(c, a, b) + mass) / (n(i and j known) + K S_i S_j mass), or the prior of c times
        (n(c, a, b) + mass) / (n(c, i and j known) + S_i S_j mass).
        """
        cells = self.cells
        n = cells.family(i, j)
        known, choices = n.sum(axis=(0, 1)), cells.choices[i] * cells.choices[j]
        return smoothing.joint(n, known, known.sum(), choices, prior)

    def conditional(self, i: int, j: int, a: Ints, b: Ints, smoothing: Smoothing) -> Floats:
        """Return P(x_k = v | c, x_i = a, x_j = b), (n_states, n_rows, K), of some codes a and b.

        (n(c, a, b, v) + mass) / (n(c, a, b, k known) + S_k mass); 1 where v is no observation.
        The rows of i and j themselves mean nothing.
        """
        cells = self.cells
        n = self._given(i, j, a, b)
        known = totals_within(n, cells.offsets)
        table = smoothing.ratio_within(n, known, cells.choices, cells.offsets)
        table[:, cells.hidden] = 1.0
        return table

    def at(self, i: int, j: int, a: Ints, b: Ints, rows: Ints, smoothing: Smoothing) -> Floats:
        """Return what `conditional` says of one row of each feature, (n_features, n, K).

        Without reading more of the counts than that needs; 1 for i and j themselves.

        a, b  (n,) observed codes
        rows  (n_features, n) rows of all features
        """
        cells = self.cells
        result = np.ones((len(rows), len(a), cells.n_classes))
        others = np.delete(np.arange(len(rows)), (i, j))
        n = self._together(i, j, a, b, others, rows[others] - cells.offsets[others][:, None])
        known = np.broadcast_to(cells.at(i, a, cells.offsets[j] + b), n.shape)
        # Columns without a value say nothing in any row.
        gaps = (self.triples.layout.missing & ~cells.as_value & (cells.sizes > 0))[others]
        if gaps.any():
            known, sizes = known.copy(), cells.sizes[others[gaps]]
            begins = np.cumsum(sizes) - sizes
            code = np.arange(sizes.sum()) - np.repeat(begins, sizes)
            each = self._together(i, j, a, b, np.repeat(others[gaps], sizes), code[:, None])
            known[gaps] = np.add.reduceat(each, begins, axis=0)
        result[others] = smoothing.ratio(n, known, cells.choices[others][:, None, None])
        result[cells.hidden[rows]] = 1.0
        return result

    def _together(self, i: int, j: int, a: Ints, b: Ints, k: Ints, code: Ints) -> Floats:
        """Return n(c, x_i = a, x_j = b, x_k = code), (n_k, n, K), 0 where nothing was counted.

        a, b  (n,) observed codes
        k     (n_k,) other features
        code  (n_k, n) codes of each, or (n_k, 1)
        """
        cells, layout = self.cells, self.triples.layout
        start, of_i, of_j, of_k = (one[:, None] for one in self.triples.steps(i, j, k))
        here = (a < layout.widths[i]) & (b < layout.widths[j])  # others never occurred
        some = here & (code < (cells.sizes + cells.as_value)[k][:, None])
        flat = self.triples.flat.reshape(-1, layout.n_classes)
        n = flat.take(np.where(some, start + of_i * a + of_j * b + of_k * code, 0), axis=0)
        n[~some] = 0
        return n

    def _given(self, i: int, j: int, a: Ints, b: Ints) -> Floats:
        """Return n(c, x_i = a, x_j = b, x_k = v), (n_states, n_rows, K), of observed a and b."""
        cells, layout, feature = self.cells, self.triples.layout, self._counted_feature
        result = np.zeros((len(a), cells.offsets[-1], cells.n_classes))
        here = (a < layout.widths[i]) & (b < layout.widths[j])  # others never occurred
        some = (feature != i) & (feature != j)
        rows, which = self._counted[some], feature[some]
        if not (len(rows) and here.any()):
            return result
        steps = np.zeros((4, len(layout.widths)), np.int64)
        others = np.delete(np.arange(len(layout.widths)), (i, j))
        steps[:, others] = self.triples.steps(i, j, others)
        start, of_i, of_j, of_k = steps.take(which, axis=1)
        first = start + of_k * (rows - cells.offsets[which])
        at = first + of_i * a[here, None] + of_j * b[here, None]
        flat = self.triples.flat.reshape(-1, layout.n_classes)
        result[np.ix_(here, rows)] = flat.take(at, axis=0)
        return result

    @cached_property
    def _counted(self) -> Ints:
        """Rows of all features that are observed values and have a place among the counts."""
        cells = self.cells
        code = np.arange(len(cells.feature)) - cells.offsets[cells.feature]
        widths = np.minimum(self.triples.layout.widths, cells.sizes + cells.as_value)
        return np.flatnonzero(code < widths[cells.feature])

    @cached_property
    def _counted_feature(self) -> Ints:
        return self.cells.feature[self._counted]


def states(pair: Pair) -> tuple[Ints, Ints]:
    """Return the codes of both features in each state of a pair, (n_states,) each."""
    a, b = np.nonzero(pair.state >= 0)
    return a, b


class ChildTables:
    """P(x_k = v | c, x_i, x_j), (n_states, n_rows, K), made an array, or indexed.

    As `TripleTables.conditional` and `TripleTables.at` say.
    """

    def __init__(self, triples: TripleTables, pair: Pair, smoothing: Smoothing) -> None:
        self._triples, self._pair, self._smoothing = triples, pair, smoothing
        self._states = states(pair)

    def __getitem__(self, at: tuple[Ints, Ints]) -> Floats:
        """Return cells of states (n,) and one row of each feature (n_features, n)."""
        i, j, _ = self._pair
        a, b = (codes[at[0]] for codes in self._states)
        return self._triples.at(i, j, a, b, at[1], self._smoothing)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        i, j, _ = self._pair
        return self._triples.conditional(i, j, *self._states, self._smoothing)


# What the model shares with the AODE that it falls back to.
SHARED = ("alpha", "min_count", "smoothing", "m", "class_prior", "missing", "unseen", "precision")


def pair_tables(
    triples: TripleTables,
    pairs: Sequence[Pair],
    smoothing: Smoothing,
    prior: Floats | None,
    q: int,
) -> tuple[Floats, ChildTables]:
    """Return P(c, x_i, x_j) and P(x_k | c, x_i, x_j) in the states of a pair."""
    pair = pairs[q]
    own = triples.own(pair.first, pair.second, smoothing, prior)
    return own[states(pair)], ChildTables(triples, pair, smoothing)


class A2DE(Averaged):
    """Averaged two-dependence estimators: each pair of features in turn is a parent of all others.

    Notes
    -----
    The log joint is the log of the mean, over the pairs of features i < j whose values qualify in a
    row, of P(c, x_i, x_j) prod_k P(x_k | c, x_i, x_j), with P(c, x_i, x_j) = (n(c, x_i, x_j) +
    alpha) / (N_ij + K S_i S_j alpha) over the rows where both are known, and P(x_k | c, x_i, x_j) =
    (n(c, x_i, x_j, x_k) + alpha) / (n(c, x_i, x_j, k known) + S_k alpha). A row without such a pair
    is AODE's, and without a super-parent naive Bayes'. It has less bias than AODE and more
    variance: it pays where rows are many. Scoring takes d^3 / 2 table look-ups a row; memory is the
    counts, 8 K sum_{i<j<k} S_i S_j S_k bytes, and three times that for scoring. In an explanation
    each of two parents has half of what they say together.

    References
    ----------
    Webb, Boughton, Zheng, Ting, Salem (2012), Learning by extrapolation from marginal to
    full-multivariate probability distributions, Machine Learning 86.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00001111"), "b": list("00110011"), "c": list("01010101")}
    >>> odd = {**table, "y": list("nppnpnnp")}
    >>> fb.A2DE().fit(odd, "y").predict({"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]})
    array(['n', 'p'], dtype='<U1')
    """

    min_count: float = parameter(
        """
        Two values seen together less often, over all classes and in units of weight, are no
        parents.
        """,
        default=1,
        check=number(besides=(math.inf,)),
    )
    memory_limit: int | None = parameter(
        """
        Bytes that a call may add to the process, the tables for scoring included; half of the
        machine's memory, or of its container's, by default.
        """,
        default=None,
        check=memory_limit,
    )
    _one: AODE = fitted()
    _triples: TripleTables = fitted()
    _pairs: list[Pair] = fitted()

    _statistics: ClassVar[tuple[str, ...]] = ("values", "pairs", "triples")

    @property
    def n_parameters_(self) -> int:
        """Free parameters: for each pair K S_i S_j - 1 and K S_i S_j (S_k - 1) for each other."""
        self._check_fitted()
        sizes = [int(s) for s in self._cells.choices if s]
        k, free, total = len(self.classes_), sum(sizes) - len(sizes), 0
        for i, a in enumerate(sizes):
            for b in sizes[:i]:
                total += k * a * b * (1 + free - (a - 1) - (b - 1)) - 1
        return total

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found = super()._read(stats)
        one = AODE(**{name: getattr(self, name) for name in SHARED})._learned(stats)
        triples = TripleTables(found["_cells"], stats.triples)
        return found | {
            "_one": one,
            "_triples": triples,
            "_pairs": triples.pairs(self.min_count),
        }

    def _mean_scorer(self, cells: float) -> Any:
        self._check_memory()
        mine = self._cells
        likelihood = np.exp(self._one._naive) @ np.exp(self.class_log_prior_)
        reference = np.where(mine.hidden | (likelihood <= 0), 1.0, likelihood)
        return dispatch.load("scoring.pair_averages", cells).PairAverageScorer(
            self._one._mean_scorer(cells),
            self.class_log_prior_,
            mine.offsets,
            reference,
            self._pairs,
            partial(pair_tables, self._triples, self._pairs, self._rule, self._given_prior),
            tie_of(self.class_log_prior_, self._one._naive, mine.offsets),
            self.precision,
        )

    def _check_memory(self) -> None:
        n_states = sum(int(pair.state.max()) + 1 for pair in self._pairs)
        need = 8 * n_states * int(self._cells.offsets[-1]) * len(self.classes_)
        limit = default_limit() if self.memory_limit is None else self.memory_limit
        if need > limit:
            over = "half of the usable memory" if self.memory_limit is None else "memory_limit"
            raise MemoryLimitError(
                f"scoring needs {need:,} bytes, over {over}={limit:,}, for {n_states:,} pairs of "
                "values; leave columns out, group their values, raise min_count or memory_limit"
            )

    def _numbers(self) -> int:
        return (len(self._pairs) + 4 * len(self._cells.sizes)) * self._cells.n_classes

    def _spoken(self, rows: NDArray[np.int64], out: Floats) -> Floats:
        """Write what each feature adds, as child of pairs of parents and as one of them.

        With r_q(c) the share of pair q = (i, j) in the sum, n of them, the log of the mean is
        sum_q r_q (ln P(c, x_i, x_j) + sum_k ln P(x_k | c, x_i, x_j) - ln(n r_q)): feature k gets
        its terms as a child weighted by r, i and j half of r_q (ln P(c, x_i, x_j) - ln P(c) -
        ln(n r_q)) each.
        """
        prior, k = self.class_log_prior_, self._cells.n_classes
        shape = len(self._pairs), rows.shape[1], k
        joint, total = np.full(shape, -np.inf), np.zeros((rows.shape[1], 1))
        for q in range(len(self._pairs)):
            here, own, children = self._terms(q, rows)
            joint[q, here] = own + prior + children.sum(axis=0)
            total[here] += 1
        whole = np.logaddexp.reduce(joint, axis=0, initial=-np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.exp(joint - np.where(np.isneginf(whole), 0.0, whole))
        mixed, shares = np.zeros((2, len(rows), *shape[1:]))
        for q, pair in enumerate(self._pairs):
            here, own, children = self._terms(q, rows)
            r = share[q, here]
            with np.errstate(divide="ignore", invalid="ignore"):
                mixed[:, here] += np.where(r > 0, r * children, 0.0)
                half = np.where(r > 0, r * (own - np.log(total[here] * r)), 0.0) / 2
            for parent in (pair.first, pair.second):
                mixed[parent, here] += half
                shares[parent, here] += r / 2
        # A class that every pair excludes is excluded.
        mixed[:, np.isneginf(whole)] = -np.inf
        out[:] = mixed.transpose(1, 0, 2)
        result = shares.transpose(1, 0, 2)
        if len(alone := np.flatnonzero(total == 0)):
            piece = np.empty((len(alone), *out.shape[1:]))
            result[alone] = self._one._spoken(rows[:, alone], piece)
            out[alone] = piece
        return np.asarray(result)

    def _terms(self, q: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.intp], Floats, Floats]:
        """Return the rows that a pair has parents in, ln P(x_i, x_j | c), and its children's terms.

        (n,), (n, n_classes), and (n_features, n, n_classes), 0 for the parents themselves.
        """
        (i, j, state), offsets = self._pairs[q], self._cells.offsets
        a, b = rows[i] - offsets[i], rows[j] - offsets[j]
        here = np.flatnonzero(state[a, b] >= 0)
        a, b, prior = a[here], b[here], self.class_log_prior_
        own = logs(self._triples.own(i, j, self._rule, self._given_prior)[a, b])
        own -= np.where(np.isneginf(prior), 0.0, prior)
        return here, own, logs(self._triples.at(i, j, a, b, rows[:, here], self._rule))

    def _models(self, prior: Floats | None) -> tuple[Floats, Floats]:
        choices = self._cells.choices.astype(int)
        pairs = list(combinations(np.flatnonzero(choices).tolist(), 2))
        if not pairs:
            return self._one._models(prior)
        both = (
            self._triples.own(i, j, self._rule, prior)[: choices[i], : choices[j]] for i, j in pairs
        )
        return np.ones(len(pairs)), np.stack([own.sum(axis=(0, 1)) for own in both])

    def _drawn_codes(
        self, codes: NDArray[np.intp], random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Draw two parents for each row, their values given the class, then the others."""
        cells, given = self._cells, np.flatnonzero(self._cells.choices > 0)
        if len(given) < 2:
            return self._one._drawn_codes(codes, random)
        pairs = np.stack(np.triu_indices(len(given), 1), axis=1)
        chosen = self._chosen(codes, random)
        drawn = np.tile(cells.sizes[:, None], len(codes))
        for q in np.unique(chosen):
            here = np.flatnonzero(chosen == q)
            i, j = given[pairs[q]].tolist()
            choices = int(cells.choices[i]), int(cells.choices[j])
            a, b = (x.ravel() for x in np.indices(choices))
            own = self._triples.own(i, j, self._rule, self._even_prior())[a, b]
            state = value_codes(some_of_each(own), codes[here], random)
            drawn[i, here], drawn[j, here] = a[state], b[state]
            table = self._triples.conditional(i, j, a, b, self._rule)
            self._draw_others(drawn, here, (i, j), state, table, codes[here], random)
        return list(drawn)
