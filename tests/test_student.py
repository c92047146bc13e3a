"""NaiveBayes(numeric="student"): normal densities whose mean and variance are integrated out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.integrate
import scipy.stats
from oracles import student as naive
from refitting import TARGET, WEIGHT, counted, random_rows, refitted
from test_densities import fitted, of_class, rows_of, terms

import fastbayes as fb

STUDENT: dict[str, Any] = {"numeric": "student"}


def one_column(seed: int, *, weights: bool = False, classes: str = "aaabbcd") -> pa.Table:
    """Return a few rows of a number, one class of one row and one of missing numbers alone."""
    rng = np.random.default_rng(seed)
    y = np.array([*classes, *rng.choice(["a", "b", "e"], 30)])
    x = rng.standard_t(2, len(y)) + (y == "a")
    gaps = (rng.random(len(y)) < 0.1) | (y == "d")
    columns = {"x": pa.array(x, mask=gaps & (y != "c")), "y": y}
    return pa.table(columns | ({"w": rng.choice([0.0, 0.3, 1.0, 2.5], len(y))} if weights else {}))


# -- what the density is -------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", ["x", "z"])
def test_density__is_that_of_the_oracle(kernels: str, name: str, weights: bool) -> None:
    table = rows_of(1, weights=weights)
    model = fitted(table, **STUDENT)
    assert model.numeric_ == {"x": "student", "z": "student"}
    classes = [of_class(table, name, label) for label in model.classes_]
    prior = naive.prior(classes)
    at = [*np.linspace(-6, 6, 40), 1e3, -1e9, 1e90]
    expected = [[naive.log_density(x, *own, prior) for own in classes] for x in at]
    np.testing.assert_allclose(terms(model, name, at), expected, rtol=1e-12, atol=1e-12)


def test_density__integrates_to_one_and_has_the_moments_it_says() -> None:
    table = rows_of(2, n=25)
    model = fitted(table, **STUDENT)
    numbers = model._class_numbers(0)
    for c in range(len(model.classes_)):

        def density(x: float, power: int = 0, c: int = c) -> float:
            return float(np.exp(terms(model, "x", [x])[0, c]) * x**power)

        def integral(power: int) -> float:
            return float(scipy.integrate.quad(density, -np.inf, np.inf, args=(power,))[0])

        mean = integral(1)
        assert integral(0) == pytest.approx(1, abs=1e-6)
        assert numbers.mean is not None
        assert numbers.deviation is not None
        assert numbers.mean[c] == pytest.approx(mean, abs=1e-6)
        assert numbers.deviation[c] ** 2 == pytest.approx(integral(2) - mean**2, rel=1e-2)


@pytest.mark.filterwarnings("ignore:.*no row without a missing value")
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("shift", [0.0, 1.7e9])
def test_one_column__is_gaussian_bayes_with_its_prior(
    kernels: str, weights: bool, shift: float
) -> None:
    for seed in range(3):
        table = one_column(seed, weights=weights)
        table = table.set_column(0, "x", pa.array(table["x"].to_pandas() + shift, from_pandas=True))
        weight = "w" if weights else None
        naive_bayes = fb.NaiveBayes(class_prior="empirical", **STUDENT)
        naive_bayes.fit(table, "y", sample_weight=weight)
        gaussian = fb.GaussianBayes(prior="niw").fit(table, "y", sample_weight=weight)
        rng = np.random.default_rng(seed)
        new = pa.table({"x": [*(shift + rng.normal(size=40) * 9), 0.0, 1e12, -1e90, None]})
        np.testing.assert_allclose(
            naive_bayes.log_joint(new), gaussian.log_joint(new), rtol=1e-11, atol=1e-9
        )
        np.testing.assert_allclose(
            naive_bayes.predict_proba(new), gaussian.predict_proba(new), atol=1e-9
        )
        left = [
            fb.leave_one_out(model, model.statistics_, table, sample_weight=weight)
            for model in (naive_bayes, gaussian)
        ]
        assert left[0].fixed == left[1].fixed == ("schema", "prior")
        np.testing.assert_allclose(left[0].proba, left[1].proba, atol=1e-8)


def test_very_many_rows__make_it_normal() -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 80_000)
    table = pa.table({"x": rng.normal(size=len(y)) * (1 + y), "y": y})
    new = pa.table({"x": np.linspace(-4, 4, 50)})
    student, normal = (fitted(table, numeric=kind) for kind in ("student", "gaussian"))
    np.testing.assert_allclose(student.log_joint(new), normal.log_joint(new), atol=5e-3)


def test_few_rows__are_worse_to_a_normal_density() -> None:
    """A class of a handful of rows: new rows lie far outside of a normal density of these."""
    losses: dict[str, list[float]] = {"student": [], "gaussian": []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        means, spreads = rng.normal(size=(3, 4)) * 1.5, rng.gamma(2.0, size=(3, 4))

        def table(n: int, rng: Any = rng, means: Any = means, spreads: Any = spreads) -> pa.Table:
            y = np.repeat(np.arange(3), n)
            x = means[y] + spreads[y] * rng.normal(size=(3 * n, 4))
            return pa.table({**dict(zip("stuv", x.T, strict=True)), "y": y})

        few, new = table(4), table(200)
        for kind, found in losses.items():
            found.append(fb.evaluate(fitted(few, numeric=kind), new).log_loss)
    assert np.mean(losses["student"]) < math.log(3)
    assert np.mean(losses["student"]) < np.mean(losses["gaussian"])


# -- columns of several kinds --------------------------------------------------------------------


def test_columns__each_have_their_own_kind(kernels: str) -> None:
    table = rows_of(4)
    kinds = {"x": "student"}
    both, student, normal = (
        fitted(table.select(names), numeric=kinds if "x" in names else "gaussian")
        for names in (["x", "z", "k", "y"], ["x", "k", "y"], ["z", "y"])
    )
    assert both.numeric_ == {"x": "student", "z": "gaussian"}
    assert both.mean_.shape == (1, 3)
    joint = normal.log_joint(table.select(["z"])) - normal.class_log_prior_
    joint = joint + student.log_joint(table.select(["x", "k"]))
    np.testing.assert_allclose(both.log_joint(table), joint, rtol=1e-12)
    assert both.n_parameters_ == 2 + 3 + 2 * 3 + 2 * 3


def test_statistics__need_no_sketches() -> None:
    table = rows_of(5)
    stats = fb.count(table, "y")
    assert "sketches" not in fb.count(table, "y", numeric="student").parts
    model = fb.NaiveBayes(**STUDENT).fit_statistics(stats)
    np.testing.assert_array_equal(model.log_joint(table), fitted(table, **STUDENT).log_joint(table))
    # What was added and taken away again is gone.
    more = fb.count(rows_of(6), "y")
    again = fb.NaiveBayes(**STUDENT).fit_statistics(stats + more - more)
    np.testing.assert_allclose(again.log_joint(table), model.log_joint(table), rtol=1e-9)


def test_constant_columns__say_nothing(kernels: str) -> None:
    x, y = [3.0] * 4 + [7.0] * 4, ["a"] * 4 + ["b"] * 4
    table = pa.table({"apart": x, "same": [1.0] * 8, "z": np.arange(8.0) ** 2, "y": y})
    model = fitted(table, **STUDENT)
    assert model.constant_ == ["apart", "same"]
    alone = fitted(table.select(["z", "y"]), **STUDENT)
    X = table.select(["z"])
    np.testing.assert_allclose(model.log_joint(table), alone.log_joint(X), rtol=1e-12)
    drawn = model.sample(5, "a", seed=0)
    assert drawn["apart"].to_pylist() == [3.0] * 5
    left = [fb.leave_one_out(m, m.statistics_, table).proba for m in (model, alone)]
    np.testing.assert_allclose(*left, atol=1e-12)


def test_squares__that_overflow_are_refused_by_name() -> None:
    table = pa.table({"z": [1.0, 2.0, 4.0], "x": [1e200, -1e200, 1.0], "y": ["a", "b", "b"]})
    with pytest.raises(fb.DataError, match="column 'x': squares of its values overflow; rescale"):
        fitted(table, **STUDENT)


def test_a_number_anywhere__has_finite_log_joints(kernels: str) -> None:
    table = pa.table({"x": [1e-300, 2e-300, 1.0, 5.0, 5.5], "y": ["a", "a", "a", "b", "b"]})
    model = fitted(table, **STUDENT)
    new = pa.table({"x": [1.7e308, -1.7e308, 0.0, 5e-324]})
    assert np.isfinite(model.log_joint(new)).all()
    # Far away the class of fewer degrees of freedom has the heavier tail.
    assert model.predict(new).tolist()[:2] == ["b", "b"]


# -- leave-one-out -------------------------------------------------------------------------------


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("weights", [None, (1.0, 2.5), (0.3, 1.0, 2.5)])
@pytest.mark.parametrize("numeric", ["student", {"z0": "student"}])
def test_leave_one_out__is_fitting_without_the_row(numeric: Any, weights: Any) -> None:
    for seed in range(3):
        model = fb.NaiveBayes(numeric=numeric)
        table = random_rows(seed, weights=weights, numeric=2)
        weight = WEIGHT if WEIGHT in table.column_names else None
        found = fb.leave_one_out(model, counted(table), table, sample_weight=weight)
        assert found.fixed == ("schema", "prior")
        np.testing.assert_allclose(found.proba, refitted(model, table), atol=1e-9)


def test_leave_one_out__of_a_row_that_is_nearly_all_the_scatter() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=40) * 1e-3
    x[[3, 4]] = 1e7, -3e6
    table = pa.table({"x": x, TARGET: np.array(["a", "b"])[np.arange(40) % 2]})
    model = fb.NaiveBayes(**STUDENT)
    found = fb.leave_one_out(model, counted(table), table)
    np.testing.assert_allclose(found.proba, refitted(model, table), atol=1e-9)


# -- samples, files, refusals --------------------------------------------------------------------


def test_sample__follows_the_density() -> None:
    model = fitted(rows_of(6, n=12), **STUDENT)
    c = model.classes_.tolist().index("a")
    drawn = model.sample(4_000, "a", seed=0)["x"].to_numpy()
    grid = np.linspace(-200, 200, 400_001)
    share = np.cumsum(np.exp(terms(model, "x", grid)[:, c])) * (grid[1] - grid[0])
    assert scipy.stats.kstest(drawn, lambda x: np.interp(x, grid, share)).pvalue > 1e-3
    assert model.sample(5, seed=1) == model.sample(5, seed=1)


def test_file__has_the_same_model(tmp_path: Path) -> None:
    table = rows_of(7)
    model = fitted(table, numeric={"z": "student"})
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.numeric_ == {"x": "gaussian", "z": "student"}
    np.testing.assert_array_equal(again.log_joint(table), model.log_joint(table))


def test_what_is_not_linear_or_likeliest__is_refused() -> None:
    with pytest.raises(ValueError, match="unlabelled='em' does not go with numeric='student'"):
        fb.NaiveBayes(unlabelled="em", **STUDENT).fit(rows_of(8), "y")
    model = fitted(rows_of(8), variance="shared", **STUDENT)
    with pytest.raises(fb.SchemaError, match="column 'x' has the density 'student', whose log odd"):
        model.to_logistic()
