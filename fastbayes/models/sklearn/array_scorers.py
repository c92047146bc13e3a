"""Scoring of rows of arrays: log joints, posteriors and predictions, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.log_space import Floats, row_argmax, row_max, row_sum, settle
from fastbayes.models.sklearn.columns import ColumnCodes, columns

BLOCK_CELLS = 1 << 17  # 1 MiB of float64: a block stays in cache


EVERY = slice(None)


def taken(X: Any, rows: slice) -> Any:
    """Return rows of an array, or X itself for all of them: scipy would copy a sparse matrix.

    Parameters
    ----------
    X
        Array or CSR matrix.
    rows
        The rows; `EVERY` for all.

    Returns
    -------
    numpy.ndarray or scipy sparse matrix
        A view of the array.
    """
    return X if rows is EVERY else X[rows]


class RowScorer:
    """A fitted model as arrays: immutable, so that blocks may be scored in any order or thread.

    Parameters
    ----------
    log_prior
        (n_classes,) nats; what a row gets that no class can have made.
    n_features
        Columns of the rows.
    """

    def __init__(self, log_prior: Floats, n_features: int) -> None:
        self.log_prior = log_prior
        self.n_classes = len(log_prior)
        self.block_rows = max(256, BLOCK_CELLS // max(n_features, self.n_classes))

    def log_joint(self, X: Any, out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        raise NotImplementedError

    def posterior(self, X: Any, out: Floats) -> None:
        """Write P(c | x) into `out` (n_rows, n_classes); rows sum to 1."""
        self.log_joint(X, out)
        settle(out, self.log_prior)
        out -= row_max(out)[:, None]
        np.exp(out, out=out)
        out /= row_sum(out)[:, None]

    def predict(self, X: Any, out: NDArray[np.intp]) -> None:
        """Write the index of the most probable class of each row, the lowest of equals."""
        joint = np.empty((len(out), self.n_classes))
        self.log_joint(X, joint)
        settle(joint, self.log_prior)
        out[:] = row_argmax(joint)

    def blocks(self, X: Any) -> Iterator[slice]:
        """Return the row ranges to score one after the other; a sparse matrix is one block."""
        if not isinstance(X, np.ndarray):
            return iter([EVERY])
        rows = self.block_rows
        return (slice(start, start + rows) for start in range(0, len(X), rows))


class LinearScorer(RowScorer):
    """Log joints that are linear in the row: constant + X @ weights.T.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    constant
        (n_classes,) added to every row.
    weights
        (n_classes, n_features); an infinite weight counts where the number is not 0.
    above
        Score indicators of the numbers above this threshold; None to score the numbers.
    absent
        (n_classes, n_features) weights of 1 - X beside those of X; only their infinities are
        read, finite ones being folded into `weights` and `constant`. None for none.
    """

    def __init__(
        self,
        log_prior: Floats,
        constant: Floats,
        weights: Floats,
        above: float | None = None,
        absent: Floats | None = None,
    ) -> None:
        super().__init__(log_prior, weights.shape[1])
        self.constant, self.above = constant, above
        self._finite, self._infinite = _split(weights)
        self._absent = None if absent is None else _split(absent)[1]

    def log_joint(self, X: Any, out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        X = indicators(X, self.above)
        out[:] = X @ self._finite.T
        out += self.constant
        for marks, rows in ((self._infinite, X), (self._absent, None)):
            if marks is None:
                continue
            sign, features = marks
            # How much of each row falls on infinite weights: for absent features, of 1 - X.
            mass = (X if rows is None else rows) @ features.T
            if rows is None:
                mass = features.sum(axis=1) - mass
            out[mass > 0] = sign


def _split(weights: Floats) -> tuple[Floats, tuple[float, Floats] | None]:
    """Return the weights with 0 for infinities, and the sign and places of these."""
    infinite = np.isinf(weights)
    if not infinite.any():
        return weights, None
    sign = float(weights[infinite][0])
    return np.where(infinite, 0.0, weights), (sign, infinite.astype(np.float64))


def indicators(X: Any, above: float | None) -> Any:
    """Return rows as float64: the numbers, or 1 for those above a threshold and 0 for others.

    Parameters
    ----------
    X
        Array or CSR matrix.
    above
        The threshold, at least 0 for a sparse matrix; None for the numbers themselves.

    Returns
    -------
    numpy.ndarray or scipy.sparse.csr_array
        Of the same shape.
    """
    if isinstance(X, np.ndarray):
        return np.asarray(X if above is None else above < X, dtype=np.float64)
    if above is None:
        return X.astype(np.float64, copy=False)
    return type(X)(((X.data > above).astype(np.float64), X.indices, X.indptr), shape=X.shape)


class CodeScorer(RowScorer):
    """Naive Bayes over category codes held in the rows of an integer array.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    tables
        (n_slots, n_classes) log likelihoods, S_j + 2 rows per feature: values, missing, unseen.
    sizes
        (n_features,) S_j; a code of S_j or more is unseen.
    cells
        Cells that will be scored, on which numpy or compiled kernels are chosen.
    """

    def __init__(
        self, log_prior: Floats, tables: Floats, sizes: NDArray[np.int64], cells: int
    ) -> None:
        super().__init__(log_prior, len(sizes))
        offsets = np.concatenate(([0], np.cumsum(sizes + 2))).astype(np.int64)
        self._scorer = dispatch.load("log_joint", cells).NaiveScorer(log_prior, tables, offsets)
        self._codes = ColumnCodes(sizes)
        self.block_rows = BLOCK_ROWS

    def log_joint(self, X: NDArray[Any], out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        self._scorer.log_joint(self._codes.scored(X), (), out)

    def posterior(self, X: NDArray[Any], out: Floats) -> None:
        """Write P(c | x) into `out` (n_rows, n_classes); rows sum to 1."""
        self._scorer.posterior(self._codes.scored(X), (), out)

    def predict(self, X: NDArray[Any], out: NDArray[np.intp]) -> None:
        """Write the index of the most probable class of each row, the lowest of equals."""
        self._scorer.predict(self._codes.scored(X), (), out)


class GaussianScorer(RowScorer):
    """Naive Bayes over normal distributions.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    mean, half_precision, constant
        (n_classes, n_features): ln N(x) = constant - half_precision (x - mean)².
    cells
        Cells that will be scored, on which numpy or compiled kernels are chosen.
    """

    def __init__(
        self, log_prior: Floats, mean: Floats, half_precision: Floats, constant: Floats, cells: int
    ) -> None:
        super().__init__(log_prior, mean.shape[1])
        self._mean, self._half = mean, half_precision
        with np.errstate(invalid="ignore"):
            self._constant = log_prior + constant.sum(axis=1)
        self._scorer = None
        if dispatch.compiled(cells):
            rest = np.zeros_like(mean)  # scikit-learn's means are rounded
            parts = mean, half_precision, constant, rest
            gaussian = tuple(np.ascontiguousarray(a.T) for a in parts)
            empty = np.empty((0, self.n_classes)), np.zeros(1, np.int64)
            self._scorer = dispatch.load("log_joint").NaiveScorer(log_prior, *empty, gaussian)
            self.block_rows = BLOCK_ROWS

    def log_joint(self, X: NDArray[Any], out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        if self._scorer is not None:
            self._scorer.log_joint((), columns(X), out)
            return
        with np.errstate(over="ignore"):
            for c in range(self.n_classes):
                deviation = X - self._mean[c]
                np.multiply(deviation, deviation, out=deviation)
                out[:, c] = self._constant[c] - deviation @ self._half[c]

    def posterior(self, X: NDArray[Any], out: Floats) -> None:
        """Write P(c | x) into `out` (n_rows, n_classes); rows sum to 1."""
        if self._scorer is None:
            super().posterior(X, out)
        else:
            self._scorer.posterior((), columns(X), out)

    def predict(self, X: NDArray[Any], out: NDArray[np.intp]) -> None:
        """Write the index of the most probable class of each row, the lowest of equals."""
        if self._scorer is None:
            super().predict(X, out)
        else:
            self._scorer.predict((), columns(X), out)
