"""Directories of files that differ: columns that come and go, types, conflicts."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from commands import answer, fails, full_disk, run
from stores import KEYS, serving

import fastbayes as fb
from fastbayes.data import text
from fastbayes.data.filesource import open_all
from fastbayes.data.paths import find_files
from fastbayes.data.source import open_source


def written(folder: Path, form: str, *tables: pa.Table) -> Path:
    """Write a file for each table: 0, 1, 2 ..."""
    folder.mkdir(exist_ok=True)
    for i, table in enumerate(tables):
        path = folder / f"{i}.{form}"
        if form == "parquet":
            pq.write_table(table, path)
        elif form == "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        elif form == "csv":
            pa.csv.write_csv(table, path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return folder


def rows(source: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a source."""
    opened = open_source(source, **options)
    found = [b.to_pylist() for s in opened.segments(1 << 16) for b in s.batches()]
    return [row for some in found for row in some]


def drawn(n: int, seed: int) -> pa.Table:
    """Return rows of a class, a text, a whole number and a fraction."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "y": random.choice(["no", "yes"], n),
            "t": pa.array(random.choice(["a", "b", "c"], n), mask=random.random(n) < 0.1),
            "n": pa.array(random.integers(0, 9, n).astype(np.int32), mask=random.random(n) < 0.1),
            "x": random.integers(0, 64, n) / 8,
        }
    )


def same(found: fb.Statistics, expected: fb.Statistics) -> None:
    """Hold counts to be equal, and sums of fractions, which are added in another order, nearly."""
    one, other = found.aligned(expected.schema), expected
    assert found.schema.names == expected.schema.names
    for name in expected.parts:
        if name == "moments":
            np.testing.assert_array_equal(one.moments.count, other.moments.count)
            np.testing.assert_allclose(one.moments.mean, other.moments.mean, rtol=1e-12)
            np.testing.assert_allclose(one.moments.scatter, other.moments.scatter, rtol=1e-11)
        else:
            assert one.parts[name] == other.parts[name], name
    assert found.dropped_rows == expected.dropped_rows


FORMS = ["parquet", "arrow", "csv", "jsonl"]


@pytest.mark.parametrize("form", FORMS)
def test_union__is_the_table_with_nulls(tmp_path: Path, form: str) -> None:
    """Counts are those of the tables joined by pyarrow, whichever file lacks what."""
    parts = [drawn(300, i) for i in range(5)]
    parts[1] = parts[1].append_column("new", pa.array(["p", "q", None] * 100))
    parts[2] = parts[2].drop_columns(["t"])
    parts[3] = parts[3].drop_columns(["x"]).append_column("late", pa.array([0.5] * 300))
    parts[4] = parts[4].set_column(2, "n", parts[4]["n"].cast(pa.int64()))
    folder = written(tmp_path / "lake", form, *parts)
    whole = pa.concat_tables(parts, promote_options="permissive")
    assert rows(folder) == whole.to_pylist()
    columns = ["late", "y", "t"]
    assert rows(folder, columns=columns) == whole.select(columns).to_pylist()
    for options in ({}, {"pairs": True}):
        found = fb.count(folder, "y", **options)
        expected = fb.count(whole, "y", **options)
        same(found, expected)
        assert fb.count(folder, "y", threads=1, **options) == found
    if form == "jsonl":  # which does not write what is null
        return
    notes = [note for note in found.provenance if note.startswith("absent")]
    assert [note.split("'")[1] for note in notes] == ["t", "x", "new", "late"]
    assert "is null in 4 of 5 files" in notes[2]


def test_union__reads_numbers_that_some_files_have_as_whole_numbers(tmp_path: Path) -> None:
    parts = [drawn(70_000, i).select(["y", "x"]) for i in range(3)]
    parts[1] = parts[1].set_column(1, "x", pa.array(np.arange(70_000) % 50, pa.int32()))
    parts[2] = parts[2].drop_columns(["x"])
    folder = written(tmp_path / "lake", "parquet", *parts)
    whole = pa.concat_tables(parts, promote_options="permissive")
    stats = fb.count(folder, "y")
    same(stats, fb.count(whole, "y"))
    assert fb.count(folder, "y", threads=1) == stats


CATEGORIES: list[list[Any]] = [
    *([1, 2], [1.5, 2], [True, False], ["a", "b"]),
    *(["2020-01-01", "2021-01-01"], ["10:00", "11:00"]),
]


@pytest.mark.parametrize("values", CATEGORIES, ids=str)
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_union__nulls_of_one_file_go_with_categories_of_any_type(
    tmp_path: Path, form: str, values: list[Any]
) -> None:
    days = [pa.table({"v": v, "y": [*"np"]}) for v in (values, pa.nulls(2))]
    expected = fb.count(days[0], "y", categorical="v") + fb.count(days[1], "y", categorical="v")
    for name, some in (("last", days), ("first", days[::-1])):
        folder = written(tmp_path / name, form, *some)
        assert fb.count(folder, "y", categorical="v") == expected


@pytest.mark.parametrize("values", CATEGORIES, ids=str)
def test_json__nulls_in_the_first_blocks_go_with_categories_of_any_type(
    tmp_path: Path, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 40)
    whole = pa.table({"v": [None] * 20 + values, "y": [*"np"] * 11})
    folder = written(tmp_path, "jsonl", whole)
    assert fb.count(folder, "y", categorical="v") == fb.count(whole, "y", categorical="v")


CONFLICTS: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "text": (lambda t: t.set_column(2, "n", t["n"].cast(pa.string())), "int32.*0.*string.*1"),
    "truth": (lambda t: t.set_column(3, "x", pa.array([True] * len(t))), "double.*0.*bool.*1"),
}


@pytest.mark.parametrize("mode", ["union", "first", "strict"])
@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict__names_both_files(tmp_path: Path, name: str, mode: str) -> None:
    change, said = CONFLICTS[name]
    folder = written(tmp_path / "lake", "parquet", drawn(9, 0), change(drawn(9, 1)), drawn(9, 2))
    with pytest.raises(fb.SchemaError, match=said):
        fb.count(fb.Files(folder, schema_mode=mode), "y")
    fb.count(fb.Files(folder, schema_mode=mode), "y", columns=["t"])


@pytest.mark.parametrize("odd", range(4))
def test_conflict__skipped_leaves_out_the_rarer_type(tmp_path: Path, odd: int) -> None:
    parts = [drawn(50, i) for i in range(4)]
    wrong = parts[odd].set_column(2, "n", parts[odd]["n"].cast(pa.string()))
    folder = written(tmp_path / "lake", "parquet", *parts[:odd], wrong, *parts[odd + 1 :])
    stats = fb.count(folder, "y", on_error="skip")
    same(stats, fb.count(pa.concat_tables(parts[:odd] + parts[odd + 1 :]), "y"))
    assert [Path(f.path).stem for f in stats.ledger] == [str(i) for i in range(4) if i != odd]
    (left,) = [note for note in stats.provenance if note.startswith("left out")]
    assert f"{odd}.parquet" in left
    assert "'n'" in left


def test_first__ignores_what_others_have_besides(tmp_path: Path) -> None:
    parts = [drawn(40, 0), drawn(40, 1).append_column("new", pa.array([1] * 40))]
    folder = written(tmp_path / "lake", "parquet", *parts)
    first = fb.Files(folder, schema_mode="first")
    whole = pa.concat_tables([parts[0], parts[1].drop_columns(["new"])])
    same(fb.count(first, "y"), fb.count(whole, "y"))
    back = fb.Files([folder / "1.parquet", folder / "0.parquet"], schema_mode="first")
    with pytest.raises(fb.SchemaError, match=r"0\.parquet has no column 'new', which .*1\.parquet"):
        fb.count(back, "y")
    assert fb.count(back, "y", on_error="skip").n_rows == 40
    with pytest.raises(fb.SchemaError, match="no column 'new'"):
        fb.count(first, "y", columns=["new"])


STRICT: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "more": (lambda t: t.append_column("new", pa.nulls(len(t), pa.int8())), "'new' that .*0.parq"),
    "fewer": (lambda t: t.drop_columns(["t"]), "no column 't', which .*0.parq"),
    "wider": (lambda t: t.set_column(2, "n", t["n"].cast(pa.int64())), "int32.*0.parq.*int64.*1"),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict__stops_at_the_first_difference(tmp_path: Path, name: str) -> None:
    change, said = STRICT[name]
    folder = written(tmp_path / "lake", "parquet", drawn(9, 0), change(drawn(9, 1)))
    with pytest.raises(fb.SchemaError, match=said):
        fb.count(fb.Files(folder, schema_mode="strict"), "y")


def test_strict__takes_encodings_of_text_and_columns_without_values(tmp_path: Path) -> None:
    one = pa.table({"y": ["a", "b"], "t": ["p", "q"], "n": [1, 2]})
    other = pa.table({"n": pa.nulls(2), "t": one["t"].dictionary_encode(), "y": one["y"]})
    folder = written(tmp_path / "lake", "arrow", one, other)
    assert fb.count(fb.Files(folder, schema_mode="strict"), "y").n_rows == 4


def judged(source: Any) -> Sequence[Any]:
    """Return what comes of a source by every function that takes one."""
    model = fb.NaiveBayes().fit(source, "y")
    return (
        model.statistics_,
        fb.count(source, "y"),
        model.predict(source).tolist(),
        fb.evaluate(model, source).to_dict(),
        fb.compare(source, "y", models=["naive-bayes"]).best.figures.log_loss,
        fb.plan(source, "y").total,
        fb.BayesianNetwork.learn(source, columns=["y", "t"]).edges,
    )


def test_files__go_where_paths_go(tmp_path: Path) -> None:
    folder = written(tmp_path / "lake", "parquet", drawn(200, 0), drawn(200, 1))
    assert judged(fb.Files(folder, schema_mode="strict")) == judged(folder)
    with pytest.raises(ValueError, match="schema_mode='unoin'"):
        fb.Files(folder, schema_mode="unoin")
    with pytest.raises(fb.DataError, match="Files are paths"):
        fb.count(fb.Files(drawn(9, 0)), "y")


def test_command_line__has_the_modes_wherever_data_are_read(tmp_path: Path) -> None:
    new = drawn(60, 1).append_column("new", pa.array(["u", "v"] * 30))
    folder = written(tmp_path / "lake", "parquet", drawn(60, 0), new)
    model = tmp_path / "m.fb"
    said = run("fit", folder, "--target", "y", "-o", model).stderr
    assert "column 'new' is null in 1 of 2 files, which lack it: " in said
    for command in (
        ("fit", folder, "--target", "y", "-o", tmp_path / "n.fb"),
        ("count", folder, "--target", "y", "-o", tmp_path / "n.fbs"),
        ("compare", folder, "--target", "y", "--models", "naive-bayes"),
        ("inspect", folder, "--target", "y"),
        ("network", "learn", folder, "-o", tmp_path / "n.bif"),
    ):
        said = fails(*command, "--schema-mode", "strict", folder=tmp_path)
        assert "1.parquet has a column 'new' that " in said
    run("fit", folder, "--target", "y", "--schema-mode", "first", "-o", tmp_path / "f.fb")
    assert fb.load(tmp_path / "f.fb").schema_.names == ("t", "n", "x")
    for name, *more in (("predict", "-o", tmp_path / "p.csv"), ("evaluate",)):
        said = fails(name, model, folder, *more, "--schema-mode", "strict", folder=tmp_path)
        assert "'new'" in said
        run(name, model, folder, *more)
    said = run(
        *("fit", "--statistics", tmp_path / "s.fbs", "--schema-mode", "first"),
        *("-o", tmp_path / "g.fb"),
        code=2,
    ).stderr
    assert "--schema-mode goes with DATA" in said


def hive(root: Path, days: int, rows_of_day: int = 40) -> Path:
    """Write a file for each day into a directory of its own."""
    for day in range(days):
        folder = root / f"day=2026-11-{day + 1:02}"
        folder.mkdir(parents=True)
        pq.write_table(drawn(rows_of_day, day), folder / "part.parquet")
    return root


def test_partitions__of_one_directory_are_columns_as_of_all(tmp_path: Path) -> None:
    lake = hive(tmp_path / "lake", 3)
    for source in (lake / "day=2026-11-02", lake / "day=2026-11-02" / "part.parquet"):
        (feature,) = (f for f in fb.count(source, "y").schema.features if f.name == "day")
        assert feature.values is not None
        assert feature.values.to_pylist() == ["2026-11-02"]
        assert "day" not in fb.count(fb.Files(source, partitions=False), "y").schema.names
    model = fb.NaiveBayes().fit(lake, "y")
    whole = model.predict_proba(lake)
    parts = [model.predict_proba(lake / f"day=2026-11-0{day}") for day in (1, 2, 3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    run("count", lake, "--target", "y", "--no-partitions", "-o", tmp_path / "s.fbs")
    assert fb.load(tmp_path / "s.fbs").schema.names == ("t", "n", "x")


class Disturbed:
    """A source of files, beside which something happens once so many segments are handed out.

    By default once all are.
    """

    def __init__(self, source: Any, happens: Callable[[], Any], after: int | None = None) -> None:
        self.source, self.happens, self.after = source, happens, after

    def __fastbayes_source__(self, **options: Any) -> Any:
        opened = open_source(self.source, **options)
        segments = opened.segments

        def disturbed(block_rows: int) -> Any:
            found = segments(block_rows)
            yield from islice(found, self.after)
            self.happens()
            yield from found

        opened.segments = disturbed  # type: ignore[method-assign]
        return opened


def test_files__that_appear_or_vanish_while_they_are_read(tmp_path: Path) -> None:
    lake = hive(tmp_path / "lake", 3)
    late = lake / "day=2026-11-02" / "late.parquet"
    for source in (lake, str(lake / "**")):
        appearing = Disturbed(source, lambda: pq.write_table(drawn(9, 9), late))
        with pytest.raises(fb.DataError, match=r"late\.parquet appeared while .* was read"):
            fb.count(appearing, "y")
        late.unlink()
        stats = fb.count(appearing, "y", on_error="skip")
        assert stats.n_rows == 120
        assert "late.parquet appeared" in " ".join(stats.provenance)
        late.unlink()
    one = Disturbed(lake / "day=2026-11-01" / "part.parquet", lambda: late.write_bytes(b"x"))
    assert fb.count(one, "y").n_rows == 40
    late.unlink()
    last = lake / "day=2026-11-03" / "part.parquet"
    with pytest.raises(fb.DataError, match=r"11-03/part\.parquet: no such file or directory"):
        fb.count(Disturbed(lake, last.unlink), "y")


USES: dict[str, Callable[[fb.NaiveBayes, Any], Any]] = {
    "predict": lambda model, rows: model.predict(rows),
    "predict_proba": lambda model, rows: model.predict_proba(rows),
    "log_joint": lambda model, rows: model.log_joint(rows),
    "score": lambda model, rows: model.score(rows, "y"),
    "evaluate": fb.evaluate,
    "adapt_prior": lambda model, rows: model.adapt_prior(rows),
    "leave_one_out": lambda model, rows: fb.leave_one_out(
        fb.NaiveBayes(), fb.count(drawn(40, 1), "y"), rows
    ),
    "count": lambda model, rows: fb.count(rows, "y"),
}


@pytest.mark.parametrize("use", USES)
def test_a_file__replaced_between_row_groups_is_named_by_all_who_read_it(
    tmp_path: Path, use: str
) -> None:
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for seed, where in ((1, path), (2, other)):
        pq.write_table(drawn(40, seed), where, row_group_size=10)
    model = fb.NaiveBayes().fit(drawn(40, 1), "y")
    with pytest.raises(fb.DataError, match=r"a\.parquet changed while it was read; begin again"):
        USES[use](model, Disturbed(path, lambda: shutil.copy(other, path), after=1))


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
@pytest.mark.parametrize("use", ["evaluate", "count"])
def test_a_file__that_is_another_one_now_is_not_said_to_be_broken(
    tmp_path: Path, form: str, use: str
) -> None:
    path = written(tmp_path / "lake", form, drawn(40, 1)) / f"0.{form}"
    model = fb.NaiveBayes().fit(drawn(40, 1), "y")
    changing = Disturbed(path, lambda: path.write_bytes(b"\xff\0{" * 9), after=0)
    with pytest.raises(fb.DataError, match=rf"0\.{form} changed while it was read; begin again"):
        USES[use](model, changing)


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("after", [1, None])
@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (lambda path: os.utime(path, (1, 1)), " changed while it was read"),
        (Path.unlink, ": no such file or directory any more"),
    ],
)
def test_rows_that_are_counted__are_not_said_to_be_left_out(
    tmp_path: Path, form: str, after: int | None, happens: Callable[[Path], Any], said: str
) -> None:
    lake = written(tmp_path / "lake", form, drawn(40, 1), drawn(40, 2))
    changing = Disturbed(lake, lambda: happens(lake / f"0.{form}"), after)
    with pytest.raises(fb.DataError, match=rf"0\.{form}{said}; begin again, as rows of it may be"):
        fb.count(changing, "y", on_error="skip", threads=1)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_file__that_vanished_before_it_was_read_is_left_out(tmp_path: Path, form: str) -> None:
    lake = written(tmp_path / "lake", form, drawn(40, 1), drawn(40, 2))
    stats = fb.count(Disturbed(lake, (lake / f"0.{form}").unlink, 0), "y", on_error="skip")
    assert stats.n_rows == 40
    assert [Path(file.path).name for file in stats.ledger] == [f"1.{form}"]
    assert f"0.{form}: no such file" in " ".join(stats.provenance)


def test_files__that_are_passed_over_are_so_by_globs_too(tmp_path: Path) -> None:
    kept = ["a.csv", "d=1/a.csv", ".d=1/a.csv", "_d=1/a.csv", "b/.d=1/_e=1/a.csv"]
    others = ["_a.csv", ".a.csv", "_a=1.csv", ".a=1.csv", "_d=1/_a=1.csv", ".d/a.csv", "_d/a.csv"]
    for name in (*kept, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x,y\n1,a\n2,b\n")

    def found(named: str) -> list[str]:
        files = find_files(tmp_path / named).files
        return sorted(Path(file.path).relative_to(tmp_path).as_posix() for file in files)

    assert found("") == found("**") == sorted(kept)
    assert found("*=1/a.csv") == sorted(kept[1:4])


def small_blocks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for name in ("BLOCK_BYTES", "INFER_BYTES", "LEAST_INFER_BYTES"):
        monkeypatch.setattr(text, name, size)


BAD_CSV = [
    b"yes,a,3\n",
    b"no,b,1,2.5,7\n",
    b"no,b,seven,2.5\n",
    b"no,b,1,2.5.1\n",
    b"y,\xff,1,2.5\n",
]
BAD_JSON = [
    b'{"y": "no", "n": \n',
    b'["no", "b"]\n',
    b"null\n",
    b'{"y": "no", "t": "b", "n": 1, "x": -Infinity}\n',
    b'{"y": "no", "t": "b", "n": "seven", "x": 1.5}\n',
    b'{"y": "no", "t": 5, "n": 1, "x": 1.5}\n',
    b'{"y": "no", "t": "\xff", "n": 1, "x": 1.5}\n',
]


def spoilt(path: Path, table: pa.Table, seed: int, every: int = 25) -> dict[int, bytes]:
    """Write a table as text, with bad lines among the others; return these by line number."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    header = path.suffix == ".csv"
    if header:
        lines = [b"y,t,n,x\n"]
        for i, row in enumerate(table.to_pylist()):
            cells = ["" if cell is None else str(cell) for cell in row.values()]
            if i % 10 == 3:
                cells[1] = '"a, ""or""\nb"'
            lines.append((",".join(cells) + "\n").encode())
    else:
        lines = [(json.dumps(row) + "\n").encode() for row in table.to_pylist()]
    random = np.random.default_rng(seed)
    bad = BAD_CSV if header else BAD_JSON
    mixed, found, number = lines[:header], {}, 1 + header
    for i, line in enumerate(lines[header:]):
        if i % every == every // 2:
            worst = bad[int(random.integers(len(bad)))]
            mixed.append(worst)
            found[number] = worst
            number += 1
        mixed.append(line)
        number += line.count(b"\n")
    path.write_bytes(b"".join(mixed))
    return found


