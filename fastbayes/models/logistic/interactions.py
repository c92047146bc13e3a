"""Which pairs of categorical columns have coefficients together: named, all, or the best ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError, warn
from fastbayes.core.layout import Layout
from fastbayes.core.schema import Schema
from fastbayes.models.estimator.information import interaction_information
from fastbayes.models.estimator.parameters import readable_again, whole
from fastbayes.statistics.pair_counts import PairCounts, all_pairs

ALL, AUTO = "all", "auto"
# What "auto" lets a pass over the rows take for pairs, in rows and coefficients of each times the
# outputs; of more rows as much as the columns take.
CHEAP = 1 << 17
Pairs = list[tuple[int, int]]


def check_interactions(name: str, value: Any) -> None:
    """Raise ValueError where this says nothing of pairs of columns."""
    if value is None or (isinstance(value, str) and value in (ALL, AUTO)):
        return
    readable_again("pairs")(name, value)
    if isinstance(value, str) or not isinstance(value, Iterable):
        try:
            whole(1)(name, value)
        except ValueError:
            raise ValueError(
                f"{name}={value!r}: use None, {ALL!r}, {AUTO!r}, how many pairs at most, or a list "
                "of pairs of column names"
            ) from None


def found_by_data(interactions: Any) -> bool:
    """Return whether the pairs are those that the columns allow, and not named."""
    return isinstance(interactions, (str, int, np.integer))


def needs_counts(interactions: Any) -> bool:
    """Return whether the pairs are chosen by how often values occur together."""
    return found_by_data(interactions) and interactions != ALL


def pairs_of(
    interactions: Any,
    schema: Schema,
    layout: Layout,
    counts: PairCounts | None,
    n_rows: int,
) -> Pairs:
    """Return the places of the pairs among the categorical columns.

    layout  Of the same columns without pairs.
    counts  Of all pairs, where the best are chosen.
    n_rows  How many there are, more or less.

    Raises SchemaError where a pair is named that cannot be.
    """
    if not found_by_data(interactions):
        return named_pairs(interactions, schema)
    sizes = layout.sizes
    first, second = all_pairs(len(sizes))
    # A column of one value has nothing to say with another one that the other does not say alone.
    able = np.flatnonzero((sizes[first] > 1) & (sizes[second] > 1))
    if not len(able) and interactions != AUTO:
        warn(
            f"interactions={interactions!r}: no two categorical columns have two values each, so "
            "that there is no pair; numeric columns take part with discretize='mdl'"
        )
    price: NDArray[np.float64] = np.ones(len(able))
    most = math.inf
    if interactions == AUTO:
        cells = (sizes[first] * sizes[second])[able]
        price = (n_rows + cells).astype(np.float64) * layout.n_outputs
        most = max(CHEAP, n_rows * len(schema.features) * float(layout.n_outputs))
    elif interactions != ALL:
        most = float(interactions)
    if price.sum() > most:
        assert counts is not None
        worth = interaction_information(counts, as_value=schema.missing == "category")
        order = _by_worth(worth[able], first[able], second[able], schema)
        able = np.sort(able[order[_affordable(price[order], most)]])
    return [*zip(first[able].tolist(), second[able].tolist(), strict=True)]


def _affordable(price: NDArray[np.float64], most: float) -> list[int]:
    """Return the places of what is taken in turn, where it is not too much with those before."""
    taken, spent = [], 0.0
    for at, one in enumerate(price.tolist()):
        if spent + one <= most:
            taken.append(at)
            spent += one
    return taken


# Worths closer than this share of themselves are equal.
TIE = 1e-9


def _by_worth(
    worth: NDArray[np.float64], first: Any, second: Any, schema: Schema
) -> NDArray[np.intp]:
    """Return the order of pairs by falling worth, of equals by the names of their columns."""
    names = [f.name for f in schema.categorical]
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    texts = [sorted((names[a], names[b])) for a, b in pairs]
    place = np.empty(len(texts), np.int64)
    place[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    unit = TIE * max(float(np.abs(worth).max(initial=0.0)), 1.0)
    return np.lexsort((place, -np.round(worth / unit)))


def named_pairs(interactions: Iterable[Sequence[str]] | None, schema: Schema) -> Pairs:
    """Return the places of pairs that are given by the names of their columns.

    Raises SchemaError when a column is not there or not categorical, or stands twice in a pair; or
    a pair is named twice.
    """
    names = [f.name for f in schema.categorical]
    found: Pairs = []
    for pair in interactions or ():
        two = isinstance(pair, Iterable) and not isinstance(pair, str) and len(tuple(pair)) == 2
        if not two:
            raise SchemaError(f"interactions: {pair!r} is no pair of columns")
        a, b = pair
        for name in (a, b):
            if name not in names:
                kind = "numeric" if name in schema.names else "not there"
                raise SchemaError(
                    f"interactions: column {name!r} is {kind}; pairs are of categorical columns: "
                    f"name it in `categorical`, cut it with `discretize`, or use some of "
                    f"{names[:10]}"
                )
        if a == b:
            raise SchemaError(f"interactions: column {a!r} stands twice in a pair")
        place = names.index(a), names.index(b)
        if place in found or place[::-1] in found:
            raise SchemaError(f"interactions: the pair {a!r}, {b!r} is named twice")
        found.append(place)
    return found


def moved_pairs(pairs: Sequence[tuple[int, int]], before: Schema, after: Schema) -> Pairs:
    """Return the places that pairs of one schema have in another one."""
    old, new = ([f.name for f in schema.categorical] for schema in (before, after))
    return [(new.index(old[a]), new.index(old[b])) for a, b in pairs]
