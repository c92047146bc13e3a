"""Rows without a class, declared classes, and columns that were probably meant otherwise."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import fastbayes as fb
from fastbayes.core.errors import SchemaError

LABELLED = {"a": ["x", "y", "x"], "v": [1.0, 3.0, 2.0], "y": ["n", "p", None]}


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.null()], ids=str)
def test_a_batch_without_classes_adds_nothing(kind: pa.DataType) -> None:
    whole = fb.NaiveBayes().fit(LABELLED, "y")
    parts = fb.NaiveBayes().fit({k: v[:2] for k, v in LABELLED.items()}, "y")
    parts.partial_fit(pa.table({"a": ["x"], "v": [2.0], "y": pa.nulls(1, kind)}), "y")
    assert parts.statistics_ == whole.statistics_
    assert parts.statistics_.dropped_rows == whole.statistics_.dropped_rows == 1


@pytest.mark.parametrize("other", [["q", "r"], [1.5, 2.5]], ids=["text", "numbers"])
@pytest.mark.parametrize("cls", [fb.NaiveBayes, fb.AODE, fb.LogisticRegression])
def test_a_column_of_objects_of_which_none_is_known_is_of_any_kind(cls: Any, other: list) -> None:
    unknown = np.array([["x", None], ["y", np.nan]], object)
    known, y = np.array([["x", other[0]], ["z", other[1]]], object), ["n", "p"]
    model = cls().fit(known, y)
    expected = model.predict_proba({"x0": ["x", "y"], "x1": [None, None]})
    for rows in (unknown, unknown.tolist()):
        np.testing.assert_array_equal(model.predict_proba(rows), expected)
    first = cls().partial_fit(unknown, y).partial_fit(known, y).statistics_
    assert first == cls().partial_fit(known, y).partial_fit(unknown, y).statistics_
    nothing = np.array([[None, None]], object)
    assert model.predict_proba(nothing).shape == (1, 2)


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


SERIES = {
    "pandas": pd.Series(pd.Categorical(["n", "p"], categories=["n", "p", "q"])),
    "polars": pl.Series(["n", "p"], dtype=pl.Enum(["n", "p", "q"])),
}
DECLARED = {
    **SERIES,
    "pandas' array": SERIES["pandas"].array,
    "frame of pandas": pd.DataFrame({"label": SERIES["pandas"]}),
    "frame of polars": pl.DataFrame({"label": SERIES["polars"]}),
}


@pytest.mark.parametrize("labels", DECLARED.values(), ids=DECLARED)
def test_classes_declared_by_a_series(labels: object) -> None:
    frame = pd.DataFrame({"a": ["x", "y"]})
    assert fb.NaiveBayes().fit(frame, labels).classes_.tolist() == ["n", "p", "q"]
    assert fb.count(frame, labels).schema.classes.to_pylist() == ["n", "p", "q"]


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("pandas", dict),
        ("polars", dict),
        ("pandas' array", dict),
        ("pandas", pd.DataFrame),
        ("polars", pl.DataFrame),
    ],
)
def test_domains_declared_by_columns(kind: str, of: Any) -> None:
    rows = of({"a": DECLARED[kind], "b": DECLARED[kind], "y": DECLARED[kind]})
    for columns, features in ((None, ["a", "b"]), (["b"], ["b"])):
        model = fb.NaiveBayes(columns=columns).fit(rows, "y")
        for schema in (model.schema_, fb.count(rows, "y", columns=columns).schema):
            assert list(schema.names) == features
            assert schema.classes.to_pylist() == ["n", "p", "q"]
            for feature in schema.features:
                assert feature.values.to_pylist() == ["n", "p", "q"]
                assert feature.declared
    with pytest.raises(SchemaError, match=r"column 'b' is .*, but numbers are needed there"):
        fb.NaiveBayes().fit(rows, "y", sample_weight="b")


@pytest.mark.parametrize("labels", [[1, 0, None], [True, False, None], [1.0, 0.0, None]])
@pytest.mark.parametrize(
    "kind",
    [list, lambda y: np.array(y, object), lambda y: pd.Series(y, dtype=object), pa.array],
    ids=["list", "objects", "pandas", "arrow"],
)
def test_labels_of_any_kind_may_be_missing(labels: list, kind: Any) -> None:
    X, y = {"a": ["x", "y", "x"]}, kind(labels)
    model = fb.NaiveBayes().fit(X, y)
    assert model.classes_.tolist() == sorted(labels[:2])
    assert model.classes_.dtype == np.asarray(labels[:2]).dtype
    assert model.statistics_.dropped_rows == 1
    assert model.score(X, y) == 1.0


def test_a_label_that_does_not_go_with_the_others_is_named_by_its_row() -> None:
    with pytest.raises(fb.DataError, match="y has 1 of type int in row 2"):
        fb.NaiveBayes().fit({"a": ["x", "y", "x"]}, [None, "p", 1])


@pytest.mark.parametrize("index", [[5, 3, 9], ["r", "s", "t"], [0, 1, 2]], ids=str)
def test_labels_in_a_frame_of_one_column__whose_index_is_none(index: list) -> None:
    X = pd.DataFrame({"a": ["x", "y", "x"]}, index=index)
    y = pd.DataFrame({"label": ["n", "p", "n"]}, index=index)
    model = fb.NaiveBayes().fit(X, y)
    assert model.schema_.target == "label"
    assert model.statistics_ == fb.NaiveBayes().partial_fit(X, y).statistics_
    assert fb.evaluate(model, X, y).accuracy == 1.0
    assert fb.k_fold(fb.NaiveBayes(), X, y, folds=[0, 1, 1]).proba.shape == (3, 2)
    with pytest.raises(fb.SchemaError, match="'class' is a table of 2 columns: give one of them"):
        fb.NaiveBayes().fit(X, y.assign(other=1))


def test_ranges_of_pandas_are_categories_by_their_texts() -> None:
    cut = pd.cut(np.arange(6.0), [-1, 2, 4, 9])
    frame = pd.DataFrame({"a": cut, "y": list("nnpnpp")}, index=[9, 4, 2, 7, 1, 0])
    model = fb.NaiveBayes().fit(frame, "y")
    assert model.schema_.features[0].values.to_pylist() == ["(-1, 2]", "(2, 4]", "(4, 9]"]
    plain = frame.assign(a=frame["a"].astype(str))
    expected = fb.NaiveBayes().fit(plain, "y")
    np.testing.assert_array_equal(model.predict_proba(frame), expected.predict_proba(plain))
    assert model.score(frame, "y") == expected.score(plain, "y")
    for labels in (frame["a"], frame[["a"]], cut):
        of_ranges = fb.NaiveBayes().fit(frame[["y"]], labels)
        assert of_ranges.classes_.tolist() == ["(-1, 2]", "(2, 4]", "(4, 9]"]
        assert of_ranges.score(frame[["y"]], frame["a"]) > 0


def test_intervals_of_pandas_are_two_numbers__beside_the_target_too() -> None:
    ends = pd.arrays.IntervalArray.from_breaks([0.0, 1.0, 3.0, 4.0, 7.0])
    frame = pd.DataFrame({"f": ends, "y": list("npnp")})
    model = fb.NaiveBayes().fit(frame, "y")
    assert model.schema_.names == ("f.left", "f.right")
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(frame[["f"]]))
    assert fb.evaluate(model, frame).accuracy == model.score(frame, "y")


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


STREAMS: dict[str, Any] = {
    "lazy": lambda table: pl.from_arrow(table).lazy(),
    "dataset": ds.dataset,
    "scanner": lambda table: ds.dataset(table).scanner(),
    "reader": lambda table: table.to_reader(),
    "batches": lambda table: table.to_batches(max_chunksize=3),
    "generator": lambda table: (b for b in table.to_batches(max_chunksize=3)),
    "structured": lambda table: table.to_pandas().to_records(index=False),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_score_takes_the_rows_that_fit_takes(kind: str) -> None:
    table = pa.table({"x": [0.5, 1.0, 1.5, 2.5] * 3, "y": ["n", "p", "n", "p"] * 3})
    model = fb.NaiveBayes().fit(STREAMS[kind](table), "y")
    assert model.score(STREAMS[kind](table), "y") == model.score(table, "y") < 1
    with pytest.raises(SchemaError, match="no column 'q'"):
        model.score(STREAMS[kind](table), "q")
    with pytest.raises(SchemaError, match="sample_weight='x' is a name: score takes the weights"):
        model.score(STREAMS[kind](table), "y", sample_weight="x")


HIDDEN = np.arange(6) > 3
MASKED = np.ma.masked_array([0, 1, 0, 1, 0, 9], HIDDEN)
SIX = np.arange(6.0)[:, None]
HIDDEN_LABEL = "Input y contains NaN: row 4 is masked; leave out rows without a class"


@pytest.mark.parametrize("cls", [fb.NaiveBayes, fb.LogisticRegression, fb.GaussianNB])
def test_masked_weights_are_no_weights(cls: Any) -> None:
    weight = np.ma.masked_array([1, 1, 1, 1, 999, 999], HIDDEN)
    labels = [0, 1, 0, 1, 0, 1]
    with pytest.raises(fb.DataError, match="sample_weight: row 4 weighs nan"):
        cls().fit(SIX, labels, sample_weight=weight)
    model = cls().fit(SIX, labels)
    with pytest.raises(fb.DataError, match="sample_weight: row 4 weighs nan"):
        model.score(SIX, labels, sample_weight=weight)
    if cls is not fb.GaussianNB:  # rows without a class are left out, and their weights
        assert model.score(SIX, MASKED, sample_weight=weight) == model.score(SIX[:4], labels[:4])


def test_masked_labels_are_none() -> None:
    with pytest.raises(fb.DataError, match=HIDDEN_LABEL):
        fb.GaussianNB().fit(SIX, MASKED)
    with pytest.raises(fb.DataError, match=HIDDEN_LABEL):
        fb.threshold_sweep(SIX, MASKED)
    model = fb.GaussianNB().fit(SIX, [0, 1, 0, 1, 0, 1])
    with pytest.raises(fb.DataError, match=HIDDEN_LABEL):
        model.score(SIX, MASKED)
    assert (
        fb.NaiveBayes().fit(SIX, MASKED).statistics_
        == fb.NaiveBayes().fit(SIX[:4], MASKED[:4]).statistics_
    )
    assert model.importance(SIX, MASKED).log_loss == model.importance(SIX[:4], MASKED[:4]).log_loss
