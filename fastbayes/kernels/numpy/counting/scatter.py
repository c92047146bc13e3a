"""Scatter matrices of numeric columns per group, in numpy: the twin of `compiled.scatter`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.moments import overflowed, two_sum


def block_scatter(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    n_groups: int,
    weight: Floats | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return count, mean, its rest and scatter matrix of each group of rows in this block.

    Parameters
    ----------
    columns
        p columns, each (n,) float64. A NaN makes mean and scatter of its group and column NaN.
    group
        (n,) groups below `n_groups`: classes, or cells and classes.
    n_groups
        Length of each result.
    weight
        (n,) finite and not negative, or None when every row weighs 1. Weight 0 is no row.

    Returns
    -------
    tuple
        count (n_groups,), the sum of the weights; mean (n_groups, p), 0 where count is 0; what
        rounding took from it; and scatter (n_groups, p, p), the sum of w (x - mean)(x - mean)ᵀ,
        symmetric. Deviations whose products overflow make them non-finite, of that group and
        those columns alone.

    Notes
    -----
    Sums run over x - shift with one row of the group as its shift, and once more over x - mean
    in groups where that row was far from the mean, so that 1.7e9 ± 1 keeps its digits and a
    constant column has a scatter of exactly 0.
    """
    columns, group, weight = _rows(columns, group, weight, None)
    shift = np.zeros((n_groups, len(columns)))
    present, first = np.unique(group, return_index=True)
    for i, x in enumerate(columns):
        shift[present, i] = x[first]
    result = _about(shift, columns, group, weight)
    far = far_from_mean(shift, *result)
    if far.any():
        again = _about(result[1], *_rows(columns, group, weight, far[group]))
        for place, better in zip(result, again, strict=True):
            place[far] = better[far]
    return result


def add_scatter(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    here: Ints,
    weight: Floats | None,
    count: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
    *,
    missing: bool,
) -> bool:
    """Add the moments of rows to those of the rows before; return whether this was done.

    Parameters
    ----------
    columns, group, weight
        As in `block_scatter`, groups numbered among those that occur.
    here
        (n_here,) int64, which groups these are of all.
    count, mean, rest, scatter
        As `block_scatter` returns them, of all groups: they are added to. An overflow is infinite
        in them, never NaN.
    missing
        Whether nothing is left out for a missing value; otherwise nothing is added where there is
        one.
    """
    found = block_scatter(columns, group, len(here), weight)
    if not missing and np.isnan(found[1]).any():
        return False
    before, n = count[here], found[0]
    old = n == 0
    none, share = (before == 0)[:, None], n / np.where(old, 1.0, before + n)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = (found[1] - mean[here]) + (found[2] - rest[here])
        apart[none[:, 0] | old] = 0.0
        moved, left = two_sum(mean[here], rest[here] + apart * share[:, None])
        between = apart[:, :, None] * apart[:, None, :] * (before * share)[:, None, None]
        scatter[here] = overflowed(between + scatter[here] + found[3])
    mean[here] = overflowed(np.where(none, found[1], moved))
    rest[here] = np.where(none, found[2], left)
    count[here] += n
    return True


def block_products(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    n_groups: int,
    weight: Floats | None = None,
) -> Floats:
    """Return the sum of w x xᵀ over the rows of each group, as they are, (n_groups, p, p)."""
    return _products(*_rows(columns, group, weight, None), n_groups)


def known_parts(
    values: Floats, group: NDArray[np.unsignedinteger], centre: Floats
) -> tuple[Floats, Floats]:
    """Return deviations from the centre of the group, 0 where a value is missing, and 1 where not.

    Parameters
    ----------
    values
        (n,) one numeric column, NaN where missing.
    group
        (n,) groups.
    centre
        (n_groups,) what is subtracted.

    Returns
    -------
    tuple
        Deviations and indicators of what is known, each (n,) float64.
    """
    known = ~np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(known, values - centre[group], 0.0), known.astype(np.float64)


def far_from_mean(
    shift: Floats, count: Floats, mean: Floats, rest: Floats, scatter: Floats
) -> NDArray[np.bool_]:
    """Return the groups with a shift so far from the mean that the subtraction cost digits."""
    spread = np.einsum("gii->gi", scatter)
    with np.errstate(over="ignore", invalid="ignore"):
        far = count[:, None] * (mean - shift) ** 2 > 256 * spread
    return np.asarray((far & np.isfinite(spread)).any(axis=1))


def from_sums(
    shift: Floats, count: Floats, total: Floats, products: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return count, mean, rest and scatter from the sums of w, w d and w d dᵀ, d = x - shift."""
    n = count[:, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        offset = np.where(n > 0, total / n, 0.0)
        scatter = products - offset[:, :, None] * offset[:, None, :] * n[:, :, None]
    # Rounding can leave ±1e-17 for 0; -inf is an overflow and must not become a number.
    spread = np.einsum("gii->gi", scatter)
    none = (spread <= 0) & np.isfinite(spread)
    scatter[none[:, :, None] | none[:, None, :]] = 0.0
    return count, *two_sum(shift, offset), scatter


def _rows(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    weight: Floats | None,
    kept: NDArray[np.bool_] | None,
) -> tuple[Sequence[Floats], NDArray[np.unsignedinteger], Floats | None]:
    """Return the rows that are kept and have a weight."""
    if weight is not None and not (weight > 0).all():
        kept = weight > 0 if kept is None else kept & (weight > 0)
    if kept is None:
        return columns, group, weight
    weight = None if weight is None else weight[kept]
    return [x[kept] for x in columns], group[kept], weight


def _about(
    shift: Floats,
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    weight: Floats | None,
) -> tuple[Floats, Floats, Floats, Floats]:
    size, p = shift.shape
    total = np.empty((size, p))
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = [x - shift[group, i] for i, x in enumerate(columns)]
        for i, d in enumerate(deviations):
            total[:, i] = np.bincount(group, d if weight is None else weight * d, size)
    count = np.bincount(group, weight, size).astype(np.float64)
    return from_sums(shift, count, total, _products(deviations, group, weight, size))


def _products(
    columns: Sequence[Floats],
    group: NDArray[np.unsignedinteger],
    weight: Floats | None,
    size: int,
) -> Floats:
    p = len(columns)
    result = np.zeros((size, p, p))
    order = np.argsort(group, kind="stable")
    present, first = np.unique(group[order], return_index=True)
    below = [(i, j) for i in range(p) for j in range(i + 1)]
    with np.errstate(over="ignore", invalid="ignore"):
        # Whichever takes fewer steps: group by group, or pair of columns by pair.
        if len(present) <= len(below):
            rows = np.array(columns).reshape(p, len(group))[:, order]
            if weight is not None:
                rows *= np.sqrt(weight[order])
            ends = [*first[1:], len(group)]
            for g, start, end in zip(present, first, ends, strict=False):
                part = rows[:, start:end]
                result[g] = part @ part.T
        else:
            for i, j in below:
                product = columns[i] * columns[j]
                result[:, i, j] = np.bincount(
                    group, product if weight is None else weight * product, size
                )
    upper = np.triu_indices(p, 1)
    result[:, *upper] = result[:, *upper[::-1]]
    return result
