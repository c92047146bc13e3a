"""Row groups decoded to where earlier ones lie: the counts of the same rows in memory."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from mutating import mutations

import fastbayes as fb
from fastbayes.core.errors import DataError
from fastbayes.data import filesource
from fastbayes.data.filesource import ParquetReader
from fastbayes.scan import repeated_counts
from fastbayes.scan.repeated_counts import RepeatedCounts

pytestmark = pytest.mark.usefixtures("kernels")

MODELS = fb.NaiveBayes, fb.AODE, fb.A2DE
ROWS = 70_000  # more than a block, and not a whole number of them


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Return how often row groups were alike, and were not, from now on."""
    found: Counter[bool] = Counter()
    add = RepeatedCounts.add

    def noting(counts: RepeatedCounts, *given: Any, **how: Any) -> Any:
        n, sums = add(counts, *given, **how)
        found[True] += n
        found[False] += not n and counts.counts() is not None
        return n, sums

    monkeypatch.setattr(RepeatedCounts, "add", noting)
    return found


def some(seed: int, n: int = ROWS, *, nulls: str = "", words: int = 3) -> pa.Table:
    """Return rows of a few columns, in some of which values are missing."""
    rng = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {}
    for name, size in (("a", 2), ("b", words), ("c", 12), ("y", 4)):
        hidden = (rng.random(n) < 0.1) & (np.arange(n) >= size) if name in nulls else None
        texts = pa.array([f"{name}{k}" for k in range(size)])
        # every value in the same order of first appearance: writers make the same dictionary
        codes = np.r_[np.arange(size), rng.integers(0, size, n - size)]
        columns[name] = texts.take(pa.array(codes, mask=hidden))
    columns["t"] = pa.array(rng.random(n) < 0.3, mask=rng.random(n) < 0.1 if "t" in nulls else None)
    return pa.table(columns)


def written(path: Path, groups: list[pa.Table], **options: Any) -> Path:
    with pq.ParquetWriter(path, groups[0].schema, **options) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=len(group))
    return path


