"""The five drop-in classes against scikit-learn, live, and any batching against fit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
from drop_in_cases import (
    CLOSE,
    DISCRETE,
    NAMES,
    PRIOR,
    SPARSE,
    assert_same_answers,
    assert_same_attributes,
    both,
    rows,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import naive_bayes as sk
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

from fastbayes.core.errors import DataError
from fastbayes.models.sklearn import naive_bayes as fb

COMMON = {
    "alpha": [1.0, 0.0, 1e-12, 2.5, "array"],
    "force_alpha": [True, False],
    "fit_prior": [True, False],
    "class_prior": [None, PRIOR],
}
OWN = {
    # scikit-learn's adds an array of alpha to the classes, not to the features.
    "BernoulliNB": COMMON | {"alpha": [1.0, 0.0, 1e-12, 2.5], "binarize": [0.0, 1.5, None]},
    "CategoricalNB": COMMON
    | {"alpha": [1.0, 0.0, 1e-12, 2.5], "min_categories": [None, 7, [4, 5, 6, 4]]},
    "ComplementNB": COMMON | {"norm": [False, True]},
    "GaussianNB": {"priors": [None, PRIOR], "var_smoothing": [1e-9, 0.0, 0.1]},
    "MultinomialNB": COMMON,
}
COMBINATIONS = [
    pytest.param(
        name, dict(zip(grid, values, strict=True)), id=f"{name}-{'-'.join(map(str, values))}"
    )
    for name, grid in OWN.items()
    for values in itertools.product(*grid.values())
]


# -- equal to scikit-learn ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:alpha too small", "ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize(("name", "params"), COMBINATIONS)
def test_equals_sklearn_for_every_parameter(name, params):
    X, y, weight = rows(name)
    if params.get("alpha") == "array":
        params = params | {"alpha": np.array([0.5, 1.0, 2.0, 0.1])}
    if params.get("binarize", 0) is None:
        X = (X > 0).astype(int)
    for w in (None, weight):
        ours, theirs = both(name, **params)
        ours.fit(X, y, sample_weight=w)
        theirs.fit(X, y, sample_weight=w)
        assert_same_attributes(ours, theirs)
        assert_same_answers(ours, theirs, X)


@st.composite
def problems(draw):
    """Any rows, classes, weights for one of the five, with random parameters."""
    name = draw(st.sampled_from(NAMES))
    n, d = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    labels = draw(
        st.sampled_from([[0, 1], [3], [-2, 0, 7], ["no", "yes"], [False, True], [1.0, 2.0]])
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["i8", "u1", "f8", "i2"]))
    X = random.integers(0, draw(st.integers(2, 9)), (n, d)).astype(kind)
    if name == "GaussianNB" and kind == "f8":
        X = X * random.normal(size=d) * 100 + 1e5
    y = random.choice(labels, n)
    weight = random.uniform(0.1, 4, n) if draw(st.booleans()) else None
    params = {}
    if name == "GaussianNB":
        params["var_smoothing"] = draw(st.sampled_from([1e-9, 1e-3]))
        assume((X.max(axis=0) > X.min(axis=0)).any())
    else:
        params["alpha"] = draw(st.floats(1e-3, 10))
        params["fit_prior"] = draw(st.booleans())
    if name == "ComplementNB":
        params["norm"] = draw(st.booleans()) and d > 1
    if draw(st.booleans()):
        X = np.asfortranarray(X)
    return name, params, X, y, weight


@given(problems())
def test_equals_sklearn_on_any_rows(problem):
    name, params, X, y, weight = problem
    ours, theirs = both(name, **params)
    ours.fit(X, y, weight)
    theirs.fit(X, y, weight)
    # The variance of 1e5 ± 1 keeps 1e-9 in neither; what follows from it must agree.
    assert_same_attributes(ours, theirs) if name != "GaussianNB" else None
    tolerance = {"rtol": 1e-7, "atol": 1e-6} if name == "GaussianNB" else CLOSE
    np.testing.assert_allclose(ours.log_joint(X), theirs.predict_joint_log_proba(X), **tolerance)
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 2, 30, 300])
def test_equals_sklearn_for_any_number_of_classes(name, k):
    X, y, weight = rows(name, n=2 * k + 50, d=7, k=k)
    for w in (None, weight):
        ours, theirs = both(name)
        assert_same_attributes(ours.fit(X, y, w), theirs.fit(X, y, w))
        assert_same_answers(ours, theirs, X)


@pytest.mark.parametrize("name", NAMES)
def test_equals_sklearn_over_several_blocks(name):
    X, y, weight = rows(name, n=3000, d=100, k=4)
    ours, theirs = both(name)
    assert_same_attributes(ours.fit(X, y, weight), theirs.fit(X, y, weight))
    assert_same_answers(ours, theirs, X)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_of_weight_zero_keeps_its_place(name):
    X, y, weight = rows(name)
    weight[y == 1] = 0
    ours, theirs = both(name)
    ours.fit(X, y, weight)
    with np.errstate(divide="ignore"):
        assert_same_attributes(ours, theirs.fit(X, y, weight))
        if name != "GaussianNB":
            assert_same_answers(ours, theirs, X)
    assert ours.classes_.tolist() == [0, 1, 2]
    if name != "ComplementNB":
        assert (ours.predict_proba(X)[:, 1] == 0).all()


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("weighted", [False, True])
def test_partial_fit_equals_sklearn_step_by_step(name, weighted):
    X, y, weight = rows(name, n=60)
    ours, theirs = both(name)
    for part in (slice(0, 3), slice(3, 40), slice(40, 60)):
        w = weight[part] if weighted else None
        ours.partial_fit(X[part], y[part], classes=[0, 1, 2, 9], sample_weight=w)
        theirs.partial_fit(X[part], y[part], classes=[0, 1, 2, 9], sample_weight=w)
        if name == "CategoricalNB":  # scikit-learn's tells of the last batch only
            theirs.n_categories_ = np.array([table.shape[1] for table in theirs.category_count_])
        assert_same_attributes(ours, theirs)
        known = np.minimum(X, theirs.n_categories_ - 1) if name == "CategoricalNB" else X
        assert_same_answers(ours, theirs, known)


def test_bernoulli_smooths_each_feature_by_its_own_alpha():
    X, y = np.array([[1, 0], [1, 1], [0, 1]]), [0, 0, 1]
    model = fb.BernoulliNB(alpha=[1.0, 3.0]).fit(X, y)
    expected = [[3 / 4, 4 / 8], [1 / 3, 4 / 7]]
    np.testing.assert_allclose(np.exp(model.feature_log_prob_), expected)


def test_iris_figures():
    X, y = load_iris(return_X_y=True)
    train, test, a, b = train_test_split(X[:, :3], y, test_size=0.2, random_state=666)

    def accuracy(model):
        model.fit(train, a)
        return round(model.score(train, a), 4), round(model.score(test, b), 4)

    assert accuracy(fb.BernoulliNB()) == (0.35, 0.2667)
    assert accuracy(fb.BernoulliNB(binarize=2.9)) == (0.7583, 0.7333)
    assert accuracy(fb.BernoulliNB(binarize=5.0)) == (0.725, 0.9333)
    assert accuracy(fb.GaussianNB())[1] == 0.9667
    assert accuracy(fb.MultinomialNB())[1] == 0.7667
    best = max(
        np.arange(0, 8.01, 0.1).round(1), key=lambda t: accuracy(fb.BernoulliNB(binarize=t))[1]
    )
    assert accuracy(fb.BernoulliNB(binarize=best))[1] == 0.9333


# -- sparse ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("kind", [np.float64, np.int64, np.bool_, np.float32])
@pytest.mark.parametrize("container", ["array", "matrix"])
def test_sparse_equals_dense(name, form, kind, container):
    X, y, weight = rows(name, d=9)
    X = (X * (X > 1)).astype(kind)
    sparse = getattr(scipy.sparse, f"{form}_{container}")(X)
    dense, model = getattr(fb, name)(), getattr(fb, name)()
    dense.fit(X, y, weight)
    model.fit(sparse, y, weight)
    assert_same_attributes(model, getattr(sk, name)().fit(sparse, y, weight))
    for method in ("predict_proba", "log_joint", "decision_function"):
        np.testing.assert_allclose(
            getattr(model, method)(sparse), getattr(dense, method)(X), **CLOSE
        )
    np.testing.assert_array_equal(model.predict(sparse), dense.predict(X))
    np.testing.assert_allclose(
        model.explain(sparse).contributions, dense.explain(X).contributions, **CLOSE
    )


def test_sparse_cells_given_in_parts_are_one_number():
    parts = scipy.sparse.csr_array(([0.4, 0.4, 3.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    model = fb.BernoulliNB(binarize=0.5).fit(parts, [0, 1])
    assert model.feature_count_.tolist() == [[1, 0], [0, 1]]
    assert parts.nnz == 3  # the matrix of the caller is as it was


@pytest.mark.parametrize("name", SPARSE)
def test_a_wide_sparse_matrix_is_never_made_dense(name):
    n, d = 50_000, 1_000_000  # dense: 400 GB
    random = np.random.default_rng(3)
    y = random.integers(0, 2, n)
    place = (random.integers(0, d // 2, (n, 4)) + y[:, None] * (d // 2)).ravel()
    X = scipy.sparse.csr_array((np.ones(4 * n), place, np.arange(0, 4 * n + 1, 4)), shape=(n, d))
    ours, theirs = both(name)
    np.testing.assert_array_equal(ours.fit(X, y).predict(X), theirs.fit(X, y).predict(X))
    assert name == "BernoulliNB" or ours.score(X, y) == 1.0


# -- any batching is fit -----------------------------------------------------------------------


@st.composite
def batchings(draw):
    name = draw(st.sampled_from(NAMES))
    n = draw(st.integers(3, 60))
    cuts = sorted(draw(st.lists(st.integers(1, n - 1), max_size=5, unique=True)))
    return name, n, [slice(a, b) for a, b in itertools.pairwise([0, *cuts, n])], draw(st.booleans())


@given(batchings())
def test_any_batching_equals_fit(batching):
    name, n, parts, weighted = batching
    X, y, weight = rows(name, n=n)
    w = weight if weighted else None
    whole = getattr(fb, name)().fit(X, y, w)
    model = getattr(fb, name)()
    for part in parts:
        model.partial_fit(X[part], y[part], [0, 1, 2], None if w is None else w[part])
    assert_same_attributes(model, whole)
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=1e-9)
    if name in DISCRETE and not weighted:
        assert model.statistics_ == whole.statistics_


def test_gaussian_epsilon_is_of_all_rows():
    X, y, weight = rows("GaussianNB", n=40)
    X[20:] *= 50
    ours = fb.GaussianNB()
    for part in (slice(0, 20), slice(20, 40)):
        ours.partial_fit(X[part], y[part], [0, 1, 2], weight[part])
    assert ours.epsilon_ == pytest.approx(1e-9 * X.var(axis=0).max(), rel=1e-12)
    theirs = sk.GaussianNB().fit(X, y, weight)
    assert_same_attributes(ours, theirs)


@pytest.mark.parametrize("batches", [1, 2, 7])
@pytest.mark.parametrize("kernels", ["never", pytest.param("always", marks=pytest.mark.compiled)])
def test_gaussian_keeps_the_digits_of_epoch_seconds(batches, kernels, monkeypatch):
    random = np.random.default_rng(1)
    X = 1.7e9 + random.normal(size=(500, 2))
    y = (X[:, 0] > 1.7e9).astype(int)
    model = fb.GaussianNB(var_smoothing=0)
    for part in np.array_split(np.arange(500), batches):
        model.partial_fit(X[part], y[part], [0, 1])
    for c in (0, 1):
        np.testing.assert_allclose(model.var_[c], (X[y == c] - 1.7e9).var(axis=0), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_weight_zero_changes_no_count(name):
    X, y, weight = rows(name)
    model = getattr(fb, name)().fit(X, y, weight)
    before = model.class_count_
    model.partial_fit(X, y, sample_weight=np.zeros(len(y)))
    np.testing.assert_array_equal(model.class_count_, before)
    with pytest.raises(DataError, match="weight is zero"):
        getattr(fb, name)().partial_fit(X, y, [0, 1, 2], np.zeros(len(y)))


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_partial_fit_changes_nothing(name):
    X, y, _ = rows(name)
    model = getattr(fb, name)().fit(X, y)
    parameter = "priors" if name == "GaussianNB" else "class_prior"
    model.set_params(**{parameter: [0.5, 0.5]})
    before = dict(vars(model))
    for bad_X, bad_y in ((X, y + 5), (X[:, :2], y), (X, y[:-1]), (X, y)):
        with pytest.raises(ValueError, match=r"label|features|inconsistent|Number of priors"):
            model.partial_fit(bad_X, bad_y)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[key] is value for key, value in before.items())


@pytest.mark.parametrize("name", NAMES)
def test_partial_fit_needs_classes_once_and_for_all(name):
    X, y, _ = rows(name)
    model = getattr(fb, name)()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    model.partial_fit(X, y, classes=[2, 1, 0])
    with pytest.raises(ValueError, match="is not the same as on last call to partial_fit"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"label\(s\) \[4\] in y do not exist in the initial"):
        model.partial_fit(X[:1], [4])


@pytest.mark.parametrize("name", NAMES)
def test_fit_forgets(name):
    X, y, _ = rows(name)
    model = getattr(fb, name)().fit(X[:, :2], y).fit(X, y)
    assert_same_attributes(model, getattr(sk, name)().fit(X, y))
