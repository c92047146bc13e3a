"""Rows scored by a network with a class node without them; the graph stays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.classifiers.cells import logs
from fastbayes.classifiers.left_out_base import Rows, Without, light_rows, without
from fastbayes.classifiers.left_out_network import LeftOutNetwork
from fastbayes.classifiers.log_space import Floats
from fastbayes.classifiers.network_cells import NetworkCells
from fastbayes.classifiers.one_dependence import code_rows
from fastbayes.errors import SchemaError
from fastbayes.networks.scorer import Network, NetworkScorer
from fastbayes.statistics.family_counts import APART


class LeftOutGraph(LeftOutNetwork):
    """A network whose class has no parents, by the counts without each row.

    A row was counted in a family if all of it is observed, and in those in which the class has no
    part it is missing whatever the class.

    Parameters
    ----------
    model
        A fitted `NetworkClassifier`.

    Raises
    ------
    SchemaError
        When the class has parents: P(c) is then a sum over tables, all of which the row changes.
    """

    cells: NetworkCells

    def __init__(self, model: Any) -> None:
        if model._cells.above:
            names = [model.schema_.names[p] for p in model._cells.above]
            raise SchemaError(
                f"the class has parents in the network, {names}: such a network does not come "
                "apart row by row; use k_fold, or forbid edges to the class"
            )
        super().__init__(model)

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        rule, mine, network = Without(self.rule), self.cells, self.network
        less = [mine.table(q, rule) for q in range(len(mine.families))]
        apart = [part == APART for part in mine.class_is]
        of_others = [
            gone if both else whole
            for gone, whole, both in zip(less, network.tables, apart, strict=True)
        ]
        others, own = (
            Network(
                *(network.families, tables, network.hidden, network.states, network.names),
                summed=network.tables,
            )
            for tables in (of_others, less)
        )
        nothing = np.zeros(mine.n_classes)
        return (
            NetworkScorer(nothing, others, self.precision, cells),
            NetworkScorer(nothing, own, self.precision, cells),
        )

    def _joint(self, rows: Rows, others: Any, own: Any, out: Floats) -> None:
        super(LeftOutNetwork, self)._joint(rows, others, own, out)
        if len(light := light_rows(rows)):
            assert rows.gone is not None
            out[light] = self.likelihood(rows, light, rows.gone[light])
        out += self.prior(rows.y, rows.gone)

    def likelihood(self, rows: Rows, some: NDArray[np.int64], gone: Floats) -> Floats:
        """Return ln P(x | c) by the counts without each row, cell by cell, (n_some, n_classes).

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
        return total
