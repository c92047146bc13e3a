"""The best graph of all, by dynamic programming over sets of nodes."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.kernels import dispatch
from fastbayes.networks.graph.coded import Floats
from fastbayes.networks.search.search_climb import TIE, Limits
from fastbayes.networks.search.search_scores import FamilyScores
from fastbayes.scan import engine

# The sets of nodes are shared among workers by which of the first nodes they hold.
PREFIX = 4


def best_graph(scores: FamilyScores, limits: Limits) -> list[int]:
    """Return the parents of each node in the graph of the best score within limits, sets of bits.

    n 2^(n - 1) families are scored, from sums over the tables of the 2^n sets of nodes; with
    `max_parents` only small sets are counted, and for "mdl" and "aic" only those that could be
    worth their parameters. Of each set of nodes a last one is found, whose parents are the best
    among the others: memory is 4 n 2^n bytes, time grows as n 2^n and as 2^n times the different
    rows. Raises MemoryLimitError when there are too many nodes; the message gives the figure.

    References
    ----------
    Silander, Myllymäki (2006), A simple approach for finding the globally optimal Bayesian network
    structure, UAI.
    """
    n = len(scores.sizes)
    need, limit = (1 << n) * (4 * n + 8 * (len(scores.kinds) + 5)), scores.rows.reading.limit
    if need > limit:
        raise MemoryLimitError(
            f"the exact search over {n} nodes needs {need:,} bytes, over the {limit:,} that it "
            "may take: use fewer columns, search='tabu', or raise memory_limit"
        )
    dear = _too_dear(scores, limits)
    largest = max(q * r for q, r in zip(dear, scores.sizes, strict=True))
    sums, cells = _sums(scores, min(limits.max_parents + 1, n), largest), np.ones(1)
    for size in scores.sizes:
        cells = np.concatenate((cells, cells * size))
    counts = _bits(n)
    choose = partial(_families, scores, limits, dear, sums, cells, counts)
    best = np.empty((n, 1 << n - 1))
    for v in range(n):
        best[v] = choose(v)
        for b in range(n - 1):
            halves = best[v].reshape(-1, 2, 1 << b)
            np.maximum(halves[:, 1], halves[:, 0], out=halves[:, 1])
    total, last = np.full(1 << n, -np.inf), np.zeros(1 << n, np.int8)
    total[0] = 0.0
    layers = np.split(np.argsort(counts, kind="stable"), np.cumsum(np.bincount(counts))[:-1])
    for layer in layers[1:]:
        for v in range(n):
            sets = layer[layer >> v & 1 == 1]
            before = sets ^ 1 << v
            found = total[before] + best[v][_without(before, v)]
            better = found > total[sets]
            total[sets[better]] = found[better]
            last[sets[better]] = v
    left, parents = (1 << n) - 1, [0] * n
    while left:
        v = int(last[left])
        left ^= 1 << v
        parents[v] = _with_bit(_argmax(choose(v), int(_without(left, v)), scores), v)
    return parents


def _too_dear(scores: FamilyScores, limits: Limits) -> list[float]:
    """Return the most joint values that the parents of each node may have to be worth their price.

    The required parents alone are a choice that is always open, and more can gain no more than
    all that these leave untold.
    """
    if not scores.rule.penalised or scores.price <= 0:
        return [np.inf] * len(scores.sizes)
    result = []
    for v, (above, r) in enumerate(zip(limits.required, scores.sizes, strict=True)):
        untold = -scores.value(v, above)  # with the price of the required parents
        price = scores.price * (r - 1)
        result.append(untold / price * (1 + 1e-9) if price else scores.joint(above))
    return result


def _sums(scores: FamilyScores, most: int, largest: float) -> Floats:
    """Return the sums of sets of at most so many nodes and joint values, (n_sums, 2^n)."""
    n, rows = len(scores.sizes), scores.rows
    if rows.columns is None:
        sets = [
            sum(1 << v for v in s) for k in range(1, most + 1) for s in combinations(range(n), k)
        ]
        sets = [s for s in sets if scores.joint(s) <= largest]
        scores.need(sets)
        out = np.zeros((len(scores._sums[0]), 1 << n))
        for s in (0, *sets):
            out[:, s] = scores._sums[s]
        return out
    codes = np.array(rows.columns, np.result_type(*rows.columns))
    weight = np.ones(codes.shape[1]) if rows.weight is None else rows.weight
    offsets = scores.rule.offsets(np.ones(1), scores.kinds)[0]
    if scores.rule.name == "bdeu":
        offsets = np.zeros(1)
    out = np.zeros((len(offsets), 1 << n))
    first = min(PREFIX, n)
    write = dispatch.load("subsets", float(codes.shape[1]) * (1 << n)).write_subset_sums

    def one(prefix: int) -> None:
        ess = float(scores.rule.ess)
        write(codes, rows.sizes, weight, prefix, first, most, largest, offsets, ess, out)

    for _ in engine.in_order(one, range(1 << first), scores.threads):
        pass
    return out


def _families(
    scores: FamilyScores,
    limits: Limits,
    dear: list[float],
    sums: Floats,
    cells: Floats,
    counts: NDArray[Any],
    v: int,
) -> Floats:
    """Return the scores of a node below every set of others, -inf where it may not be."""
    without = _halves(sums, v)
    kind = 1 + scores.kinds.index(scores.sizes[v]) if scores.rule.name == "k2" else 0
    result = np.array(without[0, :, 1] - without[kind, :, 0]).reshape(-1)
    values = _halves(cells[None], v)[0, :, 0].reshape(-1)
    if scores.rule.penalised:
        result -= scores.price * (scores.sizes[v] - 1) * values
    n = len(scores.sizes)
    members = _halves(np.arange(1 << n)[None], v)[0, :, 0].reshape(-1)
    bad = (counts[members] > limits.max_parents) | (values > dear[v])
    bad |= members & limits.forbidden[v] != 0
    bad |= members & limits.required[v] != limits.required[v]
    result[bad] = -np.inf
    return result


def _halves(array: NDArray[Any], v: int) -> NDArray[Any]:
    """Return (k, high, 2, low): sets without node v and with it."""
    return array.reshape(len(array), -1, 2, 1 << v)


def _without(sets: Any, v: int) -> Any:
    """Return sets that lack node v as numbers of sets of the other nodes."""
    return sets >> v + 1 << v | sets & (1 << v) - 1


def _with_bit(number: int, v: int) -> int:
    return number >> v << v + 1 | number & (1 << v) - 1


def _argmax(families: Floats, among: int, scores: FamilyScores) -> int:
    """Return the best set of parents among some nodes, of equals the smallest."""
    sets = np.flatnonzero(np.arange(len(families)) & ~among == 0)
    found = families[sets]
    equal = sets[found >= found.max() - TIE * max(abs(float(found.max())), 1.0)]
    return min(equal.tolist(), key=lambda s: (s.bit_count(), s))


def _bits(n: int) -> NDArray[np.int8]:
    """Return how many nodes each set holds."""
    counts = np.zeros(1, np.int8)
    for _ in range(n):
        counts = np.concatenate((counts, counts + np.int8(1)))
    return counts
