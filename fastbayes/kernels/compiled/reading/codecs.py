"""What the pages of Parquet files are packed with: Snappy, LZ4 blocks, CRC-32.

Every byte of the source is checked before it is used as a length or as an offset: whatever it
holds, nothing outside source[begin:end] is read and nothing outside out[at : at + room] written.
What is written there when the source turns out to be wrong is undefined.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import unaligned
from fastbayes.kernels.dispatch import helper, kernel, reads, scalar, writes

U = np.uint64
HAS_FOLD = unaligned.HAS_FOLD

_UNPACKS = (reads("uint8"), "int64", "int64", writes("uint8"), "int64", "int64")
SIGNATURES = {
    "snappy": [_UNPACKS],
    "lz4": [_UNPACKS],
    "crc32": [(reads("uint8"), "int64", "int64")],
}

# LZ4: a match begins so many bytes before the end of a block at least, and ends so many before.
_MATCH_BEGINS, _MATCH_ENDS = 12, 5


def _remainders() -> NDArray[np.uint32]:
    """Return the CRC-32 of each byte with 0 to 7 bytes of zeros behind it, bits reversed."""
    table = np.empty((8, 256), np.uint32)
    table[0] = np.arange(256)
    for _ in range(8):
        table[0] = table[0] >> 1 ^ (table[0] & 1) * np.uint32(0xEDB88320)
    for zeros in range(1, 8):
        table[zeros] = table[zeros - 1] >> 8 ^ table[0][table[zeros - 1] & 255]
    return table


_REMAINDERS = _remainders()


@kernel
def snappy(source, begin, end, out, at, room):
    """Unpack a Snappy block; return the bytes written, or -1 if they are not `room`, or invalid.

    source  IN   uint8   the block is source[begin:end], without framing
    out     OUT  uint8   takes out[at : at + room]
    """
    x, y = unaligned.span_of(source), unaligned.span_of(out)
    ip, size, shift = begin, 0, 0
    while True:
        if ip >= end or shift > 28:
            return -1
        byte = unaligned.byte(x, ip)
        ip += 1
        size |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if size != room or size >> 32:
        return -1
    op, limit = at, at + room
    while ip < end:
        word = next_bytes(x, ip, end)
        kind = word & U(3)
        length = np.int64(word >> U(2) & U(63)) + 1
        if kind == U(0):
            ip += 1
            if length > 60:
                extra = length - 60
                length = np.int64(word >> U(8) & ~U(0) >> U(64 - 8 * extra)) + 1
                ip += extra
            if length > end - ip or length > limit - op:
                return -1
            copy_literals(x, ip, end, y, op, limit, length)
            ip += length
        else:
            if kind == U(1):
                length = np.int64(word >> U(2) & U(7)) + 4
                offset = np.int64(word >> U(8) & U(0xFF) | word << U(3) & U(0x700))
                ip += 2
            elif kind == U(2):
                offset = np.int64(word >> U(8) & U(0xFFFF))
                ip += 3
            else:
                offset = np.int64(word >> U(8) & U(0xFFFFFFFF))
                ip += 5
            if ip > end or offset == 0 or offset > op - at or length > limit - op:
                return -1
            repeat(y, at, op, limit, offset, length)
        op += length
    return room if op == limit else -1


@helper
def read_length(x, ip, end, length):
    """Return a length that further bytes add to, and the place behind these; -1 if cut off."""
    more = 255
    while more == 255:
        if ip >= end:
            return length, -1
        more = unaligned.byte(x, ip)
        ip += 1
        length += more
    return length, ip


@kernel
def lz4(source, begin, end, out, at, room):
    """Unpack an LZ4 block; return the bytes written, or -1 if they are not `room`, or invalid.

    The rules for the end of a block hold, and an offset of 0 is invalid.

    source  IN   uint8   the block is source[begin:end], without a frame
    out     OUT  uint8   takes out[at : at + room]
    """
    x, y = unaligned.span_of(source), unaligned.span_of(out)
    if room <= 0:
        return 0 if room == 0 and end - begin == 1 and unaligned.byte(x, begin) == 0 else -1
    ip, op, limit = begin, at, at + room
    while ip < end:
        token = unaligned.byte(x, ip)
        ip += 1
        length = token >> 4
        if length == 15:
            length, ip = read_length(x, ip, end, length)
            if ip < 0:
                return -1
        if length > end - ip or length > limit - op:
            return -1
        copy_literals(x, ip, end, y, op, limit, length)
        ip += length
        op += length
        if ip == end:
            return room if op == limit else -1
        if end - ip < 2 or limit - op < _MATCH_BEGINS:
            return -1
        offset = np.int64(next_bytes(x, ip, end) & U(0xFFFF))
        ip += 2
        length = (token & 15) + 4
        if length == 19:
            length, ip = read_length(x, ip, end, length)
            if ip < 0:
                return -1
        if offset == 0 or offset > op - at or length > limit - op - _MATCH_ENDS:
            return -1
        repeat(y, at, op, limit, offset, length)
        op += length
    return -1


@kernel
def crc32(source, begin, end):
    """Return the CRC-32 of source[begin:end], that of zlib.

    source  IN  uint8
    """
    x = unaligned.span_of(source)
    crc, ip = U(0xFFFFFFFF), begin
    if HAS_FOLD:  # alone: numba leaves out what a constant rules out, and so must the processor
        n = (end - ip) // 64 * 64
        if n > 0:
            first, second = unaligned.fold(x, ip, n, crc)
            crc = remainder(second ^ remainder(first))
            ip += n
    while end - ip >= 8:
        crc = remainder(unaligned.word(x, ip) ^ crc)
        ip += 8
    while ip < end:
        crc = crc >> U(8) ^ U(_REMAINDERS[0, (crc ^ U(unaligned.byte(x, ip))) & U(255)])
        ip += 1
    return np.uint32(crc ^ U(0xFFFFFFFF))


@helper
def remainder(word):
    """Return the CRC-32 of the eight bytes of a word, lowest first."""
    crc = U(0)
    for k in range(U(8)):
        crc ^= U(_REMAINDERS[U(7) - k, word >> U(8) * k & U(255)])
    return crc


@helper
@scalar
def next_bytes(x, ip, end):
    """Return source[ip : ip + 8] as one number, lowest byte first; 0 for what is not before end."""
    if end - ip >= 8:
        return unaligned.word(x, ip)
    word = U(0)
    for k in range(end - ip):
        word |= U(unaligned.byte(x, ip + k)) << U(8 * k)
    return word


@helper
def copy_literals(x, ip, end, out, op, limit, length):
    """Copy source[ip : ip + length] to `out` from op on; up to 63 bytes behind may be written too.

    length  at most end - ip and limit - op
    """
    if length <= 16 and end - ip >= 16 and limit - op >= 16:
        unaligned.copy_16(x, ip, out, op)
    elif length <= 64 and end - ip >= 64 and limit - op >= 64:
        for k in range(0, 64, 16):
            unaligned.copy_16(x, ip + k, out, op + k)
    elif length:
        unaligned.copy(x, ip, out, op, length)


@helper
def repeat(out, at, op, limit, offset, length):
    """Write out[op - offset :] again from op on, `length` bytes; some behind may be written too.

    offset  at most op - at
    length  at most limit - op
    """
    if length <= 24 and offset >= 8 and limit - op >= 24:
        for k in range(0, 24, 8):
            unaligned.put_word(unaligned.word(out, op - offset + k), out, op + k)
    else:
        repeat_long(out, at, op, limit, offset, length)


@helper
def repeat_long(out, at, op, limit, offset, length):
    """Do what `repeat` does for any match; apart, so that what most matches need is inlined."""
    begin, stop = op - offset, op + length
    fast = min(stop, op + 256, limit - 15)
    if offset >= 16:
        while op < fast:
            unaligned.copy_16(out, op - offset, out, op)
            op += 16
    elif offset >= 8:
        while op < fast:
            unaligned.put_word(unaligned.word(out, op - offset), out, op)
            op += 8
    elif op - at >= 8:
        # The last `offset` bytes, side by side as often as they fit: each step writes whole
        # copies, and no step reads what the one before has written.
        width = U(8 * offset)
        pattern = unaligned.word(out, op - 8) >> (U(64) - width)
        while width < U(64):
            pattern |= pattern << width
            width += width
        step = 8 // offset * offset
        while op < fast:
            unaligned.put_word(pattern, out, op)
            op += step
    while op < stop:  # all the copies that are there, in one piece
        copies = (op - begin) // offset * offset
        n = min(copies, stop - op)
        unaligned.copy(out, op - copies, out, op, n)
        op += n
