"""The joint table by the book, in exact fractions (SEMANTICS §4)."""

from __future__ import annotations

from fractions import Fraction
from itertools import product


class Joint:
    """P(c, v) of rows of values, None where missing, with classes and whole weights.

    domains are the values of each column; missing values are summed over one completion at a time.
    """

    def __init__(self, rows, classes, domains, *, tau=1, alpha=1, weights=None):
        self.domains, self.tau, self.alpha = domains, Fraction(tau), Fraction(alpha)
        weights = [1] * len(rows) if weights is None else weights
        self.rows = [
            (tuple(row), c, Fraction(w)) for row, c, w in zip(rows, classes, weights, strict=True)
        ]
        self.classes = sorted(set(classes))

    def prior(self, c):
        own = sum(w for _, y, w in self.rows if y == c)
        total = sum(w for _, _, w in self.rows)
        return (own + self.alpha) / (total + len(self.classes) * self.alpha)

    def margin(self, j, value, c):
        known = [(row[j], w) for row, y, w in self.rows if y == c and row[j] is not None]
        size = len(self.domains[j])
        below = sum(w for _, w in known) + size * self.alpha
        if not below:
            return Fraction(1, size)
        return (sum(w for v, w in known if v == value) + self.alpha) / below

    def complete(self, row, c):
        """Return P(row | c) of a row without missing values."""
        whole = [(r, w) for r, y, w in self.rows if y == c and None not in r]
        independent = Fraction(1)
        for j, value in enumerate(row):
            independent *= self.margin(j, value, c)
        below = sum(w for _, w in whole) + self.tau
        if not below:
            return independent
        return (sum(w for r, w in whole if r == tuple(row)) + self.tau * independent) / below

    def joint(self, row, c):
        """Return P(c, what is known of the row)."""
        open_ = [self.domains[j] if v is None else [v] for j, v in enumerate(row)]
        return self.prior(c) * sum(self.complete(full, c) for full in product(*open_))
