"""scikit-learn's five naive Bayes classes, with its parameters, attributes and numbers."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, MemoryLimitError, warn
from fastbayes.core.schema import Shape
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.moments import two_sum
from fastbayes.models.estimator.column_table import (
    ClassNumbers,
    ColumnTable,
    of_classes,
    of_codes,
    of_numbers,
)
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.models.estimator.smoothing import logs
from fastbayes.models.estimator.unavailable import unavailable
from fastbayes.models.logistic.to_logistic import (
    ClassFacts,
    LinearForm,
    of_categories,
    of_weights,
    refuse_variances,
)
from fastbayes.models.numeric.covariance import centre_of
from fastbayes.models.sklearn.array_rows import (
    BLOCK_CELLS,
    ArrayRowsBlock,
    DropIn,
    GaussianScorer,
    LinearScorer,
    code_counts,
    column_codes,
    columns,
    indicators,
    is_real,
    numeric_moments,
)
from fastbayes.statistics import ClassMoments, ValueCounts
from fastbayes.statistics.array_statistics import OVERALL, ArrayStatistics, resized
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.class_moments import GroupMoments
from fastbayes.statistics.feature_sums import FeatureSums, class_sums

__all__ = ["BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"]

ALPHA_MIN = 1e-10  # scikit-learn's bound where force_alpha is off


def given_prior(values: ArrayLike, n_classes: int, total: float | None = None) -> Floats:
    """Return the probabilities of classes that a parameter holds, in scikit-learn's words."""
    prior = np.asarray(values, dtype=np.float64)
    if len(prior) != n_classes:
        raise ValueError("Number of priors must match number of classes.")
    if total is not None and not np.isclose(prior.sum(), total):
        raise ValueError("The sum of the priors should be 1.")
    if not (prior >= 0).all():
        raise ValueError("Priors must be non-negative.")
    return prior


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
        """What a linear model is given of classes."""
        given = self._feature_names(), self.classes_, self.class_count_, self._explained_prior()
        return ClassFacts(*given, smoothed=not self.force_alpha or bool(np.min(self.alpha) > 0))

    def _read_prior(self, stats: ArrayStatistics) -> dict[str, Any]:
        counts = stats.class_counts
        if self.class_prior is not None:
            log_prior = logs(given_prior(self.class_prior, len(counts)))
        elif self.fit_prior:
            log_prior = logs(counts) - logs(counts.sum())
        else:
            log_prior = np.full(len(counts), -np.log(len(counts)))
        return {"class_count_": counts, "class_log_prior_": log_prior}

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

    def _scorer(self, cells: int) -> LinearScorer:
        return LinearScorer(self.class_log_prior_, self._explained_prior(), self.feature_log_prob_)

    def _linear(self) -> LinearForm:
        return of_weights(self._facts, self.feature_log_prob_.T)

    def _contributions(self, X: Any) -> Floats:
        return _times(indicators(X, self._above())[:, :, None], self.feature_log_prob_.T)

    def _column_table(self, j: int) -> ColumnTable:
        name, says = self._feature_names()[j], "share of the total of each class"
        share, total = np.exp(self.feature_log_prob_[:, j]), self.feature_count_[:, j]
        return of_classes(name, says, self.classes_, share=share, total=total)


