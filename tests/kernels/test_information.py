from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import information as naive

from fastbayes.kernels.compiled.fitting import information as compiled
from fastbayes.kernels.numpy.fitting import information as numpy_twin
from fastbayes.kernels.shared.information import class_pairs

MODULES = [
    pytest.param(compiled, id="kernels"),
    pytest.param(numpy_twin, id="numpy"),
]


def laid_out(blocks, gap=0):
    """Return blocks (w_i, w_j, K) of pairs one after the other, and where each begins."""
    dtype = blocks[0].dtype if blocks else np.int64
    parts, starts, at = [], [], 0
    for block in blocks:
        starts.append(at)
        parts += [block.reshape(-1), np.full(gap, 77, dtype)]
        at += block.size + gap
    return np.concatenate([np.empty(0, dtype), *parts]), np.array(starts, np.int64)


def information(module, block, sizes=None):
    """Return I of one block."""
    sizes = np.array(block.shape[:2]) if sizes is None else np.array(sizes)
    out = np.full(1, np.nan)
    pair = np.array([0]), np.array([1])
    width = np.array(block.shape[:2])
    flat, starts = laid_out([block])
    module.pair_information(flat, *pair, starts, sizes, width, block.shape[2], out)
    return out[0]


@st.composite
def problems(draw):
    """Return the arguments of `pair_information` without out: pairs in any order, with gaps."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, n_classes = draw(st.integers(1, 7)), draw(st.sampled_from([1, 2, 3, 5]))
    most = draw(st.sampled_from([1, 2, 4, 13]))
    sizes = rng.integers(0 if draw(st.booleans()) else 1, most + 1, m)
    widths = sizes + rng.integers(0, 2, m)
    first, second = np.triu_indices(m, 1)
    order = rng.permutation(len(first))
    first, second = first[order], second[order]
    rows = draw(st.sampled_from([0, 1, 10, 1000, 10**6]))
    blocks = []
    for i, j in zip(first, second, strict=True):
        shape = widths[i], widths[j], n_classes
        alpha = draw(st.sampled_from([0.05, 1.0, 1000.0]))
        cells = math.prod(shape)
        share = rng.dirichlet(np.full(cells, alpha)) if cells else np.empty(0)
        blocks.append(rng.multinomial(rows, share).reshape(shape) if cells else np.empty(shape))
        if draw(st.booleans()):
            blocks[-1][..., 0] = 0
    kind = draw(st.sampled_from([np.int64, np.float64]))
    if kind is np.float64:
        blocks = [b * rng.choice([0.25, 1.0, 1e-3, 1e6]) * rng.random(b.shape) for b in blocks]
    flat, starts = laid_out([b.astype(kind) for b in blocks], gap=int(rng.integers(0, 3)))
    return flat.astype(kind), first, second, starts, sizes, widths, n_classes


@pytest.mark.parametrize("module", MODULES)
@given(drawn=problems())
def test_information_is_exact_to_thirteen_digits(module, drawn):
    expected, out = np.empty(len(drawn[1])), np.full(len(drawn[1]), np.nan)
    naive.pair_information(*drawn, expected)
    module.pair_information(*drawn, out)
    # Weights that a cell of independence has: what is left of them are roundings of 1e-24.
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-22)
    assert (out >= 0).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("n_rows", [10**3, 10**6, 10**9])
@pytest.mark.parametrize("shape", [(2, 2, 2), (4, 4, 2), (3, 5, 10)])
def test_information__features_nearly_independent(module, dtype, n_rows, shape):
    """Chance alone gives them about degrees of freedom / 2 N nats."""
    rng = np.random.default_rng(n_rows)
    cells = math.prod(shape)
    block = rng.multinomial(n_rows, np.full(cells, 1 / cells)).reshape(shape).astype(dtype)
    expected = naive.information(dict(np.ndenumerate(block)))
    # A difference of two float64 products is rounded where the counts are no longer small.
    rtol = 1e-12 if dtype is np.float64 and n_rows == 10**9 else 1e-13
    assert information(module, block) == pytest.approx(expected, rel=rtol, abs=0)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("more", [1001, 1100, 1220, 1300, 1400, 1450, 1600, 2000, 2900, 10**9])
def test_information__to_the_last_digits(module, more):
    """Wherever the series ends and another power of two begins."""
    block = np.array([[[more], [1000]], [[1000], [more]]])
    expected = naive.information(dict(np.ndenumerate(block)))
    rtol = 2e-15 if module is compiled else 4e-14
    assert information(module, block) == pytest.approx(expected, rel=rtol, abs=0)


@pytest.mark.parametrize(
    "module",
    [pytest.param(compiled, marks=pytest.mark.compiled), numpy_twin],
    ids=["kernels", "numpy"],
)
def test_information__counts_whose_products_do_not_fit(module):
    """One row more or less among 10^10 of 2 x 2 values; and a lopsided table."""
    block = np.full((2, 2, 1), 10**10)
    assert information(module, block) == 0.0
    block[0, 0] += 10**4
    expected = naive.information(dict(np.ndenumerate(block)))
    assert information(module, block) == pytest.approx(expected, rel=1e-12, abs=0)
    block = np.array([[[4 * 10**11], [3]], [[10**5], [7 * 10**11]]])
    expected = naive.information(dict(np.ndenumerate(block)))
    assert information(module, block) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("module", MODULES)
def test_information__independence_is_zero(module):
    a, b, c = np.array([1, 2, 5]), np.array([3, 1]), np.array([10, 7])
    whole = a[:, None, None] * b[:, None] * c
    assert information(module, whole) == 0.0
    assert information(module, whole * 0.1) == 0.0
    assert information(module, np.zeros((3, 2, 2), np.int64)) == 0.0
    assert information(module, np.zeros((3, 2, 2))) == 0.0
    assert information(module, np.zeros((0, 2, 2), np.int64)) == 0.0


@pytest.mark.parametrize("module", MODULES)
def test_information__copies_have_the_entropy_within_the_class(module):
    block = np.zeros((2, 2, 2), np.int64)
    block[0, 0], block[1, 1] = [3, 8], [1, 0]
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert information(module, block) == pytest.approx(4 / 12 * entropy, rel=1e-14)


@pytest.mark.parametrize("module", MODULES)
def test_information__only_rows_where_both_are_known(module):
    rng = np.random.default_rng(0)
    block = rng.integers(0, 9, (4, 3, 2))
    expected = naive.information(dict(np.ndenumerate(block[:3, :2])))
    assert information(module, block, sizes=(3, 2)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("factor", [2.0**-1000, 1e-160, 1e-20, 1e150, 2.0**900])
def test_information__any_unit_of_weight(module, factor):
    block = np.random.default_rng(1).integers(0, 9, (4, 3, 2)).astype(float)
    assert information(module, block * factor) == pytest.approx(
        information(module, block), rel=1e-13
    )


@pytest.mark.parametrize("module", MODULES)
def test_information__what_a_retraction_leaves_is_nothing(module):
    block = np.random.default_rng(2).integers(0, 9, (3, 3, 2)).astype(float)
    block[1] = 0.0
    block[0, 1] = 0.0
    expected = information(module, block)
    block[0, 1] = [-1e-12, 1e-17]
    block[1] = [[-1e-12, 1e-17], [-2e-12, -1e-12], [1e-17, 0.0]]
    assert information(module, block) == pytest.approx(expected, rel=1e-13)
    block[:] = 0.0
    block[0] = -1e-17
    assert information(module, block) == 0.0


@pytest.mark.parametrize("module", MODULES)
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from([np.int64, np.float64]))
def test_information__order_of_columns_values_and_classes(module, seed, dtype):
    """Weights equal on paper stay equal at 1e-12, however small they are."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 7), rng.integers(1, 7), rng.integers(1, 5)
    near = rng.integers(1, 10**6)
    block = (near + rng.integers(0, 2, shape)).astype(dtype)
    if dtype is np.float64:
        block *= 0.1
    expected = information(module, block)
    other = block.transpose(1, 0, 2)
    for axis in range(3):
        other = np.take(other, rng.permutation(other.shape[axis]), axis)
    # Sums of weights that are not exact lose what they cannot hold.
    rtol = 1e-13 if dtype is np.int64 else 1e-15 * near
    assert information(module, other) == pytest.approx(expected, rel=rtol, abs=1e-24)


