"""The order of many texts, by bytes.

The first words of all texts, as numbers that compare like their bytes, are narrowed to the bits in
which they differ: four of each decimal digit, none of what all have in common. So a few words are
one key of 64 bits, which a radix sort puts in order. Texts with equal keys are sorted by their next
words, and at last by their lengths, in which those differ that end in different numbers of zeros.
"""

from __future__ import annotations

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import instruction
from fastbayes.kernels.compiled.simd.unaligned import copy, copy_16, span_of, word
from fastbayes.kernels.compiled.simd.vector import prefetch
from fastbayes.kernels.dispatch import interpreted, kernel, numpy_twin, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U
from fastbayes.kernels.shared.texts import SPARE, Texts

# Bits of one pass of sorting: as many places as the first-level cache holds.
DIGIT = 11
# Rows of one step: the words of a step stay in the first-level cache.
STEP = 1024
# Rows asked for ahead.
AHEAD = 16

_OFFSETS, _DATA, _ROWS = reads("int32"), reads("uint8"), reads("uint32")

SIGNATURES = {
    "words_of": [(_OFFSETS, _DATA, _ROWS, "int64", writes("uint64"), writes("uint64"))],
    "append_bits": [(reads("uint64"), reads("uint64", 2), "uint64", writes("uint64"))],
    "sort_by_digit": [
        (
            *(reads("uint64"), _ROWS, "uint64", writes("int64")),
            *(writes("uint64"), writes("uint32")),
        )
    ],
    "copy_texts": [(_OFFSETS, _DATA, _ROWS, writes("int32"), writes("uint8"))],
}


