"""Information between features, and of features about the class, in numpy.

The twin of `compiled.information`. Information is a sum of differences that nearly cancel where
features are nearly independent, which is the usual case. So it is summed in a form without
cancellation: with o the count of a cell and e the one that independence within the class expects,

    N I(X_i; X_j | C) = Σ o ln(o / e) = Σ [o ln(o / e) - (o - e)],

every term of which is >= 0, and is computed from o - e, an exact integer over n(c).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.information import NOTHING, ROUNDING

# Entries of so many pairs at a time: their temporaries stay within the second-level cache.
ENTRIES = 32_768


# Where |s| = |o - e| / (o + e) <= NEAR, the logarithm is a series of s, Σ s^(2k) / (2k + 3).
NEAR = 0.1
SERIES = tuple(1 / (2 * k + 3) for k in range(8))


def pair_information(
    flat: NDArray[Any],
    first: Ints,
    second: Ints,
    starts: Ints,
    sizes: Ints,
    widths: Ints,
    n_classes: int,
    out: Floats,
) -> None:
    """Compute the conditional mutual information of pairs from their unsmoothed counts.

    out[q] = Σ_abc n_abc / n ln(n_abc n_c / (n_ac n_bc)), sums over the rows of pair q = (i, j) in
    which both features are known; 0 where there are none.

    Parameters
    ----------
    flat
        int64 or float64: n(c, i=a, j=b) = flat[starts[q] + (a widths[j] + b) n_classes + c].
    first, second, starts
        (n_pairs,) features i and j of each pair, in any order, and the first entry of its block.
    sizes
        (m,) number of values S_j of each feature.
    widths
        (m,) width of each feature's side of a block, S_j or more: what lies beyond is not known.
    n_classes
        K. With one class, of counts summed over the classes, the result is I(X_i; X_j).
    out
        (n_pairs,) nats, written.

    Notes
    -----
    The relative error is a few units of rounding also where the information is small, so that
    pairs that are equal on paper compare as equal at 1e-12 whatever the order of columns, values
    and classes.
    """
    n_cells = sizes[first] * sizes[second]
    out[n_cells == 0] = 0.0
    given = np.flatnonzero(n_cells)
    # All pairs at once, whatever their shapes: calls take longer than what they do with one.
    part = np.cumsum(n_cells[given] * n_classes) // ENTRIES
    for some in np.split(given, np.flatnonzero(np.diff(part)) + 1):
        i, j = first[some], second[some]
        rows, columns = _lines(sizes[i], sizes[j]), _lines(sizes[j], sizes[i])
        begin = starts[some][rows.pair] + rows.place * (widths[j] * n_classes)[rows.pair]
        entry = (begin[rows.line] + rows.across * n_classes)[:, None] + np.arange(n_classes)
        out[some] = _information(flat[entry], rows, columns, sizes[j])


class _Lines(NamedTuple):
    """Rows, or columns, of the tables of several pairs, one after the other, and their cells.

    pair, place  (n_lines,) pair of each line and its place in the table
    starts       (n_lines,) where the cells of each begin, if they lie line by line
    line, across (n_cells,) line of each cell and its place there, if they lie line by line
    of_pair      (n_pairs,) where the lines of each pair begin
    """

    pair: Ints
    place: Ints
    starts: Ints
    line: Ints
    across: Ints
    of_pair: Ints


def _lines(n_lines: Ints, lengths: Ints) -> _Lines:
    """Return as many lines of each pair, none without, of its length."""
    of_pair = np.cumsum(n_lines) - n_lines
    pair = np.repeat(np.arange(len(n_lines)), n_lines)
    place = np.arange(len(pair)) - of_pair[pair]
    own = lengths[pair]
    starts = np.cumsum(own) - own
    line = np.repeat(np.arange(len(pair)), own)
    return _Lines(pair, place, starts, line, np.arange(len(line)) - starts[line], of_pair)


def _information(n: NDArray[Any], rows: _Lines, columns: _Lines, widths: Ints) -> Floats:
    """Return I(A; B | C) of each pair from its counts.

    n        (n_cells, K) pair by pair, row by row
    columns  those of the same tables
    widths   (n_pairs,) cells of a row
    """
    first = rows.starts[rows.of_pair]  # cells of the pairs
    pair = rows.pair[rows.line]
    if n.dtype == np.float64:
        # A power of two keeps products within range; a retraction of weights can leave -1e-17.
        whole = np.add.reduceat(n.sum(axis=1), first)
        n = np.ldexp(n, -np.frexp(whole)[1][pair][:, None])
        n[n < NOTHING] = 0.0
    by_row = np.add.reduceat(n, rows.starts)
    n_c = np.add.reduceat(by_row, rows.of_pair)
    # Where the cells lie that follow each other down the columns, and the column of each cell.
    down = first[columns.pair][columns.line] + columns.place[columns.line]
    down += columns.across * widths[columns.pair][columns.line]
    by_column = np.add.reduceat(n[down], columns.starts)
    n_ac, n_bc = by_row[rows.line], by_column[columns.of_pair[pair] + rows.across]
    total, n_c = n_c.sum(axis=1), n_c[pair]
    # o and e, both times n_c.
    observed = n.astype(np.float64) * n_c
    expected = n_ac.astype(np.float64) * n_bc
    difference = observed - expected
    with np.errstate(divide="ignore", invalid="ignore"):
        if n.dtype == np.int64:
            # Both products may wrap around: their difference is exact where it is below 2^63.
            exact = (n * n_c - n_ac * n_bc).astype(np.float64)
            difference = np.where(np.abs(difference) < 2.0**62, exact, difference)
        share = difference / (observed + expected)
        if n.dtype == np.float64:
            share[np.abs(share) < ROUNDING] = 0.0
        square = share * share
        series = np.full_like(square, SERIES[-1])
        for coefficient in SERIES[-2::-1]:
            series *= square
            series += coefficient
        near = difference * share * (1 + (1 + share) * share * series)
        far = np.where(n > 0, observed * np.log(observed / expected), 0.0) - difference
        terms = np.where(np.abs(share) <= NEAR, near, far) / n_c
        known = np.where(n_c > 0, terms, 0.0).sum(axis=1)
        information = np.add.reduceat(known, first) / total
    return np.asarray(np.where(total > 0, information, 0.0))
