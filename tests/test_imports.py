"""`import fastbayes` stays light: what is heavy is imported by the work that needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numba", "llvmlite", "sklearn", "pandas", "polars", "pyarrow.dataset", "scipy")

REPORT = f"""
import sys
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""

HELP = """
from fastbayes.cli import main
try:
    main(["--help"])
except SystemExit as done:
    assert done.code == 0, done.code
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
        timeout=120,
    )


@pytest.mark.parametrize("code", ["import fastbayes", HELP], ids=["import", "help"])
def test_light(code: str) -> None:
    done = run(code + REPORT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"


def test_light__public_names_resolve() -> None:
    done = run("import fastbayes\nfor name in fastbayes.__all__: getattr(fastbayes, name)" + REPORT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"


def test_report_sees_what_is_loaded() -> None:
    assert run("import scipy" + REPORT).stderr.strip() == "['scipy']"