@pytest.mark.parametrize("size", [1 << 24, 3000])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_bad_rows__are_left_out_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, size: int
) -> None:
    """The rest counts, whatever the threads; each bad row is there once, with its line."""
    small_blocks(monkeypatch, size)
    lake = tmp_path / "lake"
    lake.mkdir()
    parts, injected = [drawn(500, i) for i in range(3)], {}
    for i, part in enumerate(parts):
        path = lake / f"{i}.{form}"
        for number, line in spoilt(path, part, i).items():
            injected[str(path), number] = line.rstrip(b"\n").decode(errors="backslashreplace")
    if form == "csv":
        quoted = [i % 10 == 3 for i in range(500)]
        for i, part in enumerate(parts):
            texts = [
                'a, "or"\nb' if q else v for q, v in zip(quoted, part["t"].to_pylist(), strict=True)
            ]
            parts[i] = part.set_column(1, "t", pa.array(texts))
    whole = pa.concat_tables(parts)
    with pytest.raises(fb.DataError):
        fb.count(lake, "y")
    for form_of_rejects, threads in (("csv", 1), ("jsonl", 2)):
        rejects = tmp_path / f"bad.{form_of_rejects}"
        files = fb.Files(lake, on_error="skip-rows", rejects=rejects, max_rejected=0.2)
        stats = fb.count(files, "y", pairs=True, threads=threads)  # of several scans
        same(stats, fb.count(whole, "y", pairs=True))
        same(fb.count(files, "y"), fb.count(whole, "y"))
        assert files.rejected_rows == len(injected)
        if form_of_rejects == "csv":
            with rejects.open(newline="") as file:
                written = list(csv.DictReader(file))
        else:
            written = [json.loads(line) for line in rejects.read_text().splitlines()]
        assert {(row["file"], int(row["line"])): row["text"] for row in written} == injected
        assert len(written) == len(injected)
        assert all(row["reason"] for row in written)
        notes = [note for note in stats.provenance if note.startswith("left out")]
        assert [note.split()[2] for note in notes] == ["20"] * 3
    model = fb.NaiveBayes().fit(files, "y")
    same(model.statistics_, fb.NaiveBayes().fit(whole, "y").statistics_)
    assert len(model.predict(files)) == 1500


