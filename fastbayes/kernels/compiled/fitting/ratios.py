"""Counts of the values of columns as shares of each column's rows, smoothed."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.dispatch import kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints, U

_FLOAT, _INT = "float64", "int64"
SIGNATURES = {
    "write_totals": [(reads(_FLOAT, 3), reads(_INT), writes(_FLOAT, 3))],
    "write_ratios": [
        (
            *(*[reads(_FLOAT, 3)] * 2, *[reads(_FLOAT)] * 2, reads(_INT)),
            *(writes(_FLOAT), writes(_FLOAT, 3)),
        )
    ],
}


def totals(n: Floats, bounds: Ints) -> Floats:
    """Return the sums of runs of cells; see the numpy twin."""
    found = np.empty((len(n), len(bounds) - 1, n.shape[2]))
    write_totals(readonly(n), readonly(bounds), found)
    return found


def ratios(n: Floats, total: Floats, mass: Floats, cells: Floats, bounds: Ints) -> Floats:
    """Return smoothed shares of runs of cells; see the numpy twin."""
    found = np.empty(n.shape)
    given = n, total, mass, cells, bounds
    write_ratios(*(readonly(part) for part in given), np.empty(n.shape[2]), found)
    return found


@kernel
def write_totals(n, bounds, out):
    """Write out[r, d, c] = Σ n[r, i, c] over the cells i of a run.

    n       IN   (n_rows, n_cells, n_classes) float64
    bounds  IN   (n_runs + 1,) int64   run d is of the cells [bounds[d], bounds[d + 1])
    out     OUT  (n_rows, n_runs, n_classes) float64
    """
    for r in range(n.shape[0]):
        for d in range(bounds.size - 1):
            total = out[r, d]
            for c in range(total.size):
                total[c] = 0.0
            for i in range(bounds[d], bounds[d + 1]):
                own = n[r, i]
                for c in range(total.size):
                    total[c] += own[c]


@kernel
def write_ratios(n, total, mass, cells, bounds, whole, out):
    """Write out[r, i, c] = (n[r, i, c] + mass[d]) / (total[r, d, c] + cells[d] mass[d]).

    n       IN   (n_rows, n_cells, n_classes) float64
    total   IN   (n_rows, n_runs, n_classes) float64
    mass    IN   (n_runs,) float64
    cells   IN   (n_runs,) float64   1/max(cells, 1) is what 0/0 is
    bounds  IN   (n_runs + 1,) int64   run d is of the cells [bounds[d], bounds[d + 1])
    whole   OUT  (n_classes,) float64   scratch
    out     OUT  (n_rows, n_cells, n_classes) float64
    """
    k = U(n.shape[2])
    x, out_ = n.reshape(-1), out.reshape(-1)
    at = U(0)
    for r in range(n.shape[0]):
        for d in range(bounds.size - 1):
            more, some = cells[d] * mass[d], True
            for c in range(k):
                whole[c] = total[r, d, c] + more
                some &= whole[c] > 0.0
            for _ in range(bounds[d], bounds[d + 1]):
                for c in range(k):
                    out_[at + c] = (x[at + c] + mass[d]) / whole[c]
                if not some:
                    for c in range(k):
                        if not whole[c] > 0.0:
                            out_[at + c] = 1.0 / max(cells[d], 1.0)
                at += k
