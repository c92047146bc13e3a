"""Rows of yes and no scored by Bernoulli naive Bayes without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.models.estimator.log_space import Floats, row_max, row_sum
from fastbayes.models.estimator.loo_base import without
from fastbayes.models.estimator.smoothing import logs
from fastbayes.models.sklearn.array_rows import LinearScorer


class LooBernoulli:
    """Posteriors by the sums without each row, of a `BernoulliNB` with binarize=None.

    A row changes the features of its own class alone, all rows of weight 1 and more alike: their
    log joints are linear in the row, too. Where the prior is learned, the total is one less.
    """

    def __init__(self, model: Any) -> None:
        sums = model.statistics_.parts["sums"]
        self.sums, self.counts = sums.sums, sums.class_counts
        self.alpha = np.broadcast_to(model._alpha(sums.sums.shape[1]), sums.sums.shape[1:])
        self.learned = model.fit_prior and model.class_prior is None
        self.all, self.log_prior = model._scorer(0), model.class_log_prior_

    def posterior(self, X: Floats, y: NDArray[np.intp], weight: Floats | None) -> Floats:
        """Return P(c | x) of each row of 0 and 1 by the model without it, (n_rows, n_classes).

        A row of weight w, above 0, takes min(w, 1) out of the sums.
        """
        gone = np.ones(len(y)) if weight is None else np.minimum(weight, 1.0)
        joint = np.empty((len(y), len(self.counts)))
        self.all.log_joint(X, joint)
        prior = self._priors(y, gone)
        joint += prior - np.where(np.isinf(self.log_prior), 0.0, self.log_prior)
        for c in np.unique(y).tolist():
            whole = np.flatnonzero((y == c) & (gone == 1))
            light = np.flatnonzero((y == c) & (gone < 1))
            joint[whole, c] = prior[whole, c] + self._linear(c, X[whole])
            joint[light, c] = prior[light, c] + self._each(c, X[light], gone[light])
        # What no class can have made takes the prior.
        lost = np.isneginf(row_max(joint))
        joint[lost] = prior[lost]
        joint -= row_max(joint)[:, None]
        np.exp(joint, out=joint)
        joint /= row_sum(joint)[:, None]
        return joint

    def _priors(self, y: NDArray[np.intp], gone: Floats) -> Floats:
        """Return ln P(c) without each row, (n_rows, n_classes)."""
        if not self.learned:
            return np.broadcast_to(self.log_prior, (len(y), len(self.counts)))
        left = np.broadcast_to(self.counts, (len(y), len(self.counts))).copy()
        own = np.arange(len(y)), y
        left[own] = without(left[own], gone)
        return np.asarray(logs(left) - logs(self.counts.sum() - gone)[:, None])

    def _linear(self, c: int, X: Floats) -> Floats:
        """Return ln P(x | c) of rows that each take 1 out of their class, (n_rows,)."""
        n = without(self.counts[c])
        present, absent = self._logs(without(self.sums[c]), n, self.sums[c])
        known = np.where(np.isinf(absent), 0.0, absent)
        out = np.empty((len(X), 1))
        scorer = LinearScorer(
            np.zeros(1), known.sum(keepdims=True), (present - known)[None], None, absent[None]
        )
        scorer.log_joint(X, out)
        return out[:, 0]

    def _each(self, c: int, X: Floats, gone: Floats) -> Floats:
        """Return ln P(x | c) of rows that take less than 1 out of their class, (n_rows,)."""
        n = without(self.counts[c], gone)[:, None]
        s = without(np.broadcast_to(self.sums[c], X.shape), gone[:, None] * X)
        present, absent = self._logs(s, n, s)
        return np.asarray(np.where(X > 0, present, absent).sum(axis=1))

    def _logs(self, above: Floats, n: Floats, rest: Floats) -> tuple[Floats, Floats]:
        """Return ln P(1 | c) and ln P(0 | c); n less `rest` are 0."""
        total = n + 2 * self.alpha
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = (np.log((k + self.alpha) / total) for k in (above, without(n, rest)))
            present, absent = (np.where(total == 0, -np.log(2), x) for x in logs)
        return present, absent
