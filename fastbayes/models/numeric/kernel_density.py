"""Normal kernels at the values of a column: a density within each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import ROUNDING
from fastbayes.models.numeric.column_values import ColumnValues, silverman
from fastbayes.models.numeric.curves import Bumps, Curve, curve_of, flat, tabulated

# Classes that are looked up together: their curve has the pieces of all of them.
TOGETHER = 8
_NORMAL = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class KernelDensity:
    """f(x | c) = sum_i w_i N(x; x_i, h_c²) / n_c, over the values x_i of class c.

    values     The column.
    bandwidth  (n_classes,) h_c.
    floored    (n_classes,) where it was raised to the floor.
    spare      Bandwidth of all classes together, for a class without a known value.

    The bandwidth is Silverman's rule of thumb within the class; that of a class of one row at
    most comes from the variance within the classes together. No deviation is taken for less than
    sqrt(var_floor) of that of all rows.
    """

    values: ColumnValues
    bandwidth: Floats
    floored: NDArray[np.bool_]
    spare: float

    @classmethod
    def of(cls, values: ColumnValues, var_floor: float) -> KernelDensity:
        """Return the density of a column.

        Raises DataError when a bandwidth is 0.
        """
        floor = math.sqrt(var_floor * values.overall)
        own = np.zeros(len(values.points))
        for c, (points, weight) in enumerate(zip(values.points, values.weight, strict=True)):
            if values.known[c] > 1:
                own[c] = silverman(points, weight, values.variance[c])
            elif len(points):
                own[c] = 0.9 * math.sqrt(values.within)
        pooled = silverman(*values.pooled, values.overall) if len(values.pooled[0]) else 0.0
        own = np.where(values.known > 0, own, pooled)
        floored = (own < floor) & (values.known > 0)
        bandwidth = np.maximum(own, floor)
        if not _flat(values) and not (bandwidth > 0).all():
            raise DataError(
                f"column {values.name!r} has bandwidth 0 in a class and var_floor={var_floor}; "
                "raise var_floor or leave the column out"
            )
        return cls(values, bandwidth, floored, max(pooled, floor))

    def _bumps(self, label: int) -> Bumps:
        """Return the kernels of a class in the scale of the column."""
        points, weight = self.values.points[label], self.values.weight[label]
        if not len(points):
            points, weight = self.values.pooled
        return self._scaled(points, weight, float(self.bandwidth[label]))

    def _scaled(self, points: Floats, weight: Floats, bandwidth: float) -> Bumps:
        centre, scale = self.values.place
        level = -math.log(float(weight.sum())) - math.log(bandwidth) - _NORMAL
        return Bumps((points - centre) / scale, weight, bandwidth / scale, level)

    @cached_property
    def curves(self) -> tuple[tuple[int, Curve], ...]:
        """The log densities, to be looked up: the first class of each curve, and the curve."""
        if _flat(self.values):
            return ((0, flat(len(self.values.points))),)
        every = range(len(self.values.points))
        return tuple(
            (first, self._curve(every[first : first + TOGETHER])) for first in every[::TOGETHER]
        )

    def _curve(self, labels: Sequence[int]) -> Curve:
        classes = [self._bumps(c) for c in labels]
        log_sums = dispatch.load("density", self.values.cells).log_sums
        knots, pieces = tabulated(classes, log_sums)
        low = min(b.points[0] for b in classes)
        high = max(b.points[-1] for b in classes)
        wide = 10 * max(b.bandwidth for b in classes)
        return curve_of(*self.values.place, knots, pieces, max(-low, high) + wide)

    @property
    def n_parameters(self) -> int:
        """The weights of the points but one, and the bandwidth, of each class."""
        return sum(len(points) for points in self.values.points)

    def drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> Floats:
        """Return a number of each class."""
        result = np.zeros(len(codes))
        for c in np.unique(codes).tolist():
            rows = np.flatnonzero(codes == c)
            own = len(self.values.points[c]) > 0
            points = self.values.points[c] if own else self.values.pooled[0]
            weight = self.values.weight[c] if own else self.values.pooled[1]
            if len(points):
                some = random.choice(points, len(rows), p=weight / weight.sum())
                result[rows] = some + self.bandwidth[c] * random.standard_normal(len(rows))
        return result

    def left_out(self, label: int, at: NDArray[np.int64], less: Floats) -> Floats:
        """Return the log density of a class at its own values, each with less weight.

        label  The class.
        at     (n,) which of its values.
        less   (n,) how much less weight it has; the bandwidth stays.
        """
        values = self.values
        if _flat(values):
            return np.zeros(len(at))
        log_sums = dispatch.load("density", values.cells).log_sums
        bumps, known = self._bumps(label), values.known[label]
        less = np.where(values.weight[label][at] - less > ROUNDING * known, less, np.inf)
        less = np.minimum(less, values.weight[label][at])
        left = known - less
        own, _ = log_sums(
            *(bumps.points, bumps.weight, bumps.bandwidth, bumps.points[at], at, less)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            found = own + bumps.level + np.log(known) - np.log(left)
        alone = left <= ROUNDING * known
        if alone.any():
            found = np.where(alone, self._others(label, values.points[label][at]), found)
        return np.asarray(found)

    def _others(self, label: int, x: Floats) -> Floats:
        """Return the log density of all classes but one, which describes it where it is empty."""
        points, weight = self.values.without(label)
        if not len(points):
            return np.zeros(len(x))
        bumps, (centre, scale) = self._scaled(points, weight, self.spare), self.values.place
        log_sums = dispatch.load("density", self.values.cells).log_sums
        none = np.full(len(x), -1), np.zeros(len(x))
        own, _ = log_sums(bumps.points, bumps.weight, bumps.bandwidth, (x - centre) / scale, *none)
        return np.asarray(own + bumps.level)

    @property
    def spiked(self) -> bool:
        """Whether most rows have a value that others have too, apart from all other values.

        Their kernels do not overlap: how high they are is a matter of the bandwidth alone.
        """
        apart = total = 0.0
        for c, (points, weight) in enumerate(
            zip(self.values.points, self.values.weight, strict=True)
        ):
            between = np.concatenate(([np.inf], np.diff(points), [np.inf]))
            gap = np.minimum(between[1:], between[:-1])[: len(points)]
            apart += float(weight[(gap > self.bandwidth[c]) & (weight > 1)].sum())
            total += float(weight.sum())
        return 2 * apart > total


def _flat(values: ColumnValues) -> bool:
    """Return whether values are alike, or too near to each other for their squares to tell."""
    return values.silent or values.overall == 0
