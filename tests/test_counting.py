"""`count` and `plan`: every source, labels and weights from anywhere, broken files, checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from making import cells, cells_of, random_table

import fastbayes as fb
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, FileFormatError, MemoryLimitError, SchemaError
from fastbayes.scan import checkpoint as checkpoints

TABLE = (
    random_table(3000)
    .drop_columns("w")
    .set_column(2, "code", random_table(3000)["code"].cast("int64"))
)


def count(source: Any, target: Any = "y", **options: Any) -> fb.Statistics:
    return fb.count(source, target, categorical=["code"], **options)


# Every source


def to_file(name: str, folder: Path) -> str:
    path = str(folder / f"table.{name}")
    match name:
        case "parquet":
            pq.write_table(TABLE, path, row_group_size=700)
        case "arrow":
            pa.feather.write_feather(TABLE, path, chunksize=500, compression="zstd")
        case "csv":
            pa.csv.write_csv(TABLE.set_column(0, "text", no_empty(TABLE["text"])), path)
    return path


def no_empty(column: Any) -> pa.Array:
    """An empty cell of CSV is missing."""
    return pa.array([v or None for v in column.to_pylist()])


SOURCES: dict[str, Callable[[Path], Any]] = {
    "table": lambda _: TABLE,
    "batches": lambda _: TABLE.to_batches(max_chunksize=77),
    "generator": lambda _: iter(TABLE.to_batches(max_chunksize=77)),
    "reader": lambda _: TABLE.to_reader(100),
    "dataset": lambda _: ds.dataset(TABLE),
    "scanner": lambda _: ds.dataset(TABLE).scanner(),
    "dict": lambda _: {n: TABLE[n].combine_chunks() for n in TABLE.column_names},
    "pandas arrow": lambda _: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda _: pl.from_arrow(TABLE),
    "polars lazy": lambda _: pl.from_arrow(TABLE).lazy(),  # type: ignore[union-attr]
    "parquet": lambda folder: to_file("parquet", folder),
    "path": lambda folder: Path(to_file("parquet", folder)),
    "glob": lambda folder: to_file("parquet", folder).replace("table", "*"),
    "list of paths": lambda folder: [to_file("parquet", folder)],
    "arrow": lambda folder: to_file("arrow", folder),
    "csv": lambda folder: to_file("csv", folder),
}


@pytest.mark.parametrize("name", SOURCES)
def test_source__any_gives_the_same_counts(name: str, tmp_path: Path) -> None:
    stats = count(SOURCES[name](tmp_path))
    table = TABLE
    if name == "csv":  # an empty cell is missing, and a category is read as it stands
        table = TABLE.set_column(0, "text", no_empty(TABLE["text"]))
        table = table.set_column(2, "code", table["code"].cast("string"))
    direct = count(table)
    assert cells(stats) == cells_of(table.select(["text", "flag", "code", "y"]), "y")
    assert stats.schema == direct.schema
    assert stats.values == direct.values
    assert stats.allclose(direct)


def test_source__array() -> None:
    X = np.random.default_rng(0).integers(0, 3, (500, 4))
    y = X.sum(axis=1) % 2
    stats = fb.count(X, y, categorical=[0, 2])
    assert [f.kind for f in stats.schema.features] == ["categorical", "numeric"] * 2
    assert stats.schema.names == ("x0", "x1", "x2", "x3")
    np.testing.assert_array_equal(
        stats.values.of(1), [[((X[:, 2] == v) & (y == c)).sum() for c in (0, 1)] for v in range(3)]
    )


def test_source__lists_of_rows_keep_their_types() -> None:
    rows = [["p", 1.5, "x"], ["q", float("nan"), "x"], [None, 2.5, "nan"]]
    for stats in (
        fb.count(rows, ["a", "b", "a"]),
        fb.NaiveBayes().fit(rows, ["a", "b", "a"]).statistics_,
    ):
        assert [f.kind for f in stats.schema.features] == ["categorical", "numeric", "categorical"]
        assert stats.moments.mean.tolist() == [[2.0, 0.0]]
        assert cells(stats) == {
            ("x0", "p", "a"): 1,
            ("x0", "q", "b"): 1,
            ("x0", None, "a"): 1,
            ("x2", "x", "a"): 1,
            ("x2", "x", "b"): 1,
            ("x2", "nan", "a"): 1,
        }


def test_source__filesystem(tmp_path: Path) -> None:
    to_file("parquet", tmp_path)
    place = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
    assert count("table.parquet", filesystem=place).values == count(TABLE).values
    with pytest.raises(DataError, match="nowhere"):
        count("nowhere.parquet", filesystem=place)


# Labels and weights from anywhere


def labels_as(kind: str) -> Any:
    column = TABLE["y"]
    return {
        "list": column.to_pylist(),
        "numpy": np.array(column.to_pylist()),
        "objects": np.array(column.to_pylist(), dtype=object),
        "pandas": pd.Series(column.to_pylist()),
        "categorical": pd.Series(column.to_pylist(), dtype="category"),
        "polars": pl.Series(column.to_pylist()),
        "array": column.combine_chunks(),
        "chunked": pa.chunked_array(
            [column.combine_chunks().slice(0, 5), column.combine_chunks().slice(5)]
        ),
        "dictionary": column.combine_chunks().dictionary_encode(),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        *("list", "numpy", "objects", "pandas", "categorical"),
        *("polars", "array", "chunked", "dictionary"),
    ],
)
def test_labels__beside_the_data(kind: str) -> None:
    stats = count(TABLE.drop_columns("y"), labels_as(kind))
    assert stats.schema.target == "class"
    assert cells(stats) == cells(count(TABLE))
    assert stats.moments == count(TABLE).moments


def test_labels__named_after_their_series() -> None:
    rest = TABLE.drop_columns("y")
    assert count(rest, pd.Series(labels_as("list"), name="late")).schema.target == "late"
    assert count(rest, pl.Series("late", labels_as("list"))).schema.target == "late"
    taken = rest.append_column("class", rest["flag"])
    assert count(taken, labels_as("list")).schema.target == "class_"


def test_labels__missing_ones_are_left_out() -> None:
    labels = [None if i % 2 else v for i, v in enumerate(labels_as("list"))]
    stats = count(TABLE.drop_columns("y"), labels)
    assert stats.dropped_rows == 1500
    numbers = np.where(np.arange(3000) % 2, np.nan, 1.0)
    assert count(TABLE.drop_columns("y"), numbers).dropped_rows == 1500


ODD_LABELS: dict[str, Any] = {
    "masked": np.ma.array([0, 1, 1, 0], mask=[False, True, False, False]),
    "NaN among strings": ["no", float("nan"), "yes", "no"],
    "None among strings": ["no", None, "yes", "no"],
    "objects": np.array(["no", np.nan, "yes", "no"], dtype=object),
    "NaN": np.array([0, np.nan, 1, 0]),
    "extended": np.array([0, np.nan, 1, 0], np.longdouble),
    "swapped": np.array([0, np.nan, 1, 0], ">f4"),
    "nullable": pd.Series([0, None, 1, 0], dtype="Int64"),
    "Enum": pl.Series(["no", None, "yes", "no"], dtype=pl.Enum(["yes", "no"])),
    "null in a dictionary": pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays([0, 1], ["no", None]),
            pa.DictionaryArray.from_arrays([0, 1], ["yes", "no"]),
        ]
    ),
}


@pytest.mark.parametrize("kind", ODD_LABELS)
def test_labels__without_a_class_in_any_spelling(kind: str) -> None:
    X = pa.table({"x": list("pqrp")})
    for stats in (
        fb.count(X, ODD_LABELS[kind]),
        fb.NaiveBayes().fit(X, ODD_LABELS[kind]).statistics_,
    ):
        assert stats.dropped_rows == 1
        assert stats.values.class_counts.tolist() == [2, 1]
        assert cells(stats)["x", "p", stats.schema.classes[0].as_py()] == 2


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["a"] * 2999, "'class' has 2999 entries, but there are 3000 rows"),
        (["a", 1] * 1500, "'class' cannot be one column .*; give numbers, strings or truth values"),
        (np.zeros((3000, 2)), r"'class' has shape \(3000, 2\): give one value per row"),
        (np.zeros(3000, complex), "'class' cannot be one column"),
        (5, "'class' is int: give a column name, or one value per row"),
        (pd.Series(["a"], name="late"), "'late' has 1 entries"),
    ],
    ids=["short", "mixed", "matrix", "complex", "number", "named"],
)
def test_labels__that_do_not_fit(labels: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        count(TABLE.drop_columns("y"), labels)


@pytest.mark.parametrize("name", ["yy", "Y", "class"])
def test_labels__an_unknown_column_is_named_with_those_there_are(name: str) -> None:
    for option in ({"target": name}, {"sample_weight": name}):
        with pytest.raises(SchemaError, match=f"no column '{name}'.* y"):
            count(TABLE, **option)  # type: ignore[arg-type]


def test_labels__beside_a_stream_are_refused() -> None:
    with pytest.raises(SchemaError, match="read as a stream: name a column of it"):
        count(TABLE.to_reader(), labels_as("list"))


@pytest.mark.parametrize("kind", ["column", "list", "numpy", "pandas", "array"])
def test_weights(kind: str) -> None:
    weight = (np.arange(3000) % 5 / 4).tolist()
    table = TABLE.append_column("w", pa.array(weight))
    beside = {
        "list": weight,
        "numpy": np.array(weight),
        "pandas": pd.Series(weight, name="importance"),
        "array": pa.array(weight),
    }
    if kind == "column":
        stats = count(table, sample_weight="w")
    else:
        stats = count(TABLE, sample_weight=beside[kind])
    assert cells(stats) == cells_of(table.select(["text", "flag", "code", "y", "w"]), "y", "w")
    assert stats.n_rows == sum(weight)
    assert stats.weighted


def test_weights__whole_weights_are_repeated_rows() -> None:
    weight = np.arange(3000) % 4
    repeated = TABLE.take(pa.array(np.repeat(np.arange(3000), weight)))
    assert count(TABLE, sample_weight=weight).allclose(count(repeated))


# Options


def test_columns__only_those_are_read() -> None:
    stats = count(TABLE, columns=["number", "code"])
    assert set(stats.schema.names) == {"number", "code"}
    with pytest.raises(SchemaError, match=r"'nunber'.*number"):
        count(TABLE, columns=["nunber", "code"])


def test_categorical__by_name_and_index() -> None:
    X = TABLE.select(["number", "code", "y"])
    for picks in ("code", 1, ["code"], [1], np.array(["code"]), (-1,), iter(["code"])):
        kinds = {f.name: f.kind for f in fb.count(X, "y", categorical=picks).schema.features}
        assert kinds == {"number": "numeric", "code": "categorical"}
    with pytest.raises(SchemaError, match="categorical: no column 'nope'"):
        fb.count(X, "y", categorical=["nope"])


@pytest.mark.parametrize(
    ("options", "says"),
    [({"missing": "drop"}, "missing='drop': use"), ({"on_error": "pass"}, "on_error='pass': use")],
)
def test_options__unknown_values(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        count(TABLE, **options)


# Files that cannot be read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(4):
        pq.write_table(TABLE.slice(750 * i, 750), tmp_path / f"part-{i}.parquet")
    return tmp_path


def damage(path: Path) -> None:
    """Overwrite the data, so that the footer still reads."""
    blob = bytearray(path.read_bytes())
    blob[4 : len(blob) // 2] = b"\xff" * (len(blob) // 2 - 4)
    path.write_bytes(blob)


@pytest.mark.parametrize(
    "how", [damage, lambda p: p.write_bytes(p.read_bytes()[:-20])], ids=["middle", "end"]
)
def test_broken_file__stops_or_is_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture, how: Callable[[Path], None]
) -> None:
    how(folder / "part-2.parquet")
    with pytest.raises(FileFormatError, match=r"part-2\.parquet"):
        count(str(folder))
    with caplog.at_level(logging.WARNING, logger="fastbayes"):
        stats = count(str(folder), on_error="skip")
    kept = pa.concat_tables([TABLE.slice(0, 1500), TABLE.slice(2250)])
    assert stats.values == count(kept).values
    assert stats.allclose(count(kept))
    assert "part-2.parquet" in caplog.text
    assert any("left out" in p and "part-2.parquet" in p for p in stats.provenance)


def test_broken_file__values_that_cannot_be_used_are_left_out_by_segment(folder: Path) -> None:
    wrong = TABLE.slice(0, 10).set_column(3, "number", pa.array([np.inf] * 10))
    pq.write_table(wrong, folder / "part-9.parquet")
    with pytest.raises(DataError, match=r"column 'number', row 0 of .*part-9\.parquet.*infinite"):
        count(str(folder))
    assert count(str(folder), on_error="skip").values == count(TABLE).values


# Checkpoints


class Stopped(Exception):
    pass


def stopping_after(rows: int) -> Callable[[int], None]:
    done = [0]

    def progress(n: int) -> None:
        done[0] += n
        if done[0] >= rows:
            raise Stopped

    return progress


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("stop", [1, 1500, 2999])
def test_checkpoint__goes_on_to_the_same_bits(
    tmp_path: Path, stop: int, weight: str | None
) -> None:
    table = random_table(3000, 3)
    data, place = tmp_path / "data", tmp_path / "checkpoint"
    data.mkdir()
    for i in range(5):
        pq.write_table(table.slice(600 * i, 600), data / f"{i}.parquet", row_group_size=200)
    options = {"sample_weight": weight, "checkpoint": place}
    straight = count(str(data), sample_weight=weight)
    with pytest.raises(Stopped):
        count(str(data), **options, progress=stopping_after(stop))
    done: list[int] = []
    resumed = count(str(data), **options, progress=done.append, threads=3)
    assert resumed == straight
    assert sum(done) == 3000
    done.clear()
    assert count(str(data), **options, progress=done.append) == straight
    assert done == []  # a finished count is not done again


@pytest.mark.usefixtures("often")
def test_checkpoint__of_something_else_is_refused(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    files = [str(p) for p in sorted(folder.glob("*.parquet"))]
    with pytest.raises(Stopped):
        count(files, checkpoint=place, progress=stopping_after(800))
    assert list(place.iterdir())
    others: list[tuple[Any, dict[str, Any]]] = [
        (files[:2], {}),
        (files, {"target": "flag"}),
        (files, {"missing": "category"}),
        (files, {"moments": False}),
        (files, {"domains": {"text": ["p", "q", "r", "é", ""]}}),
        (files, {"columns": ["text", "code"]}),
        (files, {"on_error": "skip"}),
    ]
    for source, options in others:
        with pytest.raises(DataError, match=r"checkpoint.fbs.*another directory"):
            count(source, checkpoint=place, **options)
    pq.write_table(TABLE.slice(5, 750), files[0])
    with pytest.raises(DataError, match="data have changed"):
        count(files, checkpoint=place)


@pytest.mark.usefixtures("often")
def test_checkpoint__that_is_damaged(folder: Path, tmp_path_factory: Any) -> None:
    place = tmp_path_factory.mktemp("checkpoint")
    with pytest.raises(Stopped):
        count(str(folder), checkpoint=place, progress=stopping_after(800))
    (file,) = place.iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(FileFormatError, match=r"checkpoint.fbs: .*cut short"):
        count(str(folder), checkpoint=place)


def test_checkpoint__needs_files() -> None:
    with pytest.raises(SchemaError, match="checkpoint needs files"):
        count(TABLE, checkpoint="somewhere")


# Plans


def test_plan__bytes_of_each_column() -> None:
    table = pa.table({"x": list("pqrp"), "b": [True, False] * 2, "n": [1.0] * 4, "y": list("abca")})
    plan = fb.plan(table, "y", threads=1)
    assert set(plan.columns) == {"x", "b", "n"}
    assert (plan.n_rows, plan.n_classes, plan.exact) == (4, 3, True)
    # Two copies of (3 values + missing) x classes x 8 bytes, and the codebook.
    assert plan.columns["x"] == 2 * 4 * 3 * 8 + 3 * 120
    assert plan.columns["b"] == 2 * 3 * 3 * 8 + 2 * 120
    assert plan.total >= sum(plan.columns.values())
    assert plan.total >= 2 * fb.count(table, "y").nbytes
    more = fb.plan(table, "y", threads=3).columns["x"]
    assert more - plan.columns["x"] == 2 * 4 * 3 * 8
    # What is planned is enough, and less is not.
    fb.count(table, "y", threads=1, memory_limit=plan.total)
    with pytest.raises(MemoryLimitError):
        fb.count(table, "y", threads=1, memory_limit=plan.total - 1)


def test_plan__first_block_and_declared_domains() -> None:
    values = np.arange(BLOCK_ROWS + 5)
    table = pa.table({"x": values.astype(str), "y": ["a"] * len(values)})
    plan = fb.plan(table, "y", threads=1)
    assert not plan.exact
    assert plan.columns["x"] == 2 * (BLOCK_ROWS + 1) * 8 + BLOCK_ROWS * 120
    few = pa.table({"x": values % 3, "y": values % 2})
    plan = fb.plan(few, "y", threads=1, domains={"x": range(10), "y": [0, 1]})
    assert plan.exact
    assert plan.columns["x"] == 2 * 11 * 2 * 8 + 10 * 120


def test_plan__over_the_limit_names_the_column() -> None:
    table = pa.table(
        {"few": ["p", "q"] * 50, "many": np.arange(100).astype(str), "y": ["a", "b"] * 50}
    )
    with pytest.raises(
        MemoryLimitError, match=r"over memory_limit=1,000: column 'many' needs.*leave"
    ):
        fb.plan(table, "y", memory_limit=1000, threads=1)
    assert fb.plan(table, "y", memory_limit=100_000, threads=1).total <= 100_000


def test_plan__leaves_the_source_as_it_was(folder: Path) -> None:
    plan = fb.plan(str(folder), "y", categorical=["code"])
    assert plan.n_rows == 3000
    assert set(plan.columns) == set(TABLE.column_names) - {"y"}
    stream = TABLE.to_reader()
    with pytest.raises(SchemaError, match="can be read only once; plan with a table or path"):
        fb.plan(stream, "y")
    assert count(stream).n_rows == 3000


def test_plan__without_rows_or_target() -> None:
    assert fb.plan(TABLE.slice(0, 0), "y").n_rows == 0
    assert fb.plan(TABLE, None).n_classes == 1
