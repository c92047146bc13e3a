"""A network with a class node: its numbers by brute force, its special cases, and its laws."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refitting import TARGET, random_rows, refitted
from scipy.special import logsumexp

import fastbayes as fb
from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.networks.infer import scorer
from fastbayes.networks.network import BayesianNetwork

NAMES = ["a", "b", "c", "d", "e"]
NODES = [*NAMES, "y"]
Graph = dict[str, tuple[str, ...]]
FEW = settings(max_examples=15)


def random_graph(seed: int, density: float = 0.5, *, rooted: bool = False) -> Graph:
    """Return the parents of a random graph; `rooted` leaves the class without any."""
    rng = np.random.default_rng(seed)
    order = [str(node) for node in rng.permutation(NODES)]
    if rooted:
        order = ["y", *(node for node in order if node != "y")]
    return {
        node: tuple(p for p in order[:i] if rng.random() < density) for i, node in enumerate(order)
    }


def draw(seed: int, n: int = 60, holes: float = 0.0) -> pa.Table:
    """Return rows in which every column depends on those before it, the class in their midst."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    before = np.zeros(n, np.int64)
    for node in ("a", "b", "y", "c", "d", "e"):
        size = 3 if node == "y" else int(rng.integers(1, 4))
        pull = rng.random(n) < 0.6
        codes = np.where(pull, before % size, rng.integers(0, size, n))
        codes[:size] = np.arange(size)  # every value occurs, with what is said first
        gone = rng.random(n) < (0 if node == "y" else holes)
        gone[:4] = False
        columns[node] = pa.array([f"{node}{v}" for v in codes], mask=gone)
        before = before + codes
    return pa.table(columns).select(NODES)


def by_hand(
    graph: Graph, table: pa.Table, alpha: float = 1.0, weight: Any = None, bdeu: float | None = None
) -> BayesianNetwork:
    """Return the network with tables that are counted one row after the other."""
    rows = table.to_pylist()
    weight = np.ones(len(rows)) if weight is None else weight
    states = {n: sorted({row[n] for row in rows} - {None}) for n in table.column_names}
    tables = {}
    for node in states:
        family = (*graph.get(node, ()), node)
        counts = np.zeros([len(states[n]) for n in family])
        for row, w in zip(rows, weight, strict=True):
            if all(row[n] is not None for n in family):
                counts[tuple(states[n].index(row[n]) for n in family)] += w
        counts += alpha if bdeu is None else bdeu / counts.size
        total = counts.sum(axis=-1, keepdims=True)
        tables[node] = np.where(
            total > 0, counts / np.where(total > 0, total, 1), 1 / counts.shape[-1]
        )
    return BayesianNetwork(states, {n: graph.get(n, ()) for n in states}, tables)


def joints(network: BayesianNetwork, table: pa.Table, target: str = "y") -> Any:
    """Return ln P(c, x) of rows, a sum over all completions of each."""
    found = []
    for row in table.drop_columns([target]).to_pylist():
        choices = {
            n: network.states[n] if v is None else [v] for n, v in row.items() if n != target
        }
        cells = [
            dict(zip(choices, cell, strict=True)) for cell in itertools.product(*choices.values())
        ]
        states = {n: [cell[n] for cell in cells] for n in choices}
        each = [network.log_joint({**states, target: c}) for c in network.states[target]]
        found.append([logsumexp(np.atleast_1d(joint)) for joint in each])
    return np.array(found)


def fitted(graph: Any, table: pa.Table, weights: Any = None, **options: Any) -> Any:
    return fb.NetworkClassifier(graph, **options).fit(table, "y", sample_weight=weights)


def assert_same_posterior(model: Any, other: Any, rows: Any) -> None:
    mine, theirs = model.predict_proba(rows), other.predict_proba(rows)
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


# -- numbers -----------------------------------------------------------------------------------


