"""Call every driver of a scatter module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS = 600


def exercise(scatter):
    # An outlier in front: the sums are taken once more.
    columns = [np.where(np.arange(ROWS) < 3, 1e9, np.arange(ROWS) % k) for k in (2.0, 7.0, 9.0)]
    for code in (np.uint8, np.uint16, np.uint32):
        group = np.arange(ROWS, dtype=code) % 3
        for weight in (None, np.ones(ROWS)):
            scatter.block_scatter(columns, group, 4, weight)
            scatter.block_products(columns, group, 4, weight)
            held = np.zeros(4), np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 3, 3))
            scatter.add_scatter(columns, group, np.arange(4), weight, *held, missing=False)
    for code in (np.uint8, np.uint16):
        scatter.known_parts(columns[0], np.zeros(ROWS, code), np.ones(2))
