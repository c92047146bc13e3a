"""Columns of text in tables of counts: written so that they read back exactly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.domains import positions
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import Feature


def text(values: pa.Array) -> pa.Array:
    """Return a domain as text that reads back exactly."""
    if pa.types.is_floating(values.type):
        return pa.array([None if v is None else repr(v) for v in values.to_pylist()], pa.string())
    return values.cast(pa.string())


def parsed(name: str, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return text as values of a type."""
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(f"column {name!r}: {error}; give its type in `types`") from error


def strings(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table as text in one piece."""
    return table[name].cast(pa.string()).combine_chunks()


def codes_in(feature: Feature, cells: pa.Array) -> NDArray[np.int64]:
    """Return the codes of text in a domain, that of a missing value where it is null.

    Raises DataError when a value lies outside the domain; the message names the column.
    """
    assert feature.values is not None
    codes = positions(parsed(feature.name, cells, feature.values.type), feature.values)
    null = cells.is_null().to_numpy(zero_copy_only=False)
    if (outside := np.flatnonzero((codes < 0) & ~null)).size:
        raise DataError(
            f"column {feature.name!r}: value {cells[int(outside[0])].as_py()!r} is outside its "
            "domain; declare it in `domains`"
        )
    return np.where(null, feature.size, codes)


def check_columns(table: pa.Table, names: Iterable[str]) -> None:
    """Raise SchemaError unless a table has each of these columns once."""
    for name in names:
        if table.column_names.count(name) != 1:
            raise SchemaError(f"the table needs one column {name!r}; it has {table.column_names}")


def sides_of(table: pa.Table, rows: Any, *columns: tuple[str, str]) -> list[tuple[Any, pa.Array]]:
    """Return features and values of some rows, for the columns of each side of a pair."""
    texts = ([strings(table, key).take(pa.array(rows)) for key in both] for both in columns)
    return [(names.to_numpy(zero_copy_only=False), cells) for names, cells in texts]


def rows_of(names: Any, marked: Any) -> list[tuple[str, Any]]:
    """Return each name with the positions of its marked rows."""
    (rows,) = np.nonzero(marked)
    if not len(rows):
        return []
    distinct, inverse = np.unique(names[rows].astype(str), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    cuts = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    return [(str(v), rows[order[cuts[i] : cuts[i + 1]]]) for i, v in enumerate(distinct)]