def _log_shares(smoothed: Floats) -> Floats:
    """Return ln of each number's share of its row; 0/0, a class never seen at alpha=0, is 1/n."""
    totals = smoothed.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(totals == 0, -np.log(smoothed.shape[1]), np.log(smoothed) - np.log(totals))


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
        return {"feature_log_prob_": _log_shares(sums.sums + alpha)}

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

    def _column_table(self, j: int) -> ColumnTable:
        name, says = self._feature_names()[j], "weight in the score of each class"
        weight, total = self.feature_log_prob_[:, j], self.feature_count_[:, j]
        return of_classes(name, says, self.classes_, weight=weight, total=total)

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

    _keeps_terms: ClassVar[bool] = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.binarize is not None and not is_real(self.binarize):
            raise self._must_be("binarize", "None or a float in the range [0.0, inf)")

    def _above(self) -> float | None:
        return None if self.binarize is None else float(self.binarize)

    def _options(self) -> dict[str, Any]:
        return {"binarize": self._above()}

    def _read_features(self, sums: FeatureSums, alpha: Any) -> dict[str, Any]:
        rows = sums.class_counts[:, None]
        wrong = np.argwhere((sums.sums < 0) | (sums.sums > rows * (1 + 1e-9)))
        if len(wrong):
            code, column = wrong[0].tolist()
            raise DataError(
                f"column {column}: the numbers of class number {code} sum to "
                f"{sums.sums[code, column]:g} over {sums.class_counts[code]:g} rows: some are "
                "neither 0 nor 1; give the number above which they are 1 as binarize=0.0"
            )
        totals = rows + alpha * 2
        log_prob = np.log(sums.sums + alpha) - np.log(totals)
        return {"feature_log_prob_": np.where(totals == 0, -np.log(2), log_prob)}

    def _log_absent(self) -> Floats:
        return logs(1 - np.exp(self.feature_log_prob_))

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
            return of_categories(self._facts, tables, rows, above)
        with np.errstate(invalid="ignore"):
            return of_weights(self._facts, present - absent, absent)

    def _contributions(self, X: Any) -> Floats:
        x = indicators(X, self._above())[:, :, None]
        return _times(x, self.feature_log_prob_.T) + _times(1 - x, self._log_absent().T)

    def _column_table(self, j: int) -> ColumnTable:
        present, rows = np.exp(self.feature_log_prob_[:, j]), self.feature_count_[:, j]
        probability = np.stack([1 - present, present])
        counts = np.stack([self.class_count_ - rows, rows])
        return of_codes(self._feature_names()[j], [0, 1], self.classes_, probability, counts)

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


# A code of a billion means a billion categories to scikit-learn; it is an id, not a category.
MAX_CELLS = 1 << 29
# Cells of the tables of a model file that nothing was counted in: a file of a few kB asks for them.
MOST_CLAIMED = 1 << 24
# Up to so many cells, tables are made before the largest codes are known.
FEW_CELLS = 1 << 18


