"""Naive Bayes averaged over all subsets of features, one structure at a time, in fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cached_property

from oracles.naive_bayes import NaiveBayes, ratio


class AveragedNaiveBayes(NaiveBayes):
    """Every structure with its prior, its marginal likelihood and its prediction."""

    def __init__(self, *, chance=Fraction(1, 2), **options):
        super().__init__(**options)
        self.chance = Fraction(chance)

    @cached_property
    def structures(self):
        """{features that depend on the class: posterior probability}."""
        weights = {}
        for kept in itertools.product([False, True], repeat=len(self.columns)):
            inside = {j for j, k in zip(self.columns, kept, strict=True) if k}
            weights[frozenset(inside)] = math.prod(
                (
                    (self.chance if j in inside else 1 - self.chance)
                    * self.marginal_likelihood(j, j in inside)
                    for j in self.columns
                ),
                start=Fraction(1),
            )
        total = sum(weights.values())
        return {inside: w / total for inside, w in weights.items()}

    def marginal_likelihood(self, j, dependent):
        """P(column j | class column): Dirichlet-multinomial, one per class or one for all."""
        groups = [[c] for c in self.classes] if dependent else [self.classes]
        result = Fraction(1)
        for group in groups:
            counts = [sum(self.counts[j][c, v] for c in group) for v in self.values[j]]
            for n in counts:
                result *= rising(self.alpha, n)
            result /= rising(self.alpha * len(counts), sum(counts))
        return result

    def without_class(self, j, v):
        """P(x_j = v), 1 for what is to be ignored."""
        size = len(self.values[j])
        if v is None or not size or (v not in self.values[j] and self.unseen != "smooth"):
            return Fraction(1)
        n = sum(self.counts[j].get((c, v), 0) for c in self.classes)
        total = sum(self.known(j, c) for c in self.classes)
        return ratio(n + self.alpha, total + size * self.alpha, size)

    def joint(self, row):
        """P(c, row) of every class, averaged over the structures."""
        cells = {j: self.cell(row, j) for j in self.columns}
        return [
            sum(
                w
                * math.prod(
                    (
                        self.likelihood(j, v, c) if j in inside else self.without_class(j, v)
                        for j, v in cells.items()
                    ),
                    start=self.prior(c),
                )
                for inside, w in self.structures.items()
            )
            for c in self.classes
        ]

    def probability(self, j):
        """P(feature j depends on the class | data)."""
        return sum(w for inside, w in self.structures.items() if j in inside)


def rising(a, n):
    """a (a + 1) ... (a + n - 1)."""
    assert n == int(n)
    return math.prod((a + i for i in range(int(n))), start=Fraction(1))
