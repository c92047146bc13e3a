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


SMALL = """
import warnings, fastbayes as fb
warnings.simplefilter("ignore", fb.FastBayesWarning)
table = {"a": [*"xyz"] * 20, "b": [0.5, 1.5, 2.0, 3.0] * 15, "y": [*"kllkk"] * 12}
fb.fit(table, "y")
"""


def test_fit_of_a_small_table__compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTBAYES_KERNELS", raising=False)
    done = run(SMALL + REPORT)
    assert done.returncode == 0, done.stderr
    assert "numba" not in done.stderr.splitlines()[-1]


COMMAND = """
from fastbayes.__main__ import run
try:
    run()
except SystemExit as done:
    assert done.code == 0, done.code
"""


def test_command__imports_no_pandas(tmp_path: Path) -> None:
    """pyarrow asks for it at whatever it converts first; one third of the start it would take."""
    model = tmp_path / "m.fb"
    args = ["fit", "fastbayes/examples/penguins.csv", "--target", "species", "-o", str(model)]
    for arguments in (args, ["inspect", str(model)]):
        done = run(f"import sys\nsys.argv = {['fastbayes', *arguments]}\n" + COMMAND + REPORT)
        assert done.returncode == 0, done.stderr
        assert "pandas" not in done.stderr.splitlines()[-1]


def test_report_sees_what_is_loaded() -> None:
    assert run("import scipy" + REPORT).stderr.strip() == "['scipy']"
