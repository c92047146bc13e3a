"""Averages of one-dependence estimators beyond AODE, one cell at a time in fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from oracles.one_dependence import AODE, value


class WeightedAODE(AODE):
    """AODE whose super-parents weigh differently (Jiang, Zhang 2006)."""

    def __init__(self, *, weights, **options):
        super().__init__(**options)
        self.weights = weights

    def weight(self, p):
        if self.weights == "mutual_information":
            told = {j: value(self.class_information(j)) for j in self.columns}
            return Fraction(told[p] if any(told.values()) else 1)
        return Fraction(self.weights.get(p, 0))

    def joint(self, row):
        """The weighted mean over the row's qualifying super-parents; else naive Bayes."""
        cells = self.observed(row)
        parents = {
            p: self.weight(p) for p, a in cells.items() if self.frequency(p, a) >= self.min_count
        }
        total = sum(parents.values())
        return [
            sum(u * self.one(p, cells, c) for p, u in parents.items()) / total
            if total
            else math.prod(
                (self.given_class(j, v, c) for j, v in cells.items()), start=self.prior(c)
            )
            for c in self.classes
        ]


class ResolvedAODE(AODE):
    """AODE of rows without the values that others imply (Zheng et al. 2012)."""

    def __init__(self, *, threshold, **options):
        super().__init__(**options)
        self.threshold = threshold

    def implies(self, i, a, j, b):
        n = self.frequency(i, a)
        return n > self.threshold and sum(self.pairs[c, i, a, j, b] for c in self.classes) == n

    def observed(self, row):
        cells = super().observed(row)
        implied = {
            j
            for (i, a), (j, b) in itertools.permutations(cells.items(), 2)
            if self.implies(i, a, j, b) and (i < j or not self.implies(j, b, i, a))
        }
        return {j: v for j, v in cells.items() if j not in implied}