@pytest.mark.parametrize("module", MODULES)
def test_information__of_one_class_is_that_of_the_pair(module):
    """The example of three features in which three readings of the weight drop three edges."""
    joint = example()
    weights = {
        "ab": joint.sum(axis=2),
        "ac": joint.sum(axis=1),
        "bc": joint.sum(axis=0),
    }
    conditional = {pair: information(module, cells) for pair, cells in weights.items()}
    plainly = {
        pair: information(module, cells.sum(axis=2, keepdims=True))
        for pair, cells in weights.items()
    }
    assert min(conditional, key=conditional.__getitem__) == "bc"
    assert min(plainly, key=plainly.__getitem__) == "ac"
    # With P(x_i, x_j | c) as the outer factor, every class counts alike.
    printed = Counter()
    for pair, cells in weights.items():
        for c in range(2):
            printed[pair] += information(module, cells[:, :, c : c + 1])
    assert min(printed, key=printed.__getitem__) == "ab"


def example():
    """Return 48 rows as n(a, b, c, class)."""
    counts = np.array([[0, 3, 0, 5, 25, 7, 0, 0], [6, 0, 0, 1, 0, 1, 0, 0]])
    return counts.reshape(2, 2, 2, 2).transpose(1, 2, 3, 0)


@pytest.mark.parametrize("module", MODULES)
@given(seed=st.integers(0, 2**32), weighted=st.booleans())
def test_class_information_equals_the_naive_one(module, seed, weighted):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 6, rng.integers(0, 5))
    offsets = np.concatenate(([0], np.cumsum(sizes + 1)))
    counts = rng.integers(0, 50, (offsets[-1], rng.integers(1, 4)))
    counts = counts * 0.5 if weighted else counts
    found = np.zeros(len(sizes))
    module.pair_information(*class_pairs(counts, offsets, sizes), found)
    expected = naive.class_information(counts, offsets, sizes)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-24)


