"""Leave-one-out by subtraction: which model is scored how without each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastbayes.core.errors import SchemaError
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.loo_base import LooScorer
from fastbayes.models.estimator.protocol import as_counted, fresh
from fastbayes.models.estimator.store import packed, unpacked
from fastbayes.models.leave_one_out.loo_quadratic import check_apart
from fastbayes.models.numeric.gaussian import GaussianBayes
from fastbayes.models.registry import MODELS
from fastbayes.statistics.bundle import Statistics


def unfitted_loo_scorer(model: Any, stats: Statistics) -> LooScorer:
    """Return what scores rows without themselves, by a model with these parameters.

    The model need not be fitted, and is left as it is; the statistics are those of the rows. Raises
    SchemaError when it has no such thing, does not suit them, or has to see rows to be fitted and
    was not.
    """
    kind_of(model)
    own = getattr(model, "statistics_", None) is stats
    if getattr(model, "_reads_rows", False):
        _check_chosen(model, f"super_parent={model.super_parent!r}")
        like = model._with_parent(model.super_parent_)
        like = as_counted(like) if own else like
        return loo_scorer(like.fit_statistics(stats), chosen=True)
    like = as_counted(fresh(model)) if own else fresh(model)
    if getattr(model, "select", None) is None:
        return loo_scorer(like.fit_statistics(stats))
    _check_chosen(model, f"select={model.select!r}")
    counted = model.statistics_
    if stats.schema != counted.schema or stats.values != counted.values:
        raise SchemaError(
            f"the {type(model).__name__} selected its structure by other rows than those of the "
            "statistics: pass its own, model.statistics_"
        )
    return loo_scorer(like._learned(counted))


def _check_chosen(model: Any, how: str) -> None:
    if not hasattr(model, "classes_"):
        raise SchemaError(
            f"{how} is chosen by the rows: fit the model first, then leave_one_out keeps what it "
            "chose"
        )


def loo_scorer(fitted: Any, *, chosen: bool = False) -> LooScorer:
    """Return what scores the rows that a model was fitted to, each without itself.

    `chosen` says whether its super-parent was chosen by these rows and then given.
    """
    result: LooScorer = kind_of(fitted)(fitted)
    by_rows = getattr(fitted, "_reads_rows", False) or getattr(fitted, "select", None)
    if (chosen or by_rows) and "structure" not in result.fixed:
        result.fixed = (*result.fixed, "structure")
    if any(feature.cuts is not None for feature in fitted.schema_.features):
        result.fixed = (*result.fixed, "cut points")
    result.remade = lambda: (_remade, (*packed(fitted), chosen))
    return result


def _remade(cls: type, data: bytes, chosen: bool) -> LooScorer:
    return loo_scorer(unpacked(cls, data), chosen=chosen)


def kind_of(model: Any) -> Callable[[Any], LooScorer]:
    """Return what would score rows without themselves, or raise SchemaError where nothing does."""
    if isinstance(model, type):
        raise SchemaError(f"leave_one_out takes a model, not a class: {model.__name__}()")
    if getattr(model, "smoothing", None) == "hdp":
        raise SchemaError(
            "smoothing='hdp' learns from all rows how much to smooth, and so does not come apart "
            "row by row; use k_fold, or smoothing='laplace'"
        )
    if isinstance(model, GaussianBayes):
        check_apart(model)
    known = [entry for entry in MODELS.values() if entry.loo]
    # The nearest class that has one: a subclass may have its own.
    having = {entry.load(): entry for entry in known}
    for cls in type(model).__mro__:
        if cls in having:
            return having[cls].loo_scorer()
    name = type(model).__name__
    instead = (
        f"k_fold validates any classifier, {name} too"
        if isinstance(model, Classifier)
        else f"use scikit-learn's cross_val_predict for {name}"
    )
    raise SchemaError(
        "leave_one_out takes counts apart: it knows "
        f"{', '.join(entry.cls for entry in known[:-1])} and {known[-1].cls}; {instead}"
    )
