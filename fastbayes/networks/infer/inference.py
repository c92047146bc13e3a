"""Exact inference: what is not asked for is summed out, one node after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.graph.sparse import SparseTable, cells_at
from fastbayes.networks.infer.ordering import Order, Scope, best_order

Floats = NDArray[np.float64]

# Numbers of the largest table: 256 MiB.
LARGEST = 1 << 25
# ln of the smallest number below which products lose digits.
UNDERFLOW = math.log(np.finfo(np.float64).tiny)
# ln of the share that may be lost by underflow; beyond, all is done again in logarithms.
LOST = math.log(1e-17)


class Factor(NamedTuple):
    """A table over nodes in ascending order, each with more than one state.

    `lost` is ln of a bound on what underflow took from a cell, beside the largest cell, 1.
    """

    scope: Scope
    table: Floats
    lost: float = -math.inf


class DrawStep(NamedTuple):
    """How a node is distributed given nodes that were drawn before.

    `table` has an axis for each given node, and one for the node itself at the end.
    """

    node: int
    given: tuple[int, ...]
    table: Floats


def ancestral(coded: Coded, nodes: Iterable[int]) -> list[int]:
    """Return nodes and all their ancestors: the others are barren, they sum to 1."""
    found = {*nodes}
    waiting = list(found)
    while waiting:
        new = [p for p in coded.parents[waiting.pop()] if p not in found]
        found.update(new)
        waiting += new
    return sorted(found)


def factors_of(coded: Coded, evidence: Mapping[int, int], among: Iterable[int]) -> list[Factor]:
    """Return the tables of nodes at the evidence."""
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
    """Return P(targets | evidence) and ln P(evidence).

    Parameters
    ----------
    coded
        The network.
    evidence
        {node: state}; a target may be among them.
    targets
        Nodes, each once.
    largest
        Numbers that a table may have.

    Returns
    -------
    tuple
        (sizes of the targets ...), and nats.

    Raises
    ------
    DataError
        When the evidence is impossible.
    MemoryLimitError
        When a table would be larger; the message names its nodes.
    """
    free = [v for v in targets if v not in evidence and coded.sizes[v] > 1]
    table, log_total = _table(coded, evidence, targets, free, largest)
    if log_total == -math.inf:
        raise impossible(coded, evidence)
    at = sorted(free)
    table = table.transpose([at.index(v) for v in free])
    shape = [int(coded.sizes[v]) for v in targets]
    result = np.zeros(shape)
    place = tuple(evidence.get(v, slice(None)) for v in targets)
    result[place] = (table / table.sum()).reshape(result[place].shape)
    return result, log_total if evidence else 0.0


def log_evidence(coded: Coded, evidence: Mapping[int, int], largest: float = LARGEST) -> float:
    """Return ln P(evidence) in nats; -inf where it is impossible.

    Raises
    ------
    MemoryLimitError
        When a table would be larger.
    """
    return _table(coded, evidence, (), (), largest)[1] if evidence else 0.0


def _table(
    coded: Coded,
    evidence: Mapping[int, int],
    targets: Sequence[int],
    free: Sequence[int],
    largest: float,
) -> tuple[Floats, float]:
    """Return P(free, evidence) up to a factor, and ln of its total."""
    factors = factors_of(coded, evidence, ancestral(coded, [*targets, *evidence]))
    order = checked_order(coded, factors, free, largest)
    return _summed(factors, order.nodes, tuple(sorted(free)))


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
    """Return an order in which to sum out all but the nodes kept.

    Raises
    ------
    MemoryLimitError
        When it takes a larger table.
    """
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
        logs = [Factor(f.scope, _log(f.table)) for f in factors]
        joint, _ = _log_eliminated(logs, order, kept)
        top = float(joint.max())
        if top == -math.inf:
            return np.zeros_like(joint), top
        table, scale = np.exp(joint - top), top
        total = float(table.sum())
    return table, math.log(total) + scale


def _log(table: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(table)


class _Buckets:
    """Factors that can be found by their nodes."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        self.factors = dict(enumerate(factors))
        self.of: dict[int, set[int]] = {}
        self.next = len(factors)
        for at, factor in self.factors.items():
            self._enter(at, factor)

    def _enter(self, at: int, factor: Factor) -> None:
        for v in factor.scope:
            self.of.setdefault(v, set()).add(at)

    def add(self, factor: Factor) -> None:
        self.factors[self.next] = factor
        self._enter(self.next, factor)
        self.next += 1

    def take(self, v: int) -> list[Factor]:
        """Remove and return the factors of a node, small ones first."""
        result = []
        for at in sorted(self.of.get(v, ())):
            factor = self.factors.pop(at)
            for u in factor.scope:
                self.of[u].discard(at)
            result.append(factor)
        return sorted(result, key=lambda factor: factor.table.size)


def _wide(factor: Factor, scope: Scope) -> Floats:
    size = iter(factor.table.shape)
    return factor.table.reshape([next(size) if v in factor.scope else 1 for v in scope])


