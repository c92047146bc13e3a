"""Rows that agree in all of their columns, in numpy: the twin of `compiled.joint_codes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.codes import Numbered, chained

# Numbers in a matrix for each row, of rows that are taken together.
CHUNK = 1 << 16


def factorise(columns: Sequence[NDArray[np.unsignedinteger]], sizes: Sequence[int]) -> Numbered:
    """Return which rows are equal in all columns.

    Parameters
    ----------
    columns
        m >= 1 arrays (n,) of codes; columns[j][r] < sizes[j].
    sizes
        Codes of each column.

    Returns
    -------
    tuple
        (n,) uint32 number of each row's group, in the order in which groups come first, and
        (n_groups,) the first row of each.
    """
    return chained(columns, sizes, _joint, _numbered)


def _joint(columns: list[Any], sizes: list[int]) -> NDArray[np.uint64]:
    code = columns[0].astype(np.uint64)
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        code = code * np.uint64(size) + column
    return np.asarray(code, np.uint64)


def _numbered(code: NDArray[np.uint64]) -> Numbered:
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(first), np.uint32)
    number[order] = np.arange(len(first))
    return number[group], first[order].astype(np.int64)


def squared_distances(
    x: Floats, rows: NDArray[np.int64], at: NDArray[np.int64], gaussians: Sequence[Floats]
) -> Floats:
    """Return |whiten (x - mean - rest)|^2 of pairs of a row and a Gaussian, (n_pairs,).

    Parameters
    ----------
    x
        (n_rows, p) numbers.
    rows
        (n_pairs,) row of each pair.
    at
        (n_pairs,) its Gaussian.
    gaussians
        mean (n, p), rest (n, p), and whiten (n, p, p), lower triangular.
    """
    mean, rest, whiten = gaussians
    out = np.empty(len(rows))
    step = max(1, CHUNK // max(1, x.shape[1] ** 2))
    with np.errstate(over="ignore", invalid="ignore"):
        for low in range(0, len(rows), step):
            g = at[low : low + step]
            apart = (x[rows[low : low + step]] - mean[g]) - rest[g]
            white = np.matmul(whiten[g], apart[:, :, None])[:, :, 0]
            out[low : low + step] = (white * white).sum(axis=1)
    return out
