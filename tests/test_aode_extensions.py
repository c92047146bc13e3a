"""AODE beyond the plain mean: weights of super-parents, subsumption, which super-parents spoke.

Paragraphs: estimates §2, models §5, missing and unseen §1 of the conventions.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close, frame
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from one_dependence_cases import Problem, averages, problems
from oracles.averages_extended import WeightedAODE
from reading import TARGET, Table

import fastbayes as fb
from fastbayes.errors import SchemaError

EXACT = {"smoothing": "m_estimate", "m": 1.0, "alpha": 1.0}

# Tables of the reference that Weka scored; WAODE takes no missing values.
WHOLE = ["weather-nominal", "contact-lenses", "balance-scale", "tic-tac-toe", "car", "monk-2"]
CUT = ["weather-numeric", "iris", "glass", "wine", "diabetes"]
GAPS = ["breast-cancer", "vote", "labor", "penguins"]


@pytest.fixture(params=["always", "never"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", request.param)


both = pytest.mark.usefixtures("kernels")


def fitted_oracle(p: Problem, kind: Any, **options: Any) -> Any:
    return kind(**p.options | options).fit(p.rows, p.classes, p.weights)


# Against Weka, fold by fold


def ten_folds(table: Table, make: Any) -> tuple[float, float]:
    """Return accuracy in per cent, and log-loss; make(rows) is a model for the rows to learn."""
    X, classes = table.frame(), table.classes
    domains = {j: v for j, v in table.domains.items() if j != TARGET}
    proba = np.zeros((len(table.rows), len(classes)))
    for learn, held in table.folds():
        rows = X.take(pa.array(learn))
        model = make(rows, {**domains, TARGET: sorted(classes)}).fit(rows, TARGET)
        places = [classes.index(c) for c in model.classes_]
        proba[np.ix_(held, places)] = model.predict_proba(X.take(pa.array(held)))
    truth = np.array([classes.index(c) for c in table.labels])
    chance = np.clip(proba[np.arange(len(truth)), truth], 1e-15, None)
    return 100 * float((proba.argmax(axis=1) == truth).mean()), float(-np.log(chance).mean())


def same_figures(table: Table, method: str, make: Any) -> None:
    figures = table.figures(method)
    accuracy, log_loss = ten_folds(table, make)
    assert accuracy == pytest.approx(figures["accuracy_pct"], abs=1e-6)
    assert log_loss == pytest.approx(figures["logloss_nats_clip1e-15"], abs=1e-8)


@pytest.mark.parametrize("name", WHOLE + CUT)
def test_weka__waode_is_the_same(shared_data: Path, name: str) -> None:
    """Weka's WAODE is the m-estimate with weights I(X_p; C) of unsmoothed counts."""
    same_figures(
        Table(shared_data, name),
        "weka_WAODE",
        lambda rows, domains: fb.AODE(weights="mutual_information", domains=domains, **EXACT),
    )


def weka_weights(rows: pa.Table, domains: Any) -> NDArray[np.float64]:
    """Information as A1DE -W computes it: from m-estimates of P(c, x), P(x) and P(c).

    P(c, x) has the rows in which x is known below the line, P(x) all rows: with missing values
    they are not margins of each other.
    """
    values = fb.AODE(domains=domains).fit(rows, TARGET).statistics_.values
    classes, n_rows = values.class_counts, values.class_counts.sum()
    k, result = len(classes), []
    for j, size in enumerate(values.shape.sizes):
        n = values.of(j)
        both = (n + 1 / (k * size)) / (n.sum() + 1)
        one = (n.sum(axis=1, keepdims=True) + 1 / size) / (n_rows + 1)
        result.append((both * np.log(both / (one * (classes + 1 / k) / (n_rows + 1)))).sum())
    return np.array(result)


@pytest.mark.parametrize("name", WHOLE + CUT + GAPS)
def test_weka__a1de_weighted_differs_in_its_weights_alone(shared_data: Path, name: str) -> None:
    same_figures(
        Table(shared_data, name),
        "weka_A1DE-W",
        lambda rows, domains: fb.AODE(
            weights=weka_weights(rows, domains), domains=domains, **EXACT
        ),
    )


# Weights


