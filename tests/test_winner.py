"""The winner of `compare`: its temperature, and the log-loss to expect of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

import fastbayes as fb

MODELS: dict[str, Any] = {
    "naive": fb.NaiveBayes(),
    "tree": fb.TAN(),
    "one": fb.SPODE(super_parent="a"),
    "smooth": fb.NaiveBayes(alpha=30.0),
}


def rows(seed: int = 0, n: int = 120) -> pa.Table:
    """Return rows whose columns repeat each other, so that naive Bayes is too sure."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    a = np.where(rng.random(n) < 0.6, y, rng.integers(0, 3, n))
    columns = {name: np.where(rng.random(n) < 0.9, a, y).astype(str) for name in "abcde"}
    return pa.table({**columns, "fold": rng.integers(0, 5, n), "y": np.array([*"pqr"])[y]})


def temperature(log_p: NDArray[Any], y: NDArray[Any]) -> float:
    """Return T of least log-loss plus 1/T - 1 - ln(1/T), a row's worth at T = 1."""

    def loss(power: float) -> float:
        raised = log_p * power
        total = np.log(np.exp(raised).sum(axis=1)) - raised[np.arange(len(y)), y]
        return float(total.sum() + power - 1 - math.log(power))

    return 1 / float(minimize_scalar(loss, bounds=(1e-3, 1e3), method="bounded",
                                     options={"xatol": 1e-10}).x)  # fmt: skip


def worthwhile(p: NDArray[Any], y: NDArray[Any]) -> float:
    """Return T where it gains more than a nat on all rows, else 1."""
    t, every = temperature(np.log(p), y), np.arange(len(y))
    gain = np.log(tempered(p, t)[every, y]).sum() - np.log(p[every, y]).sum()
    return t if gain > 1 else 1.0


def tempered(p: NDArray[Any], t: float) -> NDArray[Any]:
    raised = p ** (1 / t)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def test_temperature__is_left_at_1_where_it_gains_too_little() -> None:
    found = [fb.compare(rows(seed, 40), "y", models=MODELS).best.temperature for seed in range(8)]
    assert 1.0 in found
    assert {*found} != {1.0}


@pytest.mark.parametrize("seed", range(3))
def test_temperature__is_that_of_folds_by_the_winners_of_the_others(seed: int) -> None:
    table = rows(seed)
    board = fb.compare(table, "y", models=MODELS, folds="fold")
    y = np.searchsorted(board.classes, np.array(table["y"]))
    fold, every = np.array(table["fold"]), np.arange(len(y))
    X = table.drop_columns(["fold"])
    proba = {name: fb.k_fold(model, X, "y", folds=fold).proba for name, model in MODELS.items()}
    own = {name: -np.log(p[every, y]) for name, p in proba.items()}
    chosen = np.empty((len(y), 3))
    for f in range(5):
        winner = min(own, key=lambda name, f=f: own[name][fold != f].sum())
        chosen[fold == f] = proba[winner][fold == f]
    t = worthwhile(chosen, y)
    assert board.best.temperature == pytest.approx(t, rel=1e-6)
    expected = np.empty(len(y))
    for f in range(5):
        of_others = worthwhile(chosen[fold != f], y[fold != f])
        expected[fold == f] = -np.log(tempered(chosen, of_others)[every, y])[fold == f]
    assert board.best.calibrated == pytest.approx(expected.mean(), rel=1e-7)
    # The figures are those of the model as it is, and so is what it is made of.
    assert board.best.figures.log_loss == pytest.approx(own[board.best.name].mean(), rel=1e-9)
    model = board.best.model
    raw = type(MODELS[board.best.name])(**MODELS[board.best.name].get_params())
    expected_p = tempered(raw.fit(X, "y").predict_proba(X), t)
    np.testing.assert_allclose(model.predict_proba(X), expected_p, atol=1e-7)
    np.testing.assert_allclose(model.model_.predict_proba(X), raw.predict_proba(X), atol=1e-12)
    for entry in board.entries[1:]:
        assert not isinstance(entry.model, fb.Calibrated)
        assert math.isnan(entry.temperature)
        assert math.isnan(entry.calibrated)


def test_temperature__of_leave_one_out_is_that_of_the_rows() -> None:
    table = rows().drop_columns(["fold"])
    board = fb.compare(table, "y", models=MODELS, validation="leave_one_out")
    expected = fb.Calibrated(MODELS[board.best.name], validation="leave_one_out").fit(table, "y")
    assert board.best.temperature == pytest.approx(expected.calibration_.temperature, rel=1e-6)
    model = board.best.model
    assert (model.validation_, model.fixed_) == ("leave_one_out", expected.fixed_)
    assert model.log_loss_ == pytest.approx(expected.log_loss_)
    assert board.best.calibrated >= model.log_loss_[1]  # each row by the temperature of others


