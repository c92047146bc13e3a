"""Codes of texts by a hash table of their bytes.

The table is open addressing with linear probing of buckets, at most two thirds full. A bucket is a
line of the cache: the upper halves of eight hashes, of which the leading bits are their place, and
eight codes + 1; 0 is free, and what is taken comes first. All eight are compared at once, so a text
that is there is found without a branch that depends on it. A larger table is written in the order
of the smaller one, without looking at a text.

Where rows are many, short texts have a place of their own besides, which holds the two words and
the code: most rows then compare two words and are done, in two thirds of the time. The lower bits
of the hash tell which place that is, turned by what a small table holds for the upper ones: for
texts with the same upper bits a turn is sought that brings all to free places (Fox, Heath, Chen and
Daoud 1992).

What a bucket promises is confirmed by two words for each code: a short text is its own bytes and
their number; of a longer one they tell where it lies and its length, and all bytes are compared.

The hash multiplies the words of a text, each mixed with a secret of the process, to 128 bits and
folds them (the mixing step of wyhash, Wang Yi 2019): who does not know the secrets cannot choose
texts that meet in one place. Codes follow the order of appearance, so results do not depend on it.

A table may be read while another thread adds to it: codes from `count` on are passed over, and what
stands before them is not written again.
"""

from __future__ import annotations

import os

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import instruction
from fastbayes.kernels.compiled.simd.unaligned import copy, equal_lanes, span_of, word
from fastbayes.kernels.compiled.simd.vector import prefetch
from fastbayes.kernels.dispatch import (
    helper,
    interpreted,
    kernel,
    numpy_twin,
    readonly,
    reads,
    writes,
)
from fastbayes.kernels.shared.arrays import U
from fastbayes.kernels.shared.texts import OUTSIDE, UNSEEN, Texts, TextTable

# Hashes of a bucket, and as many codes.
LANES = 8
# Buckets of a table to begin with: half a KiB, small where there are thousands of columns.
BUCKETS = 8
# Buckets of a table that stays in the second-level cache.
NEAR = 1 << 13
# Rows of one step where texts have places of their own, and where they have not: what is asked for
# ahead.
NEAR_STEP, STEP = 512, 64
# From so many rows on texts get places of their own: again once an eighth of them has none.
MANY_ROWS = 1 << 13
# Places for each text, and for all, at least; places for each turn.
PLACES, FEWEST_PLACES, OF_TURN = 1.5, 1 << 10, 8
# A text is short if its bytes and their number fit two words.
SHORT = 16
# Odd, so that no product with one loses a bit.
_SECRETS = readonly(np.frombuffer(os.urandom(24), np.uint64) | U(1))
# The bytes of the first and the second word that belong to a short text of so many bytes.
_FIRST = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(SHORT)], np.uint64)
_SECOND = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(SHORT)], np.uint64)
# The second word where nothing was found yet: no text has so many bytes.
_NOTHING = ~U(0)
# In the second word of a longer text, with its length.
_LONG = U(1 << 63)
_WIDE = ir.IntType(128)

_NOWHERE = readonly(np.empty(0, np.uint8)), readonly(np.empty((0, 3), U))

SIGNATURES = {
    "number": [
        (
            *(reads("int32"), "uint8", reads("uint8"), reads("uint64"), "uint8", "uint64"),
            *(writes("uint32"), writes("int32"), writes("uint8"), writes("uint64", 2)),
            *(writes("uint64", 2), writes("uint64"), reads("uint8"), reads("uint64", 2)),
            *(writes("int64"), writes("uint32")),
        )
    ],
    "settle": [
        (
            *(reads("uint64", 2), reads("uint64"), writes("int32"), writes("int32")),
            *(writes("uint8"), writes("uint64", 2)),
        )
    ],
    "widen": [(reads("uint32"), "uint64", writes("uint32"))],
}


def indexed(table: TextTable) -> TextTable:
    """Return a table in which texts can be found."""
    if interpreted():  # without the compiler there are no words at an address
        twin: TextTable = numpy_twin("texts").indexed(table)
        return twin
    if len(table.slots):
        return table
    buckets = BUCKETS
    while not _roomy(buckets, table.n_texts):
        buckets *= 2
    codes = np.full(table.n_texts, UNSEEN)
    known = Texts(table.offsets[: table.n_texts + 1], table.data)
    words = np.empty((len(table.offsets) - 1, 2), U)
    fresh = table._replace(n_texts=0, slots=_free(buckets), words=words, near={})
    # The texts are written over themselves.
    return add_texts(fresh, known, codes)


