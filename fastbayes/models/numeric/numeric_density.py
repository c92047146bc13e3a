"""Densities of numeric columns that are not Gaussian: how they are made and chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError
from fastbayes.core.schema import Schema
from fastbayes.data.discretize import Profile, mdl_cuts
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.gauss_transform import own_sums
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import ROUNDING, without
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.models.estimator.smoothing import LEAST_WITHIN
from fastbayes.models.numeric.curves import Bumps, Curve, LogSums, curve_of, flat, tabulated
from fastbayes.models.numeric.loo_gaussian import LooGaussians, some_columns
from fastbayes.models.numeric.student import Students
from fastbayes.scan.density_spec import SKETCHED, DensitySpec
from fastbayes.statistics.bundle import Statistics

# From the median to the quartiles of a normal density, times two: the range between quartiles.
QUARTILES = 1.34
# So many kernels at a value take numpy as long as a cell of a table.
PAIRS = 20
# A point at which all others come to less than this share of the weights is summed by itself: the
# fast sum has an error of up to 1e-13 of them.
LONE = 1e-4
# The least scale of a column, of which the inverse is a number, and how many of them reach its
# outermost values at most: much nearer than `FARTHEST`.
LEAST_SCALE, MOST_SCALES = 2.0**-1022, 2.0**320
# Sketches keep weights down to 2^-44: rows of less than this on average lose digits in their sums.
LEAST_MEAN_WEIGHT = 2.0**-28


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The values of a numeric column in every class, as far as its sketch has them.

    points    For each class (n,) values, ascending; a range stands as its middle.
    least     For each class (n,) the least value that each of them stands for.
    weight    For each class (n,) rows, or the sum of their weights.
    ranges    The values of all classes, in ranges that they have in common.
    variance  (n_classes,) within each class, 0 where there is but one row or none.
    cells     Rows x columns of the statistics, or what pairs of values are worth: whether compiling
              pays.
    """

    name: str
    points: tuple[Floats, ...]
    least: tuple[Floats, ...]
    weight: tuple[Floats, ...]
    ranges: Profile
    variance: Floats
    within: float
    overall: float
    cells: float

    @classmethod
    def of(cls, stats: Statistics, feature: int, ddof: int) -> ColumnValues:
        """Return the values of a numeric feature.

        Raises DataError when squares of the values overflow.
        """
        sketches, moments, schema = stats.sketches, stats.moments, stats.schema
        held = [sketches.of(feature, c) for c in range(len(schema.classes))]
        name = schema.numeric[feature].name
        n, mean = moments.count[feature], moments.mean[feature]
        scatter = moments.scatter[feature]
        # Each value, or range of them, is of one row at least; what weighs least has none.
        n_rows = max(1, sum(len(h.weight) for h in held))
        if 0 < float(n.sum()) < LEAST_MEAN_WEIGHT * n_rows:
            raise DataError(
                f"column {name!r}: rows weigh {n.sum() / n_rows:.3g} on average, too "
                "little for sums of weights to be exact; multiply all weights by a power of ten"
            )
        total = max(float(n.sum()), 1e-300)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            grand = float((n * mean).sum()) / total
            between = float((n * (mean - grand) ** 2).sum())
            variance = np.where(n > max(ddof, 1), scatter / (n - ddof), 0.0)
            freedom = total - ddof * np.count_nonzero(n)
            within = float(scatter.sum()) / freedom if freedom > 0 else 0.0
            overall = (float(scatter.sum()) + between) / total
        if not (math.isfinite(overall) and np.isfinite(variance).all()):
            raise DataError(f"column {name!r}: squares of its values overflow; rescale it")
        pairs = float(sum(len(h.least) ** 2 for h in held))
        return cls(
            name,
            tuple(h.least / 2 + h.greatest / 2 if not h.exact else h.least for h in held),
            tuple(h.least for h in held),
            tuple(h.weight for h in held),
            Profile(*sketches.together(feature)),
            np.asarray(variance),
            within,
            overall,
            max(float(stats.n_rows) * len(schema.features), pairs / PAIRS),
        )

    @cached_property
    def known(self) -> Floats:
        """(n_classes,) weight of the known values."""
        return np.array([float(weight.sum()) for weight in self.weight])

    @cached_property
    def pooled(self) -> tuple[Floats, Floats]:
        """The values of all classes, ascending, each once, and their weights."""
        return self.without(-1)

    def without(self, label: int) -> tuple[Floats, Floats]:
        """Return the values of all classes but one, ascending, each once, and their weights."""
        points, weight = (
            np.concatenate([np.empty(0), *(part for c, part in enumerate(parts) if c != label)])
            for parts in (self.points, self.weight)
        )
        order = points.argsort(kind="stable")  # which merges what ascends in every class
        points, weight = points[order], weight[order]
        starts = np.flatnonzero(np.diff(points, prepend=np.nan))
        return points[starts], np.add.reduceat(weight, starts)

    @cached_property
    def place(self) -> tuple[float, float]:
        """A centre and a scale: half of what lies between the tenths at both ends, where it can."""
        values, weight = self.pooled
        if not len(values):
            return 0.0, 1.0
        low, middle, high = quantiles(values, weight, (0.1, 0.5, 0.9))
        whole = (float(values[-1]) - float(values[0])) / 2
        # Neither 1/scale overflows nor the square of how far the outermost values are.
        scale = max((high - low) / 2 or whole, LEAST_SCALE, whole / MOST_SCALES)
        return middle, scale if scale < math.inf and whole > 0 else 1.0

    @cached_property
    def shares(self) -> Floats:
        """The least value, what parts all values into equal shares, and the greatest value."""
        return equal_shares(self.ranges)

    @property
    def silent(self) -> bool:
        """Whether all values are one, or there is none."""
        return len(self.pooled[0]) < 2

    def cell(self, label: int, x: Floats) -> NDArray[np.int64]:
        """Return which value of a class each number stands at; the first for smaller ones."""
        at = np.searchsorted(self.least[label], x, side="right") - 1
        return np.maximum(at, 0).astype(np.int64)


