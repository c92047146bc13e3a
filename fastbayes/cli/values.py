"""What the values of options mean, and the words that cannot be read as them."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from typing import Any

import click

import fastbayes as fb
from fastbayes.core.errors import DataError
from fastbayes.scan.density_spec import KINDS

Reader = Callable[[Any, Any, str | None], Any]

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


def number(says: str, good: Callable[[float], bool], *words: str) -> Reader:
    """Return what reads a number, or one of some words; of another value an error `says` what."""

    def read(_: Any, __: Any, value: str | None) -> float | str | None:
        if value is None or value in words:
            return value
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not good(found):
            raise click.BadParameter(f"{value!r} is {says}")
        return found

    return read


pseudo_count = number("neither a number >= 0 nor 'loo'", lambda x: 0 <= x < math.inf, "loo")
share = number("neither a number from 0 to 1 nor 'auto'", lambda x: 0 <= x <= 1, "auto")
strength = number("no number above 0", lambda x: x > 0)


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


def weights(says: str, *words: str) -> Reader:
    """Return what reads the weights of A=2,B=1, or one of some words; without these, any word."""

    def read(_: Any, __: Any, value: str | None) -> str | dict[str, float] | None:
        if value is None or (value in words if words else "=" not in value):
            return value
        try:
            return {name: float(weight) for name, weight in _by_name(value)}
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: write {says}") from error

    return read


super_parents = weights("a number after each =")
class_weight = weights("balanced, or a number after each class as A=2,B=1", "balanced")


def kinds(_: Any, __: Any, value: str | None) -> str | dict[str, str] | None:
    """Return the kind of density of all numeric columns, or those of A=kde,B=mdl."""
    if value is None or "=" not in value:
        if value is not None and value not in KINDS:
            raise click.BadParameter(f"{value!r} is none of {', '.join(KINDS)}")
        return value
    told = dict(_by_name(value))
    for name, kind in told.items():
        if kind not in KINDS:
            raise click.BadParameter(f"{name}={kind}: {kind!r} is none of {', '.join(KINDS)}")
    return told


def _by_name(value: str) -> list[tuple[str, str]]:
    """Return the names and what is said of each in A=2,B=1."""
    pairs = (part.rpartition("=") for part in names(None, None, value) or [])
    return [(name.strip(), said.strip()) for name, _, said in pairs]


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
