"""Logistic regression the plain way: a column for each indicator, the optimum by scipy (§8)."""

from __future__ import annotations

import numpy as np
import scipy.optimize


class Problem:
    """The objective of rows given as {column: cells}, None where missing.

    `names` are (column, value), (column, None) of a number, ((a, b), (value, value)) of a pair;
    coefficients are {name: (M,)} and the intercept (M,): one output for two classes, else K.
    """

    def __init__(
        self,
        columns,
        labels,
        *,
        numeric=(),
        pairs=(),
        weight=None,
        class_weight=None,
        C=1.0,
        penalty="l2",
    ):
        n = len(labels)
        own = np.ones(n) if weight is None else np.asarray(weight, dtype=float)
        self.classes = sorted(set(labels))
        self.numeric = [j for j in columns if j in numeric]
        self.categorical = [j for j in columns if j not in numeric]
        self.domains = {j: sorted(set(columns[j]) - {None}) for j in self.categorical}
        self.means = {}
        for j in self.numeric:
            known = [(x, w) for x, w in zip(columns[j], own, strict=True) if x is not None]
            total = sum(w for _, w in known)
            self.means[j] = sum(x * w for x, w in known) / total if total else 0.0
        self.names = [(j, v) for j in self.categorical for v in self.domains[j]]
        self.names += [(j, None) for j in self.numeric]
        self.names += [
            ((a, b), (v, u)) for a, b in pairs for v in self.domains[a] for u in self.domains[b]
        ]
        if class_weight == "balanced":
            totals = {
                c: sum(w for y, w in zip(labels, own, strict=True) if y == c) for c in self.classes
            }
            class_weight = {c: own.sum() / (len(totals) * t) for c, t in totals.items()}
        by_class = {c: (class_weight or {}).get(c, 1.0) for c in self.classes}
        self.weight = np.array([w * by_class[y] for y, w in zip(labels, own, strict=True)])
        self.y = np.array([self.classes.index(y) for y in labels])
        self.C, self.penalty = C, penalty
        self.X = self.matrix(columns, n)
        # Where the numbers are far from 0, sums are taken around their means: the objective is the
        # same, the intercept another.
        self.shift = np.array([self.means.get(name[0], 0.0) for name in self.names])
        self.Z = self.X - self.shift

    def matrix(self, columns, n):
        """Return one column for each name: indicators, 0 where missing or unseen; numbers."""
        X = np.zeros((n, len(self.names)))
        for k, (column, value) in enumerate(self.names):
            for r in range(n):
                if isinstance(column, tuple):
                    X[r, k] = all(columns[j][r] == v for j, v in zip(column, value, strict=True))
                elif column in self.numeric:
                    x = columns[column][r]
                    X[r, k] = self.means[column] if x is None else x
                else:
                    X[r, k] = columns[column][r] == value
        return X

    @property
    def n_outputs(self):
        return 1 if len(self.classes) == 2 else len(self.classes)

    # -- the objective, of an intercept at the means ------------------------------------------

    def losses(self, intercept, coef):
        margins = self.Z @ coef + intercept
        if self.n_outputs == 1:
            m = margins[:, 0]
            return np.logaddexp(0, m) - self.y * m
        return np.logaddexp.reduce(margins, axis=1) - margins[np.arange(len(self.y)), self.y]

    def penalised(self, coef):
        if self.penalty is None:
            return 0.0
        return np.abs(coef).sum() / self.C if self.penalty == "l1" else (coef**2).sum() / 2 / self.C

    def value(self, intercept, coef):
        return self.weight @ self.losses(intercept, coef) + self.penalised(coef)

    def apart(self, intercept, coef):
        """Return what the class's probability lacks, (n, M), and the probabilities."""
        margins = self.Z @ coef + intercept
        if self.n_outputs == 1:
            p = 1 / (1 + np.exp(-np.clip(margins, -700, 700)))
            return p - self.y[:, None], p
        p = np.exp(margins - margins.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p - np.eye(len(self.classes))[self.y], p

    def gradient(self, intercept, coef):
        """Return derivatives of the losses alone, by intercept and coefficients, (1 + P, M)."""
        apart = self.apart(intercept, coef)[0] * self.weight[:, None]
        return np.vstack([apart.sum(axis=0), self.Z.T @ apart])

    def hessian(self, intercept, coef):
        p = self.apart(intercept, coef)[1]
        X = np.column_stack([np.ones(len(p)), self.Z])
        m, size = self.n_outputs, X.shape[1]
        H = np.zeros((size, m, size, m))
        for a in range(m):
            for b in range(m):
                w = p[:, a] * ((a == b) - p[:, b])
                H[:, a, :, b] = X.T @ (X * (self.weight * w)[:, None])
        return H.reshape(size * m, size * m)

    # -- its optimum ---------------------------------------------------------------------------

    def optimum(self):
        """Return (objective, intercept at the columns' zeros, coef), exact to the eleventh place.

        The penalty must be "l2"; columns are scaled while the optimum is looked for.
        """
        m = self.n_outputs
        scale = np.array([max(1e-12, np.std(z)) if z.any() else 1.0 for z in self.Z.T])
        scale = np.concatenate([[1.0], scale])[:, None]
        ridge = np.repeat(np.concatenate([[0.0], np.full(len(self.names), 1 / self.C)]), m)
        whole = self.weight.sum()

        def parts(x):
            theta = x.reshape(-1, m) / scale
            return theta[0], theta[1:]

        def value(x):
            return self.value(*parts(x)) / whole

        def gradient(x):
            theta = x.reshape(-1, m) / scale
            full = self.gradient(*parts(x)) + (ridge * theta.ravel()).reshape(-1, m)
            return (full / scale).ravel() / whole

        def hessian(x):
            s = np.repeat(scale.ravel(), m)
            return (self.hessian(*parts(x)) + np.diag(ridge)) / np.outer(s, s) / whole

        x = np.zeros((1 + len(self.names)) * m)
        x = scipy.optimize.minimize(
            value, x, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-7}
        ).x
        for _ in range(5):  # Newton's method doubles the number of true places.
            x = x - np.linalg.lstsq(hessian(x), gradient(x), rcond=1e-14)[0]
        assert np.abs(gradient(x)).max() < 1e-11
        intercept, coef = parts(x)
        return self.value(intercept, coef), self.at_zero(intercept, coef), coef

    def at_zero(self, intercept, coef):
        """Return the intercept of columns that are not shifted; of several classes, centred."""
        b = intercept - self.shift @ coef
        return b - b.mean() if self.n_outputs > 1 else b

    # -- what a model is held against ------------------------------------------------------------

    def of(self, names, intercept, coef):
        """Return (intercept at the means, coef) of a model, whose coef is (M, P) by its names."""
        where = {name: k for k, name in enumerate(names)}
        assert len(where) == len(names) == len(self.names)
        coef = np.asarray(coef)[:, [where[name] for name in self.names]].T
        return np.asarray(intercept) + self.shift @ coef, coef
