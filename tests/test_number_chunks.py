"""Numbers of Parquet files, decoded block by block: values, damage, sums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracles import pages as plain

import fastbayes as fb
from fastbayes.core.errors import DataError, FileFormatError
from fastbayes.data import filesource, number_chunks
from fastbayes.data.segments import Segment
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.models.estimator import base
from fastbayes.scan import engine, row_blocks


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")


@pytest.fixture
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have plain Python read the numbers where that is asked for."""
    if request.param == "plain":
        modules, compiled = {"reading.pages": plain}, dispatch.compiled_module
        monkeypatch.setattr(
            dispatch, "compiled_module", lambda name: modules.get(name) or compiled(name)
        )


def numbers(n: int, seed: int = 0, infinite: bool = False) -> pa.Table:
    """Return columns of numbers of all kinds, and a text that stands beside them."""
    rng = np.random.default_rng(seed)
    rounded = rng.normal(size=n).round(1)
    odd = rng.normal(size=n)
    odd[::5] = np.nan
    if infinite:
        odd[::7] = -np.inf
    columns = {
        "random": pa.array(rng.normal(size=n)),
        "rounded": pa.array(rounded),
        "constant": pa.array(np.full(n, 0.5)),
        "odd": pa.array(odd),
        "few nulls": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.01),
        "many nulls": pa.array(rounded, mask=rng.random(n) < 0.9),
        "nulls at last": pa.array(rounded, mask=np.arange(n) > n // 2),
        "all null": pa.nulls(n, pa.float64()),
        "required": pa.array(rng.normal(size=n)),
        "text": pa.array(["a", "b", "c"] * (n // 3 + 1))[:n],
    }
    table = pa.table(columns)
    fields = [f.with_nullable(f.name != "required") for f in table.schema]
    return table.cast(pa.schema(fields))


# How numbers are stored: as they are, in dictionaries, and plain behind these once they are full.
STORED: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": ["text", "y", "y with gaps"]},
    "coded": {"use_dictionary": True},
    "both": {"use_dictionary": True, "dictionary_pagesize_limit": 2500},
}


def written(table: pa.Table, path: Path, stored: str = "plain", **options: Any) -> Path:
    pq.write_table(table, path, **STORED[stored], **options)
    return path


def late(path: Path) -> list[str]:
    return [field.name for field in open_source(str(path)).schema if field.type == pa.float64()]


def bits(columns: list[np.ndarray]) -> list[bytes]:
    """Return what numbers are, NaN being alike."""
    return [np.where(np.isnan(x), np.nan, x).tobytes() for x in columns]


def expected(path: Path, group: int) -> list[np.ndarray]:
    parquet = pq.ParquetFile(path, page_checksum_verification=True)
    table = parquet.read_row_group(group, late(path))
    return [column.to_numpy().astype(float) for column in table.columns]


def read_all(path: Path, step: int, threads: int = 1) -> Iterator[list[np.ndarray]]:
    """Yield the numbers of each row group, read so many rows at a time."""
    names = late(path)
    for segment in open_source(str(path)).within(1 << 26, threads).segments(1 << 16):
        with segment.apart(names) as (batches, found):
            assert found is not None
            assert list(found.names) == names
            n = sum(batch.num_rows for batch in batches)
            assert n == segment.n_rows
            parts = []
            for first in range(0, n, step):
                columns, odd = found.read(first, min(step, n - first))
                parts.append([column.copy() for column in columns])
                assert odd.tolist() == [not np.isfinite(column).all() for column in columns]
            yield [np.concatenate(column) for column in zip(*parts, strict=True)]


@pytest.mark.parametrize("reader", ["compiled", "plain"], indirect=True)
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "lz4"])
@pytest.mark.parametrize("stored", STORED)
def test_values_are_those_of_pyarrow(
    stored: str, codec: str, version: str, checked: bool, reader: None, tmp_path: Path
) -> None:
    path = written(
        numbers(3000, infinite=True), tmp_path / "t.parquet", stored, compression=codec,
        data_page_version=version, data_page_size=700, write_batch_size=50, row_group_size=1300,
        write_page_checksum=checked,
    )  # fmt: skip
    for group, columns in enumerate(read_all(path, 256)):
        assert bits(columns) == bits(expected(path, group))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("step", [1 << 16, 700, 7])
