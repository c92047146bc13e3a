"""The command line run in this process, its answers parsed, its failures held to one line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from fastbayes.cli import main

# Play tennis with a number and a few missing cells.
ROWS = [
    ("sunny", "hot", 29.4, "no"),
    ("sunny", "hot", 26.7, "no"),
    ("overcast", "hot", 28.3, "yes"),
    ("rain", "mild", None, "yes"),
    ("rain", "cool", 20.0, "yes"),
    ("rain", "cool", 18.3, "no"),
    ("overcast", None, 17.8, "yes"),
    ("sunny", "mild", 22.2, "no"),
    ("sunny", "cool", 20.6, "yes"),
    (None, "mild", 23.9, "yes"),
]


def tennis(rows: int = 1000) -> pa.Table:
    """Return the rows over and over."""
    names = ["sky", "warmth", "degrees", "play"]
    columns = zip(*ROWS, strict=True)
    table = pa.table({n: pa.array(c) for n, c in zip(names, columns, strict=True)})
    return table.take(np.arange(rows) % len(ROWS))


def parquet(table: pa.Table | dict[str, Any], path: Path, **options: Any) -> Path:
    """Write a table as Parquet and return the path."""
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return path


def run(*args: Any, code: int | None = 0, stdin: bytes | None = None) -> Result:
    """Run a command that must end with this exit code, if any, and not by a fault."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)
    fault = result.exception
    if fault is not None and not isinstance(fault, SystemExit):
        raise fault
    assert code in (None, result.exit_code), result.output
    return result


def answer(*args: Any) -> Any:
    """Return the JSON that a command prints; NaN and infinity are no JSON."""

    def refuse(literal: str) -> None:
        raise ValueError(f"{literal} is no JSON")

    return json.loads(run(*args, "--json").stdout, parse_constant=refuse)


# Words of Python, which the command line does not speak: name=value, domains[...], `None`.
PYTHON = re.compile(
    r"""\b[a-z_]\w*=(?:True|False|None|['"({[]|-?\d|[ ,;]|$)|\b[a-z_]\w*\[['"]|memory_limit"""
)


def fails(*args: Any, folder: Path, code: int = 1) -> str:
    """Run a command that must fail, in one line and without a trace; return the line."""
    before = snapshot(folder)
    result = run(*args, code=code)
    assert result.stdout == ""
    *others, said = result.stderr.splitlines()
    if code == 1:
        assert [line for line in others if not line.startswith("note: ")] == []
    assert said.startswith("Error: ")
    assert not PYTHON.search(re.sub(r"--[\w-]+ \S+", "", said.replace(str(folder), ""))), said
    assert snapshot(folder) == before
    return said


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes."""
    import resource  # Windows has no such limits

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file below a directory, hidden ones too, with what it holds."""
    paths = [Path(root, name) for root, _, names in os.walk(folder) for name in names]
    return {str(path): path.read_bytes() for path in paths if not path.is_symlink()}
