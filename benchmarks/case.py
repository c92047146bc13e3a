"""What a case of the benchmarks is: who takes part, on what, and what is claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Side

OURS = "fastbayes"
FLOOR = "reading the bytes once"


@dataclass(frozen=True)
class Claim:
    """What is claimed of our time: at most so many times another's, or at least so many times less.

    against  name of the other side; None for an absolute time
    most     our time per unit over the other's, or nanoseconds per unit where `against` is None
    least    the other's time per unit over ours
    With neither the comparison is shown and nothing claimed.
    """

    against: str | None
    most: float | None = None
    least: float | None = None


@dataclass(frozen=True)
class Work:
    """Sides by name, ours first, and a check that they all computed the same."""

    sides: dict[str, Side]
    check: Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Case:
    """One line of the claims.

    name     for the command line
    title    what is done, with {rows} in it
    rows     at each size: "full", "quick", and "test" among the tests
    build    (rows, folder for files) -> Work
    claims   in the order of the table
    unit     what the nanoseconds are per
    threads  "all", or "one" where the claim is per core
    """

    name: str
    title: str
    rows: dict[str, int]
    build: Callable[[int, Path], Work]
    claims: tuple[Claim, ...]
    unit: str = "cell"
    threads: str = "all"
    turns: dict[str, int] = field(default_factory=lambda: {"full": 15, "quick": 5, "test": 1})


def rows_of(full: int, quick: int, test: int = 3_000) -> dict[str, int]:
    return {"full": full, "quick": quick, "test": test}
