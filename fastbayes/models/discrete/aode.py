"""AODE: the average of all one-dependence estimators."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.models.discrete.averaged import (
    Averaged,
    check_weights,
    some_of_each,
    super_parent_weights,
)
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.discrete.selective import best_average, without_unpaired
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import (
    ROUNDING,
    LooRows,
    LooScorer,
    Without,
    own_likelihood,
    without,
)
from fastbayes.models.estimator.parameters import fitted, number, parameter
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, logs
from fastbayes.statistics.bundle import Statistics


class AODE(Averaged):
    """Averaged one-dependence estimators: each feature in turn is a parent of all others.

    Notes
    -----
    The log joint is the log of the weighted mean, over the super-parents p that qualify in a row,
    of P(c, x_p) prod_{j != p} P(x_j | c, x_p), with P(c, x_p) = (n(c, x_p) + alpha) / (N_p + K S_p
    alpha) over the rows where p is known, and P(x_j | c, x_p) = (n(c, x_p, x_j) + alpha) /
    (n(c, x_p, j known) + S_j alpha). A row without a super-parent that weighs anything is naive
    Bayes'. Scoring takes d^2 table look-ups a row; memory is the counts, 8 K sum_{i<j} S_i S_j
    bytes, and twice that for scoring.

    References
    ----------
    Webb, Boughton, Wang (2005), Not so naive Bayes: aggregating one-dependence estimators, Machine
    Learning 58, eq. 7. Jiang, Zhang (2006), Weightily averaged one-dependence estimators, PRICAI.
    Zheng, Webb, Suraweera, Zhu (2012), Subsumption resolution: an efficient and effective technique
    for semi-naive Bayesian learning, Machine Learning 87. Chen, Martínez, Webb, Wang (2017),
    Sample-based attribute selective AnDE for large data, IEEE TKDE 29.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": ["0", "0", "1", "1"], "b": ["0", "1", "0", "1"], "y": ["n", "p", "p", "n"]}
    >>> fb.AODE().fit(table, "y").predict({"a": ["0", "1"], "b": ["1", "1"]})
    array(['p', 'n'], dtype='<U1')
    """

    weights: Any = parameter(
        """
        What each super-parent counts in the average: "uniform"; "mutual_information", what the
        feature tells of the class, I(X_p; C) (Jiang, Zhang 2006), or all alike if none tells
        anything; {column: weight}, 0 for the rest; or (n_features,) weights. They are used relative
        to each other.
        """,
        default="uniform",
        check=check_weights,
    )
    select: str | None = parameter(
        """
        None, or "leave_one_out": `fit` takes one more scan to choose, among the first two, three,
        ... features by I(X_j; C), those by which each row is predicted best by the counts of the
        others, in log-loss; subsumption plays no part in that. `fit_statistics` has no rows to
        choose by: it takes the features whose pairs were counted.
        """,
        default=None,
        choices=(None, "leave_one_out"),
    )
    min_count: float = parameter(
        "A value seen less often, over all classes and in units of weight, is no super-parent.",
        default=1,
        check=number(besides=(math.inf,)),
    )
    super_parent_weights_: Floats = fitted(
        "(n_features,) weight of each feature as a super-parent, in nats where it is information."
    )
    n_selected_: int = fitted(
        "Features that take part: those with a value, and of them those that were selected."
    )
    _naive: Floats = fitted()
    _own: Floats = fitted()
    _weight: Floats = fitted()

    def _scanned(self, scans: Scans) -> Statistics:
        if not (self.select and scans.first):
            return super()._scanned(scans)
        scans.check_rereadable(f"AODE(select={self.select!r}) takes one more scan")
        return best_average(self, scans, super()._scanned(scans))

    def _cells_of(self, stats: Statistics) -> CountTables:
        return without_unpaired(super()._cells_of(stats))

    @property
    def n_parameters_(self) -> int:
        """Free parameters: for each super-parent K S_p - 1 and K S_p (S_j - 1) for each other."""
        self._check_fitted()
        sizes = self._cells.choices.astype(np.int64)
        k, free = len(self.classes_), np.maximum(sizes - 1, 0)
        each = [k * s * int(free.sum() - f) + k * s - 1 for s, f in zip(sizes, free, strict=True)]
        return int(sum(n for n, s in zip(each, sizes, strict=True) if s))

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found = super()._read(stats)
        cells, smoothing = found["_cells"], found["_rule"]
        often = np.asarray(cells.n.sum(axis=1) >= self.min_count)
        each = super_parent_weights(self.weights, cells, stats.schema.names)
        relative = each / each.max(initial=np.nextafter(0.0, 1.0))
        return found | {
            "super_parent_weights_": each,
            "n_selected_": int((cells.choices > 0).sum()),
            "_naive": logs(cells.likelihood(smoothing)),
            "_own": own_joint(cells, smoothing, found["_given_prior"]),
            "_weight": np.where(often & ~cells.hidden, relative[cells.feature], 0.0),
        }

    def _mean_scorer(self, cells: float) -> Any:
        return dispatch.load("scoring.averages", cells).AverageScorer(
            self.class_log_prior_,
            self._naive,
            self._cells.offsets,
            self._own,
            self._weight,
            partial(self._cells.conditional, smoothing=self._rule),
            self.precision,
            self._cells.log_sums(self._rule),
            partial(self._cells.conditionals, smoothing=self._rule),
        )

    def _numbers(self) -> int:
        return len(self._cells.sizes) ** 2 * self._cells.n_classes

    def _spoken(self, rows: NDArray[np.int64], out: Floats) -> Floats:
        """Write what each feature adds, as child of the super-parents and as one of them.

        With r_p(c) the share of super-parent p in the sum, n of them, the log of the mean is
        sum_p r_p (ln P(c, x_p) + sum_j ln P(x_j | c, x_p) - ln(n r_p)): feature j gets its terms as
        a child weighted by r, and r_j (ln P(c, x_j) - ln P(c) - ln(n r_j)) as a super-parent.
        """
        cells, prior = self._cells, self.class_log_prior_
        weight, own = self._weight[rows], logs(self._own)
        given = own - np.where(np.isneginf(prior), 0.0, prior)
        joint = np.full((len(rows), rows.shape[1], cells.n_classes), -np.inf)
        terms = np.zeros((len(rows), len(rows), rows.shape[1], cells.n_classes))
        for p in range(len(rows)):
            if not weight[p].any():
                continue
            terms[p] = logs(cells.conditional(p, self._rule)[rows[p] - cells.offsets[p], rows])
            terms[p, p] = given[rows[p]]
            joint[p] = np.where(
                weight[p][:, None] > 0,
                terms[p].sum(axis=0) + prior + logs(weight[p])[:, None],
                -np.inf,
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = np.logaddexp.reduce(joint, axis=0) if len(rows) else joint.sum(axis=0)
            share = np.exp(joint - np.where(np.isneginf(whole), 0.0, whole))
            total = weight.sum(axis=0)[:, None]
            surprise = np.log(weight[:, :, None] / (total * share))
        terms += np.where(share > 0, surprise, 0.0)[:, None] * np.eye(len(rows))[:, :, None, None]
        with np.errstate(invalid="ignore"):
            mixed = np.where(share[:, None] > 0, share[:, None] * terms, 0.0).sum(axis=0)
        # A class that every super-parent excludes is excluded.
        mixed[:, np.isneginf(whole)] = -np.inf if len(rows) else 0.0
        alone = (total == 0) & np.ones_like(whole, np.bool_)
        out[:] = np.where(alone, self._naive[rows], mixed).transpose(1, 0, 2)
        return np.where(alone, 0.0, share).transpose(1, 0, 2)

    def _models(self, prior: Floats | None) -> tuple[Floats, Floats]:
        own, cells = own_joint(self._cells, self._rule, prior), self._cells
        margins = np.zeros((len(cells.sizes), cells.n_classes))
        for p, (first, choices) in enumerate(zip(cells.offsets, cells.choices, strict=False)):
            margins[p] = own[first : first + int(choices)].sum(axis=0)
        each = self.super_parent_weights_
        relative = each / each.max(initial=np.nextafter(0.0, 1.0))
        return relative * (cells.choices > 0), margins

    def _drawn_codes(
        self, codes: NDArray[np.intp], random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Draw a super-parent for each row, its value given the class, then the others."""
        cells, m = self._cells, len(self._cells.sizes)
        drawn = np.full((m, len(codes)), cells.sizes[:, None])
        own = own_joint(cells, self._rule, self._even_prior())
        if not ((self.super_parent_weights_ > 0) & (cells.choices > 0)).any():
            for j in np.flatnonzero(cells.choices > 0):
                states = slice(cells.offsets[j], cells.offsets[j] + int(cells.choices[j]))
                drawn[j] = value_codes(np.exp(self._naive[states]), codes, random)
            return list(drawn)
        chosen = self._chosen(codes, random)
        for p in np.unique(chosen):
            here = np.flatnonzero(chosen == p)
            states = slice(cells.offsets[p], cells.offsets[p] + int(cells.choices[p]))
            drawn[p, here] = value_codes(some_of_each(own[states]), codes[here], random)
            table = np.asarray(cells.conditional(int(p), self._rule))[: int(cells.choices[p])]
            self._draw_others(drawn, here, (int(p),), drawn[p, here], table, codes[here], random)
        return list(drawn)


