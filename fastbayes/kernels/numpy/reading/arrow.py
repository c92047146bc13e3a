"""Numpy twin of `fastbayes.kernels.compiled.reading.arrow`."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared import arrow


def lay_open(batches: NDArray[np.int64], n_columns: int) -> NDArray[np.int64]:
    """Return where the columns of record batches lie; see the compiled twin."""
    found = []
    for children in batches[:, arrow.CHILDREN].tolist():
        for child in _words(children, n_columns):
            column, entries = _words(child, arrow.WORDS), [0] * (arrow.FIELDS - arrow.ENTRIES)
            if column[arrow.DICTIONARY]:
                dictionary = _words(column[arrow.DICTIONARY], arrow.WORDS)
                where = dictionary[arrow.LENGTH], dictionary[arrow.OFFSET]
                entries = [*where, *_buffers(dictionary, 3)]
            found.append([*column[: arrow.HEAD], *_buffers(column, 2), *entries])
    return np.array(found, np.int64).reshape(len(batches), n_columns, arrow.FIELDS)


def _words(address: int, n: int) -> list[int]:
    return (ctypes.c_int64 * n).from_address(address)[:]


def _buffers(array: list[int], most: int) -> list[int]:
    """Return where the first buffers of an array are, 0 for what it has not."""
    n = min(array[arrow.N_BUFFERS], most)
    return _words(array[arrow.BUFFERS], n) + [0] * (most - n)
