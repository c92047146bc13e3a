"""Sums of products of columns, a tile of pairs of columns at a time in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from fastbayes.kernels.compiled import instructions as to
from fastbayes.kernels.compiled import vector
from fastbayes.kernels.compiled.instructions import instruction

# Rows in a vector, and columns along either side of a tile: their sums fill half the registers,
# which leaves room for the columns, and waits for no addition.
WIDTH = vector.WIDTH // 8
TILE = 4 if WIDTH == 8 else 3

_LANES = ir.VectorType(to.DOUBLE, WIDTH)


@instruction(
    lambda panel, a, b, root, n, sums, diagonal: types.void(
        panel, *[types.int64] * 4, sums, diagonal
    ),
    literal=True,
)
def sum_products(block, panel, a, b, root, n, sums, diagonal):
    """Write sums[s, t] = sum over n rows of the columns a + s and b + t of a panel, s, t < TILE.

    a, b      IN   flat index of the first row, in the first of TILE columns
    root      IN   flat index of the first row in the column of roots of weights
    n         IN   rows, a multiple of WIDTH
    sums      OUT  (TILE + 1, TILE) float64
    diagonal  IN   literal: a is b, only s >= t is written, and sums[TILE, t] is that with the roots
    panel     IN   (columns, rows) float64
    """
    pairs = [(s, t) for s in range(TILE) for t in range(s + 1 if diagonal else TILE)]
    pairs += [(TILE, t) for t in range(TILE)] * bool(diagonal)
    stride = cgutils.unpack_tuple(block, panel.shape)[1]
    firsts = [[a], [b]]
    for side in firsts:
        for _ in range(TILE - 1):
            side.append(block.add(side[-1], stride))
    totals = to.variables(block, _LANES, len(pairs))
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(WIDTH)) as (r, _):

        def column(first: Any) -> Any:
            return to.load_at(block, panel.data, block.add(first, r), _LANES)

        right = [column(first) for first in firsts[1]]
        left = [*right, column(root)] if diagonal else [column(first) for first in firsts[0]]
        for total, (s, t) in zip(totals, pairs, strict=True):
            block.store(to.fma(block, left[s], right[t], block.load(total)), total)
    for total, (s, t) in zip(totals, pairs, strict=True):
        place = block.gep(sums.data, [to.I64(s * TILE + t)])
        block.store(to.sum_by_halves(block, block.load(total)), place)


@instruction(
    lambda out, index, row, n, factor: types.void(out, types.int64, row, types.int64, types.float64)
)
def add_row(block, out, index, row, n, factor):
    """Add a vector of numbers, factor * row[k], to out[index + k], k < n, a multiple of WIDTH.

    row  IN   (>= n,) float64
    out  OUT  float64, from the flat index on
    """
    factors = to.splat(block, factor, _LANES)
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(WIDTH)) as (k, _):
        place, value = block.add(index, k), to.load_at(block, row.data, k, _LANES)
        total = to.fma(block, factors, value, to.load_at(block, out.data, place, _LANES))
        to.store_at(block, total, out.data, place)
