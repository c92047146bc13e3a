"""The cases of Gibbs sampling with evidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import alarm
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.errors import FastBayesWarning
from fastbayes.kernels import dispatch
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.infer.inference import joint_posterior, marginals
from fastbayes.networks.sample.blankets import ENTRIES, compiled, free_nodes
from fastbayes.networks.sample.estimates import asked_of, gibbs_of_groups
from fastbayes.networks.sample.starts import starts

NUMPY = "numpy, all chains at once"
ONE_BY_ONE = "a run for each node"
CHAINS = 32
Floats = NDArray[np.float64]
Sweep = Callable[[int], Floats]

# Eleven nodes without children: what is seen of a patient.
LEAVES = tuple(sorted({*alarm.SIZES} - {p for above in alarm.PARENTS.values() for p in above}))
TARGET = "INTUBATION"


def coded() -> tuple[Coded, dict[int, int], int]:
    """Return the network, evidence on all leaves, and the target."""
    names, tables = tuple(alarm.SIZES), alarm.tables()
    number = {name: at for at, name in enumerate(names)}
    parents = [tuple(number[p] for p in alarm.PARENTS.get(name, ())) for name in names]
    # No probability is near 0, where chains would hardly move.
    mixed = [0.95 * tables[name] + 0.05 / alarm.SIZES[name] for name in names]
    network = Coded(names, np.array([alarm.SIZES[name] for name in names]), parents, mixed)
    return network, {number[name]: 0 for name in LEAVES}, number[TARGET]


def by_hand(network: Coded, evidence: dict[int, int], target: int, chains: int) -> Sweep:
    """Return P(target) after some sweeps, all chains at once, each factor looked up by numpy."""
    children: list[list[int]] = [[] for _ in network.names]
    for v, above in enumerate(network.parents):
        for p in above:
            children[p].append(v)

    def run(sweeps: int) -> Floats:
        random = np.random.default_rng(0)
        x = starts(network, evidence, chains, random).astype(np.int64)
        counts = np.zeros(network.sizes[target])
        for _ in range(sweeps):
            for v in range(len(x)):
                if v in evidence:
                    continue
                states = np.arange(network.sizes[v])[:, None]
                weights = np.ones((len(states), chains))
                for f in (v, *children[v]):
                    scope = (*network.parents[f], f)
                    weights *= network.tables[f][tuple(states if u == v else x[u] for u in scope)]
                cumulated = weights.cumsum(axis=0)
                x[v] = (random.random(chains) * cumulated[-1] >= cumulated[:-1]).sum(axis=0)
            counts += np.bincount(x[target], minlength=len(counts))
        return np.asarray(counts / counts.sum())

    return run


def kernel(
    network: Coded,
    evidence: dict[int, int],
    target: int,
    chains: int,
    entries: int = ENTRIES,
    *,
    all_counted: bool = False,
) -> Sweep:
    """Return P(target) after some sweeps of the kernel on one thread."""
    program = compiled(network, evidence, entries=entries).program
    module = dispatch.load("scoring.gibbs")
    states = starts(network, evidence, chains, np.random.default_rng(0))
    words = np.random.SeedSequence(0).generate_state(4 * chains, np.uint64).reshape(4, chains)
    others = [[v] for v in free_nodes(network, evidence) if v != target and all_counted]
    asked = asked_of(network, [[target], *others])

    def run(sweeps: int) -> Floats:
        counts = np.zeros((chains, asked.cell_at[-1]), np.int64)
        module.run(program, states.copy(), words.copy(), sweeps, 1, asked, counts)
        found = counts[:, : network.sizes[target]].sum(axis=0)
        return np.asarray(found / found.sum())

    return run


def _sweeps(
    chains: int, entries: int = ENTRIES, *, all_counted: bool = False
) -> Callable[[int, Path], Work]:
    """Update so many nodes by kernels and by numpy, which gets a tenth to do."""

    def build(rows: int, _: Path) -> Work:
        network, evidence, target = coded()
        free = len(network.names) - len(evidence)
        ours = max(rows // (free * chains), 1)
        few = max(ours * chains // 2560, 1)
        run = kernel(network, evidence, target, chains, entries, all_counted=all_counted)
        hand = by_hand(network, evidence, target, 256)
        sides = {
            OURS: Side(lambda: run(ours), float(ours * chains * free)),
            NUMPY: Side(lambda: hand(few), float(few * 256 * free)),
        }

        def check(results: dict[str, Any]) -> None:
            expected = joint_posterior(network, evidence, [target])[0]
            for name, draws in ((OURS, ours * chains), (NUMPY, few * 256)):
                error = np.abs(results[name] - expected).max()
                # Ten independent draws' worth at least are in a hundred.
                assert error < 0.02 + 5 * np.sqrt(0.25 / (draws / 10)), (name, error)

        return Work(sides, check)

    return build


def _asked(network: Coded, evidence: dict[int, int], targets: list[int], draws: int) -> list[Any]:
    """Return what Gibbs sampling with a tenth of the draws in burn-in says of each target."""
    with warnings.catch_warnings():
        # In the short runs among the tests there are too few draws for any answer.
        warnings.simplefilter("ignore", FastBayesWarning)
        groups = [[target] for target in targets]
        burn_in = draws // CHAINS // 10
        return gibbs_of_groups(network, evidence, groups, draws=draws, burn_in=burn_in, seed=0)


def _query(rows: int, _: Path) -> Work:
    """Ask for a posterior with a tenth of the draws in burn-in, all threads."""
    network, evidence, target = coded()
    free = len(network.names) - len(evidence)
    draws = max(rows // free, CHAINS)

    def ours() -> Any:
        return _asked(network, evidence, [target], draws)[0]

    def check(results: dict[str, Any]) -> None:
        expected = joint_posterior(network, evidence, [target])[0]
        found = results[OURS]
        assert (np.abs(found.probabilities - expected) < 5 * found.mcse + 0.02).all()

    return Work({OURS: Side(ours, float(draws * free))}, check)


def _marginals(rows: int, _: Path) -> Work:
    """Ask for the posteriors of all nodes at once, or for those of two nodes one by one."""
    network, evidence, target = coded()
    free = free_nodes(network, evidence)
    draws = max(rows // len(free), CHAINS)
    two = [target, next(v for v in free if v != target)]

    def ours() -> Any:
        return dict(zip(free, _asked(network, evidence, free, draws), strict=True))

    def one_by_one() -> Any:
        return {v: _asked(network, evidence, [v], draws)[0] for v in two}

    def check(results: dict[str, Any]) -> None:
        expected = dict(zip(free, marginals(network, evidence, free)[0], strict=True))
        for found in results.values():
            for v, sampled in found.items():
                off = np.abs(sampled.probabilities - expected[v])
                # A node that no chain changed in so few draws has an error of NaN.
                assert (off < 5 * np.nan_to_num(sampled.mcse) + 0.02).all(), (network.names[v], off)
        for v in two:
            alone, together = (results[name][v].counts for name in (ONE_BY_ONE, OURS))
            assert np.array_equal(alone, together)

    return Work(
        {
            OURS: Side(ours, float(draws * len(free))),
            ONE_BY_ONE: Side(one_by_one, float(draws * len(two))),
        },
        check,
    )


CASES = (
    Case(
        "gibbs-one",
        "{rows} node updates of one Gibbs chain, 37 nodes, 11 observed, one thread",
        rows_of(10_000_000, 3_000_000),
        _sweeps(1),
        (Claim(None, most=16.0), Claim(NUMPY)),
        unit="node update",
        threads="one",
    ),
    Case(
        "gibbs-lanes",
        "{rows} node updates of 32 Gibbs chains in lock step, 37 nodes, 11 observed, one thread",
        rows_of(30_000_000, 10_000_000),
        _sweeps(32),
        (Claim(None, most=5.5), Claim(NUMPY, least=10)),
        unit="node update",
        threads="one",
    ),
    Case(
        "gibbs-products",
        "the same without tables, probabilities multiplied on-line",
        rows_of(10_000_000, 3_000_000),
        _sweeps(32, entries=0),
        (Claim(None, most=25.0), Claim(NUMPY, least=3)),
        unit="node update",
        threads="one",
    ),
    Case(
        "gibbs-query",
        "a posterior from {rows} node updates: compile, start, burn in, 32 chains, its errors",
        rows_of(30_000_000, 10_000_000),
        _query,
        (Claim(None, most=5.5),),
        unit="node update",
    ),
    Case(
        "gibbs-one-marginals",
        "{rows} node updates of one Gibbs chain, the states of all 26 nodes counted, one thread",
        rows_of(10_000_000, 3_000_000),
        _sweeps(1, all_counted=True),
        (Claim(None, most=16.0), Claim(NUMPY)),
        unit="node update",
        threads="one",
    ),
    Case(
        "gibbs-lanes-marginals",
        "{rows} of 32 chains in lock step, the states of all 26 nodes counted, one thread",
        rows_of(30_000_000, 10_000_000),
        _sweeps(32, all_counted=True),
        (Claim(None, most=5.5), Claim(NUMPY, least=10)),
        unit="node update",
        threads="one",
    ),
    Case(
        "gibbs-marginals",
        "posteriors of 26 nodes in one run of Gibbs sampling, {rows} states drawn and counted",
        rows_of(30_000_000, 10_000_000),
        _marginals,
        (Claim(None, most=5.5), Claim(ONE_BY_ONE, least=10)),
        unit="state",
    ),
)
