"""Back-off by Dirichlet distributions of given concentrations, node by node."""

from __future__ import annotations

import itertools
import math


def digamma(x):
    """Return the derivative of ln Gamma, by its recurrence and asymptotic series."""
    total = 0.0
    while x < 20:
        total -= 1 / x
        x += 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def hierarchical(rows, sizes, n_values, alpha, concentrations, half, sweeps=300):
    """Return {context: [P(x)]} of every full context, and Minka's next concentrations.

    rows   (context, x, weight), a context being as many of (c, p_1, p_2, ...) as are known
    sizes  values of c, p_1, p_2, ...
    half   median of a concentration before any row; 0: there is no prior
    """
    depths = range(1, len(sizes) + 1)
    nodes = {d: list(itertools.product(*(range(s) for s in sizes[:d]))) for d in (0, *depths)}
    direct = {u: [0.0] * n_values for d in nodes for u in nodes[d]}
    for context, x, weight in rows:
        direct[tuple(context)][x] += weight
    a = dict(zip(depths, concentrations, strict=True))
    better = {}
    # At first a node counts all rows below it.
    n = {
        u: [
            sum(direct[v][x] for d in nodes for v in nodes[d] if v[: len(u)] == u)
            for x in range(n_values)
        ]
        for u in direct
    }
    theta = top_down(nodes, n, a, n_values, alpha)
    for _ in range(sweeps):
        for d in reversed(depths):
            drawn = {}
            for u in nodes[d]:
                drawn[u] = []
                for x in range(n_values):
                    m = a[d] * theta[u[:-1]][x]
                    t = m * (digamma(m + n[u][x]) - digamma(m)) if n[u][x] > 0 else 0.0
                    drawn[u].append(min(t, n[u][x]))
            below = sum(digamma(a[d] + sum(n[u])) - digamma(a[d]) for u in nodes[d] if sum(n[u]))
            # ln of the prior density of ln a is ln a - 2 ln(a + half), up to a constant
            more, less = (1, 2 / (a[d] + half)) if half else (0, 0)
            if below + less:
                better[d] = (sum(map(sum, drawn.values())) + more) / (below + less)
            for v in nodes[d - 1]:
                children = [u for u in nodes[d] if u[:-1] == v]
                n[v] = [direct[v][x] + sum(drawn[u][x] for u in children) for x in range(n_values)]
        theta = top_down(nodes, n, a, n_values, alpha)
    return {u: theta[u] for u in nodes[len(sizes)]}, [better[d] for d in depths]


def top_down(nodes, n, a, n_values, alpha):
    total = sum(n[()]) + n_values * alpha
    theta = {(): [(v + alpha) / total if total else 1 / n_values for v in n[()]]}
    for d in a:
        for u in nodes[d]:
            above, whole = theta[u[:-1]], sum(n[u]) + a[d]
            theta[u] = [(n[u][x] + a[d] * above[x]) / whole for x in range(n_values)]
    return theta
