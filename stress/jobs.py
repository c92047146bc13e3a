"""Commands that write something, run in processes of their own, and what must be there afterwards.

The processes are forked from this one, which has imported everything: so there are ten times as
many cases. `lifetimes` starts whole ones.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fastbayes as fb
from stress import moments

# Of one case, however slow the machine.
WAIT = 90
ROWS = 6000
# By name: the command, its options, and what it writes.
JOBS: dict[str, tuple[str, str]] = {
    "fit": ("fit {data} --target y --force -o", "out.fb"),
    "fit tan": ("fit {data} --target y --model tan --force -o", "out.fb"),
    "fit statistics": ("fit --statistics {half} --force -o", "out.fb"),
    "count": ("count {data} --target y --force -o", "out.fbs"),
    "count on": ("count {data} --target y --checkpoint {out}/kept --force -o", "out.fbs"),
    "cut on": (
        "count {data} --target y --pairs --columns level,number --checkpoint {out}/kept --force -o",
        "out.fbs",
    ),
    "merge": ("merge {half} {other} --force -o", "out.fbs"),
    "predict parquet": ("predict {model} {data} --proba --force -o", "out.parquet"),
    "predict ipc": ("predict {model} {data} --force -o", "out.arrow"),
    "predict csv": ("predict {model} {data} --force -o", "out.csv"),
    "predict parts": ("predict {model} {data} --force -o", "out"),
    "generate": ("generate --preset cat --rows 3000 --files 2 --force -o", "out"),
    "learn": ("network learn {data} --columns level,y --categorical level --force -o", "out.bif"),
    "sample": ("network sample {net} --rows 3000 --force -o", "out.csv"),
    "evaluate": ("evaluate {model} {data}", ""),
    "compare": ("compare {data} --target y --models naive-bayes,tan", ""),
    "learning-curve": ("learning-curve {data} --target y --models naive-bayes --repeats 2", ""),
    "inspect": ("inspect {data}", ""),
    "query": ("network query {net} --method gibbs --draws 2000 -e y=a", ""),
    "show": ("network show {net}", ""),
}


# A checkpoint has the most moments: it is drawn more often.
DRAWN = [*JOBS, *["count on"] * 4, *["cut on"] * 3]


@cache
def given() -> dict[str, str]:
    """Return the paths of what the jobs read, made once for a process."""
    folder = Path(tempfile.mkdtemp(prefix="stress-given-"))
    rng = np.random.default_rng(0)
    row = np.arange(ROWS)
    table = pa.table(
        {
            "name": np.array([f"n{i:03}" for i in range(200)])[rng.integers(0, 1 + row // 40)],
            "level": pa.array(rng.integers(0, 5, ROWS), mask=row % 7 == 0),
            "number": pa.array(rng.lognormal(0, 5, ROWS), mask=rng.random(ROWS) < 0.1),
            "y": pa.array(np.array(["b", "d", "a"])[row % 3], mask=row % 11 == 5),
        }
    )
    data = folder / "data"
    data.mkdir()
    for i in range(3):
        pq.write_table(table.slice(2000 * i, 2000), data / f"{i}.parquet", row_group_size=250)
    for name, rows in (("half", table.slice(0, 3000)), ("other", table.slice(3000))):
        fb.count(rows, "y").save(folder / f"{name}.fbs")
    fb.NaiveBayes().fit(table, "y").save(folder / "model.fb")
    words = table.select(["level", "y"]).drop_null()
    fb.BayesianNetwork.from_edges([("y", "level")]).fit(words, categorical="level").write_bif(
        folder / "net.bif"
    )
    return {
        "data": str(data),
        "half": str(folder / "half.fbs"),
        "other": str(folder / "other.fbs"),
        "model": str(folder / "model.fb"),
        "net": str(folder / "net.bif"),
    }


def arguments(name: str, out: Path) -> list[str]:
    """Return the command of a job whose output goes into a directory."""
    command, output = JOBS[name]
    words = [word.format(**given(), out=out) for word in command.split()]
    return [*words, *([str(out / output)] if output else [])]


class Whole(NamedTuple):
    """What a job that nothing disturbs leaves, its calls of the file system, and its seconds."""

    files: dict[str, bytes]
    calls: tuple[str, ...]
    seconds: float


@cache
def finished(name: str, kernels: str = "never") -> Whole:
    """Run a job that nothing disturbs, once for a process."""
    with tempfile.TemporaryDirectory(prefix="stress-whole-") as folder:
        out, log = Path(folder, "out"), Path(folder, "log")
        out.mkdir()
        begun = time.monotonic()
        process = Process(name, out, {"log": str(log)}, kernels)
        assert process.wait() == 0, process.said
        seconds = time.monotonic() - begun
        return Whole(held(out), tuple(json.loads(log.read_text())), seconds)


class Process:
    """A job in a process of its own, forked from this one.

    Parameters
    ----------
    name, out
        The job, and the directory of its output.
    plan
        What happens to it, as in `stress.moments`.
    kernels
        "always" compiled, whose sums differ in the last bits, or "never".
    """

    def __init__(self, name: str, out: Path, plan: dict[str, Any], kernels: str = "never") -> None:
        command = arguments(name, out)
        self._said, writing = os.pipe()  # whose size no limit of files concerns
        self.said = ""
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
            return
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(writing, 2)
            os.environ["FASTBAYES_KERNELS"] = kernels
            folders = str(out), str(Path(given()["data"]).parent)
            moments.main({"folders": folders, **plan}, command)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def wait(self) -> int:
        """Return the exit code, negative for a signal; what was said is in `said`."""
        end = time.monotonic() + WAIT
        while not (waited := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"did not end in {WAIT} s")
            time.sleep(0.002)
        with open(self._said, errors="replace") as told:
            self.said = told.read()
        return os.waitstatus_to_exitcode(waited[1])


def held(folder: Path) -> dict[str, bytes]:
    """Return every file below a directory, hidden ones too, by its path in it."""
    return {
        os.path.relpath(os.path.join(root, name), folder): Path(root, name).read_bytes()
        for root, _, names in os.walk(folder)
        for name in names
    }


def old(name: str, out: Path, rng: np.random.Generator) -> dict[str, bytes]:
    """Put there, or not, what an earlier run may have left at a job's output; return it."""
    output = JOBS[name][1]
    if output and rng.integers(2):
        path = out / output if Path(output).suffix else out / output / "part-00000.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"old")
    return held(out)


