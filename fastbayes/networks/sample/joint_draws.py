"""Nodes that hold each other in place, and how all of them are drawn at once.

A chain that moves one node at a time cannot leave a state in which every node is held by its
neighbours, though others be as probable. Such nodes are summed out, and drawn back in reverse: a
sweep then forgets where they were.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fastbayes.networks.graph.coded import Coded, Floats, holding
from fastbayes.networks.graph.dag import reachable
from fastbayes.networks.infer import inference

Pair = tuple[int, int]

# A node is held where its neighbours may leave it a chance below this to move in a sweep.
HELD = 0.01
# Nodes are tied where their odds ratio exceeds this: they move apart in 1 of 2,500 sweeps or fewer.
TIED = math.log(1e8)
# In tables of more cells than this no odds are looked for.
CELLS = 1 << 16
# States of a node that are compared with all others.
COMPARED = 16


class JointDraw(NamedTuple):
    """Nodes, ascending, that are drawn one after the other from their joint distribution.

    steps  the order, and ln weights of each node's states, up to a constant in each row, given
           nodes drawn before and nodes outside
    """

    nodes: tuple[int, ...]
    steps: list[inference.DrawStep]


def log_odds(factors: Iterable[inference.Factor]) -> dict[Pair, float]:
    """Return how strongly pairs of nodes can hold each other, as ln of an odds ratio.

    D(u, v) = sum over factors of  max  ln T[a, c] T[b, d] / (T[a, d] T[b, c])

    over states a, b of u, c, d of v and all states of the other nodes: whatever these are and
    whatever else is known of u and v, no odds ratio is larger. Cells of 0 are left out.

    References
    ----------
    Birkhoff 1957, Extensions of Jentzsch's theorem: the projective diameter of a table.
    """
    found: dict[Pair, float] = {}
    for scope, table, _ in factors:
        if table.size > CELLS:
            continue
        logs = np.log(np.where(table > 0, table, np.nan))
        for i, u in enumerate(scope):
            for j, v in enumerate(scope[:i]):
                # Rows: states of the node that has fewer.
                axes = (i, j) if table.shape[i] <= table.shape[j] else (j, i)
                rows = np.moveaxis(logs, axes, (0, 1)).reshape(
                    *(table.shape[axis] for axis in axes), -1
                )
                largest = 0.0
                for row in rows[:COMPARED]:
                    off = rows - row
                    width = np.fmax.reduce(off, axis=1) - np.fmin.reduce(off, axis=1)
                    largest = np.fmax(largest, np.fmax.reduce(width, axis=None))
                found[v, u] = found.get((v, u), 0.0) + float(largest)
    return found


def held(odds: Mapping[Pair, float]) -> set[int]:
    """Return the nodes that all their neighbours together may keep from moving.

    Two nodes of odds ratio exp(D) have a correlation of tanh(D / 4) at most, so that one that is
    drawn given the other moves with a chance of 1 - tanh² = 1 / cosh². Neighbours that agree
    multiply these; a node is held where the product is below HELD.

    References
    ----------
    Liu, Wong and Kong 1994, Covariance structure of the Gibbs sampler, theorem 3.2: the
    autocorrelation is the squared maximal correlation.
    """
    total: dict[int, float] = {}
    for pair, width in odds.items():
        apart = 2 * (np.logaddexp(width / 4, -width / 4) - math.log(2))
        for v in pair:
            total[v] = total.get(v, 0.0) + float(apart)
    return {v for v, apart in total.items() if apart > -math.log(HELD)}


def components(sets: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return sets of nodes with all that have a node in common joined, each ascending."""
    sets = [tuple(some) for some in sets]
    near = holding((some, some) for some in sets)
    found, seen = [], set[int]()
    for first in sorted(near):
        if first not in seen:
            nodes = reachable([first], lambda v: {u for some in near[v] for u in some})
            seen |= nodes
            found.append(tuple(sorted(nodes)))
    return found


class Holds(NamedTuple):
    """What holds the nodes of a network in place, given evidence.

    factors  the tables at the evidence, over nodes left free
    tied     pairs that probabilities near 0 tie together
    held     nodes that all their neighbours together may keep from moving
    """

    coded: Coded
    factors: list[inference.Factor]
    tied: list[Pair]
    held: set[int]

    @classmethod
    def of(cls, coded: Coded, evidence: Mapping[int, int]) -> Holds:
        """Return what holds the nodes of a network."""
        factors = inference.factors_of(coded, evidence, range(len(coded)))
        odds = log_odds(factors)
        tied = [pair for pair, width in odds.items() if width > TIED]
        return cls(coded, [factor for factor in factors if factor.scope], tied, held(odds))

    def joint_draws(
        self, zeros: Iterable[Sequence[int]], cells: int, all_cells: int
    ) -> list[JointDraw]:
        """Return how nodes that are held in place are drawn jointly.

        Where a node of a component of the network is held, all of the component is drawn, so that
        sweeps do not depend on each other; if its tables are too large for that, nodes that are
        tied, also by `zeros`. A table has at most `cells` numbers, all of a draw `all_cells`.
        """
        found: list[JointDraw | None] = []
        groups = components([*self.tied, *zeros])
        for nodes in components(factor.scope for factor in self.factors):
            if self.held.isdisjoint(nodes):
                continue
            whole = joint_draw(self.coded, self.factors, nodes, cells, all_cells)
            if whole is not None:
                found.append(whole)
                continue
            tied = (group for group in groups if group[0] in nodes)
            found += (
                joint_draw(self.coded, self.factors, group, cells, all_cells) for group in tied
            )
        return [draw for draw in found if draw is not None]


def joint_draw(
    coded: Coded,
    factors: Sequence[inference.Factor],
    nodes: Collection[int],
    cells: int,
    all_cells: int,
) -> JointDraw | None:
    """Return how nodes are drawn given all others; None if that takes too large tables.

    References
    ----------
    Jensen, Kong and Kjærulff 1995, Blocking Gibbs sampling in very large probabilistic expert
    systems, section 3.
    """
    mine = [factor for factor in factors if not set(factor.scope).isdisjoint(nodes)]
    scopes = [factor.scope for factor in mine]
    sizes = {v: int(coded.sizes[v]) for scope in scopes for v in scope}
    order = inference.best_order(scopes, sizes, nodes)
    if order.cells > cells or order.total > all_cells:
        return None
    joints: list[tuple[int, inference.Scope, Floats]] = []
    buckets = inference.Buckets(inference.logarithms(mine))
    inference.log_summed(buckets, order.nodes, joints=joints)
    steps = [inference.DrawStep(v, given, table) for v, given, table in joints[::-1]]
    return JointDraw(tuple(sorted(nodes)), steps)
