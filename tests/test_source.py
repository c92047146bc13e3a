"""Every kind of input gives the same rows, in blocks of an exact size."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.errors import DataError, FastBayesWarning, SchemaError
from fastbayes.core.picks import Selection
from fastbayes.data import text
from fastbayes.data.segments import SEGMENT_BLOCKS, reblock
from fastbayes.data.source import Source, open_source
from fastbayes.data.text import blocks, cut_rows
from fastbayes.models.estimator import inputs

BLOCK = 3
TABLE = pa.table(
    {
        "a": ["x", "y", None, "z", "x", "y", "None", "é", "x"],
        "b": [1, 2, None, 4, 5, 6, 7, 8, 9],
        "c": [1.5, -2.25, 3.5, None, 5.5, 6.5, 7.5, 8.5, 9.5],
        "d": [True, False, None, True, True, False, True, False, True],
    }
)
ROWS = TABLE.to_pylist()


def batches(source: Source, block_rows: int = BLOCK) -> list[pa.RecordBatch]:
    """Read everything and check what every source promises."""
    found = []
    for index, segment in enumerate(source.segments(block_rows)):
        assert segment.index == index
        own = list(segment.batches())
        assert all(batch.num_rows == block_rows for batch in own[:-1])
        assert all(0 < batch.num_rows <= block_rows for batch in own)
        if segment.n_rows is not None:
            assert segment.n_rows == sum(batch.num_rows for batch in own)
        for batch in own:
            batch.validate(full=True)
            assert batch.schema.names == source.schema.names
        found += own
    if source.n_rows is not None:
        assert source.n_rows == sum(batch.num_rows for batch in found)
    return found


def rows(source: Source, block_rows: int = BLOCK) -> list[dict[str, Any]]:
    return [row for batch in batches(source, block_rows) for row in batch.to_pylist()]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Compare rows; what was null may have become NaN."""
    return [{k: None if v != v else v for k, v in row.items()} for row in found] == wanted


class OnlyStream:
    """What a foreign library offers: no more than the protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


class Batches:
    """An iterable that starts anew each time."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(TABLE.to_batches(max_chunksize=2))


IN_MEMORY: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "chunked table": lambda: pa.Table.from_batches(TABLE.to_batches(max_chunksize=2)),
    "record batch": lambda: TABLE.to_batches()[0],
    "pandas": lambda: TABLE.to_pandas(),
    "pandas with arrow types": lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with an index": lambda: TABLE.to_pandas().set_index(np.arange(9) + 100),
    "polars": lambda: pl.DataFrame(TABLE),
    "dict of lists": lambda: TABLE.to_pydict(),
    "dict of arrays": lambda: {name: TABLE[name] for name in TABLE.schema.names},
    "dict of series": lambda: {
        "a": pd.Series(TABLE["a"].to_pylist()),
        "b": pl.Series(TABLE["b"].to_pylist()),
        "c": np.array(TABLE["c"].to_pylist(), float),
        "d": np.array(TABLE["d"].to_pylist(), object),
    },
    "list of batches": lambda: TABLE.to_batches(max_chunksize=4),
    "foreign array": lambda: OnlyArray(TABLE.to_batches()[0]),
}
STREAMS: dict[str, tuple[Callable[[], Any], bool]] = {
    "reader": (TABLE.to_reader, False),
    "generator": (lambda: (batch for batch in TABLE.to_batches(max_chunksize=2)), False),
    "generator of tables": (lambda: iter([TABLE.slice(0, 5), TABLE.slice(5)]), False),
    "foreign stream": (lambda: OnlyStream(TABLE), False),
    "iterable": (Batches, True),
    "scanner": (lambda: ds.dataset(TABLE).scanner(), False),
    "dataset": (lambda: ds.dataset(TABLE), True),
    "polars lazy": (lambda: pl.DataFrame(TABLE).lazy(), True),
    "duckdb": (lambda: duckdb.from_arrow(TABLE), True),
}


def write_ipc(path: Path, table: pa.Table = TABLE, rows: int = 4, **options: Any) -> None:
    with pa.OSFile(str(path), "wb") as sink:
        settings = pa.ipc.IpcWriteOptions(**options)
        with pa.ipc.new_file(sink, table.schema, options=settings) as writer:
            writer.write_table(table, max_chunksize=rows)


def write_stream(path: Path, table: pa.Table = TABLE) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def csv_bytes(table: pa.Table = TABLE, delimiter: str = ",") -> bytes:
    sink = io.BytesIO()
    pa.csv.write_csv(table, sink, pa.csv.WriteOptions(delimiter=delimiter))
    return sink.getvalue()


def json_bytes(table: pa.Table = TABLE) -> bytes:
    return "\n".join(json.dumps(row) for row in table.to_pylist()).encode()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


