"""Call every driver of a ratios module over its dtype table."""

from __future__ import annotations

import numpy as np


def exercise(ratios):
    n, bounds = np.ones((2, 5, 3)), np.array([0, 2, 5])
    total = ratios.totals(n, bounds)
    ratios.ratios(n, total, np.ones(2), np.array([2.0, 3.0]), bounds)
