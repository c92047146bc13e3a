"""Calibration from held-out posteriors: laws, parity with scipy and scikit-learn, misuse."""

from __future__ import annotations

import itertools
import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn.naive_bayes
from hypothesis import given, settings
from hypothesis import strategies as st
from refitting import random_rows
from scipy.optimize import isotonic_regression, minimize_scalar
from scoring import evaluate_probabilities
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import fastbayes as fb
from fastbayes.evaluation.calibrate import calibration, posterior_maps
from fastbayes.evaluation.calibrate.posterior_maps import (
    CalibrationLosses,
    OddsBins,
    RowBuffer,
    Temperature,
    TemperatureLoss,
    grouped,
    least,
    log_odds,
    pooled,
    rising_share,
)

METHODS = ("temperature", "isotonic")
# Few rows of few values: covariances that are none.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the covariance of", "ignore:column .* hardly varies", "ignore:class 'alone' has no row"
)


def copies(n: int, seed: int = 0, *, classes: int = 2, times: int = 6) -> dict[str, Any]:
    """Return columns of which naive Bayes makes too much: the same one several times over."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    heard = np.where(rng.random(n) < 0.65, y, rng.integers(0, classes, n))
    other = np.where(rng.random(n) < 0.4, y, rng.integers(0, classes, n))
    table: dict[str, Any] = {f"copy{j}": heard.astype(str) for j in range(times)}
    return {**table, "other": other.astype(str), "y": np.array(list("nmpq"))[y]}


def rows_of(model: Any, table: Any, **options: Any) -> tuple[Any, Any]:
    """Return log posteriors by leave-one-out, and the class codes."""
    stats = fb.count(table, "y", **options)
    found = fb.leave_one_out(model, stats, table)
    y = np.searchsorted(found.classes, np.asarray(pa.table(table)["y"]))
    with np.errstate(divide="ignore"):
        return np.log(found.proba), y


def loss_at(power: float, s: Any, y: Any, w: Any = 1.0) -> float:
    scaled = s * power
    top = scaled.max(axis=1)
    total = top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))
    return float(np.sum(w * (total - scaled[np.arange(len(y)), y])))


# -- temperature -------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_temperature__is_the_optimum_that_scipy_finds(classes: int, kernels: str) -> None:
    table = copies(400, classes, classes=classes)
    model = fb.Calibrated(fb.NaiveBayes()).fit(table, "y")
    s, y = rows_of(fb.NaiveBayes(), table)

    def objective(power: float) -> float:
        return loss_at(power, s, y) + power - 1 - np.log(power)

    best = minimize_scalar(objective, bounds=(1e-3, 10), method="bounded", options={"xatol": 1e-9})
    assert 1 / model.calibration_.temperature == pytest.approx(best.x, rel=1e-6)
    assert model.log_loss_[0] == pytest.approx(loss_at(1, s, y) / 400, rel=1e-9)
    assert model.calibration_.temperature > 2


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 30.0]),
    st.booleans(),
)
def test_temperature__never_worsens_the_rows_it_was_learned_from(
    seed: int, n: int, classes: int, spread: float, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, classes)) * spread
    s -= np.logaddexp.reduce(s, axis=1)[:, None]
    s[rng.random(s.shape) < 0.05] = -np.inf
    y = rng.integers(0, classes, n)
    w = rng.integers(0, 4, n) / 2 if weighted else None

    def sums(power: float) -> TemperatureLoss:
        found = TemperatureLoss(power)
        found.update(s, y, w)
        return found

    found = least(sums, 1.0, 1e-8, 200)
    power = found.point
    assert found.converged
    assert 0 < power < np.inf
    assert sums(power).loss <= sums(1.0).loss
    assert sums(power).clipped <= sums(1.0).clipped
    at, step = sums(power), 1e-6 * power
    assert at.slope == pytest.approx(
        (sums(power + step).loss - sums(power - step).loss) / (2 * step),
        rel=1e-3, abs=1e-3 * (1 + abs(at.loss)),
    )  # fmt: skip


def test_temperature__of_rows_that_are_lost_anyway_takes_no_loss_from_the_others() -> None:
    s = np.log([[0.75, 0.25]] * 400 + [[1.0, 1e-90]])
    y = np.array(([0] * 3 + [1]) * 100 + [1])
    kept = RowBuffer(2)
    kept.update(s, y)
    found, _ = Temperature.learned(kept, lambda _: None, 2, 1e-8, 200)
    losses = CalibrationLosses(found)
    losses.update(s, y)
    before, after = losses.means()
    assert after <= before * (1 + 1e-12)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_calibrated__says_the_same_of_a_row_far_away_in_every_way(method: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    rows = {"x": rng.normal(size=200) + y, "y": np.array(["n", "p"])[y]}
    model = fb.Calibrated(fb.NaiveBayes(variance="shared"), method=method).fit(rows, "y")
    far = {"x": [-1e9, 1e6, 1e9]}
    log_posterior, posterior = model.predict_log_proba(far), model.predict_proba(far)
    np.testing.assert_allclose(np.exp(log_posterior), posterior, rtol=1e-12)
    odds = log_posterior[:, 1] - log_posterior[:, 0]
    np.testing.assert_array_equal(model.decision_function(far), odds)


def test_temperature__stays_where_it_is_best() -> None:
    s, y = np.log([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1])

    def sums(power: float) -> TemperatureLoss:
        found = TemperatureLoss(power)
        found.update(s, y)
        return found

    assert least(sums, 1.0, 1e-8, 200).point == pytest.approx(1.0, abs=1e-12)
    assert least(sums, 40.0, 1e-8, 200).point == pytest.approx(1.0, abs=1e-9)


def test_temperature__of_rows_that_are_all_told_apart_is_a_number() -> None:
    column = np.array(["a", "b"] * 50)
    model = fb.Calibrated().fit({"x": column, "z": column}, column)
    assert 0 < model.calibration_.temperature < 1
    p = model.predict_proba({"x": ["a"], "z": ["a"]})
    assert 0.99 < p[0, 0] < 1


def test_temperature__changes_no_prediction(kernels: str) -> None:
    table = random_rows(5, 300, numeric=2)
    plain = fb.TAN(discretize="quantile").fit(table, "y")
    model = fb.Calibrated(fb.TAN(discretize="quantile")).fit(table, "y")
    assert model.predict(table).tolist() == plain.predict(table).tolist()
    before, after = plain.predict_proba(table), model.predict_proba(table)
    assert (
        np.argsort(before, axis=1, kind="stable") == np.argsort(after, axis=1, kind="stable")
    ).mean() > 0.99
    power = 1 / model.calibration_.temperature
    expected = before**power
    np.testing.assert_allclose(after, expected / expected.sum(axis=1)[:, None], atol=1e-10)


@pytest.mark.parametrize("order", list(itertools.permutations("pqr")))
def test_what_ties_on_paper_goes_to_the_lowest_class(order: tuple[str, ...], kernels: str) -> None:
    # Each class hears the same three likelihoods, of other columns.
    shares = {"p": (9, 15), "q": (15, 19), "r": (19, 9)}
    table: dict[str, Any] = {
        name: [cell for n in shares[name] for cell in ["u"] * n + ["v"] * (20 - n)]
        for name in order
    }
    table["y"] = ["a"] * 20 + ["b"] * 20
    row = {name: ["u"] for name in order}
    model = fb.Calibrated().fit(table, "y")
    assert model.predict(row).tolist() == ["a"]
    assert model.predict_proba(row).tolist() == [[0.5, 0.5]]


# -- isotonic ----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.booleans())
def test_pooled__is_what_scipy_finds(seed: int, n: int, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    value = rng.integers(0, 3, n) / 2 if whole else np.cumsum(rng.normal(size=n))
    weight = rng.integers(1, 5, n).astype(float)
    level, size = pooled(value * weight, weight)
    expected = isotonic_regression(value, weights=weight).x
    np.testing.assert_allclose(np.repeat(level, size), expected, atol=1e-9)
    assert (np.diff(level) > 0).all()
    assert size.sum() == n


@pytest.mark.parametrize("n", [1, 2, 3, 5000])
def test_pooled__of_a_long_cascade(n: int) -> None:
    value = np.append(np.arange(n - 1, dtype=float), -(float(n) ** 2))
    level, size = pooled(value, np.ones(n))
    expected = isotonic_regression(value).x
    np.testing.assert_allclose(np.repeat(level, size), expected, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_isotonic__is_what_scikit_learn_finds(weighted: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-20, 20, 300) / 4
    member = rng.random(300) < 1 / (1 + np.exp(-x / 3))
    w = rng.integers(1, 9, 300) / 2 if weighted else np.ones(300)
    at, share = rising_share(*grouped(x, member, w))
    # One row more at either end.
    reference = IsotonicRegression(out_of_bounds="clip").fit(
        [*x, x.min(), x.max()], [*member, 1, 0], [*w, 1, 1]
    )
    new = np.linspace(-7, 7, 500)
    np.testing.assert_allclose(np.interp(new, at, share), reference.predict(new), atol=1e-7)
    assert 0 < share[0] <= share[-1] < 1


@pytest.mark.parametrize("classes", [2, 3])
def test_isotonic__is_curves_of_the_log_odds_by_leave_one_out(classes: int, kernels: str) -> None:
    table = copies(300, 1, classes=classes, times=3)
    model = fb.Calibrated(fb.NaiveBayes(), method="isotonic").fit(table, "y")
    s, y = rows_of(fb.NaiveBayes(), table)
    odds = s - np.log1p(-np.exp(s))
    plain = fb.NaiveBayes().fit(table, "y").predict_log_proba(table)
    new = plain - np.log1p(-np.exp(plain))
    share = []
    for c in range(classes):
        x = odds[:, c].round(9)  # what ties on paper
        curve = IsotonicRegression(out_of_bounds="clip").fit(
            [*x, x.min(), x.max()], [*(y == c), 1, 0]
        )
        share.append(curve.predict(new[:, c].round(9)))
    expected = np.array(share).T if classes > 2 else np.array([1 - share[1], share[1]]).T
    expected = expected / expected.sum(axis=1)[:, None]
    np.testing.assert_allclose(model.predict_proba(table), expected, atol=1e-6)


def test_isotonic__of_two_classes_turns_no_order_around() -> None:
    table = copies(500, 2)
    table["z"] = np.random.default_rng(1).normal(size=500) + (table["y"] == "n")
    before = fb.NaiveBayes().fit(table, "y").decision_function(table)
    after = fb.Calibrated(method="isotonic").fit(table, "y").predict_proba(table)[:, 1]
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= -1e-15).all()
    assert len(np.unique(after)) > 5


def test_isotonic__is_never_certain() -> None:
    column = np.array(["a", "b", "c"] * 30)
    model = fb.Calibrated(method="isotonic").fit({"x": column}, column)
    p = model.predict_proba({"x": ["a", "b", "c"]})
    assert ((p > 0) & (p < 1)).all()
    assert (p.argmax(axis=1) == [0, 1, 2]).all()


def test_log_odds__of_certain_classes_keep_their_digits() -> None:
    far = np.array([[0.0, -40.0, -50.0], [-1e5, 0.0, -np.inf], [np.log(0.5)] * 2 + [-np.inf]])
    far -= np.logaddexp.reduce(far, axis=1)[:, None]
    found = log_odds(far)
    assert found[0] == pytest.approx([-np.logaddexp(-40, -50), -40, -50], rel=1e-12)
    assert found[1] == pytest.approx([-1e5, 1e5, -(2.0**20)])
    assert found[2] == pytest.approx([0, 0, -(2.0**20)], abs=1e-12)
    assert log_odds(np.array([[np.log(0.25), np.log(0.75)]])) == pytest.approx(np.log(3))


# -- what calibration is for -------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("classes", [2, 3])
def test_error_of_repeated_columns_is_gone_in_new_rows(method: str, classes: int) -> None:
    train, new = (copies(3000, seed, classes=classes) for seed in (1, 2))
    plain = fb.evaluate(fb.NaiveBayes().fit(train, "y"), new)
    mapped = fb.evaluate(fb.Calibrated(method=method).fit(train, "y"), new)
    assert plain.calibration_error > 0.1
    # One number cannot mend that the other column is heard once.
    share = 0.5 if method == "temperature" else 0.2
    assert mapped.calibration_error < share * plain.calibration_error
    assert mapped.log_loss < 0.8 * plain.log_loss


MODELS = [
    fb.NaiveBayes(),
    fb.NaiveBayes(numeric="kde"),
    fb.TAN(),
    fb.AODE(),
    fb.KDB(),
    fb.A2DE(),
    fb.GaussianBayes(),
    fb.JointBayes(),
    fb.JointGaussian(),
    fb.NetworkClassifier(missing="category"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_every_model__sums_to_one_and_answers_alike(model: Any, method: str) -> None:
    table = random_rows(1, 120, numeric=2)
    if isinstance(model, fb.GaussianBayes):
        table = table.select(["z0", "z1", "y"])
    if isinstance(model, fb.JointBayes):
        table = table.drop_columns(["z0", "z1"])
    mapped = fb.Calibrated(model, method=method).fit(table, "y")
    p = mapped.predict_proba(table)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    assert np.isfinite(p).all()
    assert mapped.predict(table).tolist() == mapped.classes_[p.argmax(axis=1)].tolist()
    np.testing.assert_allclose(np.exp(mapped.predict_log_proba(table)), p, atol=1e-12)
    np.testing.assert_allclose(
        mapped.log_evidence(table), mapped.model_.log_evidence(table), atol=1e-9
    )
    own = fb.evaluate(mapped, table)
    assert own.n == table.num_rows
    if not isinstance(model, fb.A2DE):
        assert mapped.explain(table).contributions.shape[0] == table.num_rows
    assert mapped.decide(table, reject=0.2).expected_loss.max() <= 0.2


def test_weight_three_is_three_rows() -> None:
    table = pa.table(copies(60, 4, classes=3, times=2))
    w = np.random.default_rng(0).integers(0, 4, 60)
    thrice = table.take(np.repeat(np.arange(60), w))
    for method in METHODS:
        a = fb.Calibrated(method=method).fit(table, "y", sample_weight=w)
        b = fb.Calibrated(method=method).fit(thrice, "y")
        np.testing.assert_allclose(a.predict_proba(table), b.predict_proba(table), atol=1e-9)


def test_rows_impossible_under_every_class_get_the_prior(kernels: str) -> None:
    table = copies(200, 5)
    table["code"] = np.where(np.array(table["y"]) == "n", "a", "b")
    table["twin"] = table["code"]
    for method in METHODS:
        model = fb.Calibrated(fb.NaiveBayes(alpha=0), method=method).fit(table, "y")
        row = {k: [v[0]] for k, v in table.items()} | {"code": ["a"], "twin": ["b"]}
        np.testing.assert_allclose(
            model.predict_proba(row), [np.exp(model.model_.class_log_prior_)], atol=1e-12
        )
        assert np.isneginf(model.log_joint(row)).all()


@pytest.mark.parametrize("method", METHODS)
def test_log_loss__is_by_maps_of_other_rows(method: str) -> None:
    table = copies(73, 4, classes=3)
    model = fb.Calibrated(fb.NaiveBayes(), method=method).fit(table, "y")
    s, y = rows_of(fb.NaiveBayes(), table)
    part, lost = np.random.default_rng(0).permutation(73) % 10, 0.0
    for i in range(10):
        kept = RowBuffer(3)
        kept.update(s[part != i], y[part != i])
        found = posterior_maps.MAPS[method].learned(kept, None, 3, 1e-8, 200)[0]
        found(mapped := s[part == i].copy())
        lost -= mapped[np.arange(len(mapped)), y[part == i]].sum()
    assert model.log_loss_[1] == pytest.approx(lost / 73, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_log_loss__of_a_random_target_is_no_better_than_that_of_the_prior(method: str) -> None:
    gains = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        table = {f"c{i}": rng.integers(0, 3, 60).astype(str) for i in range(5)}
        y = rng.integers(0, 3, 60)
        model = fb.Calibrated(fb.NaiveBayes(), method=method).fit(table | {"y": y}, "y")
        gains.append(math.log(3) - model.log_loss_[1])
    assert np.mean(gains) < 0
    assert max(gains) < 0.05


def test_log_loss__of_many_rows_is_by_the_map_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    table = copies(400, 3)
    dealt = fb.Calibrated().fit(table, "y").log_loss_
    monkeypatch.setattr(calibration, "MOST_DEALT", 300)
    whole = fb.Calibrated().fit(table, "y")
    s, y = rows_of(fb.NaiveBayes(), table)
    power = 1 / whole.calibration_.temperature
    assert whole.log_loss_[1] == pytest.approx(loss_at(power, s, y) / 400, rel=1e-9)
    assert whole.log_loss_[0] == pytest.approx(dealt[0], rel=1e-12)
    assert whole.log_loss_[1] < dealt[1]


# -- where posteriors come from ----------------------------------------------------------------


def test_folds__are_those_of_k_fold() -> None:
    table = copies(300, 6, classes=3)
    model = fb.Calibrated(fb.TAN(), validation="k_fold", folds=5).fit(table, "y")
    assert model.validation_ == "k_fold"
    assert fb.k_fold(fb.TAN(), table, "y", folds=5).log_loss == pytest.approx(
        model.log_loss_[0], rel=1e-9
    )


def test_folds__where_there_is_no_leave_one_out(caplog: pytest.LogCaptureFixture) -> None:
    table = copies(100, 7)
    with caplog.at_level(logging.INFO, "fastbayes"):
        model = fb.Calibrated(fb.KDB(smoothing="hdp")).fit(table, "y")
    assert model.validation_ == "k_fold"
    assert "held out by k-fold: smoothing='hdp'" in caplog.text
    with pytest.raises(fb.SchemaError, match="smoothing='hdp'"):
        fb.Calibrated(fb.KDB(smoothing="hdp"), validation="leave_one_out").fit(table, "y")


def test_structure_that_rows_chose_stays_where_leave_one_out_is_asked_for() -> None:
    table = copies(100, 8)
    model = fb.SPODE(super_parent="loo")
    asked = fb.Calibrated(model, validation="leave_one_out").fit(table, "y")
    assert "structure" in asked.fixed_
    assert fb.Calibrated(model).fit(table, "y").fixed_ == ("schema",)


# Models whose leave-one-out keeps nothing learned from the classes of all rows, and others.
UNSUPERVISED = [
    fb.NaiveBayes(),
    fb.NaiveBayes(numeric={"z0": [0.0, 1.0]}),
    fb.SPODE(super_parent="x0", discretize="width"),
    fb.AODE(discretize="quantile"),
    fb.AODE(discretize={"z0": [0.0], "z1": ["quantile", 3]}, subsumption=30),
    fb.NetworkClassifier(
        network=[("y", name) for name in ("x0", "x1", "x2", "rare", "z0", "z1")],
        discretize="quantile",
    ),
]
SUPERVISED = [
    fb.NaiveBayes(numeric="mdl"),
    fb.NaiveBayes(numeric={"z0": [0.0, 1.0], "z1": "mdl"}),
    fb.NaiveBayes(numeric="student"),
    fb.NaiveBayes(numeric="kde"),
    fb.NaiveBayes(alpha="loo"),
    fb.SPODE(discretize="quantile"),
    fb.TAN(discretize="quantile"),
    fb.KDB(discretize="quantile"),
    fb.AODE(),
    fb.AODE(weights="mutual_information", discretize="quantile"),
    fb.AODE(select="leave_one_out", discretize="quantile"),
    fb.JointBayes(tau="loo", discretize="quantile"),
    fb.NetworkClassifier(discretize="quantile", missing="category"),
]


@pytest.mark.parametrize("model", [*UNSUPERVISED, *SUPERVISED], ids=repr)
def test_folds__where_something_was_learned_from_the_classes_of_all_rows(model: Any) -> None:
    mapped = fb.Calibrated(model, folds=3).fit(random_rows(1, 60, numeric=2), "y")
    assert mapped.validation_ == ("leave_one_out" if model in UNSUPERVISED else "k_fold")


WORDS = [fb.TAN(), fb.KDB(), fb.SPODE()]
DENSITIES = fb.NaiveBayes(numeric="auto")
NUMBERS = [
    DENSITIES,
    fb.NaiveBayes(numeric="mdl"),
    fb.AODE(),
    fb.AODE(discretize="quantile"),  # by leave-one-out: quantiles do not know the class
]


@pytest.mark.parametrize("model", [*WORDS, *NUMBERS], ids=repr)
def test_log_loss__of_a_coin_is_no_better_than_that_of_the_prior(model: Any) -> None:
    """What scores a row has learned nothing from its class (SEMANTICS, 10)."""
    gains = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, m = (120, 10) if model in WORDS else (60, 5 if model is DENSITIES else 60)
        draw = partial(rng.choice, [*"abcdefgh"]) if model in WORDS else partial(rng.normal, 0, 1)
        table = {f"c{i}": draw(n) for i in range(m)} | {"y": rng.permutation(np.arange(n) % 2)}
        gains.append(
            math.log(2) - np.array(fb.Calibrated(model, folds=5).fit(table, "y").log_loss_)
        )
    error = np.std(gains, axis=0, ddof=1) / math.sqrt(len(gains))
    assert (np.mean(gains, axis=0) < 2 * error).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_more_rows_than_are_kept__come_to_the_same(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = copies(1500, 9, classes=classes, times=4)
    table["z"] = np.random.default_rng(2).normal(size=1500)
    whole = {m: fb.Calibrated(method=m).fit(table, "y") for m in METHODS}
    monkeypatch.setattr(posterior_maps, "MOST_KEPT", 300)
    some = {m: fb.Calibrated(method=m).fit(table, "y") for m in METHODS}
    assert some["temperature"].calibration_.temperature == pytest.approx(
        whole["temperature"].calibration_.temperature, rel=1e-9
    )
    for method in METHODS:
        # Of what is not kept, it is the map of all rows that scores them.
        assert some[method].log_loss_ == pytest.approx(whole[method].log_loss_, rel=5e-2)
        apart = some[method].predict_proba(table) - whole[method].predict_proba(table)
        assert np.abs(apart).mean() < 2e-3


def test_bins__hold_what_rows_hold() -> None:
    rng = np.random.default_rng(0)
    s = rng.normal(size=(5000, 3)) * 4
    s -= np.logaddexp.reduce(s, axis=1)[:, None]
    y = rng.integers(0, 3, 5000)
    one, a, b = OddsBins(3), OddsBins(3), OddsBins(3)
    one.update(s, y)
    a.update(s[:2000], y[:2000])
    b.update(s[2000:], y[2000:])
    a.merge(b)
    for c, ((x, members, n), (_, other, _)) in enumerate(
        zip(one.curves(), a.curves(), strict=True)
    ):
        assert members.sum() == other.sum() == (y == c).sum()
        assert n.sum() == 5000
        assert (np.diff(x) > 0).all()


def test_kept__holds_the_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior_maps, "MOST_KEPT", 20)
    s = np.log(np.random.default_rng(0).dirichlet([1, 1], 15))
    whole, a, b = RowBuffer(2), RowBuffer(2), RowBuffer(2)
    whole.update(s, np.zeros(15, np.intp))
    a.update(s[:7], np.zeros(7, np.intp))
    b.update(s[7:], np.zeros(8, np.intp))
    a.merge(b)
    assert [whole.complete, a.complete] == [False, False]
    np.testing.assert_array_equal(whole.rows().log_posterior, s[:10])
    np.testing.assert_array_equal(a.rows().log_posterior, s[:10])


def test_threads_change_no_bit() -> None:
    table = pa.table(copies(70_000, 3, classes=3, times=2))
    for method in METHODS:
        found = {
            fb.Calibrated(fb.NaiveBayes(threads=t), method=method)
            .fit(table, "y").predict_proba(table.slice(0, 500)).tobytes()
            for t in (1, 3)
        }  # fmt: skip
        assert len(found) == 1


# -- models of arrays --------------------------------------------------------------------------


def words(n: int, seed: int) -> tuple[Any, Any]:
    """Return counts of words, each heard three times over, and classes of three."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    rates = np.array([[1.0, 0.6, 0.5, 0.8], [0.5, 1.0, 0.6, 0.8], [0.6, 0.5, 1.0, 0.8]])
    return np.tile(rng.poisson(rates[y]), (1, 3)), np.array(["p", "q", "r"])[y]


