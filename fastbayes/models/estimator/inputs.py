"""What users hand to `fit` and `predict`: checked arrays, labels, weights, and sources of rows."""

from __future__ import annotations

import math
import os
import reprlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import GREATEST, LEAST, code_type
from fastbayes.core.domains import array_of, cast_domain
from fastbayes.core.errors import DataError, FastBayesWarning, SchemaError, refuse, warn
from fastbayes.core.numbers import is_number
from fastbayes.core.picks import (
    AllButIndex,
    Selection,
    free_name,
    named_in,
    several,
    unknown_column,
)
from fastbayes.core.schema import Needed
from fastbayes.core.schema import labels as labels_of
from fastbayes.core.suggestions import meant_column
from fastbayes.data.memory import (
    CellTypeError,
    Joined,
    Renamed,
    StreamSource,
    declared_domains,
    declared_values,
    is_missing,
    is_name,
    missing_cells,
    to_array,
    worded,
)
from fastbayes.data.nested import flat, roots
from fastbayes.data.source import (
    TABLES,
    Source,
    as_at_fit,
    as_given,
    check_index,
    engine_opener,
    filled,
    open_source,
)
from fastbayes.scan.outputs.sink import takes_absent
from fastbayes.scan.packed_rows import in_memory


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
    if engine_opener(X) is not None:
        return False
    if isinstance(X, (list, tuple)):
        return not (len(X) and isinstance(X[0], str | os.PathLike | TABLES))
    if isinstance(X, np.ndarray):
        return X.dtype.names is None
    arrow = type(X).__module__.partition(".")[0] in ("pyarrow", "polars")
    return (hasattr(X, "__array__") and not arrow) or hasattr(X, "__len__")


def array_width(X: Any) -> int | None:
    """Return how many columns rows without column names have; None of other rows."""
    return int(np.shape(X)[1]) if is_array(X) else None


