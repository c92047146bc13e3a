"""Call every driver of a module of pages: one page of three numbers."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared import pages as p

# Fields of Thrift's compact protocol: a page of values (0), 12 bytes, of them 12 stored, then its
# own structure: 3 values, plain, levels in runs.
HEADER = bytes([0x15, 0, 0x15, 24, 0x15, 24, 0x2C, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0])
# A footer of one row group with one chunk of INT32 in 40 bytes: lists of structures.
FOOTER = bytes([0x49, 0x1C, 0x19, 0x1C, 0x3C, 0x15, 2, 0x66, 80, 0, 0, 0, 0])


def exercise(pages):
    chunks = np.zeros((1, 1, p.N_CHUNK), np.int64)
    assert pages.list_chunks(np.frombuffer(FOOTER + bytes(p.SLACK), np.uint8), chunks)
    assert chunks[0, 0, [p.CHUNK_TYPE, p.CHUNK_SIZE]].tolist() == [1, 40]
    values = np.array([3, 5, 7], np.int32)
    page = HEADER + values.tobytes()
    source = np.frombuffer(page + bytes(p.SLACK), np.uint8)
    columns = np.zeros((1, p.N_COLUMN), np.int64)
    columns[0, [p.END, p.ROWS, p.WANTED, p.KIND]] = len(page), 3, 3, p.NUMBERS
    columns[0, [p.WIDTH, p.UNIT, p.ENTRIES]] = 4, 4, -1
    listed = np.zeros((4, p.N_PAGE), np.int64)
    assert pages.list_pages(source, columns, listed) == 1
    assert columns[0, p.LISTED] == 3
    scratch, out = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    pages.decode(source, scratch, columns, listed[:1], scratch.copy(), scratch.copy(), out)
    assert columns[0, p.STATUS] == p.SOUND
    np.testing.assert_array_equal(out[:12].view(np.int32), values)
