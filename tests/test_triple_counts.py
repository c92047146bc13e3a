"""Counts of triples: what they say beside the laws of every statistic."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import batch_of, random_batch, shape_of

import fastbayes as fb
from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.core.schema import Shape
from fastbayes.statistics import PairCounts, TripleCounts
from fastbayes.statistics.base import Room
from fastbayes.statistics.triple_counts import all_triples, place

shapes = st.builds(
    shape_of,
    st.lists(st.sampled_from([0, 1, 2, 5]), min_size=3, max_size=5),
    st.just(0),
    st.sampled_from([1, 2, 3]),
)
seeds = st.integers(0, 2**32 - 1)


def counted(kind: Any, shape: Shape, batch: Batch) -> Any:
    result = kind(shape, weighted=batch.weight is not None)
    result.update(batch)
    return result.settled()


@pytest.mark.parametrize("weighted", [False, True])
@given(shape=shapes, seed=seeds)
def test_block__is_counted_row_by_row(weighted: bool, shape: Shape, seed: int) -> None:
    batch = random_batch(np.random.default_rng(seed), shape, 40, weighted=weighted)
    triples, m = counted(TripleCounts, shape, batch), len(shape.sizes)
    columns: list[Any] = [None] * m
    for features, codes, _ in batch.codes:
        for feature, column in zip(features, codes, strict=True):
            columns[feature] = column.astype(int)
    weight = np.ones(40) if batch.weight is None else batch.weight
    for three in permutations(range(m), 3):
        expected = np.zeros((*(shape.sizes[[*three]] + 1), shape.n_classes))
        np.add.at(expected, (*(columns[f] for f in three), batch.classes), weight)
        widths = tuple(slice(w) for w in triples.layout.widths[[*three]])
        np.testing.assert_allclose(triples.block(*three), expected[widths], rtol=1e-12)
        known = tuple(slice(s) for s in shape.sizes[[*three]])
        np.testing.assert_allclose(triples.of(*three), expected[known], rtol=1e-12)
        assert expected.sum() == pytest.approx(triples.block(*three).sum())


@given(shape=shapes, seed=seeds)
def test_margins__are_the_counts_of_pairs(shape: Shape, seed: int) -> None:
    batch = random_batch(np.random.default_rng(seed), shape, 40)
    triples, pairs = (counted(kind, shape, batch) for kind in (TripleCounts, PairCounts))
    for i, j, k in permutations(range(len(shape.sizes)), 3):
        np.testing.assert_array_equal(triples.block(i, j, k).sum(axis=2), pairs.block(i, j))


def test_place__is_the_order_of_the_triples() -> None:
    for m in (0, 1, 2, 3, 4, 7):
        found = [place(*three, m=m) for three in combinations(range(m), 3)]
        assert found == list(range(len(all_triples(m))))


def bytes_of(widths: Any, n_classes: int, copies: int) -> Any:
    return TripleCounts.need(Room(Shape(widths, 0, n_classes), widths, copies)).columns


def test_bytes__are_those_of_the_counts() -> None:
    widths = np.array([2, 3, 1, 7])
    exact = 8 * 5 * 3 * sum(np.prod(w) for w in combinations(widths.tolist(), 3))
    assert exact - 4 <= bytes_of(widths, 5, 3).sum() <= exact
    assert bytes_of(widths[:2], 5, 3).tolist() == [0, 0]
    assert (bytes_of(np.full(50, 10**6), 100, 9) > 1 << 50).all()  # no overflow


ROWS = pa.table(
    {
        "a": ["x", "y", "y", "x"],
        "b": ["u", "u", "v", None],
        "n": [1.0, 2.0, 3.0, 4.0],
        "y": ["no", "yes", "yes", "no"],
    }
)


def test_count__with_triples(tmp_path: Path) -> None:
    stats = fb.count(ROWS, "y", triples=True, discretize={"n": [2.5]})
    assert stats.triples.of(0, 1, 2)[1, 1, 1].tolist() == [0, 1]
    assert stats.triples.of(2, 0, 1)[1, 1, 1].tolist() == [0, 1]
    assert stats.pairs.of(0, 1).sum() == 3
    stats.save(tmp_path / "s.fbs")
    assert fb.Statistics.load(tmp_path / "s.fbs") == stats
    assert stats + stats - stats == stats
    with pytest.raises(SchemaError, match="no triples; count again with triples=True"):
        fb.count(ROWS, "y", pairs=True).triples  # noqa: B018
    with pytest.raises(SchemaError, match="triples have no table"):
        stats.to_table()


def test_subtraction__of_a_row_whose_pairs_alone_were_added_is_refused() -> None:
    even = pa.table({"a": list("0011"), "b": list("0101"), "c": list("0110"), "y": [0] * 4})
    odd = pa.table({"a": ["0"], "b": ["0"], "c": ["1"], "y": [0]})
    stats, other = (fb.count(rows, "y", triples=True) for rows in (even, odd))
    with pytest.raises(DataError, match=r"columns 'a', 'b' and 'c'.*never added"):
        stats - other


def test_memory__is_planned_and_refused_with_the_figure() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({f"x{j}": rng.integers(0, 30, 3000).astype(str) for j in range(12)})
    y = rng.integers(0, 2, 3000)
    told: dict[str, Any] = {"triples": True, "threads": 1}
    need = 8 * 2 * 2 * 30**3 * 220  # bytes, classes, copies, cells, triples
    plan = fb.plan(table, y, **told)
    assert need <= plan.total <= 1.1 * need
    with pytest.raises(MemoryLimitError, match=r"counting triples needs 19\d,\d{3},\d{3} bytes"):
        fb.count(table, y, memory_limit=100_000_000, **told)
    with pytest.raises(MemoryLimitError, match=r"19\d,\d{3},\d{3} bytes"):
        fb.plan(table, y, memory_limit=100_000_000, **told)


def test_late_values__are_laid_out_anew() -> None:
    shape, early = shape_of([3, 3, 3], 0, 2), shape_of([2, 2, 2], 0, 1)
    first = batch_of(early, [np.array([0, 2])] * 3, np.array([0, 0]), (), None)
    second = batch_of(shape, [np.array([2, 1])] * 3, np.array([1, 0]), (), None)
    triples = TripleCounts(early)
    triples.update(first)
    triples = triples.grown(shape)
    triples.update(second)
    block = triples.settled().block(0, 1, 2)
    assert block.shape == (4, 4, 4, 2)
    assert block[0, 0, 0].tolist() == [1, 0]
    assert block[3, 3, 3].tolist() == [1, 0]  # missing, whose code was then 2
    assert block[2, 2, 2].tolist() == [0, 1]
