"""Sources that are in memory or arrive as a stream: tables, frames, arrays, readers, iterators."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.domains import array_of
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.numbers import is_whole
from fastbayes.core.picks import Every
from fastbayes.data.nested import flat, roots
from fastbayes.data.segments import (
    SEGMENT_BLOCKS,
    Rows,
    Segment,
    Source,
    SourceView,
    combine,
    numbers,
    one_batch,
    reading,
    row_bytes,
    stream_segments,
    value_bytes,
    waiting,
)
from fastbayes.data.unify import Columns, check_names, select

TILE_CELLS = 1 << 14  # cells turned together: rows and columns of a tile stay in cache


class CellTypeError(DataError, TypeError):
    """A cell is neither a number nor a string, or does not go with the others of its column."""


class TableSource(Source):
    """An Arrow table; its segments are slices, of few blocks copied where one crosses a chunk."""

    in_memory = many_blocks = True

    def __init__(
        self,
        table: pa.Table,
        *,
        columns: Columns = None,
        null_values: Sequence[str] | None = None,
        description: str = "pyarrow.Table",
        native: Any = None,
    ) -> None:
        native = table if native is None else native
        super().__init__(table.schema, columns, null_values, description, native)
        self.n_rows = table.num_rows
        self._table = flat(table, self.schema.names).select(self.schema.names)

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return slices of a few blocks."""
        return slices(self._table.num_rows, block_rows, partial(self._read, block_rows))

    def only(self, columns: Sequence[str]) -> TableSource:
        """Return the source with these columns."""
        fewer = copy.copy(self)
        fewer.schema = pa.schema([self.schema.field(name) for name in columns])
        fewer._table = self._table.select(list(columns))
        fewer._projection = self._projection.onto(fewer.schema)
        return fewer

    def coded(self) -> TableSource:
        """Return the table with dictionaries instead of texts, of a block of rows at most.

        Sound texts alone: the others are reported where they are looked up.
        """
        if self._table.num_rows > BLOCK_ROWS or self._projection.blanks:
            return self
        plain = pa.string(), pa.large_string()
        coded, columns = copy.copy(self), self._table.columns
        for place, column in enumerate(columns):
            if column.type not in plain:
                continue
            with suppress(pa.ArrowInvalid):
                column.validate(full=True)
                columns[place] = column.dictionary_encode()
        # All at once: to set a column of a table makes an object of every other.
        coded._table = pa.table(columns, self._table.schema.names)
        coded.schema = coded._table.schema.with_metadata(self.schema.metadata)
        coded._projection = self._projection.onto(coded.schema)
        return coded

    def is_indexed(self, target: str | None) -> bool:
        """Return whether all columns are dictionaries, and the target has no nulls."""
        if self._projection.blanks or not all(map(pa.types.is_dictionary, self.schema.types)):
            return False
        return target is None or not self._table.column(target).null_count

    def held(self, threads: int) -> int:
        """Return about how many bytes threads hold: values converted, blocks of several chunks."""
        there = [*(column.type for column in self._table.columns if column.num_chunks <= 1)]
        taken = row_bytes(self.schema) - sum(map(value_bytes, there))
        types = pa.types
        as_is = sum(types.is_dictionary(kind) or types.is_float64(kind) for kind in there)
        taken += 8 * (len(there) - as_is)
        return threads * self.rows_of_block() * taken

    def _read(self, block_rows: int, start: int, stop: int) -> Iterator[Rows]:
        for first in range(start, stop, block_rows):
            block = _rows(self._table, first, min(block_rows, stop - first))
            if block_rows > BLOCK_ROWS and not self._projection.blanks:
                yield block
            else:
                yield self._projection.blank(one_batch(block))


def _rows(table: pa.Table, first: int, n: int) -> pa.Table:
    """Return rows of a table; to slice all of them would make an object of each column."""
    return table if n == table.num_rows else table.slice(first, n)


