"""LogisticRegression against scikit-learn's on one-hot columns: one objective, one optimum."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Reference

import fastbayes as fb

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "tables"


def one_hot(table, numeric=()):
    """Return (n, P - 1) columns in the order of `coef_`, missing numbers at their mean."""
    parts = []
    for name, values in table.items():
        if name in numeric:
            continue
        seen = sorted({v for v in values if v is not None})
        parts += [[1.0 if v == value else 0.0 for v in values] for value in seen]
    for name in numeric:
        x = np.array([np.nan if v is None else v for v in table[name]], float)
        parts.append(np.where(np.isnan(x), np.nanmean(x), x))
    return np.array(parts).T


def reference(X, y, *, weight=None, **options):
    """Return scikit-learn's optimum, taken as far down as it goes."""
    solver = Reference(solver="newton-cholesky", tol=1e-12, max_iter=10_000, **options)
    with warnings.catch_warnings():  # at the last digit it says that it can go no further
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solver.fit(X, y, weight)


def objective(X, y, coef, intercept, C, weight=None):
    """Return Σ w loss + |coef|²/(2C)."""
    classes, codes = np.unique(y, return_inverse=True)
    m = X @ coef.T + intercept
    if len(classes) == 2:
        m = np.column_stack([np.zeros(len(m)), m[:, 0]])
    top = m.max(axis=1)
    loss = top + np.log(np.exp(m - top[:, None]).sum(axis=1)) - m[np.arange(len(m)), codes]
    weight = np.ones(len(m)) if weight is None else weight
    return float(weight @ loss) + float((coef**2).sum()) / (2 * C)


def check(model, theirs, X, y, C, weight=None, *, atol=1e-4):
    assert model.converged_
    mine = objective(X, y, model.coef_, model.intercept_, C, weight)
    best = objective(X, y, theirs.coef_, theirs.intercept_, C, weight)
    assert mine == pytest.approx(best, abs=1e-6)
    assert model.objective_ == pytest.approx(mine, abs=1e-6)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=atol)
    intercept = theirs.intercept_
    if len(intercept) > 1:
        intercept = intercept - intercept.mean()
    np.testing.assert_allclose(model.intercept_, intercept, atol=10 * atol)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
@pytest.mark.parametrize("C", [0.05, 1.0, 50.0])
def test_numbers(load, C):
    X, y = load(return_X_y=True)
    theirs = reference(X, y, C=C)
    model = fb.LogisticRegression(C=C).fit(X, y)
    check(model, theirs, X, y, C, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


def generated(n, k, seed, scale=20.0, strength=1.0):
    random = np.random.default_rng(seed)
    table = {
        "a": random.integers(0, 4, n).astype(str).tolist(),
        "b": random.integers(0, 3, n).astype(str).tolist(),
        "c": [None if u < 0.1 else v for u, v in zip(
            random.random(n), random.integers(0, 5, n).astype(str).tolist(), strict=True)],
        "x": (random.normal(size=n) * scale + 5).tolist(),
        "z": [None if u < 0.1 else v for u, v in zip(
            random.random(n), random.normal(size=n).tolist(), strict=True)],
    }  # fmt: skip
    X = one_hot(table, ("x", "z"))
    m = X @ (random.normal(size=(X.shape[1], k)) / np.maximum(X.std(axis=0), 1e-9)[:, None])
    y = (strength * m + random.gumbel(size=m.shape)).argmax(axis=1)
    return table, X, np.array(["u", "v", "w", "t", "s"])[y]


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_mixed_columns_with_missing_values(k, weighted, scale):
    table, X, y = generated(400, k, k, scale)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(y)) if weighted else None
    if weighted:  # missing numbers count as the weighted mean
        z = np.array([np.nan if v is None else v for v in table["z"]], float)
        known = ~np.isnan(z)
        X[~known, -1] = np.average(z[known], weights=weight[known])
    model = fb.LogisticRegression(C=2.0).fit(table, y, sample_weight=weight)
    check(model, reference(X, y, C=2.0, weight=weight), X, y, 2.0, weight)


@pytest.mark.parametrize("k", [2, 3])
def test_class_weights(k):
    table, X, y = generated(300, k, 5)
    given = {"u": 3.0, "v": 0.5}
    for class_weight in ("balanced", given):
        model = fb.LogisticRegression(class_weight=class_weight).fit(table, y)
        theirs = reference(X, y, class_weight=class_weight)
        np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-4)


