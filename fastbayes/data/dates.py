"""Columns of dates and times to their parts: numbers of hours or days are looked up in tables."""

from __future__ import annotations

from bisect import bisect_left
from calendar import isleap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.date_parts import CYCLES, DAY, PARTS, DatePart, Span, by_column, zone_of
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Schema
from fastbayes.data.decoded_rows import DecodedRows
from fastbayes.data.pieces import Column, chunks_of
from fastbayes.data.segments import Rows

Ints = NDArray[np.int64]

EPOCH = datetime(1970, 1, 1)
# Ticks of a second, by the units of Arrow.
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Seconds of a stretch of time within which clock and calendar show one hour, and one day.
HOUR = 3600
# Tables have at most so many stretches, those of 120 years, and grow by so many.
MOST_STRETCHES, GROWTH = 1 << 20, 1 << 14
# Seconds of the first moments of 2037 and of 2038: zone files of most systems list changes until
# then, and state a rule for later years.
LAST_YEAR, LISTED_UNTIL = 2_114_380_800, 2_145_916_800
# Years in which each calendar is once. Later years are as the one with their calendar; those before
# are as they are, since some zones list changes there (Casablanca until 2087, by the moon).
SAMPLE_YEARS = range(2101, 2129)
# To make one takes about as long as to do without for so many rows.
FEW_ROWS = BLOCK_ROWS


class Ticks(NamedTuple):
    """Dates or times as whole numbers; under nulls there is anything.

    numbers      (n_rows,), int32 or int64
    per_second   how many of them are a second, or
    seconds      how many seconds one of them is; one of both is 1
    """

    numbers: NDArray[np.signedinteger]
    per_second: int
    seconds: int

    @classmethod
    def of(cls, column: pa.Array) -> Ticks:
        """Return the numbers of an array, not copied."""
        kind = column.type
        short = t.is_date32(kind) or t.is_time32(kind)
        width: type[np.signedinteger[Any]] = np.int32 if short else np.int64
        values = np.frombuffer(column.buffers()[1], width)[column.offset :][: len(column)]
        if t.is_date32(kind):
            return cls(values, 1, DAY)
        return cls(values, PER_SECOND["ms" if t.is_date64(kind) else kind.unit], 1)

    def ends(self, column: pa.Array) -> tuple[int, int]:
        """Return the least and the greatest number of an array that are not null."""
        if not column.null_count:
            return int(self.numbers.min()), int(self.numbers.max())
        plain = pa.int32() if self.numbers.dtype.itemsize == 4 else pa.int64()
        found = pc.min_max(column.view(plain)).as_py()
        return found["min"], found["max"]


class _Table(NamedTuple):
    """What clock and calendar show in stretches of time, from one of them on."""

    first: int
    parts: Mapping[str, NDArray[Any]]

    def covers(self, first: int, last: int) -> bool:
        n = len(next(iter(self.parts.values())))
        return self.first <= first and last < self.first + n


def with_parts(rows: Rows, schema: Schema) -> Rows:
    """Return rows with what features are made of: parts instead of the columns that they are of."""
    return DateParts(part for some in schema.parts.values() for part in some).of(rows)


