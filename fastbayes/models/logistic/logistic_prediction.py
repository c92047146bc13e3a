"""What a fitted logistic regression answers and how it is kept, however it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.layout import Layout
from fastbayes.core.schema import Schema, labels
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.inputs import open_training
from fastbayes.models.estimator.log_space import Floats, log_sum_exp
from fastbayes.models.estimator.model import shifted_prior
from fastbayes.models.estimator.parameters import fitted
from fastbayes.models.estimator.unavailable import unavailable
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.models.logistic.logistic_model import Fit, as_given, names_of
from fastbayes.models.logistic.wald import wald_table
from fastbayes.scan import engine
from fastbayes.scan.packed_rows import Reading
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.loss_gradient import LossGradient

# A class that new rows do not hold keeps this share.
LEAST_SHARE = 1e-12


class LogisticPrediction(Classifier):
    """A model whose class scores are linear in values and numbers."""

    _reads_rows: ClassVar[bool] = True  # counts are not all that it learns from
    _has_densities: ClassVar[bool] = False

    coefficients_: Coefficients = fitted()
    coef_: Floats = fitted()
    intercept_: Floats = fitted()
    coef_names_: list[tuple[Any, Any]] = fitted()
    converged_: bool | None = fitted()
    n_iter_: int = fitted()
    gradient_norm_: float = fitted()
    objective_: float = fitted()
    trace_: Floats = fitted()
    _fit: Fit = fitted()
    _found: Fit = fitted()  # what the last scans led to

    fit_statistics = unavailable(
        "LogisticRegression learns from rows, which no counts replace: use fit, or "
        "NaiveBayes.to_logistic for what counts can say"
    )
    log_evidence = unavailable(
        "LogisticRegression models P(c | x), not P(x): there is no evidence; use NaiveBayes"
    )
    sample = unavailable(
        "LogisticRegression models P(c | x), not P(x): there is nothing to draw rows from; use "
        "NaiveBayes"
    )

    # -- reading -------------------------------------------------------------------------------

    def _read(self, stats: Statistics) -> dict[str, Any]:
        return self._attributes(self._found, stats.schema)

    def _attributes(self, fit: Fit, schema: Schema) -> dict[str, Any]:
        return {
            "_fit": fit,
            "coefficients_": fit.coefficients,
            "coef_": fit.coefficients.coef,
            "intercept_": fit.coefficients.intercept,
            "coef_names_": names_of(fit.coefficients, schema),
            "converged_": fit.converged,
            "n_iter_": fit.n_iter,
            "gradient_norm_": fit.norm,
            "objective_": fit.objective,
            "trace_": fit.trace,
        }

    def _converted(self, coefficients: Coefficients, statistics: Statistics) -> Self:
        """Take coefficients that came about otherwise, and what is known of the rows."""
        schema = statistics.schema
        self.statistics_ = statistics
        self.schema_, self.classes_ = schema, labels(schema.classes)
        for name, value in self._attributes(Fit(coefficients), schema).items():
            setattr(self, name, value)
        return self

    def _copy_with(self, **params: Any) -> Self:
        copy = type(self)(**{**self.get_params(deep=False), **params})
        copy._set_features(vars(self).get("feature_names_in_"), self.n_features_in_)
        copy._converted(self.coefficients_, self.statistics_)
        return copy._taking(self._fit)

    def _taking(self, fit: Fit) -> Self:
        """Take a fit to the rows that the statistics are of."""
        for name, value in self._attributes(fit, self.schema_).items():
            setattr(self, name, value)
        return self

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1 times 1, S_j - 1 per column, 1 per number, products of pairs."""
        self._check_fitted()
        sizes = np.maximum(self.coefficients_.sizes - 1, 0)
        pairs = sum(int(sizes[a] * sizes[b]) for a, b in self.coefficients_.pairs)
        each = 1 + int(sizes.sum()) + len(self.coefficients_.center) + pairs
        return (len(self.classes_) - 1) * each

    # -- answers -------------------------------------------------------------------------------

    def _log_prior(self) -> Floats:
        prior = self.coefficients_.prior
        return np.asarray(prior - log_sum_exp(prior[None])[0])

    def _explained_prior(self) -> Floats:
        return self.coefficients_.prior

    def _scorer(self, cells: float) -> Any:
        return self.coefficients_.scorer(cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        features = self.schema_.features
        places = {
            kind: [i for i, f in enumerate(features) if f.kind == kind]
            for kind in ("categorical", "numeric")
        }
        self.coefficients_.contributions(batch, places, out)

    def adapt_prior(self, X: Any, *, tolerance: float = 1e-9, max_iter: int = 10_000) -> Self:
        """Return a copy whose intercepts fit unlabelled rows, by expectation maximisation.

        Parameters
        ----------
        X
            Rows whose classes are unknown, as in `predict`.
        tolerance
            Stop when no prior changes by more than this.
        max_iter
            Stop with an error after so many steps.

        Returns
        -------
        Self
            A fitted model whose intercepts are moved by the logarithm of how much more, or less,
            frequent each class is than among the rows it learned from; this one is left as it was.

        Raises
        ------
        DataError
            When there are no rows, or the steps did not settle.

        References
        ----------
        Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a
        priori probabilities, Neural Computation 14, eq. 2.
        """
        self._check_fitted()
        counts = np.asarray(self.statistics_.values.class_counts, np.float64)
        weight = self._class_weights(self.statistics_)
        counts = counts if weight is None else counts * weight
        prior = np.maximum(counts / counts.sum(), LEAST_SHARE)
        found = shifted_prior(self.predict_proba(X), prior, tolerance, max_iter)
        moved = np.log(np.maximum(found, LEAST_SHARE)) - np.log(prior)
        moved -= moved[0] if len(moved) == 2 else moved.mean()
        fit = self._fit
        copy = self._copy_with()
        shifted = replace(fit.coefficients, prior=fit.coefficients.prior + moved)
        return copy._taking(replace(fit, coefficients=shifted))

    def _class_weights(self, stats: Statistics) -> Floats | None:
        """Return what the weights of each class's rows are multiplied by."""
        raise NotImplementedError

    def loss_gradient(self, X: Any, y: Any, *, sample_weight: Any = None) -> LossGradient:
        """Return the loss of rows and its gradient at the model's coefficients.

        Parameters
        ----------
        X
            Rows, as in `fit`; values unseen at fit add nothing.
        y
            As in `fit`.
        sample_weight
            As in `fit`.

        Returns
        -------
        LossGradient
            Sums over the rows, without the penalty: those of parts of the rows add up to those of
            all, so that any engine that maps and merges can take gradient steps.
        """
        self._check_fitted()
        opened = open_training(self, X, y, sample_weight, reset=False)
        c, k = self.coefficients_, len(self.classes_)
        layout = Layout.of(c.sizes, k, center=c.center, scale=np.ones(len(c.center)), pairs=c.pairs)
        reading = Reading(
            source=opened.source,
            schema=self.schema_,
            layout=layout,
            target=opened.target,
            weight=opened.weight,
            class_weight=self._class_weights(self.statistics_),
            threads=engine.resolved_threads(self.threads),
            limit=0.0,
        )
        theta = c.theta(layout)
        loss, gradient, rows, total = reading.sums(lambda gradient: gradient.loss_gradient(theta))
        numeric = slice(layout.rows.numeric, layout.rows.numeric + layout.n_numeric)
        # From derivatives by slopes around the center to those by slopes around 0.
        gradient[numeric] += c.center[:, None] * gradient[0]
        return LossGradient(rows, total, loss, gradient, at=LossGradient.mark(theta))

    def coefficients(self, *, level: float = 0.95) -> pa.Table:
        """Return the coefficients as a table, with Wald intervals where they were asked for.

        Parameters
        ----------
        level
            Probability of an interval.

        Returns
        -------
        pyarrow.Table
            A line for each coefficient and class: `feature` ("(intercept)", the column, or two as
            a:b), `value` (of a categorical column), `class`, `reference` and `reference_class`
            (what is compared with), `coefficient`, `odds_ratio`; of a model that was fitted with
            `standard_errors=True` also `standard_error`, `z`, `p_value` (two-sided, of a
            coefficient of 0), `lower`, `upper`, `odds_ratio_lower`, `odds_ratio_upper`.

        Raises
        ------
        ValueError
            When the level is not between 0 and 1.

        Notes
        -----
        Without a penalty only differences of the values of a column mean something. With
        standard errors each value is then compared with the most frequent one, and each of
        more than two classes with the first one: the numbers of treatment coding, where the
        intercept is a row of references and zeros. With "l2" the coefficients are as they are, and
        their intervals those of a posterior: of a normal prior of variance C about 0, as a normal
        density about its peak (Laplace's approximation); as confidence intervals they cover too
        little where the penalty has pulled coefficients away.

        References
        ----------
        Wald (1943), Tests of statistical hypotheses concerning several parameters when the number
        of observations is large, Transactions of the American Mathematical Society 54.
        """
        self._check_fitted()
        return wald_table(self._fit, self.schema_, level)

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds.

        Returns
        -------
        tuple
            Header and arrays.
        """
        self._check_fitted()
        header, arrays = self.statistics_.state()
        told, more = self._fit.state()
        header |= {"named": "feature_names_in_" in vars(self), "fit": told}
        return header, {**arrays, **more}

    @classmethod
    def from_state(
        cls,
        params: Mapping[str, Any],
        header: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        source: str,
    ) -> Self:
        """Return the model that `state` described.

        Parameters
        ----------
        params
            Constructor parameters.
        header, arrays
            From `state`.
        source
            Name of the file, for messages.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        FileFormatError, SchemaError, KeyError, TypeError, ValueError
            When header and arrays do not fit together; `fastbayes.load` names the file then.
        """
        stats = Statistics.from_state(header, arrays, source)
        schema, fit = stats.schema, Fit.from_state(header["fit"], arrays)
        model = cls(**as_given(params, schema))
        shape = len(schema.categorical), len(schema.numeric), len(schema.classes)
        c = fit.coefficients
        if (len(c.sizes), len(c.center), len(c.prior)) != shape:
            raise ValueError("the coefficients are not of the columns and classes")
        model._set_features(schema.names if header["named"] else None, len(schema.names))
        model._converted(c, stats)
        return model._taking(fit)
