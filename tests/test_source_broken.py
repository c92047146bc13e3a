"""What cannot be read says so in one line that names file, column, row and remedy."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.errors import DataError, FileFormatError, SchemaError
from fastbayes.data import text
from fastbayes.data.paths import find_files
from fastbayes.data.segments import reading, sound
from fastbayes.data.source import open_source

TABLE = pa.table(
    {
        "a": ["x", "y", None, "x"] * 10,
        "b": pa.array([1, None, 3, 4] * 10),
        "c": [0.5, 1.5, float("nan"), 2.5] * 10,
    }
)


def read(source: Any, **options: Any) -> list[dict[str, Any]]:
    found = []
    for segment in open_source(source, **options).segments(16):
        for batch in segment.batches():
            with reading(segment.origin):
                sound(batch).validate(full=True)
            found += batch.to_pylist()
    return found


@contextmanager
def forbidden(folder: Path, name: str) -> Iterator[None]:
    """Take away the rights to a file or directory, and read as a user whom that keeps out."""
    folder.chmod(0o755)
    (folder / name).chmod(0)
    user = os.geteuid()
    try:
        if user == 0:  # who may read everything
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(user)
        (folder / name).chmod(0o755)


def says(error: type[Exception], *parts: str) -> Any:
    """Expect an error whose one line has all the parts, in this order."""
    return pytest.raises(
        error, match=r"(?s)^[^\n]*" + "[^\n]*".join(map(re.escape, parts)) + r"[^\n]*\Z"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOCK_BYTES", "INFER_BYTES", "LEAST_INFER_BYTES"):
        monkeypatch.setattr(text, name, 40)


class TestPaths:
    def test_missing(self, folder: Path) -> None:
        for name in ("no.parquet", "no", "file:///no/such.parquet", "no/*/x.csv"):
            with says(DataError, name, ": no "):
                open_source(name)
        with says(DataError, "no.csv: no such file or directory"):
            open_source(["no.csv"])
        with says(DataError, "*.parquet: no file matches"):
            open_source("*.parquet")

    def test_empty(self, folder: Path) -> None:
        os.mkdir("d")
        with says(DataError, "d: the directory holds no data files"):
            open_source("d")
        for name in ("e.parquet", "e.csv", "e.arrow", "e.jsonl", "e.orc", "d/e"):
            Path(name).touch()
            with says(FileFormatError, f"{name} is empty (0 bytes)"):
                open_source(name)
        with says(FileFormatError, "d/e is empty"):
            open_source("d")

    def test_empty_json_lines_are_no_rows_among_others(self, folder: Path) -> None:
        """A file without a line is what writers make of no rows; its columns nobody knows."""
        os.mkdir("d")
        for name in ("d/a.jsonl", "d/c.ndjson"):
            Path(name).touch()
        with says(FileFormatError, "d/a.jsonl is empty (0 bytes)"):
            open_source("d")
        Path("d/b.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
        assert open_source("d").schema.names == ["x"]
        Path("d/d.csv").touch()
        with says(FileFormatError, "d/d.csv is empty (0 bytes)"):
            open_source("d")

    def test_mixed_formats(self, folder: Path) -> None:
        pq.write_table(TABLE, "a.parquet")
        pa.csv.write_csv(TABLE, "b.csv")
        for source in (".", "*", ["a.parquet", "b.csv"]):
            with says(DataError, "a.parquet is parquet but ", "b.csv is csv", "glob"):
                open_source(source)
        Path("b.csv").rename("README.md")
        with says(FileFormatError, "README.md: not recognised"):
            open_source(".")

    def test_twice(self, folder: Path) -> None:
        pq.write_table(TABLE, "a.parquet")
        with says(DataError, "a.parquet is named twice"):
            open_source(["a.parquet", "*.parquet"])

    def test_unknown_scheme(self) -> None:
        with says(DataError, "nosuch://h/x.csv", "filesystem="):
            open_source("nosuch://h/x.csv")

    @pytest.mark.parametrize(
        ("link", "named", "gone"),
        [
            ("lake/b.parquet", "lake", "lake/b.parquet"),
            ("lake/b.parquet", "lake/*.parquet", "lake/b.parquet"),
            ("lake/b.parquet", "*/b.parquet", "lake/b.parquet"),
            ("lake/b.parquet", "**", "lake/b.parquet"),
            ("lake/day=1", "lake", "lake/day=1"),
            ("lake/day=1", "lake/*/*.parquet", "lake/day=1"),
            ("lake/day=1", "l*/day=1/*.parquet", "lake/day=1"),
            ("lake/day=1", "**/*.parquet", "lake/day=1"),
            ("b.parquet", "*.parquet", "b.parquet"),
        ],
    )
    def test_link_to_what_is_gone(self, folder: Path, link: str, named: str, gone: str) -> None:
        for there in ("", "lake", "lake/day=0", "less", "less/day=1"):
            Path(there).mkdir(exist_ok=True)
            pq.write_table(TABLE, Path(there, "a.parquet"))
        Path("less/a.parquet").rename("less/b.parquet")
        before = {file.path for file in find_files(named).files}
        Path(link).symlink_to("disk")
        said = f"{gone}: no such file or directory: the link leads to disk; "
        for asked in (named, gone):
            with pytest.raises(DataError, match=f"^{re.escape(said)}"):
                find_files(asked)
        errors: list[DataError] = []
        assert {file.path for file in find_files(named, None, errors.append).files} == before
        assert [str(error).startswith(said) for error in errors] == [True]

    def test_link_to_what_is_gone__not_of_files_that_are_passed_over(self, folder: Path) -> None:
        pq.write_table(TABLE, "a.parquet")
        for name in (".b", "_b", "b.fb", "b.fbs"):
            Path(name).symlink_to("gone")
        assert [file.path for file in find_files(".").files] == ["./a.parquet"]
        assert [file.path for file in find_files("**").files] == ["a.parquet"]
        assert len(find_files("*.parquet").files) == 1

    def test_link_to_itself(self, folder: Path) -> None:
        Path("a.parquet").symlink_to("a.parquet")
        for named in (".", "*", "a.parquet"):
            with says(DataError, "a.parquet: too many", "the link leads to a.parquet"):
                find_files(named)

    @pytest.mark.skipif(not hasattr(os, "seteuid"), reason="reads as a user without rights")
    @pytest.mark.parametrize("named", ["lake", "lake/*"])
    def test_link_into_a_directory_without_permission(self, folder: Path, named: str) -> None:
        for place in ("lake", "away"):
            Path(place).mkdir()
            pq.write_table(TABLE, f"{place}/a.parquet")
        Path("lake/b.parquet").symlink_to(folder / "away/a.parquet")
        errors: list[DataError] = []
        with forbidden(folder, "away"):
            with says(DataError, "lake/b.parquet: permission denied: the link leads to /"):
                find_files(named)
            assert len(find_files(named, None, errors.append).files) == len(errors) == 1

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
    @pytest.mark.parametrize("name", ["b.csv", "b.jsonl", "b"])
    def test_pipe_among_files(self, folder: Path, name: str) -> None:
        Path("a.jsonl").write_text('{"x": 1}\n')
        os.mkfifo(name)
        for named in (".", "*"):
            with says(FileFormatError, f"{name} is a pipe or a device"):
                find_files(named)
            errors: list[DataError] = []
            assert len(find_files(named, None, errors.append).files) == 1
            assert len(errors) == 1

    @pytest.mark.skipif(not hasattr(os, "seteuid"), reason="reads as a user without rights")
    @pytest.mark.parametrize("named", ["lake", "lake/*/*.parquet", "**"])
    def test_no_permission_for_a_directory_below(self, folder: Path, named: str) -> None:
        for day in ("day=0", "day=1"):
            Path("lake", day).mkdir(parents=True)
            pq.write_table(TABLE, f"lake/{day}/a.parquet")
        with (
            forbidden(folder, "lake/day=1"),
            says(DataError, "lake/day=1: may not be read: permission denied"),
        ):
            find_files(named)

    @pytest.mark.skipif(not hasattr(os, "seteuid"), reason="reads as a user without rights")
    def test_no_permission(self, folder: Path) -> None:
        pq.write_table(TABLE, "a.parquet")
        with forbidden(folder, "a.parquet"), says(DataError, "a.parquet: may not be read"):
            open_source("a.parquet")


class TestBinaryFiles:
    def test_truncated_before_anything_is_read(self, folder: Path) -> None:
        for i in range(3):
            pq.write_table(TABLE, f"{i}.parquet")
        data = Path("1.parquet").read_bytes()
        Path("1.parquet").write_bytes(data[:-10])
        with says(FileFormatError, "1.parquet: ", "magic bytes not found", "write the file again"):
            open_source("*.parquet")

    def test_not_what_the_name_says(self, folder: Path) -> None:
        for name in ("t.parquet", "t.arrow", "t.arrows", "t.orc", "t.csv.gz", "t.csv.zst"):
            Path(name).write_text("a,b\n1,2\n")
            with says(FileFormatError, name):
                open_source(name)

    def test_truncated_ipc_and_gzip(self, folder: Path) -> None:
        for name, writer in (("t.arrow", pa.ipc.new_file), ("t.arrows", pa.ipc.new_stream)):
            sink = pa.BufferOutputStream()
            with writer(sink, TABLE.schema) as out:
                out.write_table(TABLE)
            Path(name).write_bytes(sink.getvalue().to_pybytes()[:-60])
            with says(FileFormatError, name):
                read(name)
        Path("t.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:60])
        with says(FileFormatError, "t.csv.gz: Truncated"):
            read("t.csv.gz")

    def test_whole_file_compressed(self, folder: Path) -> None:
        pq.write_table(TABLE, "t.parquet")
        Path("t.parquet.gz").write_bytes(gzip.compress(Path("t.parquet").read_bytes()))
        with says(FileFormatError, "t.parquet.gz: a parquet file compressed as a whole"):
            open_source("t.parquet.gz")

    def test_footer_that_miscounts(self, folder: Path) -> None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"v": pa.array([7] * 113, pa.int8())}), sink)
        data = sink.getvalue()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        # 113 as thrift writes it (zigzag) stands in the footer several times
        places = [
            found.start() for found in re.finditer(b"\xe2\x01", data) if found.start() > footer
        ]
        first, last = places[0], places[-1]  # of the file; of the row group
        for wrong in ([first], [last], [first, last]):
            changed = bytearray(data)
            for place in wrong:
                changed[place] = 0xE4
            Path("t.parquet").write_bytes(changed)
            with says(FileFormatError, "t.parquet holds ", "rows", "write it again"):
                read("t.parquet")

    def test_index_outside_its_dictionary(self, folder: Path) -> None:
        bad = pa.DictionaryArray.from_arrays(pa.array([0, 5, 1]), ["p", "q"], safe=False)
        with pa.OSFile("t.arrow", "wb") as sink:
            table = pa.table({"v": bad})
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        with says(FileFormatError, "t.arrow: column 'v'", "out of bounds: 5"):
            read("t.arrow")

    def test_text_that_is_not_utf8(self, folder: Path) -> None:
        for kind in (pa.string(), pa.dictionary(pa.int8(), pa.string())):
            plain = pa.array([b"\xff\xfe", b"ok"]).view(pa.string())
            values = plain if kind == pa.string() else pa.DictionaryArray.from_arrays([0, 1], plain)
            pq.write_table(pa.table({"v": values}), "t.parquet")
            with says(FileFormatError, "t.parquet", "UTF8"):
                read("t.parquet")


class TestCsv:
    CASES: tuple[tuple[bytes, tuple[str, ...]], ...] = (
        (b"a,b\n1,2\n3,4\n5,6,7\n", ("t.csv, row 2: 3 cells instead of 2: '5,6,7'", "mend")),
        (b"a,b\n1,2\n3\n", ("t.csv, row 1: 1 cells instead of 2: '3'",)),
        ("a,b\nx,y\nz,é\n".encode("latin1"), ("t.csv, row 1: column 'b' is not UTF-8", "iconv")),
        ("é,b\nx,y\n".encode("latin1"), ("t.csv: the row of column names is not UTF-8",)),
        ("a,b\n1,2\n".encode("utf-16"), ("t.csv is UTF-16", "iconv")),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), ("t.csv is compressed", "(.gz at its end)")),
        (bz2.compress(b"a,b\n1,2\n"), ("t.csv is compressed", "(.bz2 at its end)")),
        (b"a,b,a\n1,2,3\n", ("t.csv has two columns named 'a'",)),
        (b'a,b\n1,2\n3,"x\n4,5\n', ("t.csv: the quote that opens at", "never closed")),
        (b'"a,b\n1,2\n', ("t.csv: a quote in the row of column names is never closed",)),
        (b"\n\r\n\n", ("t.csv is empty; it needs a row of column names",)),
    )

    @pytest.mark.parametrize(("data", "parts"), CASES)
    def test_message(self, folder: Path, data: bytes, parts: tuple[str, ...]) -> None:
        Path("t.csv").write_bytes(data)
        with says(DataError, *parts):
            read("t.csv")

    @pytest.mark.usefixtures("small_blocks")
    def test_rows_are_counted_over_blocks(self, folder: Path) -> None:
        head = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(50))
        Path("t.csv").write_bytes(head + b"51,1,2\n52,1\n")
        with says(DataError, "t.csv, row 50: 3 cells instead of 2"):
            read("t.csv")
        Path("t.csv").write_bytes(head + b"51,2.5\n52,abc\n")
        with says(
            DataError, "t.csv, row 51: column 'b' is", "'abc'", "null_values=", "categorical=['b']"
        ):
            read("t.csv")
        assert len(read("t.csv", null_values=["abc"])) == 52
        assert len(read("t.csv", columns=["a"])) == 52
        assert read("t.csv", types={"b": pa.string()})[-1] == {"a": 52, "b": "abc"}
        Path("t.csv").write_bytes(head.replace(b"b\n", b"b\nx,y\n", 1) + b"x,\xff\n")
        with says(DataError, "t.csv, row 51: column 'b' is not UTF-8"):
            read("t.csv")

    @pytest.mark.usefixtures("small_blocks")
    def test_a_column_without_type_may_not_become_two(self, folder: Path) -> None:
        tail = b"1,2\n" * 20 + b"1,abc\n" * 20
        Path("t.csv").write_bytes(b"a,b\n" + b"1,\n" * 50 + tail)
        with says(DataError, "t.csv, row 70: column 'b' is int64 elsewhere", "'abc'"):
            read("t.csv")

    def test_a_row_without_end(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(text, "LONGEST_ROW", 1000)
        monkeypatch.setattr(text, "BLOCK_BYTES", 100)
        Path("t.csv").write_text('a,b\n1,2\n3,"' + "x" * 5000 + '"\n')
        with says(FileFormatError, "t.csv: a row of more than"):
            read("t.csv")


class TestJson:
    CASES: tuple[tuple[bytes, tuple[str, ...]], ...] = (
        (b'[{"a":1}]', ("t.jsonl: a JSON array; write JSON lines",)),
        (gzip.compress(b'{"a":1}', mtime=0), ("t.jsonl is compressed", "(.gz at its end)")),
        (b'{"a":1}\n{"a":\n', ("t.jsonl, row 1 is not JSON",)),
        (b'{"a":1}\n\n{"a":2}\n{"a":"x"}\n', ("t.jsonl, row 2: column 'a' is number", "'x'")),
        (b'{"a":1}\n5\n', ("t.jsonl, row 1: ", "is no object")),
        (b'\n null\n{"a":1}\n', ("t.jsonl, row 0: ", "is no object", "one object per line")),
        (b'\xef\xbb\xbfnull{"a":1}\n', ("t.jsonl, row 0 is not JSON",)),
        (b'{"a":1}\n\n null\n{"a":1}\n', ("t.jsonl, row 1: ", "is no object")),
        (b"null", ("t.jsonl, row 0: ", "is no object")),
        (b'{"a":"ok"}\n{"a":"\xff"}\n', ("t.jsonl, row 1 is not UTF-8",)),
        (b'{"b":3}\n{"a":1,"a":2}\n', ("t.jsonl, row 1: holds the key 'a' twice; mend the row",)),
        (b'{"a":"u"}\n{"a":"\\ud800"}\n', ("t.jsonl, row 1: holds half of a surrogate pair",)),
        (b'{"a":1}\n{"a":-1e999}\n', ("t.jsonl, row 1: holds -1e999, more than float64",)),
        (b'{"a":1}\n\xef\xbb\xbf{"a":1}\n', ("t.jsonl, row 1: begins with a byte order mark",)),
        (b'\xef\xbb\xbf{"a":1}\n{"a":\n', ("t.jsonl, row 1 is not JSON",)),
        (b'{"a":[1]}\n{"a":[1,"x"]}\n', ("t.jsonl, row 1: ", "from number to string; mend the")),
        (b'{"a":' * 9999, ("t.jsonl, row 0 is not JSON",)),
        (b"\n\n", ("t.jsonl has no columns",)),
    )

    @pytest.mark.parametrize(("data", "parts"), CASES)
    def test_message(self, folder: Path, data: bytes, parts: tuple[str, ...]) -> None:
        Path("t.jsonl").write_bytes(data)
        with says(DataError, *parts):
            read("t.jsonl")

    @pytest.mark.usefixtures("small_blocks")
    def test_later_rows(self, folder: Path) -> None:
        head = "".join(json.dumps({"a": i}) + "\n" for i in range(50))
        Path("t.jsonl").write_text(head + '{"a":"q"}\n')
        with says(DataError, "t.jsonl, row 50: column 'a' is int64 elsewhere", "'q'"):
            read("t.jsonl")
        Path("t.jsonl").write_text(head + '{"a":1,"new":3}\n')
        with says(SchemaError, "t.jsonl: a key 'new' that the first rows lack", "columns="):
            read("t.jsonl")
        assert len(read("t.jsonl", columns=["a"])) == 51


class TestManyFiles:
    def write(self, *tables: dict[str, Any]) -> None:
        for number, table in enumerate(tables, 1):
            pq.write_table(pa.table(table), f"{number}.parquet")

    def test_columns_and_types(self, folder: Path) -> None:
        self.write({"a": [1], "b": ["x"]}, {"b": ["x"], "a": [1], "late": [1]})
        with says(SchemaError, "2.parquet has a column 'late' that 1.parquet lacks"):
            open_source("*.parquet", schema_mode="strict")
        self.write({"a": [1], "b": ["x"]}, {"a": [1]})
        for mode in ("strict", "first"):
            with says(SchemaError, "2.parquet has no column 'b', which 1.parquet has"):
                open_source("*.parquet", schema_mode=mode)
        self.write({"a": [1]}, {"a": [2.5]}, {"a": ["x"]})
        with says(SchemaError, "column 'a' is double in 2.parquet", "in 3.parquet"):
            open_source("*.parquet")
        self.write({"a": [True]}, {"a": [1]})
        with says(SchemaError, "'a' is bool in 1.parquet but int64 in 2.parquet"):
            open_source(["1.parquet", "2.parquet"])

    def test_no_such_column(self, folder: Path) -> None:
        self.write({f"column_{i}": [i] for i in range(30)})
        with says(SchemaError, "'colum_7' in 1.parquet", "(30 in all); did you mean 'column_7'"):
            open_source("1.parquet", columns=["colum_7"])


TWICE = pa.table([[1], [2]], names=["a", "a"])
CELL = "argument must be a string or a real number"


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: TWICE, ("pyarrow.Table has two columns named 'a'",)),
        (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), ("two columns named 'a'",)),
        (lambda: pa.table({}), ("has no columns",)),
        (lambda: {}, ("has no columns",)),
        (lambda: {"a": [1, 2], "b": [1]}, ("column 'b' has 1 rows but column 'a' has 2",)),
        (lambda: {"a": 5}, ("column 'a' is int, not an array",)),
        (lambda: {"a": np.zeros((2, 2))}, ("column 'a' has shape (2, 2)",)),
        (lambda: pd.DataFrame({"a": ["x", None, 1.5]}), ("'a', row 2: '1.5'", "row 0", "'x'")),
        (lambda: {"a": [True, 1]}, ("column 'a', row 1: '1' (int) is a number", "truth value")),
        (lambda: {"a": [2**70]}, ("column 'a', row 0: 1180591620717411303424 does not fit",)),
        (lambda: np.array([[{"f": 1}, 1.0], [2.0, 3.0]], object), ("column 'x0', row 0", CELL)),
        (lambda: np.arange(3), ("Expected 2D array", "1D array", "Reshape your data")),
        (lambda: np.zeros((12, 0)), ("0 feature(s) (shape=(12, 0)) while a minimum of 1 is",)),
        (lambda: np.ones((2, 2), complex), ("Complex data not supported",)),
        (lambda: [[1, 2], [3]], ("rows are not equally long",)),
        (lambda: pytest.importorskip("scipy.sparse").eye(3, format="csr"), ("sparse", "toarray")),
        (lambda: None, ("NoneType cannot be read; pass a path",)),
        (lambda: b"t.csv", ("bytes cannot be read",)),
        (lambda: [], ("the list is empty",)),
        (lambda: iter([]), ("is empty",)),
        (lambda: ["t.csv", 3], ("3 among the paths is no path but int",)),
        (lambda: (i for i in range(3)), ("generator of int", "record batches")),
        (lambda: pl.Series([1]), ("polars.Series", "single column")),
        (lambda: pl.LazyFrame({"a": [1]}).select("z"), ("polars.LazyFrame", "z")),
        (lambda: open_source(TABLE), ("is open already",)),
    ],
)  # fmt: skip
def test_memory_message(make: Callable[[], Any], parts: tuple[str, ...]) -> None:
    with says(DataError, *parts):
        open_source(make())


def test_a_cell_of_another_kind_is_a_type_error_too() -> None:
    with pytest.raises(TypeError, match="argument must be a string or a real number"):
        open_source(np.array([[{"f": 1}, 1.0], [2.0, 3.0]], object))


def test_columns_argument() -> None:
    with says(SchemaError, "columns='a': give a list of names"):
        open_source(TABLE, columns="a")
    with says(SchemaError, "columns=[] selects nothing"):
        open_source(TABLE, columns=[])
    with says(SchemaError, "two columns named 'a'"):
        open_source(TABLE, columns=["a", "a"])


@pytest.mark.parametrize(
    ("later", "parts"),
    [
        ({"a": ["x"]}, ("column 'a' is string in a later batch and int64 before",)),
        ({"b": [1]}, ("column 'a' is missing in a later batch",)),
        ({"a": [1], "b": [1]}, ("a later batch has a column 'b'", "columns=")),
    ],
)
def test_stream_that_changes(later: dict[str, Any], parts: tuple[str, ...]) -> None:
    def stream() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        yield pa.record_batch(later)

    with says(SchemaError, "generator", *parts):
        read(stream())


def test_scanner_is_read_once() -> None:
    source = open_source(ds.dataset(TABLE).scanner())
    source.segments(3)
    with says(DataError, "Scanner can be read only once and has been"):
        source.segments(3)


def seeds() -> dict[str, bytes]:
    """Return small files of every format, in several variants."""
    found = {}

    def add(name: str, write: Callable[[Any], Any]) -> None:
        sink = io.BytesIO()
        write(sink)
        found[name] = sink.getvalue()

    def ipc(new: Any, table: pa.Table, **options: Any) -> Callable[[Any], Any]:
        def write(sink: Any) -> None:
            with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
                writer.write_table(table, max_chunksize=17)

        return write

    encoded = TABLE.set_column(0, "a", TABLE["a"].dictionary_encode())
    add("t.parquet", lambda sink: pq.write_table(TABLE, sink, row_group_size=15))
    add("p.parquet", lambda s: pq.write_table(TABLE, s, use_dictionary=False, compression="NONE"))
    add("t.arrow", ipc(pa.ipc.new_file, TABLE))
    add("d.arrow", ipc(pa.ipc.new_file, encoded, compression="zstd"))
    add("t.arrows", ipc(pa.ipc.new_stream, encoded))
    add("t.csv", lambda sink: pa.csv.write_csv(TABLE, sink))
    add("t.orc", lambda sink: pa.orc.write_table(TABLE, sink))
    found["t.csv.gz"] = gzip.compress(found["t.csv"])
    records = [json.dumps(row) for row in TABLE.slice(0, 9).drop(["c"]).to_pylist()]
    found["t.jsonl"] = "\n".join(records).encode()
    return found


SEEDS = seeds()


@given(
    name=st.sampled_from(sorted(SEEDS)),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    keep=st.one_of(st.just(1.0), st.floats(0, 1)),
)
@example(name="t.parquet", flips=[], keep=1.0)
def test_corrupt_bytes_read_or_raise(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    flips: list[tuple[float, int]],
    keep: float,
) -> None:
    data = bytearray(SEEDS[name])
    for where, value in flips:
        data[int(where * len(data))] = value
    del data[round(keep * len(data)) :]
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(data)
    try:
        found = read(path)
    except DataError as error:
        assert str(error).strip()
        assert "\n" not in str(error)
    else:
        if data == SEEDS[name] and not name.endswith("jsonl"):
            assert len(found) == len(TABLE)


def test_column_that_pyarrow_cannot_read__is_named(tmp_path: Path) -> None:
    """pyarrow reads small files; of several row groups and columns one page is damaged."""
    path = tmp_path / "a.parquet"
    table = pa.table({"a": ["x", "y"] * 500, "b": ["u", "v"] * 500, "y": ["p", "q"] * 500})
    pq.write_table(table, path, row_group_size=500)
    raw = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(1).column(1)
    start = chunk.dictionary_page_offset
    raw[start : start + 24] = bytes(24)
    path.write_bytes(raw)
    with pytest.raises(FileFormatError, match=r"a\.parquet, row group 1, column 'b': "):
        fb.count(path, "y")


COUNTED = """
import sys
import fastbayes as fb

