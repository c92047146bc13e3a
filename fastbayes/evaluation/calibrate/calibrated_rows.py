"""Held-out rows that a calibration is learned from: kept, or summed up scan by scan."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.models.estimator.log_space import Floats, log_sum_exp, row_argmax

# Log posteriors that are kept (64 MiB); of more rows there are sums, in scans of their own.
MOST_KEPT = 2**23
# A probability below this counts as this in a log-loss, as in evaluations.
CLIP = 1e-15
# Bins of log odds: bits of the mantissa, and magnitudes below and above which all are one.
MANTISSA_BITS, LEAST, MOST = 7, 2.0**-12, 2.0**20


class PosteriorRows(NamedTuple):
    """Rows with their log posteriors by models that had not seen them.

    log_posterior  (n, n_classes) nats, -inf where a class is impossible
    y              (n,) class codes
    weight         (n,) weights
    """

    log_posterior: Floats
    y: NDArray[np.intp]
    weight: Floats

    def blocks(self) -> list[PosteriorRows]:
        """Return the rows in blocks, so that what is computed of them stays small."""
        starts = range(0, len(self.y), BLOCK_ROWS)
        return [self.some(slice(at, at + BLOCK_ROWS)) for at in starts]

    def some(self, which: Any) -> PosteriorRows:
        """Return the rows that an index picks."""
        return PosteriorRows(self.log_posterior[which], self.y[which], self.weight[which])


class RowBuffer:
    """The first rows, as many as fit in memory.

    Parameters
    ----------
    n_classes
        Number of classes.

    Attributes
    ----------
    complete
        Whether all rows were kept.
    """

    def __init__(self, n_classes: int) -> None:
        self._parts: list[PosteriorRows] = []
        self._room = max(MOST_KEPT // n_classes, 1)
        self._n_classes = n_classes
        self.complete = True

    def update(self, log_posterior: Floats, y: NDArray[Any], weight: Floats | None = None) -> None:
        """Add rows; those that are impossible under every class say nothing."""
        rows = possible(log_posterior, y, weight)
        if len(rows.y) > self._room:
            self.complete = False
            rows = rows.some(np.arange(self._room))
        self._room -= len(rows.y)
        self._parts.append(rows)

    def merge(self, other: RowBuffer) -> None:
        """Add the rows of another, which come after these."""
        for part in other._parts:
            self.update(*part)
        self.complete &= other.complete

    def rows(self) -> PosteriorRows:
        """Return all rows that were kept, in order."""
        empty = PosteriorRows(np.empty((0, self._n_classes)), np.empty(0, np.intp), np.empty(0))
        log_posterior, y, weight = zip(empty, *self._parts, strict=True)
        return PosteriorRows(
            np.concatenate(log_posterior), np.concatenate(y), np.concatenate(weight)
        )


class CalibrationLosses:
    """Log-loss of rows before and after a map of their posteriors.

    Parameters
    ----------
    calibration
        The map; changes log posteriors in place.

    Attributes
    ----------
    before, after
        Sums over rows of -ln P(y | x), probabilities clipped at 1e-15.
    total
        The sum of the weights.
    """

    def __init__(self, calibration: Any) -> None:
        self._map = calibration
        self.before = self.after = self.total = 0.0

    def update(self, log_posterior: Floats, y: NDArray[Any], weight: Floats | None = None) -> None:
        """Add rows; those that are impossible under every class say nothing."""
        rows = possible(log_posterior, y, weight)
        mapped = rows.log_posterior.copy()
        self._map(mapped)
        self.before += _log_loss(rows.log_posterior, rows)
        self.after += _log_loss(mapped, rows)
        self.total += float(rows.weight.sum())

    def merge(self, other: CalibrationLosses) -> None:
        """Add the rows of another."""
        self.before += other.before
        self.after += other.after
        self.total += other.total


class OddsBins:
    """Rows by their log odds of each class against the others, in bins of equal ratios.

    Parameters
    ----------
    n_classes
        Number of classes; of two only the second is looked at.
    """

    def __init__(self, n_classes: int) -> None:
        n_bins = int(_bin(np.array([MOST]))[0]) + 1
        # Weight, weight of the rows of the class, and weighted log odds.
        self._sums = np.zeros((3, 1 if n_classes == 2 else n_classes, n_bins))

    def update(self, log_posterior: Floats, y: NDArray[Any], weight: Floats | None = None) -> None:
        """Add rows; those that are impossible under every class say nothing."""
        rows = possible(log_posterior, y, weight)
        odds, members = log_odds(rows.log_posterior), of_class(rows)
        for c, (x, member) in enumerate(zip(odds.T, members.T, strict=True)):
            bins = _bin(x)
            for total, values in zip(self._sums[:, c], (1.0, member, x), strict=True):
                total += np.bincount(bins, rows.weight * values, len(total))

    def merge(self, other: OddsBins) -> None:
        """Add the rows of another."""
        self._sums += other._sums

    def curves(self) -> list[tuple[Floats, Floats, Floats]]:
        """Return mean log odds, rows of the class and rows in each bin that holds rows."""
        found = []
        for weight, members, odds in self._sums.transpose(1, 0, 2):
            used = weight > 0
            found.append((odds[used] / weight[used], members[used], weight[used]))
        return found


def possible(log_posterior: Floats, y: NDArray[Any], weight: Floats | None) -> PosteriorRows:
    """Return rows but those that weigh nothing, or are impossible under every class."""
    told = ~np.isneginf(log_posterior).all(axis=1)
    w = np.ones(len(y)) if weight is None else weight
    told &= w > 0
    rows = PosteriorRows(log_posterior, y.astype(np.intp), w)
    return rows if told.all() else rows.some(told)


def log_odds(log_posterior: Floats) -> Floats:
    """Return the log odds of each class against the others, of two classes those of the second.

    Parameters
    ----------
    log_posterior
        (n_rows, n_classes) nats, each row normalised.

    Returns
    -------
    numpy.ndarray
        (n_rows, n_classes), or (n_rows, 1) of two, between -2^20 and 2^20.
    """
    n_rows, n_classes = log_posterior.shape
    if n_classes == 2:
        odds = log_posterior[:, 1:] - log_posterior[:, :1]
    else:
        best, every = row_argmax(log_posterior), np.arange(n_rows)
        with np.errstate(divide="ignore"):  # a class that is certain
            odds = log_posterior - np.log1p(-np.exp(np.minimum(log_posterior, 0.0)))
        # What is left beside the best class has lost its digits in 1 - p.
        others = log_posterior.copy()
        others[every, best] = -np.inf
        odds[every, best] = log_posterior[every, best] - log_sum_exp(others)
    return np.asarray(np.clip(odds, -MOST, MOST))


def of_class(rows: PosteriorRows) -> NDArray[np.bool_]:
    """Return whether rows are of each class, of two classes the second; shaped like `log_odds`."""
    n_classes = rows.log_posterior.shape[1]
    wanted = np.array([1]) if n_classes == 2 else np.arange(n_classes)
    return np.asarray(rows.y[:, None] == wanted)


def _log_loss(log_posterior: Floats, rows: PosteriorRows) -> float:
    told = log_posterior[np.arange(len(rows.y)), rows.y]
    return float(-np.sum(rows.weight * np.maximum(told, np.log(CLIP))))


def _bin(odds: Floats) -> NDArray[np.int64]:
    """Return bins that rise with the log odds: sign, exponent and leading mantissa bits."""
    shift = 52 - MANTISSA_BITS
    least, most = (int(np.float64(edge).view(np.int64)) >> shift for edge in (LEAST, MOST))
    size = np.abs(odds)
    rank = np.where(size < LEAST, 0, (size.view(np.int64) >> shift) - least + 1)
    return np.asarray(np.where(odds < 0, -rank, rank) + (most - least + 1))
