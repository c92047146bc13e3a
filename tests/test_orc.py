"""ORC files are read in processes of their own: what can end these, and that none is left."""

from __future__ import annotations

import io
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.orc
import pytest
from commands import run
from mutating import mutations

import fastbayes as fb
from fastbayes.data import orc
from fastbayes.data.segments import sound
from fastbayes.data.source import open_source

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")

ROWS, PART = 300, 100
RNG = np.random.default_rng(3)
TABLE = pa.table(
    {
        "number": pa.array(RNG.normal(size=ROWS), mask=RNG.random(ROWS) < 0.1),
        "word": np.array(["x", "yy", "zzz"])[RNG.integers(0, 3, ROWS)],
        "whole": RNG.integers(0, 9, ROWS),
        "flag": RNG.random(ROWS) < 0.5,
        "time": pa.array(np.arange(ROWS) * 1000, pa.timestamp("ms")),
        "price": pa.array([str(i) for i in range(ROWS)]).cast(pa.decimal128(10, 2)),
        "list": [[i] * (i % 4) for i in range(ROWS)],
        "map": pa.array([[("k", i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        "kind": np.array(["k", "l"])[RNG.integers(0, 2, ROWS)],
    }
)
FEW = TABLE.select(["number", "word", "kind"])
CODECS = ("uncompressed", "zstd", "snappy", "zlib", "lz4")


def written(table: pa.Table = TABLE, codec: str = "uncompressed") -> bytes:
    """Return a file, of three stripes if it is not compressed."""
    sink = pa.BufferOutputStream()
    options = {"stripe_size": 1024, "batch_size": PART, "compression": codec}
    with pa.orc.ORCWriter(sink, **options) as writer:
        for first in range(0, len(table), PART):
            writer.write(table.slice(first, PART))
    data = sink.getvalue().to_pybytes()
    assert pa.orc.ORCFile(io.BytesIO(data)).nstripes == (3 if codec == "uncompressed" else 1)
    return data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "t.orc").write_bytes(written(FEW))
    return tmp_path / "t.orc"


def running(parent: int | None = None) -> set[int]:
    """Return the processes that read ORC files, of one parent or all of this machine."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # no process, or none any more
            continue
        if any(word.endswith(b"orc_process.py") for word in words):
            found |= {int(folder.name)} if parent in (None, above) else set()
    return found


def left(pids: set[int]) -> set[int]:
    """Return which processes are there after more time than any of them may wait."""
    end = time.monotonic() + 60
    while (still := {pid for pid in pids if pid in running()}) and time.monotonic() < end:
        time.sleep(0.05)
    return still


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """Hold every test to what it started having ended when its source is gone."""
    before = running(os.getpid())
    yield
    assert not running(os.getpid()) - before


def rows(source: Any, block_rows: int = 64) -> pa.Table:
    batches = [b for s in open_source(source).segments(block_rows) for b in s.batches()]
    return pa.Table.from_batches(batches)


# What ends a process


def killing(
    monkeypatch: pytest.MonkeyPatch, number: int, when: Callable[[int, bytes], bool]
) -> None:
    """Have a process killed by a signal before it is sent some messages."""
    send, sent = orc._OrcProcess._send, itertools.count()

    def killed(self: Any, data: Any) -> None:
        if when(next(sent), bytes(data)):
            os.kill(self._process.pid, number)
            self._process.wait()
        send(self, data)

    monkeypatch.setattr(orc._OrcProcess, "_send", killed)


SIGNALS = {
    signal.SIGKILL: "Killed",
    signal.SIGSEGV: "Segmentation fault",
    signal.SIGABRT: "Aborted",
}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("at", [0, 1])
def test_killed_when_opened__is_an_error(
    monkeypatch: pytest.MonkeyPatch, path: Path, number: Any, at: int
) -> None:
    killing(monkeypatch, number, lambda n, _: n == at)
    with pytest.raises(fb.FileFormatError, match=rf"t\.orc: .*{SIGNALS[number]}.*Parquet"):
        fb.count(path, "kind")


def of_stripe(stripe: int) -> Callable[[int, bytes], bool]:
    """Return what tells the bytes of the file that are sent for a stripe."""
    asked: list[bytes] = []

    def when(_: int, data: bytes) -> bool:
        if data.startswith(b"{"):
            asked.append(data)
        return not data.startswith(b"{") and f'"stripe": {stripe},'.encode() in b"".join(asked[-1:])

    return when


def test_killed_at_a_stripe__is_an_error(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    killing(monkeypatch, signal.SIGKILL, of_stripe(1))
    with pytest.raises(fb.FileFormatError, match=r"t\.orc, stripe 1: .*Killed"):
        fb.count(path, "kind", threads=1)


def test_killed_at_a_stripe__is_left_out(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    killing(monkeypatch, signal.SIGSEGV, of_stripe(1))
    stats = fb.count(path, "kind", threads=1, on_error="skip", numeric="mdl")
    assert any("t.orc, stripe 1: " in said for said in stats.provenance)
    rest = pa.concat_tables([FEW.slice(0, PART), FEW.slice(2 * PART)])
    wanted = fb.count(rest, "kind", numeric="mdl")
    assert stats.schema == wanted.schema
    assert stats.values == wanted.values


def test_killed_when_opened__the_file_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.orc").write_bytes(written(FEW))
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, signal.SIGSEGV, lambda n, _: n == 1)
        stats = fb.count(tmp_path, "kind", on_error="skip")
    assert stats.n_rows == ROWS
    assert any("a.orc: pyarrow's ORC reader" in said for said in stats.provenance)


def test_command_line__leaves_it_out_or_stops(
    monkeypatch: pytest.MonkeyPatch, path: Path, tmp_path: Path
) -> None:
    killing(monkeypatch, signal.SIGSEGV, of_stripe(1))
    command = ("count", path, "--target", "kind", "--threads", 1, "-o", tmp_path / "s.fbs")
    stopped = run(*command, code=1).stderr
    assert "t.orc, stripe 1: pyarrow's ORC reader" in stopped
    assert stopped.count("\n") == 1
    assert "t.orc, stripe 1: " in run(*command, "--on-error", "skip").output
    assert fb.load(tmp_path / "s.fbs").n_rows == ROWS - PART


def test_process_that_waits__may_end(path: Path) -> None:
    source = open_source(path)
    waiting = running(os.getpid())
    assert waiting
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)
    assert rows(path).equals(FEW)
    table = pa.Table.from_batches(b for s in source.segments(64) for b in s.batches())
    assert table.equals(FEW)


def test_process_that_waits__ends_by_itself(path: Path) -> None:
    source = open_source(path)
    assert not left(running(os.getpid()))
    table = pa.Table.from_batches(b for s in source.segments(64) for b in s.batches())
    assert table.equals(FEW)


# What leaves one behind


def test_reading_that_is_given_up__ends_its_process(path: Path) -> None:
    before = running(os.getpid())
    source = open_source(path)
    with closing(next(iter(source.segments(16))).batches()) as batches:
        next(batches)
        assert running(os.getpid()) - before
    del source, batches


def test_error_that_is_held__holds_no_process(path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as held:
        fb.count(path, "kind", threads=2, progress=stop)
    assert held.value.__traceback__ is not None
    assert not left(running(os.getpid()))


JOB = """
import os, sys, time
import fastbayes as fb

def wait(rows):
    if os.fork() == 0:  # it holds all pipes, and outlives its parent
        time.sleep(600)
    print("reading", flush=True)
    time.sleep(600)

if sys.argv[2] == "stripe":
    from fastbayes.data.source import open_source
    batches = next(iter(open_source(sys.argv[1]).segments(1))).batches()
    next(batches)
    wait(0)
fb.count(sys.argv[1], "kind", threads=1, progress=wait)
"""


@pytest.mark.parametrize("moment", ["stripe", "between"])
def test_parent_killed__ends_the_processes(path: Path, moment: str) -> None:
    job = subprocess.Popen(
        [sys.executable, "-", path, moment],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write(JOB.encode())
        job.stdin.close()
        assert job.stdout.readline() == b"reading\n"
        started = running(job.pid)
        assert started
        job.kill()
        job.wait()
        assert not left(started)
        os.killpg(job.pid, signal.SIGKILL)  # the forked one


# Where it is called from


def test_in_threads(path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for table in pool.map(rows, [path] * 8):
            assert table.equals(FEW)


def test_in_a_forked_process(path: Path) -> None:
    source = open_source(path)  # its process waits, and is not the child's

    def read() -> bool:
        table = pa.Table.from_batches(b for s in source.segments(64) for b in s.batches())
        return bool(table.equals(FEW))

    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if read() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_multiprocessing__main_not_importable(path: Path, method: str) -> None:
    # Read from stdin, it cannot be spawned, but can be forked.
    script = f"""
import multiprocessing
import fastbayes as fb

def rows(_):
    return fb.count({os.fspath(path)!r}, "kind").n_rows

multiprocessing.set_start_method({method!r})
if {method!r} == "fork":
    with multiprocessing.Pool(2) as pool:
        assert pool.map(rows, range(2)) == [{ROWS}] * 2
print(rows(0))
"""
    command = [sys.executable, "-W", "error", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == (f"{ROWS}\n", "")


def test_another_file_system(path: Path) -> None:
    folder = pa.fs.SubTreeFileSystem(os.fspath(path.parent), pa.fs.LocalFileSystem())
    assert fb.count("t.orc", "kind", filesystem=folder).values == fb.count(FEW, "kind").values


def test_no_interpreter__is_an_error(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(fb.DataError, match=r"t.orc: .*'/nowhere/python' does not start.*Parquet"):
        fb.count(path, "kind")


# Damaged files


def test_file_that_ends_pyarrow__is_an_error() -> None:
    # 16 bytes of a map column were changed: pyarrow 26 follows a length out of its memory. Another
    # version may find it out, or read something.
    path = Path(__file__).parent / "broken_files" / "ends_pyarrow.orc"
    try:
        assert rows(path).num_rows == 600
    except fb.FileFormatError as error:
        assert "ends_pyarrow.orc" in str(error)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("n", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_mutated_files__are_read_or_refused(tmp_path: Path, codec: str, n: int) -> None:
    refused, process = 0, None
    for what, data in mutations(written(codec=codec), CODECS.index(codec), n):
        process = process or orc._OrcProcess(what)
        try:
            (schema,) = process.ask(handle := pa.BufferReader(data), **orc.OPENING)
            stripes = min(int(schema.metadata[b"stripes"]), 5)
            for stripe in range(stripes):
                asked = {"stripe": stripe, "columns": schema.names, "rows": 64}
                for answer in process.ask(handle, **asked):
                    if isinstance(answer, pa.RecordBatch):
                        sound(answer)
        except (pa.ArrowInvalid, UnicodeDecodeError, orc._EndedError):
            refused += 1
            if process.idle:
                continue  # it said what is wrong
            process.close()
            process = None
            if refused % 7 == 0:  # as it is for a user
                (tmp_path / "t.orc").write_bytes(data)
                with pytest.raises(fb.DataError, match=r"t\.orc"):
                    rows(tmp_path / "t.orc")
    if process is not None:
        process.close()
    assert 0 < refused < n
