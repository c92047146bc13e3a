"""How scikit-learn's five naive Bayes classes learn: arrays in, a statistic kept."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.classifiers.array_scorers import taken
from fastbayes.classifiers.drop_in_answers import Answers, Floats, in_segments
from fastbayes.classifiers.prior_shift import shifted_prior
from fastbayes.classifiers.protocol import (
    check_labels,
    check_length,
    check_weight,
    encode_labels,
    split_target,
)
from fastbayes.errors import DataError, FileFormatError, SchemaError
from fastbayes.statistics.array_statistics import ArrayStatistics
from fastbayes.statistics.bundle import Statistics


class DropIn(Answers):
    """A classifier of scikit-learn's `naive_bayes` whose fitted state is a statistic.

    A subclass counts (`_count`) and reads its attributes off the statistic (`_read`).
    """

    _parts: ClassVar[tuple[str, ...]]
    _prior_parameter: ClassVar[str] = "class_prior"

    statistics_: ArrayStatistics

    # -- what a subclass gives -----------------------------------------------------------------

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        """Return what is done to the numbers before counting."""
        return {}

    def _count(
        self,
        X: Any,
        y: NDArray[np.unsignedinteger],
        n_classes: int,
        weight: Floats | None,
        cells: int,
    ) -> dict[str, Any]:
        """Return the statistics of some rows; `cells` are those of the whole job."""
        raise NotImplementedError

    def _read(self, stats: ArrayStatistics) -> dict[str, Any]:
        """Return the fitted attributes, computed from the statistic and the parameters."""
        raise NotImplementedError

    def _of_table(self, stats: Statistics) -> ArrayStatistics | Statistics:
        """Return the statistic of a table as one of arrays, where there is such a thing."""
        return stats

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows and their classes.

        Parameters
        ----------
        X
            (n_rows, n_features) numbers, without missing values.
        y
            (n_rows,) classes, or the name of a column where X is a frame or table.
        sample_weight
            (n_rows,) weights, finite and not negative.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            When a parameter, X, y or a weight cannot be used; the message says which.
        """
        return self._learn(X, y, None, sample_weight, first=True)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from more rows; any batching gives what one `fit` on all of them gives.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes
            All classes that will ever occur; needed at the first call.
        sample_weight
            As in `fit`.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            As in `fit`, and when `classes` is missing at the first call or differs later, or y
            has a label outside it.
        """
        first = not self.__sklearn_is_fitted__()
        known = None if first else self.classes_
        if classes is not None:
            given, _ = encode_labels(check_labels(self, classes))
            if known is not None and not np.array_equal(given, known):
                raise ValueError(
                    f"`classes={classes!r}` is not the same as on last call to partial_fit, was: "
                    f"{known!r}"
                )
            known = given
        if known is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return self._learn(X, y, known, sample_weight, first=first)

    def _learn(
        self, X: Any, y: Any, classes: NDArray[Any] | None, sample_weight: Any, *, first: bool
    ) -> Self:
        self._check_parameters()
        X, y = split_target(X, y)
        labels = check_labels(self, y)
        X = self._features(X, reset=first)
        check_length(X, labels)
        weight = check_weight(sample_weight, len(labels), allow_zero=True)
        classes, codes = encode_labels(labels, classes)
        names = getattr(self, "feature_names_in_", None)
        names = None if names is None else tuple(names)

        def count(part: slice) -> ArrayStatistics:
            w = None if weight is None else weight[part]
            cells = int(X.shape[0] * X.shape[1])
            parts = self._count(taken(X, part), codes[part], len(classes), w, cells)
            return ArrayStatistics(classes, parts, names, self._options())

        # Segments do not depend on the threads and are added in order: nor do the bits.
        counted = in_segments(count, X)
        stats = next(counted) if first else self.statistics_
        return self._fitted(sum(counted, start=stats))

    def fit_statistics(self, stats: ArrayStatistics | Statistics) -> Self:
        """Learn from a statistic that was counted before; the rows are not needed.

        Parameters
        ----------
        stats
            The `statistics_` of a fitted model of this class, or sums and differences of such.
            CategoricalNB and GaussianNB also take what `fastbayes.count` returns.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        SchemaError
            When the statistic is of another kind, or its options contradict the parameters.
        """
        self._check_parameters()
        owner = type(self).__name__
        if isinstance(stats, Statistics):
            stats = self._of_table(stats)
        if not isinstance(stats, ArrayStatistics) or set(stats.parts) != set(self._parts):
            what = sorted(stats.parts) if hasattr(stats, "parts") else type(stats).__name__
            raise SchemaError(
                f"{owner} is fitted from {list(self._parts)}, not from {what}; use the "
                f"statistics_ of a fitted {owner}"
            )
        if dict(stats.options) != self._options():
            raise SchemaError(
                f"the statistic was counted with {dict(stats.options)}, but {owner} has "
                f"{self._options()}; set the same parameters"
            )
        self.n_features_in_ = stats.n_features
        if stats.names is not None:
            self.feature_names_in_ = np.asarray(stats.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self._fitted(stats)

    def _fitted(self, stats: ArrayStatistics) -> Self:
        if not stats.class_counts.sum() > 0:
            raise DataError(
                "Sample weights must contain at least one non-zero number: every weight is zero"
            )
        attributes = self._read(stats)
        self.statistics_ = stats
        self.classes_ = stats.classes
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

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
            A fitted model with the prior as its parameter; this one is left as it was.

        Raises
        ------
        DataError
            When the steps did not settle.
        """
        posterior = self.predict_proba(X)
        prior = shifted_prior(posterior, np.exp(self._log_prior()), tolerance, max_iter)
        params = {**self.get_params(deep=False), self._prior_parameter: prior}
        return type(self)(**params).fit_statistics(self.statistics_)

    # -- saving --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the model with its statistic to a file that `fastbayes.load` reads.

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
        return self.statistics_.state()

    @classmethod
    def from_state(
        cls,
        params: dict[str, Any],
        header: Mapping[str, Any],
        arrays: Mapping[str, Any],
        source: str,
    ) -> Self:
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

        Raises
        ------
        FileFormatError
            When header and arrays do not fit together.
        """
        try:
            stats = ArrayStatistics.from_state(header, arrays)
            return cls(**params).fit_statistics(stats)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(
                f"{source}: the header and the arrays do not fit together ({error}); write the "
                "file again"
            ) from error

    def _must_be(self, name: str, what: str) -> ValueError:
        owner, value = type(self).__name__, getattr(self, name)
        return ValueError(
            f"The {name!r} parameter of {owner} must be {what}. Got {value!r} instead."
        )


def is_real(value: Any, least: float = 0.0) -> bool:
    """Return whether a parameter is a real number of at least this.

    Parameters
    ----------
    value
        The parameter.
    least
        The smallest number that is allowed.

    Returns
    -------
    bool
        False for NaN and infinity.
    """
    return isinstance(value, numbers.Real) and least <= float(value) < np.inf
