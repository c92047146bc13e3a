"""Sums of each feature within each class: the statistic of the multinomial and Bernoulli models."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.statistics.base import CLASSES, NUMERIC, Floats, RetractionError, Statistic, array
from fastbayes.statistics.retraction import left

# Up to this many classes a product with indicators beats sorting the rows by class.
FEW_CLASSES = 24
BLOCK_CELLS = 1 << 17  # 1 MiB of float64: a block stays in cache


class FeatureSums(Statistic):
    """Sums of numbers per (class, feature), and the weight of each class.

    Notes
    -----
    `sums` is (n_classes, n_numeric) and `class_counts` is (n_classes,), both float64. Sums of
    integers are exact up to 2**53, whatever the order of the rows.
    """

    name = "sums"
    title = "sums of features"

    sums: Floats = array(CLASSES, NUMERIC)
    class_counts: Floats = array(CLASSES)

    def __sub__(self, other: Self) -> Self:
        sums = left(self.sums, other.sums, self.sums)
        if (below := sums < 0).any():
            label, feature = np.argwhere(below)[0]
            raise RetractionError(
                "its numbers would sum to less than 0; these rows were never added", feature, label
            )
        counts = left(self.class_counts, other.class_counts)
        return self._holding({"sums": sums, "class_counts": counts})

    def add_rows(
        self, X: Any, y: NDArray[np.unsignedinteger], weight: Floats | None, above: float | None
    ) -> None:
        """Add rows of numbers, or of indicators of the numbers above a threshold.

        Parameters
        ----------
        X
            (n_rows, n_numeric) numbers without NaN: an array, or a CSR matrix, which stays sparse.
        y
            (n_rows,) class codes.
        weight
            (n_rows,), or None when every row weighs 1.
        above
            Count 1 for each number greater than this and 0 for others; None to sum the numbers.
        """
        k = self.shape.n_classes
        self.class_counts += np.bincount(y, weight, k)
        if not isinstance(X, np.ndarray):
            self.sums += _sparse_sums(X, y, weight, k, above)
            return
        rows = max(64, BLOCK_CELLS // max(1, X.shape[1]))
        for start in range(0, len(y), rows):
            part = slice(start, start + rows)
            block = np.asarray(X[part] if above is None else X[part] > above, dtype=np.float64)
            self.sums += class_sums(block, y[part], None if weight is None else weight[part], k)


def class_sums(
    X: Floats, y: NDArray[np.unsignedinteger], weight: Floats | None, n_classes: int
) -> Floats:
    """Return the sum of each column of a block of rows within each class, (n_classes, d)."""
    if n_classes <= FEW_CLASSES:
        indicator = np.zeros((n_classes, len(y)))
        indicator[y, np.arange(len(y))] = 1.0 if weight is None else weight
        return indicator @ X
    result = np.zeros((n_classes, X.shape[1]))
    order = np.argsort(y, kind="stable")
    ordered = X[order] if weight is None else X[order] * weight[order, None]
    present, first = np.unique(y[order], return_index=True)
    result[present] = np.add.reduceat(ordered, first, axis=0)
    return result


def _sparse_sums(
    X: Any,
    y: NDArray[np.unsignedinteger],
    weight: Floats | None,
    n_classes: int,
    above: float | None,
) -> Floats:
    """Return the sums of a CSR matrix by one pass over its cells, whatever the classes."""
    d, per_row = X.shape[1], np.diff(X.indptr)
    cell = np.repeat(y.astype(np.int64) * d, per_row)
    cell += X.indices
    data = X.data if above is None else X.data > above
    if weight is not None:
        data = data * np.repeat(weight, per_row)
    return np.asarray(np.bincount(cell, data, n_classes * d), dtype=np.float64).reshape(
        n_classes, d
    )
