"""Run the stress test: `scripts/stress --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stress import planted
from stress.runner import CATEGORIES, Run


def main() -> int:
    """Return 1 where a case failed, or where a planted fault was not found."""
    parser = argparse.ArgumentParser(prog="scripts/stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default 0)")
    parser.add_argument("--only", metavar="CATEGORY[,...]", help=", ".join(CATEGORIES))
    parser.add_argument("--case", type=int, metavar="N", help="this case of one category, again")
    parser.add_argument("--cases", type=int, metavar="N", help="so many of each category, at most")
    parser.add_argument("--workers", type=int, default=2, help="processes at once (default 2)")
    parser.add_argument("-o", "--output", type=Path, help="write the table to this file, too")
    parser.add_argument(
        "--planted", nargs="?", const="", metavar="NAME",
        help="plant each known fault, or one, in a copy of the package: all must be found",
    )  # fmt: skip
    given = parser.parse_args()
    if given.planted is not None:
        return planted.find(given.planted, given.workers)
    categories = given.only.split(",") if given.only else list(CATEGORIES)
    for name in categories:
        if name not in CATEGORIES:
            parser.error(f"no category {name!r}; there are {', '.join(CATEGORIES)}")
    if given.case is not None and len(categories) != 1:
        parser.error("--case goes with --only CATEGORY")
    first, count = (0, given.cases) if given.case is None else (given.case, 1)
    run = Run(categories, given.seed, given.minutes * 60, first, count, given.workers)
    run.go()
    table = run.table()
    print(table)
    if given.output is not None:
        given.output.write_text(table, encoding="utf-8")
    for failure in run.failures:
        print(f"\n{failure.command}\n{failure.what}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
