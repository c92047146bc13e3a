"""`predict_to` with `partition_by`: each partition holds its rows in order, whoever reads them."""

from __future__ import annotations

import datetime as dt
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest
from commands import fails, run
from extras import needs
from test_predict_parts import FORMATS
from test_predict_to import READ
from test_predict_workers import shipped

import fastbayes as fb
from fastbayes.engines import Paths, pool
from fastbayes.scan.outputs import partitioned_files, prediction_blocks
from fastbayes.scan.outputs.partitioned_files import directory_of

DAYS = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]
PLACES = ["a b", "c/d", "é", "x=1%", 'q"', "c:\\e", "dot.", None]
ROWS = 3000


def table_of(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "day": pa.array([DAYS[i] for i in rng.integers(0, 3, rows)], pa.date32()),
            "place": pa.array([PLACES[i] for i in rng.integers(0, len(PLACES), rows)]),
            "x": np.array(["p", "q", "r"])[(y + rng.integers(0, 2, rows)) % 3],
            "y": np.array(["no", "yes"])[y],
        }
    )


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return table_of()


@pytest.fixture(scope="module")
def model(table: pa.Table) -> fb.NaiveBayes:
    return fb.NaiveBayes().fit(table.select(["x", "y"]), "y")


@pytest.fixture(scope="module")
def data(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two files of several row groups."""
    path = tmp_path_factory.mktemp("data")
    for i, (first, n) in enumerate(((0, 1800), (1800, 1200))):
        pq.write_table(table.slice(first, n), path / f"{i}.parquet", row_group_size=250)
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort a few hundred rows at a time."""
    monkeypatch.setattr(prediction_blocks, "BLOCK_ROWS", 64)
    monkeypatch.setattr(prediction_blocks, "GROUP_ROWS", 128)


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, hidden or not."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def expected(
    model: fb.NaiveBayes, table: pa.Table, by: list[str]
) -> dict[tuple[Any, ...], pa.Table]:
    """Return the rows of each partition, as the model says them, without the columns `by`."""
    said = model.predict(table.select(["x"]))
    whole = table.select(["id", "day", "place"]).append_column("prediction", pa.array(said))
    keys = [*zip(*(whole[name].to_pylist() for name in by), strict=True)]
    kept = [name for name in whole.column_names if name not in by]
    return {
        key: whole.filter(pa.array([one == key for one in keys])).select(kept)
        for key in dict.fromkeys(keys)
    }


