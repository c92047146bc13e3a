"""Structs as columns of their fields, "device.os" of "device"; extension types as they are stored.

A null struct has null fields.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def is_flat(schema: pa.Schema) -> bool:
    """Return whether there is neither a struct nor an extension type."""
    return not any(_opens(kind) for kind in schema.types)


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that `flat` makes of columns."""
    if is_flat(schema):
        return schema
    fields = [each for field in schema for each in _fields(field)]
    return pa.schema(fields, schema.metadata)


def flat(rows: Rows) -> Rows:
    """Return rows whose structs are columns of their fields, at any depth."""
    if is_flat(rows.schema):
        return rows
    columns = [c for name in rows.schema.names for c in _columns(name, rows.column(name))]
    names, arrays = zip(*columns, strict=True)
    return type(rows).from_arrays(list(arrays), names=list(names))


def flat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name, those of a mapping by the names of its fields."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= flat_row({f"{name}.{field}": of_field for field, of_field in value.items()})
        else:
            found[name] = value
    return found


def null_fields(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, None]:
    """Return which of the names that a row of values lacks are fields of structs null there."""
    lacking = [name for name in names if name not in row]
    null = {k for k, v in row.items() if v is None or (isinstance(v, float) and math.isnan(v))}
    null.difference_update(names)  # a column that is read itself is no struct
    return {name: None for name in lacking if _root(name, null) in null}


def roots(names: Iterable[str], there: Iterable[str]) -> list[str]:
    """Return the columns, of those there, that hold columns of these names; others as they are."""
    there = {*there}
    return [*dict.fromkeys(_root(name, there) for name in names)]


def _root(name: str, there: set[str]) -> str:
    before = name
    while before and before not in there:
        before = before.rpartition(".")[0]
    return before or name


def _opens(kind: pa.DataType) -> bool:
    """Return whether a column of this type becomes others; a struct without fields does not."""
    if isinstance(kind, pa.BaseExtensionType):
        return True
    return bool(pa.types.is_struct(kind)) and kind.num_fields > 0


def _stored(kind: pa.BaseExtensionType) -> pa.DataType:
    """Return the type as which values are taken: booleans of a byte each are no numbers."""
    return pa.bool_() if kind.extension_name == "arrow.bool8" else kind.storage_type


def _fields(field: pa.Field) -> list[pa.Field]:
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return _fields(pa.field(field.name, _stored(kind)))
    if not _opens(kind):
        return [field]
    inner = [kind.field(i) for i in range(kind.num_fields)]
    named = [pa.field(f"{field.name}.{one.name}", one.type) for one in inner]
    return [each for one in named for each in _fields(one)]


def _columns(name: str, column: Column) -> list[tuple[str, Column]]:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(column, pa.ChunkedArray):
            stored = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        else:
            stored = column.storage
        kind = _stored(kind)
        return _columns(name, stored if stored.type == kind else stored.cast(kind))
    if not _opens(kind):
        return [(name, column)]
    inner = [f"{name}.{kind.field(i).name}" for i in range(kind.num_fields)]
    return [each for one, of_one in zip(inner, column.flatten(), strict=True)
            for each in _columns(one, of_one)]  # fmt: skip
