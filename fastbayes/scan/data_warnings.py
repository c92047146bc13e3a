"""What a user would want to know about the columns just counted, before trusting a model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import warn
from fastbayes.core.schema import Feature
from fastbayes.data.filesource import LACKED
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]

# Few rows say nothing about what a column is.
LEAST_ROWS, LEAST_VALUES = 1_000, 50
LOOKED_AT = 2_000
# Floats that are more than these are hardly names of classes.
MOST_NUMBERS = 50
# Squares of what is less are 0, or have lost digits.
LEAST_SQUARED = 2.0**-511


def remark(stats: Statistics, *, densities: bool = True) -> None:
    """Log what is probably not as it was meant, and warn where there is only one class.

    `densities` is whether the model has densities of numeric columns.
    """
    if len(stats.schema.classes) == 1:
        only = stats.schema.classes[0].as_py()
        warn(f"there is only one class, {only!r}: every prediction will be it")
    classes = stats.schema.classes
    if pa.types.is_floating(classes.type) and len(classes) > MOST_NUMBERS:
        warn(
            f"the classes are {len(classes)} different numbers: to predict a number is a "
            "regression's work; cut the target into ranges, or cast it to integers or text where "
            "these are classes"
        )
    for text in remarks(stats, densities=densities):
        logger.warning(text)


def remarks(stats: Statistics, *, densities: bool = True) -> Iterator[str]:
    """Yield a line for each column that was probably meant otherwise, with the remedy.

    Columns that some files lack, rows without a class, text that is a number nearly everywhere,
    values that hardly ever repeat, and numbers that are constant within every class but differ
    between classes, or whose squares underflow.
    """
    for note in stats.provenance:
        if note.startswith(LACKED):
            yield note.removeprefix(LACKED)
    if stats.dropped_rows:
        yield f"{stats.dropped_rows:,} rows without a class were left out"
    rows = float(stats.n_rows)
    for feature in stats.schema.categorical:
        if feature.declared or rows < LEAST_ROWS or feature.size < LEAST_VALUES:
            continue
        if 2 * feature.size > rows:
            yield (
                f"column {feature.name!r} has {feature.size:,} values in {rows:,.0f} rows: an "
                "identifier says nothing about new rows; leave it out"
            )
        elif (other := _almost_number(feature)) is not None:
            yield (
                f"column {feature.name!r} is text because of values like {other!r}, but nearly "
                "all of it are numbers; clear them, or name them in null_values"
            )
    model = " of a model that takes both" if "scatter" in stats.parts else ""
    for i, n, mean, scatter in _numbers(stats) if densities else ():
        means, name = mean[n > 0], stats.schema.numeric[i].name
        if not len(means) or scatter.any() or (means == means[0]).all():
            continue
        if (np.abs(means) < LEAST_SQUARED).all():
            yield (
                f"column {name!r}: squares of its values underflow, so a Gaussian cannot use it; "
                "rescale it"
            )
        else:
            yield (
                f"column {name!r} is constant within every class, so a Gaussian cannot use it; "
                f"name it in `categorical`{model}"
            )


def _numbers(stats: Statistics) -> Iterator[tuple[int, Floats, Floats, Floats]]:
    """Yield each numeric column with rows, mean and sum of squares by class, where counted."""
    if "moments" in stats.parts:
        m = stats.moments
        yield from zip(range(len(m.count)), m.count, m.mean, m.scatter, strict=True)
    elif "scatter" in stats.parts:
        s = stats.scatter
        for i, (mean, square) in enumerate(
            zip(s.mean.T, np.einsum("cii->ic", s.scatter), strict=True)
        ):
            yield i, s.count, mean, square


def _almost_number(feature: Feature) -> str | None:
    """Return a value that is no number where at least nine of ten others are."""
    if feature.values is None or not pa.types.is_string(feature.values.type):
        return None
    odd = [value for value in _some(feature.values) if not _is_number(value)]
    return odd[0] if 0 < len(odd) <= min(LOOKED_AT, feature.size) / 10 else None


def _some(values: pa.Array) -> list[Any]:
    """Return values from both ends of the sorted domain, where those that differ stand."""
    half = LOOKED_AT // 2
    if len(values) <= LOOKED_AT:
        return list(values.to_pylist())
    return [*values[:half].to_pylist(), *values[-half:].to_pylist()]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
