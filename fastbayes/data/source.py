"""Anything that holds rows, opened as segments of Arrow record batches."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core.domains import declared
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.picks import ByPick, Every, Picks, chosen, several, unknown_column
from fastbayes.core.schema import ABSENT, Needed, Schema
from fastbayes.data.column_chunks import INSTANTS_IN
from fastbayes.data.filesource import (
    FileSource,
    dictionary_type,
    open_ipc,
    open_parquet,
)
from fastbayes.data.lake_tables import delta_table, open_delta, open_iceberg
from fastbayes.data.memory import (
    ArraySource,
    CellTypeError,
    Filled,
    StreamSource,
    TableSource,
    arrow_array,
    table_of,
)
from fastbayes.data.nested import flat_schema, is_untyped, opened, roots
from fastbayes.data.orc import open_orc
from fastbayes.data.paths import find_files
from fastbayes.data.rejects import Rejects
from fastbayes.data.segments import OnError, Segment, Source, first_line, reading
from fastbayes.data.text import open_csv, open_json
from fastbayes.data.unify import Columns, check_names, names_of, readable

__all__ = ["CellTypeError", "Segment", "Source", "open_source"]

# Packages whose lazy frames compute their stream anew each time they are asked for it.
_RECOMPUTED = {"duckdb", "_duckdb", "datafusion", "ibis"}
# Packages whose frames lie on workers, with the module above this one that opens them.
_ENGINES = {"dask": "fastbayes.engines.dask", "pyspark": "fastbayes.engines.spark"}
_OPENERS: dict[str, Callable[..., Sequence[Any]]] = {
    "parquet": open_parquet,
    "ipc": open_ipc,
    "orc": open_orc,
}
# Types of polars that Arrow lacks.
_WIDE = ("Int128", "UInt128")
# Rows as Arrow holds them: alone, or one after another in a list or an iterator.
TABLES = pa.Table | pa.RecordBatch
_ACCEPTED = (
    "a path, glob, directory or URI (or a list of paths), an Arrow table or stream, a pandas or "
    "polars frame, a DuckDB relation, a dict of columns, or a numpy array of shape "
    "(n_rows, n_columns)"
)


def open_source(
    source: Any,
    *,
    columns: Columns = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    types: Mapping[str, pa.DataType] | None = None,
    on_error: OnError | None = None,
    schema_mode: str = "union",
    partitions: bool = True,
    rejects: Rejects | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Open anything that holds rows.

    Parameters
    ----------
    source
        A path, glob, directory or URI of Parquet, Arrow IPC, CSV, JSON lines or ORC files, or a
        list of paths; anything with `__arrow_c_stream__` or `__arrow_c_array__`; a pyarrow
        Dataset or Scanner; a Delta Lake table (also by its directory) or one of Iceberg, or a scan
        of it; a polars LazyFrame; an iterable of record batches; a dict of columns;
        an array of shape (n_rows, n_columns), whose columns are called x0, x1, ...
    columns
        Names of the columns to read, in this order, or a `Selection`; the others are not decoded.
    null_values
        Texts that mean missing, besides Arrow's null and, in CSV, the empty cell.
    filesystem
        A pyarrow or fsspec file system in which paths are looked up.
    types
        Types of columns of CSV (text instead of numbers, float64 instead of integers) and JSON,
        instead of the inferred ones; names that do not occur are ignored.
    on_error
        Gets the error of each file that cannot be opened, or not be read to its end by the
        thread that asks for segments; the file, or its rest, is left out then. None raises it.
    schema_mode
        How files of different columns are read together; see `Files`.
    partitions
        Whether directories `key=value` are columns; see `Files`.
    rejects
        Takes rows of CSV and JSON lines that cannot be used, which are left out; None: an error.
    storage_options
        Options of the file system that a URI names; see `Files`.

    Returns
    -------
    Source

    Raises
    ------
    SchemaError
        For an unknown column (names close ones), two columns of one name, files whose columns
        or types do not fit together (names both files).
    DataError
        For what cannot be read; names the file, row and remedy where known.
    """
    options: dict[str, Any] = {"columns": columns, "null_values": null_values}
    open_files = partial(
        _open_files,
        source,
        options=options,
        types=types or {},
        on_error=on_error,
        schema_mode=schema_mode,
        rejects=rejects,
        filesystem=filesystem,
        partitions=partitions,
        storage_options=storage_options,
    )
    module = type(source).__module__.partition(".")[0]
    if (opener := engine_opener(source)) is not None:
        return opener(**options, filesystem=filesystem, types=types, on_error=on_error)
    refuse(isinstance(source, Source), "the source is open already; pass what it was opened from")
    if isinstance(source, str | os.PathLike):
        table = None if filesystem is not None else delta_table(source)
        if table is not None:
            return open_delta(table, _open_dataset, options)
        return open_files(source)
    if module == "deltalake" and hasattr(source, "to_pyarrow_dataset"):
        return open_delta(source, _open_dataset, options)
    if module == "pyiceberg" and (hasattr(source, "scan") or hasattr(source, "select")):
        return open_iceberg(source, options)
    if isinstance(source, TABLES):
        kind = f"pyarrow.{type(source).__name__}"
        return TableSource(_table(source), description=kind, native=source, **options)
    if isinstance(source, pa.RecordBatchReader):
        once: dict[str, Any] = {"rereadable": False, "native": source, **options}
        name = "pyarrow.RecordBatchReader"
        return StreamSource(lambda: source, source.schema, description=name, **once)
    if type(source).__module__ == "pyarrow._dataset":
        return _open_dataset(source, options)
    if module == "pandas" and hasattr(source, "iloc") and getattr(source, "ndim", 0) == 2:
        return _open_pandas(source, options)
    if module == "polars" and hasattr(source, "collect"):
        return _open_lazy(source, options)
    if isinstance(source, Mapping):
        table = table_of(dict(source), "dict of columns")
        return TableSource(table, description="dict of columns", native=source, **options)
    if hasattr(source, "__arrow_c_stream__"):
        return _open_stream(source, module, options)
    if hasattr(source, "__arrow_c_array__"):
        name = f"{module}.{type(source).__name__}"
        with reading(name):
            batch = pa.record_batch(source)
        return TableSource(_table(batch), description=name, native=source, **options)
    refuse(
        hasattr(source, "toarray") and hasattr(source, "nnz"),
        "a sparse matrix: sparse data are not supported here; use X.toarray()",
    )
    refuse(
        isinstance(source, bytes | bytearray | memoryview),
        f"{type(source).__name__} cannot be read; pass {_ACCEPTED}",
    )
    if isinstance(source, Iterable) and not hasattr(source, "__array__"):
        return _open_iterable(source, options, open_files)
    return _open_array(source, options)


