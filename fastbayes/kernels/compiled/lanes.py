"""Vectors of floats as values inside kernels: LLVM's own types, so any CPU can run them.

`width` is always a compile-time constant (a literal, a global, or a variable closed over).
Loads and stores are unaligned and unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_jitable, register_model

I32 = ir.IntType(32)


class Lanes(types.Type):
    """`width` floats of one numba type."""

    def __init__(self, dtype: types.Float, width: int) -> None:
        self.dtype = dtype
        self.width = width
        super().__init__(f"lanes({dtype} x {width})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """One LLVM vector."""

    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, _vector(kind))


def _vector(kind: Lanes) -> ir.VectorType:
    scalar = ir.DoubleType() if kind.dtype is types.float64 else ir.FloatType()
    return ir.VectorType(scalar, kind.width)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, to: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), to.as_pointer())


def _pick(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


@intrinsic(prefer_literal=True)
def load(typing: Any, array: Any, index: Any, width: Any) -> Any:
    """Return `width` neighbours of a flat array from `index` on."""
    kind = Lanes(array.dtype, width.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _vector(kind)
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1], vector)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return kind(array, types.uintp, width), code


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """Return a + b."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return a(a, a), code


@intrinsic
def mul(typing: Any, a: Any, b: Any) -> Any:
    """Return a * b."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fmul(*args)

    return a(a, a), code


@intrinsic
def widen(typing: Any, a: Any) -> Any:
    """Return the same numbers as float64."""
    wide = Lanes(types.float64, a.width)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0] if a == wide else builder.fpext(args[0], _vector(wide))

    return wide(a), code


@intrinsic(prefer_literal=True)
def zero(typing: Any, array: Any, width: Any) -> Any:
    """Return `width` zeros of the array's type."""
    kind = Lanes(array.dtype, width.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_vector(kind), [0.0] * kind.width)

    return kind(array, width), code


@intrinsic
def add_columns(
    typing: Any, out: Any, index: Any, stride: Any, a: Any, b: Any, c: Any, d: Any
) -> Any:
    """Add four vectors as columns: out[index + lane * stride + 0..3] += a, b, c, d [lane].

    `out` is float64; float32 vectors are widened.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, at, step, *vectors = args
        for row in _transposed(builder, vectors, a):
            pointer = _pointer(context, builder, signature.args[0], array, at, row.type)
            old = builder.load(pointer, align=8)
            builder.store(builder.fadd(old, row), pointer, align=8)
            at = builder.add(at, step)
        return context.get_dummy_value()

    return types.void(out, types.uintp, types.uintp, a, a, a, a), code


@intrinsic
def store_columns(
    typing: Any, out: Any, index: Any, stride: Any, a: Any, b: Any, c: Any, d: Any
) -> Any:
    """Write four vectors as columns: out[index + lane * stride + 0..3] = a, b, c, d [lane]."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, at, step, *vectors = args
        for row in _transposed(builder, vectors, a):
            pointer = _pointer(context, builder, signature.args[0], array, at, row.type)
            builder.store(row, pointer, align=8)
            at = builder.add(at, step)
        return context.get_dummy_value()

    return types.void(out, types.uintp, types.uintp, a, a, a, a), code


