"""What holds for SPODE, TAN and AODE on any data, and their agreement with an oracle in fractions.

Paragraphs: estimates §2, models §5, missing and unseen §1, leave-one-out §9 of the conventions.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close, frame
from hypothesis import given, settings
from hypothesis import strategies as st
from one_dependence_cases import Problem, averages, problems
from oracles.naive_bayes import log_sum_exp

import fastbayes as fb

pytestmark = pytest.mark.usefixtures("kernels")


KINDS = ["SPODE", "TAN", "AODE"]
TEXTS = dict.fromkeys("abc", pa.string())


def same_as_oracle(p: Problem, model: Any, oracle: Any) -> None:
    X = frame(p.asked, p.types)
    assert list(model.classes_) == oracle.classes
    close(model.log_joint(X), [oracle.log_joint(r) for r in p.asked])
    posterior = np.array([oracle.posterior(r) for r in p.asked])
    close(model.predict_proba(X), posterior)
    predicted = model.predict(X)
    for i, row in enumerate(p.asked):
        ranked = sorted(posterior[i])
        if ranked[-1] - ranked[-2] > 1e-9 or ranked[-1] == ranked[-2]:
            assert predicted[i] == oracle.predict(row)


# Against the oracle


@given(problems(), st.data())
@settings(max_examples=100)
def test_oracle__spode(p: Problem, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(p.columns))
    model = p.fit("SPODE", super_parent=name)
    assert model.super_parent_ == name
    same_as_oracle(p, model, p.oracle("SPODE", super_parent=name))


@given(problems(), st.data())
@settings(max_examples=100)
def test_oracle__tan(p: Problem, data: st.DataObject) -> None:
    options = {
        "root": data.draw(st.none() | st.sampled_from(p.columns)),
        "prune": data.draw(st.sampled_from([None, None, "bic", "aic"])),
    }
    model, oracle = p.fit("TAN", **options), p.oracle("TAN", **options)
    assert with_values(model.parents_, oracle) == with_values(oracle.parents, oracle)
    same_as_oracle(p, model, oracle)


def with_values(parents: dict[str, Any], oracle: Any) -> dict[str, Any]:
    """Leave out columns without any value: they say nothing, wherever they hang."""
    return {j: parent for j, parent in parents.items() if oracle.values[j]}


@given(problems(), averages())
@settings(max_examples=100)
def test_oracle__aode(p: Problem, options: dict[str, Any]) -> None:
    same_as_oracle(p, p.fit("AODE", **options), p.oracle("AODE", **options))


@pytest.mark.parametrize("prune", ["bic", "aic"])
def test_oracle__forests_of_columns_that_depend_on_each_other(prune: str) -> None:
    """Near the price of an edge, with holes: in the price N is all rows, in the gain the known."""
    edges = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = []
        for _ in range(rng.integers(8, 40)):
            v = rng.integers(0, 2)
            cells = {j: str((v + (rng.random() < 0.3)) % 2) for j in "cab"}
            rows.append({j: None if rng.random() < 0.3 else x for j, x in cells.items()})
        p = Problem(rows, [0, 1] * (len(rows) // 2) + [0] * (len(rows) % 2), TEXTS)
        model, oracle = p.fit("TAN", prune=prune), p.oracle("TAN", prune=prune)
        assert model.parents_ == oracle.parents
        edges += len(oracle.edges())
    assert 20 < edges < 100


@given(problems(complete=True))
def test_oracle__super_parent_by_the_leave_one_out_log_joint(p: Problem) -> None:
    oracle = p.oracle("SPODE", super_parent=None)
    _, best = oracle.choose("loo_joint")
    assert p.fit("SPODE").super_parent_ == best


@given(problems())
def test_oracle__super_parent_by_information(p: Problem) -> None:
    _, best = p.oracle("SPODE", super_parent=None).choose("cmi")
    assert p.fit("SPODE", super_parent="cmi").super_parent_ == best


@given(problems(complete=True))
@settings(max_examples=25)
def test_oracle__super_parent_by_the_leave_one_out_log_loss(p: Problem) -> None:
    scores, best = p.oracle("SPODE", super_parent=None).choose("loo")
    assert p.fit("SPODE", super_parent="loo").super_parent_ == best, scores


@given(problems(complete=True, weighted=False, alphas=(0.5, 1)), st.data())
def test_oracle__closed_form_of_the_leave_one_out_log_joint(
    p: Problem, data: st.DataObject
) -> None:
    """The closed form that chooses is the sum of what every row has where it is left out."""
    p.options["class_prior"] = None
    name = data.draw(st.sampled_from(p.columns))
    oracle = p.oracle("SPODE", super_parent=name)
    left_out = [
        oracle.without(r).log_joint(row)[oracle.classes.index(c)]
        for r, (row, c) in enumerate(zip(p.rows, p.classes, strict=True))
    ]
    close(oracle.family_log_joint(oracle.star(name)), math.fsum(left_out))


@given(problems(), st.sampled_from(KINDS), st.data())
def test_oracle__leave_one_out_is_refitting(p: Problem, kind: str, data: st.DataObject) -> None:
    options = data.draw(averages()) if kind == "AODE" else {}
    if kind == "SPODE":
        options = {"super_parent": data.draw(st.sampled_from(p.columns))}
    if options.get("weights") == "mutual_information":
        options["weights"] = "uniform"  # they are of all rows, and part of the structure
    result = fb.leave_one_out(
        p.model(kind, **options),
        p.count(),
        p.X,
        pa.array(p.classes),
        sample_weight=p.weights,
    )
    oracle = p.oracle(kind, **options)
    kept = [r for r, w in enumerate(p.weights or [1] * len(p.rows)) if w]
    close(result.proba[kept], oracle.leave_one_out())
    close(result.log_loss, oracle.leave_one_out_log_loss())


# Normalisation and completion


@given(problems(), st.sampled_from(KINDS), st.data())
def test_normalisation__the_joint_sums_to_one(p: Problem, kind: str, data: st.DataObject) -> None:
    options = data.draw(averages()) | {"min_count": 0} if kind == "AODE" else {}
    total = np.exp(p.fit(kind, **options).log_joint(p.every_row())).sum()
    close(total, 1)


@given(problems(missing=("marginalize",)), st.sampled_from(["SPODE", "TAN"]), st.data())
def test_completion__a_missing_cell_is_the_sum_of_its_completions(
    p: Problem, kind: str, data: st.DataObject
) -> None:
    options = {"super_parent": data.draw(st.sampled_from(p.columns))} if kind == "SPODE" else {}
    model, values = p.fit(kind, **options), p.oracle("AODE").values
    for row in p.asked:
        cells = [[v] if v is not None else values[j] or [None] for j, v in row.items()]
        whole = [dict(zip(row, x, strict=True)) for x in itertools.product(*cells)]
        joint = model.log_joint(frame(whole, p.types))
        got = model.log_joint(frame([row], p.types))[0]
        close(got, [log_sum_exp(list(x)) for x in joint.T])


@given(problems(), st.sampled_from([0, 1, 2]))
def test_aode__with_a_prior_is_the_mean_of_its_spodes(p: Problem, min_count: float) -> None:
    """Row by row over the super-parents that qualify, whatever else is missing or unseen.

    With a given prior both have P(c) P(x_p | c) over the rows where x_p is known, so the factors
    are the same ones. Without, AODE's P(c, x_p) is smoothed as one table and the law fails.
    """
    if p.options["class_prior"] is None:
        p.options["class_prior"] = "uniform"
    model, oracle = p.fit("AODE", min_count=min_count), p.oracle("AODE")
    X = frame(p.asked, p.types)
    spodes = {
        j: p.model("SPODE", super_parent=j).fit_statistics(model.statistics_).log_joint(X)
        for j in p.columns
    }
    got = model.log_joint(X)
    for r, row in enumerate(p.asked):
        cells = oracle.observed(row)
        parents = [j for j, v in cells.items() if oracle.frequency(j, v) >= min_count]
        if parents:
            mean = np.exp([spodes[j][r] for j in parents]).mean(axis=0)
            close(np.exp(got[r]), mean)


@given(problems(complete=True, alphas=(0,)))
def test_tan__without_smoothing_the_root_does_not_matter(p: Problem) -> None:
    model = p.fit("TAN")
    X = frame(p.asked, p.types)
    for root in p.columns:
        other = p.model("TAN", root=root).fit_statistics(model.statistics_)
        assert other.parents_[root] is None
        close(other.log_joint(X), model.log_joint(X))


@given(problems(), st.sampled_from(KINDS), st.sampled_from(["0", "z"]))
def test_column_of_nulls__changes_nothing(p: Problem, kind: str, name: str) -> None:
    """Named first and named last: by name it would win or lose every tie."""
    p.options["missing"] = "marginalize"
    q = p.alike(
        rows=[row | {name: None} for row in p.rows],
        types=p.types | {name: pa.string()},
        asked=[row | {name: None} for row in p.asked],
    )
    a, b = p.fit(kind), q.fit(kind)
    close(b.log_joint(frame(q.asked, q.types)), a.log_joint(frame(p.asked, p.types)))


@pytest.mark.parametrize("weight", [None, np.full(60, 1.5)])
@pytest.mark.parametrize("kind", ["SPODE", "TAN", "AODE", "KDB", "A2DE"])
def test_folds_that_are_added__are_a_model_of_their_rows(kind: str, weight: Any) -> None:
    """Where a column's missing values lie in the rows left out their cells are there, empty."""
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {c: rng.choice([*"pqr"], 60).tolist() for c in "abc"}
    table |= {"y": rng.choice([*"AB"], 60).tolist(), "f": [str(i % 5) for i in range(60)]}
    table["a"][7] = None
    rows, X, kept = pa.table(table), ["a", "b", "c"], np.array(table["f"]) != "2"
    options = {"k": 1} if kind == "KDB" else {}
    fitted = getattr(fb, kind)(columns=X, **options).fit(
        rows.filter(pa.array(kept)), "y", sample_weight=None if weight is None else weight[kept]
    )
    counts: dict[str, Any] = {"pairs": True} | ({"triples": True} if kind == "A2DE" else {})
    folds = fb.count(rows, "y", folds="f", columns=X, sample_weight=weight, **counts).folds
    added = getattr(fb, kind)(**options).fit_statistics(folds[0] + folds[1] + folds[3] + folds[4])
    close(added.log_joint(rows.select(X)), fitted.log_joint(rows.select(X)))


