"""Drop-in multinomial, complement, Bernoulli naive Bayes: class x feature sums and smoothing."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import DataError
from fastbayes.core.schema import Shape
from fastbayes.core.warn import warn
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter
from fastbayes.models.estimator.unavailable import unavailable
from fastbayes.models.logistic.to_logistic import ClassFacts, LinearForm, of_bins, of_weights
from fastbayes.models.sklearn.array_rows import LinearScorer, indicators
from fastbayes.models.sklearn.drop_in_base import ArrayRowsBlock, DropIn, is_real
from fastbayes.statistics.array_statistics import ArrayStatistics
from fastbayes.statistics.feature_sums import FeatureSums

ALPHA_MIN = 1e-10  # scikit-learn's bound where force_alpha is off


class DiscreteDropIn(DropIn):
    """Prior and smoothing of scikit-learn's discrete classes."""

    alpha: Any = parameter(
        "Pseudo-count added to each feature in each class, or (n_features,) of them.", default=1.0
    )
    force_alpha: bool = parameter("Whether to keep an alpha below 1e-10, 0 included.", default=True)
    fit_prior: bool = parameter(
        "Whether to learn the class prior; uniform otherwise. It is not smoothed.", default=True
    )
    class_prior: Any = parameter("(n_classes,) probabilities to use instead.", default=None)

    class_count_: Floats = fitted()
    class_log_prior_: Floats = fitted()

    def _check_parameters(self) -> None:
        if not is_real(self.alpha):
            self._check_alpha_array()
        for name in ("force_alpha", "fit_prior", "norm"):
            if not isinstance(getattr(self, name, True), (bool, np.bool_)):
                raise self._must_be(name, "an instance of 'bool'")
        if self.class_prior is not None and np.ndim(self.class_prior) != 1:
            raise self._must_be("class_prior", "an array-like or None")

    def _check_alpha_array(self) -> None:
        alpha = np.asarray(self.alpha)
        if alpha.ndim != 1 or alpha.dtype.kind not in "buif" or not np.isfinite(alpha).all():
            raise self._must_be("alpha", "a float in the range [0.0, inf) or an array-like")
        if (alpha < 0).any():
            raise ValueError("All values in alpha must be greater than 0.")

    def _alpha(self, n_features: int) -> Any:
        alpha = np.asarray(self.alpha, dtype=np.float64)
        if alpha.ndim and len(alpha) != n_features:
            raise ValueError(
                "When alpha is an array, it should contains `n_features`. Got "
                f"{len(alpha)} elements instead of {n_features}."
            )
        if alpha.min() < ALPHA_MIN and not self.force_alpha:
            warn(
                f"alpha too small will result in numeric errors, setting alpha = {ALPHA_MIN:.1e}. "
                "Use `force_alpha=True` to keep alpha unchanged."
            )
            alpha = np.maximum(alpha, ALPHA_MIN)
        return alpha if alpha.ndim else float(alpha)

    @property
    def _facts(self) -> ClassFacts:
        """What a linear model is told of classes."""
        told = self._feature_names(), self.classes_, self.class_count_, self._explained_prior()
        return ClassFacts(*told, smoothed=not self.force_alpha or bool(np.min(self.alpha) > 0))

    def _read_prior(self, stats: ArrayStatistics) -> dict[str, Any]:
        counts = stats.class_counts
        with np.errstate(divide="ignore"):
            if self.class_prior is not None:
                if len(self.class_prior) != len(counts):
                    raise ValueError("Number of priors must match number of classes.")
                prior = np.asarray(self.class_prior, dtype=np.float64)
                if not (prior >= 0).all():
                    raise ValueError("Priors must be non-negative.")
                log_prior = np.log(prior)
            elif self.fit_prior:
                log_prior = np.log(counts) - np.log(counts.sum())
            else:
                log_prior = np.full(len(counts), -np.log(len(counts)))
        return {"class_count_": counts, "class_log_prior_": log_prior}

    def _log_prior(self) -> Floats:
        return self.class_log_prior_

    def _check_not_negative(self, X: Any, above: float = 0.0) -> None:
        """Raise for numbers below 0, or where fractions are cut off, for -1 and below."""
        values = X if isinstance(X, np.ndarray) else X.data
        least = values.min() if values.size else 0
        if least < 0 and least <= above:
            raise DataError(
                f"Negative values in data passed to {type(self).__name__} (input X): the least is "
                f"{least}; use counts or codes from 0"
            )


