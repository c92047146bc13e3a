"""Commands that make, use and judge models.

They are fit, predict, explain, evaluate, compare and learning-curve.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import click
import pyarrow as pa

import fastbayes as fb
from fastbayes.cli.gates import FAILED, SAME, Baseline, Condition, conditions
from fastbayes.cli.help import COMMON, BriefCommand
from fastbayes.cli.options import (
    DISCRETIZE,
    FILES,
    FORCE,
    JSON,
    LOSS,
    MISSING_COLUMNS,
    MODEL_FILE,
    OF_FILES,
    OF_STDOUT,
    READ,
    READING,
    STDOUT,
    TARGET,
    THREADS,
    WEIGHT,
    ModelCommand,
    ModelOption,
    Range,
    candidates_named,
    check_file,
    defaulted,
    files_of,
    folds,
    given,
    keep_cuts,
    listing,
    loss_from,
    model_from,
    of_columns,
    output,
    reader,
    reading,
    rejected,
    statistics_from,
    unfitted,
)
from fastbayes.cli.progress import bar
from fastbayes.cli.remedies import in_options
from fastbayes.cli.show import MOST, blended, calibration, fields, learned, listed, plain, say, show
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import SchemaError, refuse
from fastbayes.core.files import check_apart
from fastbayes.core.text_tables import cell, lines_of
from fastbayes.data.pipes import FORMATS
from fastbayes.evaluation.calibrate.posterior_maps import MAPS
from fastbayes.evaluation.curves.curve_table import METRICS
from fastbayes.evaluation.curves.fit_source import fit_source
from fastbayes.evaluation.plots import check_picture, figure
from fastbayes.evaluation.validate.comparison import ALL, PRIOR
from fastbayes.models.estimator.base import check_learnable
from fastbayes.models.estimator.inputs import open_features
from fastbayes.scan.data_warnings import remark
from fastbayes.scan.outputs.row_files import SUFFIXES
from fastbayes.scan.outputs.sink import check_output, schema_of

# Options that say how DATA are read.
OF_DATA = (
    *("target", "discretize", "columns", "exclude", "categorical", "dates", "missing"),
    "calibrate",
)

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


@click.command(
    cls=ModelCommand,
    examples=[
        "fastbayes fit penguins.csv --target species --null-values NA -o penguins.fb",
        "fastbayes fit penguins.csv --target sex --null-values NA --model tan -o tan.fb",
        "fastbayes fit penguins.csv --target species --columns island,year -o two.fb",
    ],
)
@click.argument("data", required=False)
@click.option("--target", help="Column that holds the class.", **COMMON)
@click.option(
    "--statistics",
    type=click.Path(),
    help="Fit what `count` or `merge` wrote instead.",
    **COMMON,
)
@output("Model file to write (.fb).")
@click.option(
    "--calibrate",
    type=click.Choice(list(MAPS)),
    help="Map the posteriors so that they agree with frequencies, by those of each row without it "
    "(or of folds): by one temperature, or by rising curves; one more scan, by folds more.",
)
@reading(impute_mean="the mean of its class (gaussian-bayes: impute_mean)")
@FILES
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
    exclude: list[str] | None,
    dates: dict[str, list[str]] | None,
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
    check_file(output, data, statistics, force=force)
    source = files_of(data, options)
    reading = {name: options.pop(name) for name in READ}
    options["discretize"] = of_columns(options["discretize"], columns, exclude)
    if statistics is not None:
        found = given(ctx, {**ctx.params})
        for name in (*OF_DATA, *READ, *OF_FILES):
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
            wanted = {*fitted._statistics} - {*fitted._dispensable}
            if needed in wanted and not _holds(stats, needed, fitted):
                what = needed.replace("_", " ")
                raise SchemaError(f"{statistics}: holds no {what}, which {model} needs; {remedy}")
        fitted.fit_statistics(stats)
    elif target is None:
        raise click.UsageError("Missing option '--target': the column that holds the class.", ctx)
    else:
        limits = {name: reading.pop(name) for name in ("threads", "memory_limit")}
        picks = {"categorical": categorical, "columns": columns, "exclude": exclude, "dates": dates}
        fitted = unfitted(ctx, model, options, missing=missing, **picks, **limits)
        if calibrate is not None:
            if isinstance(fitted, fb.Blend):
                raise click.UsageError(
                    "--calibrate does not go with --model blend, which is calibrated.", ctx
                )
            fitted = fb.Calibrated(fitted, method=calibrate)
        with bar("counting", source) as progress:
            fit_source(fitted, source, target, progress=progress, **reading)
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
        **rejected(source),
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


def applied(model: Any, missing_columns: str | None) -> Any:
    """Return a model that treats columns that are not there as it is said, if it is."""
    own = getattr(model, "model_", model)  # of a calibrated one
    if missing_columns is not None and hasattr(own, "missing_columns"):
        own.missing_columns = missing_columns
    return model


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes predict penguins.fb penguins.csv -o predicted.csv",
        "fastbayes predict penguins.fb penguins.csv --proba --keys sex -o proba.parquet",
        "fastbayes predict penguins.fb penguins.csv --keys sex --partition-by sex -o by",
        "fastbayes predict penguins.fb - --format jsonl -o - < penguins.csv",
    ],
)
@MODEL_FILE
@click.argument("data", nargs=-1, required=True)
@output(
    "File to write: .parquet, .arrow, .csv or .jsonl; or a directory for parts; or - "
    "for standard output.",
    str,
)
@click.option(
    "--format",
    type=click.Choice([*SUFFIXES, "delta"]),
    help="Format of the output; default: what its name says, parquet of parts, csv of -.",
    **COMMON,
)
@click.option(
    "--input-format",
    type=click.Choice(FORMATS),
    help="Format of standard input; default: what it begins with.",
)
@click.option(
    "--parts/--no-parts",
    default=None,
    help="Write a directory of files, each by a thread of its own; default: if the name has no "
    "suffix.",
)
@listing(
    "--partition-by",
    help="Columns that are copied, or prediction, whose values name directories of parts.",
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
@MISSING_COLUMNS
@FILES
@THREADS
@FORCE
@JSON
def predict(
    model: str,
    data: tuple[str, ...],
    output: str,
    format: str | None,
    partition_by: list[str] | None,
    proba: str | None,
    loss: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Apply MODEL to DATA, writing one row per row.

    As a filter it takes - for standard input (an Arrow stream, CSV or JSON lines) and -o - for
    standard output.
    """
    where = {"format": format, "parts": options["parts"], "partition_by": partition_by or ()}
    target: Any = output
    if output == STDOUT:
        if as_json:
            raise click.UsageError("--json prints on stdout, where -o - writes the predictions")
        target, where["format"] = sys.stdout.buffer, format or "csv"
    try:
        check_output(target, **where, force=options["force"])
        if output != STDOUT:
            check_apart(output, filter(None, (model, loss)))
    except SchemaError as error:
        raise click.UsageError(str(error)) from error
    options |= {**where, "proba": proba == "all" or proba or False}
    source = files_of(data[0] if len(data) == 1 else [*data], options)
    fitted = model_from(model)
    matrix = loss_from(loss, fitted)
    with bar("predicting", source) as progress:
        try:
            done = fb.predict_to(fitted, source, target, loss=matrix, progress=progress, **options)
        except OSError as error:
            if target is not output and error.filename is None:
                error.filename = OF_STDOUT
            raise
    if target is not output:
        return
    summary = {
        "rows": done.rows,
        "columns": done.columns,
        "unseen_values": done.unseen,
        "rows_from_prior": done.prior_rows,
        **rejected(source),
        "output": output,
    }
    show(summary, as_json, fields(summary))


