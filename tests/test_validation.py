"""Figures of an evaluation: scikit-learn's, and the same however the rows are cut into batches."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring import evaluate_probabilities
from sklearn import metrics

from fastbayes.core.errors import DataError
from fastbayes.evaluation import roc_auc
from fastbayes.evaluation.validation import Evaluation, Evaluator

FIGURES = ["n", "accuracy", "log_loss", "clipped", "brier", "auc", "auc_error"]
FIGURES += ["calibration_error", "expected_loss", "bayes_risk"]


@st.composite
def samples(draw: Any) -> tuple[Any, Any, Any]:
    """Return (proba, y, weight): few distinct probabilities, so that scores tie."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_classes, n_rows = draw(st.integers(2, 4)), draw(st.integers(1, 40))
    grid = rng.multinomial(draw(st.sampled_from([2, 7, 1000])), [1 / n_classes] * n_classes, n_rows)
    proba = grid / grid.sum(axis=1, keepdims=True)
    weight = rng.integers(0, 4, n_rows) if draw(st.booleans()) else None
    if weight is not None:
        weight[0] = 1
    return proba, rng.integers(0, n_classes, n_rows), weight


def by_sklearn(proba: Any, y: Any, weight: Any) -> dict[str, Any]:
    n_classes = proba.shape[1]
    labels, predicted = range(n_classes), proba.argmax(axis=1)
    truth = np.eye(n_classes)[y]
    areas = []
    for c in [1] if n_classes == 2 else labels:
        here = truth[:, c] if weight is None else truth[weight > 0, c]
        if 0 < here.sum() < len(here):
            areas.append(metrics.roc_auc_score(truth[:, c], proba[:, c], sample_weight=weight))
    clipped = np.maximum(proba[np.arange(len(y)), y], 1e-15)
    return {
        "accuracy": metrics.accuracy_score(y, predicted, sample_weight=weight),
        "log_loss": np.average(-np.log(clipped), weights=weight),
        "brier": metrics.brier_score_loss(
            y, proba, labels=list(labels), sample_weight=weight, scale_by_half=False
        ),
        "auc": np.mean(areas) if areas else math.nan,
        "confusion": metrics.confusion_matrix(y, predicted, labels=labels, sample_weight=weight),
    }


def assert_equal(one: Evaluation, other: Evaluation, rel: float = 1e-12) -> None:
    for name in FIGURES:
        values = getattr(one, name), getattr(other, name)
        assert values[0] == pytest.approx(values[1], rel=rel, abs=1e-14, nan_ok=True), name
    assert (one.confusion == other.confusion).all()
    for name in ("n", "confidence", "accuracy"):
        a, b = getattr(one.calibration, name), getattr(other.calibration, name)
        np.testing.assert_allclose(a, b, rtol=rel)


@given(samples())
@pytest.mark.filterwarnings("ignore:y_pred contains classes:UserWarning")
def test_figures_equal_sklearn(sample: Any) -> None:
    proba, y, weight = sample
    found = evaluate_probabilities(proba, y, range(proba.shape[1]), weight=weight)
    for name, value in by_sklearn(*sample).items():
        if name == "confusion":
            assert (found.confusion == value).all()
        else:
            assert getattr(found, name) == pytest.approx(value, abs=1e-12, nan_ok=True), name
    assert found.auc_method == "exact"
    assert found.auc_error == 0


def test_log_loss_equals_sklearn() -> None:
    rng = np.random.default_rng(1)
    proba, y = rng.dirichlet([1, 1, 1], 500), rng.integers(0, 3, 500)
    found = evaluate_probabilities(proba, y, ["a", "b", "c"]).log_loss
    assert found == pytest.approx(metrics.log_loss(y, proba), rel=1e-12)


@given(samples(), st.data())
def test_batches_merge_to_the_whole(sample: Any, data: Any) -> None:
    proba, y, weight = sample
    classes = list(range(proba.shape[1]))
    loss = np.arange(proba.shape[1] * 3).reshape(3, -1) % 5
    whole = evaluate_probabilities(proba, y, classes, loss=loss, weight=weight)
    parts = data.draw(st.lists(st.integers(0, 2), min_size=len(y), max_size=len(y)))
    evaluators = [Evaluator(classes, loss=loss) for _ in range(3)]
    for row, part in enumerate(parts):
        w = None if weight is None else weight[row : row + 1]
        evaluators[part].update(proba[row : row + 1], y[row : row + 1], w)
    for other in evaluators[1:]:
        evaluators[0].merge(other)
    assert_equal(evaluators[0].result(), whole)


@given(samples())
def test_weight_is_so_many_rows(sample: Any) -> None:
    proba, y, weight = sample
    weight = np.arange(len(y)) % 3 + 1 if weight is None else weight
    classes = range(proba.shape[1])
    weighted = evaluate_probabilities(proba, y, classes, weight=weight)
    rows = np.repeat(np.arange(len(y)), weight)
    repeated = evaluate_probabilities(proba[rows], y[rows], classes)
    assert_equal(weighted, repeated)
    assert isinstance(repeated.n, int)
    assert repeated.confusion.dtype == repeated.calibration.n.dtype == np.int64


