"""`predict_to` with parts: together they are the one file, and they appear all at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from test_predict_to import (
    READ,
    SOURCES,
    features,
    proba,
    table_of,
    write_parquet,
)

import fastbayes as fb
from fastbayes.core import files
from fastbayes.core.files import atomic_directory
from fastbayes.data import text
from fastbayes.scan.outputs import prediction_blocks
from fastbayes.scan.outputs.sink import Written, check_output

FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".csv": "csv", ".jsonl": "jsonl"}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return table_of(3000)


@pytest.fixture(scope="module")
def model(table: pa.Table) -> fb.NaiveBayes:
    return fb.NaiveBayes(categorical=["level"]).fit(table.drop_columns("id"), "y")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a few hundred rows into segments, and these into parts."""
    monkeypatch.setattr(prediction_blocks, "BLOCK_ROWS", 128)
    monkeypatch.setattr(prediction_blocks, "GROUP_ROWS", 512)
    monkeypatch.setattr(text, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(text, "LEAST_INFER_BYTES", 5000)


def read_parts(folder: Path, suffix: str) -> tuple[list[int], pa.Table]:
    """Return the rows of each part, and all of them in the order of the names."""
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"part-{i:05d}{suffix}" for i in range(len(files))]
    tables = [READ[suffix](file) for file in files]
    return [len(read) for read in tables], pa.concat_tables(tables)


# -- what is written ---------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("suffix", READ)
def test_parts__are_the_one_file_cut(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, kind: str, suffix: str
) -> None:
    def source() -> Any:
        return SOURCES[kind](table, tmp_path / "d.parquet")

    one, out = tmp_path / f"one{suffix}", tmp_path / "out"
    options: dict[str, Any] = {"proba": True, "explain": True}
    done = fb.predict_to(model, source(), one, **options)
    assert fb.predict_to(model, source(), out, format=FORMATS[suffix], **options) == done
    rows, read = read_parts(out, suffix)
    assert done.rows == len(read) == 3000
    assert len(rows) > 3
    assert read.equals(READ[suffix](one))
    assert read["prediction"].to_pylist() == model.predict(features(table)).tolist()
    # So small a block makes a stream seem long: the compiled kernels answer, in other last bits.
    np.testing.assert_allclose(proba(read), model.predict_proba(features(table)), rtol=1e-12)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", READ)
