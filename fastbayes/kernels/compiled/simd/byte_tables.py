"""Bytes looked up in a table within registers, where the processor has a shuffle for it.

Elsewhere a few entries are compared with every byte, many bytes at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import instruction
from fastbayes.kernels.dispatch import helper
from fastbayes.kernels.shared.codes import FEW_ENTRIES

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

_ROW = ir.VectorType(to.BYTE, ENTRIES)
_BYTES = ir.VectorType(to.BYTE, vector.WIDTH)


@instruction(
    lambda places, n, table, at, n_entries, out: types.void(
        places, types.int64, table, types.int64, types.int64, out
    )
)
def _shuffled(block, places, n, table, at, n_entries, out):
    def chosen(first: Any, low: Any) -> Any:
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


@helper
def _compared(places, n, table, at, n_entries, out):
    if n_entries > FEW_ENTRIES:
        for r in range(n):
            out[r] = table[at + places[r]]
    else:
        code = table[at]
        for r in range(n):
            out[r] = code
        for k in range(1, n_entries):
            entry, code = np.uint8(k), table[at + k]
            for r in range(n):
                out[r] = code if places[r] == entry else out[r]


# look_up(places, n, table, at, n_entries, out) writes out[r] = table[at + places[r]], r < n, a
# multiple of 64; a place n_entries, which is beyond, is given the next entry or the first. Bytes up
# to a multiple of ENTRIES are there, whatever they hold.
look_up = _shuffled if _SHUFFLE else _compared
