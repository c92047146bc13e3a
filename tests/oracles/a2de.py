"""A2DE, one cell at a time in fractions."""

from __future__ import annotations

import itertools
import math
from collections import Counter

from oracles.naive_bayes import ratio
from oracles.one_dependence import AODE


class A2DE(AODE):
    """The mean over pairs of parents that qualify in a row; else AODE."""

    def count(self, members):
        super().count(members)
        self.threes = Counter()
        for row, membership in members:
            known = [(j, v) for j in self.columns if (v := self.cell(row, j)) is not None]
            for (c, w), three in itertools.product(
                membership.items(), itertools.permutations(known, 3)
            ):
                self.threes[c, *three] += w

    def joint(self, row):
        cells = self.observed(row)
        pairs = [
            (i, j)
            for i, j in itertools.combinations(cells, 2)
            if sum(self.pairs[c, i, cells[i], j, cells[j]] for c in self.classes) >= self.min_count
        ]
        if not pairs:
            return super().joint(row)
        return [sum(self.two(i, j, cells, c) for i, j in pairs) / len(pairs) for c in self.classes]

    def two(self, i, j, cells, c):
        """P(c, x_i, x_j) times what follows of the other cells."""
        others = (self.given_parents(k, v, c, i, j, cells) for k, v in cells.items())
        return math.prod(others, start=self.joint_with_both(c, i, cells[i], j, cells[j]))

    def given_parents(self, k, v, c, i, j, cells):
        """P(x_k = v | c, x_i, x_j), 1 for the parents themselves."""
        if k in (i, j):
            return 1
        known = [self.threes[c, (i, cells[i]), (j, cells[j]), (k, u)] for u in self.values[k]]
        n = self.threes[c, (i, cells[i]), (j, cells[j]), (k, v)]
        return self.smoothed(n, sum(known), len(self.values[k]))

    def joint_with_both(self, c, i, a, j, b):
        n, k = self.pairs[c, i, a, j, b], len(self.classes)
        size = len(self.values[i]) * len(self.values[j])
        known = {
            e: sum(self.pairs[e, i, u, j, v] for u in self.values[i] for v in self.values[j])
            for e in self.classes
        }
        if self.class_prior is None:
            return self.smoothed(n, sum(known.values()), k * size)
        if self.smoothing == "m_estimate":
            share = ratio(n + self.m / (k * size), known[c] + self.m / k, size)
        else:
            share = self.smoothed(n, known[c], size)
        return self.prior(c) * share