def engine_opener(source: Any) -> Callable[..., Source] | None:
    """Return what opens rows that the workers of an engine hold or read; None for others.

    It takes the options of `open_source`.
    """
    opener: Callable[..., Source] | None = None
    module = type(source).__module__.partition(".")[0]
    if hasattr(type(source), "__fastbayes_source__"):
        opener = source.__fastbayes_source__
    elif module in _ENGINES and hasattr(source, "columns"):
        opener = partial(import_module(_ENGINES[module]).open_frame, source)
    return opener


def frame_of_engine(source: Any) -> Any:
    """Return the module of the engine whose frame this is, with `append_to`; None for others."""
    module = type(source).__module__.partition(".")[0]
    return import_module(_ENGINES[module]) if module in _ENGINES else None


def _table(data: pa.Table | pa.RecordBatch) -> pa.Table:
    return data if isinstance(data, pa.Table) else pa.Table.from_batches([data])


def _open_files(
    source: Any,
    named: Any,
    *,
    options: dict[str, Any],
    types: Mapping[str, pa.DataType],
    on_error: OnError | None,
    schema_mode: str,
    rejects: Rejects | None,
    **where: Any,
) -> Source:
    files, description, listing = find_files(named, on_error=on_error, **where)
    kind, columns = files[0].format, options["columns"]
    if rejects is not None:
        rejects.begin([file.path for file in files if file.local], listing.appeared)
    readers: Sequence[Any]
    if kind in _OPENERS:
        readers = _OPENERS[kind](files, on_error)
    elif kind == "json":
        every = None if isinstance(columns, Every) else columns
        readers = open_json(files, every, types, on_error, schema_mode, rejects)
    else:
        nulls = list(options["null_values"] or [])
        readers = open_csv(files, columns, types, nulls, on_error, rejects)
        options = {**options, "null_values": None}  # the parser makes them null
    return FileSource(
        readers,
        description=description,
        native=source,
        on_error=on_error,
        schema_mode=schema_mode,
        listing=listing,
        rejects=rejects,
        **options,
    )


