"""Which columns a model's answers come from: log odds, information, and the loss without each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch, Codes
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import Schema
from fastbayes.core.text_tables import ShortRepr, aligned, cell
from fastbayes.kernels.shared.nested import CLIP
from fastbayes.models.estimator.information import class_information
from fastbayes.models.estimator.inputs import (
    check_length,
    class_column,
    is_array,
    open_features,
    open_training,
    split_target,
)
from fastbayes.models.estimator.log_space import Floats, normalise
from fastbayes.models.estimator.protocol import as_counted
from fastbayes.models.estimator.smoothing import missing_as_value
from fastbayes.statistics.bundle import Statistics

# Numbers of contributions at a time: 32 MiB.
NUMBERS = 1 << 22
# Counts that without a column are those of a count without it.
BY_COLUMN = {"values", "moments", "pairs", "triples", "scatter", "sketches"}
NEEDS_ROWS = "needs rows: importance(data)"


@dataclass(frozen=True)
class ColumnImportance:
    """What one column does; None for what is not known, and `reason` says why.

    column             its name
    mean_log_odds      mean over rows of |ln P(x_j | a) - ln P(x_j | b)|, and over pairs of classes
    information        I(X_j; C) in nats, of the unsmoothed counts: those given, or the model's own
    log_loss_without   mean of -ln P(y | x) in nats of the model that is fitted without the column
    gain               that less the loss of the model with it
    """

    column: str
    mean_log_odds: float | None
    information: float | None
    log_loss_without: float | None
    gain: float | None
    reason: str


FIGURES = ("mean_log_odds", "information", "log_loss_without", "gain")


@dataclass(frozen=True, eq=False, repr=False)
class Importance(ShortRepr):
    """What each column of a model does, the one that speaks loudest first.

    Attributes
    ----------
    columns
        A `ColumnImportance` for each.
    rows
        Rows that were looked at, or counted.
    log_loss
        Mean of -ln P(y | x) over the rows with a class, in nats; None without such rows.
    """

    columns: tuple[ColumnImportance, ...]
    rows: float
    log_loss: float | None = None

    @property
    def table(self) -> pa.Table:
        """The figures as an Arrow table, a line a column, null for what is not known."""
        fields: dict[str, Any] = {"column": pa.string(), **dict.fromkeys(FIGURES, pa.float64())}
        fields["reason"] = pa.string()
        return pa.table(
            {n: pa.array([getattr(c, n) for c in self.columns], t) for n, t in fields.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values for JSON."""
        return {"rows": self.rows, "log_loss": self.log_loss, "columns": self.table.to_pylist()}

    def __str__(self) -> str:
        known = [n for n in FIGURES if any(getattr(c, n) is not None for c in self.columns)]
        rows = [[c.column, *(cell(getattr(c, n)) for n in known)] for c in self.columns]
        loss = "" if self.log_loss is None else f", log-loss {self.log_loss:.6f} nats"
        head = f"{self.rows:,.10g} rows{loss}"
        if not rows:
            return f"{head}: the model uses no column"
        lines = [head, "", *aligned([["column", *known], *rows])]
        reasons: dict[str, list[str]] = {}
        for one in self.columns:
            if one.reason:
                reasons.setdefault(one.reason, []).append(one.column)
        return "\n".join([*lines, *(f"  {', '.join(n)}: {why}" for why, n in reasons.items())])


