"""Moments of numeric columns per class, in numpy: the twin of `compiled.moments`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.moments import merged


def block_moments(
    values: Floats,
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    weight: Floats | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return count, mean, its rest and scatter of the known values of each class in this block.

    Parameters
    ----------
    values
        (n,) one numeric column, NaN where missing.
    y
        (n,) class codes below `n_classes`.
    n_classes
        Length of each result.
    weight
        (n,) finite and not negative, or None when every row weighs 1. Weight 0 is no row.

    Returns
    -------
    tuple
        count (sum of the weights of known values), mean (0 where count is 0), what rounding took
        from the mean, and scatter (sum of squared deviations from the mean), each (n_classes,).
        An infinite value, or deviations whose squares overflow, make the mean or the scatter of
        that class non-finite.

    Notes
    -----
    Sums run over x - shift with one value of the class as its shift, and once more over x - mean
    where that value was far from the mean, so that 1.7e9 ± 1 keeps its digits and a constant
    column has a scatter of exactly 0.
    """
    known = ~np.isnan(values)
    if weight is not None:
        known &= weight > 0
    if not known.all():
        values, y = values[known], y[known]
        weight = None if weight is None else weight[known]
    shift = np.zeros(n_classes)
    present, first = np.unique(y, return_index=True)
    shift[present] = values[first]
    count, mean, rest, scatter = _about(shift, values, y, weight)
    if far_from_mean(shift, count, mean, scatter).any():
        count, mean, rest, scatter = _about(mean, values, y, weight)
    return count, mean, rest, scatter


def columns_moments(
    columns: Sequence[Floats],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    weight: Floats | None = None,
) -> Floats:
    """Return the moments of columns, (4, n_columns, n_classes), as `block_moments` does of one."""
    each = [block_moments(values, y, n_classes, weight) for values in columns]
    return np.array(each).reshape(len(columns), 4, n_classes).swapaxes(0, 1)


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
        mean = shift + offset
        part = mean - shift
        rest = (shift - (mean - part)) + (offset - part)
    return count, mean, np.where(np.isfinite(rest), rest, 0.0), scatter


def _about(
    shift: Floats, values: Floats, y: NDArray[np.unsignedinteger], weight: Floats | None
) -> tuple[Floats, Floats, Floats, Floats]:
    size = len(shift)
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = values - shift[y]
        weighted = deviation if weight is None else weight * deviation
        count = np.bincount(y, weight, size).astype(np.float64)
        total = np.asarray(np.bincount(y, weighted, size), dtype=np.float64)
        squares = np.asarray(np.bincount(y, weighted * deviation, size), dtype=np.float64)
    return from_sums(shift, count, total, squares)
