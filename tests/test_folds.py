"""One scan counts every fold apart: the folds share a schema and add up to the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from making import random_table

import fastbayes as fb

pytestmark = pytest.mark.usefixtures("kernels")


CUTS = {"number": [99.0, 101.0], "epoch": [1.7e9], "code": [-1.0, 0.0, 2.0]}
PARTS: list[dict[str, Any]] = [
    {},
    {"pairs": True, "discretize": CUTS},
    {"triples": True, "moments": False, "discretize": CUTS},
    {"families": [("text",), ("text", "flag", "code")], "discretize": CUTS},
    {"scatter": True},
]
every_part = pytest.mark.parametrize("parts", PARTS, ids=str)
weighted = pytest.mark.parametrize("weight", [None, "w"])


def rows(n: int = 700) -> pa.Table:
    return random_table(n).append_column("part", pa.array(np.arange(n) % 7 // 2))


def plain(stats: fb.Statistics) -> fb.Statistics:
    return replace(stats, folds=(), fold_names=())


@every_part
@weighted
def test_folds__of_a_column_are_the_counts_of_its_values(parts: Any, weight: Any) -> None:
    table = rows()
    stats = fb.count(table, "y", folds="part", sample_weight=weight, **parts)
    assert stats.fold_names == ("0", "1", "2", "3")
    for i, fold in enumerate(stats.folds):
        some = table.filter(pc.equal(table["part"], i)).drop_columns(["part"])
        alone = fb.count(some, "y", sample_weight=weight, **parts).aligned(stats.schema)
        assert fold.allclose(alone)
        if weight is None and "moments" not in fold.parts:
            assert fold == alone


@every_part
@weighted
@pytest.mark.parametrize("folds", [2, 10, "part"])
def test_folds__add_up_to_the_whole(parts: Any, weight: Any, folds: Any) -> None:
    table = rows()
    stats = fb.count(table, "y", folds=folds, sample_weight=weight, **parts)
    drop = ["part"] if folds == "part" else []
    whole = fb.count(table.drop_columns(drop), "y", sample_weight=weight, **parts)
    assert stats.schema == whole.schema
    assert all(fold.schema == whole.schema for fold in stats.folds)
    assert plain(stats).allclose(whole)
    assert sum(stats.folds[1:], stats.folds[0]).allclose(whole)


def test_folds__by_place_are_balanced_and_in_no_pattern() -> None:
    n, k = 1003, 10
    table = pa.table({"row": [str(r) for r in range(n)], "y": ["a", "b"] * (n // 2) + ["a"]})
    stats = fb.count(table, "y", folds=k)
    counts = np.array([f.values.counts.sum(axis=1) for f in stats.folds])
    rows_of = np.array([int(v) for v in stats.schema.features[0].values.to_pylist()])
    fold = np.empty(n, int)
    fold[rows_of] = counts[:, :-1].argmax(axis=0)
    assert {f.n_rows for f in stats.folds} == {100, 101}
    for first in range(0, n - k, k):
        assert sorted(fold[first : first + k]) == list(range(k))
    # Rows that alternate are spread over all folds, and so is every tenth.
    for step in (2, k):
        assert min(np.bincount(fold[::step], minlength=k)) > 0
    assert np.abs(np.corrcoef(fold[:-k], fold[k:])[0, 1]) < 0.1


@weighted
def test_threads_and_chunks__change_nothing(weight: Any, tmp_path: Path) -> None:
    table = random_table(400_000)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=131_072)
    options: dict[str, Any] = {"folds": 5, "sample_weight": weight}
    one = fb.count(table, "y", threads=1, **options)
    assert fb.count(table, "y", threads=3, **options) == one
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=50_000))
    assert fb.count(chunked, "y", threads=2, **options) == one
    assert fb.count(str(tmp_path / "t.parquet"), "y", **options).folds[3].allclose(one.folds[3])


@pytest.mark.parametrize("rows", [997, 140_000])  # of one segment in memory, and of two
def test_row_groups_and_files__change_nothing(rows: int, tmp_path: Path) -> None:
    table = random_table(rows)
    whole = fb.count(table, "y", folds=7)
    first = rows // 3
    for k, (part, size) in enumerate([(table[:first], 101), (table[first:], rows // 5)]):
        pq.write_table(part, tmp_path / f"{k}.parquet", row_group_size=size)
        with pa.ipc.new_file(tmp_path / f"{k}.arrow", part.schema) as file:
            file.write_table(part, max_chunksize=size)
    for kind in ("parquet", "arrow"):
        found = fb.count(str(tmp_path / f"*.{kind}"), "y", folds=7)
        for fold, expected in zip(found.folds, whole.folds, strict=True):
            assert fold.n_rows == expected.n_rows
            assert fold.allclose(expected)
    batches = iter(table.to_batches(max_chunksize=1_000))
    assert fb.count(batches, "y", folds=7).folds[2].allclose(whole.folds[2])


def test_folds__of_rows_that_take_no_part_count_for_places() -> None:
    table = random_table(200)
    known = np.random.default_rng(1).random(200) < 0.7
    holes = table.set_column(5, "y", pa.array(table["y"].to_pylist(), mask=~known))
    stats, expected = fb.count(holes, "y", folds=4), fb.count(table, "y", folds=4)
    every = fb.count(table.append_column("row", pa.array(map(str, range(200)))), "y", folds=4)
    row = every.schema.features[-1].values.to_pylist()
    for fold, before, one in zip(stats.folds, expected.folds, every.folds, strict=True):
        mine = [int(v) for v, n in zip(row, one.values.of(2).sum(axis=1), strict=True) if n]
        assert before.n_rows == len(mine)
        assert fold.n_rows == known[mine].sum()
    assert stats.dropped_rows == (~known).sum()


def test_array__is_a_column_beside_the_rows() -> None:
    table = rows(100)
    named = fb.count(table, "y", folds="part")
    beside = fb.count(table.drop_columns(["part"]), "y", folds=table["part"].to_numpy())
    assert named == beside
    words = np.array(["train", "test", "dev"])[np.arange(100) % 3]
    assert fb.count(table, "y", folds=words).fold_names == ("dev", "test", "train")
    X, y = table.drop_columns(["y", "part"]), table["y"]
    apart = fb.count(X, y, folds=table["part"])
    for a, b in zip(apart.folds, named.folds, strict=True):
        assert a.parts == b.parts


@pytest.mark.parametrize("threads", [1, 3])
def test_folds__of_a_dictionary_are_those_that_rows_have(threads: int, tmp_path: Path) -> None:
    rows = {"a": [*"uvw"] * 40, "g": ["old", "g1", "g0"] * 40, "y": [*"pqqp"] * 30}
    plain = pa.table(rows).filter(pc.field("g") != "old")
    kind = pa.dictionary(pa.int32(), pa.string())
    coded = pa.table({**rows, "g": pa.array(rows["g"]).cast(kind)})
    coded = coded.filter(pc.not_equal(coded["g"].cast(pa.string()), "old"))
    assert len(coded["g"].chunk(0).dictionary) == 3
    pq.write_table(coded, tmp_path / "g.parquet", row_group_size=20)
    expected = fb.count(plain, "y", folds="g", columns=["a"])
    for given in (coded, tmp_path / "g.parquet"):
        found = fb.count(given, "y", folds="g", columns=["a"], threads=threads)
        assert found.fold_names == ("g0", "g1")
        assert found == expected
        judged = [fb.k_fold(fb.NaiveBayes(), t, "y", folds="g").log_loss for t in (given, plain)]
        assert judged[0] == judged[1]
    array = fb.count(plain, "y", folds=coded["g"].combine_chunks(), columns=["a"])
    assert (array.fold_names, array.folds) == (expected.fold_names, expected.folds)


def test_arithmetic__keeps_folds_of_the_same_names() -> None:
    a, b = (fb.count(random_table(300, seed), "y", folds=3) for seed in (1, 2))
    both = a + b
    assert both.fold_names == a.fold_names
    assert all(x.allclose(y + z) for x, y, z in zip(both.folds, a.folds, b.folds, strict=True))
    assert sum(both.folds[1:], both.folds[0]).allclose(plain(both))
    assert (both - b).allclose(a, 1e-9)
    assert (2 * a).folds[1] == 2 * a.folds[1]
    other = fb.count(random_table(300, 3), "y", folds=4)
    assert (a + other).folds == ()
    assert (a + plain(b)).fold_names == ()
    assert a != plain(a)
    assert not a.allclose(plain(a))
    moved = replace(a, folds=a.folds[::-1])
    assert moved != a
    assert not moved.allclose(a)


@every_part
@weighted
def test_save__keeps_the_folds(parts: Any, weight: Any, tmp_path: Path) -> None:
    stats = fb.count(rows(), "y", folds="part", sample_weight=weight, **parts)
    stats.save(tmp_path / "s.fbs")
    assert fb.Statistics.load(tmp_path / "s.fbs") == stats
    assert fb.Statistics.load(tmp_path / "s.fbs").fold_names == stats.fold_names
    assert stats.nbytes > plain(stats).nbytes


def test_without_classes__folds_are_counted_too() -> None:
    table = rows(90).drop_columns(["y"])
    stats = fb.count(table, None, folds="part", moments=False)
    assert sum(stats.folds[1:], stats.folds[0]) == plain(stats)
    assert [f.n_rows for f in stats.folds] == np.bincount(table["part"].to_numpy()).tolist()


def test_errors__name_the_remedy() -> None:
    table = rows(20)
    for folds in (1, 0, True):
        with pytest.raises(ValueError, match="use a whole number >= 2, a column or an array"):
            fb.count(table, "y", folds=folds)
    with pytest.raises(fb.SchemaError, match="no column 'fold'"):
        fb.count(table, "y", folds="fold")
    with pytest.raises(fb.DataError, match="'fold' has 3 entries, but there are 20 rows"):
        fb.count(table, "y", folds=[1, 2, 3])
    holes = [None if r == 13 else 0 for r in range(20)]
    with pytest.raises(fb.DataError, match="'fold', row 13: there is no fold"):
        fb.count(table, "y", folds=holes)
    with pytest.raises(fb.SchemaError, match="column 'y' holds the classes or the weights"):
        fb.count(table, "y", folds="y")
    with pytest.raises(fb.SchemaError, match="column 'w' holds the classes or the weights"):
        fb.count(table, "y", folds="w", sample_weight="w")
    with pytest.raises(ValueError, match="a checkpoint keeps no folds"):
        fb.count(table, "y", folds=2, checkpoint="somewhere")
