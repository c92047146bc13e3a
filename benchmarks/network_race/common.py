"""What the races of networks share: who takes part, turns, the network, tables of the figures."""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks import alarm
from benchmarks.measure import ratio
from benchmarks.network_race.peers import Peers

Floats = NDArray[np.float64]
Turn = dict[str, Any]
# Lines of Markdown, and what JSON keeps.
Found = tuple[list[str], dict[str, Any]]

STATES = [f"s{k}" for k in range(max(alarm.SIZES.values()))]


@dataclass(frozen=True)
class Options:
    """What is measured, and on how much."""

    peers: Peers | None
    jags: list[str] | None
    folder: Path
    turns: int
    budgets: list[float]
    rows: list[int]
    pgmpy_rows: int
    class_rows: int
    scan_rows: int
    memory_limits: list[str]

    def has(self, peer: str) -> bool:
        return self.peers is not None and peer in self.peers.versions

    def ask(self, action: str, **told: Any) -> Turn:
        assert self.peers is not None
        return self.peers.ask(action, **told)


@dataclass
class Side:
    """One contender: seconds and work of each turn, and what else was found in it."""

    run: Callable[[int], Turn]
    ours: bool = False
    turns: list[Turn] = field(default_factory=list)

    def median(self, key: str) -> float:
        return statistics.median(turn[key] for turn in self.turns)

    def fastest(self) -> float:
        return min(turn["seconds"] for turn in self.turns)

    def per_second(self) -> float:
        return statistics.median(turn["units"] / turn["seconds"] for turn in self.turns)

    def slower(self, other: Side) -> float:
        """Return how many times as long as another this takes for a unit of work."""
        mine, its = (
            [turn["seconds"] / turn["units"] for turn in side.turns] for side in (self, other)
        )
        return ratio(mine, its)


def interleaved(sides: Mapping[str, Side], turns: int) -> None:
    """Let the sides take turns."""
    for turn in range(turns):
        for name, side in sides.items():
            side.turns.append(side.run(turn))
            progress(f"{name}: {side.turns[-1]['seconds']:.3g} s")


def progress(text: str) -> None:
    """Say what has been done: minutes go by."""
    print(f"  {text}", file=sys.stderr, flush=True)


def without(turn: Turn, *keys: str) -> Turn:
    """Return a turn without what JSON need not keep."""
    return {key: value for key, value in turn.items() if key not in keys}


@functools.cache
def network() -> fb.BayesianNetwork:
    """Return the network of `benchmarks.alarm`."""
    states = {name: STATES[:size] for name, size in alarm.SIZES.items()}
    return fb.BayesianNetwork(states, alarm.PARENTS, alarm.tables())


def as_table(codes: Mapping[str, NDArray[Any]], states: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Return codes as dictionary columns, -1 as null."""
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array(values.astype(np.int32), mask=values.astype(np.int32) < 0),
            pa.array(states[name]),
        )
        for name, values in codes.items()
    }
    return pa.table(columns)


def short(x: float) -> str:
    """Return three digits, and no exponent where there are more.

    >>> short(0.12345), short(1234.5)
    ('0.123', '1,234')
    """
    return f"{x:.3g}" if abs(x) < 999.5 else f"{x:,.0f}"


def rate_lines(title: str, sides: Mapping[str, Side], unit: str, scale: float = 1) -> list[str]:
    """Return a table of work per second, and of ours beside each peer's."""
    ours = {name: side for name, side in sides.items() if side.ours}
    heads = [name.replace("fastbayes", "ours") for name in ours]
    lines = [
        title,
        "",
        f"| | {'M ' if scale > 1 else ''}{unit}/s | {' | '.join(heads)} |",
        "|---|--:|" + "--:|" * len(ours),
    ]
    for name, side in sides.items():
        cells = [name, short(side.per_second() / scale)]
        for mine in ours.values():
            cells.append("" if side.ours else f"{short(side.slower(mine))} × as fast")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
