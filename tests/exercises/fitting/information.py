"""Call every driver of an information module over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.information import class_pairs

SIZES = np.array([2, 3])
# Enough pairs of one shape to go side by side, and some that remain.
PAIRS = 10


def exercise(information):
    first, second = np.zeros(PAIRS, np.int64), np.ones(PAIRS, np.int64)
    starts = np.arange(PAIRS) * 12
    for dtype in (np.int64, np.float64):
        flat = np.arange(PAIRS * 12, dtype=dtype)
        information.pair_information(flat, first, second, starts, SIZES, SIZES, 2, np.zeros(PAIRS))
        counts = np.arange(14, dtype=dtype).reshape(7, 2)
        pairs = class_pairs(counts, np.array([0, 3, 7]), SIZES)
        information.pair_information(*pairs, np.zeros(2))
