"""Row groups whose numbers are read to where earlier ones lay: the same bits, or the same error."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutating import mutations

import fastbayes as fb
from fastbayes.core.errors import DataError
from fastbayes.kernels.shared.columns import address_of
from fastbayes.scan.repeated_counts import RepeatedCounts
from fastbayes.scan.repeated_sums import RepeatedSums
from fastbayes.statistics.bundle import Statistics

ROWS = 140_000  # two blocks and a part of one
MODELS: dict[str, Callable[..., Any]] = {
    "moments": lambda **how: fb.NaiveBayes(numeric="gaussian", **how),
    "scatter": lambda **how: fb.GaussianBayes(columns=[*"abcd"], **how),
}


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")


def some(seed: int, n: int = ROWS, *, classes: int = 3, gaps: str = "") -> pa.Table:
    """Return numbers, some of them missing, a category, and a class."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(classes), rng.integers(0, classes, n - classes)]
    columns: dict[str, pa.Array] = {}
    for j, name in enumerate("abcd"):
        x = rng.normal(y * j, 1 + j, n).round(1 + 8 * (j % 2))
        if name in gaps:
            x[rng.random(n) < 0.01] = np.nan
        columns[name] = pa.array(x, mask=rng.random(n) < 0.02 if name.upper() in gaps else None)
    if "t" not in gaps:
        columns["t"] = pa.array(["u", "v"]).take(pa.array(np.r_[0, 1, rng.integers(0, 2, n - 2)]))
    columns["y"] = pa.array([f"class {c}" for c in range(classes)]).take(pa.array(y))
    return pa.table(columns)


# How numbers are stored: as they are, in dictionaries, and plain behind these once they are full.
STORED: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": ["t", "y"]},
    "coded": {"use_dictionary": True, "dictionary_pagesize_limit": 1 << 21},
    "both": {"use_dictionary": True, "dictionary_pagesize_limit": 1 << 19},
}


def written(path: Path, groups: list[pa.Table], stored: str = "plain", **options: Any) -> Path:
    with pq.ParquetWriter(path, groups[0].schema, **STORED[stored], **options) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=len(group))
    return path


@contextmanager
def tallied(monkeypatch: pytest.MonkeyPatch, *, noted: bool = True) -> Iterator[Counter[str]]:
    """Count row groups by how their numbers were summed; by no noted calls where it says so.

    Of those to `read`, sums of some are `made` by calls that are then noted.
    """
    found: Counter[str] = Counter()
    add, made = RepeatedCounts.add, RepeatedSums.made

    def noting(counts: RepeatedCounts, *given: Any, **how: Any) -> Any:
        n, sums = add(counts, *given, **how) if noted else (0, None)
        found["summed" if sums is not None else "counted" if n else "read"] += 1
        return n, sums

    def noting_first(sums: RepeatedSums) -> Any:
        first = made(sums)
        found["made" if first is not None else "in vain"] += 1
        return first

    with monkeypatch.context() as patched:
        patched.setattr(RepeatedCounts, "add", noting)
        patched.setattr(RepeatedSums, "made", noting_first)
        if not noted:
            patched.setattr(RepeatedSums, "of", lambda *given: None)
        yield found


def bits(stats: Statistics) -> dict[str, bytes]:
    parts = stats.parts.items()
    held = [(f"{name}.{key}", a) for name, part in parts for key, a in part.arrays().items()]
    return {"schema": repr(stats.schema).encode(), **{key: a.tobytes() for key, a in held}}


def compare(
    path: Path, model: str, monkeypatch: pytest.MonkeyPatch, threads: int = 1, **how: Any
) -> Counter[str]:
    """Compare sums with those that Python makes block after block; return what made them."""
    with tallied(monkeypatch, noted=False):
        expected = MODELS[model](threads=1, **how).fit(path, "y").statistics_
    with tallied(monkeypatch) as found:
        stats = MODELS[model](threads=threads, **how).fit(path, "y").statistics_
    assert bits(stats) == bits(expected)
    return found


