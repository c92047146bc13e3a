"""Graphs found without a search: parents along a given order, and trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastbayes.kernels import dispatch
from fastbayes.networks.search.score import Floats
from fastbayes.networks.search.search_climb import TIE, Limits, Move, Watch
from fastbayes.networks.search.search_scores import FamilyScores


def along_order(
    scores: FamilyScores, limits: Limits, order: Sequence[int], watch: Watch
) -> list[int]:
    """Return the parents of each node among those before it, sets of bits.

    Each node begins with the parents that it must have, and takes the one that gains the most as
    long as one gains; then it gives up those that the others have made superfluous. With MDL this
    is a minimal set of parents that the data justify.

    References
    ----------
    Cooper, Herskovits (1992), A Bayesian method for the induction of probabilistic networks from
    data, Machine Learning 9, section 3.1.
    """
    parents = [0] * len(order)
    score = scores.total(limits.required)
    before: list[int] = []
    for v in order:
        above, best = limits.required[v], scores.value(v, limits.required[v])
        adding = True
        while True:
            free = [u for u in sorted(before) if not limits.forbidden[v] >> u & 1]
            if adding:
                others = [u for u in free if not above >> u & 1]
            else:
                others = [u for u in free if above >> u & 1 and not limits.required[v] >> u & 1]
            full = adding and above.bit_count() >= limits.max_parents
            found: list[float] = []
            if others and not full:
                found = scores.toggled([(v, above, others)])[0].tolist()
            near = TIE * max(abs(score), 1.0)
            most = max(found, default=-np.inf)
            if most <= best + near:
                parents[v] = above
                if not adding:
                    break
                adding = False
                continue
            u = next(u for u, value in zip(others, found, strict=True) if value >= most - near)
            above ^= 1 << u
            score += most - best
            move = Move("add" if adding else "drop", u, v, most - best)
            best = most
            if not watch(move, score):
                # Nodes that follow keep what they must have.
                parents[v] = above
                return [p or limits.required[w] for w, p in enumerate(parents)]
        before.append(v)
    return parents


def tree(scores: FamilyScores, root: int) -> list[int]:
    """Return the parents of each node in the tree of the highest likelihood, sets of bits.

    Edges that tell equally much, to 1e-12 of that, are ordered by names.

    References
    ----------
    Chow, Liu (1968), Approximating discrete probability distributions with dependence trees.
    """
    n = len(scores.sizes)
    weights = information(scores)
    edges = [(u, v) for v in range(n) for u in range(v)]
    edges.sort(key=lambda edge: (-weights[edge], edge))
    # Runs of equal weights are ordered by names alone.
    ranked, run = [], edges[:1]
    for edge in edges[1:]:
        if weights[run[0]] - weights[edge] <= TIE * weights[run[0]]:
            run.append(edge)
        else:
            ranked += sorted(run)
            run = [edge]
    ranked += sorted(run)
    group, near = list(range(n)), [[] for _ in range(n)]  # type: list[int], list[list[int]]
    for u, v in ranked:
        if group[u] != group[v]:
            old, new = group[v], group[u]
            group = [new if g == old else g for g in group]
            near[u].append(v)
            near[v].append(u)
    parents, waiting = [0] * n, [(root, -1)]
    for v, above in waiting:
        if above >= 0:
            parents[v] = 1 << above
        waiting += [(w, v) for w in sorted(near[v]) if w != above]
    return parents


def information(scores: FamilyScores) -> Floats:
    """Return the information of every two nodes about each other, (n, n) nats."""
    n = len(scores.sizes)
    out = np.zeros((n, n))
    for v in range(1, n):
        others = np.arange(v)
        tables = scores.counts((v,), others.tolist())
        flat = np.concatenate([table.reshape(-1) for table in tables])
        ends = np.cumsum([table.size for table in tables])
        sizes = np.array(scores.sizes, np.int64)
        found = np.zeros(v)
        dispatch.load("information", float(flat.size)).pair_information(
            *(flat, np.full(v, v), others, ends - [table.size for table in tables]),
            *(sizes, sizes, 1, found),
        )
        out[v, :v] = out[:v, v] = found
    return out
