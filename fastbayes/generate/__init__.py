"""Realistic tables of any size, the same rows for the same seed, for trials and benchmarks.

Every column depends on the class and on at most one earlier column, so naive Bayes is a fair
model of these tables and the models that see pairs of columns are better ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import refuse
from fastbayes.core.exact_arrays import exact_rows
from fastbayes.core.files import atomic_directory, real_path, sync
from fastbayes.core.suggestions import use_one_of
from fastbayes.generate.sampler import CHUNK, PRESETS, Sampler

__all__ = ["Summary", "generate", "presets", "table"]

_SUFFIX = {"parquet": ".parquet", "ipc": ".arrow", "csv": ".csv"}


def presets() -> dict[str, str]:
    """Return the presets and what each makes, in a line."""
    return {name: preset.about for name, preset in PRESETS.items()}


def table(preset: str, rows: int, seed: int = 0, *, missing: float | None = None) -> pa.Table:
    """Return a generated table in memory: the rows that `generate` would write.

    Parameters
    ----------
    preset
        One of `presets()`.
    rows
        Number of rows.
    seed
        The same seed gives the same rows; a longer table begins with the shorter one.
    missing
        Share of nulls in every column but the target; None leaves it to the preset.

    Returns
    -------
    pa.Table
        `rows` rows in chunks of 65,536; the target is the last column.

    Raises
    ------
    ValueError
        If the preset is unknown, `rows` negative or `missing` outside [0, 1].
    """
    sampler = Sampler(preset, seed, missing)
    return pa.Table.from_batches(sampler.batches(_count("rows", rows, 0), None), sampler.schema)


def _count(name: str, value: int | None, least: int) -> int:
    if value is None or value < least:
        raise ValueError(f"{name}={value}: give an integer of at least {least}")
    return value


@dataclass(frozen=True, slots=True)
class Summary:
    """What `generate` wrote."""

    path: Path
    target: str
    rows: int
    columns: int
    files: int
    bytes: int


def generate(
    preset: str,
    rows: int,
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    format: str = "parquet",
    files: int | None = None,
    row_group_rows: int = 4 * CHUNK,
    missing: float | None = None,
    force: bool = False,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Summary:
    """Write a generated table as a directory of files, a few chunks in memory at a time.

    Parameters
    ----------
    preset
        One of `presets()`.
    rows
        Number of rows over all files.
    path
        Directory to make; it appears when all of it is written.
    seed
        The same seed gives the same rows, however they are cut into files and row groups.
    format
        "parquet", "ipc" (Arrow files) or "csv".
    files
        Number of files, of equal length; None makes one per 8,388,608 rows.
    row_group_rows
        Rows of a Parquet row group or of an Arrow record batch.
    missing
        Share of nulls in every column but the target; None leaves it to the preset.
    force
        Whether to replace a directory that this function wrote before.
    threads
        Threads that draw rows; None takes all processors.
    progress
        Called with the number of rows written since the last call.

    Returns
    -------
    Summary
        Path, target, rows, columns, files and bytes written.

    Raises
    ------
    ValueError
        If an argument is out of its range; the message names it.
    DataError
        If `path` exists and `force` is not set, or holds anything but generated files.
    """
    sampler = Sampler(preset, seed, missing)
    refuse(format not in _SUFFIX, f"format={format!r}: {use_one_of(format, _SUFFIX)}", ValueError)
    _count("rows", rows, 0)
    _count("row_group_rows", row_group_rows, 1)
    n_files = _count("files", max(1, -(-rows // (128 * CHUNK))) if files is None else files, 1)
    lengths = [rows * (i + 1) // n_files - rows * i // n_files for i in range(n_files)]
    real_path(path)  # refuses what leads to no place of this machine
    path = Path(path).absolute()
    _check_target(path, force)
    with (
        atomic_directory(path, force=force) as made,
        closing(sampler.batches(rows, threads)) as batches,
    ):
        _write(batches, sampler.schema, made, format, lengths, row_group_rows, progress)
        size = sum(file.stat().st_size for file in made.iterdir())
    return Summary(path, sampler.target.column.name, rows, len(sampler.schema), n_files, size)


def _check_target(path: Path, force: bool) -> None:
    """Refuse a target that may not be replaced: only what looks generated ever is."""
    refuse(not path.parent.is_dir(), f"{path.parent}: no such directory; create it first")
    if not (path.exists() or path.is_symlink()):
        return
    refuse(not force, f"{path}: already exists; choose another path, or replace it with force=True")
    refuse(
        path.is_symlink() or not path.is_dir(),
        f"{path}: not a directory of generated files; choose another path",
    )
    suffixes = tuple(_SUFFIX.values())
    for entry in path.iterdir():
        refuse(
            not (entry.name.startswith("part-") and entry.suffix in suffixes),
            f"{path}: holds {entry.name}, not a generated file; choose another path",
        )


def _write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    folder: Path,
    format: str,
    lengths: list[int],
    group: int,
    progress: Callable[[int], object] | None,
) -> None:
    """Cut the stream of chunks into files of these lengths and these into groups of rows."""
    rest = pa.RecordBatch.from_pylist([], schema)
    for i, length in enumerate(lengths):
        file = folder / f"part-{i:05d}{_SUFFIX[format]}"
        writer, write = _writer(format, file, schema)
        with writer:
            for start in range(0, length, group):
                parts, wanted = [], min(group, length - start)
                while wanted:
                    rest = rest if rest.num_rows else next(batches)
                    parts.append(rest.slice(0, wanted))
                    rest = rest.slice(parts[-1].num_rows)
                    wanted -= parts[-1].num_rows
                made = pa.Table.from_batches(parts, schema)
                write(made)
                if progress is not None:
                    progress(made.num_rows)
        sync(file)


def _writer(format: str, path: Path, schema: pa.Schema) -> tuple[Any, Callable[[pa.Table], None]]:
    """Return a writer to close at the end, and what writes one group with it."""
    if format == "parquet":
        from pyarrow import parquet

        repeated = [f.name for f in schema if not pa.types.is_floating(f.type)]
        # Without Arrow's own schema a text column is a string, as other programs write it.
        writer = parquet.ParquetWriter(path, schema, use_dictionary=repeated, store_schema=False)
        return writer, lambda t: writer.write_table(t, row_group_size=t.num_rows)
    if format == "ipc":
        writer = pa.ipc.new_file(path, schema)
        return writer, lambda t: writer.write_table(exact_rows(t.combine_chunks()))
    from pyarrow import csv

    plain = pa.schema(
        [pa.field(f.name, pa.string()) if pa.types.is_dictionary(f.type) else f for f in schema]
    )
    writer = csv.CSVWriter(path, plain)
    return writer, lambda t: writer.write_table(t.cast(plain))
