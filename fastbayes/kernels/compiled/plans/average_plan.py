"""What the kernels of AODE need to know before they run: groups of children, tiles, ranges."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.scoring.log_joint import ColumnSum, NaiveScorer
from fastbayes.kernels.dispatch import numpy_twin, readonly
from fastbayes.kernels.shared.arrays import Floats, Ints

T = TypeVar("T")


class AverageTables(Generic[T]):
    """AODE as it was given, in the terms of its kernels.

    `made(model, extents, dtype, joined)` makes tables of lifts for so many codes of each feature,
    of children joined or one by one, or raises TooWide.
    """

    def __init__(
        self,
        prior: Floats,
        tables: Floats,
        offsets: Ints,
        own: Floats,
        weight: Floats,
        children: Callable[[int], Any],
        together: Callable[[Sequence[int]], Iterator[Floats]] | None,
        fast: bool,
        made: Callable[[AverageTables[T], Ints, type[np.floating], bool], T],
    ) -> None:
        self.prior, self.offsets = prior, readonly(offsets)
        self.sizes = np.diff(offsets) - 2
        given = prior, tables, offsets, own, weight, children
        self.slow = numpy_twin("scoring.averages").AverageScorer(*given)
        self._bayes = NaiveScorer(prior, tables, offsets)
        # Any positive reference will do; with naive Bayes' lifts are near 1.
        self.reference = np.where(np.isfinite(tables), tables, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            self.inverse = readonly(np.exp(-self.reference))
            self.first = readonly(weight[:, None] * own * self.inverse)
        by_feature = [weight[begin:end] for begin, end in itertools.pairwise(offsets)]
        parents = [p for p, some in enumerate(by_feature) if some.any()]
        # Where all values of a feature weigh the same, so do all rows of known values.
        known = [some[:-2] for some in by_feature if len(some) > 2]
        alike = all((some == some[0]).all() for some in known)
        self._fixed = sum(float(some[0]) for some in known) if alike else 0.0
        self.parents = readonly(np.array(parents, np.int64))
        nothing = np.empty((0, 4, 1))
        self._weights = ColumnSum(np.zeros(1), weight[:, None], offsets, nothing, np.float64)
        self._children, self._together = children, together
        self._fast, self._make = fast, made
        self._made: dict[int, T | None] = {}
        self._lock = threading.Lock()
        self.kept = 0  # bytes of the tables made

    def children(self, parents: Ints) -> Iterator[Floats]:
        """Yield P(x_j | c, x_p) of each of some parents, (S_p + 2, n_slots, n_classes)."""
        some = parents.tolist()
        found = map(self._children, some) if self._together is None else self._together(some)
        return (readonly(np.asarray(table, np.float64)) for table in found)

    def lifts(self, level: int) -> T | None:
        """Return tables for codes up to a level, or None where products would not do.

        Parameters
        ----------
        level
            0 for values, 1 for missing too, 2 for unseen too.
        """
        with self._lock:
            if level not in self._made:
                self._made[level] = self._lifts(np.maximum(self.sizes + level, 1))
            return self._made[level]

    def _lifts(self, extents: Ints) -> T | None:
        if not (len(self.parents) and np.isfinite(self.inverse).all()):
            return None
        # First what is fastest: float32, tables of several children, then of one.
        for dtype, joined in ((np.float32, True), (np.float64, True), (np.float64, False)):
            if dtype is np.float64 or self._fast:
                try:
                    return self._make(self, readonly(extents), dtype, joined)
                except TooWide:
                    continue
        return None

    def weights(self, batch_codes: Sequence[Codes], n_rows: int, level: int) -> Floats:
        """Return Σ_p u_p of each row, or (1,) where it is the same for all rows of this level."""
        if level == 0 and self._fixed > 0:
            return np.array([self._fixed])
        result = np.empty(n_rows)
        for lo, n, acc in self._weights.blocks(batch_codes, (), n_rows):
            result[lo : lo + n] = acc[0, :n]
        return result

    def naive(self, batch_codes: Sequence[Codes], rows: Ints) -> Floats:
        """Return the log joints of naive Bayes of these rows, (n, n_classes)."""
        some = [Codes(g.features, np.take(g.codes, rows, axis=1), g.sizes) for g in batch_codes]
        out = np.empty((len(rows), len(self.prior)))
        self._bayes.log_joint(some, (), out)
        return out


# Joint tables of all parents together take at most so many bytes.
JOINED = 2**26

# Rows at a time: all tables are read once for so many rows, whose codes take `CODES` bytes or so.
LEAST_ROWS, MOST_ROWS, CODES = 4_096, 16_384, 2**19

# Measured nanoseconds of a look-up in one parent's tables that fit the first-level cache, what it
# is more per doubling of them beyond that, and beyond a share of the second-level one; and of
# fetching a cache line from farther away, once per parent.
NEAR, FIRST_LEVEL, SECOND_LEVEL, LINE = 0.28, (2**15, 0.08), (2**19, 0.4), 10.0

MOST_CELLS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)

# Codes of the kernels are 16 bits wide.
SPAN = 65_535

# |log2| of a product of all factors, before it must be rescaled, and of a run of them in one type.
RANGE = 1000.0
RANGE_OF = {np.dtype(np.float64): 900.0, np.dtype(np.float32): 110.0}

# A feature of so many codes stands alone, and has no place in its own tables as a parent: these
# would be as large as the square of it.
WIDE = 256


class TooWide(Exception):
    """These numbers are beyond the range of products, or these columns beyond that of codes."""


class JoinedChildren(NamedTuple):
    """Children whose tables are joined: group g is order[bounds[g]:bounds[g + 1]]."""

    order: Ints
    radix: NDArray[np.uint16]  # factor of a child's code in its group's code
    bounds: Ints
    cells: Ints  # of each group
    wide: NDArray[np.bool_]  # groups of one feature of very many codes


def groups(extents: Ints, values: Ints, cell: int, joined: bool) -> JoinedChildren:
    """Return the groups of children that make scoring cheapest.

    Parameters
    ----------
    extents
        (n_features,) codes of each feature.
    values
        (n_parents,) values of each parent, every one with a table of all groups.
    cell
        Bytes of one cell.
    joined
        False to leave each child alone.
    """
    best, least = _packed(extents, 1), np.inf
    for most in MOST_CELLS if joined else ():
        packed = _packed(extents, most)
        # Of the tables of a wide feature few lines are in use at a time.
        row, n_groups = int(packed.cells[~packed.wide].sum()) * cell, len(packed.cells)
        near = max(row * float(values.mean()), 1.0)
        look_up = NEAR
        for size, more in (FIRST_LEVEL, SECOND_LEVEL):
            look_up += more * max(np.log2(near / size), 0.0)
        cost = n_groups * look_up + near / 64 / rows_together(n_groups) * LINE
        if cost < least and row * int(values.sum()) <= JOINED:
            best, least = packed, cost
    return best


def rows_together(n_groups: int) -> int:
    """Return for how many rows all tables are read once: a multiple of four."""
    return min(max(CODES // (2 * n_groups) // 4 * 4, LEAST_ROWS), MOST_ROWS)


def _packed(extents: Ints, most: int) -> JoinedChildren:
    """Return groups of at most so many cells, small features together."""
    order = np.argsort(extents, kind="stable")
    bounds, radix, cells, product = [0], [], [], 1
    for at, extent in enumerate(extents[order].tolist()):
        if at > bounds[-1] and (product * extent > most or extent >= WIDE):
            bounds.append(at)
            cells.append(product)
            product = 1
        radix.append(product)
        product *= extent
    if len(order):
        bounds.append(len(order))
        cells.append(product)
    return JoinedChildren(
        readonly(order),
        readonly(np.array(radix, np.int64).astype(np.uint16)),
        readonly(np.array(bounds, np.int64)),
        readonly(np.array(cells, np.int64)),
        extents[order[bounds[:-1]]] >= WIDE,
    )


def tiles(n_classes: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield first class and width of tiles that hold all classes, for features of `most` codes."""
    first = 0
    while first < n_classes:
        left = n_classes - first
        width = 8 if left > 4 else 4 if left > 2 else 2
        while width > 2 and most * width > SPAN:
            width //= 2
        if most * width > SPAN:
            raise TooWide
        yield first, width
        first += width


