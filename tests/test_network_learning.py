from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_cases import random_codes, table_of
from oracles import network_scores as naive

from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.networks.graph.dag import DAG
from fastbayes.networks.search.score import SCORES
from fastbayes.networks.search.structure_search import SEARCHES, SearchStep, learned

FREE = [search for search in SEARCHES if search not in ("k2", "chow_liu")]


def drawn(seed, n_nodes, n_rows=80):
    rng = np.random.default_rng(seed)
    columns, sizes = random_codes(rng, n_rows, n_nodes)
    return (columns, sizes, *table_of(columns, sizes))


def higher(found, score):
    return naive.SIGN[score] * found.score


def masks(found):
    where = {name: j for j, name in enumerate(found.names)}
    return [tuple(where[p] for p in found.parents[name]) for name in found.names]


def equivalent(graph):
    """Return the skeleton and the v-structures, which tell equivalent graphs from others."""
    near = {frozenset((v, p)) for v, above in graph.items() for p in above}
    meet = {
        (frozenset(pair), v)
        for v, above in graph.items()
        for pair in itertools.combinations(above, 2)
        if frozenset(pair) not in near
    }
    return near, meet


@pytest.mark.parametrize("score", SCORES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=6, deadline=None)
def test_exact_is_the_best_of_all_graphs_allowed(score, seed):
    columns, sizes, table, domains = drawn(seed, 4)
    ones = np.ones(len(columns[0]))
    rng = np.random.default_rng(seed)
    most = int(rng.integers(1, 4))
    u, v, w = rng.permutation(4)[:3].tolist()

    def allowed(node, above):
        return len(above) <= most and (node != v or u in above) and (node != w or v not in above)

    found = learned(
        table, domains=domains, score=score, search="exact", ess=2.0, max_parents=most,
        required=[(f"v{u}", f"v{v}")], forbidden=[(f"v{v}", f"v{w}")],
    )  # fmt: skip
    best = naive.best(columns, sizes, ones, score, 2.0, allowed)
    assert higher(found, score) == pytest.approx(best, rel=1e-10)
    assert all(allowed(node, above) for node, above in enumerate(masks(found)))
    by_hand = naive.score(columns, sizes, ones, masks(found), score, 2.0)
    assert found.score == pytest.approx(by_hand, rel=1e-10)


@pytest.mark.parametrize("score", SCORES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=6, deadline=None)
def test_no_search_beats_the_exact_one(score, seed):
    _, _, table, domains = drawn(seed, 6)
    best = learned(table, domains=domains, score=score, search="exact")
    for search in SEARCHES:
        order = best.names if search == "k2" else None
        found = learned(table, domains=domains, score=score, search=search, order=order, restarts=2)
        DAG(found.parents)
        assert higher(found, score) <= higher(best, score) + 1e-9 * abs(best.score)


@given(seed=st.integers(0, 2**32), search=st.sampled_from(FREE), score=st.sampled_from(SCORES))
@settings(max_examples=12, deadline=None)
def test_neither_order_nor_threads_nor_memory_change_the_graph(seed, search, score):
    rng = np.random.default_rng(seed)
    _, _, table, domains = drawn(seed, 5, 20_000)
    options = {"domains": domains, "search": search, "score": score, "restarts": 2}
    found = learned(table, **options, threads=1)
    columns = rng.permutation(table.column_names).tolist()
    others = [
        learned(table, **options, threads=3),
        learned(table.select(columns).take(rng.permutation(20_000)), **options),
        # Rows of five bytes: they do not fit in a half of this, and are scanned again and again.
        learned(table, **options, memory_limit=199_000),
    ]
    for other in others:
        assert {k: {*v} for k, v in other.parents.items()} == {
            k: {*v} for k, v in found.parents.items()
        }
        assert other.score == pytest.approx(found.score, rel=1e-12)
    assert others[0].score == found.score
    assert [s[:5] for s in others[0].trace] == [s[:5] for s in found.trace]


