"""What pages are packed with: pyarrow and zlib say what is right."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastbayes.kernels.compiled import codecs as compiled
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.numpy import codecs as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
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
            for tail in (5, 8, 12, 64):
                data = (head * (length // offset + 2))[: offset + length] + rng.bytes(tail)
                if name == "lz4":
                    block = lz4_block(head, offset, length, data[-tail:])
                else:
                    block = snappy_block(head, offset, length, data[-tail:])
                expected = None if name == "lz4" and length + tail < 12 else data
                assert unpacked(module, name, block, len(data)) == expected


def lz4_block(head, offset, length, tail):
    def sequence(literals, match):
        parts = len(literals), match
        more = [
            b"" if n < 15 else b"\xff" * ((n - 15) // 255) + bytes([(n - 15) % 255]) for n in parts
        ]
        token = bytes([min(parts[0], 15) << 4 | min(parts[1], 15)])
        return token + more[0] + literals, more[1]

    first, second = sequence(head, length - 4), sequence(tail, 0)
    return first[0] + offset.to_bytes(2, "little") + first[1] + second[0]


def snappy_block(head, offset, length, tail):
    size, total = b"", len(head) + length + len(tail)
    while total > 127:
        size, total = size + bytes([total & 127 | 128]), total >> 7
    block = size + bytes([total, len(head) - 1 << 2]) + head
    while length:
        n = min(length, 64)
        block += bytes([n - 1 << 2 | 2]) + offset.to_bytes(2, "little")
        length -= n
    if len(tail) <= 60:
        return block + bytes([len(tail) - 1 << 2]) + tail
    return block + bytes([60 << 2, len(tail) - 1]) + tail


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
def test_length_of_literals_in_four_bytes(module):
    for length in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x80"):
        assert unpacked(module, "snappy", b"\x03\xfc" + length + b"abc", 3) is None
    assert unpacked(module, "snappy", b"\x03\xfc\x02\0\0\0abc", 3) == b"abc"


@pytest.mark.parametrize("module", MODULES)
@given(data=st.binary(max_size=300) | contents(), begin=st.integers(0, 80), end=st.integers(0, 80))
@settings(deadline=None)
def test_crc32(module, data, begin, end):
    source = readonly(np.frombuffer(data, np.uint8))
    end = max(len(data) - end, 0)
    begin = min(begin, end)
    assert module.crc32(source, begin, end) == zlib.crc32(data[begin:end])
