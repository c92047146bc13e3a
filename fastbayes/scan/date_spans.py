"""Which parts of dates and times are features: those asked for, or those that the span says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.date_parts import DatePart, Span, holds, parts_by_span, parts_of
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.picks import is_pattern, unknown_column
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.dates import span_of
from fastbayes.data.segments import Segment, Source
from fastbayes.data.store_errors import NotSkippedError
from fastbayes.scan.request import Counter, Partial, ScanRequest

Spans = dict[str, Span]
# Parts that say something of most columns, for messages.
SAYING = {"date": ["month", "weekday"], "timestamp": ["weekday", "hour"]}


def date_parts(
    source: Source,
    features: Iterable[str],
    dates: Mapping[str, Any] | None = None,
    *,
    threads: int | None = None,
    on_error: str = "stop",
) -> dict[str, tuple[DatePart, ...]]:
    """Return the parts of columns of dates and times, in the order of the columns.

    Parameters
    ----------
    source
        Where the rows come from. It is scanned for the span of the columns that `dates` does not
        name, unless these are durations or times of day.
    features
        Names of the columns that take part.
    dates
        {column: names of its parts, or "number"}, as in `count`; or parts that were found before.
    threads
        Worker threads.
    on_error
        "stop", or "skip" to leave out segments that cannot be read.

    Raises
    ------
    SchemaError
        When `dates` names what is no column of dates or times; when the span is needed, and the
        source can be read only once or is a part of others.
    """
    kinds = {name: source.schema.field(name).type for name in features}
    asked = {} if dates is None else dict(dates)
    for name in asked:
        if name not in kinds:
            told = unknown_column(name, list(kinds), source.description)
            names_only = "; `dates` takes names, not patterns" if is_pattern(name) else ""
            raise SchemaError(f"dates: {told}{names_only}")
        if holds(kinds[name]) is None and not pa.types.is_null(kinds[name]):
            raise SchemaError(
                f"dates: column {name!r} is {kinds[name]}, no date or time; cast it to one, or "
                "leave it out of `dates`"
            )
    held = {name: holds(kind) for name, kind in kinds.items() if name not in asked}
    rest = {name: kind for name, kind in held.items() if kind is not None}
    to_scan = [name for name, kind in rest.items() if kind in ("date", "timestamp")]
    spans = _spans(source, to_scan, threads, on_error) if to_scan else {}
    asked |= {name: parts_by_span(kind, spans.get(name, Span())) for name, kind in rest.items()}
    return {name: parts_of(name, kinds[name], asked[name]) for name in kinds if name in asked}


def _spans(source: Source, names: list[str], threads: int | None, on_error: str) -> Spans:
    """Return the spans of columns, from one scan of these."""
    why, instead = None, ""
    if not source.rereadable:
        why = f"{source.description} can be read only once"
        instead = "pass a table or a path, "
    elif not source.of_whole:
        why = f"{source.description} is a part of other rows, whose span may be another"
    if why is not None:
        dates = {name: SAYING[str(holds(source.schema.field(name).type))] for name in names}
        raise SchemaError(
            f"{why}, and which parts of column {names[0]!r} are taken depends on its span: "
            f"{instead}name them in dates={dates}, or leave it out with `exclude`"
        )
    request = Spanning(tuple(names), on_error)
    if isinstance(source, Counter):
        return source.run(request, threads).value
    return request.count(source, threads).value


@dataclass(frozen=True)
class Spanning(ScanRequest[Spans]):
    """The spans of columns of dates and timestamps; `on_error` as in `date_parts`."""

    names: tuple[str, ...]
    on_error: str = "stop"

    def count(self, rows: Source, threads: int | None) -> Partial[Spans]:
        """Return what rows say."""
        found, n_rows = self.zero(), 0
        rows = rows.only(self.names)
        segments = rows.segments(BLOCK_ROWS)
        for n, some in in_order(self._of_segment, segments, resolved_threads(threads)):
            found, n_rows = self.add(found, some), n_rows + n
        return Partial(n_rows, found)

    def _of_segment(self, segment: Segment) -> tuple[int, Spans]:
        found, n_rows = self.zero(), 0
        try:
            for rows in segment.batches():
                n_rows += rows.num_rows
                for name in self.names:
                    column, known = rows.column(name), found[name]
                    found[name] |= span_of(column, name, times=not known.has_times)
        except DataError as error:
            if self.on_error != "skip" or isinstance(error, NotSkippedError):
                raise
        return n_rows, found

    def zero(self) -> Spans:
        """Return what no rows say."""
        return dict.fromkeys(self.names, Span())

    def add(self, a: Spans, b: Spans) -> Spans:
        """Return what the rows of both say."""
        return {name: a[name] | b[name] for name in self.names}

    def to_bytes(self, value: Spans) -> bytes:
        """Return the bytes of spans."""
        return json.dumps(value).encode()

    def from_bytes(self, data: bytes) -> Spans:
        """Return the spans that the bytes say."""
        return {name: Span(*given) for name, given in json.loads(data).items()}
