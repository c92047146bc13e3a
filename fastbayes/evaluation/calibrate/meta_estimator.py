"""A model made of another one: its parameters are nested, and what it says of rows is passed on."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.models.discrete.naive_bayes import NaiveBayes
from fastbayes.models.estimator.base import TableRows
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter

# What a fitted meta-estimator has from its model.
FROM_MODEL = ("schema_", "statistics_", "unseen", "threads")


class MetaEstimator(TableRows):
    """A classifier with a parameter `model`, None for `NaiveBayes()`, and a fitted copy, `model_`.

    A subclass fits, and gives the scorer.
    """

    model: Any = parameter(
        "The classifier, by default `NaiveBayes()`; it is left as it is, and a copy is fitted.",
        default=None,
        kw_only=False,
    )
    model_: Any = fitted("The fitted model.")

    # -- parameters ----------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters and their values.

        Parameters
        ----------
        deep
            Whether to return those of the model too, as `model__alpha`.

        Returns
        -------
        dict
            Value by parameter name.
        """
        params = super().get_params(deep)
        if deep and hasattr(self.model, "get_params"):
            inner = self.model.get_params(deep)
            params |= {f"model__{name}": value for name, value in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the model as `model__alpha`.

        Parameters
        ----------
        **params
            New values.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            When a name is not a parameter.
        """
        start = "model__"
        super().set_params(**{n: v for n, v in params.items() if not n.startswith(start)})
        inner = {n.removeprefix(start): v for n, v in params.items() if n.startswith(start)}
        if inner:
            if not hasattr(self.model, "set_params"):
                raise ValueError(
                    f"Invalid parameter {start + next(iter(inner))!r} for estimator Calibrated: "
                    f"model={self.model!r} has no parameters."
                )
            self.model.set_params(**inner)
        return self

    def unfitted(self) -> Any:
        """Return a copy of the model that is to be fitted.

        Returns
        -------
        Classifier
            One with the same parameters.
        """
        if self.model is None:
            return NaiveBayes()
        return type(self.model)(**self.model.get_params(deep=False))

    @property
    def _allow_nan(self) -> bool:  # type: ignore[override]
        return bool(self.unfitted()._allow_nan)

    @property
    def _flags_are_numbers(self) -> bool:  # type: ignore[override]
        return bool(self.unfitted()._flags_are_numbers)

    def __sklearn_tags__(self) -> Any:
        return self.unfitted().__sklearn_tags__()

    # -- what the model says -------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in FROM_MODEL and "model_" in vars(self):
            return getattr(self.model_, name)
        return object.__getattribute__(self, name)  # the error of what is not there

    def _has_class(self, y: Any) -> NDArray[np.bool_] | None:
        known: NDArray[np.bool_] | None = self.model_._has_class(y)
        return known

    def _log_prior(self) -> Floats:
        return np.asarray(self.model_._log_prior())

    def _class_margin(self) -> Floats:
        return np.asarray(self.model_._class_margin())

    def _explained_prior(self) -> Floats:
        return np.asarray(self.model_._explained_prior())

    def _contributions(self, batch: Batch, out: Floats) -> None:
        self.model_._contributions(batch, out)

    def _explained(self, X: Any) -> tuple[Floats, dict[str, int], Floats | None]:
        told: tuple[Floats, dict[str, int], Floats | None] = self.model_._explained(X)
        return told

    def _feature_names(self) -> tuple[str, ...]:
        return tuple(self.model_._feature_names())

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        drawn: dict[str, Any] = self.model_._drawn(codes, random)
        return drawn

    def _target_column(self, codes: NDArray[np.intp]) -> tuple[str, Any]:
        named: tuple[str, Any] = self.model_._target_column(codes)
        return named
