"""Information between features, and of features about the class, in numpy.

The twin of `compiled.information`. Information is a sum of differences that nearly cancel where
features are nearly independent, which is the usual case. So it is summed in a form without
cancellation: with o the count of a cell and e the one that independence within the class expects,

    N I(X_i; X_j | C) = Σ o ln(o / e) = Σ [o ln(o / e) - (o - e)],

every term of which is >= 0, and is computed from o - e, an exact integer over n(c).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.information import NOTHING, ROUNDING, by_shape

# Entries of so many pairs at a time: their temporaries stay within the second-level cache.
ENTRIES = 32_768


# Where |s| = |o - e| / (o + e) <= NEAR, the logarithm is a series of s, Σ s^(2k) / (2k + 3).
NEAR = 0.1
SERIES = tuple(1 / (2 * k + 3) for k in range(8))


def pair_information(
    flat: NDArray[Any],
    first: Ints,
    second: Ints,
    starts: Ints,
    sizes: Ints,
    widths: Ints,
    n_classes: int,
    out: Floats,
) -> None:
    """Compute the conditional mutual information of pairs from their unsmoothed counts.

    out[q] = Σ_abc n_abc / n ln(n_abc n_c / (n_ac n_bc)), sums over the rows of pair q = (i, j) in
    which both features are known; 0 where there are none.

    Parameters
    ----------
    flat
        int64 or float64: n(c, i=a, j=b) = flat[starts[q] + (a widths[j] + b) n_classes + c].
    first, second, starts
        (n_pairs,) features i and j of each pair, in any order, and the first entry of its block.
    sizes
        (m,) number of values S_j of each feature.
    widths
        (m,) width of each feature's side of a block, S_j or more: what lies beyond is not known.
    n_classes
        K. With one class, of counts summed over the classes, the result is I(X_i; X_j).
    out
        (n_pairs,) nats, written.

    Notes
    -----
    The relative error is a few units of rounding also where the information is small, so that
    pairs that are equal on paper compare as equal at 1e-12 whatever the order of columns, values
    and classes.
    """
    for alike in by_shape(first, second, sizes, widths):
        i, j = first[alike[0]], second[alike[0]]
        if sizes[i] == 0 or sizes[j] == 0:
            out[alike] = 0.0
            continue
        rows = np.arange(sizes[i])[:, None] * widths[j] + np.arange(sizes[j])
        entries = rows[:, :, None] * n_classes + np.arange(n_classes)
        step = max(1, ENTRIES // max(1, entries.size))  # of no class there are no entries
        for b in range(0, len(alike), step):
            some = alike[b : b + step]
            out[some] = _information(flat[starts[some][:, None, None, None] + entries])


def _information(n: NDArray[Any]) -> Floats:
    """Return I(A; B | C) of each of the (n_pairs, S_a, S_b, K) tables of counts."""
    if n.dtype == np.float64:
        # A power of two keeps products within range; a retraction of weights can leave -1e-17.
        n = np.ldexp(n, -np.frexp(n.sum(axis=(1, 2, 3), keepdims=True))[1])
        n[n < NOTHING] = 0.0
    n_ac, n_bc = n.sum(axis=2, keepdims=True), n.sum(axis=1, keepdims=True)
    n_c = n_ac.sum(axis=1, keepdims=True)
    # o and e, both times n_c.
    observed = n.astype(np.float64) * n_c
    expected = n_ac.astype(np.float64) * n_bc
    difference = observed - expected
    with np.errstate(divide="ignore", invalid="ignore"):
        if n.dtype == np.int64:
            # Both products may wrap around: their difference is exact where it is below 2^63.
            exact = (n * n_c - n_ac * n_bc).astype(np.float64)
            difference = np.where(np.abs(difference) < 2.0**62, exact, difference)
        share = difference / (observed + expected)
        if n.dtype == np.float64:
            share[np.abs(share) < ROUNDING] = 0.0
        square = share * share
        series = np.full_like(square, SERIES[-1])
        for coefficient in SERIES[-2::-1]:
            series *= square
            series += coefficient
        near = difference * share * (1 + (1 + share) * share * series)
        far = np.where(n > 0, observed * np.log(observed / expected), 0.0) - difference
        terms = np.where(np.abs(share) <= NEAR, near, far) / n_c
        total = n_c.sum(axis=(1, 2, 3))
        information = np.where(n_c > 0, terms, 0.0).sum(axis=(1, 2, 3)) / total
    return np.asarray(np.where(total > 0, information, 0.0))
