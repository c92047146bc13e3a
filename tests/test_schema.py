"""Schemas as values: types, domains, unions, where cells stand."""

from __future__ import annotations

import datetime
import decimal
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastbayes.core import domains
from fastbayes.core.domains import (
    ascending,
    common_type,
    default_kind,
    domain,
    is_sorted,
    positions,
    same_values,
    sorted_domain,
    value_type,
)
from fastbayes.core.errors import SchemaError
from fastbayes.core.picks import chosen
from fastbayes.core.schema import Feature, Schema, Shape, from_header, labels, to_header
from fastbayes.data.encode import Encoder
from fastbayes.data.order import sorted_values
from fastbayes.data.unify import unify_types

TEXT, WHOLE, REAL, TRUTH = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def schema(*columns: tuple[str, list[Any] | None], **options: Any) -> Schema:
    features = []
    for name, values in columns:
        if values is None:
            features.append(Feature(name, "numeric"))
        else:
            features.append(Feature(name, "categorical", sorted_domain(pa.array(values))))
    return Schema("y", pa.array(["a", "b"]), tuple(features), **options)


def declared(name: str, values: list[Any]) -> Schema:
    feature = Feature(name, "categorical", domain(name, values), declared=True)
    return Schema("y", pa.array(["a", "b"]), (feature,))


# Types


@pytest.mark.parametrize(
    ("stored", "canonical", "kind"),
    [
        (pa.string(), TEXT, "categorical"),
        (pa.large_string(), TEXT, "categorical"),
        (pa.string_view(), TEXT, "categorical"),
        (pa.dictionary(pa.int8(), pa.large_string()), TEXT, "categorical"),
        (pa.dictionary(pa.uint32(), pa.int16()), WHOLE, "categorical"),
        (pa.dictionary(pa.int32(), pa.float32()), REAL, "categorical"),
        (pa.bool_(), TRUTH, "categorical"),
        (pa.null(), pa.null(), "categorical"),
        (pa.int8(), WHOLE, "numeric"),
        (pa.uint32(), WHOLE, "numeric"),
        (pa.uint64(), pa.uint64(), "numeric"),
        (pa.float16(), REAL, "numeric"),
        (pa.float32(), REAL, "numeric"),
        (pa.decimal128(9, 2), REAL, "numeric"),
        (pa.decimal256(50, 2), REAL, "numeric"),
    ],
    ids=str,
)
def test_types(stored: pa.DataType, canonical: pa.DataType, kind: str) -> None:
    assert value_type("x", stored) == canonical
    assert value_type("x", canonical) == canonical
    assert default_kind("x", stored) == kind


@pytest.mark.parametrize(
    ("stored", "remedy"),
    [
        (pa.timestamp("us"), "cast it to a number, or extract hour"),
        (pa.timestamp("s", tz="UTC"), "cast it to a number, or extract hour"),
        (pa.date32(), "cast it to a number, or extract hour"),
        (pa.time64("ns"), "cast it to a number, or extract hour"),
        (pa.duration("s"), "cast it to a number, or extract hour"),
        (pa.dictionary(pa.int8(), pa.date32()), "cast it to a number, or extract hour"),
        (pa.list_(pa.int8()), "explode it into rows or columns"),
        (pa.large_list(pa.string()), "explode it into rows or columns"),
        (pa.struct([("a", pa.int8())]), "explode it into rows or columns"),
        (pa.map_(pa.string(), pa.int8()), "explode it into rows or columns"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "run_end_decode"),
        (pa.binary(), "cast it to string"),
        (pa.binary(4), "cast it to string"),
    ],
    ids=str,
)
def test_types_that_cannot_be_features_name_column_and_remedy(
    stored: pa.DataType, remedy: str
) -> None:
    for function in (value_type, default_kind):
        with pytest.raises(SchemaError, match=f"column 'when' has type .*{remedy}") as caught:
            function("when", stored)
        assert str(stored.value_type if pa.types.is_dictionary(stored) else stored) in str(
            caught.value
        )
        assert "\n" not in str(caught.value)


