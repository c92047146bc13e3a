from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import families as naive

from fastbayes.kernels.compiled.counting import families as compiled
from fastbayes.kernels.numpy.counting import families as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels"),
    pytest.param(numpy_twin, id="numpy"),
]


@st.composite
def blocks(draw):
    """Return columns, sizes, y, classes, families, starts and the number of cells."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, n_classes = draw(st.integers(0, 300)), draw(st.sampled_from([1, 2, 3, 10, 300]))
    sizes = np.array(draw(st.lists(st.sampled_from([1, 2, 3, 7, 90, 300]), min_size=1, max_size=6)))
    columns = [
        rng.integers(0, size, n).astype(np.uint8 if size + 2 <= 256 else rng.choice(["u2", "u4"]))
        for size in sizes
    ]
    y = rng.integers(0, n_classes, n).astype(np.uint8 if n_classes <= 256 else np.uint16)
    families = []
    for _ in range(draw(st.integers(0, 5))):
        family = rng.permutation(len(sizes))[: rng.integers(1, len(sizes) + 1)]
        while np.prod(sizes[family]) * n_classes > 1_000_000:
            family = family[1:]
        families.append(tuple(family.tolist()))
    cells = np.array([np.prod(sizes[list(f)]) for f in families], np.int64)
    gaps = rng.integers(0, 3, len(cells))
    ends = np.cumsum(cells + gaps)
    starts = (ends - cells) * n_classes
    total = int(ends[-1] if len(ends) else 0) * n_classes
    return columns, sizes, y, n_classes, families, starts, total


@pytest.mark.parametrize("module", MODULES)
@given(drawn=blocks())
def test_counts_equal_the_naive_ones_and_add_up(module, drawn):
    columns, sizes, y, n_classes, families, starts, total = drawn
    expected, counts = np.zeros(total, np.int64), np.zeros(total, np.int64)
    naive.add_family_counts(columns, sizes, y, None, n_classes, families, starts, expected)
    cut = len(y) // 3
    for rows in (slice(0, cut), slice(cut, None)):
        some = [column[rows] for column in columns]
        module.add_family_counts(some, sizes, y[rows], None, n_classes, families, starts, counts)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("module", MODULES)
@given(drawn=blocks())
def test_weights_are_summed_in_row_order(module, drawn):
    columns, sizes, y, n_classes, families, starts, total = drawn
    weight = np.random.default_rng(len(y)).random(len(y)) * 10.0 ** (np.arange(len(y)) % 7)
    expected, counts = np.full(total, 0.1), np.full(total, 0.1)
    naive.add_family_counts(columns, sizes, y, weight, n_classes, families, starts, expected)
    module.add_family_counts(columns, sizes, y, weight, n_classes, families, starts, counts)
    np.testing.assert_array_equal(counts, expected)


def test_codes_of_every_width_reach_the_last_cell():
    for sizes in ([16, 16], [256], [1, 256], [256, 256], [65_536], [1, 65_536], [2, 2, 65_536]):
        total = int(np.prod(sizes))
        kind = np.uint8 if max(sizes) <= 256 else np.uint16
        columns = [np.array([size - 1, 0], kind) for size in sizes]
        counts = np.zeros(total, np.int64)
        compiled.add_family_counts(
            *(columns, np.array(sizes), np.zeros(2, np.uint8), None, 1),
            *([tuple(range(len(sizes)))], np.zeros(1, np.int64), counts),
        )
        assert counts.sum() == 2
        assert counts[0] == counts[-1] == 1


def test_more_cells_than_four_bytes_tell_apart_are_the_twins(monkeypatch):
    # Codes so wide have a table of 32 GiB: only that they go to the twin is seen here.
    seen = []
    monkeypatch.setattr(numpy_twin, "add_family_counts", lambda *told: seen.append(told[5:7]))
    columns, sizes = [np.zeros(3, np.uint32)] * 2, np.array([2**20, 2**13])
    compiled.add_family_counts(
        *(columns, sizes, np.zeros(3, np.uint8), None, 2),
        *([(0, 1)], np.array([8]), np.zeros(0, np.int64)),
    )
    ((families, starts),) = seen
    assert families == [(0, 1)]
    assert starts.tolist() == [8]
