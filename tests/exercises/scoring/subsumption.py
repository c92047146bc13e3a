"""Call every driver of a subsumption module over its dtype table."""

from __future__ import annotations

import numpy as np

CODES = (np.uint8, np.uint16, np.uint32)


def exercise(subsumption):
    for x in CODES:
        for y in CODES:
            rows = np.zeros(100, y)
            subsumption.leave_out(np.zeros(100, x), rows, np.array([0, -1]), 1, rows.copy())