# --- AUC beyond the rows that are kept --------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_auc__histogram_holds_its_bound(monkeypatch: pytest.MonkeyPatch, n_classes: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 20_000)
    logits = 60 * (rng.normal(size=(len(y), n_classes)) + 0.3 * np.eye(n_classes)[y])
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    weight = rng.exponential(size=len(y)) ** 3
    exact = evaluate_probabilities(proba, y, range(n_classes), weight=weight)
    monkeypatch.setattr(roc_auc, "EXACT_SCORES", 5_000)
    found = evaluate_probabilities(proba, y, range(n_classes), weight=weight)
    assert (exact.auc_method, found.auc_method) == ("exact", "histogram")
    assert abs(found.auc - exact.auc) <= found.auc_error < 1e-3
    assert found.auc != exact.auc
    assert "by histogram" in str(found)


def test_auc__histogram_bound_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roc_auc, "EXACT_SCORES", 1)
    score = np.array([0.3, 0.3 + 1e-9, 0.0, 0.0, 1.0, 1.0])  # ties at 0 and 1 are no error
    found = evaluate_probabilities(np.c_[1 - score, score], [0, 1] * 3, ["a", "b"])
    assert found.auc == pytest.approx((1 + 0.5 + 1 + 0.5 + 0 + 1 + 0 + 0 + 0.5) / 9)
    assert found.auc_error == pytest.approx(0.5 / 9)


def test_auc__histogram_merges_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roc_auc, "EXACT_SCORES", 50)
    rng = np.random.default_rng(0)
    proba, y = rng.dirichlet([0.1, 0.1], 200), rng.integers(0, 2, 200)
    whole = evaluate_probabilities(proba, y, ["a", "b"])
    for cuts in ([30], [60], [10, 30, 190], list(range(1, 200))):
        bounds = [0, *cuts, 200]
        merged = Evaluator(["a", "b"])
        for i in np.argsort(np.sin(bounds[1:])).tolist():
            part = Evaluator(["a", "b"])
            part.update(proba[bounds[i] : bounds[i + 1]], y[bounds[i] : bounds[i + 1]])
            merged.merge(part)
        assert merged.result().auc_method == "histogram"
        assert_equal(merged.result(), whole)


@pytest.mark.parametrize("n_classes", [2, 10, 100, 1000, 100_000])
def test_histogram__bins_rise_with_the_score_and_stay_small(n_classes: int) -> None:
    made = roc_auc.RocAuc(n_classes)
    scores = np.array(
        [
            -0.0,
            0.0,
            5e-324,
            1e-300,
            1e-20,
            0.1,
            0.25,
            0.5,
            0.5 + 2**-53,
            0.75,
            1 - 2**-53,
            1,
            1 + 1e-9,
        ]
    )
    bins = made._bin(scores)
    assert (np.diff(bins) >= 0).all()
    assert bins[0] == bins[1] == 0 < bins[2]
    assert bins[-1] == bins[-2] > bins[-3]
    if n_classes <= 1000:
        assert len(made._columns) * 2 * 8 * (bins.max() + 1) <= roc_auc.HISTOGRAM_BYTES
    dense = made._bin(np.sort(np.random.default_rng(0).random(10_000)))
    assert (np.diff(dense) >= 0).all()


# --- by hand ----------------------------------------------------------------------------------


def test_by_hand() -> None:
    proba = [[0.75, 0.25], [0.75, 0.25], [0.0, 1.0], [0.125, 0.875]]
    found = evaluate_probabilities(proba, [0, 1, 0, 1], ["no", "yes"])
    assert found.n == 4
    assert found.accuracy == 0.5
    assert found.clipped == 1
    logs = math.log(0.75) + math.log(0.25) + math.log(1e-15) + math.log(0.875)
    assert found.log_loss == pytest.approx(-logs / 4)
    assert found.brier == pytest.approx((2 * 0.25**2 + 2 * 0.75**2 + 2 + 2 * 0.125**2) / 4)
    assert found.auc == (0.5 + 0 + 1 + 0) / 4
    assert found.confusion.tolist() == [[1, 1], [1, 1]]
    assert found.calibration.n.tolist() == [0] * 7 + [2, 1, 1]
    assert found.calibration.confidence.tolist()[7:] == [0.75, 0.875, 1.0]
    assert found.calibration.accuracy.tolist()[7:] == [0.5, 1.0, 0.0]
    assert np.isnan(found.calibration.accuracy[:7]).all()
    assert found.calibration_error == (2 * 0.25 + 0.125 + 1) / 4
    assert found.expected_loss == 0.5
    assert found.bayes_risk == (0.25 + 0.25 + 0 + 0.125) / 4


