"""Moments of numeric columns per class, in numpy: the twin of `compiled.moments`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import code_type
from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.moments import merged, two_sum

# Cells that are worked on at once: as many arrays stay small.
MOST_CELLS = 1 << 18


def class_codes(n_classes: int) -> type[np.unsignedinteger]:
    """Return the type of codes of classes that is not converted."""
    return code_type(n_classes)


def columns_moments(
    columns: Sequence[Floats],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    weight: Floats | None = None,
) -> Floats:
    """Return count, mean, its rest and scatter of the known values of each class in this block.

    Parameters
    ----------
    columns
        (n,) each, a numeric column, NaN where missing.
    y
        (n,) class codes below `n_classes`.
    n_classes
        How many classes there are.
    weight
        (n,) finite and not negative, or None when every row weighs 1. Weight 0 is no row.

    Returns
    -------
    ndarray of shape (4, n_columns, n_classes)
        count (sum of the weights of known values), mean (0 where count is 0), what rounding took
        from the mean, and scatter (sum of squared deviations from the mean). An infinite value, or
        deviations whose squares overflow, make the mean or the scatter of that class non-finite.

    Notes
    -----
    Sums run over x - shift with one value of the class as its shift, and once more over x - mean
    where that value was far from the mean, so that 1.7e9 ± 1 keeps its digits and a constant
    column has a scatter of exactly 0.
    """
    step = max(1, MOST_CELLS // max(1, len(y)))
    runs = [columns[first : first + step] for first in range(0, len(columns), step)]
    return np.concatenate(
        [np.empty((4, 0, n_classes)), *(_together(run, y, n_classes, weight) for run in runs)],
        axis=1,
    )


def _together(
    columns: Sequence[Floats],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    weight: Floats | None,
) -> Floats:
    """Return the moments of a few columns: those of one, of as many classes for each of them."""
    p, size = len(columns), len(columns) * n_classes
    values = np.concatenate(columns)
    group = (np.arange(p)[:, None] * n_classes + y).ravel()
    weight = None if weight is None else np.tile(weight, p)
    known = ~np.isnan(values)
    if weight is not None:
        known &= weight > 0
    if not known.all():
        values, group = values[known], group[known]
        weight = None if weight is None else weight[known]
    shift = np.zeros(size)
    shift[group[::-1]] = values[::-1]  # the first value of each stays
    found = _about(shift, values, group, weight)
    if (far := far_from_mean(shift, found[0], found[1], found[3])).any():
        again = far.reshape(p, n_classes).any(axis=1).repeat(n_classes)
        found = _about(np.where(again, found[1], shift), values, group, weight)
    return np.array(found).reshape(4, p, n_classes)


def add_moments(
    columns: Sequence[Floats],
    y: NDArray[np.unsignedinteger],
    here: Ints,
    weight: Floats | None,
    count: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
) -> None:
    """Add the moments of columns to those of the rows before; see the compiled twin."""
    held = count, mean, rest, scatter
    found = columns_moments(columns, y, len(here), weight)
    for part, sums in zip(held, merged([part[:, here] for part in held], [*found]), strict=True):
        part[:, here] = sums


def far_from_mean(shift: Floats, count: Floats, mean: Floats, scatter: Floats) -> NDArray[np.bool_]:
    """Return where the shift was so far from the mean that the subtraction cost digits."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (count * (mean - shift) ** 2 > 256 * scatter) & np.isfinite(scatter)


def from_sums(
    shift: Floats, count: Floats, total: Floats, squares: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return count, mean, rest and scatter from the sums of w, w(x - shift) and w(x - shift)²."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        offset = np.where(count > 0, total / count, 0.0)
        scatter = squares - total * offset
        # Rounding can leave -1e-17 for 0; -inf is an overflow and must not become a number.
        scatter[(scatter < 0) & np.isfinite(scatter)] = 0.0
    return count, *two_sum(shift, offset), scatter


def _about(
    shift: Floats, values: Floats, y: NDArray[np.integer], weight: Floats | None
) -> tuple[Floats, Floats, Floats, Floats]:
    size = len(shift)
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = values - shift[y]
        weighted = deviation if weight is None else weight * deviation
        count = np.bincount(y, weight, size).astype(np.float64)
        total = np.asarray(np.bincount(y, weighted, size), dtype=np.float64)
        squares = np.asarray(np.bincount(y, weighted * deviation, size), dtype=np.float64)
    return from_sums(shift, count, total, squares)
