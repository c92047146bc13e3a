"""Call every driver of a moments module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS = 2000


def exercise(moments):
    values = np.arange(float(ROWS))
    # Few classes and many; the last one absent, so that the search for it goes on.
    for n_classes in (2, 12):
        for code in (np.uint8, np.uint16):
            y = np.arange(ROWS, dtype=code) % (n_classes - 1)
            for weight in (None, np.ones(ROWS)):
                moments.columns_moments([values, values], y, n_classes, weight)
                held = np.ones((4, 2, n_classes))
                moments.add_moments([values] * 2, y, np.arange(n_classes), weight, *held)
