"""Columns that stand beside the data: labels and weights given as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data.segments import Segment, Source, SourceView, combine


def to_array(name: str, values: Any) -> pa.Array:
    """Return labels or weights as one Arrow array, categories kept."""
    if isinstance(values, pa.ChunkedArray):
        return combine(values.chunks) if values.num_chunks else pa.array([], values.type)
    if isinstance(values, pa.Array):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return to_array(name, pa.chunked_array(values))
    if hasattr(values, "__arrow_c_array__"):
        return pa.array(values)
    if not isinstance(values, Iterable):
        raise SchemaError(
            f"{name!r} is {type(values).__name__}: give a column name, or one value per row"
        )
    if len(shape := getattr(values, "shape", (0,))) != 1:
        raise SchemaError(f"{name!r} has shape {shape}: give one value per row")
    if isinstance(values, np.ndarray):
        kind = np.float64 if values.dtype.char == "g" else values.dtype.newbyteorder("=")
        values = values.astype(kind, copy=False)  # extended precision, foreign byte order
    elif not hasattr(values, "dtype"):
        values = list(values)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"{name!r} cannot be one column ({error}); give numbers, strings or truth values"
        ) from error


class Joined(SourceView):
    """A source held in memory with further columns, Arrow arrays as long as it."""

    in_memory = True

    def __init__(self, source: Source, columns: Mapping[str, pa.Array]) -> None:
        if not source.in_memory or source.n_rows is None:
            raise SchemaError(
                f"{source.description} is read as a stream: name a column of it instead of "
                "passing an array of labels or weights"
            )
        super().__init__(source)
        self.columns = dict(columns)
        for name, column in self.columns.items():
            if len(column) != self.n_rows:
                raise DataError(
                    f"{name!r} has {len(column)} entries, but there are {self.n_rows} rows"
                )
            if name in self.schema.names:
                raise SchemaError(f"there is a column {name!r} already; rename the array")
            self.schema = self.schema.append(pa.field(name, column.type))

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the segments of the source with the columns beside them."""
        start = 0
        for segment in self.source.segments(block_rows):
            yield replace(segment, read=partial(self._read, segment, start))
            assert segment.n_rows is not None
            start += segment.n_rows

    def _read(self, segment: Segment, start: int) -> Iterator[pa.RecordBatch]:
        for batch in segment.batches():
            beside = [c.slice(start, batch.num_rows) for c in self.columns.values()]
            names = [*batch.schema.names, *self.columns]
            start += batch.num_rows
            yield pa.RecordBatch.from_arrays([*batch.columns, *beside], names=names)


class Renamed(SourceView):
    """A source whose columns go by other names, position by position."""

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        super().__init__(source)
        self.names = list(names)
        self.schema = pa.schema(
            [field.with_name(n) for field, n in zip(source.schema, self.names, strict=True)]
        )
        self.in_memory = source.in_memory

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the segments of the source under the new names."""
        for segment in self.source.segments(block_rows):
            yield replace(segment, read=partial(self._read, segment))

    def _read(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        for batch in segment.batches():
            yield batch.rename_columns(self.names)


def declared_domains(frame: Any, columns: Iterable[str] | None = None) -> dict[str, list[Any]]:
    """Return the categories that a pandas or polars frame declares for its columns.

    They are read off the object: a pandas CategoricalDtype or a polars Enum is a promise about
    the domain, the dictionary of an Arrow array is only an encoding. `columns` are those that
    take part; all by default.
    """
    module = type(frame).__module__.partition(".")[0]
    if module == "pandas" and hasattr(frame, "dtypes") and hasattr(frame, "columns"):
        kinds = zip(map(str, frame.columns), frame.dtypes, strict=True)
        declared = {n: list(k.categories) for n, k in kinds if hasattr(k, "categories")}
    elif module == "polars" and hasattr(frame, "collect_schema"):
        # What `schema` gives, without the warning that a LazyFrame has to work for it.
        schema = frame.collect_schema().items()
        declared = {n: k.categories.to_list() for n, k in schema if type(k).__name__ == "Enum"}
    else:
        return {}
    wanted = set(declared if columns is None else columns)
    return {name: values for name, values in declared.items() if values and name in wanted}


def declared_values(values: Any) -> list[Any] | None:
    """Return the categories that a pandas or polars series declares, None where it does not."""
    kind: Any = getattr(values, "dtype", None)
    module = type(values).__module__.partition(".")[0]
    if module == "pandas" and hasattr(kind, "categories"):
        return list(kind.categories) or None
    if module == "polars" and type(kind).__name__ == "Enum":
        return list(kind.categories) or None
    return None


def is_name(y: Any) -> bool:
    """Return whether `y` names a column rather than being labels."""
    return isinstance(y, (str, np.str_))
