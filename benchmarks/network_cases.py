"""The cases of networks with a class node; `network_rivals` has them beside peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.batch import BLOCK_ROWS, Codes
from fastbayes.networks.network import BayesianNetwork

TUNED, FACTORS = "numpy, one table", "numpy, table by table"
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

# Lauritzen and Spiegelhalter (1988); `either` is an OR, here with a little noise.
PARENTS = {
    "tub": ("asia",),
    "lung": ("smoke",),
    "bronc": ("smoke",),
    "either": ("lung", "tub"),
    "xray": ("either",),
    "dysp": ("bronc", "either"),
}
YES: dict[str, Any] = {
    "asia": 0.01,
    "tub": [0.01, 0.05],
    "smoke": 0.5,
    "lung": [0.01, 0.1],
    "bronc": [0.3, 0.6],
    "either": [[0.02, 0.98], [0.98, 0.98]],
    "xray": [0.05, 0.98],
    "dysp": [[0.1, 0.7], [0.8, 0.9]],
}


def asia() -> BayesianNetwork:
    """Return the network."""
    tables = {node: np.stack([1 - np.array(p), np.array(p)], axis=-1) for node, p in YES.items()}
    return BayesianNetwork(dict.fromkeys(YES, ("no", "yes")), PARENTS, tables)


def by_tables(network: BayesianNetwork, target: str, codes: dict[str, Bytes]) -> Floats:
    """Return the posteriors, each table looked up by numpy."""
    n = len(next(iter(codes.values())))
    joint = np.ones((n, 2))
    for node in (target, *network.children[target]):
        family = (*network.parents[node], node)
        for c in range(2):
            joint[:, c] *= network.tables[node][
                tuple(c if v == target else codes[v] for v in family)
            ]
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def one_table(network: BayesianNetwork, target: str) -> Callable[[dict[str, Bytes]], Floats]:
    """Return what gives posteriors from a table over the whole Markov blanket."""
    blanket = network.markov_blanket(target)
    every = np.indices([2] * len(blanket)).reshape(len(blanket), -1)
    cells = {v: np.zeros(every.shape[1], np.uint8) for v in network.nodes}
    cells |= {v: row.astype(np.uint8) for v, row in zip(blanket, every, strict=True)}
    table = by_tables(network, target, cells)

    def run(codes: dict[str, Bytes]) -> Floats:
        at = np.zeros(len(codes[blanket[0]]), np.uint8)
        for v in blanket:
            at = (at << 1) | codes[v]
        return np.asarray(table[at])

    return run


def _posteriors(target: str) -> Callable[[int, Path], Work]:
    """Give posteriors of a node from ready codes of all others, one thread."""

    def build(rows: int, _: Path) -> Work:
        network = asia()
        random = np.random.default_rng(1)
        features = [node for node in network.nodes if node != target]
        matrix = np.empty((len(features), rows), np.uint8)
        matrix[:] = random.integers(0, 2, matrix.shape)
        codes = dict(zip(features, matrix, strict=True))
        # Every joint state once, weighted by its probability: the tables are the network's.
        table, weight = _weighted(network)
        model = fb.NetworkClassifier(network, alpha=0).fit(table, target, sample_weight=weight)
        scorer = model._scorer(float(matrix.size) + 1e9)
        assert [*model.schema_.names] == features
        blocks = [
            [Codes(np.arange(len(features)), np.ascontiguousarray(part), np.full(len(features), 4))]
            for part in np.split(matrix, range(BLOCK_ROWS, rows, BLOCK_ROWS), axis=1)
        ]

        def ours() -> Floats:
            out = np.empty((rows, 2))
            for i, block in enumerate(blocks):
                scorer.posterior(block, (), out[i * BLOCK_ROWS : (i + 1) * BLOCK_ROWS])
            return out

        looked_up = one_table(network, target)
        sides = {
            OURS: Side(ours, float(rows)),
            TUNED: Side(lambda: looked_up(codes), float(rows)),
            FACTORS: Side(lambda: by_tables(network, target, codes), float(rows)),
        }

        def check(results: dict[str, Any]) -> None:
            for name, found in results.items():
                np.testing.assert_allclose(found, results[FACTORS], atol=1e-12, err_msg=name)

        return Work(sides, check)

    return build


def _weighted(network: BayesianNetwork) -> tuple[pa.Table, Floats]:
    """Return every joint state once, and how probable each is."""
    cells = np.indices([2] * len(network.nodes)).reshape(len(network.nodes), -1)
    columns = {v: np.array(["no", "yes"])[c] for v, c in zip(network.nodes, cells, strict=True)}
    return pa.table(columns), np.exp(network.log_joint(columns))


CASES = tuple(
    Case(
        f"network-{target}",
        f"posterior of asia's `{target}` from ready codes, {{rows}} × 7, one thread",
        rows_of(4_000_000, 1_000_000),
        _posteriors(target),
        # 20 million rows a second.
        (Claim(None, most=50.0), Claim(TUNED), Claim(FACTORS)),
        unit="row",
        threads="one",
    )
    for target in ("bronc", "either")
)
