"""Covariances of classes: estimated, made regular where singular; densities with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError
from fastbayes.kernels.shared.moments import two_sum
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import Spread, check_finite, spread_of
from fastbayes.statistics.class_moments import GroupMoments

# A correlation matrix is singular where its smallest eigenvalue is below this share of the largest.
TOLERANCE = 1e-9
# Rows that a singular covariance takes from that within all classes.
POOLED_ROWS = 10.0
# Triangular matrices up to so large are inverted row by row.
FEW_COLUMNS = 48
# Numbers in the matrices that are inverted at a time.
CHUNK = 1 << 20


class CovarianceRule(NamedTuple):
    """How covariances are estimated: parameters of `GaussianBayes`, with names for messages.

    tied       whether the classes share one covariance
    ddof       0 or 1
    shrinkage  None, a share, or "auto"
    singular   "pool", "shrink", "diagonal" or "error"
    var_floor  least variance of a feature, as a share of its overall variance
    names      of the features
    labels     of the classes
    """

    tied: bool
    ddof: int
    shrinkage: float | str | None
    singular: str
    var_floor: float
    names: Sequence[str]
    labels: Sequence[Any]


class Normals(NamedTuple):
    """Normal densities, or Student's t, of the classes; g is n_classes, or 1 where they share.

    mean         (..., n_classes, p)
    rest         (..., n_classes, p) what rounding took from the mean
    deviation    (..., g, p) square roots of the diagonal, 1 where a feature is not kept
    correlation  (..., g, p, p) with a row of the identity for a feature that is not kept
    kept         (..., p) features that vary within some class; the others have factor 1
    dof          (..., n_classes) degrees of freedom, None for normal densities
    shrinkage    (..., g) share of the identity in the correlations
    singular     (..., g) where something had to be done about them
    floored      (..., g, p) where a variance was raised
    """

    mean: Floats
    rest: Floats
    deviation: Floats
    correlation: Floats
    kept: NDArray[np.bool_]
    dof: Floats | None
    shrinkage: Floats
    singular: NDArray[np.bool_]
    floored: NDArray[np.bool_]


class Centre(NamedTuple):
    """The mean of all rows, (..., p), what rounding took from it, and the classes' means from it.

    mean, rest  (..., p)
    apart       (..., n_classes, p)
    """

    mean: Floats
    rest: Floats
    apart: Floats


def normals(
    sums: GroupMoments, rule: CovarianceRule, only: NDArray[np.int64] | None = None
) -> Normals:
    """Return the densities of maximum likelihood, or unbiased, with what was done to get them.

    only  Positions of the classes whose densities are wanted, where they have covariances of their
          own; None: all.

    Raises DataError when squares of the values overflow, a variance is 0 and there is no floor, or
    a covariance is singular and may not be.
    """
    n, total = sums.n, sums.n.sum(axis=-1)
    centre = centre_of(sums)
    within, overall = spreads(sums, centre, rule.names)
    kept = diagonal(within) > 0
    freedom = (total - rule.ddof * (n > 0).sum(axis=-1))[..., None, None]
    pooled = np.divide(within, freedom, out=np.zeros_like(within), where=freedom > 0)[
        ..., None, :, :
    ]
    if only is not None:
        n = n[..., only]
        sums = GroupMoments(
            n, sums.mean[..., only, :], sums.rest[..., only, :], sums.scatter[..., only, :, :]
        )
        rule = rule._replace(labels=[rule.labels[c] for c in only.tolist()])
    if rule.tied:
        used, rows = pooled, total[..., None]
    else:
        own = n > rule.ddof
        left = np.where(own, n - rule.ddof, 1.0)[..., None, None]
        used = np.where(own[..., None, None], sums.scatter / left, pooled)
        rows = np.where(own, n, total[..., None])
    here, floor = kept[..., None, :], rule.var_floor * overall[..., None, :]
    drawn = np.zeros(rows.shape, np.bool_)
    if rule.singular == "pool" and not rule.tied:
        drawn = own & without_inverse(used, here, floor, correlated=rule.shrinkage is None)
        rows = np.where(drawn, n + POOLED_ROWS, rows)
        merged = (sums.scatter + POOLED_ROWS * pooled) / (n + POOLED_ROWS)[..., None, None]
        used = np.where(drawn[..., None, None], merged, used)
    variance = diagonal(used)
    floored = (variance < floor) & here
    variance = np.where(here, np.where(floored, floor, variance), 1.0)
    if (flat := ~(variance > 0)).any():
        *_, group, feature = np.argwhere(flat)[0].tolist()
        raise DataError(
            f"column {rule.names[feature]!r} has variance 0 in {named(group, rule)} and "
            f"var_floor={rule.var_floor}; raise var_floor or leave the column out"
        )
    deviation = np.sqrt(variance)
    correlation = correlations(used, deviation, here)
    p = kept.sum(axis=-1)[..., None]
    share = np.zeros(rows.shape)
    if rule.shrinkage is not None:
        auto = rule.shrinkage == "auto"
        share = oas(correlation, rows, p) if auto else share + float(rule.shrinkage)
        correlation = shrunk(correlation, share)
    correlation, share, singular = regular(correlation, share, rows, p, rule)
    singular = singular | drawn
    some = n[..., None] > 0
    mean = np.where(some, sums.mean, centre.mean[..., None, :])
    rest = np.where(some, sums.rest, centre.rest[..., None, :])
    return Normals(mean, rest, deviation, correlation, kept, None, share, singular, floored)


def without_inverse(
    covariance: Floats, kept: NDArray[np.bool_], floor: Floats, *, correlated: bool
) -> NDArray[np.bool_]:
    """Return which covariances have a variance below a floor or, if asked, are singular, (..., g).

    covariance  (..., g, p, p)
    kept        (..., 1, p)
    floor       (..., 1, p)
    """
    low = np.asarray(((diagonal(covariance) < floor) & kept).any(axis=-1))
    correlation = standardised(covariance, kept)[1]
    if not correlated or surely_regular(correlation, TOLERANCE):
        return low
    values = np.linalg.eigvalsh(correlation)
    return np.asarray(low | (values[..., 0] < TOLERANCE * values[..., -1]))


def centre_of(sums: GroupMoments) -> Centre:
    """Return the mean of all rows, from that of the largest class, which keeps all digits."""
    n, total = sums.n, sums.n.sum(axis=-1)[..., None]
    largest = n.argmax(axis=-1)[..., None, None]
    mean, rest = (np.take_along_axis(part, largest, axis=-2) for part in (sums.mean, sums.rest))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = (sums.mean - mean) + (sums.rest - rest)
        weighted = (n[..., None] * apart).sum(axis=-2)
        offset = np.divide(weighted, total, out=np.zeros_like(weighted), where=total > 0)
        return Centre(
            *two_sum(mean[..., 0, :], rest[..., 0, :] + offset), apart - offset[..., None, :]
        )


def spreads(sums: GroupMoments, centre: Centre, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Return the scatter within the classes, (..., p, p), and the variance of all rows, (..., p).

    Raises DataError when squares of the values overflow.
    """
    n, total = sums.n, sums.n.sum(axis=-1)[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        within = sums.scatter.sum(axis=-3)
        between = (n[..., None] * centre.apart**2).sum(axis=-2)
        every = diagonal(within) + between
    check_finite(every, names)
    return within, np.divide(every, total, out=np.zeros_like(every), where=total > 0)


def diagonal(matrix: Floats) -> Floats:
    """Return the diagonals of matrices, (..., p)."""
    return np.diagonal(matrix, axis1=-2, axis2=-1)


def correlations(covariance: Floats, deviation: Floats, kept: NDArray[np.bool_]) -> Floats:
    """Return covariances in units of deviations, and of the identity what is not kept."""
    result = covariance / deviation[..., :, None] / deviation[..., None, :]
    return with_ones(np.where(kept[..., :, None] & kept[..., None, :], result, 0.0))


def standardised(covariance: Floats, kept: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return deviations, 1 of a feature that is not kept, and correlations of (..., p, p)."""
    here = np.broadcast_to(kept, covariance.shape[:-1])
    least = np.finfo(np.float64).tiny
    deviation = np.sqrt(np.where(here, np.maximum(diagonal(covariance), least), 1.0))
    return deviation, correlations(covariance, deviation, here)


def normals_of(mean: Floats, rest: Floats, covariance: Floats, kept: NDArray[np.bool_]) -> Normals:
    """Return normal densities of given covariances, (n, p, p), none of them singular."""
    return standard_normals(mean, rest, *standardised(covariance, kept), kept)


def standard_normals(
    mean: Floats, rest: Floats, deviation: Floats, correlation: Floats, kept: NDArray[np.bool_]
) -> Normals:
    """Return normal densities of given deviations, (n, p), and correlations, none singular."""
    n = len(mean)
    nothing_done = np.zeros(n), np.zeros(n, np.bool_), np.zeros(mean.shape, np.bool_)
    return Normals(mean, rest, deviation, correlation, kept, None, *nothing_done)


def with_ones(matrix: Floats) -> Floats:
    """Return matrices whose diagonal is 1; they are changed."""
    every = np.arange(matrix.shape[-1])
    matrix[..., every, every] = 1.0
    return matrix


def shrunk(correlation: Floats, share: Floats) -> Floats:
    """Return (1 - share) R + share I."""
    return with_ones(correlation * (1.0 - share)[..., None, None])


def oas(correlation: Floats, n: Floats, p: NDArray[np.int64]) -> Floats:
    """Return the share of the identity that approximates the least expected squared error.

    correlation  (..., g, p, p), features that are not kept having a row of the identity.
    n            (..., g) rows.
    p            (..., 1) features that are kept.

    References
    ----------
    Chen, Wiesel, Eldar, Hero (2010), Shrinkage algorithms for MMSE covariance estimation, IEEE
    Transactions on Signal Processing 58, eq. 23, with the correlations as S: tr(S) = p.
    """
    size = correlation.shape[-1]
    squares = (correlation**2).sum(axis=(-2, -1)) - (size - p)
    above = (1 - 2 / np.maximum(p, 1)) * squares + p**2
    below = (n + 1 - 2 / np.maximum(p, 1)) * (squares - p)
    # Without any correlation there is nothing that the identity could take away.
    share = np.divide(above, below, out=np.ones_like(below), where=below > 0)
    return np.asarray(np.minimum(share, 1.0))


def regular(
    correlation: Floats,
    share: Floats,
    n: Floats,
    p: NDArray[np.int64],
    rule: CovarianceRule,
    tolerance: float = TOLERANCE,
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return correlations none of which is singular, their shrinkage, and which were.

    Raises DataError when one is, and the rule has it so.
    """
    if surely_regular(correlation, tolerance):
        return correlation, share, np.zeros(share.shape, np.bool_)
    values = np.linalg.eigvalsh(correlation)
    low, high = values[..., 0], values[..., -1]
    singular = low < tolerance * high
    if not singular.any():
        return correlation, share, singular
    if rule.singular == "error":
        *_, group = np.argwhere(singular)[0].tolist()
        raise DataError(
            f"the covariance of {named(group, rule)} is singular: it has "
            f"{n.reshape(-1, n.shape[-1])[0, group]:,.10g} rows, or columns that depend on each "
            "other; use singular='shrink', 'pool' or 'diagonal', prior='niw', or leave columns out"
        )
    more = np.ones_like(share)
    if rule.singular != "diagonal":
        # Twice the tolerance, so that rounding does not bring it back.
        lack = 2 * tolerance * high - low
        more = np.maximum(oas(correlation, n, p), lack / (lack + 1 - 2 * tolerance))
    more = np.where(singular, more, 0.0)
    return shrunk(correlation, more), 1 - (1 - share) * (1 - more), singular


def named(group: int, rule: CovarianceRule) -> str:
    """Return the words for a group of rows that has one covariance."""
    return "all classes together" if rule.tied else f"class {rule.labels[group]!r}"


def inverse_factor(correlation: Floats) -> Floats:
    """Return the inverses of the lower Cholesky factors of matrices, lower triangular too.

    Raises numpy.linalg.LinAlgError when a matrix has none.
    """
    return _inverse(np.asarray(np.linalg.cholesky(correlation), np.float64))


def _inverse(factor: Floats) -> Floats:
    """Return the inverses of lower triangular matrices, halves of large ones put together."""
    p, result = factor.shape[-1], np.zeros_like(factor)
    if p > FEW_COLUMNS:
        half = p // 2
        upper, lower = _inverse(factor[..., :half, :half]), _inverse(factor[..., half:, half:])
        result[..., :half, :half], result[..., half:, half:] = upper, lower
        result[..., half:, :half] = -lower @ (factor[..., half:, :half] @ upper)
        return result
    for i in range(p):
        row = factor[..., i, None, :i] @ result[..., :i, :i]
        result[..., i, :i] = -row[..., 0, :] / factor[..., i, i, None]
        result[..., i, i] = 1.0 / factor[..., i, i]
    return result


def surely_regular(correlation: Floats, tolerance: float) -> bool:
    """Return whether no matrix can be singular, by bounds that take no eigenvalues.

    The smallest is at least one over the trace of the inverse, the largest at most a sum of
    absolute values.
    """
    try:
        low = least_eigenvalue(correlation)
    except np.linalg.LinAlgError:
        return False
    return bool((low >= tolerance * np.abs(correlation).sum(axis=-1).max(axis=-1)).all())


def least_eigenvalue(correlation: Floats) -> Floats:
    """Return a number that is positive, and that no eigenvalue is below, (..., g).

    Raises numpy.linalg.LinAlgError when there is none.
    """
    return np.asarray(1.0 / (inverse_factor(correlation) ** 2).sum(axis=(-2, -1)))


def whitening(found: Normals) -> Floats:
    """Return lower triangular W with W Σ Wᵀ = I, (..., g, p, p); no row for what is not kept."""
    inverse = inverse_factor(found.correlation)
    return np.where(found.kept[..., None, :, None], inverse, 0.0) / found.deviation[..., None, :]


def spherical(
    n: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
    *,
    names: Sequence[str],
    ddof: int,
    var_floor: float,
) -> Spread:
    """Return normal densities with one variance per class, of moments (..., p, n_classes).

    It is the scatter of all features by all their numbers that are known: a feature of many missing
    values says less. Features are left out that are constant within every class.
    """
    every = spread_of(
        n, mean, rest, scatter, names=names, ddof=ddof, variance="per_class", var_floor=1.0
    )
    kept = ~every.constant[..., None]
    own = np.where(kept & (n > ddof), n - ddof, 0.0).sum(axis=-2)
    within = np.where(kept & (n > ddof), scatter, 0.0).sum(axis=-2)
    # A class without numbers has the variance within all classes.
    freedom = np.where(kept, n - ddof * (n > 0), 0.0).sum(axis=(-2, -1))[..., None]
    whole = np.where(kept, scatter, 0.0).sum(axis=(-2, -1))[..., None]
    shared = np.divide(whole, freedom, out=np.zeros_like(whole), where=freedom > 0)
    variance = np.where(own > 0, within / np.where(own > 0, own, 1.0), shared)
    size = np.maximum(kept.sum(axis=-2), 1)
    # A floor of 1 is the variance of all rows.
    floor = var_floor * np.where(kept, every.floor[..., None], 0.0).sum(axis=-2) / size
    low = variance < floor
    used = np.where(low, floor, variance)[..., None, :]
    if (flat := kept & ~(used > 0)).any():
        raise DataError(
            f"all columns, {names[int(np.argwhere(flat)[0][-2])]!r} too, have variance 0 in a "
            f"class and var_floor={var_floor}; raise var_floor"
        )
    used = np.broadcast_to(used, n.shape)
    with np.errstate(divide="ignore"):
        half = np.where(kept, 0.5 / used, 0.0)
        level = np.where(kept, -0.5 * np.log(2 * math.pi * used), 0.0)
    gaussians = every.gaussians._replace(half_precision=half, constant=level)
    floored = np.broadcast_to(low[..., None, :], n.shape) & kept
    return Spread(gaussians, used, floored, every.constant, every.floor * var_floor)


# Log densities of the known coordinates: mean, rest, whiten, level, dof.
Parameters = tuple[Floats, Floats, Floats, Floats, Floats | None]
LOG_2_PI = math.log(2 * math.pi)
LARGEST = float(np.finfo(np.float64).max)
# Numbers of which it takes longer to find equal ones than to take ln Γ of each.
FEW = 64


def log_gamma(x: Floats) -> Floats:
    """Return ln Γ(x)."""
    of = np.asarray(x, dtype=np.float64)
    if of.size <= FEW:
        return np.array([math.lgamma(v) for v in of.ravel().tolist()]).reshape(of.shape)
    values, where = np.unique(of, return_inverse=True)  # of many, most are equal
    return np.array([math.lgamma(v) for v in values.tolist()])[where.reshape(of.shape)]


def log_densities(found: Normals, x: Floats) -> Floats:
    """Return ln f(x_r | c) of each row by densities of its own, (n_rows, n_classes).

    found  The first axis is that of the rows.
    x      (n_rows, p) without NaN.
    """
    whiten = whitening(found)
    apart = (x[:, None] - found.mean) - found.rest
    distance = ((whiten @ apart[..., None])[..., 0] ** 2).sum(axis=-1)
    kept = found.kept[:, None]
    logs = np.log(np.where(kept, diagonal(whiten), 1.0)).sum(axis=-1)
    return logs + log_shape(distance, kept.sum(axis=-1), found.dof)


def log_shape(distance: Floats, p: Any, dof: Floats | None, logs: Floats | None = None) -> Floats:
    """Return the log density of p coordinates of covariance, or scale, I by squared distance.

    dof       Degrees of freedom of Student's t; None: normal.
    logs      Of Student's t: logarithms of the squared distances, where these overflow.
    """
    if dof is None:
        return np.asarray(-0.5 * p * LOG_2_PI - 0.5 * distance)
    gammas = log_gamma((dof + p) / 2) - log_gamma(dof / 2)
    shape = gammas - 0.5 * p * np.log(dof * math.pi)
    far = np.log1p(distance / dof) if logs is None else np.logaddexp(0.0, logs - np.log(dof))
    return np.asarray(shape - 0.5 * (dof + p) * far)


class ClassDensities:
    """Normal densities, or Student's t, of the classes: ln f(x) = level - |W (x - mean)|²/2.

    Or level - (dof + p)/2 ln(1 + |W (x - mean)|²/dof).

    whiten  (n_classes or 1, p, p) lower triangular W; a row of 0 for a feature that is not kept.
    level   (n_classes,) nats.
    """

    def __init__(self, found: Normals) -> None:
        self.found = found
        self.mean, self.rest, self.dof = found.mean, found.rest, found.dof
        # Some at a time: there may be one for each cell of a table.
        step = max(1, CHUNK // max(1, found.correlation.shape[-1]) ** 2)
        if len(found.correlation) <= step:
            self.whiten = whitening(found)
        else:
            self.whiten = np.empty_like(found.correlation)
            for low in range(0, len(self.whiten), step):
                some = slice(low, low + step)
                deviation, correlation = found.deviation[some], found.correlation[some]
                self.whiten[some] = whitening(
                    found._replace(deviation=deviation, correlation=correlation)
                )
        self.level = self._levels()[:, -1] if len(found.kept) else np.zeros(len(found.mean))

    @classmethod
    def room(cls, n: int, kept: NDArray[np.bool_], *, student: bool) -> ClassDensities:
        """Return room for n densities, of which none is there yet."""
        self, p = cls.__new__(cls), len(kept)
        mean, rest, deviation = (np.empty((n, p)) for _ in range(3))
        found = standard_normals(mean, rest, deviation, np.empty((n, p, p)), kept)
        self.found = found._replace(dof=np.empty(n) if student else None)
        self.mean, self.rest, self.dof = mean, rest, self.found.dof
        self.whiten, self.level = np.empty((n, p, p)), np.empty(n)
        return self

    def put(self, places: NDArray[np.int64], made: ClassDensities) -> None:
        """Put normal densities, or Student's t, of as many features in some places."""
        for mine, theirs in zip(self._arrays, made._arrays, strict=True):
            mine[places] = theirs

    @property
    def _arrays(self) -> tuple[Floats, ...]:
        f = self.found
        dof = () if self.dof is None else (self.dof,)
        return self.mean, self.rest, f.deviation, f.correlation, self.whiten, self.level, *dof

    def _levels(self, distance: Floats | float = 0.0, logs: Floats | None = None) -> Floats:
        """Return ln f of the first 1, 2, ... features, by their squared distances (..., p).

        Or by the logarithms of these.
        """
        kept = self.found.kept
        roots = np.log(np.where(kept, diagonal(self.whiten), 1.0)).cumsum(axis=-1)
        dof = None if self.dof is None else self.dof[:, None]
        shape = log_shape(np.asarray(distance), np.cumsum(kept), dof, logs)
        return np.asarray(np.broadcast_to(roots, self.mean.shape) + shape)

    @property
    def parameters(self) -> Parameters:
        """What a scorer of rows without missing values takes."""
        return self.mean, self.rest, self.whiten, self.level, self.dof

    def of(self, known: NDArray[np.bool_], which: Any = slice(None)) -> ClassDensities:
        """Return the exact marginal densities of some of the features, of all or some classes."""
        f = self.found
        some = f._replace(
            mean=f.mean[which][:, known],
            rest=f.rest[which][:, known],
            deviation=f.deviation[which][:, known],
            correlation=f.correlation[which][:, known][:, :, known],
            kept=f.kept[known],
            floored=f.floored[which][:, known],
            dof=None if f.dof is None else f.dof[which],
        )
        return ClassDensities(some)

    def marginal(self, known: NDArray[np.bool_]) -> Parameters:
        """Return the parameters of the known coordinates, which may be none."""
        return self.of(known).parameters

    def scorer(self, module: Any, log_prior: Floats) -> Any:
        """Return what scores rows, from a module of scorers."""
        return module.QuadraticScorer(log_prior, *self.parameters, self.marginal)

    def whitened(self, x: Floats) -> Floats:
        """Return W (x - mean), (n_rows, n_classes, p), of (n_rows, p) rows without NaN."""
        return np.stack([self.whitened_by(x, c) for c in range(len(self.mean))], axis=1)

    def whitened_by(self, x: Floats, c: int) -> Floats:
        """Return W (x - mean) of class c, (n_rows, p)."""
        with np.errstate(over="ignore"):
            apart = (x - self.mean[c]) - self.rest[c]
        return np.asarray(apart @ self.whiten[c % len(self.whiten)].T)

    def terms(self, x: Floats, out: Floats) -> None:
        """Write ln f(x_j | x_1 ... x_j-1, c) into `out`, (n_rows, p, n_classes).

        Of the known coordinates alone; 0 for those that are missing. They add up to ln f(x | c).

        x  (n_rows, p), NaN where missing.
        """
        patterns, which = np.unique(~np.isnan(x), axis=0, return_inverse=True)
        out[:] = 0.0
        for i, pattern in enumerate(patterns):
            rows, here = np.flatnonzero(which.ravel() == i), np.flatnonzero(pattern)
            if len(here):
                some = self if pattern.all() else self.of(pattern)
                terms = some._sequential(x[rows][:, here])
                out[rows[:, None], here] = terms.transpose(0, 2, 1)

    def _sequential(self, x: Floats) -> Floats:
        """Return the terms of rows without NaN, (n_rows, n_classes, p)."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.nan_to_num(self.whitened(x), nan=LARGEST)
            squares = z**2
        # So far away that squares overflow: finite, whatever the number of columns.
        least = -LARGEST / (2 * x.shape[1])
        if self.dof is None:
            terms = np.diff(self._levels(), axis=-1, prepend=0.0) - 0.5 * squares
            return np.asarray(np.maximum(terms, least))
        # W of the first features is the first rows and columns of W: so are their densities.
        with np.errstate(over="ignore"):
            distance = squares.cumsum(axis=-1)
        joint = self._levels(distance)
        if not np.isfinite(distance).all():
            with np.errstate(divide="ignore"):
                joint = self._levels(logs=np.logaddexp.accumulate(2 * np.log(np.abs(z)), axis=-1))
        return np.diff(joint, axis=-1, prepend=0.0)

    def covariance(self) -> Floats:
        """Return Σ, or of Student's t the scale matrix, (n_classes or 1, p, p)."""
        f = self.found
        scale = np.where(f.kept, f.deviation, 0.0)
        return np.asarray(scale[..., :, None] * f.correlation * scale[..., None, :])

    def drawn(
        self, codes: NDArray[np.intp], random: np.random.Generator, *, cells: bool = False
    ) -> Floats:
        """Return a random row for each class code, (n_rows, p).

        With `cells` factors are scaled first, by which a seed gives a JointGaussian the same bits.
        """
        f = self.found
        normal = random.standard_normal((len(codes), f.mean.shape[1]))
        if self.dof is not None:
            dof = self.dof[codes]
            normal /= np.sqrt(random.chisquare(dof) / dof)[:, None]
        result, order = np.empty_like(normal), np.argsort(codes, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            if len(rows):
                c, g = codes[rows[0]], codes[rows[0]] % len(f.correlation)
                scale = np.where(f.kept, f.deviation[g], 0.0)
                factor = np.linalg.cholesky(f.correlation[g])
                if cells:
                    turned = normal[rows] @ (factor * scale[:, None]).T
                else:
                    turned = (normal[rows] @ factor.T) * scale
                result[rows] = f.mean[c] + (f.rest[c] + turned)
        return result
