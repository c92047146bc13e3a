"""Call every driver of a posterior module."""

from __future__ import annotations

import numpy as np

ROWS = 10


def exercise(posterior):
    for n_outputs, n_classes in ((1, 2), (3, 3)):
        acc, start = np.zeros((n_outputs, ROWS)), np.zeros(n_outputs)
        out = np.empty((ROWS, n_classes))
        assert posterior.to_class(acc, start, 0.0, n_classes, np.empty(ROWS, np.intp)) == 0
        assert posterior.to_posterior(acc, start, 0.0, out) == 0
    posterior.to_rows(acc, out)
    for n_classes, width in ((3, 4), (5, 8), (9, 16)):
        weights, prior = np.ones((12, width)), np.ones(n_classes)
        weights[:, n_classes:] = 0.0
        assert posterior.heaviest(weights, prior, 0.0, np.empty(ROWS, np.intp)) == 0
        assert posterior.normalise(weights, prior, 0.0, np.empty((ROWS, n_classes))) == 0
    for labels in (np.array(["a", "bcd"]), np.array([3.0, 4.0]), np.array([None, "x"])):
        taken = np.empty(ROWS, labels.dtype)
        posterior.to_labels(np.arange(ROWS) % 2, labels, taken)
        assert taken.tolist() == labels.tolist() * (ROWS // 2)
