"""Models of another `missing=` in one comparison, from the same counts as all others."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes.models.registry import candidates

N = 240
NAMES = [
    *("naive-bayes", "naive-bayes-bins", "spode", "tan", "kdb", "aode", "a2de", "joint-bayes"),
    *("joint-gaussian", "weighted-naive-bayes", "logistic", "logistic-pairs", "network"),
]


@pytest.fixture(scope="module")
def table():
    """Whether `a` and `x` are missing says more of the class than what they are."""
    random = np.random.default_rng(0)
    y = random.integers(0, 3, N)
    gone = random.random((2, N)) < np.array([0.1, 0.4, 0.8])[y]
    a, b = (y + random.integers(0, 4, (2, N))) % 4
    return pa.table(
        {
            "a": pa.array(a.astype(str), mask=gone[0]),
            "b": pa.array(b.astype(str)),
            "x": pa.array(y + 2 * random.normal(size=N), mask=gone[1]),
            "y": pa.array(y.astype(str)),
        }
    )


@pytest.fixture(autouse=True)
def _few_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fb.FastBayesWarning)
        yield


def of_category(name):
    entry, candidate = candidates()[name]
    return entry.load()(**{**candidate.parameters, "missing": "category"})


@pytest.mark.parametrize("validation", ["k_fold", "leave_one_out"])
def test_models_with_missing_values_of_their_own_are_those_of_a_comparison_of_such(
    table, validation
):
    """The counts are the same: what differs is what models make of them."""
    alone = fb.compare(table, "y", models=NAMES, missing="category", validation=validation)
    among = {name: of_category(name) for name in NAMES} | {"other": fb.AODE()}
    board = fb.compare(table, "y", models=among, validation=validation)
    for name in NAMES:
        one, other = alone[name], board[name]
        assert (one.figures is None) == (other.figures is None), name
        if one.figures is not None:
            assert one.figures.log_loss == other.figures.log_loss, name
            proba = one.model, other.model
            assert np.array_equal(*(np.asarray(m.predict_proba(table)) for m in proba)), name
    by_default = fb.compare(table, "y", models="aode", validation=validation)
    assert board["other"].figures.log_loss == by_default["aode"].figures.log_loss


def test_it_takes_part_unasked_where_a_value_is_missing(table):
    board = fb.compare(table, "y", race=False)
    asked = fb.compare(table, "y", models=["aode-missing", "aode"], missing="category")
    assert board["aode-missing"].figures.log_loss == asked["aode"].figures.log_loss
    assert board["aode-missing"].figures.log_loss < board["aode"].figures.log_loss - 0.05
    assert asked["aode-missing"].figures.log_loss == asked["aode"].figures.log_loss

    whole = table.drop_columns(["a", "x"])
    assert "aode-missing" not in [entry.name for entry in fb.compare(whole, "y").entries]
    named = fb.compare(whole, "y", models=["aode", "aode-missing"])
    assert named["aode"].figures.log_loss == named["aode-missing"].figures.log_loss
    # A number that is missing is in no bin: then one of its bins is "missing".
    assert "aode-missing" in [e.name for e in fb.compare(table.drop_columns(["a"]), "y").entries]


def test_a_blend_has_it_saves_it_and_says_it_of_new_rows(table, tmp_path):
    blend = fb.Blend().fit(table, "y")
    assert blend.members_["aode-missing"].model.missing == "category"
    assert blend.members_["aode"].model.missing == "marginalize"
    blend.save(tmp_path / "blend.fb")
    again = fb.load(tmp_path / "blend.fb")
    assert np.array_equal(blend.predict_proba(table), again.predict_proba(table))
    gone = pa.table({"a": [None], "b": ["1"], "x": [None]}, schema=table.schema.remove(3))
    assert blend.predict(gone)[0] == "2"
    assert "aode-missing" not in fb.Blend().fit(table.drop_columns(["a", "x"]), "y").dropped_


def test_statistics_for_another_idea_of_missing_values_are_the_same_counts(table):
    stats = fb.count(table, "y", discretize="mdl", pairs=True, folds=3)
    asked = fb.count(table, "y", discretize="mdl", pairs=True, folds=3, missing="category")
    assert stats.treating_missing("category") == asked
    assert stats.treating_missing("marginalize") is stats
    with pytest.raises(ValueError, match="missing='drop': use 'marginalize' or 'category'"):
        stats.treating_missing("drop")
    other = fb.AODE(missing="category").fit_statistics(stats.treating_missing("category"))
    fitted = fb.AODE(missing="category").fit(table, "y")
    assert np.array_equal(other.predict_proba(table), fitted.predict_proba(table))
