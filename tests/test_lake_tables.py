"""Delta Lake and Iceberg tables: rows that are deleted do not count, whatever lies on the disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import fails, run

import fastbayes as fb
from fastbayes.engines.shares import part

TABLE = pa.table(
    {
        "y": ["no", "yes", "yes"] * 400,
        "t": pa.array(["a", None, "b", "c"] * 300),
        "x": np.arange(1200) % 7,
        "day": [f"d{i % 3}" for i in range(1200)],
    }
)
LEFT = TABLE.filter(pa.compute.not_equal(TABLE["x"], 2))


def counted(source: Any) -> fb.Statistics:
    return fb.count(source, "y", columns=["t", "x", "day"], pairs=True)


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_delta__without_deleted_rows(tmp_path: Path, vectors: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "delta")
    deltalake.write_deltalake(
        path, TABLE, partition_by=["day"], configuration={"delta.enableDeletionVectors": vectors}
    )
    first = deltalake.DeltaTable(path)
    deltalake.DeltaTable(path).delete("x = 2")
    for source in (path, Path(path), deltalake.DeltaTable(path)):
        assert counted(source) == counted(LEFT)
    assert counted(deltalake.DeltaTable(path, version=first.version())) == counted(TABLE)
    run("count", path, "--target", "y", "-o", tmp_path / "s.fbs")
    stats = fb.load(tmp_path / "s.fbs")
    assert stats.n_rows == len(LEFT)
    model = fb.NaiveBayes().fit(path, "y")
    assert fb.evaluate(model, path).n == len(LEFT)
    with pytest.raises(fb.SchemaError, match="no column 'z'"):
        fb.count(path, "y", columns=["z"])


@pytest.mark.parametrize("name", ["k=1", "k=1/*", "*/*.parquet", "k=*/*.parquet"])
def test_delta__a_partition_of_it_is_not_read_with_its_deleted_rows(
    tmp_path: Path, name: str
) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = pa.table({"a": [i % 10 for i in range(40)], "k": [0, 1] * 20, "y": ["p", "q"] * 20})
    deltalake.write_deltalake(tmp_path / "t", table, partition_by=["k"])
    deltalake.DeltaTable(tmp_path / "t").delete("a > 4")
    with pytest.raises(fb.DataError, match=r"holds a Delta table.*deltalake\.DeltaTable"):
        fb.count(tmp_path / "t" / name, "y")
    left = deltalake.DeltaTable(tmp_path / "t")
    rows = left.to_pyarrow_dataset().filter(pa.compute.field("k") == 1)
    assert (
        fb.count(rows, "y").n_rows
        == table.filter((pa.compute.field("k") == 1) & (pa.compute.field("a") < 5)).num_rows
    )
    assert sum(fb.count(file, "y").n_rows for file in left.file_uris()) == 20


def test_delta__has_no_files_in_the_ledger(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    path, table = str(tmp_path / "t"), pa.table({"x": ["a", "b", "b"], "y": ["k", "l", "k"]})
    deltalake.write_deltalake(path, table)
    files = deltalake.DeltaTable(path).file_uris()
    named = fb.count(path, "y", batch="first")
    for count in (
        lambda source: fb.count(source, "y", update=named),
        lambda source: fb.count(part(source, 1, 2), "y"),
        lambda source: fb.count(source, "y", checkpoint=tmp_path / "c"),
    ):
        with pytest.raises(fb.DataError, match=r"pass paths: of a Delta table .* file_uris\(\)"):
            count(path)
        count(files)
    assert fb.count(path, "y", update=named, batch="first") == named
    with pytest.raises(fb.DataError, match="first is in statistics 1 already"):
        fb.merge([named, fb.count(path, "y", batch="first")])


def exchange_names(path: Path, mode: str, protocol: dict[str, Any]) -> None:
    """Write what is written where two columns are renamed, each to the name of the other."""
    log = path / "_delta_log" / f"{0:020}.json"
    data = next(
        e["metaData"] for e in map(json.loads, log.read_text().splitlines()) if "metaData" in e
    )
    schema = json.loads(data["schemaString"])
    names = [column["name"] for column in schema["fields"]]
    for i, (column, name) in enumerate(zip(schema["fields"], reversed(names), strict=True)):
        stored = {"id": i + 1, "physicalName": column["name"]}
        column["metadata"] = {f"delta.columnMapping.{key}": stored[key] for key in stored}
        column["name"] = name
    data["schemaString"] = json.dumps(schema)
    data["configuration"] = {
        "delta.columnMapping.mode": mode,
        "delta.columnMapping.maxColumnId": "2",
    }
    entries = {"protocol": protocol}, {"metaData": data}
    log.with_name(f"{1:020}.json").write_text("\n".join(map(json.dumps, entries)))


MAPPED = [
    {"minReaderVersion": 2, "minWriterVersion": 5},
    {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["columnMapping"],
        "writerFeatures": ["columnMapping"],
    },
]


@pytest.mark.parametrize("protocol", MAPPED)
def test_delta__whose_columns_were_renamed(tmp_path: Path, protocol: dict[str, Any]) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = pa.table({"x": ["a", "b", "b"], "y": ["k", "l", "k"]})
    deltalake.write_deltalake(tmp_path / "t", table)
    exchange_names(tmp_path / "t", "name", protocol)
    rows = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path / "t"))
    said = pa.table(rows.execute("select y, x from t").read_all()).to_pydict()
    assert said == {"y": ["a", "b", "b"], "x": ["k", "l", "k"]}
    assert fb.count(tmp_path / "t", "y") == fb.count(pa.table(said), "y")
    assert fb.count(deltalake.DeltaTable(tmp_path / "t", version=0), "y") == fb.count(table, "y")


@pytest.mark.parametrize("protocol", MAPPED)
def test_delta__whose_columns_go_by_ids_is_refused(
    tmp_path: Path, protocol: dict[str, Any]
) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "t", pa.table({"x": ["a", "b"], "y": ["k", "l"]}))
    exchange_names(tmp_path / "t", "id", protocol)
    with pytest.raises(
        fb.DataError, match=r"/t/? \(Delta, version 1\): .* go by ids .* mode 'name'"
    ):
        fb.count(tmp_path / "t", "y")


def test_delta__without_its_library_is_not_read_as_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    (tmp_path / "d" / "_delta_log").mkdir(parents=True)
    (tmp_path / "d" / "_delta_log" / "0.json").write_text("{}")
    for there in (tmp_path, f"file://{tmp_path}/d"):
        with pytest.raises(fb.DataError, match=r"holds a Delta table.*deltalake\.DeltaTable"):
            fb.count(there, "y")
    said = fails("count", tmp_path / "d", "--target", "y", "-o", tmp_path / "s", folder=tmp_path)
    assert "is a Delta table; pip install 'fastbayes[deltalake]'" in said


def test_delta__that_is_broken(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "d" / "_delta_log").mkdir(parents=True)
    said = fails("count", tmp_path / "d", "--target", "y", "-o", tmp_path / "s", folder=tmp_path)
    assert str(tmp_path / "d") in said


def test_iceberg__at_a_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    where = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    catalog = sql.SqlCatalog("c", **where)
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.trips", schema=TABLE.schema)
    table.append(TABLE.slice(0, 700))
    table.append(TABLE.slice(700))
    before = table.current_snapshot().snapshot_id
    table.delete("x = 2")
    for source in (table, table.scan()):
        assert counted(source) == counted(LEFT)
    assert counted(table.scan(snapshot_id=before)) == counted(TABLE)
    assert counted(table.scan(row_filter="x > 2")).n_rows == sum(
        x > 2 for x in TABLE["x"].to_pylist()
    )
    model = fb.NaiveBayes().fit(table, "y")
    assert model.statistics_.n_rows == len(LEFT)
    with pytest.raises(fb.SchemaError, match="no column 'z'"):
        fb.count(table, "y", columns=["z"])
