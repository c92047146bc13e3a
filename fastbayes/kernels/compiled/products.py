"""Sums of products of columns, a tile of pairs of columns at a time in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fastbayes.kernels.compiled import vector

# Rows in a vector, and columns along either side of a tile: their sums fill half the registers,
# which leaves room for the columns, and waits for no addition.
WIDTH = vector.WIDTH // 8
TILE = 4 if WIDTH == 8 else 3

_LANES = ir.VectorType(ir.DoubleType(), WIDTH)
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _at(builder: Any, data: Any, index: Any) -> Any:
    return builder.bitcast(builder.gep(data, [index]), _LANES.as_pointer())


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    kind = ir.FunctionType(_LANES, [_LANES] * 3)
    name = f"llvm.fmuladd.v{WIDTH}f64"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])


def _total(builder: Any, a: Any) -> Any:
    """Return the sum of the lanes, halves first."""
    half = WIDTH // 2
    while half:
        lanes = [ir.Constant(ir.VectorType(_I32, half), range_) for range_ in _halves(half)]
        none = ir.Constant(a.type, ir.Undefined)
        a = builder.fadd(*(builder.shuffle_vector(a, none, part) for part in lanes))
        half //= 2
    return builder.extract_element(a, _I32(0))


def _halves(half: int) -> tuple[list[int], list[int]]:
    return list(range(half)), list(range(half, 2 * half))


@intrinsic
def value_at(typing: Any, address: Any, index: Any) -> Any:
    """Return the float64 of this index in the column at an address."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        column = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(column, [args[1]]), align=8)

    return types.float64(types.uint64, types.uint64), code


@intrinsic(prefer_literal=True)
def sum_products(
    typing: Any, panel: Any, a: Any, b: Any, root: Any, n: Any, sums: Any, diagonal: Any
) -> Any:
    """Write sums[s, t] = sum over n rows of the columns a + s and b + t of a panel, s, t < TILE.

    a, b      IN   flat index of the first row, in the first of TILE columns
    root      IN   flat index of the first row in the column of roots of weights
    n         IN   rows, a multiple of WIDTH
    sums      OUT  (TILE + 1, TILE) float64
    diagonal  IN   literal: a is b, only s >= t is written, and sums[TILE, t] is that with the roots
    panel     IN   (columns, rows) float64
    """
    square = bool(diagonal.literal_value)
    pairs = [(s, t) for s in range(TILE) for t in range(s + 1 if square else TILE)]
    pairs += [(TILE, t) for t in range(TILE)] * square

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        data, out = array.data, _data(context, builder, signature.args[5], args[5])
        stride = cgutils.unpack_tuple(builder, array.shape)[1]
        firsts = [[args[side]] for side in (1, 2)]
        for side in firsts:
            for _ in range(TILE - 1):
                side.append(builder.add(side[-1], stride))
        totals = [
            cgutils.alloca_once_value(builder, ir.Constant(_LANES, [0.0] * WIDTH)) for _ in pairs
        ]
        with cgutils.for_range_slice(builder, _I64(0), args[4], _I64(WIDTH)) as (r, _):

            def column(first: Any) -> Any:
                return builder.load(_at(builder, data, builder.add(first, r)), align=8)

            right = [column(first) for first in firsts[1]]
            left = right if square else [column(first) for first in firsts[0]]
            if square:
                left = [*left, column(args[3])]
            for total, (s, t) in zip(totals, pairs, strict=True):
                builder.store(_fma(builder, left[s], right[t], builder.load(total)), total)
        for total, (s, t) in zip(totals, pairs, strict=True):
            place = builder.gep(out, [_I64(s * TILE + t)])
            builder.store(_total(builder, builder.load(total)), place)
        return context.get_dummy_value()

    flat = types.int64
    return types.void(panel, flat, flat, flat, flat, sums, diagonal), code


@intrinsic
def add_row(typing: Any, out: Any, index: Any, row: Any, n: Any, factor: Any) -> Any:
    """Add a vector of numbers, factor * row[k], to out[index + k], k < n, a multiple of WIDTH.

    row  IN   (>= n,) float64
    out  OUT  float64, from the flat index on
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _data(context, builder, signature.args[0], args[0])
        values = _data(context, builder, signature.args[2], args[2])
        none = ir.Constant(_LANES, ir.Undefined)
        lane = builder.insert_element(none, args[4], _I32(0))
        zeros = ir.Constant(ir.VectorType(_I32, WIDTH), [0] * WIDTH)
        factors = builder.shuffle_vector(lane, none, zeros)
        with cgutils.for_range_slice(builder, _I64(0), args[3], _I64(WIDTH)) as (k, _):
            place = _at(builder, to, builder.add(args[1], k))
            value = builder.load(_at(builder, values, k), align=8)
            total = _fma(builder, factors, value, builder.load(place, align=8))
            builder.store(total, place, align=8)
        return context.get_dummy_value()

    return types.void(out, types.int64, row, types.int64, types.float64), code
