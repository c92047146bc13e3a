"""Functions of vectors of floats: written with operators, compiled as LLVM's own instructions.

Loops that LLVM makes into vectors by itself take half the machine's width and pass over memory
once per operation; these keep what belongs to some rows in registers.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fastbayes.kernels.compiled.lanes import Lanes, _pointer, _vector

_I64 = ir.IntType(64)


class Vector:
    """A vector of doubles (or of truth values) while its instructions are written."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def of(self, number: float) -> Vector:
        """Return a number in every lane."""
        kind = ir.VectorType(ir.DoubleType(), self.value.type.count)
        return Vector(self.builder, ir.Constant(kind, [float(number)] * kind.count))

    def _both(self, operation: str, other: Vector | float) -> Vector:
        other = other if isinstance(other, Vector) else self.of(other)
        return Vector(self.builder, getattr(self.builder, operation)(self.value, other.value))

    def __add__(self, other: Vector | float) -> Vector:
        return self._both("fadd", other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._both("fsub", other)

    def __mul__(self, other: Vector | float) -> Vector:
        return self._both("fmul", other)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self._both("fdiv", other)

    def __gt__(self, other: Vector | float) -> Vector:
        other = other if isinstance(other, Vector) else self.of(other)
        return Vector(self.builder, self.builder.fcmp_ordered(">", self.value, other.value))

    def equals(self, other: Vector) -> Vector:
        """Return where both are the same number."""
        return Vector(self.builder, self.builder.fcmp_ordered("==", self.value, other.value))

    def _called(self, name: str, *others: Vector) -> Vector:
        kind = self.value.type
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(kind, [kind] * (1 + len(others))),
            f"llvm.{name}.v{kind.count}f64",
        )
        values = [self.value, *(other.value for other in others)]
        return Vector(self.builder, self.builder.call(function, values))

    def __abs__(self) -> Vector:
        return self._called("fabs")

    def times_plus(self, factor: Vector | float, term: Vector | float) -> Vector:
        """Return self * factor + term, rounded once where the machine does that at full speed."""
        parts = [x if isinstance(x, Vector) else self.of(x) for x in (factor, term)]
        return self._called("fmuladd", *parts)

    def where(self, yes: Vector | float, no: Vector | float) -> Vector:
        """Return `yes` where self is true, else `no`."""
        yes, no = (x if isinstance(x, Vector) else self.of(x) for x in (yes, no))
        return Vector(self.builder, self.builder.select(self.value, yes.value, no.value))

    def bits(self, operation: str, number: int) -> Vector:
        """Return the bits after an operation with an integer; doubles become integers by it."""
        kind = ir.VectorType(_I64, self.value.type.count)
        value = self.builder.bitcast(self.value, kind)
        number_ = ir.Constant(kind, [number] * kind.count)
        return Vector(self.builder, getattr(self.builder, operation)(value, number_))

    def plus_bits(self, other: Vector) -> Vector:
        """Return the double whose bits are the sum of the bits of both."""
        kind = ir.VectorType(_I64, self.value.type.count)
        values = [self.builder.bitcast(x.value, kind) for x in (self, other)]
        doubles = ir.VectorType(ir.DoubleType(), kind.count)
        return Vector(self.builder, self.builder.bitcast(self.builder.add(*values), doubles))

    def as_double(self) -> Vector:
        """Return signed integers as doubles."""
        kind = ir.VectorType(ir.DoubleType(), self.value.type.count)
        return Vector(self.builder, self.builder.sitofp(self.value, kind))


