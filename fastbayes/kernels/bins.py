"""Bins of numbers between ascending cut points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes._jit import kernel, readonly, reads, writes

_CODES = ("uint8", "uint16", "uint32")

SIGNATURES = {
    "search": [(reads("float64"), reads("float64"), reads(code), writes(code)) for code in _CODES],
}


def assign(
    values: NDArray[np.float64],
    cuts: NDArray[np.float64],
    missing: int,
    out: NDArray[np.unsignedinteger],
) -> None:
    """Write the bin of each number: out[r] is how many cuts lie below values[r].

    values   IN   (n,) float64, NaN where missing
    cuts     IN   (n_cuts,) float64 ascending
    missing  IN   code of NaN
    out      OUT  (n,) uint8 | uint16 | uint32
    """
    code = readonly(np.full(1, missing, out.dtype))
    search(readonly(values), readonly(cuts), code, out)


@kernel
def search(values, cuts, missing, out):
    """Binary search without branches: out[r] = #{k: cuts[k] < values[r]}.

    values   IN   (n,) float64
    cuts     IN   (n_cuts,) float64 ascending
    missing  IN   (1,) code of NaN
    out      OUT  (n,) uint8 | uint16 | uint32
    """
    for r in range(values.size):
        x = values[r]
        first, size = np.uint64(0), np.uint64(cuts.size)
        while size > np.uint64(0):
            half = (size + np.uint64(1)) >> np.uint64(1)
            first = first + half if cuts[first + half - np.uint64(1)] < x else first
            size -= half
        out[r] = missing[0] if np.isnan(x) else first
