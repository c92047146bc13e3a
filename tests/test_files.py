"""Files give back what was written, refuse what is damaged, and appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fastbayes as fb
from fastbayes.core import files
from fastbayes.core.errors import DataError, FileFormatError, MemoryLimitError
from fastbayes.generate import generate

HEADER = {"class": "NaiveBayes", "alpha": 0.1, "names": ["a", "ü", "\ud800"], "none": None}
ARRAYS = {
    "counts": np.arange(12).reshape(3, 4) * 2**58,
    "mean": np.array([[np.nan, -0.0], [np.inf, 5e-324]]),
    "domain": pa.array(["x", None, ""]),
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and a.tobytes() == b.tobytes()
        )
    return a.type == b.type and a.to_pylist() == b.to_pylist()


def assert_same(arrays: dict[str, Any], others: dict[str, Any]) -> None:
    assert list(arrays) == list(others)
    assert [name for name in arrays if not same(arrays[name], others[name])] == []


@pytest.fixture(params=["plain", "compressed"])
def blob(request: pytest.FixtureRequest) -> bytes:
    return written(compressed=request.param == "compressed")


def written(*, compressed: bool) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "COMPRESSED_BYTES", 0 if compressed else 1 << 30)
        return files.to_bytes(HEADER, ARRAYS)


def forged(path: Path, blob: bytes, **changes: bytes | None) -> Path:
    """Write a file with changed parts and a right checksum, as an enemy would."""
    reader = pa.ipc.open_file(blob)
    schema, batch = reader.schema, reader.get_batch(0)
    schema = changes.get("schema") or schema
    batch = changes.get("batch") or batch
    options = changes.get("options") or pa.ipc.IpcWriteOptions(compression="zstd")
    place = b"0123456789abcdef" * 4
    schema = schema.with_metadata({**schema.metadata, b"sha256": place})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch(batch.columns, schema=schema))
    return sealed(path, sink.getvalue().to_pybytes(), place)


def sealed(path: Path, blob: bytes, place: bytes | None = None) -> Path:
    place = place or pa.ipc.open_file(blob).schema.metadata[b"sha256"]
    path.write_bytes(blob.replace(place, files._digest(blob, place)))
    return path


# --- what is written comes back ---------------------------------------------------------------


@given(
    arrays=st.dictionaries(
        st.text(st.characters(codec="utf-8")),
        hnp.arrays(st.sampled_from(list(files.DTYPES.values())), hnp.array_shapes(min_side=0)),
        max_size=4,
    )
)
def test_round_trip__any_numpy(tmp_path_factory: Any, arrays: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("files") / "a.fb"
    files.write(path, {}, arrays)
    header, back = files.read(path)
    assert header == {}
    assert_same(arrays, back)
    assert all(array.flags.writeable and array.flags.c_contiguous for array in back.values())


@pytest.mark.parametrize(
    "array",
    [
        np.array(3),
        np.zeros((0, 5), np.uint8),
        np.arange(24.0).reshape(2, 3, 4)[:, ::-1, 1:3],
        np.arange(24).reshape(4, 6).T,
        np.array([1, 2**62 + 1], ">i8"),
        np.array([True, False, True]),
    ],
    ids=["scalar", "empty", "strided", "transposed", "big-endian", "bool"],
)
def test_round_trip__layout(tmp_path: Path, array: Any) -> None:
    files.write(tmp_path / "a.fb", {}, {"a": array})
    back: Any = files.read(tmp_path / "a.fb")[1]["a"]
    assert back.dtype == array.dtype.newbyteorder("=")
    assert back.shape == array.shape
    assert (back == array).all()


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "", "ü"]),
        pa.array(["a", "b", "c"])[1:2],
        pa.chunked_array([["a"], ["b", "c"]]),
        pa.chunked_array([], pa.large_string()),
        pa.array([True, None, False]),
        pa.array([2**53 + 1, None, -1], pa.int64()),
        pa.array([0.1, float("nan"), None], pa.float32()),
        pa.nulls(0),
        pa.nulls(3),
    ],
    ids=str,
)
def test_round_trip__arrow(tmp_path: Path, array: Any) -> None:
    files.write(tmp_path / "a.fb", {}, {"a": array})
    back = files.read(tmp_path / "a.fb")[1]["a"]
    assert back.type == array.type
    assert repr(back.to_pylist()) == repr(array.to_pylist())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(header=st.dictionaries(st.text(), JSON))
def test_round_trip__header(tmp_path_factory: Any, header: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("files") / "a.fb"
    files.write(path, header, {})
    assert repr(files.read(path)[0]) == repr(header)  # repr: NaN and -0.0 too


def test_same_content_same_bytes() -> None:
    assert files.to_bytes(HEADER, ARRAYS) == written(compressed=False)


def test_any_arrow_reader_opens_it(tmp_path: Path, blob: bytes) -> None:
    table = pa.ipc.open_file(blob).read_all()
    table.validate(full=True)
    assert table["counts"][0].as_py() == ARRAYS["counts"].ravel().tolist()


@pytest.mark.parametrize(
    ("header", "arrays", "named"),
    [
        ({"a": {"b": (1, 2)}}, {}, r"header\['a'\]\['b'\] is a tuple"),
        ({"a": [np.int64(1)]}, {}, r"header\['a'\]\[0\] is a int64"),
        ({"a": {1: 2}}, {}, r"header\['a'\] has the key 1"),
        ({}, {"x": np.array(["a"])}, "array 'x'"),
        ({}, {"x": np.array([None])}, "array 'x'"),
        ({}, {"x": np.zeros(1, complex)}, "array 'x'"),
        ({}, {"x": pa.array([[1]])}, "array 'x'"),
        ({}, {"x": pa.array(["a"]).dictionary_encode()}, "array 'x'"),
    ],
)
def test_write__refuses_what_would_not_come_back(
    tmp_path: Path, header: Any, arrays: Any, named: str
) -> None:
    with pytest.raises(TypeError, match=named):
        files.write(tmp_path / "a.fb", header, arrays)
    assert list(tmp_path.iterdir()) == []


# --- what is damaged is refused ---------------------------------------------------------------


def damage(blob: bytes) -> Any:
    """Yield the file with each byte changed or left out, of every length, with several changes."""
    for at in range(len(blob)):
        for flip in (0x01, 0x80, 0xFF):
            yield blob[:at] + bytes([blob[at] ^ flip]) + blob[at + 1 :]
        yield blob[:at]
        yield blob[:at] + blob[at + 1 :]
    yield blob + b"\0"
    yield blob + blob
    rng = np.random.default_rng(0)
    for _ in range(4000):
        changed = bytearray(blob)
        for _ in range(rng.integers(1, 5)):  # most of them near the ends
            at = min(int(len(changed) * rng.beta(0.3, 0.3)), len(changed) - 1)
            kind, size = rng.choice(["flip", "insert", "delete"]), int(rng.integers(1, 9))
            if kind == "flip":
                changed[at] ^= 1 << (size - 1)
            else:
                changed[at : at + size * (kind == "delete")] = rng.bytes(size * (kind == "insert"))
        yield bytes(changed)


@pytest.mark.parametrize("checksum", ["checked", "right"])
def test_read__whatever_is_damaged(
    blob: bytes, monkeypatch: pytest.MonkeyPatch, checksum: str
) -> None:
    """The checksum is compared before Arrow is asked; behind a right one comes only an error."""
    if checksum == "right":
        monkeypatch.setattr(files, "_digest", lambda blob, place: place)
    else:
        monkeypatch.setattr(pa.ipc, "MessageReader", None)
    for broken in damage(blob):
        monkeypatch.setattr(files, "_contents", lambda path, broken=broken: broken)
        try:
            files.read("m.fb")
        except (FileFormatError, MemoryLimitError) as error:
            assert str(error).startswith("m.fb: ")
            assert "\n" not in str(error)
        else:
            assert checksum == "right"


@given(st.binary(max_size=200))
def test_read__any_bytes(tmp_path_factory: Any, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("files") / "junk.fb"
    for content in (junk, files.MAGIC + b"\0\0" + junk + files.MAGIC):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"junk\.fb"):
            files.read(path)


def content(blob: bytes, **changes: Any) -> pa.Schema:
    """Return the file's schema with changes in its JSON."""
    schema = pa.ipc.open_file(blob).schema
    changed = json.loads(schema.metadata[b"fastbayes"]) | changes
    return schema.with_metadata({**schema.metadata, b"fastbayes": json.dumps(changed)})