try:
    assert fb.count(sys.argv[1], "y").n_rows == 70_000
except fb.DataError as error:
    print(error)
"""


def test_footer_that_contradicts_itself__does_not_end_the_process(tmp_path: Path) -> None:
    """A column that may be null was made one that may not: its histogram of levels is too long.

    pyarrow reads such a footer, but asked for the column chunk it ends the process.
    """
    path, cases = tmp_path / "t.parquet", 0
    table = pa.table({"y": ["p", "q"] * 35_000, "x": ["a", "b"] * 35_000})
    pq.write_table(table, path, data_page_version="2.0", compression="none")
    blob = bytearray(path.read_bytes())
    for place in range(len(blob) - 8 - pq.read_metadata(path).serialized_size, len(blob) - 8):
        changed = bytearray(blob)
        changed[place] = 0
        try:
            columns = pq.read_metadata(io.BytesIO(changed)).schema
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
        levels = [columns.column(j).max_definition_level for j in range(len(columns))]
        if sorted(levels) != [0, 1] or columns.names != ["y", "x"]:
            continue
        path.write_bytes(changed)
        for kernels in ("always", "never"):
            command = [sys.executable, "-W", "ignore", "-c", COUNTED, str(path)]
            environment = os.environ | {"FASTBAYES_KERNELS": kernels}
            run = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert (run.returncode, run.stderr) == (0, ""), (place, kernels)
        cases += 1
    assert cases == 2


def varint(n: int) -> bytes:
    """Return a number as Thrift's compact protocol writes it."""
    n, found = n << 1, bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


