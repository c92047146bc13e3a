"""Count, mean and scatter matrix of the numeric features within each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import RetractionError, close
from fastbayes.statistics.class_moments import LEAST_SHARE
from fastbayes.statistics.joint_moments import JointMoments, counts_left, drop, joint_block, turned

Floats = NDArray[np.float64]

# Rows of a block that are looked at for missing values before all are taken for complete.
FIRST_ROWS = 128


class ClassScatter:
    """Scatter matrix of each class: the sufficient statistic of Gaussians with covariances.

    Parameters
    ----------
    shape
        Sizes to allocate for.
    weighted
        Accepted for the common contract; counts are float64 either way.

    Notes
    -----
    Of the rows in which every numeric feature is known, `count` is (n_classes,), `mean` and `rest`
    are (n_classes, n_numeric), the unevaluated sum mean + rest as in `ClassMoments`, and `scatter`
    is (n_classes, n_numeric, n_numeric), the sum of w (x - mean)(x - mean)ᵀ. The other rows weigh
    `incomplete` (n_classes,); `joint` holds their moments two by two, and is None where there are
    none. They let `imputed` put the class mean of all data in the place of each missing value
    without a second scan. Memory is 8 n_classes n_numeric² bytes, five times that with `joint`.
    """

    name: ClassVar[str] = "scatter"

    def __init__(self, shape: Shape, *, weighted: bool = False) -> None:
        k, p = shape.n_classes, shape.n_numeric
        self.shape = shape
        self.count: Floats = np.zeros(k)
        self.mean: Floats = np.zeros((k, p))
        self.rest: Floats = np.zeros((k, p))
        self.scatter: Floats = np.zeros((k, p, p))
        self.incomplete: Floats = np.zeros(k)
        self.joint: JointMoments | None = None

    @classmethod
    def zeros(cls, shape: Shape, *, weighted: bool = False) -> ClassScatter:
        """Return the empty statistic."""
        return cls(shape, weighted=weighted)

    @classmethod
    def order_free(cls, weighted: bool) -> bool:
        """Return whether sums are exact, so that the order of addition changes no bit."""
        return False

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self.arrays().values())

    def imputed(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return count, mean, rest and scatter of all rows, missing values imputed.

        Returns
        -------
        tuple
            As `count`, `mean`, `rest` and `scatter`, over all rows of the class, where a missing
            value is the mean of all known values of its feature in its class; 0 where none is.
        """
        if self.joint is None:
            count, mean, rest, scatter = self._complete_arrays()
            return count.copy(), mean.copy(), rest.copy(), scatter.copy()
        return self.count + self.incomplete, *self.joint.merged(self._complete()).of_all()

    def known(self) -> Floats:
        """Return the weight of the rows in which each feature is known, (n_classes, n_numeric)."""
        known = np.repeat(self.count[:, None], self.shape.n_numeric, axis=1)
        return known if self.joint is None else known + np.einsum("cii->ci", self.joint.count)

    # -- counting ------------------------------------------------------------------------------

    def update(self, batch: Batch) -> None:
        """Add the rows of a batch, one block at a time."""
        y, weight, columns = batch.classes, batch.weight, list(batch.numeric)
        assert y is not None
        if not batch.n_rows:
            return
        k = batch.n_classes
        block = ClassScatter(self.shape._replace(n_classes=k))
        module = dispatch.load("scatter", batch.cells)
        arrays = None
        if not any(np.isnan(x[:FIRST_ROWS]).any() for x in columns):
            # What is missing turns a mean into NaN: where nothing is, nothing need be looked for.
            arrays = module.block_scatter(columns, y, k, weight)
        if arrays is None or np.isnan(arrays[1]).any():
            gaps = np.isnan(columns[0])
            for x in columns[1:]:
                gaps |= np.isnan(x)
            rows = np.flatnonzero(gaps if weight is None else gaps & (weight > 0))
            if len(rows):
                w = None if weight is None else weight[rows]
                block.incomplete = np.bincount(y[rows], w, k).astype(np.float64)
                block.joint = joint_block(columns, rows, y, k, weight, batch.cells)
            complete = np.where(gaps, 0.0, 1.0 if weight is None else weight)
            arrays = module.block_scatter(columns, y, k, complete)
        block.count, block.mean, block.rest, block.scatter = arrays
        self._merge(block.grown(self.shape))

    def _complete_arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.count, self.mean, self.rest, self.scatter

    def _complete(self) -> JointMoments:
        """Return the moments of complete rows, as views."""
        axis = (slice(None), slice(None), None)
        return JointMoments(
            self.count[:, None, None], self.mean[axis], self.rest[axis], self.scatter
        )

    def _set(
        self, complete: JointMoments, incomplete: Floats, joint: JointMoments | None
    ) -> ClassScatter:
        self.count, self.scatter = complete.count[:, 0, 0], complete.scatter
        self.mean, self.rest = complete.mean[:, :, 0], complete.rest[:, :, 0]
        self.incomplete = incomplete
        self.joint = joint if incomplete.any() else None
        return self

    def _merge(self, other: ClassScatter) -> None:
        joint = self.joint
        if other.joint is not None:
            joint = (joint or JointMoments.empty(*self.scatter.shape[:2])).merged(other.joint)
        complete = self._complete().merged(other._complete())
        self._set(complete, self.incomplete + other.incomplete, joint)

    # -- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: ClassScatter) -> ClassScatter:
        result, joint = ClassScatter(self.shape), self.joint
        if joint is not None and other.joint is None:
            joint = joint.scaled(1.0)
        # Merging makes new arrays otherwise: none is shared with either side.
        result._set(self._complete(), self.incomplete, joint)._merge(other)
        return result

    def __sub__(self, other: ClassScatter) -> ClassScatter:
        incomplete = counts_left(self.incomplete, other.incomplete)
        complete = self._complete().without(other._complete())
        joint = None
        if self.joint is not None:
            theirs = other.joint or JointMoments.empty(*self.scatter.shape[:2])
            joint = self.joint.without(theirs)
            drop(joint.scatter, np.einsum("cii->ci", joint.scatter) <= 0)
        result = ClassScatter(self.shape)._set(complete, incomplete, joint)
        noise = _refuse_noise(self.scatter, result.scatter, result.count[:, None])
        drop(result.scatter, noise | (np.einsum("cii->ci", result.scatter) <= 0))
        if self.joint is not None:
            _refuse_noise(self.imputed()[3], result.imputed()[3], result.known())
        return result

    def __mul__(self, factor: float) -> ClassScatter:
        result = ClassScatter(self.shape)
        if factor == 0:
            return result
        joint = None if self.joint is None else self.joint.scaled(factor)
        return result._set(self._complete().scaled(factor), self.incomplete * factor, joint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClassScatter):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return mine.keys() == theirs.keys() and all(
            np.array_equal(array, theirs[key]) for key, array in mine.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: ClassScatter, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        # `rest` is the rounding of the mean: noise beside it.
        mine, theirs = self.arrays(), other.arrays()
        return mine.keys() == theirs.keys() and all(
            close(array, theirs[key], rtol)
            for key, array in mine.items()
            if not key.endswith("rest")
        )

    # -- layout --------------------------------------------------------------------------------

    def take(self, to: Alignment) -> ClassScatter:
        """Return the statistic with its cells moved to another shape; new cells are empty.

        A feature that is new was known in no row: all rows are then incomplete. One that is left
        out leaves the rows incomplete that lacked it.
        """
        source = self._none_complete() if (to.numeric < 0).any() else self
        result = ClassScatter(to.shape)
        at, kept = np.flatnonzero(to.numeric >= 0), np.flatnonzero(to.classes >= 0)
        old, features = to.classes[kept], to.numeric[at]
        flat, square = (kept[:, None], at), (kept[:, None, None], at[:, None], at)
        from_flat = old[:, None], features
        from_square = old[:, None, None], features[:, None], features
        result.count[kept] = source.count[old]
        result.incomplete[kept] = source.incomplete[old]
        result.mean[flat], result.rest[flat] = source.mean[from_flat], source.rest[from_flat]
        result.scatter[square] = source.scatter[from_square]
        if source.joint is not None and result.incomplete.any():
            result.joint = JointMoments.empty(*result.scatter.shape[:2])
            for mine, theirs in zip(source.joint.arrays(), result.joint.arrays(), strict=True):
                theirs[square] = mine[from_square]
        return result

    def _none_complete(self) -> ClassScatter:
        """Return the statistic with every row counted as one that lacks some feature."""
        result, p = ClassScatter(self.shape), self.shape.n_numeric
        result.incomplete = self.count + self.incomplete
        if result.incomplete.any():
            empty = JointMoments.empty(self.shape.n_classes, p)
            result.joint = (self.joint or empty).merged(self._complete())
        return result

    def grown(self, shape: Shape) -> ClassScatter:
        """Return the statistic with room for at least `shape`; classes are appended."""
        k = self.shape.n_classes
        if shape.n_classes <= k:
            return self
        result = ClassScatter(shape)
        if self.joint is not None:
            result.joint = JointMoments.empty(*result.scatter.shape[:2])
        for key, place in result.arrays().items():
            place[:k] = self.arrays()[key]
        return result

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        arrays = dict(zip(JointMoments.names, self._complete_arrays(), strict=True))
        arrays["incomplete"] = self.incomplete
        if self.joint is not None:
            joint = zip(JointMoments.names, self.joint.arrays(), strict=True)
            arrays |= {f"joint_{key}": array for key, array in joint}
        return arrays

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> ClassScatter:
        """Return the statistic held by the arrays of `arrays()`."""
        result = cls(shape)
        if "joint_count" in arrays:
            result.joint = JointMoments.empty(*result.scatter.shape[:2])
        for key, place in result.arrays().items():
            if arrays[key].shape != place.shape or arrays[key].dtype != place.dtype:
                raise ValueError(
                    f"{key}: {arrays[key].dtype}{arrays[key].shape} does not fit the schema, "
                    f"which wants {place.dtype}{place.shape}"
                )
            place[...] = arrays[key]
        if not (np.isfinite(result.incomplete).all() and (result.incomplete >= 0).all()):
            raise ValueError("incomplete: holds what is no weight of rows")
        if result.incomplete.any() != (result.joint is not None):
            raise ValueError("incomplete: rows and their moments do not go together")
        for key in ("scatter", "joint_count", "joint_scatter"):
            matrices = result.arrays().get(key, result.scatter)
            if not np.array_equal(matrices, turned(matrices), equal_nan=True):
                raise ValueError(f"{key}: holds a matrix that is not symmetric")
            if (np.einsum("cii->ci", matrices) < 0).any():
                raise ValueError(f"{key}: holds a sum of squares below 0")
        return result


def scatter_bytes(shape: Shape, copies: int, gaps: bool) -> int:
    """Return the bytes of scatter matrices: of each copy, with those of what is being added to it.

    Parameters
    ----------
    shape
        Sizes.
    copies
        Sets of them, one for each thread and one of the result.
    gaps
        Whether values are missing, which takes moments two by two.
    """
    return 8 * max(1, shape.n_classes) * shape.n_numeric**2 * copies * (20 if gaps else 4)


def scatter_need(
    batch: Batch, shape: Shape, copies: int, spare: int, gaps: bool
) -> tuple[bool, int]:
    """Return whether values are known to be missing, and the bytes of scatter matrices.

    Parameters
    ----------
    batch
        Rows that are to be added.
    shape, copies
        As in `scatter_bytes`.
    spare
        Bytes that there are. Missing values are looked for only where they would need more.
    gaps
        Whether values were missing before.
    """
    if not gaps and scatter_bytes(shape, copies, True) > spare:
        gaps = has_gaps(batch)
    return gaps, scatter_bytes(shape, copies, gaps)


def holds_gaps(part: object) -> bool:
    """Return whether a statistic is a scatter that has seen missing values."""
    return isinstance(part, ClassScatter) and part.joint is not None


def has_gaps(batch: Batch) -> bool:
    """Return whether a numeric value is missing."""
    # The least of numbers is a number: no second array to look through.
    return any(np.isnan(x.min(initial=np.inf)) for x in batch.numeric)


def _refuse_noise(before: Floats, after: Floats, n: Floats) -> NDArray[np.bool_]:
    """Return the (class, feature) with too little scatter left to be told from rounding.

    Raises
    ------
    RetractionError
        When more than one row is left there: one row has no scatter.
    """
    whole, left = (np.einsum("cii->ci", part) for part in (before, after))
    noise = (whole > 0) & (left < LEAST_SHARE * whole)
    if (lost := noise & (n > 1)).any():
        label, feature = np.argwhere(lost)[0]
        raise RetractionError(
            f"what is left has less than {LEAST_SHARE:g} of the scatter, too few digits to "
            "trust; count the remaining rows again",
            int(feature),
            int(label),
        )
    return noise
