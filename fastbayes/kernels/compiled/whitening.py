"""Products of triangular matrices and tiles of rows, in registers: inside kernels only.

A tile is TILE rows, one to a lane. Four rows of the matrix at a time stay in registers with all
lanes of a tile, so that a loaded deviation takes part in four products. Loads and stores are
unaligned and unchecked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, register_jitable

from fastbayes.kernels.compiled import lanes, vector

# Rows in a vector, and vectors in a tile: with four rows of a matrix they fill the registers.
WIDTH = vector.WIDTH // 8
VECTORS = 4 if WIDTH == 8 else 2
TILE = WIDTH * VECTORS

_LANES = ir.VectorType(ir.DoubleType(), WIDTH)
_I64 = ir.IntType(64)


def _fma(builder: Any, kind: Any, a: Any, b: Any, c: Any) -> Any:
    name = f"llvm.fmuladd.v{kind.count}f64"
    function = ir.FunctionType(kind, [kind] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), [a, b, c])


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _at(builder: Any, base: Any, index: Any, v: int = 0) -> Any:
    place = builder.gep(base, [builder.add(index, _I64(v * WIDTH))])
    return builder.bitcast(place, _LANES.as_pointer())


def _load(builder: Any, base: Any, index: Any, v: int) -> Any:
    return builder.load(_at(builder, base, index, v), align=8)


def _splat(builder: Any, value: Any) -> Any:
    none = ir.Constant(_LANES, ir.Undefined)
    first = builder.insert_element(none, value, ir.IntType(32)(0))
    picks = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, none, picks)


@intrinsic
def number_at(typing: Any, address: Any) -> Any:
    """Return the float64 at an address."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.DoubleType().as_pointer()), align=8)

    return types.float64(types.uint64), code


@intrinsic
def put_deviations(typing: Any, address: Any, mean: Any, rest: Any, out: Any, index: Any) -> Any:
    """Write a tile of a column less its mean: out[index + r] = (column[r] - mean) - rest.

    address  IN   of the column's first float64 of the tile
    out      OUT  float64, from the flat index on
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        column = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        mean, rest = (_splat(builder, value) for value in args[1:3])
        to = _data(context, builder, signature.args[3], args[3])
        for v in range(VECTORS):
            value = builder.fsub(_load(builder, column, _I64(0), v), mean)
            builder.store(builder.fsub(value, rest), _at(builder, to, args[4], v), align=8)
        return context.get_dummy_value()

    return types.void(types.uint64, types.float64, types.float64, out, types.int64), code


def _products(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, list[list[Any]]]:
    """Return scratch, and four rows of the matrix times the deviations, for each vector.

    args: packed matrix, where its four rows begin, scratch, first column, row.
    """
    matrix, scratch = (_data(context, builder, signature.args[a], args[a]) for a in (0, 2))
    totals = [[cgutils.alloca_once(builder, _LANES) for _ in range(VECTORS)] for _ in range(4)]
    for row in totals:
        for total in row:
            builder.store(ir.Constant(_LANES, [0.0] * WIDTH), total)

    def add(column: Any, first: int) -> None:
        own = builder.add(args[1], builder.mul(column, _I64(4)))
        place = builder.mul(column, _I64(TILE))
        values = [_load(builder, scratch, place, v) for v in range(VECTORS)]
        for row in range(first, 4):
            factor = builder.load(builder.gep(matrix, [builder.add(own, _I64(row))]))
            factor = _splat(builder, factor)
            for value, total in zip(values, totals[row], strict=True):
                more = _fma(builder, _LANES, factor, value, builder.load(total))
                builder.store(more, total)

    with cgutils.for_range_slice(builder, args[3], args[4], _I64(1)) as (column, _):
        add(column, 0)
    for k in range(4):
        add(builder.add(args[4], _I64(k)), k)
    return scratch, [[builder.load(total) for total in row] for row in totals]


@intrinsic
def add_squares(
    typing: Any, matrix: Any, at: Any, scratch: Any, first: Any, row: Any, to: Any
) -> Any:
    """Add to scratch[to] the squares of four rows of the matrix times the deviations.

    matrix   IN   packed rows, these from `at` on
    scratch  OUT  (any, TILE) float64   the deviations from row 0 on
    first    IN   column of the matrix to begin with
    row      IN   first of the four rows
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scratch, z = _products(context, builder, signature, args)
        place = builder.mul(args[5], _I64(TILE))
        for v in range(VECTORS):
            total = _load(builder, scratch, place, v)
            for line in z:
                total = _fma(builder, _LANES, line[v], line[v], total)
            builder.store(total, _at(builder, scratch, place, v), align=8)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, scratch, *[types.int64] * 3), code