def test_common_type__is_symmetric_and_refuses_by_name() -> None:
    kinds = [TEXT, WHOLE, pa.uint64(), REAL, TRUTH, pa.null()]
    for a, b in itertools.product(kinds, kinds):
        mixed = {a, b} - {pa.null()}
        if len(mixed) < 2:
            assert common_type("x", a, b) == (mixed or {pa.null()}).pop()
        elif mixed <= {WHOLE, pa.uint64(), REAL}:
            assert common_type("x", a, b) == (REAL if REAL in mixed else WHOLE)
        else:
            with pytest.raises(SchemaError, match=r"'x' holds .* in one place and .* in another"):
                common_type("x", a, b)


def test_common_type__is_that_of_both_columns_read_as_one() -> None:
    bits = 8, 16, 32, 64
    kinds = [getattr(pa, f"{sign}int{n}")() for sign in ("", "u") for n in bits]
    kinds += [pa.float16(), pa.float32(), REAL, pa.decimal128(9, 2), pa.null(), TEXT, TRUTH]
    for a, b in itertools.product(kinds, kinds):
        if {a, b} in ({pa.uint64(), getattr(pa, f"uint{n}")()} for n in bits[:3]):
            continue  # read as uint64, while values of the shorter one are int64
        for one, other in ((a, b), (pa.dictionary(pa.int8(), a), pa.dictionary(pa.int8(), b))):
            if (read := unify_types(one, other)) is not None:
                apart = value_type("x", one), value_type("x", other)
                assert common_type("x", *apart) == value_type("x", read)


# Domains


PIECES = ["", "\0", "a", "b", "é", "☃", "abcdefg"]


@given(
    texts=st.lists(
        st.lists(st.sampled_from(["", "\0", "a", "b", "é", "☃", "abcdefg"]), max_size=12).map(
            "".join
        )
    ),
    around=st.booleans(),
)
def test_sorted_domain__texts_of_equal_beginnings(texts: list[str], around: bool) -> None:
    column = pa.array(texts, TEXT)
    if around:
        column = pa.array(["zz", None, *texts, "a"], TEXT).slice(2, len(texts))
    assert [texts[i] for i in ascending(column)] == sorted(texts)
    assert sorted_domain(column).to_pylist() == sorted(set(texts))
    assert is_sorted(sorted_domain(column))
    assert is_sorted(column) == (texts == sorted(set(texts)))


def test_sorted_domain__many_texts() -> None:
    """More than are made ready at once, of which few are told apart by their first bytes."""
    rng = np.random.default_rng(0)
    texts = [f"{'same' * (k % 5)}{k // 7:b}" for k in rng.permutation(40_000)]
    assert sorted_domain(pa.array(texts)).to_pylist() == sorted(set(texts))


def test_sorted_domain() -> None:
    assert sorted_domain(pa.array(["b", None, "é", "a", "Z", "b", ""])).to_pylist() == [
        *["", "Z", "a", "b", "é"]
    ]
    assert sorted_domain(pa.array([True, None, False])).to_pylist() == [False, True]
    assert sorted_domain(pa.array([3, -1, 3])).to_pylist() == [-1, 3]
    assert sorted_domain(pa.nulls(3)).to_pylist() == []


