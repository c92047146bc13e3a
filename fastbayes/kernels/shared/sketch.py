"""Entries of a sketch: how often, and between which extremes, values of a class fall into a cell.

A finite number has a key, a uint64 in the order of the numbers. The cell of a key is what remains
of it without its lowest `shift` bits: so cells nest, and which values share one depends on
nothing but their keys and the shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# A weight is a whole number and so many bits of a fraction: integers add up to the same bits in
# any order, and the fractions of as many entries as are ever together stay below 2^63.
FRACTION_BITS = 44
_SIGN = np.uint64(1 << 63)
# Slots of a hash table at first, at least a quarter of which are empty, and bytes of each.
SLOTS, SLOT_BYTES = 1 << 9, 32


class Entries(NamedTuple):
    """Entries in the order of label, then cell; one for each of both that occurs.

    label      (n,) uint16  class
    least      (n,) uint64  least key
    greatest   (n,) uint64  greatest key
    whole      (n,) int64   weight: its whole part
    fraction   (n,) int64   and its fraction, in units of 2^-FRACTION_BITS, below 1
    """

    label: NDArray[Any]
    least: NDArray[Any]
    greatest: NDArray[Any]
    whole: NDArray[Any]
    fraction: NDArray[Any]


NONE = Entries(*(np.empty(0, kind) for kind in ("u2", "u8", "u8", "i8", "i8")))


def keys(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return integers in the order of the numbers; 0.0 and -0.0 have one key."""
    bits = numbers + 0.0
    negative = (bits.view(np.int64) >> 63).view(np.uint64)
    return bits.view(np.uint64) ^ (negative | _SIGN)


def numbers(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the numbers of keys."""
    positive = (keys.view(np.int64) >> 63).view(np.uint64)
    return (keys ^ (~positive | _SIGN)).view(np.float64)


def split(
    weight: NDArray[np.float64] | None, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the whole parts of n weights and their fractions in units of 2^-FRACTION_BITS."""
    if weight is None:
        return np.ones(n, np.int64), np.zeros(n, np.int64)
    whole = weight.astype(np.int64)
    return whole, ((weight - whole) * (1 << FRACTION_BITS)).astype(np.int64)


def ordered(entries: Entries) -> Entries:
    """Return entries in order."""
    order = np.lexsort((entries.least, entries.label))
    return Entries(*(array[order] for array in entries))


def differing(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits in which each key differs from the next greater one."""
    ascending = np.sort(keys)
    return ascending[1:] ^ ascending[:-1]


def allowed(whole: NDArray[Any], fraction: NDArray[Any], limit: int, few: int) -> int:
    """Return how many entries of these weights are to be kept: `few` where few rows are all."""
    total = int(whole.sum()) + (int(fraction.sum()) >> FRACTION_BITS)
    return few if total <= few else limit


def least_shift(apart: Sequence[NDArray[np.uint64]], shift: int, limit: int) -> int:
    """Return the least shift, from one on, at which at most `limit` cells are left; at most 63.

    Neighbours share a cell once the shift is beyond the highest bit in which they differ: `apart`
    holds these bits for the keys of each class.
    """
    spare = limit - len(apart)
    if 0 <= spare >= sum(map(len, apart)):
        return shift
    highest = np.sort(np.concatenate([np.empty(0, np.uint64), *apart]))[::-1]
    return max(shift, min(int(highest[spare]).bit_length(), 63)) if spare >= 0 else 63


def room(entries: int) -> int:
    """Return the slots of a hash table in which so many entries leave room for more."""
    slots = SLOTS
    while 16 * entries > 9 * slots:
        slots *= 4
    return slots


def bytes_needed(rows: float, few: int, *, weighted: bool) -> int:
    """Return the most bytes that a sketch of so many rows takes, while it is made anew too.

    Few rows are held as they are, unless they may weigh as much as many.
    """
    if rows <= few and not weighted:
        return int(16 * rows)
    return 2 * SLOT_BYTES * room(int(min(rows, few)))
