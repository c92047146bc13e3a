"""Byte vectors inside kernels.

`sum_minima` is the inner loop of counting without memory access: see its docstring for why the
sums of minima are counts. Two operations (minimum, add) per vector and threshold beat compare
and subtract, which costs three with mask registers. Loads are unaligned.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import Block, instruction
from fastbayes.kernels.dispatch import interpreted

AVAILABLE = not interpreted()


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

_VECTOR = ir.VectorType(to.BYTE, WIDTH)
_PAIRS = ir.VectorType(to.I16, WIDTH // 2)


def _prefetch(block: Block, pointer: Any, write: bool) -> None:
    pointer = block.bitcast(pointer, to.BYTE.as_pointer())
    flags = to.I32(int(write)), to.I32(3), to.I32(1)
    to.call(block, "llvm.prefetch.p0", ir.VoidType(), pointer, *flags)


@instruction(lambda array, index: types.void(array, types.uint64))
def prefetch(block, array, index):
    """Ask for array[index] (uint64 index) to be brought near, to be written."""
    _prefetch(block, block.gep(array.data, [index]), True)


@instruction(
    lambda x, shift, n, limits, first, sums, passes: types.void(
        x, shift, types.int64, limits, types.int64, sums, passes
    ),
    literal=True,
)
def sum_minima(block, x, shift, n, limits, first, sums, passes):
    """Add min(x[r] + shift[r], limits[t]) to lane r % WIDTH of row t of sums, modulo 256.

    For t in [first, first + passes), `passes` a literal; n is a multiple of WIDTH.

    min(z, l) - min(z, l - 1) is 1 where z >= l, else 0. So the difference of lanes of the rows
    of two neighbouring limits, modulo 256, is the number of rows with z >= l, exactly, as long
    as a lane has seen at most 255 rows, however often the sums themselves have wrapped.

    x, shift  IN   (n,) uint8
    limits    IN   (>= first + passes,) uint8
    sums      OUT  (>= first + passes, WIDTH) uint8
    """
    rows = [block.add(first, to.I64(t)) for t in range(passes)]
    splats = [to.splat(block, block.load(block.gep(limits.data, [row])), _VECTOR) for row in rows]
    places = [block.mul(row, to.I64(WIDTH)) for row in rows]
    totals = to.variables(block, _VECTOR, passes)
    for total, place in zip(totals, places, strict=True):
        block.store(to.load_at(block, sums.data, place, _VECTOR, 1), total)
    with cgutils.for_range_slice(block, to.I64(0), n, to.I64(WIDTH)) as (r, _):
        _prefetch(block, block.gep(x.data, [block.add(r, to.I64(AHEAD))]), False)
        z = block.add(*(to.load_at(block, array.data, r, _VECTOR, 1) for array in (x, shift)))
        for total, limit in zip(totals, splats, strict=True):
            least = block.select(block.icmp_unsigned("<", z, limit), z, limit)
            block.store(block.add(block.load(total), least), total)
    for total, place in zip(totals, places, strict=True):
        to.store_at(block, block.load(total), sums.data, place, 1)


@instruction(lambda sums, row: types.int64(sums, types.int64))
def sum_steps(block, sums, row):
    """Return the sum over lanes of sums[row] - sums[row - 1], each modulo 256.

    sums  IN   (n, WIDTH) uint8
    """
    place = block.mul(row, to.I64(WIDTH))
    places = place, block.sub(place, to.I64(WIDTH))
    steps = block.sub(*(to.load_at(block, sums.data, at, _VECTOR, 1) for at in places))
    # In 16-bit lanes, which cannot overflow: a third of the code of 64-bit ones.
    pairs = block.bitcast(steps, _PAIRS)
    low = block.and_(pairs, to.constant(_PAIRS, 255))
    both = block.add(low, block.lshr(pairs, to.constant(_PAIRS, 8)))
    name = f"llvm.vector.reduce.add.v{_PAIRS.count}i16"
    return block.zext(to.call(block, name, to.I16, both), to.I64)
