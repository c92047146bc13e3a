"""Rows of several row groups as the kernels decoded them, which become Arrow's where it is needed.

Counting needs to know where integers and dictionary indices lie, and no object of Arrow for each
column of each row group: these would take longer than the count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.kernels.shared import pages as p
from fastbayes.kernels.shared.columns import END, FIELDS, TABLE, VALIDITY, VALUES, IntegerColumn
from fastbayes.kernels.shared.columns import address_of as address_of

_INDICES = {1: pa.uint8(), 2: pa.uint16(), 4: pa.int32()}


class DecodedRows:
    """Rows of row groups one behind the other; a table and `Pieces` of it in one.

    Parameters
    ----------
    schema
        The columns.
    rows
        (n_groups,), rows of each row group.
    columns
        (n_groups, n_columns, N_COLUMN): where their values are in `out`; those of a column are
        equally wide in all row groups.
    out
        What was decoded.
    dictionaries
        Of each column of each row group, None where there is none.
    reader
        What decoded them.
    """

    def __init__(
        self,
        schema: pa.Schema,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        out: NDArray[np.uint8],
        dictionaries: Sequence[Sequence[pa.Array | None]],
        reader: Any = None,
    ) -> None:
        self.schema = schema
        self.num_rows = int(rows.sum())
        self._rows, self._columns, self._out = rows, columns, out
        self._dictionaries = dictionaries
        self.reader = reader
        self._places = {name: j for j, name in enumerate(schema.names)}

    # -- as a table ----------------------------------------------------------------------------

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column as Arrow has it, a chunk for each row group."""
        return pa.chunked_array(self._arrays(self._places[name]))

    @cached_property
    def table(self) -> pa.Table:
        """The rows as a table; of dictionaries the indices may be narrower than the schema says."""
        return pa.table([self.column(name) for name in self._places], names=self.schema.names)

    def __getattr__(self, name: str) -> Any:
        """Return what a table has of this name."""
        return getattr(self.table, name)

    def batches(self) -> list[pa.RecordBatch]:
        """Return a record batch for each row group."""
        columns = [self._arrays(j) for j in range(len(self._places))]
        return [
            pa.RecordBatch.from_arrays(list(arrays), names=self.schema.names)
            for arrays in zip(*columns, strict=True)
        ]

    def _arrays(self, j: int) -> list[pa.Array]:
        kind = self.schema.field(j).type
        return [
            arrow_array(kind, self._columns[k, j], n, self._out, self._dictionaries[k][j])
            for k, n in enumerate(self._rows.tolist())
        ]

    # -- as pieces -----------------------------------------------------------------------------

    @cached_property
    def _pieces(self) -> NDArray[np.int64]:
        """What tells where the values of each column lie, (n_columns, n_groups, FIELDS)."""
        columns = self._columns.swapaxes(0, 1)
        pieces = np.zeros((*columns.shape[:2], FIELDS), np.int64)
        pieces[:, :, END] = np.cumsum(self._rows)
        pieces[:, :, VALUES] = columns[:, :, p.OUT] + address_of(self._out)
        for (j, k), bits in zip(self._with_nulls, self._bitmaps, strict=True):
            pieces[j, k, VALIDITY] = address_of(bits)
        return pieces

    @cached_property
    def _with_nulls(self) -> list[list[int]]:
        """Column and row group of each chunk that has nulls."""
        found: list[list[int]] = np.argwhere(self._columns[:, :, p.NULLS].T > 0).tolist()
        return found

    @cached_property
    def _bitmaps(self) -> list[NDArray[np.uint8]]:
        """Which values of these are known."""
        return [
            packed(self._out, int(self._columns[k, j, p.KNOWN]), int(self._rows[k]))
            for j, k in self._with_nulls
        ]

    def bitmaps(self) -> list[tuple[int, NDArray[np.uint8]]]:
        """Return which values are known of the chunks that have nulls, by their numbers."""
        n = len(self._places)
        chunks = [k * n + j for j, k in self._with_nulls]
        return [*zip(chunks, self._bitmaps, strict=True)]

    @cached_property
    def _kinds(self) -> list[str]:
        """What numpy calls the integers of each column."""
        signed = map(pa.types.is_signed_integer, self.schema.types)
        units = self._columns[0, :, p.UNIT].tolist()
        return [f"{'i' if s else 'u'}{unit}" for s, unit in zip(signed, units, strict=True)]

    def integers(self, name: str) -> IntegerColumn:
        """Return where the integers of a column are; truth values are bytes here."""
        j = self._places[name]
        return IntegerColumn(self._kinds[j], self._pieces[j], (self, self._bitmaps))

    def owns(self, column: IntegerColumn) -> bool:
        """Return whether integers are of these rows, and not what was made of them."""
        return isinstance(column.owner, tuple) and column.owner[0] is self

    def dictionaries(self, name: str) -> list[tuple[pa.Array, int]]:
        """Return the dictionaries of a column in order, each with its rows."""
        j = self._places[name]
        first = self._dictionaries[0][j]
        if all(held[j] is first for held in self._dictionaries):
            return [(first, self.num_rows)]
        number: dict[int, int] = {}
        found: list[tuple[pa.Array, int]] = []
        tables = []
        for held, n in zip(self._dictionaries, self._rows.tolist(), strict=True):
            entries = held[j]
            table = number.setdefault(id(entries), len(number))
            if table == len(found):
                found.append((entries, 0))
            found[table] = entries, found[table][1] + n
            tables.append(table)
        self._pieces[j, :, TABLE] = tables
        return found


def is_indices(schema: pa.Schema) -> bool:
    """Return whether all columns are indices into dictionaries, or truth values."""
    types = pa.types
    return all(types.is_dictionary(kind) or types.is_boolean(kind) for kind in schema.types)


def arrow_array(
    kind: pa.DataType,
    column: NDArray[np.int64],
    n: int,
    out: NDArray[np.uint8],
    dictionary: pa.Array | None,
) -> pa.Array:
    """Return the first n rows of a column that are in `out`; of texts `dictionary` is theirs."""
    of, unit, start, known, nulls = column[[p.KIND, p.UNIT, p.OUT, p.KNOWN, p.NULLS]].tolist()
    validity = None
    if nulls:  # of all rows that are there
        nulls = n - int(np.count_nonzero(out[known : known + n]))
        validity = pa.py_buffer(packed(out, known, n)) if nulls else None
    if of == p.TRUTHS:
        values = pa.py_buffer(packed(out, start, n))
        return pa.Array.from_buffers(kind, n, [validity, values], nulls)
    values = pa.py_buffer(out).slice(start, n * unit)
    if of != p.STRINGS:
        return pa.Array.from_buffers(kind, n, [validity, values], nulls)
    indexed = _indexed(unit, kind.value_type)
    return pa.DictionaryArray.from_buffers(indexed, n, [validity, values], dictionary, nulls)


def packed(flags: NDArray[np.uint8], first: int, n: int) -> NDArray[np.uint8]:
    """Return n bytes from one on as bits."""
    return np.packbits(flags[first : first + n], bitorder="little")


@cache
def _indexed(unit: int, values: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary whose indices take so many bytes."""
    return pa.dictionary(_INDICES[unit], values)