@given(seed=st.integers(0, 2**32), search=st.sampled_from(["hill_climb", "tabu"]))
@settings(max_examples=12, deadline=None)
def test_the_trace_leads_to_the_graph(seed, search):
    columns, sizes, table, domains = drawn(seed, 5)
    told = []
    found = learned(
        table, domains=domains, score="aic", search=search, restarts=0, progress=told.append
    )
    assert tuple(told) == found.trace
    assert found.finished
    ones = np.ones(len(columns[0]))
    graph = {name: set() for name in found.names}

    def score():
        above = [tuple(int(p[1:]) for p in sorted(graph[name])) for name in found.names]
        return naive.score(columns, sizes, ones, above, "aic")

    before, reached = score(), [({k: {*v} for k, v in graph.items()}, score())]
    for step in found.trace:
        if step.move == "add":
            assert step.parent not in graph[step.node]
            graph[step.node].add(step.parent)
        else:
            graph[step.node].remove(step.parent)
        if step.move == "reverse":
            graph[step.parent].add(step.node)
        assert step.score == pytest.approx(score(), rel=1e-10)
        assert step.gain == pytest.approx(before - step.score, rel=1e-6, abs=1e-6)
        assert search == "tabu" or step.gain > 0
        before = step.score
        reached.append(({k: {*v} for k, v in graph.items()}, before))
    best = min(value for _, value in reached)
    assert found.score == pytest.approx(best, rel=1e-10)
    assert {k: {*v} for k, v in found.parents.items()} in [g for g, _ in reached]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_hill_climbing_ends_where_no_edge_gains(seed):
    columns, sizes, table, domains = drawn(seed, 4)
    ones = np.ones(len(columns[0]))
    found = learned(table, domains=domains, restarts=0)
    graph = masks(found)
    end = naive.score(columns, sizes, ones, graph, "mdl")

    def without(a, b):
        return [tuple(p for p in above if v != b or p != a) for v, above in enumerate(graph)]

    for u, v in itertools.permutations(range(4), 2):
        there = u in graph[v]
        near = [without(u, v)] if there else []
        base = without(u, v) if there else graph
        a, b = (v, u) if there else (u, v)
        near.append([(*above, a) if w == b else above for w, above in enumerate(base)])
        for other in near:
            if naive.acyclic(other):
                assert naive.score(columns, sizes, ones, other, "mdl") >= end - 1e-8


def test_tabu_and_restarts_are_no_worse_than_climbing():
    better = 0
    for seed in range(12):
        _, _, table, domains = drawn(seed, 7, 150)
        options = {"domains": domains, "score": "aic"}
        plain = learned(table, **options, restarts=0).score
        for search, restarts in (("tabu", 0), ("hill_climb", 10)):
            found = learned(table, **options, search=search, restarts=restarts)
            assert found.score <= plain + 1e-9
            better += found.score < plain - 1e-6
    assert better >= 2


@pytest.mark.parametrize("score", ["mdl", "bdeu"])
def test_restarts_find_parents_that_tell_nothing_alone(score):
    rng = np.random.default_rng(0)
    a, b, d = rng.integers(0, 2, (3, 500))
    columns = {"a": a, "b": b, "c": a ^ b, "d": d}
    table = pa.table({name: codes.astype(str) for name, codes in columns.items()})
    options = {"score": score, "required": [("d", "b")], "forbidden": [("c", "b")]}
    options |= {"order": ["d", "b", "c", "a"], "max_parents": 2}
    assert not any(learned(table, **options, restarts=0).parents[name] for name in "ac")
    best = learned(table, **options, search="exact")
    assert best.parents["a"] == ("b", "c")
    for seed in range(4):
        found = learned(table, **options, seed=seed)
        assert found.parents == best.parents
        again = learned(table, **options, seed=seed)
        assert [step[:5] for step in again.trace] == [step[:5] for step in found.trace]


@pytest.mark.parametrize("score", SCORES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=6, deadline=None)
def test_k2_takes_the_best_parent_before_while_one_gains(score, seed):
    columns, sizes, table, domains = drawn(seed, 5)
    order = np.random.default_rng(seed).permutation(5).tolist()
    found = learned(
        table, domains=domains, score=score, search="k2", order=[f"v{v}" for v in order],
        max_parents=2,
    )  # fmt: skip
    ones = np.ones(len(columns[0]))

    def value(node, above):
        return naive.family_score(columns, sizes, ones, node, tuple(sorted(above)), score)

    for k, v in enumerate(order):
        above, best = set(), value(v, ())
        while len(above) < 2:
            more = {u: value(v, above | {u}) for u in order[:k] if u not in above}
            if not more or max(more.values()) <= best + 1e-9:
                break
            best = max(more.values())
            above.add(min(u for u, x in more.items() if x >= best - 1e-9))
        for u in sorted(above):
            if value(v, above - {u}) > best + 1e-9:
                above.remove(u)
                best = value(v, above)
        assert {int(p[1:]) for p in found.parents[f"v{v}"]} == above


