"""Rows counted as others were before them: the options of `count` that a schema stands for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fastbayes.core.schema import Schema
from fastbayes.data.memory import is_name
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.cell_runs import CellRuns

# What `count` takes by default for what a schema says.
DEFAULTS: dict[str, Any] = {
    "domains": None,
    "categorical": None,
    "discretize": "mdl",
    "missing": "marginalize",
    "columns": None,
    "exclude": None,
    "dates": None,
    "null_values": None,
}


def options_of(schema: Schema, target: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return options of `count` by which nothing that a schema fixes is learned again.

    Values and classes that it observed, and did not declare, may still grow. `target` is a name, or
    classes row by row.

    Raises
    ------
    ValueError
        When an option is given that the schema stands for, or another target.
    """
    if (target is None or is_name(target)) and target != schema.target:
        raise ValueError(
            f"target={target!r}: the statistics that say how to count have the target "
            f"{schema.target!r}; count without them, or with that"
        )
    for name, default in DEFAULTS.items():
        if given[name] is not default and given[name] != default:
            raise ValueError(
                f"{name}={given[name]!r}: the statistics that say how to count fix that; leave it "
                "out, or count without them"
            )
    own = [feature for feature in schema.features if feature.cuts is None]
    domains = {f.name: f.values.to_pylist() for f in own if f.declared and f.values is not None}
    if schema.classes_declared and schema.target is not None:
        domains[schema.target] = schema.classes.to_pylist()
    return {
        "domains": domains,
        # of a column of booleans nobody doubts it, and as texts they would be others; one without
        # values may be of anything
        "categorical": [
            f.name
            for f in own
            if f.values is not None and not f.void and not pa.types.is_boolean(f.values.type)
        ],
        "discretize": {f.name: f.cuts.tolist() for f in schema.features if f.cuts is not None},
        "missing": schema.missing,
        "columns": list(schema.columns),
        "exclude": None,
        "dates": schema.parts,
        "null_values": list(schema.null_values),
    }


def parts_of(stats: Statistics) -> dict[str, dict[str, Any]]:
    """Return the kinds of statistics that are held, with the options of each."""
    found: dict[str, dict[str, Any]] = {name: {} for name in stats.parts}
    if "families" in found:
        found["families"] = {"families": stats.families.families}
    for name, part in stats.parts.items():
        if isinstance(part, CellRuns):
            found[name] = {"columns": part.columns.tolist()}
    return found
