"""Numpy twins of `fastbayes.kernels.compiled.fitting.subsets`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints


def write_subset_sums(
    codes: NDArray[Any],
    sizes: Ints,
    weight: Floats,
    prefix: int,
    begin: int,
    most: int,
    most_cells: float,
    offsets: Floats,
    ess: float,
    out: Floats,
) -> None:
    """Write the sums of tables of sets of columns; see the compiled twin."""
    n = len(codes)
    chosen = [j for j in range(begin) if prefix >> j & 1]
    if len(chosen) > most:
        return

    def visit(code: Ints, cells: float, mask: int, count: int, after: int) -> None:
        table = np.bincount(code, weights=weight)
        bounds = np.array([0, len(table)])
        asked = np.where(offsets == 0, ess / cells, offsets)[None, :]
        sums = np.zeros((1, len(offsets)))
        add_set_sums(table, bounds, asked, sums)
        out[:, mask] = sums[0]
        if count < most:
            for u in range(after, n):
                if cells * float(sizes[u]) > most_cells:
                    continue
                joint = code * sizes[u] + codes[u]
                numbers = np.unique(joint, return_inverse=True)[1].reshape(-1)
                visit(numbers, cells * float(sizes[u]), mask | 1 << u, count + 1, u + 1)

    code, cells = np.zeros(codes.shape[1], np.int64), 1.0
    for j in chosen:
        code = np.unique(code * sizes[j] + codes[j], return_inverse=True)[1].reshape(-1)
        cells *= float(sizes[j])
    if cells <= most_cells:
        visit(code, cells, prefix, len(chosen), begin)


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
