"""Row groups that are counted as they were decoded: what the same rows in memory give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.data.decoded_rows import DecodedRows
from fastbayes.data.source import open_source


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the columns whose integers are used as they were decoded from now on."""
    names: list[str] = []
    integers = DecodedRows.integers

    def noting(self: DecodedRows, name: str) -> Any:
        names.append(name)
        return integers(self, name)

    monkeypatch.setattr(DecodedRows, "integers", noting)
    return names


def rows(n: int, seed: int, nulls: float) -> pa.Table:
    """Return columns that become codes in every way, classes, and weights."""
    rng = np.random.default_rng(seed)

    def column(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.array(values, mask=rng.random(n) < nulls).cast(kind)

    few = [f"value {k}" for k in rng.permutation(6)]
    many = [f"user {k}" for k in range(seed, seed + 400)]
    text = {
        "few": column(rng.choice(few, n), pa.string()),
        "many": column(rng.choice(many, n), pa.string()),
        "class": column(rng.choice(["a", "b", "c"], n), pa.string()),
    }
    integers = {
        str(kind): column(rng.integers(0, 9, n), kind)
        for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
    }
    signed = {"signed": column(rng.integers(-4, 4, n), pa.int16())}
    truths = {"truth": column(rng.random(n) < 0.3, pa.bool_())}
    numbers = {"price": column(rng.integers(0, 5, n), pa.decimal128(21, 2))}
    numbers["half"] = column(rng.integers(0, 5, n) / 2, pa.float64())
    weights = {"weight": pa.array(rng.integers(0, 3, n).astype(np.float64))}
    return pa.table({**text, **integers, **signed, **truths, **numbers, **weights})


@pytest.fixture(params=[0.0, 0.2], ids=["whole", "gaps"])
def table(request: pytest.FixtureRequest) -> pa.Table:
    return pa.concat_tables([rows(700 + k, k, request.param) for k in range(5)])


@pytest.fixture
def path(table: pa.Table, tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    # groups do not end where the dictionaries change
    pq.write_table(table, path, row_group_size=1000)
    return path


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_counts__those_of_memory(
    table: pa.Table, path: Path, weight: str | None, threads: int, looked_at: list[str]
) -> None:
    categorical = [n for n in table.column_names if n not in ("class", "weight")]
    columns = None if weight else [n for n in table.column_names if n != "weight"]
    how: dict[str, Any] = {"categorical": categorical, "sample_weight": weight, "moments": False}
    found = fb.count(path, "class", threads=threads, columns=columns, pairs=True, **how)
    expected = fb.count(table.select(columns or table.column_names), "class", pairs=True, **how)
    assert found == expected
    assert found.dropped_rows == expected.dropped_rows
    # weights are summed row group by row group, and seven threads share four of them out
    if not weight and threads < 7 and table["class"].null_count == 0:
        assert {"few", "truth", "signed", "int8", "class"} <= set(looked_at)


def test_a_table__when_it_is_asked_for(table: pa.Table, path: Path) -> None:
    source = open_source(str(path)).merging().within(1 << 26, 1)
    parts = [part for segment in source.segments(1 << 20) for part in segment.batches()]
    assert all(isinstance(part, DecodedRows) for part in parts)
    assert sum(part.num_rows for part in parts) == table.num_rows
    for name in table.column_names:
        chunks = [chunk for part in parts for chunk in part.column(name).chunks]
        assert [v for chunk in chunks for v in chunk.to_pylist()] == table[name].to_pylist()
    for part in parts:
        part.table.validate(full=True)
        assert pa.Table.from_batches(part.batches()).equals(part.table)


def test_texts_that_mean_missing__are_none(table: pa.Table, path: Path) -> None:
    how: dict[str, Any] = {"columns": ["few", "class"], "null_values": ["value 3"]}
    found = fb.count(path, "class", **how)
    assert found == fb.count(table, "class", **how)
    assert "value 3" not in found.schema.features[0].values.to_pylist()


def test_columns_of_directories__stand_next_to_those_of_files(
    table: pa.Table, tmp_path: Path
) -> None:
    for day in ("mon", "tue"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(table.select(["few", "class"]), tmp_path / f"day={day}" / "t.parquet")
    found = fb.count(str(tmp_path), "class")
    days = pa.array(["mon"] * table.num_rows + ["tue"] * table.num_rows)
    twice = pa.concat_tables([table, table]).select(["few", "class"])
    assert found == fb.count(twice.append_column("day", days), "class")


def test_row_groups_with_nearly_the_same_dictionaries__each_have_their_own(tmp_path: Path) -> None:
    """Of as many bytes, in another order, with an empty text more, of other columns."""
    groups = [["a", "b"], ["a", "b"], ["b", "a"], ["a", "c"], ["a", "b", ""], ["", "a", "b"], ["a"]]
    rng = np.random.default_rng(7)
    parts = [
        pa.table({name: np.append(held, rng.choice(held, 100)) for name in ("x", "y", "class")})
        for held in groups * 2
    ]
    path = tmp_path / "groups.parquet"
    with pq.ParquetWriter(path, parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part)
    for columns in (["x", "class"], ["y", "class"], ["x", "y", "class"]):
        table = pa.concat_tables(parts).select(columns)
        assert fb.count(path, "class", columns=columns, threads=1) == fb.count(table, "class")