@FEW
@given(
    seed=st.integers(0, 2**32),
    density=st.sampled_from([0.2, 0.5, 1.0]),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    holes=st.sampled_from([0.0, 0.2, 0.5]),
    weighted=st.booleans(),
)
def test_joint__is_that_of_the_network_by_brute_force(
    seed: int, density: float, alpha: float, holes: float, weighted: bool, kernels: str
) -> None:
    graph, table = random_graph(seed, density), draw(seed, holes=holes)
    weight = np.random.default_rng(seed).uniform(0.2, 2, len(table)) if weighted else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTBAYES_KERNELS", kernels)
        model = fitted(graph, table, weight, alpha=alpha)
        expected = joints(by_hand(graph, table, alpha, weight), table)
        found = model.log_joint(table)
        proba = model.predict_proba(table)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)
    known = np.isfinite(expected).any(axis=1)
    behind = expected[known] - logsumexp(expected[known], axis=1, keepdims=True)
    np.testing.assert_allclose(proba[known], np.exp(behind), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        proba[~known], np.exp(model.class_log_prior_)[None] * np.ones((int((~known).sum()), 1))
    )


@FEW
@given(seed=st.integers(0, 2**32), ess=st.sampled_from([0.5, 3.0]))
def test_bdeu__spreads_its_rows_over_each_table(seed: int, ess: float) -> None:
    graph, table = random_graph(seed), draw(seed, holes=0.2)
    model = fitted(graph, table, smoothing="bdeu", ess=ess)
    expected = joints(by_hand(graph, table, bdeu=ess), table)
    np.testing.assert_allclose(model.log_joint(table), expected, rtol=1e-12, atol=1e-11)


@FEW
@given(seed=st.integers(0, 2**32), prior=st.sampled_from([None, "uniform"]))
def test_joint__sums_to_one_over_all_rows(seed: int, prior: Any) -> None:
    graph, table = random_graph(seed), draw(seed)
    model = fitted(graph, table, class_prior=prior)
    values = [sorted({*table[name].to_pylist()}) for name in NAMES]
    cells = list(itertools.product(*values))
    every = pa.table(dict(zip(NAMES, map(list, zip(*cells, strict=True)), strict=True)))
    joint = np.exp(model.log_joint(every))
    np.testing.assert_allclose(joint.sum(axis=0), np.exp(model.class_log_prior_), atol=1e-12)
    np.testing.assert_allclose(joint.sum(), 1.0, atol=1e-12)


@FEW
@given(seed=st.integers(0, 2**32), holes=st.sampled_from([0.0, 0.3]))
def test_prior_of_a_class_with_parents__replaces_their_margin(seed: int, holes: float) -> None:
    graph, table = random_graph(seed), draw(seed, holes=holes)
    counted = fitted(graph, table)
    given_prior = fitted(graph, table, class_prior=[0.5, 0.2, 0.3])
    likelihood = counted.log_joint(table) - counted.class_log_prior_
    expected = likelihood + np.log([0.5, 0.2, 0.3])
    np.testing.assert_allclose(given_prior.log_joint(table), expected, atol=1e-11)
    network = counted.to_network()
    exact = network.query("y").probabilities
    np.testing.assert_allclose(np.exp(counted.class_log_prior_), exact, atol=1e-12)


@FEW
@given(seed=st.integers(0, 2**32), holes=st.sampled_from([0.0, 0.3]))
def test_network__is_the_model(seed: int, holes: float) -> None:
    graph, table = random_graph(seed), draw(seed, holes=holes)
    model = fitted(graph, table)
    network = model.to_network()
    np.testing.assert_allclose(joints(network, table), model.log_joint(table), atol=1e-11)
    assert {n: {*p} for n, p in network.parents.items()} == {n: {*p} for n, p in graph.items()}
    assert network.n_parameters() == model.n_parameters_
    assert {*model.markov_blanket_} == {*network.markov_blanket("y")}
    assert model.to_dot().count("->") == len(network.edges)


def test_missing_as_a_value__is_one_more_state() -> None:
    graph, table = random_graph(4), draw(4, holes=0.3)
    filled = pa.table({n: table[n].fill_null("zz") for n in NODES})  # the last in the order
    model = fitted(graph, table, missing="category")
    np.testing.assert_allclose(
        model.log_joint(table), fitted(graph, filled).log_joint(filled), atol=1e-12
    )


