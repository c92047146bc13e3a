"""Naive Bayes as logistic regression: closed forms, the same posteriors, what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes.core.errors import SchemaError

DROP_INS = {
    "categorical": lambda **o: fb.CategoricalNB(**o),
    "multinomial": lambda **o: fb.MultinomialNB(**o),
    "complement": lambda **o: fb.ComplementNB(**o),
    "complement, norm": lambda **o: fb.ComplementNB(norm=True, **o),
    "Bernoulli": lambda **o: fb.BernoulliNB(binarize=1.0, **o),
}


def mixed(seed, k, n=1500, missing=0.1):
    """Return training rows, rows to score with values never seen, and weights."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    shown = {
        "a": (rng.integers(0, 3, n) + y * (rng.random(n) < 0.4)) % 3,
        "b": rng.integers(0, 5, n),
    }
    table = {name: pa.array([f"{name}{v}" for v in codes]) for name, codes in shown.items()}
    table |= {
        "x": pa.array(rng.normal(size=n) + y),
        "seconds": pa.array(1.7e9 + 1e5 * rng.normal(size=n) + 2e5 * y),
        "wide": pa.array(rng.normal(size=n) * 20 + 5 * y),
        "constant": pa.array(np.full(n, 3.5)),
    }
    for name, column in table.items():
        gone = pa.array(rng.random(n) < missing)
        table[name] = pa.compute.if_else(gone, pa.nulls(n, column.type), column)
    rows = {**table, "a": pa.array(["never" if i % 7 == 0 else v for i, v in
                                    enumerate(table["a"].to_pylist())])}  # fmt: skip
    train = pa.table({**table, "y": pa.array([f"k{c}" for c in y])})
    return train, pa.table(rows), rng.uniform(0, 3, n)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"variance": "shared"},
        {"variance": "single", "ddof": 1},
        {"variance": "shared", "missing": "category"},
        {"variance": "shared", "unseen": "smooth", "alpha": 0.3},
        {"variance": "shared", "missing": "category", "unseen": "smooth"},
        {"variance": "shared", "class_prior": "uniform", "alpha": "loo"},
        {"variance": "shared", "feature_averaging": True},
        {"variance": "per_class", "numeric": "mdl"},
    ],
    ids=str,
)
def test_same_posteriors_with_missing_and_unseen_values(k, weighted, options):
    train, rows, weight = mixed(k, k)
    model = fb.NaiveBayes(**options).fit(train, "y", sample_weight=weight if weighted else None)
    logistic = model.to_logistic()
    assert isinstance(logistic, fb.LogisticRegression)
    expected = model.predict_proba(rows)
    np.testing.assert_allclose(logistic.predict_proba(rows), expected, rtol=0, atol=1e-12)
    assert (logistic.predict(rows) == model.predict(rows)).all()
    assert (logistic.classes_ == model.classes_).all()
    assert logistic.converged_ is None
    assert logistic.n_iter_ == 0
    # Scores are the log joint up to what the classes share; of the first of two they are 0.
    scores, joint = logistic.log_joint(rows), model.log_joint(rows)
    apart = (scores - scores[:, :1]) - (joint - joint[:, :1])
    np.testing.assert_allclose(apart, 0, atol=1e-9)
    assert k > 2 or not scores[:, 0].any()
    told = logistic.explain(rows)
    total = told.contributions.sum(axis=1) + told.prior
    np.testing.assert_allclose(total, scores, rtol=1e-12, atol=1e-9)
    decision = scores[:, 1] if k == 2 else scores
    np.testing.assert_allclose(logistic.decision_function(rows), decision, atol=1e-9)


@pytest.mark.compiled
def test_same_posteriors__compiled_kernels(monkeypatch):
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    for k in (2, 3):
        train, rows, _ = mixed(7, k)
        model = fb.NaiveBayes(variance="shared").fit(train, "y")
        found = model.to_logistic().predict_proba(rows)
        np.testing.assert_allclose(found, model.predict_proba(rows), rtol=0, atol=1e-12)


