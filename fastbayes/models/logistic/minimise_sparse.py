"""Minimising a smooth convex objective plus a weighted sum of absolute values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.models.logistic.minimise import (
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

# Changes of the signs, on the way to the minimum of a quadratic, at most.
MOST_FACES = 20
# How much of the pull of the coefficients that are not zero is left before zeros are let go.
SETTLED = 0.1


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
    """Minimise f(theta) + Σ weight |theta| by proximal Newton steps.

    Each step goes towards the minimum of f's second-order expansion plus the absolute values,
    which is looked for as exactly as the progress is worth; zeros are found along with all others.

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
        Steps at most.
    project
        Returns coefficients of the same f and derivatives and no greater sum of absolute values.
        Where f is flat in a direction, it has to end at a zero: Newton's steps know no bound there.
    recorder
        Takes note of points.
    ratio
        Stop where the subgradient is this share of what it was at first.

    References
    ----------
    Lee, Sun, Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM
    Journal on Optimization 24. Eisenstat, Walker (1996), Choosing the forcing terms in an inexact
    Newton method, SIAM Journal on Scientific Computing 17.
    """
    recorder = recorder or Recorder(objective)
    theta = project(theta)
    smooth, gradient = objective.value_gradient(theta)
    value, reason, n_iter = smooth + _penalty(theta, weight), NOT_ENOUGH, 0
    away = steepest(theta, gradient, weight)
    first = norm = recorder.norm(away)
    size, forcing = math.inf, 0.1
    while True:
        recorder.note(value, norm)
        if norm <= tol or norm <= ratio * first:
            reason = ""
            break
        if n_iter >= max_iter:
            break
        diagonal = objective.curvature(theta)
        scale = preconditioner(diagonal, away, objective.total)
        now = sized(away, scale)
        if size < math.inf:
            # The faster the subgradient falls, the more exactly a step is worth solving.
            forcing = float(np.clip((now / size) ** 1.5, 1e-3, max(0.1, 0.9 * forcing**1.5)))
        model = QuadraticModel.of(objective, theta, gradient, weight, scale, scale - diagonal)
        step = model.minimum(forcing * now) - theta
        taken = _line_search(objective, theta, value, gradient, step, weight, scale)
        if taken is None:
            reason = AT_ROUNDING
            break
        n_iter += 1
        theta, smooth, gradient = taken
        theta = project(theta)
        value = smooth + _penalty(theta, weight)
        away = steepest(theta, gradient, weight)
        norm, size = recorder.norm(away), now
    theta = theta + 0.0  # no coefficient is -0
    return Found(theta, value, norm, not reason, n_iter, tuple(recorder.steps), reason)


def _penalty(theta: Floats, weight: Floats) -> float:
    return float((weight * np.abs(theta)).sum())


def _line_search(
    objective: Objective,
    theta: Floats,
    value: float,
    gradient: Floats,
    step: Floats,
    weight: Floats,
    scale: Floats,
) -> tuple[Floats, float, Floats] | None:
    """Return the point after a step that is short enough, f and its gradient; None without."""
    noise = rounding(objective, value)
    now = sized(steepest(theta, gradient, weight), scale)
    told = float((gradient * step).sum())
    told += float((weight * (np.abs(theta + step) - np.abs(theta))).sum())
    length = 1.0
    for _ in range(MOST_HALVINGS):
        tried = theta + length * step
        smooth, there = objective.value_gradient(tried)
        reached = smooth + _penalty(tried, weight)
        # So near the minimum that values differ by rounding, the subgradient tells.
        if -told * length <= 100 * noise and reached <= value + noise:
            closer = sized(steepest(tried, there, weight), scale) < now / 2
            return (tried, smooth, there) if closer else None
        if math.isfinite(reached) and reached <= value + PROMISE * length * told:
            return tried, smooth, there
        length /= 2
    return None


class QuadraticModel(NamedTuple):
    """The second-order expansion of f around a point, plus Σ weight |theta|.

    theta, gradient  the point and f's derivatives there
    weight           of the absolute values
    scale            what each coefficient curves by itself
    product          from a direction to the Hessian's product with it
    """

    theta: Floats
    gradient: Floats
    weight: Floats
    scale: Floats
    product: Callable[[Floats], Floats]

    @classmethod
    def of(
        cls,
        objective: Objective,
        theta: Floats,
        gradient: Floats,
        weight: Floats,
        scale: Floats,
        more: Floats,
    ) -> QuadraticModel:
        """Return the expansion, with so much more curvature of each coefficient by itself."""
        full: Callable[[Floats], Floats] = objective.hessian_product(theta)
        return cls(theta, gradient, weight, scale, lambda along: full(along) + more * along)

    def minimum(self, enough: float) -> Floats:
        """Return where the subgradient is at most so long, or a point on the way there.

        Proximal gradient steps find many zeros at once, conjugate gradients the minimum over what
        is not zero, within the signs. Zeros that pull are let go once that is nearly found: where
        the Hessian is singular on what is not zero, they would come and go without end.

        References
        ----------
        Byrd, Chin, Nocedal, Oztoprak (2016), A family of second-order methods for convex
        l1-regularized optimization, Mathematical Programming 159.
        """
        at, pull, bold = self.theta, self.gradient, 1.0
        for _ in range(MOST_FACES):
            away = steepest(at, pull, self.weight)
            if sized(away, self.scale) <= enough:
                break
            before, free = at, (at != 0) | (self.weight == 0)
            inside = sized(np.where(free, away, 0.0), self.scale)
            outside = sized(np.where(free, 0.0, away), self.scale)
            settled = inside <= max(enough / 2, SETTLED * outside)
            at, pull, bold = self._shrink(at, pull, bold, free | settled)
            if not settled:
                away, free = steepest(at, pull, self.weight), (at != 0) | (self.weight == 0)
                inside = sized(np.where(free, away, 0.0), self.scale)
                if inside > enough / 2:
                    at, pull = self._along_face(at, pull, away, free, enough / 2 / inside)
            if at is before:
                break
        return at

    def _change(self, at: Floats, pull: Floats, step: Floats, bent: Floats) -> float:
        """Return by how much a step changes the model."""
        smooth = float((pull * step).sum()) + float((step * bent).sum()) / 2
        return smooth + float((self.weight * (np.abs(at + step) - np.abs(at))).sum())

    def _along_face(
        self, at: Floats, pull: Floats, away: Floats, free: NDArray[np.bool_], residual: float
    ) -> tuple[Floats, Floats]:
        """Return a point of a lower value whose zeros are these and perhaps others, and the pull.

        What would change its sign becomes zero; where that leads nowhere, only the first one does.
        """
        on = free.astype(np.float64)
        residual = float(np.clip(residual, 1e-8, 0.1))
        step = -solved(lambda along: self.product(along * on) * on, away * on, self.scale, residual)
        bound, signs = self.weight > 0, np.sign(at)
        crossing = bound & free & (np.sign(at + step) != signs)
        lengths = [1.0]
        if crossing.any():
            reach = float((at[crossing] / -step[crossing]).min())
            lengths = [length for length in 0.5 ** np.arange(6) if length > reach] + [reach]
        for length in lengths:
            tried = at + length * step
            # The first that crosses ends at zero, not at its rounding.
            beyond = bound & (np.sign(tried) != signs)
            if crossing.any() and length == lengths[-1]:
                beyond |= crossing & (np.abs(tried) <= 1e-14 * np.abs(at))
            tried = np.where(beyond, 0.0, tried)
            moved = tried - at
            bent = self.product(moved)
            if self._change(at, pull, moved, bent) < 0:
                return tried, pull + bent
        return at, pull

    def _shrink(
        self, at: Floats, pull: Floats, bold: float, free: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, float]:
        """Return the point after a proximal gradient step of some, the pull, how bold it was."""
        for _ in range(MOST_HALVINGS):
            tried = shrunk(at - bold * pull / self.scale, bold * self.weight / self.scale)
            tried = np.where(free, tried, at)
            step = tried - at
            if not step.any():
                break
            bent = self.product(step)
            if float((step * bent).sum()) <= float((step * step * self.scale).sum()) / bold:
                return tried, pull + bent, min(1.0, 2 * bold)
            bold /= 2
        return at, pull, bold