ARRAYS = [
    fb.MultinomialNB(),
    fb.ComplementNB(),
    fb.BernoulliNB(),
    fb.GaussianNB(),
    fb.CategoricalNB(),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", ARRAYS, ids=lambda m: type(m).__name__)
def test_models_of_arrays_are_calibrated_by_folds(model: Any, method: str, tmp_path: Path) -> None:
    X, y = words(3000, 1)
    mapped = fb.Calibrated(model, method=method, folds=5).fit(X, y)
    assert mapped.validation_ == "k_fold"
    p = mapped.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    plain = type(model)().fit(X, y)
    new, truth = words(3000, 2)
    new = np.minimum(new, X.max(axis=0))
    codes = np.searchsorted(plain.classes_, truth)
    before, after = (
        evaluate_probabilities(m.predict_proba(new), codes, m.classes_) for m in (plain, mapped)
    )
    assert before.log_loss == pytest.approx(mapped.log_loss_[0], abs=0.1)
    assert after.log_loss < before.log_loss
    if method == "temperature":
        assert mapped.log_loss_[1] <= mapped.log_loss_[0]
        assert mapped.predict(new).tolist() == plain.predict(new).tolist()
    if type(model) is not fb.ComplementNB:  # its scores are no log joint
        assert after.calibration_error < 0.5 * before.calibration_error
    mapped.save(tmp_path / "m.fb")
    assert fb.load(tmp_path / "m.fb").predict_proba(new).tobytes() == (
        mapped.predict_proba(new).tobytes()
    )
    own, said = plain.explain(new).contributions, mapped.explain(new)
    if method == "temperature":
        own = own / mapped.calibration_.temperature
    np.testing.assert_allclose(said.contributions, own)
    total = said.contributions.sum(axis=1) + said.prior + said.remainder
    np.testing.assert_allclose(total, mapped.log_joint(new), rtol=1e-9, atol=1e-9)
    with pytest.raises(fb.SchemaError, match="leave_one_out takes counts apart"):
        fb.Calibrated(model, validation="leave_one_out").fit(X, y)


def test_folds_of_arrays__are_models_of_the_other_rows() -> None:
    X, y = words(41, 3)
    w = np.random.default_rng(1).integers(0, 3, 41) / 2
    model = fb.Calibrated(fb.MultinomialNB(), folds=4).fit(X, y, sample_weight=w)
    random, lost, total = np.random.default_rng(0), 0.0, 0.0
    order = random.permuted(np.tile(np.arange(4), (11, 1)), axis=1).ravel()[:41]
    for f in range(4):
        rest = fb.MultinomialNB().fit(X[order != f], y[order != f], w[order != f])
        p = rest.predict_proba(X[order == f])
        own = p[np.arange(len(p)), np.searchsorted(rest.classes_, y[order == f])]
        lost, total = lost - w[order == f] @ np.log(own), total + w[order == f].sum()
    assert model.log_loss_[0] == pytest.approx(lost / total, rel=1e-12)


def test_sparse_rows_are_calibrated_as_dense_ones() -> None:
    X, y = words(200, 4)
    dense = fb.Calibrated(fb.MultinomialNB()).fit(X, y)
    sparse = fb.Calibrated(fb.MultinomialNB()).fit(scipy.sparse.csr_array(X), y)
    np.testing.assert_allclose(
        sparse.predict_proba(scipy.sparse.csr_array(X)), dense.predict_proba(X), atol=1e-9
    )
    with pytest.raises(fb.DataError, match="one sample is too few"):
        fb.Calibrated(fb.MultinomialNB()).fit(X[:1], y[:1])


# -- files, tools, misuse ----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", [None, fb.NaiveBayes(alpha="loo"), fb.TAN(root="x1")])
def test_comes_back_from_a_file(method: str, model: Any, tmp_path: Path) -> None:
    table = random_rows(2, 100, numeric=1)
    mapped = fb.Calibrated(model, method=method).fit(table, "y")
    mapped.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.predict_proba(table).tobytes() == mapped.predict_proba(table).tobytes()
    assert repr(again) == repr(mapped)
    for name in ("validation_", "fixed_", "log_loss_", "schema_", "statistics_"):
        assert getattr(again, name) == getattr(mapped, name)


@pytest.mark.parametrize("labels", [[0, 1], [-1, 1], [False, True], [0.5, 1.5], ["0", "1"]])
def test_class_weights__come_back_from_a_file_as_those_of_the_classes(
    labels: list[Any], tmp_path: Path
) -> None:
    table = {**copies(40), "y": labels * 20}
    given = fb.LogisticRegression(class_weight={labels[1]: 5.0}, interactions=[("copy0", "other")])
    calibrated = fb.Calibrated(given).fit(table, "y")
    for members in (given, [given, "tan"], {"of": given, "tree": "tan"}):
        blend = fb.Blend(members).fit(table, "y")
        blend.save(tmp_path / "b.fb", force=True)
        assert repr(fb.load(tmp_path / "b.fb").members) == repr(blend.members)
    calibrated.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    for model in (again.model, again.model_):
        ((label, weight),) = model.class_weight.items()
        assert (type(label), label, weight) == (type(labels[1]), labels[1], 5.0)
        assert model.interactions == [("copy0", "other")]
    assert repr(again) == repr(calibrated)


def test_predict_to__writes_what_predict_proba_says(tmp_path: Path) -> None:
    table = pa.table(copies(200, 1))
    model = fb.Calibrated(method="isotonic").fit(table, "y")
    fb.predict_to(model, table, tmp_path / "p.parquet", proba=True, explain=True)
    written = pa.parquet.read_table(tmp_path / "p.parquet")
    np.testing.assert_array_equal(written["proba_m"], model.predict_proba(table)[:, 0])
    assert written["prediction"].to_pylist() == model.predict(table).tolist()


def test_flags_are_the_numbers_that_they_are_to_the_model() -> None:
    flags = np.random.default_rng(0).random((60, 3)) < 0.5
    y = np.where(flags[:, 0] ^ (np.arange(60) % 5 == 0), "a", "b")
    model = fb.Calibrated(fb.GaussianBayes(covariance="diagonal")).fit(flags, y)
    np.testing.assert_array_equal(model.predict(flags), model.predict(flags.astype(float)))


def test_reads_a_file_as_it_reads_a_table(tmp_path: Path) -> None:
    table = pa.table(copies(500, 2))
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    a = fb.Calibrated().fit(table, "y")
    b = fb.Calibrated().fit(tmp_path / "t.parquet", "y")
    assert a.calibration_ == b.calibration_


def test_parameters_of_the_model_are_its_own() -> None:
    X, y = np.random.default_rng(0).integers(0, 3, (120, 4)), np.arange(120) % 2
    model = fb.Calibrated(fb.NaiveBayes())
    assert model.set_params(model__alpha=2.0, method="isotonic") is model
    assert model.get_params()["model__alpha"] == model.model.alpha == 2.0
    assert "model__alpha" not in model.get_params(deep=False)
    copy = clone(model)
    assert copy.model is not model.model
    assert copy.model.alpha == 2.0
    search = GridSearchCV(model, {"model__alpha": [0.5, 1.0], "method": METHODS}, cv=2).fit(X, y)
    assert search.best_estimator_.model_.alpha == search.best_params_["model__alpha"]
    with pytest.raises(ValueError, match="Invalid parameter"):
        fb.Calibrated().set_params(model__alpha=1)


def test_the_model_that_was_given_is_left_as_it_is() -> None:
    given = fb.NaiveBayes()
    model = fb.Calibrated(given).fit(copies(50), "y")
    assert not hasattr(given, "classes_")
    assert model.model is given


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "given", [None, fb.NaiveBayes(alpha=0), fb.TAN(), fb.AODE(), fb.LogisticRegression()]
)
def test_explain__sums_to_the_calibrated_log_joint(given: Any, method: str) -> None:
    table = random_rows(1, 120, numeric=2)
    mapped = fb.Calibrated(given, method=method).fit(table, "y")
    said, joint = mapped.explain(table), mapped.log_joint(table)
    total, possible = said.prior + said.contributions.sum(axis=1), np.isfinite(joint)
    np.testing.assert_allclose((total + said.remainder)[possible], joint[possible], atol=1e-9)
    assert np.isneginf((total + said.remainder)[~possible]).all()
    if method == "temperature":  # what columns say is all that tells the classes apart
        t, own = mapped.calibration_.temperature, mapped.model_.explain(table)
        assert t != 1
        np.testing.assert_allclose(said.contributions, own.contributions / t)
        np.testing.assert_allclose(said.prior, own.prior / t)
        assert (said.remainder == said.remainder[:, :1]).all()
    lines = said.table(3)
    assert lines["column"].to_pylist()[-1] == "(remainder)"
    if possible[3].all():
        shown = [sum(lines[f"contribution_{c}"].to_pylist()) for c in mapped.classes_]
        np.testing.assert_allclose(shown, joint[3] - joint[3].mean(), atol=1e-9)


