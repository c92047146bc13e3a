"""Which nodes zeros of the tables tie together, so that none can move while the others stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Nodes and a table over them, an axis for each.
Factor = tuple[tuple[int, ...], Floats]

# Joint states that are looked through to find those of a block that are possible, at least.
CANDIDATES = 1 << 16


@dataclass(frozen=True)
class DeterministicBlock:
    """Nodes that are resampled as one.

    Parameters
    ----------
    nodes
        Ascending.
    values
        (n_states, n_nodes) the joint states that are possible.
    """

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
    factors: Sequence[Factor], sizes: Sequence[int], max_block: int
) -> tuple[list[DeterministicBlock], list[tuple[int, ...]]]:
    """Return blocks of tied nodes, and the ties that would make a block too large.

    Parameters
    ----------
    factors
        The tables of the network, without what is observed.
    sizes
        States of each node.
    max_block
        Most possible joint states of a block.
    """
    ties = [(nodes, factor) for factor in factors if (nodes := tied(factor))]
    # Small ties first: what does not fit should be as little as can be.
    ties.sort(key=lambda tie: (len(tie[0]), tie[0]))
    having: dict[int, list[Factor]] = {}
    for factor in factors:
        for v in factor[0]:
            having.setdefault(v, []).append(factor)
    block_of: dict[int, DeterministicBlock] = {}
    left = []
    for nodes, _ in ties:
        parts = {part.nodes: part for v in nodes for part in [_part(v, block_of, sizes)]}
        block = _joined(list(parts.values()), having, max_block)
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
    alone = block_of.get(node)
    return alone or DeterministicBlock((node,), np.arange(sizes[node])[:, None])


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
    order = np.argsort(names)
    return DeterministicBlock(nodes, values[:, order])
