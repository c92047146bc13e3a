"""Naive Bayes whose columns have weights, learned by conditional likelihood (WANBIA)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.layout import Layout
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.models.discrete.naive_bayes import alpha_and_prior
from fastbayes.models.estimator.base import Classifier, Scans, check_learnable
from fastbayes.models.estimator.column_table import Distribution
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import (
    CLASS_PRIOR,
    PACKING_LIMIT,
    PRECISION,
    UNSEEN,
    fitted,
    number,
    parameter,
    pseudo_count,
    whole,
)
from fastbayes.models.estimator.smoothing import Smoothing, log_likelihood, missing_as_value
from fastbayes.models.estimator.unavailable import of_posteriors, unavailable
from fastbayes.models.logistic.minimise import newton
from fastbayes.scan.packed_rows import PackedRows, read_rows, rereadable
from fastbayes.statistics.bundle import Statistics


class Weights(NamedTuple):
    """What was learned from the rows besides their counts.

    weight     (d,) of each column
    progress   whether the minimiser converged, its steps, gradient norm and objective
    trace      (n, 4) share of rows, objective, gradient norm and passes of each step
    """

    weight: Floats
    progress: tuple[bool, int, float, float]
    trace: Floats


class WeightedNaiveBayes(Classifier):
    """Naive Bayes with a weight for each column, so that columns that repeat others count less.

    Notes
    -----
    P(c | x) is proportional to P(c) prod_j P(x_j | c)^w_j, the probabilities those of naive Bayes,
    and the weights those of largest conditional likelihood: a convex problem in one number per
    column, which begins at w = 1, so that the likelihood is never below that of naive Bayes. Of
    columns that say the same each gets its share of one; weights may be negative.

    Likelihoods are of the rows that the tables were counted from: a column of noise does not get
    weight 0 by them, for its table fits the noise as far as it goes.

    One scan counts, one more for cut points, and one packs the rows, which some ten steps go over.

    References
    ----------
    Zaidi, Cerquides, Carman, Webb (2013), Alleviating naive Bayes attribute independence assumption
    by attribute weighting, Journal of Machine Learning Research 14: WANBIA by conditional log
    likelihood.

    Examples
    --------
    >>> import fastbayes as fb
    >>> sky, play = list("ssrrsrsr") * 9, list("yynnynny") * 9
    >>> table = {"sky": sky, "again": sky, "and again": sky, "play": play}
    >>> model = fb.WeightedNaiveBayes().fit(table, "play")
    >>> {name: round(weight, 2) for name, weight in model.weights_.items()}
    {'sky': 0.37, 'again': 0.37, 'and again': 0.37}
    >>> new = {"sky": ["s"], "again": ["s"], "and again": ["s"]}
    >>> model.predict_proba(new).round(2)
    array([[0.24, 0.76]])
    """

    alpha: float | str = parameter(
        """
        Pseudo-count > 0 of every value and class, or "loo": the value from 1e-6 to 1e4 that
        maximises the leave-one-out log joint.
        """,
        default=1.0,
        check=pseudo_count(above=0.0, besides=("loo",)),
    )
    l2: float = parameter(
        """
        How strongly weights are drawn to 1, at which the model is naive Bayes: l2/2 Σ (w_j - 1)²
        is added to the loss; 0 leaves them free.
        """,
        default=1.0,
        check=number(),
    )
    class_prior: str | ArrayLike | None = CLASS_PRIOR
    discretize: Any = parameter(
        """
        How numeric columns become bins: "mdl" (Fayyad, Irani 1993), "quantile", "width",
        ("quantile", n), ("width", n), or {column: any of these or cut points}.
        """,
        default="mdl",
    )
    unseen: str = UNSEEN
    precision: str = PRECISION
    tol: float = parameter(
        """
        Stop where no derivative of the objective, by the weight of the rows, is larger than this.
        """,
        default=1e-8,
        check=number(above=0.0),
    )
    max_iter: int = parameter(
        "Newton steps at most.",
        default=100,
        check=whole(1),
    )
    memory_limit: int | None = PACKING_LIMIT
    weights_: dict[str, float] = fitted("{column: weight}.")
    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    alpha_: float = fitted("The pseudo-count in use.")
    converged_: bool = fitted("Whether the minimiser got where `tol` says.")
    n_iter_: int = fitted("Newton steps.")
    gradient_norm_: float = fitted("The largest derivative at the end, as `tol` has it.")
    objective_: float = fitted(
        "The value at the end: -ln P(y | x) summed over rows, and the penalty."
    )
    trace_: Floats = fitted(
        """
        Of each step the share of rows, the objective, the gradient norm, and how many times all
        rows had been read by then.
        """
    )
    statistics_: Any = fitted("Counts of values.")
    _tables: Floats = fitted()
    _offsets: NDArray[np.int64] = fitted()
    _found: Weights = fitted()

    _statistics: ClassVar[tuple[str, ...]] = ("values",)
    _of_rows: ClassVar[tuple[str, ...]] = ("_found",)
    _discretizes: ClassVar[bool] = True
    _sums_columns: ClassVar[bool] = True
    _reads_rows: ClassVar[bool] = True  # counts are not all that it learns from

    partial_fit = unavailable(
        "WeightedNaiveBayes learns its weights from all rows at once: use fit, with a path for "
        "rows that do not fit in memory"
    )
    fit_statistics = unavailable(
        "WeightedNaiveBayes learns its weights from rows, which no counts replace: use fit, or "
        "NaiveBayes"
    )
    log_evidence, sample = of_posteriors("WeightedNaiveBayes")

    # -- learning ------------------------------------------------------------------------------

    def _scanned(self, scans: Scans) -> Statistics:
        # Rows are read again: those of a stream are kept.
        scans = replace(scans, source=rereadable(scans.source))
        stats = super()._scanned(scans)
        check_learnable(stats, scans.source.description)
        self._found = self._weighed(scans, stats)
        return stats

    def _weighed(self, scans: Scans, stats: Statistics) -> Weights:
        """Return the weights of largest conditional likelihood of the rows."""
        naive = self._naive(stats)
        sizes = stats.values.shape.sizes + missing_as_value(stats.values, self.missing)
        weight = np.ones((len(sizes), 1))
        if len(stats.schema.classes) < 2:
            return Weights(weight[:, 0], (True, 0, 0.0, 0.0), np.empty((0, 4)))
        tables = WeightedTables.of(
            naive["class_log_prior_"], naive["_tables"], naive["_offsets"], sizes
        )
        reading = scans.reading(self, stats.schema, tables.layout)
        (rows,) = read_rows(reading, int(scans.source.n_rows or stats.n_rows))
        objective = Conditional(rows, tables, float(self.l2))
        found = newton(
            objective, weight, tol=float(self.tol), max_iter=int(self.max_iter), what="the weights"
        )
        found.warn()
        given = found.converged, found.n_iter, found.error, found.loss
        return Weights(found.point[:, 0].copy(), given, found.trace)

    def _naive(self, stats: Statistics) -> dict[str, Any]:
        """Return the parameters of naive Bayes."""
        # `tol` and `max_iter` are those of the weights; this search always ends.
        alpha, prior, _ = alpha_and_prior(self, stats, tol=1e-9, max_iter=100)
        options = {"missing": self.missing, "unseen": self.unseen}
        tables, offsets = log_likelihood(stats.values, alpha, **options)
        return {"alpha_": alpha, "class_log_prior_": prior, "_tables": tables, "_offsets": offsets}

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found, naive = self._found, self._naive(stats)
        names = [f.name for f in stats.schema.categorical]
        each = np.repeat(found.weight, np.diff(naive["_offsets"]))
        converged, n_iter, norm, objective = found.progress
        return naive | {
            "_tables": each[:, None] * naive["_tables"],
            "weights_": dict(zip(names, found.weight.tolist(), strict=True)),
            "converged_": converged,
            "n_iter_": n_iter,
            "gradient_norm_": norm,
            "objective_": objective,
            "trace_": found.trace,
        }

    # -- answers -------------------------------------------------------------------------------

    def _value_smoothing(self) -> Smoothing:
        return Smoothing(alpha=self.alpha_)

    def _distribution(self, place: int) -> Distribution:
        weight = self._found.weight[place]
        return super()._distribution(place)._replace(note=f"weight {weight:.5g}")

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, (S_j - 1) K per column, and a weight for each."""
        self._check_fitted()
        k, d, values = len(self.classes_), len(self._found.weight), self.statistics_.values
        sizes = values.shape.sizes + missing_as_value(values, self.missing)
        return k - 1 + int(np.maximum(sizes - 1, 0).sum()) * k + d

    def _scorer(self, cells: float) -> Any:
        return dispatch.load("scoring.log_joint", cells).NaiveScorer(
            self.class_log_prior_, self._tables, self._offsets, None, self.precision
        )

    def _contributions(self, batch: Batch, out: Floats) -> None:
        for feature, column in columns_of(batch.codes).items():
            out[:, feature] = self._tables[self._offsets[feature] + column.astype(np.int64)]

    # -- saving --------------------------------------------------------------------------------

    def _state_of_rows(self) -> tuple[dict[str, Any], dict[str, Any]]:
        found = self._found
        arrays = {"weights.weight": found.weight, "weights.trace": found.trace}
        return {"weights": list(found.progress)}, arrays

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> Statistics:
        stats = super()._loaded(header, arrays, source)
        weight = np.array(arrays["weights.weight"], np.float64)
        if weight.shape != (len(stats.schema.categorical),) or not np.isfinite(weight).all():
            raise ValueError("the weights are not a finite number for each column")
        converged, n_iter, norm, objective = header["weights"]
        given = bool(converged), int(n_iter), float(norm), float(objective)
        self._found = Weights(weight, given, np.array(arrays["weights.trace"], np.float64))
        return stats


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
        """Return the tables of a naive Bayes model, for rows with so many values of each column.

        Its log likelihoods are (n_slots, n_classes), and finite; offsets are the columns' first
        rows.
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
    """

    def __init__(self, rows: PackedRows, tables: WeightedTables, l2: float) -> None:
        self.rows, self.tables, self.l2 = rows, tables, l2
        self.total = rows.total

    @property
    def passes(self) -> float:
        """Times that all rows have been read."""
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
