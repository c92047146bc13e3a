"""Byte vectors inside kernels: plain LLVM IR, so that any processor can run it.

`sum_minima` is the inner loop of counting without memory access: see its docstring for why the
sums of minima are counts. Two operations (minimum, add) per vector and threshold beat compare
and subtract, which costs three with mask registers. Loads are unaligned and unchecked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fastbayes.kernels.dispatch import interpreted

AVAILABLE = not interpreted()


@intrinsic
def words_at(typingctx: Any, address: Any) -> Any:
    """Return the pointer to uint32 words at an address, for `carray`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint32)(types.uint64), generate


def _width() -> int:
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    # 64 measured 1.7 times as fast as 32 with AVX-512, where each 32 would use half a register;
    # elsewhere 64 would not fit the registers.
    return 64 if "+avx512bw" in features else 32


# Bytes in one vector. Part of the machine code, and so are the features it depends on of the
# key under which the machine code is cached.
WIDTH = _width() if AVAILABLE else 32

# Bytes read ahead. Hardware prefetching stops at each page; without this a first pass over
# memory takes twice as long. Less than two pages, or more than four, measured slower.
AHEAD = 8192

_I16, _I32, _I64 = (ir.IntType(bits) for bits in (16, 32, 64))
_BYTE = ir.IntType(8)
_VECTOR = ir.VectorType(_BYTE, WIDTH)
_PAIRS = ir.VectorType(_I16, WIDTH // 2)


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _load(builder: Any, base: Any, index: Any) -> Any:
    pointer = builder.bitcast(builder.gep(base, [index]), _VECTOR.as_pointer())
    return builder.load(pointer, align=1)


def _store(builder: Any, vector: Any, base: Any, index: Any) -> None:
    pointer = builder.bitcast(builder.gep(base, [index]), _VECTOR.as_pointer())
    builder.store(vector, pointer, align=1)


def _splat(builder: Any, byte: Any) -> Any:
    empty = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(empty, byte, _I32(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(_I32, WIDTH), [0] * WIDTH)
    )


def _prefetch(builder: Any, pointer: Any, write: bool) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    pointer = builder.bitcast(pointer, _BYTE.as_pointer())
    builder.call(function, [pointer, _I32(int(write)), _I32(3), _I32(1)])


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for array[index] (uint64 index) to be brought near, to be written."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, builder.gep(_data(context, builder, array, args[0]), [args[1]]), True)
        return context.get_dummy_value()

    return types.void(array, types.uint64), code


@intrinsic(prefer_literal=True)
def sum_minima(
    typing: Any, x: Any, shift: Any, n: Any, limits: Any, first: Any, sums: Any, passes: Any
) -> Any:
    """Add min(x[r] + shift[r], limits[t]) to lane r % WIDTH of row t of sums, modulo 256.

    For t in [first, first + passes), `passes` a literal; n is a multiple of WIDTH.

    min(z, l) - min(z, l - 1) is 1 where z >= l, else 0. So the difference of lanes of the rows
    of two neighbouring limits, modulo 256, is the number of rows with z >= l, exactly, as long
    as a lane has seen at most 255 rows, however often the sums themselves have wrapped.

    x, shift  IN   (n,) uint8
    limits    IN   (>= first + passes,) uint8
    sums      OUT  (>= first + passes, WIDTH) uint8
    """
    count = passes.literal_value

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, shift, limits, sums = (
            _data(context, builder, signature.args[a], args[a]) for a in (0, 1, 3, 5)
        )
        rows = [builder.add(args[4], _I64(t)) for t in range(count)]
        splats = [_splat(builder, builder.load(builder.gep(limits, [row]))) for row in rows]
        places = [builder.mul(row, _I64(WIDTH)) for row in rows]
        totals = [cgutils.alloca_once(builder, _VECTOR) for _ in rows]
        for total, place in zip(totals, places, strict=True):
            builder.store(_load(builder, sums, place), total)
        with cgutils.for_range_slice(builder, _I64(0), args[2], _I64(WIDTH)) as (r, _):
            _prefetch(builder, builder.gep(x, [builder.add(r, _I64(AHEAD))]), False)
            z = builder.add(_load(builder, x, r), _load(builder, shift, r))
            for total, limit in zip(totals, splats, strict=True):
                least = builder.select(builder.icmp_unsigned("<", z, limit), z, limit)
                builder.store(builder.add(builder.load(total), least), total)
        for total, place in zip(totals, places, strict=True):
            _store(builder, builder.load(total), sums, place)
        return context.get_dummy_value()

    return types.void(x, shift, types.int64, limits, types.int64, sums, passes), code


@intrinsic
def sum_steps(typing: Any, sums: Any, row: Any) -> Any:
    """Return the sum over lanes of sums[row] - sums[row - 1], each modulo 256.

    sums  IN   (n, WIDTH) uint8
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = _data(context, builder, sums, args[0])
        place = builder.mul(args[1], _I64(WIDTH))
        before = builder.sub(place, _I64(WIDTH))
        steps = builder.sub(_load(builder, base, place), _load(builder, base, before))
        # In 16-bit lanes, which cannot overflow: a third of the code of 64-bit ones.
        pairs = builder.bitcast(steps, _PAIRS)
        low = builder.and_(pairs, ir.Constant(_PAIRS, [255] * _PAIRS.count))
        high = builder.lshr(pairs, ir.Constant(_PAIRS, [8] * _PAIRS.count))
        reduce = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(_I16, [_PAIRS]),
            f"llvm.vector.reduce.add.v{_PAIRS.count}i16",
        )
        return builder.zext(builder.call(reduce, [builder.add(low, high)]), _I64)

    return types.int64(sums, types.int64), code
