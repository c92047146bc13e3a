"""What every classifier built on statistics answers: labels, probabilities, decisions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes import _jit, engine
from fastbayes.batch import BLOCK_ROWS, Batch
from fastbayes.classifiers.inputs import open_features
from fastbayes.classifiers.prior_shift import shifted_prior
from fastbayes.classifiers.protocol import Estimator
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment
from fastbayes.decisions import Decisions, decide
from fastbayes.schema import Schema
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Explanation:
    """Why a model says what it says: contributions in nats that add up to the log joint.

    Parameters
    ----------
    contributions
        (n_rows, n_features, n_classes): ln P(x_j | c), 0 where the value is missing.
    prior
        (n_classes,): ln P(c).
    features
        Feature names, in the order of the second axis.
    classes
        Class labels, in the order of the last axis.
    unseen
        Number of values that were never seen at fit, by column.
    """

    contributions: Floats
    prior: Floats
    features: tuple[str, ...]
    classes: NDArray[Any]
    unseen: dict[str, int]


@dataclass
class Tally:
    """What a scan of new rows came across."""

    unseen: NDArray[np.int64]
    prior_rows: int = 0  # impossible under every class: answered from the prior


class Answers(Estimator):
    """Scores rows with the scorer that a subclass gives in `_scorer`."""

    classes_: NDArray[Any]
    schema_: Schema
    statistics_: Statistics
    unseen: str
    threads: int | None

    def _scorer(self, cells: float) -> Any:
        """Return the scorer for a job of this many cells."""
        raise NotImplementedError

    def _scorers(self) -> Callable[[float], Any]:
        """Return a function from the cells of a job to its scorer, made once per kind."""
        made: dict[bool, Any] = {}

        def scorer(cells: float) -> Any:
            kind = _jit.compiled(cells)
            if kind not in made:
                made[kind] = self._scorer(cells)
            return made[kind]

        return scorer

    def _log_prior(self) -> Floats:
        """Return ln P(c), (n_classes,)."""
        raise NotImplementedError

    def _learned(self, stats: Statistics) -> Self:
        """Read the parameters off statistics."""
        raise NotImplementedError

    def _scan(
        self,
        X: Any,
        score: Callable[[Any, Batch, NDArray[Any]], int],
        width: int | None,
        kind: type = np.float64,
    ) -> tuple[NDArray[Any], Tally]:
        """Return score(scorer, batch, out) of all rows of X, in order."""
        self._check_fitted()
        source = open_features(self, X)
        encoder = Encoder.applying_to(self.schema_, source.schema, unseen=self.unseen)
        encoder.expect(source.n_rows)
        scorer = self._scorers()
        tail = () if width is None else (width,)
        known = source.in_memory and source.n_rows is not None
        out = np.empty((source.n_rows if known else 0, *tail), dtype=kind)
        tally = Tally(np.zeros(len(self.schema_.categorical), dtype=np.int64))

        def one(item: tuple[Segment, int]) -> tuple[list[NDArray[Any]], NDArray[np.int64], int]:
            segment, start = item
            done, unseen, prior_rows = 0, np.zeros_like(tally.unseen), 0
            pieces = []
            for rows, encoded in engine.encoded_blocks(segment, encoder):
                if known:
                    piece = out[start + done : start + done + rows.num_rows]
                else:
                    piece = np.empty((rows.num_rows, *tail), dtype=kind)
                    pieces.append(piece)
                prior_rows += score(scorer(encoded.batch.cells), encoded.batch, piece)
                unseen += encoded.unseen
                done += rows.num_rows
            return pieces, unseen, prior_rows

        def items() -> Iterator[tuple[Segment, int]]:
            start = 0
            for segment in source.segments(BLOCK_ROWS):
                yield segment, start
                start += segment.n_rows if known else 0

        pieces: list[NDArray[Any]] = []
        threads = engine.resolved_threads(self.threads)
        for some, unseen, prior_rows in engine.in_order(one, items(), threads):
            pieces += some
            tally.unseen += unseen
            tally.prior_rows += prior_rows
        self._report(tally)
        return (out if known else np.concatenate([out, *pieces])), tally

    def _report(self, tally: Tally) -> None:
        for name, n in self._unseen(tally).items():
            logger.info("column %r: %d values were not seen at fit", name, n)
        if tally.prior_rows:
            logger.info("%d rows are impossible under every class", tally.prior_rows)

    def _unseen(self, tally: Tally) -> dict[str, int]:
        names = [f.name for f in self.schema_.categorical]
        return {name: int(n) for name, n in zip(names, tally.unseen, strict=True) if n}

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X
            As in `fit`, without the class column (if it is there, it is not read).

        Returns
        -------
        numpy.ndarray
            (n_rows,) labels out of `classes_`; ties go to the lowest class.

        Raises
        ------
        SchemaError
            When a column is missing or has another type; the message names it.
        """
        best, _ = self._scan(X, lambda s, b, out: s.predict(b.codes, b.numeric, out), None, np.intp)
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
            (n_rows, n_classes), rows sum to 1. A row that is impossible under every class gets
            the prior.
        """
        return self._posterior(X)[0]

    def _posterior(self, X: Any) -> tuple[Floats, Tally]:
        self._check_fitted()
        k = len(self.classes_)
        return self._scan(X, lambda s, b, out: s.posterior(b.codes, b.numeric, out), k)

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
        joint = self.log_joint(X)
        lost = np.isneginf(joint).all(axis=1)
        joint[lost] = self._log_prior()
        return joint - _log_sum_exp(joint)[:, None]

    def log_joint(self, X: Any) -> Floats:
        """Return ln P(c, x).

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes) in nats; -inf where a class is impossible.
        """

        def score(scorer: Any, batch: Batch, out: Floats) -> int:
            scorer.log_joint(batch.codes, batch.numeric, out)
            return 0

        self._check_fitted()
        return self._scan(X, score, len(self.classes_))[0]

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
        return _log_sum_exp(self.log_joint(X))

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
        joint = self.predict_log_proba(X) if len(self._fitted_classes()) == 2 else self.log_joint(X)
        if joint.shape[1] != 2:
            return joint
        return np.asarray(joint[:, 1] - joint[:, 0])

    def _fitted_classes(self) -> NDArray[Any]:
        self._check_fitted()
        return self.classes_

    def decide(self, X: Any, *, loss: Any = None, reject: float | None = None) -> Decisions:
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
        return decide(self.predict_proba(X), self.classes_, loss, reject)

    def adapt_prior(self, X: Any, *, tolerance: float = 1e-9, max_iter: int = 10_000) -> Self:
        """Return a copy whose class prior fits unlabelled rows, by expectation maximisation.

        Parameters
        ----------
        X
            Rows whose classes are unknown, as in `predict`.
        tolerance
            Stop when no prior changes by more than this.
        max_iter
            Stop with an error after so many steps.

        Returns
        -------
        Self
            A fitted model with `class_prior` set; this one is left as it was.

        Raises
        ------
        DataError
            When there are no rows, or the steps did not settle.

        References
        ----------
        Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a
        priori probabilities, Neural Computation 14, eq. 2.
        """
        posterior = self.predict_proba(X)
        prior = shifted_prior(posterior, np.exp(self._log_prior()), tolerance, max_iter)
        adapted = type(self)(**{**self.get_params(deep=False), "class_prior": prior})
        for name in ("feature_names_in_", "n_features_in_"):
            if name in vars(self):
                setattr(adapted, name, getattr(self, name))
        return adapted._learned(self.statistics_)


def _log_sum_exp(joint: Floats) -> Floats:
    top = joint.max(axis=1)
    with np.errstate(divide="ignore"):
        safe = np.where(np.isneginf(top), 0.0, top)
        return np.asarray(safe + np.log(np.exp(joint - safe[:, None]).sum(axis=1)))