FILES: dict[str, Callable[[Path], Any]] = {
    "t.parquet": lambda p: pq.write_table(TABLE, p, row_group_size=4),
    "t.pq": lambda p: pq.write_table(TABLE, p, write_page_checksum=True, use_dictionary=False),
    "t.arrow": write_ipc,
    "t.feather": lambda p: write_ipc(p, compression="zstd"),
    "stream.arrow": write_stream,
    "t.arrows": write_stream,
    "t.orc": lambda p: pa.orc.write_table(TABLE, p),
    "t.csv": lambda p: p.write_bytes(csv_bytes()),
    "crlf.csv": lambda p: p.write_bytes(csv_bytes().replace(b"\n", b"\r\n")),
    "bom.csv": lambda p: p.write_bytes(b"\xef\xbb\xbf" + csv_bytes()),
    "semicolon.csv": lambda p: p.write_bytes(csv_bytes(delimiter=";")),
    "t.tsv": lambda p: p.write_bytes(csv_bytes(delimiter="\t")),
    "t.txt": lambda p: p.write_bytes(csv_bytes(delimiter="\t")),
    "t.csv.gz": lambda p: p.write_bytes(gzip.compress(csv_bytes())),
    "two.csv.gz": lambda p: p.write_bytes(
        gzip.compress(csv_bytes()[:50]) + gzip.compress(csv_bytes()[50:])
    ),
    "t.csv.zst": lambda p: p.write_bytes(zstd(csv_bytes())),
    "t.tsv.bz2": lambda p: p.write_bytes(bz2.compress(csv_bytes(delimiter="\t"))),
    "t.jsonl": lambda p: p.write_bytes(json_bytes()),
    "t.ndjson.gz": lambda p: p.write_bytes(gzip.compress(json_bytes() + b"\n\n")),
    "t.json": lambda p: p.write_bytes(json_bytes()),
    "unnamed": lambda p: pq.write_table(TABLE, p),
    "unnamed.dat": write_ipc,
    "unnamed.log": lambda p: p.write_bytes(json_bytes()),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_memory(kind: str) -> None:
    source = open_source(IN_MEMORY[kind]())
    assert source.in_memory
    assert source.rereadable
    assert source.n_rows == 9
    assert same(rows(source), ROWS)
    assert same(rows(source, 4), ROWS)


@pytest.mark.parametrize("kind", STREAMS)
def test_stream(kind: str) -> None:
    make, rereadable = STREAMS[kind]
    source = open_source(make())
    assert not source.in_memory
    assert source.rereadable == rereadable
    assert rows(source) == ROWS
    if rereadable:
        assert rows(source, 4) == ROWS
    else:
        with pytest.raises(DataError, match="can be read only once and has been"):
            source.segments(BLOCK)


@pytest.mark.parametrize("name", FILES)
def test_file(folder: Path, name: str) -> None:
    FILES[name](folder / name)
    source = open_source(name)
    assert not source.in_memory
    assert source.description == name
    assert [segment.origin for segment in source.segments(BLOCK)][:1] == [name]
    assert rows(source) == ROWS
    assert rows(open_source(folder / name), 4) == ROWS
    assert rows(open_source(f"file://{folder / name}", columns=["c", "a"])) == [
        {"c": row["c"], "a": row["a"]} for row in ROWS
    ]


@pytest.mark.parametrize("kind", [*IN_MEMORY, *STREAMS])
def test_columns_selects_and_orders(kind: str) -> None:
    make = IN_MEMORY[kind] if kind in IN_MEMORY else STREAMS[kind][0]
    source = open_source(make(), columns=["d", "a"])
    assert source.schema.names == ["d", "a"]
    assert same(rows(source), [{"d": row["d"], "a": row["a"]} for row in ROWS])


@given(
    cuts=st.lists(st.integers(0, 60), max_size=12),
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    block_rows=st.integers(1, 25),
    n_values=st.integers(1, 5),
)
def test_any_chunking_gives_the_same_blocks(
    cuts: list[int], sizes: list[int], block_rows: int, n_values: int
) -> None:
    # chunks cut out of longer arrays (offsets), each with a dictionary in an order of its own
    chunks, wanted = [], []
    for number, size in enumerate(sizes):
        names = [f"v{(number + k) % n_values}" for k in range(n_values)]
        codes = np.arange(size + 3) * (number + 1) % n_values
        masked = pa.array(codes.astype(np.int8), mask=codes == 1)
        column = pa.DictionaryArray.from_arrays(masked, names).slice(2, size)
        values = pa.array(np.arange(size + 5) + 100 * number).slice(4, size)
        bits = pa.array([bool(code & 1) for code in range(size + 9)]).slice(7, size)
        chunks.append(pa.record_batch({"c": column, "v": values, "b": bits}))
        wanted += chunks[-1].to_pylist()
    table = pa.Table.from_batches(chunks)
    for source in (open_source(table), open_source(iter(chunks)), open_source(table.to_reader())):
        found = batches(source, block_rows)
        assert all(batch.num_rows == block_rows for batch in found[:-1])
        assert [row for batch in found for row in batch.to_pylist()] == wanted
    pieces = [table.slice(a, b - a) for a, b in zip([0, *sorted(cuts)], sorted(cuts), strict=False)]
    cut = [batch for piece in pieces for batch in piece.to_batches()]
    found = list(reblock(cut, block_rows))
    total = min(max(cuts, default=0), len(wanted))
    assert [row for batch in found for row in batch.to_pylist()] == wanted[:total]


def test_dictionaries_that_pyarrow_cannot_merge() -> None:
    wide = [
        pa.DictionaryArray.from_arrays(
            pa.array(range(100), pa.int8()), [f"{prefix}{i}" for i in range(100)]
        )
        for prefix in "ab"
    ]
    source = open_source(pa.table({"c": pa.chunked_array(wide)}))
    assert [row["c"] for row in rows(source, 150)] == [
        f"{prefix}{i}" for prefix in "ab" for i in range(100)
    ]
    holed = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), ["a", None, "a"]),
        pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), ["b", "c"]),
    ]
    source = open_source(pa.table({"c": pa.chunked_array(holed)}))
    assert [row["c"] for row in rows(source, 7)] == ["a", None, "a", None, "c", "b", "c"]


def test_encodings_of_text_join() -> None:
    kinds = [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ]
    stream = [pa.record_batch({"c": pa.array(["a", None, f"{i}"], k)}) for i, k in enumerate(kinds)]
    found = rows(open_source(iter(stream)), 5)
    assert [row["c"] for row in found] == [v for i in range(4) for v in ("a", None, f"{i}")]


def test_batches_inside_a_chunk_are_not_copied() -> None:
    table = pa.table({"v": np.arange(100.0)})
    address = table["v"].chunk(0).buffers()[1].address
    for batch in batches(open_source(table), 30):
        assert batch.column(0).buffers()[1].address == address


def test_coded__texts_are_dictionaries_of_the_same_values() -> None:
    longer = TABLE.append_column("e", TABLE["a"].cast(pa.large_string())).slice(1)
    source = open_source(pa.concat_tables([longer, longer]))
    coded = source.coded()
    assert [pa.types.is_dictionary(kind) for kind in coded.schema.types] == [
        name in "ae" for name in coded.schema.names
    ]
    assert rows(coded) == rows(source)
    assert coded.coded().schema == coded.schema


def test_coded__leaves_texts_that_are_none_to_whoever_looks_them_up() -> None:
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    broken = pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"x\xff"))
    source = open_source(pa.table({"a": broken, "b": ["x", "y"]}))
    assert source.coded().schema.field("a").type == pa.string()
    assert pa.types.is_dictionary(source.coded().schema.field("b").type)


