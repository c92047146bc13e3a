"""Naive twin of quadratic scoring: one row, one class, one feature at a time, with `math` only."""

from __future__ import annotations

import math


def log_joint(log_prior, mean, rest, whiten, level, dof, marginal, numeric, n_rows):
    """Return rows of log joints; arguments as for `QuadraticScorer`, numeric[j][r] a float."""
    result = []
    for r in range(n_rows):
        row = [float(column[r]) for column in numeric]
        known = [not math.isnan(x) for x in row]
        if all(known) or not row:
            densities = mean, rest, whiten, level, dof
        elif any(known):
            densities = marginal(known)
        else:
            result.append([float(prior) for prior in log_prior])
            continue
        row = [x for x in row if not math.isnan(x)]
        result.append([float(p) + density(row, c, *densities) for c, p in enumerate(log_prior)])
    return result


def density(row, c, mean, rest, whiten, level, dof):
    """Return the log density of one row of known numbers under class c."""
    deviations = [(x - float(m)) - float(e) for x, m, e in zip(row, mean[c], rest[c], strict=True)]
    matrix = whiten[c] if len(whiten) > 1 else whiten[0]
    square = math.fsum(
        math.fsum(float(w) * d for w, d in zip(line, deviations, strict=True)) ** 2
        for line in matrix
    )
    if dof is None:
        return float(level[c]) - square / 2
    rank = sum(any(float(w) != 0 for w in line) for line in matrix)
    return float(level[c]) - (float(dof[c]) + rank) / 2 * math.log1p(square / float(dof[c]))