def field(blob: bytes, name: str, **metadata: str) -> pa.Schema:
    """Return the file's schema with changed metadata of one array."""
    schema = pa.ipc.open_file(blob).schema
    changes = {key.encode(): text.encode() for key, text in metadata.items()}
    fields = [f.with_metadata({**f.metadata, **changes}) if f.name == name else f for f in schema]
    return pa.schema(fields, schema.metadata)


def test_forged__right_file_passes(tmp_path: Path, blob: bytes) -> None:
    assert_same(ARRAYS, files.read(forged(tmp_path / "a.fb", blob))[1])


def test_read__newer_version_names_both_and_the_remedy(tmp_path: Path, blob: bytes) -> None:
    path = forged(tmp_path / "a.fb", blob, schema=content(blob, version=7, written_by="me 9"))
    with pytest.raises(FileFormatError, match=r"a\.fb: file format 7, .* up to 2; upgrade .*me 9"):
        files.read(path)


@pytest.mark.parametrize("changes", [{"version": "1"}, {"version": True}, {"version": 0},
                                     {"format": "x"}, {"header": []}])  # fmt: skip
def test_read__wrong_content(tmp_path: Path, blob: bytes, changes: Any) -> None:
    with pytest.raises(FileFormatError, match=r"a\.fb: damaged"):
        files.read(forged(tmp_path / "a.fb", blob, schema=content(blob, **changes)))


