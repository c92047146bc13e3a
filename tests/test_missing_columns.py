"""A column that is not there at predict is an error, or missing in all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.core.errors import SchemaError
from fastbayes.scan.outputs.prediction_metadata import said_by_file
from tests.commands import run

N = 300


def rows() -> pa.Table:
    random = np.random.default_rng(8)
    return pa.table(
        {
            "a": random.choice([*"uv"], N),
            "x": random.normal(size=N),
            "when": pa.array(random.integers(0, 10**9, N), pa.timestamp("s")),
            "device": [{"os": "pq"[i % 2]} for i in range(N)],
            "y": random.choice([*"np"], N),
        }
    )


def blank(table: pa.Table, *names: str) -> pa.Table:
    for name in names:
        kind = table.schema.field(name).type
        table = table.set_column(table.column_names.index(name), name, pa.nulls(N, kind))
    return table


MODELS: list[Any] = [
    fb.NaiveBayes(),
    fb.TAN(),
    fb.AODE(),
    fb.KDB(),
    fb.JointBayes(),
    fb.JointGaussian(),
    fb.LogisticRegression(),
    fb.NetworkClassifier(),
]


@pytest.mark.parametrize("lost", [["a"], ["x", "device"], ["when"], ["a", "x", "when", "device"]])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_absent__is_missing_in_all_rows(model: Any, lost: list[str], tmp_path: Path) -> None:
    if isinstance(model, fb.JointBayes):
        model = fb.JointBayes(discretize="quantile")
    model.set_params(missing_columns="marginalize").fit(rows(), "y")
    X = rows().drop_columns("y")
    wanted = model.predict_proba(blank(X, *lost))
    fewer = rows().drop_columns(lost)  # the class stays, so that there are rows
    np.testing.assert_array_equal(model.predict_proba(fewer), wanted)
    pq.write_table(fewer, tmp_path / "t.parquet")
    np.testing.assert_array_equal(model.predict_proba(tmp_path / "t.parquet"), wanted)
    fb.predict_to(model, tmp_path / "t.parquet", tmp_path / "out.parquet", proba=True)
    out = pq.read_table(tmp_path / "out.parquet")
    np.testing.assert_array_equal(out["proba_n"].to_numpy(), wanted[:, 0])
    figures = fb.evaluate(model, tmp_path / "t.parquet")
    assert figures.accuracy == (model.classes_[wanted.argmax(axis=1)] == rows()["y"]).mean()
    row = X.drop_columns(lost).slice(4, 1).to_pylist()[0]
    np.testing.assert_allclose(model.predictor().predict_proba(row), wanted[4], rtol=1e-12)
    model.set_params(missing_columns="error")


def test_absent__is_an_error_that_names_the_option(tmp_path: Path) -> None:
    model = fb.NaiveBayes().fit(rows(), "y")
    fewer = rows().drop_columns(["x", "y"])
    says = "column 'x'.*; missing_columns='marginalize' takes it as missing in all rows"
    with pytest.raises(SchemaError, match=says):
        model.predict(fewer)
    pq.write_table(fewer, tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match=says):
        fb.predict_to(model, tmp_path / "t.parquet", tmp_path / "out.parquet")
    with pytest.raises(ValueError, match="missing_columns='no'"):
        fb.NaiveBayes(missing_columns="no").fit(rows(), "y")


def test_a_missing_value_that_is_a_category__is_none_that_is_not_there() -> None:
    model = fb.NaiveBayes(missing="category", missing_columns="marginalize").fit(rows(), "y")
    with pytest.raises(SchemaError, match="goes with missing='marginalize'"):
        model.predict(rows().drop_columns(["a", "y"]))


def test_calibrated__asks_its_model() -> None:
    model = fb.Calibrated(fb.NaiveBayes(missing_columns="marginalize")).fit(rows(), "y")
    X = rows().drop_columns("y")
    wanted = model.predict_proba(blank(X, "a"))
    np.testing.assert_array_equal(model.predict_proba(X.drop_columns("a")), wanted)


def test_command_line(tmp_path: Path) -> None:
    data, model = tmp_path / "t.parquet", tmp_path / "m.fb"
    pq.write_table(rows(), data)
    run("fit", data, "--target", "y", "-o", model)
    pq.write_table(rows().drop_columns("a"), data)
    out = tmp_path / "o.parquet"
    said = run("predict", model, data, "-o", out, code=1).stderr
    assert "--missing-columns marginalize" in said
    run("predict", model, data, "-o", out, "--missing-columns", "marginalize")
    run("evaluate", model, data, "--missing-columns", "marginalize")
    assert pq.read_metadata(out).num_rows == N
    assert said_by_file(str(out))["digest"] == fb.load(model).digest()


def test_predict_to__says_how_in_place_of_the_model(tmp_path: Path) -> None:
    model, X = fb.NaiveBayes().fit(rows(), "y"), rows().drop_columns(["a", "y"])
    done = fb.predict_to(model, X, tmp_path / "o.parquet", missing_columns="marginalize")
    assert done.rows == N
    assert model.missing_columns == "error"
    found = pq.read_table(tmp_path / "o.parquet")["prediction"].to_pylist()
    wanted = fb.NaiveBayes(missing_columns="marginalize").fit(rows(), "y")
    assert found == wanted.predict(X).tolist()
    with pytest.raises(fb.SchemaError, match="'a'"):
        fb.predict_to(wanted, X, tmp_path / "p.parquet", missing_columns="error")
    with pytest.raises(ValueError, match="missing_columns='no'"):
        fb.predict_to(model, X, tmp_path / "p.parquet", missing_columns="no")
