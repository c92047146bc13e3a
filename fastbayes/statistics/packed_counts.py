"""Counts of several features at once, packed: one block of cells per group of features."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import Alignment, Schema, Shape
from fastbayes.kernels.shared.arrays import counted_up
from fastbayes.statistics.base import Classes, Floats, Ints, Statistic, close, union
from fastbayes.statistics.retraction import left

# What says where groups stand is little beside the counts, up to so many groups.
MANY_GROUPS = 1 << 17
# Cells whose places are worked out at a time: the index arrays stay small.
CHUNK = 1 << 18


class BlockLayout:
    """Where the block of each group of features stands in one flat array.

    Parameters
    ----------
    sizes
        (m,) values of each feature.
    missing
        (m,) whether a feature has a slot for its missing values, after the others.
    n_classes
        Classes.
    members
        (n_groups, most) features of each group, the axes of its block; -1 after the last one.
    """

    def __init__(
        self, sizes: Ints, missing: NDArray[np.bool_], n_classes: int, members: Ints
    ) -> None:
        self.sizes = np.asarray(sizes, np.int64)
        self.missing = np.asarray(missing, np.bool_)
        self.n_classes = n_classes
        self.members = members
        self.widths = self.sizes + self.missing

    @cached_property
    def shapes(self) -> Ints:
        """Cells along each axis, (n_groups, most); what is no feature is one cell wide."""
        return np.append(self.widths, 1)[self.members]

    @cached_property
    def cells(self) -> Ints:
        """Cells of each group and class, (n_groups,)."""
        cells = np.ones(len(self.members), np.int64)
        for width in self.shapes.T:
            cells *= width
        return cells

    @cached_property
    def starts(self) -> Ints:
        """Where the block of each group begins, (n_groups,)."""
        return (np.cumsum(self.cells) - self.cells) * self.n_classes

    @property
    def total(self) -> int:
        """Cells of all groups and classes."""
        return int(self.cells.sum()) * self.n_classes

    def has(self, sizes: Ints, missing: NDArray[np.bool_], n_classes: int) -> bool:
        """Return whether these are its sizes."""
        return (
            self.n_classes == n_classes
            and np.array_equal(self.sizes, sizes)
            and np.array_equal(self.missing, missing)
        )

    def resized(self, sizes: Ints, missing: NDArray[np.bool_], n_classes: int) -> Self:
        """Return the layout of the same groups for other sizes."""
        return type(self)(sizes, missing, n_classes, self.members)

    @property
    def steps(self) -> Ints:
        """Cells from one value to the next along each axis, (n_groups, most)."""
        most = self.members.shape[1]
        steps = np.ones_like(self.shapes)
        for t in range(most - 2, -1, -1):
            steps[:, t] = steps[:, t + 1] * self.shapes[:, t + 1]
        return steps


class PackedCounts(Statistic):
    """Counts n(class, features of a group), one dense block per group.

    Notes
    -----
    `flat` holds one block (w_1, ..., w_n, n_classes) per group, in C order, at `layout.starts`. w
    is the number of values, and one more where a missing value occurred: most columns have none,
    and a third value would more than double the work of a pair of two-valued columns. A subclass
    says what its groups are, which layout places them, and how a block of rows is counted.
    """

    numeric_as = "bins"
    counts_rows = True
    most = "column {name!r} with {values} values needs"

    _layout: ClassVar[type[BlockLayout]] = BlockLayout

    layout: BlockLayout
    flat: NDArray[Any]

    def __init__(self, shape: Shape, weighted: bool, members: Ints) -> None:
        self.shape = shape
        m = len(shape.sizes)
        # Nothing is allocated before a batch tells which values are in use.
        self.layout = self._layout(np.zeros(m, np.int64), np.zeros(m, np.bool_), 0, members)
        self.flat = np.zeros(0, np.float64 if weighted else np.int64)

    @classmethod
    def placing(cls, n_groups: int, most: int, copies: int) -> int:
        """Return the bytes that layouts of many groups take, of up to so many features each."""
        return copies * n_groups * (16 * most + 32) if n_groups > MANY_GROUPS else 0

    # -- what a subclass gives -----------------------------------------------------------------

    def _count(self, columns: list[NDArray[Any]], batch: Batch, weight: Floats | None) -> None:
        """Add the rows of a batch; columns[j] are codes < `layout.widths[j]`."""
        raise NotImplementedError

    def _among(self, wanted: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the groups that are left among other features: members, where each was, and axes.

        Features of a group and groups are sorted.

        wanted  (m + 1,) new feature of each old one; -1 where it is not there, and at the end
        axes    (n_groups, most) where each axis was
        """
        members = self.layout.members
        if np.array_equal(wanted[:-1], np.arange(len(wanted) - 1)):
            return members, *_in_place(members)
        groups = wanted[members]
        kept = np.flatnonzero((groups >= 0).all(axis=1))
        axes = np.argsort(groups[kept], axis=1)
        groups = np.take_along_axis(groups[kept], axes, axis=1)
        order = np.lexsort(groups.T[::-1])
        return groups[order], kept[order], axes[order]

    # -- reading -------------------------------------------------------------------------------

    @property
    def weighted(self) -> bool:
        """Whether the counts are sums of weights."""
        return self.flat.dtype == np.float64

    @property
    def added_to(self) -> list[NDArray[Any]]:
        """The counts, before they are laid out anew."""
        return [self.flat]

    def blank(self) -> Self:
        """Return the counts of no rows, laid out like these."""
        return self._with(self.shape, self.layout, np.zeros_like(self.flat))

    def is_laid_out_like(self, other: Self) -> bool:
        """Return whether each cell stands where it does in other counts."""
        mine, theirs = self.layout, other.layout
        same = mine.has(theirs.sizes, theirs.missing, theirs.n_classes)
        return same and np.array_equal(mine.members, theirs.members)

    @property
    def n_groups(self) -> int:
        """Groups of features that are counted together."""
        return len(self.layout.members)

    def group(self, q: int) -> NDArray[Any]:
        """Return the (w_1, ..., w_n, n_classes) counts of a group, missing values included."""
        layout, k = self.layout, self.layout.n_classes
        begin, members = int(layout.starts[q]), layout.members[q]
        cells = self.flat[begin : begin + int(layout.cells[q]) * k]
        return cells.reshape(*layout.widths[members[members >= 0]].tolist(), k)

    def features(self, q: int) -> tuple[int, ...]:
        """Return the features of a group."""
        return tuple(f for f in self.layout.members[q].tolist() if f >= 0)

    def where(self, cell: int) -> tuple[int, ...]:
        """Return the features of the group to which a position in `flat` belongs."""
        return self.features(int(np.searchsorted(self.layout.starts, cell, side="right")) - 1)

    # -- learning ------------------------------------------------------------------------------

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        layout = self.layout
        columns: list[NDArray[Any]] = [np.zeros(0, np.uint8)] * len(layout.sizes)
        known = np.zeros_like(layout.sizes)
        for features, codes, sizes in batch.codes:
            known[features] = sizes - batch.missing[features]
            for feature, column in zip(features.tolist(), codes, strict=True):
                columns[feature] = column
        sizes = np.maximum(layout.sizes, known)
        missing, n_classes = layout.missing | batch.missing, max(layout.n_classes, batch.n_classes)
        self._lay_out(sizes, missing, n_classes)
        self._count(columns, batch, weight)

    def _lay_out(self, sizes: Ints, missing: NDArray[np.bool_], n_classes: int) -> None:
        """Move the counts, in place, to a layout of the same groups for these sizes."""
        old = self.layout
        if old.has(sizes, missing, n_classes):
            return
        wanted = old.resized(sizes, missing, n_classes)
        every = np.arange(len(old.sizes)), [np.arange(size) for size in wanted.sizes.tolist()]
        classes = np.arange(wanted.n_classes)
        self.flat = self._relaid(wanted, *every, classes, *_in_place(old.members))
        self.layout = wanted

    def _relaid(
        self,
        wanted: BlockLayout,
        features: Ints,
        values: Sequence[Ints],
        classes: Ints,
        origin: Ints,
        axes: Ints,
    ) -> NDArray[Any]:
        """Return the counts in another layout, from where its features, values, classes are.

        origin, axes  as of `_among`
        """
        old, sizes = self.layout, self.layout.sizes[features]
        result = np.zeros(wanted.total, self.flat.dtype)
        # Classes and values beyond the room that was ever needed have no counts.
        classes = np.where(classes < old.n_classes, classes, -1)
        kept = np.flatnonzero(classes >= 0)
        if not (len(self.flat) and len(result) and len(kept)):
            return result
        places = np.empty(int(wanted.widths.sum()), np.int64)
        of_value = np.ones(len(places), np.bool_)
        of_value[np.cumsum(wanted.widths)[wanted.missing] - 1] = False
        held = np.concatenate(values)
        places[of_value] = np.where(held < np.repeat(sizes, wanted.sizes), held, -1)
        places[~of_value] = np.where(old.missing[features], sizes, -1)[wanted.missing]
        if (
            np.array_equal(features, np.arange(len(old.sizes)))
            and np.array_equal(wanted.widths, old.widths)
            and np.array_equal(places, counted_up(wanted.widths))
        ):
            # Cells stay where they are, and classes alone are others, as in every fold of the same.
            if np.array_equal(classes, np.arange(old.n_classes)):
                return self.flat.copy()
            cells = result.reshape(-1, wanted.n_classes)
            cells[:, kept] = self.flat.reshape(-1, old.n_classes)[:, classes[kept]]
        else:
            steps = np.take_along_axis(old.steps[origin], axes, axis=1) * old.n_classes
            _move(self.flat, old.starts[origin], steps, result, wanted, places, classes)
        return result

    def grown(self, shape: Shape) -> Self:
        """Return the statistic with room for at least `shape`, which is laid out once needed."""
        return self._with(union(self.shape, shape), self.layout, self.flat)

    def _with(self, shape: Shape, layout: BlockLayout, flat: NDArray[Any]) -> Self:
        result = copy.copy(self)
        result.shape, result.layout, result.flat = shape, layout, flat
        return result

    def take(self, to: Alignment) -> Self:
        """Return the statistic with its cells moved to another shape; new cells are 0."""
        old = self.layout
        inverse = np.full(len(old.sizes) + 1, -1)
        inverse[to.categorical] = np.arange(len(to.categorical))
        members, origin, axes = self._among(inverse)
        wanted = type(old)(to.shape.sizes, old.missing[to.categorical], to.shape.n_classes, members)
        places = to.categorical, to.values, to.classes
        return self._with(to.shape, wanted, self._relaid(wanted, *places, origin, axes))

    # -- arithmetic ----------------------------------------------------------------------------

    def settled(self) -> Self:
        """Return the statistic laid out for its whole shape, without unused missing slots."""
        shape, missing = self.shape, self.layout.missing.copy()
        missing[missing] = [self._has_missing(j) for j in np.flatnonzero(missing).tolist()]
        if self.layout.has(shape.sizes, missing, shape.n_classes):
            return self
        result = self.grown(shape)
        result._lay_out(shape.sizes, missing, shape.n_classes)
        return result

    def _has_missing(self, j: int) -> bool:
        last, most = int(self.layout.sizes[j]), self.layout.members.shape[1]
        axes = (divmod(at, most) for at in np.flatnonzero(self.layout.members == j).tolist())
        return any(self.group(q).take(last, axis=t).any() for q, t in axes)

    def __add__(self, other: Self) -> Self:
        a, b = self._together(other)
        a.flat = a.flat + b.flat
        return a

    def __sub__(self, other: Self) -> Self:
        a, b = self._together(other)
        mine, theirs = (side.flat.reshape(-1, max(side.layout.n_classes, 1)) for side in (a, b))
        a.flat = left(mine, theirs).ravel()
        return a.settled()

    def _together(self, other: Self) -> tuple[Self, Self]:
        """Return both with one layout that has room for either."""
        a, b = self.layout, other.layout
        if not np.array_equal(a.members, b.members):
            raise SchemaError(
                f"the counts are of different {self.name} of columns; count both alike"
            )
        wanted = np.maximum(a.sizes, b.sizes), a.missing | b.missing, max(a.n_classes, b.n_classes)
        both = self.grown(other.shape), other.grown(self.shape)
        for part in both:
            part._lay_out(*wanted)
        return both

    def check_left(self, schema: Schema) -> None:
        """Raise DataError where a count is below 0: rows were taken away that were never added."""
        if len(self.flat) and self.flat.min() < 0:
            where = self.where(int(self.flat.argmin()))
            *others, last = [repr(schema.categorical[j].name) for j in where]
            named = f"columns {', '.join(others)} and" if others else "column"
            raise DataError(
                f"{named} {last}: {'two ' * (len(others) == 1)}values would occur together "
                "fewer than 0 times; these rows were never added"
            )

    def __mul__(self, factor: float) -> Self:
        return self._with(self.shape, self.layout, self.flat * float(factor))

    def __eq__(self, other: object) -> bool:
        # Blocks of other sizes may be as long.
        if isinstance(other, PackedCounts) and not np.array_equal(
            self.shape.sizes, other.shape.sizes
        ):
            return False
        return super().__eq__(other)

    __hash__ = None

    def allclose(self, other: Self, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        a, b = self._together(other)
        return close(a.flat, b.flat, rtol)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        whole = self.settled()
        return {"counts": whole.flat, "missing": whole.layout.missing.astype(np.uint8)}

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]], **options: Any) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        return cls.zeros(shape, weighted=arrays["counts"].dtype == np.float64, **options)._filled(
            arrays
        )

    def _filled(self, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic with the counts of `arrays()`; this one is as `zeros` made it."""
        shape, flat, missing = self.shape, arrays["counts"], arrays["missing"]
        m = len(shape.sizes)
        if missing.shape != (m,) or missing.dtype != np.uint8:
            raise ValueError(f"missing: {missing.dtype}{missing.shape} does not fit {m} columns")
        self.layout = self.layout.resized(shape.sizes, missing != 0, shape.n_classes)
        if flat.shape != (self.layout.total,) or flat.dtype not in (np.int64, np.float64):
            raise ValueError(
                f"counts: {flat.dtype}{flat.shape} does not fit the schema, which wants "
                f"{self.layout.total} counts of {self.name}"
            )
        self.flat = np.array(flat)
        return self


def _in_place(members: Ints) -> tuple[Ints, Ints]:
    """Return where groups and axes were that stay where they are, as `_among` has them."""
    return np.arange(len(members)), np.broadcast_to(np.arange(members.shape[1]), members.shape)


def _move(
    flat: NDArray[Any],
    starts: Ints,
    steps: Ints,
    out: NDArray[Any],
    new: BlockLayout,
    places: Ints,
    classes: Ints,
) -> None:
    """Write the cells of a layout into one that `new` has; -1 in a map is a new, empty cell.

    starts (n_groups,) and steps (n_groups, most) are those of the old block for each new group and
    each of its axes; places (sum of w_j,) and classes (K_new,) say where each value was before.
    """
    # What is no feature has one cell, which comes from there too.
    table = np.append(places, 0)
    begins = np.concatenate(([0], np.cumsum(new.widths)))
    kept = np.flatnonzero(classes >= 0)
    ends = np.cumsum(new.cells)
    for lo in range(0, int(ends[-1]), CHUNK):
        hi = min(lo + CHUNK, int(ends[-1]))
        some = slice(
            int(np.searchsorted(ends, lo, side="right")), int(np.searchsorted(ends, hi)) + 1
        )
        first, cells = ends[some] - new.cells[some], new.cells[some]
        here = np.minimum(first + cells, hi) - np.maximum(first, lo)
        group = np.repeat(np.arange(len(cells)), here)
        rest = np.arange(lo, hi) - first[group]
        source, there = starts[some][group], np.ones(hi - lo, np.bool_)
        for t in range(new.members.shape[1] - 1, -1, -1):
            rest, v = np.divmod(rest, new.shapes[some, t][group])
            v = table[begins[new.members[some, t]][group] + v]
            there &= v >= 0
            source += v * steps[some, t][group]
        target, source = (lo + np.flatnonzero(there)) * new.n_classes, source[there]
        for c in kept.tolist():
            out[target + c] = flat[source + classes[c]]
