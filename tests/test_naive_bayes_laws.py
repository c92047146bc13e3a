"""What holds for NaiveBayes on any data: normalisation, invariance, merging, threads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close, frame, same_answers
from oracles.naive_bayes import log_sum_exp

import fastbayes as fb
from fastbayes.generate import table

pytestmark = pytest.mark.usefixtures("kernels")


def sample(rows: int, seed: int = 0) -> tuple[pa.Table, pa.ChunkedArray]:
    t = table("flights", rows, seed).drop_columns(["tail_number", "origin", "dest"])
    return t.drop_columns("delayed"), t["delayed"]


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
@pytest.mark.parametrize("class_prior", [None, [0.125, 0.625, 0.25]])
def test_normalisation__the_joint_sums_to_one(alpha: float, class_prior: Any) -> None:
    rng = np.random.default_rng(1)
    domains = {"a": ["p", "q"], "b": ["r", "s", "t"], "c": ["u", "v", "w", "x"]}
    rows = [{j: rng.choice([None, *v]) for j, v in domains.items()} for _ in range(40)]
    model = fb.NaiveBayes(alpha=alpha, class_prior=class_prior, domains=domains)
    model.fit(frame(rows), rng.integers(0, 3, 40))
    every = [dict(zip(domains, x, strict=True)) for x in itertools.product(*domains.values())]
    close(np.exp(model.log_joint(frame(every))).sum(), 1)


@pytest.mark.parametrize("alpha", [0, 1])
def test_completion__a_missing_cell_is_the_sum_of_its_completions(alpha: float) -> None:
    rng = np.random.default_rng(2)
    domains = {"a": ["p", "q"], "b": ["r", "s", "t"]}
    rows = [{j: rng.choice([None, *v]) for j, v in domains.items()} for _ in range(30)]
    model = fb.NaiveBayes(alpha=alpha, domains=domains).fit(frame(rows), rng.integers(0, 2, 30))
    for row in [{"a": None, "b": "s"}, {"a": "p", "b": None}, {"a": None, "b": None}]:
        filled = itertools.product(*([v] if v is not None else domains[j] for j, v in row.items()))
        joint = model.log_joint(frame([dict(zip(row, x, strict=True)) for x in filled]))
        types = dict.fromkeys(row, pa.string())
        close(model.log_joint(frame([row], types))[0], [log_sum_exp(c) for c in joint.T])


def test_weights__zero_adds_neither_value_nor_class() -> None:
    X = pa.table({"x": ["p", "q", "r", "p"]})
    model = fb.NaiveBayes().fit(X, ["a", "b", "b", "c"], sample_weight=[1, 1, 0, 0])
    same_answers(model, fb.NaiveBayes().fit(X.slice(0, 2), ["a", "b"]), X)


@pytest.mark.parametrize("make", [fb.NaiveBayes, fb.JointBayes, fb.AODE, fb.TAN])
@pytest.mark.parametrize("gap", [1e6, 1e12, 1e16])
def test_weights__a_heavy_row_that_lacks_a_value_takes_no_digits_of_the_others(
    make: Any, gap: float
) -> None:
    X = pa.table({"x": ["a", "b", None, "a", "b"], "z": ["p"] * 5})
    weight = [0.1, 0.2, gap, 1.0, 1.0]
    model = make(alpha=1e-6, class_prior="uniform").fit(X, list("qqqrr"), sample_weight=weight)
    found = np.exp(model.log_joint(pa.table({"x": ["a", "b"], "z": ["p"] * 2})))[:, 0]
    close(found[0] / found[1], 0.5, 1e-4)
    close(found.sum(), 0.5, 1e-9)


@pytest.mark.filterwarnings("ignore:there is only one class")
@pytest.mark.parametrize("make", [fb.NaiveBayes, fb.JointBayes, fb.AODE, fb.TAN])
def test_weights__rows_that_were_taken_away_leave_no_rounding_behind(make: Any) -> None:
    X = pa.table({"x": [None, "a", "a", "b"], "z": ["p", None, "p", "p"]})
    rows, weight = X.append_column("y", pa.array(list("qqrr"))), [0.1, 0.3, 1.0, 1.0]
    rows = rows.append_column("w", pa.array(weight))
    whole, gone, kept = (
        make(alpha=0).fit(some, "y", sample_weight="w").statistics_
        for some in (rows, rows.slice(1, 1), rows.take([0, 2, 3]))
    )
    left, again = (make(alpha=0).fit_statistics(stats) for stats in (whole - gone, kept))
    same_answers(left, again, X)


def test_partial_fit__classes_and_values_appear_later() -> None:
    X = pa.table({"x": ["p", "q", "p", "r", "q", "s"]})
    y = ["b", "c", "c", "a", "b", "d"]
    parts = fb.NaiveBayes()
    for i in (0, 2, 4):
        parts.partial_fit(X.slice(i, 2), y[i : i + 2])
    whole = fb.NaiveBayes().fit(X, y)
    same_answers(whole, parts, X)
    assert parts.statistics_ == whole.statistics_


@pytest.mark.parametrize("weighted", [False, True])
def test_threads__one_is_eight_bitwise(weighted: bool) -> None:
    X, y = sample(200_000)
    w = np.random.default_rng(0).random(len(y)) if weighted else None
    one = fb.NaiveBayes(threads=1).fit(X, y, sample_weight=w)
    eight = fb.NaiveBayes(threads=8).fit(X, y, sample_weight=w)
    assert one.statistics_ == eight.statistics_
    assert one.log_joint(X).tobytes() == eight.log_joint(X).tobytes()
    assert one.predict_proba(X).tobytes() == eight.predict_proba(X).tobytes()
    assert (one.predict(X) == eight.predict(X)).all()


def test_precision_fast__is_near() -> None:
    X, y = sample(5000)
    exact, fast = fb.NaiveBayes().fit(X, y), fb.NaiveBayes(precision="fast").fit(X, y)
    close(fast.predict_proba(X), exact.predict_proba(X), 1e-4)


@pytest.mark.parametrize("n", [1, 30, 3000])
def test_class_of_one_value__costs_a_stated_number_of_nats(n: int) -> None:
    other = np.linspace(-1, 1, 40)
    table = pa.table({"x": np.concatenate([np.zeros(n), other]), "y": ["a"] * n + ["b"] * 40})
    model = fb.NaiveBayes(class_prior="uniform").fit(table, "y")
    assert model.variance_floored_ == ["x"]
    deviation = np.sqrt((other**2).sum() / (n + 40))  # within the classes
    joint = model.log_joint({"x": [0.0, deviation]})
    assert joint[0, 0] - joint[1, 0] == pytest.approx(12.5)
    # Where no class is so narrow the default says what maximum likelihood says.
    plain = pa.table({"x": np.concatenate([other, 1 + 0.3 * other]), "y": ["a"] * 40 + ["b"] * 40})
    exact = fb.NaiveBayes(var_floor=0).fit(plain, "y")
    assert np.array_equal(exact.log_joint(plain), fb.NaiveBayes().fit(plain, "y").log_joint(plain))
