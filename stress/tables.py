"""Random tables, and the bytes of files that hold them, in every format that is read."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.data import filesource, memory
from fastbayes.models.estimator import base
from fastbayes.scan import engine

Rng = np.random.Generator
WORDS = np.array(["", "a", "b", "NA", "null", "é", "a,b", 'a"b', "0", "-1", "1e3", "true", " x "])
TEXTS = np.array([f"value {i}" for i in range(300)])


def one_of(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def choose_kernels(rng: Rng) -> None:
    """Have this process run numpy or compiled kernels, or what it would."""
    choice = one_of(rng, ["never", "always", "always", "auto"])
    os.environ["FASTBAYES_KERNELS"] = os.environ.get("STRESS_KERNELS", choice)


def choose_blocks(rng: Rng) -> None:
    """Have this process go over rows in many small blocks, or as it would."""
    rows = one_of(rng, [64, BLOCK_ROWS])
    for module in (base, engine, filesource, memory):
        vars(module)["BLOCK_ROWS"] = rows


def table(rng: Rng, rows: int | None = None) -> pa.Table:
    """Return a table of a class `y` and columns of several types, some of their cells missing."""
    n = int(rng.integers(1, 400)) if rows is None else rows
    columns: dict[str, Any] = {"y": rng.choice(["p", "q", "r"], n)}
    makers: list[Callable[[], Any]] = [
        lambda: pa.array(TEXTS[rng.integers(0, one_of(rng, [1, 3, 20, 300]), n)]),
        lambda: pa.array(rng.integers(0, 5, n), one_of(rng, [pa.int8(), pa.int32(), pa.int64()])),
        lambda: pa.array(rng.integers(-(2**40), 2**40, n)),
        lambda: pa.array(rng.normal(size=n), one_of(rng, [pa.float64(), pa.float32()]), safe=False),
        lambda: pa.array(rng.random(n) < 0.3),
        lambda: pa.array(np.repeat(rng.integers(0, 3, n), one_of(rng, [1, 9, 50]))[:n]),
        lambda: pa.array(TEXTS[rng.integers(0, 9, n)]).dictionary_encode(),
    ]
    for i in range(int(rng.integers(1, 5))):
        made = one_of(rng, makers)()
        if rng.integers(2):
            hole = pa.array(rng.random(n) < one_of(rng, [0.05, 0.5]))
            made = pa.compute.if_else(hole, pa.scalar(None, made.type), made)
        columns[f"x{i}"] = made
    return pa.table(columns)


def written(rng: Rng, kind: str, rows: pa.Table) -> bytes:
    """Return a file of a table; the options of its format are drawn, too."""
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(
            rows,
            sink,
            row_group_size=one_of(rng, [7, 50, 1000]),
            compression=one_of(rng, ["none", "snappy", "lz4", "zstd", "gzip", "brotli"]),
            use_dictionary=bool(rng.integers(4)),
            data_page_version=one_of(rng, ["1.0", "2.0"]),
            data_page_size=one_of(rng, [64, 1024, 2**20]),
            dictionary_pagesize_limit=one_of(rng, [100, 2**20]),
            write_page_checksum=bool(rng.integers(2)),
            store_schema=bool(rng.integers(2)),
            write_batch_size=64,
        )
    elif kind in ("arrow", "arrows"):
        new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        options = pa.ipc.IpcWriteOptions(compression=one_of(rng, [None, "lz4", "zstd"]))
        with new(sink, rows.schema, options=options) as writer:
            writer.write_table(rows, max_chunksize=one_of(rng, [17, 1000]))
    elif kind == "orc":
        plain = pa.table({n: decoded(rows[n]) for n in rows.column_names})
        compression = one_of(rng, ["uncompressed", "zlib", "snappy", "zstd", "lz4"])
        pa.orc.write_table(plain, sink, compression=compression)
    elif kind == "jsonl":
        sink.write("\n".join(map(json.dumps, rows.to_pylist())).encode())
    else:
        pa.csv.write_csv(pa.table({n: decoded(rows[n]) for n in rows.column_names}), sink)
        packed = {"csv": bytes, "csv.gz": gzip.compress, "csv.zst": zst}[kind]
        return packed(sink.getvalue())
    return sink.getvalue()


def decoded(column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def zst(blob: bytes) -> bytes:
    return bytes(pa.compress(blob, "zstd", asbytes=True))


def read(path: Any, kind: str) -> pa.Table:
    """Return what pyarrow reads from a file; raises what pyarrow raises."""
    if kind == "parquet":
        found = pq.ParquetFile(path, page_checksum_verification=True).read()
    elif kind == "arrow":
        with pa.OSFile(str(path)) as file:
            found = pa.ipc.open_file(file).read_all()
    elif kind == "arrows":
        with pa.OSFile(str(path)) as file:
            found = pa.ipc.open_stream(file).read_all()
    elif kind == "orc":
        found = pa.orc.read_table(str(path))
    else:
        raise ValueError(kind)
    found.validate(full=True)
    return found