@given(seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_the_tree_has_the_most_information(seed):
    columns, _, table, domains = drawn(seed, 4, 60)
    found = learned(table, domains=domains, search="chow_liu")
    assert found.parents["v0"] == ()
    edges = {
        frozenset((int(v[1:]), int(a[1:]))) for v, above in found.parents.items() for a in above
    }
    assert len(edges) == 3

    def information(i, j):
        n = np.zeros((5, 5))
        np.add.at(n, (columns[i], columns[j]), 1 / 60)
        e = np.outer(n.sum(axis=1), n.sum(axis=0))
        return sum(p * math.log(p / q) for p, q in zip(n.flat, e.flat, strict=True) if p)

    told = {frozenset(pair): information(*pair) for pair in itertools.combinations(range(4), 2)}

    def joins(tree):
        group = {v: v for v in range(4)}
        for u, v in map(tuple, tree):
            group = {w: group[u] if g == group[v] else g for w, g in group.items()}
        return len({*group.values()}) == 1

    trees = [t for t in itertools.combinations(told, 3) if joins(t)]
    assert len(trees) == 16
    best = max(sum(told[e] for e in t) for t in trees)
    assert sum(told[e] for e in edges) == pytest.approx(best, abs=1e-12)


def test_a_tree_begins_at_the_first_of_an_order_and_goes_along_it():
    rng = np.random.default_rng(0)
    d = rng.integers(0, 2, 300)
    c = d ^ (rng.random(300) < 0.1)
    a = c ^ (rng.random(300) < 0.2)
    b = d ^ (rng.random(300) < 0.2)
    table = {name: of.astype(str) for name, of in {"a": a, "b": b, "c": c, "d": d}.items()}
    along = ["a", "c", "d", "b"]
    message = (
        "the tree that search='chow_liu' finds from 'a' has the edge 'd' -> 'b', against the "
        f"order: leave the order out, use order={along}, or another search"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        learned(table, search="chow_liu", order=["a", "b", "c", "d"])
    found = learned(table, search="chow_liu", order=along)
    assert found.parents == {"a": (), "b": ("d",), "c": ("a",), "d": ("c",)}
    found = learned(table, search="chow_liu", order=["b", "d", "c", "a"])
    assert found.parents == {"a": ("c",), "b": (), "c": ("d",), "d": ("b",)}


@pytest.mark.parametrize("search", ["hill_climb", "tabu", "exact"])
def test_weights_are_rows_and_streams_are_read(search):
    rng = np.random.default_rng(3)
    _, _, table, domains = drawn(7, 5, 90)
    weight = rng.integers(0, 4, 90)
    repeated = table.take(np.repeat(np.arange(90), weight))
    expected = learned(repeated, domains=domains, search=search)
    weighted = learned(table, domains=domains, search=search, sample_weight=weight)
    stream = learned(iter(repeated.to_batches(20)), domains=domains, search=search)
    for found in (weighted, stream):
        assert found.parents == expected.parents
        assert found.score == pytest.approx(expected.score, rel=1e-12)
        assert found.rows == weight.sum()


def test_counts_of_the_families_come_along():
    table = {"a": list("00110011"), "b": list("00110011"), "c": list("01010101")}
    found = learned(table)
    assert found.statistics.families.families == [(0,), (0, 1), (2,)]
    assert found.statistics.families.of(1)[:, :, 0].tolist() == [[4, 0], [0, 4]]
    assert found.states == {"a": ("0", "1"), "b": ("0", "1"), "c": ("0", "1")}


def test_edges_follow_what_is_known():
    _, _, table, domains = drawn(11, 6, 400)
    names = table.column_names
    for search in ("hill_climb", "tabu", "exact", "k2"):
        order = names[::-1]
        found = learned(
            table, domains=domains, score="aic", search=search, order=order, max_parents=2,
            required=[("v5", "v0")], forbidden=[("v4", "v3"), ("v5", "v1")],
        )  # fmt: skip
        assert "v5" in found.parents["v0"]
        assert "v4" not in found.parents["v3"]
        assert "v5" not in found.parents["v1"]
        for node, above in found.parents.items():
            assert len(above) <= 2
            assert all(order.index(p) < order.index(node) for p in above)


def test_a_climb_begins_where_it_is_told_and_ends_in_time():
    _, _, table, domains = drawn(4, 5, 200)
    best = learned(table, domains=domains, search="exact", score="aic")
    for start in (best.parents, best, [(p, v) for v, a in best.parents.items() for p in a]):
        found = learned(table, domains=domains, score="aic", start=start, restarts=0)
        assert found.parents == best.parents
        assert found.trace == ()
    hurried = learned(table, domains=domains, score="aic", time_limit=0)
    assert not hurried.finished
    assert len(hurried.trace) == 1
    assert isinstance(hurried.trace[0], SearchStep)


TABLE = pa.table({"a": list("0011"), "b": list("0101"), "c": list("0110")})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": "gradient"}, "search='gradient'"),
        ({"score": "bic"}, "score='bic'"),
        ({"search": "k2"}, "give order="),
        ({"search": "k2", "order": ["a", "b"]}, "name every one of"),
        ({"search": "k2", "order": ["a", "b", "b"]}, "name every one of"),
        ({"order": ["a", "b", 1]}, r"order=\['a', 'b', 1\]: name every one of"),
        ({"search": "exact", "start": {}}, "begins nowhere"),
        ({"search": "chow_liu", "required": [("a", "b")]}, "is a tree"),
        ({"max_parents": -1}, "max_parents=-1"),
        ({"restarts": 1.5}, "restarts=1.5"),
        ({"restarts": None}, "restarts=None: use a whole number"),
        ({"seed": -1}, "seed=-1: use a whole number"),
        ({"seed": "x"}, "seed='x': use a whole number"),
        ({"time_limit": "1"}, "time_limit='1': use seconds"),
        ({"time_limit": -1}, "time_limit=-1"),
        ({"required": ["ab"]}, "'ab' is no edge"),
        ({"required": [("a", "b"), ("b", "a")]}, "circle|cycle|round"),
        ({"required": [("a", "b")], "forbidden": [("a", "b")]}, "'a' -> 'b' is required"),
        ({"required": [("b", "a")], "order": ["a", "b", "c"]}, "against the order"),
        ({"required": [("a", "c"), ("b", "c")], "max_parents": 1}, "'c' has 2 required parents"),
        ({"start": {"b": ["a"]}, "forbidden": [("a", "b")]}, "'b' has a parent that is forb"),
        ({"start": {"c": ["a", "b"]}, "max_parents": 1}, "'c' has more than 1 parents"),
        ({"missing": "impute"}, "missing='impute'"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        learned(TABLE, **options)


def test_what_does_not_fit_is_refused_with_the_figure():
    with pytest.raises(SchemaError, match="'z' is not among"):
        learned(TABLE, required=[("z", "a")])
    wide = pa.table({f"c{j:02d}": ["0", "1"] for j in range(40)})
    with pytest.raises(MemoryLimitError, match=r"40 nodes needs [\d,]+ bytes.*tabu"):
        learned(wide, search="exact")


@pytest.mark.parametrize("search", ["hill_climb", "tabu", "exact"])
def test_learning_test_is_found(shared_data, search):
    path = shared_data / "tables/bn_learning-test.csv"
    found = learned(path, search=search, restarts=0)
    assert found.score == pytest.approx(24006.73423249815, rel=1e-12)
    true = {"A": "", "C": "", "F": "", "B": "A", "D": "AC", "E": "BF"}
    assert equivalent(found.parents) == equivalent(true)


def test_one_column_is_a_graph():
    found = learned({"a": list("0011")})
    assert found.parents == {"a": ()}
    assert found.score == pytest.approx(4 * math.log(2) + 0.5 * math.log(4))
    assert learned({"a": list("0011")}, search="exact").score == found.score


@pytest.mark.parametrize("search", ["hill_climb", "tabu", "k2", "chow_liu", "exact"])
def test_an_order__may_be_read_only_once(search: str) -> None:
    table = pa.table({"a": list("00110011"), "b": list("00110011"), "c": list("00100011")})
    names = ["c", "a", "b"]
    listed, once = (learned(table, search=search, order=order) for order in (names, iter(names)))
    assert once.parents == listed.parents
    assert listed.parents["c"] == ()
    assert any(listed.parents.values())
