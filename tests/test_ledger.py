"""A statistic knows which files it was counted from, and `merge` lets nothing count twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import answer, fails, run
from hypothesis import given
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.ledger import EDGE, CountedFile, Ledger, digest_of, runs_of

NAMES = [digit * 32 for digit in "abc"]
GROUPS = 4
dense = st.lists(st.integers(0, 2), min_size=GROUPS, max_size=GROUPS)
ledgers = st.dictionaries(st.sampled_from(NAMES), dense)


def ledger_of(times: dict[str, list[int]]) -> Ledger:
    """Return a ledger that says how often each row group of a file was counted."""
    return Ledger(
        CountedFile(name, f"{name[0]}.parquet", 1, None, tuple((1, float(t)) for t in held))
        for name, held in times.items()
    )


def dense_of(ledger: Ledger) -> dict[str, list[float]]:
    return {file.digest: [t for n, t in file.runs for _ in range(n)] for file in ledger}


def naive(a: dict[str, list[int]], b: dict[str, list[int]], factor: float) -> dict[str, Any]:
    nothing = [0] * GROUPS
    sums = {
        name: [
            x + factor * y for x, y in zip(a.get(name, nothing), b.get(name, nothing), strict=True)
        ]
        for name in {**a, **b}
    }
    return {name: held for name, held in sums.items() if any(held)}


@given(ledgers, ledgers, st.sampled_from([0.5, 2.0, 3.0]))
def test_ledgers_are_counted_like_rows(a: Any, b: Any, factor: float) -> None:
    mine, theirs = ledger_of(a), ledger_of(b)
    assert dense_of(mine + theirs) == naive(a, b, 1.0)
    assert dense_of(mine - theirs) == naive(a, b, -1.0)
    assert dense_of(mine * factor) == naive({}, a, factor)
    assert dense_of(mine + theirs - theirs) == dense_of(mine)
    assert dense_of(Ledger.sum([mine, theirs, mine])) == dense_of(mine + theirs + mine)
    assert dense_of(Ledger.from_array(mine.to_array())) == dense_of(mine)
    both = {n for n in a.keys() & b.keys() if any(x and y for x, y in zip(a[n], b[n], strict=True))}
    assert {file.digest for file in mine.common(theirs)} == both
    less = {n for n in b if any(x < y for x, y in zip(a.get(n, [0] * GROUPS), b[n], strict=True))}
    assert {file.digest for file in mine.lacking(theirs)} == less


def test_shares__however_small_are_known_and_leave_nothing() -> None:
    """What weighs 1e-12 of a file is in as well, and counts twice when it is added again."""
    one = ledger_of({NAMES[0]: [1, 1, 2]})
    small = one * 1e-12
    assert [*small.common(one)]
    assert [*small.lacking(one * 2e-12)]
    assert not [*small.lacking(small)]
    assert not len(one * 0.1 + one * 0.2 - one * 0.3)


@pytest.mark.parametrize(("first", "last"), [(0, 5), (0, 2), (2, 5), (1, 3)])
def test_runs_of_some_row_groups(first: int, last: int) -> None:
    runs = runs_of(range(first, last), 5)
    assert [t for n, t in runs for _ in range(n)] == [float(first <= i < last) for i in range(5)]


@pytest.mark.parametrize("size", [0, 1, 2 * EDGE, 2 * EDGE + 1, 5 * EDGE])
def test_digest__tells_files_by_their_ends_and_size(tmp_path: Path, size: int) -> None:
    def digest(data: bytes) -> str:
        (tmp_path / "f").write_bytes(data)
        with open(tmp_path / "f", "rb") as handle:
            return digest_of(handle, len(data))

    data = bytes(np.random.default_rng(0).integers(0, 256, size, np.uint8))
    assert digest(data) == digest(bytes(data))
    others = [data + b"\0", *([data[:-1] + bytes([data[-1] ^ 1]), data[1:]] if size else [])]
    assert digest(data) not in map(digest, others)


# -- what is counted


def days(folder: Path, n: int = 4) -> list[Path]:
    """Write files of different rows, each of two row groups, and return their paths."""
    folder.mkdir(exist_ok=True)
    for i in range(n):
        z = np.random.default_rng(i).normal(size=7)
        rows = {"x": [*"abcabc", "abc"[i % 3]], "z": z, "y": [*"pqpqpqp"]}
        pq.write_table(pa.table(rows), folder / f"day-{i}.parquet", row_group_size=4)
    return [folder / f"day-{i}.parquet" for i in range(n)]


def files_of(stats: fb.Statistics) -> list[str]:
    return sorted(Path(file.path).name for file in stats.ledger)


def test_count__notes_files_and_row_groups(tmp_path: Path) -> None:
    paths = days(tmp_path / "d")
    stats = fb.count(tmp_path / "d", "y")
    assert files_of(stats) == [path.name for path in paths]
    assert {file.runs for file in stats.ledger} == {((2, 1.0),)}
    assert {file.size for file in stats.ledger} == {path.stat().st_size for path in paths}
    assert stats.provenance == ()
    assert not fb.count(pq.read_table(paths[0]), "y").ledger
    model = fb.NaiveBayes().fit(paths[0], "y").partial_fit(paths[1], "y")
    assert files_of(model.statistics_) == ["day-0.parquet", "day-1.parquet"]
    model.save(tmp_path / "m.fb")
    assert files_of(fb.load(tmp_path / "m.fb").statistics_) == files_of(model.statistics_)


def test_count__by_workers_notes_the_same(tmp_path: Path) -> None:
    days(tmp_path / "d")
    here = fb.count(tmp_path / "d", "y")
    there = fb.count(fb.engines.Paths(tmp_path / "d", map, 8), "y")
    assert sorted(there.ledger) == sorted(here.ledger)


@pytest.mark.parametrize("how", ["csv", "arrow", "json", "orc"])
def test_count__notes_files_of_every_format(tmp_path: Path, how: str) -> None:
    table = pa.table({"x": ["a", "b"], "y": ["p", "q"]})
    path = tmp_path / f"t.{how}"
    if how == "csv":
        pyarrow.csv.write_csv(table, path)
    elif how == "json":
        path.write_text("\n".join(map(json.dumps, table.to_pylist())))
    elif how == "orc":
        pytest.importorskip("pyarrow.orc").write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    stats = fb.count(path, "y")
    assert files_of(stats) == [path.name]
    with pytest.raises(fb.DataError, match="count twice"):
        fb.merge([stats, fb.count(path, "y")])


def test_a_file_without_rows_is_no_part(tmp_path: Path) -> None:
    """Empty files have the same bytes; days without rows must merge."""
    paths = days(tmp_path / "d", 2)
    for i in range(2):
        pq.write_table(pq.read_table(paths[0])[:0], tmp_path / "d" / f"empty-{i}.parquet")
    stats = [
        fb.count([path, tmp_path / "d" / f"empty-{i}.parquet"], "y") for i, path in enumerate(paths)
    ]
    assert files_of(fb.merge(stats)) == [path.name for path in paths]


def test_a_file_changed_while_it_is_counted_is_refused(tmp_path: Path) -> None:
    path = days(tmp_path / "d", 1)[0]

    def change(_: int) -> None:
        shutil.copy(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").replace(path)

    with pytest.raises(fb.DataError, match=r"day-0\.parquet changed while it was read"):
        fb.count(path, "y", progress=change)


# -- merge


def test_merge__is_the_sum_and_the_difference(tmp_path: Path) -> None:
    paths = days(tmp_path / "d")
    parts = [fb.count(path, "y") for path in paths]
    whole = fb.count(paths, "y")
    merged = fb.merge(parts)
    assert merged.allclose(whole)
    assert sorted(merged.ledger) == sorted(whole.ledger)
    less = fb.merge([whole], minus=parts[:2])
    assert less.allclose(fb.count(paths[2:], "y"), 1e-9)
    assert files_of(less) == ["day-2.parquet", "day-3.parquet"]
    in_memory = fb.count(pq.read_table(paths[0]), "y")
    assert fb.merge([in_memory, in_memory]).n_rows == 14  # nobody knows these rows again


def test_merge__one_is_as_good_as_a_list_of_one(tmp_path: Path) -> None:
    days(tmp_path / "d", 2)
    day, both = fb.count(tmp_path / "d" / "day-0.parquet", "y"), fb.count(tmp_path / "d", "y")
    for stats, path in ((day, tmp_path / "day.fbs"), (both, tmp_path / "both.fbs")):
        stats.save(path)
    for one, other in ((day, both), (tmp_path / "day.fbs", str(tmp_path / "both.fbs"))):
        assert fb.merge(one) == day
        assert fb.merge(other, minus=one) == fb.merge([both], minus=[day])


def test_merge__refuses_a_copy_by_any_name(tmp_path: Path) -> None:
    paths = days(tmp_path / "d", 2)
    shutil.copy(paths[0], tmp_path / "renamed.parquet")
    first, copied = fb.count(paths, "y"), fb.count(tmp_path / "renamed.parquet", "y")
    with pytest.raises(fb.DataError, match=r"renamed\.parquet, with the same bytes as .*day-0"):
        fb.merge([first, copied])
    twice = fb.merge([first, copied], allow_overlap=True)
    assert twice.n_rows == 21
    assert sorted(file.runs[0][1] for file in twice.ledger) == [1.0, 2.0]
    assert fb.merge([twice], minus=[copied]).n_rows == 14
    assert twice.allclose(first + copied)
    names = ["day-0.parquet", "renamed.parquet"]
    (both,) = [file for file in twice.ledger if file.copies]
    assert [Path(path).name for path in both.paths] == names
    assert files_of(fb.merge([twice], minus=[first])) == names[1:]
    assert files_of(fb.merge([twice], minus=[copied])) == files_of(first)
    assert not any(file.copies for file in (twice - copied).ledger)


def test_count__names_copies_that_count(tmp_path: Path) -> None:
    paths = days(tmp_path / "d", 2)
    shutil.copy(paths[0], tmp_path / "d" / "copy.parquet")
    stats = fb.count(tmp_path / "d", "y")
    assert stats.n_rows == 21
    found = [path for file in stats.ledger for path in file.paths]
    assert sorted(Path(path).name for path in found) == [
        "copy.parquet",
        *files_of(fb.count(paths, "y")),
    ]
    assert [*fb.Statistics.from_bytes(stats.to_bytes()).ledger] == [*stats.ledger]
    shares = fb.count(fb.engines.Paths(tmp_path / "d", map, 5), "y")
    assert sorted(shares.ledger) == sorted(stats.ledger)


def test_merge__takes_row_groups_apart(tmp_path: Path) -> None:
    path = days(tmp_path / "d", 1)[0]
    shares = fb.engines.Paths(path, map, 2)
    found: list[fb.Statistics] = []

    def spied(f: Any, items: Any) -> Any:
        for item in items:
            data = f(item)
            found.append(f.read(data).part.value.statistics)
            yield data

    shares.map = spied
    whole = fb.count(shares, "y")
    assert fb.merge(found).allclose(whole)
    with pytest.raises(fb.DataError, match=r"day-0\.parquet is in statistics 1 already"):
        fb.merge([whole, found[1]])


def test_merge__what_is_not_in_cannot_be_taken_out(tmp_path: Path) -> None:
    parts = [fb.count(path, "y") for path in days(tmp_path / "d", 3)]
    week = fb.merge(parts[:2])
    with pytest.raises(fb.DataError, match=r"day-2\.parquet is not in"):
        fb.merge([week], minus=[parts[2]])
    with pytest.raises(fb.DataError, match=r"day-0\.parquet is not in"):
        fb.merge([week], minus=[parts[0], parts[0]])
    with pytest.raises(fb.DataError, match="cannot be taken out: "):
        fb.merge([parts[1]], minus=[week], allow_overlap=True)
    with pytest.raises(ValueError, match="no statistics"):
        fb.merge([])


def test_merge__other_options_are_named(tmp_path: Path) -> None:
    paths = days(tmp_path / "d", 2)
    pairs = fb.count(paths[1], "y", pairs=True, discretize="quantile")
    with pytest.raises(fb.SchemaError, match="statistics 2 does not go with those before it"):
        fb.merge([fb.count(paths[0], "y"), pairs])


@pytest.mark.parametrize("seed", range(5))
def test_merge__a_window_slides_and_a_retry_changes_nothing(tmp_path: Path, seed: int) -> None:
    paths = days(tmp_path / "d", 9)
    parts = [fb.count(path, "y") for path in paths]
    rng, window = np.random.default_rng(seed), fb.merge(parts[:3])
    for day in range(3, 9):
        for _ in range(rng.integers(1, 4)):
            window = fb.merge([window, parts[day]], minus=[parts[day - 3]])
        assert window.allclose(fb.count(paths[day - 2 : day + 1], "y"), 1e-9)
        assert files_of(window) == [path.name for path in paths[day - 2 : day + 1]]


def test_merge_command__slides(tmp_path: Path) -> None:
    for i, path in enumerate(days(tmp_path / "d", 3)):
        run("count", path, "--target", "y", "-o", tmp_path / f"{i}.fbs")
    zero, one, two, window = (tmp_path / name for name in ("0.fbs", "1.fbs", "2.fbs", "w.fbs"))
    run("merge", zero, one, "-o", window)
    slide = ("merge", window, two, "--minus", zero, "-o", window)
    run(*slide)
    once = window.read_bytes()
    said = answer(*slide)
    assert window.read_bytes() == once
    assert said["rows"] == 14
    assert [Path(path).name for path in said["source"]] == ["day-1.parquet", "day-2.parquet"]
    shutil.copy(two, tmp_path / "copy.fbs")
    out = tmp_path / "out.fbs"
    said = fails("merge", window, tmp_path / "copy.fbs", "-o", out, folder=tmp_path)
    assert "copy.fbs" in said
    assert "day-2.parquet is in" in said
    run("merge", window, tmp_path / "copy.fbs", "--allow-overlap", "-o", out)
    assert fb.Statistics.load(out).n_rows == 21
    again = ("-o", out, "--force")
    said = fails("merge", window, window, *again, folder=tmp_path)
    assert "w.fbs is named twice; its rows would count double" in said
    assert answer("merge", window, window, "--allow-overlap", *again)["rows"] == 28
    said = fails("merge", window, "--minus", one, "--minus", one, *again, folder=tmp_path)
    assert "1.fbs is named twice; its rows would be taken out twice" in said
    assert answer("merge", window, "--minus", window, *again)["rows"] == 0
    assert "is not in" in fails(
        "merge", window, "--minus", zero, "-o", out, "--force", folder=tmp_path
    )


# -- files


@pytest.mark.parametrize(
    "ledger",
    [
        b"[1]",
        b"{",
        b'[["a", "p", 1, null, [[1, 1.0]]]]',
        json.dumps([[NAMES[0], "p", -(2**70), None, [[1, 1.0]]]]).encode(),
        json.dumps([[NAMES[0], "p", 1, None, [[0, 1.0]]]]).encode(),
        json.dumps([[NAMES[0], "p", 1, None, [[1, float("nan")]]]]).encode(),
        json.dumps([[NAMES[0], "p", 1, None, [[1, 1.0]], [7]]]).encode(),
        json.dumps([[NAMES[0], 7, 1, None, [[1, 1.0]]]]).encode(),
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_damaged_ledger_is_refused(ledger: bytes) -> None:
    stats = fb.count({"x": ["a"], "y": ["p"]}, "y")
    header, arrays = stats.state()
    with pytest.raises(fb.FileFormatError, match="do not fit together"):
        fb.Statistics.from_state(header, {**arrays, "ledger": np.frombuffer(ledger, np.uint8)}, "f")


def test_merge__of_many_parts_knows_them_all() -> None:
    stats = fb.count({"x": ["a"], "y": ["p"]}, "y")
    (file,) = ledger_of({NAMES[0]: [1]})
    parts = [
        fb.Statistics(stats.schema, stats.parts, ledger=Ledger([file._replace(digest=f"{i:032x}")]))
        for i in range(300)
    ]
    merged = fb.merge(iter(parts))
    assert (len(merged.ledger), merged.n_rows) == (300, 300)
    with pytest.raises(fb.DataError, match=r"a\.parquet is in statistics 4 already"):
        fb.merge([*parts, parts[3]])
