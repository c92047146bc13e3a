"""`predict_to` of files that workers read: the parts that they write are those written here."""

from __future__ import annotations

import errno
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from test_predict_parts import FORMATS, read_parts
from test_predict_to import READ, SOURCES, table_of

import fastbayes as fb
from fastbayes.data.segments import Source
from fastbayes.engines import Paths, pool
from fastbayes.engines.shares import Work
from fastbayes.scan.outputs import prediction_blocks, prediction_parts


def shipped(f: Callable[[Any], bytes], items: Iterable[Any]) -> Iterator[bytes]:
    """Map as an engine does: function and items arrive as bytes."""
    for item in items:
        yield pickle.loads(pickle.dumps(f))(pickle.loads(pickle.dumps(item)))


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return table_of(3000)


@pytest.fixture(scope="module")
def model(table: pa.Table) -> fb.NaiveBayes:
    return fb.NaiveBayes(categorical=["level"]).fit(table.drop_columns("id"), "y")


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of Parquet files: of several row groups, of none, and of one."""
    path = tmp_path_factory.mktemp("data")
    for i, (first, n) in enumerate(((0, 1800), (1800, 0), (1800, 1200))):
        size = 250 if i == 0 else 5000
        pq.write_table(table.slice(first, n), path / f"{i}.parquet", row_group_size=size)
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a few hundred rows into parts."""
    monkeypatch.setattr(prediction_blocks, "BLOCK_ROWS", 64)
    monkeypatch.setattr(prediction_blocks, "GROUP_ROWS", 256)


def there(path: Path) -> list[Path]:
    """Return what is in a folder, hidden or not."""
    return sorted(path.iterdir())


# -- what is written


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("parts", [1, 3, 100])
@pytest.mark.parametrize("suffix", READ)
def test_rows__are_those_written_here(
    folder: Path, model: fb.NaiveBayes, tmp_path: Path, suffix: str, parts: int
) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"proba": True, "explain": True},
        {"proba": "predicted", "precision": "fast", "keys": ["y", "id"]},
        {"loss": [[0, 4, 1], [1, 0, 1], [2, 3, 0]], "reject": 0.4, "keys": []},
    ]
    for i, given in enumerate(options):
        here, out = tmp_path / f"here-{i}", tmp_path / f"there-{i}"
        given["format"] = FORMATS[suffix]
        local = fb.predict_to(model, folder, here, **given)
        assert fb.predict_to(model, Paths(folder, shipped, parts), out, **given) == local
        rows, read = read_parts(out, suffix)
        assert read.equals(read_parts(here, suffix)[1])
        assert min(rows) > 0
        assert len(rows) >= min(parts, 8)
    assert len(there(tmp_path)) == 2 * len(options)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "arrow", "orc"])