def find_texts(table: TextTable, texts: Texts, codes: NDArray[np.uint32]) -> bool:
    """Write the codes of texts that are known; return whether all are.

    Raises IndexError where texts do not lie one after the other in their bytes.

    table  IN      from `indexed`
    codes  IN OUT  (n,) uint32   only rows that are UNSEEN are looked for, and stay so if unknown
    """
    if interpreted():
        return bool(numpy_twin("texts").find_texts(table, texts, codes))
    state = np.array([0, table.n_texts, 0])
    _number(table, texts.with_spare(), False, state, codes)
    return not state[2]


def add_texts(table: TextTable, texts: Texts, codes: NDArray[np.uint32]) -> TextTable:
    """Write the codes of texts, new ones after those known; return the larger table.

    One thread at a time; others may look texts up in `table` meanwhile. Room is at least doubled
    where it is short, so the cost is linear in the texts. Raises IndexError as `find_texts` does.

    table  IN      from `indexed`
    codes  IN OUT  (n,) uint32   only rows that are UNSEEN are looked for
    """
    if interpreted():
        twin: TextTable = numpy_twin("texts").add_texts(table, texts, codes)
        return twin
    texts, state = texts.with_spare(), np.array([0, table.n_texts, 0])
    while True:
        _number(table, texts, True, state, codes)
        row, count = int(state[0]), int(state[1])
        table = table._replace(n_texts=count)
        if row == len(codes):
            return table
        table = table.with_room(1, int(texts.offsets[row + 1] - texts.offsets[row]))
        if (room := len(table.offsets) - 1) > len(table.words):
            words = np.empty((room, 2), U)
            words[:count] = table.words[:count]
            table = table._replace(words=words)
        buckets = len(table.slots) // (2 * LANES)
        if not _roomy(buckets, count + 1):
            larger = _free(2 * buckets)
            widen(readonly(table.slots), _shift(larger), larger)
            table = table._replace(slots=larger)


def _number(
    table: TextTable,
    texts: Texts,
    adding: bool,
    state: NDArray[np.int64],
    codes: NDArray[np.uint32],
) -> None:
    wide = np.uint8(texts.offsets.itemsize == 8)
    turns, places = _NOWHERE if adding else _settled(table, len(codes))
    number(
        *(readonly(texts.offsets.view(np.int32)), wide, readonly(texts.data), _SECRETS),
        *(np.uint8(adding), _shift(table.slots), table.slots, table.offsets, table.data),
        *(table.words, np.empty((STEP, 3), U), np.empty(NEAR_STEP, U)),
        *(turns, places, state, codes),
    )
    if state[0] < 0:
        raise IndexError(OUTSIDE)


