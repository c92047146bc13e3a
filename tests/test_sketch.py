"""A sketch depends on the rows as a set: not on their order, batches or who added them up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.data.discretize import FEW_ROWS, LIMIT, ValueSketch, profiles
from fastbayes.kernels.shared.sketch import split

pytestmark = pytest.mark.usefixtures("kernels")


def sketch_of(values, labels, weight=None, *, limit=LIMIT, few=FEW_ROWS, cuts=()):
    """Return the sketch of rows that come in several batches."""
    sketch = ValueSketch(limit, few)
    bounds = [0, *sorted(cuts), len(values)]
    for first, last in pairwise(bounds):
        w = None if weight is None else weight[first:last]
        part = labels[first:last].astype(np.uint16)
        sketch.update(values[first:last], part, split(w, last - first))
    return sketch


def profile_of(sketch, classes):
    return profiles([sketch], classes)[0]


def assert_same(a, b, n_classes):
    assert a.shift == b.shift
    for mine, theirs in zip(
        *(profile_of(sketch, np.arange(n_classes)) for sketch in (a, b)), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


@st.composite
def tables(draw):
    n = draw(st.integers(0, 1_000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([1e-300, 1e-3, 1.0, 1e9]))
    values = rng.normal(size=n) * scale
    if draw(st.booleans()):
        values = np.round(values / scale, 1)
    values[rng.random(n) < 0.1] = np.nan
    weight = rng.random(n) * 3 if draw(st.booleans()) else None
    return values, rng.integers(0, 3, n), weight


@given(tables(), st.sampled_from([4, 60, 700]), st.integers(0, 2**32))
@settings(max_examples=40)
def test_order_and_batches_do_not_matter(table, limit, seed):
    n, rng = len(table[0]), np.random.default_rng(seed)
    order = rng.permutation(n)
    shuffled = [None if a is None else a[order] for a in table]
    cuts = rng.integers(0, n + 1, rng.integers(0, 6)).tolist()
    for few in (limit, 2 * limit):
        whole = sketch_of(*table, limit=limit, few=few)
        assert_same(whole, sketch_of(*shuffled, limit=limit, few=few, cuts=cuts), 3)


@given(tables(), st.sampled_from([4, 60, 700]), st.integers(0, 2**32))
@settings(max_examples=40)
def test_sketches_add_in_any_order(table, limit, seed):
    rng = np.random.default_rng(seed)
    parts = rng.integers(0, 4, len(table[0]))

    def added(order):
        total = ValueSketch(limit, limit)
        for part in order:
            rows = [None if a is None else a[parts == part] for a in table]
            total.merge(sketch_of(*rows, limit=limit, few=limit))
        return total

    whole = sketch_of(*table, limit=limit, few=limit)
    assert_same(whole, added(range(4)), 3)
    assert_same(whole, added(rng.permutation(4)), 3)
    nested = sketch_of(*[None if a is None else a[:0] for a in table], limit=limit, few=limit)
    nested.merge(added(range(4)))
    assert_same(whole, nested, 3)


@given(tables(), st.sampled_from([4, 60, 2_000]))
@settings(max_examples=40)
def test_profile(table, limit):
    values, labels, weight = table
    sketch = sketch_of(*table, limit=limit, few=limit)
    least, greatest, weights = profile_of(sketch, np.arange(3))
    known = ~np.isnan(values)
    w = np.ones(len(values)) if weight is None else weight
    assert len(least) <= max(limit, 2)
    assert (least <= greatest).all()
    assert (greatest[:-1] < least[1:]).all()
    assert np.isin(least, values).all()
    assert np.isin(greatest, values).all()
    cell = np.searchsorted(greatest, values[known])
    expected = np.zeros_like(weights)
    np.add.at(expected, (cell, labels[known]), w[known])
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)
    pairs = set(zip(values[known].tolist(), labels[known].tolist(), strict=True))
    if len(pairs) <= limit:
        assert sketch.shift == 0
        assert least.tolist() == sorted({value for value, _ in pairs})


def test_whole_weights_are_as_many_rows():
    rng = np.random.default_rng(1)
    values, labels, weight = rng.normal(size=300), rng.integers(0, 2, 300), rng.integers(0, 4, 300)
    again = np.repeat(np.arange(300), weight)
    for few in (60, 500, 5_000):  # above, between and below the two numbers of rows
        weighted = sketch_of(values, labels, weight * 1.0, limit=50, few=few)
        assert_same(weighted, sketch_of(values[again], labels[again], limit=50, few=few), 2)


def test_few_rows_are_kept_exactly_and_many_are_not():
    rng = np.random.default_rng(2)
    values, labels = rng.normal(size=2_000), rng.integers(0, 2, 2_000)
    few = sketch_of(values[:1_000], labels[:1_000], limit=100, few=1_000)
    assert few.shift == 0
    assert profile_of(few, np.arange(2)).least.tolist() == sorted(values[:1_000].tolist())
    many = sketch_of(values[:1_001], labels[:1_001], limit=100, few=1_000)
    assert len(profile_of(many, np.arange(2)).least) <= 100


def test_memory_is_bounded():
    rng = np.random.default_rng(3)
    sketch = ValueSketch(100, 100)
    for _ in range(30):
        values = rng.normal(size=5_000) * 10.0 ** rng.integers(-300, 300)
        sketch.update(values, np.zeros(5_000, np.uint16), split(None, 5_000))
        assert sketch.nbytes < 250_000


def test_no_rows():
    sketch = ValueSketch()
    for _ in range(2):
        assert [len(array) for array in profile_of(sketch, np.arange(3))] == [0, 0, 0]
        assert profile_of(sketch, np.arange(3)).weight.shape == (0, 3)
        sketch.update(np.array([np.nan]), np.zeros(1, np.uint16), split(None, 1))
    sketch.merge(ValueSketch())
    assert len(profile_of(sketch, np.arange(3)).least) == 0


def test_profile__classes_in_another_order():
    rng = np.random.default_rng(5)
    sketch = sketch_of(rng.normal(size=50), rng.integers(0, 3, 50))
    order = np.array([2, 0, 1])
    expected = profile_of(sketch, np.arange(3)).weight[:, order]
    np.testing.assert_array_equal(profile_of(sketch, order).weight, expected)


def test_profile__of_many_classes_has_larger_cells(monkeypatch):
    monkeypatch.setattr("fastbayes.data.discretize.MOST_WEIGHTS", 1_000)
    rng = np.random.default_rng(6)
    values, labels = rng.normal(size=500), rng.integers(0, 40, 500)
    least, greatest, weight = profile_of(sketch_of(values, labels), np.arange(40))
    assert 5 < len(least) <= 25
    cell = np.searchsorted(greatest, values)
    expected = np.zeros_like(weight)
    np.add.at(expected, (cell, labels), 1)
    np.testing.assert_array_equal(weight, expected)
    assert (least <= greatest).all()
    assert (greatest[:-1] < least[1:]).all()


def test_kernels_and_twin_agree(monkeypatch):
    rng = np.random.default_rng(4)
    values, labels = rng.normal(size=120_000), rng.integers(0, 2, 120_000)
    found = []
    for choice in ("always", "never"):
        monkeypatch.setenv("FASTBAYES_KERNELS", choice)
        found.append(sketch_of(values, labels, cuts=[65_536]))
    assert found[0].shift > 0
    assert_same(*found, 2)


def test_few_rows_are_held_as_they_are():
    rng = np.random.default_rng(7)
    values, labels = rng.integers(0, 40, 1_000) / 4, rng.integers(0, 2, 1_000)
    values[:3] = np.nan, 0.0, -0.0
    light, heavy = np.full(1_000, 0.5), np.full(1_000, 3.7)
    for weight in (None, light, heavy):
        held = sketch_of(values, labels, weight, limit=60, few=1_000, cuts=[10, 500])
        spilled = sketch_of(values, labels, weight, limit=60, few=1_000)
        spilled._spilled()
        assert held.nbytes == 8 * len(values)
        assert_same(held, spilled, 2)
        # Few rows that weigh as much as many are given the cells of many.
        assert (held.nbytes == 8 * len(values)) == (weight is not heavy)