def test_categories_are_kept() -> None:
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b", None], categories=["b", "a", "z"])})
    (batch,) = batches(open_source(frame))
    assert batch.column(0).dictionary.to_pylist() == ["b", "a", "z"]
    numbers = pd.DataFrame({"c": pd.Categorical([3, 1, 3])})
    (batch,) = batches(open_source(numbers))
    assert batch.column(0).dictionary.to_pylist() == [1, 3]
    polar = pl.DataFrame({"c": ["a", "b"]}, schema={"c": pl.Enum(["b", "a", "z"])})
    (batch,) = batches(open_source(polar))
    assert batch.column(0).dictionary.to_pylist() == ["b", "a", "z"]
    assert pa.types.is_dictionary(open_source(polar.cast(pl.Categorical())).schema.types[0])


def test_categories_of_pandas__become_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"a": ["u", "v", None, "v"], "y": ["n", "n", "p", "p"]}).astype("category")
    monkeypatch.setattr(pd.Categorical, "__iter__", lambda self: pytest.fail("one value at a time"))
    source = open_source(frame)
    assert [row["a"] for row in rows(source)] == ["u", "v", None, "v"]
    assert pa.types.is_dictionary(source.schema.field("a").type)


def test_rows_to_score__are_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"a": ["u", "v", "v"], "y": ["n", "n", "p"], "more": [1, 2, 3]}
    model = fb.NaiveBayes().fit({"a": table["a"], "y": table["y"]}, "y")
    opened = []

    def noted(source: Any, **options: Any) -> Source:
        opened.append(source)
        return open_source(source, **options)

    monkeypatch.setattr(inputs, "open_source", noted)
    with pytest.warns(FastBayesWarning, match="does not use"):
        model.predict(table)
    assert len(opened) == 1


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u2", "i8", ">i4", "u8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_numbers(dtype: str, order: Any) -> None:
    array = np.asarray(np.arange(21).reshape(7, 3) % 5, dtype=dtype, order=order)
    source = open_source(array)
    assert source.schema.names == ["x0", "x1", "x2"]
    found = batches(source)
    stacked = np.vstack(
        [np.column_stack([c.to_numpy(zero_copy_only=False) for c in batch]) for batch in found]
    )
    np.testing.assert_array_equal(stacked, array)
    chosen = rows(open_source(array, columns=["x2", "x0"]))
    assert [list(row.values()) for row in chosen] == array[:, [2, 0]].tolist()
    strided = rows(open_source(array[::2, ::-1]))
    assert [list(row.values()) for row in strided] == array[::2, ::-1].tolist()


@pytest.mark.parametrize("n_columns", [1, 3, 200])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, np.bool_])
def test_array__is_turned_a_tile_at_a_time(n_columns: int, kind: type) -> None:
    array = np.random.default_rng(0).integers(0, 2, (9_001, n_columns)).astype(kind)
    for rows in (array, array[::-2], array[:, ::-1], np.asfortranarray(array)):
        table = pa.Table.from_batches(
            batch for segment in open_source(rows).segments(5_000) for batch in segment.batches()
        )
        found = np.column_stack([column.to_numpy() for column in table.columns])
        np.testing.assert_array_equal(found, rows)


def test_numpy_blocks_share_their_memory() -> None:
    array = np.asfortranarray(np.arange(20.0).reshape(10, 2))
    batch = batches(open_source(array), 10)[0]
    assert batch.column(1).buffers()[1].address == array[:, 1].ctypes.data


def test_numpy_nan_stays_and_masks_are_null() -> None:
    found = rows(open_source(np.array([[1.0, np.nan]])))
    assert found[0]["x1"] != found[0]["x1"]
    assert batches(open_source(np.array([[1.0, np.nan]])))[0].column(1).null_count == 0
    masked = np.ma.array([[1.0, 2.0]], mask=[[False, True]])
    assert rows(open_source(masked)) == [{"x0": 1.0, "x1": None}]


def test_numpy_objects_and_text() -> None:
    mixed = np.array([["a", 1.5, None], ["b", 2, "c"], [np.nan, np.nan, "d"]], object)
    assert rows(open_source(mixed)) == [
        {"x0": "a", "x1": 1.5, "x2": None},
        {"x0": "b", "x1": 2.0, "x2": "c"},
        {"x0": None, "x1": None, "x2": "d"},
    ]
    assert rows(open_source(np.array([["a", ""], ["b", "None"]]))) == [
        {"x0": "a", "x1": ""},
        {"x0": "b", "x1": "None"},
    ]
    assert rows(open_source([[1, 2], [3, 4.5]])) == [{"x0": 1.0, "x1": 2.0}, {"x0": 3.0, "x1": 4.5}]
    record = np.array([(1, "a"), (2, "b")], dtype=[("n", "i8"), ("s", "U3")])
    assert rows(open_source(record)) == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]


def test_parquet_strings_come_as_dictionaries(folder: Path) -> None:
    kinds = {
        "s": pa.string(), "l": pa.large_string(), "v": pa.string_view(), "b": pa.binary(),
        "d": pa.dictionary(pa.int8(), pa.string()),
    }  # fmt: skip
    values = {
        name: pa.array(["a", "b", None], pa.string()).cast(kind) for name, kind in kinds.items()
    }
    pq.write_table(pa.table({**values, "x.y": ["p", "q", "p"], "n": [1, 2, 3]}), "t.parquet")
    source = open_source("t.parquet")
    (batch,) = batches(source)
    assert all(pa.types.is_dictionary(kind) for kind in batch.schema.types[:-1])
    values = [kind.value_type for kind in batch.schema.types[:-1]]
    assert values == [kind.value_type for kind in source.schema.types[:-1]]
    assert batch.column("x.y").to_pylist() == ["p", "q", "p"]
    assert batches(open_source("t.parquet", columns=["x.y"]))[0].schema.names == ["x.y"]


def test_parquet_dataset_reads_dictionaries_and_row_groups(folder: Path) -> None:
    pq.write_table(TABLE, "t.parquet", row_group_size=4)
    dataset = ds.dataset("t.parquet")
    source = open_source(dataset)
    assert pa.types.is_dictionary(source.schema.field("a").type)
    assert rows(source) == ROWS
    some = ds.FileSystemDataset(
        [fragment.subset(row_group_ids=[1]) for fragment in dataset.get_fragments()],
        dataset.schema,
        dataset.format,
        dataset.filesystem,
    )
    assert rows(open_source(some)) == ROWS[4:8]
    assert rows(open_source(dataset.filter(ds.field("b") > 6))) == ROWS[6:]


