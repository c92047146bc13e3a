"""What a model has learned about one column, as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.schema import Feature
from fastbayes.core.text_tables import ShortRepr, lines_of
from fastbayes.models.estimator.log_space import Floats

TELLING = 3  # values that say most


@dataclass(frozen=True, eq=False, repr=False)
class ColumnTable(ShortRepr):
    """What a model has learned about one column.

    Attributes
    ----------
    column
        Its name.
    says
        What the numbers are, such as "P(value | class)", or "P(value | class, sky)" where the
        column depends on another one.
    table
        An Arrow table. Of probabilities a line for each value (and value of each parent):
        `given_<parent>`, `value` (a bin as an interval, null where missing is a value), and for
        each class `proba_<class>`, smoothed, and `count_<class>`, rows or weights. Of numbers a
        line for each class: `class`, `mean`, `standard_deviation`, the `rows` that these are of,
        and `missing`, the share of rows in which the column is missing (null where that was not
        counted). Of coefficients what `coefficients()` has.
    missing
        Share of the rows in which the column is missing; None where that was not counted.
    telling
        The values that say most: `value`, `class`, and `log_ratio`, ln P(v | c) / P(v) in nats;
        none of numbers.
    """

    column: str
    says: str
    table: pa.Table
    missing: float | None = None
    telling: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values for JSON."""
        return {
            "column": self.column,
            "says": self.says,
            "missing": self.missing,
            "telling": [*self.telling],
            "lines": self.table.to_pylist(),
        }

    def __str__(self) -> str:
        known = "" if not self.missing else f", missing in {self.missing:.3g} of the rows"
        return "\n".join([f"{self.column}: {self.says}{known}", "", *lines_of(self.table)])


class Distribution(NamedTuple):
    """Probabilities of the values of a column within each class, for each value of its parents.

    parents      places of the parents among the features
    probability  (S_parent, ..., S_j, n_classes); one more value where missing is one
    counts       of the same shape
    note         what to know of it, in words
    """

    parents: tuple[int, ...]
    probability: Floats
    counts: NDArray[Any]
    note: str = ""


class ClassNumbers(NamedTuple):
    """Mean and standard deviation of a column within each class, (n_classes,).

    says     what describes the numbers, in words
    rows     that mean and deviation are of
    missing  rows in which the column is missing; NaN where that was not counted
    """

    says: str
    mean: Floats
    deviation: Floats
    rows: NDArray[Any]
    missing: NDArray[Any]


def of_values(
    features: Sequence[Feature],
    place: int,
    found: Distribution,
    classes: NDArray[Any],
    *,
    margin: Floats,
    class_counts: NDArray[Any],
    missing: NDArray[Any],
) -> ColumnTable:
    """Return the table of a column of values.

    features      of the model, all of values where the column has parents
    place         of the column among them
    margin        (S_j, n_classes) P(value | class), the parents summed out
    class_counts  (n_classes,) rows of each class
    missing       (n_classes,) those in which the column is missing
    """
    shape = found.probability.shape[:-1]
    at = [axis.ravel() for axis in np.indices(shape)]
    axes = [*found.parents, place]
    columns: dict[str, Any] = {}
    for feature, states, codes in zip((features[i] for i in axes), shape, at, strict=True):
        name = "value" if feature is features[place] else f"given_{feature.name}"
        columns[name] = _values(feature, states).take(pa.array(codes))
    flat = found.probability.reshape(-1, len(classes))
    counts = np.asarray(found.counts).reshape(-1, len(classes))
    columns |= _by_class("proba", classes, flat) | _by_class("count", classes, counts)
    given = ", ".join(["class", *(features[p].name for p in found.parents)])
    says = f"P(value | {given})" + (f", {found.note}" if found.note else "")
    share = class_counts / max(float(class_counts.sum()), 1e-300)
    shown = _values(features[place], len(margin))
    return ColumnTable(
        features[place].name,
        says,
        pa.table(columns),
        _share(missing, class_counts),
        most_telling(shown.to_pylist(), classes, margin, share),
    )


def of_numbers(
    name: str, found: ClassNumbers, classes: NDArray[Any], class_counts: NDArray[Any]
) -> ColumnTable:
    """Return the table of a column of numbers."""
    with np.errstate(divide="ignore", invalid="ignore"):
        missing = np.where(class_counts > 0, found.missing / class_counts, np.nan)
    columns = {
        "class": classes,
        "mean": found.mean,
        "standard_deviation": found.deviation,
        "rows": found.rows,
        "missing": missing,
    }
    return ColumnTable(name, found.says, _table(columns), _share(found.missing, class_counts))


def of_classes(name: str, says: str, classes: NDArray[Any], **columns: Any) -> ColumnTable:
    """Return the table of a column of which a model knows one number, or some, of each class."""
    return ColumnTable(name, says, _table({"class": classes, **columns}))


def of_codes(
    name: str, values: Sequence[Any], classes: NDArray[Any], probability: Floats, counts: Floats
) -> ColumnTable:
    """Return the table of a column of an array, whose values are numbers; nothing is missing."""
    columns = {"value": pa.array(values)} | _by_class("proba", classes, probability)
    columns |= _by_class("count", classes, counts)
    rows = counts.sum(axis=0)
    share = rows / max(float(rows.sum()), 1e-300)
    telling = most_telling(values, classes, probability, share)
    return ColumnTable(name, "P(value | class)", pa.table(columns), 0.0, telling)


def most_telling(
    values: Sequence[Any], classes: NDArray[Any], margin: Floats, share: Floats
) -> tuple[dict[str, Any], ...]:
    """Return the values of largest |ln P(v | c) / P(v)|, each with the class of it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(margin) - np.log(margin @ share)[:, None]
    ratio[np.isnan(ratio) | (share == 0)] = 0.0
    size = np.abs(ratio)
    order = np.argsort(-size.max(axis=1, initial=0.0), kind="stable")[:TELLING].tolist()
    labels, best = classes.tolist(), size.argmax(axis=1) if size.size else size
    return tuple(
        {"value": values[v], "class": labels[best[v]], "log_ratio": float(ratio[v, best[v]])}
        for v in order
        if size[v, best[v]] > 0
    )


def _values(feature: Feature, states: int) -> pa.Array:
    """Return the values of a feature; null after them where missing is one."""
    assert feature.values is not None
    values = feature.values if feature.cuts is None else pa.array(feature.intervals, pa.string())
    if states > len(values):
        values = pa.concat_arrays([values, pa.nulls(states - len(values), values.type)])
    return values.slice(0, states)


def _by_class(start: str, classes: NDArray[Any], numbers: NDArray[Any]) -> dict[str, Any]:
    """Return a column of numbers (n, n_classes) for each class."""
    columns = np.ascontiguousarray(numbers.T)
    return {f"{start}_{c}": column for c, column in zip(classes.tolist(), columns, strict=True)}


def _table(columns: dict[str, Any]) -> pa.Table:
    return pa.table({name: pa.array(c, from_pandas=True) for name, c in columns.items()})


def _share(missing: NDArray[Any], class_counts: NDArray[Any]) -> float | None:
    total = float(class_counts.sum())
    lost = float(np.sum(missing))
    return None if not total or np.isnan(lost) else max(lost / total, 0.0)
