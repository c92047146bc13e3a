"""Vectors of floats as values inside kernels.

`width` is always a compile-time constant (a literal, a global, or a variable closed over).
Loads and stores are unaligned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import models, register_model

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import Block, instruction
from fastbayes.kernels.dispatch import helper


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
        scalar = ir.DoubleType() if kind.dtype is types.float64 else ir.FloatType()
        super().__init__(manager, kind, ir.VectorType(scalar, kind.width))


def _loaded(array: Any, *others: Any) -> Any:
    """Return the signature of what takes vectors of an array's type out of it."""
    *between, width = others
    return Lanes(array.dtype, width.literal_value)(array, *[types.uintp] * len(between), width)


def _lanes_of(array: Any, width: int) -> Any:
    """Return LLVM's type of so many neighbours of an array."""
    return ir.VectorType(array.data.type.pointee, width)


def _size(kind: Any) -> int:
    """Return the bytes of a float of a type of vectors: places are aligned to no more."""
    return 4 if isinstance(kind.element, ir.FloatType) else 8


@instruction(_loaded, literal=True)
def load(block, array, index, width):
    """Return `width` neighbours of a flat array from `index` on."""
    kind = _lanes_of(array, width)
    return to.load_at(block, array.data, index, kind, _size(kind))


def _four(array: Any, *others: Any) -> Any:
    """Return the signature of what takes four vectors of an array's type out of it."""
    signature = _loaded(array, *others)
    return types.UniTuple(signature.return_type, 4)(*signature.args)


@instruction(_four, literal=True)
def load_four(block, array, a, b, c, d, width):
    """Return four vectors: `width` neighbours of a flat array from each of four indices on."""
    kind = _lanes_of(array, width)
    return [to.load_at(block, array.data, at, kind, _size(kind)) for at in (a, b, c, d)]


@instruction(_loaded, literal=True)
def zero(block, array, width):
    """Return `width` zeros of the array's type."""
    return to.constant(_lanes_of(array, width), 0.0)


@instruction(_four, literal=True)
def four_zeros(block, array, width):
    """Return four vectors of `width` zeros of the array's type."""
    return [to.constant(_lanes_of(array, width), 0.0)] * 4


@instruction(lambda array, index, vector: types.void(array, types.uintp, vector))
def store(block, array, index, vector):
    """Write a vector over its neighbours in a flat array from `index` on."""
    to.store_at(block, vector, array.data, index, _size(vector.type))


def _each(operation: Callable[..., Any], *operands: Any) -> Any:
    """Return what an operation makes of vectors, or of each of several in turn."""
    if not isinstance(operands[0], list):
        return operation(*operands)
    return [operation(*some) for some in zip(*operands, strict=True)]


@instruction(lambda a, b: a(a, a))
def add(block, a, b):
    """Return a + b, of two vectors or of as many pairs of them."""
    return _each(block.fadd, a, b)


@instruction(lambda a, b: a(a, a))
def mul(block, a, b):
    """Return a * b, of two vectors or of as many pairs of them."""
    return _each(block.fmul, a, b)


@instruction(lambda a, factor, b: b(a, factor, b))
def multiply_add(block, a, factor, b):
    """Return a * factor + b, of as many pairs of a and b, rounded as by `fma`."""
    return _each(lambda x, y: to.fma(block, x, factor, y), a, b)


def _wide(a: Any) -> Any:
    several = isinstance(a, types.UniTuple)
    wide = Lanes(types.float64, (a.dtype if several else a).width)
    return (types.UniTuple(wide, a.count) if several else wide)(a)


@instruction(_wide)
def widen(block, a):
    """Return the same numbers as float64, of a vector or of several."""

    def one(vector: Any) -> Any:
        wide = ir.VectorType(to.DOUBLE, vector.type.count)
        return vector if vector.type == wide else block.fpext(vector, wide)

    return _each(one, a)


def _columns(out: Any, index: Any, stride: Any, four: Any) -> Any:
    return types.void(out, types.uintp, types.uintp, four)


@instruction(_columns)
def add_columns(block, out, index, stride, four):
    """Add four vectors as columns: out[index + lane * stride + 0..3] += four[0..3][lane].

    `out` is float64; float32 vectors are widened.
    """
    for row in _transposed(block, *four):
        old = to.load_at(block, out.data, index, row.type)
        to.store_at(block, block.fadd(old, row), out.data, index)
        index = block.add(index, stride)


@instruction(_columns)
def store_columns(block, out, index, stride, four):
    """Write four vectors as columns: out[index + lane * stride + 0..3] = four[0..3][lane]."""
    for row in _transposed(block, *four):
        to.store_at(block, row, out.data, index)
        index = block.add(index, stride)


@instruction(_columns)
def store_rows(block, out, index, stride, four):
    """Write four vectors as rows: out[index + k * stride + lane] = four[k][lane]."""
    for row in four:
        to.store_at(block, row, out.data, index, _size(row.type))
        index = block.add(index, stride)


