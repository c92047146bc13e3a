"""Zstandard frames, after RFC 8878: what the pages of Parquet files are packed with.

Every byte of a frame is checked before it is used as a length, an offset or a place in a table:
whatever it holds, nothing outside the source and the room of the frame is read or written. A frame
that is not sound, or that has what no writer of pages uses (a checksum, a dictionary, several
frames in one), is left to whoever calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.reading.codecs import copy_literals, repeat
from fastbayes.kernels.compiled.simd.bits import popcount
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.compiled.simd.unaligned import byte, copy, span_of, word
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes

U = np.uint64
SIGNATURES = {
    "unpack_frames": [
        (
            *(reads("uint8"), reads("int64", 2), writes("uint8"), writes("bool")),
            *(writes("uint16"), writes("int64", 3), writes("int64"), writes("int64")),
            *(writes("uint8"), writes("int64")),
        )
    ]
}

_MAGIC = 0xFD2FB528
# The most bytes that a block takes, and that it may be read as.
_MOST = 1 << 17
# The bits of the widest window that the library takes.
_WIDEST = 31
# Kinds of blocks, of literals, and where the codes of sequences get their table from.
_RAW, _RUN, _PACKED = range(3)  # 3: literals by the tree of the block before
_GIVEN, _ONE, _WRITTEN, _SAME = range(4)

# Codes of a sequence: of its literals' length, its offset, its match's length.
_LITERALS, _OFFSETS, _MATCHES = range(3)
_LARGEST = np.array([35, 31, 52])
_LOGS = np.array([9, 8, 9])
_GIVEN_LOGS = np.array([6, 5, 6])
_GIVEN_COUNTS = np.zeros((3, 64), np.int64)
_GIVEN_COUNTS[_LITERALS, :36] = [
    *(4, 3, *[2] * 11, 1, 1, 1),
    *(*[2] * 9, 3, 2, *[1] * 5, *[-1] * 4),
]
_GIVEN_COUNTS[_OFFSETS, :29] = [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5]
_GIVEN_COUNTS[_MATCHES, :53] = [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7]
# Bits that follow a code, and the least number that it stands for.
_BITS = np.zeros((3, 64), np.int64)
_BITS[_LITERALS, 16:36] = [1, 1, 1, 1, 2, 2, 3, 3, 4, *range(6, 17)]
_BITS[_OFFSETS, :32] = range(32)
_BITS[_MATCHES, 32:53] = [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17)]
_LEAST = np.zeros((3, 64), np.int64)
_LEAST[_LITERALS, 1:] = np.cumsum(1 << _BITS[_LITERALS])[:-1]
_LEAST[_OFFSETS, :32] = 1 << np.arange(32)
_LEAST[_MATCHES] = 3
_LEAST[_MATCHES, 1:] += np.cumsum(1 << _BITS[_MATCHES])[:-1]

# The tree of a literal has at most so many bits; the weights of its symbols are written in codes
# of a table of at most so many bits.
_DEEPEST, _DEEPEST_OF_WEIGHTS = 11, 6
# A table of codes: for each state the symbol, the bits to read, and what these are added to.
_SYMBOL, _WIDTH, _BASE = range(3)
# What is kept from block to block: the bits of the tree and of the three tables, -1 where there
# is none, and the last three offsets.
_TREE, _TABLES, _LAST = 0, 1, 4


def unpack(
    source: NDArray[np.uint8], frames: NDArray[np.int64], out: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Unpack frames; return which were: the others are not sound, or not read here.

    source  IN   uint8   with 8 bytes behind the last frame
    frames  IN   (n_frames, 4) int64   where one begins and ends, the place in `out` and the bytes
                 that it must be read as
    out     OUT  uint8
    """
    done = np.zeros(len(frames), np.bool_)
    unpack_frames(*unpacking(source, frames, out, done))
    return done


