"""Bytes looked up in a table within registers, where the processor has a shuffle for it."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import instruction

# Entries among which one instruction chooses.
ENTRIES = 16


def _shuffle() -> str:
    """Return LLVM's name of what shuffles the bytes of every 16 in a vector; "" if not there."""
    if not vector.AVAILABLE:
        return ""
    if vector.WIDTH == 64:
        return "llvm.x86.avx512.pshuf.b.512"
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return "llvm.x86.avx2.pshuf.b" if "+avx2" in features else ""


_SHUFFLE = _shuffle()
AVAILABLE = bool(_SHUFFLE)

_ROW = ir.VectorType(to.BYTE, ENTRIES)
_BYTES = ir.VectorType(to.BYTE, vector.WIDTH)


@instruction(
    lambda places, n, table, at, n_entries, out: types.void(
        places, types.int64, table, types.int64, types.int64, out
    )
)
def look_up(block, places, n, table, at, n_entries, out):
    """Write out[r] = table[at + places[r]], r < n, where AVAILABLE.

    places  IN   (n,) uint8   below n_entries; n is a multiple of WIDTH
    table   IN   (>= at + n_entries rounded up to ENTRIES,) uint8
    out     OUT  (n,) uint8
    """

    def chosen(first: object, low: object) -> object:
        row = to.load_at(block, table.data, block.add(at, first), _ROW, 1)
        row = to.pick(block, row, row, [lane % ENTRIES for lane in range(vector.WIDTH)])
        return to.call(block, _SHUFFLE, _BYTES, row, low)

    step = to.I64(vector.WIDTH)
    with cgutils.for_range_slice(block, to.I64(0), n, step) as (r, _):
        place = to.load_at(block, places.data, r, _BYTES, 1)
        low = block.and_(place, to.constant(_BYTES, ENTRIES - 1))
        high = block.and_(place, to.constant(_BYTES, 256 - ENTRIES))
        code = cgutils.alloca_once_value(block, chosen(to.I64(0), low))
        rows = cgutils.for_range_slice(block, to.I64(ENTRIES), n_entries, to.I64(ENTRIES))
        with rows as (first, _):
            here = to.splat(block, block.trunc(first, to.BYTE), _BYTES)
            here = block.icmp_unsigned("==", high, here)
            block.store(block.select(here, chosen(first, low), block.load(code)), code)
        to.store_at(block, block.load(code), out.data, r, 1)
