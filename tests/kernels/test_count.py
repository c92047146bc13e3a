from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import count as naive

from fastbayes.kernels.compiled.counting import count as compiled
from fastbayes.kernels.numpy.counting import count as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels"),
    pytest.param(numpy_twin, id="numpy"),
]


def block(seed, n, sizes, n_classes, code=np.uint8, class_code=np.uint8, skew=False):
    """Return codes, sizes, slots, y and the number of slots: columns in any order, with gaps."""
    rng = np.random.default_rng(seed)
    sizes = np.array(sizes, np.int64)
    codes = np.empty((len(sizes), n), code)
    for i, size in enumerate(sizes):
        codes[i] = rng.integers(0, size, n)
    y = rng.integers(0, n_classes, n).astype(class_code)
    if skew:
        codes[rng.random(codes.shape) < 0.97] = 0
        y[rng.random(n) < 0.97] = 0
    order = rng.permutation(len(sizes))
    slots = np.empty(len(sizes), np.int64)
    slots[order] = np.cumsum(sizes[order] + 1) - sizes[order]
    return codes, sizes, slots, y, int((sizes + 1).sum())


@st.composite
def blocks(draw):
    code = draw(st.sampled_from([np.uint8, np.uint8, np.uint16, np.uint32]))
    many = 256 if code is np.uint8 else 70_000 if code is np.uint32 else 65_536
    n_classes = draw(st.sampled_from([1, 2, 3, 10, 100, 255, 256, 300]))
    class_code = draw(st.sampled_from([np.uint8, np.uint16] if n_classes <= 256 else [np.uint16]))
    size = st.integers(1, 13) | st.integers(1, min(many, 100_000 // n_classes))
    return block(
        draw(st.integers(0, 2**32)),
        draw(st.integers(0, 300)),
        draw(st.lists(size, min_size=1, max_size=6)),
        n_classes,
        code,
        class_code,
        draw(st.booleans()),
    ), n_classes


@pytest.mark.parametrize("module", MODULES)
@given(drawn=blocks())
def test_counts_equal_the_naive_ones_and_add_up(module, drawn):
    (codes, sizes, slots, y, n_slots), n_classes = drawn
    expected = np.zeros((n_slots, n_classes), np.int64)
    naive.add_counts(codes, sizes, slots, y, None, expected)
    counts = np.zeros_like(expected)
    cut = len(y) // 3
    for rows in (slice(0, cut), slice(cut, None)):  # not contiguous: taken all the same
        module.add_counts(codes[:, rows], sizes, slots, y[rows], None, counts)
    np.testing.assert_array_equal(counts, expected)
    n_y = np.zeros(n_classes, np.int64)
    module.add_class_counts(y, None, n_y)
    module.add_class_counts(y[:cut], None, n_y)
    np.testing.assert_array_equal(
        n_y, np.bincount(y, minlength=n_classes) + np.bincount(y[:cut], minlength=n_classes)
    )


@pytest.mark.parametrize("module", MODULES)
@given(drawn=blocks())
def test_weights_are_summed_in_row_order(module, drawn):
    (codes, sizes, slots, y, n_slots), n_classes = drawn
    weight = np.random.default_rng(len(y)).random(len(y)) * 10.0 ** (np.arange(len(y)) % 7)
    expected = np.full((n_slots, n_classes), 0.1)
    counts = expected.copy()
    naive.add_counts(codes, sizes, slots, y, weight, expected)
    module.add_counts(codes, sizes, slots, y, weight, counts)
    np.testing.assert_array_equal(counts, expected)  # to the last bit
    n_y, n_y_expected = np.zeros(n_classes), np.zeros(n_classes)
    module.add_class_counts(y, weight, n_y)
    naive.add_class_counts(y, weight, n_y_expected)
    np.testing.assert_array_equal(n_y, n_y_expected)


@pytest.mark.parametrize("module", MODULES)
def test_no_weights_in_a_weighted_count_are_ones(module):
    codes, sizes, slots, y, n_slots = block(0, 100, [3, 5], 2)
    counts = np.full((n_slots, 2), 0.5)
    expected = counts.copy()
    module.add_counts(codes, sizes, slots, y, None, counts)
    naive.add_counts(codes, sizes, slots, y, None, expected)
    np.testing.assert_array_equal(counts, expected)
    n_y = np.zeros(2)
    module.add_class_counts(y, None, n_y)
    np.testing.assert_array_equal(n_y, np.bincount(y))


def agree(codes, sizes, slots, y, n_slots, n_classes):
    """Count with both twins, on to what is there."""
    counts = np.arange(n_slots * n_classes).reshape(n_slots, n_classes)
    expected = counts.copy()
    compiled.add_counts(codes, sizes, slots, y, None, counts)
    numpy_twin.add_counts(codes, sizes, slots, y, None, expected)
    np.testing.assert_array_equal(counts, expected)


def plan(sizes, n_classes, n, bytes_only=True):
    return compiled.choose(np.array(sizes).tobytes(), n_classes, n, bytes_only)


@pytest.fixture
def fresh_plans():
    """Plans made under changed constants must not outlive the test."""
    compiled.choose.cache_clear()
    yield
    compiled.choose.cache_clear()


def of_few_rows(monkeypatch):
    """Let no method cost more where rows are few."""
    for cost in ("CLASS_ROW", "PLANES_COLUMN", "PLANES_SUM", "PACKED_SUM"):
        monkeypatch.setattr(compiled, cost, 0.0)


@pytest.mark.compiled
def test_each_method_has_its_columns(monkeypatch, fresh_plans):
    of_few_rows(monkeypatch)
    monkeypatch.setattr(compiled, "PLANES_VALUE", 0.0)  # on any processor
    monkeypatch.setattr(compiled, "PLANES_CELL", 0.003)
    chosen = plan([2, 12, 12, 100, 250], 8, 8192)
    assert list(chosen.planes) == [0]
    assert (list(chosen.packed), list(chosen.borders)) == ([1, 2], [0, 2])
    assert list(chosen.radices) == [8, 96]
    assert [(copies, list(columns)) for copies, columns in chosen.private] == [(1, [3])]
    assert [(ahead, list(columns)) for ahead, columns in chosen.in_place] == [(0, [4])]
    wide = plan([100, 250, 3_000_000], 2, 65_536, False)
    assert [(copies, list(columns)) for copies, columns in wide.private] == [(4, [0, 1])]
    assert [(ahead, list(columns)) for ahead, columns in wide.in_place] == [(32, [2])]


@pytest.mark.parametrize("skew", [False, True])
@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4099, 8192])
def test_methods_agree_with_the_numpy_twin__mixed_sizes(n, skew):
    sizes, n_classes = [2, 12, 12, 100, 250, 1, 12], 8
    *arrays, n_slots = block(n, n, sizes, n_classes, skew=skew)
    agree(*arrays, n_slots, n_classes)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("sizes", "n_classes"),
    [((2, 7, 4, 1, 16), 3), ((25, 9), 10), ((256, 17), 1), ((5,), 256), ((3, 6), 7)],
)
def test_planes__rows_that_fill_no_group_part_or_block(sizes, n_classes, monkeypatch, fresh_plans):
    monkeypatch.setattr(compiled, "PLANES_BASE", -1e6)
    group = compiled.bit_planes.GROUP
    for n in (1, group - 1, group, group + 1, 3 * group + 5):
        assert len(plan(sizes, n_classes, 1 << n.bit_length() >> 1).planes) == len(sizes)
        agree(*block(n, n, sizes, n_classes), n_classes)
    for n in (compiled.PART + 1, compiled.BLOCK, compiled.BLOCK + group + 1):
        agree(*block(n, n, sizes, n_classes), n_classes)


