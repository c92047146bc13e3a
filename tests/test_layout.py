"""Where coefficients stand: every row belongs to one block, in the order the contract names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.core.layout import Layout


def test_rows_of_a_small_layout():
    layout = Layout.of([2, 3], 3, center=[0.0, 5.0], scale=[1.0, 2.0], pairs=[(0, 1)])
    rows = layout.rows
    assert rows.intercept == 0
    assert rows.values.tolist() == [1, 3]
    assert rows.numeric == 6
    assert rows.pairs.tolist() == [8]
    assert layout.n_rows == 8 + 6
    assert layout.n_outputs == 3


@pytest.mark.parametrize(("n_classes", "n_outputs"), [(1, 1), (2, 1), (3, 3), (7, 7)])
def test_two_classes_have_one_output(n_classes, n_outputs):
    assert Layout.of([2], n_classes).n_outputs == n_outputs


def test_nothing_but_an_intercept():
    layout = Layout.of([], 2)
    assert layout.n_rows == 1
    assert layout.rows.numeric == 1
    assert layout.rows.values.tolist() == layout.rows.pairs.tolist() == []


@given(st.lists(st.integers(0, 5), max_size=5), st.integers(0, 3), st.data())
@settings(max_examples=30, deadline=None)
def test_blocks_cover_every_row_once(sizes, p, data):
    places = st.integers(0, len(sizes) - 1) if sizes else st.nothing()
    pairs = data.draw(st.lists(st.tuples(places, places), max_size=3)) if sizes else []
    layout = Layout.of(sizes, 2, center=np.zeros(p), scale=np.ones(p), pairs=pairs)
    rows = layout.rows
    covered = [0]
    for start, size in zip(rows.values, sizes, strict=True):
        covered += range(start, start + size)
    covered += range(rows.numeric, rows.numeric + p)
    for start, (a, b) in zip(rows.pairs, pairs, strict=True):
        covered += range(start, start + sizes[a] * sizes[b])
    assert covered == list(range(layout.n_rows))
