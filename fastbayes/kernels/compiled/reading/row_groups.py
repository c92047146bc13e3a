"""Row groups that are alike, read, decoded and counted by one call without the interpreter's lock.

For each of them the same kernels are called with the same arguments: those that list its pages,
decompress and decode them, and those that count its rows. What is new are its bytes, and in which
order the values of a column stand, as many a writer has them: then its codes are found anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.reading import pages as decoding
from fastbayes.kernels.compiled.reading import zstd
from fastbayes.kernels.compiled.reading.encode import CODES, ENTRIES, SAME
from fastbayes.kernels.compiled.reading.repeat import (
    CallArguments,
    RepeatedCalls,
    call_at,
    native,
    repeat,
)
from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import carray, pointer_to
from fastbayes.kernels.compiled.simd.unaligned import (
    byte,
    copy,
    fours_at,
    read_file,
    span_of,
    word,
)
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared import pages as p
from fastbayes.kernels.shared.columns import address_of
from fastbayes.kernels.shared.row_groups import Chunks, WriterPieces

_INT64_2 = reads("int64", 2)
SIGNATURES = {
    "count_alike": [
        (
            *("int64", _INT64_2, _INT64_2, writes("int64", 3), writes("int64", 2)),
            *(writes("uint8"), "int64", "int64", writes("int64", 2), reads("bool")),
            *(reads("uint8"), reads("uint8"), reads("uint8"), writes("uint8")),
            *(writes("int64", 2), reads("int64"), _INT64_2, _INT64_2),
            *(writes("int64"), _INT64_2, writes("int64")),
        )
    ]
}
_words_at, _codes_at, _bytes_at = map(pointer_to, (types.int64, types.uint32, types.uint8))
U = np.uint64
# Takes the lowest bits of eight bytes together.
_ONES, _TOGETHER = U(0x0101010101010101), U(0x0102040810204080)

# What is done with each row group, and of these calls: what makes them, the first word of their
# arguments, and that of the array of which they take as much as there is.
_LIST, _UNPACK, _DECODE, _COUNT = range(4)
_THUNK, _WORDS, _PART = range(3)
# Of an array of two dimensions: the words that tell how many rows it has.
_SIZE, _ROWS = 2, 5
# The states of the columns: now, before the first page, and when the first rows were decoded.
_NOW, _BEGUN, _DONE = range(3)
# Of the dictionary page of a column: its place in memory, the room there, its bytes, -1 if unknown,
# and where the order of its first entries begins.
_PLACE, _ROOM, _HELD, _ORDER = range(4)
# Of what takes the codes of a column from a table: the column, and where its piece, the codes of
# the first entries, and the room for those of others are.
_COLUMN, _PIECE, _FIRST, _TABLE = range(4)
# Where pages are unpacked to one behind the other, each begins a cache line.
_LINE = 64


class AlikeGroups:
    """Counts row groups that are like the first ones.

    Parameters
    ----------
    chunks
        Where these were decoded.
    bitmaps
        Columns with nulls, each with the bits that tell which of its values are known.
    writers
        What writes codes.
    calls
        What counts the rows.
    """

    def __init__(
        self,
        chunks: Chunks,
        bitmaps: Sequence[tuple[int, NDArray[np.uint8]]],
        writers: Sequence[WriterPieces],
        calls: RepeatedCalls,
    ) -> None:
        self._first = chunks, bitmaps, [w._replace(pieces=w.pieces.copy()) for w in writers]
        self._given = writers
        self.outside = [writer.outside for writer in writers]
        now, source, unpacked = chunks.columns[_NOW], chunks.source, chunks.unpacked
        self.chunks, self._counts = chunks, calls
        self._frames = np.zeros((len(chunks.pages), 4), np.int64)
        self._unpacked = np.zeros(len(chunks.pages), np.bool_)
        memory = chunks.tables, chunks.indices, chunks.out
        program: list[tuple[Any, tuple[Any, ...], int]] = [
            (decoding.find_pages, decoding.listing(source, now, chunks.pages), 0),
            (
                zstd.unpack_frames,
                zstd.unpacking(source, self._frames, unpacked, self._unpacked),
                1,
            ),
            (
                decoding.decode_pages,
                decoding.decoding(source, unpacked, now, chunks.pages, *memory),
                3,
            ),
            (repeat, calls.arguments(), 0),
        ]
        given, made = CallArguments([]), []
        for function, arguments, part in program:
            begins = []
            for argument in arguments:
                begins.append(len(given.words))
                given.add(argument, 0)
            made.append((native(function, arguments), begins[0], begins[part]))
        self._words = np.array(given.words, np.int64)
        self._calls = readonly(np.array(made, np.int64))
        self._most = (len(chunks.indices) - p.LEAD) // (int(now[:, p.UNIT].max()) + 4)
        self._sort({c for writer in writers for _, c, _ in writer.tables})
        others, described = [], []
        for writer in writers:
            for k, c, first in writer.tables:
                others.append(np.empty_like(first))
                described.append((c, *map(address_of, (writer.pieces[k], first, others[-1]))))
        self._codes = readonly(np.array(described, np.int64).reshape(-1, 4))
        nulls = [(column, address_of(bits)) for column, bits in bitmaps]
        self._nulls = readonly(np.array(nulls, np.int64).reshape(-1, 2))
        # the words point to what these hold
        self._owners = program, others

    def copy(
        self,
        counts: Sequence[tuple[NDArray[Any], NDArray[Any]]],
        lend: Callable[[int], NDArray[np.uint8]],
        within: AlikeGroups | None,
    ) -> AlikeGroups:
        """Return what counts the same in another thread, and to other counts of the same size.

        In memory that a function gives, or in that of what the same thread counts at other times.
        """
        chunks, bitmaps, writers = self._first
        own = chunks.elsewhere(lend, None if within is None else within.chunks)
        bits = [(c, np.empty_like(old)) for c, old in bitmaps]
        ranges = [(chunks.out, own.out)]
        ranges += [(old, new) for (_, old), (_, new) in zip(bitmaps, bits, strict=True)]
        moved = [writer.moved(ranges) for writer in writers]
        pairs = [*counts]
        for before, after in zip(self._given, moved, strict=True):
            pairs += [(before.pieces, after.pieces), (before.outside, after.outside)]
        return AlikeGroups(own, bits, moved, self._counts.copy(pairs, lend))

    def _sort(self, others: set[int]) -> None:
        """Take note of dictionary pages, and the order of the entries of some columns."""
        chunks, described = self.chunks, []
        order: list[int] = []
        held = b""
        for c, (page, done) in enumerate(zip(chunks.held, chunks.columns[_DONE], strict=True)):
            described.append((len(held), len(page), len(page), len(order)))
            held += page
            if c in others:
                entries = entries_of(done, chunks.first)
                order += sorted(range(len(entries)), key=entries.__getitem__)
        self._held = np.frombuffer(held, np.uint8).copy()
        self._dictionaries = np.array(described, np.int64)
        self._order = readonly(np.array(order, np.int64))

    def count(self, descriptor: int, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> int:
        """Count row groups of an open file; return how many, up to the first that is not alike.

        Parameters
        ----------
        descriptor
            Of the file.
        starts, sizes
            (n, n_columns) int64: where column chunks are in the file, of which it has all.
        """
        chunks = self.chunks
        found = count_alike(
            *(descriptor, readonly(starts), readonly(sizes), chunks.columns, chunks.pages),
            *(chunks.source, len(chunks.unpacked), self._most, self._frames),
            *map(readonly, (self._unpacked, chunks.tables, chunks.first, chunks.out)),
            *(self._held, self._dictionaries, self._order, self._codes, self._nulls),
            *(self._words, self._calls, self._counts.turn),
        )
        if found < 0:
            name = ("find_pages", "unpack_frames", "decode_pages", "repeat")[-1 - found]
            raise RuntimeError(f"kernel {name} failed, which is an error of fastbayes: report it")
        return int(found)


def entries_of(column: NDArray[np.int64], tables: NDArray[np.uint8]) -> list[bytes]:
    """Return the entries of a dictionary of strings that was decoded."""
    n, at, text = column[[p.ENTRIES, p.TABLE, p.TEXT]].tolist()
    if n < 1:
        return []
    ends = tables[at : at + 4 * (n + 1)].view(np.int32).tolist()
    raw = tables[text : text + ends[-1]].tobytes()
    return [raw[begin:end] for begin, end in pairwise(ends)]


@kernel
def count_alike(
    descriptor, starts, sizes, columns, pages, source, room, most, frames, unpacked, tables, first,
    out, held, dictionaries, order, codes, nulls, words, calls, turn,
):  # fmt: skip
    """Count row groups; return how many, or -1 less the number of a call that failed.

    Nothing is counted of the first one that is not like those before.

    descriptor    IN   of the open file
    starts        IN   (n, n_columns) int64   where column chunks begin in the file
    sizes         IN   (n, n_columns) int64
    columns       OUT  (3, n_columns, N_COLUMN) int64   now; before the first page, when it was done
    pages         OUT  (room, N_PAGE) int64
    source        OUT  uint8   bytes of the file
    room, most    IN   bytes that may be unpacked, rows of a page
    frames        OUT  (room, 4) int64   as `zstd.unpack` takes them
    unpacked      IN   (room,) bool   which of them were unpacked
    tables, first, out   IN   uint8   decoded dictionaries, the first ones, values
    held          OUT  uint8   dictionary pages by which the codes were found
    dictionaries  OUT  (n_columns, 4) int64
    order         IN   int64   of the first entries of each column
    codes         IN   (n_tables, 4) int64   what takes codes from a table
    nulls         IN   (n, 2) int64   column, and where its bits are
    words         OUT  int64   arguments of the calls
    calls         IN   (4, 3) int64
    turn          OUT  (1,) int64   as `repeat` takes it
    """
    now, done, start = columns[_NOW], columns[_DONE], np.int64(to.address(words))
    for g in range(starts.shape[0]):
        if not fetch(descriptor, starts[g], sizes[g], columns, source):
            return g
        failed, n_pages = call_at(calls[_LIST, _THUNK], start + 8 * calls[_LIST, _WORDS])
        if failed != 0:
            return -1 - _LIST
        if n_pages > pages.shape[0] or not as_listed(now, done):
            return g
        n_frames = place_pages(now, pages, n_pages, room, most, frames)
        if n_frames < 0:
            return g
        if n_frames > 0:
            set_rows(words, calls[_UNPACK, _PART], n_frames, frames.shape[1])
            failed, _ = call_at(calls[_UNPACK, _THUNK], start + 8 * calls[_UNPACK, _WORDS])
            if failed != 0:
                return -1 - _UNPACK
            for k in range(n_frames):
                if not unpacked[k]:
                    return g
        set_rows(words, calls[_DECODE, _PART], n_pages, pages.shape[1])
        failed, _ = call_at(calls[_DECODE, _THUNK], start + 8 * calls[_DECODE, _WORDS])
        if failed != 0:
            return -1 - _DECODE
        if not as_decoded(now, done):
            return g
        for k in range(n_pages):
            page = pages[k]
            if page[p.TYPE] == p.DICTIONARY and not is_held(page, source, dictionaries, held):
                c = page[p.OF]
                dictionaries[c, _HELD] = -1
                entries = order[dictionaries[c, _ORDER] :]
                if not translated(c, now[c], done[c], tables, first, entries, codes):
                    return g
                hold(page, source, dictionaries[c], held)
        for k in range(nulls.shape[0]):
            c = nulls[k, 0]
            pack(out, now[c, p.KNOWN], now[c, p.HELD], nulls[k, 1])
        turn[0] = 0
        failed, wrong = call_at(calls[_COUNT, _THUNK], start + 8 * calls[_COUNT, _WORDS])
        if failed != 0 or wrong >= 0:
            return -1 - _COUNT
    return starts.shape[0]


@helper
def set_rows(words, at, n, width):
    """Let an array of two dimensions among arguments have n rows."""
    words[at + _SIZE], words[at + _ROWS] = n * width, n


@helper
def fetch(descriptor, starts, sizes, columns, source):
    """Read chunks, and begin with them anew; return whether there is room and all could be read.

    Those that stand side by side in the file are read at once.
    """
    x, room = span_of(source), source.size - p.SLACK
    begin = at = offset = 0
    for c in range(starts.size):
        if c == 0 or starts[c] != offset + at - begin:
            if read_file(descriptor, offset, x, begin, at - begin) != at - begin:
                return False
            # A copy to other places modulo a page of the system can take thrice as long.
            at += (starts[c] - at) % p.ALIGNED
            begin, offset = at, starts[c]
        if sizes[c] > room - at:
            return False
        for k in range(columns.shape[2]):
            columns[_NOW, c, k] = columns[_BEGUN, c, k]
        columns[_NOW, c, p.BEGIN] = at
        at += sizes[c]
        columns[_NOW, c, p.END] = at
        columns[_NOW, c, p.MORE] = 0
        columns[_NOW, c, p.WANTED] = columns[_NOW, c, p.ROWS]
    return read_file(descriptor, offset, x, begin, at - begin) == at - begin


@helper
def as_listed(now, done):
    """Return whether pages are sound and their rows go where the first ones are; place them."""
    for c in range(now.shape[0]):
        column, before = now[c], done[c]
        if column[p.STATUS] != p.SOUND or column[p.NEEDED] != 0:
            return False
        if column[p.LISTED] != before[p.LISTED]:
            return False
        if column[p.FOUND] > before[p.FOUND] or column[p.SPACE] > before[p.SPACE]:
            return False
        column[p.OUT], column[p.KNOWN] = before[p.OUT], before[p.KNOWN]
        column[p.TABLE], column[p.TEXT] = before[p.TABLE], before[p.TEXT]
    return True


@helper
def place_pages(now, pages, n_pages, room, most, frames):
    """Place pages that `decode_pages` does not unpack; return how many, -1 without the room."""
    n = at = largest = 0
    for k in range(n_pages):
        page = pages[k]
        size = page[p.RAW] - page[p.LEVELS]
        if page[p.VALUES] > most:
            return -1
        if not page[p.COMPRESSED]:
            continue
        if size > room - at:  # a header may say any size
            return -1
        largest = max(largest, size)
        if now[page[p.OF], p.CODEC] == p.FOREIGN and size > 0:
            frames[n, 0], frames[n, 1] = page[p.AT] + page[p.LEVELS], page[p.AT] + page[p.PACKED]
            frames[n, 2], frames[n, 3] = at, size
            page[p.PLACE] = at
            at += size + -size % _LINE
            n += 1
    return n if at + largest + p.SLACK <= room else -1


@helper
def as_decoded(now, done):
    """Return whether all rows are there, and the same columns have nulls."""
    for c in range(now.shape[0]):
        column, before = now[c], done[c]
        if column[p.STATUS] != p.SOUND or column[p.ROWS] != before[p.ROWS]:
            return False
        if column[p.HELD] != before[p.HELD] or (column[p.NULLS] > 0) != (before[p.NULLS] > 0):
            return False
    return True


@helper
def is_held(page, source, dictionaries, held):
    """Return whether codes were found by a dictionary page like this."""
    dictionary, at = dictionaries[page[p.OF]], page[p.AT]
    if page[p.PACKED] != dictionary[_HELD]:
        return False
    x, y = span_of(source), span_of(held)
    return compared(x, at, page[p.PACKED], y, dictionary[_PLACE], page[p.PACKED]) == 0


@helper
def hold(page, source, dictionary, held):
    """Take note of the dictionary page by which codes were found, if there is room."""
    if page[p.PACKED] <= dictionary[_ROOM]:
        dictionary[_HELD] = page[p.PACKED]
        copy(span_of(source), page[p.AT], span_of(held), dictionary[_PLACE], page[p.PACKED])


@helper
def compared(x, i, n, y, j, m):
    """Return what is less, n bytes of a span or m of another: -1 or 1, 0 where they are equal."""
    for k in range(min(n, m)):
        a, b = byte(x, i + k), byte(y, j + k)
        if a != b:
            return -1 if a < b else 1
    return 0 if n == m else -1 if n < m else 1


@helper
def translated(c, now, done, tables, first, order, codes):
    """Find the codes of the entries of a column among the first ones; return whether all are."""
    n, n_first, found = now[p.ENTRIES], done[p.ENTRIES], False
    x, y = span_of(tables), span_of(first)
    ends, before = fours_at(x, now[p.TABLE], n + 1), fours_at(y, done[p.TABLE], n_first + 1)
    for k in range(codes.shape[0]):
        if codes[k, _COLUMN] != c:
            continue
        found = True
        old = carray(_codes_at(U(codes[k, _FIRST])), n_first + 2)
        new = carray(_codes_at(U(codes[k, _TABLE])), n_first + 2)
        same = 1
        for e in range(n):
            text, size = now[p.TEXT] + np.int64(ends[e]), np.int64(ends[e + 1]) - np.int64(ends[e])
            low, high = 0, n_first
            while low < high:
                middle = (low + high) >> 1
                other = order[middle]
                begin = np.int64(before[other])
                length = np.int64(before[other + 1]) - begin
                way = compared(x, text, size, y, done[p.TEXT] + begin, length)
                if way == 0:
                    new[e] = old[other]
                    same &= new[e] == e
                    break
                if way < 0:
                    high = middle
                else:
                    low = middle + 1
            if low >= high:
                return False
        new[n], new[n + 1] = old[n_first], old[n_first + 1]
        piece = carray(_words_at(U(codes[k, _PIECE])), SAME + 1)
        piece[CODES], piece[ENTRIES], piece[SAME] = codes[k, _TABLE], n, same
    return found


@helper
def pack(out, known, n, address):
    """Write which of n values are known as bits."""
    x, bits = span_of(out), carray(_bytes_at(U(address)), (n + 7) >> 3)
    for k in range(bits.size):
        flags = word(x, known + 8 * k) & _ONES
        if 8 * k + 8 > n:
            flags &= (U(1) << U(8 * (n - 8 * k))) - U(1)
        bits[k] = (flags * _TOGETHER) >> U(56)
