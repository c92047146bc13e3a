"""Zstandard frames: pyarrow says what is right."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.test_codecs import GUARD, contents

from fastbayes.kernels.compiled.reading import zstd

pytestmark = pytest.mark.compiled
LEVELS = {level: pa.Codec("zstd", compression_level=level) for level in (-50, -1, 1, 3, 9, 19)}


def streamed(data, step):
    """Return a frame that does not say what it holds, in blocks of `step` bytes."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        for start in range(0, len(data), step):
            out.write(data[start : start + step])
            out.flush()
    return sink.getvalue().to_pybytes()


def unpacked(frames, rooms, before=3):
    """Return what frames hold, None for those that are left; what lies around stays as it is."""
    source = np.frombuffer(bytes(before) + b"".join(frames) + bytes(8), np.uint8)
    ends, stops = before + np.cumsum([0, *map(len, frames)]), before + np.cumsum([0, *rooms])
    out = np.full(stops[-1] + before, GUARD, np.uint8)
    places = np.stack([ends[:-1], ends[1:], stops[:-1], rooms], 1).astype(np.int64)
    done = zstd.unpack(source, places, out)
    assert (out[:before] == GUARD).all()
    assert (out[stops[-1] :] == GUARD).all()
    return [
        out[start : start + room].tobytes() if whole else None
        for start, room, whole in zip(stops, rooms, done, strict=False)
    ]


def by_pyarrow(frame, room):
    """Return what pyarrow makes of a frame in one go, as it does with pages; None if refused."""
    try:
        return LEVELS[1].decompress(frame, room, asbytes=True)
    except (OSError, pa.ArrowInvalid):
        return None


@given(data=contents(), level=st.sampled_from(list(LEVELS)), step=st.integers(300, 200_000))
@settings(deadline=None)
def test_round_trip(data, level, step):
    frame = LEVELS[level].compress(data, asbytes=True)
    frames, rooms = [frame, streamed(data, step)], [len(data)] * 2
    assert unpacked(frames, rooms) == [data, data]
    n = len(data)
    assert unpacked([frame] * 2, [n + 1, max(n - 1, 0)]) == [None, None if n else data]
    assert unpacked([frame[:-1], frame + b"\0"], [n, n]) == [None, None]


def test_packed_codes():
    """Pages of indices into dictionaries, of all numbers of bits, drawn evenly and not."""
    rng = np.random.default_rng(3)
    frames, values = [], []
    for width in range(1, 9):
        for share in (0.1, 0.5, 1.0):
            for n in (8, 100, 20_000):
                codes = (rng.random(n) ** (1 / share) * (1 << width)).astype(np.uint8)
                bits = np.unpackbits(codes[:, None], axis=1, bitorder="little", count=width)
                values.append(np.packbits(bits, bitorder="little").tobytes())
                frames.append(LEVELS[1].compress(values[-1], asbytes=True))
    assert unpacked(frames, [len(data) for data in values]) == values


def changed(frames, rng, n):
    """Yield frames of which some bytes are others, or are cut off, with the room of each."""
    for _ in range(n):
        data, frame = frames[rng.integers(len(frames))]
        frame = bytearray(frame)
        for _ in range(rng.integers(1, 4)):
            first = 0 if rng.random() < 0.5 else int(rng.integers(len(frame)))
            at = min(first + int(rng.integers(40)), len(frame) - 1)
            frame[at] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
        if rng.random() < 0.1:
            del frame[rng.integers(len(frame)) :]
        yield bytes(frame), len(data)


def test_bytes_changed(request):
    """What is unpacked is what pyarrow makes of it; the rest is left alone."""
    rng = np.random.default_rng(8)
    few = b"".join(rng.choice([b"to be ", b"or not ", b"that is the question "], 300))
    numbers = np.cumsum(rng.integers(0, 3, 300)).astype("<i8").tobytes()
    skewed = (rng.random(3000) ** 3 * 12).astype(np.uint8).tobytes()
    frames = [
        (data, made)
        for data in (few, numbers, skewed, skewed[:70], b"a" * 1000, rng.bytes(50))
        for made in (
            streamed(data, 900),
            *(c.compress(data, asbytes=True) for c in LEVELS.values()),
        )
    ]
    n = 60_000 if request.config.getoption("--slow") else 4_000
    accepted = 0
    for frame, room in changed(frames, rng, n):
        (found,) = unpacked([frame], [room])
        if found is not None:
            accepted += 1
            assert found == by_pyarrow(frame, room), frame
    assert n // 50 < accepted < n
