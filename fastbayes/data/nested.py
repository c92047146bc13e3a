"""Structs as columns of their fields, "device.os" of "device"; extension types as they are stored.

A null struct has null fields, and so has a column without a type, where others tell of fields.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def is_flat(schema: pa.Schema) -> bool:
    """Return whether there is neither a struct nor an extension type."""
    return not any(_opens(kind) for kind in schema.types)


def is_untyped(kind: pa.DataType) -> bool:
    """Return whether a column of this type may be a struct of which no field is known here."""
    return bool(pa.types.is_null(kind)) or bool(pa.types.is_struct(kind) and not kind.num_fields)


def may_open(schema: pa.Schema) -> bool:
    """Return whether a column becomes others, or may."""
    return any(_opens(kind) or is_untyped(kind) for kind in schema.types)


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that `flat` makes of columns."""
    if is_flat(schema):
        return schema
    fields = [each for field in schema for each in _fields(field)]
    return pa.schema(fields, schema.metadata)


def opened(schemas: Sequence[pa.Schema], asked: Iterable[str] = ()) -> list[pa.Schema]:
    """Return flat schemas with null fields in place of untyped columns that are structs elsewhere.

    Their fields are those that other schemas have, or that are `asked` for. A column that has a
    type somewhere, stands beside such fields, or is asked for itself, is no struct.
    """
    fields: dict[str, list[str]] = {}
    asked = [*asked]
    of_schemas = [dict(zip(schema.names, schema.types, strict=True)) for schema in schemas]
    null = {n for types in of_schemas for n, kind in types.items() if is_untyped(kind)}
    null.difference_update(asked)
    if not null:
        return [*schemas]
    for name in dict.fromkeys(name for names in (*of_schemas, asked) for name in names):
        for column in _above(name):
            if column in null:
                fields.setdefault(column, []).append(name)
    for types in of_schemas:
        for column in types.keys() & fields.keys():
            if not is_untyped(types[column]) or not types.keys().isdisjoint(fields[column]):
                del fields[column]
    found = []
    for schema in schemas:
        each = [
            pa.field(name, pa.null()) if name != field.name else field
            for field in schema
            for name in fields.get(field.name, [field.name])
            if name not in fields
        ]
        found.append(pa.schema(each, schema.metadata))
    return found


def flat(rows: Rows, names: Collection[str] = ()) -> Rows:
    """Return rows whose structs are columns of their fields, at any depth.

    Where `names` are fields of untyped columns, they are null.
    """
    if not is_flat(rows.schema):
        columns = [c for name in rows.schema.names for c in _columns(name, rows.column(name))]
        own, arrays = zip(*columns, strict=True)
        rows = type(rows).from_arrays(list(arrays), names=list(own))
    if not names or not any(map(is_untyped, rows.schema.types)):
        return rows
    null = {field.name for field in rows.schema if is_untyped(field.type)}
    for name in _fields_of(null, names, {*rows.schema.names}):
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows


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
    null = {k for k, v in row.items() if v is None or (isinstance(v, float) and math.isnan(v))}
    return dict.fromkeys(_fields_of(null, [*names], row))


def roots(names: Iterable[str], there: Iterable[str]) -> list[str]:
    """Return the columns, of those there, that hold columns of these names; others as they are."""
    there = {*there}
    return [*dict.fromkeys(_root(name, there) for name in names)]


def _fields_of(null: set[str], names: Collection[str], there: Container[str]) -> list[str]:
    """Return which names that are not there are fields of columns that are null."""
    null = null.difference(names)  # a column that is read itself is no struct
    return [name for name in names if name not in there and _root(name, null) in null]


def _root(name: str, there: set[str]) -> str:
    return next((column for column in (name, *_above(name)) if column in there), name)


def _above(name: str) -> Iterator[str]:
    """Yield the columns whose field a name may be, the nearest first."""
    while name := name.rpartition(".")[0]:
        yield name


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
