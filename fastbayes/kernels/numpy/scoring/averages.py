"""Scoring of averaged one-dependence estimators in numpy: the twin of `compiled.averages`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.numpy.scoring.log_joint import NaiveScorer
from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.kernels.shared.scoring import tie_of

# Numbers of the children's tables that are looked up at a time.
NUMBERS = 2**18


class AverageScorer(JointScorer):
    """Log joints, posteriors and predictions of AODE; immutable, thread-safe.

    Parameters
    ----------
    log_prior, tables, offsets
        Naive Bayes, for rows in which no feature may be a super-parent: (n_classes,) nats,
        (n_slots, n_classes) log likelihoods with S_j + 2 rows per feature (values, missing,
        unseen), (n_features + 1,) first row of each feature.
    own
        (n_slots, n_classes) P(c, x_p = a).
    weight
        (n_slots,) u_p >= 0 where value a of p may be a super-parent, 0 where it may not.
    children
        children(p) returns (S_p + 2, n_slots, n_classes) P(x_j = b | c, x_p = a), an array or
        what numpy makes one; it is indexed by values and slots. Rows of p itself are not read.
    precision
        "exact" is float64 throughout. With "fast", compiled code multiplies in float32.
    every
        every(rows) returns Σ_j ln P(x_j | c, x_p) of all p, (n_features, n, n_classes) nats, over
        the features j other than p, of rows (n_features, n) of `tables`.
    together
        together(features) yields, one after the other, what `children` gives of each as an array.

    Notes
    -----
    The log joint is ln(Σ_p u_p P(c, x_p) Π_j P(x_j | c, x_p) / Σ_p u_p), p over the features
    whose values may be super-parents, j over the others.

    References
    ----------
    Webb, Boughton, Wang (2005), Not so naive Bayes: aggregating one-dependence estimators,
    Machine Learning 58, eq. 7.
    """

    def __init__(
        self,
        log_prior: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        own: Floats,
        weight: Floats,
        children: Callable[[int], Any],
        precision: str = "exact",
        every: Callable[[Ints], Floats] | None = None,
        together: Callable[[Sequence[int]], Iterator[Floats]] | None = None,
    ) -> None:
        self._fallback = NaiveScorer(log_prior, tables, offsets)
        self._offsets = np.array(offsets, np.int64)
        self._weight = np.array(weight, np.float64)
        self._children, self._every = children, every
        by_feature = pairwise(self._offsets.tolist())
        self._parents = [p for p, at in enumerate(by_feature) if self._weight[slice(*at)].any()]
        with np.errstate(divide="ignore"):
            self._own = np.log(self._weight[:, None] * own)
        super().__init__(np.array(log_prior, np.float64), tie_of(log_prior, tables, offsets))

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, x) of every row and class into `out` (n_rows, n_classes)."""
        self._fallback.log_joint(batch_codes, numeric, out)
        if not self._parents:
            return
        columns = columns_of(batch_codes)
        rows = np.empty((len(self._offsets) - 1, len(out)), np.int64)
        for j, begin in enumerate(self._offsets[:-1]):
            rows[j] = columns[j] + begin
        each = len(rows) * out.shape[1]
        every = self._every if each * len(rows) <= NUMBERS else None
        step = max(1, NUMBERS // max(1, each if every is None else each * len(rows)))
        for lo in range(0, len(out), step):
            some = rows[:, lo : lo + step]
            terms = np.stack([*self._terms(some)]) if every is None else every(some)[self._parents]
            self._average(some, terms, out[lo : lo + step])

    def _terms(self, rows: Ints) -> Iterator[Floats]:
        """Yield Σ_j ln P(x_j | c, x_p), (n, n_classes), of each super-parent."""
        for p in self._parents:
            begin, end = self._offsets[p : p + 2]
            table, value, others = self._children(p), rows[p] - begin, np.delete(rows, p, axis=0)
            if others.size > (end - begin) * len(self._own):
                # Of many rows there are less logs of all cells that a row may look up.
                every = np.delete(np.arange(len(self._own)), slice(begin, end))[:, None]
                values = np.arange(end - begin)
                logs = self._logs(table, values, np.repeat(every, len(values), axis=1))
                yield logs[others - (others >= end) * (end - begin), value].sum(axis=0)
            else:
                yield self._logs(table, value, others).sum(axis=0)

    @staticmethod
    def _logs(table: Any, value: Ints, rows: Ints) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(table[value, rows]))

    def _average(self, rows: Ints, terms: Floats, out: Floats) -> None:
        """Write log joints of rows (offset + code of each feature) with a super-parent."""
        parents = rows[self._parents]
        # One after the other, whatever the number of rows: so no bit depends on it.
        total = np.add.accumulate(self._weight[parents])[-1]
        some = total > 0
        joint = np.logaddexp.reduce(self._own[parents] + terms)
        out[some] = joint[some] - np.log(total[some])[:, None]
