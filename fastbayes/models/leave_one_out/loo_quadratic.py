"""Rows scored by densities of all columns together, each by the moments without it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, taken
from fastbayes.core.errors import SchemaError
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.moments import two_sum
from fastbayes.models.discrete.naive_bayes import LooNaive, NaiveBayes
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import LooRows, LooScorer, Scorers, rows_of, without
from fastbayes.models.estimator.smoothing import Smoothing, Spread
from fastbayes.models.numeric.conjugate import predictive, prior_of
from fastbayes.models.numeric.covariance import (
    TOLERANCE,
    Normals,
    centre_of,
    diagonal,
    least_eigenvalue,
    log_densities,
    log_shape,
    normals,
    spherical,
    spreads,
)
from fastbayes.models.numeric.loo_gaussian import LooGaussians
from fastbayes.statistics import ClassScatter
from fastbayes.statistics.class_moments import LEAST_SHARE, GroupMoments

# Numbers of matrices of densities of their own that are made at a time.
CHUNK = 1 << 20
# Of a class that takes rows of all others every row makes a density: of so many, times the cube of
# the columns, at most.
MOST_WORK = 1e10


class LooQuadratic(LooScorer):
    """Gaussian Bayes with covariance matrices by the moments without each row.

    Without a row x of weight g the scatter of its class, of n rows, is S - a d dᵀ with d = x - mean
    and a = g n/(n - g). Then dᵀ (S - a d dᵀ)⁻¹ d = h/(1 - a h) with h = dᵀ S⁻¹ d (Sherman, Morrison
    1950), and the determinant is that of S times 1 - a h; x stands n/(n - g) d from the new mean. A
    prior makes n kappa_n, and S scale_n. Where a floor, a test of rank or few digits may come in
    between, densities are estimated anew.

    Raises SchemaError when a covariance was singular, and was not merged with that of all classes,
    or too many rows would each make another one.
    """

    def __init__(self, model: Any) -> None:
        pooled = model.singular == "pool" and model.covariance == "full"
        work = model.statistics_.n_rows * len(model.singular_) * len(model.schema_.numeric) ** 3
        if model.singular_ and not (pooled and model.prior is None and work <= MOST_WORK):
            tied = model.covariance == "tied"
            whose = "all classes together" if tied else f"class {model.singular_[0]!r}"
            raise SchemaError(
                f"the covariance of {whose} is singular: what was done about that changes "
                "with every row; use k_fold, or prior='niw'"
            )
        stats = model.statistics_
        # The class prior of such a model is not smoothed.
        super().__init__(model, stats.values.class_counts, Smoothing(alpha=0.0))
        self.options, self.sums = model._rule(stats), model._sums(stats)
        self.densities = model._densities
        self.weighted, self.shape = stats.values.weighted, stats.scatter.shape
        self.given = None
        n = self.sums.n
        if model.prior is None:
            freedom = self._rows(n) - self.options.ddof
            self.mass, self.factor = n, 1.0 / np.where(freedom > 0, freedom, 1.0)
            self.regular, self.bound, self.low = self._regular()
        else:
            if model.prior == "niw" or not {"mean", "scale"} <= set(model.prior):
                self.fixed = ("schema", "prior")
            self.given = prior_of(model.prior, self.sums, self.options)
            self.mass = self.given.kappa + n
            self.factor = (self.mass + 1) / (self.mass * self.densities.dof)
            self.regular = np.ones(len(n), np.bool_)
        self.others: ClassScatter | None = None

    def _rows(self, n: Floats) -> Floats:
        """Return the rows of the covariance of each class, with ddof still to be taken off."""
        if not self.options.tied:
            return n
        more = (n > 0).sum() - 1
        return np.full(len(n), n.sum() - self.options.ddof * more)

    def _regular(self) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Return where a row changes the density of its own class alone, and what tells so.

        Of classes, or where they share a covariance of all of them; the variances that are above
        any floor, (p,); and what no eigenvalue of correlations is below, (n_classes,).
        """
        found, total = self.densities.found, self.sums.n.sum()
        _, overall = spreads(self.sums, centre_of(self.sums), self.options.names)
        # Without a row a floor is at most so high.
        bound = self.options.var_floor * overall * total / max(total - 1, 1e-9) * (1 + 1e-9)
        above = (found.deviation**2 >= bound) | ~found.kept
        regular = (~found.floored & above).all(axis=1)
        n, shape = self.sums.n, self.sums.n.shape
        if not self.options.tied:
            # A covariance that was merged with that of all changes with every row.
            regular &= (n > self.options.ddof) & ~found.singular
        low = least_eigenvalue(found.correlation)
        return np.broadcast_to(regular, shape), bound, np.broadcast_to(low, shape)

    # -- scoring -------------------------------------------------------------------------------

    def log_joint(self, batch: Batch, out: Floats) -> float:
        """Write ln P(c, x) into `out`, and return how close to each other two of them are equal."""
        rows, kind = rows_of(batch), dispatch.compiled(batch.cells)
        if kind not in self._made:
            self._made[kind] = self._scorers(batch.cells)
        scorer, _ = self._made[kind]
        scorer.log_joint(batch.codes, batch.numeric, out)
        if self.others is not None:
            given = self._told(rows, self.others)
            out[:] = self._anew(np.stack(batch.numeric, axis=1), given)
        else:
            for x, at in _complete(batch):
                self._without(x, _at(rows, at), at, out)
        out += self.prior(rows.y, rows.gone)
        return float(scorer._tie)

    def _scorers(self, cells: float) -> Scorers:
        nothing = np.zeros(len(self.sums.n))
        scorer = self.densities.scorer(dispatch.load("scoring.quadratic", cells), nothing)
        return scorer, scorer

    def _without(self, x: Floats, rows: LooRows, at: NDArray[np.int64], out: Floats) -> None:
        """Put the densities of complete rows without themselves into `out`."""
        y, gone = rows.y, np.ones(len(x)) if rows.gone is None else rows.gone
        certain, changed = self._closed_form(x, y, gone)
        if self.options.tied:
            out[at] = changed
        else:
            out[at, y] = changed[np.arange(len(x)), y]
        ill_conditioned = self._few_digits(x, y, gone, certain)
        out[at[ill_conditioned]] = 0.0  # until they are resolved
        anew = ~certain & ~ill_conditioned
        odd = np.flatnonzero(~self.regular)
        if self.options.tied:
            self._put_anew(np.flatnonzero(anew), None, x, rows, at, out)
            return
        for c in np.unique(y).tolist():
            mine = y == c
            self._put_anew(np.flatnonzero(mine & anew), np.union1d(odd, [c]), x, rows, at, out)
            # Their floors, and the covariance of all, change with every row.
            self._put_anew(np.flatnonzero(mine & certain), odd, x, rows, at, out)

    def _put_anew(
        self,
        some: NDArray[np.int64],
        only: NDArray[np.int64] | None,
        x: Floats,
        rows: LooRows,
        at: NDArray[np.int64],
        out: Floats,
    ) -> None:
        """Put densities of some or all classes into `out`, estimated without each of some rows."""
        if len(some) and (only is None or len(only)):
            gone = np.ones(len(some)) if rows.gone is None else rows.gone[some]
            given = self._sums_without(x[some], rows.y[some], gone)
            columns = np.arange(out.shape[1]) if only is None else only
            out[at[some][:, None], columns] = self._anew(x[some], given, only)

    def _closed_form(
        self, x: Floats, y: NDArray[np.intp], gone: Floats
    ) -> tuple[NDArray[np.bool_], Floats]:
        """Return which rows it is good for, and log densities (n_rows, n_classes).

        Where the classes have covariances of their own, those of the class of the row alone.
        """
        found, every = self.densities.found, np.arange(len(x))
        p, mass = int(found.kept.sum()), self.mass[y]
        left = mass - gone
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Squared distances, and products with that of the own class, in units of S.
            root, own = np.sqrt(self.factor), np.empty_like(x)
            for c in np.unique(y).tolist():
                mine = y == c
                own[mine] = self.densities.whitened_by(x[mine], c) * root[c]
            h = (own**2).sum(axis=1)
            a = gone * mass / left
            t = 1 - a * h
            distance = np.empty((len(x), len(root)))
            if self.options.tied:
                total = self.sums.n.sum()
                for c in range(len(root)):
                    apart = self.densities.whitened_by(x, c) * root[c]
                    if self.given is None and not self.sums.n[c]:
                        apart *= (total / (total - gone))[:, None]  # its mean is that of all
                    cross = (apart * own).sum(axis=1)
                    distance[:, c] = (apart**2).sum(axis=1) + a * cross**2 / t
            distance[every, y] = (mass / left) ** 2 * h / t
            # ln |Σ| before, which the scorer's level holds, and after.
            factor, dof = self._factors(y, gone)
            logs = np.log(np.where(found.kept, diagonal(self.densities.whiten), 1.0)).sum(axis=-1)
            level = logs + 0.5 * p * np.log(self.factor)
            level = level - 0.5 * (p * np.log(factor) + np.log(t)[:, None])
            result = level + log_shape(distance / factor, p, dof)
        certain = (left > 0) & (t >= LEAST_SHARE)
        if self.given is None:
            certain &= self.regular[y] & self._above(x, y, gone, factor)
            # Eigenvalues fall by no more than t, and correlations grow no larger than p.
            certain &= self.low[y] * t >= 2 * TOLERANCE * p
            certain &= without(self.sums.n[y], gone) > (
                0 if self.options.tied else self.options.ddof
            )
        return certain, result

    def _factors(self, y: NDArray[np.intp], gone: Floats) -> tuple[Floats, Floats | None]:
        """Return what makes scatters covariances without each row, and degrees of freedom."""
        every = np.arange(len(y))
        if self.given is None:
            rows = (1.0 / self.factor)[None] - gone[:, None]
            return 1.0 / np.where(rows > 0, rows, np.nan), None
        dof = np.asarray(self.densities.dof) - gone[:, None]
        mass = np.broadcast_to(self.mass, dof.shape).copy()
        mass[every, y] -= gone
        return (mass + 1) / (mass * dof), dof

    def _above(self, x: Floats, y: NDArray[np.intp], gone: Floats, factor: Floats) -> Any:
        """Return the rows without which no variance comes near a floor or loses its digits."""
        before, after = self._scatters(x, y, gone)
        kept = self.densities.found.kept
        every = np.arange(len(x))
        good = after * factor[every, y][:, None] >= self.bound
        good &= after >= LEAST_SHARE * before
        return (good | ~kept).all(axis=1)

    def _scatters(self, x: Floats, y: NDArray[np.intp], gone: Floats) -> tuple[Floats, Floats]:
        """Return the sums of squares that variances are made of, with each row and without it."""
        before = diagonal(self.sums.scatter)
        before = np.broadcast_to(before.sum(axis=0), before.shape) if self.options.tied else before
        n = self.sums.n[y]
        left = without(n, gone)
        apart = (x - self.sums.mean[y]) - self.sums.rest[y]
        share = np.divide(gone * n, left, out=np.zeros_like(n), where=left > 0)
        return before[y], before[y] - share[:, None] * apart**2

    def _few_digits(
        self, x: Floats, y: NDArray[np.intp], gone: Floats, certain: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_]:
        """Return the rows that hold nearly all of a scatter, so that rounding is what is left."""
        if self.given is not None:
            return ~(self._closed_form(x, y, gone)[0] if certain is None else certain)
        before, after = self._scatters(x, y, gone)
        lost = ((after < LEAST_SHARE * before) & (before > 0)).any(axis=1)
        return lost & ~self._single(without(self.sums.n[y], gone))

    def _single(self, left: Floats) -> NDArray[np.bool_]:
        """Return where one row is left, or none, which has no scatter."""
        return (left <= 0) if self.weighted else (left <= 1)

    def _sums_without(self, x: Floats, y: NDArray[np.intp], gone: Floats) -> GroupMoments:
        """Return the moments of all classes without each row, (n_rows, n_classes, ...)."""
        every, some = np.arange(len(x)), self.sums
        n, mean, rest, scatter = (np.broadcast_to(a, (len(x), *a.shape)).copy() for a in some)
        before = some.n[y]
        left = without(before, gone)
        apart = (x - some.mean[y]) - some.rest[y]
        moved = np.divide(gone, left, out=np.zeros_like(left), where=left > 0)[:, None]
        n[every, y] = left
        mean[every, y], rest[every, y] = two_sum(some.mean[y], some.rest[y] - moved * apart)
        less = (moved[:, 0] * before)[:, None, None] * apart[:, :, None] * apart[:, None, :]
        after = np.where(self._single(left)[:, None, None], 0.0, some.scatter[y] - less)
        flat = diagonal(after) <= 0
        scatter[every, y] = np.where(flat[:, :, None] | flat[:, None, :], 0.0, after)
        gone_all = left <= 0
        mean[every[gone_all], y[gone_all]] = rest[every[gone_all], y[gone_all]] = 0.0
        return GroupMoments(n, mean, rest, scatter)

    def _anew(self, x: Floats, sums: GroupMoments, only: NDArray[np.int64] | None = None) -> Floats:
        """Return log densities of rows by moments of their own, of some or all classes."""
        k, p = self.sums.mean.shape
        step = max(1, CHUNK // (k * p * p))
        found = []
        for lo in range(0, len(x), step):
            part = GroupMoments(*(a[lo : lo + step] for a in sums))
            found.append(log_densities(self._estimated(part, only), x[lo : lo + step]))
        return np.concatenate(found)

    def _estimated(self, sums: GroupMoments, only: NDArray[np.int64] | None) -> Normals:
        if self.given is None:
            return normals(sums, self.options, only)
        return predictive(sums, self.given, self.options)

    # -- rows that take all others -------------------------------------------------------------

    def ill_conditioned(self, batch: Batch) -> NDArray[np.int64]:
        """Return the positions of complete rows that hold nearly all of a scatter."""
        rows, found = rows_of(batch), [np.empty(0, np.int64)]
        gone = np.ones(batch.n_rows) if rows.gone is None else rows.gone
        for x, at in _complete(batch):
            found.append(at[self._few_digits(x, rows.y[at], gone[at])])
        return np.concatenate(found)

    def other_moments(self, batch: Batch) -> ClassScatter:
        """Return the moments of rows, none of them ill-conditioned."""
        scatter = ClassScatter(self.shape)
        scatter.update(batch)
        return scatter

    def resolved(self, batch: Batch, others: ClassScatter) -> LooScorer:
        """Return what scores all ill-conditioned rows, given the moments of the others."""
        better = copy(self)
        better.others = others
        return better

    def _told(self, rows: LooRows, others: ClassScatter) -> GroupMoments:
        """Return the moments without each of the ill-conditioned rows, all others added up."""
        batch, found = rows.batch, []
        weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
        for r in range(batch.n_rows):
            w = weight.copy()
            w[r] = max(w[r] - 1.0, 0.0)
            more = ClassScatter(self.shape)
            some = taken(batch, np.flatnonzero(w))
            more.update(replace(some, weight=w[w > 0]))
            total = others + more
            found.append(GroupMoments(total.count, total.mean, total.rest, total.scatter))
        return GroupMoments(*(np.stack(parts) for parts in zip(*found, strict=True)))


def _complete(batch: Batch) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
    """Yield rows without missing values, (n, p), and where they stand: what lacks one was left out.

    Some at a time: all that is made of them is of their size.
    """
    step = max(1, CHUNK // max(1, len(batch.numeric)))
    for lo in range(0, batch.n_rows, step):
        x = np.stack([column[lo : lo + step] for column in batch.numeric], axis=1)
        known = np.flatnonzero(~np.isnan(x).any(axis=1))
        if len(known):
            yield x[known], lo + known


def _at(rows: LooRows, at: NDArray[np.int64]) -> LooRows:
    gone = None if rows.gone is None else rows.gone[at]
    return LooRows(rows.batch, rows.y[at], gone)


class LooSpheres(LooGaussians):
    """One variance per class, by the moments without each row: densities are estimated anew."""

    def _spread(self, *moments: Floats) -> Spread:
        options = {name: self.options[name] for name in ("names", "ddof", "var_floor")}
        return spherical(*moments, **options)


def loo_gaussian_bayes(model: Any) -> LooScorer:
    """Return what scores rows by a fitted `GaussianBayes` without them."""
    check_apart(model)
    if model.covariance in ("full", "tied"):
        return LooQuadratic(model)
    # Columns that are independent within a class: naive Bayes, whose prior is not smoothed.
    options = {"ddof": model.ddof, "var_floor": model.var_floor}
    variance = "per_class" if model.covariance == "diagonal" else "shared"
    prior = "empirical" if model.class_prior is None else model.class_prior
    naive = NaiveBayes(class_prior=prior, variance=variance, **options)
    found = LooNaive(naive.fit_statistics(model.statistics_))
    if model.covariance == "spherical":
        stats = model.statistics_
        given = {"weighted": stats.values.weighted, "names": stats.schema.names, **options}
        found.gaussians = LooSpheres(stats.moments, variance="shared", **given)
        found.pooled = found.gaussians
    return found


def check_apart(model: Any) -> None:
    """Raise SchemaError where the rows of a `GaussianBayes` cannot be taken out one by one."""
    if model.shrinkage is not None:
        raise SchemaError(
            "leave_one_out does not take rows out of a covariance that is shrunk: no closed form "
            "is known; use k_fold, shrinkage=None or prior='niw'"
        )
    if model.missing == "impute_mean":
        raise SchemaError(
            "missing='impute_mean' fills in what other rows say: leave_one_out does not take that "
            "back; use k_fold, or missing='marginalize'"
        )
