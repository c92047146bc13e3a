"""Statistics of the folds of some rows, with those of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import GREATEST, LEAST
from fastbayes.core.errors import DataError
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.core.schema import Schema
from fastbayes.statistics.base import RetractionError, Statistic
from fastbayes.statistics.registry import kind_of
from fastbayes.statistics.table import check_sums
from fastbayes.statistics.value_counts import ValueCounts


def folds_together(a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return the folds of the sum or difference of two statistics, as its arguments.

    Folds go together by name; statistics of other folds, or of none, have none together.
    """
    if not a.folds or a.fold_names != b.fold_names:
        return {}
    return {
        "folds": tuple(operation(x, y) for x, y in zip(a.folds, b.folds, strict=True)),
        "fold_names": a.fold_names,
    }


def arrays_in_file(parts: Mapping[str, Statistic], prefix: str = "") -> dict[str, Any]:
    """Return the arrays of statistics by their names in a file."""
    return named_arrays({name: part.arrays() for name, part in parts.items()}, prefix)


def without(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], where: Callable[[str, int, int], str]
) -> dict[str, Any]:
    """Return the differences of statistics; DataError when too much is taken away.

    `where` puts name, feature and class in words.
    """
    parts = {}
    for name, part in mine.items():
        try:
            parts[name] = part - theirs[name]
        except RetractionError as error:
            raise DataError(f"{where(name, error.feature, error.label)}: {error}") from error
    return parts


def parts_from(
    names: Sequence[str], arrays: Mapping[str, Any], schema: Schema, prefix: str = ""
) -> dict[str, Statistic]:
    """Return the statistics that `arrays_in_file` wrote.

    Raises KeyError, TypeError or ValueError when the arrays are not those of counts in this schema.
    """
    parts: dict[str, Statistic] = {}
    for name in names:
        parts[name] = kind_of(name).from_arrays(schema.shape, arrays_of(arrays, f"{prefix}{name}."))
    check_numbers(parts)
    if not isinstance(values := parts.get(ValueCounts.name), ValueCounts):
        raise ValueError("there are no counts of values and classes")
    check_sums(schema, values)
    return parts


def check_numbers(parts: Mapping[str, Statistic]) -> None:
    """Raise ValueError where what a file holds is no count, or no number at all."""
    for name, part in parts.items():
        for key, array in part.arrays().items():
            if array.dtype.kind == "f" and np.isnan(array).any():
                raise ValueError(f"{name}.{key} holds what is not a number")
            if "count" in key and not _counts(array):
                raise ValueError(f"{name}.{key} holds what is not a count")


def _counts(array: NDArray[Any]) -> bool:
    """Return whether all are 0, or within the limits of a count."""
    if array.dtype.kind == "f":
        return bool(((array == 0) | (array >= LEAST) & (array <= GREATEST)).all())
    return bool(array.min(initial=0) >= 0 and array.max(initial=0) <= 2**53)