def partitions(folder: Path, suffix: str, by: list[str]) -> dict[tuple[Any, ...], pa.Table]:
    """Return the rows that the files of each directory hold, in the order of their names."""
    found: dict[tuple[Any, ...], list[pa.Table]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            keys = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
            assert [*keys] == by
            found.setdefault(tuple(keys.values()), []).append(READ[suffix](path))
    return {key: pa.concat_tables(read) for key, read in found.items()}


def key_of(by: list[str], key: tuple[Any, ...]) -> tuple[str, ...]:
    texts = [None if value is None else str(value) for value in key]
    return tuple(
        directory_of(name, text).split("=", 1)[1] for name, text in zip(by, texts, strict=True)
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("by", [["day"], ["place", "day"], ["prediction"]], ids="+".join)
@pytest.mark.parametrize("suffix", READ)
def test_partitions__hold_the_rows_in_order_whoever_writes(
    table: pa.Table, model: fb.NaiveBayes, data: Path, tmp_path: Path, suffix: str, by: list[str]
) -> None:
    options: dict[str, Any] = {
        "keys": ["id", "day", "place"],
        "partition_by": by,
        "format": FORMATS[suffix],
    }
    done = fb.predict_to(model, data, tmp_path / "1", threads=1, **options)
    assert done.columns == ("id", "day", "place", "prediction")
    assert done.rows == ROWS
    rows = partitions(tmp_path / "1", suffix, by)
    wanted = expected(model, table, by)
    assert {*rows} == {key_of(by, key) for key in wanted}
    for key, read in wanted.items():
        found = rows[key_of(by, key)]
        assert found.column_names == read.column_names
        for name in read.column_names:
            # JSON has text for dates, of which its reader makes times.
            texts = [[str(v or "")[:10] for v in one[name].to_pylist()] for one in (found, read)]
            assert texts[0] == texts[1]
    # Of one reader: a file for each partition, the same for any number of threads.
    assert len(files_in(tmp_path / "1")) == len(wanted)
    fb.predict_to(model, data, tmp_path / "8", threads=8, **options)
    assert files_in(tmp_path / "8") == files_in(tmp_path / "1")
    fb.predict_to(model, Paths(data, shipped, 5), tmp_path / "workers", **options)
    there = partitions(tmp_path / "workers", suffix, by)
    assert {key: t.to_pylist() for key, t in there.items()} == {
        key: t.to_pylist() for key, t in rows.items()
    }


def test_partitions__of_processes(model: fb.NaiveBayes, data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"keys": ["id", "day"], "partition_by": "day"}
    fb.predict_to(model, data, tmp_path / "here", **options)
    fb.predict_to(model, pool.paths(data, processes=2), tmp_path / "there", **options)
    here, there = (partitions(tmp_path / n, ".parquet", ["day"]) for n in ("here", "there"))
    assert {k: t.to_pylist() for k, t in here.items()} == {
        k: t.to_pylist() for k, t in there.items()
    }


def by_ourselves(folder: Path) -> pa.Table:
    out = folder.with_suffix(".arrow")
    model = fb.NaiveBayes().fit({"id": [1, 2], "y": ["a", "b"]}, "y")
    fb.predict_to(model, folder, out, keys=["id", "day", "place"], force=True)
    return READ[".arrow"](out)


def by_pyarrow(folder: Path) -> pa.Table:
    kinds = pa.schema([("day", pa.string()), ("place", pa.string())])
    return dataset.dataset(
        folder, partitioning=dataset.partitioning(kinds, flavor="hive")
    ).to_table()


def by_duckdb(folder: Path) -> pa.Table:
    needs("duckdb")
    import duckdb

    query = f"from read_parquet('{folder}/**/*.parquet', hive_partitioning=true)"
    return duckdb.sql(f"select id, day::varchar as day, place from ({query})").to_arrow_table()


def by_polars(folder: Path) -> pa.Table:
    needs("polars")
    import polars

    return polars.read_parquet(folder, hive_partitioning=True).to_arrow()


@pytest.mark.parametrize("read", [by_ourselves, by_pyarrow, by_duckdb, by_polars])
def test_partitions__are_read_as_hive(
    table: pa.Table,
    model: fb.NaiveBayes,
    tmp_path: Path,
    read: Callable[[Path], pa.Table],
) -> None:
    keys = ["id", "day", "place"]
    fb.predict_to(model, table, tmp_path / "out", keys=keys, partition_by=["day", "place"])
    found = read(tmp_path / "out").sort_by("id")
    assert found["id"].to_pylist() == table["id"].to_pylist()
    assert [str(day) for day in found["day"].to_pylist()] == [
        str(day) for day in table["day"].to_pylist()
    ]
    assert found["place"].to_pylist() == table["place"].to_pylist()


@pytest.mark.parametrize("name", [".day", "_day", ""])
def test_partitions__of_any_name_are_read_and_replaced(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, name: str
) -> None:
    needs("polars")
    import polars

    out, rows = tmp_path / "out", table.append_column(pa.field(name, pa.string()), table["place"])
    for force in (False, True):
        options: dict[str, Any] = {"keys": ["id", name], "partition_by": name, "force": force}
        fb.predict_to(model, rows, out, **options)
    (out / ".a=b.parquet").write_bytes(b"no file of ours")
    found = fb.count(out, "prediction", categorical=["id"])
    assert found.n_rows == len(rows)
    assert name in found.schema.names
    (out / ".a=b.parquet").unlink()
    assert polars.read_parquet(out, hive_partitioning=True).height == len(rows)


def test_partitions__names_are_those_of_pyarrow(tmp_path: Path) -> None:
    texts = [chr(c) for c in range(1, 127) if chr(c) not in "./"] + ["a.b", "a/b"]
    pq.write_to_dataset(
        pa.table({"k": texts, "i": range(len(texts))}), tmp_path / "d", partition_cols=["k"]
    )
    theirs = {path.name.upper() for path in (tmp_path / "d").iterdir()}
    assert {directory_of("k", text).upper() for text in texts} == theirs


def test_partitions__of_other_types(model: fb.NaiveBayes, table: pa.Table, tmp_path: Path) -> None:
    n = len(table)
    kinds = {
        "flag": pa.array([True, None, False] * (n // 3)),
        "level": pa.array([1, -2, None] * (n // 3)),
        "word": pa.array(["u", "v", None] * (n // 3)).dictionary_encode(),
        "when": pa.array([0, 3_600_000, None] * (n // 3), pa.timestamp("ms")),
    }
    names = {
        "flag": {"true", "false"},
        "level": {"1", "-2"},
        "word": {"u", "v"},
        "when": {"1970-01-01%2000%3A00%3A00.000", "1970-01-01%2001%3A00%3A00.000"},
    }
    for name, values in kinds.items():
        wide = table.append_column(name, values)
        fb.predict_to(model, wide, tmp_path / name, keys=["id", name], partition_by=name)
        made = {path.name for path in (tmp_path / name).iterdir()}
        assert made == {f"{name}={v}" for v in (*names[name], partitioned_files.MISSING)}


@pytest.mark.usefixtures("small")
def test_partitions__no_file_stays_open(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    wide = table.append_column("group", pa.array(np.arange(ROWS) % 400))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 40, limit[1]))
    try:
        fb.predict_to(
            model, wide, tmp_path / "out", keys=["id", "group"], partition_by="group", threads=1
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    found = dataset.dataset(tmp_path / "out", partitioning="hive").to_table().sort_by("id")
    assert found["group"].to_pylist() == wide["group"].to_pylist()
    assert len(files_in(tmp_path / "out")) == 400


@pytest.mark.parametrize("workers", [False, True])
def test_partitions__too_many(
    model: fb.NaiveBayes,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    workers: bool,
) -> None:
    monkeypatch.setattr(partitioned_files, "MOST_PARTITIONS", 1500)
    # A worker alone makes fewer: all together make too many.
    source = Paths(data, shipped, 3) if workers else data
    with pytest.raises(fb.DataError, match=r"partition_by=\['id'\] makes more than 1,500"):
        fb.predict_to(model, source, tmp_path / "out", keys=["id", "day"], partition_by="id")
    assert [*tmp_path.iterdir()] == []


def test_partitions__no_rows(model: fb.NaiveBayes, table: pa.Table, tmp_path: Path) -> None:
    keys = ["id", "day"]
    fb.predict_to(model, table.slice(0, 0), tmp_path / "out", keys=keys, partition_by="day")
    assert [*tmp_path.iterdir()] == [tmp_path / "out"]
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (["dya"], "'dya' is no column that is copied, nor 'prediction'; did you mean 'day'"),
        (["x"], "'x' is no column .*; name it in `keys`"),
        (["proba_no"], "'proba_no' is no column"),
        (["day", "day"], "names a column twice"),
        (["id", "day", "list", "prediction"], "list<.*cannot stand in the name of a directory"),
    ],
)
def test_columns__that_cannot_be(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, by: list[str], said: str
) -> None:
    wide = table.append_column("list", pa.array([[1]] * ROWS))
    with pytest.raises(fb.SchemaError, match=said):
        fb.predict_to(
            model, wide, tmp_path / "o", keys=["id", "day", "list"], partition_by=by, proba=True
        )
    with pytest.raises(fb.SchemaError, match="leaves no column for the files"):
        fb.predict_to(
            model, table, tmp_path / "o", keys=["day"], partition_by=["prediction", "day"]
        )
    with pytest.raises(fb.SchemaError, match="leave out parts=False"):
        fb.predict_to(model, table, tmp_path / "o", partition_by="day", parts=False)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("value", "said"),
    [("é" * 130, "makes the name of a directory 267 bytes long"),
     ("__HIVE_DEFAULT_PARTITION__", "says .* that a value is missing")],
)  # fmt: skip
def test_values__that_name_no_directory(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, value: str, said: str
) -> None:
    wide = table.append_column("place2", pa.array([value] * ROWS))
    with pytest.raises(fb.DataError, match=f"column 'place2' holds '[é_A-Z]+'?, which {said}"):
        fb.predict_to(model, wide, tmp_path / "o", partition_by="place2")
    assert [*tmp_path.iterdir()] == []


def test_target__is_replaced_if_it_holds_parts_alone(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    fb.predict_to(model, table, out, partition_by=["day", "place"])
    with pytest.raises(fb.DataError, match="is not empty"):
        fb.predict_to(model, table, out, partition_by="day")
    fb.predict_to(model, table, out, partition_by="day", force=True)
    assert len(files_in(out)) == 3
    (out / "day=2024-01-01" / "notes.txt").write_text("mine")
    with pytest.raises(fb.DataError, match=r"holds 'day=2024-01-01/notes.txt', which is no part"):
        fb.predict_to(model, table, out, force=True)
    assert (out / "day=2024-01-01" / "notes.txt").read_text() == "mine"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", [1, 4])
def test_failure__leaves_nothing(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, threads: int
) -> None:
    done = 0

    def stop(n: int) -> None:
        nonlocal done
        done += n
        if done > 2000:  # some were written
            assert [path for path in tmp_path.rglob("*") if path.is_file()]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fb.predict_to(
            model, table, tmp_path / "out", partition_by="day", progress=stop, threads=threads
        )
    assert [*tmp_path.iterdir()] == []


KILLED = """
import sys
import pyarrow as pa
import fastbayes as fb
from fastbayes.scan.outputs import prediction_blocks
prediction_blocks.BLOCK_ROWS, prediction_blocks.GROUP_ROWS = 128, 512

def endless():
    while True:
        yield pa.record_batch({"x": ["a", "b"] * 256, "day": ["d1", "d2"] * 256, "id": range(512)})

fb.predict_to(fb.load(sys.argv[1]), endless(), sys.argv[2], partition_by="day", threads=2)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed__nothing_looks_finished(tmp_path: Path, number: signal.Signals) -> None:
    model = fb.NaiveBayes().fit({"x": ["a", "b"] * 9, "y": ["u", "v"] * 9}, "y")
    model.save(tmp_path / "m.fb")
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(tmp_path / "m.fb"), str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        for _ in range(1200):
            if any(path.stat().st_size for path in tmp_path.rglob("0000*")):
                break
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=60)
    left = [path for path in tmp_path.iterdir() if path.name != "m.fb"]
    assert all(path.name.startswith(".fastbayes-") for path in left)
    assert len(left) == (number == signal.SIGKILL)
    fb.predict_to(model, {"x": ["a"], "day": ["d"], "id": [1]}, out, partition_by="day")
    assert {path.name for path in tmp_path.iterdir()} == {"m.fb", "out"}


def test_command__takes_partitions_and_several_files(
    model: fb.NaiveBayes, data: Path, tmp_path: Path
) -> None:
    model.save(tmp_path / "m.fb")
    given = ["predict", tmp_path / "m.fb", data / "0.parquet", data / "1.parquet"]
    run(*given, "--keys", "id,day", "--partition-by", "day", "-o", tmp_path / "out")
    fb.predict_to(model, data, tmp_path / "same", keys=["id", "day"], partition_by="day")
    assert files_in(tmp_path / "out") == files_in(tmp_path / "same")
    said = fails(*given, "--partition-by", "dya", "-o", tmp_path / "o2", folder=tmp_path)
    assert "--partition-by dya is no column that is copied, nor 'prediction'; did you mean" in said


def test_sorted__is_what_a_naive_twin_groups() -> None:
    rng = np.random.default_rng(3)
    for n_keys in (1, 2, 3):
        keys = [rng.integers(0, 4, 200) for _ in range(n_keys)]
        order, starts = partitioned_files._grouped(keys)
        groups = [g.tolist() for g in np.split(order, starts[1:])]
        twin: dict[tuple[int, ...], list[int]] = {}
        for row, key in enumerate(zip(*keys, strict=True)):
            twin.setdefault(key, []).append(row)
        assert sorted(groups) == sorted(twin.values())
