"""Steps of a pass over a block of rows: from codes to margins, to factors, to sums.

A block is class-major: m[c, r]. What a row adds to the gradient is its factor of each output.
"""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.compiled.simd import lane_functions as functions
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.dispatch import helper
from fastbayes.kernels.shared.arrays import U


@helper
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
        if g + 4 <= groups:
            c1 = codes[g + 1, lo : lo + n]
            c2 = codes[g + 2, lo : lo + n]
            c3 = codes[g + 3, lo : lo + n]
            a1, a2, a3 = acc[start[g + 1] :], acc[start[g + 2] :], acc[start[g + 3] :]
            for r in range(end):
                x = factor[r]
                a0[U(c0[r])] += x
                a1[U(c1[r])] += x
                a2[U(c2[r])] += x
                a3[U(c3[r])] += x
            g += 4
        else:
            for r in range(end):
                a0[U(c0[r])] += factor[r]
            g += 1


@helper
def add_numbers(numbers, slopes, lo, n, k, m):
    """Add the numeric columns: m[c, r] += Σ_j slopes[j, c] numbers[j, lo + r].

    numbers  IN   (p, >= lo + n up to eights) float64
    slopes   IN   (p, k) float64
    m        OUT  (>= k, >= n up to eights) float64
    """
    p, end = numbers.shape[0], U(n)
    stride, step = U(numbers.shape[1]), U(m.shape[1])
    for j in range(0, p, 4):
        # Four columns side by side; where fewer are left, the last stands in, times 0.
        j1, j2, j3 = min(j + 1, p - 1), min(j + 2, p - 1), min(j + 3, p - 1)
        b0, b1 = U(j) * stride + U(lo), U(j1) * stride + U(lo)
        b2, b3 = U(j2) * stride + U(lo), U(j3) * stride + U(lo)
        for c in range(k):
            s0 = functions.splat(slopes[j, c], 8)
            s1 = functions.splat(slopes[j1, c] if j1 > j else 0.0, 8)
            s2 = functions.splat(slopes[j2, c] if j2 > j1 else 0.0, 8)
            s3 = functions.splat(slopes[j3, c] if j3 > j2 else 0.0, 8)
            at = U(c) * step
            for r in range(U(0), end, U(8)):
                x = functions.times_plus(lanes.load(numbers, b0 + r, 8), s0, lanes.load(m, at, 8))
                x = functions.times_plus(lanes.load(numbers, b1 + r, 8), s1, x)
                x = functions.times_plus(lanes.load(numbers, b2 + r, 8), s2, x)
                x = functions.times_plus(lanes.load(numbers, b3 + r, 8), s3, x)
                lanes.store(m, at, x)
                at += U(8)


@helper
def add_sums(numbers, squared, lo, n, k, factor, sums):
    """Add up factors, and their products with numeric columns.

    sums[0, c] += Σ_r factor[c, r]; sums[1 + j, c] += Σ_r z[j, lo + r] factor[c, r]

    numbers  IN   (p, >= lo + n up to eights) float64
    squared  IN   z is the square of the number, not the number
    factor   IN   (>= k, >= n up to eights) float64   0 beyond n
    sums     OUT  (1 + p, k) float64
    """
    p, end = numbers.shape[0], U(n)
    stride, step = U(numbers.shape[1]), U(factor.shape[1])
    for c in range(k):
        s = lanes.zero(factor, 8)
        at = U(c) * step
        for r in range(U(0), end, U(8)):
            s = lanes.add(s, lanes.load(factor, at + r, 8))
        sums[0, c] += lanes.total(s)
    for j in range(0, p, 4):
        # Four columns side by side; where fewer are left, the last stands in for the others.
        j1, j2, j3 = min(j + 1, p - 1), min(j + 2, p - 1), min(j + 3, p - 1)
        b0, b1 = U(j) * stride + U(lo), U(j1) * stride + U(lo)
        b2, b3 = U(j2) * stride + U(lo), U(j3) * stride + U(lo)
        for c in range(k):
            four = lanes.four_zeros(factor, 8)
            at = U(c) * step
            for r in range(U(0), end, U(8)):
                f = lanes.load(factor, at + r, 8)
                x = lanes.load_four(numbers, b0 + r, b1 + r, b2 + r, b3 + r, 8)
                if squared:
                    x = lanes.mul(x, x)
                four = lanes.multiply_add(x, f, four)
            for i in range(min(4, p - j)):
                sums[1 + j + i, c] += lanes.total(four[i])


