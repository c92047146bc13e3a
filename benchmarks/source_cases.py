"""The cases that begin with what users have: tables in memory, text, Parquet files."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import fastbayes as fb
from benchmarks import data, rivals
from benchmarks.case import FLOOR, OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.date_parts import parts_of
from fastbayes.data.dates import DateParts
from fastbayes.data.source import open_source

Build = Callable[[int, Path], Work]
Run = Callable[[], Any]

SKLEARN, ONE_THREAD, ALONE = "scikit-learn", "our own on one thread", "the same alone"
FREE = "the same next to a thread without the interpreter's lock"
FILES, BATCHES, PYARROW = "pyarrow, whole files", "pyarrow, batches", "pyarrow"
# What a slow rival is given: whole blocks, so that they are those of the longer table.
FEW = 4 * BLOCK_ROWS


def _counted(stats: Any) -> Any:
    return np.concatenate([stats.values.of(j) for j in range(len(stats.values.shape.sizes))])


def _assert_equal_counts(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(_counted(one), _counted(other))


# -- tables in memory --------------------------------------------------------------------------


def whole_table(rows: int, sizes: list[int], indices: str) -> pa.Table:
    """Return a table of dictionary columns in one chunk each, with such indices."""
    table = data.arrow_table(rows, sizes, 4, shuffled=False).combine_chunks()
    kind = pa.dictionary(pa.type_for_alias(indices), pa.string())
    return table.cast(pa.schema([(name, kind) for name in table.column_names]))


def indices_of(table: pa.Table) -> Any:
    chunks = (chunk for column in table.columns for chunk in column.chunks)
    return np.concatenate([chunk.indices.to_numpy() for chunk in chunks])


def _chunks(*, shuffled: bool) -> Build:
    """Count a table in chunks of a block, as a reader of files gives it."""

    def build(rows: int, _: Path) -> Work:
        sizes = data.mixed_values()
        table = data.arrow_table(rows, sizes, 4, shuffled=shuffled)
        cells = float(rows * len(sizes))
        sides = {
            OURS: Side(lambda: fb.count(table, "class"), cells),
            FLOOR: Side(rivals.memory_read(indices_of(table)), cells),
        }

        def check(results: dict[str, Any]) -> None:
            whole = fb.count(whole_table(rows, sizes, "int8"), "class")
            _assert_equal_counts(results[OURS], whole)

        return Work(sides, check)

    return build


def _whole(indices: str) -> Build:
    """Count a table in one chunk, compared with reading its indices and with scikit-learn."""

    def build(rows: int, _: Path) -> Work:
        sizes = data.mixed_values()
        table, few = whole_table(rows, sizes, indices), min(rows, FEW)
        cells = float(rows * len(sizes))
        codes = data.coded(few, sizes, 4, seed=1)
        sides = {
            OURS: Side(lambda: fb.count(table, "class"), cells),
            ONE_THREAD: Side(lambda: fb.count(table, "class", threads=1), cells),
            FLOOR: Side(rivals.memory_read(indices_of(table)), cells),
            SKLEARN: Side(rivals.sklearn_fit(codes, few), float(few * len(sizes))),
        }

        def check(results: dict[str, Any]) -> None:
            _assert_equal_counts(results[OURS], results[ONE_THREAD])
            theirs = fb.count(table.slice(0, few), "class")
            np.testing.assert_array_equal(_counted(theirs), np.concatenate(results[SKLEARN]))

        return Work(sides, check)

    return build


def beside_a_loop(run: Run, turn: Callable[[], object] = int) -> Run:
    """Return `run` with another thread in a loop, of pure Python as in a job that embeds us."""

    def busy() -> Any:
        done = threading.Event()

        def loop() -> None:
            while not done.is_set():
                turn()

        other = threading.Thread(target=loop)
        other.start()
        try:
            return run()
        finally:
            done.set()
            other.join()

    return busy


def _beside(rows: int, _: Path) -> Work:
    sizes, held = data.mixed_values(), bytes(1 << 20)
    table, cells = whole_table(rows, sizes, "int8"), float(rows * len(sizes))

    def alone() -> Any:
        return fb.count(table, "class", threads=1)

    sides = {
        OURS: Side(beside_a_loop(alone), cells),
        ALONE: Side(alone, cells),
        # What a busy core costs by itself: without the lock, in the cache.
        FREE: Side(beside_a_loop(alone, lambda: zlib.crc32(held)), cells),
    }
    return Work(sides, lambda results: _assert_equal_counts(results[OURS], results[ALONE]))


def _empirical() -> fb.NaiveBayes:
    return fb.NaiveBayes(class_prior="empirical")


def _predicted(make: Callable[[], Any], *, same: bool) -> Build:
    """Predict a table in one chunk; scikit-learn's model, the same or not, has ready codes."""

    def build(rows: int, _: Path) -> Work:
        sizes, few = data.mixed_values(), min(rows, FEW)
        table = whole_table(rows, sizes, "int8")
        model = make().fit(table.slice(0, few), "class")
        features = table.drop_columns(["class"])
        matrix, classes = data.coded(few, sizes, 4, seed=1).matrix(few)
        sides = {
            OURS: Side(lambda: model.predict_proba(features), float(rows * len(sizes))),
            SKLEARN: Side(rivals.sklearn_posterior(matrix, classes, matrix), float(matrix.size)),
        }

        def check(results: dict[str, Any]) -> None:
            ours = results[OURS]
            if same:
                np.testing.assert_allclose(ours[:few], results[SKLEARN], rtol=1e-9, atol=1e-12)
            each = [model.predict_proba(features.slice(i, 1)) for i in range(0, rows, rows // 50)]
            np.testing.assert_allclose(ours[:: rows // 50], np.concatenate(each), rtol=1e-12)

        return Work(sides, check)

    return build


# -- text --------------------------------------------------------------------------------------


def _text(values: int) -> Build:
    """Count four columns of text without dictionaries, on one thread."""

    def build(rows: int, _: Path) -> Work:
        generator = np.random.default_rng(8)
        names, columns = [f"x{j}" for j in range(4)], []
        for _ in names:
            indices = pa.array(generator.integers(0, values, rows, np.int32))
            words = pa.array([f"value {v:05d}" for v in range(values)])
            columns.append(pa.DictionaryArray.from_arrays(indices, words))
        classes = pa.array(generator.integers(0, 4, rows, np.int8))
        coded = pa.table([*columns, classes], [*names, "class"])
        text = pa.table([*(c.cast(pa.string()) for c in columns), classes], [*names, "class"])

        def check(results: dict[str, Any]) -> None:
            assert results[OURS] == fb.count(coded, "class")

        run = Side(lambda: fb.count(text, "class", threads=1), float(rows * len(names)))
        return Work({OURS: run}, check)

    return build


def _distinct(*, parquet: bool) -> Build:
    """Count a column whose values are all different, compared with DuckDB's GROUP BY."""

    def build(rows: int, folder: Path) -> Work:
        order = np.random.default_rng(9).permutation(rows)
        words = pa.array([f"user-{i:010d}" for i in order.tolist()])
        table = pa.table({"x": words, "class": pa.array(order % 2).cast(pa.int8())})
        path = folder / f"distinct-{rows}.parquet"
        if parquet and not path.exists():
            pq.write_table(table, path)
        runs = {
            OURS: lambda: fb.count(path if parquet else table, "class"),
            "DuckDB": rivals.duckdb_groups(path if parquet else table, "x", "class"),
        }

        def check(results: dict[str, Any]) -> None:
            values = results[OURS].values
            assert values.of(0).shape == (rows, 2)
            assert values.of(0).sum() == rows
            assert "DuckDB" not in results or results["DuckDB"].num_rows == rows

        return Work({name: Side(run, float(rows)) for name, run in runs.items() if run}, check)

    return build


# -- Parquet -----------------------------------------------------------------------------------


def _parquet(preset: str, compression: str = "snappy") -> Build:
    """Fit naive Bayes to files, compared with decoding them and with counting by queries."""

    def build(rows: int, folder: Path) -> Work:
        path = data.parquet(preset, rows, folder, compression)
        columns = [name for name in open_source(path).schema.names if name != "class"]
        cells = float(rows * len(columns))
        runs = {
            OURS: lambda: fb.NaiveBayes().fit(path, "class"),
            FILES: rivals.arrow_decode(path),
            BATCHES: rivals.arrow_stream(path),
            "DuckDB": rivals.duckdb_counts(path, columns, "class"),
            "Polars": rivals.polars_counts(path, columns, "class"),
        }
        sides = {name: Side(run, cells) for name, run in runs.items() if run is not None}

        def check(results: dict[str, Any]) -> None:
            counted = results[OURS].statistics_.n_rows
            assert rows == counted == results[FILES] == results[BATCHES]
            if "DuckDB" in results:
                assert sum(row[-1] for row in results["DuckDB"]) == cells
            if "Polars" in results:
                assert sum(frame["len"].sum() for frame in results["Polars"]) == cells

        return Work(sides, check)

    return build


def _numbers(make: Callable[[], Any], written: str = "plain") -> Build:
    """Fit to 30 doubles, stored as `data.WRITTEN` says."""

    def build(rows: int, folder: Path) -> Work:
        path = data.parquet_numbers(rows, 30, folder, written)
        runs = {
            OURS: lambda: make().fit(path, "class"),
            FILES: rivals.arrow_decode(path),
            BATCHES: rivals.arrow_stream(path),
        }

        def check(results: dict[str, Any]) -> None:
            counted = results[OURS].statistics_.n_rows
            assert rows == counted == results[FILES] == results[BATCHES]

        return Work({name: Side(run, float(rows * 30)) for name, run in runs.items()}, check)

    return build


QUERIES = (Claim("DuckDB", least=20), Claim("Polars", least=20))


def _dates(rows: int, _: Path) -> Work:
    """Tell the parts of timestamps of eight years in a time zone."""
    random = np.random.default_rng(0)
    moments = random.integers(1_400_000_000, 1_650_000_000, rows) * 10**6
    column = pa.array(moments, pa.timestamp("us", "Europe/Berlin"))
    table, names = pa.table({"when": column}), ["year", "month", "weekday", "hour"]
    parts = parts_of("when", column.type, names)

    def ours() -> pa.Table:
        return DateParts(parts).of(table)

    def theirs() -> list[pa.Array]:
        local = pc.local_timestamp(column)
        weekday = pc.day_of_week(local, count_from_zero=False)
        return [pc.year(local), pc.month(local), weekday, pc.hour(local)]

    def check(results: dict[str, Any]) -> None:
        for part, values in zip(parts, results[PYARROW], strict=True):
            assert results[OURS][part.name].cast(pa.int64()).combine_chunks().equals(values)

    cells = float(rows * len(parts))
    return Work({OURS: Side(ours, cells), PYARROW: Side(theirs, cells)}, check)


CASES = (
    Case(
        "dates",
        "year, month, weekday and hour of {rows} timestamps in a time zone, one thread",
        rows_of(4_000_000, 500_000),
        _dates,
        (Claim(None, most=5), Claim(PYARROW)),
        threads="one",
    ),
    *(
        Case(
            f"arrow-{kind}",
            f"`fb.count` of an Arrow table in one chunk, {{rows}} × 30 of 2–12 values, {kind}",
            rows_of(10_000_000, 1_000_000),
            _whole(kind),
            (
                Claim(None, most=0.25),
                Claim(ONE_THREAD, least=1.7),
                Claim(FLOOR),
                Claim(SKLEARN, least=115),
            ),
        )
        for kind in ("int8", "int32")
    ),
    *(
        Case(
            f"arrow-{'different' if shuffled else 'equal'}",
            f"`fb.count` of an Arrow table, {{rows}} × 30, every chunk with "
            f"{'another' if shuffled else 'the same'} dictionary",
            rows_of(4_000_000, 1_000_000),
            _chunks(shuffled=shuffled),
            (Claim(None, most=0.7), Claim(FLOOR)),
        )
        for shuffled in (False, True)
    ),
    Case(
        "arrow-beside",
        "the same in one chunk, int8, one thread, while another thread loops in pure Python",
        rows_of(10_000_000, 1_000_000),
        _beside,
        (Claim(ALONE, most=1.3), Claim(FREE, most=1.3)),
        threads="one",
    ),
    *(
        Case(
            name,
            f"`predict_proba` of {title}, an Arrow table in one chunk, {{rows}} × 30 of 2–12 "
            "values, 4 classes (scikit-learn: `CategoricalNB`, ready codes)",
            rows_of(3_000_000, 300_000),
            _predicted(make, same=same),
            (Claim(None, most=most), Claim(SKLEARN, least=60)),
        )
        for name, title, make, same, most in (
            ("predict-arrow", "naive Bayes", _empirical, True, 0.5),
            ("predict-arrow-tan", "TAN", fb.TAN, False, 0.8),
        )
    ),
    *(
        Case(
            f"text-{values}",
            f"`fb.count` of an Arrow table, {{rows}} × 4 of text without dictionaries, "
            f"{values:,} values, 4 classes, one thread",
            rows_of(4_000_000, 500_000),
            _text(values),
            (Claim(None, most=5),),
            threads="one",
        )
        for values in (8, 10_000)
    ),
    *(
        Case(
            f"distinct-{'parquet' if parquet else 'arrow'}",
            f"`fb.count` of {{rows}} different strings, from "
            f"{'Parquet' if parquet else 'an Arrow table'}",
            rows_of(10_000_000, 300_000),
            _distinct(parquet=parquet),
            (Claim("DuckDB", most=3),),
        )
        for parquet in (False, True)
    ),
    Case(
        "parquet-cat",
        "Parquet to fitted model, {rows} × 30 text columns, 4 classes",
        rows_of(1_000_000, 300_000),
        _parquet("cat"),
        (Claim(FILES, least=6), Claim(BATCHES, least=6), *QUERIES),
    ),
    Case(
        "parquet-long",
        "Parquet to fitted model, {rows} × 20 text columns, 2 classes",
        rows_of(10_000_000, 1_000_000),
        _parquet("long"),
        (Claim(FILES, least=6), Claim(BATCHES, least=6), *QUERIES),
    ),
    Case(
        "parquet-zstd",
        "the same, {rows} × 20, compressed by Zstandard",
        rows_of(10_000_000, 1_000_000),
        _parquet("long", "zstd"),
        (Claim(FILES, least=3), Claim(BATCHES, least=3), Claim("DuckDB"), Claim("Polars")),
    ),
    *(
        Case(
            f"parquet-{name}",
            f"Parquet to {title}, {{rows}} × 30 doubles in plain pages, 3 classes",
            rows_of(3_000_000, 300_000),
            _numbers(make),
            (Claim(FILES, least=2), Claim(BATCHES, least=2)),
        )
        for name, title, make in (
            ("moments", "fitted naive Bayes", fb.NaiveBayes),
            ("gaussian", "fitted `GaussianBayes`", fb.GaussianBayes),
        )
    ),
    *(
        Case(
            f"parquet-{written}",
            f"Parquet to fitted naive Bayes, {{rows}} × 30 doubles {how}, 3 classes",
            rows_of(rows, 300_000),
            _numbers(fb.NaiveBayes, written),
            (Claim(FILES), Claim(BATCHES)),
        )
        for written, how, rows in (
            ("default", "as pyarrow writes them", 3_000_000),
            ("small", "in row groups of 5,000", 1_000_000),
        )
    ),
)