def test_unseen_value__is_missing_or_smoothed() -> None:
    graph: Graph = {"y": ("a",), "b": ("y", "a")}
    table = draw(1)
    row = {**{n: [table[n][5].as_py()] for n in NAMES}, "a": ["never"]}
    gone = {**row, "a": pa.array([None], pa.string())}
    model = fitted(graph, table)
    np.testing.assert_array_equal(model.log_joint(row), model.log_joint(gone))
    smooth = fitted(graph, table, unseen="smooth")
    values = len({*table["b"].to_pylist()})
    n, s = len(table), len({*table["a"].to_pylist()})
    told = np.exp(smooth.log_joint(row)[0])
    np.testing.assert_allclose(told, told[0], rtol=1e-12)  # 1 / K, whatever the class
    alone = fitted({"y": ()}, table).log_joint(row)[0]
    without_a = alone - np.log(np.exp(fitted({"y": ()}, table).class_log_prior_))
    b = [v == row["b"][0] for v in table["b"].to_pylist()]
    p_b = (sum(b) + 1) / (n + values)
    np.testing.assert_allclose(
        told[0], np.exp(without_a[0]) / p_b / 3 / values / (n + s), rtol=1e-12
    )


# -- special cases -----------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@FEW
@given(seed=st.integers(0, 2**32), holes=st.sampled_from([0.0, 0.3]))
def test_naive_tree_and_kdb__are_those_models(seed: int, holes: float, alpha: float) -> None:
    table = draw(seed, holes=holes)
    for model in (fb.NaiveBayes(alpha=alpha), fb.TAN(alpha=alpha), fb.KDB(2, alpha=alpha)):
        model.fit(table, "y")
        graph = {n: ("y", *up) for n, up in model._dependencies().items()}
        mine = fitted(graph, table, alpha=alpha)
        np.testing.assert_allclose(
            mine.log_joint(table), model.log_joint(table), rtol=1e-12, atol=1e-12
        )
        assert_same_posterior(mine, model, table)
        assert mine.n_parameters_ == model.n_parameters_


@FEW
@given(seed=st.integers(0, 2**32))
def test_complete_network__is_the_joint_table(seed: int) -> None:
    table, order = draw(seed), random_graph(seed)
    graph = {node: tuple([*order][:i]) for i, node in enumerate(order)}
    mine, joint = fitted(graph, table, alpha=0), fb.JointBayes(tau=0, alpha=0).fit(table, "y")
    np.testing.assert_allclose(mine.log_joint(table), joint.log_joint(table), atol=1e-12)
    assert_same_posterior(mine, joint, table)


def test_statistics_of_kdb__are_a_network_too() -> None:
    table = draw(3)
    kdb = fb.KDB(2).fit(table, "y")
    model = fb.NetworkClassifier().fit_statistics(kdb.statistics_)
    assert_same_posterior(model, kdb, table)
    other = fitted({"a": ("y",), "b": ("a",)}, table)
    with pytest.raises(SchemaError, match="NetworkClassifier reads them"):
        fb.KDB(2).fit_statistics(other.statistics_)


# -- learning ----------------------------------------------------------------------------------


def test_learned_graph__is_that_of_the_search_up_to_equivalence() -> None:
    table = draw(5, 400)
    model = fitted(None, table, max_parents=2)
    found = BayesianNetwork.from_edges(
        [(p, n) for n, up in model.parents_.items() for p in up], nodes=NODES
    )
    from fastbayes.networks.search.structure_search import learned

    other = learned(table, max_parents=2)
    np.testing.assert_allclose(found.score(table), other.score, rtol=1e-12)
    assert model.parents_["y"] == () or other.parents["y"]


def test_equivalent_graph__has_the_class_on_top_where_one_does() -> None:
    rng = np.random.default_rng(0)
    p = rng.integers(0, 2, 500)
    q = np.where(rng.random(500) < 0.9, p, 1 - p)
    y = np.where(rng.random(500) < 0.9, q, 1 - q)
    chain = pa.table({"p": p.astype(str), "q": q.astype(str), "y": y.astype(str)})
    assert fitted(None, chain).parents_ == {"y": (), "p": ("q",), "q": ("y",)}
    told = fitted(None, chain, required=[("q", "y")])
    assert told.parents_["y"] == ("q",)
    # Two causes that nothing else ties: no graph says so but this one.
    u, v = rng.integers(0, 2, 500), rng.integers(0, 2, 500)
    collider = pa.table({"u": u.astype(str), "v": v.astype(str), "y": (u & v).astype(str)})
    assert {*fitted(None, collider).parents_["y"]} == {"u", "v"}


