"""Methods that a class, a model before it is fitted, or one of a model does not have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, cast


def unavailable(reason: str) -> Any:
    """Return what stands for an inherited method that a class cannot have, in its body.

    Asking for it, of the class or of a model, is an AttributeError that gives the reason, which
    says what to use instead.
    """
    return _Absent(reason)


def of_posteriors(name: str) -> tuple[Any, Any]:
    """Return what stands for `log_evidence` and `sample` in a model of P(c | x) alone."""
    says = f"{name} models P(c | x), not P(x): there is "
    lacks = "no evidence", "nothing to draw rows from"
    evidence, sample = (unavailable(f"{says}{what}; use NaiveBayes") for what in lacks)
    return evidence, sample


class _Absent:
    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(self._reason)


class _Where:
    """A method that a model has under a condition; the class shows it as a function."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.__func__ = method  # as other wrappers of functions have it
        functools.update_wrapper(cast("Any", self), method)

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.__func__
        self._check(instance)
        return MethodType(self.__func__, instance)

    def _check(self, model: Any) -> None:
        """Raise AttributeError where a model does not have the method."""
        raise NotImplementedError


class when_fitted(_Where):
    """A method that only a fitted model has."""

    def _check(self, model: Any) -> None:
        model._check_fitted()


class where_inner(_Where):
    """A method that a meta-estimator has if the class of its model has it, by default naive Bayes.

    Of another the AttributeError is that of the model.
    """

    def _check(self, model: Any) -> None:
        if model.model is not None:
            getattr(type(model.model), self.__func__.__name__)