def test_parquet_dataset__instants_in_twelve_bytes_do_not_wrap_around(folder: Path) -> None:
    moments = [datetime.datetime(year, 12, 31) for year in (1, 2020, 9999)]
    table = pa.table({"when": pa.array(moments, pa.timestamp("us")), "k": [1, 2, 3]})
    pq.write_table(table, "spark.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(table.slice(2), "own.parquet")
    dataset = ds.dataset("spark.parquet")
    assert dataset.schema.field("when").type == pa.timestamp("ns")
    for source in (dataset, ds.dataset(["spark.parquet"], schema=table.schema)):
        assert rows(open_source(source)) == table.to_pylist()
    chosen = dataset.filter(ds.field("k") > 1)
    for source in (chosen, ds.dataset([dataset, dataset])):
        with pytest.raises(DataError, match=r"column 'when' of .*spark.* is INT96.*='us'"):
            rows(open_source(source))
    assert [row["k"] for row in rows(open_source(chosen, columns=["k"]))] == [2, 3]
    model = fb.NaiveBayes().fit({"k": [1, 2, 3], "y": ["a", "b", "b"]}, "y")
    with pytest.warns(FastBayesWarning, match="does not use"):
        assert model.predict(chosen).tolist() == ["b", "b"]
    read = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    dataset = ds.dataset("spark.parquet", format=ds.ParquetFileFormat(read_options=read))
    assert rows(open_source(dataset.filter(ds.field("k") > 1))) == table.slice(1).to_pylist()
    # Nanoseconds of other files stay: what they do not hold is an error.
    fine = table.set_column(0, "when", pa.array([1, 2, 3], pa.timestamp("ns")))
    pq.write_table(fine, "fine.parquet")
    with pytest.raises(DataError, match="out of bounds"):
        rows(open_source(ds.dataset(["fine.parquet", "spark.parquet"])))
    pq.write_table(table.slice(1, 1), "spark.parquet", use_deprecated_int96_timestamps=True)
    for names in (["fine.parquet", "spark.parquet"], ["spark.parquet", "fine.parquet"]):
        found = open_source(ds.dataset(names))
        assert found.schema.field("when").type == pa.timestamp("ns")
        assert len(rows(found)) == 4


@pytest.mark.parametrize("name", ["a.b", "a"])
def test_parquet_dataset__instants_under_names_with_dots_and_in_structs(
    folder: Path, name: str
) -> None:
    when = pa.array([datetime.datetime(9999, 12, 31)] * 2, pa.timestamp("us"))
    column = when if "." in name else pa.StructArray.from_arrays([when], ["b"])
    table = pa.table({name: column, "k": [1, 2]})
    pq.write_table(table, "spark.parquet", use_deprecated_int96_timestamps=True)
    dataset = ds.dataset("spark.parquet")
    assert [row["a.b"].year for row in rows(open_source(dataset))] == [9999, 9999]
    with pytest.raises(DataError, match=r"column 'a\.b' of .*spark.* is INT96"):
        rows(open_source(dataset.filter(ds.field("k") > 1)))


def test_a_row_group_is_a_segment(folder: Path) -> None:
    pq.write_table(TABLE, "t.parquet", row_group_size=4)
    segments = list(open_source("t.parquet").segments(BLOCK))
    assert [(s.first_row, s.n_rows) for s in segments] == [(0, 4), (4, 4), (8, 1)]
    assert [[b.num_rows for b in s.batches()] for s in segments] == [[3, 1], [3, 1], [1]]


def test_a_row_group_is_streamed(folder: Path) -> None:
    table = pa.table({"v": np.arange(5000), "s": [f"v{i // 9}" for i in range(5000)]})
    # small pages, of which only the first are dictionary-encoded
    pq.write_table(table, "t.parquet", data_page_size=500, dictionary_pagesize_limit=400)
    streamed = batches(open_source("t.parquet"), 64)
    assert [row for batch in streamed for row in batch.to_pylist()] == table.to_pylist()
    # a dictionary of what was decoded so far would grow with every block
    assert {batch.column("s").type for batch in streamed} == {pa.string()}
    few = table.set_column(1, "s", pa.array([f"v{i % 9}" for i in range(5000)]))
    pq.write_table(few, "few.parquet", data_page_size=500)
    streamed = batches(open_source("few.parquet"), 64)
    assert [row for batch in streamed for row in batch.to_pylist()] == few.to_pylist()
    assert {len(batch.column("s").dictionary) for batch in streamed} == {9}


def test_ipc_batches_are_grouped_and_cut(folder: Path) -> None:
    step = SEGMENT_BLOCKS * 4
    long = pa.table({"v": np.arange(80 * step), "s": [f"{i % 7}" for i in range(80 * step)]})
    for name, size, compression, pieces in (
        ("short", 1, None, 80),
        ("long", 80 * step, "lz4", 80),
        ("between", step + step // 4, "zstd", 128),
    ):
        write_ipc(folder / f"{name}.arrow", long, size, compression=compression)
        source = open_source(f"{name}.arrow")
        segments = list(source.segments(4))
        assert len(segments) == pieces
        assert all(segment.n_rows is not None and segment.n_rows <= step for segment in segments)
        assert [s.first_row for s in segments] == np.cumsum(
            [0, *(s.n_rows for s in segments[:-1])]
        ).tolist()
        assert rows(source, 4) == long.to_pylist()


def test_segments_may_be_read_by_threads_in_any_order(folder: Path) -> None:
    table = pa.table({"v": np.arange(5000), "s": [f"v{i % 77}" for i in range(5000)]})
    pq.write_table(table, "t.parquet", row_group_size=100)
    write_ipc(folder / "t.arrow", table, 5000, compression="lz4")
    pa.csv.write_csv(table, "t.csv")
    for name in ("t.parquet", "t.arrow", "t.csv"):
        segments = list(open_source(name).segments(16))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda s: list(s.batches()), reversed(segments)))
        assert [
            row for own in reversed(found) for b in own for row in b.to_pylist()
        ] == table.to_pylist()


