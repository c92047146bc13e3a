"""Call the functions of a module of codecs: each has one signature."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.dispatch import readonly


def exercise(codecs):
    for unpack, block in ((codecs.snappy, b"\x03\x08abc"), (codecs.lz4, b"\x30abc")):
        source, out = readonly(np.frombuffer(block, np.uint8)), np.zeros(5, np.uint8)
        assert unpack(source, 0, len(block), out, 1, 3) == 3
        assert out.tobytes() == b"\0abc\0"
        assert codecs.crc32(source[-3:], 0, 3) == 0x352441C2
