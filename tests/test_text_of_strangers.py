"""Names and labels that a terminal would obey, a spreadsheet run, or a graph break at."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import fastbayes as fb
from fastbayes.cli import main
from fastbayes.core.text_tables import aligned, visible

ESCAPE = "\x1b]0;mine\x07"
BIDI = "a\u202eb"
NAME = f"c{ESCAPE}\n{BIDI}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 漢字 \u00a0", "plain ünïcode 漢字 \u00a0"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\r\nb\tc\x00\x7f\x9b", r"a\r\nb\tc\x00\x7f\x9b"),
        ("a\u202eb\u2066c\u2028d", r"a\u202eb\u2066c\u2028d"),
        ("\ud800", r"\ud800"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def table() -> pa.Table:
    labels = [f"p{ESCAPE}", "q"] * 20
    return pa.table({NAME: [ESCAPE, BIDI] * 20, "n": ["=1+1", "-x"] * 20, "y": labels})


def test_command_line__names_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    run, data, model = CliRunner().invoke, str(tmp_path / "d.parquet"), str(tmp_path / "m.fb")
    pq.write_table(table(), data)
    for arguments in (
        ["fit", data, "--target", "y", "--model", "tan", "-o", model],
        ["inspect", data, "--target", "y"],
        ["inspect", model],
        ["evaluate", model, data],
        ["compare", data, "--target", "y", "--models", "nb,tan"],
        ["fit", data, "--target", f"no{ESCAPE}", "-o", model],
        ["fit", str(tmp_path / f"no{ESCAPE}.parquet"), "--target", "y", "-o", model],
        ["fit", data, f"--no{ESCAPE}", "--target", "y", "-o", model],
        ["predict", model, data, "--loss", f"no{ESCAPE}", "-o", str(tmp_path / "out.csv")],
    ):
        done = run(main, arguments)
        said = done.output + (done.stderr if done.stderr_bytes else "")
        assert said
        assert not {"\x1b", "\x07", "\u202e"} & {*said}, (arguments, said)


def test_tables__show_names_in_one_line() -> None:
    assert len(aligned([["name", "value"], [NAME, "1"]])) == 2
    assert all(line.isprintable() for line in aligned([["name", "value"], [NAME, "1"]]))


@pytest.mark.parametrize("parts", [False, True])
def test_csv__formulas_become_text(tmp_path: Path, parts: bool) -> None:
    rows = pa.table({"a": ["u", "v"] * 20, "y": ["=cmd()", "+q"] * 20})
    model = fb.NaiveBayes().fit(rows, "y")
    asked = rows.append_column("@key", pa.array(["-2", "x"] * 20).dictionary_encode())
    asked = asked.append_column("n", pa.array([-2.5] * 40))
    options = {"keys": ["@key", "n"], "format": "csv", "parts": parts}
    fb.predict_to(model, asked, tmp_path / "plain", **options)
    fb.predict_to(model, asked, tmp_path / "safe", csv_safe=True, proba=True, **options)
    plain, safe = (
        [
            row
            for file in sorted((tmp_path / name).iterdir() if parts else [tmp_path / name])
            for row in csv.reader(file.read_text().splitlines())
        ]
        for name in ("plain", "safe")
    )
    assert plain[0][:2] == ["@key", "n"]
    assert plain[1][0] == "-2"
    assert safe[0][:3] == ["'@key", "n", "prediction"]
    assert [row[:3] for row in safe[1:3]] == [["'-2", "-2.5", "'=cmd()"], ["x", "-2.5", "'+q"]]


def test_csv_safe__is_about_csv(tmp_path: Path) -> None:
    rows = pa.table({"a": ["u", "v"], "y": ["p", "q"]})
    model = fb.NaiveBayes().fit(rows, "y")
    with pytest.raises(fb.DataError, match="csv_safe is about CSV"):
        fb.predict_to(model, rows, tmp_path / "out.parquet", csv_safe=True)
    assert not [*tmp_path.iterdir()]