def test_pages_that_only_move_and_others_in_one_column(
    step: int, checked: bool, version: str, tmp_path: Path
) -> None:
    rng, n = np.random.default_rng(3), 4000
    random, packed, unknown = rng.normal(size=(3, n))
    packed[1000:1150] = packed[2900] = 0.0
    missing = np.zeros(n, np.bool_)
    missing[[1020, 1021, 2000]] = True
    table = pa.table(
        {
            "random": random,
            "packed": packed,
            "few nulls": pa.array(unknown, mask=missing),
            "text": ["a"] * n,
        }
    )
    path = written(
        table, tmp_path / "t.parquet", data_page_size=400, write_batch_size=50,
        data_page_version=version, write_page_checksum=checked,
    )  # fmt: skip
    group = pq.ParquetFile(path).metadata.row_group(0)
    # The headers of their pages take more than is won by packing some of them.
    assert all(group.column(i).total_compressed_size >= 8 * n for i in range(3))
    for threads in (1, 3):
        (columns,) = read_all(path, step, threads)
        assert bits(columns) == bits(expected(path, 0))


@pytest.mark.parametrize("page", [1, 100, 5000, 10**6])
@pytest.mark.parametrize("step", [1 << 16, 1000, 7])
@pytest.mark.parametrize("stored", STORED)
def test_pages_and_blocks_of_any_size(stored: str, page: int, step: int, tmp_path: Path) -> None:
    path = written(
        numbers(4000), tmp_path / "t.parquet", stored, data_page_size=page,
        write_batch_size=min(page, 999),
    )  # fmt: skip
    (columns,) = read_all(path, step)
    assert bits(columns) == bits(expected(path, 0))


