"""Rows without the values that others imply: one table look-up a row for each pair of features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.dispatch import kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U

_CODES = ("uint8", "uint16", "uint32")
SIGNATURES = {
    "replace": [(reads("uint32"), reads(y), reads("int64"), "int64", writes(y)) for y in _CODES]
}


def leave_out(
    x: NDArray[np.unsignedinteger],
    y: NDArray[np.unsignedinteger],
    implied: NDArray[np.int64],
    gap: int,
    out: NDArray[np.unsignedinteger],
) -> None:
    """Write gap where the value of one feature implies that of another: implied[x[r]] = y[r].

    x, y     IN   (n,) uint8 | uint16 | uint32 each
    implied  IN   (codes of x,) int64   code that each value implies, -1 for none
    gap      IN   code of what is left out
    out      OUT  (n,) as y   elsewhere unchanged
    """
    # Compiled for each width of x too, this would take three times as long to compile.
    replace(readonly(x.astype(np.uint32)), readonly(y), readonly(implied), gap, out)


@kernel
def replace(x, y, implied, gap, out):
    """Write gap where implied[x[r]] = y[r]; see `leave_out`."""
    for r in range(x.size):
        if implied[U(x[r])] == np.int64(y[r]):
            out[r] = gap
