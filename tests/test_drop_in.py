"""The five drop-in classes against scikit-learn, live; then what they do beyond it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import naive_bayes as sk
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

from fastbayes.classifiers import drop_in as fb
from fastbayes.errors import DataError, FastBayesWarning

NAMES = ["BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"]
DISCRETE = [name for name in NAMES if name != "GaussianNB"]
SPARSE = ["BernoulliNB", "ComplementNB", "MultinomialNB"]
CLOSE = {"rtol": 1e-9, "atol": 1e-9}

PRIOR = [0.2, 0.5, 0.3]
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


def rows(name, n=80, d=4, k=3, seed=0):
    """Return X, y, weights; each class has a row of zeros and a row of threes, if n allows."""
    random = np.random.default_rng(seed)
    X = random.poisson(1.3, (n, d))
    X[:k], X[k : 2 * k] = 0, 3
    if name == "GaussianNB":
        X = X + random.normal(size=(n, d))
    y = np.concatenate([np.arange(k), np.arange(k), random.integers(0, k, n)])[:n]
    return X, y, random.uniform(0.1, 3, n)


def both(name, **params):
    return getattr(fb, name)(**params), getattr(sk, name)(**params)


def assert_same_attributes(ours, theirs):
    """Compare names, types, dtypes and numbers of what `theirs` has learned."""
    names = [key for key in vars(theirs) if key.endswith("_") and key != "statistics_"]
    assert len(names) >= 6
    for key in names:
        mine, other = getattr(ours, key), getattr(theirs, key)
        pairs = zip(mine, other, strict=True) if isinstance(other, list) else [(mine, other)]
        for a, b in pairs:
            assert type(a) is type(b), key
            assert np.asarray(a).dtype == np.asarray(b).dtype, key
            if key in ("classes_", "feature_names_in_"):
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, **CLOSE, err_msg=key)


def assert_same_answers(ours, theirs, X):
    expected = theirs.predict_joint_log_proba(X)
    for method in ("log_joint", "predict_joint_log_proba"):
        np.testing.assert_allclose(getattr(ours, method)(X), expected, **CLOSE)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), **CLOSE)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(ours.predict_log_proba(X), theirs.predict_log_proba(X), **CLOSE)
    top = np.sort(expected, axis=1)
    clear = np.ones(len(top), bool) if top.shape[1] == 1 else top[:, -1] - top[:, -2] > 1e-9
    np.testing.assert_array_equal(ours.predict(X)[clear], theirs.predict(X)[clear])


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
    monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
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
    before = dict(vars(model))
    for bad_X, bad_y in ((X, y + 5), (X[:, :2], y), (X, y[:-1])):
        with pytest.raises(ValueError, match=r"label|features|inconsistent"):
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


# -- where scikit-learn fails ------------------------------------------------------------------


def test_unseen_categories_have_factor_one():
    X, y, _ = rows("CategoricalNB")
    model = fb.CategoricalNB().fit(X, y)
    beyond = X.copy()
    beyond[:, 1] = [X[:, 1].max() + 1, 10**12] * (len(X) // 2)
    without = fb.CategoricalNB().fit(np.delete(X, 1, axis=1), y)
    np.testing.assert_allclose(
        model.log_joint(beyond), without.log_joint(np.delete(X, 1, axis=1)), **CLOSE
    )
    assert model.explain(beyond).unseen == {"x1": len(X)}
    assert model.explain(X).unseen == {}
    assert not model.explain(beyond).contributions[:, 1].any()
    np.testing.assert_allclose(
        model.log_joint(beyond.astype(float) + 0.75), model.log_joint(beyond), **CLOSE
    )


@pytest.mark.parametrize("size", [254, 255, 256, 257, 65_534, 65_536, 65_537])
def test_categories_at_the_edges_of_code_widths(size):
    X = np.array([[0, 1], [size - 1, 0], [size // 2, 1], [size - 1, 1]])
    ours, theirs = both("CategoricalNB")
    assert_same_attributes(ours.fit(X, [0, 1, 0, 1]), theirs.fit(X, [0, 1, 0, 1]))
    assert_same_answers(ours, theirs, X)
    assert ours.explain([[size, 1], [size + 1, 1]]).unseen == {"x0": 2}
    np.testing.assert_allclose(
        ours.log_joint([[size, 1]]),
        ours.class_log_prior_[None] + ours.feature_log_prob_[1][:, 1],
        **CLOSE,
    )


@pytest.mark.parametrize("code", [10**9, 2**62, 1e18])
def test_an_id_is_no_category(code):
    with pytest.raises(MemoryError, match="column 1 has the code 10"):
        fb.CategoricalNB().fit([[0, 10**9], [1, 0]], [0, 1])
    with pytest.raises(MemoryError, match="column 0 has the code"):
        fb.CategoricalNB().fit([[code], [0]], [0, 1])


@pytest.mark.filterwarnings("ignore:alpha too small")
@pytest.mark.parametrize(
    ("name", "params"), [*((name, {}) for name in DISCRETE), ("ComplementNB", {"norm": True})]
)
def test_without_smoothing_nothing_is_nan(name, params):
    X = np.array([[2, 0, 0], [1, 0, 0], [0, 3, 0], [0, 1, 0]])
    y = [0, 0, 1, 1]
    new = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])
    model = getattr(fb, name)(alpha=0, **params).partial_fit(X, y, classes=[0, 1, 2])
    joint, proba = model.log_joint(new), model.predict_proba(new)
    assert not np.isnan(joint).any()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(model.predict(new), proba.argmax(axis=1))
    assert not np.isnan(model.decision_function(new)).any()
    assert not np.isnan(model.explain(new).contributions).any()
    if name == "ComplementNB":
        return
    impossible = np.isneginf(joint).all(axis=1)
    assert impossible[2]
    np.testing.assert_allclose(proba[impossible], [[0.5, 0.5, 0]] * impossible.sum())
    np.testing.assert_allclose(proba[:2], [[1, 0, 0], [0, 1, 0]])
    assert np.isneginf(model.log_evidence(new)[2])


def test_bernoulli_without_smoothing_by_hand():
    model = fb.BernoulliNB(alpha=0).fit([[1, 1], [1, 0], [0, 0]], [0, 0, 1])
    expected = np.log([[2 / 3 * 0.5, 0.3], [0.3, 1 / 3], [2 / 3 * 0.5, 0.3]])
    expected[0, 1] = expected[1, 0] = expected[2, 1] = -np.inf
    X = [[1, 0], [0, 0], [1, 1]]
    np.testing.assert_allclose(model.log_joint(X), expected)
    np.testing.assert_allclose(model.log_joint(scipy.sparse.csr_array(X)), expected)


def test_gaussian_without_variance_is_not_nan():
    X = np.array([[0.0, 5.0, 1.0], [0.0, 5.0, 2.0], [1.0, 5.0, 3.0], [1.0, 5.0, 5.0]])
    model = fb.GaussianNB(var_smoothing=0).fit(X, [0, 0, 1, 1])
    np.testing.assert_array_equal(model.predict(X), [0, 0, 1, 1])
    assert not model.explain(X).contributions[:, 1].any()  # constant: factor 1
    constant = fb.GaussianNB().fit(np.ones((3, 2)), [0, 1, 1])
    assert constant.epsilon_ == 0
    np.testing.assert_allclose(constant.predict_proba([[1, 1], [7, 7]]), [[1 / 3, 2 / 3]] * 2)


@pytest.mark.parametrize("name", ["MultinomialNB", "BernoulliNB", "GaussianNB"])
def test_overflow_is_an_error(name):
    with np.errstate(over="ignore"), pytest.raises(DataError, match=r"column 1: .* by a scale"):
        getattr(fb, name)(**({"binarize": None} if name == "BernoulliNB" else {})).fit(
            [[1.0, 1.7e308], [2.0, 1e308], [2.0, 1.7e308]], [0, 0, 0]
        )


# -- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("MultinomialNB", {"alpha": -1}, "'alpha' parameter of MultinomialNB must be a float"),
        ("MultinomialNB", {"alpha": np.nan}, "'alpha' parameter"),
        ("MultinomialNB", {"alpha": "much"}, "'alpha' parameter"),
        ("MultinomialNB", {"alpha": [1.0, -1.0, 1, 1]}, "All values in alpha"),
        ("BernoulliNB", {"alpha": [1.0, 2.0]}, "Got 2 elements instead of 4"),
        ("CategoricalNB", {"alpha": [1.0] * 4}, "'alpha' parameter of CategoricalNB"),
        ("ComplementNB", {"norm": "yes"}, "'norm' parameter"),
        ("BernoulliNB", {"fit_prior": 1}, "'fit_prior' parameter"),
        ("BernoulliNB", {"binarize": -1.0}, "'binarize' parameter"),
        ("MultinomialNB", {"class_prior": [0.5, 0.5]}, "Number of priors must match"),
        ("MultinomialNB", {"class_prior": 0.5}, "'class_prior' parameter"),
        ("GaussianNB", {"priors": [0.5, 0.5]}, "Number of priors must match"),
        ("GaussianNB", {"priors": [0.5, 0.5, 0.5]}, "sum of the priors should be 1"),
        ("GaussianNB", {"priors": [1.5, -0.5, 0]}, "Priors must be non-negative"),
        ("GaussianNB", {"var_smoothing": -1}, "'var_smoothing' parameter"),
        ("CategoricalNB", {"min_categories": 0}, "'min_categories' parameter"),
        ("CategoricalNB", {"min_categories": 2.5}, "should have integral type"),
        ("CategoricalNB", {"min_categories": [2, 3]}, r"should have shape \(4,\)"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_at_fit(name, params, message):
    X, y, _ = rows(name)
    model = getattr(fb, name)(**params)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


def test_a_tiny_alpha_is_raised_with_a_warning_unless_forced():
    X, y, _ = rows("MultinomialNB")
    with pytest.warns(FastBayesWarning, match=r"setting alpha = 1\.0e-10"):
        raised = fb.MultinomialNB(alpha=0, force_alpha=False).fit(X, y)
    np.testing.assert_array_equal(
        raised.feature_log_prob_, fb.MultinomialNB(alpha=1e-10).fit(X, y).feature_log_prob_
    )


@pytest.mark.parametrize("name", ["CategoricalNB", "ComplementNB", "MultinomialNB"])
def test_negative_numbers_are_refused(name):
    X, y, _ = rows(name)
    with pytest.raises(DataError, match=f"Negative values in data passed to {name}"):
        getattr(fb, name)().fit(X - 2, y)
    if name != "CategoricalNB":
        with pytest.raises(DataError, match="Negative values"):
            getattr(fb, name)().fit(scipy.sparse.csr_array(X - 2), y)
    else:
        with pytest.raises(DataError, match="Negative values"):
            fb.CategoricalNB().fit(X, y).predict(X - 2)


# -- beyond scikit-learn -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_explanations_sum_to_the_log_joint(name, k):
    X, y, _ = rows(name, k=k)
    model = getattr(fb, name)().fit(X, y)
    why = model.explain(X)
    assert why.contributions.shape == (*X.shape, k)
    np.testing.assert_allclose(
        why.contributions.sum(axis=1) + why.prior, model.log_joint(X), **CLOSE
    )
    assert why.features == ("x0", "x1", "x2", "x3")


@pytest.mark.parametrize("name", NAMES)
def test_decisions(name):
    X, y, _ = rows(name)
    model = getattr(fb, name)().fit(X, np.array(["a", "b", "c"])[y])
    decided = model.decide(X)
    np.testing.assert_array_equal(decided.decision, model.predict(X))
    loss = np.array([[0, 9, 9], [1, 0, 1], [1, 1, 0]])
    risk = model.predict_proba(X) @ loss.T
    np.testing.assert_array_equal(
        model.decide(X, loss=loss).decision, model.classes_[risk.argmin(axis=1)]
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_decision_function_is_log_odds_or_log_joint(name, k):
    X, y, _ = rows(name, k=k)
    model = getattr(fb, name)().fit(X, y)
    expected = model.log_joint(X)
    if k == 2:
        expected = expected[:, 1] - expected[:, 0]
    np.testing.assert_allclose(model.decision_function(X), expected, **CLOSE)


@pytest.mark.parametrize("name", ["BernoulliNB", "CategoricalNB"])
def test_evidence_sums_to_one_over_all_rows(name):
    X, y, weight = rows(name, d=3)
    X = np.minimum(X, 1)
    model = getattr(fb, name)(alpha=0.3).fit(X, y, weight)
    every = np.array(list(itertools.product([0, 1], repeat=3)))
    assert np.exp(model.log_evidence(every)).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["BernoulliNB", "CategoricalNB", "GaussianNB", "MultinomialNB"])
def test_a_model_refitted_to_its_own_sample_is_the_model(name):
    X, y, _ = rows(name, n=200)
    model = getattr(fb, name)(**({"binarize": 1.0} if name == "BernoulliNB" else {})).fit(X, y)
    table = model.sample(40_000, seed=1)
    assert table.equals(model.sample(40_000, seed=1))
    assert table.column_names == ["x0", "x1", "x2", "x3", "class"]
    again = getattr(fb, name)(**model.get_params()).fit(table, "class")
    np.testing.assert_allclose(again.class_count_ / 40_000, model.class_count_ / 200, atol=0.02)
    if name == "GaussianNB":
        np.testing.assert_allclose(again.theta_, model.theta_, atol=0.1)
        np.testing.assert_allclose(again.var_, model.var_, rtol=0.1)
    else:
        tables = zip(again.feature_log_prob_, model.feature_log_prob_, strict=True)
        for a, b in tables:
            a = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, b.shape[-1] - a.shape[-1])])
            np.testing.assert_allclose(np.exp(a), np.exp(b), atol=0.03)
    only = model.sample(10, y=2, seed=1)
    assert only["class"].to_pylist() == [2] * 10
    assert model.sample(3, y=[2, 0, 1])["class"].to_pylist() == [2, 0, 1]
    with pytest.raises(DataError, match=r"\[9\] in y do not exist"):
        model.sample(3, y=9)
    with pytest.raises(DataError, match="y has 2 classes, but 3 rows"):
        model.sample(3, y=[1, 2])


def test_complement_has_no_likelihood():
    X, y, _ = rows("ComplementNB")
    model = fb.ComplementNB().fit(X, y)
    for call in (lambda: model.sample(3), lambda: model.log_evidence(X)):
        with pytest.raises(NotImplementedError, match="no likelihood"):
            call()


def test_numbers_of_parameters():
    X = [[0, 2, 1], [1, 0, 0], [1, 1, 3]]
    for name, n in (
        ("BernoulliNB", 2 + 9),
        ("CategoricalNB", 2 + 3 * (1 + 2 + 3)),
        ("ComplementNB", 6),
        ("GaussianNB", 2 + 18),
        ("MultinomialNB", 2 + 6),
    ):
        assert getattr(fb, name)().fit(X, [0, 1, 2]).n_parameters_ == n


# -- the statistic is a value ------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_add_and_subtract(name, weighted):
    X, y, weight = rows(name, n=60)
    w = weight if weighted else np.ones(60)
    halves = [slice(0, 30), slice(30, 60)]
    cls = getattr(fb, name)
    a, b = (cls().fit(X[h], y[h], w[h] if weighted else None).statistics_ for h in halves)
    whole = cls().fit(X, y, w if weighted else None)
    both_ways = [cls().fit_statistics(a + b), cls().fit_statistics(b + a)]
    for model in both_ways:
        assert_same_attributes(model, whole)
        np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), **CLOSE)
    back = cls().fit_statistics(a + b - b)
    first = cls().fit_statistics(a)
    proba = [m.predict_proba(np.minimum(X, 1)) for m in (back, first)]
    np.testing.assert_allclose(*proba, rtol=1e-6)
    if name in DISCRETE and not weighted:
        assert a + b == b + a == whole.statistics_
        assert (a + b) - b == first.statistics_
    assert a == cls().fit(X[:30], y[:30], w[:30] if weighted else None).statistics_
    assert a != b
    with pytest.raises(DataError, match=r"fewer than 0 times|more rows than were counted"):
        a - (a + b)


@pytest.mark.parametrize("name", NAMES)
def test_statistics_of_other_classes_and_values_merge_by_label(name):
    X, y, _ = rows(name, n=60)
    labels = np.array(["ant", "bee", "cat"])[y]
    cls = getattr(fb, name)
    parts = [
        cls().fit(X[labels == c], labels[labels == c]).statistics_ for c in ("cat", "ant", "bee")
    ]
    model = cls().fit_statistics(parts[0] + parts[1] + parts[2])
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    assert_same_attributes(model, cls().fit(X, labels))


def test_statistics_that_do_not_belong_together_are_refused():
    X, y, _ = rows("MultinomialNB")
    stats = {name: getattr(fb, name)().fit(X, y).statistics_ for name in NAMES}
    for match, other in (
        ("parts", stats["GaussianNB"]),
        ("options", stats["BernoulliNB"]),
        ("numbers of features", fb.MultinomialNB().fit(X[:, :2], y).statistics_),
        ("classes are", fb.MultinomialNB().fit(X, y.astype(str)).statistics_),
    ):
        with pytest.raises(DataError, match=match):
            stats["MultinomialNB"] + other
    with pytest.raises(TypeError, match="unsupported operand"):
        stats["MultinomialNB"] + 1
    with pytest.raises(DataError, match=r"MultinomialNB is fitted from \['sums'\]"):
        fb.MultinomialNB().fit_statistics(stats["CategoricalNB"])
    with pytest.raises(DataError, match="set the same parameters"):
        fb.BernoulliNB(binarize=2.0).fit_statistics(stats["BernoulliNB"])
    assert fb.ComplementNB().fit_statistics(stats["MultinomialNB"]).score(X, y) > 0


@pytest.mark.parametrize("name", NAMES)
def test_changed_parameters_need_no_rows(name):
    X, y, _ = rows(name)
    params = {"var_smoothing": 0.3} if name == "GaussianNB" else {"alpha": 0.07}
    model = getattr(fb, name)().fit(X, y)
    again = getattr(fb, name)(**params).fit_statistics(model.statistics_)
    assert_same_attributes(again, getattr(sk, name)(**params).fit(X, y))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [[0, 1, 2], ["a", "b", "ç"], [-1.0, 2.0, 3.0], [3, 2**62, -5]])
def test_a_saved_model_comes_back(name, labels, tmp_path):
    import pandas as pd

    from fastbayes.classifiers.store import load

    X, y, weight = rows(name)
    frame = pd.DataFrame(X, columns=["p", "q", "r", "s"])
    params = {"priors": np.array(PRIOR)} if name == "GaussianNB" else {"class_prior": PRIOR}
    model = getattr(fb, name)(**params).fit(frame, np.array(labels)[y], weight)
    model.save(tmp_path / "m.fb")
    loaded = load(tmp_path / "m.fb")
    assert type(loaded) is type(model)
    assert loaded.statistics_ == model.statistics_
    assert_same_attributes(loaded, model)
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    loaded.partial_fit(frame, np.array(labels)[y], sample_weight=weight)
    assert loaded.class_count_.sum() == pytest.approx(2 * weight.sum())


# -- kernels -----------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["CategoricalNB", "GaussianNB"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 5])
def test_kernels_give_what_numpy_gives(name, weighted, k, monkeypatch):
    X, y, weight = rows(name, n=70_000, k=k)
    w = weight if weighted else None
    models = []
    for choice in ("never", "always"):
        monkeypatch.setenv("FASTBAYES_KERNELS", choice)
        model = getattr(fb, name)().fit(X, y, w)
        models.append((model, model.predict_proba(X), model.log_joint(X), model.predict(X)))
    (plain, *a), (fast, *b) = models
    assert_same_attributes(fast, plain)
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)
