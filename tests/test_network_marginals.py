"""The distribution of each node by itself: that of a query, for all nodes in one run."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.networks.network import BayesianNetwork
from tests.networks_made import (
    asia,
    burglary,
    joint_by_rows,
    posterior_by_joint,
    random_network,
)


def chain(n: int, p: float) -> BayesianNetwork:
    names = [f"n{i}" for i in range(n)]
    tables: dict[str, Any] = {name: [[p, 1 - p], [1 - p, p]] for name in names}
    tables["n0"] = [0.5, 0.5]
    parents = {b: [a] for a, b in itertools.pairwise(names)}
    return BayesianNetwork(dict.fromkeys(names, ("a", "b")), parents, tables)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 7),
    edges=st.floats(0, 1),
    zeros=st.sampled_from([0.0, 0.3]),
    observed=st.integers(0, 4),
    asked=st.sampled_from([None, 1, 3]),
)
def test_marginals__are_those_of_the_joint_distribution(
    seed: int, n: int, edges: float, zeros: float, observed: int, asked: int | None
) -> None:
    network, rng = random_network(seed, n, edges, zeros=zeros), np.random.default_rng(seed)
    nodes = rng.permutation(network.nodes).tolist()
    evidence = {v: network.states[v][rng.integers(len(network.states[v]))] for v in nodes}
    evidence = {v: evidence[v] for v in nodes[:observed]}
    targets = None if asked is None else rng.permutation(network.nodes).tolist()[:asked]
    joint = joint_by_rows(network)
    _, total = posterior_by_joint(network, joint, [nodes[0]], evidence)
    if total == 0:
        for method in ("exact", "gibbs"):
            with pytest.raises(DataError, match=r"impossible|probability 0"):
                network.marginals(evidence, targets, method, draws=100)
        return
    answers = network.marginals(evidence, targets)
    free = [v for v in network.nodes if v not in evidence]
    assert [*answers] == (free if targets is None else targets)
    assert answers.log_evidence == pytest.approx(math.log(total), abs=1e-12)
    for node, answer in answers.items():
        expected, _ = posterior_by_joint(network, joint, [node], evidence)
        np.testing.assert_allclose(answer.probabilities, expected, rtol=0, atol=1e-13)
        assert answer.targets == (node,)
        assert answer.states == (network.states[node],)
        assert answer.log_evidence == answers.log_evidence


def test_thousand_nodes__evidence_of_a_probability_below_every_float() -> None:
    network = chain(1000, 1 - 1e-9)
    evidence = {f"n{i}": "ab"[i // 2 % 2] for i in range(0, 1000, 2)}
    answers = network.marginals(evidence)
    assert len(answers) == 500
    assert answers.log_evidence is not None
    assert answers.log_evidence < -9000
    for node in ("n1", "n501", "n999"):
        expected = network.query(node, evidence)
        np.testing.assert_allclose(
            answers[node].probabilities, expected.probabilities, rtol=1e-9, atol=0
        )
    assert answers["n501"].probability({"n501": "a"}) == pytest.approx(0.5)


def test_tables_of_all_nodes_too_large_together__each_node_alone() -> None:
    # Every two of ten roots have a child: all roots hang together, those of one child do not.
    roots, rng = [f"r{i}" for i in range(10)], np.random.default_rng(0)
    parents = {f"{a}{b}": [a, b] for a, b in itertools.combinations(roots, 2)}
    tables: dict[str, Any] = {root: [0.25, 0.75] for root in roots}
    tables |= {child: rng.dirichlet([1, 1], (2, 2)) for child in parents}
    network = BayesianNetwork(dict.fromkeys(tables, ("a", "b")), parents, tables)
    whole, parts = (network.marginals(max_cells=cells) for cells in (1 << 20, 8))
    assert [*parts] == [*whole] == [*network.nodes]
    for node, answer in whole.items():
        np.testing.assert_allclose(answer.probabilities, parts[node].probabilities, atol=1e-14)
    with pytest.raises(MemoryLimitError, match="over 3, for the nodes"):
        network.marginals(max_cells=3)


@pytest.mark.parametrize("method", ["gibbs", "likelihood_weighting"])
def test_random_draws__are_those_of_a_query_with_the_seed(method: str) -> None:
    evidence = {"asia": "yes", "dysp": "yes"}
    options: dict[str, Any] = {"draws": 4000, "seed": 3}
    if method == "gibbs":
        options |= {"chains": 8, "burn_in": 20, "thin": 2}
    answers = asia().marginals(evidence, method=method, **options)
    exact = asia().marginals(evidence)
    assert [*answers] == [node for node in asia().nodes if node not in evidence]
    for node, answer in answers.items():
        alone = asia().query(node, evidence, method, **options)
        assert np.array_equal(answer.probabilities, alone.probabilities)
        assert answer.mcse is not None
        assert alone.mcse is not None
        np.testing.assert_allclose(answer.mcse, alone.mcse, rtol=1e-10)
        assert (np.abs(answer.probabilities - exact[node].probabilities) <= 5 * answer.mcse).all()
        assert answer.log_evidence == alone.log_evidence
        assert answer.method == method
    more = {"ess", "mcse", "r_hat"} if method == "gibbs" else {"ess", "mcse"}
    assert {*answers.table.column_names} == {"node", "state", "probability"} | more
    again = asia().marginals(evidence, method=method, threads=1, **options)
    assert again.table == answers.table


@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_targets__a_name_and_observed_ones() -> None:
    answers = burglary().marginals({"J": "yes"}, ["A", "J"])
    assert answers["J"].probability({"J": "yes"}) == 1
    assert answers["A"].probabilities.tolist() == pytest.approx(
        burglary().query("A", {"J": "yes"}).probabilities.tolist()
    )
    assert [*burglary().marginals({}, "A", "gibbs", draws=100, seed=0)] == ["A"]
    for bad, message in (([], "no target"), (["sky"], "'sky' is not among")):
        with pytest.raises(ValueError, match=message):
            burglary().marginals({}, bad)
    with pytest.raises(ValueError, match="method='magic': use 'exact'"):
        burglary().marginals(method="magic")


@pytest.mark.parametrize("method", ["exact", "gibbs", "likelihood_weighting"])
def test_all_observed__nothing_to_ask_but_whether_it_is_possible(method: str) -> None:
    row = asia().most_probable({"asia": "yes"})
    answers = asia().marginals(row, method=method)
    assert not answers
    assert answers.log_evidence == pytest.approx(asia().log_joint(row))
    row["either"] = "no" if row["lung"] == "yes" or row["tub"] == "yes" else "yes"
    with pytest.raises(DataError, match="is impossible"):
        asia().marginals(row, method=method)
