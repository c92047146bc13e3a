"""A2DE: its agreement with an oracle in fractions, its fallbacks, and the laws of every model.

Paragraphs: estimates §2, models §5, missing and unseen §1 of the conventions.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close, frame, same_answers
from hypothesis import given, settings
from hypothesis import strategies as st
from one_dependence_cases import Problem, problems
from oracles.a2de import A2DE

import fastbayes as fb
from fastbayes.core.errors import MemoryLimitError, SchemaError

pytestmark = pytest.mark.usefixtures("kernels")


MEANS = st.fixed_dictionaries(
    {
        "min_count": st.sampled_from([0, 1, 1.5, 3, 100]),
        "smoothing": st.sampled_from(["laplace", "m_estimate"]),
        "m": st.sampled_from([0, 0.5, 1, 4]),
    }
)


def made(p: Problem, **options: Any) -> fb.A2DE:
    integers = [j for j, t in p.types.items() if pa.types.is_integer(t)]
    return fb.A2DE(categorical=integers or None, **p.options | options)


def fitted(p: Problem, **options: Any) -> fb.A2DE:
    return made(p, **options).fit(p.X, pa.array(p.classes), sample_weight=p.weights)


# Against the oracle


@given(problems(), MEANS)
@settings(max_examples=150)
def test_oracle__says_the_same(p: Problem, options: dict[str, Any]) -> None:
    model, X = fitted(p, **options), frame(p.asked, p.types)
    oracle = A2DE(**p.options | options).fit(p.rows, p.classes, p.weights)
    assert list(model.classes_) == oracle.classes
    close(model.log_joint(X), [oracle.log_joint(r) for r in p.asked])
    posterior = np.array([oracle.posterior(r) for r in p.asked])
    close(model.predict_proba(X), posterior)
    for i, (row, label) in enumerate(zip(p.asked, model.predict(X), strict=True)):
        ranked = sorted(posterior[i])
        if ranked[-1] - ranked[-2] > 1e-9 or ranked[-1] == ranked[-2]:
            assert label == oracle.predict(row)


@given(problems(), MEANS)
@settings(max_examples=60)
def test_explanation__sums_to_the_log_joint(p: Problem, options: dict[str, Any]) -> None:
    model, X = fitted(p, **options), frame(p.asked, p.types)
    oracle = A2DE(**p.options | options).fit(p.rows, p.classes, p.weights)
    joint, explained = model.log_joint(X), model.explain(X)
    total = explained.prior + explained.contributions.sum(axis=1)
    possible = np.isfinite(joint)
    close(total[possible], joint[possible])
    assert np.isneginf(total[~possible]).all()
    for row, shares in zip(p.asked, explained.super_parents, strict=True):
        cells = oracle.observed(row)
        for i, c in enumerate(oracle.classes):
            said = {
                (f, g): oracle.two(f, g, cells, c)
                for f, g in itertools.combinations(cells, 2)
                if sum(oracle.pairs[e, f, cells[f], g, cells[g]] for e in oracle.classes)
                >= options["min_count"]
            }
            if not said:
                continue
            whole = sum(said.values())
            expected = [
                float(sum(s for pair, s in said.items() if j in pair) / whole / 2) if whole else 0
                for j in explained.features
            ]
            close(shares[:, i], expected)


# Laws


@given(problems(), MEANS)
@settings(max_examples=60)
def test_normalisation__the_joint_sums_to_one(p: Problem, options: dict[str, Any]) -> None:
    model = fitted(p, **options | {"min_count": 0})
    close(np.exp(model.log_joint(p.every_row())).sum(), 1)


def test_statistics__without_triples_are_refused() -> None:
    stats = fb.count({"a": ["p", "q"], "y": [0, 1]}, "y", pairs=True)
    with pytest.raises(SchemaError, match="no triples; count again with triples=True"):
        fb.A2DE().fit_statistics(stats)


# Fallbacks


@given(problems(), MEANS)
@settings(max_examples=40)
def test_fallback__without_a_pair_is_aode_and_without_a_parent_naive_bayes(
    p: Problem, options: dict[str, Any]
) -> None:
    X = frame(p.asked, p.types)
    nothing = options | {"min_count": 1e6}
    same_answers(fitted(p, **nothing), p.fit("AODE", **nothing), X)
    blank = {j: [None] * 2 for j in p.columns}
    blank = pa.table({j: pa.array(v, p.types[j]) for j, v in blank.items()})
    if p.options["missing"] == "marginalize":
        model = fitted(p, **options)
        close(model.log_joint(blank), np.tile(model.class_log_prior_, (2, 1)))


def test_fallback__row_by_row() -> None:
    """Pairs of the first row were seen, of the second none, of the third not even a value."""
    table = {
        "a": ["p", "p", "q", "q", "q"],
        "b": ["r", "r", "s", "s", "s"],
        "c": ["t", "u", "t", "u", "t"],
        "y": [0, 1, 1, 1, 0],
    }
    X = {"a": ["p", "p", "z"], "b": ["r", "s", "z"], "c": ["t", None, "z"]}
    model = fb.A2DE(unseen="ignore").fit(table, "y")
    aode, naive = fb.AODE().fit(table, "y"), fb.NaiveBayes().fit(table, "y")
    joint = model.log_joint(X)
    assert abs(joint[0] - aode.log_joint(X)[0]).max() > 0.01
    close(joint[1], aode.log_joint(X)[1])
    close(joint[2], naive.log_joint(X)[2])


def test_two_columns__are_their_joint_table() -> None:
    table = {"a": ["p", "p", "q", "q"], "b": ["r", "s", "s", "s"], "y": [0, 1, 1, 1]}
    model = fb.A2DE(min_count=0).fit(table, "y")
    joint = np.exp(model.log_joint({"a": ["p", "q"], "b": ["r", "s"]}))
    close(joint, [[2 / 12, 1 / 12], [1 / 12, 3 / 12]])
    assert model.n_parameters_ == 7


def test_one_column_and_none__are_aode() -> None:
    y = [0, 1, 1]
    one = pa.table({"a": ["p", "p", "q"]})
    same_answers(fb.A2DE().fit(one, y), fb.AODE().fit(one, y), one)
    void = pa.table({"a": pa.nulls(3, pa.string()), "b": pa.nulls(3, pa.string())})
    same_answers(fb.A2DE().fit(void, y), fb.AODE().fit(void, y), void)


# What it is for


def test_parity_of_three__is_beyond_aode() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (3, 4000))
    X = pa.table({name: column.astype(str) for name, column in zip("abc", bits, strict=True)})
    y = bits.sum(axis=0) % 2
    assert fb.A2DE().fit(X, y).score(X, y) == 1
    assert fb.AODE().fit(X, y).score(X, y) < 0.6


@pytest.mark.parametrize("threshold", [1, 3])
def test_subsumption__is_that_of_aode(threshold: float) -> None:
    rng = np.random.default_rng(4)
    fine = rng.integers(0, 6, 200)
    columns = {"fine": fine, "coarse": fine // 3, "free": rng.integers(0, 3, 200)}
    X = pa.table({name: column.astype(str) for name, column in columns.items()})
    y = (fine + rng.integers(0, 3, 200)) // 4
    model = fb.A2DE(subsumption=threshold).fit(X, y)
    assert model.subsumptions_ == fb.AODE(subsumption=threshold).fit(X, y).subsumptions_
    without = X.set_column(1, "coarse", pa.nulls(200, pa.string()))
    close(model.log_joint(X), fb.A2DE().fit(X, y).log_joint(without))
    assert not model.explain(X).contributions[:, 1].any()


def test_fast__is_near_exact() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.integers(0, 4, (3000, 8)), rng.integers(0, 3, 3000)
    told: dict[str, Any] = {"categorical": list(range(8))}
    exact, fast = (fb.A2DE(precision=k, **told).fit(X, y) for k in ("exact", "fast"))
    np.testing.assert_allclose(fast.predict_proba(X), exact.predict_proba(X), rtol=0, atol=1e-5)


def test_memory__for_scoring_is_refused_with_the_figure() -> None:
    rng = np.random.default_rng(0)
    X = pa.table({f"x{j}": rng.integers(0, 9, 500).astype(str) for j in range(6)})
    y = rng.integers(0, 2, 500)
    model = fb.A2DE(threads=1).fit(X, y)
    assert model.predict(X).shape == (500,)
    model.set_params(memory_limit=1_000_000)
    with pytest.raises(MemoryLimitError, match=r"scoring needs 1,\d{3},\d{3} bytes.*1,\d{3} pairs"):
        model.predict(X)
    with pytest.raises(MemoryLimitError, match="counting triples needs"):
        fb.A2DE(memory_limit=100_000).fit(X, y)


def test_threads__one_is_eight_bitwise() -> None:
    rng = np.random.default_rng(0)
    n = 150_000
    X = pa.table({f"x{j}": pa.array(rng.integers(0, j + 2, n).astype(str)) for j in range(5)})
    y, w = rng.integers(0, 3, n), rng.random(n)
    one, eight = (fb.A2DE(threads=t).fit(X, y, sample_weight=w) for t in (1, 8))
    assert one.statistics_ == eight.statistics_
    assert one.log_joint(X).tobytes() == eight.log_joint(X).tobytes()
    assert one.predict_proba(X).tobytes() == eight.predict_proba(X).tobytes()


@pytest.mark.parametrize("columns", ["abc", "ab", "a"])
def test_sample__follows_the_joint(columns: str) -> None:
    rng = np.random.default_rng(3)
    rows = [
        {"a": "pq"[a], "b": "rst"[rng.integers(0, 3) if a else 1], "c": [None, "u", "v"][c]}
        for a, c in zip(rng.integers(0, 2, 60), rng.integers(0, 3, 60), strict=True)
    ]
    y = [int(r["a"] == "p" and rng.random() < 0.8) for r in rows]
    rows = [{**{j: r[j] for j in columns}, "gap": None} for r in rows]
    p = Problem(rows, y, dict.fromkeys([*columns, "gap"], pa.string()))
    model, n = fitted(p, min_count=0), 40_000
    drawn = model.sample(n, seed=1)
    keys, counts = np.unique(
        [" ".join(map(str, row.values())) for row in drawn.to_pylist()], return_counts=True
    )
    found = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    every = p.every_row()
    joint = np.exp(model.log_joint(every))
    close(joint.sum(), 1)
    for row, chances in zip(every.to_pylist(), joint, strict=True):
        for c, chance in enumerate(chances):
            got = found.pop(" ".join(map(str, [*row.values(), c])), 0)
            assert abs(got / n - chance) < 5 * math.sqrt(chance * (1 - chance) / n)
    assert not found


@pytest.mark.parametrize("model", [fb.A2DE, fb.AODE])
@pytest.mark.parametrize("alpha", [0, 1])
def test_sample__of_a_class_that_the_prior_rules_out(model: Any, alpha: float) -> None:
    table = {"a": ["p", "p", "q"], "b": ["r", "s", "s"], "c": ["t", "t", "u"], "y": [0, 0, 1]}
    certain = model(class_prior=[1, 0], alpha=alpha).fit(table, "y")
    assert set(certain.sample(50, seed=0)["y"].to_pylist()) == {0}
    drawn = certain.sample(50, y=1, seed=0)
    assert alpha or set(drawn["a"].to_pylist()) == {"q"}
    gaps = {"a": ["p", None], "b": [None, None], "y": [0, 1]}
    empty = model(alpha=alpha, domains={"b": ["r", "s"]}).fit(gaps, "y")
    assert None not in empty.sample(50, y=1, seed=0)["a"].to_pylist()


def test_adapt_prior__finds_the_mix_of_new_rows() -> None:
    rng = np.random.default_rng(8)
    y = rng.integers(0, 2, 6000)
    X = pa.table({f"x{j}": ((rng.random(6000) < 0.3) ^ (y == 1)).astype(str) for j in range(5)})
    model = fb.A2DE().fit(X.slice(0, 3000), y[:3000])
    kept = np.flatnonzero((np.arange(6000) >= 3000) & ((y == 0) | (rng.random(6000) < 0.25)))
    adapted = model.adapt_prior(X.take(pa.array(kept)))
    np.testing.assert_allclose(np.exp(adapted.class_log_prior_)[1], y[kept].mean(), atol=0.05)


def test_leave_one_out__does_not_take_it_for_aode() -> None:
    X = pa.table({"a": ["p", "q", "q"], "b": ["r", "s", "s"]})
    stats = fb.count(X, [0, 1, 1], triples=True)
    with pytest.raises(SchemaError, match="A2DE"):
        fb.leave_one_out(fb.A2DE(), stats, X)