def test_stream_is_pulled_as_segments_are_asked_for() -> None:
    pulled = 0
    threads = set()

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal pulled
        while True:
            pulled += 1
            threads.add(threading.get_ident())
            yield pa.record_batch({"v": [1, 2, 3]})

    segments = open_source(endless()).segments(BLOCK)
    assert pulled == 1  # the schema
    next(segments)
    next(segments)
    assert pulled == 2 * SEGMENT_BLOCKS
    assert threads == {threading.get_ident()}


class TestCsv:
    def test_only_an_empty_cell_is_null(self, folder: Path) -> None:
        Path("t.csv").write_text('a,b,c\nNA,1,"x"\n,,""\n"None",3,null\nnan,NaN,N/A\n')
        found = rows(open_source("t.csv"))
        assert [row["a"] for row in found] == ["NA", None, "None", "nan"]
        assert [row["b"] for row in found[:3]] == [1.0, None, 3.0]
        assert [row["c"] for row in found] == ["x", None, "null", "N/A"]
        found = rows(open_source("t.csv", null_values=["NA", "N/A", "null"]))
        assert [row["a"] for row in found] == [None, None, "None", "nan"]
        assert [row["c"] for row in found] == ["x", None, None, None]

    def test_quotes(self, folder: Path) -> None:
        Path("t.csv").write_bytes(b'"a,1","b\n2"\r\n"x ""y"", z","two\r\nlines"\r\n5" pipe,\r\n')
        assert rows(open_source("t.csv")) == [
            {"a,1": 'x "y", z', "b\n2": "two\r\nlines"},
            {"a,1": '5" pipe', "b\n2": None},
        ]

    def test_one_column_keeps_its_empty_rows(self, folder: Path) -> None:
        Path("t.csv").write_text("a\n1\n\n2\n")
        assert [row["a"] for row in rows(open_source("t.csv"))] == [1, None, 2]
        Path("u.csv").write_text("a,b\n1,2\n\n3,4\n\n")
        assert len(rows(open_source("u.csv"))) == 2

    def test_header_alone_has_no_rows(self, folder: Path) -> None:
        for text_ in ("a,b", "a,b\n"):
            Path("t.csv").write_text(text_)
            source = open_source("t.csv")
            assert source.schema.names == ["a", "b"]
            assert rows(source) == []

    def test_types(self, folder: Path) -> None:
        Path("t.csv").write_text("zip,n\n01234,1\n99,2\n")
        asked = {"zip": pa.string(), "n": pa.float64(), "other": pa.int64()}
        assert rows(open_source("t.csv", types=asked)) == [
            {"zip": "01234", "n": 1.0},
            {"zip": "99", "n": 2.0},
        ]

    @pytest.fixture
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("BLOCK_BYTES", "INFER_BYTES", "LEAST_INFER_BYTES"):
            monkeypatch.setattr(text, name, 40)

    @pytest.mark.usefixtures("small_blocks")
    @pytest.mark.parametrize("workers", [1, 4])
    def test_later_blocks_may_widen(self, folder: Path, workers: int) -> None:
        wanted = [
            {
                "i": i + (0.5 if i in (50, 90) else 0),
                "n": None if i < 80 else "t",
                "m": None if i % 9 else i + 0.5,
            }
            for i in range(120)
        ]
        wanted[0]["m"] = None
        lines = [
            ",".join(
                "" if v is None else f"{v:g}" if not isinstance(v, str) else v for v in row.values()
            )
            for row in wanted
        ]
        Path("t.csv").write_text("i,n,m\n" + "\n".join(lines))
        Path("t.jsonl").write_text("\n".join(json.dumps(row) for row in wanted))
        for name in ("t.csv", "t.jsonl"):
            source = open_source(name)
            with ThreadPoolExecutor(workers) as pool:
                found = [
                    b
                    for own in pool.map(lambda s: list(s.batches()), source.segments(7))
                    for b in own
                ]
            assert len(found) > 10
            assert [row for b in found for row in b.to_pylist()] == wanted
            assert rows(source, 7) == wanted

    @pytest.mark.usefixtures("small_blocks")
    @pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
    def test_later_moments_may_be_finer(self, folder: Path, name: str) -> None:
        days = ["2024-02-01"] * 20
        times = [*days, *["2024-02-01 10:00:00"] * 20, *["2024-02-01 10:00:00.5"] * 20, *days]
        cells = ["t", *times] if name == "t.csv" else [json.dumps({"t": time}) for time in times]
        Path(name).write_text("\n".join(cells))
        found = [batch.column(0) for batch in batches(open_source(name))]
        assert [when.as_py() for array in found for when in array.cast(pa.timestamp("ns"))] == [
            datetime.datetime.fromisoformat(time) for time in times
        ]
        Path(name).write_text("\n".join([*cells, "soon" if name == "t.csv" else '{"t": "soon"}']))
        with pytest.raises(DataError, match=rf"{name}, row 80: column 't' is .*but holds 'soon'"):
            rows(open_source(name))

    @pytest.mark.usefixtures("small_blocks")
    @pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
    def test_later_times_may_be_finer(self, folder: Path, name: str) -> None:
        times = [*["10:00"] * 20, *["10:00:07"] * 20, *["10:00:07.25"] * 20, *["23:59"] * 20]
        cells = ["t", *times] if name == "t.csv" else [json.dumps({"t": time}) for time in times]
        Path(name).write_text("\n".join(cells))
        found = [batch.column(0) for batch in batches(open_source(name))]
        assert [when.as_py() for array in found for when in array.cast(pa.time64("ns"))] == [
            datetime.time.fromisoformat(time) for time in times
        ]
        Path(name).write_text("\n".join([*cells, "soon" if name == "t.csv" else '{"t": "soon"}']))
        with pytest.raises(DataError, match=rf"{name}, row 80: column 't' is .*but holds 'soon'"):
            rows(open_source(name))

    @pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
    @pytest.mark.parametrize("odd", ["10:00 AM", "25:00", "10:00-11:00", "10:00Z", "2024-01-01"])
    def test_what_is_like_a_time_is_text(self, folder: Path, name: str, odd: str) -> None:
        times = ["10:00", "11:00:00.5", odd]
        cells = ["t", *times] if name == "t.csv" else [json.dumps({"t": time}) for time in times]
        Path(name).write_text("\n".join([*cells, ""]))
        assert [row["t"] for row in rows(open_source(name))] == times

    @pytest.mark.usefixtures("small_blocks")
    def test_blocks_end_where_rows_end(self, folder: Path) -> None:
        table = pa.table(
            {"a": [f'q"{i}\n, "" {"y" * (i % 50)}' for i in range(200)], "b": list(range(200))}
        )
        Path("t.csv").write_bytes(csv_bytes(table))
        assert rows(open_source("t.csv"), 7) == table.to_pylist()

    @pytest.mark.usefixtures("small_blocks")
    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    def test_a_block_may_end_within_a_line_end(self, folder: Path, newline: str) -> None:
        values = ["x" * length for length in range(1, 90)]
        Path("t.csv").write_text(newline.join(["a", *values, ""]), newline="")
        assert [row["a"] for row in rows(open_source("t.csv"))] == values

    CELLS = ("x", '5" p', '"q"', '"a ""b"" c"', '"l1\nl2"', '""', "", '"""\n,"', 'a"b"c', '"\r\n"')

    @given(
        cells=st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS)), min_size=1),
        newline=st.sampled_from(["\n", "\r\n", "\r"]),
        size=st.integers(1, 30),
    )
    def test_any_block_size_gives_the_same_rows(
        self, cells: list[tuple[str, str]], newline: str, size: int
    ) -> None:
        data = "".join(f"{a},{b}{newline}" for a, b in cells).encode()

        def parse(part: bytes) -> list[dict[str, Any]]:
            return pa.csv.read_csv(
                pa.BufferReader(part),
                read_options=pa.csv.ReadOptions(column_names=["a", "b"]),
                parse_options=pa.csv.ParseOptions(newlines_in_values=True),
                convert_options=pa.csv.ConvertOptions(
                    column_types={"a": pa.string(), "b": pa.string()}
                ),
            ).to_pylist()

        parts = list(blocks(io.BytesIO(data), size, cut_rows(","), "t.csv"))
        assert b"".join(parts) == data
        assert not any(part.startswith(b"\n") for part in parts)
        assert [row for part in parts for row in parse(part)] == parse(data)