class ArraySource(Source):
    """A numpy array (n_rows, n_columns) of numbers; each block is transposed once, then shared."""

    in_memory = True

    def __init__(self, array: NDArray[Any], *, columns: Columns = None) -> None:
        array = native(array)
        kind = pa.from_numpy_dtype(array.dtype)
        schema = pa.schema([(f"x{j}", kind) for j in range(array.shape[1])])
        super().__init__(schema, columns, None, f"numpy array of shape {array.shape}", array)
        self.n_rows = array.shape[0]
        chosen = [schema.get_field_index(name) for name in self.schema.names]
        self._rows = array.T if self.schema.names == schema.names else array.T[chosen]

    def only(self, columns: Sequence[str]) -> ArraySource:
        """Return the source with these columns."""
        fewer = copy.copy(self)
        fewer.schema = pa.schema([self.schema.field(name) for name in columns])
        at = [self.schema.get_field_index(name) for name in columns]
        near = at == [*range(at[0], at[0] + len(at))] if at else False
        fewer._rows = self._rows[at[0] : at[0] + len(at)] if near else self._rows[at]
        return fewer

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


def _as_arrow_has_it(kind: np.dtype[Any]) -> bool:
    """Return whether Arrow has this byte order, and floats of this precision."""
    return kind.isnative and kind.char != "g"


