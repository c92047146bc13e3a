from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import texts as naive

from fastbayes.kernels.compiled.reading import texts as compiled
from fastbayes.kernels.dispatch import interpreted, readonly
from fastbayes.kernels.numpy.reading import texts as numpy_twin
from fastbayes.kernels.shared.texts import (
    MISSING,
    MOST_BYTES,
    SPARE,
    UNSEEN,
    Texts,
    TextTable,
)

NO_TEXTS = Texts(np.zeros(1, np.int64), np.zeros(0, np.uint8))
MODULES = [
    pytest.param(compiled, id="kernels"),
    pytest.param(numpy_twin, id="numpy"),
]
# Of every length around the words of eight bytes, of equal beginnings and ends, with zeros.
PIECES = st.sampled_from(
    [b"", b"\0", b"a", b"b\0", b"abcdefgh", b"abcdefg", "é☃".encode(), b"\xff"]
)
TEXTS = st.lists(PIECES, max_size=9).map(b"".join)


def side_by_side(texts, before=b""):
    """Return texts as the kernels take them; what is before the first one belongs to none."""
    ends = len(before) + np.cumsum([0, *map(len, texts)])
    return Texts(ends, np.frombuffer(before + b"".join(texts), np.uint8))


def held(table):
    ends = table.offsets[: table.n_texts + 1].tolist()
    return [table.data[a:b].tobytes() for a, b in pairwise(ends)]


def grown(module, texts, step):
    """Add texts a few at a time."""
    table = module.indexed(TextTable.of(NO_TEXTS))
    found = []
    for first in range(0, len(texts), step):
        codes = np.full(len(texts[first : first + step]), UNSEEN)
        some = side_by_side(texts[first : first + step])
        if not module.find_texts(table, some, codes):
            table = module.add_texts(table, some, codes)
        found += codes.tolist()
    return table, found


