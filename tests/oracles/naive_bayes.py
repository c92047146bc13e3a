"""Naive Bayes over categorical and Gaussian columns, one cell at a time.

Counts, moments and ratios are exact fractions; only logarithms and exponentials are floats.
Rows are dicts from column to value, None where missing.
"""

from __future__ import annotations

import math
from fractions import Fraction

MISSING = object()  # the value of its own that missing="category" makes


class NaiveBayes:
    def __init__(self, *, alpha=1.0, class_prior=None, ddof=0, variance="per_class",
                 var_floor=1e-9, missing="marginalize", unseen="ignore", domains=None,
                 numeric=(), unlabelled=None):  # fmt: skip
        self.alpha = Fraction(alpha)
        self.class_prior = class_prior
        self.ddof = ddof
        self.variance = variance
        self.var_floor = var_floor if var_floor == "within" else Fraction(var_floor)
        self.missing = missing
        self.unseen = unseen
        self.domains = domains or {}
        self.numeric = set(numeric)
        self.unlabelled = unlabelled

    # Fitting

    def fit(self, rows, classes, weights=None):
        """A row of class None is dropped, or used by EM; a row of weight 0 is no row."""
        weights = [1] * len(rows) if weights is None else weights
        kept = [
            (row, c, Fraction(w))
            for row, c, w in zip(rows, classes, weights, strict=True)
            if w != 0 and (c is not None or self.unlabelled == "em")
        ]
        self.columns = list(rows[0])
        self.classes = sorted({c for _, c, _ in kept if c is not None})
        self.values = {}
        for j in self.columns:
            if j not in self.numeric:
                seen = {self.cell(row, j) for row, _, _ in kept} - {None}
                category = seen & {MISSING}
                declared = self.domains.get(j, sorted(seen - category))
                assert seen - category <= set(declared)
                self.values[j] = [*declared, *category]
        self.count([(row, {c: w}) for row, c, w in kept if c is not None])
        if self.unlabelled == "em":
            self.expect_and_maximise(kept)
        return self

    def cell(self, row, j):
        """The value of a cell, None where it is to be marginalised out."""
        if row[j] is None and self.missing == "category" and j not in self.numeric:
            return MISSING
        return row[j]

    def count(self, members):
        """Count rows, each given with its weight in every class it belongs to."""
        self.n = dict.fromkeys(self.classes, Fraction(0))
        self.counts = {j: {(c, v): Fraction(0) for c in self.classes for v in values}
                       for j, values in self.values.items()}  # fmt: skip
        cells = {(j, c): [] for j in self.numeric for c in self.classes}
        for row, membership in members:
            for c, w in membership.items():
                self.n[c] += w
                for j in self.columns:
                    v = self.cell(row, j)
                    if v is None:
                        continue
                    if j in self.numeric:
                        cells[j, c].append((Fraction(v), w))
                    else:
                        self.counts[j][c, v] += w
        self.moments = {key: moments(pairs) for key, pairs in cells.items()}
        self.overall = {
            j: moments([pair for c in self.classes for pair in cells[j, c]]) for j in self.numeric
        }

    def expect_and_maximise(self, kept, tolerance=1e-13):
        """Give rows without a class their posterior as membership, until nothing moves."""
        before = None
        for _ in range(10_000):
            members, memberships = [], []
            for row, c, w in kept:
                if c is not None:
                    members.append((row, {c: w}))
                    continue
                p = [Fraction(x) for x in self.posterior(row)]
                memberships += p
                members.append((row, {k: x * w for k, x in zip(self.classes, p, strict=True)}))
            self.count(members)
            if (
                before
                and max(abs(a - b) for a, b in zip(before, memberships, strict=True)) < tolerance
            ):
                return
            before = memberships
        raise AssertionError("EM did not settle")

    # Parameters

    def prior(self, c):
        k, n = len(self.classes), sum(self.n.values())
        if self.class_prior is None:
            return ratio(self.n[c] + self.alpha, n + k * self.alpha, k)
        if self.class_prior == "empirical":
            return self.n[c] / n
        if self.class_prior == "uniform":
            return Fraction(1, k)
        return Fraction(self.class_prior[self.classes.index(c)])

    def likelihood(self, j, v, c):
        """P(x_j = v | c); 1 for what is to be ignored."""
        size = len(self.values[j])
        if v is None or size == 0:
            return Fraction(1)
        if v in self.values[j]:
            n = self.counts[j][c, v]
        elif self.unseen == "smooth":
            n = Fraction(0)
        elif self.unseen == "error":
            raise ValueError(f"column {j!r}: value {v!r} is not in the domain")
        else:
            return Fraction(1)
        return ratio(n + self.alpha, self.known(j, c) + size * self.alpha, size)

    def known(self, j, c):
        return sum(self.counts[j][c, v] for v in self.values[j])

    def gaussian(self, j, c):
        """Mean and variance, None where the column is constant within every class."""
        if all(self.moments[j, k][2] == 0 for k in self.classes):
            return None
        mean = self.moments[j, c][1] if self.moments[j, c][0] else self.overall[j][1]
        n, _, scatter = self.overall[j]
        floor = self.var_floor
        if floor == "within":
            if self.variance != "per_class":
                return mean, self.raw_variance(j, c)
            floor, scatter = Fraction(0.04), sum(self.moments[j, k][2] for k in self.classes)
        return mean, max(self.raw_variance(j, c), floor * scatter / n)

    def raw_variance(self, j, c):
        n, _, scatter = self.moments[j, c]
        if self.variance == "single":
            return self.within(self.numeric)
        if self.variance == "shared" or n <= self.ddof:
            return self.within([j])
        return scatter / (n - self.ddof)

    def within(self, features):
        scatter = sum(self.moments[j, c][2] for j in features for c in self.classes)
        freedom = sum(self.overall[j][0] - self.ddof * len(self.classes) for j in features)
        return scatter / freedom

    # Answers

    def contributions(self, row):
        """One dict from class to nats for each column."""
        return {j: {c: self.contribution(row, j, c) for c in self.classes} for j in self.columns}

    def contribution(self, row, j, c):
        if j not in self.numeric:
            return log(self.likelihood(j, self.cell(row, j), c))
        parameters = self.gaussian(j, c)
        if row[j] is None or parameters is None:
            return 0.0
        mean, variance = parameters
        return float(-((Fraction(row[j]) - mean) ** 2) / (2 * variance)) - 0.5 * math.log(
            2 * math.pi * variance
        )

    def log_joint(self, row):
        nats = self.contributions(row)
        return [
            math.fsum([log(self.prior(c)), *(nats[j][c] for j in self.columns)])
            for c in self.classes
        ]

    def log_evidence(self, row):
        return log_sum_exp(self.log_joint(row))

    def posterior(self, row):
        """The prior where the row is impossible in every class."""
        joint = self.log_joint(row)
        evidence = log_sum_exp(joint)
        if evidence == -math.inf:
            prior = [float(self.prior(c)) for c in self.classes]
            return [p / sum(prior) for p in prior]
        return [math.exp(x - evidence) for x in joint]

    def predict(self, row):
        """The likeliest class, the first of equals."""
        posterior = self.posterior(row)
        return self.classes[posterior.index(max(posterior))]

    def leave_one_out_log_joint(self):
        """Each row scored by the counts without it, summed: a closed form of the counts."""
        k, n, a = len(self.classes), sum(self.n.values()), self.alpha
        total = math.fsum(
            float(m) * log(ratio(less(m) + a, less(n) + k * a, k)) for m in self.n.values() if m
        )
        for j, values in self.values.items():
            for c in self.classes:
                below = less(self.known(j, c)) + len(values) * a
                for v in values:
                    m = self.counts[j][c, v]
                    total += float(m) * log(ratio(less(m) + a, below, len(values))) if m else 0.0
        return total


def less(n):
    """The count without one row; without all of it where it is a fraction of a row."""
    return n - min(n, 1)


def ratio(numerator, denominator, size):
    """The limit 1/size where the ratio is 0/0."""
    return Fraction(1, size) if denominator == 0 else numerator / denominator


def moments(pairs):
    """Weight, mean and sum of squared deviations of (value, weight) pairs."""
    n = sum((w for _, w in pairs), Fraction(0))
    if n == 0:
        return n, Fraction(0), Fraction(0)
    mean = sum(w * x for x, w in pairs) / n
    return n, mean, sum(w * (x - mean) ** 2 for x, w in pairs)


def log(p):
    return math.log(p) if p else -math.inf


def log_sum_exp(terms):
    top = max(terms)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(x - top) for x in terms))
