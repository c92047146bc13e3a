"""Drop-in categorical naive Bayes over arrays of category codes."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.schema import Shape
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.models.logistic.to_logistic import LinearForm, of_categories
from fastbayes.models.sklearn.array_rows import column_codes
from fastbayes.models.sklearn.drop_in_base import ArrayRowsBlock, code_counts
from fastbayes.models.sklearn.drop_in_discrete import DiscreteDropIn
from fastbayes.statistics import ValueCounts
from fastbayes.statistics.array_statistics import ArrayStatistics, resized
from fastbayes.statistics.bundle import Statistics

# A code of a billion means a billion categories to scikit-learn; it is an id, not a category.
MAX_CELLS = 1 << 29
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
        as the largest code tells.
        """,
        default=None,
    )
    category_count_: list[Floats] = fitted()
    feature_log_prob_: list[Floats] = fitted()
    n_categories_: NDArray[np.int64] = fitted()

    _positive_only: ClassVar[bool] = True
    _categorical: ClassVar[bool] = True
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
        sizes = self._sizes(rows.X.max(axis=0), rows.n_classes)
        return {"values": self._counted(rows, sizes)}

    def _counted(self, rows: ArrayRowsBlock, sizes: NDArray[np.int64]) -> ValueCounts:
        X, y, n_classes, weight, cells = rows
        counts = ValueCounts(Shape(sizes, 0, n_classes), weighted=weight is not None)
        highest = np.zeros(len(sizes), dtype=np.int64)
        none_missing = np.zeros(len(sizes), dtype=np.bool_)
        for start in range(0, len(X), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            groups = column_codes(X[part], sizes, scored=False)
            for features, _, found in groups:
                highest[features] = np.maximum(highest[features], found)
            some, w = y[part], None if weight is None else weight[part]
            counts.update(Batch(len(some), some, n_classes, groups, none_missing, (), w, cells))
        return resized(counts, highest)

    def _sizes(self, highest: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
        for limit in (highest, np.cumsum(np.minimum(highest, MAX_CELLS) + 1) * n_classes):
            if (limit >= MAX_CELLS).any():
                j = int(highest.argmax())
                raise MemoryLimitError(
                    f"column {j} has the code {int(highest[j])}, hence as many categories: the "
                    "tables would not fit; number the categories 0, 1, ... (OrdinalEncoder), or "
                    "leave the column out"
                )
        return highest.astype(np.int64) + 1

    def _of_table(self, stats: Statistics) -> ArrayStatistics:
        return code_counts(stats)

    def _read(self, stats: ArrayStatistics) -> dict[str, Any]:
        counts = stats.parts["values"]
        alpha = self._alpha(stats.n_features)
        sizes = np.maximum(counts.shape.sizes, self._least_sizes(stats.n_features))
        tables, log_prob = [], []
        for j, size in enumerate(sizes):
            table = np.zeros((len(stats.classes), size))
            table[:, : counts.shape.sizes[j]] = counts.of(j).T
            with np.errstate(divide="ignore", invalid="ignore"):
                smoothed = table + alpha
                totals = smoothed.sum(axis=1, keepdims=True)
                logs = np.log(smoothed) - np.log(totals)
            # 0/0 is its limit: a class without rows at alpha=0.
            log_prob.append(np.where(totals == 0, -np.log(size), logs))
            tables.append(table)
        return {
            **self._read_prior(stats),
            "category_count_": tables,
            "feature_log_prob_": log_prob,
            "n_categories_": sizes,
        }

    def _scorer(self, cells: int) -> Any:
        # Two more rows per feature, with factor 1: a missing value and an unseen one.
        neutral = np.zeros((2, len(self.classes_)))
        rows = [part for table in self.feature_log_prob_ for part in (table.T, neutral)]
        offsets = np.concatenate(([0], np.cumsum(self.n_categories_ + 2))).astype(np.int64)
        tables = self.class_log_prior_, np.concatenate(rows), offsets
        return dispatch.load("log_joint", cells).NaiveScorer(*tables)

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
