"""Scoring of averaged two-dependence estimators in numpy: the twin of `compiled.pair_averages`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.kernels.shared.pair_averages import Pair, Tables, fall_back
from fastbayes.kernels.shared.posterior import JointScorer


class PairAverageScorer(JointScorer):
    """Log joints, posteriors and predictions of A2DE; immutable, thread-safe.

    Parameters
    ----------
    fallback
        What scores the rows in which no two values are parents.
    log_prior
        (n_classes,) nats: what a row gets that no class can have made.
    offsets
        (n_features + 1,) first row of each feature, S_j + 2 of them: values, missing, unseen.
    reference
        (n_slots,) > 0, about P(x_k = v | c, x_i, x_j): compiled code divides by it.
    pairs
        The pairs of features that have a parent.
    tables
        tables(q) returns what pair q says as parents.
    tie
        Log joints this close to the best are equal to it, those of the fallback too.
    precision
        "exact" or "fast"; numpy computes both in float64.

    Notes
    -----
    The log joint is ln(Σ_ij P(c, x_i, x_j) Π_k P(x_k | c, x_i, x_j) / n), over the n pairs of
    features whose values are parents, k over the other features.

    References
    ----------
    Webb, Boughton, Zheng, Ting, Salem (2012), Learning by extrapolation from marginal to
    full-multivariate probability distributions, Machine Learning 86.
    """

    def __init__(
        self,
        fallback: Any,
        log_prior: Floats,
        offsets: NDArray[np.int64],
        reference: Floats,
        pairs: Sequence[Pair],
        tables: Tables,
        tie: float,
        precision: str = "exact",
    ) -> None:
        self._fallback = fallback
        self._offsets = np.array(offsets, np.int64)
        self._pairs, self._tables = list(pairs), tables
        super().__init__(np.array(log_prior, np.float64), tie)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, x) of every row and class into `out` (n_rows, n_classes)."""
        columns = columns_of(batch_codes)
        rows = np.empty((len(self._offsets) - 1, len(out)), np.int64)
        for j, begin in enumerate(self._offsets[:-1]):
            rows[j] = columns[j] + begin
        total = np.zeros(len(out))
        out[:] = -np.inf
        for q, pair in enumerate(self._pairs):
            parents = [pair.first, pair.second]
            a, b = rows[parents] - self._offsets[parents, None]
            here = np.flatnonzero(pair.state[a, b] >= 0)
            found = pair.state[a[here], b[here]]
            own, children = self._tables(q)
            terms = children[found, rows[:, here]]
            terms[parents] = 1.0
            with np.errstate(divide="ignore"):
                one = np.log(own[found]) + np.log(terms).sum(axis=0)
            out[here] = np.logaddexp(out[here], one)
            total[here] += 1
        out -= np.log(np.maximum(total, 1))[:, None]
        fall_back(self._fallback, batch_codes, total == 0, out)
