from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import encode as naive

from fastbayes.kernels.compiled import encode as compiled
from fastbayes.kernels.numpy import encode as numpy_twin

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]
INT64 = np.iinfo(np.int64)
CODES = st.sampled_from([np.uint8, np.uint16, np.uint32])


@st.composite
def bitmaps(draw, n):
    """Return a bitmap of n bits, no byte longer than it must be, and its offset; or none."""
    offset = draw(st.integers(0, 20))
    if draw(st.booleans()):
        return None, offset
    size = (offset + n + 7) // 8
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8), offset


@st.composite
def columns(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]))
    n_entries = draw(st.integers(0, 20) | st.integers(0, 127))
    n = draw(st.integers(0, 300)) if n_entries else 0
    indices = rng.integers(0, max(n_entries, 1), n).astype(kind)
    validity, offset = draw(bitmaps(n))
    limits = np.iinfo(kind)
    for r in range(n):
        if not naive.known(validity, offset, r):  # garbage, extremes among it
            indices[r] = (limits.min, limits.max, rng.integers(100))[rng.integers(3)]
    return indices, validity, offset, rng.permutation(n_entries).astype(np.uint32)


def run(module, name, n, code, *arguments):
    out = np.zeros(n, code)
    return getattr(module, name)(*arguments, out), out


@pytest.mark.parametrize("module", MODULES)
@given(drawn=columns(), code=CODES, identity=st.booleans(), position=st.none() | st.integers(0))
def test_take(module, drawn, code, identity, position):
    indices, validity, offset, table = drawn
    table, missing = (None, len(table)) if identity else (table, len(table))
    if position is not None and len(indices):  # one that does not belong there
        limits = np.iinfo(indices.dtype)
        wrong = [-1, limits.min, limits.max] if limits.min else [limits.max, max(missing, 1)]
        indices[position % len(indices)] = wrong[position % len(wrong)]
    arguments = indices, validity, offset, table, missing
    expected_inside, expected = run(naive, "take", len(indices), code, *arguments)
    inside, out = run(module, "take", len(indices), code, *arguments)
    assert inside is expected_inside
    if inside:
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("table", [None, np.empty(0, np.uint32)])
def test_take__empty_dictionary(module, table):
    out = np.ones(10, np.uint8)
    assert module.take(np.zeros(10, np.int32), np.zeros(2, np.uint8), 3, table, 0, out)
    assert not out.any()
    assert module.take(np.zeros(0, np.int32), None, 0, table, 0, out[:0])
    assert not module.take(np.zeros(10, np.int32), np.ones(2, np.uint8), 0, table, 0, out)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("code", [np.uint8, np.uint16, np.uint32])
def test_take__largest_code(module, code):
    largest = min(np.iinfo(code).max, 70_000)
    indices = np.array([largest, 0, largest - 1])
    out = np.empty(3, code)
    valid = np.array([0b110], np.uint8)
    assert module.take(indices, valid, 0, None, largest, out)
    assert list(out) == [largest, 0, largest - 1]
    assert not module.take(indices, None, 0, None, largest, out)
    table = np.arange(largest, dtype=np.uint32)[::-1].copy()
    assert module.take(indices, valid, 0, table, largest, out)
    assert list(out) == [largest, largest - 1, 0]


