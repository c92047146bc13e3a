"""Tables that keep the configurations that occur, held against whole ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.networks.graph.coded import SparseTable, from_counts
from fastbayes.networks.network import BayesianNetwork
from fastbayes.networks.search import node_rows

NAMES = [f"n{i}" for i in range(6)]
EDGES = [*((n, "child") for n in NAMES[:5]), ("child", "end"), ("n0", "n1")]
NODES = [*NAMES, "child", "end"]


def rows_of(seed: int, n: int = 150, holes: float = 0.0) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {name: random.integers(0, 4, n) for name in NAMES}
    columns["child"] = (sum(columns.values()) + (random.random(n) < 0.3)) % 3
    columns["end"] = columns["child"] > (random.random(n) < 0.2)
    return pa.table({k: pa.array(v, mask=random.random(n) < holes) for k, v in columns.items()})


def both(
    monkeypatch: pytest.MonkeyPatch, data: pa.Table, **options: Any
) -> tuple[BayesianNetwork, BayesianNetwork]:
    """Return a network of whole tables, and one of which `child` keeps some rows."""
    monkeypatch.setattr(node_rows, "NARROW", 1000)
    dense = BayesianNetwork.from_edges(EDGES, nodes=NODES).fit(data, categorical="*", **options)
    sparse = BayesianNetwork.from_edges(EDGES, nodes=NODES)
    sparse.fit(data, categorical="*", memory_limit=30_000, threads=1, **options)
    assert isinstance(sparse.tables["child"], SparseTable)
    assert sum(isinstance(t, SparseTable) for t in sparse.tables.values()) == 1
    return dense, sparse


@pytest.mark.parametrize("missing", ["available", "category"])
@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 1.0}, {"prior": "bdeu", "ess": 5.0}])
def test_sparse_tables__are_the_whole_ones(
    monkeypatch: pytest.MonkeyPatch, missing: str, options: dict[str, Any]
) -> None:
    data = rows_of(1, holes=0.05)
    weight = np.random.default_rng(0).integers(1, 4, len(data)).astype(float)
    dense, sparse = both(monkeypatch, data, missing=missing, sample_weight=weight, **options)
    assert sparse.states == dense.states
    table = sparse.tables["child"]
    grid = np.ix_(*map(np.arange, table.shape))
    np.testing.assert_allclose(table.gathered(grid), dense.tables["child"], rtol=1e-12)
    assert len(table.keys) < table.n_rows
    codes, cells = table.kept()
    np.testing.assert_allclose(cells, dense.tables["child"][tuple(codes)], rtol=1e-12)
    assert sparse.table("child").num_rows == len(table.keys) * table.shape[-1]
    assert sparse.table("child").column_names[-2:] == ["child", "probability"]
    for node in dense.nodes:
        if node != "child":
            assert np.array_equal(dense.tables[node], sparse.tables[node])
    told = {"missing": missing, "sample_weight": weight}
    for score in ("mdl", "aic", "loglik", "bdeu", "k2"):
        found = sparse.score(data, score, memory_limit=30_000, threads=1, **told)
        assert found == pytest.approx(dense.score(data, score, **told), rel=1e-12)


def test_answers__are_those_of_whole_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = rows_of(2)
    dense, sparse = both(monkeypatch, data)
    evidence = {"n0": 1, "n1": 2, "n2": 0, "n3": 3}
    for target in ("child", "n4", ["end", "n4"]):
        expected, found = dense.query(target, evidence), sparse.query(target, evidence)
        np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-14)
    assert sparse.log_evidence({**evidence, "end": True}) == pytest.approx(
        dense.log_evidence({**evidence, "end": True})
    )
    assert sparse.most_probable(evidence) == dense.most_probable(evidence)
    holes = rows_of(3, 60, holes=0.1)
    for target in ("child", "n2", "end"):
        np.testing.assert_allclose(
            sparse.predict_proba(holes, target), dense.predict_proba(holes, target), atol=1e-12
        )
    np.testing.assert_allclose(sparse.log_evidences(data), dense.log_evidences(data), rtol=1e-12)
    # With something missing in nearly all rows, in all of them, and in some.
    for some in (
        rows_of(3, 60, holes=0.5),
        holes.drop_columns("n1"),
        pa.concat_tables([holes, data]),
    ):
        expected = dense.log_evidences(some)
        np.testing.assert_allclose(sparse.log_evidences(some), expected, atol=1e-12)
    assert sparse.log_likelihood(holes) == pytest.approx(dense.log_likelihood(holes))
    rows = {n: data[n].to_pylist() for n in NODES}
    np.testing.assert_allclose(sparse.log_joint(rows), dense.log_joint(rows), rtol=1e-12)
    assert sparse.sample(500, seed=1).equals(dense.sample(500, seed=1))
    assert sparse.sample(500, {"end": True}, seed=1).equals(
        dense.sample(500, {"end": True}, seed=1)
    )
    assert sparse != dense
    sparse.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again == sparse


def test_what_takes_whole_tables__says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _, sparse = both(monkeypatch, rows_of(4))
    for method in ("gibbs", "likelihood_weighting"):
        with pytest.raises(MemoryLimitError, match=r"node 'child': its table of .* cells keeps"):
            sparse.query("end", method=method)
    with pytest.raises(MemoryLimitError, match=r"keeps .* rows alone"):
        np.asarray(sparse.tables["child"])


def test_a_family_that_no_machine_holds() -> None:
    random = np.random.default_rng(1)
    names = [f"n{i}" for i in range(10)]
    data = pa.table({n: random.integers(0, 60, 2000) for n in names})
    network = BayesianNetwork.from_edges([(n, "n9") for n in names[:-1]], nodes=names)
    network.fit(data, categorical="n?")
    table = network.tables["n9"]
    assert table.size == 60**10
    assert len(table.keys) == 2000
    row = {n: data[n][7].as_py() for n in names}
    seen = row.pop("n9")
    assert network.query("n9", row).probability({"n9": seen}) == pytest.approx(2 / 61)
    other = network.query("n9", {**row, "n0": (row["n0"] + 1) % 60})
    assert other.probabilities == pytest.approx(1 / 60)
    assert network.predict_proba(data, "n9").argmax(axis=1)[7] == network.states["n9"].index(seen)
    assert network.query("n3").log_evidence == 0.0
    assert network.sample(100, seed=1).num_rows == 100
    assert network.score(data) > network.score(data, "aic")
    with pytest.raises(MemoryLimitError, match=r"'n9' has .* cells.*'n0', 'n1'.*as evidence"):
        network.query("n9")


def test_rows__must_fit() -> None:
    shape, keys, rows = (3, 2), np.array([0, 2]), np.full((3, 2), 0.5)
    assert SparseTable(shape, keys, rows).gathered([[0, 1], [1, 1]]).tolist() == [0.5, 0.5]
    for wrong in ((shape, keys[::-1], rows), (shape, keys + 1, rows), (shape, keys, rows[:2])):
        with pytest.raises(ValueError, match=r"keys|rows"):
            SparseTable(*wrong)
    states: dict[str, Any] = {"a": [1, 2, 3], "b": [True, False]}
    tables: dict[str, Any] = {"a": [0.5, 0.25, 0.25], "b": SparseTable(shape, keys, rows / 2)}
    with pytest.raises(ValueError, match="node 'b': a row of its table misses 1"):
        BayesianNetwork(states, {"b": ["a"]}, tables)
    table = from_counts((3, 2), np.array([[1, 0], [1, 1]]), np.array([3, 1]), 0.0)
    assert table.gathered([[0, 1], [0, 0]]).tolist() == [0.5, 0.75]
    empty = from_counts((3, 2), np.zeros((0, 2), np.int64), np.zeros(0), 1.0)
    assert empty.gathered([[2], [1]]).tolist() == [0.5]


def test_streams__are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_rows, "NARROW", 1000)
    data = rows_of(5)
    reader = pa.RecordBatchReader.from_batches(data.schema, data.to_batches())
    network = BayesianNetwork.from_edges(EDGES, nodes=NODES)
    with pytest.raises((DataError, MemoryLimitError)):
        network.fit(reader, categorical="*", memory_limit=30_000, threads=1)
    assert not network.tables
