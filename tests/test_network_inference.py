"""Exact inference, held against the joint distribution and against published figures."""

from __future__ import annotations

import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.networks.infer import inference
from fastbayes.networks.infer.inference import best_order
from fastbayes.networks.network import BayesianNetwork
from tests.networks_made import (
    asia,
    burglary,
    joint_by_rows,
    posterior_by_joint,
    random_network,
    read_plain_bif,
)


def test_burglary__after_both_calls() -> None:
    network = burglary()
    answer = network.query("B", {"J": "yes", "M": "yes"})
    assert answer.probability({"B": "yes"}) == pytest.approx(0.284171835364, abs=1e-12)
    assert answer.log_evidence == pytest.approx(math.log(0.002084100239), abs=1e-9)
    assert network.query("B").log_evidence == 0.0


def test_asia__after_a_visit_and_dyspnoea() -> None:
    evidence = {"asia": "yes", "dysp": "yes"}
    known = {"tub": 0.0877509650, "lung": 0.0995251451, "bronc": 0.8114020716}
    for node, p in known.items():
        found = asia().query(node, evidence).probability({node: "yes"})
        assert found == pytest.approx(p, abs=1e-10)


def test_reference__posteriors_of_real_networks(shared_data: Path) -> None:
    networks = {p.stem: read_plain_bif(p) for p in sorted((shared_data / "bif").glob("*.bif"))}
    with (shared_data / "exact" / "bn_posteriors.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        network, evidence = networks[row["network"]], json.loads(row["evidence"])
        answer = network.query(row["variable"], evidence)
        off = 1e-7 if row["network"] == "sachs" else 1e-12
        p = answer.probability({row["variable"]: row["state"]})
        assert p == pytest.approx(float(row["probability"]), abs=off)
        relative = 1e-6 if row["network"] == "sachs" else 1e-12
        total = math.exp(network.log_evidence(evidence))
        assert total == pytest.approx(float(row["p_evidence"]), rel=relative)
    assert len(rows) == 191


@st.composite
def questions(draw: Any) -> tuple[BayesianNetwork, list[str], dict[str, str]]:
    network = random_network(
        draw(st.integers(0, 2**32)),
        draw(st.integers(1, 7)),
        draw(st.floats(0, 1)),
        zeros=draw(st.sampled_from([0.0, 0.3])),
    )
    nodes = draw(st.permutations(network.nodes))
    targets = nodes[: draw(st.integers(1, min(3, len(nodes))))]
    asked = nodes[draw(st.integers(0, len(nodes))) :]
    return network, list(targets), {n: draw(st.sampled_from(network.states[n])) for n in asked}


@settings(max_examples=30)
@given(question=questions(), logs=st.booleans())
def test_posterior__is_that_of_the_joint_distribution(question: Any, logs: bool) -> None:
    network, targets, evidence = question
    joint = joint_by_rows(network)
    expected, total = posterior_by_joint(network, joint, targets, evidence)
    with pytest.MonkeyPatch.context() as patch:
        if logs:  # all is done again in logarithms, as after an underflow
            patch.setattr(inference, "LOST", -math.inf)
            patch.setattr(inference, "UNDERFLOW", 0.0)
        if total == 0:
            with pytest.raises(DataError, match="is impossible: the network gives"):
                network.query(targets, evidence)
            with pytest.raises(DataError, match="is impossible: the network gives"):
                network.most_probable(evidence)
            assert network.log_evidence(evidence) == -math.inf
            return
        answer = network.query(targets, evidence)
        log_evidence = network.log_evidence(evidence)
    np.testing.assert_allclose(answer.probabilities, expected, atol=1e-13)
    assert answer.log_evidence == pytest.approx(math.log(total), abs=1e-12)
    assert log_evidence == pytest.approx(math.log(total), abs=1e-12)
    best = network.most_probable(evidence)
    assert {n: best[n] for n in evidence} == evidence
    at = tuple(slice(None) if n not in evidence else network.states[n].index(evidence[n])
               for n in network.nodes)  # fmt: skip
    assert network.log_joint(best) == pytest.approx(math.log(joint[at].max()), abs=1e-12)


@settings(max_examples=20)
@given(question=questions())
def test_drawing__multiplies_to_the_joint_given_the_evidence(question: Any) -> None:
    network, _, evidence = question
    expected, total = posterior_by_joint(
        network, joint_by_rows(network), list(network.nodes), evidence
    )
    if total == 0:
        with pytest.raises(DataError, match="is impossible: the network gives"):
            inference.drawing(network.coded(), network._evidence(evidence))
        return
    steps = inference.drawing(network.coded(), network._evidence(evidence))
    found, drawn = np.ones_like(expected), list[int]()
    for step in steps:
        assert {*step.given} <= {*drawn}
        axes = [*step.given, step.node]
        shape = [n if i in axes else 1 for i, n in enumerate(expected.shape)]
        found = found * step.table.transpose(np.argsort(axes)).reshape(shape)
        drawn.append(step.node)
    assert sorted(drawn) == list(range(len(network.nodes)))
    np.testing.assert_allclose(found, expected, atol=1e-13)


def chain(n: int, p: float = 0.9) -> BayesianNetwork:
    names = [f"n{i}" for i in range(n)]
    tables: dict[str, Any] = {name: [[p, 1 - p], [1 - p, p]] for name in names}
    tables["n0"] = [0.5, 0.5]
    parents = {b: [a] for a, b in itertools.pairwise(names)}
    return BayesianNetwork(dict.fromkeys(names, ("a", "b")), parents, tables)


def test_thousand_nodes__neither_underflow_nor_take_for_ever() -> None:
    network = chain(1000)
    answer = network.query("n999", {"n0": "a"})
    assert answer.probability({"n999": "a"}) == pytest.approx(0.5 + 0.5 * 0.8**999)
    evidence = {f"n{i}": "ab"[i % 2] for i in range(1000) if i != 500}
    answer = network.query("n500", evidence)
    assert answer.log_evidence is not None
    assert answer.log_evidence == pytest.approx(
        math.log(0.5) + 997 * math.log(0.1) + math.log(0.82), rel=1e-12
    )
    assert answer.probabilities == pytest.approx([0.01 / 0.82, 0.81 / 0.82])
    everything = {**evidence, "n500": "a"}
    assert network.log_evidence(everything) == pytest.approx(network.log_joint(everything)[0])
    assert network.query("n3", everything).probabilities.tolist() == [0.0, 1.0]
    assert [*network.most_probable({"n0": "b"}).values()] == ["b"] * 1000


def test_underflow__is_not_impossibility() -> None:
    # 600 witnesses for state a, each 1e6 to one; then one thing that b alone allows.
    names = [f"w{i}" for i in range(600)]
    tables: dict[str, Any] = {key: [[1 - 1e-06, 1e-06], [1e-06, 1 - 1e-06]] for key in names}
    tables |= {"x": [0.5, 0.5], "last": [[1.0, 0.0], [0.5, 0.5]]}
    states = dict.fromkeys(["x", *names, "last"], ("a", "b"))
    network = BayesianNetwork(states, {key: ["x"] for key in [*names, "last"]}, tables)
    answer = network.query("x", {**dict.fromkeys(names, "a"), "last": "b"})
    assert answer.probabilities.tolist() == [0.0, 1.0]
    assert answer.log_evidence == pytest.approx(600 * math.log(1e-6) + math.log(0.25), rel=1e-12)


def test_underflow__of_what_matters_later_is_seen() -> None:
    # After 66 witnesses b is below the smallest number, c is not; what comes last favours b.
    names = [f"w{i}" for i in range(66)]
    tables: dict[str, Any] = {
        name: [[1.0, 0.0], [1e-5, 1 - 1e-5], [1e-5, 1 - 1e-5] if i < 60 else [1.0, 0.0]]
        for i, name in enumerate(names)
    }
    tables["y"] = [[1e-250, 1.0], [1.0, 0.0], [1.0, 0.0]]
    tables["z"] = [[1e-250, 1.0], [1.0, 0.0], [1e-90, 1.0]]
    tables["x"] = [0.2, 0.4, 0.4]
    known = [*names, "y", "z"]
    states: dict[str, Any] = {**dict.fromkeys(known, (0, 1)), "x": ("a", "b", "c")}
    network = BayesianNetwork(states, {n: ["x"] for n in known}, tables)
    answer = network.query("x", dict.fromkeys(known, 0))
    np.testing.assert_allclose(answer.probabilities, [0, 1, 1e-60], rtol=1e-9, atol=1e-150)
    assert answer.log_evidence == pytest.approx(math.log(0.4) + 66 * math.log(1e-5), rel=1e-12)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 9))
