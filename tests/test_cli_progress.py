"""What is said of a job while it runs: stages that count what they do, lines without a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from commands import parquet, run, tennis
from test_cli_stopping import on_terminal, shown

import fastbayes as fb
from fastbayes.cli import main, progress
from fastbayes.cli.progress import JobProgress, bar
from fastbayes.scan.request import stage

ROWS = 3000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return parquet(tennis(ROWS), tmp_path / "d.parquet")


@contextmanager
def command(**given: bool) -> Iterator[None]:
    with click.Context(main) as ctx:
        ctx.params.update(given)
        yield


class Recorded(JobProgress):
    """JobProgress that remember what each stage did, of how much."""

    def __init__(self) -> None:
        super().__init__("comparing", ROWS)
        self.stages: list[tuple[str, str, int, int | None]] = []

    def __call__(self, done: int) -> None:
        super().__call__(done)
        *_, (name, unit, n, total) = self.stages
        self.stages[-1] = name, unit, n + done, total

    def stage(self, name: str, total: int | None = None, unit: str = "rows") -> None:
        super().stage(name, total, unit)
        self.stages.append((name, unit, 0, self.total))


@pytest.mark.parametrize("folds", [None, 3])
def test_compare__counts_the_work_of_each_stage(data: Path, folds: int | None) -> None:
    steps, models = Recorded(), ["naive-bayes", "tan", "kdb", "aode"]
    fb.compare(data, "play", models=models, folds=folds, progress=steps)
    found = {name: (unit, n, total) for name, unit, n, total in steps.stages}
    assert found["counting"] == ("rows", ROWS, ROWS)
    assert found["scoring 4 models"] == ("rows", ROWS, ROWS)
    assert found["ranking"] == ("models", 4, 4)
    assert found["fitting tan"] == ("rows", 0, ROWS)  # its pairs are counted
    assert found["fitting kdb"] == ("rows", ROWS, ROWS)  # its families are not
    for _, unit, n, total in steps.stages:
        assert total is not None
        assert n % total == 0
        assert unit == "rows" or n == total
    assert steps.done == sum(n for _, unit, n, _ in steps.stages if unit == "rows")
    *_, before, last = [name for name, *_ in steps.stages]
    assert before == "ranking"
    assert last.startswith("temperature of ")


def test_compare__gives_rows_alone_to_what_knows_no_stages(data: Path) -> None:
    rows: list[int] = []
    fb.compare(data, "play", models=["naive-bayes", "aode"], progress=rows.append,
               validation="leave_one_out")  # fmt: skip
    assert sum(rows) == 4 * ROWS  # cut points, counts, scores, the winner's temperature
    assert stage(rows.append, "ranking", 2, "models")(1) is None
    assert sum(rows) == 4 * ROWS


def test_steps__rows_that_are_read_again_are_another_scan() -> None:
    steps = JobProgress("counting", 100)
    for done in (60, 40, 60):
        steps(done)
    assert (steps.n, steps.done, steps.scans) == (60, 160, 2)
    assert re.fullmatch(r"counting, scan 2: 60 of 100 rows, 60%, [\d,]+ a second", str(steps))
    steps.stage("ranking", 3, "models")
    assert re.fullmatch(r"counting: ranking: \d+ s", str(steps))  # a share of 0 says nothing
    steps(1)
    assert str(steps).startswith("counting: ranking: 1 of 3 models, 33%")
    assert steps.done == 160


def test_steps__rows_that_are_known_late_were_read_in_several_scans() -> None:
    steps = JobProgress("learning", None)
    for _ in range(9):
        steps(30)
    steps.start -= 27
    assert re.fullmatch(r"learning: 270 rows, (9|10) a second", str(steps))
    steps.known(100)
    assert re.fullmatch(r"learning, scan 3: 70 of 100 rows, 70%, (9|10) a second", str(steps))
    assert (steps.n, steps.done, steps.scans) == (70, 270, 3)
    steps(40)
    assert (steps.n, steps.done, steps.scans) == (40, 310, 4)
    full = JobProgress("learning", None)
    full(200)
    full.known(100)
    assert (full.n, full.scans) == (100, 2)


def test_steps__how_many_rows_there_are_is_no_total_of_another_unit() -> None:
    steps = JobProgress("comparing", None)
    steps.stage("ranking", 4, "models")
    steps(1)
    steps.known(100)
    assert "ranking: 1 of 4 models, 25%" in str(steps)
    steps.stage("scoring")
    steps(10)
    assert "scoring: 10 of 100 rows, 10%" in str(steps)


def test_heartbeat__says_how_far_it_is(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT", 0.001)
    said = ""
    with command(), bar("counting", str(data)) as steps:
        assert steps is not None
        steps(1200)
        for _ in range(3000):
            said += capsys.readouterr().err
            if "1,200 of 3,000 rows, 40%" in said:
                break
            time.sleep(0.01)
    assert re.search(r"^counting: 1,200 of 3,000 rows, 40%, [\d,]+ a second$", said, re.MULTILINE)
    capsys.readouterr()
    time.sleep(0.01)
    assert capsys.readouterr().err == ""  # it ends with the job


def test_heartbeat__is_silent_in_short_jobs_and_where_asked(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ("fit", data, "--target", "play", "--force", "-o", data.with_name("m.fb"))
    assert run(*told).stderr == ""
    monkeypatch.setattr(progress, "HEARTBEAT", 0.0)
    assert run("-q", *told).stderr == ""
    with command(quiet=True), bar("counting", data) as steps:
        assert steps is None


def test_heartbeat__leaves_what_is_wrong_to_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT", 0.001)
    said = ""
    with command(), bar("counting", str(tmp_path / "none.parquet")):
        end = time.monotonic() + 60
        while "counting: 0 s" not in said and time.monotonic() < end:
            said += capsys.readouterr().err
    assert "counting: 0 s" in said
    assert "Error" not in said


def test_verbose__logs_the_plan_the_files_and_the_speed(data: Path) -> None:
    told = ("fit", data, "--target", "play", "--threads", 1, "-o", data.with_name("m.fb"))
    plan, read, speed = run("-v", *told).stderr.splitlines()
    assert re.match(rf"note: plan: count values, moments of 3 columns of {data} on 1 threads", plan)
    assert re.fullmatch(rf"note: read {data}, [\d.]+ kB", read)
    assert re.fullmatch(r"note: counting: read 3,000 rows in \S+ s, [\d,]+ rows/s", speed)


def test_bar__shows_the_stages_of_compare(data: Path) -> None:
    args = ("compare", data, "--target", "play", "--models", "naive-bayes,aode")
    with on_terminal(*args) as (process, end):
        said = shown(end)
        assert process.wait(60) == 0
    for name in ("counting", "fitting aode", "scoring 2 models", "ranking", "temperature of aode"):
        assert f"comparing: {name}: " in said
    assert re.search(r"comparing: temperature of aode: 100%\|█+\| 3\.00k/3\.00k", said)
