"""Pages of Parquet column chunks: their headers, dictionaries, levels and values.

No byte of a file is believed: what is a length, an index or a number of rows is held against what
is there before it is used. Two kernels, one call each for all columns of a batch: `list_pages`
reads headers, and whoever calls then knows how much room the rest takes; `decode` fills it. Numbers
need less: `read_numbers` takes them from the file, a column of a block after the other, while they
are in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.reading.codecs import crc32, lz4, snappy
from fastbayes.kernels.compiled.reading.footers import read_varint, zigzag
from fastbayes.kernels.compiled.simd.bits import FAST_EXTRACT, deposit, popcount, spread
from fastbayes.kernels.compiled.simd.instructions import next_turn
from fastbayes.kernels.compiled.simd.unaligned import (
    byte,
    bytes_at,
    copy,
    eights_at,
    fours_at,
    pairs_at,
    put_word,
    read_file,
    span_of,
    word,
)
from fastbayes.kernels.dispatch import call, helper, kernel, readonly, reads, scalar, writes
from fastbayes.kernels.shared import pages as p

U = np.uint64
# The longest structure of a page header, in structures within structures.
HEADER_DEPTH = 4
_ALL_KNOWN = U(0x0101010101010101)
_HEADER_FIELDS, _STRUCTURES = np.array(p.HEADER_FIELDS), np.array(p.STRUCTURES)
_PAGE_FIELDS = np.array(p.PAGE_FIELDS)
# Of a float64: the bits of the exponent, all set where it is infinite or NaN; the last of them; a
# NaN.
_EXPONENT, _LAST, _NAN = U(0x7FF0000000000000), U(0x0010000000000000), U(0x7FF8000000000000)

SIGNATURES = {
    "find_pages": [(reads("uint8"), *[writes("int64", 2)] * 2, *[writes("int64")] * 2)],
    "move_parts": [(reads("uint8"), reads("int64", 2), writes("uint8"))],
    "take_parts": [("int64", reads("int64", 2), writes("uint8"))],
    "decode_pages": [
        (
            *(reads("uint8"), writes("uint8"), writes("int64", 2), reads("int64", 2)),
            *(writes("uint8"), writes("uint8"), writes("uint8")),
        )
    ],
    "want": [(writes("int64", 2), writes("int64"), "int64")],
    "put_numbers": [
        (
            *(writes("int64", 2), writes("int64"), writes("uint8"), reads("uint8")),
            *(writes("uint8"), writes("uint8"), writes("int64"), writes("int64")),
            *(writes("uint8", 2), writes("uint8", 2), reads("uint8", 2), writes("uint8", 2)),
        )
    ],
}


def list_pages(
    source: NDArray[np.uint8], columns: NDArray[np.int64], pages: NDArray[np.int64]
) -> int:
    """Read the headers of the pages that hold the rows wanted; return how many they are.

    What is wrong with a column, and what must be read before its pages can be listed, stands in
    its row. If there are more pages than rows of `pages`, the rest is not written.

    source   IN   uint8
    columns  OUT  (n_columns, N_COLUMN) int64
    pages    OUT  (room, N_PAGE) int64
    """
    return int(find_pages(*listing(source, columns, pages)))


def listing(
    source: NDArray[np.uint8], columns: NDArray[np.int64], pages: NDArray[np.int64]
) -> tuple[NDArray[Any], ...]:
    """Return the arguments of `find_pages` for these of `list_pages`."""
    scratch = np.empty(p.N_PAGE, np.int64), np.empty(HEADER_DEPTH, np.int64)
    return (readonly(source), columns, pages, *scratch)


def move(source: NDArray[np.uint8], parts: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Copy parts of memory into other memory.

    source  IN   uint8
    parts   IN   (n_parts, 3) int64   where a part begins, where it goes, and its bytes
    out     OUT  uint8
    """
    move_parts(readonly(source), readonly(parts), out)


