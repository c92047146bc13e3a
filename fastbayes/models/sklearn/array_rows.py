"""Rows of arrays: turned into columns, and scored block by block in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Codes
from fastbayes.core.errors import DataError
from fastbayes.models.estimator.log_space import Floats, row_argmax, row_max, row_sum, settle
from fastbayes.models.estimator.model import Model, Prediction, ScoreRows
from fastbayes.models.estimator.protocol import check_features
from fastbayes.models.estimator.unavailable import when_fitted
from fastbayes.scan import engine

T = TypeVar("T")

BLOCK_CELLS = 1 << 17  # 1 MiB of float64: a block stays in cache
SEGMENT_CELLS = 1 << 22  # cells of a segment of rows that a thread takes
TILE_CELLS = 1 << 14  # cells turned together: rows and columns of a tile stay in cache
CODES: tuple[Any, ...] = (np.uint8, np.uint16, np.uint32)
EVERY = slice(None)


def taken(X: Any, rows: slice) -> Any:
    """Return rows of an array, or X itself for `EVERY`: scipy would copy a sparse matrix."""
    return X if rows is EVERY else X[rows]


# -- columns -----------------------------------------------------------------------------------


def turned(
    X: NDArray[Any],
    dtype: Any,
    features: Any = EVERY,
    checked: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> NDArray[Any]:
    """Return some columns of X as the rows of a C-contiguous array, (n_features, n_rows).

    Numbers are in the range of `dtype` once a tile of rows is `checked`; integers have fractions
    cut off. All rows are one tile where X already stores columns.
    """
    n_rows, n_features = X.shape
    result = np.empty((n_features if features is EVERY else len(features), n_rows), dtype)
    step = n_rows if X.flags.f_contiguous else min(4096, max(256, TILE_CELLS // n_features))
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        tile = X[rows, features]
        result[:, rows] = (tile if checked is None else checked(tile)).T
    return result


def columns(X: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Return the columns of X as contiguous float64 arrays."""
    return list(turned(X, np.float64))


def column_codes(X: NDArray[Any], sizes: NDArray[np.int64], *, scored: bool) -> tuple[Codes, ...]:
    """Return category codes of rows, each column in the narrowest type that holds its codes.

    X       (n_rows, n_features) codes.
    sizes   (n_features,) S_j.
    scored  Whether a code of S_j or more is unseen, S_j + 1; else the sizes are those found.

    Raises DataError, OverflowError when a code is negative; when one is S_j or more, and rows are
    not to be scored.
    """
    # Two more codes have a place when rows are scored: a missing value and an unseen one.
    widths = np.select([sizes + 2 <= 1 << 8, sizes + 2 <= 1 << 16], [0, 1], 2)
    result = []
    for width, dtype in enumerate(CODES):
        features = np.flatnonzero(widths == width)
        if not len(features):
            continue
        own, limit = sizes[features], np.iinfo(dtype).max

        def checked(
            tile: NDArray[Any], own: NDArray[np.int64] = own, limit: int = limit
        ) -> NDArray[Any]:
            if _within(tile, limit):
                return tile
            if not scored:
                raise OverflowError
            if not (tile > -1).all():
                raise DataError(
                    "Negative values in data passed to CategoricalNB (input X): the least is "
                    f"{tile.min()}; number the categories from 0"
                )
            return np.where(tile >= own, own + 1, tile)

        codes = turned(X, dtype, EVERY if len(features) == X.shape[1] else features, checked)
        highest = codes.max(axis=1).astype(np.int64)
        if scored:
            for j in np.flatnonzero(highest >= own):
                codes[j][codes[j] >= own[j]] = dtype(own[j] + 1)
        elif (highest >= own).any():
            raise OverflowError
        result.append(Codes(features, codes, own + 2 if scored else highest + 1))
    return tuple(result)


def _within(tile: NDArray[Any], limit: int) -> bool:
    """Return whether all numbers, fractions cut off, are in 0, ..., limit: in one pass."""
    if tile.dtype.kind == "f":
        return bool(tile.min() > -1 and tile.max() < limit + 1)
    if tile.dtype.kind == "i":  # as unsigned, the negative ones are the largest
        tile = tile.view(f"u{tile.itemsize}")
    return bool(tile.max() <= limit)


def indicators(X: Any, above: float | None) -> Any:
    """Return rows of an array or CSR matrix as float64, or 1 for numbers above a threshold.

    The threshold of a sparse matrix is at least 0; None for the numbers themselves.
    """
    if isinstance(X, np.ndarray):
        return np.asarray(X if above is None else above < X, dtype=np.float64)
    if above is None:
        return X.astype(np.float64, copy=False)
    return type(X)(((X.data > above).astype(np.float64), X.indices, X.indptr), shape=X.shape)


# -- scorers -----------------------------------------------------------------------------------


