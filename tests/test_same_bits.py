"""Whichever road the rows come by, the statistics have the same bits.

Counts for every number of threads, size of blocks, cut into chunks, row groups and files, reader
and kernels; floating-point sums for every number of threads, cut into chunks and reader of the same
row groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_many_blocks import KINDS, table_of

import fastbayes as fb
from fastbayes.data import column_chunks, filesource, memory
from fastbayes.data.segments import SEGMENT_BLOCKS
from fastbayes.models.estimator import base
from fastbayes.scan import engine, row_blocks
from fastbayes.statistics.bundle import Statistics

READERS = ("memory", "our pages", "plain numbers", "pyarrow", "dataset", "stream", "ipc")

COUNTS: list[dict[str, Any]] = [
    {},
    {"pairs": True},
    {"triples": True},
    {"cells": ["int80"]},
    {"families": [("int80", "int81"), ("int81",)]},
    {"folds": "f"},  # folds by place are of a segment
]
SUMS: list[dict[str, Any]] = [
    {},
    {"scatter": True},
    {"sample_weight": "w"},
    {"sample_weight": "w", "scatter": True},
    {"sample_weight": "w", "pairs": True, "discretize": "width"},
    {"numeric": "histogram"},
    {"cell_scatter": True, "cells": ["int80"]},
]


class Road(NamedTuple):
    """How rows reach the statistics.

    cuts  rows at which a chunk, a batch or a row group begins anew
    """

    reader: str
    threads: int
    kernels: str
    block: int
    cuts: tuple[int, ...]
    files: int = 1


@st.composite
def roads(draw: st.DrawFn, n: int) -> Road:
    cuts = draw(st.sets(st.integers(1, max(n - 1, 1)), max_size=6))
    return Road(
        draw(st.sampled_from(READERS)),
        draw(st.sampled_from([1, 2, 3])),
        draw(st.sampled_from(["always", "always", "never"])),
        draw(st.sampled_from([32, 64, 1 << 16])),
        tuple(sorted(cuts)),
        draw(st.sampled_from([1, 1, 3])),
    )


def parts_of(table: pa.Table, cuts: tuple[int, ...]) -> list[pa.Table]:
    bounds = [0, *cuts, len(table)]
    return [table.slice(a, b - a) for a, b in pairwise(bounds) if b > a]


def counted(
    table: pa.Table, road: Road, options: Mapping[str, Any], group: int | None = None
) -> Statistics:
    """Count the rows of a table that come by a road; `group` gives all row groups its rows."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as name:
        patch.setenv("FASTBAYES_KERNELS", road.kernels)
        for module in (engine, row_blocks, base, filesource, memory):
            patch.setattr(module, "BLOCK_ROWS", road.block)
        if road.reader == "pyarrow":
            patch.setattr(column_chunks.Footer, "divide", lambda *_: ([], {}))
        source = source_of(table, road, Path(name), group)
        return fb.count(source, "y", threads=road.threads, **options)


