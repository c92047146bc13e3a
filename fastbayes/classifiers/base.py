"""What every classifier built on statistics shares: data in, statistics kept, answers out."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes import engine
from fastbayes.classifiers.answers import Answers
from fastbayes.classifiers.inputs import open_training
from fastbayes.data.encode import Encoder
from fastbayes.errors import DataError, FastBayesWarning, SchemaError
from fastbayes.schema import Schema, labels
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]


class Classifier(Answers):
    """A classifier whose parameters are read off statistics.

    A subclass says which statistics it needs, reads them in `_read`, and gives a scorer.
    """

    _allow_nan: ClassVar[bool] = True
    _statistics: ClassVar[tuple[str, ...]] = ("values", "moments")

    statistics_: Statistics
    schema_: Schema
    classes_: NDArray[Any]
    n_features_in_: int
    feature_names_in_: NDArray[Any]

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
        if stats.schema.target is None or not len(stats.schema.classes):
            raise DataError("the statistics hold no class; count again with a target")
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
