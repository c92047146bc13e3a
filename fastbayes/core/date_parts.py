"""Parts of dates and times: numbers and cyclic values that features are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as t

from fastbayes.core.domains import decoded
from fastbayes.core.errors import SchemaError, refuse

# The values of parts that are cyclic: ISO weekdays begin with Monday, hours with midnight.
CYCLES = {"month": range(1, 13), "weekday": range(1, 8), "hour": range(24)}
# What can be told of columns, by what they hold.
PARTS = {
    "date": ("year", "month", "weekday", "elapsed"),
    "timestamp": ("year", "month", "weekday", "hour", "elapsed"),
    "time": ("hour", "elapsed"),
    "duration": ("elapsed",),
}
DAY = 86_400
# Spans, in seconds, below which months say as little as years, and years as little as months.
FEW_WEEKS, FEW_YEARS = 60 * DAY, 2 * 365 * DAY


@dataclass(frozen=True)
class DatePart:
    """What a feature is of a column of dates or times.

    Parameters
    ----------
    column
        Name of the column.
    part
        "year", a number; "month" (1 to 12), "weekday" (1 is Monday, 7 Sunday) and "hour" (0 to 23),
        categories; "elapsed", a number: the time since the origin, since midnight, or a duration.
    held
        What the column holds: "date", "timestamp", "time" or "duration".
    zone
        Time zone in whose local time parts of timestamps are; None for timestamps without one.
    unit
        Of elapsed time: "days" or "seconds".
    origin
        From where elapsed time counts, in its unit after 1970-01-01, midnight (of the zone UTC,
        where there is one).
    """

    column: str
    part: str
    held: str
    zone: str | None = None
    unit: str = "seconds"
    origin: int = 0

    @property
    def name(self) -> str:
        """Name of the feature: "when.weekday"."""
        return f"{self.column}.{self.part}"

    @property
    def values(self) -> pa.Array | None:
        """The values of a cyclic part, (n_values,); None of a number."""
        cycle = CYCLES.get(self.part)
        return None if cycle is None else pa.array(cycle, pa.int64())

    @property
    def type(self) -> pa.DataType:
        """Arrow type of what is derived."""
        return pa.float64() if self.part not in CYCLES else pa.int8()

    def is_same(self, other: DatePart | None) -> bool:
        """Return whether both are the same of a column, dates or timestamps."""
        return other is not None and self == replace(other, held=self.held)

    def check(self, kind: pa.DataType, *, applying: bool = False) -> None:
        """Raise SchemaError where a column of this type does not have the part.

        To learn from, a date is its midnight, as where files of dates and of timestamps are read
        together. While `applying` what was learned there is no hour of dates: it would be made up.
        """
        held, zone = holds(kind), zone_of(kind)
        if t.is_null(decoded(kind)):
            return
        both = {self.held, held}
        alike = held == self.held or both == {"date", "timestamp"}
        if held is None or not alike or (zone is None) != (self.zone is None):
            was = "timestamps with a time zone" if self.zone else f"{self.held}s"
            raise SchemaError(
                f"column {self.column!r} held {was} at fit and is {kind} now; cast it to that"
            )
        if applying and self.part not in PARTS[held]:
            raise SchemaError(
                f"column {self.column!r} held {self.held}s at fit and is {kind} now, which has no "
                f"{self.part}; give it as {self.held}s, or null where they are not known"
            )

    def to_json(self) -> list[Any]:
        """Return what a file holds of it."""
        return [self.column, self.part, self.held, self.zone, self.unit, self.origin]

    @classmethod
    def from_json(cls, given: Any) -> DatePart:
        """Return what `to_json` wrote; ValueError or TypeError when it is something else."""
        column, part, held, zone, unit, origin = given
        refuse(
            not isinstance(column, str)
            or part not in PARTS.get(held, ())
            or not (zone is None or isinstance(zone, str))
            or unit not in ("days", "seconds")
            or type(origin) is not int,
            f"{given!r} is no part of a date",
            ValueError,
        )
        return cls(column, part, held, zone, unit, origin)


class Span(NamedTuple):
    """What values of a column say of which parts of it say something.

    least, greatest  in seconds; None where there is no value
    has_times        whether one is not at midnight, local time
    """

    least: int | None = None
    greatest: int | None = None
    has_times: bool = False

    def __or__(self, other: Span) -> Span:
        """Return what both say."""
        ends = [
            [x for x in pair if x is not None]
            for pair in ((self.least, other.least), (self.greatest, other.greatest))
        ]
        least, greatest = min(ends[0], default=None), max(ends[1], default=None)
        return Span(least, greatest, has_times=self.has_times or other.has_times)


def holds(kind: pa.DataType) -> str | None:
    """Return what a column of a type holds: dates, timestamps, times of day or durations."""
    kind = decoded(kind)
    tests = {
        "date": t.is_date,
        "timestamp": t.is_timestamp,
        "time": t.is_time,
        "duration": t.is_duration,
    }
    return next((held for held, test in tests.items() if test(kind)), None)


def zone_of(kind: pa.DataType) -> str | None:
    """Return the time zone of a type."""
    kind = decoded(kind)
    return kind.tz if t.is_timestamp(kind) else None


def parts_by_span(held: str, span: Span) -> tuple[str, ...]:
    """Return the parts of a column that say something, by how far apart its values are.

    A time of day is an hour and the seconds since midnight, a duration its seconds. Dates and
    timestamps within a day are that, too, counted from the origin; from a day on they have a
    weekday, from 60 days on a month, from two years of 365 days on a year; and an hour, unless all
    are at midnight. Elapsed time is not among these: rows that a model is asked of come later than
    those that it was fitted to, where a number tells nothing that was learned.
    """
    if held == "duration":
        return ("elapsed",)
    apart = 0 if span.least is None or span.greatest is None else span.greatest - span.least
    if held == "time" or (apart < DAY and span.has_times):
        return "hour", "elapsed"
    found = ("year",) * (apart >= FEW_YEARS) + ("month",) * (apart >= FEW_WEEKS) + ("weekday",)
    return (*found, *(("hour",) if span.has_times else ()))


def parts_of(column: str, kind: pa.DataType, asked: Any) -> tuple[DatePart, ...]:
    """Return the parts of a column.

    Parameters
    ----------
    column, kind
        Its name and Arrow type.
    asked
        Names of parts, "number" for elapsed time alone, or parts of another scan, which stay.

    Raises
    ------
    SchemaError
        When a part is none of such a column.
    """
    held = holds(kind) or "timestamp"
    found: dict[str, DatePart] = {}
    for name in named_parts(column, asked):
        if isinstance(name, DatePart):
            name.check(kind)
            found[name.part] = name
            continue
        if name not in PARTS[held]:
            raise SchemaError(
                f"dates[{column!r}]: {name!r} is no part of a {held}; use some of "
                f"{', '.join(PARTS[held])}, or 'number'"
            )
        unit = "days" if held == "date" and name == "elapsed" else "seconds"
        found[name] = DatePart(column, name, held, zone_of(kind), unit)
    refuse(
        not found,
        f"dates[{column!r}] is empty: leave the column out with `exclude`",
        SchemaError,
    )
    return tuple(found.values())


def named_parts(column: str, asked: Any) -> list[Any]:
    """Return the parts that are asked for: "number" is elapsed time, parts that are found stay."""
    refuse(
        not isinstance(asked, Iterable | DatePart),
        f"dates[{column!r}]={asked!r}: use a list of parts, such as ['weekday', 'hour'], or "
        "'number'; leave the column out of `dates` for the parts that its span says",
        SchemaError,
    )
    names = [asked] if isinstance(asked, (str, DatePart)) else list(asked)
    return ["elapsed" if isinstance(name, str) and name == "number" else name for name in names]


def by_column(parts: Iterable[DatePart]) -> dict[str, tuple[DatePart, ...]]:
    """Return parts by the column that they are of."""
    found: dict[str, tuple[DatePart, ...]] = {}
    for part in parts:
        found[part.column] = (*found.get(part.column, ()), part)
    return found
