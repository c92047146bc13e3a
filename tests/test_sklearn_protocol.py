"""scikit-learn's estimator protocol: its own checks, its tools, and the messages at the door."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import fastbayes
from fastbayes.core.errors import DataError, FastBayesWarning, SchemaError
from fastbayes.models.estimator.inputs import (
    check_features,
    check_labels,
    check_weight,
    encode_labels,
)
from fastbayes.models.registry import MODELS
from fastbayes.models.sklearn.naive_bayes import (
    BernoulliNB,
    CategoricalNB,
    ComplementNB,
    GaussianNB,
    MultinomialNB,
)

DROP_INS = [BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB]
SPARSE = [BernoulliNB, ComplementNB, MultinomialNB]
CLASSIFIERS = [entry.load() for entry in MODELS.values()]
COVARIANCES = ["tied", "diagonal", "spherical"]

# Few rows of few values: covariances that are none. Checks of scikit-learn cut steps short.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the covariance of",
    "ignore:column .* hardly varies",
    "ignore:solver=.* did not converge",
    "ignore:some rows can be told apart",
)


@pytest.fixture(params=CLASSIFIERS, ids=lambda cls: cls.__name__)
def model(request):
    return request.param()


@pytest.fixture
def rows():
    random = np.random.default_rng(5)
    X = random.integers(0, 4, (90, 5))
    y = (X[:, 0] + random.integers(0, 3, 90) > 3).astype(int) + (X[:, 1] > 2)
    return X, np.array(["no", "some", "yes"])[y], random.integers(1, 4, 90).astype(float)


def by_folds(estimator):
    """Return the checks that folds fail: two equal rows may be in two, a row of weight 2 is not."""
    if not isinstance(estimator, fastbayes.Blend):
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "folds"}


@pytest.mark.filterwarnings("ignore:there is only one class")
@parametrize_with_checks(
    [cls() for cls in CLASSIFIERS]
    + [fastbayes.GaussianBayes(covariance=name) for name in COVARIANCES]
    + [fastbayes.NaiveBayes(numeric=kind) for kind in ("student", "kde", "auto", "mdl")]
    # The check compares optima to seven figures.
    + [fastbayes.LogisticRegression("l1", tol=1e-9), fastbayes.LogisticRegression(None)],
    expected_failed_checks=by_folds,
)
def test_common_checks(estimator, check):
    check(estimator)


# -- parameters --------------------------------------------------------------------------------


def test_clone_copies_parameters_and_nothing_learned(model, rows):
    X, y, _ = rows
    first = next(iter(model.get_params()))
    model.set_params(**{first: 0.5}) if first in ("alpha", "var_smoothing") else None
    copy = clone(model.fit(X, y))
    assert copy.get_params() == model.get_params()
    assert is_classifier(copy)
    assert not hasattr(copy, "classes_")
    with pytest.raises(NotFittedError, match=type(model).__name__):
        copy.predict(X)


def test_set_params_refuses_an_unknown_name_and_sets_nothing(model):
    before = model.get_params()
    known = next(iter(before))
    with pytest.raises(ValueError, match="Invalid parameter 'beta'"):
        model.set_params(**{known: 7, "beta": 1})
    assert model.get_params() == before


def test_repr_shows_what_differs_from_the_default():
    assert repr(MultinomialNB()) == "MultinomialNB()"
    assert repr(MultinomialNB(alpha=0.5, class_prior=[0.5, 0.5])) == (
        "MultinomialNB(alpha=0.5, class_prior=[0.5, 0.5])"
    )
    assert repr(GaussianNB(priors=np.array([1.0]))) == "GaussianNB(priors=array([1.]))"


def test_predicting_changes_nothing(model, rows):
    X, y, _ = rows
    model.fit(X, y)
    before = {name: id(value) for name, value in vars(model).items()}
    learned = model.statistics_
    copy = pickle.loads(pickle.dumps(learned))
    for method in ("predict", "predict_proba", "predict_log_proba", "log_joint", "explain"):
        getattr(model, method)(X)
    assert {name: id(value) for name, value in vars(model).items()} == before
    assert learned == copy


# -- tools -------------------------------------------------------------------------------------


def test_cross_val_score_in_a_pipeline(model, rows):
    X, y, _ = rows
    pipeline = make_pipeline(FunctionTransformer(), model)
    scores = cross_val_score(pipeline, X, y, cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.4  # three classes; a constant gets 0.4


def test_grid_search_refits_the_best(rows):
    X, y, _ = rows
    search = GridSearchCV(MultinomialNB(), {"alpha": [1e-3, 1.0, 1e3]}, cv=3).fit(X, y)
    reference = GridSearchCV(
        sklearn.naive_bayes.MultinomialNB(), {"alpha": [1e-3, 1.0, 1e3]}, cv=3
    ).fit(X, y)
    assert search.best_params_ == reference.best_params_
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], reference.cv_results_["mean_test_score"]
    )


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(model, rows, method):
    X, y, _ = rows
    proba = CalibratedClassifierCV(model, method=method, cv=3).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-12)
    assert (proba[np.arange(len(y)), np.searchsorted(np.unique(y), y)].mean()) > 0.4


def test_pipeline_is_shown_as_html(model):
    assert type(model).__name__ in make_pipeline(FunctionTransformer(), model)._repr_html_()


def test_routing_needs_a_request(model, rows):
    X, y, w = rows
    with pytest.raises(RuntimeError, match="enable_metadata_routing"):
        model.set_fit_request(sample_weight=True)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(FunctionTransformer(), model)
        with pytest.raises(ValueError, match="sample_weight"):
            pipeline.fit(X, y, sample_weight=w)
        assert model.set_fit_request(sample_weight=True) is model
        assert model.get_metadata_routing().fit.requests == {"sample_weight": True}
        assert clone(model).get_metadata_routing().fit.requests == {"sample_weight": True}
        model.set_score_request(sample_weight="importance")
        pipeline.fit(X, y, sample_weight=w)
    weighted = clone(model).fit(X, y, sample_weight=w)
    np.testing.assert_array_equal(model.predict_proba(X), weighted.predict_proba(X))
    assert not np.allclose(clone(model).fit(X, y).predict_proba(X), weighted.predict_proba(X))


def test_routing_reaches_the_score(model, rows):
    X, y, w = rows
    w = np.where(y == "no", 10.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=False).set_score_request(sample_weight=True)
        scores = cross_validate(model, X, y, cv=3, params={"sample_weight": w})["test_score"]
        assert model.get_metadata_routing().score.requests == {"sample_weight": True}
    assert not np.allclose(scores, cross_val_score(clone(model), X, y, cv=3))


def test_routing_knows_the_arguments_of_partial_fit():
    routing = MultinomialNB().get_metadata_routing()
    assert routing.partial_fit.requests == {"classes": None, "sample_weight": None}
    with sklearn.config_context(enable_metadata_routing=True):
        asked = MultinomialNB().set_partial_fit_request(classes=True).get_metadata_routing()
    assert asked.partial_fit.requests == {"classes": True, "sample_weight": None}


def test_score_is_weighted_accuracy(model, rows):
    X, y, w = rows
    right = model.fit(X, y).predict(X) == y
    assert model.score(X, y) == pytest.approx(right.mean())
    assert model.score(X, y, w) == pytest.approx(np.average(right, weights=w))
    assert model.score(X, y.astype(object)) == model.score(X, y)


# -- without scikit-learn ----------------------------------------------------------------------


def test_works_where_scikit_learn_is_not_installed():
    program = """
