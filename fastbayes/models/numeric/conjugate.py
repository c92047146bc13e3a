"""Means and covariances as random variables: normal-inverse-Wishart prior, Student-t densities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastbayes.core.numbers import is_number
from fastbayes.kernels.shared.moments import two_sum
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.numeric.covariance import (
    CovarianceRule,
    Normals,
    centre_of,
    correlations,
    diagonal,
    regular,
    spreads,
)
from fastbayes.statistics.class_moments import GroupMoments

# Rows that the mean of the prior is worth (Fraley, Raftery 2007).
KAPPA = 0.01
KEYS = ("mean", "kappa", "nu", "scale")


class NormalInverseWishart(NamedTuple):
    """A normal-inverse-Wishart distribution: μ ~ N(mean, Σ/kappa), Σ ~ IW(nu, scale).

    mean   (p,)
    rest   (p,) what rounding took from the mean
    kappa  rows that the mean is worth
    nu     degrees of freedom
    scale  (p, p); a diagonal entry of 0 leaves the feature out
    """

    mean: Floats
    rest: Floats
    kappa: float
    nu: float
    scale: Floats


class ColumnSpreads(NamedTuple):
    """What rows say of each column by itself, each by those that know it, (p,).

    n        rows
    mean     of all of them
    rest     what rounding took from the mean
    within   sum of squared deviations from the mean of the class
    between  sum of squared deviations of these from the mean
    """

    n: Floats
    mean: Floats
    rest: Floats
    within: Floats
    between: Floats

    @classmethod
    def of(cls, n: Floats, mean: Floats, rest: Floats, scatter: Floats) -> ColumnSpreads:
        """Return those that moments of the classes, (p, n_classes) each, tell."""
        sums = GroupMoments(n, mean[..., None], rest[..., None], scatter[..., None, None])
        centre = centre_of(sums)
        with np.errstate(over="ignore", invalid="ignore"):
            within = scatter.sum(axis=1)
            between = (n * centre.apart[..., 0] ** 2).sum(axis=1)
        return cls(n.sum(axis=1), centre.mean[:, 0], centre.rest[:, 0], within, between)

    @property
    def pooled(self) -> Floats:
        """The variance within the classes; 0 for a column that says nothing."""
        return self.within / np.where(self.n > 0, self.n, 1.0)

    @property
    def variance(self) -> Floats:
        """The variance of all rows."""
        return (self.within + self.between) / np.where(self.n > 0, self.n, 1.0)


def check_prior(_: str, given: Any) -> None:
    """Raise ValueError where a parameter `prior` is not one."""
    if given is None or (isinstance(given, str) and given == "niw"):
        return
    if not isinstance(given, Mapping):
        raise ValueError(f"prior={given!r}: use None, 'niw' or a mapping of some of {KEYS}")
    if unknown := sorted(set(map(str, given)) - set(KEYS)):
        raise ValueError(f"prior: there is no {unknown[0]!r}; it may hold {KEYS}")
    kappa = given.get("kappa", KAPPA)
    if not (is_number(kappa) and 0 < kappa < math.inf):
        raise ValueError(f"prior: kappa={kappa!r}; use a finite number > 0")


def prior_of(given: Any, sums: GroupMoments, rule: CovarianceRule) -> NormalInverseWishart:
    """Return the prior that a parameter stands for, what it leaves open taken from the rows.

    given  "niw", or a mapping with some of mean (p,), kappa, nu and scale, (p, p) or its diagonal.
    sums   Of the rows: by default the mean is that of all rows, kappa is 0.01, nu is p + 2 and the
           scale the diagonal of the pooled covariance, which then is the expectation of Σ.
    rule   Names of the features, and the divisor of the pooled variances.

    Raises ValueError when a part does not fit the features, or no distribution has it.
    """
    found: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    size, centre = len(rule.names), centre_of(sums)
    within, _ = spreads(sums, centre, rule.names)
    mean, rest = centre.mean, centre.rest
    if found.get("mean") is not None:
        mean, rest = _array("mean", found["mean"], (size,)), np.zeros(size)
    if found.get("scale") is None:
        scale = np.diag(diagonal(within) / sums.n.sum())
    else:
        wide = np.ndim(found["scale"]) == 2
        scale = _array("scale", found["scale"], (size, size) if wide else (size,))
        scale = scale if wide else np.diag(scale)
        _check_scale(scale)
    p = int((diagonal(scale) > 0).sum())
    nu = p + 2 if found.get("nu") is None else found["nu"]
    if not (is_number(nu) and p - 1 < nu < math.inf):
        raise ValueError(f"prior: nu={nu!r}; use a finite number > {p - 1}, the features less 1")
    return NormalInverseWishart(mean, rest, float(found.get("kappa", KAPPA)), float(nu), scale)


def _array(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    result = np.asarray(value, dtype=np.float64)
    if result.shape != shape or not np.isfinite(result).all():
        raise ValueError(f"prior: {name} is of shape {result.shape}; give {shape} finite numbers")
    return result


def _check_scale(scale: Floats) -> None:
    """Raise ValueError where a scale is not valid; 0 in a row and a column leaves a feature out."""
    kept = scale.any(axis=0) | scale.any(axis=1)
    some = scale[kept][:, kept]
    root = np.sqrt(np.abs(diagonal(some)))
    positive = bool((diagonal(some) > 0).all()) and np.allclose(some / root, some.T / root)
    if not (positive and np.linalg.eigvalsh(some / root / root[:, None]).min(initial=1.0) > 0):
        raise ValueError("prior: scale is not symmetric and positive definite")


def predictive(sums: GroupMoments, prior: NormalInverseWishart, rule: CovarianceRule) -> Normals:
    """Return the densities of a new row of each class, its mean and covariance integrated out.

    prior  Of each class's mean and covariance, or of the one that they share.

    With kappa_n = kappa + n, nu_n = nu + n, and scale_n = scale + S + kappa n/kappa_n (x̄ - mean)
    (x̄ - mean)ᵀ, Student's t with nu_n - p + 1 degrees of freedom about (kappa mean + n x̄)/kappa_n,
    of scale (kappa_n + 1)/(kappa_n (nu_n - p + 1)) scale_n. Where the classes share a covariance,
    nu_n and scale_n take the rows of all of them.

    References
    ----------
    Geisser (1964), Posterior odds for multivariate normal classifications, Journal of the Royal
    Statistical Society B 26. Murphy (2007), Conjugate Bayesian analysis of the Gaussian
    distribution, section 9.
    """
    n = sums.n
    kept = np.broadcast_to(diagonal(prior.scale) > 0, n.shape[:-1] + prior.mean.shape)
    p, kappa = int((diagonal(prior.scale) > 0).sum()), prior.kappa + n
    some = n[..., None] > 0
    apart = np.where(some, (sums.mean - prior.mean) + (sums.rest - prior.rest), 0.0)
    share = (prior.kappa * n / kappa)[..., None, None]
    scatter = sums.scatter + share * apart[..., :, None] * apart[..., None, :]
    rows = n
    if rule.tied:
        scatter, rows = scatter.sum(axis=-3, keepdims=True), n.sum(axis=-1, keepdims=True)
    scale, here = prior.scale + scatter, kept[..., None, :]
    dof = np.broadcast_to(prior.nu + rows - p + 1, n.shape)
    deviation = np.where(here, np.sqrt(np.abs(diagonal(scale))), 1.0)
    correlation = correlations(scale, deviation, here)
    # So near to singular that rounding alone keeps it from being so.
    least = rule._replace(singular="shrink"), correlation.shape[-1] * 1e-15
    correlation, shares, singular = regular(
        correlation, np.zeros(rows.shape), rows, np.array([p]), *least
    )
    deviation = np.where(here, deviation * np.sqrt((kappa + 1) / (kappa * dof))[..., None], 1.0)
    mean, rest = two_sum(sums.mean, sums.rest - (prior.kappa / kappa)[..., None] * apart)
    mean, rest = np.where(some, mean, prior.mean), np.where(some, rest, prior.rest)
    floored = np.zeros((*shares.shape, mean.shape[-1]), np.bool_)
    return Normals(mean, rest, deviation, correlation, kept, dof, shares, singular, floored)


def expected(found: Normals, sums: GroupMoments, prior: NormalInverseWishart) -> Normals:
    """Return normal densities with the expectation of a covariance that the classes share.

    found        What `predictive` returned.
    """
    assert found.dof is not None
    kappa = prior.kappa + sums.n
    # Of scale_n/(nu_n - p - 1); with two rows or more it exists.
    less = np.sqrt(kappa * found.dof / ((kappa + 1) * np.maximum(found.dof - 2, 1.0)))
    deviation = np.where(found.kept, found.deviation * less[:, None], 1.0)
    return found._replace(deviation=deviation[:1], dof=None)
