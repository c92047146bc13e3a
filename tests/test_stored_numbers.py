"""Numbers that stand in a Parquet file as they are: where, what is read of them, sums, damage."""

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

import fastbayes as fb
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError
from fastbayes.data.number_chunks import NumberCalls
from fastbayes.data.number_panels import NumberPanels
from fastbayes.data.segments import Segment
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared import pages as p
from fastbayes.scan.repeated_sums import RepeatedSums

# Matrices of few rows, one class: what is fitted does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore::fastbayes.core.errors.FastBayesWarning")


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")


WAYS: dict[str, dict[str, Any]] = {
    "bare": {"compression": "none"},
    "small pages": {"compression": "none", "data_page_size": 8000, "write_batch_size": 100},
    "second version": {"compression": "none", "data_page_version": "2.0"},
    "snappy": {"compression": "snappy"},
    "snappy, second version": {"compression": "snappy", "data_page_version": "2.0"},
    "snappy, small pages": {"compression": "snappy", "data_page_size": 20_000},
}


def table_of(n: int, n_classes: int = 3, seed: int = 0) -> pa.Table:
    """Return numbers of which a compressor makes nothing, or little, and classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    repeats = rng.normal(size=n)
    for first in range(40, n - 500, 65_536):  # some rows again, and one many times
        repeats[first : first + 30] = repeats[first - 40 : first - 10]
        repeats[first + 100 : first + 120] = repeats[first]
    columns = {
        "random": rng.normal(size=n) + y,
        "repeats": repeats,
        "required": rng.normal(size=n),
    }
    table = pa.table(columns | {"y": pa.array(y.astype(str))})
    fields = [f.with_nullable(f.name != "required") for f in table.schema]
    return table.cast(pa.schema(fields))


def written(table: pa.Table, path: Path, **options: Any) -> Path:
    pq.write_table(table, path, **({"use_dictionary": ["y"], "row_group_size": 1 << 20} | options))
    return path


@contextmanager
def stored(path: Path) -> Iterator[tuple[NumberPanels, NumberCalls, list[str]]]:
    """Open the numbers of the first row group."""
    (segment, *_) = open_source(str(path)).within(1 << 30, 1).segments(1 << 16)
    names = [f.name for f in pq.read_schema(path) if f.type == pa.float64()]
    with segment.apart(names) as (_, numbers):
        calls = numbers.again(together=True)
        yield NumberPanels(calls), calls, names


@pytest.mark.parametrize("way", WAYS)
def test_any_rows_are_those_of_pyarrow(way: str, tmp_path: Path) -> None:
    table = table_of(90_000)
    path, rng = written(table, tmp_path / "t.parquet", **WAYS[way]), np.random.default_rng(1)
    kernels = dispatch.compiled_module("reading.stored")
    with stored(path) as (found, calls, names):
        n_stretches = calls.columns[:, p.STRETCHES]
        assert not found.whole
        assert n_stretches[1] > n_stretches[0] or "snappy" not in way
        for first, n in [(0, 90_000), (89_999, 1), *rng.integers(0, 45_000, (40, 2)).tolist()]:
            out = np.zeros((len(names), 8 * n + kernels.SPARE), np.uint8)
            places, left = np.zeros(len(names), np.uint64), np.zeros(1, np.int64)
            none = dispatch.readonly(np.zeros(len(names), np.uint64))
            how = first // 1000, 1000, first % 1000, n
            kernels.read_rows(calls.columns, found.arrays[1], *how, none, out, places, left)
            assert not left.any()
            for c, name in enumerate(names):
                begin = int(places[c]) - out[c].ctypes.data
                values = out[c, begin : begin + 8 * n].tobytes()
                assert values == table[name].to_numpy()[first : first + n].tobytes()
        kernels.read_rows(calls.columns, found.arrays[1], 0, 1, 89_990, 30, none, out, places, left)
        assert left[0] == 3 * 20 * 8  # what is not there


def test_what_does_not_stand_as_it_is(tmp_path: Path) -> None:
    n, rng = 30_000, np.random.default_rng(0)
    nulls = pa.array(rng.normal(size=n), mask=np.arange(n) == n - 1)
    table = table_of(n).append_column("nulls", nulls)
    table = table.append_column("rounded", pa.array(rng.normal(size=n).round(1)))

    def whole(**options: Any) -> list[str]:
        with stored(written(table, tmp_path / "t.parquet", **options)) as (found, _, names):
            return [names[c] for c in found.whole]

    assert whole(compression="none") == ["nulls"]
    assert whole(compression="snappy") == ["nulls", "rounded"]
    everything = ["random", "repeats", "required", "nulls", "rounded"]
    assert whole(compression="none", write_page_checksum=True) == everything
    assert whole(compression="lz4") == everything
    assert whole(compression="none", data_page_size=300, write_batch_size=10) == everything


# -- sums ---------------------------------------------------------------------------------------


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether calls made the sums of a row group, of one after the other."""
    found: list[bool] = []
    end = RepeatedSums.end

    def noting(self: RepeatedSums) -> Any:
        sums = end(self)
        assert isinstance(self.reader, NumberPanels)
        found.append(sums is not None)
        return sums

    monkeypatch.setattr(RepeatedSums, "end", noting)
    return found