def open_training(model: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Training:
    """Return the source of training rows, its features checked against or set on the model."""
    if y is None:
        check_labels(model, y)
    beside: dict[str, pa.Array] = {}
    named = [str(v) for v in (y, sample_weight) if is_name(v)]
    if is_array(X) and named:
        raise SchemaError(f"{named[0]!r} names a column, but X is an array without names")
    source = open_rows(model, X, reset=reset, labels=named)

    def beside_name(values: Any, default: str) -> str:
        if is_name(values):
            return str(values)
        columns: Any = getattr(values, "columns", ())  # of a table, of which one is a class column
        own = columns[0] if len(columns) == 1 else getattr(values, "name", None)
        name = own if isinstance(own, str) and own else default
        if not reset and default == "class" and model.schema_.target is not None:
            name = model.schema_.target
        return free_name(name, source.schema.names, beside)

    target = beside_name(y, "class")
    if not is_name(y):
        beside[target] = class_column(model, target, y)
        if is_array(X):
            check_length(source.n_rows, beside[target])
    weight = None
    if sample_weight is not None:
        weight = beside_name(sample_weight, "weight")
        if not is_name(sample_weight):
            n_rows = source.n_rows
            if n_rows is None:
                raise SchemaError(
                    "name a column of X instead of passing weights alongside a stream"
                )
            checked = check_weight(sample_weight, n_rows, allow_zero=not reset)
            beside[weight] = pa.array(checked)
    domains = declared_domains(X, {*source.schema.names} - {weight})
    if not is_name(y) and (declared := declared_values(y)) is not None:
        domains[target] = declared
    if beside:
        source = Joined(source, beside)
    if reset and not is_array(X):
        names = [n for n in source.schema.names if n not in (target, weight)]
        _set_names(model, X, names)
    return Training(source, target, weight, domains)


def _set_names(model: Any, X: Any, names: list[str]) -> None:
    if not names:
        raise DataError(
            "0 feature(s) while a minimum of 1 is required: there is no column besides the target"
        )
    # Of pandas, where names may be numbers.
    frame = hasattr(X, "__arrow_c_stream__") and hasattr(X, "iloc")
    named = not frame or feature_names(X) is not None
    model._set_features(names if named else None, len(names))


def class_column(model: Any, name: str, y: Any) -> pa.Array:
    """Return class labels beside rows as a column of this name, null for rows without a class."""
    arrow = hasattr(y, "__arrow_c_stream__") or hasattr(y, "__arrow_c_array__")
    if arrow or isinstance(y, (pa.Array, pa.ChunkedArray, np.ma.MaskedArray)):
        return to_array(name, y)
    array = np.asarray(worded(y))
    if array.dtype.kind == "U" and isinstance(y, (list, tuple)):
        array = np.asarray(y, dtype=object)  # numpy made NaN among strings the string "nan"
    if array.dtype.kind not in "Of" or array.ndim != 1:
        return to_array(name, check_labels(model, array))
    if array.dtype.kind == "f":
        missing = np.isnan(array)
    else:
        # Most are texts; of what is none, or not of one kind, the checks below tell.
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            if pa.types.is_string((texts := array_of(array)).type):
                return texts
        missing = missing_cells(array)
    known = array[~missing]
    if not len(known):
        return to_array(name, check_labels(model, array))
    if known.dtype.kind == "O":
        known = _native_labels(known)
    full = np.full(len(array), "" if known.dtype == object else 0, known.dtype)
    full[~missing] = known
    full = check_labels(model, full)
    return to_array(name, np.ma.array(full, mask=missing) if missing.any() else full)


def _native_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels that came as objects as the numbers or truth values that all of them are."""
    kinds = {*map(type, labels)}
    flags = all(issubclass(kind, (bool, np.bool_)) for kind in kinds)
    numbers = int, float, np.integer, np.floating
    if flags or all(issubclass(k, numbers) and k is not bool for k in kinds):
        return np.asarray(labels.tolist())
    return labels


def _cells(model: Any, X: Any, *, reset: bool) -> NDArray[Any] | pa.Table:
    """Return an array of numbers, or a table where some columns hold text."""
    array = X if is_sparse(X) else np.asarray(X)
    if array.dtype.kind == "b" and model._flags_are_numbers and not is_sparse(X):
        X = array = array.astype(np.float64)
    if array.dtype.kind == "U" and isinstance(X, (list, tuple)):
        array = np.asarray(X, dtype=object)  # numpy made text of the numbers that came with text
    if is_sparse(X) or array.dtype.kind not in "OUST" or array.ndim != 2 or 0 in array.shape:
        return check_features(model, X, reset=reset)
    columns = [_column(array[:, j], j) for j in range(array.shape[1])]
    if all(c.type == pa.float64() for c in columns):
        return check_features(model, array.astype(np.float64), reset=reset)
    check_features(model, np.zeros(array.shape), reset=reset)
    return pa.table({f"x{j}": c for j, c in enumerate(columns)})


_NUMBERS = bool, int, float, np.bool_, np.integer, np.floating


def _column(cells: NDArray[Any], j: int) -> pa.Array:
    """Return a column of text, of numbers, or of nothing known, whose type is null."""
    cells = cells.astype(object, copy=False)
    missing = missing_cells(cells)
    kinds = {*map(type, cells[~missing])}
    text, numbers = (any(issubclass(kind, of) for kind in kinds) for of in (str, _NUMBERS))
    if wrong := {kind for kind in kinds if not issubclass(kind, (str, *_NUMBERS))}:
        row, cell = next((row, cell) for row, cell in enumerate(cells) if type(cell) in wrong)
        if isinstance(cell, (complex, np.complexfloating)):
            raise DataError(f"Complex data not supported: column {j}, row {row} holds {cell!r}")
        raise TypeError(
            f"argument must be a string or a real number, not {type(cell).__name__!r}: "
            f"column {j}, row {row}"
        )
    if not text:
        return pa.array(cells.astype(np.float64)) if numbers else pa.nulls(len(cells))
    if numbers:
        raise DataError(f"column {j} holds both text and numbers; make it one of them")
    return pa.array(cells, pa.string(), mask=missing)


def open_rows(
    model: Any, X: Any, *, reset: bool = False, labels: Sequence[str] | None = None
) -> Any:
    """Return the source of rows: as they are (`reset`), or with the names that the model knows.

    `labels` are columns of classes and weights; None where rows are to be scored.
    """
    said = (getattr(model, name, None) for name in ("domains", "dates", "numeric", "discretize"))
    named = named_in(several(model.categorical), *said) if reset else []
    taking = None
    if labels is not None:
        taking = Selection.made(model.columns, model.exclude, labels, named)
    if is_array(X):
        source = open_source(_cells(model, X, reset=reset))
        if reset and taking is not None:
            return source.only(taking.of(source.schema.names, "X"))
        return _renamed(model, source, fitted=not reset)
    if reset:
        named += labels or ()
        columns = AllButIndex(tuple(named)) if taking is None else taking
        source = open_source(X, columns=columns, types=as_given(model.categorical, model.domains))
        check_index(source, named)
        return source
    own = (*model.schema_.columns, *(labels or ()))
    known = AllButIndex(own) if taking is None else Needed(model.schema_, taking.keep)
    source = open_source(X, columns=known, **as_at_fit(model.schema_))
    return _positioned(model, source, labels or ())


def open_features(model: Any, X: Any) -> Any:
    """Return the source of rows to be scored, with the names that the model knows."""
    source = open_rows(model, X)
    return source if is_array(X) else _selected(model, X, source)


def _selected(model: Any, X: Any, source: Any) -> Any:
    """Read only what the model needs; what else is there is said once."""
    names = model.schema_.read_from(source.schema.names)
    used = set(names)
    extra = [n for n in source.schema.names if n not in used]
    if not used <= {*source.schema.names}:
        if not takes_absent(model):
            check_index(source, names)
            return source  # the encoder says which column is not there
        names = [name for name in names if name in source.schema.names]
    if not extra or isinstance(source, Renamed):
        return filled(source, model.schema_)
    taking = Selection.made(model.columns, model.exclude)
    extra = [n for n in extra if taking is None or n in taking]  # the others are known to be there
    if unknown := [n for n in extra if n != model.schema_.target]:
        warn(
            f"{source.description}: the model does not use {unknown[:5]}"
            f"{f' and {len(unknown) - 5} more columns' if len(unknown) > 5 else ''}"
        )
    if isinstance(source, StreamSource) and source.rereadable:  # to compute these alone
        source = open_source(X, columns=names or None, **as_at_fit(model.schema_))
    else:
        source = source.only(names or source.schema.names[:1])
    return filled(source, model.schema_)


def _renamed(model: Any, source: Source, *, fitted: bool) -> Any:
    """Give the columns of an array the names the model was fitted with."""
    names = model.schema_.names if fitted and hasattr(model, "schema_") else None
    if names is None or list(names) == source.schema.names:
        return source
    if not hasattr(model, "feature_names_in_") and {*names} <= {*source.schema.names}:
        return source.only(list(names))  # `exclude` left some out
    return Renamed(source, names)


def _positioned(model: Any, source: Source, labels: Sequence[str]) -> Any:
    """Match the columns of a frame by position where the model was fitted on a bare array."""
    needed = model.schema_.read_from(source.schema.names)
    if hasattr(model, "feature_names_in_") or {*needed} <= {*source.schema.names}:
        return source
    others = [n for n in source.schema.names if n not in labels]
    if len(others) != (n_features := model.n_features_in_):
        raise DataError(
            f"X has {len(others)} features, but {type(model).__name__} is expecting {n_features} "
            "features as input"
        )
    warn(f"X has feature names, but {type(model).__name__} was fitted without feature names")
    known = iter(model.schema_.names)
    if len(model.schema_.names) < n_features:  # some are left out by `exclude`
        known = iter([f"x{j}" for j in range(n_features)])
    return Renamed(source, [n if n in labels else next(known) for n in source.schema.names])


ROWS = 65_536  # rows looked at together when a culprit is searched


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse matrix or array of scipy, which is not imported for that."""
    scipy_sparse = sys.modules.get("scipy.sparse")
    return scipy_sparse is not None and bool(scipy_sparse.issparse(X))


def feature_names(X: Any) -> NDArray[np.object_] | None:
    """Return the column names of a frame or table, (n_features,), if all of them are strings.

    A frame is one of pandas, polars, pyarrow, anything with a schema of Arrow, or with `columns`
    that are names. Some names that are strings and some that are not raise a TypeError.
    """
    if type(X).__module__.partition(".")[0] == "pyarrow":
        columns = getattr(getattr(X, "schema", None), "names", None)
    elif hasattr(X, "__arrow_c_schema__"):  # its `columns` may be data
        columns = pa.schema(X).names
    else:
        columns = getattr(X, "columns", None)
    if columns is None or isinstance(X, np.ndarray):
        return None
    names = np.asarray(list(columns), dtype=object)
    kinds = sorted({type(name).__qualname__ for name in names})
    if "str" in kinds and len(kinds) > 1:
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your "
            f"input has {kinds} as feature name / column name types; rename the columns, for "
            "example by X.columns = X.columns.astype(str)"
        )
    return names if kinds == ["str"] else None


