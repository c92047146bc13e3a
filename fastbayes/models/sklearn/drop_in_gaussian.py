"""Drop-in Gaussian naive Bayes: moments per class, variances raised by scikit-learn's epsilon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Shape
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter
from fastbayes.models.logistic.to_logistic import LinearForm, refuse_variances
from fastbayes.models.sklearn.array_rows import BLOCK_CELLS, GaussianScorer, columns
from fastbayes.models.sklearn.drop_in_base import ArrayRowsBlock, DropIn, is_real, numeric_moments
from fastbayes.statistics import ClassMoments
from fastbayes.statistics.array_statistics import OVERALL, ArrayStatistics
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.class_moments import two_sum
from fastbayes.statistics.feature_sums import class_sums

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
        parts = {**given.parts, OVERALL: pooled(given.parts["moments"])}
        return replace(given, parts=parts)

    def _read(self, stats: ArrayStatistics) -> dict[str, Any]:
        moments, overall = stats.parts["moments"], stats.parts[OVERALL]
        counts = stats.class_counts
        epsilon = self.var_smoothing * (overall.scatter / overall.count).max()
        variance = moments.scatter / np.where(moments.count > 0, moments.count, 1.0)
        if self.priors is None:
            prior = counts / counts.sum()
        else:
            prior = np.asarray(self.priors, dtype=np.float64)
            if len(prior) != len(counts):
                raise ValueError("Number of priors must match number of classes.")
            if not np.isclose(prior.sum(), 1.0):
                raise ValueError("The sum of the priors should be 1.")
            if (prior < 0).any():
                raise ValueError("Priors must be non-negative.")
        return {
            "class_count_": counts,
            "class_prior_": prior,
            "epsilon_": np.float64(epsilon),
            "theta_": np.ascontiguousarray(moments.mean.T),
            "var_": np.ascontiguousarray(variance.T) + epsilon,
        }

    def _log_prior(self) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(self.class_prior_)

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
        return dispatch.load("log_joint").NaiveScorer(self._log_prior(), *empty, gaussian)

    def _block(self, scorer: Any, X: Any) -> tuple[Any, ...]:
        return (X,) if isinstance(scorer, GaussianScorer) else ((), columns(X))

    def _contributions(self, X: NDArray[Any]) -> Floats:
        half, constant = self._densities()
        deviation = X[:, :, None] - self.theta_.T
        with np.errstate(over="ignore"):
            return np.asarray(constant.T - deviation**2 * half.T)

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

    Parameters
    ----------
    rows
        Of finite numbers.

    Returns
    -------
    ClassMoments
        Of shape (n_features, n_classes).
    """
    X, y, n_classes, weight, cells = rows
    n_rows, n_features = X.shape
    moments = ClassMoments(Shape(NOTHING, n_features, n_classes))
    by_column = n_rows >= LONG_COLUMN and dispatch.compiled(cells)
    step = BLOCK_ROWS if by_column else max(256, BLOCK_CELLS // n_features)
    empty = np.zeros(0, dtype=np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at the scatter
        for start in range(0, n_rows, step):
            part = slice(start, start + step)
            some, w = y[part], None if weight is None else weight[part]
            if by_column:
                turned = tuple(columns(X[part]))
                moments.update(Batch(len(some), some, n_classes, (), empty, turned, w, cells))
            else:
                moments = moments + _block_moments(X[part], some, n_classes, w)
    return moments


def _block_moments(
    X: NDArray[Any], y: NDArray[np.unsignedinteger], n_classes: int, weight: Floats | None
) -> ClassMoments:
    """Return the moments of a block, all columns at once: means first, then deviations."""
    result = ClassMoments(Shape(NOTHING, X.shape[1], n_classes))
    count = np.bincount(y, weight, n_classes)
    known = np.maximum(count, np.finfo(float).tiny)[:, None]
    # About a row of the block, so that 1.7e9 ± 1 keeps its digits.
    shift = X[0].astype(np.float64)
    rows = X - shift
    mean = class_sums(rows, y, weight, n_classes) / known
    rows -= mean[y]
    np.multiply(rows, rows, out=rows)
    result.count[:] = count
    whole, rest = two_sum(shift[:, None], mean.T)
    result.mean[:], result.rest[:] = np.where(count > 0, (whole, rest), 0.0)
    result.scatter[:] = class_sums(rows, y, weight, n_classes).T
    return result


def pooled(moments: ClassMoments) -> ClassMoments:
    """Return the moments of all classes together.

    Parameters
    ----------
    moments
        (n_features, n_classes), counted without weights.

    Returns
    -------
    ClassMoments
        Of shape (n_features, 1).
    """
    result = ClassMoments(Shape(NOTHING, moments.shape.n_numeric, 1))
    count = moments.count.sum(axis=1, keepdims=True)
    largest = moments.count.argmax(axis=1)[:, None]
    shift, shift_rest = (np.take_along_axis(a, largest, 1) for a in (moments.mean, moments.rest))
    with np.errstate(over="ignore", invalid="ignore"):
        apart = (moments.mean - shift) + (moments.rest - shift_rest)
        offset = (moments.count * apart).sum(axis=1, keepdims=True) / count
        between = (moments.count * (apart - offset) ** 2).sum(axis=1, keepdims=True)
        result.scatter[:] = moments.scatter.sum(axis=1, keepdims=True) + between
        result.mean[:], result.rest[:] = two_sum(shift, shift_rest + offset)
    result.count[:] = count
    return result
