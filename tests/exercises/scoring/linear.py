"""Call every driver of a linear module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS = 100


def exercise(linear):
    numeric = [np.arange(float(ROWS))] * 3
    for n_classes in (2, 3):
        zeros = np.zeros((3, n_classes))
        scorer = linear.LinearModelScorer(
            np.zeros(n_classes),
            np.empty((0, n_classes)),
            np.array([0]),
            *(zeros[:, 0], zeros, zeros, zeros),
        )
        out = np.empty((ROWS, n_classes))
        scorer.log_joint((), numeric, out)
        scorer.posterior((), numeric, out)
        scorer.predict((), numeric, np.empty(ROWS, np.intp))
