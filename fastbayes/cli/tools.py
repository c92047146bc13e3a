"""Commands beside the data: generate, warmup, doctor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.options import FORCE, JSON
from fastbayes.cli.show import bar, fields, show
from fastbayes.environment import doctor as examine


@click.command()
@click.option("--preset", required=True, help="What the table is like; see --list.")
@click.option("--rows", required=True, type=click.IntRange(0), help="Number of rows.")
@click.option("-o", "--output", required=True, type=click.Path(), help="Directory to write.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--missing", type=float, help="Share of missing values; default: the preset's.")
@click.option("--files", type=click.IntRange(1), help="Number of files.")
@click.option("--row-group-rows", type=click.IntRange(1), help="Rows of a row group.")
@click.option(
    "--format", type=click.Choice(["parquet", "ipc", "csv"]), default="parquet", show_default=True
)
@click.option(
    "--list",
    "_list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, value: _list_presets(ctx) if value else None,
    help="List the presets.",
)
@FORCE
@JSON
def generate(preset: str, rows: int, output: str, as_json: bool, **options: Any) -> None:
    """Make a realistic table of any size; the same seed makes the same rows."""
    from fastbayes.generate import generate as make

    given = {k: v for k, v in options.items() if v is not None}
    with bar("generating", rows) as progress:
        done = make(preset, rows, output, progress=progress, **given)
    summary = asdict(done)
    show(summary, as_json, lambda: fields(summary))


def _list_presets(ctx: click.Context) -> None:
    from fastbayes.generate import presets

    for name, about in presets().items():
        click.echo(f"{name:<10} {about}")
    ctx.exit()


@click.command()
@JSON
def warmup(as_json: bool) -> None:
    """Compile every kernel now, so that the first job does not wait."""
    seconds = fb.warmup()
    show(seconds, as_json, lambda: (f"{k:<10} {v:6.2f} s" for k, v in seconds.items()))


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Say what this installation is and what is wrong with it."""
    checks = examine()
    result = {
        "versions": fb.show_versions(),
        "checks": [{"name": n, "ok": ok, "found": found} for n, ok, found in checks],
    }

    def lines() -> Iterator[str]:
        for name, value in result["versions"].items():  # type: ignore[attr-defined]
            yield f"{name:<20} {value if value is not None else '-'}"
        for name, ok, found in checks:
            yield f"{'ok' if ok else 'WRONG':<6} {name}: {found}"

    show(result, as_json, lines)
    if not all(ok for _, ok, _ in checks):
        click.get_current_context().exit(1)


COMMANDS = (generate, warmup, doctor)
