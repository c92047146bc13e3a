"""Rows that are read repeatedly: equal ones together, samples that follow no period."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.scan.deduplicate import (
    DistinctRows,
    apart,
    countable,
    distinct,
    joint,
    repeats,
    summed,
)
from fastbayes.scan.packed_rows import blocks, rereadable, spread


def by_hand(columns, weight):
    found = {}
    for row, w in zip(zip(*(c.tolist() for c in columns), strict=True), weight, strict=True):
        found[row] = found.get(row, 0.0) + w
    return found


columns_of = st.integers(1, 60).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 2), min_size=n, max_size=n),
        st.lists(st.integers(0, 4), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=n, max_size=n),
    )
)


@given(columns_of, st.integers(1, 7), st.booleans())
@settings(max_examples=30, deadline=None)
def test_parts_of_equal_rows_add_up(drawn, step, dense):
    a, b = (np.array(c, np.uint8) for c in drawn[:2])
    weight = np.array(drawn[2])
    sizes = np.array([3, 5 if dense else 10**9], np.int64)
    equal = DistinctRows(sizes)
    for i in range(0, len(a), step):
        part = slice(i, i + step)
        codes = joint([a[part], b[part]], sizes)
        equal.add(*summed(codes, weight[part], equal.room), len(codes))
    columns, found = equal.result()
    expected = by_hand([a, b], weight)
    rows = list(zip(*(c.tolist() for c in columns), strict=True))
    assert rows == sorted(expected)
    np.testing.assert_allclose(found, [expected[row] for row in rows], rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_distinct_rows(weighted, wide):
    random = np.random.default_rng(0)
    columns = [random.integers(0, 3, 20_000).astype(np.uint8) for _ in range(3)]
    weight = random.uniform(0, 2, 20_000) if weighted else None
    sizes = np.array([3, 3, 1 << 40 if wide else 3], np.int64)
    some, total, done = distinct(columns, sizes, weight)
    assert done
    assert len(some[0]) == 27
    assert all(c.dtype == np.uint8 for c in some)
    expected = by_hand(columns, np.ones(20_000) if weight is None else weight)
    found = dict(zip(zip(*(c.tolist() for c in some), strict=True), total, strict=True))
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-12)


def test_rows_that_differ_stay():
    columns = [np.arange(20_000).astype(np.uint16)]
    assert not repeats(joint(columns, np.array([20_000])))
    assert distinct(columns, np.array([20_000]), None) == (columns, None, False)
    equal = DistinctRows(np.array([20_000]))
    codes = joint(columns, np.array([20_000]))
    assert not equal.add(codes, np.ones(20_000), 20_000)


@pytest.mark.parametrize("sizes", [[7, 1, 300, 2], [3, *[1] * 70, 5]])
def test_joint_values_come_apart(sizes):
    random = np.random.default_rng(1)
    sizes = np.array(sizes, np.int64)
    columns = [random.integers(0, size, 50) for size in sizes]
    for one, other in zip(apart(joint(columns, sizes), sizes), columns, strict=True):
        np.testing.assert_array_equal(one, other)
    assert countable(sizes)
    assert not countable(np.full(64, 2))


@given(st.integers(0, 5000), st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_a_sample_is_spread(n, step):
    rows = spread(n, step)
    assert (np.diff(rows) > 0).all()
    assert ((rows >= 0) & (rows < n)).all()
    # One in each stretch, but perhaps in the last.
    assert n // step <= len(rows) <= -(-n // step)
    np.testing.assert_array_equal(rows // step, np.arange(len(rows)))


@given(st.lists(st.integers(0, 300), min_size=1, max_size=9), st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_samples_of_parts_are_that_of_all(sizes, step):
    ends = np.cumsum([0, *sizes])
    parts = [a + spread(b - a, step, before=a) for a, b in pairwise(ends.tolist())]
    np.testing.assert_array_equal(np.concatenate(parts), spread(int(ends[-1]), step))


def test_a_sample_follows_no_period():
    rows = spread(64_000, 8)
    assert (np.bincount(rows % 8, minlength=8) > 800).all()


@pytest.mark.parametrize("n", [1, 100, 65_536, 200_000])
def test_blocks_cover_all(n):
    found = list(blocks(n))
    assert found[0][0] == 0
    assert found[-1][1] == n
    assert all(a < b for a, b in found)


def test_a_stream_whose_types_widen_is_kept():
    from fastbayes.data.source import open_source

    batches = [pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    source = open_source(reader)
    assert not source.rereadable
    kept = rereadable(source)
    for _ in range(2):
        read = [b for s in kept.segments(2) for b in s.batches()]
        assert pa.Table.from_batches(read)["x"].to_pylist() == [1, 2, 3]
    assert rereadable(kept) is kept
