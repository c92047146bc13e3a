"""Call the driver of a subsets module over its dtype table."""

from __future__ import annotations

import numpy as np


def exercise(subsets):
    sizes = np.array([2, 3, 2])
    for dtype in (np.uint8, np.uint16, np.uint32):
        codes = np.array([[0, 1, 1], [2, 1, 0], [1, 1, 0]], dtype)
        offsets, out = np.array([-1.0, 0.0]), np.zeros((2, 8))
        subsets.write_subset_sums(codes, sizes, np.ones(3), 1, 1, 3, 9.0, offsets, 1.0, out)
    for dtype in (np.int64, np.float64):
        out = np.zeros((2, 2))
        subsets.add_set_sums(
            np.arange(5, dtype=dtype), np.array([0, 2, 5]), np.array([[-1.0, 0.5]] * 2), out
        )
