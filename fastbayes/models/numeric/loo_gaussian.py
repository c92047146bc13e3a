"""Normal densities by the moments without each row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import without
from fastbayes.models.estimator.smoothing import Gaussians, Spread, spread_of
from fastbayes.statistics import ClassMoments
from fastbayes.statistics.class_moments import LEAST_SHARE

# Moments of a chunk of rows at a time, by numeric feature and class.
CHUNK = 1 << 16


def some_columns(moments: ClassMoments, places: Sequence[int]) -> ClassMoments:
    """Return the moments of some of the numeric columns."""
    shape = moments.shape._replace(n_numeric=len(places))
    arrays = {name: array[list(places)] for name, array in moments.arrays().items()}
    return ClassMoments.from_arrays(shape, arrays)


class LooGaussians:
    """Log densities of numeric columns within each class, by the moments without each row.

    options    Arguments of `smoothing.spread_of`: how variances are pooled, and so on.
    plain      (n_numeric,) columns in which a row changes the density of its own class alone:
               variances are those of the classes, none of them near the floor.
    gaussians  The densities of the plain columns, of all rows.

    Without a row of x the mean moves by (x - mean) w/(n - w), the row then stands (x - mean)
    n/(n - w) from it, and the scatter is less by w (x - mean)^2 n/(n - w) (Welford 1962,
    backwards).
    """

    def __init__(self, moments: ClassMoments, *, weighted: bool, **options: Any) -> None:
        self.moments, self.weighted, self.options = moments, weighted, options
        # Means are differences from that of a class that has one: they keep all digits.
        first = (moments.count > 0).argmax(axis=1)[:, None]
        self.origin = np.take_along_axis(moments.mean, first, axis=1)
        self.mean = (moments.mean - self.origin) + moments.rest
        n, scatter = moments.count, moments.scatter
        spread = self._spread(n, moments.mean, moments.rest, scatter)
        total = n.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Without a row a floor is at most so high.
            self.bound = np.where(total > 1, spread.floor * total / (total - 1), np.inf)
            self.bound *= 1 + 1e-9
            # Rows nearer to the mean than this are not ill-conditioned.
            near = np.sqrt((1 - LEAST_SHARE) * scatter * (n - 1) / n) * (1 - 1e-9)
        self.near = np.where(scatter > 0, np.where(n > 1, near, 0.0), np.inf)
        own = (n >= options["ddof"] + 2) & (spread.variance >= self.bound[:, None])
        self.plain = own.all(axis=1) & ~spread.constant & (options["variance"] == "per_class")
        self.gaussians = Gaussians(*(part[self.plain] for part in spread.gaussians))

    def _spread(self, *moments: Floats) -> Spread:
        return spread_of(*moments, **self.options)

    def of(self, columns: NDArray[np.bool_]) -> LooGaussians:
        """Return the densities of some of the columns."""
        names = [n for n, kept in zip(self.options["names"], columns, strict=True) if kept]
        options = {**self.options, "names": names}
        moments = some_columns(self.moments, np.flatnonzero(columns).tolist())
        return type(self)(moments, weighted=self.weighted, **options)

    def own_log_density(
        self, numeric: Sequence[Floats], y: NDArray[np.intp], gone: Floats | None
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the sum over plain columns of ln N(x_j | class of the row), (n_rows,).

        And the rows in which some variance comes near the floor: they take `log_density`.

        numeric, y, gone  As in `log_density`.
        """
        total, low = np.zeros(len(y)), np.zeros(len(y), np.bool_)
        n, mean, rest, scatter = self.moments.arrays().values()
        ddof = self.options["ddof"]
        for c in np.flatnonzero(np.bincount(y)).tolist():
            rows = np.flatnonzero(y == c)
            less: Any = 1.0 if gone is None else gone[rows]
            sum_, bad = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
            for j in np.flatnonzero(self.plain).tolist():
                left = n[j, c] - less
                factor = n[j, c] / left
                apart = numeric[j][rows]
                apart -= mean[j, c]
                apart -= rest[j, c]
                apart *= apart
                apart *= factor
                variance = (scatter[j, c] - less * apart) / (left - ddof)
                # Below what is sure not to be a floor, or too little to differ from rounding.
                bad |= variance < max(self.bound[j], LEAST_SHARE * scatter[j, c] / (n[j, c] - ddof))
                apart *= factor
                with np.errstate(divide="ignore", invalid="ignore"):
                    apart /= variance
                    apart += np.log(variance * (2 * math.pi))
                sum_ += np.where(np.isnan(apart), 0.0, apart)
            total[rows], low[rows] = -0.5 * sum_, bad
        return total, low

    def log_density(
        self,
        numeric: Sequence[Floats],
        y: NDArray[np.intp],
        gone: Floats | None,
        scatter: Floats | None = None,
    ) -> Floats:
        """Return the sum over the known columns of ln N(x_j | c), (n_rows, n_classes).

        numeric  One (n_rows,) array per column, NaN where missing.
        y        (n_rows,) classes.
        gone     (n_rows,) what each row takes out of the moments; None: 1 each.
        scatter  (n_rows, n_numeric) scatter of the row's class without it, where it is known
                 better; NaN elsewhere.
        """
        p, k = self.moments.count.shape
        result = np.zeros((len(y), k))
        step = max(1, CHUNK // max(1, p * k))
        for lo in range(0, len(y) if p else 0, step):
            some = slice(lo, lo + step)
            result[some] = self._chunk(
                np.stack([column[some] for column in numeric], axis=1),
                y[some],
                None if gone is None else gone[some],
                None if scatter is None else scatter[some],
            )
        return result

    def _chunk(
        self, x: Floats, y: NDArray[np.intp], gone: Floats | None, scatter: Floats | None
    ) -> Floats:
        known = ~np.isnan(x)
        # From the mean of every class, (n_rows, n_numeric, n_classes).
        apart = (x[:, :, None] - self.moments.mean) - self.moments.rest
        apart = np.where(known[:, :, None], apart, 0.0)
        own = np.arange(len(x))[:, None], np.arange(x.shape[1])[None], y[:, None]
        mine, n, left, after = self._own(apart[own], known, y, gone)
        if scatter is not None:
            after = np.where(np.isnan(scatter), after, scatter)
        count, mean, scatters = (
            np.broadcast_to(part, apart.shape).copy()
            for part in (self.moments.count, self.mean, self.moments.scatter)
        )
        count[own], scatters[own] = left, after
        mean[own] -= np.where(left > 0, mine * (n - left) / np.where(left > 0, left, 1), 0.0)
        apart[own] = mine * np.where(left > 0, n / np.where(left > 0, left, 1), 0.0)
        centre, half, level, _ = self._spread(count, mean, np.zeros_like(mean), scatters).gaussians
        # A class without a known value has no mean of its own, but that of all.
        pooled = (np.where(known, x, 0.0) - self.origin[:, 0])[:, :, None] - centre
        apart = np.where(count > 0, apart, pooled)
        return np.asarray(np.where(known[:, :, None], level - apart**2 * half, 0.0).sum(axis=1))

    def _own(
        self, apart: Floats, known: NDArray[np.bool_], y: NDArray[np.intp], gone: Floats | None
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return x - mean, n, n without the row and scatter without it, of the row's class."""
        n, before = self.moments.count.T[y], self.moments.scatter.T[y]
        less = np.where(known, 1.0 if gone is None else gone[:, None], 0.0)
        apart = np.where(before > 0, apart, 0.0)
        left, after, single = self._left(n, before, apart, less)
        return apart, n, left, np.where(single & known, 0.0, np.maximum(after, 0.0))

    def _left(
        self, n: Floats, scatter: Floats, apart: Floats, less: Any
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return what rows leave of n and of the scatter, and where that is one row or none."""
        left = without(n, less)
        factor = np.divide(n, left, out=np.zeros_like(n), where=left > 0)
        single = (left <= 0) if self.weighted else (left <= 1)  # it has no scatter
        return left, scatter - less * apart**2 * factor, single

    def ill_conditioned(
        self, numeric: Sequence[Floats], y: NDArray[np.intp], gone: Floats | None
    ) -> NDArray[np.int64]:
        """Return the rows in which subtraction leaves too few digits of a scatter.

        numeric, y, gone  As in `log_density`.
        """
        found = np.zeros(len(y), np.bool_)
        for j, x in enumerate(numeric):
            low, high = np.fmin.reduce(x, initial=np.inf), np.fmax.reduce(x, initial=-np.inf)
            mean, rest, near = self.moments.mean[j], self.moments.rest[j], self.near[j]
            if (((high - mean) - rest < near) & ((mean - low) + rest < near)).all():
                continue
            known = ~np.isnan(x)
            apart = np.where(known, (x - mean[y]) - rest[y], 0.0)
            n, scatter = self.moments.count[j][y], self.moments.scatter[j][y]
            less = known * (1.0 if gone is None else gone)
            _, after, single = self._left(n, scatter, apart, less)
            found |= known & ~single & (scatter > 0) & (after < LEAST_SHARE * scatter)
        return np.flatnonzero(found)

    def scatter_without(
        self,
        others: ClassMoments,
        numeric: Sequence[Floats],
        y: NDArray[np.intp],
        weight: Floats | None,
    ) -> Floats:
        """Return the scatter of each row's class without it, (n_rows, n_numeric).

        others      Moments of all rows but these.
        numeric, y  These rows, as in `log_density`.
        weight      (n_rows,) weights; None: 1 each.
        """
        x = np.stack(numeric, axis=1)
        w = np.ones(len(y)) if weight is None else weight
        result = np.empty_like(x)
        for r, c in enumerate(y.tolist()):
            n, scatter = others.count[:, c].copy(), others.scatter[:, c].copy()
            # From the row itself, whose digits may be all that its class has.
            mean = (others.mean[:, c] - x[r]) + others.rest[:, c]
            for s in np.flatnonzero(y == c).tolist():
                more = np.where(np.isnan(x[s]), 0.0, max(w[s] - 1.0, 0.0) if s == r else w[s])
                both = n + more
                apart = np.where(more > 0, (x[s] - x[r]) - mean, 0.0)
                share = np.divide(more, both, out=np.zeros_like(n), where=both > 0)
                scatter += apart**2 * n * share
                mean, n = mean + apart * share, both
            result[r] = scatter
        return result
