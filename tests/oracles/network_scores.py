"""Scores of graphs by exact loops over rows and joint values, and searches that try everything."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import inf, lgamma, log, prod

SIGN = {"mdl": -1, "aic": -1, "bdeu": 1, "k2": 1, "loglik": 1}


def family_score(columns, sizes, weight, node, parents, name, ess=1.0):
    """Return the score of one family, higher is better."""
    r, q = sizes[node], prod(sizes[p] for p in parents)
    counts = {}
    for row, w in enumerate(weight):
        above = tuple(columns[p][row] for p in parents)
        counts.setdefault(above, [Fraction(0)] * r)[columns[node][row]] += Fraction(float(w))
    result = 0.0
    for given in itertools.product(*(range(sizes[p]) for p in parents)):
        n = counts.get(given, [Fraction(0)] * r)
        total = sum(n)
        if name in ("mdl", "aic", "loglik"):
            result += sum(float(x) * log(x / total) for x in n if x)
            continue
        a = 1.0 if name == "k2" else ess / (q * r)
        result += lgamma(r * a) - lgamma(r * a + float(total))
        result += sum(lgamma(a + float(x)) - lgamma(a) for x in n)
    price = {"mdl": 0.5 * log(sum(map(float, weight))), "aic": 1.0}.get(name, 0.0)
    return result - price * q * (r - 1)


def score(columns, sizes, weight, parents, name, ess=1.0):
    """Return the score of a graph, with the sign of SEMANTICS section 6."""
    return SIGN[name] * sum(
        family_score(columns, sizes, weight, v, above, name, ess) for v, above in enumerate(parents)
    )


def acyclic(parents):
    left = {v: {*above} for v, above in enumerate(parents)}
    while ready := [v for v, above in left.items() if not above & left.keys()]:
        for v in ready:
            del left[v]
    return not left


def best(columns, sizes, weight, name, ess=1.0, allowed=lambda v, above: True):
    """Return the best score of all graphs, higher is better, by trying each."""
    n = len(sizes)
    choices = []
    for v in range(n):
        others = [u for u in range(n) if u != v]
        sets = [s for k in range(n) for s in itertools.combinations(others, k) if allowed(v, s)]
        choices.append([(s, family_score(columns, sizes, weight, v, s, name, ess)) for s in sets])
    found = -inf
    for graph in itertools.product(*choices):
        total = sum(value for _, value in graph)
        if total > found and acyclic([above for above, _ in graph]):
            found = total
    return found
