"""Whatever is wrong ends in one line, the right exit code, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import answer, fails, full_disk, parquet, run, snapshot, tennis

import fastbayes as fb

Words = tuple[str, ...]


def truncated(path: Path) -> Path:
    parquet(tennis(5000), path)
    os.truncate(path, path.stat().st_size // 2)
    return path


def broken_page(path: Path) -> Path:
    """Write a file whose footer is sound and whose first pages are not."""
    parquet(tennis(5000), path, compression="snappy")
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(b"\xff" * 200)
    return path


def replaced(name: str, values: Any) -> pa.Table:
    table = tennis(len(values))
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def twins(path: Path) -> Path:
    table = tennis(10)
    twice = pa.Table.from_arrays([*table.columns, table.column(0)], [*table.column_names, "sky"])
    return parquet(twice, path)


def text(content: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path = path.with_suffix(".csv")
        path.write_text(content, encoding="utf-8")
        return path

    return write


def table(made: Callable[[], pa.Table]) -> Callable[[Path], Path]:
    return lambda path: parquet(made(), path)


def times(n: int) -> pa.Array:
    return pa.array(range(n), pa.timestamp("us"))


# What DATA is, and what the line must say: fit, count.
BAD_DATA: dict[str, tuple[Callable[[Path], Path], Words]] = {
    "missing file": (lambda p: p, ("no such file", "d.parquet")),
    "empty file": (lambda p: (p.touch(), p)[1], ("empty", "d.parquet")),
    "empty directory": (lambda p: (p.mkdir(), p)[1], ("no data files", "d.parquet")),
    "truncated Parquet": (truncated, ("d.parquet", "write the file again")),
    "broken page": (broken_page, ("d.parquet", "write the file again")),
    "no Parquet": (lambda p: (p.write_text("a,b\n1,2\n"), p)[1], ("d.parquet",)),
    "target not there": (table(lambda: tennis(9).rename_columns(["a", "b", "c", "plays"])),
                         ("'play'", "did you mean 'plays'", "d.parquet")),
    "no class at all": (table(lambda: replaced("play", pa.nulls(9, pa.string()))),
                        ("'play'", "null in all 9 rows")),
    "no rows": (table(lambda: tennis(0)), ("d.parquet", "no rows")),
    "only the target": (table(lambda: tennis(9).select(["play"])), ("no column besides",)),
    "lists": (table(lambda: replaced("warmth", [["hot"]] * 9)), ("'warmth'", "list", "explode")),
    "times as target": (table(lambda: replaced("play", times(9))), ("'play'", "timestamp")),
    "two columns of a name": (twins, ("d.parquet", "'sky'", "rename")),
    "infinite number": (table(lambda: replaced("degrees", [1.0] * 7 + [float("inf")])),
                        ("'degrees'", "row 7", "inf", "null")),
    "ragged CSV": (text("sky,play\na,yes\nb\n"), ("d.csv", "row 1")),
    "CSV of two types": (text("degrees,play\n1,yes\n2,no\nx,no\n" * 3), ()),
    "CSV without rows": (text("sky,play\n"), ("no rows",)),
}  # fmt: skip
FINE = {"CSV of two types"}  # text, then: a column of categories


@pytest.mark.parametrize("case", BAD_DATA)
def test_fit__bad_data(tmp_path: Path, case: str) -> None:
    make, words = BAD_DATA[case]
    data = make(tmp_path / "d.parquet")
    args = ("fit", data, "--target", "play", "-o", tmp_path / "m.fb")
    if case in FINE:
        run(*args)
        return
    said = fails(*args, folder=tmp_path)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ([1.0, 2.0, float("nan")], ("'w'", "row 2", "nan")),
        ([1.0, -2.5, 1.0], ("'w'", "row 1", "-2.5")),
        ([1.0, None, 1.0], ("'w'", "row 1")),
        ([0.0, 0.0, 0.0], ("every weight is zero",)),
        (["a", "b", "c"], ("'w'", "string")),
    ],
)
def test_fit__bad_weights(tmp_path: Path, weight: list[Any], words: Words) -> None:
    data = parquet(tennis(3).append_column("w", pa.array(weight)), tmp_path / "d.parquet")
    said = fails(
        "fit", data, "--target", "play", "--weight", "w", "-o", tmp_path / "m.fb", folder=tmp_path
    )
    for word in words:
        assert word in said


def test_fit__one_class_is_a_note(tmp_path: Path) -> None:
    data = parquet(replaced("play", ["yes"] * 9), tmp_path / "d.parquet")
    result = run("fit", data, "--target", "play", "-o", tmp_path / "m.fb")
    assert result.stderr == "note: there is only one class, 'yes': every prediction will be it\n"
    said = answer("evaluate", tmp_path / "m.fb", data)
    assert said["accuracy"] == 1.0


def test_fit__memory_limit(tmp_path: Path) -> None:
    values = np.arange(10**6).astype(str)
    table = pa.table({"id": values, "sky": ["a", "b"] * 500_000, "y": [0, 1] * 500_000})
    data = parquet(table, tmp_path / "d.parquet", row_group_size=100_000)
    args = ("fit", data, "--target", "y", "--memory-limit", "20M", "-o", tmp_path / "m.fb")
    said = fails(*args, folder=tmp_path)
    for word in ("'id'", "--memory-limit 20,000,000", "leave it out"):
        assert word in said
    run(*args, "--columns", "sky")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none/out", ("no directory",)),
        ("folder", ("is a directory",)),
        ("/dev/full", ("is a device or a pipe", "name a file, or '-'")),
        ("taken", ("exists", "--force")),
        ("file/out", ("no directory",)),
    ],
)
@pytest.mark.parametrize("command", ["fit", "count", "merge", "predict", "generate"])
def test_output__cannot_be(tmp_path: Path, command: str, name: str, words: Words) -> None:
    data = parquet(tennis(9), tmp_path / "d.parquet")
    run("fit", data, "--target", "play", "-o", tmp_path / "m.fb")
    run("count", data, "--target", "play", "-o", tmp_path / "s.fbs")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "taken.csv").touch()
    (tmp_path / "file").touch()
    out = name if name.startswith("/dev") else tmp_path / f"{name}.csv"
    args = {
        "fit": (data, "--target", "play"),
        "count": (data, "--target", "play"),
        "merge": (tmp_path / "s.fbs",),
        "predict": (tmp_path / "m.fb", data),
        "generate": ("--preset", "flights", "--rows", "9"),
    }[command]
    said = fails(command, *args, "-o", out, folder=tmp_path)
    if command != "generate":
        for word in words:
            assert word in said
    if command != "generate":
        said = fails(command, *args, "-o", "", folder=tmp_path)
        assert "the path to write to is empty: name a file" in said


def test_output__directory_without_permission(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    data = parquet(tennis(9), tmp_path / "d.parquet")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    said = fails("fit", data, "--target", "play", "-o", closed / "m.fb", folder=tmp_path)
    assert "no permission" in said


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ""])
@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_disk_full__predict(tmp_path: Path, suffix: str, size: int) -> None:
    noise = pa.array(np.random.default_rng(0).random(70_000))
    data = parquet(tennis(70_000).append_column("noise", noise), tmp_path / "d.parquet")
    run("fit", data, "--target", "play", "--columns", "sky", "-o", tmp_path / "m.fb")
    out = tmp_path / f"out{suffix}"
    with full_disk(size):
        said = fails(
            "predict", tmp_path / "m.fb", data, "--keys", "noise", "-o", out, folder=tmp_path
        )
    assert f"out{suffix}" in said
    assert "free some space" in said


@pytest.mark.parametrize("command", ["fit", "count", "generate"])
def test_disk_full__other_outputs(tmp_path: Path, command: str) -> None:
    data = parquet(tennis(9), tmp_path / "d.parquet")
    args = ("--preset", "flights", "--rows", 50_000) if command == "generate" else (
        data, "--target", "play")  # fmt: skip
    with full_disk(200):
        said = fails(command, *args, "-o", tmp_path / "out", folder=tmp_path)
    assert "free some space" in said
    assert list(tmp_path.iterdir()) == [data]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a directory with data, a model and statistics."""
    data = parquet(tennis(), tmp_path / "d.parquet")
    run("fit", data, "--target", "play", "-o", tmp_path / "m.fb")
    run("count", data, "--target", "play", "-o", tmp_path / "s.fbs")
    return tmp_path


