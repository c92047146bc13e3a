"""From what users hand to `fit` and `predict` to a source of named columns."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.warn import warn
from fastbayes.data.apply import as_at_fit, as_told
from fastbayes.data.join import (
    Joined,
    Renamed,
    declared_domains,
    declared_values,
    is_name,
    to_array,
)
from fastbayes.data.source import Source, open_source
from fastbayes.models.estimator.input_checks import (
    check_features,
    check_labels,
    check_length,
    check_weight,
    feature_names,
    is_sparse,
)


class Training(NamedTuple):
    """A source with the names of its class and weight columns and the domains it declares."""

    source: Any
    target: str
    weight: str | None
    domains: dict[str, Any]


def is_array(X: Any) -> bool:
    """Return whether X is rows of cells without column names: an array, a list, a sparse matrix."""
    if is_sparse(X):
        return True
    if isinstance(X, (str, os.PathLike, dict)) or hasattr(X, "__arrow_c_stream__"):
        return False
    if isinstance(X, (list, tuple)):
        return not (len(X) and isinstance(X[0], (str, os.PathLike, pa.RecordBatch)))
    arrow = type(X).__module__.partition(".")[0] in ("pyarrow", "polars")
    return (hasattr(X, "__array__") and not arrow) or hasattr(X, "__len__")


def open_training(model: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Training:
    """Return the source of training rows, its features checked against or set on the model."""
    if y is None:
        check_labels(model, y)
    domains = declared_domains(X)
    beside: dict[str, pa.Array] = {}
    named = [str(v) for v in (y, sample_weight) if is_name(v)]
    if is_array(X):
        if named:
            raise SchemaError(f"{named[0]!r} names a column, but X is an array without names")
        array = _cells(model, X, reset=reset)
        source: Any = _renamed(model, open_source(array), fitted=not reset)
    else:
        if reset:
            source = open_source(X, types=as_told(model.categorical, model.domains))
        else:
            source = _positioned(model, open_source(X, **as_at_fit(model.schema_)), named)
        array = None

    def beside_name(values: Any, default: str) -> str:
        if is_name(values):
            return str(values)
        own = getattr(values, "name", None)
        name = own if isinstance(own, str) and own else default
        if not reset and default == "class" and model.schema_.target is not None:
            name = model.schema_.target
        while name in source.schema.names or name in beside:
            name += "_"
        return name

    target = beside_name(y, "class")
    if not is_name(y):
        beside[target] = _labels(model, target, y)
        if (declared := declared_values(y)) is not None:
            domains[target] = declared
        if array is not None:
            check_length(array, beside[target])
    weight = None
    if sample_weight is not None:
        weight = beside_name(sample_weight, "weight")
        if not is_name(sample_weight):
            n_rows = source.n_rows
            if n_rows is None:
                raise SchemaError("name a column of X instead of passing weights beside a stream")
            checked = check_weight(np.asarray(sample_weight), n_rows, allow_zero=not reset)
            beside[weight] = pa.array(checked)
    if beside:
        source = Joined(source, beside)
    if reset and not is_array(X):
        names = [n for n in source.schema.names if n not in (target, weight)]
        _set_names(model, X, names)
    return Training(source, target, weight, domains)


def _set_names(model: Any, X: Any, names: list[str]) -> None:
    if not names:
        raise DataError(
            "0 feature(s) while a minimum of 1 is required: there is no column beside the target"
        )
    # In this order: a polars LazyFrame warns of what its `columns` cost.
    frame = hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns")
    named = not frame or feature_names(X) is not None
    model._set_features(names if named else None, len(names))


def _labels(model: Any, name: str, y: Any) -> pa.Array:
    if hasattr(y, "__arrow_c_stream__") or hasattr(y, "__arrow_c_array__"):
        return to_array(name, y)
    if isinstance(y, (pa.Array, pa.ChunkedArray, np.ma.MaskedArray)):
        return to_array(name, y)
    array = np.asarray(y)
    if array.dtype.kind == "U" and isinstance(y, (list, tuple)):
        array = np.asarray(y, dtype=object)  # numpy made NaN among strings the string "nan"
    missing = None
    if array.dtype.kind == "O":
        missing = np.array([v is None or v != v for v in array.ravel()], dtype=np.bool_)
    elif array.dtype.kind == "f":
        missing = np.isnan(array).ravel()
    if missing is not None and missing.any() and array.ndim == 1 and not missing.all():
        kept = check_labels(model, array[~missing])
        full = np.empty(len(array), dtype=kept.dtype if kept.dtype.kind != "U" else object)
        full[~missing] = kept
        full[missing] = kept[0]
        return to_array(name, np.ma.array(full, mask=missing))
    return to_array(name, check_labels(model, array))


def _cells(model: Any, X: Any, *, reset: bool) -> NDArray[Any] | pa.Table:
    """Return an array of numbers, or a table where some columns hold text."""
    array = X if is_sparse(X) else np.asarray(X)
    if array.dtype.kind == "b" and model._flags_are_numbers and not is_sparse(X):
        X = array = array.astype(np.float64)
    if array.dtype.kind == "U" and isinstance(X, (list, tuple)):
        array = np.asarray(X, dtype=object)  # numpy made text of the numbers beside text
    if is_sparse(X) or array.dtype.kind not in "OUST" or array.ndim != 2 or 0 in array.shape:
        return check_features(model, X, reset=reset)
    columns = [_column(array[:, j], j) for j in range(array.shape[1])]
    if all(c is None for c in columns):
        return check_features(model, array.astype(np.float64), reset=reset)
    check_features(model, np.zeros(array.shape), reset=reset)
    return pa.table(
        {
            f"x{j}": pa.array(array[:, j].astype(np.float64)) if c is None else c
            for j, c in enumerate(columns)
        }
    )


def _column(cells: NDArray[Any], j: int) -> pa.Array | None:
    """Return a column of text as Arrow strings, None for one of numbers."""
    text = numbers = False
    missing = np.zeros(len(cells), dtype=np.bool_)
    for row, cell in enumerate(cells):
        if isinstance(cell, str):
            text = True
        elif cell is None or cell != cell:
            missing[row] = True
        elif isinstance(cell, (complex, np.complexfloating)):
            raise DataError(f"Complex data not supported: column {j}, row {row} holds {cell!r}")
        elif isinstance(cell, (bool, int, float, np.bool_, np.integer, np.floating)):
            numbers = True
        else:
            raise TypeError(
                f"argument must be a string or a real number, not {type(cell).__name__!r}: "
                f"column {j}, row {row}"
            )
    if not text:
        return None
    if numbers:
        raise DataError(f"column {j} holds both text and numbers; make it one of them")
    filled = np.where(missing, "", cells) if missing.any() else cells
    return pa.array(np.asarray(filled, dtype=np.str_), mask=missing)


def open_features(model: Any, X: Any) -> Any:
    """Return the source of rows to be scored, with the names that the model knows."""
    if is_array(X):
        return _renamed(model, open_source(_cells(model, X, reset=False)), fitted=True)
    source = open_source(X, **as_at_fit(model.schema_))
    names = model.schema_.names
    return _selected(model, X, _positioned(model, source, []), names)


def _selected(model: Any, X: Any, source: Any, names: tuple[str, ...]) -> Any:
    """Read only what the model needs; what else is there is said once."""
    used = set(names)
    extra = [n for n in source.schema.names if n not in used]
    if not extra or isinstance(source, Renamed):
        return source
    if not used <= set(source.schema.names):
        return source  # the encoder says which column is not there
    if unknown := [n for n in extra if n != model.schema_.target]:
        warn(
            f"{source.description}: the model does not use {unknown[:5]}"
            f"{f' and {len(unknown) - 5} more columns' if len(unknown) > 5 else ''}"
        )
    if source.rereadable:
        return open_source(X, columns=list(names), **as_at_fit(model.schema_))
    return source


def _renamed(model: Any, source: Source, *, fitted: bool) -> Any:
    """Give the columns of an array the names the model was fitted with."""
    names = model.schema_.names if fitted and hasattr(model, "schema_") else None
    if names is None or list(names) == source.schema.names:
        return source
    return Renamed(source, names)


def _positioned(model: Any, source: Source, labels: list[str]) -> Any:
    """Match the columns of a frame by position where the model was fitted on a bare array."""
    if hasattr(model, "feature_names_in_") or set(model.schema_.names) <= set(source.schema.names):
        return source
    others = [n for n in source.schema.names if n not in labels]
    if len(others) != len(model.schema_.names):
        raise DataError(
            f"X has {len(others)} features, but {type(model).__name__} is expecting "
            f"{len(model.schema_.names)} features as input"
        )
    warn(f"X has feature names, but {type(model).__name__} was fitted without feature names")
    known = iter(model.schema_.names)
    return Renamed(source, [n if n in labels else next(known) for n in source.schema.names])