@pytest.mark.parametrize(
    ("given", "kind", "values"),
    [
        (["q", "p"], TEXT, ["p", "q"]),
        (("q", "p"), TEXT, ["p", "q"]),
        ({"q": 1, "p": 2}, TEXT, ["p", "q"]),
        (np.array(["q", "p"]), TEXT, ["p", "q"]),
        (pa.array(["q", "p"]).dictionary_encode(), TEXT, ["p", "q"]),
        (pa.chunked_array([["q"], ["p"]]), TEXT, ["p", "q"]),
        (range(3), WHOLE, [0, 1, 2]),
        (np.array([2, 1], np.int8), WHOLE, [1, 2]),
        ([2**64 - 1, 1], pa.uint64(), [1, 2**64 - 1]),
        ([1, 0.5], REAL, [0.5, 1.0]),
        ([-0.0, 1.0], REAL, [0.0, 1.0]),
        ([decimal.Decimal("0.5")], REAL, [0.5]),
        ([True, False], TRUTH, [False, True]),
    ],
    ids=str,
)
def test_domain(given: Any, kind: pa.DataType, values: list[Any]) -> None:
    result = domain("x", given)
    assert result.type == kind
    assert result.to_pylist() == values
    assert str(result.to_pylist()) == str(values)  # -0.0 is 0.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["a", "a"], "repeated or missing"),
        (["a", None], "repeated or missing"),
        ([1.0, float("nan")], "repeated or missing"),
        ([0.0, -0.0], "repeated or missing"),
        ([], "is empty"),
        ("abc", r"give a list of values, \['abc'\]"),
        (["a", 1], "list values of one type"),
        (3, "not iterable"),
        (None, "not iterable"),
        ([2**64], "list values of one type"),
        ([b"a"], "cannot be a feature"),
        ([[1]], "cannot be a feature"),
        (
            [datetime.date(2020, 1, 1)],
            "holds dates or times: cast column and values",
        ),
    ],
    ids=str,
)
def test_domain__refused_by_name(given: Any, says: str) -> None:
    with pytest.raises(SchemaError, match=says) as caught:
        domain("x", given)
    assert "'x'" in str(caught.value)


def test_positions() -> None:
    wanted, existing = pa.array(["c", "a", None, "b"]), pa.array(["a", "b"])
    assert positions(wanted, existing).tolist() == [-1, 0, -1, 1]
    assert positions(wanted, pa.nulls(0)).tolist() == [-1] * 4
    assert positions(wanted, None).tolist() == [-1] * 4
    assert positions(pa.array([], TEXT), existing).tolist() == []
    assert positions(pa.array([1, 2]), pa.array([0.5, 2.0])).tolist() == [-1, 1]
    with pytest.raises(SchemaError, match="'x' holds"):
        positions(pa.array([1]), existing, "x")


def test_same_values() -> None:
    assert same_values(None, None)
    assert not same_values(None, pa.array(["a"]))
    assert same_values(pa.array([], TEXT), pa.array([], WHOLE))
    assert not same_values(pa.array([1]), pa.array([1.0]))
    assert not same_values(pa.array(["a", "b"]), pa.array(["b", "a"]))


@pytest.mark.parametrize(
    ("values", "kind"),
    [(["é", ""], "U"), ([1, 2], "i"), ([True], "b"), ([0.5], "f"), ([None], "f")],
)
def test_labels(values: list[Any], kind: str) -> None:
    result = labels(pa.array(values))
    assert result.dtype.kind == kind
    assert result.tolist() == (values if values != [None] else [])


# Schemas


def test_schema__parts_and_shape() -> None:
    given = schema(("n", None), ("x", ["p", "q"]), ("m", None), ("z", ["r"]), ("void", [None]))
    assert given.names == ("n", "x", "m", "z", "void")
    assert [f.name for f in given.categorical] == ["x", "z", "void"]
    assert [f.name for f in given.numeric] == ["n", "m"]
    assert given.shape.sizes.tolist() == [2, 1, 0]
    assert given.shape.offsets.tolist() == [0, 3, 5, 6]
    assert (given.shape.n_numeric, given.shape.n_classes) == (2, 2)
    assert given.class_labels.tolist() == ["a", "b"]
    assert Shape(np.array([], np.int64), 0, 1).offsets.tolist() == [0]


