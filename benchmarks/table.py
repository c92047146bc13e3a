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
    return "\n".join(
        [
            *_about(results),
            "",
            "| | warm | cold | ns per unit | against | ns per unit | ratio | claim |",
            "|---|--:|--:|--:|---|--:|--:|---|",
            *(row for line in results["lines"] if "claims" in line for row in _case(line)),
            "",
            "| | | wall | claim |",
            "|---|--:|--:|---|",
            *(row for line in results["lines"] if "figures" in line for row in _figures(line)),
        ]
    )


def _about(results: dict[str, Any]) -> Iterator[str]:
    machine = results["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    yield (
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; {machine['platform']}; "
        f"Python {machine['python']}, {versions}; {results['date'][:10]}, "
        f"load average before {machine['load_before']}"
        + ("." if results["size"] == "full" else f"; **{results['size']} run, provisional**.")
    )
    yield (
        "Warm: median of one call, all sides taking turns in one process. Cold: the first call, "
        "machine code on disk. Ratio: median over the turns, per unit (a cell, or a double)."
    )


def _case(line: dict[str, Any]) -> Iterator[str]:
    sides = line["sides"]
    ours = next(iter(sides.values()))
    first = [line["title"], _seconds(ours["wall"]), _seconds(ours["cold"]), _per_unit(ours)]
    for claim in line["claims"]:
        against, other, ratio, met = claim["against"] or "", "", "", None
        if against:
            other = _per_unit(sides[against])
        if "slower" in claim:
            ratio = f"{claim['slower']:.2f} × its time"
            met = None if claim["most"] is None else claim["slower"] <= claim["most"]
        elif "faster" in claim:
            ratio = f"{_number(claim['faster'])} × as fast"
            met = None if claim["least"] is None else claim["faster"] >= claim["least"]
        else:
            met = None if claim["most"] is None else claim["value"] <= claim["most"]
        said = _claimed(claim["most"], claim["least"], "" if against else " ns", met)
        yield _row([*first, against, other, ratio, said])
        first = [""] * 4


def _figures(line: dict[str, Any]) -> Iterator[str]:
    for figure in line["figures"]:
        met = None if figure["most"] is None else figure["value"] <= figure["most"]
        said = _claimed(figure["most"], None, f" {figure['unit']}", met)
        wall, more = figure["more"], ""
        if "rows_per_second" in wall:
            more = f", {wall['rows_per_second'] / 1e6:.1f} M rows/s"
        value = f"{figure['value']:.2f} {figure['unit']}"
        yield _row([figure["title"], value, _seconds(wall["wall"]) + more, said])


def _claimed(most: float | None, least: float | None, unit: str, met: bool | None) -> str:
    if met is None:
        return ""
    bound = f"≤ {most:g}{unit}" if most is not None else f"≥ {least:g}{unit}"
    return f"{bound}, {'met' if met else '**missed**'}"


def _per_unit(side: dict[str, float]) -> str:
    return _number(side["wall"] / side["units"] * 1e9)


def _number(x: float) -> str:
    return (
        f"{x:.0f}"
        if x >= 99.5
        else f"{x:.1f}"
        if x >= 9.95
        else f"{x:.2f}"
        if x >= 0.0995
        else f"{x:.3f}"
    )


def _seconds(x: float) -> str:
    return f"{x:.0f} s" if x >= 9.95 else f"{x:.2f} s" if x >= 0.9995 else f"{_number(x * 1e3)} ms"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def written(text: str, table: str) -> str:
    """Return the text with the table between its markers.

    Raises ValueError where the markers are not there, once each and in order.
    """
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end) or START in after or END in after or END in before:
        raise ValueError(f"the text needs one {START} and, after it, one {END}")
    return f"{before}{START}\n{table}\n{END}{after}"


def main(results: str, target: str) -> None:
    path = Path(target)
    table = render(json.loads(Path(results).read_text("utf-8")))
    path.write_text(written(path.read_text("utf-8"), table), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: python -m benchmarks.table results.json README.md, not {sys.argv[1:]}")
    main(*sys.argv[1:])
