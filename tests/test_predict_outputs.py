"""`predict_to` beyond plain files: JSON lines, Delta tables, and what files say of their model."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import answer, fails, run
from extras import needs
from test_predict_partitions import table_of
from test_predict_parts import FORMATS
from test_predict_workers import shipped

import fastbayes as fb
from fastbayes.engines import Paths
from fastbayes.scan.outputs import delta_output
from fastbayes.scan.outputs.json_lines import lines_of
from fastbayes.scan.outputs.prediction_metadata import said_by_file

ROWS = 3000
KEYS = ["id", "day", "place"]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return table_of(ROWS)


@pytest.fixture(scope="module")
def model(table: pa.Table) -> fb.NaiveBayes:
    return fb.NaiveBayes().fit(table.select(["x", "y"]), "y")


# -- JSON lines ---------------------------------------------------------------------------------


def strict(line: str) -> Any:
    """Return the value of a line of JSON, which has neither NaN nor infinities."""

    def refuse(literal: str) -> None:
        raise ValueError(f"{literal} is no JSON")

    return json.loads(line, parse_constant=refuse, parse_float=decimal.Decimal)


def twin(value: Any, kind: pa.DataType) -> Any:
    """Return a value as JSON says it, one after another."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {field.name: twin(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [twin(item, kind.value_type) for item in value]
    if isinstance(value, float):
        return decimal.Decimal(repr(value)) if np.isfinite(value) else None
    if isinstance(value, dt.datetime):
        text = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        digits = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[kind.unit]
        return text.isoformat(timespec=digits) + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.time):
        return value.isoformat(timespec={"s": "seconds", "us": "microseconds"}[kind.unit])
    return value.isoformat() if isinstance(value, dt.date) else value


COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(['a"b\n', None, "é\\\x00", "", "\u2028", "😀"]),
    "view": pa.array(["a", None, '"', "c", "d", "e"], pa.string_view()),
    "coded": pa.array(["x", None, 'q"', "x", None, "y"]).dictionary_encode(),
    "integer": pa.array([1, None, -3, 2**62, 0, 7]),
    "unsigned": pa.array([2**64 - 1, 1, None, 0, 5, 6], pa.uint64()),
    "double": pa.array([1.0, np.nan, 0.1, -np.inf, None, 5e-324]),
    "large": pa.array([1e300, 1e15, 1e16, 123456789012345678.0, -0.0, 1 / 3]),
    "flag": pa.array([True, None, False, True, True, False]),
    "nothing": pa.nulls(6),
    "day": pa.array([dt.date(2024, 1, 1), None, *[dt.date(1, 1, 1)] * 4]),
    "time": pa.array([dt.time(1, 2, 3, 4), None, *[dt.time(0)] * 4], pa.time64("us")),
    "moment": pa.array([0, None, 1500, -1, 2, 3], pa.timestamp("ms")),
    "zoned": pa.array([0, None, 1500, -1, 2, 3], pa.timestamp("us", "Asia/Kolkata")),
    "money": pa.array([decimal.Decimal("1.20"), None, *[decimal.Decimal("-3.00")] * 4]),
    "list": pa.array([[1.5, None], None, [], [np.nan], [2.0], [3.0, 4.0]]),
    "lists": pa.array([[["a"], None], [], None, [[]], [['"']], [["b", "c"]]]),
    "pair": pa.array([[1, 2], None, *[[3, 4]] * 4], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, *[{"a": None, "b": '"'}] * 4]),
    'na"me,': pa.array(range(6)),
}


@pytest.mark.parametrize("first", [0, 2])
def test_json__is_what_a_naive_twin_writes(first: int) -> None:
    batch = pa.record_batch(COLUMNS).slice(first)
    lines = lines_of(batch).to_pybytes().decode().split("\n")
    assert lines.pop() == ""
    rows = [strict(line) for line in lines]
    assert [[*row] for row in rows] == [[*COLUMNS]] * len(rows)
    for name, column in zip(COLUMNS, batch.columns, strict=True):
        kind = column.type
        values = [twin(value, kind) for value in column.to_pylist()]
        assert [row[name] for row in rows] == values, name
    # What gives a float back looks like one, so that no reader takes a column for integers.
    assert '"double":1.0,' in lines[0] or first


