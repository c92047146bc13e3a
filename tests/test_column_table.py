"""model.table(column): what is said of a column beyond the laws of classifiers."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import fastbayes as fb

ROWS = pa.table(
    {
        "sky": ["sun", "sun", "rain", "rain", "rain", None, "fog", "sun"],
        "wind": ["hi", "lo", "hi", "hi", "lo", "lo", "hi", "hi"],
        "x": [1.0, 2.0, 4.0, None, 3.5, 5.0, 6.0, 0.5],
        "play": ["yes", "yes", "no", "no", "no", "no", "no", "yes"],
    }
)
CODES = np.array([[0, 1], [1, 2], [1, 0], [1, 1], [0, 2]])
LABELS = ["a", "b", "b", "a", "b"]


def test_table__smoothed_by_hand():
    lines = fb.NaiveBayes(alpha=0.5).fit(ROWS, "play").table("sky").table.to_pylist()
    n = {"fog": (1, 0), "rain": (3, 0), "sun": (0, 3)}  # of 4 known rows with no, 3 with yes
    for line in lines:
        no, yes = n.pop(line["value"])
        assert (line["count_no"], line["count_yes"]) == (no, yes)
        assert line["proba_no"] == pytest.approx((no + 0.5) / (4 + 1.5))
        assert line["proba_yes"] == pytest.approx((yes + 0.5) / (3 + 1.5))
    assert not n


def test_table__names_the_parent_in_its_title_and_columns():
    model = fb.SPODE(super_parent="wind").fit(ROWS.drop_columns("x"), "play")
    found = model.table("sky")
    assert found.says == "P(value | class, wind)"
    assert found.table.column_names[:2] == ["given_wind", "value"]
    assert model.table("wind").says == "P(value | class)"


def test_table__telling_values_are_those_of_largest_ratio():
    model = fb.NaiveBayes().fit(ROWS, "play")
    found, p = model.table("sky"), {"no": 5 / 8, "yes": 3 / 8}
    ratios = {}
    for line in found.table.to_pylist():
        every = sum(p[c] * line[f"proba_{c}"] for c in p)
        best = max(p, key=lambda c: abs(math.log(line[f"proba_{c}"] / every)))
        ratios[line["value"]] = best, math.log(line[f"proba_{best}"] / every)
    order = sorted(ratios, key=lambda v: -abs(ratios[v][1]))
    assert [one["value"] for one in found.telling] == order
    for one in found.telling:
        assert (one["class"], pytest.approx(one["log_ratio"])) == ratios[one["value"]]


def test_table__joint_margin_is_the_sum_over_the_other_columns():
    rows = ROWS.drop_columns("x")
    model = fb.JointBayes(tau=2.0).fit(rows, "play")
    for name, other in (("sky", "wind"), ("wind", "sky")):
        for line in model.table(name).table.to_pylist():
            values = model.table(other).table["value"].to_pylist()
            cells = pa.table({name: [line["value"]] * len(values), other: values})
            joint = np.exp(model.log_joint(cells) - model.class_log_prior_).sum(axis=0)
            np.testing.assert_allclose([line["proba_no"], line["proba_yes"]], joint, rtol=1e-12)


def test_table__missing_as_a_value_is_null():
    model = fb.NaiveBayes(missing="category").fit(ROWS, "play")
    last = model.table("sky").table.to_pylist()[-1]
    assert last["value"] is None
    assert last["proba_no"] == pytest.approx((1 + 1) / (5 + 4))


def test_table__coefficients_are_those_of_the_column_and_its_pairs():
    model = fb.LogisticRegression(interactions=[("sky", "wind")]).fit(ROWS, "play")
    whole = model.coefficients()
    assert {*model.table("wind").table["feature"].to_pylist()} == {"wind", "sky:wind"}
    own = model.table("x").table
    assert own.equals(whole.take([whole["feature"].to_pylist().index("x")]))


def test_table__a_model_of_another_says_what_that_says():
    model = fb.Calibrated(fb.TAN()).fit(ROWS, "play")
    assert model.table("sky").to_dict() == model.model_.table("sky").to_dict()


def test_table__drop_ins():
    names = ("CategoricalNB", "BernoulliNB", "MultinomialNB", "ComplementNB", "GaussianNB")
    fitted = {name: getattr(fb, name)().fit(CODES, LABELS) for name in names}
    found = {name: model.table("x1").table for name, model in fitted.items()}
    codes = np.exp(fitted["CategoricalNB"].feature_log_prob_[1])
    np.testing.assert_array_equal(found["CategoricalNB"]["proba_b"], codes[1])
    assert found["CategoricalNB"]["count_a"].to_pylist() == [0, 2, 0]
    flags = np.exp(fitted["BernoulliNB"].feature_log_prob_[:, 1])
    np.testing.assert_allclose(found["BernoulliNB"]["proba_a"], [1 - flags[0], flags[0]])
    assert found["BernoulliNB"]["count_b"].to_pylist() == [1, 2]
    shares = np.exp(fitted["MultinomialNB"].feature_log_prob_[:, 1])
    np.testing.assert_allclose(found["MultinomialNB"]["share"], shares)
    weights = fitted["ComplementNB"].feature_log_prob_[:, 1]
    np.testing.assert_array_equal(found["ComplementNB"]["weight"], weights)
    assert found["GaussianNB"]["mean"].to_pylist() == [1.0, pytest.approx(4 / 3)]
    assert found["GaussianNB"]["missing"].to_pylist() == [0.0, 0.0]


def test_table__explains_rows_of_arrays():
    model = fb.CategoricalNB().fit(CODES, LABELS)
    lines = model.explain(CODES[:1]).table(0)
    assert dict(zip(lines["column"].to_pylist(), lines["value"].to_pylist(), strict=True)) == {
        "(prior)": None,
        "x0": "0",
        "x1": "1",
    }


def test_explained_row__streams_and_files(tmp_path):
    model = fb.NaiveBayes().fit(ROWS, "play")
    X = ROWS.drop_columns("play")
    pa.csv.write_csv(X, tmp_path / "rows.csv")
    wanted = model.explain(X).table(3).to_pylist()
    stream = pa.RecordBatchReader.from_batches(X.schema, X.to_batches(max_chunksize=2))
    assert model.explain(stream).table(3).to_pylist() == wanted
    assert model.explain(str(tmp_path / "rows.csv")).table(3).to_pylist() == wanted


@pytest.mark.parametrize("row", [8, -1, 1.0, True])
def test_explained_row__must_be_there(row):
    said = fb.NaiveBayes().fit(ROWS, "play").explain(ROWS.drop_columns("play"))
    with pytest.raises(ValueError, match="there are 8 rows, counted from 0"):
        said.table(row)


def test_table__unknown_column_names_what_is_like_it():
    with pytest.raises(fb.SchemaError, match=r"no column 'skye' .* did you mean 'sky'\?"):
        fb.NaiveBayes().fit(ROWS, "play").table("skye")
    with pytest.raises(ValueError, match="not fitted yet"):
        fb.NaiveBayes().table("sky")


def test_table__as_text_and_json():
    found = fb.TAN().fit(ROWS, "play").table("wind")
    assert str(found).startswith("wind: P(value | class")
    assert "proba_yes" in repr(found)
    assert json.loads(json.dumps(found.to_dict()))["column"] == "wind"
