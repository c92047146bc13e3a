"""SPODE, TAN and AODE, one cell at a time.

Every probability is an exact fraction, sums over unobserved values run over all completions, and
information is an exact combination of logarithms of primes: two weights that are equal in truth
are equal here, whatever the order of the columns.
Rows are dicts from column to value, None where missing.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from fractions import Fraction

from oracles.naive_bayes import NaiveBayes, less, ratio


class OneDependence(NaiveBayes):
    """What the three share: counts of pairs, P(x_j | c) and P(x_j | c, x_p)."""

    def __init__(self, *, smoothing="laplace", m=1.0, declared_classes=(), **options):
        super().__init__(**options)
        self.smoothing = smoothing
        self.m = Fraction(m)
        self.declared_classes = set(declared_classes)

    def count(self, members):
        self.classes = sorted({*self.classes, *self.declared_classes})
        super().count(members)
        self.members = members
        self.pairs = Counter()
        for row, membership in members:
            cells = [(j, self.cell(row, j)) for j in self.columns]
            known = [(j, v) for j, v in cells if v is not None]
            for (c, w), (i, a), (j, b) in itertools.product(membership.items(), known, known):
                self.pairs[c, i, a, j, b] += w

    def smoothed(self, n, total, size):
        """The smoothed share n/total of one of `size` values."""
        if self.smoothing == "m_estimate":
            return ratio(n + self.m / size, total + self.m, size)
        return ratio(n + self.alpha, total + size * self.alpha, size)

    def prior(self, c):
        if self.class_prior is None:
            return self.smoothed(self.n[c], sum(self.n.values()), len(self.classes))
        return super().prior(c)

    def given_class(self, j, v, c):
        """P(x_j = v | c)."""
        n = self.counts[j].get((c, v), 0)
        return self.smoothed(n, self.known(j, c), len(self.values[j]))

    def given_parent(self, j, v, c, p, a):
        """P(x_j = v | c, x_p = a)."""
        known = sum(self.pairs[c, p, a, j, b] for b in self.values[j])
        return self.smoothed(self.pairs[c, p, a, j, v], known, len(self.values[j]))

    def together(self, i, j):
        """{(c, a, b): n} over the rows where both columns are known."""
        cells = itertools.product(self.classes, self.values[i], self.values[j])
        return {(c, a, b): self.pairs[c, i, a, j, b] for c, a, b in cells}

    def information(self, i, j):
        """Nats of I(X_i; X_j | C)."""
        return information(self.together(i, j))

    def class_information(self, j):
        """Nats of I(X_j; C)."""
        return information({(None, c, v): n for (c, v), n in self.counts[j].items()})

    def naive(self, cells, c):
        """The joint of naive Bayes."""
        return math.prod((self.given_class(j, v, c) for j, v in cells.items()), start=self.prior(c))

    def frequency(self, p, a):
        return sum(self.counts[p].get((c, a), 0) for c in self.classes)

    def observed(self, row):
        """The cells that say something: neither missing, nor unseen and ignored."""
        cells = {}
        for j in self.columns:
            v = self.cell(row, j)
            if v is None or not self.values[j]:
                continue
            if v in self.values[j] or self.unseen == "smooth":
                cells[j] = v
            elif self.unseen == "error":
                raise ValueError(f"column {j!r}: value {v!r} is not in the domain")
        return cells

    # Answers; a model says joint(row), the exact P(x, c) of every class.

    def log_joint(self, row):
        return [exact_log(p) for p in self.joint(row)]

    def exact_posterior(self, row):
        """The prior where the row is impossible in every class."""
        joint = self.joint(row)
        if sum(joint) == 0:
            joint = [self.prior(c) for c in self.classes]
        return [p / sum(joint) for p in joint]

    def posterior(self, row):
        return [float(p) for p in self.exact_posterior(row)]

    def predict(self, row):
        posterior = self.exact_posterior(row)
        return self.classes[posterior.index(max(posterior))]

    # Leaving out

    def without(self, r):
        """The model counted without one of its rows: schema and structure stay."""
        members = list(self.members)
        row, membership = members[r]
        members[r] = row, {c: less(w) for c, w in membership.items()}
        other = copy.copy(self)
        other.count(members)
        return other

    def leave_one_out(self):
        """Row by row, the posterior of the model counted without it."""
        return [self.without(r).posterior(row) for r, (row, _) in enumerate(self.members)]

    def leave_one_out_log_loss(self):
        """Its weighted mean; probabilities are clipped at 1e-15."""
        losses = [
            (w, -math.log(max(p[self.classes.index(c)], 1e-15)))
            for p, (_, membership) in zip(self.leave_one_out(), self.members, strict=True)
            for c, w in membership.items()
        ]
        return math.fsum(float(w) * x for w, x in losses) / float(sum(w for w, _ in losses))

    def family_log_joint(self, parents):
        """Each row scored by the counts without it, summed over the families of a structure.

        A closed form of the counts; a family of a row in which a member is missing is left out.
        """
        k, n = len(self.classes), sum(self.n.values())
        terms = [(m, self.smoothed(less(m), less(n), k)) for m in self.n.values()]
        for (j, p), c in itertools.product(parents.items(), self.classes):
            size = len(self.values[j])
            for a in self.values[p] if p is not None else [None]:
                family = [
                    self.counts[j][c, v] if p is None else self.pairs[c, p, a, j, v]
                    for v in self.values[j]
                ]
                terms += [(m, self.smoothed(less(m), less(sum(family)), size)) for m in family]
        logs = [float(m) * exact_log(share) for m, share in terms if m]
        return -math.inf if -math.inf in logs else math.fsum(logs)


class SPODE(OneDependence):
    def __init__(self, *, super_parent, **options):
        super().__init__(**options)
        self.super_parent = super_parent

    def joint(self, row):
        """A missing super-parent is summed out; one without any value has no children."""
        p, cells = self.super_parent, self.observed(row)
        if not self.values[p]:
            return [self.naive(cells, c) for c in self.classes]
        return [
            sum(
                math.prod(
                    (self.given_parent(j, v, c, p, a) for j, v in cells.items() if j != p),
                    start=self.prior(c) * self.given_class(p, a, c),
                )
                for a in ([cells[p]] if p in cells else self.values[p])
            )
            for c in self.classes
        ]

    def star(self, p):
        return {j: None if j == p else p for j in self.columns}

    def choose(self, rule):
        """The super-parent by "loo_joint", "loo" or "cmi"; the first name of equals.

        A column without values is none, unless there are no others.
        """
        scores = {}
        for p in [j for j in self.columns if self.values[j]] or self.columns:
            if rule == "loo_joint":
                scores[p] = self.family_log_joint(self.star(p))
            elif rule == "loo":
                other = copy.copy(self)
                other.super_parent = p
                scores[p] = -other.leave_one_out_log_loss()
            else:
                others = [j for j in self.columns if j != p]
                scores[p] = math.fsum(value(self.information(p, j)) for j in others)
        return scores, first_of_the_best(scores)


class TAN(OneDependence):
    def __init__(self, *, root=None, prune=None, parents=None, **options):
        super().__init__(**options)
        self.root = root
        self.prune = prune
        self.parents = parents

    def fit(self, rows, classes, weights=None):
        super().fit(rows, classes, weights)
        if self.parents is None:
            self.parents = self.oriented(self.edges())
        return self

    # Structure

    def edges(self):
        """The maximum spanning forest, the heaviest first, then by names."""
        pairs = list(itertools.combinations(sorted(self.columns), 2))
        weights = {pair: self.edge_weight(*pair) for pair in pairs}
        found, component = [], {j: {j} for j in self.columns}
        for i, j in sorted(pairs, key=lambda pair: (-weights[pair], pair)):
            if not (self.values[i] and self.values[j]) or j in component[i]:
                continue
            if self.prune is None or weights[i, j] > 0:
                found.append((i, j))
                joined = component[i] | component[j]
                component |= dict.fromkeys(joined, joined)
        return found

    def edge_weight(self, i, j):
        """Nats of I(X_i; X_j | C); pruned, what the edge gains less its price.

        The gain is over the rows where both are known, in the price N is all rows; the price is
        never below zero, as it would be by BIC for less than one row of weight.
        """
        if self.prune is None:
            return value(self.information(i, j))
        freedom = len(self.classes) * (len(self.values[i]) - 1) * (len(self.values[j]) - 1)
        known, n = sum(self.together(i, j).values()), sum(self.n.values())
        gain = Counter()
        if known:
            add(gain, self.information(i, j), known)
            price = logarithm(max(n, 1)) if self.prune == "bic" else {math.e: 2}
            add(gain, price, -Fraction(freedom, 2))
        return value(gain)

    def oriented(self, edges):
        """Away from the root, the column that tells most of the class, then by name."""
        first = sorted(self.columns, key=lambda j: (-value(self.class_information(j)), j))
        if self.root is not None:
            first = [self.root, *first]
        parents = {}
        for root in first:
            border = [] if root in parents else [(root, None)]
            for j, p in border:  # it grows
                parents[j] = p
                neighbours = {i for edge in edges if j in edge for i in edge} - {j, p}
                border += [(i, j) for i in sorted(neighbours)]
        return {j: parents[j] for j in self.columns}

    # Answers

    def joint(self, row):
        """Sum over every completion of the unobserved columns that have children."""
        cells = self.observed(row)
        hidden = [j for j in {*self.parents.values()} - {None} if j not in cells]
        totals = dict.fromkeys(self.classes, Fraction(0))
        for filling in itertools.product(*(self.values[j] for j in hidden)):
            whole = cells | dict(zip(hidden, filling, strict=True))
            for c in self.classes:
                totals[c] += math.prod(
                    (self.factor(j, whole, c) for j in whole), start=self.prior(c)
                )
        return list(totals.values())

    def factor(self, j, cells, c):
        p = self.parents[j]
        if p is None:
            return self.given_class(j, cells[j], c)
        return self.given_parent(j, cells[j], c, p, cells[p])


class AODE(OneDependence):
    def __init__(self, *, min_count=1, weights="uniform", **options):
        super().__init__(**options)
        self.min_count = min_count
        self.weights = weights

    def weight(self, p):
        """What a super-parent counts in the mean: alike where no column tells of the class."""
        told = self.weights
        if told == "mutual_information":
            told = {j: value(self.class_information(j)) for j in self.columns}
            told = told if any(told.values()) else "uniform"
        return Fraction(1 if told == "uniform" else told.get(p, 0))

    def joint(self, row):
        """The mean over the row's qualifying super-parents; naive Bayes if there are none."""
        cells = self.observed(row)
        often = [p for p, a in cells.items() if self.frequency(p, a) >= self.min_count]
        parents = {p: self.weight(p) for p in often if self.weight(p) > 0}
        if not parents:
            return [self.naive(cells, c) for c in self.classes]
        total = sum(parents.values())
        return [
            sum(u * self.one(p, cells, c) for p, u in parents.items()) / total for c in self.classes
        ]

    def one(self, p, cells, c):
        children = (self.given_parent(j, v, c, p, cells[p]) for j, v in cells.items() if j != p)
        return math.prod(children, start=self.joint_with(c, p, cells[p]))

    def joint_with(self, c, p, a):
        """P(c, x_p = a); with a given prior, prior · P(x_p = a | c)."""
        n, k, size = self.counts[p].get((c, a), 0), len(self.classes), len(self.values[p])
        if self.class_prior is None:
            return self.smoothed(n, sum(self.known(p, e) for e in self.classes), k * size)
        if self.smoothing == "m_estimate":
            share = ratio(n + self.m / (k * size), self.known(p, c) + self.m / k, size)
        else:
            share = self.smoothed(n, self.known(p, c), size)
        return self.prior(c) * share


