"""Minimisers against quadratics with known minima and a logistic loss solved by scipy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fastbayes.models.logistic.minimise import (
    by_scipy,
    descent,
    newton,
    shrunk,
    solved,
    steepest,
)


class Quadratic:
    """½ xᵀ A x - bᵀ x, with x of shape (n, 1)."""

    def __init__(self, A, b):
        self.A, self.b, self.total, self.passes = A, b, 1.0, 0.0

    def value_gradient(self, theta):
        self.passes += 1
        x = theta[:, 0]
        return float(x @ self.A @ x / 2 - self.b @ x), (self.A @ x - self.b)[:, None]

    def hessian_product(self, theta):
        return lambda along: self.A @ along

    def curvature(self, theta):
        return np.diag(self.A)[:, None].copy()


class Logistic:
    """Σ ln(1 + exp(-s xᵀθ)) + ½ c |θ|²."""

    def __init__(self, X, s, c):
        self.X, self.s, self.c, self.total, self.passes = X, s, c, float(len(X)), 0.0

    def value_gradient(self, theta):
        self.passes += 1
        m = self.s * (self.X @ theta[:, 0])
        p = np.exp(-np.logaddexp(0, m))
        value = np.logaddexp(0, -m).sum() + self.c / 2 * (theta**2).sum()
        return float(value), self.X.T @ (-self.s * p)[:, None] + self.c * theta

    def _h(self, theta):
        e = np.exp(-np.abs(self.X @ theta[:, 0]))
        return (e / (1 + e) ** 2)[:, None]

    def hessian_product(self, theta):
        h = self._h(theta)
        return lambda along: self.X.T @ (h * (self.X @ along)) + self.c * along

    def curvature(self, theta):
        return ((self.X**2).T @ self._h(theta)) + self.c


def quadratic(n, seed):
    random = np.random.default_rng(seed)
    R = random.normal(size=(n, n))
    return Quadratic(R @ R.T + np.diag(10.0 ** random.uniform(-3, 3, n)), random.normal(size=n))


def logistic(n, d, seed, c=1.0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * 10.0 ** random.uniform(-1, 1, d)
    s = np.where(random.random(n) < 1 / (1 + np.exp(-X @ random.normal(size=d))), 1.0, -1.0)
    return Logistic(X, s, c)


def reference(f, d):
    done = minimize(
        lambda x: (f.value_gradient(x[:, None])[0], f.value_gradient(x[:, None])[1][:, 0]),
        np.zeros(d), jac=True, method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000},
    )  # fmt: skip
    return done.x[:, None], done.fun


@given(st.integers(1, 8), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_newton_solves_a_quadratic(n, seed):
    f = quadratic(n, seed)
    found = newton(f, np.zeros((n, 1)), tol=1e-9, max_iter=50)
    assert found.converged
    np.testing.assert_allclose(found.point[:, 0], np.linalg.solve(f.A, f.b), rtol=1e-6, atol=1e-8)


def test_conjugate_gradients_solve_a_singular_system_where_there_is_a_solution():
    H = np.array([[2.0, -2.0], [-2.0, 2.0]])
    x = solved(lambda v: H @ v, np.array([[1.0], [-1.0]]), np.full((2, 1), 2.0), 1e-10)
    np.testing.assert_allclose(H @ x, [[1.0], [-1.0]], atol=1e-12)


@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs", "conjugate_gradient", "gradient"])
@pytest.mark.parametrize("seed", range(3))
def test_solvers_find_one_minimum(solver, seed):
    f = logistic(200, 5, seed)
    theta, value = reference(f, 5)
    start = np.zeros((5, 1))
    if solver == "newton-cg":
        found = newton(f, start, tol=1e-8, max_iter=100)
    elif solver == "gradient":
        found = descent(f, start, rate=None, tol=1e-4, max_iter=50_000)
    else:
        found = by_scipy(f, start, solver, tol=1e-7, max_iter=2000)
    assert found.converged
    assert found.n_iter <= len(found.trace)
    plain = solver == "gradient"
    assert found.loss == pytest.approx(value, abs=1e-2 if plain else 1e-6)
    np.testing.assert_allclose(found.point, theta, atol=1e-1 if plain else 1e-4)
    if solver in ("newton-cg", "gradient"):
        values = found.trace[:, 1].tolist()
        assert all(b <= a + 1e-9 for a, b in pairwise(values))
    passes = found.trace[:, 3].tolist()
    assert passes == sorted(passes)


def test_newton_from_far_away():
    f = logistic(300, 4, 7)
    theta, _ = reference(f, 4)
    found = newton(f, np.full((4, 1), 50.0), tol=1e-8, max_iter=200)
    assert found.converged
    np.testing.assert_allclose(found.point, theta, atol=1e-5)


def test_newton_with_the_curvature_of_a_sample():
    f = logistic(4000, 4, 3)
    part = Logistic(f.X[::8], f.s[::8], f.c / 8)
    whole = Logistic(f.X, f.s, f.c)

    class Scaled:
        total, passes = f.total, 0.0

        def hessian_product(self, theta):
            product = part.hessian_product(theta)
            return lambda along: 8 * product(along)

        def curvature(self, theta):
            return 8 * part.curvature(theta)

    found = newton(whole, np.zeros((4, 1)), tol=1e-9, max_iter=60, sample=Scaled())
    assert found.converged
    np.testing.assert_allclose(found.point, reference(f, 4)[0], atol=1e-5)


def test_a_misleading_sample_is_given_up():
    f = logistic(500, 3, 5)

    class Wrong:
        total, passes = f.total, 0.0

        def hessian_product(self, theta):
            return lambda along: 1e3 * f.hessian_product(theta)(along)

        def curvature(self, theta):
            return 1e3 * f.curvature(theta)

    found = newton(f, np.zeros((3, 1)), tol=1e-9, max_iter=30, sample=Wrong())
    assert found.converged
    np.testing.assert_allclose(found.point, reference(f, 3)[0], atol=1e-5)


def test_a_tolerance_beyond_rounding_is_said():
    found = newton(logistic(200, 3, 1), np.zeros((3, 1)), tol=1e-30, max_iter=100)
    assert not found.converged
    assert "raise tol" in found.reason
    assert found.error < 1e-12


def test_too_few_steps_are_said():
    found = newton(logistic(200, 3, 1), np.zeros((3, 1)), tol=1e-8, max_iter=1)
    assert not found.converged
    assert "max_iter" in found.reason


def test_a_rate_that_is_too_high_is_said():
    found = descent(quadratic(3, 0), np.zeros((3, 1)), rate=1e6, tol=1e-8, max_iter=100)
    assert not found.converged
    assert "lower learning_rate" in found.reason
    assert np.isfinite(found.point).all()


def subgradient_is_small(f, theta, weight):
    return np.abs(steepest(theta, f.value_gradient(theta)[1], weight)).max() <= 1e-6 * f.total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strength", [0.1, 3.0, 30.0, 1e6])
def test_newton_with_absolute_values_meets_the_conditions_of_the_minimum(seed, strength):
    f = logistic(200, 6, seed, c=0.0)
    weight = np.full((6, 1), strength)
    weight[0] = 0.0
    found = newton(f, np.full((6, 1), 0.3), absolute=weight, tol=1e-8, max_iter=200)
    assert found.converged
    assert subgradient_is_small(f, found.point, weight)
    values = found.trace[:, 1].tolist()
    assert all(b <= a + 1e-9 for a, b in pairwise(values))
    if strength == 1e6:
        assert (found.point[1:] == 0).all()


def test_newton_with_absolute_values_solves_a_separable_problem_by_hand():
    b = np.array([3.0, -0.5, 1.0, -4.0])
    f = Quadratic(np.diag([1.0, 1.0, 2.0, 4.0]), b)
    found = newton(f, np.ones((4, 1)), absolute=np.ones((4, 1)), tol=1e-12, max_iter=50)
    np.testing.assert_allclose(found.point[:, 0], [2.0, 0.0, 0.0, -0.75], atol=1e-12)


def test_shrunk():
    np.testing.assert_array_equal(shrunk(np.array([3.0, -1.0, 0.5]), np.ones(3)), [2.0, 0.0, 0.0])


def test_solved__does_not_go_along_a_curvature_that_is_rounding() -> None:
    """Two intercepts of sure classes bend nothing together but for the last digits."""
    even = 1 - 4e-14
    A = np.array([[1.0, -even], [-even, 1.0]])
    wanted, scale = np.full((2, 1), 3.0), np.ones((2, 1))
    assert np.abs(solved(lambda along: A @ along, wanted, scale, 0.01)).max() <= 3