def test_schema__equality_is_by_value() -> None:
    given = schema(("x", ["p", "q"]), ("n", None))
    assert given == schema(("x", ["q", "p"]), ("n", None))
    for other in (
        schema(("x", ["p"]), ("n", None)),
        schema(("n", None), ("x", ["p", "q"])),
        schema(("x", ["p", "q"]), ("n", None), missing="category"),
        schema(("x", ["p", "q"]), ("n", None), null_values=("-",)),
        schema(("x", ["p", "q"]), ("n", None), classes_declared=True),
        schema(("x", None), ("n", None)),
    ):
        assert given != other
    assert declared("x", ["p", "q"]) != schema(("x", ["p", "q"]))
    assert given != "schema"
    with pytest.raises(TypeError):
        hash(given)


texts = st.lists(st.sampled_from(["p", "q", "r", "s", "é"]), unique=True)
wholes = st.lists(st.integers(-3, 3), unique=True)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    x, i = draw(texts), draw(wholes)
    void = draw(st.booleans())
    features = (
        Feature("x", "categorical", pa.nulls(0) if void else sorted_domain(pa.array(x, TEXT))),
        Feature("n", "numeric"),
        Feature("i", "categorical", sorted_domain(pa.array(i, WHOLE))),
    )
    classes = sorted_domain(pa.array(draw(texts), TEXT))
    return Schema("y", classes, features)


@given(schemas(), schemas(), schemas())
def test_union__is_commutative_associative_idempotent(a: Schema, b: Schema, c: Schema) -> None:
    assert a.union(b) == b.union(a)
    assert a.union(b).union(c) == a.union(b.union(c))
    assert a.union(a) == a
    assert a.union(b).union(b) == a.union(b)
    both = a.union(b)
    for mine, theirs, joined in zip(a.features, b.features, both.features, strict=True):
        if mine.kind == "categorical":
            wanted = {*mine.values.to_pylist(), *theirs.values.to_pylist()}  # type: ignore[union-attr]
            assert joined.values.to_pylist() == sorted(wanted)  # type: ignore[union-attr]


def test_in_order__says_where_every_cell_stands() -> None:
    features = (
        Feature("x", "categorical", pa.array(["c", "never", "a", "b"])),
        Feature("n", "numeric"),
        Feature("i", "categorical", pa.array([3, 1, 2]), declared=True),
        Feature("none", "categorical", pa.nulls(0)),
    )
    met = Schema("y", pa.array([True, False]), features)
    seen = [np.array([True, False, True, True]), np.array([True, False, True]), np.zeros(0, bool)]
    found, to = met.in_order(seen, np.array([True, True]), sorted_values)
    assert [None if f.values is None else f.values.to_pylist() for f in found.features] == [
        *(["a", "b", "c"], None, [1, 2, 3], []),
    ]
    assert found.classes.to_pylist() == [False, True]
    again = found.alignment(met)
    assert to.shape.sizes.tolist() == again.shape.sizes.tolist() == [3, 3, 0]
    assert [v.tolist() for v in to.values] == [v.tolist() for v in again.values]
    for mine, other in zip((to[1], *to[3:]), (again[1], *again[3:]), strict=True):
        assert mine.tolist() == other.tolist()


@given(schemas(), schemas())
def test_alignment__says_where_every_cell_stands(a: Schema, b: Schema) -> None:
    both = a.union(b)
    to = both.alignment(a)
    assert to.shape.sizes.tolist() == both.shape.sizes.tolist()
    for feature, i, codes in zip(both.categorical, to.categorical, to.values, strict=True):
        mine = a.categorical[i]
        assert mine.name == feature.name
        known = mine.values.to_pylist()  # type: ignore[union-attr]
        for value, code in zip(feature.values.to_pylist(), codes, strict=True):  # type: ignore[union-attr]
            assert (known[code] if code >= 0 else None) == (value if value in known else None)
    assert to.numeric.tolist() == [0]


