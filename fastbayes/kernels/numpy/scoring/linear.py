"""Scoring of linear models in numpy: the twin of `compiled.linear`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.numpy.scoring.log_joint import NaiveScorer
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.scoring import on_line, with_pairs


class LinearModelScorer(NaiveScorer):
    """Scores, posteriors and predictions of a linear model; immutable, thread-safe.

    Parameters
    ----------
    prior
        (n_classes,) what every row has.
    tables
        (n_slots, n_classes); each feature has S_j + 2 rows, its values, missing, unseen, and after
        them each pair (S_a + 2)(S_b + 2).
    offsets
        (n_categorical + n_pairs + 1,) first row of each feature and each pair in `tables`.
    center
        (n_numeric,) finite.
    slope, level, absent
        (n_numeric, n_classes): a number x adds slope (x - center) + level, a missing one absent.
    pairs
        Features whose values together have a row: that of code a and b is a (S_b + 2) + b.

    Notes
    -----
    A number further than 1e100 from its center is taken to be there: sums are finite.
    """

    def __init__(
        self,
        prior: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        center: Floats,
        slope: Floats,
        level: Floats,
        absent: Floats,
        pairs: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(prior, tables, offsets)
        self._pairs = tuple(pairs)
        self._center = np.array(center, np.float64)
        self._lines = np.array([slope, level, absent], np.float64)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write the score of every row and class into `out` (n_rows, n_classes)."""
        super().log_joint(with_pairs(batch_codes, self._offsets, self._pairs), (), out)
        lines = self._lines.swapaxes(0, 1)
        for x, center, line in zip(numeric, self._center, lines, strict=True):
            out += on_line(x, center, *line)
