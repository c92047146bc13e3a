"""Models that a sample shows to lose are dropped, and nothing else changes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.evaluation.validate import comparison, race, scoring
from fastbayes.evaluation.validate.race import WORST, evidence
from fastbayes.scan.opening import opened_to_learn

N = 16_384
FLAT = fb.NaiveBayes(alpha=1e9)  # says little more than the prior
MODELS = {"flat": FLAT, "naive": "naive-bayes", "tan": "tan", "joint": "joint-bayes"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows race."""
    monkeypatch.setattr(race, "LEAST_ROWS", 8192)
    monkeypatch.setattr(race, "FIRST_ROWS", 512)


def rows(seed: int, n: int = N, *, weights: Any = None, numeric: bool = False) -> pa.Table:
    """Return rows whose columns tell the class, some of them in pairs, sorted by the class."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, 3, n))
    columns: dict[str, Any] = {}
    for j in range(4):
        told = rng.random(n) < rng.uniform(0.6, 0.95)
        columns[f"x{j}"] = np.where(told, y, rng.integers(0, 4, n))
    columns["both"] = columns["x0"] ^ rng.integers(0, 2, n)
    if numeric:
        columns["z"] = y * rng.uniform(0, 3) + rng.normal(size=n)
    columns["y"] = np.array(["no", "so so", "yes"])[y]
    table = pa.table({n: pa.array(c) for n, c in columns.items()})
    for j in range(5):
        name = table.column_names[j]
        table = table.set_column(j, name, table[name].cast(pa.string()).dictionary_encode())
    if weights is not None:
        table = table.append_column("w", pa.array(rng.choice(weights, n)))
    return table


def compare(table: Any, **options: Any) -> Any:
    options.setdefault("models", MODELS)
    weight = "w" if isinstance(table, pa.Table) and "w" in table.column_names else None
    return fb.compare(table, "y", sample_weight=weight, **options)


def figures(entry: Any) -> dict[str, Any]:
    """Return what is known of an entry but for seconds."""
    told: dict[str, Any] = entry.to_dict()
    for name in ("fit_seconds", "predict_seconds"):
        del told[name]
    return told | {"of": entry.figures and entry.figures.to_dict()}


def dropped(result: Any) -> list[str]:
    return [entry.name for entry in result.entries if entry.dropped]


@pytest.mark.parametrize("weights", [None, (0.0, 0.3, 1.0, 2.5)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"folds": 3},
        {"folds": 3, "numeric": True},
        {"numeric": True},
        {"loss": 1 - np.eye(3), "folds": "x3"},
    ],
    ids=str,
)
def test_survivors__have_the_figures_of_all_rows(options: dict[str, Any], weights: Any) -> None:
    options = dict(options)
    table = rows(1, 4 * N, weights=weights, numeric=options.pop("numeric", False))
    raced = compare(table, **options)
    everything = compare(table, race=False, **options)
    assert "flat" in dropped(raced)
    assert not dropped(everything)
    assert raced.best.name == everything.best.name
    for entry in raced.entries:
        whole = everything[entry.name]
        if entry.dropped:
            assert whole.figures.log_loss > everything.best.figures.log_loss
            assert entry.parameters == whole.parameters
            assert entry.memory == whole.memory
        else:
            assert figures(entry) == figures(whole)
    assert "race" in raced.seconds
    assert "race" not in everything.seconds


@pytest.mark.parametrize("seed", range(25))
def test_winner__is_that_of_all_rows(seed: int) -> None:
    table = rows(seed, 8192 + 512 * seed)
    raced, everything = compare(table), compare(table, race=False)
    assert raced.best.name == everything.best.name
    assert figures(raced.best) == figures(everything.best)
    assert raced.best.model is not None


def test_threads_and_repeats__change_nothing() -> None:
    table = rows(2, numeric=True)
    for options in ({}, {"folds": 4}):
        one = compare(table, threads=1, **options)
        for other in (compare(table, threads=3, **options), compare(table, **options)):
            assert [figures(e) for e in other.entries] == [figures(e) for e in one.entries]
            assert dropped(one)


def test_dropped_models__are_listed_with_what_is_known() -> None:
    result = compare(rows(3))
    flat = result["flat"]
    assert flat.model is None
    assert not flat.winner
    assert flat.figures.n in (512, 1024, 2048)
    assert math.isnan(flat.figures.auc)
    assert f"dropped after {flat.figures.n:,} rows: its log-loss is " in flat.dropped
    assert flat.dropped in str(flat)
    names = [entry.name for entry in result.entries]
    assert set(names[-len(dropped(result)) :]) == set(dropped(result))
    lines = str(result).splitlines()
    assert lines[2].split()[-2:] == ["parameters", "rows"]
    assert lines[3].endswith(f"{N:,}")
    assert f"  flat: {flat.dropped}" in lines
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    (listed,) = (m for m in told["models"] if m["model"] == "flat")
    assert (listed["rows"], listed["auc"]) == (flat.figures.n, None)
    assert listed["dropped"] == flat.dropped
    assert listed["reason"] is None
    best = result.table.to_pylist()[0]
    assert (best["rows"], best["dropped"]) == (N, None)
    assert result.table.to_pylist()[-1]["dropped"] == result.entries[-1].dropped


def test_the_sample__is_of_rows_that_take_part_from_everywhere() -> None:
    table = rows(4, 2 * N, weights=(0.0, 1.0))
    missing = np.arange(2 * N) % 7 == 0
    labels = pa.array(table["y"].to_pylist(), mask=missing)
    table = table.set_column(table.column_names.index("y"), "y", labels)
    opened = opened_to_learn(table, "y", sample_weight="w")
    stats = fb.count(table, "y", sample_weight="w")
    found = race.race_sample(opened, stats, 2, None, None)
    assert found is not None
    assert found.n_rows == stats.n_rows  # the others weigh nothing
    assert found.table.num_rows == 1024
    assert found.heaviest == 1.0
    assert found.table["y"].null_count == 0
    assert set(found.table["w"].to_pylist()) == {1.0}
    counts = found.table["y"].value_counts().field("counts").to_numpy()
    np.testing.assert_allclose(counts / 1024, 1 / 3, atol=0.1)  # sorted by class as they are


@pytest.mark.parametrize("folds", [None, "x3"])
def test_files__race_like_tables(folds: str | None, tmp_path: Path) -> None:
    table = rows(9, numeric=True)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=5000)
    csv.write_csv(table, tmp_path / "t.csv")
    # Folds by place are those of a file's own segments.
    options = {} if folds else {"validation": "leave_one_out"}
    held = compare(table, folds=folds, **options)
    assert dropped(held)
    names = [name for name in table.column_names[:5] if name != folds]
    given: dict[str, Any] = {"categorical": names, "folds": folds}
    for name in ("t.parquet", "t.csv"):
        read = compare(str(tmp_path / name), **given, **options)
        for mine, theirs in zip(read.entries, held.entries, strict=True):
            assert mine.name == theirs.name
            assert bool(mine.dropped) == bool(theirs.dropped)
            assert mine.figures.n == theirs.figures.n
            assert mine.figures.log_loss == pytest.approx(theirs.figures.log_loss, rel=1e-9)


def test_few_rows_or_one_model__do_not_race(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = compare(rows(5), models="tan")
    few = compare(rows(5, 8000))
    unlabelled = rows(5, 8400)
    gap = pa.array(unlabelled["y"].to_pylist(), mask=np.arange(8400) % 2 == 0)
    unlabelled = unlabelled.set_column(unlabelled.column_names.index("y"), "y", gap)
    monkeypatch.setattr(race, "MOST_CELLS", 512 * 5)
    wide = compare(rows(5))
    for result in (alone, few, compare(unlabelled), wide):
        assert "race" not in result.seconds
        assert not dropped(result)
        assert "rows" not in str(result).splitlines()[2].split()


def test_a_survivor_that_fails_later__loses_none_who_lost_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scored = []

    def failing(source: Any, parts: Any, contestants: Any, **options: Any) -> Any:
        result = scoring.scores(source, parts, contestants, **options)
        contestants[0].error = fb.DataError("no answer to some row")
        scored.append(len(contestants))
        return result

    monkeypatch.setattr(comparison, "scores", failing)
    table, models = rows(6), {"tan": "tan", "naive": "naive-bayes", "flat": FLAT}
    result = compare(table, models=models)
    assert scored == [2, 3]  # flat was dropped, and then scored after all
    assert result["tan"].reason == "no answer to some row"
    everything = compare(table, models=models, race=False)
    assert [figures(e) for e in result.entries] == [figures(e) for e in everything.entries]
    assert result.best.name == "naive"


def test_evidence__errs_as_seldom_as_it_says() -> None:
    """Of populations of mean 0 the bets win 1/p in at most p of the draws; of others, they win."""
    rng = np.random.default_rng(7)
    n_rows, trials = 2000, 400
    for make in (
        lambda: rng.normal(size=n_rows),
        lambda: np.where(np.arange(n_rows) < 4, -30.0, 0.06),  # rare and grave
        lambda: np.sign(np.arange(n_rows) % 2 - 0.5),
    ):
        found = []
        for _ in range(trials):
            gaps = np.clip(rng.permutation(make()), -WORST, WORST)
            gaps -= gaps.mean()
            found.append(evidence(gaps[:1000], WORST + 1, n_rows))
        for p in (0.5, 0.2, 0.05):
            assert np.mean(np.array(found) >= math.log(1 / p)) <= p + 3 * math.sqrt(p / trials)
    assert evidence(rng.normal(1.0, 1.0, 1000), WORST, n_rows) > math.log(1e3)
    assert evidence(np.full(10, -1.0), WORST, n_rows) < 0


def test_evidence__is_what_the_bets_win_row_by_row() -> None:
    rng = np.random.default_rng(8)
    gaps, n_rows, bound = rng.normal(0.3, 1.0, 50), 400, 5.0
    most = 0.0
    wealth = np.ones(len(race.BETS))
    for t, gap in enumerate(gaps):
        rest = -gaps[:t].sum() / (n_rows - t)
        wealth *= 1 + race.BETS * (gap - rest) / (bound + max(rest, 0.0))
        most = max(most, wealth.mean())
    assert evidence(gaps, bound, n_rows) == pytest.approx(math.log(most), rel=1e-12)
