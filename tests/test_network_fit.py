"""Tables learned from data, and scores of graphs."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.networks.graph.parameters import TablePrior
from fastbayes.networks.network import BayesianNetwork
from tests.networks_made import joint_by_rows, random_network

EDGES = [("a", "c"), ("b", "c"), ("c", "d")]
# Of `rows_of`, the column whose whole numbers are states.
STATES = {"categorical": "b"}


def rows_of(seed: int, n: int, holes: float = 0.0) -> pa.Table:
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 3, n), random.integers(0, 2, n)
    c = (a + b + (random.random(n) < 0.3)) % 3
    d = (c > 0) ^ (random.random(n) < 0.2)
    columns = {"a": a.astype(str), "b": b, "c": np.array(["x", "y", "z"])[c], "d": d}
    return pa.table(
        {name: pa.array(values, mask=random.random(n) < holes) for name, values in columns.items()}
    )


def counts_by_rows(
    data: pa.Table, network: BayesianNetwork, node: str, weight: list[float] | None = None
) -> Any:
    family = [*network.parents[node], node]
    counts = np.zeros([len(network.states[n]) for n in family])
    for i, row in enumerate(data.to_pylist()):
        if all(row[n] is not None for n in family):
            cell = tuple(network.states[n].index(row[n]) for n in family)
            counts[cell] += 1 if weight is None else weight[i]
    return counts


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 60),
    holes=st.sampled_from([0.0, 0.2]),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    prior=st.sampled_from(["laplace", "bdeu"]),
    weighted=st.booleans(),
)
def test_tables__are_those_of_the_rows_in_which_a_family_is_known(
    seed: int, n: int, holes: float, alpha: float, prior: str, weighted: bool
) -> None:
    data = rows_of(seed, n, holes)
    domains = {"a": ["0", "1", "2"], "b": [0, 1], "c": ["x", "y", "z"], "d": [False, True]}
    weight = np.random.default_rng(seed).integers(1, 4, n).astype(float) if weighted else None
    network = BayesianNetwork.from_edges(EDGES).fit(
        data, alpha=alpha, ess=alpha, prior=prior, domains=domains, sample_weight=weight
    )
    for node in network.nodes:
        counts = counts_by_rows(data, network, node, None if weight is None else weight.tolist())
        r = counts.shape[-1]
        extra = alpha if prior == "laplace" else alpha / counts.size
        for cell in np.ndindex(counts.shape[:-1]):
            total = counts[cell].sum() + extra * r
            expected = (counts[cell] + extra) / total if total else np.full(r, 1 / r)
            np.testing.assert_allclose(network.tables[node][cell], expected, rtol=1e-12)
        np.testing.assert_allclose(network.tables[node].sum(axis=-1), 1, rtol=1e-12)
    assert network.statistics_.n_rows == (n if weight is None else weight.sum())


def em_by_rows(
    data: pa.Table, network: BayesianNetwork, tables: dict[str, Any], alpha: float, steps: int
) -> dict[str, Any]:
    """Return the tables after some steps of expectation maximisation, one row after the other."""
    for _ in range(steps):
        now = BayesianNetwork(network.states, network.parents, tables)
        joint = joint_by_rows(now)
        counts = {node: np.zeros(table.shape) for node, table in tables.items()}
        for row in data.to_pylist():
            at = tuple(
                slice(None) if row[n] is None else network.states[n].index(row[n])
                for n in network.nodes
            )
            total = joint[at].sum()
            for cell in itertools.product(*(range(len(network.states[n])) for n in network.nodes)):
                fits = all(isinstance(p, slice) or p == v for p, v in zip(at, cell, strict=True))
                if fits:
                    for node in network.nodes:
                        family = (*network.parents[node], node)
                        place = tuple(cell[network.nodes.index(m)] for m in family)
                        counts[node][place] += joint[cell] / total
        prior = TablePrior(alpha=alpha)
        tables = {node: prior.table(n) for node, n in counts.items()}
    return tables


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_em__ends_where_a_step_by_the_book_changes_nothing(alpha: float) -> None:
    data = rows_of(4, 120, holes=0.15)
    network = BayesianNetwork.from_edges(EDGES).fit(data, alpha=alpha, missing="em", **STATES)
    again = em_by_rows(data, network, network.tables, alpha, 1)
    for node, table in again.items():
        np.testing.assert_allclose(network.tables[node], table, atol=1e-9)
    if alpha == 0:
        assert (np.diff(network.trace_) > -1e-9).all()
        assert network.trace_[-1] == pytest.approx(network.log_likelihood(data), rel=1e-10)
    plain = BayesianNetwork.from_edges(EDGES).fit(data, alpha=alpha, **STATES)
    assert not np.allclose(plain.tables["c"], network.tables["c"], atol=1e-4)


def test_em__of_complete_rows_is_counting() -> None:
    data = rows_of(5, 80)
    plain = BayesianNetwork.from_edges(EDGES).fit(data, **STATES)
    filled = BayesianNetwork.from_edges(EDGES).fit(data, missing="em", **STATES)
    assert filled.states == plain.states
    for node in plain.nodes:
        np.testing.assert_allclose(filled.tables[node], plain.tables[node], rtol=1e-12)


def test_em__keeps_the_declared_order_of_states() -> None:
    data = rows_of(6, 80, holes=0.1)
    network = BayesianNetwork.from_edges(EDGES).fit(data, missing="em", **STATES)
    turned = {n: (*s[1:], s[0]) for n, s in network.states.items()}
    tables = {n: np.roll(t, -1, range(t.ndim)) for n, t in network.tables.items()}
    other = BayesianNetwork(turned, network.parents, tables).fit(data, missing="em")
    assert other.states == turned
    for node, table in tables.items():
        np.testing.assert_allclose(other.tables[node], table, atol=1e-8)
    plain = BayesianNetwork(turned, network.parents, tables).fit(data)
    for node, table in BayesianNetwork.from_edges(EDGES).fit(data, **STATES).tables.items():
        rolled = np.roll(table, -1, range(table.ndim))
        np.testing.assert_allclose(plain.tables[node], rolled, rtol=1e-12)


def test_em__of_a_row_with_too_many_completions_is_refused() -> None:
    names = [f"n{i}" for i in range(25)]
    data = pa.table({n: [0, 1, None] for n in names})
    network = BayesianNetwork.from_edges([], nodes=names)
    with pytest.raises(MemoryLimitError, match=r"33,554,432 completions.*'n0', 'n1'"):
        network.fit(data, missing="em", categorical="*")


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("above", [False, True])
def test_em__of_a_node_that_is_never_observed_leaves_the_saddle(n_states: int, above: bool) -> None:
    """All states of the node alike are a saddle point, where no step changes anything."""
    random = np.random.default_rng(n_states)
    states = {"t": ["n", "y"], "h": [*map(str, range(n_states))]}
    states |= {n: ["u", "v", "w"] for n in "abcd"}
    parents = {"h": ["t"] * above, **{n: ["h"] for n in "abcd"}}
    tables = {n: random.dirichlet([0.3] * 3, n_states) for n in "abcd"}
    hidden = random.dirichlet([5.0] * n_states, 2)
    tables |= {"t": [0.5, 0.5], "h": hidden if above else hidden[0]}
    truth = BayesianNetwork(states, parents, tables)
    rows = truth.sample(2_000, seed=0)
    rows = rows.set_column(rows.column_names.index("h"), "h", pa.nulls(2_000, pa.string()))
    graph = BayesianNetwork.from_edges(truth.edges, nodes=truth.nodes)
    found = graph.fit(rows, missing="em", alpha=0, domains=states)
    assert found.converged_
    assert found.log_likelihood(rows) > truth.log_likelihood(rows)
    again = BayesianNetwork.from_edges(truth.edges, nodes=truth.nodes)
    assert again.fit(rows, missing="em", alpha=0, domains=states, threads=1) == found


def test_em__of_a_node_that_nothing_depends_on_leaves_it_even() -> None:
    data = {"a": ["u", "v", "v"], "h": pa.nulls(3, pa.string())}
    network = BayesianNetwork.from_edges([("a", "h")])
    network.fit(data, missing="em", domains={"h": ["x", "y"]})
    assert network.tables["h"].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_missing__as_a_state_of_its_own() -> None:
    data = rows_of(7, 50, holes=0.3)
    network = BayesianNetwork.from_edges(EDGES).fit(data, missing="category", alpha=0, **STATES)
    assert network.states["a"] == ("0", "1", "2", None)
    share = data["a"].null_count / 50
    assert network.query("a").probability({"a": None}) == pytest.approx(share)


def test_states__of_a_network_are_declared() -> None:
    network = BayesianNetwork({"a": ["yes", "no", "maybe"]}, {}, {"a": [0.2, 0.3, 0.5]})
    network.fit({"a": ["no", "yes", "no"]}, alpha=0)
    assert network.states["a"] == ("yes", "no", "maybe")
    assert network.tables["a"] == pytest.approx([1 / 3, 2 / 3, 0])
    with pytest.raises(DataError, match=r"column 'a'.*'never'"):
        network.fit({"a": ["no", "never"]})
    graph = BayesianNetwork.from_edges([], nodes=["a"]).fit({"a": ["u"]})
    assert graph.fit({"a": ["v", "w"]}).states["a"] == ("v", "w")


def test_the_state_none__is_declared_as_others_are() -> None:
    """It is counted by "available", too, and stays where nothing is missing."""
    states = {"a": ("u", None, "never", "v"), "b": tuple(map(str, range(40))), "c": ("x", "y")}
    shape = [4, 40, 2]
    network = BayesianNetwork(
        states, {"c": ["a", "b"]}, {"a": [0.25] * 4, "b": [1 / 40] * 40, "c": np.full(shape, 0.5)}
    )
    random = np.random.default_rng(0)
    whole = {"a": random.choice(["u", "v"], 99), "b": random.choice(states["b"], 99)}
    holes = {n: pa.array(v, mask=random.random(99) < 0.2) for n, v in whole.items()}
    c = random.choice(["x", "y"], 99)
    for data in ({**whole, "c": c}, {**holes, "c": c}):
        counts = np.zeros(shape)
        for a, b, state in zip(*(pa.array(data[n]).to_pylist() for n in states), strict=True):
            if b is not None:  # which is no state of its node
                counts[states["a"].index(a), states["b"].index(b), states["c"].index(state)] += 1
        expected = TablePrior().table(counts)
        again = network.fit(data)
        assert again.states == states
        assert again.n_parameters() == 3 + 39 + 160
        np.testing.assert_array_equal(again.table("c")["probability"], expected.ravel())
    share = (1 + holes["a"].null_count) / (99 + 4)
    assert network.query("a").probability({"a": None}) == pytest.approx(share)
    network.fit({**whole, "c": c}, missing="category")
    assert network.states == states
    score = network.score({**whole, "c": c}, "aic", missing="available")
    assert score == pytest.approx(network.score({**whole, "c": c}, "aic", missing="category"))
    less = network.score({**whole, "c": c}, "aic", missing="complete")
    assert score - less == pytest.approx(1 + 40)  # parameters
    network.fit({**holes, "c": c}, missing="em")
    assert network.states["a"] == ("u", "never", "v")


def test_numbers__are_cut_or_refused() -> None:
    data = {"x": [0.5, 1.5, 2.5, 3.5], "y": [1, 2, 1, 2]}
    network = BayesianNetwork.from_edges([("y", "x")])
    with pytest.raises(SchemaError, match=r"column 'y' holds numbers.*1 more.*`discretize`"):
        network.fit(data)
    with pytest.raises(SchemaError, match=r"column 'x' holds numbers;.*`categorical`"):
        network.fit(data, discretize={"y": [1.5]})
    with pytest.raises(SchemaError, match="there is no column 'z'"):
        network.fit(data, discretize={"z": [1.5]})
    network.fit(data, discretize={"x": [2.0]}, categorical="y")
    assert network.states == {"y": (1, 2), "x": ("(-inf, 2]", "(2, inf)")}
    assert network.score(data, "loglik") == pytest.approx(4 * math.log(1 / 4))
    network.fit(data, discretize="width")
    assert len(network.states["x"]) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1}, "alpha=-1"),
        ({"alpha": math.nan}, "alpha=nan"),
        ({"prior": "flat"}, "prior='flat'"),
        ({"ess": "1"}, "ess='1'"),
        ({"missing": "drop"}, "missing='drop'"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"tol": 0.0}, "tol=0.0"),
    ],
)
def test_options__are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianNetwork.from_edges(EDGES).fit(rows_of(1, 9), **options)


def test_what_cannot_be_learned_from__is_refused() -> None:
    network = BayesianNetwork.from_edges(EDGES)
    with pytest.raises(SchemaError, match="'d'"):
        network.fit(rows_of(1, 9).drop("d"))
    with pytest.raises(SchemaError, match="column 'void' has no value"):
        BayesianNetwork.from_edges([], nodes=["void"]).fit(pa.table({"void": pa.nulls(3)}))
    with pytest.raises(ValueError, match="the graph has no node"):
        BayesianNetwork.from_edges([]).fit(rows_of(1, 9))
    names = [f"n{i}" for i in range(12)]
    wide = pa.table({n: np.arange(50) for n in names})
    with pytest.raises(MemoryLimitError, match=r"counting families.*column 'n11' with 50 values"):
        BayesianNetwork.from_edges([(n, "n11") for n in names[:-1]]).fit(wide, categorical="*")
    with pytest.raises(MemoryLimitError, match=r"counting.*column 'n"):
        BayesianNetwork.from_edges([], nodes=names).fit(wide, categorical="*", memory_limit=1000)
    assert not network.tables


def test_files__give_the_same_tables(tmp_path: Path) -> None:
    data = rows_of(8, 3000, holes=0.05)
    pq.write_table(data, tmp_path / "rows.parquet", row_group_size=500)
    tables = BayesianNetwork.from_edges(EDGES).fit(data, **STATES).tables
    for threads in (1, 3):
        network = BayesianNetwork.from_edges(EDGES)
        network.fit(tmp_path / "rows.parquet", threads=threads, **STATES)
        assert all(np.array_equal(network.tables[n], tables[n]) for n in tables)
    reader = pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=700))
    network = BayesianNetwork.from_edges(EDGES).fit(reader, **STATES)
    assert all(np.array_equal(network.tables[n], tables[n]) for n in tables)


def test_score__of_published_graphs(shared_data: Path) -> None:
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=False)
    data = pyarrow.csv.read_csv(
        shared_data / "tables" / "bn_learning-test.csv", convert_options=options
    )
    edges = [("A", "B"), ("A", "D"), ("C", "D"), ("B", "E"), ("F", "E")]
    network = BayesianNetwork.from_edges(edges, nodes="ABCDEF")
    assert network.score(data) == pytest.approx(24006.734232498155, rel=1e-12)
    assert network.score(data, "aic") == pytest.approx(23873.13177207412, rel=1e-12)
    assert network.score(data, "loglik") == pytest.approx(-23832.13177207412, rel=1e-12)
    assert network.fit(data).n_parameters() == 41
    asia = pyarrow.csv.read_csv(shared_data / "tables" / "bn_asia.csv", convert_options=options)
    edges = [("A", "T"), ("S", "L"), ("S", "B"), ("L", "E"), ("T", "E"), ("E", "X"), ("B", "D")]
    network = BayesianNetwork.from_edges([*edges, ("E", "D")], nodes="ASTLBEXD")
    for score, figure in [
        ("mdl", 11109.741872493603),
        ("aic", 11051.087133770858),
        ("loglik", -11033.087133770858),
        ("bdeu", -11095.824182995657),
        ("k2", -11110.151719274116),
    ]:
        found = [network.score(asia, score, ess=ess) for ess in (1, 10)]
        assert any(f == pytest.approx(figure, rel=1e-9) for f in found), (score, found)


def test_score__counts_configurations_that_never_occur() -> None:
    data = {"a": list("ny"), "b": list("ny"), "c": list("ny")}
    network = BayesianNetwork.from_edges([("a", "c"), ("b", "c")])
    assert network.score(data, "aic") == pytest.approx(6 - 4 * math.log(0.5))
    with pytest.raises(ValueError, match="score='bic'"):
        network.score(data, "bic")


def test_random_networks__are_found_again() -> None:
    network = random_network(3, 4, 0.7)
    joint = joint_by_rows(network)
    cells = np.array(list(np.ndindex(joint.shape)))
    data = pa.table(
        {
            node: [network.states[node][i] for i in cells[:, j]]
            for j, node in enumerate(network.nodes)
        }
    )
    fresh = BayesianNetwork.from_edges(network.edges, nodes=network.nodes)
    fresh.fit(data, sample_weight=joint.ravel(), alpha=0)
    for node in network.nodes:
        np.testing.assert_allclose(fresh.tables[node], network.tables[node], rtol=1e-9)