@pytest.mark.parametrize(
    "metadata",
    [
        {"shape": "[1000000, 1000000]"},
        {"shape": "[3, -4]"},
        {"shape": "[-1, 4]"},
        {"shape": "[[12]]"},
        {"shape": "[-3, -4]"},
        {"shape": "[3, 4.0]"},
        {"shape": "12"},
        {"shape": "[" * 100_000},
        {"shape": "[" + "1," * 80 + "12]"},
        {"shape": "[4, 3"},
        {"dtype": "float64"},
        {"dtype": "object"},
        {"dtype": "int32"},
        {"dtype": "arrow"},
    ],
    ids=lambda m: str(m)[:30],
)
def test_read__lying_metadata(tmp_path: Path, blob: bytes, metadata: Any) -> None:
    with pytest.raises(FileFormatError, match=r"a\.fb: damaged"):
        files.read(forged(tmp_path / "a.fb", blob, schema=field(blob, "counts", **metadata)))


def test_read__lying_length_of_a_domain(tmp_path: Path, blob: bytes) -> None:
    with pytest.raises(FileFormatError, match=r"'domain' of shape \[5\] has 3 values"):
        files.read(forged(tmp_path / "a.fb", blob, schema=field(blob, "domain", shape="[5]")))


def test_read__huge_empty_shape(tmp_path: Path) -> None:
    files.write(tmp_path / "a.fb", {}, {"counts": np.zeros((0, 1))})
    blob = (tmp_path / "a.fb").read_bytes()
    schema = field(blob, "counts", shape=f"[0, {10**30}]")
    with pytest.raises(FileFormatError, match="damaged"):
        files.read(forged(tmp_path / "b.fb", blob, schema=schema))


@pytest.mark.parametrize("kind", [0, 3, 6])
def test_read__message_of_another_kind(tmp_path: Path, blob: bytes, kind: int) -> None:
    # Arrow verifies what a message is in name, and reads it as what is asked for.
    changed = bytearray(blob)
    changed[files._member(blob, files._follow(blob, files.FIRST_MESSAGE), 1)] = kind
    place = pa.ipc.open_file(blob).schema.metadata[b"sha256"]
    with pytest.raises(FileFormatError, match=r"of type .* instead of schema|Invalid flatbuffer"):
        files.read(sealed(tmp_path / "a.fb", bytes(changed), place))


def test_read__array_twice(tmp_path: Path, blob: bytes) -> None:
    reader = pa.ipc.open_file(blob)
    batch = reader.get_batch(0)
    schema = pa.schema([*reader.schema, reader.schema.field("mean")], reader.schema.metadata)
    batch = pa.record_batch([*batch.columns, batch["mean"]], schema=schema)
    with pytest.raises(FileFormatError, match="twice"):
        files.read(forged(tmp_path / "a.fb", blob, schema=schema, batch=batch))


