"""Networks as numbers, and what a query answers."""

from __future__ import annotations

import numpy as np
import pytest

from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.graph.query_result import QueryResult, QueryResults, as_column

JOINT = np.array([[0.1, 0.2, 0.0], [0.3, 0.15, 0.25]])


def answer(**more: object) -> QueryResult:
    return QueryResult(("a", "b"), (("x", "y"), (1, 2, 3)), JOINT, **more)  # type: ignore[arg-type]


def test_probability__of_all_targets_or_of_some() -> None:
    assert answer().probability({"b": 3, "a": "y"}) == 0.25
    assert answer().probability({"b": 1}) == pytest.approx(0.4)
    assert answer().probability({}) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="'c' is not among the targets"):
        answer().probability({"c": 1})
    with pytest.raises(ValueError, match=r"node 'b': 4 is not one of its states \[1, 2, 3\]"):
        answer().probability({"b": 4})


def test_table__has_a_row_for_each_joint_state() -> None:
    table = answer().table
    assert table.column_names == ["a", "b", "probability"]
    assert table["a"].to_pylist() == ["x", "x", "x", "y", "y", "y"]
    assert table["b"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert table["probability"].to_pylist() == JOINT.ravel().tolist()
    told = answer(method="gibbs", mcse=JOINT / 10, ess=JOINT * 100, r_hat=JOINT + 1)
    assert told.table.column_names == ["a", "b", "probability", "mcse", "ess", "r_hat"]
    assert told.table["r_hat"].to_pylist() == (JOINT + 1).ravel().tolist()
    assert "r_hat" in str(told)
    assert repr(told) == "<QueryResult: P(a, b | evidence), 6 states, gibbs>"


def test_table__of_a_node_called_probability() -> None:
    table = QueryResult(("probability",), ((0, 1),), np.array([0.5, 0.5])).table
    assert table.column_names == ["probability", "probability_"]


def test_text__stops_after_some_rows() -> None:
    wide = QueryResult(("a",), (tuple(range(1000)),), np.full(1000, 1e-3))
    assert str(wide).endswith("... and 980 more")


def marginals(**more: object) -> QueryResults:
    a = QueryResult(("a",), (("x", "y"),), np.array([0.25, 0.75]), **more)  # type: ignore[arg-type]
    b = QueryResult(("b",), (("z", None),), np.array([0.5, 0.5]), **more)  # type: ignore[arg-type]
    return QueryResults([a, b])


def test_answers__are_a_mapping_with_a_table() -> None:
    answers = marginals()
    assert [*answers] == ["a", "b"]
    assert answers["b"].probability({"b": "z"}) == 0.5
    with pytest.raises(KeyError):
        answers["c"]
    assert answers.table.to_pydict() == {
        "node": ["a", "a", "b", "b"],
        "state": ["x", "y", "z", None],
        "probability": [0.25, 0.75, 0.5, 0.5],
    }
    told = marginals(method="gibbs", mcse=np.ones(2), ess=np.array([9, 8]), r_hat=np.ones(2))
    assert told.table.column_names == ["node", "state", "probability", "mcse", "ess", "r_hat"]
    assert told.table["ess"].to_pylist() == [9, 8, 9, 8]
    assert str(told).splitlines()[1] == "a     x         0.250000     1    9  1.000"
    assert repr(told) == "<QueryResults: 2 nodes, gibbs>"


def test_answers__states_of_several_types_and_no_node_at_all() -> None:
    numbers = QueryResult(("n",), ((1, 2),), np.array([0.5, 0.5]))
    assert QueryResults([numbers]).table["state"].to_pylist() == [1, 2]
    mixed = QueryResults([numbers, marginals()["b"]])
    assert mixed.table["state"].to_pylist() == ["1", "2", "z", None]
    none = QueryResults([], -1.5)
    assert none.table.to_pydict() == {"node": [], "state": [], "probability": []}
    assert str(none) == "node  state  probability"
    assert none.log_evidence == -1.5


def test_answers__text_stops_after_some_rows_or_does_not() -> None:
    wide = QueryResults([QueryResult(("a",), (tuple(range(1000)),), np.full(1000, 1e-3))])
    assert str(wide).endswith("... and 980 more")
    assert len(wide.text().splitlines()) == 1001


def test_states_of_several_types__are_text() -> None:
    assert as_column(["a", 1, None]).to_pylist() == ["a", "1", None]
    assert as_column([True, None]).to_pylist() == [True, None]


def test_coded__knows_children_and_order() -> None:
    sizes, one = np.array([2, 2, 1]), np.ones((2, 1))
    tables = [np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([0.5, 0.5]), one]
    coded = Coded(("a", "b", "c"), sizes, [(1,), (), (0,)], tables)
    assert len(coded) == 3
    assert coded.children == [(2,), (0,), ()]
    assert coded.order == [1, 0, 2]