@pytest.mark.parametrize("module", MODULES)
def test_take__several_blocks_with_nulls_and_an_offset(module):
    n, offset = compiled.BLOCK + compiled.PLACES + 17, 13
    rng = np.random.default_rng(0)
    validity = rng.integers(0, 256, (offset + n + 7) // 8, dtype=np.uint8)
    table = rng.permutation(300).astype(np.uint32)
    indices = rng.integers(0, 300, n).astype(np.int32)
    known = np.unpackbits(validity, bitorder="little")[offset:][:n] != 0
    indices[~known] = -7
    for entries in (None, table):
        out = np.empty(n, np.uint16)
        assert module.take(indices, validity, offset, entries, 300, out)
        values = indices if entries is None else entries[np.where(known, indices, 0)]
        np.testing.assert_array_equal(out, np.where(known, values, 300))
        wrong = indices.copy()
        wrong[np.flatnonzero(known)[-1]] = 300
        assert not module.take(wrong, validity, offset, entries, 300, out)


@pytest.mark.parametrize("module", MODULES)
@given(data=st.data(), code=CODES)
def test_spread(module, data, code):
    n_entries = data.draw(st.integers(0, 200))
    minimum = data.draw(
        st.sampled_from([INT64.min, -3, 0, INT64.max - max(n_entries, 1) + 1])
        | st.integers(INT64.min, INT64.max - 200)
    )
    inside = st.integers(minimum, minimum + max(n_entries, 1) - 1)
    near = st.integers(minimum - 3, minimum + n_entries + 3).filter(
        lambda v: INT64.min <= v <= INT64.max
    )
    far = st.sampled_from([INT64.min, INT64.max, 0]) | st.integers(INT64.min, INT64.max)
    one = data.draw(st.sampled_from([inside, inside | near, inside | near | far]))
    values = np.array(data.draw(st.lists(one, max_size=60)), np.int64)
    table = np.random.default_rng(n_entries).permutation(n_entries).astype(np.uint32)
    validity, offset = data.draw(bitmaps(len(values)))
    arguments = values, minimum, table, n_entries, validity, offset
    expected_inside, expected = run(naive, "spread", len(values), code, *arguments)
    all_inside, out = run(module, "spread", len(values), code, *arguments)
    assert all_inside is expected_inside
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("module", MODULES)
@given(data=st.data(), n=st.integers(0, 200), code=CODES)
def test_unpack(module, data, n, code):
    size = (20 + n + 7) // 8
    bitmap = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    offset = data.draw(st.integers(0, 20))
    validity, validity_offset = data.draw(bitmaps(n))
    codes = np.array(data.draw(st.permutations([0, 1, 2])), code)
    arguments = bitmap, offset, n, validity, validity_offset, codes
    _, expected = run(naive, "unpack", n, code, *arguments)
    _, out = run(module, "unpack", n, code, *arguments)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("module", MODULES)
def test_unpack__several_blocks(module):
    n = compiled.BLOCK + 9
    rng = np.random.default_rng(1)
    bits, known = rng.integers(0, 2, (2, n + 16), dtype=np.uint8)
    out = np.empty(n, np.uint8)
    bitmap, validity = (np.packbits(b, bitorder="little") for b in (bits, known))
    module.unpack(bitmap, 3, n, validity, 11, np.array([1, 0, 2], np.uint8), out)
    expected = np.where(known[11:][:n], 1 - bits[3:][:n], 2)
    np.testing.assert_array_equal(out, expected)
    module.unpack(bitmap, 3, n, None, 0, np.array([1, 0, 2], np.uint8), out)
    np.testing.assert_array_equal(out, 1 - bits[3:][:n])


@pytest.mark.parametrize("module", MODULES)
@given(data=st.data(), values=st.lists(st.integers(INT64.min, INT64.max), max_size=100))
def test_min_max(module, data, values):
    validity, offset = data.draw(bitmaps(len(values)))
    array = np.array(values, np.int64)
    expected = naive.min_max(array, validity, offset)
    assert module.min_max(array, validity, offset) == expected


@pytest.mark.parametrize("module", MODULES)
def test_min_max__nothing_known(module):
    assert module.min_max(np.arange(9), np.zeros(2, np.uint8), 3) == (1, 0)
    assert module.min_max(np.zeros(0, np.int64), None, 0) == (1, 0)
    extremes = np.array([INT64.max, INT64.min])
    assert module.min_max(extremes[:1], None, 0) == (INT64.max, INT64.max)
    assert module.min_max(extremes[1:], None, 0) == (INT64.min, INT64.min)


@pytest.mark.parametrize("module", MODULES)
def test_strided_and_misaligned_input(module):
    indices = np.arange(40, dtype=np.int32)[::2]
    raw = np.zeros(41, np.uint8)
    misaligned = raw[1:].view(np.int32)
    misaligned[:] = np.arange(10)
    out = np.empty(20, np.uint8)
    assert module.take(indices, None, 0, None, 39, out)
    assert list(out) == list(range(0, 40, 2))
    assert module.take(misaligned, None, 0, None, 10, out[:10])
    assert list(out[:10]) == list(range(10))


@pytest.mark.parametrize("module", MODULES)
@given(
    st.lists(st.integers(0, 16), min_size=1, max_size=5),
    st.integers(0, 9_000),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_take_columns(module, entries, n, seed):
    rng = np.random.default_rng(seed)
    columns, tables, expected = [], [], []
    for k in entries:
        table = rng.integers(0, 256, k).astype(np.uint32) if k else None
        column = rng.integers(0, k or 250, n).astype(np.uint32)
        columns.append(column)
        tables.append(table)
        expected.append(column if table is None else table[column])
    rows = rng.permutation(len(entries)).tolist()
    out = np.full((len(entries), n), 7, np.uint8)
    largest = module.take_columns(columns, tables, rows, out)
    assert largest.tolist() == [int(column.max(initial=0)) for column in columns]
    for row, codes in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(out[row], codes)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("table", [None, np.arange(3, dtype=np.uint32)], ids=["identity", "table"])
def test_take_columns__tells_of_an_index_outside(module, table):
    column = np.array([0, 2, 2**32 - 1, 1], np.uint32)
    out = np.empty((1, 4), np.uint8)
    assert module.take_columns([column], [table], [0], out).tolist() == [2**32 - 1]
