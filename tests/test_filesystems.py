"""Files by URI: memory, HTTP, S3; their options, and stores that do not answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import fails, run
from stores import KEYS, Store, serving

import fastbayes as fb
from fastbayes.data import filesystems
from fastbayes.engines import pool


def drawn(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({"y": random.choice(["no", "yes"], 300), "x": random.integers(0, 9, 300)})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a directory whose sub-directory `bucket` holds a lake of three days."""
    for day in range(3):
        folder = tmp_path / "store" / "bucket" / "lake" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(drawn(day), folder / "part.parquet", row_group_size=100)
    (tmp_path / "store" / "bucket" / "one.csv").write_text("y,x\nno,1\nyes,2\nno,\n")
    return tmp_path / "store"


def counted(source: Any) -> fb.Statistics:
    return fb.count(source, "y", pairs=True)


@pytest.fixture
def memory(lake: Path) -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    for file in lake.rglob("*"):
        if file.is_file():
            fs.pipe(f"/{file.relative_to(lake)}", file.read_bytes())
    yield "memory://bucket"
    fs.rm("/bucket", recursive=True)


def test_memory__is_read_as_files_are(lake: Path, memory: str, tmp_path: Path) -> None:
    here = lake / "bucket"
    for name in (
        "lake",
        "lake/day=1",
        "lake/**/*.parquet",
        "lake/day=[12]/part.parquet",
        "one.csv",
    ):
        assert counted(f"{memory}/{name}") == counted(here / name)
    model = fb.NaiveBayes().fit(f"{memory}/lake", "y")
    there = model.predict_proba(f"{memory}/lake/day=1")
    np.testing.assert_array_equal(there, model.predict_proba(here / "lake" / "day=1"))
    run("count", f"{memory}/lake", "--target", "y", "-o", tmp_path / "s.fbs")
    assert fb.load(tmp_path / "s.fbs") == fb.count(here / "lake", "y")
    with pytest.raises(fb.DataError, match=r"memory://bucket/no\.csv: no such file"):
        counted(f"{memory}/no.csv")


def test_s3__on_the_loopback(lake: Path, tmp_path: Path) -> None:
    here = lake / "bucket"
    with serving(lake) as host:
        options = KEYS | {"endpoint_override": host}
        for name in ("lake", "lake/day=1", "lake/**/*.parquet", "one.csv"):
            there = fb.Files(f"s3://bucket/{name}", storage_options=options)
            assert counted(there) == counted(here / name)
        assert "secret" not in repr(there)
        lake_there = fb.Files("s3://bucket/lake", storage_options=options)
        paths = pool.paths(lake_there, processes=2)
        assert counted(paths) == counted(here / "lake")
        said = [f"--storage-option={key}={value}" for key, value in options.items()]
        run("count", "s3://bucket/lake", *said, "--target", "y", "-o", tmp_path / "s.fbs")
        assert fb.load(tmp_path / "s.fbs") == fb.count(here / "lake", "y")
        with pytest.raises(fb.DataError, match=r"storage option 'key' is none of .*access_key"):
            counted(fb.Files("s3://bucket/lake", storage_options={"key": "a"}))
        with pytest.raises(fb.DataError, match=r"s3://bucket/no\.csv: no such file"):
            counted(fb.Files("s3://bucket/no.csv", storage_options=options))


def test_http__on_the_loopback(lake: Path) -> None:
    pytest.importorskip("aiohttp")
    here = lake / "bucket"
    with serving(lake) as host:
        for name in ("lake/day=1/part.parquet", "one.csv"):
            assert counted(f"http://{host}/bucket/{name}") == counted(here / name)
        days = [f"http://{host}/bucket/lake/day={day}/part.parquet" for day in range(3)]
        assert counted(days) == counted(here / "lake")
        assert counted(pool.paths(days, processes=2)) == counted(here / "lake")
        with pytest.raises(fb.DataError, match=r"http://.*no\.csv: no such file"):
            counted(f"http://{host}/bucket/no.csv")


