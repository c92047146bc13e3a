"""The cases of networks learned from data."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from benchmarks import alarm
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.networks.learning import learned
from fastbayes.networks.score import Rule, masks_of
from fastbayes.networks.search_rows import read_rows
from fastbayes.networks.search_scores import FamilyScores

AGRUM = "pyAgrum"
# What may be lost against the graph that made the data, in nats per row.
LOST = 1e-3


def agrum(table: pa.Table, folder: Path, search: str) -> Callable[[], dict[str, list[str]]]:
    """Return pyAgrum's search for the graph of the best BIC; reading the file is not measured."""
    import pyagrum

    path = folder / "samples.csv"
    text = pa.table({name: table[name].cast(pa.string()) for name in table.column_names})
    pc.write_csv(text, path)
    learner = pyagrum.BNLearner(str(path))
    learner.useScoreBIC()
    learner.useNoPrior()
    if search == "tabu":
        learner.useLocalSearchWithTabuList()
    else:
        learner.useGreedyHillClimbing()

    def run() -> dict[str, list[str]]:
        found = learner.learnBN()
        name = {node: found.variable(node).name() for node in found.nodes()}
        return {name[v]: [name[p] for p in found.parents(v)] for v in name}

    return run


def _learning(search: str, restarts: int) -> Callable[[int, Path], Work]:
    """Learn the network from an Arrow table, in which it is read, too."""

    def build(rows: int, folder: Path) -> Work:
        table = alarm.table(rows)
        runs: dict[str, Callable[[], Any]] = {
            OURS: lambda: learned(table, search=search, restarts=restarts)
        }
        if find_spec("pyagrum"):
            runs[AGRUM] = agrum(table, folder, search)
        held = read_rows(table)

        def length(parents: dict[str, list[str]]) -> float:
            return -FamilyScores(held, Rule("mdl")).total(masks_of(parents, held.names))

        def check(results: dict[str, Any]) -> None:
            ours = length(results[OURS].parents)
            if restarts:
                true = {node: list(above) for node, above in alarm.PARENTS.items()}
                assert ours <= length(true) + LOST * rows
            if AGRUM in results:
                assert ours <= length(results[AGRUM]) * (1 + 1e-12)

        return Work({name: Side(run, float(rows)) for name, run in runs.items()}, check)

    return build


CASES = tuple(
    Case(
        name,
        f"{what} of a network like ALARM from an Arrow table, {{rows}} × 37",
        rows_of(100_000, 10_000),
        _learning(search, restarts),
        (Claim(AGRUM, least=8),),
        unit="row",
    )
    for name, what, search, restarts in (
        ("learn-climb", "hill climbing", "hill_climb", 0),
        ("learn-restarts", "hill climbing with 20 restarts", "hill_climb", 20),
        ("learn-tabu", "tabu search", "tabu", 0),
    )
)