def test_calibration__bounds_belong_to_the_bin_above() -> None:
    proba = [[k / 10, 1 - k / 10] for k in (5, 6, 7, 8, 9, 10)]
    found = evaluate_probabilities(proba, [0] * 6, ["a", "b"]).calibration
    assert found.n.tolist() == [0] * 5 + [1, 1, 1, 1, 2]
    assert found.lower.tolist() == [k / 10 for k in range(10)]
    assert found.upper.tolist() == [k / 10 for k in range(1, 11)]


def test_expected_loss__incurred_and_foreseen() -> None:
    loss = {"b": {"a": 1, "b": 0}, "a": {"a": 0, "b": 8}, "ask": {"a": 2, "b": 2}}
    proba = [[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]]
    found = evaluate_probabilities(proba, [0, 1, 1], ["a", "b"], loss=loss)
    assert found.expected_loss == pytest.approx((1 + 0 + 8) / 3)
    assert found.bayes_risk == pytest.approx((0.75 + 0.5 + 0) / 3)


def test_auc__one_class_only_is_undefined() -> None:
    found = evaluate_probabilities([[0.5, 0.5]], [0], ["a", "b"])
    assert math.isnan(found.auc)
    assert found.to_dict()["auc"] is None
    single = evaluate_probabilities([[1.0]], [0], ["a"])
    assert (single.accuracy, single.log_loss) == (1, 0)
    assert math.isnan(single.auc)


def test_to_dict__is_json() -> None:
    found = evaluate_probabilities([[0.5, 0.5], [1.0, 0.0]], [0, 1], np.array(["a", "b"]))
    back = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert back["classes"] == ["a", "b"]
    assert back["confusion"] == [[1, 0], [1, 0]]
    assert back["calibration"]["accuracy"][0] is None
    assert back["log_loss"] == found.log_loss


def test_str__is_a_table() -> None:
    text = str(evaluate_probabilities([[0.5, 0.5], [1.0, 0.0]], [0, 1], ["no", "maybe"]))
    assert "accuracy           0.500000" in text
    assert text.splitlines()[-3:] == [
        "          no  maybe",
        "   no      1      0",
        "maybe      1      0",
    ]


# --- faults -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proba", "y", "weight", "message"),
    [
        ([[0.5, 0.5], [0.5, np.nan]], [0, 1], None, "row 1, class 1"),
        ([[0.5, 0.5], [0.5, 0.4]], [0, 1], None, r"row 1: the probabilities sum to 0\.9"),
        ([[0.5, 0.3, 0.2]], [0], None, "3 columns of probabilities for 2"),
        ([[0.5, 0.5]], [2], None, "row 0: class code 2"),
        ([[0.5, 0.5]], [-1], None, "row 0: class code -1"),
        ([[0.5, 0.5]], [0.0], None, "class codes must be 1 integers"),
        ([[0.5, 0.5]], [0, 1], None, "class codes must be 1 integers"),
        ([[0.5, 0.5]] * 2, [0, 1], [1, -1], r"row 1: weight -1\.0"),
        ([[0.5, 0.5]] * 2, [0, 1], [np.nan, 1], "row 0: weight nan"),
        ([[0.5, 0.5]] * 2, [0, 1], [np.inf, 1], "row 0: weight inf"),
        ([[0.5, 0.5]] * 2, [0, 1], [1], "one per row"),
        ([[0.5, 0.5]] * 2, [0, 1], [0, 0], "all weights are zero"),
        (np.zeros((0, 2)), [], None, "no rows"),
    ],
)
def test_faults_are_named(proba: Any, y: Any, weight: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        evaluate_probabilities(proba, y, ["a", "b"], weight=weight)


def test_update__a_fault_adds_nothing() -> None:
    evaluator = Evaluator(["a", "b"])
    evaluator.update([[0.5, 0.5]], [0])
    with pytest.raises(DataError):
        evaluator.update([[0.5, 0.5], [2.0, 0.5]], [0, 0])
    assert evaluator.result().n == 1


def test_merge__needs_the_same_question() -> None:
    with pytest.raises(DataError, match="classes"):
        Evaluator(["a", "b"]).merge(Evaluator(["a", "c"]))
    with pytest.raises(DataError, match="losses"):
        Evaluator(["a", "b"]).merge(Evaluator(["a", "b"], loss=[[0, 2], [1, 0]]))


def test_merge__weights_stay_fractions() -> None:
    merged, other = Evaluator(["a", "b"]), Evaluator(["a", "b"])
    merged.update([[0.5, 0.5]], [0])
    other.update([[0.5, 0.5]], [1], [0.25])
    merged.merge(other)
    assert merged.result().confusion.tolist() == [[1, 0], [0.25, 0]]


def test_merge__with_itself_doubles() -> None:
    evaluator = Evaluator(["a", "b"])
    evaluator.update([[0.5, 0.5], [0.25, 0.75]], [0, 1])
    before = evaluator.result()
    evaluator.merge(evaluator)
    after = evaluator.result()
    assert (before.n, after.n) == (2, 4)
    assert before.auc == after.auc == 1
