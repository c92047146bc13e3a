"""How often three values of three categorical features occur together, with each class."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.schema import Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import Floats, Ints, Need, Room
from fastbayes.statistics.packed_counts import PackedCounts


class TripleCounts(PackedCounts):
    """Counts n(class, feature i = a, j = b, k = c): the statistic of two-dependence models.

    Notes
    -----
    `flat` holds one block (w_i, w_j, w_k, n_classes) per triple i < j < k, in lexicographic order;
    memory is 8 K sum_{i<j<k} w_i w_j w_k bytes.
    """

    name = "triples"
    title = "counts of triples"
    option = "triples=True"
    work = "counting triples"
    companions = ("pairs",)
    repeatable = True

    def __init__(self, shape: Shape, *, weighted: bool = False) -> None:
        super().__init__(shape, weighted, all_triples(len(shape.sizes)))

    @classmethod
    def tables(cls, n_columns: int, **options: Any) -> int:
        """Return the number of triples."""
        return math.comb(n_columns, 3)

    @classmethod
    def need(cls, room: Room, **options: Any) -> Need:
        """Return the bytes of so many copies, a third of each triple's given to either feature."""
        w, cell = room.widths.astype(np.float64), room.copies * room.shape.n_classes
        others, squares = w.sum() - w, (w * w).sum() - w * w
        both = np.maximum(others * others - squares, 0.0) / 2
        # More than any machine has need not be distinguished.
        cells = np.minimum(w * both / 3, 2.0**56 / cell)
        placing = cls.placing(math.comb(len(w), 3), 3, room.copies)
        return Need((8 * cell * cells).astype(np.int64), 0, placing)

    # -- reading -------------------------------------------------------------------------------

    def block(self, i: int, j: int, k: int) -> NDArray[Any]:
        """Return the (w_i, w_j, w_k, n_classes) counts of three features in any order, a view.

        Missing values are included.
        """
        order = sorted((i, j, k))
        return self.group(place(*order, m=len(self.shape.sizes))).transpose(
            *(order.index(f) for f in (i, j, k)), 3
        )

    def of(self, i: int, j: int, k: int) -> NDArray[Any]:
        """Return the (S_i, S_j, S_k, n_classes) counts of rows where all are known, a view."""
        a, b, c = self.shape.sizes[[i, j, k]]
        return self.block(i, j, k)[:a, :b, :c]

    def steps(self, i: int, j: int, k: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return where the cells of features i < j and others lie, in units of n_classes.

        A cell is at start + a of_i + b of_j + c of_k: (start, of_i, of_j, of_k), (len(k),) each.
        """
        w = self.layout.widths
        first, last = np.minimum(k, i), np.maximum(k, j)
        q = place(first, i + j + k - first - last, last, m=len(self.shape.sizes))
        start = self.layout.starts[q] // self.layout.n_classes
        of_k = np.where(k < i, w[i] * w[j], np.where(k < j, w[j], 1))
        return start, w[j] * np.where(k < i, 1, w[k]), np.where(k > j, w[k], 1), of_k

    # -- groups --------------------------------------------------------------------------------

    def _count(self, columns: list[NDArray[Any]], batch: Batch, weight: Floats | None) -> None:
        layout = self.layout
        dispatch.load("counting.families", batch.cells).add_triple_counts(
            *(columns, layout.widths, batch.classes, weight, layout.n_classes),
            *(layout.starts, self.flat),
        )


def all_triples(m: int) -> Ints:
    """Return the features of all triples i < j < k in lexicographic order, (n_triples, 3)."""
    return np.array(list(combinations(range(m), 3)), np.int64).reshape(-1, 3)


def place(i: Any, j: Any, k: Any, *, m: int) -> Any:
    """Return the position of the triple i < j < k among all of m features, or of each of some."""

    def triples(n: Any) -> Any:
        return n * (n - 1) * (n - 2) // 6

    def pairs(n: Any) -> Any:
        return n * (n - 1) // 2

    # All triples but those that begin later, or with i and go on later.
    return triples(m) - triples(m - i) + pairs(m - i - 1) - pairs(m - j) + k - j - 1
