"""The same work by other means, each in the best form found, on as many threads as fastbayes.

Each function prepares what it needs and returns what is timed: data in the layout that suits the
rival are not counted against it.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.data import Bytes, Coded
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.threads import default_threads

Run = Callable[[], Any]
Floats = NDArray[np.float64]


@functools.cache
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(default_threads())


def memory_read(memory: NDArray[Any], threads: int | None = None) -> Run:
    """Read the bytes once, in one stretch per thread: the floor under everything else."""
    words = memory.view(np.uint8).reshape(-1)
    words = words[: len(words) // 8 * 8].view(np.uint64)
    parts = np.array_split(words, threads or default_threads())
    return lambda: sum(int(total) for total in pool().map(np.sum, parts)) % (1 << 64)


def files_read(files: Sequence[Path], threads: int) -> Run:
    """Read all bytes of files once, some files in each thread: the floor where they are read."""

    def read(some: Sequence[Path]) -> int:
        memory, n_bytes = np.empty(1 << 22, np.uint8), 0
        for file in some:
            with file.open("rb", buffering=0) as handle:
                while n := handle.readinto(memory):
                    n_bytes += n
        return n_bytes

    return lambda: sum(pool().map(read, [files[k::threads] for k in range(threads)]))


def decompressed(times: int, threads: int) -> Run:
    """Decompress a block that stays in the cache of each core: what arithmetic alone gains.

    Processors that share cores, power or a host with others do less than as many of them.
    """
    block = np.random.default_rng(0).integers(0, 12, 1 << 16).astype(np.uint8).tobytes()
    packed, each = zlib.compress(block, 1), times // threads

    def unpack(_: int) -> int:
        return sum(len(zlib.decompress(packed, bufsize=len(block))) for _ in range(each))

    return lambda: sum(pool().map(unpack, range(threads)))


# -- counting ----------------------------------------------------------------------------------


def bincount(data: Coded) -> Run:
    """Count column after column by numpy.bincount of value x class; whole columns are fastest."""
    columns = [np.concatenate([b[j] for b, _ in data.blocks]) for j in range(len(data.sizes))]
    classes = np.concatenate([classes for _, classes in data.blocks])
    k = np.uint8(data.n_classes)

    def one(j: int) -> NDArray[np.int64]:
        cells = int(data.sizes[j]) * int(k)
        return np.bincount(columns[j] * k + classes, minlength=cells).reshape(-1, int(k))

    return lambda: list(pool().map(one, range(len(columns))))


def bincount_pairs(data: Coded) -> Run:
    """Count two columns at a time by numpy.bincount of their joint code, and sum it out."""
    k = data.n_classes

    def one(block: tuple[Bytes, Bytes]) -> list[NDArray[np.int64]]:
        codes, classes = block
        found = []
        for j in range(0, len(codes) - 1, 2):
            s, t = int(data.sizes[j]), int(data.sizes[j + 1])
            joint = codes[j].astype(np.uint16) * np.uint16(t) + codes[j + 1]
            cells = np.bincount(joint * np.uint16(k) + classes, minlength=s * t * k)
            found += [cells.reshape(s, t, k).sum(1), cells.reshape(s, t, k).sum(0)]
        if len(codes) % 2:
            cells = np.bincount(codes[-1] * np.uint16(k) + classes, minlength=data.sizes[-1] * k)
            found.append(cells.reshape(-1, k))
        return found

    return lambda: [sum(column) for column in zip(*pool().map(one, data.blocks), strict=True)]


def sklearn_fit(data: Coded, rows: int) -> Run:
    """Fit scikit-learn's CategoricalNB to the first rows."""
    from sklearn.naive_bayes import CategoricalNB

    matrix, classes = data.matrix(rows)
    model = CategoricalNB(min_categories=data.sizes)
    return lambda: [count.T for count in model.fit(matrix, classes).category_count_]


# -- scoring -----------------------------------------------------------------------------------


def sklearn_posterior(train: NDArray[np.int64], classes: Any, new: NDArray[np.int64]) -> Run:
    """Apply scikit-learn's CategoricalNB to codes."""
    from sklearn.naive_bayes import CategoricalNB

    model = CategoricalNB().fit(train, classes)
    return lambda: model.predict_proba(new)


def numpy_posterior(log_prior: Floats, tables: list[Floats], blocks: list[NDArray[Any]]) -> Run:
    """Add the rows of log likelihoods that the codes pick, and normalise: as one writes it."""

    def one(codes: NDArray[Any]) -> Floats:
        joint = np.tile(log_prior, (codes.shape[1], 1))
        for table, column in zip(tables, codes, strict=True):
            joint += table[column]
        joint = np.exp(joint - joint.max(axis=1, keepdims=True))
        return joint / joint.sum(axis=1, keepdims=True)

    return _in_pieces(one, blocks)


