"""Gaussian Bayes from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import answer, fails, parquet, run

import fastbayes as fb

ROWS = 400


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    y = random.integers(0, 3, ROWS)
    X = random.normal(size=(ROWS, 2)) + y[:, None]
    mask = random.random(ROWS) < 0.1
    table = {"a": X[:, 0], "b": pa.array(X[:, 1], mask=mask), "y": np.array(["p", "q", "r"])[y]}
    return parquet(pa.table(table), tmp_path / "d.parquet")


# Options, and what the library is told.
CASES: list[tuple[list[str], dict[str, Any]]] = [
    ([], {}),
    (["--covariance", "tied", "--shrinkage", "auto"], {"covariance": "tied", "shrinkage": "auto"}),
    (["--shrinkage", "0.25", "--ddof", "1"], {"shrinkage": 0.25, "ddof": 1}),
    (["--prior", "niw", "--class-prior", "uniform"], {"prior": "niw", "class_prior": "uniform"}),
    (["--missing", "impute_mean", "--singular", "error"],
     {"missing": "impute_mean", "singular": "error"}),
    (["--covariance", "spherical"], {"covariance": "spherical"}),
]  # fmt: skip


@pytest.mark.parametrize(("told", "parameters"), CASES)
def test_fit__gives_the_model_of_the_library(
    data: Path, told: list[str], parameters: dict[str, Any]
) -> None:
    out = data.with_name("m.fb")
    said = answer("fit", data, "--target", "y", "--model", "gaussian-bayes", *told, "-o", out)
    made, expected = fb.load(out), fb.GaussianBayes(**parameters).fit(str(data), "y")
    assert made.get_params() == expected.get_params()
    assert np.array_equal(made.predict_proba(data), expected.predict_proba(data))
    assert said["parameters"] == expected.n_parameters_
    assert said["alpha"] is None
    predictions = data.with_name("p.parquet")
    run("predict", out, data, "--proba", "--explain", "-o", predictions)
    assert answer("evaluate", out, data) == fb.evaluate(expected, str(data)).to_dict()


def test_statistics__are_counted_first(data: Path) -> None:
    out, made = data.with_name("s.fbs"), data.with_name("m.fb")
    told = ("--statistics", out, "--model", "gaussian-bayes", "-o", made)
    run("count", data, "--target", "y", "-o", out)
    assert "count again with --scatter" in fails("fit", *told, folder=data.parent)
    run("count", data, "--target", "y", "--scatter", "--force", "-o", out)
    run("fit", *told)
    expected = fb.GaussianBayes().fit(str(data), "y")
    assert np.array_equal(fb.load(made).predict_proba(data), expected.predict_proba(data))


def test_what_was_done__is_said(tmp_path: Path) -> None:
    x = np.arange(20.0)
    table = pa.table({"a": x, "b": 2 * x, "y": np.array(["p", "q"])[(x > 8).astype(int)]})
    data, out = parquet(table, tmp_path / "d.parquet"), tmp_path / "m.fb"
    told = ("fit", data, "--target", "y", "--model", "gaussian-bayes", "-o", out, "--force")
    assert answer(*told)["singular"] == ["p", "q"]
    assert "the covariance of class 'p', 'q' is singular" in run(*told).stderr
    words = fails(*told, "--singular", "error", folder=tmp_path)
    assert "the covariance of class 'p' is singular" in words


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (["--alpha", "1"], "--alpha does not go with --model gaussian-bayes"),
        (["--missing", "category"], "--missing category"),
        (["--shrinkage", "2"], "'2' is neither a number from 0 to 1 nor 'auto'"),
        (["--shrinkage", "x"], "'x' is neither a number from 0 to 1 nor 'auto'"),
        (["--covariance", "diagonal", "--prior", "niw"], "prior is of covariance matrices"),
    ],
)
def test_usage__says_what_does_not_go(data: Path, told: list[str], words: str) -> None:
    out = data.with_name("m.fb")
    result = run(
        "fit", data, "--target", "y", "--model", "gaussian-bayes", *told, "-o", out, code=2
    )
    assert words in result.stderr
