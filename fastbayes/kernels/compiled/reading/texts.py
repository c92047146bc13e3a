"""Codes of texts by a hash table of their bytes.

The table is open addressing with linear probing of buckets, at most two thirds full. A bucket is a
line of the cache: the upper halves of eight hashes, of which the leading bits are their place, and
eight codes + 1; 0 is free, and what is taken comes first. All eight are compared at once, so a text
that is there is found without a branch that depends on it. A larger table is written in the order
of the smaller one, without looking at a text.

Where rows are many, short texts have a place of their own besides, which holds text and code in 16
bytes (see `simd.short_texts`): most rows then compare these and are done, in half of the time. The
lower bits of what a text is mixed to tell which place that is, turned by what a small table holds
for others of its bits: for texts that share these a turn is sought that brings all to free places
(Fox, Heath, Chen and Daoud 1992).

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
from fastbayes.kernels.compiled.simd.short_texts import (
    PLACES,
    SHORT,
    TURNS,
    folded,
    in_lines,
    mixed,
    recalled,
    table_of,
    unmixed,
)
from fastbayes.kernels.compiled.simd.unaligned import (
    bytes_at,
    copy,
    eights_at,
    equal_lanes,
    fours_at,
    span_of,
    word,
)
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
# Rows of one step, what is asked for ahead.
STEP = 64
# From so many rows on texts get places of their own: again once an eighth of them has none.
MANY_ROWS = 1 << 13
# Places for each text, and for all, at least. There are four for each turn.
ROOMY, FEWEST_PLACES = 1.5, 1 << 10
# Odd, so that no product with one loses a bit.
_SECRETS = readonly(np.frombuffer(os.urandom(24), np.uint64) | U(1))
# The bytes of the first and the second word that belong to a short text of so many bytes.
_FIRST = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(SHORT)], np.uint64)
_SECOND = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(SHORT)], np.uint64)
# In the second word of a longer text, with its length.
_LONG = U(1 << 63)

_TEXTS = reads("int32"), "uint8", reads("uint8")

SIGNATURES = {
    "recall": [(*_TEXTS, reads("uint64"), writes("uint32"), writes("uint32"))],
    "number": [
        (
            *(*_TEXTS, reads("uint64"), "uint8", "uint64", writes("uint32"), writes("int32")),
            *(writes("uint8"), writes("uint64", 2), writes("uint64", 2), writes("int64")),
            writes("uint32"),
        )
    ],
    "number_rows": [
        (
            *(*_TEXTS, reads("uint64"), "uint64", reads("uint32"), reads("uint8")),
            *(reads("uint64", 2), reads("uint32"), writes("int64"), writes("uint32")),
        )
    ],
    "settle": [(reads("uint64", 2), *[writes("int32")] * 3, writes("uint64", 2), writes("uint64"))],
    "widen": [(reads("uint32"), "uint64", writes("uint32"))],
}


def indexed(table: TextTable) -> TextTable:
    """Return a table in which texts can be found."""
    if interpreted():  # without the compiler there are no words at an address
        twin: TextTable = numpy_twin("reading.texts").indexed(table)
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
        return bool(numpy_twin("reading.texts").find_texts(table, texts, codes))
    texts, state = texts.with_spare(), np.array([0, table.n_texts, 0])
    near = _settled(table, len(codes))
    if near is None:
        _number(table, texts, False, state, codes)
        return not state[2]
    left, given = np.empty(len(codes), np.uint32), _as_read(texts)
    n_left = recall(*given, near, left, codes)
    if n_left:
        number_rows(
            *(*given, _SECRETS, _shift(table.slots), readonly(table.slots), readonly(table.data)),
            *(readonly(table.words), readonly(left[:n_left]), state, codes),
        )
        if state[0] < 0:
            raise IndexError(OUTSIDE)
    return not state[2]


def add_texts(table: TextTable, texts: Texts, codes: NDArray[np.uint32]) -> TextTable:
    """Write the codes of texts, new ones after those known; return the larger table.

    One thread at a time; others may look texts up in `table` meanwhile. Room is at least doubled
    where it is short, so the cost is linear in the texts. Raises IndexError as `find_texts` does.

    table  IN      from `indexed`
    codes  IN OUT  (n,) uint32   only rows that are UNSEEN are looked for
    """
    if interpreted():
        twin: TextTable = numpy_twin("reading.texts").add_texts(table, texts, codes)
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
    given = _as_read(texts)
    number(
        *(*given, _SECRETS, np.uint8(adding), _shift(table.slots), table.slots, table.offsets),
        *(table.data, table.words, np.empty((STEP, 3), U), state, codes),
    )
    if state[0] < 0:
        raise IndexError(OUTSIDE)


def _as_read(texts: Texts) -> tuple[NDArray[np.int32], np.uint8, NDArray[np.uint8]]:
    """Return texts as kernels take them."""
    wide = np.uint8(texts.offsets.itemsize == 8)
    return readonly(texts.offsets.view(np.int32)), wide, readonly(texts.data)


def _settled(table: TextTable, rows: int) -> NDArray[np.uint64] | None:
    """Return where texts have places of their own, if it is worth the while."""
    settled = max((n for n in [*table.near] if n <= table.n_texts), default=0)
    n = table.n_texts
    if 8 * settled < 7 * n and rows >= MANY_ROWS and len(table.slots) <= 2 * LANES * NEAR:
        size = FEWEST_PLACES
        while size < ROOMY * n:
            size *= 2
        near = table_of(size)
        scratch = np.full(size // 4, -1, np.int32), np.empty(n, np.int32)
        settle(
            *(readonly(table.words[:n]), *scratch, np.full(size, -1, np.int32)),
            *(np.empty((n, 2), U), near),
        )
        table.near.clear()
        table.near[n] = near = readonly(near)
        return near
    return table.near.get(settled)


def _roomy(buckets: int, n_texts: int) -> bool:
    """Return whether a table has room for so many texts."""
    return 3 * n_texts <= 2 * LANES * buckets


def _free(buckets: int) -> NDArray[np.uint32]:
    """Return so many free buckets, each a line of the cache."""
    slots = in_lines(2 * LANES * buckets, np.uint32)
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
    return folded(block, a, b)


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
def _key(data, begin, n, secrets):
    """Return what tells a text: its hash and two words; the first of a long text is not used."""
    if n >= SHORT:
        return _hash_long(data, begin, n, secrets), U(0), U(n) | _LONG
    size = U(n)
    a = word(data, begin) & _FIRST[size]
    b = word(data, begin + 8) & _SECOND[size] | size << U(56)
    return _fold(a ^ secrets[0], b ^ secrets[1]), a, b


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


@helper
def _any_unseen(codes):
    """Return whether any of a few rows is to be looked for."""
    sought = False
    for r in range(U(codes.size)):
        sought |= codes[r] == UNSEEN
    return sought


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
    keys     OUT     (rows of one step, 3) uint64   scratch
    state    IN OUT  (3,) int64   row to go on from, -1: a text is not inside data; known texts;
                     texts that were not found
    codes    IN OUT  (n,) uint32   only rows that are UNSEEN are looked for
    """
    given, held, buckets, firsts = span_of(data), span_of(known), span_of(slots), span_of(words)
    own, mask = (secrets[0], secrets[1], secrets[2]), U(slots.size // 16 - 1)
    count, limit = U(state[1]), np.int64(data.size) - 16
    room = min(U(words.shape[0]), U(slots.size // 3))
    n, lost = U(codes.size), 0
    for start in range(U(state[0]), n, U(keys.shape[0])):
        stop = min(start + U(keys.shape[0]), n)
        if adding and not _any_unseen(codes[start:stop]):
            continue
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
def number_rows(texts, wide, data, secrets, shift, slots, known, words, rows, state, codes):
    """Find the texts of some rows in a table.

    rows   IN      (n_rows,) uint32
    state  IN OUT  (3,) int64   -1 if a text is not inside data; known texts; texts not found
    codes  OUT     (n,) uint32   of these rows

    The others as for `number`.
    """
    given, held, buckets, firsts = span_of(data), span_of(known), span_of(slots), span_of(words)
    own, mask = (secrets[0], secrets[1], secrets[2]), U(slots.size // 16 - 1)
    count, limit, lost = U(state[1]), np.int64(data.size) - 16, 0
    for k in range(U(rows.size)):
        r = U(rows[k])
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


@helper
def _recall(offsets, data, table, mask, left, codes):
    """See `recall`; offsets are uint32 or uint64."""
    # Where two words can be read without a look at the end of a text, nor is that outside.
    limit = U(max(data[1] - (SHORT - 1) - 15, 0))
    begin, n_left = U(offsets[0]), U(0)
    for r in range(U(codes.size)):
        end = U(offsets[r + U(1)])
        here, n = begin, end - begin
        begin = end
        # In this order LLVM asks one after the other: each answer is nearly always the same.
        if here < limit:
            if codes[r] != UNSEEN:
                continue
            if n < U(SHORT):
                differs, code = recalled(data, np.int64(here), n, table, mask)
                if differs == U(0):
                    codes[r] = code
                    continue
        elif codes[r] != UNSEEN:
            continue
        left[n_left] = r
        n_left += U(1)
    return np.int64(n_left)


@kernel
def recall(texts, wide, data, near, left, codes):
    """Find short texts that have a place of their own; return how many rows are left.

    Those of texts that are not inside their bytes are among them.

    near   IN      uint64   as `settle` writes it
    left   OUT     (n,) uint32   which rows are left
    codes  IN OUT  (n,) uint32   only rows that are UNSEEN are looked for

    The others as for `number`.
    """
    offsets, given, table = span_of(texts), span_of(data), span_of(near)
    mask, n = U((near.size - PLACES // 8) // 2 - 1), codes.size + 1
    if wide:
        return _recall(eights_at(offsets, 0, n), given, table, mask, left, codes)
    return _recall(fours_at(offsets, 0, n), given, table, mask, left, codes)


@kernel
def settle(words, firsts, following, held, mixes, near):
    """Give short texts places of their own; those that have to share one stay without.

    words      IN   (n, 2) uint64   as `number` writes them
    firsts     OUT  (n_turns,) int32   scratch, -1 at entry
    following  OUT  (n,) int32   scratch
    held       OUT  (n_places,) int32   scratch, -1 at entry
    mixes      OUT  (n, 2) uint64   scratch
    near       OUT  uint64   as `table_of` makes it, with turns and places
    """
    given, table = span_of(words), span_of(near)
    mask, n_turns = U(held.size - 1), U(firsts.size)
    turns = bytes_at(table, TURNS, firsts.size)
    for c in range(U(words.shape[0])):
        if words[c, U(1)] < _LONG:
            mixes[c, U(0)], mixes[c, U(1)] = mixed(given, np.int64(U(16) * c), table)
            g = (mixes[c, U(0)] >> U(40)) & (n_turns - U(1))
            following[c], firsts[g] = firsts[g], c
    for g in range(n_turns):
        fewest, best = words.shape[0], U(0)
        for turn in range(U(256)):
            taken, c = 0, firsts[g]
            while c >= 0 and taken < fewest:
                taken += held[(mixes[c, 0] ^ turn) & mask] >= 0
                c = following[c]
            if taken < fewest:
                fewest, best = taken, turn
            if fewest == 0:
                break
        turns[g] = best
        c = firsts[g]
        while c >= 0:
            place = (mixes[c, 0] ^ best) & mask
            if held[place] < 0:
                held[place] = c
            c = following[c]
    places = eights_at(table, PLACES, 2 * held.size)
    for place in range(U(held.size)):
        c = held[place]
        if c < 0:  # the one text that would be found there, if it is one, has too many bytes
            a, b = place ^ U(turns[0]), U(0)
            while unmixed(a, b, table)[1] >> U(56) < U(SHORT):
                b += U(1)
        else:
            a, b = mixes[c, 0] ^ U(c), mixes[c, 1]
        places[U(2) * place], places[U(2) * place + U(1)] = a, b


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
