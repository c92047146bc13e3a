"""Pair counts of columns of few values by bit rows: see `plans.pair_plan`.

A row of bits says where a column has some value; rows of one class stand side by side, so that
the number of rows of data with value a, value b and class c is the number of bits set in two
rows of bits. Code 0 of a column has no bit row: what it adds up to with the others is known (a
missing value has a code of its own, so every row of data has one).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.plans.pair_plan import Bitmaps
from fastbayes.kernels.compiled.simd import bits, vector
from fastbayes.kernels.compiled.simd.instructions import carray
from fastbayes.kernels.compiled.simd.memory import addresses, borrow, fill
from fastbayes.kernels.dispatch import call, helper, kernel, readonly, reads, unrolled, writes
from fastbayes.kernels.shared.arrays import U

U8 = np.uint8

# Bytes that bit rows may take: more rows of data are taken in parts.
MOST_BYTES = 1 << 24
# Rows of data of a part at least.
LEAST_ROWS = 4096
# Streams of rows that are put in order of class at once: one would wait for itself.
STREAMS = 4
# Cells of a pair are asked for so many pairs ahead: their first lines, of eight each.
AHEAD, AHEAD_LINES = 4, 8

_INT64, _WORDS = reads("int64"), writes("uint64", 2)
_CLASSES = (writes("int64"), writes("int64"))  # where classes begin, their rows
_COLUMNS = (reads("uint64"), _INT64, _INT64, _INT64, "int64")
_MADE = (_WORDS, _WORDS)  # planes, bit rows
_PAIRS = (_INT64,) * 3

SIGNATURES = {
    "mark_classes": [(reads("uint8"), _WORDS, writes("int64", 2), *_CLASSES)],
    "widen": [(reads("uint8"), writes("uint16"))],
    "order_rows": [(reads("uint16"), writes("uint32", 2), writes("uint16"), *_CLASSES)],
    "split_bits": [
        (*_COLUMNS, reads("uint64", 2), reads("int64", 2), _INT64, writes("uint8"), *_MADE)
    ],
    "split_codes": [
        (*_COLUMNS, _INT64, reads("uint16"), _INT64, _INT64, writes("uint8", 2), *_MADE)
    ],
    "meet": [
        (
            *(reads("uint64", 2), _INT64, _INT64, _INT64, *_PAIRS, _INT64, _INT64),
            *(reads("int64", 2), writes("uint8"), writes("int32"), *[writes("int64")] * 3),
        )
    ],
}


def add_bitmap_counts(
    chosen: Bitmaps,
    columns: Sequence[NDArray[np.unsignedinteger]] | NDArray[np.unsignedinteger],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Add one block of rows to the counts of the pairs that a plan gives to bit rows.

    columns  IN   (n,) uint8 each, contiguous, n <= 65,536; the others are as for
                  `pairs.add_pair_counts`
    """
    sizes, first, second, starts = map(readonly, (sizes, first, second, starts))
    where = addresses(columns, chosen.columns.tolist())
    most = max(MOST_BYTES * 8 // max(chosen.n_rows, 1), LEAST_ROWS)
    for start in range(0, len(y), most):
        part = y[start : start + most]
        n = len(part)
        stride = (n // 64 // bits.LANES + n_classes + 1) * bits.LANES
        if stride // bits.LANES % 2 == 0:  # else a cache would hold few rows: all start alike
            stride += bits.LANES
        rows = borrow("bit_rows", (chosen.n_rows, stride), np.uint64)
        planes = borrow("bit_planes", (9, stride), np.uint64)
        begins, n_class = np.empty(n_classes + 1, np.int64), np.empty(n_classes, np.int64)
        places = where if start == 0 else readonly(where + U(start))
        of_columns = places, sizes, chosen.columns, chosen.rows, n
        if chosen.by_bits:
            masks = borrow("bit_masks", (n_classes, -(-n // 64)), np.uint64)
            shifts = borrow("bit_places", masks.shape, np.int64)
            call(mark_classes, readonly(part), masks, shifts, begins, n_class)
            begins = readonly(begins)
            tail = borrow("bit_tail", (64,), np.uint8)
            call(
                split_bits,
                *of_columns,
                readonly(masks),
                readonly(shifts),
                begins,
                tail,
                planes,
                rows,
            )
        else:
            order = borrow("bit_order", (n,), np.uint16)
            streams = np.empty((STREAMS, n_classes), np.uint32)
            call(order_rows, widened(part), streams, order, begins, n_class)
            begins, n_class = readonly(begins), readonly(n_class)
            codes = borrow("bit_codes", (2, stride * 64), np.uint8)
            call(
                split_codes,
                *(*of_columns, chosen.borders, readonly(order)),
                *(begins, n_class, codes, planes, rows),
            )
        needed = borrow("bit_needed", (chosen.cells // bits.BLOCK**2,), np.uint8)
        meetings = borrow("bit_meetings", (n_classes * chosen.cells,), np.int32)
        totals = borrow("bit_totals", (chosen.n_rows * n_classes,), np.int64)
        left = borrow("bit_left", (258 * n_classes,), np.int64)
        call(
            meet,
            *(readonly(rows), begins, readonly(n_class), sizes, first, second, starts),
            *(chosen.rows, chosen.pairs),
            *(chosen.tiles, needed, meetings, totals, left, out),
        )


def widened(y: NDArray[np.unsignedinteger]) -> NDArray[np.uint16]:
    """Return the classes of rows, uint8 or uint16, as uint16."""
    if y.itemsize == 2:
        return readonly(y)
    classes = np.empty(len(y), np.uint16)
    call(widen, readonly(y), classes)
    return readonly(classes)


@kernel
def widen(y, out):
    """Copy the classes of rows, uint8, to uint16."""
    for r in range(y.size):
        out[r] = y[r]


@kernel
def mark_classes(y, masks, places, begins, n_class):
    """Find the rows of every class, and the places of their bits in a row of bits.

    y        IN   (n,) uint8
    masks    OUT  (n_classes, words) uint64   bit r of word w: y[64 w + r] is this class
    places   OUT  (n_classes, words) int64   where the first of these bits goes
    begins   OUT  (n_classes + 1,) int64   first word of each class, a multiple of LANES
    n_class  OUT  (n_classes,) int64   rows of each class
    """
    whole = y.size // 64
    word = 0
    for c in range(n_class.size):
        mask, place = masks[c], places[c]
        for w in range(whole):
            mask[w] = bits.match(y, U(w * 64), U8(c))
        if whole < mask.size:
            mask[whole] = U(0)
            for r in range(whole * 64, y.size):
                mask[whole] |= U(y[r] == c) << U(r - whole * 64)
        begins[c] = word
        n = 0
        for w in range(mask.size):
            place[w] = word * 64 + n
            n += np.int64(bits.popcount(mask[w]))
        n_class[c] = n
        word += -(-n // (64 * bits.LANES)) * bits.LANES
    begins[n_class.size] = word


@kernel
def order_rows(y, streams, order, begins, n_class):
    """Put rows in order of class, in any order within a class.

    y        IN   (n,) uint16
    streams  OUT  (STREAMS, n_classes) uint32   scratch
    order    OUT  (n,) uint16   rows
    begins   OUT  (n_classes + 1,) int64   first word of each class, a multiple of LANES
    n_class  OUT  (n_classes,) int64   rows of each class
    """
    one = np.uint32(1)
    length = y.size // STREAMS
    for s in range(STREAMS):
        n, stop = streams[s], y.size if s == STREAMS - 1 else (s + 1) * length
        fill(n, 0, n.size, 0)
        for r in range(s * length, stop):
            n[y[r]] += one
    row = word = 0
    for c in range(n_class.size):
        begins[c] = word
        n_class[c] = 0
        for s in range(STREAMS):
            n_class[c] += streams[s, c]
            streams[s, c] = row + n_class[c] - streams[s, c]
        row += n_class[c]
        word += -(-n_class[c] // (64 * bits.LANES)) * bits.LANES
    begins[n_class.size] = word
    for r in range(length):
        for s in range(STREAMS):
            c = y[s * length + r]
            order[streams[s, c]] = s * length + r
            streams[s, c] += one
    for r in range(STREAMS * length, y.size):
        c = y[r]
        order[streams[STREAMS - 1, c]] = r
        streams[STREAMS - 1, c] += one


@kernel
@unrolled
def split_bits(addresses, sizes, columns, rows, n, masks, places, begins, tail, planes, out):
    """Make bit rows of columns: planes of bits of their codes, split by class, then values.

    addresses  IN   (m,) uint64   of (n,) uint8 codes of each column
    sizes      IN   (m,) int64
    columns    IN   which of them
    rows       IN   (m,) int64   first bit row of each column
    masks, places, begins  as `mark_classes` leaves them
    tail       OUT  (64,) uint8   scratch
    planes     OUT  (9, words) uint64   scratch
    out        OUT  (n_rows, words) uint64   bit rows
    """
    whole = n // 64
    unsplit = planes[8]
    for i in columns:
        x = carray(bits.codes8_at(addresses[i]), n)
        for r in range(n - whole * 64):
            tail[r] = x[whole * 64 + r]
        last = sizes[i] - 1
        k = 0
        while last >> k:
            for w in range(whole):
                unsplit[w] = bits.plane(x, U(w * 64), U8(1 << k))
            if whole < masks.shape[1]:
                unsplit[whole] = bits.plane(tail, U(0), U8(1 << k))
            split = planes[k] if last > 1 else out[rows[i]]
            for c in range(masks.shape[0]):
                mask, place = masks[c], places[c]
                at = U(begins[c])
                low = high = U(0)
                for w in range(U(mask.size)):
                    part = bits.extract(unsplit[w], mask[w])
                    bit = U(place[w]) & U(63)
                    new = U(place[w]) >> U(6)
                    low = (low if new == at else high) | part << bit
                    high = part >> U(1) >> (U(63) - bit)
                    split[new] = low
                    at = new
                if high:
                    at += U(1)
                    split[at] = high
                at += U(1)
                while at < U(begins[c + 1]):
                    split[at] = U(0)
                    at += U(1)
            k += 1
        if last > 1:
            bits.values_of_planes(planes, k, last, rows[i], begins[masks.shape[0]], out)


@kernel
def split_codes(
    addresses, sizes, columns, rows, n, borders, order, begins, n_class, codes, planes, out
):  # fmt: skip
    """Make bit rows of columns: bytes of codes in order of class, then planes, then values.

    addresses, sizes, rows, n, planes, out  as for `split_bits`
    columns    IN   which of them, the codes of columns[borders[g] : borders[g + 1]] in one byte
    borders    IN   (n_groups + 1,) int64
    order, begins, n_class  as `order_rows` leaves them
    codes      OUT  (2, 64 * words) uint8   scratch
    """
    words = begins[n_class.size]
    whole = n // 64 * 64
    shared, ordered = codes[0], codes[1]
    for g in range(borders.size - 1):
        members = columns[borders[g] : borders[g + 1]]
        x = carray(bits.codes8_at(addresses[members[0]]), n)
        for r in range(n):
            shared[r] = x[r]
        for i in members[1:]:
            x = carray(bits.codes8_at(addresses[i]), n)
            n_planes = 0
            while (sizes[i] - 1) >> n_planes:
                n_planes += 1
            bits.shift_in(x, whole, U8(n_planes), shared)
            for r in range(whole, n):
                shared[r] = U8(shared[r] << n_planes | x[r])
        first = 0
        for c in range(n_class.size):
            of_class = order[first : first + n_class[c]]
            segment = ordered[begins[c] * 64 : begins[c + 1] * 64]
            for r in range(of_class.size):
                segment[r] = shared[U(of_class[r])]
            fill(segment, of_class.size, segment.size, U8(0))
            first += n_class[c]
        bit = 0
        for i in members[::-1]:
            last = sizes[i] - 1
            k = 0
            while last >> k:
                plane = planes[k] if last > 1 else out[rows[i]]
                for w in range(words):
                    plane[w] = bits.plane(ordered, U(w * 64), U8(1 << bit))
                bit += 1
                k += 1
            if last > 1:
                bits.values_of_planes(planes, k, last, rows[i], words, out)


@kernel
def meet(
    rows, begins, n_class, sizes, first, second, starts, row, pairs,
    tiles, needed, meetings, totals, left, out,
):  # fmt: skip
    """Count the bits set in two bit rows, tile by tile; add counts of pairs of values to out.

    rows      IN   (n_rows, words) uint64   bit rows
    begins    IN   (n_classes + 1,) int64   first word of each class
    n_class   IN   (n_classes,) int64   rows of data of each class
    sizes     IN   (m,) int64
    first, second, starts  IN  (n_pairs,) int64
    row       IN   (m,) int64   first bit row of each column
    pairs     IN   places in the list of pairs
    tiles     IN   (n_tiles, 6) int64   see `pair_plan.Bitmaps`
    needed    OUT  (blocks of a tile,) uint8   scratch
    meetings  OUT  (cells of a tile * n_classes,) int32   scratch
    totals    OUT  (n_rows * n_classes,) int64   scratch
    left      OUT  (258 * n_classes,) int64   scratch
    out       OUT  int64
    """
    n_classes = n_class.size
    words = rows.shape[1]
    flat = rows.reshape(-1)
    for s in range(rows.shape[0]):
        for c in range(n_classes):
            total = U(0)
            for word in rows[s, begins[c] : begins[c + 1]]:
                total += bits.popcount(word)
            totals[s * n_classes + c] = total
    for tile in range(tiles.shape[0]):
        top, height, side, width, begin, end = tiles[tile]
        blocks = width // bits.BLOCK
        fill(needed, 0, needed.size, 0)
        for p in pairs[begin:end]:
            a, b = first[p], second[p]
            if row[a] > row[b]:
                a, b = b, a
            at_a, at_b = row[a] - top, row[b] - side
            for u in range(at_a // bits.BLOCK, (at_a + sizes[a] - 2) // bits.BLOCK + 1):
                for v in range(at_b // bits.BLOCK, (at_b + sizes[b] - 2) // bits.BLOCK + 1):
                    needed[u * blocks + v] = 1
        for c in range(n_classes):
            for v in range(blocks):
                for u in range(height // bits.BLOCK):
                    if needed[u * blocks + v]:
                        bits.count_meetings(
                            *(flat, (top + u * bits.BLOCK) * words + begins[c]),
                            *((side + v * bits.BLOCK) * words + begins[c], words),
                            *(begins[c + 1] - begins[c], meetings),
                            *((u * width + v) * bits.BLOCK * n_classes + c, width, n_classes),
                        )
        for t in range(begin, end):
            p = pairs[t]
            ahead = pairs[min(t + AHEAD, end - 1)]
            for line in range(AHEAD_LINES):
                vector.prefetch(out, U(starts[ahead] + line * 8))
            a, b = first[p], second[p]
            step_a, step_b = sizes[b] * n_classes, n_classes
            if row[a] > row[b]:
                a, b = b, a
                step_a, step_b = step_b, step_a
            of_pair = meetings[((row[a] - top) * width + row[b] - side) * n_classes :]
            of_a, of_b = totals[row[a] * n_classes :], totals[row[b] * n_classes :]
            cells = out[starts[p] :]
            if sizes[a] == sizes[b] == 2:
                down, right = U(step_a), U(step_b)
                for c in range(U(n_classes)):
                    both = np.int64(of_pair[c])
                    only_a, only_b = of_a[c] - both, of_b[c] - both
                    cells[c] += n_class[c] - both - only_a - only_b
                    cells[c + right] += only_b
                    cells[c + down] += only_a
                    cells[c + down + right] += both
            else:
                add_pair(
                    *(of_pair, width * n_classes, n_class, of_a, of_b),
                    *(sizes[a] - 1, sizes[b] - 1, step_a, step_b, left, cells),
                )


@helper
def add_pair(meetings, step, n_class, of_a, of_b, high, wide, step_a, step_b, left, out):
    """Add counts of two columns that meet, and what they leave to code 0 of either, to out.

    meetings  IN   flat int32   of code 1 + s of a, 1 + v of b, class c: [s * step + v * K + c]
    n_class, of_a, of_b  IN  flat int64   rows of each class, of each code but 0 and class
    left      OUT  ((wide + 2) * K,) int64   scratch
    out       OUT  flat int64   code 0 of both, class 0 first
    """
    k = n_class.size
    left_b, left_a, neither = left[: wide * k], left[wide * k :], left[(wide + 1) * k :]
    for cell in range(left_b.size):
        left_b[cell] = of_b[cell]
    for c in range(k):
        neither[c] = n_class[c]
    for s in range(high):
        both = meetings[s * step : s * step + wide * k]
        cells = out[(s + 1) * step_a :]
        if step_b == k:
            right = cells[k : k + wide * k]
            for cell in range(right.size):
                right[cell] += both[cell]
                left_b[cell] -= both[cell]
        else:
            for v in range(wide):
                right, left_v = cells[(v + 1) * step_b :][:k], left_b[v * k :][:k]
                for c in range(right.size):
                    right[c] += both[v * k :][c]
                    left_v[c] -= both[v * k :][c]
        for c in range(k):
            left_a[c] = of_a[s * k + c]
            neither[c] -= left_a[c]
        for v in range(wide):
            both_v = both[v * k :]
            for c in range(k):
                left_a[c] -= both_v[c]
        for c in range(k):
            cells[c] += left_a[c]
    for v in range(wide):
        right, left_v = out[(v + 1) * step_b :][:k], left_b[v * k :]
        for c in range(k):
            right[c] += left_v[c]
            neither[c] -= left_v[c]
    for c in range(k):
        out[c] += neither[c]
