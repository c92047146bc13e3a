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
from one_dependence_cases import Problem, problems
from oracles.averages_extended import ResolvedAODE, WeightedAODE
from reading import TARGET, Table

import fastbayes as fb
from fastbayes.core.errors import SchemaError

EXACT = {"smoothing": "m_estimate", "m": 1.0, "alpha": 1.0}

MEANS = st.fixed_dictionaries(
    {
        "min_count": st.sampled_from([0, 1, 1.5, 3, 100]),
        "smoothing": st.sampled_from(["laplace", "m_estimate"]),
        "m": st.sampled_from([0, 0.5, 1, 4]),
    }
)

# Tables of the reference that Weka scored; WAODE takes no missing values.
WHOLE = ["weather-nominal", "contact-lenses", "balance-scale", "tic-tac-toe", "car", "monk-2"]
CUT = ["weather-numeric", "iris", "glass", "wine", "diabetes"]
GAPS = ["breast-cancer", "vote", "labor", "penguins"]


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


@pytest.mark.parametrize("name", WHOLE + CUT + GAPS)
def test_weka__a1de_with_subsumption_is_the_same(shared_data: Path, name: str) -> None:
    same_figures(
        Table(shared_data, name),
        "weka_A1DE-S",
        lambda rows, domains: fb.AODE(subsumption=True, domains=domains, **EXACT),
    )


# Weights


@both
@given(problems(), MEANS, st.data())
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
@given(problems(), MEANS)
@settings(max_examples=30)
def test_weights__are_relative(p: Problem, options: Any) -> None:
    X, m = frame(p.asked, p.types), len(p.columns)
    plain = p.fit("AODE", **options)
    for weights in ([0.1] * m, [3] * m, dict.fromkeys(p.columns, 1e-310)):
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


# Subsumption


@both
@given(problems(), MEANS, st.sampled_from([0.25, 1, 2, 4]))
@settings(max_examples=150)
def test_subsumption__equals_the_oracle(p: Problem, options: Any, threshold: float) -> None:
    if p.options["missing"] == "category":
        p.options["unseen"] = "ignore"
    model = p.fit("AODE", subsumption=threshold, **options)
    oracle = fitted_oracle(p, ResolvedAODE, threshold=threshold, **options)
    X = frame(p.asked, p.types)
    close(model.log_joint(X), [oracle.log_joint(r) for r in p.asked])
    close(model.predict_proba(X), [oracle.posterior(r) for r in p.asked])
    joint, explained = model.log_joint(X), model.explain(X)
    total = explained.prior + explained.contributions.sum(axis=1)
    close(total[np.isfinite(joint)], joint[np.isfinite(joint)])
    for r, row in enumerate(p.asked):
        seen = oracle.observed(row)
        for j, name in enumerate(explained.features):
            assert name in seen or not explained.contributions[r, j][np.isfinite(joint[r])].any()


def test_subsumption__by_hand() -> None:
    """Pregnant implies female; whole and all imply each other, and all comes first by name."""
    table = {
        "sex": ["f", "f", "f", "m", "m"],
        "pregnant": ["yes", "yes", "no", "no", "no"],
        "whole": ["w"] * 5,
        "all": ["1"] * 5,
        "y": [0, 1, 1, 0, 1],
    }
    model = fb.AODE(subsumption=1).fit(table, "y")
    assert ("pregnant", "yes", "sex", "f") in model.subsumptions_
    assert ("sex", "f", "pregnant", "yes") not in model.subsumptions_
    assert ("all", "1", "whole", "w") in model.subsumptions_
    assert ("whole", "w", "all", "1") not in model.subsumptions_
    asked = {"sex": ["f", "f"], "pregnant": ["yes", "no"], "whole": ["w", "w"], "all": ["1", "1"]}
    left = {"sex": [None, "f"], "pregnant": ["yes", "no"], "whole": [None] * 2, "all": [None] * 2}
    close(model.log_joint(asked), fb.AODE().fit(table, "y").log_joint(left))
    assert fb.AODE().fit(table, "y").subsumptions_ == []
    assert fb.AODE(subsumption=2).fit(table, "y").subsumptions_ == [
        *(("sex", "f", j, v) for j, v in (("whole", "w"), ("all", "1"))),
        *(("pregnant", "no", j, v) for j, v in (("whole", "w"), ("all", "1"))),
        ("all", "1", "whole", "w"),
    ]


