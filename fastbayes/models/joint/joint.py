"""The unrestricted classifier: the joint table of all columns, drawn to the product of margins."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import labels
from fastbayes.models.discrete.one_dependence import by_chain_rule, code_rows
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import (
    CLASS_PRIOR,
    DISCRETIZE,
    UNSEEN,
    fitted,
    number,
    parameter,
    pseudo_count,
)
from fastbayes.models.estimator.sampling import drawn_values, value_codes
from fastbayes.models.estimator.smoothing import log_prior
from fastbayes.models.joint.joint_table import JointTable, JointTableScorer
from fastbayes.statistics.bundle import Statistics


class JointBayes(Classifier):
    """The unrestricted Bayes classifier of discrete columns: it counts how often a row occurs.

    Notes
    -----
    P(c, v) = P(c) P(v | c) with P(c) = (n_c + alpha)/(N + K alpha) over all rows, and P(v | c) =
    (n_vc + tau prod_j P(v_j | c)) / (n_c + tau). There n_vc and n_c count the rows in which every
    column is known, and P(v_j | c) = (n(c, v_j) + alpha) / (n(c, j known) + S_j alpha) those in
    which column j is. A class without complete rows has the product of margins. Values unknown at
    predict are summed over exactly: the rows of all cells that agree with the others, and tau
    times the product of their margins. Memory is that of the cells that occur, refused over
    `memory_limit`.

    `explain` splits the log joint by the chain rule, in column order: ln P(x_j | x_1 ... x_j-1, c).

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": ["0", "0", "1", "1"], "b": ["0", "1", "0", "1"], "y": ["n", "p", "p", "n"]}
    >>> model = fb.JointBayes(tau=1).fit(table, "y")
    >>> model.predict({"a": ["0", "1"], "b": ["1", "1"]})
    array(['p', 'n'], dtype='<U1')
    >>> model.predict_proba({"a": ["0"], "b": ["1"]})  # (1 + 1/4) / 3 against (0 + 1/4) / 3
    array([[0.16666667, 0.83333333]])
    """

    tau: float | str = parameter(
        """
        Pseudo-rows of each class that are spread as if columns were independent given the class: 0
        is maximum likelihood in the joint table, "loo" the number that maximises the leave-one-out
        likelihood.
        """,
        default=1.0,
        check=number(besides=("loo",)),
    )
    alpha: float = parameter(
        "Pseudo-count of every value of a single column, and of every class: 1 is Laplace.",
        default=1.0,
        check=pseudo_count(),
    )
    class_prior: str | ArrayLike | None = CLASS_PRIOR
    discretize: Any = DISCRETIZE
    missing: str = parameter(
        '"marginalize": a missing value is summed out; "category": it is a value of its own.',
        default="marginalize",
        choices=("marginalize", "category"),
    )
    unseen: str = UNSEEN
    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    tau_: float = fitted("The pseudo-rows in use.")
    n_cells_: int = fitted("Different rows that occurred, of those in which every column is known.")
    _table: JointTable = fitted()

    _statistics: ClassVar[tuple[str, ...]] = ("values", "cells")
    _discretizes: ClassVar[bool] = True

    # -- learning ------------------------------------------------------------------------------

    def _suited(self, stats: Any) -> Statistics:
        stats = super()._suited(stats)
        for feature in stats.schema.numeric:
            raise SchemaError(
                f"the statistics were counted with column {feature.name!r} as numeric; JointBayes "
                "needs it discrete: count again with cells=True and families=[], which cuts it "
                "into bins, or name it in `categorical`"
            )
        return stats

    def _read(self, stats: Statistics) -> dict[str, Any]:
        table = JointTable(
            stats,
            tau=self.tau,
            alpha=float(self.alpha),
            missing=self.missing,
            unseen=self.unseen,
        )
        counts, classes = stats.values.class_counts, labels(stats.schema.classes)
        prior = log_prior(counts, float(self.alpha), self.class_prior, classes)
        return {
            "class_log_prior_": prior,
            "tau_": table.tau,
            "n_cells_": len(table.keys),
            "_table": table,
        }

    # -- answers -------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, and K (prod_j S_j - 1) of the joint distributions."""
        self._check_fitted()
        k = len(self.classes_)
        sizes = [max(int(s), 1) for s in self._table.cells.choices]
        return k - 1 + k * (math.prod(sizes) - 1)

    def _log_prior(self) -> Floats:
        return self.class_log_prior_

    def _scorer(self, cells: float) -> Any:
        return JointTableScorer(self.class_log_prior_, self._table, cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write what each feature adds to ln P(the features before it | c)."""
        cells = self._table.cells
        scorer = JointTableScorer(np.zeros(cells.n_classes), self._table, batch.cells)
        codes = code_rows(batch, cells.offsets) - cells.offsets[:-1, None]
        out[:] = by_chain_rule(scorer, range(len(codes)), codes, cells)

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        drawn = drawn_cells(self._table, codes, random)
        features = enumerate(self.schema_.features)
        return {feature.name: drawn_values(feature, drawn[j], random) for j, feature in features}


def drawn_cells(
    table: JointTable,
    classes: NDArray[np.intp],
    random: np.random.Generator,
    *,
    counted: bool = False,
) -> NDArray[np.int64]:
    """Return codes drawn from P(v | c) for rows of these classes, (m, n_rows).

    A row is one of those counted, or with the chance of tau in n_c + tau one of independent values;
    where these are not wanted, they are left to classes without counts.
    """
    cells = table.cells
    drawn = np.empty((len(cells.sizes), len(classes)), np.int64)
    margins = np.exp(table.log_margins)
    for j, (first, states) in enumerate(zip(cells.offsets, cells.choices, strict=False)):
        n = int(states)
        if n:
            drawn[j] = value_codes(margins[first : first + n], classes, random)
        else:
            drawn[j] = cells.sizes[j]
    with np.errstate(invalid="ignore"):
        share = np.nan_to_num(table.totals / (table.totals + table.tau * (not counted)))
    again = random.random(len(classes)) < share[classes]
    for c in np.flatnonzero(table.totals > 0).tolist():
        rows = np.flatnonzero(again & (classes == c))
        steps = np.cumsum(table.counts[:, c])
        at = np.searchsorted(steps, random.random(len(rows)) * steps[-1], side="right")
        drawn[:, rows] = table.keys[np.minimum(at, len(steps) - 1)].T
    return drawn
