"""Models of arrays: rows learned in segments, turned into columns, scored block by block."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch, Codes
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.numbers import as_float
from fastbayes.core.schema import Shape, labels
from fastbayes.core.threads import default_threads, in_order
from fastbayes.models.estimator.inputs import (
    check_features,
    check_labels,
    check_length,
    check_weight,
    encode_labels,
    split_target,
)
from fastbayes.models.estimator.log_space import Floats, row_argmax, row_max, row_sum, settle
from fastbayes.models.estimator.model import Model, Prediction, ScoreRows
from fastbayes.models.estimator.parameters import fitted
from fastbayes.models.estimator.unavailable import when_fitted
from fastbayes.models.logistic.to_logistic import LinearForm, logistic
from fastbayes.statistics import ValueCounts
from fastbayes.statistics.array_statistics import ArrayStatistics
from fastbayes.statistics.bundle import Statistics

if TYPE_CHECKING:
    from fastbayes.models.logistic.logistic import LogisticRegression

T = TypeVar("T")

BLOCK_CELLS = 1 << 17  # 1 MiB of float64: a block stays in cache
SEGMENT_CELLS = 1 << 22  # cells of a segment of rows that a thread takes
TILE_CELLS = 1 << 14  # cells turned together: rows and columns of a tile stay in cache
LARGEST_CODE = 1 << 24  # of tables; what is larger is an id
CODES: tuple[Any, ...] = (np.uint8, np.uint16, np.uint32)
EVERY = slice(None)


def taken(X: Any, rows: slice) -> Any:
    """Return rows of an array, or X itself for `EVERY`: scipy would copy a sparse matrix."""
    return X if rows is EVERY else X[rows]


# -- columns -----------------------------------------------------------------------------------


def turned(
    X: NDArray[Any],
    dtype: Any,
    features: Any = EVERY,
    checked: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> NDArray[Any]:
    """Return some columns of X as the rows of a C-contiguous array, (n_features, n_rows).

    Numbers are in the range of `dtype` once a tile of rows is `checked`; integers have fractions
    cut off. All rows are one tile where X already stores columns.
    """
    n_rows, n_features = X.shape
    result = np.empty((n_features if features is EVERY else len(features), n_rows), dtype)
    step = n_rows if X.flags.f_contiguous else min(4096, max(256, TILE_CELLS // n_features))
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        tile = X[rows, features]
        result[:, rows] = (tile if checked is None else checked(tile)).T
    return result


def columns(X: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Return the columns of X as contiguous float64 arrays."""
    return list(turned(X, np.float64))


def column_codes(X: NDArray[Any], sizes: NDArray[np.int64], *, scored: bool) -> tuple[Codes, ...]:
    """Return category codes of rows, each column in the narrowest type that holds its codes.

    X       (n_rows, n_features) codes.
    sizes   (n_features,) S_j.
    scored  Whether a code of S_j or more is unseen, S_j + 1; else the sizes are those found.

    Raises DataError, OverflowError when a code is negative; when one is S_j or more, and rows are
    not to be scored.
    """
    # Two more codes have a place when rows are scored: a missing value and an unseen one.
    widths = np.select([sizes + 2 <= 1 << 8, sizes + 2 <= 1 << 16], [0, 1], 2)
    result = []
    for width, dtype in enumerate(CODES):
        features = np.flatnonzero(widths == width)
        if not len(features):
            continue
        own, limit = sizes[features], np.iinfo(dtype).max

        def checked(
            tile: NDArray[Any], own: NDArray[np.int64] = own, limit: int = limit
        ) -> NDArray[Any]:
            if _within(tile, limit):
                return tile
            if not scored:
                raise OverflowError
            if not (tile > -1).all():
                raise DataError(
                    "Negative values in data passed to CategoricalNB (input X): the least is "
                    f"{tile.min()}; number the categories from 0"
                )
            return np.where(tile >= own, own + 1, tile)

        codes = turned(X, dtype, EVERY if len(features) == X.shape[1] else features, checked)
        highest = codes.max(axis=1).astype(np.int64)
        if scored:
            for j in np.flatnonzero(highest >= own):
                codes[j][codes[j] >= own[j]] = dtype(own[j] + 1)
        elif (highest >= own).any():
            raise OverflowError
        result.append(Codes(features, codes, own + 2 if scored else highest + 1))
    return tuple(result)


