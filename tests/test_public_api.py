"""What users can rely on: names, signatures, attributes, types, and an import that costs little."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from public_api import SNAPSHOT, STUB, snapshot, stub

import fastbayes as fb

REMEDY = "if the change is meant, run `python tests/public_api.py`"


def test_names_signatures_and_attributes_are_as_recorded() -> None:
    assert snapshot() == SNAPSHOT.read_text(encoding="utf-8"), REMEDY


def test_stub_says_what_the_package_has() -> None:
    assert stub() == STUB.read_text(encoding="utf-8"), REMEDY


def test_dir_lists_the_public_names() -> None:
    assert dir(fb) == sorted(fb.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        fb.Nonsense  # noqa: B018


def test_import__loads_nothing_before_it_is_used() -> None:
    script = "import sys, fastbayes; print('numpy' in sys.modules, len(dir(fastbayes)) > 40)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]


USER = """
from typing import assert_type

import fastbayes as fb

model = fb.NaiveBayes(alpha=0.5, missing="category").fit({"a": ["x"], "y": ["p"]}, "y")
assert_type(model, fb.NaiveBayes)
assert_type(fb.TAN(prune="bic").fit("rows.parquet", "y"), fb.TAN)
assert_type(fb.KDB(3).partial_fit("rows.parquet", "y"), fb.KDB)
stats: fb.Statistics = fb.count("rows.parquet", "y", pairs=True)
again = fb.AODE().fit_statistics(stats + stats)
shares: float = again.predict_proba("new.parquet")[0, 0].item()
fb.NaiveBayes(alfa=1)  # type: ignore[call-arg]
fb.NaiveBayes(missing=3)  # type: ignore[arg-type]
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is missing")
def test_types__a_user_sees_them(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(script)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout
