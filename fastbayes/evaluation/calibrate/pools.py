"""How posteriors of several models are combined: pools that are learned from held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.iteration import NOISE, Found, Step, Steps, converged
from fastbayes.evaluation.calibrate.posterior_maps import RowBuffer, Temperature
from fastbayes.kernels.shared.nested import CLIP
from fastbayes.models.estimator.log_space import Floats, normalise, row_sum

# Posteriors that are held to learn from (16 MiB), over rows, models and classes.
MOST_HELD = 2**21
# Rows that each model is taken to have explained before any is seen.
PSEUDO_ROWS = 1.0
# The least that a model gives the class of a row, as far as its weight is concerned.
LEAST_OWN = 1e-12
# What the log-linear pool is drawn to the weights of the linear one by, in rows.
RIDGE = 30.0
# The share of uniform posteriors that is mixed in before logarithms are taken: of the linear pool,
# and of the models in the log-linear one, where a single model could rule a class out.
LINEAR_FLOOR, LOG_LINEAR_FLOOR = 1e-9, 1e-4
# A model that weighs less in both pools is left out.
LEAST_WEIGHT = 0.01
# Weights and coefficients are found where a step changes none of them by more than this.
TOL, MAX_ITER = 1e-8, 1_000
# A step must bring at least this share of the decrease that its slope promises (Armijo).
PROMISE = 1e-4
# Halvings of a step at most.
MOST_HALVINGS = 40


class HeldPosteriors(NamedTuple):
    """Rows with their posteriors by models that had not seen them.

    posterior  (n_models, n, n_classes), rows sum to 1
    y          (n,) class codes
    weight     (n,) weights above 0
    """

    posterior: Floats
    y: NDArray[np.intp]
    weight: Floats

    def of_models(self, which: NDArray[np.bool_]) -> HeldPosteriors:
        """Return the same rows with the posteriors of some of the models."""
        return self._replace(posterior=self.posterior[which])

    @classmethod
    def joined(cls, parts: Sequence[HeldPosteriors]) -> HeldPosteriors:
        """Return the rows of several parts."""
        posterior, y, weight = zip(*parts, strict=True)
        return cls(np.concatenate(posterior, axis=1), np.concatenate(y), np.concatenate(weight))

    @property
    def own(self) -> Floats:
        """P(y | x) of each row, (n_models, n)."""
        return self.posterior[:, np.arange(len(self.y)), self.y]

    def mixed(self, weights: Floats) -> Floats:
        """Return the linear pool of the models, (n, n_classes)."""
        return np.asarray(np.tensordot(weights, self.posterior, 1))

    def log_loss(self) -> Floats:
        """Return the mean log-loss of each model, probabilities clipped at 1e-15, (n_models,)."""
        lost = -np.log(np.maximum(self.own, CLIP)) @ self.weight
        return np.asarray(lost / max(self.weight.sum(), np.finfo(np.float64).tiny))


def floored(posterior: Floats, share: float) -> Floats:
    """Return posteriors in which so large a share is uniform over the classes."""
    return (1 - share) * posterior + share / posterior.shape[-1]


class MixtureLoss:
    """Log-loss of a mixture of models with pseudo-rows; with gradient and Hessian, of its weights.

    That is -sum_i s_i ln(sum_m w_m p_mi) - PSEUDO_ROWS sum_m ln w_m + N sum_m w_m with N the weight
    of rows and pseudo-rows together: of all w > 0 it is least where they sum to 1, which is where
    it is least of those that do.
    """

    def __init__(self, own: Floats, weight: Floats) -> None:
        self._own, self._weight = np.maximum(own, LEAST_OWN), weight
        self.total = float(weight.sum()) + PSEUDO_ROWS * len(own)

    def __call__(self, w: Floats) -> tuple[float, Floats, Floats]:
        """Return the value, infinite where a weight is 0, gradient and Hessian, (n_models, ...)."""
        if not w.all():
            return np.inf, w, np.eye(len(w))
        mixed = w @ self._own
        share = self._own * (np.sqrt(self._weight) / mixed)
        value = float(-self._weight @ np.log(mixed) - PSEUDO_ROWS * np.log(w).sum())
        gradient = self.total - share @ np.sqrt(self._weight) - PSEUDO_ROWS / w
        hessian = share @ share.T + np.diag(PSEUDO_ROWS / w**2)
        return value + self.total * float(w.sum()), gradient, hessian


def simplex_weights(own: Floats, weight: Floats, start: Floats | None = None) -> Found[Floats]:
    """Return weights that sum to 1 under which a mixture of models makes rows most likely.

    Each model has explained a pseudo-row alone. `own` is P(y | x) of each row, (n_models, n), and
    `weight` is (n,). Expectation maximisation comes to the same weights, in thousands of steps
    where some are small. `start` are weights that are near, (n_models,).
    """
    # No weight begins at 0, where the value is infinite.
    start = np.ones(len(own)) if start is None else np.maximum(start, LEAST_WEIGHT)
    found = converged(
        projected_newton(MixtureLoss(own, weight), start / start.sum()),
        tol=TOL,
        max_iter=MAX_ITER,
        what="the weights of a blend",
        measure="the largest step left",
    )
    return replace(found, point=found.point / found.point.sum())


class LogLinearLoss:
    """Log-loss of softmax(sum_m b_m ln p_m) with a ridge; with gradient and Hessian, of b."""

    def __init__(self, held: HeldPosteriors, centre: Floats) -> None:
        logs = np.log(floored(held.posterior, LOG_LINEAR_FLOOR))
        self._logs = np.ascontiguousarray(logs.transpose(2, 0, 1))  # (n_classes, n_models, n)
        self._own = logs[:, np.arange(len(held.y)), held.y]
        self._weight, self._centre = held.weight, centre
        self.total = float(held.weight.sum())

    def __call__(self, b: Floats) -> tuple[float, Floats, Floats]:
        """Return the value, the gradient, (n_models,), and the Hessian at coefficients b."""
        scores = b @ self._logs  # (n_classes, n)
        top = scores.max(axis=0)
        p = np.exp(scores - top)
        total = p.sum(axis=0)
        p /= total
        away = b - self._centre
        value = float(self._weight @ (top + np.log(total) - b @ self._own))
        value += RIDGE / 2 * float(away @ away)
        mean = np.einsum("kmn,kn->mn", self._logs, p)
        gradient = (mean - self._own) @ self._weight + RIDGE * away
        # Products of a matrix with itself: half of the work, and BLAS wakes no thread for so few
        # rows, which would wait for longer than a product takes.
        mean *= np.sqrt(self._weight)
        hessian = RIDGE * np.eye(len(b)) - mean @ mean.T
        for logs, share in zip(self._logs, p, strict=True):
            root = logs * np.sqrt(share * self._weight)
            hessian += root @ root.T
        return value, gradient, hessian


def log_linear(held: HeldPosteriors, centre: Floats, start: Floats | None = None) -> Found[Floats]:
    """Return coefficients b >= 0 of least log-loss of the log-linear pool, drawn to `centre`.

    `start` are coefficients that are near, (n_models,).
    """
    return converged(
        projected_newton(LogLinearLoss(held, centre), centre if start is None else start),
        tol=TOL,
        max_iter=MAX_ITER,
        what="the log-linear pool of a blend",
        measure="the largest step left",
    )


def projected_newton(function: MixtureLoss | LogLinearLoss, start: Floats) -> Steps[Floats]:
    """Yield points b >= 0 of ever less of a convex function, which gives its two derivatives.

    Its values are sums over rows of a weight of `total` together.

    Each step goes towards the least value in the orthant that the second-order expansion has: a
    Newton step that was cut off where it leaves the orthant might lead uphill.

    References
    ----------
    Lee, Sun, Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM
    Journal on Optimization 24.
    """
    at = start
    value, gradient, hessian = function(at)
    while True:
        step = quadratic_minimum(hessian, hessian @ at - gradient, at) - at
        error = float(np.abs(step).max(initial=0.0))
        # What there is left to gain may be less than the rounding of the sum.
        done = error <= TOL or -float(gradient @ step) <= NOISE * max(abs(value), function.total)
        yield Step(at, value, error, value, done)
        for halvings in range(MOST_HALVINGS):
            tried = np.maximum(at + 0.5**halvings * step, 0.0)
            found = function(tried)
            if found[0] <= value + PROMISE * min(float(gradient @ (tried - at)), 0.0):
                break
        else:
            return ""  # what is left to gain is less than rounding
        at, (value, gradient, hessian) = tried, found


def quadratic_minimum(curvature: Floats, pull: Floats, start: Floats) -> Floats:
    """Return x >= 0 of least x^T H x / 2 - b^T x, for a positive definite H, from a start >= 0.

    Coordinates are let off 0 one by one, the one of steepest descent first, and come back to it
    where they would turn negative; as the value falls, no set of them comes twice. Those that the
    start has off 0 begin so: from a step near the last one few are left to find.

    References
    ----------
    Lawson, Hanson (1974), Solving least squares problems, algorithm 23.10.
    """
    x, free = start, start > 0
    before: Floats | None = None
    rounding = NOISE * float(np.abs(pull).max(initial=0.0))
    while True:
        while free.any():
            inside = np.zeros(len(x))
            inside[free] = np.linalg.solve(curvature[np.ix_(free, free)], pull[free])
            if not (out := np.flatnonzero(free & (inside <= 0))).size:
                x = inside
                break
            way = x[out] - inside[out]
            share = np.where(way > 0, x[out] / np.where(way > 0, way, 1.0), 0.0)
            x = x + float(share.min()) * (inside - x)
            free[out[share <= share.min()]] = False
            x[~free] = 0.0
        slope = np.where(free, -np.inf, pull - curvature @ x)
        # What is left to gain may be less than rounding.
        if not (slope > rounding).any() or (before is not None and np.array_equal(x, before)):
            return x
        free[slope.argmax()], before = True, x


@dataclass(frozen=True, eq=False)
class Pools:
    """A linear and a log-linear pool of the posteriors of models, averaged.

    Parameters
    ----------
    weights
        (n_models,) of the linear pool, >= 0, sum 1.
    temperature
        What the log posteriors of the linear pool are divided by.
    coefficients
        (n_models,) of the log-linear pool, >= 0.
    """

    weights: Floats
    temperature: Temperature
    coefficients: Floats

    @classmethod
    def learned(cls, held: HeldPosteriors, near: Pools | None = None) -> Self:
        """Return the pools of held-out rows; a model of little weight in both has none.

        `near` are pools of nearly the same rows, from where it is not far.
        """
        found = cls._of(held, near)
        some = (found.weights >= LEAST_WEIGHT) | (found.coefficients >= LEAST_WEIGHT)
        some[found.weights.argmax()] = True
        if some.all():
            return found
        kept = cls._of(held.of_models(some), found.of_models(some))
        weights, coefficients = np.zeros((2, len(some)))
        weights[some], coefficients[some] = kept.weights, kept.coefficients
        return cls(weights, kept.temperature, coefficients)

    @classmethod
    def _of(cls, held: HeldPosteriors, near: Pools | None) -> Self:
        start = (None, None) if near is None else (near.weights, near.coefficients)
        mixed = simplex_weights(held.own, held.weight, start[0])
        weights = mixed.point
        n_classes = held.posterior.shape[2]
        rows = RowBuffer(n_classes)
        rows.update(_log(held.mixed(weights)), held.y, held.weight)
        # All rows are kept: there is nothing to scan again.
        temperature, convergence = Temperature.learned(rows, _never, n_classes, TOL, MAX_ITER)
        curved = log_linear(held, weights, start[1])
        for fit in (mixed, convergence, curved):
            fit.warn()
        return cls(weights, temperature, curved.point)

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which models have a weight in one of the pools, (n_models,)."""
        return (self.weights > 0) | (self.coefficients > 0)

    @property
    def shares(self) -> Floats:
        """How much each model's log posteriors count near where all agree, (n_models,)."""
        linear = self.weights / self.temperature.temperature
        return linear if self._alone else (linear + self.coefficients) / 2

    @property
    def _alone(self) -> bool:
        """Whether there is one model: its log-linear pool is another temperature, and left out."""
        return int(np.count_nonzero(self.used)) == 1

    def of_models(self, which: NDArray[np.bool_]) -> Pools:
        """Return the pools of some of the models, all those that have a weight among them."""
        return Pools(self.weights[which], self.temperature, self.coefficients[which])

    def __call__(self, posteriors: Iterable[Floats], out: Floats) -> None:
        """Write what the models say together, (n, n_classes); `posteriors` has one for each."""
        linear, scores = np.zeros((2, *out.shape))
        given = zip(self.weights.tolist(), self.coefficients.tolist(), posteriors, strict=True)
        for weight, coefficient, posterior in given:
            linear += weight * posterior
            if coefficient > 0:
                scores += coefficient * np.log(floored(posterior, LOG_LINEAR_FLOOR))
        tempered = _log(linear)
        self.temperature(tempered)
        np.exp(tempered, out=out)
        if not self._alone:
            normalise(scores, np.zeros(out.shape[1]))
            out += np.exp(scores)
        out /= row_sum(out)[:, None]

    def losses(self, held: HeldPosteriors) -> tuple[float, float]:
        """Return the mean log-loss of rows by the linear pool before the temperature, and by all.

        The rows are none that the pools were learned from.
        """
        out = np.empty(held.posterior.shape[1:])
        self(held.posterior, out)
        both = np.stack([held.mixed(self.weights), out])
        before, after = held._replace(posterior=both).log_loss()
        return float(before), float(after)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `of` rebuilds them from."""
        return {
            "weights": self.weights,
            "coefficients": self.coefficients,
            **self.temperature.arrays(),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Any], n_models: int) -> Self:
        """Return the pools that `arrays` described; raises ValueError where these are none."""
        weights, coefficients = arrays["weights"], arrays["coefficients"]
        for held in (weights, coefficients):
            good = held.shape == (n_models,) and held.dtype == np.float64
            if not (good and np.isfinite(held).all() and (held >= 0).all()):
                raise ValueError(f"the weights of a blend are not those of {n_models} models")
        found = cls(weights, Temperature.of(arrays), coefficients)
        if not (abs(weights.sum() - 1) <= 1e-9 and found.used.all()):
            raise ValueError("the weights of a blend do not sum to 1, or a model has none")
        return found


def cross_fitted(folds: Sequence[HeldPosteriors], near: Pools | None = None) -> tuple[float, float]:
    """Return mean log-losses of the rows of each fold, as `Pools.losses`, by pools of the others.

    Models of little weight are left out anew, so that nothing is learned from the rows scored.
    `near` are the pools of all rows: each of the others is the same wherever it begins.
    """
    total, lost = 0.0, np.zeros(2)
    for held in folds:
        others = HeldPosteriors.joined([fold for fold in folds if fold is not held])
        weight = float(held.weight.sum())
        total += weight
        lost += weight * np.array(Pools.learned(others, near).losses(held))
    before, after = (lost / max(total, np.finfo(np.float64).tiny)).tolist()
    return before, after


def _log(linear: Floats) -> Floats:
    return np.asarray(np.log(floored(linear, LINEAR_FLOOR)))


def _never(make: Callable[[], Any]) -> Any:
    raise AssertionError("all rows are kept")
