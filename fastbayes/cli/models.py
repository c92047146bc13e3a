"""Commands that make and use models: fit, predict, evaluate."""

from __future__ import annotations

from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.options import (
    FORCE,
    JSON,
    MODEL,
    MODELS,
    READING,
    THREADS,
    alpha_of,
    counted,
    loss_of,
    names,
)
from fastbayes.cli.show import bar, fields, show
from fastbayes.files import check_target


@click.command()
@click.argument("data", required=False)
@click.option("--target", help="Column that holds the class.")
@click.option("--statistics", type=click.Path(), help="Fit counts made by `count` or `merge`.")
@click.option("-o", "--output", required=True, type=click.Path(), help="Model file to write (.fb).")
@MODEL
@READING
@FORCE
@JSON
def fit(
    data: str | None,
    target: str | None,
    statistics: str | None,
    output: str,
    model: str,
    alpha: str,
    class_prior: str | None,
    variance: str,
    unseen: str,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn a model from DATA, or from counts, into a file."""
    if (data is None) == (statistics is None):
        raise click.UsageError("give either DATA with --target, or --statistics FILE")
    check_target(output, force=force)
    if statistics is not None:
        stats = fb.Statistics.load(statistics)
        options["missing"] = stats.schema.missing
    elif target is None:
        raise click.UsageError("--target is needed: the column that holds the class")
    else:
        stats = counted(str(data), target, options)
    fitted = getattr(fb, MODELS[model])(
        alpha=alpha_of(alpha),
        class_prior=class_prior,
        variance=variance,
        unseen=unseen,
        missing=options["missing"],
    ).fit_statistics(stats)
    fitted.save(output, force=force)
    summary = {
        "model": model,
        "rows": stats.n_rows,
        "dropped_rows": stats.dropped_rows,
        "features": len(stats.schema.names),
        "classes": fitted.classes_,
        "parameters": fitted.n_parameters_,
        "alpha": fitted.alpha_,
        "output": output,
    }
    show(summary, as_json, lambda: fields(summary))


@click.command()
@click.argument("model", type=click.Path())
@click.argument("data")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    help="File to write: .parquet, .arrow or .csv.",
)
@click.option("--proba", is_flag=True, help="Write the probability of each class.")
@click.option("--explain", is_flag=True, help="Write which column speaks most for the prediction.")
@click.option("--loss", type=click.Path(), help="JSON {decision: {truth: cost}}: decide by it.")
@click.option("--reject", type=float, help="Cost of not deciding.")
@click.option("--keys", callback=names, help="Columns of DATA to copy; default: those unknown.")
@THREADS
@FORCE
@JSON
def predict(
    model: str, data: str, output: str, loss: str | None, as_json: bool, **options: Any
) -> None:
    """Apply MODEL to DATA, writing one row per row."""
    check_target(output, force=options["force"])
    fitted = fb.load(model)
    with bar("predicting", data) as progress:
        done = fb.predict_to(fitted, data, output, loss=loss_of(loss), progress=progress, **options)
    summary = {
        "rows": done.rows,
        "unseen_values": done.unseen,
        "rows_from_prior": done.prior_rows,
        "output": output,
    }
    show(summary, as_json, lambda: fields(summary))


@click.command()
@click.argument("model", type=click.Path())
@click.argument("data")
@click.option("--target", help="Column that holds the class; default: the model's own.")
@click.option("--weight", help="Column that holds the weight of each row.")
@click.option("--loss", type=click.Path(), help="JSON {decision: {truth: cost}}.")
@THREADS
@JSON
def evaluate(
    model: str,
    data: str,
    target: str | None,
    weight: str | None,
    loss: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Judge MODEL on DATA whose classes are known."""
    fitted = fb.load(model)
    with bar("scoring", data) as progress:
        result = fb.evaluate(
            fitted,
            data,
            target,
            sample_weight=weight,
            loss=loss_of(loss),
            threads=threads,
            progress=progress,
        )
    show(result.to_dict(), as_json, lambda: iter([str(result)]))


COMMANDS = (fit, predict, evaluate)
