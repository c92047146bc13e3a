"""Commands that make, use and judge models: fit, predict, evaluate, compare, learning-curve."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.options import (
    DISCRETIZE,
    FORCE,
    JSON,
    LOSS,
    MODEL_FILE,
    READ,
    READING,
    THREADS,
    WEIGHT,
    ModelCommand,
    ModelOption,
    defaulted,
    given,
    listing,
    loss_from,
    model_from,
    names,
    of_columns,
    output,
    reader,
    reading,
    statistics_from,
    unfitted,
)
from fastbayes.cli.show import MOST, bar, blended, calibration, fields, learned, show
from fastbayes.core.errors import SchemaError, refuse
from fastbayes.core.files import check_target
from fastbayes.evaluation.calibrate.posterior_maps import MAPS
from fastbayes.evaluation.curves.curve_table import METRICS
from fastbayes.evaluation.curves.fit_source import fit_source
from fastbayes.evaluation.plots import check_picture, figure
from fastbayes.models.estimator.base import check_learnable
from fastbayes.scan.data_warnings import remark
from fastbayes.scan.sink import check_output, format_of

# Options that say how DATA are read.
OF_DATA = ("target", "discretize", "columns", "categorical", "missing", "calibrate")

# What statistics may lack, and the way to it.
COUNT_AGAIN = {
    "scatter": "count again with --scatter",
    "triples": "count again with --triples",
    "cells": "count again with --cells",
    "cell_scatter": "count again with --cell-scatter",
    "pairs": "count again with --pairs",
    "families": "fit it from DATA, which it reads twice",
    "sketches": "count again with --numeric",
}


@click.command(cls=ModelCommand)
@click.argument("data", required=False)
@click.option("--target", help="Column that holds the class.")
@click.option("--statistics", type=click.Path(), help="Fit what `count` or `merge` wrote instead.")
@output("Model file to write (.fb).")
@click.option(
    "--calibrate",
    type=click.Choice(list(MAPS)),
    help="Map the posteriors so that they agree with frequencies, by those of each row without it "
    "(or of folds): by one temperature, or by rising curves; one more scan.",
)
@reading(impute_mean="the mean of its class (gaussian-bayes: impute_mean)")
@FORCE
@JSON
@click.pass_context
def fit(
    ctx: click.Context,
    /,
    data: str | None,
    target: str | None,
    statistics: str | None,
    output: str,
    model: str,
    calibrate: str | None,
    columns: list[str] | None,
    categorical: list[str] | None,
    missing: str,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn a model from DATA, or from statistics, into a file.

    An option that only some models have says which.
    """
    if (data is None) == (statistics is None):
        raise click.UsageError("Give either DATA with --target, or --statistics FILE.", ctx)
    check_target(output, force=force)
    reading = {name: options.pop(name) for name in READ}
    options["discretize"] = of_columns(options["discretize"], columns)
    if statistics is not None:
        found = given(ctx, {**ctx.params})
        for name in (*OF_DATA, *READ):
            if name in found:
                raise click.UsageError(
                    f"{found[name][0]} goes with DATA: the statistics are counted.", ctx
                )
        stats = statistics_from(statistics)
        check_learnable(stats, statistics)
        fitted = unfitted(ctx, model, options, missing=stats.schema.missing)
        if not hasattr(fitted, "fit_statistics"):
            raise click.UsageError(
                f"--model {model} learns from rows, which no statistics replace: give DATA.", ctx
            )
        for needed, remedy in COUNT_AGAIN.items():
            if needed in fitted._statistics and not _holds(stats, needed, fitted):
                raise SchemaError(f"{statistics}: holds no {needed}, which {model} needs; {remedy}")
        fitted.fit_statistics(stats)
    elif target is None:
        raise click.UsageError("Missing option '--target': the column that holds the class.", ctx)
    else:
        limits = {name: reading.pop(name) for name in ("threads", "memory_limit")}
        fitted = unfitted(ctx, model, options, missing=missing, categorical=categorical, **limits)
        if calibrate is not None:
            if isinstance(fitted, fb.Blend):
                raise click.UsageError(
                    "--calibrate does not go with --model blend, which is calibrated.", ctx
                )
            fitted = fb.Calibrated(fitted, method=calibrate)
        with bar("counting", str(data)) as progress:
            fit_source(fitted, data, target, columns=columns, progress=progress, **reading)
        # What held for this job is no property of the model.
        for made in (fitted,) if calibrate is None else (fitted.model, fitted.model_):
            made.set_params(**dict.fromkeys(limits))
        stats = fitted.statistics_
    inner = fitted if calibrate is None else fitted.model_
    if not isinstance(inner, fb.Blend):  # which says it while it learns
        remark(stats, densities=inner._has_densities)
    fitted.save(output, force=force)
    summary = {
        "model": model,
        "rows": stats.n_rows,
        "rows_without_class": stats.dropped_rows,
        "features": len(stats.schema.names),
        "classes": fitted.classes_,
        "parameters": fitted.n_parameters_,
        "alpha": getattr(inner, "alpha_", getattr(inner, "alpha", None)),
        **learned(inner),
        **calibration(fitted),
        **blended(fitted),
        "output": output,
    }
    above = summary.get("parents", {}).items()
    lines = [f"{name} given {' and '.join(parents)}" for name, parents in above if parents]
    show(summary, as_json, fields({**summary, "parents": lines}))


