"""A Bayesian network of discrete variables, as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.networks.dot import graph

Floats = NDArray[np.float64]

# Probabilities of a distribution may miss 1 by this.
ROUNDING = 1e-9


class BayesianNetwork:
    """Discrete variables, what each depends on, and how probable its states are then.

    Parameters
    ----------
    states
        {node: its states}, one or more, all different; the nodes are in this order.
    parents
        {node: its parents}; a node that is not named has none.
    tables
        {node: P(node | parents)}, arrays (n_states of each parent ..., n_states): the axes are the
        parents in their order, the node comes last. They are kept as they are, not scaled.

    Attributes
    ----------
    nodes
        Names of the nodes.
    states, parents, tables
        As given: tuples and read-only float64 arrays.
    order
        The nodes, each after its parents.

    Raises
    ------
    ValueError
        When a parent is no node, parents go round in a circle, a table has another shape, holds
        what is no probability, or a row of it does not sum to 1 to 1e-9; the message names the
        node.

    Examples
    --------
    >>> states = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    >>> tables = {"rain": [0.75, 0.25], "wet": [[0.5, 0.5], [0.0, 1.0]]}
    >>> network = BayesianNetwork(states, {"wet": ["rain"]}, tables)
    >>> np.exp(network.log_joint({"rain": "no", "wet": ["no", "yes"]})).tolist()
    [0.375, 0.375]
    """

    def __init__(
        self,
        states: Mapping[str, Sequence[Any]],
        parents: Mapping[str, Sequence[str]],
        tables: Mapping[str, ArrayLike],
    ) -> None:
        self.nodes = tuple(states)
        self.states = {node: tuple(states[node]) for node in self.nodes}
        self.parents = {node: tuple(parents.get(node, ())) for node in self.nodes}
        if unknown := [node for node in (*parents, *tables) if node not in self.states]:
            raise ValueError(f"{unknown[0]!r} is not among the nodes {list(self.nodes)}")
        for node, above in self.parents.items():
            if unknown := [p for p in above if p not in self.states]:
                raise ValueError(f"node {node!r}: its parent {unknown[0]!r} is no node")
            if len({*above}) < len(above):
                raise ValueError(f"node {node!r}: a parent stands twice in {list(above)}")
        self._codes = {}
        for node, values in self.states.items():
            self._codes[node] = {value: code for code, value in enumerate(values)}
            if not values or len(self._codes[node]) < len(values):
                raise ValueError(f"node {node!r}: its states {list(values)} are not distinct")
        self.order = self._ordered()
        self.tables = {node: self._table(node, tables) for node in self.nodes}

    def _ordered(self) -> tuple[str, ...]:
        order: list[str] = []
        waiting = list(self.nodes)
        while waiting:
            ready = [node for node in waiting if {*order}.issuperset(self.parents[node])]
            if not ready:
                raise ValueError(f"the parents of {waiting[0]!r} go round in a circle")
            order += ready
            waiting = [node for node in waiting if node not in ready]
        return tuple(order)

    def _table(self, node: str, tables: Mapping[str, ArrayLike]) -> Floats:
        if node not in tables:
            raise ValueError(f"node {node!r} has no table")
        table = np.array(tables[node], np.float64)
        shape = tuple(len(self.states[n]) for n in (*self.parents[node], node))
        if table.shape != shape:
            raise ValueError(f"node {node!r}: its table is {table.shape}, its states ask {shape}")
        if not (np.isfinite(table).all() and (table >= 0).all()):
            raise ValueError(f"node {node!r}: its table holds what is no probability")
        if (off := np.abs(table.sum(axis=-1) - 1)).max() > ROUNDING:
            raise ValueError(f"node {node!r}: a row of its table misses 1 by {off.max():.3g}")
        table.setflags(write=False)
        return table

    def __repr__(self) -> str:
        edges = sum(map(len, self.parents.values()))
        return f"<BayesianNetwork: {len(self.nodes)} nodes, {edges} edges>"

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
        given = {node: self._coded(node, states) for node in self.nodes}
        codes = dict(zip(given, np.broadcast_arrays(*given.values()), strict=True))
        with np.errstate(divide="ignore"):
            terms = [
                np.log(self.tables[node][tuple(codes[n] for n in (*self.parents[node], node))])
                for node in self.order
            ]
        return np.asarray(np.sum(terms, axis=0))

    def _coded(self, node: str, states: Mapping[str, Any]) -> NDArray[np.int64]:
        if node not in states:
            raise ValueError(f"node {node!r} has no state; log_joint takes complete rows")
        known, given = self._codes[node], states[node]
        one = given is None or isinstance(given, (str, bytes)) or not np.iterable(given)
        values = [given] if one else np.asarray(given, dtype=object).tolist()
        for value in values:
            if value not in known:
                raise ValueError(
                    f"node {node!r}: {value!r} is none of its states {list(self.states[node])}"
                )
        return np.array([known[value] for value in values], np.int64)

    def to_dot(self) -> str:
        """Return the graph in Graphviz' language."""
        return graph(self.parents)
