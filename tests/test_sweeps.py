"""Sweeps: every figure is that of fitting anew with one value of the parameter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn.naive_bayes
from hypothesis import given, settings
from hypothesis import strategies as st
from refitting import random_rows
from scoring import evaluate_probabilities

import fastbayes as fb
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.evaluation.curves.sweeps import ALPHAS, alpha_sweep, between, threshold_sweep

# -- alpha -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, (0.5, 1.0, 2.0)])
@pytest.mark.parametrize("kind", [fb.NaiveBayes, fb.TAN, fb.AODE, fb.SPODE, fb.KDB])
def test_alpha__leave_one_out_is_that_of_each_alpha(kind: Any, weights: Any) -> None:
    model = kind()
    table = random_rows(1, 60, weights=weights)
    weight = None if weights is None else "w"
    alphas = [0.0, 0.1, 1, 30]
    seen: list[int] = []
    sweep = alpha_sweep(model, table, "y", alphas, sample_weight=weight, progress=seen.append)
    assert sweep.method == "leave_one_out"
    stats = kind().fit(table, "y", sample_weight=weight).statistics_
    for alpha, log_loss, accuracy in zip(alphas, sweep.log_loss, sweep.accuracy, strict=True):
        like = kind(alpha=alpha)
        alone = fb.leave_one_out(like, stats, table, sample_weight=weight)
        assert (log_loss, accuracy) == (alone.log_loss, alone.accuracy)
        assert sweep.fixed == alone.fixed
    # One scan scores all; KDB counts in two.
    assert sum(seen) == 60 * (3 if kind is fb.KDB else 2)
    assert sweep.rows == pytest.approx(stats.n_rows)
    counted = stats if kind is fb.NaiveBayes else model.fit(table, "y", sample_weight=weight)
    again = alpha_sweep(counted, table, None, alphas, sample_weight=weight)
    np.testing.assert_array_equal(again.log_loss, sweep.log_loss)


def test_alpha__training_and_held_out() -> None:
    table, test = random_rows(2, 80, numeric=1), random_rows(3, 50, numeric=1)
    for method, rows in (("training", table), ("held_out", test)):
        told = {"test": test} if method == "held_out" else {"evaluate": method}
        sweep = alpha_sweep(fb.NaiveBayes(), table, "y", [0.1, 5], **told)
        assert sweep.method == method
        for alpha, log_loss, clipped in zip(
            sweep.values, sweep.log_loss, sweep.clipped, strict=True
        ):
            alone = fb.evaluate(fb.NaiveBayes(alpha=alpha).fit(table, "y"), rows)
            assert log_loss == pytest.approx(alone.log_loss, rel=1e-12)
            assert clipped == alone.clipped / alone.n
    labels = test["y"].to_numpy(zero_copy_only=False)
    beside = test.drop_columns(["y"]), labels
    with pytest.raises(SchemaError):
        alpha_sweep(fb.NaiveBayes(), table, "y", [1], test=beside[0])
    again = alpha_sweep(fb.NaiveBayes(), table, "y", [0.1, 5], test=beside)
    np.testing.assert_array_equal(again.log_loss, sweep.log_loss)


def test_alpha__best_and_what_it_says(tmp_path: Path) -> None:
    table = random_rows(5, 100)
    sweep = alpha_sweep(fb.NaiveBayes(), table, "y")
    assert sweep.values.tolist() == list(ALPHAS)
    assert sweep.best == sweep.values[sweep.log_loss.argmin()]
    assert sweep.accuracy[sweep.values == sweep.best_accuracy] == sweep.accuracy.max()
    told = json.loads(sweep.to_json())
    assert told["best"] == sweep.best
    assert told["values"] == sweep.table.to_pylist()
    lines = str(sweep).splitlines()
    assert lines[0] == "leave-one-out of 100 rows, schema fixed"
    (best,) = [line for line in lines if line.endswith("best")]
    assert float(best.split()[0]) == pytest.approx(sweep.best)
    figure = sweep.plot(tmp_path / "alpha.svg")
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), sweep.log_loss)
    assert (tmp_path / "alpha.svg").read_text("utf-8").startswith("<?xml")
    # Where all are as good, the smallest.
    flat = alpha_sweep(fb.NaiveBayes(), {"a": ["u", "u"], "y": ["n", "p"]}, "y", [3, 1, 2])
    assert flat.values.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"alphas": [-1.0]}, "alphas: -1 is negative"),
        ({"alphas": []}, "alphas: name one"),
        ({"alphas": [np.nan]}, "alphas: nan is no finite number"),
        ({"model": fb.GaussianBayes()}, "with an alpha, not GaussianBayes"),
        ({"model": fb.BernoulliNB()}, "a classifier of tables"),
        ({"model": fb.AODE(smoothing="m_estimate")}, "no effect with .*'m_estimate'.*by `m`"),
        ({"model": fb.NetworkClassifier(smoothing="bdeu")}, "no effect with .*'bdeu'.*by `ess`"),
        ({"evaluate": "cv"}, "evaluate='cv': use one of"),
        ({"evaluate": "held_out"}, "rows to test on go with"),
        ({"target": None}, "name their target"),
    ],
)
def test_alpha__refused(wrong: dict[str, Any], said: str) -> None:
    told = {"model": fb.NaiveBayes(), "source": random_rows(0), "target": "y", **wrong}
    with pytest.raises(ValueError, match=said):
        alpha_sweep(**told)


def test_alpha__other_rows_than_were_counted() -> None:
    stats = fb.count(random_rows(0, 30), "y")
    with pytest.raises(DataError, match="rows that the statistics were counted from"):
        alpha_sweep(stats, random_rows(0, 60))


def test_alpha__rows_that_can_be_read_once() -> None:
    table = random_rows(0, 30)
    for evaluate in ("leave_one_out", "training"):
        reader = table.to_reader()
        with pytest.raises(SchemaError, match="can be read only once, but alpha_sweep counts and"):
            alpha_sweep(fb.NaiveBayes(), reader, "y", evaluate=evaluate)
        # Where they are counted, or others are scored, once will do.
        counted = alpha_sweep(fb.count(table, "y"), reader, evaluate=evaluate)
        assert counted.table == alpha_sweep(fb.NaiveBayes(), table, "y", evaluate=evaluate).table
    held_out = alpha_sweep(fb.NaiveBayes(), table.to_reader(), "y", test=table)
    assert held_out.table == alpha_sweep(fb.NaiveBayes(), table, "y", test=table).table


@pytest.mark.parametrize("evaluate", ["leave_one_out", "training"])
def test_alpha__models_that_do_not_fit_together_are_scored_in_turn(evaluate: str) -> None:
    table, alphas = random_rows(4, 60), [0.1, 1, 10]
    whole = alpha_sweep(fb.TAN(), table, "y", alphas, evaluate=evaluate)
    model = fb.TAN(memory_limit=10_000).fit(table, "y")
    seen: list[int] = []
    alone = alpha_sweep(model, table, None, alphas, evaluate=evaluate, progress=seen.append)
    assert sum(seen) == 60 * len(alphas)
    assert alone.table == whole.table
    assert alone.fixed == whole.fixed
    with pytest.raises(SchemaError, match="only once, but the memory limit lets 1 of 3 models"):
        alpha_sweep(model, table.to_reader(), "y", alphas, evaluate=evaluate)


# -- thresholds ------------------------------------------------------------------------------------


def rows(seed: int, n: int = 60, *, weighted: bool = False) -> tuple[Any, Any, Any]:
    """Return numbers with ties and a constant column, three classes, and weights."""
    rng = np.random.default_rng(seed)
    y = rng.choice(["a", "b", "c"], n, p=[0.5, 0.4, 0.1])
    X = np.column_stack([rng.integers(0, 6, n), rng.exponential(size=n) + (y == "b"), np.ones(n)])
    return X, y, rng.choice([0.25, 1.0, 3.0, 0.0], n) if weighted else None


def left_one_out(model: Any, X: Any, y: Any, w: Any) -> Any:
    """Return figures by fitting anew without each row."""
    classes, codes = np.unique(y, return_inverse=True)
    w = np.ones(len(y)) if w is None else w
    proba = []
    for i in range(len(y)):
        less = w.copy()
        less[i] -= min(w[i], 1)
        some = less > 0
        fresh = type(model)(**model.get_params())
        fresh.partial_fit(X[some], y[some], classes=classes, sample_weight=less[some])
        proba.append(fresh.predict_proba(X[i : i + 1])[0])
    return evaluate_probabilities(np.array(proba), codes, classes, weight=w)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"alpha": 0.0}, {"alpha": [0.5, 2.0, 1.0]}, {"fit_prior": False},
     {"class_prior": [0.2, 0.3, 0.5], "alpha": 3.0}],
    ids=str,
)  # fmt: skip
def test_threshold__is_that_of_refitting(options: dict[str, Any], weighted: bool) -> None:
    X, y, w = rows(0, 40, weighted=weighted)
    thresholds = [0, 0.5, 1, 2.25, 5]
    told: dict[str, Any] = {"model": fb.BernoulliNB(**options), "sample_weight": w}
    loo = threshold_sweep(X, y, thresholds, **told)
    fit = threshold_sweep(X, y, thresholds, evaluate="training", **told)
    assert (loo.method, loo.fixed) == ("leave_one_out", ("classes",))
    codes = np.unique(y, return_inverse=True)[1]
    for i, t in enumerate(thresholds):
        model = fb.BernoulliNB(binarize=t, **options)
        alone = left_one_out(model, X, y, w)
        assert loo.log_loss[i] == pytest.approx(alone.log_loss, rel=1e-9)
        assert loo.accuracy[i] == pytest.approx(alone.accuracy, rel=1e-12)
        model.fit(X, y, w)
        same = evaluate_probabilities(model.predict_proba(X), codes, model.classes_, weight=w)
        assert fit.log_loss[i] == pytest.approx(same.log_loss, rel=1e-9)
        assert fit.accuracy[i] == pytest.approx(same.accuracy, rel=1e-12)
    n = (w > 0).sum() if weighted else 40
    assert loo.rows == pytest.approx(w.sum() if weighted else n)


def test_threshold__a_row_that_no_class_can_have_made_takes_the_prior_without_it() -> None:
    X, y = np.array([[1.0], [0], [0], [0], [0]]), np.array(list("aaabb"))
    model = fb.BernoulliNB(alpha=0.0)
    sweep = threshold_sweep(X, y, [0], model=model)
    alone = left_one_out(model, X, y, None)
    assert sweep.log_loss.item() == pytest.approx(alone.log_loss, rel=1e-12)


def test_threshold__is_that_of_scikit_learn_on_rows_held_out() -> None:
    X, y, _ = rows(1, 200)
    new, truth, _ = rows(2, 100)
    sweep = threshold_sweep(X, y, test=(new, truth))
    assert sweep.method == "held_out"
    codes = np.unique(truth, return_inverse=True)[1]
    for t, log_loss, accuracy in zip(sweep.values, sweep.log_loss, sweep.accuracy, strict=True):
        model = sklearn.naive_bayes.BernoulliNB(binarize=t).fit(X, y)
        alone = evaluate_probabilities(model.predict_proba(new), codes, model.classes_)
        assert log_loss == pytest.approx(alone.log_loss, rel=1e-9)
        assert accuracy == alone.accuracy


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=25))
def test_threshold__all_are_all_ways_to_cut(cells: list[tuple[int, bool]]) -> None:
    X, y = np.array([[x] for x, _ in cells], float), np.array([label for _, label in cells])
    if len({*y.tolist()}) < 2:
        return
    sweep = threshold_sweep(X, y, "all", evaluate="training")
    cuts = {tuple((X[:, 0] > t).tolist()) for t in sweep.values}
    if len(np.unique(X)) == 1:
        assert (len(sweep.values), sweep.features["threshold"].to_pylist()) == (1, [None])
        return
    assert len(cuts) == len(sweep.values) == len(np.unique(X)) - 1
    # Its own: the least uncertainty of the class, by brute force.
    entropies = []
    for cut in map(np.array, cuts):
        h = 0.0
        for side in (y[cut], y[~cut]):
            p = np.array([side.mean(), 1 - side.mean()])
            h -= len(side) / len(y) * sum(q * np.log(q) for q in p if q)
        entropies.append(h)
    (own,) = sweep.features.to_pylist()
    assert own["conditional_entropy"] == pytest.approx(min(entropies), abs=1e-12)
    assert own["information"] >= 0
    # A single feature: its own threshold is one of those that were tried.
    (at,) = np.flatnonzero(sweep.values == own["threshold"])
    assert sweep.separate.log_loss == pytest.approx(sweep.log_loss[at], rel=1e-12)


def test_threshold__each_feature_at_its_own() -> None:
    X, y, w = rows(3, 120, weighted=True)
    X = X - 1.5  # thresholds below 0 too, which scikit-learn has no parameter for
    frame = pd.DataFrame(X, columns=["ties", "spread", "same"])
    sweep = threshold_sweep(frame, y, sample_weight=w)
    told = {row["feature"]: row for row in sweep.features.to_pylist()}
    assert [*told] == ["ties", "spread", "same"]
    assert told["same"]["threshold"] is None
    assert told["same"]["information"] == pytest.approx(0, abs=1e-12)
    assert told["spread"]["information"] > told["ties"]["information"]
    alone = left_one_out(fb.BernoulliNB(binarize=None), sweep.binarized(frame), y, w)
    assert sweep.separate.log_loss == pytest.approx(alone.log_loss, rel=1e-9)
    assert sweep.separate.accuracy == pytest.approx(alone.accuracy, rel=1e-12)
    assert (sweep.values < 0).any()
    low = int(np.argmin(sweep.values))
    cut = (sweep.values[low] < X).astype(int)
    below = left_one_out(fb.BernoulliNB(binarize=None), cut, y, w)
    assert sweep.log_loss[low] == pytest.approx(below.log_loss, rel=1e-9)


def test_threshold__by_default_many_but_not_all() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(500, 2)), rng.integers(0, 2, 500)
    sweep = threshold_sweep(X, y)
    assert 60 <= len(sweep.values) <= 64
    assert np.diff([np.mean(t < X) for t in sweep.values]).min() > -0.03
    assert len(threshold_sweep(X[:40], y[:40], "all").values) == 79


def test_threshold__threads_change_no_bit() -> None:
    X, y, w = rows(5, 300, weighted=True)
    a, b = (threshold_sweep(X, y, sample_weight=w, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(a.log_loss, b.log_loss)
    assert a.features.equals(b.features)


def test_threshold__numbers_between_neighbours() -> None:
    near = np.array([1.0, np.nextafter(1.0, 2)])
    assert between(near).tolist() == [1.0]
    huge = np.array([-1.7e308, 1.7e308])
    assert between(huge).tolist() == [0.0]


def test_threshold__what_it_says(tmp_path: Path) -> None:
    X, y, _ = rows(6)
    sweep = threshold_sweep(X, y)
    told = json.loads(sweep.to_json())
    assert told["parameter"] == "binarize"
    assert told["best"] == sweep.best
    assert told["features"] == sweep.features.to_pylist()
    assert told["separate"]["log_loss"] == sweep.separate.log_loss
    assert "each feature at its own: accuracy" in str(sweep)
    figure = sweep.plot(tmp_path / "t.png")
    assert figure.axes[0].get_xlabel() == "binarize"
    assert threshold_sweep(X, y, [1, 2, 3]).plot().axes[0].get_xscale() == "linear"
    wide = threshold_sweep(np.exp(3 * X), y, [0.5, 3, 1_000]).plot()
    assert wide.axes[0].get_xscale() == "symlog"
    zero = alpha_sweep(fb.NaiveBayes(), {"a": [True, False], "y": ["n", "p"]}, "y", [0.0]).plot()
    assert zero.axes[0].get_xscale() == "symlog"
    assert (tmp_path / "t.png").exists()
    table = pa.table({"x": X[:, 0], "z": X[:, 1], "y": y})
    assert threshold_sweep(table, "y").features["feature"].to_pylist() == ["x", "z"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"thresholds": "mdl"}, "thresholds='mdl': use numbers"),
        ({"thresholds": []}, "thresholds: name one"),
        ({"thresholds": [np.inf]}, "inf is no finite number"),
        ({"model": fb.GaussianNB()}, "takes a BernoulliNB"),
        ({"model": fb.BernoulliNB(alpha=-1)}, "alpha"),
        ({"evaluate": "held_out"}, "rows to test on go with"),
        ({"evaluate": "training", "test": ([[1]], ["a"])}, "rows to test on go with"),
        ({"test": 3}, r"test: give a tuple \(X, y\)"),
        ({"X": [[np.nan], [1.0]], "y": ["a", "b"]}, "NaN"),
        ({"X": [[1.0]], "y": ["a"]}, "leave-one-out takes two rows"),
        ({"sample_weight": np.zeros(60)}, "no rows of a weight above 0"),
    ],
)
def test_threshold__refused(wrong: dict[str, Any], said: str) -> None:
    X, y, _ = rows(7)
    with pytest.raises(ValueError, match=said):
        threshold_sweep(**{"X": X, "y": y, **wrong})


def test_threshold__sparse_is_refused() -> None:
    from scipy import sparse

    X, y, _ = rows(8)
    with pytest.raises(DataError, match=r"use X\.toarray\(\)"):
        threshold_sweep(sparse.csr_array(X), y)


def test_threshold_sweep__a_negative_threshold_is_that_of_indicators():
    X, y = np.array([[-6.0], [-5.0], [-4.0], [-3.0], [-4.2]]), [0, 0, 1, 1, 0]
    sweep = fb.threshold_sweep(X, y, test=(X, y))
    assert sweep.best < 0
    model = fb.BernoulliNB(binarize=None).fit(sweep.best < X, y)
    figures = sweep.table.to_pylist()[sweep.values.tolist().index(sweep.best)]
    assert figures["accuracy"] == model.score(sweep.best < X, y)
