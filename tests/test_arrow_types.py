"""Every Arrow type is counted, the same whatever it comes in, or refused by name and remedy."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data.memory import arrow_array
from fastbayes.statistics.bundle import Statistics

N = 12
NUMBERS = [1, 2, 3, None] * 3
TEXTS = ["u", "v", None, "w"] * 3


def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Return values as an array of a type, by way of one that pyarrow casts."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError):
        return pa.array(values).cast(kind)


TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int64(), pa.large_string())]  # fmt: skip
NUMERIC = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
           pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal32(7, 2),
           pa.decimal64(12, 3), pa.decimal128(20, 3), pa.decimal256(50, 3)]  # fmt: skip
DAYS = [dt.date(2020, 1, 5), None, dt.date(2024, 2, 1)]
MOMENTS = [dt.datetime(2020, 1, 5, 3), None, dt.datetime(2024, 2, 1, 7)]
TIMES = [dt.time(3), None, dt.time(4, 5)]
WAITS = [dt.timedelta(3), None, dt.timedelta(seconds=5)]
UNITS = ("s", "ms", "us", "ns")
TEMPORAL: list[tuple[pa.DataType, list[Any]]] = [
    *((kind, DAYS) for kind in (pa.date32(), pa.date64())),
    *((pa.timestamp(unit, zone), MOMENTS) for unit in UNITS for zone in (None, "UTC")),
    *(
        (kind, TIMES)
        for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    ),
    *((pa.duration(unit), WAITS) for unit in UNITS),
]


class Tagged(pa.ExtensionType):
    """A type that another library has defined."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "fastbayes.tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _: bytes) -> Tagged:
        return cls(storage)


GOOD: dict[str, pa.Array] = {
    **{str(kind): column(kind, TEXTS) for kind in TEXT},
    **{str(kind): column(kind, NUMBERS) for kind in NUMERIC},
    **{str(kind): column(kind, values * 4) for kind, values in TEMPORAL},
    "bool": pa.array([True, False, None] * 4),
    "null": pa.nulls(N),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": "y"}] * 4),
    "dictionary of dates": pa.array([dt.date(2020, 1, 5), None] * 6).dictionary_encode(),
    "extension of text": pa.ExtensionArray.from_storage(Tagged(pa.string()), pa.array(TEXTS)),
    "extension of a struct": pa.ExtensionArray.from_storage(
        Tagged(pa.struct({"a": pa.int64()})), pa.array([{"a": 1}, None, {"a": 2}] * 4)
    ),
    "json": pa.array(TEXTS, pa.string()).cast(pa.json_(pa.string())),
    "bool8": pa.array([1, 0, None] * 4, pa.int8()).cast(pa.bool8()),
}
BAD: dict[str, tuple[pa.Array, str]] = {
    "binary": (pa.array([b"u", None] * 6), "cast it to string"),
    "large_binary": (pa.array([b"u", None] * 6, pa.large_binary()), "cast it to string"),
    "binary_view": (pa.array([b"u", None] * 6, pa.binary_view()), "cast it to string"),
    "fixed binary": (pa.array([b"uu", None] * 6, pa.binary(2)), "cast it to string.*bytes.hex"),
    "dictionary of binary": (pa.array([b"u", None] * 6).dictionary_encode(), "cast it to string"),
    "uuid": (pa.array([bytes(16)] * N, pa.uuid()), "cast it to string"),
    "list": (pa.array([[1], None] * 6), "leave it out .* or explode it"),
    "large_list": (pa.array([[1], None] * 6, pa.large_list(pa.int64())), "or explode it"),
    "list_view": (pa.array([[1], None] * 6, pa.list_view(pa.int64())), "or explode it"),
    "fixed list": (pa.array([[1, 2]] * N, pa.list_(pa.int64(), 2)), "or explode it"),
    "map": (pa.array([[("k", 1)]] * N, pa.map_(pa.string(), pa.int64())), "or explode it"),
    "list in a struct": (pa.array([{"a": [1]}] * N), "or explode it"),
    "interval": (pa.array([(1, 2, 3)] * N, pa.month_day_nano_interval()), "leave it out"),
    "run_end_encoded": (pa.RunEndEncodedArray.from_arrays([N], [1]), "run_end_decode"),
    "union": (
        pa.UnionArray.from_sparse(pa.array([0] * N, pa.int8()), [pa.array([1] * N)]),
        "or explode it",
    ),
}