def test_read__two_rows_or_nulls(tmp_path: Path, blob: bytes) -> None:
    reader = pa.ipc.open_file(blob)
    batch = reader.get_batch(0)
    twice = pa.Table.from_batches([batch, batch]).combine_chunks().to_batches()[0]
    with pytest.raises(FileFormatError, match="2 rows"):
        files.read(forged(tmp_path / "a.fb", blob, batch=twice))
    nulls = pa.array([[None] * 12], batch["counts"].type)
    batch = batch.set_column(0, reader.schema.field("counts"), nulls)
    with pytest.raises(FileFormatError, match="nulls"):
        files.read(forged(tmp_path / "b.fb", blob, batch=batch))


def buffers(blob: bytes) -> tuple[int, list[tuple[int, int]]]:
    """Return where the list of the batch's buffers stands in the file, and the list."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(blob[8:]))
    reader.read_next_message()
    message = reader.read_next_message().metadata.to_pybytes()
    batch = files._follow(message, files._member(message, files._follow(message, 0), 2))
    vector = files._follow(message, files._member(message, batch, 2))
    return blob.index(message) + vector + 4, [*files._buffers(message, batch)]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 1 << 40), (-8, 8), (8, -8), (1 << 62, 8), (4, 8)]
)
def test_read__buffer_outside_the_file(
    tmp_path: Path, offset: int, length: int, compressed: bool
) -> None:
    blob = written(compressed=compressed)
    place, held = buffers(blob)
    at = place + 16 * next(i for i, (_, n) in enumerate(held) if n)
    broken = blob[:at] + struct.pack("<qq", offset, length) + blob[at + 16 :]
    with pytest.raises(FileFormatError, match="damaged"):
        files.read(sealed(tmp_path / "a.fb", broken))


def claim(blob: bytes, size: int) -> bytes:
    """Return the file with a first buffer that claims another uncompressed size."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(blob[8:]))
    reader.read_next_message()
    body = reader.read_next_message().body.to_pybytes()
    start = blob.index(body)
    return blob[:start] + struct.pack("<q", size) + blob[start + 8 :]


@pytest.mark.parametrize("size", [10**12, 2**62, -2])
def test_read__buffer_claims_more_than_its_bytes_can_hold(tmp_path: Path, size: int) -> None:
    path = sealed(tmp_path / "a.fb", claim(written(compressed=True), size))
    before = pa.total_allocated_bytes()
    with pytest.raises(FileFormatError, match=f"claim to hold {size}"):
        files.read(path)
    assert pa.total_allocated_bytes() == before


def test_read__more_than_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.fb"
    files.write(path, {}, {"counts": np.zeros(100_000, np.int64)})
    for memory, message in ((path.stat().st_size, "holds"), (100, "a file of")):
        monkeypatch.setattr(files, "usable_memory", lambda memory=memory: float(memory))
        with pytest.raises(MemoryLimitError, match=rf"a\.fb: {message}"):
            files.read(path)


@pytest.mark.parametrize(
    ("values", "dtype", "stored"),
    [
        ([], "i8", "int64"),
        ([0, 255], "i8", "uint8"),
        ([0, 256], "i8", "uint16"),
        ([0, 2**32 - 1], "i8", "uint32"),
        ([0, 2**32], "i8", "int64"),
        ([-1, 127], "i8", "int8"),
        ([-1, 128], "i8", "int16"),
        ([-(2**31), 2**31 - 1], "i8", "int32"),
        ([-1, 2**62], "i8", "int64"),
        ([-(2**63), 2**63 - 1], "i8", "int64"),
        ([0, 2**64 - 1], "u8", "uint64"),
        ([1], "u8", "uint8"),
        ([-300], "i4", "int16"),
        ([255], "u1", "uint8"),
    ],
)
def test_whole_numbers__stored_in_the_narrowest_type(
    values: list[int], dtype: str, stored: str
) -> None:
    given = {"a": np.array(values, dtype)}
    blob = files.to_bytes({}, given)
    assert str(pa.ipc.open_file(blob).schema.field("a").type.value_type) == stored
    assert_same(given, files.from_bytes(blob, "a")[1])