@pytest.mark.parametrize("when", ["2024-02-01 10:00:00", "2024-02-01T10:00:00.25", "2024-02-01"])
def test_json_columns_of_moments_stand_where_the_file_has_them(folder: Path, when: str) -> None:
    Path("t.jsonl").write_text(json.dumps({"a": 1, "b": "x", "when": when, "c": 2.5}))
    assert open_source("t.jsonl").schema.names == ["a", "b", "when", "c"]
    assert open_source("t.jsonl", columns=Selection(columns=[0, 2])).schema.names == ["a", "when"]


def test_json_keys_may_be_absent(folder: Path) -> None:
    Path("t.jsonl").write_text('{"a":1,"b":"x"}\n{"b":null}\n{"a":2.5,"b":"2020-01-01"}\n')
    assert rows(open_source("t.jsonl")) == [
        {"a": 1.0, "b": "x"},
        {"a": None, "b": None},
        {"a": 2.5, "b": "2020-01-01"},
    ]
    Path("u.jsonl").write_text('{"a":1}\n')
    assert rows(open_source(["t.jsonl", "u.jsonl"]))[-1] == {"a": 1.0, "b": None}
    assert rows(open_source("t.jsonl", columns=["b"], null_values=["x"]))[0] == {"b": None}


def test_json_keys_may_be_absent_from_the_first_rows_of_a_later_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BLOCK_BYTES", "INFER_BYTES", "LEAST_INFER_BYTES"):
        monkeypatch.setattr(text, name, 40)
    Path("1.jsonl").write_text('{"a":1,"b":"x"}\n')
    Path("2.jsonl").write_text('{"a":1}\n' * 20 + '{"a":1,"b":"late"}\n')
    assert rows(open_source("*.jsonl"))[-1] == {"a": 1, "b": "late"}


def test_null_values_everywhere(folder: Path) -> None:
    table = pa.table({"a": ["x", "NA", None], "b": pa.array(["NA", "y", "?"]).dictionary_encode()})
    pq.write_table(table, "t.parquet")
    wanted = [{"a": "x", "b": None}, {"a": None, "b": "y"}, {"a": None, "b": None}]
    for source in (table, "t.parquet", pl.DataFrame(table), iter(table.to_batches())):
        assert rows(open_source(source, null_values=["NA", "?"])) == wanted


