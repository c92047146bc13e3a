"""From log joints to posteriors and classes, for whatever has log joints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.shared.arrays import Floats


class JointScorer:
    """Posteriors and predictions of what has log joints.

    Parameters
    ----------
    log_prior
        (n_classes,) nats: what a row gets that no class can have made.
    tie
        Log joints this close to the best are equal to it.
    """

    def __init__(self, log_prior: Floats, tie: float) -> None:
        self._log_prior = log_prior
        self._tie = tie

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write the log joint of every row and class into `out` (n_rows, n_classes)."""
        raise NotImplementedError

    def _compared(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write log joints up to a constant of each row: all that the answers below depend on."""
        self.log_joint(batch_codes, numeric, out)

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> int:
        """Write P(c | x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        self._compared(batch_codes, numeric, out)
        return to_posterior(out.T, self._log_prior, self._tie, out)

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        n_classes = len(self._log_prior)
        joint = np.empty((len(out), n_classes))
        self._compared(batch_codes, numeric, joint)
        return to_class(joint.T, self._log_prior, self._tie, n_classes, out)


def to_posterior(acc: Floats, start: Floats, tie: float, out: Floats) -> int:
    """Turn log joints into posteriors and return how many rows took the prior.

    Parameters
    ----------
    acc
        (n_classes or more, n_rows or more) log joints, overwritten; or (1, n_rows or more) log
        odds of class 1 over class 0, NaN where both are impossible.
    start
        (n_classes,) log prior, or (1,) its log odds: stands in where every class is impossible.
    tie
        Log joints this close to the best are equal to it.
    out
        (n_rows, n_classes) overwritten with P(c | x).

    Returns
    -------
    int
        Rows that took the prior.
    """
    behind, lost = _behind(acc, start, tie, out.shape[1], len(out))
    np.exp(behind.T, out=out)
    out /= out.sum(axis=1, keepdims=True)
    return lost


def to_class(acc: Floats, start: Floats, tie: float, n_classes: int, out: NDArray[np.intp]) -> int:
    """Turn log joints into the lowest of the best classes and return how many took the prior's.

    Parameters
    ----------
    acc
        (n_classes or more, n_rows or more) log joints; or (1, n_rows or more) log odds of class
        1 over class 0, NaN where both are impossible.
    start
        (n_classes,) log prior, or (1,) its log odds: stands in where every class is impossible.
    tie
        Log joints this close to the best are equal to it.
    n_classes
        Tells the log joint of a single class from log odds.
    out
        (n_rows,) overwritten with class indices.

    Returns
    -------
    int
        Rows that took the prior.
    """
    behind, lost = _behind(acc, start, tie, n_classes, len(out))
    np.argmax(behind == 0, axis=0, out=out)
    return lost


def to_rows(acc: Floats, out: Floats) -> None:
    """Write log joints row by row.

    Parameters
    ----------
    acc
        (n_classes or more, n_rows or more) log joints.
    out
        (n_rows, n_classes) overwritten with them.
    """
    out[:] = acc[: out.shape[1], : len(out)].T


def normalise(weights: Floats, prior: Floats, tie: float, out: Floats) -> int:
    """Turn weights into posteriors and return how many rows took the prior.

    Parameters
    ----------
    weights
        (n_rows or more, n_classes or more) joint probabilities, up to a factor of each row; 0
        beyond the classes.
    prior
        (n_classes,) of the classes, 1 at its largest: stands in where every weight is 0.
    tie
        Weights this much less than the largest, relatively, are equal to it.
    out
        (n_rows, n_classes) overwritten with P(c | x).

    Returns
    -------
    int
        Rows that took the prior.
    """
    evened, lost = _evened(weights[: len(out)], prior, tie)
    np.divide(evened, evened.sum(axis=1, keepdims=True), out=out)
    return lost


def heaviest(weights: Floats, prior: Floats, tie: float, out: NDArray[np.intp]) -> int:
    """Turn weights into the lowest of the largest ones' classes; see `normalise`.

    Parameters
    ----------
    weights, prior, tie
        As in `normalise`.
    out
        (n_rows,) overwritten with class indices.

    Returns
    -------
    int
        Rows that took the prior's.
    """
    evened, lost = _evened(weights[: len(out)], prior, tie)
    np.argmax(evened, axis=1, out=out)
    return lost


def to_labels(which: NDArray[np.intp], labels: NDArray[Any], out: NDArray[Any]) -> None:
    """Write the labels of class indices.

    Parameters
    ----------
    which
        (n_rows,) class indices.
    labels
        (n_classes,) of any type.
    out
        (n_rows,) overwritten with labels.
    """
    labels.take(which, out=out, mode="clip")  # "raise" would take a copy


def _evened(weights: Floats, prior: Floats, tie: float) -> tuple[Floats, int]:
    """Return weights, 1 being the largest and what ties with it, and the rows of the prior."""
    own = weights[:, : len(prior)]
    lost = (own == 0).all(axis=1)
    own = np.where(lost[:, None], prior, own)
    best = own.max(axis=1, keepdims=True)
    return np.where(own < best * (1.0 - tie), own / best, 1.0), int(lost.sum())


def _behind(
    acc: Floats, start: Floats, tie: float, n_classes: int, n_rows: int
) -> tuple[Floats, int]:
    """Return how far each class is behind the best, 0 at most, and the rows of the prior."""
    joint = acc[: len(start), :n_rows]
    odds = len(start) < n_classes
    lost = np.isnan(joint[0]) if odds else np.isneginf(joint).all(axis=0)
    joint = np.where(lost, start[:, None], joint)
    if odds:
        joint = np.concatenate([np.minimum(-joint, 0.0), np.minimum(joint, 0.0)])
    behind = joint - joint.max(axis=0)
    behind[behind >= -tie] = 0.0
    return behind, int(lost.sum())