class RowScorer:
    """A fitted model as arrays: immutable, so that blocks may be scored in any order or thread.

    It scores rows as they stand; turning them into columns for the kernels would cost more than
    it brings where rows are few, or the log joint is one matrix product.

    log_prior   (n_classes,) nats; what a row gets that no class can have made.
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


class LinearScorer(RowScorer):
    """Log joints that are linear in the row: constant + X @ weights.T.

    log_prior  (n_classes,) nats.
    constant   (n_classes,) added to every row.
    weights    (n_classes, n_features); an infinite weight counts where the number is not 0.
    above      Score indicators of the numbers above this threshold; None to score the numbers.
    absent     (n_classes, n_features) weights of 1 - X beside those of X; only their infinities are
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
        # How much of each row falls on infinite weights: for absent features, of 1 - X.
        if self._infinite is not None:
            sign, features = self._infinite
            out[X @ features.T > 0] = sign
        if self._absent is not None:
            sign, features = self._absent
            out[features.sum(axis=1) - X @ features.T > 0] = sign


def _split(weights: Floats) -> tuple[Floats, tuple[float, Floats] | None]:
    """Return the weights with 0 for infinities, and the sign and places of these."""
    infinite = np.isinf(weights)
    if not infinite.any():
        return weights, None
    sign = float(weights[infinite][0])
    return np.where(infinite, 0.0, weights), (sign, infinite.astype(np.float64))


class GaussianScorer(RowScorer):
    """Naive Bayes over normal distributions, ln N(x) = constant - half_precision (x - mean)².

    log_prior               (n_classes,) nats.
    mean, half_precision, constant  (n_classes, n_features).
    """

    def __init__(
        self, log_prior: Floats, mean: Floats, half_precision: Floats, constant: Floats
    ) -> None:
        super().__init__(log_prior, mean.shape[1])
        self._mean, self._half = mean, half_precision
        with np.errstate(invalid="ignore"):
            self._constant = log_prior + constant.sum(axis=1)

    def log_joint(self, X: NDArray[Any], out: Floats) -> None:
        """Write the log joint of each row and class into `out` (n_rows, n_classes)."""
        with np.errstate(over="ignore"):
            for c in range(self.n_classes):
                deviation = X - self._mean[c]
                np.multiply(deviation, deviation, out=deviation)
                out[:, c] = self._constant[c] - deviation @ self._half[c]


# -- models ------------------------------------------------------------------------------------


def in_segments(function: Callable[[slice], T], X: Any) -> Iterator[T]:
    """Yield function(rows) for the segments of an array in order, working on some ahead.

    In threads, if there is more than one; a sparse matrix is one segment.
    """
    segments = [EVERY]
    if isinstance(X, np.ndarray):
        n_rows, n_features = X.shape
        rows = min(4 * BLOCK_ROWS, max(BLOCK_ROWS // 4, SEGMENT_CELLS // n_features))
        segments = [slice(start, start + rows) for start in range(0, n_rows, rows)]
    threads = engine.default_threads() if len(segments) > 1 else 1
    return engine.in_order(function, segments, threads)


class ArrayRows(Model):
    """A model of arrays of numbers, which may have column names or none.

    A subclass gives a scorer (`_scorer`) and what it takes (`_block`), contributions
    (`_contributions`) and random rows (`_draw`).
    """

    def _scorer(self, cells: int) -> Any:
        """Return the scorer for a job of this many cells: of rows, or one of the kernels."""
        raise NotImplementedError

    def _block(self, scorer: Any, X: Any) -> tuple[Any, ...]:
        """Return a block of rows as the scorer takes it."""
        return (X,)

    def _contributions(self, X: NDArray[Any]) -> Floats:
        """Return what each feature adds to the log joint, (n_rows, n_features, n_classes)."""
        raise NotImplementedError

    def _draw(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[Any]:
        """Return one random row for each class code."""
        raise NotImplementedError

    def _unseen(self, X: NDArray[Any]) -> dict[str, int]:
        """Return how many values were not seen at fit, by column."""
        return {}

    def _scored(
        self, X: Any, answer: ScoreRows, width: int | None = None, kind: type = np.float64
    ) -> NDArray[Any]:
        X = check_features(self, X, reset=False)
        scorer = self._scorer(X.shape[0] * X.shape[1])
        step = scorer.block_rows if isinstance(scorer, RowScorer) else BLOCK_ROWS
        out = np.empty((X.shape[0], *(() if width is None else (width,))), dtype=kind)

        def one(segment: slice) -> None:
            rows, place = taken(X, segment), out[segment]
            parts = [EVERY]
            if isinstance(rows, np.ndarray):
                parts = [slice(start, start + step) for start in range(0, len(rows), step)]
            for part in parts:
                answer(scorer, self._block(scorer, taken(rows, part)), place[part])

        for _ in in_segments(one, X):
            pass
        return out

    def _explained(self, X: Any) -> tuple[Floats, dict[str, int], Floats | None]:
        checked = check_features(self, X, reset=False)
        dense = checked if isinstance(checked, np.ndarray) else checked.toarray()
        return self._contributions(dense), self._unseen(dense), None

    def _feature_names(self) -> tuple[str, ...]:
        if hasattr(self, "feature_names_in_"):
            return tuple(self.feature_names_in_)
        return tuple(f"x{j}" for j in range(self.n_features_in_))

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        return dict(zip(self._feature_names(), self._draw(codes, random).T, strict=True))

    # scikit-learn's checks feed negative numbers to every class that has a `decision_function`,
    # its positive-only ones included: they have none of their own.
    decision_function = when_fitted(Prediction.decision_function)

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """Return the log joint, under scikit-learn's name.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes) in nats.
        """
        return self.log_joint(X)