def test_parts__threads_change_nothing(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, suffix: str
) -> None:
    data = write_parquet(table, tmp_path / "d.parquet")
    written = []
    for threads in (1, 2, 8):
        out = tmp_path / str(threads)
        fb.predict_to(model, data, out, format=FORMATS[suffix], proba=True, threads=threads)
        written.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert len(written[0]) > 3
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("suffix", READ)
def test_parts__no_rows(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "out"
    done = fb.predict_to(model, table.slice(0, 0), out, format=FORMATS[suffix], proba=True)
    assert done == Written(0, done.columns, {}, 0)
    if suffix == ".jsonl":
        assert (out / "part-00000.jsonl").read_bytes() == b""
        return
    rows, read = read_parts(out, suffix)
    assert rows == [0]
    assert read.column_names == [*done.columns]


def test_parts__are_few_however_many_rows(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_blocks, "BLOCK_ROWS", 32)
    monkeypatch.setattr(prediction_blocks, "GROUP_ROWS", 64)
    monkeypatch.setattr(prediction_blocks, "MOST_PARTS", 5)
    fb.predict_to(model, table, tmp_path / "out")
    rows, _ = read_parts(tmp_path / "out", ".parquet")
    assert rows == [640, 640, 640, 640, 440]  # 600 and the rest of a segment
    fb.predict_to(model, table.to_reader(), tmp_path / "stream")  # which does not say how many
    assert {*read_parts(tmp_path / "stream", ".parquet")[0][:-1]} == {64}


@pytest.mark.usefixtures("small")
def test_parts__report_and_progress(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    new = table.set_column(1, "text", pa.array(["new", "a"] * 1500))
    steps: list[int] = []
    done = fb.predict_to(model, new, tmp_path / "out", progress=steps.append)
    assert done.unseen == {"text": 1500}
    assert sum(steps) == done.rows == 3000
    assert len(steps) == len([*(tmp_path / "out").iterdir()])


@pytest.mark.usefixtures("small")
def test_parts__are_a_source(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    fb.predict_to(model, table, tmp_path / "out", keys=["y"], proba=True)
    again = fb.NaiveBayes().fit(tmp_path / "out", "y")
    assert again.statistics_.n_rows == 3000


# -- the probabilities -------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", READ)
def test_precision__fast_is_the_nearest_float32(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"o{suffix}"
    fb.predict_to(model, table, out, proba=True, precision="fast")
    read = READ[suffix](out)
    if suffix not in (".csv", ".jsonl"):
        assert {read.schema.field(f"proba_{c}").type for c in ("hi", "lo", "mid")} == {pa.float32()}
    expected = model.predict_proba(features(table)).astype(np.float32)
    assert np.array_equal(proba(read).astype(np.float32), expected)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_proba__of_the_prediction_alone(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, precision: str
) -> None:
    fb.predict_to(
        model, table, tmp_path / "o.parquet", proba="predicted", precision=precision, keys=[]
    )
    read = pq.read_table(tmp_path / "o.parquet")
    assert read.column_names == ["prediction", "proba"]
    kind = np.float64 if precision == "exact" else np.float32
    expected = model.predict_proba(features(table)).max(axis=1).astype(kind)
    assert read["proba"].type == pa.from_numpy_dtype(kind)
    assert np.array_equal(read["proba"].to_numpy(), expected)


def test_proba__of_the_decision(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    loss = np.array([[0, 4, 1], [1, 0, 1], [2, 3, 0]])
    fb.predict_to(model, table, tmp_path / "o.parquet", loss=loss, reject=0.4, proba="predicted")
    decided = model.decide(features(table), loss=loss, reject=0.4)
    posterior = model.predict_proba(features(table))
    expected = [
        None if i == -1 else p[i] for i, p in zip(decided.index, posterior.tolist(), strict=True)
    ]
    read = pq.read_table(tmp_path / "o.parquet")
    assert read["proba"].to_pylist() == expected
    assert 0 < read["proba"].null_count < len(table)
    others = {"treat": {"hi": 0, "lo": 1, "mid": 1}, "wait": {"hi": 1, "lo": 0, "mid": 1}}
    with pytest.raises(fb.SchemaError, match="are not the classes"):
        fb.predict_to(model, table, tmp_path / "p.parquet", loss=others, proba="predicted")


def test_options__unknown(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="proba='winner': use True, False or 'predicted'"):
        fb.predict_to(model, table, tmp_path / "o.parquet", proba="winner")
    with pytest.raises(ValueError, match="precision='half': use 'exact' or 'fast'"):
        fb.predict_to(model, table, tmp_path / "o.parquet", precision="half")
    assert list(tmp_path.iterdir()) == []


def test_parquet__text_has_a_dictionary_and_probabilities_have_none(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    nested = table.append_column("nested", pa.array([[{"deep": 1}]] * len(table)))
    out = tmp_path / "o.parquet"
    fb.predict_to(model, nested, out, keys=["y", "nested"], proba=True)
    assert pq.read_table(out)["nested"].to_pylist() == nested["nested"].to_pylist()
    group = pq.read_metadata(out).row_group(0)
    coded = {
        group.column(j).path_in_schema: group.column(j).has_dictionary_page
        for j in range(group.num_columns)
    }
    plain = {f"proba_{c}" for c in ("hi", "lo", "mid")}
    assert {name for name, has in coded.items() if not has} == plain
    assert len(coded) == 6


# -- labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [["a", "b"], [3, -4], [True, False], [1.5, 2.5], [f"class {i:03d}" for i in range(300)]],
    ids=["text", "int", "bool", "float", "many"],
)
@pytest.mark.parametrize("suffix", READ)
def test_labels__of_any_type(tmp_path: Path, values: list[Any], suffix: str) -> None:
    n = len(values)
    table = pa.table({"x": [f"x{i}" for i in range(n)] * 3, "y": values * 3})
    model = fb.NaiveBayes(alpha=0.1).fit(table, "y")
    fb.predict_to(model, table, tmp_path / f"o{suffix}")
    read = READ[suffix](tmp_path / f"o{suffix}")["prediction"]
    assert read.to_pylist() == values * 3
    if suffix not in (".csv", ".jsonl"):
        text = isinstance(values[0], str)
        assert read.type == (table["y"].type if not text else read.type)
        assert pa.types.is_dictionary(read.type) == text


# -- which target ------------------------------------------------------------------------------


def test_target__told_by_the_name(tmp_path: Path) -> None:
    assert check_output(tmp_path / "x") == ("parquet", True)
    assert check_output(tmp_path / "x", "csv") == ("csv", True)
    assert check_output(tmp_path / "x.csv") == ("csv", False)
    assert check_output(tmp_path / "x.arrow", parts=True) == ("ipc", True)
    assert check_output(tmp_path / "x", "ipc", parts=False) == ("ipc", False)
    with pytest.raises(fb.SchemaError, match="the name says no format"):
        check_output(tmp_path / "x", parts=False)
    with pytest.raises(fb.SchemaError, match="the name says no format"):
        check_output(tmp_path / "x.v2", parts=True)


def test_target__that_cannot_be(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "file"
    file.write_text("mine")
    out.mkdir()
    with pytest.raises(fb.DataError, match="is not a directory"):
        fb.predict_to(model, table, file)
    with pytest.raises(fb.DataError, match="there is no directory"):
        fb.predict_to(model, table, tmp_path / "none" / "out")
    fb.predict_to(model, table, out)  # an empty one is as good as none
    assert [f.name for f in out.iterdir()] == ["part-00000.parquet"]
    with pytest.raises(fb.DataError, match=r"is not empty.*force=True"):
        fb.predict_to(model, table, out)
    fb.predict_to(model, table, out, format="csv", force=True)
    assert [f.name for f in out.iterdir()] == ["part-00000.csv"]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(fb.DataError, match=r"holds 'notes.txt', which is no part"):
        fb.predict_to(model, table, out, force=True)
    assert (out / "notes.txt").read_text() == "mine"
    assert sorted(f.name for f in tmp_path.iterdir()) == ["file", "out"]


def test_target__a_link_to_a_directory(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far")
    fb.predict_to(model, table, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert [f.name for f in (tmp_path / "far").iterdir()] == ["part-00000.parquet"]


# -- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("there", [False, True])
def test_stopped__leaves_nothing(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, threads: int, *, there: bool
) -> None:
    out = tmp_path / "out"
    if there:
        fb.predict_to(model, table, out, keys=["y"])
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    def stop(_: int) -> None:
        assert any(path.name.startswith(".fastbayes") for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fb.predict_to(model, table, out, progress=stop, force=True, threads=threads)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert [*tmp_path.iterdir()] == [out] * there


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", [1, 4])
def test_error__in_a_late_row_leaves_nothing(
    table: pa.Table, model: fb.NaiveBayes, tmp_path: Path, threads: int
) -> None:
    number = table["number"].to_numpy(zero_copy_only=False).copy()
    number[2900] = np.inf
    broken = table.set_column(3, "number", pa.array(number))
    with pytest.raises(fb.DataError, match="'number', row 2900"):
        fb.predict_to(model, broken, tmp_path / "out", threads=threads)
    assert list(tmp_path.iterdir()) == []


def test_directory__that_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part-00000.csv").write_text("old")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if target == out and (self / "part-00000.parquet").exists():
            raise OSError(5, "broken")
        return rename(self, target)

    monkeypatch.setattr(files.ctypes, "CDLL", lambda _: object())  # has no renameat2
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="broken"), atomic_directory(out, force=True) as folder:
        (folder / "part-00000.parquet").write_text("new")
    assert [f.name for f in tmp_path.iterdir()] == ["out"]
    assert (out / "part-00000.csv").read_text() == "old"


KILLED = """
import sys
import numpy as np, pyarrow as pa
import fastbayes as fb
from fastbayes.scan.outputs import prediction_blocks
prediction_blocks.BLOCK_ROWS, prediction_blocks.GROUP_ROWS = 128, 512
model = fb.load(sys.argv[1])

def endless():
    while True:
        yield pa.record_batch({"x": ["a", "b"] * 256})

fb.predict_to(model, endless(), sys.argv[2], proba=True, threads=2, parts=sys.argv[3] == "parts")
"""


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize("with_what", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("how", ["parts", "file"])
def test_killed__nothing_looks_finished(tmp_path: Path, with_what: str, how: str) -> None:
    fb.NaiveBayes().fit({"x": ["a", "b"] * 9, "y": ["u", "v"] * 9}, "y").save(tmp_path / "m.fb")
    name = tmp_path / ("out" if how == "parts" else "out.csv")
    env = {**os.environ, "FASTBAYES_KERNELS": "never"}
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "m.fb"), str(name), how]
    with subprocess.Popen(arguments, env=env, stderr=subprocess.PIPE) as process:

        def begun() -> bool:
            hidden = [path for path in tmp_path.iterdir() if path.name.startswith(".fastbayes")]
            return any(path.is_file() or len([*path.rglob("*")]) > 4 for path in hidden)

        try:
            until = time.monotonic() + 60
            while not begun() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            assert begun()
        finally:
            process.send_signal(getattr(signal, with_what))
            process.communicate()
    left = [path.name for path in tmp_path.iterdir() if path.name != "m.fb"]
    if with_what == "SIGINT":
        assert left == []
    assert all(other.startswith(".fastbayes") for other in left)


# -- arrays ------------------------------------------------------------------------------------


def stripes(table: pa.Table, path: Path) -> Path:
    orc.write_table(table, path, batch_size=64, stripe_size=1024)
    return path


ARRAYS: dict[str, Callable[[pa.Table, Path], Any]] = {
    **SOURCES,
    "ORC": lambda table, path: stripes(table, path.with_suffix(".orc")),
    "batches": lambda table, _: table.to_batches(max_chunksize=700),
}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("threads", [1, 4])
def test_arrays__are_filled_from_every_source(tmp_path: Path, kind: str, threads: int) -> None:
    table = table_of(200_000 if kind == "stream" else 5000).drop_columns(["id", "y"])
    y = np.arange(len(table)) % 3
    model = fb.NaiveBayes(categorical=["level"], threads=threads).fit(table, y)
    expected = model.predict_proba(table)
    assert len({*map(bytes, expected)}) > 1000

    def source() -> Any:
        return ARRAYS[kind](table, tmp_path / "d.parquet")

    assert np.array_equal(model.predict_proba(source()), expected)
    assert np.array_equal(model.predict(source()), expected.argmax(axis=1))


def test_arrays__of_labels_of_any_type(table: pa.Table) -> None:
    for labels in (["b", "a"], [2.0, 1.0], [True, False], [7, -8]):
        y = np.array(labels)[np.arange(len(table)) % 2]
        model = fb.NaiveBayes().fit(features(table), y)
        found = model.predict(iter(features(table).to_batches(max_chunksize=500)))
        assert found.dtype == model.classes_.dtype
        best = model.log_joint(features(table)).argmax(axis=1)
        assert np.array_equal(found, model.classes_[best])


def test_csv__is_what_arrow_writes(table: pa.Table, model: fb.NaiveBayes, tmp_path: Path) -> None:
    fb.predict_to(model, table, tmp_path / "o.csv", keys=["id", "text"], proba=True)
    fb.predict_to(model, table, tmp_path / "o.arrow", keys=["id", "text"], proba=True)
    whole = READ[".arrow"](tmp_path / "o.arrow")
    at = whole.column_names.index("prediction")
    whole = whole.set_column(at, "prediction", whole["prediction"].cast(pa.string()))
    pc.write_csv(whole, tmp_path / "arrow.csv")
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "arrow.csv").read_bytes()


def test_arrays__rows_of_the_prior_are_counted_in_every_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = {"x": ["a", "a", "b", "b"], "z": ["u", "u", "v", "v"], "y": [0, 0, 1, 1]}
    model = fb.NaiveBayes(alpha=0, threads=1).fit(rows, "y")
    n = 600_000  # several blocks in one call of the kernels
    x = pa.DictionaryArray.from_arrays(pa.array(np.arange(n) >= n // 2).cast("int8"), ["a", "b"])
    z = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), ["u", "v"])
    with caplog.at_level("INFO", "fastbayes"):
        model.predict(pa.table({"x": x, "z": z}))
    assert caplog.messages == ["300000 rows are impossible under every class"]
