"""Call the driver of a module of bit rows over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.compiled.plans import pair_plan

ROWS, CLASSES = 8192, 3


def exercise(bitmaps):
    sizes = np.array([2, 3, 4])
    first, second = np.triu_indices(len(sizes), 1)
    cells = sizes[first] * sizes[second] * CLASSES
    starts = np.cumsum(cells) - cells
    columns = list((np.arange(ROWS) % sizes[:, None]).astype(np.uint8))
    y = np.arange(ROWS, dtype=np.uint8) % CLASSES
    plan = pair_plan.choose(sizes, first, second, CLASSES, ROWS, True).bitmaps
    for by_bits in (False, True):
        bitmaps.add_bitmap_counts(
            *(plan._replace(by_bits=by_bits), columns, sizes, y, CLASSES),
            *(first, second, starts, np.zeros(cells.sum(), np.int64)),
        )
