"""Call every driver of an encode module."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.columns import IntegerColumn, Translation

ROWS = 100


def exercise(encode):
    column = IntegerColumn(np.arange(ROWS), -1, None, 0)
    translation = Translation(0, np.arange(ROWS + 2, dtype=np.uint32), -1)
    encode.CodeWriter([(column, translation)], [np.empty(ROWS, np.uint8)]).write(0, ROWS)
    assert encode.occurring(column, 0, ROWS, ROWS)[:-1].all()
    assert encode.min_max(column, ROWS) == (0, ROWS - 1)
