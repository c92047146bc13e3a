"""How scikit-learn's five naive Bayes classes learn: arrays in, a statistic kept."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import Shape, labels
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted
from fastbayes.models.estimator.protocol import (
    check_features,
    check_labels,
    check_length,
    check_weight,
    encode_labels,
    split_target,
)
from fastbayes.models.logistic.to_logistic import LinearForm, logistic
from fastbayes.models.sklearn.array_rows import ArrayRows, in_segments, taken
from fastbayes.statistics import ValueCounts
from fastbayes.statistics.array_statistics import ArrayStatistics
from fastbayes.statistics.bundle import Statistics

if TYPE_CHECKING:
    from fastbayes.models.logistic.logistic import LogisticRegression

LARGEST_CODE = 1 << 24


def code_counts(stats: Statistics) -> ArrayStatistics:
    """Return counts of codes 0, 1, ... from counts of columns that hold such codes.

    stats  Every feature categorical, its values whole numbers from 0 or booleans, none missing.

    Returns: with a part "values".

    Raises SchemaError when a column is something else; the message names it.
    """
    values = stats.values
    codes = []
    for j, feature in enumerate(stats.schema.features):
        if feature.values is None:
            raise SchemaError(
                f"column {feature.name!r} was counted as numeric; count it again, named in "
                "`categorical`"
            )
        found = labels(feature.values)
        if found.dtype.kind not in "biu" or not len(found) or found.min() < 0:
            raise SchemaError(
                f"column {feature.name!r} holds {feature.values.type} values, not codes from 0; "
                "use fastbayes.NaiveBayes, which takes them as they are"
            )
        if found.max() >= LARGEST_CODE:
            raise SchemaError(f"column {feature.name!r} has the code {found.max()}: it is an id")
        codes.append(found.astype(np.int64))
        _refuse_missing(feature.name, values.missing[j])
    sizes = np.array([int(found.max()) + 1 for found in codes], dtype=np.int64)
    shape = Shape(sizes, 0, len(stats.schema.classes))
    counts = ValueCounts(shape, weighted=stats.weighted)
    counts.class_counts[:] = values.class_counts
    for j, found in enumerate(codes):
        counts.of(j)[found] = values.of(j)
    return ArrayStatistics(labels(stats.schema.classes), {"values": counts}, stats.schema.names)


def numeric_moments(stats: Statistics) -> ArrayStatistics:
    """Return moments of arrays from moments of numeric columns.

    stats  Every feature numeric, none missing, rows without weights.

    Returns: with a part "moments".

    Raises SchemaError when a column is categorical or has missing values, or rows were weighted.
    """
    if stats.weighted:
        raise SchemaError(
            "the statistics are weighted, and epsilon_ needs the moments without weights; fit the "
            "rows themselves, or use fastbayes.NaiveBayes"
        )
    for feature in stats.schema.categorical:
        raise SchemaError(
            f"column {feature.name!r} is categorical; leave it out with `columns`, or use "
            "fastbayes.NaiveBayes"
        )
    counts = stats.values.class_counts
    for feature, known in zip(stats.schema.numeric, stats.moments.count, strict=True):
        _refuse_missing(feature.name, counts - known)
    return ArrayStatistics(
        labels(stats.schema.classes), {"moments": stats.moments}, stats.schema.names
    )


def _refuse_missing(name: str, missing: NDArray[np.float64]) -> None:
    if np.any(missing):
        raise SchemaError(
            f"column {name!r} has {missing.sum():g} missing values; use fastbayes.NaiveBayes, "
            "which takes them"
        )


class ArrayRowsBlock(NamedTuple):
    """Rows to be counted: some of those of a job."""

    X: Any  # (n_rows, n_features) array, or CSR matrix where that is welcome
    y: NDArray[np.unsignedinteger]  # (n_rows,) class codes
    n_classes: int
    weight: Floats | None  # (n_rows,), None where every row weighs 1
    cells: int  # of the whole job, on which numpy or compiled kernels are chosen

    def blocks(self, step: int) -> Iterator[ArrayRowsBlock]:
        """Yield the rows of an array in blocks of so many."""
        for start in range(0, len(self.y), step):
            part = slice(start, start + step)
            weight = None if self.weight is None else self.weight[part]
            yield self._replace(X=self.X[part], y=self.y[part], weight=weight)

    def batch(self, codes: tuple[Codes, ...], numeric: Sequence[Floats]) -> Batch:
        """Return the rows, turned into columns, as statistics of tables count them."""
        complete = np.zeros(sum(len(group.features) for group in codes), np.bool_)
        known = codes, complete, tuple(numeric), self.weight, self.cells
        return Batch(len(self.y), self.y, self.n_classes, *known)


class DropIn(ArrayRows):
    """A classifier of scikit-learn's `naive_bayes` whose fitted state is a statistic.

    A subclass counts (`_count`) and reads its attributes off the statistic (`_read`).
    """

    _parts: ClassVar[tuple[str, ...]]

    statistics_: ArrayStatistics = fitted("The statistic that every parameter is read from.")

    # -- what a subclass gives -----------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        """Return what is done to the numbers before counting."""
        return {}

    def _count(self, rows: ArrayRowsBlock) -> dict[str, Any]:
        """Return the statistics of some rows by name."""
        raise NotImplementedError

    def _linear(self) -> LinearForm:
        """Return the fitted model as a linear one, or raise SchemaError."""
        raise NotImplementedError

    def _of_table(self, stats: Statistics) -> ArrayStatistics | Statistics:
        """Return the statistic of a table as one of arrays, where there is such a thing."""
        return stats

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows and their classes.

        Parameters
        ----------
        X
            (n_rows, n_features) numbers, without missing values.
        y
            (n_rows,) classes, or the name of a column where X is a frame or table.
        sample_weight
            (n_rows,) weights, finite and not negative.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            When a parameter, X, y or a weight cannot be used; the message says which.
        """
        return self._learn(X, y, None, sample_weight, first=True)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from more rows; any batching gives what one `fit` on all of them gives.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes
            All classes that will ever occur; needed at the first call.
        sample_weight
            As in `fit`.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            As in `fit`, and when `classes` is missing at the first call or differs later, or y
            has a label outside it.
        """
        first = not self.__sklearn_is_fitted__()
        known = None if first else self.classes_
        if classes is not None:
            given, _ = encode_labels(check_labels(self, classes))
            if known is not None and not np.array_equal(given, known):
                raise ValueError(
                    f"`classes={classes!r}` is not the same as on last call to partial_fit, was: "
                    f"{known!r}"
                )
            known = given
        if known is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return self._learn(X, y, known, sample_weight, first=first)

    def _learn(
        self, X: Any, y: Any, classes: NDArray[Any] | None, sample_weight: Any, *, first: bool
    ) -> Self:
        self._check_parameters()
        X, y = split_target(X, y)
        labels = check_labels(self, y)
        X = check_features(self, X, reset=first)
        check_length(X, labels)
        weight = check_weight(sample_weight, len(labels), allow_zero=True)
        classes, codes = encode_labels(labels, classes)
        names = tuple(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        cells = int(X.shape[0] * X.shape[1])

        def count(part: slice) -> ArrayStatistics:
            w = None if weight is None else weight[part]
            rows = ArrayRowsBlock(taken(X, part), codes[part], len(classes), w, cells)
            return ArrayStatistics(classes, self._count(rows), names, self._options())

        # Segments do not depend on the threads and are added in order: nor do the bits.
        counted = in_segments(count, X)
        stats = next(counted) if first else self.statistics_
        return self._learned(sum(counted, start=stats))

    def _suited(self, stats: ArrayStatistics | Statistics) -> ArrayStatistics:
        owner = type(self).__name__
        if isinstance(stats, Statistics):
            stats = self._of_table(stats)
        if not isinstance(stats, ArrayStatistics) or set(stats.parts) != set(self._parts):
            what = sorted(stats.parts) if hasattr(stats, "parts") else type(stats).__name__
            raise SchemaError(
                f"{owner} is fitted from {list(self._parts)}, not from {what}; use the "
                f"statistics_ of a fitted {owner}"
            )
        if dict(stats.options) != self._options():
            raise SchemaError(
                f"the statistic was counted with {dict(stats.options)}, but {owner} has "
                f"{self._options()}; set the same parameters"
            )
        return stats

    def _features_of(self, stats: ArrayStatistics) -> tuple[Sequence[str] | None, int]:
        return stats.names, stats.n_features

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> ArrayStatistics:
        return self._suited(ArrayStatistics.from_state(header, arrays))

    def _learned(self, stats: ArrayStatistics) -> Self:
        if not stats.class_counts.sum() > 0:
            raise DataError(
                "Sample weights must contain at least one non-zero number: every weight is zero"
            )
        super()._learned(stats)
        self.classes_ = stats.classes
        return self

    def to_logistic(self, **params: Any) -> LogisticRegression:
        """Return the model as a logistic regression: the same posteriors.

        Parameters
        ----------
        **params
            Parameters of the `LogisticRegression`, such as the penalty of a later fit that starts
            from here, with `warm_start=True`.

        Returns
        -------
        LogisticRegression
            Fitted, by no iteration: `converged_` is None. It takes a missing value for one that
            says nothing.

        Raises
        ------
        SchemaError
            When the log odds are not linear, as those of normal densities with a variance for each
            class; or a coefficient would be infinite: alpha=0, a class of prior 0.
        ValueError
            When a parameter cannot be used.
        """
        return logistic(self, params)

    def _must_be(self, name: str, what: str) -> ValueError:
        owner, value = type(self).__name__, getattr(self, name)
        return ValueError(
            f"The {name!r} parameter of {owner} must be {what}. Got {value!r} instead."
        )


def is_real(value: Any, least: float = 0.0) -> bool:
    """Return whether a parameter is a real number of at least this.

    least  The smallest number that is allowed.

    Returns: false for NaN and infinity.
    """
    return isinstance(value, numbers.Real) and least <= float(value) < np.inf
