"""Weighted naive Bayes: the optimum by scipy, laws of the weights, and what rows may bring."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from comparing import close
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from refitting import random_rows
from scipy.optimize import minimize
from sklearn.utils.estimator_checks import parametrize_with_checks

import fastbayes as fb
from fastbayes.models.discrete.weighted_naive_bayes import Conditional
from fastbayes.scan import packed_rows

Floats = NDArray[np.float64]


def told(table: pa.Table, **options: Any) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Return the log prior, what naive Bayes hears of each row, column and class, and classes."""
    model = fb.NaiveBayes(numeric="mdl", **options).fit(table, "y", **weight_of(table))
    why = model.explain(table.select(model.schema_.names))
    return why.prior, why.contributions, np.searchsorted(model.classes_, table["y"].to_numpy())


def weight_of(table: pa.Table) -> dict[str, str]:
    return {"sample_weight": "w"} if "w" in table.column_names else {}


def losses(w: Floats, heard: tuple[Floats, Floats, NDArray[np.intp]]) -> Floats:
    """Return -ln P(y | x) of each row."""
    prior, said, y = heard
    score = prior + np.einsum("rjk,j->rk", said, w)
    return np.asarray(np.logaddexp.reduce(score, axis=1) - score[np.arange(len(y)), y])


def optimum(table: pa.Table, l2: float, **options: Any) -> tuple[float, Floats]:
    """Return the least value and the weights there, as scipy finds them."""
    heard = told(table, **options)
    share = table["w"].to_numpy() if "w" in table.column_names else np.ones(table.num_rows)

    def value(w: Floats) -> float:
        return float(share @ losses(w, heard) + l2 / 2 * ((w - 1) ** 2).sum())

    start = np.ones(heard[1].shape[1])
    found = minimize(value, start, method="BFGS", options={"gtol": 1e-7})
    return float(found.fun), np.asarray(found.x)


CASES: list[tuple[int, tuple[float, ...] | None, dict[str, Any]]] = [
    (1, None, {}),
    (2, (0.5, 1.0, 2.0), {}),
    (3, None, {"missing": "category", "alpha": 0.5}),
    (4, (1.0, 3.0), {"class_prior": "uniform", "unseen": "smooth"}),
    (5, None, {"alpha": "loo"}),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("seed", "weights", "options"), CASES)
def test_weights__are_the_optimum_that_scipy_finds(
    seed: int, weights: Any, options: dict[str, Any], classes: int, kernels: str
) -> None:
    table = random_rows(seed, 150, weights=weights, numeric=1)
    if classes == 2:
        table = table.filter(pa.compute.not_equal(table["y"], "alone"))
    model = fb.WeightedNaiveBayes(l2=0.5, **options).fit(table, "y", **weight_of(table))
    value, w = optimum(table, 0.5, **options)
    assert model.converged_
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    assert list(model.weights_) == list(model.schema_.names)
    np.testing.assert_allclose(list(model.weights_.values()), w, atol=1e-4)
    heard = told(table, **options)
    p = model.predict_proba(table.select(model.schema_.names))
    own = p[np.arange(len(p)), heard[2]]
    np.testing.assert_allclose(-np.log(own), losses(w, heard), atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(6, 60), st.sampled_from([0.0, 0.01, 1.0]))
@pytest.mark.filterwarnings("ignore:the weights did not converge")
def test_likelihood__is_never_below_that_of_naive_bayes(seed: int, n: int, l2: float) -> None:
    table = random_rows(seed, n, weights=(0.5, 1.0, 2.0))
    model = fb.WeightedNaiveBayes(l2=l2).fit(table, "y", sample_weight="w")
    heard, share = told(table), table["w"].to_numpy()
    w = np.array(list(model.weights_.values()))
    assert np.isfinite(w).all()
    before = float(share @ losses(np.ones(len(w)), heard))
    assert share @ losses(w, heard) <= before * (1 + 1e-12)
    assert model.objective_ <= before * (1 + 1e-12)


