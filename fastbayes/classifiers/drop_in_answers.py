"""How scikit-learn's five naive Bayes classes answer: scores of rows of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes import decisions, engine
from fastbayes.batch import BLOCK_ROWS
from fastbayes.classifiers.answers import Explanation
from fastbayes.classifiers.array_scorers import EVERY, RowScorer, row_max, row_sum, taken
from fastbayes.classifiers.protocol import Estimator, check_features, check_labels, encode_labels
from fastbayes.errors import DataError

Floats = NDArray[np.float64]
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


class when_fitted:
    """A method that only a fitted estimator has.

    scikit-learn's checks feed negative numbers to every class that has a `decision_function`,
    its positive-only ones included: they have none of their own.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self._method
        instance._check_fitted()
        return MethodType(self._method, instance)


class Answers(Estimator):
    """A fitted classifier of arrays.

    A subclass gives a scorer (`_scorer`), contributions (`_contributions`) and random rows
    (`_draw`).
    """

    classes_: NDArray[Any]
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def _features(self, X: Any, *, reset: bool) -> Any:
        return check_features(self, X, reset=reset)

    def _scorer(self, cells: int) -> RowScorer:
        raise NotImplementedError

    def _contributions(self, X: Any) -> Floats:
        """Return what each feature adds to the log joint, (n_rows, n_features, n_classes)."""
        raise NotImplementedError

    def _draw(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[Any]:
        """Return one random row for each class code."""
        raise NotImplementedError

    def _log_prior(self) -> Floats:
        raise NotImplementedError

    def _scored(
        self,
        X: Any,
        score: Callable[[RowScorer, Any, NDArray[Any]], None],
        width: int | None,
        kind: type = np.float64,
    ) -> NDArray[Any]:
        X = self._features(X, reset=False)
        scorer = self._scorer(X.shape[0] * X.shape[1])
        tail = () if width is None else (width,)
        out = np.empty((X.shape[0], *tail), dtype=kind)

        def one(segment: slice) -> None:
            rows, place = taken(X, segment), out[segment]
            for part in scorer.blocks(rows):
                score(scorer, taken(rows, part), place[part])

        for _ in in_segments(one, X):
            pass
        return out

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X
            (n_rows, n_features) numbers, without missing values.

        Returns
        -------
        numpy.ndarray
            (n_rows,) labels out of `classes_`; ties go to the lowest class.
        """
        self._check_fitted()
        best = self._scored(X, lambda s, x, out: s.predict(x, out), None, np.intp)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Floats:
        """Return P(c | x).

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes), rows sum to 1. A row that no class can have made gets the prior.
        """
        self._check_fitted()
        return self._scored(X, lambda s, x, out: s.posterior(x, out), len(self.classes_))

    def predict_log_proba(self, X: Any) -> Floats:
        """Return ln P(c | x).

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes) in nats.
        """
        self._check_fitted()
        return self._scored(X, lambda s, x, out: s.log_posterior(x, out), len(self.classes_))

    def log_joint(self, X: Any) -> Floats:
        """Return ln P(c, x) up to what does not depend on the class.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes) in nats; -inf where a class is impossible.
        """
        self._check_fitted()
        return self._scored(X, lambda s, x, out: s.log_joint(x, out), len(self.classes_))

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

    def log_evidence(self, X: Any) -> Floats:
        """Return ln P(x): low values mark rows unlike anything seen.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows,) in nats.
        """
        joint = self.log_joint(X)
        top = row_max(joint)
        with np.errstate(divide="ignore"):
            safe = np.where(np.isneginf(top), 0.0, top)
            return np.asarray(safe + np.log(row_sum(np.exp(joint - safe[:, None]))))

    @when_fitted
    def decision_function(self, X: Any) -> Floats:
        """Return the log odds of the second class, or the log joint of more than two.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows,) for two classes, else (n_rows, n_classes), in nats.
        """
        joint = self._scored(X, lambda s, x, out: s.settled(x, out), len(self.classes_))
        return joint if joint.shape[1] != 2 else np.asarray(joint[:, 1] - joint[:, 0])

    def decide(self, X: Any, *, loss: Any = None, reject: float | None = None) -> Any:
        """Return the decision of least expected loss for each row.

        Parameters
        ----------
        X
            As in `predict`.
        loss
            (n_decisions, n_classes), rows = decision, columns = truth; labelled tables are
            checked against `classes_`. None counts every error as 1.
        reject
            Cost of not deciding; taken where it is below the least expected loss.

        Returns
        -------
        fastbayes.decisions.Decisions
            Decision, its expected loss and the runner-up per row.
        """
        return decisions.decide(self.predict_proba(X), self.classes_, loss, reject)

    def explain(self, X: Any) -> Explanation:
        """Return what each feature adds to the log joint of each class.

        Parameters
        ----------
        X
            As in `predict`; a sparse matrix is made dense.

        Returns
        -------
        Explanation
            `contributions` (n_rows, n_features, n_classes) and `prior` (n_classes,) in nats,
            which sum to `log_joint`.
        """
        self._check_fitted()
        checked = self._features(X, reset=False)
        dense = checked if isinstance(checked, np.ndarray) else checked.toarray()
        return Explanation(
            self._contributions(dense),
            self._explained_prior(),
            self._names(),
            self.classes_,
            self._unseen(dense),
        )

    def _explained_prior(self) -> Floats:
        return self._log_prior()

    def _unseen(self, X: NDArray[Any]) -> dict[str, int]:
        return {}

    def sample(self, n: int, y: Any = None, seed: int | None = None) -> pa.Table:
        """Return random rows of the model: the features, then the class.

        Parameters
        ----------
        n
            Number of rows.
        y
            The class of all rows, or (n,) classes; None to draw them from the prior.
        seed
            Same seed, same rows.

        Returns
        -------
        pyarrow.Table
            The columns `feature_names_in_` (or x0, x1, ...) and "class".

        Raises
        ------
        ValueError
            When y holds a class the model does not know, or is not of length n.
        """
        self._check_fitted()
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ValueError(f"n={n!r}: use a whole number >= 0")
        random = np.random.default_rng(seed)
        if y is None:
            prior = np.exp(self._log_prior())
            codes = random.choice(len(prior), size=n, p=prior / prior.sum())
        else:
            labels = check_labels(self, np.full(n, y) if np.ndim(y) == 0 else y)
            if len(labels) != n:
                raise DataError(f"y has {len(labels)} classes, but {n} rows are asked for")
            codes = encode_labels(labels, self.classes_)[1].astype(np.intp)
        columns = dict(zip(self._names(), self._draw(codes, random).T, strict=True))
        target = "class"
        while target in columns:
            target += "_"
        return pa.table({**columns, target: self.classes_[codes]})

    def _names(self) -> tuple[str, ...]:
        """Return the names of the features, x0, x1, ... where they have none."""
        if hasattr(self, "feature_names_in_"):
            return tuple(self.feature_names_in_)
        return tuple(f"x{j}" for j in range(self.n_features_in_))
