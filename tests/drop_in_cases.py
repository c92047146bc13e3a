"""Rows for scikit-learn's five classes, and models held against each other."""

from __future__ import annotations

import numpy as np
from sklearn import naive_bayes as sk

from fastbayes.models.sklearn import naive_bayes as fb

NAMES = ["BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"]
DISCRETE = [name for name in NAMES if name != "GaussianNB"]
SPARSE = ["BernoulliNB", "ComplementNB", "MultinomialNB"]
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
PRIOR = [0.2, 0.5, 0.3]


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
