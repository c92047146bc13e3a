"""Entries of a sketch: how often, and between which extremes, values of a class fall into a cell.

A finite number has a key, a uint64 in the order of the numbers. The cell of a key is what remains
of it without its lowest `shift` bits: so cells nest, and which values share one depends on
nothing but their keys and the shift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# A weight is a whole number and so many bits of a fraction: integers add up to the same bits in
# any order, and the fractions of a block of rows stay below 2^63.
FRACTION_BITS = 46
_FRACTION = np.int64((1 << FRACTION_BITS) - 1)
_SIGN = np.uint64(1 << 63)


class Entries(NamedTuple):
    """Entries in the order of label, then cell; one for each of both that occurs.

    label      (n,) uint16  class
    least      (n,) uint64  least key
    greatest   (n,) uint64  greatest key
    whole      (n,) int64   weight: its whole part
    fraction   (n,) int64   and its fraction, in units of 2^-FRACTION_BITS, below 1
    """

    label: NDArray[np.uint16]
    least: NDArray[np.uint64]
    greatest: NDArray[np.uint64]
    whole: NDArray[np.int64]
    fraction: NDArray[np.int64]


def keys(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return integers in the order of the numbers; 0.0 and -0.0 have one key."""
    bits = numbers + 0.0
    negative = (bits.view(np.int64) >> 63).view(np.uint64)
    return bits.view(np.uint64) ^ (negative | _SIGN)


def numbers(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the numbers of keys."""
    positive = (keys.view(np.int64) >> 63).view(np.uint64)
    return (keys ^ (~positive | _SIGN)).view(np.float64)


def entries(
    values: NDArray[np.float64],
    labels: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    shift: int,
) -> Entries:
    """Return the entries of a block of rows; NaN is left out.

    values  IN  (n,) float64
    labels  IN  (n,) uint8 | uint16
    weight  IN  (n,) float64, below 2^32; None when every row weighs 1
    """
    known = ~np.isnan(values)
    if not known.all():
        values, labels = values[known], labels[known]
        weight = None if weight is None else weight[known]
    key = keys(values)
    if weight is None:
        return _joined([_counted(label, np.sort(key[rows]), shift) for label, rows in _by(labels)])
    whole = weight.astype(np.int64)
    fraction = ((weight - whole) * (1 << FRACTION_BITS)).astype(np.int64)
    single = Entries(labels.astype(np.uint16), key, key, whole, fraction)
    return reduced([single], shift)


def reduced(parts: Sequence[Entries], shift: int) -> Entries:
    """Return the entries of several together, those of one class and cell made one."""
    label, least, greatest, whole, fraction = (np.concatenate(a) for a in zip(*parts, strict=True))
    done = []
    for value, rows in _by(label):
        order = np.argsort(least[rows])
        here = np.arange(len(label))[rows][order]
        key = least[here]
        first = _starts(key >> np.uint64(shift))
        part = np.add.reduceat(fraction[here], first)
        done.append(
            Entries(
                np.full(len(first), value, np.uint16),
                key[first],
                np.maximum.reduceat(greatest[here], first),
                np.add.reduceat(whole[here], first) + (part >> FRACTION_BITS),
                part & _FRACTION,
            )
        )
    return _joined(done)


def _by(labels: NDArray[np.unsignedinteger]) -> Iterator[tuple[int, NDArray[np.intp] | slice]]:
    """Yield each class that occurs and its rows."""
    if not len(labels):
        return
    if (labels == labels[0]).all():
        yield int(labels[0]), slice(None)
        return
    order = np.argsort(labels, kind="stable")
    first = _starts(labels[order])
    for rows in np.split(order, first[1:]):
        yield int(labels[rows[0]]), rows


def _starts(ascending: NDArray[np.unsignedinteger]) -> NDArray[np.intp]:
    """Return where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1])))


def _counted(label: int, ascending: NDArray[np.uint64], shift: int) -> Entries:
    first = _starts(ascending >> np.uint64(shift))
    ends = np.append(first[1:], len(ascending))
    return Entries(
        np.full(len(first), label, np.uint16),
        ascending[first],
        ascending[ends - 1],
        (ends - first).astype(np.int64),
        np.zeros(len(first), np.int64),
    )


def _joined(parts: Sequence[Entries]) -> Entries:
    if not parts:
        none = np.empty(0, np.uint64)
        return Entries(np.empty(0, np.uint16), none, none, none.view("i8"), none.view("i8"))
    return Entries(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