@pytest.mark.parametrize("module", MODULES)
@given(data=st.data())
def test_texts__numbered_as_they_come(module, data):
    known = list(dict.fromkeys(data.draw(st.lists(TEXTS, max_size=20))))
    texts = data.draw(st.lists(st.one_of(TEXTS, st.sampled_from(known or [b""])), max_size=60))
    codes = np.array([MISSING if data.draw(st.booleans()) else UNSEEN for _ in texts], np.uint32)
    table = module.indexed(TextTable.of(side_by_side(known, b"xyz")))
    some = side_by_side(texts, data.draw(st.sampled_from([b"", b"before"])))
    expected, numbers = naive.number(known, texts, codes.tolist(), UNSEEN)

    found = codes.copy()
    complete = module.find_texts(table, some, found)
    assert complete == (found != UNSEEN).all()
    wanted = [c if c < len(known) or c == MISSING else UNSEEN for c in numbers]
    assert found.tolist() == wanted
    table = module.add_texts(table, some, found)
    assert found.tolist() == numbers
    assert held(table) == expected
    assert module.find_texts(table, some, codes)
    assert codes.tolist() == numbers


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n", [1, 200, 9000, 50_000])
def test_texts__of_many_rows(module, n):
    rng = np.random.default_rng(2)
    words = [b"%d" % k * int(rng.integers(0, 6)) for k in range(n)]
    known = list(dict.fromkeys(words))
    given = [*words, *[b"unknown"] * (1 + n // 100)]
    texts = [given[k] for k in rng.integers(0, len(given), 30_000)]
    table = module.indexed(TextTable.of(side_by_side(known)))
    codes = np.where(rng.random(len(texts)) < 0.1, MISSING, UNSEEN)
    _, numbers = naive.number(known, texts, codes.tolist(), UNSEEN)
    assert not module.find_texts(table, side_by_side(texts), codes)
    unknown = [code == len(known) for code in numbers]
    assert codes.tolist() == np.where(unknown, UNSEEN, numbers).tolist()


@given(texts=st.lists(TEXTS, min_size=1, max_size=30), places=st.sampled_from([16, 32, 1024]))
def test_texts__found_where_others_share_their_place(texts, places):
    known = list(dict.fromkeys(texts))
    table = compiled.indexed(TextTable.of(side_by_side(known)))
    codes = np.full(3 * len(texts), UNSEEN)
    with pytest.MonkeyPatch.context() as patch:
        values = {"MANY_ROWS": 0, "ROOMY": 0.0, "FEWEST_PLACES": places}
        for name, value in values.items():
            patch.setattr(compiled, name, value)
        assert compiled.find_texts(table, side_by_side(3 * texts), codes)
    assert codes.tolist() == [known.index(text) for text in 3 * texts]


@given(texts=st.lists(TEXTS, min_size=1, max_size=80), seed=st.integers(0, 1000))
def test_texts__each_table_has_places_for_its_own(texts, seed):
    rng = np.random.default_rng(seed)
    table = compiled.indexed(TextTable.of(NO_TEXTS))
    tables, some = [table], side_by_side(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "MANY_ROWS", 0)
        for first in range(0, len(texts), 8):
            part = side_by_side(texts[first : first + 8])
            table = compiled.add_texts(table, part, np.full(len(part.offsets) - 1, UNSEEN))
            tables.append(table)
            for k in rng.integers(0, len(tables), 3):
                known = held(tables[k])
                codes = np.full(len(texts), UNSEEN)
                assert compiled.find_texts(tables[k], some, codes) == (codes != UNSEEN).all()
                wanted = [known.index(t) if t in known else UNSEEN for t in texts]
                assert codes.tolist() == wanted


@pytest.mark.parametrize("module", MODULES)
def test_texts__many_in_a_table_that_grows(module):
    rng = np.random.default_rng(0)
    words = [b"%d" % (k * k) * (1 + k % 4) for k in range(20_000)]
    texts = [words[k] for k in rng.integers(0, len(words), 60_000)]
    table, codes = grown(module, texts, 1000)
    assert (held(table), codes) == naive.number([], texts, [UNSEEN] * len(texts), UNSEEN)


@given(texts=st.lists(TEXTS, max_size=80), seed=st.integers(0, 1000))
def test_texts__either_back_end_goes_on_with_a_table_of_the_other(texts, seed):
    rng = np.random.default_rng(seed)
    table, found = TextTable.of(NO_TEXTS), []
    for first in range(0, len(texts), 8):
        module = (compiled, numpy_twin)[rng.integers(2)]
        codes = np.full(len(texts[first : first + 8]), UNSEEN)
        table = module.add_texts(
            module.indexed(table), side_by_side(texts[first : first + 8]), codes
        )
        found += codes.tolist()
    assert (held(table), found) == naive.number([], texts, [UNSEEN] * len(texts), UNSEEN)


@pytest.mark.parametrize("module", MODULES)
def test_texts__a_reader_keeps_to_its_own_table(module):
    early = module.indexed(TextTable.of(NO_TEXTS))
    early = module.add_texts(early, side_by_side([b"a", b"b"]), np.full(2, UNSEEN))
    both = side_by_side([b"b", b"c"])
    module.add_texts(early, both, np.full(2, UNSEEN))
    codes = np.full(2, UNSEEN)
    assert not module.find_texts(early, both, codes)
    assert codes.tolist() == [1, UNSEEN]


@pytest.mark.parametrize("module", MODULES)
def test_texts__read_by_threads_while_one_adds(module):
    words = [b"%d." % k * (1 + k % 3) for k in range(3000)]
    shared = [module.indexed(TextTable.of(NO_TEXTS))]
    every, wrong, ended = side_by_side(words), [], threading.Event()

    def read():
        while not ended.is_set():
            table, codes = shared[0], np.full(len(words), UNSEEN)
            module.find_texts(table, every, codes)
            known = codes != UNSEEN
            if known.sum() != table.n_texts or (codes[known] != np.flatnonzero(known)).any():
                wrong.append((table.n_texts, codes))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for first in range(0, len(words), 10):
        codes = np.full(10, UNSEEN)
        shared[0] = module.add_texts(shared[0], side_by_side(words[first : first + 10]), codes)
    ended.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert held(shared[0]) == words


@pytest.mark.parametrize("module", MODULES)
def test_texts__room_at_least_doubles(module, monkeypatch):
    """So moving texts takes time linear in them, however few come at a time."""
    moved = []
    with_room = TextTable.with_room

    def watched(self, texts, size):
        larger = with_room(self, texts, size)
        if larger.data is not self.data:
            moved.append(int(self.offsets[self.n_texts]))
        return larger

    monkeypatch.setattr(TextTable, "with_room", watched)
    words = [b"%07d" % k for k in range(5000)]
    table, _ = grown(module, words, 7)
    assert held(table) == words
    assert 0 < sum(moved) <= 7 * len(words) + len(table.data)


@pytest.mark.skipif(interpreted(), reason="the table of the compiled kernels")
@pytest.mark.parametrize("long", [False, True])
def test_texts__few_buckets_are_looked_at(long, monkeypatch):
    """Texts that differ in a few bits, or share almost all bytes, spread over the table."""
    # Of secrets drawn anew one in some hundred spreads them worse.
    secrets = np.random.default_rng(1).integers(0, 2**64, 3, np.uint64) | np.uint64(1)
    monkeypatch.setattr(compiled, "_SECRETS", readonly(secrets))
    words = [b"%d" % k + b"\0" * 30 * long for k in range(50_000)]
    words += [b"x" * 40 * long + bytes([k % 256, 0, k >> 8]) for k in range(50_000)]
    words += [bytes([0] * k) for k in range(1000)]
    table, _ = grown(compiled, words, 10_000)
    hashes, codes = table.slots.reshape(-1, 2, 8).transpose(1, 0, 2)
    n_buckets, (place, _) = len(codes), np.nonzero(codes)
    assert 1.5 * table.n_texts <= codes.size
    assert sorted(codes[codes > 0] - 1) == list(range(table.n_texts))
    assert (codes[:, 1:] != 0).sum() == ((codes[:, 1:] != 0) & (codes[:, :-1] != 0)).sum()
    shift = np.uint64(64 - (n_buckets.bit_length() - 1))
    home = (hashes[codes > 0].astype(np.uint64) << np.uint64(32)) >> shift
    away = (place - home.astype(np.int64)) % n_buckets
    # Two thirds full, one in seven buckets has no room for all that belong there.
    assert away.mean() < 0.2
    assert away.max() < 20


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("ends", [[-1, 2, 4], [0, 3, 2], [0, 2, 7], [0, 7, 6], [0, -8, 6]])
@pytest.mark.parametrize("known", [2, 100_000])
def test_texts__outside_of_their_bytes(module, kind, ends, known):
    given = Texts(np.array(ends, kind), np.frombuffer(b"abcdef", np.uint8))
    table = module.indexed(TextTable.of(side_by_side([b"%d" % k for k in range(known)])))
    for function in (module.find_texts, module.add_texts):
        with pytest.raises(IndexError, match="texts do not lie one after the other"):
            function(table, given, np.full(2, UNSEEN))


@pytest.mark.skipif(interpreted(), reason="the places of the compiled kernels")
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("wrong", [-20, -8, 45, 97, 120, 149, 200])
@pytest.mark.parametrize("row", [1, 5, 18])
def test_texts__outside_of_their_bytes_where_they_have_places(kind, wrong, row, monkeypatch):
    monkeypatch.setattr(compiled, "MANY_ROWS", 0)
    ends = np.arange(0, 100, 5, dtype=kind)
    given = Texts(ends.copy(), np.frombuffer(b"abcde" * 30, np.uint8))
    table = compiled.indexed(TextTable.of(side_by_side([b"abcde", b"abcdeabcde", b""])))
    codes = np.full(len(ends) - 1, UNSEEN)
    assert compiled.find_texts(table, given, codes)
    given.offsets[row] = wrong
    with pytest.raises(IndexError, match="texts do not lie one after the other"):
        compiled.find_texts(table, given, np.full(len(ends) - 1, UNSEEN))


@pytest.mark.skipif(interpreted(), reason="the places of the compiled kernels")
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=60),
    first=st.integers(0, 9),
    spare=st.integers(0, 40),
    seed=st.integers(0, 1000),
)
def test_texts__found_at_their_places_by_offsets_of_either_width(texts, first, spare, seed):
    sought = np.random.default_rng(seed).random(len(texts)) < 0.8
    known = list(dict.fromkeys(texts[::2]))
    table = compiled.indexed(TextTable.of(side_by_side(known)))
    offsets, data = side_by_side([*texts, b"x" * spare])
    wanted = [known.index(t) if t in known else int(UNSEEN) for t in texts]
    wanted = np.where(sought, wanted, MISSING)[first:].tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "MANY_ROWS", 0)
        for kind in (np.int32, np.int64):
            some = Texts(offsets[: len(texts) + 1].astype(kind)[first:], data)
            if not len(some.offsets):
                continue
            codes = np.where(sought, UNSEEN, MISSING)[first:]
            assert compiled.find_texts(table, some, codes) == (UNSEEN not in wanted)
            assert codes.tolist() == wanted


@pytest.mark.parametrize("module", MODULES)
@given(texts=st.lists(TEXTS, min_size=1, max_size=60), first=st.integers(0, 9))
def test_texts__offsets_of_either_width(module, texts, first):
    every = []
    for kind in (np.int32, np.int64):
        offsets, data = side_by_side(texts)
        some = Texts(offsets.astype(kind)[first:], data) if first < len(texts) else NO_TEXTS
        codes = np.full(len(some.offsets) - 1, UNSEEN)
        table = module.add_texts(module.indexed(TextTable.of(NO_TEXTS)), some, codes)
        every.append((held(table), codes.tolist()))
    assert (
        every[0]
        == every[1]
        == naive.number([], texts[first:], [UNSEEN] * len(texts[first:]), UNSEEN)
    )


@pytest.mark.parametrize("module", MODULES)
def test_texts__more_bytes_than_arrow_holds(module):
    table = module.indexed(TextTable.of(side_by_side([b"abc"])))
    full = np.array([0, MOST_BYTES - 1], np.int32)
    table = table._replace(offsets=full)
    with pytest.raises(OverflowError, match="2,147,483,648 bytes"):
        table.with_room(1, 2)
    assert len(table.data) == 3 + SPARE