class StreamSource(Source):
    """Record batches that come one after another, pulled in the thread that asks for segments."""

    def __init__(
        self,
        open_stream: Callable[[], Iterable[pa.RecordBatch]],
        schema: pa.Schema,
        *,
        rereadable: bool,
        columns: Columns = None,
        null_values: Sequence[str] | None = None,
        description: str,
        native: Any = None,
    ) -> None:
        super().__init__(schema, columns, null_values, description, native)
        self.rereadable = rereadable
        self._open = open_stream
        self._scans: list[None] = []  # which sources of the same stream share
        self._complete = columns is None or isinstance(columns, Every)

    def only(self, columns: Sequence[str]) -> StreamSource:
        """Return the source with these columns."""
        fewer = copy.copy(self)
        fewer.schema = pa.schema([self.schema.field(name) for name in columns])
        fewer._projection = self._projection.onto(fewer.schema)
        return fewer

    def held(self, threads: int) -> int:
        """Return about how many bytes wait for threads, a piece each."""
        return waiting(threads) * SEGMENT_BLOCKS * self.rows_of_block() * row_bytes(self.schema)

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the stream in pieces of a few blocks."""
        refuse(
            bool(self._scans) and not self.rereadable,
            f"{self.description} can be read only once and has been; pass a table, a path or "
            "a function's result anew for a second scan",
        )
        self._scans.append(None)
        return self._segments(block_rows)

    def _segments(self, block_rows: int) -> Iterator[Segment]:
        pieces = stream_segments(self._conformed(), block_rows)
        for index, (first, blocks) in enumerate(pieces):
            n_rows = sum(batch.num_rows for batch in blocks)
            read = partial(map, self._projection.blank, blocks)
            yield Segment(index, "", first, n_rows, read, first)

    def _conformed(self) -> Iterator[pa.RecordBatch]:
        with reading(self.description):
            for given in self._open():
                batch = flat(given)
                names = batch.schema.names
                if self._complete and names != self.available:
                    select(batch.schema, None, self.description)
                    known = {*roots(self.available, names)}
                    late = next((name for name in names if name not in known), None)
                    # Of columns that a batch lacks besides, what reads it tells.
                    alone = known <= {*names} or roots([late or ""], known) != [late]
                    if late is not None and alone:
                        raise SchemaError(
                            f"{self.description}: a later batch has a column {late!r} that the "
                            "first lacks; columns=[...] selects those to read"
                        )
                yield self._projection.conform(batch, self.description)


def slices(
    n_rows: int, block_rows: int, read: Callable[[int, int], Iterator[Rows]]
) -> Iterator[Segment]:
    """Yield segments of a few blocks over `n_rows` rows in memory, or of one batch of many."""
    sum_rows = SEGMENT_BLOCKS * min(block_rows, BLOCK_ROWS)
    step = max(sum_rows, block_rows)
    for index, start in enumerate(range(0, n_rows, step)):
        stop = min(start + step, n_rows)
        yield Segment(index, "", start, stop - start, partial(read, start, stop), start, sum_rows)


def table_of(columns: dict[str, Any], description: str) -> pa.Table:
    """Return a table of equally long columns: arrays, lists, series, Arrow arrays."""
    check_names([str(name) for name in columns], description)
    for name in columns:
        try:
            str(name).encode()
        except UnicodeEncodeError as error:
            raise SchemaError(
                f"{description} has a column named {str(name)!a}, which is no text ({error}): "
                "rename it"
            ) from error
    arrays = {str(name): arrow_array(values, str(name)) for name, values in columns.items()}
    first = next(iter(arrays))
    for name, array in arrays.items():
        refuse(
            len(array) != len(arrays[first]),
            f"column {name!r} has {len(array)} rows but column {first!r} has "
            f"{len(arrays[first])}; all columns must be equally long",
        )
    return pa.table(arrays)


def arrow_array(values: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a column as Arrow array; None and NaN among objects are null, NaN in floats stays."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise DataError(f"column {name!r} has shape {values.shape}; a column has one dimension")
    refuse(
        isinstance(values, str | bytes) or not isinstance(values, Iterable),
        f"column {name!r} is {type(values).__name__}, not an array or list",
    )
    values = worded(values)
    if type(getattr(values, "dtype", None)).__name__ == "SparseDtype":
        values = np.asarray(values)  # of pandas, which Arrow does not know
    kind = getattr(values, "dtype", None)
    if isinstance(kind, np.dtype) and not _as_arrow_has_it(kind):
        values = native(np.asarray(values))
    if kind is None and isinstance(values, Iterator):
        values = [*values]  # they are looked at more than once
    try:
        foreign = not type(values).__module__.startswith("pandas")
        if foreign and hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        if type(values) is np.ndarray and values.dtype.kind in "fiub":
            return numbers(np.ascontiguousarray(native(values)))
        return _exact(values, array_of(_dated(values)), name)
    except DataError:  # of a field
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if (misfit := _misfit(values)) is None:
            raise DataError(f"column {name!r} cannot be read: {error}") from error
        raise CellTypeError(f"column {name!r}, {misfit}") from error


def _dated(values: Any) -> Any:
    """Return an array where all known objects are dates of numpy, or durations; others as they are.

    Arrow takes few units of single ones, and no two units together.
    """
    if not _is_objects(values):
        return values
    kind = type(next((value for value in values if not is_missing(value)), None))
    if kind not in (np.datetime64, np.timedelta64):
        return values
    cells = [None if is_missing(value) else value for value in values]
    if any(value is not None and type(value) is not kind for value in cells):
        return values
    found = np.array(cells, np.dtype(kind))
    if len({value.dtype for value in cells if value is not None}) == 1:
        return found
    for row, value in enumerate(cells):
        if value is not None and found[row].astype(value.dtype) != value:  # numpy wraps around
            raise OverflowError(
                f"row {row}: {value!r} is beyond what {found.dtype} holds, the unit of the column; "
                "give numbers or text"
            )
    return found


def _is_objects(values: Any) -> bool:
    """Return whether Arrow has to find a type for objects of Python."""
    # Of numpy: categories and texts of pandas say that they are objects, too, and become some.
    return getattr(values, "dtype", np.dtype(object)) == np.dtype(object)


def _exact(values: Any, found: pa.Array, name: str) -> pa.Array:
    """Return what Arrow made of objects, without what it makes up of dates and times.

    The first one gives it the type: it takes the day of later timestamps for a date, numbers for
    days or microseconds, what has a zone for what has none, and no nanoseconds. Raises TypeError
    where objects are of several kinds.
    """
    kind = found.type
    if not _is_objects(values) or not _holds_times(kind):
        return found
    if pa.types.is_struct(kind):
        rows = [value if isinstance(value, Mapping) else {} for value in values]
        inner = [arrow_array([row.get(f.name) for row in rows], f"{name}.{f.name}") for f in kind]
        null = pa.array([not isinstance(value, Mapping) for value in values])
        return pa.StructArray.from_arrays(inner, [f.name for f in kind], mask=null)
    types = {*map(type, values)}
    odd = types - {date, datetime, time, timedelta} - _NUMERIC
    empty = {each for each in odd if is_missing(next(v for v in values if type(v) is each))}
    known = (value for value in values if type(value) not in empty) if empty else values
    kinds = {*map(_family, types - empty)}
    zones = {*map(_zone, {*map(attrgetter("tzinfo"), known)})} if kinds <= _ZONED else set()
    if max(len(kinds), len(zones)) > 1 and _misfit(values):
        raise TypeError("dates and times of several kinds")
    nanoseconds = "nanoseconds" if pa.types.is_duration(kind) else "nanosecond"  # of pandas
    if not any(hasattr(each, nanoseconds) for each in types - empty):
        return found
    more = (0 if type(v) in empty else getattr(v, nanoseconds, 0) for v in values)
    return _finer(found, np.fromiter(more, np.int64, len(values)))


def _holds_times(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_times(field.type) for field in kind)
    return bool(pa.types.is_temporal(kind))


def _finer(found: pa.Array, nanoseconds: NDArray[np.int64]) -> pa.Array:
    """Return timestamps or durations of microseconds with nanoseconds besides, if there are any."""
    if not nanoseconds.any():
        return found
    whole = found.cast(pa.int64()).fill_null(0).to_numpy()
    most = ((1 << 63) - 1) // 1000 - 1
    if (beyond := np.abs(whole) > most).any():
        row = int(beyond.argmax())
        raise OverflowError(
            f"row {row}: {found[row].as_py()} is beyond what nanoseconds hold, which other rows "
            "have; round these to microseconds, or give numbers or text"
        )
    kind = pa.duration("ns")
    if not pa.types.is_duration(found.type):
        kind = pa.timestamp("ns", found.type.tz)
    null = found.is_null().to_numpy(zero_copy_only=False)
    return pa.array(whole * 1000 + nanoseconds, mask=null).cast(kind)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    different = value != value
    # Whether NA differs from anything is NA.
    return bool(different) if isinstance(different, bool | np.bool_) else different is value


# Of these no value is missing, and most objects are one of them.
_KNOWN = frozenset({str, bool, int})


def missing_cells(cells: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Return which objects are missing, each as `is_missing` has it."""
    found = (type(cell) not in _KNOWN and is_missing(cell) for cell in cells)
    return np.fromiter(found, np.bool_, len(cells))


