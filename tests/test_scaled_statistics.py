"""Statistics times a number: forgetting, rebalanced classes, merged bootstrap replicates.

Scaling is weighing (§2: weights multiply counts; pseudo-counts and thresholds are in weight units),
so each use is held against a fit of the same rows with weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close

import fastbayes as fb
from fastbayes.statistics.bundle import Statistics

N_ROWS = 400
MODELS = {
    "NaiveBayes": lambda: fb.NaiveBayes(categorical=["a", "b", "c"]),
    "NaiveBayes, average": lambda: fb.NaiveBayes(
        categorical=["a", "b", "c"], feature_averaging=True
    ),
    "SPODE": lambda: fb.SPODE(categorical=["a", "b", "c"]),
    "TAN": lambda: fb.TAN(categorical=["a", "b", "c"]),
    "AODE": lambda: fb.AODE(
        categorical=["a", "b", "c"], weights="mutual_information", subsumption=20, min_count=3
    ),
    "A2DE": lambda: fb.A2DE(categorical=["a", "b", "c"], subsumption=20, min_count=2),
}


@pytest.fixture
def table() -> pa.Table:
    rng = np.random.default_rng(11)
    a = rng.integers(0, 6, N_ROWS)
    b = np.where(rng.random(N_ROWS) < 0.7, a // 2, rng.integers(0, 3, N_ROWS))
    c = pa.array(rng.integers(0, 4, N_ROWS), mask=rng.random(N_ROWS) < 0.1)
    y = np.array(["ant", "bee", "cat"])[np.minimum((a + rng.integers(0, 3, N_ROWS)) // 3, 2)]
    return pa.table({"a": a, "b": b, "c": c, "y": y})


@pytest.fixture(params=MODELS)
def make(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]


def counted(make: Any, rows: pa.Table, weight: Any = None) -> Statistics:
    stats: Statistics = make().fit(rows, "y", sample_weight=weight).statistics_
    return stats


def same(make: Any, stats: Statistics, table: pa.Table, weight: Any) -> None:
    """The model of these statistics is that of the rows with these weights."""
    rows = table.filter(pa.array(np.asarray(weight) > 0))
    weighed = make().fit(table, "y", sample_weight=weight)
    scaled = make().fit_statistics(stats)
    assert scaled.statistics_.allclose(weighed.statistics_)
    features = rows.drop_columns(["y"])
    close(scaled.log_joint(features), weighed.log_joint(features))
    close(scaled.predict_proba(features), weighed.predict_proba(features))


def test_forgetting__old_rows_count_less(make: Any, table: pa.Table) -> None:
    """Each day 0.9 of what was known, and the new rows: a row d days old weighs 0.9^d."""
    known = counted(make, table.slice(0, 100))
    for day in (100, 200, 300):
        known = known * 0.9 + counted(make, table.slice(day, 100))
    same(make, known, table, np.repeat(0.9 ** np.array([3, 2, 1, 0]), 100))


def test_forgetting__a_window_slides_exactly(make: Any, table: pa.Table) -> None:
    """Whole rows come and go without a trace; scaled ones to rounding."""
    parts = [counted(make, table.slice(at, 100)) for at in (0, 100, 200)]
    assert parts[0] + parts[1] + parts[2] - parts[0] == parts[1] + parts[2]
    scaled = [part * 0.3 for part in parts]
    left = scaled[0] + scaled[1] + scaled[2] - scaled[0]
    assert left.allclose(scaled[1] + scaled[2], 1e-9)


def test_rebalancing__classes_counted_apart_weigh_alike(make: Any, table: pa.Table) -> None:
    labels = np.array(table["y"].to_pylist())
    names, each = np.unique(labels, return_counts=True)
    factor = dict(zip(names.tolist(), (each.mean() / each).tolist(), strict=True))
    with pytest.warns(fb.FastBayesWarning, match="only one class"):
        parts = [counted(make, table.filter(pa.array(labels == c))) * f for c, f in factor.items()]
    balanced = sum(parts)
    close(balanced.values.class_counts, np.full(len(names), each.mean()))
    same(make, balanced, table, [factor[c] for c in labels])


def test_bootstrap__replicates_merge_to_their_mean(make: Any, table: pa.Table) -> None:
    """Replicates are weights; their mean is the statistic of the mean weights."""
    rng = np.random.default_rng(5)
    drawn = rng.multinomial(N_ROWS, np.full(N_ROWS, 1 / N_ROWS), size=8)
    replicates = [counted(make, table, w.astype(float)) for w in drawn]
    for replicate, w in zip(replicates, drawn, strict=True):
        repeated = counted(make, table.take(pa.array(np.repeat(np.arange(N_ROWS), w))))
        assert replicate.allclose(repeated)
    mean = sum(replicates) * (1 / 8)
    assert mean.n_rows == pytest.approx(N_ROWS)
    same(make, mean, table, drawn.mean(axis=0))


def test_scaling__by_one_two_and_nothing(make: Any, table: pa.Table) -> None:
    stats = counted(make, table)
    assert stats * 1 == stats
    assert 2 * stats == stats + stats
    assert (stats * 0).n_rows == 0
    assert stats * 0 + stats == stats
    for factor in (-1, np.nan, np.inf, "2"):
        with pytest.raises(ValueError, match="finite number >= 0"):
            stats * factor


@pytest.mark.parametrize("kernels", ["never", "always"])
@pytest.mark.parametrize("options", [{}, {"scatter": True}, {"cell_scatter": True}], ids=str)
def test_squares_that_overflow__are_equal_to_themselves_and_come_back_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernels: str, options: dict[str, bool]
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
    table = {
        "a": [1e200, -1e200, 5e199, 3.0, 1e300, -2e300],
        "b": [1.0, 2.0, 4.0, 1e200, -1e200, 0.0],
        "c": list("ppqqpp"),
        "y": list("ababab"),
    }
    stats = fb.count(table, "y", **options)
    assert stats == fb.count(table, "y", **options)
    stats.save(tmp_path / "s.fbs")
    assert fb.Statistics.load(tmp_path / "s.fbs") == stats
    assert stats.allclose(stats)
    assert (stats + stats).n_rows == 12
    with pytest.raises(fb.DataError, match="column 'a': squares of its values overflow"):
        fb.NaiveBayes().fit(table, "y")