@pytest.mark.compiled
def test_kernels_and_numpy_agree_on_many_pairs_of_few_shapes():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 4, 40)
    first, second = np.triu_indices(40, 1)
    blocks = [
        rng.integers(0, 99, (sizes[i], sizes[j], 3)) for i, j in zip(first, second, strict=True)
    ]
    flat, starts = laid_out(blocks)
    results = []
    for module in (compiled, numpy_twin):
        results.append(np.full(len(first), np.nan))
        module.pair_information(flat, first, second, starts, sizes, sizes, 3, results[-1])
    np.testing.assert_allclose(*results, rtol=1e-13)


@pytest.mark.compiled
def test_kernels_and_numpy_agree_on_pairs_too_large_to_go_side_by_side():
    rng = np.random.default_rng(4)
    sizes = np.array([300, 200] + [1] * 9)
    blocks = [rng.integers(0, 3, (300, 200, 2)) for _ in range(9)]
    flat, starts = laid_out(blocks)
    first, second = np.zeros(9, np.int64), np.ones(9, np.int64)
    results = []
    for module in (compiled, numpy_twin):
        results.append(np.full(9, np.nan))
        module.pair_information(flat, first, second, starts, sizes, sizes, 2, results[-1])
    np.testing.assert_allclose(*results, rtol=1e-13)
