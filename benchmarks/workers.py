"""What it costs to let workers of an engine count, and predict, next to doing it here."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data
from benchmarks.figures import GIB, Figure

PROCESSES = 2


class _Limits(NamedTuple):
    """Most times the time that it takes otherwise, with pairs too, and GiB of a worker."""

    time: float
    memory: float | None
    pairs: float | None = None

    def of(self, pairs: bool) -> _Limits:
        """Return the limits of values, or of pairs."""
        return self._replace(time=self.pairs) if pairs and self.pairs is not None else self


@dataclass
class _Spent:
    """Wall and processor seconds of each turn, those of workers included, and what came of it."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def turn(self, job: Callable[[], Any]) -> None:
        """Do a job once more."""
        wall, cpu = time.perf_counter(), _cpu_of_tree()
        job()
        self.wall.append(time.perf_counter() - wall)
        # what took less than a tick of this clock may be seen to have taken none
        self.cpu.append(max(_cpu_of_tree() - cpu, 1 / os.sysconf("SC_CLK_TCK")))


def _descendants() -> list[int]:
    """Return the processes below this one."""
    parents = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            parents[int(entry.name)] = int(stat[1])
    found, more = [], [os.getpid()]
    while more:
        more = [pid for pid, parent in parents.items() if parent in more]
        found += more
    return found


def _stat(pid: int) -> list[str]:
    """Return what the system tells of a process, from its state on; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2].split()
    except OSError:
        return []


def _cpu_of_tree() -> float:
    """Return the processor seconds of this process and those below it, ended ones included."""
    ticks = 0
    for pid in [os.getpid(), *_descendants()]:
        ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_bytes(pids: set[int]) -> dict[str, int]:
    """Return the most bytes of its own that any of these processes holds, by its program's name.

    Code that is mapped from files is there once for all of them.
    """
    most: dict[str, int] = {}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
        except OSError:
            continue
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        name = status["Name"].strip()
        held = int(status.get("RssAnon", "0 kB").split()[0]) * 1024
        most[name] = max(most.get(name, 0), held)
    return most


def _peaks(job: Callable[[], Any], workers: Callable[[], set[int]]) -> dict[str, int]:
    """Return the most of `_own_bytes` while a job is done."""
    most: dict[str, int] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            for name, held in _own_bytes(workers()).items():
                most[name] = max(most.get(name, 0), held)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        job()
    finally:
        done.set()
        looking.join()
    return most


@contextmanager
def _dask() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    local = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(PROCESSES, **local) as cluster, Client(cluster) as client:
        yield client


@contextmanager
def _spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    builder = SparkSession.builder.master(f"local[{PROCESSES},4]")
    for key, value in {"ui.enabled": "false", "ui.showConsoleProgress": "false"}.items():
        builder = builder.config(f"spark.{key}", value)
    session = builder.config("spark.driver.memory", "1g").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def _java() -> bool:
    return bool(os.environ.get("JAVA_HOME") or shutil.which("java"))


class _Race:
    """Two ways of the same work, in turn, and what the one costs in terms of the other."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    def figures(
        self,
        title: str,
        other: Callable[[], Any],
        ours: Callable[[], Any],
        limits: _Limits,
        workers: Callable[[], set[int]],
    ) -> list[Figure]:
        """Measure both, once they are warm; `workers` are the processes that belong to ours."""
        there, here = ours(), other()
        assert there == here, f"{title}: {there!r}, not {here!r}"
        them, us = _Spent(), _Spent()
        for _ in range(self._turns):
            them.turn(other)
            us.turn(ours)
        ratio = statistics.median(a / b for a, b in zip(us.wall, them.wall, strict=True))
        cpu = statistics.median(a / b for a, b in zip(us.cpu, them.cpu, strict=True))
        wall = {"wall": statistics.median(us.wall)}
        found = [
            Figure(title, ratio, "×", limits.time, wall),
            Figure("… processor time of all processes", cpu, "×", None, wall),
        ]
        peaks = _peaks(ours, workers)
        for name, most in (("python", limits.memory), ("java", 1.0)):
            if held := max((peak for found, peak in peaks.items() if name in found), default=0):
                called = "a worker" if name == "python" else "the JVM"
                title = f"… most memory of its own of {called}"
                found.append(Figure(title, held / GIB, "GiB", most, wall))
        return found


