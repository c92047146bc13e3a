"""The area under the ROC curve of rows that come in batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import code_type, code_width

# Scores kept for exact ranks (32 MiB), and bytes of the histograms that take their place.
EXACT_SCORES = 2**22
HISTOGRAM_BYTES = 2**26
# Bytes of the least histogram of a class: two sides, a bin for each exponent.
LEAST_HISTOGRAM = 2 * 8 * 1076
# Rows whose places among others are looked for at a time.
STRETCH = 1 << 16


class ScoredRows(NamedTuple):
    """Scores of rows, their classes, and their weights; None: each weighs 1."""

    scores: NDArray[np.float64]
    truth: NDArray[np.unsignedinteger]
    weight: NDArray[np.float64] | None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self if array is not None)


class RanksNeed(NamedTuple):
    """Bytes that the ranks of so many rows take: while they are kept, and more while ranked.

    `whole` is whether all scores are kept: there are not too many.
    """

    kept: int
    ranking: int
    whole: bool

    @classmethod
    def of(cls, n_classes: int, n_rows: float, *, weighted: bool) -> RanksNeed:
        """Return the most that a model needs, or its folds together."""
        columns = len(ranked_columns(n_classes))
        n = int(min(n_rows, EXACT_SCORES // max(1, columns)))
        row = 8 * columns + code_width(n_classes) + 8 * weighted
        return cls(n * row, n * (64 if weighted else 16), n == n_rows)


def ranked_columns(n_classes: int) -> range:
    """Return the classes whose scores are ranked.

    Two classes rank the same rows in reverse: one score tells both.
    """
    return range(1, 2) if n_classes == 2 else range(n_classes)


class RocAuc:
    """What an AUC needs: the scores of each class, or histograms of them.

    Bins follow the bits of p up to 1/2 and of 1 - p above it, so that they are fine where
    posteriors pile up; scores that share a bin count as tied. The first and the last bin hold 0
    and 1 alone. Scores may take `room` bytes, and histograms then.
    """

    def __init__(self, n_classes: int, room: float = math.inf) -> None:
        self._columns, self._room = ranked_columns(n_classes), room
        self._class_type = code_type(n_classes)
        self._kept: list[ScoredRows] = []
        self._n_kept = self._bytes_kept = 0
        self._histograms: NDArray[np.float64] | None = None
        cells = min(HISTOGRAM_BYTES, room) / (LEAST_HISTOGRAM * max(1, len(self._columns)))
        self._mantissa_bits = int(np.clip(math.log2(cells), 0, 7))

    @property
    def exact(self) -> bool:
        """Whether all scores are kept."""
        return self._histograms is None

    def update(
        self, p: NDArray[np.float64], truth: NDArray[np.intp], weight: NDArray[np.float64]
    ) -> None:
        """Add rows: (n, n_classes) probabilities, (n,) class codes, (n,) weights."""
        scores = p[:, self._columns.start : self._columns.stop].copy()
        given = weight if (weight != 1).any() else None
        self._add(ScoredRows(scores, truth.astype(self._class_type), given))
        self._settle()

    def merge(self, other: RocAuc) -> None:
        """Add the rows of another."""
        if other._histograms is not None:
            self._to_histograms()
            assert self._histograms is not None
            self._histograms += other._histograms
        for part in list(other._kept):
            self._add(part)
        self._settle()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the rows as named arrays, which `take` adds to another."""
        if self._histograms is not None:
            return {"histograms": self._histograms}
        nothing = np.zeros((0, len(self._columns))), np.zeros(0, self._class_type)
        kept = self._kept or [ScoredRows(*nothing, None)]
        found: dict[str, NDArray[Any]] = {
            "scores": np.concatenate([part.scores for part in kept]),
            "truth": np.concatenate([part.truth for part in kept]),
        }
        if any(part.weight is not None for part in kept):
            found["weight"] = np.concatenate([_weights_of(part) for part in kept])
        return found

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add the rows of such arrays."""
        if "histograms" in arrays:
            self._to_histograms()
            self._histograms += arrays["histograms"]
        else:
            self._add(ScoredRows(arrays["scores"], arrays["truth"], arrays.get("weight")))
            self._settle()

    def auc(self) -> tuple[float, float]:
        """Return the mean AUC over the classes that have one, and the bound of its error."""
        areas = []
        if self._histograms is not None:
            areas = [_area(*sides) for sides in self._histograms]
        elif self._kept:
            areas = [(self._exact_area(i, c), 0.0) for i, c in enumerate(self._columns)]
        known = [pair for pair in areas if not math.isnan(pair[0])]
        area, error = np.mean(known, axis=0).tolist() if known else (math.nan, 0.0)
        return area, error

    def _exact_area(self, i: int, c: int) -> float:
        """Return the AUC of a class by the scores of all rows."""
        if all(part.weight is None for part in self._kept):
            sides = (
                np.concatenate([p.scores[(p.truth == c) == own, i] for p in self._kept])
                for own in (True, False)
            )
            return _unweighted(*sides)
        own = np.concatenate([part.scores[:, i] for part in self._kept])
        positive = np.concatenate([part.truth == c for part in self._kept])
        weight = np.concatenate([_weights_of(part) for part in self._kept])
        group = np.unique(own, return_inverse=True)[1]
        return _area(*(np.bincount(group, weight * side) for side in (positive, ~positive)))[0]

    def _add(self, rows: ScoredRows) -> None:
        if self._histograms is None:
            self._kept.append(rows)
            self._n_kept += rows.scores.size
            self._bytes_kept += rows.nbytes
            return
        weight = 1.0 if rows.weight is None else rows.weight
        for i, c in enumerate(self._columns):
            bins, own = self._bin(rows.scores[:, i]), rows.truth == c
            for side, members in zip(self._histograms[i], (own, ~own), strict=True):
                side += np.bincount(bins, weight * members, len(side))

    def _settle(self) -> None:
        if self._n_kept > EXACT_SCORES or self._bytes_kept > self._room:
            self._to_histograms()

    def _to_histograms(self) -> None:
        if self._histograms is None:
            n_bins = int(self._bin(np.ones(1))[0]) + 1
            self._histograms = np.zeros((len(self._columns), 2, n_bins))
            kept, self._kept, self._n_kept, self._bytes_kept = self._kept, [], 0, 0
            for part in kept:
                self._add(part)

    def _bin(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return bins that rise with the score: exponent and leading mantissa bits."""
        shift = 52 - self._mantissa_bits
        half = int(np.float64(0.5).view(np.int64)) >> shift
        # 1 - p is 0 or at least 2**-53.
        least = int(np.float64(2.0**-54).view(np.int64)) >> shift
        low = np.abs(np.minimum(scores, 0.5)).view(np.int64) >> shift  # abs: -0.0 is 0
        high = np.clip(1 - scores, 0, 0.5).view(np.int64) >> shift
        return np.where(scores <= 0.5, low + (scores > 0), 2 * half + 2 - np.maximum(high, least))


def _weights_of(rows: ScoredRows) -> NDArray[np.float64]:
    return np.ones(len(rows.truth)) if rows.weight is None else rows.weight


def _unweighted(positive: NDArray[np.float64], negative: NDArray[np.float64]) -> float:
    """Return the AUC of rows that weigh 1 each, by the scores of both sides, which it sorts."""
    pairs = len(positive) * len(negative)
    if not pairs:
        return math.nan
    positive.sort()
    negative.sort()
    # Twice the pairs that the fewer rows are above, ties counting half: whole numbers.
    few, many = sorted((positive, negative), key=len)
    above = 0
    for start in range(0, len(few), STRETCH):
        some = few[start : start + STRETCH]
        above += sum(int(np.searchsorted(many, some, side).sum()) for side in ("left", "right"))
    return (above if few is positive else 2 * pairs - above) / 2 / pairs


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
