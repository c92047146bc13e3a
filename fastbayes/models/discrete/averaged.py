"""What AODE and A2DE share: a mean over super-parents, its parameters, and who spoke."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch
from fastbayes.models.discrete.one_dependence import OneDependence, code_rows
from fastbayes.models.discrete.subsumption import (
    Subsumption,
    SubsumptionScorer,
    checked_threshold,
)
from fastbayes.models.estimator.count_tables import Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, number, parameter, pseudo_count
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.statistics.bundle import Statistics

# Numbers that explaining a block of rows may take at a time: 32 MiB.
NUMBERS = 1 << 22


class Averaged(OneDependence):
    """A mean over models in which features of the row are parents of all others.

    A subclass reads the statistics (`_read`), gives a scorer (`_mean_scorer`), what each feature
    says in rows (`_spoken`), how many numbers that takes a row (`_numbers`), what each model
    averaged gives to the classes (`_models`), and random codes (`_drawn_codes`).
    """

    _averages: ClassVar[bool] = True

    alpha: float = parameter(
        'Pseudo-count of every cell ("laplace").', default=1.0, check=pseudo_count()
    )
    subsumption: bool | float = parameter(
        """
        Whether a value is left out of a row if another value of the row implies it: one that was
        seen often, and always together with it (Zheng et al. 2012). True means 100 times; a number
        how often, in units of weight.
        """,
        default=False,
    )
    smoothing: str = parameter(
        '"laplace", or "m_estimate": m rows spread over the cells of each distribution.',
        default="laplace",
        choices=("laplace", "m_estimate"),
    )
    m: float = parameter(
        'Pseudo-count of each distribution ("m_estimate").', default=1.0, check=number()
    )
    class_prior: str | ArrayLike | None = parameter(
        'None (as counted), "empirical", "uniform", or (n_classes,) probabilities.', default=None
    )
    missing: str = parameter(
        '"marginalize": a missing value is neither parent nor child; "category": it is a value.',
        default="marginalize",
        choices=("marginalize", "category"),
    )

    class_log_prior_: Floats = fitted("(n_classes,) nats: the prior of the naive Bayes fallback.")
    _implied: Subsumption | None = fitted()
    _rule: Smoothing = fitted()
    _given_prior: Floats | None = fitted()

    min_count: float = fitted()

    # -- what a subclass gives -----------------------------------------------------------------

    def _mean_scorer(self, cells: float) -> Any:
        """Return the scorer of rows from which implied values were taken out."""
        raise NotImplementedError

    def _numbers(self) -> int:
        """Return how many numbers `_spoken` holds for each row."""
        raise NotImplementedError

    def _spoken(self, rows: NDArray[np.int64], out: Floats) -> Floats:
        """Write contributions, and return the share of each super-parent, shaped like them.

        rows  (n_features, n_rows) row (offset + code) of each cell
        """
        raise NotImplementedError

    def _models(self, prior: Floats | None) -> tuple[Floats, Floats]:
        """Return the weight of each model averaged, (n_models,), and P(c) in it, (n_models, K).

        For a prior that is given, or None.
        """
        raise NotImplementedError

    # -- parameters ----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        threshold = checked_threshold(self.subsumption)
        if threshold is not None and (self.missing, self.unseen) == ("category", "smooth"):
            raise ValueError(
                "subsumption leaves values out of a row as not observed, which nothing is with "
                "missing='category' and unseen='smooth'; use unseen='ignore'"
            )

    def _smoothing(self) -> Smoothing:
        return Smoothing(self.smoothing, float(self.alpha), float(self.m))

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found, threshold = super()._read(stats), checked_threshold(self.subsumption)
        implied = None
        if threshold is not None:
            implied = Subsumption(found["_cells"], stats.schema.names, threshold)
        return found | {
            "_rule": self._smoothing(),
            "_implied": implied,
            "_given_prior": None if self.class_prior is None else np.exp(found["class_log_prior_"]),
        }

    @property
    def subsumptions_(self) -> list[tuple[str, Any, str, Any]]:
        """Values that imply another: (column, value, column, implied value)."""
        self._check_fitted()
        rules = [] if self._implied is None else self._implied.rules.tolist()
        names = self.schema_.names
        values = [[*pa.array(f.values).to_pylist(), None] for f in self.schema_.features]
        return [(names[i], values[i][a], names[j], values[j][b]) for i, a, j, b in rules]

    def adapt_prior(self, X: Any, *, tolerance: float = 1e-9, max_iter: int = 10_000) -> Self:  # noqa: D102
        # The prior of each super-parent's rows differs, so begin from the model that has just one.
        if self.class_prior is None:
            self._check_fitted()
            start = self._copy_with(class_prior=np.exp(self.class_log_prior_))
            return start.adapt_prior(X, tolerance=tolerance, max_iter=max_iter)
        return super().adapt_prior(X, tolerance=tolerance, max_iter=max_iter)

    adapt_prior.__doc__ = OneDependence.adapt_prior.__doc__

    # -- answers -------------------------------------------------------------------------------

    def _scorer(self, cells: float) -> Any:
        scorer, implied = self._mean_scorer(cells), self._implied
        return scorer if implied is None else SubsumptionScorer(scorer, implied, cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        self._shares(batch, out)

    def _class_margin(self) -> Floats:
        # Without a given prior, each super-parent has its own of the rows where it is known.
        weights, margins = self._models(self._given_prior)
        return logs(weights @ margins / weights.sum()) if weights.any() else self.class_log_prior_

    def _even_prior(self) -> Floats | None:
        """Return a prior for sampling given the class, which a given one has no part in."""
        return None if self._given_prior is None else np.ones(len(self._given_prior))

    def _chosen(self, codes: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.int64]:
        """Return one of the models averaged for each class code, by P(model | c)."""
        weights, margins = self._models(self._even_prior())
        return value_codes(weights[:, None] * some_of_each(margins), codes, random)

    def _shares(self, batch: Batch, out: Floats) -> Floats:
        if self._implied is not None:
            batch = self._implied.of_batch(batch)
        rows, shares = code_rows(batch, self._cells.offsets), np.empty(out.shape)
        step = max(1, NUMBERS // max(1, self._numbers()))
        for lo in range(0, batch.n_rows, step):
            some = slice(lo, lo + step)
            shares[some] = self._spoken(rows[:, some], out[some])
        return shares


def some_of_each(table: Floats) -> Floats:
    """Return a table (n, n_classes) with 1 for every entry of a class that has none: 0/0."""
    return np.where(table.any(axis=0), table, 1.0)