class CategoricalNB(DiscreteDropIn):
    """Categorical naive Bayes for codes 0, 1, ..., as scikit-learn 1.9 has it.

    Notes
    -----
    Numbers equal scikit-learn's to 1e-9. A code above those seen at fit is no error: its factor
    is 1, and `explain` counts it. `n_categories_` covers every batch of `partial_fit`.

    Examples
    --------
    >>> model = CategoricalNB().fit([[0, 1], [1, 2], [1, 0]], ["a", "b", "b"])
    >>> model.category_count_[0]
    array([[1., 0.],
           [0., 2.]])
    >>> model.predict([[1, 9]])
    array(['b'], dtype='<U1')
    """

    alpha: float = parameter(
        "Pseudo-count added to each category of a feature in each class.",
        default=1.0,
    )
    min_categories: int | ArrayLike | None = parameter(
        """
        Least number of categories of each feature, or (n_features,) of them; None for as many
        as the largest code implies.
        """,
        default=None,
    )
    category_count_: list[Floats] = fitted()
    feature_log_prob_: list[Floats] = fitted()
    n_categories_: NDArray[np.int64] = fitted()

    _positive_only: ClassVar[bool] = True
    _categorical: ClassVar[bool] = True
    _keeps_terms: ClassVar[bool] = True
    _poor_score: ClassVar[bool] = True
    _parts: ClassVar[tuple[str, ...]] = ("values",)

    def _check_alpha_array(self) -> None:
        raise self._must_be("alpha", "a float in the range [0.0, inf)")

    def _least_sizes(self, n_features: int) -> NDArray[np.int64]:
        if self.min_categories is None:
            return np.zeros(n_features, dtype=np.int64)
        least = np.asarray(self.min_categories)
        if least.dtype.kind != "i":
            raise ValueError(
                f"'min_categories' should have integral type. Got {least.dtype} instead."
            )
        if least.ndim and least.shape != (n_features,):
            raise ValueError(
                f"'min_categories' should have shape ({n_features},) when an array-like is "
                f"provided. Got {least.shape} instead."
            )
        if not least.ndim and least < 1:
            raise self._must_be("min_categories", "None, an int in [1, inf) or an array-like")
        return np.broadcast_to(least, n_features).astype(np.int64)

    def _count(self, rows: ArrayRowsBlock) -> dict[str, Any]:
        narrow = np.full(rows.X.shape[1], 1 << 7)
        if narrow.sum() * rows.n_classes <= FEW_CELLS:
            # Most columns have few codes: one pass finds out, and trims the tables.
            with contextlib.suppress(OverflowError):
                return {"values": self._counted(rows, narrow)}
        self._check_not_negative(rows.X, above=-1)
        return {"values": self._counted(rows, self._sizes(rows.X.max(axis=0), rows.n_classes))}

    def _counted(self, rows: ArrayRowsBlock, sizes: NDArray[np.int64]) -> ValueCounts:
        counts = ValueCounts(Shape(sizes, 0, rows.n_classes), weighted=rows.weight is not None)
        highest = np.zeros(len(sizes), dtype=np.int64)
        for block in rows.blocks(BLOCK_ROWS):
            groups = column_codes(block.X, sizes, scored=False)
            for features, _, found in groups:
                highest[features] = np.maximum(highest[features], found)
            counts.update(block.batch(groups, ()))
        return resized(counts, highest)

    def _sizes(self, highest: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
        most = highest.astype(np.float64)  # X's own type may not hold the limit
        for limit in (most, np.cumsum(most + 1) * n_classes):
            if (limit >= MAX_CELLS).any():
                j = int(highest.argmax())
                raise MemoryLimitError(
                    f"column {j} has the code {int(highest[j])}, so as many categories: the "
                    "tables would not fit; number the categories 0, 1, ... (OrdinalEncoder), or "
                    "leave the column out"
                )
        return highest.astype(np.int64) + 1

    def _of_table(self, stats: Statistics) -> ArrayStatistics:
        return code_counts(stats)

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> ArrayStatistics:
        stats = super()._loaded(header, arrays, source)
        sizes, least = stats.parts["values"].shape.sizes, self._least_sizes(stats.n_features)
        claimed = float(np.maximum(least - sizes, 0).sum(dtype=np.float64) * len(stats.classes))
        if claimed > MOST_CLAIMED:
            raise MemoryLimitError(
                f"{source}: min_categories={reprlib.repr(self.min_categories)} makes tables of "
                f"{claimed:,.0f} cells that the file holds no count of; fit the model again with "
                "fewer categories"
            )
        return stats

    def _read(self, stats: ArrayStatistics) -> dict[str, Any]:
        counts = stats.parts["values"]
        alpha = self._alpha(stats.n_features)
        sizes = np.maximum(counts.shape.sizes, self._least_sizes(stats.n_features))
        seen = [counts.of(j).T.astype(np.float64, "C") for j in range(len(sizes))]
        more = [((0, 0), (0, n)) for n in sizes - counts.shape.sizes]
        tables = [np.pad(*both) for both in zip(seen, more, strict=True)]
        return {
            **self._read_prior(stats),
            "category_count_": tables,
            "feature_log_prob_": [_log_shares(table + alpha) for table in tables],
            "n_categories_": sizes,
        }

    def _scorer(self, cells: int) -> Any:
        # Two more rows per feature, with factor 1: a missing value and an unseen one.
        rows = [np.pad(table.T, ((0, 2), (0, 0))) for table in self.feature_log_prob_]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        scorer = dispatch.load("scoring.log_joint", cells).NaiveScorer
        return scorer(self.class_log_prior_, np.ascontiguousarray(np.concatenate(rows)), offsets)

    def _block(self, scorer: Any, X: Any) -> tuple[Any, ...]:
        return column_codes(X, self.n_categories_, scored=True), ()

    def _linear(self) -> LinearForm:
        tables = [np.ascontiguousarray(table.T) for table in self.feature_log_prob_]
        return of_categories(self._facts, tables, [table.T for table in self.category_count_])

    def _contributions(self, X: NDArray[Any]) -> Floats:
        self._check_not_negative(X, above=-1)
        result = np.zeros((*X.shape, len(self.classes_)))
        for j, table in enumerate(self.feature_log_prob_):
            known = X[:, j] < table.shape[1]
            result[known, j] = table.T[X[known, j].astype(np.int64)]
        return result

    def _column_table(self, j: int) -> ColumnTable:
        probability, counts = np.exp(self.feature_log_prob_[j].T), self.category_count_[j].T
        values = range(len(counts))
        return of_codes(self._feature_names()[j], values, self.classes_, probability, counts)

    def _unseen(self, X: NDArray[Any]) -> dict[str, int]:
        found = (self.n_categories_ <= X).sum(axis=0)
        return {name: int(n) for name, n in zip(self._feature_names(), found, strict=True) if n}

    @property
    def n_parameters_(self) -> int:
        """Number of free parameters: K - 1 of the prior and K(S_j - 1) of each feature."""
        self._check_fitted()
        k = len(self.classes_)
        return int(k - 1 + k * (self.n_categories_ - 1).sum())

    def _draw(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[Any]:
        X = np.empty((len(y), self.n_features_in_), dtype=np.int64)
        for j, table in enumerate(self.feature_log_prob_):
            X[:, j] = value_codes(np.exp(table.T), y, random)
        return X


NOTHING = np.empty(0, np.int64)
SMALLEST = 1e-300  # the variance that stands for the limit 0 in a log density
LONG_COLUMN = 1 << 14  # rows from which a call of a kernel per column is worth it


class GaussianNB(DropIn):
    """Gaussian naive Bayes, as scikit-learn 1.9 has it.

    Notes
    -----
    Numbers equal scikit-learn's to 1e-9 for float64 input; float32 is computed in float64 too.
    `epsilon_` comes from the variance of all rows seen so far, each of weight 1, so that
    `partial_fit` over any batches equals `fit`; scikit-learn takes the last batch's.

    Examples
    --------
    >>> model = GaussianNB().fit([[-1.0], [-3.0], [4.0], [6.0]], [0, 0, 1, 1])
    >>> model.theta_
    array([[-2.],
           [ 5.]])
    >>> model.predict([[1.0], [2.0]])
    array([0, 1])
    """

    priors: ArrayLike | None = parameter(
        "(n_classes,) probabilities of the classes; None to learn them, unsmoothed.",
        default=None,
    )
    var_smoothing: float = parameter(
        "Share of the largest variance of a feature that is added to all variances.",
        default=1e-9,
    )
    class_count_: Floats = fitted()
    class_prior_: Floats = fitted()
    epsilon_: np.float64 = fitted()
    theta_: Floats = fitted()
    var_: Floats = fitted()

    _parts: ClassVar[tuple[str, ...]] = ("moments", OVERALL)
    _prior_parameter: ClassVar[str] = "priors"

    def _check_parameters(self) -> None:
        if self.priors is not None and np.ndim(self.priors) != 1:
            raise self._must_be("priors", "an array-like or None")
        if not is_real(self.var_smoothing):
            raise self._must_be("var_smoothing", "a float in the range [0.0, inf)")

    def _count(self, rows: ArrayRowsBlock) -> dict[str, Any]:
        moments = class_moments(rows)
        if rows.weight is None:
            overall = pooled(moments)
        else:
            everyone = np.zeros(len(rows.y), np.uint8)
            overall = class_moments(rows._replace(y=everyone, n_classes=1, weight=None))
        wrong = ~np.isfinite(moments.scatter).all(axis=1)
        wrong |= ~np.isfinite(overall.scatter).all(axis=1)
        if wrong.any():
            raise DataError(
                f"column {int(wrong.argmax())}: the squares of its numbers overflow; divide it by "
                "a scale"
            )
        return {"moments": moments, OVERALL: overall}

    def _of_table(self, stats: Statistics) -> ArrayStatistics:
        given = numeric_moments(stats)
        return replace(given, parts={**given.parts, OVERALL: pooled(stats.moments)})

    def _read(self, stats: ArrayStatistics) -> dict[str, Any]:
        moments, overall = stats.parts["moments"], stats.parts[OVERALL]
        counts = stats.class_counts
        epsilon = self.var_smoothing * (overall.scatter / overall.count).max()
        variance = moments.scatter / np.where(moments.count > 0, moments.count, 1.0)
        shares, given = counts / counts.sum(), self.priors
        prior = shares if given is None else given_prior(given, len(counts), total=1.0)
        return {
            "class_count_": counts,
            "class_prior_": prior,
            "epsilon_": np.float64(epsilon),
            "theta_": np.ascontiguousarray(moments.mean.T),
            "var_": np.ascontiguousarray(variance.T) + epsilon,
        }

    def _log_prior(self) -> Floats:
        return logs(self.class_prior_)

    def _densities(self) -> tuple[Floats, Floats]:
        """Return 1/(2 σ²) and -½ ln(2πσ²), (n_classes, n_features); no variance makes NaN."""
        variance = np.maximum(self.var_, SMALLEST)
        half, constant = 0.5 / variance, -0.5 * np.log(2.0 * np.pi * variance)
        # A feature that never varied says nothing: its factor is 1.
        silent = self.statistics_.parts[OVERALL].scatter[:, 0] == 0
        silent &= (self.var_ == 0).all(axis=0)
        half[:, silent] = constant[:, silent] = 0.0
        return half, constant

    def _scorer(self, cells: int) -> Any:
        parts = self.theta_, *self._densities()
        if not dispatch.compiled(cells):
            return GaussianScorer(self._log_prior(), *parts)
        rest = np.zeros_like(self.theta_)  # scikit-learn's means are rounded
        gaussian = tuple(np.ascontiguousarray(a.T) for a in (*parts, rest))
        empty = np.empty((0, len(self.classes_))), np.zeros(1, np.int64)
        return dispatch.load("scoring.log_joint").NaiveScorer(self._log_prior(), *empty, gaussian)

    def _block(self, scorer: Any, X: Any) -> tuple[Any, ...]:
        return (X,) if isinstance(scorer, GaussianScorer) else ((), columns(X))

    def _contributions(self, X: NDArray[Any]) -> Floats:
        half, constant = self._densities()
        deviation = X[:, :, None] - self.theta_.T
        with np.errstate(over="ignore"):
            return np.asarray(constant.T - deviation**2 * half.T)

    def _column_table(self, j: int) -> ColumnTable:
        says, deviation = "normal density of each class", np.sqrt(self.var_[:, j])
        rows = self.class_count_
        found = ClassNumbers(says, self.theta_[:, j], deviation, rows, np.zeros(len(rows)))
        return of_numbers(self._feature_names()[j], found, self.classes_, self.class_count_)

    @property
    def n_parameters_(self) -> int:
        """Number of free parameters: K - 1 of the prior, K d means and K d variances."""
        self._check_fitted()
        k, d = self.theta_.shape
        return k - 1 + 2 * k * d

    def _linear(self) -> LinearForm:
        return refuse_variances("GaussianNB")

    def _draw(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[Any]:
        return random.normal(self.theta_[y], np.sqrt(self.var_)[y])


def class_moments(rows: ArrayRowsBlock) -> ClassMoments:
    """Return count, mean and scatter of each column within each class.

    Returns: of shape (n_features, n_classes).
    """
    n_rows, n_features = rows.X.shape
    moments = ClassMoments(Shape(NOTHING, n_features, rows.n_classes))
    by_column = n_rows >= LONG_COLUMN and dispatch.compiled(rows.cells)
    step = BLOCK_ROWS if by_column else max(256, BLOCK_CELLS // n_features)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at the scatter
        for block in rows.blocks(step):
            if by_column:
                moments.update(block.batch((), columns(block.X)))
            else:
                moments = moments + _block_moments(block)
    return moments


def _block_moments(rows: ArrayRowsBlock) -> ClassMoments:
    """Return the moments of a block, all columns at once: means first, then deviations.

    On few rows this takes fewer calls than a kernel for each column does.
    """
    X, y, n_classes, weight, _ = rows
    result = ClassMoments(Shape(NOTHING, X.shape[1], n_classes))
    count = np.bincount(y, weight, n_classes)
    known = np.maximum(count, np.finfo(float).tiny)[:, None]
    # About a row of the block, so that 1.7e9 ± 1 keeps its digits.
    shift = X[0].astype(np.float64)
    apart = X - shift
    mean = class_sums(apart, y, weight, n_classes) / known
    apart -= mean[y]
    np.multiply(apart, apart, out=apart)
    result.count[:] = count
    whole, rest = two_sum(shift[:, None], mean.T)
    result.mean[:], result.rest[:] = np.where(count > 0, (whole, rest), 0.0)
    result.scatter[:] = class_sums(apart, y, weight, n_classes).T
    return result


def pooled(moments: ClassMoments) -> ClassMoments:
    """Return the moments of all classes together, (n_features, 1), of rows without weights."""
    n = moments.count[0]
    centre = centre_of(GroupMoments(n, moments.mean.T, moments.rest.T, moments.scatter))
    result = ClassMoments(Shape(NOTHING, moments.shape.n_numeric, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        between = (n[:, None] * centre.apart**2).sum(axis=0)
        result.scatter[:, 0] = moments.scatter.sum(axis=1) + between
    result.mean[:, 0], result.rest[:, 0] = centre.mean, centre.rest
    result.count[:] = n.sum()
    return result
