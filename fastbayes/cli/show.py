"""How results are printed, and the progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

import fastbayes as fb
from fastbayes.data.source import open_source


def show(result: Any, as_json: bool, lines: Callable[[], Iterator[str]]) -> None:
    if as_json:
        click.echo(json.dumps(result, indent=2, default=_jsonable))
        return
    for line in lines():
        click.echo(line)


def _jsonable(value: Any) -> Any:
    for convert in ("tolist", "item"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    return str(value)


@contextmanager
def bar(what: str, data: str | int) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar over the rows of DATA, or so many rows, on a terminal; else nothing."""
    quiet = (click.get_current_context().obj or {}).get("quiet")
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    rows = data if isinstance(data, int) else open_source(data).n_rows
    with tqdm(desc=what, total=rows, unit=" rows", unit_scale=True, file=sys.stderr) as shown:
        yield shown.update


def fields(summary: dict[str, Any]) -> Iterator[str]:
    width = max(len(key) for key in summary)
    for key, value in summary.items():
        if hasattr(value, "tolist"):
            value = ", ".join(map(str, value.tolist()[:20])) + (" …" if len(value) > 20 else "")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"
        yield f"{key.replace('_', ' '):<{width}}  {value}"


def summary_of(stats: fb.Statistics) -> dict[str, Any]:
    schema = stats.schema
    return {
        "target": schema.target,
        "rows": stats.n_rows,
        "dropped_rows": stats.dropped_rows,
        "classes": {
            str(label): n
            for label, n in zip(
                schema.classes.to_pylist(), stats.values.class_counts.tolist(), strict=True
            )
        },
        "categorical": {f.name: f.size for f in schema.categorical},
        "numeric": [f.name for f in schema.numeric],
        "weighted": stats.weighted,
        "missing": schema.missing,
        "bytes": stats.nbytes,
        "source": list(stats.provenance),
    }


def statistics_lines(summary: dict[str, Any]) -> Iterator[str]:
    yield f"target    {summary['target']}: " + ", ".join(
        f"{label} {n:,}" for label, n in list(summary["classes"].items())[:20]
    )
    dropped = f", {summary['dropped_rows']:,} without a class" if summary["dropped_rows"] else ""
    unit = "total weight" if summary["weighted"] else "rows"
    yield f"{unit:<9} {summary['rows']:,}{dropped}"
    for name, size in summary["categorical"].items():
        yield f"  {name}: {size:,} values"
    for name in summary["numeric"]:
        yield f"  {name}: numeric"
    yield f"bytes     {summary['bytes']:,}"


def describe(stats: fb.Statistics, output: str, as_json: bool) -> None:
    summary = {**summary_of(stats), "output": output}
    show(summary, as_json, lambda: statistics_lines(summary))
