"""Class-conditional counts of families of columns, one row and one family at a time."""

from __future__ import annotations


def add_family_counts(columns, sizes, y, weight, n_classes, families, starts, out):
    for family, start in zip(families, starts, strict=True):
        for r in range(len(y)):
            cell = 0
            for feature in family:
                assert columns[feature][r] < sizes[feature]
                cell = cell * int(sizes[feature]) + int(columns[feature][r])
            out[int(start) + cell * n_classes + int(y[r])] += 1 if weight is None else weight[r]
