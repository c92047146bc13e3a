"""Tables of products of lifts, and what the kernels of AODE are called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.plans import average_plan
from fastbayes.kernels.compiled.plans.average_plan import AverageTables, TooWide
from fastbayes.kernels.compiled.plans.joint_tables import aligned
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared.arrays import Floats, Ints

Kernel = Callable[..., None]

# A model keeps tables of so many bytes; those beyond are made for every block anew, parent by
# parent, with the same bits in the result.
KEPT = 2**28

# Rows whose products are rescaled at a time: they stay in the first-level cache.
SCALED_ROWS = 512


class Kernels(NamedTuple):
    """The kernels of `averages`; products by the width of their vectors."""

    write_lifts: Kernel
    write_codes: Kernel
    add_products: Mapping[int, Kernel]
    add_scaled: Kernel
    add_logs: Kernel


class Lifts:
    """Tables of all parents for a number of codes of each feature.

    Parameters
    ----------
    kernels
        What is called.
    model
        The model.
    extents
        (n_features,) codes of each feature.
    dtype
        Of the tables.
    joined
        Whether children may be joined.

    Raises
    ------
    TooWide
        When products of these lifts cannot be kept within range.
    """

    def __init__(
        self,
        kernels: Kernels,
        model: AverageTables[Lifts],
        extents: Ints,
        dtype: type[np.floating],
        joined: bool,
    ) -> None:
        self.kernels, self.model, self.extents = kernels, model, extents
        # Parents that leave themselves out of their tables come last.
        wide = extents[model.parents] >= average_plan.WIDE
        self.parents = readonly(model.parents[np.argsort(wide, kind="stable")])
        self.values = extents[self.parents]
        self.begin = readonly(np.cumsum([0, *self.values]))
        self._tiles = [
            Tile(self, *tile, np.dtype(dtype), joined, int(wide.sum()))
            for tile in average_plan.tiles(len(model.prior), int(extents.max()))
        ]
        n_bytes = sum(int(tile.ends[-1]) * tile.dtype.itemsize for tile in self._tiles)
        kept = bool(model.kept + n_bytes <= KEPT)
        tables = [tile.room(kept) for tile in self._tiles]
        bits: list[list[Floats]] = [[] for _ in self._tiles]
        for i, child in enumerate(model.children(self.parents)):
            for tile, table, found in zip(self._tiles, tables, bits, strict=True):
                found.append(tile.write(child, i, table[tile.ends[i] if kept else 0 :]))
        for tile, found in zip(self._tiles, bits, strict=True):
            tile.settle(np.array(found))
        self.tables = [readonly(table) for table in tables] if kept else []
        model.kept += sum(table.nbytes for table in self.tables)

    def add(
        self,
        codes: NDArray[np.unsignedinteger],
        place: Ints,
        weight: Floats,
        lo: int,
        n: int,
        odds: bool,
        acc: Floats,
    ) -> None:
        """Add ln Σ products - ln weight of rows from `lo` on, or the log odds of Σ products."""
        for k, tile in enumerate(self._tiles):
            rows = tile.rows(n)
            for at in range(0, n, rows.most):
                some = min(rows.most, n - at)
                tile.encode(codes, place, lo + at, some, rows)
                if self.tables:
                    tile.add(self.tables[k], rows, some)
                else:
                    table = tile.room(False)
                    for i, child in enumerate(self.model.children(self.parents)):
                        tile.write(child, i, table)
                        tile.add_some(table, rows, some, i, i + 1)
                outputs = 0 if odds else min(tile.width, len(self.model.prior) - tile.first)
                self.kernels.add_logs(
                    *(readonly(rows.total), readonly(rows.power), weight, tile.first, tile.width),
                    *(outputs, lo + at, at, some, rows.logs, acc),
                )
            tile.spare.append(rows)


class RowsInWork:
    """What is known of a few rows while they are scored."""

    def __init__(self, tile: Tile, n: int, n_parents: int) -> None:
        self.most = n
        self.values = np.empty((n_parents, n), np.uint16)
        self.quads = np.empty((n // 4, len(tile.groups.cells)), np.uint64)
        self.total, self.logs = np.empty(n * tile.width), np.empty(n * tile.width)
        self.power = np.empty(n * tile.width if tile.scaled else 0)


class Tile:
    """Tables of lifts of up to eight classes, the last `n_wide` parents leaving themselves out."""

    def __init__(
        self,
        lifts: Lifts,
        first: int,
        width: int,
        dtype: np.dtype[np.floating],
        joined: bool,
        n_wide: int,
    ) -> None:
        self.first, self.width, self.dtype, self.scaled = first, width, dtype, False
        self.spare: list[RowsInWork] = []
        self._lifts, model = lifts, lifts.model
        groups = average_plan.groups(lifts.extents, lifts.values, width * dtype.itemsize, joined)
        self.groups, self._sizes = groups, groups.cells * width
        self._n_together = len(lifts.parents) - n_wide
        # The group that each parent leaves out.
        group_of = {int(groups.order[begin]): g for g, begin in enumerate(groups.bounds[:-1])}
        self._without = [group_of[int(p)] for p in lifts.parents[self._n_together :]]
        sizes = np.full(len(lifts.parents), self._sizes.sum())
        sizes[self._n_together :] -= self._sizes[self._without]
        self._tables = lifts.values * sizes
        self.ends = np.cumsum([0, *self._tables])
        slots = [model.offsets[p] + np.arange(lifts.extents[p]) for p in lifts.parents]
        init = np.zeros((int(lifts.begin[-1]), width))
        outputs = model.first[np.concatenate(slots), first : first + width]
        init[:, : outputs.shape[1]] = outputs
        self._init = readonly(init)

    def room(self, all_parents: bool) -> NDArray[np.floating]:
        """Return an empty table of all parents, or of any one."""
        return aligned(int(self.ends[-1] if all_parents else self._tables.max()), self.dtype.type)

    def write(self, child: Floats, i: int, table: NDArray[np.floating]) -> Floats:
        """Write the i-th parent's tables; return the largest |log2| of each group's products."""
        lifts, begin, end = self._lifts, self._lifts.begin[i], self._lifts.begin[i + 1]
        order, bounds = self.groups.order, self.groups.bounds
        if i >= self._n_together:
            out = self._without[i - self._n_together]
            order = readonly(np.delete(order, bounds[out]))
            bounds = readonly(np.cumsum([0, *np.delete(np.diff(bounds), out)]))
        low, high = np.ones((2, len(lifts.extents)))
        lifts.kernels.write_lifts(
            *(child, lifts.model.inverse, self._init[begin:end], order, bounds, lifts.extents),
            *(lifts.model.offsets, int(lifts.parents[i]), self.first, self.width),
            *(np.empty(int(self._sizes.max()) + self.width), low, high, table),
        )
        bits = np.maximum(np.log2(high), -np.log2(low))
        return np.add.reduceat(bits[self.groups.order], self.groups.bounds[:-1])

    def settle(self, bits: Floats) -> None:
        """Divide the groups into runs whose products are within range of the table's type."""
        some = self._init[self._init > 0]
        if not ((some > 2.0**-1020) & (some < 2.0**1020)).all():
            raise TooWide
        found = average_plan.runs(bits, self._sizes, self.groups.wide, self.dtype)
        self._within = average_plan.within(self._sizes, found)
        rows = (average_plan.row_of(self._sizes, found, g) for g in (None, *self._without))
        self._row, *self._rows = rows
        first = np.abs(np.log2(some)).max(initial=0.0)
        self.scaled = bool((bits.sum(axis=1) + first > average_plan.RANGE).any())

    def rows(self, n: int) -> RowsInWork:
        """Return room for n rows or fewer: what was used before, which is in memory, or new."""
        most = min(average_plan.rows_together(len(self.groups.cells)), -(-n // 4) * 4)
        try:
            rows = self.spare.pop()
        except IndexError:
            rows = None
        if rows is None or rows.most < most:
            rows = RowsInWork(self, most, len(self._lifts.parents))
        return rows

    def encode(
        self,
        codes: NDArray[np.unsignedinteger],
        place: Ints,
        lo: int,
        n: int,
        rows: RowsInWork,
    ) -> None:
        """Write the joint codes of rows from `lo` on, and forget the rows before."""
        groups = self.groups
        self._lifts.kernels.write_codes(
            *(codes, readonly(place[groups.order]), groups.radix, groups.bounds, self._within),
            *(readonly(place[self._lifts.parents]), self.width, lo, n),
            *(np.empty(SCALED_ROWS, np.uint16), rows.values, rows.quads),
        )
        rows.total[:] = 0.0
        rows.power[:] = -(2.0**40)

    def add(self, table: NDArray[np.floating], rows: RowsInWork, n: int) -> None:
        """Add the products of all parents."""
        if self._n_together:
            self.add_some(table, rows, n, 0, self._n_together)
        for i in range(self._n_together, len(self._lifts.parents)):
            self.add_some(table[self.ends[i] :], rows, n, i, i + 1)

    def add_some(
        self, table: NDArray[np.floating], rows: RowsInWork, n: int, first: int, last: int
    ) -> None:
        """Add the products of parents first to last - 1, whose tables begin the table."""
        alone = first - self._n_together
        row = self._rows[alone] if alone >= 0 else self._row
        begin = self._lifts.begin[first:last]
        init = self._init[begin[0] : self._lifts.begin[last]].reshape(-1)
        arguments = (
            *(readonly(table), readonly(begin - begin[0]), row.runs, row.at, row.size, init),
            *(readonly(rows.values), readonly(rows.quads), first, last - first, n),
        )
        kernels = self._lifts.kernels
        if self.scaled:
            scratch = np.empty((2, SCALED_ROWS * self.width))
            kernels.add_scaled(*arguments, self.width, scratch, rows.total, rows.power)
        else:
            kernels.add_products[self.width](*arguments, rows.total)
