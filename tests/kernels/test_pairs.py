from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from oracles import pairs as naive

from fastbayes.kernels.compiled.counting import bitmaps
from fastbayes.kernels.compiled.counting import pairs as compiled
from fastbayes.kernels.compiled.plans import pair_plan
from fastbayes.kernels.compiled.simd import bits
from fastbayes.kernels.numpy.counting import pairs as numpy_twin

# How pairs are counted where they can be: bit rows split by class in either way, joint codes of
# 16 bits or more, as the plan says, in numpy.
METHODS = [
    *(
        pytest.param(method, marks=pytest.mark.compiled)
        for method in ("bits", "codes", "direct", "wide")
    ),
    "planned",
    "numpy",
]


@contextmanager
def counting(method):
    """Yield the `add_pair_counts` that counts all pairs in one way, if the way can count them."""
    if method == "numpy":
        yield numpy_twin.add_pair_counts
        return
    wanted = {"bits": 0, "codes": 0, "direct": 1, "wide": 2}.get(method)

    def methods(size_i, size_j, n_classes, n_rows, weighing, preparing=0.0):
        narrow = np.maximum(size_i, size_j) <= 256
        if wanted == 1 or weighing:
            narrow &= size_i * size_j * n_classes <= 65_536
        return np.where(narrow, max(wanted, 1) if weighing else wanted, 2)

    with pytest.MonkeyPatch.context() as patch:
        if wanted is not None:
            patch.setattr(pair_plan, "methods", methods)
            patch.setattr(bits, "FAST_EXTRACT", method == "bits")
            patch.setattr(pair_plan, "EXTRACT", 0.0)
        compiled._plans.clear()
        yield compiled.add_pair_counts
    compiled._plans.clear()


def block(seed, n, sizes, n_classes, code=np.uint8, class_code=np.uint8, pairs=None, skew=False):
    """Return the arguments of `add_pair_counts` but the weights, and the number of cells.

    Blocks of pairs stand in any order, with gaps.
    """
    rng = np.random.default_rng(seed)
    sizes = np.array(sizes, np.int64)
    columns = [rng.integers(0, size, n).astype(code) for size in sizes]
    y = rng.integers(0, n_classes, n).astype(class_code)
    if skew:
        for column in columns:
            column[rng.random(n) < 0.97] = 0
        y[rng.random(n) < 0.97] = n_classes - 1
    if pairs is None:
        pairs = np.transpose(np.triu_indices(len(sizes), 1))
    first, second = np.array(sorted(map(tuple, pairs)), np.int64).reshape(-1, 2).T.copy()
    cells = sizes[first] * sizes[second] * n_classes + 1
    order = rng.permutation(len(first))
    starts = np.empty(len(first), np.int64)
    starts[order] = np.cumsum(cells[order]) - cells[order]
    return columns, sizes, y, n_classes, first, second, starts, int(cells.sum())


@st.composite
def blocks(draw):
    code = draw(st.sampled_from([np.uint8, np.uint8, np.uint16, np.uint32]))
    n_classes = draw(st.sampled_from([1, 2, 3, 10, 100, 256, 300]))
    class_code = draw(st.sampled_from([np.uint8, np.uint16] if n_classes <= 256 else [np.uint16]))
    size = st.integers(1, 9)
    if n_classes <= 10:
        size |= st.integers(1, 60 if code is np.uint8 else 600)
    sizes = draw(st.lists(size, min_size=2, max_size=7))
    m = len(sizes)
    everything = [(i, j) for j in range(m) for i in range(j)]
    pairs = draw(
        st.none()
        | st.integers(1, m - 1).map(lambda k: [(i, j) for i in range(k) for j in range(k, m)])
        | st.lists(st.sampled_from(everything), unique=True)
    )
    n = draw(st.integers(0, 150))
    return block(
        draw(st.integers(0, 2**32)),
        n,
        sizes,
        n_classes,
        code,
        class_code,
        pairs,
        draw(st.booleans()),
    )


