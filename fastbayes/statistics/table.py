"""Statistics as one long Arrow table: the shape in which engines and databases hand them over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastbayes.errors import DataError, SchemaError
from fastbayes.schema import (
    Feature,
    Schema,
    domain,
    from_header,
    positions,
    same_values,
    sorted_domain,
    to_header,
)
from fastbayes.statistics.class_moments import ClassMoments
from fastbayes.statistics.value_counts import ValueCounts

METADATA = b"fastbayes"
TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
TYPES |= {"uint64": pa.uint64(), "null": pa.null()}


def to_table(schema: Schema, parts: Mapping[str, Any], dropped_rows: int) -> pa.Table:
    """Return the non-empty cells as rows (part, class, feature, value, n, mean, rest, scatter)."""
    pieces = []
    values: ValueCounts = parts["values"]
    labels = text(schema.classes)
    (kept,) = np.nonzero(values.class_counts)
    pieces.append(_piece("class", labels.take(pa.array(kept)), values.class_counts[kept]))
    for j, feature in enumerate(schema.categorical):
        block = values.counts[values.offsets[j] : values.offsets[j + 1]]
        codes, classes = np.nonzero(block)
        # The missing slot comes last, where `text` of the domain ends: null.
        names = pa.concat_arrays([text(feature.values), pa.nulls(1, pa.string())])
        pieces.append(
            _piece(
                "value",
                labels.take(pa.array(classes)),
                block[codes, classes],
                feature.name,
                names.take(pa.array(codes)),
            )
        )
    if "moments" in parts:
        moments: ClassMoments = parts["moments"]
        for i, feature in enumerate(schema.numeric):
            (kept,) = np.nonzero(moments.count[i])
            pieces.append(
                _piece(
                    "moments",
                    labels.take(pa.array(kept)),
                    moments.count[i, kept],
                    feature.name,
                    mean=moments.mean[i, kept],
                    rest=moments.rest[i, kept],
                    scatter=moments.scatter[i, kept],
                )
            )
    header, arrays = to_header(schema)
    header |= {
        "domains": {k: [str(v.type), text(v).to_pylist()] for k, v in arrays.items()},
        "parts": list(parts),
        "weighted": values.weighted,
        "dropped_rows": dropped_rows,
    }
    table = pa.concat_tables(pieces)
    if not values.weighted and "moments" not in parts:
        table = table.set_column(4, "n", table["n"].cast(pa.int64()))
    return table.replace_schema_metadata({METADATA: json.dumps(header).encode()})


def _piece(
    part: str,
    classes: pa.Array,
    n: Any,
    feature: str | None = None,
    value: pa.Array | None = None,
    mean: Any = None,
    rest: Any = None,
    scatter: Any = None,
) -> pa.Table:
    rows = len(classes)
    none = pa.nulls(rows, pa.float64())
    return pa.table(
        {
            "part": pa.array([part] * rows, pa.string()),
            "class": classes,
            "feature": pa.array([feature] * rows, pa.string()),
            "value": pa.nulls(rows, pa.string()) if value is None else value,
            # Counts up to 2**53 are exact in float64, which moments and weights need.
            "n": pa.array(np.asarray(n, dtype=np.float64)),
            "mean": none if mean is None else pa.array(mean),
            "rest": none if rest is None else pa.array(rest),
            "scatter": none if scatter is None else pa.array(scatter),
        }
    )


def text(values: pa.Array) -> pa.Array:
    """Return a domain as text that reads back exactly."""
    if pa.types.is_floating(values.type):
        return pa.array([repr(v) for v in values.to_pylist()], pa.string())
    return values.cast(pa.string())


def _parsed(name: str, values: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(f"column {name!r}: {error}; give its type in `types`") from error


def from_table(
    table: Any,
    *,
    target: str = "class",
    domains: Mapping[str, Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> tuple[Schema, dict[str, Any], int]:
    """Return (schema, parts, dropped rows) of a table of `to_table` or of a GROUP BY."""
    table = pa.table(table)
    needed = {"class", "feature", "value", "n"}
    if lacking := sorted(needed - set(table.column_names)):
        raise SchemaError(
            f"the table has no column {lacking[0]!r}; it needs class, feature, value, n"
        )
    table = table.combine_chunks()
    header = (table.schema.metadata or {}).get(METADATA)
    if header is not None:
        return _from_own(table, json.loads(header))
    return _from_groups(table, target, domains or {}, types or {})


def _from_own(table: pa.Table, header: dict[str, Any]) -> tuple[Schema, dict[str, Any], int]:
    arrays = {
        k: _parsed(k, pa.array(v, pa.string()), TYPES[t]) for k, (t, v) in header["domains"].items()
    }
    schema = from_header(header, arrays)
    values = ValueCounts(schema.shape, weighted=header["weighted"])
    parts: dict[str, Any] = {"values": values}
    column = {n: table[n].combine_chunks() for n in table.column_names}
    labels = positions(column["class"], text(schema.classes))
    n = column["n"].to_numpy(zero_copy_only=False)
    part = column["part"].to_numpy(zero_copy_only=False)
    if (labels < 0).any():
        raise DataError("the table holds a class that its metadata do not name; export it again")
    own = part == "class"
    np.add.at(values.class_counts, labels[own], n[own].astype(values.counts.dtype))
    names = column["feature"].to_numpy(zero_copy_only=False)
    order = {f.name: j for j, f in enumerate(schema.categorical)}
    for name, rows in _rows_of(names, part == "value"):
        _add(
            values, order[name], schema, column["value"].take(pa.array(rows)), labels[rows], n[rows]
        )
    if "moments" in header["parts"]:
        moments = parts["moments"] = ClassMoments(schema.shape)
        numeric = {f.name: i for i, f in enumerate(schema.numeric)}
        (rows,) = np.nonzero(part == "moments")
        where = np.array([numeric[names[r]] for r in rows], dtype=np.int64), labels[rows]
        for key, place in (
            ("n", moments.count),
            ("mean", moments.mean),
            ("rest", moments.rest),
            ("scatter", moments.scatter),
        ):
            place[where] = column[key].to_numpy(zero_copy_only=False)[rows]
    return schema, parts, int(header["dropped_rows"])


def _rows_of(names: Any, marked: Any) -> list[tuple[str, Any]]:
    """Return each name with the positions of its marked rows."""
    (rows,) = np.nonzero(marked)
    if not len(rows):
        return []
    distinct, inverse = np.unique(names[rows].astype(str), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    cuts = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    return [(str(v), rows[order[cuts[i] : cuts[i + 1]]]) for i, v in enumerate(distinct)]


def _add(values: ValueCounts, j: int, schema: Schema, cells: pa.Array, labels: Any, n: Any) -> None:
    feature = schema.categorical[j]
    codes = positions(cells, text(feature.values))
    null = cells.is_null().to_numpy(zero_copy_only=False)
    if (outside := np.flatnonzero((codes < 0) & ~null)).size:
        raise DataError(
            f"column {feature.name!r}: value {cells[int(outside[0])].as_py()!r} is outside its "
            "domain; declare it in `domains`"
        )
    codes = np.where(null, feature.size, codes)
    np.add.at(values.counts, (values.offsets[j] + codes, labels), n.astype(values.counts.dtype))


def _from_groups(
    table: pa.Table, target: str, domains: Mapping[str, Any], types: Mapping[str, str]
) -> tuple[Schema, dict[str, Any], int]:
    if (known := pc.is_valid(table["n"]).to_numpy(zero_copy_only=False)).size and not known.all():
        raise DataError(f"column 'n', row {int(np.argmin(known))}: a count is null; give a number")
    weights = table["n"].to_numpy()
    whole = bool(np.array_equal(weights, np.floor(weights))) and np.isfinite(weights).all()
    if (bad := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))).size:
        raise DataError(f"column 'n', row {int(bad[0])}: {weights[bad[0]]!r} is not a count >= 0")
    names = table["feature"].cast(pa.string()).combine_chunks()
    if names.null_count:
        raise DataError("column 'feature' holds a null; name the feature of every row")
    labelled = pc.is_valid(table["class"]).combine_chunks().to_numpy(zero_copy_only=False)
    label_values = table["class"].combine_chunks()
    if not pa.types.is_integer(label_values.type) and not pa.types.is_boolean(label_values.type):
        label_values = label_values.cast(pa.string())
    classes = domain(target, domains[target]) if target in domains else sorted_domain(label_values)
    if pa.types.is_integer(classes.type):
        classes = classes.cast(pa.int64())
        label_values = label_values.cast(pa.int64())
    labels = positions(label_values, classes)
    if (labels[labelled] < 0).any():
        raise DataError(f"column 'class' holds a class outside domains[{target!r}]; add it")
    cells = table["value"].combine_chunks()
    cells = cells if pa.types.is_string(cells.type) else text(cells)
    features: list[Feature] = []
    members = _rows_of(names.to_numpy(zero_copy_only=False), np.ones(len(names), dtype=bool))
    for name, rows in members:
        kind = TYPES.get(types.get(name, "string"))
        if kind is None:
            raise SchemaError(f"types[{name!r}]={types[name]!r}: use one of {sorted(TYPES)}")
        if name in domains:
            values = domain(name, domains[name])
        else:
            values = sorted_domain(_parsed(name, cells.take(pa.array(rows[labelled[rows]])), kind))
        features.append(Feature(name, "categorical", values, name in domains))
    schema = Schema(target, classes, tuple(features), target in domains)
    result = ValueCounts(schema.shape, weighted=not whole)
    dropped = 0.0
    for j, (name, rows) in enumerate(members):
        kept = rows[labelled[rows]]
        _add(result, j, schema, cells.take(pa.array(kept)), labels[kept], weights[kept])
        total = result.counts[result.offsets[j] : result.offsets[j + 1]].sum(axis=0)
        dropped = max(dropped, float(weights[rows].sum() - weights[kept].sum()))
        if j == 0:
            result.class_counts[:] = total
        elif not np.allclose(total, result.class_counts, rtol=1e-9, atol=0):
            at = int(np.argmax(np.abs(total - result.class_counts)))
            raise DataError(
                f"column {name!r}: its counts with class {classes[at].as_py()!r} add up to "
                f"{total[at]}, those of {features[0].name!r} to {result.class_counts[at]}; include "
                "the rows whose value is null"
            )
    assert same_values(schema.classes, classes)
    return schema, {"values": result, "moments": ClassMoments(schema.shape)}, int(dropped)