def scatter(path: Path, threads: int = 1) -> dict[str, bytes]:
    stats = fb.GaussianBayes(threads=threads).fit(path, "y").statistics_
    return {key: array.tobytes() for key, array in stats.scatter.arrays().items()}


def decoded_at_once(path: Path) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "apart", lambda self, _: nullcontext((self.batches(), None)))
        return scatter(path)


@pytest.mark.parametrize("n_classes", [1, 3, 9])
@pytest.mark.parametrize("way", WAYS)
def test_sums_are_those_of_rows_decoded_at_once(
    way: str, n_classes: int, ends: list[bool], tmp_path: Path
) -> None:
    n = 3 * (BLOCK_ROWS + 301)
    table = table_of(n, n_classes)
    for groups in (1, 3):
        options = WAYS[way] | {"row_group_size": n // groups}
        path = written(table, tmp_path / "t.parquet", **options)
        expected = decoded_at_once(path)
        ends.clear()
        for threads in (1, 2, 4):
            assert scatter(path, threads) == expected
        assert all(ends)
        assert len(ends) >= 3 * groups


def test_columns_that_do_not_stand_as_they_are_take_part(ends: list[bool], tmp_path: Path) -> None:
    n, rng = 2 * BLOCK_ROWS + 77, np.random.default_rng(0)
    table = table_of(n).append_column("rounded", pa.array(rng.normal(size=n).round(1)))
    path = written(table, tmp_path / "t.parquet", compression="snappy", row_group_size=n // 2)
    expected = decoded_at_once(path)
    ends.clear()
    assert scatter(path) == expected
    assert all(ends)
    assert len(ends) > 1
    assert scatter(path, 4) == expected


def test_row_groups_of_which_one_column_stands_otherwise(ends: list[bool], tmp_path: Path) -> None:
    n, rng = 60_000, np.random.default_rng(0)
    some = rng.normal(size=n)
    some[20_000:40_000] = some[20_000:40_000].round(1)
    table = table_of(n).append_column("some", pa.array(some))
    path = written(table, tmp_path / "t.parquet", compression="snappy", row_group_size=20_000)
    expected = decoded_at_once(path)
    ends.clear()
    assert scatter(path) == expected
    assert set(ends) == {True, False}


@pytest.mark.parametrize("case", ["nan", "null", "first row far away", "class from the second on"])
def test_rows_that_calls_do_not_add(case: str, ends: list[bool], tmp_path: Path) -> None:
    n = BLOCK_ROWS + 5000
    table = table_of(n, 9)
    x, y = table["random"].to_numpy().copy(), table["y"].to_pylist()
    mask = np.zeros(n, np.bool_)
    if case == "nan":
        x[n - 7] = np.nan
    elif case == "null":
        mask[7] = True
    elif case == "first row far away":
        x[0] = 1e9
    else:
        y = ["0" if r < BLOCK_ROWS else value for r, value in enumerate(y)]
    table = table.set_column(0, "random", pa.array(x, mask=mask)).set_column(3, "y", pa.array(y))
    path = written(table, tmp_path / "t.parquet", compression="none")
    expected = decoded_at_once(path)
    ends.clear()
    assert scatter(path) == expected == scatter(path, 3)
    assert not any(ends)


def test_an_infinite_number_is_refused_with_its_row(tmp_path: Path) -> None:
    table = table_of(150_000)
    x = table["random"].to_numpy().copy()
    x[140_001] = np.inf
    path = written(
        table.set_column(0, "random", pa.array(x)), tmp_path / "t.parquet", row_group_size=70_000
    )
    with pytest.raises(DataError, match=r"column 'random', row 140001 of .*t.parquet: value inf"):
        fb.GaussianBayes().fit(path, "y")


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["bare", "snappy", "second version", "snappy, small pages"])
def test_damaged_bytes_mean_what_they_mean_to_the_page_reader(way: str, tmp_path: Path) -> None:
    """Headers, levels and tags are hit more often than values."""
    table = table_of(20_000).select(["repeats", "required", "y"])
    path = written(table, tmp_path / "t.parquet", **WAYS[way])
    whole, rng = path.read_bytes(), np.random.default_rng(len(way))
    with stored(path) as (found, calls, _):
        stretches = found.arrays[1]
        places = [
            place - back
            for c in range(2)
            for place in stretches[c, : calls.columns[c, p.STRETCHES], 0].tolist()
            for back in range(1, 60)
        ]

    def outcome(count: Any) -> Any:
        try:
            return count(path)
        except DataError:
            return None

    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.integers(1, 3)):
            damaged[max(places[rng.integers(len(places))], 4)] = rng.integers(256)
        path.write_bytes(damaged)
        assert outcome(scatter) == outcome(decoded_at_once)