def importance(model: Any, X: Any, y: Any) -> Importance:
    """Return the importance of the columns of a fitted model; see `Prediction.importance`."""
    names = model._feature_names()
    counts = model.statistics_
    if isinstance(X, Statistics):
        counts = _of_schema(model, X)
    information = _information(model, counts)
    if X is None or isinstance(X, Statistics):
        spread, why = _spread_of_counts(model, counts)
        loss: float | None = None
        reason = _never_without(model) or f"log_loss_without {NEEDS_ROWS}"
        without: list[tuple[float | None, str]] = [(None, reason)] * len(names)
        of_table = isinstance(counts, Statistics)
        rows = float(counts.n_rows if of_table else counts.class_counts.sum())
    else:
        spread, loss, without, rows = _of_rows(model, X, y)
        why = [""] * len(names)
    found = []
    for j, name in enumerate(names):
        less, reason = without[j]
        lacking = [
            why[j],
            reason,
            "" if information[j] is not None else "information is of values or bins",
        ]
        found.append(
            ColumnImportance(
                name,
                spread[j],
                information[j],
                less,
                None if less is None or loss is None else less - loss,
                "; ".join(one for one in lacking if one),
            )
        )
    found.sort(key=_loudness, reverse=True)
    return Importance(tuple(found), rows, loss)


def _loudness(one: ColumnImportance) -> tuple[float, float]:
    """Return what columns are sorted by; what is not known comes last."""
    figures = (-1.0 if x is None else x for x in (one.mean_log_odds, one.information))
    spread, information = figures
    return spread, information


