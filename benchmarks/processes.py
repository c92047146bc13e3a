"""The cases that need a fresh process: starting up, compiling, and memory."""

from __future__ import annotations

import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.figures import GIB as GIB
from benchmarks.figures import Figure as Figure
from benchmarks.workers import workers

ROOT = Path(__file__).resolve().parent.parent

SMALL_FIT = """
import sys, fastbayes
table = {"sky": ["sun", "rain", "sun", "fog"] * 40, "wind": [3.5, 8.0, 4.5, 1.0] * 40,
         "play": ["yes", "no", "yes", "no"] * 40}
model = fastbayes.NaiveBayes().fit(table, "play")
assert model.predict({"sky": ["sun"], "wind": [4.0]}).tolist() == ["yes"]
assert "numba" not in sys.modules, "a small fit loaded numba"
"""

FIRST_FIT = """
import fastbayes, sys
model = fastbayes.NaiveBayes().fit({path!r}, "class")
assert len(model.predict({path!r})) == {rows}
assert "numba" in sys.modules, "too small a table to need the compiler"
"""

OUT_OF_CORE = """
import json, time, fastbayes
from benchmarks.measure import peak_bytes
figures, start = {{}}, time.perf_counter()
model = fastbayes.NaiveBayes().fit({path!r}, "class")
assert model.statistics_.n_rows == {rows}
figures["fit"] = time.perf_counter() - start, peak_bytes()
for step, options in {steps!r}.items():
    start = time.perf_counter()
    done = fastbayes.predict_to(model, {path!r}, {output!r} + step + ".parquet", **options)
    assert done.rows == {rows}
    figures[step] = time.perf_counter() - start, peak_bytes()
print(json.dumps(figures))
"""

GROWTH = """
import json, statistics, time, fastbayes
from benchmarks.measure import peak_bytes
def turn(path, rows):
    start = time.perf_counter()
    assert {job}.n_rows == rows
    return time.perf_counter() - start
turn(*{few!r})
print(json.dumps([
    [statistics.median(turn(*one) for _ in range(3)), peak_bytes()] for one in {paths!r}
]))
"""
# What is done to ever more rows, how it is called, which is how many times as many as the first,
# and the most seconds of the last and GiB.
FIT = 'fastbayes.{model}().fit(path, "class").statistics_'
GROWING = [
    ("fit `NaiveBayes` to", FIT.format(model="NaiveBayes"), (1, 10, 100), 10, 600 / 1024),
    ("fit `AODE` to", FIT.format(model="AODE"), (100,), 30, 600 / 1024),
    ("fit `TAN` to", FIT.format(model="TAN"), (100,), 30, 600 / 1024),
    ("`fb.count` of", 'fastbayes.count(path, "class")', (1, 5, 20), None, 0.5),
    (
        "`fb.count`, pairs too, of",
        'fastbayes.count(path, "class", pairs=True)',
        (1, 5, 20),
        None,
        0.5,
    ),
]

FIRST_MODEL = """
import fastbayes
assert fastbayes.{model}().fit({path!r}, "class").statistics_.n_rows == {rows}
"""

OUT_OF_CORE_NUMBERS = """
import json, time, fastbayes
from benchmarks.measure import peak_bytes
start = time.perf_counter()
model = fastbayes.GaussianBayes().fit({path!r}, "class")
assert model.statistics_.n_rows == {rows}
print(json.dumps([time.perf_counter() - start, peak_bytes()]))
"""

LOGISTIC = """
import io, json, logging, time, fastbayes
from benchmarks.measure import peak_bytes
logging.basicConfig(stream=(notes := io.StringIO()), level=logging.INFO)
start = time.perf_counter()
model = fastbayes.LogisticRegression(memory_limit={limit}).fit({path!r}, "class")
assert model.converged_ and model.statistics_.n_rows == {rows}
assert ("read in every pass" in notes.getvalue()) == {anew}
print(json.dumps([time.perf_counter() - start, peak_bytes(), model.trace_[-1, 3]]))
"""

# A few steps show what all of them hold.
SKLEARN_LOGISTIC = """
import json, time, warnings
import numpy as np, pyarrow as pa
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder
from benchmarks.measure import peak_bytes
start = time.perf_counter()
with pa.memory_map({path!r}) as file:
    table = pa.ipc.open_file(file).read_all().unify_dictionaries()
    codes = np.empty(({rows}, table.num_columns), np.uint8)
    for j, column in enumerate(table.columns):
        codes[:, j] = column.combine_chunks().indices
    del table, column
x, y = OneHotEncoder().fit_transform(codes[:, :-1]), codes[:, -1].copy()
del codes
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    LogisticRegression(max_iter=3).fit(x, y)
print(json.dumps([time.perf_counter() - start, peak_bytes()]))
"""