# A table to predict or to evaluate, and what the line must say.
BAD_ROWS: dict[str, tuple[Callable[[], pa.Table], Words]] = {
    "missing column": (lambda: tennis(9).drop_columns(["warmth"]), ("'warmth'", "d.parquet")),
    "misspelt column": (lambda: tennis(9).rename_columns(["Sky", "warmth", "degrees", "play"]),
                        ("'sky'", "did you mean 'Sky'")),
    "number for text": (lambda: replaced("sky", [1.5] * 9), ("'sky'", "string", "double")),
    "text for number": (lambda: replaced("degrees", ["warm"] * 9), ("'degrees'", "string")),
    "lists": (lambda: replaced("sky", [["a"]] * 9), ("'sky'", "list")),
    "times": (lambda: replaced("degrees", times(9)), ("'degrees'", "timestamp")),
    "infinite number": (lambda: replaced("degrees", [1.0, float("-inf")]), ("'degrees'", "row 1")),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ROWS)
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_apply__bad_rows(made: Path, command: str, case: str) -> None:
    rows, words = BAD_ROWS[case]
    data = parquet(rows(), made / "d.parquet")
    more = ("-o", made / "out.parquet") if command == "predict" else ()
    said = fails(command, made / "m.fb", data, *more, folder=made)
    for word in words:
        assert word in said


