"""Vectors of floats as values inside kernels: LLVM's own types, so any CPU can run them.

`width` is always a compile-time constant (a literal, a global, or a variable closed over).
Loads and stores are unaligned and unchecked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

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
    width = a.width
    four = ir.VectorType(ir.DoubleType(), 4)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, at, step, *rows = args
        # Two rounds of interleaving; each picks what one machine shuffle can do.
        evens = [2 * (k // 2) + (k % 2) * width for k in range(width)]
        odds = [lane + 1 for lane in evens]
        low = [_pick(builder, x, y, evens) for x, y in (rows[:2], rows[2:])]
        high = [_pick(builder, x, y, odds) for x, y in (rows[:2], rows[2:])]
        for lane in range(width):
            source = high if lane % 2 else low
            pair = lane - lane % 2
            column = _pick(builder, *source, [pair, pair + 1, width + pair, width + pair + 1])
            if a.dtype is types.float32:
                column = builder.fpext(column, four)
            pointer = _pointer(context, builder, signature.args[0], array, at, four)
            old = builder.load(pointer, align=8)
            builder.store(builder.fadd(old, column), pointer, align=8)
            at = builder.add(at, step)
        return context.get_dummy_value()

    return types.void(out, types.uintp, types.uintp, a, a, a, a), code


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
