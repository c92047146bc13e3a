"""Data that a schema is applied to: read as at fit, and no more of them than is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from fastbayes.core.domains import domain
from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Schema
from fastbayes.data.segments import Source
from fastbayes.data.source import open_source
from fastbayes.data.unify import unknown_column


def open_for(
    schema: Schema,
    source: Any,
    *,
    also: Iterable[str] = (),
    rest: bool = False,
    filesystem: Any = None,
) -> tuple[Source, list[str]]:
    """Open data for a schema, with its null values and its types where a file has none.

    Returns a source of the features and what is wanted `also`, and of the `rest`, columns that the
    schema does not know, if these are wanted too; a stream that is read once keeps all columns.
    With it, the names of the columns that are neither in the schema nor in `also`. Raises
    SchemaError when a column is not there, which names it and close ones, and DataError when the
    data cannot be read.
    """
    asked = [*dict.fromkeys([*schema.names, *also])]
    known = {*asked, schema.target}
    options = {**as_at_fit(schema), "filesystem": filesystem}
    if not rest:
        opened = open_source(source, columns=asked, **options)
        return opened, [name for name in opened.available if name not in known]
    opened = open_source(source, **options)
    for name in asked:
        if name not in opened.available:
            raise SchemaError(unknown_column(name, opened.available, opened.description))
    others = [name for name in opened.available if name not in known]
    if opened.rereadable and len(asked) + len(others) < len(opened.available):
        opened = open_source(source, columns=[*asked, *others], **options)
    return opened, others


def as_at_fit(schema: Schema) -> dict[str, Any]:
    """Return the options of `open_source` that make it read what the schema was learned from."""
    # Of text files types are inferred, each time anew: "01" may be text.
    types = {f.name: pa.float64() for f in schema.numeric}
    for f in schema.categorical:
        if f.values is not None:
            types[f.name] = f.values.type if f.cuts is None else pa.float64()
    if schema.target is not None:
        types[schema.target] = schema.classes.type
    return {"null_values": schema.null_values or None, "types": _text_or_number(types)}


def as_told(
    categorical: str | int | Iterable[str | int] | None, domains: Mapping[str, Any] | None
) -> dict[str, pa.DataType]:
    """Return the types that make columns of a text file the categories they are said to be.

    A category is the text that stands there ("007"), unless its declared values are numbers.
    """
    picks = [categorical] if isinstance(categorical, (str, int)) else categorical or ()
    types = {name: pa.string() for name in picks if isinstance(name, str)}
    types |= {name: domain(name, values).type for name, values in (domains or {}).items()}
    return _text_or_number(types)


def _text_or_number(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    return {name: kind for name, kind in types.items() if kind in (pa.string(), pa.float64())}
