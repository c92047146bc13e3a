"""Densities of numbers within classes, one kernel and one bin at a time."""

from __future__ import annotations

import math
from itertools import pairwise


def log_sum(terms):
    """Return ln of a sum of exponentials."""
    largest = max(terms, default=-math.inf)
    if largest == -math.inf:
        return largest
    return largest + math.log(math.fsum(math.exp(t - largest) for t in terms))


def kernel_log_density(x, points, weights, bandwidth):
    """Return ln sum_i w_i N(x; x_i, h²) / sum_i w_i; -inf where there is no weight."""
    total = math.fsum(weights)
    if total <= 0:
        return -math.inf
    terms = [
        math.log(w) - ((x - p) / bandwidth) ** 2 / 2
        for p, w in zip(points, weights, strict=True)
        if w > 0
    ]
    return log_sum(terms) - math.log(total * bandwidth * math.sqrt(2 * math.pi))


def quantile(points, weights, share):
    """Return the first value up to which there is such a share of the weight."""
    rows = sorted(zip(points, weights, strict=True))
    wanted, sofar = math.fsum(weights) * share, 0.0
    for p, w in rows:
        sofar += w
        if sofar >= wanted * (1 - 1e-12):
            return p
    return rows[-1][0]


def silverman(points, weights, variance=None):
    """Return 0.9 min(deviation, quartiles' range / 1.34) n^(-1/5), by the divisor n."""
    n = math.fsum(weights)
    mean = math.fsum(w * p for p, w in zip(points, weights, strict=True)) / n
    if variance is None:
        variance = math.fsum(w * (p - mean) ** 2 for p, w in zip(points, weights, strict=True)) / n
    apart = quantile(points, weights, 0.75) - quantile(points, weights, 0.25)
    spread = math.sqrt(variance)
    return 0.9 * (min(spread, apart / 1.34) if apart > 0 else spread) * n**-0.2


def edges(points, weights):
    """Return where bins of equal shares of all rows begin and end."""
    by_value = {}
    for p, w in zip(points, weights, strict=True):
        by_value[p] = by_value.get(p, 0.0) + w
    values = sorted(by_value)
    bins = min(math.ceil(2 * math.fsum(weights) ** (1 / 3)), 1024)
    found, sofar = [values[0]], 0.0
    wanted = [math.fsum(weights) * i / bins * (1 - 1e-12) for i in range(1, bins)]
    for low, high in pairwise(values):
        before, sofar = sofar, sofar + by_value[low]
        if bins >= len(values) or any(before < w <= sofar for w in wanted):
            found.append(low / 2 + high / 2)
    return [*found, values[-1]]


def histogram_log_density(x, edges, points, weights, alpha):
    """Return ln of the density of one class at x; it is constant in a bin, exponential outside."""
    bins = len(edges) + 1
    total = math.fsum(weights) + alpha * bins
    wide = edges[-1] - edges[0]

    def log(mass):
        ratio = mass / total if total else 1 / bins
        return math.log(ratio) if ratio else -math.inf

    if x < edges[0] or x > edges[-1]:
        far = edges[0] - x if x < edges[0] else x - edges[-1]
        return log(alpha) - math.log(wide) - far / wide
    b = bin_of(x, edges)
    n = math.fsum(w for p, w in zip(points, weights, strict=True) if bin_of(p, edges) == b)
    return log(n + alpha) - math.log(edges[b + 1] - edges[b])


def bin_of(x, edges):
    """Return the inner bin of a value in their range."""
    inner = [b for b in range(len(edges) - 1) if edges[b] <= x]
    return max(inner)


def binned_log_density(x, edges, cuts, own, everyone, alpha):
    """Return ln P(bin | c) g(x | bin): bins between cuts, g the histogram of all classes in one.

    own, everyone  values and weights of the class, and of all classes
    """
    fine = sorted({*edges, *cuts})
    wide = fine[-1] - fine[0]
    # Of each bin of the histogram its least value; the outermost ones have none in them.
    starts = [-math.inf, *fine]
    of = [sum(cut <= start for cut in cuts) for start in starts]

    def place(v):
        inner = [i for i, start in enumerate(starts) if start <= v]
        at = max(inner)
        return at - 1 if v == fine[-1] else at

    def share(mass, total, choices):
        below = total + alpha * choices
        ratio = (mass + alpha) / below if below > 0 else 1 / choices
        return math.log(ratio) if ratio else -math.inf

    def rows(pair, test):
        return math.fsum(w for p, w in zip(*pair, strict=True) if test(place(p)))

    b = place(x)
    in_bin = share(rows(own, lambda i: of[i] == of[b]), math.fsum(own[1]), len(cuts) + 1)
    within = share(
        rows(everyone, lambda i: i == b),
        rows(everyone, lambda i: of[i] == of[b]),
        sum(group == of[b] for group in of),
    )
    width = wide if b in (0, len(fine)) else fine[b] - fine[b - 1]
    far = max(fine[0] - x, x - fine[-1], 0.0)
    return in_bin + within - math.log(width) - far / wide
