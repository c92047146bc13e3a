"""k-dependence Bayes one row at a time: counts by looking at every row, sums over completions.

Rows are dicts from column to value, None where missing; probabilities are exact fractions.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction


class KDB:
    """P(c) prod_j P(x_j | parents, c) of {feature: parents}, in the order of the structure."""

    def __init__(self, parents, *, alpha=1, values=None, as_value=False):
        self.parents, self.alpha = parents, Fraction(alpha)
        self.declared, self.as_value = values or {}, as_value

    def fit(self, rows, classes, weights=None):
        weights = [1] * len(rows) if weights is None else weights
        self.rows = [
            (row, c, Fraction(w)) for row, c, w in zip(rows, classes, weights, strict=True) if w
        ]
        self.classes = sorted({c for _, c, _ in self.rows})
        self.values = {}
        for j in self.parents:
            seen = {row[j] for row, _, _ in self.rows}
            known = sorted(seen - {None}) if j not in self.declared else self.declared[j]
            self.values[j] = [*known, None] if self.as_value and None in seen else [*known]
        return self

    def count(self, c, cells):
        return sum(
            w for row, label, w in self.rows if label == c and all(row[j] == v for j, v in cells)
        )

    def prior(self, c):
        n = {k: self.count(k, []) for k in self.classes}
        return ratio(n[c] + self.alpha, sum(n.values()) + len(n) * self.alpha, len(n))

    def given(self, j, cells, c):
        """P(x_j | parents, c) in a row without holes."""
        above = [(p, cells[p]) for p in self.parents[j]]
        size = len(self.values[j])
        n = {v: self.count(c, [*above, (j, v)]) for v in self.values[j]}
        below = sum(n.values()) + size * self.alpha
        return ratio(n.get(cells[j], 0) + self.alpha, below, size)

    def joint(self, row):
        """Sum over every completion of the features that are not observed."""
        cells = {j: row[j] for j in self.parents if row[j] in self.values[j]}
        hidden = [j for j in self.parents if j not in cells and self.values[j]]
        told = [j for j in self.parents if self.values[j]]
        totals = dict.fromkeys(self.classes, Fraction(0))
        for filling in itertools.product(*(self.values[j] for j in hidden)):
            whole = cells | dict(zip(hidden, filling, strict=True))
            for c in self.classes:
                totals[c] += math.prod((self.given(j, whole, c) for j in told), start=self.prior(c))
        return list(totals.values())


def ratio(above, below, size):
    return Fraction(1, size) if below == 0 else above / below


def structure(rows, classes, columns, k):
    """Return {feature: parents} as Sahami's algorithm says; ties go by name."""

    def information(i, j=None):
        """I(X_i; X_j | C), or I(X_i; C), in nats."""
        if j is None:
            cells = [(None, row[i], c) for row, c in zip(rows, classes, strict=True)]
        else:
            cells = [(c, row[i], row[j]) for row, c in zip(rows, classes, strict=True)]
        cells = [cell for cell in cells if None not in cell[1:]]
        total = 0.0
        for z, a, b in cells:
            n = sum(cell == (z, a, b) for cell in cells)
            n_za = sum(cell[:2] == (z, a) for cell in cells)
            n_zb = sum(cell[0] == z and cell[2] == b for cell in cells)
            n_z = sum(cell[0] == z for cell in cells)
            total += math.log(n * n_z / (n_za * n_zb)) / len(cells)
        return round(total, 12)

    order = sorted(columns, key=lambda j: (-information(j), j))
    parents = {}
    for at, j in enumerate(order):
        earlier = sorted(order[:at], key=lambda i: (-information(i, j), *sorted((i, j))))
        parents[j] = tuple(earlier[:k])
    return parents