def _within(tile: NDArray[Any], limit: int) -> bool:
    """Return whether all numbers, fractions cut off, are in 0, ..., limit: in one pass."""
    if tile.dtype.kind == "f":
        return bool(tile.min() > -1 and float(tile.max()) < limit + 1)
    if tile.dtype.kind == "i":  # as unsigned, the negative ones are the largest
        tile = tile.view(f"{tile.dtype.byteorder}u{tile.itemsize}")
    return bool(tile.max() <= limit)


def indicators(X: Any, above: float | None) -> Any:
    """Return rows of an array or CSR matrix as float64, or 1 for numbers above a threshold.

    The threshold of a sparse matrix is at least 0; None for the numbers themselves.
    """
    if isinstance(X, np.ndarray):
        return np.asarray(X if above is None else above < X, dtype=np.float64)
    if above is None:
        return X.astype(np.float64, copy=False)
    return type(X)(((X.data > above).astype(np.float64), X.indices, X.indptr), shape=X.shape)


# -- scorers -----------------------------------------------------------------------------------


class RowScorer:
    """A fitted model as arrays: immutable, so that blocks may be scored in any order or thread.

    It scores rows as they stand; turning them into columns for the kernels would cost more than
    it brings where rows are few, or the log joint is one matrix product.

    log_prior   (n_classes,) nats; what a row gets that no class can have made.
    """

    def __init__(self, log_prior: Floats, n_features: int) -> None:
        self.log_prior = log_prior
        self.n_classes = len(log_prior)
        self.block_rows = max(256, BLOCK_CELLS // max(n_features, self.n_classes))

    def log_joint(self, X: Any, out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        raise NotImplementedError

    def posterior(self, X: Any, out: Floats) -> None:
        """Write P(c | x) into `out` (n_rows, n_classes); rows sum to 1."""
        self.log_joint(X, out)
        settle(out, self.log_prior)
        out -= row_max(out)[:, None]
        np.exp(out, out=out)
        out /= row_sum(out)[:, None]

    def predict(self, X: Any, out: NDArray[np.intp]) -> None:
        """Write the index of the most probable class of each row, the lowest of equals."""
        joint = np.empty((len(out), self.n_classes))
        self.log_joint(X, joint)
        settle(joint, self.log_prior)
        out[:] = row_argmax(joint)


class LinearScorer(RowScorer):
    """Log joints that are linear in the row: constant + X @ weights.T.

    log_prior  (n_classes,) nats.
    constant   (n_classes,) added to every row.
    weights    (n_classes, n_features); an infinite weight counts where the number is not 0.
    above      Score indicators of the numbers above this threshold; None to score the numbers.
    absent     (n_classes, n_features) weights of 1 - X, as of X; only their infinities are
               read, finite ones being folded into `weights` and `constant`. None for none.
    """

    def __init__(
        self,
        log_prior: Floats,
        constant: Floats,
        weights: Floats,
        above: float | None = None,
        absent: Floats | None = None,
    ) -> None:
        super().__init__(log_prior, weights.shape[1])
        self.constant, self.above = constant, above
        self._finite, self._infinite = _split(weights)
        self._absent = None if absent is None else _split(absent)[1]

    def log_joint(self, X: Any, out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        X = indicators(X, self.above)
        out[:] = X @ self._finite.T
        out += self.constant
        # How much of each row falls on infinite weights: for absent features, of 1 - X.
        if self._infinite is not None:
            sign, features = self._infinite
            out[X @ features.T > 0] = sign
        if self._absent is not None:
            sign, features = self._absent
            out[features.sum(axis=1) - X @ features.T > 0] = sign


def _split(weights: Floats) -> tuple[Floats, tuple[float, Floats] | None]:
    """Return the weights with 0 for infinities, and the sign and places of these."""
    infinite = np.isinf(weights)
    if not infinite.any():
        return weights, None
    sign = float(weights[infinite][0])
    return np.where(infinite, 0.0, weights), (sign, infinite.astype(np.float64))


class GaussianScorer(RowScorer):
    """Naive Bayes over normal distributions, ln N(x) = constant - half_precision (x - mean)².

    log_prior               (n_classes,) nats.
    mean, half_precision, constant  (n_classes, n_features).
    """

    def __init__(
        self, log_prior: Floats, mean: Floats, half_precision: Floats, constant: Floats
    ) -> None:
        super().__init__(log_prior, mean.shape[1])
        self._mean, self._half = mean, half_precision
        with np.errstate(invalid="ignore"):
            self._constant = log_prior + constant.sum(axis=1)

    def log_joint(self, X: NDArray[Any], out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        with np.errstate(over="ignore"):
            for c in range(self.n_classes):
                deviation = X - self._mean[c]
                np.multiply(deviation, deviation, out=deviation)
                out[:, c] = self._constant[c] - deviation @ self._half[c]


# -- models ------------------------------------------------------------------------------------


def in_segments(function: Callable[[slice], T], X: Any) -> Iterator[T]:
    """Yield function(rows) for the segments of an array in order, working on some ahead.

    In threads, if there is more than one; a sparse matrix is one segment.
    """
    segments = [EVERY]
    if isinstance(X, np.ndarray):
        n_rows, n_features = X.shape
        rows = min(4 * BLOCK_ROWS, max(BLOCK_ROWS // 4, SEGMENT_CELLS // n_features))
        segments = [slice(start, start + rows) for start in range(0, n_rows, rows)]
    threads = default_threads() if len(segments) > 1 else 1
    return in_order(function, segments, threads)


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
    counts = ValueCounts(Shape(sizes, 0, len(stats.schema.classes)), weighted=stats.weighted)
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


class DropIn(Model):
    """A classifier of scikit-learn's `naive_bayes` whose fitted state is a statistic.

    A subclass counts (`_count`), reads its attributes off the statistic (`_read`), and gives a
    scorer (`_scorer`), what it takes (`_block`), contributions and random rows (`_draw`).
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

    def _scorer(self, cells: int) -> Any:
        """Return the scorer for a job of this many cells: of rows, or one of the kernels."""
        raise NotImplementedError

    def _block(self, scorer: Any, X: Any) -> tuple[Any, ...]:
        """Return a block of rows as the scorer takes it."""
        return (X,)

    def _contributions(self, X: NDArray[Any]) -> Floats:
        """Return what each feature adds to the log joint, (n_rows, n_features, n_classes)."""
        raise NotImplementedError

    def _draw(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[Any]:
        """Return one random row for each class code."""
        raise NotImplementedError

    def _unseen(self, X: NDArray[Any]) -> dict[str, int]:
        """Return how many values were not seen at fit, by column."""
        return {}

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
        labels, X = check_labels(self, y), check_features(self, X, reset=first)
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

    # -- answers -------------------------------------------------------------------------------

    def _scored(
        self,
        X: Any,
        answer: ScoreRows,
        width: int | None = None,
        labels: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        X = check_features(self, X, reset=False)
        scorer = self._scorer(X.shape[0] * X.shape[1])
        step = scorer.block_rows if isinstance(scorer, RowScorer) else BLOCK_ROWS
        kind = np.dtype(np.float64) if labels is None else labels.dtype
        out = np.empty((X.shape[0], *(() if width is None else (width,))), dtype=kind)

        def one(segment: slice) -> None:
            rows, place = taken(X, segment), out[segment]
            parts = [EVERY]
            if isinstance(rows, np.ndarray):
                parts = [slice(start, start + step) for start in range(0, len(rows), step)]
            for part in parts:
                found = place[part]
                best = found if labels is None else np.empty(len(found), dtype=np.intp)
                answer(scorer, self._block(scorer, taken(rows, part)), best)
                if labels is not None:
                    labels.take(best, out=found, mode="clip")

        for _ in in_segments(one, X):
            pass
        return out

    def _explained(self, X: Any) -> tuple[Floats, dict[str, int], Floats | None, Any]:
        checked = check_features(self, X, reset=False)
        dense = checked if isinstance(checked, np.ndarray) else checked.toarray()
        return self._contributions(dense), self._unseen(dense), None, dense

    def _feature_names(self) -> tuple[str, ...]:
        if hasattr(self, "feature_names_in_"):
            return tuple(self.feature_names_in_)
        return tuple(f"x{j}" for j in range(self.n_features_in_))

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        return dict(zip(self._feature_names(), self._draw(codes, random).T, strict=True))

    # scikit-learn's checks feed negative numbers to every class that has a `decision_function`,
    # its positive-only ones included: they have none of their own.
    decision_function = when_fitted(Prediction.decision_function)

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """Return the log joint, under scikit-learn's name.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes) in nats.
        """
        return self.log_joint(X)

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
    return isinstance(value, numbers.Real) and least <= as_float(value) < math.inf
