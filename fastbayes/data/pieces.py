"""Where the integers of a table lie in memory, however many chunks its columns have."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.data.segments import Rows
from fastbayes.kernels.shared.arrow import (
    BITMAP,
    DATA,
    ENTRIES,
    LENGTH,
    NULL_COUNT,
    OFFSET,
    RELEASE,
    WORDS,
)
from fastbayes.kernels.shared.columns import (
    BIT,
    END,
    FIELDS,
    TABLE,
    VALID_BIT,
    VALIDITY,
    VALUES,
    IntegerColumn,
    address_of,
)

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

# Words of an `ArrowArrayStream`; the functions do not let go of the interpreter's lock, as they
# take no longer than a call in Python does.
_GET_NEXT = 1
_get_next = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class Pieces:
    """Where the integers of columns lie: of integers, truth values and dictionary indices.

    One pass over the chunks describes all columns; no chunk becomes an object of Python.

    names    the columns that matter
    kernels  the module `arrow`
    """

    def __init__(self, rows: Rows, names: Sequence[str], kernels: ModuleType) -> None:
        self._rows, self._kernels = rows, kernels
        held = [name for name in names if _is_integers(rows.schema.field(name).type)]
        self._places = {name: place for place, name in enumerate(held)}

    @cached_property
    def _table(self) -> pa.Table:
        chosen = self._rows
        if chosen.schema.names != [*self._places]:  # `select` lets go of the interpreter's lock
            chosen = chosen.select([*self._places])
        return chosen if isinstance(chosen, pa.Table) else pa.Table.from_batches([chosen])

    @cached_property
    def _columns(self) -> list[pa.ChunkedArray]:
        columns: list[pa.ChunkedArray] = self._table.columns
        return columns

    @cached_property
    def _laid_open(self) -> tuple[list[IntegerColumn], NDArray[np.int64]]:
        """The columns, and what tells the dictionary of each piece, (n_columns, n_pieces, 5)."""
        kinds = [_kind_of(kind) for kind in self._table.schema.types]
        fields = _fields_of(self._table, self._columns, self._kernels).swapaxes(0, 1)
        pieces = np.zeros((*fields.shape[:2], FIELDS), np.int64)
        offset, values = fields[:, :, OFFSET], fields[:, :, DATA]
        zeros = np.empty(0, np.uint8)
        if not values.all():  # as Arrow may have it where all is null
            zeros = np.zeros(8 * int((fields[:, :, LENGTH] + offset).max()), np.uint8)
            values[values == 0] = address_of(zeros)
        truth = np.array([kind == "b1" for kind in kinds], np.bool_)[:, None]
        widths = np.array([int(kind[1:]) for kind in kinds], np.int64)[:, None]
        nulls = np.array([column.null_count for column in self._columns], np.int64)[:, None]
        known = (nulls == 0) | (fields[:, :, NULL_COUNT] == 0)
        pieces[:, :, END] = np.cumsum(fields[:, :, LENGTH], axis=1)
        pieces[:, :, VALUES] = values + np.where(truth, 0, offset * widths)
        pieces[:, :, BIT] = np.where(truth, offset, 0)
        pieces[:, :, VALIDITY] = np.where(known, 0, fields[:, :, BITMAP])
        pieces[:, :, VALID_BIT] = offset
        owner = self._rows, zeros
        columns = [IntegerColumn(*each, owner) for each in zip(kinds, pieces, strict=True)]
        return columns, fields[:, :, ENTRIES:]

    def integers(self, name: str) -> IntegerColumn:
        """Return where the integers of a column are, pieces of one dictionary as one of them."""
        return self._laid_open[0][self._places[name]]

    def dictionaries(self, name: str) -> list[tuple[pa.Array, int]]:
        """Return the dictionaries of a column in order, each with its rows."""
        place = self._places[name]
        column = self._columns[place]
        if len(chunks := chunks_of(column)) == 1:
            return [(chunks[0].dictionary, len(column))]
        found, keys = self.integers(name), self._laid_open[1][place].tolist()
        if keys.count(keys[0]) == len(keys):
            return [(chunks[0].dictionary, len(column))]
        number: dict[tuple[int, ...], int] = {}
        entries: list[pa.Array] = []
        rows: list[int] = []
        tables: list[int] = []
        lengths = (len(chunk) for chunk in chunks)
        start = chunk = 0
        behind = next(lengths)  # the row behind the chunk
        for end, key in zip(found.pieces[:, END].tolist(), map(tuple, keys), strict=True):
            if start >= behind:
                chunk, behind = chunk + 1, behind + next(lengths)
            table = number.setdefault(key, len(number))
            if table == len(rows):
                entries.append(chunks[chunk].dictionary)
                rows.append(0)
            rows[table] += end - start
            tables.append(table)
            start = end
        found.pieces[:, TABLE] = tables
        return list(zip(entries, rows, strict=True))


def chunks_of(column: Column) -> list[pa.Array]:
    """Return the chunks of a column that have rows, or its first."""
    if isinstance(column, pa.Array):
        return [column]
    if column.num_chunks == 1:
        return [column.chunk(0)]
    return [chunk for chunk in column.chunks if len(chunk)] or [pa.array([], column.type)]


def integers_of(column: pa.Array) -> IntegerColumn:
    """Return where an array of integers is, all of one translation; nulls hold garbage."""
    validity, values = column.buffers()
    kind = np.dtype(column.type.to_pandas_dtype())
    held = np.frombuffer(values, kind)[column.offset :][: len(column)]
    bitmap = np.frombuffer(validity, np.uint8) if column.null_count else None
    return IntegerColumn.of(held, -1, bitmap, column.offset)


def _is_integers(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_dictionary(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _kind_of(kind: pa.DataType) -> str:
    """Return what numpy calls the integers of a type."""
    if pa.types.is_boolean(kind):
        return "b1"
    if pa.types.is_dictionary(kind):
        kind = kind.index_type
    return f"{'i' if pa.types.is_signed_integer(kind) else 'u'}{kind.bit_width // 8}"


def _fields_of(
    table: pa.Table, columns: Sequence[pa.ChunkedArray], kernels: ModuleType
) -> NDArray[np.int64]:
    """Return the fields of every column of each record batch that a table is cut into."""
    n_columns = len(columns)
    if not (table.num_rows and n_columns):
        return kernels.lay_open(np.zeros((0, WORDS), np.int64), n_columns)
    # There is a cut at most where a chunk ends.
    most = 1 + sum(column.num_chunks for column in columns)
    batches = np.zeros((most, WORDS), np.int64)
    first = address_of(batches)
    n, capsule = 0, table.__arrow_c_stream__()
    try:
        stream = _pointer_of(capsule, b"arrow_array_stream")
        words = ctypes.cast(stream, ctypes.POINTER(ctypes.c_void_p))
        get_next = _get_next(words[_GET_NEXT])
        while True:
            at = first + n * batches.strides[0]
            if code := get_next(stream, at):
                raise OSError(code, "pyarrow could not describe a table")
            if not batches[n, RELEASE]:
                break
            n += 1
        return kernels.lay_open(batches[:n], n_columns)
    finally:
        # The table goes on holding the memory.
        for k in range(n):
            _release(int(batches[k, RELEASE]))(first + k * batches.strides[0])
