"""Absolute values as a penalty so weak that nearly all coefficients of few rows count."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Saga

import fastbayes as fb


def table(seed, n, n_classes):
    """Return columns of values, some missing, and of numbers, all of which tell of the class."""
    random = np.random.default_rng(seed)
    y = random.integers(0, n_classes, n)
    columns = {}
    for j, size in enumerate((5, 8, 3)):
        code = np.where(random.random(n) < 0.4, (2 * y + j) % size, random.integers(0, size, n))
        said = random.random(n) >= 0.1 * (j == 1)
        columns[f"a{j}"] = [f"v{v}" if s else None for v, s in zip(code, said, strict=True)]
    for j in range(2):
        columns[f"x{j}"] = random.normal(size=n) + 0.5 * y
    return pl.DataFrame({**columns, "y": [f"c{v}" for v in y]}), y


def design(data, model):
    """Return the columns that coefficients are of, in their order."""
    X = []
    for feature, value in model.coef_names_:
        column = data[feature]
        said = column if value is None else (column == value).fill_null(False)
        X.append(said.cast(pl.Float64).to_numpy())
    return np.stack(X, axis=1)


def objective(X, y, coef, intercept, C):
    """Return losses and penalty, and the derivatives of the losses by coefficients."""
    margins = X @ coef.T + intercept
    joint = margins - logsumexp(margins, axis=1, keepdims=True)
    value = -joint[np.arange(len(y)), y].sum() + np.abs(coef).sum() / C
    away = np.exp(joint)
    away[np.arange(len(y)), y] -= 1
    return value, away.T @ X, away.sum(axis=0)


CASES = [(0, 87, 4, 290.0), (1, 178, 4, 796.0), (2, 71, 5, 30.0), (3, 82, 3, 100.0),
         (4, 250, 5, 1000.0)]  # fmt: skip


@pytest.mark.parametrize(("seed", "n", "n_classes", "C"), CASES)
def test_a_weak_penalty_of_absolute_values_converges(seed, n, n_classes, C):
    data, y = table(seed, n, n_classes)
    model = fb.LogisticRegression(penalty="l1", C=C, threads=1).fit(data, "y")
    assert model.converged_
    assert model.n_iter_ <= 50
    X, coef = design(data, model), model.coef_
    value, pull, level = objective(X, y, coef, model.intercept_, C)
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    near = 1e-5 * n  # tol is of the numbers in units of their deviation
    assert np.abs(level).max() < near
    assert (np.abs(pull) <= 1 / C + near).all()
    np.testing.assert_allclose(pull[coef != 0], -np.sign(coef[coef != 0]) / C, atol=near)


@pytest.mark.parametrize(("seed", "n", "n_classes", "C"), CASES[1:4])
def test_as_low_as_stochastic_gradients_get_in_a_long_run(seed, n, n_classes, C):
    data, y = table(seed, n, n_classes)
    model = fb.LogisticRegression(penalty="l1", C=C, threads=1).fit(data, "y")
    X = design(data, model)
    saga = Saga(solver="saga", l1_ratio=1, C=C, tol=1e-9, max_iter=10_000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it may well not be there yet
        saga.fit(X, y)
    reached = objective(X, y, saga.coef_, saga.intercept_, C)[0]
    assert model.objective_ <= reached * (1 + 1e-6)
