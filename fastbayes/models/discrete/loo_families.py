"""Rows scored without themselves by a network of features; the structure stays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.models.discrete.families import FamilyTables
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.count_tables import Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import (
    LooRows,
    LooScorer,
    Without,
    without,
)
from fastbayes.networks.infer.scorer import Network
from fastbayes.statistics.family_counts import APART


class _Together(Without):
    """A rule of smoothing that finds one row less in each total: one that was in another cell."""

    def ratio(self, n: NDArray[Any], total: NDArray[Any], cells: Any) -> Floats:
        """Return (n + mass) / (total - 1 + cells mass); 0/0 is its limit 1/cells."""
        return Smoothing.ratio(self, n, without(total), cells)


class LooFamilies(LooScorer):
    """A structure of features by the counts without each row.

    A row was counted in a family if all of it is observed: the others, over which hidden parents
    are summed out, are those of all rows. In families in which the class has no part the row is
    missing whatever the class. Where the class has parents, P(c | parents) stands for P(c): the
    row is missing in all classes of its parents' state.

    Parameters
    ----------
    model
        A fitted `FamilyModel`.

    Raises
    ------
    SchemaError
        When the class has parents, and P(c) matters: where it was given, or a row may be
        impossible. It is then a sum over tables, all of which the row changes.
    """

    def __init__(self, model: Any) -> None:
        self.cells: FamilyTables = model._cells
        super().__init__(model, self.cells.values.class_counts, model._rule)
        self.precision, self.names = model.precision, model.schema_.names
        self.scorer = model._network_scorer
        named = model.get_params(deep=False).get("super_parent") in self.names
        learned = ("alpha",) if model.alpha == "loo" else ()
        self.fixed = ("schema", *learned, *(() if named else ("structure",)))
        self.tables = model._network.tables[: len(self.cells.families)]
        if self.cells.above and (model.class_prior is not None or not self.rule.mass(1)):
            names = [self.names[p] for p in self.cells.above]
            raise SchemaError(
                f"the class has parents in the network, {names}: with a class_prior, or without "
                "smoothing, it does not come apart row by row; use k_fold, or alpha > 0 and "
                "class_prior=None"
            )
        self.network = self._network(self.tables, self.rule)

    def _network(self, tables: list[Floats], rule: Smoothing) -> Network:
        """Return the network of some tables; where something is hidden, those of all rows hold."""
        mine = self.cells
        summed = None if tables is self.tables else self.tables
        if not mine.above:
            return mine.network(tables, self.names, summed=summed)
        says, whole = logs(mine.of_class(rule)), logs(mine.of_class(self.rule))
        return mine.network(tables, self.names, says, summed, whole)

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        mine, rule = self.cells, Without(self.rule)
        less = [mine.table(q, rule) for q in range(len(mine.families))]
        others, prior = self.tables, np.zeros(mine.n_classes)
        if APART in mine.class_is or mine.above:
            pairs = zip(mine.class_is, less, others, strict=True)
            others = [own if part == APART else whole for part, own, whole in pairs]
        networks = self._network(others, _Together(self.rule)), self._network(less, rule)
        of_others, own = (self.scorer(prior, n, self.precision, cells) for n in networks)
        return of_others, own

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        super()._joint(rows, others, own, out)
        if not self.cells.above:
            out += self.prior(rows.y, rows.gone)

    def _cell_by_cell(self, rows: LooRows, some: NDArray[np.int64], gone: Floats) -> Floats:
        """Return ln P(x | c), or ln P(x, c) of a class with parents, of rows that weigh `gone`."""
        mine = self.cells
        codes = (code_rows(rows.batch, mine.offsets) - mine.offsets[:-1, None])[:, some]
        taken = gone[:, None] * (rows.y[some][:, None] == np.arange(mine.n_classes))
        total = np.zeros((len(some), mine.n_classes))
        batch = [group._replace(codes=group.codes[:, some]) for group in rows.batch.codes]
        self.network.add_hidden(batch, total)
        shown = np.array(
            [~mine.hidden[at + column] for at, column in zip(mine.offsets, codes, strict=False)]
        )
        for q, family in enumerate(mine.families):
            whole = np.flatnonzero(shown[[*family]].all(axis=0))
            *above, value = (codes[j, whole] for j in family)
            n, less = mine.counts(q), taken[whole]
            if mine.class_is[q] == APART:
                n, less = n.sum(axis=-1, keepdims=True), gone[whole, None]
            left = without(n[(*above, value)], less)
            together = without(n.sum(axis=-2)[tuple(above)], less)
            total[whole] += logs(mine.ratio(q, self.rule, left, together))
        if mine.above:
            whole = np.flatnonzero(shown[[*mine.above]].all(axis=0))
            n = mine.class_counts()[tuple(codes[j, whole] for j in mine.above)]
            together = without(n.sum(axis=-1), gone[whole])[:, None]
            left = without(n, taken[whole])
            total[whole] += logs(mine.class_ratio(self.rule, left, together))
        return total