class TestManyFiles:
    def test_order_description_and_origins(self, folder: Path) -> None:
        for name in ("b", "a", "c"):
            pq.write_table(pa.table({"v": [name]}), f"{name}.parquet")
        source = open_source("*.parquet")
        assert source.description == "*.parquet (3 files)"
        assert [row["v"] for row in rows(source)] == ["a", "b", "c"]
        assert [s.origin for s in source.segments(1)] == ["a.parquet", "b.parquet", "c.parquet"]
        assert [s.index for s in source.segments(1)] == [0, 1, 2]
        given_order = open_source([Path("c.parquet"), "a.parquet"])
        assert [row["v"] for row in rows(given_order)] == ["c", "a"]

    def test_directory_is_searched(self, folder: Path) -> None:
        for name in ("d/b.parquet", "d/x/a.parquet", "d/_tmp/n.parquet", "d/.h/n.parquet"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"v": [name]}), name)
        Path("d/_SUCCESS").touch()
        Path("d/.b.parquet.crc").write_bytes(b"crc")
        for source in ("d", "d/", folder / "d", f"file://{folder}/d", "d/**/*.parquet", "d/**"):
            found = [row["v"] for row in rows(open_source(source))]
            assert found == ["d/b.parquet", "d/x/a.parquet"]
        assert [r["v"] for r in rows(open_source("d/*/a.parquet"))] == ["d/x/a.parquet"]
        assert [r["v"] for r in rows(open_source("d/[x]/?.parquet"))] == ["d/x/a.parquet"]
        assert [r["v"] for r in rows(open_source(f"file://{folder}/d/*/a.parquet"))] == [
            "d/x/a.parquet"
        ]

    def test_a_name_with_wildcards_in_it(self, folder: Path) -> None:
        pq.write_table(TABLE, "t[1].parquet")
        assert rows(open_source("t[1].parquet")) == ROWS

    def test_hive_directories_are_columns(self, folder: Path) -> None:
        parts = {"year=2020/place=a%20b": 1, "year=2021/place=__HIVE_DEFAULT_PARTITION__": 2}
        for name, value in parts.items():
            Path("h", name).mkdir(parents=True)
            pq.write_table(pa.table({"v": [value]}), f"h/{name}/p.parquet")
        wanted = [
            {"v": 1, "year": "2020", "place": "a b"},
            {"v": 2, "year": "2021", "place": None},
        ]
        for source in ("h", "h/**/*.parquet", "h/*/*/*.parquet"):
            assert rows(open_source(source)) == wanted
        assert rows(open_source("h", columns=["place"])) == [{"place": "a b"}, {"place": None}]
        Path("c/k=v").mkdir(parents=True)
        Path("c/k=v/t.csv").write_text("a,b\n1,2\n3,4\n")
        assert rows(open_source("c", columns=["k"])) == [{"k": "v"}, {"k": "v"}]
        for source in ("h/year=2020", "h/year=2020/place=a%20b/p.parquet", "h/year=2020/**"):
            assert rows(open_source(source)) == wanted[:1]
        assert rows(open_source("h", partitions=False)) == [{"v": 1}, {"v": 2}]
        os.chdir("h")
        assert rows(open_source("year=2020/place=a%20b/p.parquet")) == wanted[:1]
        os.chdir("..")
        Path("h/year=2022/place=x").mkdir(parents=True)
        pq.write_table(pa.table({"v": [3], "year": ["own"]}), "h/year=2022/place=x/p.parquet")
        with pytest.raises(SchemaError, match=r"'year' holds 'own'.* directory says '2022'"):
            rows(open_source("h"))
        assert rows(open_source("h", columns=["v"]))[2] == {"v": 3}
        assert rows(open_source("h/year=2022", partitions=False)) == [{"v": 3, "year": "own"}]
        for year in (pa.array([2022]), pa.array(["2022"]), pa.array([2022.0])):
            table = pa.table({"v": [3], "year": year})
            pq.write_table(table, "h/year=2022/place=x/p.parquet")
            assert rows(open_source("h/year=2022", columns=["year"])) == [{"year": year[0].as_py()}]
        days = pa.table({"v": [3], "day": pa.array([20_000], pa.int32()).cast(pa.date32())})
        Path("e/day=2024-10-04").mkdir(parents=True)
        pq.write_table(days, "e/day=2024-10-04/p.parquet")
        assert rows(open_source("e", columns=["v"])) == [{"v": 3}]
        assert len(rows(open_source("e"))) == 1

    def test_types_unify(self, folder: Path) -> None:
        first = pa.table({"i": pa.array([1, 2], pa.int32()), "s": ["a", "b"], "n": pa.nulls(2)})
        second = pa.table(
            {
                "n": ["late", None],
                "s": pa.array(["c", "b"])
                .dictionary_encode()
                .cast(pa.dictionary(pa.int8(), pa.string())),
                "i": [1.5, 2.0],
            }
        )
        third = pa.table(
            {"i": pa.nulls(1), "s": pa.nulls(1), "n": pa.array(["z"], pa.large_string())}
        )
        for write, end in (
            (pq.write_table, "parquet"),
            (lambda t, p: write_ipc(Path(p), t), "arrow"),
        ):
            for name, table in (("1", first), ("2", second), ("3", third)):
                write(table, f"{name}.{end}")
            source = open_source(f"*.{end}")
            assert source.schema.field("i").type == pa.float64()
            assert {b.schema.field("i").type for b in batches(source)} == {pa.float64()}
            assert rows(source) == [
                row for t in (first, second, third) for row in t.select(["i", "s", "n"]).to_pylist()
            ]

    def test_csv_types_unify(self, folder: Path) -> None:
        Path("1.csv").write_text("a,b\n1,\n2,\n")
        Path("2.csv").write_text("b,a\nx,1.5\n")
        source = open_source("*.csv")
        assert source.schema.types == [pa.float64(), pa.string()]
        assert [tuple(row.values()) for row in rows(source)] == [
            (1.0, None),
            (2.0, None),
            (1.5, "x"),
        ]

    @pytest.mark.parametrize("end", ["parquet", "csv"])
    def test_dates_and_timestamps_unify(self, folder: Path, end: str) -> None:
        moments = pa.array([10**9, None], pa.timestamp("s"))
        fine = pa.array([10**18 + 5 * 10**8, 1], pa.timestamp("ns"))
        wanted = [moments.cast(pa.date32()), moments, fine]
        for i, column in enumerate(wanted):
            table = pa.table({"t": column, "a": [1, 2]})
            if end == "csv":
                Path(f"{i}.csv").write_bytes(csv_bytes(table))
            else:
                pq.write_table(table, f"{i}.parquet", version="2.6")
        for order in permutations(range(3)):
            source = open_source([f"{i}.{end}" for i in order])
            assert source.schema.field("t").type == pa.timestamp("ns")
            found = [batch.column(0) for batch in batches(source)]
            assert pa.concat_arrays(found) == pa.concat_arrays(
                [wanted[i].cast(pa.timestamp("ns")) for i in order]
            )

    def test_moments_that_do_not_unify(self, folder: Path) -> None:
        for a, b in (("s", "UTC"), ("s", None)):
            pq.write_table(pa.table({"t": pa.array([1], pa.timestamp(a, b))}), "1.parquet")
            far = pa.array([1], pa.date32()) if b else pa.array([1], pa.time64("us"))
            pq.write_table(pa.table({"t": far}), "2.parquet")
            with pytest.raises(SchemaError, match="column 't' is timestamp"):
                open_source("*.parquet")
        Path("1.csv").write_text("t\n2300-01-01 00:00:00\n")
        Path("2.csv").write_text("t\n2000-01-01 00:00:00.5\n")
        with pytest.raises(
            DataError, match=r"1\.csv, row 0: column 't' is timestamp\[ns\] elsewhe"
        ):
            rows(open_source("*.csv"))

    def test_files_without_rows(self, folder: Path) -> None:
        pq.write_table(TABLE.slice(0, 0), "0.parquet")
        pq.write_table(TABLE, "1.parquet")
        assert rows(open_source("*.parquet")) == ROWS
        assert rows(open_source("0.parquet")) == []
        write_ipc(folder / "0.arrow", TABLE.slice(0, 0))
        assert rows(open_source("0.arrow")) == []

    def test_a_later_file_may_have_more_when_columns_are_chosen(self, folder: Path) -> None:
        pq.write_table(pa.table({"a": [1]}), "1.parquet")
        pq.write_table(pa.table({"z": ["x"], "a": [2]}), "2.parquet")
        assert rows(open_source("*.parquet", columns=["a"])) == [{"a": 1}, {"a": 2}]

    def test_a_thousand_files_leave_no_descriptor_open(self, folder: Path) -> None:
        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("counts descriptors in /proc")
        os.mkdir("many")
        sink = io.BytesIO()
        pq.write_table(pa.table({"v": [1]}), sink)
        for i in range(1000):
            Path("many", f"{i:04}.parquet").write_bytes(sink.getvalue())
        before = len(os.listdir("/proc/self/fd"))
        source = open_source("many")
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        most = 0
        for segment in source.segments(BLOCK):
            list(segment.batches())
            most = max(most, len(os.listdir("/proc/self/fd")))
        assert most <= before + 1
        assert source.n_rows == 1000