LABORATORY = """
import fastbayes as fb
from fastbayes import generate
table = generate.table("cat", {rows})
{job}
"""
JOBS = {
    "learning curve of naive Bayes and logistic regression, eight sizes, three repeats": (
        'fb.learning_curve(["naive-bayes", "logistic"], table, "class", repeats=3)'
    ),
    "every model compared": 'fb.compare(table, "class", race=False)',
    "every model compared, those without a chance dropped": 'fb.compare(table, "class")',
    "naive Bayes calibrated by one temperature, from leave-one-out posteriors": (
        'assert fb.Calibrated().fit(table, "class").validation_ == "leave_one_out"'
    ),
}


@dataclass(frozen=True)
class Spent:
    wall: float
    cpu: float
    output: str


def fresh(code: str, environment: Mapping[str, str] | None = None) -> Spent:
    """Run Python code in a new process; its time is that of the whole process."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is not parsed at each start
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=output, env=env)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise RuntimeError(f"exit status {child.returncode} of the process that ran:\n{code}")
        output.seek(0)
        return Spent(wall, used.ru_utime + used.ru_stime, output.read())


def _repeated(title: str, most: float | None, repeats: int, run: Callable[[], Spent]) -> Figure:
    spent = [run() for _ in range(repeats)]
    wall = statistics.median(s.wall for s in spent)
    return Figure(title, statistics.median(s.cpu for s in spent), "s CPU", most, {"wall": wall})


def start_up(size: str, folder: Path) -> list[Figure]:
    """Measure the time until fastbayes is there, has fitted a small table, has compiled."""
    repeats = {"full": 9, "quick": 3, "test": 1}[size]
    rows = 50_000
    path = data.parquet("mixed", rows, folder)
    first = FIRST_FIT.format(path=str(path), rows=rows)
    caches = [folder / f"numba-{i}" for i in range(min(repeats, 3))]
    cold = iter(caches)
    bare = "import numpy, pyarrow"
    figures = [
        _repeated("`import numpy, pyarrow`, for comparison", None, repeats, lambda: fresh(bare)),
        _repeated("`import fastbayes`", 0.35, repeats, lambda: fresh("import fastbayes")),
        _repeated(
            "import, fit and predict 160 rows, without numba",
            None,
            repeats,
            lambda: fresh(SMALL_FIT),
        ),
        _repeated(
            "first fit and predict of a process, mixed columns, nothing compiled before",
            6,
            len(caches),
            lambda: fresh(first, {"NUMBA_CACHE_DIR": str(next(cold))}),
        ),
        _repeated(
            "first fit and predict of a process, mixed columns, machine code on disk",
            1.5,
            repeats,
            lambda: fresh(first, {"NUMBA_CACHE_DIR": str(caches[0])}),
        ),
    ]
    return figures


def compiling(size: str, folder: Path) -> list[Figure]:
    """Measure what compiling costs: of all there is, and of the first fits of some models."""
    rows = {"full": 100_000, "quick": 100_000, "test": 20_000}[size]
    path = str(data.columns_file(rows, 10, folder))
    empty = (str(folder / f"empty-{i}") for i in itertools.count())

    def first(code: str) -> Callable[[], Spent]:
        return lambda: fresh(code, {"NUMBA_CACHE_DIR": next(empty)})

    repeats = {"full": 3, "quick": 1, "test": 1}[size]
    figures = [
        _repeated(
            f"first fit of `{model}` in a process, {rows:,} × 10, nothing compiled before",
            4,
            repeats,
            first(FIRST_MODEL.format(model=model, path=path, rows=rows)),
        )
        for model in ("TAN", "LogisticRegression")
    ]
    if size == "test":
        return figures
    warmup = "import fastbayes; fastbayes.warmup()"
    return [
        _repeated("`fastbayes warmup`, nothing compiled before", 25, 1, first(warmup)),
        *figures,
    ]


def out_of_core(size: str, folder: Path) -> list[Figure]:
    """Measure time and peak memory of a fit and of predictions from a Parquet directory."""
    rows = {"full": 100_000_000, "quick": 5_000_000, "test": 200_000}[size]
    path = data.parquet("long", rows, folder)
    output = f"{folder}/predicted-"
    options: dict[str, Any] = {
        "file": {},
        "parts": {"parts": True},
        "proba": {"parts": True, "proba": True},
    }
    read = sum(file.stat().st_size for file in path.iterdir())
    code = OUT_OF_CORE.format(path=str(path), output=output, rows=rows, steps=options)
    steps: dict[str, Any] = json.loads(fresh(code).output)
    least = {"parts": 25.0, "proba": 10.0}
    names = {
        "fit": f"fit {rows:,} × 20 from {read / 1e9:.2f} GB of Parquet",
        "file": "… then `predict_to` a Parquet file",
        "parts": "… then `predict_to` parts",
        "proba": "… then `predict_to` parts, the probability of each class, too",
    }
    figures = []
    for step, (wall, peak) in steps.items():
        rate = rows / wall
        figures.append(
            Figure(names[step], peak / GIB, "GiB", 1.0, {"wall": wall, "rows_per_second": rate})
        )
        if step in least:
            title = "… rows written in a second"
            figures.append(Figure(title, rate / 1e6, "M", None, {"wall": wall}, least[step]))
    return figures


def growth(size: str, folder: Path) -> list[Figure]:
    """Measure fits and counts of ever more rows; the files are one directory by many names."""
    each = {"full": 10_000_000, "quick": 500_000, "test": 20_000}[size]
    path = data.parquet("long", each, folder)
    few = str(data.parquet("long", each // 100, folder)), each // 100
    figures = []
    for title, job, copies, most, memory in GROWING:
        paths = [(str(data.linked(path, n, folder)), each * n) for n in copies]
        found = json.loads(fresh(GROWTH.format(job=job, paths=paths, few=few)).output)
        (wall, peak), (_, rows) = found[-1], paths[-1]
        more = {"wall": wall, "rows_per_second": rows / wall}
        figures += [
            Figure(f"{title} {rows:,} × 20 from Parquet", wall, "s", most, more),
            Figure("… most memory of the process", peak / GIB, "GiB", memory, {"wall": wall}),
        ]
        if len(copies) > 1:
            a, b, c = copies
            (first, _), (second, _), (third, _) = found
            slope = ((third - second) / (c - b)) / ((second - first) / (b - a))
            title = f"… time a row from {b * each:,} on, over that from {a * each:,} on"
            figures.append(Figure(title, slope, "×", 1.1, {"wall": wall}))
    return figures


def out_of_core_numbers(size: str, folder: Path) -> list[Figure]:
    """Measure time and peak memory of a fit of scatter matrices to a Parquet directory.

    Its files are one file by many names: what is read is what counts.
    """
    each, files = {"full": (1_000_000, 50), "quick": (500_000, 4), "test": (20_000, 2)}[size]
    generator, path = np.random.default_rng(7), folder / "numbers"
    path.mkdir()
    x = generator.normal(size=(30, each))
    table = pa.table({f"x{j:02d}": column for j, column in enumerate(x)})
    classes = pa.array(generator.integers(0, 3, each)).cast(pa.string())
    pq.write_table(table.append_column("class", classes), path / "part-00.parquet")
    for i in range(1, files):
        os.link(path / "part-00.parquet", path / f"part-{i:02d}.parquet")
    rows = each * files
    wall, peak = json.loads(fresh(OUT_OF_CORE_NUMBERS.format(path=str(path), rows=rows)).output)
    size_read = files * (path / "part-00.parquet").stat().st_size
    title = f"fit `GaussianBayes` to {rows:,} × 30 doubles from {size_read / 1e9:.2f} GB of Parquet"
    more = {"wall": wall, "rows_per_second": rows / wall}
    return [Figure(title, peak / GIB, "GiB", 1.5, more)]


def under_lock(size: str, folder: Path) -> list[Figure]:
    """Measure which share of a job's time holds the interpreter's lock, which threads wait for.

    It is what a thread in a loop of pure Python loses while the job runs, compared with the same
    loop while work runs that holds no lock, for two busy cores may each be slower than one.
    """
    import fastbayes as fb

    rows = {"full": 10_000_000, "quick": 1_000_000, "test": 20_000}[size]
    path = data.parquet("long", rows, folder)
    table = pq.read_table(path, read_dictionary=[f"x{j:02d}" for j in range(20)])
    table = table.combine_chunks()
    model = fb.NaiveBayes(threads=1).fit(table, "class")
    numbers = np.ones(1_000_000)

    def free() -> None:
        for _ in range(200):
            numbers.sum()

    jobs = {
        "`fb.count` of an Arrow table": lambda: fb.count(table, "class", threads=1),
        "`predict_proba` of it": lambda: model.predict_proba(table),
        "naive Bayes from Parquet": lambda: fb.NaiveBayes(threads=1).fit(path, "class"),
    }
    figures = []
    for title, job in jobs.items():
        job()
        shares = []
        for _ in range({"full": 9, "quick": 5, "test": 1}[size]):
            free_turns, free_wall = turns_beside(free)
            start = time.perf_counter()
            job()
            alone = time.perf_counter() - start
            turns, wall = turns_beside(job)
            shares.append((wall - turns * free_wall / free_turns) / alone)
        share = statistics.median(shares) * 100
        figures.append(
            Figure(f"{title}, {rows:,} × 20, one thread: time under the lock", share, "%", None,
                   {"wall": alone})
        )  # fmt: skip
    return figures


def turns_beside(job: Callable[[], object]) -> tuple[int, float]:
    """Return how often a loop of pure Python turns in another thread during a job, and how long."""
    turns, done = [0], threading.Event()

    def loop() -> None:
        while not done.is_set():
            turns[0] += 1

    other = threading.Thread(target=loop)
    other.start()
    start, first = time.perf_counter(), turns[0]
    job()
    found = turns[0] - first, time.perf_counter() - start
    done.set()
    other.join()
    return found


def logistic_memory(size: str, folder: Path) -> list[Figure]:
    """Measure the peak memory of a logistic regression beside scikit-learn's, of indicators."""
    rows = {"full": 1_000_000, "quick": 300_000, "test": 20_000}[size]
    path = str(data.arrow_file("cat", rows, folder))
    code = LOGISTIC.format(path=path, rows=rows, limit=None, anew=False)
    wall, ours, _ = json.loads(fresh(code).output)
    theirs_wall, theirs = json.loads(fresh(SKLEARN_LOGISTIC.format(path=path, rows=rows)).output)
    title = f"fit `LogisticRegression` to an Arrow file, {rows:,} × 30 of 2–12 values, 4 classes"
    return [
        Figure(title, ours / GIB, "GiB", None, {"wall": wall}),
        Figure(
            "… what scikit-learn holds: columns as bytes, indicators, three steps of lbfgs",
            theirs / GIB,
            "GiB",
            None,
            {"wall": theirs_wall},
        ),
        Figure("… ours of theirs", ours / theirs, "×", 0.33, {"wall": wall}),
    ]


