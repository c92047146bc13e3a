"""Statistics as one long Arrow table: the shape in which engines and databases hand them over."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.domains import (
    canonical_values,
    domain,
    known_values,
    positions,
    sorted_domain,
)
from fastbayes.core.doubles import doubles
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import Feature, Schema, from_header, to_header
from fastbayes.statistics.class_moments import ClassMoments
from fastbayes.statistics.pair_table import COLUMNS, pair_rows, pairs_of, values_of
from fastbayes.statistics.texts import (
    check_columns,
    codes_in,
    parsed,
    rows_of,
    sides_of,
    strings,
    text,
)
from fastbayes.statistics.value_counts import ValueCounts

METADATA = b"fastbayes"
TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
TYPES |= {"uint64": pa.uint64(), "null": pa.null()}
# Statistics that have rows in a table.
TABLED = ("values", "moments", "pairs")


def to_table(schema: Schema, parts: Mapping[str, Any], dropped_rows: float) -> pa.Table:
    """Return the non-empty cells as rows (part, class, feature, value, n, mean, rest, scatter)."""
    for name, part in parts.items():
        if name not in TABLED:
            raise SchemaError(f"{part.title} have no table; save them to a file")
    values: ValueCounts = parts["values"]
    labels = text(schema.classes)
    (kept,) = np.nonzero(values.class_counts)
    pieces = [_EMPTY, _piece("class", labels.take(pa.array(kept)), values.class_counts[kept])]
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
                feature=pa.array([feature.name] * len(codes), pa.string()),
                value=names.take(pa.array(codes)),
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
                    feature=pa.array([feature.name] * len(kept), pa.string()),
                    mean=moments.mean[i, kept],
                    rest=moments.rest[i, kept],
                    scatter=moments.scatter[i, kept],
                )
            )
    if "pairs" in parts:
        rows = pair_rows(schema, parts["pairs"])
        pieces.append(_piece("pairs", rows.pop("class"), rows.pop("n"), **rows))
    table = pa.concat_tables(pieces, promote_options="default")
    header, arrays = to_header(schema)
    header |= {
        "domains": {k: [str(v.type), text(v).to_pylist()] for k, v in arrays.items()},
        "parts": list(parts),
        "weighted": values.weighted,
        "dropped_rows": dropped_rows,
    }
    if not values.weighted and "moments" not in parts:
        table = table.set_column(4, "n", table["n"].cast(pa.int64()))
    return table.replace_schema_metadata({METADATA: json.dumps(header).encode()})


# The columns of a table, in this order; those of pairs come after them.
# Without a batch: an array, even an empty one, would make pyarrow import pandas.
_EMPTY = pa.Table.from_batches(
    [],
    pa.schema(
        [(name, pa.string()) for name in ("part", "class", "feature", "value")]
        + [(name, pa.float64()) for name in ("n", "mean", "rest", "scatter")]
    ),
)


def _piece(part: str, classes: pa.Array, n: NDArray[Any], **columns: Any) -> pa.Table:
    """Return rows of a part; other columns of the table are null there."""
    parts = pa.array([part] * len(classes), pa.string())
    # Counts up to 2**53 are exact in float64, which moments and weights need.
    return pa.table({"part": parts, "class": classes, "n": n.astype(np.float64), **columns})


def from_table(
    table: Any,
    *,
    target: str = "class",
    domains: Mapping[str, Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> tuple[Schema, dict[str, Any], float]:
    """Return (schema, parts, dropped rows) of a table of `to_table` or of a GROUP BY."""
    try:
        table = _without_views(pa.table(table)).combine_chunks()
    except (TypeError, pa.ArrowException) as error:
        raise DataError(
            f"{type(table).__name__} is no table ({error}); pass an Arrow table or a frame"
        ) from error
    header = (table.schema.metadata or {}).get(METADATA)
    if header is None and "feature_a" in table.column_names:
        return _from_pairs(table, target, domains or {}, types or {})
    columns = ("class", "feature", "value", "n")
    own = () if header is None else ("part", "mean", "rest", "scatter")
    check_columns(table, (*own[:1], *columns, *own[1:]))
    if header is None:
        if "part" in table.column_names:
            raise SchemaError(
                "the table was made by to_table, but its metadata were lost on the way; hand it "
                "over as Arrow or Parquet, or save the statistics to a file"
            )
        return _from_groups(table, target, domains or {}, types or {})
    try:
        return _from_own(table, json.loads(header))
    except (KeyError, TypeError, AttributeError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"the table and its metadata do not fit together ({error}); export it again"
        ) from error


def _without_views(table: pa.Table) -> pa.Table:
    """Return the table with views of text, as DataFusion gives it, as text: Arrow takes no rows."""
    kinds = [pa.string() if pa.types.is_string_view(f.type) else f.type for f in table.schema]
    fields = [f.with_type(kind) for f, kind in zip(table.schema, kinds, strict=True)]
    return table.cast(pa.schema(fields, table.schema.metadata))


def _from_own(table: pa.Table, header: dict[str, Any]) -> tuple[Schema, dict[str, Any], float]:
    arrays = {
        k: parsed(k, pa.array(v, pa.string()), TYPES[t]) for k, (t, v) in header["domains"].items()
    }
    schema = from_header(header, arrays)
    values = ValueCounts(schema.shape, weighted=header["weighted"])
    parts: dict[str, Any] = {"values": values}
    n = _counts(table)
    labels = positions(strings(table, "class"), text(schema.classes))
    if (labels < 0).any():
        raise DataError("it holds a class that the metadata do not name")
    part, names = (
        strings(table, key).to_numpy(zero_copy_only=False) for key in ("part", "feature")
    )
    own = part == "class"
    np.add.at(values.class_counts, labels[own], n[own].astype(values.counts.dtype))
    order = {f.name: j for j, f in enumerate(schema.categorical)}
    cells = strings(table, "value")
    for name, rows in rows_of(names, part == "value"):
        _add(values, order[name], schema, cells.take(pa.array(rows)), labels[rows], n[rows])
    if "moments" in header["parts"]:
        moments = parts["moments"] = ClassMoments(schema.shape)
        numeric = {f.name: i for i, f in enumerate(schema.numeric)}
        (rows,) = np.nonzero(part == "moments")
        where = np.array([numeric[names[r]] for r in rows], dtype=np.int64), labels[rows]
        if len(np.unique(np.ravel_multi_index(where, moments.count.shape))) < len(rows):
            raise DataError("a moment stands twice; add the statistics of each table instead")
        for key, place in zip(("n", "mean", "rest", "scatter"), moments.arrays(), strict=True):
            moments.arrays()[place][where] = table[key].to_numpy()[rows]
    if "pairs" in header["parts"]:
        (rows,) = np.nonzero(part == "pairs")
        sides = sides_of(table, rows, ("feature", "value"), ("feature_b", "value_b"))
        parts["pairs"] = pairs_of(schema, labels[rows], sides, n[rows], weighted=header["weighted"])
    check_sums(schema, values)
    return schema, parts, dropped_of(header)


def dropped_of(header: Mapping[str, Any]) -> float:
    """Return the rows without a class, or their weight, of a header; ValueError for no such."""
    dropped: float = header["dropped_rows"]
    if not (type(dropped) in (int, float) and 0 <= dropped < math.inf):
        raise ValueError(f"there cannot be {dropped!r} rows without a class")
    return dropped


def _counts(table: pa.Table) -> NDArray[Any]:
    """Return column n as int64 if all are whole numbers of an integer type, else float64."""
    column, t = table["n"], pa.types
    kind = column.type
    if not (t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)):
        raise DataError(f"column 'n' is {kind}; give counts as numbers")
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise DataError(f"column 'n', row {row}: a count is null; give a number")
    n = (column.cast(pa.int64()) if t.is_integer(kind) else doubles(column)).to_numpy()
    if (bad := np.flatnonzero(~(np.isfinite(n) & (n >= 0)))).size:
        raise DataError(f"column 'n', row {int(bad[0])}: {n[bad[0]]} is not a count >= 0")
    return n


def _add(values: ValueCounts, j: int, schema: Schema, cells: pa.Array, labels: Any, n: Any) -> None:
    codes = codes_in(schema.categorical[j], cells)
    np.add.at(values.counts, (values.offsets[j] + codes, labels), n.astype(values.counts.dtype))


def check_sums(schema: Schema, values: ValueCounts) -> None:
    """Raise DataError where the counts of a feature do not add up to those of the classes."""
    if not schema.categorical:
        return
    totals = np.add.reduceat(values.counts, values.offsets[:-1], axis=0)
    if (totals == values.class_counts).all():
        return
    # Sums of weights may be off by rounding; counts of rows may not.
    right = np.isclose(totals, values.class_counts, rtol=1e-9 * values.weighted, atol=0)
    for j in np.flatnonzero(~right.all(axis=1)).tolist():
        at = int(np.argmax(np.abs(totals[j] - values.class_counts)))
        raise DataError(
            f"column {schema.categorical[j].name!r}: its counts with class "
            f"{schema.classes[at].as_py()!r} add up to {totals[j, at]}, those of "
            f"{schema.categorical[0].name!r} to {values.class_counts[at]}; include the rows whose "
            "value is null"
        )


def _from_groups(
    table: pa.Table, target: str, domains: Mapping[str, Any], types: Mapping[str, str]
) -> tuple[Schema, dict[str, Any], float]:
    n = _counts(table)
    names = strings(table, "feature")
    if names.null_count:
        raise DataError("column 'feature' holds a null; name the feature of every row")
    declared = domain(target, domains[target]) if target in domains else None
    classes, labels = _classes(table["class"], target, declared)
    column = table["value"].combine_chunks()
    cells = text(column) if pa.types.is_floating(column.type) else column.cast(pa.string())
    members = rows_of(names.to_numpy(zero_copy_only=False), np.ones(len(names), dtype=bool))
    known = {name for name, _ in members}
    if target in known:
        raise SchemaError(f"{target!r} is a feature and the target; give another name in `target`")
    for option, given in (("domains", set(domains) - {target}), ("types", set(types))):
        if unknown := sorted(given - known):
            raise SchemaError(f"{option}: no feature {unknown[0]!r}; there are {sorted(known)}")
    counted = (labels >= 0) & (n > 0)
    features = []
    for name, rows in members:
        if (kind := TYPES.get(types.get(name, "string"))) is None:
            raise SchemaError(f"types[{name!r}]={types[name]!r}: use one of {sorted(TYPES)}")
        if name in domains:
            values = domain(name, domains[name])
        else:
            values = sorted_domain(parsed(name, cells.take(pa.array(rows[counted[rows]])), kind))
        features.append(Feature(name, "categorical", values, name in domains))
    schema = Schema(target, classes, tuple(features), target in domains)
    whole = bool((n == np.floor(n)).all())
    result = ValueCounts(schema.shape, weighted=not whole)
    dropped = 0.0
    for j, (_, rows) in enumerate(members):
        kept = rows[counted[rows]]
        _add(result, j, schema, cells.take(pa.array(kept)), labels[kept], n[kept])
        dropped = max(dropped, float(n[rows[labels[rows] < 0]].sum()))
    if features:
        result.class_counts[:] = result.counts[: result.offsets[1]].sum(axis=0)
    check_sums(schema, result)
    return (
        schema,
        {"values": result, "moments": ClassMoments(schema.shape)},
        int(dropped) if dropped.is_integer() else dropped,
    )


def _from_pairs(
    table: pa.Table, target: str, domains: Mapping[str, Any], types: Mapping[str, str]
) -> tuple[Schema, dict[str, Any], float]:
    check_columns(table, COLUMNS)
    n = _counts(table)
    schema, parts, dropped = _from_groups(values_of(table), target, domains, types)
    _, labels = _classes(table["class"], target, schema.classes)
    kept = np.flatnonzero((labels >= 0) & (n > 0))
    sides = sides_of(table, kept, ("feature_a", "value_a"), ("feature_b", "value_b"))
    parts["pairs"] = pairs_of(
        schema, labels[kept], sides, n[kept], weighted=parts["values"].weighted
    )
    return schema, parts, dropped


def _classes(
    column: pa.ChunkedArray, target: str, declared: pa.Array | None
) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the classes and the code of each row, -1 where the class is null."""
    column = known_values(canonical_values(target, column, "the class").combine_chunks())
    classes = sorted_domain(column) if declared is None else declared
    labels = positions(column, classes)
    outside = np.flatnonzero((labels < 0) & column.is_valid().to_numpy(zero_copy_only=False))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            f"column 'class', row {row}: {column[row].as_py()!r} is outside domains[{target!r}]; "
            "add it"
        )
    return classes, labels