@helper
def weights_at(weight, lo, n, r):
    """Return the weights of eight rows from `lo + r` on, 0 for those beyond n.

    weight  IN  (>= lo + n up to eights,) float64, or empty where every row weighs 1
    """
    w = functions.first_lanes(n - np.int64(r), 8)
    if weight.size:
        w = lanes.mul(w, lanes.load(weight, U(lo) + r, 8))
    return w


@helper
def add_loss(total, x):
    """Add the loss of a block to the total, and keep what rounding takes from it.

    total  OUT  (2,) float64   the sum of blocks, and what is to be added to it
    """
    s = total[0] + x
    total[1] += (total[0] - s) + x if abs(total[0]) >= abs(x) else (x - s) + total[0]
    total[0] = s


@helper
def residuals_of_odds(m, y, weight, lo, n, total):
    """Turn log-odds into weighted residuals P(1) - y, and add losses ln(1 + eᵐ) - y m to the total.

    m       OUT  (>= n up to eights,) float64   log-odds; overwritten, with 0 beyond n
    y       IN   (>= lo + n up to eights,) uint8
    weight  IN   as `weights_at` takes it
    total   OUT  (2,) float64
    """
    s = lanes.zero(m, 8)
    for r in range(U(0), U(n), U(8)):
        w = weights_at(weight, lo, n, r)
        of_one = functions.load_integers(y, U(lo) + r, 8)
        v = functions.negated_where(of_one, lanes.load(m, r, 8))
        share, loss = functions.share_and_loss(v)
        s = functions.times_plus(loss, w, s)
        lanes.store(m, r, lanes.mul(functions.negated_where(of_one, share), w))
    add_loss(total, lanes.total(s))


@helper
def variances_of_odds(m, weight, lo, n):
    """Turn log-odds into weighted P(0) P(1).

    m       OUT  (>= n up to eights,) float64   log-odds; overwritten, with 0 beyond n
    weight  IN   as `weights_at` takes it
    """
    for r in range(U(0), U(n), U(8)):
        share = functions.variance(lanes.load(m, r, 8))
        lanes.store(m, r, lanes.mul(share, weights_at(weight, lo, n, r)))


@helper
def best_at(m, k, r):
    """Return the greatest of the margins of eight rows from r on.

    m  IN  (>= k, any) float64
    """
    step = U(m.shape[1])
    best = lanes.load(m, r, 8)
    at = r + step
    for _ in range(1, k):
        best = functions.larger(best, lanes.load(m, at, 8))
        at += step
    return best


@helper
def residuals_of_margins(m, k, y, weight, lo, n, total):
    """Turn margins into weighted residuals: the share of a class, less 1 of the row's own.

    Losses ln Σ_c e^{m_c} - m_y are added to the total.

    m       OUT  (>= k, >= n up to eights) float64   margins; overwritten, with 0 beyond n
    y       IN   (>= lo + n up to eights,) uint16
    weight  IN   as `weights_at` takes it
    total   OUT  (2,) float64
    """
    s = lanes.zero(m, 8)
    one = functions.splat(1.0, 8)
    step = U(m.shape[1])
    for r in range(U(0), U(n), U(8)):
        w = weights_at(weight, lo, n, r)
        y_ = functions.load_integers(y, U(lo) + r, 8)
        best = best_at(m, k, r)
        # All e^{m - best} but one that is 1: small ones are lost compared with it.
        others = lanes.zero(m, 8)
        ties = functions.splat(-1.0, 8)
        own = best
        own_power = one
        at = r
        for c in range(k):
            x = lanes.load(m, at, 8)
            z = functions.subtract(x, best)
            e = functions.exp_negative(z)
            less, equal = functions.less_and_equal(z, e)
            others, ties = lanes.add(others, less), lanes.add(ties, equal)
            mine = functions.splat(float(c), 8)
            own = functions.where_equal(y_, mine, x, own)
            own_power = functions.where_equal(y_, mine, e, own_power)
            lanes.store(m, at, e)
            at += step
        others = lanes.add(others, ties)
        inverse, log = functions.inverse_and_log(others)
        loss = lanes.add(functions.subtract(best, own), log)
        s = functions.times_plus(loss, w, s)
        # Of the best class 1 - share would be rounding.
        of_best = lanes.mul(others, inverse)
        of_other = functions.subtract(one, lanes.mul(own_power, inverse))
        own_less = functions.where_equal(own, best, of_best, of_other)
        own_less = lanes.mul(functions.subtract(lanes.zero(m, 8), own_less), w)
        inverse = lanes.mul(inverse, w)
        at = r
        for c in range(k):
            x = lanes.mul(lanes.load(m, at, 8), inverse)
            mine = functions.splat(float(c), 8)
            lanes.store(m, at, functions.where_equal(y_, mine, own_less, x))
            at += step
    add_loss(total, lanes.total(s))


