"""The same call ten thousand times."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fastbayes as fb
from stress.tables import Rng, choose_kernels, one_of

ABOUT = "10,000 calls of one kind: no more memory, open files or threads at the end than midway"
SECONDS, BATCH = 900.0, 3
CALLS = 10_000
# Bytes that 5,000 calls may add: less than one and a half kilobytes each.
GROWTH = 6 << 20

TABLE = pa.table(
    {"a": ["x", "y", "x", "z"] * 5, "b": [0.5, 1.5, 2.5, 3.0] * 5, "y": ["p", "q"] * 10}
)


def calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return calls that take about a millisecond."""
    path = folder / "t.parquet"
    pq.write_table(TABLE, path)
    bad = folder / "bad.parquet"
    bad.write_bytes(path.read_bytes()[:-10])
    model = fb.NaiveBayes().fit(TABLE, "y")
    saved = folder / "m.fb"
    model.save(saved)
    stats = model.statistics_
    net = fb.BayesianNetwork.from_edges([("y", "a")]).fit(TABLE.select(["a", "y"]))

    def refused() -> None:
        try:
            fb.count(bad, "y")
        except fb.FileFormatError:
            return
        raise AssertionError("a cut file was read")

    return {
        "fit": lambda: fb.NaiveBayes().fit(TABLE, "y"),
        "predict": lambda: model.predict_proba(TABLE),
        "predict, threads": lambda: model.predict(TABLE),
        "count a file": lambda: fb.count(path, "y", threads=2),
        "a file that is refused": refused,
        "add": lambda: stats + stats - stats,
        "load": lambda: fb.load(saved),
        "save": lambda: model.save(saved, force=True),
        "query": lambda: net.query("y", {"a": "x"}),
        "partial_fit": lambda: fb.NaiveBayes().partial_fit(TABLE, "y"),
    }


def case(rng: Rng, folder: Path) -> str:
    """Make one kind of call again and again."""
    choose_kernels(rng)
    choices = calls(folder)
    name = one_of(rng, [*choices])
    call = choices[name]
    for _ in range(CALLS // 2):
        call()
    before = held()
    for _ in range(CALLS // 2):
        call()
    memory, files, threads = (np.array(held()) - before).tolist()
    assert files <= 0, f"{name}: {files} more open files"
    assert threads <= 0, f"{name}: {threads} more threads"
    assert memory < GROWTH, f"{name}: {memory:,} bytes more"
    return name


def held() -> tuple[int, int, int]:
    """Return the bytes, open files and threads of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096, len(os.listdir("/proc/self/fd")), threading.active_count()
