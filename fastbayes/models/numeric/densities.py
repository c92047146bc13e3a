"""Densities of classes that have a mean and a covariance: scored, taken apart, drawn from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.numeric.covariance import Normals, diagonal, whitening

# Log densities of the known coordinates: mean, rest, whiten, level, dof.
Parameters = tuple[Floats, Floats, Floats, Floats, Floats | None]
LOG_2_PI = math.log(2 * math.pi)
LARGEST = float(np.finfo(np.float64).max)


def log_gamma(x: Floats) -> Floats:
    """Return ln Γ(x)."""
    values, where = np.unique(np.asarray(x, dtype=np.float64), return_inverse=True)
    return np.array([math.lgamma(v) for v in values.tolist()])[where.reshape(np.shape(x))]


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

    distance  Squared, from the mean.
    p         Number of coordinates.
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

    found  What was estimated.

    Attributes
    ----------
    whiten  (n_classes or 1, p, p) lower triangular W; a row of 0 for a feature that is not kept.
    level   (n_classes,) nats.
    """

    def __init__(self, found: Normals) -> None:
        self.found = found
        self.mean, self.rest, self.dof = found.mean, found.rest, found.dof
        self.whiten = whitening(found)
        self.level = self._levels()[:, -1] if len(found.kept) else np.zeros(len(found.mean))

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

    def of(self, known: NDArray[np.bool_]) -> ClassDensities:
        """Return the exact marginal densities of some of the features."""
        f = self.found
        some = f._replace(
            mean=f.mean[:, known],
            rest=f.rest[:, known],
            deviation=f.deviation[:, known],
            correlation=f.correlation[:, known][:, :, known],
            kept=f.kept[known],
            floored=f.floored[:, known],
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
        known = ~np.isnan(x)
        patterns, which = np.unique(known, axis=0, return_inverse=True)
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

    def drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> Floats:
        """Return a random row for each class code, (n_rows, p)."""
        f = self.found
        factor = np.linalg.cholesky(f.correlation)
        scale = np.where(f.kept, f.deviation, 0.0)
        normal = random.standard_normal((len(codes), f.mean.shape[1]))
        if self.dof is not None:
            dof = self.dof[codes]
            normal /= np.sqrt(random.chisquare(dof) / dof)[:, None]
        result = np.empty_like(normal)
        for c in range(len(f.mean)):
            here, g = codes == c, c % len(factor)
            turned = (normal[here] @ factor[g].T) * scale[c % len(scale)]
            result[here] = f.mean[c] + (f.rest[c] + turned)
        return result