def test_a_file_that_is_cut_off_while_it_is_read(tmp_path: Path) -> None:
    path = written(table_of(90_000), tmp_path / "t.parquet", compression="none")
    kernels = dispatch.compiled_module("reading.stored")
    with stored(path) as (found, calls, names):
        os.truncate(path, 300_000)
        out = np.zeros((len(names), 8 * 90_000 + kernels.SPARE), np.uint8)
        places, left = np.zeros(len(names), np.uint64), np.zeros(1, np.int64)
        none = dispatch.readonly(np.zeros(len(names), np.uint64))
        kernels.read_rows(calls.columns, found.arrays[1], 0, 1, 0, 90_000, none, out, places, left)
        assert left[0] > 0


# Fields of Thrift's compact protocol: a page of values, and the bytes that it takes when it is
# decompressed and in the file; of its own structure the rows, plain, levels in runs.
def page_of(n: int, raw: int, body: bytes) -> bytes:
    def number(value: int) -> bytes:
        value, found = 2 * value, b""
        while value > 127:
            found, value = found + bytes([value & 127 | 128]), value >> 7
        return found + bytes([value])

    sizes = b"\x15" + number(raw) + b"\x15" + number(len(body))
    own = b"\x2c\x15" + number(n) + b"\x15\x00\x15\x06\x15\x06\x00"
    return b"\x15\x00" + sizes + own + b"\x00" + body


@pytest.mark.parametrize("extra", [b"", b"\x00", b"\x00\xff\xff\xff"])
def test_bytes_behind_the_last_tag_are_not_passed_over(extra: bytes, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=5)
    body = bytes([40, 39 << 2]) + values.tobytes() + extra
    assert stretches_of(page_of(5, 40, body), 5, tmp_path, p.SNAPPY) == (0 if extra else 1)


def test_a_page_without_rows_is_left_to_the_page_reader(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=5).tobytes()
    assert stretches_of(page_of(5, 40, values), 5, tmp_path, p.STORED) == 1
    both = page_of(0, 0, b"") + page_of(5, 40, values)
    assert stretches_of(both, 5, tmp_path, p.STORED) == 0


def stretches_of(chunk: bytes, rows: int, folder: Path, codec: int) -> int:
    """Return how many stretches are listed of a chunk that is all of a file."""
    (folder / "chunk").write_bytes(chunk)
    columns = np.zeros((1, p.N_COLUMN), np.int64)
    columns[0, [p.MORE, p.ROWS, p.KIND, p.CODEC]] = len(chunk), rows, p.NUMBERS, codec
    columns[0, [p.WIDTH, p.UNIT, p.FOUND]] = 8, 8, -1
    with (folder / "chunk").open("rb") as file:
        columns[0, p.FILE] = file.fileno()
        stretches = np.zeros((1, 8, 2), np.int64)
        dispatch.compiled_module("reading.stored").list_stretches(columns, stretches)
    return int(columns[0, p.STRETCHES])
