"""Numpy twins of `fastbayes.kernels.compiled.reading.bins`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def assign(
    values: NDArray[np.float64],
    cuts: NDArray[np.float64],
    missing: int,
    out: NDArray[np.unsignedinteger],
) -> None:
    """Write the bin of each number; see the compiled twin."""
    out[:] = np.searchsorted(cuts, values, side="left")
    out[np.isnan(values)] = missing
