"""Predictions as a Delta table: its own library writes the files, and its log says which count."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.extras import needed
from fastbayes.core.files import atomic_directory, check_directory, real_path, sync, telling_full
from fastbayes.data.paths import MISSING
from fastbayes.data.segments import first_line
from fastbayes.data.unify import is_text

# Bytes of each partition that the library holds before they become a file; by default up to 100 MB
# of each, which may be the whole table.
PARTITION_BYTES = 4 << 20


def is_table(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a Delta table in a directory."""
    return Path(real_path(path), "_delta_log").is_dir()


def check_table(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Raise DataError unless a Delta table may be made at `path`, or `force` a version of it."""
    _library()
    if is_table(path):
        refuse(
            not force,
            f"{os.fspath(path)} is a Delta table: name another directory, or overwrite it with "
            "force=True, which makes a new version",
        )
    else:
        target = real_path(path)
        refuse(
            target.is_dir() and any(target.iterdir()),
            f"{os.fspath(path)} is not empty, and no Delta table: name another directory",
        )
        check_directory(path)


def write_table(
    path: str | os.PathLike[str],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    partition_by: Sequence[str] = (),
) -> None:
    """Write batches as a new Delta table, which appears whole, or as a new version of one.

    The metadata of the schema stand in the log of the version. Where writing a version fails, or is
    killed, the table is what it was; files that it does not name may lie there (`vacuum`).

    Raises
    ------
    DataError
        When the table cannot be written.
    """
    plain = pa.schema([field.with_type(_plain(field.type)) for field in schema])
    for name in partition_by:
        refuse(
            pa.types.is_null(plain.field(name).type),
            f"partition_by={name!r} is missing in all rows, and has no type: a Delta table has no "
            "such partitions; cast it to text, or choose another column",
            SchemaError,
        )
    if is_table(path) and not partition_by:
        _check_partitions(path, schema.names)
    said = {key.decode(): value.decode() for key, value in schema.metadata.items()}
    options: dict[str, Any] = {
        "partition_by": [*partition_by] or None,
        "commit_properties": _library().CommitProperties(custom_metadata=said),
    }
    if partition_by:
        options["target_file_size"] = PARTITION_BYTES
    given = (_converted(batch, plain, partition_by) for batch in batches)
    with telling_full(path):
        if is_table(path):
            _handed_over(path, given, plain, mode="overwrite", schema_mode="overwrite", **options)
            return
        with atomic_directory(path) as folder:
            _handed_over(folder, given, plain, called=path, **options)
            for file in folder.rglob("*"):
                if file.is_file():
                    sync(file)


def _check_partitions(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Raise DataError unless a new version may keep the partitions of a table."""
    by = _library().DeltaTable(os.fspath(path)).metadata().partition_columns
    for name in by:
        refuse(
            name not in names,
            f"{os.fspath(path)} is partitioned by {name!r}, which is not written: copy it by "
            "`keys`, name other columns in `partition_by`, or write to another directory",
        )
    refuse(
        len(by) == len(names),
        f"{os.fspath(path)} is partitioned by {by}, which leaves no column for the files; copy "
        "another one by `keys`, or write to another directory",
    )


# What ends the batches.
_COMPLETE = object()


def _handed_over(
    path: str | os.PathLike[str],
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    *,
    called: str | os.PathLike[str] | None = None,
    **options: Any,
) -> None:
    """Make batches in this thread, which signals interrupt, for the library in another one."""
    waiting: queue.Queue[Any] = queue.Queue(2)
    failed: list[Exception] = []
    stopped = threading.Event()
    working = threading.Lock()

    def rows() -> Iterator[pa.RecordBatch]:
        while True:
            batch = waiting.get()
            if stopped.is_set():
                raise InterruptedError
            if batch is _COMPLETE:
                return
            yield batch

    def write() -> None:
        with working:
            if stopped.is_set():
                return
            try:
                reader = pa.RecordBatchReader.from_batches(schema, rows())
                _library().write_deltalake(os.fspath(path), reader, **options)
            except Exception as error:
                failed.append(error)

    def hand_over(batch: Any) -> None:
        while thread.is_alive():  # or else it failed
            with contextlib.suppress(queue.Full):
                waiting.put(batch, timeout=0.1)
                return

    thread = threading.Thread(target=write, name="fastbayes-delta", daemon=True)
    try:
        thread.start()
        for batch in batches:
            hand_over(batch)
            if not thread.is_alive():
                break
        hand_over(_COMPLETE)
        thread.join()
    except BaseException:
        # Not by joining the thread: a signal may come while it starts, before it can be joined.
        stopped.set()
        with contextlib.suppress(queue.Full):
            waiting.put_nowait(_COMPLETE)
        with working:
            raise
    if failed:
        name = os.fspath(path if called is None else called)
        raise DataError(f"{name}: {first_line(failed[0])}") from failed[0]


def _library() -> Any:
    said = "format='delta' needs deltalake: pip install 'fastbayes[deltalake]'"
    return needed("deltalake", said, DataError)


# By the width of unsigned integers, which a table lacks: what holds them, of 64 bits the most.
_SIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.int64()}
MOST = 2**63 - 1
# Text that says in the log of a table that a partition lacks the value.
UNSAID = ("", MISSING)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in a table, which knows no dictionaries."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return _SIGNED[kind.bit_width] if pa.types.is_unsigned_integer(kind) else kind


def _converted(
    batch: pa.RecordBatch, schema: pa.Schema, partition_by: Sequence[str]
) -> pa.RecordBatch:
    """Return rows in the types of a table.

    Raises DataError where it cannot hold a value, or would take it for a missing one.
    """
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type == pa.uint64() and (most := pc.max(column).as_py() or 0) > MOST:
            raise DataError(
                f"column {field.name!r} holds {most}, over {MOST}, the largest integer of a Delta "
                "table; choose other columns by `keys`, cast it to text, or write Parquet"
            )
        columns.append(column := column.cast(field.type))
        if field.name in partition_by and is_text(field.type):
            for text in UNSAID:
                refuse(
                    pc.any(pc.equal(column, text)).as_py(),
                    f"column {field.name!r} holds {text!r}, which says in the partitions of a "
                    "Delta table that a value is missing; write it without partition_by",
                )
    return pa.RecordBatch.from_arrays(columns, schema=schema)