def split_target(X: Any, y: Any) -> tuple[Any, Any]:
    """Return features and target where y is the name of a column of X; else both as they came.

    X is then without the column, or as it is where other columns are not read. What is in memory
    becomes a table, and so does what can be read only once.
    """
    if not isinstance(y, str):
        return X, y
    if is_array(X):
        raise SchemaError(
            f"y={y!r} names a column, but X is a {type(X).__name__}, not a data frame: read it "
            "into one"
        )
    if not hasattr(X, "__arrow_c_stream__"):
        opened = open_source(X)
        if opened.in_memory or not opened.rereadable:
            return split_target(in_memory(opened), y)
        refuse(
            y not in opened.schema.names,
            unknown_column(y, opened.schema.names, opened.description),
            SchemaError,
        )
        source, kind = opened.only([y]), opened.schema.field(y).type
        read = (rows.column(y) for part in source.segments(ROWS) for rows in part.batches())
        return X, pa.chunked_array([cast_domain(y, piece, kind) for piece in read], kind)
    frame = hasattr(X, "iloc")  # of pandas, whose index is no column
    table = X if frame else flat(pa.table(X))
    names = [*map(str, X.columns)] if frame else table.column_names
    if y not in names:
        if frame and roots([y], names)[0] in names:  # a field, perhaps
            return split_target(in_memory(open_source(X)), y)
        raise SchemaError(f"no column {y!r} in X; its columns are {names}" + meant_column(y, names))
    if frame:
        at = names.index(y)
        return X.iloc[:, [j for j in range(len(names)) if j != at]], X.iloc[:, at]
    return table.drop_columns([y]), table.column(y)