def test_bad_rows__an_infinite_number_costs_its_row_alone(tmp_path: Path) -> None:
    """What is only copied may be infinite, where rows are predicted."""
    path, rejects = tmp_path / "t.csv", tmp_path / "bad.csv"
    rows = [f"{i % 7},{i / 2},{'pq'[i % 2]}\n" for i in range(400)]
    rows[100], rows[200] = "inf,1,p\n", "1,-1e999,q\n"
    path.write_text("".join(["n,x,y\n", *rows]))
    for numeric in ("gaussian", "mdl"):
        files = fb.Files(path, on_error="skip-rows", rejects=rejects)
        stats = fb.count(files, "y", numeric=numeric)
        assert (stats.n_rows, files.rejected_rows) == (398, 2)
        assert f"left out: 2 rows of {path}; they are in {rejects}" in stats.provenance
        with rejects.open(newline="") as file:
            found = [(row["line"], row["reason"]) for row in csv.DictReader(file)]
        assert found == [
            ("102", "column 'n' holds an infinite number"),
            ("202", "column 'x' holds an infinite number"),
        ]
    model = fb.NaiveBayes(columns=["n"]).fit(files, "y")
    written = fb.predict_to(model, files, tmp_path / "o.parquet", keys=["x"])
    assert written.rows == 399
    assert pq.read_table(tmp_path / "o.parquet")["x"][199].as_py() == -np.inf


