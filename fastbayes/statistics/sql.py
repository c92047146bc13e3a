"""The SQL that counts in a database what `Statistics.from_table` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fastbayes.core.errors import SchemaError, refuse
from fastbayes.core.extras import needed
from fastbayes.core.suggestions import use_one_of

# Dialects, and whose grammar sqlglot writes them in.
DIALECTS = {
    "bigquery": "bigquery",
    "datafusion": "postgres",
    "duckdb": "duckdb",
    "postgres": "postgres",
    "snowflake": "snowflake",
    "spark": "spark",
}
# The one that queries are put together in.
OWN = "duckdb"
# Grouping sets of one SELECT, which is one pass over the table: engines number their columns by
# the bits of a word, the class among them.
SETS = 32


def sql_counts(
    dialect: str,
    *,
    source: str | Sequence[str],
    target: str,
    columns: Sequence[str] | Mapping[str, str],
    pairs: bool = False,
    sample_weight: str | None = None,
) -> str:
    """Return the query that counts a table of a database for `Statistics.from_table`.

    The rows stay where they are, and one row of counts for each value comes back. All columns are
    counted by value: numeric ones that have many are better read by `count`, or cut into bins in a
    view. Needs the extra `sql` (sqlglot).

    Parameters
    ----------
    dialect
        "bigquery", "datafusion", "duckdb", "postgres", "snowflake" or "spark".
    source
        The table or view, as the database stores its name; dots part it from its schema and
        database. A sequence has these parts one by one, for names with dots in them: `("main",
        "day.1")`, and in DuckDB for files, `["flights/*.parquet"]`.
    target
        The column of classes.
    columns
        The features: their names, or {name: type}, the types being those that `from_table` takes
        as `types` ("string", "int64", "double", "bool"). Columns of doubles want their type here,
        so that NaN is missing, and -0.0 is 0.0. Dates are counted as their text.
    pairs
        Whether to count every pair of features, which tells the single ones too.
    sample_weight
        The column of weights, which are summed up instead of counting rows.

    Returns
    -------
    str
        A query with the columns class, feature, value, n, or class, feature_a, value_a, feature_b,
        value_b, n. Names are quoted, so that upper and lower case matter.

    Raises
    ------
    FastBayesError
        When sqlglot is not installed.
    SchemaError
        When a column is named twice, no feature or only one of a pair is named, or a type is not
        known.
    ValueError
        When the dialect is not known.

    Notes
    -----
    The result goes to ``from_table(result, target=target, types=columns)`` as Arrow:

    - DuckDB: ``duckdb.sql(query)``, as it is
    - DataFusion: ``context.sql(query)``, as it is
    - Spark: ``session.sql(query).toArrow()``
    - PostgreSQL: ``cursor.execute(query); cursor.fetch_arrow_table()`` of adbc_driver_postgresql
    - BigQuery: ``client.query(query).to_arrow()`` of google.cloud.bigquery
    - Snowflake: ``cursor.execute(query).fetch_arrow_all()`` of snowflake.connector

    A SELECT has up to 32 grouping sets, one for each column, and is one pass; pairs are a SELECT
    for each column, with sets of the columns after it. Features are those of `count` in the order
    of their names; `+` and `merge` align them. Doubles arrive as text: DuckDB, DataFusion, Spark
    and PostgreSQL (from 12 on) write as many digits as it takes to read the same number back.

    Examples
    --------
    >>> import fastbayes as fb
    >>> query = fb.sql_counts(
    ...     "duckdb", source="flights", target="delayed", columns=["carrier", "origin"]
    ... )  # doctest: +SKIP
    >>> fb.Statistics.from_table(duckdb.sql(query), target="delayed")  # doctest: +SKIP
    """
    if dialect not in DIALECTS:
        raise ValueError(f"dialect={dialect!r}: {use_one_of(dialect, DIALECTS)}")
    types = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns, "string")
    _check([*columns], types, target, pairs=pairs, text=isinstance(columns, str))
    sqlglot = needed("sqlglot", "sql_counts writes its query by sqlglot: install fastbayes[sql]")
    parts = source.split(".") if isinstance(source, str) else [*source]
    refuse(
        not 1 <= len(parts) <= 3 or not all(parts),
        f"source={source!r}: name a table, with its schema and database before it where needed",
        SchemaError,
    )
    rows = _Rows(".".join(map(_name, parts)), target, types, sample_weight)
    names = [*types]
    if pairs:
        selects = (
            rows.pairs(a, some) for i, a in enumerate(names) for some in _chunks(names[i + 1 :])
        )
    else:
        selects = (rows.values(some) for some in _chunks(names))
    query = sqlglot.parse_one(" UNION ALL ".join(selects), read=OWN)
    # Not pretty: older versions indent the lines within a name.
    return str(query.sql(dialect=DIALECTS[dialect], identify=True))


# What makes a value text, by the type of its column. -0.0 and 0.0 are one value, and NaN, which
# engines write in one of two ways, is missing.
_TEXT = "CAST({0} AS TEXT)"
_DOUBLE = "CAST({0} AS DOUBLE)"
_DOUBLE_TEXT = (
    f"CASE WHEN {_DOUBLE} = 0 THEN '0' "
    f"ELSE NULLIF(NULLIF(CAST({_DOUBLE} AS TEXT), 'NaN'), 'nan') END"
)
TEXTS = dict.fromkeys(("string", "int64", "uint64", "bool"), _TEXT) | {"double": _DOUBLE_TEXT}


class _Rows:
    """A table, and the queries of its counts."""

    def __init__(
        self, source: str, target: str, types: Mapping[str, str], weight: str | None
    ) -> None:
        self.source, self.target, self.types, self.weight = source, target, types, weight
        self.alias = {name: _name(f"v{j}") for j, name in enumerate(types)}

    def values(self, features: Sequence[str]) -> str:
        """Return the query of (class, feature, value, n)."""
        columns = f'{self._which(features)} AS "feature", {self._value(features)} AS "value"'
        return self._counted(columns, features, [self.alias[name] for name in features])

    def pairs(self, a: str, others: Sequence[str]) -> str:
        """Return the query of (class, feature_a, value_a, feature_b, value_b, n) of one column."""
        first = self.alias[a]
        columns = (
            f'{_literal(a)} AS "feature_a", {first} AS "value_a", '
            f'{self._which(others)} AS "feature_b", {self._value(others)} AS "value_b"'
        )
        groups = [f"{first}, {self.alias[name]}" for name in others]
        return self._counted(columns, [a, *others], groups)

    def _counted(self, columns: str, features: Sequence[str], groups: Sequence[str]) -> str:
        texts = [
            f"{TEXTS[self.types[name]].format(_name(name))} AS {self.alias[name]}"
            for name in features
        ]
        cells, n = [f'{_name(self.target)} AS "label"', *texts], "COUNT(*)"
        if self.weight is not None:
            cells.append(f'{_DOUBLE.format(_name(self.weight))} AS "weight"')
            n = 'SUM("weight")'
        sets = ", ".join(f'("label", {group})' for group in groups)
        return (
            f'SELECT "label" AS "class", {columns}, {n} AS "n" '
            f'FROM (SELECT {", ".join(cells)} FROM {self.source}) AS "cells" '
            f"GROUP BY GROUPING SETS ({sets})"
        )

    def _which(self, features: Sequence[str]) -> str:
        """Return the feature whose value a row has, null values included."""
        cases = (f"WHEN GROUPING({self.alias[f]}) = 0 THEN {_literal(f)}" for f in features)
        return f"CASE {' '.join(cases)} END"

    def _value(self, features: Sequence[str]) -> str:
        """Return its value: those of the others are null in this row."""
        names = [self.alias[name] for name in features]
        return f"COALESCE({', '.join(names)})" if len(names) > 1 else names[0]


def _check(
    given: list[str], types: Mapping[str, str], target: str, *, pairs: bool, text: bool
) -> None:
    refuse(
        text or not all(isinstance(name, str) for name in given),
        f"columns={given!r}: give a list of names, or {{name: type}}",
        SchemaError,
    )
    for name in given:
        refuse(given.count(name) > 1, f"columns: {name!r} is named twice", SchemaError)
    refuse(
        target in types,
        f"{target!r} is a feature and the target; leave it out of `columns`",
        SchemaError,
    )
    refuse(
        len(given) < 1 + pairs,
        f"columns={given!r}: name {'two features' if pairs else 'a feature'} at least",
        SchemaError,
    )
    for name, kind in types.items():
        refuse(
            kind not in TEXTS,
            f"columns[{name!r}]={kind!r}: use one of {sorted(TEXTS)}",
            SchemaError,
        )


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), SETS):
        yield names[first : first + SETS]


def _name(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _literal(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
