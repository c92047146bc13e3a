"""Normal kernels, curves in pieces and Student's t, in numpy: the twin of `compiled.density`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.density import FARTHEST, windows

# Pairs of query and point at a time.
CHUNK = 1 << 21
# What a pair takes where points are gathered, over what it takes where all of them are there.
GATHERED = 3


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
    ends = np.cumsum(right - left)
    dense = GATHERED * int((right - left).sum()) >= len(queries) * len(points)
    if dense:
        ends = np.arange(1, len(queries) + 1) * len(points)
    first = 0
    while first < len(queries):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + CHUNK, side="right")), first + 1)
        some = slice(first, last)
        mine = points, weight, bandwidth, queries[some], own[some], less[some], apart[some]
        value[some], slope[some] = (
            _dense_sums(*mine) if dense else _sums(*mine, left[some], right[some])
        )
        first = last
    return value, slope


def _dense_sums(
    points: Floats,
    weight: Floats,
    bandwidth: float,
    queries: Floats,
    own: Ints,
    less: Floats,
    apart: Floats,
) -> tuple[Floats, Floats]:
    """Return what `log_sums` does, from all points for each query."""
    off = points - queries[:, None]
    alone = ~np.isfinite(apart)
    nearest = np.where(alone, 0.0, apart)[:, None]
    scale = 1 / (2 * bandwidth * bandwidth)
    far = np.abs(off)
    # The difference of squares keeps its digits; what is nearer weighs nothing.
    share = (far - nearest) * (far + nearest)
    np.maximum(share, 0.0, out=share)
    share *= -scale
    np.exp(share, out=share)
    mine = np.flatnonzero(own >= 0)
    point = own[mine]
    rest = share[mine, point] * (weight[point] - less[mine])
    share *= weight
    share[mine, point] = rest
    total = share.sum(axis=1)
    share *= off
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(total) - nearest[:, 0] ** 2 * scale
        slope = share.sum(axis=1) / total * (2 * scale)
    return np.where(alone, -np.inf, value), np.where(alone, 0.0, slope)


def _sums(
    points: Floats,
    weight: Floats,
    bandwidth: float,
    queries: Floats,
    own: Ints,
    less: Floats,
    apart: Floats,
    left: Ints,
    right: Ints,
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
        at = np.searchsorted(ends[:-1], (x[lo : lo + n] - place[2]) * place[3], side="right")
        off = t - table[at, 0]
        for c in range(curves):
            c0, c1, c2, c3 = table[at, 1 + 4 * c : 5 + 4 * c].T
            acc[c, :n] += np.where(known, c0 + off * (c1 + off * (c2 + off * c3)), 0.0)


def add_student(x: Floats, parts: Floats, step: int, lo: int, n: int, acc: Floats) -> None:
    """Add Student's t at numbers to `acc`; see the compiled twin."""
    x = x[lo : lo + n]
    mean, rest, inverse, level, power = parts[..., None]  # of all curves at once
    with np.errstate(over="ignore", invalid="ignore"):
        t = np.fmin(np.abs((x - mean) - rest) * inverse, FARTHEST)
    for c, term in enumerate(np.where(np.isnan(x), 0.0, level - power * np.log1p(t * t))):
        acc[c * step, :n] += term
