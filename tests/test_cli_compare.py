"""`fastbayes compare`: a leaderboard on stdout, failures in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import answer, fails, parquet, run, tennis

import fastbayes as fb
from fastbayes.models.registry import candidates


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    table = tennis(300).append_column("part", pa.array(rng.integers(0, 3, 300)))
    return parquet(table, tmp_path / "tennis.parquet")


def test_json__is_what_compare_returns(data: Path) -> None:
    told = answer("compare", data, "--target", "play")
    expected = fb.compare(str(data), "play").to_dict()
    assert told["validation"] == "k-fold"
    assert {m["scored"] for m in told["models"]} == {"10 folds", None}
    assert told["rows"] == 300
    assert told["classes"] == ["no", "yes"]
    for mine, theirs in zip(told["models"], expected["models"], strict=True):
        for key in mine.keys() - {"fit_seconds", "predict_seconds"}:
            assert mine[key] == theirs[key]
        if mine["model"].startswith("gaussian-bayes"):
            assert "is categorical, and this model takes numbers alone" in mine["reason"]
            continue
        assert mine["fit_seconds"] > 0
        assert mine["gap_error"] >= 0
    assert [m["winner"] for m in told["models"]] == [True] + [False] * len(candidates())


def test_leave_one_out__says_what_all_rows_told(data: Path) -> None:
    asked = ("compare", data, "--target", "play", "--leave-one-out", "--models", "tan,naive-bayes")
    told = {m["model"]: m["scored"] for m in answer(*asked)["models"]}
    assert told["naive-bayes"] == "leave-one-out, prior of all rows"
    assert told["tan"] == "leave-one-out, structure and cut points of all rows"
    assert run(*asked).stdout.startswith("leave-one-out of 300 rows")
    every = answer("compare", data, "--target", "play", "--models", "all")
    assert {m["model"] for m in every["models"]} == {*candidates(), "prior"}


def test_text__is_a_table_with_the_winner_marked(data: Path) -> None:
    lines = run("compare", data, "--target", "play").stdout.splitlines()
    assert lines[0] == "10 folds of 300 rows, 2 classes"
    assert lines[2].split()[:2] == ["model", "accuracy"]
    assert [line[:2] for line in lines[3:8]] == ["* ", "  ", "  ", "  ", "  "]
    assert lines[-1].startswith("shared by all: cut points ")


def test_models_and_folds(data: Path) -> None:
    told = answer("compare", data, "--target", "play", "--models", "tan, aode", "--folds", "10")
    assert told["validation"] == "k-fold"
    assert {m["model"] for m in told["models"]} == {"tan", "aode"}
    options = {"models": ["tan", "aode"], "validation": "k_fold", "folds": 10}
    assert (
        told["models"][0]["log_loss"]
        == fb.compare(str(data), "play", **options).best.figures.log_loss
    )  # type: ignore[arg-type,union-attr]
    default = answer("compare", data, "--target", "play", "--models", "tan,aode")
    assert default["models"][0]["log_loss"] == told["models"][0]["log_loss"]
    seeded = answer(
        *("compare", data, "--target", "play", "--models", "tan,aode"),
        *("--seed", "7"),
    )
    assert seeded["models"][0]["log_loss"] != told["models"][0]["log_loss"]
    named = answer("compare", data, "--target", "play", "--folds", "part", "--models", "aode")
    by_part = fb.compare(str(data), "play", validation="k_fold", folds="part", models="aode")
    assert named["models"][0]["log_loss"] == by_part.best.figures.log_loss  # type: ignore[union-attr]


def test_options__reach_the_counts(data: Path) -> None:
    asked = ("compare", data, "--target", "play", "--models", "tan,naive-bayes-bins")
    two = answer(*asked, "--discretize", "width:2", "--columns", "sky,degrees")
    expected = fb.compare(
        str(data),
        "play",
        models=["tan", "naive-bayes-bins"],
        discretize=("width", 2),
        columns=["sky", "degrees"],
    )
    assert [m["log_loss"] for m in two["models"]] == [
        entry.figures.log_loss  # type: ignore[union-attr]
        for entry in expected.entries
    ]


def test_a_race__may_be_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 140_000)
    alike = np.where(rng.random(140_000) < 0.9, y, 1 - y)
    table = pa.table({"a": alike, "b": alike ^ rng.integers(0, 2, 140_000), "y": y})
    many = parquet(table.append_column("c", table["a"]), tmp_path / "many.parquet")
    asked = ("compare", many, "--target", "y", "--models", "naive-bayes-bins,joint-bayes,tan")
    raced = {m["model"]: m for m in answer(*asked)["models"]}
    assert raced["naive-bayes-bins"]["dropped"].startswith("dropped after ")
    whole = {m["model"]: m for m in answer(*asked, "--no-race")["models"]}
    assert {m["dropped"] for m in whole.values()} == {None}
    assert {m["rows"] for m in whole.values()} == {140_000}
    for name in (name for name in raced if raced[name]["dropped"] is None):
        assert raced[name]["log_loss"] == whole[name]["log_loss"]
    assert "  naive-bayes-bins: dropped after " in run(*asked).stdout


def test_what_does_not_fit__is_listed_with_the_reason(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    many = {f"c{j}": rng.integers(0, 60, 500).astype(str) for j in range(8)}
    wide = parquet(pa.table(many | {"y": rng.choice(["p", "q"], 500)}), tmp_path / "w.parquet")
    limited = answer("compare", wide, "--target", "y", "--memory-limit", "300k")
    reasons = {m["model"]: m["reason"] for m in limited["models"]}
    assert reasons["naive-bayes"] is None
    assert "memory_limit=300,000" in reasons["aode"]
    text = run("compare", wide, "--target", "y", "--memory-limit", "300k").stdout
    assert "  aode: counting pairs needs " in text


def test_failures__are_one_line(data: Path, tmp_path: Path) -> None:
    for models, says in (
        ("forest", "'forest': use one of 'naive-bayes',"),
        ("tan,all", "'all': use one of"),
        ("tan,tan", "'tan' stands twice"),
        (",", "name one at least"),
    ):
        asked = ("compare", data, "--target", "play", "--models", models)
        assert says in fails(*asked, folder=tmp_path, code=2)
    said = fails("compare", data, "--target", "weather", folder=tmp_path)
    assert "no column 'weather'" in said
    for asked in (("compare", data), ("count", data, "-o", tmp_path / "s.fbs")):
        said = fails(*asked, "--target", "play", "--folds", "1", folder=tmp_path, code=2)
        assert "1 folds leave no rows to learn from: write 2 or more, or a column" in said
    for other in (("--leave-one-out",), ("--folds", "part")):
        asked = ("compare", data, "--target", "play", "--seed", "1", *other)
        assert "--seed goes with --folds K" in fails(*asked, folder=tmp_path, code=2)
    asked = ("compare", data, "--target", "play", "--leave-one-out", "--folds", "3")
    assert "--leave-one-out has no --folds" in fails(*asked, folder=tmp_path, code=2)
    said = fails("compare", data, folder=tmp_path, code=2)
    assert "--target" in said
