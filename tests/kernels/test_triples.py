from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import triples as naive

from fastbayes.kernels.compiled.counting import families as compiled
from fastbayes.kernels.numpy.counting import families as numpy_twin

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]


def block(seed, n, sizes, n_classes):
    """Return columns, sizes, y, classes, starts with gaps, and the number of cells."""
    rng = np.random.default_rng(seed)
    columns = [
        rng.integers(0, size, n).astype(rng.choice(["u1", "u2", "u4"] if size < 256 else ["u2"]))
        for size in sizes
    ]
    y = rng.integers(0, n_classes, n).astype(np.uint8 if n_classes <= 256 else np.uint16)
    cells = [np.prod(t) * n_classes for t in itertools.combinations(sizes, 3)]
    cells = np.array(cells, np.int64) + rng.integers(0, 3, len(cells))
    ends = np.cumsum(cells)
    return columns, np.array(sizes), y, n_classes, ends - cells, int(cells.sum())


@st.composite
def blocks(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 7]), max_size=6))
    if draw(st.booleans()):
        sizes.insert(draw(st.integers(0, len(sizes))), 300)
    return block(
        draw(st.integers(0, 2**32)),
        draw(st.sampled_from([0, 1, 3, 40, 301, 5000])),
        sizes,
        draw(st.sampled_from([1, 2, 3, 10, 300])),
    )


@pytest.mark.parametrize("module", MODULES)
@given(drawn=blocks())
def test_counts_equal_the_naive_ones_and_add_up(module, drawn):
    columns, sizes, y, n_classes, starts, total = drawn
    some = slice(0, 301)
    columns, y = [column[some] for column in columns], y[some]
    expected, counts = np.zeros(total, np.int64), np.zeros(total, np.int64)
    naive.add_triple_counts(columns, sizes, y, None, n_classes, starts, expected)
    cut = len(y) // 3
    for rows in (slice(0, cut), slice(cut, None)):
        part = [column[rows] for column in columns]
        module.add_triple_counts(part, sizes, y[rows], None, n_classes, starts, counts)
    np.testing.assert_array_equal(counts, expected)


@given(drawn=blocks())
def test_twins_agree_over_many_rows(drawn):
    columns, sizes, y, n_classes, starts, total = drawn
    for dtype in (np.int64, np.float64):
        one, other = np.zeros(total, dtype), np.zeros(total, dtype)
        compiled.add_triple_counts(columns, sizes, y, None, n_classes, starts, one)
        numpy_twin.add_triple_counts(columns, sizes, y, None, n_classes, starts, other)
        np.testing.assert_array_equal(one, other)
        assert one.sum() == len(starts) * len(y)


@pytest.mark.parametrize("module", MODULES)
@given(drawn=blocks())
def test_weights_are_summed_in_row_order(module, drawn):
    columns, sizes, y, n_classes, starts, total = drawn
    some = slice(0, 301)
    columns, y = [column[some] for column in columns], y[some]
    weight = np.random.default_rng(len(y)).random(len(y)) * 10.0 ** (np.arange(len(y)) % 7)
    expected, counts = np.full(total, 0.1), np.full(total, 0.1)
    naive.add_triple_counts(columns, sizes, y, weight, n_classes, starts, expected)
    module.add_triple_counts(columns, sizes, y, weight, n_classes, starts, counts)
    np.testing.assert_array_equal(counts, expected)