def quantiles(values: Floats, weight: Floats, shares: Sequence[float]) -> list[float]:
    """Return for each share the first value up to which there is so much of the weight."""
    cumulated = np.cumsum(weight)
    wanted = [cumulated[-1] * share * (1 - 1e-12) for share in shares]
    at = np.minimum(np.searchsorted(cumulated, wanted, side="left"), len(values) - 1)
    return [float(value) for value in values[at]]


def silverman(values: Floats, weight: Floats, variance: float) -> float:
    """Return 0.9 min(deviation, range between the quartiles / 1.34) n^(-1/5).

    Where the quartiles are one value, the deviation alone counts.

    References
    ----------
    Silverman (1986), Density estimation for statistics and data analysis, equation 3.31.
    """
    deviation = math.sqrt(variance)
    low, high = quantiles(values, weight, (0.25, 0.75))
    apart = high - low
    spread = min(deviation, apart / QUARTILES) if apart > 0 else deviation
    return 0.9 * spread * float(weight.sum()) ** -0.2


MOST_BINS = 1_024


@dataclass(frozen=True, eq=False)
class HistogramDensity:
    """f(x | c) = (n_cb + alpha) / ((n_c + alpha B) width_b) for x in bin b of B.

    edges   (B - 1,) ascending: bin b of the inner ones is [edges[b - 1], edges[b]).
    counts  (B, n_classes) rows in each bin; the first and the last are empty.

    Inner bins hold equal shares of all rows, as far as values allow: 2 n^(1/3) of them (Rice's
    rule), or one for each value where there are no more values, parted half way between values,
    from the least one to the greatest. The first and the last bin lie outside: their mass
    alpha / (n_c + alpha B) falls off with the distance d from the inner ones, as exp(-d/s)/s with
    s the range of the values.
    """

    values: ColumnValues
    edges: Floats
    counts: Floats
    alpha: float

    @classmethod
    def of(cls, values: ColumnValues, alpha: float) -> HistogramDensity:
        """Return the density of a column."""
        edges = values.shares
        classes = zip(values.points, values.weight, strict=True)
        counts = [np.bincount(bins_of(edges, own), rows, len(edges) + 1) for own, rows in classes]
        return cls(values, edges, np.stack(counts, axis=1).astype(np.float64), alpha)

    @cached_property
    def widths(self) -> Floats:
        """(B,) width of each bin; those outside count as wide as their scale."""
        inner = np.diff(self.edges)
        return np.concatenate(([inner.sum()], inner, [inner.sum()]))

    def _log_share(self, n: Floats, known: Any, choices: Any) -> Floats:
        """Return ln of the share of one of several bins; 0/0 is its limit 1/choices."""
        above, below = n + self.alpha, known + self.alpha * choices
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(np.where(below > 0, above / below, 1 / choices)))

    @cached_property
    def log_mass(self) -> Floats:
        """(B, n_classes) ln of the share of each bin within each class."""
        return self._log_share(self.counts, self.counts.sum(axis=0), len(self.counts))

    @property
    def curves(self) -> tuple[tuple[int, Curve], ...]:
        """The log densities, to be looked up: the first class of the curve, and the curve."""
        return ((0, self._curve),)

    @cached_property
    def _curve(self) -> Curve:
        if self.values.silent:
            return flat(self.counts.shape[1])
        centre, scale = self.values.place
        edges = self.edges.copy()
        # The greatest value lies in the last inner bin.
        edges[-1] = np.nextafter(edges[-1], np.inf)
        # As numbers are scaled when they are looked up, to the same bits.
        knots = (edges - centre) * (1 / scale)
        pieces = np.zeros((len(knots) + 1, self.counts.shape[1], 4))
        pieces[..., 0] = self.log_mass - np.log(self.widths)[:, None]
        # Outside the density falls off with the distance from the outermost edge.
        pieces[0, :, 1], pieces[-1, :, 1] = scale / self.widths[0], -scale / self.widths[-1]
        return curve_of(centre, scale, knots, pieces, float(np.abs(knots).max()) + 1, edges)

    @property
    def n_parameters(self) -> int:
        """The shares of the bins but one, of each class."""
        return (len(self.counts) - 1) * self.counts.shape[1]

    def drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> Floats:
        """Return a number of each class."""
        if self.values.silent:
            only = self.values.pooled[0]
            return np.full(len(codes), only[0] if len(only) else 0.0)
        bins = value_codes(np.exp(self.log_mass), codes, random)
        last = len(self.counts) - 1
        uniform = random.random(len(codes))
        far = random.standard_exponential(len(codes)) * self.widths[0]
        inner = np.clip(bins, 1, last - 1)
        drawn = self.edges[inner - 1] + uniform * self.widths[inner]
        drawn = np.where(bins == 0, self.edges[0] - far, drawn)
        return np.where(bins == last, self.edges[-1] + far, drawn)

    def left_out(self, label: int, at: NDArray[np.int64], less: Floats) -> Floats:
        """Return the log density of a class at its own values, each with less weight.

        at     (n,) which of its values.
        less   (n,) how much less weight it has; the bins stay.
        """
        if self.values.silent:
            return np.zeros(len(at))
        bins = bins_of(self.edges, self.values.points[label])[at]
        n, known = self.counts[bins, label], self.counts[:, label].sum()
        mass = self._log_share(without(n, less), without(known, less), len(self.counts))
        return np.asarray(mass - np.log(self.widths[bins]))


