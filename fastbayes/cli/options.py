"""Options that several commands share, and what their values mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.show import bar

MODELS = {"naive-bayes": "NaiveBayes"}

Command = Callable[..., Any]


def options(*options: Command) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def names(_: Any, __: Any, value: str | None) -> list[str] | None:
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


FORCE = click.option("--force", is_flag=True, help="Replace an output that exists.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
THREADS = click.option("--threads", type=click.IntRange(1), help="Worker threads; default: all.")
READING = options(
    click.option("--columns", callback=names, help="Columns to read, separated by commas."),
    click.option("--categorical", callback=names, help="Columns to treat as categories."),
    click.option("--weight", help="Column that holds the weight of each row."),
    click.option("--null-values", callback=names, help="Texts that mean missing."),
    click.option("--memory-limit", type=str, help="Bytes for the counts, for example 500M."),
    click.option(
        "--missing",
        type=click.Choice(["marginalize", "category"]),
        default="marginalize",
        show_default=True,
        help="Missing values say nothing, or are a value of their own.",
    ),
    THREADS,
)
MODEL = options(
    click.option(
        "--model", type=click.Choice(sorted(MODELS)), default="naive-bayes", show_default=True
    ),
    click.option(
        "--alpha",
        default="1",
        show_default=True,
        help="Pseudo-count of every value, or 'loo' to choose it by leave-one-out.",
    ),
    click.option(
        "--class-prior",
        type=click.Choice(["empirical", "uniform"]),
        help="Class prior; default: smoothed by alpha.",
    ),
    click.option(
        "--variance",
        type=click.Choice(["per_class", "shared", "single"]),
        default="per_class",
        show_default=True,
    ),
    click.option(
        "--unseen",
        type=click.Choice(["ignore", "smooth", "error"]),
        default="ignore",
        show_default=True,
        help="What a value not seen at fit does.",
    ),
)


def size(text: str | None) -> int | None:
    """Return a size such as 500M or 2GiB in bytes."""
    if text is None:
        return None
    units = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
    number = text.upper().removesuffix("B")
    unit = number.lstrip("0123456789.")
    try:
        return int(float(number.removesuffix(unit)) * units[unit])
    except (KeyError, ValueError) as error:
        raise click.BadParameter(f"{text!r} is no size; write for example 500M or 2GiB") from error


def alpha_of(text: str) -> float | str:
    if text == "loo":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"--alpha {text!r}: a number >= 0, or 'loo'") from error


def counted(data: str, target: str, options: dict[str, Any], **more: Any) -> fb.Statistics:
    with bar("counting", data) as progress:
        return fb.count(
            data,
            target,
            sample_weight=options["weight"],
            columns=options["columns"],
            categorical=options["categorical"],
            null_values=options["null_values"],
            missing=options["missing"],
            memory_limit=size(options["memory_limit"]),
            threads=options["threads"],
            progress=progress,
            **more,
        )


def loss_of(path: str | None) -> Any:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise fb.DataError(
            f"{path}: no loss matrix ({error}); write JSON {{decision: {{truth: cost}}}}"
        ) from error
