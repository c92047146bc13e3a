"""The stress test runs, fails where it should, and finds the faults that are planted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stress import planted
from stress.runner import CATEGORIES, ROOT, Run

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}


def stress(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stress", *args]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT)


def test_planted_faults__each_has_its_place() -> None:
    for fault in planted.FAULTS:
        text = (ROOT / "fastbayes" / fault.file).read_text(encoding="utf-8")
        assert fault.text in text, fault.name
        assert fault.category in CATEGORIES
    assert len({fault.name for fault in planted.FAULTS}) == len(planted.FAULTS) >= 20


CASE = """
import os, signal, time
from pathlib import Path
ABOUT, SECONDS = "a case for each end", 3
def case(rng, folder):
    kind = rng.integers(3)
    (folder / "left").touch()
    NEXT
    return "held"
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("assert False, 'a broken promise'", "a broken promise"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("time.sleep(60)", "Timeout"),
    ],
)
def test_failures__are_told_with_what_reproduces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, said: str
) -> None:
    cases = tmp_path / "stress" / "cases"
    cases.mkdir(parents=True)
    for name in ("__init__.py", "child.py"):
        (tmp_path / "stress" / name).write_text((ROOT / "stress" / name).read_text())
    (cases / "__init__.py").touch()
    code = CASE.replace("NEXT", f"if kind == 1: {what}")
    (cases / "text_formats.py").write_text(code)  # the runner knows this name
    run = Run(["text_formats"], 7, 0, count=12, workers=1, root=tmp_path)
    run.go()
    (category,) = run.categories
    failed = [failure.command.rpartition(" ")[2] for failure in run.failures]
    assert category.held["held"] + category.failed == 12
    assert 0 < category.failed == len(set(failed)) < 12
    assert all(said in failure.what for failure in run.failures)
    assert f"| text_formats | 12 | {category.failed} |" in run.table()
    again = Run(["text_formats"], 7, 0, int(failed[0]), 1, workers=1, root=tmp_path)
    again.go()
    assert [f.command for f in again.failures] == [run.failures[0].command]


def test_few_cases__hold() -> None:
    done = stress("--cases", "8", "--only", "bytes_of_tables,text_formats,model_files")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| text_formats | 8 | 0 |" in done.stdout


@pytest.mark.slow
def test_three_minutes__hold() -> None:
    done = stress("--minutes", "3")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a row cut within its quotes", "a digest nobody compares"])
def test_planted_fault__is_found(name: str) -> None:
    done = stress("--planted", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 found" in done.stdout
