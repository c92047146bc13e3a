from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import scatter as naive

from fastbayes.kernels.compiled.counting import scatter as compiled
from fastbayes.kernels.numpy.counting import scatter as numpy_twin
from fastbayes.statistics.joint_moments import JointMoments

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]
every = pytest.mark.parametrize("module", MODULES)
weights = pytest.mark.parametrize("weighted", [False, True], ids=["rows", "weights"])
EPOCH = 1.7e9


def groups(rng, n, n_groups, skew=False):
    group = rng.integers(0, n_groups, n)
    if skew:
        group[rng.random(n) < 0.9] = n_groups // 2
    kind = np.uint8 if n_groups <= 256 else np.uint16 if n_groups <= 65_536 else np.uint32
    return group.astype(kind)


@st.composite
def blocks(draw):
    """Return columns that hang together, groups, how many groups, and weights or None."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.sampled_from([0, 1, 2, 7, 15, 16, 17, 40, 130]))
    p = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 8, 9]))
    n_groups = draw(st.sampled_from([1, 2, 3, 10, 300]))
    group = groups(rng, n, n_groups, draw(st.booleans()))
    X = rng.normal(size=(p, p)) @ rng.normal(size=(p, n))
    X *= 10.0 ** rng.choice(draw(st.sampled_from([[0], [-9, 9]])), (p, 1))
    X += rng.choice(draw(st.sampled_from([[0.0], [0.0, -1e6, EPOCH]])), (p, 1))
    X[rng.random(p) < 0.2] = 0.1
    weight = None
    if draw(st.booleans()):
        weight = rng.choice([0.0, 0.25, 1.0, 3.0, 1e-3, 1e6], n) * rng.random(n)
    return list(X), group, n_groups, weight


def assert_equals(result, expected, rtol=1e-12):
    count, mean, rest, scatter = result
    n, m, r, s = (
        np.array(part).reshape(have.shape) for part, have in zip(expected, result, strict=True)
    )
    np.testing.assert_allclose(count, n, rtol=rtol)
    assert (np.abs(rest) <= np.spacing(np.abs(mean))).all()
    root = np.sqrt(np.einsum("gii->gi", s))
    assert (np.abs(scatter - s) <= rtol * root[:, :, None] * root[:, None, :]).all()
    np.testing.assert_array_equal(scatter, scatter.swapaxes(1, 2))
    spread = root / np.sqrt(np.maximum(n, 1e-300))[:, None]
    assert (np.abs((mean - m) + (rest - r)) <= rtol * spread).all()
    assert all(part.dtype == np.float64 for part in result)


@every
@given(block=blocks())
@settings(max_examples=30)
def test_scatter_equals_exact_arithmetic(module, block):
    assert_equals(module.block_scatter(*block), naive.block_scatter(*block))


@every
@given(block=blocks())
@settings(max_examples=20)
def test_products_equal_exact_arithmetic(module, block):
    found = module.block_products(*block)
    expected = np.array(naive.block_products(*block)).reshape(found.shape)
    root = np.sqrt(np.einsum("gii->gi", expected))
    assert (np.abs(found - expected) <= 1e-12 * root[:, :, None] * root[:, None, :]).all()
    np.testing.assert_array_equal(found, found.swapaxes(1, 2))


@pytest.mark.compiled
@weights
@pytest.mark.parametrize(
    ("n", "p", "n_groups", "skew"),
    [
        (20_000, 3, 2, False),
        (20_000, 8, 10, True),
        (9000, 13, 7, False),
        (5000, 33, 3, False),
        (1500, 64, 2, False),
        (300, 130, 2, False),
        (20_000, 5, 4000, False),
        (20_000, 4, 70_000, True),
    ],
)
def test_large_block__twins_agree_and_repeat(n, p, n_groups, skew, weighted):
    rng = np.random.default_rng(11)
    group = groups(rng, n, n_groups, skew)
    columns = list(
        rng.normal(size=(p, p)) @ rng.normal(size=(p, n)) + rng.choice([0, EPOCH], (p, 1))
    )
    weight = rng.integers(0, 3, n) * rng.random(n) if weighted else None
    found = compiled.block_scatter(columns, group, n_groups, weight)
    assert_equals(found, numpy_twin.block_scatter(columns, group, n_groups, weight))
    again = compiled.block_scatter(columns, group, n_groups, weight)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True))


@pytest.mark.compiled
def test_threads__each_finds_the_same_bits():
    rng = np.random.default_rng(12)
    columns, group = list(rng.normal(size=(9, 30_000))), groups(rng, 30_000, 5)
    before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: compiled.block_scatter(columns, group, 5), range(8)))
        threads = len(os.listdir("/proc/self/task")) if before else 4
    assert threads <= before + 4  # those of the pool: none of BLAS
    for result in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(result, found[0], strict=True))


@every
@weights
@pytest.mark.parametrize("outlier", [1e3, 1e9, -1e12])
def test_first_row_far_from_the_rest_costs_no_digits(module, weighted, outlier):
    rng = np.random.default_rng(6)
    columns, group = list(rng.normal(size=(3, 400))), np.arange(400, dtype=np.uint8) % 3
    columns[1][:2] = outlier
    columns[2][:] = 0.1
    weight = rng.random(400) + 0.1 if weighted else None
    if weight is not None:
        weight[:2] = 1e-20  # far from the mean, and next to no part of the scatter
    found = module.block_scatter(columns, group, 3, weight)
    assert_equals(found, naive.block_scatter(columns, group, 3, weight))
    assert not found[3][:, 2].any()


@every
@pytest.mark.parametrize("value", [0.1, EPOCH, 1e308, -1e-300, 5e-324])
@pytest.mark.parametrize("n_groups", [2, 900])
@weights
def test_constant_column__scatter_is_exactly_zero(module, value, n_groups, weighted):
    rng = np.random.default_rng(7)
    n = 9000
    columns, group = [rng.normal(size=n), np.full(n, value)], groups(rng, n, n_groups, skew=True)
    weight = rng.random(n) if weighted else None
    count, mean, _, scatter = module.block_scatter(columns, group, n_groups, weight)
    assert (mean[count > 0, 1] == value).all()
    assert not scatter[:, 1].any()
    assert not scatter[:, :, 1].any()


@every
@weights
@pytest.mark.parametrize("bad", [[np.inf], [np.inf, -np.inf], [1e200], [1e308, -1e308]])
def test_numbers_too_large__that_group_and_column_are_not_finite(module, weighted, bad):
    rng = np.random.default_rng(8)
    columns, group = list(rng.normal(size=(3, 600))), groups(rng, 600, 4)
    expected = module.block_scatter(columns, group, 4)
    columns[1][np.flatnonzero(group == 2)[: len(bad)]] = bad
    weight = np.ones(600) if weighted else None
    _, mean, _, scatter = module.block_scatter(columns, group, 4, weight)
    assert not np.isfinite(mean[2, 1] + scatter[2, 1, 1])
    mine = np.ones((4, 3, 3), bool)
    mine[2, 1] = mine[2, :, 1] = False
    np.testing.assert_allclose(scatter[mine], expected[3][mine], rtol=1e-9, atol=1e-9)


@every
@pytest.mark.parametrize("n_groups", [3, 300])
def test_known_parts__are_0_where_a_value_is_missing(module, n_groups):
    rng = np.random.default_rng(13)
    x, group, centre = rng.normal(size=900), groups(rng, 900, n_groups), rng.normal(size=n_groups)
    x[rng.random(900) < 0.3] = np.nan
    deviation, known = module.known_parts(x, group, centre)
    gaps = np.isnan(x)
    assert not deviation[gaps].any()
    np.testing.assert_array_equal(known, ~gaps)
    np.testing.assert_array_equal(deviation[~gaps], x[~gaps] - centre[group[~gaps]])


@every
@weights
def test_missing_values_show_in_mean_and_scatter_of_their_group_and_column(module, weighted):
    rng = np.random.default_rng(14)
    columns, group = list(rng.normal(size=(4, 600))), groups(rng, 600, 5)
    weight = rng.random(600) if weighted else None
    expected = module.block_scatter(columns, group, 5, weight)
    columns[2][np.flatnonzero(group == 3)[[0, 40]]] = np.nan
    _, mean, _, scatter = module.block_scatter(columns, group, 5, weight)
    assert np.isnan(mean[3, 2])
    assert np.isnan(scatter[3, 2, 2])
    mean[3, 2], expected[1][3, 2] = 0.0, 0.0
    scatter[3, 2], scatter[3, :, 2] = 0.0, 0.0
    expected[3][3, 2], expected[3][3, :, 2] = 0.0, 0.0
    np.testing.assert_array_equal(mean, expected[1])
    np.testing.assert_allclose(scatter, expected[3], rtol=1e-12)


@every
def test_weight_zero_is_no_row(module):
    rng = np.random.default_rng(9)
    columns, group = list(rng.normal(size=(3, 500))), groups(rng, 500, 4)
    weight = rng.integers(0, 3, 500).astype(float)
    columns[0][weight == 0] = 1e300
    kept = weight > 0
    expected = naive.block_scatter([x[kept] for x in columns], group[kept], 4, weight[kept])
    assert_equals(module.block_scatter(columns, group, 4, weight), expected)


def as_joint(count, mean, rest, scatter):
    return JointMoments(count[:, None, None], mean[:, :, None], rest[:, :, None], scatter.copy())


@every
@given(
    block=blocks(),
    larger=st.sampled_from([0, 3]),
    step=st.sampled_from([1, 2]),
    scale=st.sampled_from([1.0, 1e200, 1e308]),
)
@settings(max_examples=30)
def test_adding_to_scatter_is_merging_it_bit_by_bit(module, block, larger, step, scale):
    columns, group, n_groups, weight = block
    with np.errstate(over="ignore"):
        columns = [np.clip(scale * x, -1e308, 1e308) for x in columns]
    # The groups that occur are some of those known.
    here, p = larger + step * np.arange(n_groups), len(columns)
    held = [np.zeros((here[-1] + 2, *[p] * axes)) for axes in (0, 1, 1, 2)]
    expected = [part[here] for part in held]
    half = len(group) // 2
    for some in (slice(half), slice(half, None)):
        rows = [x[some] for x in columns], group[some]
        own = None if weight is None else weight[some]
        assert module.add_scatter(*rows, here, own, *held, missing=True)
        found = module.block_scatter(*rows, n_groups, own)
        whole = as_joint(*expected).merged(as_joint(*found))
        count, mean, rest = (part.reshape(part.shape[:2]) for part in whole.arrays()[:3])
        expected = [count[:, 0], mean, rest, whole.scatter]
    for part, one in zip(held, expected, strict=True):
        assert part[here].tobytes() == one.tobytes()
        assert not np.delete(part, here, axis=0).any()


@every
@weights
@pytest.mark.parametrize("row", [0, 399])
def test_missing_value__nothing_is_added_unless_it_is_no_matter(module, weighted, row):
    rng = np.random.default_rng(14)
    columns, group = list(rng.normal(size=(3, 400))), groups(rng, 400, 2)
    weight = np.full(400, 2.0) if weighted else None
    held = [np.ones((2, *[3] * axes)) for axes in (0, 1, 1, 2)]
    columns[1][row] = np.nan
    rows = columns, group, np.arange(2), weight
    assert not module.add_scatter(*rows, *held, missing=False)
    assert all((part == 1).all() for part in held)
    assert module.add_scatter(*rows, *held, missing=True)
    columns[1][row] = 0.0
    assert module.add_scatter(*rows, *held, missing=False)


@every
def test_all_weights_zero__nothing_counted(module):
    for part in module.block_scatter([np.arange(9.0)] * 2, np.zeros(9, np.uint8), 2, np.zeros(9)):
        assert not part.any()


@every
def test_strided_columns(module):
    rng = np.random.default_rng(10)
    X, group = rng.normal(size=(200, 4)), groups(rng, 200, 2)
    found = module.block_scatter(list(X.T), group, 2)
    assert_equals(found, module.block_scatter(list(np.ascontiguousarray(X.T)), group, 2))


@every
def test_inputs_are_left_alone(module):
    columns, group, weight = [np.arange(9.0)] * 3, np.zeros(9, np.uint8), np.ones(9)
    parts = columns[0].copy(), group.copy(), weight.copy()
    for array in (columns[0], group, weight):
        array.flags.writeable = False
    module.block_scatter(columns, group, 1, weight)
    for array, before in zip((columns[0], group, weight), parts, strict=True):
        assert (array == before).all()


def test_oracle__by_hand():
    count, mean, rest, scatter = naive.block_scatter(
        [[1.0, 2.0, 6.0], [0.0, 3.0, 3.0]], [0, 0, 0], 1
    )
    assert (count, mean, rest) == ([3.0], [[3.0, 2.0]], [[0.0, 0.0]])
    assert scatter == [[[14.0, 6.0], [6.0, 6.0]]]
