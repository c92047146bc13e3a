"""What pages are packed with: pyarrow and zlib say what is right, also of the oracle of pages."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import codecs as naive

from fastbayes.kernels.compiled.reading import codecs as compiled
from fastbayes.kernels.dispatch import readonly

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(naive, id="oracle"),
]
CODECS = {"snappy": pa.Codec("snappy"), "lz4": pa.Codec("lz4_raw")}
NAMES = pytest.mark.parametrize("name", CODECS)
GUARD = 0xA5


def unpacked(module, name, block, room, before=3, behind=3):
    """Return what a block holds, or None if it is refused; what lies around stays as it is."""
    source = np.full(before + len(block) + behind, 0xFF, np.uint8)
    source[before : before + len(block)] = np.frombuffer(block, np.uint8)
    out = np.full(before + room + behind, GUARD, np.uint8)
    ends = before, before + len(block)
    written = getattr(module, name)(readonly(source), *ends, out, before, room)
    assert (out[:before] == GUARD).all()
    assert (out[before + room :] == GUARD).all()
    assert written in (room, -1)
    return out[before : before + room].tobytes() if written == room else None


def by_pyarrow(name, block, room):
    """Return what pyarrow makes of a block, or None if it refuses."""
    try:
        return CODECS[name].decompress(block, room, asbytes=True)
    except (OSError, pa.ArrowInvalid):
        return None


def size_of(block):
    """Return the number of bytes that a Snappy block says it holds."""
    n = next(i for i, byte in enumerate(block) if byte < 128) + 1
    return sum((byte & 127) << 7 * i for i, byte in enumerate(block[:n]))


def breaks_a_rule(block, room):
    """Return whether an LZ4 block has an offset of 0, a match too near to its end, or other bytes.

    The library takes some of the former for speed, though the format forbids them.
    """
    at = written = 0

    def length_of(length):
        nonlocal at
        while length >= 15 and (more := block[(at := at + 1) - 1]) == 255:
            length += 255
        return length + (more if length >= 15 else 0)

    while at < len(block):
        token = block[at]
        at += 1
        n_literals = length_of(token >> 4)
        at, written = at + n_literals, written + n_literals
        if at >= len(block):
            return written != room
        offset = int.from_bytes(block[at : at + 2], "little")
        at += 2
        left = room - written
        length = length_of(token & 15) + 4
        if offset == 0 or left < 12 or left < length + 5:
            return True
        written += length
    return False


def check(module, name, block, room):
    """Hold one block, which may be wrong, against pyarrow; return whether it is accepted."""
    ours, expected = unpacked(module, name, block, room), by_pyarrow(name, block, room)
    assert unpacked(module, name, block, room, 0, 0) == ours  # bounds checks see what lies outside
    if ours is not None:
        assert ours == expected, block
    elif expected is not None:  # pyarrow fills what a block leaves of the room
        if name == "snappy":
            assert size_of(block) < room, block
        else:
            assert breaks_a_rule(block, room), block
    return ours is not None


@st.composite
def contents(draw):
    """Return bytes of a kind that pages hold."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(0, 40) | st.integers(0, 3000) | st.integers(60_000, 200_000))
    kind = draw(st.sampled_from(["random", "few", "period", "runs", "numbers", "far", "words"]))
    if kind == "random":
        return rng.bytes(n)
    if kind == "few":
        return rng.integers(0, 2, n, np.uint8).tobytes()
    if kind == "period":
        period = rng.bytes(draw(st.integers(1, 70)))
        return (period * (n // len(period) + 1))[:n]
    if kind == "runs":
        lengths = rng.geometric(0.01, n // 100 + 1)
        return np.repeat(rng.integers(0, 256, len(lengths), np.uint8), lengths).tobytes()
    if kind == "numbers":
        return np.cumsum(rng.integers(0, 3, n // 8)).astype("<i8").tobytes()
    if kind == "words":
        words = [rng.bytes(k) for k in rng.integers(1, 30, 50)]
        return b"".join(words[k] for k in rng.integers(0, 50, n // 15))
    head = rng.bytes(draw(st.integers(1, 70_000)))
    return head + rng.bytes(draw(st.integers(0, 3000))) + head


@NAMES
@pytest.mark.parametrize("module", MODULES)
@given(data=contents(), before=st.integers(0, 20), behind=st.sampled_from([0, 1, 100]))
@settings(deadline=None)
def test_round_trip(module, name, data, before, behind):
    block = CODECS[name].compress(data, asbytes=True)
    assert unpacked(module, name, block, len(data), before, behind) == data
    assert unpacked(module, name, block, len(data) + 1) is None
    assert unpacked(module, name, block[:-1], len(data)) is None
    if data:
        assert unpacked(module, name, block, len(data) - 1) is None
    assert unpacked(module, name, block + b"\0", len(data)) is None


@NAMES
@pytest.mark.parametrize("module", MODULES)
def test_every_offset_with_every_length(module, name):
    """Matches are written in different ways: by distance, by length, by the room that is left."""
    rng = np.random.default_rng(4)
    for offset in range(1, 40):
        head = rng.bytes(offset)
        for length in [*range(4, 70), 250, 255, 256, 257, 300, 1000]:
            for tail in map(rng.bytes, (4, 5, 8, 12, 64)):
                sequences = [(head, offset, length)]
                data = written_out(sequences, tail)
                ends = name == "lz4" and (len(tail) < 5 or len(tail) + length < 12)
                block = BLOCKS[name](sequences, tail)
                assert unpacked(module, name, block, len(data)) == (None if ends else data)


def lz4_block(sequences, tail):
    """Return a block of (literals, offset, length), then literals."""

    def more(n):
        return b"\xff" * ((n - 15) // 255) + bytes([(n - 15) % 255]) if n >= 15 else b""

    def sequence(literals, match):
        token = bytes([min(len(literals), 15) << 4 | min(match, 15)])
        return token + more(len(literals)) + literals, more(match)

    block = b""
    for literals, offset, length in sequences:
        before, behind = sequence(literals, length - 4)
        block += before + offset.to_bytes(2, "little") + behind
    return block + sequence(tail, 0)[0]


def snappy_block(sequences, tail):
    """Return a block of (literals, offset, length), then literals, with each kind of copy."""

    def of_literals(literals):
        n = len(literals) - 1
        if n < 60:
            return bytes([n << 2]) + literals if literals else b""
        return (
            bytes([60 + len(literals) % 2 << 2])
            + n.to_bytes(1 + len(literals) % 2, "little")
            + literals
        )

    total = len(tail) + sum(len(literals) + length for literals, _, length in sequences)
    block = b""
    while total > 127:
        block, total = block + bytes([total & 127 | 128]), total >> 7
    block += bytes([total])
    for literals, offset, length in sequences:
        block += of_literals(literals)
        while length:
            if 4 <= length < 12 and offset < 2048 and length % 2:
                block += bytes([offset >> 8 << 5 | length - 4 << 2 | 1, offset & 255])
                break
            n = min(length, 64)
            width = 2 if length % 3 else 4
            block += bytes([n - 1 << 2 | (2 if width == 2 else 3)]) + offset.to_bytes(
                width, "little"
            )
            length -= n
    return block + of_literals(tail)


BLOCKS = {"snappy": snappy_block, "lz4": lz4_block}


def written_out(sequences, tail):
    data = bytearray()
    for literals, offset, length in sequences:
        data += literals
        for _ in range(length):
            data.append(data[-offset])
    return bytes(data) + tail


@NAMES
@pytest.mark.parametrize("module", MODULES)
def test_any_sequences(module, name):
    """What no compressor writes is read as well: literals and matches of all lengths in a row."""
    rng = np.random.default_rng(9)
    for _ in range(400):
        sequences, size = [], 0
        for _ in range(rng.integers(1, 12)):
            literals = rng.bytes(
                rng.choice([0, 1, rng.integers(20), rng.integers(200)]) or not size
            )
            size += len(literals)
            offset = int(rng.integers(1, min(size, rng.choice([9, 40, 5000])) + 1))
            length = int(rng.choice([4, rng.integers(4, 30), rng.integers(4, 400)]))
            sequences.append((literals, offset, length))
            size += length
        tail = rng.bytes(rng.integers(12, 80))
        block, data = BLOCKS[name](sequences, tail), written_out(sequences, tail)
        assert by_pyarrow(name, block, len(data)) == data
        assert unpacked(module, name, block, len(data)) == data
        assert unpacked(module, name, block, len(data), 0, 0) == data


STARTS = [
    *(b"", b"a", b"abcdefgh", b"a" * 100, b"abc" * 30, bytes(range(70))),
    b"to be or not to be, that is the question: to be",
]


@NAMES
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("data", STARTS, ids=range(len(STARTS)))
def test_every_byte_changed(module, name, data):
    block = CODECS[name].compress(data, asbytes=True)
    accepted = 0
    for at in range(len(block)):
        for byte in range(256):
            changed = block[:at] + bytes([byte]) + block[at + 1 :]
            accepted += check(module, name, changed, len(data))
    assert accepted >= len(block)  # those that are as they were
    for end in range(len(block)):
        check(module, name, block[:end], len(data))


@NAMES
@pytest.mark.parametrize("module", MODULES)
def test_random_bytes_and_bytes_changed(module, name):
    rng = np.random.default_rng(8)
    accepted = 0
    for _ in range(3000):
        room = int(rng.integers(0, 200))
        words = [rng.bytes(k) for k in rng.integers(1, 12, 5)]
        data = b"".join(words[k] for k in rng.integers(0, 5, 200))[:room]
        block = bytearray(CODECS[name].compress(data, asbytes=True))
        for _ in range(rng.integers(1, 4)):
            block[rng.integers(len(block))] = rng.integers(256)
        cut = int(rng.integers(0, len(block) + 1))
        for wrong in (bytes(block), bytes(block[:cut]), bytes(block[cut:]) + bytes(block[:cut])):
            accepted += check(module, name, wrong, room)
        garbage = rng.integers(0, 16 if rng.random() < 0.5 else 256, cut, np.uint8).tobytes()
        check(module, name, garbage, room)
        if name == "snappy" and room < 128:
            accepted += check(module, name, bytes([room]) + garbage, room)
    assert accepted > 100


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("size", "room"),
    [
        (b"\x83\x80\x80\x80\x00", 3),
        (b"\x83\x80\x80\x80\x80\x00", None),
        (b"\x83\x80\x80\x80\x10", None),
        (b"\x83", None),
    ],
)
def test_size_of_a_snappy_block(module, size, room):
    """A size may be longer than it must be, up to five bytes and 32 bits."""
    block = size + b"\x08abc"
    assert unpacked(module, "snappy", block, 3) == (None if room is None else b"abc")
    assert by_pyarrow("snappy", block, 3) == (None if room is None else b"abc")


@pytest.mark.parametrize("module", MODULES)
def test_lengths_and_offsets_in_four_bytes(module):
    for length in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x80"):
        assert unpacked(module, "snappy", b"\x03\xfc" + length + b"abc", 3) is None
    assert unpacked(module, "snappy", b"\x03\xfc\x02\0\0\0abc", 3) == b"abc"
    for offset in (b"\1\0\0\0", b"\1\0\0\1", b"\1\0\0\x80", b"\xff\xff\xff\xff"):
        expected = b"abcccc" if offset == b"\1\0\0\0" else None
        assert unpacked(module, "snappy", b"\x06\x08abc\x0b" + offset, 6) == expected


@pytest.mark.parametrize("module", MODULES)
def test_literals_near_the_end_of_the_room(module):
    """The source goes on for longer than the room: bytes behind are read, but not written."""
    for n in range(1, 61):
        for single in range(66):  # literals of one byte, two bytes of source each
            data = bytes(range(n)) + b"x" * single
            block = bytes([len(data), n - 1 << 2]) + data[:n] + b"\0x" * single
            assert unpacked(module, "snappy", block, len(data)) == data


@pytest.mark.parametrize("module", MODULES)
def test_crc32(module):
    data = np.random.default_rng(6).integers(0, 256, 100_000, np.uint8)
    for n in [*range(300), 4095, 4096, 99_995]:
        for begin in range(4):
            source = readonly(data[: begin + n])
            assert module.crc32(source, begin, begin + n) == zlib.crc32(source[begin:]), n