def _holds(stats: fb.Statistics, needed: str, model: Any) -> bool:
    """Return whether a model finds what it needs; to KDB with one parent pairs are families."""
    one = isinstance(model, fb.KDB) and model.k <= 1
    return needed in stats.parts or (one and "pairs" in stats.parts)


def file_or_directory(path: str) -> None:
    """Raise where a name has a suffix that says no format; without one it names a directory."""
    if Path(path).suffix:
        format_of(path)


@click.command()
@MODEL_FILE
@click.argument("data")
@output("File to write: .parquet, .arrow or .csv; or a directory for parts.", file_or_directory)
@click.option(
    "--parts/--no-parts",
    default=None,
    help="Write a directory of files, each by a thread of its own; default: if the name has no "
    "suffix.",
)
@click.option(
    "--proba",
    is_flag=False,
    flag_value="all",
    type=click.Choice(["all", "predicted"]),
    help="Write the probability of each class (all, also without a word), or of the predicted one.",
)
@defaulted(
    "--precision",
    type=click.Choice(["exact", "fast"]),
    default="exact",
    help="Write probabilities as 64-bit numbers, or (fast) 32-bit ones.",
)
@click.option(
    "--csv-safe",
    is_flag=True,
    help="Write text of CSV that begins like a formula after an apostrophe, for spreadsheets.",
)
@click.option("--explain", is_flag=True, help="Write which column speaks most for the prediction.")
@LOSS
@click.option("--reject", type=float, help="Cost of not deciding: such rows stay empty.")
@listing("--keys", help="Columns of DATA to copy; default: those the model does not know.")
@THREADS
@FORCE
@JSON
def predict(
    model: str,
    data: str,
    output: str,
    proba: str | None,
    loss: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Apply MODEL to DATA, writing one row per row."""
    check_output(output, parts=options["parts"], force=options["force"])
    options["proba"] = proba == "all" or proba or False
    fitted = model_from(model)
    matrix = loss_from(loss, fitted)
    with bar("predicting", data) as progress:
        done = fb.predict_to(fitted, data, output, loss=matrix, progress=progress, **options)
    summary = {
        "rows": done.rows,
        "columns": done.columns,
        "unseen_values": done.unseen,
        "rows_from_prior": done.prior_rows,
        "output": output,
    }
    show(summary, as_json, fields(summary))


@click.command()
@MODEL_FILE
@click.argument("data")
@click.option("--target", help="Column that holds the class; default: the model's own.")
@WEIGHT
@LOSS
@THREADS
@JSON
def evaluate(
    model: str, data: str, target: str | None, loss: str | None, as_json: bool, **options: Any
) -> None:
    """Judge MODEL on DATA whose classes are known."""
    fitted = model_from(model)
    matrix = loss_from(loss, fitted)
    with bar("scoring", data) as progress:
        result = fb.evaluate(fitted, data, target, loss=matrix, progress=progress, **options)
    show(result.to_dict(), as_json, _figures(result))


def _figures(result: Any) -> Iterator[str]:
    figures, blank, confusion = str(result).partition("\n\n")
    yield from figures.split("\n")
    if len(result.classes) <= MOST:
        yield from (blank[1:] + confusion).split("\n")
    else:
        yield f"confusion and calibration of {len(result.classes)} classes: see --json"


@click.command()
@click.argument("data")
@click.option("--target", required=True, help="Column that holds the class.")
@click.option(
    "--models",
    cls=ModelOption,
    callback=names,
    metavar="A,B,...",
    help="Models: {MODELS}; default: all that the columns allow.",
)
@click.option(
    "--folds",
    metavar="K|COLUMN",
    help="Judge by K folds of the rows, or one for each value of a column; default: leave-one-out.",
)
@click.option("--seed", type=int, help="Seed of the order in which K folds take rows; default: 0.")
@click.option(
    "--race/--no-race",
    default=True,
    help="Drop models that a sample of the rows shows to lose; or score all on all rows.",
)
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


@reader
def sizes_of(value: str) -> list[float]:
    """Return numbers of rows, and shares up to 1.0, between commas."""
    try:
        return [
            float(text) if "." in text or "e" in text else int(text) for text in value.split(",")
        ]
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r}: write numbers of rows, or shares such as 0.5"
        ) from error


@reader
def rows_or_share(value: str) -> float:
    """Return a number of rows, or a share."""
    found: list[float] = sizes_of(None, None, value)
    refuse(
        len(found) != 1,
        f"{value!r}: write one number of rows, or a share such as 0.2",
        click.BadParameter,
    )
    return found[0]


@click.command("learning-curve")
@click.argument("data")
@click.option("--target", required=True, help="Column that holds the class.")
@defaulted(
    "--models",
    cls=ModelOption,
    callback=names,
    default="naive-bayes,logistic",
    metavar="A,B,...",
    help="Models: {MODELS}.",
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
    shown = curve.to_dict()
    crossings, lines = [], [*str(curve).splitlines(), ""]
    for pair in combinations(curve.models, 2):
        found = [fb.crossover(curve, *names, metric) for names in (pair, pair[::-1])]
        some = [one for one in found if one.size is not None]
        crossings += some
        lines += map(str, some or found[:1])
    if plot is not None:
        curve.plot(plot, metric=metric, force=force)
        shown["plot"] = plot
    shown["crossovers"] = [one.to_dict() for one in crossings]
    show(shown, as_json, lines if lines[-1] else lines[:-1])


COMMANDS = (fit, predict, evaluate, compare, learning_curve)
