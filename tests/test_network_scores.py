from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_cases import random_codes, random_graph, table_of
from oracles import network_scores as naive

from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.networks.search.node_rows import ReadOptions, read_rows
from fastbayes.networks.search.score import (
    SCORES,
    FamilyScores,
    ScoreRule,
    family_score,
    masks_of,
    members,
)


@pytest.mark.parametrize("name", SCORES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_graphs_score_as_by_hand(name, seed):
    rng = np.random.default_rng(seed)
    columns, sizes = random_codes(rng, n_rows=int(rng.integers(1, 60)), n_nodes=4)
    graph = random_graph(rng, 4)
    weight = rng.integers(1, 9, len(columns[0])) / 4 if seed % 2 else np.ones(len(columns[0]))
    table, domains = table_of(columns, sizes)
    rows = read_rows(
        table, ReadOptions(domains=domains, sample_weight=weight if seed % 2 else None)
    )
    scores = FamilyScores(rows, ScoreRule(name, 2.5))
    masks = [sum(1 << u for u in above) for above in graph]
    found = scores.rule.sign * scores.total(masks)
    expected = naive.score(columns, sizes, weight, graph, name, 2.5)
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-9)


@pytest.mark.parametrize("name", SCORES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_a_family_scores_as_by_hand(name, seed):
    rng = np.random.default_rng(seed)
    columns, sizes = random_codes(rng, n_rows=40, n_nodes=3)
    counts = np.zeros(sizes)
    np.add.at(counts, tuple(columns), 1)
    expected = naive.family_score(columns, sizes, np.ones(40), 2, (0, 1), name, 3.0)
    assert family_score(counts, ScoreRule(name, 3.0)) == pytest.approx(
        expected, rel=1e-10, abs=1e-9
    )


@pytest.mark.parametrize("name", SCORES)
def test_ways_of_counting_agree(name, monkeypatch):
    rng = np.random.default_rng(5)
    columns, sizes = random_codes(rng, n_rows=700, n_nodes=6)
    table, domains = table_of(columns, sizes)
    rows = read_rows(table, ReadOptions(domains=domains))
    asked = [(v, sum(1 << u for u in range(6) if u != v)) for v in range(6)] + [(0, 6), (1, 4)]
    expected = FamilyScores(rows, ScoreRule(name)).values(asked)
    assert rows.columns is not None
    # In parts of a few rows, by numbers of the joint values that occur, and scan by scan.
    monkeypatch.setattr("fastbayes.networks.search.score.DENSE", 8)
    monkeypatch.setattr("fastbayes.networks.search.score.PART", 7)
    for threads in (1, 3):
        anew = replace(rows, reading=ReadOptions(threads=threads))
        found = FamilyScores(anew, ScoreRule(name)).values(asked)
        assert found == pytest.approx(expected, rel=1e-12)
    scanned = read_rows(table, ReadOptions(domains=domains, memory_limit=8_000))
    assert scanned.columns is None
    scanned = replace(scanned, reading=ReadOptions())
    found = FamilyScores(scanned, ScoreRule(name)).values(asked)
    assert found == pytest.approx(expected, rel=1e-12)
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    assert FamilyScores(rows, ScoreRule(name)).values(asked) == pytest.approx(expected, rel=1e-12)


def test_equal_rows_are_taken_together():
    columns = [np.tile([0, 1, 1, 0], 50), np.tile([0, 1, 0, 0], 50)]
    table, domains = table_of(columns, [2, 3])
    rows = read_rows(table, ReadOptions(domains=domains))
    assert rows.weighted
    assert len(rows.columns[0]) == 3
    assert rows.total == 200
    weighted = read_rows(table, ReadOptions(domains=domains, sample_weight=np.full(200, 0.5)))
    assert sorted(weighted.weight.tolist()) == [25.0, 25.0, 50.0]


def test_scores_are_of_complete_rows():
    table = {"a": ["x", "y", None, "x"], "b": ["u", "v", "u", None]}
    rows = read_rows(table)
    assert (rows.total, rows.left_out) == (2.0, 2)
    whole = read_rows(table, ReadOptions(missing="category"))
    assert (whole.total, whole.left_out, whole.sizes.tolist()) == (4.0, 0, [3, 3])
    assert whole.states == (("x", "y", None), ("u", "v", None))
    with pytest.raises(DataError, match="no row is complete"):
        read_rows({"a": ["x", None], "b": [None, "u"]})


def test_numbers_want_bins_unless_they_are_said_to_be_categories():
    table = {"n": [1, 2, 2], "x": [0.5, 1.5, 9.0], "s": list("abc")}
    with pytest.raises(SchemaError, match=r"'n' holds numbers \(and 1 more.*`discretize`"):
        read_rows(table)
    with pytest.raises(SchemaError, match=r"'n' holds numbers;.*`categorical`"):
        read_rows(table, ReadOptions(discretize={"x": [1.0]}))
    rows = read_rows(table, ReadOptions(discretize={"x": [1.0]}, categorical="n"))
    assert rows.names == ("n", "s", "x")
    assert rows.sizes.tolist() == [2, 3, 2]
    assert rows.states == ((1, 2), ("a", "b", "c"), ("(-inf, 1]", "(1, inf)"))
    both = read_rows(table, ReadOptions(discretize={"x": [1.0], "n": [1.5, 1.75]}))
    assert both.states[0] == ("(-inf, 1.5]", "(1.5, 1.75]", "(1.75, inf)")
    assert read_rows(table, ReadOptions(categorical=["x", 0])).states[2] == (0.5, 1.5, 9.0)
    with pytest.raises(SchemaError, match="discretize: column 's' is categorical"):
        read_rows({"s": list("abc")}, ReadOptions(discretize={"s": "width"}))


def test_tables_over_the_limit_are_refused_by_name():
    columns = [np.arange(3_000) % 30] * 4
    table, domains = table_of(columns, [30] * 4)
    rows = read_rows(table, ReadOptions(domains=domains, memory_limit=20_000))
    with pytest.raises(MemoryLimitError, match=r"\['v0', 'v1', 'v2'\].*max_parents"):
        FamilyScores(replace(rows, reading=ReadOptions(memory_limit=100_000)), ScoreRule()).value(
            2, 3
        )


def test_rules_and_graphs_in_doubt_are_refused():
    with pytest.raises(ValueError, match="score='bic'"):
        ScoreRule("bic")
    with pytest.raises(ValueError, match="ess=0"):
        ScoreRule("bdeu", 0)
    with pytest.raises(SchemaError, match="'z' is not among"):
        masks_of({"a": ["z"]}, ["a", "b"])
    with pytest.raises(SchemaError, match="'a' is its own parent"):
        masks_of({"a": ["a"]}, ["a", "b"])
    assert masks_of({"b": ["c", "a"]}, ["a", "b", "c"]) == [0, 5, 0]
    assert members(0b10110) == [1, 2, 4]


REFERENCE = [
    ("learning-test", {"B": "A", "D": "AC", "E": "BF"}),
    ("asia", {"T": "A", "L": "S", "B": "S", "E": "TL", "X": "E", "D": "BE"}),
]


@pytest.mark.parametrize(
    ("name", "parents", "kind"),
    [(n, p, k) for (n, p), k in itertools.product(REFERENCE, ("true", "empty"))],
)
def test_bnlearn_scores(shared_data, name, parents, kind):
    text = (shared_data / "exact/bn_structure_scores.txt").read_text()
    line = next(x for x in text.splitlines() if x.startswith(f"{name.replace('-', '.')} {kind}"))
    loglik, count, bic, aic, bdeu, k2 = map(float, line.split("(")[1].rstrip(")").split(","))
    expected = {"loglik": loglik, "mdl": -bic, "aic": -aic, "bdeu": bdeu, "k2": k2}
    rows = read_rows(shared_data / f"tables/bn_{name}.csv")
    masks = masks_of({} if kind == "empty" else parents, rows.names)
    for rule, value in expected.items():
        scores = FamilyScores(rows, ScoreRule(rule))
        assert scores.rule.sign * scores.total(masks) == pytest.approx(value, rel=1e-9)
        assert sum(scores.parameters(v, mask) for v, mask in enumerate(masks)) == count


@pytest.mark.parametrize("name", SCORES)
def test_tables_of_more_cells_than_rows_are_summed_over_those_that_occur(name, monkeypatch):
    rng = np.random.default_rng(2)
    columns, sizes = [rng.integers(0, 40, 300) for _ in range(4)], [40] * 4
    table, domains = table_of(columns, sizes)
    rows = read_rows(table, ReadOptions(domains=domains))
    monkeypatch.setattr("fastbayes.networks.search.score.DENSE", 10**9)
    expected = FamilyScores(rows, ScoreRule(name)).value(0, 6)
    monkeypatch.setattr("fastbayes.networks.search.score.DENSE", 1 << 16)
    monkeypatch.setattr(FamilyScores, "_counted", None)  # no dense table is made
    scores = FamilyScores(rows, ScoreRule(name))
    monkeypatch.setattr("fastbayes.networks.search.score.SPARSE", 0)
    monkeypatch.setattr("fastbayes.networks.search.score.DENSE", 0)
    assert scores.value(0, 6) == pytest.approx(expected, rel=1e-12)


@given(seed=st.integers(0, 2**32), name=st.sampled_from(["mdl", "aic"]))
@settings(max_examples=20, deadline=None)
def test_what_is_hopeless_gains_nothing(seed, name):
    rng = np.random.default_rng(seed)
    columns, sizes = random_codes(rng, n_rows=int(rng.integers(2, 80)), n_nodes=5)
    table, domains = table_of(columns, sizes)
    scores = FamilyScores(read_rows(table, ReadOptions(domains=domains)), ScoreRule(name))
    parents = int(rng.integers(0, 4)) << 1
    others = [3, 4]
    found = scores.toggled([(0, parents, others)])[0]
    here = scores.value(0, parents)
    for value, vain in zip(found, scores.hopeless(0, parents, others), strict=True):
        assert not vain or value <= here + 1e-9
