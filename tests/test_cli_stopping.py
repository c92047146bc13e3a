"""Ctrl-C, kill and hang-up in the middle of a job; the progress bar on a terminal."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from commands import answer, parquet, run, snapshot, tennis

from fastbayes.cli import stopping
from fastbayes.cli.stopping import SIGNALS, Stopped, stoppable

LAST = "Interrupted: nothing half-written is left."


@contextmanager
def started(*args: Any, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "fastbayes", *map(str, args)]
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def wait_for(true: Callable[[], Any], process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        if true():
            return
        assert process.poll() is None, "the job was over before it could be stopped"
        time.sleep(0.05)
    raise AssertionError("what was waited for did not come in a minute")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a model and data whose two billion rows take no space."""
    folder = tmp_path_factory.mktemp("endless")
    part = parquet(tennis(1_000_000), folder / "part.parquet")
    run("fit", part, "--target", "play", "-o", folder / "m.fb")
    (folder / "data").mkdir()
    for i in range(2000):
        (folder / "data" / f"{i:04}.parquet").symlink_to(part)
    return folder


@contextmanager
def on_terminal(*args: Any) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Start a command whose stderr is a terminal, and open the terminal's other end."""
    ours, theirs = pty.openpty()
    with (
        open(ours, "rb", buffering=0) as end,
        started(*args, stderr=theirs, stdout=subprocess.DEVNULL) as process,
    ):
        os.close(theirs)
        yield process, end


def shown(end: IO[bytes], until: str | None = None) -> str:
    """Return what appears on a terminal, to its end or until a pattern is there."""
    said = ""
    while until is None or not re.search(until, said):
        try:
            part = end.read(1 << 16)
        except OSError:  # Linux says so when the other end is closed
            part = b""
        if not part:
            break
        said += part.decode()
    return said


@pytest.mark.parametrize("command", ["fit", "count"])
def test_stop__while_counting(endless: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out"
    args = (command, endless / "data", "--target", "play", "-o", out)
    with on_terminal(*args) as (process, end):
        said = shown(end, until=r"\d[kMG]? rows/s")
        assert "counting" in said
        assert "2.00G" in said
        process.send_signal(signal.SIGINT)
        said += shown(end)
        assert process.wait(60) == 130, said
    assert said.splitlines()[-1] == LAST
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "suffix"),
    [(signal.SIGINT, ".parquet"), (signal.SIGTERM, ".arrow"), (signal.SIGHUP, ".csv")],
)
def test_stop__while_predicting(
    endless: Path, tmp_path: Path, number: signal.Signals, suffix: str
) -> None:
    args = ("predict", endless / "m.fb", endless / "data", "-o", tmp_path / f"out{suffix}")
    with started(*args, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        wait_for(lambda: any(path.stat().st_size for path in tmp_path.iterdir()), process)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (128 + number, b"")
    assert stderr.decode() == f"{LAST}\n"
    assert list(tmp_path.iterdir()) == []


def test_stop__by_a_terminal_that_hung_up(endless: Path, tmp_path: Path) -> None:
    """What is said at the end has nowhere to go: writing to such a terminal is an error."""
    args = ("predict", endless / "m.fb", endless / "data", "-o", tmp_path / "out.csv")
    with on_terminal("--quiet", *args) as (process, end):
        wait_for(lambda: any(path.stat().st_size for path in tmp_path.iterdir()), process)
        end.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 129
    assert list(tmp_path.iterdir()) == []


def test_stop__while_generating(tmp_path: Path) -> None:
    args = ("generate", "--preset", "long", "--rows", 10**9, "-o", tmp_path / "made")
    with started(*args, stderr=subprocess.PIPE) as process:
        wait_for(lambda: sum(map(len, snapshot(tmp_path).values())), process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.decode() == f"{LAST}\n"
    assert list(tmp_path.iterdir()) == []


INTERRUPTED_START = """
import threading
from fastbayes.core.threads import in_order

start = threading.Thread.start

def interrupted(thread):
    start(thread)
    if thread.name.startswith("fastbayes") and threading.current_thread().name == "MainThread":
        raise KeyboardInterrupt

threading.Thread.start = interrupted
try:
    list(in_order(int, range(9), 2))
except KeyboardInterrupt:
    print("stopped")
"""


def test_stop__while_the_workers_start() -> None:
    command = [sys.executable, "-c", INTERRUPTED_START]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


def test_stop__second_signal_waits_for_the_first() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    cleaned = False
    with pytest.raises(Stopped, match="SIGTERM") as stopped, stoppable():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned = True
    assert cleaned
    assert stopped.value.exit_code == 143
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_stop__signals_long_after_the_first_end_the_cleaning_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "PATIENCE", 0.2)
    cleaned = False
    with pytest.raises(Stopped, match="SIGINT"), stoppable():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
            cleaned = True
    assert not cleaned


STOPPED_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Stopping(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Stopping())
import time
import pyarrow as pa
from fastbayes.cli import statistics, main

def count(*_, **__):
    pa.nulls(1, pa.int8()).to_numpy(zero_copy_only=False)
    time.sleep(60)

statistics.fb.count = count
main(["count", "no.csv", "--target", "y", "-o", sys.argv[2]])
"""


def test_stop__while_pyarrow_imports_pandas(tmp_path: Path) -> None:
    """What is raised there, pyarrow drops."""
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", STOPPED_IMPORT, "pandas.core.ops", str(tmp_path / "s.fbs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (143, f"{LAST}\n")


def test_stop__what_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_bar__on_a_terminal_alone(tmp_path: Path) -> None:
    data = parquet(tennis(3000), tmp_path / "d.parquet")
    args = ("fit", data, "--target", "play", "--force", "-o", tmp_path / "m.fb")
    with on_terminal(*args) as (process, end):
        assert re.search(r"counting: 100%\|█+\| 3\.00k/3\.00k", shown(end))
        assert process.wait(60) == 0
    with on_terminal("--quiet", *args) as (process, end):
        assert shown(end) == ""
        assert process.wait(60) == 0
    assert run(*args).stderr == ""


@pytest.mark.parametrize("command", ["predict", "evaluate", "count", "generate"])
def test_bar__counts_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    from fastbayes.cli import models, statistics, tools

    data = parquet(tennis(150_000), tmp_path / "d.parquet")
    run("fit", data, "--target", "play", "-o", tmp_path / "m.fb")
    steps: list[int] = []

    @contextmanager
    def recorded(what: str, data: Any) -> Any:
        yield steps.append

    for module in (models, statistics, tools):
        monkeypatch.setattr(module, "bar", recorded)
    answer(*{
        "predict": ("predict", tmp_path / "m.fb", data, "-o", tmp_path / "p.csv"),
        "evaluate": ("evaluate", tmp_path / "m.fb", data),
        "count": ("count", data, "--target", "play", "-o", tmp_path / "s.fbs"),
        "generate": ("generate", "--preset", "cat", "--rows", 150_000, "-o", tmp_path / "g"),
    }[command])  # fmt: skip
    assert sum(steps) == 150_000


def test_ctrl_c_during_the_imports_is_no_traceback() -> None:
    code = """
import os, runpy, signal, sys

class Stopping:
    def find_spec(self, name, *_):
        if name == "fastbayes.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Stopping())
runpy.run_module("fastbayes", run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")
