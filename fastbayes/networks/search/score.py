"""Scores of graphs: sums over their families, each from how often values occur together.

Every score here is a difference of two sums, one over the joint values of a node and its parents,
one over those of the parents. Either depends on a set of nodes alone, whichever of them is the
child: n(a, b) serves `a` below `b` and `b` below `a`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import code_type
from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.core.numbers import is_number
from fastbayes.core.suggestions import did_you_mean, use_one_of
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.kernels import dispatch
from fastbayes.networks.graph.coded import Floats, Ints
from fastbayes.networks.search.node_rows import CompleteRows, Read
from fastbayes.scan.deduplicate import Columns

SCORES = ("mdl", "aic", "bdeu", "k2", "loglik")


@dataclass(frozen=True)
class ScoreRule:
    """How a graph is scored; `ess` is the equivalent sample size of BDeu, in weight units.

    With N = Σ weights, r the values of a node, q the joint values of its parents (observed or
    not), |B| = Σ q (r - 1) the free parameters and LL the log-likelihood at the
    maximum-likelihood parameters, in nats:

    ======  ==================================================================  ================
    mdl     ½ ln N · |B| - LL, the description length, which is -BIC; N >= 1    lower is better
    aic     |B| - LL                                                            lower is better
    loglik  LL                                                                  higher is better
    bdeu    ln P(D | B), Dirichlet priors of ess / (q r) in every cell          higher is better
    k2      ln P(D | B), Dirichlet priors of 1 in every cell                    higher is better
    ======  ==================================================================  ================

    Inside a search every score is turned so that higher is better (`sign` turns it back).

    Raises ValueError when there is no such score, or `ess` is not a positive number.

    References
    ----------
    Schwarz (1978); Rissanen (1978); Akaike (1974); Cooper, Herskovits (1992), equation 8;
    Heckerman, Geiger, Chickering (1995), equation 28; Buntine (1991).
    """

    name: str = "mdl"
    ess: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in SCORES:
            raise ValueError(f"score={self.name!r}: {use_one_of(self.name, SCORES)}")
        if not (is_number(self.ess) and 0 < self.ess < math.inf):
            raise ValueError(f"ess={self.ess!r}: use a positive number")

    @property
    def sign(self) -> float:
        """-1 where lower is better, else 1."""
        return -1.0 if self.name in ("mdl", "aic") else 1.0

    @property
    def penalised(self) -> bool:
        """Whether a family pays for its free parameters."""
        return self.name in ("mdl", "aic")

    def per_parameter(self, total: float) -> float:
        """Return what a free parameter costs among rows of this total weight, in nats.

        Less than one row is as one: no parameter pays for being there.
        """
        return {"mdl": 0.5 * math.log(max(total, 1.0)), "aic": 1.0}.get(self.name, 0.0)

    def offsets(self, cells: Floats, kinds: Sequence[int]) -> Floats:
        """Return what to ask of `add_set_sums` about tables of so many cells, (n_tables, n_sums).

        One sum, for "k2" one for a node with its parents and one for parents of nodes of each of
        the `kinds`, the different numbers of values that nodes have. Cells that never occur count.
        """
        if self.name == "bdeu":
            return (self.ess / cells)[:, None]
        if self.name == "k2":
            return np.tile([1.0, *map(float, kinds)], (len(cells), 1))
        return np.full((len(cells), 1), -1.0)


def family_score(
    counts: NDArray[Any],
    rule: ScoreRule,
    total: float | None = None,
    configurations: int | None = None,
) -> float:
    """Return the score of one family from its counts n(parents, node), higher is better, in nats.

    `total` is N of the penalty, the sum of the counts by default; `configurations` those of the
    parents, where `counts` leaves out some that never occur.

    Examples
    --------
    >>> counts = np.array([[2, 0], [1, 1]])  # two values of the parent, two of the node
    >>> round(family_score(counts, ScoreRule("loglik")), 6)  # 2 ln ½
    -1.386294
    >>> round(family_score(counts, ScoreRule("k2")), 6)  # ln (2! 0! / 3!) (1! 1! / 3!)
    -2.890372
    """
    counts = np.asarray(counts)
    r = counts.shape[-1]
    table = counts.reshape(-1, r)
    q = len(table) if configurations is None else configurations
    pair = [_sums(table, rule, q * r, r), _sums(table.sum(axis=1), rule, q, r)]
    result = pair[0][0] - pair[1][1 if rule.name == "k2" else 0]
    if rule.penalised:
        total = float(table.sum()) if total is None else total
        result -= rule.per_parameter(total) * q * (r - 1)
    return float(result)


def _sums(table: NDArray[Any], rule: ScoreRule, cells: int, r: int) -> Floats:
    offsets = rule.offsets(np.array([float(cells)]), [r])
    out = np.zeros_like(offsets)
    flat = np.ascontiguousarray(table).reshape(-1)
    dispatch.numpy_twin("fitting.subsets").add_set_sums(
        flat, np.array([0, flat.size]), offsets, out
    )
    return out[0]


def masks_of(parents: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[int]:
    """Return the parents of each node as a set of bits, bit j for node j of `names`.

    Raises SchemaError when a name is not among the nodes, or a node is its own parent.
    """
    where = {name: j for j, name in enumerate(names)}
    masks = [0] * len(names)
    for node, above in parents.items():
        for name in (node, *above):
            if name not in where:
                raise SchemaError(
                    f"{name!r} is not among the nodes {list(names)}{did_you_mean(name, names)}"
                )
        if node in above:
            raise SchemaError(f"node {node!r} is its own parent")
        for name in above:
            masks[where[node]] |= 1 << where[name]
    return masks


def members(mask: int) -> list[int]:
    """Return the bits that are set, lowest first."""
    result = []
    while mask:
        low = mask & -mask
        result.append(low.bit_length() - 1)
        mask ^= low
    return result


# Rows counted by one call: tables are added up after as many, in this order, whatever the threads.
PART = 1 << 16
# Joint values of a table's first nodes that may be numbered as they are; of more only those that
# occur get numbers.
DENSE = 1 << 16
# Cells of a table for each row from which on rows are sorted to find those that occur.
SPARSE = 64


class FamilyScores:
    """The scores of all families of a table, each counted at most once.

    What is kept is a sum for each set of nodes, not for each family: a node with k parents is
    scored by the sums of k + 1 nodes and of k, and all k + 1 nodes share the first. A step of a
    search asks for all families that differ in one parent: their tables n(family, other) share
    the joint code of the family, and are counted as pairs of columns are, by bit rows where the
    columns have few values and joint codes where not. The sums of one base with each other node
    stand in one array: of a thousand nodes there are millions of sets.
    """

    def __init__(self, rows: CompleteRows, rule: ScoreRule) -> None:
        self.rows, self.rule = rows, rule
        self.threads = resolved_threads(rows.reading.threads)
        self.sizes = rows.sizes.tolist()
        self.kinds = sorted({*self.sizes})
        self.price = rule.per_parameter(rows.total)
        self.scans = self.tables = 0
        n_sums = rule.offsets(np.ones(1), self.kinds).shape[1]
        self._sums: dict[int, list[float]] = {}
        empty = np.zeros((1, n_sums))
        self._sum(np.array([rows.total]), np.array([0, 1]), np.ones(1), empty)
        self._sums[0] = empty[0].tolist()
        # Sums of a set and each other node, (n_sums, n_nodes), NaN where not counted; and the
        # nodes that go with a set to make one of these.
        self._beside: dict[int, Floats] = {}
        self._beyond: dict[int, list[int]] = {}
        self._states = np.array(self.sizes, np.float64)
        self._compact: dict[tuple[int, ...], tuple[NDArray[Any], int]] = {}
        # A search looks at every pair of columns and more: that is the size of the job.
        self.cells = rows.cells * len(self.sizes)

    # -- scores --------------------------------------------------------------------------------

    def value(self, node: int, parents: int) -> float:
        """Return the score of a family, higher is better; parents are a set of bits."""
        return self.values([(node, parents)])[0]

    def values(self, families: Iterable[tuple[int, int]]) -> list[float]:
        """Return the scores of families (node, parents), counted together."""
        asked = list(families)
        self.need([s for v, above in asked for s in (above | 1 << v, above)])
        return [self._value(v, above) for v, above in asked]

    def total(self, parents: Sequence[int]) -> float:
        """Return the score of a graph, higher is better."""
        return float(np.sum(self.values(enumerate(parents))))

    def toggled(self, asked: Sequence[tuple[int, int, Sequence[int] | Ints]]) -> list[Floats]:
        """Return the scores of families with other nodes added, or taken away if they are there.

        Each is asked as its node, its parents, and the other nodes; all are counted together.
        """
        sets: list[int] = []
        beside: dict[int, list[Ints]] = {}
        parts: list[tuple[NDArray[np.bool_], Ints]] = []
        for node, parents, others in asked:
            here = 1 << node
            us = np.asarray(others, np.int64)
            there = np.isin(us, members(parents))
            for u in us[there].tolist():
                sets += (parents ^ 1 << u, parents ^ 1 << u | here)
            for base in (parents | here, parents):
                beside.setdefault(base, []).append(us[~there])
            parts.append((there, us))
        self.need(sets, {base: np.concatenate(some) for base, some in beside.items()})
        return [self._toggled(v, above, *part) for (v, above, _), part in
                zip(asked, parts, strict=True)]  # fmt: skip

    def _toggled(self, node: int, parents: int, there: NDArray[np.bool_], us: Ints) -> Floats:
        below, here, sums = self._below(node), 1 << node, self._sums
        price, q = self.price * (self.sizes[node] - 1), self.joint(parents)
        result, added = np.empty(len(us)), us[~there]
        result[~there] = (
            self._beside[parents | here][0, added] - self._beside[parents][below, added]
        )
        result[there] = [
            sums[parents ^ 1 << u | here][0] - sums[parents ^ 1 << u][below]
            for u in us[there].tolist()
        ]
        if price:
            result -= price * np.where(there, q / self._states[us], q * self._states[us])
        return result

    def hopeless(self, node: int, parents: int, others: Ints) -> NDArray[np.bool_]:
        """Return which of some nodes cannot gain as further parents, whatever the counts.

        They can tell no more than the family leaves untold, and no more than there is to tell of
        them; against that stands what their parameters cost.
        """
        us = np.asarray(others, np.int64)
        if not self.rule.penalised:
            return np.zeros(len(us), np.bool_)
        family = parents | 1 << node
        self.need([family, parents], {0: us})
        price, sums = self.price * self.parameters(node, parents), self._sums
        untold, all_ = sums[parents][0] - sums[family][0], sums[0][0]
        most = np.minimum(untold, all_ - self._beside[0][0, us])
        return np.asarray(most <= price * (self._states[us] - 1))

    def _below(self, node: int) -> int:
        return 1 + self.kinds.index(self.sizes[node]) if self.rule.name == "k2" else 0

    def _value(self, node: int, parents: int) -> float:
        result = self._sums[parents | 1 << node][0] - self._sums[parents][self._below(node)]
        if self.rule.penalised:
            result -= self.price * self.parameters(node, parents)
        return result

    def parameters(self, node: int, parents: int) -> float:
        """Return the free parameters of a family, those of joint values not observed included."""
        return self.joint(parents) * (self.sizes[node] - 1)

    def joint(self, nodes: int) -> float:
        """Return the number of joint values of a set of nodes."""
        return math.prod(float(self.sizes[v]) for v in members(nodes))

    def _cells(self, base: Iterable[int]) -> int:
        return math.prod(self.sizes[v] for v in base)

    # -- sums ----------------------------------------------------------------------------------

    def need(self, sets: Iterable[int], beside: Mapping[int, Ints] | None = None) -> None:
        """See to it that the sums of sets of nodes, sets of bits, are in `_sums`.

        `beside` holds other nodes for sets of bits: the sums of the set and each of these are in
        `_beside` then.
        """
        wanted = {base: self._unknown(base, us) for base, us in (beside or {}).items()}
        # A set that two bases make is counted with the first.
        wanted = {base: us for base, us in wanted.items() if us}
        again = []
        for base, us in wanted.items():
            for v in members(base):
                for u in self._beyond[base ^ 1 << v]:
                    other = base ^ 1 << v ^ 1 << u
                    if u in us and other != base and v in wanted.get(other, ()):
                        del us[u]
                        again.append((base, u, other, v))
        missing = {s for s in sets if s not in self._sums and not self._found(s)}
        for s in sorted(missing):
            if not any(u in wanted.get(s ^ 1 << u, ()) for u in members(s)):
                last = s.bit_length() - 1
                wanted.setdefault(s ^ 1 << last, {})[last] = None
        requests = []
        for mask, some in wanted.items():
            if not some:
                continue
            nodes, others = tuple(members(mask)), np.array([*some], np.int64)
            sparse = self._are_sparse(nodes, others)
            if sparse.any():
                self._count_sparse(nodes, others[sparse].tolist())
            if not sparse.all():
                requests.append(Request(nodes, tuple(others[~sparse].tolist())))
        for run in self._runs(requests):
            self._count(run)
        for base, u, other, v in reversed(again):
            self._beside[base][:, u] = self._beside[other][:, v]
        for s in missing.difference(self._sums):
            self._found(s)

    def _unknown(self, base: int, us: Ints) -> dict[int, None]:
        """Return the nodes whose sums with a base are not known; others are looked up."""
        if base not in self._beside:
            self._beside[base] = np.full((len(self._sums[0]), len(self.sizes)), np.nan)
            for v in members(base):
                self._beyond.setdefault(base ^ 1 << v, []).append(v)
        sums = self._beside[base]
        missing = np.isnan(sums[0]).tolist()
        for v in members(base):
            core = base ^ 1 << v
            # The base and u are the core and u, and v.
            for u in self._beyond[core]:
                if missing[u] and not base >> u & 1:
                    sums[:, u] = self._beside[core | 1 << u][:, v]
        unknown: dict[int, None] = {}
        for u in us[np.isnan(sums[0, us])].tolist():
            if (known := self._sums.get(base | 1 << u)) is None:
                unknown[u] = None
            else:
                sums[:, u] = known
        return unknown

    def _found(self, nodes: int) -> bool:
        """Return whether the sums of a set are known from those of a base; take them over."""
        for u in members(nodes):
            sums = self._beside.get(nodes ^ 1 << u)
            if sums is not None and not np.isnan(sums[0, u]):
                self._sums[nodes] = sums[:, u].tolist()
                return True
        return False

    def _keep(self, base: tuple[int, ...], us: Sequence[int], sums: Floats) -> None:
        mask = sum(1 << v for v in base)
        if mask in self._beside:
            self._beside[mask][:, list(us)] = sums.T
        else:
            self._sums.update(zip((mask | 1 << u for u in us), sums.tolist(), strict=True))

    @property
    def room(self) -> int:
        """How many cells a set of tables may have.

        Every worker has a set, some wait to be added up, and one is the sum.
        """
        return max(self.rows.reading.limit // 2 // (8 * (self.threads + 3)), 1)

    def _runs(self, requests: list[Request]) -> Iterable[list[Request]]:
        """Yield requests whose tables fit in memory together, on fewer threads if need be."""
        run: list[Request] = []
        cells, alone = 0, False
        for base, others in requests:
            width = self._width(base)
            # Numbers of joint values take as much memory as rows: those of one base at a time.
            wide = self._is_wide(base)
            if run and (wide or alone):
                yield run
                run, cells = [], 0
            alone = wide
            each = [width * self.sizes[u] for u in others]
            while (its := max(each)) > self.room and self.threads > 1:
                self.threads //= 2
            if its > self.room:
                names = [self.rows.names[v] for v in (*base, others[each.index(its)])]
                raise MemoryLimitError(
                    f"the counts of {names} together need {8 * its:,} bytes in each of "
                    f"{self.threads + 3} sets, over half of the memory limit: set max_parents, "
                    "group values, or raise memory_limit"
                )
            begin = 0
            for at, its in enumerate(each):
                if cells + its > self.room and (run or at > begin):
                    yield [*run, Request(base, others[begin:at])] if at > begin else run
                    run, cells, begin = [], 0, at
                cells += its
            run.append(Request(base, others[begin:]))
        if run:
            yield run

    def _is_wide(self, base: tuple[int, ...]) -> bool:
        """Return whether only those joint values that occur have a number."""
        return self._cells(base) > DENSE and self.rows.columns is not None

    def _are_sparse(self, base: tuple[int, ...], us: Ints) -> NDArray[np.bool_]:
        """Return which tables have so many cells that those that occur are better sought."""
        columns = self.rows.columns
        if columns is None:
            return np.zeros(len(us), np.bool_)
        cells = self._width(base) * self._states[us]
        return np.asarray(cells > max(SPARSE * len(columns[0]), DENSE))

    def _count_sparse(self, base: tuple[int, ...], others: Sequence[int]) -> None:
        """Take the sums of tables by the joint values that occur."""
        for u in others:
            numbers, width = self._numbered((*base, u))
            counts = np.bincount(numbers, weights=self.rows.weight, minlength=width)
            out = np.zeros((1, len(self._sums[0])))
            nodes = sum(1 << v for v in (*base, u))
            self._sum(counts, np.array([0, width]), np.array([self.joint(nodes)]), out)
            self._keep(base, [u], out)
            self.tables += 1

    def _width(self, base: tuple[int, ...]) -> int:
        """Return how many joint values of these nodes have a number."""
        return self._numbered(base)[1] if self._is_wide(base) else self._cells(base)

    def _numbered(self, base: tuple[int, ...]) -> tuple[NDArray[Any], int]:
        """Return numbers of the joint values that occur, for each row, and how many there are."""
        if base not in self._compact:
            columns = self.rows.columns
            assert columns is not None
            before = base[:-1]
            if self._cells(before) > 1 << 40:
                codes = self._numbered(before)[0].astype(np.int64)
            else:
                codes = np.zeros(len(columns[0]), np.int64)
                for v in before:
                    codes = codes * self.sizes[v] + columns[v]
            codes = codes * self.sizes[base[-1]] + columns[base[-1]]
            found, numbers = np.unique(codes, return_inverse=True)
            while len(self._compact) >= 4:
                del self._compact[next(iter(self._compact))]
            kind = np.uint16 if len(found) <= 1 << 16 else np.uint32
            self._compact[base] = numbers.reshape(-1).astype(kind), len(found)
        return self._compact[base]

    def counts(self, base: tuple[int, ...], others: Sequence[int]) -> list[NDArray[Any]]:
        """Return n(base, other), (values of the base, values of the other), for some others."""
        result: list[NDArray[Any]] = []
        for some in self._runs([Request(base, tuple(others))]):
            places, counts = self._counted(some)
            for begin, end, u in zip(
                places.bounds[:-1], places.bounds[1:], places.second, strict=True
            ):
                result.append(counts[begin:end].reshape(-1, self.sizes[u]))
        return result

    def _counted(self, requests: list[Request]) -> tuple[Places, NDArray[Any]]:
        """Return tables, end to end, and where each stands."""
        places = Places.of(requests, [self._width(r.base) for r in requests], self.sizes)
        counts = np.zeros(places.bounds[-1], np.float64 if self.rows.weighted else np.int64)
        for some in in_order(
            partial(self._part, requests, places), self._parts(len(counts)), self.threads
        ):
            counts += some
        self.scans += 1
        self.tables += len(places.second)
        return places, counts

    def _count(self, requests: list[Request]) -> None:
        places, counts = self._counted(requests)
        out = np.zeros((len(places.second), len(self._sums[0])))
        ends = np.cumsum([len(request.others) for request in requests])
        joint = [math.prod(self._states[v] for v in request.base) for request in requests]
        cells = np.repeat(joint, np.diff(ends, prepend=0)) * self._states[places.second]
        self._sum(counts, places.bounds, cells, out)
        for request, some in zip(requests, np.split(out, ends[:-1]), strict=True):
            self._keep(request.base, request.others, some)

    def _sum(self, counts: NDArray[Any], bounds: Ints, cells: Floats, out: Floats) -> None:
        offsets = self.rule.offsets(cells, self.kinds)
        cost = float("inf") if len(counts) > DENSE else getattr(self, "cells", 0.0)
        dispatch.load("fitting.subsets", cost).add_set_sums(counts, bounds, offsets, out)

    def _parts(self, cells: int) -> Iterable[tuple[int, Read]]:
        """Yield the rows in parts, none so few that adding up their tables takes longest."""
        rows = self.rows
        if rows.columns is None:
            yield from ((-1, read) for read in rows.scan())
            return
        step = max(PART, 2 * cells)
        for begin in range(0, len(rows.columns[0]), step):
            yield begin, partial(_stretch, rows.columns, rows.weight, begin, begin + step)

    def _part(
        self, requests: list[Request], places: Places, part: tuple[int, Read]
    ) -> NDArray[Any]:
        begin, read = part
        columns, weight, _ = read()
        n, sizes = len(columns[0]), list(self.sizes)
        columns = list(columns)
        for request, width in zip(requests, places.widths, strict=True):
            columns.append(self._coded(request.base, columns, begin))
            sizes.append(width)
        out = np.zeros(places.bounds[-1], np.float64 if self.rows.weighted else np.int64)
        if self.rows.weighted and weight is None:
            weight = np.ones(n)
        dispatch.load("counting.pairs", self.cells).add_pair_counts(
            *(columns, np.array(sizes), np.zeros(n, np.uint8), weight, 1),
            *(places.first, places.second, places.bounds[:-1], out),
        )
        return out

    def _coded(
        self, base: tuple[int, ...], columns: Columns, begin: int
    ) -> NDArray[np.unsignedinteger]:
        n = len(columns[0])
        cells = self._cells(base)
        if self._is_wide(base):
            return np.ascontiguousarray(self._numbered(base)[0][begin : begin + n])
        if len(base) == 1:
            return columns[base[0]]
        kind = code_type(cells)
        code: NDArray[Any] = np.zeros(n, kind)
        for v in base:
            code *= kind(self.sizes[v] % (1 << 8 * code.itemsize))
            code += columns[v].astype(kind, copy=False)
        return code


def _stretch(
    columns: Columns, weight: Floats | None, begin: int, end: int
) -> tuple[Columns, Floats | None, int]:
    return (
        [column[begin:end] for column in columns],
        None if weight is None else weight[begin:end],
        0,
    )


class Request(NamedTuple):
    """Tables n(base, other), one for each of some others.

    base    nodes that all tables have
    others  the node that each has besides them
    """

    base: tuple[int, ...]
    others: tuple[int, ...]


class Places(NamedTuple):
    """Where the tables of requests stand, end to end.

    widths  joint values of the base of each request
    first   column of each table's base, after those of the nodes
    second  column of its other node
    bounds  (n_tables + 1,) first cell of each
    """

    widths: Sequence[int]
    first: Ints
    second: Ints
    bounds: Ints

    @classmethod
    def of(cls, requests: Sequence[Request], widths: Sequence[int], sizes: Sequence[int]) -> Places:
        """Return the places of tables over nodes of these sizes, bases of these widths."""
        each = [len(request.others) for request in requests]
        second = np.concatenate([np.array(request.others, np.int64) for request in requests])
        cells = np.repeat(widths, each) * np.array(sizes)[second]
        first = len(sizes) + np.repeat(np.arange(len(requests)), each)
        return cls(widths, first, second, np.concatenate([[0], np.cumsum(cells)]))