def check_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as a two-dimensional array of numbers, checked for an `Estimator`.

    Its class attributes say whether NaN and sparse matrices are welcome. `reset` says whether to
    set `n_features_in_` and `feature_names_in_` (fit), or to check X against them. The array has
    booleans, integers or floats, in any memory layout; sparse input becomes CSR.

    Raises ValueError for a wrong shape, no rows, no features, wrong names, complex or non-finite
    numbers, text; the message names the column and row where there is one. Raises TypeError for
    sparse input that is not welcome, and cells that are not numbers.
    """
    owner = type(estimator).__name__
    refuse(
        engine_opener(X) is not None,
        f"{owner} takes arrays as a whole, and workers hold these rows: compute them first, or use "
        "a model of tables, such as NaiveBayes",
    )
    refuse(
        not (is_array(X) or isinstance(X, np.ndarray) or hasattr(X, "__arrow_c_stream__")),
        f"{owner} takes arrays and data frames, not a {type(X).__name__}: read it into one; or "
        "use fastbayes.NaiveBayes, which takes files and streams",
    )
    if hasattr(X, "__arrow_c_stream__") and not hasattr(X, "__array__"):
        X = pa.table(X)
    names = feature_names(X)
    if not reset:
        _check_names(getattr(estimator, "feature_names_in_", None), names, owner)
    array = _csr(estimator, X) if is_sparse(X) else _dense(X, names, owner)
    n_rows, n_features = array.shape
    if n_rows == 0:
        raise DataError(
            f"Found array with 0 sample(s) (shape={array.shape}) while a minimum of 1 is required "
            f"by {owner}."
        )
    if n_features == 0:
        raise DataError(
            f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is "
            f"required by {owner}."
        )
    if not reset and n_features != estimator.n_features_in_:
        raise DataError(
            f"X has {n_features} features, but {owner} is expecting {estimator.n_features_in_} "
            "features as input."
        )
    _check_finite(array, names, estimator)
    if reset:
        estimator._set_features(names, n_features)
    return array


def _check_names(fitted: Any, names: NDArray[np.object_] | None, owner: str) -> None:
    if fitted is None or names is None:
        if names is not None:
            warn(f"X has feature names, but {owner} was fitted without feature names")
        elif fitted is not None:
            warn(f"X does not have valid feature names, but {owner} was fitted with feature names")
        return
    if len(fitted) == len(names) and bool((fitted == names).all()):
        return
    message = "The feature names should match those that were passed during fit.\n"
    unseen, gone = sorted(set(names) - set(fitted)), sorted(set(fitted) - set(names))
    if unseen:
        message += "Feature names unseen at fit time:\n" + _listed(unseen)
    if gone:
        message += "Feature names seen at fit time, yet now missing:\n" + _listed(gone)
    if not unseen and not gone:
        message += "Feature names must be in the same order as they were in fit.\n"
    raise SchemaError(message)


def _listed(names: list[str]) -> str:
    return "".join(f"- {name}\n" for name in names[:5]) + ("- ...\n" if len(names) > 5 else "")


def _csr(estimator: Any, X: Any) -> Any:
    if not estimator._accept_sparse:
        raise TypeError(
            f"Sparse data was passed, but {type(estimator).__name__} needs dense data. Use "
            "'.toarray()' to convert to a dense numpy array."
        )
    if X.dtype.kind == "c":
        raise DataError(f"Complex data not supported: X has dtype {X.dtype}")
    if X.ndim != 2:
        raise DataError(
            f"Expected 2D input, got input with shape {X.shape}. Reshape your data using "
            "array.reshape(1, -1) if it contains a single sample."
        )
    X = X.tocsr()
    if not X.has_canonical_format:  # cells given in parts are one number
        X = X.copy()
        X.sum_duplicates()
    return X


def _dense(X: Any, names: NDArray[np.object_] | None, owner: str) -> NDArray[Any]:
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    elif hasattr(X, "iloc") and hasattr(X, "dtypes"):
        kinds = [X.dtype] if hasattr(X, "dtype") else list(X.dtypes)
        if not all(isinstance(kind, np.dtype) for kind in kinds):  # pandas' own types
            X = _numbers(X.to_numpy(dtype=object, na_value=np.nan), names)
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise DataError(f"Complex data not supported: X has dtype {array.dtype}")
    if array.ndim < 2:
        was = "scalar" if array.ndim == 0 else f"{array.ndim}D"
        raise DataError(
            f"Expected 2D array, got {was} array instead. Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if "
            "it contains a single sample."
        )
    if array.ndim > 2:
        raise DataError(f"Found array with dim {array.ndim}, while dim <= 2 is required.")
    if array.dtype.kind in "MmV":
        raise DataError(f"X has dtype {array.dtype}, which is no number; cast it to one")
    return array if array.dtype.kind in "buif" else _numbers(array, names)


def _numbers(array: NDArray[Any], names: NDArray[np.object_] | None) -> NDArray[np.float64]:
    try:
        return array.astype(np.float64)
    except (ValueError, TypeError):
        for (row, column), cell in np.ndenumerate(array):
            where = f"column {_called(names, column)}, row {row}"
            try:
                float(cell)
            except ValueError as error:
                raise DataError(
                    f"{where}: {cell!r} is not a number; encode text as numbers, or use "
                    "fastbayes.NaiveBayes"
                ) from error
            except TypeError as error:
                raise CellTypeError(
                    f"{where}: argument must be a string or a real number, not "
                    f"{type(cell).__name__!r}; make columns of numbers of it, or use "
                    "fastbayes.NaiveBayes"
                ) from error
        raise


def _called(names: NDArray[np.object_] | None, column: int) -> str:
    return str(column) if names is None else repr(names[column])


def _check_finite(array: Any, names: NDArray[np.object_] | None, estimator: Any) -> None:
    sparse = is_sparse(array)
    values = array.data if sparse else array
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    for start in range(0, len(values), ROWS):
        block = values[start : start + ROWS]
        wrong = np.isinf(block) if estimator._allow_nan else ~np.isfinite(block)
        if not wrong.any():
            continue
        if sparse:
            place = start + int(wrong.argmax())
            row = int(np.searchsorted(array.indptr, place, side="right")) - 1
            column = int(array.indices[place])
            value = values[place]
        else:
            at, column = (int(i) for i in np.argwhere(wrong)[0])
            row, value = start + at, block[at, column]
        where = f"column {_called(names, column)}, row {row}"
        if np.isnan(value):
            raise DataError(
                f"Input X contains NaN: {where}. {type(estimator).__name__} does not accept "
                "missing values; fill them in, or use fastbayes.NaiveBayes, which does."
            )
        raise DataError(
            f"Input X contains infinity or a value too large for {values.dtype!r}: {where}; "
            "replace it by a finite number."
        )


def require_labels(who: str, y: Any) -> None:
    """Raise DataError, in the words that scikit-learn looks for, where no labels are given."""
    refuse(y is None, f"{who} requires y to be passed, but the target y is None.")


def check_labels(estimator: Any, y: Any, known: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return y as a one-dimensional array of class labels.

    They are booleans, integers, whole floats or strings, or any floats where labels that are
    `known` are floats; an array of objects holds one of these, too. A single column is flattened
    with scikit-learn's `DataConversionWarning`.
    """
    require_labels(f"This {type(estimator).__name__} estimator", y)
    array = np.asarray(worded(y))
    listed = array.dtype.kind == "U" and isinstance(y, (list, tuple))
    if listed and any(isinstance(label, str) and label.endswith("\0") for label in y):
        array = np.asarray(y, dtype=object)  # numpy takes NUL for the end of a text
    if array.ndim == 2 and array.shape[1] == 1:
        modules = sys.modules.get("sklearn.exceptions")
        warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape "
            "of y to (n_samples, ), for example using ravel().",
            FastBayesWarning if modules is None else modules.DataConversionWarning,
        )
        array = array.reshape(-1)
    if array.ndim != 1:
        raise DataError(f"y should be a 1d array, got an array of shape {array.shape} instead.")
    hidden = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else np.False_
    if hidden.any():
        row = int(hidden.argmax())
        raise DataError(
            f"Input y contains NaN: row {row} is masked; leave out rows without a class."
        )
    if array.dtype.kind == "O":
        array = _native_labels(array)
    kind = array.dtype.kind
    if kind in "buiU":
        return array
    if kind == "c":
        raise DataError(f"Complex data not supported: y has dtype {array.dtype}")
    if kind == "f":
        wrong = ~np.isfinite(array)
        if wrong.any():
            row = int(wrong.argmax())
            what = "NaN" if np.isnan(array[row]) else "infinity"
            raise DataError(f"Input y contains {what}: row {row}; leave out rows without a class.")
        if known is not None and known.dtype.kind == "f":
            return array
        if (array != np.trunc(array)).any():
            raise DataError(
                "Unknown label type: continuous. Maybe you are trying to fit a classifier, which "
                "expects discrete classes on a regression target with continuous values."
            )
        return array
    if kind == "O":
        _check_strings(array)
        return array
    raise DataError(f"Unknown label type: y has dtype {array.dtype}; use integers or strings.")