def test_explain__of_rows_that_come_once_and_of_arrays() -> None:
    table = random_rows(1, 120, numeric=2)
    mapped = fb.Calibrated().fit(table, "y")
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    whole = mapped.explain(table.drop_columns(["y"]))
    assert np.array_equal(mapped.explain(stream).remainder, whole.remainder)
    X = table.select(["z0", "z1"]).to_pandas().to_numpy()
    numbers = fb.Calibrated().fit(X, np.array(table["y"]))
    said = numbers.explain(X)
    total = said.contributions.sum(axis=1) + said.prior + said.remainder
    np.testing.assert_allclose(total, numbers.log_joint(X), atol=1e-9)


def test_sample__is_the_models() -> None:
    model = fb.Calibrated().fit(copies(50), "y")
    assert model.sample(7, seed=1).equals(model.model_.sample(7, seed=1))


@pytest.mark.parametrize("given", [fb.LogisticRegression(), fb.WeightedNaiveBayes()])
def test_sample_and_log_evidence__are_there_where_the_model_has_them(given: Any) -> None:
    before = fb.Calibrated(given)
    after = fb.Calibrated(given).fit(copies(50), "y")
    for name in ("sample", "log_evidence"):
        for model in (before, after):
            with pytest.raises(AttributeError, match=f"{type(given).__name__} models P"):
                getattr(model, name)
        assert hasattr(fb.Calibrated, name)
        assert hasattr(fb.Calibrated(), name)
    assert hasattr(after, "predictor")
    assert not hasattr(fb.Calibrated(fb.MultinomialNB()).fit(*words(40, 0)), "predictor")


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"method": "platt"}, ValueError, "method='platt': use one of"),
        ({"validation": "test"}, ValueError, "validation='test'"),
        ({"folds": 1}, ValueError, "folds=1: use a whole number >= 2"),
        ({"model": sklearn.naive_bayes.GaussianNB()}, fb.SchemaError, "not GaussianNB; use sci"),
        ({"model": fb.NaiveBayes}, fb.SchemaError, "a model, not a class: NaiveBayes"),
    ],
)
def test_misuse_is_told(params: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fb.Calibrated(**params).fit(copies(20), "y")


def test_streams_and_statistics_are_refused() -> None:
    table = pa.table(copies(20))
    with pytest.raises(fb.SchemaError, match="can be read only once"):
        fb.Calibrated().fit(table.to_reader(), "y")
    with pytest.raises(AttributeError, match="Calibrated needs rows"):
        fb.Calibrated().fit_statistics(fb.count(table, "y"))
    with pytest.raises(AttributeError, match="from all rows at once"):
        fb.Calibrated().partial_fit(table, "y")
    with pytest.raises((fb.NotFittedError, NotFittedError)):
        fb.Calibrated().predict(table)


def by_folds(estimator: Any) -> dict[str, str]:
    """Return the checks that folds fail: two equal rows may be in two, a row of weight 2 is not."""
    kinds = ("dense", "sparse") if isinstance(estimator.model, fb.MultinomialNB) else ("dense",)
    if not isinstance(estimator.model, (fb.GaussianNB, fb.MultinomialNB)):
        return {}
    return {f"check_sample_weight_equivalence_on_{kind}_data": "folds" for kind in kinds}


@pytest.mark.filterwarnings("ignore:there is only one class")
@parametrize_with_checks(
    [
        fb.Calibrated(),
        fb.Calibrated(fb.NaiveBayes(), method="isotonic"),
        fb.Calibrated(fb.TAN(), method="isotonic", validation="leave_one_out"),
        fb.Calibrated(fb.GaussianNB()),
        fb.Calibrated(fb.MultinomialNB(), folds=3),
    ],
    expected_failed_checks=by_folds,
)
def test_common_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("model", [fb.Calibrated(), fb.Blend()])
def test_a_model_that_calibrates_already__is_refused(model: Any) -> None:
    with pytest.raises(fb.SchemaError, match=f"{type(model).__name__} is made of other models"):
        fb.Calibrated(model).fit({"a": ["u", "v"] * 9, "y": ["n", "p"] * 9}, "y")
