"""Standard errors, Wald intervals and odds ratios of the coefficients of a logistic regression."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core.layout import Layout
from fastbayes.core.schema import Feature, Schema
from fastbayes.core.warn import warn
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.models.logistic.logistic_model import Fit

# Curvature below this share of the largest, in units of each coefficient's own, is rounding.
FLAT = 1e-11
# How much of a contrast may lie where there is no curvature.
OUTSIDE = 1e-6


def wald_table(fit: Fit, schema: Schema, level: float) -> pa.Table:
    """Return the coefficients of a fit, with their Wald intervals where there can be.

    Parameters
    ----------
    fit
        Of a model.
    schema
        Its columns and classes.
    level
        Probability of an interval.
    """
    c, layout = fit.coefficients, fit.layout
    if layout is None or fit.information is None:
        k, ones = len(c.prior), np.ones(len(c.center))
        layout = Layout.of(c.sizes, k, center=c.center, scale=ones, pairs=c.pairs)
    references = None if fit.references is None else fit.references.tolist()
    return coefficient_table(
        c, schema, layout, hessian=fit.information, references=references, level=level
    )


@dataclass(frozen=True)
class Contrast:
    """One line of the table: a sum of coefficients.

    Parameters
    ----------
    feature
        The column, or two as a:b.
    value
        Of the column; None of a number.
    reference
        Value that it is compared with, None where it stands for itself.
    parts
        What a coefficient counts, by its row in the layout.
    """

    feature: str
    value: str | None
    reference: str | None
    parts: dict[int, float]


def contrasts(
    schema: Schema, layout: Layout, references: Sequence[int] | None
) -> Iterator[Contrast]:
    """Yield the intercept, then what each value, number and pair of values adds.

    Parameters
    ----------
    schema
        Columns.
    layout
        Where the coefficients stand.
    references
        The value of each categorical feature that the others are compared with: then a value is a
        row of it and of references less a row of references, a pair what it adds beyond both its
        values, and the intercept a row of references and zeros; -1 of a feature without values.
        None for coefficients as they are.
    """
    rows, features = layout.rows, schema.categorical

    def moved(codes: Mapping[int, int]) -> dict[int, float]:
        """Return what a row of zeros and references has, but for some of its values."""
        found = {rows.intercept: 1.0}
        found |= dict(enumerate((-layout.center / layout.scale).tolist(), rows.numeric))
        if references is not None:
            of = [codes.get(j, code) for j, code in enumerate(references)]
            for at, code in zip(rows.values.tolist(), of, strict=True):
                if code >= 0:
                    found[at + code] = 1.0
            for at, (a, b) in zip(rows.pairs.tolist(), layout.pairs, strict=True):
                if of[a] >= 0 and of[b] >= 0:
                    found[at + of[a] * int(layout.sizes[b]) + of[b]] = 1.0
        return found

    base = moved({})
    yield Contrast("(intercept)", None, None, base)
    categorical, numbers = itertools.count(), itertools.count()
    for feature in schema.features:
        if feature.kind == "numeric":
            j = next(numbers)
            yield Contrast(feature.name, None, None, {rows.numeric + j: 1 / layout.scale[j]})
            continue
        j = next(categorical)
        shown = told(feature, int(layout.sizes[j]))
        for v, value in enumerate(shown):
            if references is None:
                yield Contrast(feature.name, value, None, {int(rows.values[j]) + v: 1.0})
            elif v != references[j]:
                yield Contrast(feature.name, value, shown[references[j]], less(moved({j: v}), base))
    for at, (a, b) in zip(rows.pairs, layout.pairs, strict=True):
        name = f"{features[a].name}:{features[b].name}"
        first, second = (told(features[j], int(layout.sizes[j])) for j in (a, b))
        for v, w in np.ndindex(len(first), len(second)):
            value = f"{first[v]}:{second[w]}"
            if references is None:
                yield Contrast(name, value, None, {int(at) + v * len(second) + w: 1.0})
            elif v != references[a] and w != references[b]:
                reference = f"{first[references[a]]}:{second[references[b]]}"
                beyond = less(moved({a: v, b: w}), moved({a: v}))
                yield Contrast(name, value, reference, less(beyond, less(moved({b: w}), base)))


def less(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Return what is left of one sum of coefficients when another one is taken away."""
    found = {at: one.get(at, 0.0) - other.get(at, 0.0) for at in {**one, **other}}
    return {at: value for at, value in found.items() if value}


def told(feature: Feature, size: int) -> list[str]:
    """Return what has a coefficient as text: the values, and a missing one where that is one."""
    assert feature.values is not None
    found = feature.intervals or [str(value) for value in feature.values.to_pylist()]
    return [*found, *["(missing)"] * (size - len(found))]


