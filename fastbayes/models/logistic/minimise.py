"""Minimisers of convex objectives: Newton, proximal Newton for absolute values, scipy's methods."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.iteration import Found, Step, Steps, converged
from fastbayes.models.estimator.log_space import Floats

# A step must bring at least this share of the decrease that its slope promises (Armijo).
PROMISE = 1e-4
# Sums of losses are off by some units in the last place: smaller differences do not count.
NOISE = 64 * 2.0**-52
# Steps of conjugate gradients, and halvings of a step, at most.
MOST_PRODUCTS, MOST_HALVINGS = 250, 40
# Residual of conjugate gradients where the curvature is that of a sample: what it is off by anyway.
SAMPLED = 0.05
# How much shorter a gradient the last step is to lead to than is asked for, and its residual at
# most.
SPARE, LOOSEST = 0.1, 0.3
# Residual of the first steps: `tol`, but not below the one nor above the other. Solved more exactly
# these steps get no farther, for the second-order expansion is no good there yet; a small `tol`
# wants them so that the last steps end nearer.
LEAST_FORCING, MOST_FORCING = 0.1, 0.3
# Curvature below this share of that of the coordinates is rounding.
FLAT = 1e-12
# The farthest that a coordinate is sent by its own derivatives.
FARTHEST = 1e4
# A sample's curvature that leaves more than this share of the gradient is given up.
POOR = 0.5


class Objective(Protocol):
    """A convex function of (P, M) coefficients that is a sum over rows, and perhaps a penalty.

    total  what a gradient is divided by, the weight of all rows
    """

    total: float

    @property
    def passes(self) -> float:
        """Times that all rows have been read."""
        ...

    def value_gradient(self, theta: Floats) -> tuple[float, Floats]:
        """Return the value and the gradient."""
        ...

    def hessian_product(self, theta: Floats) -> Callable[[Floats], Floats]:
        """Return the function from a direction to the Hessian's product with it."""
        ...

    def curvature(self, theta: Floats) -> Floats:
        """Return the diagonal of the Hessian."""
        ...


class Iterate(NamedTuple):
    """A point that a minimiser went through.

    rows           share of the rows that its objective was of
    objective      its value there
    gradient_norm  largest derivative there, by the weight of the rows
    passes         times that all rows had been read
    """

    rows: float
    objective: float
    gradient_norm: float
    passes: float


class Recorder:
    """Takes note of points.

    rows       Share of the rows that it is of.
    before     Passes that were made for other objectives.
    """

    def __init__(self, objective: Objective, rows: float = 1.0, before: float = 0.0) -> None:
        self.objective, self.rows, self.before = objective, rows, before

    def norm(self, gradient: Floats) -> float:
        """Return the largest derivative by the weight of the rows."""
        return float(np.abs(gradient).max(initial=0.0)) / max(self.objective.total, 1e-300)

    def noted(self, value: float, norm: float, more: float = 0.0) -> Iterate:
        """Return the note of a point; `more` are passes over other objectives since the start."""
        return Iterate(self.rows, value, norm, self.before + self.objective.passes + more)


AT_ROUNDING = (
    "rounding hides any further decrease: raise tol, or scale columns whose values are far apart"
)


def minimised(steps: Steps[Floats], tol: float, max_iter: int, what: str) -> Found[Floats]:
    """Return where the steps of a minimiser lead to; `what` is minimised, for the message."""
    measure = "the gradient norm"
    found = converged(steps, tol=tol, max_iter=max_iter, what=what, measure=measure)
    return replace(found, point=found.point + 0.0)  # no coefficient is -0


def newton(
    objective: Objective,
    theta: Floats,
    *,
    tol: float,
    max_iter: int,
    absolute: Floats | None = None,
    sample: Objective | None = None,
    project: Callable[[Floats], Floats] = lambda theta: theta,
    recorder: Recorder | None = None,
    share: float = 1.0,
    ratio: float = 0.0,
    what: str = "the minimum",
) -> Found[Floats]:
    """Minimise f(theta), or f(theta) + Σ absolute |theta|, by Newton steps.

    Those of f alone are solved by preconditioned conjugate gradients. With absolute values each
    goes towards the minimum of f's second-order expansion plus these (proximal Newton), which is
    looked for as exactly as the progress is worth; zeros are found along with all others.

    theta      (P, M) where to begin.
    tol        Largest derivative, or component of the shortest subgradient, by the weight of the
               rows, at which to stop. The value of f alone is then within 1e-6 `tol` of the
               minimum, relatively, as the last step predicts.
    absolute   (P, M) weights of the absolute values; 0 where there is no penalty.
    sample     The same function of a part of the rows, scaled: its curvature is used as long as
               that takes the gradient down. Of f alone.
    project    Returns coefficients of the same f and no larger penalty. Where f is flat in a
               direction, absolute values end there at a zero: Newton's steps know no bound.
    share      Passes over all rows that one over the sample is.
    ratio      Stop where the gradient is this share of what it was at first.
    what       What is minimised, for the message where it did not converge.

    References
    ----------
    Eisenstat, Walker (1996), Choosing the forcing terms in an inexact Newton method, SIAM Journal
    on Scientific Computing 17, eq. 2.6. Lin, Weng, Keerthi (2008), Trust region Newton method for
    logistic regression, Journal of Machine Learning Research 9. Lee, Sun, Saunders (2014), Proximal
    Newton-type methods for minimizing composite functions, SIAM Journal on Optimization 24.
    """
    steps = _newton(objective, theta, tol, absolute, sample, project, recorder, share, ratio)
    return minimised(steps, tol, max_iter, what)


