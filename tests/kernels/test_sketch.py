from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import sketch as naive

from fastbayes.kernels.compiled.counting import sketch as compiled
from fastbayes.kernels.numpy.counting import sketch as numpy_twin
from fastbayes.kernels.shared import sketch as entries

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]


FLOATS = st.floats(allow_infinity=False) | st.integers(-20, 20).map(float)


@st.composite
def rows(draw):
    """Return values of one shape or another, labels and weights."""
    size = draw(st.integers(0, 600))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shapes = [
        rng.normal(size=size) * 10.0 ** rng.integers(-300, 300),
        rng.integers(-50, 50, size) / 4,
        1.7e9 + rng.normal(size=size),
        np.exp(rng.normal(size=size) * 20),
        rng.choice([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, np.nan], size),
        rng.choice(np.array(draw(st.lists(FLOATS, min_size=1, max_size=20))), size),
    ]
    values = shapes[draw(st.integers(0, len(shapes) - 1))]
    values[rng.random(size) < 0.05] = np.nan
    labels = rng.integers(0, draw(st.sampled_from([1, 2, 5, 400, 65_536])), size).astype(np.uint16)
    weights = [
        np.ones(size),
        rng.integers(0, 4, size) * 1.0,
        rng.random(size),
        rng.random(size) * 1e-9,
    ]
    return values, labels, weights[draw(st.integers(0, 3))]


def filled(module, columns, limit, few, cuts=()):
    cells = module.SketchEntries(limit, few)
    for part in zip(*(np.split(array, cuts) for array in columns), strict=True):
        values, labels, weight = part
        cells.add(values, labels, *entries.split(weight, len(weight)))
    return cells


def found(cells):
    entries = cells.entries()
    return cells.shift, [list(entry) for entry in zip(*(a.tolist() for a in entries), strict=True)]


@pytest.mark.parametrize("module", MODULES)
@given(rows(), st.sampled_from([1, 7, 30, 500, 2_000]), st.sampled_from([0, 1, 30, 700, 5_000]))
@settings(max_examples=40)
def test_entries(module, columns, limit, few):
    few = max(limit, few)
    cells = filled(module, columns, limit, few, [len(columns[0]) // 3])
    assert found(cells) == naive.entries(*columns, limit, few)


@pytest.mark.parametrize("module", MODULES)
@given(rows(), st.sampled_from([7, 30, 500]))
@settings(max_examples=40)
def test_asking_between_blocks__changes_nothing(module, columns, limit):
    cells = module.SketchEntries(limit, limit)
    third = len(columns[0]) // 3
    for part in (slice(0, third), slice(third, 2 * third), slice(2 * third, None)):
        values, labels, weight = (array[part] for array in columns)
        cells.add(values, labels, *entries.split(weight, len(weight)))
        so_far = naive.entries(*(array[: part.stop] for array in columns), limit, limit)
        assert len(cells) == len(so_far[1])
        assert found(cells) == so_far == found(cells)


@pytest.mark.parametrize("module", MODULES)
@given(rows(), rows(), st.sampled_from([3, 40, 500]), st.sampled_from([3, 100, 2_000]))
@settings(max_examples=40)
def test_take__is_adding_the_rows(module, mine, others, limit, few):
    few = max(limit, few)
    cells, more = (filled(module, columns, limit, few) for columns in (mine, others))
    cells.take(more.entries(), more.shift)
    together = [np.concatenate(pair) for pair in zip(mine, others, strict=True)]
    assert found(cells) == naive.entries(*together, limit, few)


@given(rows(), st.sampled_from([3, 40, 500]), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_twins_take_each_other(columns, limit, random):
    half = len(columns[0]) // 2
    a = filled(compiled, [array[:half] for array in columns], limit, limit)
    b = filled(numpy_twin, [array[half:] for array in columns], limit, limit)
    a.take(b.entries(), b.shift)
    assert found(a) == naive.entries(*columns, limit, limit)


@pytest.mark.parametrize("module", MODULES)
def test_many_different_values(module):
    rng = np.random.default_rng(0)
    n = 20_000
    columns = rng.normal(size=n), rng.integers(0, 3, n).astype(np.uint16), np.ones(n)
    limit, few = 3_000, 15_000
    shift, entries = found(filled(module, columns, limit, few, [5_000, 9_000]))
    assert 0 < len(entries) <= limit
    assert (shift, entries) == naive.entries(*columns, limit, few)
    exact = filled(module, [array[:15_000] for array in columns], limit, few, [5_000])
    assert exact.entries() is not None
    assert exact.shift == 0


@pytest.mark.parametrize("module", MODULES)
def test_more_classes_than_entries_may_be(module):
    n = 5_000
    columns = np.arange(n) * 1.0 - 2_500, np.arange(n).astype(np.uint16), np.ones(n)
    cells = filled(module, columns, 10, 10)
    assert found(cells) == naive.entries(*columns, 10, 10)
    assert cells.shift == 63


@given(st.lists(FLOATS, max_size=50))
@example([0.0, -0.0])
def test_keys_are_in_the_order_of_the_numbers(values):
    array = np.array([v for v in values if v == v])
    keys = entries.keys(array)
    assert keys.tolist() == [naive.key(v) for v in array.tolist()]
    np.testing.assert_array_equal(np.argsort(keys, kind="stable"), np.argsort(array, kind="stable"))
    np.testing.assert_array_equal(entries.numbers(keys), array)


def test_fractions_carry():
    third = np.full(1_000, 1 / 3)
    columns = np.zeros(1_000), np.zeros(1_000, np.uint16), third
    for module in (compiled, numpy_twin):
        (entry,) = found(filled(module, columns, 9, 9))[1]
        assert entry[3] == 333
        assert entry[3] + entry[4] / 2**44 == pytest.approx(1_000 / 3, rel=1e-13)
