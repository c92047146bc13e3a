"""Call every driver of a pair_averages module over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.core.batch import Codes
from fastbayes.kernels.numpy.scoring.log_joint import NaiveScorer
from fastbayes.kernels.shared.pair_averages import Pair


def exercise(pair_averages):
    n, d = 100, 3
    offsets = np.arange(0, 5 * 3, 3)[: d + 1]
    state = np.full((3, 3), -1)
    state[0, 0] = 0
    codes = np.zeros((d, n), np.uint8)
    batch = [Codes(np.arange(d), codes, np.full(d, 3))]
    for k in (2, 4, 8):
        prior = np.full(k, -np.log(k))
        fallback = NaiveScorer(prior, np.zeros((int(offsets[-1]), k)), offsets)
        for precision in ("exact", "fast"):
            scorer = pair_averages.PairAverageScorer(
                *(fallback, prior, offsets, np.ones(int(offsets[-1]))),
                *([Pair(0, 1, state)], lambda q, k=k: (np.ones((1, k)), np.ones((1, 9, k)))),
                *(0.0, precision),
            )
            scorer.log_joint(batch, [], np.empty((n, k)))