def runs(
    bits: NDArray[np.float64], sizes: Ints, wide: NDArray[np.bool_], dtype: np.dtype[Any]
) -> list[tuple[int, int]]:
    """Return runs of groups, first and last + 1, whose products are within range.

    Parameters
    ----------
    bits
        (n_parents, n_groups) largest |log2| of each group's products.
    sizes
        (n_groups,) elements of each group's table.
    wide
        (n_groups,) whether a group must be a run of its own.
    dtype
        In which a run is multiplied.

    Raises
    ------
    TooWide
        When one group alone is beyond the range.
    """
    if not (bits <= RANGE_OF[dtype]).all():
        raise TooWide
    found: list[tuple[int, int]] = []
    total, span = np.zeros(len(bits)), 0
    for g, size in enumerate(sizes.tolist()):
        total, span = total + bits[:, g], span + size
        full = span > SPAN or bool((total > RANGE_OF[dtype]).any())
        if not found or full or wide[g - 1 : g + 1].any():
            found.append((g, g + 1))
            total, span = bits[:, g], size
        else:
            found[-1] = found[-1][0], g + 1
    return found


class TableOrder(NamedTuple):
    """How the tables of a parent's value stand one after the other."""

    runs: Ints  # first and last + 1 group of each run
    at: Ints  # element at which each run begins
    size: int  # elements


def row_of(sizes: Ints, found: list[tuple[int, int]], without: int | None) -> TableOrder:
    """Return the row of a parent whose own group, if it is given, is a run that is left out.

    Parameters
    ----------
    sizes
        (n_groups,) elements of each group's table.
    found
        All runs.
    without
        The group.
    """
    mine = [(begin, end) for begin, end in found if begin != without]
    at = np.cumsum([0, *(int(sizes[begin:end].sum()) for begin, end in mine)])
    flat = np.array(mine, np.int64).reshape(-1)
    return TableOrder(readonly(flat), readonly(at[:-1].astype(np.int64)), int(at[-1]))


def within(sizes: Ints, found: list[tuple[int, int]]) -> Ints:
    """Return the element of its run at which each group begins, (n_groups,)."""
    parts = [np.cumsum(sizes[begin:end]) - sizes[begin:end] for begin, end in found]
    return readonly(np.concatenate(parts).astype(np.int64))
