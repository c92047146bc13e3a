"""Rows that agree in all of their columns: joint codes, and a table that hashes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.dispatch import kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, U
from fastbayes.kernels.shared.codes import Numbered, chained

# Knuth's multiplier: 2^64 over the golden ratio, odd; its high bits spread runs of codes.
MULTIPLIER = U(0x9E3779B97F4A7C15)
# Entries of a table to begin with: it stays in the first-level cache where groups are few.
ENTRIES = 1 << 10

_FLOAT = "float64"
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "join": [
        (reads(column), "uint64", writes("uint64")) for column in ("uint8", "uint16", "uint32")
    ],
    "number": [
        (
            *(reads("uint64"), "uint64", writes("uint64"), writes("int64"), writes("uint32")),
            writes("int64"),
        )
    ],
    "distances": [
        (
            *(reads(_FLOAT, 2), reads("int64"), reads("int64"), reads(_FLOAT, 2)),
            *(reads(_FLOAT, 2), reads(_FLOAT, 3), writes(_FLOAT), writes(_FLOAT)),
        )
    ],
}


def factorise(columns: Sequence[NDArray[np.unsignedinteger]], sizes: Sequence[int]) -> Numbered:
    """Return which rows are equal in all columns; see the numpy twin."""
    return chained(columns, sizes, _joint, _numbered)


def _joint(columns: list[Any], sizes: list[int]) -> NDArray[np.uint64]:
    code = columns[0].astype(U)
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        join(readonly(column), U(size), code)
    return code


def _numbered(code: NDArray[np.uint64]) -> Numbered:
    n = len(code)
    group, entries = np.empty(n, np.uint32), ENTRIES
    first = np.empty(entries // 2, np.int64)
    state = np.zeros(2, np.int64)
    code = readonly(code)
    while True:
        # A table half full at most; codes known so far are numbered first, so that they keep their
        # numbers.
        slots = np.zeros(2 * entries, U)
        shift = U(64 - (entries.bit_length() - 1))
        if given := int(state[1]):
            again, known = np.zeros(2, np.int64), readonly(code[first[:given]])
            number(known, shift, slots, np.empty_like(first), np.empty(given, np.uint32), again)
        number(code, shift, slots, first, group, state)
        if state[0] == n:
            return group, first[: int(state[1])]
        entries *= 4
        larger = np.empty(entries // 2, np.int64)
        larger[: len(first)] = first
        first = larger


def squared_distances(
    x: Floats, rows: NDArray[np.int64], at: NDArray[np.int64], gaussians: Sequence[Floats]
) -> Floats:
    """Return squared distances of pairs of a row and a Gaussian; see the numpy twin."""
    out = np.empty(len(rows))
    given = map(readonly, (x, rows, at, *gaussians))
    distances(*given, np.empty(x.shape[1]), out)
    return out


@kernel
def join(column, size, code):
    """Make column the last digit of a code: code = code size + column.

    column  IN   (n,) uint8 | uint16 | uint32
    size    IN   uint64
    code    OUT  (n,) uint64
    """
    for r in range(code.size):
        code[r] = code[r] * size + U(column[r])


@kernel
def number(code, shift, slots, first, group, state):
    """Give rows of equal code one number, in the order in which codes come first.

    code   IN   (n,) uint64
    shift  IN   uint64   64 less the bits of an index into the table
    slots  OUT  (2 n_entries,) uint64   code and number + 1 of each entry; 0 where it is free
    first  OUT  (most,) int64   first row of each number; the kernel stops before it overflows
    group  OUT  (n,) uint32   number of each row
    state  OUT  (2,) int64   rows done, and numbers given
    """
    n, most = U(code.size), U(first.size)
    mask = U(slots.size // 2 - 1)
    r, given = U(state[0]), U(state[1])
    while r < n:
        key = code[r]
        at = (key * MULTIPLIER) >> shift
        found = slots[U(2) * at + U(1)]
        while found != U(0) and slots[U(2) * at] != key:
            at = (at + U(1)) & mask
            found = slots[U(2) * at + U(1)]
        if found == U(0):
            if given == most:
                break
            first[given] = r
            given += U(1)
            slots[U(2) * at] = key
            slots[U(2) * at + U(1)] = given
            found = given
        group[r] = np.uint32(found - U(1))
        r += U(1)
    state[0] = r
    state[1] = given


@kernel
def distances(x, rows, at, mean, rest, whiten, scratch, out):
    """Measure pairs of a row and a Gaussian: out[i] = |whiten_g (x_r - mean_g - rest_g)|^2.

    Arguments as for `squared_distances`; scratch (p,) float64.
    """
    p = scratch.size
    for i in range(out.size):
        r, g = rows[i], at[i]
        for j in range(p):
            scratch[j] = (x[r, j] - mean[g, j]) - rest[g, j]
        total = 0.0
        for j in range(p):
            white = 0.0
            for k in range(j + 1):
                white += whiten[g, j, k] * scratch[k]
            total += white * white
        out[i] = total
