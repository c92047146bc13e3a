"""What an installation says of itself, and that compiling ahead leaves nothing to compile."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from commands import answer, run

import fastbayes as fb
from fastbayes.cli import main
from fastbayes.evaluation import environment
from fastbayes.evaluation.environment import Check, doctor
from fastbayes.kernels import dispatch


def verdict(name: str) -> Check:
    return next(check for check in doctor() if check.name == name)


def test_versions__name_what_a_report_needs() -> None:
    found = fb.show_versions()
    assert found["fastbayes"] == fb.__version__
    assert found["numpy"] == np.__version__
    assert found["location"] == str(Path(fb.__file__).parent)
    assert found["threads"] >= 1
    assert {"python", "platform", "processor", "memory", "numba", "pyspark"} <= set(found)


def test_versions__settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_CACHE", "0")
    monkeypatch.delenv("FASTBAYES_KERNELS", raising=False)
    assert fb.show_versions()["FASTBAYES_CACHE"] == "0"
    assert fb.show_versions()["FASTBAYES_KERNELS"] is None


# -- doctor ------------------------------------------------------------------------------------


def test_doctor__finds_nothing_wrong_here() -> None:
    checks = doctor()
    assert [check for check in checks if not check.ok] == []
    assert {"numba", "pyarrow", "threads", "kernels", "kernel cache"} <= {c.name for c in checks}


def test_doctor__command() -> None:
    result = run("doctor")
    assert result.stdout.splitlines()[-1] == "All is well."
    assert f"ok     numpy: {np.__version__}" in result.stdout
    said = answer("doctor")
    assert said["versions"]["numpy"] == np.__version__
    assert all(check["ok"] for check in said["checks"])


def test_doctor__command_ends_with_1_if_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "sometimes")
    result = run("doctor", code=1)
    assert "WRONG  kernels: FASTBAYES_KERNELS='sometimes'" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Wrong: kernels")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("version", "found"),
    [(None, "not installed: pip install 'tqdm>="), ("1.2.3", "1.2.3 is too old: pip install")],
)
def test_doctor__packages_missing_or_old(
    monkeypatch: pytest.MonkeyPatch, version: str | None, found: str
) -> None:
    real = environment._version
    monkeypatch.setattr(environment, "_version", lambda n: version if n == "tqdm" else real(n))
    checks = doctor()
    assert [check.name for check in checks if not check.ok] == ["tqdm"]
    assert next(check for check in checks if not check.ok).found.startswith(found)
    assert "kernels" not in {check.name for check in checks}  # the rest would fail for this


def test_doctor__a_package_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    found = verdict("llvmlite")
    assert not found.ok
    assert "cannot be imported" in found.found


def test_doctor__kernels_that_miscount(monkeypatch: pytest.MonkeyPatch) -> None:
    proba = fb.NaiveBayes.predict_proba
    monkeypatch.setattr(fb.NaiveBayes, "predict_proba", lambda self, X: proba(self, X)[:, ::-1])
    found = verdict("kernels")
    assert not found.ok
    assert "do not agree with numpy" in found.found


def test_doctor__kernels_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "never")
    assert verdict("kernels") == Check("kernels", True, "numpy's, for FASTBAYES_KERNELS=never")


def test_doctor__cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "uncached", lambda: True)
    assert not verdict("kernel cache").ok
    assert "NUMBA_CACHE_DIR" in verdict("kernel cache").found
    monkeypatch.setenv("FASTBAYES_CACHE", "0")
    assert verdict("kernel cache").ok


def test_doctor__threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert verdict("threads").found.startswith("1 of ")
    assert "OMP_NUM_THREADS=1" in verdict("threads").found


# -- warmup ------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_warmup__leaves_nothing_to_compile() -> None:
    seconds = fb.warmup()
    kernels = importlib.import_module("fastbayes.kernels.compiled")
    prefix = "fastbayes.kernels.compiled."
    for found in pkgutil.walk_packages(kernels.__path__, prefix):
        module = importlib.import_module(found.name)
        declared = getattr(module, "SIGNATURES", {})
        assert (found.name.removeprefix(prefix) in seconds) == bool(declared)
        for name, signatures in declared.items():
            compiled = {tuple(map(str, s)) for s in getattr(module, name).signatures}
            assert set(signatures) <= compiled
    assert set(answer("warmup")) == set(seconds)
    assert " s\n" in run("warmup").stdout


@pytest.mark.parametrize(
    "declared",
    ["readonly array(uint8, 2d, C)", "array(float64, 1d, C)", "int64", "uint64", "none"],
)
def test_warmup__examples_are_of_the_declared_type(declared: str) -> None:
    numba: Any = pytest.importorskip("numba")
    assert str(numba.typeof(dispatch._example(declared))) == declared


def test_warmup__without_a_cache_or_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_CACHE", "0")
    monkeypatch.setattr(dispatch, "compile_declared", lambda: iter([("counting.count", 0.5)]))
    with pytest.warns(fb.FastBayesWarning, match="lost when this process ends"):
        assert fb.warmup() == {"counting.count": 0.5}


def test_warmup__says_why_nothing_can_be_compiled() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastbayes", "warmup"],
        env={"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr == "Error: NUMBA_DISABLE_JIT is set: unset it to compile\n"


def test_module__is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastbayes", "--version"], capture_output=True, text=True, timeout=60
    )
    shown = CliRunner().invoke(main, ["--version"])
    assert done.stdout == shown.stdout.replace("main", "fastbayes")
    assert fb.__version__ in done.stdout
