"""Numbers per cell of a sparse table: only cells that occur are kept, in runs that are merged."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import MOST_CODES
from fastbayes.statistics.base import Ints, Statistic, check_fit, close, union

Keys = NDArray[np.int32]

MISSING = -1
GONE = -2
# How often cells are there while runs are merged: before, with their codes beside, and after.
MERGING = 3
# Cells that are worked on at a time: what is made of them is small, and stays in the cache.
STRETCH = 1 << 13


class Run(NamedTuple):
    """Different cells, and what is held of each.

    keys  (n, w) int32: codes, `MISSING` where a value is missing; never changed
    held  arrays (n, ...); never changed
    """

    keys: Keys
    held: tuple[NDArray[Any], ...]

    def only(self, kept: NDArray[np.bool_]) -> Run:
        """Return the cells that are kept; itself if all are."""
        if kept.all():
            return self
        return Run(self.keys[kept], tuple(array[kept] for array in self.held))


def distinct(keys: Keys) -> tuple[NDArray[np.uint32], Ints]:
    """Return the number of each row's group of equal rows, and the first row of each group."""
    n, width = keys.shape
    if not width:
        return np.zeros(n, np.uint32), np.zeros(min(n, 1), np.int64)
    columns = [(keys[:, j] - MISSING).astype(np.uint32) for j in range(width)]
    return dispatch.load("counting.joint_codes", float(keys.size)).factorise(
        columns, [int(column.max(initial=0)) + 1 for column in columns]
    )


def sorted_order(keys: Keys) -> Ints:
    """Return the order in which rows of codes ascend: as many columns at a time as fit a number."""
    codes: list[Ints] = []
    room = MOST_CODES + 1
    for column in keys.T:
        size = int(column.max(initial=MISSING)) - MISSING + 1
        if room * size > MOST_CODES:
            codes.append(np.zeros(len(keys), np.int64))
            room = 1
        codes[-1] *= size
        codes[-1] += column
        codes[-1] -= MISSING
        room *= size
    return np.lexsort(codes[::-1]) if codes else np.arange(len(keys))


def cells_of(
    batch: Batch, columns: Ints, *, classes: bool = False
) -> tuple[NDArray[np.uint32], Keys]:
    """Return the number of each row's cell, and the keys of the cells.

    Parameters
    ----------
    batch
        Encoded rows.
    columns
        Features that make up the cell.
    classes
        Whether the class is a column of the cell, too, the last one.
    """
    codes: dict[int, tuple[Any, int]] = {}
    for features, block, sizes in batch.codes:
        codes |= zip(features.tolist(), zip(block, sizes.tolist(), strict=True), strict=True)
    wanted = [codes[j] for j in columns.tolist()]
    gaps = [codes[j][1] - 1 if batch.missing[j] else MISSING for j in columns.tolist()]
    if classes:
        wanted.append((batch.classes, batch.n_classes))
        gaps.append(MISSING)
    if not wanted:
        n = batch.n_rows
        return np.zeros(n, np.uint32), np.zeros((min(n, 1), 0), np.int32)
    made, widths = map(list, zip(*wanted, strict=True))
    group, first = dispatch.load("counting.joint_codes", batch.cells).factorise(made, widths)
    keys = np.empty((len(first), len(made)), np.int32)
    for j, (column, gap) in enumerate(zip(made, gaps, strict=True)):
        code = column[first].astype(np.int32)
        keys[:, j] = np.where(code == gap, MISSING, code) if gap != MISSING else code
    return group, keys


