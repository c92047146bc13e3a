"""Call every driver of a factors module over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.core.batch import Codes

ROWS = 100


def exercise(factors):
    # Missing in the first feature, which is the parent of the second.
    codes = np.array([np.arange(ROWS) % 3, np.arange(ROWS) % 2])
    hidden = [np.array([False, False, True, True])] * 2
    for n_classes in (2, 3):
        log_prior = np.zeros(n_classes)
        tables = [np.zeros((1, 4, n_classes)), np.zeros((4, 4, n_classes))]
        sums = [((0, 1), np.zeros((16, n_classes)))]
        for scorer in (
            factors.TreeScorer(log_prior, np.array([-1, 0]), tables, hidden),
            factors.FactorScorer(log_prior, sums, np.array([2, 2])),
        ):
            batch = [Codes(np.array([0, 1]), codes.astype(np.uint8), np.array([4, 4]))]
            out = np.empty((ROWS, n_classes))
            scorer.log_joint(batch, [], out)
            scorer.posterior(batch, [], out)
            scorer.predict(batch, [], np.empty(ROWS, np.intp))
