"""Class-conditional counts, one row and one column at a time."""

from __future__ import annotations


def add_counts(codes, sizes, slots, y, weight, out):
    for i in range(len(codes)):
        for r in range(len(y)):
            assert codes[i, r] < sizes[i]
            out[slots[i] + int(codes[i, r]), y[r]] += 1 if weight is None else weight[r]


def add_class_counts(y, weight, out):
    for r in range(len(y)):
        out[y[r]] += 1 if weight is None else weight[r]
