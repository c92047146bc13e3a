"""`fastbayes learning-curve`: curves on stdout and in a picture, failures in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import answer, fails, parquet, run, tennis

import fastbayes as fb


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return parquet(tennis(300), tmp_path / "tennis.parquet")


ASKED = ("--target", "play", "--models", "naive-bayes,tan", "--sizes", "20,0.5", "--repeats", "3")


def test_json__is_what_learning_curve_returns(data: Path) -> None:
    told = answer("learning-curve", data, *ASKED, "--seed", "2", "--test", "0.3")
    curve = fb.learning_curve(["naive-bayes", "tan"], str(data), "play", [20, 0.5], 3, 2, test=0.3)
    expected = curve.to_dict()
    assert told["sizes"] == [20, 105]
    assert {name: told[name] for name in expected} == expected
    found = [
        fb.crossover(curve, *pair) for pair in (("naive-bayes", "tan"), ("tan", "naive-bayes"))
    ]
    assert told["crossovers"] == [one.to_dict() for one in found if one.size is not None]


def test_text__is_a_table(data: Path) -> None:
    lines = run("learning-curve", data, *ASKED).stdout.splitlines()
    assert lines[0] == "3 repeats, 60 of 300 rows to test on, 2 classes; intervals of 95%"
    assert lines[2].split() == ["model", "rows", "accuracy", "log-loss"]
    assert lines[3].split()[:2] == ["naive-bayes", "20"]


def test_plot__is_written_once(data: Path, tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    told = answer("learning-curve", data, *ASKED, "--plot", picture, "--metric", "accuracy")
    assert told["plot"] == str(picture)
    assert "accuracy" in picture.read_text("utf-8") or "<svg" in picture.read_text("utf-8")
    said = fails("learning-curve", data, *ASKED, "--plot", picture, folder=tmp_path)
    assert "curve.svg" in said
    run("learning-curve", data, *ASKED, "--plot", picture, "--force")


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        (("--sizes", "1000"), 1, "there are 240 rows to learn from, not 1,000"),
        (("--sizes", "a"), 2, "write numbers of rows"),
        (("--sizes", "0,10"), 2, "write numbers of rows"),
        (("--sizes", "1.5"), 2, "write numbers of rows"),
        (("--sizes", "inf"), 2, "write numbers of rows"),
        (("--test", "0"), 2, "write numbers of rows"),
        (("--test", "1,2"), 2, "write one number of rows"),
        (("--models", "naive"), 2, "'naive': use one of"),
        (("--repeats", "0"), 2, "--repeats"),
        (("--confidence", "1"), 2, "--confidence"),
    ],
)
def test_failures__are_one_line(data: Path, wrong: tuple[str, ...], code: int, said: str) -> None:
    found = fails("learning-curve", data, *ASKED, *wrong, folder=data.parent, code=code)
    assert said in found