def unpacking(
    source: NDArray[np.uint8],
    frames: NDArray[np.int64],
    out: NDArray[np.uint8],
    done: NDArray[np.bool_],
) -> tuple[NDArray[Any], ...]:
    """Return the arguments of `unpack_frames` for these of `unpack`, and what that returns."""
    scratch = (
        *(np.empty(1 << _DEEPEST, np.uint16), np.empty((3, 1 << 9, 3), np.int64)),
        *(np.empty(256, np.int64), np.empty(256, np.int64)),
        *(np.empty(_MOST + 64, np.uint8), np.empty(7, np.int64)),
    )
    return (readonly(source), readonly(frames), out, done, *scratch)


@kernel
def unpack_frames(source, frames, out, done, tree, tables, counts, weights, literals, state):
    """Unpack frames; see `unpack`. What is behind `done` is scratch for one frame."""
    for k in range(frames.shape[0]):
        begin, end, at, room = frames[k, 0], frames[k, 1], frames[k, 2], frames[k, 3]
        done[k] = room == unpack_frame(
            source, begin, end, out, at, room, tree, tables, counts, weights, literals, state
        )


@helper
def unpack_frame(source, begin, end, out, at, room, tree, tables, counts, weights, literals, state):
    """Unpack a frame; return the bytes written, -1 if it is not unpacked."""
    x = span_of(source)
    ip = begin + 5
    if ip > end or word(x, begin) & U(0xFFFFFFFF) != U(_MAGIC):
        return -1
    head = byte(x, begin + 4)
    if head & 0b1111:  # a checksum, a dictionary, or what is reserved
        return -1
    single = head >> 5 & 1
    most = min(room, _MOST)
    if not single:
        if ip >= end:
            return -1
        window = byte(x, ip)
        ip += 1
        if window >> 3 > _WIDEST - 10:
            return -1
        least = 1 << (10 + (window >> 3))
        most = min(least + (least >> 3) * (window & 7), _MOST)
    width = 1 << (head >> 6) if head >> 6 or single else 0
    if ip + width > end:
        return -1
    if width:
        size = np.int64(word(x, ip) & (~U(0) >> U(64 - 8 * width)))
        if size + (256 if width == 2 else 0) != room:
            return -1
        ip += width
    fill(state, 0, _LAST, -1)
    state[_LAST], state[_LAST + 1], state[_LAST + 2] = 1, 4, 8
    op, limit = at, at + room
    while ip + 3 <= end:
        block = np.int64(word(x, ip) & U(0xFFFFFF))
        ip += 3
        kind, size = block >> 1 & 3, block >> 3
        taken = 1 if kind == _RUN else size
        if size > most or taken > end - ip:
            return -1
        if kind == _PACKED:
            room_left = min(limit, op + most)
            op = unpack_block(
                source, ip, ip + size, out, at, op, room_left,
                tree, tables, counts, weights, literals, state,
            )  # fmt: skip
            if op < 0:
                return -1
        elif size > limit - op or kind > _PACKED:
            return -1
        else:
            if kind == _RUN:
                fill(out, op, op + size, source[ip])
            elif size:
                copy(x, ip, span_of(out), op, size)
            op += size
        ip += taken
        if block & 1:
            return op - at if ip == end else -1
    return -1


