"""Rows scored by JointBayes without them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import (
    LooRows,
    LooScorer,
    PriorWithout,
    own_likelihood,
    without,
)
from fastbayes.models.joint.joint import JointTableScorer, distinct_codes


class LooJoint(LooScorer):
    """The joint table by the counts without each row, and its margins without it, too.

    Parameters
    ----------
    model
        A fitted `JointBayes`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.table = model._table
        if model.tau == "loo":
            self.fixed = ("schema", "tau")
        counts = self.table.cells.values.class_counts
        self.prior = PriorWithout(
            counts, self.table.rule, model.class_prior, model.class_log_prior_
        )

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        scorer = JointTableScorer(np.zeros(self.table.cells.n_classes), self.table, cells)
        return scorer, scorer

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        table, y, batch = self.table, rows.y, rows.batch
        every, gone = np.arange(len(out)), np.ones(len(out)) if rows.gone is None else rows.gone
        others.log_joint(batch.codes, (), out)
        group, codes = distinct_codes(batch.codes, len(out), table.widths, batch.cells)
        hidden = table.hidden(codes)
        n = table.matching(codes, hidden)[group, y]
        # A row that is not complete was counted in no cell, but in the margins of what is known.
        lost = np.where(hidden.any(axis=0)[group], 0.0, gone)
        at = code_rows(batch, table.cells.offsets)
        margins = own_likelihood(table.cells, table.rule, at, y, gone)
        out[every, y] = table.smoothed(without(n, lost), margins, without(table.totals[y], lost))
        out += self.prior(y, rows.gone)
