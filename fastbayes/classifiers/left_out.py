"""Leave-one-out by subtraction: which model is scored how without each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastbayes.classifiers.aode import AODE
from fastbayes.classifiers.base import Classifier
from fastbayes.classifiers.gaussian import GaussianBayes
from fastbayes.classifiers.joint import JointBayes
from fastbayes.classifiers.joint_gaussian import JointGaussian
from fastbayes.classifiers.kdb import KDB
from fastbayes.classifiers.left_out_average import LeftOutAverage
from fastbayes.classifiers.left_out_base import LeftOut
from fastbayes.classifiers.left_out_cells import LeftOutCells
from fastbayes.classifiers.left_out_graph import LeftOutGraph
from fastbayes.classifiers.left_out_joint import LeftOutJoint
from fastbayes.classifiers.left_out_naive import LeftOutNaive
from fastbayes.classifiers.left_out_network import LeftOutNetwork
from fastbayes.classifiers.left_out_quadratic import check_apart, left_out_gaussian_bayes
from fastbayes.classifiers.left_out_tree import LeftOutTree
from fastbayes.classifiers.naive_bayes import NaiveBayes
from fastbayes.classifiers.network import NetworkClassifier
from fastbayes.classifiers.tree import TreeClassifier
from fastbayes.errors import SchemaError
from fastbayes.statistics.bundle import Statistics

# Model -> how its rows are scored without themselves.
KINDS: tuple[tuple[type[Any], Callable[[Any], LeftOut]], ...] = (
    (NaiveBayes, LeftOutNaive),
    (TreeClassifier, LeftOutTree),
    (AODE, LeftOutAverage),
    (KDB, LeftOutNetwork),
    (GaussianBayes, left_out_gaussian_bayes),
    (JointBayes, LeftOutJoint),
    (JointGaussian, LeftOutCells),
    (NetworkClassifier, LeftOutGraph),
)


def left_out(model: Any, stats: Statistics) -> LeftOut:
    """Return what scores rows without themselves, by a model with these parameters.

    Parameters
    ----------
    model
        The model; it need not be fitted, and is left as it is.
    stats
        The statistics of the rows.

    Raises
    ------
    SchemaError
        When the model has no such thing, does not suit the statistics, or has to see rows to be
        fitted and was not.
    """
    kind_of(model)
    if getattr(model, "_reads_rows", False):
        _check_chosen(model, f"super_parent={model.super_parent!r}")
        like = model._with_parent(model.super_parent_)
        return taken_apart(like.fit_statistics(stats), chosen=True)
    like = type(model)(**model.get_params(deep=False))
    if getattr(model, "select", None) is None:
        return taken_apart(like.fit_statistics(stats))
    _check_chosen(model, f"select={model.select!r}")
    own = model.statistics_
    if stats.schema != own.schema or stats.values != own.values:
        raise SchemaError(
            f"the {type(model).__name__} selected its structure by other rows than those of the "
            "statistics: pass its own, model.statistics_"
        )
    return taken_apart(like._learned(own))


def _check_chosen(model: Any, how: str) -> None:
    if not hasattr(model, "classes_"):
        raise SchemaError(
            f"{how} is chosen by the rows: fit the model first, then leave_one_out keeps what it "
            "chose"
        )


def taken_apart(fitted: Any, *, chosen: bool = False) -> LeftOut:
    """Return what scores the rows that a model was fitted to, each without itself.

    Parameters
    ----------
    fitted
        The model.
    chosen
        Whether its super-parent was chosen by these rows and then given.

    Raises
    ------
    SchemaError
        When there is no such thing for this model.
    """
    result: LeftOut = kind_of(fitted)(fitted)
    by_rows = getattr(fitted, "_reads_rows", False) or getattr(fitted, "select", None)
    if (chosen or by_rows) and "structure" not in result.fixed:
        result.fixed = (*result.fixed, "structure")
    return result


def kind_of(model: Any) -> Callable[[Any], LeftOut]:
    """Return what would score rows without themselves, for a model that need not be fitted.

    Raises
    ------
    SchemaError
        When there is no such thing for this model.
    """
    if isinstance(model, type):
        raise SchemaError(f"leave_one_out takes a model, not a class: {model.__name__}()")
    if getattr(model, "smoothing", None) == "hdp":
        raise SchemaError(
            "smoothing='hdp' learns from all rows how much to smooth, and so does not come apart "
            "row by row; use k_fold, or smoothing='laplace'"
        )
    if isinstance(model, GaussianBayes):
        check_apart(model)
    for kind, made in KINDS:
        if isinstance(model, kind):
            return made
    name = type(model).__name__
    instead = (
        f"k_fold validates any classifier, {name} too"
        if isinstance(model, Classifier)
        else f"use scikit-learn's cross_val_predict for {name}"
    )
    raise SchemaError(
        "leave_one_out takes counts apart: it knows NaiveBayes, SPODE, TAN, KDB, AODE, "
        f"GaussianBayes, JointBayes, JointGaussian and NetworkClassifier; {instead}"
    )