@pytest.mark.parametrize(
    ("stored", "named"),
    [("i8", "int32"), ("i4", "uint64"), ("u8", "int64"), ("u1", "bool"), ("u1", "float64")],
)
def test_read__type_that_may_not_hold_the_numbers(tmp_path: Path, stored: str, named: str) -> None:
    wide = np.array([np.iinfo(stored).max, np.iinfo(stored).min], stored)
    blob = files.to_bytes({}, {"counts": wide})
    schema = field(blob, "counts", dtype=named)
    with pytest.raises(FileFormatError, match=f"'counts' is {named} in name"):
        files.read(forged(tmp_path / "a.fb", blob, schema=schema))


def test_compressed__where_there_is_much_of_it() -> None:
    for rows, compressed in ((100, False), (100_000, True)):
        blob = files.to_bytes({}, {"a": np.arange(rows) / 8})
        assert (len(blob) < 8 * rows) == compressed


def test_read__highest_honest_compression(tmp_path: Path) -> None:
    zeros = {"counts": np.zeros(2_000_000, np.int64)}
    files.write(tmp_path / "a.fb", {}, zeros)
    assert (tmp_path / "a.fb").stat().st_size < 10_000
    assert_same(zeros, files.read(tmp_path / "a.fb")[1])


def test_read__other_files(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="none: no such file"):
        files.read(tmp_path / "none")
    with pytest.raises(FileFormatError, match="is a directory"):
        files.read(tmp_path)
    with pytest.raises(FileFormatError, match="not a regular file"):
        files.read("/dev/null")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(FileFormatError, match="empty: not a model"):
        files.read(tmp_path / "empty")
    table = pa.table({"a": [1]})
    with pa.ipc.new_file(tmp_path / "data.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(FileFormatError, match="not one that fastbayes wrote"):
        files.read(tmp_path / "data.arrow")


# --- a file appears whole or not at all -------------------------------------------------------


def test_atomic__leaves_the_target_alone_when_interrupted(tmp_path: Path) -> None:
    target = tmp_path / "a.csv"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), files.atomic(target, force=True) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".csv"
        temporary.write_text("new")
        assert target.read_text() == "old"
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert target.read_text() == "old"


def test_atomic__existing_target(tmp_path: Path) -> None:
    target = tmp_path / "a.fb"
    files.write(target, {"n": 1}, {})
    with pytest.raises(DataError, match=r"a\.fb exists: .*force=True"):
        files.write(target, {"n": 2}, {})
    assert files.read(target)[0] == {"n": 1}
    files.write(target, {"n": 2}, {}, force=True)
    assert files.read(target)[0] == {"n": 2}
    assert len(list(tmp_path.iterdir())) == 1


def test_atomic__target_that_appears_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "a"
    with pytest.raises(DataError, match="exists"), files.atomic(target) as temporary:
        temporary.write_text("mine")
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_atomic__a_target_that_is_another_than_was_read(tmp_path: Path) -> None:
    target = tmp_path / "a"
    for theirs in ("theirs", "as long"):
        target.write_text("of both")
        read = files.version_of(target)
        with (
            pytest.raises(DataError, match=r"a was written by another process .* run it again"),
            files.atomic(target, force=True, expecting=read) as temporary,
        ):
            temporary.write_text("mine")
            (tmp_path / "another").write_text(theirs)
            (tmp_path / "another").replace(target)
        assert target.read_text() == theirs
    with files.atomic(target, force=True, expecting=files.version_of(target)) as temporary:
        temporary.write_text("mine")
    assert target.read_text() == "mine"
    assert [*tmp_path.iterdir()] == [target]


