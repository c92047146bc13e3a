"""Sums of normal kernels, and curves in pieces, in numpy: the twin of `compiled.density`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.density import FARTHEST, windows

# Pairs of query and point at a time.
CHUNK = 1 << 21


def log_sums(
    points: Floats, weight: Floats, bandwidth: float, queries: Floats, own: Ints, less: Floats
) -> tuple[Floats, Floats]:
    """Return ln sum_i w_i exp(-(q - p_i)²/2h²) of each query, and its derivative by q.

    Parameters
    ----------
    points
        (n,) ascending.
    weight
        (n,) above 0.
    bandwidth
        h.
    queries
        (m,) numbers.
    own
        (m,) the point that has less weight for a query, -1 for none.
    less
        (m,) how much less; up to all of it.

    Returns
    -------
    tuple
        (m,) each; -inf and 0 where no weight is left.
    """
    value, slope = np.full(len(queries), -np.inf), np.zeros(len(queries))
    if not len(points):
        return value, slope
    left, right, apart = windows(points, weight, bandwidth, queries, own, less)
    first = 0
    ends = np.cumsum(right - left)
    while first < len(queries):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + CHUNK, side="right")), first + 1)
        some = slice(first, last)
        value[some], slope[some] = _sums(
            *(points, weight, bandwidth, queries[some], own[some], less[some]),
            *(left[some], right[some], apart[some]),
        )
        first = last
    return value, slope


def _sums(
    points: Floats,
    weight: Floats,
    bandwidth: float,
    queries: Floats,
    own: Ints,
    less: Floats,
    left: Ints,
    right: Ints,
    apart: Floats,
) -> tuple[Floats, Floats]:
    length = right - left
    start = np.cumsum(length) - length
    which = np.repeat(np.arange(len(queries)), length)
    index = np.arange(len(which)) - np.repeat(start - left, length)
    w = weight[index]
    mine = index == own[which]
    w[mine] -= less[which[mine]]
    off = points[index] - queries[which]
    nearest = np.where(np.isfinite(apart), apart, 0.0)[which]
    scale = 1 / (2 * bandwidth * bandwidth)
    share = w * np.exp(-np.maximum((np.abs(off) - nearest) * (np.abs(off) + nearest), 0.0) * scale)
    total, moment = np.add.reduceat(share, start), np.add.reduceat(share * off, start)
    alone = ~np.isfinite(apart)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(total) - np.where(alone, 0.0, apart) ** 2 * scale
        slope = moment / total * (2 * scale)
    return np.where(alone, -np.inf, value), np.where(alone, 0.0, slope)


def add_curve(
    x: Floats, place: Floats, bounds: NDArray[np.uint32], ends: Floats, rows: Floats,
    lo: int, n: int, acc: Floats,
) -> None:  # fmt: skip
    """Add the pieces of curves at numbers to `acc`; see the compiled twin."""
    curves = (len(rows) // len(ends) - 1) // 4
    table = rows.reshape(len(ends), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        t = np.clip((x[lo : lo + n] - place[0]) * place[1], -FARTHEST, FARTHEST)
        known = ~np.isnan(t)
        at = np.searchsorted(ends[:-1], t, side="right")
        off = t - table[at, 0]
        for c in range(curves):
            c0, c1, c2, c3 = table[at, 1 + 4 * c : 5 + 4 * c].T
            acc[c, :n] += np.where(known, c0 + off * (c1 + off * (c2 + off * c3)), 0.0)
