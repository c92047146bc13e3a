"""Commands that judge models on the same rows: compare, learning-curve."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.options import DISCRETIZE, FORCE, JSON, READING, ModelOption, defaulted
from fastbayes.cli.show import bar, show
from fastbayes.cli.values import names, of_columns
from fastbayes.evaluation.curves.curve_table import METRICS
from fastbayes.evaluation.plots import check_picture, figure


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


def sizes_of(_: Any, __: Any, value: str | None) -> list[float] | None:
    """Return numbers of rows, and shares up to 1.0, between commas."""
    if value is None:
        return None
    try:
        return [
            float(text) if "." in text or "e" in text else int(text) for text in value.split(",")
        ]
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r}: write numbers of rows, or shares such as 0.5"
        ) from error


def rows_or_share(_: Any, __: Any, value: str | None) -> float | None:
    """Return a number of rows, or a share."""
    found = sizes_of(_, __, value)
    if found is not None and len(found) != 1:
        raise click.BadParameter(f"{value!r}: write one number of rows, or a share such as 0.2")
    return None if found is None else found[0]


@click.command("learning-curve")
@click.argument("data")
@click.option("--target", required=True, help="Column that holds the class.")
@defaulted(
    "--models",
    cls=ModelOption,
    callback=names,
    default="naive-bayes,logistic",
    metavar="A,B,...",
    help="Models: MODELS.",
)
@click.option(
    "--sizes",
    callback=sizes_of,
    metavar="N,N,...",
    help="Rows to learn from, or shares up to 1.0 of those that are not tested on; default: eight, "
    "from 10 on.",
)
@defaulted("--repeats", type=click.IntRange(1), default=10, help="How often rows are drawn anew.")
@defaulted("--seed", type=int, default=0, help="Seed of the drawing.")
@click.option(
    "--test",
    callback=rows_or_share,
    metavar="N|SHARE",
    help="Rows to test on; default: a fifth, 100,000 at most.",
)
@defaulted(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    help="Of the intervals.",
)
@defaulted(
    "--metric",
    type=click.Choice([*METRICS]),
    default="log_loss",
    help="What is drawn, and where models are said to overtake each other.",
)
@click.option("--plot", type=click.Path(), help="File to draw: .png, .svg or .pdf.")
@DISCRETIZE
@READING
@FORCE
@JSON
def learning_curve(
    data: str,
    target: str,
    models: list[str],
    discretize: Any,
    metric: str,
    plot: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit models to more and more rows of DATA, and test each on rows that none learned from.

    Each size holds the smaller ones; intervals are those of the mean over the repeats.
    """
    if plot is not None:
        check_picture(plot, figure("--json")[0], force=force)
    if discretize is not None:
        options["discretize"] = of_columns(discretize, options["columns"])
    with bar("learning", data) as progress:
        curve = fb.learning_curve(models, data, target, progress=progress, **options)
    told = curve.to_dict()
    crossings, lines = [], [*str(curve).splitlines(), ""]
    for pair in combinations(curve.models, 2):
        found = [fb.crossover(curve, *names, metric) for names in (pair, pair[::-1])]
        some = [one for one in found if one.size is not None]
        crossings += some
        lines += map(str, some or found[:1])
    if plot is not None:
        curve.plot(plot, metric=metric, force=force)
        told["plot"] = plot
    told["crossovers"] = [one.to_dict() for one in crossings]
    show(told, as_json, lines if lines[-1] else lines[:-1])


COMMANDS = (compare, learning_curve)