@helper
def unpack_block(
    source, ip, end, out, at, op, limit, tree, tables, counts, weights, literals, state
):
    """Unpack a block to out[op:limit]; return the place behind it, -1 if it is not sound.

    at  where the frame starts in `out`
    """
    x, y, z = span_of(source), span_of(out), span_of(literals)
    if ip >= end:
        return -1
    head = word(x, ip)
    kind, form = np.int64(head & U(3)), np.int64(head >> U(2) & U(3))
    if kind <= _RUN:
        lead = 1 if form & 1 == 0 else 2 if form == 1 else 3
        n = np.int64(
            head >> U(3) & U(31) if lead == 1 else head >> U(4) & U((1 << 8 * lead - 4) - 1)
        )
        size = n if kind == _RAW else 1
    else:
        lead, bits = max(form + 2, 3), 10 + 4 * max(form - 1, 0)
        n = np.int64(head >> U(4)) & ((1 << bits) - 1)
        size = np.int64(head >> U(4 + bits)) & ((1 << bits) - 1)
    ip += lead
    stop = ip + size
    if stop > end or n > _MOST:
        return -1
    rest = stop + 1  # where what follows the number of sequences begins, if there are some
    if rest > end:
        return -1
    n_sequences = byte(x, stop)
    if n_sequences > 127:
        rest += 1 if n_sequences < 255 else 2
        if rest > end:
            return -1
        if n_sequences < 255:
            n_sequences = (n_sequences - 128 << 8) + byte(x, stop + 1)
        else:
            n_sequences = byte(x, stop + 1) + (byte(x, stop + 2) << 8) + 0x7F00
    # literals are written to where they belong if nothing comes between them
    if n_sequences == 0 and (n > limit - op or rest != end):
        return -1
    target, place = (out, op) if n_sequences == 0 else (literals, 0)
    given, first = z, 0
    if kind == _RAW:
        given, first = x, ip
        if n_sequences == 0 and n:
            copy(x, ip, y, op, n)
    elif kind == _RUN:
        fill(target, place, place + n, source[ip])
    else:
        if kind == _PACKED:
            ip = read_tree(x, ip, stop, tree, tables[0], counts, weights, state)
        if ip < 0 or state[_TREE] < 0:
            return -1
        if not read_literals(x, ip, stop, target, place, n, tree, state[_TREE], form != 0):
            return -1
    if n_sequences == 0:
        return op + n
    ip = read_tables(x, rest, end, tables, counts, state)
    if ip < 0:
        return -1
    return unpack_sequences(
        x, ip, end, y, at, op, limit, given, first, n, n_sequences, tables, state
    )


@helper
def bits_below(x, start, bit, n):
    """Return the n <= 56 bits below a bit of the stream that starts at a byte; before it are 0."""
    low = bit - n
    if low < 0:
        if bit <= 0:
            return 0
        known = word(x, start) & ((U(1) << U(bit)) - U(1))
        return np.int64(known << U(-low))
    found = word(x, start + (low >> 3)) >> U(low & 7)
    return np.int64(found & ((U(1) << U(n)) - U(1)))


@helper
def highest(number):
    """Return the place of the highest bit of a number above 0."""
    bit = 0
    while number > 1:
        number >>= 1
        bit += 1
    return bit


@helper
def bits_of_stream(x, start, end):
    """Return the bits of a stream that is read from its end, -1 if it does not tell."""
    if start >= end or byte(x, end - 1) == 0:
        return -1
    return 8 * (end - 1 - start) + highest(byte(x, end - 1))


@helper
def read_counts(x, at, end, counts, largest, deepest):
    """Read how often each symbol stands in a table; return its bits and the place behind, or -1.

    counts  OUT  (256,) int64   -1 for a symbol that is rarer than once
    """
    fill(counts, 0, counts.size, 0)
    if at >= end:
        return -1, -1
    log = (byte(x, at) & 15) + 5
    if log > deepest:
        return -1, -1
    bit, last = 8 * at + 4, 8 * end
    left, symbol = 1 << log, 0
    while left > 0:
        if symbol > largest or bit >= last:
            return -1, -1
        width = highest(left + 1) + 1
        value = np.int64(word(x, bit >> 3) >> U(bit & 7)) & ((1 << width) - 1)
        low, short = value & ((1 << (width - 1)) - 1), (1 << width) - 2 - left
        if low < short:
            value = low
            bit += width - 1
        else:
            if value >= 1 << (width - 1):
                value -= short
            bit += width
        counts[symbol] = value - 1
        left -= abs(value - 1)
        symbol += 1
        more = 3 if value == 1 else 0
        while more == 3:
            if bit >= last:
                return -1, -1
            more = np.int64(word(x, bit >> 3) >> U(bit & 7)) & 3
            bit += 2
            symbol += more
            if symbol > largest:
                return -1, -1
    if left != 0 or bit > last:
        return -1, -1
    return log, (bit + 7) >> 3


