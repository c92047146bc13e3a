"""Parameters of NaiveBayes: what may be given, what is refused, what statistics must agree with."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastbayes as fb

X = pa.table({"a": ["x", "y", "x", "z", None], "b": [1.0, 2.0, 3.0, 4.0, 2.5]})
Y = ["n", "y", "y", "n", "y"]
STATS = fb.count(X.append_column("play", pa.array(Y)), "play")


@pytest.mark.parametrize("alpha", [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.uint8(2)])
def test_alpha__may_be_any_real_number(alpha: Any) -> None:
    model = fb.NaiveBayes(alpha=alpha).fit(X, Y)
    assert type(model.alpha_) is float
    np.testing.assert_array_equal(
        model.predict_proba(X), fb.NaiveBayes(alpha=2.0).fit(X, Y).predict_proba(X)
    )


@pytest.mark.parametrize("alpha", [-1, np.nan, np.inf, 5e-324, True, "much", None, [1.0]])
def test_alpha__that_cannot_be_is_refused_at_fit(alpha: Any) -> None:
    with pytest.raises(
        ValueError, match=r"alpha=.*: use a finite number >= 0, .* at most, or 'loo'"
    ):
        fb.NaiveBayes(alpha=alpha).fit(X, Y)


def test_alpha__as_small_as_may_be_is_a_limit_and_no_zero() -> None:
    table = {"a": ["u"] * 4 + ["v"] * 8 + ["w"] * 2, "b": ["m"] * 4 + ["n"] * 8 + ["o"] * 2}
    model = fb.NaiveBayes(alpha=1e-300).fit(table, ["p"] * 4 + ["q"] * 8 + ["r"] * 2)
    found = model.predict_proba({"a": ["w"], "b": ["n"]})
    np.testing.assert_allclose(found, [[0.0, 0.5, 0.5]], atol=1e-12)


PRIOR = [0.2, 0.8]


@pytest.mark.parametrize(
    "prior",
    [
        PRIOR,
        tuple(PRIOR),
        np.array(PRIOR),
        pd.Series(PRIOR),
        pd.Series(PRIOR, index=["n", "y"]),
        pl.Series(PRIOR),
        pa.array(PRIOR),
    ],
)
def test_class_prior__may_be_any_sequence(prior: Any, tmp_path: Any) -> None:
    model = fb.NaiveBayes(class_prior=prior).fit(X, Y)
    np.testing.assert_allclose(np.exp(model.class_log_prior_), PRIOR, rtol=1e-15)
    model.save(tmp_path / "m.fb")
    np.testing.assert_array_equal(
        fb.load(tmp_path / "m.fb").predict_proba(X), model.predict_proba(X)
    )


def test_class_prior__with_the_classes_in_another_order_is_refused() -> None:
    prior = pd.Series(Y).value_counts(normalize=True)
    assert list(prior.index) == ["y", "n"]
    with pytest.raises(ValueError, match=r"has the index \['y', 'n'\].* reindex it by these"):
        fb.NaiveBayes(class_prior=prior).fit(X, Y)
    model = fb.NaiveBayes(class_prior=prior.reindex(["n", "y"])).fit(X, Y)
    np.testing.assert_allclose(np.exp(model.class_log_prior_), [0.4, 0.6])


# -- statistics and options --------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"categorical": ["a"]},
        {"categorical": [0]},
        {"domains": {"a": ["z", "y", "x"]}},
        {"domains": {"play": ["n", "y"]}},
    ],
)
def test_statistics__that_agree_give_what_the_rows_give(options: dict[str, Any]) -> None:
    model = fb.NaiveBayes(**options).fit_statistics(STATS)
    again = fb.NaiveBayes(**options).fit(X.append_column("play", pa.array(Y)), "play")
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert model.feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "category"}, "counted with missing='marginalize'"),
        ({"categorical": ["b"]}, "counted with column 'b' as numeric"),
        ({"categorical": [1]}, "counted with column 'b' as numeric"),
        ({"categorical": ["c"]}, "no column 'c'"),
        ({"domains": {"a": ["x", "y", "z", "w"]}}, r"not counted with the model's domains\['a'\]"),
        ({"domains": {"b": [1.0, 2.0]}}, r"not counted with the model's domains\['b'\]"),
        ({"domains": {"c": ["x"]}}, r"not counted with the model's domains\['c'\]"),
        ({"domains": {"play": ["n", "y", "?"]}}, r"with the model's domains\['play'\]"),
    ],
)
def test_statistics__that_contradict_the_options_are_refused(
    options: dict[str, Any], message: str
) -> None:
    model = fb.NaiveBayes(**options)
    with pytest.raises(fb.SchemaError, match=message):
        model.fit_statistics(STATS)
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "n_features_in_")


def test_statistics__counted_with_the_same_options_agree() -> None:
    options: dict[str, Any] = {
        "categorical": ["b"],
        "domains": {"a": ["x", "y", "z", "w"], "b": [1, 2, 3, 4, 2.5]},
    }
    rows = X.append_column("play", pa.array(Y))
    model = fb.NaiveBayes(**options).fit_statistics(fb.count(rows, "play", **options))
    again = fb.NaiveBayes(**options).fit(rows, "play")
    assert again.statistics_ == model.statistics_
    assert fb.NaiveBayes(**options).fit_statistics(again.statistics_).alpha_ == 1


def test_statistics__of_arrays_are_refused() -> None:
    stats = fb.GaussianNB().fit([[1.0], [2.0]], [0, 1]).statistics_
    with pytest.raises(fb.SchemaError, match="not from ArrayStatistics"):
        fb.NaiveBayes().fit_statistics(stats)


def test_partial_fit__goes_on_from_statistics() -> None:
    rows = X.append_column("play", pa.array(Y))
    more = pa.table({"a": ["v", "x"], "b": [9.0, None], "play": ["?", "n"]})
    model = fb.NaiveBayes().fit_statistics(STATS).partial_fit(more, "play")
    whole = fb.NaiveBayes().fit(pa.concat_tables([rows, more]), "play")
    assert model.statistics_.allclose(whole.statistics_)
    assert model.classes_.tolist() == ["?", "n", "y"]
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=1e-12)


def test_refit__to_other_columns_forgets_the_old_ones() -> None:
    model = fb.NaiveBayes().fit(X, Y)
    model.fit([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]], [0, 1])
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")
    assert model.fit(X, Y).feature_names_in_.tolist() == ["a", "b"]


def test_parameter_that_fails__leaves_what_was_learned() -> None:
    model = fb.NaiveBayes().fit(X, Y)
    before = model.predict_proba(X)
    model.set_params(alpha=0.5, class_prior=[0.5, 0.6])
    with pytest.raises(ValueError, match=r"class_prior sums to 1\.1"):
        model.fit(X.slice(1), Y[1:])
    assert model.alpha_ == 1
    assert model.statistics_.n_rows == 5
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_one_class__is_named_as_a_plain_value() -> None:
    with pytest.warns(fb.FastBayesWarning, match="only one class, 3: every"):
        fb.NaiveBayes().fit([[1.0], [2.0]], np.array([3, 3], dtype=np.int16))
    with pytest.warns(fb.FastBayesWarning, match="only one class, 'n': every"):
        fb.NaiveBayes().fit([[1.0], [2.0]], ["n", "n"])


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["n", "y", None], "None at place 2 is a missing value"),
        (np.ma.array(["n", "y"], mask=[0, 1]), "None at place 1 is a missing value"),
        ([0.0, np.nan], "nan at place 1 is a missing value"),
        ({"n", "y"}, "is no list of values"),
        ("ny", "classes='ny' is no list of values"),
        ([["n"], ["y"]], r"\['n'\] at place 0 is no single value"),
        (np.array([["n"], ["y"]]), "is no list of values"),
        (["n", "y", 1], "1 at place 2 is of another kind than 'n'"),
        ([True, 1], "1 at place 1 is of another kind than True"),
        (["n", "y", "n\0"], r"label 'n\\x00' ends in NUL"),
        (np.array(["n", "y", "n\0"], object), r"label 'n\\x00' ends in NUL"),
        ([0, 1, np.inf], "inf at place 2 is infinite"),
    ],
)
def test_classes__that_cannot_be_are_refused(classes: Any, said: str) -> None:
    with pytest.raises(fb.DataError, match=said):
        fb.NaiveBayes().partial_fit(X, Y, classes=classes)


@pytest.mark.parametrize(
    "classes",
    [
        ["y", "n", "w", "n"],
        ("n", "w", "y"),
        np.array(["n", "w", "y"]),
        pd.Series(["n", "w", "y"]),
        pa.array(["n", "w", "y"]),
        pa.chunked_array([["n"], ["w", "y"]]),
    ],
)
def test_classes__are_a_list_or_an_array(classes: Any) -> None:
    assert fb.NaiveBayes().partial_fit(X, Y, classes=classes).classes_.tolist() == ["n", "w", "y"]


def test_classes__are_fractions_where_the_labels_of_fit_may_be() -> None:
    frame, labels = {"a": ["u", "v"]}, [0.5, 1.0]
    pairs: list[tuple[Any, Any]] = [({**frame, "y": labels}, "y")]
    pairs += [(frame, kind(labels)) for kind in (pd.Series, pa.array)]
    for rows, y in pairs:
        model = fb.NaiveBayes().partial_fit(rows, y, classes=[0.5, 1, 1.5])
        assert model.classes_.tolist() == [0.5, 1.0, 1.5]
    with pytest.raises(fb.DataError, match="Unknown label type: continuous"):
        fb.NaiveBayes().partial_fit(frame, labels, classes=[0.5, 1, 1.5])


def test_classes__may_be_members_of_an_enumeration_of_text() -> None:
    class Answer(StrEnum):
        NO = "n"

    for classes in ([Answer.NO, "w", "y"], ["w", "y", Answer.NO]):
        model = fb.NaiveBayes().partial_fit(X, Y, classes=classes)
        assert model.classes_.tolist() == ["n", "w", "y"]