def agree(method, columns, sizes, y, n_classes, first, second, starts, n_cells, weight=None):
    """Count on to what is there, against the numpy twin."""
    counts = np.arange(n_cells).astype(np.int64 if weight is None else np.float64)
    expected = counts.copy()
    arguments = columns, sizes, y, weight, n_classes, first, second, starts
    with counting(method) as add_pair_counts:
        add_pair_counts(*arguments, counts)
    numpy_twin.add_pair_counts(*arguments, expected)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("method", METHODS)
@given(drawn=blocks())
def test_counts_equal_the_naive_ones_and_add_up(method, drawn):
    columns, sizes, y, n_classes, first, second, starts, n_cells = drawn
    expected, counts = np.zeros((2, n_cells), np.int64)
    naive.add_pair_counts(columns, sizes, y, None, n_classes, first, second, starts, expected)
    cut = len(y) // 3
    with counting(method) as add_pair_counts:
        for rows in (slice(0, cut), slice(cut, None)):
            part = [column[rows] for column in columns]
            add_pair_counts(part, sizes, y[rows], None, n_classes, first, second, starts, counts)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("method", ["planned", "numpy"])
@given(drawn=blocks())
def test_weights_are_summed_in_row_order(method, drawn):
    columns, sizes, y, n_classes, first, second, starts, n_cells = drawn
    weight = np.random.default_rng(len(y)).random(len(y)) * 10.0 ** (np.arange(len(y)) % 7)
    expected, counts = np.full((2, n_cells), 0.1)
    naive.add_pair_counts(columns, sizes, y, weight, n_classes, first, second, starts, expected)
    with counting(method) as add_pair_counts:
        add_pair_counts(columns, sizes, y, weight, n_classes, first, second, starts, counts)
    np.testing.assert_array_equal(counts, expected)  # to the last bit


@pytest.mark.parametrize("method", ["planned", "numpy"])
def test_no_weights_in_a_weighted_count_are_ones(method):
    *arguments, n_cells = block(0, 100, [3, 5, 2], 2)
    columns, sizes, y, *rest = arguments
    expected, counts = np.full((2, n_cells), 0.5)
    naive.add_pair_counts(columns, sizes, y, None, *rest, expected)
    with counting(method) as add_pair_counts:
        add_pair_counts(columns, sizes, y, None, *rest, counts)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 511, 512, 513, 1024, 4096 + 37])
def test_rows_that_fill_no_word_vector_or_block_of_codes(method, n):
    agree(method, *block(n, n, [1, 2, 2, 3, 4, 5, 8, 9, 17, 1, 130], 3))
    agree(method, *block(n, n, [2, 3, 2], 1))
    rng = np.random.default_rng(n)
    agree(method, *block(n, n, [2, 30, 300], 3, np.uint16), weight=rng.random(n))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 64, 512, 1000, 4096])
def test_classes_without_rows(method, n):
    """All rows of one class among many: its bits fill whole words, the others none."""
    for present in (0, 1, 5):
        columns, sizes, y, *rest = block(n, n, [2, 3, 4, 7], 6)
        agree(method, columns, sizes, np.full_like(y, present), *rest)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("code", [np.uint8, np.uint16, np.uint32])
def test_largest_code_of_a_type(method, code):
    largest = min(np.iinfo(code).max, 100_000)
    for size, n_classes, class_code in ((256, 3, np.uint8), (largest + 1, 1, np.uint16)):
        sizes = [2, size, 3]
        columns, *rest = block(1, 700, sizes, n_classes, code, class_code)
        for column, top in zip(columns, sizes, strict=True):
            column[::2] = top - 1
        agree(method, columns, *rest)
    agree(method, *block(2, 700, [256, 256, 2], 1, code))
    agree(method, *block(3, 700, [2, 3], 300, code, np.uint16))


@pytest.mark.compiled
@pytest.mark.parametrize("method", ["bits", "codes"])
def test_bit_rows__more_than_one_tile(method):
    rng = np.random.default_rng(0)
    sizes = [*rng.integers(1, 6, 60), 100, 30, 200, 2]
    agree(method, *block(4, 300, sizes, 3))
    # Edges of a tree; a rectangle whose sides stand between each other by size.
    m = len(sizes)
    agree(method, *block(5, 300, sizes, 3, pairs=[(rng.integers(j), j) for j in range(1, m)]))
    agree(method, *block(6, 300, sizes, 3, pairs=[(i, j) for i in range(20) for j in range(20, m)]))


