"""Array types that kernels and their drivers speak of, and what numpy lacks of arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Unsigned = NDArray[np.unsignedinteger]

# Indices of this type are not checked for being negative: loops of kernels are faster by it.
U = np.uint64


def counted_up(lengths: Ints) -> Ints:
    """Return 0, 1, 2 ... below each of some numbers, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)


def alike(flags: Bools) -> Iterator[tuple[Bools, Ints]]:
    """Yield the different columns of a matrix, and where each of them stands."""
    bits = np.packbits(flags, axis=0)
    if len(bits) <= 2:
        # Numbers of 16 bits are sorted by counting.
        which = bits[0].astype(np.uint16)
        if len(bits) == 2:
            which = which << 8 | bits[1]
        patterns = np.flatnonzero(np.bincount(which))
        columns = np.array([patterns >> 8, patterns & 255] if len(bits) == 2 else [patterns])
        ends = np.cumsum(np.bincount(which)[patterns])
    else:
        columns, found = np.unique(bits, axis=1, return_inverse=True)
        which = found.ravel()
        ends = np.cumsum(np.bincount(which))
    order = np.argsort(which, kind="stable")
    unpacked = np.unpackbits(columns.astype(np.uint8), axis=0, count=len(flags)).T.astype(np.bool_)
    yield from zip(unpacked, np.split(order, ends[:-1]), strict=True)