def test_bad_rows__no_block_is_lost_without_a_word(tmp_path: Path) -> None:
    """What only counting tells of a row costs its block, of which it is said how large it is."""
    path = tmp_path / "t.csv"
    path.write_text("w,y\n" + "1,p\n2,q\n" * 50 + "-1,p\n")
    with pytest.raises(
        fb.RejectLimitError, match=r"101 rows .*max_rejected=0\.05.*row 100 of .*-1"
    ):
        fb.count(fb.Files(path, on_error="skip-rows"), "y", sample_weight="w")
    for files in (
        fb.Files(path, on_error="skip-rows", max_rejected=1),
        fb.Files(path, on_error="skip"),
    ):
        stats = fb.count(files, "y", sample_weight="w")
        assert stats.n_rows == 0
        (note,) = [note for note in stats.provenance if note.startswith("left out: ")]
        assert "row 100 of " in note
        assert note.endswith("(101 rows left out with it)")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_bad_rows__the_others_keep_their_numbers(tmp_path: Path, form: str) -> None:
    """Blank lines are no rows, those that are left out are."""
    good, bad, odd = '{"g":"u","n":1,"y":"p"}', '{"g":"u"', '{"g":"odd","n":1,"y":"p"}'
    if form == "csv":
        good, bad, odd = "u,1,p", "u,1,p,more", "odd,1,p"
    rows = [good] * 60
    rows[0] = rows[20] = rows[50] = bad
    rows[21] = f"{good}\n"
    rows[41] = odd
    path = tmp_path / f"t.{form}"
    path.write_text("\n".join([*["g,n,y"] * (form == "csv"), *rows]) + "\n")
    files = fb.Files(path, on_error="skip-rows")
    model = fb.NaiveBayes(unseen="error").fit({"g": ["u", "v"], "n": [1, 2], "y": ["p", "q"]}, "y")
    with pytest.raises(fb.DataError, match=r"'g', row 41 of .*'odd' was not seen"):
        model.predict(files)
    assert files.rejected_rows == 3