def check(path: Path, groups: list[pa.Table], threads: int = 1, models: Any = MODELS) -> None:
    """Hold the counts of a file against those of its rows in memory."""
    table = pa.concat_tables(groups)
    for fit in models:
        ours = fit(threads=threads).fit(path, "y").statistics_
        assert ours == fit().fit(table, "y").statistics_


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode one row group at a time."""
    monkeypatch.setattr("fastbayes.data.filesource.BATCH_ROWS", ROWS)


@pytest.mark.parametrize("compression", ["snappy", "none", "zstd", "lz4", "gzip"])
@pytest.mark.parametrize("nulls", ["", "ab", "t"])
def test_counts(compression: str, nulls: str, tmp_path: Path, again: Counter[bool]) -> None:
    groups = [some(k, nulls=nulls) for k in range(6)]
    path = written(tmp_path / "rows.parquet", groups, compression=compression)
    check(path, groups)
    assert again[True] == 5 * len(MODELS) * (compression != "gzip")


@pytest.mark.parametrize("threads", [2, 3])
def test_threads(threads: int, tmp_path: Path, again: Counter[bool]) -> None:
    groups = [some(k) for k in range(24)]
    check(written(tmp_path / "rows.parquet", groups), groups, threads)
    assert again[True] >= (24 - 2 * threads) * len(MODELS)


@pytest.mark.parametrize("bad", range(4))
def test_no_thread_waits_for_one_that_failed(bad: int, tmp_path: Path) -> None:
    groups = [some(k) for k in range(2)]
    paths = [written(tmp_path / f"{k}.parquet", groups) for k in range(4)]
    damaged = bytearray(paths[bad].read_bytes())
    damaged[4:34] = bytes(30)  # the header of the first page
    paths[bad].write_bytes(damaged)
    found: list[Any] = []

    def count() -> None:
        with pytest.raises(DataError, match=rf"{bad}\.parquet, row group 0"):
            fb.count(tmp_path, "y", threads=4)
        found.append(fb.count(tmp_path, "y", threads=4, on_error="skip").n_rows)

    # As many threads as files: who failed does nothing further.
    counting = threading.Thread(target=count, daemon=True)
    counting.start()
    counting.join(60)
    assert found == [(len(paths) * 2 - 1) * ROWS]


def test_several_row_groups_together(
    tmp_path: Path, again: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in ("BATCH_ROWS", "JOINED_ROWS"):
        monkeypatch.setattr(f"fastbayes.data.filesource.{most}", 3 * ROWS)
    groups = [some(k, nulls="b") for k in range(12)]
    check(written(tmp_path / "rows.parquet", groups), groups)
    assert again == {True: 3 * len(MODELS), False: 0}


def test_what_differs_is_read_for_itself(tmp_path: Path, again: Counter[bool]) -> None:
    groups = [
        *(some(0), some(1)),
        *(some(2, words=5), some(3, words=5)),  # more values
        *(some(4, nulls="c"), some(5)),
        *(some(6, 100_000), some(7), some(8, 100_000)),  # fewer and more rows
    ]
    check(written(tmp_path / "rows.parquet", groups), groups)
    assert again[True] >= 4
    assert again[False] >= 4


@pytest.mark.parametrize("threads", [1, 2])
def test_fewer_rows_at_the_end__are_read_first(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    decoded = ParquetReader._decoded_together

    def noting(reader: Any, schema: pa.Schema, some: list[int], chunks: Any) -> Any:
        read.extend(some)
        return decoded(reader, schema, some, chunks)

    monkeypatch.setattr(ParquetReader, "_decoded_together", noting)
    groups = [*map(some, range(3)), some(3, ROWS // 2)]
    path = written(tmp_path / "rows.parquet", groups)
    check(path, groups, threads, models=MODELS[:1])
    assert len(read) == 2
    assert 3 in read
    assert threads > 1 or read == [3, 0]


@pytest.mark.parametrize("group", range(4))
def test_a_value_that_is_refused__is_found_where_it_stands(group: int, tmp_path: Path) -> None:
    groups = [*map(some, range(3)), some(3, ROWS // 2)]
    words = groups[group]["b"].to_pylist()
    groups[group] = groups[group].set_column(1, "b", pa.array([*words[:123], "?", *words[124:]]))
    path = written(tmp_path / "rows.parquet", groups)
    with pytest.raises(DataError, match=rf"column 'b', row {group * ROWS + 123} of .*'\?'"):
        fb.count(path, "y", domains={"b": ["b0", "b1", "b2"]}, threads=1)


@pytest.mark.parametrize("nulls", ["", "bc"])
def test_values_in_another_order(nulls: str, tmp_path: Path, again: Counter[bool]) -> None:
    """Also where some of them do not occur; then in the first order once more."""
    groups = [some(k, nulls=nulls) for k in range(3)]
    for k, by in ((3, "c"), (4, "b"), (5, "y")):
        groups.append(some(k, nulls=nulls).sort_by([(by, "descending")]))
    fewer = some(6, nulls=nulls)
    fewer = pa.concat_tables([fewer.filter(pc.field("c") != "c3")] * 2).slice(0, ROWS)
    groups += [fewer, groups[0], groups[4], fewer, groups[1]]
    check(written(tmp_path / "rows.parquet", groups), groups)
    if not nulls:  # else more values of one column are known where others are not
        assert again == {True: 10 * len(MODELS), False: 0}


def test_the_longest_rows_stay(tmp_path: Path, again: Counter[bool]) -> None:
    """Each file ends with fewer rows: both sizes are read again."""
    files = tmp_path / "files"
    files.mkdir()
    each = [[some(10 * k), some(10 * k + 1), some(10 * k + 2, 5_000)] for k in range(4)]
    for k, groups in enumerate(each):
        written(files / f"part-{k}.parquet", groups)
    check(files, [*chain(*each)])
    assert again[True] == 10 * len(MODELS)


def test_values_that_come_later_have_room(tmp_path: Path) -> None:
    """A row group with more values makes the counts grow, after which others are read again."""
    groups = [some(k, words=3 + 40 * (k % 3 == 2)) for k in range(9)]
    check(written(tmp_path / "rows.parquet", groups), groups)


def test_columns_without_a_value(tmp_path: Path) -> None:
    def blank(seed: int) -> pa.Table:
        rows = some(seed, nulls="b")
        return rows.set_column(1, "b", pa.nulls(ROWS, pa.string()))

    for k, groups in enumerate(
        (
            [some(0, nulls="b"), blank(1), some(2, nulls="b"), blank(3)],
            [blank(0), blank(1), some(2)],
        )
    ):
        check(written(tmp_path / f"{k}.parquet", groups), groups)


def test_many_values_in_another_order(tmp_path: Path, again: Counter[bool]) -> None:
    groups = [some(k, words=5_000) for k in range(2)]
    groups.append(some(2, words=5_000).sort_by("c"))
    check(written(tmp_path / "rows.parquet", groups), groups, models=MODELS[:2])
    assert again == {True: 2, False: 2}


def test_an_error_is_that_of_the_row_group_itself(tmp_path: Path) -> None:
    groups = [some(k) for k in range(4)]
    path = written(tmp_path / "rows.parquet", groups, compression="none", write_page_checksum=True)
    chunk = pq.read_metadata(path).row_group(2).column(2)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"rows\.parquet, row group 2, column 'c': .*checksum"):
        fb.count(path, "y")


@pytest.mark.parametrize(
    ("compression", "of"),
    [("none", "rows"), ("snappy", "rows"), ("zstd", "rows"), ("none", "footer")],
)
def test_damaged_bytes_are_refused_or_do_not_matter(
    compression: str, of: str, tmp_path: Path, request: pytest.FixtureRequest, again: Counter[bool]
) -> None:
    """Whatever stands in the second row group: the counts that pyarrow makes, or an error."""
    n = 5_000 if request.config.getoption("--slow") else 200
    groups = [some(0, nulls="a"), some(1, nulls="a")]
    path = written(tmp_path / "rows.parquet", groups, compression=compression)
    data = path.read_bytes()
    meta = pq.read_metadata(path)
    chunks = [meta.row_group(1).column(j) for j in range(meta.num_columns)]
    begin = chunks[0].dictionary_page_offset
    end = chunks[-1].data_page_offset
    if of == "footer":
        begin, end = len(data) - 8 - meta.serialized_size, len(data) - 8
    outcomes: Counter[str] = Counter()
    for _, damaged in mutations(data, 5, n, begin, end):
        path.write_bytes(damaged)
        try:
            found = fb.NaiveBayes(threads=1).fit(path, "y").statistics_
        except DataError:
            outcomes["refused"] += 1
            continue
        outcomes["counted"] += 1
        try:
            table = pq.read_table(path, page_checksum_verification=True)
            table.validate(full=True)
        except (pa.ArrowException, OSError):  # more than pyarrow reads, of values that are sound
            continue
        assert found == fb.NaiveBayes().fit(table, "y").statistics_
    assert outcomes["refused"] > n // 10
    assert outcomes["counted"] > n // 10
    assert again[True] > n // 20
    assert of == "footer" or again[False] > n // 10


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Return how often a thread copied, or could not copy, what another noted, from now on."""
    found: Counter[bool] = Counter()
    copy = repeated_counts._Repeated.copy

    def noting(each: Any, *given: Any) -> Any:
        mine = copy(each, *given)
        found[mine is not None] += 1
        return mine

    monkeypatch.setattr(repeated_counts._Repeated, "copy", noting)
    return found


