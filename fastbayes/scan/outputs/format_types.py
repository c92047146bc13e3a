"""Which types of columns each format of rows holds, asked before any of them is written."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as t

from fastbayes.core.errors import SchemaError
from fastbayes.data.unify import is_binary, is_text
from fastbayes.scan.outputs.json_lines import is_list


def check_types(kind: str, schema: pa.Schema) -> None:
    """Raise SchemaError where a format does not hold the type of a column."""
    if kind not in _HOLDS:
        return
    holds, what = _HOLDS[kind]
    held = {each: holds(each) for each in {*schema.types}}  # a thousand classes are of one type
    for field in schema:
        if not held[field.type]:
            instead = "Parquet" if _parquet_holds(field.type) else "Arrow IPC"  # which holds all
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which {what}; choose other columns by "
                f"`keys`, cast it to text, or write {instead}"
            )


def has_words(kind: pa.DataType) -> bool:
    """Return whether text says every value of a type."""
    return not is_bytes(kind) and implemented(lambda: pa.array([], kind).cast(pa.string()))


def implemented(work: Callable[[], object]) -> bool:
    """Return whether Arrow can do some work on a type, which only an attempt tells."""
    try:
        work()
    except pa.ArrowNotImplementedError:
        return False
    return True


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values of this type are bytes, which are no text even where they look it."""
    return is_binary(kind) or bool(t.is_fixed_size_binary(kind))


# What JSON and a Delta table hold both, and each of them besides.
_BOTH = is_text, t.is_integer, t.is_boolean, t.is_null, t.is_date, t.is_timestamp
_JSON = *_BOTH, t.is_floating, t.is_decimal, t.is_time
_DELTA = *_BOTH, is_bytes, t.is_float32, t.is_float64


def _json_holds(kind: pa.DataType) -> bool:
    if t.is_dictionary(kind) or is_list(kind):
        return _json_holds(kind.value_type)
    if t.is_struct(kind):
        return all(_json_holds(field.type) for field in kind)
    return any(test(kind) for test in _JSON)


def _delta_holds(kind: pa.DataType) -> bool:
    if t.is_dictionary(kind):
        return _delta_holds(kind.value_type)
    if t.is_nested(kind):  # a union is, too
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        return bool(inner) and not t.is_union(kind) and all(map(_delta_holds, inner))
    sound = t.is_decimal128(kind) and 0 <= kind.scale <= kind.precision
    return sound or any(test(kind) for test in _DELTA)


def _parquet_holds(kind: pa.DataType) -> bool:
    import pyarrow.parquet as pq

    schema = pa.schema([("column", kind)])
    try:
        return implemented(lambda: pq.write_metadata(schema, pa.BufferOutputStream()))
    except OSError:  # of a decimal that has less than no places, or more than digits
        return False


# By format, but for Arrow IPC, which holds all: whether it holds a type, and what is said where it
# does not.
_HOLDS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "csv": (has_words, "CSV does not hold"),
    "jsonl": (_json_holds, "JSON lines do not hold"),
    "delta": (_delta_holds, "a Delta table does not hold"),
    "parquet": (_parquet_holds, "Parquet does not hold"),
}
