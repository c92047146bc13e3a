"""Naive twin of AODE: one row, one class, one super-parent at a time."""

from __future__ import annotations

import math

from oracles import log_joint as naive_bayes
from oracles.factors import log_sum, total


def log(probability):
    """Return the natural logarithm, -inf of 0."""
    return math.log(probability) if probability else -math.inf


def averages(log_prior, tables, offsets, own, weight, children, columns, n_rows):
    """Return rows of log joints; children[p][value of p][slot][class] are probabilities."""
    nothing = [list(map(float, log_prior))] * n_rows
    some = len(columns) > 0
    fallback = (
        naive_bayes.log_joint(log_prior, tables, offsets, None, columns, []) if some else nothing
    )
    result = []
    for r in range(n_rows):
        slots = [
            int(offset) + int(column[r])
            for offset, column in zip(offsets[:-1], columns, strict=True)
        ]
        parents = [p for p, slot in enumerate(slots) if weight[slot] > 0]
        row = []
        for c in range(len(log_prior)):
            terms = [
                total(
                    [
                        log(float(weight[slots[p]]) * float(own[slots[p]][c])),
                        *(
                            log(float(children[p][int(columns[p][r])][slot][c]))
                            for j, slot in enumerate(slots)
                            if j != p
                        ),
                    ]
                )
                for p in parents
            ]
            row.append(log_sum(terms) if parents else fallback[r][c])
        above = math.log(math.fsum(float(weight[slots[p]]) for p in parents)) if parents else 0.0
        result.append([value - above for value in row])
    return result
