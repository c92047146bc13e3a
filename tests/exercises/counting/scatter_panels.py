"""Call the driver of a module of panels: two of rows of two columns."""

from __future__ import annotations

import numpy as np

ROWS = 300


def exercise(panels):
    columns = np.arange(2.0 * ROWS).reshape(2, ROWS) % 7.0
    group, asked = np.arange(ROWS, dtype=np.uint32) % 3, []

    def read(most):
        asked.append(most)
        for first in (0, 200):
            places = np.array([x[first:].ctypes.data for x in columns], np.uint64)
            yield places, min(200, ROWS - first)

    held = np.zeros(3), np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2, 2))
    left = np.zeros(1, np.int64)
    panels.add_few(read, 2, group, np.arange(3), *held, left)
    assert asked[0] >= 200
    assert left[0] == 0
    for g in range(3):
        own = columns[:, g::3]
        np.testing.assert_allclose(held[1][g], own.mean(axis=1), rtol=1e-12)
        np.testing.assert_allclose(held[3][g], np.cov(own, bias=True) * 100, rtol=1e-12)
    columns[1, 250] = np.nan
    panels.add_few(read, 2, group, np.arange(3), *held, left)
    assert left[0] == 1
    assert held[0].tolist() == [100.0] * 3
