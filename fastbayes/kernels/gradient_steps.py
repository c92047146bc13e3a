"""Steps of a pass over a block of rows: from codes to margins, to factors, to sums.

A block is class-major: m[c, r]. What a row adds to the gradient is its factor of each output.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from fastbayes.kernels import lanes

U = np.uint64


@register_jitable
def add_single(codes, start, table, lo, m):
    """Add one number per row and group: m[r] += Σ_g table[start[g] + codes[g, lo + r]].

    codes  IN   (groups, >= lo + n) uint16
    start  IN   (>= groups,) int64
    table  IN   float64
    m      OUT  (n,) float64
    """
    n = m.size
    end = U(n)
    groups = codes.shape[0]
    g = 0
    while g < groups:
        c0 = codes[g, lo : lo + n]
        t0 = table[start[g] :]
        r = U(0)
        if g + 4 <= groups:
            c1 = codes[g + 1, lo : lo + n]
            c2 = codes[g + 2, lo : lo + n]
            c3 = codes[g + 3, lo : lo + n]
            t1, t2, t3 = table[start[g + 1] :], table[start[g + 2] :], table[start[g + 3] :]
            while r < end:
                m[r] += (t0[U(c0[r])] + t1[U(c1[r])]) + (t2[U(c2[r])] + t3[U(c3[r])])
                r += U(1)
            g += 4
        else:
            while r < end:
                m[r] += t0[U(c0[r])]
                r += U(1)
            g += 1


@register_jitable
def scatter_single(codes, start, acc, lo, factor):
    """Add each row's factor to its cell in each group: acc[start[g] + codes[g, lo + r]] += ...

    Four groups at a time: additions to one cell wait for each other, those to others do not.

    codes   IN   (groups, >= lo + n) uint16
    start   IN   (>= groups,) int64
    acc     OUT  float64
    factor  IN   (n,) float64
    """
    n = factor.size
    end = U(n)
    groups = codes.shape[0]
    g = 0
    while g < groups:
        c0 = codes[g, lo : lo + n]
        a0 = acc[start[g] :]
        r = U(0)
        if g + 4 <= groups:
            c1 = codes[g + 1, lo : lo + n]
            c2 = codes[g + 2, lo : lo + n]
            c3 = codes[g + 3, lo : lo + n]
            a1, a2, a3 = acc[start[g + 1] :], acc[start[g + 2] :], acc[start[g + 3] :]
            while r < end:
                x = factor[r]
                a0[U(c0[r])] += x
                a1[U(c1[r])] += x
                a2[U(c2[r])] += x
                a3[U(c3[r])] += x
                r += U(1)
            g += 4
        else:
            while r < end:
                a0[U(c0[r])] += factor[r]
                r += U(1)
            g += 1


@register_jitable
def add_numbers(numbers, slopes, k, lo, m):
    """Add the numeric columns of one output: m[r] += Σ_j slopes[j, k] numbers[j, lo + r].

    numbers  IN   (p, >= lo + n) float64
    slopes   IN   (p, > k) float64
    m        OUT  (n,) float64
    """
    n, p = m.size, numbers.shape[0]
    j = 0
    while j < p:
        x0 = numbers[j, lo : lo + n]
        s0 = slopes[j, k]
        if j + 4 <= p:
            x1 = numbers[j + 1, lo : lo + n]
            x2 = numbers[j + 2, lo : lo + n]
            x3 = numbers[j + 3, lo : lo + n]
            s1, s2, s3 = slopes[j + 1, k], slopes[j + 2, k], slopes[j + 3, k]
            for r in range(n):
                m[r] += (s0 * x0[r] + s1 * x1[r]) + (s2 * x2[r] + s3 * x3[r])
            j += 4
        else:
            for r in range(n):
                m[r] += s0 * x0[r]
            j += 1


@register_jitable
def sum_of(x):
    """Return the sum of a contiguous array, sixteen sums side by side."""
    n = x.size
    s = lanes.zero(x, 8)
    t = s
    r, end = U(0), U(n // 16 * 16)
    while r < end:
        s = lanes.add(s, lanes.load(x, r, 8))
        t = lanes.add(t, lanes.load(x, r + U(8), 8))
        r += U(16)
    result = lanes.total(lanes.add(s, t))
    while r < U(n):
        result += x[r]
        r += U(1)
    return result


@register_jitable
def add_products(numbers, squared, lo, factor, k, sums):
    """Add what numeric columns take from factors: sums[1 + j, k] += Σ_r z[j, lo + r] factor[r].

    numbers  IN   (p, >= lo + n) float64
    squared  IN   z is the square of the number, not the number
    factor   IN   (n,) float64
    sums     OUT  (1 + p, > k) float64
    """
    n = factor.size
    end = U(n // 8 * 8)
    for j in range(numbers.shape[0]):
        x = numbers[j, lo : lo + n]
        s = lanes.zero(x, 8)
        r = U(0)
        if squared:
            while r < end:
                z = lanes.load(x, r, 8)
                s = lanes.add(s, lanes.mul(lanes.mul(z, z), lanes.load(factor, r, 8)))
                r += U(8)
        else:
            while r < end:
                s = lanes.add(s, lanes.mul(lanes.load(x, r, 8), lanes.load(factor, r, 8)))
                r += U(8)
        total = lanes.total(s)
        while r < U(n):
            total += (x[r] * x[r] if squared else x[r]) * factor[r]
            r += U(1)
        sums[1 + j, k] += total


@register_jitable
def log_one_more(e):
    """Return ln(1 + e) of 0 <= e <= 1 within 2 ulp.

    ln(1 + f) = s (2 + R(s²)), s = f / (2 + f), R fdlibm's polynomial; f = e, or where e > √2 - 1
    what 1 + e is more than 2, halved.
    """
    far = e > 0.41421356237309503
    s = (e - 1.0 if far else e) / (e + 3.0 if far else e + 2.0)
    z = s * s
    p = lanes.fma(z, 1.479819860511658591e-01, 1.531383769920937332e-01)
    p = lanes.fma(p, z, 1.818357216161805012e-01)
    p = lanes.fma(p, z, 2.222219843214978396e-01)
    p = lanes.fma(p, z, 2.857142874366239149e-01)
    p = lanes.fma(p, z, 3.999999999940941908e-01)
    p = lanes.fma(p, z, 6.666666666666735130e-01)
    return lanes.fma(s, lanes.fma(p, z, 2.0), 6.931471805599453094e-01 if far else 0.0)


@register_jitable
def residuals_of_odds(m, y, loss):
    """Turn log-odds into residuals P(1) - y: loss[r] = ln(1 + e^{m[r]}) - y[r] m[r].

    m     OUT  (n,) float64   log-odds; overwritten
    y     IN   (n,) uint8
    loss  OUT  (n,) float64
    """
    for r in range(m.size):
        v = m[r] if y[r] == 0 else -m[r]
        e = lanes.exp_negative(-abs(v))
        large = 1.0 / (1.0 + e)
        share = large if v > 0.0 else e * large
        loss[r] = (v if v > 0.0 else 0.0) + log_one_more(e)
        m[r] = share if y[r] == 0 else -share


@register_jitable
def variances_of_odds(m):
    """Turn log-odds into P(0) P(1).

    m  OUT  (n,) float64
    """
    for r in range(m.size):
        e = lanes.exp_negative(-abs(m[r]))
        large = 1.0 / (1.0 + e)
        m[r] = e * large * large


@register_jitable
def shares_of(m, k, n, best, others):
    """Turn margins into shares, and keep the greatest margin and what the others come to.

    m[c, r] = exp(m[c, r] - best[r]) / (1 + others[r]), others[r] = Σ of exp(...) but the best's.

    m             OUT  (>= k, >= n) float64   margins; overwritten
    best, others  OUT  (>= n,) float64
    """
    top, rest = best[:n], others[:n]
    first = m[0, :n]
    for r in range(n):
        top[r] = first[r]
        rest[r] = -1.0
    for c in range(1, k):
        x = m[c, :n]
        for r in range(n):
            top[r] = x[r] if x[r] > top[r] else top[r]
    # Of the best there may be several: all but one of them are others.
    for c in range(k):
        x = m[c, :n]
        for r in range(n):
            rest[r] += 1.0 if x[r] == top[r] else 0.0
    for c in range(k):
        x = m[c, :n]
        for r in range(n):
            z = x[r] - top[r]
            e = lanes.exp_negative(z)
            rest[r] += e if z < 0.0 else 0.0
            x[r] = e
    for c in range(k):
        x = m[c, :n]
        for r in range(n):
            x[r] /= 1.0 + rest[r]


@register_jitable
def residuals_of_shares(m, y, lo, n, best, others, own):
    """Turn shares into residuals: one less for a row's own class; own[r] becomes its loss.

    m       OUT  (>= n_classes, >= n) float64   shares; overwritten
    y       IN   (>= lo + n,) uint16
    best    IN   (>= n,) float64   greatest margin
    others  IN   (>= n,) float64   what the others come to
    own     OUT  (>= n,) float64   margin of the own class; overwritten with the loss
    """
    stride = U(m.shape[1])
    flat = m.reshape(-1)
    c = y[lo : lo + n]
    r = U(0)
    while r < U(n):
        at = U(c[r]) * stride + r
        # Of the best class 1 - share would be rounding.
        less = others[r] / (1.0 + others[r]) if own[r] == best[r] else 1.0 - flat[at]
        flat[at] = -less
        r += U(1)
    for s in range(n):
        total = 1.0 + others[s]
        # The second term is what rounding took from the total.
        log = lanes.log_positive(total) + (others[s] - (total - 1.0)) / total
        own[s] = (best[s] - own[s]) + log


@register_jitable
def products_of_shares(m, v, k, n, dot):
    """Turn shares into what a direction's margins make of them: m_c (v_c - Σ m_b v_b).

    m    OUT  (>= k, >= n) float64   shares; overwritten
    v    IN   (>= k, >= n) float64
    dot  OUT  (>= n,) float64   scratch
    """
    d = dot[:n]
    d[:] = 0.0
    for c in range(k):
        x, u = m[c, :n], v[c, :n]
        for r in range(n):
            d[r] += x[r] * u[r]
    for c in range(k):
        x, u = m[c, :n], v[c, :n]
        for r in range(n):
            x[r] *= u[r] - d[r]


@register_jitable
def add_wide(wide, start, table, width, lo, n, k, m):
    """Add columns of very many values: m[c, r] += Σ_g table[(start[g] + code) width + c].

    wide   IN   (groups, >= lo + n) uint32
    start  IN   (>= groups,) int64
    table  IN   float64
    m      OUT  (>= k, >= n) float64
    """
    for g in range(wide.shape[0]):
        x = wide[g, lo : lo + n]
        t = table[start[g] * width :]
        for r in range(n):
            at = U(x[r]) * U(width)
            for c in range(k):
                m[c, r] += t[at + U(c)]


@register_jitable
def scatter_wide(wide, start, acc, width, lo, n, k, factor):
    """Add factors to the cells of columns of very many values, as `add_wide` reads them.

    acc     OUT  float64
    factor  IN   (>= k, >= n) float64
    """
    for g in range(wide.shape[0]):
        x = wide[g, lo : lo + n]
        a = acc[start[g] * width :]
        for r in range(n):
            at = U(x[r]) * U(width)
            for c in range(k):
                a[at + U(c)] += factor[c, r]


@register_jitable
def add_loss(losses, weight, lo, total):
    """Add the losses of a block to the total, and keep what rounding takes from it.

    losses  OUT  (n,) float64   overwritten with their products with the weights
    weight  IN   (>= lo + n,) float64, or empty
    total   OUT  (2,) float64   the sum of blocks, and what is to be added to it
    """
    scale_by(losses, weight, lo)
    x = sum_of(losses)
    s = total[0] + x
    total[1] += (total[0] - s) + x if abs(total[0]) >= abs(x) else (x - s) + total[0]
    total[0] = s


@register_jitable
def scale_by(factor, weight, lo):
    """Multiply factors of rows with their weights, where there are any.

    factor  OUT  (n,) float64
    weight  IN   (>= lo + n,) float64, or empty
    """
    if weight.size:
        w = weight[lo : lo + factor.size]
        for r in range(factor.size):
            factor[r] *= w[r]
