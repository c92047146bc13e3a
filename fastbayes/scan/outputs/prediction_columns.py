"""What `predict_to` writes of a block of rows: columns that are copied, and those of the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.decisions import least_risk, loss_matrix
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.data.encode import Encoded
from fastbayes.data.segments import Rows
from fastbayes.data.unify import is_text, without_dictionary, without_views

# What a spreadsheet takes text for a formula by, where it begins so.
FORMULA = r"([=+\-@\t\r])"

Floats = NDArray[np.float64]


class PredictionColumns:
    """Which columns are written, and how a block of rows turns into them.

    Parameters
    ----------
    model
        A fitted model of named columns.
    copies
        Columns of the source to copy.
    proba, explain, loss, reject, precision, csv_safe
        As in `predict_to`.

    Attributes
    ----------
    schema
        The columns.
    written
        The same, under names as they are written.
    copied
        Names of those that are copied.
    uncoded
        Names of those whose values hardly repeat.

    Raises
    ------
    ValueError
        When an option is none.
    SchemaError
        When columns do not fit each other, or decisions the classes.
    """

    def __init__(
        self,
        model: Any,
        copies: Sequence[pa.Field],
        *,
        proba: bool | str,
        explain: bool,
        loss: Any,
        reject: float | None,
        precision: str,
        csv_safe: bool,
    ) -> None:
        if not isinstance(proba, bool | np.bool_) and proba != "predicted":
            raise ValueError(f"proba={proba!r}: use True, False or 'predicted'")
        if precision not in ("exact", "fast"):
            raise ValueError(f"precision={precision!r}: use 'exact' or 'fast'")
        self._model = model
        self._scorers = model._scorers()
        self._copies = [field.with_type(_plain(field.type)) for field in copies]
        self.copied = [field.name for field in copies]
        self._csv_safe = csv_safe
        self._proba, self._explain = proba, explain
        self._reject = reject
        self._decides = loss is not None or reject is not None
        classes = model.schema_.classes
        self._labels, self._loss = classes, None
        if loss is not None:
            self._loss, names = loss_matrix(loss, model.classes_)
            if names.tolist() != model.classes_.tolist():
                refuse(
                    proba == "predicted",
                    f"proba='predicted': the decisions {names.tolist()} are not the classes, whose "
                    "probabilities are known; use proba=True",
                    SchemaError,
                )
                self._labels = pa.array([str(name) for name in names.tolist()], pa.string())
        self._coded = is_text(self._labels.type)
        self._index = np.min_scalar_type(-len(self._labels))
        label = self._labels.type
        if self._coded:
            label = pa.dictionary(pa.from_numpy_dtype(self._index), label)
        fields = [*self._copies, pa.field("prediction", label)]
        if self._decides:
            fields.append(pa.field("expected_loss", pa.float64()))
        self._number = pa.float64() if precision == "exact" else pa.float32()
        if proba == "predicted":
            fields.append(pa.field("proba", self._number))
        elif proba:
            fields += [pa.field(f"proba_{label}", self._number) for label in classes.to_pylist()]
        if explain:
            fields.append(pa.field("because", pa.string()))
            fields.append(pa.field("because_nats", pa.float64()))
        self.schema = self.written = pa.schema(fields)
        if csv_safe:
            self.written = pa.schema([f.with_name(_no_formula(f.name)) for f in fields])
        # Numbers that hardly repeat: looking for values that do costs more than all the rest.
        answers = fields[len(copies) + 1 :]
        self.uncoded = {field.name for field in answers if pa.types.is_floating(field.type)}
        names = self.schema.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise SchemaError(
                f"there would be two columns {twice[0]!r}: one copied, one of the answer; choose "
                "the columns to copy by `keys`, or rename it"
            )

    def of(self, rows: Rows, encoded: Encoded) -> tuple[pa.RecordBatch, int]:
        """Return what is written for a block, and how many rows the prior answered."""
        batch, model = encoded.batch, self._model
        scorer = self._scorers(batch.cells)
        columns = [_copy(rows.column(field.name), field) for field in self._copies]
        best = np.empty(batch.n_rows, dtype=np.intp)
        if self._decides or self._proba or self._explain:
            posterior = np.empty((batch.n_rows, len(model.classes_)))
            prior_rows = scorer.posterior(batch.codes, batch.numeric, posterior)
        if self._explain or not self._decides:
            prior_rows = scorer.predict(batch.codes, batch.numeric, best)
        index, missing = best, None
        if self._decides:
            index, expected = least_risk(posterior, self._loss, self._reject)
            missing = index == -1
        columns.append(self._predicted(index, missing))
        if self._decides:
            columns.append(pa.array(expected))
        if self._proba == "predicted":
            winners = np.take_along_axis(posterior, index[:, None], axis=1)[:, 0]
            columns.append(pa.array(winners, mask=missing).cast(self._number))
        elif self._proba:
            columns += [pa.array(p).cast(self._number) for p in posterior.T]
        if self._explain:
            columns += _because(model, batch, posterior, best)
        written = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self._csv_safe:
            written = _without_formulas(written)
        return written, prior_rows

    def _predicted(self, index: NDArray[np.intp], missing: NDArray[np.bool_] | None) -> pa.Array:
        """Return labels by their positions."""
        places = pa.array(index.astype(self._index), mask=missing)
        if self._coded:
            return pa.DictionaryArray.from_arrays(places, self._labels)
        return self._labels.take(places)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a copied column: dictionaries would differ from block to block."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return without_views(kind)


def _copy(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):  # of a table in memory
        chunks = [_copy(chunk, field) for chunk in column.chunks]
        return (
            chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, field.type).combine_chunks()
        )
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    column = without_dictionary(column)
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        raise DataError(
            f"column {field.name!r} is {field.type} in the schema and {column.type} in some rows "
            f"({error}); leave it out of the columns to copy, or store it in one type"
        ) from error


def _because(
    model: Any, batch: Batch, posterior: Floats, best: NDArray[np.intp]
) -> tuple[pa.Array, pa.Array]:
    """Return per row the feature that speaks most for the best class against the second."""
    if not model.schema_.names:
        return pa.nulls(batch.n_rows, pa.string()), pa.nulls(batch.n_rows, pa.float64())
    names = pa.array(model.schema_.names, pa.string())
    explained = np.empty((batch.n_rows, len(names), posterior.shape[1]))
    model._contributions(batch, explained)
    index = np.arange(batch.n_rows)
    margin = explained[index, :, best]
    if posterior.shape[1] > 1:
        others = posterior.copy()
        others[index, best] = -1.0
        with np.errstate(invalid="ignore"):  # what is impossible under both says nothing
            margin = margin - explained[index, :, others.argmax(axis=1)]
    margin[np.isnan(margin)] = 0.0
    top = margin.argmax(axis=1)
    return names.take(pa.array(top)), pa.array(margin[index, top])


def _no_formula(text: str) -> str:
    """Return text that a spreadsheet takes for text."""
    return re.sub(f"^{FORMULA}", r"'\1", text)


def _without_formulas(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose text a spreadsheet takes for text."""

    def harmless(column: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            return pa.DictionaryArray.from_arrays(column.indices, harmless(column.dictionary))
        if not is_text(column.type):
            return column
        return pc.replace_substring_regex(column, f"^{FORMULA}", r"'\1")

    return pa.RecordBatch.from_arrays([*map(harmless, batch.columns)], names=batch.schema.names)
