"""Learning curves: samples are nested, counted as fitted anew, and tested on rows of no sample."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from making import random_table
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import fastbayes as fb
from fastbayes.core.errors import DataError, FastBayesError, SchemaError
from fastbayes.data.folds import Draw, Drawn
from fastbayes.evaluation.curves.learning_curves import (
    CurveRunner,
    Sample,
    SampledRows,
    census_of,
    learning_curve,
)
from fastbayes.evaluation.validate.scoring import encoders_by
from fastbayes.models.registry import candidates
from fastbayes.scan import engine
from fastbayes.scan.opening import opened_to_learn


def places_of(table: pa.Table, seed: int, repeat: int) -> np.ndarray:
    """Return the place of each row in an order, -1 for rows that take no part."""
    labelled = np.array([y is not None for y in table["y"].to_pylist()])
    if "w" in table.column_names:
        labelled &= table["w"].to_numpy() > 0
    found = np.full(table.num_rows, -1)
    found[labelled] = Draw(int(labelled.sum()), seed, repeat).places(np.arange(labelled.sum()))
    return found


def holes(table: pa.Table, n: int = 7) -> pa.Table:
    """Return the table without the class of every n-th row."""
    labels = [None if i % n == 0 else y for i, y in enumerate(table["y"].to_pylist())]
    return table.set_column(table.column_names.index("y"), "y", pa.array(labels))


def some(table: pa.Table, rows: Any) -> pa.Table:
    return table.take(pa.array(np.flatnonzero(rows)))


def refitted(model: Any, table: pa.Table, size: int, n_test: int, **more: Any) -> Any:
    """Return the figures of a model fitted to a size and tested, by public calls alone."""
    at = places_of(table, 3, more.pop("repeat"))
    n, weight = (at >= 0).sum(), "w" if "w" in table.column_names else None
    whole = fb.count(table, "y", sample_weight=weight).schema
    domains = {f.name: f.values for f in whole.categorical if not f.void}
    model.set_params(domains={**domains, "y": whole.classes})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fb.FastBayesWarning)
        model.fit(some(table, (at >= 0) & (at < size)), "y", sample_weight=weight)
    return fb.evaluate(model, some(table, at >= n - n_test), "y", sample_weight=weight)


# -- drawing rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 64, 100, 1000, 65_537])
def test_draw__is_a_permutation(n: int) -> None:
    places = Draw(n, 5, 2).places(np.arange(n))
    assert sorted(places.tolist()) == list(range(n))
    parts = [Draw(n, 5, 2).places(np.arange(i, min(i + 7, n))) for i in range(0, min(n, 70), 7)]
    np.testing.assert_array_equal(np.concatenate(parts), places[:70])


def test_draw__is_even_over_seeds_and_repeats() -> None:
    orders = [tuple(Draw(4, s, r).places(np.arange(4))) for s in range(400) for r in range(12)]
    found = np.array([orders.count(o) for o in set(orders)])
    assert len(found) == 24  # all there are
    assert ((found - 200) ** 2 / 200).sum() < 49.7  # chi-square, 23 degrees, 0.1 %
    firsts = np.array([Draw(1_000, s, 0).places(np.arange(1_000)) for s in range(200)])
    assert abs(np.corrcoef(firsts[:-1].ravel(), firsts[1:].ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(firsts[:, :-1].ravel(), firsts[:, 1:].ravel())[0, 1]) < 0.01


@pytest.fixture
def mixed(tmp_path: Path) -> pa.Table:
    return holes(random_table(700)).drop_columns(["epoch"])


def opened_sample(source: Any, sizes: list[int], n_test: int, weight: str | None = None) -> Sample:
    opened = opened_to_learn(source, "y", sample_weight=weight)
    whole = engine.scan(opened.source, opened.learning(), ("values",))
    census = census_of(opened, None)
    draw = Draw(census.n_rows, 3, 1)
    rows = SampledRows(opened, whole.schema, encoders_by(opened, whole.schema))
    return Sample(rows, census, draw, np.array(sizes), n_test)


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_statistics_of_a_size__are_the_count_of_its_rows(
    mixed: pa.Table, tmp_path: Path, weight: str | None, kind: str
) -> None:
    table = mixed
    if weight is None:
        table = table.drop_columns(["w"])
    else:
        light = [0.0 if i % 5 == 0 else w for i, w in enumerate(table["w"].to_pylist())]
        table = table.set_column(table.column_names.index("w"), "w", pa.array(light))
    source: Any = table
    if kind == "files":
        for i in range(3):
            part = table.slice(250 * i, 250)
            pq.write_table(part, tmp_path / f"{i}.parquet", row_group_size=60)
        source = str(tmp_path / "*.parquet")
    sizes = [1, 4, 90, 350]
    sample = opened_sample(source, sizes, 100, weight)
    names = ["values", "moments"]
    found = sample.counted(sample.rows.learning, names, {"threads": 2, "memory_limit": None})
    at = places_of(table, 3, 1)
    schema = sample.rows.schema
    domains = {f.name: f.values for f in schema.categorical} | {"y": schema.classes}
    for size, stats in zip(sizes, found, strict=True):
        mine = some(table, (at >= 0) & (at < size))
        expected = fb.count(mine, "y", sample_weight=weight, domains=domains)
        assert stats.n_rows == pytest.approx(expected.n_rows, rel=1e-12)
        assert stats.allclose(expected, 1e-12)
        if weight is None:
            assert stats.values == expected.values
    # The rows themselves, in order, and those tested on.
    ordered = table.take(pa.array(np.argsort(at)[(at < 0).sum() :]))
    assert sample.train_table.to_pylist() == ordered.slice(0, 350).to_pylist()
    assert sample.test_table.to_pylist() == ordered.slice(ordered.num_rows - 100).to_pylist()
    assert [s.n_rows for s in (sample.of(4), sample.test)] == [4, 100]


def test_drawn__is_the_same_in_blocks_of_any_size(mixed: pa.Table) -> None:
    opened = opened_to_learn(mixed, "y")
    census = census_of(opened, None)
    drawn = Drawn(opened.source, census, Draw(census.n_rows, 0, 0), 0, 50, "place")
    found = [rows for s in drawn.segments(16) for rows in s.batches()]
    assert [rows.num_rows for rows in found] == [16, 16, 16, 2]
    at = places_of(mixed, 0, 0)
    assert [p for rows in found for p in rows["place"].to_pylist()] == [
        p for p in at.tolist() if 0 <= p < 50
    ]


def test_drawn__reads_the_columns_asked_for(mixed: pa.Table, tmp_path: Path) -> None:
    pq.write_table(mixed, tmp_path / "rows.parquet")
    opened = opened_to_learn(str(tmp_path / "rows.parquet"), "y")
    census = census_of(opened, None)
    drawn = Drawn(opened.source, census, Draw(census.n_rows, 0, 0), 0, 5, "place")
    found = [rows for s in drawn.only(["number"]).segments(2) for rows in s.batches()]
    assert [rows.num_rows for rows in found] == [2, 2, 1]
    assert found[0].schema.names == ["number", "y", "place"]
    at = places_of(mixed, 0, 0)
    told = {row["place"]: row["number"] for rows in found for row in rows.to_pylist()}
    numbers = zip(at.tolist(), mixed["number"].to_pylist(), strict=True)
    assert told == {place: x for place, x in numbers if 0 <= place < 5}


# -- the curve -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("naive-bayes", lambda: fb.NaiveBayes(numeric="student")),
        ("naive-bayes-bins", lambda: fb.NaiveBayes(numeric="mdl")),
        ("tan", fb.TAN),
        ("joint-bayes", lambda: fb.JointBayes(tau=2.0)),
        ("kdb", fb.KDB),
        ("logistic", lambda: fb.LogisticRegression(tol=1e-10)),
    ],
)
def test_figures__are_those_of_refitting(
    mixed: pa.Table, name: str, make: Any, weighted: bool
) -> None:
    table = mixed if weighted else mixed.drop_columns(["w"])
    if name == "joint-bayes":
        table = table.drop_columns(["number"])
    models = {name: make() if name in ("joint-bayes", "logistic") else name}
    curve = learning_curve(
        models, table, "y", [40, 200, 480], 2, 3, test=100, sample_weight="w" if weighted else None
    )
    assert curve.sizes.tolist() == [40, 200, 480]
    assert (curve.rows, curve.test_rows, curve.repeats) == (600, 100, 2)
    for s, size in enumerate(curve.sizes.tolist()):
        for repeat in range(2):
            alone = refitted(make(), table, size, 100, repeat=repeat)
            assert curve.log_loss[0, s, repeat] == pytest.approx(alone.log_loss, rel=1e-9)
            assert curve.accuracy[0, s, repeat] == pytest.approx(alone.accuracy, rel=1e-12)
            assert curve.brier[0, s, repeat] == pytest.approx(alone.brier, rel=1e-9)


def numbers(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 3)) + y[:, None], np.array(["u", "v", "w"])[y]


def test_estimators_of_arrays__learn_and_are_tested_on_the_same_rows() -> None:
    X, y = numbers()
    models = {"theirs": GaussianNB(), "ours": fb.GaussianNB(), "tables": fb.NaiveBayes(alpha=0.0)}
    curve = learning_curve(models, X, y, [30, 200], 3, 1, test=60)
    np.testing.assert_allclose(curve.log_loss[0], curve.log_loss[1], rtol=1e-9)
    np.testing.assert_allclose(curve.log_loss[0], curve.log_loss[2], rtol=1e-5)
    at = Draw(300, 1, 2).places(np.arange(300))
    alone = GaussianNB().fit(X[at < 200], y[at < 200])
    assert curve.accuracy[0, 1, 2] == alone.score(X[at >= 240], y[at >= 240])


@pytest.mark.parametrize("categorical", [False, True])
def test_estimators__that_work_in_place_spoil_no_rows(categorical: bool) -> None:
    class InPlace(GaussianNB):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any) -> InPlace:
            super().fit(X[["a", "b"]] if categorical else X, y, sample_weight)
            X[:], y[:], sample_weight[:] = 0, y[0], 1.0
            return self

        def predict_proba(self, X: Any) -> Any:
            proba = super().predict_proba(X[["a", "b"]] if categorical else X)
            X[:] = 0
            return proba

    X, y = numbers()
    table = {"a": X[:, 0], "b": X[:, 1], "y": y, "w": np.arange(300) % 3 + 0.5}
    if categorical:
        table["code"] = np.arange(300) % 5
    models = {"first": InPlace(), "second": InPlace()}
    curve = learning_curve(
        models, table, "y", [30, 200], 2, test=60, sample_weight="w",
        categorical=["code"] if categorical else [],
    )  # fmt: skip
    one = learning_curve({"plain": GaussianNB()}, table, "y", [30, 200], 2, test=60,
                         sample_weight="w", exclude=["code"] if categorical else None)  # fmt: skip
    for m in range(2):
        np.testing.assert_allclose(curve.log_loss[m], one.log_loss[0], rtol=1e-12)


def test_estimators__get_frames_where_a_column_is_categorical(mixed: pa.Table) -> None:
    seen = []

    class Prior:
        """Knows the shares of the classes."""

        def fit(self, X: Any, y: Any, sample_weight: Any) -> None:
            seen.append((X.columns.tolist(), len(X), len(y), len(sample_weight)))
            self.classes_, n = np.unique(y, return_counts=True)
            self.p = n / n.sum()

        def predict_proba(self, X: Any) -> Any:
            return np.tile(self.p, (len(X), 1))

    curve = learning_curve({"prior": Prior()}, mixed, "y", [50], 1, sample_weight="w")
    assert seen == [(["text", "flag", "code", "number"], 50, 50, 50)]
    assert 0.9 < curve.log_loss.item() < 1.3


def test_warm_start__goes_on_where_the_classes_are_the_same() -> None:
    starts = []

    class Counting(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            starts.append((len(y), getattr(self, "coef_", None) is not None))
            return super().fit(X, y, sample_weight)

    X, y = numbers()
    told = {"max_iter": 2_000}
    curve = learning_curve(
        {"warm": Counting(warm_start=True, **told), "cold": Counting(**told)},
        *(X, y, [40, 100, 200], 1),
        test=60,
    )
    assert starts == [(40, False), (100, True), (200, True), *((n, False) for n in (40, 100, 200))]
    np.testing.assert_allclose(curve.log_loss[0], curve.log_loss[1], rtol=1e-3)


def test_logistic_regression__goes_on_from_the_size_before(
    mixed: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, solved = [], fb.LogisticRegression._solved

    def noted(self: Any, scans: Any, stats: Any, n_rows: int, together: Any) -> Any:
        starts.append((n_rows, self.warm_start and hasattr(self, "coef_")))
        return solved(self, scans, stats, n_rows, together)

    monkeypatch.setattr(fb.LogisticRegression, "_solved", noted)
    learning_curve("logistic", mixed.drop_columns(["w"]), "y", [50, 200, 400], 2)
    assert starts == [(50, False), (200, True), (400, True)] * 2


def test_calibrated__is_fitted_and_calibrated_on_the_rows_of_a_size() -> None:
    X, y = numbers()
    made = fb.Calibrated(fb.NaiveBayes(variance="shared"), validation="leave_one_out")
    curve = learning_curve({"calibrated": made}, X, y, [60, 200], 1, 3, test=60)
    at = Draw(300, 3, 0).places(np.arange(300))
    for s, size in enumerate((60, 200)):
        order = np.argsort(at)[:size]
        alone = fb.Calibrated(**made.get_params(deep=False)).fit(X[order], y[order])
        told = fb.evaluate(alone, X[at >= 240], y[at >= 240])
        assert curve.log_loss[0, s, 0] == pytest.approx(told.log_loss, rel=1e-9)
    with pytest.raises(SchemaError, match="all models of a learning curve read the rows alike"):
        learning_curve(fb.Calibrated(fb.NaiveBayes(missing="category")), X, y)


def test_classes__never_seen_in_a_size() -> None:
    X, y = numbers(200)
    y[:150] = "u"  # the others are rare
    X = X.round(1)
    models = {
        "smoothed": fb.NaiveBayes(),
        "unsmoothed": fb.GaussianNB(),
        "lr": LogisticRegression(),
    }
    curve = learning_curve(models, X, y, [2, 150], 6, 4, test=50)
    assert np.isfinite(curve.log_loss[:2]).all()
    assert (curve.clipped[0] < curve.clipped[1]).any()
    unseen = curve.clipped[1, 0] > 0
    assert unseen.any()
    # 34.5 nats for each row of a class that was never shown.
    assert (curve.log_loss[1, 0] >= 34.5 * curve.clipped[1, 0]).all()
    # One class alone is no problem for counts, but it is for scikit-learn's.
    assert np.isnan(curve.log_loss[2, 0]).any()
    assert curve.reasons["lr"].startswith("2 rows: This solver needs samples of at least 2 classes")
    assert "lr: not fitted to 2 rows: This solver" in str(curve)
    told = curve.table.to_pylist()
    assert told[4]["log_loss"] is None
    assert told[0]["log_loss"] == pytest.approx(curve.log_loss[0, 0].mean())


@pytest.mark.parametrize("name", candidates())
def test_every_model__learns_from_next_to_nothing(name: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    columns = {
        "a": pa.array(np.where(rng.random(120) < 0.7, y, 0).astype(str), mask=y == 2),
        "z": pa.array(rng.normal(size=120) + y, mask=rng.random(120) < 0.2),
        "constant": np.ones(120),
        "void": pa.nulls(120),
        "y": np.array(["u", "v", "w"])[y],
    }
    table = pa.table(columns).select(
        ["z", "constant", "y"] if "gaussian-bayes" in name else [*columns]
    )
    missing = "category" if name == "aode-missing" else "marginalize"
    curve = learning_curve(name, table, "y", [1, 2, 5, 90], 2, missing=missing)
    # Some refuse a row that has nothing but missing values, and say so; no figure is infinite.
    refusal = r"[12] rows?: .*(missing|no value)"
    assert np.isnan(curve.log_loss).any() == bool(curve.reasons)
    assert not np.isinf(curve.log_loss).any()
    assert np.isfinite(curve.log_loss[0, 2:]).all()
    assert all(re.match(refusal, reason) for reason in curve.reasons.values())
    assert curve.log_loss[0, -1].mean() < np.nanmean(curve.log_loss[0, 0])


@pytest.mark.parametrize("n", [0, 1])
def test_no_rows__are_an_error(n: int) -> None:
    table = pa.table(
        {"x": pa.array([1.0] * n, pa.float64()), "y": pa.array(["a"] * n, pa.string())}
    )
    with pytest.raises(DataError, match=f"{n} rows have a class and a weight above 0"):
        learning_curve("naive-bayes", table, "y")


def test_cautions__are_kept_rather_than_said_again_and_again(recwarn: Any) -> None:
    X, y = numbers()
    y[y == "w"] = "v"
    y[:4] = "w"
    curve = learning_curve("logistic", X, y, [10, 200], 3)
    assert not [one for one in recwarn if issubclass(one.category, fb.FastBayesWarning)]
    (caution,) = curve.cautions.values()
    assert re.match(r"\d fits, 10 rows: class 'w' has no row", caution)
    assert f"logistic: cautions of {caution}" in str(curve)
    assert curve.to_dict()["cautions"] == {"logistic": caution}
    assert np.isfinite(curve.log_loss).all()


def test_warnings_of_others__are_passed_on() -> None:
    class Loud(GaussianNB):
        def fit(self, X: Any, y: Any) -> Any:
            warnings.warn("mind the gap", stacklevel=1)
            return super().fit(X, y)

    with pytest.warns(UserWarning, match="mind the gap"):
        curve = learning_curve(Loud(), *numbers(), [50], 1)
    assert curve.cautions == {}


def test_no_model__is_an_error() -> None:
    X, y = numbers(60)
    with pytest.raises(DataError, match="no model can be fitted: lr: 1 row: This solver"):
        learning_curve({"lr": LogisticRegression()}, X, y, [1], 2)


def test_threads_and_order_of_models__change_no_bit(mixed: pa.Table) -> None:
    names = ["naive-bayes", "tan"]
    a = learning_curve(names, mixed, "y", [50, 300], 2, threads=1)
    b = learning_curve(names[::-1], mixed, "y", [50, 300], 2, threads=3)
    np.testing.assert_array_equal(a.log_loss, b.log_loss[::-1])
    other = learning_curve(names, mixed, "y", [50, 300], 2, seed=1)
    assert (a.log_loss != other.log_loss).all()
    # A size is what it is, whatever the others.
    alone = learning_curve(names[:1], mixed, "y", [300], 2)
    np.testing.assert_allclose(alone.log_loss[0, 0], a.log_loss[0, 1], rtol=1e-12)


def test_memory_limit__counts_each_size_by_itself(mixed: pa.Table, caplog: Any) -> None:
    table = mixed.select(["text", "flag", "code", "y"])
    sizes = [20, 60, 100, 200, 300, 400]
    told: dict[str, Any] = {"categorical": ["code"], "threads": 1}
    free = learning_curve("tan", table, "y", sizes, 1, **told)
    with caplog.at_level("INFO", logger="fastbayes"):
        tight = learning_curve("tan", table, "y", sizes, 1, **told, memory_limit=6_000)
    assert "each size is counted by itself" in caplog.text
    np.testing.assert_array_equal(tight.log_loss, free.log_loss)


def test_memory_limit__changes_no_figure(mixed: pa.Table) -> None:
    free = learning_curve(["naive-bayes", "tan"], mixed, "y", [100, 400], 2, threads=1)
    refused = 0
    for limit in range(1_000, 11_000, 500):
        try:
            tight = learning_curve(
                *(["naive-bayes", "tan"], mixed, "y", [100, 400], 2),
                threads=1,
                memory_limit=limit,
            )
        except fb.MemoryLimitError:
            refused += 1
            continue
        for m, name in enumerate(tight.models):
            if name not in tight.reasons:
                np.testing.assert_allclose(tight.log_loss[m], free.log_loss[m], rtol=1e-12)
    assert refused
    assert not tight.reasons  # the last limit is enough


def test_memory_limit__that_no_model_keeps_is_told_as_such(mixed: pa.Table) -> None:
    least = 1_000
    while True:  # what the domains alone need is refused before
        with pytest.raises(fb.MemoryLimitError) as raised:
            learning_curve("tan", mixed, "y", [100], 1, threads=1, memory_limit=least)
        if "no model can be fitted" in str(raised.value):
            break
        least += 1_000


def test_memory_limit__models_are_scored_before_the_next_are_fitted(
    mixed: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, sizes = ["naive-bayes-bins", "tan", "logistic"], [20, 100, 300]
    free, alone = learning_curve(names, mixed, "y", sizes, 1), list[int]()
    scored = CurveRunner._scored

    def few(runner: CurveRunner, sample: Sample, fitted: Any) -> Any:
        alone.append(len(fitted))
        return scored(runner, sample, fitted)

    monkeypatch.setattr(CurveRunner, "_scored", few)
    monkeypatch.setattr("fastbayes.evaluation.curves.learning_curves.SLACK", 0)
    tight = learning_curve(names, mixed, "y", sizes, 1, memory_limit=1 << 30)
    assert alone == [1] * len(names) * len(sizes) + [0]
    np.testing.assert_allclose(tight.log_loss, free.log_loss, rtol=1e-12)
    np.testing.assert_array_equal(tight.accuracy, free.accuracy)


def test_samples_too_large_to_hold__are_read_again(
    mixed: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(mixed, path, row_group_size=100)
    names = ["naive-bayes-bins", "tan"]
    held = learning_curve(names, str(path), "y", [50, 300], 2)
    monkeypatch.setattr("fastbayes.evaluation.curves.learning_curves.HELD_CELLS", 0)
    again = learning_curve(names, str(path), "y", [50, 300], 2)
    np.testing.assert_allclose(again.log_loss, held.log_loss, rtol=1e-12)


# -- what it says ----------------------------------------------------------------------------------


@pytest.fixture
def curve() -> Any:
    X, y = numbers()
    return learning_curve({"a": fb.NaiveBayes(), "b": fb.GaussianBayes()}, X, y, [30, 90, 240], 5)


def test_table_and_differences(curve: Any) -> None:
    table = curve.table.to_pylist()
    assert [(r["model"], r["size"]) for r in table] == [(m, s) for m in "ab" for s in (30, 90, 240)]
    mean, low, high = curve.interval(curve.log_loss)
    assert [r["log_loss_low"] for r in table] == low.reshape(-1).tolist()
    assert (low < mean).all()
    assert (mean < high).all()
    paired = curve.differences("accuracy").to_pylist()
    assert [(r["model"], r["other"], r["size"]) for r in paired] == [
        ("a", "b", 30), ("a", "b", 90), ("a", "b", 240)
    ]  # fmt: skip
    apart = curve.interval(curve.accuracy[0] - curve.accuracy[1])
    assert [r["difference"] for r in paired] == apart.mean.tolist()
    assert [r["high"] for r in paired] == apart.high.tolist()
    # Paired: the rows of a repeat are easy or hard for both.
    unpaired = np.hypot(*((high - low) / 2))
    loss = curve.differences().to_pylist()
    assert all((r["high"] - r["low"]) / 2 < u for r, u in zip(loss, unpaired, strict=True))
    values = curve.values.to_pylist()
    assert len(values) == 2 * 3 * 5
    assert values[5 + 2]["log_loss"] == curve.log_loss[0, 1, 2]
    assert values[5 + 2]["size"] == 90
    assert curve.figures("b", "brier")[1, 2] == curve.brier[1, 1, 2]
    with pytest.raises(ValueError, match="no model 'c'"):
        curve.figures("c")
    with pytest.raises(
        ValueError, match="metric='auc': use one of 'accuracy', 'log_loss', 'brier'"
    ):
        curve.differences("auc")


def test_json_and_text(curve: Any) -> None:
    told = json.loads(curve.to_json())
    assert told["models"] == ["a", "b"]
    assert told["sizes"] == [30, 90, 240]
    assert told["curves"] == curve.table.to_pylist()
    assert len(told["values"]) == 30
    assert told["differences"]["log_loss"] == curve.differences().to_pylist()
    lines = str(curve).splitlines()
    assert lines[0] == "5 repeats, 60 of 300 rows to test on, 3 classes; intervals of 95%"
    assert len(lines) == 2 + 1 + 6
    assert lines[3].split()[:2] == ["a", "30"]
    X, y = numbers()
    one = learning_curve("naive-bayes", X, y, [50], 1)
    assert str(one).startswith("1 repeat, ")
    assert "±" not in str(one)
    assert json.loads(one.to_json())["curves"][0]["log_loss_low"] is None


def test_plot(curve: Any, tmp_path: Path) -> None:
    figure = curve.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert [line.get_label() for line in axes.lines] == ["a", "b"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), curve.log_loss[1].mean(axis=1))
    low, high = axes.get_ylim()
    means = curve.log_loss.mean(axis=2)
    assert low < means.min() < means.max() < high < 3 * means.max()
    with pytest.raises(DataError, match=r"curve\.png"):
        curve.plot(tmp_path / "curve.png")
    curve.plot(tmp_path / "curve.png", metric="accuracy", force=True)
    assert "matplotlib.pyplot" not in sys.modules


def test_plot__without_matplotlib(curve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FastBayesError, match=r"install fastbayes\[plot\]"):
        curve.plot()


# -- what is refused -------------------------------------------------------------------------------


def test_sizes__by_default_and_as_shares() -> None:
    X, y = numbers(400)
    curve = learning_curve("naive-bayes", X, y, repeats=1)
    assert curve.sizes[[0, -1]].tolist() == [10, 320]
    assert len(curve.sizes) == 8
    ratios = curve.sizes[1:] / curve.sizes[:-1]
    assert ratios.max() < 1.3 * ratios.min()
    shares = learning_curve("naive-bayes", X, y, [0.25, 0.5, 7], 1, test=0.5)
    assert shares.sizes.tolist() == [7, 50, 100]
    assert shares.test_rows == 200
    every = learning_curve("naive-bayes", X, y, np.array([0.5, 1.0]), 1)
    assert every.sizes.tolist() == [160, 320]
    assert learning_curve("naive-bayes", X, y, [1, 2], 1).sizes.tolist() == [1, 2]
    tiny = learning_curve("naive-bayes", X[:5], y[:5], repeats=1)
    assert (tiny.sizes.tolist(), tiny.test_rows) == ([4], 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sizes": [10, 300]}, "there are 240 rows to learn from, not 300: 60 of 300 are tested"),
        ({"sizes": [0]}, "sizes: 0 is neither"),
        ({"sizes": [2.5]}, "sizes: 2.5 is neither"),
        ({"sizes": [True]}, "sizes: True is neither"),
        ({"sizes": [float("nan")]}, "sizes: nan is neither"),
        ({"sizes": []}, "sizes: name one"),
        ({"repeats": 0}, "repeats=0: use a whole number"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"test": 300}, "test=300 keeps 300 of 300 rows"),
        ({"test": 0}, "test=0: use a number of rows"),
        ({"test": "a"}, "test='a'"),
        ({"confidence": 95}, "confidence=95"),
        ({"models": []}, "models: name one"),
        ({"models": ["naive"]}, "models: 'naive': use one of"),
        ({"models": [fb.NaiveBayes]}, "neither a name nor an unfitted model"),
        ({"models": ["tan", "tan"]}, "models: 'tan' stands twice"),
        ({"models": [fb.NaiveBayes(alpha=-1)]}, "alpha"),
        ({"models": ["naive-bayes-bins"], "discretize": "width"}, "'naive-bayes-bins' is cut by"),
    ],
)
def test_refused(wrong: dict[str, Any], said: str) -> None:
    X, y = numbers()
    told = {"models": "naive-bayes", **wrong}
    with pytest.raises(ValueError, match=said):
        learning_curve(told.pop("models"), X, y, **told)


def test_refused__no_column_besides_the_target() -> None:
    with pytest.raises(fb.DataError, match="no column besides the target"):
        learning_curve(["naive-bayes", "logistic"], {"y": [*"np"] * 20}, "y", sizes=[10])


def test_refused__no_probabilities() -> None:
    class Margin:
        def fit(self, X: Any, y: Any) -> None: ...

    with pytest.raises(ValueError, match="Margin has no predict_proba"):
        learning_curve(Margin(), *numbers())


def test_refused__other_ways_of_reading() -> None:
    X, y = numbers()
    with pytest.raises(SchemaError, match=r"read the rows alike"):
        learning_curve(fb.NaiveBayes(missing="category"), X, y)
    both = learning_curve(fb.NaiveBayes(missing="category"), X, y, [9], 1, missing="category")
    assert np.isfinite(both.log_loss).all()
    batches = iter([pa.record_batch({"x": [1.0, 2.0], "y": ["a", "b"]})])
    with pytest.raises(SchemaError, match="can be read only once"):
        learning_curve("naive-bayes", batches, "y")


def test_names__are_those_of_compare(mixed: pa.Table) -> None:
    models = {"tan-quantile": "tan-quantile", "as it is": fb.TAN(discretize=("quantile", 5))}
    curve = fb.learning_curve(models, mixed, "y", sizes=[150], repeats=2)
    np.testing.assert_array_equal(*curve.log_loss)
    with pytest.raises(SchemaError, match="ask for that with missing='category'"):
        fb.learning_curve(["aode-missing"], mixed, "y", sizes=[150], repeats=2)
    asked = {"sizes": [150], "repeats": 2, "missing": "category"}
    curve = fb.learning_curve(["aode", "aode-missing"], mixed, "y", **asked)
    np.testing.assert_array_equal(*curve.log_loss)
