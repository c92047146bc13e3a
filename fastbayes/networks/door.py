"""Data in which every column is a node: opened, cut where asked, counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes import engine
from fastbayes.counting import opened_to_learn
from fastbayes.discretization import numeric_cuts
from fastbayes.engine import Progress
from fastbayes.errors import SchemaError
from fastbayes.schema import Feature, Schema
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import numbered


def counted(
    data: Any,
    nodes: Sequence[str],
    families: Iterable[Sequence[str]],
    *,
    cells: bool = False,
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
    discretize
        How columns of fractions become bins: "quantile", "width", ("quantile", n), ("width", n),
        or {column: one of these or cut points}; None refuses them.
    sample_weight, domains, missing, null_values, filesystem, threads, memory_limit, progress
        As in `fastbayes.count`.

    Raises
    ------
    SchemaError
        When a column is not there, or holds fractions that are not cut; the message names it.
    MemoryLimitError
        When the counts do not fit; the message names the family by its last column.
    """
    told = {} if not isinstance(discretize, Mapping) else discretize
    opened = opened_to_learn(
        data,
        None,
        sample_weight=sample_weight,
        domains=domains,
        missing=missing,
        columns=list(nodes),
        null_values=null_values,
        filesystem=filesystem,
    )
    kinds = {n: opened.source.schema.field(n).type for n in opened.source.schema.names}
    whole = [n for n in nodes if pa.types.is_integer(kinds[n]) and n not in told]
    learning = partial(opened.learning, categorical=whole)
    encoder = learning()
    numbers = [feature.name for feature, book in encoder.features if book is None]
    if unknown := [n for n in told if n not in kinds]:
        raise SchemaError(f"discretize: there is no column {unknown[0]!r}; there are {[*kinds]}")
    bare = numbers if discretize is None else [n for n in numbers if told and n not in told]
    for name in bare:
        raise SchemaError(
            f"column {name!r} holds fractions; the nodes of a network are discrete: cut it with "
            "discretize='quantile', 'width' or {column: cut points}, or declare its values in "
            "`domains`"
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
    wanted: dict[str, dict[str, Any]] = {
        "values": {},
        "families": {"families": numbered(families, names)},
    }
    if cells:
        wanted["cells"] = {"columns": [names.index(n) for n in nodes]}
    return engine.scan(
        opened.source,
        encoder,
        wanted,
        threads=threads,
        memory_limit=memory_limit,
        progress=progress,
    )


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
