"""Bayesian networks beside JAGS, pyAgrum and pgmpy: `python -m benchmarks.network_rivals`.

python -m benchmarks.network_rivals --peers-python VENV/bin/python -o table.md --json table.json

JAGS is found by its command, pyAgrum and pgmpy in the interpreter that is named; who is absent is
left out and said to be. Sides take turns; a figure is a median over them, a ratio the median of
those within a turn, but of searches that of the fastest turns. What is timed is checked: marginals
against exact inference, scores against another count, posteriors against each other. It takes about
seven minutes.

Doubts go to the peers: reading data, compiling a model and burning in are not counted against them,
while ours are whole calls of public functions.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from benchmarks.network_race import gibbs, learning, rows
from benchmarks.network_race.common import Found, Options
from benchmarks.network_race.peers import Peers

PARTS: dict[str, Callable[[Options], Found]] = {
    "gibbs": gibbs.part,
    "learn": learning.part,
    "rows": rows.part,
    "scan": learning.scan,
}


def _listed(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(word) for word in text.split(",") if word]


def asked_for(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network_rivals")
    add = parser.add_argument
    add("--peers-python", metavar="PATH", help="the interpreter that has pyAgrum and pgmpy")
    add("--jags", default="jags", metavar="COMMAND", help="JAGS")
    add("--parts", type=_listed(str), default=[*PARTS], help=f"of {','.join(PARTS)}")
    add("--turns", type=int, default=3, help="of each side; from 500,000 rows to learn from, 1")
    add("--budgets", type=_listed(float), default=[0.25, 1.0, 4.0], help="seconds of Gibbs")
    add("--rows", type=_listed(int), default=[100_000, 1_000_000], help="rows to learn from")
    add("--pgmpy-rows", type=int, default=10_000, help="rows that pgmpy learns from, too")
    add("--class-rows", type=int, default=1_000_000, help="rows that ask for a posterior")
    add("--scan-rows", type=int, default=10_000_000, help="rows of Parquet to learn from")
    add("--memory-limits", type=_listed(str), default=["1GiB"], help="of learning from Parquet")
    add("--json", type=Path, metavar="FILE", help="all turns")
    add("-o", "--output", type=Path, metavar="FILE", help="the table; default: standard output")
    given = parser.parse_args(words)
    if unknown := {*given.parts} - {*PARTS}:
        parser.error(f"--parts: {', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    return given


def absent(options: Options, python: str | None) -> Iterator[str]:
    """Yield a line for each peer that is left out."""
    if options.jags is None:
        yield "JAGS is left out: there is no such command; name it by --jags"
    for peer in ("pyAgrum", "pgmpy"):
        if python is None:
            yield f"{peer} is left out: name an interpreter that has it by --peers-python"
        elif not options.has(peer):
            yield f"{peer} is left out: {python} does not have it"


def main(words: Sequence[str] | None = None) -> None:
    """Run the parts, and write the table."""
    given, began = asked_for(words), time.perf_counter()
    about: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
    }
    lines, results = [], {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        peers = stack.enter_context(Peers(given.peers_python)) if given.peers_python else None
        jags = shutil.which(given.jags)
        options = Options(
            peers=peers,
            jags=[jags] if jags else None,
            folder=Path(folder),
            turns=given.turns,
            budgets=given.budgets,
            rows=given.rows,
            pgmpy_rows=given.pgmpy_rows,
            class_rows=given.class_rows,
            scan_rows=given.scan_rows,
            memory_limits=given.memory_limits,
        )
        about["peers"] = peers.versions if peers else {}
        about["absent"] = [*absent(options, given.peers_python)]
        print(*about["absent"], sep="\n", end="\n" * bool(about["absent"]))
        for part in given.parts:
            print(part, file=sys.stderr)
            some, results[part] = PARTS[part](options)
            lines += some
    about["minutes"] = (time.perf_counter() - began) / 60
    text = "\n".join([*lines, last_line(about)]) + "\n"
    if given.json:
        given.json.write_text(json.dumps({**about, "results": results}, indent=1) + "\n", "utf-8")
    if given.output:
        given.output.write_text(text, "utf-8")
    else:
        print(text, end="")


def last_line(about: dict[str, Any]) -> str:
    """Return where and when it was measured."""
    host = about["machine"]
    known = {"fastbayes": host["versions"]["fastbayes"], **about["peers"]}
    versions = ", ".join(f"{name} {version}" for name, version in known.items())
    return (
        f"{host['processor']}, {host['cores']} cores, load average {host['load_before']} before, "
        f"{os.getloadavg()[0]:.2f} after, {about['minutes']:.1f} minutes; {versions}; "
        f"{about['date'][:10]}."
    )


if __name__ == "__main__":
    main()
