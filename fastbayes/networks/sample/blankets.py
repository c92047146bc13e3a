"""A network compiled for Gibbs sampling: each node's distribution given its Markov blanket."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared.gibbs import PRODUCT, TABLE, Program
from fastbayes.networks.graph.coded import Coded, Floats, Ints, holding, logs
from fastbayes.networks.sample.joint_draws import Holds, JointDraw

# Nodes and a table over them, an axis for each.
Factor = tuple[tuple[int, ...], Floats]

# A unit has a table of at most so many blanket configurations times states, and all tables have
# at most so many thresholds (1 MiB): from beyond the caches a look-up takes as long as products.
ENTRIES = 1 << 16
ALL_ENTRIES = 1 << 18
# Most thresholds of nodes that are drawn jointly (16 MiB), slow or not: nothing else moves them.
JOINT_ENTRIES = 1 << 22
# Numbers that a unit without table may need of each chain.
STATES = 1 << 16
# Joint states of a block that probabilities near 0 tie together: all are possible, and without a
# table the weight of each is multiplied for every draw.
NEAR = 64
# Joint states that are looked through to find those of a block that are possible, at least.
CANDIDATES = 1 << 16


def free_factors(coded: Coded, evidence: Mapping[int, int]) -> list[Factor]:
    """Return the tables of a network at the observed states, over the nodes left free.

    A node of one state is not free: it is where it is. Factors over no node are left out.
    """
    given = {v: 0 for v, size in enumerate(coded.sizes) if size == 1} | dict(evidence)
    factors = []
    for node, (parents, table) in enumerate(zip(coded.parents, coded.tables, strict=True)):
        scope = (*parents, node)
        at: tuple[Any, ...] = tuple(given.get(v, slice(None)) for v in scope)
        free = tuple(v for v in scope if v not in given)
        if free:
            factors.append((free, np.asarray(table[at], np.float64)))
    return factors


def free_nodes(coded: Coded, evidence: Mapping[int, int]) -> list[int]:
    """Return the nodes that are sampled: not observed, of more than one state."""
    return [v for v, size in enumerate(coded.sizes) if v not in evidence and size > 1]


@dataclass
class Compiled:
    """A program for kernels, and what may keep chains from moving all the same.

    blocks  nodes of each block in the program
    left    nodes of each tie without a block
    zeros   whether some of these ties are made by zeros, not by probabilities near 0
    held    nodes outside of blocks that all their neighbours together may keep from moving
    """

    program: Program
    blocks: list[tuple[int, ...]]
    left: list[tuple[int, ...]]
    zeros: bool
    held: list[int]


def compiled(
    coded: Coded,
    evidence: Mapping[int, int],
    *,
    blocks: bool = True,
    max_block: int = 1024,
    entries: int = ENTRIES,
    all_entries: int = ALL_ENTRIES,
    joint_entries: int = JOINT_ENTRIES,
) -> Compiled:
    """Return a network compiled for sampling given evidence, {node: state}.

    Units are in the order of the nodes, a block where its first node stands; behind them nodes that
    are drawn jointly, one by one.

    blocks                whether nodes that zeros tie together are one unit, and nodes that hold
                          each other in place are drawn jointly
    max_block             most possible joint states of a block
    entries, all_entries  most numbers in the table of a unit, and in all tables
    joint_entries         most numbers in all tables of a joint draw

    Raises MemoryLimitError when the states of a node are too many.
    """
    factors = free_factors(coded, evidence)
    sizes = coded.sizes.tolist()
    zeros = [nodes for factor in factors if (nodes := tied(factor))]
    holds = Holds.of(coded, evidence)
    joint = holds.joint_draws(zeros, entries, joint_entries) if blocks else []
    inside = {v for block in joint for v in block.nodes}
    most = max_block if blocks else 0
    ties = [*((nodes, most) for nodes in zeros), *((pair, min(most, NEAR)) for pair in holds.tied)]
    ties = [(nodes, most) for nodes, most in ties if inside.isdisjoint(nodes)]
    found, left = blocks_of(factors, ties, sizes)
    if not blocks:
        found = []
    inside |= {v for block in found for v in block.nodes}
    alone = [v for v in free_nodes(coded, evidence) if v not in inside]
    units = [*found, *(DeterministicBlock((v,), np.arange(sizes[v])[:, None]) for v in alone)]
    for unit in units:
        if len(unit.values) > STATES:
            names = ", ".join(repr(coded.names[v]) for v in unit.nodes)
            raise MemoryLimitError(
                f"node {names} has {len(unit.values):,} states; Gibbs sampling takes {STATES:,}"
            )
    # A block of one possible state is in it from the start.
    units = [unit for unit in units if len(unit.values) > 1]
    return Compiled(
        _program(units, joint, factors, sizes, entries, all_entries),
        sorted([*(block.nodes for block in found), *(draw.nodes for draw in joint)]),
        left,
        not set(left).isdisjoint(tuple(sorted(nodes)) for nodes in zeros),
        sorted(holds.held - inside),
    )


# Types of what is not int64.
KINDS: dict[str, type[np.generic]] = {
    "values": np.uint16,
    "outer_step": np.uint16,
    "thresholds": np.uint32,
    "probabilities": np.float64,
}


class _Parts:
    """The arrays of a program while they grow."""

    def __init__(self) -> None:
        self.arrays: dict[str, list[NDArray[Any]]] = {name: [] for name in Program._fields}
        self.lengths = dict.fromkeys(Program._fields, 0)

    def add(self, name: str, *numbers: int) -> None:
        self.append(name, numbers)

    def append(self, name: str, numbers: ArrayLike) -> int:
        """Append numbers to an array; return where they begin."""
        at, array = self.lengths[name], np.asarray(numbers, KINDS.get(name, np.int64)).ravel()
        self.arrays[name].append(array)
        self.lengths[name] += array.size
        return at

    def unit(self, nodes: Sequence[int], n_states: int, values: Ints | None = None) -> None:
        """Begin a unit; `values` (n_states, n_nodes) of a block."""
        self.add("states", n_states)
        self.add("member_at", self.lengths["members"])
        self.add("members", *nodes)
        place = -1 if values is None or len(nodes) == 1 else self.append("values", values.T)
        self.add("value_at", place)
        self.add("outer_at", self.lengths["outer"])
        self.add("factor_at", self.lengths["table_of"])

    def table(self, outer: Sequence[int], log_weights: Floats) -> None:
        """Give a unit ln weights of its states, (sizes of the outer nodes ..., n_states)."""
        self.add("kinds", TABLE)
        self.add("outer", *outer)
        self.add("outer_step", *steps_of(log_weights.shape[:-1]))
        rows = log_weights.reshape(-1, log_weights.shape[-1])
        self.add("table_at", self.append("thresholds", thresholds(rows)))

    def program(self) -> Program:
        return Program(
            *(
                readonly(np.concatenate([*some, np.empty(0, KINDS.get(name, np.int64))]))
                for name, some in self.arrays.items()
            )
        )


def _program(
    units: Sequence[DeterministicBlock],
    joint: Sequence[JointDraw],
    factors: Sequence[Factor],
    sizes: Sequence[int],
    entries: int,
    all_entries: int,
) -> Program:
    having = holding((f, scope) for f, (scope, _) in enumerate(factors))
    touching = [sorted({f for v in unit.nodes for f in having[v]}) for unit in units]
    outers = [
        sorted({v for f in its for v in factors[f][0]}.difference(unit.nodes))
        for unit, its in zip(units, touching, strict=True)
    ]
    tabled = _tabled(units, outers, sizes, entries, all_entries)
    parts = _Parts()
    placed: dict[int, int] = {}
    terms = [(scope, logs(table)) for scope, table in factors]
    for unit, its, outer, has_table in zip(units, touching, outers, tabled, strict=True):
        parts.unit(unit.nodes, len(unit.values), unit.values)
        if has_table:
            parts.table(outer, _weights(unit, outer, [terms[f] for f in its], sizes))
            continue
        parts.add("kinds", PRODUCT)
        parts.add("table_at", 0)
        for f in its:
            if f not in placed:
                placed[f] = parts.append("probabilities", factors[f][1])
            _add_factor(parts, unit, factors[f], placed[f])
    for step in (step for draw in joint for step in draw.steps):
        parts.unit((step.node,), int(step.table.shape[-1]))
        parts.table(step.given, step.table)
    # Kernels read three thresholds whether a unit has them or not.
    parts.append("thresholds", np.zeros(2, np.uint32))
    for name, end in (
        ("member_at", "members"),
        ("outer_at", "outer"),
        ("factor_at", "table_of"),
        ("factor_outer_at", "factor_outer"),
    ):
        parts.add(name, parts.lengths[end])
    return parts.program()


def _tabled(
    units: Sequence[DeterministicBlock],
    outers: Sequence[Sequence[int]],
    sizes: Sequence[int],
    entries: int,
    all_entries: int,
) -> list[bool]:
    """Return which units get a table; small ones come first."""
    cells = [
        math.prod(sizes[v] for v in outer) * len(unit.values)
        for unit, outer in zip(units, outers, strict=True)
    ]
    result, total = [False] * len(units), 0
    for u in sorted(range(len(units)), key=lambda u: cells[u]):
        total += cells[u]
        result[u] = cells[u] <= entries and total <= all_entries
    return result


def steps_of(sizes: Sequence[int]) -> list[int]:
    """Return by how much each of several nodes moves in their joint table, in C order."""
    steps = [1]
    for size in sizes[:0:-1]:
        steps.append(steps[-1] * size)
    return steps[::-1] if sizes else []


def _weights(
    unit: DeterministicBlock, outer: Sequence[int], logs: Sequence[Factor], sizes: Sequence[int]
) -> Floats:
    """Return ln weights of the states of a unit, (sizes of the outer nodes ..., n_states)."""
    shape = [sizes[v] for v in outer]
    index = dict(zip(outer, np.ogrid[tuple(slice(size) for size in (*shape, 1))], strict=False))
    index |= dict(zip(unit.nodes, unit.values.T, strict=True))
    total = np.zeros((*shape, len(unit.values)))
    for scope, table in logs:
        total += table[tuple(index[v] for v in scope)]
    return total


def thresholds(log_weights: Floats) -> NDArray[np.uint32]:
    """Return 2**32 P(state <= v) for all states but the last, of rows of ln weights.

    Probabilities are right to 2**-32, so that a state less probable than that may have no share;
    an impossible one has none. A row in which nothing is possible is never looked at: a chain
    that began at what is possible stays there.
    """
    highest = log_weights.max(axis=1, keepdims=True)
    cumulated = np.cumsum(
        np.exp(log_weights - np.where(np.isneginf(highest), 0.0, highest)), axis=1
    )
    total = cumulated[:, -1:]
    share = cumulated[:, :-1] / np.where(total > 0, total, 1.0)
    return np.minimum(np.rint(share * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _add_factor(parts: _Parts, unit: DeterministicBlock, factor: Factor, at: int) -> None:
    scope, table = factor
    steps = dict(zip(scope, steps_of(table.shape), strict=True))
    parts.add("table_of", at)
    offsets = sum(
        steps[v] * values for v, values in zip(unit.nodes, unit.values.T, strict=True) if v in steps
    )
    parts.add("offset_at", parts.append("offsets", np.asarray(offsets, np.int64)))
    parts.add("factor_outer_at", parts.lengths["factor_outer"])
    for v in scope:
        if v not in unit.nodes:
            parts.add("factor_outer", v)
            parts.add("factor_step", steps[v])


@dataclass(frozen=True)
class DeterministicBlock:
    """Nodes, ascending, that are resampled as one; `values` (n_states, n_nodes) are possible."""

    nodes: tuple[int, ...]
    values: Ints


def tied(factor: Factor) -> tuple[int, ...]:
    """Return the nodes of a factor that its zeros tie: none, or two or more.

    A node is free of the others if what is possible is a product of values of this node and
    combinations of the others; so are then all nodes free that the zeros of no factor tie, and
    one can reach everything possible by moving one at a time.
    """
    nodes, table = factor
    possible = table > 0
    if possible.all():
        return ()
    axis = 0
    while axis < len(nodes):
        others = tuple(a for a in range(len(nodes)) if a != axis)
        alone, rest = np.asarray(possible.any(axis=others)), np.asarray(possible.any(axis=axis))
        if alone.sum() * rest.sum() == possible.sum():
            nodes, possible, axis = nodes[:axis] + nodes[axis + 1 :], rest, 0
        else:
            axis += 1
    return nodes


def blocks_of(
    factors: Sequence[Factor],
    ties: Sequence[tuple[tuple[int, ...], int]],
    sizes: Sequence[int],
) -> tuple[list[DeterministicBlock], list[tuple[int, ...]]]:
    """Return blocks of tied nodes, and the ties that would make a block too large.

    `factors` are the tables without what is observed, `ties` nodes that are to be in one block, and
    how many possible joint states it may have at most.
    """
    # Small ties first: what does not fit should be as little as can be.
    ties = sorted(ties, key=lambda tie: (len(tie[0]), tie))
    having = holding((factor, factor[0]) for factor in factors)
    block_of: dict[int, DeterministicBlock] = {}
    left = []
    for nodes, most in ties:
        parts = {part.nodes: part for v in nodes for part in [_part(v, block_of, sizes)]}
        block = _joined(list(parts.values()), having, most)
        if block is None:
            left.append(tuple(sorted(nodes)))
        else:
            block_of.update(dict.fromkeys(block.nodes, block))
    # A later block may have brought together what did not fit before.
    left = [nodes for nodes in left if len({_part(v, block_of, sizes).nodes for v in nodes}) > 1]
    blocks = {block.nodes: block for block in block_of.values()}
    return [blocks[nodes] for nodes in sorted(blocks)], left


def _part(
    node: int, block_of: dict[int, DeterministicBlock], sizes: Sequence[int]
) -> DeterministicBlock:
    return block_of.get(node) or DeterministicBlock((node,), np.arange(sizes[node])[:, None])


def _joined(
    parts: list[DeterministicBlock], having: Mapping[int, list[Factor]], max_block: int
) -> DeterministicBlock | None:
    """Return the block of all nodes of these, None if it has too many states."""
    nodes = tuple(sorted(v for part in parts for v in part.nodes))
    if len(parts) == 1:
        return parts[0]
    names: tuple[int, ...] = ()
    values = np.zeros((1, 0), np.int64)
    for part in parts:
        if len(values) * len(part.values) > max(CANDIDATES, 16 * max_block):
            return None
        names += part.nodes
        pairs = np.indices((len(values), len(part.values))).reshape(2, -1)
        values = np.concatenate([values[pairs[0]], part.values[pairs[1]]], axis=1)
        place = {v: i for i, v in enumerate(names)}
        for scope, table in (factor for v in part.nodes for factor in having[v]):
            inside = [v for v in scope if v in place]
            outside = tuple(a for a, v in enumerate(scope) if v not in place)
            # What is possible for these, whatever the nodes outside.
            possible = np.asarray((table > 0).any(axis=outside))
            values = values[possible[tuple(values[:, place[v]] for v in inside)]]
    if len(values) > max_block:
        return None
    return DeterministicBlock(nodes, values[:, np.argsort(names)])