def _newton(
    objective: Objective,
    theta: Floats,
    tol: float,
    absolute: Floats | None,
    sample: Objective | None,
    project: Callable[[Floats], Floats],
    recorder: Recorder | None,
    share: float,
    ratio: float,
) -> Steps[Floats]:
    """Yield the points of `newton`."""
    recorder = recorder or Recorder(objective)
    before = 0.0 if sample is None else sample.passes
    theta = theta if absolute is None else project(theta)
    smooth, gradient = objective.value_gradient(theta)
    value, pull = smooth + absolute_penalty(theta, absolute), steepest(theta, gradient, absolute)
    first = norm = recorder.norm(pull)
    inexact = float(np.clip(tol, LEAST_FORCING, MOST_FORCING))
    gap, size, forcing = math.inf, math.inf, inexact
    while True:
        spent = 0.0 if sample is None else share * (sample.passes - before)
        short, close = 1e-3 * tol, absolute is not None
        close = close or norm <= short
        close = close or gap <= 1e-6 * tol * max(min(1.0, objective.total), abs(value))
        done = (norm <= tol and close) or norm <= ratio * first
        yield Step(theta, value, norm, recorder.noted(value, norm, spent), done)
        while True:
            curved = objective if sample is None else sample
            diagonal = curved.curvature(theta)
            scale = preconditioner(diagonal, pull, objective.total)
            now = sized(pull, scale)
            if size < math.inf:
                # The faster the gradient falls, the more exactly a step is worth solving.
                most = max(inexact, 0.9 * forcing**1.5)
                forcing = float(np.clip((now / size) ** 1.5, 1e-3, most))
            product = curved.hessian_product(theta)
            if absolute is None:
                # But not far more exactly than the end asks for: the last step takes the most.
                enough = min(SPARE * short / norm, LOOSEST) if norm > 0 else 0.0
                residual = max(forcing, enough) if sample is None else SAMPLED
                step = -solved(product, gradient, scale, residual)
            else:
                model = QuadraticModel(theta, gradient, absolute, scale, product, scale - diagonal)
                step = model.minimum(forcing * now) - theta
            taken = line_search(objective, theta, value, gradient, step, scale, absolute, project)
            if taken is not None:
                break
            if sample is None:
                return "" if norm <= tol else AT_ROUNDING
            sample, size = None, math.inf
        slope = float((gradient * step).sum())
        theta, smooth, gradient = taken
        theta = theta if absolute is None else project(theta)
        value, pull = (
            smooth + absolute_penalty(theta, absolute),
            steepest(theta, gradient, absolute),
        )
        norm, after = recorder.norm(pull), sized(pull, scale)
        gap, size = -slope / 2 * (after / now) ** 2 if now > 0 else 0.0, now
        if sample is not None and after > POOR * now:
            recorder.before += share * (sample.passes - before)
            sample, size = None, math.inf


def steepest(theta: Floats, gradient: Floats, absolute: Floats | None) -> Floats:
    """Return the shortest subgradient of f + Σ absolute |theta|, f having this gradient."""
    if absolute is None:
        return gradient
    away = gradient + np.sign(theta) * absolute
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - absolute, 0.0)
    return np.where(theta != 0, away, at_zero)


def absolute_penalty(theta: Floats, absolute: Floats | None) -> float:
    """Return the weighted sum of absolute values; 0 without weights."""
    return 0.0 if absolute is None else float((absolute * np.abs(theta)).sum())


def preconditioner(diagonal: Floats, gradient: Floats, total: float) -> Floats:
    """Return a diagonal with which no coordinate takes a step that has no sense.

    Where nothing curves, nothing pulls either; where hardly anything does, rows are so far on one
    side that derivatives say little. What curves more than the rows' weight `total` has a penalty,
    and says nothing of the others.
    """
    least = FLAT * min(float(diagonal.max(initial=0.0)), total)
    scale = np.maximum(diagonal, np.maximum(least, np.abs(gradient) / FARTHEST))
    return np.where(scale > 0.0, scale, 1.0)