def test_atomic__of_many_that_expect_the_same_one_replaces_it(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("of all")
    read, together = files.version_of(target), threading.Barrier(8)

    def replaced(mine: int) -> bool:
        try:
            with files.atomic(target, force=True, expecting=read) as temporary:
                temporary.write_text(str(mine))
                together.wait()
        except DataError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [*pool.map(replaced, range(8))]
    assert won.count(True) == 1
    assert target.read_text() == str(won.index(True))


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("s3://bucket/out", "write to a path of this machine"),
        ("memory://out/p", "write to a path of this machine"),
        ("file:///there/a%20b", "name the path, /there/a b"),
    ],
)
def test_target__a_uri_is_refused_though_it_could_be_a_path(
    uri: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(uri).parent.mkdir(parents=True)
    Path("rows.csv").write_text("x,y\na,p\nb,q\n")
    before = [*tmp_path.rglob("*")]
    model = fb.NaiveBayes().fit("rows.csv", "y")
    for written in (
        lambda: model.save(uri, force=True),
        lambda: fb.predict_to(model, "rows.csv", uri, force=True),
        lambda: fb.count("rows.csv", "y", checkpoint=uri),
        lambda: generate("flights", 1, uri),
    ):
        with pytest.raises(DataError, match=f"{uri} is a URI.*{remedy}"):
            written()
    assert [*tmp_path.rglob("*")] == before


def test_atomic__follows_a_link_and_keeps_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with files.atomic(tmp_path / "link") as temporary:
        temporary.write_text("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "x"
    assert (tmp_path / "real").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_atomic__places_that_cannot_be(tmp_path: Path) -> None:
    for target, reason in [
        (tmp_path / "no" / "a", "no directory"),
        (tmp_path, "is a directory"),
        (Path("/dev/null"), "is a device or a pipe"),
        ("", "the path to write to is empty: name a file"),
    ]:
        with pytest.raises(DataError, match=reason), files.atomic(target, force=True):
            pytest.fail("the block ran")
        with pytest.raises(DataError, match=reason):
            files.check_target(target, force=True)
    with pytest.raises(DataError, match="is empty: name"), files.atomic_directory("", force=True):
        pytest.fail("the block ran")
    assert Path("/dev/null").is_char_device()


def test_target__from_a_working_directory_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"a": ["x", "y"] * 10, "y": ["p", "q", "q", "p"] * 5}
    model = fb.NaiveBayes().fit(rows, "y")
    net = fb.BayesianNetwork.learn(rows)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for written in (
        lambda: model.save("place"),
        lambda: fb.predict_to(model, {"a": ["x"]}, "place"),
        lambda: net.write_bif("place"),
        lambda: generate("flights", 1, "place"),
    ):
        with pytest.raises(DataError, match=r"^place: the working directory was removed, .*absol"):
            written()
    model.save(tmp_path / "m.fb")
    assert fb.load(tmp_path / "m.fb").predict(rows).tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize("make", [files.atomic, files.atomic_directory])
def test_atomic__what_the_system_refuses_names_the_target(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_long = r"/x{300} cannot be written \(file name too long\)"
    with pytest.raises(DataError, match=too_long), make(tmp_path / ("x" * 300)):
        pytest.fail("the block ran")

    def refused(*given: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "hidden")

    for call in ("touch", "mkdir"):
        monkeypatch.setattr(Path, call, refused)
    not_allowed = r"/place cannot be written \(permission denied\)"
    with pytest.raises(DataError, match=not_allowed), make(tmp_path / "place"):
        pytest.fail("the block ran")
    assert [*tmp_path.iterdir()] == []


def test_atomic__other_errors_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.atomic(tmp_path / "a") as temporary:
        temporary.write_text("x")
        (tmp_path / "input that is gone").read_text()
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
import resource, sys
import numpy as np
from fastbayes.core import files
from fastbayes.core.errors import DataError
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    files.write(sys.argv[1], {}, {"a": np.random.default_rng(0).random(100_000)})
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits the size of a file as POSIX does")
def test_write__disk_full(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "a.fb")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "a.fb: file too large; nothing was written" in done.stdout
    assert list(tmp_path.iterdir()) == []


# --- what a run that was killed leaves behind --------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from fastbayes.core import files

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

# "file", "directory": in the middle of the work. "exchanged": just before the old one is removed.
what, target = sys.argv[1], sys.argv[2]
files._remove = die if what == "exchanged" else files._remove
make = files.atomic if what == "file" else files.atomic_directory
with make(target, force=True) as made:
    file = made if what == "file" else made / "part-0.csv"
    file.write_text("half")
    files.sync(file)
    if what != "exchanged":
        die()
"""


@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")
@pytest.mark.parametrize("what", ["file", "directory", "exchanged"])
def test_killed__the_next_run_removes_what_it_left(tmp_path: Path, what: str) -> None:
    target = tmp_path / "a"
    make = files.atomic if what == "file" else files.atomic_directory
    name = "" if what == "file" else "part-0.csv"
    with make(target) as made:
        (made / name).write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, what, str(target)])
    assert done.returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    assert (target / name).read_text() == ("half" if what == "exchanged" else "old")
    with make(target, force=True) as made:
        (made / name).write_text("new")
    assert list(tmp_path.iterdir()) == [target]
    assert (target / name).read_text() == "new"


def test_unfinished__of_a_run_that_lives_stays(tmp_path: Path) -> None:
    with files.atomic(tmp_path / "a") as one, files.atomic_directory(tmp_path / "b") as two:
        files.remove_abandoned(tmp_path)
        one.write_text("one")
        (two / "part-0.csv").write_text("two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_abandoned__other_files_stay(tmp_path: Path) -> None:
    others = [".fastbayes", ".fastbayes-0123", "fastbayes-0123456789abcdef", "a.fb"]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".fastbayes-0123456789abcdef.fb").symlink_to("a.fb")
    (tmp_path / ".fastbayes-0123456789abcdee").touch()
    files.remove_abandoned(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*others, ".fastbayes-0123456789abcdef.fb"}


def test_taken_for_abandoned__made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run looks between the making of a file and its locking."""
    opened, seen = files._opened, []

    def late(path: Path) -> int:
        if not seen:
            seen.append(path)
            files.remove_abandoned(tmp_path)
        return opened(path)

    monkeypatch.setattr(files, "_opened", late)
    with files.atomic(tmp_path / "a") as temporary:
        assert temporary not in seen
        temporary.write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("call", ["renameat2", "none"])
def test_exchange__of_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    if call == "none":
        monkeypatch.setattr(files.ctypes, "CDLL", lambda _: object())
    for text in ("old", "new"):
        with files.atomic_directory(tmp_path / "a", force=True) as made:
            (made / "part-0.csv").write_text(text)
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    assert (tmp_path / "a" / "part-0.csv").read_text() == "new"


def test_directory__a_signal_while_the_old_one_is_removed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "part-00000.csv").write_bytes(b"old")
    remove, stops = shutil.rmtree, [KeyboardInterrupt]

    def stopped(path: Path) -> None:
        if stops:
            raise stops.pop()
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", stopped)
    with (
        pytest.raises(KeyboardInterrupt),
        files.atomic_directory(tmp_path / "a", force=True) as made,
    ):
        (made / "part-00000.csv").write_bytes(b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "part-00000.csv").read_bytes() == b"new"


@pytest.mark.parametrize("make", [files.atomic, files.atomic_directory])
def test_unfinished_output_goes_though_a_signal_comes_as_its_removal_is_called(
    make: Any, tmp_path: Path
) -> None:
    def stop(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is files._remove_whole.__code__:
            raise KeyboardInterrupt  # which ends the profile

    with pytest.raises(KeyboardInterrupt), make(tmp_path / "out"):
        sys.setprofile(stop)
        raise ValueError
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_what_is_replaced_gives_its_permissions(tmp_path: Path) -> None:
    file, folder = tmp_path / "a.fb", tmp_path / "parts"
    for _ in range(2):
        with files.atomic(file, force=True) as temporary:
            temporary.write_bytes(b"x")
        with files.atomic_directory(folder, force=True) as temporary:
            (temporary / "part-0.csv").write_bytes(b"x")
        file.chmod(0o600)
        folder.chmod(0o700)
    with files.atomic(file, force=True) as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600  # while it is written, too
        temporary.write_bytes(b"y")
    with files.atomic_directory(folder, force=True) as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o700
        (temporary / "part-0.csv").write_bytes(b"y")
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.name == "nt", reason="Windows has no groups")
def test_what_is_replaced__is_opened_to_no_other_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, made = tmp_path / "a.fb", tmp_path / "b.fb"
    for path in (file, made):
        path.touch()
    file.chmod(0o4664)
    own, was = made.stat().st_gid, Path.stat

    def of_another_group(path: Path, **how: Any) -> os.stat_result:
        found = [*was(path, **how)]
        found[5] = own + (path == file)
        return os.stat_result(found)

    def refused(*given: Any) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(Path, "stat", of_another_group)
    monkeypatch.setattr(os, "chown", refused)
    files._guard_alike(made, file)
    assert made.stat().st_mode & 0o7777 == 0o604