def _check_strings(labels: NDArray[Any]) -> None:
    if set(map(type, labels)) <= {str, np.str_}:
        return
    for row, label in enumerate(labels):
        if is_missing(label):
            raise DataError(f"Input y contains NaN: row {row}; leave out rows without a class.")
        if not isinstance(label, str):
            raise DataError(
                f"Unknown label type: y has {label!r} of type {type(label).__name__} in row "
                f"{row}; use integers or strings."
            )


def declared_classes(classes: Any) -> list[Any]:
    """Return the classes that are known beforehand, each once.

    They are a list, a tuple or an array of one dimension, of values of one kind: text, truth values
    or numbers. Raises DataError, which names the value, where they are not.
    """
    remedy = "pass a list of all classes, as ['no', 'yes']"
    if isinstance(classes, (pa.Array, pa.ChunkedArray)):
        values = classes.to_pylist()
    elif isinstance(classes, Sequence) and not isinstance(classes, (str, bytes)):
        values = [item.item() if isinstance(item, np.generic) else item for item in classes]
    elif np.ndim(classes) == 1:
        values = (classes if isinstance(classes, np.ndarray) else np.asarray(classes)).tolist()
    else:
        given = reprlib.repr(classes)
        raise DataError(f"classes={given} is no list of values; {remedy}")
    first = next(iter(values), None)
    for place, value in enumerate(values):
        what = f"classes: {reprlib.repr(value)} at place {place}"
        if is_missing(value):
            raise DataError(f"{what} is a missing value, which is no class; leave it out")
        if np.ndim(value) or isinstance(value, (dict, set)):
            raise DataError(f"{what} is no single value; {remedy}")
        if _kind_of_label(value) != _kind_of_label(first):
            raise DataError(
                f"{what} is of another kind than {first!r}; write all classes as text, or all as "
                "numbers, as the rows have them"
            )
        if isinstance(value, float) and math.isinf(value):
            raise DataError(f"{what} is infinite, which is no class; leave it out")
    return list(dict.fromkeys(values))