def test_apply__unseen_as_error(made: Path) -> None:
    strict = made / "strict.fb"
    run("fit", made / "d.parquet", "--target", "play", "--unseen", "error", "-o", strict)
    new = parquet(replaced("sky", ["rain"] * 5 + ["fog"] * 4), made / "new.parquet")
    said = fails("predict", strict, new, "-o", made / "out.csv", folder=made)
    for word in ("'sky'", "row 5", "'fog'", "new.parquet"):
        assert word in said


def test_evaluate__unknown_class(made: Path) -> None:
    data = parquet(replaced("play", ["yes"] * 7 + ["maybe"]), made / "new.parquet")
    said = fails("evaluate", made / "m.fb", data, folder=made)
    for word in ("'play'", "row 7", "'maybe'", "new.parquet"):
        assert word in said


def test_evaluate__no_class_or_no_rows(made: Path) -> None:
    data = parquet(replaced("play", pa.nulls(9, pa.string())), made / "new.parquet")
    assert "null in all 9 rows" in fails("evaluate", made / "m.fb", data, folder=made)
    data = parquet(tennis(0), made / "new.parquet")
    assert "there are no rows" in fails("evaluate", made / "m.fb", data, folder=made)
    data = parquet(tennis(9).drop_columns("play"), made / "new.parquet")
    assert "'play'" in fails("evaluate", made / "m.fb", data, folder=made)


def test_predict__a_column_would_stand_twice(made: Path) -> None:
    table = tennis(9).append_column("proba_yes", pa.nulls(9))
    data = parquet(table, made / "new.parquet")
    args = ("predict", made / "m.fb", data, "-o", made / "out.parquet", "--proba")
    said = fails(*args, folder=made)
    assert "'proba_yes'" in said
    run(*args, "--keys", "")


LOSSES = {
    "broken": ('{"yes": ', ("loss.json", "decision: {truth: cost}")),
    "twice": ('{"yes": {"no": 1, "yes": 0}, "yes": {"no": 2, "yes": 0}}', ("'yes' stands twice",)),
    "wrong truth": ('{"yes": {"nope": 1, "yes": 0}, "no": {"nope": 0, "yes": 1}}', ("'nope'",)),
    "lacking truth": ('{"yes": {"yes": 0}, "no": {"yes": 1}}', ("'no'",)),
    "no number": ('{"yes": {"no": "x", "yes": 0}, "no": {"no": 0, "yes": 1}}', ("'x'",)),
    "NaN": ('{"yes": {"no": NaN, "yes": 0}, "no": {"no": 0, "yes": 1}}', ("nan",)),
    "another shape": ("[[0, 1, 2]]", ("shape",)),
    "no table": ('"yes"', ()),
    "empty": ("", ("loss.json",)),
    "deep": ("[" * 100_000, ("loss.json", "decision: {truth: cost}")),
}


