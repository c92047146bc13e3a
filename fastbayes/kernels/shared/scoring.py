"""What scorers of both back ends compute the same way: ties, orders of trees, joined columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.density import FARTHEST

Gaussian = tuple[Floats, Floats, Floats, Floats]
# Log joints this close, in units of the largest sum the tables can form, are equal: classes that
# tie on paper then tie whatever the order of the columns, and the lowest class index wins.
EXACT = 8 * 2.0**-53
# Terms of a curve beyond this are tails.
HIGHEST = 1e3


def largest_sum(
    log_prior: Floats, tables: Floats, offsets: NDArray[np.int64], curves: Iterable[Any] = ()
) -> float:
    """Return the sum of the largest finite |term| of the prior and of each feature.

    Of curves the largest constant, up to `HIGHEST`: bins tie on paper, far tails do not.
    """
    sizes = np.abs(np.where(np.isfinite(tables), tables, 0.0)).max(axis=1, initial=0.0)
    terms = np.maximum.reduceat(sizes, offsets[:-1]) if len(sizes) else sizes
    prior = np.abs(log_prior[np.isfinite(log_prior)]).max(initial=0.0)
    for column in curves:
        pieces = [rows.reshape(len(ends), -1)[:, 1::4] for _, (_, _, ends, rows) in column]
        constants = [np.abs(np.where(np.isfinite(c), c, 0.0)).max(initial=0.0) for c in pieces]
        prior += min(max(constants), HIGHEST)
    return float(terms.sum() + prior)


def largest_term(table: Floats) -> float:
    """Return the largest finite |entry|."""
    return float(np.abs(table[np.isfinite(table)]).max(initial=0.0))


def states_of(hidden: NDArray[np.bool_]) -> int:
    """Return over how many codes, the first ones, a feature is summed that is not observed.

    Its values, and missing if it is one of them. Without any it takes part with the code of
    missing.
    """
    return max(len(hidden) - 2 + int(not hidden[-2]), 1)


def children_first(parents: NDArray[np.int64]) -> list[int]:
    """Return the features of a forest, each before its parent."""
    children: list[list[int]] = [[] for _ in parents]
    for feature, parent in enumerate(parents.tolist()):
        if parent >= 0:
            children[parent].append(feature)
    order = [feature for feature, parent in enumerate(parents.tolist()) if parent < 0]
    for feature in order:
        order += children[feature]
    if len(order) < len(parents):
        raise ValueError("parents go round in a circle")
    return order[::-1]


def on_line(x: Floats, center: float, slope: Floats, level: Floats, absent: Floats) -> Floats:
    """Return slope (x - center) + level of each number and class, absent for NaN."""
    with np.errstate(over="ignore"):
        apart = np.clip(x - center, -FARTHEST, FARTHEST)[:, None]
    return np.where(np.isnan(apart), absent, slope * apart + level)


def with_pairs(
    batch_codes: Sequence[Codes], offsets: NDArray[np.int64], pairs: Sequence[tuple[int, int]]
) -> Sequence[Codes]:
    """Return codes of columns, and those of pairs of them as columns of their own.

    Parameters
    ----------
    batch_codes
        Codes of the columns.
    offsets
        First row of each column, and after them of each pair, in a table.
    pairs
        Columns: the code of a pair is that of the first one times the rows of the second one, and
        that of the second one.
    """
    if not pairs:
        return batch_codes
    rows, (first, second) = np.diff(offsets), np.array(pairs).T
    d = len(rows) - len(pairs)
    columns = np.zeros((d, batch_codes[0].codes.shape[1]), np.uint32)
    for group in batch_codes:
        columns[group.features] = group.codes
    more, wide = [], rows[d:] > 1 << 16
    for kind, some in (np.uint16, np.flatnonzero(~wide)), (np.uint32, np.flatnonzero(wide)):
        if len(some):
            codes = columns.astype(kind)
            code = codes[first[some]]
            code *= rows[second[some]].astype(kind)[:, None]
            code += codes[second[some]]
            more.append(Codes(d + some, code, rows[d + some]))
    return [*batch_codes, *more]


def tie_of(log_prior: Floats, tables: Floats, offsets: NDArray[np.int64]) -> float:
    """Return how close log joints are equal: naive Bayes' rounding, and that of each factor."""
    return EXACT * (largest_sum(np.asarray(log_prior), np.asarray(tables), offsets) + len(offsets))
