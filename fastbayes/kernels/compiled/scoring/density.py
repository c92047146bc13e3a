"""Normal kernels, curves in pieces and Student's t; what they mean: `kernels.shared.density`.

A curve is a polynomial of degree 3 in each of many intervals. A number finds its interval by the
bits of its distance from the centre: a thousand buckets for each doubling, most of which lie in
one interval; in others a few halvings find it.
"""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.dispatch import kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints, U
from fastbayes.kernels.shared.density import BUCKET_BITS, FARTHEST, windows

_SHIFT = U(52 - BUCKET_BITS)
_FIRST = U(1023 << BUCKET_BITS)

_FLOAT, _INT = "float64", "int64"
_FLOATS, _INTS = reads(_FLOAT), reads(_INT)
SIGNATURES = {
    "add_sums": [
        (
            *(_FLOATS, _FLOATS, _FLOAT, _FLOATS, _INTS, _FLOATS, _INTS, _INTS, _FLOATS),
            *[writes(_FLOAT)] * 3,
        )
    ],
    "add_curve": [
        (_FLOATS, _FLOATS, reads("uint32"), _FLOATS, _FLOATS, _INT, _INT, writes(_FLOAT, 2))
    ],
    "add_student": [(_FLOATS, reads(_FLOAT, 2), _INT, _INT, _INT, writes(_FLOAT, 2))],
}


def log_sums(
    points: Floats, weight: Floats, bandwidth: float, queries: Floats, own: Ints, less: Floats
) -> tuple[Floats, Floats]:
    """Return the logarithm of sums of normal kernels, and its derivative; see the numpy twin."""
    total, moment = np.zeros(len(queries)), np.zeros(len(queries))
    if not len(points):
        return np.full(len(queries), -np.inf), moment
    left, right, apart = windows(points, weight, bandwidth, queries, own, less)
    alone = ~np.isfinite(apart)
    nearest, scale = np.where(alone, 0.0, apart), 1 / (2 * bandwidth * bandwidth)
    given = (points, weight), (queries, own, less, left, right, nearest)
    first, others = (tuple(map(readonly, arrays)) for arrays in given)
    add_sums(*first, scale, *others, np.empty(len(points)), total, moment)
    with np.errstate(divide="ignore", invalid="ignore"):
        value, slope = np.log(total) - nearest**2 * scale, moment / total * (2 * scale)
    return np.where(alone, -np.inf, value), np.where(alone, 0.0, slope)


@kernel
def add_sums(
    points, weight, scale, queries, own, less, left, right, nearest, share, total, moment
):  # fmt: skip
    """Add Σ_i w_i exp((d² - (q - p_i)²) scale) to total, and each times p_i - q to moment.

    points, weight     IN   (n,) float64
    scale              IN   1/2h²
    queries            IN   (m,) float64
    own, less          IN   (m,) int64, float64   the point with less weight, and how much less
    left, right        IN   (m,) int64   the points that matter to a query: [left, right)
    nearest            IN   (m,) float64   d, the distance of the nearest one
    share              OUT  (n,) float64   scratch
    total, moment      OUT  (m,) float64
    """
    for r in range(queries.size):
        q, d, begin = queries[r], nearest[r], left[r]
        p, w, s = points[begin : right[r]], weight[begin : right[r]], share[: right[r] - begin]
        for i in range(p.size):
            off = abs(p[i] - q)
            z = -((off - d) * (off + d)) * scale
            s[i] = w[i] * lanes.exp_negative(z if z < 0.0 else 0.0)
        mine = own[r] - begin
        if own[r] >= 0 and 0 <= mine < p.size:
            s[mine] *= (w[mine] - less[r]) / w[mine]
        t0 = t1 = m0 = m1 = 0.0
        i, end = U(0), U(p.size)
        while i + U(1) < end:
            t0 += s[i]
            t1 += s[i + U(1)]
            m0 += s[i] * (p[i] - q)
            m1 += s[i + U(1)] * (p[i + U(1)] - q)
            i += U(2)
        if i < end:
            t0 += s[i]
            m0 += s[i] * (p[i] - q)
        total[r] += t0 + t1
        moment[r] += m0 + m1


@kernel
def add_curve(x, place, bounds, ends, rows, lo, n, acc):
    """Add curves at numbers: acc[c, r] += Σ_k coefficient_ck (t - origin)^k.

    x       IN   (n_rows,) float64   NaN contributes 0
    place   IN   (4,) float64   t = (x - place[0]) place[1], and (x - place[2]) place[3] is what is
                 compared with the ends
    bounds  IN   (4 * buckets,) uint32   first and last interval of each bucket, above the centre
                 and then below it
    ends    IN   (n_intervals,) float64   upper ends, infinity last
    rows    IN   (n_intervals * (1 + 4 * curves),) float64   origin, then coefficients by curve
    lo, n   IN   first row, rows
    acc     OUT  (>= curves, >= n) float64
    """
    width = rows.size // ends.size
    curves, last = (width - 1) // 4, U(bounds.size // 4 - 1)
    centre, inverse, base, unit = place[0], place[1], place[2], place[3]
    u = x[lo : lo + n]
    for r in range(n):
        t = (u[r] - centre) * inverse
        if np.isnan(t):
            continue
        t = max(min(t, FARTHEST), -FARTHEST)
        s = (u[r] - base) * unit
        key = (U(np.float64(abs(t) + 1.0).view(np.int64)) >> _SHIFT) - _FIRST
        key = min(key, last)
        if t < 0.0:
            key += last + U(1)
        i, j = U(bounds[key * U(2)]), U(bounds[key * U(2) + U(1)])
        while i < j:
            middle = (i + j) >> U(1)
            if s >= ends[middle]:
                i = middle + U(1)
            else:
                j = middle
        at = i * U(width)
        off = t - rows[at]
        at += U(1)
        for c in range(curves):
            p = lanes.fma(rows[at + U(3)], off, rows[at + U(2)])
            p = lanes.fma(p, off, rows[at + U(1)])
            acc[c, r] += lanes.fma(p, off, rows[at])
            at += U(4)


@kernel
def add_student(x, parts, step, lo, n, acc):
    """Add Student's t at numbers: acc[c step, r] += level - power ln(1 + t²), t = (x - mean) / w.

    w is the scale of the density times the root of its degrees of freedom ν, power (ν + 1)/2.

    x      IN   (n_rows,) float64   NaN contributes 0
    parts  IN   (5, n_curves) float64   mean, what rounding took from it, 1/w, level and power
    step   IN   1, or 0 to add all into acc[0]
    lo, n  IN   first row, rows
    acc    OUT  (>= n_curves or 1, >= n) float64
    """
    for b in range(0, n, 512):
        w = min(512, n - b)
        u = x[lo + b : lo + b + w]
        for c in range(parts.shape[1]):
            a = acc[c * step, b : b + w]
            mean, rest, inverse = parts[0, c], parts[1, c], parts[2, c]
            level, power = parts[3, c], parts[4, c]
            for r in range(w):
                t = abs((u[r] - mean) - rest) * inverse
                t = t if t < FARTHEST else FARTHEST
                term = level - power * lanes.log_one_plus(t * t)
                a[r] += term if u[r] == u[r] else 0.0
