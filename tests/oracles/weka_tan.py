"""The tree Weka 3.9.7 learns with its TAN search and its default local score.

Two things set it apart from the tree of conditional mutual information. An edge is worth what the
Bayesian score of the child (a Dirichlet prior of 1/2 on every cell; Cooper and Herskovits 1992)
gains by the further parent; this depends on the direction and pays for the number of values, so
that rare values attract less. And missing values are first replaced by the commonest value.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter


def commonest(rows, domains):
    """The commonest value of every column, the first declared of equals."""
    return {j: max(vs, key=[r[j] for r in rows].count) for j, vs in domains.items()}


def filled(rows, values):
    return [{j: values[j] if v is None else v for j, v in row.items()} for row in rows]


def score(rows, labels, classes, domains, j, parents):
    """Log marginal likelihood of a column given the class and other columns."""
    counts = Counter((c, *(r[p] for p in parents), r[j]) for r, c in zip(rows, labels, strict=True))
    total, size = [], len(domains[j])
    for above in itertools.product(classes, *(domains[p] for p in parents)):
        n = [counts[*above, v] for v in domains[j]]
        total += [math.lgamma(x + 0.5) - math.lgamma(0.5) for x in n]
        total.append(math.lgamma(size / 2) - math.lgamma(size / 2 + sum(n)))
    return math.fsum(total)


def edge_scores(rows, labels, classes, domains):
    """{(child, parent): gain}."""
    alone = {j: score(rows, labels, classes, domains, j, ()) for j in domains}
    return {
        (j, p): score(rows, labels, classes, domains, j, (p,)) - alone[j]
        for j, p in itertools.permutations(domains, 2)
    }


def tree(rows, labels, classes, domains):
    """{column: parent}: grown from the best link; a link's far end comes to depend on the near one
    unless it depends on something already."""
    gain = edge_scores(rows, labels, classes, domains)
    linked, parents = set(), dict.fromkeys(domains)
    while len(linked) < len(domains):
        j, p = max(
            (link for link in gain if not linked or len(linked.intersection(link)) == 1),
            key=gain.__getitem__,
        )
        linked |= {j, p}
        child, parent = (p, j) if parents[p] is None else (j, p)
        parents[child] = parent
    return parents
