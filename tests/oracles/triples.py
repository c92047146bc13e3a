"""Class-conditional counts of triples of columns, one row and one triple at a time."""

from __future__ import annotations

import itertools


def add_triple_counts(columns, sizes, y, weight, n_classes, starts, out):
    triples = itertools.combinations(range(len(columns)), 3)
    for (i, j, k), start in zip(triples, starts, strict=True):
        for r in range(len(y)):
            cell = (int(columns[i][r]) * int(sizes[j]) + int(columns[j][r])) * int(sizes[k])
            cell = (cell + int(columns[k][r])) * n_classes + int(y[r])
            out[int(start) + cell] += 1 if weight is None else weight[r]
