"""Call every driver of a bins module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS = 100


def exercise(bins):
    values = np.arange(ROWS, dtype=np.float64)
    for cuts in (values[:0], values[:3], values[:40], 2.0 ** values[:60]):
        for code in (np.uint8, np.uint16, np.uint32):
            bins.assign(values, cuts, 99, np.empty(ROWS, code))
