"""CSV and JSON lines as other programs write them, held to Python's own readers."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa

import fastbayes as fb
from fastbayes.data import text
from fastbayes.data.source import open_source
from stress.tables import WORDS, Rng, one_of

ABOUT = (
    "any quoting, newlines, byte order mark, encoding, missing key, size of block: the rows of "
    "`csv` and `json`, or a documented error"
)
BATCH = 200
PIECES = [
    *WORDS.tolist(),
    "\n",
    "\r\n",
    "\r",
    '"',
    '""',
    ",",
    ";",
    "\t",
    "日本",
    "\u2028",
    "x" * 90,
]
ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16"]
SIZES = [1, 7, 40, 300, 1 << 20]


def case(rng: Rng, folder: Path) -> str:
    """Read one text."""
    size = one_of(rng, SIZES)
    for name in ("BLOCK_BYTES", "INFER_BYTES", "LEAST_INFER_BYTES"):
        setattr(text, name, size)
    return one_of(rng, [comma_separated, json_lines])(rng, folder)


def rows_of(path: Path, rows: int, types: Any = None) -> list[dict[str, Any]]:
    """Return what we read."""
    found: list[dict[str, Any]] = []
    for segment in open_source(path, types=types).segments(rows):
        for batch in segment.batches():
            found += batch.to_pylist()
    return found


def comma_separated(rng: Rng, folder: Path) -> str:
    """Read cells of text, each of which is what `csv` says."""
    names = ["a", 'b "c"', "d,e", "é"][: int(rng.integers(2, 5))]
    rows = [[cell(rng) for _ in names] for _ in range(int(rng.integers(0, 30)))]
    newline = one_of(rng, ["\n", "\r\n", "\r"])
    lines = [",".join(quoted(rng, text) for text in row) for row in [names, *rows]]
    written = "".join(line + newline for line in lines)
    if rng.integers(3) == 0 and rows:
        written = written.removesuffix(newline)
    ragged = bool(rows) and rng.integers(10) == 0
    if ragged:
        written = written.removesuffix(newline) + newline + one_of(rng, ["x", "x,y,z,v,w,u"])
    encoding = one_of(rng, ENCODINGS)
    path = folder / "t.csv"
    path.write_bytes(written.encode(encoding, errors="replace"))
    try:
        found = rows_of(path, int(rng.integers(1, 40)), dict.fromkeys(names, pa.string()))
    except fb.DataError as error:
        assert ragged or encoding not in ("utf-8", "utf-8-sig"), (written, error)
        return f"csv, {'ragged' if ragged else encoding}: refused"
    plain = path.read_bytes().decode("utf-8-sig")
    header, *others = csv.reader(io.StringIO(plain, newline=""))
    expected = [
        {name: value or None for name, value in zip(header, row, strict=True)}
        for row in others
        if row
    ]
    assert found == expected, (written, found)
    return f"csv, {encoding}: the same rows"


def quoted(rng: Rng, text: str) -> str:
    """Return a cell in quotes where it needs them, or happens to have them."""
    if any(mark in text for mark in ',"\r\n') or rng.integers(4) == 0:
        return '"' + text.replace('"', '""') + '"'
    return text


def cell(rng: Rng) -> str:
    return "".join(one_of(rng, PIECES) for _ in range(int(rng.integers(0, 4))))


def json_lines(rng: Rng, folder: Path) -> str:
    """Read values of one kind in each column, each of which is what `json` says."""
    kinds = {f"k{i}": one_of(rng, sorted(VALUES)) for i in range(int(rng.integers(1, 4)))}
    rows = []
    for _ in range(int(rng.integers(1, 30))):
        keys = [name for name in kinds if not rows or rng.integers(8)]  # the first has them all
        values = {k: VALUES[kinds[k]](rng) if rng.integers(8) else None for k in keys}
        rows.append(dict(sorted(values.items(), key=lambda _: rng.random())))
    separators = one_of(rng, [(",", ":"), (", ", ": "), (" ,\t", " : ")])
    newline = one_of(rng, ["\n", "\r\n", "\n\n"])
    escaped = one_of(rng, [True, False])
    lines = [json.dumps(row, separators=separators, ensure_ascii=escaped) for row in rows]
    written = newline.join(lines) + one_of(rng, ["", "\n"])
    encoding = one_of(rng, ENCODINGS)
    path = folder / "t.jsonl"
    path.write_bytes(written.encode(encoding, errors="replace"))
    try:
        found = rows_of(path, int(rng.integers(1, 40)))
    except fb.DataError as error:
        assert encoding not in ("utf-8", "utf-8-sig"), (written, error)
        return f"jsonl, {encoding}: refused"
    plain = path.read_bytes().decode("utf-8-sig")
    expected = [json.loads(line) for line in plain.split("\n") if line.strip()]
    assert len(found) == len(expected), (written, len(found))
    for ours, theirs in zip(found, expected, strict=True):
        for name in {*ours, *theirs}:
            assert alike(ours.get(name), theirs.get(name)), (written, name, ours, theirs)
    return f"jsonl, {encoding}: the same rows"


VALUES = {
    "whole": lambda rng: (
        int(rng.integers(-(2**53), 2**53)) if rng.integers(2) else int(rng.integers(9))
    ),
    "real": lambda rng: float(rng.normal() * 10.0 ** rng.integers(-300, 300)),
    "mixed": lambda rng: int(rng.integers(9)) if rng.integers(2) else float(rng.normal()),
    "text": lambda rng: cell(rng) + "-",  # not what looks like a date
    "flag": lambda rng: bool(rng.integers(2)),
}


def alike(ours: Any, theirs: Any) -> bool:
    """Return whether two values are the same; a last digit may be read otherwise."""
    if isinstance(theirs, (int, float)) and not isinstance(theirs, bool):
        return ours is not None and math.isclose(ours, theirs, rel_tol=1e-15)
    return bool(ours == theirs)
