"""A count that is stopped and goes on leaves the same bits as one that was never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from commands import fails, run

import fastbayes as fb
from fastbayes.core import files
from fastbayes.data import text
from fastbayes.data.source import open_source
from fastbayes.scan import checkpoint


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the checkpoint after every segment."""
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)


def table_of(rows: int = 24_000) -> pa.Table:
    """Return rows whose values, classes and nulls appear bit by bit, sums that do not commute."""
    rng = np.random.default_rng(0)
    row = np.arange(rows)
    y = np.where(row < rows // 3, row % 2, row % 4)
    names = np.array([f"name {i:04}" for i in range(2000)])
    return pa.table(
        {
            "name": names[rng.integers(0, 1 + row * 2000 // rows)],
            "level": pa.array(rng.integers(0, 5, rows) + row // (rows // 2), mask=row % 7 == 0),
            "number": pa.array(rng.lognormal(0, 5, rows), mask=rng.random(rows) < 0.1),
            "weight": rng.lognormal(0, 3, rows),
            "y": pa.array(np.array(["b", "d", "a", "c"])[y], mask=row % 11 == 5),
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    table = table_of()
    for i in range(3):
        part = table.slice(8000 * i, 8000)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=1000)
    return folder


class Stop(Exception):
    pass


def stopped(source: Any, folder: Path, rows: int, **options: Any) -> int:
    """Count until so many rows are done, then stop; return the rows that were done."""
    done = 0

    def progress(n: int) -> None:
        nonlocal done
        done += n
        if done > rows:
            raise Stop

    with pytest.raises(Stop):
        fb.count(source, "y", checkpoint=folder, progress=progress, **options)
    return done


def complete(folder: Path) -> bool:
    """Return whether a checkpoint holds a complete count, and nothing else is there."""
    assert {path.name for path in folder.iterdir()} <= {"checkpoint.fbs", "cuts.fbs"}
    return bool(files.read(folder / "checkpoint.fbs")[0]["complete"])


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weighted": {"sample_weight": "weight"},
    "categorical": {"categorical": ["level"], "missing": "category"},
    "declared": {"domains": {"level": [*range(9)], "y": ["a", "b", "c", "d", "e"]}},
    "counts only": {"moments": False},
    "skipping": {"on_error": "skip", "sample_weight": "weight"},
}


def same_bits(a: fb.Statistics, b: fb.Statistics) -> bool:
    """Return whether schema, arrays and remarks are equal to the last bit."""
    return a == b and all(
        mine.tobytes() == b.parts[name].arrays()[key].tobytes()
        for name, part in a.parts.items()
        for key, mine in part.arrays().items()
    )


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("case", OPTIONS)
def test_resumed__equals_uninterrupted(data: Path, tmp_path: Path, case: str, threads: int) -> None:
    options = {**OPTIONS[case], "threads": threads}
    whole = fb.count(data, "y", **options)
    for rows in (0, 5_500, 15_000, 23_500):
        stopped(data, tmp_path, rows, **options)
        if rows != 5_500:  # within what may be read as one segment
            assert (tmp_path / "checkpoint.fbs").exists() == (rows > 0)
    steps: list[int] = []
    resumed = fb.count(data, "y", checkpoint=tmp_path, progress=steps.append, **options)
    assert same_bits(resumed, whole)
    assert resumed.provenance == whole.provenance
    assert resumed.dropped_rows == whole.dropped_rows
    assert sum(steps) == 24_000
    assert steps[0] >= 18_000  # what was done before is reported, not done again
    assert complete(tmp_path)


def test_resumed__with_another_number_of_threads(data: Path, tmp_path: Path) -> None:
    options = {"sample_weight": "weight"}
    stopped(data, tmp_path, 9000, threads=1, **options)
    stopped(data, tmp_path, 17_000, threads=8, **options)
    resumed = fb.count(data, "y", checkpoint=tmp_path, threads=3, **options)
    assert same_bits(resumed, fb.count(data, "y", threads=2, **options))


def test_resumed__text_whose_types_widen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(text, "LEAST_INFER_BYTES", 2000)
    rows = 3000
    table = pa.table(
        {
            "n": [str(i % 7) if i < 2000 else f"{i % 7}.5" for i in range(rows)],
            "late": ["" if i < 1000 else "xyz"[i % 3] for i in range(rows)],
            "y": ["" if i < 700 else "pqr"[i % 3] for i in range(rows)],
        }
    )
    source = tmp_path / "d.csv"
    pc.write_csv(table, source, write_options=pc.WriteOptions(quoting_style="none"))
    options = {"categorical": ["n"]}
    whole = fb.count(source, "y", **options)
    kept = tmp_path / "kept"
    for done in (500, 1500, 2500):
        stopped(source, kept, done, **options)
    assert same_bits(fb.count(source, "y", checkpoint=kept, **options), whole)


def test_resumed__rows_without_a_class_are_not_mistaken_for_all(tmp_path: Path) -> None:
    labels = pa.array([None] * 2000 + ["a", "b"] * 1000, pa.string())
    table = pa.table({"x": ["u", "v"] * 2000, "y": labels})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=1000)
    stopped(tmp_path / "d.parquet", tmp_path / "kept", 1500)
    resumed = fb.count(tmp_path / "d.parquet", "y", checkpoint=tmp_path / "kept")
    assert resumed.dropped_rows == 2000
    assert same_bits(resumed, fb.count(table, "y"))


def test_refused__another_job(data: Path, tmp_path: Path) -> None:
    stopped(data, tmp_path, 9000)
    before = (tmp_path / "checkpoint.fbs").read_bytes()
    others: list[dict[str, Any]] = [
        {"sample_weight": "weight"},
        {"categorical": ["level"]},
        {"missing": "category"},
        {"moments": False},
        {"columns": ["name", "number"]},
        {"columns": ["number", "name", "level", "weight"]},
        {"null_values": ["name 0001"]},
        {"domains": {"level": [*range(9)]}},
        {"on_error": "skip"},
    ]
    for options in others:
        with pytest.raises(fb.DataError, match="other columns or options"):
            fb.count(data, "y", checkpoint=tmp_path, **options)
    with pytest.raises(fb.DataError, match="other columns or options"):
        fb.count(data, "level", checkpoint=tmp_path)
    assert (tmp_path / "checkpoint.fbs").read_bytes() == before


def test_refused__changed_data(tmp_path: Path) -> None:
    source, kept = tmp_path / "data", tmp_path / "kept"
    source.mkdir()
    for i in range(3):
        pq.write_table(table_of(900), source / f"{i}.parquet", row_group_size=300)
    stopped(source, kept, 1000)
    os.utime(source / "2.parquet", ns=(1, 1))
    with pytest.raises(fb.DataError, match=r"data have changed.*begin anew"):
        fb.count(source, "y", checkpoint=kept)
    (source / "2.parquet").unlink()
    with pytest.raises(fb.DataError, match="data have changed"):
        fb.count(source, "y", checkpoint=kept)
    (kept / "checkpoint.fbs").unlink()
    assert fb.count(source, "y", checkpoint=kept).n_rows > 0


def test_refused__another_version(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastbayes.scan import counting

    stopped(data, tmp_path, 9000)
    monkeypatch.setattr(counting, "written_by", lambda: "99")
    with pytest.raises(fb.DataError, match="another version"):
        fb.count(data, "y", checkpoint=tmp_path)


def test_refused__what_is_no_checkpoint_or_damaged(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.fbs"
    fb.count(data, "y").save(path)
    with pytest.raises(fb.FileFormatError, match="is no checkpoint"):
        fb.count(data, "y", checkpoint=tmp_path)
    path.unlink()
    stopped(data, tmp_path, 9000)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(fb.FileFormatError, match=r"checkpoint\.fbs.*remove the checkpoint"):
        fb.count(data, "y", checkpoint=tmp_path)


def test_refused__what_could_change_unseen(tmp_path: Path) -> None:
    for source in (table_of(90), table_of(90).to_reader(), iter(table_of(90).to_batches())):
        with pytest.raises(fb.SchemaError, match="a checkpoint needs files"):
            fb.count(source, "y", checkpoint=tmp_path)


def test_written__while_workers_are_ahead(data: Path, tmp_path: Path) -> None:
    """Values that later segments have added do not disturb what the checkpoint holds."""
    options: dict[str, Any] = {"sample_weight": "weight", "threads": 4}
    done = stopped(data, tmp_path, 12_000, **options)
    header, arrays = files.read(tmp_path / "checkpoint.fbs")
    kept = fb.Statistics.from_state(header["statistics"], arrays, "")
    assert header["rows"] == done - 1000  # progress is told of a segment before it is kept
    assert kept.allclose(fb.count(pq.read_table(data).slice(0, done - 1000), "y", **options))


def test_command__stopped_and_gone_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import contextmanager

    from fastbayes.cli import statistics

    @contextmanager
    def interrupting(*_: Any) -> Any:
        done = 0

        def progress(n: int) -> None:
            nonlocal done
            done += n
            if done > 9000:
                os.kill(os.getpid(), 2)

        yield progress

    kept, out = tmp_path / "kept", tmp_path / "s.fbs"
    args = ("count", data, "--target", "y", "--checkpoint", kept, "-o", out)
    with monkeypatch.context() as patched:
        patched.setattr(statistics, "bar", interrupting)
        assert "Interrupted" in run(*args, code=130).stderr
    assert not out.exists()
    result = run(*args)
    assert "going on after 10,000 rows" in result.stderr
    assert same_bits(fb.Statistics.load(out), fb.count(data, "y"))
    assert complete(kept)


def test_command__directory_that_cannot_be(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    args = ("count", data, "--target", "y", "-o", tmp_path / "s.fbs", "--checkpoint")
    assert "directory" in fails(*args, tmp_path / "file", folder=tmp_path)
    assert "directory" in fails(*args, tmp_path / "file" / "deeper", folder=tmp_path)


def test_checkpoint_that_cannot_be_written__does_not_end_the_count(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fb.count(data, "y")
    stopped(data, tmp_path, 9000)
    before = (tmp_path / "checkpoint.fbs").read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.warns(fb.FastBayesWarning, match=r"goes on without.*no space left"):
            stopped(data, tmp_path, 15_000)
        assert (tmp_path / "checkpoint.fbs").read_bytes() == before
        with pytest.warns(fb.FastBayesWarning, match=r"goes on without.*no space left"):
            assert same_bits(fb.count(data, "y", checkpoint=tmp_path), whole)
    assert not complete(tmp_path)


def test_checkpoint__what_a_killed_run_left_is_removed(data: Path, tmp_path: Path) -> None:
    (tmp_path / ".fastbayes-0123456789abcdef.fbs").touch()
    fb.count(data, "y", checkpoint=tmp_path)
    assert complete(tmp_path)


# -- cut points


def cut_twice(source: Any, folder: Path, rows: int, **options: Any) -> list[int]:
    """Count with a stop after so many rows; return the rows that the second run was told of."""
    if rows:
        stopped(source, folder, rows, **options)
    steps: list[int] = []
    fb.count(source, "y", checkpoint=folder, progress=steps.append, **options)
    return steps


@pytest.mark.parametrize("rows", [0, 5_500, 23_500, 24_500, 40_000])
@pytest.mark.parametrize("how", ["mdl", ("quantile", 7)])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_cut_points__are_kept_to_the_same_bits(
    data: Path, tmp_path: Path, rows: int, how: Any, weight: str | None
) -> None:
    options: dict[str, Any] = {"pairs": True, "discretize": how, "missing": "category"}
    options |= {"sample_weight": weight, "columns": ["level", "number"]}
    whole = fb.count(data, "y", **options)
    steps = cut_twice(data, tmp_path, rows, **options)
    resumed = fb.count(data, "y", checkpoint=tmp_path, **options)  # what is complete
    assert same_bits(resumed, whole)
    # what was learned is not learned again: rows that were done come as one step
    begun = rows // 1000 * 1000
    assert sum(steps) == (48_000 if rows < 24_000 else 24_000)
    assert max(steps) >= max(begun if rows < 24_000 else begun - 24_000, 1) - 1000


def test_cut_points__of_columns_that_are_learned_in_turn(data: Path, tmp_path: Path) -> None:
    """With little memory there is a scan for every few columns."""
    options: dict[str, Any] = {"pairs": True, "columns": ["level", "number"], "threads": 1}
    whole = fb.count(data, "y", **options)
    stopped(data, tmp_path, 30_000, memory_limit=60_000_000, **options)
    kept = files.read(tmp_path / "cuts.fbs")[0]
    assert kept["complete"] == (not kept["columns"])
    assert same_bits(fb.count(data, "y", checkpoint=tmp_path, **options), whole)


def test_cut_points__of_other_data_or_another_job_are_refused(data: Path, tmp_path: Path) -> None:
    stopped(data, tmp_path, 9000, pairs=True)
    assert not (tmp_path / "checkpoint.fbs").exists()
    with pytest.raises(fb.DataError, match=r"cuts\.fbs: it is of a count with other columns"):
        fb.count(data, "y", checkpoint=tmp_path, pairs=True, discretize="quantile")
    with pytest.raises(fb.DataError, match=r"cuts\.fbs: the data have changed"):
        fb.count(data / "0.parquet", "y", checkpoint=tmp_path, pairs=True)


# -- what is complete


def test_complete__is_not_done_again(data: Path, tmp_path: Path, caplog: Any) -> None:
    whole = fb.count(data, "y", checkpoint=tmp_path)
    caplog.set_level("INFO", "fastbayes")
    steps: list[int] = []
    again = fb.count(data, "y", checkpoint=tmp_path, progress=steps.append)
    assert same_bits(again, whole)
    assert sorted(again.ledger) == sorted(whole.ledger)
    assert steps == []
    assert "already complete" in caplog.text


def test_complete__work_gives_way_to_other_work(data: Path, tmp_path: Path) -> None:
    fb.count(data, "y", checkpoint=tmp_path, pairs=True)
    other = fb.count(data / "1.parquet", "y", checkpoint=tmp_path, pairs=True)
    assert same_bits(other, fb.count(data / "1.parquet", "y", pairs=True))
    other = fb.count(data, "y", checkpoint=tmp_path, sample_weight="weight")
    assert same_bits(other, fb.count(data, "y", sample_weight="weight"))


def test_command__complete(data: Path, tmp_path: Path) -> None:
    kept, out, other = tmp_path / "kept", tmp_path / "s.fbs", tmp_path / "other.fbs"
    args = ("count", data, "--target", "y", "--checkpoint", kept)
    run(*args, "-o", out)
    before = out.stat().st_mtime_ns
    assert "already complete" in run(*args, "-o", out).output
    assert out.stat().st_mtime_ns == before
    run(*args, "-o", other)  # counted already, but not written there
    assert fb.load(other) == fb.load(out)
    # what is there is of another job
    for more in (("--weight", "weight"), ("--pairs",)):
        said = fails(*args, *more, "-o", out, folder=tmp_path)
        assert "exists" in said
    run("count", data / "0.parquet", "--target", "y", "-o", other, "--force")
    assert "exists" in fails(*args, "-o", other, folder=tmp_path)
    assert out.stat().st_mtime_ns == before


# -- one at a time, and stopped by a signal

SLOW = """
import sys, time
import fastbayes.cli.statistics as statistics
from contextlib import contextmanager
from fastbayes.cli import main

@contextmanager
def slowly(*_):
    def progress(rows):
        print("row", flush=True)
        time.sleep(0.2)
    yield progress

statistics.bar = slowly
main(sys.argv[1:])
"""


@pytest.mark.parametrize("kind", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_command__ended_by_a_signal_goes_on(data: Path, tmp_path: Path, kind: str) -> None:
    kept, out = tmp_path / "kept", tmp_path / "s.fbs"
    args = ("count", data, "--target", "y", "--checkpoint", kept, "-o", out)
    often = ("--checkpoint-seconds", "0" if kind == "SIGKILL" else "1000")
    command = [sys.executable, "-c", SLOW, *map(str, (*args, *often))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline() == "row\n"
        assert "another process" in fails(*args, folder=tmp_path)
        process.send_signal(getattr(signal, kind))
        process.communicate()
    assert process.returncode != 0
    assert not out.exists()
    assert "going on after" in run(*args).stderr
    assert same_bits(fb.Statistics.load(out), fb.count(data, "y"))


KILLED = """
import os, signal, sys
import fastbayes as fb

data, kept = sys.argv[1:]

def killed_at(moment):
    calls = 0

    def happens(name, arguments):
        nonlocal calls
        if name in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(kept):
            calls += 1
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(happens)
    fb.count(data, "y", pairs=True, checkpoint=kept, checkpoint_seconds=0)

fb.count(data, "y", pairs=True, threads=1)  # so that the children need not import anything
for moment in range(2, 32, 3):
    child = os.fork()
    if not child:
        killed_at(moment)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_killed__at_ten_moments_it_ends_to_the_same_bits(data: Path, tmp_path: Path) -> None:
    """Each run goes on from where the one before was killed: at a call of the file system."""
    given = [sys.executable, "-c", KILLED, str(data), str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["-9"] * 10, done.stderr
    whole = fb.count(data, "y", pairs=True)
    assert same_bits(fb.count(data, "y", pairs=True, checkpoint=tmp_path), whole)
    assert complete(tmp_path)


@pytest.mark.parametrize("year", [1970, 2100])
def test_clock__that_is_set_changes_nothing(tmp_path: Path, year: int) -> None:
    """Files are younger than the checkpoint, or it comes from the future."""
    source, kept = tmp_path / "data", tmp_path / "kept"
    source.mkdir()
    for i in range(3):
        pq.write_table(table_of(900), source / f"{i}.parquet", row_group_size=300)
        os.utime(source / f"{i}.parquet", (4e9, 4e9))
    stopped(source, kept, 1000)
    os.utime(kept / "checkpoint.fbs", ((year - 1970) * 3e7,) * 2)
    steps: list[int] = []
    resumed = fb.count(source, "y", checkpoint=kept, progress=steps.append)
    assert same_bits(resumed, fb.count(source, "y"))
    assert steps[0] >= 600  # it went on


@pytest.mark.parametrize("seconds", [-1, "x", float("nan")])
def test_seconds_that_are_none(data: Path, tmp_path: Path, seconds: Any) -> None:
    with pytest.raises(ValueError, match="checkpoint_seconds"):
        fb.count(data, "y", checkpoint=tmp_path, checkpoint_seconds=seconds)


# -- behind the rows that are done


def test_behind__all_rows_but_the_first(data: Path, tmp_path: Path) -> None:
    """A checkpoint of exact counts goes on at a row group, however segments are put together."""
    whole, source = pq.read_table(data, columns=["name", "y"]), open_source(data)
    for rows in (0, 1000, 7000, 8000, 8001, 15_500, 23_000, 24_000):
        rest = source.behind(rows)
        assert (rest is None) == bool(rows % 1000)
        if rest is not None:
            found = [block for segment in rest.segments(1 << 16) for block in segment.batches()]
            names = [name for block in found for name in block["name"].to_pylist()]
            assert names == whole["name"].to_pylist()[rows:]
    pc.write_csv(whole, tmp_path / "d.csv")
    assert open_source(tmp_path / "d.csv").behind(0) is None


@pytest.mark.parametrize("threads", [1, 3])
def test_resumed__exact_counts_of_many_row_groups(data: Path, tmp_path: Path, threads: int) -> None:
    options: dict[str, Any] = {"moments": False, "columns": ["name", "level"], "pairs": True}
    options |= {"categorical": ["level"], "missing": "category"}
    whole = fb.count(data, "y", **options)
    for rows in (3_000, 9_000, 17_000):
        stopped(data, tmp_path, rows, threads=threads, **options)
    steps: list[int] = []
    resumed = fb.count(data, "y", checkpoint=tmp_path, progress=steps.append, threads=2, **options)
    assert same_bits(resumed, whole)
    assert (sum(steps), steps[0] > 0) == (24_000, True)