def test_balanced_with_sample_weights():
    table, X, y = generated(300, 3, 6)
    del table["z"]
    weight = np.random.default_rng(1).uniform(0.2, 3, len(y))
    model = fb.LogisticRegression(class_weight="balanced").fit(table, y, sample_weight=weight)
    totals = {label: weight[y == label].sum() for label in np.unique(y)}
    factor = {label: weight.sum() / (len(totals) * total) for label, total in totals.items()}
    w = weight * np.array([factor[label] for label in y])
    np.testing.assert_allclose(model.coef_, reference(X[:, :-1], y, weight=w).coef_, atol=1e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_interactions(k):
    table, X, y = generated(500, k, 7)
    del table["c"], table["z"]
    X = one_hot(table, ("x",))
    both = [f"{a}:{b}" for a, b in zip(table["a"], table["b"], strict=True)]
    X = np.column_stack([X, one_hot({"ab": both})])
    model = fb.LogisticRegression(interactions=[("a", "b")]).fit(table, y)
    check(model, reference(X, y), X, y, 1.0)
    assert model.coef_names_[-1] == (("a", "b"), ("3", "2"))


def test_missing_as_a_category():
    table, _, y = generated(400, 3, 8)
    del table["z"]
    told = {**table, "c": ["none" if v is None else v for v in table["c"]]}
    theirs = reference(one_hot(told, ("x",)), y)
    model = fb.LogisticRegression(missing="category").fit(table, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-4)
    assert ("c", None) in model.coef_names_
    scored = fb.LogisticRegression().fit(told, y).predict_proba(told)
    np.testing.assert_allclose(model.predict_proba(table), scored, atol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("C", [0.02, 0.3])
def test_l1(k, C):
    table, X, y = generated(400, k, 9, scale=1.0)
    theirs = Reference(l1_ratio=1.0, C=C, solver="saga", tol=1e-9, max_iter=100_000).fit(X, y)
    model = fb.LogisticRegression("l1", C=C, tol=1e-8).fit(table, y)
    assert model.converged_

    def value(coef, intercept):
        return objective(X, y, coef, intercept, np.inf) + np.abs(coef).sum() / C

    mine = value(model.coef_, model.intercept_)
    assert mine <= value(theirs.coef_, theirs.intercept_) + 1e-6
    assert model.objective_ == pytest.approx(mine, rel=1e-12)
    # The conditions of the optimum, which saga meets to a few digits only.
    proba = model.predict_proba(table) - np.eye(k)[np.unique(y, return_inverse=True)[1]]
    pull = (proba.T @ X)[1 if k == 2 else 0 :]
    assert np.abs(proba.sum(axis=0)).max() <= 1e-5
    assert (np.abs(pull) <= 1 / C + 1e-5).all()
    moved = model.coef_ != 0
    np.testing.assert_allclose(pull[moved], -np.sign(model.coef_[moved]) / C, atol=1e-4)
    assert 0 < moved.sum() < moved.size or C < 0.1


@pytest.mark.parametrize("k", [2, 3])
def test_no_penalty(k):
    table, X, y = generated(2000, k, 2, strength=0.2)
    model = fb.LogisticRegression(None).fit(table, y)
    theirs = Reference(C=np.inf, tol=1e-10, max_iter=10_000, solver="newton-cg").fit(X, y)
    assert model.converged_
    np.testing.assert_allclose(model.predict_proba(table), theirs.predict_proba(X), atol=1e-5)
    mine = objective(X, y, model.coef_, model.intercept_, np.inf)
    assert mine <= objective(X, y, theirs.coef_, theirs.intercept_, np.inf) + 1e-6


@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs", "conjugate_gradient"])
@pytest.mark.parametrize("init", ["naive_bayes", "zeros"])
@pytest.mark.parametrize("k", [2, 3])
def test_solvers_and_beginnings_agree(solver, init, k):
    table, X, y = generated(300, k, 11)
    # Differences of values are rounding before derivatives are: scipy's line searches need values.
    tol = 1e-6 if solver == "conjugate_gradient" else 1e-7
    model = fb.LogisticRegression(solver=solver, init=init, tol=tol, max_iter=1000).fit(table, y)
    check(model, reference(X, y), X, y, 1.0)


def test_plain_gradient_ascent():
    table, X, y = generated(300, 2, 12, scale=1.0)
    model = fb.LogisticRegression(solver="gradient", tol=1e-5, max_iter=20_000).fit(table, y)
    np.testing.assert_allclose(model.coef_, reference(X, y).coef_, atol=1e-2)
    given = fb.LogisticRegression(solver="gradient", learning_rate=0.5, tol=1e-4, max_iter=20_000)
    given.fit(table, y)
    assert given.converged_
    # The likelihood climbs.
    assert (np.diff(given.trace_[:, 1]) <= 1e-9).all()


def table_of(name):
    """Return the columns and the classes of a table, which may not be here."""
    path = DATA / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    table = pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(
        strings_can_be_null=True, null_values=["", "NA", "?"]))  # fmt: skip
    if name == "car":
        table = table.cast(pa.schema([(n, pa.string()) for n in table.schema.names]))
    numeric = [f.name for f in table.schema if not pa.types.is_string(f.type)]
    rows = table.to_pydict()
    y = np.array(rows.pop("class"))
    return rows, y, one_hot(rows, numeric)


@pytest.mark.parametrize("name", ["penguins", "car", "breast-cancer"])
def test_tables(name):
    rows, y, X = table_of(name)
    check(fb.LogisticRegression().fit(rows, y), reference(X, y), X, y, 1.0)
