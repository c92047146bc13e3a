"""Naive twin of A2DE: one row, one class, one pair of parents at a time."""

from __future__ import annotations

import math

from oracles.averages import log
from oracles.factors import log_sum, total


def pair_averages(fallback, offsets, pairs, tables, columns, n_rows, n_classes):
    """Return rows of log joints; fallback[r] are those of a row without parents."""
    result = []
    for r in range(n_rows):
        slots = [int(o) + int(c[r]) for o, c in zip(offsets[:-1], columns, strict=True)]
        parents = []
        for q, (i, j, state) in enumerate(pairs):
            s = int(state[int(columns[i][r]), int(columns[j][r])])
            if s >= 0:
                parents.append((q, i, j, s))
        row = []
        for c in range(n_classes):
            terms = []
            for q, i, j, s in parents:
                own, children = tables(q)
                others = [k for k in range(len(columns)) if k not in (i, j)]
                terms.append(
                    total(
                        [
                            log(float(own[s][c])),
                            *(log(float(children[s][slots[k]][c])) for k in others),
                        ]
                    )
                )
            if not parents:
                row.append(float(fallback[r][c]))
            else:
                row.append(log_sum(terms) - math.log(len(parents)))
        result.append(row)
    return result