@pytest.mark.parametrize("nulls", ["", "ab", "t"])
@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_threads_copy_what_the_first_noted(
    nulls: str, compression: str, tmp_path: Path, copies: Counter[bool]
) -> None:
    """With values in any order: each thread finds codes by tables of its own."""
    groups = [some(k, nulls=nulls) for k in range(24)]
    for k in range(1, 24, 3):
        groups[k] = groups[k].sort_by([("abcy"[k % 4], "descending")])
    path = written(tmp_path / "rows.parquet", groups, compression=compression)
    check(path, groups, threads=4)
    assert copies[True] >= len(MODELS)


def test_counts_that_are_laid_out_otherwise_are_not_copied() -> None:
    """Threads that met gaps in different columns have as many cells, in other places."""
    counts = {nulls: fb.count(some(0, nulls=nulls), "y", pairs=True).parts for nulls in "at"}
    for name in counts["a"]:
        one, other = (counts[nulls][name] for nulls in "at")
        assert one.added_to[0].size == other.added_to[0].size
        assert one.is_laid_out_like(one.blank())
        assert not one.blank().added_to[0].any()
    assert not one.is_laid_out_like(other)
    assert name == "pairs"


@pytest.mark.parametrize("threads", [1, 3])
def test_columns_in_another_order_and_some_of_them(threads: int, tmp_path: Path) -> None:
    groups = [some(k) for k in range(12)]
    path = written(tmp_path / "rows.parquet", groups)
    table = pa.concat_tables(groups)
    for columns in (["y", "c", "a"], ["t", "y"], ["c", "t", "a", "y"]):
        assert fb.count(path, "y", columns=columns, threads=threads) == fb.count(
            table, "y", columns=columns
        )


