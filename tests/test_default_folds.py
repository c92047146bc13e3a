"""How many folds `compare` and `Blend` take where nothing is said: more of fewer rows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import fastbayes as fb
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.data.folds import (
    FEW_OF_BLEND,
    FOLDS,
    MANY_ROWS,
    FoldsByClass,
    FoldsByPlace,
    folds_for,
)
from fastbayes.data.source import open_source

MODELS = ["naive-bayes", "tan"]


def rows(n: int) -> pa.Table:
    rng = np.random.default_rng(n)
    y = rng.integers(0, 2, n)
    a = np.where(rng.random(n) < 0.8, y, 1 - y)
    return pa.table({"a": a.astype(str), "b": rng.choice(list("uvw"), n), "y": y.astype(str)})


def test_folds_for__are_more_of_fewer_rows_and_hold_a_row_each() -> None:
    found = [folds_for(n) for n in range(2, MANY_ROWS + 2)]
    assert all(k >= after for k, after in pairwise(found[19:]))
    assert folds_for(10**9) == folds_for(MANY_ROWS) == FOLDS
    assert {*found[19:]} == {20, 10, 5}
    assert [folds_for(n, few=FEW_OF_BLEND) for n in (20, 100, 101, 300, 301)] == [10, 20, 10, 10, 5]
    # Not so many that it takes long, and not so few that models miss many rows.
    assert folds_for(0) == folds_for(1) == 2


@pytest.mark.parametrize("n", [14, 101, 1_001])
def test_files__have_the_folds_of_a_table(n: int, tmp_path: Path) -> None:
    """A file of text does not tell its number of rows beforehand."""
    table, path = rows(n), tmp_path / "rows.csv"
    pa.csv.write_csv(table, path)
    k = folds_for(n, list(Counter(table["y"].to_pylist()).values()))
    for source in (table, str(path)):
        board = fb.compare(source, "y", models=MODELS)
        assert board.best.scored == f"{k} folds"
        if n <= 101:
            assert fb.fit(source, "y", members=MODELS).n_folds_ == k


def test_blend__keeps_the_number_of_folds(tmp_path: Path) -> None:
    table = rows(60)
    for folds in (None, 3):
        model = fb.Blend(MODELS, folds=folds).fit(table, "y")
        assert model.n_folds_ == (folds or folds_for(60))
        model.save(tmp_path / f"{folds}.fb")
        again = fb.load(tmp_path / f"{folds}.fb")
        assert (again.folds, again.n_folds_) == (folds, model.n_folds_)
    # Files of before had a number of folds, and no other.
    header, arrays = model.state()
    del header["n_folds"]
    old = fb.Blend.from_state({**model.get_params(), "folds": 5}, header, arrays, "old.fb")
    assert old.n_folds_ == 5
    board = fb.compare(table, "y", models=MODELS, folds=4)
    assert board.blend().n_folds_ == 4
    alone = fb.compare(table, "y", models=MODELS, validation="leave_one_out")
    assert alone.blend().n_folds_ == folds_for(60) == 20


LABELS = {
    "text": pa.array([*"aab"] * 20 + [*"cccc"]),
    "dictionary": pa.array([*"aab"] * 20 + [*"cccc"]).dictionary_encode(),
    # As polars hands over its Enum and Categorical.
    "dictionary of views": pa.DictionaryArray.from_arrays(
        [*[0, 0, 1] * 20, 2, 2, 2, 2], pa.array([*"abc"], pa.string_view())
    ),
    "numbers": pa.array([*[3, 3, 7] * 20, 1, 1, 1, 1]),
    "gaps": pa.array([*[True, True, False] * 20, *[None] * 4]),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("k", [2, 7, 20, 64])
def test_folds_by_class__share_each_class_and_all_rows_out(labels: str, k: int) -> None:
    """No two folds differ by more than a row, of all rows or of a class, whatever the pieces."""
    column = LABELS[labels]
    table = pa.table({"y": pa.chunked_array([column[:10], column[10:11], column[11:]])})
    source, found = open_source(table), []
    folds = FoldsByClass.dealt(source, "y", k)
    for segment in source.segments(BLOCK_ROWS):
        done = 0
        for block in segment.batches():
            found += folds.of(segment, done, block).tolist()
            done += block.num_rows
    assert folds.names() == ([*range(k)], tuple(map(str, range(k))))
    for own in (None, *set(column.to_pylist())):
        some = [f for f, y in zip(found, column.to_pylist(), strict=True) if own in (None, y)]
        counts = np.bincount(some, minlength=k)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("lacking", ["weight", "class"])
def test_rows_that_take_no_part__change_no_fold(lacking: str) -> None:
    table = rows(300)
    part = np.random.default_rng(5).random(300) < 0.3
    kept = table.filter(pa.array(part))
    if lacking == "weight":
        table, weight = table.append_column("w", pa.array(part.astype(float))), "w"
    else:
        y = pa.array(table["y"].to_pylist(), mask=~part)
        table, weight = table.set_column(2, "y", y), None
    found = fb.fit(table, "y", sample_weight=weight, members=MODELS)
    expected = fb.fit(kept, "y", members=MODELS)
    assert found.n_folds_ == expected.n_folds_ == 20
    assert found.member_log_loss_ == pytest.approx(expected.member_log_loss_, rel=1e-12)
    assert fb.compare(table, "y", sample_weight=weight, models=MODELS).best.scored == "20 folds"
    scores = fb.k_fold(fb.NaiveBayes(), table, "y", sample_weight=weight, folds=4)
    assert scores.log_loss == pytest.approx(
        fb.k_fold(fb.NaiveBayes(), kept, "y", folds=4).log_loss, rel=1e-12
    )


def test_folds_by_class__are_in_no_order_of_the_rows_and_repeat_by_the_seed() -> None:
    source = open_source(pa.table({"y": ["a"] * 90 + ["b"] * 10}))
    (segment,) = source.segments(BLOCK_ROWS)
    (block,) = segment.batches()
    found = [FoldsByClass.dealt(source, "y", 10, seed).of(segment, 0, block) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()
    assert sorted(found[0][90:]) == [*range(10)]
    assert abs(np.corrcoef(found[0][:90], np.arange(90))[0, 1]) < 0.25


@pytest.mark.parametrize(("n", "by_class"), [(60, True), (MANY_ROWS - 1, True), (MANY_ROWS, False)])
def test_folds__of_few_rows_are_by_class(n: int, by_class: bool) -> None:
    for k in (None, 4):
        folds = fb.Blend(folds=k).apart(open_source(rows(n)), "y")
        assert type(folds) is (FoldsByClass if by_class else FoldsByPlace)
        assert len(folds.names()[0]) == (k or folds_for(n, few=FEW_OF_BLEND))


@pytest.mark.parametrize(
    ("classes", "k"),
    [
        ([5, 5], 5),
        ([9, 5], 5),
        ([10, 10], 10),
        ([20], 10),
        ([17, 2], 3),  # no fewer
        ([6, 6, 1], 6),  # a class of one row is in one fold, whatever their number
        ([1, 1], 2),
        ([1] * 15, 10),
        ([2, 19], 20),  # more rows: one more or less says little
    ],
)
def test_fewest_rows__have_no_more_folds_than_the_smallest_class_has_rows(
    classes: list[int], k: int
) -> None:
    table = pa.table({"y": [str(c) for c, n in enumerate(classes) for _ in range(n)]})
    source = open_source(table)
    for folds in (FoldsByClass.dealt(source, "y"), fb.Blend().apart(source, "y")):
        assert len(folds.names()[0]) == k


def test_fewest_rows__of_random_labels_are_not_told_apart() -> None:
    """A row that alone is left out is of the class that is smaller without it."""
    gains, right = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        table = {f"c{i}": rng.integers(0, 3, 10).astype(str) for i in range(100)}
        table["y"] = rng.permutation([*"pqpqpqpqpq"])
        board = fb.compare(table, "y", models=["prior", "aode", "tan"])
        gains.append(board["prior"].figures.log_loss - board.best.figures.log_loss)
        right += [board[name].figures.accuracy for name in ("aode", "tan")]
    assert np.mean(gains) < 0.1
    assert 0.25 < np.mean(right) < 0.75


def test_few_rows__are_judged_as_of_almost_all_of_them() -> None:
    """Models without a fold have fewer rows than the one that is judged, and seem worse."""
    names, gaps = ["naive-bayes", "tan", "logistic"], {None: [], 5: []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 3, 2_030)
        hit = rng.random((8, len(y))) < 0.5
        columns = np.where(hit, y, rng.integers(0, 3, hit.shape)).astype(str)
        table = pa.table({**{f"c{j}": x for j, x in enumerate(columns)}, "y": y.astype(str)})
        some, new = table.slice(0, 30), table.slice(30)
        for folds, found in gaps.items():
            board = fb.compare(some, "y", models=names, folds=folds)
            found += [
                fb.evaluate(getattr(e.model, "model_", e.model), new).log_loss - e.figures.log_loss
                for e in board.entries
            ]
    assert abs(np.mean(gaps[None])) < abs(np.mean(gaps[5]))
