"""A model: parameters read off a statistic, so that it can be copied, re-read and saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fastbayes.models.estimator.parameters import fitted
from fastbayes.models.estimator.prediction import Prediction
from fastbayes.models.estimator.prior_shift import shifted_prior


class Model(Prediction):
    """A classifier whose fitted state is a statistic.

    A subclass checks its parameters (`_check_parameters`) and the statistics it is given
    (`_suited`), reads these (`_read`), and rebuilds them from a file (`_loaded`).
    """

    _prior_parameter: ClassVar[str] = "class_prior"

    statistics_: Any = fitted("The `Statistics` that every parameter is read from.")

    # -- what a subclass gives -----------------------------------------------------------------

    def _suited(self, stats: Any) -> Any:
        """Return the statistics as those this model learns from, or raise SchemaError."""
        raise NotImplementedError

    def _read(self, stats: Any) -> dict[str, Any]:
        """Return the fitted attributes, computed from the statistics and the parameters."""
        raise NotImplementedError

    def _loaded(self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str) -> Any:
        """Return the statistics that `state` described."""
        raise NotImplementedError

    def _features_of(self, stats: Any) -> tuple[Sequence[str] | None, int]:
        """Return the names and the number of the features that were counted."""
        raise NotImplementedError

    # -- learning ------------------------------------------------------------------------------

    def fit_statistics(self, stats: Any) -> Self:
        """Learn from statistics that were counted before; the rows are not needed.

        Parameters
        ----------
        stats
            The `statistics_` of a fitted model, or sums and differences of such. Models of tables,
            CategoricalNB and GaussianNB also take what `fastbayes.count` and `Statistics.load`
            return.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        SchemaError
            When a part is missing, or the options of the counting contradict the model's.
        """
        self._check_parameters()
        stats = self._suited(stats)
        self._learned(stats)
        self._set_features(*self._features_of(stats))
        self._caution()
        return self

    def _caution(self) -> None:
        """Warn of what was done to get parameters that the caller may not expect."""

    def _learned(self, stats: Any) -> Self:
        """Read the parameters off statistics, and keep these; nothing is set if that fails."""
        self._check_parameters()
        attributes = self._read(stats)
        self.statistics_ = stats
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

    def _copy_with(self, **params: Any) -> Self:
        """Return a model with some parameters changed, learned from the same statistics."""
        copy = type(self)(**{**self.get_params(deep=False), **params})
        copy._set_features(vars(self).get("feature_names_in_"), self.n_features_in_)
        return copy._learned(self.statistics_)

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
            When there are no rows, or the steps did not settle.

        References
        ----------
        Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a
        priori probabilities, Neural Computation 14, eq. 2.
        """
        posterior = self.predict_proba(X)
        prior = shifted_prior(posterior, np.exp(self._log_prior()), tolerance, max_iter)
        return self._copy_with(**{self._prior_parameter: prior})

    # -- saving --------------------------------------------------------------------------------

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

        Notes
        -----
        The file holds parameters and statistics: parameters set since the model was fitted take
        effect when it is loaded.
        """
        from fastbayes.models.estimator.store import save

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
        return {**header, "named": "feature_names_in_" in vars(self)}, arrays

    @classmethod
    def from_state(
        cls,
        params: Mapping[str, Any],
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
        FileFormatError, SchemaError, KeyError, TypeError, ValueError
            When header and arrays do not fit together; `fastbayes.load` names the file then.
        """
        model = cls(**params)
        stats = model._loaded(header, arrays, source)
        names, n_features = model._features_of(stats)
        model._set_features(names if header["named"] else None, n_features)
        return model._learned(stats)