@helper
def build_table(counts, n_symbols, log, table):
    """Lay out the states of a table; return whether they are as many as there is room.

    counts  IN   how often each symbol stands there; overwritten
    table   OUT  (>= 2 ** log, 3) int64
    """
    size = 1 << log
    top = size
    for symbol in range(n_symbols):
        if counts[symbol] == -1:
            top -= 1
            table[top, _SYMBOL] = symbol
            counts[symbol] = 1
        elif counts[symbol] > 0:
            counts[symbol] = -counts[symbol] - 1  # still to be laid out
    step, at = (size >> 1) + (size >> 3) + 3, 0
    for symbol in range(n_symbols):
        if counts[symbol] < 0:
            counts[symbol] = -counts[symbol] - 1
            for _ in range(counts[symbol]):
                table[at, _SYMBOL] = symbol
                at = (at + step) & (size - 1)
                while at >= top:
                    at = (at + step) & (size - 1)
    if at != 0:
        return False
    for k in range(size):
        symbol = table[k, _SYMBOL]
        n = counts[symbol]
        counts[symbol] += 1
        width = log - highest(n)
        table[k, _WIDTH], table[k, _BASE] = width, (n << width) - size
    return True


@helper
def read_tree(x, at, end, tree, table, counts, weights, state):
    """Read the tree of literals; return the place behind it, -1 if it is not sound.

    tree   OUT  (2048,) uint16   for each word of bits 256 times the literal, and its bits
    table  OUT  scratch
    """
    state[_TREE] = -1
    if at >= end:
        return -1
    size, n = byte(x, at), 0
    at += 1
    if size > 127:
        n = size - 127
        stop = at + ((n + 1) >> 1)
        if stop > end:
            return -1
        for k in range(n):
            weights[k] = byte(x, at + (k >> 1)) >> (4 - 4 * (k & 1)) & 15
    else:
        stop = at + size
        if stop > end:
            return -1
        n = read_weights(x, at, stop, table, counts, weights)
    # the weight of the last symbol makes the sum a power of two
    total = rare = 0
    for k in range(n):
        if weights[k] > _DEEPEST:
            return -1
        total += 1 << weights[k] >> 1
        rare += weights[k] == 1
    if n < 1 or total == 0:
        return -1
    deepest = highest(total) + 1
    left = (1 << deepest) - total
    if deepest > _DEEPEST or left & (left - 1):
        return -1
    weights[n] = highest(left) + 1
    rare += weights[n] == 1
    if rare < 2 or rare & 1:
        return -1
    places = counts  # of the next literal of each weight
    for weight in range(_DEEPEST + 2):
        places[weight] = 0
    for k in range(n + 1):
        places[weights[k] + 1] += 1 << weights[k] >> 1
    for weight in range(1, _DEEPEST + 2):
        places[weight] += places[weight - 1]
    for symbol in range(n + 1):
        weight = weights[symbol]
        if weight:
            entry, place = symbol << 8 | (deepest + 1 - weight), places[weight]
            places[weight] = place + (1 << (weight - 1))
            for k in range(place, places[weight]):
                tree[U(k)] = entry
    state[_TREE] = deepest
    return stop


@helper
def read_weights(x, at, end, table, counts, weights):
    """Read weights by two states that take turns; return how many there are, -1 if unsound."""
    log, start = read_counts(x, at, end, counts, 255, _DEEPEST_OF_WEIGHTS)
    if log < 0 or not build_table(counts, 256, log, table):
        return -1
    bit = bits_of_stream(x, start, end)
    if bit < 2 * log:
        return -1
    one, other = bits_below(x, start, bit, log), bits_below(x, start, bit - log, log)
    bit -= 2 * log
    n = 0
    while n < 254:
        weights[n] = table[one, _SYMBOL]
        n += 1
        width = table[one, _WIDTH]
        following = table[one, _BASE] + bits_below(x, start, bit, width)
        bit -= width
        one, other = other, following
        if bit < 0:
            weights[n] = table[one, _SYMBOL]
            return n + 1
    return -1


