"""The densities of numeric columns that are not Gaussian, and which density suits a column best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.schema import Schema, Shape
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.numeric.column_values import ColumnValues
from fastbayes.models.numeric.curves import Curve
from fastbayes.models.numeric.histogram_density import BinnedDensity, HistogramDensity
from fastbayes.models.numeric.kernel_density import KernelDensity
from fastbayes.models.numeric.loo_gaussian import LooGaussians
from fastbayes.scan.density_spec import DensitySpec
from fastbayes.statistics import ClassMoments
from fastbayes.statistics.bundle import Statistics

Density = KernelDensity | HistogramDensity
# Of a column: the first class of each curve, and the curve.
Curves = tuple[tuple[int, Curve], ...]


@dataclass(frozen=True, eq=False)
class ColumnDensities:
    """The densities of numeric columns that are not Gaussian.

    kinds     How each numeric column is described.
    by_place  By its place among the numeric columns, the density of each that is not Gaussian.
    """

    kinds: tuple[str, ...]
    by_place: Mapping[int, Density]

    @property
    def gaussian(self) -> NDArray[np.bool_]:
        """(n_numeric,) which columns are Gaussian."""
        return np.array([place not in self.by_place for place in range(len(self.kinds))], np.bool_)

    def in_order(self, schema: Schema, floored: set[str]) -> list[str]:
        """Return these names and those of columns in which a bandwidth was raised, in order."""
        for place, density in self.by_place.items():
            if isinstance(density, KernelDensity) and density.floored.any():
                floored = floored | {schema.numeric[place].name}
        return [f.name for f in schema.numeric if f.name in floored]

    def curves(self) -> dict[int, Curves]:
        """Return the log densities, to be looked up, by the place of the column."""
        return {place: density.curves for place, density in self.by_place.items()}


def log_density(curves: Curves, x: Floats, cells: float = 0.0) -> Floats:
    """Return the log density of each number within each class, 0 for NaN, (n, n_classes).

    `cells` are the rows x columns of the whole job: whether compiling pays.
    """
    add_curve = dispatch.load("density", cells).add_curve
    out = np.zeros((sum(curve.table.shape[1] // 4 for _, curve in curves), len(x)))
    for first, curve in curves:
        place, bounds, ends, rows = (dispatch.readonly(array) for array in curve[:4])
        add_curve(dispatch.readonly(x), place, bounds, ends, rows, 0, len(x), out[first:])
    return np.ascontiguousarray(out.T)


def densities(
    stats: Statistics,
    kinds: DensitySpec,
    *,
    alpha: float,
    ddof: int,
    variance: str,
    var_floor: float,
) -> ColumnDensities:
    """Return the densities that a model is to have.

    stats                   Statistics of the rows.
    kinds                   How columns are to be described.
    alpha                   Pseudo-count of a bin.
    ddof, variance, var_floor  As `smoothing.gaussians` has them.

    Raises DataError when squares of values overflow, or a bandwidth is 0.
    """
    chosen, found = [], {}
    for place, feature in enumerate(stats.schema.numeric):
        kind = kinds.of(feature.name)
        if kind != "gaussian":
            values = ColumnValues.of(stats, place, ddof)
            made: dict[str, Density] = {}
            if kind in ("kde", "auto"):
                made["kde"] = KernelDensity.of(values, var_floor)
            if kind in ("histogram", "auto"):
                made["histogram"] = HistogramDensity.of(values, alpha)
            if kind == "auto":
                if not values.silent and (bins := BinnedDensity.cut(values, alpha)) is not None:
                    made["mdl"] = bins
                told = {"ddof": ddof, "variance": variance, "var_floor": var_floor}
                kind = best_kind(stats, place, values, made, told)
            if kind != "gaussian":
                found[place] = made[kind]
        chosen.append(kind)
    return ColumnDensities(tuple(chosen), found)


def best_kind(
    stats: Statistics,
    place: int,
    values: ColumnValues,
    made: Mapping[str, Any],
    told: Mapping[str, Any],
) -> str:
    """Return the density of a column of largest leave-one-out log likelihood.

    stats   Statistics of the rows.
    place   Of the column among the numeric ones.
    values  What the statistics say of it.
    made    The densities beside the Gaussian one, by kind.
    told    ddof, variance and var_floor of the Gaussian one.

    The sum over rows of ln f(x | c), the row taken out of the moments, the kernels or the counts of
    its class; bandwidths and bins stay. Of equal ones the first of Gaussian, kernels, histogram,
    bins that are cut where the classes change.
    Kernels take no part where most rows share a value that stands apart from all others: see
    `KernelDensity.spiked`.
    """
    if values.silent:
        return "gaussian"
    moments = some_columns(stats.moments, [place])
    gaussian = LooGaussians(moments, weighted=stats.weighted, names=[values.name], **told)
    scores = dict.fromkeys(("gaussian", *made), 0.0)
    for c, (points, weight) in enumerate(zip(values.points, values.weight, strict=True)):
        if not len(points):
            continue
        less, y = np.minimum(weight, 1.0), np.full(len(points), c)
        every = np.arange(len(points))
        found = {"gaussian": own_gaussian(gaussian, points, y, less)}
        found |= {kind: density.left_out(c, every, less) for kind, density in made.items()}
        for kind, terms in found.items():
            scores[kind] += float((weight * terms).sum())
    if values.within == 0:
        # Constant within every class, of which a Gaussian says nothing.
        del scores["gaussian"]
    if made["kde"].spiked:
        del scores["kde"]
    return max(scores, key=lambda kind: scores[kind])


def own_gaussian(
    gaussian: LooGaussians, points: Floats, y: NDArray[np.intp], less: Floats
) -> Floats:
    """Return ln N(x | class of the row) without what each row weighs, of one column."""
    found, low = np.zeros(len(points)), np.ones(len(points), np.bool_)
    if gaussian.plain.all():
        found, low = gaussian.own_log_density([points], y, less)
    if len(some := np.flatnonzero(low)):
        every = gaussian.log_density([points[some]], y[some], less[some])
        found[some] = every[np.arange(len(some)), y[some]]
    return found


def some_columns(moments: ClassMoments, places: Sequence[int]) -> ClassMoments:
    """Return the moments of some of the numeric columns."""
    size = moments.shape
    arrays = {name: array[list(places)] for name, array in moments.arrays().items()}
    return ClassMoments.from_arrays(Shape(size.sizes, len(places), size.n_classes), arrays)
