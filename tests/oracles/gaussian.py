"""Normal densities of all columns together within each class, one number at a time.

Moments, matrices and their inverses are exact fractions; square roots, logarithms and eigenvalues
are floats. Rows are lists of numbers, None where missing.
"""

from __future__ import annotations

import math
from fractions import Fraction

TOLERANCE = 1e-9


class GaussianBayes:
    def __init__(self, *, covariance="full", ddof=0, shrinkage=None, singular="pool", prior=None,
                 class_prior=None, var_floor=1e-9, missing="marginalize"):  # fmt: skip
        self.covariance = covariance
        self.ddof = ddof
        self.shrinkage = shrinkage
        self.singular = singular
        self.prior = prior
        self.class_prior = class_prior
        self.var_floor = Fraction(var_floor)
        self.missing = missing

    # Fitting

    def fit(self, rows, classes, weights=None):
        weights = [1] * len(rows) if weights is None else weights
        kept = [(list(map(exact, row)), c, Fraction(w))
                for row, c, w in zip(rows, classes, weights, strict=True) if w]  # fmt: skip
        self.classes = sorted({c for _, c, _ in kept})
        self.p = len(rows[0])
        self.every = range(self.p)
        self.n_rows = {c: sum(w for _, d, w in kept if c == d) for c in self.classes}
        if self.missing == "impute_mean":
            kept = self.imputed(kept)
        kept = [(row, c, w) for row, c, w in kept if None not in row]
        self.n, self.mean, self.scatter = {}, {}, {}
        for c in self.classes:
            mine = [(row, w) for row, d, w in kept if c == d]
            self.n[c], self.mean[c], self.scatter[c] = moments(mine, self.p)
        self.total, self.grand, overall = moments([(row, w) for row, _, w in kept], self.p)
        self.overall = [overall[j][j] / self.total for j in self.every]
        for c in self.classes:
            if not self.n[c]:
                self.mean[c] = self.grand
        self.within = added(self.scatter.values(), self.p)
        self.constant = [j for j in self.every if self.within[j][j] == 0]
        self.floored = set()
        if self.prior is not None:
            self.update_prior()
        else:
            self.estimate()
        return self

    def imputed(self, kept):
        means = {}
        for c in self.classes:
            for j in self.every:
                known = [(row[j], w) for row, d, w in kept if c == d and row[j] is not None]
                means[c, j] = sum(x * w for x, w in known) / sum(w for _, w in known)
        return [([means[c, j] if x is None else x for j, x in enumerate(row)], c, w)
                for row, c, w in kept]  # fmt: skip

    def estimate(self):
        freedom = self.total - self.ddof * sum(1 for n in self.n.values() if n)
        pooled = scaled(self.within, 1 / freedom) if freedom > 0 else scaled(self.within, 0)
        self.sigma, self.share = {}, {}
        for c in self.classes:
            n, sigma = self.n[c], pooled
            if self.covariance == "tied" or n <= self.ddof:
                n = self.total
            else:
                sigma = scaled(self.scatter[c], 1 / (self.n[c] - self.ddof))
                if self.covariance == "full" and self.without_inverse(sigma):
                    n += 10
                    rows = zip(self.scatter[c], pooled, strict=True)
                    sigma = [[(s + 10 * t) / n for s, t in zip(*both, strict=True)]
                             for both in rows]  # fmt: skip
            self.sigma[c], self.share[c] = self.repaired(sigma, n)
        if self.covariance == "diagonal":
            self.sigma = {c: diagonal([s[j][j] for j in self.every]) for c, s in self.sigma.items()}
        if self.covariance == "spherical":
            free = [j for j in self.every if j not in self.constant]
            for c in self.classes:
                n = self.n[c]
                s = pooled if n <= self.ddof else scaled(self.scatter[c], 1 / (n - self.ddof))
                variance = sum(s[j][j] for j in free) / max(1, len(free))
                floor = self.var_floor * sum(self.overall[j] for j in free) / max(1, len(free))
                self.sigma[c] = diagonal([max(variance, floor)] * self.p)

    def without_inverse(self, sigma):
        """Whether a class takes rows of the covariance within all of them."""
        if self.singular != "pool":
            return False
        free = [j for j in self.every if j not in self.constant]
        if any(sigma[j][j] < self.var_floor * self.overall[j] for j in free):
            return True
        low, high = extremes(sigma, free) if self.shrinkage is None else (1, 1)
        return low < TOLERANCE * high

    def repaired(self, sigma, n):
        """Raise variances to the floor, then shrink correlations as asked and as needed."""
        sigma = [list(row) for row in sigma]
        free = [j for j in self.every if j not in self.constant]
        for j in free:
            if sigma[j][j] < self.var_floor * self.overall[j]:
                sigma[j][j] = self.var_floor * self.overall[j]
                self.floored.add(j)
        share = Fraction(0)
        if self.covariance in ("full", "tied"):
            if self.shrinkage is not None:
                share = oas(sigma, free, n) if self.shrinkage == "auto" else self.shrinkage
                share = Fraction(share)
                sigma = shrunk(sigma, share)
            low, high = extremes(sigma, free)
            if low < TOLERANCE * high:
                assert self.singular != "error"
                more = Fraction(1)
                if self.singular != "diagonal":
                    lack = 2 * TOLERANCE * high - low
                    more = Fraction(max(oas(sigma, free, n), lack / (lack + 1 - 2 * TOLERANCE)))
                sigma = shrunk(sigma, more)
                share = 1 - (1 - share) * (1 - more)
        return sigma, share

    def update_prior(self):
        """Murphy (2007), section 9: the posterior, and the scale and dof of a new row."""
        told = {} if self.prior == "niw" else self.prior
        mean = [exact(x) for x in told.get("mean", self.grand)]
        kappa = exact(told.get("kappa", 0.01))
        scale = told.get("scale", [self.within[j][j] / self.total for j in self.every])
        scale = [[exact(x) for x in row] for row in scale] if isinstance(scale[0], list) else (
            diagonal([exact(x) for x in scale]))  # fmt: skip
        self.constant = [j for j in self.every if scale[j][j] == 0]
        p = self.p - len(self.constant)
        nu = exact(told.get("nu", p + 2))
        post = {}
        for c in self.classes:
            n = self.n[c]
            apart = [a - b for a, b in zip(self.mean[c], mean, strict=True)]
            between = kappa * n / (kappa + n)
            post[c] = [[self.scatter[c][i][j] + between * apart[i] * apart[j]
                        for j in self.every] for i in self.every]  # fmt: skip
        together = added(post.values(), self.p)
        self.sigma, self.dof = {}, {}
        for c in self.classes:
            tied, n = self.covariance == "tied", self.n[c]
            lam = added([scale, together if tied else post[c]], self.p)
            self.dof[c] = nu + (self.total if tied else n) - p + 1
            self.sigma[c] = scaled(lam, (kappa + n + 1) / ((kappa + n) * self.dof[c]))
            if n:
                self.mean[c] = [(kappa * a + n * b) / (kappa + n)
                                for a, b in zip(mean, self.mean[c], strict=True)]  # fmt: skip
            else:
                self.mean[c] = mean

    # Answers

    def log_prior(self, c):
        if self.class_prior in (None, "empirical"):
            return log(self.n_rows[c] / sum(self.n_rows.values()))
        if self.class_prior == "uniform":
            return -math.log(len(self.classes))
        return log(self.class_prior[self.classes.index(c)])

    def log_density(self, row, c):
        """ln f of the known coordinates that are not constant within every class."""
        row = [exact(x) for x in row]
        known = [j for j in self.every if row[j] is not None and j not in self.constant]
        if not known:
            return 0.0
        q = len(known)
        apart = [row[j] - self.mean[c][j] for j in known]
        sub = [[self.sigma[c][i][j] for j in known] for i in known]
        solution, determinant = solved(sub, apart)
        distance = float(sum(a * b for a, b in zip(apart, solution, strict=True)))
        half = 0.5 * log(determinant)
        if self.prior is None:
            return -0.5 * q * math.log(2 * math.pi) - half - 0.5 * distance
        dof = float(self.dof[c])
        top = math.lgamma((dof + q) / 2) - math.lgamma(dof / 2) - 0.5 * q * math.log(dof * math.pi)
        return top - half - 0.5 * (dof + q) * math.log1p(distance / dof)

    def log_joint(self, row):
        return [self.log_prior(c) + self.log_density(row, c) for c in self.classes]

    def posterior(self, row):
        joint = self.log_joint(row)
        top = max(joint)
        parts = [math.exp(x - top) for x in joint]
        return [x / math.fsum(parts) for x in parts]

    def contributions(self, row):
        """One dict from class to nats for each column: ln f(x_j | the known ones before it, c)."""
        found, before = [], dict.fromkeys(self.classes, 0.0)
        for j in self.every:
            so_far = [x if i <= j else None for i, x in enumerate(row)]
            after = {c: self.log_density(so_far, c) for c in self.classes}
            found.append({c: after[c] - before[c] for c in self.classes})
            before = after
        return found


