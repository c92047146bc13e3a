"""Where one learning curve crosses another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fastbayes as fb

SIZES = np.array([10, 100, 1_000, 10_000])


def curve_of(*models: Any, test: int = 10, confidence: float = 0.95) -> fb.LearningCurve:
    """Return curves of models "a", "b", ... from (n_sizes, repeats) figures."""
    values = np.array([np.broadcast_to(np.asarray(m, float).T, (len(SIZES), 1)) if np.ndim(m) == 1
                       else m for m in map(np.atleast_1d, models)])  # fmt: skip
    return fb.LearningCurve(
        tuple("abc"[: len(models)]), SIZES, 20_000, test, np.array([0, 1]), 0, confidence,
        values, values, values, np.zeros_like(values),
    )  # fmt: skip


def noisy(means: list[float], noise: float, repeats: int = 12, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return np.array(means)[:, None] + noise * rng.normal(size=(len(means), repeats))


def test_size__is_where_the_lines_meet() -> None:
    a, b = np.full((4, 1), 0.5), np.array([[0.9], [0.8], [0.4], [0.2]])
    found = fb.crossover(curve_of(a, b), "a", "b")
    # From 0.3 behind at 100 to 0.1 ahead at 1,000: three quarters of the way in the logarithm.
    assert found.size == pytest.approx(10**2.75)
    assert (found.low, found.high, found.significant) == (None, None, False)
    assert "b overtakes a in log_loss at 562 rows" in str(found)
    other = fb.crossover(curve_of(a, b), "b", "a")
    assert other.size is None
    assert other.reason == "it is not ahead at the largest size"
    # More accuracy is better.
    assert fb.crossover(curve_of(a, b), "b", "a", "accuracy").size == pytest.approx(10**2.75)


def test_size__is_where_it_changes_for_good() -> None:
    a, b = np.full((4, 1), 0.5), np.array([[0.6], [0.4], [0.6], [0.4]])
    assert fb.crossover(curve_of(a, b), "a", "b").size == pytest.approx(10**3.5)
    level = fb.crossover(curve_of(a, np.array([[0.6], [0.5], [0.5], [0.4]])), "a", "b")
    assert level.size == pytest.approx(1_000)  # as good is not better


def test_none__where_one_is_ahead_everywhere() -> None:
    a, b = np.full((4, 1), 0.5), np.full((4, 1), 0.4)
    found = fb.crossover(curve_of(a, b), "a", "b")
    assert (found.size, found.reason) == (None, "it is ahead at every size")
    assert "at no size: it is ahead" in str(found)
    assert fb.crossover(curve_of(a, a), "a", "b").size is None


def test_interval__holds_the_size_and_is_wider_where_repeats_share_rows() -> None:
    means = [0.2, 0.1, -0.1, -0.2]
    a, b = np.full((4, 12), 0.5), 0.5 + noisy(means, 0.05)
    found = fb.crossover(curve_of(a, b), "a", "b")
    assert found.low < found.size < found.high
    assert found.significant
    assert found.share == 1
    shared = fb.crossover(curve_of(a, b, test=8_000), "a", "b")
    assert math.log(shared.high / shared.low) > 2 * math.log(found.high / found.low)
    assert shared.size == found.size
    assert fb.crossover(curve_of(a, b), "a", "b", seed=0) == found
    narrow = fb.crossover(curve_of(a, b, confidence=0.5), "a", "b")
    assert found.low < narrow.low < narrow.high < found.high


def test_interval__covers_the_true_size() -> None:
    means, held = [0.2, 0.1, -0.1, -0.2], 0
    a = np.full((4, 12), 0.5)
    for seed in range(100):
        found = fb.crossover(curve_of(a, 0.5 + noisy(means, 0.15, seed=seed)), "a", "b")
        held += found.low is not None and found.low <= 10**2.5
        held += found.high is not None and found.high >= 10**2.5
    assert held >= 182  # of 200 bounds, 195 wanted; few repeats resample a little too narrow


def test_significant__not_where_it_may_be_chance() -> None:
    a = np.full((4, 12), 0.5)
    found = [
        fb.crossover(curve_of(a, 0.5 + noisy([0.0] * 4, 0.1, seed=s)), "a", "b") for s in range(60)
    ]
    assert sum(one.size is not None for one in found) > 20
    assert sum(one.significant for one in found) <= 3
    unsure = next(one for one in found if one.size is not None and not one.significant)
    assert "not significant" in str(unsure)
    assert "below" in str(unsure) or "above" in str(unsure)
    assert 0 < unsure.share < 1


def test_sizes_without_figures__are_left_out() -> None:
    a, b = np.full((4, 1), 0.5), np.array([[np.nan], [0.8], [0.4], [0.2]])
    found = fb.crossover(curve_of(a, b), "a", "b")
    assert found.size == pytest.approx(10**2.75)
    assert found.to_dict()["size"] == found.size
    empty = fb.crossover(curve_of(a, np.full((4, 1), np.nan)), "a", "b")
    assert empty.reason == "there is no size at which both could be fitted"


def test_refused() -> None:
    curve = curve_of(np.full((4, 1), 0.5))
    with pytest.raises(ValueError, match="there is no model 'z'"):
        fb.crossover(curve, "a", "z")
    with pytest.raises(ValueError, match="metric='loss'"):
        fb.crossover(curve, "a", "a", "loss")


# -- what Ng and Jordan (2002) and Mitchell say ----------------------------------------------------


def rows_of(common: float, n: int = 6_000, d: int = 60) -> tuple[Any, Any]:
    """Return normal columns, shifted by the class, that share so much of their variance."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    noise = np.sqrt(1 - common) * rng.normal(size=(n, d))
    noise += np.sqrt(common) * rng.normal(size=(n, 1))
    return noise + (y[:, None] - 0.5) * np.linspace(-0.2, 0.6, d), np.array(["n", "p"])[y]


