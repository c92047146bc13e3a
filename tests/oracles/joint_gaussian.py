"""Gaussians in the cells of a joint table, row by row and cell by cell (SEMANTICS §4)."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from oracles.joint import Joint


def moments(x):
    """Return the number of rows, their mean and their covariance."""
    n, p = len(x), x.shape[1]
    if not n:
        return 0, np.zeros(p), np.zeros((p, p))
    mean = np.array([sum(column) / n for column in x.T])
    covariance = np.zeros((p, p))
    for row in x - mean:
        covariance += np.outer(row, row) / n
    return n, mean, covariance


def drawn_to(own, parent, kappa):
    """Return mean and covariance of n rows and kappa pseudo-rows of the parent, merged."""
    n, mean, covariance = own
    if not n:
        return parent
    centre, spread = parent
    apart = mean - centre
    scatter = n * covariance + kappa * spread + n * kappa / (n + kappa) * np.outer(apart, apart)
    return (n * mean + kappa * centre) / (n + kappa), scatter / (n + kappa)


# Rows that the mean of the prior is worth; its covariance is worth one.
KAPPA = 0.01


def known(x, i):
    """Return the values of a column that are there."""
    return [row[i] for row in x if not math.isnan(row[i])]


def average(values):
    return sum(values) / len(values) if values else 0.0


def posterior(x, mean, variances):
    """Return expected mean and covariance of rows under the prior, and the rows of each column."""
    p = len(mean)
    values = [known(x, i) for i in range(p)]
    own, n = [average(v) for v in values], [len(v) for v in values]
    apart = [own[i] - mean[i] if n[i] else 0.0 for i in range(p)]
    weight = [math.sqrt(KAPPA * n[i] / (KAPPA + n[i])) for i in range(p)]
    covariance = np.zeros((p, p))
    for i, j in product(range(p), repeat=2):
        total = (i == j) * variances[i] + weight[i] * weight[j] * apart[i] * apart[j]
        for row in x:
            if not (math.isnan(row[i]) or math.isnan(row[j])):
                total += (row[i] - own[i]) * (row[j] - own[j])
        covariance[i, j] = total / math.sqrt((n[i] + 1) * (n[j] + 1))
    centre = [mean[i] + n[i] / (KAPPA + n[i]) * apart[i] for i in range(p)]
    return (np.array(centre), covariance), np.array(n, float)


def density(x, mean, covariance, rows=None):
    """Return the normal density of the known numbers, or Student's t of rows of each column."""
    known = ~np.isnan(x)
    p = int(known.sum())
    apart, part = (x - mean)[known], covariance[np.ix_(known, known)]
    if rows is None:
        q = apart @ np.linalg.solve(part, apart) if known.any() else 0.0
        return np.exp(-q / 2) / np.sqrt(np.linalg.det(2 * np.pi * part))
    dof = sum(rows) / len(rows) + 3
    wider = np.sqrt((KAPPA + rows + 1) / (KAPPA + rows))[known]
    scale = part * (dof - 2) / dof * np.outer(wider, wider)
    q = apart @ np.linalg.solve(scale, apart) if known.any() else 0.0
    log = math.lgamma((dof + p) / 2) - math.lgamma(dof / 2)
    log -= 0.5 * p * math.log(dof * math.pi) + 0.5 * math.log(np.linalg.det(scale))
    return math.exp(log - 0.5 * (dof + p) * math.log1p(q / dof))


class JointGaussian:
    """P(c, v, x) of rows of values (None where missing) and numbers (NaN where missing)."""

    def __init__(
        self,
        rows,
        x,
        classes,
        domains,
        *,
        backoff,
        tau=1,
        alpha=1,
        cells="joint",
        density="student",
    ):
        self.domains, self.cells, self.backoff, self.density = domains, cells, backoff, density
        self.table = Joint(rows, classes, domains, tau=tau, alpha=alpha)
        self.classes = self.table.classes
        self.shares = {c: classes.count(c) / len(classes) for c in self.classes}
        whole = [i for i in range(len(rows)) if not np.isnan(x[i]).any()]
        every = moments(x[whole])[1:]
        self.own, self.of_class, self.n = {}, {}, {}
        centre, within = [], []
        for i in range(x.shape[1]):
            centre.append(average(known(x, i)))
            squares = []
            for c in self.classes:
                values = known(x[[k == c for k in classes]], i)
                squares += [(v - average(values)) ** 2 for v in values]
            within.append(average(squares))
        for c in self.classes:
            mine = [i for i in whole if classes[i] == c]
            if density == "student":
                found = posterior(x[[k == c for k in classes]], centre, within)
                self.of_class[c], self.n[c] = found
            else:
                found = moments(x[mine])
                deep = found[0] > x.shape[1] and np.linalg.cond(found[2]) < 1e9
                self.of_class[c] = found[1:] if deep else drawn_to(found, every, backoff)
            for v in product(*domains):
                self.own[v, c] = moments(x[[i for i in mine if tuple(rows[i]) == v]])

    def of_values(self, v, c):
        if self.cells == "joint":
            return float(self.table.complete(v, c))
        return float(np.prod([float(self.table.margin(j, value, c)) for j, value in enumerate(v)]))

    def gaussian(self, v, c):
        """Return mean and covariance of a cell, and the rows of each column, None if normal."""
        found = drawn_to(self.own[v, c], self.of_class[c], self.backoff)
        if self.density == "normal":
            return (*found, None)
        n = self.own[v, c][0]
        return (*found, np.minimum(n + self.backoff, self.n[c]) if n else self.n[c])

    def joint(self, row, x, c):
        open_ = [self.domains[j] if v is None else [v] for j, v in enumerate(row)]
        return self.shares[c] * sum(
            self.of_values(v, c) * density(x, *self.gaussian(v, c)) for v in product(*open_)
        )
