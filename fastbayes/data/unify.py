"""One schema for many files: which columns, which types go together, and how batches follow."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fastbayes.core.domains import beyond, decoded
from fastbayes.core.doubles import doubles
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.picks import Chooser, Every, Selection, unknown_column
from fastbayes.data.nested import flat, flat_schema, is_untyped, opened


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of this type are strings, in whatever encoding."""
    kind = decoded(kind)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values of this type are bytes of any length, in whatever encoding."""
    kind, types = decoded(kind), pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type of values side by side instead of views, of which Arrow takes no rows."""
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def without_dictionary(column: pa.Array) -> pa.Array:
    """Return values one after another, where a dictionary encodes them."""
    kind = column.type
    if not pa.types.is_dictionary(kind):
        return column
    plain = pa.dictionary(kind.index_type, without_views(kind.value_type), kind.ordered)
    return (column if kind == plain else column.cast(plain)).dictionary_decode()


# Some of these float64 cannot tell apart.
LONG_INTEGERS = (pa.int64(), pa.uint64())


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of this type are integers, floats or decimals."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def unify_types(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both, None where there is none.

    Null goes with anything. Integers become the wider of them, signed and unsigned ones int64,
    integers and floats float64; text goes with text in another encoding, a dictionary with one of
    another index width. Dates and timestamps become those of the finer unit, where a date is its
    midnight; of two time zones, or of one and none, there is no type. Times of day become those of
    the finer unit, too. There is no type for text and numbers together, for dates and either of
    these, or for times of day and dates.
    """
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if (is_text(a) and is_text(b)) or (is_binary(a) and is_binary(b)):
        plain = pa.string() if is_text(a) else pa.binary()
        encoded = pa.types.is_dictionary(a) or pa.types.is_dictionary(b)
        return pa.dictionary(pa.int32(), plain) if encoded else plain
    if pa.types.is_dictionary(a) and pa.types.is_dictionary(b):
        values = unify_types(a.value_type, b.value_type)
        return None if values is None else pa.dictionary(pa.int32(), values)
    if is_number(a) and is_number(b):
        return _unify_numbers(a, b)
    if is_moment(a) and is_moment(b):
        return _unify_moments(a, b)
    return None


def _unify_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    t = pa.types
    for alike in (t.is_signed_integer, t.is_unsigned_integer, t.is_floating):
        if alike(a) and alike(b):
            return a if a.bit_width >= b.bit_width else b
    return pa.int64() if t.is_integer(a) and t.is_integer(b) else pa.float64()


def is_moment(kind: pa.DataType) -> bool:
    """Return whether values of this type are dates, timestamps or times of day."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def _unify_moments(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date64()
    if pa.types.is_time(a) and pa.types.is_time(b):
        return max(a, b, key=lambda kind: _UNITS.index(kind.unit))
    if pa.types.is_time(a) or pa.types.is_time(b):
        return None
    units = {pa.date32(): "s", pa.date64(): "ms"}
    both = [pa.timestamp(units[kind]) if kind in units else kind for kind in (a, b)]
    if both[0].tz != both[1].tz:
        return None
    return max(both, key=lambda kind: _UNITS.index(kind.unit))


_UNITS = "s", "ms", "us", "ns"


def check_names(names: Sequence[str], where: str) -> None:
    """Raise SchemaError where two columns share a name, or there is none."""
    refuse(not names, f"{where} has no columns", SchemaError)
    if len(set(names)) < len(names):
        twice = next(name for j, name in enumerate(names) if name in names[:j])
        raise SchemaError(f"{where} has two columns named {twice!r}; rename or drop one")


# Names of columns to read, in their order, or what selects them; None for all.
Columns: TypeAlias = "Sequence[str] | Chooser | None"


def asked_of(columns: Columns) -> Sequence[str]:
    """Return the names that a selection says itself, whether or not there are such columns."""
    return columns.asked if isinstance(columns, Chooser) else columns or ()


def readable(schema: pa.Schema, columns: Columns) -> pa.Schema:
    """Return the columns that may be read: fields of structs, also of untyped ones if asked for."""
    schema = flat_schema(schema)
    if columns is None or not any(map(is_untyped, schema.types)):
        return schema
    return opened([schema], asked_of(columns))[0]


def names_of(
    columns: Columns, schema: pa.Schema, where: str, index: Sequence[str] | None = None
) -> list[str] | None:
    """Return the names of the columns to read, out of those that there are; None for all.

    `index` are those that were the index of a pandas frame, as far as the schema does not tell.
    """
    if isinstance(columns, Chooser):
        return columns.of(schema.names, where, index_columns(schema) if index is None else index)
    return None if columns is None else list(columns)


