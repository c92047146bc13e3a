"""The graph of a network classifier: as it was given, or found by a search over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment
from fastbayes.models.discrete.families import Family
from fastbayes.models.discrete.structure import class_node
from fastbayes.models.estimator.base import Scans
from fastbayes.networks.graph.dag import DAG
from fastbayes.networks.search.structure_search import learned
from fastbayes.scan import engine
from fastbayes.statistics import FamilyCounts
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import ABOVE, APART, BELOW

Parents = dict[str, tuple[str, ...]]
Structure = list[tuple[Family, int]]


def given_parents(network: Any) -> Parents:
    """Return the parents of the nodes of a graph, a mapping of parents, or edges.

    Raises
    ------
    ValueError
        When it is none of these, or goes round in a circle.
    """
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


def learned_parents(model: Any, scans: Scans, found: Statistics) -> Parents:
    """Return the parents of the nodes, as the search of the model finds them.

    Parameters
    ----------
    model
        The classifier, which says how to search.
    scans
        The source.
    found
        Counts of the values of all rows.

    Raises
    ------
    DataError
        When no row is complete.
    MemoryLimitError
        When the codes of the rows do not fit.
    """
    names = found.schema.names
    # A column without a value has no neighbour, and no row that is complete.
    known = np.asarray((found.values.known != 0).any(axis=1))
    if model.missing == "category":
        known |= np.asarray((found.values.missing != 0).any(axis=1))
    nodes = [name for name, some in zip(names, known.tolist(), strict=True) if some]
    target = class_node(found.schema.target or "class", names)
    table, weight, domains = _coded(model, scans, found, nodes, target)
    order = None
    if model.order is not None:
        void = {*names}.difference(nodes)
        order = [name for name in model.order if name not in void]
    told_search: dict[str, Any] = {"order": order}
    if model.search in ("hill_climb", "tabu"):
        told_search |= {"restarts": int(model.restarts), "seed": model.seed}
    graph = learned(
        table,
        score=model.graph_score,
        ess=model.ess,
        search=model.search,
        max_parents=model.max_parents,
        required=[tuple(edge) for edge in model.required or ()],
        forbidden=[tuple(edge) for edge in model.forbidden or ()],
        sample_weight=weight,
        domains=domains,
        missing="category" if model.missing == "category" else "complete",
        threads=model.threads,
        memory_limit=model.memory_limit,
        **told_search,
    )
    return _class_first(model, dict(graph.parents), target)


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
    schema, learning = found.schema, scans.learning(cuts=scans.cuts)
    weight = None if learning.weight is None else class_node("weight", [*schema.names, target])
    encoder = Encoder.applying_to(
        *(schema, scans.source.schema),
        unseen="error",
        target=schema.target,
        weight=learning.weight,
    )
    encoder.expect(scans.source.n_rows)
    names = schema.names
    sizes = dict(zip(names, found.values.shape.sizes.tolist(), strict=True))
    each = sum(1 if sizes[n] < 256 else 2 if sizes[n] < 65536 else 4 for n in nodes) + 1
    limit = engine.default_limit() if model.memory_limit is None else int(model.memory_limit)
    room = limit // (2 * each)

    def read(segment: Segment) -> tuple[list[pa.RecordBatch], int]:
        batches, rows = [], 0
        for block, encoded in engine.encoded_blocks(segment, encoder):
            batch = encoded.batch
            columns: dict[str, Any] = {}
            for features, codes, _ in batch.codes:
                for f, column in zip(features.tolist(), codes, strict=True):
                    if names[f] in nodes:
                        gone = column >= sizes[names[f]]
                        columns[names[f]] = pa.array(
                            column.copy(), mask=gone if gone.any() else None
                        )
            assert batch.classes is not None
            whole = {name: columns[name] for name in nodes}
            whole[target] = pa.array(batch.classes.copy())
            if weight is not None and batch.weight is not None:
                whole[weight] = pa.array(batch.weight.copy())
            batches.append(pa.RecordBatch.from_pydict(whole))
            rows += block.num_rows
        return batches, rows

    parts: list[pa.RecordBatch] = []
    held = 0
    threads = engine.resolved_threads(model.threads)
    for batches, rows in engine.in_order(read, scans.source.segments(BLOCK_ROWS), threads):
        parts += batches
        held += sum(batch.num_rows for batch in batches)
        if held > room:
            raise MemoryLimitError(
                f"{scans.source.description}: a search for a structure holds the codes of rows, "
                f"over {held * each:,} bytes, in half of memory_limit={limit:,}; learn from a "
                "part of the rows, raise it, or give network="
            )
        if scans.progress is not None:
            scans.progress(rows)
    weights = sum(part.column(weight).to_numpy().sum() if weight else len(part) for part in parts)
    scans.check_unchanged(np.isclose(float(weights), float(found.n_rows), rtol=1e-9))
    table = pa.Table.from_batches(parts)
    domains = {
        name: pa.array(range(sizes[name]), table[name].type) for name in nodes if sizes[name]
    }
    domains[target] = pa.array(range(len(schema.classes)), table[target].type)
    return table, weight, domains


def structure_of(
    parents: Mapping[str, Sequence[str]], names: Sequence[str], target: str
) -> Structure:
    """Return the families of a network, parents first, and what the class is in each.

    Parameters
    ----------
    parents
        Parents of the nodes; a feature that is not named has no neighbour.
    names
        The features.
    target
        The class.

    Raises
    ------
    SchemaError
        When a node is no column.
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
    """Return statistics with the families of a structure, from those that were counted.

    Raises
    ------
    SchemaError
        When the features of a family were not counted together; the message names them.
    """
    had, names = stats.families, stats.schema.names
    families, class_is = parted(structure)
    if had.families == families and [*had.class_is] == class_is:
        return stats
    where = {frozenset(family): q for q, family in enumerate(had.families)}
    blocks = [np.zeros(0, had.flat.dtype)]
    for family in families:
        if frozenset(family) not in where:
            raise SchemaError(
                f"the statistics do not count {[names[j] for j in family]} together; count again "
                "with families=model.families(statistics)"
            )
        q = where[frozenset(family)]
        axes = [had.features(q).index(f) for f in family]
        blocks.append(had.group(q).transpose(*axes, len(axes)).reshape(-1))
    shape, weighted = had.shape, had.weighted
    counts = FamilyCounts(shape, weighted=weighted, families=families, class_is=class_is)
    layout = had.layout
    counts.layout = counts.layout.resized(layout.sizes, layout.missing, layout.n_classes)
    counts.flat = np.concatenate(blocks)
    parts: dict[str, Any] = {**stats.parts, "families": counts.settled()}
    return replace(stats, parts=parts, folds=(), fold_names=())
