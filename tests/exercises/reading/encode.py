"""Call every driver of an encode module."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.columns import IntegerColumn, Translation

ROWS = 100


def exercise(encode):
    column = IntegerColumn.of(np.arange(ROWS))
    translation = Translation(0, np.arange(ROWS + 2, dtype=np.uint32), -1)
    codes = np.empty(ROWS, np.uint8)
    encode.CodeWriter([(column, [translation])], [codes], codes).write(0, ROWS)
    assert encode.occurring(column, 0, ROWS)[:-1].all()
    assert encode.min_max(column) == (0, ROWS - 1)
    bitmap = np.full(ROWS, 255, np.uint8)
    numbers = np.empty(ROWS)
    encode.known_numbers(np.arange(float(ROWS)), bitmap, 3, numbers)
    assert (numbers == np.arange(ROWS)).all()
    absent = np.ones(1, np.int64)
    for kind in (np.uint8, np.uint16, np.uint32):
        encode.note_absent(np.array([0, 2, 0], kind), np.ones(4, np.bool_), absent)
        encode.note_absent(np.array([1, 0], kind), np.ones(2, np.bool_), absent)
    assert absent.tolist() == [7]
    assert encode.unbounded([numbers, np.append(numbers[1:], np.nan)]).tolist() == [False, True]
