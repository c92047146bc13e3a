"""AODE and A2DE answer a few rows from the counts that these need, whatever a column holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_dependence_cases import Problem, problems

import fastbayes as fb
from fastbayes.models.discrete.a2de import TripleTables, pair_tables
from fastbayes.models.estimator import smoothing
from fastbayes.models.estimator.smoothing import CountTables

MODELS = {"AODE": fb.AODE, "A2DE": fb.A2DE}


def wide() -> pa.Table:
    """Return rows with a column of many values, and with missing ones."""
    random = np.random.default_rng(0)
    columns = {
        name: pa.array(random.integers(0, most, 400).astype(str))
        for name, most in {"a": 300, "b": 3, "c": 4, "d": 2, "y": 3}.items()
    }
    gone = pa.array(random.random(400) < 0.1)
    return pa.table(columns | {"c": pa.compute.if_else(gone, None, columns["c"])})


def every_cell(sizes: Any, offsets: Any, others: Any) -> Any:
    """Return rows of other features, one of each, such that all occur; (n_features, n)."""
    most = max((int(sizes[j]) + 2 for j in others), default=0)
    return np.array([offsets[j] + np.arange(most) % (sizes[j] + 2) for j in others], np.int64)


@given(problems(), st.sampled_from([0, 1, 0.5]))
@settings(max_examples=60)
def test_aode__cells_that_are_looked_up_are_those_of_the_table(p: Problem, alpha: float) -> None:
    integers = [j for j, t in p.types.items() if pa.types.is_integer(t)]
    options = p.options | {"alpha": alpha, "categorical": integers or None}
    model = fb.AODE(**options).fit(p.X, pa.array(p.classes), sample_weight=p.weights)
    cells = model._cells
    for feature, size in enumerate(cells.sizes):
        others = np.delete(np.arange(len(cells.sizes)), feature)
        rows = every_cell(cells.sizes, cells.offsets, others)
        given = cells.conditional(feature, model._rule)
        for value in range(size + 2):
            values = np.full(rows.shape[-1], value)
            table = np.asarray(given)[values, rows]
            np.testing.assert_allclose(given[values, rows], table, rtol=1e-14)


@given(problems(), st.sampled_from([0, 1, 0.5]))
@settings(max_examples=60)
def test_a2de__cells_that_are_looked_up_are_those_of_the_table(p: Problem, alpha: float) -> None:
    integers = [j for j, t in p.types.items() if pa.types.is_integer(t)]
    options = p.options | {"alpha": alpha, "categorical": integers or None}
    model = fb.A2DE(**options).fit(p.X, pa.array(p.classes), sample_weight=p.weights)
    cells = model._cells
    rows = every_cell(cells.sizes, cells.offsets, range(len(cells.sizes)))
    for q, pair in enumerate(model._pairs):
        rule, prior = model._rule, model._given_prior
        own, given = pair_tables(model._triples, model._pairs, rule, prior, q)
        others = np.delete(np.arange(len(rows)), [pair.first, pair.second])
        for state in range(len(own)):
            states = np.full(rows.shape[1], state)
            table = np.asarray(given)[states, rows[others]]
            np.testing.assert_allclose(given[states, rows][others], table, rtol=1e-14)


@pytest.mark.parametrize("few", [True, False])
@given(problems(), st.sampled_from([0, 1, 0.5]))
@settings(max_examples=60)
def test_aode__what_all_say_of_each_other_is_what_each_says(
    few: bool, p: Problem, alpha: float
) -> None:
    integers = [j for j, t in p.types.items() if pa.types.is_integer(t)]
    options = p.options | {"alpha": alpha, "categorical": integers or None}
    model = fb.AODE(**options).fit(p.X, pa.array(p.classes), sample_weight=p.weights)
    cells, m = model._cells, len(model._cells.sizes)
    with pytest.MonkeyPatch.context() as patch:
        if not few:  # of large counts there is no table of logarithms
            patch.setattr(smoothing, "MOST_LOGS", 0)
        every = cells.log_sums(model._rule)
    if every is None:  # a weighted row knows one of two features, or a count of 0 rules out
        weighted = p.weights is not None and cells.pairs.layout.missing.any()
        assert alpha == 0 or weighted or not cells.pairs.layout.total
        return
    rows = every_cell(cells.sizes, cells.offsets, range(m))
    found = every(rows)
    for feature in range(m):
        others = np.arange(m) != feature
        values = rows[feature] - cells.offsets[feature]
        given = np.log(cells.conditional(feature, model._rule)[values, rows[others]]).sum(axis=0)
        np.testing.assert_allclose(found[feature], given, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_row_by_row__is_all_at_once_bitwise(
    name: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "never")
    table = wide().drop_columns(["a", "c"] if weighted else [])
    weight = np.random.default_rng(1).random(table.num_rows) if weighted else None
    model, X = MODELS[name](), table.drop_columns(["y"])
    model.fit(table, "y", sample_weight=weight)
    alone = [model.predict_proba(X.slice(r, 1)) for r in range(40)]
    assert np.array_equal(np.concatenate(alone), model.predict_proba(X)[:40])


@pytest.mark.parametrize("name", MODELS)
def test_few_rows__are_answered_without_whole_tables(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "never")
    table = wide()
    model, X = MODELS[name]().fit(table, "y"), table.drop_columns(["y"]).slice(3, 2)
    proba, said = model.predict_proba(X), model.explain(X)

    def refused(*_: Any) -> None:
        raise AssertionError("a whole table was made")

    monkeypatch.setattr(CountTables, "beside", refused)
    monkeypatch.setattr(TripleTables, "conditional", refused)
    assert np.array_equal(model.predict_proba(X), proba)
    assert np.array_equal(model.explain(X).contributions, said.contributions)
    with pytest.raises(AssertionError, match="a whole table"):
        np.asarray(model._cells.conditional(0, model._rule))