def sized(gradient: Floats, scale: Floats) -> float:
    """Return the length of a gradient in units in which every coordinate curves alike."""
    # In this order: squares of what the smallest weights pull with are 0.
    return float(np.sqrt((gradient * (gradient / scale)).sum()))


def rounding(objective: Objective, value: float) -> float:
    """Return the difference of two values that sums of losses may be off by."""
    return NOISE * max(min(1.0, objective.total), abs(value))


def solved(
    product: Callable[[Floats], Floats], wanted: Floats, scale: Floats, residual: float
) -> Floats:
    """Return x with H x = wanted up to this share of it, by preconditioned conjugate gradients."""
    x = np.zeros_like(wanted)
    rest = wanted.copy()
    along = rest / scale
    direction = along
    energy = float((rest * along).sum())
    enough = residual * residual * energy
    for _ in range(MOST_PRODUCTS):
        if energy <= enough or energy == 0.0:
            break
        bent = product(direction)
        curve = float((direction * bent).sum())
        if not curve > FLAT * float((direction * direction * scale).sum()):
            # A direction in which nothing curves: what it would bring is rounding.
            break
        length = energy / curve
        x = x + length * direction
        rest = rest - length * bent
        along = rest / scale
        before, energy = energy, float((rest * along).sum())
        direction = along + (energy / before) * direction
    return x if x.any() else wanted / scale


def line_search(
    objective: Objective,
    theta: Floats,
    value: float,
    gradient: Floats,
    step: Floats,
    scale: Floats,
    absolute: Floats | None = None,
    project: Callable[[Floats], Floats] = lambda theta: theta,
) -> tuple[Floats, float, Floats] | None:
    """Return the point after a step that is short enough, f and its gradient; None without."""
    noise, now = rounding(objective, value), sized(steepest(theta, gradient, absolute), scale)
    slope = float((gradient * step).sum())
    if absolute is not None:
        slope += float((absolute * (np.abs(theta + step) - np.abs(theta))).sum())
    length = 1.0
    for _ in range(MOST_HALVINGS):
        tried = theta + length * step
        tried = project(tried) if absolute is None else tried
        smooth, there = objective.value_gradient(tried)
        reached = smooth + absolute_penalty(tried, absolute)
        if not math.isfinite(reached):
            length *= 0.1
            continue
        # So near the minimum that values differ by rounding, the gradient decides.
        if -slope * length <= 100 * noise and reached <= value + noise:
            closer = sized(steepest(tried, there, absolute), scale) < now / 2
            return (tried, smooth, there) if closer else None
        if reached <= value + PROMISE * length * slope:
            return tried, smooth, there
        bend = reached - value - length * slope
        bent = absolute is None and bend > 0
        length *= float(np.clip(-slope * length / (2 * bend), 0.1, 0.5)) if bent else 0.5
    return None


def descent(
    objective: Objective,
    theta: Floats,
    *,
    rate: float | None,
    tol: float,
    max_iter: int,
    what: str = "the minimum",
) -> Found[Floats]:
    """Minimise by plain gradient steps: the textbook's ascent of the likelihood.

    theta      (P, M) where to begin.
    rate       Length of a step in units of the gradient by the weight of the rows; None finds one
               at each step, by halving and doubling.
    tol        Largest derivative, by the weight of the rows, at which to stop.
    what       What is minimised, for the message where it did not converge.
    """
    return minimised(_descent(objective, theta, rate, tol), tol, max_iter, what)


def _descent(objective: Objective, theta: Floats, rate: float | None, tol: float) -> Steps[Floats]:
    """Yield the points of `descent`."""
    recorder = Recorder(objective)
    value, gradient = objective.value_gradient(theta)
    first, length = value, 1.0 if rate is None else float(rate)
    ones = np.ones_like(theta)
    while True:
        norm = recorder.norm(gradient)
        yield Step(theta, value, norm, recorder.noted(value, norm), norm <= tol)
        step = -gradient / objective.total
        if rate is None:
            taken = line_search(objective, theta, value, gradient, 2 * length * step, ones)
        else:
            tried = theta + length * step
            taken = (tried, *objective.value_gradient(tried))
            if not taken[1] <= 1e3 * max(objective.total, abs(first)):
                taken = None
        if taken is None:
            return AT_ROUNDING if rate is None else "the steps are too long: lower learning_rate"
        if rate is None:
            moved = float(np.abs(taken[0] - theta).max())
            length = moved / max(float(np.abs(step).max()), 1e-300)
        theta, value, gradient = taken


# Steps after which scipy's methods begin again, in other units.
ROUND = 200
SCIPY = {"lbfgs": "L-BFGS-B", "conjugate_gradient": "CG"}


