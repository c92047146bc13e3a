"""Class labels and weights at the door: checked once, then codes and float64."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import GREATEST
from fastbayes.core.errors import DataError, FastBayesWarning
from fastbayes.core.warn import warn


def check_labels(estimator: Any, y: Any) -> NDArray[Any]:
    """Return y as a one-dimensional array of class labels.

    Parameters
    ----------
    estimator
        Who asks, for the messages.
    y
        (n_rows,) booleans, integers, whole floats or strings; a single column is flattened with
        scikit-learn's `DataConversionWarning`.

    Returns
    -------
    numpy.ndarray
        (n_rows,) labels; an array of objects holds nothing but strings.

    Raises
    ------
    ValueError
        When y is None, has another shape, has missing or non-finite labels, or continuous ones.
    """
    if y is None:
        raise DataError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y "
            "is None."
        )
    array = np.asarray(y)
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
        if label is None or label != label:
            raise DataError(f"Input y contains NaN: row {row}; leave out rows without a class.")
        if not isinstance(label, str):
            raise DataError(
                f"Unknown label type: y has {label!r} of type {type(label).__name__} in row "
                f"{row}; use integers or strings."
            )


def encode_labels(
    labels: NDArray[Any], classes: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[np.unsignedinteger]]:
    """Return the sorted classes and the code of each label.

    Parameters
    ----------
    labels
        (n_rows,) labels from `check_labels`.
    classes
        The classes that may occur, sorted; None to take those that do.

    Returns
    -------
    tuple
        Classes (n_classes,), and codes (n_rows,) as uint8 or uint16.

    Raises
    ------
    ValueError
        When a label is not among the given classes, or there are more than 65,536 classes.
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
    return known, codes.astype(np.uint8 if len(known) <= 256 else np.uint16, copy=False)


def _unique(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return what `np.unique(labels, return_inverse=True)` does, but without sorting the rows."""
    if labels.dtype.kind in "OU":
        encoded = pa.array(labels, type=pa.string()).dictionary_encode()
        found = np.array(encoded.dictionary.to_pylist(), dtype=np.str_)
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
    """Raise where features, labels or weights are not of one length.

    Parameters
    ----------
    X
        Anything with a shape.
    y
        (n_rows,) labels.

    Raises
    ------
    ValueError
        When the lengths differ; the message gives both.
    """
    if X.shape[0] != len(y):
        raise DataError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[int(X.shape[0]), len(y)]}"
        )


def check_weight(
    sample_weight: Any, n_rows: int, *, allow_zero: bool = False
) -> NDArray[np.float64] | None:
    """Return weights as float64, None where every row weighs 1.

    Parameters
    ----------
    sample_weight
        (n_rows,) finite numbers that are not negative, one number for all rows, or None.
    n_rows
        How many there must be.
    allow_zero
        Whether all of them may be 0 (a batch of many), instead of an error.

    Returns
    -------
    numpy.ndarray or None
        (n_rows,), C-contiguous.

    Raises
    ------
    ValueError
        When the shape is wrong, a weight is negative or not finite, naming its row, or all are 0.
    """
    if sample_weight is None:
        return None
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
    wrong = ~((weight >= 0) & (weight <= GREATEST))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"sample_weight: row {row} weighs {weight[row]}; weights must be finite and not "
            f"negative, {GREATEST:g} at most"
        )
    if not allow_zero and not weight.any():
        raise DataError(
            "Sample weights must contain at least one non-zero number: every weight is zero"
        )
    return weight