def exact(x):
    return None if x is None or x != x else Fraction(x)


def moments(rows, p):
    """Weight, mean and scatter matrix of (row, weight) pairs."""
    n = sum((w for _, w in rows), Fraction(0))
    zero = [[Fraction(0)] * p for _ in range(p)]
    if not n:
        return n, [Fraction(0)] * p, zero
    mean = [sum(w * row[j] for row, w in rows) / n for j in range(p)]
    scatter = [[sum(w * (row[i] - mean[i]) * (row[j] - mean[j]) for row, w in rows)
                for j in range(p)] for i in range(p)]  # fmt: skip
    return n, mean, scatter


def added(matrices, p):
    matrices = list(matrices)
    return [[sum((m[i][j] for m in matrices), Fraction(0)) for j in range(p)] for i in range(p)]


def scaled(matrix, factor):
    return [[x * factor for x in row] for row in matrix]


def diagonal(entries):
    return [[x if i == j else Fraction(0) for j in range(len(entries))]
            for i, x in enumerate(entries)]  # fmt: skip


def shrunk(sigma, share):
    return [[x if i == j else x * (1 - share) for j, x in enumerate(row)]
            for i, row in enumerate(sigma)]  # fmt: skip


def correlations(sigma, free):
    return [[float(sigma[i][j]) / math.sqrt(float(sigma[i][i])) / math.sqrt(float(sigma[j][j]))
             for j in free] for i in free]  # fmt: skip