def logistic_out_of_core(size: str, folder: Path) -> list[Figure]:
    """Measure a logistic regression whose rows are read anew in every pass."""
    rows = {"full": 100_000_000, "quick": 5_000_000, "test": 200_000}[size]
    path = data.parquet("long", rows, folder)
    limit = 10 * rows
    code = LOGISTIC.format(path=str(path), rows=rows, limit=limit, anew=True)
    wall, peak, passes = json.loads(fresh(code).output)
    read = sum(file.stat().st_size for file in path.iterdir())
    title = (
        f"fit `LogisticRegression` to {rows:,} × 20 from {read / 1e9:.2f} GB of Parquet, "
        f"`memory_limit` {limit / 1e9:g} GB: {passes:.1f} times over the rows"
    )
    more = {"wall": wall, "rows_per_second": rows / wall}
    return [Figure(title, peak / GIB, "GiB", 1.0, more)]


def laboratory(size: str, _: Path) -> list[Figure]:
    """Measure whole jobs of the laboratory, the making of the table included."""
    rows = {"full": 200_000, "quick": 50_000, "test": 5_000}[size]
    repeats = {"full": 3, "quick": 1, "test": 1}[size]
    return [
        _repeated(
            f"{title}, {rows:,} × 30, 4 classes",
            None,
            repeats,
            functools.partial(fresh, LABORATORY.format(rows=rows, job=job)),
        )
        for title, job in JOBS.items()
    ]


PROCESSES: dict[str, Callable[[str, Path], list[Figure]]] = {
    "start": start_up,
    "compiling": compiling,
    "lock": under_lock,
    "memory": out_of_core,
    "growth": growth,
    "memory-numbers": out_of_core_numbers,
    "memory-logistic": logistic_memory,
    "logistic-out-of-core": logistic_out_of_core,
    "laboratory": laboratory,
    "workers": workers,
}