@pytest.mark.compiled
@pytest.mark.parametrize("method", ["bits", "codes"])
def test_bit_rows__rows_in_parts(method, monkeypatch):
    monkeypatch.setattr(bitmaps, "MOST_BYTES", 1)
    monkeypatch.setattr(bitmaps, "LEAST_ROWS", 200)
    agree(method, *block(7, 1000, [2, 3, 9], 4))


@pytest.mark.parametrize("method", METHODS)
def test_more_rows_than_a_block(method):
    n = (1 << 16) + 100
    agree(method, *block(8, n, [2, 4, 20], 2, skew=True))
    agree(method, *block(9, n, [2, 300], 2, np.uint16), weight=np.random.default_rng(0).random(n))


@pytest.mark.parametrize("method", METHODS)
def test_full_blocks_of_equal_rows(method):
    """The largest count that one call can see, in one cell."""
    sizes, n = [2, 5, 250], 1 << 16
    for value in (0, 1):
        columns, sizes_, y, *rest = block(10, n, sizes, 2)
        for column in columns:
            column[:] = value
        agree(method, columns, sizes_, np.full_like(y, value), *rest)


@pytest.mark.parametrize("method", METHODS)
def test_large_tables(method):
    agree(method, *block(11, 1 << 16, [100, 120, 256], 5))
    agree(method, *block(12, 3000, [70_000, 3, 90], 2, np.uint32))


@pytest.mark.parametrize("method", METHODS)
def test_columns_in_any_layout__others_not_read(method):
    columns, *rest = block(13, 500, [3, 4, 5, 300], 2, np.uint16, pairs=[(0, 2), (2, 3)])
    columns[1] = np.zeros(0, np.uint8)
    columns[0] = np.repeat(columns[0], 3)[::3]
    columns[3] = np.repeat(columns[3], 2)[::2]
    agree(method, columns, *rest)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("code", [np.uint8, np.uint16, np.uint32])
def test_columns_of_one_matrix(method, code):
    columns, *rest = block(15, 500, [3, 4, 5, 2], 2, code)
    weight = np.random.default_rng(0).random(500)
    rows = np.stack(columns)
    for matrix in (rows, np.repeat(rows, 2, axis=0)[::2], np.asfortranarray(rows)):
        agree(method, matrix, *rest)
        agree(method, matrix, *rest, weight=weight)
        agree(method, matrix[:, 100:400], rest[0], rest[1][100:400], *rest[2:])


def test_plan_is_kept_for_its_own_list_of_pairs_only():
    sizes = np.array([2, 3, 4, 5])

    def plan(*pairs, n_classes=2, n_rows=1000):
        first, second = np.transpose(pairs)
        return compiled._plan(sizes, first, second, n_classes, n_rows, True, False)

    assert plan((0, 1), (0, 2)).columns == [0, 1, 2]
    assert plan((0, 1), (0, 3)).columns == [0, 1, 3]
    assert plan((0, 1), (1, 3)).columns == [0, 1, 3]
    assert plan((0, 1)).columns == [0, 1]
    assert plan((0, 1), n_rows=1000) is plan((0, 1), n_rows=600)
    assert plan((0, 1), n_rows=1000) is not plan((0, 1), n_rows=200)
    assert plan((0, 1), n_classes=2) is not plan((0, 1), n_classes=3)
    for n_classes in range(1, 100):
        assert plan((0, 1), n_classes=n_classes).columns == [0, 1]
    assert len(compiled._plans) <= compiled.MOST_PLANS


def test_two_threads_at_once():
    def counted(seed):
        *arguments, n_cells = block(seed, 20_000 + seed, [2, 3, 9, 40, 300], 3, np.uint16)
        columns, sizes, y, *rest = arguments
        counts, expected = np.zeros((2, n_cells), np.int64)
        for _ in range(5):
            compiled.add_pair_counts(columns, sizes, y, None, *rest, counts)
            numpy_twin.add_pair_counts(columns, sizes, y, None, *rest, expected)
        return np.array_equal(counts, expected)

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(counted, range(8)))


