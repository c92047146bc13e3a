"""Call every driver of a density module."""

from __future__ import annotations

import numpy as np

ROWS = 2_000


def exercise(density):
    points = np.linspace(0.0, 1.0, 50)
    own = np.arange(50)
    density.log_sums(points, np.ones(50), 0.1, points, own, np.ones(50))
    # Two curves of two pieces that meet at 0.
    rows = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0] * 2)
    place, bounds = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0, 1, 0, 1], np.uint32)
    arrays = place, bounds, np.array([0.0, np.inf]), rows
    x = np.linspace(-1.0, 1.0, ROWS)
    for array in (x, *arrays):
        array.setflags(write=False)
    density.add_curve(x, *arrays, 0, ROWS, np.zeros((2, ROWS)))
    parts = np.ones((5, 2))
    parts.setflags(write=False)
    density.add_student(x, parts, 1, 0, ROWS, np.zeros((2, ROWS)))
