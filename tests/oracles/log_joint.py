"""Naive twins of scoring: one row, one class, one feature at a time, with `math` only."""

from __future__ import annotations

import math


def log_joint(log_prior, tables, offsets, gaussian, codes, numeric):
    """Return rows of log joints.

    codes[j][r] is the code of categorical feature j; numeric[j][r] a float, NaN where missing;
    gaussian = (mean, precision_half, constant, rest of the mean), each [feature][class], or None.
    """
    n_rows = len(codes[0]) if len(codes) else len(numeric[0]) if len(numeric) else 0
    result = []
    for r in range(n_rows):
        row = []
        for c, prior in enumerate(log_prior):
            terms = [float(prior)]
            for j, column in enumerate(codes):
                terms.append(float(tables[int(offsets[j]) + int(column[r])][c]))
            for j, column in enumerate(numeric):
                x = float(column[r])
                if not math.isnan(x):
                    mean, half, constant, rest = (float(part[j][c]) for part in gaussian)
                    terms.append(constant - ((x - mean) - rest) ** 2 * half)
            row.append(-math.inf if -math.inf in terms else math.fsum(terms))
        result.append(row)
    return result


def normalise(row):
    """Return the posterior of one row of log joints that has a finite entry."""
    top = max(row)
    shares = [math.exp(value - top) for value in row]
    total = math.fsum(shares)
    return [share / total for share in shares]


def posterior(log_prior, rows):
    """Return (posterior rows, rows that fell back to the prior)."""
    lost = [max(row) == -math.inf for row in rows]
    return [
        normalise(log_prior if gone else row) for row, gone in zip(rows, lost, strict=True)
    ], sum(lost)


def predict(log_prior, rows, tie=0.0):
    """Return (class per row, rows that fell back); the lowest class within `tie` of the best."""
    lost = [max(row) == -math.inf for row in rows]
    best = []
    for row, gone in zip(rows, lost, strict=True):
        row = log_prior if gone else row
        best.append(next(c for c, value in enumerate(row) if value >= max(row) - tie))
    return best, sum(lost)