def test_class_without_neighbour__gets_its_prior(caplog: pytest.LogCaptureFixture) -> None:
    table = draw(2)
    with caplog.at_level(logging.INFO, "fastbayes"):
        model = fitted({"y": (), "b": ("a",)}, table)
    assert "no neighbour" in caplog.text
    prior = np.exp(model.class_log_prior_)
    np.testing.assert_allclose(model.predict_proba(table), np.tile(prior, (len(table), 1)))


@pytest.mark.parametrize("search", ["hill_climb", "tabu", "chow_liu", "exact", "k2"])
@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_searches__find_graphs_in_rows_with_holes(search: str, missing: str) -> None:
    table = draw(6, 200, holes=0.05).append_column("void", pa.nulls(200, pa.string()))
    order = ["y", "void", *NAMES] if search == "k2" else None
    model = fitted(None, table, search=search, missing=missing, order=order)
    assert model.markov_blanket_
    assert model.score(table.drop_columns(["y"]), table["y"]) > 0.4


def test_batches__keep_the_graph_of_the_first() -> None:
    table = draw(7, 200)
    graph = random_graph(7)
    for network in (graph, None):
        parts = fb.NetworkClassifier(network)
        parts.partial_fit(table[:120], "y").partial_fit(table[120:], "y")
        whole = fb.NetworkClassifier(parts.parents_).fit(table, "y")
        assert_same_posterior(parts, whole, table)
    shuffled = table[120:].select(NODES[::-1])
    again = fb.NetworkClassifier(graph).partial_fit(table[:120], "y").partial_fit(shuffled, "y")
    assert_same_posterior(again, fitted(graph, table), table)


def test_order_of_columns_and_rows__changes_nothing() -> None:
    table = draw(8, 300)
    other = table.take(np.random.default_rng(0).permutation(300)).select(NODES[::-1])
    assert_same_posterior(fitted(None, table), fitted(None, other), table)


def test_files__are_read_as_tables_are(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = draw(9, 300)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50)
    assert_same_posterior(fitted(None, table), fitted(None, tmp_path / "rows.parquet"), table)
    reader = table.to_reader(max_chunksize=64)
    graph = random_graph(9)
    assert_same_posterior(fitted(graph, table), fitted(graph, reader), table)
    with pytest.raises(SchemaError, match="read only once"):
        fitted(None, table.to_reader())


def test_memory_limit__is_said_before_the_search() -> None:
    with pytest.raises(MemoryLimitError):
        fitted(None, draw(9, 5000), memory_limit=20_000)


def test_statistics__are_counted_by_hand_too() -> None:
    table, graph = draw(17), random_graph(10, 1.0)
    model = fb.NetworkClassifier(graph)
    stats = fb.count(table, "y", families=model.families(fb.count(table, "y")))
    assert_same_posterior(model.fit_statistics(stats), fitted(graph, table), table)
    # In whatever order columns stand in a family, and families among themselves.
    turned = [family[::-1] for family in model.families(stats)][::-1]
    other = fb.count(table, "y", families=turned)
    np.testing.assert_array_equal(
        model.fit_statistics(other).log_joint(table), fitted(graph, table).log_joint(table)
    )
    less = fb.count(table, "y", families=[("a",)])
    with pytest.raises(SchemaError, match="together; count again"):
        fb.NetworkClassifier(graph).fit_statistics(less)
    with pytest.raises(SchemaError, match="no family of column"):
        fb.NetworkClassifier().fit_statistics(less)
    with pytest.raises(SchemaError, match="no families"):
        fb.NetworkClassifier(graph).fit_statistics(fb.count(table, "y"))


