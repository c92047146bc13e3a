"""A predictor says of one row what its model says of a table of that row, errors and all."""

from __future__ import annotations

import datetime
import pickle
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastbayes as fb

RNG = np.random.default_rng(0)
N = 400
CODES = RNG.integers(0, 5, (6, N))
TABLE = pa.table(
    {
        "text": pa.array([f"v{code}" for code in CODES[0]], mask=CODES[1] == 0),
        "flag": pa.array(CODES[2] > 2),
        "number": pa.array(CODES[3] + RNG.normal(size=N), mask=CODES[4] == 0),
        "whole": pa.array(CODES[5] - 2),
        "half": pa.array(CODES[1] * 0.5).dictionary_encode(),  # numbers that are categories
        "y": pa.array([f"c{code}" for code in (CODES[0] + CODES[3]) % 3]),
    }
)
MODELS = {
    "naive Bayes": fb.NaiveBayes(),
    "smooth": fb.NaiveBayes(unseen="smooth"),
    "strict": fb.NaiveBayes(unseen="error", missing="category"),
    "any density": fb.NaiveBayes(numeric="auto"),
    "Student's t": fb.NaiveBayes(numeric="student"),
    "weighted": fb.WeightedNaiveBayes(),
    "SPODE": fb.SPODE(),
    "TAN": fb.TAN(),
    "KDB": fb.KDB(k=2),
    "AODE": fb.AODE(),
    "A2DE": fb.A2DE(),
    "network": fb.NetworkClassifier(),
    "joint": fb.JointBayes(),
    "joint Gaussian": fb.JointGaussian(),
    "logistic": fb.LogisticRegression(),
    "calibrated": fb.Calibrated(fb.NaiveBayes()),
    "blend": fb.Blend(),
}
NUMERIC = {"QDA": fb.GaussianBayes(), "LDA": fb.GaussianBayes(covariance="tied")}


def fitted(name: str) -> tuple[Any, pa.Table]:
    if name in NUMERIC:
        table = TABLE.select(["number", "whole", "y"])
        return NUMERIC[name].fit(table, "y"), table.drop_columns("y")
    return MODELS[name].fit(TABLE, "y"), TABLE.drop_columns("y")


def said(answer: Any, row: Any) -> Any:
    """Return an answer, or what its error says."""
    try:
        found = answer(row)
    except Exception as error:
        return type(error), str(error)
    return found.tolist() if isinstance(found, np.ndarray) else found


def as_table(row: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in row.items()}


def assert_same(model: Any, predictor: Any, row: dict[str, Any]) -> None:
    expected = said(lambda row: model.predict_proba(as_table(row))[0], row)
    found = said(predictor.predict_proba, row)
    if isinstance(expected, list):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        (label,) = model.predict(as_table(row)).tolist()
        assert predictor.predict(row) == label
        assert type(predictor.predict(row)) is type(label)
    else:
        assert found == expected
        assert said(predictor.predict, row) == expected


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
@pytest.mark.parametrize("name", [*MODELS, *NUMERIC])
def test_one_row__as_a_table_of_it(name: str) -> None:
    model, features = fitted(name)
    predictor = model.predictor()
    assert predictor.classes_.tolist() == model.classes_.tolist()
    rows = features.slice(0, 30).to_pylist()
    for i, row in enumerate(rows):
        assert_same(model, predictor, row)
        one = features.slice(i, 1)
        for arrow in (one, one.combine_chunks().to_batches()[0]):
            assert predictor.predict(arrow) == predictor.predict(row)
            assert predictor.predict_proba(arrow).tolist() == predictor.predict_proba(row).tolist()
        for missing in (None, float("nan")):  # of text not a number is no text
            assert_same(model, predictor, row | {features.column_names[i % 2]: missing})


ODD = [
    *("v9", "v1", "", 1, -1, 0, 7, 1.0, 2.5, True, False, None, float("nan"), float("inf")),
    *(10**400, 2**63, [1], {"a": 1}, b"v1", datetime.date(2026, 1, 2), datetime.date(2027, 1, 1)),
    *(np.str_("v1"), np.int64(1), np.float64(0.5), np.float32(0.5), np.bool_(True), np.array(1)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["naive Bayes", "smooth", "strict", "TAN", "logistic"])
@pytest.mark.parametrize("column", ["text", "flag", "number", "whole", "half"])
def test_odd_values__are_what_the_model_takes_them_for(name: str, column: str) -> None:
    model, features = fitted(name)
    predictor, usual = model.predictor(), features.slice(3, 1).to_pylist()[0]
    for value in ODD:
        assert_same(model, predictor, usual | {column: value})


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo", "America/New_York"])
def test_moments__of_which_python_has_no_local_time(zone: str) -> None:
    utc = datetime.UTC
    hours = [datetime.datetime(2024, 1, 1, tzinfo=utc) + datetime.timedelta(hours=7 * i)
             for i in range(300)]  # fmt: skip
    columns = {"when": pa.array(hours, pa.timestamp("us", zone)), "y": [i % 3 for i in range(300)]}
    model = fb.NaiveBayes().fit(pa.table(columns), "y")
    predictor = model.predictor()
    for moment in (
        datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=utc),
        datetime.datetime(1, 1, 1, tzinfo=utc),
    ):
        wanted = model.predict_proba({"when": [moment]})[0]
        np.testing.assert_allclose(predictor.predict_proba({"when": moment}), wanted, rtol=1e-12)


