"""Columns of text in tables of counts: written so that they read back exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core.errors import DataError


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


def rows_of(names: Any, marked: Any) -> list[tuple[str, Any]]:
    """Return each name with the positions of its marked rows."""
    (rows,) = np.nonzero(marked)
    if not len(rows):
        return []
    distinct, inverse = np.unique(names[rows].astype(str), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    cuts = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    return [(str(v), rows[order[cuts[i] : cuts[i + 1]]]) for i, v in enumerate(distinct)]
