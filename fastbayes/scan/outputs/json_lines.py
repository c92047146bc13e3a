"""Rows as JSON lines: an object for each row, made column by column."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastbayes.data.unify import is_text

TEXT = pa.large_string()
# Characters that JSON text holds escaped alone.
ESCAPED = r'["\\\x00-\x1f]'
WHOLE = r"^-?\d+$"


def lines_of(batch: pa.RecordBatch) -> pa.Buffer:
    """Return rows as lines of JSON, in UTF-8.

    What is missing is null, and so are NaN and infinities, which JSON lacks. Floats have the digits
    that give them back, and a point or an exponent; dates and times are text of ISO 8601, with time
    zone in UTC ("Z"); decimals are numbers.
    """
    if not batch.num_rows:
        return pa.py_buffer(b"")
    lines = _objects(batch.schema.names, batch.columns, "\n")
    first, last = (lines.offset, lines.offset + len(lines))
    places = np.frombuffer(lines.buffers()[1], np.int64)
    return lines.buffers()[2].slice(places[first], places[last] - places[first])


def is_list(kind: pa.DataType) -> bool:
    """Return whether values of this type are lists, of any kind."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _objects(names: list[str], columns: list[pa.Array], end: str = "") -> pa.Array:
    """Return the text of an object for each row, none of them null."""
    parts: list[Any] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        key = f"{',' if i else '{'}{json.dumps(name, ensure_ascii=False)}:"
        parts += [_word(key), _text(column)]
    parts.append(_word(("}" if names else "{}") + end))
    return pc.binary_join_element_wise(*parts, _word(""))


def _word(text: str) -> pa.Scalar:
    return pa.scalar(text, TEXT)


def _text(column: pa.Array) -> pa.Array:
    """Return the JSON of each value, "null" for what is missing."""
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        text = _text(column.dictionary).take(column.indices)
    elif types.is_struct(kind):
        inner = column.flatten()
        text = pc.if_else(
            column.is_valid(), _objects([field.name for field in kind], inner), _word("null")
        )
    elif is_list(kind):
        text = _listed(column)
    elif types.is_boolean(kind):
        text = column.cast(pa.string()).cast(TEXT)
    elif types.is_floating(kind):
        text = _numbers(column)
    elif is_text(kind):
        text = _quoted(_escaped(column.cast(TEXT)))
    elif types.is_timestamp(kind):
        text = _quoted(_moments(column))
    else:
        text = column.cast(pa.string()).cast(TEXT)
        if types.is_temporal(kind):
            text = _quoted(text)
    return pc.fill_null(text, _word("null"))


def _quoted(text: pa.Array) -> pa.Array:
    mark = _word('"')
    return pc.binary_join_element_wise(mark, text, mark, _word(""))


def _escaped(text: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(text, ESCAPED)
    if not pc.any(special, min_count=0).as_py():
        return text
    values = text.filter(special).to_pylist()
    escaped = [json.dumps(value, ensure_ascii=False)[1:-1] for value in values]
    return pc.replace_with_mask(text, special.fill_null(False), pa.array(escaped, TEXT))


def _numbers(column: pa.Array) -> pa.Array:
    """Return the shortest digits of floats: with a point, so that readers infer no integers."""
    finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    if pa.types.is_float16(column.type):
        finite = finite.cast(pa.float32())
    text = finite.cast(pa.string()).cast(TEXT)
    pointed = pc.binary_join_element_wise(text, _word(".0"), _word(""))
    return pc.if_else(pc.match_substring_regex(text, WHOLE), pointed, text)


def _moments(column: pa.Array) -> pa.Array:
    """Return times as ISO 8601; those of a zone in UTC, which needs no database of zones."""
    zone = column.type.tz
    local = column.cast(pa.int64()).cast(pa.timestamp(column.type.unit))
    return pc.strftime(local, "%Y-%m-%dT%H:%M:%S" + ("Z" if zone else "")).cast(TEXT)


def _listed(column: pa.Array) -> pa.Array:
    """Return lists of JSON values; their texts are joined, list by list."""
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    places = column.offsets.to_numpy().astype(np.int64)
    inner = _text(column.values.slice(places[0], places[-1] - places[0]))
    lists = pa.LargeListArray.from_arrays(pa.array(places - places[0]), inner)
    joined = pc.binary_join(lists, _word(","))
    marks = _word("["), _word("]"), _word("")
    text = pc.binary_join_element_wise(marks[0], joined, *marks[1:])
    return pc.if_else(column.is_valid(), text, _word("null"))
