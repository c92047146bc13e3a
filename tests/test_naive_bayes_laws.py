"""What holds for NaiveBayes on any data: normalisation, invariance, merging, threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close, frame, same_answers
from oracles.naive_bayes import log_sum_exp

import fastbayes as fb
from fastbayes.generate import table


@pytest.fixture(params=["always", "never"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", request.param)


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


def rechunked(t: pa.Table, cuts: Iterable[int]) -> pa.Table:
    """Return the table in chunks, each with dictionaries of its own order."""
    bounds = [0, *cuts, t.num_rows]
    parts = []
    for k, (a, b) in enumerate(itertools.pairwise(bounds)):
        columns = {}
        for name in t.column_names:
            column = t[name].slice(a, b - a).combine_chunks()
            if pa.types.is_dictionary(column.type):
                values = sorted(column.dictionary.to_pylist(), reverse=k % 2 == 0)
                code = {v: i for i, v in enumerate(values)}
                indices = [None if v is None else code[v] for v in column.to_pylist()]
                column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), values)
            columns[name] = column
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def test_invariance__rows_columns_chunks_and_category_names() -> None:
    X, y = sample(2000)
    base = fb.NaiveBayes().fit(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    same_answers(base, fb.NaiveBayes().fit(X.take(order), y.take(order)), X)
    backwards = X.select(X.column_names[::-1])
    same_answers(
        base, fb.NaiveBayes().fit(backwards, y), X.select(X.column_names[3:] + X.column_names[:3])
    )
    chunked = rechunked(X, [1, 700, 701, 1500])
    same_answers(base, fb.NaiveBayes().fit(chunked, y), chunked)
    close(fb.NaiveBayes().fit(chunked, y).log_joint(X), base.log_joint(chunked))
    renamed = X
    for i, name in enumerate(X.column_names):
        if pa.types.is_dictionary(X[name].type):
            names = {v: v[::-1] for v in X[name].combine_chunks().dictionary.to_pylist()}
            values = [None if v is None else names[v] for v in X[name].to_pylist()]
            renamed = renamed.set_column(i, name, pa.array(values))
    close(fb.NaiveBayes().fit(renamed, y).log_joint(renamed), base.log_joint(X))


def test_weights__two_is_twice_and_zero_is_never() -> None:
    X, y = sample(600)
    w = np.random.default_rng(3).integers(0, 4, len(y))
    w[:5] = 0
    repeated = np.repeat(np.arange(len(y)), w)
    weighted = fb.NaiveBayes().fit(X, y, sample_weight=w)
    same_answers(weighted, fb.NaiveBayes().fit(X.take(repeated), y.take(repeated)), X)


def test_weights__zero_adds_neither_value_nor_class() -> None:
    X = pa.table({"x": ["p", "q", "r", "p"]})
    model = fb.NaiveBayes().fit(X, ["a", "b", "b", "c"], sample_weight=[1, 1, 0, 0])
    same_answers(model, fb.NaiveBayes().fit(X.slice(0, 2), ["a", "b"]), X)


def test_rows_without_a_class__are_no_rows() -> None:
    X, y = sample(300)
    known = np.arange(len(y)) % 3 > 0
    holes = pa.array([c if k else None for c, k in zip(y.to_pylist(), known, strict=True)])
    same_answers(
        fb.NaiveBayes().fit(X, holes), fb.NaiveBayes().fit(X.filter(known), y.filter(known)), X
    )


@pytest.mark.filterwarnings("ignore:there is only one class")  # so far
@pytest.mark.parametrize("cuts", [[1], [500], [1, 2, 3], [100, 900, 901]])
def test_partial_fit__any_batching_is_fit(cuts: list[int]) -> None:
    X, y = sample(1000)
    whole, parts = fb.NaiveBayes().fit(X, y), fb.NaiveBayes()
    for a, b in itertools.pairwise([0, *cuts, 1000]):
        parts.partial_fit(X.slice(a, b - a), y.slice(a, b - a))
    same_answers(whole, parts, X)
    assert parts.statistics_.allclose(whole.statistics_)


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


def test_rows_do_not_see_each_other() -> None:
    X, y = sample(3000)
    model = fb.NaiveBayes().fit(X, y)
    whole = model.log_joint(X)
    close(np.concatenate([model.log_joint(X.slice(a, 1)) for a in range(0, 3000, 97)]), whole[::97])
    assert (model.predict(X) == model.classes_[model.predict_proba(X).argmax(axis=1)]).all()


def test_decide__with_loss_one_minus_identity_is_predict() -> None:
    t = table("survey", 3000, 1)
    X = t.drop_columns("satisfaction")
    model = fb.NaiveBayes().fit(t, "satisfaction")
    decided = model.decide(X, loss=1 - np.eye(3))
    assert (np.asarray(decided.decision) == model.predict(X)).all()
    close(decided.expected_loss, 1 - model.predict_proba(X).max(axis=1))


def test_precision_fast__is_near() -> None:
    X, y = sample(5000)
    exact, fast = fb.NaiveBayes().fit(X, y), fb.NaiveBayes(precision="fast").fit(X, y)
    close(fast.predict_proba(X), exact.predict_proba(X), 1e-4)
