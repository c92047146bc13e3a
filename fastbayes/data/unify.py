"""One schema for many files: which columns, which types go together, and how batches follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.suggestions import did_you_mean
from fastbayes.core.text_tables import visible


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of this type are strings, in whatever encoding."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of this type are integers, floats or decimals."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def unify_types(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both, None where there is none.

    Null goes with anything, int with float, text with text in another encoding, a dictionary
    with one of another index width.
    """
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if (is_text(a) and is_text(b)) or (_is_binary(a) and _is_binary(b)):
        plain = pa.string() if is_text(a) else pa.binary()
        encoded = pa.types.is_dictionary(a) or pa.types.is_dictionary(b)
        return pa.dictionary(pa.int32(), plain) if encoded else plain
    if pa.types.is_dictionary(a) and pa.types.is_dictionary(b):
        values = unify_types(a.value_type, b.value_type)
        return None if values is None else pa.dictionary(pa.int32(), values)
    if is_number(a) and is_number(b):
        return _unify_numbers(a, b)
    return None


def _unify_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    t = pa.types
    for alike in (t.is_signed_integer, t.is_unsigned_integer, t.is_floating):
        if alike(a) and alike(b):
            return a if a.bit_width >= b.bit_width else b
    return pa.int64() if t.is_integer(a) and t.is_integer(b) else pa.float64()


def check_names(names: Sequence[str], where: str) -> None:
    """Raise SchemaError where two columns share a name, or there is none."""
    refuse(not names, f"{where} has no columns", SchemaError)
    if len(set(names)) < len(names):
        twice = next(name for j, name in enumerate(names) if name in names[:j])
        raise SchemaError(f"{where} has two columns named {twice!r}; rename or drop one")


def select(schema: pa.Schema, columns: Sequence[str] | None, where: str) -> pa.Schema:
    """Return the schema of `columns`, in their order; None means all.

    Raises SchemaError for an unknown column (names close ones and those there are), or one named
    twice.
    """
    check_names(schema.names, where)
    if columns is None:
        return schema.remove_metadata()
    if isinstance(columns, str):
        raise SchemaError(f"columns={columns!r}: give a list of names, [{columns!r}]")
    known = set(schema.names)
    for name in columns:
        if name not in known:
            raise SchemaError(unknown_column(name, schema.names, where))
    if len(set(columns)) < len(columns):
        check_names(list(columns), "the selection columns=")
    refuse(not columns, "columns=[] selects nothing; leave it out to take all columns", SchemaError)
    return pa.schema([schema.field(name) for name in columns])


def unknown_column(name: str, names: Sequence[str], where: str) -> str:
    """Return the message for a column that is not there: close matches, and what there is.

    It is one line, whatever the names hold.
    """
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    return visible(
        f"no column {name!r} in {where}; its columns are: {shown}{did_you_mean(name, names)}"
    )


def unify_schemas(parts: Iterable[tuple[str, pa.Schema]], strict: bool) -> pa.Schema:
    """Unify the schemas of several files; the columns of the first are the contract.

    A column that only a later file has is an error where that is `strict`, else ignored since the
    caller named the columns it wants. A SchemaError names the file and the column, or both files
    and both types.
    """
    iterator = iter(parts)
    first, schema = next(iterator)
    types: dict[str, tuple[pa.DataType, str]] = {f.name: (f.type, first) for f in schema}
    known = schema
    for origin, other in iterator:
        if other is known or other.equals(known):
            continue
        theirs = dict(zip(other.names, other.types, strict=True))
        for name in types:
            if name not in theirs:
                raise SchemaError(
                    f"{origin} has no column {name!r}, which {first} has; every file must have "
                    "the columns of the first"
                )
        if strict:
            for name in other.names:
                if name not in types:
                    raise SchemaError(
                        f"{origin} has a column {name!r} that {first} lacks; every file must have "
                        "the columns of the first (columns=[...] selects those to read)"
                    )
        for name, (mine, owner) in types.items():
            unified = unify_types(mine, theirs[name])
            if unified is None:
                raise SchemaError(
                    f"column {name!r} is {mine} in {owner} but {theirs[name]} in {origin}; give it "
                    f"one type in all files (in CSV, categorical=[{name!r}] reads it as text)"
                )
            if unified != mine:
                types[name] = (unified, origin)
        known = other
    return pa.schema([schema.field(name).with_type(kind) for name, (kind, _) in types.items()])


