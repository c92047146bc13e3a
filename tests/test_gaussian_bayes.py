"""GaussianBayes against hand calculations and an oracle in exact fractions; its laws; hard data."""

from __future__ import annotations

import decimal
import itertools
import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from comparing import close
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.gaussian import GaussianBayes as Oracle
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fastbayes as fb
from fastbayes.core.errors import DataError, FastBayesWarning, SchemaError

COVARIANCES = ["full", "tied", "diagonal", "spherical"]
SAID = ("ignore:the covariance of", "ignore:column .* hardly varies", "ignore:there is only one")
every_covariance = pytest.mark.parametrize("covariance", COVARIANCES)


pytestmark = pytest.mark.usefixtures("kernels")


def rows(seed: int = 0, n: int = 60, p: int = 3, k: int = 3) -> tuple[Any, Any]:
    """Return classes that differ in mean and covariance."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    turn = rng.normal(size=(k, p, p)) + 1.5 * np.eye(p)
    X = np.einsum("rij,rj->ri", turn[y], rng.normal(size=(n, p))) + 1.5 * y[:, None]
    return X, np.array(list("abcdefgh"))[y]


# By hand


def test_four_points__quadratic() -> None:
    # Of a the mean is (1, 1), the covariance ((1, 0), (0, 1)); of b (4, 0), ((4, 0), (0, 1)).
    X = np.array([[0, 0], [0, 2], [2, 0], [2, 2], [2, -1], [2, 1], [6, -1], [6, 1]], float)
    model = fb.GaussianBayes().fit(X, list("aaaabbbb"))
    close(model.mean_, [[1, 1], [4, 0]])
    close(model.covariance_, [[[1, 0], [0, 1]], [[4, 0], [0, 1]]])
    expected = [-2 / 2 - math.log(4 * math.pi), -math.log(2) - 16 / 8 - math.log(4 * math.pi)]
    close(model.log_joint([[0, 0]]), [expected])
    assert model.n_parameters_ == 1 + 4 + 6


def test_four_points__linear() -> None:
    X = np.array([[0, 0], [0, 2], [2, 0], [2, 2], [2, -1], [2, 1], [6, -1], [6, 1]], float)
    model = fb.GaussianBayes(covariance="tied").fit(X, list("aaaabbbb"))
    close(model.covariance_, [[2.5, 0], [0, 1]])
    # The log odds are linear: (3, -1) W (x - (2.5, 0.5)).
    x = np.array([[0.0, 0], [5, 3], [2.5, 0.5]])
    close(model.decision_function(x), (x - [2.5, 0.5]) @ [3 / 2.5, -1.0])
    assert model.n_parameters_ == 1 + 4 + 3


def test_student__one_column_by_hand() -> None:
    # kappa_n = 3, nu_n = 5, mean_n = 2/3 * 2; scale_n = 1 + 2 + (2/3) 4.
    prior = {"mean": [0.0], "kappa": 1, "nu": 3, "scale": [1.0]}
    model = fb.GaussianBayes(prior=prior).fit([[1.0], [3.0], [1.0], [3.0]], list("aabb"))
    close(model.mean_, [[4 / 3]] * 2)
    close(model.dof_, [5, 5])
    close(model.covariance_, np.full((2, 1, 1), (1 + 2 + 8 / 3) * 4 / (3 * 5)))
    scale, t = (1 + 2 + 8 / 3) * 4 / 15, 2 - 4 / 3
    density = math.gamma(3) / math.gamma(2.5) / math.sqrt(5 * math.pi * scale)
    density *= (1 + t * t / scale / 5) ** -3
    close(np.exp(model.log_joint([[2.0]])), [[density / 2] * 2])


def test_student__a_scale_of_0_leaves_a_column_out() -> None:
    X, y = rows()
    without = fb.GaussianBayes(prior={"scale": [1.0, 2.0], "nu": 5}).fit(X[:, [0, 2]], y)
    for scale in ([1.0, 0, 2], np.diag([1.0, 0, 2])):
        model = fb.GaussianBayes(prior={"scale": scale, "nu": 5}).fit(X, y)
        close(model.log_joint(X), without.log_joint(X[:, [0, 2]]), 1e-9)
        assert model.constant_ == ["x1"]


# Against the oracle


@dataclass
class Problem:
    """A table to fit, how, and the rows to ask about."""

    rows: list[list[float]]
    classes: list[str]
    weights: list[float] | None
    options: dict[str, Any] = field(default_factory=dict)
    asked: list[list[float]] = field(default_factory=list)

    def fit(self) -> tuple[fb.GaussianBayes, Oracle]:
        oracle = Oracle(**self.options).fit(self.rows, self.classes, self.weights)
        model = fb.GaussianBayes(**self.options)
        model.fit(np.array(self.rows), self.classes, sample_weight=self.weights)
        return model, oracle


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    p = draw(st.integers(1, 3))
    n, k = draw(st.integers(5, 16)), draw(st.integers(1, 3))
    scales = draw(st.lists(st.sampled_from([1, 1e-3, 1e6]), min_size=p, max_size=p))
    cell = st.integers(-6, 6)
    whole = draw(st.lists(st.lists(cell, min_size=p, max_size=p), min_size=n, max_size=n))
    if p > 1 and draw(st.booleans()):
        whole = [[*row[:-1], 2 * row[0]] for row in whole]  # columns that depend on each other
    numbers = [[x * s for x, s in zip(row, scales, strict=True)] for row in whole]
    holes = draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, p - 1)), max_size=3))
    # Rows that are complete, a class each.
    for r, j in holes:
        if r >= 2 * k:
            numbers[r][j] = math.nan
    classes = [*"abc"[:k], *"abc"[:k]]
    classes += draw(st.lists(st.sampled_from("abc"[:k]), min_size=n, max_size=n))
    classes = classes[:n]
    weight = st.sampled_from([0.5, 1, 2, 3.5])
    weights = draw(st.none() | st.lists(weight, min_size=n, max_size=n))
    problem = Problem(numbers, classes, weights)
    problem.options = draw(options(scales, len(set(classes))))
    problem.asked = [*numbers, [math.nan] * p, [7.5 * s for s in scales]]
    return problem


@st.composite
def options(draw: st.DrawFn, scales: list[float], k: int) -> dict[str, Any]:
    p = len(scales)
    result: dict[str, Any] = {
        "covariance": draw(st.sampled_from(COVARIANCES)),
        "missing": draw(st.sampled_from(["marginalize", "impute_mean"])),
        "class_prior": draw(st.sampled_from([None, "uniform", "empirical", "given"])),
    }
    if result["class_prior"] == "given":
        result["class_prior"] = [0.5**i for i in range(1, k)] + [0.5 ** (k - 1)]
    matrices = result["covariance"] in ("full", "tied")
    if matrices and draw(st.booleans()):
        scale = [2.0 * s * s for s in scales]
        given = {"kappa": 0.5, "nu": p + 0.5, "mean": list(scales), "scale": scale}
        names = draw(st.sets(st.sampled_from([*given])))
        result["prior"] = {name: given[name] for name in names} or "niw"
        return result
    result["ddof"] = draw(st.sampled_from([0, 1]))
    result["var_floor"] = draw(st.sampled_from([1e-9, 0.01]))
    if matrices:
        result["shrinkage"] = draw(st.sampled_from([None, 0.25, "auto"]))
        result["singular"] = draw(st.sampled_from(["pool", "shrink", "diagonal"]))
    else:
        result["missing"] = "impute_mean"  # the columns' own counts are for another oracle
    return result


@pytest.mark.filterwarnings(*SAID)
@given(problems())
@settings(max_examples=30)
def test_random_tables__answers(problem: Problem) -> None:
    model, oracle = problem.fit()
    asked = np.array(problem.asked)
    joint = np.array([oracle.log_joint(row) for row in problem.asked])
    close(model.log_joint(asked), joint, 1e-7)
    proba = model.predict_proba(asked)
    close(proba, [oracle.posterior(row) for row in problem.asked], 1e-7)
    assert np.abs(proba.sum(axis=1) - 1).max() <= 1e-12
    explained = model.explain(asked)
    expected = [
        [[told[c] for c in oracle.classes] for told in oracle.contributions(row)]
        for row in problem.asked
    ]
    close(explained.contributions, expected, 1e-6)
    close(explained.contributions.sum(axis=1) + explained.prior, model.log_joint(asked), 1e-9)
    if "prior" not in problem.options and model.covariance in ("full", "tied"):
        close(model.shrinkage_, [float(oracle.share[c]) for c in oracle.classes], 1e-9)
        assert model.variance_floored_ == [f"x{j}" for j in sorted(oracle.floored)]
    assert model.constant_ == [f"x{j}" for j in oracle.constant]


@pytest.mark.parametrize(
    "options",
    [{"covariance": c} for c in COVARIANCES]
    + [{"covariance": c, "prior": "niw"} for c in COVARIANCES[:2]],
)
def test_epoch_seconds__keep_full_precision(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 300)
    X = 1.7e9 + (rng.integers(-64, 65, (300, 2)) + 20 * y[:, None]) / 64
    X[:, 1] += np.round(X[:, 0] - 1.7e9, 1)
    oracle = Oracle(**options).fit(X.tolist(), y.tolist())
    model = fb.GaussianBayes(**options).fit(X, y)
    asked = X[:20]
    close(model.log_joint(asked), [oracle.log_joint(row) for row in asked.tolist()], 1e-9)
    if options["covariance"] == "tied":
        Z = model.transform(X)
        means = np.array([Z[y == c].mean(axis=0) for c in (0, 1)])
        close(np.exp(model.class_log_prior_) @ means, [0], 1e-7 if len(options) == 1 else 1e-3)


@every_covariance
def test_missing_values__are_integrated_out(covariance: str) -> None:
    X, y = rows()
    for prior in (None, "niw") if covariance in ("full", "tied") else (None,):
        model = fb.GaussianBayes(covariance=covariance, prior=prior).fit(X, y)
        grid = np.linspace(-400, 400, 400_001)
        some = np.column_stack([np.full(len(grid), 1.25), grid, np.full(len(grid), -0.5)])
        whole = np.exp(model.log_joint(some)).sum(axis=0) * (grid[1] - grid[0])
        close(np.exp(model.log_joint([[1.25, np.nan, -0.5]])), [whole], 1e-6)
        close(model.log_joint([[np.nan] * 3]), [model.class_log_prior_])
        close(model.predict_proba([[np.nan] * 3]), [np.exp(model.class_log_prior_)])


# Laws


@every_covariance
@pytest.mark.parametrize("prior", [None, "niw"])
def test_any_batching__is_one_fit(covariance: str, prior: Any) -> None:
    if prior and covariance in ("diagonal", "spherical"):
        return
    X, y = rows(1, 80)
    X[5, 1] = X[40, 0] = np.nan
    X += 1.7e9
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    for missing in ("marginalize", "impute_mean"):
        told = {"covariance": covariance, "prior": prior, "missing": missing}
        whole, parts = fb.GaussianBayes(**told).fit(table, "y"), fb.GaussianBayes(**told)
        for some in np.array_split(np.random.default_rng(0).permutation(80), 5):
            parts.partial_fit(table.take(some), "y")
        close(parts.log_joint(table), whole.log_joint(table), 1e-9)
        first = fb.GaussianBayes(**told).fit(table.slice(0, 30), "y")
        rest = fb.GaussianBayes(**told).fit(table.slice(30), "y")
        less = fb.GaussianBayes(**told).fit_statistics(whole.statistics_ - first.statistics_)
        close(less.log_joint(table), rest.log_joint(table), 1e-7)


@pytest.mark.parametrize("covariance", ["full", "tied", "diagonal"])
@pytest.mark.parametrize("more", [{}, {"shrinkage": "auto"}, {"shrinkage": 0.3}, {"prior": "niw"}])
def test_units_and_order_of_columns__say_nothing(covariance: str, more: Any) -> None:
    if more and covariance == "diagonal":
        return
    X, y = rows(3)
    X[7, 2] = np.nan
    scale, order = np.array([1e-9, 1e9, 3.0]), [2, 0, 1]
    model = fb.GaussianBayes(covariance=covariance, **more)
    before, told = model.fit(X, y).predict_proba(X), model.explain(X).contributions.sum(axis=1)
    Z = (X * scale + scale)[:, order]
    after = model.fit(Z, y).predict_proba(Z)
    close(after, before, 1e-9)
    known = np.where(np.isnan(X), 1.0, scale)
    moved = told - np.log(known).sum(axis=1)[:, None]
    close(model.explain(Z).contributions.sum(axis=1), moved, 1e-9)


@every_covariance
def test_threads_and_files__change_nothing(covariance: str, tmp_path: Any) -> None:
    X, y = rows(4, 70_000)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    pa.parquet = pytest.importorskip("pyarrow.parquet")
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=9_000)
    one = fb.GaussianBayes(covariance=covariance, threads=1).fit(table, "y")
    two = fb.GaussianBayes(covariance=covariance, threads=2).fit(table, "y")
    np.testing.assert_array_equal(one.predict_proba(table), two.predict_proba(table))
    files = fb.GaussianBayes(covariance=covariance).fit(str(tmp_path / "t.parquet"), "y")
    close(files.log_joint(table), one.log_joint(table), 1e-9)


@every_covariance
@pytest.mark.parametrize("prior", [None, "niw"])
def test_samples__are_of_the_model(covariance: str, prior: Any) -> None:
    if prior and covariance in ("diagonal", "spherical"):
        return
    X, y = rows(5, 200)
    X[:, 2] -= 3 * X[:, 0]
    X[:, 1] = 3.0  # constant
    model = fb.GaussianBayes(covariance=covariance, prior=prior).fit(X, y)
    n = 40_000
    drawn = np.column_stack([model.sample(n, "b", seed=1)[f"x{j}"] for j in range(3)])
    scale = {
        "full": lambda m: m[1],
        "tied": lambda m: m if prior is None else m[1],
        "diagonal": lambda m: np.diag(m[1]),
        "spherical": lambda m: np.diag([m[1], 0, m[1]]),
    }[covariance](model.covariance_)
    dof = model.dof_[1]
    scale = scale * (1 if np.isinf(dof) else dof / (dof - 2))
    size = np.sqrt(np.diag(scale).max())
    close(drawn.mean(axis=0) / size, model.mean_[1] / size, 0.05)
    close(np.cov(drawn.T) / size**2, scale / size**2, 0.05)
    assert (drawn[:, 1] == 3.0).all()


@pytest.mark.parametrize("ddof", [0, 1])
def test_spherical__a_column_of_missing_values_weighs_as_its_numbers(ddof: int) -> None:
    X, y = rows(3, 120)
    X[:, 0] *= 9
    X[np.random.default_rng(0).random(len(X)) < 0.8, 0] = np.nan
    model = fb.GaussianBayes(covariance="spherical", ddof=ddof).fit(X, y)
    for c, label in enumerate(model.classes_):
        mine = X[y == label]
        known = (~np.isnan(mine)).sum(axis=0)
        scatter = np.nansum((mine - np.nanmean(mine, axis=0)) ** 2)
        close(model.covariance_[c], scatter / (known - ddof).sum())


# Discriminant axes


@pytest.mark.parametrize("prior", [None, "niw"])
@pytest.mark.parametrize("class_prior", [None, [0.2, 0.5, 0.3]])
def test_axes__have_unit_variance_within_and_none_together(prior: Any, class_prior: Any) -> None:
    X, y = rows(6, 4000, p=4)
    model = fb.GaussianBayes(covariance="tied", prior=prior, class_prior=class_prior).fit(X, y)
    Z = model.transform(X)
    assert Z.shape == (4000, 2)
    means = np.array([Z[y == c].mean(axis=0) for c in model.classes_])
    within = Z - means[np.searchsorted(model.classes_, y)]
    close(within.T @ within / len(Z), np.eye(2), 1e-9 if prior is None else 0.01)
    share = np.exp(model.class_log_prior_)
    close(share @ means, [0, 0], 1e-9 if prior is None else 1e-3)
    between = (share[:, None] * means).T @ means
    assert abs(between[0, 1]) < 1e-3 * between[1, 1]
    close(model.explained_variance_ratio_, np.diag(between) / np.trace(between), 1e-3)
    assert model.explained_variance_ratio_[0] > model.explained_variance_ratio_[1]
    close(model.fit_transform(X, y), Z)
    gap = X[:5].copy()
    gap[2, 1] = np.nan
    assert np.isnan(model.transform(gap)[2]).all()
    assert np.isfinite(model.transform(gap)[[0, 1, 3, 4]]).all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output__makes_frames_as_scikit_learn_does(library: str) -> None:
    X, y = rows(6, 60, p=4)
    frame = pd.DataFrame(X, index=range(100, 160), columns=list("abcd"))
    frame = frame if library == "pandas" else pl.from_pandas(frame)
    wanted = LinearDiscriminantAnalysis().set_output(transform=library).fit(frame, y)
    model = fb.GaussianBayes(covariance="tied").fit(frame, y)
    array = model.transform(frame)
    assert isinstance(array, np.ndarray)
    with sklearn.config_context(transform_output=library):
        general = model.transform(frame)
    pipeline = make_pipeline(StandardScaler(), clone(model)).set_output(transform=library)
    for found in (
        general,
        model.set_output(transform=library).transform(frame),
        clone(model).fit_transform(frame, y),
        pipeline.fit_transform(frame, y),
    ):
        assert type(found) is type(wanted.transform(frame))
        assert list(found.columns) == list(model.get_feature_names_out())
        assert np.allclose(np.abs(found), np.abs(array))
        if library == "pandas":
            assert found.index.equals(frame.index)
    assert list(model.get_feature_names_out()) == ["gaussianbayes0", "gaussianbayes1"]
    assert isinstance(model.set_output(transform="default").transform(frame), np.ndarray)
    assert model.set_output() is model
    with pytest.raises(ValueError, match=r"transform='panda': use one of .*'pandas'"):
        model.set_output(transform="panda")
    with pytest.raises(AttributeError, match="get_feature_names_out is of covariance='tied'"):
        fb.GaussianBayes().fit(X, y).get_feature_names_out()


def test_axes__of_few_rows_and_a_prior_are_in_units_of_the_expected_covariance() -> None:
    X, y = rows(6, 20, p=2)
    model = fb.GaussianBayes(covariance="tied", prior="niw").fit(X, y)
    n = np.array([(y == c).sum() for c in model.classes_])
    kappa, dof = 0.01 + n, model.dof_
    assert dof.tolist() == [2 + 2 + 20 - 2 + 1] * 3
    expected = model.covariance_ * (kappa * dof / (kappa + 1) / (dof - 2))[:, None, None]
    close(expected[1:], expected[:2])
    axes = np.linalg.inv(np.linalg.cholesky(expected[0]))
    within = model.transform(np.eye(2)) - model.transform(np.zeros((1, 2)))
    close(within.T @ expected[0] @ within, np.eye(2), 1e-9)
    assert axes.shape == within.shape


def test_axes__are_of_a_common_covariance_alone() -> None:
    model = fb.GaussianBayes().fit(*rows())
    assert not hasattr(model, "transform")
    with pytest.raises(AttributeError, match="transform is of covariance='tied', not 'full'"):
        model.transform(rows()[0])
    with pytest.raises(AttributeError, match="explained_variance_ratio_"):
        _ = model.explained_variance_ratio_


def test_axes__of_classes_that_do_not_differ_are_none() -> None:
    X = np.array([[0.0, 1], [1, 0], [0, 0], [1, 1]] * 2)
    model = fb.GaussianBayes(covariance="tied").fit(X, list("aaaabbbb"))
    assert model.transform(X).shape == (8, 0)
    assert len(model.explained_variance_ratio_) == 0


# Hard data


def hard_tables() -> dict[str, tuple[Any, Any]]:
    X, y = rows(7, 40, k=2)
    rng = np.random.default_rng(0)
    one = y.copy().astype(object)
    one[3] = "z"
    within, all_of_it = X.copy(), X.copy()
    within[y == "a", 1] = 5
    all_of_it[:, 1] = np.where(y == "a", 5, 6)
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    never = holes.copy()
    never[y == "a", 0] = np.nan
    return {
        "plain": (X, y),
        "one row": (X, one),
        "constant in a class": (within, y),
        "constant in every class": (all_of_it, y),
        "constant": (np.column_stack([X, np.ones(len(X))]), y),
        "wide": (rng.normal(size=(40, 60)), y),
        "duplicates": (np.column_stack([X, X[:, 0], 1e6 * X[:, 1] - 7]), y),
        "scales": (X * [1e-9, 1e9, 1.0], y),
        "scales, far": (X * [1e-9, 1e9, 1.0] + [1e-3, 1e15, 0], y),
        "missing": (holes, y),
        "never known in a class": (never, y),
        "two rows": (X[[0, list(y).index("b")]], ["a", "b"]),
        "one class": (X, ["a"] * len(X)),
        "one column": (X[:, :1], y),
    }


HARD = hard_tables()
# What is said of each by full and by tied covariances, and by variances of columns.
WORDS: dict[str, tuple[str, str, str]] = {
    "one row": ("class 'z' is singular", "", "within class 'z'"),
    "constant in a class": ("class 'a' is singular", "", "within class 'a'"),
    "wide": ("class 'a', 'b' is singular", "all classes together is singular", ""),
    "duplicates": ("class 'a', 'b' is singular", "all classes together is singular", ""),
    "never known in a class": ("'a' has no row without a missing", "'a' has no row without", ""),
    "one class": ("there is only one class", "there is only one class", "there is only one class"),
}


@pytest.mark.parametrize("name", HARD)
@every_covariance
@pytest.mark.parametrize("prior", [None, "niw"])
def test_hard_data__have_posteriors_and_one_warning(name: str, covariance: str, prior: Any) -> None:
    by_column = covariance in ("diagonal", "spherical")
    if prior and by_column:
        return
    X, y = HARD[name]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = fb.GaussianBayes(covariance=covariance, prior=prior).fit(X, y)
    expected = WORDS.get(name, ("", "", ""))[
        ["full", "tied"].index(covariance) if not by_column else 2
    ]
    if prior and name not in ("never known in a class", "one class"):
        expected = ""
    if covariance == "spherical" and name == "constant in a class":
        expected = ""
    assert len(said) == bool(expected)
    for warning in said:
        assert issubclass(warning.category, FastBayesWarning)
        assert expected in str(warning.message)
        assert warning.filename == __file__
    asked = np.concatenate([X, 1e3 * np.asarray(X), np.zeros((1, np.shape(X)[1]))])
    proba = model.predict_proba(asked)
    assert np.isfinite(proba).all()
    assert np.abs(proba.sum(axis=1) - 1).max() <= 1e-12
    assert np.isfinite(model.log_joint(X)).all()
    told = model.explain(X)
    close(told.contributions.sum(axis=1) + told.prior, model.log_joint(X), 1e-8)
    assert np.isfinite(model.transform(np.nan_to_num(X)) if covariance == "tied" else 0).all()


@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_singular__is_done_as_told(covariance: str) -> None:
    X, y = HARD["duplicates"]
    make = fb.GaussianBayes
    with pytest.warns(FastBayesWarning, match=r"it was shrunk towards its diagonal by 0\.\d"):
        shrunk = make(covariance=covariance, singular="shrink").fit(X, y)
    automatic = make(covariance=covariance, shrinkage="auto").fit(X, y)
    close(shrunk.shrinkage_, automatic.shrinkage_, 1e-9)
    assert (automatic.singular_, shrunk.singular_) == ([], ["a", "b"])
    with pytest.warns(FastBayesWarning, match="its correlations were dropped"):
        dropped = make(covariance=covariance, singular="diagonal").fit(X, y)
    assert (dropped.shrinkage_ == 1).all()
    whose = "all classes together" if covariance == "tied" else "class 'a'"
    with pytest.raises(DataError, match=f"{whose} is singular.* use singular='shrink'"):
        make(covariance=covariance, singular="error").fit(X, y)
    # The others keep theirs.
    alone = X.copy()
    alone[y == "b", 3] += np.random.default_rng(0).normal(size=(y == "b").sum())
    alone[y == "b", 4] += 1e6 * np.random.default_rng(1).normal(size=(y == "b").sum())
    if covariance == "full":
        with pytest.warns(FastBayesWarning, match="the covariance of class 'a' is singular"):
            some = make().fit(alone, y)
        close(some.covariance_[1], np.cov(alone[y == "b"].T, ddof=0), 1e-9)
        assert some.singular_ == ["a"]


def test_singular__takes_ten_rows_of_the_covariance_within_all_classes() -> None:
    for name, label in (("one row", "z"), ("constant in a class", "a")):
        X, y = HARD[name]
        with pytest.warns(FastBayesWarning, match=f"class {label!r} is singular.* merged with 10"):
            model = fb.GaussianBayes().fit(X, y)
        scatter = {c: np.cov(X[y == c].T, ddof=0) * (y == c).sum() for c in model.classes_}
        n = (y == label).sum()
        within = sum(scatter.values()) / len(y)
        at = model.classes_.tolist().index(label)
        close(model.covariance_[at], (scatter[label] + 10 * within) / (n + 10), 1e-9)
        assert (model.singular_, model.variance_floored_) == ([label], [])
        # The others are as they were, and all are as they were where there is an inverse.
        other = fb.GaussianBayes(singular="diagonal", var_floor=1e-9)
        with pytest.warns(FastBayesWarning):
            other.fit(X, y)
        close(np.delete(model.covariance_, at, 0), np.delete(other.covariance_, at, 0), 1e-12)


def test_nearly_singular__is_told_from_singular_by_correlations_alone() -> None:
    X, y = rows(8, 200, p=2, k=2)
    noise = np.random.default_rng(0).normal(size=200)
    for size, scale in itertools.product([1e-3, 1e-5], [1e-8, 1.0, 1e8]):
        Z = np.column_stack([X[:, 0], (X[:, 0] + size * noise) * scale])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            fb.GaussianBayes().fit(Z, y)
        assert len(said) == (size == 1e-5)


def test_shrinkage_of_very_many_rows__is_what_makes_an_inverse_possible() -> None:
    x = np.array([1.0, -1, 2, 0, 3, 1, 5, 2])
    X = np.column_stack([x, x, np.ones(8)])
    weight = np.full(8, 1e15)
    with pytest.warns(FastBayesWarning, match="it was shrunk towards its diagonal by 4e-09"):
        model = fb.GaussianBayes().fit(X, list("aaaabbbb"), sample_weight=weight)
    assert (model.shrinkage_ > 1e-9).all()
    assert np.isfinite(model.log_joint(X)).all()


def test_rank__is_relative_to_the_largest_eigenvalue() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1)) + 1.2e-4 * rng.normal(size=(2000, 60))
    low, high = np.linalg.eigvalsh(np.corrcoef(X.T))[[0, -1]]
    assert 1e-9 < low < 1e-9 * high
    with pytest.warns(FastBayesWarning, match="is singular"), pytest.warns(match="only one class"):
        fb.GaussianBayes().fit(X, ["a"] * 2000)


def test_automatic_shrinkage__is_by_formula() -> None:
    X, y = HARD["constant"]
    model = fb.GaussianBayes(shrinkage="auto", ddof=1).fit(X, y)
    one = y.astype(object)
    one[3] = "z"
    few = fb.GaussianBayes(shrinkage="auto", ddof=1).fit(X, one)
    p = 3

    def share(R: Any, n: int) -> float:
        squares = (R**2).sum()
        return min(1, ((1 - 2 / p) * squares + p * p) / ((n + 1 - 2 / p) * (squares - p)))

    expected = [share(np.corrcoef(X[y == c, :3].T), (y == c).sum()) for c in "ab"]
    close(model.shrinkage_, expected, 1e-9)
    within = sum(np.cov(X[one == c, :3].T) * ((one == c).sum() - 1) for c in "ab")
    root = np.sqrt(np.diag(within))
    close(few.shrinkage_[2], share(within / root / root[:, None], 40), 1e-9)


def test_variance_below_the_floor__is_raised_to_it() -> None:
    X, y = HARD["plain"]
    X = X.copy()
    X[y == "a", 1] = 5 + 1e-6 * X[y == "a", 1]
    with pytest.warns(FastBayesWarning, match="column 'x1' hardly varies within class 'a'"):
        model = fb.GaussianBayes(var_floor=1e-6, singular="shrink").fit(X, y)
    close(model.covariance_[0][1, 1], 1e-6 * X[:, 1].var(), 1e-9)
    correlated = np.cov(X[y == "a"].T, ddof=0)
    close(model.covariance_[0][0, 1], correlated[0, 1], 1e-9)


@every_covariance
def test_class_of_few_rows__takes_the_pooled_covariance(covariance: str) -> None:
    X, y = HARD["one row"]
    model = fb.GaussianBayes(covariance=covariance, ddof=1).fit(X, y)
    share = sum(np.cov(X[y == c].T) * ((y == c).sum() - 1) for c in "ab") / (len(X) - 3)
    expected = {
        "full": lambda: model.covariance_[2],
        "tied": lambda: model.covariance_,
        "diagonal": lambda: np.diag(model.covariance_[2]),
        "spherical": lambda: np.eye(3) * model.covariance_[2],
    }[covariance]()
    wanted = {"diagonal": np.diag(np.diag(share)), "spherical": np.eye(3) * np.trace(share) / 3}
    close(expected, wanted.get(covariance, share), 1e-9)
    close(model.mean_[2], X[3])


@every_covariance
def test_class_without_rows__takes_what_all_have(covariance: str) -> None:
    X, y = HARD["plain"]
    domains = {"class": ["a", "b", "none"]}
    model = fb.GaussianBayes(covariance=covariance, domains=domains, class_prior="uniform")
    model.fit(X, y)
    close(model.mean_[2], X.mean(axis=0), 1e-9)
    assert np.isfinite(model.log_joint(X)).all()
    empirical = fb.GaussianBayes(covariance=covariance, domains=domains).fit(X, y)
    assert (empirical.predict_proba(X)[:, 2] == 0).all()


def test_column_constant_in_every_class__is_remarked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "fastbayes"):
        model = fb.GaussianBayes().fit(*HARD["constant in every class"])
        fb.GaussianBayes().fit(*HARD["constant"])  # says nothing, but nobody meant it otherwise
    (said,) = [record.message for record in caplog.records]
    assert "column 'x1' is constant within every class" in said
    assert model.constant_ == ["x1"]
    assert (model.covariance_[:, 1] == 0).all()


def test_incomplete_rows__are_counted_and_left_out() -> None:
    X, y = HARD["missing"]
    gaps = np.isnan(X).any(axis=1)
    model = fb.GaussianBayes().fit(X, y)
    assert model.incomplete_.tolist() == [(gaps & (y == c)).sum() for c in "ab"]
    close(model.covariance_[0], np.cov(X[~gaps & (y == "a")].T, ddof=0), 1e-9)
    close(np.exp(model.class_log_prior_), [(y == "a").mean(), (y == "b").mean()])
    imputed = fb.GaussianBayes(missing="impute_mean").fit(X, y)
    filled = X.copy()
    for c in "ab":
        mine = X[y == c]
        filled[y == c] = np.where(np.isnan(mine), np.nanmean(mine, axis=0), mine)
    same = fb.GaussianBayes().fit(filled, y)
    close(imputed.covariance_, same.covariance_, 1e-9)
    close(imputed.log_joint(filled), same.log_joint(filled), 1e-9)
    assert not imputed.incomplete_.any()
    never, _ = HARD["never known in a class"]
    with pytest.warns(FastBayesWarning, match="the covariance of class 'a' is singular"):
        alone = fb.GaussianBayes(missing="impute_mean").fit(never, y)
    close(alone.mean_[0, 0], np.nanmean(never[y == "b", 0]), 1e-9)
    with pytest.raises(DataError, match="no row without a missing value; use missing='impute"):
        fb.GaussianBayes().fit(np.where(np.eye(3)[np.arange(40) % 3] > 0, np.nan, X), y)


@every_covariance
@pytest.mark.parametrize("prior", [None, "niw"])
def test_numbers_beyond_all_that_was_seen__have_posteriors(covariance: str, prior: Any) -> None:
    if prior and covariance in ("diagonal", "spherical"):
        return
    X, y = HARD["plain"]
    model = fb.GaussianBayes(covariance=covariance, prior=prior).fit(X, y)
    far = np.array([[1e300, 1e300, 1e300], [-1e308, 1e308, 1], [1e160, 0, 0], [np.nan, -1e200, 3]])
    proba, told = model.predict_proba(far), model.explain(far).contributions
    close(proba.sum(axis=1), np.ones(4))
    assert not np.isnan(told).any()
    if covariance in ("full", "tied"):
        assert np.isfinite(model.log_joint(far)).all()
        assert np.isfinite(told.sum(axis=1)).all()
    assert (told[3, 0] == 0).all()


def test_very_many_columns__have_exact_densities() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 120)), np.array(["a", "b"])[np.arange(500) % 2]
    model = fb.GaussianBayes().fit(X, y)
    expected = np.linalg.slogdet(np.cov(X[y == "a"].T, ddof=0))
    at_mean = model.log_joint(model.mean_[:1])[0, 0] - math.log(0.5)
    close(at_mean, -0.5 * (120 * math.log(2 * math.pi) + expected.logabsdet), 1e-9)
    deviation = X[0] - model.mean_[0]
    distance = deviation @ np.linalg.solve(model.covariance_[0], deviation)
    close(model.log_joint(X[:1])[0, 0] - math.log(0.5), at_mean - distance / 2, 1e-9)


def test_numbers_of_any_kind() -> None:
    X, y = HARD["plain"]
    X = np.round(X, 2)
    expected = fb.GaussianBayes().fit(X, y).predict_proba(X)
    for kind, tolerance in ((np.float32, 1e-4), (np.float16, 5e-2)):
        small = X.astype(kind)
        same = fb.GaussianBayes().fit(small.astype(float), y).predict_proba(small.astype(float))
        close(fb.GaussianBayes().fit(small, y).predict_proba(small), same, 1e-9)
        close(same, expected, tolerance)
    cells = {f"x{j}": [decimal.Decimal(f"{x:.2f}") for x in X[:, j]] for j in range(3)}
    close(fb.GaussianBayes().fit(pa.table(cells), y).predict_proba(pa.table(cells)), expected, 1e-9)
    whole = (100 * X).round().astype(np.int16)
    close(fb.GaussianBayes().fit(whole, y).predict_proba(whole), expected, 1e-9)


def test_truth_values__are_0_and_1_in_an_array_alone() -> None:
    X, y = HARD["plain"]
    flags = X > 1
    model = fb.GaussianBayes().fit(flags, y)
    close(
        model.predict_proba(flags), fb.GaussianBayes().fit(flags * 1.0, y).predict_proba(flags * 1)
    )
    frame = pd.DataFrame(
        {"u": X[:, 0], "flag": flags[:, 0], "word": np.where(flags[:, 1], "p", "q")}
    )
    for name in ("flag", "word"):
        with pytest.raises(SchemaError, match=f"column '{name}' is categorical.*JointGaussian"):
            fb.GaussianBayes().fit(frame[["u", name]], y)
    stats = fb.count(frame, pa.array(y), scatter=True)
    with pytest.raises(SchemaError, match=r"column 'flag' is categorical.*NaiveBayes"):
        fb.GaussianBayes().fit_statistics(stats)
    with pytest.raises(SchemaError, match="column 'u' is categorical"):
        fb.GaussianBayes(categorical=["u"]).fit(frame[["u"]], y)
    with pytest.raises(SchemaError, match="column 'v' holds no value at all; leave it out"):
        fb.GaussianBayes().fit(pa.table({"u": X[:, 0], "v": pa.nulls(40)}), y)
    with pytest.raises(SchemaError, match="hold no scatter; count again with scatter=True"):
        fb.GaussianBayes().fit_statistics(fb.count(frame[["u"]], pa.array(y)))


@every_covariance
def test_data_that_cannot_be_used__are_errors(covariance: str) -> None:
    X, y = rows()
    model = fb.GaussianBayes(covariance=covariance)
    with pytest.raises(DataError, match="column 'x1': squares of its values overflow; rescale it"):
        model.fit(X * [1, 1e200, 1], y)
    X[3, 1] = np.inf
    with pytest.raises(DataError, match="infinity"):
        model.fit(X, y)
    X, y = HARD["constant in a class"]
    bare = fb.GaussianBayes(covariance=covariance, var_floor=0)
    if covariance in ("full", "diagonal"):
        with pytest.raises(DataError, match=r"column 'x1' has variance 0 in .*raise var_floor"):
            bare.fit(X, y)
    else:
        assert np.isfinite(bare.fit(X, y).log_joint(X)).all()
    if covariance == "spherical":
        with pytest.raises(DataError, match=r"'x0' too, have variance 0 in .*raise var_floor"):
            bare.fit([[1.0], [1], [3], [4]], list("aabb"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"covariance": "round"}, "covariance='round': use one of"),
        ({"ddof": 2}, "ddof=2: use one of"),
        ({"ddof": True}, "ddof=True: use one of"),
        (
            {"shrinkage": 1.5},
            "shrinkage=1.5: use a finite number >= 0, 1 at most, or None, or 'auto'",
        ),
        ({"shrinkage": "oas"}, "shrinkage='oas'"),
        ({"shrinkage": True}, "shrinkage=True"),
        ({"singular": "drop"}, "singular='drop': use one of"),
        ({"var_floor": -1}, "var_floor=-1: use a finite number >= 0"),
        ({"missing": "category"}, "missing='category': use one of"),
        ({"class_prior": [1, 1, 0]}, "class_prior has shape"),
        ({"covariance": "diagonal", "shrinkage": 0.5}, "shrinkage is of covariance matrices"),
        ({"covariance": "spherical", "prior": "niw"}, "prior is of covariance matrices"),
        ({"prior": "niw", "ddof": 1}, "with a prior there is nothing to shrink"),
        ({"prior": "niw", "shrinkage": 0.5}, "with a prior there is nothing to shrink"),
        ({"prior": 3}, "prior=3: use None, 'niw' or a mapping"),
        ({"prior": {"means": [0]}}, "prior: there is no 'means'"),
        ({"prior": {"kappa": 0}}, "prior: kappa=0; use a finite number > 0"),
        ({"prior": {"nu": 2}}, "prior: nu=2; use a finite number > 2"),
        ({"prior": {"mean": [0.0]}}, "prior: mean is of shape"),
        ({"prior": {"scale": -np.eye(3)}}, "scale is not symmetric and positive definite"),
        ({"prior": {"scale": np.ones((3, 3))}}, "scale is not symmetric and positive definite"),
        ({"prior": {"scale": [1, 2]}}, "prior: scale is of shape"),
    ],
)
def test_parameters_that_cannot_be__are_errors(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        fb.GaussianBayes(**parameters).fit(*HARD["plain"])
