"""Input that used to end in an error of another library, or in none at all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.datasets import load_diabetes

import fastbayes as fb
from fastbayes.data.memory import is_missing

TABLE = pa.table({"a": ["x", "y", "x"], "y": ["p", "q", "p"]})
LABELS = ["p", "q", "p"]
HUGE = 10**400


def classes(model: Any) -> list[float]:
    counts: list[float] = model.statistics_.values.class_counts.tolist()
    return counts


def frame(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series(values, dtype=object)})


REFUSED = {
    **{
        f"no target to {name}": (
            call,
            fb.DataError,
            rf"{who} requires y to be passed, but the target y is None\.",
        )
        for name, who, call in [
            ("fit", "This Blend estimator", lambda: fb.fit(TABLE, None)),
            ("compare", "compare", lambda: fb.compare(TABLE, None)),
            ("k_fold", "k_fold", lambda: fb.k_fold(fb.NaiveBayes(), TABLE, None)),
            (
                "learning_curve",
                "learning_curve",
                lambda: fb.learning_curve({"a": fb.NaiveBayes()}, TABLE, None, [1]),
            ),
        ]
    },
    "domains that are no mapping": (
        lambda: fb.NaiveBayes(domains=3).fit(TABLE, "y"),  # type: ignore[arg-type]
        fb.SchemaError,
        "domains=3: give the values of each column",
    ),
    "the same for counting": (
        lambda: fb.count(TABLE, "y", domains=["a"]),  # type: ignore[arg-type]
        fb.SchemaError,
        r"domains=\['a'\]",
    ),
    "KDB without rows": (
        lambda: fb.KDB().fit({"a": np.zeros(0), "b": np.zeros(0), "y": np.zeros(0, "U1")}, "y"),
        fb.DataError,
        "nothing to learn from",
    ),
    "half a surrogate pair as a value": (
        lambda: fb.NaiveBayes().fit(frame(["\ud800", "b", "c"]), LABELS),
        fb.DataError,
        "column 'a'",
    ),
    "half a surrogate pair in a name": (
        lambda: fb.NaiveBayes().fit({"\ud800": ["a", "b", "c"]}, LABELS),
        fb.SchemaError,
        r"a column named '\\ud800'",
    ),
    "complex numbers": (
        lambda: fb.NaiveBayes().fit(pd.DataFrame({"a": [1 + 2j, 2, 3]}), LABELS),
        fb.DataError,
        "column 'a'",
    ),
    "complex numbers for a drop-in": (
        lambda: fb.GaussianNB().fit(pd.DataFrame({"a": [1 + 2j, 2, 3]}), LABELS),
        fb.DataError,
        "Complex data",
    ),
    "a loss beyond all floats": (
        lambda: fb.NaiveBayes().fit(TABLE, "y").decide(TABLE, loss=[[0, HUGE], [1, 0]]),
        fb.DataError,
        "a loss must be a matrix of numbers",
    ),
    "a labelled loss beyond all floats": (
        lambda: (
            fb.NaiveBayes()
            .fit(TABLE, "y")
            .decide(TABLE, loss={"p": {"p": 0, "q": HUGE}, "q": {"p": 1, "q": 0}})
        ),
        fb.DataError,
        "decision 'p' under truth 'q'",
    ),
    "a cost of rejecting beyond all floats": (
        lambda: fb.NaiveBayes().fit(TABLE, "y").decide(TABLE, loss=[[0, 1], [1, 0]], reject=HUGE),
        fb.DataError,
        "the cost of rejecting",
    ),
    "a pseudo-count beyond all floats": (
        lambda: fb.NaiveBayes(alpha=HUGE).fit(TABLE, "y"),
        ValueError,
        "use a finite number",
    ),
    "the same for a drop-in": (
        lambda: fb.CategoricalNB(alpha=HUGE).fit([[0], [1], [0]], LABELS),
        ValueError,
        "alpha",
    ),
    "a factor beyond all floats": (
        lambda: fb.count(TABLE, "y") * HUGE,
        ValueError,
        "finite number",
    ),
    "a strength beyond all floats": (
        lambda: fb.JointBayes(tau=HUGE).fit(TABLE, "y"),
        ValueError,
        "tau",
    ),
    "a table of two columns as classes": (
        lambda: fb.NaiveBayes().fit(TABLE, pd.DataFrame({"y": LABELS, "z": LABELS})),
        fb.SchemaError,
        "a table of 2 columns: give one of them",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("kernels", ["never", "always"])
def test_what_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, kernels: str, case: str
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
    work, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        work()


def test_missing_class_of_pandas__is_no_class() -> None:
    with_gap = fb.NaiveBayes().fit(frame(["x", "y", "x", "y"]), ["p", pd.NA, "q", "p"])
    without = fb.NaiveBayes().fit(frame(["x", "x", "y"]), ["p", "q", "p"])
    assert classes(with_gap) == classes(without) == [2, 1]
    assert all(map(is_missing, [None, np.nan, np.float32("nan"), pd.NA, pd.NaT]))
    assert not any(map(is_missing, [False, True, np.False_, 0, 0.0, "", "nan"]))


def test_foreign_byte_order__is_read() -> None:
    numbers = np.array([1.5, 2.0, -3.0])
    native = fb.count(pd.DataFrame({"a": numbers, "y": LABELS}), "y")
    assert fb.count(pd.DataFrame({"a": numbers.astype(">f8"), "y": LABELS}), "y") == native
    whole = np.array([1, 2, -3], ">i4")
    assert fb.count({"a": whole, "y": LABELS}, "y") == fb.count(
        pd.DataFrame({"a": whole, "y": LABELS}), "y"
    )


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_classes_as_a_table_of_one_column(kind: str) -> None:
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind]
    model = fb.NaiveBayes().fit({"a": ["x", "y", "x"]}, make({"kind": LABELS}))
    assert model.classes_.tolist() == ["p", "q"]
    if kind != "arrow":
        assert model.schema_.target == "kind"


def test_number_as_the_target__is_warned_of() -> None:
    X, y = load_diabetes(return_X_y=True)
    with pytest.warns(fb.FastBayesWarning, match="the classes are 214 different numbers"):
        fb.NaiveBayes().fit(X, y)


def test_plan__lists_what_cannot_be_used() -> None:
    table = TABLE.append_column("l", pa.array([[1], [2], []])).append_column(
        "s", pa.array([{"k": [1]}] * 3)
    )
    plan, usable = fb.plan(table, "y"), fb.plan(TABLE, "y")
    assert [*plan.unusable] == ["l", "s.k"]
    assert "list<" in plan.unusable["l"]
    assert (plan.columns, plan.total) == (usable.columns, usable.total)
    assert "not usable: ['l', 's.k']" in repr(plan)
    assert usable.unusable == {}
    assert "not usable" not in repr(usable)


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ([dt.date(2020, 1, 1), dt.date(2021, 1, 1)] * 2, "to a number such as the year$"),
        ([dt.datetime(2020, 1, 1, 7)] * 4, "cast it to string, or to a number such as the year$"),
        ([b"a", b"b"] * 2, "cast it to string or to a number$"),
        ([[1], [2]] * 2, "make a column of one string or number a row of it$"),
    ],
    ids=["dates", "timestamps", "binary", "lists"],
)
def test_labels_of_a_type_that_cannot_be__are_named_for_what_they_are(
    values: list[Any], remedy: str
) -> None:
    """Neither a class nor a fold can be left out, which is what a feature's message advises."""
    table = pa.table({"a": [*"xyxy"], "y": [*"pqpq"], "label": values})
    model = fb.NaiveBayes().fit({"a": [*"xyxy"], "label": [*"pqpq"]}, "label")
    classes: list[Callable[[], Any]] = [
        lambda: fb.NaiveBayes().fit(table, "label"),
        lambda: fb.NaiveBayes().fit(table.select(["a", "y"]), table["label"]),
        lambda: fb.count(table, "label"),
        lambda: fb.compare(table, "label"),
        lambda: fb.evaluate(model, table, "label"),
    ]
    folds: list[Callable[[], Any]] = [
        lambda: fb.k_fold(fb.NaiveBayes(), table, "y", folds="label"),
        lambda: fb.k_fold(fb.NaiveBayes(), table.select(["a", "y"]), "y", folds=table["label"]),
    ]
    for what, calls in (("the class", classes), ("the folds", folds)):
        for call in calls:
            with pytest.raises(fb.SchemaError, match=f"which cannot be {what}: .*{remedy}"):
                call()
