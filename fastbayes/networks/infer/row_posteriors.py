"""What a network says of every row of a table: posteriors of a node, ln P of the row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.core.errors import MemoryLimitError
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.arrays import alike
from fastbayes.networks.graph.coded import Coded, Floats, Ints, SparseTable, logs_of
from fastbayes.networks.graph.dag import joined
from fastbayes.networks.infer import inference
from fastbayes.networks.infer.inference import LARGEST, Factor, best_order, log_eliminated
from fastbayes.networks.infer.scorer import Network

Column = NDArray[np.unsignedinteger]

# Numbers of a table of posteriors that is made ahead: 2 MiB stay in cache.
READY = 1 << 18
# Numbers of tables that are added up by look-ups: 64 MiB.
MULTIPLIED = 1 << 23
# Numbers worked on at a time, and codes where only ln P of rows is asked for.
CELLS = 1 << 18
CODES = 1 << 21


@dataclass(eq=False)
class _Plan:
    """How rows are answered in which the same nodes are observed.

    families  families that tell of the target: those that observed nodes do not cut off
    columns   observed nodes among them
    order     the other nodes among them but the target, in the order of being summed out
    cells     numbers that a row takes while they are
    ready     posteriors of all joint states of the columns, and which of these are impossible
    scorers   sums of look-ups for each family, where no other node is among them: by kind
    """

    families: list[int]
    columns: list[int]
    order: list[int]
    cells: float
    ready: tuple[Floats, NDArray[np.bool_]] | None = field(default=None)
    scorers: dict[bool, Any] = field(default_factory=dict)


class RowPosteriors:
    """P(target | what is observed in a row); immutable but for tables made on first use.

    nodes     those that are observed in some rows
    largest   numbers that the tables of a row may have
    stand_in  (states of the target,) what an impossible row gets; None for P(target)
    """

    def __init__(
        self,
        coded: Coded,
        target: int,
        nodes: Sequence[int],
        largest: float = inference.LARGEST,
        stand_in: Floats | None = None,
    ) -> None:
        self.coded, self.target, self.largest = coded, target, largest
        self.nodes = [v for v in nodes if v != target]
        self.children = coded.children
        self.logs = [logs_of(table) for table in coded.tables]
        self._stand_in = stand_in
        self._plans: dict[frozenset[int], _Plan] = {}

    def posterior(self, columns: Mapping[int, Column], out: Floats, cells: float = 0.0) -> int:
        """Write P(target | row) into `out` (n_rows, states); return how many rows are impossible.

        columns  codes of each of `nodes`, (n_rows,); those beyond its states are no observations
        cells    cells of the job, on which numpy or compiled kernels are chosen
        """
        return self._answer(columns, None, frozenset(), out, cells) if len(out) else 0

    def _answer(
        self,
        columns: Mapping[int, Column],
        rows: Ints | None,
        missing: frozenset[int],
        out: Floats,
        cells: float,
    ) -> int:
        """Answer rows in which some nodes are not observed; others may not be, too.

        Only nodes that tell of the target in rows like these are looked at: what is missing
        elsewhere makes no difference.
        """
        plan = self._plan(missing)
        chosen = {v: columns[v] if rows is None else columns[v][rows] for v in plan.columns}
        sizes = self.coded.sizes
        some = [v for v, column in chosen.items() if int(column.max()) >= sizes[v]]
        if not some:
            return self._observed(plan, chosen, rows, out, cells)
        lost = 0
        for bit, at in alike(np.array([chosen[v] >= sizes[v] for v in some])):
            here = at if rows is None else rows[at]
            if bit.any():
                more = missing.union(v for v, b in zip(some, bit, strict=True) if b)
                lost += self._answer(columns, here, more, out, cells)
            else:
                lost += self._observed(
                    plan, {v: c[at] for v, c in chosen.items()}, here, out, cells
                )
        return lost

    def _instead(self) -> Floats:
        """Return what an impossible row gets: few networks need it, and it may take long."""
        if self._stand_in is None:
            found = inference.joint_posterior(self.coded, {}, [self.target], self.largest)
            self._stand_in = found[0]
        return self._stand_in

    # -- plans ---------------------------------------------------------------------------------

    def _plan(self, missing: frozenset[int]) -> _Plan:
        if missing not in self._plans:
            self._plans[missing] = self._planned({v for v in self.nodes if v not in missing})
        return self._plans[missing]

    def _planned(self, observed: set[int]) -> _Plan:
        coded = self.coded
        among = {*coded.ancestral([self.target, *observed])}
        found, families = joined([self.target], observed, among, coded.parents, self.children)
        hidden = {v for v in found - observed - {self.target} if coded.sizes[v] > 1}
        kept = hidden | {self.target}
        scopes = [tuple(u for u in (c, *coded.parents[c]) if u in kept) for c in families]
        order = best_order(scopes, {v: int(coded.sizes[v]) for v in kept}, hidden)
        if order.cells > self.largest:
            names = ", ".join(repr(coded.names[v]) for v in order.scope[:6])
            raise MemoryLimitError(
                f"a row in which {len(hidden)} nodes are not observed takes a table of "
                f"{order.cells:,.0f} numbers, over {self.largest:,.0f}, for the nodes {names}: "
                "ask row by row with method='gibbs', or raise max_cells"
            )
        cells = max(order.cells, float(coded.sizes[self.target]))
        return _Plan(sorted(families), sorted(found & observed), order.nodes, cells)

    # -- answers -------------------------------------------------------------------------------

    def _observed(
        self,
        plan: _Plan,
        columns: Mapping[int, Column],
        rows: Ints | None,
        out: Floats,
        job: float,
    ) -> int:
        """Answer rows in which all columns of a plan are observed."""
        n = len(out) if rows is None else len(rows)
        sizes = [int(self.coded.sizes[v]) for v in plan.columns]
        cells = math.prod(sizes)
        if cells * out.shape[1] <= READY and (plan.ready is not None or cells <= max(n, 1 << 12)):
            return self._looked_up(plan, columns, sizes, rows, out)
        here: Any = slice(None) if rows is None else rows
        if not plan.order:
            out[here], lost = self._multiplied(plan, columns, n, job)
            return lost
        codes = np.array([columns[v] for v in plan.columns], np.int64).reshape(len(sizes), n)
        if cells < 1 << 62:
            joint = np.ravel_multi_index(tuple(codes), sizes) if sizes else np.zeros(n, np.int64)
            _, first, which = np.unique(joint, return_index=True, return_inverse=True)
        else:
            _, first, which = np.unique(codes, axis=1, return_index=True, return_inverse=True)
        table, impossible = self._computed(
            plan, {v: columns[v][first] for v in plan.columns}, len(first)
        )
        which = which.ravel()
        out[here] = table[which]
        return int(impossible[which].sum())

    def _looked_up(
        self,
        plan: _Plan,
        columns: Mapping[int, Column],
        sizes: Sequence[int],
        rows: Ints | None,
        out: Floats,
    ) -> int:
        """Answer rows from a table of all joint states of the plan's columns."""
        if plan.ready is None:
            cells = math.prod(sizes)
            codes = np.indices(sizes, np.uint32).reshape(len(sizes), cells)
            every = dict(zip(plan.columns, codes, strict=True))
            # Another thread may have made the same meanwhile: it is no harm.
            plan.ready = self._computed(plan, every, cells)
        table, impossible = plan.ready
        n = len(out) if rows is None else len(rows)
        width = 1 if len(table) <= 1 << 8 else 2 if len(table) <= 1 << 16 else 8
        joint: NDArray[Any] = np.zeros(n, f"u{width}")
        for v, size in zip(plan.columns, sizes, strict=True):
            # A size that the type cannot hold is that of a column after others of one state.
            joint *= joint.dtype.type(size % (1 << 8 * width))
            joint += columns[v].astype(joint.dtype, copy=False)
        if rows is None:
            np.take(table, joint, axis=0, out=out, mode="clip")
        else:
            out[rows] = table.take(joint, axis=0)
        return int(impossible.take(joint).sum()) if impossible.any() else 0

    def _multiplied(
        self, plan: _Plan, columns: Mapping[int, Column], n: int, job: float
    ) -> tuple[Floats, int]:
        """Return posteriors of rows in which the whole blanket is observed, and the impossible."""
        kind = dispatch.compiled(job)
        if kind not in plan.scorers:
            # Another thread may make the same meanwhile: it is no harm.
            plan.scorers[kind] = self._scorer(plan, job)
        if (scorer := plan.scorers[kind]) is not None:
            codes = np.array([columns[v] for v in plan.columns])
            groups = [Codes(np.arange(len(codes)), codes, self.coded.sizes[plan.columns] + 2)]
            out = np.empty((n, int(self.coded.sizes[self.target])))
            if not scorer.posterior(groups, (), out):
                return out, 0
            # Impossible rows are rare; the scorer does not know what they get.
        found, impossible = self._computed(plan, columns, n)
        return found, int(impossible.sum())

    def _scorer(self, plan: _Plan, job: float) -> Any:
        """Return what adds up the families of a plan; None where their tables would be large."""
        place = {v: j for j, v in enumerate(plan.columns)}
        k, total = int(self.coded.sizes[self.target]), 0.0
        prior, factors = np.zeros(k), []
        for child in plan.families:
            family, logs = (*self.coded.parents[child], child), self.logs[child]
            seen = [v for v in family if v in place]
            shape = [int(self.coded.sizes[v]) + 2 for v in seen]
            total += k * math.prod(map(float, shape))
            if isinstance(logs, SparseTable) or total > MULTIPLIED:
                return None
            alone = [v for v in family if v not in place and v != self.target]
            # Below a node of one state a family may hold no target: it tells what is impossible.
            last = [self.target] if self.target in family else []
            axes = [family.index(v) for v in (*alone, *seen, *last)]
            inner = logs.transpose(axes)[(0,) * len(alone)]
            inner = inner if last else inner[..., None]
            if not seen:
                prior = prior + inner
                continue
            table = np.zeros((*shape, k))
            table[tuple(slice(n - 2) for n in shape)] = inner
            factors.append((tuple(place[v] for v in seen), table.reshape(-1, k)))
        return dispatch.load("scoring.factors", job).FactorScorer(
            prior, factors, self.coded.sizes[plan.columns]
        )

    def _computed(
        self, plan: _Plan, columns: Mapping[int, Column], n: int
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Return posteriors of rows, the plan's order summed out, and which are impossible."""
        out, impossible = np.empty((n, int(self.coded.sizes[self.target]))), np.zeros(n, np.bool_)
        step = max(1, int(CELLS // plan.cells))
        for lo in range(0, n, step):
            here = slice(lo, lo + step)
            some = {v: column[here] for v, column in columns.items()}
            # Of the size of the answer, should no factor depend on the row or the target.
            factors = [Factor((), np.zeros_like(out[here]))]
            factors += [self._factor(child, plan, some) for child in plan.families]
            joint = log_eliminated(factors, plan.order)
            top = joint.max(axis=1, keepdims=True)
            none = np.isneginf(top).ravel()
            joint = np.exp(joint - np.where(none[:, None], 0.0, top))
            if none.any():
                joint[none] = self._instead()
            out[here], impossible[here] = joint / joint.sum(axis=1, keepdims=True), none
        return out, impossible

    def _factor(self, child: int, plan: _Plan, columns: Mapping[int, Column]) -> Factor:
        """Return ln P(child | parents) of some rows: (rows, hidden nodes ..., target)."""
        family = (*self.coded.parents[child], child)
        hidden = sorted(v for v in family if v in plan.order)
        seen = [v for v in family if v in columns]
        alone = [v for v in family if v not in columns and v not in hidden and v != self.target]
        last = [self.target] if self.target in family else []
        table = self.logs[child]
        if isinstance(table, SparseTable):
            return Factor(tuple(hidden), self._sparse_factor(table, family, hidden, columns))
        axes = [family.index(v) for v in (*alone, *seen, *hidden, *last)]
        table = table.transpose(axes)[(0,) * len(alone)]
        if seen:
            table = table[tuple(columns[v].astype(np.intp) for v in seen)]
        else:
            table = table[None]
        return Factor(tuple(hidden), table if last else table[..., None])

    def _sparse_factor(
        self,
        table: SparseTable,
        family: Sequence[int],
        hidden: Sequence[int],
        columns: Mapping[int, Column],
    ) -> Floats:
        """Return what `_factor` does of a table that keeps some of its rows."""
        index: list[Any] = []
        for v in family:
            shape = [1] * (2 + len(hidden))
            if v in columns:
                shape[0] = -1
                index.append(columns[v].reshape(shape))
            elif v == self.target or v in hidden:
                shape[-1 if v == self.target else 1 + hidden.index(v)] = -1
                index.append(np.arange(int(self.coded.sizes[v])).reshape(shape))
            else:
                index.append(np.zeros(shape, np.int64))
        return table.gathered(index)


class RowEvidence:
    """ln P(what is observed in a row); immutable but for tables made on first use.

    `nodes` are those that are observed in some rows.
    """

    def __init__(self, coded: Coded, nodes: Sequence[int]) -> None:
        self.coded, self.nodes = coded, list(nodes)
        self.absent = sorted({*range(len(coded))} - {*nodes})
        self.logs = [logs_of(table) for table in coded.tables]
        self._network: Network | None = None

    def log_evidence(self, columns: Mapping[int, NDArray[Any]], out: Floats) -> None:
        """Write ln P(row) of every row into `out` (n_rows,), -inf where it is impossible.

        `columns` are the codes of each of `nodes`; those beyond its states are no observations.
        """
        if not len(out):
            return
        sizes = self.coded.sizes
        gaps = [v for v in self.nodes if int(columns[v].max()) >= sizes[v]]
        hidden = np.full(len(out), bool(self.absent))
        for v in gaps:
            hidden |= columns[v] >= sizes[v]
        if not hidden.any():
            out[:] = self._complete(columns)
            return
        whole, rest = np.flatnonzero(~hidden), np.flatnonzero(hidden)
        if len(whole):
            out[whole] = self._complete({v: column[whole] for v, column in columns.items()})
        step = max(1, CODES // len(sizes))
        for lo in range(0, len(rest), step):
            some = rest[lo : lo + step]
            out[some] = self._summed({v: column[some] for v, column in columns.items()}, len(some))

    def _complete(self, columns: Mapping[int, NDArray[Any]]) -> Floats:
        """Return ln P of rows in which all is observed: the sum of a look-up for each node."""
        total: Any = 0.0
        for node, above in enumerate(self.coded.parents):
            table = self.logs[node]
            if isinstance(table, SparseTable):
                total = total + table.gathered([columns[v] for v in (*above, node)])
                continue
            cell: Any = 0
            for v in (*above, node):
                cell = cell * int(self.coded.sizes[v]) + columns[v].astype(np.int64)
            total = total + table.ravel().take(cell)
        return np.asarray(total)

    def _summed(self, columns: Mapping[int, NDArray[Any]], n_rows: int) -> Floats:
        """Return ln P of rows in which something is not observed."""
        sizes = self.coded.sizes
        codes = np.empty((len(sizes), n_rows), np.uint32)
        for v, size in enumerate(sizes.tolist()):
            codes[v] = np.minimum(columns[v], size) if v in columns else size
        if self._wide:
            some, which = np.unique(codes, axis=1, return_inverse=True)
            return np.array([self._alone(row) for row in some.T])[which.ravel()]
        if self._network is None:
            self._network = self._with_places_for_missing()
        group = Codes(np.arange(len(sizes)), codes, sizes + 2)
        out = np.zeros((n_rows, 1))
        self._network.add([group], out)
        return out[:, 0]

    def _alone(self, row: NDArray[Any]) -> float:
        """Return ln P of one row: its table of each node is as small as what it observes says."""
        seen = np.flatnonzero(row < self.coded.sizes).tolist()
        return inference.log_evidence(self.coded, {v: int(row[v]) for v in seen})

    @property
    def _wide(self) -> bool:
        """Whether some table, with places for missing values, would be too large."""
        sizes, tables = self.coded.sizes, enumerate(self.logs)
        return any(
            isinstance(logs, SparseTable)
            or math.prod(float(sizes[u]) + 2 for u in (*self.coded.parents[v], v)) > LARGEST
            for v, logs in tables
        )

    def _with_places_for_missing(self) -> Network:
        coded = self.coded
        families = [(*coded.parents[v], v) for v in coded.order]
        tables = [np.pad(self.logs[f[-1]], [(0, 2)] * len(f))[..., None] for f in families]
        hidden = [np.arange(int(n) + 2) >= n for n in coded.sizes]
        return Network(families, tables, hidden, coded.sizes, coded.names)