# Invariance


def variants(p: Problem) -> list[tuple[str, Any]]:
    """Return every kind of model with other options than the plain ones too."""
    return [
        ("SPODE", {}),
        ("SPODE", {"super_parent": "cmi"}),
        ("SPODE", {"super_parent": p.columns[0]}),
        ("TAN", {}),
        ("TAN", {"root": p.columns[-1]}),
        ("TAN", {"prune": "aic"}),
        ("AODE", {}),
        ("AODE", {"smoothing": "m_estimate", "min_count": 2}),
    ]


def same_models(p: Problem, q: Problem) -> None:
    """Hold the models of one problem against those of another whose rows are worth the same."""
    asked = frame(p.asked, p.types), frame(q.asked, q.types)
    for kind, options in variants(p):
        a, b = p.fit(kind, **options), q.fit(kind, **options)
        if kind == "TAN":
            assert a.parents_ == b.parents_
        if kind == "SPODE":
            assert a.super_parent_ == b.super_parent_
        assert list(a.classes_) == list(b.classes_)
        close(a.log_joint(asked[0]), b.log_joint(asked[1]))
        close(a.predict_proba(asked[0]), b.predict_proba(asked[1]))


@given(problems())
@settings(max_examples=15)
def test_invariance__names_of_categories(p: Problem) -> None:
    """New names sort backwards."""
    domains = p.options["domains"] or {}
    names: dict[str, dict[Any, Any]] = {}
    for j in p.columns:
        seen = {row[j] for row in p.rows + p.asked} - {None} | set(domains.get(j, []))
        names[j] = {v: f"v{9 - i}" for i, v in enumerate(sorted(seen))} | {None: None}
    q = p.alike(
        rows=[{j: names[j][v] for j, v in row.items()} for row in p.rows],
        asked=[{j: names[j][v] for j, v in row.items()} for row in p.asked],
        types=dict.fromkeys(p.columns, pa.string()),
        options=p.options
        | {"domains": {j: [names[j][v] for v in vs] for j, vs in domains.items()} or None},
    )
    same_models(p, q)