def test_parquet__a_page_that_claims_to_be_large_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow takes as many bytes as the header of a page says, where it reads ahead."""
    monkeypatch.setenv("FASTBAYES_KERNELS", "never")
    path, rows = tmp_path / "t.parquet", pa.table({"x": np.arange(100.0), "y": ["a", "b"] * 50})
    pq.write_table(rows, path, compression="none", use_dictionary=["y"])
    at = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    size = varint(1_400_000_000)
    # type, size, size, and of a data page: values, encoding, encodings of the levels
    header = b"\x15\x00\x15" + size + b"\x15" + size + b"\x2c\x15\xc8\x01\x15\x00\x15\x06\x15\x06"
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(header + b"\x00\x00")
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    with pytest.raises(fb.FileFormatError, match=r"t\.parquet, row group 0"):
        fb.count(path, "y", threads=2)
    assert pool.max_memory() <= max(before, 100_000_000)


NO_FILES_LEFT = """
import os, resource, sys
import fastbayes as fb

on_error, *where = sys.argv[1:]
fb.count(where, "a")  # what is imported and compiled is there
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
taken = []
try:
    while True:
        taken.append(open(os.devnull))
except OSError:
    pass
try:
    print(fb.count(fb.Files(where, on_error=on_error), "a", threads=1).n_rows)
