"""How wide byte vectors are inside kernels, and what they ask of memory ahead."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
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


def prefetch_at(block: Block, pointer: Any, write: bool = False, level: int = 1) -> None:
    """Ask for what is at a pointer, which need not exist, to be brought to a level of the cache."""
    pointer = block.bitcast(pointer, to.BYTE.as_pointer())
    flags = to.I32(int(write)), to.I32(4 - level), to.I32(1)
    to.call(block, "llvm.prefetch.p0", ir.VoidType(), pointer, *flags)


@instruction(lambda array, index: types.void(array, types.uint64))
def prefetch(block, array, index):
    """Ask for array[index] (uint64 index) to be brought near, to be written."""
    prefetch_at(block, block.gep(array.data, [index]), True)
