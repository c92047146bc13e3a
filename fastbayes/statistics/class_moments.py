"""Count, mean and scatter of each numeric feature within each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.value_counts import close

# A retraction that leaves less than this share of the scatter would be noise (SEMANTICS 3).
LEAST_SHARE = 1e-6


class RetractionError(DataError):
    """A cell, by index of numeric feature (-1: all) and class, that lost too much."""

    def __init__(self, message: str, feature: int, label: int) -> None:
        super().__init__(message)
        self.feature, self.label = feature, label


def two_sum(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a + b rounded, and what rounding took from it, exactly (Knuth 1969)."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = a + b
        part = total - a
        rest = (a - (total - part)) + (b - part)
    return total, np.where(np.isfinite(rest), rest, 0.0)


class ClassMoments:
    """Moments per (numeric feature, class): the sufficient statistic of Gaussian naive Bayes.

    Parameters
    ----------
    shape
        Sizes to allocate for.
    weighted
        Accepted for the common contract; counts are float64 either way.

    Notes
    -----
    `count`, `mean`, `rest` and `scatter` are (n_numeric, n_classes) float64. The mean is the
    unevaluated sum mean + rest: float64 holds the mean of 1.7e9 ± 1 to 1e-7 only, and `rest` is
    what rounding took. Scatter is the sum of squared deviations from it. Merging is exact algebra
    (Chan, Golub, LeVeque 1979, eq. 2.1) and loses no digits when the spread is small.
    """

    name: ClassVar[str] = "moments"

    def __init__(self, shape: Shape, *, weighted: bool = False) -> None:
        size = (shape.n_numeric, shape.n_classes)
        self.shape = shape
        self.count: NDArray[np.float64] = np.zeros(size)
        self.mean: NDArray[np.float64] = np.zeros(size)
        self.rest: NDArray[np.float64] = np.zeros(size)
        self.scatter: NDArray[np.float64] = np.zeros(size)

    @classmethod
    def zeros(cls, shape: Shape, *, weighted: bool = False) -> ClassMoments:
        """Return the empty statistic."""
        return cls(shape, weighted=weighted)

    @classmethod
    def order_free(cls, weighted: bool) -> bool:
        """Return whether sums are exact, so that the order of addition changes no bit."""
        return False

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.count.nbytes * 4

    def update(self, batch: Batch) -> None:
        """Add the rows of a batch, one block at a time."""
        assert batch.classes is not None
        if not batch.numeric:
            return
        moments = dispatch.load("moments", batch.cells)
        block = ClassMoments(self.shape)
        k = batch.n_classes
        for j, values in enumerate(batch.numeric):
            columns = moments.block_moments(values, batch.classes, k, batch.weight)
            for place, column in zip(block._all(), columns, strict=True):
                place[j, :k] = column
        self._merge(block)

    def _merge(self, other: ClassMoments) -> None:
        n = self.count + other.count
        first = self.count == 0
        # An overflow stays in the numbers, where whoever reads them finds it.
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            share = np.where(n > 0, other.count / n, 0.0)
            delta = (other.mean - self.mean) + (other.rest - self.rest)
            between = delta * delta * self.count * share
            mean, rest = two_sum(self.mean, self.rest + delta * share)
            scatter = self.scatter + other.scatter + between
        self.mean = np.where(first, other.mean, mean)
        self.rest = np.where(first, other.rest, rest)
        self.scatter = np.where(first, other.scatter, scatter)
        self.count = n

    def take(self, to: Alignment) -> ClassMoments:
        """Return the statistic with its cells moved to another shape; new cells are empty."""
        result = ClassMoments(to.shape)
        rows, kept = np.flatnonzero(to.numeric >= 0), np.flatnonzero(to.classes >= 0)
        if len(rows) and len(kept):
            source = np.ix_(to.numeric[rows], to.classes[kept])
            for mine, theirs in zip(self._all(), result._all(), strict=True):
                theirs[np.ix_(rows, kept)] = mine[source]
        return result

    def grown(self, shape: Shape) -> ClassMoments:
        """Return the statistic with room for at least `shape`; classes are appended."""
        k = self.shape.n_classes
        if shape.n_classes <= k:
            return self
        result = ClassMoments(shape)
        for mine, theirs in zip(self._all(), result._all(), strict=True):
            theirs[:, :k] = mine
        return result

    def _all(self) -> tuple[NDArray[np.float64], ...]:
        return self.count, self.mean, self.rest, self.scatter

    def __add__(self, other: ClassMoments) -> ClassMoments:
        result = ClassMoments.from_arrays(self.shape, self.arrays())
        result._merge(other)
        return result

    def __sub__(self, other: ClassMoments) -> ClassMoments:
        n = self.count - other.count
        tolerance = 1e-9 * np.maximum(self.count, 1)
        if (below := n < -tolerance).any():
            feature, label = np.argwhere(below)[0]
            raise RetractionError(
                "would have fewer than 0 rows; these rows were never added", feature, label
            )
        n = np.where(np.abs(n) <= tolerance, 0.0, n)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            apart = (self.mean - other.mean) + (self.rest - other.rest)
            delta = np.where(n > 0, apart * self.count / n, 0.0)
            gone = delta * delta * other.count * n / np.maximum(self.count, 1e-300)
            left = self.scatter - other.scatter - gone
        noise = (self.scatter > 0) & (left < LEAST_SHARE * self.scatter)
        if (lost := noise & (n > 1)).any():
            feature, label = np.argwhere(lost)[0]
            raise RetractionError(
                f"what is left has less than {LEAST_SHARE:g} of the scatter, too few digits to "
                "trust; count the remaining rows again",
                feature,
                label,
            )
        result = ClassMoments(self.shape)
        result.count = n
        mean, rest = two_sum(other.mean, other.rest + delta)
        result.mean = np.where(n > 0, mean, 0.0)
        result.rest = np.where(n > 0, rest, 0.0)
        # One row has no scatter.
        result.scatter = np.where((n > 0) & ~noise, np.maximum(left, 0.0), 0.0)
        return result

    def __mul__(self, factor: float) -> ClassMoments:
        result = ClassMoments(self.shape)
        result.count = self.count * factor
        result.mean, result.rest = self.mean * (factor != 0), self.rest * (factor != 0)
        result.scatter = self.scatter * factor
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClassMoments):
            return NotImplemented
        return all(np.array_equal(a, b) for a, b in zip(self._all(), other._all(), strict=True))

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: ClassMoments, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        # `rest` is the rounding of the mean: noise beside it.
        return (
            close(self.count, other.count, rtol)
            and close(self.mean, other.mean, rtol)
            and close(self.scatter, other.scatter, rtol)
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        return dict(zip(("count", "mean", "rest", "scatter"), self._all(), strict=True))

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> ClassMoments:
        """Return the statistic held by the arrays of `arrays()`."""
        result = cls(shape)
        for key, place in result.arrays().items():
            if arrays[key].shape != place.shape or arrays[key].dtype != place.dtype:
                raise ValueError(
                    f"{key}: {arrays[key].dtype}{arrays[key].shape} does not fit the schema, "
                    f"which wants {place.dtype}{place.shape}"
                )
            place[...] = arrays[key]
        return result
