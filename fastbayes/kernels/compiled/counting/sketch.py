"""Entries of a sketch in a hash table; what they mean stands in `fastbayes.kernels.shared.sketch`.

A slot of the table is four numbers: least key, greatest key, whole part of the weight, and its
fraction above the 16 bits of the label. Weights are above 0, so an empty slot is all zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U
from fastbayes.kernels.shared.sketch import (
    FRACTION_BITS,
    SLOTS,
    Entries,
    allowed,
    differing,
    least_shift,
    ordered,
    room,
)

_SIGN = U(1 << 63)
_MAGNITUDE = U((1 << 63) - 1)
_INFINITY = U(0x7FF << 52)
_LABEL = U(0xFFFF)
_LABEL_BITS = U(16)
_FRACTION_BITS = U(FRACTION_BITS)
_FRACTION = U((1 << FRACTION_BITS) - 1)
_GOLDEN = U(0x9E3779B97F4A7C15)
_ODD = U(0xD6E8FEB86659FD93)

# Rows whose slots are fetched ahead: a large table is in no near cache.
AHEAD = 16 if vector.AVAILABLE else 0

_WORDS, _TABLE = reads("uint64"), (writes("uint64"), writes("int64"))
SIGNATURES = {
    "add": [(_WORDS, reads("uint16"), _WORDS, _WORDS, "uint64", "int64", "int64", *_TABLE)],
    "insert": [(_WORDS, "uint64", "int64", *_TABLE)],
}


class SketchEntries:
    """Entries of a sketch that grow with the rows.

    Parameters
    ----------
    limit
        Entries to keep at most.
    few
        Entries to keep as long as the rows together weigh no more than that.
    """

    def __init__(self, limit: int, few: int) -> None:
        self.limit = limit
        self.few = few
        self.shift = 0
        self._used = 0
        self._table = np.zeros(4 * SLOTS, np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._table.nbytes

    def add(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.uint16],
        whole: NDArray[np.int64],
        fraction: NDArray[np.int64],
    ) -> None:
        """Add a block of rows; NaN is left out, and what weighs nothing.

        values    IN  (n,) float64 finite or NaN
        labels    IN  (n,) uint16
        whole     IN  (n,) int64   whole parts of the weights
        fraction  IN  (n,) int64   and their fractions, as `split` gives them
        """
        rows = [readonly(array) for array in (values, labels, whole, fraction)]
        bits, weight = rows[0].view(np.uint64), [array.view(np.uint64) for array in rows[2:]]
        done = 0
        while done < len(values):
            state = np.array([done, self._used])
            numbers = U(self.shift), self._most(), AHEAD
            add(bits, rows[1], *weight, *numbers, self._table, state)
            done, self._used = state.tolist()
            self._make_room()

    def take(self, entries: Entries, shift: int) -> None:
        """Add the entries of another sketch."""
        if shift > self.shift:
            self._rebuild(shift, len(self._table))
        packed = np.empty((len(entries.label), 4), np.uint64)
        packed[:, 0], packed[:, 1], packed[:, 2] = entries.least, entries.greatest, entries.whole
        packed[:, 3] = entries.fraction.view(np.uint64) << _LABEL_BITS | entries.label
        rows = readonly(packed.reshape(-1))
        done = 0
        while done < len(packed):
            state = np.array([done, self._used])
            insert(rows, U(self.shift), self._most(), self._table, state)
            done, self._used = state.tolist()
            self._make_room()

    def entries(self) -> Entries:
        """Return the entries in order."""
        self.settle()
        slots = self._slots()
        fraction = (slots[:, 3] >> _LABEL_BITS).view(np.int64)
        label = (slots[:, 3] & _LABEL).astype(np.uint16)
        whole = slots[:, 2].view(np.int64)
        return ordered(Entries(label, slots[:, 0], slots[:, 1], whole, fraction))

    def __len__(self) -> int:
        """Return how many entries there are."""
        self.settle()
        return self._used

    def _slots(self) -> NDArray[np.uint64]:
        """Return the slots that are not empty."""
        slots = self._table.reshape(-1, 4)
        return slots[(slots[:, 2] | slots[:, 3]) != 0]

    def _most(self) -> int:
        """Return the number of entries at which to stop: more than there is room for."""
        return len(self._table) // 4 * 3 // 4

    def _make_room(self) -> None:
        """Go on with fewer entries, or with a larger table.

        A table that is full holds more entries than are to be kept: where every value is another,
        going back to the limit at each one too many would go one bit at a time.
        """
        if self._used >= self._most():
            self.settle()
            self._rebuild(self.shift, 4 * room(self._used))

    def settle(self) -> None:
        """Find the least shift that leaves few enough entries."""
        if self._used <= self.limit:
            return
        slots = self._slots()
        limit = allowed(slots[:, 2], slots[:, 3] >> _LABEL_BITS, self.limit, self.few)
        if self._used <= limit:
            return
        label = (slots[:, 3] & _LABEL).astype(np.int64)
        apart = [differing(slots[label == c, 0]) for c in np.flatnonzero(np.bincount(label))]
        self._rebuild(least_shift(apart, self.shift, limit), len(self._table))

    def _rebuild(self, shift: int, size: int) -> None:
        self._table, self._used = self._rebuilt(shift, size)
        self.shift = shift

    def _rebuilt(self, shift: int, size: int) -> tuple[NDArray[np.uint64], int]:
        table, state = np.zeros(size, np.uint64), np.zeros(2, np.int64)
        insert(readonly(self._table), U(shift), self._used + 1, table, state)
        return table, int(state[1])


@helper
def key_of(bits):
    """Return the key of a number."""
    word = U(0) if bits == _SIGN else bits  # -0.0 is 0.0
    return word ^ ((U(0) - (word >> U(63))) | _SIGN)


@helper
def home(cell, label, drop):
    """Return where the slot of an entry begins, unless others were there before."""
    return ((cell ^ label * _ODD) * _GOLDEN) >> drop << U(2)


@helper
def place_of(table, at, cell, label, shift):
    """Return where the slot of an entry begins, or an empty one for it, from its home on."""
    mask = U(table.size - 1)
    while True:
        weight, rest = table[at + U(2)], table[at + U(3)]
        if weight | rest == U(0) or (table[at] >> shift == cell and rest & _LABEL == label):
            return at
        at = (at + U(4)) & mask


@helper
def dropped(table):
    """Return how many bits of a hash are too many for a slot of this table."""
    bits, slots = 64, table.size // 4
    while slots > 1:
        bits, slots = bits - 1, slots // 2
    return U(bits)


@helper
def put(table, at, least, greatest, whole, rest):
    """Add to the slot of an entry; return whether it was empty."""
    if table[at + U(2)] | table[at + U(3)] == U(0):
        table[at], table[at + U(1)] = least, greatest
        table[at + U(2)], table[at + U(3)] = whole, rest
        return True
    table[at] = min(table[at], least)
    table[at + U(1)] = max(table[at + U(1)], greatest)
    fraction = (table[at + U(3)] >> _LABEL_BITS) + (rest >> _LABEL_BITS)
    table[at + U(2)] += whole + (fraction >> _FRACTION_BITS)
    table[at + U(3)] = (fraction & _FRACTION) << _LABEL_BITS | rest & _LABEL
    return False


@kernel
def add(bits, labels, whole, fraction, shift, most, ahead, table, state):
    """Add rows to a table until there are `most` entries.

    bits      IN   (n,) uint64   of float64 numbers; NaN is left out
    labels    IN   (n,) uint16
    whole     IN   (n,) uint64   whole parts of the weights
    fraction  IN   (n,) uint64   their fractions
    shift     IN   bits that a cell is short of
    most      IN   entries, fewer than slots
    ahead     IN   rows whose slots are fetched ahead; 0 for none
    table     OUT  (4 * slots,) uint64   slots: a power of two
    state     OUT  (2,) int64   rows done, entries
    """
    first = state[0]
    x, label, used = bits[first:], labels[first:], state[1]
    w, f, drop = whole[first:], fraction[first:], dropped(table)
    for r in range(x.size):
        if ahead and r + ahead < x.size:
            later = U(r + ahead)
            vector.prefetch(table, home(key_of(x[later]) >> shift, U(label[later]), drop))
        if x[r] & _MAGNITUDE > _INFINITY or w[r] | f[r] == U(0):
            continue
        key = key_of(x[r])
        cell = key >> shift
        at = place_of(table, home(cell, U(label[r]), drop), cell, U(label[r]), shift)
        if put(table, at, key, key, w[r], f[r] << _LABEL_BITS | U(label[r])):
            used += 1
            if used >= most:
                state[0], state[1] = first + r + 1, used
                return
    state[0], state[1] = first + x.size, used


@kernel
def insert(slots, shift, most, table, state):
    """Add entries to a table until there are `most` of them.

    slots  IN   (4 * n,) uint64   empty ones among them, as in a table
    shift  IN   bits that a cell is short of
    most   IN   entries, fewer than slots
    table  OUT  (4 * slots,) uint64   slots: a power of two
    state  OUT  (2,) int64   slots done, entries
    """
    used, drop = state[1], dropped(table)
    for r in range(state[0], slots.size // 4):
        i = U(4 * r)
        least, rest = slots[i], slots[i + U(3)]
        if slots[i + U(2)] | rest == U(0):
            continue
        cell = least >> shift
        at = place_of(table, home(cell, rest & _LABEL, drop), cell, rest & _LABEL, shift)
        if put(table, at, least, slots[i + U(1)], slots[i + U(2)], rest):
            used += 1
            if used >= most:
                state[0], state[1] = r + 1, used
                return
    state[0], state[1] = slots.size // 4, used