def test_http__a_list_of_links_tells_no_sizes(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    answer = Store.do_GET

    def listing(store: Store, *, head: bool = False) -> None:
        if not store.path.strip("/").endswith("bucket"):
            answer(store, head)
            return
        links = b'<a href="one.csv">one</a><a href="gone.txt">gone</a>'
        store._answer(200, links, head, Content_Type="text/html")

    monkeypatch.setattr(Store, "do_GET", listing)
    with serving(lake) as host:
        assert counted(f"http://{host}/bucket/*.csv") == counted(lake / "bucket" / "one.csv")
        with pytest.raises(fb.DataError, match=r"gone\.txt: no such file"):
            counted(f"http://{host}/bucket/*.txt")


def test_http__a_query_is_no_part_of_the_name(lake: Path) -> None:
    pytest.importorskip("aiohttp")
    with serving(lake) as host:
        there = counted(f"http://{host}/bucket/one.csv?token=a/b.c")
        assert there == counted(lake / "bucket" / "one.csv")
        with pytest.raises(fb.DataError, match=r"no\.csv\?token=1: no such file"):
            counted(f"http://{host}/bucket/no.csv?token=1")


def test_http__a_server_without_ranges_or_sizes(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")
    answer, send = Store.do_GET, Store.send_header

    def whole(store: Store, *, head: bool = False) -> None:
        del store.headers["Range"]
        answer(store, head=head)

    def but_size(store: Store, name: str, value: str) -> None:
        if name == "Content-Length":
            name, value = "Connection", "close"
        send(store, name, value)

    monkeypatch.setattr(Store, "do_GET", whole)
    with serving(lake) as host:
        name = f"http://{host}/bucket/one.csv"
        assert counted(name) == counted(lake / "bucket" / "one.csv")
        days = f"http://{host}/bucket/lake/day=1/part.parquet"
        with pytest.raises(fb.FileFormatError, match=r"parquet: .* range requests; download"):
            counted(days)
        monkeypatch.setattr(Store, "send_header", but_size)
        with pytest.raises(fb.FileFormatError, match=r"one\.csv: its store does not say how many"):
            counted(name)


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_http__what_the_server_answers_is_said(
    lake: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")

    def refused(store: Store, *, head: bool = False) -> None:
        store._answer(status, b"", head)

    monkeypatch.setattr(Store, "do_GET", refused)
    with serving(lake) as host:
        name = f"http://{host}/bucket/one.csv"
        with pytest.raises(fb.DataError, match=rf"one\.csv: its server says {status} \w+.*; check"):
            counted(name)


def test_http__nobody_listens() -> None:
    pytest.importorskip("aiohttp")
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(fb.DataError, match=r"one\.csv: Cannot connect to host .*; check address"):
        counted(f"http://{host}/one.csv")


def test_blanks__in_uris(memory: str, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/bucket/a b.csv", b"y,x\nno,1\nyes,2\n")
    assert counted(f"{memory}/a b.csv").n_rows == 2
    (tmp_path / "a b.csv").write_text("y,x\nno,1\nyes,2\n")
    with pytest.raises(fb.DataError, match=r"a b\.csv: .*; write a blank as %20"):
        counted(f"file://{tmp_path}/a b.csv")
    assert counted(f"file://{tmp_path}/a%20b.csv").n_rows == 2


@pytest.fixture
def silent() -> Iterator[str]:
    """Return the address of what takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_s3__is_kept_as_long_as_it_is_used(lake: Path) -> None:
    with serving(lake) as host:
        options = {**KEYS, "endpoint_override": host}
        used, _ = filesystems.file_system("s3://bucket/one.csv", options)
        assert filesystems.file_system("s3://bucket/one.csv", options)[0] is used
        other = {**options, "access_key": "b"}
        assert filesystems.file_system("s3://bucket/one.csv", other)[0] is not used
        assert len(filesystems._FIRST) == 1
        del used
        assert not filesystems._FIRST


def test_s3__a_scan_beside_another_one(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of the other one come without end, and no store is made while one is under way."""
    answer = Store.do_GET

    def slowly(store: Store, *, head: bool = False) -> None:
        time.sleep(0.05)
        answer(store, head)

    with serving(lake) as host:
        options = {**KEYS, "endpoint_override": host}
        used, path = filesystems.file_system("s3://bucket/one.csv", options)
        monkeypatch.setattr(Store, "do_GET", slowly)
        stop = threading.Event()

        def read() -> None:
            with used.open_input_file(path) as file:
                while not stop.is_set():
                    file.read_at(1, 0)

        readers = [threading.Thread(target=read) for _ in range(8)]
        for reader in readers:
            reader.start()
            time.sleep(0.01)  # so that one begins while another one waits
        try:
            there = counted(fb.Files("s3://bucket/one.csv", storage_options=options))
        finally:
            stop.set()
            for reader in readers:
                reader.join()
    assert there.n_rows == 3


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_store__that_does_not_answer(
    silent: str, scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(filesystems, "ANSWER_SECONDS", 2.0)
    name, options = f"http://{silent}/x.csv", []
    if scheme == "s3":
        said = KEYS | {"endpoint_override": silent, "request_timeout": 2}
        name, options = "s3://b/x.csv", [f"--storage-option={k}={v}" for k, v in said.items()]
    else:
        pytest.importorskip("aiohttp")
    begun = time.monotonic()
    said = fails("count", name, *options, "--target", "y", "-o", tmp_path / "s", folder=tmp_path)
    assert name in said
    assert "; check address, network and credentials" in said
    assert time.monotonic() - begun < 60  # it ends


def answering(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, wrong: Callable[[str, str], bool]
) -> list[str]:
    """Have the store answer so where a kind of request and a path are `wrong`; lists the kinds."""
    answer, asked = Store.do_GET, []

    def some(store: Store, *, head: bool = False) -> None:
        kind = "HEAD" if head else "LIST" if "list-type" in store.path else "GET"
        asked.append(kind)
        if not wrong(kind, store.path):
            answer(store, head)
            return
        said = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        store._answer(status, b"" if head else said, head, Content_Type="application/xml")

    monkeypatch.setattr(Store, "do_GET", some)
    return asked


def test_s3__is_asked_again_where_it_is_busy(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = ["HEAD", "HEAD", "LIST", "GET"]  # of each kind the first ones

    def busy(kind: str, _: str) -> bool:
        if kind in left:
            left.remove(kind)
            return True
        return False

    with serving(lake) as host:
        there = fb.Files("s3://bucket/lake", storage_options=KEYS | {"endpoint_override": host})
        answering(monkeypatch, 503, "SlowDown", busy)
        assert counted(there) == counted(lake / "bucket" / "lake")
    assert not left


@pytest.mark.parametrize("attempts", [1, 3])
def test_s3__is_asked_as_often_as_the_caller_says(
    lake: Path, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry = pa.fs.AwsStandardS3RetryStrategy(max_attempts=attempts)
    with serving(lake) as host:
        options = KEYS | {"endpoint_override": host, "retry_strategy": retry}
        asked = answering(monkeypatch, 503, "SlowDown", lambda *_: True)
        with pytest.raises(fb.DataError, match=r"one\.csv: .*status 503.*; try again later"):
            counted(fb.Files("s3://bucket/one.csv", storage_options=options))
    assert asked == ["HEAD"] * attempts


def test_s3__may_take_as_long_as_the_caller_says(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "ANSWER_SECONDS", 1.0)
    answer, late = Store.do_GET, [True]

    def first_late(store: Store, *, head: bool = False) -> None:
        if late:
            late.clear()
            time.sleep(1.5)
        answer(store, head)

    monkeypatch.setattr(Store, "do_GET", first_late)
    with serving(lake) as host:
        options = {**KEYS, "endpoint_override": host, "request_timeout": 30}
        assert counted(fb.Files("s3://bucket/one.csv", storage_options=options)).n_rows == 3
        del options["request_timeout"]
        late.append(True)
        with pytest.raises(fb.DataError, match=r"one\.csv: .*; check address, network"):
            counted(fb.Files("s3://bucket/one.csv", storage_options=options))


@pytest.mark.parametrize(
    ("status", "code", "remedy", "skipped"),
    [
        (503, "SlowDown", "try again later", False),
        (500, "InternalError", "try again later", False),
        (400, "ExpiredToken", "check address, network and credentials", False),
        (403, "AccessDenied", "check permissions and credentials", True),
    ],
)
def test_s3__what_it_says_of_a_file(
    lake: Path,
    status: int,
    code: str,
    remedy: str,
    skipped: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what may not be read is left out: the rest is no fault of the file."""

    def wrong(kind: str, path: str) -> bool:
        return kind == "GET" and "day%3D1" in path

    with serving(lake) as host:
        options = KEYS | {"endpoint_override": host}
        answering(monkeypatch, status, code, wrong)
        for mode in ("stop", "skip"):
            there = fb.Files("s3://bucket/lake", storage_options=options, on_error=mode)
            if skipped and mode == "skip":
                stats = counted(there)
                assert stats.n_rows == 600
                assert remedy in "".join(stats.provenance)
                continue
            with pytest.raises(fb.DataError, match=rf"day=1/part\.parquet: AWS .*; {remedy}"):
                counted(there)


def test_scheme__that_nobody_knows(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(fb.DataError, match="nosuch://x/y"):
        counted("nosuch://x/y")
    with pytest.raises(fb.DataError, match="storage options go with a URI"):
        counted(fb.Files(tmp_path, storage_options={"region": "x"}))
    said = run("count", "x", "--storage-option", "region", "--target", "y", "-o", "z", code=2)
    assert "write KEY=VALUE" in said.stderr


def test_fsspec__is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(fb.DataError, match=r"pip install 'fastbayes\[fsspec\]'"):
        counted("memory://bucket/lake")
