"""Products of triangular matrices and tiles of rows, in registers: inside kernels only.

A tile is TILE rows, one to a lane. Four rows of the matrix at a time stay in registers with all
lanes of a tile, so that a loaded deviation takes part in four products.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import lanes, vector
from fastbayes.kernels.compiled.simd.instructions import Block, instruction
from fastbayes.kernels.dispatch import helper

# Rows in a vector, and vectors in a tile: with four rows of a matrix they fill the registers.
WIDTH = vector.WIDTH // 8
VECTORS = 4 if WIDTH == 8 else 2
TILE = WIDTH * VECTORS

_LANES = ir.VectorType(to.DOUBLE, WIDTH)


def _load(block: Block, data: Any, index: Any, v: int) -> Any:
    return to.load_at(block, data, block.add(index, to.I64(v * WIDTH)), _LANES)


def _store(block: Block, value: Any, data: Any, index: Any, v: int) -> None:
    to.store_at(block, value, data, block.add(index, to.I64(v * WIDTH)))


def _row_of_tiles(block: Block, row: Any) -> Any:
    return block.mul(row, to.I64(TILE))


@instruction(
    lambda address, mean, rest, out, index: types.void(
        types.uint64, types.float64, types.float64, out, types.int64
    )
)
def put_deviations(block, address, mean, rest, out, index):
    """Write a tile of a column less its mean: out[index + r] = (column[r] - mean) - rest.

    address  IN   of the column's first float64 of the tile
    out      OUT  float64, from the flat index on
    """
    column = block.inttoptr(address, to.DOUBLE.as_pointer())
    mean, rest = (to.splat(block, value, _LANES) for value in (mean, rest))
    for v in range(VECTORS):
        value = block.fsub(_load(block, column, to.I64(0), v), mean)
        _store(block, block.fsub(value, rest), out.data, index, v)


def _products(block: Block, matrix: Any, at: Any, scratch: Any, first: Any, row: Any) -> Any:
    """Return four rows of the matrix times the deviations, for each vector."""
    totals = [to.variables(block, _LANES, VECTORS) for _ in range(4)]

    def add(column: Any, first: int) -> None:
        own = block.add(at, block.mul(column, to.I64(4)))
        place = _row_of_tiles(block, column)
        values = [_load(block, scratch.data, place, v) for v in range(VECTORS)]
        for line in range(first, 4):
            factor = block.load(block.gep(matrix.data, [block.add(own, to.I64(line))]))
            factor = to.splat(block, factor, _LANES)
            for value, total in zip(values, totals[line], strict=True):
                block.store(to.fma(block, factor, value, block.load(total)), total)

    with cgutils.for_range_slice(block, first, row, to.I64(1)) as (column, _):
        add(column, 0)
    for k in range(4):
        add(block.add(row, to.I64(k)), k)
    return [[block.load(total) for total in line] for line in totals]


def _of_rows(matrix: Any, at: Any, scratch: Any, *rows: Any) -> Any:
    return types.void(matrix, types.int64, scratch, *[types.int64] * len(rows))


@instruction(_of_rows)
def add_squares(block, matrix, at, scratch, first, row, to_row):
    """Add to scratch[to_row] the squares of four rows of the matrix times the deviations.

    matrix   IN   packed rows, these from `at` on
    scratch  OUT  (any, TILE) float64   the deviations from row 0 on
    first    IN   column of the matrix to begin with
    row      IN   first of the four rows
    """
    z = _products(block, matrix, at, scratch, first, row)
    place = _row_of_tiles(block, to_row)
    for v in range(VECTORS):
        total = _load(block, scratch.data, place, v)
        for line in z:
            total = to.fma(block, line[v], line[v], total)
        _store(block, total, scratch.data, place, v)


@instruction(_of_rows)
def put_products(block, matrix, at, scratch, first, row, to_row):
    """Write four rows of the matrix times the deviations: scratch[to_row + 0..3].

    Arguments as for `add_squares`.
    """
    for k, line in enumerate(_products(block, matrix, at, scratch, first, row)):
        place = _row_of_tiles(block, block.add(to_row, to.I64(k)))
        for v, value in enumerate(line):
            _store(block, value, scratch.data, place, v)


@instruction(
    lambda scratch, first, last, centre, at, to_row: types.void(
        scratch, types.int64, types.int64, centre, types.int64, types.int64
    )
)
def add_distances(block, scratch, first, last, centre, at, to_row):
    """Add to scratch[to_row] the squares of scratch[first:last] less a centre.

    centre  IN  float64, a number for each row, from the flat index `at` on
    """
    place = _row_of_tiles(block, to_row)
    totals = to.variables(block, _LANES, VECTORS)
    for v, total in enumerate(totals):
        block.store(_load(block, scratch.data, place, v), total)
    with cgutils.for_range_slice(block, first, last, to.I64(1)) as (row, _):
        index = block.add(at, block.sub(row, first))
        middle = to.splat(block, block.load(block.gep(centre.data, [index])), _LANES)
        for v, total in enumerate(totals):
            value = block.fsub(_load(block, scratch.data, _row_of_tiles(block, row), v), middle)
            block.store(to.fma(block, value, value, block.load(total)), total)
    for v, total in enumerate(totals):
        _store(block, block.load(total), scratch.data, place, v)


@instruction(lambda total, array, index, factor: total(total, array, types.int64, types.float64))
def add_scaled(block, total, array, index, factor):
    """Return total + factor * array[index + lane], of a flat array."""
    value = to.load_at(block, array.data, index, _LANES)
    return to.fma(block, value, to.splat(block, factor, _LANES), total)


@instruction(lambda a: a.dtype(a))
def _total(block, a):
    """Return the sum of the lanes, by halves."""
    return to.sum_by_halves(block, a)


@helper
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


@helper
def square(array, row, first):
    """Return the squared length of a row that is 0 before `first`."""
    return _dot(array, row, row, first)


@helper
def take_out(array, row, unit, first):
    """Make a row orthogonal to another of length 1 that is 0 before `first`."""
    width = array.shape[1]
    factor = -_dot(array, row, unit, first)
    for k in range(first // WIDTH * WIDTH, width, WIDTH):
        own = lanes.load(array, row * width + k, WIDTH)
        lanes.store(array, row * width + k, add_scaled(own, array, unit * width + k, factor))


@helper
def put_row(array, row, source, start):
    """Write array[row] = source[start], a row of a flat array of rows as wide."""
    width = array.shape[1]
    for k in range(0, width, WIDTH):
        lanes.store(array, row * width + k, lanes.load(source, start * width + k, WIDTH))


@helper
def shrink(array, row, divisor):
    """Divide a row by a number."""
    own = array[row]
    for k in range(own.size):
        own[k] /= divisor


@helper
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
