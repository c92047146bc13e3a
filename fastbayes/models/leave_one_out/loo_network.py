"""Rows scored by KDB without them; the structure stays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.models.discrete.families import FamilyTables
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.count_tables import Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import (
    LooRows,
    LooScorer,
    PriorWithout,
    Without,
    light_rows,
    without,
)
from fastbayes.networks.infer.scorer import Network, NetworkScorer


class LooNetwork(LooScorer):
    """A k-dependence structure by the counts without each row.

    A row was counted in a family if all of it is observed: the others, over which hidden parents
    are summed out, are those of all rows.

    Parameters
    ----------
    model
        A fitted `KDB`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.cells: FamilyTables = model._cells
        self.network: Network = model._network
        self.rule: Smoothing = model._smoothing()
        self.precision = model.precision
        self.fixed = ("schema", "structure")
        self.prior = PriorWithout(
            self.cells.values.class_counts, self.rule, model.class_prior, model.class_log_prior_
        )

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        rule, mine, network = Without(self.rule), self.cells, self.network
        less = [mine.table(q, rule) for q in range(len(mine.families))]
        alone = Network(
            *(network.families, less, network.hidden, network.states, network.names),
            summed=network.tables,
        )
        nothing = np.zeros(mine.n_classes)
        return (
            NetworkScorer(nothing, network, self.precision, cells),
            NetworkScorer(nothing, alone, self.precision, cells),
        )

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        super()._joint(rows, others, own, out)
        if len(light := light_rows(rows)):
            assert rows.gone is not None
            out[light, rows.y[light]] = self.own_likelihood(rows, light, rows.gone[light])
        out += self.prior(rows.y, rows.gone)

    def own_likelihood(self, rows: LooRows, some: NDArray[np.int64], gone: Floats) -> Floats:
        """Return ln P(x | class of the row) by the counts without each row, cell by cell.

        Parameters
        ----------
        rows
            The rows.
        some
            Positions of those that are asked for.
        gone
            What each of them takes out of the counts.
        """
        mine, y, every = self.cells, rows.y[some], np.arange(len(some))
        codes = (code_rows(rows.batch, mine.offsets) - mine.offsets[:-1, None])[:, some]
        hidden = np.zeros((len(some), mine.n_classes))
        batch = [group._replace(codes=group.codes[:, some]) for group in rows.batch.codes]
        self.network.add_hidden(batch, hidden)
        total = hidden[every, y]
        for q, family in enumerate(mine.families):
            lost = [mine.hidden[mine.offsets[j] + codes[j]] for j in family]
            whole = np.flatnonzero(~np.any(lost, axis=0))
            *above, value = (codes[j, whole] for j in family)
            n, c = mine.counts(q), y[whole]
            left = without(n[(*above, value, c)], gone[whole])
            together = without(n.sum(axis=-2)[(*above, c)], gone[whole])
            total[whole] += logs(self.rule.ratio(left, together, mine.choices[family[-1]]))
        return total