except fb.SystemLimitError as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted by /proc")
@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_no_open_files_left__no_file_is_left_out_for_it(
    tmp_path: Path, suffix: str, on_error: str
) -> None:
    write = {
        "parquet": pq.write_table,
        "csv": pa.csv.write_csv,
        "arrow": pa.feather.write_feather,
    }[suffix]
    names = [f"{tmp_path}/{i}.{suffix}" for i in range(3)]
    for name in names:
        write(TABLE, name)
    command = [sys.executable, "-c", NO_FILES_LEFT, on_error, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == (
        f"{names[0]}: too many open files; raise the limit of open files (ulimit -n) or use fewer "
        "threads\n"
    ), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_not_utf_8__are_named_and_left_out(tmp_path: Path) -> None:
    good, odd = tmp_path / "a.parquet", os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.parquet")
    pq.write_table(TABLE, good)
    Path(odd).write_bytes(good.read_bytes())
    for where in (tmp_path, f"{tmp_path}/*.parquet", odd, [good, odd]):
        with says(FileFormatError, "b\\udcff.parquet: the name is not UTF-8; rename it"):
            open_source(where)
    for where in (tmp_path, f"{tmp_path}/*.parquet"):
        left_out: list[Exception] = []
        source = open_source(where, on_error=left_out.append)
        assert source.n_rows == len(TABLE)
        assert [*map(str, left_out)] == [
            f"{tmp_path}/b\\udcff.parquet: the name is not UTF-8; rename it"
        ]
