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


# Of fewer numbers sorting them takes less than going over all that have 16 bits.
FEW_NUMBERS = 4096


def alike(flags: Bools) -> Iterator[tuple[Bools, Ints]]:
    """Yield the different columns of a matrix, and where each of them stands."""
    bits = np.packbits(flags, axis=0)
    if len(bits) <= 2:
        # Numbers of 16 bits are sorted by counting.
        which = bits[0].astype(np.uint16)
        if len(bits) == 2:
            which = which << 8 | bits[1]
        if len(bits) == 2 and len(which) < FEW_NUMBERS:
            patterns, counts = np.unique(which, return_counts=True)
        else:
            found = np.bincount(which)
            patterns = np.flatnonzero(found)
            counts = found[patterns]
        columns = np.array([patterns >> 8, patterns & 255] if len(bits) == 2 else [patterns])
    else:
        columns, found = np.unique(bits, axis=1, return_inverse=True)
        which = found.ravel()
        counts = np.bincount(which)
    ends = np.cumsum(counts)
    order = np.argsort(which, kind="stable")
    unpacked = np.unpackbits(columns.astype(np.uint8), axis=0, count=len(flags)).T.astype(np.bool_)
    yield from zip(unpacked, np.split(order, ends[:-1]), strict=True)
