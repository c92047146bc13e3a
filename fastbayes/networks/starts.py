"""Where chains begin: random states that agree with the evidence and are possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.errors import DataError
from fastbayes.networks.blankets import free_factors
from fastbayes.networks.coded import Coded
from fastbayes.networks.forward import Forward

States = NDArray[np.uint16]
Bools = NDArray[np.bool_]
# Nodes, and which of their joint states are allowed.
Rule = tuple[tuple[int, ...], Bools]

# Rows drawn from the root down, and how often, until enough of them agree with the evidence.
ROWS, ROUNDS = 256, 16
# States that the search tries before it gives up.
STEPS = 20_000


def starts(
    coded: Coded, evidence: Mapping[int, int], chains: int, rng: np.random.Generator
) -> States:
    """Return a state of positive probability for every chain, (n_nodes, chains).

    Rows are drawn from the root down, and those that contradict the evidence thrown away. Where
    that finds too few, a search assigns node by node, in random order of the states, and takes
    back what leaves another node no state; chains for which its steps do not suffice begin where
    others do.

    Raises
    ------
    DataError
        When the evidence is impossible, or the search found no state with it; the message says
        which, and names the nodes.
    """
    forward = Forward(coded, evidence)
    found = [np.empty((len(coded), 0), np.uint16)]
    rows = max(ROWS, chains) if evidence else chains
    for _ in range(ROUNDS):
        x, log_weight = forward.draw(rows, rng)
        found.append(x[:, log_weight > -np.inf])
        if sum(some.shape[1] for some in found) >= chains:
            break
    result = np.concatenate(found, axis=1)
    if result.shape[1] < chains:
        result = _searched(coded, evidence, chains, rng, result)
    return np.ascontiguousarray(np.resize(result.T, (chains, len(coded))).T)


def _searched(
    coded: Coded, evidence: Mapping[int, int], chains: int, rng: np.random.Generator, known: States
) -> States:
    """Return the states known so far and those that a search finds, one or more."""
    names = ", ".join(f"{coded.names[v]!r}" for v in evidence)
    for v, (above, table) in enumerate(zip(coded.parents, coded.tables, strict=True)):
        given = [evidence.get(u, 0 if coded.sizes[u] == 1 else -1) for u in (*above, v)]
        if min(given) >= 0 and table[tuple(given)] == 0:
            raise DataError(
                f"the evidence on {names} is impossible: node {coded.names[v]!r} has probability "
                "0 of its state there; change the evidence"
            )
    rules = [(scope, table > 0) for scope, table in free_factors(coded, evidence)]
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
            x = np.zeros((len(coded), 1), np.uint16)
            for v, state in {**values, **evidence}.items():
                x[v] = state
            found.append(x)
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
    """Return states of all nodes that every rule allows, and the steps taken.

    Depth first, next the node with fewest states left; None if there are none, or if the steps
    did not suffice, which is when all of them were taken.

    Parameters
    ----------
    rules
        What is allowed.
    sizes
        States of each node.
    steps
        Most states to try.
    """
    having: dict[int, list[Rule]] = {}
    for rule in rules:
        for v in rule[0]:
            having.setdefault(v, []).append(rule)
    domains = {v: np.ones(sizes[v], np.bool_) for v in having}
    taken = 1
    if not _narrow(domains, having, rules):
        return None, taken
    # Each level of the search: domains as they were, the node, its states not tried yet.
    levels: list[tuple[dict[int, Bools], int, list[int]]] = []
    while True:
        open_nodes = [v for v, domain in domains.items() if domain.sum() > 1]
        if not open_nodes:
            return {v: int(domain.argmax()) for v, domain in domains.items()}, taken
        v = min(open_nodes, key=lambda u: (int(domains[u].sum()), u))
        levels.append((domains, v, rng.permutation(np.flatnonzero(domains[v])).tolist()))
        while True:
            if not levels or taken >= steps:
                return None, taken
            before, v, untried = levels[-1]
            if not untried:
                levels.pop()
                continue
            taken += 1
            domains = dict(before)
            domains[v] = np.arange(sizes[v]) == untried.pop()
            if _narrow(domains, having, having[v]):
                break


def _narrow(
    domains: dict[int, Bools], having: Mapping[int, list[Rule]], changed: Sequence[Rule]
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
            allowed = allowed & domains[v].reshape(shape)
        for axis, v in enumerate(scope):
            left = np.asarray(allowed.any(axis=tuple(a for a in range(len(scope)) if a != axis)))
            if not left.any():
                return False
            if left.sum() < domains[v].sum():
                domains[v] = left
                waiting += [rule for rule in having[v] if rule[0] != scope]
    return True