class Fsspec:
    """As much of an fsspec file system over a directory as pyarrow asks for."""

    protocol = "test"

    def __init__(self, root: Path) -> None:
        self._root = root

    def info(self, path: str) -> dict[str, Any]:
        full = self._root / path
        if not full.exists():
            raise FileNotFoundError(path)
        kind = "directory" if full.is_dir() else "file"
        return {"name": path, "type": kind, "size": full.stat().st_size if full.is_file() else None}

    def isdir(self, path: str) -> bool:
        return (self._root / path).is_dir()

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def isfile(self, path: str) -> bool:
        return (self._root / path).is_file()

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False
    ) -> Any:
        pattern = "*" if maxdepth == 1 else "**/*"
        found = [str(p.relative_to(self._root)) for p in (self._root / path).glob(pattern)]
        return {p: self.info(p) for p in found if withdirs or not self.isdir(p)}

    def open(self, path: str, mode: str) -> Any:
        return open(self._root / path, mode)


def test_filesystems(folder: Path) -> None:
    Path("bucket/x").mkdir(parents=True)
    pq.write_table(TABLE, "bucket/x/t.parquet", row_group_size=4)
    write_ipc(Path("bucket/t.arrow"))
    Path("bucket/t.csv.gz").write_bytes(gzip.compress(csv_bytes()))
    for filesystem in (pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem()), Fsspec(folder)):
        for name in (
            "bucket/x/t.parquet",
            "bucket/x",
            "bucket/**/*.parquet",
            "bucket/t.arrow",
            "bucket/t.csv.gz",
        ):
            assert rows(open_source(name, filesystem=filesystem)) == ROWS
        assert rows(open_source("test://bucket/x/*.parquet", filesystem=filesystem)) == ROWS


def test_dataset_from_another_process(folder: Path) -> None:
    """Unpickled, it comes without the module that made it."""
    pq.write_table(pa.table({"x": ["a", "b"]}), folder / "one.parquet")
    with (folder / "dataset").open("wb") as file:
        pickle.dump(ds.dataset(folder / "one.parquet"), file)
    script = (
        "import pickle, sys; from fastbayes.data.source import open_source\n"
        "dataset = pickle.load(open(sys.argv[1], 'rb')); print(open_source(dataset).schema.names)"
    )
    command = [sys.executable, "-c", script, str(folder / "dataset")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['x']\n", done.stderr


def test_reading_files_loads_neither_pandas_nor_datasets(folder: Path) -> None:
    names = ("t.parquet", "t.arrow", "t.csv", "t.jsonl", "t.orc")
    for name in names:
        FILES[name](folder / name)
    code = f"""
import sys, numpy as np
from fastbayes.data.source import open_source
for source in (*{names!r}, np.ones((3, 2)), np.ones((3, 2), bool)):
    assert all(b.num_rows for s in open_source(source).segments(2) for b in s.batches())
print([m for m in ("pandas", "polars", "pyarrow.dataset", "numba", "sklearn") if m in sys.modules])
"""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_temporal_columns_pass_through(folder: Path) -> None:
    # whether a model can use them is decided where features are
    day = datetime.date(2020, 1, 1)
    Path("t.csv").write_text("d\n2020-01-01\n")
    assert rows(open_source("t.csv")) == [{"d": day}]
    assert rows(open_source("t.csv", types={"d": pa.string()})) == [{"d": "2020-01-01"}]
    assert rows(open_source({"d": [day]})) == [{"d": day}]


@pytest.mark.parametrize("lazy", [False, True])
def test_polars_integers_that_arrow_lacks_are_refused_by_name(lazy: bool) -> None:
    frame = pl.DataFrame({"a": ["u", "v"], "i": pl.Series([1, 2], dtype=pl.Int128)})
    with pytest.raises(SchemaError, match=r"polars\.\w+: column 'i' is Int128.*cast it to Int64"):
        open_source(frame.lazy() if lazy else frame)
    assert open_source(frame.cast({"i": pl.Int64})).n_rows == 2


def test_polars_lazy_frames_come_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"a": np.arange(500_000) % 7, "b": ["x", "y"] * 250_000})
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=50_000)
    lazy, whole = pl.scan_parquet(tmp_path / "t.parquet"), []
    collect = pl.LazyFrame.collect

    def noted(self: pl.LazyFrame, *args: Any, **options: Any) -> Any:
        found = collect(self, *args, **options)
        whole.append(len(found))
        return found

    monkeypatch.setattr(pl.LazyFrame, "collect", noted)
    for _ in range(2):
        assert fb.count(lazy, "b").values == fb.count(frame, "b").values
    assert not any(whole)  # but for the columns


def test_unknown_column__is_one_line_whatever_the_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"y\nq","\x1b[1m"\n1,2\n')
    with pytest.raises(SchemaError, match=r"its columns are: y\\nq, \\x1b\[1m$"):
        open_source(tmp_path / "t.csv", columns=["y"])


def test_unknown_column_names_close_ones() -> None:
    with pytest.raises(
        SchemaError, match=r"no column 'delays' in pyarrow.Table; .*; did you mean 'delay'\?"
    ):
        open_source(pa.table({"delay": [1], "b": [2]}), columns=["b", "delays"])
