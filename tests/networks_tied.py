"""Networks on which chains go wrong, ordinary ones, and how often answers hold what is true."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import FastBayesWarning
from fastbayes.networks.network import BayesianNetwork

Floats = NDArray[np.float64]
Random = np.random.Generator
Evidence = dict[str, int]

# Nodes of a network that are asked for.
ASKED = 8


class Case(NamedTuple):
    """A network and what is observed, {node: state}."""

    kind: str
    network: BayesianNetwork
    evidence: Evidence


def built(parents: Sequence[Sequence[int]], tables: Sequence[Floats]) -> BayesianNetwork:
    """Return the network of nodes x0, x1 ..., each with the numbers of its parents."""
    names = [f"x{v}" for v in range(len(tables))]
    return BayesianNetwork(
        {name: list(range(table.shape[-1])) for name, table in zip(names, tables, strict=True)},
        {name: [names[p] for p in above] for name, above in zip(names, parents, strict=True)},
        dict(zip(names, tables, strict=True)),
    )


def near(states: NDArray[np.int64], size: int, epsilon: float) -> Floats:
    """Return the table of a function of the parents, `states`, that fails with epsilon."""
    return np.where(
        states[..., None] == np.arange(size), 1 - epsilon, epsilon / max(size - 1, 1)
    ) / (1 if size > 1 else 1 - epsilon)


def copy(size: int, epsilon: float) -> Floats:
    """Return the table of a copy."""
    return near(np.arange(size), size, epsilon)


def forward(network: BayesianNetwork, random: Random) -> dict[str, int]:
    """Return a row of the network."""
    row: dict[str, int] = {}
    for node in network.order:
        table = network.tables[node][tuple(row[p] for p in network.parents[node])]
        row[node] = int(random.choice(len(table), p=table))
    return row


def prior(random: Random, size: int) -> Floats:
    """Return a distribution, flat, random or with rare states."""
    p = random.dirichlet(np.ones(size))
    if random.random() < 0.4:
        p = p * 10.0 ** -random.uniform(0, 5, size)
    return np.asarray(p / p.sum())


def chain(random: Random, epsilon: float) -> Case:
    """Return copies of copies, some of them seen through a noisy sensor, the ends at times."""
    n, size = int(random.integers(4, 26)), int(random.integers(2, 4))
    parents: list[list[int]] = [[], *([v] for v in range(n - 1))]
    tables = [prior(random, size), *(copy(size, epsilon) for _ in range(n - 1))]
    evidence: Evidence = {}
    for v in random.choice(n, 2, replace=False).tolist():
        parents.append([v])
        tables.append(random.dirichlet(np.ones(2), size))
        evidence[f"x{len(tables) - 1}"] = int(random.integers(2))
    if random.random() < 0.3:
        evidence |= {"x0": 0, f"x{n - 1}": int(random.integers(size))}
    return Case("chain", built(parents, tables), evidence)


def copies(random: Random, epsilon: float) -> Case:
    """Return a node with many copies, some observed, at times in contradiction."""
    n, size = int(random.integers(3, 20)), int(random.integers(2, 4))
    tables = [prior(random, size), *(copy(size, epsilon) for _ in range(n))]
    some = random.choice(n, int(random.integers(0, 4)), replace=False) + 1
    evidence = {f"x{v}": int(random.integers(size)) for v in some.tolist()}
    return Case("copies", built([[], *([0] for _ in range(n))], tables), evidence)


def xor(random: Random, epsilon: float) -> Case:
    """Return causes and their parity, made up node by node, which is observed."""
    n = int(random.integers(3, 12))
    parity = np.indices((2, 2)).sum(axis=0) % 2
    parents = [*([] for _ in range(n)), [0, 1], *([n + k, k + 2] for k in range(n - 2))]
    tables = [*(prior(random, 2) for _ in range(n)), *(near(parity, 2, epsilon),) * (n - 1)]
    evidence = {f"x{2 * n - 2}": int(random.integers(2))}
    return Case("xor", built(parents, tables), evidence)


def noisy_or(random: Random, epsilon: float) -> Case:
    """Return causes, mostly rare, of several effects that hardly ever come without them."""
    causes, effects = int(random.integers(3, 12)), int(random.integers(1, 6))
    parents: list[list[int]] = [[] for _ in range(causes)]
    rare = 10.0 ** -random.uniform(0.3, 5, causes)
    tables = [np.array([1 - p, p]) for p in rare]
    for _ in range(effects):
        above = sorted(random.choice(causes, min(causes, 4), replace=False).tolist())
        fails = np.where(random.random(len(above)) < 0.5, epsilon, random.uniform(0.01, 0.5))
        on = np.indices((2,) * len(above)).reshape(len(above), -1)
        off = (1 - epsilon) * np.prod(np.where(on == 1, fails[:, None], 1.0), axis=0)
        parents.append(above)
        tables.append(np.stack([off, 1 - off], axis=-1).reshape((2,) * (len(above) + 1)))
    seen = range(causes, causes + int(random.integers(1, effects + 1)))
    return Case("noisy or", built(parents, tables), {f"x{v}": 1 for v in seen})


def majority(random: Random, epsilon: float) -> Case:
    """Return a grid whose nodes mostly agree with those above: none is certain, all are."""
    height, width = int(random.integers(2, 6)), int(random.integers(2, 5))
    stay = 1 - max(epsilon, 10.0 ** -random.uniform(0.7, 2))
    parents, tables = [], []
    for i, j in itertools.product(range(height), range(width)):
        above = [*([(i - 1) * width + j] if i else []), *([i * width + j - 1] if j else [])]
        share = np.indices((2,) * len(above)).mean(axis=0) if above else np.array(0.5)
        p = 1 - stay + share * (2 * stay - 1)
        parents.append(above)
        tables.append(np.stack([1 - p, p], axis=-1))
    n = len(tables)
    for v in random.choice(n, min(n, 3), replace=False).tolist():
        parents.append([v])
        tables.append(random.dirichlet(np.ones(2), 2))
    evidence = {f"x{v}": int(random.integers(2)) for v in range(n, len(tables))}
    return Case("majority", built(parents, tables), evidence)


def panel(random: Random, epsilon: float) -> Case:
    """Return a node with many witnesses, each often right: together they leave it no doubt."""
    n = int(random.integers(8, 30))
    right = random.uniform(0.85, 0.99, n)
    tables = [prior(random, 2), *(copy(2, 1 - p) for p in right), copy(2, epsilon)]
    return Case("panel", built([[], *([0] for _ in range(n + 1))], tables), {})


def functions(random: Random, epsilon: float) -> Case:
    """Return a random network, half of whose nodes are functions of their parents, nearly."""
    drawn = ordinary(random, int(random.integers(6, 25)), most=3)
    tables = dict(drawn.network.tables)
    for node, above in drawn.network.parents.items():
        if above and random.random() < 0.5:
            *shape, size = tables[node].shape
            tables[node] = near(random.integers(0, size, shape), size, epsilon)
    network = BayesianNetwork(drawn.network.states, drawn.network.parents, tables)
    row = forward(network, random)
    some = random.choice(len(row), 3, replace=False).tolist()
    return Case("functions", network, {f"x{v}": row[f"x{v}"] for v in some})


def wide(random: Random, epsilon: float) -> Case:
    """Return chains of copies across a lattice of random tables: too wide for small tables."""
    side = int(random.integers(17, 19))
    parents, tables = [], []
    for i, j in itertools.product(range(side), range(side)):
        above = [*([(i - 1) * side + j] if i else []), *([i * side + j - 1] if j else [])]
        p = random.uniform(0.2, 0.8, (2,) * len(above))
        parents.append(above)
        tables.append(np.stack([1 - p, p], axis=-1))
    for _ in range(3):
        last = int(random.integers(side * side))
        for _ in range(int(random.integers(2, 20))):
            parents.append([last])
            last = len(tables)
            tables.append(copy(2, epsilon))
    return Case("wide", built(parents, tables), {})


KINDS: tuple[Callable[[Random, float], Case], ...] = (
    *(chain, copies, xor, noisy_or, majority, panel, functions),
)


def grid(random: Random, epsilon: float, side: int, first: float = 1e-4) -> Case:
    """Return a grid of nodes that are 1 where those above and to the left are.

    Where these differ, a node is 0, up to epsilon. Evidence on three makes a rare 1 of the first
    as probable as not.
    """
    parents: list[list[int]] = []
    tables: list[Floats] = []
    for i, j in itertools.product(range(side), range(side)):
        above = [*([(i - 1) * side + j] if i else []), *([i * side + j - 1] if j else [])]
        p = np.array(first)
        if above:
            share = np.indices((2,) * len(above)).mean(axis=0)
            p = np.where(share == 1, 1 - epsilon, epsilon)
        parents.append(above)
        tables.append(np.stack([1 - p, p], axis=-1))
    evidence: Evidence = {}
    rare = 1 / (1 + first ** (-1 / 3))
    for v in random.choice(np.arange(side * side // 2, side * side), 3, replace=False).tolist():
        evidence[f"x{len(tables)}"] = 1
        parents.append([v])
        tables.append(np.array([[1 - rare, rare], [rare, 1 - rare]]))
    return Case("grid", built(parents, tables), evidence)


def hard(n: int, seed: int = 13) -> Iterator[Case]:
    """Yield networks whose nodes probabilities near 0 tie together, or that have several modes."""
    for kind, k in zip(itertools.cycle(KINDS), range(n), strict=False):
        random = np.random.default_rng([seed, k])
        yield kind(random, 10.0 ** -random.uniform(2, 12))


def ordinary(random: Random, nodes: int, most: int = 4) -> Case:
    """Return a network of random tables, up to 3 parents a node, and evidence drawn from it."""
    sizes = random.integers(2, most + 1, nodes).tolist()
    parents = [
        sorted(random.choice(v, random.integers(0, min(v, 3) + 1), replace=False).tolist())
        for v in range(nodes)
    ]
    tables = [
        random.dirichlet(np.ones(sizes[v]), [sizes[p] for p in above])
        for v, above in enumerate(parents)
    ]
    network = built(parents, tables)
    row = forward(network, random)
    some = random.choice(nodes, int(random.integers(0, min(nodes, 5))), replace=False).tolist()
    return Case("ordinary", network, {f"x{v}": row[f"x{v}"] for v in some})


def plain(n: int, seed: int = 17) -> Iterator[Case]:
    """Yield networks of 2 to 40 nodes with random tables."""
    for k in range(n):
        random = np.random.default_rng([seed, k])
        yield ordinary(random, int(random.integers(2, 41)))


class Score(NamedTuple):
    """Of one query: whether 3 standard errors hold the exact answer, whether it was warned of."""

    kind: str
    covered: bool
    warned: bool
    error: float

    @property
    def honest(self) -> bool:
        """Whether nothing false was certified."""
        return self.covered or self.warned


def scores(case: Case, seed: int = 0, **options: Any) -> Iterator[Score]:
    """Ask for the posteriors of some nodes, one by one, and compare each with the exact one."""
    network = case.network
    free = [node for node in network.nodes if node not in case.evidence]
    step = max(1, len(free) // ASKED)
    for node in free[::step][:ASKED]:
        exact = network.query(node, case.evidence).probabilities
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", FastBayesWarning)
            found = network.query(node, case.evidence, seed=seed, **options)
        off = np.abs(found.probabilities - exact)
        yield Score(
            case.kind,
            bool((off <= 3 * found.mcse + 1e-12).all()),
            any(issubclass(one.category, FastBayesWarning) for one in said),
            float(off.max()),
        )


def tabulated(found: Sequence[Score]) -> str:
    """Return a table of words: a line for each kind of network."""
    lines = [
        f"{'networks':10} {'queries':>8} {'covered':>8} {'warned':>7} {'neither':>8} {'worst':>9}"
    ]
    for kind in [*dict.fromkeys(score.kind for score in found), "all"]:
        some = [score for score in found if kind in ("all", score.kind)]
        neither = [score.error for score in some if not score.honest]
        lines.append(
            f"{kind:10} {len(some):8} {sum(s.covered for s in some):8} "
            f"{sum(s.warned for s in some):7} {len(neither):8} {max(neither, default=0):9.2g}"
        )
    return "\n".join(lines)
