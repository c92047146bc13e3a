"""What a model says of rows as columns, which an engine appends to its frame."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core.errors import SchemaError, refuse
from fastbayes.core.picks import unknown_column
from fastbayes.data.nested import roots


class Appended:
    """Columns that a fitted model appends to rows of these columns; it may be pickled.

    That is `prediction`, or with `proba` one `proba_<class>` for each class.

    needs   names of the columns that it looks at
    fields  those that it appends
    """

    def __init__(self, model: Any, columns: Sequence[str], *, proba: bool) -> None:
        schema = getattr(model, "schema_", None)
        classes = pa.array(model.classes_) if schema is None else schema.classes
        names = getattr(model, "feature_names_in_", None)
        if schema is not None:
            names = schema.read_from(columns)
        if names is None:
            raise SchemaError(
                f"{type(model).__name__} was fitted without feature names, and columns of a frame "
                "on workers are matched by name: fit it to a data frame"
            )
        self.needs = roots(names, columns)
        for name in self.needs:
            if name not in columns:
                raise SchemaError(unknown_column(name, columns, "the frame"))
        self._proba = proba
        self.fields = self._fields(classes)
        for field in self.fields:
            refuse(
                field.name in columns,
                f"the frame has a column {field.name!r} already; rename it, or leave it out",
                SchemaError,
            )
        self._model = copy.copy(model)
        if hasattr(model, "threads"):
            self._model.threads = 1  # a worker has a thread for each partition

    def _fields(self, classes: pa.Array) -> list[pa.Field]:
        if self._proba:
            return [pa.field(f"proba_{label}", pa.float64()) for label in classes.to_pylist()]
        return [pa.field("prediction", classes.type)]

    def __call__(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of rows that have those it needs."""
        if not self._proba:
            labels = self._model.predict(rows)
            return [pa.array(labels, self.fields[0].type)]
        posterior = self._model.predict_proba(rows)
        return [pa.array(np.ascontiguousarray(column)) for column in posterior.T]


class LabelsAndPosteriors(Appended):
    """A column of labels and one of posteriors, a list in each row, as Spark's pipelines have them.

    `prediction` and `probability` are their names; "" for none.
    """

    def __init__(
        self, model: Any, columns: Sequence[str], prediction: str, probability: str
    ) -> None:
        self._names = prediction, probability
        super().__init__(model, columns, proba=bool(probability))

    def _fields(self, classes: pa.Array) -> list[pa.Field]:
        kinds = classes.type, pa.list_(pa.float64())
        named = zip(self._names, kinds, strict=True)
        return [pa.field(name, kind) for name, kind in named if name]

    def __call__(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of rows that have those it needs."""
        found = []
        if self._names[0]:
            found.append(pa.array(self._model.predict(rows), self.fields[0].type))
        if self._names[1]:
            posterior = self._model.predict_proba(rows)
            starts = np.arange(len(posterior) + 1, dtype=np.int32) * posterior.shape[1]
            found.append(pa.ListArray.from_arrays(pa.array(starts), pa.array(posterior.ravel())))
        return found
