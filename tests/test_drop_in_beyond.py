"""What the five drop-in classes do beyond scikit-learn, and where it fails."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from drop_in_cases import (
    CLOSE,
    DISCRETE,
    NAMES,
    PRIOR,
    assert_same_answers,
    assert_same_attributes,
    both,
    rows,
)
from sklearn import naive_bayes as sk

import fastbayes
from fastbayes.core.errors import DataError, FastBayesWarning, SchemaError
from fastbayes.models.sklearn import naive_bayes as fb

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
    with pytest.raises(DataError, match=r"y holds 9, which is not among the classes \[0, 1, 2\]"):
        model.sample(3, y=9)
    with pytest.raises(DataError, match=r"y has shape \(2,\); give one class or 3 of them"):
        model.sample(3, y=[1, 2])


@pytest.mark.parametrize("name", ["BernoulliNB", "CategoricalNB", "GaussianNB", "MultinomialNB"])
@pytest.mark.parametrize("apart", [0, 1])
def test_the_prior_adapts_to_unlabelled_rows(name, apart):
    X, y, _ = rows(name, n=600)
    X[:, :3] += 2 * apart * np.eye(3, dtype=X.dtype)[y]
    model = getattr(fb, name)(**({"binarize": 1.0} if name == "BernoulliNB" else {})).fit(X, y)
    true = np.array([0.7, 0.1, 0.2])
    labels = np.random.default_rng(0).choice(3, 20_000, p=true)
    new = model.sample(len(labels), y=labels, seed=2).drop_columns(["class"]).to_pandas().to_numpy()
    adapted = model.adapt_prior(new)
    prior = np.exp(adapted._log_prior())
    assert prior.sum() == pytest.approx(1, abs=1e-12)
    # No other prior makes the rows more likely: the mean likelihood ratio is 1, or less at 0.
    likelihood = np.exp(model.log_joint(new) - model._log_prior())
    slope = (likelihood / (likelihood @ prior)[:, None]).mean(axis=0)
    assert (slope < 1 + 1e-5).all()
    np.testing.assert_allclose(slope[prior > 1e-3], 1, atol=1e-5)
    if apart:
        np.testing.assert_allclose(prior, true, atol=0.05)
    assert adapted.statistics_ == model.statistics_
    np.testing.assert_allclose(np.exp(model._log_prior()), np.bincount(y) / len(y), **CLOSE)
    with pytest.warns(FastBayesWarning, match="adapt_prior did not converge in 1 steps"):
        first = model.adapt_prior(new, max_iter=1)
    # It is better than the prior it had, and worse than the best.
    means = [float(m.log_evidence(new).mean()) for m in (model, first, adapted)]
    assert means == sorted(means)


def test_complement_has_no_likelihood():
    X, y, _ = rows("ComplementNB")
    model = fb.ComplementNB().fit(X, y)
    for name in ("sample", "log_evidence", "adapt_prior"):
        assert hasattr(fb.MultinomialNB, name)
        for owner in (model, fb.ComplementNB):
            assert not hasattr(owner, name)
            with pytest.raises(AttributeError, match="no likelihood of x; use MultinomialNB"):
                getattr(owner, name)


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


def test_a_retraction_that_leaves_too_few_digits_names_the_column():
    near = np.array([[1.0, 5.0], [1.0 + 1e-6, 6.0], [1.0, 7.0]])
    far = np.array([[1.0, 5.0], [1e6, 6.0]])
    part, whole = (fb.GaussianNB().fit(X, [0] * len(X)) for X in (far, np.vstack([near, far])))
    with pytest.raises(DataError, match=r"column 0, class 0: .*scatter"):
        whole.statistics_ - part.statistics_


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
    with pytest.raises(DataError, match="class 0 would be counted fewer than 0 times"):
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


@pytest.mark.parametrize("name", ["CategoricalNB", "GaussianNB"])
def test_statistics_of_a_table_are_enough(name):
    X, y, _ = rows(name)
    columns = {f"x{j}": X[:, j] for j in range(4)}
    categorical = list(columns) if name == "CategoricalNB" else None
    stats = fastbayes.count(pa.table({**columns, "y": y}), "y", categorical=categorical)
    model = getattr(fb, name)().fit_statistics(stats)
    assert_same_attributes(model, getattr(fb, name)().fit(pa.table(columns), y))
    assert model.partial_fit(pa.table(columns), y).class_count_.sum() == 2 * len(y)


@pytest.mark.parametrize(
    ("name", "columns", "options", "message"),
    [
        ("CategoricalNB", {"a": ["p", "q"]}, {}, "column 'a' holds string values, not codes"),
        ("CategoricalNB", {"a": [0, 1]}, {}, "column 'a' was counted as numeric"),
        ("CategoricalNB", {"a": [-1, 1]}, {"categorical": ["a"]}, "column 'a' holds int64"),
        ("CategoricalNB", {"a": [0, 10**9]}, {"categorical": ["a"]}, "column 'a' has the code 10"),
        ("CategoricalNB", {"a": [0, None]}, {"categorical": ["a"]}, "'a' has 1 missing"),
        ("GaussianNB", {"a": ["p", "q"]}, {}, "column 'a' is categorical"),
        ("GaussianNB", {"a": [0.5, None]}, {}, "column 'a' has 1 missing values"),
        ("GaussianNB", {"a": [1, 2]}, {"sample_weight": [1, 2]}, "the statistics are weighted"),
        ("MultinomialNB", {"a": [1, 2]}, {}, r"MultinomialNB is fitted from \['sums'\]"),
    ],
)
def test_statistics_of_a_table_that_do_not_suffice(name, columns, options, message):
    stats = fastbayes.count(pa.table({**columns, "y": [0, 1]}), "y", **options)
    with pytest.raises(SchemaError, match=message):
        getattr(fb, name)().fit_statistics(stats)


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

    from fastbayes.models.estimator.store import load

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


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", ">i2", ">u2", ">i4", ">i8", "f2"])
@pytest.mark.filterwarnings("error")
def test_codes_of_any_width_and_byte_order(kind: str) -> None:
    top = min(200.0, float(np.iinfo(kind).max) if kind[-2] != "f" else 200.0)
    X = np.array([[0, 1], [top, 2], [2, 0], [top - 1, 1]] * 3)
    wide = np.tile(X, (1, 600))  # too many cells for tables of 128 codes each
    for codes in (X, wide, np.minimum(X, 2)):
        y, given = np.arange(len(codes)) % 2, codes.astype(kind)
        want = fb.CategoricalNB().fit(codes, y)
        got = fb.CategoricalNB().fit(given, y)
        np.testing.assert_array_equal(got.n_categories_, want.n_categories_)
        np.testing.assert_array_equal(got.predict_proba(given), want.predict_proba(codes))
    if given.itemsize > 1:
        unseen = np.array([[256, 1]])
        model = fb.CategoricalNB().fit(np.minimum(X, 2), y)
        np.testing.assert_array_equal(
            model.predict_proba(unseen.astype(kind)), model.predict_proba(unseen)
        )


def test_a_cell_that_is_no_number_is_named() -> None:
    rows = pa.table({"a": [1.0, 2.0], "of": [{"q": 1}, {"q": 2}]})
    with pytest.raises(TypeError, match=r"column 'of', row 0: argument must be .* not 'dict'"):
        fastbayes.GaussianNB().fit(rows, ["u", "v"])


@pytest.mark.parametrize("value", [4.0, -4.0])
def test_bernoulli__of_numbers_that_are_neither_0_nor_1_names_the_threshold(value):
    X = np.array([[0.0, 1.0], [1.0, value]])
    with pytest.raises(fb.DataError, match=r"column 1: .* sum to -?\d over 2 rows.*binarize="):
        fb.BernoulliNB(binarize=None).fit(X, [0, 0])
