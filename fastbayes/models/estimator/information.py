"""What columns tell of the class, alone and in pairs, from counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.information import class_pairs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.statistics.pair_counts import PairCounts, PairLayout

Ints = NDArray[np.int64]


def class_information(counts: NDArray[Any], offsets: Ints, sizes: Ints) -> Floats:
    """Return the mutual information I(X_j; C) of each feature with the class, (m,) in nats.

    counts   (n_slots, n_classes) counts of values, int64 or float64
    offsets  (m + 1,) first slot of each feature
    sizes    (m,) values of each feature; its further slots (missing) are left out
    """
    out = np.zeros(len(sizes))
    dispatch.numpy_twin("fitting.information").pair_information(
        *class_pairs(counts, offsets, sizes), out
    )
    return out


def interaction_information(pairs: PairCounts, *, as_value: bool) -> Floats:
    """Return what two columns tell of the class only together, as far as it is no chance.

    (n_pairs,) N [I(X_i; X_j | C) - I(X_i; X_j)] - (K - 1)(S_i - 1)(S_j - 1) / 2 in nats, of the N
    rows in which both are known; what is subtracted is what counts of nothing but chance come to.
    Below 0 where two columns repeat each other. `as_value`: a missing value is a value of its own.

    References
    ----------
    Jakulin, Bratko (2004), Testing the significance of attribute interactions, ICML, eq. 4;
    McGill (1954), Multivariate information transmission, Psychometrika 19.
    """
    layout = pairs.layout
    sizes = layout.sizes + (layout.missing if as_value else 0)
    places = layout.first, layout.second
    found = np.zeros((2, len(layout.first)))
    kernel = dispatch.load("fitting.information", float(layout.total)).pair_information
    kernel(pairs.flat, *places, layout.starts, sizes, layout.widths, layout.n_classes, found[0])
    margin = np.ascontiguousarray(pairs.flat.reshape(-1, layout.n_classes).sum(axis=1))
    starts = layout.starts // layout.n_classes
    kernel(margin, *places, starts, sizes, layout.widths, 1, found[1])
    n_rows = _rows_of(layout, margin, sizes)
    free = np.maximum(sizes - 1, 0)
    chance = (layout.n_classes - 1) * free[places[0]] * free[places[1]] / 2
    return np.asarray(n_rows * (found[0] - found[1]) - chance)


def _rows_of(layout: PairLayout, margin: NDArray[Any], sizes: Ints) -> NDArray[Any]:
    """Return the rows in which both features of each pair are known, (n_pairs,).

    margin  (n_cells,) counts of all classes together
    sizes   (m,) values of each feature
    """
    found, there = np.zeros(len(layout.members), margin.dtype), layout.cells > 0
    starts = layout.starts // layout.n_classes
    if there.any():
        found[there] = np.add.reduceat(margin, starts[there])
    gap = layout.widths > sizes
    for q in np.flatnonzero(gap[layout.first] | gap[layout.second]).tolist():
        (i, j), at = layout.members[q], starts[q]
        block = margin[at : at + layout.cells[q]].reshape(layout.shapes[q])
        found[q] = block[: sizes[i], : sizes[j]].sum()
    return found
