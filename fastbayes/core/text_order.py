"""The order of strings by code point, which is that of their bytes in UTF-8."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Keys made at a time: their parts stay in the second-level cache.
_KEYS = 1 << 14


def ascending_texts(
    offsets: NDArray[np.signedinteger], data: NDArray[np.uint8]
) -> NDArray[np.uint32]:
    """Return the places that sort strings side by side; of equal ones either may be the first.

    By as many bytes at once as fit a word, where these are equal by the next ones. A third of the
    time of Arrow's sort, which compares whole strings, for a million values.

    offsets  IN   (n + 1,) int32 | int64   text r is data[offsets[r]:offsets[r + 1]]
    data     IN   (n_bytes,) uint8
    """
    order = np.arange(len(offsets) - 1, dtype=np.uint32)
    if not len(order):
        return order
    if len(data) < offsets[-1] + 8:
        data = np.append(data[: offsets[-1]], np.zeros(8, np.uint8))
    # The eight bytes from each byte on, as a number that compares like them.
    words = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))
    # Rows still in doubt, by their place in the order; which are equal so far; by how many bytes.
    places, group, depth = order.copy(), np.zeros(len(order), np.uint64), 0
    while len(places):
        n_bytes = (60 - int(group[-1]).bit_length()) // 8
        rows, key = order[places], group
        for first in range(0, len(rows), _KEYS):
            some = slice(first, first + _KEYS)
            at = offsets[rows[some]].astype(np.int64) + depth
            left = offsets[rows[some] + np.uint32(1)] - at
            # Nothing is behind a text's end (numpy shifts by 64 to 0); it comes before a zero byte.
            beyond = (64 - 8 * np.minimum(left, n_bytes)).astype(np.uint64)
            word = words[np.minimum(at, len(words) - 1)].astype(np.uint64)
            word = word >> beyond << beyond >> np.uint64(64 - 8 * n_bytes)
            key[some] = group[some] << (8 * n_bytes + 4) | word << 4
            key[some] |= np.minimum(left, n_bytes + 1).astype(np.uint64)
        if (key[1:] < key[:-1]).any():
            by = np.argsort(key)
            key, order[places] = key[by], rows[by]
        equal = (key[1:] == key[:-1]) & (key[1:] & 15 == n_bytes + 1)
        doubt = np.append(equal, False) | np.append(False, equal)
        begins = np.append(True, ~equal)[doubt]
        places, group = places[doubt], (np.cumsum(begins) - 1).astype(np.uint64)
        depth += n_bytes
    return order


def take_texts(
    offsets: NDArray[np.signedinteger], data: NDArray[np.uint8], order: NDArray[np.uint32]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return strings side by side in another order: where each begins, and their bytes.

    order  IN   (n,) uint32   each place once
    """
    sizes = np.diff(offsets)[order]
    ends = np.cumsum(sizes, dtype=np.int64)
    taken = np.append(np.zeros(1, np.int32), ends.astype(np.int32))
    at = np.arange(int(taken[-1])) + np.repeat(offsets[:-1][order] - taken[:-1], sizes)
    return taken, data[at]
