"""The command that judges every model on the same rows: compare."""

from __future__ import annotations

from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.options import DISCRETIZE, JSON, READING, ModelOption
from fastbayes.cli.show import bar, show
from fastbayes.cli.values import names, of_columns


@click.command()
@click.argument("data")
@click.option("--target", required=True, help="Column that holds the class.")
@click.option(
    "--models",
    cls=ModelOption,
    callback=names,
    metavar="A,B,...",
    help="Models: MODELS; default: all that the columns allow.",
)
@click.option(
    "--folds",
    metavar="K|COLUMN",
    help="Judge by K folds of the rows, or one for each value of a column; default: leave-one-out.",
)
@click.option("--seed", type=int, help="Seed of the order in which K folds take rows; default: 0.")
@DISCRETIZE
@READING
@JSON
def compare(
    data: str,
    target: str,
    models: list[str] | None,
    folds: str | None,
    seed: int | None,
    discretize: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Judge every model on DATA, each row by what was learned without it.

    One scan counts for all models, one more scores them; numeric columns take one for cut points,
    kdb, a2de and the joint models one each for what else they count.
    """
    if folds is not None:
        options |= {"validation": "k_fold", "folds": int(folds) if folds.isdecimal() else folds}
    if seed is not None:
        if not isinstance(options.get("folds"), int):
            raise click.UsageError("--seed goes with --folds K: other folds are as they are.")
        options["seed"] = seed
    if discretize is not None:
        options["discretize"] = of_columns(discretize, options["columns"])
    with bar("comparing", data) as progress:
        result = fb.compare(data, target, models=models, progress=progress, **options)
    show(result.to_dict(), as_json, str(result).splitlines())


COMMANDS = (compare,)
