from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import moments as naive

from fastbayes.kernels.compiled.counting import moments as compiled
from fastbayes.kernels.numpy.counting import moments as numpy_twin
from fastbayes.kernels.shared.moments import merged

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]
CLASSES = st.sampled_from([1, 2, 3, 4, 5, 6, 9, 20, 256, 257, 300])
EPOCH = 1.7e9


def classes(rng, n, n_classes, wide=False, skew=False):
    y = rng.integers(0, n_classes, n)
    if skew:
        y[rng.random(n) < 0.97] = n_classes // 2
    return y.astype(np.uint16 if wide or n_classes > 256 else np.uint8)


@st.composite
def columns(draw):
    """Return values with missing ones, classes, how many classes, and weights or None."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, n_classes = draw(st.sampled_from([0, 1, 2, 7, 8, 9, 40, 333, 1500])), draw(CLASSES)
    y = classes(rng, n, n_classes, draw(st.booleans()), draw(st.booleans()))
    centre = draw(st.sampled_from([0.0, 1.0, -1e6, EPOCH]))
    apart = draw(st.sampled_from([0.0, 1.0, 1e9]))
    values = centre + apart * y + draw(st.sampled_from([1e-3, 1.0, 1e5])) * rng.normal(size=n)
    values[rng.random(n) < draw(st.sampled_from([0.0, 0.2, 1.0]))] = np.nan
    weight = None
    if draw(st.booleans()):
        weight = rng.choice([0.0, 0.25, 1.0, 3.0, 1e-3, 1e6], n) * rng.random(n)
    return values, y, n_classes, weight


def moments_of(module, values, y, n_classes, weight=None):
    """Return count, mean, its rest and scatter of one column, each (n_classes,)."""
    return module.columns_moments([values], y, n_classes, weight)[:, 0]


def assert_equals_exact(result, values, y, n_classes, weight, rtol=1e-12):
    count, mean, rest, scatter = result
    exact = naive.block_moments(values, y, n_classes, weight)
    n, m, r, s = (np.array(part) for part in exact)
    np.testing.assert_allclose(count, n, rtol=rtol)
    assert (np.abs(rest) <= np.spacing(np.abs(mean))).all()
    np.testing.assert_allclose(scatter, s, rtol=rtol)
    spread = np.sqrt(s / np.maximum(n, 1e-300))
    assert (np.abs((mean - m) + (rest - r)) <= rtol * spread).all()
    assert all(part.dtype == np.float64 and part.shape == (n_classes,) for part in result)


@pytest.mark.parametrize("module", MODULES)
@given(column=columns())
def test_moments_equal_exact_arithmetic(module, column):
    assert_equals_exact(moments_of(module, *column), *column)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_epoch_seconds_keep_their_digits(module, n_classes, weighted):
    rng = np.random.default_rng(5)
    values = EPOCH + rng.integers(-1, 2, 20_000)
    y = classes(rng, len(values), n_classes)
    weight = rng.random(len(values)) if weighted else None
    *_, scatter = moments_of(module, values, y, n_classes, weight)
    *_, exact = naive.block_moments(values, y, n_classes, weight)
    np.testing.assert_allclose(scatter, exact, rtol=1e-13)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [1, 3, 12])
@pytest.mark.parametrize("outlier", [1e3, 1e9, -1e12])
def test_first_value_far_from_the_rest_costs_no_digits(module, n_classes, outlier):
    rng = np.random.default_rng(6)
    values = rng.normal(size=5000)
    values[:n_classes] = outlier
    y = (np.arange(len(values)) % n_classes).astype(np.uint8)
    assert_equals_exact(
        moments_of(module, values, y, n_classes), values, y, n_classes, None, rtol=1e-13
    )


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("value", [0.1, EPOCH, 1e308, -1e-300, 5e-324])
@pytest.mark.parametrize("n_classes", [2, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_constant_column__scatter_is_exactly_zero(module, value, n_classes, weighted):
    rng = np.random.default_rng(7)
    y = classes(rng, 3001, n_classes, skew=True)
    values = np.where(rng.random(len(y)) < 0.3, np.nan, value)
    weight = rng.random(len(y)) if weighted else None
    count, mean, _, scatter = moments_of(module, values, y, n_classes, weight)
    assert (count > 0).all()
    assert (mean == value).all()
    assert (scatter == 0).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [3, 9])
def test_constant_in_each_class__scatter_is_exactly_zero(module, n_classes):
    y = (np.arange(5000) % n_classes).astype(np.uint8)
    # The last class comes late, long after the others were found.
    y[:4900][y[:4900] == n_classes - 1] = 0
    levels = 0.1 + 1e9 * np.arange(n_classes)
    _, mean, _, scatter = moments_of(module, levels[y], y, n_classes)
    assert (mean == levels).all()
    assert (scatter == 0).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("row", [0, 255, 256, 257, 1279, 1280, 1281, 2559])
@pytest.mark.parametrize("n_classes", [2, 4, 9])
def test_class_of_one_row__found_wherever_it_is(module, row, n_classes):
    rng = np.random.default_rng(12)
    values, y = rng.normal(size=2560), classes(rng, 2560, n_classes - 1)
    y[row], values[row] = n_classes - 1, EPOCH
    count, mean, rest, scatter = moments_of(module, values, y, n_classes)
    assert (count[-1], mean[-1], rest[-1], scatter[-1]) == (1, EPOCH, 0, 0)
    assert count.sum() == len(y)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 9])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "bad", [[np.inf], [-np.inf], [np.inf, -np.inf], [1e200], [1e308, -1e308], [1.7e308] * 3]
)
def test_numbers_too_large__that_class_is_not_finite(module, n_classes, weighted, bad):
    rng = np.random.default_rng(8)
    y = classes(rng, 1000, n_classes)
    values = rng.normal(size=len(y))
    for at in (np.flatnonzero(y == 1)[: len(bad)], np.flatnonzero(y == 1)[-len(bad) :]):
        spoilt = values.copy()
        spoilt[at] = bad
        weight = rng.random(len(y)) + 0.5 if weighted else None
        count, mean, _, scatter = moments_of(module, spoilt, y, n_classes, weight)
        fine = np.isfinite(mean) & np.isfinite(scatter)
        assert list(np.flatnonzero(~fine)) == [1]
        expected = np.bincount(y, weight, n_classes)
        np.testing.assert_allclose(count, expected, rtol=1e-12)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 9])
def test_only_infinite_values__not_finite(module, n_classes):
    y = np.zeros(10, np.uint8)
    count, mean, _, scatter = moments_of(module, np.full(10, np.inf), y, n_classes)
    assert count[0] == 10
    assert not np.isfinite(mean[0] + scatter[0])


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 9])
def test_weight_zero_is_no_row(module, n_classes):
    rng = np.random.default_rng(9)
    values, y = rng.normal(size=500), classes(rng, 500, n_classes)
    weight = rng.integers(0, 3, 500).astype(float)
    values[weight == 0] = rng.choice([np.inf, np.nan, 1e300], (weight == 0).sum())
    kept = weight > 0
    assert_equals_exact(
        moments_of(module, values, y, n_classes, weight),
        values[kept],
        y[kept],
        n_classes,
        weight[kept],
    )


@pytest.mark.parametrize("module", MODULES)
def test_all_weights_zero__nothing_counted(module):
    y = np.arange(10, dtype=np.uint8) % 2
    for part in moments_of(module, np.arange(10.0), y, 2, np.zeros(10)):
        assert (part == 0).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [3, 9])
def test_integer_weight_is_the_row_that_often(module, n_classes):
    rng = np.random.default_rng(10)
    values, y = EPOCH + rng.normal(size=300), classes(rng, 300, n_classes)
    times = rng.integers(0, 4, 300)
    weighted = moments_of(module, values, y, n_classes, times.astype(float))
    repeated = moments_of(module, np.repeat(values, times), np.repeat(y, times), n_classes)
    for one, other in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 4, 5, 300])
def test_large_block__modules_agree_and_repeat(module, n_classes):
    rng = np.random.default_rng(11)
    n = 65_536 + 5
    values, y = EPOCH + rng.normal(size=n), classes(rng, n, n_classes)
    values[rng.random(n) < 0.1] = np.nan
    result = moments_of(module, values, y, n_classes)
    for one, other, again in zip(
        result,
        moments_of(numpy_twin, values, y, n_classes),
        moments_of(module, values, y, n_classes),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
        assert one.tobytes() == again.tobytes()


@pytest.mark.parametrize("module", MODULES)
def test_inputs_are_left_alone(module):
    values, y, weight = np.arange(9.0), np.zeros(9, np.uint8), np.ones(9)
    parts = values.copy(), y.copy(), weight.copy()
    for array in (values, y, weight):
        array.flags.writeable = False
    moments_of(module, values, y, 1, weight)
    for array, before in zip((values, y, weight), parts, strict=True):
        assert (array == before).all()


def test_oracle__by_hand():
    count, mean, rest, scatter = naive.block_moments([1.0, 2.0, 4.0, float("nan")], [0, 0, 0, 0], 2)
    assert (count, mean[0], scatter[0]) == ([3.0, 0.0], 7 / 3, float(Fraction(14, 3)))
    assert Fraction(mean[0]) + Fraction(rest[0]) - Fraction(7, 3) < Fraction(1, 10**32)


@pytest.mark.parametrize("module", MODULES)
@given(
    column=columns(),
    larger=st.sampled_from([0, 3]),
    step=st.sampled_from([1, 2]),
    scale=st.sampled_from([1.0, 1e200, 1e308]),
)
def test_adding_to_moments_is_merging_them_bit_by_bit(module, column, larger, step, scale):
    values, y, n_classes, weight = column
    with np.errstate(over="ignore"):
        many = [values, np.clip(scale * values, -1e308, 1e308)]
    half = len(y) // 2
    # The classes that occur are some of those known.
    here = larger + step * np.arange(n_classes)
    held = np.zeros((4, 2, here[-1] + 2))
    expected = held.copy()
    for some in (slice(half), slice(half, None)):
        part = [x[some] for x in many], y[some]
        own = None if weight is None else weight[some]
        module.add_moments(*part, here, own, *held)
        found = module.columns_moments(*part, n_classes, own)
        expected[:, :, here] = merged(expected[:, :, here], found)
    assert held.tobytes() == expected.tobytes()
