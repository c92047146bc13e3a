"""Joint tables: counts of cells, and moments of numbers in them, against plain loops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import alignment_of, random_batch, random_table, rows_of, shape_of

import fastbayes as fb
from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.core.schema import Alignment
from fastbayes.statistics import CellCounts, CellScatter
from fastbayes.statistics.base import RetractionError

pytestmark = pytest.mark.usefixtures("kernels")


SHAPE = shape_of([2, 5, 0, 300], 2, 3)


def rows_by_cell(batch: Batch, columns: Any) -> tuple[list[tuple[int, ...]], Any]:
    """Return the key of each row, -1 for a missing value, and its class."""
    codes: dict[int, Any] = {}
    for features, block, _ in batch.codes:
        codes |= dict(zip(features.tolist(), block.astype(int), strict=True))
    keys = [np.where(codes[j] == SHAPE.sizes[j], -1, codes[j]).tolist() for j in columns]
    return list(zip(*keys, strict=True)), batch.classes


def table_of(counts: CellCounts) -> dict[Any, float]:
    found = {}
    for key, row in zip(counts.keys.tolist(), counts.counts.tolist(), strict=True):
        found |= {(*key, c): n for c, n in enumerate(row) if n}
    return found


@given(
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    columns=st.sampled_from([(0, 1, 2, 3), (1,), (0, 3)]),
)
def test_counts__are_those_of_a_counter(seed: int, weighted: bool, columns: Any) -> None:
    rng = np.random.default_rng(seed)
    counts = CellCounts.zeros(SHAPE, weighted=weighted, columns=columns)
    expected: Counter[Any] = Counter()
    for n in rng.integers(0, 80, 6).tolist():
        batch = random_batch(rng, SHAPE, n, weighted=weighted)
        counts.update(batch)
        keys, y = rows_by_cell(batch, columns)
        weight = np.ones(n) if batch.weight is None else batch.weight
        for key, c, w in zip(keys, y, weight, strict=True):
            expected[*key, int(c)] += w
    assert table_of(counts) == {key: n for key, n in expected.items() if n}
    assert counts.counts.dtype == (np.float64 if weighted else np.int64)
    # Sorted, and no cell twice.
    keys = counts.keys.tolist()
    assert keys == sorted(keys)
    assert len({*map(tuple, keys)}) == len(keys)


@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_scatter__is_that_of_the_rows_of_each_cell(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    columns = (0, 1)
    parts = [random_batch(rng, SHAPE, n, weighted=weighted) for n in (40, 0, 70, 3)]
    found = CellScatter.zeros(SHAPE, columns=columns)
    rows: dict[Any, list[Any]] = {}
    for batch in parts:
        found.update(batch)
        keys, y = rows_by_cell(batch, columns)
        x = np.stack(batch.numeric, axis=1)
        weight = np.ones(len(x)) if batch.weight is None else batch.weight
        for r in np.flatnonzero(~np.isnan(x).any(axis=1) & (weight > 0)).tolist():
            rows.setdefault((*keys[r], int(y[r])), []).append((weight[r], x[r]))
    assert [tuple(key) for key in found.keys.tolist()] == sorted(rows)
    groups = found.groups
    for g, key in enumerate(found.keys.tolist()):
        w = np.array([w for w, _ in rows[tuple(key)]])
        x = np.array([x for _, x in rows[tuple(key)]])
        mean = (w[:, None] * x).sum(axis=0) / w.sum()
        apart = x - mean
        scatter = (w[:, None, None] * apart[:, :, None] * apart[:, None, :]).sum(axis=0)
        assert groups.n[g] == pytest.approx(w.sum(), rel=1e-12)
        np.testing.assert_allclose(groups.mean[g] + groups.rest[g], mean, rtol=1e-13)
        np.testing.assert_allclose(groups.scatter[g], scatter, rtol=1e-9, atol=1e-9)


def test_scatter__epoch_seconds_keep_their_digits() -> None:
    rng = np.random.default_rng(1)
    offsets, shape = rng.integers(-(2**20), 2**20, 4000) / 2**20, shape_of([3], 2, 1)
    batch = random_batch(rng, shape, 4000, missing=0)
    x = (1.7e9 + offsets, offsets)
    found = CellScatter.zeros(shape)
    for rows in np.array_split(np.arange(4000), 7):
        part = rows_of(batch, shape, rows)
        columns = tuple(np.ascontiguousarray(column[rows]) for column in x)
        found.update(Batch(**{**fields(part), "numeric": columns}))
    scatter = found.groups.scatter
    np.testing.assert_allclose(scatter[:, 0, 0], scatter[:, 1, 1], rtol=1e-9)
    np.testing.assert_allclose(scatter[:, 0, 1], scatter[:, 1, 1], rtol=1e-9)


def fields(batch: Batch) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in batch.__dataclass_fields__}


@pytest.mark.parametrize("kind", [CellCounts, CellScatter])
def test_take__a_column_that_is_gone_is_summed_out(kind: Any) -> None:
    rng = np.random.default_rng(2)
    batch = random_batch(rng, SHAPE, 500)
    counts = kind.zeros(SHAPE)
    counts.update(batch)
    fewer = shape_of([5], 2, 3)
    moved = counts.take(Alignment(fewer, np.array([1]), [np.arange(5)], np.arange(2), np.arange(3)))
    direct = kind.zeros(SHAPE, columns=[1])
    direct.update(batch)
    alone = direct.take(Alignment(fewer, np.array([1]), [np.arange(5)], np.arange(2), np.arange(3)))
    assert moved.columns.tolist() == [0]
    assert moved.allclose(alone, 1e-12)
    assert len(moved.keys) == len(alone.keys)


def test_take__a_value_that_is_gone_takes_its_cells_along() -> None:
    batch = random_batch(np.random.default_rng(3), SHAPE, 500)
    counts = CellCounts.zeros(SHAPE)
    counts.update(batch)
    values = [np.arange(s) for s in SHAPE.sizes]
    values[1] = np.array([4, 1])
    left = counts.take(alignment_of(shape_of([2, 2, 0, 300], 2, 3), values=values))
    expected = {
        (a, {4: 0, 1: 1, -1: -1}[b], *rest): n
        for (a, b, *rest), n in table_of(counts).items()
        if b in (4, 1, -1)
    }
    assert table_of(left) == expected


def test_sums__of_other_columns_are_refused() -> None:
    with pytest.raises(SchemaError, match="cells are of different columns"):
        CellCounts.zeros(SHAPE, columns=[0]) + CellCounts.zeros(SHAPE)


def test_counts__more_than_64_bits_of_codes() -> None:
    rng = np.random.default_rng(4)
    shape = shape_of([250] * 30, 0, 2)
    batch = random_batch(rng, shape, 200, missing=0.01)
    twice = rows_of(batch, shape, np.repeat(np.arange(200), 2))
    counts = CellCounts.zeros(shape)
    counts.update(twice)
    assert len(counts.keys) == 200
    assert counts.keys.tolist() == sorted(counts.keys.tolist())
    assert (counts.counts.sum(axis=1) == 2).all()
    assert (counts + counts).counts.sum() == 800


# Through the door.


def test_count__equals_a_group_by(tmp_path: Path) -> None:
    table = random_table(3_000)
    stats = fb.count(table, "y", cells=True, cell_scatter=True)
    names = [f.name for f in stats.schema.categorical]
    grouped = table.group_by([*names, "y"]).aggregate([([], "count_all")]).to_pylist()
    expected = {(*(row[n] for n in names), row["y"]): row["count_all"] for row in grouped}
    domains = [[*f.values.to_pylist(), None] for f in stats.schema.categorical]  # type: ignore[union-attr]
    found = {}
    for key, counts in zip(stats.cells.keys.tolist(), stats.cells.counts.tolist(), strict=True):
        cell = tuple(domain[code] for domain, code in zip(domains, key, strict=True))
        found |= {(*cell, c): n for c, n in zip("abc", counts, strict=True) if n}
    assert found == expected
    stats.save(tmp_path / "s.fbs")
    again = fb.Statistics.load(tmp_path / "s.fbs")
    assert again == stats
    assert again.cells == stats.cells
    assert again.cell_scatter == stats.cell_scatter


def test_count__folds_checkpoints_and_parts_agree(tmp_path: Path) -> None:
    table = random_table(5_000).append_column("f", pa.array(np.arange(5_000) % 3))
    options: Any = {"cells": True, "cell_scatter": True}
    plain = fb.count(table.drop_columns("f"), "y", **options)
    folded = fb.count(table, "y", folds="f", **options)
    assert folded.cells == plain.cells
    assert folded.allclose(folded, 0)
    assert folded.cell_scatter.allclose(plain.cell_scatter, 1e-12)
    for k, fold in enumerate(folded.folds):
        alone = fb.count(
            table.filter(pa.array(np.arange(5_000) % 3 == k)).drop_columns("f"), "y", **options
        )
        assert alone.aligned(plain.schema).cells == fold.cells
        assert alone.aligned(plain.schema).cell_scatter.allclose(fold.cell_scatter, 1e-12)
    path = tmp_path / "t.parquet"
    pq.write_table(table.drop_columns("f"), path, row_group_size=1_000)
    kept = fb.count(str(path), "y", checkpoint=tmp_path / "kept", **options)
    assert kept.cells == plain.cells
    parts = [
        fb.count(table.drop_columns("f").slice(i, 1_000), "y", **options)
        for i in range(0, 5_000, 1_000)
    ]
    total = sum(parts)
    assert total.cells == plain.cells
    assert total.cell_scatter.allclose(plain.cell_scatter, 1e-12)
    assert (total - parts[0] + parts[0]).cells == plain.cells


def test_count__without_a_class_or_categories() -> None:
    table = random_table(500)
    assert fb.count(table.drop_columns("y"), None, cells=True).cells.counts.sum() == 500
    numbers = fb.count(table.select(["number", "epoch", "y"]), "y", cells=True, cell_scatter=True)
    assert numbers.cells.keys.shape == (1, 0)
    assert numbers.cells.counts.sum() == 500
    assert len(numbers.cell_scatter.keys) == 3
    both = fb.count(table, "y", cells=["flag"], cell_scatter=True)
    assert both.cell_scatter.columns.tolist() == both.cells.columns.tolist() == [1]
    with pytest.raises(ValueError, match="cell_scatter=True wants numeric columns as they are"):
        fb.count(table, "y", pairs=True, cell_scatter=True)
    for nothing in (None, False):
        assert "cells" not in fb.count(table, "y", cells=nothing).parts
    assert fb.count(table, "y", cells="flag").cells.columns.tolist() == [1]


def test_retraction__of_rows_never_added_is_refused() -> None:
    one = pa.table({"a": ["p", "p", "q"], "b": ["x", "y", "y"], "y": ["n", "n", "n"]})
    other = pa.table({"a": ["p", "q"], "b": ["y", "x"], "y": ["n", "n"]})
    stats = [fb.count(t, "y", cells=True) for t in (one, other)]
    with pytest.raises(DataError, match=r"columns 'a', 'b': .* never added"):
        stats[0] - stats[1]


def test_retraction__that_leaves_too_few_digits_is_refused() -> None:
    shape = shape_of([1], 1, 1)

    def of(*numbers: float) -> CellScatter:
        found = CellScatter.zeros(shape)
        plain = random_batch(np.random.default_rng(0), shape, len(numbers), missing=0)
        found.update(Batch(**{**fields(plain), "numeric": (np.array(numbers),)}))
        return found

    narrow, wide = of(-1e-4, 1e-4), of(-1.0, 1.0)
    with pytest.raises(RetractionError, match="too few digits"):
        narrow + wide - wide
    with pytest.raises(RetractionError, match="never added"):
        wide - narrow - wide
    assert len((wide - wide).keys) == 0
    left = of(3.25) + wide - wide
    np.testing.assert_allclose(left.groups.mean, 3.25, rtol=1e-12)
    assert (left.groups.scatter == 0).all()


def test_memory__is_looked_at_while_it_grows() -> None:
    rng = np.random.default_rng(5)
    n = 300_000
    table = pa.table(
        {"a": rng.integers(0, 2_000, n), "b": rng.integers(0, 2_000, n), "y": rng.integers(0, 2, n)}
    )
    options: Any = {"categorical": ["a", "b"], "cells": True, "threads": 1}
    with pytest.raises(MemoryLimitError, match=r"over memory_limit=.*joint values of 2") as raised:
        # Room enough for the values of the columns, and for the cells of one block of rows.
        fb.count(table, "y", memory_limit=9_000_000, **options)
    cells = int(str(raised.value).split("so far ")[1].split()[0].replace(",", ""))
    assert 65_536 < cells < 200_000


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("keys", lambda a: a | {"keys": a["keys"] + 1000}),
        ("keys", lambda a: a | {"keys": np.concatenate([a["keys"], a["keys"][:1]])}),
        ("keys", lambda a: a | {"keys": np.full_like(a["keys"], -2)}),
        ("columns", lambda a: a | {"columns": a["columns"][::-1].copy()}),
        ("columns", lambda a: a | {"columns": a["columns"] + 1}),
        ("counts", lambda a: a | {"counts": a["counts"][:-1]}),
    ],
)
def test_arrays__that_do_not_fit_are_refused(name: str, spoil: Any) -> None:
    counts = CellCounts.zeros(SHAPE)
    counts.update(random_batch(np.random.default_rng(6), SHAPE, 60))
    with pytest.raises(ValueError, match=f"{name}: .* does not fit"):
        CellCounts.from_arrays(SHAPE, spoil(counts.arrays()))
