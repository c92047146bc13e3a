"""Data of the benchmarks: ready codes, Arrow tables, generated Parquet directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fastbayes import generate
from fastbayes.core.batch import BLOCK_ROWS

Bytes = NDArray[np.uint8]


class Coded(NamedTuple):
    """Codes of `len(sizes)` columns in blocks of rows, one after another in one piece of memory.

    memory   all bytes, blocks and classes
    blocks   (codes (n_columns, n) uint8, classes (n,) uint8) of each block
    sizes    (n_columns,) number of values
    """

    memory: Bytes
    blocks: list[tuple[Bytes, Bytes]]
    sizes: NDArray[np.int64]
    n_classes: int

    @property
    def rows(self) -> int:
        return sum(len(classes) for _, classes in self.blocks)

    @property
    def cells(self) -> float:
        return float(self.rows * len(self.sizes))

    def matrix(self, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first rows as scikit-learn takes them best: int64 by column, and classes."""
        blocks = self.blocks[: -(-rows // BLOCK_ROWS)]
        codes = np.concatenate([codes for codes, _ in blocks], axis=1)[:, :rows].astype(np.int64)
        classes = np.concatenate([classes for _, classes in blocks])[:rows].astype(np.int64)
        return codes.T, classes


def coded(rows: int, sizes: list[int], n_classes: int, seed: int = 0) -> Coded:
    """Return random codes: value i of a column is (i + 1) ** -0.5 times as frequent as value 0."""
    generator = np.random.default_rng(seed)
    m = len(sizes)
    memory = np.empty((m + 1) * rows, np.uint8)
    blocks = []
    for first in range(0, rows, BLOCK_ROWS):
        n = min(BLOCK_ROWS, rows - first)
        block = memory[(m + 1) * first :][: (m + 1) * n].reshape(m + 1, n)
        for out, size in zip(block, [*sizes, n_classes], strict=True):
            np.take(_skewed(size), generator.integers(0, 256, n, np.uint8), out=out)
        blocks.append((block[:m], block[m]))
    return Coded(memory, blocks, np.array(sizes, np.int64), n_classes)


def _skewed(size: int) -> Bytes:
    """Return 256 codes, each as often as its probability says."""
    weight = np.arange(1, size + 1) ** -0.5
    ends = np.round(256 * np.cumsum(weight) / weight.sum())
    return np.searchsorted(ends, np.arange(256), side="right").astype(np.uint8)


def few_values(columns: int = 30) -> list[int]:
    """Return cardinalities of 2, 3 and 4."""
    return [2 + i % 3 for i in range(columns)]


def mixed_values(columns: int = 30) -> list[int]:
    """Return cardinalities of 2 to 12, each as often as the others."""
    return [2 + 7 * i % 11 for i in range(columns)]


def arrow_table(rows: int, sizes: list[int], n_classes: int, *, shuffled: bool) -> pa.Table:
    """Return a table of dictionary columns in chunks of a block, as a reader of files gives it.

    Each chunk has dictionaries of its own: equal ones, or the same values in another order.
    """
    generator = np.random.default_rng(1)
    names = [*(f"x{j:02d}" for j in range(len(sizes))), "class"]
    batches = []
    for codes, classes in coded(rows, sizes, n_classes, seed=1).blocks:
        columns = []
        for column, size in zip([*codes, classes], [*sizes, n_classes], strict=True):
            order = generator.permutation(size) if shuffled else np.arange(size)
            values = pa.array([f"value {v:02d}" for v in order])
            place = np.argsort(order).astype(np.int32)
            columns.append(pa.DictionaryArray.from_arrays(place[column], values))
        batches.append(pa.RecordBatch.from_arrays(columns, names))
    return pa.Table.from_batches(batches)


def numbers(
    rows: int, columns: int, n_classes: int
) -> list[tuple[list[NDArray[np.float64]], Bytes]]:
    """Return blocks of doubles about a million with spread 1 that differ a little by class."""
    generator = np.random.default_rng(2)
    blocks = []
    for first in range(0, rows, BLOCK_ROWS):
        n = min(BLOCK_ROWS, rows - first)
        classes = generator.integers(0, n_classes, n, np.uint8)
        values = [1e6 + classes / n_classes + generator.standard_normal(n) for _ in range(columns)]
        blocks.append((values, classes))
    return blocks


def parquet(preset: str, rows: int, folder: Path, compression: str = "snappy") -> Path:
    """Return a directory of generated Parquet files, made on first use."""
    path = folder / f"{preset}-{rows}"
    if not path.exists():
        generate.generate(preset, rows, path)
    if compression == "snappy":
        return path
    other = folder / f"{preset}-{rows}-{compression}"
    if not other.exists():
        other.mkdir()
        for file in path.iterdir():
            with pq.ParquetFile(file) as parquet:
                rows_of_group = parquet.metadata.row_group(0).num_rows
                table = parquet.read()
            pq.write_table(table, other / file.name, rows_of_group, compression=compression)
    return other


def linked(path: Path, copies: int, folder: Path) -> Path:
    """Return a directory that holds the files of another as often: what is read is what counts."""
    if copies == 1:
        return path
    other = folder / f"{path.name}-times-{copies}"
    if not other.exists():
        other.mkdir()
        for file in path.iterdir():
            for i in range(copies):
                os.link(file, other / f"{i:03d}-{file.name}")
    return other


def columns_file(rows: int, columns: int, folder: Path) -> Path:
    """Return a Parquet file of text columns of two to seven values, made on first use."""
    path = folder / f"columns-{rows}-{columns}.parquet"
    if not path.exists():
        generator = np.random.default_rng(3)
        sizes = {f"x{j:02d}": 2 + j % 6 for j in range(columns)} | {"class": 3}
        codes = {name: generator.integers(0, size, rows) for name, size in sizes.items()}
        words = pa.array([f"value {v}" for v in range(7)])
        pq.write_table(pa.table({name: words.take(pa.array(c)) for name, c in codes.items()}), path)
    return path


# How doubles are written to Parquet: in plain pages, as pyarrow does where nothing else is said,
# and in row groups as a stream leaves them.
WRITTEN: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": ["class"]},
    "default": {},
    "small": {"row_group_size": 5_000},
}


def parquet_numbers(rows: int, columns: int, folder: Path, written: str = "plain") -> Path:
    """Return a directory of one Parquet file of doubles, made on first use; see `WRITTEN`."""
    path = folder / f"numbers-{written}-{rows}-{columns}"
    if not path.exists():
        path.mkdir()
        generator = np.random.default_rng(7)
        table = pa.table({f"x{j:02d}": generator.normal(size=rows) for j in range(columns)})
        classes = pa.array(generator.integers(0, 3, rows)).cast(pa.string())
        table = table.append_column("class", classes)
        pq.write_table(table, path / "part-00.parquet", **WRITTEN[written])
    return path


def arrow_file(preset: str, rows: int, folder: Path) -> Path:
    """Return a generated Arrow file, made on first use."""
    path = folder / f"{preset}-{rows}-arrow"
    if not path.exists():
        generate.generate(preset, rows, path, format="ipc", files=1)
    return path / "part-00000.arrow"
