"""Call the driver of a module of Zstandard: one frame of one block of bytes as they are."""

from __future__ import annotations

import numpy as np

FRAME = b"\x28\xb5\x2f\xfd\x20\x03\x19\0\0abc"


def exercise(zstd):
    source, out = np.frombuffer(FRAME + bytes(8), np.uint8), np.zeros(5, np.uint8)
    frames = np.array([[0, len(FRAME), 1, 3]])
    assert zstd.unpack(source, frames, out).tolist() == [True]
    assert out.tobytes() == b"\0abc\0"
