"""Commands that make and use models: fit, predict, evaluate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

import fastbayes as fb
from fastbayes.cli.options import (
    FORCE,
    JSON,
    LOSS,
    MODEL,
    MODEL_FILE,
    MODELS,
    READING,
    THREADS,
    WEIGHT,
    counted,
    loss_from,
    model_from,
    names,
    statistics_from,
)
from fastbayes.cli.show import MOST, bar, fields, show
from fastbayes.errors import DataError, SchemaError
from fastbayes.files import check_target
from fastbayes.remarks import remark
from fastbayes.sink import format_of


@click.command()
@click.argument("data", required=False)
@click.option("--target", help="Column that holds the class.")
@click.option("--statistics", type=click.Path(), help="Fit what `count` or `merge` wrote instead.")
@click.option("-o", "--output", required=True, type=click.Path(), help="Model file to write (.fb).")
@MODEL
@READING
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
    alpha: float | str,
    class_prior: str | None,
    numeric: str,
    variance: str,
    unseen: str,
    force: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Learn a model from DATA, or from statistics, into a file."""
    if (data is None) == (statistics is None):
        raise click.UsageError("Give either DATA with --target, or --statistics FILE.", ctx)
    check_target(output, force=force)
    if statistics is not None:
        for name in ("target", *reading):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = next(p.opts[0] for p in ctx.command.params if p.name == name)
                raise click.UsageError(f"{option} goes with DATA: the statistics are counted.", ctx)
        stats = statistics_from(statistics)
        reading["missing"] = stats.schema.missing
    elif target is None:
        raise click.UsageError("Missing option '--target': the column that holds the class.", ctx)
    else:
        stats = counted(str(data), target, **reading)
    origin = statistics or data
    if not stats.n_rows:
        why = "every weight is zero" if stats.weighted else "there are no rows"
        raise DataError(f"{origin}: nothing to learn from, {why}")
    if not stats.schema.names:
        raise DataError(f"{origin}: nothing to learn from, there is no column beside the target")
    fitted = getattr(fb, MODELS[model])(
        alpha=alpha,
        class_prior=class_prior,
        numeric=numeric,
        variance=variance,
        unseen=unseen,
        missing=reading["missing"],
        categorical=reading["categorical"],
    ).fit_statistics(stats)
    remark(stats)
    fitted.save(output, force=force)
    summary = {
        "model": model,
        "rows": stats.n_rows,
        "rows_without_class": stats.dropped_rows,
        "features": len(stats.schema.names),
        "classes": fitted.classes_,
        "parameters": fitted.n_parameters_,
        "alpha": fitted.alpha_,
        "variance_floored": fitted.variance_floored_,
        "constant": fitted.constant_,
        "output": output,
    }
    show(summary, as_json, fields(summary))


def _predictions(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        format_of(value)
    except SchemaError as error:
        raise click.BadParameter(str(error)) from error
    return value


@click.command()
@MODEL_FILE
@click.argument("data")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    callback=_predictions,
    help="File to write: .parquet, .arrow or .csv.",
)
@click.option("--proba", is_flag=True, help="Write the probability of each class.")
@click.option("--explain", is_flag=True, help="Write which column speaks most for the prediction.")
@LOSS
@click.option("--reject", type=float, help="Cost of not deciding: such rows stay empty.")
@click.option(
    "--keys",
    callback=names,
    metavar="A,B,...",
    help="Columns of DATA to copy; default: those the model does not know.",
)
@THREADS
@FORCE
@JSON
def predict(
    model: str, data: str, output: str, loss: str | None, as_json: bool, **options: Any
) -> None:
    """Apply MODEL to DATA, writing one row per row."""
    check_target(output, force=options["force"])
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
    yield figures
    if len(result.classes) <= MOST:
        yield blank[1:] + confusion
    else:
        yield f"confusion and calibration of {len(result.classes)} classes: see --json"


COMMANDS = (fit, predict, evaluate)
