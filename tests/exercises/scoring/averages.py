"""Call every driver of an averages module over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.core.batch import Codes

ROWS, VALUES, FEATURES = 100, 9, 40


def exercise(averages):
    offsets = np.arange(FEATURES + 1) * (VALUES + 2)
    weight = np.tile([1.0] * VALUES + [0.0] * 2, FEATURES)
    # One tile of each width (2, 4, 8 classes); lifts of 1, and too many too far from it.
    for n_classes in (2, 4, 8):
        tables = np.zeros((len(weight), n_classes))
        for share in (1.0, 2.0**-28):
            chances = np.full((VALUES + 2, len(weight), n_classes), share)
            for precision in ("exact", "fast"):
                scorer = averages.AverageScorer(
                    *(np.zeros(n_classes), tables, offsets, np.exp(tables), weight),
                    *(lambda _, likelihood=chances: likelihood, precision),
                )
                for code in (np.uint8, np.uint16):
                    codes = np.tile(np.arange(ROWS, dtype=code) % code(VALUES), (FEATURES, 1))
                    batch = [Codes(np.arange(FEATURES), codes, np.full(FEATURES, VALUES + 2))]
                    out = np.empty((ROWS, n_classes))
                    scorer.log_joint(batch, [], out)
                    scorer.posterior(batch, [], out)
                    scorer.predict(batch, [], np.empty(ROWS, np.intp))
