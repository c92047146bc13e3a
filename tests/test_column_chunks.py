"""Parquet read by our own kernels: the values that pyarrow gives, from whoever wrote the file."""

from __future__ import annotations

import gc
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

import fastbayes
from fastbayes.core.errors import FileFormatError
from fastbayes.data import column_chunks, filesource
from fastbayes.data.column_chunks import Footer, Footers
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import Source
from fastbayes.data.source import open_source

WRITTEN = Path(__file__).resolve().parents[2] / "shared" / "data" / "parquet"


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")


@pytest.fixture
def by_arrow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the columns that pyarrow reads from now on, as it reads them."""
    names: list[str] = []
    read = filesource.ParquetReader._by_arrow

    def noting(self: Any, columns: list[str], *args: Any) -> Any:
        names.extend(columns)
        return read(self, columns, *args)

    monkeypatch.setattr(filesource.ParquetReader, "_by_arrow", noting)
    return names


def values(path: Path, block_rows: int = 1 << 16, *, merged: bool = False) -> dict[str, list[Any]]:
    source = open_source(str(path))
    if merged:  # row groups together, as they were decoded
        source, block_rows = source.merging(), 1 << 20
    found: dict[str, list[Any]] = {name: [] for name in source.schema.names}
    for segment in source.segments(block_rows):
        for batch in segment.batches():
            batch.validate(full=True)
            assert batch.schema.names == source.schema.names
            for name, column, kind in zip(found, batch.columns, source.schema.types, strict=True):
                assert column.type == kind or pa.types.is_dictionary(kind)
                found[name] += column.to_pylist()
    return found


def check(path: Path, block_rows: int = 1 << 16) -> None:
    """Hold the values of a file against those that pyarrow reads."""
    found = values(path, block_rows)
    expected = pq.read_table(path, coerce_int96_timestamp_unit="us")
    assert list(found) == expected.column_names
    for name in found:
        # as text NaN equals itself, and -0.0 does not equal 0.0
        assert list(map(repr, found[name])) == list(map(repr, expected[name].to_pylist())), name


NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.date32(), pa.time32("ms"), pa.time64("us")),
    *(pa.timestamp("ms"), pa.timestamp("us", "Europe/Vienna"), pa.timestamp("ns")),
    *(pa.duration("us"), pa.bool_()),
]
TEXTS = [pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]


def table(n: int, nulls: float = 0, seed: int = 0) -> pa.Table:
    """Return columns of all types that the kernels read, some of few values, some of many."""
    rng = np.random.default_rng(seed)
    hidden = rng.random(n) < nulls if nulls else None

    def bits(kind: pa.DataType, values: Any) -> pa.Array:
        number = pa.int32() if kind.bit_width == 32 else pa.int64()
        if kind.bit_width < 32:
            number = pa.int8() if kind.bit_width == 8 else pa.int16()
        whole = pa.array(np.asarray(values), mask=hidden).cast(number, safe=False)
        return whole.cast(kind) if pa.types.is_boolean(kind) else whole.view(kind)

    few, many = rng.integers(0, 7, n), rng.integers(0, 2_900_000, n)
    columns = {}
    for kind in NUMBERS:
        columns[f"few {kind}"] = bits(kind, few)
        columns[f"many {kind}"] = bits(kind, many)
    wide = [5, 10**20, -(10**20), 7, -1, 0, 3 - 10**21]
    for name, codes in (("few", few), ("many", np.arange(n) - n // 2)):
        numbers = pa.array(codes, mask=hidden)
        for kind in (pa.decimal128(7, 1), pa.decimal128(18, 2), pa.decimal128(30, 5)):
            columns[f"{name} {kind}"] = numbers.cast(pa.decimal128(30, 5)).cast(kind, safe=False)
        columns[f"{name} half"] = numbers.cast(pa.float64()).cast(pa.float16())
        keys = [int(k).to_bytes(5, "big", signed=True) for k in codes]
        columns[f"{name} key"] = pa.array(keys, pa.binary(5), mask=hidden)
    columns["wide"] = pa.array([Decimal(wide[k]) for k in few], pa.decimal128(22, 0), mask=hidden)
    columns["many double"] = pa.array(rng.standard_normal(n), mask=hidden)
    for name, size in (("few", 7), ("one", 1), ("300", 300), ("many", 70_000)):
        texts = [f"{'äß€'[: k % 4]}{k}" for k in rng.integers(0, size, n)]
        for kind in TEXTS if name == "few" else TEXTS[:1]:
            columns[f"{name} {kind}"] = pa.array(texts, mask=hidden).cast(kind)
    return pa.table(columns)


CODECS = ["none", "snappy", "lz4", "zstd", "gzip", "brotli"]


@pytest.mark.parametrize("nulls", [0, 0.2, 1])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_all_types_and_codecs(
    codec: str, version: str, nulls: float, tmp_path: Path, by_arrow: list[str]
) -> None:
    path = tmp_path / "t.parquet"
    written = table(700, nulls)
    options = {"compression": codec, "data_page_version": version, "row_group_size": 300}
    pq.write_table(written, path, **options, write_page_checksum=codec == "snappy")
    check(path, 128)
    assert by_arrow == []


@pytest.mark.parametrize("use_dictionary", [False, True])
@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("page", [1, 300, 1 << 20])
def test_pages_of_any_size(
    page: int, optional: bool, use_dictionary: bool, tmp_path: Path, by_arrow: list[str]
) -> None:
    written = table(5000, 0.01 if optional else 0, seed=page)
    if not optional:
        written = written.cast(pa.schema([f.with_nullable(False) for f in written.schema]))
    path = tmp_path / "t.parquet"
    pq.write_table(
        written, path, data_page_size=page, write_batch_size=64, use_dictionary=use_dictionary
    )
    check(path, 512)
    assert all("string" in name or "binary" in name for name in by_arrow)
    assert bool(by_arrow) is not use_dictionary


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 63, 64, 65])
def test_few_rows(rows: int, tmp_path: Path, by_arrow: list[str]) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(65, 0.5), path, row_group_size=rows)
    check(path, 16)
    assert by_arrow == []


def test_a_dictionary_that_overflows(tmp_path: Path, by_arrow: list[str]) -> None:
    path = tmp_path / "t.parquet"
    written = table(20_000, 0.1)
    pq.write_table(
        written, path, dictionary_pagesize_limit=4096, data_page_size=2048, write_batch_size=128
    )
    check(path, 1 << 10)
    assert set(by_arrow) == {"many string"}


@pytest.mark.parametrize("batch_bytes", [1, 1 << 14, 1 << 17])
def test_row_groups_in_several_batches(
    batch_bytes: int, tmp_path: Path, by_arrow: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "batch_bytes", batch_bytes)
    monkeypatch.setattr(column_chunks, "LEAST_READ", 100)
    path = tmp_path / "t.parquet"
    pq.write_table(table(3000, 0.3), path, data_page_size=500, write_batch_size=50)
    check(path, 64)
    assert by_arrow == []


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_small_row_groups_come_together(
    threads: int, tmp_path: Path, by_arrow: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there may be many blocks, a piece has several row groups, whatever their types."""
    path = tmp_path / "t.parquet"
    # of different values, so that dictionaries and the widths of indices differ
    parts = [table(40 * (1 + k % 3), 0.3, seed=k // 4) for k in range(40)]
    with pq.ParquetWriter(path, parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part)
    monkeypatch.setattr(Source, "merged", True)
    check(path, 1 << 20)
    assert by_arrow == []
    source = open_source(str(path))

    def sizes(block_rows: int, batch_bytes: int) -> list[int]:
        within = source.within(batch_bytes, threads)
        return [segment.n_rows or 0 for segment in within.segments(block_rows)]

    alone = [part.num_rows for part in parts]
    assert sizes(1 << 16, 1 << 26) == alone
    # no more than fit at once, and as many pieces as keep the threads busy
    assert sizes(1 << 20, 1) == alone
    together = sizes(1 << 20, 1 << 26)
    monkeypatch.setattr(Source, "merged", False)
    assert sizes(1 << 20, 1 << 26) == alone
    assert sum(together) == sum(alone)
    assert len(together) == {1: 4, 2: 11, 16: 40}[threads]  # the last are smaller
    # of few, as many for each thread
    pq.write_table(pa.concat_tables(parts[:2]), path, row_group_size=10)
    few = open_source(str(path)).merging().within(1 << 26, threads)
    assert len([*few.segments(1 << 20)]) == {1: 4, 2: 2, 16: 12}[threads]


def test_what_is_handed_over_stands_beside_the_others(tmp_path: Path, by_arrow: list[str]) -> None:
    n = 3000
    written = table(n, 0.2).select(["few string", "many double", "few int32"])
    written = written.append_column("list", pa.array([[1, 2]] * n))
    written = written.append_column("price", pa.array(range(n)).cast(pa.decimal256(41, 2)))
    written = written.append_column("split", pa.array(np.arange(n) / 7))
    path = tmp_path / "t.parquet"
    pq.write_table(
        written, path, row_group_size=1100, use_dictionary=["few string", "few int32"],
        column_encoding={"split": "BYTE_STREAM_SPLIT"},
    )  # fmt: skip
    check(path, 256)
    assert set(by_arrow) == {"list", "price", "split"}


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_texts_of_which_arrow_makes_no_dictionaries(
    encoding: str, version: str, tmp_path: Path, by_arrow: list[str]
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(
        table(3000, 0.2).select(["few string", "many double"]), path, row_group_size=1100,
        use_dictionary=False, column_encoding={"few string": encoding},
        data_page_version=version,
    )  # fmt: skip
    check(path, 256)
    assert set(by_arrow) == {"few string"}


@pytest.mark.parametrize("use_dictionary", [False, True])
def test_decimals_in_integers_and_instants_in_twelve_bytes(
    use_dictionary: bool, tmp_path: Path, by_arrow: list[str]
) -> None:
    written = table(1000, 0.2)
    names = [name for name in written.column_names if "decimal" in name or "timestamp" in name]
    written = written.select(names)
    path = tmp_path / "t.parquet"
    pq.write_table(
        written, path, store_decimal_as_integer=True, use_deprecated_int96_timestamps=True,
        use_dictionary=use_dictionary, data_page_size=1000,
    )  # fmt: skip
    physical = {pq.read_metadata(path).schema.column(j).physical_type for j in range(len(names))}
    assert physical >= {"INT32", "INT64", "INT96", "FIXED_LEN_BYTE_ARRAY"}
    check(path, 128)
    assert by_arrow == []


@pytest.mark.parametrize("kernels", ["always", "never"])
@pytest.mark.parametrize("nested", [False, True])
def test_instants_in_twelve_bytes_do_not_wrap_around(
    kernels: str, nested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the year 1 to 200,000; what is left of a microsecond is cut off, before 1970 too."""
    monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
    first, last, far = -62_135_596_800_000_000, 253_402_300_799_999_999, 6_249_223_641_600_000_000
    held = {"us": [first, -1, None, 0, last, far], "ns": [-1, 1, None, 1_500, -1_500, 0]}
    wanted = {"us": held["us"], "ns": [-1, 0, None, 1, -2, 0]}
    columns = {unit: pa.array(ticks, pa.timestamp(unit)) for unit, ticks in held.items()}
    table = pa.table(columns)
    if nested:
        table = pa.table({"in": table.to_struct_array()})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    source = open_source(path)
    assert source.schema.types == [pa.timestamp("us")] * 2
    (batch,) = (batch for segment in source.segments(8) for batch in segment.batches())
    found = [column.cast(pa.int64()).to_pylist() for column in batch.columns]
    assert found == [wanted["us"], wanted["ns"]]


@pytest.mark.parametrize("path", sorted(WRITTEN.glob("*.parquet")), ids=lambda path: path.stem)
def test_files_of_other_programs(path: Path) -> None:
    check(path, 512)


def test_polars(tmp_path: Path, by_arrow: list[str]) -> None:
    pl = pytest.importorskip("polars")
    path = tmp_path / "t.parquet"
    frame = {"x": [0.5, None, 2.5] * 999, "s": ["a", "b", None] * 999, "k": [1, 2, 3] * 999}
    for codec in ("zstd", "snappy", "lz4", "gzip", "uncompressed"):
        pl.DataFrame(frame).write_parquet(path, compression=codec, row_group_size=1000)
        check(path)
    assert by_arrow == []


def test_duckdb(tmp_path: Path, by_arrow: list[str]) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "t.parquet"
    rows = "select i % 5 as k, 'v' || i % 7 as s, i / 3 as x, i % 11 = 0 as b from range(5000) t(i)"
    for codec in ("zstd", "snappy", "lz4_raw", "gzip", "brotli", "uncompressed"):
        duckdb.sql(f"copy ({rows}) to '{path}' (format parquet, codec '{codec}')")
        check(path)
    assert by_arrow == []


@pytest.mark.parametrize(
    ("codec", "version", "checked"),
    [("none", "1.0", False), ("snappy", "2.0", False), ("zstd", "1.0", False),
     ("lz4", "1.0", False), ("gzip", "2.0", False), ("snappy", "1.0", True)],
)  # fmt: skip
def test_damaged_bytes_are_refused_or_do_not_matter(
    codec: str, version: str, checked: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What pyarrow refuses we refuse; what we take are the values that pyarrow takes."""
    n = 16_000 if request.config.getoption("--slow") else 60
    written = table(40, 0.2).select(
        ["few string", "300 string", "few int8", "many int64", "few bool", "many double"]
    )
    path = tmp_path / "t.parquet"
    pq.write_table(
        written, path, compression=codec, data_page_version=version, data_page_size=100,
        write_batch_size=10, write_page_checksum=checked, row_group_size=25,
    )  # fmt: skip
    whole = path.read_bytes()
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # of the pages: no footer
    rng = np.random.default_rng(0)
    refused = 0
    for k in range(n):
        damaged = bytearray(whole)
        for place in rng.integers(4, end, rng.integers(1, 4)):
            damaged[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
        path.write_bytes(damaged)
        try:
            found = values(path, 16, merged=k % 2 == 1)
        except (FileFormatError, pa.ArrowInvalid):  # what pyarrow reads is validated here alone
            refused += 1
            continue
        expected = pq.read_table(path, page_checksum_verification=True)
        for name in found:
            assert list(map(repr, found[name])) == list(map(repr, expected[name].to_pylist()))
    assert refused > n // 10


def test_an_error_names_file_row_group_column_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(40).select(["few int8", "few string"]), path, row_group_size=20)
    damaged = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(1).dictionary_page_offset
    damaged[start : start + 40] = b"\xff" * 40
    path.write_bytes(damaged)
    with pytest.raises(FileFormatError) as caught:
        values(path)
    assert str(caught.value) == (
        f"{path}, row group 1, column 'few string': the header of a page makes no sense; write "
        "the file again or leave it out"
    )


def test_small_files_are_read_by_pyarrow(
    tmp_path: Path, by_arrow: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes pyarrow milliseconds does not wait for a compiler."""
    monkeypatch.setenv("FASTBAYES_KERNELS", "auto")
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": ["a", "b"] * 150_000}), path)
    check(path)
    assert by_arrow == ["x"]
    monkeypatch.setattr(filesource, "SMALL_FILES", 300_000)
    check(path)
    assert by_arrow == ["x"]


def some_files(folder: Path, n: int) -> str:
    folder.mkdir()
    for i in range(n):
        rows = pa.table({"x": [*"abca"], "y": [i, i, 1, 2]})
        pq.write_table(rows, folder / f"part-{i}.parquet", row_group_size=2)
    return str(folder)


@pytest.mark.parametrize("how", ["kernels", "by_arrow"])
def test_footers_go_with_the_last_reference(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cycle would keep those of every file of a lake until objects are collected.
    if how == "by_arrow":
        monkeypatch.setattr(column_chunks.Footer, "divide", lambda *_: ([], {}))
    folder = some_files(tmp_path / "lake", 5)
    fastbayes.count(folder, "x", categorical=["y"])  # kernels are compiled
    gc.collect()
    gc.disable()
    try:
        assert fastbayes.count(folder, "x", categorical=["y"]).n_rows == 20
        assert not [o for o in gc.get_objects() if type(o) is pq.FileMetaData]
    finally:
        gc.enable()


def test_footers__what_they_take_is_not_added_up_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which would take quadratic time for thousands of files."""
    folder = Path(some_files(tmp_path / "lake", 60))
    files = [
        DataFile(LocalFileSystem(), str(p), p.name, p.stat().st_size) for p in folder.iterdir()
    ]
    asked: list[int] = []
    nbytes = Footer.nbytes.fget
    assert nbytes is not None
    monkeypatch.setattr(Footer, "nbytes", property(lambda f: asked.append(1) or nbytes(f)))
    for most in (column_chunks.FOOTERS, 20 * Footers()(files[0]).nbytes, 1):
        monkeypatch.setattr(column_chunks, "FOOTERS", most)
        asked.clear()
        footers = Footers()
        for file in files:
            footers(file)
        assert len(files) <= len(asked) <= 3 * len(files)


def test_footers_are_kept_while_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted(Path(some_files(tmp_path / "lake", 6)).iterdir())
    files = [DataFile(LocalFileSystem(), str(p), p.name, p.stat().st_size) for p in paths]
    footers = Footers()
    first = [footers(file) for file in files]
    assert [footers(file) for file in files] == first  # the same objects
    assert [footer.rows for footer in first] == [[2, 2]] * 6
    full = max(footer.nbytes for footer in first)
    # Where there is less room, what pyarrow has read goes first, and is read again when needed.
    monkeypatch.setattr(column_chunks, "FOOTERS", 3 * full)
    footers = Footers()
    first = [footers(file) for file in files]
    assert [footers(file) for file in files] == first
    assert first[1].nbytes < full == first[5].nbytes
    assert first[1].metadata.num_rows == 4
    monkeypatch.setattr(column_chunks, "FOOTERS", full + 2 * (full // column_chunks.PARSED))
    footers = Footers()
    first = [footers(file) for file in files]
    assert [footers(file) for file in files[3:]] == first[3:]
    # What was used last stays, and of two that do not fit the last one does.
    assert footers(files[0]) is not first[0]
    assert footers(files[4]) is first[4]
    assert footers(files[3]) is not first[3]
    monkeypatch.setattr(column_chunks, "FOOTERS", 1)
    last = footers(files[1])
    assert footers(files[1]) is last
    assert footers(files[5]) is not first[5]