def source_of(table: pa.Table, road: Road, folder: Path, group: int | None) -> Any:
    parts = parts_of(table, road.cuts)
    chunked = pa.concat_tables(parts)
    batches = [batch for part in parts for batch in part.to_batches()]
    if road.reader == "memory":
        return chunked
    if road.reader == "stream":
        return batches
    if road.reader == "ipc":
        plain = decoded(table)  # a file holds one dictionary of a column
        with pa.ipc.new_file(folder / "rows.arrow", plain.schema) as ipc:
            for part in parts_of(plain, road.cuts) if group is None else [plain]:
                ipc.write_table(part, max_chunksize=group)
        return folder / "rows.arrow"
    n_files = 1 if group is not None else min(road.files, len(parts))
    options: dict[str, Any] = {}
    if road.reader == "plain numbers":  # several pages of a block, and blocks of a page
        others = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
        options = {"use_dictionary": others, "data_page_size": 300, "write_batch_size": 20}
    for k in range(n_files):
        with pq.ParquetWriter(folder / f"{k}.parquet", table.schema, **options) as parquet:
            mine = parts[k * len(parts) // n_files : (k + 1) * len(parts) // n_files]
            for part in mine if group is None else [table]:
                parquet.write_table(part, row_group_size=group or len(part))
    return ds.dataset(folder, format="parquet") if road.reader == "dataset" else folder


def decoded(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries."""
    return pa.table(
        {
            name: column.cast(column.type.value_type)
            if pa.types.is_dictionary(column.type)
            else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


def bits_of(stats: Statistics) -> dict[str, bytes]:
    """Return the bytes of all arrays of statistics, and what they mean."""
    return {
        "schema": repr(stats.schema).encode(),
        **{
            f"{fold} {name}.{key}": array.tobytes()
            for fold, each in enumerate([stats, *stats.folds])
            for name, part in each.parts.items()
            for key, array in part.arrays().items()
        },
    }


def rows_of(n: int, seed: int, kinds: list[str], nulls: float) -> pa.Table:
    """Return a table whose columns have a chunk each, some of them without a class."""
    table = table_of(n, seed, ["int8", "int8", *kinds], nulls, 1).combine_chunks()
    rng = np.random.default_rng(seed)
    labels = pa.array(rng.choice(["p", "q", "r"], n), mask=rng.random(n) < nulls / 4)
    return table.set_column(table.column_names.index("y"), "y", labels)


@pytest.mark.compiled
@settings(max_examples=60)
@given(
    n=st.sampled_from([2, 63, 64, 65, 130, 640, 1000]),
    seed=st.integers(0, 2**32),
    kinds=st.lists(st.sampled_from(KINDS), max_size=3),
    nulls=st.sampled_from([0.0, 0.0, 0.3]),
    options=st.sampled_from(COUNTS),
    data=st.data(),
)
def test_counts_by_any_road(
    n: int,
    seed: int,
    kinds: list[str],
    nulls: float,
    options: dict[str, Any],
    data: st.DataObject,
) -> None:
    table = rows_of(n, seed, kinds, nulls).drop_columns(["w"])
    options = {**options, "categorical": [name for name in table.column_names if name != "y"]}
    if "folds" in options:
        table = table.append_column("f", pa.array(np.arange(n) % 7 % 3))
    expected = counted(table, Road("memory", 1, "never", 1 << 16, ()), options)
    found = counted(table, data.draw(roads(n)), options)
    assert bits_of(found) == bits_of(expected)


@pytest.mark.compiled
@settings(max_examples=60)
@given(
    n=st.sampled_from([2, 64, 128, 129, 640, 1000]),
    seed=st.integers(0, 2**32),
    nulls=st.sampled_from([0.0, 0.3]),
    options=st.sampled_from(SUMS),
    data=st.data(),
)
def test_floating_point_sums_by_any_road_of_the_same_row_groups(
    n: int, seed: int, nulls: float, options: dict[str, Any], data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    table = rows_of(n, seed, ["text"], nulls).drop_columns(["w"])
    table = table.append_column("r", pa.array(1e3 * rng.normal(size=n)))
    table = table.append_column("s", pa.array(rng.normal(size=n), mask=rng.random(n) < nulls))
    if "sample_weight" in options:
        table = table.append_column("w", pa.array(rng.random(n) * (rng.random(n) < 0.9)))
    road = data.draw(roads(n))
    expected = counted(table, Road("memory", 1, road.kernels, road.block, ()), options)
    found = counted(table, road, options, group=SEGMENT_BLOCKS * road.block)
    assert bits_of(found) == bits_of(expected)


@pytest.mark.compiled
@pytest.mark.parametrize("kernels", ["always", "never"])
@pytest.mark.parametrize("n_classes", [6, 20, 300])
def test_sums_do_not_depend_on_classes_that_other_blocks_tell(kernels: str, n_classes: int) -> None:
    rng, n = np.random.default_rng(n_classes), 1800
    table = pa.table(
        {
            "r": 1e3 * rng.normal(size=n),
            "s": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.1),
            "y": np.repeat(np.arange(n_classes), n // n_classes).astype(str),
        }
    )
    found = [
        bits_of(counted(table, Road(reader, threads, kernels, 64, ()), {"scatter": True}))
        for reader in ("stream", "memory")
        for threads in (1, 2)
    ]
    assert all(bits == found[0] for bits in found)


@pytest.mark.compiled
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_is_a_road_of_its_own(reader: str) -> None:
    table = rows_of(300, 1, [], 0.0).drop_columns(["w"])
    handed: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        divide = column_chunks.Footer.divide

        def noted(*given: Any) -> Any:
            chunks = divide(*given)
            handed.append(len(chunks[0]))
            return chunks

        patch.setattr(column_chunks.Footer, "divide", noted)
        counted(table, Road(reader, 1, "always", 64, (100,)), {})
    assert bool(handed and max(handed)) == (reader in ("our pages", "plain numbers"))
