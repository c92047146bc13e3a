"""Counts of pairs: what they say beside the laws of every statistic."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import batch_of, random_batch, shape_of

import fastbayes as fb
from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.core.schema import Shape
from fastbayes.statistics import PairCounts, ValueCounts

shapes = st.builds(
    shape_of,
    st.lists(st.sampled_from([0, 1, 2, 5, 300]), min_size=1, max_size=4),
    st.just(0),
    st.sampled_from([1, 2, 3]),
)
seeds = st.integers(0, 2**32 - 1)


def counted(shape: Shape, batch: Batch, pairs: Any = None) -> PairCounts:
    result = PairCounts(shape, weighted=batch.weight is not None, pairs=pairs)
    result.update(batch)
    return result.settled()


def columns_of(batch: Batch, m: int) -> list[Any]:
    columns: list[Any] = [None] * m
    for features, codes, _ in batch.codes:
        for feature, column in zip(features, codes, strict=True):
            columns[feature] = column.astype(int)
    return columns


def in_slots(pairs: PairCounts, p: int) -> Any:
    """Return n(class, p = a, j = b) as (S_p + 1, n_slots, n_classes), 0 in the slots of p."""
    shape = pairs.shape
    own = slice(shape.offsets[p], shape.offsets[p + 1])
    slots = np.delete(np.arange(shape.offsets[-1]), own)
    result = np.zeros((int(shape.sizes[p]) + 1, int(shape.offsets[-1]), shape.n_classes))
    result[:, slots] = pairs.beside(p)
    return result


@pytest.mark.parametrize("weighted", [False, True])
@given(shape=shapes, seed=seeds)
def test_beside__is_every_pair_counted_row_by_row(weighted: bool, shape: Shape, seed: int) -> None:
    batch = random_batch(np.random.default_rng(seed), shape, 40, weighted=weighted)
    pairs, m = counted(shape, batch), len(shape.sizes)
    columns = columns_of(batch, m)
    assert batch.classes is not None
    weight = np.ones(40) if batch.weight is None else batch.weight
    for p in range(m):
        expected = np.zeros((shape.sizes[p] + 1, shape.offsets[-1], shape.n_classes))
        for j in set(range(m)) - {p}:
            np.add.at(expected, (columns[p], shape.offsets[j] + columns[j], batch.classes), weight)
        np.testing.assert_allclose(in_slots(pairs, p), expected, rtol=1e-12)
        for j in set(range(m)) - {p}:
            begin = shape.offsets[j]
            known = expected[:-1, begin : begin + shape.sizes[j]]
            np.testing.assert_allclose(pairs.of(p, j), known, rtol=1e-12)


@given(shape=shapes, seed=seeds)
def test_margins__are_the_counts_of_values(shape: Shape, seed: int) -> None:
    batch = random_batch(np.random.default_rng(seed), shape, 60)
    values, pairs = ValueCounts(shape), counted(shape, batch)
    values.update(batch)
    for p in range(len(shape.sizes)):
        given_p = in_slots(pairs, p)
        mine = values.counts[shape.offsets[p] : shape.offsets[p + 1]]
        for j in set(range(len(shape.sizes))) - {p}:
            both = given_p[:, shape.offsets[j] : shape.offsets[j + 1]]
            np.testing.assert_array_equal(both.sum(axis=1), mine)


def test_missing_slots__stand_only_where_a_value_was_missing() -> None:
    shape = shape_of([2, 2, 2], 0, 2)
    whole = batch_of(shape, [np.array([0, 1])] * 3, np.array([0, 1]), (), None)
    assert counted(shape, whole).flat.size == 3 * 2 * 2 * 2
    gap = batch_of(
        shape, [np.array([0, 2]), np.array([0, 1]), np.array([0, 1])], np.array([0, 1]), (), None
    )
    both = counted(shape, whole) + counted(shape, gap)
    assert both.flat.size == (2 * 3 * 2 + 2 * 2) * 2
    assert (both - counted(shape, gap)).flat.size == 3 * 2 * 2 * 2


@given(seed=seeds)
def test_some_pairs__are_those_of_all(seed: int) -> None:
    shape = shape_of([3, 2, 5, 2], 0, 3)
    batch = random_batch(np.random.default_rng(seed), shape, 50)
    chosen = np.array([[0, 2], [1, 3], [2, 3]])
    all_, some = counted(shape, batch), counted(shape, batch, chosen)
    for i, j in chosen.tolist():
        np.testing.assert_array_equal(some.of(i, j), all_.of(i, j))
        np.testing.assert_array_equal(some.of(j, i), all_.of(j, i))
    with pytest.raises(KeyError):
        some.of(0, 1)
    with pytest.raises(SchemaError, match="different pairs"):
        some + all_
    again = PairCounts.from_arrays(shape, some.arrays())
    assert again == some
    for wrong in ([[2, 0]], [[0, 4]], [[1, 3], [0, 2]], [[0, 2], [0, 2]]):
        with pytest.raises(ValueError, match="no sorted pairs"):
            PairCounts.from_arrays(shape, {**some.arrays(), "pairs": np.array(wrong)})


# -- through the public names --------------------------------------------------------------------

ROWS = {"a": ["x", "y", "x", None], "b": ["u", "u", "v", "v"], "y": ["n", "p", "p", "n"]}


def test_count__with_pairs() -> None:
    stats = fb.count(ROWS, "y", pairs=True)
    np.testing.assert_array_equal(stats.pairs.of(0, 1)[..., 0], [[1, 0], [0, 0]])
    np.testing.assert_array_equal(stats.pairs.of(0, 1)[..., 1], [[0, 1], [1, 0]])
    assert fb.AODE().fit_statistics(stats).predict(ROWS).tolist() == list("nppn")
    with pytest.raises(SchemaError, match="count again with pairs=True"):
        fb.AODE().fit_statistics(fb.count(ROWS, "y"))
    with pytest.raises(SchemaError, match="statistics differ"):
        stats + fb.count(ROWS, "y")


def test_retracting_what_was_never_added__is_refused_by_name() -> None:
    rows = {"a": ["x", "y"], "b": ["u", "v"], "y": ["n", "n"]}
    other = {"a": ["x", "y"], "b": ["v", "u"], "y": ["n", "n"]}
    with pytest.raises(DataError, match="'a' and 'b': two values would occur together"):
        fb.count(rows, "y", pairs=True) - fb.count(other, "y", pairs=True)


def test_numeric_columns__need_to_be_discrete() -> None:
    rows = {"a": [0.5, 1.5, 2.5, 3.5], "y": ["n", "n", "p", "p"]}
    stats = fb.count(rows, "y")
    stats = replace(stats, parts={**stats.parts, "pairs": PairCounts(stats.schema.shape)})
    with pytest.raises(SchemaError, match=r"column 'a' as numeric.*pairs=True"):
        fb.TAN().fit_statistics(stats)


def test_a_value_per_row__is_refused_with_the_figure() -> None:
    rows = {f"x{j}": [f"{j}.{i}" for i in range(2000)] for j in range(3)}
    table = pa.table({**rows, "y": ["n", "p"] * 1000})
    with pytest.raises(MemoryLimitError, match=r"counting pairs needs [\d,]+ bytes.*column 'x"):
        fb.AODE(memory_limit=10_000_000).fit(table, "y")


# -- as a table ------------------------------------------------------------------------------------


def test_table__there_and_back(rows: pa.Table) -> None:
    for stats in (fb.count(rows, "y", pairs=True), fb.count(rows, "y", pairs=True) * 0.5):
        table = stats.to_table()
        order = np.random.default_rng(1).permutation(len(table))
        assert fb.Statistics.from_table(table.take(pa.array(order))) == stats


def grouped(rows: pa.Table, swapped: bool) -> pa.Table:
    """Return GROUP BY class and two values, for every pair of columns."""
    pieces = []
    for a, b in combinations(rows.column_names[:-1], 2):
        first, second = (b, a) if swapped else (a, b)
        counts = rows.group_by(["y", first, second]).aggregate([([], "count_all")])
        names = [pa.array([name] * len(counts)) for name in (first, second)]
        columns = [*(counts[key] for key in ("y", first, second, "count_all")), *names]
        keys = ["class", "value_a", "value_b", "n", "feature_a", "feature_b"]
        pieces.append(pa.table(dict(zip(keys, columns, strict=True))))
    return pa.concat_tables(pieces)


@pytest.mark.parametrize("swapped", [False, True])
def test_table__of_a_group_by(rows: pa.Table, swapped: bool) -> None:
    found = fb.Statistics.from_table(grouped(rows, swapped), target="y")
    counted = fb.count(rows, "y", pairs=True)
    assert found == counted
    assert fb.TAN().fit_statistics(found).parents_ == fb.TAN().fit_statistics(counted).parents_


def test_table__what_does_not_fit_is_named(rows: pa.Table) -> None:
    table = grouped(rows, False)
    keep = pc.not_equal(table["feature_b"], "x03")
    some = pa.concat_tables([table.filter(keep), table.filter(pc.invert(keep)).slice(0, 12)])
    with pytest.raises(DataError, match="no rows for 'x01' and 'x03'; count every pair"):
        fb.Statistics.from_table(some, target="y")
    own = table.set_column(5, "feature_b", table["feature_a"])
    with pytest.raises(DataError, match="paired with itself"):
        fb.Statistics.from_table(pa.concat_tables([table, own]), target="y")
    with pytest.raises(SchemaError, match="needs one column 'value_b'"):
        fb.Statistics.from_table(table.drop_columns(["value_b"]), target="y")
    with pytest.raises(DataError, match=r"'x00': value '2' is outside"):
        fb.Statistics.from_table(table, target="y", domains={"x00": ["0", "1"]})


# -- the plan ------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("choice", ["always", "never"])
def test_plan__is_what_the_counts_take(
    rows: pa.Table, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", choice)
    plan = fb.plan(rows, "y", pairs=True, threads=2)
    assert plan.pairs is not None
    stats = fb.count(rows, "y", pairs=True)
    assert plan.pairs.total == 3 * stats.pairs.flat.nbytes
    blocks = plan.pairs.blocks()
    assert blocks.num_rows == 6
    assert pc.sum(blocks["bytes"]).as_py() == stats.pairs.flat.nbytes
    assert sum(plan.pairs.strategies.values()) == 6
    assert (set(plan.pairs.strategies) == {"numpy"}) is (choice == "never")
    assert plan.total == plan.pairs.total + fb.plan(rows, "y", threads=2).total
    assert sum(plan.columns.values()) + 8 * 3 * 3 == plan.total


def test_plan__of_numbers_cuts_the_first_block() -> None:
    rows = {"a": np.linspace(0, 1, 500), "b": ["x", "y"] * 250, "y": ["n"] * 250 + ["p"] * 250}
    plan = fb.plan(rows, "y", pairs=True, discretize=("quantile", 4))
    assert plan.pairs is not None
    assert plan.pairs.widths.tolist() == [4, 2]


def test_plan__tells_how_many_scans_a_tree_takes(caplog: pytest.LogCaptureFixture) -> None:
    rows = chain(1500, 20)
    plan = fb.plan(rows, "y", pairs=True, memory_limit=50_000, threads=2)
    assert plan.pairs is not None
    assert plan.pairs.scans is not None
    assert plan.pairs.scans > 1
    with caplog.at_level("INFO", logger="fastbayes"):
        fb.TAN(memory_limit=50_000, threads=2).fit(rows, "y")
    assert f"the pairs are counted in {plan.pairs.scans} scans" in caplog.text
    with pytest.raises(MemoryLimitError, match="counting needs"):
        fb.plan(rows, "y", pairs=True, memory_limit=1_000)


# -- more pairs than fit ------------------------------------------------------------------------


def chain(n: int, d: int, seed: int = 0) -> pa.Table:
    """Return columns of which each follows the one before, with missing cells."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (d, n))
    for j in range(1, d):
        same = rng.random(n) < 0.6
        codes[j, same] = codes[j - 1, same]
    gaps = rng.random((d, n)) < 0.02
    columns = {f"x{j:02d}": pa.array(codes[j].astype(str), mask=gaps[j]) for j in range(d)}
    return pa.table({**columns, "y": rng.integers(0, 3, n).astype(str)})