@pytest.mark.compiled
def test_planes__every_row_alike():
    n = 2 * compiled.BLOCK - 1
    for value in (0, 1, 11):
        codes, y = np.full((3, n), value, np.uint8), np.full(n, 3, np.uint8)
        agree(codes, np.full(3, 12), np.arange(3) * 12, y, 36, 4)


@pytest.mark.parametrize(
    ("sizes", "code", "packed"),
    [([30, 30, 5, 2, 2], np.uint8, [0, 1, 2, 3, 4]), ([40, 9], np.uint16, [])],
)
def test_private_counters_are_emptied_before_they_overflow(
    sizes, code, packed, monkeypatch, fresh_plans
):
    monkeypatch.setattr(compiled, "STRETCH", 1000)
    of_few_rows(monkeypatch)
    monkeypatch.setattr(compiled, "PLANES_BASE", 9.0)
    chosen = plan(sizes, 2, 2048, code is np.uint8)
    assert list(chosen.packed) == packed
    assert bool(chosen.private) != bool(packed)
    agree(*block(1, 3500, sizes, 2, code), 2)


@pytest.mark.compiled
def test_in_place__reading_ahead(monkeypatch, fresh_plans):
    monkeypatch.setattr(compiled, "FAR_CELLS", 1000)
    for n in (1, 31, 32, 33, 500):
        for code, size in ((np.uint8, 256), (np.uint16, 65_536), (np.uint32, 70_000)):
            assert plan([size], 5, n, False).in_place[0][0] > 0
            agree(*block(n, n, [size, size], 5, code, np.uint16), 5)


@pytest.mark.parametrize("code", [np.uint8, np.uint16])
def test_largest_code_of_a_type(code):
    largest = np.iinfo(code).max
    for n_classes, class_code in ((2, np.uint8), (256, np.uint8), (300, np.uint16)):
        codes = np.full((2, 50), largest, code)
        y = np.full(50, n_classes - 1, class_code)
        sizes = np.full(2, largest + 1, np.int64)
        slots = np.array([0, largest + 1])
        agree(codes, sizes, slots, y, 2 * (largest + 1), n_classes)


def test_many_columns():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 40, 1000)
    *arrays, n_slots = block(3, 100, sizes, 3)
    agree(*arrays, n_slots, 3)
