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
