"""Networks whose graph comes from data, or from an order of the nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import fastbayes as fb
from fastbayes.core.errors import FastBayesWarning
from fastbayes.networks.network import BayesianNetwork
from tests.networks_made import asia, burglary


@pytest.mark.parametrize(("order", "size"), [("BEAJM", 10), ("MJABE", 13), ("MJEBA", 31)])
def test_order__sets_how_many_parameters_there_are(order: str, size: int) -> None:
    network = BayesianNetwork.from_order(order, burglary())
    assert network.n_parameters() == size
    assert network.nodes == tuple(order)
    # The order changes the graph, not what it can say.
    rows = burglary().sample(2000, seed=1)
    assert network.fit(rows).states["B"] == ("yes", "no")


def test_order__of_a_network_keeps_its_bins(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=300)
    data = {"x": x, "y": np.where(x > 0, "hi", "lo")}
    network = BayesianNetwork.learn(data, discretize="quantile")
    graph = BayesianNetwork.from_order(["y", "x"], network)
    graph.save(tmp_path / "graph.fb")
    assert graph.score(data) == pytest.approx(network.score(data), rel=1e-12)
    assert graph.fit(data).states == network.states
    assert fb.load(tmp_path / "graph.fb").fit(data) == graph


def test_order__of_data_is_k2() -> None:
    rows = asia().sample(20_000, seed=2)
    network = BayesianNetwork.from_order(asia().order, rows, max_parents=2)
    assert network.search_.score == pytest.approx(network.score(rows))
    found = {*BayesianNetwork.from_order(asia().order, rows, forbidden=[("lung", "either")]).edges}
    assert ("lung", "either") not in found
    assert ("lung", "either") in network.edges
    with pytest.raises(ValueError, match="alpha: only data can be scored"):
        BayesianNetwork.from_order("BEAJM", burglary(), alpha=1)
    with pytest.raises(ValueError, match="search='exact': an order is searched by K2"):
        BayesianNetwork.from_order(asia().order, rows, search="exact")


def test_learned__is_what_fitting_its_graph_gives() -> None:
    rows = asia().sample(5000, seed=3)
    network = BayesianNetwork.learn(rows, alpha=0.5, restarts=1)
    again = BayesianNetwork.from_edges(network.edges, nodes=network.nodes).fit(rows, alpha=0.5)
    assert again == network
    assert network.score(rows) == pytest.approx(network.search_.score, rel=1e-12)
    tree = BayesianNetwork.learn(rows, search="chow_liu", prior="bdeu", ess=2)
    assert len(tree.edges) <= 7
    with pytest.raises(ValueError, match="alpha=-1"):
        BayesianNetwork.learn(rows, alpha=-1)


def test_learned__with_missing_values() -> None:
    rows = asia().sample(500, seed=4)
    random = np.random.default_rng(0)
    holes = pa.table(
        {n: pa.array(rows[n].to_pylist(), mask=random.random(500) < 0.1) for n in rows.column_names}
    )
    network = BayesianNetwork.learn(holes, missing="category", search="k2", order=asia().nodes)
    assert network.states["tub"][-1] is None
    with pytest.warns(FastBayesWarning, match=r"289 of 500 rows have missing values"):
        network = BayesianNetwork.learn(holes)
    assert network.search_.left_out == 289
    # The tables count all rows, in those families in which they have no missing value.
    assert network == BayesianNetwork.from_edges(network.edges, nodes=network.nodes).fit(holes)


def test_learning_test__is_found(shared_data: Path) -> None:
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=False)
    path = shared_data / "tables" / "bn_learning-test.csv"
    data = pyarrow.csv.read_csv(path, convert_options=options)
    network = BayesianNetwork.learn(data)
    assert network.score(data) == pytest.approx(24006.73423249815, rel=1e-12)
    assert {frozenset(edge) for edge in network.edges} == {
        frozenset(edge) for edge in ["AB", "AD", "CD", "BE", "FE"]
    }