@both
@given(problems(), averages(), st.data())
@settings(max_examples=100)
def test_weights__equal_the_oracle(p: Problem, options: Any, data: st.DataObject) -> None:
    number = st.sampled_from([0, 0.25, 1, 3])
    some = st.dictionaries(st.sampled_from(p.columns), number).filter(lambda w: any(w.values()))
    weights = data.draw(st.just("mutual_information") | some)
    model = p.fit("AODE", weights=weights, **options)
    oracle = fitted_oracle(p, WeightedAODE, weights=weights, **options)
    X = frame(p.asked, p.types)
    close(model.super_parent_weights_, [float(oracle.weight(j)) for j in model.schema_.names])
    close(model.log_joint(X), [oracle.log_joint(r) for r in p.asked])
    close(model.predict_proba(X), [oracle.posterior(r) for r in p.asked])
    joint, explained = model.log_joint(X), model.explain(X)
    total = explained.prior + explained.contributions.sum(axis=1)
    close(total[np.isfinite(joint)], joint[np.isfinite(joint)])


@both
@given(problems(), averages())
@settings(max_examples=30)
def test_weights__are_relative(p: Problem, options: Any) -> None:
    X, m = frame(p.asked, p.types), len(p.columns)
    plain = p.fit("AODE", **options)
    for weights in (np.full(m, 0.1), [3] * m, dict.fromkeys(p.columns, 1e-310)):
        close(p.fit("AODE", weights=weights, **options).log_joint(X), plain.log_joint(X))


def test_weights__nothing_told_of_the_class_counts_all_alike() -> None:
    table = {"a": ["p", "q"] * 4, "b": ["r", "r", "s", "s"] * 2, "y": ["n"] * 4 + ["u"] * 4}
    model = fb.AODE(weights="mutual_information").fit(table, "y")
    assert model.super_parent_weights_.tolist() == [1, 1]
    close(model.log_joint(table), fb.AODE().fit(table, "y").log_joint(table))


def test_weights__by_hand() -> None:
    """Column a is the class, column b says nothing: a alone speaks, with ln 2."""
    table = {"a": ["p", "p", "q", "q"], "b": ["r", "s", "r", "s"], "y": [0, 0, 1, 1]}
    model = fb.AODE(weights="mutual_information").fit(table, "y")
    close(model.super_parent_weights_, [math.log(2), 0])
    close(model.predict_proba({"a": ["p"], "b": ["r"]}), [[3 / 4, 1 / 4]])


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ("information", ValueError, "weights='information'.*'mutual_information'"),
        ([1, -1], ValueError, ">= 0"),
        ([1, math.nan], ValueError, "finite"),
        ([0, 0], ValueError, "more than 0"),
        ({}, ValueError, "more than 0"),
        ({"a": "much"}, ValueError, "finite numbers"),
        (2.0, ValueError, "one per column"),
        (None, ValueError, "one per column"),
        ([1, 2, 3], SchemaError, "3 numbers, but there are 2 columns"),
        ({"z": 1}, SchemaError, "no column 'z'"),
    ],
)
def test_weights__what_is_none_is_refused(weights: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fb.AODE(weights=weights).fit({"a": ["p", "q"], "b": ["r", "s"], "y": [0, 1]}, "y")


@pytest.mark.parametrize("weights", ["mutual_information", {"b": 1.0}, {"gap": 1.0}])
def test_weights__sample_follows_the_joint(weights: Any) -> None:
    rng = np.random.default_rng(3)
    rows = [
        {"a": "pq"[a], "b": "rst"[rng.integers(0, 3) if a else 1], "gap": None}
        for a in rng.integers(0, 2, 60)
    ]
    y = [int(r["a"] == "p" and rng.random() < 0.8) for r in rows]
    p = Problem(rows, y, dict.fromkeys(["a", "b", "gap"], pa.string()))
    model, n = p.fit("AODE", weights=weights, min_count=0), 40_000
    drawn = model.sample(n, seed=1).to_pylist()
    every = p.every_row()
    joint = np.exp(model.log_joint(every))
    close(joint.sum(), 1)
    for row, chances in zip(every.to_pylist(), joint, strict=True):
        for c, chance in enumerate(chances):
            got = sum(all(d[j] == row[j] for j in row) and d["class"] == c for d in drawn)
            assert abs(got / n - chance) < 5 * math.sqrt(chance * (1 - chance) / n)
