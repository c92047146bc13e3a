"""`sql_counts`: what a database counts by this query is what `count` counts of the same rows."""

from __future__ import annotations

import math
import sys
from typing import Any

import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes.statistics.sql import DIALECTS, SETS

duckdb = pytest.importorskip("duckdb")
sqlglot = pytest.importorskip("sqlglot")
exp = sqlglot.exp

ODD = "q\"u`o'te\\ \n;--"
TYPES = {
    "select": "bool",
    "größe": "int64",
    "a b": "string",
    ODD: "string",
    "real": "double",
    "single": "double",
    "n": "int64",
    "day": "string",
    "label": "string",
    "v0": "string",
}
TARGET = "group"


def rows(n: int = 600) -> pa.Table:
    """Return columns of every kind, under names that a parser may take for something else."""
    doubles = [0.0, -0.0, 0.1, 1 / 3, math.nan, math.inf, -math.inf, 1e300, 5e-324, 1e16, None]
    texts = ["", "NaN", "nan", "null", "0", "x'y", 'z"', "ü\n\\n", " b ", None]
    return pa.table(
        {
            "select": pa.array([None if i % 11 == 0 else bool(i % 3) for i in range(n)]),
            "größe": pa.array([-(i % 4) for i in range(n)], pa.int32()),
            "a b": pa.array([None if i % 7 == 0 else f"v{i % 5}" for i in range(n)]),
            ODD: pa.array([texts[i % len(texts)] for i in range(n)]),
            "real": pa.array([doubles[i % len(doubles)] for i in range(n)], pa.float64()),
            "single": pa.array([[0.1, 1.5, -0.0][i % 3] for i in range(n)], pa.float32()),
            "n": pa.array([[2**53 + 1, -1, None][i % 3] for i in range(n)], pa.int64()),
            "day": pa.array([19_000 + i % 3 for i in range(n)], pa.date32()),
            "label": pa.array([None] * n, pa.string()),
            "v0": pa.array(["one"] * n),
            TARGET: pa.array([None if i % 13 == 0 else ["no", "yes"][i % 2] for i in range(n)]),
            "weight": pa.array([(i % 5) / 4 + 0.25 for i in range(n)]),
            "left out": pa.array([[i] for i in range(n)]),
        }
    )


def local(table: pa.Table, **options: Any) -> fb.Statistics:
    day = table.column_names.index("day")
    table = table.set_column(day, "day", table["day"].cast(pa.string()))
    return fb.count(table, TARGET, columns=[*TYPES], categorical=[*TYPES], moments=True, **options)


def by_duckdb(query: str, table: pa.Table, source: str) -> Any:
    connection = duckdb.connect()
    connection.register(source, table)
    return connection.sql(query)


def by_datafusion(query: str, table: pa.Table, source: str) -> Any:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_record_batches(source, [table.to_batches()])
    return context.sql(query)


RUN = {"duckdb": by_duckdb, "datafusion": by_datafusion}


def assert_equal(found: fb.Statistics, wanted: fb.Statistics) -> None:
    """Assert that both are the same counts, whatever the order of the columns."""
    assert sorted(found.schema.names) == sorted(wanted.schema.names)
    assert found.schema.classes.equals(wanted.schema.classes)
    assert wanted.aligned(found.schema) == found


@pytest.mark.parametrize("dialect", RUN)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_counted_by_an_engine(dialect: str, pairs: bool, weight: str | None) -> None:
    source, table = 'my "own" table', rows()
    query = fb.sql_counts(
        dialect, source=source, target=TARGET, columns=TYPES, pairs=pairs, sample_weight=weight
    )
    answer = RUN[dialect](query, table, source)
    found = fb.Statistics.from_table(answer, target=TARGET, types=TYPES)
    wanted = local(table, pairs=pairs, sample_weight=weight)
    assert_equal(found, wanted)
    if weight is None:
        assert found.dropped_rows == wanted.dropped_rows > 0


@pytest.mark.parametrize("dialect", RUN)
@pytest.mark.parametrize("pairs", [False, True])
def test_more_columns_than_grouping_sets(dialect: str, pairs: bool) -> None:
    names = [f"x{j}" for j in range(SETS + 8 if pairs else 2 * SETS + 1)]
    some = {name: pa.array([(i * j) % 3 for i in range(50)]) for j, name in enumerate(names)}
    table = pa.table({**some, "y": [i % 2 == 0 for i in range(50)]})
    query = fb.sql_counts(dialect, source="t", target="y", columns=names, pairs=pairs)
    answer = RUN[dialect](query, table, "t")
    found = fb.Statistics.from_table(answer, target="y", types=dict.fromkeys(names, "int64"))
    assert_equal(found, fb.count(table, "y", categorical=names, pairs=pairs))


