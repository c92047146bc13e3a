"""Call the driver of a families module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS, CLASSES = 4096, 3


def exercise(families):
    y = np.arange(ROWS, dtype=np.uint8) % CLASSES
    for column in (np.uint8, np.uint16, np.uint32):
        # Joint codes of one, two and four bytes.
        for sizes in ([2, 3, 4], [3, 250, 5], [200, 250, 9]):
            columns = [(np.arange(ROWS) % size).astype(column) for size in sizes]
            for dtype, weight in ((np.int64, None), (np.float64, np.ones(ROWS))):
                out = np.zeros(np.prod(sizes) * CLASSES, dtype)
                families.add_family_counts(
                    *(columns, np.array(sizes), y, weight, CLASSES),
                    *([(0, 1, 2)], np.zeros(1, np.int64), out),
                )
    sizes = np.array([2, 3, 250])
    for code, kind in ((np.uint8, np.uint8), (np.uint16, np.uint16), (np.uint32, np.uint8)):
        columns = [(np.arange(ROWS) % size).astype(code) for size in sizes]
        y = (np.arange(ROWS) % CLASSES).astype(kind)
        for dtype, weight in ((np.int64, None), (np.float64, np.ones(ROWS)), (np.float64, None)):
            out = np.zeros(np.prod(sizes) * CLASSES, dtype)
            families.add_triple_counts(columns, sizes, y, weight, CLASSES, np.zeros(1, int), out)
