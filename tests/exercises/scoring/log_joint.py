"""Call every driver of a log_joint module over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.core.batch import Codes

ROWS = 100


def exercise(log_joint):
    tables = np.arange(3.0)[:, None]
    offsets = np.array([0, 3])
    numeric = [np.arange(float(ROWS))] * 3
    # One tile of each width (4, 8, 16 classes), and two classes by log odds.
    for n_classes in (2, 4, 8, 16):
        log_prior = np.zeros(n_classes)
        gaussian = (np.ones((3, n_classes)),) * 4
        for precision in ("exact", "fast"):
            scorer = log_joint.NaiveScorer(
                log_prior, tables - np.arange(n_classes), offsets, gaussian, precision
            )
            for code in (np.uint8, np.uint16, np.uint32):
                codes = np.arange(ROWS, dtype=code)[None] % code(3)
                groups = [Codes(np.array([0]), codes, np.array([3]))]
                out = np.empty((ROWS, n_classes))
                scorer.log_joint(groups, numeric, out)
                scorer.posterior(groups, numeric, out)
                scorer.predict(groups, numeric, np.empty(ROWS, np.intp))
                bare = log_joint.NaiveScorer(log_prior, tables - np.arange(n_classes), offsets)
                bare.posterior(groups, [], out)
                bare.predict(groups, [], np.empty(ROWS, np.intp))
