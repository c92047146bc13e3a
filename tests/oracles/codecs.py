"""Blocks of Snappy and LZ4 and a checksum: sequences are read, then written out.

The functions are those of `fastbayes.kernels.compiled.reading.codecs`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
# Literals, then a match: its offset and its length, which is 0 where there is none.
Sequence = tuple[bytes, int, int]


def snappy(source: Bytes, begin: int, end: int, out: Bytes, at: int, room: int) -> int:
    """Unpack a Snappy block."""
    return _write(_snappy_sequences(source[begin:end].tobytes(), room), 0, 0, out, at, room)


def lz4(source: Bytes, begin: int, end: int, out: Bytes, at: int, room: int) -> int:
    """Unpack an LZ4 block."""
    return _write(_lz4_sequences(source[begin:end].tobytes(), room), 12, 5, out, at, room)


def crc32(source: Bytes, begin: int, end: int) -> int:
    """Return the CRC-32 of some bytes."""
    return zlib.crc32(source[begin:end].tobytes())


def _snappy_sequences(source: bytes, room: int) -> Iterator[Sequence]:
    size, at = 0, 0
    while at < 5:
        byte = _number(source, at, 1)
        size |= (byte & 127) << 7 * at
        at += 1
        if byte < 128:
            break
    else:
        raise ValueError("a size of more than five bytes")
    if size != room or size >= 2**32:
        raise ValueError(f"{size} bytes, not {room}")
    while at < len(source):
        tag = source[at]
        at += 1
        kind, high = tag & 3, tag >> 2
        if kind == 0:
            extra = max(high - 59, 0)
            length = (_number(source, at, extra) if extra else high) + 1
            yield _taken(source, at + extra, length), 0, 0
            at += extra + length
        elif kind == 1:
            yield b"", _number(source, at, 1) | tag >> 5 << 8, (high & 7) + 4
            at += 1
        else:
            width = 2 if kind == 2 else 4
            yield b"", _number(source, at, width), high + 1
            at += width


def _lz4_sequences(source: bytes, room: int) -> Iterator[Sequence]:
    if room == 0 and source != b"\0":
        raise ValueError("an empty block is one byte, 0")
    at = 0
    while True:
        token = _number(source, at, 1)
        n_literals, at = _lz4_length(source, at + 1, token >> 4)
        literals = _taken(source, at, n_literals)
        at += n_literals
        if at == len(source):
            yield literals, 0, 0
            return
        offset = _number(source, at, 2)
        length, at = _lz4_length(source, at + 2, token & 15)
        yield literals, offset, length + 4


def _lz4_length(source: bytes, at: int, length: int) -> tuple[int, int]:
    """Return the length that begins in a token, and where the source goes on."""
    more = 255 if length == 15 else 0
    while more == 255:
        more = _number(source, at, 1)
        length += more
        at += 1
    return length, at


def _number(source: bytes, at: int, width: int) -> int:
    return int.from_bytes(_taken(source, at, width), "little")


def _taken(source: bytes, at: int, n: int) -> bytes:
    if n > len(source) - at:
        raise ValueError(f"{n} bytes from byte {at} on, of {len(source)}")
    return source[at : at + n]


def _write(
    sequences: Iterator[Sequence], begins: int, ends: int, out: Bytes, at: int, room: int
) -> int:
    """Write sequences out; return the bytes, or -1 if they are not `room`, or invalid.

    A match begins `begins` bytes before the last one at least, and ends `ends` before it.
    """
    data = bytearray()
    try:
        for literals, offset, length in sequences:
            data += literals
            if length:
                left = room - len(data)
                if not 0 < offset <= len(data) or left < begins or left < length + ends:
                    return -1
                for _ in range(length):
                    data.append(data[-offset])
    except ValueError:
        return -1
    if len(data) != room:
        return -1
    out[at : at + room] = data
    return room