def _scope_of(factors: Sequence[Factor], more: Scope = ()) -> Scope:
    return tuple(sorted({v for factor in factors for v in factor.scope} | {*more}))


def _product(factors: Sequence[Factor], scope: Scope) -> tuple[Factor, float]:
    """Return the product of factors, its largest cell between 1/2 and 1, and ln of its scale."""
    total, scale, lost = np.ones((1,) * len(scope)), 0.0, -math.inf
    for factor in factors:
        total = total * _wide(factor, scope)
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
    buckets, scale = _Buckets(factors), 0.0
    for v in order:
        bucket = buckets.take(v)
        joint, more = _product(bucket, _scope_of(bucket))
        scale += more
        axis = joint.scope.index(v)
        rest = tuple(u for u in joint.scope if u != v)
        lost = joint.lost + math.log(joint.table.shape[axis])
        buckets.add(Factor(rest, joint.table.sum(axis=axis), lost))
    left = sorted(buckets.factors.values(), key=lambda factor: factor.table.size)
    joint, more = _product(left, kept)
    return joint.table, scale + more, joint.lost


def _log_product(factors: Sequence[Factor], scope: Scope) -> Floats:
    total = np.zeros((1,) * len(scope))
    for factor in factors:
        total = total + _wide(factor, scope)
    return total


def _log_sum(table: Floats, axis: int) -> Floats:
    top = table.max(axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    return _log(np.exp(table - top).sum(axis=axis)) + top.squeeze(axis)


def _log_eliminated(
    factors: Sequence[Factor], order: Sequence[int], kept: Scope, *, largest: bool = False
) -> tuple[Floats, list[tuple[int, Scope, Floats]]]:
    """Return the logarithms over the nodes kept, and the joint tables that nodes went with.

    largest  whether to take the largest instead of the sum
    """
    buckets = _Buckets(factors)
    joints = []
    for v in order:
        bucket = buckets.take(v)
        scope = _scope_of(bucket)
        joint, axis = _log_product(bucket, scope), scope.index(v)
        rest = tuple(u for u in scope if u != v)
        buckets.add(Factor(rest, joint.max(axis=axis) if largest else _log_sum(joint, axis)))
        joints.append((v, rest, np.moveaxis(joint, axis, -1)))
    return _log_product(list(buckets.factors.values()), kept), joints


def most_probable(
    coded: Coded, evidence: Mapping[int, int], largest: float = LARGEST
) -> tuple[list[int], float]:
    """Return the most probable joint state of all nodes given evidence, and ln of its probability.

    Of equally probable ones the node summed out last takes its lowest state.

    Raises
    ------
    DataError
        When the evidence is impossible.
    MemoryLimitError
        When a table would be larger.
    """
    factors = factors_of(coded, evidence, range(len(coded)))
    order = checked_order(coded, factors, (), largest)
    logs = [Factor(f.scope, _log(f.table)) for f in factors]
    top, joints = _log_eliminated(logs, order.nodes, (), largest=True)
    if top == -np.inf:
        raise impossible(coded, evidence)
    states = [evidence.get(v, 0) for v in range(len(coded))]
    for v, given, joint in reversed(joints):
        states[v] = int(joint[tuple(states[u] for u in given)].argmax())
    return states, float(top)


def drawing(coded: Coded, evidence: Mapping[int, int], largest: float = LARGEST) -> list[DrawStep]:
    """Return how to draw rows of a network given evidence: node after node.

    Those above the evidence are drawn in the reverse of an order of elimination, each given the
    nodes that it stood in a table with; the others given their parents.

    Raises
    ------
    DataError
        When the evidence is impossible.
    MemoryLimitError
        When a table would be larger.
    """
    above = ancestral(coded, evidence) if evidence else []
    factors = factors_of(coded, evidence, above)
    order = checked_order(coded, factors, (), largest)
    steps, _ = conditionals(coded, evidence, factors, order)
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

    Parameters
    ----------
    coded, evidence
        The network, and what is known of it.
    factors
        Tables at the evidence, of nodes and of all above them.
    order
        An order in which to sum out all their nodes.

    Returns
    -------
    tuple
        A step for each node, from the last of the order to the first; and nats.

    Raises
    ------
    DataError
        When the evidence is impossible.
    """
    logs = [Factor(f.scope, _log(f.table)) for f in factors]
    total, joints = _log_eliminated(logs, order.nodes, ())
    if total == -np.inf:
        raise impossible(coded, evidence)
    steps = []
    for v, given, joint in reversed(joints):
        top = joint.max(axis=-1, keepdims=True)
        # What cannot come before is never looked up.
        table = np.exp(joint - np.where(np.isneginf(top), 0.0, top))
        share = table.sum(axis=-1, keepdims=True)
        steps.append(DrawStep(v, given, table / np.where(share == 0, 1.0, share)))
    return steps, float(total)
