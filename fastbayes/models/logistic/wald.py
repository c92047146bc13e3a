"""Standard errors and Wald intervals of a logistic regression."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, warn
from fastbayes.core.layout import Layout
from fastbayes.core.schema import Feature, Schema
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.logistic.information import MOST, information_of
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.models.logistic.logistic_fit import penalty_of
from fastbayes.scan.packed_rows import Reading
from fastbayes.statistics.bundle import Statistics


def check_wald(layout: Layout, *, first: bool) -> None:
    """Raise DataError where there can be no standard errors.

    first   Whether these are all rows so far.
    """
    if not first:
        raise DataError(
            "standard_errors=True needs all rows at once: use fit, or set it to False for more "
            "batches"
        )
    size = layout.n_rows * layout.n_outputs
    if size > MOST:
        raise DataError(
            f"standard_errors=True inverts a matrix of the squared number of coefficients, and "
            f"there are {size:,}, more than {MOST:,}: leave columns of many values out, or fit "
            "without standard errors"
        )


def observed(
    model: Any, reading: Reading, coefficients: Coefficients, stats: Statistics
) -> tuple[Floats, NDArray[np.int64] | None]:
    """Return the second derivatives of the objective, and the values that others are held against.

    model         Whose penalty it has; "l2" tells the values of a column apart: no references.
    """
    found = information_of(reading, coefficients)
    layout, values = reading.layout, stats.values
    references = None
    if model._penalty == "l2":
        every = np.arange(layout.n_rows)
        penalty = penalty_of(layout, 1 / model.C, 2, standardize=model.standardize)[:, 0]
        for output in range(layout.n_outputs):
            found[output, output, every, every] += penalty
    else:
        # The value that most rows have, the first of equals, -1 where there is none.
        counted = [values.of(j).sum(axis=1) for j in range(len(layout.sizes))]
        references = np.array([n.argmax() if len(n) else -1 for n in counted], np.int64)
    return found, references


# Curvature below this share of the largest, in units of each coefficient's own, is rounding.
FLAT = 1e-11
# How much of a contrast may lie where there is no curvature.
OUTSIDE = 1e-6


@dataclass(frozen=True)
class Contrast:
    """One line of the table: a sum of coefficients.

    feature    The column, or two as a:b.
    value      Of the column; None of a number.
    reference  Value that it is compared with, None where it stands for itself.
    parts      What a coefficient counts, by its row in the layout.
    """

    feature: str
    value: str | None
    reference: str | None
    parts: dict[int, float]


def contrasts(
    schema: Schema, layout: Layout, references: Sequence[int] | None
) -> Iterator[Contrast]:
    """Yield the intercept, then what each value, number and pair of values adds.

    references  The value of each categorical feature that the others are compared with: then a
                value is a row of it and of references less a row of references, a pair what it adds
                beyond both its values, and the intercept a row of references and zeros; -1 of a
                feature without values. None for coefficients as they are.
    """
    rows, features = layout.rows, schema.categorical
    places: dict[tuple[int, ...], int] = {(j,): at for j, at in enumerate(rows.values.tolist())}
    for pair, first in zip(layout.pairs, rows.pairs.tolist(), strict=True):
        places[pair] = first

    def at(some: tuple[int, ...], codes: Mapping[int, int]) -> int:
        """Return the row of these values of some features."""
        place = 0
        for j in some:
            place = place * int(layout.sizes[j]) + codes[j]
        return places[some] + place

    def moved(codes: Mapping[int, int]) -> dict[int, float]:
        """Return what a row of zeros and references has, but for some of its values."""
        found = {rows.intercept: 1.0}
        found |= dict(enumerate((-layout.center / layout.scale).tolist(), rows.numeric))
        if references is not None:
            of = {**dict(enumerate(references)), **codes}
            known = (some for some in places if all(of[j] >= 0 for j in some))
            found |= {at(some, of): 1.0 for some in known}
        return found

    def added(codes: Mapping[int, int]) -> dict[int, float]:
        """Return what values add to references beyond what each of them adds by itself."""
        if references is None:
            return {at(tuple(codes), codes): 1.0}
        found: dict[int, float] = {}
        for n in range(len(codes), -1, -1):
            for some in itertools.combinations(codes.items(), n):
                for place, by in moved(dict(some)).items():
                    found[place] = found.get(place, 0.0) + by * (-1) ** (len(codes) - n)
        return {place: by for place, by in found.items() if by}

    def lines(some: tuple[int, ...]) -> Iterator[Contrast]:
        name = ":".join(features[j].name for j in some)
        shown = [texts_of(features[j], int(layout.sizes[j])) for j in some]
        base = None if references is None else [references[j] for j in some]
        for codes in itertools.product(*(range(len(texts)) for texts in shown)):
            if base is None or all(v != own for v, own in zip(codes, base, strict=True)):
                value, reference = (
                    None if of is None else ":".join(t[v] for t, v in zip(shown, of, strict=True))
                    for of in (codes, base)
                )
                yield Contrast(name, value, reference, added(dict(zip(some, codes, strict=True))))

    yield Contrast("(intercept)", None, None, moved({}))
    categorical, numbers = itertools.count(), itertools.count()
    for feature in schema.features:
        if feature.kind == "numeric":
            j = next(numbers)
            yield Contrast(feature.name, None, None, {rows.numeric + j: 1 / layout.scale[j]})
        else:
            yield from lines((next(categorical),))
    for pair in layout.pairs:
        yield from lines(pair)


def texts_of(feature: Feature, size: int) -> list[str]:
    """Return what has a coefficient as text: the values, and a missing one where that is one."""
    assert feature.values is not None
    found = feature.intervals or [str(value) for value in feature.values.to_pylist()]
    return [*found, *["(missing)"] * (size - len(found))]


class Covariance:
    """The inverse of an information matrix, where it has one.

    hessian  (n_outputs, n_outputs, n_rows, n_rows).

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

        outputs  (n_outputs,) what each output counts.
        rows     (n, n_rows) what each coefficient counts.
        """
        sums = (outputs[:, None] * rows[:, None]).reshape(len(rows), -1) * self._unit
        length = np.sqrt((sums**2).sum(axis=1))
        outside = np.sqrt(((sums @ self._flat) ** 2).sum(axis=1))
        found = np.sqrt(((sums @ self._root) ** 2).sum(axis=1))
        return np.where(outside <= OUTSIDE * length, found, np.nan)


def wald_table(
    c: Coefficients,
    layout: Layout | None,
    hessian: Floats | None,
    known: NDArray[np.int64] | None,
    schema: Schema,
    level: float,
) -> pa.Table:
    """Return coefficients, with Wald intervals where there is their information.

    layout   Where they stood when they were fitted.
    hessian  (n_outputs, n_outputs, n_rows, n_rows) of what was minimised, None for no intervals.
    known    References as in `contrasts`: classes are then compared with the first one, else with
             their mean.

    Raises ValueError when the level is not between 0 and 1.
    """
    if not (isinstance(level, (float, np.number)) and 0 < level < 1):
        raise ValueError(f"level={level!r}: use a number between 0 and 1, such as 0.95")
    if layout is None or hessian is None:
        layout = c.layout()
    references = None if known is None else known.tolist()
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
    theta = c.theta(layout) + c.shared(layout)
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