@instruction(
    lambda array, index, stride, width: types.UniTuple(Lanes(array.dtype, width.literal_value), 4)(
        array, types.uintp, types.uintp, width
    ),
    literal=True,
)
def load_rows(block, array, index, stride, width):
    """Return four vectors of which lane k is array[index + k * stride + 0..3]; width in fours."""
    of_four, parts = _lanes_of(array, 4), []
    for _ in range(width // 4):
        columns = []
        for _ in range(4):
            columns.append(to.load_at(block, array.data, index, of_four, _size(of_four)))
            index = block.add(index, stride)
        a, b, c, d = columns
        pairs = [
            (to.pick(block, a, b, half), to.pick(block, c, d, half))
            for half in ([0, 4, 2, 6], [1, 5, 3, 7])
        ]
        parts.append(
            [to.pick(block, *both, [k, k + 1, k + 4, k + 5]) for k in (0, 2) for both in pairs]
        )
    while len(parts) > 1:
        size = range(2 * parts[0][0].type.count)
        parts = [
            [to.pick(block, *both, size) for both in zip(one, other, strict=True)]
            for one, other in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _transposed(block: Block, a: Any, b: Any, c: Any, d: Any) -> Iterator[Any]:
    """Yield, lane by lane, the four vectors' lanes as doubles.

    Two rounds of interleaving, each of which picks what one machine shuffle can do.
    """
    width = a.type.count
    even = [2 * (k // 2) + (k % 2) * width for k in range(width)]
    odd = [lane + 1 for lane in even]
    pairs = [(to.pick(block, a, b, lanes), to.pick(block, c, d, lanes)) for lanes in (even, odd)]
    for lane in range(width):
        k = lane - lane % 2
        row = to.pick(block, *pairs[lane % 2], [k, k + 1, width + k, width + k + 1])
        if _size(a.type) == 4:
            row = block.fpext(row, ir.VectorType(to.DOUBLE, 4))
        yield row


@instruction(lambda a, b, c: types.float64(types.float64, types.float64, types.float64))
def fma(block, a, b, c):
    """Return a * b + c, rounded once where the machine does that at full speed."""
    return to.fma(block, a, b, c)


@instruction(lambda value, power: types.float64(types.float64, types.float64))
def scale(block, value, power):
    """Return value * 2**n for power = 1.5 * 2**52 + n; no overflow, no subnormal results."""
    # The low bits of such a float are n: shifted, they add to the exponent.
    n = block.shl(block.bitcast(power, to.I64), to.I64(52))
    return block.bitcast(block.add(block.bitcast(value, to.I64), n), to.DOUBLE)


@instruction(lambda a, b: Lanes(types.float64, 2)(types.float64, types.float64))
def pair(block, a, b):
    """Return two floats as a vector."""
    none = ir.Constant(ir.VectorType(to.DOUBLE, 2), ir.Undefined)
    return block.insert_element(block.insert_element(none, a, to.I32(0)), b, to.I32(1))


@instruction(lambda a: a.dtype(a))
def total(block, a):
    """Return the sum of the lanes, first to last."""
    return _sum(block, a)


def _total(block: Block, place: Any) -> Any:
    """Return the sum of the lanes of a vector that is held at a place, first to last."""
    return _sum(block, block.load(place))


def _sum(block: Block, a: Any) -> Any:
    result = block.extract_element(a, to.I32(0))
    for lane in range(1, a.type.count):
        result = block.fadd(result, block.extract_element(a, to.I32(lane)))
    return result


@instruction(
    lambda x, y, n, first, shift, sums, classes: types.void(
        x, y, types.int64, types.int64, shift, sums, classes
    ),
    literal=True,
)
def add_moments(block, x, y, n, first, shift, sums, classes):
    """Add the moments of some classes: sums[:, c] += Σ of 1, d, d², c in [first, first + classes).

    d = x[r] - shift[c] where y[r] = c and x[r] is not NaN. Other sums meanwhile hide that each
    waits for the one before it.

    x        IN   (>= n,) float64
    y        IN   (>= n,) uint8
    n        IN   a multiple of 8
    classes  IN   literal
    shift    IN   (>= first + classes,) float64
    sums     OUT  (3, >= first + classes) float64
    """
    floats, bytes_ = ir.VectorType(to.DOUBLE, 8), ir.VectorType(to.BYTE, 8)
    zeros = to.constant(floats, 0.0)
    places = [block.add(first, to.I64(k)) for k in range(classes)]
    labels = [to.splat(block, block.trunc(c, to.BYTE), bytes_) for c in places]
    shifts = [to.splat(block, block.load(block.gep(shift.data, [c])), floats) for c in places]
    # Ones are counted apart from the floats, by other parts of the processor.
    counts = [cgutils.alloca_once_value(block, to.I64(0)) for _ in places]
    totals, squares = (to.variables(block, floats, classes) for _ in range(2))
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(8)) as (r, _):
        vector.prefetch_at(block, block.gep(x.data, [block.add(r, to.I64(vector.AHEAD // 8))]))
        value, label = to.load_at(block, x.data, r, floats), to.load_at(block, y.data, r, bytes_, 1)
        known = block.fcmp_ordered("ord", value, value)
        for k in range(classes):
            member = block.and_(block.icmp_unsigned("==", label, labels[k]), known)
            ones = to.call(block, "llvm.ctpop.i8", to.BYTE, block.bitcast(member, to.BYTE))
            d = block.select(member, block.fsub(value, shifts[k]), zeros)
            block.store(block.add(block.load(counts[k]), block.zext(ones, to.I64)), counts[k])
            block.store(block.fadd(block.load(totals[k]), d), totals[k])
            block.store(to.fma(block, d, d, block.load(squares[k])), squares[k])
    stride = cgutils.unpack_tuple(block, sums.shape)[1]
    for k, c in enumerate(places):
        found = block.sitofp(block.load(counts[k]), to.DOUBLE)
        for value in (found, _total(block, totals[k]), _total(block, squares[k])):
            place = block.gep(sums.data, [c])
            block.store(block.fadd(block.load(place), value), place)
            c = block.add(c, stride)


@helper
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


@helper
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


@helper
def log_one_plus(x):
    """Return ln(1 + x) for x >= 0 within 2 ulp of 1 + x: also where 1 + x rounds x away."""
    total = 1.0 + x
    return log_positive(total) + (x - (total - 1.0)) / total
