"""How often each value of each categorical feature occurs with each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch


def close(a: NDArray[Any], b: NDArray[Any], rtol: float) -> bool:
    """Return whether two arrays agree, relative to the largest number of the first."""
    scale = float(np.abs(a).max(initial=0.0))
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=rtol, atol=rtol * scale))


class ValueCounts:
    """Counts n(class, feature = value): the sufficient statistic of discrete naive Bayes.

    Parameters
    ----------
    shape
        Sizes to allocate for.
    weighted
        Whether rows carry weights: then counts are float64 sums, else exact int64.

    Notes
    -----
    `counts` is (n_slots, n_classes) with slot = offsets[j] + code; the last slot of a feature
    holds its missing values. `class_counts` is (n_classes,). Memory is 8 bytes a cell.
    """

    name: ClassVar[str] = "values"

    def __init__(self, shape: Shape, *, weighted: bool = False) -> None:
        kind = np.float64 if weighted else np.int64
        self.shape = shape
        self.offsets = shape.offsets
        self.counts: NDArray[Any] = np.zeros((self.offsets[-1], shape.n_classes), kind)
        self.class_counts: NDArray[Any] = np.zeros(shape.n_classes, kind)

    @classmethod
    def zeros(cls, shape: Shape, *, weighted: bool = False) -> ValueCounts:
        """Return the empty statistic."""
        return cls(shape, weighted=weighted)

    @property
    def weighted(self) -> bool:
        """Whether the counts are sums of weights."""
        return self.counts.dtype == np.float64

    @classmethod
    def order_free(cls, weighted: bool) -> bool:
        """Return whether sums are exact, so that the order of addition changes no bit."""
        return not weighted

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.counts.nbytes + self.class_counts.nbytes

    @property
    def missing(self) -> NDArray[Any]:
        """Rows in which a feature is missing, (n_categorical, n_classes)."""
        return self.counts[self.offsets[1:] - 1]

    @property
    def known(self) -> NDArray[Any]:
        """Rows in which a feature is known, (n_categorical, n_classes)."""
        return self.class_counts - self.missing

    def of(self, feature: int) -> NDArray[Any]:
        """Return the (S_j, n_classes) counts of one categorical feature, a view."""
        return self.counts[self.offsets[feature] : self.offsets[feature + 1] - 1]

    def update(self, batch: Batch) -> None:
        """Count the rows of a batch whose codes fit this shape or an earlier stage of it."""
        assert batch.classes is not None
        count = dispatch.load("count", batch.cells)
        if self.weighted and batch.weight is None:
            weight: NDArray[np.float64] | None = np.ones(batch.n_rows)
        else:
            weight = batch.weight
        count.add_class_counts(batch.classes, weight, self.class_counts)
        for features, codes, sizes in batch.codes:
            slots = self.offsets[features]
            # A batch made while the codebooks still grew has its missing code at its own last
            # place, where later values now stand: set those rows aside while counting.
            early = batch.missing[features] & (sizes - 1 != self.shape.sizes[features])
            rows = (slots + sizes - 1)[early]
            aside = self.counts[rows]
            self.counts[rows] = 0
            count.add_counts(codes, sizes, slots, batch.classes, weight, self.counts)
            if early.any():
                home = self.offsets[features + 1][early] - 1
                self.counts[home] += self.counts[rows]
                self.counts[rows] = aside

    def take(self, to: Alignment) -> ValueCounts:
        """Return the statistic with its cells moved to another shape; new cells are 0."""
        result = ValueCounts(to.shape, weighted=self.weighted)
        rows = np.full(result.offsets[-1], -1, dtype=np.int64)
        for j, (i, values) in enumerate(zip(to.categorical, to.values, strict=True)):
            first = result.offsets[j]
            rows[first : first + len(values)] = np.where(values < 0, -1, self.offsets[i] + values)
            rows[first + len(values)] = self.offsets[i + 1] - 1
        there = np.flatnonzero(rows >= 0)
        kept = np.flatnonzero(to.classes >= 0)
        old = to.classes[kept]
        if len(there) and len(kept):
            result.counts[np.ix_(there, kept)] = self.counts[np.ix_(rows[there], old)]
        result.class_counts[kept] = self.class_counts[old]
        return result

    def grown(self, shape: Shape) -> ValueCounts:
        """Return the statistic with room for at least `shape`; values and classes are appended."""
        sizes = np.maximum(shape.sizes, self.shape.sizes)
        k = self.shape.n_classes
        if shape.n_classes <= k and np.array_equal(sizes, self.shape.sizes):
            return self
        larger = Shape(sizes, shape.n_numeric, max(k, shape.n_classes))
        result = ValueCounts(larger, weighted=self.weighted)
        moved = np.arange(self.offsets[-1])
        moved += np.repeat(result.offsets[:-1] - self.offsets[:-1], self.shape.sizes + 1)
        moved[self.offsets[1:] - 1] = result.offsets[1:] - 1
        result.counts[moved, :k] = self.counts
        result.class_counts[:k] = self.class_counts
        return result

    def __add__(self, other: ValueCounts) -> ValueCounts:
        return self._combined(other, np.add)

    def __sub__(self, other: ValueCounts) -> ValueCounts:
        return self._combined(other, np.subtract)

    def _combined(self, other: ValueCounts, operation: np.ufunc) -> ValueCounts:
        result = ValueCounts(self.shape, weighted=self.weighted or other.weighted)
        operation(self.counts, other.counts, out=result.counts)
        operation(self.class_counts, other.class_counts, out=result.class_counts)
        return result

    def __mul__(self, factor: float) -> ValueCounts:
        result = ValueCounts(self.shape, weighted=True)
        np.multiply(self.counts, factor, out=result.counts)
        np.multiply(self.class_counts, factor, out=result.class_counts)
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ValueCounts):
            return NotImplemented
        # By value: twice a count is the count of twice the rows, whichever type holds it.
        return all(
            np.array_equal(a, b)
            for a, b in zip(self.arrays().values(), other.arrays().values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: ValueCounts, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        return close(self.counts, other.counts, rtol) and close(
            self.class_counts, other.class_counts, rtol
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        return {"counts": self.counts, "class_counts": self.class_counts}

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> ValueCounts:
        """Return the statistic held by the arrays of `arrays()`."""
        result = cls(shape, weighted=arrays["counts"].dtype == np.float64)
        for key, place in result.arrays().items():
            if arrays[key].shape != place.shape or arrays[key].dtype != place.dtype:
                raise ValueError(
                    f"{key}: {arrays[key].dtype}{arrays[key].shape} does not fit the schema, "
                    f"which wants {place.dtype}{place.shape}"
                )
            place[...] = arrays[key]
        return result
