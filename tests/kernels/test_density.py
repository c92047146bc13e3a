from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import density as naive

from fastbayes.kernels.compiled.scoring import density as compiled
from fastbayes.kernels.numpy.scoring import density as numpy_twin
from fastbayes.kernels.shared.density import odds_of_curve
from fastbayes.models.numeric.curves import Bumps, Curve, curve_of, flat, tabulated

modules = pytest.mark.parametrize(
    "module",
    [
        pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
        pytest.param(numpy_twin, id="numpy"),
    ],
)
SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "two": lambda rng, n: rng.choice([-4.0, 3.0], n) + rng.normal(size=n) / 3,
    "heavy": lambda rng, n: rng.standard_cauchy(n),
    "whole": lambda rng, n: rng.integers(0, 12, n) * 1.0,
    "skewed": lambda rng, n: np.exp(rng.normal(size=n) * 2),
    "single": lambda rng, n: np.full(n, 0.25),
}


def bumps(rng, shape, n, shift=0.0):
    points, weight = np.unique(SHAPES[shape](rng, n) + shift, return_counts=True)
    weight = weight * rng.choice([0.5, 1.0, 3.0], len(points))
    h = naive.silverman(points.tolist(), weight.tolist()) or 1e-3
    level = -math.log(weight.sum() * h * math.sqrt(2 * math.pi))
    return Bumps(points, weight, h, level)


def exact(module, b, x):
    none = np.full(len(x), -1), np.zeros(len(x))
    return module.log_sums(b.points, b.weight, b.bandwidth, x, *none)[0] + b.level


def looked_up(module, curve, x):
    arrays = [np.array(a) for a in (x, *curve)]
    for array in arrays:
        array.setflags(write=False)
    out = np.zeros((curve.table.shape[1] // 4, len(x) + 3))
    module.add_curve(*arrays, 0, len(x), out)
    assert (out[:, len(x) :] == 0).all()
    return out[:, : len(x)]


@modules
@given(st.sampled_from(sorted(SHAPES)), st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_log_sums__are_those_of_the_oracle(module, shape, n, seed):
    rng = np.random.default_rng(seed)
    b = bumps(rng, shape, n)
    own = rng.integers(-1, len(b.points), 50)
    less = np.where(own < 0, 0.0, rng.choice([0.25, 1.0], 50) * b.weight[own])
    x = np.where(rng.random(50) < 0.5, b.points[own], rng.normal(size=50) * 3)
    value, slope = module.log_sums(b.points, b.weight, b.bandwidth, x, own, less)
    step = 1e-6 * b.bandwidth
    for r in range(50):
        w = b.weight.copy()
        if own[r] >= 0:
            w[own[r]] -= less[r]

        def at(q, w=w):
            total = math.fsum(w) * b.bandwidth * math.sqrt(2 * math.pi)
            found = naive.kernel_log_density(q, b.points.tolist(), w.tolist(), b.bandwidth)
            return found + math.log(total) if total else found

        expected = at(x[r])
        assert value[r] == pytest.approx(expected, rel=1e-12, abs=1e-12)
        if expected > -40:
            rise = (at(x[r] + step) - at(x[r] - step)) / (2 * step)
            assert slope[r] == pytest.approx(rise, rel=1e-3, abs=1e-3 / b.bandwidth)


@modules
def test_log_sums__of_no_points(module):
    none = np.empty(0)
    value, slope = module.log_sums(none, none, 1.0, np.zeros(2), np.full(2, -1), np.zeros(2))
    assert (value == -np.inf).all()
    assert (slope == 0).all()


@pytest.mark.compiled
def test_log_sums__in_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    b, x = bumps(rng, "normal", 300), rng.normal(size=200)
    whole = exact(numpy_twin, b, x)
    monkeypatch.setattr(numpy_twin, "CHUNK", 1_000)
    np.testing.assert_array_equal(exact(numpy_twin, b, x), whole)
    np.testing.assert_allclose(exact(compiled, b, x), whole, rtol=0, atol=1e-12)


@modules
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1, 2, 50, 3_000])
def test_curve__is_close_to_the_sums(module, shape, n):
    """Within 1e-6 of the density where it is above e^-30 of its peak, and of its log elsewhere."""
    rng = np.random.default_rng(n)
    classes = [bumps(rng, shape, n, shift) for shift in (0.0, 0.75)]
    knots, pieces = tabulated(classes, module.log_sums)
    assert (np.diff(knots) > 0).all()
    curve = curve_of(0.0, 1.0, knots, pieces, 8.0)
    low, high = (f([f(b.points) for b in classes]) for f in (min, max))
    x = np.concatenate(
        [
            *(b.points for b in classes),
            *(b.points + rng.normal(size=len(b.points)) * b.bandwidth * 3 for b in classes),
            rng.uniform(low - 1, high + 1, 3_000),
            rng.normal(size=200) * 1e3 * (high - low + 1),
            [1e30, -1e30, low, high],
            knots,
        ]
    )
    found = looked_up(module, curve, x)
    assert np.isfinite(found).all()
    for c, b in enumerate(classes):
        expected = exact(module, b, x)
        off = np.abs(found[c] - expected)
        bulk = expected > expected.max() - 30
        assert off[bulk].max() < 1e-6
        deep = np.abs(expected) > 1e4
        assert (off[deep] < 1e-3 * np.abs(expected[deep])).all()


@modules
@pytest.mark.parametrize("shape", SHAPES)
def test_curve__holds_all_of_the_probability(module, shape):
    b = bumps(np.random.default_rng(1), shape, 200)
    curve = curve_of(0.0, 1.0, *tabulated([b], module.log_sums), 8.0)
    ends = np.sort(np.concatenate([b.points + s * b.bandwidth for s in (-9, 9)]))
    grid = np.unique(np.concatenate([np.linspace(p - 9 * b.bandwidth, p + 9 * b.bandwidth, 400)
                                     for p in b.points] + [ends]))  # fmt: skip
    total = np.trapezoid(np.exp(looked_up(module, curve, grid)[0]), grid)
    assert total == pytest.approx(1, abs=2e-3)


def pieces_at(knots, classes=2):
    rng = np.random.default_rng(len(knots))
    return rng.normal(size=(len(knots) + 1, classes, 4))


@pytest.mark.compiled
@given(
    st.lists(st.floats(-1e6, 1e6) | st.floats(-2, 2), min_size=1, max_size=60, unique=True),
    st.floats(0.5, 1e4),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_look_up__finds_the_interval_of_any_number(knots, reach, seed):
    knots = np.sort(np.array(knots) + 0.0)
    curve = curve_of(3.0, 2.0, knots, pieces_at(knots), reach)
    rng = np.random.default_rng(seed)
    x = np.concatenate([3 + 2 * knots, rng.normal(size=50) * 10, rng.normal(size=50) * 1e6])
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), [np.nan, 1e308]])
    found = [looked_up(module, curve, x) for module in (compiled, numpy_twin)]
    t = np.clip((x - 3) * 0.5, -1e100, 1e100)
    for r in range(len(x)):
        if np.isnan(x[r]):
            assert (found[0][:, r] == 0).all()
            assert (found[1][:, r] == 0).all()
            continue
        row = curve.table[np.count_nonzero(knots <= t[r])]
        for c in range(2):
            expected = math.fsum(
                k * (t[r] - row[0]) ** i for i, k in enumerate(row[1 + 4 * c :][:4])
            )
            for f in found:
                assert f[c, r] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.compiled