def ways(rows: pa.Table, folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows in all that they may come in, where that holds the type."""
    yield "table", rows
    with pa.ipc.new_file(folder / "t.arrow", rows.schema) as writer:
        writer.write_table(rows, max_chunksize=5)
    yield "ipc", folder / "t.arrow"
    try:
        pq.write_table(rows, folder / "t.parquet", row_group_size=5)
        pq.read_table(folder / "t.parquet")
        yield "parquet", folder / "t.parquet"
    except (pa.ArrowException, NotImplementedError):
        pass
    try:
        frame = rows.to_pandas()
        pa.Table.from_pandas(frame)
        yield "pandas", frame
    except (ImportError, pa.ArrowException, NotImplementedError, TypeError, ValueError):
        pass
    try:
        import polars as pl

        yield "polars", pl.from_arrow(rows)
    except BaseException as error:  # what polars cannot hold ends in a panic
        if not isinstance(error, Exception) and "Panic" not in type(error).__name__:
            raise


def told(stats: Statistics) -> list[Any]:
    """Return the counts of known values by class, and of numbers their number and mean."""
    found: list[Any] = []
    columns = iter(stats.moments.count.tolist())
    means = iter(stats.moments.mean.tolist())
    values = stats.values
    for feature in stats.schema.features:
        if feature.kind == "numeric":
            found.append((feature.name, next(columns), np.round(next(means), 9).tolist()))
        else:
            place = [f.name for f in stats.schema.categorical].index(feature.name)
            assert feature.values is not None
            counts = values.of(place)[: feature.size]
            found.append((feature.name, feature.values.to_pylist(), counts.tolist()))
    return found


@pytest.mark.parametrize("name", GOOD)
def test_type__fits_and_is_counted_alike(name: str, tmp_path: Path) -> None:
    rows = pa.table({"x": GOOD[name], "a": ["s", "t"] * 6, "y": ["n", "p", "p"] * 4})
    first = None
    for way, source in ways(rows, tmp_path):
        if way == "pandas" and name in ("bool", "bool8", *map(str, NUMERIC)):
            continue  # None makes objects or floats of these: other types
        stats = fb.count(source, "y")
        first = told(stats) if first is None else first
        assert told(stats) == first, way
        model = fb.NaiveBayes().fit_statistics(stats)
        assert model.predict_proba(source).shape == (N, 2)
    assert first is not None
    assert fb.count(rows, "y", exclude="x*").schema.names == ("a",)


def test_type__booleans_of_a_byte_are_booleans() -> None:
    rows = {"x": GOOD["bool8"], "y": ["n", "p", "p"] * 4}
    found = fb.count(pa.table(rows), "y")
    assert found == fb.count({**rows, "x": [True, False, None] * 4}, "y")


@pytest.mark.parametrize("name", BAD)
def test_type__is_refused_by_name_and_remedy(name: str, tmp_path: Path) -> None:
    held, remedy = BAD[name]
    rows = pa.table({"x": held, "a": ["s", "t"] * 6, "y": ["n", "p", "p"] * 4})
    for way, source in ways(rows, tmp_path):
        if way in ("pandas", "polars"):  # they hold other types
            continue
        with pytest.raises(SchemaError, match=f"column 'x.*' has type .*: .*{remedy}"):
            fb.count(source, "y")
        left_out = "x.a" if name == "list in a struct" else "x"
        assert fb.count(source, "y", exclude=left_out).schema.names == ("a",), way


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("kind", ["i2", "u4", "i8", "f2", "f4", "f8"])
def test_numpy__of_any_byte_order(kind: str, order: str) -> None:
    numbers = np.arange(N) % 5
    wanted = fb.count({"x": numbers.astype(kind), "y": ["n", "p", "p"] * 4}, "y")
    held = numbers.astype(order + kind)
    assert fb.count({"x": held, "y": ["n", "p", "p"] * 4}, "y").moments == wanted.moments
    array = fb.count(np.stack([held, held], axis=1), np.array(["n", "p", "p"] * 4))
    assert array.moments.mean[0].tolist() == wanted.moments.mean[0].tolist()


def test_pandas__of_extended_precision_or_another_byte_order() -> None:
    """As arrays of numpy are: Arrow has neither."""
    numbers = np.arange(N) % 5
    wanted = fb.count({"x": numbers.astype(float), "y": numbers % 2}, "y")
    for kind in (np.longdouble, ">f8"):
        x, y = (pd.Series(each.astype(kind)) for each in (numbers, numbers % 2))
        assert fb.count(pd.DataFrame({"x": x, "y": numbers % 2}), "y").moments == wanted.moments
        model = fb.NaiveBayes().fit(pd.DataFrame({"x": x}), y)
        assert model.predict_proba(pd.DataFrame({"x": x})).shape == (N, 2)


CELLS = {
    pa.string(): st.text("ab", max_size=2),
    pa.int32(): st.integers(-5, 5),
    pa.uint64(): st.integers(2**63, 2**63 + 3),
    pa.float16(): st.integers(-8, 8),
    pa.decimal128(9, 2): st.decimals(-9, 9, places=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(dt.date(2019, 1, 1), dt.date(2022, 1, 1)),
    pa.timestamp("us", "Europe/Berlin"): st.datetimes(
        dt.datetime(2019, 1, 1), dt.datetime(2022, 1, 1)
    ),
    pa.struct({"p": pa.string(), "q": pa.duration("ms")}): st.fixed_dictionaries(
        {"p": st.sampled_from("xy"), "q": st.timedeltas(dt.timedelta(0), dt.timedelta(9))}
    ),
}


@given(data=st.data(), kinds=st.lists(st.sampled_from([*CELLS]), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_types_together__are_counted_alike(
    data: st.DataObject, kinds: list[pa.DataType], tmp_path_factory: pytest.TempPathFactory
) -> None:
    n = data.draw(st.integers(1, 20))
    columns = {
        f"c{j}": pa.array(
            data.draw(st.lists(st.none() | CELLS[kind], min_size=n, max_size=n)), kind
        )
        for j, kind in enumerate(kinds)
    }
    rows = pa.table({**columns, "y": data.draw(st.lists(st.sampled_from("np"), min_size=n,
                                                        max_size=n))})  # fmt: skip
    found = {}
    for way, source in ways(rows, tmp_path_factory.mktemp("types")):
        if way != "pandas":
            found[way] = told(fb.count(source, "y"))
    assert all(each == found["table"] for each in found.values()), found


def test_decimals__are_numbers_or_categories() -> None:
    rows = {"x": [Decimal("1.10"), Decimal("2.25"), None, Decimal("1.1")], "y": [*"npnp"]}
    assert fb.count(rows, "y").schema.features[0].kind == "numeric"
    values = fb.count(rows, "y", categorical="x").schema.features[0].values
    assert values is not None
    assert values.to_pylist() == [1.1, 2.25]


def files_of(folder: Path, columns: list[pa.Array]) -> list[Path]:
    """Return a file for each column x, beside a y of two classes."""
    files = [folder / f"{i}.parquet" for i in range(len(columns))]
    for file, x in zip(files, columns, strict=True):
        pq.write_table(pa.table({"x": x, "y": ["p", "q"] * (len(x) // 2)}), file)
    return files


WIDE = 2**53 + 1


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("how", ["feature", "class", "folds"])
def test_whole_numbers__that_doubles_elsewhere_cannot_tell_apart(
    kind: pa.DataType, coded: bool, how: str, tmp_path: Path
) -> None:
    columns = [pa.array([2**53, None, WIDE, 1], kind), pa.array([1.5, 2.5])]
    if how == "folds":
        columns[0] = columns[0].fill_null(3)
    files = files_of(tmp_path, [c.dictionary_encode() if coded else c for c in columns])
    for some in (files, files[::-1]):
        with pytest.raises(
            DataError,
            match=rf"column 'x', row 2 of \S+0\.parquet: {WIDE} is a whole number beyond 2\*\*53, "
            r".* double elsewhere.*; cast it to one type, such as string",
        ):
            if how == "feature":
                fb.count(some, "y", categorical=["x"])
            elif how == "class":
                fb.count(some, "x")
            else:
                fb.count(some, "y", folds="x")
    tables = [pq.read_table(file) for file in files]
    texts = [t.set_column(0, "x", t["x"].cast(pa.string())) for t in tables]
    for file, table in zip(files, texts, strict=True):
        pq.write_table(table, file)
    told = fb.count(files, "y", categorical=["x"]).schema.categorical[0].values
    assert told is not None
    assert str(WIDE) in told.to_pylist()


def test_whole_numbers__beside_doubles_are_numbers_or_the_same_categories(tmp_path: Path) -> None:
    few = [pa.array([2, None, 2**53, 1]), pa.array([1.0, 2.5])]
    files, whole = files_of(tmp_path, few), [2, None, 2**53, 1, 1.0, 2.5]
    rows = pa.table({"x": pa.array(whole, pa.float64()), "y": ["p", "q"] * 3})
    for some in (files, files[::-1]):
        assert fb.count(some, "y", categorical=["x"]) == fb.count(rows, "y", categorical=["x"])
        labels = fb.k_fold(fb.NaiveBayes(), some, "x").classes
        assert [*labels] == [1.0, 2.0, 2.5, 2.0**53]
    files = files_of(tmp_path, [pa.array([WIDE, 1]), pa.array([1.5, 2.5])])
    cut = fb.count(files, "y", numeric={"x": [2.0**53 - 1]}).values
    assert cut.counts.tolist() == [[1, 2], [1, 0], [0, 0]]


def test_whole_numbers__without_a_sign_beside_others(tmp_path: Path) -> None:
    most = 2**63 + 5
    refused = (
        rf"column 'x': {most} is a whole number beyond 2\*\*63 - 1, and the column is int64 "
        "elsewhere, which ends there; cast it to one type, such as double or string"
    )
    for coded in (False, True):
        columns = [pa.array([1, most], pa.uint64()), pa.array([-1, 1])]
        files = files_of(tmp_path, [c.dictionary_encode() if coded else c for c in columns])
        for some in (files, files[::-1]):
            for how in ({}, {"categorical": ["x"]}):
                with pytest.raises(DataError, match=rf"0\.parquet: {refused}"):
                    fb.count(some, "y", **how)
            first = fb.count(some[0], "y", categorical=["x"])
            with pytest.raises(DataError, match=refused):
                first + fb.count(some[1], "y", categorical=["x"])
            with pytest.raises(DataError, match=refused):
                fb.count(some, "y", update=first)


WHOLE = [pa.int8(), pa.int64(), pa.uint8(), pa.uint64()]
UNSIGNED = {pa.uint8(), pa.uint64()}


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize(
    "kinds", [k for k in itertools.product(WHOLE, repeat=2) if {*k} != UNSIGNED], ids=str
)
def test_whole_numbers__of_days_are_those_of_one_pass(
    kinds: tuple[pa.DataType, pa.DataType], declared: bool, tmp_path: Path
) -> None:
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for file, kind, x in zip(files, kinds, ([1, 2], [2, 3]), strict=True):
        pq.write_table(pa.table({"x": pa.array(x, kind), "y": pa.array([0, 1], kind)}), file)
    how = {
        "categorical": ["x"],
        "domains": {"x": pa.array([1, 2, 3], kinds[0])} if declared else None,
    }
    one = fb.count(files, "y", **how)
    unsigned = {*kinds} == {pa.uint64()}
    assert one.schema.classes.type == (pa.uint64() if unsigned else pa.int64())
    days = [fb.count(file, "y", **how) for file in files]
    for first, other, path in zip(days, days[::-1], files[::-1], strict=True):
        assert first + other == one
        assert fb.merge([first, other]) == one
        assert fb.count(files, "y", update=first) == one
        assert first + fb.count(path, "y", schema=first) == one


@pytest.mark.parametrize("kind", ["M8[10s]", "M8[m]", "M8[h]", "M8[2D]", "M8[W]", "M8[M]", "M8[Y]",
                                  "m8[10s]", "m8[m]", "m8[h]", "m8[D]", "m8[W]"])  # fmt: skip
def test_numpy__dates_and_durations_of_any_unit(kind: str) -> None:
    values = np.arange(8).astype(kind)
    values[5] = "NaT"
    fine = values.astype(f"{kind[:2]}[s]")
    y = [*"abababab"]
    of = "when.elapsed"
    as_number = {"dates": {"when": "number"}}
    one = fb.count({"when": values, "y": y}, "y", **as_number)
    other = fb.count({"when": fine, "y": y}, "y", **as_number)
    scale = 86_400 if kind[0] == "M" and kind[-2] in "DWMY" else 1  # dates are days
    assert one.schema.names == other.schema.names == (of,)
    assert np.allclose(one.moments.mean * scale, other.moments.mean)
    assert fb.count(values.reshape(-1, 1), y, dates={"x0": "number"}).schema.names == (
        "x0.elapsed",
    )


@pytest.mark.parametrize("kind", ["m8[D]", "M8[h]", "M8[Y]", "M8[D]"])
def test_numpy__dates_and_durations_beyond_their_bits_are_refused(kind: str) -> None:
    values = np.array([1, 1 << (62 if kind != "M8[D]" else 40), 3, 4]).astype(kind)
    with pytest.raises(DataError, match=r"column 'c' .*row 1: .* is beyond .*numbers or text"):
        fb.count({"c": values, "y": [*"abab"]}, "y")


def test_numpy__durations_of_no_fixed_length_are_refused() -> None:
    for values in (np.arange(4).astype("m8[M]"), np.arange(4).astype("m8[Y]")):
        with pytest.raises(DataError, match=r"column 'c' .*months or years.*give days or numbers"):
            fb.count({"c": values, "y": [*"abab"]}, "y")
        with pytest.raises(DataError, match=r"column 'c' .*months or years.*give days or numbers"):
            fb.count({"c": [*values], "y": [*"abab"]}, "y")


@pytest.mark.parametrize("kind", ["M8[D]", "M8[h]", "M8[M]", "M8[us]", "m8[h]", "m8[D]", "m8[s]"])
def test_numpy__dates_and_durations_one_by_one_are_those_of_an_array(kind: str) -> None:
    values = (np.arange(40) * 7).astype(kind)
    y = ["p", "q"] * 20
    model = fb.NaiveBayes(dates={"c": "number"}).fit({"c": values, "y": y}, "y")
    wanted = model.predict_proba({"c": values[:3]}).tolist()
    for cells in ([*values], np.array([*values], object), pd.Series([*values], dtype=object)):
        alike = fb.NaiveBayes(dates={"c": "number"}).fit({"c": cells, "y": y}, "y")
        assert alike.predict_proba({"c": [*values[:3]]}).tolist() == wanted
    assert model.predictor().predict_proba({"c": values[1]}).tolist() == wanted[1]
    gaps = values[:3].copy()
    gaps[1] = "NaT"
    with_none = model.predict_proba({"c": [gaps[0], None, gaps[2]]}).tolist()
    assert with_none == model.predict_proba({"c": gaps}).tolist()


def test_numpy__dates_of_several_units_in_a_list() -> None:
    y = [*"abab"]
    days = np.arange("2020-01-01", "2020-01-05", dtype="M8[D]")
    mixed = [*days[:2], *days[2:].astype("M8[us]")]
    how = {"dates": {"c": ["weekday"]}}
    wanted = fb.count({"c": days, "y": y}, "y", **how)
    assert fb.count({"c": mixed, "y": y}, "y", **how).values == wanted.values
    far = [np.datetime64("5000-01-01"), *mixed[1:3], np.datetime64(1, "ns")]
    with pytest.raises(DataError, match=r"column 'c' .*row 0: .*5000-01-01.* is beyond what .*ns"):
        fb.count({"c": far, "y": y}, "y")


ZONED = pd.Timestamp("2020-01-02 09:00", tz="America/New_York").to_pydatetime()
WORLD = "timestamp of UTC", "timestamp of America/New_York"


@pytest.mark.parametrize(
    ("first", "other", "kinds"),
    [
        (np.datetime64("2020-01-01"), "2020-01-02", ("date of numpy", "string")),
        (
            np.datetime64("2020-01-01"),
            np.timedelta64(1, "h"),
            ("date of numpy", "duration of numpy"),
        ),
        (np.datetime64("2020-01-01"), dt.date(2020, 1, 2), ("date of numpy", "date")),
        (np.datetime64("2020-01-01"), dt.datetime(2020, 1, 2), ("date of numpy", "timestamp")),
        (np.timedelta64(1, "h"), dt.timedelta(1), ("duration of numpy", "duration")),
        (dt.datetime(2020, 1, 2), dt.date(2020, 1, 2), ("timestamp", "date")),
        (dt.time(1), "01:00", ("time of day", "string")),
        (dt.time(1), 5, ("time of day", "number")),
        (dt.timedelta(1), 5, ("duration", "number")),
        (dt.date(2020, 1, 2), 5.5, ("date", "number")),
        (dt.datetime(2020, 1, 2), np.int64(5), ("timestamp", "number")),
        (pd.Timestamp("2020-01-02"), dt.date(2020, 1, 2), ("timestamp", "date")),
        (dt.datetime(2020, 1, 2), ZONED, ("timestamp", WORLD[1])),
        (ZONED.astimezone(dt.UTC), ZONED, WORLD),
        (dt.time(1), dt.time(1, tzinfo=dt.UTC), ("time of day", "time of day of UTC")),
    ],
)
def test_dates_and_durations__beside_others_are_named(
    first: Any, other: Any, kinds: tuple[str, str]
) -> None:
    """In whatever order: the first of them made dates, days or microseconds of the others."""
    for cells, (here, there) in (([first, other], kinds), ([other, first], kinds[::-1])):
        for gap in (None, float("nan"), pd.NaT):
            column = [gap, cells[0], gap, *cells[1:], cells[0]]
            said = f"column 'c', row 3: .* is a {there}, but row 1 holds .*, a {here}; make"
            for values in (column, np.array(column, object), pd.Series(column, dtype=object)):
                with pytest.raises(DataError, match=said):
                    fb.count({"c": values, "y": [*"ababa"]}, "y")
    held = [{"t": first}, None, {"t": other}]
    with pytest.raises(DataError, match=r"column 'c.*row 2|column 'c.*row 0"):
        fb.count({"c": held, "y": [*"aba"]}, "y")


INSTANTS = pa.array([1, -1, None, 1_700_000_000_123_456_789, 999], pa.int64())


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("ns", "Europe/Berlin"), pa.duration("ns")], ids=str
)
def test_objects_of_pandas__keep_their_nanoseconds(kind: pa.DataType) -> None:
    wanted = INSTANTS.cast(kind)
    listed = wanted.to_pylist()
    series = pd.Series(wanted.to_pandas(), dtype=object)  # NaT among them
    of_fields = [{"t": value, "n": i} for i, value in enumerate(listed)]
    for values in (listed, [*series], series, series.to_numpy(), iter(listed)):
        assert arrow_array(values, "t").equals(wanted)
    assert arrow_array([*of_fields, None], "c").flatten()[0][:-1].equals(wanted)
    whole = INSTANTS.cast(pa.int64()).fill_null(0).to_pylist()[-2] // 1000
    coarse = pa.array([whole, None], pa.int64()).cast(
        pa.duration("us") if pa.types.is_duration(kind) else pa.timestamp("us", kind.tz)
    )
    assert arrow_array(coarse.to_pylist(), "t").equals(coarse)  # none to keep


def test_nanoseconds__beside_what_they_do_not_reach() -> None:
    cells = [pd.Timestamp(1), dt.datetime(2020, 1, 1), dt.datetime(5000, 1, 1)]
    with pytest.raises(DataError, match=r"column 'c' .*row 2: 5000-01-01 .* nanoseconds .*; round"):
        fb.count({"c": cells, "y": [*"aba"]}, "y")
