"""The benchmark of accuracy: what it makes of figures, and that the README has those measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.accuracy import rivals
from benchmarks.accuracy.measured import BLEND, COMPARE, _scored, ours
from benchmarks.accuracy.report import claims, render, sides_of
from benchmarks.accuracy.run import MARKER, RESULTS, as_text
from benchmarks.accuracy.tables import names, of_directory, of_sklearn
from benchmarks.table import written

ROOT = Path(__file__).resolve().parent.parent


def test_readme_has_what_was_measured() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    table = render(json.loads(RESULTS.read_text("utf-8")))
    assert written(readme, table, MARKER) == readme, (
        "run python -m benchmarks.accuracy --render benchmarks/accuracy/results.json README.md"
    )


def line(name: str, **models: dict[str, list[float | None]]) -> dict[str, Any]:
    """Return a table of two folds, of 10 and 30 rows."""
    return {
        "name": name, "rows": 40, "numeric": 2, "categorical": 1, "classes": 2,
        "given_folds": True, "folds": [0, 1], "fold_rows": [10, 30], "weka": {}, "failed": {},
        "models": {name.replace("_", "-"): figures for name, figures in models.items()},
    }  # fmt: skip


def model(loss: list[float | None], held: list[float | None] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "log_loss": loss, "accuracy": [0.8, 0.9], "seconds": [1.0, 3.0]
    }  # fmt: skip
    return found if held is None else {**found, "held_out": held}


def test_means__are_those_of_rows_within_a_table() -> None:
    (side,) = sides_of([line("a", blend=model([0.4, 0.8], [0.5, 0.5]))]).values()
    assert side.log_loss == pytest.approx([0.7])
    assert side.accuracy == pytest.approx([0.875])
    assert side.bias["blend"] == pytest.approx([0.2])
    assert side.seconds == pytest.approx([2.0])


def test_fold_without_figures__leaves_the_table_out() -> None:
    lines = [
        line("a", blend=model([0.1, 0.1]), tan=model([0.2, None])),
        line("b", blend=model([0.5, 0.5]), tan=model([0.4, 0.4])),
    ]
    text = render({"tables": lines, **about()})
    # Beside the blend on the other table alone, where it is ahead.
    assert "| tan | 1 | 0.8750 | 0.4000 | 0.5000 | 0 / 1 | 1 |" in text


def about() -> dict[str, Any]:
    machine = {"processor": "a processor", "platform": "Linux", "python": "3.11"}
    return {
        "date": "2026-01-02T03",
        "machine": {**machine, "versions": {"numpy": "2.4", "lightgbm": None}},
        "absent": {rivals.LIGHTGBM: "lightgbm"},
    }


def test_absent_rivals_are_listed() -> None:
    text = render(
        {"tables": [line("a", blend=model([0.1, 0.1]), tan=model([0.2, 0.2]))], **about()}
    )
    assert "Absent: LightGBM (lightgbm is not installed)." in text


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, []),
        ({"tan": model([0.1, 0.2])}, ["mean log-loss"]),
        (
            {BLEND: model([1.3, 1.3])},
            ["mean log-loss", "accuracy", "above 1 nats", "above LightGBM"],
        ),
        ({rivals.LIGHTGBM: model([0.35, 0.29])}, []),
        ({BLEND: model([0.3, 0.3], [0.2, 0.2])}, ["test − held-out"]),
        ({COMPARE: model([0.1, 0.1])}, []),  # it is ours, and no rival
    ],
)
def test_claims_say_what_is_missed(change: dict[str, Any], missed: list[str]) -> None:
    models = {
        BLEND: model([0.3, 0.3], [0.3, 0.3]),
        "tan": model([0.5, 0.5]),
        rivals.LIGHTGBM: model([0.4, 0.4]),
        rivals.VOTE: {**model([0.5, 0.5]), "accuracy": [0.8, 0.9]},
    }
    if "accuracy" in missed:
        change = {name: {**each, "accuracy": [0.1, 0.1]} for name, each in change.items()}
    one = {**line("a"), "models": models | change}
    # The same two tables: biases of 0 within any error, others beyond it.
    lines = [one, {**one, "name": "b"}]
    found = [text for text in claims(sides_of(lines), lines) if "**missed**" in text]
    assert len(found) == len(missed)
    assert all(words in text for words, text in zip(missed, found, strict=True))


def test_log_loss__of_a_class_that_training_lacked_is_clipped() -> None:
    proba = np.array([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]])
    found = _scored(proba, np.array(["a", "c"]), np.array(["a", "b", "c"]))
    assert found["log_loss"] == pytest.approx((-np.log(0.75) - 2 * np.log(1e-15)) / 3)
    assert found["accuracy"] == pytest.approx(1 / 3)


def test_models__are_those_that_the_columns_allow() -> None:
    nominal = pd.DataFrame({"x": pd.Categorical(list("ab"))})
    numeric = pd.DataFrame({"x": [0.5, 1.5]})
    mixed = pd.concat([nominal, numeric.rename(columns={"x": "z"})], axis=1)
    assert {"gaussian-bayes", "naive-bayes-bins"} <= ours(numeric).keys()
    assert "gaussian-bayes" not in ours(mixed)
    assert "joint-gaussian" in ours(mixed)
    assert not {"joint-gaussian", "naive-bayes-auto"} & ours(nominal).keys()
    assert ours(mixed)["naive-bayes-bins"]().numeric == "mdl"


def test_vote__is_the_mean_of_four() -> None:
    told = zip((*rivals.VOTERS, rivals.LIGHTGBM), (0.1, 0.2, 0.3, 0.6, 0.9), strict=True)
    posteriors = {name: np.array([[p, 1 - p]]) for name, p in told}
    assert rivals.vote(posteriors) == pytest.approx(np.array([[0.3, 0.7]]))


def test_vote__is_absent_with_one_who_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "find_spec", lambda name: None if name == "lightgbm" else object())
    assert rivals.absent() == dict.fromkeys(
        (rivals.LIGHTGBM, rivals.REGULARISED, rivals.VOTE), "lightgbm"
    )


@pytest.mark.parametrize("name", ["boosting", "forest", "logistic"])
def test_rivals__take_missing_values_and_categories(name: str) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=60)
    letters = np.array(list("abc"), object)[random.integers(0, 3, 60)]
    letters[::7], y = None, np.where(x + (letters == "a") > 0, "p", "n")
    X = pd.DataFrame({"x": np.where(random.random(60) < 0.1, np.nan, x),
                      "z": pd.Categorical(letters, categories=list("abcd"))})  # fmt: skip
    fitted = getattr(rivals, name)(X).fit(X, y)
    unseen = X.assign(z=pd.Categorical(["d"] * 60, categories=list("abcd")))
    assert (fitted.predict_proba(X).argmax(axis=1) == (y == "p")).mean() > 0.75
    assert np.isfinite(fitted.predict_proba(unseen)).all()


def test_sklearn_tables__have_ten_stratified_folds() -> None:
    table = of_sklearn("iris")
    counts = pd.crosstab(table.fold, table.y).to_numpy()
    assert counts.shape == (10, 3)
    assert (counts == 5).all()


def test_tables_of_a_directory__as_they_are_described(tmp_path: Path) -> None:
    for folder, suffix, text in (
        ("tables", "csv", "x,z,class\n1.5,None,p\n,,n\n"),
        ("domains", "json", '{"x": "numeric", "z": ["None", "other"], "class": ["p", "n"]}'),
        ("folds", "csv", "row,fold\n1,0\n0,3\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"t.{suffix}").write_text(text)
    assert names(tmp_path)[-1] == "t"
    table = of_directory(tmp_path, "t", {})
    assert table.X["x"].tolist() == pytest.approx([1.5, np.nan], nan_ok=True)
    # The text "None" is a value; an empty cell is missing; what does not occur is declared.
    assert table.X["z"].cat.codes.tolist() == [0, -1]
    assert [*table.X["z"].cat.categories] == ["None", "other"]
    assert table.y.tolist() == ["p", "n"]
    assert table.fold.tolist() == [3, 0]


def test_results__are_json_with_a_line_for_each_model() -> None:
    results = {"tables": [line("a", tan=model([0.1, 0.2])), line("b")], **about()}
    assert json.loads(as_text(results)) == results
    assert sum('"tan"' in text for text in as_text(results).splitlines()) == 1
