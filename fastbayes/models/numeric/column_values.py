"""What statistics say of the values of one numeric column, which densities are read off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError
from fastbayes.data.sketch import Profile
from fastbayes.models.estimator.log_space import Floats
from fastbayes.statistics.bundle import Statistics

# From the median to the quartiles of a normal density, times two: the range between quartiles.
QUARTILES = 1.34
# So many kernels at a value take numpy as long as a cell of a table.
PAIRS = 20


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The values of a numeric column in every class, as far as its sketch has them.

    name      Of the column, for messages.
    points    For each class (n,) values, ascending; a range is told by its middle.
    least     For each class (n,) the least value that each of them stands for.
    weight    For each class (n,) rows, or the sum of their weights.
    ranges    The values of all classes, in ranges that they have in common.
    variance  (n_classes,) within each class, 0 where there is but one row or none.
    within    Variance within all classes together.
    overall   Variance of all rows.
    cells     Rows x columns of the statistics, or what pairs of values are worth: whether compiling
              pays.
    """

    name: str
    points: tuple[Floats, ...]
    least: tuple[Floats, ...]
    weight: tuple[Floats, ...]
    ranges: Profile
    variance: Floats
    within: float
    overall: float
    cells: float

    @classmethod
    def of(cls, stats: Statistics, feature: int, ddof: int) -> ColumnValues:
        """Return the values of a numeric feature.

        Raises DataError when squares of the values overflow.
        """
        sketches, moments, schema = stats.sketches, stats.moments, stats.schema
        held = [sketches.of(feature, c) for c in range(len(schema.classes))]
        name = schema.numeric[feature].name
        n, mean = moments.count[feature], moments.mean[feature]
        scatter = moments.scatter[feature]
        total = max(float(n.sum()), 1e-300)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            grand = float((n * mean).sum()) / total
            between = float((n * (mean - grand) ** 2).sum())
            variance = np.where(n > max(ddof, 1), scatter / (n - ddof), 0.0)
            freedom = total - ddof * np.count_nonzero(n)
            within = float(scatter.sum()) / freedom if freedom > 0 else 0.0
            overall = (float(scatter.sum()) + between) / total
        if not (math.isfinite(overall) and np.isfinite(variance).all()):
            raise DataError(f"column {name!r}: squares of its values overflow; rescale it")
        pairs = float(sum(len(h.least) ** 2 for h in held))
        return cls(
            name,
            tuple(h.least / 2 + h.greatest / 2 if not h.exact else h.least for h in held),
            tuple(h.least for h in held),
            tuple(h.weight for h in held),
            Profile(*sketches.together(feature)),
            np.asarray(variance),
            within,
            overall,
            max(float(stats.n_rows) * len(schema.features), pairs / PAIRS),
        )

    @cached_property
    def known(self) -> Floats:
        """(n_classes,) weight of the known values."""
        return np.array([float(weight.sum()) for weight in self.weight])

    @cached_property
    def pooled(self) -> tuple[Floats, Floats]:
        """The values of all classes, ascending, each once, and their weights."""
        return self.without(-1)

    def without(self, label: int) -> tuple[Floats, Floats]:
        """Return the values of all classes but one, ascending, each once, and their weights."""
        rest = [c for c in range(len(self.points)) if c != label]
        points = np.concatenate([np.empty(0), *(self.points[c] for c in rest)])
        weight = np.concatenate([np.empty(0), *(self.weight[c] for c in rest)])
        values, where = np.unique(points, return_inverse=True)
        return values, np.bincount(where, weight, len(values)).astype(np.float64)

    @cached_property
    def place(self) -> tuple[float, float]:
        """A centre and a scale: half of what lies between the tenths at both ends, where it can."""
        values, weight = self.pooled
        if not len(values):
            return 0.0, 1.0
        low, middle, high = (quantile(values, weight, q) for q in (0.1, 0.5, 0.9))
        scale = (high - low) / 2 or (float(values[-1]) - float(values[0])) / 2
        return middle, scale if 0 < scale < math.inf else 1.0

    @property
    def silent(self) -> bool:
        """Whether there is nothing to tell: one value at most."""
        return len(self.pooled[0]) < 2

    def cell(self, label: int, x: Floats) -> NDArray[np.int64]:
        """Return which value of a class each number stands at; the first for smaller ones."""
        at = np.searchsorted(self.least[label], x, side="right") - 1
        return np.maximum(at, 0).astype(np.int64)


def quantile(values: Floats, weight: Floats, share: float) -> float:
    """Return the first value up to which there is such a share of the weight."""
    cumulated = np.cumsum(weight)
    at = np.searchsorted(cumulated, cumulated[-1] * share * (1 - 1e-12), side="left")
    return float(values[min(int(at), len(values) - 1)])


def silverman(values: Floats, weight: Floats, variance: float) -> float:
    """Return 0.9 min(deviation, range between the quartiles / 1.34) n^(-1/5).

    Where the quartiles are one value, the deviation alone tells.

    References
    ----------
    Silverman (1986), Density estimation for statistics and data analysis, equation 3.31.
    """
    deviation = math.sqrt(variance)
    apart = quantile(values, weight, 0.75) - quantile(values, weight, 0.25)
    spread = min(deviation, apart / QUARTILES) if apart > 0 else deviation
    return 0.9 * spread * float(weight.sum()) ** -0.2
