"""Measure every model and its rivals by ten folds, and print what came out as Markdown.

python -m benchmarks.accuracy [--tables NAME ...] [--folds N] [--quick] [--no-rivals] [--resume]
    [--data DIR] -o results.json

The tables are those of scikit-learn and, where the directory is there, those of `../shared/data`
that have folds. Results are written after each table; `--resume` keeps the tables in the file and
runs the others. All run on one thread. `--render results.json README.md` writes figures measured
before into a text between markers.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.accuracy import rivals
from benchmarks.accuracy.measured import table_figures
from benchmarks.accuracy.report import render
from benchmarks.accuracy.tables import N_FOLDS, names, tables
from benchmarks.table import written

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT.parent / "shared" / "data"
QUICK_TABLES, QUICK_FOLDS = 3, 2
MARKER = "accuracy"
RESULTS = Path(__file__).parent / "results.json"


def measured(
    folder: Path, chosen: list[str], n_folds: int, output: Path, *, with_rivals: bool, resume: bool
) -> dict[str, Any]:
    """Measure the tables one after another, and write what is known after each."""
    kept: list[dict[str, Any]] = []
    folds = list(range(n_folds))
    if resume and output.exists():
        before = json.loads(output.read_text("utf-8"))
        if before["rivals"] != with_rivals or any(t["folds"] != folds for t in before["tables"]):
            raise SystemExit(f"{output} is of other folds or rivals: leave --resume out")
        kept = [t for t in before["tables"] if t["name"] in chosen]
    done = {line["name"]: line for line in kept}
    results = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rivals": with_rivals,
        "absent": rivals.absent() if with_rivals else {},
        "tables": [],
    }
    for table in tables(folder, [name for name in chosen if name not in done]):
        print(table.name, "...", file=sys.stderr, flush=True)
        figures = table_figures(table, folds, with_rivals=with_rivals)
        done[table.name] = {"name": table.name, **figures}
        results["tables"] = [done[name] for name in chosen if name in done]
        output.write_text(as_text(results), "utf-8")
    results["tables"] = [done[name] for name in chosen]
    output.write_text(as_text(results), "utf-8")
    return results


def as_text(results: dict[str, Any]) -> str:
    """Return JSON with a line for each model of a table."""
    rest = {key: value for key, value in results.items() if key != "tables"}
    lines = []
    for table in results["tables"]:
        models = ",\n".join(
            f"   {json.dumps(name)}: {json.dumps(figures)}"
            for name, figures in table["models"].items()
        )
        about = json.dumps({key: value for key, value in table.items() if key != "models"})
        lines.append(f'  {about[:-1]}, "models": {{\n{models}\n  }}}}')
    return f'{json.dumps(rest)[:-1]}, "tables": [\n' + ",\n".join(lines) + "\n]}\n"


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    found = measure.machine()
    kept = ("fastbayes", "numpy", "scikit-learn")
    versions = {name: found["versions"][name] for name in kept}
    try:
        versions["lightgbm"] = version("lightgbm")
    except PackageNotFoundError:
        versions["lightgbm"] = None
    return {**found, "versions": versions}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="some of the tables")
    parser.add_argument("--folds", type=int, default=N_FOLDS, choices=range(1, N_FOLDS + 1),
                        metavar="N", help="how many of the ten folds to run")  # fmt: skip
    parser.add_argument("--quick", action="store_true",
                        help=f"{QUICK_FOLDS} folds of the first {QUICK_TABLES} tables")  # fmt: skip
    parser.add_argument("--no-rivals", action="store_true", help="our own models alone")
    parser.add_argument("--resume", action="store_true", help="keep the tables in the file")
    parser.add_argument("--data", type=Path, default=DATA, help=f"by default {DATA}")
    parser.add_argument("--render", nargs=2, type=Path, metavar=("JSON", "TEXT"),
                        help="write figures measured before into a text")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    if given.render:
        results, text = given.render
        table = render(json.loads(results.read_text("utf-8")))
        text.write_text(written(text.read_text("utf-8"), table, MARKER), "utf-8")
        return
    if given.output is None:
        parser.error("-o FILE: where the figures go")
    known = names(given.data)
    chosen = given.tables or known
    if unknown := [name for name in chosen if name not in known]:
        parser.error(f"--tables: no {', '.join(unknown)}; there are {', '.join(known)}")
    if given.quick:
        chosen = chosen[:QUICK_TABLES]
    folds = QUICK_FOLDS if given.quick else given.folds
    options = {"with_rivals": not given.no_rivals, "resume": given.resume}
    print(render(measured(given.data, chosen, folds, given.output, **options)))
