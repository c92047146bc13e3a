"""Delta Lake and Iceberg tables as sources: their own libraries say which rows there are."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import DataError, refuse
from fastbayes.core.extras import needed
from fastbayes.data.memory import StreamSource
from fastbayes.data.nested import roots
from fastbayes.data.segments import first_line
from fastbayes.data.unify import names_of, readable


def delta_table(path: str | os.PathLike[str]) -> Any:
    """Return the Delta table in a directory of this machine, None where there is none.

    Files that the table has given up lie there still: read as a directory they would count.
    """
    if not os.path.isdir(os.path.join(os.path.expanduser(path), "_delta_log")):
        return None
    said = f"{os.fspath(path)} is a Delta table; pip install 'fastbayes[deltalake]' to read it"
    deltalake = needed("deltalake", said, DataError)
    with _said(os.fspath(path)):
        return deltalake.DeltaTable(os.path.expanduser(path))


def open_delta(
    table: Any, open_dataset: Callable[[Any, dict[str, Any], str], Any], options: dict[str, Any]
) -> Any:
    """Open a `deltalake.DeltaTable` as it is at its version.

    Its files as a dataset; where rows in them are marked as deleted (deletion vectors), or columns
    have other names, as the library's own stream, whose order of rows may change.
    """
    errors: Any = importlib.import_module("deltalake.exceptions")
    name = f"{table.table_uri} (Delta, version {table.version()})"
    with _said(name):
        # The library's dataset knows it from reader version 3 on, and before takes files' names.
        mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none").lower()
        refuse(
            mapping not in ("none", "name"),
            f"{name}: columns of its files go by ids (delta.columnMapping.mode = {mapping!r}), and "
            "deltalake takes them by names; write it again in mode 'name', or pass its rows as "
            "another library reads them",
        )
        if mapping == "none":
            with suppress(errors.DeltaProtocolError):
                return open_dataset(table.to_pyarrow_dataset(), options, name)
        return _stream(lambda names: table.scan(columns=names), table, name, options)


def open_iceberg(table: Any, options: dict[str, Any]) -> StreamSource:
    """Open a `pyiceberg` table at its present snapshot, or a scan of one."""
    scan = table.scan() if hasattr(table, "scan") else table
    named = getattr(table, "name", None)
    name = f"Iceberg table {'.'.join(named())}" if callable(named) else "Iceberg scan"

    def rows(names: list[str] | None) -> Any:
        return (scan if names is None else scan.select(*names)).to_arrow_batch_reader()

    with _said(name):
        return _stream(rows, table, name, options)


def _stream(
    rows: Callable[[list[str] | None], Any], native: Any, name: str, options: dict[str, Any]
) -> StreamSource:
    schema = pa.RecordBatchReader.from_stream(rows(None)).schema
    wanted = names_of(options["columns"], readable(schema, options["columns"]), name)
    if wanted is not None:
        wanted = roots(wanted, schema.names)

    def stream() -> Iterator[pa.RecordBatch]:
        with _said(name):
            yield from pa.RecordBatchReader.from_stream(rows(wanted))

    return StreamSource(stream, schema, rereadable=True, description=name, native=native, **options)


@contextmanager
def _said(name: str) -> Iterator[None]:
    """Turn what the libraries of tables raise into a DataError."""
    try:
        yield
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if module not in ("deltalake", "_internal", "pyiceberg") and not isinstance(error, OSError):
            raise
        raise DataError(f"{name}: {first_line(error)}") from error
