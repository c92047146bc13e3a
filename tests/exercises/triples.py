"""Call the driver of a triples module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS, CLASSES = 4096, 3


def exercise(triples):
    sizes = np.array([2, 3, 250])
    for code, kind in ((np.uint8, np.uint8), (np.uint16, np.uint16), (np.uint32, np.uint8)):
        columns = [(np.arange(ROWS) % size).astype(code) for size in sizes]
        y = (np.arange(ROWS) % CLASSES).astype(kind)
        for dtype, weight in ((np.int64, None), (np.float64, np.ones(ROWS)), (np.float64, None)):
            out = np.zeros(np.prod(sizes) * CLASSES, dtype)
            triples.add_triple_counts(columns, sizes, y, weight, CLASSES, np.zeros(1, int), out)
