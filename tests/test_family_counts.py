"""Counts of families: what they say beside the laws of every statistic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import batch_of, random_batch, random_table, shape_of

import fastbayes as fb
from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, FileFormatError, MemoryLimitError, SchemaError
from fastbayes.core.schema import Shape
from fastbayes.scan import budget
from fastbayes.statistics import FamilyCounts, PairCounts, ValueCounts
from fastbayes.statistics.family_counts import ABOVE, APART, BELOW

shapes = st.builds(
    shape_of,
    st.lists(st.sampled_from([0, 1, 2, 5, 30]), min_size=3, max_size=4),
    st.just(0),
    st.sampled_from([1, 2, 3]),
)
seeds = st.integers(0, 2**32 - 1)
FAMILIES = [(2,), (2, 0), (1, 2, 0), (0, 1, 2)]


def counted(kind: Any, shape: Shape, batch: Batch, **told: Any) -> Any:
    result = kind(shape, weighted=batch.weight is not None, **told)
    result.update(batch)
    return result.settled()


def columns_of(batch: Batch, m: int) -> list[Any]:
    columns: list[Any] = [None] * m
    for features, codes, _ in batch.codes:
        for feature, column in zip(features, codes, strict=True):
            columns[feature] = column.astype(int)
    return columns


@pytest.mark.parametrize("weighted", [False, True])
@given(shape=shapes, seed=seeds)
def test_group__is_counted_row_by_row(weighted: bool, shape: Shape, seed: int) -> None:
    batch = random_batch(np.random.default_rng(seed), shape, 40, weighted=weighted)
    families = counted(FamilyCounts, shape, batch, families=FAMILIES)
    columns, weight = columns_of(batch, len(shape.sizes)), batch.weight
    assert families.families == FAMILIES
    for q, family in enumerate(FAMILIES):
        expected = np.zeros((*(shape.sizes[[*family]] + 1), shape.n_classes))
        np.add.at(
            expected,
            (*(columns[f] for f in family), batch.classes),
            np.ones(40) if weight is None else weight,
        )
        known = tuple(slice(s) for s in shape.sizes[[*family]])
        np.testing.assert_allclose(families.of(q), expected[known], rtol=1e-12)
        held = tuple(slice(s) for s in families.group(q).shape[:-1])
        np.testing.assert_allclose(families.group(q), expected[held], rtol=1e-12)
        assert families.group(q).sum() == pytest.approx(expected.sum())


@given(shape=shapes, seed=seeds)
def test_margins__are_the_counts_of_pairs_and_of_values(shape: Shape, seed: int) -> None:
    batch = random_batch(np.random.default_rng(seed), shape, 60)
    families = counted(FamilyCounts, shape, batch, families=FAMILIES)
    pairs, values = counted(PairCounts, shape, batch), ValueCounts(shape)
    values.update(batch)
    np.testing.assert_array_equal(families.group(2).sum(axis=0), families.group(1))
    np.testing.assert_array_equal(families.group(1), pairs.block(2, 0))
    np.testing.assert_array_equal(families.group(3).sum(axis=2), pairs.block(0, 1))
    np.testing.assert_array_equal(families.of(0), values.of(2))


def test_missing_slots__stand_only_where_a_value_was_missing() -> None:
    shape = shape_of([2, 2, 2], 0, 2)
    columns = [np.array([0, 1, 1]), np.array([0, 2, 1]), np.array([1, 1, 0])]
    batch = batch_of(shape, columns, np.array([0, 1, 1]), (), None)
    families = counted(FamilyCounts, shape, batch, families=FAMILIES)
    assert [families.group(q).shape for q in range(4)] == [
        (2, 2),
        (2, 2, 2),
        (3, 2, 2, 2),
        (2, 3, 2, 2),
    ]
    gone = counted(FamilyCounts, shape, batch, families=FAMILIES) - families
    assert gone.group(2).shape == (2, 2, 2, 2)


ROWS = pa.table(
    {
        "a": ["x", "y", "y", "x"],
        "b": ["u", "u", "v", None],
        "n": [1.0, 2.0, 3.0, 4.0],
        "y": ["no", "yes", "yes", "no"],
    }
)
NAMED = [("a",), ("b", "a"), ("a", "b", "n")]


def test_count__with_families(tmp_path: Path) -> None:
    stats = fb.count(ROWS, "y", families=NAMED, discretize={"n": [2.5]})
    assert stats.families.families == [(0,), (1, 0), (0, 1, 2)]
    np.testing.assert_array_equal(stats.families.of(1)[..., 0], [[1, 0], [0, 0]])
    np.testing.assert_array_equal(stats.families.of(1)[..., 1], [[0, 1], [0, 1]])
    assert stats.families.of(2)[1, 1, 1].tolist() == [0, 1]
    stats.save(tmp_path / "s.fbs")
    assert fb.Statistics.load(tmp_path / "s.fbs") == stats
    with pytest.raises(SchemaError, match="no families; count again"):
        fb.count(ROWS, "y").families  # noqa: B018
    with pytest.raises(SchemaError, match="families have no table"):
        stats.to_table()


def test_columns_in_any_order__add_up_by_name() -> None:
    table = random_table(2000).drop(["number", "epoch"])
    names = [("text", "flag"), ("code", "text", "flag")]
    told: dict[str, Any] = {"families": names, "categorical": ["code"], "sample_weight": "w"}
    whole = fb.count(table, "y", **told)
    turned = table.slice(900).select(["code", "y", "w", "flag", "text"])
    parts = fb.count(table.slice(0, 900), "y", **told) + fb.count(turned, "y", **told)
    assert parts.allclose(whole)
    assert (whole - fb.count(turned, "y", **told)).allclose(fb.count(table[:900], "y", **told))


def test_different_families__do_not_add() -> None:
    a, b = (
        fb.count(ROWS, "y", families=families, discretize="width")
        for families in (NAMED, NAMED[:2])
    )
    assert a != b
    assert a.families != b.families
    with pytest.raises(SchemaError, match="different families of columns"):
        a + b


def test_rows_never_added__are_refused() -> None:
    rows = ROWS.select(["a", "b", "y"])
    other = rows.set_column(1, "b", pa.array(["v", "u", "u", None]))
    with pytest.raises(DataError, match=r"columns 'a' and 'b'.*fewer than 0 times"):
        fb.count(rows, "y", families=[("a", "b")]) - fb.count(other, "y", families=[("a", "b")])


@pytest.mark.parametrize(
    ("families", "message"),
    [
        (["ab"], "'ab' is no family"),
        ([()], "is no family"),
        ([("a", "z")], "no categorical column 'z'"),
        ([("a", "a")], r"\('a', 'a'\) holds a column twice"),
        ([("a", "b"), ("a", "b")], r"\('a', 'b'\) .*stands twice"),
    ],
)
def test_families_that_are_none__are_refused(families: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        fb.count(ROWS, "y", families=families)


def test_memory__is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{i}" for i in range(6)]
    rng = np.random.default_rng(0)
    table = pa.table({n: rng.integers(0, 30, 500).astype(str) for n in names})
    table = table.append_column("y", pa.array(rng.integers(0, 2, 500).astype(str)))
    told: dict[str, Any] = {"families": [tuple(names[:2]), tuple(names)], "threads": 1}
    # 30^6 cells of two classes and 8 bytes, one set for the thread and one for the result.
    with pytest.raises(MemoryLimitError, match=r"counting families needs 23,3\d\d,\d+,\d+ bytes"):
        fb.count(table, "y", **told, memory_limit=10**9)
    with pytest.raises(MemoryLimitError, match=r"that of column 'c5' with 30 values needs the"):
        fb.count(table, "y", **told, memory_limit=10**9)
    monkeypatch.setattr(budget, "default_limit", lambda: 10**8)
    with pytest.raises(MemoryLimitError, match="half of the usable memory=100,000,000"):
        fb.count(table, "y", **told)


def test_damaged_families__are_refused() -> None:
    shape = shape_of([2, 3], 0, 2)
    whole = counted(
        FamilyCounts,
        shape,
        random_batch(np.random.default_rng(0), shape, 9),
        families=[(0,), (1, 0)],
    ).arrays()
    assert FamilyCounts.from_arrays(shape, whole).arrays().keys() == whole.keys()
    for wrong in ([[0, -1], [1, 1]], [[0, -1], [2, 0]], [[-1, 0], [1, 0]], [[-1, -1], [1, 0]]):
        with pytest.raises(ValueError, match="families: they are no tuples"):
            FamilyCounts.from_arrays(shape, {**whole, "families": np.array(wrong)})


def test_part_of_the_class__goes_with_its_family() -> None:
    table = {"a": list("0101"), "b": list("0011"), "y": list("npnp")}
    model = fb.NetworkClassifier([("a", "y"), ("b", "y"), ("y", "c")])
    stats = model.fit({**table, "c": list("0110")}, "y").statistics_
    part = stats.families
    assert part.families == [(0,), (1,), (0, 1), (2,)]
    assert part.class_is == (APART, APART, BELOW, ABOVE)
    again = fb.Statistics.from_state(*stats.state(), "memory")
    assert again == stats
    assert again.families.class_is == part.class_is
    assert (stats + stats - stats).families.class_is == part.class_is
    # Other columns, in another order.
    fewer = replace(stats.schema, features=stats.schema.features[1:][::-1])
    taken = part.take(fewer.alignment(stats.schema))
    assert list(zip(taken.families, taken.class_is, strict=True)) == [((1,), APART), ((0,), ABOVE)]
    plain = FamilyCounts(part.shape, families=part.families)
    assert plain.class_is == (ABOVE,) * 4
    assert plain != part
    with pytest.raises(SchemaError, match="different structures"):
        plain + part


@pytest.mark.parametrize("broken", [[0, 0, 2], [0, 0, 2, 3], [[0], [0], [2], [1]]])
def test_part_of_the_class__that_does_not_fit_is_refused(broken: Any) -> None:
    table = {"a": list("0101"), "b": list("0011"), "c": list("0110"), "y": list("npnp")}
    model = fb.NetworkClassifier([("a", "y"), ("b", "y"), ("y", "c")]).fit(table, "y")
    header, arrays = model.statistics_.state()
    arrays = {**arrays, "families.class_is": np.array(broken, np.uint8)}
    with pytest.raises(FileFormatError, match="class_is"):
        fb.Statistics.from_state(header, arrays, "file")