class DateParts:
    """Derives the parts of columns of dates and times; threads may share it."""

    def __init__(self, parts: Iterable[DatePart]) -> None:
        self.parts = by_column(parts)
        # By column, zone and seconds of a stretch. Any thread lets them grow: what another one
        # replaces at the same time is made once more.
        self._tables: dict[tuple[str, str | None, int], _Table] = {}
        self._met = 0  # rows, as long as there is no table
        # By column, from which hour to which its zone is known, and the seconds of a stretch there.
        self._steps: dict[str, tuple[int, int, int]] = {}

    def of(self, rows: Rows) -> Rows:
        """Return rows with parts instead of the columns that they are of.

        Rows that hold parts instead of a column already keep them. Raises DataError for a time zone
        that the system does not know; the message names the column.
        """
        derived = [column for column in self.parts if column in rows.schema.names]
        if not derived:
            return rows
        if isinstance(rows, DecodedRows):
            rows = rows.table
        gone = {*derived, *(part.name for column in derived for part in self.parts[column])}
        columns = {name: rows.column(name) for name in rows.schema.names if name not in gone}
        for column in derived:
            parts = self.parts[column]
            for part, array in zip(parts, self._derived(rows.column(column), parts), strict=True):
                columns[part.name] = array
        return type(rows).from_arrays(list(columns.values()), names=list(columns))

    def _derived(self, column: Column, parts: Sequence[DatePart]) -> list[Column]:
        if isinstance(column, pa.Array):
            return self._parts(column, parts)
        chunks = [self._parts(chunk, parts) for chunk in chunks_of(column)]
        return [pa.chunked_array(of_part) for of_part in zip(*chunks, strict=True)]

    def _parts(self, column: pa.Array, parts: Sequence[DatePart]) -> list[pa.Array]:
        """Return the parts of an array, null where it is null."""
        if t.is_dictionary(column.type):
            column = column.dictionary_decode()
        n, nulls = len(column), column.null_count
        if nulls == n:
            return [pa.nulls(n, part.type) for part in parts]
        # Bits that say what is null are shared: they begin within a byte.
        pad = column.offset % 8 if nulls else 0
        known = column.buffers()[0].slice(column.offset // 8) if nulls else None
        whole = [np.empty(pad + n, part.type.to_pandas_dtype()) for part in parts]
        shown = []
        for part, out in zip(parts, whole, strict=True):
            if part.part == "elapsed":
                _write_elapsed(Ticks.of(column), part, out[pad:])
            else:
                shown.append((part, out[pad:]))
        if shown:
            self._write_shown(column, shown)
        return [
            pa.Array.from_buffers(part.type, n, [known, pa.py_buffer(out)], nulls, pad)
            for part, out in zip(parts, whole, strict=True)
        ]

    def _write_shown(self, column: pa.Array, wanted: list[tuple[DatePart, NDArray[Any]]]) -> None:
        """Write what clock and calendar show."""
        name, zone = wanted[0][0].column, wanted[0][0].zone
        names = [part.part for part, _ in wanted]
        self._met += len(column)
        few = self._met < FEW_ROWS and not self._tables
        step = self._step(column, name, zone) if zone is not None and not few else 0
        if step == 0:
            column, zone = local_times(column, name, zone), None
            step = HOUR if "hour" in names else DAY
        ticks = Ticks.of(column)
        step = max(step, ticks.seconds)
        stretch = step * ticks.per_second // ticks.seconds  # in ticks
        first, last = (end // stretch for end in ticks.ends(column))
        table = None
        if last - first < MOST_STRETCHES and not few:
            table = self._table(name, zone, step, names, first, last)
        for begin in range(0, len(column), BLOCK_ROWS):
            at = ticks.numbers[begin : begin + BLOCK_ROWS].astype(np.int64, copy=False)
            at = at // stretch if stretch > 1 else at
            if table is not None:
                at = at - table.first
                for part, out in wanted:
                    some = out[begin : begin + BLOCK_ROWS]
                    table.parts[part.part].take(at, out=some, mode="clip")
                continue
            found = shown_at(names, np.clip(at, first, last) * step)
            for part, out in wanted:
                out[begin : begin + BLOCK_ROWS] = found[part.part]

    def _table(
        self, name: str, zone: str | None, step: int, names: Sequence[str], first: int, last: int
    ) -> _Table:
        key = name, zone, step
        table = self._tables.get(key)
        if table is None or not table.covers(first, last):
            if table is not None:
                first, last = min(first, table.first), max(last, table.first)
            first, behind = first // GROWTH * GROWTH, (last // GROWTH + 1) * GROWTH
            at = np.arange(first, behind, dtype=np.int64) * step
            if zone is not None:
                at += _offsets(at, zone, name)
            table = self._tables[key] = _Table(first, shown_at(names, at))
        return table

    def _step(self, column: pa.Array, name: str, zone: str) -> int:
        """Return the seconds of stretches within which the hour of a zone does not change.

        0: there are none, as where a zone was 53 minutes and 28 seconds off.
        """
        ticks = Ticks.of(column)
        first, last = (end // (HOUR * ticks.per_second) for end in ticks.ends(column))
        known = self._steps.get(name)
        if known is not None and known[0] <= first and last < known[1]:
            return known[2]
        if known is not None:
            first, last = min(first, known[0]), max(last, known[1] - 1)
        first, behind = first // GROWTH * GROWTH, (last // GROWTH + 1) * GROWTH
        step = _step_between(first, behind, name, zone)
        self._steps[name] = first, behind, step
        return step


def _step_between(first: int, behind: int, name: str, zone: str) -> int:
    """Return what `DateParts._step` does of these hours."""
    if behind - first >= MOST_STRETCHES // 4:
        return 0
    at = np.arange(first, behind + 1, dtype=np.int64) * HOUR
    offsets = _offsets(at, zone, name)
    changes = np.flatnonzero(offsets[1:] != offsets[:-1])
    for step in (HOUR, HOUR // 2, HOUR // 4):
        if (offsets % step).any():
            continue
        # Of an hour in which the offset changes, the stretches before and after.
        inside = at[changes][:, None] + np.arange(0, HOUR, step)
        begin, end = (_offsets((inside + s).ravel(), zone, name) for s in (0, step - 1))
        if (begin == end).all():
            return step
    return 0


def _offsets(at: Ints, zone: str, name: str) -> Ints:
    """Return what local time is ahead at these seconds of universal time, in seconds."""
    local = local_times(pa.array(at).cast(pa.timestamp("s", "UTC")), name, zone)
    return np.asarray(local.view(pa.int64()).to_numpy() - at)


def local_times(column: pa.Array, name: str, zone: str | None) -> pa.Array:
    """Return timestamps as local time of a zone, without one; other columns as they are.

    Raises DataError for a zone that the system does not know; the message names the column.
    """
    if zone is None:
        return column
    try:
        local = pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
    except pa.ArrowException as error:
        raise DataError(
            f"column {name!r}: time zone {zone!r} is not known here ({error}); cast the column to "
            "UTC, or install the time zones of the system (tzdata)"
        ) from error
    numbers, a_second, _ = Ticks.of(column)
    unread = _unread_from(zone)
    if unread is None or not (late := numbers >= unread * a_second).any():
        return local
    changes = _late_changes(zone, unread)
    shown = Ticks.of(local).numbers.copy()
    shown[late] = numbers[late] + changes.offsets(numbers[late] // a_second) * a_second
    return pa.array(shown, mask=column.is_null().to_numpy(zero_copy_only=False)).cast(local.type)


class _Changes(NamedTuple):
    """What a zone is ahead from some seconds of universal time on, in seconds."""

    since: Ints
    ahead: Ints

    def offsets(self, at: Ints) -> Ints:
        """Return what local time is ahead at these seconds, none before the first change."""
        years = at.astype("datetime64[s]").astype("datetime64[Y]")
        begin = years.astype("datetime64[s]").astype(np.int64)
        calendar = years.astype(np.int64) + 1970
        leap = (calendar % 4 == 0) & ((calendar % 100 != 0) | (calendar % 400 == 0))
        like = _LIKE_YEARS[leap.astype(np.int64), begin // DAY % 7]
        at = np.where(calendar < SAMPLE_YEARS[0], at, at - begin + like)
        return self.ahead[np.searchsorted(self.since, at, side="right") - 1]


def _first_seconds() -> Ints:
    """Return where the sample year begins, by whether it is a leap year and its first weekday."""
    found = np.zeros((2, 7), np.int64)
    for year in SAMPLE_YEARS:
        first = date(year, 1, 1).toordinal() - EPOCH.toordinal()
        found[int(isleap(year)), first % 7] = first * DAY
    return found


_LIKE_YEARS = _first_seconds()


@lru_cache
def _unread_from(zone: str) -> int | None:
    """Return the second from which on Arrow may not know what a zone is ahead; None of no zone.

    It reads the changes that a zone file lists, and not the rule for later ones. Some systems have
    files that list none where a rule is enough: there the rule may have begun long ago.
    """
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):  # as "+05:30", which Arrow knows
        return None
    for first in (LAST_YEAR, 0):
        at = np.arange(first, LISTED_UNTIL, DAY)
        local = pc.local_timestamp(pa.array(at).cast(pa.timestamp("s", zone)))
        by_rule = np.array([_ahead(then, known) for then in at.tolist()])
        other = np.flatnonzero(np.asarray(local.view(pa.int64())) - at != by_rule)
        if not len(other):
            return LISTED_UNTIL
    return max(0, int(at[other[0]]) - DAY)


def _ahead(at: int, zone: ZoneInfo) -> int:
    """Return what a zone is ahead at a second of universal time, in seconds."""
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None
    return offset.days * DAY + offset.seconds


@lru_cache
def _late_changes(zone: str, first: int) -> _Changes:
    """Return the changes of a zone from a second on, by Python, which knows the rules."""
    known = ZoneInfo(zone)
    since, offsets = [first], [_ahead(first, known)]
    end = int(datetime(SAMPLE_YEARS[-1] + 1, 1, 1, tzinfo=UTC).timestamp())
    for after in range(first + DAY, end, DAY):
        if (then := _ahead(after, known)) != offsets[-1]:
            seconds = range(after - DAY + 1, after + 1)
            since.append(
                seconds[bisect_left(seconds, True, key=lambda at: _ahead(at, known) == then)]
            )
            offsets.append(then)
    return _Changes(np.array(since), np.array(offsets))


def shown_at(names: Sequence[str], seconds: Ints) -> dict[str, NDArray[Any]]:
    """Return what clock and calendar show so many seconds after 1970-01-01."""
    found: dict[str, NDArray[Any]] = {}
    days = seconds // DAY
    months: Ints | None = None
    for name in names:
        if name == "hour":
            value = (seconds - days * DAY) // HOUR
        elif name == "weekday":
            value = (days + 3) % 7 + 1  # it was a Thursday
        else:
            if months is None:
                months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            value = months // 12 + 1970 if name == "year" else months % 12 + 1
        found[name] = value.astype(np.int8 if name in CYCLES else np.float64)
    return found


def _write_elapsed(ticks: Ticks, part: DatePart, out: NDArray[np.float64]) -> None:
    """Write the time since the origin: that of a moment is the same in all units."""
    days = part.unit == "days"
    for begin in range(0, len(out), BLOCK_ROWS):
        some = ticks.numbers[begin : begin + BLOCK_ROWS].astype(np.int64, copy=False)
        at = out[begin : begin + BLOCK_ROWS]
        if ticks.seconds > 1:
            np.subtract(some if days else some * ticks.seconds, part.origin, out=at)
            continue
        whole = some // ticks.per_second
        rest = some - whole * ticks.per_second
        if days:
            whole_days = whole // DAY
            np.divide(rest / ticks.per_second + (whole - whole_days * DAY), DAY, out=at)
            at += whole_days - part.origin
        else:
            np.divide(rest, ticks.per_second, out=at)
            at += whole - part.origin


def span_of(column: Column, name: str, *, times: bool = True) -> Span:
    """Return what the values of a column of dates or times say of its span.

    `times` is whether to look for one that is not at midnight.
    """
    found = Span()
    for chunk in chunks_of(column):
        if t.is_dictionary(chunk.type):
            chunk = chunk.dictionary_decode()
        if chunk.null_count == len(chunk):
            continue
        times = times and not found.has_times
        ticks = Ticks.of(chunk)
        ends = [end * ticks.seconds // ticks.per_second for end in ticks.ends(chunk)]
        found |= Span(min(ends), max(ends), has_times=times and _has_times(chunk, name))
    return found


def _has_times(column: pa.Array, name: str) -> bool:
    """Return whether a value is not at midnight, local time."""
    if not (t.is_timestamp(column.type) or t.is_date64(column.type)):
        return False
    few = column.slice(0, 64).drop_null()  # most tell it at once
    for some in (few, column.drop_null()):
        ticks = Ticks.of(local_times(some, name, zone_of(some.type)))
        if (ticks.numbers % (DAY * ticks.per_second)).any():
            return True
    return False


def by_python(part: DatePart) -> Callable[[Any], float | None]:
    """Return what tells the part of one value of Python's, as `DateParts` does of an array.

    It gives None for a value that is another's to look at: of another type or zone, missing, or
    with a local time before the year 1 or after 9999, which Python has not.
    """
    try:
        zone = None if part.zone is None else ZoneInfo(part.zone)
    except (ZoneInfoNotFoundError, ValueError):  # as "+05:30", which Arrow knows
        return lambda _: None

    def part_of(value: Any) -> float | None:
        kind = type(value)
        if kind is date and zone is None and part.part in PARTS["date"]:
            value = datetime(value.year, value.month, value.day)
        elif kind is not datetime or (value.tzinfo is None) != (zone is None):
            return None
        if part.part != "elapsed":
            if zone is not None:
                try:
                    value = value.astimezone(zone)
                except OverflowError:
                    return None
            return value.isoweekday() if part.part == "weekday" else getattr(value, part.part)
        since = value - (EPOCH if zone is None else EPOCH.replace(tzinfo=UTC))
        if part.unit == "days":
            rest = since.microseconds / 10**6 + since.seconds
            return rest / DAY + (since.days - part.origin)
        whole = since.days * DAY + since.seconds
        return since.microseconds / 10**6 + (whole - part.origin)

    return part_of if part.held in ("date", "timestamp") else lambda _: None
