"""Rows without a class, declared classes, and columns that were probably meant otherwise."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastbayes as fb

LABELLED = {"a": ["x", "y", "x"], "v": [1.0, 3.0, 2.0], "y": ["n", "p", None]}


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.null()], ids=str)
def test_a_batch_without_classes_adds_nothing(kind: pa.DataType) -> None:
    whole = fb.NaiveBayes().fit(LABELLED, "y")
    parts = fb.NaiveBayes().fit({k: v[:2] for k, v in LABELLED.items()}, "y")
    parts.partial_fit(pa.table({"a": ["x"], "v": [2.0], "y": pa.nulls(1, kind)}), "y")
    assert parts.statistics_ == whole.statistics_
    assert parts.statistics_.dropped_rows == whole.statistics_.dropped_rows == 1


def test_score_leaves_out_the_rows_that_fit_leaves_out() -> None:
    model = fb.NaiveBayes().fit(LABELLED, "y")
    assert model.score(pa.table(LABELLED), "y") == 1.0
    assert model.score(pa.table(LABELLED), "y", sample_weight=[1, 0, 9]) == 1.0


@pytest.mark.parametrize(
    "labels",
    [
        [True, False, None, True],
        [0.5, 1.5, None, 0.5],
        np.array([0.5, 1.5, np.nan, 0.5]),
        [2, 1, None, 2],
        pd.array([True, False, None, True], dtype="boolean"),
    ],
    ids=["truth values", "fractions", "NaN", "integers", "pandas"],
)
def test_score_takes_the_classes_that_fit_takes(labels: Any) -> None:
    rows = {"a": ["x", "y", "x", "y"], "y": labels}
    model = fb.NaiveBayes().fit(rows, "y")
    assert model.score(rows, "y") == fb.evaluate(model, rows).accuracy == 2 / 3
    assert model.score({"a": rows["a"]}, labels) == 2 / 3
    assert model.score(pa.table(rows), "y") == 2 / 3


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(pd.Categorical(["n", "p"], categories=["n", "p", "q"])),
        pl.Series(["n", "p"], dtype=pl.Enum(["n", "p", "q"])),
    ],
    ids=["pandas", "polars"],
)
def test_classes_declared_by_a_series(labels: object) -> None:
    frame = pd.DataFrame({"a": ["x", "y"]})
    assert fb.NaiveBayes().fit(frame, labels).classes_.tolist() == ["n", "p", "q"]
    assert fb.count(frame, labels).schema.classes.to_pylist() == ["n", "p", "q"]


def test_missing_as_a_category_is_a_parameter() -> None:
    table = pa.table({"a": ["x", None, "y"], "y": ["n", "p", "n"]})
    assert fb.NaiveBayes().fit(table, "y").n_parameters_ == 1 + 1 * 2
    assert fb.NaiveBayes(missing="category").fit(table, "y").n_parameters_ == 1 + 2 * 2


def test_explain_counts_impossible_rows() -> None:
    model = fb.NaiveBayes(alpha=0).fit({"a": ["x", "y"], "b": ["u", "v"], "y": ["n", "p"]}, "y")
    assert model.explain({"a": ["x", "x"], "b": ["v", "u"]}).prior_rows == 1


def test_a_table_that_lost_its_metadata_is_named() -> None:
    table = fb.count(LABELLED, "y").to_table().replace_schema_metadata(None)
    with pytest.raises(fb.SchemaError, match="metadata were lost"):
        fb.Statistics.from_table(table)


def remarks(caplog: pytest.LogCaptureFixture, table: dict[str, object]) -> list[str]:
    with caplog.at_level(logging.WARNING, "fastbayes"):
        fb.NaiveBayes().fit(pa.table(table), "y")
    said = [record.message for record in caplog.records]
    caplog.clear()
    return said


def test_squares__that_underflow_are_refused_by_name() -> None:
    tiny = pa.table({"x": [1e-160, 2e-160, 4e-160, 3e-160], "y": ["a", "a", "b", "b"]})
    with pytest.raises(fb.DataError, match="column 'x': squares of its values underflow; rescale"):
        fb.NaiveBayes().fit(tiny, "y")


def test_columns_that_were_probably_meant_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    n = 2000
    labels = ["n", "p"] * (n // 2)
    numbers = (np.arange(n) % 500).astype(str).tolist()
    assert remarks(caplog, {"a": ["x", "y"] * (n // 2), "v": numbers, "y": labels}) == []
    (said,) = remarks(caplog, {"v": ["NA", *numbers[1:]], "y": labels})
    assert "column 'v' is text because of values like 'NA'" in said
    assert "null_values" in said
    (said,) = remarks(caplog, {"id": np.arange(n).astype(str), "y": labels})
    assert "column 'id' has 2,000 values in 2,000 rows" in said
    (said,) = remarks(caplog, {"flag": np.arange(n) % 2, "y": labels})
    assert "column 'flag' is constant within every class" in said
    tiny = np.arange(n) * 1e-300
    (said,) = remarks(caplog, {"tiny": tiny, "y": labels})
    assert said == (
        "column 'tiny': squares of its values underflow, so a Gaussian cannot use it; rescale it"
    )
    assert remarks(caplog, {"same": np.ones(n), "y": labels}) == []
    (said,) = remarks(caplog, {"a": ["x"] * n, "y": [*labels[:-2], None, None]})
    assert said == "2 rows without a class were left out"
