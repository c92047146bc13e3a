"""Planes of the bits of byte codes, and how often values and classes meet in them.

Plane k holds bit k of every code. Codes are turned eight vectors at a time, as many matrices of
8 x 8 bits as a vector has lanes: of a group of rows, row r stands in bit r // WIDTH of byte
r % WIDTH. That order matters to nobody who counts, as long as all planes share it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.bits import LANES
from fastbayes.kernels.compiled.simd.instructions import Block, instruction


def _counts() -> bool:
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return "+avx512vpopcntdq" in features


# Whether the processor counts the bits of a vector of words by one instruction; others take eight.
COUNTS = _counts() if vector.AVAILABLE else False

# Rows that are turned at once: LANES words of each plane.
GROUP = 8 * vector.WIDTH

_BYTES = ir.VectorType(to.BYTE, vector.WIDTH)
_PAIRS = ir.VectorType(to.I16, vector.WIDTH // 2)  # bytes have no shifts on some processors
_WORDS = ir.VectorType(to.I64, LANES)
_INT = types.int64


def _masked(block: Block, a: Any, mask: int) -> Any:
    """Return the bits of bytes under a mask."""
    return block.and_(a, to.constant(_PAIRS, 257 * mask))


def _exchanged(block: Block, rows: list[Any], by: int) -> list[Any]:
    """Exchange bits `by` places apart between rows that many apart, in every square of rows."""
    low = {1: 0x55, 2: 0x33, 4: 0x0F}[by]
    result = list(rows)
    for i in range(len(rows)):
        if i & by:
            continue
        a, b, shift = rows[i], rows[i + by], to.constant(_PAIRS, by)
        up = block.shl(_masked(block, b, low), shift)
        down = block.lshr(_masked(block, a, 255 - low), shift)
        result[i] = block.or_(_masked(block, a, low), up)
        result[i + by] = block.or_(down, _masked(block, b, 255 - low))
    return result


def _joined(block: Block, rows: list[Any], by: int) -> list[Any]:
    """Put the codes of the second half of the rows, of `by` bits, above those of the first."""
    half = len(rows) // 2
    above = (block.shl(row, to.constant(_PAIRS, by)) for row in rows[half:])
    return [block.or_(a, b) for a, b in zip(rows[:half], above, strict=True)]


def _turned(block: Block, rows: list[Any], n_bits: int) -> list[Any]:
    """Return the planes of eight vectors of codes of 1, 2, 4 or 8 bits.

    The codes of rows that stand n_bits, twice n_bits ... apart are put into the same bytes; then
    squares of n_bits x n_bits bits are left to transpose.
    """
    by = 4
    while by >= n_bits:
        rows = _joined(block, rows, by)
        by //= 2
    while by:
        rows = _exchanged(block, rows, by)
        by //= 2
    return rows


@instruction(
    lambda x, n, out, at, stride, n_bits: types.void(x, _INT, out, _INT, _INT, n_bits),
    literal=True,
)
def split(block, x, n, out, at, stride, n_bits):
    """Write the planes of codes: bits of x[r] for each group of rows, LANES words of each plane.

    Plane k is out[at + k * stride : ...]; n is a multiple of GROUP, n_bits a literal 1, 2, 4, 8.

    x    IN   (n,) uint8   below 2 ** n_bits
    out  OUT  flat uint64
    """
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(GROUP)) as (r, _):
        rows = []
        for k in range(8):
            first = block.add(r, to.I64(k * vector.WIDTH))
            vector.prefetch_at(block, block.gep(x.data, [block.add(first, to.I64(vector.AHEAD))]))
            rows.append(block.bitcast(to.load_at(block, x.data, first, _BYTES, 1), _PAIRS))
        word = block.add(at, block.lshr(r, to.I64(6)))
        for k, plane in enumerate(_turned(block, rows, n_bits)):
            place = block.add(word, block.mul(stride, to.I64(k)))
            to.store_at(block, block.bitcast(plane, _WORDS), out.data, place)


@instruction(
    lambda planes, high, stride, classes, first, n, sums, cell, step, values, wide: types.void(
        *(planes, _INT, _INT, classes, _INT, _INT, sums, _INT, _INT, values, wide)
    ),
    literal=True,
)
def add_meetings(block, planes, high, stride, classes, first, n, sums, cell, step, values, wide):
    """Count the rows of the first values of a square of four, with each of some classes.

    Lanes of sums[cell + v * step + c] += rows with value v and class c. Value v has bit 0 as in
    planes[w] and bit 1 as in planes[stride + w], where planes[high + w] says that its other bits
    are as they should be; class c is classes[first + c * stride + w]; w < n, a multiple of LANES.
    `values` and `wide`, the number of classes, are literals.

    planes, classes  IN   flat uint64
    sums             OUT  flat int64, LANES for each cell
    """
    totals = [to.variables(block, _WORDS, wide) for _ in range(values)]
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(LANES)) as (w, _):

        def load(array: Any, start: Any) -> Any:
            return to.load_at(block, array.data, block.add(start, w), _WORDS)

        one, two = load(planes, to.I64(0)), load(planes, stride)
        rest = load(planes, high)
        not_one = block.not_(one)
        without = block.and_(rest, block.not_(two))
        within = block.and_(rest, two)
        rows = [block.and_(half, bit) for half in (without, within) for bit in (not_one, one)]
        for c in range(wide):
            members = load(classes, block.add(first, block.mul(stride, to.I64(c))))
            for v in range(values):
                both = block.and_(rows[v], members)
                count = to.call(block, f"llvm.ctpop.v{LANES}i64", _WORDS, both)
                block.store(block.add(block.load(totals[v][c]), count), totals[v][c])
    for v in range(values):
        for c in range(wide):
            place = block.add(cell, block.add(block.mul(step, to.I64(v)), to.I64(c)))
            place = block.mul(place, to.I64(LANES))
            total = block.add(to.load_at(block, sums.data, place, _WORDS), block.load(totals[v][c]))
            to.store_at(block, total, sums.data, place)
