"""Count, mean and scatter matrix of the numeric columns in each cell of the categorical ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, taken
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.moments import overflowed, two_sum
from fastbayes.statistics.base import Classes, Floats
from fastbayes.statistics.cell_runs import GONE, STRETCH, CellRuns, Run, cells_of
from fastbayes.statistics.class_moments import (
    GroupMoments,
    by_class,
    counts_left,
    refuse_noise,
    root_mean_square,
)
from fastbayes.statistics.joint_moments import check_matrices

# What a retraction leaves of a cell's scatter below this share is rounding.
ROUNDING = 1e-10


def together(a: GroupMoments, b: GroupMoments) -> GroupMoments:
    """Return the moments of the rows of both (Chan, Golub, LeVeque 1979, eq. 2.1)."""
    n, first = a.n + b.n, (a.n == 0)[:, None]
    # An overflow stays in the numbers, where whoever reads them finds it.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = np.where(n > 0, b.n / n, 0.0)
        delta = (b.mean - a.mean) + (b.rest - a.rest)
        between = delta[:, :, None] * delta[:, None, :] * (a.n * share)[:, None, None]
        mean, rest = two_sum(a.mean, a.rest + delta * share[:, None])
        scatter = a.scatter + b.scatter + between
    # Where there are no rows on one side the other is taken as it is.
    none = (b.n == 0)[:, None]
    return GroupMoments(
        n,
        overflowed(np.where(first, b.mean, np.where(none, a.mean, mean))),
        np.where(first, b.rest, np.where(none, a.rest, rest)),
        overflowed(
            np.where(first[:, None], b.scatter, np.where(none[:, None], a.scatter, scatter))
        ),
    )


def pooled(groups: GroupMoments, into: NDArray[Any], n: int) -> GroupMoments:
    """Return the moments of the rows of groups taken together.

    Parameters
    ----------
    groups
        Moments.
    into
        (n_groups,) where the rows of each go.
    n
        Groups there are then.
    """
    p = groups.mean.shape[1]
    shift, mean, scatter = np.zeros((n, p)), np.zeros((n, p)), np.zeros((n, p, p))
    count = np.bincount(into, groups.n, n).astype(np.float64)
    # Deviations from one of the means: numbers like 1.7e9 ± 1 keep their digits.
    shift[into] = groups.mean
    order = np.argsort(into, kind="stable")
    ends = np.cumsum([0, *np.bincount(into, minlength=n)])
    with np.errstate(invalid="ignore", over="ignore"):
        for g, (first, last) in enumerate(pairwise(ends)):
            mine = order[first:last]
            rows = groups.n[mine, None]
            apart = (groups.mean[mine] - shift[g]) + groups.rest[mine]
            mean[g] = (rows * apart).sum(axis=0) / (count[g] if count[g] > 0 else 1.0)
            apart -= mean[g]
            for low in range(0, len(mine), STRETCH):
                some = slice(low, low + STRETCH)
                terms = apart[some, :, None] * apart[some, None, :]
                terms *= rows[some, :, None]
                terms += groups.scatter[mine[some]]
                terms[0] += scatter[g]
                scatter[g] = terms.sum(axis=0)
    return GroupMoments(count, *two_sum(shift, mean), scatter)


def _check_digits(before: GroupMoments, after: GroupMoments, labels: NDArray[Any]) -> None:
    """Raise RetractionError where too little is left of the scatter of a class."""
    n = int(labels.max(initial=-1)) + 1
    whole, left = pooled(before, labels, n), pooled(after, labels, n)
    spread, rest = (np.diagonal(g.scatter, axis1=1, axis2=2) for g in (whole, left))
    refuse_noise(spread, rest, whole.n[:, None], left.n[:, None], by_class)


class CellScatter(CellRuns):
    """Moments of the numeric columns per (cell, class): the statistic of Gaussians in cells.

    Parameters
    ----------
    shape, weighted
        As for all statistics.
    columns
        Categorical features that make up the cell; None for all.

    Notes
    -----
    Only rows in which every numeric column is known are counted. `keys` (n_groups, m + 1) hold the
    cell and, last, the class; `count` (n_groups,), `mean` and `rest` (n_groups, p) and `scatter`
    (n_groups, p, p) are float64: 8 (1 + 2 p + p^2) bytes for each cell and class that occur. The
    mean is the unevaluated sum mean + rest. A retraction is refused where it leaves less than 1e-6
    of the scatter of a class; of a cell, what it leaves below 1e-10 of the scatter is 0.
    """

    name = "cell_scatter"
    title = "cell scatter"
    option = "cell_scatter=True"
    numeric_as = "numbers"
    _more: ClassVar[int] = 1
    _arrays: ClassVar[tuple[str, ...]] = ("count", "mean", "rest", "scatter")

    @classmethod
    def order_free(cls, weighted: bool) -> bool:
        """Return whether sums are exact, so that the order of addition changes no bit."""
        return False

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        result = super().from_arrays(shape, arrays)
        check_matrices("scatter", arrays["scatter"])
        for name in ("mean", "rest"):
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} holds a number that is not finite")
        return result

    @property
    def groups(self) -> GroupMoments:
        """The moments of each cell and class, in the order of `keys`."""
        return GroupMoments(*self._settled_run().held)

    def _spread(self) -> float:
        return root_mean_square(self.groups.n, self.groups.scatter)

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        # Only rows in which every numeric column is known.
        if not batch.numeric:
            return
        gap = np.zeros(batch.n_rows, np.bool_) if weight is None else weight == 0
        for column in batch.numeric:
            gap |= np.isnan(column)
        if gap.any():
            batch = taken(batch, np.flatnonzero(~gap))
        if not batch.n_rows:
            return
        group, keys = cells_of(batch, self.columns, classes=True)
        held = dispatch.load("counting.scatter", batch.cells).block_scatter(
            batch.numeric, group, len(keys), batch.weight
        )
        self._push(Run(keys, tuple(overflowed(sums) for sums in held)))

    def _nothing(self, n: int) -> tuple[NDArray[Any], ...]:
        p = self.shape.n_numeric
        return np.zeros(n), np.zeros((n, p)), np.zeros((n, p)), np.zeros((n, p, p))

    def _combined(
        self, a: Sequence[NDArray[Any]], b: Sequence[NDArray[Any]]
    ) -> tuple[NDArray[Any], ...]:
        return tuple(together(GroupMoments(*a), GroupMoments(*b)))

    def _occurs(self, held: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        return np.asarray(held[0] != 0)

    def _taken(self, run: Run, to: Alignment) -> Run:
        code = np.full(self.shape.n_classes, GONE, np.int32)
        known = np.flatnonzero((to.classes >= 0) & (to.classes < self.shape.n_classes))
        code[to.classes[known]] = known
        keys = run.keys.copy()
        keys[:, -1] = code[run.keys[:, -1]]
        kept = keys[:, -1] != GONE
        if (to.numeric < 0).any():
            # A column that was all null so far: no row was complete.
            kept[:] = False
        moved = Run(keys, run.held).only(kept)
        count, mean, rest, scatter = moved.held
        p, places = len(to.numeric), np.maximum(to.numeric, 0)
        if p and not self.shape.n_numeric:
            mean, rest, scatter = np.zeros((0, p)), np.zeros((0, p)), np.zeros((0, p, p))
        elif not np.array_equal(places, np.arange(self.shape.n_numeric)):
            mean, rest = mean[:, places], rest[:, places]
            scatter = np.ascontiguousarray(scatter[:, places[:, None], places])
        return Run(moved.keys, (count, mean, rest, scatter))

    def __sub__(self, other: Self) -> Self:
        keys, *sides = self._side_by_side(other)
        mine, theirs = (GroupMoments(*side) for side in sides)
        labels = keys[:, -1]
        totals = np.bincount(labels, mine.n).astype(np.float64)[labels]
        n = counts_left(mine.n, theirs.n, lambda cell: (-1, int(labels[cell])), totals, "a cell ")
        some = (n > 0)[:, None]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            apart = (mine.mean - theirs.mean) + (mine.rest - theirs.rest)
            delta = np.where(some, apart * (mine.n / n)[:, None], 0.0)
            share = theirs.n * n / np.maximum(mine.n, 1e-300)
            gone = delta[:, :, None] * delta[:, None, :] * share[:, None, None]
            left = mine.scatter - theirs.scatter - gone
            mean, rest = two_sum(theirs.mean, theirs.rest + delta)
        before = np.diagonal(mine.scatter, axis1=1, axis2=2)
        after = np.diagonal(left, axis1=1, axis2=2)
        noise = (before > 0) & (after < ROUNDING * before)
        whole = (theirs.n == 0)[:, None]
        # What is noise on the diagonal is noise in its row and column: one row has no scatter.
        kept = ~noise & some
        clean = np.where(kept[:, :, None] & kept[:, None, :], left, 0.0)
        held = (
            n,
            np.where(whole, mine.mean, np.where(some, mean, 0.0)),
            np.where(whole, mine.rest, np.where(some, rest, 0.0)),
            np.where(whole[:, None], mine.scatter, clean),
        )
        # Noise and all: of rows that weigh little it says whether they are several.
        noisy = np.where(whole[:, None], mine.scatter, np.where(some[:, None], left, 0.0))
        _check_digits(mine, GroupMoments(*held[:3], noisy), labels)
        a, _ = self._together(other)
        return a._with([Run(keys, held)]).settled()

    def __mul__(self, factor: float) -> Self:
        count, mean, rest, scatter = self._settled_run().held
        kept = float(factor != 0)
        return self._with(
            [Run(self.keys, (count * factor, mean * kept, rest * kept, scatter * factor))]
        )
