"""`evaluate` in one scan against scikit-learn on the posterior of the whole table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics

import fastbayes as fb

ROWS = 140_000  # three blocks


def table_of(n_classes: int, rows: int = ROWS, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "text": np.array(["a", "b", "c"])[(y + rng.integers(0, 2, rows)) % 3],
            "number": pa.array(rng.normal(y, 2.0), mask=rng.random(rows) < 0.1),
            "weight": rng.integers(0, 4, rows) / 2,
            "y": np.array([f"class {c}" for c in range(n_classes)])[y],
        }
    )


@pytest.fixture(scope="module", params=[2, 3])
def table(request: pytest.FixtureRequest) -> pa.Table:
    return table_of(request.param)


@pytest.fixture(scope="module")
def model(table: pa.Table) -> fb.NaiveBayes:
    return fb.NaiveBayes().fit_statistics(fb.count(table, "y", columns=["text", "number"]))


def expected(
    model: fb.NaiveBayes, table: pa.Table, weight: np.ndarray[Any, Any] | None = None
) -> dict[str, float]:
    """Return scikit-learn's figures of the posterior."""
    truth = np.array(table["y"].to_pylist())
    proba = model.predict_proba(table.select(["text", "number"]))
    k = len(model.classes_)
    codes = np.searchsorted(model.classes_, truth)
    # scikit-learn averages per class as it likes with weights; ours is the plain mean.
    auc = [
        metrics.roc_auc_score(codes == c, proba[:, c], sample_weight=weight)
        for c in ([1] if k == 2 else range(k))
    ]
    squares = ((proba - np.eye(k)[codes]) ** 2).sum(axis=1)
    predicted = model.classes_[proba.argmax(axis=1)]
    return {
        "accuracy": metrics.accuracy_score(truth, predicted, sample_weight=weight),
        "log_loss": metrics.log_loss(truth, proba, sample_weight=weight, labels=model.classes_),
        "auc": float(np.mean(auc)),
        "brier": float(np.average(squares, weights=weight)),
    }


def close(result: Any, figures: dict[str, float]) -> None:
    found = {name: getattr(result, name) for name in figures}
    assert found == pytest.approx(figures, rel=1e-12)


def test_figures__equal_scikit_learn(table: pa.Table, model: fb.NaiveBayes) -> None:
    result = fb.evaluate(model, table)
    close(result, expected(model, table))
    truth = np.array(table["y"].to_pylist())
    predicted = model.predict(table.select(["text", "number"]))
    assert np.array_equal(result.confusion, metrics.confusion_matrix(truth, predicted))
    assert result.n == ROWS
    assert result.expected_loss == pytest.approx(1 - result.accuracy)


def test_figures__weighted(table: pa.Table, model: fb.NaiveBayes) -> None:
    weight = table["weight"].to_numpy()
    by_name = fb.evaluate(model, table, sample_weight="weight")
    close(by_name, expected(model, table, weight))
    assert by_name.n == weight.sum()
    beside = fb.evaluate(model, table.drop_columns("weight"), sample_weight=weight)
    assert beside.to_dict() == by_name.to_dict()


def test_figures__with_a_loss(table: pa.Table, model: fb.NaiveBayes) -> None:
    k = len(model.classes_)
    loss = np.random.default_rng(1).random((k, k)) + 1 - np.eye(k)
    result = fb.evaluate(model, table, loss=loss)
    decided = model.decide(table.select(["text", "number"]), loss=loss)
    codes = np.searchsorted(model.classes_, table["y"].to_pylist())
    assert result.expected_loss == pytest.approx(loss[decided.index, codes].mean())
    assert result.bayes_risk == pytest.approx(decided.expected_loss.mean())


def test_figures__the_same_from_files_streams_and_threads(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=10_000)
    one = fb.evaluate(model, tmp_path / "d.parquet", threads=1).to_dict()
    assert fb.evaluate(model, tmp_path / "d.parquet", threads=8).to_dict() == one
    stream = table.to_reader(max_chunksize=10_000)
    for source in (table, stream, table.to_pandas()):
        found = fb.evaluate(model, source)
        assert found.accuracy == one["accuracy"]
        assert found.confusion.tolist() == one["confusion"]
        assert found.log_loss == pytest.approx(one["log_loss"], rel=1e-12)


