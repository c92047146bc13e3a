"""Statistics as one table, and from the GROUP BY of any engine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import random_table

import fastbayes as fb
from fastbayes.core.errors import DataError, SchemaError

COLUMNS = {
    "strings": ["q", "", "é", 'naïve, "quoted"\n', None, "null", "NaN"],
    "int64": [-(2**63), 2**63 - 1, 0, 2**53 + 1, None, -1, 7],
    "uint64": pa.array([2**64 - 1, 0, 1, 2, None, 3, 3], pa.uint64()),
    "bool": [True, False, None, True, None, True, False],
    "floats": [0.1, -1e300, 5e-324, None, float("nan"), float("inf"), 1 / 3],
    "nulls": pa.nulls(7),
    "no_values": pa.nulls(7, pa.string()),
    "numeric": [0.1, 1.7e9, None, float("nan"), -1e-300, 2.5, 3.5],
}
CATEGORICAL = ["int64", "uint64", "floats"]
TARGETS = {
    "strings": ["b", "a", "", "b", "b", "a", "é"],
    "int64": [3, 1, 2, 3, 3, 1, 2],
    "bool": [True, False, True, False, True, True, False],
    "floats": [0.5, 1.5, 0.5, 1e300, 0.1, 1.5, 0.5],
    "with_nulls": ["b", None, "a", None, "b", "a", "a"],
}


def domain(stats: fb.Statistics, name: str) -> Any:
    return next(f for f in stats.schema.features if f.name == name).values.to_pylist()


def returned(stats: fb.Statistics) -> fb.Statistics:
    return fb.Statistics.from_table(stats.to_table())


@pytest.mark.parametrize("options", [{}, {"sample_weight": "w"}, {"missing": "category"}], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_round_trip__all_types(target: str, options: dict[str, Any]) -> None:
    weight = [0.1, 2, 1 / 3, 5, 1e-9, 1, 3]
    table = pa.table({**COLUMNS, "y": TARGETS[target], "w": weight})
    table = table if "sample_weight" in options else table.drop_columns("w")
    stats = fb.count(table, "y", categorical=CATEGORICAL, **options)
    again = returned(stats)
    assert again == stats
    assert again.schema == stats.schema
    assert again.dropped_rows == stats.dropped_rows
    assert returned(again) == stats


def test_round_trip__declared_domains_keep_values_that_never_occur() -> None:
    domains = {
        "x": ["never", "p"],
        "n": [1, 2, 3],
        "b": [False, True],
        "f": [0.5, 2.0],
        "y": [0, 1],
    }
    table = pa.table({"x": ["p"], "n": [2], "b": [True], "f": [0.5], "y": [1]})
    stats = fb.count(table, "y", domains=domains)
    again = returned(stats)
    assert again == stats
    assert again.values.of(1).tolist() == [[0, 0], [0, 1], [0, 0]]
    with pytest.raises(DataError, match="'never again' is outside the declared domain"):
        again + fb.count(table.set_column(0, "x", pa.array(["never again"])), "y")


@pytest.mark.parametrize("options", [{"moments": False}, {"null_values": ["q"]}], ids=str)
def test_round_trip__options(options: dict[str, Any]) -> None:
    table = pa.table({**COLUMNS, "y": TARGETS["strings"]})
    stats = fb.count(table, "y", categorical=CATEGORICAL, **options)
    assert returned(stats) == stats
    if "moments" in options:
        assert stats.to_table().schema.field("n").type == pa.int64()


def test_round_trip__nothing_at_all() -> None:
    table = pa.table({"x": ["p"], "n": [1.0], "y": ["a"]})
    stats = fb.count(table, "y")
    assert returned(stats - stats) == stats - stats
    assert returned(fb.count(table.slice(0, 0), "y")) == fb.count(table.slice(0, 0), "y")
    assert returned(fb.count(table, None)) == fb.count(table, None)
    assert returned(fb.count(table.select(["y"]), "y")) == fb.count(table.select(["y"]), "y")


@given(seed=st.integers(0, 100), n=st.integers(1, 200))
def test_round_trip__any_table(seed: int, n: int) -> None:
    stats = fb.count(random_table(n, seed), "y", sample_weight="w", categorical=["code"])
    assert returned(stats) == stats


def test_round_trip__through_parquet(tmp_path: Any) -> None:
    stats = fb.count(random_table(100), "y", categorical=["code"])
    pq.write_table(stats.to_table(), tmp_path / "stats.parquet")
    assert fb.Statistics.from_table(pq.read_table(tmp_path / "stats.parquet")) == stats


def test_rows_may_come_in_any_order_and_chunks() -> None:
    stats = fb.count(random_table(300), "y", categorical=["code"])
    table = stats.to_table()
    order = np.random.default_rng(0).permutation(table.num_rows)
    assert fb.Statistics.from_table(table.take(pa.array(order))) == stats
    parts = [table.slice(i, 3) for i in range(0, table.num_rows, 3)]
    assert fb.Statistics.from_table(pa.concat_tables(parts)) == stats


def test_one_row_per_cell_that_is_not_empty() -> None:
    stats = fb.count({"x": ["p", "q", None], "n": [1.0, 3.0, None], "y": ["a", "a", "b"]}, "y")
    rows = stats.to_table().drop_columns(["rest"]).to_pylist()
    assert rows == [
        dict(zip(rows[0], row, strict=True))
        for row in [
            ("class", "a", None, None, 2, None, None),
            ("class", "b", None, None, 1, None, None),
            ("value", "a", "x", "p", 1, None, None),
            ("value", "a", "x", "q", 1, None, None),
            ("value", "b", "x", None, 1, None, None),
            ("moments", "a", "n", None, 2, 2, 2),
        ]
    ]


def changed(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    column = table[name].to_pylist()
    column[row] = value
    i = table.column_names.index(name)
    return table.set_column(i, table.schema.field(i), pa.array(column, table.schema.field(i).type))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("class", "class that the metadata do not name"),
        ("feature", "do not fit together .*'no such column'"),
        ("value", "outside its domain"),
        ("n", "not a count"),
        ("null n", "count is null"),
        ("fewer", "add up to"),
        ("twice", "stands twice"),
        ("column", "needs one column 'scatter'"),
    ],
)
def test_a_table_that_was_altered_is_refused(damage: str, says: str) -> None:
    table = fb.count({"x": ["p", "q"], "n": [1.0, 3.0], "y": ["a", "b"]}, "y").to_table()
    first_value = table["part"].to_pylist().index("value")
    match damage:
        case "class":
            table = changed(table, "class", 0, "z")
        case "feature":
            table = changed(table, "feature", first_value, "no such column")
        case "value":
            table = changed(table, "value", first_value, "z")
        case "n":
            table = changed(table, "n", first_value, -1.0)
        case "null n":
            table = changed(table, "n", first_value, None)
        case "fewer":
            table = pa.concat_tables([table.slice(0, first_value), table.slice(first_value + 1)])
        case "twice":
            last = table.slice(table.num_rows - 1)
            table = pa.concat_tables([table, last])
        case "column":
            table = table.drop_columns("scatter")
    with pytest.raises(DataError, match=says):
        fb.Statistics.from_table(table)


# GROUP BY


def grouped(
    connection: Any, features: Iterable[str], target: str, how: str = "count(*)"
) -> duckdb.DuckDBPyRelation:
    pieces = [
        f"SELECT {target} AS class, '{name}' AS feature, CAST({name} AS VARCHAR) AS value, "
        f"{how} AS n FROM data GROUP BY ALL"
        for name in features
    ]
    return connection.sql(" UNION ALL ".join(pieces))


@pytest.fixture
def connection() -> Iterable[Any]:
    with duckdb.connect() as connection:
        yield connection


GROUP = pa.table(
    {
        "b": [True, False, None, True, True, False],
        "f": [0.1, 1e20, None, 2.0, -0.5, 2.0],
        "i": [1, -2, None, 1, 2**62, 1],
        "s": ["p", "", None, "é", "p", "p"],
        "y": ["k", "l", "k", "l", "k", None],
        "w": [0.5, 1.25, 2.0, 0.25, 3.0, 1.0],
    }
)
TYPES = {"b": "bool", "f": "double", "i": "int64"}


def test_group_by__equals_the_count(connection: Any) -> None:
    connection.register("data", GROUP)
    result = grouped(connection, "bfis", "y")
    stats = fb.Statistics.from_table(result, target="y", types=TYPES)
    direct = fb.count(GROUP.drop_columns("w"), "y", categorical=["f", "i"])
    assert stats == direct
    assert stats.dropped_rows == direct.dropped_rows == 1
    models = [fb.NaiveBayes().fit_statistics(x) for x in (stats, direct)]
    X = GROUP.drop_columns(["w", "y"])
    assert models[0].predict_proba(X).tobytes() == models[1].predict_proba(X).tobytes()


def test_group_by__weights(connection: Any) -> None:
    connection.register("data", GROUP)
    result = grouped(connection, "bfis", "y", "sum(w)")
    stats = fb.Statistics.from_table(result, target="y", types=TYPES)
    assert stats.allclose(fb.count(GROUP, "y", categorical=["f", "i"], sample_weight="w"))


def test_group_by__weights_of_rows_without_a_class_add_and_subtract() -> None:
    """Nobody knows of how many rows a sum of weights is: it stays one."""

    def day(weight: float) -> fb.Statistics:
        columns = {"class": ["n", "p", None], "feature": ["c"] * 3, "value": ["a", "b", "a"]}
        return fb.Statistics.from_table(pa.table({**columns, "n": [1.5, 1.0, weight]}))

    parts = [day(weight) for weight in (0.75, 0.1, 0.2, 1.0)]
    total = sum(parts[1:], parts[0])
    assert parts[0].dropped_rows == 0.75
    assert total.dropped_rows == pytest.approx(2.05)
    left = total
    for part in reversed(parts):
        left = left - part
    assert left.dropped_rows == 0
    with pytest.raises(fb.DataError, match=r"-0\.25 rows without a class"):
        parts[0] - parts[3]
    for again in (
        fb.Statistics.from_table(parts[0].to_table()),
        fb.Statistics.from_bytes(parts[0].to_bytes()),
    ):
        assert again == parts[0]
        assert again.dropped_rows == 0.75


@pytest.mark.parametrize("dropped", [-1, "2", True, float("inf"), float("nan"), None])
def test_a_header_of_no_rows_without_a_class_is_refused(dropped: Any) -> None:
    stats = fb.count({"x": ["a"], "y": ["p"]}, "y")
    header, arrays = stats.state()
    with pytest.raises(fb.FileFormatError, match="do not fit together"):
        fb.Statistics.from_state({**header, "dropped_rows": dropped}, arrays, "f")
    table = stats.to_table()
    said = json.loads(table.schema.metadata[b"fastbayes"]) | {"dropped_rows": dropped}
    with pytest.raises(fb.DataError, match="do not fit together"):
        fb.Statistics.from_table(
            table.replace_schema_metadata({"fastbayes": json.dumps(said).encode()})
        )


@pytest.mark.parametrize(
    "columns", [("feature", "value"), ("feature_a", "value_a", "feature_b", "value_b")]
)
def test_group_by__of_no_rows(columns: tuple[str, ...]) -> None:
    texts = {name: pa.array([], pa.string()) for name in ("class", *columns)}
    stats = fb.Statistics.from_table(pa.table({**texts, "n": pa.array([], pa.int64())}))
    assert (stats.n_rows, stats.schema.names, len(stats.schema.classes)) == (0, (), 0)


def test_group_by__of_a_large_table(connection: Any) -> None:
    table = random_table(20_000, 9).select(["code", "flag", "text", "y"])
    connection.register("data", table)
    result = grouped(connection, ["text", "flag", "code"], "y")
    stats = fb.Statistics.from_table(result, target="y", types={"flag": "bool", "code": "int64"})
    assert stats == fb.count(table, "y", categorical=["code"])


def test_group_by__partial_results_add_up(connection: Any) -> None:
    connection.register("data", GROUP)
    grouped(connection, "bfis", "y").create_view("halves")
    twice = connection.sql(
        "SELECT class, feature, value, sum(n) AS n "
        "FROM (FROM halves UNION ALL FROM halves) GROUP BY ALL"
    )
    stats = fb.Statistics.from_table(twice, target="y", types=TYPES)
    direct = fb.count(GROUP.drop_columns("w"), "y", categorical=["f", "i"])
    assert stats.allclose(direct + direct)


@pytest.mark.parametrize(
    "cast", ["BIGINT", "SMALLINT", "UBIGINT", "DOUBLE", "HUGEINT", "DECIMAL(18,2)"]
)
def test_group_by__types_of_counts(connection: Any, cast: str) -> None:
    connection.register("data", GROUP)
    result = grouped(connection, "s", "y", f"CAST(count(*) AS {cast})")
    stats = fb.Statistics.from_table(result, target="y")
    assert stats == fb.count(GROUP.select(["s", "y"]), "y")
    assert not stats.weighted


@pytest.mark.parametrize(
    ("expression", "classes"),
    [
        ("y", ["k", "l"]),
        ("y = 'k'", [False, True]),
        ("CAST(y = 'k' AS TINYINT)", [0, 1]),
        ("CAST(y = 'k' AS DOUBLE)", [0.0, 1.0]),
        ("CAST(y AS ENUM('l', 'k'))", ["k", "l"]),
    ],
)
def test_group_by__types_of_classes(connection: Any, expression: str, classes: list[Any]) -> None:
    connection.register("data", GROUP)
    labels = connection.sql(f"SELECT s, {expression} AS y FROM data").to_arrow_table()
    stats = fb.Statistics.from_table(grouped(connection, "s", expression), target="y")
    assert stats.schema.classes.to_pylist() == classes
    assert stats == fb.count(labels, "y")


@pytest.mark.parametrize("frame", [pa.table, pd.DataFrame, pl.DataFrame, dict])
def test_group_by__any_frame(frame: Any) -> None:
    rows = {
        "class": ["a", "b", "a"],
        "feature": ["x"] * 3,
        "value": ["p", "q", None],
        "n": [3, 1, 2],
    }
    stats = fb.Statistics.from_table(frame(rows))
    assert stats.schema.target == "class"
    assert stats.values.counts.tolist() == [[3, 0], [0, 1], [2, 0]]


def test_group_by__declared_domains(connection: Any) -> None:
    connection.register("data", GROUP)
    domains = {"s": ["", "never", "p", "é"], "i": [-2, 0, 1, 2**62], "y": ["j", "k", "l"]}
    stats = fb.Statistics.from_table(grouped(connection, "is", "y"), target="y", domains=domains)
    assert stats == fb.count(GROUP.select(["i", "s", "y"]), "y", domains=domains)
    for name, few in (("s", ["p"]), ("y", ["k"])):
        with pytest.raises(DataError, match=rf"outside .*{'domain' if name == 's' else 'y'}"):
            fb.Statistics.from_table(
                grouped(connection, "is", "y"), target="y", domains={**domains, name: few}
            )


def test_group_by__groups_of_no_rows_add_no_value() -> None:
    rows = {
        "class": ["a", "b", "a"],
        "feature": ["x"] * 3,
        "value": ["p", "q", "r"],
        "n": [3, 1, 0],
    }
    assert domain(fb.Statistics.from_table(rows), "x") == ["p", "q"]


GOOD = {"class": ["a", "b"], "feature": ["x", "x"], "value": ["p", "q"], "n": [1, 2]}


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ({**GOOD, "n": [1, -2]}, {}, "column 'n', row 1: -2 is not a count >= 0"),
        ({**GOOD, "n": [np.nan, 1]}, {}, "column 'n', row 0: nan is not a count"),
        ({**GOOD, "n": [np.inf, 1]}, {}, "column 'n', row 0: inf is not a count"),
        ({**GOOD, "n": [1, None]}, {}, "column 'n', row 1: a count is null"),
        ({**GOOD, "n": ["1", "2"]}, {}, "column 'n' is string; give counts as numbers"),
        ({**GOOD, "feature": ["x", None]}, {}, "column 'feature' holds a null"),
        (GOOD, {"target": "x"}, "'x' is a feature and the target; give another name"),
        ({k: GOOD[k] for k in ("class", "feature", "n")}, {}, "needs one column 'value'"),
        (
            {"class": ["a"] * 2, "feature": ["x", "z"], "value": ["p"] * 2, "n": [1, 2]},
            {},
            "column 'z': its counts with class 'a' add up to 2, those of 'x' to 1; include the "
            "rows whose value is null",
        ),
        (
            {
                "class": ["a"] * 2,
                "feature": ["x", "z"],
                "value": ["p"] * 2,
                "n": [3_000_000_000, 2_999_999_999],
            },
            {},
            "column 'z': .* include the rows whose value is null",
        ),
        (GOOD, {"types": {"x": "int64"}}, "column 'x': .*'[pq]'.*give its type in `types`"),
        (GOOD, {"types": {"x": "text"}}, "types.*'text': use one of"),
        (GOOD, {"types": {"z": "int64"}}, "types: no feature 'z'; there are .*'x'"),
        (GOOD, {"domains": {"z": ["p"]}}, "domains: no feature 'z'; there are .*'x'"),
        (GOOD, {"domains": {"x": ["p"]}}, "column 'x': value 'q' is outside its domain"),
        (GOOD, {"domains": {"class": ["a"]}}, "row 1: 'b' is outside domains"),
        ({**GOOD, "class": pa.array([1, 2], pa.timestamp("s"))}, {}, "timestamp.*cast"),
        (7, {}, "int is no table"),
    ],
)
def test_group_by__what_cannot_be_counts_is_refused(
    rows: Any, options: dict[str, Any], says: str
) -> None:
    table = pa.table(rows) if isinstance(rows, dict) else rows
    with pytest.raises((DataError, SchemaError), match=says):
        fb.Statistics.from_table(table, **options)
