"""The cases of networks learned from data; `network_rivals` has them beside peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import alarm
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.networks.search.node_rows import read_rows
from fastbayes.networks.search.score import FamilyScores, ScoreRule, masks_of
from fastbayes.networks.search.structure_search import learned

# What may be lost against the graph that made the data, in nats per row.
LOST = 1e-3


def _learning(search: str, restarts: int) -> Callable[[int, Path], Work]:
    """Learn the network from an Arrow table, in which it is read, too."""

    def build(rows: int, _: Path) -> Work:
        table = alarm.table(rows)
        runs: dict[str, Callable[[], Any]] = {
            OURS: lambda: learned(table, search=search, restarts=restarts)
        }
        held = read_rows(table)

        def length(parents: dict[str, list[str]]) -> float:
            return -FamilyScores(held, ScoreRule("mdl")).total(masks_of(parents, held.names))

        def check(results: dict[str, Any]) -> None:
            ours = length(results[OURS].parents)
            if restarts:
                true = {node: list(above) for node, above in alarm.PARENTS.items()}
                assert ours <= length(true) + LOST * rows

        return Work({name: Side(run, float(rows)) for name, run in runs.items()}, check)

    return build


CASES = tuple(
    Case(
        name,
        f"{what} of a network like ALARM from an Arrow table, {{rows}} × 37",
        rows_of(100_000, 10_000),
        _learning(search, restarts),
        (Claim(None, most=4000),),
        unit="row",
    )
    for name, what, search, restarts in (
        ("learn-climb", "hill climbing", "hill_climb", 0),
        ("learn-restarts", "hill climbing with 20 restarts", "hill_climb", 20),
        ("learn-tabu", "tabu search", "tabu", 0),
    )
)
