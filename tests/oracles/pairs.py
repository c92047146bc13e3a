"""Class-conditional counts of pairs of columns, one row and one pair at a time."""

from __future__ import annotations


def add_pair_counts(columns, sizes, y, weight, n_classes, first, second, starts, out):
    for q in range(len(starts)):
        i, j = int(first[q]), int(second[q])
        for r in range(len(y)):
            a, b, c = int(columns[i][r]), int(columns[j][r]), int(y[r])
            assert a < sizes[i]
            assert b < sizes[j]
            assert c < n_classes
            cell = int(starts[q]) + (a * int(sizes[j]) + b) * n_classes + c
            out[cell] += 1 if weight is None else weight[r]
