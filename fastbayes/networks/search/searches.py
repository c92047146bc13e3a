"""Searches of a graph: hill climbing, along an order, the best tree, the best graph of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.threads import in_order
from fastbayes.kernels import dispatch
from fastbayes.networks.graph.coded import Floats
from fastbayes.networks.graph.spanning import maximum_spanning_forest
from fastbayes.networks.search.score import FamilyScores, members

Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

# Moves that gain less than this share of the score are rounding, and gains that differ by less
# are equal.
TIE = 1e-12
# Moves without a better graph after which a tabu search ends, and moves for which an edge that
# was touched is left as it is.
PATIENCE, TENURE = 20, 8


@dataclass(frozen=True)
class Limits:
    """What a graph may be.

    required     (n,) parents that each node must have, sets of bits
    forbidden    (n,) parents that it must not have
    max_parents  most parents of a node
    """

    required: list[int]
    forbidden: list[int]
    max_parents: int


class Move(NamedTuple):
    """A change of a graph: an edge from `u` to `v`, and what the score gains."""

    kind: str
    u: int
    v: int
    gain: float


# Told of each move and the score after it; says whether to go on.
Watch = Callable[[Move, float], bool]


def _flags(parents: Sequence[int]) -> Flags:
    """Return sets of bits as a matrix: [u, v] says that u is in set v."""
    n = len(parents)
    return np.array([[mask >> u & 1 for mask in parents] for u in range(n)], np.bool_).reshape(n, n)


def _is_above(parents: Sequence[int], v: int, u: int) -> bool:
    """Return whether a way leads from v to u."""
    seen = waiting = 1 << u
    while waiting and not seen >> v & 1:
        higher = 0
        for w in members(waiting):
            higher |= parents[w]
        waiting = higher & ~seen
        seen |= waiting
    return bool(seen >> v & 1)


class Climber:
    """A graph that changes edge by edge, from `parents`, sets of bits, within the limits.

    `gain[u, v]` is what the score gains when u -> v is toggled, -inf where the parameters of an
    addition cost more than it could ever tell. A move changes one column of it,
    a reversal two, and the gain of a reversal is the sum of two entries: so a move costs the
    families of one or two nodes.
    """

    def __init__(self, scores: FamilyScores, limits: Limits, parents: list[int]) -> None:
        self.scores, self.limits = scores, limits
        n = self.n = len(parents)
        self.allowed: Flags = ~_flags(limits.forbidden)
        np.fill_diagonal(self.allowed, False)
        self.free: Flags = ~_flags(limits.required)
        self._columns: dict[tuple[int, int], Floats] = {}
        self.gain: Floats = np.zeros((n, n))
        # What the best edge into each node gains, and where that is to be worked out again.
        self._most: Floats = np.full(n, -np.inf)
        self.stale: Flags = np.ones(n, np.bool_)
        self.set(parents)

    def set(self, parents: list[int]) -> None:
        """Go to a graph."""
        before = getattr(self, "parents", [-1] * self.n)
        self.parents = list(parents)
        self.edge: Flags = _flags(parents)
        self._update([v for v in range(self.n) if self.parents[v] != before[v]])
        self.score = self.scores.total(self.parents)
        self._order()
        self.stale[:] = True

    def _update(self, nodes: list[int]) -> None:
        """Work out the gains of the nodes whose parents changed, with one count for all."""
        asked: list[tuple[int, int, NDArray[np.int64]]] = []
        self.scores.need([s for v in nodes for s in (self.parents[v], self.parents[v] | 1 << v)])
        for v in nodes:
            above = self.parents[v]
            if (v, above) in self._columns:
                continue
            others = np.flatnonzero(self.edge[:, v] & self.free[:, v])
            if above.bit_count() < self.limits.max_parents:
                add = np.flatnonzero(self.allowed[:, v] & ~self.edge[:, v])
                others = np.append(others, add[~self.scores.hopeless(v, above, add)])
            asked.append((v, above, others))
        for (v, above, others), found in zip(asked, self.scores.toggled(asked), strict=True):
            column = np.full(self.n, -np.inf)
            column[others] = found
            self._columns[v, above] = column - self.scores.value(v, above)
        for v in nodes:
            self.gain[:, v] = self._columns[v, self.parents[v]]
        self.stale[nodes] = True

    def _order(self) -> None:
        """Work out who is above whom: above[v, u] says that u is an ancestor of v."""
        self.above: Flags = np.zeros((self.n, self.n), np.bool_)
        waiting = [mask.bit_count() for mask in self.parents]
        ready = [v for v, count in enumerate(waiting) if not count]
        for v in ready:
            above = members(self.parents[v])
            if above:
                self.above[v] = self.above[above].any(axis=0)
                self.above[v, above] = True
            for w in self.edge[v].nonzero()[0].tolist():
                waiting[w] -= 1
                if not waiting[w]:
                    ready.append(w)

    @property
    def rounding(self) -> float:
        """What gains may differ by and be equal."""
        total = self.scores.rows.total
        return TIE * max(abs(self.score), total * np.log(max(total, 2.0)), 1.0)

    def best(self, frozen: Flags | None = None, over: float = np.inf) -> Move | None:
        """Return the move that gains the most, of equals the first by kind and names.

        frozen  pairs of nodes whose edge may only change if the move gains more than `over`
        """
        add = self._most_added(frozen, over)
        # One row of flags is read many times as fast as a matrix.
        us, vs = np.divmod(np.flatnonzero(self.edge), self.n)
        drop, turn = self._changes(us, vs, frozen, over)
        most = max(add.max(initial=-np.inf), drop.max(initial=-np.inf))
        turned = []
        for i in np.argsort(-turn, kind="stable").tolist():
            if turn[i] == -np.inf or turn[i] < most - self.rounding:
                break
            # Another way from u to v than the edge closes a circle once that is reversed.
            if not self.above[members(self.parents[vs[i]]), us[i]].any():
                turned.append(i)
                most = max(most, turn[i])
        if most == -np.inf:
            return None
        least = most - self.rounding
        if (into := np.flatnonzero(add >= least)).size:
            gains = self._added(into, frozen, over)
            u, k = np.argwhere(gains >= least)[0]
            return Move("add", int(u), int(into[k]), float(gains[u, k]))
        if (equal := np.flatnonzero(drop >= least)).size:
            i = int(equal[0])
            return Move("drop", int(us[i]), int(vs[i]), float(drop[i]))
        i = min(i for i in turned if turn[i] >= least)
        return Move("reverse", int(us[i]), int(vs[i]), float(turn[i]))

    def _added(self, into: Indices, frozen: Flags | None, over: float) -> Floats:
        """Return what edges into some nodes gain, -inf where they may not be added."""
        may = self.allowed[:, into] & ~self.edge[:, into] & ~self.above[:, into]
        may &= self._room()[into]
        gains = np.where(may, self.gain[:, into], -np.inf)
        if frozen is not None:
            gains[frozen[:, into] & (gains <= over)] = -np.inf
        return gains

    def _room(self) -> Flags:
        return np.array([mask.bit_count() < self.limits.max_parents for mask in self.parents])

    def _most_added(self, frozen: Flags | None, over: float) -> Floats:
        """Return what the best edge into each node gains; few change from move to move."""
        if (stale := np.flatnonzero(self.stale)).size:
            self._most[stale] = self._added(stale, None, over).max(axis=0, initial=-np.inf)
            self.stale[:] = False
        if frozen is None or not (some := np.flatnonzero(frozen.any(axis=0))).size:
            return self._most
        most = self._most.copy()
        most[some] = self._added(some, frozen, over).max(axis=0, initial=-np.inf)
        return most

    def _changes(
        self, us: Indices, vs: Indices, frozen: Flags | None, over: float
    ) -> tuple[Floats, Floats]:
        """Return what dropping and reversing edges gains, -inf where they may not be."""
        free, here = self.free[us, vs], self.gain[us, vs]
        drop = np.where(free, here, -np.inf)
        may = free & self.allowed[vs, us] & self._room()[us]
        turn = np.where(may, here + self.gain[vs, us], -np.inf)
        if frozen is not None:
            for gains in (drop, turn):
                gains[frozen[us, vs] & (gains <= over)] = -np.inf
        return drop, turn

    def make(self, move: Move) -> None:
        """Make a move that `best` found."""
        kind, u, v, gain = move
        self.parents[v] ^= 1 << u
        self.edge[u, v] ^= True
        if kind == "reverse":
            self.parents[u] |= 1 << v
            self.edge[v, u] = True
        self._update([v, u] if kind == "reverse" else [v])
        self.score += gain
        if kind == "add":
            # u, and who is above it, are now above v and all who are below that.
            rows = self.above[:, v].copy()
            rows[v] = True
            higher = self.above[u].copy()
            higher[u] = True
            self.above[rows] |= higher
            self.stale |= higher
        else:
            before = self.above
            self._order()
            self.stale |= (before != self.above).any(axis=0)

    def climb(self, watch: Watch) -> bool:
        """Make the best move as long as one gains; return False where `watch` says to stop."""
        while (move := self.best()) is not None and move.gain > self.rounding:
            self.make(move)
            if not watch(move, self.score):
                return False
        return True

    def tabu(self, watch: Watch, patience: int = PATIENCE, tenure: int = TENURE) -> bool:
        """Make the best move even if it loses, but none that undoes one of the last.

        Ends `patience` moves after the last better graph, and goes back to that.

        References
        ----------
        Glover (1986), Future paths for integer programming and links to artificial intelligence.
        """
        best, score, since = list(self.parents), self.score, 0
        until = np.zeros((self.n, self.n), np.int64)
        for step in range(1, 1 << 62):
            move = self.best(until >= step, over=score - self.score + self.rounding)
            if move is None or since >= patience:
                break
            self.make(move)
            until[[move.u, move.v], [move.v, move.u]] = step + tenure
            since += 1
            if self.score > score + self.rounding:
                best, score, since = list(self.parents), self.score, 0
            if not watch(move, self.score):
                self.set(best)
                return False
        self.set(best)
        return True

    # -- away from a local optimum -------------------------------------------------------------

    def turned(self, random: np.random.Generator, times: int) -> list[int]:
        """Return another graph that says the same: covered edges are reversed, one by one.

        An edge u -> v is covered if v has the parents of u, and u. Every equivalent graph is
        reached so (Chickering 1995), and from each other additions are in sight (Castelo, Kočka
        2003).
        """
        parents, children = list(self.parents), [0] * self.n
        for v, mask in enumerate(parents):
            for u in members(mask):
                children[u] |= 1 << v
        edges = ((v, u) for v, mask in enumerate(parents) for u in members(mask))
        covered = [edge for edge in edges if self._is_covered(parents, *edge)]
        for _ in range(times):
            if not covered:
                break
            v, u = covered[int(random.integers(len(covered)))]
            parents[v] ^= 1 << u
            parents[u] |= 1 << v
            children[u] ^= 1 << v
            children[v] |= 1 << u
            # Edges of these two may be covered now, or no more; others are as they were.
            near = {(w, x) for w in (u, v) for x in members(parents[w])}
            near |= {(x, w) for w in (u, v) for x in members(children[w])}
            covered = [edge for edge in covered if u not in edge and v not in edge]
            covered += [edge for edge in near if self._is_covered(parents, *edge)]
            covered.sort()
        return parents

    def _is_covered(self, parents: Sequence[int], v: int, u: int) -> bool:
        return bool((parents[v] == parents[u] | 1 << u) and self.free[u, v] and self.allowed[v, u])

    def shaken(self, random: np.random.Generator) -> list[int]:
        """Return a graph that lacks an eighth to a half of the edges, in an equivalent one.

        Few edges more and the climb comes back to where it was; many more and it starts anew.
        """
        parents = self.turned(random, self.n)
        edges = [(u, v) for v in range(self.n) for u in members(parents[v]) if self.free[u, v]]
        times = int(random.integers(len(edges) // 8, len(edges) // 2 + 1)) + (len(edges) < 8)
        for k in random.permutation(len(edges))[:times].tolist():
            u, v = edges[k]
            parents[v] ^= 1 << u
        return parents

    def joined(self, random: np.random.Generator) -> list[int]:
        """Return a graph with one to four edges more, as far as there are some that may be added.

        So parents are found that tell something only together, as a and b do where c is a xor b.
        """
        parents = list(self.parents)
        may = np.flatnonzero(self._added(np.arange(self.n), None, np.inf) > -np.inf)
        most = int(random.integers(1, 5))
        for k in random.permutation(may).tolist():
            u, v = divmod(k, self.n)
            if parents[v].bit_count() < self.limits.max_parents and not _is_above(parents, v, u):
                parents[v] |= 1 << u
                most -= 1
                if not most:
                    break
        return parents

    def restart(
        self, random: np.random.Generator, restarts: int, again: Callable[[], bool]
    ) -> None:
        """Climb from graphs near the best one, and end at the best of all.

        Every other one has edges more, the rest have edges less, where there is one to take away. A
        climb that comes to families whose counts do not fit in memory is given up.

        again  climbs or searches from where the climber is; says whether to go on
        """
        best, score = list(self.parents), self.score
        adding = random.spawn(1)[0]
        for k in range(restarts):
            adds = k % 2 == 1 or not (self.edge & self.free).any()
            try:
                self.set(self.joined(adding) if adds else self.shaken(random))
                going = again()
            except MemoryLimitError:
                self.parents = [-1] * self.n  # of which gains may be there or not
                self.set(best)
                continue
            # An equal graph is new ground to take edges from; what was added has to gain.
            if self.score - score > (self.rounding if adds else -self.rounding):
                best, score = list(self.parents), self.score
            self.set(best)
            if not going:
                break


def along_order(
    scores: FamilyScores, limits: Limits, order: Sequence[int], watch: Watch
) -> list[int]:
    """Return the parents of each node among those before it, sets of bits.

    Each node begins with the parents that it must have, and takes the one that gains the most as
    long as one gains; then it gives up those that the others have made superfluous. With MDL this
    is a minimal set of parents that the data justify.

    References
    ----------
    Cooper, Herskovits (1992), A Bayesian method for the induction of probabilistic networks from
    data, Machine Learning 9, section 3.1.
    """
    parents = list(limits.required)
    score = scores.total(parents)
    before: list[int] = []
    for v in order:
        best = scores.value(v, parents[v])
        for kind, barred in (("add", limits.forbidden[v]), ("drop", limits.required[v])):
            while kind == "drop" or parents[v].bit_count() < limits.max_parents:
                above = parents[v] if kind == "add" else ~parents[v]
                others = [u for u in sorted(before) if not (above | barred) >> u & 1]
                found = scores.toggled([(v, parents[v], others)])[0].tolist() if others else []
                near = TIE * max(abs(score), 1.0)
                if not found or (most := max(found)) <= best + near:
                    break
                u = next(u for u, value in zip(others, found, strict=True) if value >= most - near)
                parents[v] ^= 1 << u
                score += most - best
                move = Move(kind, u, v, most - best)
                best = most
                if not watch(move, score):
                    return parents
        before.append(v)
    return parents


def tree(scores: FamilyScores, names: Sequence[str], root: int) -> list[int]:
    """Return the parents of each node in the tree of the highest likelihood, sets of bits.

    Edges that tell equally much, to 1e-12 of that, are ordered by names.

    References
    ----------
    Chow, Liu (1968), Approximating discrete probability distributions with dependence trees.
    """
    none = np.zeros(len(names))
    found = maximum_spanning_forest(
        information(scores), names, relevance=none, root=names[root], above=-np.inf
    )
    return [0 if parent < 0 else 1 << parent for parent in found.tolist()]


def information(scores: FamilyScores) -> Floats:
    """Return the information of every two nodes about each other, (n, n) nats."""
    n = len(scores.sizes)
    out = np.zeros((n, n))
    for v in range(1, n):
        others = np.arange(v)
        tables = scores.counts((v,), others.tolist())
        flat = np.concatenate([table.reshape(-1) for table in tables])
        ends = np.cumsum([table.size for table in tables])
        sizes = np.array(scores.sizes, np.int64)
        found = np.zeros(v)
        dispatch.load("fitting.information", float(flat.size)).pair_information(
            *(flat, np.full(v, v), others, ends - [table.size for table in tables]),
            *(sizes, sizes, 1, found),
        )
        out[v, :v] = out[:v, v] = found
    return out


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
    counts = np.bitwise_count(np.arange(1 << n)).astype(np.int8)
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
        parents[v] = _with_bit(_argmax(choose(v), int(_without(left, v))), v)
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
    write = dispatch.load("fitting.subsets", float(codes.shape[1]) * (1 << n)).write_subset_sums

    def one(prefix: int) -> None:
        ess = float(scores.rule.ess)
        write(codes, rows.sizes, weight, prefix, first, most, largest, offsets, ess, out)

    for _ in in_order(one, range(1 << first), scores.threads):
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


def _argmax(families: Floats, among: int) -> int:
    """Return the best set of parents among some nodes, of equals the smallest."""
    sets = np.flatnonzero(np.arange(len(families)) & ~among == 0)
    found = families[sets]
    equal = sets[found >= found.max() - TIE * max(abs(float(found.max())), 1.0)]
    return min(equal.tolist(), key=lambda s: (s.bit_count(), s))