def _misfit(values: Iterable[Any]) -> str | None:
    """Say which cell does not go with the first known one."""
    first: tuple[int, Any, str] | None = None  # row, value and kind
    beyond: str | None = None
    for row, value in enumerate(values):
        if is_missing(value):
            continue
        kind = _kind(value)
        whole = int(value) if is_whole(value) else 0
        if not -(2**63) <= whole < 2**64:
            return f"row {row}: {value} does not fit in 64 bits; use floats or text"
        if beyond is None and whole >= 2**63:
            beyond = (
                f"row {row}: {value} does not fit in 64 bits beside negative numbers or fractions; "
                "use floats or text"
            )
        if kind == "other":
            return f"row {row}: argument must be a string or a real number, not {_shown(value)}"
        if first is None:
            first = (row, value, kind)
        elif kind != first[2]:
            return (
                f"row {row}: {_shown(value)} is a {kind}, but row {first[0]} holds "
                f"{_shown(first[1])}, a {first[2]}; make the column one type, for instance text"
            )
    return beyond


def _shown(value: Any) -> str:
    return f"{str(value)[:40]!r} ({type(value).__name__})"


_KINDS: dict[str, tuple[type, ...]] = {
    "truth value": (bool, np.bool_),
    "string": (str,),
    "byte string": (bytes,),
    "date of numpy": (np.datetime64,),
    "duration of numpy": (np.timedelta64,),  # one of numpy's integers, too
    "timestamp": (datetime,),  # a date, too
    "date": (date,),
    "time of day": (time,),
    "duration": (timedelta,),
    "number": (int, float, np.integer, np.floating, Decimal),
}


