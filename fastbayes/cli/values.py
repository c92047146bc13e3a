"""What the values of options mean, and the words that cannot be read as them."""

from __future__ import annotations

import csv
import math
import re
from typing import Any

import click

import fastbayes as fb
from fastbayes.core.errors import DataError
from fastbayes.scan.density_spec import KINDS

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


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


def pseudo_rows(_: Any, __: Any, value: str | None) -> float | str | None:
    """Return a number, or 'loo', if there is one."""
    return None if value is None else pseudo_count(_, __, value)


def n_bytes(_: Any, __: Any, value: str | None) -> int | None:
    """Return a size such as 500M or 2GiB in bytes."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([KMG]I?|)B?", value.strip().upper())
    if found is None:
        raise click.BadParameter(f"{value!r} is no size; write for example 500M or 2GiB")
    return int(float(found[1]) * UNITS[found[2]])


def method(_: Any, __: Any, value: str | None) -> Any:
    """Return how to cut numeric columns: a word, a word and a number of bins, or a file's cuts."""
    if value is None:
        return None
    if value.endswith((".fb", ".fbs")):
        held = fb.load(value)
        schema = held.schema if isinstance(held, fb.Statistics) else held.schema_
        cuts = {f.name: f.cuts.tolist() for f in schema.features if f.cuts is not None}
        if not cuts:
            raise DataError(f"{value}: holds no cut points; count it with --pairs")
        return cuts
    word, colon, bins = value.partition(":")
    if not colon and word in ("mdl", "quantile", "width"):
        return word
    many = bins.isdecimal() and 2 <= int(bins) <= 1 << 16
    if word not in ("quantile", "width") or not many:
        raise click.BadParameter(
            f"{value!r}: write mdl, quantile, width, quantile:20, or a .fb or .fbs file"
        )
    return word, int(bins)


def of_columns(discretize: Any, columns: list[str] | None) -> Any:
    """Return what a file says of the columns that are read."""
    if columns is None or not isinstance(discretize, dict):
        return discretize
    return {name: cuts for name, cuts in discretize.items() if name in columns}


def share(_: Any, __: Any, value: str | None) -> float | str | None:
    """Return a number from 0 to 1, or 'auto'."""
    if value is None or value == "auto":
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise click.BadParameter(f"{value!r} is neither a number from 0 to 1 nor 'auto'")
    return number


def super_parents(_: Any, __: Any, value: str | None) -> str | dict[str, float] | None:
    """Return a rule, or the weights of A=2,B=1."""
    if value is None or "=" not in value:
        return value
    pairs = [part.rpartition("=") for part in names(None, None, value) or []]
    try:
        return {name.strip(): float(weight) for name, _, weight in pairs}
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: write a number after each =") from error


def kinds(_: Any, __: Any, value: str | None) -> str | dict[str, str] | None:
    """Return the kind of density of all numeric columns, or those of A=kde,B=mdl."""
    if value is None or "=" not in value:
        if value is not None and value not in KINDS:
            raise click.BadParameter(f"{value!r} is none of {', '.join(KINDS)}")
        return value
    pairs = [part.rpartition("=") for part in names(None, None, value) or []]
    told = {name.strip(): kind.strip() for name, _, kind in pairs}
    for name, kind in told.items():
        if kind not in KINDS:
            raise click.BadParameter(f"{name}={kind}: {kind!r} is none of {', '.join(KINDS)}")
    return told