def test_union__columns_may_come_in_another_order() -> None:
    a, b = schema(("x", ["p"]), ("z", ["q"])), schema(("z", ["r"]), ("x", ["s"]))
    assert a.union(b) == schema(("x", ["p", "s"]), ("z", ["q", "r"]))
    to = a.union(b).alignment(b)
    assert to.categorical.tolist() == [1, 0]


def test_union__declared_domains_hold() -> None:
    closed = declared("x", ["p", "q", "r"])
    assert closed.union(schema(("x", ["q"]))) == closed
    assert schema(("x", ["q"])).union(closed) == closed
    for a, b in ((closed, schema(("x", ["s"]))), (schema(("x", ["s"])), closed)):
        with pytest.raises(SchemaError, match="column 'x': value 's' is outside the declared"):
            a.union(b)
    with pytest.raises(SchemaError, match="outside the declared domain"):
        closed.union(declared("x", ["p", "s"]))


@given(schemas())
def test_header__round_trip(given: Schema) -> None:
    assert from_header(*to_header(given)) == given


def wrong_headers() -> list[tuple[str, Any]]:
    def kind(header: Any, arrays: Any) -> None:
        header["features"][0][1] = "both"

    def twice(header: Any, arrays: Any) -> None:
        header["features"][1][0] = header["features"][0][0]

    def number(header: Any, arrays: Any) -> None:
        header["features"][0][0] = 3

    def order(header: Any, arrays: Any) -> None:
        arrays["values.0"] = pa.array(["q", "p"])

    def repeated(header: Any, arrays: Any) -> None:
        arrays["classes"] = pa.array(["a", "a"])

    def null(header: Any, arrays: Any) -> None:
        arrays["values.0"] = pa.array(["p", None])

    def narrow(header: Any, arrays: Any) -> None:
        arrays["values.0"] = pa.array([1, 2], pa.int8())

    def target(header: Any, arrays: Any) -> None:
        header["target"] = None

    def lost(header: Any, arrays: Any) -> None:
        del arrays["values.0"]

    def short(header: Any, arrays: Any) -> None:
        header["features"] = 3

    return [
        (f.__name__, f)
        for f in (kind, twice, number, order, repeated, null, narrow, target, lost, short)
    ]


@pytest.mark.parametrize(("name", "spoil"), wrong_headers())
def test_header__what_was_never_written_is_refused(name: str, spoil: Any) -> None:
    header, arrays = to_header(schema(("x", ["p", "q"]), ("n", None)))
    spoil(header, arrays)
    with pytest.raises((ValueError, KeyError, TypeError)):
        from_header(header, arrays)


@pytest.mark.parametrize(
    ("picks", "names"),
    [
        (None, ""),
        ("b", "b"),
        (1, "b"),
        ([0, "c"], "ac"),
        ([-1], "c"),
        (np.array([0, 2]), "ac"),
        (np.array(["a"]), "a"),
        ((), ""),
    ],
    ids=str,  # of a set, the order in the id would differ between processes
)
def test_chosen(picks: Any, names: str) -> None:
    assert {*chosen(["a", "b", "c"], picks)} == set(names)


@pytest.mark.parametrize("pick", ["d", 3, -4, True, 1.5, None])
def test_chosen__names_what_is_not_there(pick: Any) -> None:
    with pytest.raises(SchemaError, match=f"categorical: no column {pick!r}"):
        chosen(["a", "b", "c"], [pick])


def test_declared__is_checked_once_and_left_as_it_is() -> None:
    lists = {"a": ["y", "x"], "b": [2, 1]}
    found = domains.declared(lists)
    assert domains.declared(found) is found
    assert found == {"a": pa.array(["x", "y"]), "b": pa.array([1, 2])}
    columns = pa.schema([("a", pa.string()), ("b", pa.int64()), ("y", pa.string())])
    known, again = (Encoder.learning(columns, "y", domains=d).schema() for d in (found, lists))
    assert known == again
    assert found.keys() == lists.keys()
