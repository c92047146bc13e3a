"""From rows to columns: an array turned, and its category codes narrowed, for the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.core.errors import DataError

TILE_CELLS = 1 << 14  # cells turned together: rows and columns of a tile stay in cache
CODES = (np.uint8, np.uint16, np.uint32)


def turned(X: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return the columns of X as the rows of a C-contiguous array.

    Parameters
    ----------
    X
        (n_rows, n_features) numbers in the range of `dtype`; fractions are cut off for integers.
    dtype
        What to return.

    Returns
    -------
    numpy.ndarray
        (n_features, n_rows).
    """
    result = np.empty(X.shape[::-1], dtype)
    for rows in tiles(X):
        result[:, rows] = X[rows].T
    return result


def tiles(X: NDArray[Any]) -> list[slice]:
    """Return ranges of rows that are turned one after the other.

    Parameters
    ----------
    X
        (n_rows, n_features), n_features at least 1.

    Returns
    -------
    list
        All rows in one range where X already stores columns.
    """
    n_rows, n_features = X.shape
    step = n_rows if X.flags.f_contiguous else min(4096, max(256, TILE_CELLS // n_features))
    return [slice(start, start + step) for start in range(0, n_rows, step)]


def columns(X: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Return the columns of X as contiguous float64 arrays.

    Parameters
    ----------
    X
        (n_rows, n_features) numbers.

    Returns
    -------
    list
        n_features arrays (n_rows,).
    """
    return list(turned(X, np.float64))


class ColumnCodes:
    """Category codes of an array, each column in the narrowest type that holds its codes.

    Parameters
    ----------
    sizes
        (n_features,) S_j.
    """

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        # Two more codes have a place when rows are scored: a missing value and an unseen one.
        widths = np.select([sizes + 2 <= 1 << 8, sizes + 2 <= 1 << 16], [0, 1], 2)
        groups = [(np.flatnonzero(widths == w), CODES[w]) for w in range(len(CODES))]
        self._groups = [(f, dtype, sizes[f]) for f, dtype in groups if len(f)]

    def counted(self, X: NDArray[Any]) -> tuple[Codes, ...]:
        """Return the codes of rows; the sizes are those found in this block.

        Raises
        ------
        OverflowError
            When a code is negative or S_j or more.
        """
        result = []
        for features, dtype, sizes in self._groups:
            codes = self._turned(X, features, dtype, None)
            found = codes.max(axis=1).astype(np.int64) + 1
            if (found > sizes).any():
                raise OverflowError
            result.append(Codes(features, codes, found))
        return tuple(result)

    def scored(self, X: NDArray[Any]) -> tuple[Codes, ...]:
        """Return the codes of rows; one of S_j or more becomes unseen, S_j + 1.

        Raises
        ------
        DataError
            When a code is negative.
        """
        result = []
        for features, dtype, sizes in self._groups:
            codes = self._turned(X, features, dtype, sizes)
            for j in np.flatnonzero(codes.max(axis=1) >= sizes):
                codes[j][codes[j] >= sizes[j]] = dtype(sizes[j] + 1)
            result.append(Codes(features, codes, sizes + 2))
        return tuple(result)

    @staticmethod
    def _turned(X: NDArray[Any], features: Any, dtype: Any, sizes: Any) -> NDArray[Any]:
        """Turn columns into codes; what does not fit the type is unseen, or an error."""
        limit = np.iinfo(dtype).max
        result = np.empty((len(features), len(X)), dtype)
        for rows in tiles(X):
            tile = X[rows] if len(features) == X.shape[1] else X[rows, features]
            if not _within(tile, limit):
                if sizes is None:
                    raise OverflowError
                if not (tile > -1).all():
                    raise DataError(
                        "Negative values in data passed to CategoricalNB (input X): the least is "
                        f"{tile.min()}; number the categories from 0"
                    )
                tile = np.where(tile >= sizes, sizes + 1, tile)
            result[:, rows] = tile.T
        return result


def _within(tile: NDArray[Any], limit: int) -> bool:
    """Return whether all numbers, fractions cut off, are in 0, ..., limit: in one pass."""
    if tile.dtype.kind == "f":
        return bool(tile.min() > -1 and tile.max() < limit + 1)
    if tile.dtype.kind == "i":  # as unsigned, the negative ones are the largest
        tile = tile.view(f"u{tile.itemsize}")
    return bool(tile.max() <= limit)
