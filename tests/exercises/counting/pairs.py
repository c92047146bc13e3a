"""Call every driver of a module of pair counts over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS, CLASSES = 8192, 3


def exercise(pairs):
    # Joint codes of 16 bits and more, beside pairs for bit rows.
    sizes = np.array([2, 3, 200, 250])
    first, second = np.triu_indices(len(sizes), 1)
    cells = sizes[first] * sizes[second] * CLASSES
    starts = np.cumsum(cells) - cells
    for code in (np.uint8, np.uint16, np.uint32):
        columns = list((np.arange(ROWS) % sizes[:, None]).astype(code))
        for class_code in (np.uint8, np.uint16):
            y = np.arange(ROWS, dtype=class_code) % CLASSES
            for dtype, weight in ((np.int64, None), (np.float64, np.ones(ROWS))):
                out = np.zeros(cells.sum(), dtype)
                pairs.add_pair_counts(
                    columns, sizes, y, weight, CLASSES, first, second, starts, out
                )