@pytest.fixture(name="rows")
def _rows() -> pa.Table:
    return chain(300, 4)


@pytest.mark.parametrize("options", [{}, {"prune": "bic"}, {"missing": "category"}])
def test_tan__finds_the_same_tree_in_several_scans(options: dict[str, Any]) -> None:
    rows = chain(1500, 20)
    whole = fb.TAN(**options).fit(rows, "y")
    model = fb.TAN(memory_limit=50_000, threads=2, **options).fit(rows, "y")
    assert model.parents_ == whole.parents_
    assert not model.statistics_.pairs.layout.complete
    np.testing.assert_array_equal(model.predict_proba(rows), whole.predict_proba(rows))


def test_tan__of_several_scans_goes_on_learning_its_tree(tmp_path: Any) -> None:
    rows = chain(1500, 20)
    model = fb.TAN(memory_limit=50_000, threads=2).fit(rows.slice(0, 1000), "y")
    tree = model.parents_
    permuted = rows.slice(1000).select(rows.column_names[::-1])
    model.partial_fit(permuted, "y")
    assert model.parents_ == tree
    assert model.statistics_.n_rows == 1500
    model.save(tmp_path / "tree.fb")
    again = fb.load(tmp_path / "tree.fb")
    assert again.parents_ == tree
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))


def test_tan__a_stream_cannot_be_read_again() -> None:
    rows = chain(1500, 20)
    with pytest.raises(MemoryLimitError):
        fb.TAN(memory_limit=50_000).fit(rows.to_reader(), "y")


def test_tan__one_pair_that_does_not_fit_is_named() -> None:
    rows = chain(1500, 3)
    wide = pa.array([str(i) for i in range(1500)])
    rows = rows.set_column(0, "a", wide).set_column(1, "b", wide)
    with pytest.raises(MemoryLimitError, match="columns 'a' and 'b': their counts alone need"):
        fb.TAN(memory_limit=5_000_000).fit(rows, "y")
    plan = fb.plan(rows, "y", pairs=True, memory_limit=5_000_000)
    assert plan.pairs is not None
    assert plan.pairs.scans is None
    assert "too many" in repr(plan.pairs)
