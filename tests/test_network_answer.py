"""Networks as numbers, and what a query answers."""

from __future__ import annotations

import numpy as np
import pytest

from fastbayes.networks.answer import Answer, as_column
from fastbayes.networks.coded import Coded

JOINT = np.array([[0.1, 0.2, 0.0], [0.3, 0.15, 0.25]])


def answer(**more: object) -> Answer:
    return Answer(("a", "b"), (("x", "y"), (1, 2, 3)), JOINT, **more)  # type: ignore[arg-type]


def test_probability__of_all_targets_or_of_some() -> None:
    assert answer().probability({"b": 3, "a": "y"}) == 0.25
    assert answer().probability({"b": 1}) == pytest.approx(0.4)
    assert answer().probability({}) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="'c' is not among the targets"):
        answer().probability({"c": 1})
    with pytest.raises(ValueError, match=r"node 'b': 4 is none of its states \[1, 2, 3\]"):
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
    assert repr(told) == "<Answer: P(a, b | evidence), 6 states, gibbs>"


def test_table__of_a_node_called_probability() -> None:
    table = Answer(("probability",), ((0, 1),), np.array([0.5, 0.5])).table
    assert table.column_names == ["probability", "probability_"]


def test_text__stops_after_some_rows() -> None:
    wide = Answer(("a",), (tuple(range(1000)),), np.full(1000, 1e-3))
    assert str(wide).endswith("... and 980 more")


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
