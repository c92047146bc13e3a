"""Numpy twin of `fastbayes.kernels.compiled.fitting.ratios`."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.arrays import Floats, Ints


def totals(n: Floats, bounds: Ints) -> Floats:
    """Return the sums of runs of cells, (n_rows, n_runs, n_classes).

    n       (n_rows, n_cells, n_classes)
    bounds  (n_runs + 1,) run d is of the cells [bounds[d], bounds[d + 1]), and has one at least
    """
    return np.asarray(np.add.reduceat(n, bounds[:-1], axis=1))


def ratios(n: Floats, total: Floats, mass: Floats, cells: Floats, bounds: Ints) -> Floats:
    """Return (n + mass) / (total + cells mass) of runs of cells, 0/0 as 1/cells, shaped like n.

    total        (n_rows, n_runs, n_classes)
    mass, cells  (n_runs,)
    """
    k, of = n.shape[-1], np.repeat(np.arange(len(cells)), np.diff(bounds))
    whole = (total + (cells * mass)[:, None]).reshape(len(n), len(cells) * k)
    # Of few classes, which are not worth a loop of their own, all cells are one axis.
    below = whole.take((of[:, None] * k + np.arange(k)).ravel(), axis=1)
    table = n.reshape(len(n), len(of) * k) + np.repeat(mass[of], k)
    with np.errstate(divide="ignore", invalid="ignore"):
        table /= below
    if not (whole > 0).all():
        limit = 1.0 / np.maximum(cells, 1)
        table = np.where(below > 0, table, np.repeat(limit[of], k))
    return table.reshape(n.shape)
