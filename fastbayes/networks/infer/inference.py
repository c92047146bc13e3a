"""Exact inference: what is not asked for is summed out, one node after the other.

First orders of nodes, then products of tables and sums over them, then what is asked of a network.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.networks.graph.coded import Coded, Floats, SparseTable, cells_at, logs

Scope = tuple[int, ...]

# Numbers of the largest table: 256 MiB.
LARGEST = 1 << 25
# ln of the smallest number below which products lose digits.
UNDERFLOW = math.log(np.finfo(np.float64).tiny)
# ln of the share that may be lost by underflow; beyond, all is done again in logarithms.
LOST = math.log(1e-17)


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

    That of the fewest new edges (min-fill), of equals the first node, or where this is better that
    of the smallest next table, or that of the nodes: grids are numbered well. `scopes` are the
    nodes of each factor.

    References
    ----------
    Koller, Friedman (2009), Probabilistic graphical models, section 9.4.3.
    """
    scopes, nodes = list(scopes), sorted(eliminated)
    logs = {v: math.log2(size) for v, size in sizes.items()}
    fewest = _greedy(scopes, logs, nodes, lambda graph, v: (graph.fill[v], graph.bits(v)))
    if fewest.cells < 1 << 12:
        return fewest
    smallest = _greedy(scopes, logs, nodes, lambda graph, v: (graph.bits(v), graph.fill[v]))
    as_given = _greedy(scopes, logs, nodes, lambda graph, v: (0.0, 0.0))
    return min(fewest, smallest, as_given, key=lambda order: order.cells)


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
    nodes: Sequence[int],
    cost: Callable[[_Graph, int], tuple[float, float]],
) -> Order:
    graph, order = _Graph(scopes, logs), []
    most, widest, total = 0.0, Scope(), 0.0
    waiting = {v: cost(graph, v) for v in nodes}
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
    largest, joints  as in `log_summed`
    """
    buckets = Buckets(factors)
    log_summed(buckets, order, largest=largest, joints=joints)
    return _log_product(buckets.factors.values(), kept)


def log_summed(
    buckets: Buckets,
    order: Sequence[int],
    *,
    largest: bool = False,
    joints: list[tuple[int, Scope, Floats]] | None = None,
) -> None:
    """Sum the nodes of an order out of logarithms of factors, which are replaced.

    largest  whether to take the largest instead of the sum
    joints   takes the joint table of each node of the order: (the node, the nodes of the other
             axes, a table with the node's own axis at the end)
    """
    for v in order:
        bucket, scope = buckets.take(v)
        joint = _log_product(bucket, scope)
        axis = scope.index(v) + (joint.ndim > len(scope))
        rest = tuple(u for u in scope if u != v)
        buckets.add(Factor(rest, joint.max(axis=axis) if largest else _log_sum(joint, axis)))
        if joints is not None:
            joints.append((v, rest, np.moveaxis(joint, axis, -1)))


def _log_sum(table: Floats, axis: int) -> Floats:
    top = table.max(axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    return logs(np.exp(table - top).sum(axis=axis)) + top.squeeze(axis)


class DrawStep(NamedTuple):
    """How a node is distributed given nodes that were drawn before.

    `table` has an axis for each given node, and one for the node itself at the end.
    """

    node: int
    given: tuple[int, ...]
    table: Floats


def factors_of(coded: Coded, evidence: Mapping[int, int], among: Iterable[int]) -> list[Factor]:
    """Return the tables of nodes at the evidence, over nodes of more than one state."""
    result = []
    for node in among:
        family = (*coded.parents[node], node)
        free = [v for v in family if v not in evidence]
        table: Any = coded.tables[node]
        if isinstance(table, SparseTable):
            table = _at_evidence(coded, node, family, evidence, free)
        else:
            table = table[tuple(evidence.get(v, slice(None)) for v in family)]
        # Nodes of one state have no axis: numpy's arrays have no more than 64.
        wide = [v for v in free if coded.sizes[v] > 1]
        table = table.reshape([int(coded.sizes[v]) for v in wide])
        result.append(Factor(tuple(sorted(wide)), table.transpose(np.argsort(wide))))
    return result


def _at_evidence(
    coded: Coded, node: int, family: Sequence[int], evidence: Mapping[int, int], free: Sequence[int]
) -> Floats:
    """Return the rows of a sparse table at the evidence."""
    cells = math.prod(float(coded.sizes[v]) for v in free)
    if cells > LARGEST:
        names = ", ".join(repr(coded.names[v]) for v in free[:6])
        raise MemoryLimitError(
            f"node {coded.names[node]!r} has {cells:,.0f} cells, over {LARGEST:,}, as long as the "
            f"nodes {names} are not known: give more of them as evidence"
        )
    grid = iter(np.ix_(*(np.arange(int(coded.sizes[v])) for v in free)))
    return cells_at(
        coded.tables[node], [evidence[v] if v in evidence else next(grid) for v in family]
    )


def joint_posterior(
    coded: Coded,
    evidence: Mapping[int, int],
    targets: Sequence[int],
    largest: float = LARGEST,
) -> tuple[Floats, float]:
    """Return P(targets | evidence), (sizes of the targets ...), and ln P(evidence).

    Targets are named once each; one may be among the evidence, {node: state}. Raises DataError when
    the evidence is impossible, MemoryLimitError when a table would have over `largest` numbers; the
    message names its nodes.
    """
    free = [v for v in targets if v not in evidence and coded.sizes[v] > 1]
    table, log_total = _table(coded, evidence, targets, free, largest)
    if log_total == -math.inf:
        raise impossible(coded, evidence)
    table = table.transpose(np.argsort(np.argsort(free)))
    result = np.zeros([int(coded.sizes[v]) for v in targets])
    place = tuple(evidence.get(v, slice(None)) for v in targets)
    result[place] = (table / table.sum()).reshape(result[place].shape)
    return result, log_total if evidence else 0.0


def log_evidence(coded: Coded, evidence: Mapping[int, int], largest: float = LARGEST) -> float:
    """Return ln P(evidence) in nats; -inf where it is impossible."""
    return _table(coded, evidence, (), (), largest)[1] if evidence else 0.0


def _table(
    coded: Coded,
    evidence: Mapping[int, int],
    targets: Sequence[int],
    free: Sequence[int],
    largest: float,
) -> tuple[Floats, float]:
    """Return P(free, evidence) up to a factor, and ln of its total."""
    factors = factors_of(coded, evidence, coded.ancestral([*targets, *evidence]))
    return _summed(factors, checked_order(coded, factors, free, largest).nodes, tuple(sorted(free)))


def impossible(coded: Coded, evidence: Mapping[int, int]) -> DataError:
    """Return the error of evidence of probability 0."""
    some = ", ".join(repr(coded.names[v]) for v in list(evidence)[:8])
    more = f" and {len(evidence) - 8} more" if len(evidence) > 8 else ""
    return DataError(
        f"the evidence on {some}{more} is impossible: the network gives it probability 0; "
        "drop a part of it, or smooth the tables"
    )


def order_of(coded: Coded, factors: Sequence[Factor], kept: Sequence[int]) -> Order:
    """Return an order in which to sum out all but the nodes kept."""
    scopes = [factor.scope for factor in factors]
    sizes = {v: int(coded.sizes[v]) for scope in scopes for v in scope}
    return best_order(scopes, sizes, {*sizes} - {*kept})


def checked_order(
    coded: Coded, factors: Sequence[Factor], kept: Sequence[int], largest: float
) -> Order:
    """Return what `order_of` does, or raise MemoryLimitError where it takes a larger table."""
    order = order_of(coded, factors, kept)
    answer = math.prod(float(coded.sizes[v]) for v in kept)
    cells, scope = max((order.cells, order.scope), (answer, tuple(kept)))
    if cells > largest:
        some = ", ".join(repr(coded.names[v]) for v in scope[:6])
        more = f" and {len(scope) - 6} more" if len(scope) > 6 else ""
        raise MemoryLimitError(
            f"exact inference takes a table of {cells:,.0f} numbers, over {largest:,.0f}, for the "
            f"nodes {some}{more}: use method='gibbs', more evidence, or a larger max_cells"
        )
    return order


def _summed(factors: Sequence[Factor], order: Sequence[int], kept: Scope) -> tuple[Floats, float]:
    """Return the product of factors summed over nodes, up to a factor, and ln of its total."""
    table, scale, lost = _eliminated(factors, order, kept)
    total = float(table.sum())
    if total == 0 or lost - math.log(total) > LOST:
        # What is lost may matter, or be all there is: logarithms lose nothing.
        joint = log_eliminated(logarithms(factors), order, kept)
        top = float(joint.max())
        if top == -math.inf:
            return np.zeros_like(joint), top
        table, scale = np.exp(joint - top), top
        total = float(table.sum())
    return table, math.log(total) + scale


def logarithms(factors: Iterable[Factor]) -> Iterator[Factor]:
    """Yield factors with ln of each cell."""
    return (Factor(factor.scope, logs(factor.table)) for factor in factors)


def _product(factors: Sequence[Factor], scope: Scope) -> tuple[Factor, float]:
    """Return the product of factors, its largest cell between 1/2 and 1, and ln of its scale."""
    total, scale, lost = np.ones((1,) * len(scope)), 0.0, -math.inf
    for factor in factors:
        total = total * factor.wide(scope)
        top = float(total.max())
        if top == 0:
            return Factor(scope, total, lost), 0.0
        # A power of 2 takes no digit.
        power = math.frexp(top)[1]
        if power:
            total = np.ldexp(total, -power)
            scale += power * math.log(2)
        lost = max(lost, factor.lost, UNDERFLOW) - power * math.log(2)
    return Factor(scope, total, lost), scale


def _eliminated(
    factors: Sequence[Factor], order: Sequence[int], kept: Scope
) -> tuple[Floats, float, float]:
    """Return the table over the nodes kept, ln of its scale, and ln of what was lost."""
    buckets, scale = Buckets(factors), 0.0
    for v in order:
        joint, more = _product(*buckets.take(v))
        scale += more
        axis = joint.scope.index(v)
        rest = tuple(u for u in joint.scope if u != v)
        buckets.add(
            Factor(rest, joint.table.sum(axis=axis), joint.lost + math.log(joint.table.shape[axis]))
        )
    joint, more = _product(
        sorted(buckets.factors.values(), key=lambda factor: factor.table.size), kept
    )
    return joint.table, scale + more, joint.lost


def _joints(
    coded: Coded,
    evidence: Mapping[int, int],
    factors: Sequence[Factor],
    order: Order,
    *,
    largest: bool = False,
) -> tuple[float, list[tuple[int, Scope, Floats]]]:
    """Return ln of the total, and the joint table of each node, that summed out last first."""
    joints: list[tuple[int, Scope, Floats]] = []
    total = log_eliminated(logarithms(factors), order.nodes, largest=largest, joints=joints)
    if total == -math.inf:
        raise impossible(coded, evidence)
    return float(total), joints[::-1]


def most_probable(
    coded: Coded, evidence: Mapping[int, int], largest: float = LARGEST
) -> tuple[list[int], float]:
    """Return the most probable joint state of all nodes given evidence, and ln of its probability.

    Of equally probable ones the node summed out last takes its lowest state. Raises as
    `joint_posterior` does.
    """
    factors = factors_of(coded, evidence, range(len(coded)))
    top, joints = _joints(
        coded, evidence, factors, checked_order(coded, factors, (), largest), largest=True
    )
    states = [evidence.get(v, 0) for v in range(len(coded))]
    for v, given, joint in joints:
        states[v] = int(joint[tuple(states[u] for u in given)].argmax())
    return states, top


def drawing(coded: Coded, evidence: Mapping[int, int], largest: float = LARGEST) -> list[DrawStep]:
    """Return how to draw rows of a network given evidence: node after node.

    Those above the evidence are drawn in the reverse of an order of elimination, each given the
    nodes that it stood in a table with; the others given their parents. Raises as
    `joint_posterior` does.
    """
    above = coded.ancestral(evidence) if evidence else []
    factors = factors_of(coded, evidence, above)
    steps, _ = conditionals(coded, evidence, factors, checked_order(coded, factors, (), largest))
    known = [
        DrawStep(v, (), certain(coded, evidence, v))
        for v in above
        if v in evidence or coded.sizes[v] == 1
    ]
    done = {*above}
    below = (v for v in coded.order if v not in done)
    return [*known, *steps, *(DrawStep(v, coded.parents[v], coded.tables[v]) for v in below)]


def certain(coded: Coded, evidence: Mapping[int, int], v: int) -> Floats:
    """Return the distribution of a node that is observed or has one state."""
    result = np.zeros(int(coded.sizes[v]))
    result[evidence.get(v, 0)] = 1.0
    return result


def conditionals(
    coded: Coded, evidence: Mapping[int, int], factors: Sequence[Factor], order: Order
) -> tuple[list[DrawStep], float]:
    """Return how each node of an order is distributed given nodes behind it, and ln P(evidence).

    `factors` are the tables at the evidence, of nodes and of all above them; the order sums out all
    their nodes, and the steps go from its last node to its first. Raises DataError when the
    evidence is impossible.
    """
    total, joints = _joints(coded, evidence, factors, order)
    steps = []
    for v, given, joint in joints:
        top = joint.max(axis=-1, keepdims=True)
        # What cannot come before is never looked up.
        table = np.exp(joint - np.where(np.isneginf(top), 0.0, top))
        share = table.sum(axis=-1, keepdims=True)
        steps.append(DrawStep(v, given, table / np.where(share == 0, 1.0, share)))
    return steps, total


def marginals(
    coded: Coded,
    evidence: Mapping[int, int],
    targets: Sequence[int],
    largest: float = LARGEST,
) -> tuple[list[Floats], float]:
    """Return P(target | evidence) of each target, and ln P(evidence).

    The nodes are summed out once. Each then has a distribution given nodes that were summed out
    later, all of which stood in one table; from the last to the first,

        P(v, given) = P(v | given) P(given | evidence),   P(given) a sum of the joint table before.

    Where the tables of all nodes together would have more than `largest` numbers, each target is
    asked for alone: only what is above it and the evidence is summed out then. Raises as
    `joint_posterior` does.

    References
    ----------
    Koller, Friedman (2009), Probabilistic graphical models, sections 10.2 and 10.3.
    """
    factors = factors_of(coded, evidence, coded.ancestral([*targets, *evidence]))
    order = order_of(coded, factors, ())
    if len(targets) == 1 or order.total > largest:
        answers = [joint_posterior(coded, evidence, [v], largest) for v in targets]
        return [found for found, _ in answers], answers[0][1]
    steps, log_total = conditionals(coded, evidence, factors, order)
    place = {step.node: at for at, step in enumerate(steps)}
    joints: list[Floats] = []
    for step in steps:
        if not step.given:
            joints.append(step.table)
            continue
        # What a node is given was in one table with the last drawn of these.
        last = max(place[v] for v in step.given)
        scope = (*steps[last].given, steps[last].node)
        others = tuple(axis for axis, v in enumerate(scope) if v not in step.given)
        given = joints[last].sum(axis=others)
        left = [v for v in scope if v in step.given]
        joints.append(given.transpose([left.index(v) for v in step.given])[..., None] * step.table)
    # The node's own axis is the last one.
    shares = {
        v: joints[place[v]].reshape(-1, int(coded.sizes[v])).sum(axis=0)
        for v in targets
        if v in place
    }
    found = [
        shares[v] / shares[v].sum() if v in shares else certain(coded, evidence, v) for v in targets
    ]
    return found, log_total if evidence else 0.0
