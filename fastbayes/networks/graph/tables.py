"""A graph with the states of its nodes and how probable they are: what a network is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.date_parts import DatePart
from fastbayes.core.errors import MemoryLimitError, not_fitted
from fastbayes.core.picks import free_name
from fastbayes.core.suggestions import did_you_mean
from fastbayes.networks.graph.coded import Coded, Floats, SparseTable, Table, cells_at, logs
from fastbayes.networks.graph.dag import DAG
from fastbayes.networks.graph.node_states import NodeStates
from fastbayes.networks.graph.query_result import as_column
from fastbayes.statistics.bundle import Statistics

# Probabilities of a distribution may miss 1 by this.
ROUNDING = 1e-9


class NetworkTables(DAG):
    """Discrete variables, what each depends on, and how probable its states are then."""

    # States that were given, not observed.
    _declared: dict[str, tuple[Any, ...]]
    # What the tables were learned from, and how expectation maximisation went.
    statistics_: Statistics
    converged_: bool
    n_iter_: int
    trace_: Floats

    def __init__(
        self,
        states: Mapping[str, Sequence[Any]],
        parents: Mapping[str, Sequence[str]],
        tables: Mapping[str, ArrayLike],
    ) -> None:
        if unknown := [node for node in (*parents, *tables) if node not in states]:
            raise ValueError(
                f"{unknown[0]!r} is not among the nodes {list(states)}"
                f"{did_you_mean(unknown[0], states)}"
            )
        for node, above in parents.items():
            if unknown := [p for p in above if p not in states]:
                raise ValueError(f"node {node!r}: its parent {unknown[0]!r} is no node")
        self._link({node: tuple(parents.get(node, ())) for node in states})
        self._fill(states, tables)
        self._declared = dict(self.states)

    @classmethod
    def _of(cls, parents: Mapping[str, Iterable[str]]) -> Self:
        """Return a network of which only the graph is known."""
        network = cls.__new__(cls)
        network._link({node: tuple(above) for node, above in parents.items()})
        network.states, network.tables, network._states = {}, {}, {}
        network._declared = {}
        return network

    def _fill(self, states: Mapping[str, Sequence[Any]], tables: Mapping[str, ArrayLike]) -> None:
        """Set states and tables; nothing is set where they do not fit."""
        known = {node: _listed(node, states[node]) for node in self.nodes}
        by_node = {node: NodeStates(node, values) for node, values in known.items()}
        for node, values in known.items():
            if len(by_node[node].codes) < len(values):
                raise ValueError(f"node {node!r}: its states {list(values)} are not distinct")
            _check_numbers(node, values)
        filled = {node: self._checked(node, known, tables) for node in self.nodes}
        self.states: dict[str, tuple[Any, ...]] = known
        # A SparseTable where a family has too many configurations to keep a row for each.
        self.tables: dict[str, Any] = filled
        self._states = by_node

    @property
    def _cuts(self) -> dict[str, Floats]:
        """Cut points of the nodes whose states are bins of numbers, or were declared so."""
        known = self._states or {n: NodeStates(n, some) for n, some in self._declared.items()}
        return {n: states.cuts for n, states in known.items() if states.cuts is not None}

    @property
    def _parts(self) -> dict[str, DatePart]:
        """What nodes are of columns of dates, as they were learned."""
        if not hasattr(self, "statistics_"):
            return {}
        features = self.statistics_.schema.features
        return {f.name: f.part for f in features if f.part is not None}

    def _checked(
        self, node: str, states: Mapping[str, Sequence[Any]], tables: Mapping[str, Any]
    ) -> Table:
        if node not in tables:
            raise ValueError(f"node {node!r} has no table")
        given = tables[node]
        table = given if isinstance(given, SparseTable) else _as_numbers(node, given)
        rows: Floats = given.rows if isinstance(given, SparseTable) else np.asarray(table)
        shape = tuple(len(states[n]) for n in (*self.parents[node], node))
        if table.shape != shape:
            raise ValueError(f"node {node!r}: its table is {table.shape}, its states ask {shape}")
        if not (np.isfinite(rows).all() and (rows >= 0).all()):
            raise ValueError(f"node {node!r}: its table holds what is no probability")
        if (off := np.abs(rows.sum(axis=-1) - 1)).max() > ROUNDING:
            raise ValueError(f"node {node!r}: a row of its table misses 1 by {off.max():.3g}")
        if isinstance(table, np.ndarray):
            table.setflags(write=False)
        return table

    def __repr__(self) -> str:
        edges = sum(map(len, self.parents.values()))
        graph_only = "" if self.tables else ", without tables"
        return f"<BayesianNetwork: {len(self.nodes)} nodes, {edges} edges{graph_only}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NetworkTables):
            return NotImplemented
        return (
            self.nodes == other.nodes
            and self.parents == other.parents
            and self.states == other.states
            and self.tables.keys() == other.tables.keys()
            and all(_same(t, other.tables[n]) for n, t in self.tables.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def _check_fitted(self) -> None:
        if not self.tables and self.nodes:
            raise not_fitted("BayesianNetwork", statistics=False)

    def coded(self, *, sparse: bool = False) -> Coded:
        """Return the network as numbers, nodes in the order of `nodes`.

        Parameters
        ----------
        sparse
            Whether tables may be `SparseTable`.

        Raises
        ------
        NotFittedError
            When the tables are not known yet.
        MemoryLimitError
            When a table keeps some of its rows alone, and that is not allowed.
        """
        self._check_fitted()
        if not sparse:
            for node, table in self.tables.items():
                if isinstance(table, SparseTable):
                    raise MemoryLimitError(
                        f"node {node!r}: its table of {table.size:,} cells keeps "
                        f"{len(table.keys):,} rows alone; random draws of all nodes take whole "
                        "tables: use exact inference, or fewer parents"
                    )
        place = {node: i for i, node in enumerate(self.nodes)}
        return Coded(
            tuple(map(str, self.nodes)),
            np.array([len(self.states[node]) for node in self.nodes], np.int64),
            [tuple(place[p] for p in self.parents[node]) for node in self.nodes],
            [self.tables[node] for node in self.nodes],
        )

    def n_parameters(self, states: int | Mapping[str, int] | None = None) -> int:
        """Return the free parameters of tables for this graph, sum of q (r - 1).

        Parameters
        ----------
        states
            Number of states of every node, or {node: its states}; None for those of the network.

        Returns
        -------
        int
            r states of a node, q joint states of its parents, those included that never occur.
        """
        if states is None:
            known = self.states or self._declared
            if not known:
                self._check_fitted()
            states = {node: len(values) for node, values in known.items()}
        return super().n_parameters(states)

    @property
    def n_parameters_(self) -> int:
        """Free parameters of the tables, as classifiers have them."""
        self._check_fitted()
        return self.n_parameters()

    def table(self, node: str) -> pa.Table:
        """Return P(node | parents) with a row for each joint state.

        Parameters
        ----------
        node
            Its name.

        Returns
        -------
        pyarrow.Table
            A column for each parent and for the node, and `probability`. Of a `SparseTable` the
            rows that are kept.
        """
        self._check_fitted()
        self._named([node])
        family, table = [*self.parents[node], node], self.tables[node]
        names = [*map(str, family)]
        if isinstance(table, SparseTable):
            codes, cells = table.kept()
        else:
            codes, cells = np.indices(table.shape).reshape(len(family), -1), table.ravel()
        columns = {
            name: as_column(self.states[n]).take(pa.array(code))
            for name, n, code in zip(names, family, codes, strict=True)
        }
        return pa.table({**columns, free_name("probability", names): cells})

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> Self:
        """Return the network of tables with a row for each joint state, as `table` gives them.

        Parameters
        ----------
        tables
            {node: a table}, Arrow or a dict of columns: its parents, in their order, and itself,
            then the probability, the last column.

        Returns
        -------
        Self
            States are in the order in which the table of a node names them.

        Raises
        ------
        ValueError
            When a joint state stands twice or is missing, or a row of a table does not sum to 1;
            the message names the node.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> rain = {"rain": ["no", "yes"], "p": [0.75, 0.25]}
        >>> wet = {"rain": ["no", "no", "yes", "yes"], "wet": [0, 1, 0, 1], "p": [0.5, 0.5, 0, 1]}
        >>> BayesianNetwork.from_tables({"rain": rain, "wet": wet}).tables["wet"].tolist()
        [[0.5, 0.5], [0.0, 1.0]]
        """
        listed = {
            node: t if isinstance(t, pa.Table) else pa.table(dict(t)) for node, t in tables.items()
        }
        states: dict[str, list[Any]] = {}
        for node, rows in listed.items():
            if node not in rows.column_names[:-1]:
                raise ValueError(f"node {node!r}: its table has the columns {rows.column_names}")
            states[node] = [*dict.fromkeys(rows.column(node).to_pylist())]
        parents = {
            node: [n for n in rows.column_names[:-1] if n != node] for node, rows in listed.items()
        }
        dense: dict[str, Floats] = {}
        for node, rows in listed.items():
            family = [*parents[node], node]
            if unknown := [p for p in family if p not in states]:
                raise ValueError(f"node {node!r}: its parent {unknown[0]!r} has no table")
            *columns, numbers = (
                c.to_pylist() for c in rows.select([*family, rows.column_names[-1]])
            )
            given = dict(zip(zip(*columns, strict=True), numbers, strict=True))
            cells = math.prod(len(states[n]) for n in family)
            if len(given) < len(numbers) or len(numbers) != cells:
                raise ValueError(
                    f"node {node!r}: {len(numbers)} rows for {cells} joint states of {family}; "
                    "give one row for each"
                )
            joint = itertools.product(*(states[n] for n in family))
            try:
                flat = [given[cell] for cell in joint]
            except KeyError as error:
                raise ValueError(f"node {node!r}: the joint state {error} has no row") from error
            dense[node] = np.array(flat, np.float64).reshape([len(states[n]) for n in family])
        return cls(states, parents, dense)

    def log_joint(self, states: Mapping[str, Any]) -> Floats:
        """Return ln P of complete rows.

        Parameters
        ----------
        states
            {node: the state of every row, or one for all of them}, for every node.

        Returns
        -------
        numpy.ndarray
            (n_rows,) nats; -inf where a row is impossible.

        Raises
        ------
        ValueError
            When a node is not there, or a state is not one of its states.
        """
        self._check_fitted()
        given = {node: self._coded(node, states) for node in self.nodes}
        codes = dict(zip(given, np.broadcast_arrays(*given.values()), strict=True))
        terms = [
            logs(cells_at(self.tables[node], [codes[n] for n in (*self.parents[node], node)]))
            for node in self.order
        ]
        return np.asarray(np.sum(terms, axis=0))

    def _coded(self, node: str, states: Mapping[str, Any]) -> NDArray[np.int64]:
        if node not in states:
            raise ValueError(f"node {node!r} has no state; log_joint takes complete rows")
        given = states[node]
        one = given is None or isinstance(given, (str, bytes)) or not np.iterable(given)
        values = [given] if one else np.asarray(given, dtype=object).tolist()
        return np.array([self._states[node].code(value) for value in values], np.int64)

    def _evidence(self, evidence: Mapping[str, Any] | None) -> dict[int, int]:
        self._check_fitted()
        if not isinstance(evidence, Mapping | None):
            raise ValueError(f"evidence={evidence!r}: use {{node: state}}")
        given = dict(evidence or {})
        self._named(given)
        place = {node: i for i, node in enumerate(self.nodes)}
        return {place[node]: self._states[node].code(value) for node, value in given.items()}


def _listed(node: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the states of a node as Python's values, or numpy's; Arrow's are made Python's."""
    try:
        listed = tuple(v.as_py() if isinstance(v, pa.Scalar) else v for v in values)
        hash(listed)
    except TypeError as error:
        raise ValueError(
            f"node {node!r}: its states are {values!r} ({error}); list values, text or numbers"
        ) from None
    if not listed:
        raise ValueError(f"node {node!r} has no states; list one or more")
    return listed


def _as_numbers(node: str, table: Any) -> Floats:
    """Return a copy of a table, or raise ValueError where it is no array of real numbers."""
    try:
        if np.iscomplexobj(table):  # numpy would leave out a part, and warn
            raise TypeError("they are complex")
        return np.array(table, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"node {node!r}: its table is no array of numbers ({error})") from error


def _check_numbers(node: str, values: Sequence[Any]) -> None:
    """Raise ValueError where no column could hold the whole numbers that are states."""
    whole = (int(value) for value in values if isinstance(value, (int, np.integer)))
    large = [number for number in whole if not -(2**63) <= number < 2**63]
    if not large:
        return
    try:
        as_column(values)
    except OverflowError:
        most = max(large, key=abs)
        beside = "" if most < 0 or most >= 2**64 else " beside negative ones"
        raise ValueError(
            f"node {node!r}: its state {most} does not fit in 64 bits{beside}; "
            "give its states as text"
        ) from None


def _same(table: Table, other: Table) -> bool:
    if isinstance(table, SparseTable) and isinstance(other, SparseTable):
        return table == other
    return type(table) is type(other) and np.array_equal(table, other)