def equal_shares(ranges: Profile) -> Floats:
    """Return the least value, what parts ranges into equal shares, and the greatest value."""
    low, high, weight = ranges.least, ranges.greatest, ranges.weight.sum(axis=1)
    if not len(low):
        return np.zeros(2)
    bins = min(math.ceil(2 * float(weight.sum()) ** (1 / 3)), MOST_BINS)
    behind = np.arange(len(low) - 1)
    if bins < len(low):
        cumulated = np.cumsum(weight)
        wanted = cumulated[-1] * np.arange(1, bins) / bins * (1 - 1e-12)
        behind = np.unique(np.searchsorted(cumulated, wanted, side="left"))
        behind = behind[behind < len(low) - 1]
    below, above = high[behind], low[behind + 1]
    middle = below / 2 + above / 2
    # Half way, and above the lower value even where they touch.
    middle = np.where(middle > below, middle, above)
    return np.unique(np.concatenate((low[:1], middle, high[-1:])))


def bins_of(edges: Floats, points: Floats) -> NDArray[np.int64]:
    """Return the inner bin of values in their range."""
    at = np.searchsorted(edges, points, side="right")
    return np.minimum(at, len(edges) - 1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class BinnedDensity(HistogramDensity):
    """f(x | c) = P(bin | c) g(x | bin), the bins those of Fayyad and Irani.

    group  (B,) the bin that each bin of the histogram lies in.

    P(bin | c) is the estimate of a categorical column, and g the histogram of all classes within
    the bin, smoothed likewise. It falls out of a posterior, which is that of the column cut into
    bins, and makes the likelihood one of numbers, which others can be held against.
    """

    group: NDArray[np.int64]

    @classmethod
    def cut(cls, values: ColumnValues, alpha: float) -> BinnedDensity | None:
        """Return the density of a column, None where it has no cut point."""
        ranges = values.ranges
        cuts = np.array(mdl_cuts(ranges, values.cells))
        if not len(cuts):
            return None
        # A cut on a value, where values touch, lies below the next one.
        at = np.searchsorted(ranges.greatest, cuts)
        on = ranges.greatest[at] == cuts
        cuts[on] = ranges.least[at[on] + 1]
        edges = np.unique(np.concatenate((values.shares, cuts)))
        bins = bins_of(edges, ranges.least)
        counts = [np.bincount(bins, rows, len(edges) + 1) for rows in ranges.weight.T]
        inner = np.searchsorted(cuts, edges[:-1], side="right")
        group = np.concatenate(([0], inner, [len(cuts)]))
        return cls(values, edges, np.stack(counts, axis=1), alpha, group)

    @cached_property
    def _sums(self) -> tuple[Floats, NDArray[np.int64]]:
        """Rows of each bin and class, and how many bins of the histogram lie in each."""
        sums = np.zeros((int(self.group[-1]) + 1, self.counts.shape[1]))
        np.add.at(sums, self.group, self.counts)
        return sums, np.bincount(self.group)

    @cached_property
    def log_mass(self) -> Floats:
        """(B, n_classes) ln of the share of each bin of the histogram within each class."""
        sums, finer = self._sums
        share = self._log_share(sums, sums.sum(axis=0), len(sums))
        all_, whole = self.counts.sum(axis=1), sums.sum(axis=1)
        within = self._log_share(all_, whole[self.group], finer[self.group])
        return np.asarray(share[self.group] + within[:, None])

    @property
    def n_parameters(self) -> int:
        """The shares of the bins but one of each class, and those within the bins."""
        sums, finer = self._sums
        return (len(sums) - 1) * sums.shape[1] + int((finer - 1).sum())

    def left_out(self, label: int, at: NDArray[np.int64], less: Floats) -> Floats:
        """Return the log density of a class at its own values, each with less weight."""
        sums, finer = self._sums
        bins = bins_of(self.edges, self.values.points[label])[at]
        group = self.group[bins]
        n, known = without(sums[group, label], less), without(sums[:, label].sum(), less)
        share = self._log_share(n, known, len(sums))
        all_, whole = self.counts.sum(axis=1)[bins], sums.sum(axis=1)[group]
        within = self._log_share(without(all_, less), without(whole, less), finer[group])
        return np.asarray(share + within - np.log(self.widths[bins]))


# Classes that are looked up together: their curve has the pieces of all of them.
TOGETHER = 8
_NORMAL = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class KernelDensity:
    """f(x | c) = sum_i w_i N(x; x_i, h_c²) / n_c, over the values x_i of class c.

    bandwidth  (n_classes,) h_c.
    floored    (n_classes,) where it was raised to the floor.
    spare      Bandwidth of all classes together, for a class without a known value.

    The bandwidth is Silverman's rule of thumb within the class; that of a class of one row at
    most comes from the variance within the classes together. None is less than sqrt(var_floor) of
    the deviation of all rows; by "within" no variance is taken for less than LEAST_WITHIN times
    that within the classes, or that of all rows where there is none within any.
    """

    values: ColumnValues
    bandwidth: Floats
    floored: NDArray[np.bool_]
    spare: float

    @classmethod
    def of(cls, values: ColumnValues, var_floor: float | str) -> KernelDensity:
        """Return the density of a column.

        Raises DataError when a bandwidth is 0.
        """
        own = np.zeros(len(values.points))
        for c, (points, weight) in enumerate(zip(values.points, values.weight, strict=True)):
            if values.known[c] > 1:
                own[c] = silverman(points, weight, values.variance[c])
            elif len(points):
                own[c] = 0.9 * math.sqrt(values.within)
        pooled = silverman(*values.pooled, values.overall) if len(values.pooled[0]) else 0.0
        own = np.where(values.known > 0, own, pooled)
        if isinstance(var_floor, str):
            # What is constant within every class varies between them.
            deviation = math.sqrt(LEAST_WITHIN * (values.within or values.overall))
            floor = 0.9 * deviation * np.maximum(values.known, 1.0) ** -0.2
        else:
            floor = np.full(len(own), math.sqrt(var_floor * values.overall))
        floored = (own < floor) & (values.known > 0)
        bandwidth = np.maximum(own, floor)
        if not _flat(values) and not (bandwidth > 0).all():
            raise DataError(
                f"column {values.name!r} has bandwidth 0 in a class and var_floor={var_floor}; "
                "raise var_floor or leave the column out"
            )
        return cls(values, bandwidth, floored, max(pooled, float(floor.min())))

    def _bumps(self, label: int) -> Bumps:
        """Return the kernels of a class in the scale of the column."""
        return self._scaled(*self._points(label), float(self.bandwidth[label]))

    def _points(self, label: int) -> tuple[Floats, Floats]:
        """Return the values of a class and their weights; those of all where it has none."""
        points, weight = self.values.points[label], self.values.weight[label]
        return (points, weight) if len(points) else self.values.pooled

    @property
    def _log_sums(self) -> LogSums:
        found: LogSums = dispatch.load("scoring.density", self.values.cells).log_sums
        return found

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
        farthest = max(max(-b.points[0], b.points[-1]) for b in classes)
        reach = farthest + 10 * max(b.bandwidth for b in classes)
        return curve_of(*self.values.place, *tabulated(classes, self._log_sums), reach)

    @property
    def n_parameters(self) -> int:
        """The weights of the points but one, and the bandwidth, of each class."""
        return sum(len(points) for points in self.values.points)

    def drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> Floats:
        """Return a number of each class."""
        result = np.zeros(len(codes))
        for c in np.unique(codes).tolist():
            rows = np.flatnonzero(codes == c)
            points, weight = self._points(c)
            if len(points):
                some = random.choice(points, len(rows), p=weight / weight.sum())
                result[rows] = some + self.bandwidth[c] * random.standard_normal(len(rows))
        return result

    def left_out(self, label: int, at: NDArray[np.int64], less: Floats) -> Floats:
        """Return the log density of a class at its own values, each with less weight.

        As that of a histogram; the bandwidth stays.
        """
        values = self.values
        if _flat(values):
            return np.zeros(len(at))
        bumps, known = self._bumps(label), values.known[label]
        less = np.where(values.weight[label][at] - less > ROUNDING * known, less, np.inf)
        less = np.minimum(less, values.weight[label][at])
        left = known - less
        own = self._log_own(bumps, at, less)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = own + bumps.level + np.log(known) - np.log(left)
        alone = left <= ROUNDING * known
        if alone.any():
            found = np.where(alone, self._others(label, values.points[label][at]), found)
        return np.asarray(found)

    def _log_own(self, bumps: Bumps, at: NDArray[np.int64], less: Floats) -> Floats:
        """Return ln of the sums of kernels at their own points, each with less weight."""
        sums = own_sums(*bumps[:3])
        if sums is None:
            found, lone = np.empty(len(at)), np.arange(len(at))
        else:
            rest = sums[at] - less
            lone = np.flatnonzero(rest < LONE * bumps.weight.sum())
            rest[lone] = 1.0
            found = np.log(rest)
        found[lone], _ = self._log_sums(*bumps[:3], bumps.points[at[lone]], at[lone], less[lone])
        return found

    def _others(self, label: int, x: Floats) -> Floats:
        """Return the log density of all classes but one, which describes it where it is empty."""
        points, weight = self.values.without(label)
        if not len(points):
            return np.zeros(len(x))
        bumps, (centre, scale) = self._scaled(points, weight, self.spare), self.values.place
        none = np.full(len(x), -1), np.zeros(len(x))
        own, _ = self._log_sums(*bumps[:3], (x - centre) / scale, *none)
        return np.asarray(own + bumps.level)

    @property
    def spiked(self) -> bool:
        """Whether most rows have a value that others have too, apart from all other values.

        Their kernels do not overlap: how high they are is a matter of the bandwidth alone.
        """
        apart, values = 0.0, self.values
        for width, points, weight in zip(self.bandwidth, values.points, values.weight, strict=True):
            between = np.concatenate(([np.inf], np.diff(points), [np.inf]))
            gap = np.minimum(between[1:], between[:-1])[: len(points)]
            apart += float(weight[(gap > width) & (weight > 1)].sum())
        return 2 * apart > float(values.known.sum())


def _flat(values: ColumnValues) -> bool:
    """Return whether values are alike, or too near to each other for their squares to differ."""
    return values.silent or values.overall == 0


Density = KernelDensity | HistogramDensity
# Of a column: the first class of each curve, and the curve.
Curves = tuple[tuple[int, Curve], ...]


@dataclass(frozen=True, eq=False)
class ColumnDensities:
    """The densities of numeric columns that are not Gaussian.

    kinds     How each numeric column is described.
    by_place  By its place among the numeric columns, the density of each that is not parametric.
    students  Student's t of the columns that have it.
    """

    kinds: tuple[str, ...]
    by_place: Mapping[int, Density]
    students: Students

    @property
    def gaussian(self) -> NDArray[np.bool_]:
        """(n_numeric,) which columns are Gaussian."""
        return np.array([kind == "gaussian" for kind in self.kinds], np.bool_)

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
    add_curve = dispatch.load("scoring.density", cells).add_curve
    out = np.zeros((sum(curve.table.shape[1] // 4 for _, curve in curves), len(x)))
    for first, curve in curves:
        place, bounds, ends, rows = (dispatch.readonly(array) for array in curve[:4])
        add_curve(dispatch.readonly(x), place, bounds, ends, rows, 0, len(x), out[first:])
    return np.ascontiguousarray(out.T)


def densities(
    stats: Statistics,
    kinds: DensitySpec,
    *,
    parametric: str,
    alpha: float,
    ddof: int,
    variance: str,
    var_floor: float | str,
) -> ColumnDensities:
    """Return the densities that a model is to have.

    kinds                      How columns are to be described.
    parametric                 The parametric density that "auto" may choose.
    ddof, variance, var_floor  As `smoothing.spread_of` has them.

    Raises DataError when squares of values overflow, or a bandwidth is 0.
    """
    names = [feature.name for feature in stats.schema.numeric]
    chosen = [kinds.of(name) for name in names]
    of_students = ("student", "auto") if parametric == "student" else ("student",)
    places = [place for place, kind in enumerate(chosen) if kind in of_students]
    students = Students(stats.moments, places, [names[place] for place in places])
    found = {}
    for place, kind in enumerate(chosen):
        if kind in SKETCHED:
            values = ColumnValues.of(stats, place, ddof)
            made: dict[str, Density] = {}
            if kind in ("kde", "auto"):
                made["kde"] = KernelDensity.of(values, var_floor)
            if kind in ("histogram", "auto"):
                made["histogram"] = HistogramDensity.of(values, alpha)
            if kind == "auto":
                if not values.silent and (bins := BinnedDensity.cut(values, alpha)) is not None:
                    made["mdl"] = bins
                if parametric == "student":
                    left_out: LeftOut = partial(students.left_out, place)
                else:
                    options = {"ddof": ddof, "variance": variance, "var_floor": var_floor}
                    left_out = of_gaussian(stats, place, options)
                kind = chosen[place] = best_kind(values, parametric, left_out, made)
            if kind in made:
                found[place] = made[kind]
    students = students.only([place for place in places if chosen[place] == "student"])
    return ColumnDensities(tuple(chosen), found, students)


# From a class, its values and what each weighs to its log density at these without each.
LeftOut = Callable[[int, Floats, Floats], Floats]


def best_kind(
    values: ColumnValues, parametric: str, left_out: LeftOut, made: Mapping[str, Density]
) -> str:
    """Return the density of a column of largest leave-one-out log likelihood.

    values      What the statistics say of it.
    parametric  The kind of its parametric density.
    left_out    What that one says of values that are left out.
    made        The other densities, by kind.

    The sum over rows of ln f(x | c), the row taken out of the moments, the kernels or the counts of
    its class; priors, bandwidths and bins stay. Of equal ones the first of the parametric one,
    kernels, histogram, bins that are cut where the classes change.
    Kernels take no part where most rows share a value that stands apart from all others: see
    `KernelDensity.spiked`.
    """
    if values.silent:
        return parametric
    # Of values that are constant within every class a parametric density says nothing.
    kinds = [parametric, *made] if values.within != 0 else [*made]
    kernels = made["kde"]
    if isinstance(kernels, KernelDensity) and kernels.spiked:
        kinds.remove("kde")
    scores = dict.fromkeys(kinds, 0.0)
    for c, (points, weight) in enumerate(zip(values.points, values.weight, strict=True)):
        if not len(points):
            continue
        less, every = np.minimum(weight, 1.0), np.arange(len(points))
        for kind in scores:
            if kind == parametric:
                terms = left_out(c, points, less)
            else:
                terms = made[kind].left_out(c, every, less)
            scores[kind] += float((weight * terms).sum())
    return max(scores, key=lambda kind: scores[kind])


def of_gaussian(stats: Statistics, place: int, options: Mapping[str, Any]) -> LeftOut:
    """Return what the normal density of a column says of values that are left out.

    options  ddof, variance and var_floor.
    """
    moments, names = some_columns(stats.moments, [place]), [stats.schema.numeric[place].name]
    gaussian = LooGaussians(moments, weighted=stats.weighted, names=names, **options)

    def left_out(label: int, points: Floats, less: Floats) -> Floats:
        y = np.full(len(points), label)
        found, low = np.zeros(len(points)), np.ones(len(points), np.bool_)
        if gaussian.plain.all():
            found, low = gaussian.own_log_density([points], y, less)
        if len(some := np.flatnonzero(low)):
            found[some] = gaussian.log_density([points[some]], y[some], less[some])[:, label]
        return found

    return left_out