def own_joint(cells: CountTables, smoothing: Smoothing, prior: Floats | None) -> Floats:
    """Return P(c, x_p = a), (n_rows, n_classes): P(c) P(x_p = a | c) where the prior is given."""
    known, choices = cells.known[cells.feature], cells.choices[cells.feature][:, None]
    return smoothing.joint(cells.n, known, known.sum(axis=1, keepdims=True), choices, prior)


class LooAverage(LooScorer):
    """An `AODE` by the counts without each row: a value may lose its place as super-parent."""

    def __init__(self, model: Any) -> None:
        self.cells, self.precision = model._cells, model.precision
        super().__init__(model, self.cells.values.class_counts, model._rule)
        self.min_count = model.min_count
        each = model.super_parent_weights_
        self.each: Floats = each / each.max(initial=np.nextafter(0.0, 1.0))
        self.implied = model._implied
        learned = isinstance(model.weights, str) and model.weights != "uniform"
        self.fixed = (
            "schema",
            *(["weights"] if learned else []),
            *(["subsumption"] if self.implied is not None else []),
        )
        self.given = model.class_prior is not None

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        mine, rule = self.cells, self.rule
        scorer = dispatch.load("scoring.averages", cells).AverageScorer
        known = self.cells.known[mine.feature]
        everyone = without(known.sum(axis=1, keepdims=True))
        weight = np.where(mine.hidden, 0.0, self._weight(mine.feature, without(mine.n.sum(axis=1))))
        made = []
        for own in (False, True):
            less = Without(rule) if own else rule
            n, together = (without(mine.n), without(known)) if own else (mine.n, known)
            prior = self.prior.of_own if own else self.prior.of_others
            made.append(
                scorer(
                    prior,
                    logs(mine.likelihood(less)),
                    mine.offsets,
                    self._own(mine.feature, n, together, everyone, prior),
                    weight,
                    partial(mine.conditional, smoothing=less),
                    self.precision,
                )
            )
        return made[0], made[1]

    def _weight(self, feature: Any, n: Floats) -> Floats:
        """Return what values of features that occur so often weigh as super-parents."""
        return np.where(n >= self.min_count * (1 - ROUNDING), self.each[feature], 0.0)

    def _own(self, feature: Any, n: Floats, known: Floats, everyone: Floats, prior: Floats) -> Any:
        """Return P(c, x_p = a), (..., n_classes).

        n, known, everyone: rows of (c, a), of (c, p known) and of (p known).
        """
        choices = np.asarray(self.cells.choices[feature])[..., None]
        return self.rule.joint(n, known, everyone, choices, np.exp(prior) if self.given else None)

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        if self.implied is not None:
            rows = rows._replace(batch=self.implied.of_batch(rows.batch))
        super()._joint(rows, others, own, out)

    def _cell_by_cell(self, rows: LooRows, some: NDArray[np.int64], gone: Floats) -> Floats:
        at, y = code_rows(rows.batch, self.cells.offsets)[:, some], rows.y[some]
        cells, rule = self.cells, self.rule
        prior, every = self.prior(y, gone), np.arange(len(y))
        mine = gone[:, None] * (y[:, None] == np.arange(cells.n_classes))
        naive = logs(cells.likelihood(rule))[at].sum(axis=0)
        naive[every, y] = own_likelihood(cells, rule, at, y, gone)
        total, result = np.zeros(len(y)), np.full(naive.shape, -np.inf)
        for p, rows in enumerate(at):
            seen = ~cells.hidden[rows]
            weight = np.where(seen, self._weight(p, without(cells.n[rows].sum(axis=1), gone)), 0.0)
            if not weight.any():
                continue
            total += weight
            known = self.cells.known[p]
            one = logs(
                weight[:, None]
                * self._own(
                    p,
                    without(cells.n[rows], mine),
                    without(known, mine),
                    without(known.sum(), gone)[:, None],
                    prior,
                )
            )
            others = np.delete(at, p, axis=0)
            choices = cells.choices[cells.feature[others]]
            value = rows - cells.offsets[p]
            counts, together = cells.at(p, value, others), cells.known_at(p, value, others)
            terms = rule.ratio(counts, together, choices[..., None])
            n, known = (part[:, every, y] for part in (counts, together))
            terms[:, every, y] = rule.ratio(without(n, gone), without(known, gone), choices)
            terms[cells.hidden[others]] = 1.0
            one += logs(terms).sum(axis=0)
            result = np.logaddexp(result, one)
        alone = total == 0
        result -= np.log(np.where(alone, 1.0, total))[:, None]
        return np.where(alone[:, None], naive + prior, result)
