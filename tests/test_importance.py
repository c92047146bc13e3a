"""model.importance: against naive loops, and against models fitted without a column."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import fastbayes as fb


def mixed(n: int = 80, seed: int = 0) -> pa.Table:
    """Return values and numbers, some missing; `sky`, `x` and `z` depend on the class `y`."""
    random = np.random.default_rng(seed)
    y = random.choice(["no", "yes", "maybe"], n, p=[0.5, 0.3, 0.2])
    sky = np.where(random.random(n) < 0.6, y, random.choice(["no", "yes", "fog"], n))
    x = random.normal(size=n) + (y == "yes")
    return pa.table(
        {
            "sky": pa.array(sky, mask=random.random(n) < 0.1),
            "wind": random.choice(["hi", "lo"], n),
            "same": ["one"] * n,
            "x": pa.array(x, mask=random.random(n) < 0.1),
            "z": random.normal(size=n) * 3 - (y == "no"),
            "y": y,
        }
    )


VALUES = ["sky", "wind", "same", "y"]
NUMBERS = ["x", "z", "y"]
TABLE = mixed()


def by_column(found: Any) -> dict[str, dict[str, Any]]:
    return {line["column"]: line for line in found.table.to_pylist()}


def test_importance__naive_loops():
    rows = TABLE.select(VALUES).slice(0, 30).to_pylist()
    model = fb.NaiveBayes(alpha=0.5).fit(pa.Table.from_pylist(rows), "y")
    found = model.importance(pa.Table.from_pylist(rows))
    classes = sorted({row["y"] for row in rows})
    n_c = {c: sum(row["y"] == c for row in rows) for c in classes}

    def p(name: str, value: Any, c: str) -> float:
        if value is None:
            return 1.0
        known = [row for row in rows if row["y"] == c and row[name] is not None]
        choices = {row[name] for row in rows} - {None}
        n = sum(row[name] == value for row in known)
        return (n + 0.5) / (len(known) + 0.5 * len(choices))

    def loss(names: list[str]) -> float:
        total = 0.0
        for row in rows:
            joint = {c: (n_c[c] + 0.5) / (len(rows) + 0.5 * len(classes)) for c in classes}
            for c, name in itertools.product(classes, names):
                joint[c] *= p(name, row[name], c)
            total -= math.log(joint[row["y"]] / sum(joint.values()))
        return total / len(rows)

    names = VALUES[:-1]
    assert found.log_loss == pytest.approx(loss(names), rel=1e-12)
    pairs = [*itertools.combinations(classes, 2)]
    for name, line in by_column(found).items():
        odds = [
            abs(math.log(p(name, row[name], a) / p(name, row[name], b)))
            for row in rows
            for a, b in pairs
        ]
        assert line["mean_log_odds"] == pytest.approx(sum(odds) / len(odds), abs=1e-12)
        known = [row for row in rows if row[name] is not None]
        information = 0.0
        for v, c in itertools.product({row[name] for row in known}, classes):
            both = sum(row[name] == v and row["y"] == c for row in known) / len(known)
            of_v = sum(row[name] == v for row in known) / len(known)
            of_c = sum(row["y"] == c for row in known) / len(known)
            information += both * math.log(both / (of_v * of_c)) if both else 0.0
        assert line["information"] == pytest.approx(information, abs=1e-12)
        without = loss([other for other in names if other != name])
        assert line["log_loss_without"] == pytest.approx(without, rel=1e-12)
        assert line["gain"] == pytest.approx(without - loss(names), abs=1e-12)


def test_importance__constant_and_independent_columns():
    y = np.repeat(["no", "yes"], 200)
    rows = pa.table({"same": ["one"] * 400, "coin": ["h", "t"] * 200, "flat": [2.5] * 400,
                     "told": y, "y": y})  # fmt: skip
    lines = by_column(fb.NaiveBayes().fit(rows, "y").importance(rows))
    for name in ("same", "flat"):
        assert lines[name]["mean_log_odds"] == 0
        assert lines[name]["gain"] == 0
    assert lines["same"]["information"] == 0
    for figure in ("mean_log_odds", "information", "gain"):
        assert lines["coin"][figure] == pytest.approx(0, abs=1e-12)
    assert lines["told"]["information"] == pytest.approx(math.log(2))
    assert next(iter(lines)) == "told"


WITHOUT = {
    "naive": (fb.NaiveBayes(), None),
    "Student's t": (fb.NaiveBayes(numeric="student"), None),
    "kernels": (fb.NaiveBayes(numeric="kde"), None),
    "bins": (fb.NaiveBayes(numeric={"x": "mdl", "z": [0.0]}), None),
    "category": (fb.NaiveBayes(missing="category", alpha=0.3), None),
    "averaged": (fb.NaiveBayes(feature_averaging=True), None),
    "loo": (fb.NaiveBayes(alpha="loo"), None),
    "single": (fb.NaiveBayes(variance="single"), None),
    "shared": (fb.NaiveBayes(variance="shared", class_prior="uniform"), None),
    "aode": (fb.AODE(weights={"sky": 1.0, "wind": 2.0, "same": 1.0, "z": 0.5}), None),
    "a2de": (fb.A2DE(), VALUES),
    "tan": (fb.TAN(), VALUES),
    "diagonal": (fb.GaussianBayes(covariance="diagonal"), NUMBERS),
    "spherical": (fb.GaussianBayes(covariance="spherical"), NUMBERS),
    "full": (fb.GaussianBayes(missing="impute_mean"), ["z", "w", "y"]),
}


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
@pytest.mark.parametrize("name", WITHOUT)
def test_importance__without_a_column_is_a_fit_without_it(name):
    made, columns = WITHOUT[name]
    table = TABLE.append_column("w", pa.array(np.random.default_rng(5).normal(size=len(TABLE))))
    table = table.select(columns or TABLE.column_names)
    new = mixed(50, seed=1)
    new = new.append_column("w", pa.array(np.random.default_rng(6).normal(size=50)))
    new = new.select(table.column_names)
    model = type(made)(**made.get_params()).fit(table, "y")
    found = model.importance(new)
    assert found.log_loss == pytest.approx(fb.evaluate(model, new).log_loss, rel=1e-9)
    for column, line in by_column(found).items():
        params = made.get_params()
        for key, value in params.items():
            if isinstance(value, dict):
                params[key] = {n: one for n, one in value.items() if n != column}
        if len(table.column_names) == 2:
            continue
        refit = type(made)(**params).fit(table.drop_columns(column), "y")
        loss = fb.evaluate(refit, new.drop_columns(column)).log_loss
        assert line["log_loss_without"] == pytest.approx(loss, rel=1e-9), column
        assert line["gain"] == pytest.approx(loss - found.log_loss, abs=1e-9)


@pytest.mark.parametrize("kind", ["CategoricalNB", "BernoulliNB"])
def test_importance__of_arrays_without_a_column(kind):
    random = np.random.default_rng(2)
    X, y = random.integers(0, 3, (60, 3)), random.choice(["a", "b", "c"], 60)
    model = getattr(fb, kind)().fit(X, y)
    found = model.importance(X, y)
    truth = np.searchsorted(model.classes_, y)
    for column, line in by_column(found).items():
        few = np.delete(X, int(column[1:]), axis=1)
        proba = getattr(fb, kind)().fit(few, y).predict_proba(few)
        loss = -np.log(proba[np.arange(60), truth]).mean()
        assert line["log_loss_without"] == pytest.approx(loss, rel=1e-9)
        assert (line["information"] is not None) == (kind == "CategoricalNB")
    counted = model.importance()
    assert counted.rows == 60
    informed = {c.column: c.information for c in counted.columns}
    assert informed == {c.column: c.information for c in found.columns}
    with pytest.raises(fb.SchemaError, match="bare arrays"):
        model.importance(fb.count(TABLE, "y"))


@pytest.mark.parametrize("kind", ["GaussianNB", "MultinomialNB", "NaiveBayes"])
def test_importance__checks_the_classes_beside_rows(kind):
    random = np.random.default_rng(3)
    X, y = random.integers(0, 9, (60, 2)), random.integers(0, 3, 60)
    model = getattr(fb, kind)().fit(X, y)
    for wrong in (y[:10], np.r_[y, y]):
        with pytest.raises(fb.DataError, match=rf"numbers of samples: \[60, {len(wrong)}\]"):
            model.importance(X, wrong)
    with pytest.warns(UserWarning, match="column-vector y"):
        column = model.importance(X, y[:, None])
    assert column.log_loss == model.importance(X, y).log_loss
    few = model.importance(X, np.where(np.arange(60) < 20, np.nan, y))  # without a class
    assert few.rows == 60
    assert few.log_loss == pytest.approx(model.importance(X[20:], y[20:]).log_loss, rel=1e-12)


def test_importance__of_arrays_that_are_not_taken_apart():
    model = fb.GaussianNB().fit([[1.0, 2.0], [2.0, 3.5], [4.0, 5.0]], [0, 1, 1])
    found = model.importance([[1.0, 2.0], [2.0, 3.0]], [0, 1])
    assert found.log_loss is not None
    assert all("of columns together" in one.reason for one in found.columns)


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
@pytest.mark.parametrize(
    "model",
    [
        fb.NaiveBayes(),
        fb.NaiveBayes(missing="category", unseen="smooth"),
        fb.WeightedNaiveBayes(),
        fb.LogisticRegression(),
    ],
    ids=["naive", "category", "weighted", "logistic"],
)
def test_importance__counts_say_what_rows_say(model):
    fitted = type(model)(**model.get_params()).fit(TABLE, "y")
    of_rows, of_counts = by_column(fitted.importance(TABLE)), by_column(fitted.importance())
    for column, line in of_counts.items():
        if fitted.schema_.features[fitted.schema_.names.index(column)].values is not None:
            wanted = of_rows[column]["mean_log_odds"]
            assert line["mean_log_odds"] == pytest.approx(wanted, abs=1e-12)
        else:
            assert line["mean_log_odds"] is None
        assert line["information"] == of_rows[column]["information"]
        assert line["log_loss_without"] is None
        by_rows = isinstance(fitted, (fb.WeightedNaiveBayes, fb.LogisticRegression))
        assert ("learned from rows" if by_rows else "importance(data)") in line["reason"]
    again = fitted.importance(fb.count(TABLE, "y", schema=fitted.statistics_))
    assert again.table.column("mean_log_odds").equals(fitted.importance().table["mean_log_odds"])


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
def test_importance__of_other_models_is_what_explain_says():
    for made in (fb.TAN(), fb.KDB(), fb.JointBayes(), fb.Calibrated(fb.TAN())):
        table = TABLE.select(VALUES)
        model = made.fit(table, "y")
        parts = model.explain(table.drop_columns("y")).contributions
        pairs = itertools.combinations(range(3), 2)
        odds = np.mean([np.abs(parts[..., a] - parts[..., b]) for a, b in pairs], axis=0)
        lines = by_column(model.importance(table))
        for j, name in enumerate(VALUES[:-1]):
            assert lines[name]["mean_log_odds"] == pytest.approx(odds[:, j].mean(), abs=1e-12)


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
def test_importance__says_why_a_loss_is_not_known():
    table, some = TABLE.select(VALUES), pa.array([*[None] * 20, *TABLE["y"].to_pylist()[20:]])
    reasons = {
        "learned from rows": [fb.LogisticRegression(), fb.WeightedNaiveBayes(),
                              fb.NaiveBayes(unlabelled="em"), fb.Calibrated()],
        "of columns together": [fb.JointBayes(), fb.KDB()],
    }  # fmt: skip
    for why, models in reasons.items():
        for model in models:
            em = isinstance(model, fb.NaiveBayes)
            given = table.set_column(3, "y", some) if em else table
            found = model.fit(given, "y").importance(table)
            assert found.log_loss == pytest.approx(fb.evaluate(model, table).log_loss, rel=1e-9)
            for line in by_column(found).values():
                assert line["log_loss_without"] is None
                assert line["gain"] is None
                assert why in line["reason"]
            for line in by_column(model.importance()).values():  # nor do rows tell it
                assert why in line["reason"]
                assert "log_loss_without needs rows" not in line["reason"]
    only = fb.AODE().fit(table.select(["sky", "y"]), "y").importance(table.select(["sky", "y"]))
    assert "only column" in only.columns[0].reason


def test_importance__an_impossible_class_is_infinitely_far():
    rows = {"a": ["u", "u", "v", "v"], "y": ["no", "no", "yes", "no"]}
    found = fb.NaiveBayes(alpha=0).fit(rows, "y").importance(rows)
    assert found.columns[0].mean_log_odds == math.inf
    assert math.isfinite(found.columns[0].log_loss_without)


def test_importance__rows_however_they_come(tmp_path):
    model = fb.NaiveBayes().fit(TABLE, "y")
    wanted = model.importance(TABLE).to_dict()
    pa.parquet.write_table(TABLE, tmp_path / "rows.parquet")
    assert model.importance(str(tmp_path / "rows.parquet")).to_dict() == wanted
    stream = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=9))
    assert model.importance(stream).to_dict()["log_loss"] == pytest.approx(wanted["log_loss"])
    beside = model.importance(TABLE.drop_columns("y"), TABLE["y"].to_pylist())
    assert beside.to_dict() == wanted
    assert json.loads(json.dumps(wanted)) == wanted


def test_importance__rows_without_a_class():
    model = fb.NaiveBayes().fit(TABLE, "y")
    found = model.importance(TABLE.drop_columns("y"))
    assert found.log_loss is None
    assert "rows with a class" in found.columns[0].reason
    holes = np.arange(len(TABLE)) % 3 == 0
    y = pa.array(TABLE["y"].to_pylist(), mask=holes)
    some = model.importance(TABLE.set_column(TABLE.column_names.index("y"), "y", y))
    rest = model.importance(TABLE.filter(~holes))
    assert some.log_loss == pytest.approx(rest.log_loss)
    gains = {c.column: c.gain for c in rest.columns}
    assert {c.column: c.gain for c in some.columns} == pytest.approx(gains)


def test_importance__of_what_the_model_does_not_know():
    model = fb.NaiveBayes().fit(TABLE, "y")
    other = TABLE.slice(0, 2).set_column(5, "y", pa.array(["no", "never"]))
    with pytest.raises(fb.DataError, match="row 1: class 'never' was not seen"):
        model.importance(other)
    with pytest.raises(fb.DataError, match="there are none"):
        model.importance(TABLE.slice(0, 0))
    with pytest.raises(fb.SchemaError, match="count again with schema"):
        model.importance(fb.count(other, "y"))
    with pytest.raises(ValueError, match="not fitted yet"):
        fb.NaiveBayes().importance()


def test_importance__as_text():
    found = fb.NaiveBayes().fit(TABLE, "y").importance(TABLE)
    assert str(found).startswith("80 rows, log-loss ")
    assert "mean_log_odds" in repr(found)
    assert "x, z: information is of values or bins" in str(found)