def test_json__float32_has_its_own_digits() -> None:
    values = np.random.default_rng(0).random(500).astype(np.float32)
    lines = lines_of(pa.record_batch({"p": values})).to_pybytes().split()
    assert [np.float32(json.loads(line)["p"]) for line in lines] == values.tolist()
    assert max(map(len, lines)) <= len('{"p":}') + 15


@pytest.mark.parametrize(
    "column", [pa.array([b"x"] * ROWS), pa.array([[(1, 2)]] * ROWS, pa.map_(pa.int8(), pa.int8()))]
)
def test_json__types_that_it_lacks(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, column: pa.Array
) -> None:
    wide = table.append_column("odd", column)
    with pytest.raises(fb.SchemaError, match=r"column 'odd' is .* which JSON lines do not hold"):
        fb.predict_to(model, wide, tmp_path / "o.jsonl")
    assert [*tmp_path.iterdir()] == []


def test_json__is_read_by_others(model: fb.NaiveBayes, table: pa.Table, tmp_path: Path) -> None:
    needs("polars", "duckdb")
    import duckdb
    import polars

    path = tmp_path / "o.ndjson"
    fb.predict_to(model, table, path, keys=KEYS, proba=True)
    said = model.predict_proba(table.select(["x"]))
    for read in (
        polars.read_ndjson(path).to_arrow(),
        duckdb.sql(f"from '{path}'").to_arrow_table(),
    ):
        assert read.column_names == [*KEYS, "prediction", "proba_no", "proba_yes"]
        assert read["id"].to_pylist() == table["id"].to_pylist()
        assert read["place"].to_pylist() == table["place"].to_pylist()
        assert read["proba_yes"].to_pylist() == said[:, 1].tolist()


# -- metadata -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("how", ["file", "parts", "partitions", "workers"])
def test_metadata__say_what_made_a_file(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, suffix: str, how: str
) -> None:
    data, out = tmp_path / "d.parquet", tmp_path / ("out" + suffix * (how == "file"))
    pq.write_table(table, data)
    source: Any = Paths(data, shipped, 2) if how == "workers" else data
    by = "day" if how == "partitions" else ()
    fb.predict_to(model, source, out, format=FORMATS[suffix], partition_by=by)
    found = [out] if how == "file" else [*out.rglob("part-*")]
    assert found
    model.save(tmp_path / "m.fb")
    for path in found:
        assert said_by_file(str(path)) == {
            "model": "NaiveBayes",
            "digest": fb.load(tmp_path / "m.fb").digest(),
            "written_by": f"fastbayes {fb.__version__}",
            "target": "y",
            "classes": ["no", "yes"],
            "columns": {"x": "categorical"},
        }
    if suffix == ".parquet":
        assert json.loads(pq.read_metadata(found[0]).metadata[b"fastbayes"])["target"] == "y"
    said = answer("inspect", found[0])["predictions"]
    assert said["digest"] == answer("inspect", tmp_path / "m.fb")["digest"] == model.digest()
    assert said["digest"] in run("inspect", found[0]).stdout
    with pytest.raises(fb.FileFormatError, match=r"not one that fastbayes wrote|not a model"):
        fb.load(found[0])


def test_digest__tells_models_apart(table: pa.Table) -> None:
    rows = table.select(["x", "y"])
    digests = [
        fb.NaiveBayes().fit(rows, "y").digest(),
        fb.NaiveBayes(alpha=2.0).fit(rows, "y").digest(),
        fb.NaiveBayes().fit(rows.slice(1), "y").digest(),
        fb.AODE().fit(rows, "y").digest(),
    ]
    assert len({*digests}) == 4
    assert fb.NaiveBayes().fit(rows, "y").digest() == digests[0]


