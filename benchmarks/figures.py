"""One measured number of a case that is no contest of sides."""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 2**30


@dataclass(frozen=True)
class Figure:
    """One measured number, what it is called in the table, and the most or least claimed of it."""

    title: str
    value: float
    unit: str
    most: float | None = None
    more: dict[str, float] = field(default_factory=dict)
    least: float | None = None
