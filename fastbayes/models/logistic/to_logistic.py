"""Naive Bayes models as logistic regressions, with the same posteriors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Feature, Schema
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import Gaussians
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.statistics import ClassMoments, ValueCounts
from fastbayes.statistics.bundle import Statistics

if TYPE_CHECKING:
    from fastbayes.models.logistic.logistic import LogisticRegression


class LinearForm(NamedTuple):
    """A model that is linear in values and numbers, with the statistics it was read from."""

    statistics: Statistics
    coefficients: Coefficients


class ClassFacts(NamedTuple):
    """What a model of arrays says of classes.

    names      of the features
    classes    (n_classes,) labels
    counts     (n_classes,) rows, or sums of their weights
    log_prior  (n_classes,)
    smoothed   whether something was added to the counts of values
    """

    names: Sequence[str]
    classes: NDArray[Any]
    counts: Floats
    log_prior: Floats
    smoothed: bool


def logistic(model: Any, params: Mapping[str, Any]) -> LogisticRegression:
    """Return the fitted logistic regression that a fitted model is.

    model   A model that says how it is linear.
    """
    from fastbayes.models.logistic.logistic import Fit, LogisticRegression

    model._check_fitted()
    linear = model._linear()
    found = LogisticRegression(**params)
    names = linear.statistics.schema.names
    found._set_features(names if hasattr(model, "feature_names_in_") else None, len(names))
    return found._taking(Fit(linear.coefficients), linear.statistics)


def of_naive_bayes(
    model: Any, tables: Floats, offsets: NDArray[np.int64], normals: Gaussians
) -> LinearForm:
    """Return a naive Bayes model whose log odds are linear.

    model            A fitted `NaiveBayes`.
    tables, offsets  ln P(v | c), S_j + 2 rows of each categorical feature.

    Raises SchemaError when it is not: a column has another density or its own variance in each
    class, or a probability is 0.

    With mean_k = center + apart_k and a common variance, ln N(x; mean_k, variance) is
    apart_k/variance (x - center) - apart_k²/(2 variance), and a term that all classes share.
    """
    schema = model.schema_
    for feature in schema.numeric:
        if (kind := model.numeric_[feature.name]) != "gaussian":
            raise SchemaError(
                f"column {feature.name!r} has the density {kind!r}, whose log odds are not linear "
                "in the number; use numeric='gaussian' with variance='shared', or 'mdl', which "
                "cuts it"
            )
    half = normals.half_precision
    own = half.any(axis=1) & ((half != half[:, :1]).any(axis=1) | (model.variance == "per_class"))
    if own.any():
        refuse_variances(f"column {schema.numeric[int(own.argmax())].name!r}")
    _check_prior(model.class_log_prior_, schema.classes.to_pylist())
    if names := [f.name for f in schema.categorical]:
        parts, shown = np.split(tables, offsets[1:-1]), [_shown(f) for f in schema.categorical]
        check_tables(parts, names, shown, schema.classes.to_pylist(), model.alpha_ > 0)
        if schema.missing == "category":
            # A missing value that occurs is a value, the last one, of a logistic regression.
            more = (model.statistics_.values.missing != 0).any(axis=1)
            parts = [table[[*range(len(table)), *[-1] * one]] for table, one in
                     zip(parts, more.tolist(), strict=True)]  # fmt: skip
            tables, offsets = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    center = normals.mean.mean(axis=1)
    apart = (normals.mean - center[:, None]) + normals.rest
    half = half[:, :1]
    coefficients = Coefficients.of(
        *(model.class_log_prior_, tables, offsets, center),
        slope=2 * half * apart,
        level=-half * apart**2,
        common=np.concatenate([[-(half[:, 0] * center**2).sum()], 2 * half[:, 0] * center]),
    )
    return LinearForm(model.statistics_, coefficients)


def of_categories(
    facts: ClassFacts,
    tables: Sequence[Floats],
    counts: Sequence[Floats],
    above: float | None = None,
) -> LinearForm:
    """Return naive Bayes over codes 0, 1, ... as a linear model.

    tables  (S_j, n_classes) ln P(v | c) of each feature.
    counts  (S_j, n_classes) of each feature.
    above   The two codes say whether a number is above this threshold; None: codes are values.
    """
    labels = facts.classes.tolist()
    _check_prior(facts.log_prior, labels)
    check_tables(tables, facts.names, [range(len(t)) for t in tables], labels, facts.smoothed)
    features = [
        Feature(name, "categorical", pa.array(range(len(table)), pa.int64()))
        if above is None
        else Feature.binned(name, [above])
        for name, table in zip(facts.names, tables, strict=True)
    ]
    # Missing and unseen values add nothing.
    rows = [np.pad(table, ((0, 2), (0, 0))) for table in tables]
    numbers = np.empty(0), np.empty((0, len(labels)))
    offsets = np.cumsum([0, *map(len, rows)])
    coefficients = Coefficients.of(facts.log_prior, np.concatenate(rows), offsets, *numbers)
    return LinearForm(_statistics(facts, features, counts), coefficients)


def of_weights(facts: ClassFacts, weights: Floats, level: Floats | None = None) -> LinearForm:
    """Return a model whose log joint is log_prior + weights x, with a level for each feature.

    weights, level  (n_features, n_classes).

    Its statistics know the classes, and nothing of the numbers.
    """
    labels = facts.classes.tolist()
    _check_prior(facts.log_prior, labels)
    for table in (weights,) if level is None else (weights, level):
        check_tables([row[None] for row in table], facts.names, None, labels, facts.smoothed)
    features = [Feature(name, "numeric") for name in facts.names]
    nothing = np.empty((0, len(labels))), np.zeros(1, np.int64)
    center = np.zeros(len(facts.names))
    coefficients = Coefficients.of(facts.log_prior, *nothing, center, weights, level)
    return LinearForm(_statistics(facts, features, ()), coefficients)


def refuse_variances(where: str) -> NoReturn:
    """Raise SchemaError: each class has a variance of its own."""
    raise SchemaError(
        f"{where}: each class has a variance of its own, which makes the log odds quadratic in the "
        "number; a logistic regression is linear: use NaiveBayes(variance='shared')"
    )


def check_tables(
    tables: Sequence[Floats],
    names: Sequence[str],
    values: Sequence[Sequence[Any]] | None,
    labels: Sequence[Any],
    smoothed: bool,
) -> None:
    """Raise SchemaError where a probability is 0, or may be as nothing is added to the counts.

    tables    (any, n_classes) of each feature.
    values    What stands in the rows of each table; None where that is the feature itself.
    smoothed  Whether something was added to the counts.
    """
    remedy = "no coefficient is infinite: fit with alpha > 0"
    for j, (name, table) in enumerate(zip(names, tables, strict=True)):
        if np.isfinite(table).all():
            continue
        row, c = (int(at) for at in np.argwhere(~np.isfinite(table))[0])
        value = "" if values is None else f", value {values[j][row]!r}"
        raise SchemaError(
            f"column {name!r}{value}: the probability within class {labels[c]!r} is 0 or 1, and "
            f"{remedy}"
        )
    if not smoothed:
        raise SchemaError(
            f"alpha=0 gives what was never seen with a class the probability 0, and {remedy}"
        )


def _check_prior(log_prior: Floats, labels: Sequence[Any]) -> None:
    if not np.isfinite(log_prior).all():
        label = labels[int(np.isneginf(log_prior).argmax())]
        raise SchemaError(
            f"class {label!r} has the prior 0, and no intercept is infinite: leave it out of "
            "`classes`, or give it a `class_prior` above 0"
        )


def _shown(feature: Feature) -> list[Any]:
    """Return what stands in the rows of a feature's table."""
    assert feature.values is not None
    known = feature.values.to_pylist() if feature.cuts is None else feature.intervals
    return [*known, None, "an unseen one"]


def _statistics(
    facts: ClassFacts, features: Sequence[Feature], counts: Sequence[Floats]
) -> Statistics:
    """Return what is known of classes and of values."""
    schema = Schema("class", pa.array(facts.classes), tuple(features))
    values = ValueCounts(schema.shape, weighted=True)
    values.class_counts[:] = facts.counts
    for j, some in enumerate(counts):
        values.of(j)[:] = some
    return Statistics(schema, {"values": values, "moments": ClassMoments(schema.shape)})
