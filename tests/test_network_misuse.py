"""What networks make of things they were not meant for."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes import BayesianNetwork
from fastbayes.core.errors import DataError, FastBayesWarning, MemoryLimitError, SchemaError

T = {"a": list("uuuuvvvv") * 5, "b": list("uuvvuuvv") * 5, "c": list("uuuvvvvu") * 5}
SCORES = ("mdl", "aic", "loglik", "bdeu", "k2")
EMPTY = pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.string())})
DECLARED = {"a": ["x", "y"], "b": ["u", "v"]}


def tied() -> BayesianNetwork:
    return BayesianNetwork.from_edges([("a", "b")])


def with_holes(share: float) -> pa.Table:
    random = np.random.default_rng(0)
    return pa.table({n: pa.array(v, mask=random.random(40) < share) for n, v in T.items()})


# -- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("form", ["table", "stream", "blocks"])
def test_score__is_of_the_rows_that_learn_looks_at(score: str, form: str) -> None:
    holes = with_holes(0.05)
    network = BayesianNetwork.learn(holes, score, max_parents=1)
    data: Any = holes
    if form != "table":
        data = pa.RecordBatchReader.from_batches(holes.schema, holes.to_batches(max_chunksize=7))
    if form == "blocks":
        data = iter(list(data))
    found = network.score(data, score)
    assert found == pytest.approx(network.search_.score, rel=1e-12)
    complete = holes.to_pandas().dropna()
    assert len(complete) < 40
    assert found == pytest.approx(network.score(complete, score), rel=1e-12)
    # All rows in which a family is known are more than the complete ones.
    assert network.score(holes, score, missing="available") != pytest.approx(found, rel=1e-3)


def test_score__weighs_rows_and_keeps_declared_states() -> None:
    holes, weight = with_holes(0.1), np.arange(40) % 3 + 1.0
    domains = {"a": ["u", "v", "w"]}
    told = {"domains": domains, "sample_weight": weight}
    network = BayesianNetwork.learn(holes, required=[("a", "c")], **told)
    assert network.score(holes, **told) == pytest.approx(network.search_.score, rel=1e-12)
    assert network.n_parameters() == network.n_parameters_


@pytest.mark.parametrize("value", [0.5, Decimal("0.5"), 3])
def test_numbers_that_are_states__stay_states(value: Any) -> None:
    data = pa.table({"a": pa.array([value, 2 * value] * 20), "b": ["u", "v"] * 20})
    network = BayesianNetwork.learn(data, categorical=["a"])
    assert network.states["a"] == (value, 2 * value)
    assert network.score(data) == pytest.approx(network.search_.score, rel=1e-12)
    tables = {node: table.copy() for node, table in network.tables.items()}
    network.fit(data)
    assert all(np.array_equal(network.tables[n], tables[n]) for n in tables)
    other = tied().fit(data, categorical=["a"])
    assert other.states["a"] == (value, 2 * value)
    assert tied().score(data, categorical=["a"]) == pytest.approx(network.search_.score)
    with pytest.raises(SchemaError, match=r"'a' holds numbers.*`categorical`"):
        tied().fit(data)


@pytest.mark.parametrize("options", [{}, {"missing": "em"}, {"domains": DECLARED}])
@pytest.mark.parametrize("weight", [None, "none"])
def test_no_rows__are_said_to_be_none(options: dict[str, Any], weight: str | None) -> None:
    data, why = EMPTY, "there are no rows"
    if weight is not None:
        data, why = pa.table({"a": ["x", "y"], "b": ["u", "v"]}), "every weight is zero"
        options = {**options, "sample_weight": [0, 0]}
    with pytest.raises(DataError, match=why):
        tied().fit(data, **options)
    options = {k: v for k, v in options.items() if k != "missing"}
    with pytest.raises(DataError, match=why):
        tied().score(data, **options)
    with pytest.raises(DataError, match=why):
        BayesianNetwork.learn(data, **options)
    with pytest.raises(DataError, match="no row is complete"):
        BayesianNetwork.learn({"a": ["x", None], "b": [None, "u"]})


def test_one_row__scores_nothing_rather_than_less() -> None:
    row = {"a": ["x"], "b": ["u"]}
    network = BayesianNetwork.learn(row)
    for score in (network.search_.score, network.score(row), tied().score(row)):
        assert str(score) == "0.0"
    with pytest.warns(FastBayesWarning, match="2 of 3 rows have missing"):
        assert str(tied().score({"a": ["x", None, "x"], "b": ["u", "u", None]})) == "0.0"


def test_most_rows_incomplete__is_a_caution() -> None:
    data = {"a": ["x", None, None, "y"], "b": ["u", "v", "u", None]}
    with pytest.warns(FastBayesWarning, match=r"3 of 4 rows have missing.*missing='category'"):
        network = BayesianNetwork.learn(data)
    assert network.search_.left_out == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianNetwork.learn({"a": ["x", "y", "x", "y"], "b": ["u", "v", "u", None]})


@pytest.mark.parametrize("total", [1.0, 1e-3, 1e-300])
def test_weights_that_sum_to_one__are_a_caution(total: float) -> None:
    # So few rows speak for nothing; a negative price would ask for as many parameters as can be.
    with pytest.warns(FastBayesWarning, match="weights of 40 rows sum to .*scale them"):
        network = BayesianNetwork.learn(T, sample_weight=np.full(40, total / 40), restarts=0)
    assert network.search_.score >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianNetwork.learn(T, sample_weight=[1] + [0] * 39)  # one row, in fact
    more, none = BayesianNetwork.from_edges([("a", "b")]), BayesianNetwork.from_edges([], "ab")
    weight = np.full(40, total / 40)
    assert more.score(T, sample_weight=weight) <= none.score(T, sample_weight=weight) + 1e-12


# -- graphs, questions -----------------------------------------------------------------------


def test_too_many_independences__are_said_in_a_line() -> None:
    graph = BayesianNetwork.from_edges([], nodes=[f"n{i}" for i in range(1000)])
    with pytest.raises(MemoryLimitError, match="set max_given") as error:
        graph.independences()
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("evidence", ["a", ["a"], [("a", "u")], 3])
def test_evidence__is_states_by_node(evidence: Any) -> None:
    network = tied().fit(T)
    with pytest.raises(ValueError, match=r"evidence=.*use \{node: state\}"):
        network.query("b", evidence)
    with pytest.raises(ValueError, match=r"evidence=.*use \{node: state\}"):
        network.most_probable(evidence)


@pytest.mark.parametrize("job", ["predict_to", "evaluate"])
def test_networks__are_no_classifiers(job: str, tmp_path: Path) -> None:
    network = tied().fit(T)
    with pytest.raises(SchemaError, match=r"predict_proba\(data, node\).*NetworkClassifier"):
        if job == "predict_to":
            fb.predict_to(network, T, tmp_path / "out.parquet")
        else:
            fb.evaluate(network, T, "a")


@pytest.mark.parametrize("fitted", [True, False])
def test_inspect__shows_a_network(tmp_path: Path, fitted: bool) -> None:
    network = tied().fit(T) if fitted else tied()
    network.save(tmp_path / "n.fb")
    done = commands.run("inspect", str(tmp_path / "n.fb"))
    assert done.exit_code == 0, done.output
    assert "given a" in done.output
    assert done.output == commands.run("network", "show", str(tmp_path / "n.fb")).output


# -- kinds of values -------------------------------------------------------------------------


def test_names_and_states__of_all_kinds(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    n = 300
    data = pd.DataFrame(
        {
            "größe in cm": random.choice(["klein", "groß", "riesig \N{SAUROPOD}"], n),
            "a; b\n|{}": random.integers(0, 4, n),
            "": random.integers(0, 2, n).astype(bool),
        }
    )
    data["same"] = (data["a; b\n|{}"] % 2).astype("Int64")
    network = BayesianNetwork.learn(data, categorical="*")
    assert network.edges == [("a; b\n|{}", "same")]
    assert network.states[""] == (False, True)
    answer = network.query("same", {"a; b\n|{}": np.int64(3), "": np.bool_(True)})
    assert answer.probability({"same": 1}) > 0.9
    for suffix in (".bif", ".fb"):
        path = tmp_path / f"n{suffix}"
        if suffix == ".fb":
            network.save(path)
            assert fb.load(path) == network
            continue
        network.write(path)
        found = BayesianNetwork.read(path)
        assert found.nodes == network.nodes
        assert found.states["same"] == ("0", "1")
        for node, table in found.tables.items():
            assert np.array_equal(table, network.tables[node])


def test_decimals__are_the_numbers_that_fit_reads() -> None:
    states = {"n": [Decimal("2.25"), Decimal("0.10")], "m": ["u", "v"]}
    tables = {"n": [0.5, 0.5], "m": [[0.1, 0.9], [0.6, 0.4]]}
    network = BayesianNetwork(states, {"m": ["n"]}, tables)
    decimals = pa.array([*states["n"], None], pa.decimal128(5, 2))
    wanted = [[0.1, 0.9], [0.6, 0.4], [0.35, 0.65]]
    for column in (decimals, decimals.cast(pa.float64())):
        np.testing.assert_allclose(network.predict_proba({"n": column}, "m"), wanted)
    complete = {"n": decimals[:2], "m": ["v", "u"]}
    assert network.log_likelihood(complete) == pytest.approx(np.log(0.5 * 0.9 * 0.5 * 0.6))
    assert network.query("m", {"n": 0.1}).probability({"m": "u"}) == pytest.approx(0.6)
    assert network.fit(complete, alpha=0).log_likelihood(complete) == pytest.approx(np.log(0.25))
    assert network.states["n"] == (2.25, 0.1)
    assert network.query("m", {"n": Decimal("0.10")}).probability({"m": "u"}) == 1


@pytest.mark.parametrize("text", [False, True])
def test_dates__are_states_as_text_only(text: bool) -> None:
    days = pa.array([0, 1], pa.date32())
    states = days.cast(pa.string()) if text else days
    tables = {"n": [0.5, 0.5], "m": [[0.1, 0.9], [0.6, 0.4]]}
    network = BayesianNetwork({"n": states, "m": ["u", "v"]}, {"m": ["n"]}, tables)
    assert network.predict_proba({"m": ["u"]}, "n")[0] == pytest.approx([1 / 7, 6 / 7])
    if text:
        rows = {"n": days.cast(pa.string())}
        np.testing.assert_allclose(network.predict_proba(rows, "m"), [[0.1, 0.9], [0.6, 0.4]])
        return
    for column in (days, days.cast(pa.string())):
        with pytest.raises(
            SchemaError, match=r"node 'n': its states are date32.* as text, and cast"
        ):
            network.predict_proba({"n": column}, "m")


@pytest.mark.parametrize(
    ("column", "dated"),
    [
        (pa.array([0, 86_400_000_000] * 20, pa.timestamp("us")), True),
        (pa.array([0, 1] * 20, pa.date32()), True),
        (pa.array([[1], [2]] * 20), False),
    ],
)
def test_columns__that_are_no_nodes(column: pa.Array, dated: bool) -> None:
    data = pa.table({"a": column, "b": T["b"]})
    for make in (BayesianNetwork.learn, tied().fit, tied().score)[dated:]:
        with pytest.raises(SchemaError, match=r"'a' has type .*, which cannot be a feature"):
            make(data)
    if dated:  # parts of it are nodes
        assert BayesianNetwork.learn(data).nodes == ("a.weekday", "b")


def test_a_column_of_a_thousand_values__and_one_of_one() -> None:
    random = np.random.default_rng(0)
    k = random.integers(0, 1000, 5000)
    data = pa.table({"k": [f"s{i}" for i in k], "odd": k % 2, "one": ["x"] * 5000})
    assert BayesianNetwork.learn(data, categorical="odd").edges in (
        [],
        [("k", "odd")],
        [("odd", "k")],
    )
    network = BayesianNetwork.from_edges([("k", "odd"), ("one", "odd")])
    network.fit(data, categorical="odd")
    assert network.query("k", {"odd": 1}).probability({"k": "s2"}) < 0.001
    assert network.query("one", {"odd": 1, "k": "s1", "one": "x"}).probability({"one": "x"}) == 1
    np.testing.assert_array_equal(network.predict(data, "odd"), data["odd"])
    apart = BayesianNetwork.from_edges([], data.column_names)
    assert network.score(data) > apart.score(data, categorical="odd")
