"""`memory_limit` bounds what a call adds to the process, and refuses what cannot fit at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from growth import growth_of, measurable

import fastbayes as fb
from fastbayes import MemoryLimitError
from fastbayes.data.filesource import FileSource
from fastbayes.data.segments import BATCH_BYTES, SEGMENT_BLOCKS
from fastbayes.data.source import open_source
from fastbayes.evaluation.validate import comparison, scoring
from fastbayes.scan import budget
from fastbayes.scan.budget import LEAST_BATCH, SLACK, ReadShare

MB = 1 << 20
# What the contract leaves to allocators, which hold more than they are asked for, to modules that
# are loaded, stacks of threads and machine code: as `fb.count` says.
ALLOWED = 64 * MB


def numbers(n_rows: int, n_columns: int, seed: int = 0) -> pa.Table:
    """Return columns of numbers and a class."""
    rng = np.random.default_rng(seed)
    table = {f"x{j}": rng.normal(size=n_rows) for j in range(n_columns)}
    return pa.table(table).append_column("y", classes(rng, n_rows))


def values(n_rows: int, n_columns: int, seed: int = 0) -> pa.Table:
    """Return columns of 4 to 11 values and a class."""
    rng = np.random.default_rng(seed)
    columns = [coded(rng, n_rows, 4 + j % 8) for j in range(n_columns)]
    table = pa.table(columns, [f"c{j}" for j in range(n_columns)])
    return table.append_column("y", classes(rng, n_rows))


def coded(rng: np.random.Generator, n_rows: int, size: int) -> pa.Array:
    """Return a column of so many values."""
    codes = pa.array(rng.integers(0, size, n_rows).astype(np.int8 if size < 128 else np.int16))
    return pa.DictionaryArray.from_arrays(codes, [f"v{k}" for k in range(size)])


def classes(rng: np.random.Generator, n_rows: int) -> pa.Array:
    """Return two classes."""
    return coded(rng, n_rows, 2)


def numbers_and_values(n_rows: int, n_columns: int) -> pa.Table:
    """Return columns of numbers, as many of values, and a class."""
    table = numbers(n_rows, n_columns).drop_columns(["y"])
    for name, column in values(n_rows, n_columns).to_pydict().items():
        table = table.append_column(name, pa.array(column))
    return table


def mixed(n_rows: int, seed: int = 0) -> pa.Table:
    """Return numbers and values, with nulls, a weight and rows without a class."""
    rng = np.random.default_rng(seed)
    table = numbers(n_rows, 5, seed)
    for j, column in enumerate(values(n_rows, 6, seed).columns[:6]):
        gaps = pa.array(rng.random(n_rows) < 0.1)
        column = pa.compute.if_else(gaps, pa.scalar(None, pa.string()), column.cast(pa.string()))
        table = table.add_column(2 * j, f"c{j}", column)
    label = pa.compute.if_else(
        pa.array(rng.random(n_rows) < 0.01), None, rng.integers(0, 3, n_rows)
    )
    table = table.set_column(table.num_columns - 1, "y", label)
    return table.append_column("w", pa.array(rng.random(n_rows)))


# -- what a call adds ----------------------------------------------------------------------------


class Files:
    """Tables as files, each written when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, name: str) -> tuple[Path, Path]:
        """Return the file of a table, and one of few of its rows."""
        paths = [self.folder / f"{prefix}{name}" for prefix in ("", "tiny-")]
        for path, share in zip(paths, (1, 0), strict=True):
            if not path.exists():
                self._write(path, name, share)
        return paths[0], paths[1]

    def _write(self, path: Path, name: str, share: int) -> None:
        few = 1000
        if name == "wide.parquet":  # 240 MB decoded
            pq.write_table(numbers(20_000 if share else few, 1500), path)
        elif name == "numbers.parquet":
            pq.write_table(numbers(600_000 if share else few, 30), path, row_group_size=150_000)
        elif name == "values.parquet":
            pq.write_table(values(6_000_000 if share else few, 10), path, row_group_size=250_000)
        elif name == "one-group.parquet":
            pq.write_table(values(6_000_000 if share else few, 10), path, row_group_size=10_000_000)
        elif name == "few-rows.parquet":  # pyarrow reads what is small
            pq.write_table(numbers(120_000 if share else few, 30), path)
        elif name == "few-rows-wide.parquet":
            pq.write_table(numbers_and_values(60, 800 if share else 4), path)
        elif name == "many-columns.parquet":
            pq.write_table(numbers(100, 5000 if share else 8), path)
        elif name == "pairs.parquet":  # of 28 pairs of columns, 90,000 cells each
            rng = np.random.default_rng(0)
            columns = [coded(rng, 3000 if share else few, 300 if share else 9) for _ in range(8)]
            table = pa.table(columns, [f"c{j}" for j in range(8)])
            pq.write_table(table.append_column("y", coded(rng, len(table), 4)), path)
        elif name == "numbers.csv":
            csv.write_csv(numbers(200_000 if share else few, 20), path)
        elif name == "numbers.arrow":
            table = numbers(600_000 if share else few, 30)
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=20_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return the tables as files."""
    return Files(tmp_path_factory.mktemp("files"))


COUNT = 'return fb.count(data, "y", memory_limit=memory_limit, threads=4)'
COUNT_PAIRS = COUNT.replace('"y"', '"y", pairs=True')
SCATTER = 'return fb.count(data, "y", scatter=True, memory_limit=memory_limit, threads=4)'
BAYES = 'return fb.NaiveBayes(memory_limit=memory_limit, threads=4).fit(data, "y")'
CUT = 'return fb.NaiveBayes(numeric="mdl", memory_limit=memory_limit, threads=4).fit(data, "y")'
TREE = 'return fb.TAN(memory_limit=memory_limit, threads=4).fit(data, "y")'
# A model of few rows that has the limit.
MODEL = """
    model = fb.NaiveBayes(memory_limit=memory_limit, threads=4).fit(tiny, "y")
    """
PROBA = MODEL + "return model.predict_proba(data)"
WRITTEN = MODEL + "return fb.predict_to(model, data, {}, proba=True, force=True, threads=4)"
EVALUATED = MODEL + "return fb.evaluate(model, data, threads=4)"
COMPARED = """
    some = ["naive-bayes", "tan", "spode"]
    return fb.compare(data, "y", models=some, race=False, memory_limit=memory_limit, threads=4{})
    """
# Of few rows there are many folds: what the models without each are scored by was held of them all.
SOME = 'return fb.compare(data, "y", models={}, memory_limit=memory_limit, threads=4)'
WIDE = SOME.format(["prior", "naive-bayes", "naive-bayes-bins", "logistic"])
# A model of pairs of many values, of which there is one without each fold.
PAIRS = SOME.format(["prior", "tan"])
SWEPT = 'return fb.alpha_sweep(fb.TAN(memory_limit=memory_limit, threads=4), data, "y"{})'
CURVE = """
    some = ["tan", "naive-bayes"]
    return fb.learning_curve(some, data, "y", repeats=1, memory_limit=memory_limit, threads=4)
    """
ALL = 'return fb.compare(data, "y", memory_limit=memory_limit, threads=4{})'
PARTS = WRITTEN.format("data.replace('.parquet', '-parts')")
ONE = WRITTEN.format("data.replace('.parquet', '-one.parquet')")
slow = pytest.mark.slow
CASES = [
    ("wide.parquet", COUNT, 150),
    ("numbers.parquet", BAYES, 150),
    ("few-rows.parquet", COUNT, 60),
    ("values.parquet", BAYES, 50),
    ("values.parquet", COMPARED.format(""), 100),
    ("few-rows-wide.parquet", WIDE, 40),
    ("pairs.parquet", COUNT_PAIRS, 300),
    ("pairs.parquet", COUNT_PAIRS, 190),
    ("pairs.parquet", PAIRS, 300),
    ("pairs.parquet", SWEPT.format(""), 300),
    ("pairs.parquet", CURVE, 300),
    pytest.param("pairs.parquet", SWEPT.format(", evaluate='training'"), 300, marks=slow),
    pytest.param("wide.parquet", COUNT, 400, marks=slow),
    pytest.param("numbers.parquet", SCATTER, 150, marks=slow),
    pytest.param("numbers.parquet", CUT, 150, marks=slow),
    pytest.param("numbers.parquet", PROBA, 150, marks=slow),
    pytest.param("numbers.parquet", PARTS, 200, marks=slow),
    pytest.param("values.parquet", TREE, 50, marks=slow),
    pytest.param("values.parquet", PARTS, 200, marks=slow),
    pytest.param("values.parquet", ONE, 200, marks=slow),
    pytest.param("one-group.parquet", BAYES, 50, marks=slow),
    pytest.param("one-group.parquet", ONE, 200, marks=slow),
    pytest.param("values.parquet", EVALUATED, 50, marks=slow),
    pytest.param("values.parquet", COMPARED.format(", folds=3"), 100, marks=slow),
    pytest.param("values.parquet", COMPARED.format(""), 300, marks=slow),
    pytest.param("values.parquet", ALL.format(""), 500, marks=slow),
    pytest.param("values.parquet", ALL.format(", race=False, folds=3"), 500, marks=slow),
    pytest.param("many-columns.parquet", ALL.format(""), 300, marks=slow),
    pytest.param("numbers.csv", BAYES, 200, marks=slow),
    pytest.param("numbers.arrow", BAYES, 50, marks=slow),
    pytest.param("numbers.arrow", SCATTER, 100, marks=slow),
]


@pytest.mark.skipif(not measurable(), reason="the system does not tell")
@pytest.mark.parametrize(("name", "call", "limit"), CASES)
def test_a_call_adds_no_more_than_the_limit(name: str, call: str, limit: int, files: Files) -> None:
    growth = growth_of(call, *files.of(name), limit * MB)
    assert growth.end == "done"
    assert growth.peak <= limit * MB + ALLOWED


@pytest.mark.skipif(not measurable(), reason="the system does not tell")
@pytest.mark.parametrize(
    ("model", "limit", "end"),
    [
        ("TAN", 300, "done"),  # a tree needs the counts of its edges only: 40 MB without each fold
        ("TAN", 150, "refused"),
        pytest.param("TAN", 200, "refused", marks=slow),
        pytest.param("AODE", 200, "refused", marks=slow),
        pytest.param("AODE", 300, "refused", marks=slow),
    ],
)
def test_counts_of_folds__hold_to_the_limit_or_are_refused_before(
    model: str, limit: int, end: str, files: Files
) -> None:
    # Of each fold there are counts: what all folds need was not known before they were there.
    call = f"return fb.k_fold(fb.{model}(threads=2), data, 'y', memory_limit=memory_limit, folds=5)"
    growth = growth_of(call, *files.of("pairs.parquet"), limit * MB)
    assert growth.end.startswith(end)
    assert growth.peak <= limit * MB + ALLOWED


@pytest.mark.slow
@pytest.mark.skipif(not measurable(), reason="the system does not tell")
@pytest.mark.parametrize("name", ["wide.parquet", "numbers.parquet", "values.parquet"])
def test_many_threads_share_what_reading_takes(name: str, files: Files) -> None:
    call = COUNT.replace("threads=4", "threads=16")
    growth = growth_of(call, *files.of(name), None)
    assert growth.end == "done"
    assert growth.peak <= budget.READING + ALLOWED


# -- what is refused before it is read -----------------------------------------------------------


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be read."""

    def read(*args: object) -> None:
        raise AssertionError("rows are read")

    monkeypatch.setattr(FileSource, "segments", read)