def check_whole(
    name: str, out: Path, before: dict[str, bytes], *, unfinished: bool, kernels: str = "never"
) -> str:
    """Hold what is there to the old or the new output, whole; return which.

    Parameters
    ----------
    name
        The job.
    out
        Its directory.
    before
        What was there.
    unfinished
        Whether hidden files may be there, too: the process had no time to remove them.
    kernels
        Those of the process.
    """
    after = held(out)
    kept = {path: blob for path, blob in after.items() if path.startswith("kept")}
    assert unfinished or kept.keys() <= {"kept/checkpoint.fbs", "kept/cuts.fbs"}, sorted(kept)
    after = {path: blob for path, blob in after.items() if path not in kept}
    if unfinished:
        after = {p: blob for p, blob in after.items() if not p.startswith(".fastbayes-")}
    found = finished(name, kernels).files
    whole = {path: blob for path, blob in found.items() if not path.startswith("kept")}
    if after == before:
        return "old"
    assert sorted(after) == sorted(whole), f"there is {sorted(after)}"
    assert after == whole, f"half-written: {[p for p in after if after[p] != whole[p]]}"
    return "new"


def check_next(name: str, out: Path, kernels: str = "never") -> None:
    """Run the job again: it ends well, its output is whole, and nothing else is left."""
    process = Process(name, out, {}, kernels)
    assert process.wait() == 0, process.said
    assert check_whole(name, out, {"": b""}, unfinished=False, kernels=kernels) == "new"
    left = [path.name for path in out.iterdir() if path.name.startswith(".")]
    assert left == [], left
