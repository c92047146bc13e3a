"""Call every driver of a cuts module over its dtype table."""

from __future__ import annotations

import numpy as np


def exercise(cuts):
    for kind, known in ((np.int64, np.zeros(8)), (np.float64, np.zeros(0))):
        cuts.scatter_of_cuts(np.zeros((2, 5), kind), known, np.array([0]), np.array([4]))
