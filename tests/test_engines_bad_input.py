"""What is wrong with rows that workers read is said as if they were read here."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

import fastbayes as fb
from fastbayes.data import text
from fastbayes.engines import Paths, map_reduce, pool
from fastbayes.engines.shares import Map


def rows(seed: int, n: int = 200) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "text": rng.choice(["a", "b", "c"], n),
            "number": rng.normal(size=n).round(3),
            "weight": rng.integers(1, 4, n).astype(float),
            "y": rng.choice(["no", "yes"], n),
        }
    )


def changed(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


@pytest.fixture(scope="module", params=["map", "pool"])
def engine(request: pytest.FixtureRequest) -> Map:
    """Return what maps work over workers: the built-in, and two processes."""
    processes = pool.paths("", processes=2)  # which live as long as this
    return builtins.map if request.param == "map" else processes.map


def infinite(table: pa.Table) -> pa.Table:
    return changed(table, "number", [*table["number"].to_pylist()[:-1], float("inf")])


def negative(table: pa.Table) -> pa.Table:
    return changed(table, "weight", [*table["weight"].to_pylist()[:-1], -1.0])


# By name: what the file 1.parquet is, options of `count`, the error, and what it says.
WRONG: dict[str, tuple[Callable[[pa.Table], pa.Table], dict[str, Any], Any, str]] = {
    "an unknown column": (
        lambda table: table,
        {"columns": ["text", "txet"]},
        fb.SchemaError,
        "no column 'txet'.*'text'",
    ),
    "text beside numbers": (
        lambda table: changed(table, "number", ["1.5"] * len(table)),
        {},
        fb.SchemaError,
        r"'number'.*1\.parquet",
    ),
    "a value outside a declared domain": (
        lambda table: changed(table, "text", ["d"] * len(table)),
        {"domains": {"text": ["a", "b", "c"]}},
        fb.DataError,
        r"column 'text', row 0 of .*1\.parquet.*'d'",
    ),
    "a class outside a declared domain": (
        lambda table: changed(table, "y", ["maybe"] * len(table)),
        {"domains": {"y": ["no", "yes"]}},
        fb.DataError,
        r"column 'y', row 0 of .*1\.parquet.*'maybe'",
    ),
    "a number that is infinite": (
        infinite,
        {},
        fb.DataError,
        r"column 'number', row 199 of .*1\.parquet.*inf",
    ),
    "a weight below 0": (
        negative,
        {"sample_weight": "weight"},
        fb.DataError,
        r"'weight', row 199 of .*1\.parquet.*-1",
    ),
}


def same_error(work: Callable[[Any], object], source: Any, engine: Map, **given: Any) -> str:
    """Hold the error of workers to that of rows read here; return its text."""
    with pytest.raises(fb.FastBayesError) as here:
        work(source)
    with pytest.raises(fb.FastBayesError) as there:
        work(Paths(source, engine, 3, **given))
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)
    assert there.value.__cause__ is None
    assert "\n" not in str(there.value)
    return str(there.value)


@pytest.mark.parametrize("name", WRONG)
def test_rows__that_do_not_fit(tmp_path: Path, engine: Map, name: str) -> None:
    change, options, error, said = WRONG[name]
    for seed in range(3):
        table = rows(seed)
        pq.write_table(change(table) if seed == 1 else table, tmp_path / f"{seed}.parquet")
    for pairs in (False, True):
        same_error(partial(fb.count, target="y", pairs=pairs, **options), tmp_path, engine)
    with pytest.raises(error, match=said):
        fb.count(Paths(tmp_path, engine, 3), "y", **options)


def test_files__without_a_column_where_all_must_have_it(tmp_path: Path, engine: Map) -> None:
    for seed in range(3):
        table = rows(seed).drop_columns(["text"] if seed == 1 else [])
        pq.write_table(table, tmp_path / f"{seed}.parquet")
    strict = fb.Files(tmp_path, schema_mode="strict")
    assert "1.parquet has no column 'text'" in same_error(
        partial(fb.count, target="y"), strict, engine
    )
    one, other = fb.count(tmp_path, "y"), fb.count(Paths(tmp_path, engine, 3), "y")
    assert one == other
    assert one.provenance == other.provenance


def test_text__that_comes_late_in_a_file(
    tmp_path: Path, engine: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "LEAST_INFER_BYTES", 2000)  # the types are found here
    for seed in range(3):
        table = rows(seed)
        if seed == 1:
            numbers = table["number"].cast(pa.string()).to_pylist()
            table = changed(table, "number", [*numbers[:-1], "many"])
        pyarrow.csv.write_csv(table, tmp_path / f"{seed}.csv")
    said = same_error(partial(fb.count, target="y"), tmp_path, engine)
    assert "1.csv" in said
    assert "'number'" in said


def test_cut_points__that_differ(tmp_path: Path, engine: Map) -> None:
    for seed in range(2):
        pq.write_table(rows(seed), tmp_path / f"{seed}.parquet")
    counted = partial(fb.count, target="y", pairs=True, discretize="quantile")
    with pytest.raises(fb.SchemaError, match="'number'") as found:
        map_reduce(sorted(map(str, tmp_path.iterdir())), counted, operator.add, engine)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_files__are_here_what_they_are_there(
    tmp_path: Path, engine: Map, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for i in range(3):
        pq.write_table(rows(i), tmp_path / f"{i}.parquet", row_group_size=50)
    path = tmp_path / "1.parquet"
    data = bytearray(path.read_bytes())
    if seed == 0:
        data = data[: len(data) // 2]  # its footer is gone, too
    elif seed == 1:
        data = data[:300] + data[400:]  # a row group is cut
    else:
        for at in rng.integers(4, len(data) // 2, 20):
            data[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)
    for on_error in ("stop", "skip"):
        found = []
        for source in (tmp_path, Paths(tmp_path, engine, 5)):
            try:
                stats = fb.count(source, "y", on_error=on_error)
                found.append((stats.n_rows, stats.values.counts.tolist(), stats.provenance))
            except fb.DataError as error:
                assert "1.parquet" in str(error)
                found.append((type(error), str(error)))
        assert found[0] == found[1]


class Locked(LocalFileSystem):
    """Files that may be read until a file is there that is called as they are, and .locked."""

    def _open(self, path: str, *args: Any, **given: Any) -> Any:
        if Path(f"{path}.locked").exists():
            raise PermissionError(13, "Permission denied", path)
        return super()._open(path, *args, **given)


def test_permission__that_is_lost(tmp_path: Path, engine: Map) -> None:
    (tmp_path / "data").mkdir()
    for i in range(3):
        pq.write_table(rows(i), tmp_path / "data" / f"{i}.parquet", row_group_size=50)

    def meanwhile(f: Any, items: Any) -> Any:
        (tmp_path / "data" / "1.parquet.locked").touch()
        return engine(f, items)

    glob = str(tmp_path / "data" / "*.parquet")
    assert isinstance(fsspec.filesystem("file"), LocalFileSystem)
    with pytest.raises(fb.DataError, match=r"1\.parquet: may not be read: permission denied"):
        fb.count(Paths(glob, meanwhile, 4, Locked()), "y")