def by_scipy(
    objective: Objective,
    theta: Floats,
    solver: str,
    *,
    tol: float,
    max_iter: int,
    what: str = "the minimum",
) -> Found[Floats]:
    """Minimise by one of scipy's methods, in units in which every coordinate curves alike.

    Raises ImportError when scipy is not installed; the message says how to get it.
    """
    return minimised(_by_scipy(objective, theta, solver, tol, max_iter), tol, max_iter, what)


def _by_scipy(
    objective: Objective, theta: Floats, solver: str, tol: float, max_iter: int
) -> Steps[Floats]:
    """Yield the points of `by_scipy`, all those of a round at its end."""
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise ImportError(
            f"solver={solver!r} needs scipy: pip install 'fastbayes[optimize]', or use "
            "solver='newton-cg'"
        ) from error
    recorder, shape, n_iter, bounds = Recorder(objective), theta.shape, 0, {}
    if solver == "lbfgs":
        bounds = {"ftol": NOISE, "maxls": 50, "maxfun": 20 * max_iter}
    value, pull = objective.value_gradient(theta)
    norm = recorder.norm(pull)
    yield Step(theta, value, norm, recorder.noted(value, norm), done=False)
    while True:
        # Curvatures are others where the last round ended, and its line searches may have given up.
        scale = preconditioner(objective.curvature(theta), pull, objective.total)
        unit = 1.0 / np.sqrt(scale / objective.total)
        # A coordinate in which hardly anything curves at first must not run away.
        unit = np.minimum(unit, 1e3 * np.median(unit))
        at, notes = _Remembered(objective, unit, shape), list[Iterate]()

        def note(flat: Floats, at: _Remembered = at, notes: list[Iterate] = notes) -> None:
            there, gradient = at.whole(flat)
            notes.append(recorder.noted(there, recorder.norm(gradient)))

        # A small gradient says little of the value where curvatures differ widely: ask for more.
        steps = min(max_iter - n_iter, ROUND)
        asked = {"maxiter": steps, "gtol": 0.01 * tol * max(float(unit.min()), 1e-6)}
        start = (theta / unit).ravel()
        done: Any = minimize(
            *(at.scaled, start), jac=True, method=SCIPY[solver], callback=note,
            options={**asked, **bounds},
        )  # fmt: skip
        before, n_iter = value, n_iter + len(notes)
        theta = np.asarray(done.x).reshape(shape) * unit
        value, pull = at.whole(np.asarray(done.x))
        norm = recorder.norm(pull)
        little = before - value <= 1e-9 * max(min(1.0, objective.total), abs(value))
        over = (little or n_iter >= max_iter) and norm <= tol
        for i, told in enumerate(notes, 1):
            yield Step(theta, value, norm, told, over and i == len(notes))
        if little or not notes:
            return "" if norm <= tol else AT_ROUNDING


class _Remembered:
    """A function of coefficients in other units, which knows where it was asked last."""

    def __init__(self, objective: Objective, unit: Floats, shape: tuple[int, ...]) -> None:
        self.objective, self.unit, self.shape = objective, unit, shape
        self.place, self.known = b"", (0.0, unit)

    def whole(self, flat: Floats) -> tuple[float, Floats]:
        """Return the value and the gradient by the coefficients."""
        if flat.tobytes() != self.place:
            self.known = self.objective.value_gradient(flat.reshape(self.shape) * self.unit)
            self.place = flat.tobytes()
        return self.known

    def scaled(self, flat: Floats) -> tuple[float, Floats]:
        """Return the mean over rows and its gradient in these units."""
        value, gradient = self.whole(flat)
        total = self.objective.total
        return value / total, (gradient * self.unit).ravel() / total


# Changes of the signs, on the way to the minimum of a quadratic, at most.
MOST_FACES = 20
# How much of the pull of the coefficients that are not zero is left before zeros are let go.
SETTLED = 0.1


def shrunk(theta: Floats, by: Floats) -> Floats:
    """Return coefficients moved towards zero by so much, and no further."""
    return np.sign(theta) * np.maximum(np.abs(theta) - by, 0.0)


class QuadraticModel(NamedTuple):
    """The second-order expansion of f around a point, plus Σ weight |theta|.

    theta, gradient  the point and f's derivatives there
    weight           of the absolute values
    scale            what each coefficient curves by itself
    hessian          from a direction to the Hessian's product with it
    more             curvature of each coefficient by itself beyond that of f
    """

    theta: Floats
    gradient: Floats
    weight: Floats
    scale: Floats
    hessian: Callable[[Floats], Floats]
    more: Floats

    def product(self, along: Floats) -> Floats:
        """Return the second derivatives times a direction."""
        return self.hessian(along) + self.more * along

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
