"""Rows of arrays: checked at the door and scored block by block, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.model import Model, Prediction, ScoreRows
from fastbayes.models.estimator.protocol import check_features
from fastbayes.models.estimator.unavailable import when_fitted
from fastbayes.models.sklearn.array_scorers import EVERY, RowScorer, taken
from fastbayes.scan import engine

T = TypeVar("T")

SEGMENT_CELLS = 1 << 22  # cells of a segment of rows that a thread takes


def in_segments(function: Callable[[slice], T], X: Any) -> Iterator[T]:
    """Yield function(rows) for the segments of an array in order, working on some ahead.

    Parameters
    ----------
    function
        Called with ranges of rows, in threads if there is more than one.
    X
        (n_rows, n_features) array; a sparse matrix is one segment.

    Yields
    ------
    object
        What the function returned.
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

    A subclass gives a scorer (`_scorer`), contributions (`_contributions`) and random rows
    (`_draw`).
    """

    def _scorer(self, cells: int) -> RowScorer:
        """Return the scorer for a job of this many cells."""
        raise NotImplementedError

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
        tail = () if width is None else (width,)
        out = np.empty((X.shape[0], *tail), dtype=kind)

        def one(segment: slice) -> None:
            rows, place = taken(X, segment), out[segment]
            for part in scorer.blocks(rows):
                answer(scorer, (taken(rows, part),), place[part])

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