def _settled(table: TextTable, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Return where texts have places of their own, nowhere if it is not worth the while."""
    settled = max((n for n in [*table.near] if n <= table.n_texts), default=0)
    n = table.n_texts
    if 8 * settled < 7 * n and rows >= MANY_ROWS and len(table.slots) <= 2 * LANES * NEAR:
        size = FEWEST_PLACES
        while size < PLACES * n:
            size *= 2
        turns, places = np.zeros(size // OF_TURN, np.uint8), np.empty((size, 3), U)
        places[:, 1] = _NOTHING
        scratch = np.full(len(turns), -1, np.int32), np.empty(n, np.int32)
        settle(readonly(table.words[:n]), _SECRETS, *scratch, turns, places)
        table.near.clear()
        table.near[n] = found = readonly(turns), readonly(places)
        return found
    return table.near.get(settled, _NOWHERE)


def _roomy(buckets: int, n_texts: int) -> bool:
    """Return whether a table has room for so many texts."""
    return 3 * n_texts <= 2 * LANES * buckets


def _free(buckets: int) -> NDArray[np.uint32]:
    """Return so many free buckets, each a line of the cache.

    They lie in large pages where the system has them: those of np.zeros would not.
    """
    n = 2 * LANES * buckets
    held = np.empty(n + 2 * LANES, np.uint32)
    first = -(held.__array_interface__["data"][0] // 4) % (2 * LANES)
    slots = held[first : first + n]
    slots.fill(0)
    return slots


def _shift(slots: NDArray[np.uint32]) -> np.uint64:
    """Return the bits of a hash behind those that tell its bucket."""
    return U(64 - ((len(slots) // (2 * LANES)).bit_length() - 1))


@instruction(lambda bits: types.uint64(types.uint64))
def _lowest(block, bits):
    """Return the place of the lowest bit that is set; there is one."""
    return to.call(block, "llvm.cttz.i64", to.I64, bits, ir.IntType(1)(1))


@instruction(lambda a, b: types.uint64(types.uint64, types.uint64))
def _fold(block, a, b):
    """Return the upper half of a product, exclusive-or the lower half."""
    product = block.mul(block.zext(a, _WIDE), block.zext(b, _WIDE))
    upper = block.lshr(product, ir.Constant(_WIDE, 64))
    return block.trunc(block.xor(product, upper), to.I64)


@helper
def _hash_long(data, begin, n, secrets):
    """Return the hash of 16 bytes or more; the last 16 are a pair whatever the length."""
    h = secrets[2] ^ U(n)
    k = 0
    while k + 16 < n:
        a, b = word(data, begin + k), word(data, begin + k + 8)
        h = _fold(a ^ secrets[0] ^ h, b ^ secrets[1])
        k += 16
    a, b = word(data, begin + n - 16), word(data, begin + n - 8)
    return _fold(a ^ secrets[0] ^ h, b ^ secrets[1])


@helper
def _short_key(data, begin, n, secrets):
    """Return what tells a text of less than 16 bytes: its hash and two words."""
    a = word(data, begin) & _FIRST[n]
    b = word(data, begin + 8) & _SECOND[n] | n << U(56)
    return _fold(a ^ secrets[0], b ^ secrets[1]), a, b


@helper
def _key(data, begin, n, secrets):
    """Return what tells a text: its hash and two words; the first of a long text is not used."""
    if n >= SHORT:
        return _hash_long(data, begin, n, secrets), U(0), U(n) | _LONG
    return _short_key(data, begin, U(n), secrets)


@helper
def _same(x, i, y, j, n):
    """Return whether n >= 8 bytes are the same."""
    k = 0
    while k + 8 < n:
        if word(x, i + k) != word(y, j + k):
            return False
        k += 8
    return word(x, i + n - 8) == word(y, j + n - 8)


@helper
def _hits(buckets, place, half):
    """Return the lanes of a bucket that hold half a hash, as bits."""
    return equal_lanes(buckets, np.int64(U(64) * place), half)


@helper
def _code(buckets, place, lane):
    """Return the code in a lane of a bucket; beyond all if it is free, or is being taken."""
    return (word(buckets, np.int64(U(64) * place + U(28) + U(4) * lane)) >> U(32)) - U(1)


@helper
def _full(buckets, place):
    """Return whether no lane of a bucket is free."""
    return _code(buckets, place, U(LANES - 1)) != ~U(0)


@helper
def _free_slot(buckets, place):
    """Return the first free lane of a bucket that is not full, as a place in the slots."""
    free = equal_lanes(buckets, np.int64(U(64) * place + U(32)), np.uint32(0))
    return U(2 * LANES) * place + _lowest(free)


@helper
def _ends(texts, wide):
    """Return what tells where texts end, as a span: the first one, from text to text, their shift.

    The end of text r is the word from byte first + r * step on, shifted. Of numbers of 32 bits it
    is the upper half of a word, so that none is read behind the last one.
    """
    return span_of(texts), (8 if wide else 0), (8 if wide else 4), (U(0) if wide else U(32))


@helper
def _find_settled(
    ends, begin, limit, data, secrets, turns, shift, places, mask, codes, start, stop, left
):
    """Write the codes of short texts that have a place of their own.

    Most are found so; what is left to `_look_up` is too long to be part of a loop. Return how many
    rows are left, and write which: those of texts that are not inside their bytes are among them.
    """
    offsets, first, step, down = ends
    at, n_left = first + step * np.int64(start), U(0)
    for r in range(start, stop):
        end = word(offsets, at) >> down
        here, n = np.int64(begin), end - begin
        begin = end
        at += step
        if codes[r] != UNSEEN:
            continue
        if n < U(SHORT) and n <= end <= limit:
            h, a, b = _short_key(data, here, n, secrets)
            here = np.int64(U(24) * ((h ^ U(turns[h >> shift])) & mask))
            if word(places, here) == a and word(places, here + 8) == b:
                codes[r] = np.uint32(word(places, here + 16))
                continue
        left[n_left] = r
        n_left += U(1)
    return n_left


@helper
def _look_up(buckets, place, mask, words, count, known, key, data, begin):
    """Return the code of a text, UNSEEN if it is unknown, and the bucket that would take it."""
    h, a, b = key
    half = np.uint32(h >> U(32))
    while True:
        hits = _hits(buckets, place, half)
        while hits != U(0):
            c = _code(buckets, place, _lowest(hits))
            if c < count:
                at = np.int64(U(16) * c)
                first = word(words, at)
                if word(words, at + 8) == b and (
                    first == a
                    if b < _LONG
                    else _same(data, begin, known, np.int64(first), np.int64(b ^ _LONG))
                ):
                    return np.uint32(c), place
            hits &= hits - U(1)
        if not _full(buckets, place):
            return UNSEEN, place
        place = (place + U(1)) & mask


@helper
def _offset(texts, r, wide):
    """Return an offset that is one number of 32 bits, or two if `wide`."""
    if wide:
        at = U(2) * r
        return np.int64(U(np.uint32(texts[at])) | U(np.uint32(texts[at + U(1)])) << U(32))
    return np.int64(texts[r])


@kernel
def number(
    texts,
    wide,
    data,
    secrets,
    adding,
    shift,
    slots,
    offsets,
    known,
    words,
    keys,
    left,
    turns,
    places,
    state,
    codes,
):
    """Find texts in a table, and add those that are not there if asked to.

    Adding stops before the row for which there is no room.

    texts    IN      (n + 1,) int32, or (2 (n + 1),) if wide   where each text begins in data; the
                     next one is its end
    wide     IN      uint8   0 or 1: offsets are pairs, the lower half first
    data     IN      (n_bytes + SPARE,) uint8
    secrets  IN      (3,) uint64
    adding   IN      uint8   0 or 1
    shift    IN      uint64   64 less the bits of a place
    slots    IN OUT  (16 * 2^bits,) uint32   of each bucket 8 upper halves of hashes, 8 codes + 1
    offsets  IN OUT  (room + 1,) int32   where each known text begins in known
    known    IN OUT  (room + SPARE,) uint8
    words    IN OUT  (room, 2) uint64   of each known text its bytes and their number in the
                     highest byte, or if it is longer where it begins and its length
    keys     OUT     (rows of one step where a table is far, 3) uint64   scratch
    left     OUT     (rows of one step where texts have places,) uint64   scratch
    turns    IN      (2^more / OF_TURN,) uint8   as `settle` writes them
    places   IN      (2^more, 3) uint64   the same, or (0, 3)
    state    IN OUT  (3,) int64   row to go on from, -1: a text is not inside data; known texts;
                     texts that were not found
    codes    IN OUT  (n,) uint32   only rows that are UNSEEN are looked for
    """
    given, held, buckets, firsts = span_of(data), span_of(known), span_of(slots), span_of(words)
    own, mask = (secrets[0], secrets[1], secrets[2]), U(slots.size // 16 - 1)
    count, limit = U(state[1]), np.int64(data.size) - 16
    room = min(U(words.shape[0]), U(slots.size // 3))
    n, lost = U(codes.size), 0
    if places.shape[0] > 0:
        ends, most = _ends(texts, wide), U(max(limit, 0))
        there, last = span_of(places), U(places.shape[0] - 1)
        turn_shift = U(64) - _lowest(U(turns.size))
        for start in range(U(state[0]), n, U(left.size)):
            stop = min(start + U(left.size), n)
            n_left = _find_settled(
                *(ends, U(_offset(texts, start, wide)), most, given, own, turns, turn_shift),
                *(there, last, codes, start, stop, left),
            )
            for k in range(U(0), n_left):
                r = left[k]
                begin, end = _offset(texts, r, wide), _offset(texts, r + U(1), wide)
                if begin < 0 or end < begin or end > limit:
                    state[0] = -1
                    return
                key = _key(given, begin, end - begin, own)
                place = key[0] >> shift
                code, _ = _look_up(buckets, place, mask, firsts, count, held, key, given, begin)
                codes[r] = code
                lost += code == UNSEEN
        state[2] = lost
        return
    for start in range(U(state[0]), n, U(keys.shape[0])):
        stop = min(start + U(keys.shape[0]), n)
        long = U(0)
        # What a large table holds is asked for first, so that it comes together.
        for r in range(start, stop):
            if codes[r] == UNSEEN:
                begin, end = _offset(texts, r, wide), _offset(texts, r + U(1), wide)
                if begin < 0 or end < begin or end > limit:
                    state[0] = -1
                    return
                h, a, b = _key(given, begin, end - begin, own)
                keys[r - start, U(0)], keys[r - start, U(1)], keys[r - start, U(2)] = h, a, b
                prefetch(slots, U(16) * (h >> shift))
                long |= b
        for turn in range(2 if long >= _LONG else 1):
            for r in range(start, stop):
                if codes[r] == UNSEEN:
                    h, place = keys[r - start, U(0)], keys[r - start, U(0)] >> shift
                    hits = _hits(buckets, place, np.uint32(h >> U(32)))
                    if hits != U(0):
                        c = _code(buckets, place, _lowest(hits))
                        if turn == 0:
                            prefetch(words, U(2) * c)
                        elif c < count and words[c, U(1)] >= _LONG:
                            prefetch(known, words[c, U(0)])
        for r in range(start, stop):
            if codes[r] != UNSEEN:
                continue
            h, a, b = keys[r - start, U(0)], keys[r - start, U(1)], keys[r - start, U(2)]
            place, begin = h >> shift, _offset(texts, r, wide)
            code, place = _look_up(
                buckets, place, mask, firsts, count, held, (h, a, b), given, begin
            )
            if code == UNSEEN and adding:
                first = np.int64(offsets[count])
                size = _offset(texts, r + U(1), wide) - begin
                if count >= room or first + size + 16 > known.size:
                    state[0], state[1] = r, count
                    return
                copy(given, begin, held, first, size)
                offsets[count + U(1)] = first + size
                words[count, U(0)] = U(first) if b >= _LONG else a
                words[count, U(1)] = b
                at, code = _free_slot(buckets, place), np.uint32(count)
                count += U(1)
                slots[at], slots[at + U(LANES)] = h >> U(32), count
            codes[r] = code
            lost += code == UNSEEN
    state[0], state[1], state[2] = n, count, lost


@kernel
def settle(words, secrets, firsts, following, turns, places):
    """Give short texts places of their own; those that have to share one stay without.

    words      IN   (n, 2) uint64   as `number` writes them
    secrets    IN   (3,) uint64
    firsts     OUT  (n_turns,) int32   scratch, -1 at entry
    following  OUT  (n,) int32   scratch
    turns      OUT  (n_turns,) uint8   what turns the places of hashes with the same upper bits
    places     OUT  (2^bits, 3) uint64   the two words of a text, `_NOTHING` for the second where
                    there is none, and its code
    """
    own, mask = (secrets[0], secrets[1], secrets[2]), U(places.shape[0] - 1)
    shift = U(64) - _lowest(U(turns.size))
    for c in range(U(words.shape[0])):
        if words[c, U(1)] < _LONG:
            g = _fold(words[c, U(0)] ^ own[0], words[c, U(1)] ^ own[1]) >> shift
            following[c], firsts[g] = firsts[g], c
    for g in range(U(turns.size)):
        fewest = words.shape[0]
        for turn in range(U(256)):
            taken, c = 0, firsts[g]
            while c >= 0 and taken < fewest:
                h = _fold(words[c, 0] ^ own[0], words[c, 1] ^ own[1])
                taken += places[(h ^ turn) & mask, U(1)] != _NOTHING
                c = following[c]
            if taken < fewest:
                fewest, turns[g] = taken, turn
            if fewest == 0:
                break
        c = firsts[g]
        while c >= 0:
            a, b = words[c, 0], words[c, 1]
            at = (_fold(a ^ own[0], b ^ own[1]) ^ U(turns[g])) & mask
            if places[at, U(1)] == _NOTHING:
                places[at, U(0)], places[at, U(1)], places[at, U(2)] = a, b, U(c)
            c = following[c]


@kernel
def widen(slots, shift, larger):
    """Copy what is in the buckets of a table to those of a larger one.

    slots   IN   (16 * 2^bits,) uint32
    shift   IN   uint64   64 less the bits of a place in the larger one
    larger  OUT  (16 * 2^more,) uint32   zeros
    """
    buckets, mask = span_of(larger), U(larger.size // 16 - 1)
    for first in range(U(0), U(slots.size), U(16)):
        for k in range(first, first + U(LANES)):
            code = slots[k + U(LANES)]
            if code == 0:
                break
            place = (U(slots[k]) << U(32)) >> shift
            while _full(buckets, place):
                place = (place + U(1)) & mask
            at = _free_slot(buckets, place)
            larger[at], larger[at + U(LANES)] = slots[k], code