@pytest.mark.compiled
@given(word=st.integers(0, 2**64 - 1), mask=st.integers(0, 2**64 - 1))
def test_extract(word, mask):
    bits_of = [word >> r & 1 for r in range(64) if mask >> r & 1]
    expected = sum(bit << r for r, bit in enumerate(bits_of))
    for extract in (_extract, _extract_slowly):
        assert extract(np.uint64(word), np.uint64(mask)) == expected


@njit
def _extract(word, mask):
    return bits.extract(word, mask)


@njit
def _extract_slowly(word, mask):
    return bits._extract_slowly(word, mask)


def test_each_method_has_its_pairs(monkeypatch):
    monkeypatch.setattr(pair_plan, "MEETING", 0.001)  # on any processor
    sizes = np.array([2, 4, 100, 256, 300])
    method = pair_plan.methods(sizes[:, None], sizes, 2, 1 << 16)
    names = [[pair_plan.NAMES[kind] for kind in row] for row in method]
    few, many, wide = "bitmap", "direct", "wide"
    assert names[0] == [few, few, few, few, wide]
    assert names[2] == [few, names[1][2], many, many, wide]
    assert names[3][3] == wide  # 256² · 2 joint codes
    # Few rows of each of many classes: bit rows would be mostly padding.
    nine = np.array([9])
    assert pair_plan.NAMES[pair_plan.methods(nine, nine, 250, 1 << 10)[0]] == many
    assert set(pair_plan.methods(sizes, sizes, 2, 1 << 16, weighing=True)) == {1, 2}


def test_bit_rows_are_made_for_columns_of_many_pairs(monkeypatch):
    monkeypatch.setattr(pair_plan, "MEETING", 0.001)
    sizes = np.full(30, 16)
    first, second = np.triu_indices(30, 1)
    assert len(pair_plan.choose(sizes, first, second, 2, 1 << 16, True).bitmaps.pairs) == 435
    chain = np.arange(29)
    plan = pair_plan.choose(sizes, chain, chain + 1, 2, 1 << 16, True)
    assert plan.bitmaps is None
    assert len(plan.direct) == 29


def test_plan__bits_or_codes_are_split():
    sizes = np.full(20, 4)
    first, second = np.triu_indices(20, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bits, "FAST_EXTRACT", True)
        for n_classes, bytes_only, by_bits in (
            (2, True, True),
            (2, False, False),
            (90, True, False),
        ):
            plan = pair_plan.choose(sizes, first, second, n_classes, 1 << 16, bytes_only)
            assert plan.bitmaps.by_bits is by_bits
        patch.setattr(bits, "FAST_EXTRACT", False)
        assert not pair_plan.choose(sizes, first, second, 2, 1 << 16, True).bitmaps.by_bits


@given(sizes=st.lists(st.integers(1, 256), min_size=2, max_size=60))
def test_plan__every_column_has_bits_of_a_byte_and_every_pair_a_tile(sizes):
    sizes = np.array(sizes)
    m = len(sizes)
    first, second = np.triu_indices(m, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_plan, "methods", lambda i, *_: np.zeros(len(i), int))
        plan = pair_plan.choose(sizes, first, second, 2, 1 << 16, True).bitmaps
    assert sorted(plan.columns) == list(range(m))
    for begin, end in zip(plan.borders[:-1], plan.borders[1:], strict=True):
        assert begin < end
        assert sum(pair_plan.planes_of(int(size)) for size in sizes[plan.columns[begin:end]]) <= 8
    assert sorted(plan.pairs) == list(range(len(first)))
    rows, ends = plan.rows, plan.rows + sizes - 1
    for top, height, left, width, begin, end in plan.tiles:
        for p in plan.pairs[begin:end]:
            a, b = sorted((first[p], second[p]), key=lambda i: (rows[i], i))
            assert top <= rows[a] <= ends[a] <= top + height
            assert left <= rows[b] <= ends[b] <= left + width
        assert height % bits.BLOCK == width % bits.BLOCK == 0
        assert height * width <= plan.cells
    assert (ends <= plan.n_rows).all()