def test_two_classes__coefficients_of_the_closed_form():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 2)) * [1, 20] + np.outer(y, [1.0, -30])
    weight = rng.uniform(0.1, 4, 300)
    model = fb.NaiveBayes(variance="shared", class_prior="empirical")
    logistic = model.fit(X, y, sample_weight=weight).to_logistic()
    (mean0, mean1), share = (
        [np.average(X[y == c], axis=0, weights=weight[y == c]) for c in (0, 1)],
        weight[y == 1].sum() / weight.sum(),
    )
    means = np.where(y[:, None] == 1, mean1, mean0)
    variance = np.average((X - means) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(logistic.coef_, [(mean1 - mean0) / variance], rtol=1e-10)
    intercept = np.log(share / (1 - share)) + ((mean0**2 - mean1**2) / (2 * variance)).sum()
    np.testing.assert_allclose(logistic.intercept_, [intercept], rtol=1e-10)
    assert logistic.coef_names_ == [("x0", None), ("x1", None)]


def test_three_classes__coefficients_of_the_closed_form():
    train, _, _ = mixed(1, 3, missing=0.0)
    model = fb.NaiveBayes(variance="shared").fit(train, "y")
    logistic = model.to_logistic()
    n_values = 8
    numeric = [n for n in ("x", "seconds", "wide", "constant") if n in model.numeric_]
    slopes = np.array([
        np.zeros(3) if name == "constant" else mean / variance
        for name, mean, variance in zip(numeric, model.mean_, model.variance_, strict=True)
    ])  # fmt: skip
    np.testing.assert_allclose(logistic.coef_[:, n_values:], slopes.T, rtol=1e-10)
    squares = np.array([
        np.zeros(3) if name == "constant" else mean**2 / (2 * variance)
        for name, mean, variance in zip(numeric, model.mean_, model.variance_, strict=True)
    ])  # fmt: skip
    expected = model.class_log_prior_ - squares.sum(axis=0)
    np.testing.assert_allclose(logistic.intercept_, expected, rtol=1e-9)
    counts = model.statistics_.values
    for at, (name, value) in enumerate(logistic.coef_names_[:n_values]):
        j = ["a", "b"].index(name)
        feature = model.schema_.categorical[j]
        n = counts.of(j)[feature.values.to_pylist().index(value)]
        likelihood = np.log((n + 1) / (counts.known[j] + feature.size))
        np.testing.assert_allclose(logistic.coef_[:, at], likelihood, rtol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_missing_as_a_category__is_the_last_value(k):
    train, *_ = mixed(3, k)
    model = fb.NaiveBayes(variance="shared", missing="category").fit(train, "y")
    logistic = model.to_logistic(C=0.5, warm_start=True, tol=1e-9)
    names = [(n, v) for n, v in logistic.coef_names_ if n == "a"]
    assert names == [("a", "a0"), ("a", "a1"), ("a", "a2"), ("a", None)]
    values = model.statistics_.values
    likelihood = np.log((values.missing[0] + 1) / (values.class_counts + 4))
    expected = likelihood[1:] - likelihood[:1] if k == 2 else likelihood
    np.testing.assert_allclose(logistic.coef_[:, 3], expected, rtol=1e-12)
    fitted = logistic.fit(train, "y")
    assert fitted.coef_names_[:4] == names
    cold = fb.LogisticRegression(C=0.5, tol=1e-9, missing="category").fit(train, "y")
    np.testing.assert_allclose(fitted.objective_, cold.objective_, rtol=1e-9)


def test_a_missing_number_drops_its_own_part():
    train, _, _ = mixed(2, 2, missing=0.0)
    model = fb.NaiveBayes(variance="shared").fit(train, "y")
    row = {name: [train[name][0].as_py()] for name in ("a", "b", "x", "seconds", "wide")}
    gone = pa.table({**row, "constant": [3.5], "x": pa.array([None], pa.float64())})
    without = train.drop_columns(["x"])
    alone = fb.NaiveBayes(variance="shared").fit(without, "y").predict_proba(gone.drop(["x"]))
    np.testing.assert_allclose(model.to_logistic().predict_proba(gone), alone, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", DROP_INS)
@pytest.mark.parametrize("named", [False, True])
def test_drop_ins__same_posteriors(name, k, named):
    rng = np.random.default_rng(k)
    y = np.array([f"k{c}" for c in range(k)])[rng.integers(0, k, 200)]
    X = rng.integers(0, 4, (200, 3))
    X[:, 0] = (X[:, 0] + (y == "k1")) % 4
    rows = np.vstack([X[:20], [[9, 0, 2]]])
    if named:
        X, rows = ({f"c{j}": some[:, j] for j in range(3)} for some in (X, rows))
        X, rows = pa.table(X), pa.table(rows)
    model = DROP_INS[name](alpha=0.7).fit(X, y, sample_weight=rng.uniform(0.1, 2, 200))
    logistic = model.to_logistic()
    expected = model.predict_proba(rows)
    np.testing.assert_allclose(logistic.predict_proba(rows), expected, rtol=0, atol=1e-12)
    told = logistic.explain(rows)
    total = told.contributions.sum(axis=1) + told.prior
    np.testing.assert_allclose(total, logistic.log_joint(rows), rtol=1e-12, atol=1e-12)
    assert hasattr(logistic, "feature_names_in_") == named


def test_bernoulli_of_numbers_as_they_are():
    rng = np.random.default_rng(5)
    X, y = rng.integers(0, 2, (60, 4)).astype(float), rng.integers(0, 2, 60)
    beside = np.round(rng.random((30, 4)), 1)  # many are the threshold itself
    for binarize, rows in ((None, beside), (0.0, X), (0.4, beside)):
        model = fb.BernoulliNB(binarize=binarize).fit(X, y)
        found = model.to_logistic().predict_proba(rows)
        np.testing.assert_allclose(found, model.predict_proba(rows), rtol=0, atol=1e-12)


def test_refused__a_variance_for_each_class():
    train, _, _ = mixed(4, 2)
    with pytest.raises(SchemaError, match=r"column 'x'.*quadratic.*variance='shared'"):
        fb.NaiveBayes().fit(train, "y").to_logistic()
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(SchemaError, match=r"GaussianNB.*quadratic.*variance='shared'"):
        fb.GaussianNB().fit(X, X[:, 0] > 0).to_logistic()


@pytest.mark.parametrize("numeric", ["student", "kde", "histogram"])
def test_refused__densities_that_are_not_linear(numeric):
    train, _, _ = mixed(4, 2)
    model = fb.NaiveBayes(numeric={"wide": numeric}, variance="shared").fit(train, "y")
    with pytest.raises(SchemaError, match=f"column 'wide'.*{numeric!r}.*not linear"):
        model.to_logistic()


def test_refused__bins_that_auto_chose():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = np.where(y, rng.choice([0.0, 2, 4, 6], 400), rng.choice([1.0, 2, 3, 6], 400))
    model = fb.NaiveBayes(numeric="auto", variance="shared").fit(pa.table({"x": x, "y": y}), "y")
    assert model.numeric_ == {"x": "mdl"}
    with pytest.raises(SchemaError, match=r"column 'x'.*'mdl'.*not linear"):
        model.to_logistic()


def test_refused__probabilities_of_zero():
    table = {"a": ["u", "u", "v", "w"], "y": ["no", "no", "yes", "yes"]}
    with pytest.raises(SchemaError, match=r"column 'a', value 'u'.*class 'yes'.*alpha > 0"):
        fb.NaiveBayes(alpha=0).fit(table, "y").to_logistic()
    with pytest.raises(SchemaError, match=r"class 'no' has the prior 0"):
        fb.NaiveBayes(class_prior=[0.0, 1.0]).fit(table, "y").to_logistic()
    # No count is 0 here, and the next row may hold what was never seen all the same.
    table = {"a": ["u", "v", "u", "v"], "y": ["no", "no", "yes", "yes"]}
    with pytest.raises(SchemaError, match="alpha=0"):
        fb.NaiveBayes(alpha=0).fit(table, "y").to_logistic()


def test_alpha_of_zero_without_values__is_no_smoothing_to_miss():
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = fb.NaiveBayes(alpha=0, variance="shared").fit(X, X[:, 0] > 0)
    found = model.to_logistic().predict_proba(X)
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", DROP_INS)
def test_drop_ins__probabilities_of_zero_are_refused(name):
    X = np.array([[0, 2, 1], [1, 3, 0], [1, 0, 0], [2, 0, 2]])
    model = DROP_INS[name](alpha=0.0).fit(X, ["a", "a", "b", "b"])
    with pytest.raises(SchemaError, match="alpha > 0"):
        model.to_logistic()
    model = DROP_INS[name](alpha=1e-12, force_alpha=False)
    with pytest.warns(fb.FastBayesWarning, match="alpha too small"):
        model.fit(X, ["a", "a", "b", "b"])
    found = model.to_logistic().predict_proba(X)
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=0, atol=1e-12)


def test_a_single_class():
    table = {"a": ["u", "v"], "x": [1.0, 2.0], "y": ["no", "no"]}
    with pytest.warns(fb.FastBayesWarning, match="only one class"):
        model = fb.NaiveBayes(variance="shared").fit(table, "y")
    assert (model.to_logistic().predict_proba(table) == 1).all()


def test_unfitted():
    for model in (fb.NaiveBayes(), fb.CategoricalNB(), fb.GaussianNB()):
        with pytest.raises(ValueError, match="not fitted"):
            model.to_logistic()


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_saved_and_loaded(tmp_path, k, missing):
    train, rows, _ = mixed(6, k)
    model = fb.NaiveBayes(variance="shared", unseen="smooth", missing=missing).fit(train, "y")
    logistic = model.to_logistic(C=3.0)
    logistic.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.C == 3.0
    assert again.converged_ is None
    for name, array in logistic.coefficients_.arrays().items():
        np.testing.assert_array_equal(again.coefficients_.arrays()[name], array)
    assert again.predict_proba(rows).tobytes() == logistic.predict_proba(rows).tobytes()
    assert (again.coef_ == logistic.coef_).all()


def test_drop_ins_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 4, (80, 3)), rng.integers(0, 3, 80)
    for at, (name, make) in enumerate(DROP_INS.items()):
        logistic = make().fit(X, y).to_logistic()
        logistic.save(tmp_path / f"{at}.fb")
        again = fb.load(tmp_path / f"{at}.fb")
        assert again.predict_proba(X).tobytes() == logistic.predict_proba(X).tobytes(), name


@pytest.mark.parametrize("k", [2, 3])
def test_a_fit_that_starts_from_it__ends_where_others_do(k):
    train, rows, _ = mixed(8, k)
    train, rows = (t.drop_columns(["seconds", "constant"]) for t in (train, rows))
    naive = fb.NaiveBayes(variance="shared").fit(train, "y")
    warm = naive.to_logistic(C=0.5, warm_start=True, init="zeros", tol=1e-9).fit(train, "y")
    cold = fb.LogisticRegression(C=0.5, init="zeros", tol=1e-9).fit(train, "y")
    assert warm.converged_
    np.testing.assert_allclose(warm.objective_, cold.objective_, rtol=1e-9)
    np.testing.assert_allclose(warm.coef_, cold.coef_, atol=1e-5)


def test_more_rows__need_a_loss_of_the_earlier_ones():
    train, *_ = mixed(8, 2)
    logistic = fb.NaiveBayes(variance="shared").fit(train, "y").to_logistic()
    with pytest.raises(fb.DataError, match="warm_start=True"):
        logistic.partial_fit(train, "y")


def test_the_prior_of_other_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    X = rng.integers(0, 4, (4000, 2)) + y[:, None]
    rows = X[(y == 1) | (rng.random(4000) < 0.2)]
    for model in (fb.CategoricalNB(), fb.MultinomialNB(), fb.NaiveBayes(categorical=[0, 1])):
        model.fit(X, y)
        expected = model.adapt_prior(rows).predict_proba(rows)
        found = model.to_logistic().adapt_prior(rows).predict_proba(rows)
        np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("k", [2, 3])
def test_the_model_is_left_alone(k):
    train, rows, _ = mixed(9, k)
    model = fb.NaiveBayes(variance="shared").fit(train, "y")
    before = model.predict_proba(rows)
    logistic = model.to_logistic()
    logistic.coefficients_.tables[:] = 0
    logistic.coefficients_.slope[:] = 0
    assert (model.predict_proba(rows) == before).all()


def test_densities_of_columns_together__have_no_such_method():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = fb.GaussianBayes(covariance="tied").fit(X, X[:, 0] > 0)
    with pytest.raises(AttributeError, match="integrates a missing number out"):
        model.to_logistic()
