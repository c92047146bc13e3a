"""Sketches of numbers within classes: beyond what is held exactly, bounds, retraction, files.

The laws of every statistic are in `test_statistics_laws`, on few values.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from making import batch_of, shape_of

import fastbayes as fb
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import FoldsByColumn
from fastbayes.data.source import open_source
from fastbayes.scan import engine
from fastbayes.scan.fold_statistics import others
from fastbayes.statistics import ClassSketches
from fastbayes.statistics.base import Room
from fastbayes.statistics.class_sketches import GREATEST_WEIGHT, LIMIT

SHAPE = shape_of([], 1, 2)
MANY = 3 * LIMIT
RNG = np.random.default_rng(8)
VALUES = np.where(RNG.random(MANY) < 0.05, np.nan, RNG.standard_cauchy(MANY) * 7)
CLASSES = RNG.integers(0, 2, MANY)


def sketch(values: Any, classes: Any, weight: Any = None) -> ClassSketches:
    result = ClassSketches.zeros(SHAPE)
    result.update(batch_of(SHAPE, [], np.asarray(classes), [np.asarray(values)], weight))
    return result


def test_ranges__hold_every_value_and_all_the_weight(kernels: str) -> None:
    found = sketch(VALUES, CLASSES)
    for c in range(2):
        rows = np.equal(CLASSES, c) & ~np.isnan(VALUES)
        mine = np.sort(VALUES[rows])
        held = found.of(0, c)
        assert not held.exact
        assert LIMIT // 4 < len(held.least) <= LIMIT
        assert (held.least[1:] > held.greatest[:-1]).all()
        at = np.searchsorted(held.least, mine, side="right") - 1
        assert (mine >= held.least[at]).all()
        assert (mine <= held.greatest[at]).all()
        np.testing.assert_array_equal(np.bincount(at), held.weight)
        # A range is a small share of the numbers in it.
        assert np.median((held.greatest - held.least) / np.abs(held.least)) < 0.02


def test_few_values__are_held_exactly(kernels: str) -> None:
    values = np.round(VALUES[:LIMIT], 1)
    held = sketch(values, CLASSES[:LIMIT]).of(0, 1)
    expected, n = np.unique(values[(CLASSES[:LIMIT] == 1) & ~np.isnan(values)], return_counts=True)
    assert held.exact
    np.testing.assert_array_equal(held.least, expected)
    np.testing.assert_array_equal(held.greatest, expected)
    np.testing.assert_array_equal(held.weight, n)


def test_ranges__that_classes_have_in_common(kernels: str) -> None:
    # One class is held exactly, the other one in ranges.
    classes = (np.arange(MANY) > 500).astype(int)
    found = sketch(VALUES, classes)
    assert [found.of(0, c).exact for c in range(2)] == [True, False]
    least, greatest, weight = found.together(0)
    assert (least[1:] > greatest[:-1]).all()
    assert (weight.sum(axis=1) > 0).all()
    for c in range(2):
        mine = VALUES[(classes == c) & ~np.isnan(VALUES)]
        at = np.searchsorted(least, mine, side="right") - 1
        assert ((mine >= least[at]) & (mine <= greatest[at])).all()
        np.testing.assert_array_equal(np.bincount(at, minlength=len(least)), weight[:, c])
    none = sketch([np.nan], [0]).together(0)
    assert [part.shape for part in none] == [(0,), (0,), (0, 2)]


def test_ranges__of_many_classes_are_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sketch(VALUES, CLASSES)
    monkeypatch.setattr("fastbayes.statistics.class_sketches.MOST_WEIGHTS", 600)
    least, greatest, weight = found.together(0)
    assert 100 < len(least) <= 300
    assert (least[1:] > greatest[:-1]).all()
    for c in range(2):
        assert weight[:, c].sum() == np.count_nonzero(np.equal(CLASSES, c) & ~np.isnan(VALUES))


def test_parts__add_up_to_the_sketch_of_all_in_any_order(kernels: str) -> None:
    weight = RNG.integers(0, 4, MANY) / 4
    whole = sketch(VALUES, CLASSES, weight)
    pieces = np.array_split(np.arange(MANY), [100, 5_000, 5_001])
    parts = [sketch(VALUES[i], CLASSES[i], weight[i]) for i in pieces]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        total = sum((parts[i] for i in order[1:]), start=parts[order[0]])
        assert total == whole
    assert sum(whole.of(0, c).weight.sum() for c in range(2)) == pytest.approx(
        weight[~np.isnan(VALUES)].sum(), rel=1e-12
    )


def test_twins__make_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for choice in ("always", "never"):
        monkeypatch.setenv("FASTBAYES_KERNELS", choice)
        found.append(sketch(VALUES, CLASSES))
    assert found[0] == found[1]
    mixed = found[0] + found[1]
    assert mixed == found[1] + found[0]
    assert mixed == found[1] + found[1]


def test_retraction__of_ranges_is_refused() -> None:
    table = pa.table({"x": VALUES, "y": np.array(["a", "b"])[CLASSES]})
    both, half = counted(table), counted(table.slice(0, 2_000))
    with pytest.raises(fb.DataError, match="column 'x', class 'a': more than 4,096 values are"):
        both - half
    with pytest.raises(fb.DataError, match="never added"):
        half - counted(table.slice(2_000, 2))
    left = half - counted(table.slice(0, 500))
    assert left.sketches == counted(table.slice(500, 1_500)).sketches


def counted(table: pa.Table, **options: Any) -> fb.Statistics:
    encoder = Encoder.learning(table.schema, "y", weight=options.pop("weight", None))
    wanted = ("values", "moments", "sketches")
    return engine.scan(open_source(table), encoder, wanted, **options)


def test_folds__those_of_the_others_are_what_their_rows_give() -> None:
    table = pa.table({"x": VALUES, "y": np.array(["a", "b"])[CLASSES]})
    fold = RNG.integers(0, 3, MANY)
    joined = table.append_column("fold", pa.array(fold))
    encoder = Encoder.learning(table.schema, "y")
    apart = FoldsByColumn(joined.schema, "fold")
    stats = engine.scan(open_source(joined), encoder, ("values", "sketches"), folds=apart)
    assert stats.sketches == counted(table).sketches
    for f in range(3):
        rest = table.filter(pa.array(fold != f))
        assert others(stats, f).sketches == counted(rest).sketches


def test_files__and_pickles_give_it_back(tmp_path: Path) -> None:
    table = pa.table({"x": VALUES, "w": RNG.random(MANY), "y": np.array(["a", "b"])[CLASSES]})
    stats = counted(table, weight="w")
    stats.save(tmp_path / "s.fbs")
    assert fb.Statistics.load(tmp_path / "s.fbs") == stats
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert stats.sketches.nbytes < 2 * LIMIT * 32 + 1_000
    with pytest.raises(fb.SchemaError, match="sketches of values have no table"):
        stats.to_table()


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("least", lambda x: x[::-1].copy()),
        ("greatest", lambda x: x - 1e9),
        ("least", lambda x: x * np.nan),
        ("whole", lambda x: x * 0),
        ("fraction", lambda x: x - 1),
        ("shift", lambda x: x + 64),
        ("length", lambda x: -x),
    ],
)
def test_arrays__that_are_no_sketch_are_refused(key: str, change: Any) -> None:
    arrays = sketch(VALUES[:50], CLASSES[:50]).arrays()
    with pytest.raises(ValueError, match=r"no sketch|does not fit"):
        ClassSketches.from_arrays(SHAPE, {**arrays, key: change(arrays[key])})


def test_memory__is_refused_before_it_is_taken() -> None:
    table = pa.table({"x": VALUES, "y": np.array(["a", "b"])[CLASSES]})
    need = ClassSketches.need(Room(SHAPE, SHAPE.sizes, 2, MANY)).numbers
    assert need == 2 * 2 * 2**18
    with pytest.raises(fb.MemoryLimitError, match=r"sketching numeric columns needs.* 1 columns"):
        counted(table, memory_limit=need // 2, threads=1)
    counted(table, memory_limit=2 * need, threads=1)


def test_weight__that_is_too_much_is_refused() -> None:
    with pytest.raises(fb.DataError, match=r"a row of weight .* divide all weights"):
        sketch([1.0], [0], np.array([2 * GREATEST_WEIGHT]))
    with pytest.raises(fb.DataError, match="weigh too much"):
        sketch([1.0], [0], np.array([2.0])) * 2.0**62
