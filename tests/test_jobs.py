"""A count that many machines share, or that every day goes on: parts, and new files alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import answer, fails, run

import fastbayes as fb

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pairs": {"pairs": True},
    "triples": {"triples": True},
    "cells": {"cells": ["a"]},
    "cell scatter": {"cell_scatter": True},
    "scatter": {"scatter": True},
    "kde": {"numeric": "kde"},
    "mdl": {"numeric": "mdl"},
    "families": {"families": [("a", "b")]},
    "categorical": {"categorical": ["k"], "missing": "category"},
    "domains": {"domains": {"a": ["w", "x", "y", "z"], "y": ["p", "q", "r"]}},
    "columns": {"columns": ["n", "a"], "null_values": ["x"]},
    "weighted": {"sample_weight": "w"},
}
# What a schema does not say: which statistics are counted, and of what weight.
ASKED = ("pairs", "triples", "cells", "cell_scatter", "scatter", "families", "sample_weight")


def asked(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that go with `schema`."""
    kept = {name: options[name] for name in ASKED if name in options}
    return kept | ({"numeric": "kde"} if options.get("numeric") == "kde" else {})


def rows_of_day(i: int) -> pa.Table:
    rng = np.random.default_rng(i)
    columns = {
        "a": rng.choice(list("xyz"), 60),
        "n": rng.normal(size=60).round(2),
        "k": rng.integers(0, 5, 60),
        "b": rng.random(60) < 0.5,
        "w": rng.integers(1, 4, 60).astype(float),
        "y": rng.choice(["p", "q"], 60),
    }
    return pa.table(columns)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    for i in range(4):
        pq.write_table(rows_of_day(i), tmp_path / "lake" / f"{i}.parquet", row_group_size=17)
    return tmp_path / "lake"


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_add_up_to_the_whole(lake: Path, kind: str, n: int) -> None:
    options = KINDS[kind]
    whole = fb.count(lake, "y", **options)
    parts = [
        fb.count(fb.engines.part(lake, i, n), "y", schema=whole, **asked(options))
        for i in range(1, n + 1)
    ]
    found = fb.merge(parts)
    assert found.allclose(whole)
    assert sorted(found.ledger) == sorted(whole.ledger)
    assert max(part.n_rows for part in parts) <= whole.n_rows / min(n, 8) * 1.5
    if n == 2:
        with pytest.raises(fb.DataError, match="count twice"):
            fb.merge([parts[0], parts[1], parts[0]])


@pytest.mark.parametrize("kind", KINDS)
def test_update__counts_new_files_and_nothing_twice(lake: Path, kind: str) -> None:
    options = KINDS[kind]
    whole = fb.count(lake, "y", **options)
    weight = {
        key: options[key]
        for key in ("sample_weight", "numeric")
        if options.get(key) != "mdl" and key in options
    }
    some = fb.count([lake / "0.parquet", lake / "2.parquet"], "y", schema=whole, **asked(options))
    rows: list[int] = []
    found = fb.count(lake, "y", update=some, progress=rows.append, **weight)
    assert found.allclose(whole)
    assert sum(rows) == 120
    assert sorted(found.ledger) == sorted(whole.ledger)
    assert fb.count(lake, "y", update=found, **weight) is found


def test_update__new_values_and_classes_join(lake: Path) -> None:
    some = fb.count(lake / "0.parquet", "y")
    table = rows_of_day(9).set_column(0, "a", pa.array(["new"] * 60))
    pq.write_table(table.set_column(5, "y", pa.array(["r"] * 60)), lake / "9.parquet")
    found = fb.count(lake, "y", update=some)
    assert found == fb.count(lake, "y") or found.allclose(fb.count(lake, "y"))
    assert found.schema.classes.to_pylist() == ["p", "q", "r"]