def first_of_the_best(scores):
    """The first of the names whose scores are the highest, up to rounding."""
    top = max(scores.values())
    return min(j for j, s in scores.items() if s == top or abs(s - top) <= 1e-12 * abs(top))


# Nats that compare exactly: {prime: q} is the sum of q · ln prime; e is taken for a prime too.


def information(cells):
    """I(A; B | Z) from {(z, a, b): n}."""
    total = sum(cells.values())
    with_a, with_b, alone = Counter(), Counter(), Counter()
    for (z, a, b), n in cells.items():
        with_a[z, a] += n
        with_b[z, b] += n
        alone[z] += n
    nats = Counter()
    for (z, a, b), n in cells.items():
        if n:
            gain = logarithm(Fraction(n) * alone[z] / (with_a[z, a] * with_b[z, b]))
            add(nats, gain, Fraction(n) / total)
    return nats


def logarithm(x):
    nats = Counter()
    for whole, sign in ((Fraction(x).numerator, 1), (Fraction(x).denominator, -1)):
        p = 2
        while whole > 1:
            while whole % p == 0:
                nats[p] += sign
                whole //= p
            p = p + 1 if p * p <= whole else max(whole, p + 1)
    return nats


def add(nats, other, factor):
    for p, q in other.items():
        nats[p] += q * factor


def value(nats):
    """The nearest float; the same one whatever the order of the terms."""
    return math.fsum(float(q) * math.log(p) for p, q in sorted(nats.items()) if q)


def exact_log(p):
    """ln p of a fraction of any size."""
    if p == 0:
        return -math.inf
    shift = p.numerator.bit_length() - p.denominator.bit_length()
    return math.log(p / Fraction(2) ** shift) + shift * math.log(2)
