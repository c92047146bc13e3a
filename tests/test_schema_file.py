"""A schema in a file: it comes back equal, whatever its columns, or is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core import schema_file
from fastbayes.core.domains import sorted_domain
from fastbayes.core.schema import Feature, Schema, to_header
from fastbayes.core.schema_file import packed, unpacked

DOMAINS = st.one_of(
    st.lists(st.text(max_size=3), max_size=4).map(lambda some: pa.array(some, pa.string())),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda x: pa.array(x, pa.int64())),
    st.lists(st.integers(0, 2**64 - 1), max_size=4).map(lambda some: pa.array(some, pa.uint64())),
    st.lists(st.floats(allow_nan=False), max_size=4).map(
        lambda some: pa.array([x + 0.0 for x in some], pa.float64())
    ),
    st.lists(st.booleans(), max_size=2).map(lambda some: pa.array(some, pa.bool_())),
    st.just(pa.nulls(0)),
).map(sorted_domain)
CUTS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4, unique=True).map(
    lambda some: sorted({x + 0.0 for x in some})
)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    features: list[Feature] = []
    for j in range(draw(st.integers(0, 6))):
        what = draw(st.sampled_from(["values", "cuts", "numeric"]))
        if what == "cuts":
            features.append(Feature.binned(f"x{j}", draw(CUTS)))
        else:
            values = draw(DOMAINS) if what == "values" else None
            kind = "categorical" if what == "values" else "numeric"
            features.append(Feature(f"x{j}", kind, values, draw(st.booleans())))  # type: ignore[arg-type]
    return Schema("y", draw(DOMAINS), tuple(features), draw(st.booleans()), null_values=("-",))


def copied(arrays: dict[str, Any]) -> dict[str, Any]:
    return {
        key: array.copy() if isinstance(array, np.ndarray) else pa.concat_arrays([array])
        for key, array in arrays.items()
    }


SCHEMA = Schema(
    "y",
    pa.array(["no", "yes"]),
    (
        Feature("s", "categorical", pa.array(["a", "b", "c"])),
        Feature("n", "numeric"),
        Feature.binned("b", [0.5, 1.5]),
        Feature("i", "categorical", pa.array([1, 2]), True),
        Feature("t", "categorical", pa.array(["a"])),
        Feature.binned("one", []),
    ),
)


@given(schemas())
def test_round_trip(schema: Schema) -> None:
    header, arrays = packed(schema)
    again = unpacked(header, copied(arrays))
    assert again == schema
    assert [f.values is None or f.values.type for f in again.features] == [
        f.values is None or f.values.type for f in schema.features
    ]


def test_few_arrays() -> None:
    header, arrays = packed(SCHEMA)
    assert [*arrays] == ["classes", "lengths", "domains.string", "domains.int64", "cuts"]
    assert header["features"] == ["s", "n", "b", "i", "t", "one"]


def test_format_1__an_array_for_each_feature() -> None:
    assert unpacked(*to_header(SCHEMA)) == SCHEMA


def test_met_again__the_same_object() -> None:
    header, arrays = packed(SCHEMA)
    assert unpacked(dict(header), copied(arrays)) is unpacked(dict(header), copied(arrays))
    for change in ({"target": "z"}, {"missing": "category"}, {"declared": [0, 2, 3, 5]}):
        other = unpacked({**header, **change}, arrays)
        assert other != SCHEMA
        assert unpacked(header, arrays) == SCHEMA
    more = pa.array(["a", "b", "d", "a"])
    assert unpacked(header, {**arrays, "domains.string": more}).features[0].values[2].as_py() == "d"  # type: ignore[index]
    assert unpacked(header, arrays) == SCHEMA


def test_remembered__few_and_none_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_file, "_recent", ())
    header, arrays = packed(SCHEMA)
    for i in range(10):
        unpacked({**header, "target": str(i)}, arrays)
    assert len(schema_file._recent) == schema_file.REMEMBERED
    monkeypatch.setattr(schema_file, "REMEMBERED_BYTES", 10)
    assert unpacked(header, arrays) is not unpacked(header, arrays)


def test_parts_of_one_schema_share_it() -> None:
    stats = fb.count({"x": ["a", "b", "a"], "y": ["no", "yes", "yes"]}, "y")
    one, other = (fb.Statistics.from_bytes(stats.to_bytes()) for _ in range(2))
    assert one.schema is other.schema
    assert (one + other).schema is one.schema
    assert one + other == stats * 2


@pytest.mark.parametrize(
    "change",
    [
        {"domains": {"string": [0, 4], "int64": [2, 3]}},
        {"domains": {"string": [0, 4], "int64": [2, 3, 3]}},
        {"domains": {"string": [0, 4], "int64": [2, 3, 6]}},
        {"domains": {"string": [0, 4], "int64": [2, 3, -1]}},
        {"domains": {"string": [0, 4], "int64": [2, 3, "5"]}},
        {"domains": {"string": [0, 1], "int64": [2, 3, 5]}},
        {"domains": {"string": [4, 0], "int64": [2, 3, 5]}},
        {"domains": {"double": [0, 4], "int64": [2, 3, 5]}},
        {"domains": [[0, 4], [2, 3, 5]]},
        {"cut": [2, 7]},
        {"cut": [2, 3]},
        {"cut": 2},
        {"numeric": []},
        {"numeric": [0]},
        {"numeric": [False]},
        {"numeric": [3]},
        {"numeric": [0, 1]},
        {"numeric": [1, 1]},
        {"numeric": [9]},
        {"declared": [9]},
        {"features": ["s", "n", "b", "i", "t", "t"]},
        {"features": ["s", "n", "b", "i", "t", 5]},
        {"features": ["s", "n", "b", "i", "t"]},
    ],
    ids=str,
)
def test_refused__places_that_do_not_fit(change: dict[str, Any]) -> None:
    header, arrays = packed(SCHEMA)
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        unpacked(header | change, arrays)


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": np.array([3, 3, 2, 1])},
        {"lengths": np.array([2, 3, 2, 1, 1])},
        {"lengths": np.array([4, 3, 2, 0, 1])},
        {"lengths": np.array([5, 3, 2, -1, 1])},
        {"lengths": np.array([3.0, 3.0, 2.0, 1.0, 1.0])},
        {"lengths": pa.array(["a"])},
        {"domains.string": pa.array(["b", "a", "c", "a"])},
        {"domains.string": pa.array(["a", "b", "c"])},
        {"domains.int64": pa.array([0, 1, 2, 1, 2, None])},
        {"cuts": pa.array([1.5, 0.5])},
        {"cuts": pa.array([0.5])},
    ],
)
def test_refused__arrays_that_do_not_fit(change: dict[str, Any]) -> None:
    header, arrays = packed(SCHEMA)
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        unpacked(header, {**arrays, **change})
