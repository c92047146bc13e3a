"""Spark as an engine: files that its executors read, and its data frames.

Only `range`, `mapInArrow`, `repartition` and `toArrow` are used, and no context, RDD or broadcast:
so Spark Connect, serverless clusters, dynamic allocation and the retry of tasks work.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fastbayes.core.errors import FastBayesError
from fastbayes.data.unify import Columns
from fastbayes.engines import shares
from fastbayes.engines.shares import Counts, Given, Paths, Streams, Work
from fastbayes.scan.counting import count
from fastbayes.statistics.bundle import Statistics

if TYPE_CHECKING:
    from fastbayes.engines.spark_ml import FastBayesClassifier as FastBayesClassifier

# FastBayesClassifier is public, too; but whoever takes all of these need not have pyspark.
__all__ = ["count_paths", "map_reduce", "paths"]

T = TypeVar("T")
# Into so many parts files are divided, at most: tasks for a few dozen executors.
PARTS = 64
# More parts are added up on executors.
FEW_PARTS = 16
# Tasks that add up what the partitions of a frame say.
SUMS = 4
_ANSWER = "answer binary"


def __getattr__(name: str) -> Any:
    if name != "FastBayesClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from fastbayes.engines.spark_ml import FastBayesClassifier
    except ImportError as error:
        raise FastBayesError(f"{name} needs pyspark: install fastbayes[spark]") from error
    return FastBayesClassifier


def paths(session: Any, source: Any, *, filesystem: Any = None, parts: int | None = None) -> Paths:
    """Return files as a source that the executors of a Spark session read, each some of them.

    Parameters
    ----------
    session
        A `SparkSession`, of Spark Connect, too.
    source, filesystem
        As in `pool.paths`. Every executor finds the files there, and has fastbayes installed.
    parts
        Into how many parts, each a task of one thread, the files are divided; by default four for
        each core of the session, where it tells, else 64.
    """
    n = _parts(session) if parts is None else parts
    return Paths(source, partial(_mapped, session), n, filesystem)


def count_paths(session: Any, source: Any, target: Any, **options: Any) -> Statistics:
    """Return `count` of files that the executors of a Spark session read.

    Parameters
    ----------
    session, source
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
    given = paths(session, source, filesystem=options.pop("filesystem", None))
    return count(given, target, **options)


def map_reduce(session: Any, parts: Iterable[T], f: Callable[[T], Statistics]) -> Statistics:
    """Return the sum of the statistics that a function gives for parts, each in a task of its own.

    Parameters
    ----------
    session
        A `SparkSession`, of Spark Connect, too.
    parts
        At least one; they may be pickled.
    f
        Returns the statistics of a part.

    Returns
    -------
    Statistics
        The sum; of more than 16 parts executors take it. ValueError if there are no parts.
    """
    work = Work(Given(f), 1)
    found = map(work.read, _mapped(session, work, parts))
    return shares.map_reduce(found, lambda read: read.part.value, operator.add)


def _parts(session: Any) -> int:
    """Return four parts for each core, by the properties that any session tells."""
    cores = session.conf.get("spark.default.parallelism", None)
    master = session.conf.get("spark.master", "") or ""
    if cores is None and master.startswith("local["):
        cores = master.removeprefix("local[").partition("]")[0].partition(",")[0]
    return 4 * int(cores) if cores is not None and cores.isdigit() else PARTS


def _on_numbers(
    items: Sequence[Any], f: Callable[[Any], bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def of_tasks(batches):  # type: ignore[no-untyped-def]  # Spark looks at annotations
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch({"answer": pa.array([f(items[number])], pa.binary())})

    return of_tasks


def _mapped(session: Any, work: Work[Any], parts: Iterable[Any]) -> Iterable[bytes]:
    items = [*parts]
    if not items:
        return []
    numbers = session.range(0, len(items), 1, len(items))
    answers = numbers.mapInArrow(_on_numbers(items, work), _ANSWER)
    if len(items) > FEW_PARTS:
        answers = _added(answers, math.isqrt(len(items)), work.sum)
    return _collected(answers)


def _added(answers: Any, tasks: int, add: Callable[[Iterable[bytes]], bytes]) -> Any:
    def of_answers(batches):  # type: ignore[no-untyped-def]
        found = [item.as_py() for batch in batches for item in batch.column(0)]
        if found:
            yield pa.record_batch({"answer": pa.array([add(found)], pa.binary())})

    return answers.repartition(tasks).mapInArrow(of_answers, _ANSWER)


def _collected(answers: Any) -> Iterator[bytes]:
    for item in answers.toArrow().column(0):
        yield item.as_py()


def open_frame(
    frame: Any,
    *,
    columns: Columns = None,
    null_values: Sequence[str] | None = None,
    **_: Any,
) -> Streams:
    """Return a `pyspark.sql.DataFrame` as rows that lie in its partitions."""
    from pyspark.sql.pandas.types import to_arrow_schema

    on_partitions = partial(_on_partitions, frame)
    options: dict[str, Any] = {}
    if "timezone" in inspect.signature(to_arrow_schema).parameters:  # not in Spark 4.0
        options["timezone"] = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    schema = to_arrow_schema(frame.schema, **options)
    given = "pyspark.sql.DataFrame", frame, columns, null_values
    return Streams(schema, on_partitions, *given)


def _on_partitions(
    frame: Any, columns: Sequence[str], counts: Counts, add: Callable[[Iterable[bytes]], bytes]
) -> Iterable[bytes]:
    names = [*columns]

    def of_partition(batches):  # type: ignore[no-untyped-def]
        named = (batch.rename_columns(names) for batch in batches)
        yield pa.record_batch({"answer": pa.array([counts(named)], pa.binary())})

    some = frame.select([f"`{name.replace('`', '``')}`" for name in names])
    some = some.toDF(*map(str, range(len(names))))  # mapInArrow fails where a name has a dot
    return _collected(_added(some.mapInArrow(of_partition, _ANSWER), SUMS, add))


def append_to(frame: Any, appended: Any) -> Any:
    """Return a frame with columns appended, which are computed with its partitions."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    names, needs = [*frame.columns], appended.needs
    # Stages of pipelines tell each other of their columns by metadata.
    fields = [(field.dataType, True, field.metadata) for field in frame.schema.fields]
    fields += [(from_arrow_type(field.type), True, {}) for field in appended.fields]
    numbers = [*map(str, range(len(fields)))]

    def of_partition(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            rows = batch.rename_columns(names).select(needs)
            yield pa.record_batch([*batch.columns, *appended(rows)], names=numbers)

    named = zip(numbers, fields, strict=True)
    schema = StructType([StructField(name, *field) for name, field in named])
    answered = frame.toDF(*numbers[: len(names)]).mapInArrow(of_partition, schema)
    return answered.toDF(*names, *(field.name for field in appended.fields))