@pytest.mark.parametrize("labels", [[1, 2, None], [True, False, None], [0.5, -0.0, math.nan],
                                    [0.0, -0.0, math.nan]])  # fmt: skip
def test_classes_keep_their_type(labels: list[Any]) -> None:
    table = pa.table({"x": ["a", "b", "a"] * 4, "y": labels * 4})
    query = fb.sql_counts("duckdb", source="t", target="y", columns=["x"])
    found = fb.Statistics.from_table(by_duckdb(query, table, "t"), target="y")
    assert_equal(found, fb.count(table, "y"))


def test_source__schema_and_database_and_files(tmp_path: Any) -> None:
    table = pa.table({"x": ["a", "b", "a"], "y": ["p", "q", "q"]})
    connection = duckdb.connect()
    connection.register("given", table)
    connection.sql('CREATE SCHEMA "my schema"')
    connection.sql('CREATE TABLE "my schema"."day.1" AS SELECT * FROM given')
    connection.sql('CREATE TABLE "my schema".day AS SELECT * FROM given')
    path = str(tmp_path / "rows.parquet")
    connection.sql("SELECT * FROM given").write_parquet(path)
    for source in ("my schema.day", "memory.my schema.day", ("my schema", "day.1"), [path]):
        query = fb.sql_counts("duckdb", source=source, target="y", columns=["x"])
        answer = fb.Statistics.from_table(connection.sql(query), target="y")
        assert_equal(answer, fb.count(table, "y"))


# --- the dialects of engines that are not here --------------------------------------------------


def read_back(query: str, dialect: str) -> Any:
    return sqlglot.parse_one(query, read=DIALECTS[dialect])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("pairs", [False, True])
def test_dialect__names_and_texts_come_through(dialect: str, pairs: bool) -> None:
    query = fb.sql_counts(dialect, source=("a", "b c"), target=TARGET, columns=TYPES, pairs=pairs)
    tree = read_back(query, dialect)
    assert all(name.args["quoted"] for name in tree.find_all(exp.Identifier))
    names = {column.name for column in tree.find_all(exp.Column)}
    assert {*TYPES, TARGET} <= names
    texts = {literal.this for literal in tree.find_all(exp.Literal) if literal.is_string}
    assert {*TYPES} <= texts
    assert {(t.db, t.name) for t in tree.find_all(exp.Table)} == {("a", "b c")}


@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - RUN.keys()))
@pytest.mark.parametrize("pairs", [False, True])
def test_dialect__says_the_same_in_duckdb(dialect: str, pairs: bool) -> None:
    """What sqlglot reads in the other dialect counts the same rows, written for DuckDB."""
    source, table = "t", rows()
    query = fb.sql_counts(dialect, source=source, target=TARGET, columns=TYPES, pairs=pairs)
    again = read_back(query, dialect).sql(dialect="duckdb")
    answer = by_duckdb(again, table, source)
    found = fb.Statistics.from_table(answer, target=TARGET, types=TYPES)
    assert_equal(found, local(table, pairs=pairs))


# --- what cannot be asked ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dialect": "oracle"}, ValueError, "dialect='oracle': use one of .*'duckdb'"),
        ({"columns": []}, fb.SchemaError, "name a feature at least"),
        ({"columns": ["x"], "pairs": True}, fb.SchemaError, "name two features at least"),
        ({"columns": ["x", "x"]}, fb.SchemaError, "'x' is named twice"),
        ({"columns": "x"}, fb.SchemaError, "give a list of names"),
        ({"columns": [1]}, fb.SchemaError, "give a list of names"),
        ({"columns": ["x", "y"]}, fb.SchemaError, "'y' is a feature and the target"),
        ({"columns": {"x": "date"}}, fb.SchemaError, r"columns\['x'\]='date': use one of"),
        ({"source": ""}, fb.SchemaError, "name a table"),
        ({"source": "a..b"}, fb.SchemaError, "name a table"),
        ({"source": "a.b.c.d"}, fb.SchemaError, "name a table"),
        ({"source": []}, fb.SchemaError, "name a table"),
    ],
    ids=str,
)
def test_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    asked = {"dialect": "duckdb", "source": "t", "target": "y", "columns": ["x"], **change}
    with pytest.raises(error, match=message):
        fb.sql_counts(asked.pop("dialect"), **asked)


def test_without_sqlglot__names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(fb.FastBayesError, match=r"install fastbayes\[sql\]"):
        fb.sql_counts("duckdb", source="t", target="y", columns=["x"])
