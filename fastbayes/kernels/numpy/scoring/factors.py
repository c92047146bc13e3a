"""Scoring of sums of tables over a few columns each, in numpy: the twin of `compiled.factors`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.codes import indices_of
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.kernels.shared.scoring import EXACT, children_first, largest_term, states_of

# Numbers of a message at a time, where a feature and its parent are summed out.
MESSAGE = 2**18


class FactorScorer(JointScorer):
    """Log joints, posteriors and predictions of a sum of tables; immutable, thread-safe.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    factors
        Each a tuple of features, none twice, and a table (prod(S_j + 2), n_classes) of log
        factors in C order of the codes of these features; missing is S_j, unseen S_j + 1. -inf
        is a legal entry.
    sizes
        (n_features,) S_j.
    precision
        "exact" is float64 throughout. With "fast", compiled code adds the tables of three and more
        classes in float32.
    """

    def __init__(
        self,
        log_prior: Floats,
        factors: Sequence[tuple[tuple[int, ...], Floats]],
        sizes: NDArray[np.int64],
        precision: str = "exact",
    ) -> None:
        prior = np.array(log_prior, np.float64)
        self._factors = [(features, np.array(table, np.float64)) for features, table in factors]
        self._codes = np.array(sizes, np.int64) + 2
        terms = [prior, *(table for _, table in self._factors)]
        super().__init__(prior, EXACT * sum(map(largest_term, terms)))

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c) + Σ ln factors of every row and class into `out` (n_rows, n_classes)."""
        columns = indices_of(batch_codes)
        out[:] = self._log_prior
        for features, table in self._factors:
            cell = np.zeros(len(out), np.int64)
            for feature in features:
                cell = cell * self._codes[feature] + columns[feature]
            out += table[cell]


class TreeScorer(JointScorer):
    """Log joints, posteriors and predictions of a forest of features; immutable, thread-safe.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    parents
        (n_features,) the parent of each feature, -1 for none.
    tables
        One per feature: (S_parent + 2, S_j + 2, n_classes) ln P(x_j | x_parent, c), or (1, S_j +
        2, n_classes) without a parent. Missing is S, unseen S + 1; -inf is a legal entry.
    hidden
        One per feature: (S_j + 2,) bool, codes that are not observations. The feature is then
        summed out over its S_j values, and missing where that is an observation. It has factor 1
        if nothing below it is observed, or if it has no values; below one without values, tables
        hold for its code of missing.
    precision
        "exact" is float64 throughout. With "fast", compiled code adds the tables of three and more
        classes in float32.
    """

    def __init__(
        self,
        log_prior: Floats,
        parents: NDArray[np.int64],
        tables: Sequence[Floats],
        hidden: Sequence[NDArray[np.bool_]],
        precision: str = "exact",
    ) -> None:
        prior = np.array(log_prior, np.float64)
        self._parents = np.array(parents, np.int64)
        self._tables = [np.array(table, np.float64) for table in tables]
        self._hidden = [np.array(codes, np.bool_) for codes in hidden]
        self._order = children_first(self._parents)
        self._states = [states_of(codes) for codes in self._hidden]
        largest = sum(map(largest_term, [prior, *self._tables]))
        for table, codes, states in zip(self._tables, self._hidden, self._states, strict=True):
            table[:, codes] = 0.0
            largest += float(np.log(states))
        super().__init__(prior, EXACT * largest)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, x) of every row and class into `out` (n_rows, n_classes)."""
        out[:] = self._log_prior
        columns = indices_of(batch_codes)
        if not self._order or not len(out):
            return
        gone = np.array([self._hidden[j][columns[j]] for j in range(len(self._order))])
        # A feature without children is never summed out: its tables hold 0 for hidden codes.
        gone[:, ~gone[self._parents[self._parents >= 0]].any(axis=0)] = False
        patterns, which = np.unique(gone, axis=1, return_inverse=True)
        order, ends = (
            np.argsort(which.ravel(), kind="stable"),
            np.cumsum(np.bincount(which.ravel())),
        )
        for pattern, rows in zip(patterns.T, np.split(order, ends[:-1]), strict=True):
            chosen = {j: column[rows] for j, column in columns.items()}
            out[rows] += self._factor(chosen, pattern, len(rows))

    def _factor(self, columns: dict[int, Ints], gone: NDArray[np.bool_], n_rows: int) -> Floats:
        """Return ln P(x | c) of rows in which the same features are not observed."""
        total = np.zeros((n_rows, len(self._log_prior)))
        # What the features below say of each state of one that is not observed: (row, state, c).
        below: dict[int, Floats] = {}
        for j in self._order:
            parent = int(self._parents[j])
            if gone[j] and j not in below:
                continue
            if parent >= 0 and gone[parent]:
                states = self._states[parent]
                given = self._message(j, np.arange(states)[None], columns[j], below.get(j))
                below[parent] = below.get(parent, 0.0) + given
            else:
                code = columns[parent] if parent >= 0 else np.zeros(n_rows, np.int64)
                total += self._message(j, code[:, None], columns[j], below.get(j))[:, 0]
        return total

    def _message(
        self, j: int, of: NDArray[np.int64], codes: NDArray[np.int64], below: Floats | None
    ) -> Floats:
        """Return ln P(x_j and below | parent, c) for the parent's codes `of` (rows or 1, any)."""
        table = self._tables[j]
        if below is None:
            return table[of, codes[:, None]]
        n_rows, states, n_classes = below.shape
        result = np.empty((n_rows, of.shape[1], n_classes))
        rows = max(1, MESSAGE // (of.shape[1] * states * n_classes))
        for lo in range(0, n_rows, rows):
            some = slice(lo, lo + rows)
            parent = of if len(of) == 1 else of[some]
            joint = table[parent, :states] + below[some, None]
            result[some] = np.logaddexp.reduce(joint, axis=2)
        return result
