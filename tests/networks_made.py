"""Networks to try things on, and their joint distributions by the book."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.networks.network import BayesianNetwork

Floats = NDArray[np.float64]

YES_NO = ("yes", "no")


def burglary() -> BayesianNetwork:
    """Return the network of Russell and Norvig, figure 14.2."""
    nodes = ["B", "E", "A", "J", "M"]
    tables: dict[str, Any] = {
        "B": [0.001, 0.999],
        "E": [0.002, 0.998],
        "A": [[[0.95, 0.05], [0.94, 0.06]], [[0.29, 0.71], [0.001, 0.999]]],
        "J": [[0.9, 0.1], [0.05, 0.95]],
        "M": [[0.7, 0.3], [0.01, 0.99]],
    }
    parents = {"A": ["B", "E"], "J": ["A"], "M": ["A"]}
    return BayesianNetwork(dict.fromkeys(nodes, YES_NO), parents, tables)


def asia() -> BayesianNetwork:
    """Return the network of Lauritzen and Spiegelhalter (1988); `either` is an OR."""
    nodes = ["asia", "tub", "smoke", "lung", "bronc", "either", "xray", "dysp"]
    parents = {
        "tub": ["asia"],
        "lung": ["smoke"],
        "bronc": ["smoke"],
        "either": ["lung", "tub"],
        "xray": ["either"],
        "dysp": ["bronc", "either"],
    }
    tables: dict[str, Any] = {
        "asia": [0.01, 0.99],
        "tub": [[0.05, 0.95], [0.01, 0.99]],
        "smoke": [0.5, 0.5],
        "lung": [[0.1, 0.9], [0.01, 0.99]],
        "bronc": [[0.6, 0.4], [0.3, 0.7]],
        "either": [[[1, 0], [1, 0]], [[1, 0], [0, 1]]],
        "xray": [[0.98, 0.02], [0.05, 0.95]],
        "dysp": [[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.1, 0.9]]],
    }
    return BayesianNetwork(dict.fromkeys(nodes, YES_NO), parents, tables)


def random_network(
    seed: int, n: int, density: float, *, most: int = 3, zeros: float = 0.0
) -> BayesianNetwork:
    """Return a network whose nodes have one to `most` states, a share of its cells 0."""
    random = np.random.default_rng(seed)
    names = [f"n{i}" for i in random.permutation(n)]
    states = {f"n{i}": [f"s{k}" for k in range(random.integers(1, most + 1))] for i in range(n)}
    parents = {
        node: [p for p in names[:i] if random.random() < density][:4]
        for i, node in enumerate(names)
    }
    tables = {}
    for node in names:
        shape = tuple(len(states[p]) for p in (*parents[node], node))
        table = random.gamma(0.5, size=shape) + 1e-3
        table[random.random(shape) < zeros] = 0.0
        table[..., 0] += 1e-3
        tables[node] = table / table.sum(axis=-1, keepdims=True)
    return BayesianNetwork(states, parents, tables)


def joint_by_rows(network: BayesianNetwork) -> Floats:
    """Return the probability of every joint state, an axis for each node: one after the other."""
    sizes = [len(network.states[node]) for node in network.nodes]
    place = {node: i for i, node in enumerate(network.nodes)}
    joint = np.empty(sizes)
    for cell in itertools.product(*map(range, sizes)):
        p = 1.0
        for node in network.nodes:
            family = (*network.parents[node], node)
            p *= network.tables[node][tuple(cell[place[n]] for n in family)]
        joint[cell] = p
    return joint


def posterior_by_joint(
    network: BayesianNetwork, joint: Floats, targets: list[str], evidence: dict[str, Any]
) -> tuple[Floats, float]:
    """Return P(targets | evidence) and P(evidence) by summing the joint distribution."""
    kept = joint.copy()
    for node, state in evidence.items():
        axis = network.nodes.index(node)
        wrong = [i for i, s in enumerate(network.states[node]) if s != state]
        kept[(slice(None),) * axis + (wrong,)] = 0.0
    places = [network.nodes.index(t) for t in targets]
    others = tuple(i for i in range(joint.ndim) if i not in places)
    margin = kept.sum(axis=others).transpose(np.argsort(np.argsort(places)))
    total = float(margin.sum())
    return margin / (total or 1.0), total


def read_plain_bif(path: Path) -> BayesianNetwork:
    """Return the network of a BIF file without quotes, comments or properties."""
    text = path.read_text(encoding="utf-8")
    states: dict[str, list[str]] = {}
    for name, values in re.findall(r"variable\s+(\w+)\s*\{[^{]*\{([^}]*)\}", text):
        states[name] = [value.strip() for value in values.split(",")]
    parents: dict[str, list[str]] = {}
    tables: dict[str, Floats] = {}
    for head, body in re.findall(r"probability\s*\(([^)]*)\)\s*\{([^}]*)\}", text):
        node, _, above = (part.strip() for part in head.partition("|"))
        parents[node] = [p.strip() for p in above.split(",") if p.strip()]
        table = np.zeros([len(states[n]) for n in (*parents[node], node)])
        for given, numbers in re.findall(r"(?:\(([^)]*)\)|table)\s*([^;]*);", body):
            cell = [v.strip() for v in given.split(",") if v.strip()]
            at = tuple(states[p].index(v) for p, v in zip(parents[node], cell, strict=True))
            table[at] = [float(number) for number in numbers.split(",")]
        tables[node] = table / table.sum(axis=-1, keepdims=True)
    return BayesianNetwork(states, parents, tables)
