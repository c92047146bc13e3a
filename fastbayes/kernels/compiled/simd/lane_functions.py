"""Functions of vectors of floats: written with operators, compiled as LLVM's own instructions.

Loops that LLVM makes into vectors by itself take half the machine's width and pass over memory
once per operation; these keep what belongs to some rows in registers.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import Block, instruction
from fastbayes.kernels.compiled.simd.lanes import Lanes


class Vector:
    """A vector of doubles (or of truth values) while its instructions are written."""

    def __init__(self, builder: Block, value: Any) -> None:
        self.builder, self.value = builder, value

    def _of(self, kind: Any) -> Any:
        """Return the type of vectors of another type that are as long."""
        return ir.VectorType(kind, self.value.type.count)

    def of(self, number: Vector | float) -> Vector:
        """Return a number in every lane; vectors as they are."""
        if isinstance(number, Vector):
            return number
        return Vector(self.builder, to.constant(self._of(to.DOUBLE), float(number)))

    def _both(self, operation: str, other: Vector | float) -> Vector:
        other = self.of(other)
        return Vector(self.builder, getattr(self.builder, operation)(self.value, other.value))

    def __add__(self, other: Vector | float) -> Vector:
        return self._both("fadd", other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._both("fsub", other)

    def __mul__(self, other: Vector | float) -> Vector:
        return self._both("fmul", other)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self._both("fdiv", other)

    def _compared(self, how: str, other: Vector | float) -> Vector:
        value = self.builder.fcmp_ordered(how, self.value, self.of(other).value)
        return Vector(self.builder, value)

    def __gt__(self, other: Vector | float) -> Vector:
        return self._compared(">", other)

    def equals(self, other: Vector) -> Vector:
        """Return where both are the same number."""
        return self._compared("==", other)

    def __abs__(self) -> Vector:
        kind = self.value.type
        name = f"llvm.fabs.v{kind.count}f64"
        return Vector(self.builder, to.call(self.builder, name, kind, self.value))

    def times_plus(self, factor: Vector | float, term: Vector | float) -> Vector:
        """Return self * factor + term, rounded once where the machine does that at full speed."""
        parts = self.of(factor).value, self.of(term).value
        return Vector(self.builder, to.fma(self.builder, self.value, *parts))

    def where(self, yes: Vector | float, no: Vector | float) -> Vector:
        """Return `yes` where self is true, else `no`."""
        parts = self.of(yes).value, self.of(no).value
        return Vector(self.builder, self.builder.select(self.value, *parts))

    def bits(self, operation: str, number: int) -> Vector:
        """Return the bits after an operation with an integer; doubles become integers by it."""
        kind = self._of(to.I64)
        value = self.builder.bitcast(self.value, kind)
        number_ = to.constant(kind, number)
        return Vector(self.builder, getattr(self.builder, operation)(value, number_))

    def plus_bits(self, other: Vector) -> Vector:
        """Return the double whose bits are the sum of the bits of both."""
        kind = self._of(to.I64)
        total = self.builder.add(*(self.builder.bitcast(x.value, kind) for x in (self, other)))
        return Vector(self.builder, self.builder.bitcast(total, self._of(to.DOUBLE)))

    def as_double(self) -> Vector:
        """Return signed integers as doubles."""
        return Vector(self.builder, self.builder.sitofp(self.value, self._of(to.DOUBLE)))


def _lane_function(function: Callable[..., Any]) -> Any:
    """Make an intrinsic of a function of vectors that returns one, or a tuple of them."""
    count = function.__annotations__["return"].count("Vector")

    def signature(*kinds: Any) -> Any:
        return (kinds[0] if count == 1 else types.UniTuple(kinds[0], count))(*kinds)

    @functools.wraps(function)
    def write(block: Block, *values: Any) -> Any:
        results = function(*(Vector(block, value) for value in values))
        return results.value if count == 1 else [result.value for result in results]

    own = inspect.signature(function).parameters.values()
    block = inspect.Parameter("block", inspect.Parameter.POSITIONAL_ONLY)
    write.__signature__ = inspect.Signature([block, *own])  # type: ignore[attr-defined]
    return instruction(signature)(write)


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
def where_less(a: Vector, b: Vector, yes: Vector, no: Vector) -> Vector:
    """Return `yes` where a is less than b, else `no`."""
    return (b > a).where(yes, no)


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


@instruction(
    lambda value, width: Lanes(types.float64, width.literal_value)(types.float64, width),
    literal=True,
)
def splat(block, value, width):
    """Return a number in each of `width` lanes."""
    return to.splat(block, value, ir.VectorType(to.DOUBLE, width))


@instruction(
    lambda array, index, width: Lanes(types.float64, width.literal_value)(
        array, types.uintp, width
    ),
    literal=True,
)
def load_integers(block, array, index, width):
    """Return `width` neighbours of a flat array of unsigned integers, as doubles."""
    integer = array.data.type.pointee
    kind = ir.VectorType(integer, width)
    loaded = to.load_at(block, array.data, index, kind, integer.width // 8)
    return block.uitofp(loaded, ir.VectorType(to.DOUBLE, width))


@instruction(
    lambda count, width: Lanes(types.float64, width.literal_value)(types.int64, width),
    literal=True,
)
def first_lanes(block, count, width):
    """Return 1 in the first lanes, as many as counted, and 0 in the others."""
    integers, floats = (ir.VectorType(kind, width) for kind in (to.I64, to.DOUBLE))
    order = ir.Constant(integers, list(range(width)))
    less = block.icmp_signed("<", order, to.splat(block, count, integers))
    return block.select(less, to.constant(floats, 1.0), to.constant(floats, 0.0))
