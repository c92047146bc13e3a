"""Codes of texts by a hash table of their bytes.

The table is open addressing with linear probing, at most two thirds full. A slot is one word: the
upper half of the text's hash, of which the leading bits are its place, and its code + 1; 0 is
free. So a larger table is written in the order of the smaller one, without looking at a text. What
a slot promises is confirmed by comparing all bytes.

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
from numba.extending import register_jitable
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import instruction
from fastbayes.kernels.compiled.simd.vector import prefetch
from fastbayes.kernels.dispatch import interpreted, kernel, numpy_twin, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U
from fastbayes.kernels.shared.texts import SPARE, UNSEEN, Texts, TextTable

# Slots of a table to begin with: half a KiB, small where there are thousands of columns.
SLOTS = 64
# Slots of a table that stays in the second-level cache.
NEAR = 1 << 15
# Rows of one step: what is asked for ahead.
STEP = 64
# Odd, so that no product with one loses a bit.
_SECRETS = readonly(np.frombuffer(os.urandom(24), np.uint64) | U(1))
# The bytes of the first and the second word that belong to a text of so many bytes.
_FIRST = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(17)], np.uint64)
_SECOND = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(17)], np.uint64)
_WIDE = ir.IntType(128)

SIGNATURES = {
    "number": [
        (
            *(reads("int64"), reads("uint8"), reads("uint64"), "uint8", "uint64"),
            *(writes("uint64"), writes("int32"), writes("uint8"), writes("uint64")),
            *(writes("int64"), writes("uint32")),
        )
    ],
    "widen": [(reads("uint64"), "uint64", writes("uint64"))],
}


def indexed(table: TextTable) -> TextTable:
    """Return a table in which texts can be found."""
    if interpreted():  # without the compiler there are no words at an address
        twin: TextTable = numpy_twin("texts").indexed(table)
        return twin
    if len(table.slots):
        return table
    bits = max(SLOTS, 2 * table.n_texts + 1).bit_length() - 1
    codes = np.full(table.n_texts, UNSEEN)
    known = Texts(table.offsets[: table.n_texts + 1].astype(np.int64), table.data)
    fresh = TextTable(table.offsets, table.data, 0, _free(1 << bits), table.codes)
    # The texts are written over themselves.
    return add_texts(fresh, known, codes)


def find_texts(table: TextTable, texts: Texts, codes: NDArray[np.uint32]) -> bool:
    """Write the codes of texts that are known; return whether all are.

    table  IN      from `indexed`
    codes  IN OUT  (n,) uint32   only rows that are UNSEEN are looked for, and stay so if unknown
    """
    if interpreted():
        return bool(numpy_twin("texts").find_texts(table, texts, codes))
    texts, state = texts.with_spare(), np.array([0, table.n_texts, 0])
    _number(table, texts, False, state, codes)
    return not state[2]


def add_texts(table: TextTable, texts: Texts, codes: NDArray[np.uint32]) -> TextTable:
    """Write the codes of texts, new ones after those known; return the larger table.

    One thread at a time; others may look texts up in `table` meanwhile. Room is at least doubled
    where it is short, so the cost is linear in the texts.

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
        if 3 * (count + 1) > 2 * len(table.slots):
            larger = _free(4 * len(table.slots))
            widen(readonly(table.slots), _shift(larger), larger)
            table = table._replace(slots=larger)


def _number(
    table: TextTable,
    texts: Texts,
    adding: bool,
    state: NDArray[np.int64],
    codes: NDArray[np.uint32],
) -> None:
    given = readonly(texts.offsets), readonly(texts.data), _SECRETS
    held = table.slots, table.offsets, table.data
    number(*given, np.uint8(adding), _shift(table.slots), *held, np.empty(STEP, U), state, codes)


def _free(n: int) -> NDArray[np.uint64]:
    """Return so many free slots, in large pages where the system has them: np.zeros would not."""
    slots = np.empty(n, U)
    slots.fill(0)
    return slots


def _shift(slots: NDArray[np.uint64]) -> np.uint64:
    """Return the bits of a hash behind those that tell its place."""
    return U(64 - (len(slots).bit_length() - 1))


@instruction(lambda x, start: types.uint64(x, types.uint64))
def _word(block, x, start):
    """Return the eight bytes from one on."""
    return to.load_at(block, x.data, start, to.I64, 1)


@instruction(lambda a, b: types.uint64(types.uint64, types.uint64))
def _fold(block, a, b):
    """Return the upper half of a product, exclusive-or the lower half."""
    product = block.mul(block.zext(a, _WIDE), block.zext(b, _WIDE))
    upper = block.lshr(product, ir.Constant(_WIDE, 64))
    return block.trunc(block.xor(product, upper), to.I64)


@register_jitable
def _words(data, start, n):
    """Return up to 16 bytes as two words; 16 are read."""
    return _word(data, start) & _FIRST[n], _word(data, start + U(8)) & _SECOND[n]


