"""SEMANTICS §7 against brute force: rows of a loss are decisions, columns the truth."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastbayes.core.decisions import bayes_risk, conditional_risk, decide, loss_matrix, minimum_risk
from fastbayes.core.errors import DataError
from fastbayes.core.one_thread import ONE_THREAD

# --- numbers ----------------------------------------------------------------------------------


@st.composite
def problems(draw: Any) -> tuple[list[list[Fraction]], list[list[int]], Fraction | None]:
    """Return exact (posterior, loss, reject): dyadic probabilities, so that floats are exact."""
    n_classes = draw(st.integers(1, 4))
    n_decisions = draw(st.integers(1, 5))
    proba = []
    for _ in range(draw(st.integers(0, 6))):
        cuts = sorted(
            draw(st.lists(st.integers(0, 64), min_size=n_classes - 1, max_size=n_classes - 1))
        )
        proba.append([Fraction(b - a, 64) for a, b in zip([0, *cuts], [*cuts, 64], strict=True)])
    row = st.lists(st.integers(-8, 8), min_size=n_classes, max_size=n_classes)
    loss = draw(st.lists(row, min_size=n_decisions, max_size=n_decisions))
    reject = draw(st.none() | st.integers(-16, 16).map(lambda n: Fraction(n, 4)))
    return proba, loss, reject


def brute(
    posterior: list[Fraction], loss: list[list[int]], reject: Fraction | None
) -> tuple[int, Fraction, int]:
    """Return (decision, its risk, runner-up) in exact arithmetic, -1 = reject or none."""
    risks = [sum(c * p for c, p in zip(row, posterior, strict=True)) for row in loss]
    best = min(range(len(loss)), key=lambda i: (risks[i], i))
    others = [i for i in range(len(loss)) if i != best]
    second = min(others, key=lambda i: (risks[i], i)) if others else -1
    if reject is not None and reject < risks[best]:
        return -1, reject, best
    if reject is not None and second != -1 and reject < risks[second]:
        second = -1
    return best, risks[best], second


@given(problems())
def test_decisions_against_brute_force(problem: Any) -> None:
    posterior, loss, cost = problem
    proba = np.array(posterior, float).reshape(-1, len(loss[0]))
    reject = None if cost is None else float(cost)
    expected = [brute(row, loss, cost) for row in posterior]
    index = [decision for decision, _, _ in expected]
    risks = [float(risk) for _, risk, _ in expected]

    assert minimum_risk(proba, loss, reject).tolist() == index
    assert conditional_risk(proba, loss).shape == (len(proba), len(loss))
    if len(proba):
        assert bayes_risk(proba, loss, reject) == pytest.approx(float(np.mean(risks)), abs=1e-14)

    labels = [f"do {i}" for i in range(len(loss))]
    named = {label: dict(enumerate(row)) for label, row in zip(labels, loss, strict=True)}
    made = decide(proba, range(len(loss[0])), named, reject)
    assert made.index.tolist() == index
    assert made.expected_loss.tolist() == risks
    assert made.decision.tolist() == [labels[i] if i >= 0 else None for i in index]
    assert made.runner_up.tolist() == [labels[i] if i >= 0 else None for _, _, i in expected]


def test_products_of_many_rows__are_small_enough_for_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    multiplied, matmul = [], np.matmul

    def counted(a: Any, b: Any, **options: Any) -> Any:
        multiplied.append(a.size * b.shape[1])
        return matmul(a, b, **options)

    proba = np.random.default_rng(0).dirichlet([1, 2, 3], 100_000)
    loss = np.array([[0.0, 1, 2], [1, 0, 2], [3, 2, 0]])
    monkeypatch.setattr(np, "matmul", counted)
    found = conditional_risk(proba, loss)
    np.testing.assert_allclose(found, np.einsum("nc,dc->nd", proba, loss), rtol=1e-14)
    assert 0 < max(multiplied) <= ONE_THREAD
    assert sum(multiplied) == proba.size * len(loss)


def test_conditional_risk__rows_are_decisions() -> None:
    assert conditional_risk([[0.25, 0.75]], [[0, 8], [1, 0], [4, 4]]).tolist() == [[6, 0.25, 4]]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9), st.integers(0, 8))
def test_zero_one_loss_is_argmax__also_when_one_bit_apart(values: list[float], rival: int) -> None:
    row = np.array(values)
    row[rival % len(row)] = np.nextafter(row.max(), 0)
    matrix = 1 - np.eye(len(row))
    for loss in (None, matrix, 4 * matrix):
        assert minimum_risk([row], loss).tolist() == [int(np.argmax(row))]
    assert decide([row], np.arange(len(row)))[0] == np.argmax(row)


def test_zero_one_loss__risk_is_what_is_left() -> None:
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(4), 100)
    assert bayes_risk(proba) == pytest.approx(np.mean(1 - proba.max(axis=1)), abs=1e-15)


def test_reject__only_strictly_below() -> None:
    proba = [[0.75, 0.25]]
    assert minimum_risk(proba, reject=0.25).tolist() == [0]
    assert minimum_risk(proba, reject=np.nextafter(0.25, 0)).tolist() == [-1]


def test_no_rows() -> None:
    proba = np.zeros((0, 3))
    assert minimum_risk(proba).shape == (0,)
    assert conditional_risk(proba, np.eye(3)).shape == (0, 3)
    assert len(decide(proba, ["a", "b", "c"], reject=0.1)) == 0
    with pytest.raises(DataError, match="no rows"):
        bayes_risk(proba)


# --- the result -------------------------------------------------------------------------------


def test_decisions_compare_like_labels() -> None:
    made = decide([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], ["a", "b"])
    labels = np.array(["a", "b", "a"])
    assert (made == labels).tolist() == [True] * 3
    assert (labels == made).tolist() == [True] * 3
    assert (made != "a").tolist() == [False, True, False]
    assert (made == made[[0, 0, 0]]).tolist() == [True, False, True]
    assert np.asarray(made).dtype == labels.dtype
    assert list(made) == labels.tolist()
    assert len(made) == 3
    assert made[1] == "b"
    assert isinstance(made[1], str)
    assert made[1:].expected_loss.tolist() == pytest.approx([0.2, 0.5])
    assert made[np.array([False, True, False])].runner_up.tolist() == ["a"]


def test_decisions__rejected_is_none() -> None:
    made = decide([[0.9, 0.1], [0.5, 0.5]], [False, True], reject=0.3)
    assert made.decision.dtype == object
    assert made.decision.tolist() == [False, None]
    assert made.expected_loss.tolist() == pytest.approx([0.1, 0.3])
    assert made.runner_up.tolist() == [None, False]
    assert (made == [False, None]).all()


def test_decisions__dtype_does_not_depend_on_the_rows() -> None:
    for row in ([0.9, 0.1], [0.5, 0.5]):
        assert decide([row], [1, 2], reject=0.3).decision.dtype == object
        assert decide([row], [1, 2]).decision.dtype == np.array([1, 2]).dtype


# --- labelled losses --------------------------------------------------------------------------

CLASSES = ["bad", "good", "ugly"]
MATRIX = [[0, 1, 2], [3, 0, 4], [5, 6, 0]]


@st.composite
def shuffled(draw: Any) -> tuple[list[int], list[int]]:
    return draw(st.permutations(range(3))), draw(st.permutations(range(3)))


@given(shuffled())
def test_loss_matrix__any_order_of_any_labelled_form(order: Any) -> None:
    rows, columns = order
    names = [CLASSES[r] for r in rows]
    dicts = {CLASSES[r]: {CLASSES[c]: MATRIX[r][c] for c in columns} for r in rows}
    frame = pd.DataFrame(dicts).T
    table = {"decision": names} | {CLASSES[c]: [MATRIX[r][c] for r in rows] for c in columns}
    for loss in (dicts, frame, pa.table(table), pl.DataFrame(table)):
        matrix, decisions = loss_matrix(loss, CLASSES)
        assert matrix.tolist() == MATRIX
        assert decisions.tolist() == CLASSES


@pytest.mark.parametrize(
    "loss", [MATRIX, np.array(MATRIX), np.array(MATRIX, np.float32).T.copy().T]
)
def test_loss_matrix__without_labels(loss: Any) -> None:
    matrix, decisions = loss_matrix(loss, CLASSES)
    assert matrix.dtype == np.float64
    assert matrix.tolist() == MATRIX
    assert decisions.tolist() == CLASSES


def test_loss_matrix__is_a_copy() -> None:
    loss = np.eye(2)
    loss_matrix(loss, [0, 1])[0][:] = 7
    assert loss.tolist() == np.eye(2).tolist()


def test_loss_matrix__text_matches_other_types() -> None:
    loss = {"1": {"0": 5, "1": 0}, "0": {"0": 0, "1": 1}}
    for classes in ([0, 1], np.array([0, 1], np.int8), np.array([0, 1], object)):
        matrix, decisions = loss_matrix(loss, classes)
        assert matrix.tolist() == [[0, 1], [5, 0]]
        assert decisions.tolist() == [0, 1]
    json = {"true": {"true": 0, "false": 1}, "false": {"true": 2, "false": 0}}
    assert loss_matrix(json, [False, True])[0].tolist() == [[0, 2], [1, 0]]


def test_loss_matrix__other_decisions() -> None:
    loss = {"ask": {"a": 2, "b": 2}, "b": {"a": 9, "b": 0}, "a": {"a": 0, "b": 1}}
    matrix, decisions = loss_matrix(loss, ["a", "b"])
    assert decisions.tolist() == ["a", "b", "ask"]
    assert matrix.tolist() == [[0, 1], [9, 0], [2, 2]]
    matrix, decisions = loss_matrix({"treat": {0: 1, 1: 2}, "wait": {0: 0, 1: 9}}, [0, 1])
    assert decisions.tolist() == ["treat", "wait"]
    assert loss_matrix([[1, 2], [3, 4], [5, 6]], ["a", "b"])[1].tolist() == [0, 1, 2]
    mixed = loss_matrix({0: {0: 0, 1: 1}, 1: {0: 1, 1: 0}, "ask": {0: 1, 1: 1}}, [0, 1])[1]
    assert mixed.tolist() == [0, 1, "ask"]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"a": {"a": 0, "b": 1}, "b": {"a": 1}}, "decision 'b' under truth 'b'"),
        ({"a": {"a": 0}, "b": {"a": 1}}, "no cost for truth 'b'"),
        ({"a": {"a": 0, "b": 1, "c": 1}, "b": {"a": 1, "b": 0, "c": 1}}, "truth 'c', which is no"),
        ({"a": {"a": 0, "b": 1}, "bb": {"a": 1, "b": 0}}, "no row for decision b"),
        ({"a": {"a": 0, "b": None}, "b": {"a": 1, "b": 0}}, "'a' under truth 'b' is None"),
        ({"a": {"a": 0, "b": "x"}, "b": {"a": 1, "b": 0}}, "'a' under truth 'b' is 'x'"),
        ({"a": {"a": 0, "b": float("nan")}, "b": {"a": 1, "b": 0}}, "'a' under truth 'b' is nan"),
        ({"a": {"a": 0, "b": float("inf")}, "b": {"a": 1, "b": 0}}, "'a' under truth 'b' is inf"),
        ({"a": 1, "b": 2}, "decision 'a' must map"),
        ({}, "no cost for truth 'a'"),
        (pa.table({"decision": [], "a": [], "b": []}), "no decisions"),
        (pd.DataFrame([[0, 1], [1, 0]], ["a", "a"], ["a", "b"]), "decision 'a' twice"),
        (pd.DataFrame([[0, 1], [1, 0]], ["x", "x"], ["a", "b"]), "decision 'x' twice"),
        (pd.DataFrame([[0, 1], [1, 0]], ["a", "b"], ["a", "a"]), "truth 'a' twice"),
        (pa.table({}), "empty table"),
        ([[0, 1, 2]], "shape"),
        ([], "shape"),
        (np.zeros((0, 2)), "shape"),
        ([[0, 1], [1]], "matrix of numbers"),
        ([["x", 1], [1, 0]], "matrix of numbers"),
        ([[0, np.nan], [1, 0]], "decision 0 under truth 1 is nan"),
        ([[0, 1], [-np.inf, 0]], "decision 1 under truth 0 is -inf"),
        (np.array([[0, 5j], [1, 0]]), "^the costs are complex: a cost must be a real number"),
        ({"a": {"a": 0, "b": np.complex64(1)}, "b": {"a": 1, "b": 0}}, "'a' under truth 'b' is"),
        (np.ma.array([[0, 9.0], [1, 0]], mask=[[0, 1], [0, 0]]), "0 under truth 1 is masked"),
    ],
)
def test_loss_matrix__faults_are_named(loss: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        loss_matrix(loss, ["a", "b"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("proba", "message"),
    [
        ([[0.5, 0.5], [np.nan, 0.5]], "row 1, class 0: nan"),
        ([[0.5, -0.5]], "row 0, class 1: -0.5"),
        ([[0.5, 1.5]], "row 0, class 1: 1.5"),
        ([[-0.7, -0.7]], "pass what predict_proba returns"),
        ([0.5, 0.5], r"shape \(2,\)"),
        (np.zeros((2, 0)), r"shape \(2, 0\)"),
        ([["a", "b"]], "matrix of numbers"),
        ([[0.2, 0.3, 0.5]], "2|3"),
    ],
)
def test_faults_of_probabilities_are_named(proba: Any, message: str) -> None:
    loss = np.eye(2)
    for call in (
        lambda: conditional_risk(proba, loss),
        lambda: minimum_risk(proba, loss),
        lambda: bayes_risk(proba, loss),
        lambda: decide(proba, ["a", "b"], loss),
        lambda: decide(proba, ["a", "b"]),
    ):
        with pytest.raises(DataError, match=message):
            call()


def test_labels_need_classes() -> None:
    for loss in ({"a": {"a": 0}}, pd.DataFrame([[0]]), pa.table({"d": ["a"], "a": [0]})):
        with pytest.raises(DataError, match=r"pass a matrix .* or the labelled loss to `decide`"):
            minimum_risk([[1.0]], loss)


@pytest.mark.parametrize("reject", [np.nan, np.inf])
def test_reject_must_be_finite(reject: float) -> None:
    with pytest.raises(DataError, match="cost of rejecting"):
        minimum_risk([[1.0]], reject=reject)


def test_needs_numpy_only() -> None:
    code = (
        "import importlib.util, sys, types\n"
        "package = types.ModuleType('fastbayes'); package.__path__ = ['fastbayes']\n"
        "sys.modules['fastbayes'] = package\n"
        "import fastbayes.core.decisions\n"
        "print([m for m in ('pyarrow', 'pandas', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
