"""What a user of Gaussian Bayes is told: which columns are none for it, what was done to a fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Feature

MOST = 5  # names that are listed


def refuse(feature: Feature, *, void: bool) -> None:
    """Raise SchemaError for a column that is no number, or holds no value at all."""
    if void:
        raise SchemaError(
            f"column {feature.name!r} holds no value at all; leave it out, or cast it to a number"
        )
    raise SchemaError(
        f"column {feature.name!r} is categorical, but GaussianBayes takes numbers alone: leave it "
        "out (columns=), cast it to a number, or use JointGaussian or NaiveBayes, which take both"
    )


def what_was_done(model: Any, floored: NDArray[np.bool_], unknown: Sequence[Any]) -> Iterator[str]:
    """Yield what was done to a fitted `GaussianBayes` so that there are densities.

    Parameters
    ----------
    model
        The model.
    floored
        (n_classes, p) where a variance was raised.
    unknown
        Labels of classes none of whose rows is complete.
    """
    classes = model.classes_.tolist()
    if model.singular_:
        whose = "all classes together"
        if model.covariance != "tied":
            whose = listed("class", model.singular_)
        at = [classes.index(label) for label in model.singular_]
        shares = sorted({f"{share:.3g}" for share in model.shrinkage_[at].tolist()}, key=float)
        how = "its correlations were dropped"
        if model.singular == "shrink" or model.prior is not None:
            most = f" to {shares[-1]}" if len(shares) > 1 else ""
            how = f"it was shrunk towards its diagonal by {shares[0]}{most}"
        yield (
            f"the covariance of {whose} is singular, for it has too few rows or columns that "
            f"depend on each other: {how}"
        )
    if model.variance_floored_:
        columns = listed("column", model.variance_floored_)
        where = listed("class", named(classes, floored.any(axis=1)))
        yield (
            f"{columns} hardly varies within {where}: the variance was raised to "
            f"var_floor={model.var_floor:g} of the overall one"
        )
    if unknown:
        yield (
            f"{listed('class', unknown)} has no row without a missing value: it has the mean and "
            "the covariance of all"
        )


def named(names: Sequence[Any], which: Any) -> list[Any]:
    """Return the names that are marked."""
    return [name for name, hit in zip(names, which, strict=True) if hit]


def listed(noun: str, names: Sequence[Any]) -> str:
    """Return a noun and the first of its names."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{noun} {', '.join(map(repr, names[:MOST]))}{more}"
