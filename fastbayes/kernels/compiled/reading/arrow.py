"""Where the columns of record batches lie, read off the structs of Arrow's C data interface."""

from __future__ import annotations

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd.instructions import carray, pointer_to
from fastbayes.kernels.dispatch import (
    helper,
    interpreted,
    numpy_twin,
    readonly,
    reads,
    short_kernel,
    writes,
)
from fastbayes.kernels.shared.arrow import (
    BUFFERS,
    CHILDREN,
    DICTIONARY,
    ENTRIES,
    FIELDS,
    HEAD,
    LENGTH,
    N_BUFFERS,
    OFFSET,
    WORDS,
)

SIGNATURES = {"read_structs": [(reads("int64", 2), writes("int64", 3))]}


def lay_open(batches: NDArray[np.int64], n_columns: int) -> NDArray[np.int64]:
    """Return where the columns of record batches lie.

    batches  IN   (n_batches, WORDS) int64   an `ArrowArray` each, of a struct of the columns
    """
    if interpreted():  # without the compiler there are no pointers
        found: NDArray[np.int64] = numpy_twin("reading.arrow").lay_open(batches, n_columns)
        return found
    columns = np.zeros((len(batches), n_columns, FIELDS), np.int64)
    read_structs(readonly(batches), columns)
    return columns


_word = pointer_to(types.int64)


@helper
def words_at(address, n):
    """Return n words at an address."""
    return carray(_word(np.uint64(address)), n)


@short_kernel
def read_structs(batches, columns):
    """Read the structs of columns.

    batches  IN   (n_batches, WORDS) int64   an `ArrowArray` each, of a struct of the columns
    columns  OUT  (n_batches, n_columns, FIELDS) int64   0 at entry
    """
    for b in range(columns.shape[0]):
        children = words_at(batches[b, CHILDREN], columns.shape[1])
        for j in range(columns.shape[1]):
            fields = columns[b, j]
            column = words_at(children[j], WORDS)
            for k in range(HEAD):
                fields[k] = column[k]
            buffers = words_at(column[BUFFERS], column[N_BUFFERS])
            for k in range(min(buffers.size, 2)):
                fields[HEAD + k] = buffers[k]
            if column[DICTIONARY] != 0:
                entries = words_at(column[DICTIONARY], WORDS)
                fields[ENTRIES] = entries[LENGTH]
                fields[ENTRIES + 1] = entries[OFFSET]
                buffers = words_at(entries[BUFFERS], entries[N_BUFFERS])
                for k in range(min(buffers.size, 3)):
                    fields[ENTRIES + 2 + k] = buffers[k]