# Of which those of one time zone go together, or of none.
_ZONED = {"timestamp", "time of day"}
# Of these types some values are missing and others are not.
_NUMERIC = {float, np.float64, np.float32, np.float16, Decimal, np.datetime64, np.timedelta64}


def _kind(value: Any) -> str:
    kind = _family(type(value))
    zone = _zone(value.tzinfo) if kind in _ZONED else ""
    return f"{kind} of {zone}" if zone else kind


def _family(of: type) -> str:
    return next((kind for kind, types in _KINDS.items() if issubclass(of, types)), "other")


def _zone(zone: tzinfo | None) -> str:
    """Return what Arrow calls a time zone, "" for none."""
    return "" if zone is None else str(pa.lib.tzinfo_to_string(zone))


def to_array(name: str, values: Any) -> pa.Array:
    """Return labels or weights as one Arrow array, categories kept."""
    if isinstance(values, pa.ChunkedArray):
        return combine(values.chunks) if values.num_chunks else pa.array([], values.type)
    if isinstance(values, pa.Array):
        return values
    if hasattr(values, "iloc") and (
        n := values.shape[1:]
    ):  # a pandas frame: its index is no column
        refuse(n != (1,), f"{name!r} is a table of {n[0]} columns: give one of them", SchemaError)
        values = values.iloc[:, 0]
    values = worded(values)
    if isinstance(kind := getattr(values, "dtype", None), np.dtype) and not _as_arrow_has_it(kind):
        values = values.astype(np.float64 if kind.char == "g" else kind.newbyteorder("="))
    if hasattr(values, "__arrow_c_stream__"):
        column = pa.chunked_array(values)
        if pa.types.is_struct(column.type):  # a table
            refuse(
                (n := column.type.num_fields) != 1,
                f"{name!r} is a table of {n} columns: give one of them",
                SchemaError,
            )
            column = column.flatten()[0]
        return to_array(name, column)
    if hasattr(values, "__arrow_c_array__"):
        return pa.array(values)
    refuse(
        not isinstance(values, Iterable),
        f"{name!r} is {type(values).__name__}: give a column name, or one value per row",
        SchemaError,
    )
    refuse(
        len(shape := getattr(values, "shape", (0,))) != 1,
        f"{name!r} has shape {shape}: give one value per row",
        SchemaError,
    )
    if not hasattr(values, "dtype"):
        values = list(values)
    try:
        return array_of(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"{name!r} cannot be one column ({error}); give numbers, strings or truth values"
        ) from error


class Joined(SourceView):
    """A source held in memory with further columns, Arrow arrays as long as it."""

    in_memory = True

    def __init__(self, source: Source, columns: Mapping[str, pa.Array]) -> None:
        refuse(
            not source.in_memory or source.n_rows is None,
            f"{source.description} is read as a stream: name a column of it instead of "
            "passing an array of labels or weights",
            SchemaError,
        )
        schema, self.columns = source.schema, dict(columns)
        for name, column in self.columns.items():
            refuse(
                len(column) != source.n_rows,
                f"{name!r} has {len(column)} entries, but there are {source.n_rows} rows",
            )
            refuse(
                name in schema.names,
                f"there is a column {name!r} already; rename the array",
                SchemaError,
            )
            schema = schema.append(pa.field(name, column.type))
        super().__init__(source, schema)
        self.many_blocks = source.many_blocks

    def only(self, columns: Sequence[str]) -> Source:
        """Return the source with these columns."""
        beside = {name: self.columns[name] for name in columns if name in self.columns}
        own = [name for name in columns if name not in beside]
        rows = self.source.only(own or self.source.schema.names[:1])  # there must be rows
        return Joined(rows, beside) if beside else rows

    def coded(self) -> Joined:
        """Return the source with dictionaries instead of its texts; the other columns stay."""
        return Joined(self.source.coded(), self.columns)

    def view(self, segment: Segment) -> Iterator[Rows]:
        """Yield the batches of a segment joined with the other columns."""
        start = segment.first_row  # known of what is in memory
        for batch in segment.batches():
            beside = [c.slice(start, batch.num_rows) for c in self.columns.values()]
            names = [*batch.schema.names, *self.columns]
            start += batch.num_rows
            yield type(batch).from_arrays([*batch.columns, *beside], names=names)


