"""Posteriors for every row of a table, held against one query after the other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.networks.infer import row_posteriors as batch
from fastbayes.networks.network import BayesianNetwork
from tests.networks_made import asia, random_network


def rows_of(network: BayesianNetwork, seed: int, n: int, holes: float) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {}
    for node in network.nodes:
        states = np.array(network.states[node])
        values = states[random.integers(0, len(states), n)]
        columns[node] = pa.array(values, mask=random.random(n) < holes)
    return pa.table(columns)


def row_by_row(network: BayesianNetwork, data: pa.Table, target: str) -> tuple[Any, Any]:
    """Return P(target | row) and ln P(row) by queries; the prior where a row is impossible."""
    found, evidences = [], []
    for row in data.to_pylist():
        known = {n: v for n, v in row.items() if v is not None and n in network.nodes}
        evidences.append(network.log_evidence(known))
        known.pop(target, None)
        try:
            answer = network.query(target, known)
        except DataError:
            answer = network.query(target)
        found.append(answer.probabilities)
    return np.array(found), np.array(evidences)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 9),
    density=st.floats(0, 1),
    holes=st.sampled_from([0.0, 0.1, 0.5]),
    ready=st.sampled_from([0, 1 << 18]),
    cells=st.sampled_from([8, 1 << 18]),
    absent=st.booleans(),
    compiled=st.sampled_from(["always", "never"]),
)
def test_rows__are_answered_like_queries(
    seed: int,
    n: int,
    density: float,
    holes: float,
    ready: int,
    cells: int,
    absent: bool,
    compiled: str,
) -> None:
    network = random_network(seed, n, density)
    data = rows_of(network, seed, 20, holes)
    target = network.nodes[seed % n]
    if absent and n > 2:
        data = data.drop(network.nodes[(seed + 1) % n])
    expected, evidences = row_by_row(network, data, target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "READY", ready)
        patch.setattr(batch, "CELLS", cells)
        patch.setenv("FASTBAYES_KERNELS", compiled)
        found = network.predict_proba(data, target)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(network.log_evidences(data), evidences, atol=1e-10)
    assert network.log_likelihood(data) == pytest.approx(evidences.sum())


@pytest.mark.parametrize("ready", [0, 1 << 18])
@pytest.mark.parametrize("most", [0, 1 << 23])
def test_rows__with_zeros_in_the_tables(
    monkeypatch: pytest.MonkeyPatch, ready: int, most: int
) -> None:
    monkeypatch.setattr(batch, "READY", ready)
    monkeypatch.setattr(batch, "MULTIPLIED", most)
    network = asia()
    data = rows_of(network, 3, 400, 0.3)
    for target in network.nodes:
        expected, evidences = row_by_row(network, data, target)
        found = network.predict_proba(data, target)
        # A row is impossible where what tells of the target is: elsewhere nobody looks.
        possible = ~np.isneginf(evidences)
        np.testing.assert_allclose(found[possible], expected[possible], atol=1e-12)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
        np.testing.assert_array_equal(np.isneginf(network.log_evidences(data)), ~possible)
    assert 0 < possible.sum() < 400


@pytest.mark.parametrize("ready", [0, 1 << 18])
def test_impossible_rows__take_the_prior_or_are_an_error(
    monkeypatch: pytest.MonkeyPatch, ready: int
) -> None:
    monkeypatch.setattr(batch, "READY", ready)
    network = asia()
    data = pa.table({"lung": ["no", "yes"], "either": ["no", "no"]})
    found = network.predict_proba(data, "tub")
    np.testing.assert_allclose(found[1], network.query("tub").probabilities, atol=1e-15)
    assert found[0].tolist() == [0.0, 1.0]
    with pytest.raises(DataError, match="row 1 is impossible, and 0 more"):
        network.predict_proba(data, "tub", impossible="error")
    assert network.log_likelihood(data) == -math.inf
    weighted = network.log_likelihood(data, sample_weight=[2, 0])
    assert weighted == pytest.approx(2 * network.log_evidence({"lung": "no", "either": "no"}))


def test_rows__that_are_impossible_where_nobody_looks() -> None:
    """What an observed node cuts off does not change the posterior, as the docstring says."""
    states = {n: ["0", "1"] for n in "abch"}
    tables = {"a": [0.5, 0.5], "b": [[1, 0], [0.5, 0.5]], "h": [0.5, 0.5]}
    tables["c"] = [[[0.1, 0.9], [0.2, 0.8]], [[0.7, 0.3], [0.6, 0.4]]]
    network = BayesianNetwork(states, {"b": ["a"], "c": ["b", "h"]}, tables)
    row = {"a": ["0"], "b": ["1"]}
    assert network.log_evidences(row)[0] == -math.inf
    found = network.predict_proba(row, "c", impossible="error")
    np.testing.assert_allclose(found, [[0.65, 0.35]])


@pytest.mark.parametrize("kind", ["table", "file", "stream"])
def test_weights__of_a_likelihood_are_a_column_or_values(tmp_path: Path, kind: str) -> None:
    network = asia()
    weight = np.random.default_rng(0).integers(0, 3, 300) / 2
    plain = rows_of(network, 3, 300, 0.3)
    each = network.log_evidences(plain)
    plain = plain.filter(np.isfinite(each))
    each, weight = each[np.isfinite(each)], weight[np.isfinite(each)]
    rows = plain.append_column("share", pa.array(weight))
    pq.write_table(rows, tmp_path / "rows.parquet")

    def data() -> Any:
        if kind == "stream":
            return rows.to_reader(max_chunksize=70)
        return rows if kind == "table" else tmp_path / "rows.parquet"

    expected = pytest.approx(math.fsum(weight * each), rel=1e-12)
    assert network.log_likelihood(data(), sample_weight="share") == expected
    assert network.log_likelihood(data(), sample_weight=weight) == expected
    assert network.log_likelihood(data(), sample_weight=weight.tolist()) == expected
    with pytest.raises(SchemaError, match=r"no column 'shares' in .* did you mean 'share'"):
        network.log_likelihood(data(), sample_weight="shares")
    with pytest.raises(DataError, match=r"sample_weight has shape \(2,\); give"):
        network.log_likelihood(data(), sample_weight=[1, 2])


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, None])
def test_weights__that_are_none_name_the_row(wrong: float | None) -> None:
    network = asia()
    rows = rows_of(network, 3, 3, 0.3).append_column("share", pa.array([1.0, wrong, 2.0]))
    for weight in ("share", rows["share"], [1.0, wrong, 2.0]):
        with pytest.raises(DataError, match=r"weight '\w+', row 1: .* is not a finite number >= 0"):
            network.log_likelihood(rows, sample_weight=weight)
    with pytest.raises(SchemaError, match=r"'smoke' is string, but numbers are needed"):
        network.log_likelihood(rows, sample_weight="smoke")


def test_unseen_values__are_missing_or_an_error() -> None:
    network = asia()
    data = {"smoke": ["yes", "maybe", None], "other": [1, 2, 3]}
    found = network.predict_proba(data, "lung")
    margin = network.query("lung").probabilities
    np.testing.assert_allclose(found, [[0.1, 0.9], margin, margin], atol=1e-15)
    # Networks do not take 'smooth', which classifiers do.
    remedy = "column 'smoke', row 1: value 'maybe' .*; use unseen='ignore', or fit again"
    with pytest.raises(DataError, match=remedy):
        network.predict_proba(data, "lung", unseen="error")
    with pytest.raises(DataError, match=r"column 'smoke', row 1: value 'maybe'"):
        network.log_evidences(data, unseen="error")
    for options in ({"unseen": "smooth"}, {"impossible": "skip"}):
        with pytest.raises(ValueError, match="use '"):
            network.predict_proba(data, "lung", **options)


def test_labels() -> None:
    network = asia()
    assert network.predict({"smoke": ["yes", "no"]}, "bronc").tolist() == ["yes", "no"]
    with pytest.raises(SchemaError, match="no column is a node"):
        network.predict({"x": [1]}, "bronc")
    with pytest.raises(ValueError, match="'x' is not among the nodes"):
        network.predict({"smoke": ["yes"]}, "x")
    alone = network.predict_proba({"bronc": ["yes", "no", None]}, "bronc")
    np.testing.assert_allclose(alone, [[0.45, 0.55]] * 3)


def test_files_and_streams__give_the_same_bits(tmp_path: Path) -> None:
    network = random_network(11, 8, 0.4)
    data = rows_of(network, 1, 5000, 0.1)
    target = network.nodes[0]
    expected = network.predict_proba(data, target, threads=1)
    pq.write_table(data, tmp_path / "rows.parquet", row_group_size=900)
    assert np.array_equal(network.predict_proba(tmp_path / "rows.parquet", target), expected)
    assert np.array_equal(network.predict_proba(data, target, threads=2), expected)
    reader = pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=777))
    assert np.array_equal(network.predict_proba(reader, target), expected)
    assert network.predict_proba(data.slice(0, 0), target).shape == (0, expected.shape[1])


def test_missing_as_a_state__is_observed() -> None:
    data = pa.table({"a": ["x", None, "x", None], "b": list("1222")})
    network = BayesianNetwork.from_edges([("a", "b")]).fit(data, missing="category", alpha=1)
    found = network.predict_proba(data.select(["a"]), "b")
    assert found[1] == pytest.approx(network.query("b", {"a": None}).probabilities, abs=1e-14)
    assert network.log_evidences(data.select(["a"])) == pytest.approx([math.log(0.5)] * 4)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        (["a", "b"], ["a", "b", None, "c"]),
        ([1, 2], [1, 2, None, 3]),
        (["(-inf, 2]", "(2, inf)"], [1.0, 2.5, None, math.nan]),
        (["(-inf, 2]", "(2, inf)"], ["(-inf, 2]", "(2, inf)", None, None]),
    ],
    ids=["text", "whole", "numbers", "bins"],
)
def test_missing_as_a_state__wherever_it_stands(
    kinds: list[Any], values: list[Any], place: int
) -> None:
    states = {"r": [*kinds[:place], None, *kinds[place:]], "c": ["u", "v"]}
    tables = {"r": [0.125, 0.25, 0.625], "c": [[0.1, 0.9], [0.3, 0.7], [0.6, 0.4]]}
    network = BayesianNetwork(states, {"c": ["r"]}, tables)
    asked = [*values[:3], None]
    if values[3] is not None and values[3] == values[3]:
        asked = asked[:3]  # the last value is no state: it is not observed
    given = [network.query("c", {"r": value}).probabilities for value in asked]
    given += [network.query("c").probabilities] * (4 - len(asked))
    assert np.allclose(network.predict_proba({"r": values}, "c"), given, rtol=0, atol=1e-14)
    rows = {"r": asked, "c": ["u", "v", "u", "v"][: len(asked)]}
    joint = network.log_joint(rows)
    assert np.allclose(network.log_evidences(rows), joint, rtol=1e-14, atol=0)
    assert network.log_likelihood(rows) == pytest.approx(joint.sum(), rel=1e-14)
    target = [network.query("r", {"c": c}).probabilities for c in "uv"]
    assert np.allclose(network.predict_proba({"c": ["u", "v"]}, "r"), target, rtol=0, atol=1e-14)


def test_bins__are_read_from_numbers() -> None:
    data = {"x": [0.5, 1.5, 2.5, 3.5], "y": ["a", "a", "b", "b"]}
    network = BayesianNetwork.from_edges([("y", "x")]).fit(data, discretize={"x": [2.0]}, alpha=0)
    assert network.predict({"x": [-9.0, 9.0]}, "y").tolist() == ["a", "b"]


def test_states__of_a_thousand_and_of_one() -> None:
    random = np.random.default_rng(2)
    states = {"w": range(1000), "t": ["p", "q"], "one": ["only"], "end": [False, True]}
    tables = {
        "w": random.dirichlet(np.ones(1000)),
        "t": random.dirichlet(np.ones(2), size=1000),
        "one": np.ones((2, 1)),
        "end": random.dirichlet(np.ones(2), size=(1, 1000)),
    }
    parents = {"t": ["w"], "one": ["t"], "end": ["one", "w"]}
    network = BayesianNetwork(states, parents, tables)
    data = pa.table(
        {"end": [True, False, True], "one": ["only", None, "only"], "w": [999, 0, None]}
    )
    for target in ("t", "w"):
        expected, evidences = row_by_row(network, data, target)
        np.testing.assert_allclose(network.predict_proba(data, target), expected, atol=1e-13)
    np.testing.assert_allclose(network.log_evidences(data), evidences, rtol=1e-12)


def test_wide_tables__are_refused() -> None:
    names = [f"n{i}" for i in range(12)]
    tables: dict[str, Any] = {n: [0.5, 0.5] for n in names[:-1]}
    tables["n11"] = np.full((2,) * 12, 0.5)
    network = BayesianNetwork(dict.fromkeys(names, (0, 1)), {"n11": names[:-1]}, tables)
    with pytest.raises(MemoryLimitError, match="a row in which 10 nodes are not observed takes"):
        network.predict_proba({"n11": [0]}, "n0", max_cells=1000)
    assert network.predict_proba({"n11": [0]}, "n0") == pytest.approx(0.5)


@pytest.mark.parametrize("n", [1, 3, 8, 11, 16, 40])
def test_rows__of_the_same_pattern_come_together(n: int) -> None:
    flags = np.random.default_rng(n).random((n, 200)) < 0.1
    seen: list[int] = []
    for pattern, rows in batch.alike(flags):
        assert (flags[:, rows] == pattern[:, None]).all()
        assert len(rows) > 0
        seen += rows.tolist()
    assert sorted(seen) == list(range(200))


def test_plan__leaves_out_what_says_nothing() -> None:
    network = asia()
    place = network.nodes.index

    def told(target: str, *observed: str) -> set[str]:
        rows = batch.RowPosteriors(network.coded(), place(target), [place(n) for n in observed])
        plan = rows._plan(frozenset())
        assert {network.nodes[v] for v in plan.columns} <= {*observed}
        return {network.nodes[v] for v in plan.families}

    assert told("smoke") == {"smoke"}
    assert told("lung", "smoke", "bronc", "xray") == {"lung", "either", "tub", "asia", "xray"}
    assert told("bronc", "smoke", "dysp", "either", "asia", "tub") == {"bronc", "dysp"}