@pytest.mark.parametrize("at", [0, 50, 199])
@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ('{"a": 1, "b": "u", "b": "v"}', "holds the key 'b' twice"),
        ('{"a": 1, "b": "\\ud800"}', "holds half of a surrogate pair, which is no text"),
        ('{"a": 1e999, "b": "u"}', "holds 1e999, more than float64 does"),
        ('\ufeff{"a": 1, "b": "u"}', "begins with a byte order mark"),
    ],
)
def test_bad_rows__json_that_arrow_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str, reason: str, at: int
) -> None:
    small_blocks(monkeypatch, 2000)
    rows = [json.dumps({"a": i, "b": "u"}) for i in range(200)]
    rows.insert(at, odd)
    (tmp_path / "t.jsonl").write_text("\n".join(rows) + "\n")
    bad = tmp_path / "bad.jsonl"
    stats = fb.count(fb.Files(tmp_path / "t.jsonl", on_error="skip-rows", rejects=bad), "b")
    if at == 0 and reason.endswith("mark"):  # as files begin
        assert stats.n_rows == 201
        return
    assert stats.n_rows == 200
    told = [json.loads(line) for line in bad.read_text().splitlines()]
    assert [(row["line"], row["reason"]) for row in told] == [(at + 1, reason)]


def test_bad_rows__too_many_are_an_error(tmp_path: Path) -> None:
    spoilt(tmp_path / "t.csv", drawn(400, 0), 0, every=10)
    with pytest.raises(
        fb.RejectLimitError, match=r"t\.csv: 40 of 440 rows .*max_rejected=0\.05.*line 8"
    ):
        fb.count(fb.Files(tmp_path / "t.csv", on_error="skip-rows"), "y")
    assert fb.count(
        fb.Files(tmp_path / "t.csv", on_error="skip-rows", max_rejected=0.1), "y"
    ).n_rows
    with pytest.raises(fb.RejectLimitError, match=r"max_rejected=0 "):
        fb.count(fb.Files(tmp_path / "t.csv", on_error="skip-rows", max_rejected=0), "y")