@pytest.mark.parametrize("case", LOSSES)
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_loss__broken(made: Path, command: str, case: str) -> None:
    content, words = LOSSES[case]
    (made / "loss.json").write_text(content)
    more = ("-o", made / "out.parquet") if command == "predict" else ()
    said = fails(
        command, made / "m.fb", made / "d.parquet", "--loss", made / "loss.json", *more, folder=made
    )
    for word in words:
        assert word in said


def test_loss__missing_file_and_bad_reject(made: Path) -> None:
    args = ("predict", made / "m.fb", made / "d.parquet", "-o", made / "out.parquet")
    assert "none.json" in fails(*args, "--loss", made / "none.json", folder=made)
    assert "rejecting" in fails(*args, "--reject", "nan", folder=made)
    fails(*args, "--reject", "x", folder=made, code=2)


def test_files__taken_for_each_other(made: Path) -> None:
    data = made / "d.parquet"
    said = fails("predict", made / "s.fbs", data, "-o", made / "out.csv", folder=made)
    assert "--statistics" in said
    assert "statistics" in fails("evaluate", made / "s.fbs", data, folder=made)
    assert "model" in fails("merge", made / "m.fb", "-o", made / "t.fbs", folder=made)
    assert "model" in fails("fit", "--statistics", made / "m.fb", "-o", made / "n.fb", folder=made)
    assert "not a model" in fails("evaluate", data, data, folder=made)


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "gone", "text"])
@pytest.mark.parametrize("command", ["predict", "inspect", "merge"])
def test_files__damaged(made: Path, command: str, damage: str) -> None:
    path = made / ("s.fbs" if command == "merge" else "m.fb")
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes({"cut": content[:-100], "emptied": b"", "text": b"a,b\n"}.get(damage, content))
    if damage == "gone":
        path.unlink()
    args = {
        "predict": (path, made / "d.parquet", "-o", made / "out.csv"),
        "inspect": (path,),
        "merge": (path, "-o", made / "t.fbs"),
    }[command]
    assert path.name in fails(command, *args, folder=made)


def test_merge__of_what_does_not_fit(made: Path) -> None:
    other = parquet(tennis(9).drop_columns("warmth"), made / "o.parquet")
    run("count", other, "--target", "play", "-o", made / "o.fbs")
    said = fails("merge", made / "s.fbs", made / "o.fbs", "-o", made / "t.fbs", folder=made)
    assert "'warmth'" in said
    assert "o.fbs" in said
    assert "twice" in fails(
        "merge", made / "s.fbs", made / "s.fbs", "-o", made / "t.fbs", folder=made
    )


def test_skip__leaves_out_broken_files_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(3):
        parquet(tennis(500), folder / f"part-{i}.parquet")
    truncated(folder / "part-1.parquet")
    broken_page(folder / "part-2.parquet")
    (folder / "part-3.parquet").touch()
    args = ("count", folder, "--target", "play", "-o", tmp_path / "s.fbs")
    assert "part-3.parquet" in fails(*args, folder=tmp_path)
    result = run(*args, "--on-error", "skip")
    for i in (1, 2, 3):
        assert f"part-{i}.parquet" in result.stderr
    kept = fb.Statistics.load(tmp_path / "s.fbs")
    assert kept == fb.count(folder / "part-0.parquet", "play")
    assert [line.startswith("left out") for line in kept.provenance] == [True, True, True]
    assert [Path(file.path).name for file in kept.ledger] == ["part-0.parquet"]


def test_skip__nothing_is_left(tmp_path: Path) -> None:
    truncated(tmp_path / "d.parquet")
    args = ("count", tmp_path / "d.parquet", "--target", "play", "-o", tmp_path / "s.fbs")
    said = run(*args, "--on-error", "skip", code=1).stderr
    assert "none of the files can be read" in said
    assert set(snapshot(tmp_path)) == {str(tmp_path / "d.parquet")}


def test_pipe__closed_by_its_reader(made: Path) -> None:
    command = f"{sys.executable} -m fastbayes inspect {made / 'm.fb'} --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "{"
    assert done.stderr == ""