@pytest.mark.parametrize("damaged", [0, 1, 7])
def test_threads_do_not_wait_for_one_that_failed(damaged: int, tmp_path: Path) -> None:
    groups = [some(k) for k in range(8)]
    path = written(tmp_path / "rows.parquet", groups, compression="none", write_page_checksum=True)
    chunk = pq.read_metadata(path).row_group(damaged).column(1)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"row group {damaged}, column 'b': .*checksum"):
        fb.count(path, "y", threads=4)


def test_rows_that_do_not_last__are_soon_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that is missing here and there: threads read side by side."""
    groups = [some(k, 2_000, nulls="y") for k in range(60)]
    path = written(tmp_path / "rows.parquet", groups)
    waited: Counter[int] = Counter()

    class Noted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited[threading.get_ident()] += 1
            return super().wait(timeout)

    monkeypatch.setattr(repeated_counts.threading, "Event", Noted)
    monkeypatch.setattr(filesource, "JOINED_ROWS", 1)
    fb.count(path, "y", threads=3)
    assert sum(waited.values()) <= 3 * (repeated_counts.MOST_UNLIKE + 1)


def test_an_index_outside_its_dictionary(tmp_path: Path) -> None:
    """Also where a thread with a copy of the calls meets it."""
    groups = [some(k) for k in range(12)]
    path = written(tmp_path / "rows.parquet", groups, compression="none", use_dictionary=["c"])
    meta = pq.read_metadata(path)
    data = bytearray(path.read_bytes())
    chunk = meta.row_group(9).column(2)
    # twelve values take four bits each: all ones is the sixteenth
    middle = chunk.data_page_offset + chunk.total_compressed_size // 2
    data[middle : middle + 4] = b"\xff" * 4
    path.write_bytes(data)
    for threads in (1, 4):
        with pytest.raises(DataError, match="column 'c'"):
            fb.count(path, "y", threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_files_that_lack_a_column(threads: int, tmp_path: Path) -> None:
    """Their rows are alike among themselves, and those of other files have one more column."""
    files = tmp_path / "files"
    files.mkdir()
    tables = [some(k).drop_columns(["b"] if k in (0, 3) else []) for k in range(6)]
    for k, table in enumerate(tables):
        written(files / f"{k}.parquet", [table, table])
    whole = pa.concat_tables(chain(*zip(tables, tables, strict=True)), promote_options="default")
    assert fb.count(files, "y", threads=threads) == fb.count(whole, "y")
