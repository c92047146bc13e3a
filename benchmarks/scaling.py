"""How work scales with threads: `python -m benchmarks.scaling [--rows N] [-o table.md]`.

For machines of many cores. Every job is a whole call of a public function on what users have: an
Arrow table, a Parquet directory, a directory to write. Numbers of threads take turns, so that what
else the machine does meets all of them; a figure is the median over the turns. The first job tells
how fast the bytes of the table can be read at all: numpy adds them up.

Results must be the same for every number of threads, which is checked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastbayes as fb
from benchmarks import data, rivals
from benchmarks.measure import machine
from benchmarks.source_cases import indices_of, whole_table
from benchmarks.table import row
from fastbayes.data.source import open_source

# Blocks that are unpacked, of 64 KiB: numbers of threads, powers of two, divide it.
UNPACKED = 1 << 11


class Job(NamedTuple):
    """Work for a number of threads.

    title  what is done, to how much
    cells  columns of rows that it meets
    run    does it with so many threads; returns what is the same for every number
    rival  does the same on all cores: its name, and how
    """

    title: str
    cells: int
    run: Callable[[int], Any]
    rival: tuple[str, Callable[[], Any]] | None = None


class Scaled(NamedTuple):
    """Seconds of a job by its number of threads, and those of its rival, if it has one."""

    job: Job
    seconds: dict[int, float]
    rival: float | None = None


def thread_counts() -> list[int]:
    """Return 1, 2, 4 and so on up to the processors of this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [1 << i for i in range((cores or 1).bit_length())]


def jobs(rows: int, folder: Path) -> Iterator[Job]:
    """Yield the jobs."""
    table = whole_table(rows, data.mixed_values(), "int8")
    features, cells = table.drop_columns(["class"]), 30 * rows
    few = table.slice(0, min(rows, 1_000_000))
    indices = indices_of(table)

    def unpacked(threads: int) -> Any:
        return rivals.decompressed(UNPACKED, threads)()

    yield Job("arithmetic alone: bytes unpacked in the cache", UNPACKED << 16, unpacked)

    def read(threads: int) -> Any:
        return rivals.memory_read(indices, threads)()

    yield Job("reading alone: bytes of that table", cells, read)

    def counted(threads: int) -> Any:
        return fb.count(table, "class", threads=threads)

    yield Job("`fb.count` of an Arrow table", cells, counted)
    for title, model in {"naive Bayes": fb.NaiveBayes(), "TAN": fb.TAN()}.items():
        model.fit(few, "class")

        def predicted(threads: int, model: Any = model) -> Any:
            return model.set_params(threads=threads).predict_proba(features)

        def labelled(threads: int, model: Any = model) -> Any:
            return model.set_params(threads=threads).predict(features)

        yield Job(f"`predict_proba`, {title}", cells, predicted)
        yield Job(f"`predict`, {title}", cells, labelled)

    def pairs(threads: int) -> Any:
        return fb.AODE(threads=threads).fit(table, "class").statistics_

    yield Job("AODE of it, all pairs", cells, pairs)

    many, path = parquet(rows, folder, 64), parquet(rows, folder, 8)

    def files_read(threads: int) -> Any:
        return rivals.files_read([*many.iterdir()], threads)()

    yield Job(
        "reading alone: bytes of Parquet files of eight times the rows", 160 * rows, files_read
    )

    def fitted(threads: int, path: Path = path) -> Any:
        return fb.NaiveBayes(threads=threads).fit(path, "class").statistics_

    yield Job("naive Bayes from them", 160 * rows, partial(fitted, path=many))

    names = [name for name in open_source(path).schema.names if name != "class"]
    queries = rivals.duckdb_counts(path, names, "class")
    rival = None if queries is None else ("DuckDB", queries)
    yield Job("naive Bayes from Parquet, Snappy", 20 * rows, fitted, rival)
    scorer = fb.NaiveBayes().fit(path, "class")

    def written(threads: int) -> Any:
        target = folder / "predicted"
        shutil.rmtree(target, ignore_errors=True)
        return fb.predict_to(scorer, path, target, proba=True, threads=threads)

    yield Job("`predict_to`, both probabilities, parts", 20 * rows, written)
    numbers = data.linked(data.parquet_numbers(rows // 320, 30, folder), 32, folder)

    def moments(threads: int) -> Any:
        return fb.NaiveBayes(numeric="gaussian", threads=threads).fit(numbers, "class").statistics_

    yield Job("Gaussian naive Bayes from Parquet, doubles", 3 * rows, moments)


def parquet(rows: int, folder: Path, files: int) -> Path:
    """Return a Parquet directory of files of an eighth of the rows: one file by many names."""
    return data.linked(data.parquet("long", rows // 8, folder), files, folder)


def measured(job: Job, threads: Sequence[int], turns: int, seconds: float) -> Scaled:
    """Return the median times of a job; numbers of threads take turns, for so long at most."""
    times: dict[int, list[float]] = {n: [] for n in threads}
    expected = job.run(threads[-1])
    end = time.perf_counter() + seconds
    for turn in range(turns):
        for n in reversed(threads):
            start = time.perf_counter()
            found = job.run(n)
            times[n].append(time.perf_counter() - start)
            same = np.array_equal if isinstance(found, np.ndarray) else lambda a, b: a == b
            if turn == 0 and not same(found, expected):
                raise AssertionError(f"{job.title}: another result with {n} threads")
            del found
        if time.perf_counter() > end:
            break
    rival = None if job.rival is None else statistics.median(map(_timed, [job.rival[1]] * 3))
    return Scaled(job, {n: statistics.median(each) for n, each in times.items()}, rival)


def _timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rendered(rows: int, found: Sequence[Scaled]) -> str:
    """Return the table as Markdown."""
    threads = list(found[0].seconds)
    about = machine()
    lines = [
        f"{about['processor']}, {about['cores']} cores, {about['memory_bytes'] / 2**30:.0f} GiB, "
        f"Python {about['python']}, numba {about['versions']['numba']}, "
        f"pyarrow {about['versions']['pyarrow']}; {rows:,} rows.",
        "",
        row(["job", *(f"{n} thread{'s' * (n > 1)}" for n in threads), "faster", "cells per ns"]),
        row(["---", *["---:"] * (len(threads) + 2)]),
    ]
    for job, seconds, rival in found:
        ours = seconds[threads[-1]]
        title = job.title
        if job.rival is not None and rival is not None:
            title += f"; {job.rival[0]} takes {rival / ours:.3g} × that of all threads"
        lines.append(
            row([
                title,
                *(_milliseconds(seconds[n]) for n in threads),
                f"{seconds[threads[0]] / ours:.3g} ×",
                f"{job.cells / ours / 1e9:.3g}",
            ])
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def scaled(rows: int, folder: Path, turns: int, seconds: float) -> list[Scaled]:
    """Measure all jobs, each for so many seconds at most."""
    found = []
    for job in jobs(rows, folder):
        line = measured(job, thread_counts(), turns, seconds)
        print(job.title, {n: round(t * 1e3, 2) for n, t in line.seconds.items()}, flush=True)
        found.append(line)
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--turns", type=int, default=9, help="of each number of threads, at most")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each job, at most")
    parser.add_argument("-o", "--output", type=Path, help="the table; default: standard output")
    given = parser.parse_args(words)
    fb.warmup()
    with tempfile.TemporaryDirectory(prefix="fastbayes-scaling-") as folder:
        text = rendered(given.rows, scaled(given.rows, Path(folder), given.turns, given.seconds))
    if given.output:
        given.output.write_text(text, "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
