"""Graphs learned from data: wall time and the description length reached, and from files."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks import alarm
from benchmarks.network_race.common import (
    Found,
    Options,
    Side,
    Turn,
    as_table,
    interleaved,
    network,
    progress,
    short,
    without,
)
from benchmarks.processes import fresh
from fastbayes.core.threads import default_threads

CLIMB, TABU, AGAIN = "hill climbing", "tabu", ", 20 restarts"
SEARCHES = ((CLIMB, "hill_climb"), (TABU, "tabu"))
# From so many rows on there is one turn: pyAgrum takes a minute for each search of a million.
MANY = 500_000
# With restarts, what may be lost against the graph that made the data, in nats per row.
LOST = 1e-3


def description_length(
    codes: Mapping[str, NDArray[Any]], parents: Mapping[str, Sequence[str]]
) -> float:
    """Return ½ ln N |B| - LL in nats, counted by numpy; the states are those of `alarm.SIZES`.

    >>> column = {"CVP": np.array([0, 1, 2, 2])}
    >>> round(description_length(column, {}) / math.log(2), 12)
    8.0
    """
    length, n = 0.0, len(next(iter(codes.values())))
    for node, values in codes.items():
        size, cell, q = alarm.SIZES[node], values.astype(np.int64), 1
        for parent in parents.get(node, ()):
            cell = cell + codes[parent].astype(np.int64) * (q * size)
            q *= alarm.SIZES[parent]
        counts = np.bincount(cell, minlength=q * size).reshape(q, size)
        given = np.repeat(counts.sum(axis=1, keepdims=True), size, axis=1)
        seen = counts > 0
        length -= float((counts[seen] * np.log(counts[seen] / given[seen])).sum())
        length += 0.5 * math.log(n) * q * (size - 1)
    return length


def part(options: Options) -> Found:
    """Measure searches of a graph, and the description length that they reach."""
    lines, kept = [], {}
    threads: dict[str, int] = {}
    for rows in sorted({options.pgmpy_rows, *options.rows} - {0}):
        codes = alarm.codes(rows)
        best = description_length(codes, alarm.PARENTS)
        turns = 1 if rows >= MANY else options.turns
        known = threads if turns == 1 else {}
        sides = _sides(options, codes, known, pgmpy=rows <= options.pgmpy_rows)
        interleaved(sides, turns)
        for name, side in sides.items():
            _check(name, side, codes, best)
            fastest = min(side.turns, key=lambda turn: turn["seconds"])
            threads[name] = fastest.get("threads", 0)
        told = {name: [without(t, "parents") for t in side.turns] for name, side in sides.items()}
        kept[f"{rows}"] = {"true": best, **told}
        title = (
            f"Learning a network like ALARM from {rows:,} rows; the true graph's description "
            f"length is {best:,.1f} nats"
        )
        lines += [
            title,
            "",
            "| | fastest (median) | nats over the true graph's | ours, same search "
            "| ours, 20 restarts |",
            "|---|--:|--:|--:|--:|",
            *(_line(name, side, sides) for name, side in sides.items()),
            "",
        ]
    return lines, kept


def _sides(
    options: Options, codes: Mapping[str, NDArray[Any]], known: Mapping[str, int], *, pgmpy: bool
) -> dict[str, Side]:
    """Return who learns; `known` says how many threads were fastest for pyAgrum."""
    table, csv = as_table(codes, network().states), options.folder / "samples.csv"
    text = pa.table({name: table[name].cast(pa.string()) for name in table.column_names})
    pc.write_csv(text, csv, pc.WriteOptions(quoting_style="none"))
    fb.BayesianNetwork.learn(table)  # compiled

    def ours(search: str, restarts: int, _: int) -> Turn:
        """Learn from an Arrow table, which is read, and learn the tables of the graph, too."""
        start = time.perf_counter()
        found = fb.BayesianNetwork.learn(table, search=search, restarts=restarts)
        spent = time.perf_counter() - start
        parents = {node: list(above) for node, above in found.parents.items()}
        return {"seconds": spent, "units": 1, "parents": parents, "score": found.search_.score}

    def agrum(name: str, search: str, turn: int) -> Turn:
        """Take all threads and one in turn: on a busy machine threads that wait are slower."""
        threads = known.get(name) or (default_threads(), 1)[turn % 2]
        reply = options.ask("agrum_learn", csv=str(csv), search=search, threads=threads)
        return {"units": 1, "threads": threads, **reply}

    def pgmpy_climb(_: int) -> Turn:
        return {"units": 1, **options.ask("pgmpy_learn", csv=str(csv), search="hill_climb")}

    sides = {
        f"fastbayes, {name}{more}": Side(functools.partial(ours, search, restarts), True)
        for name, search in SEARCHES
        for more, restarts in (("", 0), (AGAIN, 20))
    }
    if options.has("pyAgrum"):
        for name, search in SEARCHES:
            title = f"pyAgrum, {name}"
            sides[title] = Side(functools.partial(agrum, title, search))
    if options.has("pgmpy") and pgmpy:
        sides[f"pgmpy, {CLIMB}"] = Side(pgmpy_climb)
    return sides


def _check(name: str, side: Side, codes: Mapping[str, NDArray[Any]], best: float) -> None:
    """Score what was found; raise where fastbayes scored it otherwise, or lost much."""
    for turn in side.turns:
        length = description_length(codes, turn["parents"])
        turn["above"] = length - best
        if side.ours:
            assert abs(turn["score"] - length) <= 1e-9 * best, (name, turn["score"], length)
        if name.endswith(AGAIN):
            rows = len(next(iter(codes.values())))
            assert turn["above"] <= LOST * rows, (name, turn["above"])


def _line(name: str, side: Side, sides: Mapping[str, Side]) -> str:
    """Return a row of the table.

    Ratios are of the fastest turns: a busy machine slows those most who wait for their threads.
    """
    compared = ["", ""]
    if not side.ours:
        mine = [sides[f"fastbayes, {name.split(', ')[1]}{more}"] for more in ("", AGAIN)]
        compared = [f"{short(side.fastest() / each.fastest())} × as fast" for each in mine]
    wall = f"{short(side.fastest())} s ({short(side.median('seconds'))} s)"
    above = f"{round(side.median('above'), 1) + 0.0:+,.1f}"
    return f"| {' | '.join([name, wall, above, *compared])} |"


# -- out of core -------------------------------------------------------------------------------

LEARN = """
import json, time
from benchmarks.measure import peak_bytes
from fastbayes.cli import main
start = time.perf_counter()
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code, end
print()
print(json.dumps([time.perf_counter() - start, peak_bytes()]))
"""


def scan(options: Options) -> Found:
    """Measure `fastbayes network learn` from Parquet: time and memory of its process."""
    folder, rows = options.folder / "long", options.scan_rows
    folder.mkdir()
    step = min(rows, 1_000_000)
    for place, first in enumerate(range(0, rows, step)):
        codes = alarm.codes(min(step, rows - first), seed=100 + place)
        pq.write_table(as_table(codes, network().states), folder / f"part-{place:03d}.parquet")
    size = sum(file.stat().st_size for file in folder.iterdir())
    true = fb.BayesianNetwork.from_edges(network().edges).score(folder)
    title = (
        f"`fastbayes network learn`, {rows:,} × 37 from {size / 1e6:,.0f} MB of Parquet, 20 "
        "restarts, in a process of its own"
    )
    lines = [
        title,
        "",
        "| `--memory-limit` | wall | peak memory | nats over the true graph's |",
        "|---|--:|--:|--:|",
    ]
    kept: dict[str, Any] = {"true": true}
    for limit in options.memory_limits:
        output = options.folder / "learned.bif"
        words = ["network", "learn", str(folder), "-o", str(output), "--memory-limit", limit]
        spent = fresh(LEARN.format(arguments=[*words, "--force"]))
        wall, peak = json.loads(spent.output.splitlines()[-1])
        progress(f"{limit}: {wall:.3g} s")
        found = fb.BayesianNetwork.read(output)
        above = fb.BayesianNetwork.from_edges(found.edges, found.nodes).score(folder) - true
        assert above <= LOST * rows, (limit, above)
        kept[limit] = {"seconds": wall, "peak_bytes": peak, "above": above}
        told = f"{short(wall)} s | {peak / 2**30:.2f} GiB | {round(above, 1) + 0.0:+,.1f}"
        lines.append(f"| {limit} | {told} |")
    return [*lines, ""], kept