@intrinsic(prefer_literal=True)
def load_rows(typing: Any, array: Any, index: Any, stride: Any, width: Any) -> Any:
    """Return four vectors of which lane k is array[index + k * stride + 0..3]; width in fours."""
    kind = Lanes(array.dtype, width.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        of_four = ir.VectorType(_vector(kind).element, 4)
        at, blocks = args[1], []
        for _ in range(kind.width // 4):
            columns = []
            for _ in range(4):
                pointer = _pointer(context, builder, signature.args[0], args[0], at, of_four)
                columns.append(builder.load(pointer, align=array.dtype.bitwidth // 8))
                at = builder.add(at, args[2])
            a, b, c, d = columns
            pairs = [
                (_pick(builder, a, b, half), _pick(builder, c, d, half))
                for half in ([0, 4, 2, 6], [1, 5, 3, 7])
            ]
            blocks.append(
                [
                    _pick(builder, low, high, [k, k + 1, k + 4, k + 5])
                    for k in (0, 2)
                    for low, high in pairs
                ]
            )
        while len(blocks) > 1:
            size = list(range(2 * blocks[0][0].type.count))
            blocks = [
                [_pick(builder, *both, size) for both in zip(one, other, strict=True)]
                for one, other in zip(blocks[::2], blocks[1::2], strict=True)
            ]
        return context.make_tuple(builder, signature.return_type, blocks[0])

    return types.UniTuple(kind, 4)(array, types.uintp, types.uintp, width), code


def _transposed(builder: Any, vectors: list[Any], kind: Lanes) -> Iterator[Any]:
    """Yield, lane by lane, the four vectors' lanes as doubles.

    Two rounds of interleaving, each of which picks what one machine shuffle can do.
    """
    a, b, c, d = vectors
    width = kind.width
    even = [2 * (k // 2) + (k % 2) * width for k in range(width)]
    odd = [lane + 1 for lane in even]
    pairs = [(_pick(builder, a, b, lanes), _pick(builder, c, d, lanes)) for lanes in (even, odd)]
    for lane in range(width):
        k = lane - lane % 2
        low, high = pairs[lane % 2]
        row = _pick(builder, low, high, [k, k + 1, width + k, width + k + 1])
        if kind.dtype is types.float32:
            row = builder.fpext(row, ir.VectorType(ir.DoubleType(), 4))
        yield row


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once where the machine does that at full speed."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double] * 3)
        return builder.call(builder.module.declare_intrinsic("llvm.fmuladd", [double], kind), args)

    return types.float64(types.float64, types.float64, types.float64), code


@intrinsic
def scale(typing: Any, value: Any, power: Any) -> Any:
    """Return value * 2**n for power = 1.5 * 2**52 + n; no overflow, no subnormal results."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = ir.IntType(64)
        # The low bits of such a float are n: shifted, they add to the exponent.
        n = builder.shl(builder.bitcast(args[1], bits), ir.Constant(bits, 52))
        return builder.bitcast(builder.add(builder.bitcast(args[0], bits), n), ir.DoubleType())

    return types.float64(types.float64, types.float64), code


@intrinsic
def pair(typing: Any, a: Any, b: Any) -> Any:
    """Return two floats as a vector."""
    kind = Lanes(types.float64, 2)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        both = ir.Constant(_vector(kind), ir.Undefined)
        for lane, value in enumerate(args):
            both = builder.insert_element(both, value, I32(lane))
        return both

    return kind(types.float64, types.float64), code


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write a vector over its neighbours in a flat array from `index` on."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = _vector(vector)
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1], kind)
        builder.store(args[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.uintp, vector), code


@intrinsic
def total(typing: Any, a: Any) -> Any:
    """Return the sum of the lanes, first to last."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        result = builder.extract_element(args[0], I32(0))
        for lane in range(1, a.width):
            result = builder.fadd(result, builder.extract_element(args[0], I32(lane)))
        return result

    return a.dtype(a), code


@intrinsic
def add_moments(
    typing: Any, x: Any, y: Any, index: Any, c: Any, shift: Any, count: Any, sums: Any, squares: Any
) -> Any:
    """Return count, sums and squares with the rows from `index` on added that are of class c.

    d = x[r] - shift where y[r] = c and x[r] is not NaN; count += 1, sums += d, squares += d².
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats, bytes_ = _vector(count), ir.VectorType(ir.IntType(8), count.width)
        zeros, ones = (ir.Constant(floats, [value] * count.width) for value in (0.0, 1.0))
        at = _pointer(context, builder, signature.args[0], args[0], args[2], floats)
        value = builder.load(at, align=8)
        at = _pointer(context, builder, signature.args[1], args[1], args[2], bytes_)
        member = builder.and_(
            builder.icmp_unsigned(
                "==", builder.load(at, align=1), _spread(builder, args[3], bytes_)
            ),
            builder.fcmp_ordered("ord", value, value),
        )
        deviation = builder.fsub(value, _spread(builder, args[4], floats))
        deviation = builder.select(member, deviation, zeros)
        name = f"llvm.fmuladd.v{count.width}f64"
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(floats, [floats] * 3), name
        )
        results = [
            builder.fadd(args[5], builder.select(member, ones, zeros)),
            builder.fadd(args[6], deviation),
            builder.call(fma, [deviation, deviation, args[7]]),
        ]
        return context.make_tuple(builder, signature.return_type, results)

    result = types.UniTuple(count, 3)
    return result(x, y, types.uintp, types.uint8, types.float64, count, count, count), code


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    none = ir.Constant(vector, ir.Undefined)
    return _pick(builder, builder.insert_element(none, value, I32(0)), none, [0] * vector.count)


@register_jitable
def exp_negative(x):
    """Return exp(x) for x <= 0 within 2 ulp: 1 at 0, 0 below -708 and for NaN.

    exp(x) = 2ⁿ exp(r), r = x - n ln 2; Taylor's polynomial of degree 12 on |r| <= ½ ln 2. In a
    loop LLVM makes vectors of it, which it cannot of a call to the C library.
    """
    clamped = x if x > -708.0 else -708.0
    # Adding 1.5 · 2⁵² rounds to an integer that stays in the low bits.
    power = fma(clamped, 1.4426950408889634, 6755399441055744.0)
    n = power - 6755399441055744.0
    # ln 2 in two parts, the first with so few digits that n times it is exact.
    r = fma(n, -6.93147180369123816490e-01, clamped)
    r = fma(n, -1.90821492927058770002e-10, r)
    p = fma(r, 1 / 479001600, 1 / 39916800)
    p = fma(p, r, 1 / 3628800)
    p = fma(p, r, 1 / 362880)
    p = fma(p, r, 1 / 40320)
    p = fma(p, r, 1 / 5040)
    p = fma(p, r, 1 / 720)
    p = fma(p, r, 1 / 120)
    p = fma(p, r, 1 / 24)
    p = fma(p, r, 1 / 6)
    p = fma(p, r, 1 / 2)
    p = fma(p, r, 1.0)
    p = fma(p, r, 1.0)
    return scale(p, power) if x > -708.0 else 0.0


@register_jitable
def log_positive(x):
    """Return ln x within 1 ulp for a normal x > 0: -inf at 0; infinity and NaN as they are.

    x = 2ⁿ (1 + f), ln(1 + f) = f - f²/2 + s (f²/2 + R(s²)), s = f / (2 + f), with a polynomial R
    (fdlibm's). In a loop LLVM makes vectors of it, which it cannot of a call to the C library.
    """
    # Subtracting the bits of √½ makes 1 + f one of [√½, √2), and n the exponent that goes with it.
    bits = np.float64(x).view(np.int64) - np.int64(0x3FE6A09E667F3BCD)
    n = np.float64(bits >> np.int64(52))
    mantissa = (bits & np.int64(0x000FFFFFFFFFFFFF)) + np.int64(0x3FE6A09E667F3BCD)
    f = np.int64(mantissa).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = fma(w, 1.531383769920937332e-01, 2.222219843214978396e-01)
    odd = w * fma(w, odd, 3.999999999940941908e-01)
    even = fma(w, 1.479819860511658591e-01, 1.818357216161805012e-01)
    even = z * fma(w, fma(w, even, 2.857142874366239149e-01), 6.666666666666735130e-01)
    half = 0.5 * f * f
    small = s * (half + (odd + even)) + n * 1.90821492927058770002e-10
    result = n * 6.93147180369123816490e-01 + (f - (half - small))
    result = result if x > 0.0 else x - np.inf
    return result if x < np.inf else x + 0.0