@pytest.mark.parametrize(
    ("winner", "other", "validation", "told"),
    [
        ("tree", fb.NaiveBayes(alpha=1e-9), "leave_one_out", True),
        ("one", fb.TAN(alpha=1e-9), "leave_one_out", True),
        ("one", fb.NaiveBayes(alpha=1e-9), "leave_one_out", False),
        ("one", fb.TAN(alpha=1e-9), "k_fold", False),
    ],
)
def test_last_line__says_whether_winner_or_loser_knew_the_rows(
    winner: str, other: Any, validation: str, told: bool
) -> None:
    models = {winner: MODELS[winner], "other": other}
    board = fb.compare(rows().drop_columns(["fold"]), "y", models=models, validation=validation)
    assert board.best.name == winner
    (line,) = (line for line in str(board).splitlines() if "calibrated by" in line)
    said = " (structure of all rows: it may promise too much; use folds)" if told else ""
    assert line.endswith(f"{board.best.calibrated:.6f}{said}")


def test_winner__is_saved_with_its_temperature(tmp_path: Path) -> None:
    table = rows().drop_columns(["fold"])
    board = fb.compare(table, "y", memory_limit=1 << 30, threads=1)
    board.best.model.save(tmp_path / "best.fb")
    again = fb.load(tmp_path / "best.fb")
    np.testing.assert_array_equal(again.predict_proba(table), board.best.model.predict_proba(table))
    assert again.calibration_.temperature == board.best.temperature
    assert again.model.memory_limit is None  # what held for this job is no property of the model
    told = board.to_dict()["models"][0]
    assert told["temperature"] == board.table["temperature"][0].as_py() == board.best.temperature
    assert told["calibrated"] == board.best.calibrated
    assert f"temperature {board.best.temperature:.4g}, log-loss" in str(board)


@pytest.mark.parametrize("seed", range(3))
def test_winner__that_is_the_prior_or_of_arrays_has_no_temperature(seed: int) -> None:
    table = rows(seed).drop_columns(["fold"])
    y = np.random.default_rng(seed).permutation(np.array(table["y"]))
    noise = table.set_column(table.num_columns - 1, "y", pa.array(y))
    for data, models in ((noise, ["prior", "tan"]), (table, {"it": LogisticRegression()})):
        board = fb.compare(data, "y", models=models)
        if board.best.name in ("prior", "it"):
            assert math.isnan(board.best.temperature)
            assert not isinstance(board.best.model, fb.Calibrated)
            assert "temperature" not in str(board)
    assert board.best.name == "it"


def test_winner__that_uses_no_column_says_what_others_say(tmp_path: Path) -> None:
    table = rows()
    model = fb.compare(table, "y", models=["prior"]).best.model
    prior = model.predict_proba(table.select(["y"]))[0]
    explained = model.explain(table.select(["y"]))
    assert explained.contributions.shape == (len(table), 0, 3)
    assert explained.table(1)["column"].to_pylist() == ["(prior)"]
    truth = np.searchsorted(model.classes_, table["y"].to_numpy())
    found, counted = model.importance(table), model.importance()
    assert (found.columns, found.rows) == (counted.columns, counted.rows) == ((), len(table))
    assert found.log_loss == pytest.approx(-np.log(prior)[truth].mean(), rel=1e-12)
    assert str(counted) == "120 rows: the model uses no column"
    # A dict is one row, whatever it holds; so is a batch of one.
    predictor = model.predictor()
    for row in ({}, {"a": "1"}, pa.RecordBatch.from_pydict({"a": ["1"]})):
        assert np.array_equal(predictor.predict_proba(row), prior)
        assert predictor.predict(row) == model.predict(table.slice(0, 1).select(["y"]))[0]
    path = tmp_path / "p.parquet"
    fb.predict_to(model, table, path, explain=True)
    written = pyarrow.parquet.read_table(path)
    assert written["because"].null_count == written["because_nats"].null_count == len(table)


def test_calibrated__is_what_new_rows_have_where_the_winner_was_but_lucky() -> None:
    """Of many models on random labels the best looks better than it is."""
    lucky, honest = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        columns = {f"x{j}": rng.choice(list("uvw"), 1_040) for j in range(12)}
        table = pa.table({**columns, "y": rng.choice(["n", "o"], 1_040)})
        models = {name: fb.SPODE(super_parent=name) for name in columns}
        some, new = table.slice(0, 40), table.slice(40)
        best = fb.compare(some, "y", models=models).best
        lucky.append(fb.evaluate(best.model.model_, new).log_loss - best.figures.log_loss)
        honest.append(fb.evaluate(best.model, new).log_loss - best.calibrated)
    assert np.mean(lucky) > 0.03
    assert abs(np.mean(honest)) < np.mean(lucky)