def _of_schema(model: Any, counts: Statistics) -> Statistics:
    """Return statistics as the model's columns, values and classes are laid out."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        raise SchemaError(f"{type(model).__name__} reads bare arrays: importance(X, y) of rows")
    if counts.schema.union(schema) != schema:
        raise SchemaError(
            "the statistics hold values or classes that the model does not know: count again with "
            "schema=model.statistics_"
        )
    return counts.aligned(schema)


def _information(model: Any, counts: Any) -> list[float | None]:
    """Return I(X_j; C) of each column of values, None of others."""
    names = model._feature_names()
    if "values" not in counts.parts:
        return [None] * len(names)
    values = counts.parts["values"]
    sizes = values.shape.sizes + missing_as_value(values, getattr(model, "missing", ""))
    out = class_information(values.counts, values.offsets, sizes)
    result: list[float | None] = [None] * len(names)
    places = model.schema_.places["categorical"] if hasattr(model, "schema_") else range(len(out))
    for place, nats in zip(places, out.tolist(), strict=True):
        result[place] = nats
    return result


def _spread_of_counts(model: Any, counts: Any) -> tuple[list[float | None], list[str]]:
    """Return the mean |log odds| of each column from counts, or why it is not known."""
    names = model._feature_names()
    if not (model._sums_columns and hasattr(model, "schema_")):
        return [None] * len(names), [f"mean_log_odds {NEEDS_ROWS}"] * len(names)
    values, schema = counts.values, model.schema_
    spread: list[float | None] = [None] * len(names)
    why = [f"mean_log_odds {NEEDS_ROWS}"] * len(names)
    total = max(float(values.class_counts.sum()), 1e-300)
    for i, terms in enumerate(value_terms(model)):
        n = values.counts[int(values.offsets[i]) : int(values.offsets[i + 1])].sum(axis=1)
        each = log_odds(terms)
        j = schema.places["categorical"][i]
        spread[j], why[j] = float((n[n > 0] * each[n > 0]).sum() / total), ""
    return spread, why


def value_terms(model: Any) -> list[Floats]:
    """Return what each value of each categorical column adds, missing last, (S_j + 1, K)."""
    schema = model.schema_
    sizes = np.array([f.size for f in schema.categorical], np.int64)
    m, k, d = len(sizes), len(model.classes_), len(schema.features)
    found = [np.empty((int(size) + 1, k)) for size in sizes]
    step = max(1, NUMBERS // max(d * k, 1))
    for low in range(0, int(sizes.max(initial=-1)) + 1, step):
        at = np.arange(low, min(low + step, int(sizes.max()) + 1))
        codes = np.minimum(at, sizes[:, None]).astype(np.uint32)
        batch = Batch(
            n_rows=len(at),
            classes=None,
            n_classes=k,
            codes=(Codes(np.arange(m), codes, sizes + 2),),
            missing=np.zeros(m, np.bool_),
            numeric=tuple(np.full(len(at), np.nan) for _ in schema.numeric),
            weight=None,
            cells=0.0,
        )
        out = np.zeros((len(at), d, k))
        model._contributions(batch, out)
        for i, j in enumerate(schema.places["categorical"]):
            here = at[at <= sizes[i]]
            found[i][here] = out[: len(here), j]
    return found


def log_odds(terms: Floats) -> Floats:
    """Return the mean of |a - b| over pairs of classes, (...,) of (..., n_classes).

    Infinite where a class is impossible and another is not; 0 of one class.
    """
    k = terms.shape[-1]
    never = np.isneginf(terms)
    ordered = np.sort(np.where(never, 0.0, terms), axis=-1)
    with np.errstate(invalid="ignore"):
        total = ordered @ (2.0 * np.arange(k) - (k - 1))
    some = never.any(axis=-1) & ~never.all(axis=-1)
    return np.asarray(np.where(some, np.inf, total / max(k * (k - 1) / 2, 1)))


def _of_rows(
    model: Any, X: Any, y: Any
) -> tuple[list[float | None], float | None, list[tuple[float | None, str]], float]:
    """Return mean |log odds|, the log-loss, those without each column (or why not), and rows."""
    d, n, labelled = len(model._feature_names()), 0, 0
    spread, loss, less = np.zeros(d), 0.0, np.zeros(d)
    without: list[tuple[Any, str]] = []
    for rows, y_codes in labelled_rows(model, X, y):
        contributions = model._explained(rows)[0]
        if y_codes is not None:
            check_length(len(contributions), y_codes)
        spread += log_odds(contributions).sum(axis=0)
        if y_codes is not None and (known := np.flatnonzero(y_codes >= 0)).size:
            truth = y_codes[known]
            if not without:
                without = [_fitted_without(model, j) for j in range(d)]
            terms = Terms(model, contributions[known])
            own = terms.log_posterior() if model._keeps_terms else None
            loss += _loss(model.predict_log_proba(rows)[known] if own is None else own, truth)
            for j, (reduced, _) in enumerate(without):
                if reduced is model:
                    less[j] += _loss(terms.log_posterior(j), truth)
                elif reduced is not None:
                    few = _read_by(reduced.schema_, rows)
                    less[j] += _loss(reduced.predict_log_proba(few)[known], truth)
            labelled += len(known)
        n += len(contributions)
    if not n:
        raise DataError("importance needs rows, and there are none")
    mean: list[float | None] = [*(spread / n).tolist()]
    if not labelled:
        reason = "log_loss_without needs rows with a class"
        return mean, None, [(None, reason)] * d, float(n)
    losses = [
        (None if reduced is None else float(less[j]) / labelled, why)
        for j, (reduced, why) in enumerate(without)
    ]
    return mean, loss / labelled, losses, float(n)


class Terms:
    """The terms of rows in a product over columns, (n_rows, n_features, n_classes), summed once."""

    def __init__(self, model: Any, contributions: Floats) -> None:
        self._never = np.isneginf(contributions)
        self._finite = np.where(self._never, 0.0, contributions)
        self._sum, self._nevers = self._finite.sum(axis=1), self._never.sum(axis=1)
        self._prior, self._log_prior = model._explained_prior(), model._log_prior()

    def log_posterior(self, j: int | None = None) -> Floats:
        """Return ln P(c | x), (n_rows, n_classes), by all columns or by all but one."""
        total, nevers = self._sum, self._nevers
        if j is not None:
            total, nevers = total - self._finite[:, j], nevers - self._never[:, j]
        joint = np.where(nevers > 0, -np.inf, total + self._prior)
        normalise(joint, self._log_prior)
        return joint


def _loss(log_posterior: Floats, truth: NDArray[np.int64]) -> float:
    """Return the sum of -ln P(y | x), clipped as `evaluate` does."""
    own = log_posterior[np.arange(len(truth)), truth]
    return float(-np.maximum(own, math.log(CLIP)).sum())


BY_HAND = "fit it without the column and evaluate it"


def _never_without(model: Any) -> str:
    """Return why no rows tell the loss of the model without a column; empty where they do."""
    if model._keeps_terms:
        return ""
    if not hasattr(model, "fit_statistics") or any(
        getattr(model, learned, None) is not None for learned in model._of_rows
    ):
        return f"{type(model).__name__} learned from rows: {BY_HAND}"
    if not hasattr(model, "schema_"):
        return f"its numbers are of columns together: {BY_HAND}"
    stats = model.statistics_
    if len(model.schema_.features) < 2:
        return "it is the only column"
    if together := sorted({*stats.parts} - BY_COLUMN):
        return f"the counts of {' and '.join(together)} are of columns together: {BY_HAND}"
    if "scatter" in stats.parts and stats.scatter.incomplete.any():
        return f"rows that lack another column were not counted as complete: {BY_HAND}"
    return ""


def _fitted_without(model: Any, j: int) -> tuple[Any, str]:
    """Return the model without a column, itself where its other terms stay; else None and why."""
    if model._keeps_terms:
        return model, ""
    if never := _never_without(model):
        return None, never
    stats, schema, name = model.statistics_, model.schema_, model._feature_names()[j]
    rest = replace(schema, features=tuple(f for f in schema.features if f.name != name))
    params = {n: _params_without(p, name) for n, p in model.get_params(deep=False).items()}
    try:
        return as_counted(type(model)(**params)).fit_statistics(stats.aligned(rest)), ""
    except (SchemaError, ValueError) as error:
        return None, f"{error}; {BY_HAND}"


def _params_without(value: Any, name: str) -> Any:
    """Return a parameter without what it says of a column."""
    if isinstance(value, Mapping):
        return {key: one for key, one in value.items() if key != name}
    if isinstance(value, (list, tuple, set)) and name in value:
        return type(value)(one for one in value if one != name)
    return value


def labelled_rows(model: Any, X: Any, y: Any) -> Iterator[tuple[Any, NDArray[np.int64] | None]]:
    """Yield blocks of rows, and the codes of their classes: -1 without one, None without any."""
    if not hasattr(model, "schema_"):
        X, y = split_target(X, y)
        column = None if y is None else class_column(model, "class", y)
        yield X, None if column is None else _codes(model, column.to_pylist(), 0)
        return
    schema = model.schema_
    if y is None and (is_array(X) or schema.target is None):
        source, target = open_features(model, X), None
    else:
        opened = open_training(model, X, schema.target if y is None else y, None, reset=False)
        source, target = opened.source, opened.target
        if y is None and target not in source.schema.names:
            target = None
    step = max(1, NUMBERS // max(len(schema.names) * len(model.classes_), 1))
    done = 0
    for segment in source.segments(BLOCK_ROWS):
        for block in segment.batches():
            table = pa.Table.from_batches([block])
            features = _read_by(schema, table)
            for low in range(0, len(table), step):
                codes = None
                if target is not None:
                    values = table[target].slice(low, step).to_pylist()
                    codes = _codes(model, values, done + low)
                yield features.slice(low, step), codes
            done += len(table)


def _read_by(schema: Schema, table: pa.Table) -> pa.Table:
    """Return the columns that features are made of, those that are there."""
    wanted = schema.read_from(table.column_names)
    if not wanted:  # rows have a column, and of that of the class nobody says that it is not used
        return pa.table({str(schema.target): pa.nulls(len(table))})
    return table.select([name for name in wanted if name in table.column_names])


def _codes(model: Any, values: list[Any], first: int) -> NDArray[np.int64]:
    """Return the codes of class labels, -1 where there is none."""
    known = {label: c for c, label in enumerate(model.classes_.tolist())}
    known[None] = -1
    for row, value in enumerate(values):
        if value not in known:
            raise DataError(
                f"row {first + row}: class {value!r} was not seen at fit; the model has "
                f"{model.classes_.tolist()}"
            )
    return np.array([known[value] for value in values], np.int64)