class SumsDropIn(DiscreteDropIn):
    """The classes whose statistic is the class x feature sums; sparse matrices stay sparse."""

    feature_count_: Floats = fitted()
    feature_log_prob_: Floats = fitted()

    _accept_sparse: ClassVar[bool] = True
    _poor_score: ClassVar[bool] = True
    _parts: ClassVar[tuple[str, ...]] = ("sums",)

    def _above(self) -> float | None:
        return None

    def _count(self, rows: ArrayRowsBlock) -> dict[str, Any]:
        if self._positive_only:
            self._check_not_negative(rows.X)
        sums = FeatureSums(Shape(np.empty(0, np.int64), rows.X.shape[1], rows.n_classes))
        sums.add_rows(rows.X, rows.y, rows.weight, self._above())
        if not np.isfinite(sums.sums).all():
            column = int(np.argwhere(~np.isfinite(sums.sums))[0, 1])
            raise DataError(f"column {column}: the numbers sum to infinity; divide them by a scale")
        return {"sums": sums}

    def _read(self, stats: ArrayStatistics) -> dict[str, Any]:
        sums = stats.parts["sums"]
        attributes = {**self._read_prior(stats), "feature_count_": sums.sums.copy()}
        with np.errstate(divide="ignore", invalid="ignore"):
            return attributes | self._read_features(sums, self._alpha(stats.n_features))

    def _read_features(self, sums: FeatureSums, alpha: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _linear(self) -> LinearForm:
        return of_weights(self._facts, self.feature_log_prob_.T)

    def _contributions(self, X: Any) -> Floats:
        return _times(indicators(X, self._above())[:, :, None], self.feature_log_prob_.T)


def _times(x: Floats, weights: Floats) -> Floats:
    """Return the product in which 0 times infinity is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(x == 0, 0.0, x * weights)


class MultinomialNB(SumsDropIn):
    """Multinomial naive Bayes for counts, as scikit-learn 1.9 has it.

    Notes
    -----
    Numbers equal scikit-learn's to 1e-9. Where those would be NaN, at alpha=0, the limit is
    taken: a feature never seen in any row of a class is impossible, not undefined.

    Examples
    --------
    >>> model = MultinomialNB().fit([[2, 0], [1, 3]], ["a", "b"])
    >>> model.predict([[0, 1]])
    array(['b'], dtype='<U1')
    >>> model.statistics_.parts["sums"].sums
    array([[2., 0.],
           [1., 3.]])
    """

    _positive_only: ClassVar[bool] = True

    def _read_features(self, sums: FeatureSums, alpha: Any) -> dict[str, Any]:
        smoothed = sums.sums + alpha
        totals = smoothed.sum(axis=1, keepdims=True)
        log_prob = np.log(smoothed) - np.log(totals)
        # A class without a single count at alpha=0: the limit of alpha/(d alpha).
        log_prob[totals[:, 0] == 0] = -np.log(smoothed.shape[1])
        return {"feature_log_prob_": log_prob}

    def _scorer(self, cells: int) -> LinearScorer:
        return LinearScorer(self.class_log_prior_, self.class_log_prior_, self.feature_log_prob_)

    @property
    def n_parameters_(self) -> int:
        """Number of free parameters: K - 1 of the prior and K(d - 1) of the features."""
        self._check_fitted()
        k, d = self.feature_count_.shape
        return k - 1 + k * (d - 1)

    def _draw(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[Any]:
        # The model says nothing of a row's total: draw it as Poisson with the mean of its class.
        with np.errstate(invalid="ignore", divide="ignore"):
            length = np.nan_to_num(self.feature_count_.sum(axis=1) / self.class_count_)
        X = np.empty((len(y), self.n_features_in_), dtype=np.int64)
        for c in np.unique(y):
            rows = np.flatnonzero(y == c)
            p = np.exp(self.feature_log_prob_[c])
            X[rows] = random.multinomial(random.poisson(length[c], len(rows)), p / p.sum())
        return X


class ComplementNB(SumsDropIn):
    """Complement naive Bayes for unbalanced counts, as scikit-learn 1.9 has it.

    Notes
    -----
    Numbers equal scikit-learn's to 1e-9. The weights are no likelihood: `log_joint` is a score,
    and there is no `log_evidence`, `adapt_prior` or `sample`.

    References
    ----------
    Rennie, Shih, Teevan, Karger (2003), Tackling the poor assumptions of naive Bayes text
    classifiers, ICML, eq. 6.

    Examples
    --------
    >>> ComplementNB().fit([[2, 0], [1, 3]], ["a", "b"]).predict([[0, 1]])
    array(['b'], dtype='<U1')
    """

    fit_prior: bool = parameter(
        "Whether to learn the class prior, which only a single class uses.",
        default=True,
    )
    norm: bool = parameter(
        "Whether to divide the weights of a class by their sum.",
        default=False,
    )
    feature_all_: Floats = fitted()

    _positive_only: ClassVar[bool] = True

    log_evidence = adapt_prior = sample = unavailable(
        "ComplementNB has no likelihood of x; use MultinomialNB"
    )

    def _read_features(self, sums: FeatureSums, alpha: Any) -> dict[str, Any]:
        everywhere = sums.sums.sum(axis=0)
        complement = everywhere + alpha - sums.sums
        totals = complement.sum(axis=1, keepdims=True)
        logged = np.log(complement / totals)
        logged[totals[:, 0] == 0] = -np.log(complement.shape[1])
        weights = -logged
        if self.norm:
            infinite = np.isinf(weights)
            some = infinite.any(axis=1)
            weights[some] = infinite[some]  # the limit: they outweigh all others
            total = weights.sum(axis=1, keepdims=True)
            weights = np.where(total == 0, 1 / complement.shape[1], weights / total)
        return {"feature_all_": everywhere, "feature_log_prob_": weights}

    def _explained_prior(self) -> Floats:
        k = len(self.classes_)
        return self.class_log_prior_ if k == 1 else np.zeros(k)

    def _scorer(self, cells: int) -> LinearScorer:
        return LinearScorer(self.class_log_prior_, self._explained_prior(), self.feature_log_prob_)

    @property
    def n_parameters_(self) -> int:
        """Number of free parameters: K(d - 1) weights."""
        self._check_fitted()
        k, d = self.feature_count_.shape
        return k * (d - 1)


class BernoulliNB(SumsDropIn):
    """Bernoulli naive Bayes for yes-or-no features, as scikit-learn 1.9 has it.

    Notes
    -----
    Numbers equal scikit-learn's to 1e-9; at alpha=0 limits stand where those would be NaN. An
    array of alpha smooths the features, where scikit-learn adds it to the classes.

    Examples
    --------
    >>> BernoulliNB().fit([[1, 0], [1, 1], [0, 1]], [0, 0, 1]).predict_proba([[1, 0]]).round(3)
    array([[0.871, 0.129]])
    """

    alpha: float | ArrayLike = parameter(
        "Pseudo-count added to each of the two values in each class, or (n_features,) of them.",
        default=1.0,
    )
    binarize: float | None = parameter(
        "Numbers above this are 1, others 0; None where they are 0 and 1 already.",
        default=0.0,
    )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.binarize is not None and not is_real(self.binarize):
            raise self._must_be("binarize", "None or a float in the range [0.0, inf)")

    def _above(self) -> float | None:
        return None if self.binarize is None else float(self.binarize)

    def _options(self) -> dict[str, Any]:
        return {"binarize": self._above()}

    def _read_features(self, sums: FeatureSums, alpha: Any) -> dict[str, Any]:
        totals = sums.class_counts[:, None] + alpha * 2
        log_prob = np.log(sums.sums + alpha) - np.log(totals)
        return {"feature_log_prob_": np.where(totals == 0, -np.log(2), log_prob)}

    def _log_absent(self) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(1 - np.exp(self.feature_log_prob_))

    def _scorer(self, cells: int) -> LinearScorer:
        present, absent = self.feature_log_prob_, self._log_absent()
        known = np.where(np.isinf(absent), 0.0, absent)
        constant = self.class_log_prior_ + known.sum(axis=1)
        return LinearScorer(self.class_log_prior_, constant, present - known, self._above(), absent)

    def _linear(self) -> LinearForm:
        present, absent = self.feature_log_prob_.T, self._log_absent().T
        if (above := self._above()) is not None:
            counts = self.feature_count_.T
            tables, rows = (
                list(np.stack(both, axis=1))
                for both in ((absent, present), (self.class_count_ - counts, counts))
            )
            return of_bins(self._facts, tables, rows, above)
        with np.errstate(invalid="ignore"):
            return of_weights(self._facts, present - absent, absent)

    def _contributions(self, X: Any) -> Floats:
        x = indicators(X, self._above())[:, :, None]
        return _times(x, self.feature_log_prob_.T) + _times(1 - x, self._log_absent().T)

    @property
    def n_parameters_(self) -> int:
        """Number of free parameters: K - 1 of the prior and K d of the features."""
        self._check_fitted()
        k, d = self.feature_count_.shape
        return k - 1 + k * d

    def _draw(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[Any]:
        p = np.exp(self.feature_log_prob_)
        drawn = random.random((len(y), self.n_features_in_)) < p[y]
        # A number above the threshold for 1, one that is not for 0.
        return drawn.astype(np.float64) * (1.0 if self.binarize is None else self.binarize + 1.0)