@pytest.mark.parametrize("gaps", ["", "t", "bt", "C", "aBd"])
@pytest.mark.parametrize(
    ("stored", "codec"),
    [*(("plain", codec) for codec in ("none", "snappy", "lz4")), ("coded", "snappy"),
     ("both", "none"), ("both", "lz4")],
)  # fmt: skip
@pytest.mark.parametrize("model", MODELS)
def test_bits(
    model: str, stored: str, codec: str, gaps: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    groups = [some(k, gaps=gaps) for k in range(5)]
    path = written(tmp_path / "rows.parquet", groups, stored, compression=codec)
    found = compare(path, model, monkeypatch)
    known = model == "moments" or gaps in ("", "t")
    assert found == ({"summed": 4, "read": 1, "made": 1} if known else {"read": 5, "in vain": 2})


@pytest.mark.parametrize("model", MODELS)
def test_numbers_that_are_missing_later(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are counted once, and summed in Python where that is needed; soon none is tried."""
    groups = [some(k, 9_000, gaps="" if k < 2 else "b") for k in range(9)]
    found = compare(written(tmp_path / "rows.parquet", groups), model, monkeypatch)
    if model == "moments":
        assert found == {"summed": 8, "read": 1, "made": 1}
    else:
        assert found["summed"] == 1
        assert 1 <= found["counted"] <= 3


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_group_without_any_class(threads: int, tmp_path: Path) -> None:
    """As half-labelled files have them that are sorted by class."""
    groups = [some(k, 9_000) for k in range(3)]
    at = groups[0].schema.names.index("y")
    none = pa.nulls(9_000, pa.string())
    path = written(tmp_path / "rows.parquet", [groups[0].set_column(at, "y", none), *groups])
    stats = fb.count(path, "y", threads=threads)
    assert stats.n_rows == 27_000
    assert stats.dropped_rows == 9_000
    assert stats.allclose(fb.count(pa.concat_tables(groups), "y"))


@pytest.mark.parametrize("classes", [2, 4, 5, 9, 300])
@pytest.mark.parametrize("model", MODELS)
def test_any_number_of_classes(
    model: str, classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [some(k, classes=classes) for k in range(3)]
    groups[1] = groups[1].sort_by("y")  # blocks that lack classes
    found = compare(written(tmp_path / "rows.parquet", groups), model, monkeypatch)
    ready = 3 if classes <= 4 else 2
    assert found["summed"] == ready - 1


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("model", MODELS)
def test_threads(
    model: str, stored: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dictionaries in any order, rows of several lengths, and pages of any size."""
    # Pages larger than before come once: whichever files a thread gets, it then makes calls again.
    for k, size in enumerate([16, 17, 15, 14, 13, 12]):
        groups = [some(7 * k + g, ROWS if g else 70_001) for g in range(3)]
        groups[2] = groups[2].sort_by([("y", "descending"), ("t", "descending")])
        written(tmp_path / f"{k}.parquet", groups, stored, data_page_size=1 << size)
    found = compare(tmp_path, model, monkeypatch, threads)
    assert found["summed"] > 0  # others are read, as the last ones are, which are shared out


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("stored", ["plain", "both"])
@pytest.mark.parametrize("model", MODELS)
def test_few_row_groups(
    model: str, stored: str, n: int, threads: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What is shared out are columns, each of which is added by one thread."""
    groups = [some(k, gaps="bC" if model == "moments" else "") for k in range(n)]
    path = written(tmp_path / "rows.parquet", groups, stored)
    found = compare(path, model, monkeypatch, threads)
    shared = n % threads if model == "scatter" else 0  # while one adds, others read
    assert found["made"] + found["summed"] == n - shared


@pytest.mark.parametrize("stored", ["plain", "coded"])
def test_a_single_column(stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that adds it may be another one than that which began."""
    monkeypatch.setattr("fastbayes.scan.row_blocks.HELP_CELLS", 1)
    path = written(tmp_path / "rows.parquet", [some(0).select(["a", "t", "y"])], stored)
    for _ in range(10):
        assert compare(path, "moments", monkeypatch, 2)["made"] == 1


def test_what_differs_is_read_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another class, another codec, columns in another order, of another type, and lacking."""
    rows = some(0)
    tables = [
        rows,
        some(1),
        some(2, classes=5),
        rows.select(["y", "b", "a", "c", "t", "d"]),
        rows.set_column(0, "a", rows["a"].cast(pa.float32())),
        rows.drop_columns("b"),
        some(3),
    ]
    for k, table in enumerate(tables):
        written(tmp_path / f"{k}.parquet", [table], compression="none" if k == 1 else "snappy")
    found = compare(tmp_path, "moments", monkeypatch)
    assert found["read"] >= 3


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_infinite_number_is_refused_with_its_row(
    model: str, threads: int, tmp_path: Path
) -> None:
    groups = [some(k) for k in range(6)]
    x = groups[4]["c"].to_numpy().copy()
    x[77_777] = np.inf
    groups[4] = groups[4].set_column(2, "c", pa.array(x))
    path = written(tmp_path / "rows.parquet", groups)
    with pytest.raises(DataError, match=f"column 'c', row {4 * ROWS + 77_777} of .*infinite"):
        MODELS[model](threads=threads).fit(path, "y")


def test_sums_that_overflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [some(k) for k in range(3)]
    groups[1] = groups[1].set_column(0, "a", pa.array(np.full(ROWS, 1e300)))
    path = written(tmp_path / "rows.parquet", groups)
    with tallied(monkeypatch, noted=False):
        expected = fb.count(path, "y", threads=1)
    with tallied(monkeypatch) as found:
        stats = fb.count(path, "y", threads=1)
    assert bits(stats) == bits(expected)
    assert found["made"] == found["read"] == 1
    assert found["summed"] + found["counted"] == 2


def test_weights_folds_and_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added in another way is the same whether or not row groups are alike."""
    groups = [
        some(k)
        .append_column("w", pa.array(np.full(ROWS, 0.5)))
        .append_column("f", pa.array(np.arange(ROWS) % 3))
        for k in range(3)
    ]
    (tmp_path / "rows").mkdir()
    path = written(tmp_path / "rows" / "a.parquet", groups)
    for how in (
        {"sample_weight": "w", "exclude": ["f"]},
        {"folds": "f", "exclude": ["w"]},
        {"checkpoint": tmp_path / "so far", "exclude": ["f", "w"]},
        {"on_error": "skip", "exclude": ["f", "w"]},
        {"scatter": True, "exclude": ["f", "w"]},
    ):
        with tallied(monkeypatch, noted=False):
            expected = fb.count(path, "y", threads=1, **how)
        shutil.rmtree(tmp_path / "so far", ignore_errors=True)
        with tallied(monkeypatch):
            assert bits(fb.count(path, "y", threads=2, **how)) == bits(expected)
        shutil.rmtree(tmp_path / "so far", ignore_errors=True)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("codec", ["none", "snappy"])
@pytest.mark.parametrize("stored", ["plain", "coded"])
def test_damaged_bytes_are_refused_or_do_not_matter(
    stored: str,
    codec: str,
    which: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever stands in a row group: the sums that Python makes of it, or an error."""
    n = 2_000 if request.config.getoption("--slow") else 100
    groups = [some(k, 3_000, gaps="B") for k in range(2)]
    path = written(
        tmp_path / "rows.parquet", groups, stored, compression=codec, data_page_size=1 << 12
    )
    data, meta = path.read_bytes(), pq.read_metadata(path)
    chunks = [meta.row_group(which).column(j) for j in range(meta.num_columns)]
    begin = chunks[0].data_page_offset
    end = begin + sum(chunk.total_compressed_size for chunk in chunks)
    outcomes: Counter[str] = Counter()
    for _, damaged in mutations(data, 5, n, begin, end):
        path.write_bytes(damaged)
        try:
            with tallied(monkeypatch, noted=False):
                expected = bits(MODELS["moments"](threads=1).fit(path, "y").statistics_)
        except DataError as error:
            outcomes["refused"] += 1
            with pytest.raises(DataError) as raised:
                MODELS["moments"](threads=1).fit(path, "y")
            assert str(raised.value) == str(error)
            continue
        with tallied(monkeypatch) as found:
            assert bits(MODELS["moments"](threads=1).fit(path, "y").statistics_) == expected
        outcomes["summed" if found["made" if which == 0 else "summed"] else "read"] += 1
    assert outcomes["refused"] > n // 20
    assert outcomes["summed"] > n // 20


def test_copies_share_no_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that read columns at once wrote to one buffer: what is read there was another's."""
    sums = _of_first_rows(tmp_path, monkeypatch).pop()
    calls = sums._kernels.RepeatedCalls(sums._adding, sums._moving)
    mine, copied = (each.arguments()[1].tolist() for each in (calls, calls.copy([], _lend)))
    for scratch in (*sums.reader._scratch, sums.reader._tables, sums.reader._out):
        assert address_of(scratch) in mine
        assert address_of(scratch) not in copied


def test_memory_goes_back_with_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the garbage collector: a block of 300 columns is 200 MB."""
    held = _of_first_rows(tmp_path, monkeypatch)
    gone = weakref.ref(held[0].reader)
    gc.disable()
    try:
        held.clear()
        assert gone() is None
    finally:
        gc.enable()


def _of_first_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[RepeatedSums]:
    """Return the sums that are made of a file of one row group."""
    held: list[RepeatedSums] = []
    made = RepeatedSums.made

    def noting(sums: RepeatedSums) -> Any:
        held.append(sums)
        return made(sums)

    monkeypatch.setattr(RepeatedSums, "made", noting)
    MODELS["moments"](threads=1).fit(written(folder / "rows.parquet", [some(0)]), "y")
    assert len(held) == 1
    return held


def _lend(size: int) -> Any:
    return np.empty(size, np.uint8)
