"""Options that several commands share, and what their values mean."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.show import bar
from fastbayes.errors import DataError
from fastbayes.loss import loss_matrix

MODELS = {"naive-bayes": "NaiveBayes"}
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}

Command = Callable[..., Any]


def names(_: Any, __: Any, value: str | None) -> list[str] | None:
    """Return the texts between commas; one that holds a comma stands in double quotes."""
    if value is None:
        return None
    try:
        row = next(csv.reader([value], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise click.BadParameter(f"{value!r}: {error}") from error
    return [name.strip() for name in row if name.strip()]


def pseudo_count(_: Any, __: Any, value: str) -> float | str:
    """Return alpha as a number, or 'loo'."""
    if value == "loo":
        return value
    try:
        alpha = float(value)
    except ValueError:
        alpha = math.nan
    if not (math.isfinite(alpha) and alpha >= 0):
        raise click.BadParameter(f"{value!r} is neither a number >= 0 nor 'loo'")
    return alpha


def n_bytes(_: Any, __: Any, value: str | None) -> int | None:
    """Return a size such as 500M or 2GiB in bytes."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([KMG]I?|)B?", value.strip().upper())
    if found is None:
        raise click.BadParameter(f"{value!r} is no size; write for example 500M or 2GiB")
    return int(float(found[1]) * UNITS[found[2]])


def together(*options: Command) -> Callable[[Command], Command]:
    """Return one decorator for several options, shown in this order."""

    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


FORCE = click.option("--force", is_flag=True, help="Replace an output that exists.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
THREADS = click.option("--threads", type=click.IntRange(1), help="Worker threads; default: all.")
WEIGHT = click.option("--weight", "sample_weight", help="Column that holds the weight of each row.")
LOSS = click.option(
    "--loss",
    type=click.Path(),
    help="JSON file {decision: {truth: cost}}: decide by least expected cost.",
)
MODEL_FILE = click.argument("model", type=click.Path())
# Named as the parameters of `fastbayes.count`.
READING = together(
    click.option(
        "--columns",
        callback=names,
        metavar="A,B,...",
        help="Features to read; the others are not decoded.",
    ),
    click.option(
        "--categorical",
        callback=names,
        metavar="A,B,...",
        help="Columns that are categories whatever their type.",
    ),
    WEIGHT,
    click.option(
        "--null-values", callback=names, metavar="A,B,...", help="Texts that mean missing."
    ),
    click.option(
        "--missing",
        type=click.Choice(["marginalize", "category"]),
        default="marginalize",
        show_default=True,
        help="A missing value says nothing, or is a value of its own.",
    ),
    click.option(
        "--memory-limit",
        callback=n_bytes,
        metavar="SIZE",
        help="Bytes for the counts, for example 500M.",
    ),
    THREADS,
)
# Named as the parameters of the models.
MODEL = together(
    click.option(
        "--model", type=click.Choice(sorted(MODELS)), default="naive-bayes", show_default=True
    ),
    click.option(
        "--alpha",
        callback=pseudo_count,
        metavar="NUMBER|loo",
        default="1",
        show_default=True,
        help="Pseudo-count of every value and class; 'loo' chooses it by leave-one-out.",
    ),
    click.option(
        "--class-prior",
        type=click.Choice(["empirical", "uniform"]),
        help="Class prior; default: the classes' shares, smoothed by alpha.",
    ),
    click.option(
        "--numeric",
        type=click.Choice(["gaussian"]),
        default="gaussian",
        show_default=True,
        help="Density of numeric columns.",
    ),
    click.option(
        "--variance",
        type=click.Choice(["per_class", "shared", "single"]),
        default="per_class",
        show_default=True,
        help="Variances of numeric columns: one per class, shared by classes, or one for all.",
    ),
    click.option(
        "--unseen",
        type=click.Choice(["ignore", "smooth", "error"]),
        default="ignore",
        show_default=True,
        help="A value that was not seen at fit says nothing, counts as smoothed, or is an error.",
    ),
)


def counted(data: str, target: str, **options: Any) -> fb.Statistics:
    """Return the statistics of DATA, with a progress bar."""
    with bar("counting", data) as progress:
        return fb.count(data, target, progress=progress, **options)


def model_from(path: str) -> Any:
    """Return the model in a file."""
    held = fb.load(path)
    if isinstance(held, fb.Statistics):
        raise DataError(
            f"{path}: holds statistics, not a model; make one: fastbayes fit --statistics {path} "
            "-o model.fb"
        )
    return held


def statistics_from(path: str) -> fb.Statistics:
    """Return the statistics in a file."""
    held = fb.load(path)
    if not isinstance(held, fb.Statistics):
        raise DataError(
            f"{path}: holds a model, not statistics; name a file made by count or merge"
        )
    return held


def loss_from(path: str | None, model: Any) -> Any:
    """Return the loss in a JSON file, once it fits the classes of a model."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            loss = json.load(file, object_pairs_hook=_once)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; name a JSON file of costs") from error
    except ValueError as error:
        raise DataError(
            f"{path}: no loss matrix ({error}); write JSON {{decision: {{truth: cost}}}}"
        ) from error
    try:
        loss_matrix(loss, model.classes_)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return loss


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, in which a name must not stand twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands twice")
    return found
