"""Networks for the tests of sampling: from files, at random, and ones that zeros tie."""

from __future__ import annotations

import itertools
import re

import numpy as np
from oracles import gibbs as naive

from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.sample.estimates import gibbs_of_groups, weighting_of_groups


def gibbs(coded, evidence, targets, **options):
    """Return what Gibbs sampling says of one group of nodes."""
    return gibbs_of_groups(coded, evidence, [targets], **options)[0]


def likelihood_weighting(coded, evidence, targets, **options):
    """Return what likelihood weighting says of one group of nodes."""
    return weighting_of_groups(coded, evidence, [targets], **options)[0]


def read_bif(path):
    """Return a network and the names of its states; only what these files hold is understood."""
    text = path.read_text(encoding="utf-8")
    states = {
        name: [s.strip() for s in values.split(",")]
        for name, values in re.findall(r"variable (\w+) \{[^{]*\{([^}]*)\};", text)
    }
    names = tuple(states)
    parents, tables = {}, {}
    for head, body in re.findall(r"probability \( (.*?) \) \{(.*?)\n\}", text, re.DOTALL):
        node, _, above = head.partition(" | ")
        parents[node] = [p.strip() for p in above.split(",")] if above else []
        shape = [len(states[n]) for n in (*parents[node], node)]
        table = np.full(shape, np.nan)
        for where, numbers in re.findall(r"(?:\((.*?)\)|table) *(.*?);", body):
            row = [w.strip() for w in where.split(",")] if where else []
            at = tuple(states[p].index(s) for p, s in zip(parents[node], row, strict=True))
            table[at] = [float(number) for number in numbers.split(",")]
        tables[node] = table / table.sum(axis=-1, keepdims=True)
    number = {name: at for at, name in enumerate(names)}
    coded = Coded(
        names,
        np.array([len(states[name]) for name in names]),
        [tuple(number[p] for p in parents[name]) for name in names],
        [tables[name] for name in names],
    )
    return coded, states


def random_network(rng, sizes, most_parents=2, zeros=0.0, deterministic=0.0):
    """Return a network in which a share of entries, or of nodes' rows but one, is 0."""
    n = len(sizes)
    place = rng.permutation(n)
    parents, tables = [()] * n, [None] * n
    for at, node in enumerate(place):
        k = rng.integers(0, min(at, most_parents) + 1)
        parents[node] = tuple(rng.choice(place[:at], k, replace=False).tolist())
        shape = [sizes[v] for v in (*parents[node], node)]
        table = rng.uniform(0.05, 1, shape)
        table[rng.random(shape) < zeros] = 0
        if parents[node] and rng.random() < deterministic:
            table[:] = 0
        flat = table.reshape(-1, sizes[node])
        lost = flat.sum(axis=1) == 0
        flat[lost, rng.integers(0, sizes[node], lost.sum())] = 1
        tables[node] = table / table.sum(axis=-1, keepdims=True)
    return Coded(tuple(f"x{v}" for v in range(n)), np.array(sizes), parents, tables)


def joint_of(coded, evidence=None):
    """Return P(all nodes, evidence) as one array, 0 where the evidence is contradicted."""
    joint = np.ones(coded.sizes)
    for states in itertools.product(*map(range, coded.sizes)):
        for v, (above, table) in enumerate(zip(coded.parents, coded.tables, strict=True)):
            joint[states] *= table[tuple(states[u] for u in (*above, v))]
        if any(states[v] != state for v, state in (evidence or {}).items()):
            joint[states] = 0
    return joint


def exact(coded, evidence, targets):
    """Return P(targets | evidence)."""
    joint = joint_of(coded, evidence)
    others = tuple(v for v in range(len(coded.sizes)) if v not in targets)
    left = joint.sum(axis=others)
    return left.transpose(np.argsort(np.argsort(targets))) / joint.sum()


def transition(program, sizes, kept):
    """Return the matrix of a sweep over states of positive probability, from the program's tables.

    kept  (n_states, n_nodes)

    Where nodes are drawn jointly, a sweep goes by way of states that are not possible.
    """
    everywhere = np.indices(sizes).reshape(len(sizes), -1).T
    number = np.ravel_multi_index(kept.T, sizes)
    matrix = np.eye(len(everywhere))[number]
    for unit in range(len(program.kinds)):
        reached = np.flatnonzero(matrix.any(axis=0))
        shares = naive.conditional(program, unit, everywhere[reached].T.astype(np.uint16))
        after = np.zeros(matrix.shape)
        for at, of in zip(reached, shares, strict=True):
            for state, share in enumerate(of):
                if share > 0:
                    row = naive.moved(program, unit, state, everywhere[at])
                    after[:, np.ravel_multi_index(row, sizes)] += share * matrix[:, at]
        matrix = after
    assert not matrix[:, np.setdiff1d(np.arange(len(everywhere)), number)].any()
    return matrix[:, number]
