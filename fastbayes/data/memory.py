"""Sources that are in memory or arrive as a stream: tables, frames, arrays, readers, iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data.segments import (
    SEGMENT_BLOCKS,
    Segment,
    Source,
    combine,
    numbers,
    reading,
    stream_segments,
)
from fastbayes.data.unify import Projection, select

TILE_CELLS = 1 << 14  # cells turned together: rows and columns of a tile stay in cache


class CellTypeError(DataError, TypeError):
    """A cell is neither a number nor a string, or does not go with the others of its column."""


class TableSource(Source):
    """An Arrow table; its segments are slices, copied only where a block crosses a chunk."""

    in_memory = True

    def __init__(
        self,
        table: pa.Table,
        *,
        columns: Sequence[str] | None = None,
        null_values: Sequence[str] | None = None,
        description: str = "pyarrow.Table",
        native: Any = None,
    ) -> None:
        self.schema = select(table.schema, columns, description)
        self.available = table.schema.names
        self.n_rows = table.num_rows
        self.description = description
        self.native = table if native is None else native
        self._table = table.select(self.schema.names)
        self._projection = Projection(self.schema, null_values)

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return slices of a few blocks."""
        return slices(self._table.num_rows, block_rows, partial(self._read, block_rows))

    def _read(self, block_rows: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        part = self._table.slice(start, stop - start)
        for first in range(0, part.num_rows, block_rows):
            block = part.slice(first, block_rows)
            columns = [combine(column.chunks) for column in block.columns]
            batch = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
            yield self._projection.blank(batch)


class ArraySource(Source):
    """A numpy array (n_rows, n_columns) of numbers; each block is transposed once, then shared."""

    in_memory = True

    def __init__(self, array: NDArray[Any], *, columns: Sequence[str] | None = None) -> None:
        self.description = f"numpy array of shape {array.shape}"
        array = native(array)
        kind = pa.from_numpy_dtype(array.dtype)
        names = [f"x{j}" for j in range(array.shape[1])]
        self.schema = select(pa.schema([(name, kind) for name in names]), columns, self.description)
        self.available = names
        self.n_rows = array.shape[0]
        self.native = array
        position = {name: j for j, name in enumerate(names)}
        chosen = [position[name] for name in self.schema.names]
        self._rows = array.T if columns is None else array.T[chosen]

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return slices of a few blocks."""
        return slices(self._rows.shape[1], block_rows, partial(self._read, block_rows))

    def _read(self, block_rows: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for first in range(start, stop, block_rows):
            block = self._rows[:, first : min(first + block_rows, stop)]
            if block.strides[1] != block.itemsize:
                block = turned(block)
            columns = [numbers(row) for row in block]
            yield pa.RecordBatch.from_arrays(columns, names=self.schema.names)


def turned(block: NDArray[Any]) -> NDArray[Any]:
    """Return a block of columns whose rows lie together as one whose columns do.

    A tile at a time, so that no line of memory is fetched for one of its numbers alone.
    """
    n_columns, n_rows = block.shape
    result = np.empty(block.shape, block.dtype)
    step = min(4096, max(128, TILE_CELLS // max(1, n_columns)))
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        result[:, rows] = block[:, rows]
    return result


def native(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in the machine's byte order, floats as float32 or float64."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        return array.astype(np.float32 if array.dtype.itemsize < 4 else np.float64)
    return array


class StreamSource(Source):
    """Record batches that come one after another, pulled in the thread that asks for segments."""

    n_rows: int | None = None

    def __init__(
        self,
        open_stream: Callable[[], Iterable[pa.RecordBatch]],
        schema: pa.Schema,
        *,
        rereadable: bool,
        columns: Sequence[str] | None = None,
        null_values: Sequence[str] | None = None,
        description: str,
        native: Any = None,
    ) -> None:
        self.schema = select(schema, columns, description)
        self.available = schema.names
        self.rereadable = rereadable
        self.description = description
        self.native = native
        self._open = open_stream
        self._used = False
        self._complete = columns is None
        self._projection = Projection(self.schema, null_values)

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the stream in pieces of a few blocks."""
        if self._used and not self.rereadable:
            raise DataError(
                f"{self.description} can be read only once and has been; pass a table, a path or "
                "a function's result anew for a second scan"
            )
        self._used = True
        return self._segments(block_rows)

    def _segments(self, block_rows: int) -> Iterator[Segment]:
        pieces = stream_segments(self._conformed(), block_rows)
        for index, (first, blocks) in enumerate(pieces):
            n_rows = sum(batch.num_rows for batch in blocks)
            read = partial(map, self._projection.blank, blocks)
            yield Segment(index, "", first, n_rows, read)

    def _conformed(self) -> Iterator[pa.RecordBatch]:
        with reading(self.description):
            for batch in self._open():
                if self._complete and batch.num_columns > len(self.schema):
                    select(batch.schema, None, self.description)
                    late = next(n for n in batch.schema.names if n not in self.schema.names)
                    raise SchemaError(
                        f"{self.description}: a later batch has a column {late!r} that the first "
                        "lacks; columns=[...] selects those to read"
                    )
                yield self._projection.conform(batch, self.description)


def slices(
    n_rows: int, block_rows: int, read: Callable[[int, int], Iterator[pa.RecordBatch]]
) -> Iterator[Segment]:
    """Yield segments of a few blocks over `n_rows` rows in memory."""
    step = SEGMENT_BLOCKS * block_rows
    for index, start in enumerate(range(0, n_rows, step)):
        stop = min(start + step, n_rows)
        yield Segment(index, "", start, stop - start, partial(read, start, stop))


def table_of(columns: dict[str, Any], description: str) -> pa.Table:
    """Return a table of equally long columns: arrays, lists, series, Arrow arrays."""
    arrays = {str(name): arrow_array(values, str(name)) for name, values in columns.items()}
    if len(arrays) < len(columns):
        names = [str(name) for name in columns]
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(f"{description} has two columns named {twice!r}; rename or drop one")
    lengths = {name: len(array) for name, array in arrays.items()}
    for name, length in lengths.items():
        first, rows = next(iter(lengths.items()))
        if length != rows:
            raise DataError(
                f"column {name!r} has {length} rows but column {first!r} has {rows}; all columns "
                "must be equally long"
            )
    return pa.table(arrays)


def arrow_array(values: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a column as Arrow array; None and NaN among objects are null, NaN in floats stays."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise DataError(f"column {name!r} has shape {values.shape}; a column has one dimension")
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise DataError(f"column {name!r} is {type(values).__name__}, not an array or list")
    if type(getattr(values, "dtype", None)).__name__ == "SparseDtype":
        values = np.asarray(values)  # of pandas, which Arrow does not know
    try:
        foreign = not type(values).__module__.startswith("pandas")
        if foreign and hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        if type(values) is np.ndarray and values.dtype.kind in "fiub":
            return numbers(np.ascontiguousarray(native(values)))
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        misfit = _misfit(values)
        if misfit is None:
            raise DataError(f"column {name!r} cannot be read: {error}") from error
        raise CellTypeError(f"column {name!r}, {misfit}") from error


def _misfit(values: Iterable[Any]) -> str | None:
    """Say which cell does not go with the first known one."""
    first: tuple[int, Any, str] | None = None
    for row, value in enumerate(values):
        if value is None or (isinstance(value, float) and value != value):
            continue
        kind = _kind(value)
        shown = f"{str(value)[:40]!r} ({type(value).__name__})"
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return f"row {row}: {value} does not fit in 64 bits; use floats or text"
        if kind == "other":
            return f"row {row}: argument must be a string or a real number, not {shown}"
        if first is None:
            first = (row, shown, kind)
        elif kind != first[2]:
            return (
                f"row {row}: {shown} is a {kind}, but row {first[0]} holds {first[1]}, a "
                f"{first[2]}; make the column one type, for instance text"
            )
    return None


def _kind(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "truth value"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bytes):
        return "byte string"
    real = isinstance(value, int | float | np.integer | np.floating) or hasattr(value, "as_tuple")
    return "number" if real else "other"
