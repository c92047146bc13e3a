"""Write measured results into a text between markers: `python -m benchmarks.table JSON README`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"


def render(results: dict[str, Any]) -> str:
    """Return the tables as Markdown, with the machine, the versions and the date."""
    cases = [line for line in results["lines"] if "claims" in line]
    processes = [figure for line in results["lines"] for figure in line.get("figures", ())]
    return "\n".join(
        [
            "| | one call | ns per cell | compared with the others |",
            "|---|--:|--:|---|",
            *map(_case, cases),
            "",
            "| in a process of its own | | wall |",
            "|---|--:|--:|",
            *map(_figure, processes),
            "",
            *_about(results),
        ]
    )


def _about(results: dict[str, Any]) -> Iterator[str]:
    machine = results["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    yield (
        "One call: the median of calls in turn with the others, in one process, on all cores "
        "unless said, and in brackets the first call of the process, with machine code on disk. "
        "Ratios: medians over the turns, per cell (a column of a row), and in brackets what is "
        "claimed. What the others need to prepare their data is not counted."
    )
    yield (
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['platform']}, "
        f"Python {machine['python']}, {versions}. {results['date'][:10]}, "
        f"load average {machine['load_before']} before"
        + ("." if results["size"] == "full" else f"; **{results['size']} run: provisional**.")
    )


def _case(line: dict[str, Any]) -> str:
    sides = line["sides"]
    ours = next(iter(sides.values()))
    called = f"{_seconds(ours['wall'])} ({_seconds(ours['cold'])})"
    per_cell, compared = _per_cell(ours), []
    for claim in line["claims"]:
        other = claim["against"]
        if other is None:
            per_cell += _claimed(claim["value"], claim["most"], None)
        elif "slower" in claim:
            said = _claimed(claim["slower"], claim["most"], None)
            compared.append(f"{_number(claim['slower'])} × the time of {other}{said}")
        else:
            said = _claimed(claim["faster"], None, claim["least"])
            compared.append(f"{_number(claim['faster'])} × as fast as {other}{said}")
    return row([line["title"], called, per_cell, "<br>".join(compared)])


def _figure(figure: dict[str, Any]) -> str:
    rate = figure["more"].get("rows_per_second")
    wall = _seconds(figure["more"]["wall"]) + (f", {rate / 1e6:.1f} M rows/s" if rate else "")
    value = f"{figure['value']:.2f} {figure['unit']}"
    value += _claimed(figure["value"], figure["most"], figure["least"])
    return row([figure["title"], value, wall])


def _claimed(value: float, most: float | None, least: float | None) -> str:
    """Say what is claimed of a value, and whether it is missed."""
    if most is None and least is None:
        return ""
    bound, met = (
        (f"≤ {most:g}", value <= most) if most is not None else (f"≥ {least:g}", value >= least)
    )
    return f" ({bound})" if met else f" ({bound} **missed**)"


def _per_cell(side: dict[str, float]) -> str:
    return _number(side["wall"] / side["units"] * 1e9)


def _number(x: float) -> str:
    digits = 0 if x >= 99.5 else 1 if x >= 9.95 else 2 if x >= 0.0995 else 3
    return f"{x:.{digits}f}"


def _seconds(x: float) -> str:
    return f"{x:.0f} s" if x >= 9.95 else f"{x:.2f} s" if x >= 0.9995 else f"{_number(x * 1e3)} ms"


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def written(text: str, table: str, marker: str = "benchmarks") -> str:
    """Return the text with the table between its markers.

    Raises ValueError where the markers are not there, once each and in order.
    """
    first, last = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, start, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not (start and end) or first in after or last in after or last in before:
        raise ValueError(f"the text needs one {first} and, after it, one {last}")
    return f"{before}{first}\n{table}\n{last}{after}"


def main(results: str, target: str) -> None:
    path = Path(target)
    table = render(json.loads(Path(results).read_text("utf-8")))
    path.write_text(written(path.read_text("utf-8"), table), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: python -m benchmarks.table results.json README.md, not {sys.argv[1:]}")
    main(*sys.argv[1:])
