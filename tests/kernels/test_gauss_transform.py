from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.kernels.shared.gauss_transform import ERROR, MOST_BOXES, WORTH, own_sums

SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_cauchy(n),
    "skewed": lambda rng, n: np.exp(rng.normal(size=n) * 2),
    "whole": lambda rng, n: rng.integers(0, 12, n) * 1.0,
    "two": lambda rng, n: rng.choice([-1e4, 3e4], n) + rng.normal(size=n),
    "single": lambda rng, n: np.full(n, -7.25),
}


def one_by_one(points, weight, bandwidth):
    """Return the sum at each point, term by term."""
    return np.array(
        [
            (weight * np.exp(-((p - points) ** 2) / (2 * bandwidth * bandwidth))).sum()
            for p in points
        ]
    )


@given(
    st.sampled_from(sorted(SHAPES)),
    st.integers(WORTH, 3 * WORTH),
    st.floats(1e-3, 1e3),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_sums__are_those_of_all_pairs(shape, n, bandwidth, seed):
    rng = np.random.default_rng(seed)
    points = np.sort(SHAPES[shape](rng, n))
    weight = rng.choice([0.0, 0.5, 1.0, 300.0], n)
    sums = own_sums(points, weight, bandwidth)
    if sums is None:
        assert points[-1] - points[0] > MOST_BOXES * bandwidth
        return
    # Where two points are far from 0, their distance has lost digits in either sum.
    lost = 4 * np.finfo(float).eps * np.abs(points).max() / bandwidth
    apart = np.abs(sums - one_by_one(points, weight, bandwidth))
    assert apart.max() <= (ERROR + lost) * weight.sum()


def test_sums__of_few_points_or_points_far_apart_are_left_to_others():
    assert own_sums(np.arange(WORTH - 1.0), np.ones(WORTH - 1), 1.0) is None
    assert own_sums(np.arange(float(WORTH)), np.ones(WORTH), 1.0) is not None
    far = np.append(np.arange(float(WORTH)), 1e300)
    assert own_sums(far, np.ones(len(far)), 1e-5) is None
    assert own_sums(far, np.ones(len(far)), 1e-300) is None


@pytest.mark.parametrize("n", [WORTH, 2_000])
def test_sums__at_a_point_no_less_than_its_own_weight(n):
    points = np.sort(np.random.default_rng(n).standard_cauchy(n))
    assert (own_sums(points, np.ones(n), 1e-2) >= 1 - n * ERROR).all()
