"""Scores of families, counted when they are asked for and kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes import _jit, engine
from fastbayes.errors import MemoryLimitError
from fastbayes.networks.score import Floats, Rule, members
from fastbayes.networks.search_rows import Columns, Read, Rows

Ints = NDArray[np.int64]

# Rows counted by one call: tables are added up after as many, in this order, whatever the threads.
PART = 1 << 16
# Joint values of a table's first nodes that may be numbered as they are; of more only those that
# occur get numbers.
DENSE = 1 << 16
# Cells of a table for each row from which on rows are sorted to find those that occur.
SPARSE = 64


class Request(NamedTuple):
    """Tables n(base, other), one for each of some others.

    base    nodes that all tables have
    others  the node that each has beside them; -1 for none
    """

    base: tuple[int, ...]
    others: tuple[int, ...]


class FamilyScores:
    """The scores of all families of a table, each counted at most once.

    Parameters
    ----------
    rows
        The table.
    rule
        The score.
    threads
        Worker threads; they never change a bit of a score.
    memory_limit
        Bytes that the tables of one scan may take.

    Notes
    -----
    What is kept is a sum for each set of nodes, not for each family: a node with k parents is
    scored by the sums of k + 1 nodes and of k, and all k + 1 nodes share the first. A step of a
    search asks for all families that differ in one parent: their tables n(family, other) share
    the joint code of the family, and are counted as pairs of columns are, by bit rows where the
    columns have few values and joint codes where not.
    """

    def __init__(
        self, rows: Rows, rule: Rule, *, threads: int | None = None, memory_limit: int | None = None
    ) -> None:
        self.rows, self.rule = rows, rule
        self.threads = engine.resolved_threads(threads)
        limit = engine.default_limit() if memory_limit is None else int(memory_limit)
        # Every worker has a set of tables, some wait to be added up, and one is the sum.
        self.room = max(limit // 2 // (8 * (self.threads + 3)), 1)
        self.sizes = rows.sizes.tolist()
        self.kinds = sorted({*self.sizes})
        self.price = rule.per_parameter(rows.total)
        self.scans = self.tables = 0
        n_sums = rule.offsets(np.ones(1), self.kinds).shape[1]
        self._sums: dict[int, list[float]] = {}
        empty = np.zeros((1, n_sums))
        self._sum(np.array([rows.total]), np.array([0, 1]), np.ones(1), empty)
        self._sums[0] = empty[0].tolist()
        self._compact: dict[tuple[int, ...], tuple[NDArray[Any], int]] = {}
        # A search looks at every pair of columns and more: that is the size of the job.
        self.cells = rows.cells * len(self.sizes)

    # -- scores --------------------------------------------------------------------------------

    def value(self, node: int, parents: int) -> float:
        """Return the score of a family, higher is better; parents are a set of bits."""
        family = parents | 1 << node
        self.need([family, parents])
        return self._value(node, parents, family)

    def values(self, families: Iterable[tuple[int, int]]) -> list[float]:
        """Return the scores of families (node, parents), counted together."""
        asked = list(families)
        self.need([s for v, above in asked for s in (above | 1 << v, above)])
        return [self._value(v, above, above | 1 << v) for v, above in asked]

    def total(self, parents: Sequence[int]) -> float:
        """Return the score of a graph, higher is better."""
        return float(np.sum(self.values(enumerate(parents))))

    def toggled(self, asked: Sequence[tuple[int, int, Sequence[int]]]) -> list[list[float]]:
        """Return the scores of families with other nodes added, or taken away if they are there.

        Parameters
        ----------
        asked
            For each family its node, its parents, and the other nodes; all are counted together.
        """
        sets: list[int] = []
        beside: dict[int, list[int]] = {}
        for node, parents, others in asked:
            here = 1 << node
            for u in others:
                above = parents ^ 1 << u
                sets += (above, above | here)
            added = [u for u in others if not parents >> u & 1]
            beside.setdefault(parents | here, []).extend(added)
            beside.setdefault(parents, []).extend(added)
        self.need(sets, beside)
        return [self._toggled(*one) for one in asked]

    def _toggled(self, node: int, parents: int, others: Sequence[int]) -> list[float]:
        below, here, sums = self._below(node), 1 << node, self._sums
        price, q = self.price * (self.sizes[node] - 1), self.joint(parents)
        result = []
        for u in others:
            above = parents ^ 1 << u
            value = sums[above | here][0] - sums[above][below]
            if price:
                size = self.sizes[u]
                value -= price * (q / size if parents >> u & 1 else q * size)
            result.append(value)
        return result

    def hopeless(self, node: int, parents: int, others: Sequence[int]) -> list[bool]:
        """Return which of some nodes cannot gain as further parents, whatever the counts.

        They can tell no more than the family leaves untold, and no more than there is to tell of
        them; against that stands what their parameters cost.
        """
        if not self.rule.penalised:
            return [False] * len(others)
        family = parents | 1 << node
        self.need([family, parents, *(1 << u for u in others)])
        price, sums = self.price * self.parameters(node, parents), self._sums
        untold, all_ = sums[parents][0] - sums[family][0], sums[0][0]
        return [min(untold, all_ - sums[1 << u][0]) <= price * (self.sizes[u] - 1) for u in others]

    def _below(self, node: int) -> int:
        return 1 + self.kinds.index(self.sizes[node]) if self.rule.name == "k2" else 0

    def _value(self, node: int, parents: int, family: int) -> float:
        result = self._sums[family][0] - self._sums[parents][self._below(node)]
        if self.rule.penalised:
            result -= self.price * self.parameters(node, parents)
        return result

    def parameters(self, node: int, parents: int) -> float:
        """Return the free parameters of a family, those of joint values not observed included."""
        return self.joint(parents) * (self.sizes[node] - 1)

    def joint(self, nodes: int) -> float:
        """Return the number of joint values of a set of nodes."""
        cells = 1.0
        for v in members(nodes):
            cells *= self.sizes[v]
        return cells

    # -- sums ----------------------------------------------------------------------------------

    def need(self, sets: Iterable[int], beside: Mapping[int, Sequence[int]] | None = None) -> None:
        """See to it that the sums of sets of nodes are there.

        Parameters
        ----------
        sets
            Sets of bits.
        beside
            Sets that some of them are, but for one more node: these are counted together.
        """
        missing = set(sets).difference(self._sums)
        if not missing:
            return
        wanted: dict[int, list[int]] = {}
        for base, others in (beside or {}).items():
            for u in others:
                if (s := base | 1 << u) in missing:
                    missing.discard(s)
                    wanted.setdefault(base, []).append(u)
        for s in sorted(missing):
            last = s.bit_length() - 1
            wanted.setdefault(s ^ 1 << last, []).append(last)
        requests = []
        for mask, us in wanted.items():
            nodes = tuple(members(mask))
            if sparse := [u for u in us if self._is_sparse(nodes, u)]:
                self._count_sparse(nodes, sparse)
            if dense := [u for u in us if u not in sparse]:
                requests.append(Request(nodes, tuple(dense)))
        for some in self._runs(requests):
            self._count(some)

    def _runs(self, requests: list[Request]) -> Iterable[list[Request]]:
        """Yield requests whose tables fit in memory together."""
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
            for u in others:
                its = width * self.sizes[u]
                if its > self.room:
                    names = [self.rows.names[v] for v in (*base, u)]
                    raise MemoryLimitError(
                        f"the counts of {names} together need {8 * its:,} bytes in each of "
                        f"{self.threads + 3} sets, over half of the memory limit: set max_parents, "
                        "group values, or raise memory_limit"
                    )
                if run and cells + its > self.room:
                    yield run
                    run, cells = [], 0
                if run and run[-1].base == base:
                    run[-1] = Request(base, (*run[-1].others, u))
                else:
                    run.append(Request(base, (u,)))
                cells += its
        if run:
            yield run

    def _is_wide(self, base: tuple[int, ...]) -> bool:
        """Return whether only those joint values that occur have a number."""
        cells = 1
        for v in base:
            cells *= self.sizes[v]
        return cells > DENSE and self.rows.columns is not None

    def _is_sparse(self, base: tuple[int, ...], u: int) -> bool:
        """Return whether a table has so many cells that those that occur are better sought."""
        rows = self.rows
        if rows.columns is None:
            return False
        cells = self._width(base) * self.sizes[u]
        return cells > max(SPARSE * len(rows.columns[0]), DENSE)

    def _count_sparse(self, base: tuple[int, ...], others: Sequence[int]) -> None:
        """Take the sums of tables by the joint values that occur."""
        for u in others:
            numbers, width = self._numbered((*base, u))
            counts = np.bincount(numbers, weights=self.rows.weight, minlength=width)
            out = np.zeros((1, len(self._sums[0])))
            nodes = sum(1 << v for v in (*base, u))
            self._sum(counts, np.array([0, width]), np.array([self.joint(nodes)]), out)
            self._sums[nodes] = out[0].tolist()
            self.tables += 1

    def _width(self, base: tuple[int, ...]) -> int:
        """Return how many joint values of these nodes have a number."""
        if self._is_wide(base):
            return self._numbered(base)[1]
        cells = 1
        for v in base:
            cells *= self.sizes[v]
        return cells

    def _numbered(self, base: tuple[int, ...]) -> tuple[NDArray[Any], int]:
        """Return numbers of the joint values that occur, for each row, and how many there are."""
        if base not in self._compact:
            columns = self.rows.columns
            assert columns is not None
            before, width = base[:-1], 1
            for v in before:
                width *= self.sizes[v]
            if width > 1 << 40:
                codes, width = self._numbered(before)
                codes = codes.astype(np.int64)
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

    def _counted(self, requests: list[Request]) -> tuple[_Places, NDArray[Any]]:
        """Return tables, end to end, and where each stands."""
        places = _Places.of(requests, [self._width(r.base) for r in requests], self.sizes)
        counts = np.zeros(places.bounds[-1], np.float64 if self.rows.weighted else np.int64)
        one = partial(self._part, requests, places)
        for some in engine.in_order(one, self._parts(len(counts)), self.threads):
            counts += some
        self.scans += 1
        self.tables += len(places.sets)
        return places, counts

    def _count(self, requests: list[Request]) -> None:
        """Count tables and take their sums."""
        places, counts = self._counted(requests)
        out = np.zeros((len(places.sets), len(self._sums[0])))
        every = self.rule.name == "bdeu"
        cells = np.array([self.joint(s) if every else 1.0 for s in places.sets])
        self._sum(counts, places.bounds, cells, out)
        self._sums.update(zip(places.sets, out.tolist(), strict=True))

    def _sum(self, counts: NDArray[Any], bounds: Ints, cells: Floats, out: Floats) -> None:
        offsets = self.rule.offsets(cells, self.kinds)
        cost = float("inf") if len(counts) > DENSE else getattr(self, "cells", 0.0)
        _jit.load("set_sums", cost).add_set_sums(counts, bounds, offsets, out)

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
        self, requests: list[Request], places: _Places, part: tuple[int, Read]
    ) -> NDArray[Any]:
        begin, read = part
        columns, weight, _ = read()
        n, sizes = len(columns[0]), list(self.sizes)
        columns = list(columns)
        for request, width in zip(requests, places.widths, strict=True):
            columns.append(self._coded(request.base, width, columns, begin))
            sizes.append(width)
        out = np.zeros(places.bounds[-1], np.float64 if self.rows.weighted else np.int64)
        if self.rows.weighted and weight is None:
            weight = np.ones(n)
        _jit.load("pairs", self.cells).add_pair_counts(
            *(columns, np.array(sizes), np.zeros(n, np.uint8), weight, 1),
            *(places.first, places.second, places.bounds[:-1], out),
        )
        return out

    def _coded(
        self, base: tuple[int, ...], width: int, columns: Columns, begin: int
    ) -> NDArray[np.unsignedinteger]:
        """Return the joint code of some columns."""
        n = len(columns[0])
        cells = 1
        for v in base:
            cells *= self.sizes[v]
        if self._is_wide(base):
            return np.ascontiguousarray(self._numbered(base)[0][begin : begin + n])
        if len(base) == 1:
            return columns[base[0]]
        kind = np.uint8 if cells <= 1 << 8 else np.uint16 if cells <= 1 << 16 else np.uint32
        code: NDArray[Any] = np.zeros(n, kind)
        for v in base:
            code *= kind(self.sizes[v] % (1 << 8 * code.itemsize))
            code += columns[v].astype(kind, copy=False)
        return code


class _Places(NamedTuple):
    """Where the tables of requests stand, end to end.

    sets    set of bits of each
    widths  joint values of the base of each request
    first   column of each table's base, after those of the nodes
    second  column of its other node
    bounds  (n_tables + 1,) first cell of each
    """

    sets: list[int]
    widths: list[int]
    first: Ints
    second: Ints
    bounds: Ints

    @classmethod
    def of(cls, requests: list[Request], widths: list[int], sizes: list[int]) -> _Places:
        sets, first, second, cells = [], [], [], [0]
        for q, (base, others) in enumerate(requests):
            mask = sum(1 << v for v in base)
            for u in others:
                sets.append(mask | 1 << u)
                first.append(len(sizes) + q)
                second.append(u)
                cells.append(widths[q] * sizes[u])
        return cls(sets, widths, np.array(first), np.array(second), np.cumsum(cells))


def _stretch(
    columns: Columns, weight: Floats | None, begin: int, end: int
) -> tuple[Columns, Floats | None, int]:
    return (
        [column[begin:end] for column in columns],
        None if weight is None else weight[begin:end],
        0,
    )
