"""Where chains begin: random states that agree with the evidence and are possible."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError
from fastbayes.kernels.shared.gibbs import CountedGroups
from fastbayes.networks.graph.coded import Coded, Floats, holding, logs
from fastbayes.networks.sample.blankets import free_factors

States = NDArray[np.uint16]
Bools = NDArray[np.bool_]
# Nodes, and which of their joint states are allowed.
Rule = tuple[tuple[int, ...], Bools]

# Rows drawn from the root down, and how often, until enough of them agree with the evidence.
ROWS, ROUNDS = 256, 16
# States that the search tries, for all chains together, before it gives up.
STEPS = 4_000
# Joint states of a group of nodes for which a proof is tried that they are impossible.
CELLS = 1_000


def starts(
    coded: Coded, evidence: Mapping[int, int], chains: int, rng: np.random.Generator
) -> States:
    """Return a state of positive probability for every chain, (n_nodes, chains).

    They lie further apart than what is probable: rows are drawn from the root down, for every
    second chain by the tables, for the others evenly from the states that are possible, and those
    that contradict the evidence thrown away. Where that finds too few, a search assigns the nodes
    above the evidence one by one, in random order of the states, and takes back what leaves
    another node no state; chains for which its steps do not suffice begin where others do.

    Raises DataError when the evidence is impossible, or the search found no state with it; the
    message says which, and names the nodes.
    """
    rows = max(ROWS, chains) if evidence else chains
    found = []
    for even, wanted in ((False, chains - chains // 2), (True, chains // 2)):
        forward, some = Forward(coded, evidence, even=even), np.empty((len(coded), 0), np.uint16)
        for _ in range(ROUNDS):
            if some.shape[1] >= wanted:
                break
            x, log_weight = forward.draw(rows, rng)
            some = np.concatenate([some, x[:, log_weight > -np.inf]], axis=1)
        found.append(some[:, :wanted])
    result = np.concatenate(found, axis=1)
    if result.shape[1] < chains:
        result = _searched(coded, evidence, chains, rng, result)
    return np.ascontiguousarray(np.resize(result.T, (chains, len(coded))).T)


def _searched(
    coded: Coded, evidence: Mapping[int, int], chains: int, rng: np.random.Generator, known: States
) -> States:
    """Return the states known so far and those that a search finds, one or more."""
    names = ", ".join(f"{coded.names[v]!r}" for v in evidence)
    for v, (parents, table) in enumerate(zip(coded.parents, coded.tables, strict=True)):
        given = [evidence.get(u, 0 if coded.sizes[u] == 1 else -1) for u in (*parents, v)]
        if min(given) >= 0 and table[tuple(given)] == 0:
            raise DataError(
                f"the evidence on {names} is impossible: node {coded.names[v]!r} has probability "
                "0 of its state there; change the evidence"
            )
    above = {*coded.ancestral(evidence)}
    factors = free_factors(coded, evidence)
    rules = [(scope, table > 0) for scope, table in factors if above.issuperset(scope)]
    found, left = [known], STEPS
    while sum(some.shape[1] for some in found) < chains and left > 0:
        values, steps = search(rules, coded.sizes.tolist(), rng, left)
        left -= steps
        if values is None and steps and left > 0:
            raise DataError(
                f"the evidence on {names} is impossible: a complete search found no states of the "
                "other nodes with it; change the evidence"
            )
        if values is not None:
            found.append(Forward(coded, {**values, **evidence}).draw(1, rng)[0])
    result = np.concatenate(found, axis=1)
    if not result.shape[1]:
        raise DataError(
            f"no states of the other nodes were found with the evidence on {names}: "
            f"{ROUNDS * ROWS:,} rows drawn and {STEPS:,} steps of a search contradict it; it may "
            "be impossible, which exact inference can tell"
        )
    return result


def search(
    rules: Sequence[Rule], sizes: Sequence[int], rng: np.random.Generator, steps: int
) -> tuple[dict[int, int] | None, int]:
    """Return states of all nodes that every rule allows, and the steps taken: states tried.

    Depth first, next the node with fewest states left; None if there are none, or if the steps
    did not suffice, which is when all of them were taken.
    """
    having = holding((rule, rule[0]) for rule in rules)
    domains = {v: _Domain(np.ones(sizes[v], np.bool_), sizes[v]) for v in having}
    taken = 1
    if not _narrow(domains, having, rules):
        return None, taken
    # Each level of the search: domains as they were, the node, its states not tried yet.
    levels: list[tuple[dict[int, _Domain], int, list[int]]] = []
    while True:
        open_nodes = [(domain.left, v) for v, domain in domains.items() if domain.left > 1]
        if not open_nodes:
            return {v: int(domain.allowed.argmax()) for v, domain in domains.items()}, taken
        _, v = min(open_nodes)
        levels.append((domains, v, rng.permutation(np.flatnonzero(domains[v].allowed)).tolist()))
        while True:
            if not levels or taken >= steps:
                return None, taken
            before, v, untried = levels[-1]
            if not untried:
                levels.pop()
                continue
            taken += 1
            domains = dict(before)
            domains[v] = _Domain(np.arange(sizes[v]) == untried.pop(), 1)
            if _narrow(domains, having, having[v]):
                break


def certain_cells(
    coded: Coded, evidence: Mapping[int, int], asked: CountedGroups, hits: NDArray[Any]
) -> Bools:
    """Return which joint states of groups of nodes are known to be impossible, or to be the only.

    That of an observed node is known; others where zeros leave nothing else, as far as taking away
    states shows that each table allows with the others. `hits` (n_cells,) are above 0 where a
    state is possible.
    """
    certain = np.zeros(len(hits), np.bool_)
    sizes = coded.sizes.tolist()
    rules = [(scope, table > 0) for scope, table in free_factors(coded, evidence)]
    having = holding((rule, rule[0]) for rule in rules)
    domains = {v: _Domain(np.ones(sizes[v], np.bool_), sizes[v]) for v in having}
    zeros = [rule for rule in rules if not rule[1].all()]
    _narrow(domains, having, zeros)
    edges = asked.target_at.tolist()
    for g, (first, last) in enumerate(itertools.pairwise(edges)):
        nodes = asked.targets[first:last].tolist()
        cells = slice(*asked.cell_at[g : g + 2])
        unseen, shape = np.flatnonzero(hits[cells] == 0), [sizes[v] for v in nodes]
        impossible = np.zeros(hits[cells].shape, np.bool_)
        for tried, cell in enumerate(unseen.tolist()):
            states = dict(zip(nodes, map(int, np.unravel_index(cell, shape)), strict=True))
            free = {v: state for v, state in states.items() if v in domains}
            impossible[cell] = any(evidence.get(v, s) != s for v, s in states.items()) or any(
                not domains[v].allowed[state] for v, state in free.items()
            )
            if not impossible[cell] and zeros and len(free) > 1 and tried < CELLS:
                chosen = {v: _Domain(np.arange(sizes[v]) == s, 1) for v, s in free.items()}
                impossible[cell] = not _narrow({**domains, **chosen}, having, zeros)
        only = impossible.sum() == impossible.size - 1
        certain[cells] = impossible | only
    return certain


class _Domain(NamedTuple):
    """Which states a node has left, and how many."""

    allowed: Bools
    left: int


def _narrow(
    domains: dict[int, _Domain], having: Mapping[int, list[Rule]], changed: Sequence[Rule]
) -> bool:
    """Take states away that no rule allows with the states left of the others.

    Returns whether every node has a state left. Domains are replaced, not written to.
    """
    waiting = list(changed)
    while waiting:
        scope, table = waiting.pop()
        allowed = table
        for axis, v in enumerate(scope):
            shape = [1] * len(scope)
            shape[axis] = -1
            allowed = allowed & domains[v].allowed.reshape(shape)
        for axis, v in enumerate(scope):
            left = np.asarray(allowed.any(axis=tuple(a for a in range(len(scope)) if a != axis)))
            n = int(np.count_nonzero(left))
            if not n:
                return False
            if n < domains[v].left:
                domains[v] = _Domain(left, n)
                waiting += [rule for rule in having[v] if rule[0] != scope]
    return True


class Forward:
    """Draws rows of a network, each node given its parents; immutable, thread-safe.

    Nodes in `evidence`, {node: state}, are not drawn; the others `even`ly from the states that are
    possible, if that is asked for.
    """

    def __init__(self, coded: Coded, evidence: Mapping[int, int], *, even: bool = False) -> None:
        self._coded, self._evidence, self._order = coded, dict(evidence), coded.order
        self._cumulated: dict[int, Floats] = {}
        self._logs = {v: logs(coded.tables[v]) for v in evidence}
        for v in self._order:
            if v not in evidence and coded.sizes[v] > 1:
                table = coded.tables[v] > 0 if even else coded.tables[v]
                self._cumulated[v] = np.cumsum(table, axis=-1, dtype=np.float64)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[States, Floats]:
        """Return (n_nodes, n) states of rows, and (n,) ln P(evidence | other nodes above it)."""
        x = np.zeros((len(self._coded), n), np.uint16)
        log_weight = np.zeros(n)
        for v in self._order:
            above = tuple(x[p] for p in self._coded.parents[v])
            if v in self._evidence:
                x[v] = self._evidence[v]
                log_weight += self._logs[v][(*above, x[v])]
            elif v in self._cumulated:
                cumulated = np.broadcast_to(self._cumulated[v][above], (n, self._coded.sizes[v]))
                share = rng.random(n) * cumulated[:, -1]
                x[v] = (share[:, None] >= cumulated[:, :-1]).sum(axis=1)
        return x, log_weight