def oas(sigma, free, n):
    """Chen et al. (2010), eq. 23, of the correlations."""
    r, p = correlations(sigma, free), len(free)
    squares = math.fsum(x * x for row in r for x in row)
    if p < 2 or squares <= p:
        return 1.0
    above = (1 - 2 / p) * squares + p**2
    return min(1.0, above / ((float(n) + 1 - 2 / p) * (squares - p)))


def extremes(sigma, free):
    """The least and the greatest eigenvalue of the correlations, by Jacobi's rotations."""
    a, p = correlations(sigma, free), len(free)
    for _ in range(60):
        for i in range(p):
            for j in range(i + 1, p):
                if abs(a[i][j]) < 1e-300:
                    continue
                theta = (a[j][j] - a[i][i]) / (2 * a[i][j])
                t = math.copysign(1, theta) / (abs(theta) + math.sqrt(theta * theta + 1))
                cos = 1 / math.sqrt(t * t + 1)
                sin = t * cos
                for k in range(p):
                    x, y = a[k][i], a[k][j]
                    a[k][i], a[k][j] = cos * x - sin * y, sin * x + cos * y
                for k in range(p):
                    x, y = a[i][k], a[j][k]
                    a[i][k], a[j][k] = cos * x - sin * y, sin * x + cos * y
    values = [a[i][i] for i in range(p)] or [1.0]
    return min(values), max(values)


def solved(matrix, right):
    """The solution of a linear system of fractions, and the determinant, by elimination."""
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    determinant, q = Fraction(1), len(rows)
    for i in range(q):
        determinant *= rows[i][i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(q):
            if k != i and rows[k][i]:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[-1] for row in rows], determinant


def log(x):
    return math.log(x) if x else -math.inf
