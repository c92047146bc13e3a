"""Arithmetic on log joints, row by row, where -inf is a value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Up to so many classes, one numpy call per class beats numpy's reductions of short rows.
FEW_CLASSES = 16
FEW_TO_COMPARE = 4


def settle(joint: Floats, log_prior: Floats) -> None:
    """Give every row of log joints, (n_rows, n_classes) nats, a finite maximum, in place.

    A row that is -inf in every class gets the prior; where classes are +inf they share it.
    """
    top = row_max(joint)
    lost = ~np.isfinite(top)
    if lost.any():
        certain = np.where(np.isposinf(joint[lost]), 0.0, -np.inf)
        joint[lost] = np.where(np.isposinf(top[lost])[:, None], certain, log_prior)


def normalise(joint: Floats, log_prior: Floats) -> None:
    """Turn (n_rows, n_classes) log joints into log posteriors, in place; as in `settle`."""
    settle(joint, log_prior)
    joint -= row_max(joint)[:, None]
    joint -= np.log(row_sum(np.exp(joint)))[:, None]


def log_sum_exp(joint: Floats) -> Floats:
    """Return the log of the sum of the exponentials of each row, none +inf; -inf of -inf."""
    top = row_max(joint)
    safe = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(row_sum(np.exp(joint - safe[:, None]))))


def row_max(joint: Floats) -> Floats:
    """Return the largest number of each row, (n_rows,)."""
    return _reduced(np.maximum, joint)


def row_sum(joint: Floats) -> Floats:
    """Return the sum of each row, (n_rows,)."""
    return _reduced(np.add, joint)


def _reduced(operation: np.ufunc, joint: Floats) -> Floats:
    if joint.shape[1] > FEW_CLASSES:
        return np.asarray(operation.reduce(joint, axis=1))
    result = joint[:, 0].copy()
    for c in range(1, joint.shape[1]):
        operation(result, joint[:, c], out=result)
    return result


def row_argmax(joint: Floats) -> NDArray[np.intp]:
    """Return the index of the largest number of each row, the first of equals, (n_rows,)."""
    if joint.shape[1] > FEW_TO_COMPARE:
        return joint.argmax(axis=1)
    best, top = np.zeros(len(joint), np.intp), joint[:, 0].copy()
    for c in range(1, joint.shape[1]):
        better = joint[:, c] > top
        best[better] = c
        np.maximum(top, joint[:, c], out=top)
    return best