def read_parts(descriptor: int, parts: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Read parts of an open file; what lies behind its end is left as it is.

    parts  IN   (n_parts, 3) int64   where a part begins in the file, where it goes, and its bytes
    out    OUT  uint8
    """
    take_parts(descriptor, readonly(parts), out)


def decode(
    source: NDArray[np.uint8],
    unpacked: NDArray[np.uint8],
    columns: NDArray[np.int64],
    pages: NDArray[np.int64],
    tables: NDArray[np.uint8],
    indices: NDArray[np.uint8],
    out: NDArray[np.uint8],
) -> None:
    """Decode pages; what is wrong with a column stands in its row.

    source    IN   uint8
    unpacked  OUT  uint8   what was decompressed; at the end, room for the largest page
    columns   OUT  (n_columns, N_COLUMN) int64
    pages     IN   (n_pages, N_PAGE) int64   of each column in their order
    tables    OUT  uint8   dictionaries, with SLACK bytes behind each part
    indices   OUT  uint8   scratch: room for UNIT + 4 bytes of each value of a page, and for LEAD
    out       OUT  uint8   values, and which are known, with SLACK bytes behind each part
    """
    decode_pages(*decoding(source, unpacked, columns, pages, tables, indices, out))


def decoding(
    source: NDArray[np.uint8],
    unpacked: NDArray[np.uint8],
    columns: NDArray[np.int64],
    pages: NDArray[np.int64],
    *memory: NDArray[np.uint8],
) -> tuple[NDArray[Any], ...]:
    """Return the arguments of `decode_pages` for these of `decode`."""
    return (readonly(source), unpacked, columns, readonly(pages), *memory)


def read_numbers(
    columns: NDArray[np.int64],
    turn: NDArray[np.int64],
    source: NDArray[np.uint8],
    unpacked: NDArray[np.uint8],
    flags: NDArray[np.uint8],
    tables: NDArray[np.uint8],
    before: NDArray[np.uint8],
    out: NDArray[np.uint8],
) -> None:
    """Read columns of float64 until the rows wanted are there, NaN where null.

    Threads that call at once, with scratch of their own, share the columns out. What is wrong with
    a column stands in its row, and where there is too little room for a page.

    columns     OUT  (n_columns, N_COLUMN) int64
    turn        OUT  (1,) int64   columns that were taken, of all threads; more once none is left
    source      OUT  uint8   scratch: bytes of the file
    unpacked    OUT  uint8   scratch: room for the largest page
    flags       OUT  uint8   scratch: room for a byte of each of its values, and for LEAD
    tables      OUT  (n_columns, room) uint8   the dictionary of each column, as it was left
    before      IN   like `out`, or `out` itself   where the rows are that are HELD from NEXT on
    out         OUT  (n_columns, room) uint8   values of each column behind LEAD bytes, with SLACK
                     bytes behind them
    """
    scratch = np.empty(p.N_PAGE, np.int64), np.empty(HEADER_DEPTH, np.int64)
    # The system writes to `source` and `out`; what unpacks pages is compiled for bytes that are
    # read. Both are given, so that whoever copies noted calls sees what is written.
    given = columns, turn, source, readonly(source), unpacked, flags
    call(put_numbers, *given, *scratch, tables, before, readonly(out), out)


def want_numbers(columns: NDArray[np.int64], turn: NDArray[np.int64], n: int) -> None:
    """Let go of the numbers of columns that were wanted, and want the next n.

    A column of which not all were read is read no further.

    columns  OUT  (n_columns, N_COLUMN) int64   as `read_numbers` left them
    turn     OUT  (1,) int64   as it takes it
    """
    call(want, columns, turn, n)


@kernel
def move_parts(source, parts, out):
    """Copy parts of memory; see `move`."""
    for k in range(parts.shape[0]):
        copy(span_of(source), parts[k, 0], span_of(out), parts[k, 1], parts[k, 2])


@kernel
def take_parts(descriptor, parts, out):
    """Read parts of a file; see `read_parts`."""
    for k in range(parts.shape[0]):
        read_file(descriptor, parts[k, 0], span_of(out), parts[k, 1], parts[k, 2])


@kernel
def find_pages(source, columns, pages, page, fields):
    """Read headers; see `list_pages`; page (N_PAGE,) and fields (HEADER_DEPTH,) are scratch."""
    n, x = 0, span_of(source)
    for c in range(columns.shape[0]):
        column = columns[c]
        column[p.LISTED] = column[p.NEEDED] = column[p.FURTHER] = 0
        column[p.STATUS] = p.SOUND
        column[p.FOUND] = column[p.ENTRIES]
        at, end = column[p.BEGIN], column[p.END]
        while column[p.HELD] + column[p.LISTED] < column[p.WANTED]:
            stop = read_header(x, at, end, page, fields)
            if stop < 0 or page[p.PACKED] > end - stop:
                # twice as much again: the length of a header is not known
                needed = 2 * (end - at) + 1024 if stop < 0 else stop - end + page[p.PACKED]
                if stop == -2 or (stop == -1 and column[p.MORE] == 0):
                    column[p.STATUS] = p.HEADER if end > at else p.TRUNCATED
                elif stop >= 0 and needed > column[p.MORE]:
                    column[p.STATUS] = p.SIZES
                else:
                    column[p.NEEDED] = min(needed, column[p.MORE])
                    if stop >= 0 and page[p.TYPE] in (p.DATA, p.DATA_2):
                        behind = column[p.WANTED] - column[p.HELD] - column[p.LISTED]
                        n_more = (behind - 1) // max(page[p.VALUES], 1)
                        column[p.FURTHER] = n_more * (stop - at + page[p.PACKED])
                    elif stop >= 0 and page[p.TYPE] == p.DICTIONARY:
                        column[p.SPACE] = page[p.RAW]
                break
            page[p.OF], page[p.AT], page[p.PLACE] = c, stop, -1
            at = stop + page[p.PACKED]
            if page[p.TYPE] not in (p.DATA, p.DICTIONARY, p.DATA_2):
                continue
            column[p.STATUS] = check_page(column, page)
            if column[p.STATUS] != p.SOUND:
                break
            if page[p.TYPE] == p.DICTIONARY:
                column[p.FOUND], column[p.SPACE] = page[p.VALUES], page[p.RAW]
            else:
                column[p.LISTED] += page[p.VALUES]
            if n < pages.shape[0]:
                for k in range(page.size):
                    pages[n, k] = page[k]
            n += 1
        column[p.NEXT] = at
    return n


@kernel
def decode_pages(source, unpacked, columns, pages, tables, indices, out):
    """Decode pages; see `decode`."""
    x, y = span_of(source), span_of(unpacked)
    for k in range(pages.shape[0]):
        page = pages[k]
        column = columns[page[p.OF]]
        if column[p.STATUS] != p.SOUND:
            continue
        begin, levels = page[p.AT], page[p.LEVELS]
        at, end = begin + levels, begin + page[p.PACKED]
        raw = page[p.RAW] - levels
        body, stop = x, at + raw  # of a page that is not compressed, all; of an empty one, nothing
        if page[p.CHECKSUM] >= 0 and crc32(source, begin, end) != page[p.CHECKSUM]:
            column[p.STATUS] = p.CRC
            continue
        lead = -1
        if page[p.COMPRESSED] and raw > 0:
            body, at = y, page[p.PLACE]
            if at < 0:
                at, memory = unpacked.size - p.SLACK - raw, unpacked
                lead = bytes_before_values(column, page, raw)
                if lead >= 0:
                    body, memory = span_of(out), out
                    at = column[p.OUT] + column[p.HELD] * column[p.UNIT] - lead
                    copy(body, at, span_of(indices), 0, lead)
                if column[p.CODEC] == p.SNAPPY:
                    written = snappy(source, begin + levels, end, memory, at, raw)
                else:
                    written = lz4(source, begin + levels, end, memory, at, raw)
                if written != raw:
                    column[p.STATUS] = p.CODED
                    continue
                if lead > 0 and 4 + length_at(body, at) != lead:
                    copy(body, at, y, unpacked.size - p.SLACK - raw, raw)
                    copy(span_of(indices), 0, body, at, lead)
                    body, at, lead = y, unpacked.size - p.SLACK - raw, -1
            stop = at + raw
        column[p.STATUS] = decode_page(x, begin, body, at, stop, column, page, tables, indices, out)
        if lead > 0:
            copy(span_of(indices), 0, span_of(out), at, lead)


@kernel
def want(columns, turn, n):
    """Let go of numbers, and want others; see `want_numbers`."""
    turn[0] = 0
    for c in range(columns.shape[0]):
        column = columns[c]
        if column[p.HELD] < column[p.WANTED] and column[p.STATUS] == p.SOUND:
            column[p.STATUS] = p.OTHER
        column[p.GAPS] |= column[p.NULLS]
        column[p.NEXT] = column[p.WANTED]
        column[p.HELD] -= column[p.WANTED]
        column[p.WANTED] = n


@kernel
def put_numbers(
    columns, turn, room, source, unpacked, flags, page, fields, tables, before, seen, out
):
    """Read numbers; see `read_numbers`; page (N_PAGE,) and fields (HEADER_DEPTH,) are scratch.

    Pages are read to where their values belong, some bytes behind: most are stored as they are, and
    only move. Once one of a column is not, those behind it are read to `room`; but what stands
    behind pages of a dictionary may be so again. `source` is `room`, and `seen` is `out`.
    """
    elsewhere = min(unpacked.size, flags.size - p.LEAD) - 2 * p.SLACK
    while True:
        c = next_turn(turn)
        if c >= columns.shape[0]:
            break
        column, own = columns[c], out[c]
        column[p.NEEDED] = column[p.SPACE] = column[p.LISTED] = column[p.TEXT] = at = end = 0
        if column[p.STATUS] != p.SOUND:
            continue
        if column[p.NEXT]:
            move_held(span_of(before[c]), column[p.NEXT], column[p.HELD], span_of(own))
            column[p.NEXT] = 0
        aside = column[p.TABLE] != p.MOVED
        window = source if aside else seen[c]
        column[p.NULLS] = checked = 0
        while column[p.STATUS] == p.SOUND:
            # Looked at page by page, while it is in the cache.
            some = min(column[p.HELD], column[p.WANTED]) - checked
            place = p.LEAD + 8 * checked
            column[p.NULLS] |= not_finite(eights_at(span_of(own), place, some))
            checked += some
            if column[p.HELD] >= column[p.WANTED]:
                break
            x, more = span_of(window), column[p.MORE]
            stop = read_header(x, at, end, page, fields)
            if stop < 0 or page[p.PACKED] > end - stop:
                needed = min(end - at + p.HEADER_BYTES, more)
                if stop >= 0:
                    needed = stop - at + page[p.PACKED]
                if stop == -2 or (stop == -1 and end - at == more):
                    column[p.STATUS] = p.HEADER if more > 0 else p.TRUNCATED
                elif needed > more:
                    column[p.STATUS] = p.SIZES
                else:
                    at = 0
                    if not aside:
                        at = p.LEAD + column[p.HELD] * column[p.WIDTH] + p.BEHIND
                    # A copy to other places modulo a page of the system can take thrice as long.
                    at += (column[p.BEGIN] - x[0] - at) % p.ALIGNED
                    most = window.size - p.SLACK - at
                    end = at
                    if needed > most:
                        if aside:
                            column[p.NEEDED] = needed
                            break
                        aside, window = True, source
                        continue
                    size = min(max(likely(column, most), needed), more, most)
                    end, filled = at + size, span_of(room if aside else own)
                    if read_file(column[p.FILE], column[p.BEGIN], filled, at, size) != size:
                        column[p.STATUS] = p.UNREAD
                continue
            n = 0
            if page[p.TYPE] in (p.DATA, p.DICTIONARY, p.DATA_2):
                page[p.AT] = stop
                column[p.STATUS] = check_page(column, page)
                if page[p.TYPE] == p.DICTIONARY and column[p.FURTHER]:
                    column[p.STATUS] = p.TWO_DICTIONARIES
                if column[p.STATUS] != p.SOUND:
                    break
                way = way_of(x, column, page)
                if way != column[p.TABLE]:
                    column[p.TABLE] = way
                    if aside != (way != p.MOVED):  # read it again, to the other place
                        aside, window, end = not aside, seen[c] if aside else source, at
                        continue
            if page[p.TYPE] == p.DICTIONARY:
                if page[p.RAW] + 2 * p.SLACK > tables.shape[1]:
                    column[p.TEXT] = page[p.RAW] + 2 * p.SLACK
                    break
                column[p.STATUS] = put_dictionary(window, column, page, tables[c])
            elif page[p.TYPE] in (p.DATA, p.DATA_2):
                n = page[p.VALUES]
                if max(page[p.RAW], n) > elsewhere:
                    column[p.SPACE] = max(page[p.RAW], n)
                    break
                if (column[p.HELD] + n) * column[p.WIDTH] > own.size - p.LEAD - p.SLACK:
                    column[p.LISTED] = column[p.HELD] + n
                    break
                column[p.STATUS] = put_page(window, column, page, unpacked, flags, tables[c], own)
            size = stop + page[p.PACKED] - at
            column[p.ENTRIES], column[p.FURTHER] = n, size
            column[p.ROWS] -= n
            column[p.BEGIN] += size
            column[p.MORE] -= size
            at += size


@helper
def way_of(x, column, page):
    """Return how pages are read from this one on: see MOVED."""
    if page[p.TYPE] == p.DICTIONARY or page[p.ENCODING] != p.PLAIN:
        return p.CODED_ASIDE
    return p.MOVED if column[p.TABLE] != p.ASIDE and is_stored(x, column, page) else p.ASIDE


@helper
def is_stored(x, column, page):
    """Return whether the numbers of a page stand there as they are, and so only move."""
    at, end = page[p.AT] + page[p.LEVELS], page[p.AT] + page[p.PACKED]
    if page[p.VALUES] * column[p.WIDTH] > end - at:
        return False
    if not page[p.COMPRESSED]:
        return True
    if column[p.CODEC] != p.SNAPPY:
        return False
    _, at = read_varint(x, at, end)
    while 0 <= at < end:  # literals alone
        tag = byte(x, at)
        n, more, at = (tag >> 2) + 1, max((tag >> 2) - 59, 0), at + 1
        if tag & 3:
            return False
        if more:
            n = np.int64(word(x, at) & ~U(0) >> U(64 - 8 * more)) + 1
        at += more + n
    return at == end


@helper
def likely(column, room):
    """Return about how many bytes the rows take that a column lacks, of whole pages what fits."""
    rows = column[p.WANTED] - column[p.HELD]
    if column[p.ENTRIES] <= 0 or column[p.FURTHER] > room:
        return rows * column[p.WIDTH] + p.MORE_READ
    n_pages = (rows - 1) // column[p.ENTRIES] + 1
    return min(n_pages, room // column[p.FURTHER]) * column[p.FURTHER] + p.MORE_READ


@helper
def move_held(x, first, n, out):
    """Move the n numbers that stand from one on to where numbers begin, in a span or another."""
    if n <= first or x[0] != out[0]:
        copy(x, p.LEAD + 8 * first, out, p.LEAD, 8 * n)
    else:  # the two overlap
        for k in range(0, 8 * n, 8):
            put_word(word(x, p.LEAD + 8 * first + k), out, p.LEAD + k)


@helper
def not_finite(x):
    """Return whether one of the float64 with these bits is infinite or NaN."""
    found = U(0)
    # Bits, as their order of adding does not matter: many at a time. An exponent of ones alone is
    # carried over to the sign.
    for k in range(x.size):
        found |= (x[k] & _EXPONENT) + _LAST
    return np.int64(found >> U(63))


@helper
def put_dictionary(source, column, page, table):
    """Write the numbers of a dictionary; return what is wrong with it."""
    at, end, raw = page[p.AT], page[p.AT] + page[p.PACKED], page[p.RAW]
    if page[p.CHECKSUM] >= 0 and crc32(source, at, end) != page[p.CHECKSUM]:
        return p.CRC
    if page[p.COMPRESSED] and raw > 0:
        if column[p.CODEC] == p.SNAPPY:
            written = snappy(source, at, end, table, 0, raw)
        else:
            written = lz4(source, at, end, table, 0, raw)
        if written != raw:
            return p.CODED
    else:
        copy(span_of(source), at, span_of(table), 0, raw)
    if page[p.VALUES] * column[p.WIDTH] != raw:
        return p.OTHER
    column[p.FOUND] = page[p.VALUES]
    return p.SOUND


@helper
def put_page(source, column, page, unpacked, flags, table, out):
    """Write the numbers of a page behind those that are held; return what is wrong with it."""
    begin, n, width = page[p.AT], page[p.VALUES], column[p.WIDTH]
    at, end = begin + page[p.LEVELS], begin + page[p.PACKED]
    raw = page[p.RAW] - page[p.LEVELS]
    if page[p.CHECKSUM] >= 0 and crc32(source, begin, end) != page[p.CHECKSUM]:
        return p.CRC
    x, y, aside = span_of(source), span_of(out), flags.size - p.LEAD - p.SLACK
    target = p.LEAD + column[p.HELD] * width
    body, lead = x, 0
    if page[p.COMPRESSED] and raw > 0:
        memory, place = unpacked, 0
        # Unpacked to where the values belong; what stands before them there, where levels come
        # first, is set aside.
        if page[p.ENCODING] == p.PLAIN and 0 <= raw - n * width <= p.LEAD:
            lead = raw - n * width
            memory, place = out, target - lead
            copy(y, place, span_of(flags), aside, lead)
        if column[p.CODEC] == p.SNAPPY:
            written = snappy(source, at, end, memory, place, raw)
        else:
            written = lz4(source, at, end, memory, place, raw)
        if written != raw:
            return p.CODED
        body, at = span_of(memory), place
    end, known = at + raw, n
    if column[p.OPTIONAL]:
        if page[p.TYPE] == p.DATA_2:
            known = mark_known(x, begin, begin + page[p.LEVELS], n, flags, 0)
        else:
            stop = at + 4 + length_at(body, at) if end - at >= 4 else end + 1
            if stop < at + 4 or stop > end:
                return p.LEVEL
            known = mark_known(body, at + 4, stop, n, flags, 0)
            at = stop
        if known < 0:
            return p.LEVEL if known == -1 else p.OTHER
    copy(span_of(flags), aside, y, target - lead, lead)
    if page[p.ENCODING] != p.PLAIN:
        status = put_entries(body, at, end, known, n, column, flags, table, y, target)
        column[p.HELD] += n
        return status
    if known * width != end - at:
        return p.VALUE if known * width > end - at else p.OTHER
    if known == n and body[0] + at != y[0] + target:
        copy(body, at, y, target, n * width)
    elif known < n:
        for r in range(n):
            put_word(word(body, at) if flags[U(r)] else _NAN, y, target + r * width)
            at += width * flags[U(r)]
    column[p.HELD] += n
    return p.SOUND


@helper
def put_entries(body, at, end, known, n, column, flags, table, out, target):
    """Write n numbers of which the known ones are entries of the dictionary; return what is wrong.

    Their indices come to stand before the end of the numbers, which do not overtake them.
    """
    width = byte(body, at) if at < end else 64 * min(known, 1)
    if width > 32:
        return p.VALUE
    entries, x = column[p.FOUND], span_of(table)
    size = 1 if entries <= 256 else 2 if entries <= 65_536 else 4
    place = target + 8 * n - size * known
    if known:
        status = unpack_runs(body, at + 1, end, width, size, out, place, known, entries - 1)
        if status != p.SOUND:
            return status
    mask = (U(1) << U(8 * size)) - U(1)
    if known == n:
        for r in range(n):
            index = np.int64(word(out, place + r * size) & mask)
            put_word(word(x, 8 * index), out, target + 8 * r)
        return p.SOUND
    for r in range(n):
        number = _NAN
        if flags[U(r)]:
            number = word(x, 8 * np.int64(word(out, place) & mask))
            place += size
        put_word(number, out, target + 8 * r)
    return p.SOUND


@helper
def bytes_before_values(column, page, raw):
    """Return the bytes before the values of a page that can be unpacked to where these belong.

    -1 if it cannot. What is there is set aside; without nulls it is a few bytes of levels.
    """
    plain = page[p.ENCODING] == p.PLAIN and page[p.TYPE] != p.DICTIONARY
    if not plain or column[p.KIND] != p.NUMBERS or column[p.WIDTH] != column[p.UNIT]:
        return -1
    lead = raw - page[p.VALUES] * column[p.WIDTH]
    if page[p.TYPE] == p.DATA_2 or not column[p.OPTIONAL]:
        return 0 if lead == 0 else -1
    there = column[p.OUT] + column[p.HELD] * column[p.UNIT]
    return lead if 4 < lead <= min(p.LEAD, there) else -1


@helper
def decode_page(levels, begin, body, at, end, column, page, tables, indices, out):
    """Decode a page; return what is wrong with it.

    levels, begin  span and place of the levels, where they stand apart
    body, at, end  span and place of what else there is
    """
    if page[p.TYPE] == p.DICTIONARY:
        column[p.ENTRIES] = page[p.VALUES]
        if column[p.KIND] == p.STRINGS:
            return decode_strings(body, at, end, column, tables)
        x = span_of(tables)
        return decode_plain(body, at, end, page[p.VALUES], column, x, column[p.TABLE])
    column[p.ENTRIES] = max(column[p.ENTRIES], 0)
    n, known = page[p.VALUES], page[p.VALUES]
    first = column[p.KNOWN] + column[p.HELD]
    if column[p.OPTIONAL]:
        if page[p.TYPE] == p.DATA_2:
            known = decode_levels(levels, begin, begin + page[p.LEVELS], n, column, out)
        else:
            stop = at + 4 + length_at(body, at) if end - at >= 4 else end + 1
            if stop < at + 4 or stop > end:
                return p.LEVEL
            known = decode_levels(body, at + 4, stop, n, column, out)
            at = stop
        if known < 0:
            return p.LEVEL if known == -1 else p.OTHER
    target = column[p.OUT] + column[p.HELD] * column[p.UNIT]
    if known == n:
        y = span_of(out)
        status = decode_values(body, at, end, n, column, page, tables, indices, y, target)
    else:
        z = span_of(indices)
        status = decode_values(body, at, end, known, column, page, tables, indices, z, 0)
        if status == p.SOUND:
            move_apart(z, out, target, first, n, column[p.UNIT])
    column[p.HELD] += n
    column[p.ROWS] -= n
    return status


@helper
def decode_values(body, at, end, n, column, page, tables, indices, out, target):
    """Decode values that are all known to a span from a place on."""
    kind = column[p.KIND]
    if kind == p.TRUTHS and page[p.ENCODING] == p.PLAIN:
        if (n + 7) >> 3 != end - at:
            return p.VALUE if (n + 7) >> 3 > end - at else p.OTHER
        unpack_packed(body, at, 1, 1, out, target, n)
        return p.SOUND
    if page[p.ENCODING] == p.PLAIN:
        return decode_plain(body, at, end, n, column, out, target)
    if kind == p.TRUTHS:
        stop = at + 4 + length_at(body, at) if end - at >= 4 else end + 1
        if stop < at + 4 or stop > end:
            return p.VALUE if n else p.OTHER
        status = unpack_runs(body, at + 4, stop, 1, 1, out, target, n, 1)
        return p.VALUE if status == p.OUTSIDE else status
    width = byte(body, at) if at < end else 64 * min(n, 1)
    if n == 0 or width > 32:
        return p.VALUE if width > 32 else p.SOUND
    if kind == p.STRINGS:
        return unpack_runs(
            body, at + 1, end, width, column[p.UNIT], out, target, n, column[p.ENTRIES] - 1
        )
    size = 1 if column[p.ENTRIES] <= 256 else 2 if column[p.ENTRIES] <= 65_536 else 4
    unit = column[p.UNIT]
    z, place = span_of(indices), unit * n + p.SLACK
    status = unpack_runs(body, at + 1, end, width, size, z, place, n, column[p.ENTRIES] - 1)
    if status == p.SOUND:
        x, table = span_of(tables), column[p.TABLE]
        mask = (U(1) << U(8 * size)) - U(1)
        for r in range(n):
            index = np.int64(word(z, place + r * size) & mask)
            put_word(word(x, table + index * unit), out, target + r * unit)
            if unit > 8:
                put_rest(x, table + index * unit, out, target + r * unit, unit, U(1))
    return status


@helper
def decode_plain(body, at, end, n, column, out, target):
    """Write n values to a span from a place on, in the form that the kind of the column says."""
    width, unit, kind = column[p.WIDTH], column[p.UNIT], column[p.KIND]
    if n * width != end - at:
        return p.VALUE if n * width > end - at else p.OTHER
    if kind != p.NUMBERS or width != unit:
        for k in range(n):
            low, high = decode_number(body, at + k * width, width, kind)
            put_word(low, out, target + k * unit)
            if unit == 16:
                put_word(high, out, target + k * unit + 8)
    elif n and body[0] + at != out[0] + target:
        copy(body, at, out, target, n * unit)
    return p.SOUND


@helper
def decode_number(body, at, width, kind):
    """Return the low and the high word of a number that is not stored as it is wanted."""
    low = high = word(body, at)
    if kind == p.INSTANTS:
        day = word(body, at + 4) >> U(32)
        return low // U(p.MICROSECOND) + (day - U(p.EPOCH)) * U(p.DAY), high
    if kind == p.WIDENED:
        unused = 64 - 8 * width
        signed = np.int64(low << U(unused)) >> unused
        return U(signed), U(signed >> 63)
    if kind == p.REVERSED:
        low = high = U(0) - (low >> U(7) & U(1))
        for k in range(width):
            high = high << U(8) | low >> U(56)
            low = low << U(8) | U(byte(body, at + k))
    return low, high


@helper
def decode_strings(body, at, end, column, tables):
    """Split the dictionary's strings, each behind its length, into their ends and their bytes."""
    x, ends, text = span_of(tables), column[p.TABLE], column[p.TEXT]
    done = 0
    put_word(U(0), x, ends)
    for k in range(column[p.ENTRIES]):
        length = length_at(body, at) if end - at >= 4 else -1
        at += 4
        if length < 0 or length > end - at:
            return p.ENTRY
        if length:
            copy(body, at, x, text + done, length)
        at += length
        done += length
        put_word(U(done), x, ends + 4 * (k + 1))
    return p.SOUND


@helper
def decode_levels(body, at, end, n, column, out):
    """Return how many of n rows are known, and write which, if not all; -1 unsound, -2 other."""
    held, nulls = column[p.HELD], column[p.NULLS]
    first = column[p.KNOWN]
    known = mark_known(body, at, end, n, out, first + held)
    if known < 0:
        return known
    if nulls and known == n:
        for r in range(first + held, first + held + n):
            out[U(r)] = 1
    if nulls == 0 and known < n:
        for r in range(first, first + held):
            out[U(r)] = 1
    column[p.NULLS] += n - known
    return known


@helper
def mark_known(body, at, end, n, out, place):
    """Return how many of n rows are known; -1 unsound, -2 other.

    If not all are, a byte of each row tells, from a place on.
    """
    if one_run(body, at, end, n):
        return n
    status = unpack_runs(body, at, end, 1, 1, span_of(out), place, n, 1)
    if status != p.SOUND:
        return -2 if status == p.OTHER else -1
    known = 0
    for r in range(place, place + n):
        known += out[U(r)]
    return known


@helper
def one_run(body, at, end, n):
    """Return whether one run of levels says that n rows are known."""
    run, start = read_varint(body, at, end)
    return 0 <= start < end and run & 1 == 0 and run >> 1 >= n and byte(body, start) == 1


@helper
def _not_called(word, _mask):
    return word


# A processor without the instruction must not meet it.
spread_apart = deposit if FAST_EXTRACT else _not_called


@helper
def move_apart(x, out, target, first, n, unit):
    """Move values that stand side by side in a span to their rows; 0 where null.

    A word at a time: what it holds behind its value is overwritten by the next one.
    """
    y, at, r = span_of(out), 0, 0
    while r < n:
        known, stop = word(y, first + r), min(r + 8, n)
        if known == _ALL_KNOWN and stop == r + 8:
            for k in range(0, 8 * unit, 8):
                put_word(word(x, at + k), y, target + r * unit + k)
            at += 8 * unit
        elif FAST_EXTRACT and unit == 1 and stop == r + 8:
            put_word(spread_apart(word(x, at), known * U(255)), y, target + r)
            at += np.int64(popcount(known))
        else:
            for k in range(r, stop):
                there = known & U(1)
                put_word(word(x, at) & (U(0) - there), y, target + k * unit)
                if unit > 8:
                    put_rest(x, at, y, target + k * unit, unit, there)
                at += np.int64(there) * unit
                known >>= U(8)
        r = stop


@helper
def put_rest(x, at, out, target, unit, there):
    """Copy what is behind the first 8 bytes of a value, or 0 if it is not there."""
    for b in range(8, unit, 8):
        put_word(word(x, at + b) & (U(0) - there), out, target + b)


@helper
def unpack_runs(body, at, end, width, size, out, place, n, most):
    """Decode n values of Parquet's hybrid of runs and packed groups of 8, none above `most`.

    Each takes `size` bytes of the span `out`, in which `most` has room; up to 7 bytes behind are
    written, too. What is wrong is returned: VALUE if it is not sound, OTHER if only pyarrow can
    tell, OUTSIDE for a value above `most`.
    """
    done, top, packed = 0, 0, False
    n_bytes, lanes = (width + 7) >> 3, 8 // size
    while done < n:
        run, at = read_varint(body, at, end)
        if at < 0 or run >> 32 or run >> 1 == 0:
            return p.VALUE
        start = place + done * size
        if run & 1:
            taken = min((run >> 1) * 8, n - done)
            if (run >> 1) * width > end - at:
                # some programs cut the last group short
                return p.OTHER if (taken * width + 7) >> 3 <= end - at else p.VALUE
            if width <= 8 * size:
                unpack_packed(body, at, width, size, out, start, taken)
                packed = True
            else:
                for k in range(taken):
                    value = bits_at(body, at, k * width, width)
                    top = max(top, value)
                    put_word(U(value), out, start + k * size)
            at += (run >> 1) * width
        else:
            if n_bytes > end - at:
                return p.VALUE
            value = 0
            for k in range(n_bytes):
                value |= byte(body, at + k) << (8 * k)
            at += n_bytes
            top = max(top, value)
            taken = min(run >> 1, n - done)
            value, many = value & ((1 << (8 * size)) - 1), U(0)
            for k in range(lanes):
                many |= U(value) << U(8 * size * k)
            for k in range(0, taken * size, 8):
                put_word(many, out, start + k)
        done += taken
    if packed and (1 << width) - 1 > most:
        top = max(top, largest(out, place, n, size))
    return p.OUTSIDE if top > most else p.SOUND


@helper
def unpack_packed(body, at, width, size, out, place, n):
    """Unpack n values of so many bits each, lowest bit first, to so many bytes each.

    width <= 8 * size
    """
    lanes, w = 8 // size, U(width)
    mask = U(0)
    for lane in range(lanes):
        mask |= ((U(1) << w) - U(1)) << U(8 * size * lane)
    groups = n >> 3
    if size == 1:
        for k in range(groups):
            put_word(spread(word(body, at + k * width), mask, w, 8), out, place + 8 * k)
    elif size == 2:
        for k in range(0, 2 * groups, 2):
            start = at + (k >> 1) * width
            put_word(spread(word(body, start), mask, w, 4), out, place + 8 * k)
            half = word(body, start + (width >> 1)) >> U(4 * (width & 1))
            put_word(spread(half, mask, w, 4), out, place + 8 * k + 8)
    else:
        groups = 0
    for k in range(8 * groups, n):
        put_word(U(bits_at(body, at, k * width, width)), out, place + k * size)


@helper
def largest(x, place, n, size):
    """Return the largest of n numbers of so many bytes in a span."""
    if size == 1:
        return largest_of(bytes_at(x, place, n))
    if size == 2:
        return largest_of(pairs_at(x, place, n))
    return largest_of(fours_at(x, place, n))


@helper
def largest_of(numbers):
    """Return the largest of an array of numbers that is not empty."""
    top = numbers[0]
    for k in range(numbers.size):
        top = max(top, numbers[k])
    return np.int64(top)


@helper
@scalar
def bits_at(body, at, bit, width):
    """Return the number of so many bits that starts at a bit; bits behind the end are 0."""
    start, skipped = at + (bit >> 3), bit & 7
    found = U(0)
    if start + 8 <= body[1]:
        found = word(body, start)
    else:
        for k in range(min(8, body[1] - start)):
            found |= U(byte(body, start + k)) << U(8 * k)
    return np.int64((found >> U(skipped)) & ((U(1) << U(width)) - U(1)))


@helper
def length_at(body, at):
    """Return the 4 bytes from `at` on as a number, negative if the highest bit is set."""
    found = 0
    for k in range(4):
        found |= byte(body, at + k) << (8 * k)
    return found - ((found >> 31) << 32)


@helper
def check_page(column, page):
    """Return what is wrong with the header of a page of values or of the dictionary."""
    n, encoding = page[p.VALUES], page[p.ENCODING]
    if page[p.TYPE] == p.DATA_2:
        given = min(page[p.NULL_COUNT], page[p.ROW_COUNT], page[p.LEVELS], page[p.REPEATED])
    else:
        page[p.LEVELS] = page[p.REPEATED] = given = 0
        if page[p.TYPE] == p.DATA:
            given = min(page[p.LEVEL_ENCODING], page[p.REPETITION_ENCODING])
    if min(n, encoding, given) < 0:
        return p.HEADER
    if page[p.REPEATED]:
        return p.OTHER
    if page[p.LEVELS] > min(page[p.RAW], page[p.PACKED]):
        return p.SIZES
    if column[p.CODEC] == p.STORED:
        page[p.COMPRESSED] = 0
    if not page[p.COMPRESSED] and page[p.RAW] != page[p.PACKED]:
        return p.SIZES
    if column[p.CODEC] in (p.SNAPPY, p.LZ4) and page[p.RAW] > p.MOST * (page[p.PACKED] + 1):
        return p.SIZES
    by_entries = encoding in (p.PLAIN_DICTIONARY, p.RLE_DICTIONARY)
    if page[p.TYPE] == p.DICTIONARY:
        if column[p.FOUND] >= 0 or column[p.LISTED]:
            return p.TWO_DICTIONARIES
        if encoding not in (p.PLAIN, p.PLAIN_DICTIONARY) or column[p.KIND] == p.TRUTHS:
            return p.OTHER
        least = 4 if column[p.KIND] == p.STRINGS else column[p.WIDTH]
        return p.ENTRY if n * least > page[p.RAW] else p.SOUND
    if n > column[p.ROWS] - column[p.LISTED]:
        return p.SIZES
    if page[p.TYPE] == p.DATA and column[p.OPTIONAL] and page[p.LEVEL_ENCODING] != p.RLE:
        return p.OTHER
    if column[p.KIND] == p.TRUTHS:
        return p.SOUND if encoding in (p.PLAIN, p.RLE) else p.OTHER
    if by_entries:
        return p.SOUND if column[p.FOUND] >= 0 else p.NO_DICTIONARY
    return p.SOUND if encoding == p.PLAIN and column[p.KIND] != p.STRINGS else p.OTHER


@helper
def read_header(x, at, end, page, fields):
    """Read the header of a page; return the place behind it, -1 if it is cut off, -2 if unsound.

    It is a structure of Thrift's compact protocol: fields with their types, unknown ones skipped.

    page    OUT  (N_PAGE,) int64
    fields  OUT  (depth,) int64   scratch: the field of each structure that is open
    """
    for k in range(page.size):
        page[k] = -1
    page[p.COMPRESSED] = 1
    fields[0] = depth = 0
    while True:
        if at >= end:
            return -1
        head = byte(x, at)
        at += 1
        if head == 0:
            depth -= 1
            if depth < 0:
                return at if min(page[p.TYPE], page[p.RAW], page[p.PACKED]) >= 0 else -2
            continue
        kind, value = head & 15, 0
        if kind == 0:
            return -2
        fields[depth] += head >> 4
        if head >> 4 == 0:
            value, at = read_varint(x, at, end)
            if at < 0:
                return at
            fields[depth] = zigzag(value)
        if kind <= 2:
            value = np.int64(kind == 1)
        elif kind in (4, 5, 6, 8):
            value, at = read_varint(x, at, end)
            if at < 0:
                return at
        if kind == 3:
            at += 1
        elif kind == 7:
            at += 8
        elif kind == 8:
            if value < 0:
                return -2
            if value > end - at:
                return -1
            at += value
        elif kind == 12:
            depth += 1
            if depth == fields.size:
                return -2
            fields[depth] = 0
        elif kind > 8:
            return -2
        name = name_of(fields, depth, page[p.TYPE])
        if name == p.COMPRESSED and kind <= 2:
            page[name] = value
        elif name >= 0 and name != p.COMPRESSED and kind == 5:
            value = zigzag(value)
            if value >> 31 not in (0, -1):
                return -2
            page[name] = value & 0xFFFFFFFF if name == p.CHECKSUM else value


@helper
def name_of(fields, depth, kind):
    """Return which number of a page's header stands in a field, -1 if none; kind: its type."""
    if depth == 0:
        return _HEADER_FIELDS[fields[0]] if 0 <= fields[0] < _HEADER_FIELDS.size else -1
    if depth > 1 or not 0 <= kind < _STRUCTURES.size or fields[0] != _STRUCTURES[kind]:
        return -1
    return _PAGE_FIELDS[kind, fields[1]] if 0 <= fields[1] < _PAGE_FIELDS.shape[1] else -1
