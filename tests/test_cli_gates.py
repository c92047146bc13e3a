"""An evaluation that fails a job: by a condition, or by being worse than it was."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import answer, fails, parquet, run, tennis
from hypothesis import given
from hypothesis import strategies as st

from fastbayes.cli.gates import BETTER, COMPARES, FAILED, FIGURES, Baseline, conditions


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    data = parquet(tennis(), tmp_path / "d.parquet")
    run("fit", data, "--target", "play", "-o", tmp_path / "m.fb")
    return tmp_path / "m.fb", data


@given(
    figure=st.sampled_from(FIGURES),
    sign=st.sampled_from(sorted(COMPARES)),
    bound=st.floats(allow_nan=False),
    value=st.floats(0, 1) | st.none(),
    space=st.sampled_from(["", " ", "  "]),
)
def test_condition__is_what_python_makes_of_it(
    figure: str, sign: str, bound: float, value: float | None, space: str
) -> None:
    text = f"{figure.replace('_', '-')}{space}{sign}{space}{bound!r}"
    (one,) = conditions(None, None, (text,))  # type: ignore[arg-type]
    said = one.failed({figure: value})
    expected = value is None or eval(f"{value!r} {sign} bound", {"bound": bound})
    assert (said is not None) == expected
    assert said is None or said.startswith(figure)


def test_fail_if__says_which_and_ends_with_its_code(made: tuple[Path, Path]) -> None:
    told = ("evaluate", *made, "--fail-if", "log_loss > 0.001", "--fail-if", "accuracy<0.001")
    figures = answer("evaluate", *made)
    done = run(*told, "--json", code=FAILED)
    assert json.loads(done.stdout) == figures
    said = f"Failed: log_loss is {figures['log_loss']:.6g}: --fail-if log_loss > 0.001\n"
    assert done.stderr == said
    assert run("-q", *told, code=FAILED).stderr == said
    assert run("evaluate", *made, "--fail-if", "log_loss > 100").stderr == ""


def test_fail_if__what_is_undefined_fails(made: tuple[Path, Path], tmp_path: Path) -> None:
    one = tennis().filter(pa.compute.equal(tennis()["play"], "yes"))
    data = parquet(one, tmp_path / "one.parquet")
    done = run("evaluate", made[0], data, "--fail-if", "auc < 0.1", code=FAILED)
    assert "auc is undefined" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("logloss > 1", "did you mean 'log_loss'?"),
        ("log_loss", "'log_loss > 0.4'"),
        ("log_loss ~ 1", "'log_loss > 0.4'"),
        ("log_loss > much", "'much' is no number"),
        ("log_loss > nan", "'nan' is no number"),
        ("classes > 1", "no figure 'classes'"),
    ],
)
def test_fail_if__is_read_before_the_data(tmp_path: Path, text: str, words: str) -> None:
    assert words in fails("evaluate", "none.fb", "d", "--fail-if", text, folder=tmp_path, code=2)


@pytest.mark.parametrize("name", BETTER)
def test_baseline__fails_by_what_is_worse(
    made: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    figures, old = answer("evaluate", *made), tmp_path / "old.json"
    told = ("evaluate", *made, "--baseline", old)
    old.write_text(json.dumps(figures))
    assert run(*told).stderr == ""
    for change in (0.01, -0.01):
        before = {**figures, name: figures[name] + change}
        old.write_text(json.dumps(before))
        worse = change * BETTER[name] > 0
        done = run(*told, code=FAILED * worse)
        expected = f"Failed: {name} is {figures[name]:.6g}, by 0.01 worse than {before[name]:.6g}"
        assert done.stderr.startswith(expected) if worse else done.stderr == ""
        assert run(*told, "--tolerance", "0.02").stderr == ""


def test_baseline__undefined_figures() -> None:
    now: dict[str, Any] = {"classes": ["a"], **dict.fromkeys(BETTER, 0.5)}
    was = Baseline("old.json", {**now, "auc": None}, 0.0)
    assert [*was.failed(now)] == []
    (said,) = Baseline("old.json", now, math.inf).failed({**now, "auc": None})
    assert said == "auc is undefined, but 0.5 in old.json"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "no figures"),
        ("[1]", "holds no accuracy"),
        ('{"accuracy": "high"}', "accuracy is no number"),
        ('{"accuracy": true}', "accuracy is no number"),
        ('{"accuracy": NaN}', "accuracy is no number"),
        ({"log_loss": 10**400}, "log_loss is no number"),
        ("[" * 100_000, "no figures"),
        ({"classes": ["a", "b"]}, "of other classes"),
    ],
)
def test_baseline__that_is_none(
    made: tuple[Path, Path], tmp_path: Path, content: Any, words: str
) -> None:
    old = tmp_path / "old.json"
    if isinstance(content, dict):
        content = json.dumps({**answer("evaluate", *made), **content})
    if content is not None:
        old.write_text(content)
    said = run("evaluate", *made, "--baseline", old, code=1).stderr
    assert "old.json" in said
    assert words in said


def test_tolerance__goes_with_a_baseline(made: tuple[Path, Path], tmp_path: Path) -> None:
    said = fails("evaluate", *made, "--tolerance", "1", folder=tmp_path, code=2)
    assert "--tolerance goes with --baseline" in said


def test_tolerance__is_a_number(tmp_path: Path) -> None:
    said = fails("evaluate", "none.fb", "d", "--tolerance", "nan", folder=tmp_path, code=2)
    assert "'nan' is no number" in said


def test_exit_codes__are_in_the_help() -> None:
    shown = run("--help").stdout
    assert f"  {FAILED}        of evaluate: it fails by --fail-if or --baseline" in shown
