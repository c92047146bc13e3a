"""Naive twin of the Gaussian moments: two passes in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction


def block_moments(values, y, n_classes, weight=None):
    """Return (count, mean, rest, scatter) lists per class; NaN is missing, other values finite."""
    rows = [[] for _ in range(n_classes)]
    for r, value in enumerate(values):
        w = 1.0 if weight is None else float(weight[r])
        if value == value and w > 0:
            rows[int(y[r])].append((Fraction(w), Fraction(float(value))))
    count, mean, rest, scatter = [], [], [], []
    for members in rows:
        n = sum((w for w, _ in members), Fraction(0))
        m = sum((w * v for w, v in members), Fraction(0)) / n if n else Fraction(0)
        count.append(float(n))
        mean.append(float(m))
        rest.append(float(m - Fraction(float(m))))
        scatter.append(float(sum((w * (v - m) ** 2 for w, v in members), Fraction(0))))
    return count, mean, rest, scatter
