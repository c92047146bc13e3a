"""Moments of numeric features two by two, of rows in which some values are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes import _jit
from fastbayes.statistics.class_moments import two_sum

Floats = NDArray[np.float64]
TINY = 1e-300


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
        n, first = self.count + other.count, self.count == 0
        both = ~first & (other.count != 0)
        # An overflow stays in the numbers, where whoever reads them finds it.
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            share = np.where(both, other.count / n, 0.0)
            apart = np.where(both, (other.mean - self.mean) + (other.rest - self.rest), 0.0)
            mean, rest = two_sum(self.mean, self.rest + apart * share)
            scatter = self.scatter + other.scatter
            scatter += apart * turned(apart) * (self.count * share)
        mean, rest = np.where(first, other.mean, mean), np.where(first, other.rest, rest)
        return JointMoments(n, mean, rest, scatter)

    def without(self, other: JointMoments, n: Floats) -> JointMoments:
        """Return the moments of the n rows of these that are not of the other set."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            apart = (self.mean - other.mean) + (self.rest - other.rest)
            apart = np.where(n > 0, apart * (self.count / n), 0.0)
            mean, rest = two_sum(other.mean, other.rest + apart)
            gone = apart * turned(apart) * (other.count * n / np.maximum(self.count, TINY))
            scatter = self.scatter - other.scatter - gone
        scatter = np.where(n > 0, scatter, 0.0)
        mean, rest = np.where(n > 0, mean, 0.0), np.where(n > 0, rest, 0.0)
        return JointMoments(n, mean, rest, scatter)

    def scaled(self, factor: float) -> JointMoments:
        """Return the moments of rows that weigh so many times as much."""
        mean, rest = self.mean.copy(), self.rest.copy()
        return JointMoments(self.count * factor, mean, rest, self.scatter * factor)

    def of_all(self) -> tuple[Floats, Floats, Floats]:
        """Return mean, rest and scatter where a missing value is the mean of its class.

        The mean is that of the known values, (n_classes, p), so that such a value adds to no sum
        of deviations from it.
        """
        mean, rest = (np.einsum("cii->ci", part).copy() for part in (self.mean, self.rest))
        with np.errstate(invalid="ignore", over="ignore"):
            apart = (self.mean - mean[:, :, None]) + (self.rest - rest[:, :, None])
            scatter = self.scatter + apart * turned(apart) * self.count
        return mean, rest, scatter


def joint_block(
    columns: list[Floats],
    y: NDArray[np.unsignedinteger],
    k: int,
    weight: Floats | None,
    cells: float,
) -> JointMoments:
    """Return the moments two by two of rows in which some values are missing (NaN).

    Products of deviations from any centre, and of deviations with indicators of what is known,
    tell them all: sum of d_i d_j, of d_i 1_j and of 1_i 1_j.
    """
    p = len(columns)
    moments, scatters = _jit.load("moments", cells), _jit.load("scatter", cells)
    centre, parts = np.empty((k, p)), []
    for i, x in enumerate(columns):
        centre[:, i] = moments.block_moments(x, y, k, weight)[1]
        parts.append(scatters.known_parts(x, y, centre[:, i]))
    deviations, known = zip(*parts, strict=True)
    sums = scatters.block_products([*deviations, *known], y, k, weight)
    count, total = sums[:, p:, p:], sums[:, :p, p:]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        offset = np.where(count > 0, total / count, 0.0)
        scatter = sums[:, :p, :p] - offset * turned(offset) * count
    mean, rest = two_sum(np.where(count > 0, centre[:, :, None], 0.0), offset)
    none = np.einsum("cii->ci", scatter) <= 0
    drop(scatter, none)
    return JointMoments(count, mean, rest, scatter)


def turned(matrices: Floats) -> Floats:
    """Return the transposes, as views."""
    return matrices.swapaxes(1, 2)


def drop(matrices: Floats, features: NDArray[np.bool_]) -> None:
    """Set rows and columns of (n_classes, p) features to 0, in place."""
    matrices[features[:, :, None] | features[:, None, :]] = 0.0
