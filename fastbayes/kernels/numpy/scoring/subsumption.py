"""Numpy twin of `fastbayes.kernels.compiled.scoring.subsumption`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def leave_out(
    x: NDArray[np.unsignedinteger],
    y: NDArray[np.unsignedinteger],
    implied: NDArray[np.int64],
    gap: int,
    out: NDArray[np.unsignedinteger],
) -> None:
    """Write gap where the value of one feature implies that of another; see the compiled twin."""
    out[implied[x] == y] = gap