@given(
    st.lists(st.floats(-1e-9, 1e-9) | st.floats(-1e6, 1e6), min_size=1, max_size=60, unique=True),
    st.sampled_from([0.0, 3.0, 1e12]),
    st.sampled_from([1e-12, 0.5, 1e3]),
)
@settings(max_examples=30)
def test_look_up__of_numbers_that_are_one_in_the_scale_of_the_curve(numbers, centre, scale):
    numbers = np.sort(np.array(numbers) + 0.0)
    knots = (numbers - centre) * (1 / scale)
    pieces = np.zeros((len(knots) + 1, 1, 4))
    pieces[:, 0, 0] = np.arange(len(pieces))
    curve = curve_of(centre, scale, knots, pieces, float(np.abs(knots).max()) + 1, numbers)
    x = np.concatenate([numbers, np.nextafter(numbers, np.inf), np.nextafter(numbers, -np.inf)])
    x = np.concatenate([x, x * 1.5, [0.0, centre, 1e308, -1e308]])
    expected = np.searchsorted(numbers, x, side="right")
    for module in (compiled, numpy_twin):
        np.testing.assert_array_equal(looked_up(module, curve, x)[0], expected)


@modules
def test_odds__of_what_is_impossible(module):
    """-inf in one class is an infinite odds, in both it is none, and nothing else is."""
    pieces = np.zeros((3, 2, 4))
    pieces[0, 0, 0] = pieces[1, :, 0] = -np.inf
    pieces[2, :, 1] = 1.0, 3.0
    curve = curve_of(0.0, 1.0, np.array([-1.0, 1.0]), pieces, 2.0)
    found = looked_up(module, Curve(*odds_of_curve(curve)), np.array([-2.0, 0.0, 2.0, np.nan]))
    np.testing.assert_array_equal(found, [[np.inf, np.nan, 2.0, 0.0]])


@modules
def test_flat__says_nothing(module):
    assert (looked_up(module, flat(3), np.array([-1e300, 0.0, np.nan, 5.0])) == 0).all()


@modules
@given(st.integers(1, 5), st.integers(0, 1), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_student__is_its_formula_anywhere(module, n_classes, step, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 1_200))
    mean, rest = rng.normal(size=n_classes) * 3, rng.normal(size=n_classes) / 100
    dof, width = 10 ** rng.uniform(0.5, 9, n_classes), 10 ** rng.uniform(-3, 3, n_classes)
    inverse, level = 1 / (width * np.sqrt(dof)), rng.normal(size=n_classes)
    parts = np.stack([mean, rest, inverse, level, (dof + 1) / 2])
    x = rng.normal(size=n + 3) * 10 ** rng.uniform(-3, 12, n + 3)
    x[rng.random(n + 3) < 0.1] = np.nan
    for array in (x, parts):
        array.setflags(write=False)
    out = np.zeros((n_classes if step else 1, n + 5))
    module.add_student(x, parts, step, 3, n, out)
    expected = np.zeros_like(out)
    for c, (m, r, i, top, power) in enumerate(parts.T.tolist()):
        for row, value in enumerate(x[3:].tolist()):
            if not math.isnan(value):
                far = math.log1p((((value - m) - r) * i) ** 2)
                expected[c * step, row] += top - power * far
    sizes = np.abs(expected).max(axis=0)
    assert (np.abs(out - expected) <= 1e-13 * (1 + sizes) * n_classes).all()
    # So far away that squares overflow: the logarithm is what they would have.
    ends = np.array([1e300, -1.7e308])
    ends.setflags(write=False)
    found = np.zeros((n_classes, 2))
    module.add_student(ends, parts, 1, 0, 2, found)
    assert np.isfinite(found).all()
