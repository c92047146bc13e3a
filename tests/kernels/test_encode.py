from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import encode as naive

from fastbayes.kernels.compiled import encode as compiled
from fastbayes.kernels.numpy import encode as numpy_twin
from fastbayes.kernels.shared.columns import IntegerColumn, Translation

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
def columns(draw):
    """Return a column, its rows, and the codes of what it holds and of a little less."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(ROWS)
    kind = draw(st.sampled_from([*KINDS, "truth"]))
    validity, valid_bit = draw(bitmaps(n)) if draw(st.booleans()) else (None, 0)
    n_entries = draw(st.sampled_from([0, 1, 2, 7, 16, 17, 60, 253, 254, 255, 256, 300, 70_000]))
    if kind == "truth":
        column = IntegerColumn(*draw(bitmaps(n)), validity, valid_bit)
        minimum, n_entries = 0, 2
    else:
        limits = np.iinfo(kind)
        minimum = draw(st.sampled_from([0, 5, limits.min, limits.max - n_entries]))
        low, high = max(minimum - 2, limits.min), min(minimum + n_entries + 2, limits.max)
        values = rng.integers(low, max(high, low), n, dtype=kind, endpoint=True)
        if draw(st.booleans()):  # what lies far outside
            values[rng.random(n) < 0.1] = draw(st.sampled_from([limits.min, limits.max]))
        column = IntegerColumn(values, -1, validity, valid_bit)
    identity = draw(st.booleans())
    entries = np.arange(n_entries) if identity else rng.permutation(n_entries)
    table = np.append(entries, [n_entries + 1, n_entries]).astype(np.uint32)
    watched = draw(st.sampled_from([-1, 0, n_entries, n_entries + 1]))
    own = 0 if kind == "truth" else draw(st.sampled_from([0, 0, n_entries // 2, n_entries]))
    same = own == n_entries or (identity and own == 0)
    return column, Translation(minimum, table[own:], watched, own, same), n


def width_of(translation):
    top = max(int(translation.table.max()), translation.own)
    return 1 if top < 256 else 2 if top < 65_536 else 4


@pytest.mark.parametrize("module", MODULES)
@given(drawn=st.lists(columns(), min_size=1, max_size=3), wider=st.booleans(), cut=st.floats(0, 1))
def test_codes_are_those_of_one_row_at_a_time(module, drawn, wider, cut):
    n = min(rows for _, _, rows in drawn)
    given_ = [(column, translation) for column, translation, _ in drawn]
    widths = [max(width_of(t), 4 if wider else 1) for _, t in given_]
    blocks = [np.full(n + 1, 99, f"u{width}") for width in widths]
    writer = module.CodeWriter(given_, [block[:n] for block in blocks])
    first = int(cut * n)
    found = []
    for start, rows in ((0, first), (first, n - first)):
        writer.write(start, rows)
        found.append([block[:rows].tolist() for block in blocks])
    for j, (column, translation) in enumerate(given_):
        codes, outside, watched = naive.codes(column, translation, n)
        assert found[0][j] + found[1][j] == codes
        assert (writer.outside[j], writer.watched[j]) == (outside, watched)
        assert blocks[j][n] == 99  # what lies behind a row of codes is another's


@pytest.mark.parametrize("module", MODULES)
@given(drawn=columns())
def test_occurring(module, drawn):
    column, (minimum, table, _, own, _), n = drawn
    n_entries = own + len(table) - 2
    found = module.occurring(column, minimum, n_entries, n)
    places = {v - minimum for v in naive.values(column, n) if v is not None}
    inside = [k in places for k in range(n_entries)]
    assert found.tolist() == [*inside, any(not 0 <= k < n_entries for k in places)]


@pytest.mark.parametrize("module", MODULES)
@given(drawn=columns())
def test_min_max(module, drawn):
    column, _, n = drawn
    if column.bit >= 0 or column.values.dtype == np.uint64:
        return
    known = [v for v in naive.values(column, n) if v is not None]
    assert module.min_max(column, n) == ((min(known), max(known)) if known else (1, 0))