def _open_pandas(frame: Any, options: dict[str, Any]) -> Source:
    names = [str(name) for name in frame.columns]
    check_names(names, "pandas.DataFrame")
    asked = options["columns"]
    wanted = {
        name
        for j, name in enumerate(names)
        if asked is None or name in asked or _may_hold_structs(frame.iloc[:, j])
    }
    # The index is no column. A column nobody asked for is not converted, and of some other type
    # than null: of that a struct may be.
    table = table_of(
        {
            name: frame.iloc[:, j] if name in wanted else pa.nulls(len(frame), pa.bool_())
            for j, name in enumerate(names)
        },
        "pandas.DataFrame",
    )
    if index := [n for n in frame.index.names if isinstance(n, str) and n not in names]:
        table = table.replace_schema_metadata({"pandas": json.dumps({"index_columns": index})})
    return TableSource(table, description="pandas.DataFrame", native=frame, **options)


def _may_hold_structs(column: Any) -> bool:
    """Return whether a pandas series holds structs, of which fields may be wanted, or no object."""
    if type(column.dtype).__name__ == "IntervalDtype":
        return True
    if isinstance(column.dtype, np.dtype):
        if column.dtype != object:
            return False
        known = column.notna().to_numpy()
        return not known.any() or isinstance(column.iloc[int(known.argmax())], Mapping)
    return pa.types.is_struct(getattr(column.dtype, "pyarrow_dtype", pa.null()))


def _open_lazy(frame: Any, options: dict[str, Any]) -> Source:
    with _computing():
        schema = _arrow_table(frame.head(0).collect(), "polars.LazyFrame").schema
    stream = partial(_computed, frame, schema, options["columns"])
    return StreamSource(
        stream, schema, rereadable=True, description="polars.LazyFrame", native=frame, **options
    )


