"""Where the coefficients of a linear model stand: intercept, values, numbers, pairs of values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class FirstRows(NamedTuple):
    """The first row of each block of coefficients.

    intercept  the row of the intercepts
    values     (d,) int64: of each categorical feature
    numeric    of the numeric features
    pairs      (n_pairs,) int64: of each pair of categorical features
    """

    intercept: int
    values: NDArray[np.int64]
    numeric: int
    pairs: NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """The rows and columns of the (n_rows, n_outputs) coefficients of a linear model.

    Row 0 holds the intercepts. Then come S_j rows for each categorical feature, a row for each
    numeric feature, of z = (x - center) / scale where a missing number has z = 0, and S_a S_b rows
    for each pair of categorical features, of which value v of a and w of b have row v S_b + w.
    Missing and unseen values of a categorical feature have no row: they say nothing.

    sizes      (d,) int64: S_j of each categorical feature
    center     (p,) of each numeric feature
    scale      (p,) positive
    pairs      pairs of places among the categorical features
    n_outputs  1 for two classes, whose margin is the log-odds of the second; else the classes
    """

    sizes: NDArray[np.int64]
    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    pairs: tuple[tuple[int, int], ...]
    n_outputs: int

    @classmethod
    def of(
        cls,
        sizes: ArrayLike,
        n_classes: int,
        *,
        center: ArrayLike = (),
        scale: ArrayLike = (),
        pairs: Iterable[tuple[int, int]] = (),
    ) -> Layout:
        """Return the layout of so many classes."""
        return cls(
            np.asarray(sizes, np.int64).reshape(-1),
            np.asarray(center, np.float64).reshape(-1),
            np.asarray(scale, np.float64).reshape(-1),
            tuple((int(a), int(b)) for a, b in pairs),
            1 if n_classes <= 2 else n_classes,
        )

    @property
    def n_numeric(self) -> int:
        """Number of numeric features."""
        return len(self.center)

    @cached_property
    def pair_sizes(self) -> NDArray[np.int64]:
        """(n_pairs,) number of rows of each pair."""
        return np.array([self.sizes[a] * self.sizes[b] for a, b in self.pairs], np.int64)

    @cached_property
    def rows(self) -> FirstRows:
        """The first row of each block."""
        ends = 1 + np.cumsum(self.sizes, dtype=np.int64)
        numeric = int(ends[-1]) if len(ends) else 1
        after = numeric + self.n_numeric + np.cumsum(self.pair_sizes, dtype=np.int64)
        return FirstRows(0, ends - self.sizes, numeric, after - self.pair_sizes)

    @property
    def numeric(self) -> slice:
        """The rows of the numeric features."""
        first = self.rows.numeric
        return slice(first, first + self.n_numeric)

    @cached_property
    def n_rows(self) -> int:
        """P, the number of rows."""
        return 1 + int(self.sizes.sum()) + self.n_numeric + int(self.pair_sizes.sum())