@helper
def shares_at(m, k, r):
    """Turn the margins of eight rows from r on into e^{m - best}; return one over their sums.

    m  OUT  (>= k, any) float64
    """
    step = U(m.shape[1])
    best = best_at(m, k, r)
    total = lanes.zero(m, 8)
    at = r
    for _ in range(k):
        e = functions.exp_negative(functions.subtract(lanes.load(m, at, 8), best))
        total = lanes.add(total, e)
        lanes.store(m, at, e)
        at += step
    return functions.inverse(total)


@helper
def shares_of_margins(m, k, n):
    """Turn margins into shares P_c.

    m  OUT  (>= k, >= n up to eights) float64   margins; overwritten
    """
    step = U(m.shape[1])
    for r in range(U(0), U(n), U(8)):
        inverse = shares_at(m, k, r)
        at = r
        for _ in range(k):
            lanes.store(m, at, lanes.mul(lanes.load(m, at, 8), inverse))
            at += step


@helper
def keep(x, n, kept, lo):
    """Write factors as float32, what is next to nothing as 0: subnormal numbers are slow.

    x     IN   (>= n up to eights,) float64
    kept  OUT  (>= lo + n up to eights,) float32
    """
    for r in range((n + 7) // 8 * 8):
        kept[lo + r] = np.float32(x[r] if x[r] > 1e-30 else 0.0)


@helper
def products_of_odds(v, variances, weight, lo, n):
    """Turn a direction's log-odds into weighted P(0) P(1) v.

    v          OUT  (>= n up to eights,) float64   overwritten, with 0 beyond n
    variances  IN   (1, >= lo + n up to eights) float32
    weight     IN   as `weights_at` takes it
    """
    for r in range(U(0), U(n), U(8)):
        share = lanes.widen(lanes.load(variances, U(lo) + r, 8))
        x = lanes.mul(lanes.mul(lanes.load(v, r, 8), share), weights_at(weight, lo, n, r))
        lanes.store(v, r, x)


@helper
def products_of_shares(v, k, shares, weight, lo, n):
    """Turn a direction's margins into weighted P_c (v_c - Σ_b P_b v_b).

    v       OUT  (>= k, >= n up to eights) float64   overwritten, with 0 beyond n
    shares  IN   (k, >= lo + n up to eights) float32   divided by their sums, 1 but for rounding
    weight  IN   as `weights_at` takes it
    """
    step, stride = U(v.shape[1]), U(shares.shape[1])
    for r in range(U(0), U(n), U(8)):
        total = lanes.zero(v, 8)
        mean = total
        at, its = r, U(lo) + r
        for _ in range(k):
            share = lanes.widen(lanes.load(shares, its, 8))
            total = lanes.add(total, share)
            mean = functions.times_plus(share, lanes.load(v, at, 8), mean)
            at += step
            its += stride
        # Then a direction that is the same of all classes has no product, whatever the rounding.
        mean = lanes.mul(mean, functions.inverse(total))
        w = weights_at(weight, lo, n, r)
        at, its = r, U(lo) + r
        for _ in range(k):
            share = lanes.mul(lanes.widen(lanes.load(shares, its, 8)), w)
            x = functions.subtract(lanes.load(v, at, 8), mean)
            lanes.store(v, at, lanes.mul(share, x))
            at += step
            its += stride


@helper
def variances_of_margins(m, k, weight, lo, n):
    """Turn margins into weighted P_c (1 - P_c).

    m       OUT  (>= k, >= n up to eights) float64   margins; overwritten, with 0 beyond n
    weight  IN   as `weights_at` takes it
    """
    step = U(m.shape[1])
    one = functions.splat(1.0, 8)
    for r in range(U(0), U(n), U(8)):
        inverse = shares_at(m, k, r)
        w = weights_at(weight, lo, n, r)
        at = r
        for _ in range(k):
            share = lanes.mul(lanes.load(m, at, 8), inverse)
            x = lanes.mul(lanes.mul(share, functions.subtract(one, share)), w)
            lanes.store(m, at, x)
            at += step


@helper
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


@helper
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
