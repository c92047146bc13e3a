"""Count, mean and scatter of each numeric feature within each class."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.moments import merged, overflowed, two_sum
from fastbayes.statistics.base import (
    CLASSES,
    NUMERIC,
    Classes,
    Floats,
    RetractionError,
    Statistic,
    array,
    occurring,
)
from fastbayes.statistics.retraction import left

# A retraction that leaves less than this share of the scatter would be noise (SEMANTICS 3).
LEAST_SHARE = 1e-6
# Rounding leaves at most this share of the scatter, times the rows there were for each one left.
ROUNDING = 1e-12

# Feature and class of a place in an array.
Where = Callable[..., tuple[int, int]]


class GroupMoments(NamedTuple):
    """Moments of groups of rows; axes before the last hold those of other data.

    n        (..., n_groups) rows, or sums of weights
    mean     (..., n_groups, p)
    rest     (..., n_groups, p) what rounding took from the mean
    scatter  (..., n_groups, p, p) sum of w (x - mean)(x - mean)^T
    """

    n: Floats
    mean: Floats
    rest: Floats
    scatter: Floats


def root_mean_square(count: Floats, scatter: Floats) -> float:
    """Return the largest deviation of a group from its mean; the axes of `count` come first."""
    most = scatter.max(axis=tuple(range(count.ndim, scatter.ndim)), initial=0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.divide(most, count, where=count > 0, out=np.zeros_like(most))
    return float(np.sqrt(square[np.isfinite(square)]).max(initial=0.0))


def counts_left(
    mine: Floats, theirs: Floats, where: Where, largest: Floats | None = None, cell: str = ""
) -> Floats:
    """Return `left` of counts.

    Raises
    ------
    RetractionError
        When it is negative; `where` gives feature and class of a place in the arrays.
    """
    n = left(mine, theirs, largest)
    if (below := n < 0).any():
        raise RetractionError(
            f"{cell}would have fewer than 0 rows; these rows were never added",
            *where(*np.argwhere(below)[0]),
        )
    return n


def refuse_noise(
    before: Floats, after: Floats, whole: Floats, n: Floats, where: Where
) -> NDArray[np.bool_]:
    """Return where too little scatter is left to be distinguished from rounding.

    Parameters
    ----------
    before, after
        Scatter of all rows, and of those left.
    whole, n
        How many there are, or what they weigh.
    where
        Gives feature and class of a place in the arrays.

    Raises
    ------
    RetractionError
        When more than one row is left there: one row has no scatter. Of rows that weigh less than
        1 more than one is left where there is more than rounding.
    """
    noise = (before > 0) & (after < LEAST_SHARE * before)
    with np.errstate(over="ignore", invalid="ignore"):
        several = (n > 1) | (n * np.abs(after) > ROUNDING * whole * before)
    if (lost := noise & several).any():
        raise RetractionError(
            f"what is left has less than {LEAST_SHARE:g} of the scatter, too few digits to "
            "trust; count the remaining rows again",
            *where(*np.argwhere(lost)[0]),
        )
    return np.asarray(noise)


def by_feature(feature: int, label: int) -> tuple[int, int]:
    """Return feature and class of a place in arrays (n_numeric, n_classes)."""
    return feature, label


def by_class(label: int, feature: int = -1, *_: int) -> tuple[int, int]:
    """Return feature and class of a place in arrays (n_classes, n_numeric, ...)."""
    return feature, label


class ClassMoments(Statistic):
    """Moments per (numeric feature, class): the sufficient statistic of Gaussian naive Bayes.

    Notes
    -----
    `count`, `mean`, `rest` and `scatter` are (n_numeric, n_classes) float64. The mean is the
    unevaluated sum mean + rest: float64 holds the mean of 1.7e9 ± 1 to 1e-7 only, and `rest` is
    what rounding took. Scatter is the sum of squared deviations from it. Merging is exact algebra
    (Chan, Golub, LeVeque 1979, eq. 2.1) and loses no digits when the spread is small.
    """

    name = "moments"
    title = "moments"
    option = "moments=True"
    most = "the numeric columns need"
    by_column = True
    limited = False
    sums_repeatable = True

    count: Floats = array(NUMERIC, CLASSES)
    mean: Floats = array(NUMERIC, CLASSES, scales=False)
    rest: Floats = array(NUMERIC, CLASSES, scales=False, rounding=True)
    scatter: Floats = array(NUMERIC, CLASSES)

    @classmethod
    def class_codes(cls, n_classes: int) -> type[np.unsignedinteger]:
        """Return codes of classes as the kernel takes them."""
        kind: type[np.unsignedinteger] = dispatch.load("counting.moments").class_codes(n_classes)
        return kind

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        if not batch.numeric:
            return
        moments = dispatch.load("counting.moments", batch.cells)
        y, here = occurring(batch, classes)
        moments.add_moments(batch.numeric, y, here, weight, *self._held())

    def _spread(self) -> float:
        return root_mean_square(self.count, self.scatter)

    def __add__(self, other: Self) -> Self:
        if not self.shape.n_numeric:
            return self
        return self._of(*merged(self._held(), other._held()))

    def _held(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.count, self.mean, self.rest, self.scatter

    def _of(self, *held: Floats) -> Self:
        return self._holding(dict(zip(self._specs, held, strict=True)))

    def __sub__(self, other: Self) -> Self:
        n = counts_left(self.count, other.count, by_feature)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            apart = (self.mean - other.mean) + (self.rest - other.rest)
            delta = np.where(n > 0, apart * self.count / n, 0.0)
            gone = delta * delta * other.count * n / np.maximum(self.count, 1e-300)
            after = self.scatter - other.scatter - gone
        noise = refuse_noise(self.scatter, after, self.count, n, by_feature)
        mean, rest = two_sum(other.mean, other.rest + delta)
        some = n > 0
        return self._of(
            n,
            overflowed(np.where(some, mean, 0.0)),
            np.where(some, rest, 0.0),
            # One row has no scatter.
            overflowed(np.where(some & ~noise, np.maximum(after, 0.0), 0.0)),
        )
