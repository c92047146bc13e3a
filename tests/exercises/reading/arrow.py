"""Call every driver of an arrow module."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.arrow import WORDS


def exercise(arrow):
    assert arrow.lay_open(np.zeros((0, WORDS), np.int64), 2).shape[:2] == (0, 2)