@click.command(
    cls=BriefCommand,
    examples=["fastbayes explain penguins.fb penguins.csv --row 3"],
)
@MODEL_FILE
@click.argument("data")
@click.option(
    "--row",
    "wanted",
    type=click.IntRange(0),
    multiple=True,
    help="Row to explain, counted from 0; may be given more than once.  [default: 0]",
)
@click.option("--rows", "first", type=click.IntRange(1), help="Explain the first N rows.")
@FILES
@JSON
def explain(
    model: str,
    data: str,
    wanted: tuple[int, ...],
    first: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Say what each column of rows of DATA adds to the log joint of each class of MODEL.

    In nats, less the mean over the classes; the largest first.
    """
    if wanted and first is not None:
        raise click.UsageError("--row and --rows say both which rows: give one of them.")
    fitted = model_from(model)
    schema_of(fitted, "explain")
    places = sorted({*wanted} or {*range(first or 1)})
    source = open_features(fitted, files_of(data, options))
    rows, read = rows_at(source, places)
    refuse(
        first is None and read <= places[-1],
        f"{source.description}: there is no row {places[-1]}; it has {read:,}, counted from 0",
    )
    explained, proba = fitted.explain(rows), fitted.predict_proba(rows)
    labels = [str(label) for label in fitted.classes_.tolist()]
    result: list[dict[str, Any]] = []
    lines: list[str] = []
    for at, place in enumerate(places[: rows.num_rows]):
        posterior = dict(zip(labels, proba[at].tolist(), strict=True))
        found = explained.table(at)
        result.append({"row": place, "proba": posterior, "lines": found.to_pylist()})
        head = listed([f"{label} {cell(p)}" for label, p in posterior.items()])
        lines += [f"row {place}: {head}", *lines_of(found), ""]
    show(result, as_json, lines[:-1])


def rows_at(source: Any, places: list[int]) -> tuple[pa.Table, int]:
    """Return the rows at places in ascending order, those that are there, and how many were read.

    What comes after the last one is not read.
    """
    parts, done, last = [source.schema.empty_table()], 0, places[-1]
    for segment in source.segments(BLOCK_ROWS):
        for block in segment.batches():
            here = [place - done for place in places if 0 <= place - done < block.num_rows]
            parts.append(pa.Table.from_batches([block]).take(pa.array(here, pa.int64())))
            done += block.num_rows
            if done > last:
                return pa.concat_tables(parts, promote_options="permissive"), done
    return pa.concat_tables(parts, promote_options="permissive"), done


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes evaluate penguins.fb penguins.csv",
        "fastbayes evaluate penguins.fb penguins.csv --json",
        "fastbayes evaluate penguins.fb penguins.csv --fail-if 'log_loss > 0.4'",
    ],
)
@MODEL_FILE
@click.argument("data")
@click.option("--target", help="Column that holds the class; default: the model's own.")
@WEIGHT
@LOSS
@MISSING_COLUMNS
@FILES
@click.option(
    "--fail-if",
    multiple=True,
    callback=conditions,
    metavar="CONDITION",
    help="End with exit code 3 if a figure is so, for example 'log_loss > 0.4'; may be given "
    "several times.",
)
@click.option(
    "--baseline",
    type=click.Path(),
    metavar="FILE",
    help="What `evaluate --json` printed before: end with exit code 3 if a figure is worse.",
)
@click.option(
    "--tolerance",
    type=Range(0),
    help="By how much a figure may be worse than in the baseline; default: 1e-9.",
)
@THREADS
@JSON
@click.pass_context
def evaluate(
    ctx: click.Context,
    /,
    model: str,
    data: str,
    target: str | None,
    loss: str | None,
    missing_columns: str | None,
    fail_if: list[Condition],
    baseline: str | None,
    tolerance: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Judge MODEL on DATA whose classes are known.

    A job may hang on it: --fail-if and --baseline say when it fails, with exit code 3.
    """
    if tolerance is not None and baseline is None:
        raise click.UsageError("--tolerance goes with --baseline", ctx)
    allowed = SAME if tolerance is None else tolerance
    before = None if baseline is None else Baseline.read(baseline, allowed)
    source = files_of(data, options)
    fitted = applied(model_from(model), missing_columns)
    matrix = loss_from(loss, fitted)
    with bar("scoring", source) as progress:
        result = fb.evaluate(fitted, source, target, loss=matrix, progress=progress, **options)
    left = rejected(source)
    found = plain({**result.to_dict(), **left})
    show(found, as_json, [*_figures(result), *fields(left)])
    failed = [said for one in fail_if if (said := one.failed(found)) is not None]
    failed += () if before is None else before.failed(found)
    for line in failed:
        say(f"Failed: {line}")
    if failed:
        ctx.exit(FAILED)


def _figures(result: Any) -> Iterator[str]:
    figures, blank, confusion = str(result).partition("\n\n")
    yield from figures.split("\n")
    if len(result.classes) <= MOST:
        yield from (blank[1:] + confusion).split("\n")
    else:
        yield f"confusion and calibration of {len(result.classes)} classes: see --json"


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes compare penguins.csv --target species --null-values NA",
        "fastbayes compare penguins.csv --target island --null-values NA \\\n"
        "    --models tan,aode --folds year",
    ],
)
@click.argument("data")
@TARGET
@click.option(
    "--models",
    cls=ModelOption,
    callback=candidates_named(PRIOR, words=(ALL,)),
    metavar="A,B,...",
    help="Models: {MODELS}, prior; or all; default: all that the columns allow, but those that "
    "would take long, about which the leaderboard says how long.",
    common=True,
)
@click.option(
    "--folds",
    callback=folds,
    metavar="K|COLUMN",
    help="Judge by K folds of the rows, or one for each value of a column; default: 20 of up "
    "to 100 rows, 10 of up to 1,000, 5 of more.",
    **COMMON,
)
@click.option(
    "--leave-one-out",
    is_flag=True,
    help="Judge each row by the counts without it, in the cut points and structures of all rows.",
)
@click.option("--seed", type=int, help="Seed of the order in which K folds take rows; default: 0.")
@click.option(
    "--race/--no-race",
    default=True,
    help="Drop models that a sample of the rows shows to lose; or score all on all rows.",
)
@DISCRETIZE
@READING
@FILES
@JSON
def compare(
    data: str,
    target: str,
    models: list[str] | str | None,
    folds: int | str | None,
    leave_one_out: bool,
    seed: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Judge every model on DATA, each row by what was learned without it.

    One scan counts for all models, one more scores them; numeric columns take one for cut points,
    and one more without each fold; kdb, a2de and the joint models scan for what else they count.
    """
    if leave_one_out and folds is not None:
        raise click.UsageError("--leave-one-out has no --folds: leave one of the two out.")
    options |= {"folds": folds, "validation": "leave_one_out" if leave_one_out else None}
    if seed is not None:
        if leave_one_out or isinstance(folds, str):
            raise click.UsageError("--seed goes with --folds K: other folds are as they are.")
        options["seed"] = seed
    keep_cuts(options)
    source = files_of(data, options)
    with bar("comparing", source) as progress:
        result = fb.compare(source, target, models=models, progress=progress, **options)
    left = rejected(source)
    show(
        {**result.to_dict(), **left},
        as_json,
        [*map(in_options, str(result).splitlines()), *fields(left)],
    )


@reader
def sizes_of(value: str) -> list[float]:
    """Return numbers of rows, and shares up to 1.0, between commas."""
    try:
        found = [
            float(text) if "." in text or "e" in text else int(text) for text in value.split(",")
        ]
    except ValueError:
        found = []
    refuse(
        not found or not all(x > 0 and (x <= 1 or float(x).is_integer()) for x in found),
        f"{value!r}: write numbers of rows, or shares such as 0.5",
        click.BadParameter,
    )
    return found


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


@click.command(
    "learning-curve",
    cls=BriefCommand,
    examples=[
        "fastbayes learning-curve penguins.csv --target species --null-values NA",
        "fastbayes learning-curve penguins.csv --target sex --null-values NA \\\n"
        "    --sizes 50,200 --repeats 3",
    ],
)
@click.argument("data")
@TARGET
@defaulted(
    "--models",
    cls=ModelOption,
    callback=candidates_named(),
    default="naive-bayes,logistic",
    metavar="A,B,...",
    help="Models: {MODELS}.",
    common=True,
)
@click.option(
    "--sizes",
    callback=sizes_of,
    metavar="N,N,...",
    help="Rows to learn from, or shares up to 1.0 of those that are not tested on; default: eight, "
    "from 10 on.",
    **COMMON,
)
@defaulted(
    "--repeats", type=click.IntRange(1), default=10, help="How often rows are drawn anew.", **COMMON
)
@defaulted("--seed", type=int, default=0, help="Seed of the drawing.")
@click.option(
    "--test",
    callback=rows_or_share,
    metavar="N|SHARE",
    help="Rows to test on; default: a fifth, 100,000 at most.",
)
@defaulted(
    "--confidence",
    type=Range(0, 1, min_open=True, max_open=True),
    default=0.95,
    help="Of the intervals.",
)
@defaulted(
    "--metric",
    type=click.Choice([*METRICS]),
    default="log_loss",
    help="What is drawn, and where models are said to overtake each other.",
)
@click.option("--plot", type=click.Path(), help="File to draw: .png, .svg or .pdf.", **COMMON)
@DISCRETIZE
@READING
@FILES
@FORCE
@JSON
def learning_curve(
    data: str,
    target: str,
    models: list[str],
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
    keep_cuts(options)
    source = files_of(data, options)
    with bar("learning", source) as progress:
        curve = fb.learning_curve(models, source, target, progress=progress, **options)
    shown = curve.to_dict() | rejected(source)
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


COMMANDS = (fit, predict, explain, evaluate, compare, learning_curve)
