"""Call the driver of a module of footers: one chunk."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared import pages as p

# A footer of one row group with one chunk of INT32 in 40 bytes: lists of structures.
FOOTER = bytes([0x49, 0x1C, 0x19, 0x1C, 0x3C, 0x15, 2, 0x66, 80, 0, 0, 0, 0])


def exercise(footers):
    chunks = np.zeros((1, 1, p.N_CHUNK), np.int64)
    assert footers.list_chunks(np.frombuffer(FOOTER + bytes(p.SLACK), np.uint8), chunks)
    assert chunks[0, 0, [p.CHUNK_TYPE, p.CHUNK_SIZE]].tolist() == [1, 40]