def test_subsumption__missing_speaks_against_it() -> None:
    """Every row that has a must have b: a row where b is missing is none."""
    table = {"a": ["p"] * 3 + ["q"], "b": ["r", "r", None, "s"], "y": [0, 1, 0, 1]}
    assert fb.AODE(subsumption=0.5).fit(table, "y").subsumptions_ == [
        ("a", "q", "b", "s"),
        ("b", "r", "a", "p"),
    ]
    model = fb.AODE(subsumption=0.5, missing="category").fit(table, "y")
    assert ("b", None, "a", "p") in model.subsumptions_
    X = {"a": ["p"], "b": [None]}
    plain = fb.AODE(missing="category").fit(table, "y")
    assert model.explain(X).contributions[0, 0].tolist() == [0, 0]
    assert plain.explain(X).contributions[0, 0].any()


@both
def test_subsumption__threads_and_wide_codes() -> None:
    """Columns of both code widths; eight threads give the bits of one."""
    rng = np.random.default_rng(2)
    n = 150_000
    fine = rng.integers(0, 400, n)
    X = pa.table(
        {"fine": fine.astype(str), "coarse": (fine // 100).astype(str), "free": fine[::-1] % 3}
    )
    y = (fine + rng.integers(0, 300, n)) // 250
    one, eight = (
        fb.AODE(subsumption=True, categorical=["free"], threads=t).fit(X, y) for t in (1, 8)
    )
    assert len(one.subsumptions_) == 400
    assert one.predict_proba(X).tobytes() == eight.predict_proba(X).tobytes()
    without = X.set_column(1, "coarse", pa.nulls(n, pa.string()))
    plain = fb.AODE(categorical=["free"]).fit(X, y)
    close(one.log_joint(X), plain.log_joint(without))
    assert (one.predict(X) == plain.predict(without)).all()


@pytest.mark.parametrize("subsumption", [0, -1, "yes", math.nan, None])
def test_subsumption__what_is_no_threshold_is_refused(subsumption: Any) -> None:
    with pytest.raises(ValueError, match=r"subsumption=.*number > 0"):
        fb.AODE(subsumption=subsumption).fit({"a": ["p", "q"], "y": [0, 1]}, "y")


def test_subsumption__without_a_code_for_what_is_left_out_is_refused() -> None:
    with pytest.raises(ValueError, match="use unseen='ignore'"):
        fb.AODE(subsumption=True, missing="category", unseen="smooth").fit(
            {"a": ["p", "q"], "y": [0, 1]}, "y"
        )


# Which super-parents spoke


@both
@given(problems(), MEANS, st.booleans())
@settings(max_examples=100)
def test_super_parents__are_shares_of_the_joint(p: Problem, options: Any, weigh: bool) -> None:
    weights = "mutual_information" if weigh else dict.fromkeys(p.columns, 1)
    oracle = fitted_oracle(p, WeightedAODE, weights=weights, **options)
    explained = p.fit("AODE", weights=weights, **options).explain(frame(p.asked, p.types))
    assert explained.super_parents.shape == explained.contributions.shape
    for row, shares in zip(p.asked, explained.super_parents, strict=True):
        cells = oracle.observed(row)
        for i, c in enumerate(oracle.classes):
            spoken = {
                j: oracle.weight(j) * oracle.one(j, cells, c)
                for j, v in cells.items()
                if oracle.frequency(j, v) >= options["min_count"]
            }
            total = sum(spoken.values())
            expected = [float(spoken.get(j, 0) / total) if total else 0 for j in explained.features]
            close(shares[:, i], expected)


def test_super_parents__of_a_stream_and_of_no_rows() -> None:
    table = pa.table({"a": ["p", "q", "q"], "b": ["r", "s", None], "y": [0, 1, 1]})
    model = fb.AODE().fit(table, "y")
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2))
    whole, read = model.explain(table), model.explain(stream)
    np.testing.assert_array_equal(whole.super_parents, read.super_parents)
    np.testing.assert_array_equal(whole.contributions, read.contributions)
    close(whole.super_parents.sum(axis=1), 1)
    assert not whole.super_parents[2, 1].any()
    assert model.explain(table.slice(0, 0)).super_parents.shape == (0, 2, 2)


def test_super_parents__of_a_class_that_the_prior_rules_out() -> None:
    table = {"a": ["p", "q", "q"], "b": ["r", "s", "s"], "y": [0, 1, 0]}
    model = fb.AODE(class_prior=[1, 0]).fit(table, "y")
    explained = model.explain(table)
    total = explained.prior + explained.contributions.sum(axis=1)
    close(total[:, 0], model.log_joint(table)[:, 0])
    assert np.isneginf(total[:, 1]).all()
    assert not explained.super_parents[..., 1].any()


@pytest.mark.parametrize("kind", [fb.NaiveBayes, fb.SPODE, fb.TAN, fb.CategoricalNB])
def test_super_parents__other_models_have_none(kind: Any) -> None:
    X, y = np.array([[0, 1], [1, 0]]), [0, 1]
    assert kind().fit(X, y).explain(X).super_parents is None
