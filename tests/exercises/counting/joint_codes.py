"""Call the drivers of a cells module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS = 4096


def exercise(cells):
    for column in (np.uint8, np.uint16, np.uint32):
        columns = [(np.arange(ROWS) % size).astype(column) for size in (7, 200, 50)]
        cells.factorise(columns, [7, 200, 50])
    x, at = np.zeros((3, 2)), np.zeros(3, np.int64)
    whiten = np.eye(2)[None]
    cells.squared_distances(x, np.arange(3), at, (x[:1], x[:1], whiten))