@pytest.mark.parametrize("values", [[0.5, 1.5], [1, 2], ["p", "q"], [True, False]], ids=str)
def test_update__a_column_without_values_at_first_becomes_what_comes(
    tmp_path: Path, values: list[Any]
) -> None:
    first, later = tmp_path / "0.parquet", tmp_path / "1.parquet"
    pq.write_table(pa.table({"x": pa.nulls(20), "y": ["p", "q"] * 10}), first)
    pq.write_table(pa.table({"x": values * 10, "y": ["p", "q"] * 10}), later)
    some, whole = fb.count(first, "y"), fb.count(tmp_path, "y")
    assert fb.count(tmp_path, "y", update=some) == whole
    alone, again = fb.count(later, "y"), fb.count(later, "y", schema=some)
    assert again.schema.features == alone.schema.features
    assert fb.merge([some, again]) == whole


def test_update__a_column_without_values_at_first_is_what_it_is_said_to_be(tmp_path: Path) -> None:
    for i, x in enumerate([pa.nulls(20), pa.array([1, 2] * 10)]):
        pq.write_table(pa.table({"x": x, "y": ["p", "q"] * 10}), tmp_path / f"{i}.parquet")
    for said in ("x", "?"):
        some = fb.count(tmp_path / "0.parquet", "y", categorical=said)
        found = fb.count(tmp_path, "y", update=some, categorical=said)
        assert found == fb.count(tmp_path, "y", categorical=said)
        assert [feature.kind for feature in found.schema.features] == ["categorical"]


