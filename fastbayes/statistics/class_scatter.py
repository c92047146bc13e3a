"""Count, mean and scatter matrix of the numeric features within each class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import (
    CLASSES,
    NUMERIC,
    Classes,
    Floats,
    Need,
    Room,
    Statistic,
    array,
    occurring,
)
from fastbayes.statistics.class_moments import by_class, counts_left, refuse_noise, root_mean_square
from fastbayes.statistics.joint_moments import JointMoments, check_matrices, drop, joint_block


class ClassScatter(Statistic):
    """Scatter matrix of each class: the sufficient statistic of Gaussians with covariances.

    Notes
    -----
    Of the rows in which every numeric feature is known, `count` is (n_classes,), `mean` and `rest`
    are (n_classes, n_numeric), the unevaluated sum mean + rest as in `ClassMoments`, and `scatter`
    is (n_classes, n_numeric, n_numeric), the sum of w (x - mean)(x - mean)ᵀ. The other rows weigh
    `incomplete` (n_classes,); `joint` holds their moments two by two, and is None where there are
    none. They let `imputed` put the class mean of all data in the place of each missing value
    without a second scan. Memory is 8 n_classes n_numeric² bytes, five times that with `joint`.
    """

    name = "scatter"
    title = "scatter matrices"
    option = "scatter=True"
    numeric_as = "numbers"
    sums_repeatable = True
    work = "counting scatter matrices"
    most = "{numbers:,} numeric columns two by two need {bytes:,} bytes,"

    count: Floats = array(CLASSES)
    mean: Floats = array(CLASSES, NUMERIC, scales=False)
    rest: Floats = array(CLASSES, NUMERIC, scales=False, rounding=True)
    scatter: Floats = array(CLASSES, NUMERIC, NUMERIC)
    incomplete: Floats = array(CLASSES)
    joint_count: Floats = array(CLASSES, NUMERIC, NUMERIC, optional=True)
    joint_mean: Floats = array(CLASSES, NUMERIC, NUMERIC, scales=False, optional=True)
    joint_rest: Floats = array(
        CLASSES, NUMERIC, NUMERIC, scales=False, rounding=True, optional=True
    )
    joint_scatter: Floats = array(CLASSES, NUMERIC, NUMERIC, optional=True)

    @property
    def joint(self) -> JointMoments | None:
        """The moments two by two of incomplete rows."""
        if self.joint_count is None:
            return None
        return JointMoments(self.joint_count, self.joint_mean, self.joint_rest, self.joint_scatter)

    @joint.setter
    def joint(self, joint: JointMoments | None) -> None:
        held = (None,) * 4 if joint is None else joint.arrays()
        for name, values in zip(JointMoments.names, held, strict=True):
            setattr(self, f"joint_{name}", values)

    @property
    def gaps(self) -> bool:
        """Whether missing numbers were met which need more room."""
        return self.joint is not None

    @classmethod
    def need(cls, room: Room, **options: Any) -> Need:
        """Return the bytes of so many copies, each with as much again that is being added.

        What is being added is filled up to vectors, which counts where columns are few.
        """
        shape = room.shape
        cells = room.copies * shape.n_classes * max(shape.n_numeric**2, 16)
        return Need(np.zeros(len(shape.sizes), np.int64), 8 * cells * (20 if room.gaps else 4))

    def imputed(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return count, mean, rest and scatter of all rows, missing values imputed.

        Returns
        -------
        tuple
            As `count`, `mean`, `rest` and `scatter`, over all rows of the class, where a missing
            value is the mean of all known values of its feature in its class; 0 where none is.
        """
        if self.joint is None:
            return self.count.copy(), self.mean.copy(), self.rest.copy(), self.scatter.copy()
        return self.count + self.incomplete, *self.two_by_two().of_all()

    def two_by_two(self) -> JointMoments:
        """Return the moments two by two of all rows."""
        complete = self._complete()
        return complete if self.joint is None else self.joint.merged(complete)

    def known(self) -> Floats:
        """Return the weight of the rows in which each feature is known, (n_classes, n_numeric)."""
        known = np.repeat(self.count[:, None], self.shape.n_numeric, axis=1)
        return known if self.joint is None else known + _squares(self.joint.count)

    # -- counting ------------------------------------------------------------------------------

    @classmethod
    def class_codes(cls, n_classes: int) -> type[np.unsignedinteger]:
        """Return codes of classes as the kernel takes them."""
        return np.uint32

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        if not batch.n_rows:
            return
        y, here = occurring(batch, classes)
        columns, k = list(batch.numeric), len(here)
        add = dispatch.load("counting.scatter", batch.cells).add_scatter
        if add(columns, y, here, weight, *self._held(), missing=False):
            return
        gaps = np.isnan(columns[0])
        for x in columns[1:]:
            gaps |= np.isnan(x)
        rows = np.flatnonzero(gaps if weight is None else gaps & (weight > 0))
        if len(rows):
            block = type(self)(self.shape._replace(n_classes=k))
            block.incomplete = np.bincount(
                y[rows], None if weight is None else weight[rows], k
            ).astype(np.float64)
            block.joint = joint_block(columns, rows, y, k, weight, batch.cells)
            whole = {}
            for key, part in block.arrays().items():
                whole[key] = np.zeros((self.shape.n_classes, *part.shape[1:]))
                whole[key][here] = part
            vars(self).update(vars(self + self._holding(whole)))
        known = np.where(gaps, 0.0, 1.0 if weight is None else weight)
        add(columns, y, here, known, *self._held(), missing=True)

    def add_few(
        self,
        classes: Classes,
        read: Callable[[int], Iterator[tuple[NDArray[np.uint64], int]]],
        left: NDArray[np.int64],
    ) -> None:
        """Add rows of all classes whose numbers are read a few rows at a time, by noted calls.

        Parameters
        ----------
        classes
            (n_rows,) uint32.
        read
            Yields where the columns of the next rows are, of no more than so many, and their
            number.
        left
            (1,) 1 is added where the rows must be added in another way: a number is missing, or a
            mean is far from the first row.
        """
        shape, add = self.shape, dispatch.compiled_module("counting.scatter_panels").add_few
        here = np.arange(shape.n_classes)
        add(read, shape.n_numeric, classes, here, *self._held(), left)

    def _held(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.count, self.mean, self.rest, self.scatter

    def _spread(self) -> float:
        complete = root_mean_square(self.count, self.scatter)
        if self.joint is None:
            return complete
        return max(complete, root_mean_square(self.joint.count, self.joint.scatter))

    def _complete(self) -> JointMoments:
        axis = (slice(None), slice(None), None)
        return JointMoments(
            self.count[:, None, None], self.mean[axis], self.rest[axis], self.scatter
        )

    def _of(self, complete: JointMoments, incomplete: Floats, joint: JointMoments | None) -> Self:
        result = self._holding({"incomplete": incomplete, "scatter": complete.scatter})
        result.mean, result.rest = complete.mean[:, :, 0], complete.rest[:, :, 0]
        result.count = complete.count[:, 0, 0]
        result.joint = joint if incomplete.any() else None
        return result

    # -- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Self) -> Self:
        joint = self.joint
        if other.joint is not None:
            joint = (joint or JointMoments.empty(*self.scatter.shape[:2])).merged(other.joint)
        elif joint is not None:
            # Merging makes new arrays otherwise: none is shared with either side.
            joint = JointMoments(*(held.copy() for held in joint.arrays()))
        return self._of(
            self._complete().merged(other._complete()), self.incomplete + other.incomplete, joint
        )

    def __sub__(self, other: Self) -> Self:
        every = self.count + self.incomplete

        def without(mine: JointMoments, theirs: JointMoments) -> JointMoments:
            n = counts_left(mine.count, theirs.count, by_class, every[:, None, None])
            return mine.without(theirs, n)

        incomplete = counts_left(self.incomplete, other.incomplete, by_class, every)
        complete = without(self._complete(), other._complete())
        joint = None
        if self.joint is not None:
            theirs = other.joint or JointMoments.empty(*self.scatter.shape[:2])
            joint = without(self.joint, theirs)
            drop(joint.scatter, _squares(joint.scatter) <= 0)
        result = self._of(complete, incomplete, joint)
        mine, left = _squares(self.scatter), _squares(result.scatter)
        rows = self.count[:, None], result.count[:, None]
        noise = refuse_noise(mine, left, *rows, by_class)
        drop(result.scatter, noise | (_squares(result.scatter) <= 0))
        if self.joint is not None:
            mine, left = (_squares(side.imputed()[3]) for side in (self, result))
            refuse_noise(mine, left, self.known(), result.known(), by_class)
        return result

    # -- layout --------------------------------------------------------------------------------

    def take(self, to: Alignment) -> Self:
        """Return the statistic with its cells moved to another shape; new cells are empty.

        A feature that is new was known in no row: all rows are then incomplete. One that is left
        out leaves the rows incomplete that lacked it.
        """
        source = self._none_complete() if (to.numeric < 0).any() else self
        result = super(ClassScatter, source).take(to)
        if not result.incomplete.any():
            result.joint = None
        return result

    def _none_complete(self) -> Self:
        """Return the statistic with every row counted as one that lacks some feature."""
        result, p = type(self)(self.shape), self.shape.n_numeric
        result.incomplete = self.count + self.incomplete
        if result.incomplete.any():
            result.joint = (self.joint or JointMoments.empty(self.shape.n_classes, p)).merged(
                self._complete()
            )
        return result

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        result = super().from_arrays(shape, arrays)
        if not (np.isfinite(result.incomplete).all() and (result.incomplete >= 0).all()):
            raise ValueError("incomplete: holds what is no weight of rows")
        if result.incomplete.any() != (result.joint is not None):
            raise ValueError("incomplete: rows and their moments do not go together")
        for key in ("scatter", "joint_count", "joint_scatter"):
            matrices = result.arrays().get(key, result.scatter)
            check_matrices(key, matrices)
        return result


def _squares(matrices: Floats) -> Floats:
    return np.einsum("cii->ci", matrices)
