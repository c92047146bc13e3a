"""Rows drawn from a network, and models saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.core import files
from fastbayes.core.errors import DataError, FileFormatError, SchemaError
from fastbayes.networks import sampling
from fastbayes.networks.network import BayesianNetwork
from tests.networks_made import asia, joint_by_rows, posterior_by_joint, random_network

N = 40_000


@pytest.mark.parametrize("evidence", [{}, {"dysp": "yes", "asia": "yes"}, {"either": "no"}])
def test_rows__are_as_frequent_as_probable(evidence: dict[str, str]) -> None:
    network = asia()
    table = network.sample(N, evidence, seed=5)
    expected, _ = posterior_by_joint(network, joint_by_rows(network), [*network.nodes], evidence)
    codes = [
        np.array([network.states[n].index(v) for v in table[n].to_pylist()]) for n in network.nodes
    ]
    found = np.zeros(expected.shape)
    np.add.at(found, tuple(codes), 1 / N)
    assert not found[expected == 0].any()
    error = np.sqrt(expected * (1 - expected) / N)
    assert (np.abs(found - expected) <= 5 * error + 3 / N).all()


def test_states__of_all_kinds_come_back() -> None:
    states: dict[str, Any] = {"i": [3, 1], "b": [True, False], "n": ["x", None], "f": [0.5, 1.5]}
    network = BayesianNetwork(states, {}, {n: [0.5, 0.5] for n in states})
    table = network.sample(200, seed=0)
    assert table.column_names == [*states]
    for name, values in states.items():
        assert {*table[name].to_pylist()} == {*values}
    assert network.sample(0).num_rows == 0
    assert pa.types.is_dictionary(table.schema.field("n").type)


def test_wide_nodes__are_drawn_by_halving() -> None:
    random = np.random.default_rng(7)
    for size in (17, 31, 32, 33, 1000):
        p = random.dirichlet(np.full(size, 0.3), size=2)
        p[:, random.random(size) < 0.3] = 0.0
        p[:, -1] = 0.0
        p /= p.sum(axis=1, keepdims=True)
        steps = sampling._steps(p)
        above = np.array([0, 1] * 5000)
        uniform = random.random(len(above))
        uniform[:2] = np.nextafter(1.0, 0.0)
        draw = sampling._Draw(1, (0,), (2,), steps)
        codes = draw.codes({0: above}, uniform)
        expected = [int(np.argmax(steps[a] > u)) for a, u in zip(above, uniform, strict=True)]
        assert codes.tolist() == expected
        assert (p[above, codes] > 0).all()


def test_seed_and_threads__give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CHUNK", 100)
    network = random_network(1, 6, 0.5)
    first = network.sample(950, seed=3, threads=1)
    assert first.equals(network.sample(950, seed=3, threads=2))
    assert not first.equals(network.sample(950, seed=4))
    assert first.slice(0, 400).equals(network.sample(400, seed=3))


def test_files__hold_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CHUNK", 100)
    network = asia()
    rows = network.sample(750, {"smoke": "no"}, seed=9)
    done: list[int] = []
    told: dict[str, Any] = {"seed": 9, "progress": done.append}
    network.sample_to(tmp_path / "a.parquet", 750, {"smoke": "no"}, **told)
    assert sum(done) == 750
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == rows.to_pylist()
    network.sample_to(tmp_path / "a.csv", 750, {"smoke": "no"}, **told)
    assert pyarrow.csv.read_csv(tmp_path / "a.csv").to_pylist() == rows.to_pylist()
    with pytest.raises(DataError, match=r"a.parquet"):
        network.sample_to(tmp_path / "a.parquet", 750)
    with pytest.raises(SchemaError, match="the name says no format"):
        network.sample_to(tmp_path / "a.txt", 750)


def test_tables__are_learned_back_from_rows() -> None:
    network = random_network(8, 6, 0.5)
    again = BayesianNetwork.from_edges(network.edges, nodes=network.nodes)
    again.fit(network.sample(100_000, seed=1), domains=network.states, alpha=0)
    margin = {n: network.query(n).probabilities for n in network.nodes}
    for node in network.nodes:
        np.testing.assert_allclose(again.query(node).probabilities, margin[node], atol=0.01)


@pytest.mark.parametrize("n", [-1, 1.5, True, "9"])
def test_number_of_rows__is_checked(n: Any) -> None:
    with pytest.raises(ValueError, match="use a whole number >= 0"):
        asia().sample(n)
    with pytest.raises(ValueError, match=f"seed={n!r}: use a whole number >= 0, or None"):
        asia().sample(3, seed=n)


def test_impossible_evidence__is_refused() -> None:
    with pytest.raises(DataError, match="is impossible: the network gives"):
        asia().sample(10, {"lung": "yes", "either": "no"})


def test_model_file__gives_the_network_back(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = pa.table({"x": random.random(200), "y": random.integers(0, 3, 200)})
    graph = BayesianNetwork.from_edges([("y", "x")], nodes=["y", "x"])
    fitted = BayesianNetwork.from_edges([("y", "x")]).fit(rows, discretize="width", missing="em")
    for network in (asia(), graph, fitted):
        network.save(tmp_path / "m.fb", force=True)
        again = fb.load(tmp_path / "m.fb")
        assert type(again) is BayesianNetwork
        assert again == network
        assert again._declared == network._declared
    assert again.statistics_ == fitted.statistics_
    assert again.converged_ == fitted.converged_
    assert again.n_iter_ == fitted.n_iter_
    np.testing.assert_array_equal(again.trace_, fitted.trace_)
    assert np.array_equal(again.predict_proba(rows, "y"), fitted.predict_proba(rows, "y"))
    with pytest.raises(DataError, match=r"m\.fb"):
        fb.save(fitted, tmp_path / "m.fb")
    header, arrays = fitted.state()
    del arrays["table.0"]
    told = {"kind": "model", "class": "BayesianNetwork", "params": {}, "state": header}
    files.write(tmp_path / "bad.fb", told, arrays)
    with pytest.raises(FileFormatError, match="do not fit together"):
        fb.load(tmp_path / "bad.fb")


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_the_state_none__is_null_whatever_is_written(tmp_path: Path, suffix: str) -> None:
    states = {"text": ("u", None, "v"), "number": (1.5, None)}
    tables = {n: np.full(len(values), 1 / len(values)) for n, values in states.items()}
    network = BayesianNetwork(states, {}, tables)
    rows = network.sample(300, seed=0)
    for node, values in states.items():
        assert 60 < rows[node].null_count < 200
        assert {*rows[node].to_pylist()} == {*values}
    assert rows["text"].chunk(0).dictionary.null_count == 0
    path = tmp_path / f"rows.{suffix}"
    network.sample_to(path, 300, seed=0)
    counts = network.fit(path, missing="category", alpha=0).tables["text"] * 300
    assert counts[1] == pytest.approx(rows["text"].null_count)
