"""`predict_to`: what is written is what the model says, row by row, whatever the source."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.json as arrow_json
import pyarrow.parquet as pq
import pytest
from extras import needs

import fastbayes as fb
from fastbayes.data import text
from fastbayes.scan.outputs.row_files import GROUP_ROWS, format_of
from fastbayes.scan.outputs.sink import Written


def read_json(path: Path) -> pa.Table:
    """Return the rows of JSON lines."""
    names = json.loads(path.read_text().partition("\n")[0])
    return arrow_json.read_json(path).select([*names])


READ: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": pq.read_table,
    ".arrow": lambda path: pa.ipc.open_file(path).read_all(),
    ".csv": pc.read_csv,
    ".jsonl": read_json,
}


def table_of(rows: int, seed: int = 0) -> pa.Table:
    """Return rows of every kind of column, some values missing, with an identifier."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, rows)

    def column(values: Any) -> pa.Array:
        return pa.array(values, mask=rng.random(rows) < 0.1)

    return pa.table(
        {
            "id": pa.array([f"row {i}" for i in range(rows)], pa.string()),
            "text": column(np.array(["a", "b", "c", "d"])[(y + rng.integers(0, 3, rows)) % 4]),
            "flag": column(rng.random(rows) < 0.2 + 0.2 * y),
            "number": column(rng.normal(y)),
            "level": column(rng.integers(0, 9, rows)),
            "y": pa.array(np.array(["hi", "lo", "mid"])[y]),
        }
    )


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return table_of(3000)


@pytest.fixture(scope="module")
def model(table: pa.Table) -> fb.NaiveBayes:
    return fb.NaiveBayes(categorical=["level"]).fit(table.drop_columns("id"), "y")


def features(table: pa.Table) -> pa.Table:
    return table.select(["text", "flag", "number", "level"])


def proba(read: pa.Table) -> np.ndarray[Any, Any]:
    names = [name for name in read.column_names if name.startswith("proba_")]
    return np.column_stack([read[name].to_numpy() for name in names])


def write_parquet(table: pa.Table, path: Path) -> Any:
    pq.write_table(table, path, row_group_size=700)
    return path


def write_csv(table: pa.Table, path: Path) -> Any:
    path = path.with_suffix(".csv")
    pc.write_csv(table, path)
    return path


def write_ipc(table: pa.Table, path: Path) -> Any:
    path = path.with_suffix(".arrow")
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    return path


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "Parquet": write_parquet,
    "CSV": write_csv,
    "IPC": write_ipc,
    "table": lambda table, _: table,
    "pandas": lambda table, _: table.to_pandas(),
    "stream": lambda table, _: table.to_reader(max_chunksize=700),
    "iterator": lambda table, _: iter(table.to_batches(max_chunksize=700)),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("suffix", READ)
def test_written__is_what_the_model_says(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, kind: str, suffix: str
) -> None:
    out = tmp_path / f"out{suffix}"
    done = fb.predict_to(model, SOURCES[kind](table, tmp_path / "d.parquet"), out, proba=True)
    read = READ[suffix](out)
    assert read.column_names == ["id", "prediction", "proba_hi", "proba_lo", "proba_mid"]
    assert done.columns == tuple(read.column_names)
    assert done.rows == 3000
    assert read["id"].to_pylist() == table["id"].to_pylist()
    assert read["prediction"].to_pylist() == model.predict(features(table)).tolist()
    assert np.array_equal(proba(read), model.predict_proba(features(table)))


