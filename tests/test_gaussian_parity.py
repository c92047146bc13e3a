"""GaussianBayes against scikit-learn's discriminant analyses, where these are defined the same way.

Their tests of rank are absolute, so columns are standardised where their units are small.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest
from comparing import close
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.naive_bayes import GaussianNB

import fastbayes as fb

pytestmark = pytest.mark.usefixtures("kernels")


def standard(X: Any) -> Any:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def penguins() -> tuple[Any, Any]:
    path = Path(__file__).resolve().parents[2] / "shared" / "data" / "tables" / "penguins.csv"
    if not path.is_file():
        pytest.skip("no ../shared/data beside the repository")
    told = pyarrow.csv.ConvertOptions(null_values=["", "NA"])
    table = pyarrow.csv.read_csv(path, convert_options=told)
    names = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    X = np.column_stack([table[n].to_numpy() for n in names])
    known = ~np.isnan(X).any(axis=1)
    return X[known], np.array(table["class"].to_pylist())[known]


def generated() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 600)
    turn = rng.normal(size=(5, 7, 7)) + 2 * np.eye(7)
    return np.einsum("rij,rj->ri", turn[y], rng.normal(size=(600, 7))) + y[:, None], y


def cancer() -> tuple[Any, Any]:
    X, y = load_breast_cancer(return_X_y=True)
    return standard(X), y


TABLES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast-cancer": cancer,
    "penguins": penguins,
    "generated": generated,
}
every_table = pytest.mark.parametrize("name", TABLES)
every_prior = pytest.mark.parametrize("how", [None, "uniform", "given"])


def within_1(X: Any, y: Any) -> tuple[Any, Any]:
    """Return rows whose columns have variance 1 in each class."""
    for i, c in enumerate(np.unique(y)):
        X[y == c] = standard(X[y == c]) + 0.1 * i * np.arange(X.shape[1])
    return X, y


def same(model: Any, other: Any, X: Any) -> None:
    """Hold answers against scikit-learn's; its scores lack a term that all classes share."""
    close(model.predict_proba(X), other.predict_proba(X), 1e-8)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    ours, theirs = model.decision_function(X), other.decision_function(X)
    if ours.ndim == 2:
        ours, theirs = ours - ours[:, :1], theirs - theirs[:, :1]
    close(ours, theirs, 1e-8)


def prior_of(how: str | None, k: int) -> tuple[Any, Any]:
    """Return a class prior, as this library and as scikit-learn is told it."""
    uniform = np.full(k, 1 / k)
    weighed = np.arange(1, k + 1) / np.arange(1, k + 1).sum()
    return {None: (None, None), "uniform": ("uniform", uniform), "given": (weighed, weighed)}[how]


@every_table
@every_prior
@pytest.mark.parametrize("solver", ["svd", "eigen"])
def test_quadratic(name: str, how: str | None, solver: str) -> None:
    X, y = TABLES[name]()
    ours, theirs = prior_of(how, len(np.unique(y)))
    model = fb.GaussianBayes(class_prior=ours).fit(X, y)
    other = QuadraticDiscriminantAnalysis(
        solver=solver, priors=theirs, tol=1e-9, store_covariance=True
    ).fit(X, y)
    same(model, other, X)
    close(model.mean_, other.means_, 1e-9)
    close(model.covariance_, other.covariance_, 1e-8)


@every_table
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_quadratic__regularised_where_variances_are_1(name: str, share: float) -> None:
    X, y = within_1(*TABLES[name]())
    model = fb.GaussianBayes(shrinkage=share).fit(X, y)
    same(model, QuadraticDiscriminantAnalysis(reg_param=share).fit(X, y), X)
    eigen = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=share).fit(X, y)
    same(model, eigen, X)


@every_table
@pytest.mark.parametrize("solver", ["svd", "eigen", "lsqr"])
def test_linear(name: str, solver: str) -> None:
    X, y = TABLES[name]()
    model = fb.GaussianBayes(covariance="tied").fit(X, y)
    other = LinearDiscriminantAnalysis(solver=solver, tol=1e-9).fit(X, y)
    same(model, other, X)
    if solver == "lsqr":
        close(model.covariance_, other.covariance_, 1e-8)
        return
    ours, theirs = model.transform(X), other.transform(X)
    assert ours.shape == theirs.shape
    # Axes have no sign, and those of "eigen" no origin.
    ours = ours * np.sign((ours * (theirs - theirs.mean(axis=0))).sum(axis=0))
    close(ours - ours.mean(axis=0), theirs - theirs.mean(axis=0), 1e-8)
    if solver == "svd":
        close(ours, theirs, 1e-8)
    close(model.explained_variance_ratio_, other.explained_variance_ratio_, 1e-8)


@every_table
@every_prior
def test_linear__with_priors(name: str, how: str | None) -> None:
    X, y = TABLES[name]()
    ours, theirs = prior_of(how, len(np.unique(y)))
    model = fb.GaussianBayes(covariance="tied", class_prior=ours).fit(X, y)
    # Only "svd" leaves the covariance as the rows have it.
    other = LinearDiscriminantAnalysis(solver="svd", priors=theirs, tol=1e-9).fit(X, y)
    same(model, other, X)
    axes, others = model.transform(X), other.transform(X)
    close(np.abs(axes), np.abs(others), 1e-8)
    close(model.explained_variance_ratio_, other.explained_variance_ratio_, 1e-8)


@every_table
def test_linear__shrunk_where_variances_are_1(name: str) -> None:
    X, y = within_1(*TABLES[name]())
    model = fb.GaussianBayes(covariance="tied", shrinkage=0.25).fit(X, y)
    for solver in ("lsqr", "eigen"):
        other = LinearDiscriminantAnalysis(solver=solver, shrinkage=0.25).fit(X, y)
        same(model, other, X)


@every_table
def test_diagonal__is_gaussian_naive_bayes(name: str) -> None:
    X, y = TABLES[name]()
    model = fb.GaussianBayes(covariance="diagonal").fit(X, y)
    other = GaussianNB(var_smoothing=0).fit(X, y)
    close(model.predict_proba(X), other.predict_proba(X), 1e-8)
    close(model.log_joint(X), other.predict_joint_log_proba(X), 1e-8)
    close(model.covariance_, other.var_, 1e-8)


@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_divisor__of_earlier_versions_is_one_less(covariance: str) -> None:
    X, y = TABLES["iris"]()
    unbiased = fb.GaussianBayes(covariance=covariance, ddof=1).fit(X, y).covariance_
    biased = fb.GaussianBayes(covariance=covariance).fit(X, y).covariance_
    close(unbiased, biased * (50 / 49 if covariance == "full" else 150 / 147), 1e-9)
