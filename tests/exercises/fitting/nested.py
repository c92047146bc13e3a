"""Call the drivers of a nested module."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.nested import Averages, NestedRows, Networks

M, STATES, CLASSES, ROWS = 3, 2, 2, 4


def exercise(nested):
    rows = NestedRows(
        np.zeros((M, ROWS), np.int32),
        np.zeros(ROWS, np.int64),
        np.full((ROWS, CLASSES), 0.5),
        np.ones(ROWS),
        np.ones(ROWS),
    )
    parents = np.array([[-1], [0], [0]])
    counts = np.full(64, 4.0)
    networks = Networks(
        parents, np.full(M, STATES), np.zeros((M, 2), np.int64), np.zeros((M, 2), np.int64),
        counts, 1.0,
    )  # fmt: skip
    nested.add_network_losses(networks, rows, np.zeros((2, M + 1)), np.zeros((2, M + 1)))
    square = np.zeros((M, M), np.int64)
    averages = Averages(
        np.full(M, STATES), STATES * np.arange(M), square, square, counts,
        np.full((M * STATES, M, CLASSES), 8.0), np.full((M * STATES, CLASSES), 8.0),
        np.full((M, CLASSES), 16.0), np.ones(M), 1.0, np.ones(M), np.ones(M), False,
    )  # fmt: skip
    nested.add_average_losses(averages, rows, np.zeros(M + 1), np.zeros(M + 1))
