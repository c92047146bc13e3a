"""Rows scored by AODE without them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.count_tables import logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import (
    ROUNDING,
    LooRows,
    LooScorer,
    Without,
    own_likelihood,
    without,
)


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
        offsets = self.cells.offsets
        n = self.cells.n
        self.known = np.add.reduceat(n, offsets[:-1]) if len(offsets) > 1 else self.cells.known

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        mine, rule = self.cells, self.rule
        scorer = dispatch.load("averages", cells).AverageScorer
        known = self.known[mine.feature]
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
            known = self.known[p]
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
            value, beside = rows - cells.offsets[p], cells.beside(p)
            counts, together = cells.spread(beside), cells.spread(beside, beside.together())
            table = logs(cells.conditional(p, rule))
            for j, slots in enumerate(at):
                if j == p:
                    continue
                term = table[value, slots]
                n = without(counts[value, slots, y], gone)
                left = rule.ratio(n, without(together[value, slots, y], gone), cells.choices[j])
                term[every, y] = np.where(cells.hidden[slots], 0.0, logs(left))
                one += term
            result = np.logaddexp(result, one)
        alone = total == 0
        result -= np.log(np.where(alone, 1.0, total))[:, None]
        return np.where(alone[:, None], naive + prior, result)