def test_rows_of_arrow__as_the_model_takes_them() -> None:
    model, features = fitted("naive Bayes")
    predictor = model.predictor()
    odd = {
        "number": [pa.float32(), pa.int8(), pa.decimal128(20, 10), pa.string()],
        "text": [pa.large_string(), pa.string_view(), pa.binary()],
        "whole": [pa.uint8(), pa.float64(), pa.bool_()],
    }
    for name, kinds in odd.items():
        for kind in kinds:
            some = features.filter(pc.is_valid(features[name])).slice(0, 1)
            values = pc.cast(pc.abs(some[name]) if name != "text" else some[name], kind, safe=False)
            row = some.set_column(some.column_names.index(name), name, values)
            expected = said(lambda row: model.predict_proba(row)[0], row)
            found = said(predictor.predict_proba, row)
            if isinstance(expected, list):
                np.testing.assert_allclose(found, expected, rtol=1e-9)
            else:
                assert found == expected


@pytest.mark.parametrize("n", [0, 2])
def test_one_row_at_a_time(n: int) -> None:
    model, features = fitted("naive Bayes")
    with pytest.raises(ValueError, match=rf"^{n} rows: a predictor takes one; ask the model$"):
        model.predictor().predict(features.slice(0, n))


def test_columns__missing_ones_are_named_and_others_left_out() -> None:
    model, features = fitted("naive Bayes")
    predictor, row = model.predictor(), features.slice(0, 1).to_pylist()[0]
    assert predictor.predict(row | {"other": object()}) == predictor.predict(row)
    del row["flag"]
    for few in (row, {}):
        with pytest.raises(fb.SchemaError, match=r"^no column '(flag|text)' in the row"):
            predictor.predict(few)
    with pytest.raises(TypeError, match="a row is a dict, or a record batch of one row, not"):
        predictor.predict("text")


def test_predictor__is_of_the_model_as_it_was() -> None:
    model = fb.NaiveBayes().fit({"x": ["a", "b"], "y": ["p", "q"]}, "y")
    predictor = model.predictor()
    model.fit({"x": ["a", "c"], "y": ["q", "p"]}, "y")
    assert predictor.predict({"x": "a"}) == "p"
    assert predictor.predict({"x": "c"}) == "p"  # unseen: the prior, whose tie goes to the first
    assert pickle.loads(pickle.dumps(predictor)).predict({"x": "b"}) == "q"
    assert repr(predictor) == "<Predictor of NaiveBayes()>"


def test_predictor__of_a_model_that_is_not_fitted() -> None:
    with pytest.raises(Exception, match="not fitted"):
        fb.NaiveBayes().predictor()


def test_null_values__mean_missing() -> None:
    table = {"x": ["a", "?", "b", "a"], "y": ["p", "q", "q", "p"]}
    model = fb.NaiveBayes().fit_statistics(fb.count(table, "y", null_values=["?"]))
    predictor = model.predictor()
    for value in ("?", "a", None):
        assert_same(model, predictor, {"x": value})


@given(cuts=st.sets(st.floats(-5, 5), min_size=1, max_size=5), value=st.floats(-6, 6))
def test_bins__begin_behind_their_cut(cuts: set[float], value: float) -> None:
    points = sorted({*cuts, value})
    table = {"x": [p + e for p in points for e in (-1.0, 0.0, 1.0)]}
    table["y"] = [f"c{i % 2}" for i in range(len(table["x"]))]
    model = fb.TAN(discretize={"x": points}).fit(table, "y")
    predictor = model.predictor()
    for number in (value, float(np.nextafter(value, 9)), float(np.nextafter(value, -9))):
        assert_same(model, predictor, {"x": number})


def test_threads__share_a_predictor() -> None:
    model, features = fitted("TAN")
    predictor, rows = model.predictor(), features.to_pylist()
    expected, wrong = model.predict(features).tolist(), []

    def work() -> None:
        wrong.extend(i for i, row in enumerate(rows) if predictor.predict(row) != expected[i])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