@pytest.fixture(scope="module")
def many_columns(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file of few rows of 5,000 numbers."""
    path = tmp_path_factory.mktemp("many") / "t.parquet"
    pq.write_table(numbers(20, 5000), path)
    return str(path)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("call", "what"),
    [
        (
            lambda data, limit: fb.count(data, "y", scatter=True, memory_limit=limit),
            "counting scatter matrices needs .* over memory_limit=500,000,000: 5,000 numeric",
        ),
        (
            lambda data, limit: fb.GaussianBayes(memory_limit=limit).fit(data, "y"),
            "counting scatter matrices needs .* over memory_limit=500,000,000: 5,000 numeric",
        ),
        (
            lambda data, limit: fb.count(data, "y", pairs=True, memory_limit=limit, threads=2),
            "counting pairs needs .* over memory_limit=500,000,000: column 'x.*raise memory_limit",
        ),
        (
            lambda data, limit: fb.AODE(memory_limit=limit, threads=2).fit(data, "y"),
            "counting pairs needs .* over memory_limit=500,000,000: column 'x.*raise memory_limit",
        ),
        (
            lambda data, limit: fb.count(data, "y", triples=True, memory_limit=limit),
            "needs .* over memory_limit=500,000,000: column 'x.*leave it out",
        ),
    ],
    ids=["scatter", "gaussian", "pairs", "aode", "triples"],
)
def test_counts_that_the_schema_shows_not_to_fit(call: Any, what: str, many_columns: str) -> None:
    with pytest.raises(MemoryLimitError, match=what):
        call(many_columns, 500_000_000)


def test_text_that_does_not_fit__has_the_remedy_of_its_format(tmp_path: Path) -> None:
    table = numbers(200_000, 4)
    csv.write_csv(table, tmp_path / "t.csv")
    pq.write_table(table, tmp_path / "t.parquet")
    # Blocks of text hold every column: to read fewer would not help.
    for columns in (None, ["x0"]):
        with pytest.raises(MemoryLimitError, match=r"limit=50,000,000: write .* as Parquet"):
            fb.count(tmp_path / "t.csv", "y", columns=columns, memory_limit=50_000_000)
    fb.count(tmp_path / "t.parquet", "y", memory_limit=50_000_000)


def test_reading_that_the_footer_shows_not_to_fit(tmp_path: Path) -> None:
    wide, rows = numbers(1, 3000).schema, 20_000
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table([pa.nulls(rows, f.type) for f in wide], wide.names), path, use_dictionary=False
    )
    source = open_source(str(path))
    share = ReadShare.within(source, 4, 100_000_000)
    assert (share.threads, share.source.batch_bytes) == (1, LEAST_BATCH)
    with pytest.raises(MemoryLimitError, match=r"3,001 columns needs .* raise memory_limit"):
        share.check(100_000_000)
    ReadShare.within(source, 4, None).check(None)  # nothing is promised
    model = fb.NaiveBayes(memory_limit=100_000_000).fit(numbers(50, 3000), "y")
    with pytest.raises(MemoryLimitError, match=r"reading 3,000 columns needs"):
        fb.predict_to(model, str(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("unread")
def test_answers_that_do_not_fit(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c0": pa.array(["v0"] * 3_000_000)}), tmp_path / "t.parquet")
    model = fb.NaiveBayes(memory_limit=40_000_000).fit(values(100, 1), "y")
    with pytest.raises(MemoryLimitError, match=r"answers need 48,000,000 bytes.*predict_to"):
        model.predict_proba(str(tmp_path / "t.parquet"))


@pytest.mark.parametrize("limit", ["1 GB", [5], True, np.nan, np.inf, -np.inf])
def test_a_limit_is_a_number(limit: Any) -> None:
    with pytest.raises(ValueError, match="use a number of bytes, or None"):
        fb.count(mixed(50), "y", memory_limit=limit)
    # It came to an OverflowError where the limit was infinite.
    with pytest.raises(ValueError, match="use a number of bytes, or None"):
        fb.NetworkClassifier(memory_limit=limit).fit(values(50, 2), "y")


# -- how it is divided ---------------------------------------------------------------------------


def test_less_room__fewer_bytes_at_a_time_and_then_fewer_threads(tmp_path: Path) -> None:
    table = values(200_000, 20)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=20_000)
    source = open_source(str(tmp_path / "t.parquet"))
    held, threads = float("inf"), 8
    for limit in (2000 * MB, 200 * MB, 100 * MB, 70 * MB):
        share = ReadShare.within(source, 8, limit, width=21)
        assert share.fits
        assert share.held <= max(limit / 2, SLACK)
        assert share.held <= held
        assert share.threads <= threads
        held, threads = share.held, share.threads
    assert ReadShare.within(source, 8, None).source.batch_bytes == BATCH_BYTES
    # Counts that are foreseen leave less for reading.
    assert ReadShare.within(source, 8, 200 * MB, counts=180 * MB, width=21).held <= SLACK


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file whose later row groups have more values."""
    rng, n = np.random.default_rng(0), 20_000
    table = {f"c{j}": rng.integers(0, 40 + np.arange(n) // 125).astype(str) for j in range(3)}
    table |= {"x": rng.normal(size=n), "w": rng.random(n), "f": rng.integers(0, 3, n).astype(str)}
    table["y"] = [None if u < 0.01 else f"{u:.0f}" for u in rng.random(n)]
    path = str(tmp_path_factory.mktemp("growing") / "t.parquet")
    pq.write_table(pa.table(table), path, row_group_size=1_000)
    return path


OPTIONS: dict[str, dict[str, Any]] = {
    "values": {"exclude": ["f", "w"]},
    "weights": {"sample_weight": "w"},
    "pairs": {"pairs": True, "columns": ["c*"]},
    "cells": {"cells": True},
    "folds": {"folds": 4},
    "folds-by-column": {"folds": "f"},
    "scatter": {"scatter": True, "columns": ["x"]},
    "skip": {"pairs": True, "columns": ["c*"], "on_error": "skip"},
}


def least_limit(data: str, **options: Any) -> int:
    """Return a limit within which one thread counts, little more than it needs."""
    limit = 1
    while True:
        try:
            fb.count(data, "y", threads=1, memory_limit=limit, **options)
        except MemoryLimitError as error:
            said = int(str(error).split("needs ")[1].split(" ")[0].replace(",", ""))
            assert said > limit
            limit = max(said, limit * 5 // 4)
        else:
            return limit


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_threads__never_refuse_what_one_counts(options: dict[str, Any], growing: str) -> None:
    expected, limit = fb.count(growing, "y", threads=1, **options), least_limit(growing, **options)
    for threads in (2, 8, 16):
        found = fb.count(growing, "y", threads=threads, memory_limit=limit, **options)
        assert found.schema == expected.schema
        assert [*found.parts] == [*expected.parts]
        for name, part in expected.parts.items():
            for key, array in part.arrays().items():
                np.testing.assert_array_equal(found.parts[name].arrays()[key], array)
        assert found.folds == expected.folds
        assert found.fold_names == expected.fold_names
        assert found.dropped_rows == expected.dropped_rows
        assert found.provenance == expected.provenance
        assert [*found.ledger] == [*expected.ledger]


@pytest.mark.parametrize("kind", [fb.TAN, fb.KDB, fb.NetworkClassifier])
def test_threads__never_refuse_the_structure_that_one_finds(kind: Any, growing: str) -> None:
    def fitted(threads: int, limit: int | None = None) -> Any:
        return kind(columns=["c*"], threads=threads, memory_limit=limit).fit(growing, "y")

    limit = 1 << 17
    while True:
        try:
            fitted(1, limit)
            break
        except MemoryLimitError:
            limit = limit * 5 // 4
    expected = fitted(1).predict_proba(growing)
    for threads in (2, 8):
        np.testing.assert_array_equal(fitted(threads, limit).predict_proba(growing), expected)


def test_a_checkpoint__goes_on_when_fewer_threads_count(growing: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"pairs": True, "columns": ["c*"]}
    given = {"memory_limit": least_limit(growing, **options), "checkpoint_seconds": 0}
    told: list[int] = []
    found = fb.count(
        *(growing, "y"),
        **(options | given),
        threads=4,
        checkpoint=tmp_path / "kept",
        progress=told.append,
    )
    assert sum(told) > 20_000
    assert found == fb.count(growing, "y", **options)


def test_what_one_thread_cannot_count__is_refused_in_the_same_words(growing: str) -> None:
    given: dict[str, Any] = {"columns": ["c0"], "domains": {"c0": [str(k) for k in range(5_000)]}}
    said = set()
    for threads in (1, 8):
        with pytest.raises(MemoryLimitError, match="column 'c0' with 5000 values") as error:
            fb.count(growing, "y", threads=threads, memory_limit=9_000, **given)
        said.add(str(error.value))
    assert len(said) == 1
    # What is known of the values by then depends on the threads.
    with pytest.raises(MemoryLimitError, match="group its values, or raise memory_limit"):
        fb.count(growing, "y", pairs=True, columns=["c*"], threads=8, memory_limit=100_000)


def test_rows_that_can_be_read_once__are_refused_with_the_threads_that_may_do(
    growing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "SLACK", 1 << 30)  # reading is for many threads
    given: dict[str, Any] = {"pairs": True, "columns": ["c*"]}
    given["memory_limit"] = least_limit(growing, **given)
    rows = pq.read_table(growing)
    with pytest.raises(MemoryLimitError, match="set threads=1, or raise memory_limit"):
        fb.count(rows.to_reader(1_000), "y", threads=8, **given)
    found = fb.count(rows.to_reader(1_000), "y", threads=1, **given)
    assert found.pairs == fb.count(rows, "y", threads=1, **given).pairs


@pytest.mark.parametrize("kind", ["parquet", "arrow", "table", "array", "labels"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_columns_one_part_after_another__are_the_same_counts(
    kind: str, weight: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mixed(70_000)
    target: Any = "y"
    data: Any = table
    if kind == "parquet":
        data = str(tmp_path / "t.parquet")
        pq.write_table(table, data, row_group_size=30_000)
    elif kind == "arrow":
        data = str(tmp_path / "t.arrow")
        with pa.ipc.new_file(data, table.schema) as writer:
            writer.write_table(table, max_chunksize=9_000)
    elif kind == "array":
        if weight is not None:
            pytest.skip("its columns have no names")
        data = np.stack([table[f"x{j}"].to_numpy() for j in range(5)], axis=1)
        target = table["y"].to_numpy()
        data, target = data[~np.isnan(target)], target[~np.isnan(target)]
    elif kind == "labels":
        data, target = table.drop_columns(["y"]), table["y"]
    expected = fb.count(data, target, sample_weight=weight, threads=2)
    names, whole = [], type(open_source(data)).only

    def only(source: Any, columns: Any) -> Any:
        names.append(list(columns))
        return whole(source, columns)

    monkeypatch.setattr(type(open_source(data)), "only", only)
    # Of a table only blocks of several chunks are held: let a row of it take as much.
    monkeypatch.setattr(
        type(open_source(data)),
        "held",
        lambda source, threads: (
            1
            if len(source.schema) < 8 and kind != "array"
            else (1 if len(source.schema) < 3 else budget.READING + 1)
        ),
    )
    found = fb.count(data, target, sample_weight=weight, threads=2)
    assert found == expected
    for name, part in expected.parts.items():
        for key, array in part.arrays().items():
            np.testing.assert_array_equal(found.parts[name].arrays()[key], array)
    assert found.schema == expected.schema
    assert found.dropped_rows == expected.dropped_rows
    assert max(map(len, names)) < len(open_source(data).schema)


def test_bins__of_columns_in_parts_of_unequal_width(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(numbers(20_000, 301), path)
    within = fb.NaiveBayes(numeric="mdl", memory_limit=28 * MB, threads=4).fit(path, "y")
    whole = fb.NaiveBayes(numeric="mdl").fit(path, "y")
    assert within.statistics_ == whole.statistics_


def test_columns_that_are_counted_together__are_not_read_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(mixed(3_000), path)
    whole = FileSource.segments
    widths = []

    def segments(source: FileSource, block_rows: int) -> Any:
        widths.append(len(source.schema))
        return whole(source, block_rows)

    monkeypatch.setattr(FileSource, "segments", segments)
    monkeypatch.setattr(FileSource, "held", lambda source, threads: 2 << 30)
    fb.count(path, "y", scatter=True, columns=[f"x{j}" for j in range(5)])
    assert widths == [6]
    with pytest.raises(MemoryLimitError, match="reading 6 columns needs"):
        fb.count(path, "y", scatter=True, columns=[f"x{j}" for j in range(5)], memory_limit=10**9)


SCORED = ["naive-bayes", "spode", "tan"]


def exactly(entry: Any) -> Any:
    """Return the figures of a model."""
    return entry.figures.to_dict()


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("folds", [None, 3])
def test_compare__scores_fewer_models_at_once_to_the_same_figures(
    weight: str | None, folds: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, scans = values(60_000, 5), []
    table = table.append_column("w", pa.array(np.random.default_rng(1).random(60_000)))
    if weight is None:
        table = table.drop_columns(["w"])
    given: dict[str, Any] = {"models": SCORED, "sample_weight": weight, "folds": folds}
    expected = fb.compare(table, "y", **given)

    def scores(*args: Any, **options: Any) -> Any:
        scans.append(len(args[2]))
        return scored(*args, **options)

    limit = (4 if weight is None else 11) * MB
    scored = comparison.scores
    monkeypatch.setattr(comparison, "scores", scores)
    monkeypatch.setattr(scoring, "SLACK", 0)
    for threads in (1, 3):
        found = fb.compare(table, "y", **given, threads=threads, memory_limit=limit)
        assert [exactly(e) for e in found.entries] == [exactly(e) for e in expected.entries]
        for entry, wanted in zip(found.entries, expected.entries, strict=True):
            assert entry.gap == wanted.gap
            assert entry.gap_error == pytest.approx(wanted.gap_error, rel=1e-6, abs=1e-12)
    assert max(scans) <= len(SCORED)
    assert sum(scans) > 2 * len(SCORED)  # those of other scans once more, beside the winner


@pytest.mark.parametrize("folds", [None, 3])
def test_compare__histograms_where_not_even_one_model_fits(
    folds: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = values(60_000, 5)
    monkeypatch.setattr(scoring, "SLACK", 0)
    given: dict[str, Any] = {"models": SCORED, "folds": folds}
    expected = fb.compare(table, "y", **given)
    found = [
        fb.compare(table, "y", **given, threads=threads, memory_limit=MB) for threads in (1, 3)
    ]
    for entry in expected.entries:
        figures = found[0][entry.name].figures
        assert exactly(found[1][entry.name]) == exactly(found[0][entry.name])
        assert (entry.figures.auc_method, figures.auc_method) == ("exact", "histogram")
        assert abs(figures.auc - entry.figures.auc) <= figures.auc_error
        assert figures.log_loss == entry.figures.log_loss


@pytest.mark.usefixtures("unread")
def test_scoring_that_does_not_fit(tmp_path: Path) -> None:
    path, n_rows = str(tmp_path / "t.parquet"), 2_500_000
    pq.write_table(pa.table({"c0": ["v0"] * n_rows, "y": ["v0"] * n_rows}), path)
    table = values(100, 1)
    model, stats = fb.NaiveBayes(memory_limit=50_000_000), fb.count(table, "y")
    with pytest.raises(MemoryLimitError, match=r"probabilities of all rows need .* proba=False"):
        fb.leave_one_out(model, stats, path)
    many = pa.table({"c0": ["a"] * 5000, "y": [f"class {k}" for k in range(5000)]})
    model = fb.NaiveBayes(memory_limit=50_000_000).fit(many, "y")
    with pytest.raises(MemoryLimitError, match=r"scoring by 5,000 classes needs .* raise memory"):
        fb.evaluate(model, path, "y")


def test_plan__tells_what_reading_takes(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(numbers(SEGMENT_BLOCKS * 65_536, 40), path)
    plan = fb.plan(path, "y", scatter=True, threads=1)
    assert 131_072 * 8 * 40 < plan.reading < 10 * 131_072 * 8 * 40
    assert fb.plan(path, "y", threads=1, memory_limit=60_000_000).reading < 60_000_000
    with pytest.raises(MemoryLimitError, match=r"reading 41 columns .* memory_limit=40,000,000"):
        fb.plan(path, "y", scatter=True, threads=1, memory_limit=40_000_000)


@pytest.mark.parametrize("model", [fb.TAN, fb.KDB, fb.NetworkClassifier])
def test_reading_that_does_not_fit__is_refused_before_cut_points_are_learned(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(numbers(SEGMENT_BLOCKS * 65_536, 40), path)
    given: dict[str, Any] = {"threads": 1, "memory_limit": 40_000_000}
    what = r"reading 41 columns .* memory_limit=40,000,000"
    with pytest.raises(MemoryLimitError, match=what) as of_plan:
        fb.plan(path, "y", pairs=True, **given)

    def read(*args: object) -> None:
        raise AssertionError("rows are read")

    monkeypatch.setattr(FileSource, "segments", read)
    for counted in ({"pairs": True}, {"families": [("x0", "x1")]}):
        with pytest.raises(MemoryLimitError) as of_count:
            fb.count(path, "y", **counted, **given)
        assert str(of_count.value) == str(of_plan.value)
    with pytest.raises(MemoryLimitError) as of_fit:
        model(**given).fit(path, "y")
    assert str(of_fit.value) == str(of_plan.value)


def test_models_without_folds__leave_room_or_stay_out() -> None:
    rng = np.random.default_rng(0)
    table = {f"c{j}": rng.integers(0, 400, 1_500).astype(str) for j in range(3)}
    table["y"] = rng.integers(0, 8, 1_500).astype(str)
    with pytest.raises(MemoryLimitError, match="models without each fold"):
        fb.k_fold(fb.TAN(), table, "y", folds=5, memory_limit=150 * MB)
    asked = {"models": ["tan", "naive-bayes"], "folds": 5, "memory_limit": 150 * MB}
    board = fb.compare(table, "y", **asked)
    assert "over memory_limit=157,286,400" in board["tan"].reason
    assert board.best.name == "naive-bayes"


def test_columns_of_models_without_folds__count_beside_their_counts() -> None:
    table, model = numbers(60, 800), fb.NaiveBayes(numeric="mdl")
    with pytest.raises(MemoryLimitError, match="models without each fold"):
        fb.k_fold(model, table, "y", folds=60, memory_limit=64 * MB)


def test_few_bytes__are_free_to_models_without_folds() -> None:
    rng = np.random.default_rng(1)
    table = {f"c{j}": rng.integers(0, 12, 300).astype(str) for j in range(8)}
    table["y"] = rng.integers(0, 3, 300).astype(str)
    free = fb.compare(table, "y", models=["naive-bayes", "aode"])
    small = fb.compare(table, "y", models=["naive-bayes", "aode"], memory_limit=2 * MB)
    for name in ("naive-bayes", "aode"):
        told = small[name].figures.log_loss
        assert told == pytest.approx(free[name].figures.log_loss, rel=1e-12)
