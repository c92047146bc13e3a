"""Statistics of tables, as `fastbayes.count` makes them, turned into those of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Shape, labels
from fastbayes.statistics import ValueCounts
from fastbayes.statistics.array_statistics import ArrayStatistics
from fastbayes.statistics.bundle import Statistics

LARGEST_CODE = 1 << 24


def code_counts(stats: Statistics) -> ArrayStatistics:
    """Return counts of codes 0, 1, ... from counts of columns that hold such codes.

    Parameters
    ----------
    stats
        Every feature categorical, its values whole numbers from 0 or booleans, none missing.

    Returns
    -------
    ArrayStatistics
        With a part "values".

    Raises
    ------
    SchemaError
        When a column is something else; the message names it.
    """
    values = stats.values
    codes = []
    for j, feature in enumerate(stats.schema.features):
        if feature.values is None:
            raise SchemaError(
                f"column {feature.name!r} was counted as numeric; count it again, named in "
                "`categorical`"
            )
        found = labels(feature.values)
        if found.dtype.kind not in "biu" or not len(found) or found.min() < 0:
            raise SchemaError(
                f"column {feature.name!r} holds {feature.values.type} values, not codes from 0; "
                "use fastbayes.NaiveBayes, which takes them as they are"
            )
        if found.max() >= LARGEST_CODE:
            raise SchemaError(f"column {feature.name!r} has the code {found.max()}: it is an id")
        codes.append(found.astype(np.int64))
        _refuse_missing(feature.name, values.missing[j])
    sizes = np.array([int(found.max()) + 1 for found in codes], dtype=np.int64)
    shape = Shape(sizes, 0, len(stats.schema.classes))
    counts = ValueCounts(shape, weighted=stats.weighted)
    counts.class_counts[:] = values.class_counts
    for j, found in enumerate(codes):
        counts.of(j)[found] = values.of(j)
    return ArrayStatistics(labels(stats.schema.classes), {"values": counts}, stats.schema.names)


def numeric_moments(stats: Statistics) -> ArrayStatistics:
    """Return moments of arrays from moments of numeric columns.

    Parameters
    ----------
    stats
        Every feature numeric, none missing, rows without weights.

    Returns
    -------
    ArrayStatistics
        With a part "moments".

    Raises
    ------
    SchemaError
        When a column is categorical or has missing values, or rows were weighted.
    """
    if stats.weighted:
        raise SchemaError(
            "the statistics are weighted, and epsilon_ needs the moments without weights; fit the "
            "rows themselves, or use fastbayes.NaiveBayes"
        )
    for feature in stats.schema.categorical:
        raise SchemaError(
            f"column {feature.name!r} is categorical; leave it out with `columns`, or use "
            "fastbayes.NaiveBayes"
        )
    counts = stats.values.class_counts
    for feature, known in zip(stats.schema.numeric, stats.moments.count, strict=True):
        _refuse_missing(feature.name, counts - known)
    return ArrayStatistics(
        labels(stats.schema.classes), {"moments": stats.moments}, stats.schema.names
    )


def _refuse_missing(name: str, missing: NDArray[np.float64]) -> None:
    if np.any(missing):
        raise SchemaError(
            f"column {name!r} has {missing.sum():g} missing values; use fastbayes.NaiveBayes, "
            "which takes them"
        )
