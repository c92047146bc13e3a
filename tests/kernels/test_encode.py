from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import encode as naive

from fastbayes.kernels.compiled.reading import encode as compiled
from fastbayes.kernels.numpy.reading import encode as numpy_twin
from fastbayes.kernels.shared.columns import END, TABLE, IntegerColumn, Translation

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]
KINDS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
# Rows around those that kernels take at a time, and of vectors.
ROWS = st.integers(0, 300) | st.sampled_from([4095, 4096, 4097, 8200])


@st.composite
def bitmaps(draw, n):
    """Return a bitmap of n bits, no byte longer than it must be, and its offset."""
    offset = draw(st.integers(0, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(0, 256, (offset + n + 7) // 8, dtype=np.uint8), offset


@st.composite
def pieces(draw, kind, minimum, n_entries, n):
    """Return n rows of a column as its oracle takes them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    validity, valid_bit = draw(bitmaps(n)) if draw(st.booleans()) else (None, 0)
    if kind == "b1":
        return *draw(bitmaps(n)), validity, valid_bit, n
    limits = np.iinfo(kind)
    low, high = max(minimum - 2, limits.min), min(minimum + n_entries + 2, limits.max)
    values = rng.integers(low, max(high, low), n, dtype=kind, endpoint=True)
    if draw(st.booleans()):  # what lies far outside
        values[rng.random(n) < 0.1] = draw(st.sampled_from([limits.min, limits.max]))
    return values, -1, validity, valid_bit, n


@st.composite
def columns(draw):
    """Return a column, its pieces, and the codes that each stands for."""
    kind = draw(st.sampled_from([*KINDS, "b1"]))
    n_entries = draw(st.sampled_from([0, 1, 2, 7, 16, 17, 60, 253, 254, 255, 256, 300, 70_000]))
    minimum = 0
    if kind == "b1":
        n_entries = 2
    else:
        limits = np.iinfo(kind)
        minimum = draw(st.sampled_from([0, 5, limits.min, limits.max - n_entries]))
    parts = [
        draw(pieces(kind, minimum, n_entries, n))
        for n in [draw(ROWS), *draw(st.lists(st.integers(1, 200), max_size=3))]
    ]
    watched = draw(st.sampled_from([-1, 0, n_entries, n_entries + 1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    translations = []
    for _ in parts:
        identity = draw(st.booleans())
        entries = np.arange(n_entries) if identity else rng.permutation(n_entries)
        table = np.append(entries, [n_entries + 1, n_entries]).astype(np.uint32)
        own = 0 if kind == "b1" else draw(st.sampled_from([0, 0, n_entries // 2, n_entries]))
        same = own == n_entries or (identity and own == 0)
        translations.append(Translation(minimum, table[own:], watched, own, same))
    return in_memory(kind, parts), parts, translations


def in_memory(kind, parts):
    """Return the column of pieces, each of a translation of its own."""
    each = [IntegerColumn.of(*part[:4]) for part in parts]
    held = np.concatenate([one.pieces for one in each])
    held[:, END] = np.cumsum([part[4] for part in parts])
    held[:, TABLE] = np.arange(len(parts))
    return IntegerColumn(kind, held, each)


def width_of(translations):
    top = max(max(int(t.table.max()), t.own) for t in translations)
    return 1 if top < 256 else 2 if top < 65_536 else 4


@pytest.mark.parametrize("module", MODULES)
@given(drawn=st.lists(columns(), min_size=1, max_size=3), wider=st.booleans(), cut=st.floats(0, 1))
def test_codes_are_those_of_one_row_at_a_time(module, drawn, wider, cut):
    n = min(column.n_rows for column, _, _ in drawn)
    given_ = [(column, translations) for column, _, translations in drawn]
    widths = [max(width_of(translations), 4 if wider else 1) for _, _, translations in drawn]
    memory = np.empty(sum(widths) * (n + 1), np.uint8)
    blocks = []
    for width, end in zip(widths, np.cumsum(widths) * (n + 1), strict=True):
        blocks.append(memory[end - width * (n + 1) : end].view(f"u{width}"))
        blocks[-1].fill(99)
    writer = module.CodeWriter(given_, [block[:n] for block in blocks], memory)
    first = int(cut * n)
    found = []
    for start, rows in ((0, first), (first, n - first)):
        writer.write(start, rows)
        found.append([block[:rows].tolist() for block in blocks])
    for j, (_, parts, translations) in enumerate(drawn):
        codes = naive.codes(cut_to(parts, n), translations)
        given_codes = found[0][j] + found[1][j]
        # Where no entry stands for an integer, any code will do that is one.
        assert all(code in codes_ for code, codes_ in zip(given_codes, codes, strict=True))
        assert writer.outside[j] == sum(len(codes_) > 1 for codes_ in codes)
        assert writer.watched[j] == given_codes.count(translations[0].watched)
        assert blocks[j][n] == 99  # what lies behind a row of codes is another's
    writer.write(0, first)  # once more: not from where it was
    assert [block[:first].tolist() for block in blocks] == found[0]


def cut_to(parts, n):
    """Return the pieces of the first n rows."""
    kept = []
    for *where, rows in parts:
        kept.append((*where, min(rows, n)))
        n -= kept[-1][-1]
    return kept


@pytest.mark.parametrize("module", MODULES)
@given(drawn=columns(), data=st.data())
def test_occurring(module, drawn, data):
    column, parts, translations = drawn
    minimum, table, _, own, _ = translations[0]
    n_entries = own + len(table) - 2
    which = data.draw(st.sampled_from([None, *range(len(parts))]))
    found = module.occurring(column if which is None else column.only(which), minimum, n_entries)
    held = naive.values(parts if which is None else parts[which : which + 1])
    places = {v - minimum for v, _ in held if v is not None}
    inside = [k in places for k in range(n_entries)]
    assert found.tolist() == [*inside, any(not 0 <= k < n_entries for k in places)]


@pytest.mark.parametrize("module", MODULES)
@given(drawn=columns())
def test_min_max(module, drawn):
    column, parts, _ = drawn
    if column.kind in ("b1", "u8"):
        return
    known = [v for v, _ in naive.values(parts) if v is not None]
    assert module.min_max(column) == ((min(known), max(known)) if known else (1, 0))


@pytest.mark.parametrize("module", MODULES)
@given(n=ROWS, data=st.data())
def test_known_numbers(module, n, data):
    bitmap, bit = data.draw(bitmaps(n))
    values = np.arange(float(n))
    expected = [v if naive.bit(bitmap, bit, r) else np.nan for r, v in enumerate(values)]
    found = np.empty(n)
    module.known_numbers(values, bitmap, bit, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("module", MODULES)
@given(st.lists(st.lists(st.floats(width=64), min_size=5, max_size=5), max_size=4))
def test_unbounded(module, columns):
    held = [np.array(column) for column in columns]
    expected = [not np.isfinite(column).all() for column in held]
    assert module.unbounded(held).tolist() == expected