def _computed(frame: Any, schema: pa.Schema, asked: Columns) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a lazy frame of polars, those columns that are asked for."""
    columns = names_of(asked, readable(schema, asked), "polars.LazyFrame")
    wanted = frame if columns is None else frame.select(roots(columns, schema.names))
    with _computing():
        if hasattr(wanted, "collect_batches"):  # newer polars gives them as it goes
            batches = wanted.collect_batches(engine="streaming", lazy=True)
        else:
            batches = [wanted.collect(engine="streaming")]
        for batch in batches:
            yield from pa.table(batch).to_batches()


def _arrow_table(frame: Any, name: str) -> pa.Table:
    """Return a frame of polars as a table; a type that Arrow lacks is an error by its column."""
    try:
        return pa.table(frame)
    except pa.ArrowInvalid as error:
        for column, kind in getattr(frame, "schema", {}).items():  # a series has none
            if str(kind) in _WIDE:
                raise SchemaError(
                    f"{name}: column {column!r} is {kind}, which Arrow does not hold; cast it to "
                    "Int64, Float64 or String"
                ) from error
        raise


@contextmanager
def _computing() -> Iterator[None]:
    try:
        yield
    except sys.modules["polars"].exceptions.PolarsError as error:
        raise DataError(f"polars.LazyFrame: {first_line(error)}") from error


def _open_stream(source: Any, module: str, options: dict[str, Any]) -> Source:
    name = f"{module}.{type(source).__name__}"
    lazy = module in _RECOMPUTED
    with reading(name, "a single column must be put in a table or frame"):
        if hasattr(source, "__len__") and not lazy:
            table = _arrow_table(source, name) if module == "polars" else pa.table(source)
            return TableSource(table, description=name, native=source, **options)
        reader = pa.RecordBatchReader.from_stream(source)
    stream = partial(pa.RecordBatchReader.from_stream, source) if lazy else lambda: reader
    return StreamSource(
        stream, reader.schema, rereadable=lazy, description=name, native=source, **options
    )


def _open_iterable(
    source: Iterable[Any],
    options: dict[str, Any],
    open_files: Callable[[Any], Source],
) -> Source:
    name = f"{type(source).__name__} of record batches"
    iterator = iter(source)
    try:
        first = next(iterator)
    except StopIteration:
        raise DataError(
            f"the {type(source).__name__} is empty: it gives neither a path nor a record batch"
        ) from None
    if isinstance(first, str | os.PathLike):
        return open_files([first, *iterator])
    if not isinstance(first, TABLES):
        if isinstance(source, Sequence):
            return _open_array(source, options)
        raise DataError(
            f"{type(source).__name__} of {type(first).__name__}: an iterable must give record "
            "batches"
        )
    once = iterator is source

    def stream() -> Iterator[pa.RecordBatch]:
        for item in chain([first], iterator) if once else source:
            refuse(
                not isinstance(item, TABLES),
                f"{name}: found a {type(item).__name__} among them",
            )
            yield from _table(item).to_batches()

    held = source if isinstance(source, list | tuple) else ()
    schema = flat_schema(first.schema)
    if held and any(map(is_untyped, schema.types)):  # by what later ones say of its fields
        schemas = [flat_schema(item.schema) for item in held if isinstance(item, TABLES)]
        schema = opened(schemas)[0]
    batches = StreamSource(
        stream, schema, rereadable=not once, description=name, native=source, **options
    )
    if held:
        batches.in_memory = True
        batches.n_rows = sum(getattr(item, "num_rows", 0) for item in held)
    return batches


def _open_array(source: Any, options: dict[str, Any]) -> Source:
    """Open numpy arrays, what turns into one, and lists of rows."""
    refuse(
        not hasattr(source, "__array__") and not isinstance(source, Sequence),
        f"{type(source).__name__} cannot be read; pass {_ACCEPTED}",
    )
    try:
        array = source if isinstance(source, np.ndarray) else np.asarray(source)
    except ValueError as error:
        raise DataError(f"the rows are not equally long ({error})") from error
    if array.dtype.kind == "U" and isinstance(source, Sequence):
        array = np.asarray(
            source, dtype=object
        )  # numpy made text of the numbers that came with text
    if array.dtype.names is not None and array.ndim == 1:
        table = table_of({name: array[name] for name in array.dtype.names}, "structured array")
        return TableSource(table, description="structured array", native=source, **options)
    refuse(
        array.ndim != 2,
        f"Expected 2D array (n_rows, n_columns), got {array.ndim}D array of shape "
        f"{array.shape} instead. Reshape your data: array.reshape(-1, 1) if it is one column, "
        "array.reshape(1, -1) if it is one row",
    )
    refuse(
        array.shape[1] == 0,
        f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.",
    )
    refuse(
        array.dtype.kind == "c",
        "Complex data not supported; pass real and imaginary parts as two columns",
    )
    if array.dtype.kind in "fiub" and not isinstance(array, np.ma.MaskedArray):
        return ArraySource(array, columns=options["columns"])
    columns = {f"x{j}": arrow_array(array[:, j], f"x{j}") for j in range(array.shape[1])}
    description = f"numpy array of shape {array.shape}"
    return TableSource(pa.table(columns), description=description, native=source, **options)


# Read ahead by Arrow's scanner, in batches and in files: its defaults hold a row group of four
# files and sixteen batches of each.
_SCANNING = {"batch_size": 65_536, "batch_readahead": 4, "fragment_readahead": 1}


def _open_dataset(source: Any, options: dict[str, Any], name: str = "") -> Source:
    """Open a pyarrow Dataset (may be scanned again) or Scanner (may not).

    `name` is what it is called in messages, by default its type.
    """
    name = name or f"pyarrow.dataset.{type(source).__name__}"
    options = {"description": name, "native": source, **options}
    if hasattr(source, "projected_schema"):
        return StreamSource(source.to_reader, source.projected_schema, rereadable=False, **options)
    dataset = _as_files_are_read(source)
    asked = options["columns"]
    columns = names_of(asked, readable(dataset.schema, asked), name)
    if columns is not None:
        columns = roots(columns, dataset.schema.names)
    stream = partial(_scanned, dataset, columns, name)  # which pickles, as boards and models do
    return StreamSource(stream, dataset.schema, rereadable=True, **options)


def _scanned(dataset: Any, columns: list[str] | None, name: str) -> pa.RecordBatchReader:
    if suspects := _of_nanoseconds(dataset.schema, columns):
        _check_no_instants(dataset, suspects, name)
    return dataset.scanner(columns=columns, **_SCANNING).to_reader()


def _of_nanoseconds(schema: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    """Return which columns hold timestamps of nanoseconds, such as those in 12 bytes may become."""
    names = schema.names if columns is None else columns
    kinds = {name: schema.field(name).type for name in names}
    return [name for name, kind in kinds.items() if _in_unit(kind, INSTANTS_IN) != kind]


def _in_unit(kind: pa.DataType, unit: str) -> pa.DataType:
    """Return a type with timestamps of this unit instead of nanoseconds, in structs too."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_unit(field.type, unit)) for field in kind])
    return pa.timestamp(unit) if kind == pa.timestamp("ns") else kind


