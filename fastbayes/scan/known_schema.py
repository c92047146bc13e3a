"""Rows counted as others were before them: the options of `count` that a schema stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastbayes.core.date_parts import named_parts
from fastbayes.core.domains import domain
from fastbayes.core.picks import Selection, several
from fastbayes.core.schema import Schema
from fastbayes.data.memory import is_name
from fastbayes.data.source import as_at_fit
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.cell_runs import CellRuns
from fastbayes.statistics.family_counts import numbered

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


def options_of(
    schema: Schema, target: Any, given: dict[str, Any], apart: Mapping[str, str]
) -> dict[str, Any]:
    """Return options of `opened_to_learn` by which nothing that a schema fixes is learned again.

    Values and classes that it observed, and did not declare, may still grow, and a column without
    values may become anything. `target` is a name, or classes row by row; columns `apart`, by the
    option that names them, may be picked, and are no features: weights, folds.

    Raises
    ------
    ValueError
        When an option is given that says something else than the schema, another target, or a
        feature as a column apart.
    """
    if (target is None or is_name(target)) and target != schema.target:
        raise ValueError(
            f"target={target!r}: the statistics that say how to count have the target "
            f"{schema.target!r}; count without them, or with that"
        )
    for option, column in apart.items():
        if column in schema.columns:
            raise ValueError(
                f"{option}={column!r}: of the statistics that say how to count this column is a "
                "feature; name another one, or count without them"
            )
    own = [feature for feature in schema.features if feature.cuts is None]
    domains = {f.name: f.values for f in own if f.declared and f.values is not None}
    if schema.classes_declared and schema.target is not None:
        domains[schema.target] = schema.classes
    for name, default in DEFAULTS.items():
        value = given[name]
        if value is default or value == default:
            continue
        if not _says(schema, domains, name, value, apart):
            raise ValueError(
                f"{name}={value!r}: the statistics that say how to count fix that; leave it out, "
                "or count without them"
            )
    picked = Selection(tuple(several(given["categorical"])))
    coded = [f for f in own if f.values is not None]
    void = [f.name for f in coded if f.void and f.name in picked]
    return {
        "domains": domains,
        "categorical": [*(f.name for f in coded if not f.void), *void],
        "types": as_at_fit(schema)["types"] | dict.fromkeys(void, pa.string()),
        "discretize": {f.name: f.cuts.tolist() for f in schema.features if f.cuts is not None},
        "missing": schema.missing,
        "columns": list(schema.columns),
        "exclude": None,
        "dates": schema.parts,
        "null_values": list(schema.null_values),
    }


def _says(
    schema: Schema,
    domains: Mapping[str, pa.Array],
    name: str,
    value: Any,
    apart: Mapping[str, str],
) -> bool:
    """Return whether a schema, with these declared values, says the same as an option.

    Of columns it knows those that take part, by whose names and patterns picks are held against
    them: what an index stands for, nobody knows.
    """
    if name == "missing":
        return bool(value == schema.missing)
    if name == "null_values":
        return {*several(value, name)} == {*schema.null_values}
    if name in ("domains", "dates") and not isinstance(value, Mapping):
        return False
    if name == "domains":
        same = (
            of in domains and domain(of, v).to_pylist() == domains[of].to_pylist()
            for of, v in value.items()
        )
        return all(same)
    if name == "dates":
        held = {of: [part.part for part in parts] for of, parts in schema.parts.items()}
        return all(held.get(of) == named_parts(of, asked) for of, asked in value.items())
    if name not in ("columns", "exclude", "categorical"):
        return False  # learned cut points are none that were asked for
    picks, columns = several(value, name), schema.columns
    if not all(isinstance(pick, str) for pick in picks):
        return False
    known = [f.name for f in schema.categorical if f.cuts is None]
    found = {pick: [c for c in columns if c in Selection((pick,))] for pick in picks}
    if name == "exclude":
        return not any(found.values())
    if name == "categorical":
        return all(names and {*names} <= {*known} for names in found.values())
    every = all(found[pick] for pick in found if pick not in (schema.target, *apart.values()))
    return every and {*columns} == {c for names in found.values() for c in names}


def parts_of(stats: Statistics, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the kinds of statistics that are held, with the options of each.

    `names` are the categorical columns of the rows to count. What had no values may be a number
    now, and what is a number may have none: so places are not those of the statistics.
    """
    held = [feature.name for feature in stats.schema.categorical]
    found: dict[str, dict[str, Any]] = {name: {} for name in stats.parts}
    if "families" in found:
        families = [[held[j] for j in family] for family in stats.families.families]
        found["families"] = {"families": numbered(families, names)}
    for name, part in stats.parts.items():
        if isinstance(part, CellRuns):
            mine = [held[j] for j in part.columns.tolist()]
            found[name] = {"columns": [names.index(column) for column in mine if column in names]}
    return found