class Filled(SourceView):
    """A source with further columns, in which every value is missing."""

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self.names = list(names)
        nulls = [pa.field(name, pa.null()) for name in self.names]
        super().__init__(source, pa.schema([*source.schema, *nulls]))
        self.in_memory = source.in_memory

    def view(self, segment: Segment) -> Iterator[Rows]:
        """Yield the batches of a segment with the columns that it lacks."""
        for batch in segment.batches():
            nulls = [pa.nulls(batch.num_rows)] * len(self.names)
            names = [*batch.schema.names, *self.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *nulls], names=names)


class Renamed(SourceView):
    """A source whose columns go by other names, position by position."""

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self.names = list(names)
        fields = zip(source.schema, self.names, strict=True)
        super().__init__(source, pa.schema([field.with_name(n) for field, n in fields]))
        self.in_memory, self.many_blocks = source.in_memory, source.many_blocks

    def view(self, segment: Segment) -> Iterator[Rows]:
        """Yield the batches of a segment under the new names."""
        return (batch.rename_columns(self.names) for batch in segment.batches())


def declared_domains(frame: Any, columns: Iterable[str] | None = None) -> dict[str, list[Any]]:
    """Return the categories that a pandas or polars frame, or a dict, declares for its columns.

    They are read off the object: a pandas CategoricalDtype or a polars Enum is a promise about
    the domain, the dictionary of an Arrow array is only an encoding. `columns` are those that
    take part; all by default.
    """
    columns_of: Iterable[tuple[Any, Any]]
    module = type(frame).__module__.partition(".")[0]
    if module == "pandas" and hasattr(frame, "dtypes") and hasattr(frame, "columns"):
        columns_of = zip(frame.columns, frame.dtypes, strict=True)
    elif module == "polars" and hasattr(frame, "collect_schema"):
        # What `schema` gives, without the warning that a LazyFrame has to work for it.
        columns_of = frame.collect_schema().items()
    elif isinstance(frame, Mapping):
        columns_of = ((name, getattr(values, "dtype", None)) for name, values in frame.items())
    else:
        return {}
    declared = dict(each for name, kind in columns_of for each in _declared(str(name), kind))
    wanted = set(declared if columns is None else columns)
    return {name: values for name, values in declared.items() if values and name in wanted}


def _declared(name: str, kind: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the columns that a column of a type is read as, and the values that it declares."""
    module, what = type(kind).__module__.partition(".")[0], type(kind).__name__
    if (module == "pandas" and hasattr(kind, "categories")) or (module, what) == ("polars", "Enum"):
        yield name, _categories(kind)
    elif (module, what) == ("polars", "Struct"):
        for field in kind.fields:
            yield from _declared(f"{name}.{field.name}", field.dtype)


def declared_values(values: Any) -> list[Any] | None:
    """Return the categories that a pandas or polars series declares, None where it does not.

    A frame of one column is as good as a series.
    """
    if hasattr(type(values), "columns"):
        return next(iter(declared_domains(values).values()), None)
    declared = (found for _, found in _declared("", getattr(values, "dtype", None)))
    return next(declared, None) or None


def _categories(kind: Any) -> list[Any]:
    """Return the categories of a pandas or polars type, those that Arrow does not know as text."""
    return [*(kind.categories.astype(str) if _of_ranges(kind) else kind.categories)]


def worded(values: Any) -> Any:
    """Return a pandas series of categories that Arrow does not know as one of their texts."""
    kind = getattr(values, "dtype", None)
    if not _of_ranges(kind):
        return values
    return getattr(values, "cat", values).rename_categories(_categories(kind))


def _of_ranges(kind: Any) -> bool:
    """Return whether a pandas type has categories that are ranges, as `pandas.cut` makes them."""
    listed = type(getattr(kind, "categories", None))
    return listed.__module__.startswith("pandas") and listed.__name__ in (
        "IntervalIndex",
        "PeriodIndex",
    )


def is_name(y: Any) -> bool:
    """Return whether `y` names a column rather than being labels."""
    return isinstance(y, (str, np.str_))
