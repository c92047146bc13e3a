"""Numbers that stand in a Parquet file as they are: found once, then read a few at a time.

Pages that are not compressed, and those that Snappy could not make smaller, hold their values as
these are in memory, in long stretches. Where they stand is listed by reading no more than headers
and Snappy's tags; any number of rows is then copied from the file to where it is worked on, and
stays in the cache. What is stored in another way is left to `pages`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.reading.footers import read_varint
from fastbayes.kernels.compiled.reading.pages import (
    HEADER_DEPTH,
    U,
    check_page,
    length_at,
    one_run,
    read_header,
)
from fastbayes.kernels.compiled.simd.unaligned import byte, put_word, read_file, span_of, word
from fastbayes.kernels.dispatch import call, helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared import pages as p

# What is read of a file to see the header of a page.
_WINDOW = p.HEADER_BYTES
# Bytes of a tag and of the number behind it.
_TAG = 5
# Bytes of a line of the cache, and what rows of `out` hold besides their numbers.
_LINE = 64
SPARE = 2 * _LINE + p.SLACK

_INT64, _INT64_2, _BYTES = writes("int64"), writes("int64", 2), writes("uint8")
SIGNATURES = {
    "find_stretches": [(_INT64_2, _BYTES, _INT64, _INT64, writes("int64", 3))],
    "take_rows": [
        (
            *(reads("int64", 2), reads("int64", 3), *["int64"] * 4, reads("uint64")),
            *(writes("uint8", 2), writes("uint64"), _INT64),
        )
    ],
}


def list_stretches(columns: NDArray[np.int64], stretches: NDArray[np.int64]) -> None:
    """List where the numbers of column chunks stand in an open file as they are, without gaps.

    Of each column its row says how many stretches there are: none where there is another page, a
    missing number, a checksum, anything that makes no sense, or no room for them. A column of which
    they are listed is passed over.

    columns    OUT  (n_columns, N_COLUMN) int64   of float64 in plain pages, nothing of them read
    stretches  OUT  (n_columns, room, 2) int64   place in the file of the first byte; bytes of the
                    column up to the last one
    """
    scratch = np.empty(p.N_PAGE, np.int64), np.empty(HEADER_DEPTH, np.int64)
    call(find_stretches, columns, np.empty(_WINDOW + p.SLACK, np.uint8), *scratch, stretches)


def read_rows(
    columns: NDArray[np.int64],
    stretches: NDArray[np.int64],
    block: int,
    block_rows: int,
    first: int,
    n: int,
    others: NDArray[np.uint64],
    out: NDArray[np.uint8],
    places: NDArray[np.uint64],
    left: NDArray[np.int64],
) -> None:
    """Read some rows of a block of the columns whose stretches are listed.

    columns     IN   (n_columns, N_COLUMN) int64
    stretches   IN   (n_columns, room, 2) int64
    block       IN   which of the blocks, that have so many rows before it
    first, n    IN   rows of the block
    others      IN   (n_columns,) uint64   where the rows of the block are that are there already; 0
    out         OUT  (n_columns, >= 8 n + SPARE) uint8   scratch
    places      OUT  (n_columns,) uint64   where the numbers are
    left        OUT  (1,) int64   += numbers that were not there
    """
    rows = block, block_rows, first, n
    call(take_rows, readonly(columns), readonly(stretches), *rows, others, out, places, left)


@kernel
def find_stretches(columns, window, page, fields, stretches):
    """List stretches; see `list_stretches`; page (N_PAGE,) and fields (HEADER_DEPTH,) are scratch.

    window  OUT  uint8   scratch
    """
    for c in range(columns.shape[0]):
        if columns[c, p.STRETCHES] == 0:
            columns[c, p.STRETCHES] = find_in_column(columns[c], window, page, fields, stretches[c])


@helper
def find_in_column(column, window, page, fields, stretches):
    """Return the number of stretches of a column, 0 if not all its numbers stand as they are."""
    x, file, n = span_of(window), column[p.FILE], 0
    at, end = column[p.BEGIN], column[p.BEGIN] + column[p.MORE]
    column[p.LISTED] = 0
    while column[p.LISTED] < column[p.ROWS]:
        size = min(end - at, window.size - p.SLACK)
        if read_file(file, at, x, 0, size) != size:
            return 0
        stop = read_header(x, 0, size, page, fields)
        if stop < 0 or page[p.PACKED] > end - at - stop:
            return 0
        if page[p.TYPE] not in (p.DATA, p.DATA_2) or page[p.CHECKSUM] >= 0:
            return 0
        if check_page(column, page) != p.SOUND:
            return 0
        n = find_in_page(column, page, at, stop, size, window, stretches, n)
        if n < 0:
            return 0
        column[p.LISTED] += page[p.VALUES]
        at += stop + page[p.PACKED]
    return n


@helper
def find_in_page(column, page, place, begin, end, window, stretches, n):
    """List the stretches of a page behind n others; return how many these are, -1 if it has none.

    window  IN   what stands from a place in the file on: of the page what is from begin to end
    """
    x, first = span_of(window), n
    rows, at, left = page[p.VALUES], begin + page[p.LEVELS], page[p.RAW] - page[p.LEVELS]
    behind = place + begin + page[p.PACKED]
    if page[p.COMPRESSED]:
        if column[p.CODEC] != p.SNAPPY:
            return -1
        size, at = read_varint(x, at, end)
        if at < 0 or size != left:
            return -1
    # Bytes of levels that come first, of which one run says that all is known.
    lead = 0
    if column[p.OPTIONAL] and page[p.TYPE] == p.DATA_2:
        stop = begin + page[p.LEVELS]
        if stop > end or not one_run(x, begin, stop, rows):
            return -1
    while left > 0:
        size, back = left, 0
        if page[p.COMPRESSED]:
            size, back, at = piece_at(x, at, end)
        if not 0 < size <= left:
            return -1
        left -= size
        if back:
            n = repeat(stretches, first, n, back, size)
            size = 0
        else:
            if n == first and column[p.OPTIONAL] and page[p.TYPE] == p.DATA:
                lead = 4 + length_at(x, at) if end - at >= 4 else 0
                if not 4 < lead < min(size, end - at) or not one_run(x, at + 4, at + lead, rows):
                    return -1
            if n == first and 8 * rows != left + size - lead:
                return -1
            if n == stretches.shape[0] or size > behind - place - at:
                return -1
            stretches[n, 0] = place + at + lead
            stretches[n, 1] = end_of(stretches, n) + size - lead
            n += 1
        if n < 0:
            return -1
        place, at, lead = place + at + size, 0, 0
        end = min(_TAG, behind - place)
        if left > 0 and read_file(column[p.FILE], place, x, 0, end) != end:
            return -1
    return n if n > first and place == behind else -1


@helper
def piece_at(x, at, end):
    """Return the bytes of the piece whose tag stands there, how far back they stand, and the place.

    What comes before is repeated from so far back on, 0 for a literal, which follows at the place.
    There are 0 bytes where no tag is.
    """
    tag = byte(x, at) if at < end else 0
    kind = tag & 3
    more = (max((tag >> 2) - 59, 0), 1, 2, 4)[kind]
    if more >= end - at:
        return 0, 0, at
    number = np.int64(word(x, at + 1) & ((U(1) << U(8 * more)) - U(1)))
    at += 1 + more
    if kind == 0:
        return (number if more else tag >> 2) + 1, 0, at
    if kind == 1:
        tag, number = (tag & 28) + 12, number + (tag >> 5 << 8)
    # Nothing stands 0 back: it is refused like what lies before the first stretch.
    return (tag >> 2) + 1, number if number else 1 << 40, at


@helper
def end_of(stretches, n):
    """Return the bytes of a column that stand in n stretches."""
    return stretches[n - 1, 1] if n else 0


@helper
def repeat(stretches, first, n, back, size):
    """List bytes that stand so far back, in the stretches of a page; return their number, or -1."""
    while size > 0:
        at = end_of(stretches, n) - back
        if at < end_of(stretches, first) or n == stretches.shape[0]:
            return -1
        k = stretch_of(stretches, n, at)
        some = min(size, stretches[k, 1] - at)
        stretches[n, 0] = stretches[k, 0] + at - end_of(stretches, k)
        stretches[n, 1] = end_of(stretches, n) + some
        size, n = size - some, n + 1
    return n


@kernel
def take_rows(columns, stretches, block, block_rows, first, n, others, out, places, left):
    """Read rows of a block; see `read_rows`.

    Bytes go where they stand in the file modulo a line of the cache: elsewhere, copying takes some
    processors thrice as long. Those of a further stretch then move to those before.
    """
    begin = 8 * (block * block_rows + first)
    for c in range(columns.shape[0]):
        if others[c]:
            places[c] = others[c] + U(8 * first)
            continue
        y, ends = span_of(out[c]), stretches[c]
        k, at, taken = stretch_of(ends, columns[c, p.STRETCHES], begin), 0, 0
        while taken < 8 * n and k < columns[c, p.STRETCHES]:
            before = end_of(ends, k)
            place = ends[k, 0] + begin + taken - before
            size = min(ends[k, 1] - begin - taken, 8 * n - taken)
            apart = (place - y[0] - at - taken) % _LINE
            if taken == 0:
                at, apart = apart, 0
            target = at + taken
            if read_file(columns[c, p.FILE], place, y, target + apart, size) != size:
                break
            for b in range(0, size if apart else 0, 8):
                put_word(word(y, target + apart + b), y, target + b)
            taken, k = taken + size, k + 1
        left[0] += 8 * n - taken
        places[c] = U(y[0] + at)


@helper
def stretch_of(ends, n, at):
    """Return in which of n stretches a byte of a column stands."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if ends[middle, 1] <= at:
            low = middle + 1
        else:
            high = middle
    return low
