"""Bit rows inside kernels: make them from codes, split them by class, count where two meet.

Plain LLVM IR, so that any processor can run it. Loads are unaligned and unchecked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic, register_jitable

from fastbayes.kernels.compiled import vector

# Words of 64 bits in one vector: what bit rows are padded to.
LANES = vector.WIDTH // 8
# Bit rows on either side of a block whose meetings are counted at once, in registers. With 16
# vector registers instead of 32 some sums spill, which measured no slower than smaller blocks.
BLOCK = 4

_BYTE, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_CODES = ir.VectorType(_BYTE, 64)
_WORDS = ir.VectorType(_I64, LANES)


def _extracts() -> tuple[bool, bool]:
    """Return whether the processor has an instruction for `extract`, and a fast one."""
    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    there = "+bmi2" in features
    # AMD had it in microcode before Zen 3: up to 300 cycles.
    return there, there and name not in ("bdver4", "znver1", "znver2")


HAS_EXTRACT, FAST_EXTRACT = _extracts() if vector.AVAILABLE else (False, False)


def _pointer_at(target: types.Type) -> Any:
    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(target)(types.uint64), generate

    return pointer


# The pointer to codes at an address, for `carray`.
codes8_at = _pointer_at(types.uint8)
codes16_at = _pointer_at(types.uint16)
codes32_at = _pointer_at(types.uint32)


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _splat(builder: Any, byte: Any) -> Any:
    empty = ir.Constant(_CODES, ir.Undefined)
    first = builder.insert_element(empty, byte, _I32(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_I32, 64), [0] * 64))


@intrinsic
def match(typing: Any, x: Any, start: Any, value: Any) -> Any:
    """Return a word whose bit r is set where x[start + r] == value.

    x  IN  (>= start + 64,) uint8
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]])
        codes = builder.load(builder.bitcast(place, _CODES.as_pointer()), align=1)
        equal = builder.icmp_unsigned("==", codes, _splat(builder, args[2]))
        return builder.bitcast(equal, _I64)

    return types.uint64(x, types.uint64, types.uint8), generate


@intrinsic
def plane(typing: Any, x: Any, start: Any, bit: Any) -> Any:
    """Return a word whose bit r is set where x[start + r] has bits under the mask `bit`.

    x  IN  (>= start + 64,) uint8
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]])
        codes = builder.load(builder.bitcast(place, _CODES.as_pointer()), align=1)
        masked = builder.and_(codes, _splat(builder, args[2]))
        set_ = builder.icmp_unsigned("!=", masked, ir.Constant(_CODES, [0] * 64))
        return builder.bitcast(set_, _I64)

    return types.uint64(x, types.uint64, types.uint8), generate


@intrinsic
def shift_in(typing: Any, x: Any, n: Any, bits: Any, out: Any) -> Any:
    """Shift bytes left and put codes of so many bits in: out[r] = out[r] << bits | x[r], bits < 8.

    x    IN   (n,) uint8   n is a multiple of 64
    out  OUT  (n,) uint8
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bases = [_data(context, builder, signature.args[a], args[a]) for a in (0, 3)]
        by = _splat(builder, args[2])
        with cgutils.for_range_slice(builder, _I64(0), args[1], _I64(64)) as (r, _):
            source, target = (
                builder.bitcast(builder.gep(base, [r]), _CODES.as_pointer()) for base in bases
            )
            shifted = builder.shl(builder.load(target, align=1), by)
            builder.store(builder.or_(shifted, builder.load(source, align=1)), target, align=1)
        return context.get_dummy_value()

    return types.void(x, types.int64, types.uint8, out), generate


@intrinsic
def popcount(typing: Any, word: Any) -> Any:
    """Return the number of bits set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@intrinsic
def _extract(typing: Any, word: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64, _I64])
        name = "llvm.x86.bmi.pext.64"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)

    return types.uint64(types.uint64, types.uint64), generate


@register_jitable
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


@register_jitable
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


@intrinsic
def count_meetings(
    typing: Any,
    bits: Any,
    a: Any,
    b: Any,
    stride: Any,
    n: Any,
    out: Any,
    cell: Any,
    width: Any,
    step: Any,
) -> Any:
    """Count the bits that are set in both of two bit rows, for BLOCK rows by BLOCK rows.

    out[cell + (s * width + t) * step] = bits set in both bits[a + s * stride + w] and
    bits[b + t * stride + w], w < n; n is a multiple of LANES.

    bits  IN   flat uint64
    out   OUT  flat int32
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = _data(context, builder, signature.args[0], args[0])
        rows, columns = (
            [builder.add(start, builder.mul(args[3], _I64(t))) for t in range(BLOCK)]
            for start in args[1:3]
        )
        totals = [[cgutils.alloca_once(builder, _WORDS) for _ in columns] for _ in rows]
        for total in (total for row in totals for total in row):
            builder.store(ir.Constant(_WORDS, [0] * LANES), total)

        def load(start: Any, w: Any) -> Any:
            place = builder.gep(base, [builder.add(start, w)])
            return builder.load(builder.bitcast(place, _WORDS.as_pointer()), align=8)

        ctpop = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_WORDS, [_WORDS]), f"llvm.ctpop.v{LANES}i64"
        )
        with cgutils.for_range_slice(builder, _I64(0), args[4], _I64(LANES)) as (w, _):
            left = [load(row, w) for row in rows]
            for t, column in enumerate(columns):
                right = load(column, w)
                for s, word in enumerate(left):
                    count = builder.call(ctpop, [builder.and_(word, right)])
                    builder.store(builder.add(builder.load(totals[s][t]), count), totals[s][t])
        reduce = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(_I64, [_WORDS]),
            f"llvm.vector.reduce.add.v{LANES}i64",
        )
        cells = _data(context, builder, signature.args[5], args[5])
        for s in range(BLOCK):
            for t in range(BLOCK):
                total = builder.trunc(builder.call(reduce, [builder.load(totals[s][t])]), _I32)
                place = builder.add(builder.mul(args[7], _I64(s)), _I64(t))
                place = builder.add(args[6], builder.mul(place, args[8]))
                builder.store(total, builder.gep(cells, [place]))
        return context.get_dummy_value()

    i = types.int64
    return types.void(bits, i, i, i, i, out, i, i, i), generate
