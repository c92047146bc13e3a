"""Networks as values, and classifiers as networks."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.errors import SchemaError
from fastbayes.networks.network import BayesianNetwork

RAIN: dict[str, Any] = {
    "states": {"rain": ["no", "yes"], "wet": [False, True]},
    "parents": {"wet": ["rain"]},
    "tables": {"rain": [0.75, 0.25], "wet": [[0.5, 0.5], [0.0, 1.0]]},
}


def changed(**parts: Any) -> dict[str, Any]:
    return {name: {**RAIN[name], **parts.get(name, {})} for name in RAIN}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"parents": {"rain": ["sky"]}}, "node 'rain': its parent 'sky' is no node"),
        ({"parents": {"rain": ["wet"]}}, "the parents of 'rain' go round in a circle"),
        ({"parents": {"wet": ["rain", "rain"]}}, "node 'wet': a parent stands twice"),
        ({"parents": {"sky": []}}, "'sky' is not among the nodes"),
        ({"tables": {"sky": [1.0]}}, "'sky' is not among the nodes"),
        ({"states": {"sky": ["blue"]}}, "node 'sky' has no table"),
        ({"states": {"rain": []}}, "node 'rain' has no states; list one or more"),
        ({"states": {"rain": None}}, "node 'rain': its states are None .*; list values"),
        (
            {"states": {"rain": [["no"], ["yes"]]}},
            r"node 'rain': its states are \[\['no'\], .* list",
        ),
        ({"states": {"rain": ["no", "no"]}}, "node 'rain': its states"),
        (
            {"states": {"rain": [2**64, 1]}},
            f"node 'rain': its state {2**64} does not fit in 64 bits; give its states as text",
        ),
        ({"states": {"rain": [None, -(2**63) - 1]}}, f"'rain': its state {-(2**63) - 1} does not"),
        (
            {"states": {"rain": [-1, np.uint64(2**63)]}},
            f"node 'rain': its state {2**63} does not fit in 64 bits beside negative ones; give",
        ),
        ({"tables": {"wet": [0.5, 0.5]}}, r"node 'wet': its table is \(2,\), .* ask \(2, 2\)"),
        ({"tables": {"wet": [[0.5, 0.5], [1.0]]}}, "node 'wet': its table is no array of numbers"),
        ({"tables": {"rain": ["p", "q"]}}, "node 'rain': its table is no array of numbers .*'p'"),
        ({"tables": {"rain": [0.75 + 0j, 0.25]}}, "node 'rain': its table is no array .* complex"),
        ({"tables": {"rain": np.array([1j, 1])}}, "node 'rain': its table is no array .* complex"),
        ({"tables": {"rain": [1.25, -0.25]}}, "node 'rain': .* no probability"),
        ({"tables": {"rain": [np.nan, 1.0]}}, "node 'rain': .* no probability"),
        ({"tables": {"rain": [0.75, 0.2500001]}}, "node 'rain': a row of its table misses 1 by"),
    ],
)
def test_what_is_no_network__is_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianNetwork(**changed(**parts))


@pytest.mark.parametrize("first", [2**63, np.uint64(2**64 - 1), -(2**63)])
def test_whole_numbers_of_64_bits__are_states(first: Any) -> None:
    network = BayesianNetwork(**changed(states={"rain": [first, 1]}))
    rain = pa.array([first, 1], pa.int64() if first < 0 else pa.uint64())
    given = [network.query("wet", {"rain": state}).probabilities for state in (first, 1)]
    np.testing.assert_allclose(network.predict_proba({"rain": rain}, "wet"), given, atol=1e-14)
    assert network.predict({"wet": [False, True]}, "rain").tolist() == [first, first]
    drawn = network.sample(9, seed=1)["rain"]
    assert drawn.type == rain.type
    assert {*drawn.to_pylist()} == {first, 1}
    assert network.table("rain")["rain"].to_pylist() == [first, 1]
    wet = {"rain": rain, "wet": [True, True]}
    np.testing.assert_allclose(network.log_evidences(wet), network.log_joint(wet))


def test_states_of_arrow__are_values(tmp_path: Path) -> None:
    """An Arrow array is a sequence of scalars, which equal no value."""
    column = pa.array(["no", None])
    network = BayesianNetwork(**RAIN)
    for states in (column, pa.chunked_array([column[:1], column[1:]]), ["no", column[1]]):
        found = BayesianNetwork(**changed(states={"rain": states}))
        assert found.states["rain"] == ("no", None)
        given = found.query("wet", {"rain": "no"}).probabilities
        assert given.tolist() == network.query("wet", {"rain": "no"}).probabilities.tolist()
    found.save(tmp_path / "n.fb")
    assert fb.load(tmp_path / "n.fb") == found


def test_names_that_are_numbers__are_text_in_tables() -> None:
    network = BayesianNetwork(
        {1: ["a", "b"], 2: ["x", "y"]}, {2: [1]}, {1: [0.25, 0.75], 2: [[0.5, 0.5], [0.1, 0.9]]}
    )  # type: ignore[dict-item]
    answer = network.query([2, 1])  # type: ignore[list-item]
    assert answer.table.column_names == ["2", "1", "probability"]
    assert str(answer).startswith("2  1  probability\nx  a     0.125000")
    assert network.table(2).column_names == ["1", "2", "probability"]  # type: ignore[arg-type]


def test_tables_that_are_not_known__are_to_be_fitted() -> None:
    with pytest.raises(Exception, match="not fitted yet: call 'fit' first"):
        BayesianNetwork.from_edges([("rain", "wet")]).query("rain")


@pytest.mark.parametrize("form", [".fb", ".bif"])
def test_numbers__are_the_states_that_read_like_them(form: str, tmp_path: Path) -> None:
    """Files of text have numbers as Arrow writes them: 1e+10, 0.00001, 1e-7."""
    numbers = [1e9, 1e10, 12345678901.0, 1e-5, 1e-7, 1e300, 0.1, 2.0**53, 2.0**60, -2.5]
    tables = {"n": [0.1] * 10, "m": [[0.05 + 0.09 * i, 0.95 - 0.09 * i] for i in range(10)]}
    network = BayesianNetwork({"n": numbers, "m": ["u", "v"]}, {"m": ["n"]}, tables)
    path = tmp_path / f"n{form}"
    network.save(path) if form == ".fb" else network.write(path)
    found = fb.load(path) if form == ".fb" else BayesianNetwork.read(path)
    for number in numbers:
        wanted = network.query("m", {"n": number}).probabilities
        for value in (number, np.float64(number), Decimal(repr(number))):
            given = found.query("m", {"n": value}).probabilities
            np.testing.assert_allclose(given, wanted, rtol=1e-14)
    assert found.query("m", {"n": 10**10}).probabilities.tolist() == pytest.approx([0.14, 0.86])
    for value in (10**10 + 1, True, 0.2, 10**400):
        with pytest.raises(ValueError, match=r"node 'n': .* is not one of its states"):
            found.query("m", {"n": value})


@pytest.mark.parametrize("states", [["1", "1.00"], ["9007199254740993", "1e+400"], ["1_0", "١"]])
def test_numbers__of_which_no_state_is_the_only_text(states: list[str]) -> None:
    network = BayesianNetwork({"n": states}, {}, {"n": [0.5, 0.5]})
    for number in (Decimal("1.0"), 2.0**53, 10, math.inf):
        with pytest.raises(ValueError, match=r"node 'n': .* is not one of its states"):
            network.log_evidence({"n": number})


def test_log_joint__is_the_product_of_the_tables() -> None:
    network = BayesianNetwork(**RAIN)
    joint = network.log_joint({"rain": ["no", "yes", "yes"], "wet": [True, True, False]})
    np.testing.assert_allclose(np.exp(joint), [0.375, 0.25, 0.0])
    assert np.exp(network.log_joint({"rain": "yes", "wet": np.array([True, False])})[0]) == 0.25
    with pytest.raises(ValueError, match="node 'wet' has no state"):
        network.log_joint({"rain": "no"})
    with pytest.raises(ValueError, match="node 'rain': 'snow' is not one of its states"):
        network.log_joint({"rain": ["no", "snow"], "wet": True})


def test_value__cannot_be_changed() -> None:
    tables = {node: np.array(table) for node, table in RAIN["tables"].items()}
    network = BayesianNetwork(RAIN["states"], RAIN["parents"], tables)
    tables["rain"][:] = 7
    assert network.tables["rain"].tolist() == [0.75, 0.25]
    with pytest.raises(ValueError, match="read-only"):
        network.tables["rain"][0] = 1
    assert network.order == ("rain", "wet")
    assert repr(network) == "<BayesianNetwork: 2 nodes, 1 edges>"
    dot = 'digraph {\n    "rain";\n    "wet";\n    "rain" -> "wet";\n}'
    assert network.to_dot() == dot


# -- classifiers -------------------------------------------------------------------------------

MODELS: dict[str, Any] = {
    "naive Bayes": fb.NaiveBayes,
    "naive Bayes, averaged": lambda **told: fb.NaiveBayes(feature_averaging=True, **told),
    "SPODE": lambda **told: fb.SPODE(super_parent="b", **told),
    "TAN": fb.TAN,
    "TAN, pruned": lambda **told: fb.TAN(prune="bic", **told),
    "KDB": lambda **told: fb.KDB(3, **told),
    "KDB, selected": lambda **told: fb.KDB(2, select="leave_one_out", **told),
}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def rows_of(seed: int, holes: float = 0.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    n = 60
    a, b = rng.integers(0, 3, (2, n))
    columns = {
        "a": pa.array(a.astype(str), mask=rng.random(n) < holes),
        "b": pa.array(b % 2 == 0, mask=rng.random(n) < holes),
        "class": pa.array((a + b) % 3, mask=rng.random(n) < holes).cast(pa.int8()),
        "void": pa.nulls(n),
        "y": np.array(["p", "q", "r"])[(a * b + (rng.random(n) < 0.2)) % 3],
    }
    return pa.table(columns)


@models
@given(
    seed=st.integers(0, 2**32),
    holes=st.sampled_from([0.0, 0.2]),
    alpha=st.sampled_from([0.5, 1.0]),
    missing=st.sampled_from(["marginalize", "category"]),
)
def test_network__says_what_the_classifier_says(
    make: Any, seed: int, holes: float, alpha: float, missing: str
) -> None:
    data = rows_of(seed, holes)
    model = make(alpha=alpha, missing=missing, categorical=["class"]).fit(data, "y")
    network = model.to_network()
    assert network.nodes[0] == "y"
    assert network.states["y"] == ("p", "q", "r")
    # Where missing is a value, a column of nothing else has that one.
    assert ("void" in network.nodes) <= (missing == "category")
    features = list(network.nodes[1:])
    above = getattr(model, "parents_", dict.fromkeys(features, ()))
    for node in features:
        up = above[node]
        assert network.parents[node] == ("y", *([up] if isinstance(up, str) else up or ()))
    rows = list(itertools.product(*(network.states[node] for node in features)))
    cells = {name: [row[i] for row in rows] for i, name in enumerate(features)}
    rest = {name: [None] * len(rows) for name in ("a", "b", "class", "void") if name not in cells}
    X = pa.table({**cells, **rest}).cast(data.drop("y").select([*cells, *rest]).schema)
    expected = model.log_joint(X)
    for c, label in enumerate(model.classes_):
        np.testing.assert_allclose(
            network.log_joint({**cells, "y": label}), expected[:, c], rtol=1e-12
        )
    total = sum(np.exp(network.log_joint({**cells, "y": c})).sum() for c in network.states["y"])
    assert total == pytest.approx(1, abs=1e-12)


@models
def test_dot__shows_every_edge(make: Any) -> None:
    model = make(categorical=["class"]).fit(rows_of(1), "y")
    network, dot = model.to_network(), model.to_dot()
    for node, above in network.parents.items():
        for parent in above:
            assert f'"{parent}" -> "{node}";' in dot
    assert '"y" [shape=box];' in dot


def test_bins__are_states_by_their_bounds() -> None:
    data = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "y": ["p", "p", "q", "q"]})
    network = fb.TAN(discretize={"x": [1.5]}).fit(data, "y").to_network()
    assert network.states["x"] == ("(-inf, 1.5]", "(1.5, inf)")
    assert np.exp(network.log_joint({"x": "(1.5, inf)", "y": "q"})[0]) == pytest.approx(0.375)


def test_normal_densities__are_no_tables() -> None:
    data = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "y": ["p", "p", "q", "q"]})
    model = fb.NaiveBayes().fit(data, "y")
    assert '"y" -> "x";' in model.to_dot()
    with pytest.raises(SchemaError, match="column 'x' has a density"):
        model.to_network()


def test_class_called_like_a_feature__has_a_name_of_its_own() -> None:
    X, y = pa.table({"class": ["u", "v", "u"]}), ["p", "q", "q"]
    network = fb.NaiveBayes().fit(X, y).to_network()
    assert len(network.nodes) == 2
    assert len({*network.nodes}) == 2
