"""Numeric columns counted both ways in one scan: as numbers, and cut into bins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.schema import Feature, Schema
from fastbayes.data.encode import Encoder, binned
from fastbayes.statistics.bundle import Statistics

# Statistics of numeric columns, besides moments, that models may share.
OF_NUMBERS = ("scatter", "sketches")


def dual_encoding(learning: Callable[..., Encoder], cuts: Mapping[str, Any] | None) -> Encoder:
    """Return an encoder of all columns in which those that are cut stand once more, as bins.

    Parameters
    ----------
    learning
        Gives an encoder, and one of bins for the columns in its `cuts`.
    cuts
        Cut points by column; None where no column is numeric.
    """
    plain = learning()
    if not cuts:
        return plain
    # Truth values that are cut like numbers are bins either way.
    numbers = [feature for feature, book in plain.features if book is None]
    options = {*cuts}.difference(feature.name for feature in numbers)
    if options:
        plain = learning(cuts={name: cuts[name] for name in options})
    bins = [
        binned(Feature.binned(feature.name, cuts[feature.name], feature.part))
        for feature in numbers
        if feature.name in cuts
    ]
    return Encoder(
        [*plain.features, *bins], plain.target, template=plain.template, weight=plain.weight
    )


def also_in_bins(encoder: Encoder) -> set[str]:
    """Return the numeric columns that stand once more in an encoder, as bins."""
    names = {feature.name for feature, book in encoder.features if book is None}
    return names.intersection(book.name for book in encoder.books)


# What bins of columns that stand once more as numbers are called where names must be distinct.
_BINS = "\0 in bins"


def named_apart(stats: Statistics) -> Statistics:
    """Return statistics in which columns that were counted both ways have a name for either."""
    numeric = {f.name for f in stats.schema.numeric}
    return _renamed(stats, lambda f: f.name + _BINS * (f.name in numeric and f.cuts is not None))


def named_alike(stats: Statistics) -> Statistics:
    """Return statistics with the names that they had before `named_apart`."""
    return _renamed(stats, lambda f: f.name.removesuffix(_BINS))


def _renamed(stats: Statistics, name: Callable[[Feature], str]) -> Statistics:
    names = [name(feature) for feature in stats.schema.features]
    if names == list(stats.schema.names):
        return stats
    features = zip(stats.schema.features, names, strict=True)
    schema = replace(stats.schema, features=tuple(replace(f, name=new) for f, new in features))
    return replace(
        stats, schema=schema, folds=tuple(replace(f, schema=schema) for f in stats.folds)
    )


class Views:
    """What `dual_encoding` encodes, seen one way: with numbers, or with bins.

    Attributes
    ----------
    numbers, bins
        The schemas of the two ways; equal where no column is numeric.
    """

    def __init__(self, schema: Schema) -> None:
        numeric = {f.name for f in schema.numeric}
        bins = {f.name: f for f in schema.features if f.name in numeric and f.cuts is not None}
        once: list[Feature] = [
            f for f in schema.features if f.name not in bins or f.kind == "numeric"
        ]
        self.both = schema
        self.numbers = replace(schema, features=tuple(once))
        self.bins = replace(schema, features=tuple(bins.get(f.name, f) for f in once))

    @property
    def twice(self) -> bool:
        """Whether there are columns that were counted both ways."""
        return len(self.both.features) > len(self.numbers.features)

    def counted(self, stats: Statistics, *, bins: bool) -> Statistics:
        """Return statistics as if they had been counted one way."""
        schema = self.bins if bins else self.numbers
        if not self.twice:
            return stats
        to = schema.alignment(stats.schema)
        options = {n: p for n, p in stats.parts.items() if bins or p.numeric_as != "bins"}
        return replace(
            stats,
            schema=schema,
            parts={name: part.take(to) for name, part in options.items()},
            folds=tuple(self.counted(fold, bins=bins) for fold in stats.folds),
        )

    def batches(self, *, bins: bool) -> OneWay | None:
        """Return what gives the columns of one way out of a batch; None for all."""
        if not self.twice:
            return None
        schema = self.bins if bins else self.numbers
        place = np.full(len(self.both.categorical), -1)
        taken = schema.alignment(self.both).categorical
        place[taken] = np.arange(len(taken))
        return OneWay(place, taken, bins)


@dataclass(frozen=True)
class OneWay:
    """Gives the columns of one way out of a batch.

    place  (n_categorical,) where each column of the batch goes, -1 for nowhere
    taken  the columns that are taken, in their new order
    bins   whether numeric columns are bins
    """

    place: NDArray[np.int64]
    taken: NDArray[np.int64]
    bins: bool

    def __call__(self, batch: Batch) -> Batch:
        """Return the columns of a batch."""
        place = self.place
        return replace(
            batch,
            codes=tuple(
                Codes(
                    place[group.features[kept]],
                    group.codes if kept.all() else group.codes[kept],
                    group.sizes[kept],
                )
                for group in batch.codes
                if (kept := place[group.features] >= 0).any()
            ),
            missing=batch.missing[self.taken],
            numeric=() if self.bins else batch.numeric,
        )