def _kind_of_label(value: Any) -> type:
    """Return the type of a label, of which all numbers have one, and all texts."""
    if is_number(value):
        return float
    return str if isinstance(value, str) else type(value)


def encode_labels(
    labels: NDArray[Any], classes: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[np.unsignedinteger]]:
    """Return the sorted classes, and the code of each label as uint8 or uint16.

    `classes` are those that may occur, sorted; None takes those that do. A label that is not among
    them, and more than 65,536 classes, are an error.
    """
    found, codes = _unique(labels)
    if classes is not None and not np.array_equal(found, classes):
        places = np.searchsorted(classes, found)
        inside = places < len(classes)
        inside[inside] = classes[places[inside]] == found[inside]
        if not inside.all():
            raise DataError(
                f"The target label(s) {found[~inside]} in y do not exist in the initial classes "
                f"{classes}"
            )
        codes = places[codes]
    known = found if classes is None else classes
    if len(known) > 65_536:
        raise DataError(f"y has {len(known)} classes; at most 65536 are supported")
    return known, codes.astype(code_type(len(known)), copy=False)


def _unique(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return what `np.unique(labels, return_inverse=True)` does, but without sorting the rows."""
    if labels.dtype.kind in "OU":
        encoded = pa.array(labels, type=pa.string()).dictionary_encode()
        found = labels_of(encoded.dictionary)
        order = np.argsort(found)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return found[order], rank[encoded.indices.to_numpy()]
    if len(labels) and abs(float(labels.min())) < 1 << 52 and abs(float(labels.max())) < 1 << 52:
        whole = labels.astype(np.int64, copy=False)
        least, most = int(whole.min()), int(whole.max())
        if most - least < max(256, min(len(labels), 1 << 20)):
            shifted = whole - least
            seen = np.bincount(shifted) > 0
            found = (np.flatnonzero(seen) + least).astype(labels.dtype)
            return found, (np.cumsum(seen) - 1)[shifted]
    found, codes = np.unique(labels, return_inverse=True)
    return found, codes


def check_length(X: Any, y: Any) -> None:
    """Raise DataError where rows, or so many of them, are not as many as labels or weights."""
    n_rows = int(X) if np.ndim(X) == 0 else int(X.shape[0])
    if n_rows != len(y):
        raise DataError(
            f"Found input variables with inconsistent numbers of samples: {[n_rows, len(y)]}"
        )


def check_weight(
    sample_weight: Any, n_rows: int, *, allow_zero: bool = False
) -> NDArray[np.float64] | None:
    """Return (n_rows,) weights as float64, C-contiguous; None where every row weighs 1.

    They are finite numbers that are not negative, or one number for all rows; not all of them may
    be 0, unless `allow_zero` says so for a batch of many.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, np.ma.MaskedArray):
        sample_weight = np.ma.filled(sample_weight.astype(np.float64), np.nan)
    weight = np.asarray(sample_weight)
    if weight.ndim == 0:
        weight = np.full(n_rows, weight)
    if weight.ndim != 1:
        raise DataError(
            f"Sample weights must be 1D array or scalar, got {weight.ndim}D array. Expected "
            f"either a scalar value or a 1D array of length {n_rows}."
        )
    if weight.shape != (n_rows,):
        raise DataError(f"sample_weight.shape == {weight.shape}, expected {(n_rows,)}!")
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    wrong = ~((weight >= LEAST) & (weight <= GREATEST) | (weight == 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"sample_weight: row {row} weighs {weight[row]}; weights must be finite and not "
            f"negative, {GREATEST:g} at most, and {LEAST:.3g} at least if not 0"
        )
    if not allow_zero and not weight.any():
        raise DataError(
            "Sample weights must contain at least one non-zero number: every weight is zero"
        )
    return weight