class Projection:
    """Brings batches to the schema of their source: order, types, extra null values."""

    def __init__(self, schema: pa.Schema, null_values: Sequence[str] | None = None) -> None:
        self.schema = schema
        self._nulls = pa.array(list(null_values), pa.string()) if null_values else None
        # The schema of the last batches that could be taken as they are.
        self._fitting = schema

    @property
    def blanks(self) -> bool:
        """Whether some texts mean missing."""
        return self._nulls is not None

    def onto(self, schema: pa.Schema) -> Projection:
        """Return the projection onto another schema."""
        other = Projection(schema)
        other._nulls = self._nulls
        return other

    def leaves(self, schema: pa.Schema) -> bool:
        """Return whether batches of a schema are left as they are."""
        return self._nulls is None and bool(schema.equals(self.schema))

    def conform(self, batch: pa.RecordBatch, origin: str) -> pa.RecordBatch:
        """Return the columns of the schema, in its order, cast where a type was unified."""
        given = batch.schema
        if given.equals(self._fitting):
            return batch
        positions = {name: j for j, name in enumerate(given.names)}
        columns, fits = [], given.names == self.schema.names
        for field in self.schema:
            if field.name not in positions:
                raise SchemaError(f"{origin}: column {field.name!r} is missing in a later batch")
            column = batch.column(positions[field.name])
            columns.append(cast := _cast(column, field, origin))
            fits = fits and cast is column  # which the types alone decide
        if fits:
            self._fitting = given
        if fits or not columns:
            return batch
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)

    def blank(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the texts that were declared to mean missing made null."""
        if self._nulls is None:
            return batch
        columns = [blanked(array, self._nulls) for array in batch.columns]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _cast(array: pa.Array, field: pa.Field, origin: str) -> pa.Array:
    have, want = array.type, field.type
    if have == want or pa.types.is_null(want):
        return array
    if pa.types.is_null(have):
        return pa.nulls(len(array), want)
    unified = unify_types(want, have)
    if unified is None:
        raise SchemaError(
            f"{origin}: column {field.name!r} is {have} in a later batch and {want} before; "
            "give it one type"
        )
    if is_text(want) or _is_binary(want):
        return array  # another encoding of the same values: whoever encodes merges by value
    if pa.types.is_dictionary(want):
        if have.value_type == want.value_type:
            return array
        values = array.dictionary.cast(want.value_type, safe=False)
        return pa.DictionaryArray.from_arrays(array.indices, values)
    try:
        # integers beyond 2**53 round to the nearest float64; an integer never wraps around
        return array.cast(unified, safe=bool(pa.types.is_integer(unified)))
    except pa.ArrowInvalid as error:
        raise DataError(f"{origin}: column {field.name!r}: {error}") from error


def blanked(array: pa.Array, nulls: pa.Array) -> pa.Array:
    """Return text in which what is listed in `nulls` is null; other columns as they are."""
    if not is_text(array.type):
        return array
    if pa.types.is_dictionary(array.type):
        values = blanked(array.dictionary, nulls)
        if values is array.dictionary:
            return array
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=array.type.ordered)
    plain = array if array.type == pa.string() else array.cast(pa.string())
    hit = pc.is_in(plain, nulls)
    if not pc.any(hit).as_py():
        return array
    return pc.if_else(hit, pa.scalar(None, pa.string()), plain)