@pytest.mark.parametrize("name", ["TAN", "GaussianBayes", "LogisticRegression", "Blend"])
def test_digest__of_a_file_is_that_of_the_model(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 300)
    rows = {"x": rng.normal(y), "z": rng.normal(y), "y": np.array(["n", "p"])[y]}
    if name == "TAN":
        rows = {"x": rng.integers(0, 3, 300).astype(str), "z": y.astype(str), "y": rows["y"]}
    model = getattr(fb, name)().fit(pa.table(rows), "y")
    model.save(tmp_path / "m.fb")
    assert fb.load(tmp_path / "m.fb").digest() == model.digest()
    assert pickle.loads(pickle.dumps(model)).digest() == model.digest()
    missing_columns = "".join(["err", "or"])  # the default, as another object
    assert model.set_params(missing_columns=missing_columns).digest() == model.digest()


# -- Delta --------------------------------------------------------------------------------------


def delta(path: Path) -> Any:
    needs("deltalake")
    import deltalake

    return deltalake.DeltaTable(path)


def rows_of(path: Path) -> pa.Table:
    return delta(path).to_pyarrow_table().sort_by("id")


@pytest.mark.parametrize("by", [[], ["day"], ["place", "prediction"]])
def test_delta__holds_what_the_model_says(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, by: list[str]
) -> None:
    needs("deltalake", "polars", "duckdb")
    import polars

    out = tmp_path / "t"
    options: dict[str, Any] = {"format": "delta", "partition_by": by, "proba": True}
    done = fb.predict_to(model, table.to_reader(max_chunksize=500), out, keys=KEYS, **options)
    assert done.rows == ROWS
    assert delta(out).metadata().partition_columns == by
    read = rows_of(out)
    assert {*read.column_names} == {*done.columns}
    for name in KEYS:
        assert read[name].to_pylist() == table[name].to_pylist()
    assert read["prediction"].to_pylist() == model.predict(table.select(["x"])).tolist()
    said = model.predict_proba(table.select(["x"]))[:, 1]
    assert read["proba_yes"].to_pylist() == said.tolist()
    assert polars.read_delta(str(out)).sort("id")["id"].to_list() == table["id"].to_pylist()
    made = json.loads(delta(out).history()[0]["fastbayes"])
    assert (made["digest"], made["target"]) == (model.digest(), "y")
    shown = answer("inspect", out)
    assert shown["predictions"] == made
    assert str(out) in shown["source"]
    assert "(Delta, version 0)" in shown["source"]
    assert model.digest() in run("inspect", out).stdout
    # It is a source of our own.
    other = fb.NaiveBayes().fit({"place": ["a b", "é"], "y": ["u", "v"]}, "y")
    assert fb.predict_to(other, out, tmp_path / "again.csv", keys=["id"]).rows == ROWS


