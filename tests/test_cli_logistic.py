"""Logistic regression from the command line: fit, predict, inspect, compare; what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import fails, parquet, run
from logistic_rows import rows

import fastbayes as fb


@pytest.fixture
def data(tmp_path):
    return parquet(rows(400, 3, missing=True), tmp_path / "d.parquet")


def fitted(data, *options):
    made = data.with_name("m.fb")
    done = run("fit", data, "--target", "y", "--model", "logistic", *options, "-o", made,
               "--json", "--force")  # fmt: skip
    return json.loads(done.stdout), fb.load(made)


def test_fit_as_in_python(data):
    told, model = fitted(data, "--C", "0.5", "--class-weight", "balanced",
                         "--interactions", "a:b", "--init", "zeros")  # fmt: skip
    same = fb.LogisticRegression(
        C=0.5, class_weight="balanced", interactions=[("a", "b")], init="zeros"
    ).fit(str(data), "y")
    np.testing.assert_array_equal(model.coef_, same.coef_)
    assert told["converged"] is True
    assert told["n_iter"] == same.n_iter_
    assert told["objective"] == pytest.approx(same.objective_)


@pytest.mark.parametrize(
    ("options", "params"),
    [
        (["--penalty", "none"], {"penalty": None}),
        (["--penalty", "l1", "--C", "0.1"], {"penalty": "l1", "C": 0.1}),
        (["--C", "inf"], {"C": float("inf")}),
        (["--standardize"], {"standardize": True}),
        (["--class-weight", "c0=2,c1=0.5"], {"class_weight": {"c0": 2.0, "c1": 0.5}}),
        (["--tol", "1e-8", "--max-iter", "50"], {"tol": 1e-8, "max_iter": 50}),
        (["--solver", "gradient", "--learning-rate", "0.5", "--tol", "1e-2"],
         {"solver": "gradient", "learning_rate": 0.5, "tol": 1e-2}),
    ],
)  # fmt: skip
def test_options_are_parameters(data, options, params):
    _, model = fitted(data, *options)
    assert {name: getattr(model, name) for name in params} == params


def test_predict_evaluate_inspect_compare(data, tmp_path):
    fitted(data)
    made, out = tmp_path / "m.fb", tmp_path / "p.parquet"
    run("predict", made, data, "-o", out, "--proba", "--explain")
    assert json.loads(run("evaluate", made, data, "--json").stdout)["accuracy"] > 0.4
    assert "LogisticRegression" in run("inspect", made).stdout
    board = run("compare", data, "--target", "y", "--models", "logistic,naive-bayes",
                "--folds", "4", "--json").stdout  # fmt: skip
    assert "logistic" in board


@pytest.mark.parametrize("options", [[], ["--standard-errors"]])
def test_inspect_shows_the_coefficients(data, options):
    _, model = fitted(data, *options)
    made, lines = data.with_name("m.fb"), model.coefficients().to_pylist()
    assert model.standard_errors is bool(options)
    told = json.loads(run("inspect", made, "--json").stdout)
    assert told["coefficients"] == lines
    assert told["converged"] is True
    assert (told["n_iter"], told["gradient_norm"]) == (model.n_iter_, model.gradient_norm_)
    shown = run("inspect", made).stdout
    assert ("standard_error " in shown) is bool(options)
    assert f"{lines[1]['coefficient']:.5g}" in shown
    assert f"and {len(lines) - 12} more: see --json" in shown
    assert "gradient norm" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "logistic", "--C", "-1"], "no number above 0"),
        (["--model", "logistic", "--penalty", "l1", "--standard-errors"], "l1"),
        (["--model", "logistic", "--C", "much"], "no number above 0"),
        (["--model", "tan", "--C", "1"], "--C does not go with --model tan"),
        (["--model", "logistic", "--alpha", "2"], "--alpha does not go with --model logistic"),
        (["--model", "logistic", "--interactions", "ab"], "write two columns as A:B"),
        (["--model", "logistic", "--class-weight", "c0"], "write balanced, or a number"),
        (["--model", "logistic", "--penalty", "l1", "--solver", "lbfgs"], "use --solver newton-cg"),
        (["--model", "logistic", "--unseen", "smooth"], "has no coefficient"),
    ],
)
def test_wrong_options_are_usage_errors(data, options, message):
    wrong = fails(
        "fit",
        data,
        "--target",
        "y",
        *options,
        "-o",
        data.with_name("x.fb"),
        folder=data.parent,
        code=2,
    )
    assert message in wrong
    assert not data.with_name("x.fb").exists()


def test_statistics_are_no_rows(data, tmp_path):
    run("count", data, "--target", "y", "-o", tmp_path / "s.fbs")
    wrong = fails("fit", "--statistics", tmp_path / "s.fbs", "--model", "logistic",
                  "-o", tmp_path / "x.fb", folder=tmp_path, code=2)  # fmt: skip
    assert "learns from rows" in wrong


def test_a_column_that_is_not_there(data):
    wrong = fails("fit", data, "--target", "y", "--model", "logistic", "--interactions", "a:q",
                  "-o", data.with_name("x.fb"), folder=data.parent)  # fmt: skip
    assert "column 'q' is not there" in wrong
