"""Data in which every column is a node: opened, cut where asked, counted."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.core.schema import Feature, Schema
from fastbayes.data.source import open_source
from fastbayes.networks.graph.coded import fits
from fastbayes.scan import engine
from fastbayes.scan.counting import opened_to_learn
from fastbayes.scan.discretization import numeric_cuts
from fastbayes.scan.engine import Progress
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import numbered

logger = logging.getLogger("fastbayes")

# Cells of a table that is never too wide.
NARROW = 1 << 12


def counted(
    data: Any,
    nodes: Sequence[str],
    families: Iterable[Sequence[str]],
    *,
    cells: bool = False,
    categorical: Sequence[str] = (),
    discretize: Any = None,
    sample_weight: Any = None,
    domains: Mapping[str, Any] | None = None,
    missing: str = "marginalize",
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Count families of columns in one scan; whole numbers are categories.

    Parameters
    ----------
    data
        As `source` in `fastbayes.count`.
    nodes
        The columns to read.
    families
        Tuples of these, parents first.
    cells
        Whether to count the joint values of all of them, too.
    categorical
        Columns whose fractions are categories.
    discretize
        How other columns of fractions become bins: "quantile", "width", ("quantile", n),
        ("width", n), or {column: one of these or cut points}; None refuses them.
    sample_weight, domains, missing, null_values, filesystem, threads, memory_limit, progress
        As in `fastbayes.count`.

    Raises
    ------
    SchemaError
        When a column is not there, or holds fractions that are not cut; the message names it.
    DataError
        When there are no rows, or all weigh nothing.
    MemoryLimitError
        When the counts do not fit; the message names the family by its last column.
    """
    told = {} if not isinstance(discretize, Mapping) else discretize
    opened = opened_to_learn(
        data,
        None,
        sample_weight=sample_weight,
        domains=domains,
        categorical=categorical,
        missing=missing,
        columns=list(nodes),
        null_values=null_values,
        filesystem=filesystem,
    )
    kinds = {n: opened.source.schema.field(n).type for n in opened.source.schema.names}
    whole = [n for n in nodes if pa.types.is_integer(kinds[n]) and n not in told]
    learning = partial(opened.learning, categorical=[*whole, *categorical])
    encoder = learning()
    numbers = [feature.name for feature, book in encoder.features if book is None]
    if unknown := [n for n in told if n not in kinds]:
        raise SchemaError(f"discretize: there is no column {unknown[0]!r}; there are {[*kinds]}")
    bare = numbers if discretize is None else [n for n in numbers if told and n not in told]
    for name in bare:
        raise SchemaError(
            f"column {name!r} holds fractions; the nodes of a network are discrete: cut it with "
            "discretize='quantile', 'width' or {column: cut points}, or name it in `categorical`"
        )
    if numbers:
        cuts = numeric_cuts(
            *(opened.source, encoder, discretize),
            threads=threads,
            memory_limit=memory_limit,
            progress=progress,
        )
        encoder = learning(cuts=cuts)
    names = [feature.name for feature, _ in encoder.features]
    wanted: dict[str, dict[str, Any]] = {"values": {}}
    if together := numbered(families, names):
        wanted["families"] = {"families": together}
    if cells:
        wanted["cells"] = {"columns": [names.index(n) for n in nodes]}
    stats = engine.scan(
        opened.source,
        encoder,
        wanted,
        threads=threads,
        memory_limit=memory_limit,
        progress=progress,
    )
    if not stats.n_rows:
        why = "every weight is zero" if stats.weighted else "there are no rows"
        raise DataError(f"{opened.source.description}: nothing to count, {why}")
    return stats


def held(data: Any) -> Any:
    """Return data that can be read more than once: streams as a table, others as they are."""
    if not isinstance(data, pa.RecordBatchReader) and not hasattr(data, "__next__"):
        return data
    opened = open_source(data)
    parts = [block for part in opened.segments(BLOCK_ROWS) for block in part.batches()]
    return pa.Table.from_batches(parts, opened.schema)


