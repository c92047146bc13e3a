"""Naive twin of the scatter matrices: two passes in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction


def block_scatter(columns, group, n_groups, weight=None):
    """Return (count, mean, rest, scatter) lists per group; values are finite."""
    p = len(columns)
    rows = [[] for _ in range(n_groups)]
    for r, g in enumerate(group):
        w = 1.0 if weight is None else float(weight[r])
        if w > 0:
            rows[int(g)].append((Fraction(w), [Fraction(float(x[r])) for x in columns]))
    count, mean, rest, scatter = [], [], [], []
    for members in rows:
        n = sum((w for w, _ in members), Fraction(0))
        m = [sum((w * v[i] for w, v in members), Fraction(0)) / (n or 1) for i in range(p)]
        count.append(float(n))
        mean.append([float(x) for x in m])
        rest.append([float(x - Fraction(float(x))) for x in m])
        scatter.append([[0.0] * p for _ in range(p)])
        for i in range(p):
            for j in range(p):
                total = sum((w * (v[i] - m[i]) * (v[j] - m[j]) for w, v in members), Fraction(0))
                scatter[-1][i][j] = float(total)
    return count, mean, rest, scatter


def block_products(columns, group, n_groups, weight=None):
    """Return the sum of w x xᵀ of each group, as lists."""
    p = len(columns)
    sums = [[[Fraction(0)] * p for _ in range(p)] for _ in range(n_groups)]
    for r, g in enumerate(group):
        w = Fraction(1.0 if weight is None else float(weight[r]))
        for i in range(p):
            for j in range(p):
                sums[int(g)][i][j] += w * Fraction(float(columns[i][r])) * float(columns[j][r])
    return [[[float(x) for x in row] for row in matrix] for matrix in sums]