def test_given_network__is_saved_as_its_graph(tmp_path: Path) -> None:
    table, graph = draw(11), random_graph(11)
    network = by_hand(graph, table)
    model = fitted(network, table)
    model.save(tmp_path / "m.fb")
    loaded = fb.load(tmp_path / "m.fb")
    np.testing.assert_array_equal(loaded.log_joint(table), model.log_joint(table))
    assert loaded.parents_ == model.parents_
    edges = [(p, n) for n, up in graph.items() for p in up]
    assert_same_posterior(fitted(edges, table), model, table)


# -- rows left out -----------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, (0.3, 1.0, 2.0)])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@FEW
@given(seed=st.integers(0, 2**32))
def test_leave_one_out__is_refitting(seed: int, alpha: float, weights: Any) -> None:
    table = random_rows(seed, weights=weights)
    rng = np.random.default_rng(seed)
    names = ["x0", "x1", "x2", "rare"]
    graph = {
        n: tuple(p for p in [TARGET, *names[:i]] if rng.random() < 0.6) for i, n in enumerate(names)
    } | {TARGET: ()}
    for smoothing in ("laplace", "bdeu"):
        model = fb.NetworkClassifier(graph, alpha=alpha, smoothing=smoothing)
        plain = table.select([*names, TARGET])
        families = model.families(fb.count(plain, TARGET))
        weight = None if weights is None else "w"
        stats = fb.count(table, TARGET, sample_weight=weight, families=families)
        found = fb.leave_one_out(model, stats, table, sample_weight=weight)
        expected = refitted(model, table, families=families)
        np.testing.assert_allclose(found.proba, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", [None, (0.3, 1.0, 2.0)])
@pytest.mark.parametrize("smoothing", ["laplace", "bdeu"])
@FEW
@given(seed=st.integers(0, 2**32))
def test_leave_one_out__of_a_class_with_parents_is_refitting(
    seed: int, smoothing: str, weights: Any
) -> None:
    table = random_rows(seed, weights=weights)
    rng = np.random.default_rng(seed)
    names = ["x0", "x1", "x2", "rare"]
    first, *rest = (str(name) for name in rng.permutation(names))
    order = [first, *(str(name) for name in rng.permutation([*rest, TARGET]))]
    graph = {n: tuple(p for p in order[:i] if rng.random() < 0.6) for i, n in enumerate(order)}
    graph[TARGET] = graph[TARGET] or (first,)
    model = fb.NetworkClassifier(graph, alpha=0.5, ess=3, smoothing=smoothing)
    weight = None if weights is None else "w"
    families = model.families(fb.count(table.select([*names, TARGET]), TARGET))
    stats = fb.count(table, TARGET, sample_weight=weight, families=families)
    found = fb.leave_one_out(model, stats, table, sample_weight=weight)
    expected = refitted(model, table, families=families)
    np.testing.assert_allclose(found.proba, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{"alpha": 0}, {"class_prior": "uniform"}])
def test_prior_of_a_class_with_parents__does_not_come_apart(options: dict[str, Any]) -> None:
    table = draw(12)
    model = fb.NetworkClassifier({"y": ("a",)}, **options).fit(table, "y")
    with pytest.raises(SchemaError, match=r"the class has parents.*use k_fold"):
        fb.leave_one_out(model, model.statistics_, table)
    assert fb.k_fold(model, table, "y", folds=3).accuracy > 0.3


def test_folds__learn_their_own_graphs() -> None:
    table = draw(13, 200)
    figures = fb.k_fold(fb.NetworkClassifier(), table, "y", folds=4, seed=1)
    assert figures.accuracy > 0.4
    board = fb.compare(
        table, "y", models=["network", "naive-bayes"], validation="k_fold", folds=4, seed=1
    )
    (entry,) = [e for e in board.entries if e.name == "network"]
    assert entry.figures.accuracy == figures.accuracy


