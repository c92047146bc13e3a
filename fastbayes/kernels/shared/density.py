"""Curves in pieces, and which points matter to a sum of normal kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints

# Place, bounds, ends and rows of a curve: see `add_curve`.
Pieces = tuple[Floats, NDArray[np.uint32], Floats, Floats]
# Numbers further from the centre than so many scales are taken to be there: squares are finite.
FARTHEST = 1e100
# Buckets for each doubling of 1 + the distance from the centre: 2^10, so that most hold one piece.
BUCKET_BITS = 10
# Kernels whose share is below e^-REACH of the nearest one's are left out of a sum.
REACH = 40.0


def windows(
    points: Floats, weight: Floats, bandwidth: float, queries: Floats, own: Ints, less: Floats
) -> tuple[Ints, Ints, Floats]:
    """Return which points matter to each query, [left, right), and how far the nearest one is.

    Parameters
    ----------
    points, weight, bandwidth, queries, own, less
        As in `log_sums`.
    """
    at = np.searchsorted(points, queries)
    last = len(points) - 1
    gone = (own >= 0) & (weight[own] - less <= 0)
    below, above = at - 1, at.copy()
    below = np.where(gone & (below == own), below - 1, below)
    above = np.where(gone & (above == own), above + 1, above)
    far = np.full(len(queries), np.inf)
    to_below = np.where(below >= 0, queries - points[np.maximum(below, 0)], far)
    to_above = np.where(above <= last, points[np.minimum(above, last)] - queries, far)
    apart = np.minimum(to_below, to_above)
    reach = np.sqrt(apart * apart + 2 * REACH * bandwidth * bandwidth)
    known = np.isfinite(apart)
    left = np.searchsorted(points, queries - np.where(known, reach, 0.0), side="left")
    right = np.searchsorted(points, queries + np.where(known, reach, 0.0), side="right")
    nearest = np.where(to_below <= to_above, below, above)
    # However the reach was rounded, the nearest point is in.
    left = np.where(known, np.minimum(left, nearest), 0)
    right = np.where(known, np.maximum(right, nearest + 1), 1)
    return left.astype(np.int64), right.astype(np.int64), apart


def odds_of_curve(curve: Pieces) -> Pieces:
    """Return the curve of the second of two classes less that of the first.

    ±inf where one class is impossible, NaN where both are: only the constants tell.
    """
    place, bounds, ends, rows = curve
    table = rows.reshape(len(ends), -1)
    with np.errstate(invalid="ignore"):
        apart = table[:, 5:9] - table[:, 1:5]
    return place, bounds, ends, np.column_stack([table[:, :1], apart]).reshape(-1)
