"""Rows that agree and distances from Gaussians, in plain loops."""

from __future__ import annotations

from fractions import Fraction


def factorise(rows):
    """Return the number of each row, in the order in which rows come first, and those firsts."""
    numbers, group, first = {}, [], []
    for r, row in enumerate(rows):
        if row not in numbers:
            numbers[row] = len(numbers)
            first.append(r)
        group.append(numbers[row])
    return group, first


def squared_distance(x, mean, whiten):
    """Return |whiten (x - mean)|^2 as an exact fraction."""
    apart = [Fraction(a) - Fraction(b) for a, b in zip(x, mean, strict=True)]
    white = [sum(Fraction(w) * d for w, d in zip(row, apart, strict=True)) for row in whiten]
    return sum(w * w for w in white)
