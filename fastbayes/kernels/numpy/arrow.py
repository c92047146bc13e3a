"""Numpy twin of `fastbayes.kernels.compiled.arrow`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared import arrow
from fastbayes.kernels.shared.columns import array_at


def lay_open(batches: NDArray[np.int64], n_columns: int) -> NDArray[np.int64]:
    """Return where the columns of record batches lie; see the compiled twin."""
    found = np.zeros((len(batches), n_columns, arrow.FIELDS), np.int64)
    for batch, columns in zip(batches, found, strict=True):
        children = array_at(int(batch[arrow.CHILDREN]), n_columns, np.int64)
        for child, fields in zip(children.tolist(), columns, strict=True):
            column = array_at(child, arrow.WORDS, np.int64)
            fields[: arrow.ENTRIES] = column[: arrow.HEAD].tolist() + _buffers(column)[:2]
            if column[arrow.DICTIONARY]:
                entries = array_at(int(column[arrow.DICTIONARY]), arrow.WORDS, np.int64)
                fields[arrow.ENTRIES :] = [*entries[: arrow.HEAD : 2].tolist(), *_buffers(entries)]
    return found


def _buffers(column: NDArray[np.int64]) -> list[int]:
    """Return where the first three buffers of an array are, 0 for what it has not."""
    n = min(int(column[arrow.N_BUFFERS]), 3)
    return [*array_at(int(column[arrow.BUFFERS]), n, np.int64).tolist(), 0, 0, 0][:3]
