"""Short texts as 16 bytes, mixed so that any bits of them tell where to look for a text.

A text of at most 15 bytes is its bytes, zeros behind them, and their number in the last one. What
mixes these is a bijection: who knows where a mixed text was found, by some of its bits, need not
keep these bits to tell it from any other text. In their place there is room for a code.

What is needed for this lies together, so that one address is enough: masks that cut a text off,
lengths under a secret, the secrets of two rounds, turns, and places of 16 bytes each.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import instruction
from fastbayes.kernels.compiled.simd.unaligned import place_in
from fastbayes.kernels.dispatch import helper

# A text is short if it has less bytes.
SHORT = 16
# Bytes up to what lies in a table of short texts. Turns have as much room as they may ever need:
# places begin at the same byte in all tables.
_MASKS, _LENGTHS, _ROUNDS, TURNS = 0, 16 * SHORT, 32 * SHORT, 32 * SHORT + 64
MOST_TURNS = 1 << 15
PLACES = TURNS + MOST_TURNS

_TWO = ir.VectorType(to.I64, 2)
_WIDE = ir.IntType(128)


def _has_rounds() -> bool:
    """Return whether the processor has instructions for the rounds of AES."""
    features = cpu_target.target_context.codegen().magic_tuple()[2]
    return "+aes" in features and "+sse2" in features


HAS_ROUNDS = vector.AVAILABLE and _has_rounds()


def _header() -> NDArray[np.uint8]:
    """Return the masks, lengths and secrets."""
    held = np.zeros(TURNS, np.uint8)
    masks, lengths = held[: 32 * SHORT].reshape(2, SHORT, 16)
    lengths[:] = np.frombuffer(os.urandom(16), np.uint8)
    for n in range(SHORT):
        masks[n, :n] = 255
        lengths[n, 15] ^= n
    held[_ROUNDS:] = np.frombuffer(os.urandom(TURNS - _ROUNDS), np.uint8)
    return held


_HEADER = _header()


def in_lines(n: int, kind: Any) -> NDArray[Any]:
    """Return room for n numbers that begins a line of the cache.

    It lies in large pages where the system has them: np.zeros would not.
    """
    size = np.dtype(kind).itemsize
    held = np.empty(n + 64 // size, kind)
    first = -(held.__array_interface__["data"][0] // size) % (64 // size)
    return held[first : first + n]


def table_of(n_places: int) -> NDArray[np.uint64]:
    """Return a table for short texts which has so many places, that begins a line of the cache."""
    table = in_lines((PLACES + 16 * n_places) // 8, np.uint64)
    table[: TURNS // 8] = _HEADER.view(np.uint64)
    return table


def folded(block, a, b):
    """Return the upper half of a product, exclusive-or the lower half."""
    product = block.mul(block.zext(a, _WIDE), block.zext(b, _WIDE))
    upper = block.lshr(product, ir.Constant(_WIDE, 64))
    return block.trunc(block.xor(product, upper), to.I64)


def _load(block, address, offset=0):
    """Return 16 bytes."""
    place = block.inttoptr(block.add(address, to.I64(offset)), _TWO.as_pointer())
    return block.load(place, align=1)


def _secrets(block, table):
    """Return those of the two rounds."""
    return [_load(block, table, _ROUNDS + 16 * k) for k in range(2)]


def _halves(block, text):
    return [block.extract_element(text, to.I32(k)) for k in range(2)]


def _whole(block, a, b):
    text = block.insert_element(ir.Constant(_TWO, ir.Undefined), a, to.I32(0))
    return block.insert_element(text, b, to.I32(1))


def _scrambled(block, half, secret):
    mask, factor = _halves(block, secret)
    return folded(block, block.xor(half, mask), block.or_(factor, to.I64(1)))


def _mixed(block, text, table):
    """Return a text of 16 bytes, under its secret, mixed by two rounds.

    These are AES's, or of a Feistel network where the processor has none.
    """
    if HAS_ROUNDS:
        for secret in _secrets(block, table):
            text = to.call(block, "llvm.x86.aesni.aesenc", _TWO, text, secret)
        return text
    a, b = _halves(block, text)
    for secret in _secrets(block, table):
        a, b = block.xor(b, _scrambled(block, a, secret)), a
    return _whole(block, a, b)


def _unmixed(block, text, table):
    """Undo what `_mixed` does."""
    if HAS_ROUNDS:
        for secret in reversed(_secrets(block, table)):
            text = to.call(block, "llvm.x86.aesni.aesimc", _TWO, block.xor(text, secret))
            none = to.constant(_TWO, 0)
            text = to.call(block, "llvm.x86.aesni.aesdeclast", _TWO, text, none)
        return text
    a, b = _halves(block, text)
    for secret in reversed(_secrets(block, table)):
        a, b = b, block.xor(a, _scrambled(block, b, secret))
    return _whole(block, a, b)


@instruction(lambda text, table: types.UniTuple(types.uint64, 2)(types.int64, types.int64))
def _mixed_words(block, text, table):
    text = block.xor(_load(block, text), _load(block, table, _LENGTHS))
    mixed = _mixed(block, text, table)
    return _halves(block, mixed)


@instruction(
    lambda a, b, table: types.UniTuple(types.uint64, 2)(types.uint64, types.uint64, types.int64)
)
def _unmixed_words(block, a, b, table):
    text = _unmixed(block, _whole(block, a, b), table)
    return _halves(block, block.xor(text, _load(block, table, _LENGTHS)))


@instruction(
    lambda text, n, table, mask: types.UniTuple(types.uint64, 2)(
        types.int64, types.uint64, types.int64, types.uint64
    )
)
def _recalled(block, text, n, table, mask):
    own = block.add(table, block.shl(n, to.I64(4)))
    text = block.xor(
        block.and_(_load(block, text), _load(block, own, _MASKS)), _load(block, own, _LENGTHS)
    )
    mixed = _mixed(block, text, table)
    word = block.extract_element(mixed, to.I32(0))
    place = _place(block, word, table, mask)
    found = block.xor(mixed, _load(block, block.add(table, block.shl(place, to.I64(4))), PLACES))
    # As so many bytes, of which LLVM asks at once.
    lanes = ir.VectorType(to.BYTE, 16)
    other = block.insert_element(ir.Constant(_TWO, [0, -1]), block.not_(mask), to.I32(0))
    other = block.bitcast(block.and_(found, other), lanes)
    differs = block.icmp_unsigned("!=", other, to.constant(lanes, 0))
    differs = block.zext(block.bitcast(differs, to.I16), to.I64)
    return [differs, block.extract_element(found, to.I32(0))]


def _place(block, word, table, mask):
    """Return the place of a text by the first word of what it was mixed to."""
    group = block.and_(block.lshr(word, to.I64(40)), block.lshr(mask, to.I64(2)))
    turn = block.inttoptr(block.add(block.add(table, group), to.I64(TURNS)), to.BYTE.as_pointer())
    turned = block.xor(word, block.zext(block.load(turn), to.I64))
    return block.and_(turned, mask)


@helper
def mixed(words, i, table):
    """Return the two words to which a short text was mixed that stands from byte i of a span on.

    There it has 16 bytes, of which the last one is its length.
    """
    return _mixed_words(place_in(words, i, 16), place_in(table, 0, PLACES))


@helper
def recalled(data, begin, n, table, mask):
    """Return 0 if a text of n < SHORT bytes is at its place, and its code there.

    Places are mask + 1, of 16 bytes each: the two words of a mixed text, of which the first is
    exclusive-or the code, which is not greater than the mask.
    """
    at = place_in(table, 0, PLACES + 16 * (np.int64(mask) + 1))
    return _recalled(place_in(data, begin, 16), n, at, mask)


@helper
def unmixed(a, b, table):
    """Return the two words of which `mixed` makes these."""
    return _unmixed_words(a, b, place_in(table, 0, PLACES))
