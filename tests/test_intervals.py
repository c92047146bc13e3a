"""Intervals of means: the quantiles are those of Student's t, and they cover what they should."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from fastbayes.evaluation.intervals import (
    check_confidence,
    incomplete_beta,
    mean_interval,
    t_quantile,
)


@pytest.mark.parametrize("df", [1, 2, 3, 9, 29, 200.5, 1e5])
@pytest.mark.parametrize("p", [0.5, 0.55, 0.75, 0.9, 0.975, 0.9995])
def test_quantile__is_scipys(df: float, p: float) -> None:
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-12)


def test_incomplete_beta__is_scipys() -> None:
    rng = np.random.default_rng(0)
    for a, b, x in zip(*rng.uniform(0.05, 40, (2, 200)), rng.random(200), strict=True):
        assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=1e-13)
    assert [incomplete_beta(2, 3, x) for x in (-1.0, 0.0, 1.0, 2.0)] == [0, 0, 1, 1]


def test_interval__is_that_of_the_t_test() -> None:
    values = np.random.default_rng(1).normal(size=(3, 7))
    mean, low, high = mean_interval(values, 0.9)
    told = stats.ttest_1samp(values, 0, axis=1).confidence_interval(0.9)
    np.testing.assert_allclose([low, high], [told.low, told.high], rtol=1e-9)
    np.testing.assert_allclose(mean, values.mean(axis=1))


def test_interval__covers_the_mean_of_repeats_that_share_rows() -> None:
    rng = np.random.default_rng(2)
    shared = 0.3
    common, own = rng.normal(size=(4_000, 1)), rng.normal(size=(4_000, 10))
    values = math.sqrt(shared) * common + math.sqrt(1 - shared) * own  # mean 0, correlation 0.3

    def cover(overlap: float) -> float:
        _, low, high = mean_interval(values, 0.95, overlap)
        return float(np.mean((low < 0) & (high > 0)))

    assert cover(shared) == pytest.approx(0.95, abs=0.015)
    assert cover(0) < 0.75  # what the correction is for


def test_interval__one_repeat_has_none() -> None:
    mean, low, high = mean_interval(np.array([[2.0], [3.0]]), 0.95)
    assert mean.tolist() == [2, 3]
    assert np.isnan([low, high]).all()


@pytest.mark.parametrize("confidence", [0, 1, -0.5, True, "0.9"])
def test_confidence__is_checked(confidence: object) -> None:
    with pytest.raises(ValueError, match="use a number between 0 and 1"):
        check_confidence(confidence)
