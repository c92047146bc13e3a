"""Files of rows: Parquet, Arrow IPC, CSV and JSON lines, and what writes each."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import SchemaError
from fastbayes.core.exact_arrays import exact_rows
from fastbayes.core.suggestions import use_one_of
from fastbayes.scan.outputs import json_lines

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
SUFFIXES = {"parquet": ".parquet", "ipc": ".arrow", "csv": ".csv", "jsonl": ".jsonl"}
# Formats that are lines of text, made by the threads that make the rows.
TEXT = ("csv", "jsonl")
# Rows of a Parquet row group or an Arrow record batch, where the source does not end sooner.
GROUP_ROWS = 4 * BLOCK_ROWS

# What a file takes: rows, or the lines of text that they are.
Prepared = Any
Write = Callable[[Prepared], object]
# The path of a file, or one that is open.
Sink: TypeAlias = Path | BinaryIO | io.RawIOBase


def format_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """Return the format in which rows are written: `format`, or what the name says.

    Raises SchemaError when it is not one of these.
    """
    if format is None:
        format = FORMATS.get(Path(path).suffix.lower())
        if format is None:
            raise SchemaError(
                f"{os.fspath(path)}: the name says no format; end it in .parquet, .arrow, .csv or "
                ".jsonl"
            )
    if format not in SUFFIXES:
        raise SchemaError(f"format={format!r}: {use_one_of(format, SUFFIXES)}")
    return format


def prepared(kind: str, batch: pa.RecordBatch) -> Prepared:
    """Return what a file of this kind takes for a batch, made in the calling thread."""
    if kind == "csv":
        return _csv_lines(batch, header=False)
    return json_lines.lines_of(batch) if kind == "jsonl" else batch


def _csv_lines(batch: pa.RecordBatch, *, header: bool) -> pa.Buffer:
    """Return rows as lines of CSV, or the line of their names."""
    import pyarrow.csv as csv

    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    values = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    lines = pa.BufferOutputStream()
    csv.write_csv(values, lines, csv.WriteOptions(include_header=header))
    return lines.getvalue()


class RowWriter:
    """A file that is being written: each call of `write` makes a row group or record batch.

    Parameters
    ----------
    kind
        Format of the file.
    sink
        Its path, or an open binary file.
    schema
        The columns.
    uncoded
        Columns that Parquet gives neither a dictionary nor statistics.
    streamed
        Whether Arrow IPC is written as a stream, which has no footer.
    """

    def __init__(
        self,
        kind: str,
        sink: Sink,
        schema: pa.Schema,
        uncoded: Collection[str] = (),
        *,
        streamed: bool = False,
    ) -> None:
        self.write: Write
        if kind in TEXT:
            file = open(sink, "wb") if isinstance(sink, Path) else sink  # noqa: SIM115  # `close`
            if kind == "csv":
                file.write(_csv_lines(pa.RecordBatch.from_pylist([], schema), header=True))
            self.write = file.write
            self.close = file.close if isinstance(sink, Path) else file.flush
            return
        if kind == "ipc":
            writer = (pa.ipc.new_stream if streamed else pa.ipc.new_file)(sink, schema)
            self.write = lambda rows: writer.write(exact_rows(rows))
        else:
            writer = _parquet(sink, schema, uncoded)
            self.write = writer.write

        def close() -> None:
            writer.close()
            if not isinstance(sink, Path):
                sink.flush()

        self.close = close


def _parquet(sink: Sink, schema: pa.Schema, uncoded: Collection[str]) -> Any:
    import pyarrow.parquet as pq

    coded: bool | list[str] = True
    if uncoded:
        # The writer names columns by their leaves.
        footer = pa.BufferOutputStream()
        pq.write_metadata(schema, footer)
        leaves = pq.ParquetSchema(pq.read_metadata(pa.BufferReader(footer.getvalue())))
        paths = [leaves.column(i).path for i in range(len(leaves))]
        coded = [path for path in paths if path not in uncoded]
    return pq.ParquetWriter(sink, schema, use_dictionary=coded, write_statistics=coded)


@contextlib.contextmanager
def writing(
    kind: str,
    sink: Sink,
    schema: pa.Schema,
    uncoded: Collection[str] = (),
    *,
    group_rows: int = GROUP_ROWS,
    streamed: bool = False,
) -> Iterator[Write]:
    """Give a function that writes what was `prepared`, gathered into groups of some size.

    Parameters are those of `RowWriter`.
    """
    writer = RowWriter(kind, sink, schema, uncoded, streamed=streamed)
    held: list[pa.RecordBatch] = []

    def flush() -> None:
        if held:
            writer.write(pa.Table.from_batches(held).combine_chunks())
            held.clear()

    def write(batch: Prepared) -> None:
        if sum(h.num_rows for h in held) + batch.num_rows > group_rows:
            flush()
        held.append(batch)

    try:
        # Who reads a stream waits for rows, not for groups of them.
        yield writer.write if kind in TEXT or (streamed and kind == "ipc") else write
        flush()
    except BaseException:
        # What is in the file is thrown away, so that it cannot be closed in order does not matter.
        with contextlib.suppress(OSError, ValueError):
            writer.close()
        raise
    writer.close()
