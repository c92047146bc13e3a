"""Numpy twins of `fastbayes.kernels.compiled.encode`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.numpy.texts import add_texts as add_texts
from fastbayes.kernels.numpy.texts import find_texts as find_texts
from fastbayes.kernels.numpy.texts import indexed as indexed
from fastbayes.kernels.shared.columns import IntegerColumn, Translation


class CodeWriter:
    """Writes the codes of columns, block after block of rows; see the compiled twin."""

    def __init__(
        self,
        columns: Sequence[tuple[IntegerColumn, Translation]],
        rows: Sequence[NDArray[np.unsignedinteger]],
    ) -> None:
        self._columns, self._rows = columns, rows
        self.outside = np.zeros(len(columns), np.int64)
        self.watched = np.zeros(len(columns), np.int64)

    def write(self, first: int, n: int) -> None:
        """Write the codes of n rows from one on."""
        for j, ((column, (minimum, table, watched, own, _)), row) in enumerate(
            zip(self._columns, self._rows, strict=True)
        ):
            n_entries = own + len(table) - 2
            places = _places(column, minimum, n_entries, first, n)
            row[:n] = np.where(places < own, places, table[np.maximum(places - own, 0)])
            self.outside[j] += np.count_nonzero(places == n_entries)
            self.watched[j] += np.count_nonzero(row[:n] == watched)


def occurring(column: IntegerColumn, minimum: int, n_entries: int, n: int) -> NDArray[np.bool_]:
    """Return which of the integers from `minimum` on occur, and last if there is any other."""
    marks = np.zeros(n_entries + 2, np.bool_)
    marks[_places(column, minimum, n_entries, 0, n)] = True
    return marks[:-1]


def min_max(column: IntegerColumn, n: int) -> tuple[int, int]:
    """Return the least and the greatest known value of n rows, (1, 0) if there is none."""
    values = column.values[:n][_bits(column.validity, column.valid_bit, n)]
    return (int(values.min()), int(values.max())) if len(values) else (1, 0)


def _places(
    column: IntegerColumn, minimum: int, n_entries: int, first: int, n: int
) -> NDArray[Any]:
    """Return where rows stand in a table: n_entries if outside, one more if null."""
    if column.bit >= 0:
        values = _bits(column.values, column.bit + first, n).astype(np.int64)
    else:
        values = column.values[first : first + n]
        if values.dtype.itemsize < 8:
            values = values.astype(np.int64)
    # Modulo 2^64 the difference is below n_entries for the values inside and for no other.
    far = values.astype(np.uint64) - np.uint64(minimum % 2**64)
    places = np.minimum(far, np.uint64(n_entries)).astype(np.intp)
    places[~_bits(column.validity, column.valid_bit + first, n)] = n_entries + 1
    return places


def _bits(bitmap: NDArray[np.uint8] | None, bit: int, n: int) -> NDArray[np.bool_]:
    """Return n bits of an Arrow bitmap (least significant first); no bitmap, all set."""
    if bitmap is None:
        return np.ones(n, np.bool_)
    bits = np.unpackbits(bitmap[bit // 8 : (bit + n + 7) // 8], bitorder="little")
    return bits[bit % 8 :][:n].view(np.bool_)
