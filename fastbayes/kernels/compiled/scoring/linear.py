"""Scoring of linear models: tables of values and of pairs of values, lines of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans.weight_tables import WeightPlan
from fastbayes.kernels.compiled.scoring.log_joint import BlockScorer, ColumnSum, odds_of, tolerance
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.dispatch import call, in_python, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.density import FARTHEST
from fastbayes.kernels.shared.scoring import largest_sum, with_pairs

_INT, _FLOAT = "int64", "float64"
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "add_lines": [(*[reads(_FLOAT)] * 3, reads(_FLOAT, 3), _INT, _INT, writes(_FLOAT, 2))],
}


class LinearModelScorer(BlockScorer):
    """Scores, posteriors and predictions of a linear model; see the numpy twin."""

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
        start = np.array(prior, np.float64)
        tables = np.array(tables, np.float64)
        offsets = np.array(offsets, np.int64)
        centers = np.array(center, np.float64)
        lines = np.array([slope, level, absent], np.float64).swapaxes(0, 1)
        same = centers, tuple(pairs)
        odds = None
        if len(start) == 2:
            odds = LineSum(odds_of(start), odds_of(tables), offsets, odds_of(lines), *same)
        joint = LineSum(start, tables, offsets, lines, *same)
        super().__init__(joint, odds, tolerance(largest_sum(start, tables, offsets), coarse=False))


class LineSum(ColumnSum):
    """Tables of columns and pairs of them, and lines of numbers.

    lines (n_numeric, 3, n_outputs): slope, level, and what a missing number adds.
    """

    def __init__(
        self,
        start: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        lines: Floats,
        center: Floats,
        pairs: tuple[tuple[int, int], ...],
    ) -> None:
        super().__init__(start, tables, offsets, np.empty((0, 4, len(start))), np.float64)
        self._pairs = pairs
        # A column of nothing makes the last one of an odd number half of a pair.
        odd = len(lines) % 2
        self._lines = np.concatenate([lines, np.zeros((odd, *lines.shape[1:]))])
        self._center = np.concatenate([center, np.zeros(odd)])

    def steps(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield each kernel with the arguments that are the same for every block of rows."""
        yield from super().steps(self._with_pairs(batch_codes), ())
        columns = [readonly(x) for x in numeric]
        for j in range(0, len(columns), 2):
            two = columns[j], columns[min(j + 1, len(columns) - 1)]
            yield (
                partial(call, add_lines),
                (*two, readonly(self._center[j : j + 2]), readonly(self._lines[j : j + 2])),
            )

    def factors(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> list[tuple[NDArray[np.unsignedinteger], WeightPlan]] | None:
        """Return matrices of codes with their tables, None where there are numbers; see `Sum`."""
        if len(numeric):
            return None
        return super().factors(self._with_pairs(batch_codes), numeric, n_rows)

    def _with_pairs(self, batch_codes: Sequence[Codes]) -> Sequence[Codes]:
        """Return codes of columns, and of pairs of them, which are made in numpy."""
        if self._pairs:
            in_python()
        return with_pairs(batch_codes, self._offsets, self._pairs)


@kernel
def add_lines(x, y, center, lines, lo, n, acc):
    """Add two numeric columns: acc[c, r] += Σ slope (x[r] - center) + level, or absent for NaN.

    x, y    IN   (n_rows,) float64
    center  IN   (2,) float64   of x and y
    lines   IN   (2, 3, n_outputs) float64   slope, level and absent for x and for y
    lo      IN   row of x and y that is acc's first
    n       IN   rows
    acc     OUT  (>= n_outputs, >= n) float64
    """
    mu, mv = center[0], center[1]
    for b in range(0, n, 512):
        w = min(512, n - b)
        u, v = x[lo + b : lo + b + w], y[lo + b : lo + b + w]
        for c in range(lines.shape[2]):
            a = acc[c, b : b + w]
            su, lu, au = lines[0, 0, c], lines[0, 1, c], lines[0, 2, c]
            sv, lv, av = lines[1, 0, c], lines[1, 1, c], lines[1, 2, c]
            for r in range(w):
                du = u[r] - mu
                dv = v[r] - mv
                # NaN stays: it is neither above nor below.
                du = FARTHEST if du > FARTHEST else (-FARTHEST if du < -FARTHEST else du)
                dv = FARTHEST if dv > FARTHEST else (-FARTHEST if dv < -FARTHEST else dv)
                tu = lanes.fma(du, su, lu)
                tv = lanes.fma(dv, sv, lv)
                a[r] += (tu if tu == tu else au) + (tv if tv == tv else av)
