"""Call every driver of a module of stored numbers: one page of two, behind other bytes."""

from __future__ import annotations

import tempfile

import numpy as np
from exercises.reading.pages import OF_NUMBERS

from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared import pages as p


def exercise(stored):
    numbers, before = np.array([0.5, 2.5]), b"bytes"
    columns = np.zeros((1, p.N_COLUMN), np.int64)
    columns[0, [p.BEGIN, p.MORE, p.ROWS, p.KIND]] = 5, len(OF_NUMBERS) + 16, 2, p.NUMBERS
    columns[0, [p.WIDTH, p.UNIT, p.FOUND]] = 8, 8, -1
    stretches, out = np.zeros((1, 3, 2), np.int64), np.zeros((1, 16 + stored.SPARE), np.uint8)
    places, left = np.zeros(1, np.uint64), np.zeros(1, np.int64)
    others = readonly(np.zeros(1, np.uint64))
    with tempfile.TemporaryFile() as file:
        file.write(before + OF_NUMBERS + numbers.tobytes())
        file.flush()
        columns[0, p.FILE] = file.fileno()
        stored.list_stretches(columns, stretches)
        assert columns[0, p.STRETCHES] == 1
        assert stretches[0, 0].tolist() == [5 + len(OF_NUMBERS), 16]
        stored.read_rows(columns, stretches, 1, 1, 0, 1, others, out, places, left)
        at = int(places[0]) - out.ctypes.data
        assert out[0, at : at + 8].view(np.float64) == 2.5
        assert left[0] == 0
        stored.read_rows(columns, stretches, 0, 1, 0, 3, others, out, places, left)
        assert left[0] == 8