def workers(size: str, folder: Path) -> list[Figure]:
    """Measure engines on files, on frames, and in predictions, each next to its like."""
    import fastbayes as fb

    each = {"full": 10_000_000, "quick": 500_000, "test": 20_000}[size]
    copies = {"full": 100, "quick": 4, "test": 2}[size]
    race = _Race({"full": 5, "quick": 3, "test": 1}[size])
    path = data.parquet("long", each, folder)
    many, rows = str(data.linked(path, copies, folder)), each * copies
    model = fb.NaiveBayes().fit(path, "class")
    # Pairs take several times as long: of fewer rows.
    fewer = copies // 5 or 1
    shares = [
        (many, rows, False),
        (str(data.linked(path, fewer, folder)), each * fewer, True),
    ]

    def counted(source: Any, pairs: bool = False, **here: int) -> float:
        return fb.count(source, "class", pairs=pairs, **here).n_rows

    # few enough rows that the disk does not decide, more than what starting a job costs
    some, of_some = str(data.linked(path, min(copies, 5), folder)), each * min(copies, 5)

    def predicted(source: Any, name: str) -> float:
        out = folder / name
        return fb.predict_to(model, source, out, parts=True, force=True).rows

    figures: list[Figure] = []
    with ExitStack() as stack:
        engines: dict[str, tuple[Callable[[Any], Any], _Limits, set[int]]] = {}
        known: set[int] = set()

        def begun(name: str, paths: Callable[[Any], Any], limits: _Limits) -> None:
            counted(paths(str(path)))  # processes begin, kernels are loaded
            new = {*_descendants()} - known
            known.update(new)
            engines[name] = paths, limits, new

        pooled: dict[Any, Any] = {}

        def pool(uri: Any) -> Any:
            if uri not in pooled:
                pooled[uri] = fb.engines.pool.paths(uri, processes=PROCESSES)
            return pooled[uri]

        begun("processes", pool, _Limits(1.3, 0.3))
        client = stack.enter_context(_dask())
        begun("Dask", partial(fb.engines.dask.paths, client), _Limits(1.6, 0.3))
        session = stack.enter_context(_spark()) if _java() else None
        if session is not None:
            begun("Spark", partial(fb.engines.spark.paths, session), _Limits(2.0, 0.3, 1.7))
        for name, (paths, limits, pids) in engines.items():
            for uri, n, pairs in shares:
                what = "`fb.count`, pairs too," if pairs else "`fb.count`"
                title = f"{what} of {n:,} × 20 from Parquet by {name}, {PROCESSES} workers"
                here = partial(counted, uri, pairs, threads=PROCESSES)
                ours = partial(counted, paths(uri), pairs)
                now = partial(_now, pids, known)
                figures += race.figures(title, here, ours, limits.of(pairs), now)
        for name, (paths, _, pids) in engines.items():
            title = f"`predict_to` parts of {of_some:,} × 20 by {name}"
            ours = partial(predicted, paths(some), f"parts-{name}")
            other = partial(predicted, some, "parts-here")
            now = partial(_now, pids, known)
            figures += race.figures(title, other, ours, _Limits(1.5, 0.4), now)
        by_name = {name: partial(_now, pids, known) for name, (*_, pids) in engines.items()}
        figures += _frames(race, path, each, session, by_name)
    return figures


def _now(pids: set[int], known: set[int]) -> set[int]:
    """Return the processes of an engine, those that began since all engines did among them."""
    return pids | ({*_descendants()} - known)


def _frames(
    race: _Race,
    path: Path,
    each: int,
    session: Any,
    workers: Mapping[str, Callable[[], set[int]]],
) -> list[Figure]:
    """Measure frames of engines, next to what it takes to bring their rows to Python at all."""
    import dask.dataframe as dd

    import fastbayes as fb

    def counted(frame: Any) -> float:
        return fb.count(frame, "class").n_rows

    figures: list[Figure] = []
    frame = dd.read_parquet(path, split_row_groups=1)
    figures += race.figures(
        f"`fb.count` of {each:,} × 20 as a frame of Dask, next to computing its partitions",
        lambda: int(frame.map_partitions(len).sum().compute()),
        partial(counted, frame),
        _Limits(1.3, None),  # what Dask itself holds of a partition is its own matter
        workers["Dask"],
    )
    if session is not None:
        rows = session.read.parquet(str(path))
        figures += race.figures(
            f"`fb.count` of {each:,} × 20 as a frame of Spark, next to draining `mapInArrow`",
            lambda: _drained(rows),
            partial(counted, rows),
            _Limits(1.3, 0.3),
            workers["Spark"],
        )
    return figures


def _drained(frame: Any) -> float:
    def of_partition(batches):  # type: ignore[no-untyped-def]  # Spark looks at annotations
        import pyarrow as pa

        n = sum(batch.num_rows for batch in batches)
        yield pa.record_batch({"n": pa.array([n], pa.int64())})

    return float(sum(frame.mapInArrow(of_partition, "n long").toArrow().column(0).to_pylist()))