class CellRuns(Statistic):
    """What is known of each cell of the joint table of some columns, of cells that occur.

    Cells are found in any order and kept in runs, each at least twice as long as the next, so that
    adding a block costs its own cells and a logarithm. `settled` makes one sorted run of them:
    equal tables are then equal arrays.

    A subclass says what is held of a cell: nothing yet (`_nothing`), of two together (`_combined`),
    and of which cells nothing is left (`_occurs`).
    """

    # Columns of a key besides the features.
    _more: ClassVar[int] = 0
    _arrays: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        shape: Shape,
        *,
        weighted: bool = False,
        columns: Sequence[int] | Ints | None = None,
    ) -> None:
        self.shape = shape
        self._kind: type[Any] = np.float64 if weighted else np.int64
        every = np.arange(len(shape.sizes)) if columns is None else np.asarray(columns)
        self.columns: Ints = np.sort(every.astype(np.int64))
        self._runs: list[Run] = []
        self._is_settled = False

    # -- what a subclass gives -----------------------------------------------------------------

    def _nothing(self, n: int) -> tuple[NDArray[Any], ...]:
        raise NotImplementedError

    def _combined(
        self, a: Sequence[NDArray[Any]], b: Sequence[NDArray[Any]]
    ) -> tuple[NDArray[Any], ...]:
        """Return what is held of cells together, from what two sides hold of each."""
        raise NotImplementedError

    def _occurs(self, held: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        raise NotImplementedError

    def _taken(self, run: Run, to: Alignment) -> Run:
        """Return a run whose codes were moved, with classes and numbers moved, too."""
        raise NotImplementedError

    # -- learning ------------------------------------------------------------------------------

    def unforeseen(self) -> tuple[int, str]:
        """Return the bytes taken while counting, and what takes them: only rows can tell."""
        held = sum(r.keys.nbytes + sum(array.nbytes for array in r.held) for r in self._runs)
        # Some may be held more than once.
        cells = sum(len(r.keys) for r in self._runs)
        columns = f"{len(self.columns)} categorical columns"
        return MERGING * held, f"so far {cells:,} joint values of {columns}"

    def _push(self, run: Run) -> None:
        if not len(run.keys):
            return
        self._is_settled = False
        self._runs.append(run)
        runs = self._runs
        while len(runs) > 1 and len(runs[-2].keys) < 2 * len(runs[-1].keys):
            b = runs.pop()
            runs[-1] = self._merged(runs[-1], b)

    def _merged(self, a: Run, b: Run) -> Run:
        keys = np.concatenate([a.keys, b.keys])
        group, first = distinct(keys)
        n, old = len(first), len(a.keys)
        # The cells of a come first, each in its place; those of b go where they belong.
        at = group[old:].astype(np.int64)
        mine = [_widened(array, n) for array in a.held]
        for low in range(0, len(at), STRETCH):
            some = slice(low, low + STRETCH)
            here = at[some]
            found = self._combined([array[here] for array in mine], [x[some] for x in b.held])
            for whole, part in zip(mine, found, strict=True):
                if whole.shape[1:] != part.shape[1:]:
                    raise AssertionError("cells of different shapes")
                whole[here] = part
        return Run(keys[first], tuple(mine))

    def grown(self, shape: Shape) -> Self:
        """Return the statistic with room for at least `shape`; values and classes are appended."""
        larger = union(self.shape, shape)
        if larger.equals(self.shape):
            return self
        return self._with(self._runs, shape=larger)

    def _with(self, runs: Sequence[Run], shape: Shape | None = None) -> Self:
        result = copy.copy(self)
        result._runs = list(runs)
        result._is_settled = False
        if shape is not None:
            result.shape = shape
            result._runs = [Run(r.keys, result._fitting(r.held)) for r in result._runs]
        return result

    def _fitting(self, held: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
        """Return what is held of cells, with room for the classes of the shape."""
        return held

    def _one_run(self) -> Run:
        if not self._runs:
            none = np.zeros((0, len(self.columns) + self._more), np.int32)
            return Run(none, self._fitting(self._nothing(0)))
        # The short ones at the end come first.
        return reduce(lambda b, a: self._merged(a, b), reversed(self._runs))

    def settled(self) -> Self:
        """Return itself as one run of cells that occur, sorted by their keys."""
        if not self._is_settled:
            run = self._one_run()
            order = sorted_order(run.keys)
            order = order[self._occurs(run.held)[order]]
            if not np.array_equal(order, np.arange(len(run.keys))):
                run = Run(run.keys[order], tuple(array[order] for array in run.held))
            self._runs, self._is_settled = [run], True
        return self

    def _settled_run(self) -> Run:
        return self.settled()._runs[0]

    @property
    def keys(self) -> Keys:
        """The cells, (n_cells, n_columns) codes, `MISSING` where a value is missing; sorted."""
        return self._settled_run().keys

    @property
    def nbytes(self) -> int:
        """Bytes held once the statistic is settled."""
        run = self._settled_run()
        return self.columns.nbytes + run.keys.nbytes + sum(array.nbytes for array in run.held)

    # -- moving --------------------------------------------------------------------------------

    def take(self, to: Alignment) -> Self:
        """Return the statistic with its cells moved to another shape; new cells are empty.

        A column that is removed is summed out.
        """
        where = np.full(len(self.shape.sizes), -1)
        where[to.categorical] = np.arange(len(to.categorical))
        columns = where[self.columns]
        order = np.argsort(columns, kind="stable")
        order = order[columns[order] >= 0]
        run = self._one_run()
        moved, kept = [], np.ones(len(run.keys), np.bool_)
        for j in order.tolist():
            old, values = int(self.columns[j]), to.values[int(columns[j])]
            # The last place is that of -1, a missing value.
            code = np.full(int(self.shape.sizes[old]) + 1, GONE, np.int32)
            code[-1] = MISSING
            known = np.flatnonzero((values >= 0) & (values < self.shape.sizes[old]))
            code[values[known]] = known
            moved.append(code[run.keys[:, j]])
            kept &= moved[-1] != GONE
        more = run.keys[:, len(self.columns) :]
        keys = np.concatenate(
            [np.stack(moved, axis=1) if moved else np.zeros((len(more), 0), np.int32), more], axis=1
        )
        result = copy.copy(self)
        result.shape, result.columns, result._is_settled = to.shape, columns[order], False
        taken = self._taken(Run(keys, run.held).only(kept), to)
        if len(order) < len(self.columns):
            taken = result._once(taken)
        result._runs = [taken]
        return result

    def _once(self, run: Run) -> Run:
        """Return a run in which no cell stands twice: every second one goes to the one before."""
        while True:
            group, first = distinct(run.keys)
            if len(first) == len(run.keys):
                return run
            order = np.argsort(group, kind="stable")
            sizes = np.bincount(group)
            place = np.empty(len(group), np.int64)
            place[order] = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            keys = np.concatenate([run.keys, (place[:, None] // 2).astype(np.int32)], axis=1)
            sides = (place % 2 == side for side in (0, 1))
            a, b = (Run(keys[s], tuple(array[s] for array in run.held)) for s in sides)
            merged = self._merged(a, b)
            run = Run(np.ascontiguousarray(merged.keys[:, :-1]), merged.held)

    # -- arithmetic ----------------------------------------------------------------------------

    def _together(self, other: Self) -> tuple[Self, Self]:
        """Return both with one shape that has room for either."""
        if not np.array_equal(self.columns, other.columns):
            raise SchemaError(f"the {self.name} are of different columns; count both alike")
        return self.grown(other.shape), other.grown(self.shape)

    def __add__(self, other: Self) -> Self:
        a, b = self._together(other)
        result = a._with(a._runs)
        for run in b._runs:
            result._push(run)
        return result

    def _side_by_side(self, other: Self) -> tuple[Keys, list[NDArray[Any]], list[NDArray[Any]]]:
        """Return the cells of either, and what both hold of each."""
        a, b = (side._settled_run() for side in self._together(other))
        keys = np.concatenate([a.keys, b.keys])
        group, first = distinct(keys)
        mine = [_widened(array, len(first)) for array in a.held]
        theirs = [np.zeros((len(first), *array.shape[1:]), array.dtype) for array in b.held]
        for whole, part in zip(theirs, b.held, strict=True):
            whole[group[len(a.keys) :]] = part
        return keys[first], mine, theirs

    def allclose(self, other: Self, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        _, mine, theirs = self._side_by_side(other)
        # `rest` is the rounding of the mean: noise compared with it.
        held = zip(self._arrays, mine, theirs, strict=True)
        spread = self._spread()
        return all(
            close(a, b, rtol, spread if name == "mean" else 0.0)
            for name, a, b in held
            if name != "rest"
        )

    # -- as arrays -----------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays, copied."""
        run = self._settled_run()
        held = dict(zip(self._arrays, run.held, strict=True))
        named: dict[str, NDArray[Any]] = {"columns": self.columns, "keys": run.keys, **held}
        return {name: array.copy() for name, array in named.items()}

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        columns, keys = arrays["columns"], arrays["keys"]
        m = len(shape.sizes)

        def misfit(name: str, why: str) -> ValueError:
            array = arrays[name]
            return ValueError(f"{name}: {array.dtype}{array.shape} does not fit {why}")

        if columns.dtype != np.int64 or columns.ndim != 1:
            raise misfit("columns", "places of columns")
        if len(columns) and not (
            columns[0] >= 0 and columns[-1] < m and (np.diff(columns) > 0).all()
        ):
            raise misfit("columns", f"{m} columns")
        self = cls(shape, weighted=arrays[cls._arrays[0]].dtype == np.float64, columns=columns)
        width = len(columns) + self._more
        if keys.dtype != np.int32 or keys.ndim != 2 or keys.shape[1] != width:
            raise misfit("keys", f"{width} codes of a cell")
        limits = np.append(shape.sizes[columns], [shape.n_classes] * self._more)
        if (keys < MISSING).any() or (keys >= limits).any():
            raise misfit("keys", "the domains of the schema")
        if len(distinct(keys)[1]) < len(keys):
            raise misfit("keys", "different cells")
        empty = self._fitting(self._nothing(len(keys)))
        for name, place in zip(self._arrays, empty, strict=True):
            check_fit(name, arrays[name], place.dtype, place.shape)
        self._runs = [Run(np.array(keys), tuple(np.array(arrays[n]) for n in self._arrays))]
        return self


def _widened(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return an array of n cells that begins with this one, 0 after it."""
    result = np.zeros((n, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result
