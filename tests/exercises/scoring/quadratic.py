"""Call every driver of a quadratic module over its dtype table."""

from __future__ import annotations

import numpy as np

ROWS = 100


def exercise(quadratic):
    def marginal(known):
        q = int(known.sum())
        return np.zeros((2, q)), np.zeros((2, q)), np.eye(q)[None], np.zeros(2), None

    numeric = [np.arange(float(ROWS))] * 3
    numeric.append(np.where(np.arange(ROWS) % 7, 1.0, np.nan))
    for n_matrices in (1, 2):
        for dof in (None, np.array([3.0, 4.0])):
            mean, whiten = np.zeros((2, 4)), np.tile(np.eye(4), (n_matrices, 1, 1))
            scorer = quadratic.QuadraticScorer(
                np.log([0.5, 0.5]), mean, mean, whiten, np.zeros(2), dof, marginal
            )
            out = np.empty((ROWS, 2))
            scorer.log_joint((), numeric, out)
            scorer.posterior((), numeric, out)
            scorer.predict((), numeric, np.empty(ROWS, np.intp))
