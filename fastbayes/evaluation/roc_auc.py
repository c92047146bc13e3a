"""The area under the ROC curve of rows that come in batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Scores kept for exact ranks (32 MiB), and bytes of the histograms that take their place.
EXACT_SCORES = 2**22
HISTOGRAM_BYTES = 2**26


class RocAuc:
    """What an AUC needs: the scores of each class, or histograms of them.

    Bins follow the bits of p up to 1/2 and of 1 - p above it, so that they are fine where
    posteriors pile up; scores that share a bin count as tied. The first and the last bin hold 0
    and 1 alone.
    """

    def __init__(self, n_classes: int) -> None:
        # Two classes rank the same rows in reverse: one score tells both.
        self._columns = range(1, 2) if n_classes == 2 else range(n_classes)
        self._kept: list[tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]] = []
        self._n_kept = 0
        self._histograms: NDArray[np.float64] | None = None
        cells = HISTOGRAM_BYTES / (16 * 1076 * max(1, len(self._columns)))
        self._mantissa_bits = int(np.clip(math.log2(cells), 0, 7))

    @property
    def exact(self) -> bool:
        """Whether all scores are kept."""
        return self._histograms is None

    def update(
        self, p: NDArray[np.float64], truth: NDArray[np.intp], weight: NDArray[np.float64]
    ) -> None:
        """Add rows: (n, n_classes) probabilities, (n,) class codes, (n,) weights."""
        self._add(p[:, self._columns.start : self._columns.stop].copy(), truth, weight)
        self._settle()

    def merge(self, other: RocAuc) -> None:
        """Add the rows of another."""
        if other._histograms is not None:
            self._to_histograms()
            assert self._histograms is not None
            self._histograms += other._histograms
        for part in list(other._kept):
            self._add(*part)
        self._settle()

    def auc(self) -> tuple[float, float]:
        """Return the mean AUC over the classes that have one, and the bound of its error."""
        areas = []
        if self._histograms is not None:
            areas = [_area(*sides) for sides in self._histograms]
        elif self._kept:
            scores, truth, weight = (np.concatenate(part) for part in zip(*self._kept, strict=True))
            for own, c in zip(scores.T, self._columns, strict=True):
                if (weight == 1).all():
                    areas.append((_unweighted(own, truth == c), 0.0))
                else:
                    group = np.unique(own, return_inverse=True)[1]
                    sides = (np.bincount(group, weight * side) for side in (truth == c, truth != c))
                    areas.append((_area(*sides)[0], 0.0))
        known = [pair for pair in areas if not math.isnan(pair[0])]
        area, error = np.mean(known, axis=0).tolist() if known else (math.nan, 0.0)
        return area, error

    def _add(
        self, scores: NDArray[np.float64], truth: NDArray[np.intp], weight: NDArray[np.float64]
    ) -> None:
        if self._histograms is None:
            self._kept.append((scores, truth, weight))
            self._n_kept += scores.size
            return
        for i, c in enumerate(self._columns):
            bins = self._bin(scores[:, i])
            for side, members in zip(self._histograms[i], (truth == c, truth != c), strict=True):
                side += np.bincount(bins, weight * members, len(side))

    def _settle(self) -> None:
        if self._n_kept > EXACT_SCORES:
            self._to_histograms()

    def _to_histograms(self) -> None:
        if self._histograms is None:
            n_bins = int(self._bin(np.ones(1))[0]) + 1
            self._histograms = np.zeros((len(self._columns), 2, n_bins))
            kept, self._kept, self._n_kept = self._kept, [], 0
            for part in kept:
                self._add(*part)

    def _bin(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return bins that rise with the score: exponent and leading mantissa bits."""
        shift = 52 - self._mantissa_bits
        half = int(np.float64(0.5).view(np.int64)) >> shift
        # 1 - p is 0 or at least 2**-53.
        least = int(np.float64(2.0**-54).view(np.int64)) >> shift
        low = np.abs(np.minimum(scores, 0.5)).view(np.int64) >> shift  # abs: -0.0 is 0
        high = np.clip(1 - scores, 0, 0.5).view(np.int64) >> shift
        return np.where(scores <= 0.5, low + (scores > 0), 2 * half + 2 - np.maximum(high, least))


def _unweighted(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the AUC of rows that weigh 1 each."""
    above, below = np.sort(scores[positive]), np.sort(scores[~positive])
    if not (len(above) and len(below)):
        return math.nan
    lower, upper = (np.searchsorted(below, above, side=side) for side in ("left", "right"))
    return float(lower.sum() + upper.sum()) / 2 / (len(above) * len(below))


def _area(positive: NDArray[Any], negative: NDArray[Any]) -> tuple[float, float]:
    """Return the AUC of weights by bin of rising score, and what shared bins can hide of it.

    The area is the chance that a positive row scores above a negative one, ties counting half
    (Hanley and McNeil 1982). In the first and the last bin ties are real.
    """
    pairs = positive.sum() * negative.sum()
    if not pairs > 0:
        return math.nan, 0.0
    below = np.cumsum(negative) - negative
    area = (positive @ below + positive @ negative / 2) / pairs
    return float(area), float(positive[1:-1] @ negative[1:-1] / 2 / pairs)
