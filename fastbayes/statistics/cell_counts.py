"""How often the values of all columns occur together with each class: the sparse joint table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, code_type
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Alignment, Schema
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import Classes, Floats
from fastbayes.statistics.cell_runs import CellRuns, Run, cells_of
from fastbayes.statistics.retraction import left


class CellCounts(CellRuns):
    """Counts n(class, value of every column): the sufficient statistic of the unrestricted model.

    Parameters
    ----------
    shape, weighted
        As for all statistics.
    columns
        Categorical features that are counted together; None for all.

    Notes
    -----
    Only cells that occur are kept: `keys` (n_cells, m) and `counts` (n_cells, n_classes), 4 m + 8 K
    bytes each. Their number grows with the data, up to the number of rows: a scan refuses to go on
    over its memory limit.
    """

    name = "cells"
    title = "cells"
    option = "cells=True"
    counts_rows = True
    _arrays: ClassVar[tuple[str, ...]] = ("counts",)

    @property
    def weighted(self) -> bool:
        """Whether the counts are sums of weights."""
        return self._kind is np.float64

    @property
    def counts(self) -> NDArray[Any]:
        """Rows of each cell and class, (n_cells, n_classes), in the order of `keys`."""
        return self._settled_run().held[0]

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        group, keys = cells_of(batch, self.columns)
        counts = np.zeros((len(keys), self.shape.n_classes), self._kind)
        n = len(keys)
        codes = group.astype(code_type(n))
        dispatch.load("counting.count", batch.cells).add_counts(
            *(codes[None], np.array([n]), np.zeros(1, np.int64), classes, weight, counts)
        )
        self._push(Run(keys, (counts,)))

    def _nothing(self, n: int) -> tuple[NDArray[Any], ...]:
        return (np.zeros((n, self.shape.n_classes), self._kind),)

    def _combined(
        self, a: Sequence[NDArray[Any]], b: Sequence[NDArray[Any]]
    ) -> tuple[NDArray[Any], ...]:
        return (a[0] + b[0],)

    def _occurs(self, held: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        return np.asarray((held[0] != 0).any(axis=1))

    def _fitting(self, held: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
        (counts,) = held
        if counts.shape[1] == self.shape.n_classes and counts.dtype == self._kind:
            return held
        result = np.zeros((len(counts), self.shape.n_classes), self._kind)
        result[:, : counts.shape[1]] = counts
        return (result,)

    def _taken(self, run: Run, to: Alignment) -> Run:
        counts = np.zeros((len(run.keys), to.shape.n_classes), self._kind)
        kept = np.flatnonzero((to.classes >= 0) & (to.classes < run.held[0].shape[1]))
        counts[:, kept] = run.held[0][:, to.classes[kept]]
        return Run(run.keys, (counts,))

    def _as(self, kind: type[Any]) -> Self:
        result = self._with(self._runs)
        result._kind = kind
        result._runs = [Run(r.keys, result._fitting(r.held)) for r in result._runs]
        return result

    def _together(self, other: Self) -> tuple[Self, Self]:
        a, b = super()._together(other)
        if a._kind is not b._kind:
            a, b = a._as(np.float64), b._as(np.float64)
        return a, b

    def __sub__(self, other: Self) -> Self:
        keys, (mine,), (theirs,) = self._side_by_side(other)
        a, _ = self._together(other)
        totals = mine.sum(axis=0)
        return a._with([Run(keys, (left(mine, theirs, totals),))])

    def __mul__(self, factor: float) -> Self:
        result = self._as(np.float64)
        result._runs = [Run(r.keys, (r.held[0] * float(factor),)) for r in result._runs]
        return result

    def check_left(self, schema: Schema) -> None:
        """Raise DataError where a count is below 0: rows were taken away that were never added."""
        if self.counts.min(initial=0) < 0:
            shown = ", ".join(repr(schema.categorical[j].name) for j in self.columns.tolist())
            raise DataError(
                f"columns {shown}: values would occur together fewer than 0 times; these rows were "
                "never added"
            )