def test_written__many_row_groups_in_order_and_threads_change_nothing(
    model: fb.NaiveBayes, tmp_path: Path
) -> None:
    table = table_of(150_000)
    data = tmp_path / "d.parquet"
    pq.write_table(table, data, row_group_size=1500)
    for suffix in READ:
        written = []
        for threads in (1, 8):
            out = tmp_path / f"{threads}{suffix}"
            fb.predict_to(model, data, out, proba=True, explain=True, threads=threads)
            written.append(out.read_bytes())
        assert written[0] == written[1]
    read = pq.read_table(tmp_path / "8.parquet")
    assert read["id"].to_pylist() == table["id"].to_pylist()
    assert np.array_equal(proba(read), model.predict_proba(features(table)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", [{}, {"parts": True}, {"partition_by": "word"}])
def test_written__of_a_large_table_in_memory_what_is_of_its_file(
    tmp_path: Path, threads: int, options: dict[str, Any]
) -> None:
    """Its rows come in tables of many blocks and chunks, with dictionaries of their own."""
    n = 300_000
    words = [pa.array(["u", "v"] * (n // 4)), pa.array(["w", "v"] * (n // 4))]
    table = pa.table(
        {
            "id": pa.array(range(n)),
            "word": pa.chunked_array([part.dictionary_encode() for part in words]),
            "bit": pa.array([i % 3 == 0 for i in range(n)]),
        }
    )
    model = fb.NaiveBayes(columns=["bit"]).fit(table.slice(0, 90), ["p", "q", "q"] * 30)
    pq.write_table(table, tmp_path / "table.parquet")
    found = []
    for source in (table, tmp_path / "table.parquet"):
        out = tmp_path / f"o{len(found)}{'' if options else '.parquet'}"
        fb.predict_to(model, source, out, threads=threads, **options)
        found.append(pq.read_table(out).sort_by("id"))
    assert found[0].num_rows == n
    assert found[0].equals(found[1])


def test_written__small_pieces_are_gathered(model: fb.NaiveBayes, tmp_path: Path) -> None:
    n = GROUP_ROWS + 50_000
    table = pa.table({"id": np.arange(n)})
    for field in features(table_of(1)).schema:
        table = table.append_column(field.name, pa.nulls(n, field.type))
    fb.predict_to(model, (b for b in table.to_batches(max_chunksize=5000)), tmp_path / "o.parquet")
    meta = pq.read_metadata(tmp_path / "o.parquet")
    sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    assert sizes == [GROUP_ROWS, 50_000]
    assert pq.read_table(tmp_path / "o.parquet")["id"].equals(table["id"])


@pytest.mark.parametrize("suffix", READ)
def test_written__no_rows(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, suffix: str
) -> None:
    full, none = tmp_path / f"full{suffix}", tmp_path / f"none{suffix}"
    options: dict[str, Any] = {"proba": True, "explain": True, "reject": 0.2}
    fb.predict_to(model, table, full, **options)
    done = fb.predict_to(model, table.slice(0, 0), none, **options)
    assert done == Written(0, done.columns, {}, 0)
    if suffix == ".jsonl":  # which has no header
        assert none.read_bytes() == b""
        return
    assert READ[suffix](none).num_rows == 0
    assert READ[suffix](none).column_names == READ[suffix](full).column_names
    if suffix != ".csv":
        assert READ[suffix](none).schema == READ[suffix](full).schema


# -- columns -----------------------------------------------------------------------------------


def test_keys__any_type_and_any_encoding(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    n = len(table)
    words = pa.array([f"w{i % 50}" for i in range(n)])
    # Another dictionary in every chunk, which an IPC file could not hold.
    chunks = [words.slice(i, 700).dictionary_encode() for i in range(0, n, 700)]
    extra = {
        "word": pa.chunked_array(chunks),
        "view": words.cast(pa.string_view()),
        "views": words.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string_view())),
        "time": pa.array(range(n), pa.timestamp("us", "UTC")),
        "day": pa.array(range(n), pa.date32()),
        "list": pa.array([[i] for i in range(n)]),
        "money": pa.array(range(n)).cast(pa.decimal128(25, 2)),
        "nothing": pa.nulls(n),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([9, n], pa.int32()), ["p", "q"]),
    }
    wide = pa.table({**{name: table[name] for name in table.column_names}, **extra})
    for suffix in (".parquet", ".arrow"):
        out = tmp_path / f"out{suffix}"
        fb.predict_to(model, wide, out, keys=list(extra))
        read = READ[suffix](out)
        assert read.column_names == [*extra, "prediction"]
        for name in extra:
            assert read[name].to_pylist() == wide[name].to_pylist()
    wide = wide.append_column("span", pa.array([(1, 2, 3)] * n, pa.month_day_nano_interval()))
    with pytest.raises(fb.SchemaError, match=r"'list'.*CSV does not hold"):
        fb.predict_to(model, wide, tmp_path / "out.csv", keys=["word", "list"])
    with pytest.raises(fb.SchemaError, match=r"month_day_nano_interval.*choose other columns"):
        fb.predict_to(model, wide, tmp_path / "out.parquet", keys=["span"], force=True)
    fb.predict_to(model, wide, tmp_path / "out.csv", keys=["word", "time", "day", "money"])
    assert pc.read_csv(tmp_path / "out.csv")["word"].to_pylist() == words.to_pylist()


def test_keys__the_target_is_copied_only_if_asked(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    fb.predict_to(model, table, tmp_path / "o.parquet", keys=["y", "id"], force=True)
    read = pq.read_table(tmp_path / "o.parquet")
    assert read.column_names == ["y", "id", "prediction"]
    assert read["y"].equals(table["y"])
    fb.predict_to(model, table.drop_columns("id"), tmp_path / "o.parquet", force=True)
    assert pq.read_table(tmp_path / "o.parquet").column_names == ["prediction"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "table", "reader"])
def test_keys__are_patterns_and_indices_too(tmp_path: Path, form: str) -> None:
    rows = pa.table({"id_a": [1, 2], "x": [*"uv"], "id_b": [3, 4], "y": [*"ab"]})
    path = tmp_path / f"t.{form}"
    pc.write_csv(rows, path) if form == "csv" else path.write_text(
        "\n".join(map(json.dumps, rows.to_pylist()))
    )
    model = fb.NaiveBayes(columns="x").fit(rows, "y")
    for keys, copied in (
        ("id_*", ["id_a", "id_b"]),
        (["y", "id_*"], ["y", "id_a", "id_b"]),
        (["id_b", "*"], ["id_b", "id_a", "x", "y"]),
        ([-1, 0], ["y", "id_a"]),
    ):
        source = {"table": rows, "reader": rows.to_reader()}.get(form, path)
        done = fb.predict_to(model, source, tmp_path / "o.csv", keys=keys, force=True)
        assert [*done.columns] == [*copied, "prediction"]
    for wrong, says in (
        (["a_*"], r"keys: no column matches 'a_\*'"),
        (["id"], "did you mean 'id_"),
    ):
        with pytest.raises(fb.SchemaError, match=says):
            fb.predict_to(model, rows, tmp_path / "o.csv", keys=wrong, force=True)


def test_keys__what_is_not_copied_is_logged(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "fastbayes"):
        fb.predict_to(model, table, tmp_path / "o.parquet", keys=["level"])
    assert caplog.messages == ["pyarrow.Table: the model does not use ['id']"]


def test_keys__unknown_one(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    with pytest.raises(fb.SchemaError, match="did you mean 'id'"):
        fb.predict_to(model, table, tmp_path / "o.parquet", keys=["idd"])


def test_keys__one_by_its_name_alone(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    fb.predict_to(model, table, tmp_path / "o.parquet", keys="id")
    assert pq.read_schema(tmp_path / "o.parquet").names == ["id", "prediction"]


@pytest.mark.parametrize("options", [{}, {"parts": True}, {"format": "csv"}, {"format": "delta"}])
def test_an_empty_path__is_not_the_working_directory(
    table: pa.Table,
    model: fb.NaiveBayes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
) -> None:
    if "delta" in options.values():
        needs("deltalake")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fb.DataError, match="the path to write to is empty"):
        fb.predict_to(model, table, "", force=True, **options)
    with pytest.raises(fb.DataError, match="the path to write to is empty"):
        model.save("", force=True)
    assert [*tmp_path.iterdir()] == []


def test_keys__one_twice(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    with pytest.raises(fb.SchemaError, match=r"keys=\['id', 'id'\] names a column twice"):
        fb.predict_to(model, table, tmp_path / "o.parquet", keys=["id", "id"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["prediction", "proba_lo", "because", "expected_loss"])
def test_keys__that_collide_with_an_answer(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, name: str
) -> None:
    clash = table.rename_columns({"id": name})
    with pytest.raises(fb.SchemaError, match=f"two columns '{name}'"):
        fb.predict_to(model, clash, tmp_path / "o.parquet", proba=True, explain=True, reject=0.5)
    assert list(tmp_path.iterdir()) == []


def test_keys__a_type_that_changes_on_the_way(
    model: fb.NaiveBayes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 200)
    monkeypatch.setattr(text, "LEAST_INFER_BYTES", 200)
    rows = [f"{i if i < 90 else i + 0.5},a,true,1.5,3\n" for i in range(100)]
    data = tmp_path / "d.csv"
    data.write_text("id,text,flag,number,level\n" + "".join(rows))
    with pytest.raises(fb.DataError, match="'id' is int64 in the schema and double in some rows"):
        fb.predict_to(model, data, tmp_path / "o.parquet")
    assert list(tmp_path.iterdir()) == [data]


# -- decisions and explanations ----------------------------------------------------------------


def test_decisions__among_the_classes(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    loss = np.array([[0, 4, 1], [1, 0, 1], [2, 3, 0]])
    fb.predict_to(model, table, tmp_path / "o.parquet", loss=loss, reject=0.4, keys=["id"])
    decided = model.decide(features(table), loss=loss, reject=0.4)
    read = pq.read_table(tmp_path / "o.parquet")
    assert read["prediction"].to_pylist() == decided.decision.tolist()
    assert 0 < read["prediction"].null_count < len(table)
    assert np.array_equal(read["expected_loss"].to_numpy(), decided.expected_loss)


def test_decisions__have_one_type_whatever_the_first_rows_decide(tmp_path: Path) -> None:
    x = ["a"] * 70_000 + ["b"] * 70_000  # two blocks, each with a decision of its own
    table = pa.table({"x": x, "y": [1] * 70_000 + [2] * 70_000})
    model = fb.NaiveBayes().fit(table, "y")
    loss = {1: {1: 0, 2: 9}, 2: {1: 9, 2: 9}, "ask": {1: 1, 2: 1}}
    fb.predict_to(model, table, tmp_path / "o.arrow", loss=loss)
    read = READ[".arrow"](tmp_path / "o.arrow")["prediction"]
    assert read.to_pylist() == ["1"] * 70_000 + ["ask"] * 70_000
    fb.predict_to(model, table, tmp_path / "r.arrow", reject=0.0)
    read = READ[".arrow"](tmp_path / "r.arrow")["prediction"]
    assert read.type == pa.int64()
    assert read.to_pylist() == model.decide(table.select(["x"]), reject=0.0).decision.tolist()


def test_explain__names_what_parts_the_first_class_from_the_second(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    fb.predict_to(model, table, tmp_path / "o.parquet", explain=True)
    read = pq.read_table(tmp_path / "o.parquet")
    explained = model.explain(features(table))
    order = np.argsort(-model.log_joint(features(table)), axis=1)
    rows = np.arange(len(table))
    contributions = explained.contributions
    margins = contributions[rows, :, order[:, 0]] - contributions[rows, :, order[:, 1]]
    names = np.array(explained.features)[margins.argmax(axis=1)]
    assert read["because"].to_pylist() == names.tolist()
    np.testing.assert_allclose(read["because_nats"].to_numpy(), margins.max(axis=1))


def test_explain__what_is_impossible(tmp_path: Path) -> None:
    table = pa.table({"x": ["a", "a", "b"], "y": [0, 0, 1]})
    model = fb.NaiveBayes(alpha=0).fit(table, "y")
    fb.predict_to(model, {"x": ["a", None]}, tmp_path / "o.parquet", explain=True)
    read = pq.read_table(tmp_path / "o.parquet")
    assert read["because_nats"].to_pylist() == [np.inf, 0.0]


def test_one_class(tmp_path: Path) -> None:
    table = pa.table({"x": ["a", "b"], "y": ["only", "only"]})
    with pytest.warns(fb.FastBayesWarning, match="only one class"):
        model = fb.NaiveBayes().fit(table, "y")
    fb.predict_to(model, table, tmp_path / "o.parquet", proba=True, explain=True)
    read = pq.read_table(tmp_path / "o.parquet")
    assert read["prediction"].to_pylist() == ["only", "only"]
    assert read["proba_only"].to_pylist() == [1.0, 1.0]


# -- what is reported --------------------------------------------------------------------------


def test_written__counts_unseen_values_and_rows_left_to_the_prior(tmp_path: Path) -> None:
    table = pa.table({"x": ["a", "b"] * 50, "z": ["u", "u"] * 50, "y": [0, 1] * 50})
    model = fb.NaiveBayes(alpha=0).fit(table, "y")
    new = pa.table({"x": ["a", "q", "q", None], "z": ["u", "u", "v", "u"]})
    done = fb.predict_to(model, new, tmp_path / "o.parquet")
    assert done.unseen == {"x": 2, "z": 1}
    assert done.prior_rows == 0
    impossible = fb.NaiveBayes(alpha=0).fit(
        {"x": ["a", "a", "b", "b"], "z": ["u", "u", "v", "v"], "y": [0, 0, 1, 1]}, "y"
    )
    done = fb.predict_to(impossible, {"x": ["a", "b"], "z": ["v", "v"]}, tmp_path / "p.parquet")
    assert done.prior_rows == 1
    assert done.unseen == {}


def test_progress__is_told_of_every_row(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    steps: list[int] = []
    fb.predict_to(model, table, tmp_path / "o.csv", progress=steps.append)
    assert sum(steps) == len(table)


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", READ)
def test_stopped__leaves_nothing(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, suffix: str
) -> None:
    def stop(_: int) -> None:
        assert any(path.name.startswith(".fastbayes") for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    old = tmp_path / f"o{suffix}"
    old.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        fb.predict_to(model, table, old, progress=stop, force=True)
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_text() == "old"


class FullDisk(io.RawIOBase):
    """An open file below which there is no space."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("form", ["csv", "jsonl", "ipc", "parquet"])
def test_open_file__below_which_the_disk_is_full(
    table: pa.Table, model: fb.NaiveBayes, form: str
) -> None:
    with pytest.raises(fb.DataError, match=r"the output: no space .* incomplete: free some space"):
        fb.predict_to(model, table, FullDisk(), format=form)


def test_format__told_by_name_or_asked_for(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    assert format_of("x/y.PARQUET") == "parquet"
    assert format_of("y.txt", "csv") == "csv"
    fb.predict_to(model, table, tmp_path / "o.txt", format="csv", keys=["id"])
    assert pc.read_csv(tmp_path / "o.txt").num_rows == len(table)
    with pytest.raises(fb.SchemaError, match=r"end it in \.parquet"):
        fb.predict_to(model, table, tmp_path / "p.txt")
    with pytest.raises(fb.SchemaError, match="format='xlsx'"):
        fb.predict_to(model, table, tmp_path / "p.txt", format="xlsx")
    with pytest.raises(fb.DataError, match="exists"):
        fb.predict_to(model, table, tmp_path / "o.txt", format="csv")


def test_models__that_cannot(table: pa.Table, tmp_path: Path) -> None:
    out = tmp_path / "o.parquet"
    bare = fb.GaussianNB().fit(np.array([[0.0], [1.0], [0.1], [1.1]]), [0, 1, 0, 1])
    with pytest.raises(fb.SchemaError, match="GaussianNB reads bare arrays"):
        fb.predict_to(bare, table, out)
    with pytest.raises(ValueError, match="not fitted"):
        fb.predict_to(fb.NaiveBayes(), table, out)
    with pytest.raises(fb.SchemaError, match="not str"):
        fb.predict_to("model.fb", table, out)


def test_rows__that_cannot(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    infinite = table.set_column(3, "number", pa.array([1.0, 2.0, np.inf] * 1000))
    with pytest.raises(fb.DataError, match="'number', row 2"):
        fb.predict_to(model, infinite, tmp_path / "o.parquet")
    with pytest.raises(fb.SchemaError, match="'flag'"):
        fb.predict_to(model, table.drop_columns("flag"), tmp_path / "o.parquet")
    assert list(tmp_path.iterdir()) == []


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["o.parquet", "parts"])
def test_memory__is_that_of_a_few_blocks(model: fb.NaiveBayes, tmp_path: Path, name: str) -> None:
    rows, blocks = 65_536, 60
    block = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([f"a rather long identifier {i}" for i in range(rows)]),
            "text": pa.array(["a", "b"] * (rows // 2)),
            "flag": pa.array([True, False] * (rows // 2)),
            "number": pa.array(np.arange(rows) / rows),
            "level": pa.array(np.arange(rows) % 9),
        }
    )

    def stream() -> Iterator[pa.RecordBatch]:
        for _ in range(blocks):
            # Copied, so that every block takes memory of its own.
            yield pa.ipc.read_record_batch(block.serialize(), block.schema)

    base, peak = pa.total_allocated_bytes(), 0

    def watch(_: int) -> None:
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - base)

    fb.predict_to(model, stream(), tmp_path / name, proba=True, threads=2, progress=watch)
    assert pq.read_table(tmp_path / name, columns=["prediction"]).num_rows == rows * blocks
    assert 0 < peak < 0.6 * blocks * block.nbytes
