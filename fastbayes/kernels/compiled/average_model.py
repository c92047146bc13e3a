"""What AODE's kernels start from: naive Bayes, super-parents' weights, and when neither will do."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.average_plan import TooWide
from fastbayes.kernels.compiled.log_joint import ColumnSum, NaiveScorer
from fastbayes.kernels.dispatch import numpy_twin, readonly
from fastbayes.kernels.shared.arrays import Floats, Ints

T = TypeVar("T")


class AverageTables(Generic[T]):
    """AODE as it was given, in the terms of its kernels.

    `made(model, extents, dtype, joined)` makes tables of lifts for so many codes of each feature,
    of children joined or one by one, or raises TooWide.
    """

    def __init__(
        self,
        prior: Floats,
        tables: Floats,
        offsets: Ints,
        own: Floats,
        weight: Floats,
        children: Callable[[int], Floats],
        fast: bool,
        made: Callable[[AverageTables[T], Ints, type[np.floating], bool], T],
    ) -> None:
        self.prior, self.offsets = prior, readonly(offsets)
        self.sizes = np.diff(offsets) - 2
        given = prior, tables, offsets, own, weight, children
        self.slow = numpy_twin("averages").AverageScorer(*given)
        self._bayes = NaiveScorer(prior, tables, offsets)
        # Any positive reference will do; with naive Bayes' lifts are near 1.
        self.reference = np.where(np.isfinite(tables), tables, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            self.inverse = readonly(np.exp(-self.reference))
            self.first = readonly(weight[:, None] * own * self.inverse)
        by_feature = [weight[begin:end] for begin, end in itertools.pairwise(offsets)]
        parents = [p for p, some in enumerate(by_feature) if some.any()]
        # Where all values of a feature weigh the same, so do all rows of known values.
        known = [some[:-2] for some in by_feature if len(some) > 2]
        alike = all((some == some[0]).all() for some in known)
        self._fixed = sum(float(some[0]) for some in known) if alike else 0.0
        self.parents = readonly(np.array(parents, np.int64))
        nothing = np.empty((0, 4, 1))
        self._weights = ColumnSum(np.zeros(1), weight[:, None], offsets, nothing, np.float64)
        self._children, self._fast, self._make = children, fast, made
        self._made: dict[int, T | None] = {}
        self._lock = threading.Lock()
        self.kept = 0  # bytes of the tables made

    def children(self, p: int) -> Floats:
        """Return P(x_j | c, x_p), (S_p + 2, n_slots, n_classes)."""
        return readonly(np.asarray(self._children(p), np.float64))

    def lifts(self, level: int) -> T | None:
        """Return tables for codes up to a level, or None where products would not do.

        Parameters
        ----------
        level
            0 for values, 1 for missing too, 2 for unseen too.
        """
        with self._lock:
            if level not in self._made:
                self._made[level] = self._lifts(np.maximum(self.sizes + level, 1))
            return self._made[level]

    def _lifts(self, extents: Ints) -> T | None:
        if not (len(self.parents) and np.isfinite(self.inverse).all()):
            return None
        # First what is fastest: float32, tables of several children, then of one.
        for dtype, joined in ((np.float32, True), (np.float64, True), (np.float64, False)):
            if dtype is np.float64 or self._fast:
                try:
                    return self._make(self, readonly(extents), dtype, joined)
                except TooWide:
                    continue
        return None

    def weights(self, batch_codes: Sequence[Codes], n_rows: int, level: int) -> Floats:
        """Return Σ_p u_p of each row, or (1,) where it is the same for all rows of this level."""
        if level == 0 and self._fixed > 0:
            return np.array([self._fixed])
        result = np.empty(n_rows)
        for lo, n, acc in self._weights.blocks(batch_codes, (), n_rows):
            result[lo : lo + n] = acc[0, :n]
        return result

    def naive(self, batch_codes: Sequence[Codes], rows: Ints) -> Floats:
        """Return the log joints of naive Bayes of these rows, (n, n_classes)."""
        some = [Codes(g.features, np.take(g.codes, rows, axis=1), g.sizes) for g in batch_codes]
        out = np.empty((len(rows), len(self.prior)))
        self._bayes.log_joint(some, (), out)
        return out