def test_target__of_another_name_or_beside_the_data() -> None:
    table = table_of(2, 900)
    model = fb.NaiveBayes().fit_statistics(fb.count(table, "y", columns=["text", "number"]))
    figures = fb.evaluate(model, table).to_dict()
    renamed = table.rename_columns({"y": "outcome"})
    assert fb.evaluate(model, renamed, "outcome").to_dict() == figures
    labels = table["y"].to_pylist()
    assert fb.evaluate(model, table.drop_columns("y"), labels).to_dict() == figures
    assert fb.evaluate(model, table.drop_columns("y"), np.array(labels)).to_dict() == figures


def test_rows__without_a_class_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(2, 900)
    model = fb.NaiveBayes().fit_statistics(fb.count(table, "y", columns=["text", "number"]))
    holed = table.set_column(4, "y", pa.array([None] * 300 + table["y"].to_pylist()[300:]))
    with caplog.at_level("INFO", "fastbayes"):
        found = fb.evaluate(model, holed)
    assert found.to_dict() == fb.evaluate(model, table.slice(300)).to_dict()
    assert "left out 300 rows without a class" in caplog.messages


def test_rows__unseen_values_and_impossible_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = pa.table({"x": ["a", "a", "b", "b"], "z": ["u", "u", "v", "v"], "y": [0, 0, 1, 1]})
    model = fb.NaiveBayes(alpha=0).fit(table, "y")
    with caplog.at_level("INFO", "fastbayes"):
        fb.evaluate(model, {"x": ["a", "a", "q"], "z": ["u", "v", "v"], "y": [0, 0, 1]})
    assert "column 'x': 1 values were not seen at fit" in caplog.messages
    assert "1 rows are impossible under every class" in caplog.messages


def test_rows__wrong_ones_name_what_is_wrong(tmp_path: Path) -> None:
    table = table_of(2)
    model = fb.NaiveBayes().fit_statistics(fb.count(table, "y", columns=["text", "number"]))
    labels = table["y"].to_pylist()
    labels[70_000] = "class 7"
    pq.write_table(table.set_column(4, "y", pa.array(labels)), tmp_path / "d.parquet")
    with pytest.raises(fb.DataError, match=r"'y', row 70000 of .*d.parquet: class 'class 7'"):
        fb.evaluate(model, tmp_path / "d.parquet")
    with pytest.raises(fb.DataError, match="no column 'z'"):
        fb.evaluate(model, table, "z")
    with pytest.raises(fb.DataError, match="null in all 900 rows"):
        fb.evaluate(model, table.slice(0, 900).set_column(4, "y", pa.nulls(900, pa.string())))
    with pytest.raises(fb.DataError, match="no rows"):
        fb.evaluate(model, table.slice(0, 0))
    with pytest.raises(fb.DataError, match="weights are zero"):
        fb.evaluate(model, table.slice(0, 9), sample_weight=np.zeros(9))
    with pytest.raises(fb.DataError, match=r"'weight', row 2: -1\.0"):
        fb.evaluate(model, table.drop_columns("weight").slice(0, 3), sample_weight=[1, 1, -1.0])


def test_labels__of_numbers_and_truth_values() -> None:
    for labels in ([0, 1] * 50, [False, True] * 50, [0.5, 1.5] * 50):
        table = pa.table({"x": ["a", "b"] * 50, "y": labels})
        model = fb.NaiveBayes().fit(table, "y")
        assert fb.evaluate(model, table).accuracy == 1.0


def test_unused_columns__are_not_read(tmp_path: Path) -> None:
    table = table_of(2, 900)
    model = fb.NaiveBayes().fit_statistics(fb.count(table, "y", columns=["text", "number"]))
    odd = table.append_column("tags", pa.array([["a"]] * 900))
    assert fb.evaluate(model, odd).to_dict() == fb.evaluate(model, table).to_dict()


def test_models__that_cannot() -> None:
    table = table_of(2, 9)
    bare = fb.GaussianNB().fit(np.array([[0.0], [1.0], [0.1], [1.1]]), [0, 1, 0, 1])
    with pytest.raises(fb.SchemaError, match="GaussianNB reads bare arrays"):
        fb.evaluate(bare, table)
    with pytest.raises(ValueError, match="not fitted"):
        fb.evaluate(fb.NaiveBayes(), table)
    with pytest.raises(fb.SchemaError, match="not str"):
        fb.evaluate("model.fb", table)
