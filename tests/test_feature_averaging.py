"""The average over all subsets of features, held against their enumeration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close, frame
from hypothesis import given, settings
from hypothesis import strategies as st
from one_dependence_cases import Problem, problems
from oracles.feature_averaging import AveragedNaiveBayes
from oracles.one_dependence import exact_log

import fastbayes as fb

pytestmark = pytest.mark.usefixtures("kernels")


def fitted(p: Problem, averaging: Any) -> Any:
    integers = [j for j, t in p.types.items() if pa.types.is_integer(t)]
    model = fb.NaiveBayes(feature_averaging=averaging, categorical=integers, **p.options)
    return model.fit(p.X, pa.array(p.classes), sample_weight=p.weights)


@given(problems(weighted=False, alphas=(0.5, 1, 3)), st.sampled_from([True, 0.125, 0.9]))
@settings(max_examples=100)
def test_average__is_that_of_all_structures(p: Problem, averaging: Any) -> None:
    """Prior times marginal likelihood times prediction, summed over 2^d structures, to 1e-12."""
    model = fitted(p, averaging)
    oracle = AveragedNaiveBayes(chance=0.5 if averaging is True else averaging, **p.options)
    oracle.fit(p.rows, p.classes)
    X = frame(p.asked, p.types)
    names = model.schema_.names
    close(model.feature_probabilities_, [float(oracle.probability(j)) for j in names])
    joint = [oracle.joint(row) for row in p.asked]
    close(model.log_joint(X), [[exact_log(x) for x in row] for row in joint])
    close(model.predict_proba(X), [[float(x / sum(row)) for x in row] for row in joint])
    explained = model.explain(X)
    close(explained.prior + explained.contributions.sum(axis=1), model.log_joint(X))


@given(problems(weighted=False, alphas=(0.5, 1, 3)))
@settings(max_examples=30)
def test_average__sums_to_one(p: Problem) -> None:
    close(np.exp(fitted(p, True).log_joint(p.every_row())).sum(), 1)


def test_average__by_hand() -> None:
    """One feature, alpha = 1: given the class 1/6 * 1/6, without 1/30; odds 1/36 : 1/30 = 5 : 6.

    P(D | arc) = (1! 1! / 3!)^2; P(D | no arc) = 2! 2! / 5!.
    """
    table = {"x": ["a", "b", "a", "b"], "y": [0, 0, 1, 1]}
    model = fb.NaiveBayes(feature_averaging=True).fit(table, "y")
    close(model.feature_probabilities_, [5 / 11])
    close(model.predict_proba({"x": ["a"]}), [[0.5, 0.5]])
    told = fb.NaiveBayes(feature_averaging=True).fit({"x": ["a", "a", "b"], "y": [0, 0, 1]}, "y")
    # P(D | arc) = 2!/(2*3) * 1/2 = 1/6, P(D | no arc) = 2! 1! / (2*3*4) = 1/12.
    q = 2 / 3
    close(told.feature_probabilities_, [q])
    chance = np.array([3 / 5 * (q * 3 / 4 + (1 - q) * 3 / 5), 2 / 5 * (q / 3 + (1 - q) * 3 / 5)])
    close(told.predict_proba({"x": ["a"]})[0], chance / chance.sum())


def test_average__noise_is_left_out_and_what_tells_is_kept() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    y = rng.integers(0, 2, n)
    noise = {f"noise{j}": rng.integers(0, 4, n).astype(str) for j in range(5)}
    tells = np.where(rng.random(n) < 0.3, y, rng.integers(0, 4, n)).astype(str)
    table = pa.table({**noise, "tells": tells, "y": y})
    model = fb.NaiveBayes(feature_averaging=True).fit(table, "y")
    assert (model.feature_probabilities_[:5] < 0.01).all()
    assert model.feature_probabilities_[5] == 1
    alone = table.select(["tells", "y"])
    without = fb.NaiveBayes().fit(alone, "y")
    close(model.predict_proba(table), without.predict_proba(alone), 0.02)
    assert math.isfinite(model.log_joint(table).sum())


def test_average__chances_near_zero_and_one_are_no_averages() -> None:
    table = {"x": ["a", "a", "b", "b"], "z": ["u", "v", None, "u"], "y": [0, 0, 1, 0]}
    plain = fb.NaiveBayes().fit(table, "y")
    always = fb.NaiveBayes(feature_averaging=1 - 1e-15).fit(table, "y")
    close(always.log_joint(table), plain.log_joint(table), 1e-13)
    never = fb.NaiveBayes(feature_averaging=1e-300).fit(table, "y")
    close(never.predict_proba(table), np.tile(np.exp(plain.class_log_prior_), (4, 1)))


def test_average__numeric_columns_are_always_in() -> None:
    table = {"x": ["a", "b", "a", "b"], "h": [0.0, 1.0, 2.0, 5.0], "y": [0, 0, 1, 1]}
    model = fb.NaiveBayes(feature_averaging=True).fit(table, "y")
    close(model.feature_probabilities_, [5 / 11, 1])
    alone = {k: table[k] for k in ("h", "y")}
    expected = fb.NaiveBayes().fit(alone, "y").predict_proba(alone)
    close(model.predict_proba(table), expected)  # x is as frequent in both classes
    assert fb.NaiveBayes().fit(table, "y").feature_probabilities_.tolist() == [1, 1]


def test_average__weights_are_rows() -> None:
    table = {"x": ["a", "a", "b", "c"], "y": [0, 1, 1, 0]}
    twice = {k: [v for v, n in zip(c, (3, 1, 2, 0), strict=True) for _ in range(n)]
             for k, c in table.items()}  # fmt: skip
    options = {"feature_averaging": True, "domains": {"x": ["a", "b", "c"]}}
    weighed = fb.NaiveBayes(**options).fit(table, "y", sample_weight=[3, 1, 2, 0])
    repeated = fb.NaiveBayes(**options).fit(twice, "y")
    close(weighed.feature_probabilities_, repeated.feature_probabilities_)
    close(weighed.log_joint(table), repeated.log_joint(table))
    # Statistics scaled by 2 are those of every row twice.
    double = {k: v * 2 for k, v in twice.items()}
    scaled = fb.NaiveBayes(**options).fit_statistics(repeated.statistics_ * 2)
    both = fb.NaiveBayes(**options).fit(double, "y")
    close(scaled.feature_probabilities_, both.feature_probabilities_)


def test_average__expected_classes_of_unlabelled_rows() -> None:
    table = {"x": ["a", "a", "b", "b", "b"], "y": ["n", "n", "p", None, None]}
    model = fb.NaiveBayes(feature_averaging=True, unlabelled="em").fit(table, "y")
    assert model.predict({"x": ["b"]}).tolist() == ["p"]
    assert 0.5 < model.feature_probabilities_[0] < 1


@pytest.mark.parametrize("averaging", [0.0, 1.0, -1, 2, math.nan, "yes", None])
def test_average__what_is_no_chance_is_refused(averaging: Any) -> None:
    with pytest.raises(ValueError, match=r"feature_averaging=.*between 0 and 1"):
        fb.NaiveBayes(feature_averaging=averaging).fit({"x": ["a", "b"], "y": [0, 1]}, "y")


def test_average__without_smoothing_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha > 0"):
        fb.NaiveBayes(alpha=0, feature_averaging=True).fit({"x": ["a", "b"], "y": [0, 1]}, "y")


def test_average__leave_one_out_is_refused() -> None:
    table = {"x": ["a", "b", "a"], "y": [0, 1, 1]}
    model = fb.NaiveBayes(feature_averaging=True)
    with pytest.raises(fb.SchemaError, match=r"feature_averaging.*k_fold"):
        fb.leave_one_out(model, fb.count(table, "y"), table)
