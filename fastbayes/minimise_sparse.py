"""Minimising a smooth convex objective plus a weighted sum of absolute values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastbayes.minimise import (
    AT_ROUNDING,
    MOST_HALVINGS,
    NOT_ENOUGH,
    PROMISE,
    Found,
    Objective,
    Recorder,
    preconditioner,
    rounding,
    sized,
    solved,
)

Floats = NDArray[np.float64]


def steepest(theta: Floats, gradient: Floats, weight: Floats) -> Floats:
    """Return the shortest subgradient of f + Σ weight |theta|, f having this gradient."""
    away = gradient + np.sign(theta) * weight
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - weight, 0.0)
    return np.where(theta != 0, away, at_zero)


def shrunk(theta: Floats, by: Floats) -> Floats:
    """Return coefficients moved towards zero by so much, and no further."""
    return np.sign(theta) * np.maximum(np.abs(theta) - by, 0.0)


def sparse_newton(
    objective: Objective,
    theta: Floats,
    weight: Floats,
    *,
    tol: float,
    max_iter: int,
    project: Callable[[Floats], Floats] = lambda theta: theta,
    recorder: Recorder | None = None,
    ratio: float = 0.0,
) -> Found:
    """Minimise f(theta) + Σ weight |theta| by proximal steps, and Newton's on what is not zero.

    A proximal gradient step decides which coefficients are zero; a Newton step then moves the
    others within their signs. Both bring the objective down, so that the steps converge to the
    minimum; once the zeros are found, as fast as Newton's do.

    Parameters
    ----------
    objective
        f, smooth and convex.
    theta
        (P, M) where to begin.
    weight
        (P, M) of the absolute values; 0 where there is no penalty.
    tol
        Largest component of the shortest subgradient, by the weight of the rows, at which to stop.
    max_iter
        Pairs of steps at most.
    project
        Returns coefficients of the same f and derivatives and no greater sum of absolute values.
        Where f is flat in a direction, it has to end at a zero: Newton's steps know no bound there.
    recorder
        Takes note of points.
    ratio
        Stop where the subgradient is this share of what it was at first.

    References
    ----------
    Andrew, Gao (2007), Scalable training of L1-regularized log-linear models, ICML. Lee, Sun,
    Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM Journal
    on Optimization 24.
    """
    recorder = recorder or Recorder(objective)

    def whole(value: float, at: Floats) -> float:
        return value + float((weight * np.abs(at)).sum())

    theta = project(theta)
    smooth, gradient = objective.value_gradient(theta)
    value, bold, reason, n_iter = whole(smooth, theta), 1.0, NOT_ENOUGH, 0
    away = steepest(theta, gradient, weight)
    first = norm = recorder.norm(away)
    while True:
        recorder.note(value, norm)
        if norm <= tol or norm <= ratio * first:
            reason = ""
            break
        if n_iter >= max_iter:
            break
        n_iter += 1
        scale = preconditioner(objective.curvature(theta), gradient, objective.total)
        moved = False
        near = _proximal(objective, theta, smooth, gradient, weight, scale, bold)
        if near is not None:
            theta, smooth, gradient, bold = near
            theta = project(theta)
            moved, value = True, whole(smooth, theta)
            away = steepest(theta, gradient, weight)
        if recorder.norm(away) > tol:
            further = _newton_step(objective, theta, value, away, weight, scale, tol)
            if further is not None:
                theta, smooth, gradient = further
                theta = project(theta)
                moved, value = True, whole(smooth, theta)
                away = steepest(theta, gradient, weight)
        norm = recorder.norm(away)
        if not moved:
            recorder.note(value, norm)
            reason = "" if norm <= tol else AT_ROUNDING
            break
    theta = theta + 0.0  # no coefficient is -0
    return Found(theta, value, norm, not reason, n_iter, tuple(recorder.steps), reason)


def _proximal(
    objective: Objective,
    theta: Floats,
    smooth: float,
    gradient: Floats,
    weight: Floats,
    scale: Floats,
    bold: float,
) -> tuple[Floats, float, Floats, float] | None:
    """Return the point after a proximal gradient step, f, its gradient, and how bold it was."""
    noise = rounding(objective, smooth)
    for _ in range(MOST_HALVINGS):
        tried = shrunk(theta - bold * gradient / scale, bold * weight / scale)
        step = tried - theta
        if not step.any():
            return None
        reached, there = objective.value_gradient(tried)
        told = smooth + float((gradient * step).sum())
        told += float((step * step * scale).sum()) / (2 * bold)
        if math.isfinite(reached) and reached <= told + noise:
            return tried, reached, there, min(1.0, 2 * bold)
        bold /= 2
    return None


def _newton_step(
    objective: Objective,
    theta: Floats,
    value: float,
    away: Floats,
    weight: Floats,
    scale: Floats,
    tol: float,
) -> tuple[Floats, float, Floats] | None:
    """Return the point after a Newton step within the signs, f and its gradient; None without."""
    free = ((theta != 0) | (weight == 0)).astype(np.float64)
    wanted = away * free
    if not wanted.any():
        return None
    full: Callable[[Floats], Floats] = objective.hessian_product(theta)
    least = tol * objective.total / max(float(np.abs(wanted).max()), 1e-300)
    residual = float(np.clip(0.1 * least, 1e-6, 0.1))
    step = -solved(lambda along: full(along * free) * free, wanted, scale, residual)
    signs, bound = np.sign(theta), weight > 0
    noise, now = rounding(objective, value), sized(away, scale)
    length = 1.0
    for _ in range(MOST_HALVINGS // 4):
        tried = theta + length * step
        tried = np.where(bound & (np.sign(tried) != signs), 0.0, tried)
        slope = float((away * (tried - theta)).sum())
        if slope >= 0:
            return None
        smooth, there = objective.value_gradient(tried)
        reached = smooth + float((weight * np.abs(tried)).sum())
        if -slope <= 100 * noise and reached <= value + noise:
            closer = sized(steepest(tried, there, weight), scale) < now / 2
            return (tried, smooth, there) if closer else None
        if math.isfinite(reached) and reached <= value + PROMISE * slope:
            return tried, smooth, there
        length /= 2
    return None
