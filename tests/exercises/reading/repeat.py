"""Call the driver of a repeat module."""

from __future__ import annotations

import numpy as np


def exercise(repeat):
    for threads in (1, 2):
        repeat.over_blocks(lambda first, n: None, [(0, 1, 2)], [(np.zeros(2), 8)], threads)