def _as_files_are_read(dataset: Any) -> Any:
    """Return a Parquet dataset that reads as files are read, any other as it is.

    Strings are dictionaries, timestamps in 12 bytes are of microseconds.
    """
    import pyarrow.dataset as ds  # slow to import; a dataset from another process did not load it

    if not isinstance(getattr(dataset, "format", None), ds.ParquetFileFormat):
        return dataset
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # a filtered dataset does not give its fragments away, nor its filter
        return dataset
    given = dataset.format.read_options.coerce_int96_timestamp_unit
    unit = INSTANTS_IN if given == "ns" else given  # which nobody may have chosen
    constant = {
        name
        for fragment in fragments
        for name in ds.get_partition_keys(fragment.partition_expression)
    }
    text = {field.name for field in dataset.schema if dictionary_type(field.type) is not None}
    file_format = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(
            dictionary_columns=text, coerce_int96_timestamp_unit=unit
        )
    )
    rebuilt = [
        file_format.make_fragment(
            fragment.path,
            fragment.filesystem,
            partition_expression=fragment.partition_expression,
            # only where some row groups of the file do not belong to the fragment
            row_groups=[group.id for group in fragment.row_groups]
            if fragment.num_row_groups < fragment.metadata.num_row_groups
            else None,
        )
        for fragment in fragments
    ]
    schema = dataset.schema
    kinds = {
        name: _in_unit(schema.field(name).type, unit) for name in _of_nanoseconds(schema, None)
    }
    for fragment in rebuilt:
        if kinds:  # or else no footer is read again
            stored = {field.name: field.type for field in fragment.physical_schema}
            kinds = {n: kind for n, kind in kinds.items() if stored.get(n, kind) == kind}
    kinds |= {field.name: kind for field in schema if (kind := dictionary_type(field.type))}
    fields = [f if f.name in constant else f.with_type(kinds.get(f.name, f.type)) for f in schema]
    read_as = pa.schema(fields, schema.metadata)
    return ds.FileSystemDataset(rebuilt, read_as, file_format, dataset.filesystem)


def _check_no_instants(dataset: Any, columns: Sequence[str], name: str) -> None:
    """Raise DataError where columns have timestamps in 12 bytes, read as nanoseconds."""
    import pyarrow.parquet as pq

    for child in getattr(dataset, "children", ()):
        _check_no_instants(child, columns, name)
    options = getattr(getattr(dataset, "format", None), "read_options", None)  # of Parquet
    if getattr(options, "coerce_int96_timestamp_unit", "") != "ns":
        return
    for path in dataset.files:
        with reading(path), pq.ParquetFile(path, filesystem=dataset.filesystem) as file:
            for leaf in map(file.schema.column, range(file.metadata.num_columns)):
                refuse(
                    leaf.physical_type == "INT96"
                    and any(f"{leaf.path}.".startswith(f"{column}.") for column in columns),
                    f"{name}: column {leaf.path!r} of {path} is INT96, of which this dataset makes "
                    "nanoseconds, that wrap around before 1677 and after 2262: set "
                    "coerce_int96_timestamp_unit='us' in its ParquetReadOptions, or give one "
                    "dataset without a filter",
                )