def ascending_texts(
    offsets: NDArray[np.signedinteger], data: NDArray[np.uint8]
) -> NDArray[np.uint32]:
    """Return the places that sort strings side by side; see the numpy twin."""
    if interpreted():  # without the compiler there are no words at an address
        found: NDArray[np.uint32] = numpy_twin("reading.order").ascending_texts(offsets, data)
        return found
    offsets, data = _given(offsets, data)
    order = np.arange(len(offsets) - 1, dtype=np.uint32)
    longest = int(np.diff(offsets).max(initial=0))
    n_words, at = -(-longest // 8), 0
    # Rows still in doubt, their places in the order, and which are equal so far.
    rows, places, group = order, None, None
    while len(rows) and at <= n_words:
        keys, n_bits, at = _keys(offsets, data, rows, at, n_words)
        if group is None and not (keys[1:] < keys[:-1]).any():
            pass
        elif group is None:
            keys, order = _sorted(keys, order, n_bits)
            rows = order
        else:
            _, by = _sorted(keys.copy(), np.arange(len(rows), dtype=np.uint32), n_bits)
            _, by = _sorted(group[by], by, int(group[-1]).bit_length())
            keys, rows = keys[by], rows[by]
            order[places] = rows
        equal = keys[1:] == keys[:-1]
        if group is not None:
            equal &= group[1:] == group[:-1]
        doubt = np.append(equal, False)
        doubt[1:] |= equal
        kept = np.flatnonzero(doubt)
        begins = np.append(True, ~equal)[kept]
        rows, places = rows[kept], kept if places is None else places[kept]
        group = np.cumsum(begins).astype(np.uint64) - U(1)
    return order


def take_texts(
    offsets: NDArray[np.signedinteger], data: NDArray[np.uint8], order: NDArray[np.uint32]
) -> tuple[NDArray[np.signedinteger], NDArray[np.uint8]]:
    """Return strings side by side in another order; see the numpy twin."""
    if interpreted():
        twin = numpy_twin("reading.order").take_texts(offsets, data, order)
        return twin[0], twin[1]
    offsets, data = _given(offsets, data)
    taken = np.empty(len(order) + 1, np.int32)
    out = np.empty(int(offsets[-1] - offsets[0]) + SPARE, np.uint8)
    copy_texts(offsets, data, readonly(order), taken, out)
    return taken, out[: int(taken[-1])]


def _given(
    offsets: NDArray[np.signedinteger], data: NDArray[np.uint8]
) -> tuple[NDArray[np.signedinteger], NDArray[np.uint8]]:
    texts = Texts(offsets, data).with_spare()
    return readonly(texts.offsets.astype(np.int32, copy=False)), readonly(texts.data)


def _keys(
    offsets: NDArray[np.signedinteger],
    data: NDArray[np.uint8],
    rows: NDArray[np.uint32],
    at: int,
    n_words: int,
) -> tuple[NDArray[np.uint64], int, int]:
    """Return keys of the next words from one on, their bits, and the word that has no room.

    The last word, after all that hold bytes, is the length.
    """
    keys, words = np.zeros(len(rows), U), np.empty(len(rows), U)
    differ, n_bits = np.zeros(1, U), 0
    while at <= n_words:
        words_of(offsets, data, readonly(rows), at if at < n_words else -1, words, differ)
        runs, more = _runs(int(differ[0]))
        if n_bits + more > 64:
            break
        if more:
            append_bits(readonly(words), readonly(runs), U(more), keys)
        n_bits, at = n_bits + more, at + 1
    return keys, n_bits, at


def _runs(bits: int) -> tuple[NDArray[np.uint64], int]:
    """Return (by how much to shift, which bits to keep) of runs of bits, and how many there are.

    Shifted so, they stand side by side.
    """
    runs, n_bits, place = [], 0, 0
    while bits >> place:
        rest = bits >> place
        place += (rest & -rest).bit_length() - 1
        run = (~(bits >> place) & ((bits >> place) + 1)).bit_length() - 1
        runs.append((place - n_bits, ((1 << run) - 1) << n_bits))
        n_bits, place = n_bits + run, place + run
    return np.array(runs, U).reshape(-1, 2), n_bits


def _sorted(
    keys: NDArray[np.uint64], rows: NDArray[np.uint32], n_bits: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Return keys in ascending order and their rows; what is given is used up."""
    passes = -(-n_bits // DIGIT)
    width = -(-n_bits // max(passes, 1))
    spare, others = np.empty_like(keys), np.empty_like(rows)
    places = np.empty((1 << width) + 1, np.int64)
    for turn in range(passes):
        sort_by_digit(readonly(keys), readonly(rows), U(turn * width), places, spare, others)
        keys, rows, spare, others = spare, others, keys, rows
    return keys, rows


@instruction(lambda number: types.uint64(types.uint64))
def _turned(block, number):
    """Return a number whose bytes are in the opposite order."""
    return to.call(block, "llvm.bswap.i64", to.I64, number)


@kernel
def words_of(offsets, data, rows, which, words, differ):
    """Write one word of each text, as a number that compares like its bytes.

    offsets  IN   (n + 1,) int32   where each text begins in data; the next one is its end
    data     IN   (n_bytes + SPARE,) uint8
    rows     IN   (m,) uint32
    which    IN   int64   number of the word; behind the end of a text it is 0. -1: the length
    words    OUT  (m,) uint64
    differ   OUT  (1,) uint64   bits that are not the same in all of them
    """
    span = span_of(data)
    common, every = ~U(0), U(0)
    for r in range(U(rows.size)):
        begin, end = np.int64(offsets[U(rows[r])]), np.int64(offsets[U(rows[r]) + U(1)])
        w = U(end - begin)
        if which >= 0:
            left = end - begin - 8 * which
            w = U(0)
            if left > 0:
                w = _turned(word(span, begin + 8 * which))
                if left < 8:
                    beyond = U(64 - 8 * left)
                    w = w >> beyond << beyond
        words[r] = w
        common &= w
        every |= w
    differ[0] = common ^ every


@kernel
def append_bits(words, runs, n_bits, keys):
    """Append some bits of words to keys.

    words   IN      (n,) uint64
    runs    IN      (n_runs, 2) uint64   by how much to shift a word, which bits to keep then
    n_bits  IN      uint64   bits of all runs, 1 at least
    keys    IN OUT  (n,) uint64
    """
    for start in range(0, words.size, STEP):
        some, out = words[start : start + STEP], keys[start : start + STEP]
        for r in range(some.size):
            out[r] = out[r] << U(1) << (n_bits - U(1))
        for i in range(runs.shape[0]):
            shift, mask = runs[i, 0], runs[i, 1]
            for r in range(some.size):
                out[r] |= some[r] >> shift & mask


@kernel
def sort_by_digit(keys, rows, shift, places, keys_out, rows_out):
    """Sort keys by some of their bits, those that are equal in these as they come.

    keys      IN   (n,) uint64
    rows      IN   (n,) uint32
    shift     IN   uint64   bits below
    places    OUT  (2^bits + 1,) int64   scratch
    keys_out  OUT  (n,) uint64
    rows_out  OUT  (n,) uint32
    """
    mask = U(places.size - 2)
    for i in range(places.size):
        places[i] = 0
    for r in range(U(keys.size)):
        places[(keys[r] >> shift & mask) + U(1)] += 1
    for i in range(1, places.size):
        places[i] += places[i - 1]
    for r in range(U(keys.size)):
        digit = keys[r] >> shift & mask
        at = U(places[digit])
        places[digit] += 1
        keys_out[at], rows_out[at] = keys[r], rows[r]


@kernel
def copy_texts(offsets, data, rows, taken, out):
    """Copy texts in another order.

    offsets  IN   (n + 1,) int32
    data     IN   (n_bytes + SPARE,) uint8
    rows     IN   (m,) uint32
    taken    OUT  (m + 1,) int32   where each text begins in out; the next one is its end
    out      OUT  (bytes of these texts + SPARE,) uint8
    """
    x, y, at = span_of(data), span_of(out), np.int64(0)
    taken[0] = 0
    last = U(rows.size - 1)
    for r in range(U(rows.size)):
        prefetch(offsets, U(rows[min(r + U(2 * AHEAD), last)]))
        prefetch(data, U(offsets[U(rows[min(r + U(AHEAD), last)])]))
        begin = np.int64(offsets[U(rows[r])])
        n = np.int64(offsets[U(rows[r]) + U(1)]) - begin
        if n <= 16:
            copy_16(x, begin, y, at)
        else:
            copy(x, begin, y, at, n)
        at += n
        taken[r + U(1)] = at
