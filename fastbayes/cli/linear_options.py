"""Options of logistic regression, and how their values are read."""

from __future__ import annotations

import math
from typing import Any

import click

from fastbayes.cli.values import names


def strength(_: Any, __: Any, value: str | None) -> float | None:
    """Return a number above 0, which may be inf."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise click.BadParameter(f"{value!r} is no number above 0")
    return number


def interactions(_: Any, __: Any, value: str | None) -> list[tuple[str, str]] | None:
    """Return the pairs of A:B,C:D."""
    if value is None:
        return None
    found = []
    for part in names(None, None, value) or []:
        first, colon, second = part.partition(":")
        if not (colon and first.strip() and second.strip()):
            raise click.BadParameter(f"{part!r}: write two columns as A:B")
        found.append((first.strip(), second.strip()))
    return found


def class_weight(_: Any, __: Any, value: str | None) -> str | dict[str, float] | None:
    """Return 'balanced', or the weights of A=2,B=1."""
    if value is None or value == "balanced":
        return value
    pairs = [part.rpartition("=") for part in names(None, None, value) or []]
    try:
        return {name.strip(): float(weight) for name, _, weight in pairs}
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r}: write balanced, or a number after each class as A=2,B=1"
        ) from error


# Option, and what click is to be told of it; named as the parameters of LogisticRegression.
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--penalty",
        {
            "type": click.Choice(["l2", "l1", "none"]),
            "callback": lambda _, __, value: None if value == "none" else value,
            "default": "l2",
            "help": "Penalty of coefficients; default: l2.",
        },
    ),
    (
        "--C",
        {
            "callback": strength,
            "metavar": "NUMBER",
            "help": "Inverse strength of the penalty; default: 1.",
        },
    ),
    (
        "--solver",
        {
            "type": click.Choice(["newton-cg", "lbfgs", "conjugate_gradient", "gradient"]),
            "help": "How the optimum is looked for; default: newton-cg.",
        },
    ),
    (
        "--learning-rate",
        {"type": click.FloatRange(0, min_open=True), "help": "Length of steps of gradient."},
    ),
    (
        "--init",
        {
            "type": click.Choice(["naive_bayes", "zeros"]),
            "help": "Where to begin; default: naive_bayes.",
        },
    ),
    (
        "--class-weight",
        {
            "callback": class_weight,
            "metavar": "balanced|A=2,B=1,...",
            "help": "What weights of rows are multiplied by, by class.",
        },
    ),
    (
        "--interactions",
        {
            "callback": interactions,
            "metavar": "A:B,C:D,...",
            "help": "Pairs of categorical columns whose values have coefficients together.",
        },
    ),
    (
        "--tol",
        {
            "type": click.FloatRange(0, min_open=True),
            "help": "Gradient norm at which to stop; default: 1e-6, of weighted-naive-bayes 1e-8.",
        },
    ),
    (
        "--max-iter",
        {
            "type": click.IntRange(1),
            "help": "Steps at most; default: 200, of weighted-naive-bayes 100.",
        },
    ),
    (
        "--standard-errors",
        {
            "is_flag": True,
            "help": "Keep what standard errors and Wald intervals of the coefficients need.",
        },
    ),
)
