"""Dask as an engine: files that its workers read, and its data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import DataError
from fastbayes.data.segments import first_line
from fastbayes.data.unify import Columns
from fastbayes.engines.shares import Counts, Paths, Streams
from fastbayes.scan.counting import count
from fastbayes.statistics.bundle import Statistics

__all__ = ["count_paths", "paths"]

# Parts for each thread of a worker: the last to end does so soon after the others.
PARTS = 4
# Sums of so many partitions are taken where they are.
TOGETHER = 16


def paths(client: Any, source: Any, *, filesystem: Any = None) -> Paths:
    """Return files as a source that the workers of a Dask cluster read, each some of them.

    Parameters
    ----------
    client
        A `distributed.Client`.
    source, filesystem
        As in `pool.paths`. Every worker finds the files there, and has fastbayes installed.

    Raises
    ------
    ValueError
        When the cluster has no worker.
    """
    if not (threads := sum(client.nthreads().values())):
        raise ValueError("the cluster has no worker; wait for one (client.wait_for_workers)")
    return Paths(source, partial(_mapped, client), PARTS * threads, filesystem)


def count_paths(client: Any, source: Any, target: Any, **options: Any) -> Statistics:
    """Return `count` of files that the workers of a Dask cluster read.

    Parameters
    ----------
    client, source
        As in `paths`.
    target
        Name of the class column.
    **options
        As in `count`.

    Returns
    -------
    Statistics
        Equal to those counted here; sums of numbers to rounding. Errors are those of `count`.
    """
    return count(
        paths(client, source, filesystem=options.pop("filesystem", None)), target, **options
    )


def _mapped(client: Any, f: Callable[[Any], bytes], items: Iterable[Any]) -> Iterator[bytes]:
    # Not pure: files of the same name may hold other rows another time.
    waiting = client.map(f, [*items], pure=False)
    while waiting:
        yield waiting[0].result()
        del waiting[0]  # lets go of the result


def open_frame(
    frame: Any,
    *,
    columns: Columns = None,
    null_values: Sequence[str] | None = None,
    **_: Any,
) -> Streams:
    """Return a `dask.dataframe.DataFrame` as rows that lie in its partitions."""
    schema = _schema_of(frame)
    return Streams(
        schema,
        partial(_on_partitions, frame, schema),
        "dask.dataframe.DataFrame",
        frame,
        columns,
        null_values,
    )


def _schema_of(frame: Any) -> pa.Schema:
    """Return the columns that a frame promises; objects are taken to be texts, as Dask does."""
    fields = []
    for name, kind in frame.dtypes.items():
        if not isinstance(name, str):
            raise DataError(f"dask.dataframe.DataFrame: the name of column {name!r} is no text")
        values = getattr(kind, "categories", None)
        if values is not None:  # they may differ from partition to partition
            own = _plain(pa.array(values, from_pandas=True).type)
            fields.append(pa.field(name, pa.dictionary(pa.int32(), own)))
        else:
            fields.append(pa.field(name, _plain(pa.array(frame._meta[name]).type)))
    return pa.schema(fields)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind


def _on_partitions(
    frame: Any,
    schema: pa.Schema,
    columns: Sequence[str],
    counts: Counts,
    add: Callable[[Iterable[bytes]], bytes],
) -> Iterable[bytes]:
    import dask

    compute: Any = dask.compute  # type: ignore[attr-defined]
    delayed: Any = dask.delayed  # type: ignore[attr-defined]
    schema = pa.schema([schema.field(name) for name in columns])
    # Part of the graph of the frame, so that a partition is counted by the task that makes it.
    counted = frame[[*columns]].map_partitions(
        partial(_of_partition, counts, schema), meta=(None, object), enforce_metadata=False
    )
    parts = counted.to_delayed()
    while len(parts) > TOGETHER:
        parts = [delayed(add)(parts[i : i + TOGETHER]) for i in range(0, len(parts), TOGETHER)]
    found: tuple[bytes, ...] = compute(*parts)
    return found


def _of_partition(counts: Counts, schema: pa.Schema, frame: Any) -> bytes:
    def batches() -> Iterator[pa.RecordBatch]:  # asked for where errors become answers
        yield from _table_of(frame, schema).to_batches()

    return counts(batches())


def _table_of(frame: Any, schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        try:
            arrays.append(pa.array(frame[field.name], field.type, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(
                f"dask.dataframe.DataFrame: column {field.name!r} is {field.type} by its dtype, "
                f"but a partition is not ({first_line(error)}); convert it with astype"
            ) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def append_to(frame: Any, appended: Any) -> Any:
    """Return a frame with columns appended, which are computed with its partitions."""
    schema = _schema_of(frame[appended.needs])
    meta = _appended_to(frame._meta, schema, appended, empty=True)
    return frame.map_partitions(_appended_to, schema, appended, meta=meta)


def _appended_to(frame: Any, schema: pa.Schema, appended: Any, *, empty: bool = False) -> Any:
    if empty:
        columns = [pa.array([], field.type) for field in appended.fields]
    else:
        columns = appended(_table_of(frame, schema))
    named = zip(appended.fields, columns, strict=True)
    return frame.assign(**{f.name: column.to_pandas().array for f, column in named})