@intrinsic
def put_products(
    typing: Any, matrix: Any, at: Any, scratch: Any, first: Any, row: Any, to: Any
) -> Any:
    """Write four rows of the matrix times the deviations: scratch[to + 0..3].

    Arguments as for `add_squares`.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scratch, z = _products(context, builder, signature, args)
        for k, line in enumerate(z):
            place = builder.mul(builder.add(args[5], _I64(k)), _I64(TILE))
            for v, value in enumerate(line):
                builder.store(value, _at(builder, scratch, place, v), align=8)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, scratch, *[types.int64] * 3), code


@intrinsic
def add_distances(
    typing: Any, scratch: Any, first: Any, last: Any, centre: Any, at: Any, to: Any
) -> Any:
    """Add to scratch[to] the squares of scratch[first:last] less a centre, a number for each row.

    centre  IN  float64, from the flat index `at` on
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scratch, centre = (_data(context, builder, signature.args[a], args[a]) for a in (0, 3))
        place = builder.mul(args[5], _I64(TILE))
        totals = [cgutils.alloca_once(builder, _LANES) for _ in range(VECTORS)]
        for v, total in enumerate(totals):
            builder.store(_load(builder, scratch, place, v), total)
        with cgutils.for_range_slice(builder, args[1], args[2], _I64(1)) as (row, _):
            index = builder.add(args[4], builder.sub(row, args[1]))
            middle = _splat(builder, builder.load(builder.gep(centre, [index])))
            for v, total in enumerate(totals):
                value = _load(builder, scratch, builder.mul(row, _I64(TILE)), v)
                value = builder.fsub(value, middle)
                builder.store(_fma(builder, _LANES, value, value, builder.load(total)), total)
        for v, total in enumerate(totals):
            builder.store(builder.load(total), _at(builder, scratch, place, v), align=8)
        return context.get_dummy_value()

    kinds = scratch, types.int64, types.int64, centre, types.int64, types.int64
    return types.void(*kinds), code


@intrinsic
def add_scaled(typing: Any, total: Any, array: Any, index: Any, factor: Any) -> Any:
    """Return total + factor * array[index + lane], of a flat array."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = _data(context, builder, signature.args[1], args[1])
        value = _load(builder, base, args[2], 0)
        return _fma(builder, _LANES, value, _splat(builder, args[3]), args[0])

    return total(total, array, types.int64, types.float64), code


@intrinsic
def _total(typing: Any, a: Any) -> Any:
    """Return the sum of the lanes, one half added to the other until one is left."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        while value.type.count > 1:
            half = value.type.count // 2
            low, high = (
                builder.shuffle_vector(
                    value, value, ir.Constant(ir.VectorType(ir.IntType(32), half), list(picks))
                )
                for picks in (range(half), range(half, 2 * half))
            )
            value = builder.fadd(low, high)
        return builder.extract_element(value, ir.IntType(32)(0))

    return a.dtype(a), code


@register_jitable
def _dot(array, one, other, first):
    """Return the product of two rows of an array whose width is a multiple of WIDTH.

    From the last multiple of WIDTH on that `first` is not below.
    """
    width = array.shape[1]
    total = lanes.zero(array, WIDTH)
    for k in range(first // WIDTH * WIDTH, width, WIDTH):
        a = lanes.load(array, one * width + k, WIDTH)
        total = lanes.add(total, lanes.mul(a, lanes.load(array, other * width + k, WIDTH)))
    return _total(total)


@register_jitable
def square(array, row, first):
    """Return the squared length of a row that is 0 before `first`."""
    return _dot(array, row, row, first)


@register_jitable
def take_out(array, row, unit, first):
    """Make a row orthogonal to another of length 1 that is 0 before `first`."""
    width = array.shape[1]
    factor = -_dot(array, row, unit, first)
    for k in range(first // WIDTH * WIDTH, width, WIDTH):
        own = lanes.load(array, row * width + k, WIDTH)
        lanes.store(array, row * width + k, add_scaled(own, array, unit * width + k, factor))


@register_jitable
def put_row(array, row, source, start):
    """Write array[row] = source[start], a row of a flat array of rows as wide."""
    width = array.shape[1]
    for k in range(0, width, WIDTH):
        lanes.store(array, row * width + k, lanes.load(source, start * width + k, WIDTH))


@register_jitable
def shrink(array, row, divisor):
    """Divide a row by a number."""
    own = array[row]
    for k in range(own.size):
        own[k] /= divisor


@register_jitable
def put_sum(columns, start, factors, n, array, row):
    """Write a sum of n rows of `columns`: array[row] = Σ_j factors[j] columns[start + j].

    columns  IN   (any, any, width) float64   in C order; row j is 0 before its number j
    start    IN   first of the rows
    factors  IN   (>= n,) float64
    array    OUT  (any, width) float64   width a multiple of 4 WIDTH
    """
    width = array.shape[1]
    for b in range(0, width, 4 * WIDTH):
        z0 = lanes.zero(array, WIDTH)
        z1, z2, z3 = z0, z0, z0
        for j in range(min(n, b + 4 * WIDTH)):
            at, factor = (start + j) * width + b, factors[j]
            z0 = add_scaled(z0, columns, at, factor)
            z1 = add_scaled(z1, columns, at + WIDTH, factor)
            z2 = add_scaled(z2, columns, at + 2 * WIDTH, factor)
            z3 = add_scaled(z3, columns, at + 3 * WIDTH, factor)
        at = row * width + b
        lanes.store(array, at, z0)
        lanes.store(array, at + WIDTH, z1)
        lanes.store(array, at + 2 * WIDTH, z2)
        lanes.store(array, at + 3 * WIDTH, z3)
