"""Leave-one-out by subtraction: which model is scored how without each row."""

from __future__ import annotations

from typing import Any

from fastbayes.classifiers.aode import AODE
from fastbayes.classifiers.left_out_average import LeftOutAverage
from fastbayes.classifiers.left_out_base import LeftOut
from fastbayes.classifiers.left_out_naive import LeftOutNaive
from fastbayes.classifiers.left_out_tree import LeftOutTree
from fastbayes.classifiers.naive_bayes import NaiveBayes
from fastbayes.classifiers.tree import TreeClassifier
from fastbayes.errors import SchemaError

# Model -> how its rows are scored without themselves.
KINDS: tuple[tuple[type[Any], type[Any]], ...] = (
    (NaiveBayes, LeftOutNaive),
    (TreeClassifier, LeftOutTree),
    (AODE, LeftOutAverage),
)


def left_out(model: Any) -> LeftOut:
    """Return what scores rows by a fitted model's counts without them."""
    result: LeftOut = kind_of(model)(model)
    return result


def kind_of(model: Any) -> type[Any]:
    """Return what would score rows without themselves, for a model that need not be fitted.

    Raises
    ------
    SchemaError
        When there is no such thing for this model.
    """
    for kind, made in KINDS:
        if isinstance(model, kind):
            return made
    raise SchemaError(
        "leave_one_out takes counts apart: it knows NaiveBayes, SPODE, TAN and AODE; k_fold "
        f"validates any classifier, {type(model).__name__} too"
    )
