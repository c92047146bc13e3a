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
    """Columns that a model appends to rows; it may be pickled.

    Parameters
    ----------
    model
        A fitted model.
    columns
        Names of the columns that the rows have.
    proba
        Whether to append `proba_<class>` for each class, rather than `prediction`.

    Attributes
    ----------
    needs
        Names of the columns that it looks at.
    fields
        Those that it appends.
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
        self.fields = [pa.field("prediction", classes.type)]
        if proba:
            labels = classes.to_pylist()
            self.fields = [pa.field(f"proba_{label}", pa.float64()) for label in labels]
        for field in self.fields:
            refuse(
                field.name in columns,
                f"the frame has a column {field.name!r} already; rename it, or leave it out",
                SchemaError,
            )
        self._proba = proba
        self._model = copy.copy(model)
        if hasattr(model, "threads"):
            self._model.threads = 1  # a worker has a thread for each partition

    def __call__(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of rows that have those it needs."""
        if not self._proba:
            labels = self._model.predict(rows)
            return [pa.array(labels, self.fields[0].type)]
        posterior = self._model.predict_proba(rows)
        return [pa.array(np.ascontiguousarray(column)) for column in posterior.T]
