"""Commands about counts and what is in a file: count, merge, inspect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.options import FORCE, JSON, READING, counted
from fastbayes.cli.show import describe, show, statistics_lines, summary_of
from fastbayes.data.source import open_source
from fastbayes.domains import default_kind
from fastbayes.files import check_target


@click.command()
@click.argument("data")
@click.option("--target", required=True, help="Column that holds the class.")
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write (.fbs).")
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False),
    help="Directory that keeps the work done, so that a stopped count goes on.",
)
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="Stop at a file part that cannot be read, or leave it out and say so.",
)
@READING
@FORCE
@JSON
def count(
    data: str,
    target: str,
    output: str,
    checkpoint: str | None,
    on_error: str,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Count DATA once into a file of statistics."""
    check_target(output, force=force)
    stats = counted(data, target, options, checkpoint=checkpoint, on_error=on_error)
    stats.save(output, force=force)
    describe(stats, output, as_json)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write (.fbs).")
@FORCE
@JSON
def merge(files: tuple[str, ...], output: str, force: bool, as_json: bool) -> None:
    """Add the statistics of several FILES into one."""
    check_target(output, force=force)
    total = fb.Statistics.load(files[0])
    for path in files[1:]:
        total = total + fb.Statistics.load(path)
    total.save(output, force=force)
    describe(total, output, as_json)


@click.command()
@click.argument("path")
@click.option("--target", help="For DATA: column that holds the class, to plan the memory.")
@JSON
def inspect(path: str, target: str | None, as_json: bool) -> None:
    """Say what is in a model, in statistics, or in DATA."""
    if path.endswith((".fb", ".fbs")):
        held = fb.load(path)
        stats = getattr(held, "statistics_", held)
        summary = summary_of(stats)
        if stats is not held:
            summary |= {"model": repr(held), "parameters": held.n_parameters_}
    else:
        summary = _data_summary(path, target)
        show(summary, as_json, lambda: _data_lines(summary))
        return

    def lines() -> Iterator[str]:
        if "model" in summary:
            yield f"model     {summary['model']}, {summary['parameters']:,} parameters"
        yield from statistics_lines(summary)

    show(summary, as_json, lines)


def _data_summary(path: str, target: str | None) -> dict[str, Any]:
    source = open_source(path)
    plan = None if target is None else fb.plan(path, target)
    return {
        "source": source.description,
        "rows": source.n_rows,
        "columns": {
            f.name: {"type": str(f.type), "kind": default_kind(f.name, f.type)}
            for f in source.schema
        },
        "plan": None
        if plan is None
        else {
            "bytes": plan.total,
            "columns": plan.columns,
            "classes": plan.n_classes,
            "exact": plan.exact,
        },
    }


def _data_lines(summary: dict[str, Any]) -> Iterator[str]:
    rows = "unknown" if summary["rows"] is None else f"{summary['rows']:,}"
    yield f"source    {summary['source']}"
    yield f"rows      {rows}"
    plan = summary["plan"]
    for name, column in summary["columns"].items():
        needs = f", {plan['columns'][name]:,} bytes" if plan and name in plan["columns"] else ""
        yield f"  {name}: {column['kind']} ({column['type']}){needs}"
    if plan:
        least = "" if plan["exact"] else " at least: domains may grow"
        yield f"plan      {plan['bytes']:,} bytes{least}"


COMMANDS = (count, merge, inspect)