def test_rows__of_every_format(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, kind: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for i in range(3):
        some, path = table.slice(1000 * i, 1000), data / f"{i}.{kind}"
        if kind == "orc":
            orc.write_table(some, path)
        elif kind == "jsonl":
            some.to_pandas().to_json(path, orient="records", lines=True)
        else:
            SOURCES[{"csv": "CSV", "arrow": "IPC"}[kind]](some, path)
    local = fb.predict_to(model, data, tmp_path / "here", proba=True)
    assert fb.predict_to(model, Paths(data, shipped, 5), tmp_path / "there", proba=True) == local
    read = [read_parts(tmp_path / name, ".parquet")[1] for name in ("here", "there")]
    assert read[1].equals(read[0])


@pytest.mark.parametrize("name", ["TAN", "AODE", "GaussianBayes", "LogisticRegression"])
def test_rows__of_other_models(table: pa.Table, folder: Path, tmp_path: Path, name: str) -> None:
    columns = ["number", "y"] if name == "GaussianBayes" else ["text", "flag", "number", "y"]
    model = getattr(fb, name)().fit(table.select(columns), "y")
    fb.predict_to(model, folder, tmp_path / "here", proba=True)
    fb.predict_to(model, Paths(folder, shipped, 5), tmp_path / "there", proba=True)
    read = [read_parts(tmp_path / name, ".parquet")[1] for name in ("here", "there")]
    assert read[1].equals(read[0])


def test_rows__keep_their_order_however_answers_come(
    folder: Path, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    """Spark adds up what tasks said in any order, and runs tasks twice at once."""

    def mapped(f: Any, items: Iterable[Any]) -> list[bytes]:
        answers = [f(item) for item in [*items] * 2][-len([*items]) :]
        random.Random(0).shuffle(answers)
        return [f.sum(answers[:3]), f.sum(answers[3:])]

    fb.predict_to(model, folder, tmp_path / "here", proba=True)
    fb.predict_to(model, Paths(folder, mapped, 8), tmp_path / "there", proba=True)
    read = [read_parts(tmp_path / name, ".parquet")[1] for name in ("here", "there")]
    assert read[1].equals(read[0])


def test_rows__of_none_are_one_part(model: fb.NaiveBayes, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table.slice(0, 0), tmp_path / "a.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    done = fb.predict_to(model, Paths(tmp_path, shipped, 2), tmp_path / "out", proba=True)
    assert done.rows == 0
    rows, read = read_parts(tmp_path / "out", ".parquet")
    assert rows == [0]
    assert read.column_names == [*done.columns]


def test_report_and_progress(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    new = table.set_column(1, "text", pa.array(["new", "a"] * 1500))
    pq.write_table(new, tmp_path / "a.parquet", row_group_size=500)
    steps: list[int] = []
    source = Paths(tmp_path / "a.parquet", shipped, 4)
    done = fb.predict_to(model, source, tmp_path / "out", progress=steps.append)
    assert done.unseen == {"text": 1500}
    assert sum(steps) == done.rows == 3000
    assert len(steps) == 4


# -- which target


def test_target__is_a_directory(folder: Path, model: fb.NaiveBayes, tmp_path: Path) -> None:
    source = Paths(folder, shipped, 3)
    for name in ("out.parquet", "out.csv"):
        with pytest.raises(fb.DataError, match=rf"{name}: workers write .*name a directory"):
            fb.predict_to(model, source, tmp_path / name)
    assert there(tmp_path) == []
    fb.predict_to(model, source, tmp_path / "out.csv", parts=True)
    with pytest.raises(fb.DataError, match="is not empty"):
        fb.predict_to(model, source, tmp_path / "out.csv", parts=True)
    fb.predict_to(model, source, tmp_path / "out.csv", parts=True, force=True, keys=[])
    assert read_parts(tmp_path / "out.csv", ".csv")[1].column_names == ["prediction"]


# -- what goes wrong


@pytest.mark.parametrize("force", [False, True])
def test_errors__are_those_of_rows_read_here_and_leave_nothing(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, *, force: bool
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    pq.write_table(table, data / "0.parquet", row_group_size=500)
    if force:
        fb.predict_to(model, data, out)
    before = [path.read_bytes() for path in there(out)] if force else []
    number = table["number"].to_numpy(zero_copy_only=False).copy()
    number[900] = float("inf")
    wrong = table.set_column(3, "number", pa.array(number))
    pq.write_table(wrong, data / "1.parquet", row_group_size=500)
    with pytest.raises(fb.DataError) as here:
        fb.predict_to(model, data, out, force=force)
    with pytest.raises(fb.DataError, match=r"'number', row 900 of .*1\.parquet") as found:
        fb.predict_to(model, Paths(data, shipped, 4), out, force=force)
    assert str(found.value) == str(here.value)
    assert found.value.__cause__ is None
    assert there(tmp_path) == [data, *([out] if force else [])]
    assert ([path.read_bytes() for path in there(out)] if force else []) == before


@pytest.mark.parametrize("wrong", ["lost", "twice"])
def test_results__that_are_lost_or_come_twice(
    folder: Path, model: fb.NaiveBayes, tmp_path: Path, wrong: str
) -> None:
    def mapped(f: Any, items: Iterable[Any]) -> list[bytes]:
        found = [*shipped(f, items)]
        return found[1:] if wrong == "lost" else [*found, found[-1]]

    with pytest.raises(fb.DataError, match="`map` must give one result for each item"):
        fb.predict_to(model, Paths(folder, mapped, 3), tmp_path / "out")
    assert there(tmp_path) == []


class Failing:
    """Work whose first attempt at a share leaves half a file, and fails."""

    def __init__(self, work: Work[Any], marker: Path, how: str) -> None:
        self.work, self.marker, self.how = work, marker, how

    def __call__(self, share: Source) -> bytes:
        first = share.position == 1 and not self.marker.exists()
        if first:
            self.marker.touch()
            (self.work.request.folder / "half").write_bytes(b"half")  # type: ignore[attr-defined]
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
        found = self.work(share)
        return self.work(share) if first else found  # what the first try wrote is there, too


def test_processes__one_of_which_is_killed(
    folder: Path, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    fb.predict_to(model, folder, tmp_path / "here", proba=True)
    expected = read_parts(tmp_path / "here", ".parquet")[1]
    processes = pool.paths(folder, processes=2)
    for how in ("twice", "killed"):

        def mapped(f: Any, items: Iterable[Any], how: str = how) -> Iterable[bytes]:
            return processes.map(Failing(f, tmp_path / how, how), items)

        fb.predict_to(model, Paths(folder, mapped, 6), tmp_path / f"out-{how}", proba=True)
        assert (tmp_path / how).exists()
        assert read_parts(tmp_path / f"out-{how}", ".parquet")[1].equals(expected)
    assert [path for path in there(tmp_path) if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "no space left on device; nothing was written"),
        (errno.EIO, "a part cannot be written .*name a directory"),
    ],
)
def test_disk__that_is_full_or_fails_a_worker(
    folder: Path,
    model: fb.NaiveBayes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    said: str,
) -> None:
    def fails(_: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(prediction_parts, "sync", fails)
    with pytest.raises(fb.DataError, match=f"out: {said}") as found:
        fb.predict_to(model, Paths(folder, shipped, 3), tmp_path / "out")
    assert ".fastbayes" not in str(found.value)
    assert there(tmp_path) == []


@pytest.mark.parametrize("target", ["out", "out.parquet"])
@pytest.mark.parametrize("workers", [False, True])
def test_files__that_change_meanwhile_are_named(
    folder: Path, model: fb.NaiveBayes, tmp_path: Path, target: str, *, workers: bool
) -> None:
    (data := tmp_path / "data").mkdir()
    for path in folder.iterdir():
        (data / path.name).write_bytes(path.read_bytes())

    def meanwhile(_: int) -> None:
        os.utime(data / "0.parquet", (1, 1))

    source = Paths(data, shipped, 1) if workers else data
    with pytest.raises(fb.DataError, match=r"0\.parquet changed while it was read"):
        fb.predict_to(
            model, source, tmp_path / target, parts=target == "out" or workers, progress=meanwhile
        )
    assert there(tmp_path) == [data]


KILLED = """
import sys, time
import fastbayes as fb
from fastbayes.engines import pool

class Slow:
    def __init__(self, work):
        self.work = work

    def __call__(self, share):
        found = self.work(share)
        print("written", flush=True)
        time.sleep(1000)
        return found

if __name__ == "__main__":
    processes = pool.paths(sys.argv[1], processes=2)
    source = fb.engines.Paths(sys.argv[1], lambda f, items: processes.map(Slow(f), items), 4)
    fb.predict_to(fb.load(sys.argv[2]), source, sys.argv[3])
"""


def test_program__that_is_killed_leaves_nothing_that_looks_finished(
    folder: Path, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    (script := tmp_path / "script.py").write_text(KILLED)
    model.save(tmp_path / "model.fb")
    (targets := tmp_path / "targets").mkdir()
    command = [sys.executable, script, folder, tmp_path / "model.fb", targets / "out"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline() == b"written\n"
        process.kill()
        process.communicate(timeout=60)  # ends with its processes
    (left,) = there(targets)
    assert left.name.startswith(".fastbayes-")
    fb.predict_to(model, Paths(folder, shipped, 4), targets / "out")
    assert there(targets) == [targets / "out"]


def test_directory__that_workers_do_not_find(
    folder: Path, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    """As a worker on another machine, where the path is not that of the same directory."""

    def elsewhere(f: Any, items: Iterable[Any]) -> Iterator[bytes]:
        (f.request.folder).rename(tmp_path / "elsewhere")
        found = [*shipped(f, items)]
        (tmp_path / "elsewhere").rename(f.request.folder)
        yield from found

    with pytest.raises(fb.DataError, match=r"out: a part cannot be written .*find by this path"):
        fb.predict_to(model, Paths(folder, elsewhere, 3), tmp_path / "out")
    assert there(tmp_path) == []
