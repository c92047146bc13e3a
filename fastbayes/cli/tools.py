"""Commands that read no data: generate, warmup, doctor."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.help import BriefCommand
from fastbayes.cli.options import FORCE, JSON, Range, defaulted, output
from fastbayes.cli.progress import bar
from fastbayes.cli.show import fields, show, size, table
from fastbayes.core.suggestions import did_you_mean
from fastbayes.evaluation.environment import Check
from fastbayes.evaluation.environment import doctor as examine


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes generate --list",
        "fastbayes generate --preset flights --rows 10000 --files 2 -o flights",
        "fastbayes generate --preset survey --rows 500 --format csv --seed 7 -o survey",
    ],
)
@click.option("--preset", help="What the table is like: one of --list.")
@click.option("--rows", type=click.IntRange(0), help="Number of rows.")
@output("Directory to write.", required=False)
@click.option("--list", "listing", is_flag=True, help="List the presets.")
@defaulted("--seed", type=click.IntRange(0), default=0)
@click.option("--missing", type=Range(0, 1), help="Share of missing values; default: the preset's.")
@click.option("--files", type=click.IntRange(1), help="Number of files.")
@click.option("--row-group-rows", type=click.IntRange(1), help="Rows of a row group.")
@defaulted("--format", type=click.Choice(["parquet", "ipc", "csv"]), default="parquet")
@FORCE
@JSON
@click.pass_context
def generate(
    ctx: click.Context,
    /,
    preset: str | None,
    rows: int | None,
    output: str | None,
    listing: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make a realistic table of any size.

    The same seed makes the same rows.
    """
    from fastbayes.generate import generate as make
    from fastbayes.generate import presets

    if listing:
        show(presets(), as_json, table(list(presets().items())))
        return
    for name, value in (("--preset", preset), ("--rows", rows), ("--output", output)):
        if value is None:
            raise click.UsageError(f"Missing option '{name}'.", ctx)
    if preset not in presets():
        hint = did_you_mean(preset, presets()) or "; see --list"
        raise click.UsageError(f"there is no preset {preset!r}{hint}", ctx)
    given = {name: value for name, value in options.items() if value is not None}
    with bar("generating", int(rows or 0)) as progress:
        done = make(str(preset), int(rows or 0), str(output), progress=progress, **given)
    summary = asdict(done)
    lines = fields({**summary, "path": str(done.path), "bytes": None, "size": size(done.bytes)})
    show(summary, as_json, lines)


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes warmup",
    ],
)
@JSON
def warmup(as_json: bool) -> None:
    """Compile every kernel now, so that the first job does not wait."""
    # Looking for garbage each 700 objects takes 3 % of compiling; the process ends after it.
    gc.set_threshold(20_000)
    seconds = fb.warmup()
    lines = fields({name: f"{value:.2f} s" for name, value in seconds.items()})
    show(seconds, as_json, lines)


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes doctor",
    ],
)
@JSON
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool) -> None:
    """Say what this installation is and what is wrong with it."""
    versions, checks = fb.show_versions(), examine()
    result = {"versions": versions, "checks": [check._asdict() for check in checks]}
    show(result, as_json, _verdict(versions, checks))
    if not all(check.ok for check in checks):
        ctx.exit(1)


def _verdict(versions: dict[str, Any], checks: list[Check]) -> Iterator[str]:
    yield from fields(versions)
    yield ""
    for check in checks:
        yield f"{'ok' if check.ok else 'WRONG':<6} {check.name}: {check.found}"
    wrong = [check.name for check in checks if not check.ok]
    yield ""
    yield f"Wrong: {', '.join(wrong)}." if wrong else "All is well."


COMMANDS = (generate, warmup, doctor)