import sys, warnings
for name in ("sklearn", "scipy", "pandas"):
    sys.modules[name] = None
import numpy as np
from fastbayes.models.sklearn.naive_bayes import *
from fastbayes.core.errors import FastBayesWarning, NotFittedError
X, y = np.array([[0, 1], [2, 0], [1, 1], [0, 2]]), np.array([[0], [1], [1], [0]])
for cls in (BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB):
    try:
        cls().predict(X)
    except NotFittedError:
        pass
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = cls(**cls().get_params()).fit(X, y)
    assert [w.category for w in caught] == [FastBayesWarning], caught
    assert model.predict_proba(X).shape == (4, 2)
    assert model.score(X, y.ravel()) >= 0.5
    repr(model)
print("done")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "done\n", run.stderr


# -- the door ----------------------------------------------------------------------------------

GOOD = np.array([[0.0, 1.0], [2.0, 3.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros((12, 0)), ValueError, r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1"),
        (np.zeros((0, 3)), ValueError, r"0 sample\(s\)"),
        (np.zeros(3), ValueError, "Reshape your data"),
        (np.float64(3), ValueError, "got scalar array"),
        (np.zeros((2, 2, 2)), ValueError, "dim 3"),
        (GOOD + 1j, ValueError, "Complex data not supported"),
        ([[0.0, np.nan]], ValueError, "Input X contains NaN: column 1, row 0"),
        ([[0.0, 1.0], [-np.inf, 1.0]], ValueError, "infinity .*: column 0, row 1"),
        ([["a", "1"], ["b", "2"]], ValueError, "column 0, row 0: .*'a'.* is not a number"),
        (np.array([[{}, 1]], dtype=object), TypeError, "argument must be a string or a real"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), ValueError, "datetime64"),
        (scipy.sparse.csr_array(GOOD), TypeError, "[Ss]parse"),
        (pd.DataFrame({"a": [1.0, None], "b": [1, 2]}), ValueError, "NaN: column 'a', row 1"),
        (pl.DataFrame({"a": [1, 2], "b": [1, None]}), ValueError, "NaN: column 'b', row 1"),
        (pa.table({"a": [1, 2], "b": [1, None]}), ValueError, "NaN: column 'b', row 1"),
        (pd.DataFrame({"a": [1.0], 0: [1]}), TypeError, "Feature names are only supported if"),
        (pd.DataFrame({"a": ["x"]}), ValueError, "column 'a', row 0: 'x' is not a number"),
        (
            pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
            ValueError,
            "NaN: column 'a', row 1",
        ),
    ],
)
def test_door_refuses_features(X, error, message):
    with pytest.raises(error, match=message) as caught:
        check_features(GaussianNB(), X, reset=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cls", SPARSE)
def test_door_names_the_cell_of_a_sparse_matrix(cls):
    X = scipy.sparse.csr_array(np.array([[0.0, 0.0, 1.0], [0.0, np.nan, 2.0]]))
    with pytest.raises(DataError, match="NaN: column 1, row 1"):
        cls().fit(X, [0, 1])
    with pytest.raises(DataError, match="Complex"):
        cls().fit(scipy.sparse.csr_array(np.eye(2) * 1j), [0, 1])


@pytest.mark.parametrize(
    "X",
    [
        GOOD,
        GOOD.tolist(),
        GOOD.astype(object),
        np.asfortranarray(GOOD),
        GOOD.astype(np.float32),
        GOOD.astype(np.uint8),
        np.ma.masked_array(GOOD),
        pd.DataFrame(GOOD),
        pd.DataFrame(GOOD).astype("Int64"),
        pl.DataFrame(GOOD),
        pa.table({"a": GOOD[:, 0], "b": GOOD[:, 1]}),
        pa.table({"a": GOOD[:, 0], "b": GOOD[:, 1]}).to_reader(),
    ],
    ids=lambda X: f"{type(X).__module__}.{type(X).__name__}",
)
def test_door_takes_anything_numeric(X):
    checked = check_features(GaussianNB(), X, reset=True)
    np.testing.assert_array_equal(checked, GOOD)


def test_door_does_not_drop_a_mask():
    with pytest.raises(DataError, match="NaN: column 1, row 0"):
        check_features(GaussianNB(), np.ma.masked_equal(GOOD, 1.0), reset=True)


def test_wrong_width_is_named(model, rows):
    X, y, _ = rows
    model.fit(X[:, :4], y)
    name = type(model).__name__
    with pytest.raises(ValueError, match=f"X has 1 features, but {name} is expecting 4 features"):
        model.predict(X[:, :1])


@pytest.mark.parametrize("cls", DROP_INS)
def test_names_must_match_in_order(cls, rows):
    X, y, _ = rows
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = cls().fit(frame, y)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.feature_names_in_.dtype == object
    with pytest.raises(SchemaError, match="must be in the same order as they were in fit"):
        model.predict(frame[list("edcba")])
    with pytest.raises(SchemaError, match=r"unseen at fit time:\n- z\nF.*missing:\n- a\n"):
        model.predict(frame.rename(columns={"a": "z"}))
    with pytest.warns(FastBayesWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(X), model.predict(frame))
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    with pytest.warns(FastBayesWarning, match="was fitted without feature names"):
        model.predict(frame)


@pytest.mark.parametrize("cls", DROP_INS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_target_may_be_a_column(cls, frame, rows):
    X, y, _ = rows
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    model = cls().fit(frame({**columns, "y": y}), "y")
    assert model.feature_names_in_.tolist() == list(columns)
    expected = cls().fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(frame(columns)), expected.predict_proba(X), rtol=1e-12
    )
    assert model.score(frame({**columns, "y": y}), "y") == expected.score(X, y)
    with pytest.raises(SchemaError, match="no column 'z'"):
        cls().fit(frame(columns), "z")


def test_target_by_name_needs_a_frame():
    with pytest.raises(SchemaError, match="names a column, but X is a ndarray"):
        MultinomialNB().fit(GOOD, "y")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        ([0.0, 1.0, np.nan], "Input y contains NaN: row 2"),
        ([0.0, np.inf, 1.0], "Input y contains infinity: row 1"),
        ([0.1, 0.2, 0.5], "Unknown label type: continuous"),
        (np.array(["a", 1, "b"], dtype=object), "Unknown label type: y has 1 of type int in row 1"),
        (np.array(["a", None, "b"], dtype=object), "Input y contains NaN: row 1"),
        (np.array([b"a", b"b"]), "Unknown label type"),
        (np.zeros((3, 2)), r"y should be a 1d array, got an array of shape \(3, 2\)"),
        ([1j, 2j, 3j], "Complex data not supported"),
        ([0, 1], r"inconsistent numbers of samples: \[3, 2\]"),
    ],
)
def test_door_refuses_labels(y, message):
    with pytest.raises(ValueError, match=message):
        GaussianNB().fit(GOOD, y)


