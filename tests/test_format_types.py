"""Which types of copied columns formats hold: what one does not is refused before all work."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from extras import needs

import fastbayes as fb

ROWS = pa.table({"x": ["a", "b", "a"], "y": ["u", "v", "u"]})
MODEL = fb.NaiveBayes().fit(ROWS, "y")


def of(value: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([value, None, value], kind)


MONEY = decimal.Decimal("1.20")
COLUMNS = {
    "binary": of(b"\xff", pa.binary()),
    "readable": of(b"text", pa.binary()),
    "view": of(b"\xff", pa.binary_view()),
    "fixed": of(b"\xff\1", pa.binary(2)),
    "uuid": of(b"\xff" * 16, pa.uuid()),
    "small": of(MONEY, pa.decimal32(5, 2)),
    "money": of(MONEY, pa.decimal128(5, 2)),
    "large": of(MONEY, pa.decimal256(50, 2)),
    "hundreds": of(decimal.Decimal(100), pa.decimal128(6, -2)),
    "tiny": pa.nulls(3, pa.decimal128(2, 5)),
    "listed": pa.nulls(3, pa.list_(pa.decimal128(6, -2))),
    "time": of(1, pa.time32("s")),
    "nano": of(1, pa.time64("ns")),
    "span": of(1, pa.duration("us")),
    "months": of((1, 2, 3), pa.month_day_nano_interval()),
    "half": of(1.5, pa.float16()),
    "spans": of([1], pa.list_(pa.duration("s"))),
    "list": of([1], pa.list_(pa.int8())),
    "map": of([(1, b"\xff")], pa.map_(pa.int8(), pa.binary())),
    "empty": of({}, pa.struct([])),
    "nothing": pa.nulls(3),
}
BYTES = ("binary", "readable", "view", "fixed", "uuid")
LACKS = {
    "csv": {*BYTES, "months", "list", "listed", "spans", "map", "empty"},
    "jsonl": {*BYTES, "span", "months", "spans", "map"},
    "parquet": {"hundreds", "tiny", "listed", "months", "empty"},
    "delta": {
        "hundreds",
        "tiny",
        "listed",
        "small",
        "large",
        "time",
        "nano",
        "span",
        "months",
        "half",
        "spans",
        "empty",
    },
    "ipc": set(),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("kind", LACKS)
def test_types__are_held_or_refused(tmp_path: Path, kind: str, name: str) -> None:
    if kind == "delta":
        needs("deltalake")
    rows = ROWS.append_column(name, COLUMNS[name])
    parts = None if kind == "delta" else False
    if name not in LACKS[kind]:
        assert fb.predict_to(MODEL, rows, tmp_path / "o", format=kind, parts=parts).rows == 3
        return
    instead = "Arrow IPC" if name in LACKS["parquet"] else "Parquet"
    said = (
        rf"column '{name}' is .* not hold; choose other columns by `keys`, cast it to text, or "
        f"write {instead}$"
    )
    with pytest.raises(fb.SchemaError, match=said):
        fb.predict_to(MODEL, rows, tmp_path / "o", format=kind, parts=parts)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", [*BYTES, "small", "months", "list"])
@pytest.mark.parametrize("kind", ["parquet", "ipc", "delta"])
def test_types__that_name_no_directory(tmp_path: Path, kind: str, name: str) -> None:
    if kind == "delta":
        needs("deltalake")
    rows = ROWS.append_column(name, COLUMNS[name])
    said = rf"(partition_by=|column )'{name}' is .*; .*cast it to text"
    with pytest.raises(fb.SchemaError, match=said):
        fb.predict_to(MODEL, rows, tmp_path / "o", format=kind, partition_by=name)
    assert [*tmp_path.iterdir()] == []


def test_types__bytes_stay_what_they_are(tmp_path: Path) -> None:
    rows = ROWS.append_column("uuid", COLUMNS["uuid"]).append_column("fixed", COLUMNS["fixed"])
    fb.predict_to(MODEL, rows, tmp_path / "o.parquet")
    read = pq.read_table(tmp_path / "o.parquet")
    assert read["uuid"].to_pylist() == [b"\xff" * 16, None, b"\xff" * 16]
    assert read["fixed"].to_pylist() == COLUMNS["fixed"].to_pylist()