def test_rejects__replace_nothing_and_are_no_data(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    spoilt(lake / "t.csv", drawn(200, 0), 0)
    before = (lake / "t.csv").read_bytes()

    def rejecting(path: Path) -> Any:
        files = fb.Files(lake, on_error="skip-rows", rejects=path, max_rejected=0.2)
        return fb.count(files, "y")

    with pytest.raises(fb.DataError, match="among the files that are read"):
        rejecting(lake / "t.csv")
    with pytest.raises(fb.DataError, match="among the files that are read"):
        rejecting(lake / "bad.csv")
    assert not (lake / "bad.csv").exists()
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(fb.DataError, match="holds no rejected rows"):
        rejecting(tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == "a,b\n1,2\n"
    assert (lake / "t.csv").read_bytes() == before
    for _ in range(2):
        rejecting(tmp_path / "bad.csv")
        assert (tmp_path / "bad.csv").read_text().count(str(lake)) == 8
    with pytest.raises(fb.DataError, match=r"\.csv or \.jsonl"):
        rejecting(tmp_path / "bad.txt")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(fb.DataError, match="is a directory"):
        rejecting(tmp_path / "folder.csv")
    with pytest.raises(ValueError, match="skip-rows"):
        fb.Files(lake, rejects=tmp_path / "bad.csv")
    with pytest.raises(fb.DataError, match="workers keep no rejected rows"):
        fb.count(fb.engines.Paths(fb.Files(lake, on_error="skip-rows"), map, 2), "y")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rejects__a_full_disk_is_no_fault_of_the_data(
    tmp_path: Path, form: str, threads: int
) -> None:
    lake, rejects = tmp_path / "lake", tmp_path / f"bad.{form}"
    lake.mkdir()
    for name in "abc":
        spoilt(lake / f"{name}.csv", drawn(200, 0), 0)
    files = fb.Files(lake, on_error="skip-rows", rejects=rejects, max_rejected=0.2)
    fb.count(files, "y")
    whole, n_rejected = sorted(rejects.read_text().splitlines()), files.rejected_rows
    size = rejects.stat().st_size
    again = fb.Files(lake, on_error="skip-rows", rejects=rejects, max_rejected=0.2)
    for limit in (len("file,line,reason,text\n"), size // 2, size - 1):
        with full_disk(limit), pytest.raises(fb.SystemLimitError) as told:
            fb.count(again, "y", threads=threads)
        assert str(told.value).startswith(f"{rejects}: ")
        assert "removed: free some space" in str(told.value)
        assert not rejects.exists()
    fb.count(again, "y", threads=threads)
    assert sorted(rejects.read_text().splitlines()) == whole
    assert again.rejected_rows == n_rejected
    with full_disk(size // 2):
        said = fails(
            *("count", lake, "--target", "y", "-o", tmp_path / "s.fbs", "--max-rejected", 0.2),
            *("--on-error", "skip-rows", "--rejects", tmp_path / f"other.{form}"),
            folder=tmp_path,
        )
    assert f"other.{form}: " in said


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPERM])
def test_rejects__what_the_system_refuses_stops_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    spoilt(tmp_path / "t.csv", drawn(200, 0), 0)
    rejects, opened = tmp_path / "bad.csv", Path.open

    def refusing(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode == "ab":
            raise OSError(number, os.strerror(number))
        return opened(path, mode, *args, **options)

    files = fb.Files(tmp_path / "t.csv", on_error="skip-rows", rejects=rejects, max_rejected=0.2)
    monkeypatch.setattr(Path, "open", refusing)
    with pytest.raises(fb.SystemLimitError) as told:
        fb.count(files, "y")
    assert str(told.value).startswith(f"{rejects}: {os.strerror(number).lower()}; ")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_rejects__a_target_that_cannot_be_written_is_named_and_stays(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    spoilt(lake / "t.csv", drawn(200, 0), 0)
    with pytest.raises(fb.DataError, match="there is no directory"):
        fb.count(fb.Files(lake, on_error="skip-rows", rejects=tmp_path / "no" / "bad.csv"), "y")
    rejects = tmp_path / "bad.csv"
    fb.count(fb.Files(lake, on_error="skip-rows", rejects=rejects, max_rejected=0.2), "y")
    before = rejects.read_bytes()
    with full_disk(0), pytest.raises(fb.DataError, match=r"bad\.csv: .*nothing was written"):
        fb.count(fb.Files(lake, on_error="skip-rows", rejects=rejects), "y")
    assert rejects.read_bytes() == before


def test_command_line__skips_rows_and_says_how_many(tmp_path: Path) -> None:
    spoilt(tmp_path / "t.csv", drawn(1000, 0), 0, every=50)
    data, bad, model = tmp_path / "t.csv", tmp_path / "bad.csv", tmp_path / "m.fb"
    skip = ("--on-error", "skip-rows", "--rejects", bad)
    for command in (
        ("fit", data, "--target", "y", "-o", model),
        ("count", data, "--target", "y", "-o", tmp_path / "s.fbs"),
        ("evaluate", model, data),
        ("predict", model, data, "-o", tmp_path / "p.parquet"),
        ("compare", data, "--target", "y", "--models", "naive-bayes"),
    ):
        assert answer(*command, *skip, "--json")["rejected_rows"] == 20
        assert len(bad.read_text().splitlines()) == 21
    said = run(
        "fit", data, "--target", "y", "-o", tmp_path / "n.fb", "--rejects", bad, code=2
    ).stderr
    assert "go with --on-error skip-rows" in said


DAYS = 30


def day_of(day: int) -> pa.Table:
    """Return the rows of a day: three have a column more, one has wide integers, one has text."""
    table = drawn(200, day)
    if day in (9, 15, 21):
        table = table.append_column("new", pa.array(["u", "v", None, "u"] * 50))
    if day == 12:
        table = table.set_column(2, "n", table["n"].cast(pa.int64()))
    if day == 18:
        table = table.set_column(2, "n", pa.array(["many"] * 200))
    return table


def named(row: pa.Table, day: int) -> pa.Table:
    """Return rows with the column that their directory says."""
    return row.append_column("day", pa.array([f"2026-11-{day + 1:02}"] * len(row)))


@pytest.fixture
def month(tmp_path: Path) -> Path:
    """Return a lake of Parquet: thirty days, one file truncated."""
    for day in range(DAYS):
        folder = tmp_path / "lake" / f"day=2026-11-{day + 1:02}"
        folder.mkdir(parents=True)
        pq.write_table(day_of(day), folder / "part.parquet")
    path = tmp_path / "lake" / "day=2026-11-25" / "part.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    return tmp_path / "lake"


@pytest.fixture(params=["disk", "memory", "s3"])
def reached(request: pytest.FixtureRequest, month: Path) -> Iterator[Callable[[], list[str]]]:
    """Return what says on a command line where the month is, as it is now."""
    if request.param == "disk":
        yield lambda: [str(month)]
    elif request.param == "memory":
        fs = pytest.importorskip("fsspec").filesystem("memory")

        def copied() -> list[str]:
            for file in month.rglob("*.parquet"):
                fs.pipe(f"/{file.relative_to(month.parent)}", file.read_bytes())
            return ["memory://lake"]

        yield copied
        fs.rm("/lake", recursive=True)
    else:
        with serving(month.parent) as host:
            options = {**KEYS, "endpoint_override": host}.items()
            said = [f"--storage-option={key}={value}" for key, value in options]
            yield lambda: ["s3://lake", *said]


def test_open_all__reads_no_file_after_it_has_told_which_is_broken() -> None:
    """Though the error, which holds the frames that it passed, is held."""
    begun, ended = [], []

    def open_one(file: Any) -> Any:
        begun.append(file.origin)
        if file.origin == "3":
            raise fb.DataError("3 is broken")
        time.sleep(0.05)
        ended.append(file.origin)
        return SimpleNamespace(schema=pa.schema({"y": pa.string()}))

    files: list[Any] = [SimpleNamespace(origin=f"{i}") for i in range(100)]
    with pytest.raises(fb.DataError, match="3 is broken") as held:
        open_all(files, open_one, None)
    assert sorted(begun) == sorted([*ended, "3"])
    assert len(begun) < 20
    assert held.value.__traceback__ is not None


def test_month__stopped_skipped_or_mended(
    month: Path, reached: Callable[[], list[str]], tmp_path: Path
) -> None:
    """One command each: to stop, to leave out what is broken, to take the union; sums are exact."""

    def count(*more: str, code: int = 0) -> str:
        told = ("--target", "y", "--pairs", "-o", tmp_path / "s.fbs", *more)
        return run("count", *reached(), *told, code=code).stderr

    assert "day=2026-11-25/part.parquet" in count(code=1)
    good = [day for day in range(DAYS) if day not in (18, 24)]
    left_out = [line for line in count("--on-error", "skip").splitlines() if "left out: " in line]
    assert "day=2026-11-19/part.parquet" in left_out[0] + left_out[1]
    assert "day=2026-11-25/part.parquet" in left_out[0] + left_out[1]
    stats = fb.load(tmp_path / "s.fbs")
    tables = [named(day_of(day), day) for day in good]
    whole = pa.concat_tables(tables, promote_options="permissive").select(
        (*stats.schema.names, "y")
    )
    same(stats, fb.count(whole, "y", pairs=True))
    assert [file.path.split("day=")[1][:10] for file in stats.ledger] == [
        f"2026-11-{day + 1:02}" for day in good
    ]
    said = " ".join(stats.provenance)
    assert said.count("left out: ") == 2
    assert "column 'new' is null in 25 of 28 files" in said
    # The union of what can be read, once the broken file is written again and text is numbers.
    pq.write_table(day_of(24), month / "day=2026-11-25" / "part.parquet")
    conflict = count("--force", code=1)
    assert "column 'n' is int64" in conflict or "column 'n' is int32" in conflict
    assert "day=2026-11-19/part.parquet" in conflict
    mended = day_of(18).set_column(2, "n", pa.array([5] * 200, pa.int16()))
    pq.write_table(mended, month / "day=2026-11-19" / "part.parquet")
    count("--force")
    tables = [named(mended if day == 18 else day_of(day), day) for day in range(DAYS)]
    stats = fb.load(tmp_path / "s.fbs")
    whole = pa.concat_tables(tables, promote_options="permissive").select(
        (*stats.schema.names, "y")
    )
    same(stats, fb.count(whole, "y", pairs=True))
    assert "int32" in count("--force", "--schema-mode", "strict", "--columns", "n", code=1)


def test_month__of_csv_with_bad_lines(tmp_path: Path) -> None:
    lake, bad = tmp_path / "lake", 0
    for day in range(DAYS):
        folder = lake / f"day=2026-11-{day + 1:02}"
        folder.mkdir(parents=True)
        bad += len(spoilt(folder / "part.csv", drawn(200, day), day, every=50))
    (lake / "day=2026-11-25" / "part.csv").unlink()
    bad -= 4
    whole = gzip.compress(b"y,t,n,x\n" + b"no,a,1,0.5\n" * 9999)
    (lake / "day=2026-11-25" / "part.csv.gz").write_bytes(whole[:60])
    count = ("count", lake, "--target", "y", "-o", tmp_path / "s.fbs")
    run(*count, code=1)
    rejects = tmp_path / "bad.csv"
    found = answer(*count, "--on-error", "skip-rows", "--rejects", rejects, "--json")
    assert found["rejected_rows"] == bad == 116  # 2 % of all
    with rejects.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 116
    assert sum("left out: 4 rows of " in line for line in found["source"]) == 29
    assert sum("day=2026-11-25/part.csv.gz" in line for line in found["source"]) == 1
    tables = []
    for day in range(DAYS):
        texts = drawn(200, day)["t"].to_pylist()
        texts = ['a, "or"\nb' if i % 10 == 3 else text for i, text in enumerate(texts)]
        if day != 24:
            tables.append(named(drawn(200, day).set_column(1, "t", pa.array(texts)), day))
    same(fb.load(tmp_path / "s.fbs"), fb.count(pa.concat_tables(tables), "y"))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_models_and_statistics_among_the_files__are_no_rows(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"x": ["a", "b", "a", "b"], "y": ["p", "q", "p", "p"]})
    if kind == "parquet":
        pq.write_table(rows, tmp_path / "day.parquet")
    else:
        feather.write_feather(rows, str(tmp_path / "day.arrow"))
    first = fb.count(tmp_path, "y")
    for source in (tmp_path, f"{tmp_path}/**"):
        kept = fb.count(source, "y", checkpoint=tmp_path / "kept")
        kept.save(tmp_path / "all.fbs")
        fb.NaiveBayes().fit_statistics(kept).save(tmp_path / "m.fb")
        assert fb.count(source, "y") == first
        assert fb.count(source, "y", update=kept) == first
        (tmp_path / "all.fbs").unlink()
        (tmp_path / "m.fb").unlink()
