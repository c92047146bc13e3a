from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from fastbayes.kernels.compiled.reading import texts as compiled
from fastbayes.kernels.compiled.simd import short_texts
from fastbayes.kernels.compiled.simd.unaligned import span_of
from fastbayes.kernels.dispatch import interpreted, readonly
from fastbayes.kernels.shared.texts import UNSEEN, Texts, TextTable

pytestmark = pytest.mark.skipif(interpreted(), reason="intrinsics need the compiler")
WORDS = st.integers(0, 2**64 - 1)


@njit
def mix(words, table, out):
    given, held = span_of(words), span_of(table)
    for i in range(words.shape[0]):
        out[i, 0], out[i, 1] = short_texts.mixed(given, 16 * i, held)


@njit
def unmix(mixes, table, out):
    held = span_of(table)
    for i in range(mixes.shape[0]):
        out[i, 0], out[i, 1] = short_texts.unmixed(mixes[i, 0], mixes[i, 1], held)


def undone(mixes, table):
    words = np.empty_like(mixes)
    unmix(mixes, table, words)
    return words


def near_of(texts):
    """Return the table in which texts are known, and where they have places."""
    ends = np.cumsum([0, *map(len, texts)])
    some = Texts(ends, np.frombuffer(b"".join(texts), np.uint8))
    codes = np.full(len(texts), UNSEEN)
    none = Texts(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    table = compiled.add_texts(compiled.indexed(TextTable.of(none)), some, codes)
    near = compiled._settled(table, 1 << 20)
    places = near[short_texts.PLACES // 8 :].reshape(-1, 2)
    turns = near.view(np.uint8)[short_texts.TURNS :][: len(places) // 4]
    return table, near, turns, places


@given(words=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=20))
def test_mixed__can_be_undone(words):
    words = np.array(words, np.uint64)
    table, mixes = short_texts.table_of(4), np.empty_like(words)
    mix(words, table, mixes)
    assert undone(mixes, table).tolist() == words.tolist()


def test_mixed__each_bit_changes_many():
    words = np.array([[1 << i if i < 64 else 0, 1 << i - 64 if i >= 64 else 0] for i in range(128)])
    words = np.concatenate([np.zeros((1, 2)), words]).astype(np.uint64)
    table, mixes = short_texts.table_of(4), np.empty_like(words)
    mix(words, table, mixes)
    changed = np.bitwise_count(mixes[1:] ^ mixes[0]).sum(axis=1)
    assert changed.min() >= 16


@pytest.mark.parametrize("n", [1, 300, 5000])
def test_places__each_holds_a_text_of_its_own_or_none_that_there_can_be(n):
    texts = [b"%d" % (k * k) for k in range(n)]
    table, near, turns, places = near_of(texts)
    mask = np.uint64(len(places) - 1)
    place = np.arange(len(places), dtype=np.uint64)
    # What is looked for and found at a place, as a text of 16 bytes: that of each code there is.
    words = table.words[:n]
    mixes = np.empty_like(words)
    mix(words, near, mixes)
    group = (mixes[:, 0] >> np.uint64(40)) & np.uint64(len(turns) - 1)
    own = ((mixes[:, 0] ^ turns[group]) & mask).astype(np.int64)
    codes = places[own, 0] ^ mixes[:, 0]
    there = (codes == np.arange(n)) & (places[own, 1] == mixes[:, 1])
    assert there.mean() > 0.98
    assert len(np.unique(own[there])) == there.sum()
    free = np.ones(len(places), np.bool_)
    free[own[there]] = False
    # The upper bits of what is found are those that stand there, and so are the bits of its group.
    upper = places[free, 0] & ~mask
    group = (upper >> np.uint64(40)) & np.uint64(len(turns) - 1)
    found = np.stack([upper | ((place[free] ^ turns[group]) & mask), places[free, 1]], axis=1)
    assert (undone(found, near)[:, 1] >> np.uint64(56) >= short_texts.SHORT).all()


def test_table__begins_a_line_of_the_cache():
    for n in (4, 1024):
        table = short_texts.table_of(n)
        assert table.__array_interface__["data"][0] % 64 == 0
        assert table.nbytes == short_texts.PLACES + 16 * n
        assert readonly(table) is not table
