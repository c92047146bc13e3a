"""Timing: contenders take turns in one process, so that a busy neighbour slows all of them."""

from __future__ import annotations

import gc
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("fastbayes", "numba", "numpy", "pyarrow", "scikit-learn", "duckdb", "polars")
# A turn lasts at least this long: what takes less is called several times.
TURN_SECONDS = 0.05


@dataclass(frozen=True)
class Side:
    """One contender.

    run    does the work once
    units  cells, values or rows it works through; a slow rival may be given fewer of them
    once   whether its first call, which is checked, is its only one: of a rival that takes so long
           that what it does at first does not matter
    """

    run: Callable[[], Any]
    units: float
    once: bool = False


@dataclass(frozen=True)
class Times:
    """Seconds of one call, and of one unit.

    cold  the first call: machine code is loaded from disk, caches are empty
    wall  median over the turns; fastest is their minimum
    cpu   processor time of all threads, median
    turns number of turns, each a mean of `calls` calls
    """

    cold: float
    wall: float
    fastest: float
    cpu: float
    units: float
    turns: int
    calls: int


def take_turns(
    sides: Mapping[str, Side],
    turns: int,
    seconds: float,
    check: Callable[[dict[str, Any]], None],
) -> tuple[dict[str, Times], dict[str, list[float]]]:
    """Measure all sides in turn: at most `turns` times, and no longer than about `seconds`.

    The results of the first calls are checked: what is timed must be right.
    Returns the times of each side, and for each side its wall seconds per unit in every turn.
    """
    cold, spent, results = {}, {}, {}
    for name, side in sides.items():
        start, cpu = time.perf_counter(), time.process_time()
        results[name] = side.run()
        cold[name], spent[name] = time.perf_counter() - start, time.process_time() - cpu
    check(results)
    del results
    again = {name: side for name, side in sides.items() if not side.once}
    calls = dict.fromkeys(sides, 1) | {
        name: max(1, min(1000, round(TURN_SECONDS / max(_once(side.run, 1)[0], 1e-9))))
        for name, side in again.items()
    }
    walls: dict[str, list[float]] = {name: [] for name in sides}
    cpus: dict[str, list[float]] = {name: [] for name in sides}
    start, done = time.perf_counter(), 0
    # Three turns at least: a median needs them.
    while done < turns and (done < min(3, turns) or time.perf_counter() - start < seconds):
        for name, side in sides.items():
            wall, cpu = cold[name], spent[name]
            if not side.once:
                wall, cpu = _once(side.run, calls[name])
            walls[name].append(wall)
            cpus[name].append(cpu)
        done += 1
    times = {
        name: Times(
            cold[name],
            statistics.median(walls[name]),
            min(walls[name]),
            statistics.median(cpus[name]),
            side.units,
            1 if side.once else done,
            calls[name],
        )
        for name, side in sides.items()
    }
    per_unit = {name: [wall / sides[name].units for wall in walls[name]] for name in sides}
    return times, per_unit


def _once(run: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Return wall and processor seconds of one call, the mean of `calls` of them."""
    gc.collect()
    gc.disable()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            run()
        return (time.perf_counter() - wall) / calls, (time.process_time() - cpu) / calls
    finally:
        gc.enable()


def ratio(over: list[float], under: list[float]) -> float:
    """Return the median over the turns of one side's time over another's."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def peak_bytes() -> int:
    """Return the most memory this process has held."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    # What rusage says includes the parent's peak if the child was forked from it.
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine() -> dict[str, Any]:
    """Return what the figures depend on beside the code."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": cores,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    """Return the processor's name, with family and model where the name alone says little."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            pairs = [line.partition(":") for line in lines if ":" in line]
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    found = {key.strip(): value.strip() for key, _, value in reversed(pairs)}
    if "model name" not in found:
        return platform.machine()
    where = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{found['model name']} ({', '.join(where)})" if where else found["model name"]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def as_json(times: Mapping[str, Times]) -> dict[str, dict[str, float]]:
    """Return the times as JSON can hold them."""
    return {name: asdict(each) for name, each in times.items()}
