"""One row at a time, in microseconds: what a service that answers requests needs."""

from __future__ import annotations

import copy
import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.core.errors import SchemaError
from fastbayes.core.picks import unknown_column
from fastbayes.core.schema import Feature
from fastbayes.data.dates import by_python
from fastbayes.data.encode import Encoder
from fastbayes.data.nested import flat_row, null_fields
from fastbayes.data.segments import Place
from fastbayes.scan.outputs.sink import takes_absent

# Returns the code of a value, None where the model itself has to look at it.
CodeOf = Callable[[Any], int | None]


class Predictor:
    """A fitted model that takes one row at a time and answers in microseconds.

    It answers what the model as it is now says of a table of that row. `Model.predictor` makes it;
    the kernels are compiled, or taken from the disk, when it is made. Threads may share it.

    Attributes
    ----------
    classes_
        (n_classes,) labels, sorted.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"sky": list("ssrrso"), "wind": [1.0, 2, 7, 8, 1, 6], "sail": list("nnyyny")}
    >>> predictor = fb.NaiveBayes().fit(table, "sail").predictor()
    >>> predictor.predict({"sky": "r", "wind": 7.0})
    'y'
    >>> predictor.predict_proba({"sky": "o", "wind": None}).round(2)
    array([0.33, 0.67])
    """

    classes_: NDArray[Any]

    def __init__(self, model: Any) -> None:
        model._check_fitted()
        # What is fitted later is another one's.
        self._model = copy.copy(model)
        self.classes_ = self._model.classes_
        self._labels = self.classes_.tolist()
        self._scorer = self._model._scorers()(math.inf)
        schema = self._model.schema_
        rows = pa.record_batch([pa.nulls(1)] * len(schema.names), names=list(schema.names))
        encoder = Encoder.applying_to(schema, rows.schema)
        self._groups = encoder.encode(rows, Place("", 0)).batch.codes
        codes = [(f.column, _of_part(f, _code_of(f))) for f in schema.categorical]
        self._codes = [[codes[j] for j in group.features.tolist()] for group in self._groups]
        self._numeric = [(f.column, _of_part(f, _number)) for f in schema.numeric]
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return Predictor, (self._model,)

    def __repr__(self) -> str:
        return f"<Predictor of {self._model!r}>"

    def predict(self, row: Any) -> Any:
        """Return the most probable class of a row.

        Parameters
        ----------
        row
            Values by the name of the feature, None and NaN being missing; or a record batch or
            table of one row. Other names are left out.

        Returns
        -------
        object
            A label out of `classes_`, as Python's type.

        Raises
        ------
        DataError
            As the model does: the message names a feature that is not there, or a value.
        TypeError
            When it is neither.
        ValueError
            When a batch or a table has not one row.
        """
        encoded = self._encoded(row)
        if encoded is None:
            return self._model.predict(self._table(row)).tolist()[0]
        out = np.empty(1, np.intp)
        self._scorer.predict(*encoded, out)
        return self._labels[out[0]]

    def predict_proba(self, row: Any) -> NDArray[np.float64]:
        """Return P(c | x) of a row.

        Parameters
        ----------
        row
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_classes,), in the order of `classes_`.
        """
        encoded = self._encoded(row)
        if encoded is None:
            found: NDArray[np.float64] = self._model.predict_proba(self._table(row))[0]
            return found
        out = np.empty((1, len(self._labels)))
        self._scorer.posterior(*encoded, out)
        return out[0]

    def _encoded(self, row: Any) -> tuple[Any, Any] | None:
        """Return the codes and the numbers of a row, None where the model has to look at it."""
        if isinstance(row, (pa.RecordBatch, pa.Table)):
            if row.num_rows != 1:
                raise ValueError(f"{row.num_rows} rows: a predictor takes one; ask the model")
            (row,) = row.to_pylist()
        elif not isinstance(row, Mapping):
            raise TypeError(f"a row is a dict, or a record batch of one row, not {type(row)}")
        groups, numbers = self._room()
        for group, columns in zip(groups, self._codes, strict=True):
            codes = []
            for name, code_of in columns:
                code = code_of(row[name]) if name in row else None
                if code is None:
                    return None
                codes.append(code)
            group.codes[:, 0] = codes
        for (name, number_of), number in zip(self._numeric, numbers, strict=True):
            value = number_of(row[name]) if name in row else None
            if value is None:
                return None
            number[0] = value
        return groups, numbers

    def _room(self) -> tuple[tuple[Codes, ...], tuple[NDArray[np.float64], ...]]:
        """Return the arrays of this thread, of one row."""
        room: Any = getattr(self._local, "room", None)
        if room is None:
            groups = tuple(group._replace(codes=group.codes.copy()) for group in self._groups)
            room = self._local.room = groups, tuple(np.empty(1) for _ in self._numeric)
        return room

    def _table(self, row: Any) -> Any:
        """Return a row as the model takes it."""
        if isinstance(row, (pa.RecordBatch, pa.Table)):
            return row
        names = self._model.schema_.read_from(row)
        if not all(name in row for name in names):
            row = flat_row(row)
            names = self._model.schema_.read_from(row)
            row |= null_fields(row, names)
        if takes_absent(self._model):
            return {name: [row.get(name)] for name in names}
        if missing := [name for name in names if name not in row]:
            raise SchemaError(unknown_column(missing[0], [*map(str, row)], "the row"))
        return {name: [row[name]] for name in names}


def _number(value: Any) -> float | None:
    """Return a number, NaN for a missing one; None where the model has to look at it."""
    if value is None:
        return math.nan
    if isinstance(value, float):
        return None if math.isinf(value) else value
    return float(value) if type(value) is int and abs(value) < 1 << 63 else None


def _of_part(feature: Feature, of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what takes a value of the column that a feature is made of; None as `of` has it."""
    if feature.part is None:
        return of
    part_of = by_python(feature.part)

    def of_part(value: Any) -> Any:
        part = None if value is None else part_of(value)
        return of(part) if part is not None or value is None else None

    return of_part


def _code_of(feature: Feature) -> CodeOf:
    """Return what gives the code of a value of a feature."""
    missing = feature.size
    if feature.cuts is not None:
        cuts = feature.cuts.tolist()

        def bin_of(value: Any) -> int | None:
            number = _number(value)
            if number is None:
                return None
            return missing if math.isnan(number) else bisect_left(cuts, number)

        return bin_of
    known = [] if feature.values is None else feature.values.to_pylist()
    # Python takes True for 1 and for 1.0, which are values of different columns.
    codes = {(type(value), value): code for code, value in enumerate(known)}
    codes[type(None), None] = missing

    def code_of(value: Any) -> int | None:
        try:
            return codes.get((type(value), value))
        except TypeError:  # what has no hash is no value of any column
            return None

    return code_of
