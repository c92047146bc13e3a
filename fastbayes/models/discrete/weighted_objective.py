"""The conditional likelihood of naive Bayes as a function of a weight for each column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.layout import Layout
from fastbayes.models.estimator.log_space import Floats
from fastbayes.scan.packed_rows import PackedRows

# Log prior of a class that has none: its share is 0 and its losses are numbers.
NEVER = -1e4


@dataclass(frozen=True, eq=False)
class WeightedTables:
    """What each value of a weighted column says, where a `Layout` has its coefficient.

    layout     of the columns, all categorical
    intercept  (M,) log prior, of two classes its log odds
    says       (P, M) log likelihoods, of two classes their difference; 0 in the intercept's row
    column     (P,) the column of each row, -1 of the intercept
    """

    layout: Layout
    intercept: Floats
    says: Floats
    column: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        log_prior: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int64],
    ) -> WeightedTables:
        """Return the tables of a naive Bayes model.

        Parameters
        ----------
        log_prior
            (n_classes,) nats.
        tables
            (n_slots, n_classes) log likelihoods, finite.
        offsets
            First row of each column in them.
        sizes
            (d,) rows of each column that training rows may have.
        """
        layout = Layout.of(sizes, len(log_prior))
        wide = np.zeros((layout.n_rows, len(log_prior)))
        column = np.full(layout.n_rows, -1, np.int64)
        wide[0] = np.maximum(log_prior, NEVER)
        for j, (at, size) in enumerate(zip(layout.rows.values, layout.sizes, strict=True)):
            wide[at : at + size] = tables[offsets[j] : offsets[j] + size]
            column[at : at + size] = j
        if layout.n_outputs == 1:
            wide = wide[:, 1:] - wide[:, :1]
        intercept = wide[0].copy()
        wide[0] = 0.0
        return cls(layout, intercept, wide, column)

    def spread(self, weights: Floats) -> Floats:
        """Return what weights (d, 1) make of the tables, (P, M), without the intercept."""
        return np.append(weights[:, 0], 0.0)[self.column][:, None] * self.says

    def theta(self, weights: Floats) -> Floats:
        """Return the coefficients of the weighted model, (P, M)."""
        theta = self.spread(weights)
        theta[0] = self.intercept
        return theta

    def gathered(self, sums: Floats) -> Floats:
        """Return derivatives by the weights, (d, 1), from those by the coefficients, (P, M)."""
        each = (sums * self.says).sum(axis=1)[1:]
        d = len(self.layout.sizes)
        return np.bincount(self.column[1:], each, d).astype(np.float64)[:, None]


class Conditional:
    """-ln P(y | x) of rows, plus l2/2 times the squares by which weights are off 1.

    An objective for `minimise`: its coefficients are the weights, (d, 1).

    Parameters
    ----------
    rows
        The rows.
    tables
        What they say.
    l2
        Strength of the pull towards 1.
    """

    def __init__(self, rows: PackedRows, tables: WeightedTables, l2: float) -> None:
        self.rows, self.tables, self.l2 = rows, tables, l2
        self.total = rows.total

    @property
    def passes(self) -> float:
        """Times that all rows have been gone over."""
        return self.rows.passes

    def value_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return the value and its gradient, (d, 1)."""
        theta = self.tables.theta(weights)
        loss, sums = self.rows.sums(self.rows.gradient.loss_gradient(theta))
        off = weights - 1.0
        value = loss + self.l2 / 2 * float((off * off).sum())
        return value, self.tables.gathered(sums) + self.l2 * off

    def hessian_product(self, weights: Floats) -> Callable[[Floats], Floats]:
        """Return the function from a direction to the Hessian's product with it."""
        hessian = self.rows.hessian(self.tables.theta(weights))

        def product(direction: Floats) -> Floats:
            run = hessian.product(self.tables.spread(direction))
            return self.tables.gathered(self.rows.sums(run)) + self.l2 * direction

        return product

    def curvature(self, weights: Floats) -> Floats:
        """Return about the diagonal of the Hessian, (d, 1): of two classes it is exact.

        Of more, what classes share of a row's curvature is left out, which a preconditioner may.
        """
        bent = self.rows.sums(self.rows.gradient.curvature(self.tables.theta(weights)))
        return self.tables.gathered(bent * self.tables.says) + self.l2