def test_fill__is_the_pairs_of_neighbours_that_are_none(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    scopes = [tuple(random.choice(n, min(n, 3), replace=False).tolist()) for _ in range(n)]
    graph = inference._Graph(scopes, dict.fromkeys(range(n), 1.0))
    for v in random.permutation(n).tolist():
        for u, near in graph.near.items():
            apart = [p for p in itertools.combinations(near, 2) if p[1] not in graph.near[p[0]]]
            assert graph.fill[u] == len(apart)
        near = {*graph.near[v]}
        graph.eliminate(v)
        assert all(b in graph.near[a] for a, b in itertools.permutations(near, 2))


def test_hub__with_a_thousand_children() -> None:
    names = [f"c{i}" for i in range(1000)]
    tables: dict[str, Any] = {key: [[0.6, 0.4], [0.4, 0.6]] for key in names}
    tables["hub"] = [0.5, 0.5]
    network = BayesianNetwork(
        dict.fromkeys(["hub", *names], (0, 1)), {key: ["hub"] for key in names}, tables
    )
    answer = network.query(["c0", "hub"], dict.fromkeys(names[1:], 0))
    assert answer.probability({"hub": 0}) == pytest.approx(1.0)
    assert answer.probability({"c0": 0}) == pytest.approx(0.6)


def test_nodes__of_one_state_and_of_a_thousand() -> None:
    random = np.random.default_rng(1)
    wide = random.dirichlet(np.ones(1000), size=2)
    network = BayesianNetwork(
        {"one": ["only"], "two": [0, 1], "wide": list(range(1000)), "end": ["only"]},
        {"two": ["one"], "wide": ["two"], "end": ["wide", "two"]},
        {"one": [1.0], "two": [[0.25, 0.75]], "wide": wide, "end": np.ones((1000, 2, 1))},
    )
    answer = network.query("two", {"wide": 7, "end": "only"})
    expected = np.array([0.25, 0.75]) * wide[:, 7]
    np.testing.assert_allclose(answer.probabilities, expected / expected.sum(), rtol=1e-13)
    assert network.query(["end", "one"], {"two": 1}).probabilities.tolist() == [[1.0]]
    margin = network.query("wide").probabilities
    np.testing.assert_allclose(margin, 0.25 * wide[0] + 0.75 * wide[1], rtol=1e-13)


def test_no_edges() -> None:
    names = [f"n{i}" for i in range(300)]
    network = BayesianNetwork(
        dict.fromkeys(names, ("a", "b", "c")), {}, {key: [0.5, 0.25, 0.25] for key in names}
    )
    assert network.query(["n1", "n2"], {"n3": "c"}).probability({"n1": "a", "n2": "b"}) == 0.125
    assert network.log_evidence(dict.fromkeys(names, "b")) == pytest.approx(300 * math.log(0.25))


def test_large_tables__are_refused() -> None:
    names = [f"n{i}" for i in range(40)]
    network = BayesianNetwork(dict.fromkeys(names, (0, 1)), {}, {key: [0.5, 0.5] for key in names})
    with pytest.raises(MemoryLimitError, match=r"1,099,511,627,776 numbers.*'n0'.*and 34 more"):
        network.query(names)
    above = names[:10]
    tables: dict[str, Any] = {key: [0.5, 0.5] for key in names}
    tables["n10"] = np.full((2,) * 11, 0.5)
    network = BayesianNetwork(dict.fromkeys(names, (0, 1)), {"n10": above}, tables)
    with pytest.raises(MemoryLimitError, match=r"2,048 numbers, over 1,000, .* 'n0', 'n1'"):
        network.query("n10", max_cells=1000)
    assert network.query("n10").probabilities == pytest.approx([0.5, 0.5])


def test_order__of_a_grid_stays_narrow() -> None:
    n = 12
    scopes = [(n * r + c, n * r + c + 1) for r in range(n) for c in range(n - 1)]
    scopes += [(n * r + c, n * r + c + n) for r in range(n - 1) for c in range(n)]
    order = best_order(scopes, dict.fromkeys(range(n * n), 2), range(n * n))
    assert sorted(order.nodes) == list(range(n * n))
    assert order.cells <= 2.0 ** (n + 1)
    assert 2.0 ** len(order.scope) == order.cells


@pytest.mark.parametrize(
    ("targets", "evidence", "message"),
    [
        ("X", {}, "'X' is not among the nodes"),
        ("B", {"X": "yes"}, "'X' is not among the nodes"),
        ("B", {"J": "maybe"}, "node 'J': 'maybe' is not one of its states"),
        ([], {}, "there is no target"),
    ],
)
def test_what_cannot_be_asked__is_refused(targets: Any, evidence: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        burglary().query(targets, evidence)


def test_impossible_evidence__is_refused() -> None:
    with pytest.raises(DataError, match="the evidence on 'lung', 'either' is impossible"):
        asia().query("tub", {"lung": "yes", "either": "no"})
    assert asia().log_evidence({"lung": "yes", "either": "no"}) == -math.inf
    assert asia().query("either", {"either": "no"}).probabilities.tolist() == [0.0, 1.0]


def test_graph_alone__answers_nothing() -> None:
    network = BayesianNetwork.from_edges([("a", "b")])
    assert repr(network) == "<BayesianNetwork: 2 nodes, 1 edges, without tables>"
    assert network.d_separated("a", []) is True
    with pytest.raises(ValueError, match="call 'fit'"):
        network.query("a")


def test_tables__go_out_and_come_back() -> None:
    network = asia()
    again = BayesianNetwork.from_tables({n: network.table(n) for n in network.nodes})
    assert again == network
    assert network.table("tub").column_names == ["asia", "tub", "probability"]
    assert network.n_parameters() == 18
    assert network != burglary()
    for tables, message in [
        ({"a": {"a": [1], "p": [1.0]}, "b": {"c": [1], "b": [1], "p": [1.0]}}, "'c' has no table"),
        ({"a": {"a": [1, 1], "p": [0.5, 0.5]}}, "2 rows for 1 joint states"),
        ({"a": {"b": [1], "p": [1.0]}}, "node 'a': its table has the columns"),
    ]:
        with pytest.raises(ValueError, match=message):
            BayesianNetwork.from_tables(tables)


@pytest.mark.parametrize("method", ["gibbs", "likelihood_weighting"])
def test_random_draws__come_near(method: str) -> None:
    evidence = {"asia": "yes", "dysp": "yes"}
    exact = asia().query(["tub", "bronc"], evidence)
    found = asia().query(["tub", "bronc"], evidence, method, draws=20_000, seed=1)
    assert found.method == method
    assert found.mcse is not None
    assert (np.abs(found.probabilities - exact.probabilities) <= 5 * found.mcse).all()
    assert {"mcse", "ess"} <= {*found.table.column_names}
    again = asia().query(["tub", "bronc"], evidence, method, draws=20_000, seed=1, threads=2)
    assert np.array_equal(found.probabilities, again.probabilities)
    with pytest.raises(ValueError, match="method='magic': use 'exact'"):
        asia().query("tub", method="magic")