@pytest.mark.parametrize("distinct", [1, 8, 24, 29, 256, 257, 65_536, 65_537])
def test_dictionaries_of_any_size(
    distinct: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(number_chunks, "MOST_ROWS", 30_000)  # pages have 20,000
    rng = np.random.default_rng(distinct)
    values = rng.permutation(np.tile(rng.normal(size=distinct), -(-70_000 // distinct))[:70_000])
    missing = pa.array(values, mask=rng.random(70_000) < 0.5)
    table = pa.table({"all": values, "some": missing, "text": ["a"] * 70_000})
    path = written(table, tmp_path / "t.parquet", "coded", dictionary_pagesize_limit=1 << 20)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).has_dictionary_page
    (columns,) = read_all(path, 1 << 16)
    assert bits(columns) == bits(expected(path, 0))


@pytest.mark.parametrize("stored", STORED)
def test_memory_that_is_too_small_grows(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(number_chunks, "READ_BYTES", 5000)
    monkeypatch.setattr(number_chunks, "FEW_ROWS", 0)
    rooms = number_chunks._Rooms(50, 5000, 2500, 16)
    monkeypatch.setattr(number_chunks, "_rooms_for", lambda _: rooms)
    path = written(
        numbers(4000), tmp_path / "t.parquet", stored, data_page_size=3000, write_batch_size=9
    )
    (columns,) = read_all(path, 50)
    assert bits(columns) == bits(expected(path, 0))


@pytest.mark.parametrize("n_threads", [1, 2, 20])
@pytest.mark.parametrize("stored", STORED)
def test_rows_are_read_in_any_order_and_by_threads(
    stored: str, n_threads: int, tmp_path: Path
) -> None:
    path = written(
        numbers(2000), tmp_path / "t.parquet", stored, data_page_size=999, write_batch_size=50
    )
    names, rng = late(path), np.random.default_rng(0)
    source = open_source(str(path)).within(1 << 26, n_threads)
    (segment,) = source.segments(1 << 16)
    whole = expected(path, 0)
    with segment.apart(names) as (_, found):
        for first, last in np.sort(rng.integers(0, 2000, (20, 2))).tolist():
            columns, _ = found.read(first, last - first)
            assert bits(columns) == bits([column[first:last] for column in whole])
        with pytest.raises(FileFormatError, match="fewer rows than the row group"):
            found.read(1990, 11)


def test_rows_stay_while_threads_read_the_next_ones(tmp_path: Path) -> None:
    path = written(numbers(2000), tmp_path / "t.parquet", data_page_size=999, write_batch_size=50)
    (segment,) = open_source(str(path)).within(1 << 26, 2).segments(1 << 16)
    whole = expected(path, 0)
    with segment.apart(late(path)) as (_, found):
        for first in range(0, 2000, 250):
            columns, odd = found.read(first, 250)
            found._end()  # the next ones are there
            assert bits(columns) == bits([column[first : first + 250] for column in whole])
            assert odd.tolist() == [not np.isfinite(column).all() for column in columns]
        assert not found._begun


def test_what_is_not_read_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other codecs, other types, numbers alone, pages of too many rows, too large dictionaries."""

    def found(table: pa.Table, **options: Any) -> list[str]:
        pq.write_table(table, tmp_path / "t.parquet", **options)
        (segment,) = open_source(str(tmp_path / "t.parquet")).segments(1 << 16)
        with segment.apart(late(tmp_path / "t.parquet")) as (batches, apart):
            names = [] if apart is None else list(apart.names)
            for batch in batches:
                assert batch.schema.names == [n for n in table.column_names if n not in names]
        return names

    some = numbers(500).select(["random", "text"])
    assert found(some, use_dictionary=False) == ["random"]
    assert found(some) == ["random"]
    assert found(some, compression="zstd") == []
    assert found(some.select(["random"]), use_dictionary=False) == []
    alone = numbers(500).select(["random", "rounded", "odd"])
    assert found(alone) == ["rounded", "odd"]  # the first one tells how many rows there are
    single = some.append_column("single", some["random"].cast(pa.float32()))
    assert found(single, use_dictionary=False) == ["random"]
    split = {"column_encoding": {"random": "BYTE_STREAM_SPLIT"}}
    assert found(some, use_dictionary=False, **split) == []
    monkeypatch.setattr(number_chunks, "MOST_ROWS", 100)
    assert found(some, use_dictionary=False, data_page_size=400, write_batch_size=10) == ["random"]
    assert found(some, use_dictionary=False) == []
    monkeypatch.setattr(number_chunks, "MOST_ROWS", 500)
    monkeypatch.setattr(number_chunks, "MOST_BYTES", 5000)
    assert found(some) == ["random"]
    monkeypatch.setattr(number_chunks, "MOST_BYTES", 3999)  # of 500 numbers
    assert found(some) == []


@pytest.mark.parametrize("reader", ["compiled", "plain"], indirect=True)
@pytest.mark.parametrize(
    ("codec", "version", "checked"),
    [("none", "1.0", False), ("snappy", "1.0", False), ("lz4", "2.0", False),
     ("none", "2.0", True)],
)  # fmt: skip
@pytest.mark.parametrize("stored", STORED)
def test_damaged_bytes_are_refused_or_do_not_matter(
    stored: str, codec: str, version: str, checked: bool, reader: None, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """What pyarrow refuses we refuse; what we take are the values that pyarrow takes."""
    n = 2_000 if request.config.getoption("--slow") else 100
    table = numbers(60).select(["random", "few nulls", "many nulls", "required", "text"])
    path = written(
        table, tmp_path / "t.parquet", stored, compression=codec, data_page_version=version,
        data_page_size=100, write_batch_size=7, write_page_checksum=checked,
    )  # fmt: skip
    whole = path.read_bytes()
    end = pq.read_metadata(path).row_group(0).column(4).dictionary_page_offset
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(n):
        damaged = bytearray(whole)
        for place in rng.integers(4, end, rng.integers(1, 4)):
            damaged[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
        path.write_bytes(damaged)
        try:
            (columns,) = read_all(path, 16)
        except FileFormatError:
            refused += 1
            continue
        assert bits(columns) == bits(expected(path, 0))
    assert refused > n // 10


@pytest.mark.parametrize("threads", [1, 2])
def test_what_only_pyarrow_can_tell(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels that know of fewer values than the page holds: pyarrow takes the first ones."""
    table = pa.table(
        {"x": pa.array([0.5, None, 1.5] * 6), "y": pa.array([1.0] * 18), "text": ["a"] * 18}
    )
    path = written(table, tmp_path / "t.parquet", compression="none")
    whole = bytearray(path.read_bytes())
    at = whole.index(bytes([4, 0, 0, 0, 3 << 1 | 1]))
    assert whole[at + 5] == 0b01101101
    whole[at + 5] = 0b01101100
    path.write_bytes(whole)
    asked: list[str] = []
    read = filesource.ParquetReader._by_arrow

    def noting(self: Any, names: list[str], *args: Any) -> Any:
        asked.extend(names)
        return read(self, names, *args)

    monkeypatch.setattr(filesource.ParquetReader, "_by_arrow", noting)
    theirs = expected(path, 0)
    (columns,) = read_all(path, 5, threads)
    assert bits(columns) == bits(theirs)
    assert np.isnan(columns[0][0])
    assert asked == ["x"]


def test_an_error_names_file_row_group_column_and_remedy(tmp_path: Path) -> None:
    path = written(numbers(40), tmp_path / "t.parquet", row_group_size=20)
    damaged = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(1).data_page_offset
    damaged[start : start + 20] = b"\xff" * 20
    path.write_bytes(damaged)
    with pytest.raises(FileFormatError) as caught:
        fb.count(path, "text")
    assert str(caught.value) == (
        f"{path}, row group 1, column 'rounded': the header of a page makes no sense; write "
        "the file again or leave it out"
    )


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    path = written(numbers(4000), tmp_path / "t.parquet", data_page_size=999, write_batch_size=50)
    (segment,) = open_source(str(path)).within(1 << 26, 1).segments(1 << 16)
    with segment.apart(late(path)) as (_, found):
        found.read(0, 50)
        path.write_bytes(path.read_bytes()[:999])
        with pytest.raises(FileFormatError, match=r"column 'random': the file ends within it"):
            found.read(50, 3950)


# -- what is counted ----------------------------------------------------------------------------


@pytest.fixture(params=STORED)
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return numbers with classes and weights, some missing, in row groups of several blocks."""
    table, rng = numbers(5000), np.random.default_rng(1)
    for name, hidden in (("y", 0.0), ("y with gaps", 0.1)):
        values = rng.integers(0, 6, 5000).astype(str)
        table = table.append_column(name, pa.array(values, mask=rng.random(5000) < hidden))
    weight = rng.integers(0, 4, 5000) / 2.0
    weight[256:512] = 0.0  # a whole block
    table = table.append_column("weight", pa.array(weight))
    table = table.append_column("single", table["random"].cast(pa.float32()))
    table = table.append_column("price", table["rounded"].cast(pa.decimal128(9, 2)))
    return written(
        table, tmp_path / "rows.parquet", request.param, row_group_size=2100, data_page_size=900,
        write_batch_size=60,
    )  # fmt: skip


def counted(path: Path, names: list[str], **options: Any) -> dict[str, bytes]:
    stats = fb.count(path, statistics=names, **options)
    return {
        f"{name}.{key}": array.tobytes()
        for name in names
        for key, array in getattr(stats, name).arrays().items()
    }


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("names", [["moments"], ["moments", "scatter"], ["sketches"]])
@pytest.mark.parametrize(
    "options",
    [
        {"target": "y", "exclude": ["y with gaps", "weight"]},
        {"target": "y with gaps", "exclude": ["y", "weight"]},
        {"target": "y", "exclude": ["y with gaps", "weight"], "sample_weight": "weight"},
    ],
    ids=["y", "gaps", "weight"],
)
def test_sums_are_those_of_rows_decoded_at_once(
    options: dict[str, Any], names: list[str], threads: int, rows: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for module in (engine, row_blocks, filesource):
        monkeypatch.setattr(module, "BLOCK_ROWS", 256)
    apart, opened = Segment.apart, []

    def noting(self: Segment, wanted: list[str]) -> Any:
        opened.append(wanted)
        return apart(self, wanted)

    options = dict(options)
    excluded = [*options.pop("exclude"), options["target"]]
    columns = [name for name in pq.read_schema(rows).names if name not in excluded]
    monkeypatch.setattr(Segment, "apart", noting)
    found = counted(rows, names, columns=columns, threads=threads, **options)
    assert all(len(wanted) > 8 for wanted in opened)
    monkeypatch.setattr(Segment, "apart", lambda self, _: nullcontext((self.batches(), None)))
    assert found == counted(rows, names, columns=columns, threads=1, **options)


NUMBERS = ["random", "rounded", "odd", "few nulls", "many nulls", "nulls at last", "required"]


def scored(path: Path, model: Any, out: Path) -> list[bytes]:
    """Return posteriors, classes, and what is written, with a number that is copied."""
    fb.predict_to(model, path, out, proba=True, keys=["odd"], force=True)
    return [
        model.predict_proba(path).tobytes(),
        str(model.predict(path).tolist()).encode(),
        out.read_bytes(),
    ]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [NUMBERS, [*NUMBERS[:3], "text"]], ids=["numbers", "mixed"])
@pytest.mark.parametrize("kind", [fb.NaiveBayes, fb.GaussianBayes, fb.LogisticRegression])
def test_posteriors_are_those_of_rows_decoded_at_once(
    kind: Any, columns: list[str], threads: int, rows: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if kind is fb.GaussianBayes:
        columns = ["random", "rounded", "few nulls", "required"]
    apart, opened = Segment.apart, []

    @contextmanager
    def noting(self: Segment, wanted: list[str]) -> Iterator[Any]:
        with apart(self, wanted) as (batches, found):
            opened.append(found is not None)
            yield batches, found

    def fitted() -> Any:
        return kind(columns=columns, threads=threads).fit(rows, "y")

    monkeypatch.setattr(Segment, "apart", noting)
    model = fitted()
    for module in (engine, row_blocks, filesource, base):
        monkeypatch.setattr(module, "BLOCK_ROWS", 256)
    late = scored(rows, model, tmp_path / "out.parquet")
    assert all(opened)
    assert len(opened) >= 9  # three row groups, whose posteriors are asked for three times
    monkeypatch.setattr(Segment, "apart", lambda self, _: nullcontext((self.batches(), None)))
    assert late == scored(rows, model, tmp_path / "out.parquet")
    monkeypatch.undo()
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    monkeypatch.setattr(Segment, "apart", lambda self, _: nullcontext((self.batches(), None)))
    assert late[0] == fitted().predict_proba(pq.read_table(rows)).tobytes()


def test_an_infinite_number_is_refused_with_its_row_at_prediction(tmp_path: Path) -> None:
    z, x = np.zeros((2, 150_000))
    model = fb.NaiveBayes().fit({"x": np.arange(4.0), "z": z[:4], "y": [*"abab"]}, "y")
    x[140_001] = np.inf
    pq.write_table(pa.table({"z": z, "x": x}), tmp_path / "t.parquet", row_group_size=70_000)
    for predict in (model.predict_proba, lambda p: fb.predict_to(model, p, tmp_path / "o.csv")):
        with pytest.raises(DataError, match=r"column 'x', row 140001 of .*t.parquet: value inf is"):
            predict(tmp_path / "t.parquet")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system lists no open files")
@pytest.mark.parametrize("column", ["z", "x"])
def test_an_error_that_is_kept_holds_no_file(column: str, tmp_path: Path) -> None:
    """Of the column that is decoded before, or of one that is decoded late."""
    few = {"z": np.arange(4.0), "x": np.arange(4.0), "y": [*"abab"]}
    model, path = fb.NaiveBayes(threads=1).fit(few, "y"), tmp_path / "t.parquet"
    numbers = {"z": np.zeros(150_000), "x": np.zeros(150_000), "y": [*"ab"] * 75_000}
    numbers[column][140_001] = np.inf
    pq.write_table(pa.table(numbers), path, row_group_size=70_000)
    held, before = [], len(os.listdir("/proc/self/fd"))
    for work in (
        lambda: model.predict_proba(path),
        lambda: fb.predict_to(model, path, tmp_path / "o.parquet"),
        lambda: fb.count(path, "y", threads=1),
        lambda: fb.LogisticRegression(threads=1).fit(path, "y"),
    ):
        with pytest.raises(DataError, match="infinite") as found:
            work()
        held.append(found)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_infinite_number_is_refused_with_its_row(tmp_path: Path) -> None:
    x = np.zeros(150_000)
    x[[2, 140_001]] = np.inf  # the first one has no class
    table = pa.table({"x": x, "y": ["a", "b", None] * 50_000})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, use_dictionary=["y"], row_group_size=70_000)
    with pytest.raises(DataError, match=r"column 'x', row 140001 of .*t.parquet: value inf is inf"):
        fb.count(path, "y")


def test_numbers_that_are_bins_too__are_decoded_at_once(rows: Path) -> None:
    """A comparison counts each number twice: as it is, and by the bin that it falls into."""
    names = ["random", "rounded", "few nulls", "text"]
    options: dict[str, Any] = {"columns": names, "models": ["naive-bayes", "naive-bayes-bins"]}
    options["validation"] = "leave_one_out"  # folds by place are those of segments
    found = fb.compare(rows, "y", **options)
    table = pq.read_table(rows, columns=[*names, "y"])
    expected = fb.compare(table, "y", **options)
    assert [entry.reason for entry in found.entries] == ["", ""]
    for ours, theirs in zip(found.entries, expected.entries, strict=True):
        assert ours.name == theirs.name
        probabilities = [entry.model.predict_proba(table) for entry in (ours, theirs)]
        np.testing.assert_allclose(*probabilities, rtol=1e-9)
        assert ours.figures.log_loss == pytest.approx(theirs.figures.log_loss, rel=1e-12)
