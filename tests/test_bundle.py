"""Statistics as values: parts add up, go away again, and what does not fit is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import cells, random_table

import fastbayes as fb
from fastbayes.core.errors import DataError, SchemaError


def counted(rows: dict[str, Any], target: str | None = "y", **options: Any) -> fb.Statistics:
    return fb.count(pa.table(rows), target, **options)


def count(table: pa.Table, **options: Any) -> fb.Statistics:
    return fb.count(table, "y", categorical=["code"], **options)


def domain(stats: fb.Statistics, name: str) -> Any:
    (feature,) = (f for f in stats.schema.features if f.name == name)
    return None if feature.values is None else feature.values.to_pylist()


@given(cut=st.integers(0, 300), seed=st.integers(0, 9))
def test_parts_counted_apart_add_up(cut: int, seed: int) -> None:
    table = random_table(300, seed).drop_columns("w")
    whole, first, last = count(table), count(table.slice(0, cut)), count(table.slice(cut))
    assert (first + last).allclose(whole)
    assert (first + last).values == whole.values
    assert (last + first).values == whole.values


@given(seed=st.integers(0, 50))
def test_any_grouping_adds_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = random_table(120, seed).select(["text", "flag", "code", "y"])
    cuts = np.sort(rng.integers(0, 121, 4))
    pieces = [count(table.slice(a, b - a)) for a, b in zip([0, *cuts], [*cuts, 120], strict=True)]
    order = rng.permutation(len(pieces))
    total = pieces[order[0]]
    for i in order[1:]:
        total = total + pieces[i]
    assert total == count(table)
    assert sum((pieces[i] for i in order[1:]), start=pieces[order[0]]) == total


def test_add__domains_and_classes_are_joined_by_value() -> None:
    a = counted({"x": ["q", "b", "q"], "y": ["m", "m", "z"]})
    b = counted({"x": ["a", "q", None], "y": ["z", "c", "c"]})
    both = a + b
    assert domain(both, "x") == ["a", "b", "q"]
    assert both.schema.classes.to_pylist() == ["c", "m", "z"]
    assert cells(both) == {
        ("x", "q", "m"): 1,
        ("x", "b", "m"): 1,
        ("x", "q", "z"): 1,
        ("x", "a", "z"): 1,
        ("x", "q", "c"): 1,
        ("x", None, "c"): 1,
    }
    assert both == b + a


def test_add__whole_numbers_beside_fractions_are_fractions() -> None:
    a = counted({"x": [1, 2], "y": ["a", "b"]}, categorical=["x"])
    b = counted({"x": [2.0, 2.5], "y": ["a", "b"]}, categorical=["x"])
    assert domain(a + b, "x") == [1.0, 2.0, 2.5]
    assert cells(a + b)["x", 2.0, "a"] == 1
    assert a + b == b + a


def test_add__numbers_that_float64_cannot_tell_apart_are_refused() -> None:
    a = counted({"x": [2**53, 2**53 + 1], "y": ["a", "b"]}, categorical=["x"])
    b = counted({"x": [0.5], "y": ["a"]}, categorical=["x"])
    wanted = rf"column 'x': {2**53 + 1} is a whole number beyond 2\*\*53, .* double .*; cast it to"
    with pytest.raises(SchemaError, match=wanted):
        a + b


def test_add__a_column_of_nulls_joins_any_other() -> None:
    nothing = counted({"x": pa.nulls(2), "y": ["a", "b"]})
    words = counted({"x": ["p", None], "y": ["a", "a"]})
    numbers = counted({"x": [1.5, 2.5], "y": ["a", "b"]})
    assert cells(nothing + words) == cells(words + nothing)
    assert cells(nothing + words)["x", None, "a"] == 2
    assert (numbers + nothing).moments.count.tolist() == [[1, 1]]
    assert numbers + nothing == nothing + numbers


def test_add__weighted_and_unweighted() -> None:
    a = counted({"x": ["p", "q"], "y": ["a", "b"]})
    b = counted({"x": ["p", "q"], "y": ["a", "b"], "w": [0.5, 2]}, sample_weight="w")
    assert (a + b).weighted
    assert cells(a + b) == {("x", "p", "a"): 1.5, ("x", "q", "b"): 3.0}
    assert a + b == b + a


BASE: dict[str, Any] = {"x": ["p", "q"], "n": [1.0, 2.0], "y": ["a", "b"]}


@pytest.mark.parametrize(
    ("rows", "target", "options", "says"),
    [
        ({**BASE, "y": BASE["n"], "n": BASE["y"]}, "y", {}, "column 'n' is numeric in one and cat"),
        ({**BASE, "z": [1, 2]}, "y", {}, "column 'z' is in only one of the two; count both"),
        ({"n": [1.0], "y": ["a"]}, "y", {}, "column 'x' is in only one of the two; count both"),
        ({**BASE, "x": [True, False]}, "y", {}, "column 'x' holds string.*bool.*cast it"),
        ({**BASE, "y": [1, 2]}, "y", {}, "column 'y' holds string.*int64.*cast it"),
        ({"x": ["p"], "n": [1.0], "z": ["a"]}, "z", {}, "targets differ: 'y' and 'z'"),
        (BASE, "y", {"missing": "category"}, "options differ: missing='marginalize'"),
        (BASE, "y", {"null_values": ["-"]}, "options differ: .*null_values"),
        (BASE, "y", {"moments": False}, "'moments'.*count both with the same options"),
        (BASE, "y", {"domains": {"x": ["q", "r", "p"]}}, "value 's' is outside the declared"),
        (BASE, "y", {"domains": {"y": ["a", "b", "d"]}}, "column 'y': value 'c' is outside"),
    ],
)
def test_mismatches_are_refused_by_name(
    rows: dict[str, Any], target: str, options: dict[str, Any], says: str
) -> None:
    mine = counted({"x": ["p", "s"], "n": [1.0, 2.0], "y": ["a", "c"]})
    theirs = counted(rows, target, **options)
    for a, b in ((mine, theirs), (theirs, mine)):
        with pytest.raises(SchemaError, match=says if a is mine else says.split()[0]):
            a + b
        with pytest.raises(SchemaError):
            a - b


# Retraction


@given(cut=st.integers(20, 280), seed=st.integers(0, 9))
def test_retraction_gives_back_what_there_was(cut: int, seed: int) -> None:
    table = random_table(300, seed).drop_columns("w")
    first, last = count(table.slice(0, cut)), count(table.slice(cut))
    left = first + last - last
    assert left.schema == first.schema
    assert left.values == first.values
    assert left.allclose(first, 1e-9)


def test_retraction__values_and_classes_that_no_longer_occur_leave() -> None:
    a = counted({"x": ["p", "q"], "b": [True, False], "y": ["a", "b"]})
    b = counted({"x": ["r", None], "b": [None, True], "y": ["c", "c"]})
    left = a + b - b
    assert left == a
    assert domain(left, "x") == ["p", "q"]
    nothing = a - a
    assert domain(nothing, "x") == []
    assert len(nothing.schema.classes) == 0
    assert nothing.n_rows == 0
    assert nothing + a == a


def test_retraction__declared_values_and_classes_stay() -> None:
    options = {"domains": {"x": ["p", "q", "never"], "y": ["a", "b", "c"]}}
    a = counted({"x": ["p", "q"], "y": ["a", "b"]}, **options)
    b = counted({"x": ["p"], "y": ["a"]}, **options)
    left = a - b
    assert domain(left, "x") == ["never", "p", "q"]
    assert left.schema.classes.to_pylist() == ["a", "b", "c"]
    assert cells(left) == {("x", "q", "b"): 1}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"x": ["p", "p"], "n": [1.0, 1.0], "y": ["a", "a"]}, "'n', class 'a'.*never added"),
        ({"x": ["q"], "n": [None], "y": ["a"]}, "'x': value 'q' would.*class 'a'.*never added"),
        ({"x": [None], "n": [None], "y": ["a"]}, "'x': it would be missing.*class 'a'"),
        ({"x": ["new"], "n": [None], "y": ["b"]}, "'x': value 'new' would.*class 'b'"),
        ({"x": ["p"], "n": [None], "y": ["z"]}, "'x': value 'p' would.*class 'z'"),
    ],
)
def test_retraction__of_what_was_never_added_is_refused(rows: dict[str, Any], says: str) -> None:
    types = {"x": pa.string(), "n": pa.float64(), "y": pa.string()}
    table = {k: pa.array(v, types[k]) for k, v in rows.items()}
    a = counted({"x": ["p", "q"], "n": [1.0, 2.0], "y": ["a", "b"]})
    with pytest.raises(DataError, match=says):
        a - counted(table)


def test_retraction__classes_alone() -> None:
    a, b = (
        counted({"n": [1.0], "y": ["a"]}),
        counted({"n": pa.array([None], pa.float64()), "y": ["z"]}),
    )
    with pytest.raises(DataError, match="class 'z' would have fewer than 0 rows"):
        a - b


def test_retraction__rows_without_a_class_count_too() -> None:
    a = counted({"x": ["p", "q", "q"], "y": ["a", None, None]})
    b = counted({"x": ["p", "q"], "y": ["a", None]})
    assert (a - b).dropped_rows == 1
    with pytest.raises(DataError, match="rows without a class"):
        b - counted({"x": ["q", "q", "p"], "y": [None, None, "a"]})


def test_retraction__weights_leave_no_crumbs() -> None:
    table = random_table(2000, 3).select(["text", "flag", "y", "w"])
    stats = [count_weighted(table.slice(a, 500)) for a in range(0, 2000, 500)]
    total = stats[0] + stats[1] + stats[2] + stats[3]
    left = total - stats[1] - stats[2] - stats[3]
    assert left.schema == stats[0].schema
    assert left.allclose(stats[0], 1e-9)
    assert (left - stats[0]).n_rows == 0
    assert len((left - stats[0]).schema.classes) == 0


def count_weighted(table: pa.Table) -> fb.Statistics:
    return fb.count(table, "y", sample_weight="w")


def test_rolling_window() -> None:
    table = random_table(3000, 4).drop_columns("w")
    days = [count(table.slice(100 * i, 100)) for i in range(30)]
    week = days[0]
    for day in days[1:7]:
        week = week + day
    for i in range(7, 30):
        week = week + days[i] - days[i - 7]
        direct = count(table.slice(100 * (i - 6), 700))
        assert week.values == direct.values
        assert week.allclose(direct, 1e-9)


# Scaling, comparing


def test_scaling() -> None:
    table = random_table(200, 5).drop_columns("w")
    stats = count(table)
    assert (2 * stats).allclose(stats + stats)
    assert (stats * 2.0).schema == stats.schema
    assert (0.25 * stats * 4).allclose(stats)
    assert (np.float32(0.5) * stats).n_rows == 100  # type: ignore[operator]
    assert (stats * 0).n_rows == 0
    for factor in (-1, np.nan, np.inf, "2", None):
        with pytest.raises((ValueError, TypeError)):
            stats * factor  # type: ignore[operator]


def test_equal_and_close() -> None:
    table = random_table(500, 6).drop_columns("w")
    a = count(table)
    assert a == count(table)
    assert a != count(table.slice(1))
    assert a != "statistics"
    assert a.allclose(a * 1.0)
    assert a == a * 1.0  # by value, whichever type holds the counts
    assert a * 2 == a + a
    assert sum([a, a]) == a + a
    assert not a.allclose(a * (1 + 1e-9))
    assert a.allclose(a * (1 + 1e-9), rtol=1e-8)
    assert not a.allclose(count(table, moments=False))
    assert not a.allclose(fb.count(table, "y"))
    with pytest.raises(TypeError):
        hash(a)


def test_provenance_and_dropped_rows_are_kept_but_not_compared() -> None:
    a = counted({"x": ["p", "q"], "y": ["a", None]})
    b = counted({"x": ["p"], "y": ["a"]})
    assert a == b
    assert (a + a).dropped_rows == 2
    assert a.provenance == ("pyarrow.Table",)


def test_parts_that_were_not_counted_are_named() -> None:
    stats = counted({"x": ["p"], "n": [1.0], "y": ["a"]}, moments=False)
    with pytest.raises(SchemaError, match="no moments; count again with moments=True"):
        stats.moments  # noqa: B018
    assert stats.values.class_counts.tolist() == [1]


def test_without_a_target() -> None:
    stats = counted({"x": ["p", "q", "q"]}, None)
    assert stats.n_rows == 3
    assert stats.values.of(0).tolist() == [[1], [2]]
    both = stats + counted({"x": ["r"]}, None)
    assert both.values.of(0).tolist() == [[1], [2], [1]]
    assert both - counted({"x": ["r"]}, None) == stats


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("moments", {"moments": True}),
        ("pairs", {"pairs": True}),
        ("triples", {"triples": True}),
        ("scatter", {"scatter": True}),
        ("cells", {"cells": True}),
        ("cell_scatter", {"cell_scatter": True}),
        ("sketches", {"numeric": "kde"}),
        ("families", {"families": [...]}),
    ],
)
def test_a_part_that_is_not_held__says_how_to_count_it(name: str, remedy: dict[str, Any]) -> None:
    table = {"a": [*"ppqq"], "b": [*"uvuv"], "z": [1.5, 2.0, 0.5, 1.0], "y": [*"stst"]}
    said = ", ".join(f"{key}={value!r}" for key, value in remedy.items())
    with pytest.raises(fb.SchemaError, match="count again with ") as raised:
        getattr(fb.count(table, "y", moments=False), name)
    assert str(raised.value).endswith(f"count again with {said.replace('Ellipsis', '...')}")
    how = {"families": [("a", "b")]} if name == "families" else remedy
    assert getattr(fb.count(table, "y", **how), name) is not None
