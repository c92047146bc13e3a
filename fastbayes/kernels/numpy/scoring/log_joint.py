"""Scoring of naive Bayes in numpy: the twin of `compiled.log_joint`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.numpy.scoring.density import add_curve, add_student
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.kernels.shared.scoring import EXACT, Gaussian, largest_sum

# Terms that are added up at a time.
NUMBERS = 2**18


def add_each(out: Floats, terms: Floats) -> None:
    """Add terms (n_terms, n_rows, n_classes) to `out`, one after the other.

    All in one call, whatever their number: of few rows calls take longer than what they do. Not by
    a sum, which adds those of a single row in another order.
    """
    out[:] = np.add.accumulate(np.concatenate([out[None], terms]))[-1]


class NaiveScorer(JointScorer):
    """Log joints, posteriors and predictions of a naive Bayes model; immutable, thread-safe.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    tables
        (n_slots, n_classes) log likelihoods; each feature has S_j + 2 rows: its values, missing,
        unseen. -inf is a legal entry.
    offsets
        (n_categorical + 1,) first row of each feature in `tables`.
    gaussian
        None, or mean, 1/(2σ²), -½ ln(2πσ²) and what rounding took from the mean, each (n_numeric,
        n_classes). A missing value (NaN) contributes 0.
    precision
        "exact" is float64 throughout. With "fast", compiled code adds the tables of three and more
        classes in float32, which leaves an error of at most d 2⁻²³ of the largest sum of a row's
        terms.
    curves
        By its place among the numeric columns, the curves of each that is not Gaussian: for some
        classes at a time the first one, and place, bounds, ends and rows as `density.add_curve`
        takes them.
    students
        By its place among the numeric columns, Student's t of each that has it: the (5, n_classes)
        parts that `density.add_student` takes. `gaussian` describes the others.

    Notes
    -----
    Log joints of a row that differ by no more than rounding are equal: what ties on paper ties
    here whatever the order of the columns, and the lowest class wins.
    """

    def __init__(
        self,
        log_prior: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        gaussian: Gaussian | None = None,
        precision: str = "exact",
        curves: Mapping[int, Any] | None = None,
        students: Mapping[int, Floats] | None = None,
    ) -> None:
        prior = np.array(log_prior, np.float64)
        self._curves, self._students = dict(curves or {}), dict(students or {})
        self._tables = np.array(tables, np.float64)
        self._offsets = np.array(offsets, np.int64)
        self._gaussian = None if gaussian is None else np.array(gaussian, np.float64)
        largest = largest_sum(prior, self._tables, self._offsets, self._curves.values())
        super().__init__(prior, EXACT * largest)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c) + Σ ln P(x_j | c) of every row and class into `out` (n_rows, n_classes)."""
        out[:] = self._log_prior
        for group in batch_codes:
            begin = self._offsets[group.features][:, None]
            step = max(1, NUMBERS // max(1, len(begin) * out.shape[1]))
            for lo in range(0, len(out), step):
                some = slice(lo, lo + step)
                add_each(out[some], self._tables[begin + group.codes[:, some]])
        if self._curves or self._students:
            sums = np.zeros(out.shape[::-1])
            for place, curves in self._curves.items():
                for first, (centre, bounds, ends, rows) in curves:
                    given = numeric[place], centre, bounds, ends, rows
                    add_curve(*given, 0, len(out), sums[first:])
            for place, parts in self._students.items():
                add_student(numeric[place], parts, 1, 0, len(out), sums)
            out += sums.T
        if self._gaussian is None:
            return
        others = self._curves.keys() | self._students.keys()
        columns = [x for place, x in enumerate(numeric) if place not in others]
        with np.errstate(over="ignore", invalid="ignore"):
            for x, mean, half, constant, rest in zip(columns, *self._gaussian, strict=True):
                term = constant - ((x[:, None] - mean) - rest) ** 2 * half
                out += np.where(np.isnan(term), 0.0, term)