def _lane_function(function: Callable[..., Any]) -> Any:
    """Make an intrinsic of a function of vectors that returns one, or a tuple of them."""

    def typed(typing: Any, *kinds: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            results = function(*(Vector(builder, value) for value in args))
            if isinstance(results, Vector):
                return results.value
            values = [result.value for result in results]
            return context.make_tuple(builder, signature.return_type, values)

        count = function.__annotations__["return"].count("Vector")
        result = kinds[0] if count == 1 else types.UniTuple(kinds[0], count)
        return result(*kinds), code

    typed.__name__, typed.__doc__ = function.__name__, function.__doc__
    # numba asks for the names of the arguments, and takes no `*kinds`.
    own = inspect.signature(function).parameters.values()
    first = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    return intrinsic(typed)


def _horner(x: Vector, *coefficients: float) -> Vector:
    """Return the polynomial, highest power first."""
    result = x.of(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result.times_plus(x, coefficient)
    return result


def _exp(x: Vector) -> Vector:
    clamped = (x > -708.0).where(x, -708.0)
    # Adding 1.5 · 2⁵² rounds to an integer that stays in the low bits.
    power = clamped.times_plus(1.4426950408889634, 6755399441055744.0)
    n = power - 6755399441055744.0
    # ln 2 in two parts, the first with so few digits that n times it is exact.
    r = n.times_plus(-6.93147180369123816490e-01, clamped)
    r = n.times_plus(-1.90821492927058770002e-10, r)
    p = _horner(r, *(1 / math.factorial(k) for k in range(12, -1, -1)))
    return (x > -708.0).where(p.plus_bits(power.bits("shl", 52)), 0.0)


def _log_series(z: Vector) -> Vector:
    """Return R(z): ln(1 + f) = s (2 + R(s²)), s = f / (2 + f), for 1 + f in [√½, √2]."""
    return z * _horner(
        z,
        1.479819860511658591e-01,
        1.531383769920937332e-01,
        1.818357216161805012e-01,
        2.222219843214978396e-01,
        2.857142874366239149e-01,
        3.999999999940941908e-01,
        6.666666666666735130e-01,
    )


@_lane_function
def exp_negative(x: Vector) -> Vector:
    """Return exp(x) for x <= 0 within 2 ulp: 1 at 0, 0 below -708 and for NaN.

    As `lanes.exp_negative`.
    """
    return _exp(x)


@_lane_function
def share_and_loss(v: Vector) -> tuple[Vector, Vector]:
    """Return 1 / (1 + e^-v) and ln(1 + e^v) within 4 ulp: nothing overflows or is lost."""
    e = _exp(v.of(0.0) - abs(v))
    # ln(1 + e), or where e > √2 - 1 of what 1 + e is more than 2, halved.
    far = e > math.sqrt(2) - 1
    above, below = far.where(e - 1.0, e), far.where(e + 3.0, e + 2.0)
    # One division for two: they take longer than all the rest.
    total = e + 1.0
    inverse = v.of(1.0) / (total * below)
    s = above * (total * inverse)
    log = s.times_plus(_log_series(s * s) + 2.0, far.where(math.log(2), 0.0))
    large = below * inverse
    positive = v > 0.0
    return positive.where(large, e * large), positive.where(v, 0.0) + log


@_lane_function
def variance(v: Vector) -> Vector:
    """Return e^v / (1 + e^v)²."""
    e = _exp(v.of(0.0) - abs(v))
    share = v.of(1.0) / (e + 1.0)
    return e * share * share


@_lane_function
def inverse_and_log(others: Vector) -> tuple[Vector, Vector]:
    """Return 1 / (1 + x) and ln(1 + x) for x >= 0, within 4 ulp."""
    total = others + 1.0
    # total = 2ⁿ (1 + f): subtracting the bits of √½ makes 1 + f one of [√½, √2).
    bits = total.bits("sub", 0x3FE6A09E667F3BCD)
    n = bits.bits("ashr", 52).as_double()
    mantissa = bits.bits("and_", 0x000FFFFFFFFFFFFF).plus_bits(
        Vector(total.builder, total.of(0.0).bits("add", 0x3FE6A09E667F3BCD).value)
    )
    f = mantissa - 1.0
    twice = f + 2.0
    both = total.of(1.0) / (total * twice)
    inverse = twice * both
    s = f * (total * both)
    log = s * (_log_series(s * s) + 2.0)
    # What rounding took from the total, and ln 2 in two parts.
    log = log + (others - (total - 1.0)) * inverse
    log = n.times_plus(1.90821492927058770002e-10, log)
    return inverse, n.times_plus(6.93147180369123816490e-01, log)


@_lane_function
def inverse(a: Vector) -> Vector:
    """Return 1 / a."""
    return a.of(1.0) / a


@_lane_function
def where_equal(a: Vector, b: Vector, yes: Vector, no: Vector) -> Vector:
    """Return `yes` where a is b, else `no`."""
    return a.equals(b).where(yes, no)


@_lane_function
def larger(a: Vector, b: Vector) -> Vector:
    """Return the larger of both, lane by lane."""
    return (a > b).where(a, b)


@_lane_function
def less_and_equal(z: Vector, e: Vector) -> tuple[Vector, Vector]:
    """Return e and 0 where z < 0, else 0 and 1."""
    less = z.of(0.0) > z
    return less.where(e, 0.0), less.where(0.0, 1.0)


@_lane_function
def negated_where(flag: Vector, a: Vector) -> Vector:
    """Return -a where the flag is above 0, else a."""
    return (flag > 0.0).where(a.of(0.0) - a, a)


@_lane_function
def subtract(a: Vector, b: Vector) -> Vector:
    """Return a - b."""
    return a - b


@_lane_function
def times_plus(a: Vector, b: Vector, c: Vector) -> Vector:
    """Return a * b + c, rounded once where the machine does that at full speed."""
    return a.times_plus(b, c)


@intrinsic(prefer_literal=True)
def splat(typing: Any, value: Any, width: Any) -> Any:
    """Return a number in each of `width` lanes."""
    kind = Lanes(types.float64, width.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        none = ir.Constant(_vector(kind), ir.Undefined)
        lane = builder.insert_element(none, args[0], ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), kind.width), [0] * kind.width)
        return builder.shuffle_vector(lane, none, places)

    return kind(types.float64, width), code


@intrinsic(prefer_literal=True)
def load_integers(typing: Any, array: Any, index: Any, width: Any) -> Any:
    """Return `width` neighbours of a flat array of unsigned integers, as doubles."""
    kind = Lanes(types.float64, width.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integers = ir.VectorType(ir.IntType(array.dtype.bitwidth), kind.width)
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1], integers)
        loaded = builder.load(pointer, align=array.dtype.bitwidth // 8)
        return builder.uitofp(loaded, _vector(kind))

    return kind(array, types.uintp, width), code


@intrinsic(prefer_literal=True)
def first_lanes(typing: Any, count: Any, width: Any) -> Any:
    """Return 1 in the first lanes, as many as counted, and 0 in the others."""
    kind = Lanes(types.float64, width.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integers = ir.VectorType(_I64, kind.width)
        none = ir.Constant(integers, ir.Undefined)
        lane = builder.insert_element(none, args[0], ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), kind.width), [0] * kind.width)
        counts = builder.shuffle_vector(lane, none, places)
        order = ir.Constant(integers, list(range(kind.width)))
        ones, zeros = (ir.Constant(_vector(kind), [x] * kind.width) for x in (1.0, 0.0))
        return builder.select(builder.icmp_signed("<", order, counts), ones, zeros)

    return kind(types.int64, width), code
