"""Sums of products of tables over some of their nodes: an order, then one node after the other."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from fastbayes.networks.graph.coded import Floats

Scope = tuple[int, ...]


class Order(NamedTuple):
    """An order of elimination, the largest table that it makes, and the cells of all tables."""

    nodes: list[int]
    cells: float
    scope: Scope
    total: float


def best_order(
    scopes: Iterable[Scope], sizes: Mapping[int, int], eliminated: Iterable[int]
) -> Order:
    """Return an order in which to sum out nodes whose largest table is small.

    That of the fewest new edges (min-fill), or of the smallest next table where this is better; of
    equals the first node. `scopes` are the nodes of each factor.

    References
    ----------
    Koller, Friedman (2009), Probabilistic graphical models, section 9.4.3.
    """
    scopes, gone = list(scopes), sorted(eliminated)
    logs = {v: math.log2(size) for v, size in sizes.items()}
    fewest = _greedy(scopes, logs, gone, lambda graph, v: (graph.fill[v], graph.bits(v)))
    if fewest.cells < 1 << 12:
        return fewest
    smallest = _greedy(scopes, logs, gone, lambda graph, v: (graph.bits(v), graph.fill[v]))
    return min(fewest, smallest, key=lambda order: order.cells)


class _Graph:
    """Which nodes stand in one table, and how many pairs of neighbours of a node do not."""

    def __init__(self, scopes: Sequence[Scope], logs: Mapping[int, float]) -> None:
        self.logs = logs
        self.near: dict[int, set[int]] = {v: set() for v in logs}
        for scope in scopes:
            for v in scope:
                self.near[v].update(scope)
        for v, near in self.near.items():
            near.discard(v)
        self.fill = {
            v: (len(near) * (len(near) - 1) - sum(len(near & self.near[u]) for u in near)) // 2
            for v, near in self.near.items()
        }

    def bits(self, v: int) -> float:
        """Return log2 of the cells of the table that eliminating a node makes."""
        return self.logs[v] + math.fsum(self.logs[u] for u in self.near[v])

    def eliminate(self, v: int) -> set[int]:
        """Tie the neighbours of a node to each other, take it out; return whose rank changed."""
        near = self.near.pop(v)
        changed = set(near)
        for u in near:
            mine = self.near[u]
            mine.discard(v)
            self.fill[u] -= len(mine - near)
        if self.fill[v]:
            some = sorted(near)
            for i, a in enumerate(some):
                for b in some[i + 1 :]:
                    if b not in self.near[a]:
                        changed |= self._tie(a, b)
        return changed

    def _tie(self, a: int, b: int) -> set[int]:
        both = self.near[a] & self.near[b]
        for w in both:
            self.fill[w] -= 1
        for u in (a, b):
            self.fill[u] += len(self.near[u]) - len(both)
        self.near[a].add(b)
        self.near[b].add(a)
        return both


def _greedy(
    scopes: Sequence[Scope],
    logs: Mapping[int, float],
    gone: Sequence[int],
    cost: Callable[[_Graph, int], tuple[float, float]],
) -> Order:
    graph, order = _Graph(scopes, logs), []
    most, widest, total = 0.0, Scope(), 0.0
    waiting = {v: cost(graph, v) for v in gone}
    heap = [(*price, v) for v, price in waiting.items()]
    heapq.heapify(heap)
    while waiting:
        *price, v = heapq.heappop(heap)
        if waiting.get(v) != tuple(price):
            continue
        del waiting[v]
        order.append(v)
        bits = graph.bits(v)
        total += _cells(bits)
        if bits >= most:
            most, widest = bits, tuple(sorted({v, *graph.near[v]}))
        for u in graph.eliminate(v):
            if u in waiting:
                waiting[u] = cost(graph, u)
                heapq.heappush(heap, (*waiting[u], u))
    return Order(order, _cells(most), widest, total)


def _cells(bits: float) -> float:
    """Return 2**bits, or a number that is as much too large and can be added up."""
    return float(2.0 ** min(bits, 1000.0))


# -- tables --------------------------------------------------------------------------------------


class Factor(NamedTuple):
    """A table over nodes in ascending order: an axis for each of `scope`.

    Of many rows side by side it has two axes more, (n_rows, states of each node ..., n_outputs).
    `lost` is ln of a bound on what underflow took from a cell, compared with the largest cell, 1.
    """

    scope: Scope
    table: Floats
    lost: float = -math.inf

    def wide(self, scope: Scope) -> Floats:
        """Return the table with an axis for each node of a larger scope."""
        shape = iter(self.table.shape[self.table.ndim > len(self.scope) :])
        axes = [next(shape) if v in self.scope else 1 for v in scope]
        if self.table.ndim > len(self.scope):
            axes = [len(self.table), *axes, self.table.shape[-1]]
        return self.table.reshape(axes)


class Buckets:
    """Factors that can be found by their nodes."""

    def __init__(self, factors: Iterable[Factor]) -> None:
        self.factors: dict[int, Factor] = {}
        self._of: dict[int, set[int]] = {}
        self._next = 0
        for factor in factors:
            self.add(factor)

    def add(self, factor: Factor) -> None:
        """Add a factor."""
        self.factors[self._next] = factor
        for v in factor.scope:
            self._of.setdefault(v, set()).add(self._next)
        self._next += 1

    def take(self, v: int) -> tuple[list[Factor], Scope]:
        """Remove and return the factors of a node, small ones first, and all their nodes."""
        result = []
        for at in sorted(self._of.get(v, ())):
            factor = self.factors.pop(at)
            for u in factor.scope:
                self._of[u].discard(at)
            result.append(factor)
        result.sort(key=lambda factor: factor.table.size)
        return result, tuple(sorted({u for factor in result for u in factor.scope}))


def logs(table: Floats) -> Floats:
    """Return ln of each cell."""
    with np.errstate(divide="ignore"):
        return np.log(table)


def _log_product(factors: Iterable[Factor], scope: Scope) -> Floats:
    tables = [factor.wide(scope) for factor in factors]
    return reduce(np.add, tables) if tables else np.zeros((1,) * len(scope))


def log_eliminated(
    factors: Iterable[Factor],
    order: Sequence[int],
    kept: Scope = (),
    *,
    largest: bool = False,
    joints: list[tuple[int, Scope, Floats]] | None = None,
) -> Floats:
    """Return ln sum exp(sum of factors) over all nodes of an order; a table over the nodes kept.

    factors  the logarithms of what is multiplied; -inf is a legal entry
    kept     the other nodes, ascending
    largest  whether to take the largest instead of the sum
    joints   takes the joint table of each node of the order: (the node, the nodes of the other
             axes, a table with the node's own axis at the end)
    """
    buckets = Buckets(factors)
    for v in order:
        bucket, scope = buckets.take(v)
        joint = _log_product(bucket, scope)
        axis = scope.index(v) + (joint.ndim > len(scope))
        rest = tuple(u for u in scope if u != v)
        buckets.add(Factor(rest, joint.max(axis=axis) if largest else _log_sum(joint, axis)))
        if joints is not None:
            joints.append((v, rest, np.moveaxis(joint, axis, -1)))
    return _log_product(buckets.factors.values(), kept)


def _log_sum(table: Floats, axis: int) -> Floats:
    top = table.max(axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    return logs(np.exp(table - top).sum(axis=axis)) + top.squeeze(axis)