@pytest.mark.parametrize(
    ("options", "again"),
    [
        ({"categorical": ["x"]}, {}),
        ({"categorical": ["x"]}, {"categorical": ["x"]}),
        ({"categorical": "x*", "pairs": True}, {"pairs": True}),
        ({"numeric": "mdl"}, {"numeric": "mdl"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_update__a_column_without_values_at_first_is_what_it_was_said_to_be(
    tmp_path: Path, options: dict[str, Any], again: dict[str, Any], kind: str
) -> None:
    write = pq.write_table if kind == "parquet" else pyarrow.csv.write_csv
    first, later = (tmp_path / f"{i}.{kind}" for i in range(2))
    write(pa.table({"x": pa.nulls(40), "y": ["p", "q"] * 20}), first)
    write(pa.table({"x": [7, 8] * 20, "y": ["p", "q"] * 20}), later)
    some, whole = fb.count(first, "y", **options), fb.count(tmp_path, "y", **options)
    assert whole.schema.features[0].size == 2
    assert fb.count(tmp_path, "y", update=some, **again) == whole
    assert fb.merge([some, fb.count(later, "y", schema=some, **again)]) == whole
    out = tmp_path / "s.fbs"
    some.save(out)
    flags = {
        "pairs": ["--pairs"],
        "numeric": ["--numeric", "mdl"],
        "categorical": ["--categorical", "x"],
    }
    said = [word for name in again for word in flags[name]]
    run("count", tmp_path, "--target", "y", *said, "--update", "-o", out)
    assert fb.Statistics.load(out) == whole
    unsaid = fb.count(first, "y", pairs="pairs" in again)
    assert fb.count(tmp_path, "y", update=unsaid, **options) == whole


def test_merge__a_category_without_values_is_no_number() -> None:
    some = fb.count({"x": [None, None], "y": ["p", "q"]}, "y", categorical=["x"])
    numbers = {"x": [0.5, 1.5], "y": ["p", "q"]}
    with pytest.raises(fb.SchemaError, match="column 'x' is categorical in one and numeric in the"):
        some + fb.count(numbers, "y")
    assert (some + fb.count(numbers, "y", schema=some)).schema.features[0].size == 2


@pytest.mark.parametrize(
    "options",
    [{"cells": True}, {"cells": ["z"]}, {"cell_scatter": True}, {"families": [("z", "x")]}],
    ids=str,
)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_update__joint_values_are_of_the_same_columns_where_one_has_no_values(
    options: dict[str, Any], order: tuple[int, int]
) -> None:
    """Places of columns among the categorical ones are others then."""
    rows = pa.table({"x": np.arange(8.0), "z": [*"uvwuuvwu"], "y": ["p", "q"] * 4})
    days = [rows.set_column(0, "x", pa.nulls(8)), rows]
    whole = fb.count(pa.concat_tables(days, promote_options="default"), "y", **options)
    total = None
    for i in order:
        given = options if total is None else {}
        total = fb.count(days[i], "y", update=total, batch=str(i), **given)
    assert total is not None
    assert total.allclose(whole)


@pytest.mark.parametrize("columns", [["k", "y"], ["v", "y"], ["t", "y"], ["b", "y"], ["k", "t"]])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_schema__text_files_are_read_with_its_types(
    tmp_path: Path, columns: list[str], kind: str
) -> None:
    """The last column is the class; texts look like numbers."""
    rows = pa.table(
        {
            "k": [1, 2, 1, 2, 3, 1],
            "v": [1.0, 2.0, 1.0, 2.0, 3.0, 1.0],
            "t": [*"010101"],
            "b": [True, False] * 3,
            "y": ["n", "y"] * 3,
        }
    ).select(columns)
    path, target = tmp_path / f"rows.{kind}", columns[-1]
    if kind == "csv":
        pyarrow.csv.write_csv(rows, path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
    categorical = [columns[0]] if columns[0] in "kvt" else None
    day = fb.count(rows, target, categorical=categorical)
    again = fb.count(path, target, schema=day, categorical=categorical)
    assert again == day
    assert (day + again).n_rows == 12


def test_update__of_weights_or_folds_does_not_go_on_without_them(lake: Path) -> None:
    options = KINDS["weighted"]
    some = fb.count(lake / "0.parquet", "y", **options)
    for how in ({}, {"batch": "a day"}):
        with pytest.raises(fb.SchemaError, match="name the column of their weights"):
            fb.count(rows_of_day(9) if how else lake, "y", update=some, **how)
    folds = fb.count(lake / "0.parquet", "y", folds=2)
    with pytest.raises(fb.SchemaError, match="hold folds"):
        fb.count(lake, "y", update=folds)


def test_update__files_that_changed_or_are_gone_are_named(lake: Path) -> None:
    some = fb.count(lake, "y")
    (lake / "1.parquet").touch()  # another time, the same bytes
    assert fb.count(lake, "y", update=some) is some
    (lake / "1.parquet").rename(lake / "renamed.parquet")
    assert fb.count(lake, "y", update=some) is some
    pq.write_table(rows_of_day(7), lake / "2.parquet")
    with pytest.raises(fb.DataError, match=r"2\.parquet changed since it was counted"):
        fb.count(lake, "y", update=some)
    (lake / "2.parquet").unlink()
    with pytest.raises(fb.DataError, match=r"2\.parquet is gone"):
        fb.count(lake, "y", update=some)


@pytest.mark.parametrize("there", [True, False])
def test_update__of_two_at_once_the_later_loses_nothing_of_the_first(
    lake: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, count = lake.parent / "u.fbs", fb.count
    update = ("--target", "y", "--update", "-o", out)
    old = [lake / "0.parquet"] if there else []
    if there:
        run("count", *old, *update)

    def while_another_ends(*args: Any, **options: Any) -> fb.Statistics:
        monkeypatch.setattr(fb, "count", count)
        run("count", *old, lake / "1.parquet", *update)
        return count(*args, **options)

    monkeypatch.setattr(fb, "count", while_another_ends)
    said = run("count", lake, *update, code=1).stderr
    assert "u.fbs was written by another process since it was read" in said
    assert fb.Statistics.load(out).n_rows == 60 * (1 + there)
    run("count", lake, *update)
    assert fb.Statistics.load(out).n_rows == 240


def test_merge__into_one_of_its_inputs_that_another_wrote_meanwhile(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, merge = [lake.parent / f"{i}.fbs" for i in range(3)], fb.merge
    for i, part in enumerate(parts):
        run("count", lake / f"{i}.parquet", "--target", "y", "-o", part)

    def while_another_ends(*args: Any, **options: Any) -> fb.Statistics:
        monkeypatch.setattr(fb, "merge", merge)
        total = merge(*args, **options)
        run("merge", parts[0], parts[1], "-o", parts[0])
        return total

    monkeypatch.setattr(fb, "merge", while_another_ends)
    said = run("merge", parts[0], parts[2], "-o", parts[0], code=1).stderr
    assert "0.fbs was written by another process since it was read" in said
    run("merge", parts[0], parts[2], "-o", parts[0])
    assert fb.Statistics.load(parts[0]).n_rows == 180


def test_update__says_which_files_are_left_out_now(tmp_path: Path) -> None:
    """Of files that are broken on the first night, or later, and mended one by one."""
    paths = [tmp_path / f"{name}.parquet" for name in ("0", "1", "11", "1 and more", "late")]
    for i, path in enumerate(paths):
        pq.write_table(rows_of_day(i), path)
    whole = [path.read_bytes() for path in paths]

    def left_out(stats: fb.Statistics) -> list[str]:
        assert all(note.startswith("left out: ") for note in stats.provenance)
        return [path.name for path in paths if f"{path}: " in " ".join(stats.provenance)]

    for path, data in zip(paths[1:], whole[1:], strict=True):
        path.write_bytes(data[:100])
    paths[-1].unlink()
    found = fb.count(tmp_path, "y", update=True, on_error="skip")
    assert left_out(found) == ["1.parquet", "11.parquet", "1 and more.parquet"]
    paths[1].write_bytes(whole[1])
    found = fb.count(tmp_path, "y", update=found, on_error="skip")
    assert left_out(found) == ["11.parquet", "1 and more.parquet"]
    assert fb.count(tmp_path, "y", update=found, on_error="skip") is found
    paths[-1].write_bytes(whole[-1][:100])  # and no file is new that can be read
    found = fb.count(tmp_path, "y", update=found, on_error="skip")
    assert left_out(found) == ["11.parquet", "1 and more.parquet", "late.parquet"]
    for path, data in zip(paths, whole, strict=True):
        path.write_bytes(data)
    found = fb.count(tmp_path, "y", update=found, on_error="skip")
    assert found.allclose(fb.count(tmp_path, "y"))
    assert found.provenance == ()


def test_update__a_file_that_is_there_but_not_named_is_not_gone(lake: Path) -> None:
    some = fb.count(lake / "1.parquet", "y")
    said = r"1\.parquet is not among the files that are named.*; name it, too, or count the new"
    with pytest.raises(fb.DataError, match=said):
        fb.count(lake / "2.parquet", "y", update=some)
    assert fb.count([lake / "1.parquet", lake / "2.parquet"], "y", update=some).n_rows == 120


def test_update__a_clock_that_goes_back_changes_nothing(lake: Path) -> None:
    """New and changed files are recognised by what they are, not by whether they are younger."""
    late = lake / "3.parquet"
    table = pq.read_table(late)
    late.unlink()
    some = fb.count(lake, "y")
    pq.write_table(table, late, row_group_size=17)
    os.utime(late, (1, 1))
    found = fb.count(lake, "y", update=some)
    assert found.allclose(fb.count(lake, "y"))
    for path in lake.iterdir():
        os.utime(path, (1, 1))
    assert fb.count(lake, "y", update=found) is found
    pq.write_table(rows_of_day(7), lake / "2.parquet")
    os.utime(lake / "2.parquet", (0, 0))
    with pytest.raises(fb.DataError, match=r"2\.parquet changed since it was counted"):
        fb.count(lake, "y", update=found)


def test_update__a_copy_is_left_out_and_named(lake: Path, caplog: Any) -> None:
    some = fb.count(lake, "y")
    (lake / "copy.parquet").write_bytes((lake / "1.parquet").read_bytes())
    assert fb.count(lake, "y", update=some) is some
    assert "copy.parquet has the same bytes as" in caplog.text


def test_update__copies_count_once_whenever_they_arrive(lake: Path, caplog: Any) -> None:
    """Together, one after another, and where there is nothing yet to update."""
    once, some = fb.count(lake, "y"), fb.count(lake / "0.parquet", "y")
    day = lake / "day=9"
    day.mkdir()
    for path in (lake / "1-copy.parquet", lake / "3-copy.parquet", day / "1.parquet"):
        path.write_bytes((lake / f"{path.name[0]}.parquet").read_bytes())
    for update in (some, True):
        caplog.clear()
        found = fb.count(lake, "y", update=update, exclude="day" if update is True else None)
        assert found.allclose(once)
        assert caplog.text.count("which is in the statistics: left out") == 3
        assert fb.count(lake, "y", update=found) is found
    with pytest.raises(fb.DataError, match="pass paths"):
        fb.count(rows_of_day(0), "y", update=True)
    with pytest.raises(ValueError, match=r"update='s\.fbs': use statistics"):
        fb.count(lake, "y", update="s.fbs")  # type: ignore[arg-type]


def test_update__a_file_that_was_moved_leaves_its_name_to_others(lake: Path, caplog: Any) -> None:
    """Files that are rotated, and a copy that comes beside one that was moved."""
    whole = fb.count(lake, "y")
    (lake / "1.parquet").rename(lake / "1-old.parquet")
    (lake / "copy.parquet").write_bytes((lake / "1-old.parquet").read_bytes())
    assert fb.count(lake, "y", update=whole) is whole
    assert caplog.text.count("left out") == 1
    assert "copy.parquet has the same bytes as" in caplog.text
    (lake / "copy.parquet").unlink()
    caplog.clear()
    (lake / "9.parquet").write_bytes((lake / "0.parquet").read_bytes())
    both = fb.count(lake, "y")
    (lake / "9.parquet").rename(lake / "10.parquet")
    assert fb.count(lake, "y", update=both) is both
    assert not caplog.text


def test_update__copies_that_count_by_their_paths_are_in(lake: Path, caplog: Any) -> None:
    copied = lake / "1-copy.parquet"
    copied.write_bytes((lake / "1.parquet").read_bytes())
    whole = fb.count(lake, "y")
    assert whole.n_rows == 300
    assert fb.count(lake, "y", update=whole) is whole
    assert not caplog.text
    copied.rename(lake / "moved.parquet")
    assert fb.count(lake, "y", update=whole) is whole
    (lake / "moved.parquet").unlink()
    with pytest.raises(fb.DataError, match=r"1-copy\.parquet is gone, and its rows"):
        fb.count(lake, "y", update=whole)
    pq.write_table(rows_of_day(7), copied)
    with pytest.raises(fb.DataError, match=r"1-copy\.parquet changed since"):
        fb.count(lake, "y", update=whole)


def test_update__refusals_say_what_to_do(lake: Path) -> None:
    whole = fb.count(lake, "y")
    with pytest.raises(fb.SchemaError, match="hold no pairs; count all files again with pairs"):
        fb.count(lake, "y", update=whole, pairs=True)
    with pytest.raises(
        fb.SchemaError, match=r"hold no families; .* again with families=\[\.\.\.\]"
    ):
        fb.count(lake, "y", update=whole, families=[("a",)])
    for first in (True, whole):
        for more in ({"schema": whole}, {"folds": 2}, {"checkpoint": lake / "kept"}):
            with pytest.raises(ValueError, match="without `schema`, `folds` and `checkpoint`"):
                fb.count(lake, "y", update=first, **more)
    for name, value in (
        ("columns", lambda c: True),
        ("columns", [["a"]]),
        ("domains", [("a", ["x"])]),
        ("dates", "auto"),
        ("null_values", 1.5),
    ):
        with pytest.raises((ValueError, fb.SchemaError), match=f"{name}="):
            fb.count(lake, "y", update=whole, **{name: value})
    with pytest.raises(ValueError, match=r"columns=.*leave it out"):
        fb.count(lake, "y", update=whole, columns=["a"])
    for option, how in (("sample_weight", {"update": whole}), ("folds", {"schema": whole})):
        with pytest.raises(ValueError, match=f"{option}='k': .* is a feature; name another"):
            fb.count(lake, "y", **{option: "k"}, **how)
    with pytest.raises(ValueError, match=r"target='a': .* have the target 'y'"):
        fb.count(lake, "a", update=whole)
    rows = rows_of_day(0)
    labels = np.array(rows["y"].to_pylist())
    assert fb.count(rows.drop_columns("y"), labels, schema=fb.count(rows, "y")).n_rows == len(rows)
    with pytest.raises(fb.DataError, match="pass paths"):
        fb.count(rows_of_day(0), "y", update=whole)
    with pytest.raises(fb.DataError, match="do not say which files"):
        fb.count(lake, "y", update=fb.count(rows_of_day(0), "y"))
    part = fb.count(fb.engines.part(lake, 1, 7), "y")
    with pytest.raises(fb.DataError, match="only some of its row groups"):
        fb.count(lake, "y", update=part)


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"null_values": ["NA", "-"]}, {"null_values": ["NA"]}),
    ({"missing": "category"}, {"missing": "drop"}),
    ({"exclude": "n"}, {"exclude": ["a"]}),
    ({"exclude": ["n*"]}, {"exclude": [0]}),
    ({"columns": ["a", "n"]}, {"columns": ["a"]}),
    ({"columns": ["a", "y"]}, {"columns": ["a", "n"]}),
    ({"columns": "[an]"}, {"columns": "z*"}),
    ({"columns": ["a", "n", "y", "w"], "sample_weight": "w"}, {"columns": ["a", "w"]}),
    ({"categorical": ["n"]}, {"categorical": ["q"]}),
    ({"categorical": ["a"]}, {"categorical": ["n"]}),
    ({"domains": {"a": [*"zwvu"], "y": [*"qp"]}}, {"domains": {"a": [*"zwv"]}}),
    ({"dates": {"t": "month"}}, {"dates": {"t": ["month", "hour"]}}),
    ({"dates": {"t": ["hour", "number"]}}, {"dates": {"t": "number"}}),
]


@pytest.mark.parametrize(("options", "others"), OPTIONS, ids=str)
def test_update__takes_options_that_say_the_same(
    tmp_path: Path, options: dict[str, Any], others: dict[str, Any]
) -> None:
    """The first command of a job and all after it are the same."""

    def night(i: int) -> None:
        rng = np.random.default_rng(i)
        rows: dict[str, Any] = {name: rng.choice([*"uvw"], 40) for name in "am"}
        rows |= {"n": rng.integers(0, 3, 40), "y": rng.choice(["p", "q"], 40)}
        if "sample_weight" in options:
            rows["w"] = rng.integers(1, 3, 40)
        if "dates" in options:
            rows["t"] = rng.integers(0, 10**6, 40).astype("datetime64[s]")
        pq.write_table(pa.table(rows), tmp_path / f"{i}.parquet")

    night(0)
    first = fb.count(tmp_path, "y", **options)
    night(1)
    second = fb.count(tmp_path, "y", update=first, **options)
    assert second.allclose(fb.count(tmp_path, "y", **options))
    assert fb.count(tmp_path, "y", update=second, **options) is second
    part = fb.count(tmp_path / "1.parquet", "y", schema=first, **options)
    assert fb.merge([first, part]).allclose(second)
    with pytest.raises(ValueError, match=f"{next(iter(others))}=.*leave it out"):
        fb.count(tmp_path, "y", update=first, **{**options, **others})


def test_part__refusals_say_what_to_do(lake: Path) -> None:
    with pytest.raises(fb.SchemaError, match="part 1/2: the cut points of column 'n' would be"):
        fb.count(fb.engines.part(lake, 1, 2), "y", pairs=True)
    with pytest.raises(fb.DataError, match="only files have parts"):
        fb.count(fb.engines.part(rows_of_day(0), 1, 2), "y")
    for i, n in ((0, 2), (3, 2), (1, 0), (1.0, 2), (True, 2)):
        with pytest.raises(ValueError, match="from 1 to"):
            fb.engines.part(lake, i, n)  # type: ignore[arg-type]
    assert fb.NaiveBayes(numeric="mdl").fit(fb.engines.part(lake, 1, 2), "y").n_parameters_


@pytest.mark.parametrize("n", [1, 3, 9])
def test_parts_of_text_files_are_files(tmp_path: Path, n: int) -> None:
    for i in range(5):
        pyarrow.csv.write_csv(rows_of_day(i), tmp_path / f"{i}.csv")
    # of one file alone the type would be another
    (tmp_path / "2.csv").write_text((tmp_path / "2.csv").read_text().replace(",1,", ",1.5,"))
    whole = fb.count(str(tmp_path / "*.csv"), "y")
    part = str(tmp_path / "*.csv")
    parts = [fb.count(fb.engines.part(part, i, n), "y") for i in range(1, n + 1)]
    assert fb.merge(parts).allclose(whole)


def test_commands__an_array_of_jobs(lake: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.fbs"
    count = (
        "count",
        lake / "0.parquet",
        lake / "1.parquet",
        lake / "2.parquet",
        lake / "3.parquet",
    )
    run(*count, "--target", "y", "--pairs", "-o", schema)
    parts = [tmp_path / f"{i}.fbs" for i in (1, 2, 3)]
    for i, path in enumerate(parts, 1):
        how = ("--target", "y", "--pairs", "--part", f"{i}/3")
        said = fails("count", lake, *how, "-o", path, folder=tmp_path)
        assert "cut points of column 'n'" in said
        run("count", lake, *how, "--schema", schema, "-o", path)
    run("merge", *parts, "-o", tmp_path / "all.fbs")
    assert fb.Statistics.load(tmp_path / "all.fbs") == fb.Statistics.load(schema)
    for part in ("0/3", "4/3", "1", "a/b", "1/"):
        run("count", lake, "--target", "y", "--part", part, "-o", tmp_path / "x.fbs", code=2)
    said = run("count", lake, "--target", "y", "--update", "--part", "1/2", "-o", schema, code=2)
    assert "--update goes without" in said.output


def test_commands__every_day_what_is_new(lake: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.fbs"
    daily = ("count", lake, "--target", "y", "--update", "-o", out)
    (lake / "3.parquet").rename(tmp_path / "3.parquet")
    assert answer(*daily)["rows"] == 180
    (tmp_path / "3.parquet").rename(lake / "3.parquet")
    assert answer(*daily)["rows"] == 240
    before = out.stat().st_mtime_ns, out.read_bytes()
    assert "already complete" in run(*daily).stdout
    assert answer(*daily)["rows"] == 240
    assert before == (out.stat().st_mtime_ns, out.read_bytes())
    assert fb.Statistics.load(out).allclose(fb.count(lake, "y"))
    (lake / "copy.parquet").write_bytes((lake / "1.parquet").read_bytes())
    assert "1.parquet, which is in the statistics: left out" in run(*daily).stderr
    first = answer(*daily[:-1], tmp_path / "first.fbs")
    assert (first["rows"], len(first["source"])) == (240, 4)
    plain = answer("count", lake, "--target", "y", "-o", tmp_path / "plain.fbs")
    assert (plain["rows"], len(plain["source"])) == (300, 5)
    pq.write_table(rows_of_day(8), lake / "0.parquet")
    assert "0.parquet changed since it was counted" in fails(*daily, folder=tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_update__of_batches_counts_each_name_once(kind: str) -> None:
    options = KINDS[kind]
    total = None
    for i in (0, 1, 1, 2, 0, 3):
        again = {k: v for k, v in asked(options).items() if k in ("sample_weight", "numeric")}
        given = options if total is None else again
        total = fb.count(rows_of_day(i), "y", update=total, batch=f"rows/{i}", **given)
    assert total is not None
    rows = pa.concat_tables([rows_of_day(i) for i in range(4)])
    assert total.allclose(fb.count(rows, "y", schema=total, **asked(options)))
    assert [entry.path for entry in total.ledger] == [f"rows/{i}" for i in range(4)]
    assert fb.count(rows_of_day(2), "y", update=total, batch="rows/2", **again) is total


def test_batches__are_known_again_wherever_they_went(lake: Path, tmp_path: Path) -> None:
    parts = [fb.count(rows_of_day(i), "y", batch=f"rows/{i}") for i in range(3)]
    parts[2].save(tmp_path / "2.fbs")
    total = fb.merge([parts[0], parts[1], tmp_path / "2.fbs"])
    with pytest.raises(fb.DataError, match="rows/1 is in statistics 1 already, and its rows"):
        fb.merge([total, parts[1]])
    slid = fb.merge([total, fb.count(rows_of_day(3), "y", batch="rows/3")], minus=[parts[0]])
    assert [entry.path for entry in slid.ledger] == ["rows/1", "rows/2", "rows/3"]
    # Files and batches go together, and a batch is never looked for among the files.
    both = fb.count(lake, "y", update=total)
    assert both.n_rows == 7 * 60
    assert fb.count(lake, "y", update=both) is both
    assert fb.count(rows_of_day(0), "y", update=both, batch="rows/0") is both


def test_batches__may_be_empty_or_have_no_class() -> None:
    rows = rows_of_day(0)
    nothing = rows.set_column(5, "y", pa.nulls(60, pa.string()))
    total = None
    for i, part in enumerate((rows[:0], nothing, rows, nothing)):
        total = fb.count(part, "y", update=total, batch=str(i))
    assert total is not None
    assert (total.n_rows, total.dropped_rows) == (60, 120)
    assert total.allclose(fb.count(pa.concat_tables([rows, nothing, nothing]), "y"))


def test_update__of_rows_without_a_class_judges_the_sum(lake: Path) -> None:
    """A night may bring no class; what came before, or what the schema is of, has them."""
    first = fb.count(lake, "y", update=True)
    nothing = rows_of_day(9).set_column(5, "y", pa.nulls(60, pa.string()))
    pq.write_table(nothing, lake / "9.parquet")
    total = fb.count(lake, "y", update=first)
    assert (total.n_rows, total.dropped_rows) == (240, 60)
    assert total == first + fb.count(lake / "9.parquet", "y", schema=first)
    with pytest.raises(fb.DataError, match="there is no class to learn"):
        fb.count(lake / "9.parquet", "y", update=True)


def test_batches__refusals_say_what_to_do(lake: Path) -> None:
    with pytest.raises(fb.DataError, match="files are recognised without a name"):
        fb.count(lake, "y", batch="lake")
    for name in ("", 3):
        with pytest.raises(ValueError, match="give the rows a name"):
            fb.count(rows_of_day(0), "y", batch=name)  # type: ignore[arg-type]
    unnamed = fb.count(rows_of_day(0), "y")
    with pytest.raises(fb.DataError, match="do not say which files or batches"):
        fb.count(rows_of_day(1), "y", update=unnamed, batch="1")