def test_a_column_of_labels_is_flattened_with_a_warning():
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        labels = check_labels(GaussianNB(), [[1], [2]])
    assert labels.tolist() == [1, 2]


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, -1, 3, 7]),
        np.array([-128, 127, 0, 0], dtype=np.int8),
        np.array([2**63, 2**64 - 1, 2**63], dtype=np.uint64),
        np.array([-(2**63), 2**63 - 1, 0]),
        np.array([2.0, -1.0, 2.0]),
        np.array([1e300, -1e300, 5.0]),
        np.array([True, False, True]),
        np.array(["b", "ä", "a", "b"]),
        np.array(["b", "zz", "b"], dtype=object),
        np.array([10**6, 0, 10**6]),
    ],
    ids=str,
)
def test_labels_are_encoded_in_sorted_order(labels):
    classes, codes = encode_labels(labels)
    expected, inverse = np.unique(
        labels.astype(str) if labels.dtype == object else labels, return_inverse=True
    )
    np.testing.assert_array_equal(classes, expected)
    assert classes.dtype == expected.dtype
    np.testing.assert_array_equal(codes, inverse)
    assert codes.dtype == np.uint8


def test_labels_are_encoded_by_given_classes():
    classes = np.array([1, 3, 5, 7])
    assert encode_labels(np.array([7, 1, 1]), classes)[1].tolist() == [3, 0, 0]
    for wrong in (2, 8, 0):
        with pytest.raises(DataError, match=rf"label\(s\) \[{wrong}\] in y do not exist"):
            encode_labels(np.array([3, wrong]), classes)


def test_many_classes_are_encoded_by_two_bytes_and_no_more():
    _, codes = encode_labels(np.arange(65_536))
    assert codes.dtype == np.uint16
    assert codes[-1] == 65_535
    with pytest.raises(DataError, match="65537 classes"):
        encode_labels(np.arange(65_537))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, -2, 1], "row 1 weighs -2"),
        ([1, 1, np.nan], "row 2 weighs nan"),
        ([np.inf, 1, 1], "row 0 weighs inf"),
        ([0, 0, 0], "weights must contain at least one non-zero"),
        ([1, 1], r"sample_weight.shape == \(2,\), expected \(3,\)"),
        (np.ones((3, 1)), "Sample weights must be 1D"),
    ],
)
def test_door_refuses_weights(weight, message):
    with pytest.raises(ValueError, match=message):
        check_weight(weight, 3)
    with pytest.raises(ValueError, match=message):
        GaussianNB().fit(GOOD, [0, 1, 1], sample_weight=weight)


def test_one_weight_stands_for_all():
    assert check_weight(None, 3) is None
    assert check_weight(2, 3).tolist() == [2.0, 2.0, 2.0]
    assert check_weight([0, 0], 2, allow_zero=True).tolist() == [0.0, 0.0]
