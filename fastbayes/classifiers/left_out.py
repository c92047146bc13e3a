"""Leave-one-out by subtraction: which model is scored how without each row."""

from __future__ import annotations

from typing import Any

from fastbayes.classifiers.aode import AODE
from fastbayes.classifiers.joint import JointBayes
from fastbayes.classifiers.kdb import KDB
from fastbayes.classifiers.left_out_average import LeftOutAverage
from fastbayes.classifiers.left_out_base import LeftOut
from fastbayes.classifiers.left_out_graph import LeftOutGraph
from fastbayes.classifiers.left_out_joint import LeftOutJoint
from fastbayes.classifiers.left_out_naive import LeftOutNaive
from fastbayes.classifiers.left_out_network import LeftOutNetwork
from fastbayes.classifiers.left_out_tree import LeftOutTree
from fastbayes.classifiers.naive_bayes import NaiveBayes
from fastbayes.classifiers.network import NetworkClassifier
from fastbayes.classifiers.tree import TreeClassifier
from fastbayes.errors import SchemaError
from fastbayes.statistics.bundle import Statistics

# Model -> how its rows are scored without themselves.
KINDS: tuple[tuple[type[Any], type[Any]], ...] = (
    (NaiveBayes, LeftOutNaive),
    (TreeClassifier, LeftOutTree),
    (AODE, LeftOutAverage),
    (KDB, LeftOutNetwork),
    (JointBayes, LeftOutJoint),
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
    params = model.get_params(deep=False)
    kind_of(model)
    if reads := getattr(model, "_reads_rows", False):
        if not hasattr(model, "classes_"):
            raise SchemaError(
                f"super_parent={model.super_parent!r} is chosen by the rows: fit the model first, "
                "then leave_one_out keeps its super-parent"
            )
        params["super_parent"] = model.super_parent_
    fitted = type(model)(**params).fit_statistics(stats)
    return taken_apart(fitted, chosen=reads)


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


def kind_of(model: Any) -> type[Any]:
    """Return what would score rows without themselves, for a model that need not be fitted.

    Raises
    ------
    SchemaError
        When there is no such thing for this model.
    """
    if getattr(model, "smoothing", None) == "hdp":
        raise SchemaError(
            "smoothing='hdp' learns from all rows how much to smooth, and so does not come apart "
            "row by row; use k_fold, or smoothing='laplace'"
        )
    for kind, made in KINDS:
        if isinstance(model, kind):
            return made
    raise SchemaError(
        "leave_one_out takes counts apart: it knows NaiveBayes, SPODE, TAN, KDB, AODE, "
        "JointBayes and NetworkClassifier; "
        f"k_fold validates any classifier, {type(model).__name__} too"
    )
