"""Loss of logistic regression and its derivatives, one row and one coefficient at a time."""

from __future__ import annotations

import math


def features(layout, batch, r):
    """Return the coefficients' rows that a row of the batch touches, and with which number."""
    rows = layout.rows
    touched = [(rows.intercept, 1.0)]
    code = {}
    for group in batch.codes:
        for feature, column in zip(group.features, group.codes, strict=True):
            code[int(feature)] = int(column[r])
    for j, size in enumerate(layout.sizes):
        if code[j] < size:
            touched.append((int(rows.values[j]) + code[j], 1.0))
    for j, x in enumerate(batch.numeric):
        if not math.isnan(x[r]):
            z = (float(x[r]) - float(layout.center[j])) / float(layout.scale[j])
            touched.append((rows.numeric + j, z))
    for t, (a, b) in enumerate(layout.pairs):
        if code[a] < layout.sizes[a] and code[b] < layout.sizes[b]:
            at = int(rows.pairs[t]) + code[a] * int(layout.sizes[b]) + code[b]
            touched.append((at, 1.0))
    return touched


def margins(layout, theta, batch):
    return [
        [
            math.fsum(float(theta[p, k]) * z for p, z in features(layout, batch, r))
            for k in range(layout.n_outputs)
        ]
        for r in range(batch.n_rows)
    ]


def shares(m):
    """Return P(c | x) of every class: log-odds 0 of class 0 where there is one margin."""
    scores = [0.0, *m] if len(m) == 1 else m
    top = max(scores)
    parts = [math.exp(s - top) for s in scores]
    return [part / math.fsum(parts) for part in parts]


def log_loss(m, y):
    scores = [0.0, *m] if len(m) == 1 else m
    top = max(scores)
    return (top - scores[y]) + math.log(math.fsum(math.exp(s - top) for s in scores))


def of_outputs(layout, values):
    return values[1:] if layout.n_outputs == 1 else values


def sums(layout, batch, weight, factors, power=1):
    """Return Σ_r w_r factor_rk z_rp^power as lists (P, M)."""
    result = [[[] for _ in range(layout.n_outputs)] for _ in range(layout.n_rows)]
    for r in range(batch.n_rows):
        w = 1.0 if weight is None else float(weight[r])
        for p, z in features(layout, batch, r):
            for k, factor in enumerate(factors[r]):
                result[p][k].append(w * factor * z**power)
    return [[math.fsum(cell) for cell in row] for row in result]


def loss_gradient(layout, theta, batch, weight):
    m = margins(layout, theta, batch)
    y = [int(c) for c in batch.classes]
    w = [1.0] * batch.n_rows if weight is None else [float(v) for v in weight]
    loss = math.fsum(w[r] * log_loss(m[r], y[r]) for r in range(batch.n_rows))
    residual = []
    for r in range(batch.n_rows):
        p = shares(m[r])
        others = math.fsum(p[: y[r]] + p[y[r] + 1 :])
        p[y[r]] = -others
        residual.append(of_outputs(layout, p))
    return loss, sums(layout, batch, weight, residual)


def hessian(layout, theta, batch, weight):
    """Return the Hessian as {((p, k), (q, l)): value}, nonzero entries only."""
    m = margins(layout, theta, batch)
    result = {}
    for r in range(batch.n_rows):
        w = 1.0 if weight is None else float(weight[r])
        share = of_outputs(layout, shares(m[r]))
        touched = features(layout, batch, r)
        for p, z in touched:
            for q, u in touched:
                for k, a in enumerate(share):
                    for o, b in enumerate(share):
                        value = w * z * u * a * ((k == o) - b)
                        key = (p, k), (q, o)
                        result[key] = result.get(key, 0.0) + value
    return result


def hessian_product(layout, theta, direction, batch, weight):
    result = [[0.0] * layout.n_outputs for _ in range(layout.n_rows)]
    for ((p, k), (q, o)), value in hessian(layout, theta, batch, weight).items():
        result[p][k] += value * float(direction[q, o])
    return result


def curvature(layout, theta, batch, weight):
    result = [[0.0] * layout.n_outputs for _ in range(layout.n_rows)]
    for (one, other), value in hessian(layout, theta, batch, weight).items():
        if one == other:
            result[one[0]][one[1]] = value
    return result
