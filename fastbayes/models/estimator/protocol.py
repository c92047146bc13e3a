"""scikit-learn's estimator protocol, followed by duck typing: scikit-learn is never required."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import SchemaError, not_fitted, refuse
from fastbayes.models.estimator.inputs import check_labels, check_length, check_weight, split_target
from fastbayes.models.estimator.parameters import HasParameters, fitted

UNCHANGED = "$UNCHANGED$"  # the value of sklearn.utils.metadata_routing.UNCHANGED


class Estimator(HasParameters):
    """What every classifier shares with scikit-learn's: parameters, tags, routing, `score`.

    A subclass declares its parameters, sets the class attributes below where they differ, and
    gives `fit` and `predict`. It is fitted when it has `classes_`.
    """

    _estimator_type: ClassVar[str] = "classifier"
    _allow_nan: ClassVar[bool] = False  # missing numbers are welcome
    _accept_sparse: ClassVar[bool] = False  # scipy's sparse matrices are welcome
    _positive_only: ClassVar[bool] = False  # negative values are refused
    _categorical: ClassVar[bool] = False  # cells are category codes
    _flags_are_numbers: ClassVar[bool] = False  # an array of truth values is one of 0 and 1
    _poor_score: ClassVar[bool] = False  # scikit-learn's common data are not its kind of data

    predict: ClassVar[Callable[..., NDArray[Any]]]

    n_features_in_: int = fitted("Number of features.")
    feature_names_in_: NDArray[Any] = fitted("Their names, where they have any.")

    # -- parameters ----------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters and their values.

        Parameters
        ----------
        deep
            Accepted for scikit-learn; no parameter is an estimator.

        Returns
        -------
        dict
            Value by parameter name.
        """
        return {name: getattr(self, name) for name in self._declared}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; nothing is validated before `fit`.

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
            When a name is not a parameter; nothing is set then.
        """
        valid = list(self._declared)
        for name in params:
            if name not in valid:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {type(self).__name__}. "
                    f"Valid parameters are: {valid!r}."
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def _check_parameters(self) -> None:
        """Raise ValueError where a parameter cannot be used."""
        for name, parameter in self._declared.items():
            parameter.validate(name, getattr(self, name))

    def __repr__(self) -> str:
        given = []
        for name, parameter in self._declared.items():
            value = getattr(self, name, parameter.default)
            if value is not parameter.default and repr(value) != repr(parameter.default):
                given.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(given)})"

    # -- scikit-learn asks ---------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(poor_score=self._poor_score),
            input_tags=InputTags(
                allow_nan=self._allow_nan,
                sparse=self._accept_sparse,
                positive_only=self._positive_only,
                categorical=self._categorical,
            ),
        )

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            kind = type(self)
            raise not_fitted(kind.__name__, statistics=hasattr(kind, "fit_statistics"))

    def _set_features(self, names: Any, n_features: int) -> None:
        """Set `n_features_in_`, and `feature_names_in_` where there are names."""
        self.n_features_in_ = n_features
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif "feature_names_in_" in vars(self):
            del self.feature_names_in_

    # -- metadata routing ----------------------------------------------------------------------

    def get_metadata_routing(self) -> Any:
        """Return which metadata (`sample_weight`, `classes`) the methods ask a router for.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRequest
            The requests, a copy.
        """
        from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

        if "_metadata_request" in vars(self):
            return get_routing_for_object(self._metadata_request)
        requests = MetadataRequest(owner=self)
        for method in ("fit", "partial_fit", "score"):
            function = getattr(type(self), method, None)
            for name in inspect.signature(function).parameters if function else ():
                if name not in ("self", "X", "y"):
                    getattr(requests, method).add_request(param=name, alias=None)
        return requests

    def _request(self, method: str, aliases: Mapping[str, bool | str | None]) -> Self:
        from sklearn import get_config

        if not get_config()["enable_metadata_routing"]:
            raise RuntimeError(
                "This method is only available when metadata routing is enabled. You can enable "
                "it using sklearn.set_config(enable_metadata_routing=True)."
            )
        requests = self.get_metadata_routing()
        for name, alias in aliases.items():
            if alias != UNCHANGED:
                getattr(requests, method).add_request(param=name, alias=alias)
        self._metadata_request = requests
        return self

    def set_fit_request(self, *, sample_weight: bool | str | None = UNCHANGED) -> Self:
        """Ask scikit-learn's routers to pass `sample_weight` to `fit`.

        Parameters
        ----------
        sample_weight
            True, False, None (a router then refuses it), or the name it has for the router.

        Returns
        -------
        Self
            The estimator.
        """
        return self._request("fit", {"sample_weight": sample_weight})

    def set_partial_fit_request(
        self,
        *,
        classes: bool | str | None = UNCHANGED,
        sample_weight: bool | str | None = UNCHANGED,
    ) -> Self:
        """Ask scikit-learn's routers to pass `classes` or `sample_weight` to `partial_fit`.

        Parameters
        ----------
        classes, sample_weight
            True, False, None (a router then refuses it), or the name it has for the router.

        Returns
        -------
        Self
            The estimator.
        """
        return self._request("partial_fit", {"classes": classes, "sample_weight": sample_weight})

    def set_score_request(self, *, sample_weight: bool | str | None = UNCHANGED) -> Self:
        """Ask scikit-learn's routers to pass `sample_weight` to `score`.

        Parameters
        ----------
        sample_weight
            True, False, None (a router then refuses it), or the name it has for the router.

        Returns
        -------
        Self
            The estimator.
        """
        return self._request("score", {"sample_weight": sample_weight})

    # -- answers -------------------------------------------------------------------------------

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows whose class is predicted, weighted if asked.

        Parameters
        ----------
        X
            Rows, (n_rows, n_features).
        y
            True classes, (n_rows,), or the name of a column of X.
        sample_weight
            Weights, (n_rows,).

        Returns
        -------
        float
            Accuracy between 0 and 1.
        """
        self._check_fitted()
        refuse(
            isinstance(sample_weight, str),
            f"sample_weight={sample_weight!r} is a name: score takes the weights themselves",
            SchemaError,
        )
        X, y = split_target(X, y)
        predicted = self.predict(X)
        known = self._has_class(y)
        if known is not None:
            check_length(predicted, known)
            y, predicted = np.asarray(y)[known], predicted[known]
            sample_weight = None if sample_weight is None else np.asanyarray(sample_weight)[known]
        truth = check_labels(self, y, predicted)
        check_length(predicted, truth)
        weight = check_weight(sample_weight, len(truth))
        return float(np.average(predicted == truth, weights=weight))

    def _has_class(self, y: Any) -> NDArray[np.bool_] | None:
        """Return where a row has a class, None where all have or must have one."""
        return None


M = TypeVar("M", bound=Estimator)


def fresh(model: M, **changed: Any) -> M:
    """Return an unfitted model with the same parameters, but for those that are changed."""
    return type(model)(**{**model.get_params(deep=False), **changed})


def as_counted(model: Any) -> Any:
    """Clear the options by which an unfitted model chooses columns, and return it.

    Its statistics were counted by these options, which they cannot be asked for again.
    """
    options = ("columns", "exclude", "categorical")
    return model.set_params(**{n: None for n in model.get_params(deep=False) if n in options})
