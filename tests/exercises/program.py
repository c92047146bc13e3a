"""Call the driver of a program module."""

from __future__ import annotations

import numpy as np


def exercise(program):
    program.over_blocks(lambda first: None, 0, 1, 2, [(np.zeros(2), 8)])
