"""Which fold each row of a source belongs to: by its place, or by a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data.encode import Encoder, filtered
from fastbayes.data.segments import Segment, Source, SourceView

Codes = NDArray[np.int64]


class Folds(ABC):
    """Numbers the fold of every row, whatever the threads.

    Attributes
    ----------
    column
        Name of the column that tells the fold; None where it is the place.
    """

    column: str | None = None

    @abstractmethod
    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""

    @abstractmethod
    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in their final order, and their names; to be asked after a scan."""


class FoldsByPlace(Folds):
    """Folds of equal size: every k rows in succession fall into k folds, in a random order."""

    def __init__(self, k: int, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise ValueError(f"seed={seed!r}: use a whole number")
        self.k, self.seed = k, int(seed)

    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""
        n, k = rows.num_rows, self.k
        first, last = done // k, -(-(done + n) // k)
        at = np.arange(first * k, last * k, dtype=np.uint64)
        start = np.array([self.seed % (1 << 64), segment.index], np.uint64)
        start = scrambled(start)[:1] ^ scrambled(scrambled(start)[1:])
        order = np.argsort(scrambled(at ^ start).reshape(-1, k), axis=1, kind="stable")
        folds = np.empty(order.shape, np.int64)
        np.put_along_axis(folds, order, np.arange(k)[None], axis=1)
        return folds.reshape(-1)[done - first * k :][:n]

    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in their order, and their numbers."""
        return list(range(self.k)), tuple(map(str, range(self.k)))


class FoldsByColumn(Folds):
    """A fold for each value of a column."""

    def __init__(self, columns: pa.Schema, column: str) -> None:
        if column not in columns.names:
            raise SchemaError(f"folds: there is no column {column!r}; there are {columns.names}")
        self.column = column
        self._encoder = Encoder.learning(columns.empty_table().select([column]).schema, column)

    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""
        place = segment.place(done)
        encoded = self._encoder.encode(rows, place)
        if encoded.dropped:
            null = rows.column(self.column).is_null(nan_is_null=True)
            at = pc.index(null, True).as_py()
            raise DataError(
                f"column {self.column!r}, {place.row(at)}: there is no fold; name one for each row"
            )
        assert encoded.batch.classes is not None
        return encoded.batch.classes.astype(np.int64)

    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in the order of the column's values, and these as text."""
        book: Any = self._encoder.target
        values = book.values()
        order = pc.array_sort_indices(values).to_pylist()
        return order, tuple(str(values[i].as_py()) for i in order)


def scrambled(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well mixed bits of each number (splitmix64: Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


class WithoutFold(SourceView):
    """A source without the rows of one fold."""

    def __init__(self, source: Source, folds: Folds, fold: int) -> None:
        super().__init__(source)  # of more rows than there are: `n_rows` tells how big it is
        self.folds, self.fold = folds, fold

    def only(self, columns: Sequence[str]) -> Source:
        """Return the source with these of its columns."""
        if self.folds.column is not None:
            columns = [*columns, self.folds.column]
        return WithoutFold(self.source.only(columns), self.folds, self.fold)

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the segments of the source without the fold's rows."""
        for segment in self.source.segments(block_rows):
            yield replace(segment, read=partial(self._read, segment), n_rows=None)

    def _read(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        done = 0
        for rows in segment.batches():
            kept = self.folds.of(segment, done, rows) != self.fold
            done += rows.num_rows
            if kept.any():
                yield filtered(rows, kept)
