"""Columns of integers to codes: out[r] = table[values[r] - minimum], or what is a code already.

Every column is described once, by where its pieces lie and what their integers stand for. One call
then writes a block of rows of all columns, a few thousand rows at a time that stay in the
first-level cache: the places in the table, in which what is outside and what is null have the last
two; then their codes. Where places and codes are bytes, tables lie in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.reading.texts import add_texts as add_texts
from fastbayes.kernels.compiled.reading.texts import find_texts as find_texts
from fastbayes.kernels.compiled.reading.texts import indexed as indexed
from fastbayes.kernels.compiled.simd import bits, byte_tables
from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import carray, pointer_to
from fastbayes.kernels.compiled.simd.memory import addresses
from fastbayes.kernels.dispatch import (
    Row,
    call,
    helper,
    interpreted,
    kernel,
    numpy_twin,
    readonly,
    reads,
    writes,
)
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.columns import (
    BIT,
    END,
    FIELDS,
    TABLE,
    VALID_BIT,
    VALIDITY,
    VALUES,
    IntegerColumn,
    Translation,
    address_of,
)

# Rows at a time: 16 KiB of places.
ROWS = 4096
# Entries whose places, the two behind them included, are bytes.
MOST_BYTES = 254

_KINDS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1")
_TRUTH = len(_KINDS) - 1
# Fields of a piece behind those of where it lies: what its integers stand for.
MINIMUM, CODES, ENTRIES, SAME, OWN = range(TABLE, TABLE + 5)
_FIELDS = TABLE + 5
# Fields of a column: its pieces, its kind, where in the memory of all codes its own go.
_FIRST, _BEHIND, _KIND, _WATCHED, _OUT, _WIDTH = range(6)
_COLUMN_FIELDS = 6

_PIECES = reads("int64", 2)
SIGNATURES = {
    "write_codes": [
        (
            *(_PIECES, reads("int64", 2), "int64", "int64", writes("uint8")),
            *(writes("uint32"), writes("uint8"), writes("int64"), writes("int64")),
        )
    ],
    "mark": [(_PIECES, "int64", writes("uint32"), writes("bool"))],
    "blank": [(reads("uint64"), reads("uint8"), "int64", writes("uint64"))],
    "seek_unbounded": [(reads("uint64"), "int64", writes("bool"))],
    "seek_classes": [
        (reads(kind), writes("bool"), writes("int64")) for kind in ("uint8", "uint16", "uint32")
    ],
    "extremes": [(_PIECES, "int64", writes("uint8"), writes("int64"))],
}


class CodeWriter:
    """Writes the codes of columns, block after block of rows.

    Parameters
    ----------
    columns
        Where integers are, and what those of each dictionary stand for.
    rows
        Arrays (n,) uint8 | uint16 | uint32, C-contiguous: where to write the codes of a block.
    memory
        (bytes,) uint8, in which all of them lie.

    Attributes
    ----------
    pieces
        (n_pieces, fields) int64: who changes them changes what is written.
    outside, watched
        (n_columns,) int64: known rows so far that no entry stands for; of the watched code.
    """

    def __init__(
        self,
        columns: Sequence[tuple[IntegerColumn, Sequence[Translation]]],
        rows: Sequence[NDArray[np.unsignedinteger]],
        memory: NDArray[np.uint8],
    ) -> None:
        self._kept, self._memory = columns, memory
        self.pieces = _described(columns)
        self._pieces = readonly(self.pieces)
        borders = np.cumsum([0, *(len(column.pieces) for column, _ in columns)]).tolist()
        start = address_of(memory)
        described = [
            (
                *(first, behind, _KINDS.index(column.kind), translations[0].watched),
                *(address_of(row) - start, row.itemsize),
            )
            for first, behind, (column, translations), row in zip(
                borders, borders[1:], columns, rows, strict=False
            )
        ]
        self._columns = readonly(np.array(described, np.int64).reshape(-1, _COLUMN_FIELDS))
        self._places = np.empty(ROWS + 64, np.uint32)
        self._bytes = np.empty(ROWS + 64 + 256, np.uint8)
        self.outside = np.zeros(len(columns), np.int64)
        self.watched = np.zeros(len(columns), np.int64)
        self._twin: Any = None
        if interpreted():  # without the compiler there are no pointers
            self._twin = numpy_twin("reading.encode").CodeWriter(columns, rows, memory)
            self.outside, self.watched = self._twin.outside, self._twin.watched

    def firsts(self) -> list[int]:
        """Return the number of the first piece of each column."""
        firsts: list[int] = self._columns[:, _FIRST].tolist()
        return firsts

    def write(self, first: int, n: int) -> None:
        """Write the codes of n rows from one on."""
        if self._twin is not None:
            self._twin.write(first, n)
            return
        call(
            write_codes,
            *(self._pieces, self._columns, Row(first), n, self._memory),
            *(self._places, self._bytes, self.outside, self.watched),
        )


def occurring(column: IntegerColumn, minimum: int, n_entries: int) -> NDArray[np.bool_]:
    """Return which of the integers from `minimum` on occur, and last if there is any other.

    The result has n_entries + 1 entries.
    """
    if interpreted():
        marked: NDArray[np.bool_] = numpy_twin("reading.encode").occurring(
            column, minimum, n_entries
        )
        return marked
    marks = np.zeros(n_entries + 2, np.bool_)
    translation = Translation(minimum, np.empty(n_entries + 2, np.uint32), -1)
    column = column._replace(pieces=_of_one_table(column))
    pieces = readonly(_described([(column, [translation])]))
    mark(pieces, _KINDS.index(column.kind), np.empty(ROWS + 64, np.uint32), marks)
    return marks[:-1]


def min_max(column: IntegerColumn) -> tuple[int, int]:
    """Return the least and the greatest known value, (1, 0) if there is none."""
    if interpreted():
        least, greatest = numpy_twin("reading.encode").min_max(column)
        return least, greatest
    limits = np.iinfo(np.int64)
    found = np.array([limits.max, limits.min])
    kind, scratch = _KINDS.index(column.kind), np.empty(ROWS + 64, np.uint8)
    extremes(readonly(column.pieces), kind, scratch, found)
    return (int(found[0]), int(found[1])) if found[0] <= found[1] else (1, 0)


def known_numbers(
    values: NDArray[np.float64], bitmap: NDArray[np.uint8], bit: int, out: NDArray[np.float64]
) -> None:
    """Copy numbers, NaN where a bitmap from one bit on says that they are not known."""
    blank(readonly(values.view(np.uint64)), readonly(bitmap), bit, out.view(np.uint64))


def unbounded(columns: Sequence[Floats]) -> NDArray[np.bool_]:
    """Return which columns, equally long, hold a number that is infinite or NaN."""
    if interpreted():
        found: NDArray[np.bool_] = numpy_twin("reading.encode").unbounded(columns)
        return found
    held = [readonly(column) for column in columns]
    result = np.zeros(len(held), np.bool_)
    if held:
        seek_unbounded(addresses(held, [*range(len(held))]), held[0].size, result)
    return result


def note_absent(
    classes: NDArray[np.unsignedinteger], marks: NDArray[np.bool_], absent: NDArray[np.int64]
) -> None:
    """Add to `absent` how many classes none of some rows has.

    classes  IN   (n,) uint8 | uint16 | uint32
    marks    OUT  (n_classes,) bool   scratch
    absent   OUT  (1,) int64
    """
    call(seek_classes, readonly(classes), marks, absent)


def _of_one_table(column: IntegerColumn) -> NDArray[np.int64]:
    """Return pieces that have one translation, whichever they had."""
    pieces = column.pieces.copy()
    pieces[:, TABLE] = 0
    return pieces


def _described(
    columns: Sequence[tuple[IntegerColumn, Sequence[Translation]]],
) -> NDArray[np.int64]:
    """Return the pieces of all columns with what their integers stand for."""
    told = np.array(
        [
            (
                # differences are modulo 2^64
                *(t.minimum - (t.minimum >= 2**63) * 2**64, address_of(t.table)),
                *(t.own + len(t.table) - 2, int(t.same), t.own),
            )
            for _, translations in columns
            for t in translations
        ],
        np.int64,
    ).reshape(-1, _FIELDS - TABLE)
    lying = np.concatenate([np.zeros((0, FIELDS), np.int64), *(c.pieces for c, _ in columns)])
    before = np.cumsum([0, *(len(translations) for _, translations in columns)])[:-1]
    tables = lying[:, TABLE] + np.repeat(before, [len(column.pieces) for column, _ in columns])
    return np.concatenate([lying[:, :TABLE], told[tables]], axis=1)


_EXPONENT = np.uint64(0x7FF << 52)
_NAN = np.float64(np.nan).view(np.uint64)
_u8, _u16, _u32, _u64, _i8, _i16, _i32, _i64 = (
    pointer_to(kind)
    for kind in (
        *(types.uint8, types.uint16, types.uint32, types.uint64),
        *(types.int8, types.int16, types.int32, types.int64),
    )
)


@helper
def bitmap_of(address, bit, n):
    """Return the bitmap at an address that has n bits from one on."""
    return carray(_u8(np.uint64(address)), (bit + n + 7) >> 3)


@helper
def places_of(values, minimum, n_entries, out):
    """Write the places of numbers of up to 32 bits: modulo 2^32 only those inside are below n.

    Returns the greatest, as the other functions of places do.
    """
    least, n, greatest = np.uint32(minimum), np.uint32(n_entries), np.uint32(0)
    for r in range(values.size):
        place = min(np.uint32(np.uint32(values[r]) - least), n)
        greatest = max(greatest, place)
        out[r] = place
    return np.int64(greatest)


@helper
def places_of_bytes(values, lowest, minimum, n_entries, out):
    """Write the places of bytes, the least of whose type is `lowest`."""
    if out.itemsize == 1 and lowest <= minimum and minimum + n_entries <= lowest + 256:
        # As above modulo 2^8: as many at a time as a vector has bytes.
        least, n, greatest = np.uint8(minimum), np.uint8(n_entries), np.uint8(0)
        for r in range(values.size):
            place = min(np.uint8(np.uint8(values[r]) - least), n)
            greatest = max(greatest, place)
            out[r] = place
        return np.int64(greatest)
    return places_of(values, minimum, n_entries, out)


@helper
def places_of_long(values, minimum, n_entries, out):
    """Write the places of numbers of 64 bits."""
    least, n, greatest = np.uint64(minimum), np.uint64(n_entries), np.uint64(0)
    for r in range(values.size):
        place = min(np.uint64(values[r]) - least, n)
        greatest = max(greatest, place)
        out[r] = place
    return np.int64(greatest)


@helper
def put_places(column, kind, first, n, out):
    """Write where rows of a piece stand in its table: n_entries if outside, one more if null.

    Returns whether any may be outside; under a null there may be anything.

    out  OUT  uint8 | uint32 that hold such places, (>= n,); (>= n rounded up to 64) with nulls and
              of truth values
    """
    at, minimum, entries = column[VALUES], column[MINIMUM], column[ENTRIES]
    if kind == _TRUTH:
        bit = column[BIT] + first
        bitmap = bitmap_of(at, bit, n)
        for r in range(0, n, 64):
            bits.put_bits(bits.word_at(bitmap, bit + r), out, np.uint64(r))
        greatest = 1
    elif kind == 0:
        values = carray(_u8(np.uint64(at + first)), n)
        greatest = places_of_bytes(values, 0, minimum, entries, out)
    elif kind == 1:
        values = carray(_u16(np.uint64(at + 2 * first)), n)
        greatest = places_of(values, minimum, entries, out)
    elif kind == 4:
        values = carray(_i8(np.uint64(at + first)), n)
        greatest = places_of_bytes(values, -128, minimum, entries, out)
    elif kind == 5:
        values = carray(_i16(np.uint64(at + 2 * first)), n)
        greatest = places_of(values, minimum, entries, out)
    elif kind == 2 or kind == 6:  # modulo 2^32, or 2^64 below, a sign makes no difference
        values = carray(_u32(np.uint64(at + 4 * first)), n)
        greatest = places_of(values, minimum, entries, out)
    else:
        values = carray(_u64(np.uint64(at + 8 * first)), n)
        greatest = places_of_long(values, minimum, entries, out)
    if column[VALIDITY] != 0:
        bit = column[VALID_BIT] + first
        bitmap = bitmap_of(column[VALIDITY], bit, n)
        null = out.dtype.type(entries + 1)
        for r in range(0, n, 64):
            bits.keep_where(bits.word_at(bitmap, bit + r), out, np.uint64(r), null)
    return greatest >= entries


@helper
def look_up(places, own, table, out):
    """Write the codes at places of a table, before which `own` places are codes themselves."""
    if own == 0:
        for r in range(places.size):
            out[r] = table[np.uint64(places[r])]
    else:
        n = np.uint64(own)
        for r in range(places.size):
            place = np.uint64(places[r])
            out[r] = place if place < n else np.uint64(table[place - n])


@helper
def put_codes(places, as_they_are, own, table, out):
    """Write the codes at places of a table, or the places where these are the codes."""
    if as_they_are:
        for r in range(places.size):
            out[r] = places[r]
    else:
        look_up(places, own, table, out)


@helper
def count_equal(codes, code):
    """Return how many codes are equal to one."""
    n, whole = np.uint32(0), 0
    if codes.itemsize == 1:
        whole = codes.size // 64 * 64
        for r in range(0, whole, 64):
            n += np.uint32(bits.popcount(bits.match(codes, np.uint64(r), np.uint8(code))))
    for r in range(whole, codes.size):
        n += np.uint32(codes[r] == code)
    return np.int64(n)


@helper
def piece_of(pieces, first, behind, row):
    """Return which of the pieces of a column has a row, the last one if none has."""
    while first + 1 < behind:
        middle = (first + behind) >> 1
        if row < pieces[middle - 1, END]:
            behind = middle
        else:
            first = middle
    return first


@kernel
def write_codes(pieces, columns, first, n, memory, places, bytes_, outside, watched):
    """Write the codes of n rows of all columns from one on.

    pieces    IN   (n_pieces, fields) int64   of all columns
    columns   IN   (n_columns, fields) int64
    memory    OUT  (bytes,) uint8   of all codes
    places    OUT  (rows at a time + 64,) uint32   scratch
    bytes_    OUT  (rows at a time + 64 + 256,) uint8   scratch
    outside   OUT  (n_columns,) int64   += known rows that no entry stands for
    watched   OUT  (n_columns,) int64   += rows of the watched code
    """
    step = places.size - 64
    for j in range(columns.shape[0]):
        kind, width, watch = columns[j, _KIND], columns[j, _WIDTH], columns[j, _WATCHED]
        out = np.int64(to.address(memory)) + columns[j, _OUT]
        now = piece_of(pieces, columns[j, _FIRST], columns[j, _BEHIND], first)
        start = first
        while start < first + n:
            while pieces[now, END] <= start:
                now += 1
            begin = pieces[now - 1, END] if now > columns[j, _FIRST] else 0
            rows = min(first + n, pieces[now, END]) - start
            write_piece(
                pieces[now], kind, start - begin, rows, out + width * (start - first), width,
                watch, step, places, bytes_, outside[j:], watched[j:],
            )  # fmt: skip
            start += rows


@helper
def write_piece(
    piece, kind, start, rows, out, width, watch, step, places, bytes_, outside, watched
):
    """Write the codes of rows of a piece of a column, from one on, to an address."""
    entries, own = piece[ENTRIES], piece[OWN]
    nulls = piece[VALIDITY] != 0
    same = piece[SAME] != 0 and not nulls and kind != _TRUTH
    table = carray(_u32(np.uint64(piece[CODES])), entries - own + 2)
    if width == 1 and entries <= MOST_BYTES and not same:
        for k in range(entries + 2):
            bytes_[step + 64 + k] = k if k < own else table[k - own]
    for first in range(start, start + rows, step):
        n = min(step, start + rows - first)
        at = np.uint64(out + width * (first - start))
        if width == 1 and entries <= MOST_BYTES:
            codes = carray(_u8(at), n)
            if same:
                if put_places(piece, kind, first, n, codes):
                    beyond = count_equal(codes, np.uint8(entries))
                    if beyond > 0:
                        look_up(codes, own, table, codes)
                    outside[0] += beyond
            else:
                if put_places(piece, kind, first, n, bytes_):
                    outside[0] += count_equal(bytes_[:n], np.uint8(entries))
                whole = n // 64 * 64
                near = entries + 2 if nulls else entries
                byte_tables.look_up(bytes_, whole, bytes_, step + 64, near, codes)
                look_up(bytes_[whole:n], own, table, codes[whole:])
        else:
            as_they_are = same
            if put_places(piece, kind, first, n, places):
                outside[0] += count_equal(places[:n], np.uint32(entries))
                as_they_are = False
            if width == 1:
                put_codes(places[:n], as_they_are, own, table, carray(_u8(at), n))
            elif width == 2:
                put_codes(places[:n], as_they_are, own, table, carray(_u16(at), n))
            else:
                put_codes(places[:n], as_they_are, own, table, carray(_u32(at), n))
        if watch >= 0 and width == 1:
            watched[0] += count_equal(carray(_u8(at), n), np.uint8(watch))
        elif watch >= 0 and width == 2:
            watched[0] += count_equal(carray(_u16(at), n), np.uint16(watch))
        elif watch >= 0:
            watched[0] += count_equal(carray(_u32(at), n), np.uint32(watch))


@kernel
def blank(values, bitmap, bit, out):
    """Copy the bits of numbers, those of NaN over them where the numbers are not known.

    values  IN   (n,) uint64
    bitmap  IN   uint8
    bit     IN   bit of the first number in it
    out     OUT  (n,) uint64
    """
    for start in range(0, values.size, 64):
        known = bits.word_at(bitmap, bit + start)
        x, blanked = values[start : start + 64], out[start : start + 64]
        # No branch: which numbers are known cannot be foretold.
        for k in range(x.size):
            blanked[k] = x[k] | (((known >> np.uint64(k)) & np.uint64(1)) - np.uint64(1)) & _NAN


@kernel
def seek_unbounded(columns, n, out):
    """Tell which columns hold a number that is infinite or NaN.

    columns  IN   (n_columns,) uint64   of (n,) float64 each
    n        IN   rows
    out      OUT  (n_columns,) bool
    """
    for j in range(columns.size):
        x, found = carray(_u64(columns[j]), n), np.uint64(0)
        # Bits, as their order of adding does not matter: many at a time.
        for k in range(n):
            found |= np.uint64(x[k] & _EXPONENT == _EXPONENT)
        out[j] = found != np.uint64(0)


@kernel
def seek_classes(classes, marks, absent):
    """Add how many classes are absent; see `note_absent`."""
    left = marks.size
    for c in range(left):
        marks[c] = False
    for r in range(np.uint64(classes.size)):
        c = np.uint64(classes[r])
        if not marks[c]:
            marks[c] = True
            left -= 1
            if left == 0:
                return
    absent[0] += left


@kernel
def mark(pieces, kind, places, marks):
    """Mark the places that occur: marks[place] = True.

    pieces   IN   (n_pieces, fields) int64
    kind     IN   of the integers
    places   OUT  (rows at a time + 64,) uint32   scratch
    marks    OUT  (n_entries + 2,) bool   the last two: another value, null
    """
    step = places.size - 64
    begin = 0
    for p in range(pieces.shape[0]):
        n = pieces[p, END] - begin
        for start in range(0, n, step):
            rows = min(step, n - start)
            put_places(pieces[p], kind, start, rows, places)
            for r in range(rows):
                marks[np.uint64(places[r])] = True
        begin += n


@helper
def least_and_greatest(values, known, found):
    """Lower found[0] and raise found[1] to the least and greatest known value."""
    least, greatest = found[0], found[1]
    if known.size == 0:
        for r in range(values.size):
            least, greatest = min(least, np.int64(values[r])), max(greatest, np.int64(values[r]))
    else:
        for r in range(values.size):
            v = np.int64(values[r])
            least = min(least, v) if known[r] else least
            greatest = max(greatest, v) if known[r] else greatest
    found[0], found[1] = least, greatest


@kernel
def extremes(pieces, kind, scratch, found):
    """Lower found[0] and raise found[1] to the least and greatest known value.

    pieces   IN   (n_pieces, fields) int64
    kind     IN   of the integers
    scratch  OUT  (rows at a time + 64,) uint8
    found    OUT  (2,) int64
    """
    step = scratch.size - 64
    begin = 0
    for p in range(pieces.shape[0]):
        n, values = pieces[p, END] - begin, pieces[p, VALUES]
        for start in range(0, n, step):
            rows = min(step, n - start)
            known = scratch[:0]
            if pieces[p, VALIDITY] != 0:
                bit = pieces[p, VALID_BIT] + start
                bitmap = bitmap_of(pieces[p, VALIDITY], bit, rows)
                for r in range(0, rows, 64):
                    bits.put_bits(bits.word_at(bitmap, bit + r), scratch, np.uint64(r))
                known = scratch[:rows]
            if kind == 0:
                least_and_greatest(carray(_u8(np.uint64(values + start)), rows), known, found)
            elif kind == 1:
                least_and_greatest(carray(_u16(np.uint64(values + 2 * start)), rows), known, found)
            elif kind == 2:
                least_and_greatest(carray(_u32(np.uint64(values + 4 * start)), rows), known, found)
            elif kind == 4:
                least_and_greatest(carray(_i8(np.uint64(values + start)), rows), known, found)
            elif kind == 5:
                least_and_greatest(carray(_i16(np.uint64(values + 2 * start)), rows), known, found)
            elif kind == 6:
                least_and_greatest(carray(_i32(np.uint64(values + 4 * start)), rows), known, found)
            else:
                least_and_greatest(carray(_i64(np.uint64(values + 8 * start)), rows), known, found)
        begin += n
