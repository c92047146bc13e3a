"""Sums over the cells of tables of counts: what the scores of families are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.dispatch import kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats

SIGNATURES = {
    "sum_cells": [
        (reads(count), reads("int64"), reads("float64", 2), writes("float64", 2))
        for count in ("int64", "float64")
    ]
}


def add_set_sums(
    counts: NDArray[Any], bounds: NDArray[np.int64], offsets: Floats, out: Floats
) -> None:
    """Add the sums over the cells of tables that scores are made of.

    out[s, t] += Σ n ln n where a = offsets[s, t] < 0, else Σ lnΓ(n + a) - lnΓ(a), sums over the
    cells n > 0 of table s.

    counts   IN   int64 | float64   the tables, end to end
    bounds   IN   (n_tables + 1,) int64   where each begins
    offsets  IN   (n_tables, n_sums) float64   not 0
    out      OUT  (n_tables, n_sums) float64
    """
    sum_cells(readonly(counts), readonly(bounds), readonly(offsets), out)


@kernel
def sum_cells(counts, bounds, offsets, out):
    """Add Σ n ln n or Σ lnΓ(n + a) - lnΓ(a) over the cells of each table: see `add_set_sums`."""
    for s in range(out.shape[0]):
        cells = counts[bounds[s] : bounds[s + 1]]
        for t in range(out.shape[1]):
            a = offsets[s, t]
            total = 0.0
            if a < 0.0:
                for n in cells:
                    if n > 0:
                        total += n * math.log(n)
            else:
                base = math.lgamma(a)
                for n in cells:
                    if n > 0:
                        total += math.lgamma(n + a) - base
            out[s, t] += total
