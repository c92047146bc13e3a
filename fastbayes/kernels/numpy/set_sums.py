"""Numpy twin of `fastbayes.kernels.compiled.set_sums`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats


def add_set_sums(
    counts: NDArray[Any], bounds: NDArray[np.int64], offsets: Floats, out: Floats
) -> None:
    """Add the sums over the cells of tables that scores are made of; see the compiled twin."""
    for s, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        n = counts[begin:end]
        n = n[n > 0].astype(np.float64)
        for t, a in enumerate(offsets[s].tolist()):
            if a < 0:
                out[s, t] += float((n * np.log(n)).sum())
            else:
                base = math.lgamma(a)
                out[s, t] += math.fsum(math.lgamma(x + a) - base for x in n.tolist())