def test_leaderboard__has_networks_where_they_are_named() -> None:
    table = draw(18, 200)
    below = {"y": ("a",)}
    models = {"below": fb.NetworkClassifier(below), "given": fb.NetworkClassifier(below, alpha=0)}
    board = fb.compare(table, "y", models={"network": fb.NetworkClassifier(), **models},
                       validation="leave_one_out")  # fmt: skip
    found = {entry.name: entry for entry in board.entries}
    for name in ("network", "below"):
        model = getattr(found[name].model, "model_", found[name].model)
        alone = fb.leave_one_out(model, model.statistics_, table)
        assert found[name].figures.log_loss == pytest.approx(alone.log_loss, rel=1e-12)
    assert "the class has parents" in found["given"].reason
    named = fb.compare(table, "y", models=["network"], validation="leave_one_out").entries
    assert [entry.figures.log_loss for entry in named] == [found["network"].figures.log_loss]


# -- random rows -------------------------------------------------------------------------------


def test_random_rows__are_those_of_the_network_given_the_class() -> None:
    graph: Graph = {"a": (), "b": ("a",), "y": ("a", "b"), "c": ("y", "b"), "d": ("a",)}
    table = draw(14, 200)
    model = fitted(graph, table)
    network = model.to_network()
    drawn = model.sample(20_000, y="y1", seed=3)
    names = ["a", "b", "c", "d"]
    exact = network.query(names, {"y": "y1"}).probabilities
    states = [list(network.states[n]) for n in names]
    found = np.zeros(exact.shape)
    for row in zip(*(drawn[n].to_pylist() for n in names), strict=True):
        found[tuple(s.index(v) for s, v in zip(states, row, strict=True))] += 1 / 20_000
    spread = np.sqrt(exact * (1 - exact) / 20_000)
    assert (np.abs(found - exact) <= 5 * spread + 1e-12).all()
    assert drawn.num_rows == 20_000


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        ([("a", "b"), ("b", "a")], ValueError, "a"),
        ([("a", "b")], SchemaError, "no node 'y', the class"),
        ([("a", "y"), ("y", "zz")], SchemaError, "node 'zz', but there is no such column"),
        ({"y": "a"}, ValueError, "give a list"),
        (7, ValueError, "give edges"),
    ],
)
def test_networks__that_cannot_be(network: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fitted(network, draw(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph_score": "bic"}, "score"),
        ({"search": "magic"}, "search='magic'"),
        ({"smoothing": "hdp"}, "smoothing='hdp'"),
        ({"ess": -1}, "ess"),
        ({"network": [("y", "a")], "required": [("y", "b")]}, "required and forbidden"),
        ({"max_parents": -1}, "max_parents"),
        ({"required": [("y", "a")], "forbidden": [("y", "a")]}, "required, and forbidden"),
    ],
)
def test_parameters__that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fb.NetworkClassifier(**options).fit(draw(1), "y")


def test_wide_sum__is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each two of four parents have a child: all four are summed out together, a larger table than
    # that of any child.
    rng, parents = np.random.default_rng(0), "abcd"
    columns = {name: pa.array([f"v{v}" for v in rng.integers(0, 6, 200)]) for name in parents}
    graph = dict.fromkeys((*parents, "y"), ())
    for pair in itertools.combinations(parents, 2):
        columns["".join(pair)] = pa.array([f"v{v}" for v in rng.integers(0, 2, 200)])
        graph["".join(pair)] = (*pair, "y")
    table = pa.table({**columns, "y": [f"c{v}" for v in rng.integers(0, 2, 200)]})
    model = fb.NetworkClassifier(graph).fit(table, "y")
    row = table.slice(0, 1).to_pydict() | {name: pa.array([None], pa.string()) for name in parents}
    monkeypatch.setattr(scorer, "LARGEST", 2 * 6**4)
    model.predict_proba(row)
    monkeypatch.setattr(scorer, "LARGEST", 2 * 6**4 - 1)
    with pytest.raises(MemoryLimitError, match=r"summing out columns 'a', .* takes a table of \d+"):
        model.predict_proba(row)
    # The rest is scored all the same.
    model.predict_proba(table)


def test_network_of_a_class_with_parents_and_a_prior__is_refused() -> None:
    model = fitted({"y": ("a",)}, draw(1), class_prior="uniform")
    with pytest.raises(SchemaError, match="class_prior=None"):
        model.to_network()
