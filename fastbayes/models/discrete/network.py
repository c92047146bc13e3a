"""NetworkClassifier: a Bayesian network of which one node is the class."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.data.segments import Segment
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.models.discrete.family_model import FamilyModel, FamilyTables, with_families
from fastbayes.models.discrete.structure import Family, class_node
from fastbayes.models.estimator.base import Scans, check_learnable
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import COUNTED_PRIOR, fitted, memory_limit, parameter
from fastbayes.models.estimator.smoothing import Smoothing, logs, missing_as_value
from fastbayes.networks.graph.dag import DAG, graph
from fastbayes.networks.graph.parameters import TablePrior
from fastbayes.networks.infer.scorer import Network, NetworkScorer
from fastbayes.networks.network import BayesianNetwork
from fastbayes.networks.search.score import ScoreRule
from fastbayes.networks.search.structure_search import SEARCHES, learned_parents
from fastbayes.scan.budget import default_limit
from fastbayes.scan.request import Counter
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.cell_counts import CellCounts
from fastbayes.statistics.family_counts import ABOVE, APART, BELOW

logger = logging.getLogger("fastbayes")


class NetworkClassifier(FamilyModel):
    """A Bayesian network with a node for the class, given or learned.

    Notes
    -----
    P(c, x) = P(c | parents) prod_j P(x_j | parents), with P(v | parents) = (n(parents, v) + alpha)
    / (n(parents, v known) + S alpha), n the rows in which all of the family is known. A given class
    prior p'(c) makes that P(c, x) p'(c) / P(c). Missing values are summed out exactly, by
    eliminating one feature after the other; a row for which that takes a table of more than 16
    million numbers is an error.

    A graph with edges from the class to all features is naive Bayes; with one more parent each,
    TAN. `fit` takes one scan for a given graph. A search takes two more, and holds the codes of the
    rows; its score is of the rows without a missing value ("category": all), while counts are of
    all of them. `partial_fit` keeps the graph of the first batch, so that counts add up: its result
    is that of `fit` where the graph is. `fit_statistics` takes the graph from the statistics, or
    the given one, whose `families` say which to count.

    References
    ----------
    Friedman, Geiger, Goldszmidt (1997), Bayesian network classifiers, Machine Learning 29, sec. 3.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00011110"), "b": list("01011010"), "y": list("nppnpnpn")}
    >>> model = fb.NetworkClassifier([("a", "y"), ("y", "b")]).fit(table, "y")
    >>> model.markov_blanket_
    ('a', 'b')
    >>> model.predict({"a": ["0", None], "b": ["1", "1"]})
    array(['p', 'p'], dtype='<U1')
    """

    network: Any = parameter(
        """
        The graph over the class, by the name of its column, and the features: edges (parent,
        child), {node: parents}, or a `BayesianNetwork`, of which only the graph is used. A
        feature that is not in it has no neighbour. None to learn it by the parameters that follow.
        """,
        default=None,
        kw_only=False,
    )
    graph_score: str = parameter(
        'What the graph is best by: "mdl", "aic", "bdeu", "k2" or "loglik".',
        default="mdl",
    )
    ess: float = parameter(
        'Equivalent sample size of "bdeu", as score and as smoothing.',
        default=1.0,
    )
    search: str = parameter(
        '"hill_climb", "tabu", "k2", "chow_liu" or "exact".',
        default="hill_climb",
        choices=SEARCHES,
    )
    max_parents: int | None = parameter(
        "Most parents of a node.",
        default=None,
    )
    required: Iterable[tuple[str, str]] | None = parameter(
        "Edges (parent, child) that the graph must have.",
        default=None,
    )
    forbidden: Iterable[tuple[str, str]] | None = parameter(
        "Edges (parent, child) that the graph must not have.",
        default=None,
    )
    order: Sequence[str] | None = parameter(
        'All nodes; edges only go from earlier to later ones. "k2" needs it.',
        default=None,
    )
    restarts: int = parameter(
        'Further climbs of "hill_climb" and "tabu".',
        default=10,
    )
    seed: int = parameter(
        "Seed of what is random about them.",
        default=0,
    )
    smoothing: str = parameter(
        '"laplace": alpha is added to every count; "bdeu": ess, spread over the cells of a table.',
        default="laplace",
        choices=("laplace", "bdeu"),
    )
    class_prior: str | ArrayLike | None = COUNTED_PRIOR
    memory_limit: int | None = parameter(
        "Bytes that the counts may take; the codes of the rows take half of it in a search.",
        default=None,
        check=memory_limit,
    )
    parents_: dict[str, tuple[str, ...]] = fitted(
        "{node: its parents} of the class and of all features."
    )
    markov_blanket_: tuple[str, ...] = fitted(
        "The features that say something of the class where no value is missing."
    )
    statistics_: Any = fitted(
        "The `Statistics` that every parameter is read from; their families are the graph."
    )
    class_log_prior_: Any = fitted("(n_classes,) nats: P(c), the parents of the class summed out.")

    _statistics: ClassVar[tuple[str, ...]] = ("values", "families")
    _at_once = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        TablePrior("laplace", ess=self.ess).check()
        ScoreRule(self.graph_score, self.ess if self.graph_score == "bdeu" else 1.0)
        if self.network is None:
            return
        given_parents(self.network)
        if self.required or self.forbidden:
            raise ValueError("required and forbidden are for a search: leave them out, or network=")

    # -- learning ------------------------------------------------------------------------------

    def families(self, stats: Statistics) -> list[tuple[str, ...]]:
        """Return the families that the given graph needs, for `fastbayes.count` to count.

        Parameters
        ----------
        stats
            Statistics of these columns.

        Returns
        -------
        list of tuple
            Parents and feature, by name, without the class; and the parents of the class.

        Raises
        ------
        SchemaError
            When the graph is to be learned, which takes rows, or a node is no column.

        Examples
        --------
        >>> import fastbayes as fb
        >>> table = {"a": [True, False], "b": [True, False], "y": ["n", "p"]}
        >>> model = fb.NetworkClassifier([("y", "a"), ("y", "b"), ("a", "b")])
        >>> model.families(fb.count(table, "y"))
        [('a',), ('a', 'b')]
        """
        self._check_parameters()
        if self.network is None:
            raise SchemaError("a graph is learned from rows: call fit, or give network=")
        names, target = stats.schema.names, _target(stats)
        found = [tuple(names[j] for j in family) for family, _ in self._given(names, target)]
        # The parents of the class may be a family of their own.
        return [*{frozenset(family): family for family in reversed(found)}.values()][::-1]

    def _given(self, names: Sequence[str], target: str) -> Structure:
        """Return the structure of the given graph over these features and the class."""
        parents = given_parents(self.network)
        if parents and target not in parents:
            raise SchemaError(
                f"the network has no node {target!r}, the class; its nodes are {[*parents]}"
            )
        return structure_of(parents, names, target)

    def _scanned(self, scans: Scans) -> Statistics:
        if not scans.first:
            return self._same_families(scans)
        encoder = scans.learning(cuts=scans.cuts)
        here = [feature.name for feature, _ in encoder.features]
        assert encoder.target is not None
        target = class_node(encoder.target.name, here)
        if self.network is not None:
            return self._families(scans, *parted(self._given(here, target)))
        scans.check_rereadable("a search for a graph takes several scans", ", or give network=")
        found = scans.count(self, {"values": {}})
        check_learnable(found, scans.source.description)
        parents = parents_by_search(self, scans, found)
        return self._families(scans, *parted(structure_of(parents, here, target)), known=found)

    def _suited(self, stats: Any) -> Statistics:
        stats = super()._suited(stats)
        if "families" not in stats.parts:
            how = "model.families(statistics)" if self.network is not None else "a structure"
            raise SchemaError(
                f"the statistics hold no families: count again with families={how}, or fit rows"
            )
        names, target = stats.schema.names, _target(stats)
        return stats if self.network is None else arranged(stats, self._given(names, target))

    def _smoothing(self) -> Smoothing:
        if self.smoothing == "bdeu":
            return Smoothing("bdeu", m=float(self.ess))
        return Smoothing(alpha=float(self.alpha))

    def _cells_of(self, stats: Statistics) -> FamilyTables:
        cells = FamilyTables(stats, missing=self.missing, unseen=self.unseen)
        if lost := {*range(len(cells.sizes))} - {family[-1] for family in cells.families}:
            name = stats.schema.names[min(lost)]
            raise SchemaError(
                f"the statistics hold no family of column {name!r}; count again with it"
            )
        return cells

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found, names, target = super()._read(stats), stats.schema.names, _target(stats)
        above, cells = parents_of(stats, target), found["_cells"]
        if cells.above:
            of_class, tables = cells.of_class(found["_rule"]), found["_network"].tables
            margin = cells.margin(tables, of_class, names)
            if self.class_prior is None:
                found["class_log_prior_"] = logs(margin)
            # A class that never occurs has nothing that speaks for or against it.
            occurs = margin > 0
            says = logs(np.where(occurs, of_class / np.where(occurs, margin, 1.0), 1.0))
            found["_network"] = cells.network(tables, names, says)
        blanket = DAG(above).markov_blanket(target)
        if not blanket:
            logger.info("the class %r has no neighbour in the network: its prior is all", target)
        return found | {
            "parents_": above,
            "markov_blanket_": tuple(name for name in names if name in blanket),
        }

    # -- answers -------------------------------------------------------------------------------

    def to_dot(self) -> str:
        """Return the graph in Graphviz' language.

        Returns
        -------
        str
            A directed graph of the class, in a box, and the features.
        """
        self._check_fitted()
        return graph(self.parents_, boxes=[_target(self.statistics_)])

    def to_network(self) -> BayesianNetwork:
        """Return the model as a Bayesian network of the class and the features.

        Returns
        -------
        BayesianNetwork
            Values are states, and so are the bins of a column that was cut, as text, and None
            where missing is a value. A column without a value is left out.

        Raises
        ------
        SchemaError
            When the class has parents and its prior was given: no table of it says so.
        """
        whole = super().to_network()
        target, cells = _target(self.statistics_), self._cells
        if not cells.above and ABOVE in cells.class_is and APART not in cells.class_is:
            return whole
        if cells.above and self.class_prior is not None:
            raise SchemaError(
                "the class has parents and a prior of its own, which no table of it says: set "
                "class_prior=None"
            )
        parents, tables = dict(whole.parents), dict(whole.tables)
        for family, part in zip(cells.families, cells.class_is, strict=True):
            node = self.schema_.names[family[-1]]
            if part == APART and node in parents:
                parents[node], tables[node] = parents[node][1:], tables[node][0]
        if cells.above:
            here = tuple(slice(int(cells.choices[p])) for p in cells.above)
            tables[target] = cells.of_class(self._rule)[here]
            parents[target] = tuple(self.schema_.names[p] for p in cells.above)
        return BayesianNetwork(whole.states, parents, tables)

    def _network_scorer(
        self, log_prior: Floats, network: Network, precision: str, cells: float
    ) -> Any:
        # Families in which the class has no part say the same of all classes.
        shared = [q for q, part in enumerate(self._cells.class_is) if part == APART]
        return NetworkScorer(log_prior, network, precision, cells, shared)


def _target(stats: Statistics) -> str:
    """Return the name of the class node."""
    return class_node(stats.schema.target or "class", stats.schema.names)


Parents = dict[str, tuple[str, ...]]
Structure = list[tuple[Family, int]]


def given_parents(network: Any) -> Parents:
    """Return the parents of the nodes of a graph, a mapping of parents, or edges."""
    parents = getattr(network, "parents", network)
    if isinstance(parents, Mapping):
        for node, above in parents.items():
            if isinstance(above, str):
                raise ValueError(f"network: node {node!r} has the parents {above!r}; give a list")
        return DAG(parents).parents
    if isinstance(parents, str) or not isinstance(parents, Iterable):
        raise ValueError(
            f"network={network!r}: give edges (parent, child), {{node: parents}}, or a network"
        )
    return DAG.from_edges([tuple(edge) for edge in parents]).parents


def parents_by_search(model: Any, scans: Scans, found: Statistics) -> Parents:
    """Return the parents of the nodes, as the search of the model over the rows finds them."""
    names = found.schema.names
    # A column without a value has no neighbour, and no row that is complete.
    known = (found.values.known != 0).any(axis=1) | missing_as_value(found.values, model.missing)
    nodes = [name for name, some in zip(names, known.tolist(), strict=True) if some]
    target = class_node(found.schema.target or "class", names)
    table, weight, domains = _coded(model, scans, found, nodes, target)
    order = None
    if model.order is not None:
        void = {*names}.difference(nodes)
        order = [name for name in model.order if name not in void]
    search_options: dict[str, Any] = {"order": order}
    if model.search in ("hill_climb", "tabu"):
        search_options |= {"restarts": int(model.restarts), "seed": model.seed}
    parents = learned_parents(
        table,
        score=model.graph_score,
        ess=model.ess,
        search=model.search,
        max_parents=model.max_parents,
        required=[tuple(edge) for edge in model.required or ()],
        forbidden=[tuple(edge) for edge in model.forbidden or ()],
        sample_weight=weight,
        domains=domains,
        categorical=[*nodes, target],  # codes
        missing="category" if model.missing == "category" else "complete",
        threads=model.threads,
        memory_limit=model.memory_limit,
        **search_options,
    )
    return _class_first(model, parents, target)


def _class_first(model: Any, parents: Parents, target: str) -> Parents:
    """Return an equivalent graph in which the class has no parents, where there is one.

    It has the same score and the same independences, and its rows can be left out one by one.
    """
    if model.graph_score == "k2" or model.order is not None:
        return parents  # scores differ, or the order would
    above = {node: {*up} for node, up in parents.items()}
    if not _rooted(above, target, DAG(parents).order):
        return parents
    edges = {(p, node) for node, up in above.items() for p in up}
    required, forbidden = (
        {(*edge,) for edge in some or ()} for some in (model.required, model.forbidden)
    )
    if required - edges or forbidden & edges:
        return parents
    return {node: tuple(p for p in parents if p in up) for node, up in above.items()}


def _rooted(above: dict[str, set[str]], node: str, order: Iterable[str]) -> bool:
    """Turn edges round, in place, until a node has no parents; return whether that came true.

    An edge whose ends have the same parents otherwise can be turned (Chickering 1995).
    """
    place = {name: i for i, name in enumerate(order)}
    while above[node]:
        covered = [p for p in sorted(above[node]) if above[p] == above[node] - {p}]
        if not covered:
            first = min(above[node], key=place.__getitem__)
            if not above[first] or not _rooted(above, first, place):
                return False
            place = {name: i for i, name in enumerate(DAG(above).order)}
            continue
        above[node].remove(covered[0])
        above[covered[0]].add(node)
    return True


def _coded(
    model: Any, scans: Scans, found: Statistics, nodes: list[str], target: str
) -> tuple[pa.Table, str | None, dict[str, Any]]:
    """Return the codes of rows as a table, the name of its weights, and its domains."""
    schema = found.schema
    weight = None
    if scans.learning(cuts=scans.cuts).weight is not None:
        weight = class_node("weight", [*schema.names, target])
    names = schema.names
    sizes = dict(zip(names, found.values.shape.sizes.tolist(), strict=True))
    each = sum(1 if sizes[n] < 256 else 2 if sizes[n] < 65536 else 4 for n in nodes) + 1
    limit = default_limit() if model.memory_limit is None else int(model.memory_limit)
    room = limit // (2 * each)

    def read(_: Segment, blocks: Iterator[tuple[Any, Any]]) -> list[pa.RecordBatch]:
        batches = []
        for _block, encoded in blocks:
            batch = encoded.batch
            columns: dict[str, Any] = {}
            for f, column in columns_of(batch.codes).items():
                hidden = column >= sizes[names[f]]
                mask = hidden if hidden.any() else None
                columns[names[f]] = pa.array(column.copy(), mask=mask)
            assert batch.classes is not None
            whole = {name: columns[name] for name in nodes}
            whole[target] = pa.array(batch.classes.copy())
            if weight is not None and batch.weight is not None:
                whole[weight] = pa.array(batch.weight.copy())
            batches.append(pa.RecordBatch.from_pydict(whole))
        return batches

    def domains_of(table: pa.Table) -> dict[str, Any]:
        lengths = {**{name: sizes[name] for name in nodes if sizes[name]}, target: n_classes}
        return {name: pa.array(range(n), table[name].type) for name, n in lengths.items()}

    n_classes = len(schema.classes)
    if isinstance(scans.source, Counter):
        cells = scans.count(model, {"values": {}, "cells": {}}, schema).cells
        weight = class_node("weight", [*schema.names, target])
        table = _table_of_cells(cells, names, nodes, target, weight)
        return table, weight, domains_of(table)
    parts: list[pa.RecordBatch] = []
    held = 0
    for batches in scans.again(model, schema, read):
        parts += batches
        held += sum(batch.num_rows for batch in batches)
        if held > room:
            raise MemoryLimitError(
                f"{scans.source.description}: a search for a structure holds the codes of rows, "
                f"over {held * each:,} bytes, in half of memory_limit={limit:,}; learn from a "
                "part of the rows, raise it, or give network="
            )
    weights = sum(part.column(weight).to_numpy().sum() if weight else len(part) for part in parts)
    scans.check_unchanged(np.isclose(float(weights), float(found.n_rows), rtol=1e-9))
    table = pa.Table.from_batches(parts)
    return table, weight, domains_of(table)


def _table_of_cells(
    cells: CellCounts, names: Sequence[str], nodes: Sequence[str], target: str, weight: str
) -> pa.Table:
    """Return the codes of rows that differ, with their numbers: of rows that workers read."""
    rows, classes = np.nonzero(cells.counts)
    columns: dict[str, Any] = {}
    for name in nodes:
        codes = cells.keys[rows, [*cells.columns].index(names.index(name))].astype(np.int64)
        columns[name] = pa.array(codes, mask=codes < 0)
    columns[target] = pa.array(classes)
    columns[weight] = pa.array(cells.counts[rows, classes].astype(np.float64))
    return pa.table(columns)


def structure_of(
    parents: Mapping[str, Sequence[str]], names: Sequence[str], target: str
) -> Structure:
    """Return the families of a network, parents first, and what the class is in each.

    A feature that is not among the parents has no neighbour.
    """
    place = {name: j for j, name in enumerate(names)}
    graph = DAG({**dict.fromkeys((target, *names), ()), **parents})
    if unknown := [node for node in graph.nodes if node != target and node not in place]:
        raise SchemaError(
            f"the network has a node {unknown[0]!r}, but there is no such column; there are "
            f"{[target, *names]}"
        )
    result: Structure = []
    for node in graph.order:
        above = tuple(place[p] for p in graph.parents[node] if p != target)
        if node != target:
            part = ABOVE if target in graph.parents[node] else APART
            result.append(((*above, place[node]), part))
        elif above:
            result.append((above, BELOW))
    return result


def parted(structure: Structure) -> tuple[list[Family], list[int]]:
    """Return the families of a structure, and what the class is in each."""
    return [family for family, _ in structure], [part for _, part in structure]


def parents_of(stats: Statistics, target: str) -> dict[str, tuple[str, ...]]:
    """Return {node: its parents} of the structure that statistics were counted for."""
    names, counts = stats.schema.names, stats.families
    found: dict[str, tuple[str, ...]] = {target: ()}
    for family, part in zip(counts.families, counts.class_is, strict=True):
        if part == BELOW:
            found[target] = tuple(names[p] for p in family)
        else:
            first = (target,) if part == ABOVE else ()
            found[names[family[-1]]] = (*first, *(names[p] for p in family[:-1]))
    return found


def arranged(stats: Statistics, structure: Structure) -> Statistics:
    """Return statistics with the families of a structure, from those that were counted."""
    had, names = stats.families, stats.schema.names
    families, class_is = parted(structure)
    if had.families == families and [*had.class_is] == class_is:
        return stats
    where = {frozenset(family): q for q, family in enumerate(had.families)}
    blocks = []
    for family in families:
        if frozenset(family) not in where:
            raise SchemaError(
                f"the statistics do not count {[names[j] for j in family]} together; count again "
                "with families=model.families(statistics)"
            )
        q = where[frozenset(family)]
        axes = [had.features(q).index(f) for f in family]
        blocks.append(had.group(q).transpose(*axes, len(axes)))
    return with_families(stats, families, blocks, had.layout.missing, class_is)