def test_naive_bayes__is_near_its_best_with_few_rows_and_is_overtaken() -> None:
    X, y = rows_of(0.04)
    models = {"naive": fb.NaiveBayes(variance="shared"), "logistic": fb.LogisticRegression()}
    sizes = [20, 40, 80, 160, 320, 640, 1_280, 4_000]
    curve = fb.learning_curve(models, X, y, sizes, 8, test=1_500)
    for metric in ("accuracy", "log_loss"):
        found = fb.crossover(curve, "naive", "logistic", metric)
        assert found.significant
        assert 40 < found.low < 200 < found.size < found.high < 1_000
        assert fb.crossover(curve, "logistic", "naive", metric).size is None
    naive, logistic = curve.accuracy.mean(axis=2)
    # O(log d) rows against O(d): near its own asymptote, where the other still climbs.
    near = sizes.index(320)
    assert naive[-1] - naive[near] < 0.01
    assert logistic[-1] - logistic[near] > 0.04
    assert (naive[:4] > logistic[:4]).all()
    assert (naive[5:] < logistic[5:]).all()
    # The pairing of repeats tells it at the end without doubt.
    (last,) = [row for row in curve.differences("accuracy").to_pylist() if row["size"] == 4_000]
    assert -0.06 < last["low"] < last["high"] < -0.03


def test_naive_bayes__is_not_overtaken_where_its_assumption_holds() -> None:
    X, y = rows_of(0.0)
    models = {"naive": fb.NaiveBayes(variance="shared"), "logistic": fb.LogisticRegression()}
    curve = fb.learning_curve(models, X, y, [100, 640, 4_000], 6, test=2_000)
    assert not fb.crossover(curve, "naive", "logistic").significant
    naive, logistic = curve.log_loss.mean(axis=2)
    assert (naive < logistic).all()
    assert logistic[-1] - naive[-1] < 0.02  # the same form, and in the end the same model
