"""Call every driver of a sketch module."""

from __future__ import annotations

import numpy as np

ROWS = 2_000


def exercise(sketch):
    cells = sketch.SketchEntries(100, 100)
    values, labels = np.arange(ROWS, dtype=np.float64), np.zeros(ROWS, np.uint16)
    cells.add(values, labels, np.ones(ROWS, np.int64), np.zeros(ROWS, np.int64))
    cells.take(cells.entries(), cells.shift)