# One statistic, many models


@pytest.mark.parametrize("kind", KINDS)
def test_threads__one_is_eight_bitwise(kind: str) -> None:
    rng = np.random.default_rng(0)
    n = 200_000
    X = pa.table({f"x{j}": pa.array(rng.integers(0, j + 2, n).astype(str)) for j in range(5)})
    y, w = rng.integers(0, 3, n), rng.random(n)
    model = {"SPODE": fb.SPODE, "TAN": fb.TAN, "AODE": fb.AODE}[kind]
    one, eight = (model(threads=t).fit(X, y, sample_weight=w) for t in (1, 8))
    assert one.statistics_ == eight.statistics_
    assert one.log_joint(X).tobytes() == eight.log_joint(X).tobytes()
    assert one.predict_proba(X).tobytes() == eight.predict_proba(X).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_sample__follows_the_joint(kind: str) -> None:
    rng = np.random.default_rng(3)
    rows = [
        {"a": "pq"[a], "b": "rst"[rng.integers(0, 3) if a else 1], "c": [None, "u", "v"][c]}
        for a, c in zip(rng.integers(0, 2, 60), rng.integers(0, 3, 60), strict=True)
    ]
    y = [int(r["a"] == "p" and rng.random() < 0.8) for r in rows]
    p = Problem(rows, y, TEXTS)
    model = p.fit(kind, **({"min_count": 0} if kind == "AODE" else {}))
    n = 40_000
    drawn = Counter(tuple(row.values()) for row in model.sample(n, seed=1).to_pylist())
    every = p.every_row()
    for row, joint in zip(every.to_pylist(), np.exp(model.log_joint(every)), strict=True):
        for c, probability in enumerate(joint):
            share = drawn.pop((*row.values(), c), 0) / n
            assert abs(share - probability) < 5 * math.sqrt(probability * (1 - probability) / n)
    assert not drawn
