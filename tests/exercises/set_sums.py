"""Call the driver of a set_sums module over its dtype table."""

from __future__ import annotations

import numpy as np


def exercise(set_sums):
    for dtype in (np.int64, np.float64):
        out = np.zeros((2, 2))
        set_sums.add_set_sums(
            np.arange(5, dtype=dtype), np.array([0, 2, 5]), np.array([[-1.0, 0.5]] * 2), out
        )
