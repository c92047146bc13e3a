"""Bins that the classes share, or that are cut where the classes change: constant densities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.data.discretize import mdl_cuts
from fastbayes.data.sketch import Profile
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import without
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.models.numeric.column_values import ColumnValues
from fastbayes.models.numeric.curves import Curve, curve_of, flat

MOST_BINS = 1_024


@dataclass(frozen=True, eq=False)
class HistogramDensity:
    """f(x | c) = (n_cb + alpha) / ((n_c + alpha B) width_b) for x in bin b of B.

    values  The column.
    edges   (B - 1,) ascending: bin b of the inner ones is [edges[b - 1], edges[b]).
    counts  (B, n_classes) rows in each bin; the first and the last are empty.
    alpha   Pseudo-count of each bin.

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
        edges = equal_shares(values.ranges)
        counts = np.zeros((len(edges) + 1, len(values.points)))
        for c, (own, rows) in enumerate(zip(values.points, values.weight, strict=True)):
            at = bins_of(edges, own)
            counts[:, c] = np.bincount(at, rows, len(counts))
        return cls(values, edges, counts, alpha)

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
        # As numbers are told when they are looked up, to the same bits.
        knots = (self.edges - centre) * (1 / scale)
        # The greatest value lies in the last inner bin.
        knots[-1] = np.nextafter(knots[-1], np.inf)
        pieces = np.zeros((len(knots) + 1, self.counts.shape[1], 4))
        pieces[..., 0] = self.log_mass - np.log(self.widths)[:, None]
        # Outside the density falls off with the distance from the outermost edge.
        pieces[0, :, 1], pieces[-1, :, 1] = scale / self.widths[0], -scale / self.widths[-1]
        return curve_of(centre, scale, knots, pieces, float(np.abs(knots).max()) + 1)

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

        label  The class.
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
        cuts = np.array(mdl_cuts(ranges))
        if not len(cuts):
            return None
        # A cut on a value, where values touch, lies below the next one.
        on = np.isin(cuts, ranges.greatest)
        cuts[on] = ranges.least[np.searchsorted(ranges.greatest, cuts[on]) + 1]
        edges = np.unique(np.concatenate((equal_shares(ranges), cuts)))
        counts = np.zeros((len(edges) + 1, len(values.points)))
        np.add.at(counts, bins_of(edges, ranges.least), ranges.weight)
        inner = np.searchsorted(cuts, edges[:-1], side="right")
        return cls(values, edges, counts, alpha, np.concatenate(([0], inner, [len(cuts)])))

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
        """Return the log density of a class at its own values, each with less weight.

        label  The class.
        at     (n,) which of its values.
        less   (n,) how much less weight it has; the bins stay.
        """
        sums, finer = self._sums
        bins = bins_of(self.edges, self.values.points[label])[at]
        group = self.group[bins]
        n, known = without(sums[group, label], less), without(sums[:, label].sum(), less)
        share = self._log_share(n, known, len(sums))
        all_, whole = self.counts.sum(axis=1)[bins], sums.sum(axis=1)[group]
        within = self._log_share(without(all_, less), without(whole, less), finer[group])
        return np.asarray(share + within - np.log(self.widths[bins]))
