"""What every classifier built on statistics shares: data in, statistics kept, answers out."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes import decisions, engine
from fastbayes.batch import BLOCK_ROWS, Batch
from fastbayes.classifiers.inputs import open_features, open_training
from fastbayes.classifiers.protocol import Estimator
from fastbayes.data.encode import Encoder
from fastbayes.engine import Progress
from fastbayes.errors import DataError, FastBayesWarning, SchemaError
from fastbayes.schema import Schema, labels
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


class Classifier(Estimator):
    """A classifier whose parameters are read off statistics.

    A subclass says which statistics it needs, reads them in `_read`, and gives a scorer.
    """

    _allow_nan: ClassVar[bool] = True
    _statistics: ClassVar[tuple[str, ...]] = ("values", "moments")

    statistics_: Statistics
    schema_: Schema
    classes_: NDArray[Any]
    n_features_in_: int

    domains: Any
    categorical: Any
    missing: str
    unseen: str
    threads: int | None
    memory_limit: int | None

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Learn from data in one scan.

        Parameters
        ----------
        X
            A path, glob, list of paths, directory or URI; a table, frame, array, dataset or
            stream. Missing values are nulls, and NaN in numeric columns.
        y
            The name of the class column of X, or (n_rows,) labels; rows without one are left out.
        sample_weight
            The name of a weight column of X, or (n_rows,) weights, finite and not negative.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        DataError
            When the data cannot be used; the message names file, column, value, row and remedy.
        """
        for name in ("feature_names_in_", "statistics_"):
            if name in vars(self):
                delattr(self, name)
        self._learned(self._count(X, y, sample_weight))
        if len(self.classes_) == 1:
            warnings.warn(
                f"there is only one class, {self.classes_.tolist()[0]!r}: every prediction will "
                "be it",
                FastBayesWarning,
                stacklevel=2,
            )
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, classes: ArrayLike | None = None, sample_weight: Any = None
    ) -> Self:
        """Learn from more data; any batching gives what one `fit` on all of it gives.

        Parameters
        ----------
        X
            As in `fit`. New values and new classes may appear.
        y
            As in `fit`.
        classes
            All classes, if they are known beforehand: others are then an error.
        sample_weight
            As in `fit`.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        DataError
            When the data cannot be used or do not fit what was learned before.
        """
        if "statistics_" not in vars(self) and "feature_names_in_" in vars(self):
            del self.feature_names_in_
        counted = self._count(X, y, sample_weight, classes, first="statistics_" not in vars(self))
        if "statistics_" in vars(self):
            counted = self.statistics_ + counted
        return self._learned(counted)

    def fit_statistics(self, stats: Statistics) -> Self:
        """Learn from statistics that were counted before; the data are not needed.

        Parameters
        ----------
        stats
            From `fastbayes.count`, `Statistics.load`, or sums and differences of such.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        SchemaError
            When a part is missing, or the options of the counting contradict the model's.
        """
        if stats.schema.missing != self.missing:
            raise SchemaError(
                f"the statistics were counted with missing={stats.schema.missing!r}, the model "
                f"has missing={self.missing!r}; use one of them for both"
            )
        if "feature_names_in_" in vars(self):
            del self.feature_names_in_
        self.feature_names_in_ = np.asarray(stats.schema.names, dtype=object)
        self.n_features_in_ = len(stats.schema.names)
        return self._learned(stats)

    def _count(
        self, X: Any, y: Any, sample_weight: Any, classes: Any = None, *, first: bool = True
    ) -> Statistics:
        self._check_parameters()
        opened = open_training(self, X, y, sample_weight, reset=first)
        domains = {**opened.domains, **(self.domains or {})}
        categorical = self.categorical
        if not first:
            known = self.schema_
            domains = {f.name: f.values for f in known.categorical if f.declared} | domains
            if known.classes_declared:
                domains[opened.target] = known.classes
            categorical = [
                f.name for f in known.categorical if f.name in opened.source.schema.names
            ]
        if classes is not None:
            domains[opened.target] = np.unique(np.asarray(classes)).tolist()
        encoder = Encoder.learning(
            opened.source.schema,
            opened.target,
            weight=opened.weight,
            domains=domains,
            categorical=categorical,
            missing=self.missing,
            keep_unlabelled=self._keeps_unlabelled(),
        )
        left: list[pa.RecordBatch] = []
        stats = engine.scan(
            opened.source,
            encoder,
            self._statistics,
            threads=self.threads,
            memory_limit=self.memory_limit,
            unlabelled=left,
        )
        if not stats.n_rows and first:
            why = "every weight is zero" if opened.weight else "there are no rows"
            raise DataError(f"{opened.source.description}: nothing to learn from, {why}")
        return self._with_unlabelled(stats, left, opened.weight)

    def _keeps_unlabelled(self) -> bool:
        return False

    def _with_unlabelled(
        self, stats: Statistics, rows: list[pa.RecordBatch], weight: str | None
    ) -> Statistics:
        if stats.dropped_rows:
            logger.info("%d rows without a class were left out", stats.dropped_rows)
        return stats

    def _learned(self, stats: Statistics) -> Self:
        for name in self._statistics:
            if name not in stats.parts:
                raise SchemaError(f"the statistics hold no {name}; count again with {name}=True")
        if not len(stats.schema.classes):
            raise DataError("the statistics hold no class: nothing was counted")
        self._check_parameters()
        self._read(stats)
        self.statistics_ = stats
        self.schema_ = stats.schema
        self.classes_ = labels(stats.schema.classes)
        if "n_features_in_" not in vars(self):
            self.n_features_in_ = len(stats.schema.names)
        return self

    def _check_parameters(self) -> None:
        """Raise where a constructor parameter cannot be used."""
        raise NotImplementedError

    def _read(self, stats: Statistics) -> None:
        """Set the parameters that the statistics give."""
        raise NotImplementedError

    def _scorer(self, cells: float) -> Any:
        """Return the scorer for a job of this many cells."""
        raise NotImplementedError

    # -- answering -----------------------------------------------------------------------------

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
        cells = float("inf") if source.n_rows is None else float(source.n_rows)
        cells *= max(1, len(self.schema_.features))
        encoder.cells = cells
        scorer = self._scorer(cells)
        tail = () if width is None else (width,)
        known = source.in_memory and source.n_rows is not None
        out = np.empty((source.n_rows if known else 0, *tail), dtype=kind)
        tally = Tally(np.zeros(len(self.schema_.categorical), dtype=np.int64))

        def one(item: tuple[Any, int]) -> tuple[list[NDArray[Any]], NDArray[np.int64], int]:
            segment, start = item
            done, unseen, prior_rows = 0, np.zeros_like(tally.unseen), 0
            pieces = []
            for rows, encoded in engine.encoded_blocks(segment, encoder):
                if known:
                    piece = out[start + done : start + done + rows.num_rows]
                else:
                    piece = np.empty((rows.num_rows, *tail), dtype=kind)
                    pieces.append(piece)
                prior_rows += score(scorer, encoded.batch, piece)
                unseen += encoded.unseen
                done += rows.num_rows
            return pieces, unseen, prior_rows

        def items() -> Any:
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

    def _log_prior(self) -> Floats:
        raise NotImplementedError

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
        if not len(posterior):
            raise DataError("adapt_prior needs rows, and there are none")
        with np.errstate(divide="ignore", invalid="ignore"):
            old = np.exp(self._log_prior())
            prior = old.copy()
            for _ in range(max_iter):
                weight = posterior * np.where(old > 0, prior / old, 0.0)
                new = (weight / weight.sum(axis=1, keepdims=True)).mean(axis=0)
                change, prior = np.abs(new - prior).max(), new
                if change <= tolerance:
                    break
            else:
                raise DataError(
                    f"adapt_prior did not settle in {max_iter} steps (last change {change:.2g}); "
                    "raise max_iter or tolerance"
                )
        adapted = type(self)(**{**self.get_params(deep=False), "class_prior": prior / prior.sum()})
        for name in ("feature_names_in_", "n_features_in_"):
            if name in vars(self):
                setattr(adapted, name, getattr(self, name))
        return adapted._learned(self.statistics_)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the model with its statistics to a file that `fastbayes.load` reads.

        Parameters
        ----------
        path
            The file to write, by custom `*.fb`.
        force
            Whether to replace a file that is there.

        Raises
        ------
        DataError
            When the file exists and `force` is not set, or it cannot be written.
        """
        from fastbayes.classifiers.store import save

        save(self, path, force=force)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds.

        Returns
        -------
        tuple
            Header and arrays.
        """
        self._check_fitted()
        header, arrays = self.statistics_.state()
        named = "feature_names_in_" in vars(self)
        return {**header, "named": named}, arrays

    @classmethod
    def from_state(cls, params: dict[str, Any], header: Any, arrays: Any, source: str) -> Self:
        """Return the model that `state` described.

        Parameters
        ----------
        params
            Constructor parameters.
        header, arrays
            From `state`.
        source
            Name of the file, for messages.

        Returns
        -------
        Self
            The fitted model.
        """
        stats = Statistics.from_state(header, arrays, source)
        model = cls(**params)
        if header["named"]:
            model.feature_names_in_ = np.asarray(stats.schema.names, dtype=object)
        model.n_features_in_ = len(stats.schema.names)
        return model._learned(stats)


def _log_sum_exp(joint: Floats) -> Floats:
    top = joint.max(axis=1)
    with np.errstate(divide="ignore"):
        safe = np.where(np.isneginf(top), 0.0, top)
        return np.asarray(safe + np.log(np.exp(joint - safe[:, None]).sum(axis=1)))


__all__: Sequence[str] = ("Classifier", "Explanation", "Progress", "Tally")