def check_index(source: Source, names: Iterable[str]) -> None:
    """Raise SchemaError for a name of no column that is read, but of the index of their frame."""
    for name in names:
        if name in source.index_columns and name not in source.schema.names:
            there = source.available, source.description, source.index_columns
            raise SchemaError(unknown_column(name, *there))


def open_for(
    schema: Schema,
    source: Any,
    *,
    also: Iterable[str] = (),
    keys: Picks = (),
    rest: bool = False,
    lenient: bool = False,
    filesystem: Any = None,
) -> tuple[Source, list[str]]:
    """Open data for a schema, with its null values and its types where a file has none.

    Returns a source of the features and what is wanted `also`, by name, or as `keys`, by names,
    patterns or indices, and of the `rest`, columns that the schema does not know, if these are
    wanted too; a stream that is read once keeps all columns.
    Where that is `lenient`, a feature without its column is missing in all rows.
    With it, the names of the columns that are neither in the schema nor wanted. Raises
    SchemaError when a column is not there, which names it and close ones, and DataError when the
    data cannot be read.
    """
    needed = Needed(schema, tuple(also), lenient, ABSENT, tuple(several(keys, "keys")))
    known = {*schema.names, *schema.columns, *also, schema.target}
    options = {**as_at_fit(schema), "filesystem": filesystem}
    if not rest:
        opened = open_source(source, columns=needed, **options)
        known.update(opened.index_columns, copied_of(opened, keys))
        others = [name for name in opened.available if name not in known]
        return filled(opened, schema) if lenient else opened, others
    opened = open_source(source, columns=Every(tuple(needed.asked)), **options)
    asked = needed.of(opened.available, opened.description, opened.index_columns)
    for name in asked:
        if name not in opened.available:
            there = opened.available, opened.description, opened.index_columns
            raise SchemaError(unknown_column(name, *there))
    others = [name for name in opened.available if name not in known]
    if opened.rereadable and len(asked) + len(others) < len(opened.available):
        opened = open_source(source, columns=[*asked, *others], **options)
    return filled(opened, schema) if lenient else opened, others


def copied_of(source: Source, keys: Picks) -> list[str]:
    """Return the columns of a source, of all that it had, that are to be copied."""
    where = source.description
    return chosen(source.available, keys, "keys", index=source.index_columns, where=where)


def filled(source: Source, schema: Schema) -> Source:
    """Return a source that has all columns of a schema, those that it lacks full of nulls."""
    there = {*source.schema.names}
    lacking = [name for name in schema.read_from(there) if name not in there]
    return Filled(source, lacking) if lacking else source


def as_at_fit(schema: Schema) -> dict[str, Any]:
    """Return the options of `open_source` that make it read what the schema was learned from."""
    # Of text files types are inferred, each time anew: "01" may be text.
    types = {f.name: pa.float64() for f in schema.numeric}
    for f in schema.categorical:
        if f.values is not None:
            types[f.name] = f.values.type if f.cuts is None else pa.float64()
    if schema.target is not None:
        types[schema.target] = schema.classes.type
    return {"null_values": schema.null_values or None, "types": _text_or_number(types)}


def as_given(categorical: Picks, domains: Mapping[str, Any] | None) -> Mapping[str, pa.DataType]:
    """Return the types that make columns of a text file the categories they are said to be.

    A category is the text that stands there ("007"), unless its declared values are numbers.
    """
    types = {name: pa.string() for name in several(categorical) if isinstance(name, str)}
    types |= {name: values.type for name, values in declared(domains).items()}
    return ByPick(_text_or_number(types))


def _text_or_number(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    return {name: kind for name, kind in types.items() if kind in (pa.string(), pa.float64())}