def tuned_numpy_posterior(
    log_prior: Floats, tables: list[Floats], blocks: list[NDArray[Any]]
) -> Run:
    """Do the same without temporaries or checked indices, and normalise class by class."""

    def one(codes: NDArray[Any]) -> Floats:
        joint = np.tile(log_prior, (codes.shape[1], 1))
        gathered = np.empty_like(joint)
        for table, column in zip(tables, codes, strict=True):
            np.take(table, column, axis=0, out=gathered, mode="clip")
            joint += gathered
        by_class = np.ascontiguousarray(joint.T)
        by_class -= by_class.max(axis=0)
        np.exp(by_class, out=by_class)
        by_class /= by_class.sum(axis=0)
        return by_class.T

    return _in_pieces(one, blocks)


def _in_pieces(one: Callable[[NDArray[Any]], Floats], blocks: list[NDArray[Any]]) -> Run:
    """Map a function over pieces of blocks that fit the second-level cache, on all threads."""
    step = BLOCK_ROWS // 4
    pieces = [
        np.ascontiguousarray(block[:, i : i + step])
        for block in blocks
        for i in range(0, block.shape[1], step)
    ]
    return lambda: np.concatenate(list(pool().map(one, pieces)))


# -- moments -----------------------------------------------------------------------------------


def numpy_moments(blocks: list[tuple[list[Floats], Bytes]], n_classes: int) -> Run:
    """Take mean and scatter of each class by sorting out its rows, in two passes."""

    def one(block: tuple[list[Floats], Bytes]) -> list[list[tuple[float, float]]]:
        columns, classes = block
        members = [np.flatnonzero(classes == c) for c in range(n_classes)]
        found = []
        for column in columns:
            values = [column[rows] for rows in members]
            found.append([(x.mean(), ((x - x.mean()) ** 2).sum()) for x in values])
        return found

    return lambda: [one(block) for block in blocks]


def sklearn_gaussian(blocks: list[tuple[list[Floats], Bytes]]) -> Run:
    """Fit scikit-learn's GaussianNB."""
    from sklearn.naive_bayes import GaussianNB

    matrix = np.concatenate([np.stack(columns, axis=1) for columns, _ in blocks])
    classes = np.concatenate([classes for _, classes in blocks])
    return lambda: GaussianNB().fit(matrix, classes)


# -- from Parquet ------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    return sorted(path.iterdir())


def arrow_decode(path: Path) -> Run:
    """Decode by pyarrow alone, strings as dictionaries, each file into a table."""
    files = _files(path)
    schema = pq.read_schema(files[0])
    text = [f.name for f in schema if pa.types.is_string(f.type)]

    def run() -> int:
        return sum(
            pq.read_table(file, read_dictionary=text, use_threads=True, partitioning=None).num_rows
            for file in files
        )

    return run


def arrow_stream(path: Path) -> Run:
    """Decode by pyarrow alone, strings as dictionaries, in batches of a block."""
    files = _files(path)
    schema = pq.read_schema(files[0])
    text = [f.name for f in schema if pa.types.is_string(f.type)]

    def run() -> int:
        rows = 0
        for file in files:
            with pq.ParquetFile(file, read_dictionary=text, pre_buffer=True) as parquet:
                rows += sum(b.num_rows for b in parquet.iter_batches(BLOCK_ROWS, use_threads=True))
        return rows

    return run


def duckdb_counts(path: Path, columns: list[str], target: str) -> Run | None:
    """Count every column by class in one scan of DuckDB, None where it is not installed."""
    try:
        import duckdb
    except ImportError:
        return None
    sets = ", ".join(f'("{target}", "{column}")' for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    query = (
        f'SELECT "{target}", {names}, count(*) AS n FROM read_parquet(?) '
        f"GROUP BY GROUPING SETS ({sets})"
    )
    connection = duckdb.connect(config={"threads": default_threads()})
    return lambda: connection.execute(query, [str(path / "*.parquet")]).fetchall()


def duckdb_groups(source: Path | pa.Table, column: str, target: str) -> Run | None:
    """Count one column by class in DuckDB, from a file or a table in memory."""
    try:
        import duckdb
    except ImportError:
        return None
    connection = duckdb.connect(config={"threads": default_threads()})
    if isinstance(source, Path):
        rows = f"read_parquet('{source}')"
    else:
        connection.register(rows := "data", source)
    query = f'SELECT "{column}", "{target}", count(*) FROM {rows} GROUP BY ALL'
    return lambda: connection.sql(query).to_arrow_table()


def polars_counts(path: Path, columns: list[str], target: str) -> Run | None:
    """Count every column by class in one streaming set of Polars queries, None without Polars."""
    try:
        import polars as pl
    except ImportError:
        return None

    def run() -> list[Any]:
        rows = pl.scan_parquet(path / "*.parquet")
        queries = [rows.group_by(target, column).len() for column in columns]
        return pl.collect_all(queries, engine="streaming")

    return run
