"""Rows scored by naive Bayes without them."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes import _jit
from fastbayes.batch import Batch
from fastbayes.classifiers.cells import Cells, Smoothing, logs
from fastbayes.classifiers.feature_averaging import checked_chance
from fastbayes.classifiers.left_out_base import (
    LeftOut,
    PriorWithout,
    Rows,
    Without,
    light_rows,
    rows_of,
    without,
)
from fastbayes.classifiers.left_out_gaussian import LeftOutGaussians
from fastbayes.classifiers.log_space import Floats
from fastbayes.classifiers.one_dependence import code_rows
from fastbayes.errors import SchemaError
from fastbayes.statistics import ClassMoments, PairCounts


class LeftOutNaive(LeftOut):
    """Naive Bayes by the counts and moments without each row.

    Parameters
    ----------
    model
        A fitted `NaiveBayes`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        if checked_chance(model.feature_averaging) is not None:
            raise SchemaError(
                "leave_one_out does not take rows out of feature_averaging, whose probabilities of "
                "features change with every row; k_fold validates it"
            )
        values = model.statistics_.values
        none = PairCounts(values.shape, pairs=np.empty((0, 2), np.int64))
        self.cells = Cells(values, none, missing=model.missing, unseen=model.unseen)
        self.rule = Smoothing(alpha=model.alpha_)
        self.precision = model.precision
        if model.alpha == "loo":
            self.fixed = ("schema", "alpha")
        self.prior = PriorWithout(
            values.class_counts, self.rule, model.class_prior, model.class_log_prior_
        )
        numeric = [f.name for f in model.schema_.numeric]
        self.gaussians = None
        self.scatter: Floats | None = None
        if numeric:
            self.gaussians = LeftOutGaussians(
                model.statistics_.moments,
                weighted=values.weighted,
                names=numeric,
                ddof=model.ddof,
                variance=model.variance,
                var_floor=model.var_floor,
            )

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        scorer = _jit.load("log_joint", cells).Scorer
        nothing, offsets = np.zeros(self.cells.n_classes), self.cells.offsets
        others, own = (
            scorer(nothing, logs(self.cells.likelihood(rule)), offsets, None, self.precision)
            for rule in (self.rule, Without(self.rule))
        )
        return others, own

    def _joint(self, rows: Rows, others: Any, own: Any, out: Floats) -> None:
        super()._joint(rows, others, own, out)
        if len(light := light_rows(rows)):
            assert rows.gone is not None
            at = code_rows(rows.batch, self.cells.offsets)[:, light]
            y, gone = rows.y[light], rows.gone[light]
            out[light, y] = own_likelihood(self.cells, self.rule, at, y, gone)
        out += self.prior(rows.y, rows.gone)
        if self.gaussians is not None:
            told = rows.batch.numeric, rows.y, rows.gone
            out += self.gaussians.log_density(*told, self.scatter)

    def doubtful(self, batch: Batch) -> NDArray[np.int64]:
        """Return the positions of rows that hold nearly all of the scatter of their class."""
        if self.gaussians is None:
            return super().doubtful(batch)
        rows = rows_of(batch)
        some = self.gaussians.doubtful(batch.numeric, rows.y, rows.gone).any(axis=1)
        return np.flatnonzero(some)

    def rest(self, batch: Batch) -> ClassMoments | None:
        """Return the moments of rows, none of them doubtful."""
        if self.gaussians is None:
            return None
        moments = ClassMoments(self.gaussians.moments.shape)
        moments.update(batch)
        return moments

    def settled(self, batch: Batch, others: ClassMoments) -> LeftOut:
        """Return what scores a batch of all doubtful rows, given the moments of the others."""
        assert self.gaussians is not None
        better = copy(self)
        y = rows_of(batch).y
        better.scatter = self.gaussians.scatter_without(others, batch.numeric, y, batch.weight)
        return better


def own_likelihood(cells: Cells, rule: Smoothing, at: Any, y: Any, gone: Floats) -> Floats:
    """Return ln P(x | class of the row) by the counts without each row, (n_rows,).

    Parameters
    ----------
    cells, rule
        Counts, and how they are smoothed.
    at
        (m, n_rows) row (offset + code) of each cell.
    y
        (n_rows,) classes.
    gone
        (n_rows,) what each row takes out of the counts.
    """
    known = np.add.reduceat(cells.n, cells.offsets[:-1]) if len(at) else cells.known
    total = np.zeros(len(y))
    for rows, together, choices in zip(at, known, cells.choices, strict=True):
        n = without(cells.n[rows, y], gone)
        term = logs(rule.ratio(n, without(together[y], gone), choices))
        total += np.where(cells.hidden[rows], 0.0, term)
    return total
