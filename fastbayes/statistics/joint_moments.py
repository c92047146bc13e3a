"""Moments of numeric features two by two, of rows in which some values are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.moments import overflowed, two_sum

Floats = NDArray[np.float64]
TINY = 1e-300

# Numbers in a matrix of each class, for so many classes at a time as makes about this many.
FEW_CELLS = 1 << 16
# Values, and least number of rows, of which deviations are held at a time.
FEW_VALUES, FEW_ROWS = 1 << 20, 1024


@dataclass(frozen=True, eq=False)
class JointMoments:
    """Moments of features two by two: for (i, j) over the rows in which both are known.

    count    (n_classes, p, p)  sum of the weights of these rows
    mean     (n_classes, p, p)  of feature i; in turn [c, j, i] is the mean of feature j
    rest     (n_classes, p, p)  what rounding took from the mean
    scatter  (n_classes, p, p)  sum of the products of both deviations

    Over rows in which all are known the count depends on neither feature and the mean not on j:
    these axes then have length 1.
    """

    names: ClassVar[tuple[str, ...]] = ("count", "mean", "rest", "scatter")

    count: Floats
    mean: Floats
    rest: Floats
    scatter: Floats

    @classmethod
    def empty(cls, n_classes: int, p: int) -> JointMoments:
        """Return the moments of no rows."""
        return cls(*(np.zeros((n_classes, p, p)) for _ in cls.names))

    def arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the four arrays."""
        return self.count, self.mean, self.rest, self.scatter

    def merged(self, other: JointMoments) -> JointMoments:
        """Return the moments of both sets of rows (Chan, Golub, LeVeque 1979, eq. 2.1)."""
        return _class_by_class(_merged, self, other)

    def without(self, other: JointMoments, count: Floats) -> JointMoments:
        """Return the moments of the rows of these that are not of the other set.

        `count` is what is left of the counts, of their shape.
        """
        return _class_by_class(_without, self, other, replace(self, count=count))

    def known(self) -> Floats:
        """Return the weight of the rows in which each feature is known, (n_classes, p)."""
        return np.einsum("cii->ci", np.broadcast_to(self.count, self.scatter.shape)).copy()

    def of_all(self) -> tuple[Floats, Floats, Floats]:
        """Return mean, rest and scatter where a missing value is the mean of its class.

        The mean is that of the known values, (n_classes, p), so that such a value adds to no sum
        of deviations from it.
        """
        shape = self.scatter.shape
        mean, rest = (
            np.einsum("cii->ci", np.broadcast_to(part, shape)).copy()
            for part in (self.mean, self.rest)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            apart = (self.mean - mean[:, :, None]) + (self.rest - rest[:, :, None])
            scatter = self.scatter + apart * turned(apart) * self.count
        return mean, rest, scatter


def _class_by_class(function: Callable[..., JointMoments], *parts: JointMoments) -> JointMoments:
    """Return function(*parts), computed for a few classes at a time: its scratch stays small."""
    k, p = parts[0].scatter.shape[:2]
    step = max(1, FEW_CELLS // max(1, p * p))
    if step >= k:
        return function(*parts)
    arrays = zip(*(part.arrays() for part in parts), strict=True)
    shapes = [np.broadcast_shapes(*(array.shape for array in same)) for same in arrays]
    result = JointMoments(*(np.empty(shape) for shape in shapes))
    for first in range(0, k, step):
        some = slice(first, first + step)
        found = function(*(JointMoments(*(a[some] for a in part.arrays())) for part in parts))
        for place, array in zip(result.arrays(), found.arrays(), strict=True):
            place[some] = array
    return result


def _merged(a: JointMoments, b: JointMoments) -> JointMoments:
    n, first = a.count + b.count, a.count == 0
    both = ~first & (b.count != 0)
    # An overflow stays in the numbers, where whoever reads them finds it.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = np.where(both, b.count / n, 0.0)
        apart = np.where(both, (b.mean - a.mean) + (b.rest - a.rest), 0.0)
        mean, rest = two_sum(a.mean, a.rest + apart * share)
        scatter = apart * turned(apart)
        scatter *= a.count * share
        scatter += a.scatter
        scatter += b.scatter
    mean, rest = np.where(first, b.mean, mean), np.where(first, b.rest, rest)
    return JointMoments(n, overflowed(mean), rest, overflowed(scatter))


def _without(a: JointMoments, b: JointMoments, left: JointMoments) -> JointMoments:
    n = left.count
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = (a.mean - b.mean) + (a.rest - b.rest)
        apart = np.where(n > 0, apart * (a.count / n), 0.0)
        mean, rest = two_sum(b.mean, b.rest + apart)
        gone = apart * turned(apart) * (b.count * n / np.maximum(a.count, TINY))
        scatter = a.scatter - b.scatter - gone
    scatter = np.where(n > 0, scatter, 0.0)
    return JointMoments(n, np.where(n > 0, mean, 0.0), np.where(n > 0, rest, 0.0), scatter)


def joint_block(
    columns: Sequence[Floats],
    rows: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    k: int,
    weight: Floats | None,
    cells: float,
) -> JointMoments:
    """Return the moments two by two of some rows of a block, where values are missing (NaN).

    Products of deviations from any centre, and of deviations with indicators of what is known,
    tell them all: sum of d_i d_j, of d_i 1_j and of 1_i 1_j.

    Parameters
    ----------
    columns
        One (n,) float64 array for each feature.
    rows
        Positions of the rows.
    y
        (n,) class codes.
    k
        Number of classes.
    weight
        (n,), or None when every row weighs 1.
    cells
        Rows times columns of the whole job.
    """
    p = len(columns)
    moments, scatters = (
        dispatch.load("counting.moments", cells),
        dispatch.load("counting.scatter", cells),
    )
    # Centred on their own means: of a single row exactly nothing is left.
    some = np.zeros(len(y))
    some[rows] = 1.0 if weight is None else weight[rows]
    centre = np.ascontiguousarray(moments.columns_moments(columns, y, k, some)[1].T)
    centre[~np.isfinite(centre)] = 0.0
    sums = np.zeros((k, 2 * p, 2 * p))
    step = max(FEW_ROWS, FEW_VALUES // p)
    for first in range(0, len(rows), step):
        at = rows[first : first + step]
        group, w = y[at], None if weight is None else weight[at]
        parts = (scatters.known_parts(x[at], group, centre[:, i]) for i, x in enumerate(columns))
        deviations, known = zip(*parts, strict=True)
        sums += scatters.block_products([*deviations, *known], group, k, w)
    count, total = sums[:, p:, p:].copy(), sums[:, :p, p:]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        offset = np.where(count > 0, total / count, 0.0)
        scatter = offset * turned(offset)
        scatter *= count
        np.subtract(sums[:, :p, :p], scatter, out=scatter)
    del sums, total
    mean, rest = two_sum(np.where(count > 0, centre[:, :, None], 0.0), offset)
    drop(scatter, np.einsum("cii->ci", scatter) <= 0)
    return JointMoments(count, mean, rest, scatter)


def check_matrices(key: str, matrices: Floats) -> None:
    """Raise ValueError where an array of a file holds no sums of squares and products."""
    if not np.array_equal(matrices, turned(matrices), equal_nan=True):
        raise ValueError(f"{key}: holds a matrix that is not symmetric")
    if (np.einsum("cii->ci", matrices) < 0).any():
        raise ValueError(f"{key}: holds a sum of squares below 0")


def turned(matrices: Floats) -> Floats:
    """Return the transposes, as views."""
    return matrices.swapaxes(1, 2)


def drop(matrices: Floats, features: NDArray[np.bool_]) -> None:
    """Set rows and columns of (n_classes, p) features to 0, in place."""
    matrices[features[:, :, None] | features[:, None, :]] = 0.0
