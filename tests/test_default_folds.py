"""How many folds `compare` and `Blend` take where nothing is said: more of fewer rows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import fastbayes as fb
from fastbayes.data.folds import FOLDS, MANY_ROWS, folds_for

MODELS = ["naive-bayes", "tan"]


def rows(n: int) -> pa.Table:
    rng = np.random.default_rng(n)
    y = rng.integers(0, 2, n)
    a = np.where(rng.random(n) < 0.8, y, 1 - y)
    return pa.table({"a": a.astype(str), "b": rng.choice(list("uvw"), n), "y": y.astype(str)})


def test_folds_for__are_more_of_fewer_rows_and_hold_a_row_each() -> None:
    found = [folds_for(n) for n in range(2, MANY_ROWS + 2)]
    assert found[:19] == [*range(2, 21)]  # each row by itself
    assert all(k >= after for k, after in pairwise(found[18:]))
    assert folds_for(10**9) == folds_for(MANY_ROWS) == FOLDS
    assert {*found[18:]} == {20, 10, 5}
    # Not so many that it takes long, and not so few that models miss many rows.
    assert folds_for(0) == folds_for(1) == 2


@pytest.mark.parametrize("n", [14, 101, 1_001])
def test_files__have_the_folds_of_a_table(n: int, tmp_path: Path) -> None:
    """A file of text does not tell its number of rows beforehand."""
    table, path = rows(n), tmp_path / "rows.csv"
    pa.csv.write_csv(table, path)
    for source in (table, str(path)):
        board = fb.compare(source, "y", models=MODELS)
        assert board.best.scored == f"{folds_for(n)} folds"
        if n <= 101:
            assert fb.fit(source, "y", members=MODELS).n_folds_ == folds_for(n)


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
    assert alone.blend().n_folds_ == folds_for(60) == 10


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