@helper
def read_literals(x, at, end, out, place, n, tree, log, four):
    """Read n literals to out[place:], in one stream or four; return whether they are sound."""
    if not four:
        bit = bits_of_stream(x, at, end)
        return bit >= 0 and read_rest(x, at, bit, out, place, place + n, tree, log)
    if end - at < 10 or n < 6:
        return False
    sizes = word(x, at)
    at += 6
    s1 = at + np.int64(sizes & U(0xFFFF))
    s2 = s1 + np.int64(sizes >> U(16) & U(0xFFFF))
    s3 = s2 + np.int64(sizes >> U(32) & U(0xFFFF))
    if s3 >= end:
        return False
    b0, b1 = bits_of_stream(x, at, s1), bits_of_stream(x, s1, s2)
    b2, b3 = bits_of_stream(x, s2, s3), bits_of_stream(x, s3, end)
    if min(min(b0, b1), min(b2, b3)) < 0:
        return False
    part = (n + 3) >> 2
    p0, stop = place, place + n
    if 3 * part > n:
        return False
    # five literals of each stream from 55 bits, as long as all have so many
    shift, most = U(64 - log), U(63)
    while min(min(b0, b1), min(b2, b3)) >= 64 and stop - p0 - 3 * part >= 5:
        w0, w1 = bits_at_top(x, at, b0), bits_at_top(x, s1, b1)
        w2, w3 = bits_at_top(x, s2, b2), bits_at_top(x, s3, b3)
        for k in range(p0, p0 + 5):
            e0, e1 = U(tree[w0 >> shift]), U(tree[w1 >> shift])
            e2, e3 = U(tree[w2 >> shift]), U(tree[w3 >> shift])
            out[U(k)], out[U(k + part)] = e0 >> U(8), e1 >> U(8)
            out[U(k + 2 * part)], out[U(k + 3 * part)] = e2 >> U(8), e3 >> U(8)
            w0, w1, w2, w3 = (
                w0 << (e0 & most),
                w1 << (e1 & most),
                w2 << (e2 & most),
                w3 << (e3 & most),
            )
        b0, b1 = bits_left(b0, w0), bits_left(b1, w1)
        b2, b3 = bits_left(b2, w2), bits_left(b3, w3)
        p0 += 5
    p1, p2, p3 = p0 + part, p0 + 2 * part, p0 + 3 * part
    return (
        read_rest(x, at, b0, out, p0, place + part, tree, log)
        and read_rest(x, s1, b1, out, p1, place + 2 * part, tree, log)
        and read_rest(x, s2, b2, out, p2, place + 3 * part, tree, log)
        and read_rest(x, s3, b3, out, p3, stop, tree, log)
    )


@helper
def bits_at_top(x, start, bit):
    """Return 56 bits or more below a bit of a stream, the highest first, then a 1; bit >= 64."""
    return (word(x, start + ((bit + 7) >> 3) - 8) | U(1)) << U(-bit & 7)


@helper
def bits_left(bit, bits):
    """Return the bit below which a stream goes on when its `bits_at_top` were moved out to these.

    The lowest 1 that is left, which the last bits cannot be, tells how many there were.
    """
    return bit + (-bit & 7) - np.int64(popcount(~bits & (bits - U(1))))


@helper
def read_rest(x, start, bit, out, place, stop, tree, log):
    """Read literals to out[place:stop]; return whether these are all that is left of a stream."""
    for k in range(place, stop):
        entry = np.int64(tree[U(bits_below(x, start, bit, log))])
        out[U(k)] = entry >> 8
        bit -= entry & 255
    return bit == 0


