"""Rows scored by a network with a class node without them; the graph stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.models.discrete.network_tables import ClassNetworkTables
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.count_tables import Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import LooRows, Without, light_rows, without
from fastbayes.models.leave_one_out.loo_network import LooNetwork
from fastbayes.networks.infer.scorer import ClassNetwork, ClassScorer, Network
from fastbayes.statistics.family_counts import APART


class _Together(Without):
    """A rule of smoothing that finds one row less in each total: one that was in another cell."""

    def ratio(self, n: NDArray[Any], total: NDArray[Any], cells: Any) -> Floats:
        """Return (n + mass) / (total - 1 + cells mass); 0/0 is its limit 1/cells."""
        return Smoothing.ratio(self, n, without(total), cells)


class LooGraph(LooNetwork):
    """A network with a class node by the counts without each row.

    A row was counted in a family if all of it is observed, and in those in which the class has no
    part it is missing whatever the class. Where the class has parents, P(c | parents) stands for
    P(c): the row is missing in all classes of its parents' state.

    Parameters
    ----------
    model
        A fitted `NetworkClassifier`.

    Raises
    ------
    SchemaError
        When the class has parents, and P(c) matters: where it was given, or a row may be
        impossible. It is then a sum over tables, all of which the row changes.
    """

    cells: ClassNetworkTables

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        mine = self.cells
        if not mine.above:
            return
        names = [model.schema_.names[p] for p in mine.above]
        if model.class_prior is not None or not (self.rule.alpha if self.rule.kind != "bdeu"
                                                 else self.rule.m):  # fmt: skip
            raise SchemaError(
                f"the class has parents in the network, {names}: with a class_prior, or without "
                "smoothing, it does not come apart row by row; use k_fold, or alpha > 0 and "
                "class_prior=None"
            )
        self.network = self._with_class(model._network.tables[:-1], self.rule)

    def _with_class(
        self, tables: Sequence[Floats], rule: Smoothing, summed: Network | None = None
    ) -> Network:
        """Return the network of some tables, the class after its parents by a rule."""
        mine, whole = self.cells, self.network
        m = len(mine.families)
        told = mine.families, tables, whole.hidden[: len(mine.choices)]
        states, names = whole.states[: len(mine.choices)], whole.names[: len(mine.choices)]
        if not mine.above:
            return Network(*told, states, names, None if summed is None else summed.tables)
        says, k = logs(mine.of_class(rule)), mine.n_classes
        if summed is None:
            return ClassNetwork(mine.above, says, *told, states, names)
        last = summed.tables[m][..., 0, :k]
        return ClassNetwork(mine.above, says, *told, states, names, summed.tables[:m], last)

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        rule, mine, network = Without(self.rule), self.cells, self.network
        less = [mine.table(q, rule) for q in range(len(mine.families))]
        apart = [part == APART for part in mine.class_is]
        of_others = [
            gone if both else whole
            for gone, whole, both in zip(less, network.tables, apart, strict=False)
        ]
        nothing = np.zeros(mine.n_classes)
        others, own = (
            ClassScorer(nothing, self._with_class(*how, network), (), self.precision, cells)
            for how in ((of_others, _Together(self.rule)), (less, rule))
        )
        return others, own

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        super(LooNetwork, self)._joint(rows, others, own, out)
        if len(light := light_rows(rows)):
            assert rows.gone is not None
            out[light] = self.likelihood(rows, light, rows.gone[light])
        if not self.cells.above:
            out += self.prior(rows.y, rows.gone)

    def likelihood(self, rows: LooRows, some: NDArray[np.int64], gone: Floats) -> Floats:
        """Return ln P(x | c) by the counts without each row, cell by cell, (n_some, n_classes).

        Of a class with parents ln P(x, c).

        Parameters
        ----------
        rows
            The rows.
        some
            Positions of those that are asked for.
        gone
            What each of them takes out of the counts.
        """
        mine, every = self.cells, np.arange(self.cells.n_classes)
        codes = (code_rows(rows.batch, mine.offsets) - mine.offsets[:-1, None])[:, some]
        total = np.zeros((len(some), mine.n_classes))
        batch = [group._replace(codes=group.codes[:, some]) for group in rows.batch.codes]
        self.network.add_hidden(batch, total)
        for q, family in enumerate(mine.families):
            lost = [mine.hidden[mine.offsets[j] + codes[j]] for j in family]
            whole = np.flatnonzero(~np.any(lost, axis=0))
            *above, value = (codes[j, whole] for j in family)
            n, taken = mine.counts(q), gone[whole, None]
            if mine.class_is[q] == APART:
                n = n.sum(axis=-1, keepdims=True)
            else:
                taken = taken * (rows.y[some][whole, None] == every)
            left = without(n[(*above, value)], taken)
            together = without(n.sum(axis=-2)[tuple(above)], taken)
            total[whole] += logs(mine.ratio(q, self.rule, left, together))
        if mine.above:
            lost = [mine.hidden[mine.offsets[j] + codes[j]] for j in mine.above]
            whole = np.flatnonzero(~np.any(lost, axis=0))
            n = mine.class_counts()[tuple(codes[j, whole] for j in mine.above)]
            taken = gone[whole, None] * (rows.y[some][whole, None] == every)
            left, together = without(n, taken), without(n.sum(axis=-1), gone[whole])[:, None]
            total[whole] += logs(mine.class_ratio(self.rule, left, together))
        return total