class Wide(NamedTuple):
    """Cells of a family that occur.

    codes   (n_cells, n_parents + 1) of the parents and the node; -1 where a value is missing
    counts  (n_cells,)
    """

    codes: NDArray[np.int64]
    counts: NDArray[Any]


def counted_apart(
    counting: Callable[..., Statistics],
    families: Mapping[str, tuple[str, ...]],
    memory_limit: int | None,
    threads: int | None,
) -> tuple[Statistics, dict[str, Wide]]:
    """Return the counts of families, and apart the cells of those too wide for a whole table.

    Parameters
    ----------
    counting
        `counted` but for nodes and families.
    families
        {node: its parents and itself}.
    memory_limit, threads
        As in `counted`.

    Raises
    ------
    MemoryLimitError
        When counts do not fit though no family is wide, or the cells that occur do not.
    """
    try:
        return counting(list(families), families.values()), {}
    except MemoryLimitError as error:
        # The data told how many values there are only by being read.
        logger.info("%s; wide families are counted apart", error)
        alone = counting(list(families), [])
        sizes = {name: len(values) for name, values in states_of(alone).items()}
        copies = 8.0 * (engine.resolved_threads(threads) + 1)
        need = {
            node: copies * math.prod(sizes[n] for n in family) for node, family in families.items()
        }
        limit = engine.default_limit() if memory_limit is None else memory_limit
        wide: list[str] = []
        for node in sorted(need, key=lambda n: -need[n]):
            if sum(need[n] for n in families if n not in wide) <= limit / 2:
                break
            if need[node] > copies * NARROW:
                wide.append(node)
        if not wide:
            raise
        apart = {}
        for node in wide:
            family = families[node]
            if not fits([sizes[n] for n in family]):
                raise
            cells = counting(list(family), [], cells=True)
            names = [cells.schema.names[j] for j in cells.cells.columns]
            keys = cells.cells.keys[:, [names.index(n) for n in family]].astype(np.int64)
            if cells.schema.missing == "category":
                own = {f.name: f.size for f in cells.schema.features}
                keys = np.where(keys < 0, np.array([own[n] for n in family]), keys)
            apart[node] = Wide(keys, cells.cells.counts[:, 0])
        narrow = [family for node, family in families.items() if node not in apart]
        return counting(list(families), narrow), apart


def states_of(stats: Statistics) -> dict[str, list[Any]]:
    """Return the states of each column: values, bins as text, None where missing is a value."""
    as_value = np.zeros(len(stats.schema.features), np.bool_)
    if stats.schema.missing == "category":
        as_value = (stats.values.missing != 0).any(axis=1)
    result = {}
    for feature, more in zip(stats.schema.features, as_value, strict=True):
        assert feature.values is not None
        values = feature.values.to_pylist() if feature.cuts is None else feature.intervals
        result[feature.name] = [*values, None] if more else [*values]
        if not result[feature.name]:
            raise SchemaError(
                f"column {feature.name!r} has no value at all: leave it out, or declare its "
                "values in `domains`"
            )
    return result


def schema_for(
    states: Mapping[str, Sequence[Any]], cuts: Mapping[str, NDArray[np.float64]]
) -> Schema:
    """Return the schema that codes values as places among the states; missing is beyond, or None.

    Parameters
    ----------
    states
        The states of each node; None may be the last.
    cuts
        The cut points of nodes whose states are bins.

    Raises
    ------
    SchemaError
        When the states of a node are of several types.
    """
    features = []
    for node, values in states.items():
        if node in cuts:
            features.append(Feature.binned(node, cuts[node]))
            continue
        known = [*values][: -1 if values[-1] is None else None]
        try:
            column = pa.array(known)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"node {node!r}: its states {known} are of several types; no column has such"
            ) from error
        features.append(Feature(node, "categorical", column, True))
    return Schema(None, pa.array([None], pa.null()), tuple(features))