class Covariance:
    """The inverse of an information matrix, where it has one.

    Parameters
    ----------
    hessian
        (n_outputs, n_outputs, n_rows, n_rows).

    Notes
    -----
    Coefficients are measured in units in which each has curvature 1; where a direction has none,
    sums of coefficients that lie along it have no variance.
    """

    def __init__(self, hessian: Floats) -> None:
        m, _, size, _ = hessian.shape
        whole = hessian.transpose(0, 2, 1, 3).reshape(m * size, m * size)
        diagonal = whole.diagonal()
        known = diagonal > 0
        self._unit = np.where(known, 1 / np.sqrt(np.where(known, diagonal, 1.0)), 1.0)
        curvature, axes = np.linalg.eigh(whole * self._unit * self._unit[:, None])
        flat = curvature <= FLAT * curvature.max(initial=0.0)
        self._flat = axes[:, flat]
        self._root = axes[:, ~flat] / np.sqrt(curvature[~flat])

    def deviations(self, outputs: Floats, rows: Floats) -> Floats:
        """Return the standard deviations of sums of coefficients, NaN of those without.

        Parameters
        ----------
        outputs
            (n_outputs,) what each output counts.
        rows
            (n, n_rows) what each coefficient counts.
        """
        sums = (outputs[:, None] * rows[:, None]).reshape(len(rows), -1) * self._unit
        length = np.sqrt((sums**2).sum(axis=1))
        outside = np.sqrt(((sums @ self._flat) ** 2).sum(axis=1))
        found = np.sqrt(((sums @ self._root) ** 2).sum(axis=1))
        return np.where(outside <= OUTSIDE * length, found, np.nan)


def coefficient_table(
    coefficients: Coefficients,
    schema: Schema,
    layout: Layout,
    *,
    hessian: Floats | None,
    references: Sequence[int] | None,
    level: float,
) -> pa.Table:
    """Return coefficients with their Wald intervals.

    Parameters
    ----------
    coefficients
        Of a model.
    schema
        Its columns and classes.
    layout
        Where the coefficients stand.
    hessian
        (n_outputs, n_outputs, n_rows, n_rows) of what was minimised; None for coefficients alone.
    references
        As in `contrasts`; classes are then compared with the first one, else with their mean.
    level
        Probability of an interval.

    Raises
    ------
    ValueError
        When the level is not between 0 and 1.
    """
    real = isinstance(level, (int, float, np.number)) and not isinstance(level, bool)
    if not (real and 0 < level < 1):
        raise ValueError(f"level={level!r}: use a number between 0 and 1, such as 0.95")
    lines = list(contrasts(schema, layout, references))
    m, n, labels = layout.n_outputs, len(lines), schema.classes
    of_outputs, classes = np.eye(m), np.arange(m)
    other: int | None = None
    if m == 1:
        classes, other = np.array([len(labels) - 1]), 0 if len(labels) > 1 else None
    elif references is not None:
        of_outputs, classes, other = of_outputs[1:] - of_outputs[0], classes[1:], 0
    elif hessian is not None:
        of_outputs = of_outputs - 1 / m
    theta = coefficients.theta(layout) + coefficients.shared(layout)
    line = np.repeat(np.arange(n), [len(one.parts) for one in lines])
    at = np.array([place for one in lines for place in one.parts], np.int64)
    counted = np.array([by for one in lines for by in one.parts.values()])
    value = np.concatenate(
        [np.bincount(line, counted * (theta[at] @ outputs), n) for outputs in of_outputs]
    )
    times = len(of_outputs)
    columns: dict[str, Any] = {
        "feature": [line.feature for line in lines] * times,
        "value": pa.array([line.value for line in lines] * times, pa.string()),
        "class": labels.take(pa.array(np.repeat(classes, n))),
        "reference": pa.array([line.reference for line in lines] * times, pa.string()),
        "reference_class": labels.take(pa.array([other] * (n * times), pa.int64())),
        "coefficient": value,
    }
    if hessian is not None:
        rows = np.zeros((n, layout.n_rows))
        rows[line, at] = counted
        covariance = Covariance(hessian)
        error = np.concatenate([covariance.deviations(outputs, rows) for outputs in of_outputs])
        columns |= _intervals(value, error, level)
        if np.isnan(error).any():
            # The intercept is one of them where columns are.
            gone = np.flatnonzero(np.isnan(error))[-1]
            warn(
                f"the rows do not tell the coefficients of {columns['feature'][gone]!r} from "
                "others: they have no standard error; leave a column out that follows from "
                "others, or use penalty='l2'"
            )
    with np.errstate(over="ignore"):
        columns["odds_ratio"] = np.exp(value)
        if hessian is not None:
            for end in ("lower", "upper"):
                columns[f"odds_ratio_{end}"] = np.exp(columns[end])
    return pa.table({name: pa.array(column, from_pandas=True) for name, column in columns.items()})


def _intervals(value: Floats, error: Floats, level: float) -> dict[str, Floats]:
    with np.errstate(divide="ignore", invalid="ignore"):
        z = value / error
    reach = NormalDist().inv_cdf(0.5 + level / 2) * error
    tails = np.array([math.erfc(abs(one) / math.sqrt(2)) for one in z])
    return {
        "standard_error": error,
        "z": z,
        "p_value": tails,
        "lower": value - reach,
        "upper": value + reach,
    }
