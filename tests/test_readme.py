"""The README keeps its word: the examples run, and no figure in the table was typed by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from benchmarks.run import merged
from benchmarks.table import END, START, main, render, written

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
RESULTS = ROOT / "benchmarks" / "results.json"


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == README.count("```python")
    names: dict[str, Any] = {"__name__": "__main__"}
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    assert names["month"] == names["stats"]
    assert (tmp_path / "predicted" / "part-00000.parquet").exists()
    board = names["board"]
    # Of a million rows folds hardly learn less than all rows but one.
    assert board["tan"].figures.log_loss == pytest.approx(names["honest"].log_loss, rel=0.02)
    assert names["blend"].log_loss_[1] <= board.best.figures.log_loss * 1.02
    # What the text says of models that see pairs.
    assert board.best.name in ("spode", "tan", "aode")
    # Of logistic regression: the same optimum from wherever, the same model in another form.
    optimum, other = names["logistic"], names["better"]
    assert optimum.converged_
    assert other.converged_
    assert other.objective_ == pytest.approx(optimum.objective_, rel=1e-6)
    some = pq.read_table("flights").slice(0, 1000)
    converted, naive = names["same"].predict_proba(some), names["bayes"].predict_proba(some)
    np.testing.assert_allclose(converted, naive, atol=1e-12)
    assert 5000 < names["crossing"].size < 20_000
    before, after = names["calibrated"].log_loss_
    assert after <= before


def test_leaderboard_is_what_the_command_prints() -> None:
    head = README.index("\n  model    ")
    shown = README[head : README.index("```", head)].splitlines()
    rows = [line.split() for line in shown if re.match(r"[* ] [a-z]", line)][1:]
    assert [row[0] for row in rows] == ["*", "logistic", "network", "prior"]
    penguins = ROOT / "fastbayes" / "examples" / "penguins.csv"
    board = fb.compare(str(penguins), "species", null_values=["NA"], exclude=["year"])
    names = list(board)
    assert [*names[:3], "prior"] == ["joint-gaussian", *(row[0] for row in rows[1:])]
    for row in rows:
        name, accuracy, loss = row[1:4] if row[0] == "*" else row[:3]
        figures = board[name].figures
        assert figures.accuracy == pytest.approx(float(accuracy), abs=0.003)
        assert figures.log_loss == pytest.approx(float(loss), rel=0.03)
    last = r"temperature (\S+), log-loss (\S+)"
    said, found = (re.findall(last, text)[0] for text in (shown[-1], str(board)))
    assert [*map(float, said)] == pytest.approx([*map(float, found)], rel=0.03)


def test_scripts_named_are_there() -> None:
    named = set(re.findall(r"\./scripts/(\w+)", README))
    assert named == {"demo", "test", "stress", "bench_table"}
    assert all((ROOT / "scripts" / name).stat().st_mode & 0o111 for name in named)


def test_table_is_the_measured_one() -> None:
    measured = render(json.loads(RESULTS.read_text("utf-8")))
    assert written(README, measured) == README, (
        "run scripts/bench_table --from benchmarks/results.json"
    )


def results(faster: float, value: float, rate: float = 30.0) -> dict[str, object]:
    side = {"cold": 0.5, "wall": 0.012, "units": 1e6}
    claims = [
        {"against": None, "most": 0.7, "least": None, "value": value},
        {"against": "rival", "most": None, "least": 6, "faster": faster},
    ]
    line = {"title": "count", "sides": {"fastbayes": side, "rival": side}, "claims": claims}
    fit = {"title": "fit", "value": 0.25, "unit": "GiB", "most": 1.0, "more": {"wall": 2.0}}
    rows = {"title": "write", "value": rate, "unit": "M", "most": None, "more": {"wall": 2.0}}
    figures = [{**fit, "least": None}, {**rows, "least": 25.0}]
    machine = {
        "processor": "a processor", "cores": 2, "memory_bytes": 2**34, "load_before": 0.1,
        "platform": "Linux", "python": "3.11", "versions": {"numpy": "2.4", "duckdb": None},
    }  # fmt: skip
    lines = [line, {"figures": figures}]
    return {"date": "2026-01-02T03", "size": "full", "machine": machine, "lines": lines}


def test_table_says_what_is_missed() -> None:
    held, missed = render(results(7.0, 0.6)), render(results(5.0, 0.8, 20.0))
    assert "missed" not in held
    assert missed.count("**missed**") == 3
    assert "12.0 ms (500 ms)" in held
    assert "0.25 GiB (≤ 1)" in held
    assert "30.00 M (≥ 25)" in held
    assert "numpy 2.4. 2026-01-02" in held


def test_table_replaces_only_what_is_between_the_markers(tmp_path: Path) -> None:
    text = f"before\n{START}\nold\n{END}\nafter\n"
    (tmp_path / "r.json").write_text(json.dumps(results(7.0, 0.6)), "utf-8")
    (tmp_path / "t.md").write_text(text, "utf-8")
    for _ in range(2):
        main(str(tmp_path / "r.json"), str(tmp_path / "t.md"))
    assert (tmp_path / "t.md").read_text("utf-8") == text.replace("old", render(results(7.0, 0.6)))


@pytest.mark.parametrize("text", ["", START, f"{END}{START}", f"{START}{END}{START}{END}"])
def test_markers_must_stand_once_and_in_order(text: str) -> None:
    with pytest.raises(ValueError, match="needs one"):
        written(text, "table")


def measured(**changes: Any) -> dict[str, Any]:
    """Return a run of the cases that are named, each with a figure."""
    result: dict[str, Any] = results(7, 0.25)
    lines = [{"case": name, "wall": wall} for name, wall in changes.items()]
    return {**result, "lines": lines}


def test_cases_measured_anew__take_the_place_of_the_old() -> None:
    names = ["b", "a", "c", "d"]
    found = merged(measured(a=1, b=1), measured(a=2, c=2), names)
    assert {line["case"]: line["wall"] for line in found["lines"]} == {"b": 1, "a": 2, "c": 2}
    assert [line["case"] for line in found["lines"]] == ["b", "a", "c"]
    other = measured(a=2)
    other["machine"]["processor"] = "another"
    with pytest.raises(SystemExit, match="another processor"):
        merged(measured(b=1), other, names)
    with pytest.raises(SystemExit, match="another size"):
        merged(measured(b=1), {**measured(a=2), "size": "quick"}, names)
