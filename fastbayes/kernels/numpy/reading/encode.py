"""Numpy twins of `fastbayes.kernels.compiled.reading.encode`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.numpy.reading.texts import add_texts as add_texts
from fastbayes.kernels.numpy.reading.texts import find_texts as find_texts
from fastbayes.kernels.numpy.reading.texts import indexed as indexed
from fastbayes.kernels.shared.columns import IntegerColumn, Translation, array_at


class CodeWriter:
    """Writes the codes of columns, block after block of rows; see the compiled twin."""

    def __init__(
        self,
        columns: Sequence[tuple[IntegerColumn, Sequence[Translation]]],
        rows: Sequence[NDArray[np.unsignedinteger]],
        memory: NDArray[np.uint8],
    ) -> None:
        self._columns, self._rows = columns, rows
        self.outside = np.zeros(len(columns), np.int64)
        self.watched = np.zeros(len(columns), np.int64)

    def write(self, first: int, n: int) -> None:
        """Write the codes of n rows from one on."""
        for j, ((column, translations), row) in enumerate(
            zip(self._columns, self._rows, strict=True)
        ):
            for part, table_of, values, known in _pieces(column, first, n):
                minimum, table, watched, own, _ = translations[table_of]
                n_entries = own + len(table) - 2
                places = _places(values, known, minimum, n_entries)
                row[part] = np.where(places < own, places, table[np.maximum(places - own, 0)])
                self.outside[j] += np.count_nonzero(places == n_entries)
                self.watched[j] += np.count_nonzero(row[part] == watched)


def occurring(column: IntegerColumn, minimum: int, n_entries: int) -> NDArray[np.bool_]:
    """Return which of the integers from `minimum` on occur, and last if there is any other."""
    marks = np.zeros(n_entries + 2, np.bool_)
    for _, _, values, known in _pieces(column, 0, column.n_rows):
        marks[_places(values, known, minimum, n_entries)] = True
    return marks[:-1]


def min_max(column: IntegerColumn) -> tuple[int, int]:
    """Return the least and the greatest known value, (1, 0) if there is none."""
    pieces = _pieces(column, 0, column.n_rows)
    found = [held for _, _, values, known in pieces if len(held := values[known])]
    if not found:
        return 1, 0
    return min(int(held.min()) for held in found), max(int(held.max()) for held in found)


def known_numbers(
    values: NDArray[np.float64], bitmap: NDArray[np.uint8], bit: int, out: NDArray[np.float64]
) -> None:
    """Copy numbers, NaN where a bitmap from one bit on says that they are not known."""
    out[:] = np.where(np.unpackbits(bitmap, bitorder="little")[bit:][: len(values)], values, np.nan)


def note_absent(
    classes: NDArray[np.unsignedinteger], marks: NDArray[np.bool_], absent: NDArray[np.int64]
) -> None:
    """Add to `absent` how many classes none of some rows has."""
    marks[:] = False
    marks[classes] = True
    absent[0] += np.count_nonzero(~marks)


def unbounded(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Return which columns hold a number that is infinite or NaN."""
    return np.array([not np.isfinite(column).all() for column in columns], np.bool_)


def _pieces(
    column: IntegerColumn, first: int, n: int
) -> Iterator[tuple[slice, int, NDArray[Any], NDArray[np.bool_]]]:
    """Yield, of the pieces of some rows, which of these they are, table, values, what is known."""
    start = 0
    for end, values, bit, validity, valid_bit, table in column.pieces.tolist():
        low, high = max(first - start, 0), min(first + n, end) - start
        if low < high:
            part = slice(start + low - first, start + high - first)
            if column.kind == "b1":
                held: NDArray[Any] = _bits(values, bit + low, high - low).astype(np.int64)
            else:
                width = int(column.kind[1:])
                held = array_at(values + width * low, high - low, column.kind)
            yield part, table, held, _bits(validity, valid_bit + low, high - low)
        start = end


def _places(
    values: NDArray[Any], known: NDArray[np.bool_], minimum: int, n_entries: int
) -> NDArray[Any]:
    """Return where rows stand in a table: n_entries if outside, one more if null."""
    if values.dtype.itemsize < 8:
        values = values.astype(np.int64)
    # Modulo 2^64 the difference is below n_entries for the values inside and for no other.
    far = values.astype(np.uint64) - np.uint64(minimum % 2**64)
    places = np.minimum(far, np.uint64(n_entries)).astype(np.intp)
    places[~known] = n_entries + 1
    return places


def _bits(bitmap: int, bit: int, n: int) -> NDArray[np.bool_]:
    """Return n bits of an Arrow bitmap (least significant first); no bitmap, all set."""
    if not bitmap:
        return np.ones(n, np.bool_)
    held = array_at(bitmap + bit // 8, (bit % 8 + n + 7) // 8, "u1")
    return np.unpackbits(held, bitorder="little")[bit % 8 :][:n].view(np.bool_)
