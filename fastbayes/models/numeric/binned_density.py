"""Bins cut where the classes change: within each, the classes have one density in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastbayes.data.discretize import mdl_cuts
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import without
from fastbayes.models.numeric.column_values import ColumnValues
from fastbayes.models.numeric.histogram_density import HistogramDensity, bins_of, equal_shares


@dataclass(frozen=True, eq=False)
class BinnedDensity(HistogramDensity):
    """f(x | c) = P(bin | c) g(x | bin), the bins those of Fayyad and Irani.

    Parameters
    ----------
    group
        (B,) the bin that each bin of the histogram lies in.

    Notes
    -----
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

        Parameters
        ----------
        label
            The class.
        at
            (n,) which of its values.
        less
            (n,) how much less weight it has; the bins stay.
        """
        sums, finer = self._sums
        bins = bins_of(self.edges, self.values.points[label])[at]
        group = self.group[bins]
        n, known = without(sums[group, label], less), without(sums[:, label].sum(), less)
        share = self._log_share(n, known, len(sums))
        all_, whole = self.counts.sum(axis=1)[bins], sums.sum(axis=1)[group]
        within = self._log_share(without(all_, less), without(whole, less), finer[group])
        return np.asarray(share + within - np.log(self.widths[bins]))
