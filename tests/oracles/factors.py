"""Naive twins of models of few dependences: one row, one class at a time, with `math` only."""

from __future__ import annotations

import functools
import math


def log_sum(values):
    """Return the log of the sum of exponentials."""
    top = max(values)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def total(terms):
    """Return the sum of log factors, of which any may be -inf."""
    return -math.inf if -math.inf in terms else math.fsum(terms)


def factors(log_prior, tables, sizes, columns, n_rows):
    """Return rows of log joints; tables = [(features, [cell][class])], columns[j][r] codes."""
    result = []
    for r in range(n_rows):
        row = []
        for c, prior in enumerate(log_prior):
            terms = [float(prior)]
            for features, table in tables:
                cell = 0
                for j in features:
                    cell = cell * (int(sizes[j]) + 2) + int(columns[j][r])
                terms.append(float(table[cell][c]))
            row.append(total(terms))
        result.append(row)
    return result


def tree(log_prior, parents, tables, hidden, columns, n_rows):
    """Return rows of log joints of a forest, by recursion from the roots down."""
    children = [[] for _ in parents]
    for j, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(j)

    def silent(j, r):
        """Return whether nothing at or below a feature is observed."""
        return hidden[j][columns[j][r]] and all(silent(k, r) for k in children[j])

    @functools.cache
    def factor(j, of, r, c):
        """Return ln P(what is observed at and below j | value `of` of its parent, c)."""
        if silent(j, r):
            return 0.0
        code = int(columns[j][r])
        if not hidden[j][code]:
            below = [factor(k, code, r, c) for k in children[j]]
            return total([float(tables[j][of][code][c]), *below])
        if (
            len(hidden[j]) == 2 and hidden[j][0]
        ):  # no values: factor 1, and as if missing for those below
            return total([factor(k, 0, r, c) for k in children[j]])
        return log_sum(
            [
                total([float(tables[j][of][v][c]), *(factor(k, v, r, c) for k in children[j])])
                for v in range(len(hidden[j]) - (2 if hidden[j][-2] else 1))
            ]
        )

    roots = [j for j, parent in enumerate(parents) if parent < 0]
    return [
        [total([float(p), *(factor(j, 0, r, c) for j in roots)]) for c, p in enumerate(log_prior)]
        for r in range(n_rows)
    ]