@register_jitable
def _hash_long(data, start, n, secrets):
    """Return the hash of more than 16 bytes; the last 16 are a pair whatever the length."""
    h = secrets[2] ^ n
    k = U(0)
    while k + U(16) < n:
        h = _fold(
            _word(data, start + k) ^ secrets[0] ^ h, _word(data, start + k + U(8)) ^ secrets[1]
        )
        k += U(16)
    k = start + n - U(16)
    return _fold(_word(data, k) ^ secrets[0] ^ h, _word(data, k + U(8)) ^ secrets[1])


@register_jitable
def _equal(x, i, y, j, n):
    """Return whether n bytes are the same; 16 are read of either."""
    if n <= U(16):
        return _words(x, i, n) == _words(y, j, n)
    k = U(0)
    while k + U(8) < n:
        if _word(x, i + k) != _word(y, j + k):
            return False
        k += U(8)
    k = n - U(8)
    return _word(x, i + k) == _word(y, j + k)


@register_jitable
def _hash(texts, data, r, secrets):
    """Return the hash of a text."""
    begin = U(texts[r])
    n = U(texts[r + U(1)]) - begin
    if n > U(16):
        return _hash_long(data, begin, n, secrets)
    a, b = _words(data, begin, n)
    return _fold(a ^ secrets[0], b ^ secrets[1] ^ (n << U(56)))


@kernel
def number(texts, data, secrets, adding, shift, slots, offsets, known, hashes, state, codes):
    """Find texts in a table, and add those that are not there if asked to.

    Adding stops before the row for which there is no room.

    texts    IN      (n + 1,) int64   where each text begins in data; the next one is its end
    data     IN      (n_bytes + SPARE,) uint8
    secrets  IN      (3,) uint64
    adding   IN      uint8   0 or 1
    shift    IN      uint64   64 less the bits of a place
    slots    IN OUT  (2^bits,) uint64   upper half of the hash, code + 1; 0 where free
    offsets  IN OUT  (room + 1,) int32   where each known text begins in known
    known    IN OUT  (room + SPARE,) uint8
    hashes   OUT     (rows of one step,) uint64   scratch
    state    IN OUT  (3,) int64   row to go on from, known texts, texts that were not found
    codes    IN OUT  (n,) uint32   only rows that are UNSEEN are looked for
    """
    mask, count = U(slots.size - 1), U(state[1])
    room = min(U(offsets.size - 1), U(2 * slots.size // 3))
    far = slots.size > NEAR
    full = False
    while U(state[0]) < U(codes.size) and not full:
        start = U(state[0])
        stop = min(start + U(hashes.size), U(codes.size))
        # Places of a large table are asked for first, so that they come together.
        for r in range(start, stop):
            if codes[U(r)] == UNSEEN:
                h = _hash(texts, data, U(r), secrets)
                hashes[U(r) - start] = h
                if far:
                    prefetch(slots, h >> shift)
        if far:
            for r in range(start, stop):
                if codes[U(r)] == UNSEEN:
                    slot = slots[hashes[U(r) - start] >> shift]
                    if slot != U(0):
                        prefetch(offsets, (slot & U(0xFFFFFFFF)) - U(1))
            for r in range(start, stop):
                if codes[U(r)] == UNSEEN:
                    slot = slots[hashes[U(r) - start] >> shift]
                    c = (slot & U(0xFFFFFFFF)) - U(1)
                    if slot != U(0) and c < count:
                        prefetch(known, U(offsets[c]))
        r = start
        while r < stop:
            if codes[r] != UNSEEN:
                r += U(1)
                continue
            begin = U(texts[r])
            n = U(texts[r + U(1)]) - begin
            h = hashes[r - start]
            place, half = h >> shift, h >> U(32)
            code = UNSEEN
            while True:
                slot = slots[place]
                if slot == U(0):
                    break
                c = (slot & U(0xFFFFFFFF)) - U(1)
                if slot >> U(32) == half and c < count:
                    first = U(offsets[c])
                    if U(offsets[c + U(1)]) - first == n and _equal(data, begin, known, first, n):
                        code = np.uint32(c)
                        break
                place = (place + U(1)) & mask
            if code != UNSEEN:
                codes[r] = code
            elif adding:
                first = U(offsets[count])
                full = count >= room or first + n + U(SPARE) > U(known.size)
                if full:
                    break
                for k in range(n):
                    known[first + U(k)] = data[begin + U(k)]
                offsets[count + U(1)] = first + n
                codes[r] = count
                count += U(1)
                slots[place] = half << U(32) | count
            else:
                state[2] += 1
            r += U(1)
        state[0] = r
    state[1] = count


@kernel
def widen(slots, shift, larger):
    """Copy the slots of a table to a larger one.

    slots   IN   (2^bits,) uint64
    shift   IN   uint64   64 less the bits of a place in the larger one
    larger  OUT  (2^more,) uint64   zeros
    """
    mask = U(larger.size - 1)
    for i in range(slots.size):
        if slots[i] != U(0):
            place = (slots[i] & U(0xFFFFFFFF00000000)) >> shift
            while larger[place] != U(0):
                place = (place + U(1)) & mask
            larger[place] = slots[i]