# What pyarrow calls an index of pandas that has no name, or the name of a column.
_INDEX = re.compile(r"__index_level_\d+__")
# Alone in the metadata of pandas, which have an object for each column besides.
_SAID = re.compile(rb'"index_columns"\s*:\s*(?=\[)')
_JSON = json.JSONDecoder()


def index_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that were the index of a pandas frame: by its metadata, or their names.

    The metadata may tell of some that the schema lacks.
    """
    metadata = (schema.metadata or {}).get(b"pandas", b"")
    told: list[Any] = []  # names, and objects for indices that are ranges
    if (found := _SAID.search(metadata)) is not None:
        with suppress(ValueError):
            told = _JSON.raw_decode(metadata[found.end() :].decode())[0]
    named = [n for n in schema.names if n.startswith("__index_level_") and _INDEX.fullmatch(n)]
    return [*dict.fromkeys([*(name for name in told if isinstance(name, str)), *named])]


def takes_all(columns: Columns) -> bool:
    """Return whether all columns are read but for those that are left out by name."""
    said = columns.columns if isinstance(columns, Selection) else columns
    return said is None or isinstance(said, Every)


def select(
    schema: pa.Schema, columns: Columns, where: str, index: Sequence[str] | None = None
) -> pa.Schema:
    """Return the schema of `columns`, in their order; None means all; `index` as in `names_of`.

    Raises SchemaError for an unknown column (names close ones and those there are), or one named
    twice.
    """
    check_names(schema.names, where)
    if isinstance(columns, str):
        raise SchemaError(f"columns={columns!r}: give a list of names, [{columns!r}]")
    columns = names_of(columns, schema, where, index)
    if columns is None or columns == schema.names:
        return schema.remove_metadata()
    known = set(schema.names)
    for name in columns:
        if name not in known:
            there = index_columns(schema) if index is None else index
            raise SchemaError(unknown_column(name, schema.names, where, there))
    if len(set(columns)) < len(columns):
        check_names(list(columns), "the selection columns=")
    refuse(not columns, "columns=[] selects nothing; leave it out to take all columns", SchemaError)
    return pa.schema([schema.field(name) for name in columns])


@dataclass(frozen=True)
class ColumnsOfFiles:
    """Columns of files that are alike, and which files these are.

    files   their names in messages, at least one
    absent  whether a column that is not among them is null in all rows (formats that omit nulls)
    """

    schema: pa.Schema
    files: list[str]
    absent: bool = False


def unify_schemas(
    parts: Sequence[ColumnsOfFiles],
    mode: str = "union",
    columns: Columns = None,
    where: str = "",
) -> pa.Schema:
    """Unify the schemas of several files.

    Parameters
    ----------
    parts
        Columns of the files, in their order.
    mode
        "union": all columns of all files, null where a file lacks one; "first": those of the first
        file, which the others must have, whatever more they have; "strict": those of the first,
        and neither more nor of other types. Types go together as `unify_types` says; in "strict"
        only null, and text in another encoding.
    columns
        The columns that are wanted, in this order; None: all.
    where
        Name of all files together, for messages.

    Raises
    ------
    SchemaError
        For a column that no file has, two of one name in a file, and files that do not fit
        together: names both.
    """
    for part in parts:
        check_names(part.schema.names, part.files[0])
    first = parts[0]
    wanted = _wanted(parts, mode, columns, where)
    index = index_of(parts)
    types: dict[str, tuple[pa.DataType, str]] = {}
    for part in parts:
        if mode != "union":
            every = mode == "strict" and takes_all(columns)
            more = [n for n in part.schema.names if every and (columns is None or n in columns)]
            more = [n for n in more if n not in index or n in wanted]
            _check_columns(part, first, wanted, more)
        for name in wanted:
            if name not in part.schema.names:
                continue
            kind = part.schema.field(name).type
            mine, owner = types.get(name, (kind, part.files[0]))
            unified = unify_types(mine, kind)
            if unified is None or (mode == "strict" and not _alike(mine, kind)):
                raise SchemaError(_of_two_types(name, mine, owner, kind, part.files[0]))
            if name not in types or unified != mine:
                types[name] = unified, part.files[0]
    held = {field.name: field for part in reversed(parts) for field in part.schema}
    return pa.schema([held[name].with_type(types[name][0]) for name in wanted])


def index_of(parts: Sequence[ColumnsOfFiles]) -> set[str]:
    """Return the columns that were the index of a pandas frame in some of the files."""
    return {name for part in parts for name in index_columns(part.schema)}


def _wanted(parts: Sequence[ColumnsOfFiles], mode: str, columns: Columns, where: str) -> list[str]:
    """Return the names of the columns that are read; raises what `select` does."""
    here = parts if mode == "union" else parts[:1]
    known = dict.fromkeys(name for part in here for name in part.schema.names)
    schema = pa.schema([(name, pa.null()) for name in known])
    return [*select(schema, columns, where, [*index_of(parts)]).names]


def _check_columns(
    part: ColumnsOfFiles, first: ColumnsOfFiles, wanted: Sequence[str], more: Sequence[str]
) -> None:
    """Raise SchemaError where files lack a wanted column of the first, which `more` must be in."""
    own = {*part.schema.names}
    for name in wanted:
        if name not in own and not part.absent:
            raise SchemaError(
                f"{part.files[0]} has no column {name!r}, which {first.files[0]} has; every file "
                "must have the columns of the first (schema_mode='union': it is null there)"
            )
    for name in more:
        if name not in first.schema.names:
            raise SchemaError(
                f"{part.files[0]} has a column {name!r} that {first.files[0]} lacks; every file "
                "must have the columns of the first (columns=[...] selects those to read)"
            )


def _alike(a: pa.DataType, b: pa.DataType) -> bool:
    """Return whether types are the same but for the encoding of text, or null."""
    return a == b or pa.types.is_null(a) or pa.types.is_null(b) or (is_text(a) and is_text(b))


def _of_two_types(name: str, mine: pa.DataType, owner: str, kind: pa.DataType, file: str) -> str:
    return (
        f"column {name!r} is {decoded(mine)} in {owner} but {decoded(kind)} in {file}; give it "
        f"one type in all files (in CSV, categorical=[{name!r}] reads it as text)"
    )


def odd_ones(
    parts: Sequence[ColumnsOfFiles], mode: str, columns: Columns, where: str
) -> dict[int, SchemaError]:
    """Return which parts cannot be read with the others, by position, with the reason.

    Those with two columns of one name; of a column that has several types, none of which holds the
    others, all but the type that most files have, the first of those; then files that are not as
    the `mode` wants them by the first. Raises SchemaError where none are left.
    """
    odd: dict[int, SchemaError] = {}
    left = dict(enumerate(parts))
    for i, part in enumerate(parts):
        try:
            check_names(part.schema.names, part.files[0])
        except SchemaError as error:
            odd[i] = error
            del left[i]
    if not left:
        raise odd[0]
    wanted = {*_wanted([*left.values()], mode, columns, where)}
    for name in dict.fromkeys(n for part in left.values() for n in part.schema.names):
        if name not in wanted:
            continue
        families: list[tuple[pa.DataType, list[int]]] = []
        for i, part in left.items():
            if name not in part.schema.names:
                continue
            kind = part.schema.field(name).type
            if pa.types.is_null(kind):
                continue
            for j, (common, members) in enumerate(families):
                if (wider := unify_types(common, kind)) is not None:
                    families[j] = wider, [*members, i]
                    break
            else:
                families.append((kind, [i]))
        if len(families) < 2:
            continue
        most = max(families, key=lambda family: sum(len(left[i].files) for i in family[1]))
        owner = left[most[1][0]].files[0]
        for kind, members in families:
            for i in members if kind is not most[0] else ():
                file = left.pop(i).files[0]
                odd[i] = SchemaError(_of_two_types(name, most[0], owner, kind, file))
    if mode != "union":
        first = next(iter(left.values()))
        for i, part in [*left.items()]:
            try:
                unify_schemas([first, part], mode, columns, first.files[0])
            except SchemaError as error:
                odd[i] = error
    return odd


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
        batch = flat(batch, self.schema.names)
        given = batch.schema
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
    if is_text(want) or is_binary(want):
        return array  # another encoding of the same values: whoever encodes merges by value
    if decoded(want) == pa.float64() and decoded(have) in LONG_INTEGERS:
        # Numbers round to the nearest float64, categories must not: whoever encodes knows which.
        return array
    if pa.types.is_dictionary(want):
        if have.value_type == want.value_type:
            return array
        entries = pa.field(field.name, want.value_type)
        values = _cast(array.dictionary, entries, origin)
        return pa.DictionaryArray.from_arrays(array.indices, values)
    if unified == pa.float64():
        return doubles(array)
    try:
        return array.cast(unified, safe=not pa.types.is_floating(unified))
    except pa.ArrowInvalid as error:
        what = f"{origin}: column {field.name!r}"
        if have == pa.uint64():
            raise DataError(f"{what}: {beyond(pc.max(array), want)}") from error
        raise DataError(f"{what}: {error}") from error


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
