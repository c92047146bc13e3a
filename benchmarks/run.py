"""Run the benchmarks, each case in a process of its own, and write what was measured as JSON.

python -m benchmarks.run [--quick] [--only NAME ...] -o results.json

With `--only`, the other cases in the file stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.processes import PROCESSES, ROOT

SECONDS = {"full": 40.0, "quick": 6.0, "test": 0.0}


def run_case(name: str, size: str, folder: Path) -> dict[str, Any]:
    """Measure one case in this process."""
    if name in PROCESSES:
        figures = PROCESSES[name](size, folder)
        return {"case": name, "figures": [asdict(figure) for figure in figures]}
    from benchmarks.cases import CASES, FLOOR, OURS

    case = CASES[name]
    rows = case.rows[size]
    work = case.build(rows, folder)
    times, turns = measure.take_turns(work.sides, case.turns[size], SECONDS[size], work.check)
    claims = []
    for claim in case.claims:
        found = {"against": claim.against, "most": claim.most, "least": claim.least}
        if claim.against is None:
            found["value"] = times[OURS].wall / times[OURS].units * 1e9
        elif claim.against not in turns:
            continue  # a rival that is not installed
        elif claim.most is not None or claim.against == FLOOR:
            found["slower"] = measure.ratio(turns[OURS], turns[claim.against])
        else:
            found["faster"] = measure.ratio(turns[claim.against], turns[OURS])
        claims.append(found)
    return {
        "case": name,
        "title": case.title.format(rows=f"{rows:,}"),
        "unit": case.unit,
        "threads": case.threads,
        "sides": measure.as_json(times),
        "claims": claims,
        "peak_bytes": measure.peak_bytes(),
    }


def run_all(names: list[str], size: str) -> dict[str, Any]:
    """Measure the cases one after another, each in a process of its own."""
    _python("-c", "import fastbayes; fastbayes.warmup()")
    lines = []
    with tempfile.TemporaryDirectory(prefix="fastbayes-bench-") as folder:
        for name in names:
            print(name, "...", file=sys.stderr, flush=True)
            output = Path(folder) / f"{name}.json"
            _python("-m", "benchmarks.run", "--case", name, "--size", size, "--folder", folder,
                    "-o", str(output))  # fmt: skip
            lines.append(json.loads(output.read_text("utf-8")))
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": now, "size": size, "machine": measure.machine(), "lines": lines}


def merged(earlier: dict[str, Any], later: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return all cases of two runs, the later one's where both have them, in the order of names.

    Each case is measured beside its rivals in a process of its own, so that cases of several runs
    may stand in one table; not those of several machines.
    """
    for key in ("processor", "cores", "memory_bytes", "python", "versions"):
        if earlier["machine"][key] != later["machine"][key]:
            raise SystemExit(f"the results there are of another {key}: run all cases")
    if earlier["size"] != later["size"]:
        raise SystemExit("the results there are of another size: run all cases")
    found = {line["case"]: line for line in (*earlier["lines"], *later["lines"])}
    return {**later, "lines": [found[name] for name in names if name in found]}


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)


def main(arguments: list[str] | None = None) -> None:
    from benchmarks.cases import CASES

    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    names = [*CASES, *PROCESSES]
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", dest="size", action="store_const", const="full", default="full")
    size.add_argument("--quick", dest="size", action="store_const", const="quick")
    size.add_argument("--size", choices=list(SECONDS), help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=", ".join(names))  # fmt: skip
    parser.add_argument("--case", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    if given.case:
        result = run_case(given.case, given.size, given.folder)
    else:
        result = run_all(given.only, given.size)
        if given.only != names and given.output.exists():
            result = merged(json.loads(given.output.read_text("utf-8")), result, names)
    given.output.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
