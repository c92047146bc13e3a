"""Bit rows inside kernels: make them from codes, split them by class, count where two meet.

Loads are unaligned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import Block, instruction, pointer_to
from fastbayes.kernels.dispatch import helper

# Words of 64 bits in one vector: what bit rows are padded to.
LANES = vector.WIDTH // 8
# Bit rows on either side of a block whose meetings are counted at once, in registers. With 16
# vector registers instead of 32 some sums spill, which measured no slower than smaller blocks.
BLOCK = 4

_CODES = ir.VectorType(to.BYTE, 64)
_WORDS = ir.VectorType(to.I64, LANES)


def _extracts() -> tuple[bool, bool]:
    """Return whether the processor has an instruction for `extract`, and a fast one."""
    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    there = "+bmi2" in features
    # AMD had it in microcode before Zen 3: up to 300 cycles.
    return there, there and name not in ("bdver4", "znver1", "znver2")


HAS_EXTRACT, FAST_EXTRACT = _extracts() if vector.AVAILABLE else (False, False)


# The pointer to codes at an address, for `carray`.
codes8_at, codes16_at, codes32_at = map(pointer_to, (types.uint8, types.uint16, types.uint32))


def _word(x: Any, start: Any, byte: Any) -> Any:
    return types.uint64(x, types.uint64, types.uint8)


def _compared(block: Block, x: Any, start: Any, byte: Any) -> tuple[Any, Any]:
    """Return 64 codes, and as many copies of a byte."""
    return to.load_at(block, x.data, start, _CODES, 1), to.splat(block, byte, _CODES)


@instruction(_word)
def match(block, x, start, value):
    """Return a word whose bit r is set where x[start + r] == value.

    x  IN  (>= start + 64,) uint8
    """
    return block.bitcast(block.icmp_unsigned("==", *_compared(block, x, start, value)), to.I64)


@instruction(_word)
def plane(block, x, start, bit):
    """Return a word whose bit r is set where x[start + r] has bits under the mask `bit`.

    x  IN  (>= start + 64,) uint8
    """
    masked = block.and_(*_compared(block, x, start, bit))
    return block.bitcast(block.icmp_unsigned("!=", masked, to.constant(_CODES, 0)), to.I64)


def _mask(block: Block, word: Any) -> Any:
    """Return the bits of a word, one in each of 64 lanes."""
    return block.bitcast(word, ir.VectorType(ir.IntType(1), 64))


@instruction(lambda word, out, start: types.void(types.uint64, out, types.uint64))
def put_bits(block, word, out, start):
    """Write the bits of a word as numbers: out[start + r] = bit r.

    out  OUT  (>= start + 64,) unsigned integers
    """
    lanes = ir.VectorType(out.data.type.pointee, 64)
    to.store_at(block, block.zext(_mask(block, word), lanes), out.data, start, 1)


@instruction(lambda word, out, start, other: types.void(types.uint64, out, types.uint64, other))
def keep_where(block, word, out, start, other):
    """Replace numbers where a bit is not set: out[start + r] = other.

    out    OUT  (>= start + 64,) unsigned integers
    other  IN   of the same type
    """
    lanes = ir.VectorType(out.data.type.pointee, 64)
    held = to.load_at(block, out.data, start, lanes, 1)
    chosen = block.select(_mask(block, word), held, to.splat(block, other, lanes))
    to.store_at(block, chosen, out.data, start, 1)


@helper
def word_at(bitmap, bit):
    """Return the 64 bits from one on; those beyond the bitmap are not set."""
    first, by, word = bit >> 3, np.uint64(bit & 7), np.uint64(0)
    for k in range(min(8, bitmap.size - first)):
        word |= np.uint64(bitmap[first + k]) << np.uint64(8 * k)
    word >>= by
    if by and first + 8 < bitmap.size:
        word |= np.uint64(bitmap[first + 8]) << (np.uint64(64) - by)
    return word


@instruction(lambda x, n, bits, out: types.void(x, types.int64, types.uint8, out))
def shift_in(block, x, n, bits, out):
    """Shift bytes left and put codes of so many bits in: out[r] = out[r] << bits | x[r], bits < 8.

    x    IN   (n,) uint8   n is a multiple of 64
    out  OUT  (n,) uint8
    """
    by = to.splat(block, bits, _CODES)
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(64)) as (r, _):
        new, old = (to.load_at(block, array.data, r, _CODES, 1) for array in (x, out))
        to.store_at(block, block.or_(block.shl(old, by), new), out.data, r, 1)


@instruction(lambda word: types.uint64(types.uint64))
def popcount(block, word):
    """Return the number of bits set."""
    return block.ctpop(word)


@instruction(lambda word, mask: types.uint64(types.uint64, types.uint64))
def _extract(block, word, mask):
    return to.call(block, "llvm.x86.bmi.pext.64", to.I64, word, mask)


@helper
def _extract_slowly(word, mask):
    result, bit, one = np.uint64(0), np.uint64(1), np.uint64(1)
    while mask:
        lowest = mask & (~mask + one)
        if word & lowest:
            result |= bit
        bit <<= one
        mask ^= lowest
    return result


# Returns the bits of a word under a mask, side by side from the lowest on.
extract = _extract if HAS_EXTRACT else _extract_slowly


@instruction(lambda word, mask: types.uint64(types.uint64, types.uint64))
def deposit(block, word, mask):
    """Return the lowest bits of a word at the places of a mask, where FAST_EXTRACT."""
    return to.call(block, "llvm.x86.bmi.pdep.64", to.I64, word, mask)


@helper
def _spread_fast(word, mask, width, lanes):
    return deposit(word, mask)


@helper
def _spread_slowly(word, mask, width, lanes):
    result = np.uint64(0)
    for k in range(np.uint64(lanes)):
        lane = np.uint64(64) // np.uint64(lanes) * k
        result |= (word >> k * width) << lane & (
            mask & ~np.uint64(0) >> (np.uint64(64) - width)
        ) << lane
    return result


# Returns `lanes` numbers of `width` bits each, of a word from the lowest bit on, in lanes of
# 64 / lanes bits; `mask` has the bits that are taken in each lane.
spread = _spread_fast if FAST_EXTRACT else _spread_slowly


@helper
def values_of_planes(planes, n_planes, last, first, words, out):
    """Make one bit row of each number from 1 to `last` out of the planes of its bits.

    Zeros in all planes are the number 0, which has no row: so are rows of data that are none.

    planes  IN   (> n_planes, >= words) uint64   plane k holds bit k; the last row is scratch
    out     OUT  (n_rows, >= words) uint64   row first + v - 1 is that of number v
    """
    low, high, plane = planes[planes.shape[0] - 1], out[first], planes[0]
    for w in range(words):
        low[w], high[w] = ~plane[w], plane[w]
    for k in range(1, n_planes):
        plane, step = planes[k], 1 << k
        for v in range(min(step, last + 1 - step)):
            low = planes[planes.shape[0] - 1] if v == 0 else out[first + v - 1]
            high = out[first + v + step - 1]
            for w in range(words):
                high[w] = low[w] & plane[w]
                low[w] ^= high[w]


@instruction(
    lambda bits, a, b, stride, n, out, cell, width, step: types.void(
        bits, *[types.int64] * 4, out, *[types.int64] * 3
    )
)
def count_meetings(block, bits, a, b, stride, n, out, cell, width, step):
    """Count the bits that are set in both of two bit rows, for BLOCK rows by BLOCK rows.

    out[cell + (s * width + t) * step] = bits set in both bits[a + s * stride + w] and
    bits[b + t * stride + w], w < n; n is a multiple of LANES.

    bits  IN   flat uint64
    out   OUT  flat int32
    """
    rows, columns = (
        [block.add(start, block.mul(stride, to.I64(t))) for t in range(BLOCK)] for start in (a, b)
    )
    totals = [to.variables(block, _WORDS, BLOCK) for _ in rows]
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(LANES)) as (w, _):

        def load(start: Any) -> Any:
            return to.load_at(block, bits.data, block.add(start, w), _WORDS)

        left = [load(row) for row in rows]
        for t, column in enumerate(columns):
            right = load(column)
            for s, word in enumerate(left):
                both = block.and_(word, right)
                count = to.call(block, f"llvm.ctpop.v{LANES}i64", _WORDS, both)
                block.store(block.add(block.load(totals[s][t]), count), totals[s][t])
    for s in range(BLOCK):
        for t in range(BLOCK):
            name = f"llvm.vector.reduce.add.v{LANES}i64"
            total = to.call(block, name, to.I64, block.load(totals[s][t]))
            place = block.add(block.mul(width, to.I64(s)), to.I64(t))
            place = block.add(cell, block.mul(place, step))
            block.store(block.trunc(total, to.I32), block.gep(out.data, [place]))