def test_delta__holds_little_of_each_partition(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for size in (delta_output.PARTITION_BYTES, 500):
        monkeypatch.setattr(delta_output, "PARTITION_BYTES", size)
        rows, out = table.to_reader(max_chunksize=300), tmp_path / str(size)
        fb.predict_to(model, rows, out, format="delta", keys=KEYS, partition_by="day")
        assert rows_of(out)["id"].to_pylist() == table["id"].to_pylist()
        files.append(len([*out.rglob("*.parquet")]))
    assert files[0] == 3
    assert files[1] > 3


def test_delta__force_makes_a_version(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    needs("deltalake")
    import deltalake

    out = tmp_path / "t"
    fb.predict_to(model, table, out, format="delta", keys=["id"])
    with pytest.raises(fb.DataError, match=r"is a Delta table.*force=True, which makes a new ver"):
        fb.predict_to(model, table, out, format="delta", keys=["id"])
    with pytest.raises(fb.DataError, match="is a Delta table: write a version"):
        fb.predict_to(model, table, out, force=True)
    fb.predict_to(model, table.slice(9), out, format="delta", keys=["id", "day"], force=True)
    assert len(rows_of(out)) == ROWS - 9
    assert rows_of(out).column_names == ["id", "day", "prediction"]
    old = deltalake.DeltaTable(out, version=0).to_pyarrow_table()
    assert (len(old), old.column_names) == (ROWS, ["id", "prediction"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(
        fb.DataError, match=r"not empty, and no Delta table: name another directory$"
    ):
        fb.predict_to(model, table, tmp_path / "mine", format="delta", force=True)


def test_delta__a_version_keeps_partitions_that_it_can(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    needs("deltalake")
    out = tmp_path / "t"
    options: dict[str, Any] = {"format": "delta", "force": True}
    fb.predict_to(model, table, out, keys=["id", "day"], partition_by="day", **options)
    with pytest.raises(fb.DataError, match="partitioned by 'day', which is not written: copy it"):
        fb.predict_to(model, table, out, keys=["id"], **options)
    fb.predict_to(model, table, out, keys=["day"], **options)
    assert delta(out).metadata().partition_columns == ["day"]
    fb.predict_to(model, table, out, keys=["id"], partition_by="prediction", **options)
    with pytest.raises(fb.DataError, match="leaves no column for the files; copy another"):
        fb.predict_to(model, table, out, keys=[], **options)
    assert delta(out).version() == 2


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_delta__a_failure_changes_nothing(
    model: fb.NaiveBayes,
    table: pa.Table,
    tmp_path: Path,
    error: type[BaseException],
    *,
    there: bool,
) -> None:
    needs("deltalake")
    out = tmp_path / "t"
    if there:
        fb.predict_to(model, table, out, format="delta", keys=["id"])
    before = threading.active_count()

    def rows() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=300)
        raise error

    with pytest.raises(error):
        fb.predict_to(model, rows(), out, format="delta", keys=["id"], force=True)
    assert threading.active_count() == before
    if there:
        assert delta(out).version() == 0
        assert len(rows_of(out)) == ROWS
    else:
        assert [*tmp_path.iterdir()] == []


def test_delta__what_the_library_refuses_names_the_target(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    needs("deltalake")
    wide = table.append_column("bytes", pa.array([[200]] * ROWS, pa.list_(pa.uint8())))
    with pytest.raises(fb.DataError, match=rf"^{tmp_path}/t: .*UInt8"):
        fb.predict_to(model, wide, tmp_path / "t", format="delta", keys=["bytes"])
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("missing", ["", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize("coded", [False, True])
def test_delta__text_that_would_be_missing(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, missing: str, *, coded: bool
) -> None:
    needs("deltalake")
    words = pa.array([*["a", None] * (ROWS // 2 - 1), "b", missing])
    wide = table.append_column("word", words.dictionary_encode() if coded else words)
    options: dict[str, Any] = {"format": "delta", "keys": ["id", "word"]}
    said = f"column 'word' holds '{missing}', which says .* that a value is missing; write it with"
    with pytest.raises(fb.DataError, match=said):
        fb.predict_to(model, wide, tmp_path / "t", partition_by="word", **options)
    assert [*tmp_path.iterdir()] == []
    fb.predict_to(model, wide, tmp_path / "t", **options)
    assert rows_of(tmp_path / "t")["word"].to_pylist() == words.to_pylist()
    rest = wide.slice(0, ROWS - 1)
    fb.predict_to(model, rest, tmp_path / "t", partition_by="word", force=True, **options)
    assert rows_of(tmp_path / "t")["word"].to_pylist() == words.to_pylist()[:-1]


def test_delta__a_partition_of_no_type(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    needs("deltalake")
    wide = table.append_column("nothing", pa.nulls(ROWS))
    keys = ["id", "nothing"]
    with pytest.raises(fb.SchemaError, match="partition_by='nothing' is missing in all rows"):
        fb.predict_to(
            model, wide, tmp_path / "t", format="delta", keys=keys, partition_by="nothing"
        )
    assert [*tmp_path.iterdir()] == []


def test_delta__unsigned_integers_beyond_its_own(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    needs("deltalake")
    for most in (2**63 - 1, 2**63):
        values = pa.array([most, None, 0] * (ROWS // 3), pa.uint64())
        wide = table.select(["id", "x"]).append_column("large", values)
        if most == 2**63:
            with pytest.raises(fb.DataError, match=f"column 'large' holds {most}, over {most - 1}"):
                fb.predict_to(model, wide, tmp_path / "t", format="delta", force=True)
        else:
            fb.predict_to(model, wide, tmp_path / "t", format="delta")
        read = rows_of(tmp_path / "t")["large"]
        assert read.to_pylist() == [2**63 - 1, None, 0] * (ROWS // 3)


def test_delta__unsigned_integers_that_fit(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path
) -> None:
    needs("deltalake")
    kinds = {"a": pa.uint8(), "b": pa.uint16(), "c": pa.uint32()}
    wide = table.select(["id", "x"])
    for name, kind in kinds.items():
        most = 2**kind.bit_width - 1
        wide = wide.append_column(name, pa.array([most, None, 0] * (ROWS // 3), kind))
    fb.predict_to(model, wide, tmp_path / "t", format="delta")
    assert rows_of(tmp_path / "t").select([*kinds]).to_pylist() == wide.select([*kinds]).to_pylist()
    huge = table.append_column("huge", pa.array([2**64 - 1] * ROWS, pa.uint64()))
    with pytest.raises(fb.DataError, match="18446744073709551615"):
        fb.predict_to(model, huge, tmp_path / "u", format="delta", keys=["huge"])


def test_delta__without_its_library_and_of_workers(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table, tmp_path / "d.parquet")
    needs("deltalake")
    source = Paths(tmp_path / "d.parquet", shipped, 2)
    with pytest.raises(fb.DataError, match="workers write no Delta table"):
        fb.predict_to(model, source, tmp_path / "t", format="delta")
    with pytest.raises(fb.SchemaError, match="parts goes with files"):
        fb.predict_to(model, table, tmp_path / "t", format="delta", parts=True)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(fb.DataError, match=r"pip install 'fastbayes\[deltalake\]'"):
        fb.predict_to(model, table, tmp_path / "t", format="delta")
    model.save(tmp_path / "m.fb")
    given = ["predict", tmp_path / "m.fb", tmp_path / "d.parquet", "-o", tmp_path / "t"]
    assert "--format delta needs deltalake" in fails(*given, "--format", "delta", folder=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"d.parquet", "m.fb"}


@pytest.mark.parametrize("started", [False, True])
def test_delta__interrupted_as_its_thread_starts(
    model: fb.NaiveBayes,
    table: pa.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    started: bool,
) -> None:
    needs("deltalake")
    start = threading.Thread.start
    threads = []

    def interrupted(self: threading.Thread) -> None:
        if self.name != "fastbayes-delta":
            start(self)
            return
        if started:
            threads.append(self)
            start(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fb.predict_to(model, table, tmp_path / "t", format="delta")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not any(tmp_path.iterdir())


KILLED = """
import itertools, sys
import pyarrow as pa
import fastbayes as fb

def endless():
    for n in itertools.count():
        if n == 30:
            print("at work", flush=True)  # an interrupt of an import can leave its lock held
        yield pa.record_batch({"x": ["p", "q"] * 5000, "id": range(10_000)})

fb.predict_to(fb.load(sys.argv[1]), endless(), sys.argv[2], format="delta", force=True)
"""


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_delta__killed(
    model: fb.NaiveBayes, table: pa.Table, tmp_path: Path, number: signal.Signals, *, there: bool
) -> None:
    needs("deltalake")
    (tmp_path / "targets").mkdir()
    out = tmp_path / "targets" / "t"
    model.save(tmp_path / "m.fb")
    if there:
        fb.predict_to(model, table, out, format="delta", keys=["id"])
    command = [sys.executable, "-c", KILLED, str(tmp_path / "m.fb"), str(out)]
    env = {**os.environ, "FASTBAYES_KERNELS": "never"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        process.send_signal(number)
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()
    if there:
        assert delta(out).version() == 0
        assert len(rows_of(out)) == ROWS
    elif number == signal.SIGINT:
        assert not any((tmp_path / "targets").iterdir())
    fb.predict_to(model, table.slice(5), out, format="delta", keys=["id"], force=True)
    assert [path.name for path in (tmp_path / "targets").iterdir()] == ["t"]
    assert len(rows_of(out)) == ROWS - 5
