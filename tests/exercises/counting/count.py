"""Call every driver of a count module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS, CLASSES = 8192, 8


def exercise(count):
    for code in (np.uint8, np.uint16, np.uint32):
        for class_code in (np.uint8, np.uint16):
            y = np.arange(ROWS, dtype=class_code) % CLASSES
            # Few values; two columns to pack; too many to pack; too many for the rows.
            sizes = np.array([2, 12, 12, 100, 250])
            codes = (np.arange(ROWS) % sizes[:, None]).astype(code)
            slots = np.cumsum(sizes) - sizes
            for dtype, weight in ((np.int64, None), (np.float64, np.ones(ROWS))):
                out = np.zeros((sizes.sum(), CLASSES), dtype)
                count.add_counts(codes, sizes, slots, y, weight, out)
                count.add_class_counts(y, weight, np.zeros(CLASSES, dtype))
    # On any processor, few values and classes are counted by planes of bits, and joint codes of few
    # values and many classes.
    for size, n_classes in ((4, 1), (2, 200)):
        codes = (np.arange(5 * ROWS).reshape(5, ROWS) % size).astype(np.uint8)
        y = (np.arange(ROWS) % n_classes).astype(np.uint8)
        sizes, slots = np.full(5, size), np.arange(5) * size
        count.add_counts(codes, sizes, slots, y, None, np.zeros((5 * size, n_classes), np.int64))