def test_weights_of_one__are_naive_bayes(kernels: str) -> None:
    table = random_rows(7, 80)
    X = table.drop_columns(["y"])
    model = fb.WeightedNaiveBayes().fit(table, "y")
    model._found = model._found._replace(weight=np.ones(len(model.weights_)))
    model._learned(model.statistics_)
    plain = fb.NaiveBayes().fit(table, "y")
    close(model.log_joint(X), plain.log_joint(X))
    close(model.predict_proba(X), plain.predict_proba(X))
    stiff = fb.WeightedNaiveBayes(l2=1e9).fit(table, "y")
    close(stiff.predict_proba(X), plain.predict_proba(X), 1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_derivatives__are_those_of_differences(classes: int, monkeypatch: Any) -> None:
    seen: list[Conditional] = []
    made = Conditional.__init__

    def note(self: Conditional, *told: Any) -> None:
        made(self, *told)
        seen.append(self)

    monkeypatch.setattr(Conditional, "__init__", note)
    table = random_rows(11, 90, weights=(1.0, 2.5))
    if classes == 2:
        table = table.filter(pa.compute.not_equal(table["y"], "alone"))
    fb.WeightedNaiveBayes(l2=0.25).fit(table, "y", sample_weight="w")
    (objective,) = seen
    rng = np.random.default_rng(0)
    w, direction = rng.normal(1, 0.5, (4, 1)), rng.normal(size=(4, 1))
    h = 1e-6
    up, down = (objective.value_gradient(w + s * h * direction) for s in (1, -1))
    gradient = objective.value_gradient(w)[1]
    assert (up[0] - down[0]) / (2 * h) == pytest.approx(float((gradient * direction).sum()), 1e-6)
    bent = objective.hessian_product(w)(direction)
    np.testing.assert_allclose((up[1] - down[1]) / (2 * h), bent, rtol=1e-5, atol=1e-6)
    unit = np.eye(4)
    diagonal = [objective.hessian_product(w)(unit[:, [j]])[j, 0] for j in range(4)]
    bound = objective.curvature(w)[:, 0]
    if classes == 2:
        # Compiled products have float32 in each row.
        np.testing.assert_allclose(bound, diagonal, rtol=1e-6)
    assert (bound > 0).all()


def repeated(n: int, seed: int, *, times: int = 5, classes: int = 2) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    heard = np.where(rng.random(n) < 0.6, y, rng.integers(0, classes, n))
    other = np.where(rng.random(n) < 0.4, y, rng.integers(0, classes, n))
    columns = {f"copy{j}": heard.astype(str) for j in range(times)}
    return pa.table({**columns, "other": other.astype(str), "y": y.astype(str)})


@pytest.mark.parametrize("classes", [2, 3])
def test_columns_that_repeat_share_one_weight(classes: int) -> None:
    train, new = (repeated(4000, seed, classes=classes) for seed in (1, 2))
    model = fb.WeightedNaiveBayes().fit(train, "y")
    w = model.weights_
    copies = [w[f"copy{j}"] for j in range(5)]
    np.testing.assert_allclose(copies, copies[0], rtol=1e-6)
    assert sum(copies) == pytest.approx(1, abs=0.1)
    assert w["other"] == pytest.approx(1, abs=0.15)
    weighed, plain = fb.evaluate(model, new), fb.evaluate(fb.NaiveBayes().fit(train, "y"), new)
    assert weighed.log_loss < 0.8 * plain.log_loss
    assert weighed.calibration_error < 0.2 * plain.calibration_error
    # As good as the model that was told which columns repeat.
    told = train.drop_columns([f"copy{j}" for j in range(1, 5)])
    best = fb.evaluate(fb.NaiveBayes().fit(told, "y"), new.select(told.column_names))
    assert weighed.log_loss == pytest.approx(best.log_loss, rel=5e-3)


def test_separable_rows__end_at_numbers() -> None:
    table = pa.table({"x": ["a", "b"] * 20, "z": ["p", "q"] * 20, "y": ["n", "p"] * 20})
    drawn = fb.WeightedNaiveBayes().fit(table, "y")
    assert drawn.converged_
    assert drawn.weights_["x"] == pytest.approx(drawn.weights_["z"])
    free = fb.WeightedNaiveBayes(l2=0).fit(table, "y")
    assert np.isfinite(list(free.weights_.values())).all()
    assert free.log_joint(table.drop_columns(["y"])).shape == (40, 2)
    with pytest.warns(fb.FastBayesWarning, match="did not converge in 1 steps.*raise `max_iter`"):
        short = fb.WeightedNaiveBayes(l2=0, max_iter=1).fit(table, "y")
    assert not short.converged_


def test_a_column_that_says_nothing_keeps_weight_one() -> None:
    table = random_rows(1, 60)
    table = table.append_column("same", pa.array(["s"] * 60))
    for l2 in (0.0, 1.0):
        model = fb.WeightedNaiveBayes(l2=l2).fit(table, "y")
        assert model.weights_["same"] == pytest.approx(1)


def test_explain__adds_up_to_the_log_joint(kernels: str) -> None:
    table = random_rows(5, 50, numeric=1)
    X = table.drop_columns(["y"])
    model = fb.WeightedNaiveBayes(missing="category").fit(table, "y")
    why = model.explain(X)
    close(why.contributions.sum(axis=1) + why.prior, model.log_joint(X))
    plain = fb.NaiveBayes(missing="category", numeric="mdl").fit(table, "y").explain(X)
    w = np.array([model.weights_[name] for name in why.features])
    close(why.contributions, plain.contributions * w[:, None])


def test_threads_and_reading_again_change_no_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = repeated(70_000, 3, classes=3, times=3)
    pq.write_table(table, tmp_path / "t.parquet")
    together = fb.WeightedNaiveBayes().fit(table, "y")
    monkeypatch.setattr(packed_rows, "_equal_rows", lambda *_: None)
    one, two = (fb.WeightedNaiveBayes(threads=t).fit(table, "y") for t in (1, 2))
    assert one.weights_ == two.weights_
    with caplog.at_level(logging.INFO, "fastbayes"):
        again = fb.WeightedNaiveBayes(memory_limit=100_000).fit(tmp_path / "t.parquet", "y")
    assert "they are read in every pass" in caplog.text
    stream = fb.WeightedNaiveBayes().fit(table.to_reader(), "y")
    for other in (together, again, stream):
        for name, weight in one.weights_.items():
            assert other.weights_[name] == pytest.approx(weight, rel=1e-6)


def test_trace__tells_the_way_down() -> None:
    model = fb.WeightedNaiveBayes().fit(repeated(500, 1), "y")
    _, objective, norm, passes = model.trace_.T
    assert (np.diff(objective) <= 0).all()
    assert (np.diff(passes) > 0).all()
    assert model.n_iter_ == len(model.trace_) - 1
    assert norm[-1] == model.gradient_norm_ <= model.tol
    assert objective[-1] == model.objective_


def test_comes_back_from_a_file(tmp_path: Path) -> None:
    table = random_rows(2, 100, numeric=1)
    model = fb.WeightedNaiveBayes(alpha="loo", class_prior="uniform").fit(table, "y")
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.predict_proba(table).tobytes() == model.predict_proba(table).tobytes()
    for name in ("weights_", "converged_", "n_iter_", "objective_", "alpha_", "n_parameters_"):
        assert getattr(again, name) == getattr(model, name)


def test_k_fold_and_calibration_take_it() -> None:
    table = repeated(300, 5)
    figures = fb.k_fold(fb.WeightedNaiveBayes(), table, "y", folds=3)
    assert figures.log_loss < fb.k_fold(fb.NaiveBayes(), table, "y", folds=3).log_loss
    assert fb.Calibrated(fb.WeightedNaiveBayes()).fit(table, "y").validation_ == "k_fold"
    with pytest.raises(fb.SchemaError, match="leave_one_out takes counts apart"):
        fb.leave_one_out(fb.WeightedNaiveBayes(), fb.count(table, "y"), table)


def test_it_has_a_name__in_comparisons_and_on_the_command_line(tmp_path: Path) -> None:
    table = repeated(300, 5)
    board = fb.compare(table, "y", models=["naive-bayes", "weighted-naive-bayes"], folds=3)
    assert board.best.name == "weighted-naive-bayes"
    pq.write_table(table, tmp_path / "t.parquet")
    told = ["--model", "weighted-naive-bayes", "--l2", 0.5, "--alpha", "loo"]
    run("fit", tmp_path / "t.parquet", "--target", "y", "-o", tmp_path / "m.fb", *told)
    expected = fb.WeightedNaiveBayes(l2=0.5, alpha="loo").fit(table, "y")
    assert fb.load(tmp_path / "m.fb").weights_ == expected.weights_


def test_adapt_prior__keeps_the_weights() -> None:
    table = repeated(1000, 6)
    model = fb.WeightedNaiveBayes().fit(table, "y")
    new = table.filter(pa.compute.equal(table["y"], "1")).drop_columns(["y"])
    moved = model.adapt_prior(new)
    assert moved.weights_ == model.weights_
    assert moved.class_log_prior_[1] > model.class_log_prior_[1]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": 0}, "alpha=0: use a finite number > 0"),
        ({"alpha": -1}, "alpha=-1"),
        ({"l2": -1}, "l2=-1: use a finite number >= 0"),
        ({"tol": 0}, "tol=0: use a finite number > 0"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"missing": "mean"}, "missing='mean'"),
    ],
)
def test_misuse_is_told(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fb.WeightedNaiveBayes(**params).fit(random_rows(1), "y")


@pytest.mark.parametrize("name", ["partial_fit", "fit_statistics", "log_evidence", "sample"])
def test_what_it_has_not_says_why(name: str) -> None:
    with pytest.raises(AttributeError, match=r"WeightedNaiveBayes (learns|models)"):
        getattr(fb.WeightedNaiveBayes(), name)


@pytest.mark.filterwarnings("ignore:there is only one class")
@parametrize_with_checks([fb.WeightedNaiveBayes(), fb.WeightedNaiveBayes(discretize="quantile")])
def test_common_checks(estimator: Any, check: Any) -> None:
    check(estimator)