@helper
def read_tables(x, at, end, tables, counts, state):
    """Read the tables of the codes of sequences; return the place behind them, -1 if unsound."""
    if at >= end:
        return -1
    modes = byte(x, at)
    at += 1
    if modes & 3:
        return -1
    for code in range(3):
        mode, log = modes >> (6 - 2 * code) & 3, state[_TABLES + code]
        table = tables[code]
        if mode == _ONE:
            if at >= end or byte(x, at) > _LARGEST[code]:
                return -1
            table[0, _SYMBOL], table[0, _WIDTH], table[0, _BASE] = byte(x, at), 0, 0
            at += 1
            log = 0
        elif mode != _SAME:
            if mode == _GIVEN:
                log = _GIVEN_LOGS[code]
                for symbol in range(64):  # slices of arrays would compile what an error says
                    counts[symbol] = _GIVEN_COUNTS[code, symbol]
            else:
                log, at = read_counts(x, at, end, counts, _LARGEST[code], _LOGS[code])
            if log < 0 or not build_table(counts, 64, log, table):
                return -1
        if log < 0:
            return -1
        state[_TABLES + code] = log
    return at


@helper
def unpack_sequences(x, at, end, y, begin, op, limit, given, first, n, n_sequences, tables, state):
    """Write literals and matches in turn; return the place behind them, -1 if they are unsound.

    given, first, n  span, place and number of the literals
    """
    bit = bits_of_stream(x, at, end)
    if bit < 0:
        return -1
    l_log, o_log, m_log = state[_TABLES], state[_TABLES + 1], state[_TABLES + 2]
    literal = bits_below(x, at, bit, l_log)
    bit -= l_log
    offsets = bits_below(x, at, bit, o_log)
    bit -= o_log
    match = bits_below(x, at, bit, m_log)
    bit -= m_log
    last = first + n
    r0, r1, r2 = state[_LAST], state[_LAST + 1], state[_LAST + 2]
    for k in range(n_sequences):
        l_code, o_code = tables[_LITERALS, literal, _SYMBOL], tables[_OFFSETS, offsets, _SYMBOL]
        m_code = tables[_MATCHES, match, _SYMBOL]
        number = _LEAST[_OFFSETS, o_code] + bits_below(x, at, bit, o_code)
        bit -= o_code
        length = _LEAST[_MATCHES, m_code] + bits_below(x, at, bit, _BITS[_MATCHES, m_code])
        bit -= _BITS[_MATCHES, m_code]
        before = _LEAST[_LITERALS, l_code] + bits_below(x, at, bit, _BITS[_LITERALS, l_code])
        bit -= _BITS[_LITERALS, l_code]
        if bit < 0:
            return -1
        if number > 3:
            r0, r1, r2 = number - 3, r0, r1
        else:
            number += before == 0
            if number == 2:
                r0, r1 = r1, r0
            elif number == 3:
                r0, r1, r2 = r2, r0, r1
            elif number == 4:
                r0, r1, r2 = r0 - 1, r0, r1
        if before > last - first or before > limit - op:
            return -1
        copy_literals(given, first, last, y, op, limit, before)
        first, op = first + before, op + before
        if r0 <= 0 or r0 > op - begin or length > limit - op:
            return -1
        repeat(y, begin, op, limit, r0, length)
        op += length
        if k + 1 < n_sequences:
            width = tables[_LITERALS, literal, _WIDTH]
            literal = tables[_LITERALS, literal, _BASE] + bits_below(x, at, bit, width)
            bit -= width
            width = tables[_MATCHES, match, _WIDTH]
            match = tables[_MATCHES, match, _BASE] + bits_below(x, at, bit, width)
            bit -= width
            width = tables[_OFFSETS, offsets, _WIDTH]
            offsets = tables[_OFFSETS, offsets, _BASE] + bits_below(x, at, bit, width)
            bit -= width
            if bit < 0:
                return -1
    if bit != 0 or last - first > limit - op:
        return -1
    copy_literals(given, first, last, y, op, limit, last - first)
    state[_LAST], state[_LAST + 1], state[_LAST + 2] = r0, r1, r2
    return op + last - first
