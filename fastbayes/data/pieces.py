"""Where the integers of a table lie in memory, however many chunks its columns have."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
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

    Parameters
    ----------
    rows
        A record batch, or a table of any chunks.
    names
        The columns that matter.
    kernels
        The module `arrow`.
    """

    def __init__(self, rows: Rows, names: Sequence[str], kernels: ModuleType) -> None:
        self._rows, self._zeros = rows, np.empty(0, np.uint8)
        held = [name for name in names if _is_integers(rows.schema.field(name).type)]
        self._places = {name: place for place, name in enumerate(held)}
        chosen = rows.select(held)
        table = chosen if isinstance(chosen, pa.Table) else pa.Table.from_batches([chosen])
        self._fields = _laid_open(table, len(held), kernels)
        lengths = self._fields[:, :1, LENGTH] if held else np.zeros((0, 1), np.int64)
        self._ends = np.cumsum(lengths[:, 0])

    def integers(self, name: str) -> IntegerColumn:
        """Return where the integers of a column are, all pieces of one translation."""
        place = self._places[name]
        fields, column = self._fields[:, place], self._rows.column(name)
        kind = _kind_of(column.type)
        pieces = np.zeros((len(fields), FIELDS), np.int64)
        pieces[:, END] = self._ends
        pieces[:, VALUES] = fields[:, DATA]
        if not fields[:, DATA].all():  # as Arrow may have it where all is null
            self._zeros = np.zeros(8 * int((fields[:, LENGTH] + fields[:, OFFSET]).max()), np.uint8)
            pieces[fields[:, DATA] == 0, VALUES] = address_of(self._zeros)
        if kind == "b1":
            pieces[:, BIT] = fields[:, OFFSET]
        else:
            pieces[:, VALUES] += fields[:, OFFSET] * int(kind[1:])
        if column.null_count:
            pieces[:, VALIDITY] = np.where(fields[:, NULL_COUNT] == 0, 0, fields[:, BITMAP])
            pieces[:, VALID_BIT] = fields[:, OFFSET]
        return IntegerColumn(kind, pieces, self)

    def indices(self, name: str) -> tuple[IntegerColumn, list[tuple[pa.Array, int]]]:
        """Return where indices are, pieces by dictionary, and each dictionary with its rows."""
        found, column = self.integers(name), self._rows.column(name)
        keys = self._fields[:, self._places[name], ENTRIES:]
        if len(keys) == 0:
            return found, []
        if (keys == keys[0]).all():
            return found, [(_first(column).dictionary, found.n_rows)]
        number: dict[tuple[int, ...], int] = {}
        tables = [number.setdefault(tuple(key), len(number)) for key in keys.tolist()]
        found.pieces[:, TABLE] = tables
        starts = self._ends - np.diff(self._ends, prepend=0)
        rows = np.bincount(tables, np.diff(self._ends, prepend=0)).astype(np.int64)
        _, first = np.unique(tables, return_index=True)
        chunks = np.cumsum([len(chunk) for chunk in column.chunks])
        return found, [
            (column.chunk(int(chunk)).dictionary, int(n))
            for chunk, n in zip(
                np.searchsorted(chunks, starts[first], side="right"), rows, strict=True
            )
        ]


def chunks_of(column: Column) -> list[pa.Array]:
    """Return the chunks of a column that have rows, or its first."""
    if isinstance(column, pa.Array):
        return [column]
    return [chunk for chunk in column.chunks if len(chunk)] or [pa.array([], column.type)]


def integers_of(column: pa.Array) -> IntegerColumn:
    """Return where an array of integers is, all of one translation; nulls hold garbage."""
    validity, values = column.buffers()
    kind = np.dtype(column.type.to_pandas_dtype())
    held = np.frombuffer(values, kind)[column.offset :][: len(column)]
    bitmap = np.frombuffer(validity, np.uint8) if column.null_count else None
    return IntegerColumn.of(held, -1, bitmap, column.offset)


def _first(column: Column) -> pa.Array:
    """Return the first chunk that has rows."""
    if isinstance(column, pa.Array):
        return column
    return next(chunk for chunk in column.iterchunks() if len(chunk))


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


def _laid_open(table: pa.Table, n_columns: int, kernels: ModuleType) -> NDArray[np.int64]:
    """Return the fields of every column of each record batch that a table is cut into."""
    if not (table.num_rows and n_columns):
        return kernels.lay_open(np.zeros((0, WORDS), np.int64), n_columns)
    # There is a cut at most where a chunk ends.
    most = 1 + sum(column.num_chunks for column in table.columns)
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
