"""Call every driver of an encode module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS = 100


def exercise(encode):
    validity = np.full(ROWS // 8 + 1, 0b1010_1010, np.uint8)
    table = np.arange(ROWS, dtype=np.uint32)
    columns = [np.arange(ROWS, dtype=np.uint32) % 3] * 2
    encode.take_columns(columns, [None, table[:3]], [1, 0], np.empty((2, ROWS), np.uint8))
    for code in (np.uint8, np.uint16, np.uint32):
        out = np.empty(ROWS, code)
        for kind in "iu":
            for width in (1, 2, 4, 8):
                indices = np.arange(ROWS).astype(f"{kind}{width}")
                for nulls in (None, validity):
                    for entries in (None, table):
                        assert encode.take(indices, nulls, 0, entries, ROWS, out)
                    assert encode.take(indices % 3, nulls, 0, table[:3], ROWS, out)
        values = np.arange(ROWS)
        encode.spread(values, 0, table, ROWS, validity, 0, out)
        encode.unpack(validity, 0, ROWS, validity, 0, np.arange(3, dtype=np.uint8), out)
        encode.min_max(values, validity, 0)
