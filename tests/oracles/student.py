"""Naive twin of Student's t within classes: sums over rows and a prior, with `math` only."""

from __future__ import annotations

import math

ROWS_OF_THE_MEAN, DEGREES = 0.01, 3.0


def prior(classes):
    """Return the mean of all rows and the pooled variance; classes are (values, weights) pairs."""
    total = math.fsum(w for _, weights in classes for w in weights)
    if not total:
        return 0.0, 0.0
    mean = math.fsum(w * x for pair in classes for x, w in zip(*pair, strict=True)) / total
    within = math.fsum(scatter(*pair) for pair in classes)
    return mean, within / total


def scatter(values, weights):
    """Return the weighted squares of values about their mean."""
    n = math.fsum(weights)
    if not n:
        return 0.0
    mean = math.fsum(w * x for x, w in zip(values, weights, strict=True)) / n
    return math.fsum(w * (x - mean) ** 2 for x, w in zip(values, weights, strict=True))


def log_density(x, values, weights, prior):
    """Return ln of the density of a new number of a class; 0 where the prior has no spread.

    A normal density whose precision is Gamma(a, rate b) and whose mean is normal about m, of
    precision k times that one, all by the rows (Murphy 2007, equations 86 to 89 and 100).
    """
    centre, variance = prior
    if not variance:
        return 0.0
    n = math.fsum(weights)
    mean = math.fsum(w * v for v, w in zip(values, weights, strict=True)) / n if n else centre
    k = ROWS_OF_THE_MEAN + n
    m = (ROWS_OF_THE_MEAN * centre + n * mean) / k
    a = (DEGREES + n) / 2
    b = (
        variance / 2
        + scatter(values, weights) / 2
        + ROWS_OF_THE_MEAN * n * (mean - centre) ** 2 / (2 * k)
    )
    squared = b * (k + 1) / (a * k)
    far = (x - m) ** 2 / (2 * a * squared)
    level = math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(2 * a * math.pi * squared)
    return level - (a + 0.5) * math.log1p(far)
