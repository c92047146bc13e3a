"""Codes of Arrow columns: dictionary indices, integers in a range, booleans.

Bitmaps are Arrow's: least significant bit first, starting at any bit. What lies under a null
may be garbage and is never used as an index. Kernels take bits as bytes: numpy unpacks them
into a block that stays in the second-level cache for a twentieth of a nanosecond each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import bits
from fastbayes.kernels.compiled.texts import add_texts as add_texts
from fastbayes.kernels.compiled.texts import find_texts as find_texts
from fastbayes.kernels.compiled.texts import indexed as indexed
from fastbayes.kernels.dispatch import interpreted, kernel, numpy_twin, readonly, reads, writes
from fastbayes.kernels.shared.codes import FEW_ENTRIES

# Rows of one block of unpacked bits.
BLOCK = 65_536
# Rows of one block of places in a table: 16 KiB.
PLACES = 4096
_NULL = 255

_ALL_KNOWN = readonly(np.empty(0, np.uint8))
_ONE = np.zeros(1, np.uint32)

_INDICES = ("uint8", "uint16", "uint32", "uint64")
_CODES = ("uint8", "uint16", "uint32")

SIGNATURES = {
    "narrow": [
        (reads(index), reads("uint8"), reads(code), writes(code), writes("uint64"))
        for index in _INDICES
        for code in _CODES
    ],
    "look_up": [
        (
            *(reads(index), reads("uint8"), "uint64", "uint64", reads("uint32"), reads(code)),
            *(writes("uint32"), writes(code), writes("int64")),
        )
        for index in _INDICES
        for code in _CODES
    ],
    "take_block": [
        (
            *(reads("uint64"), reads("int64"), reads("uint8", 2), reads("int64")),
            *(writes("uint8", 2), writes("uint8"), writes("uint32")),
        )
    ],
    "translate": [(reads("uint8"), reads("uint8"), writes("uint8"), writes("uint8"))],
    "extremes": [(reads("int64"), reads("uint8"), writes("int64"))],
}


def take(
    indices: NDArray[np.integer],
    validity: NDArray[np.uint8] | None,
    bit_offset: int,
    table: NDArray[np.uint32] | None,
    missing: int,
    out: NDArray[np.unsignedinteger],
) -> bool:
    """Write the codes of dictionary indices; return whether all known indices were inside.

    out[r] = table[indices[r]], or indices[r] without a table, or `missing` where null. If an
    index is outside the table (without one: not below `missing`), `out` holds no valid codes.

    indices     IN   (n,) any integer type
    validity    IN   bitmap or None; row r is bit bit_offset + r
    table       IN   (n_entries,) uint32, or None for the identity
    missing     IN   code of a null
    out         OUT  (n,) uint8 | uint16 | uint32
    """
    # A negative index, read as unsigned, is beyond any table.
    unsigned = indices.view(f"u{indices.itemsize}")
    if table is not None and 0 < len(table) <= FEW_ENTRIES and out.dtype == np.uint8:
        return _take_few(unsigned, validity, bit_offset, table, missing, out)
    if table is not None or missing == 0:
        table = np.empty(0, np.uint32) if table is None else table
        return _look_up(unsigned, 0, table, (missing, missing), validity, bit_offset, out)
    return _narrow(unsigned, validity, bit_offset, missing, out) < missing


def take_columns(
    columns: Sequence[NDArray[np.uint32]],
    tables: Sequence[NDArray[np.uint32] | None],
    rows: Sequence[int],
    out: NDArray[np.uint8],
) -> NDArray[np.uint32]:
    """Write the codes of several columns without nulls; return the largest index of each.

    out[rows[i], r] = tables[i][columns[i][r]], or columns[i][r] without a table. One call for a
    block: a call a column is as long as its overhead, and between two threads the interpreter's
    lock would change hands at every one.

    columns     IN   (n,) uint32 each, C-contiguous
    tables      IN   (n_entries,) uint32 codes below 256 each, n_entries <= FEW_ENTRIES; or None
    rows        IN   row of `out` for each column
    out         OUT  (n_rows, n) uint8   holds no valid codes where an index is outside its table
    """
    largest = np.zeros(len(columns), np.uint32)
    entries = np.array([0 if table is None else len(table) for table in tables], np.int64)
    codes = np.zeros((len(columns), FEW_ENTRIES), np.uint8)
    for i, table in enumerate(tables):
        if table is not None:
            codes[i, : len(table)] = table
    if interpreted():  # without the compiler there are no pointers
        return numpy_twin("encode").take_columns(columns, tables, rows, out)
    addresses = np.array([x.__array_interface__["data"][0] for x in columns], np.uint64)
    places = np.array(rows, np.int64)
    inputs = readonly(addresses), readonly(entries), readonly(codes), readonly(places)
    take_block(*inputs, out, np.empty(PLACES, np.uint8), largest)
    return largest


def spread(
    values: NDArray[np.int64],
    minimum: int,
    table: NDArray[np.uint32],
    missing: int,
    validity: NDArray[np.uint8] | None,
    bit_offset: int,
    out: NDArray[np.unsignedinteger],
) -> bool:
    """Write the codes of integers in a range; return whether all known values were inside.

    out[r] = table[values[r] - minimum], `missing` where null, `missing` + 1 ("unseen") outside.

    values      IN   (n,) int64
    minimum     IN   value of the first entry; that of the last one must be an int64 too
    table       IN   (n_entries,) uint32
    missing     IN   code of a null
    validity    IN   bitmap or None; row r is bit bit_offset + r
    out         OUT  (n,) uint8 | uint16 | uint32
    """
    # Modulo 2^64 the difference is below n_entries for the values inside and for no other.
    others = (missing + 1, missing)
    return _look_up(values.view(np.uint64), minimum, table, others, validity, bit_offset, out)


def unpack(
    bitmap: NDArray[np.uint8],
    bit_offset: int,
    n: int,
    validity: NDArray[np.uint8] | None,
    validity_offset: int,
    codes: NDArray[np.unsignedinteger],
    out: NDArray[np.unsignedinteger],
) -> None:
    """Write the codes of Arrow booleans.

    bitmap      IN   values; row r is bit bit_offset + r
    validity    IN   bitmap or None; row r is bit validity_offset + r
    codes       IN   (3,) codes of false, true and missing
    out         OUT  (n,) uint8 | uint16 | uint32
    """
    places, outside = np.empty(PLACES, np.uint32), np.zeros(1, np.int64)
    numbers = np.uint64(0), np.uint64(2)
    arrays = readonly(codes[:2].astype(np.uint32)), readonly(codes[1:].astype(out.dtype))
    for rows in _blocks(n):
        values = _bits(bitmap, bit_offset, rows)
        known = _bits(validity, validity_offset, rows)
        look_up(values, known, *numbers, *arrays, places, out[rows], outside)


def min_max(
    values: NDArray[np.int64], validity: NDArray[np.uint8] | None, bit_offset: int
) -> tuple[int, int]:
    """Return the least and the greatest known value, (1, 0) if there is none.

    values      IN   (n,) int64
    validity    IN   bitmap or None; row r is bit bit_offset + r
    """
    limits = np.iinfo(np.int64)
    found = np.array([limits.max, limits.min])
    for rows in _blocks(len(values)):
        known = _bits(validity, bit_offset, rows)
        extremes(readonly(values[rows]), known, found)
    return (int(found[0]), int(found[1])) if found[0] <= found[1] else (1, 0)


def _narrow(
    indices: NDArray[np.unsignedinteger],
    validity: NDArray[np.uint8] | None,
    bit_offset: int,
    missing: int,
    out: NDArray[np.unsignedinteger],
) -> int:
    """Copy indices, `missing` where null; return the largest known one."""
    code, largest = readonly(np.full(1, missing, out.dtype)), np.zeros(1, np.uint64)
    for rows in _blocks(len(out)):
        known = _bits(validity, bit_offset, rows)
        narrow(readonly(indices[rows]), known, code, out[rows], largest)
    return int(largest[0])


def _take_few(
    indices: NDArray[np.unsignedinteger],
    validity: NDArray[np.uint8] | None,
    bit_offset: int,
    table: NDArray[np.uint32],
    missing: int,
    out: NDArray[np.unsignedinteger],
) -> bool:
    """Take codes from a table of a few entries: as bytes first, then each byte for another."""
    if _narrow(indices, validity, bit_offset, _NULL, out) >= len(table):
        return False
    entries = np.arange(len(table) + 1, dtype=np.uint8)
    entries[-1] = _NULL
    codes = np.append(table, np.uint32(missing)).astype(np.uint8)
    if validity is None:
        entries, codes = entries[:-1], codes[:-1]
    translate(readonly(entries), readonly(codes), np.empty(PLACES, np.uint8), out)
    return True


def _look_up(
    values: NDArray[np.unsignedinteger],
    minimum: int,
    table: NDArray[np.uint32],
    others: tuple[int, int],
    validity: NDArray[np.uint8] | None,
    bit_offset: int,
    out: NDArray[np.unsignedinteger],
) -> bool:
    places, outside = np.empty(PLACES, np.uint32), np.zeros(1, np.int64)
    numbers = np.uint64(minimum % 2**64), np.uint64(len(table))
    arrays = readonly(table if len(table) else _ONE), readonly(np.array(others).astype(out.dtype))
    for rows in _blocks(len(out)):
        known = _bits(validity, bit_offset, rows)
        look_up(readonly(values[rows]), known, *numbers, *arrays, places, out[rows], outside)
    return not outside[0]


def _blocks(n: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK))


def _bits(bitmap: NDArray[np.uint8] | None, bit_offset: int, rows: slice) -> NDArray[np.uint8]:
    """Return the bits of some rows as bytes; empty without a bitmap."""
    if bitmap is None:
        return _ALL_KNOWN
    start, stop = bit_offset + rows.start, bit_offset + rows.stop
    bits = np.unpackbits(bitmap[start // 8 : (stop + 7) // 8], bitorder="little")
    return readonly(bits[start % 8 :][: stop - start])


@kernel
def narrow(indices, known, missing, out, largest):
    """Copy into a narrower type: out[r] = indices[r] if known[r] else missing.

    indices  IN   (n,) uint8 | uint16 | uint32 | uint64
    known    IN   (n,) uint8, 0 where null; empty if nothing is
    missing  IN   (1,) code of a null
    out      OUT  (n,) uint8 | uint16 | uint32
    largest  OUT  (1,) uint64   raised to the largest known index
    """
    zero = indices.dtype.type(0)
    top = zero
    if known.size == 0:
        for r in range(out.size):
            index = indices[r]
            top = max(top, index)
            out[r] = index
    else:
        null = missing[0]
        for r in range(out.size):
            index = indices[r]
            top = max(top, index if known[r] else zero)
            out[r] = index if known[r] else null
    largest[0] = max(largest[0], np.uint64(top))


@kernel
def take_block(addresses, entries, tables, rows, out, scratch, largest):
    """Narrow columns of indices to bytes and replace each byte by its code; see `take_columns`.

    addresses  IN   (n_columns,) uint64   of (n,) uint32 indices each
    entries    IN   (n_columns,) int64    entries of its table; 0: an index is its code
    tables     IN   (n_columns, FEW_ENTRIES) uint8
    scratch    OUT  (block of rows,) uint8
    largest    OUT  (n_columns,) uint32   raised to the largest index
    """
    n = out.shape[1]
    for i in range(addresses.size):
        indices = carray(bits.codes32_at(addresses[i]), (n,))
        table = tables[i]
        top = largest[i]
        for first in range(0, n, scratch.size):
            last = min(first + scratch.size, n)
            x, codes = indices[first:last], out[rows[i], first:last]
            for r in range(x.size):
                index = x[r]
                top = max(top, index)
                codes[r] = index
            if entries[i] == 0:
                continue
            new = scratch[: codes.size]
            code = table[0]
            for r in range(codes.size):
                new[r] = code
            for k in range(1, entries[i]):
                entry, code = np.uint8(k), table[k]
                for r in range(codes.size):
                    new[r] = code if codes[r] == entry else new[r]
            for r in range(codes.size):
                codes[r] = new[r]
        largest[i] = top


@kernel
def translate(entries, codes, scratch, out):
    """Replace bytes: out[r] = codes[k] where out[r] = entries[k].

    entries  IN   (n_entries,) uint8   every byte of `out` is one of them
    codes    IN   (n_entries,) uint8
    scratch  OUT  (block of rows,) uint8
    out      OUT  (n,) uint8
    """
    for first in range(0, out.size, scratch.size):
        x = out[first : first + scratch.size]
        new = scratch[: x.size]
        entry, code = entries[0], codes[0]
        for r in range(x.size):
            new[r] = code
        for k in range(1, entries.size):
            entry, code = entries[k], codes[k]
            for r in range(x.size):
                new[r] = code if x[r] == entry else new[r]
        for r in range(x.size):
            x[r] = new[r]


@kernel
def look_up(values, known, minimum, n_entries, table, others, places, out, outside):
    """Map values: out[r] = table[values[r] - minimum], modulo 2^64.

    A vectorised pass finds the places, a scalar one reads them, a vectorised one writes what is
    null: no branch that alternating nulls would mislead.

    values     IN   (n,) uint8 | uint16 | uint32 | uint64
    known      IN   (n,) uint8, 0 where null, else 1; empty if nothing is
    minimum    IN   value of the first entry
    n_entries  IN   entries of the table, uint64
    table      IN   (max(n_entries, 1),) uint32
    others     IN   (2,) codes of a value outside and of a null
    places     OUT  (block of rows,) uint32   scratch
    out        OUT  (n,) uint8 | uint16 | uint32
    outside    OUT  (1,) int64   raised by the number of known values outside
    """
    null = others[1]
    for first in range(0, out.size, places.size):
        last = min(first + places.size, out.size)
        x, k = values[first:last], known[first:last]
        codes, place = out[first:last], places[: last - first]
        beyond = np.uint64(0)
        for r in range(place.size):
            index = np.uint64(x[r]) - minimum
            beyond += np.uint64(index >= n_entries)
            place[r] = index if index < n_entries else np.uint64(0)
        for r in range(place.size):
            codes[r] = table[np.uint64(place[r])]
        if beyond > 0:
            for r in range(place.size):
                if np.uint64(x[r]) - minimum >= n_entries:
                    codes[r] = others[0]
                    outside[0] += 1 if k.size == 0 else np.int64(k[r])
        for r in range(k.size):
            codes[r] = codes[r] if k[r] else null


@kernel
def extremes(values, known, found):
    """Lower found[0] and raise found[1] to the least and greatest known value.

    values  IN   (n,) int64
    known   IN   (n,) uint8, 0 where null; empty if nothing is
    found   OUT  (2,) int64
    """
    least, greatest = found[0], found[1]
    if known.size == 0:
        for r in range(values.size):
            least = min(least, values[r])
            greatest = max(greatest, values[r])
    else:
        for r in range(values.size):
            least = min(least, values[r]) if known[r] else least
            greatest = max(greatest, values[r]) if known[r] else greatest
    found[0], found[1] = least, greatest
