"""The values of each numeric feature within each class: all of them, or thousands of ranges."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.sketch import (
    FRACTION_BITS,
    NONE,
    SLOT_BYTES,
    Entries,
    keys,
    least_shift,
    numbers,
    split,
)
from fastbayes.kernels.shared.sketch import room as slots_for
from fastbayes.statistics.base import (
    Classes,
    Floats,
    Need,
    RetractionError,
    Room,
    Statistic,
    check_fit,
    close,
)
from fastbayes.statistics.retraction import left

# Values of a feature within a class that are told apart: as many are held exactly.
LIMIT = 4_096
# Weights of the ranges that classes have in common: 32 MiB of them.
MOST_WEIGHTS = 1 << 22
# Weights beyond this could overflow their sums.
GREATEST_WEIGHT = 2.0**32
_ONE = 1 << FRACTION_BITS
# What holds entries where no block of rows asked for the compiled one.
SketchEntries: Any = dispatch.numpy_twin("counting.sketch").SketchEntries


class Held(NamedTuple):
    """What is known of the values of a feature within a class.

    least, greatest  (n,) float64  extremes of each range, ascending; equal for a single value
    weight           (n,) float64  rows, or the sum of their weights, above 0
    exact            whether every value stands for itself
    """

    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    weight: NDArray[np.float64]
    exact: bool


class ClassSketches(Statistic):
    """A sketch of the values per (numeric feature, class): what a density is read off.

    Notes
    -----
    A feature within a class has at most `LIMIT` cells, and they are as small as that allows: the
    values of a cell agree in all but the lowest bits of their order-preserving integers. Which
    they are depends on the rows as a set and on nothing else, so sketches add in any order, to
    the same bits, and those of parts of the rows add up to the sketch of all. They come apart
    again where each value is held exactly; a range does not, and is refused.
    """

    name = "sketches"
    title = "sketches of values"
    option = "numeric='kde'"
    numeric_as = "numbers"
    work = "sketching numeric columns"
    most = "{numbers:,} columns in each class need {bytes:,} bytes,"
    comes_apart = False  # ranges do not

    def __init__(self, shape: Shape, *, weighted: bool = False) -> None:
        super().__init__(shape)
        self._cells: dict[tuple[int, int], Any] = {}

    @classmethod
    def need(cls, room: Room, **options: Any) -> Need:
        """Return the most bytes that sketches of so many rows take while they are made."""
        slots = slots_for(int(min(room.rows, LIMIT)))
        cells = room.shape.n_numeric * room.shape.n_classes * room.copies
        return Need(np.zeros(len(room.shape.sizes), np.int64), cells * SLOT_BYTES * slots)

    @property
    def nbytes(self) -> int:
        """Bytes held; `arrays` would convert every entry to tell."""
        cells = self.shape.n_numeric * self.shape.n_classes
        return 16 * cells + 32 * sum(map(len, self._cells.values()))

    def of(self, feature: int, label: int) -> Held:
        """Return what is known of the values of a numeric feature within a class."""
        entries, shift = self._entries((feature, label))
        return Held(
            numbers(entries.least),
            numbers(entries.greatest),
            _weight(entries),
            shift == 0,
        )

    def together(
        self, feature: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the values of a numeric feature in ranges that all classes have in common.

        Returns
        -------
        tuple
            Least and greatest value of each range, (n,) ascending, and what it weighs in each
            class, (n, n_classes). Ranges of classes nest: these are as wide as the widest, and of
            hundreds of classes wider, so that there are at most `MOST_WEIGHTS` weights.
        """
        parts = [self._entries((feature, c)) for c in range(self.shape.n_classes)]
        low, high = (
            np.concatenate([NONE.least, *(entries[i] for entries, _ in parts)]) for i in (1, 2)
        )
        widest = max((shift for _, shift in parts), default=0)
        most = max(1, MOST_WEIGHTS // max(1, len(parts)))
        # A stable sort merges what ascends in every class; each range then begins with its least.
        order = low.argsort(kind="stable")
        low, high = low[order], high[order]
        # Equal keys differ in no bit, and those of one range in its lowest bits alone.
        cell = low >> np.uint64(least_shift([low[1:] ^ low[:-1]], widest, most))
        new = np.ones(len(cell), np.bool_)
        np.not_equal(cell[1:], cell[:-1], out=new[1:])
        starts, at = np.flatnonzero(new), np.empty(len(cell), np.int64)
        at[order] = np.cumsum(new) - 1
        weight, first = np.zeros((len(starts), len(parts))), 0
        for c, (entries, _) in enumerate(parts):
            mine = at[first : first + len(entries.least)]
            weight[:, c] = np.bincount(mine, _weight(entries), len(starts))
            first += len(mine)
        return numbers(low[starts]), numbers(np.maximum.reduceat(high, starts)), weight

    def _entries(self, at: tuple[int, int]) -> tuple[Entries, int]:
        cells = self._cells.get(at)
        if cells is None:
            return NONE, 0
        entries: Entries = cells.entries()
        return entries, int(cells.shift)

    def _all(self) -> Iterator[tuple[tuple[int, int], Entries, int]]:
        """Yield feature and class, entries and shift of those that hold values, in order."""
        for at in sorted(self._cells):
            entries, shift = self._entries(at)
            if len(entries.least):
                yield at, entries, shift

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        if weight is not None and (most := weight.max(initial=0)) > GREATEST_WEIGHT:
            raise DataError(
                f"a row of weight {most:g} is too much for sums of weights to be exact; divide all "
                "weights by a power of ten"
            )
        made = dispatch.load("counting.sketch", batch.cells).SketchEntries
        order = np.argsort(classes, kind="stable")
        ends = np.cumsum(np.bincount(classes, minlength=self.shape.n_classes))
        whole, fraction = (part[order] for part in split(weight, batch.n_rows))
        labels = np.zeros(batch.n_rows, np.uint16)
        for j, column in enumerate(batch.numeric):
            values = column[order]
            for c, (lo, hi) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                if lo < hi:
                    if (j, c) not in self._cells:
                        self._cells[j, c] = made(LIMIT, LIMIT)
                    rows = slice(lo, hi)
                    self._cells[j, c].add(values[rows], labels[rows], whole[rows], fraction[rows])

    def take(self, to: Alignment) -> ClassSketches:
        """Return the statistic with its cells moved to another shape; new cells are empty."""
        result = ClassSketches(to.shape)
        for j, old_j in enumerate(to.numeric.tolist()):
            for c, old_c in enumerate(to.classes.tolist()):
                entries, shift = self._entries((old_j, old_c))
                if len(entries.least):
                    result._cells[j, c] = _holding(entries, shift)
        return result

    def grown(self, shape: Shape) -> ClassSketches:
        """Return the statistic with room for at least `shape`; classes are appended."""
        if shape.n_classes <= self.shape.n_classes:
            return self
        result = ClassSketches(shape)
        result._cells = copy.deepcopy(self._cells)
        return result

    def __add__(self, other: ClassSketches) -> ClassSketches:
        result = ClassSketches(self.shape)
        for at in {**self._cells, **other._cells}:
            (mine, shift), (theirs, more) = self._entries(at), other._entries(at)
            kinds = [type(held._cells[at]) for held in (self, other) if at in held._cells]
            # The compiled one, where there is one.
            cells = max(kinds, key=lambda kind: kind is not SketchEntries)(LIMIT, LIMIT)
            cells.take(mine, shift)
            cells.take(theirs, more)
            result._cells[at] = cells
        return result

    def __sub__(self, other: ClassSketches) -> ClassSketches:
        result = ClassSketches(self.shape)
        for at in {**self._cells, **other._cells}:
            (mine, shift), (theirs, more) = self._entries(at), other._entries(at)
            if len(theirs.least) and (shift or more):
                raise RetractionError(
                    f"more than {LIMIT:,} values are held as ranges, which do not come apart; "
                    "count the remaining rows again",
                    *at,
                )
            place = np.searchsorted(mine.least, theirs.least)
            known = place < len(mine.least)
            known[known] = mine.least[place[known]] == theirs.least[known]
            whole, fraction = mine.whole.copy(), mine.fraction.copy()
            weight, gone = _weight(mine), np.zeros(len(whole))
            if known.all():
                whole[place] -= theirs.whole
                fraction[place] -= theirs.fraction
                whole -= fraction < 0
                fraction[fraction < 0] += _ONE
                gone[place] = _weight(theirs)
            # Sums of weights are exact, but not those that were scaled.
            kept = left(weight, gone, weight.sum(keepdims=True)) != 0
            if not known.all() or (whole[kept] < 0).any():
                raise RetractionError(
                    "a value would occur fewer than 0 times; these rows were never added", *at
                )
            result._cells[at] = _holding(
                _some(mine._replace(whole=whole, fraction=fraction), kept), shift
            )
        return result

    def __mul__(self, factor: float) -> ClassSketches:
        result = ClassSketches(self.shape)
        for at, entries, shift in self._all():
            weight = _weight(entries) * factor
            if weight.sum() >= 2.0**62:
                raise DataError(f"sketches times {factor:g} weigh too much to be added up exactly")
            whole, fraction = split(weight, len(weight))
            scaled = entries._replace(whole=whole, fraction=fraction)
            result._cells[at] = _holding(_some(scaled, (whole | fraction) != 0), shift)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return ClassSketches.from_arrays, (self.shape, self.arrays())

    def allclose(self, other: ClassSketches, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        mine, theirs = self.arrays(), other.arrays()
        if not np.array_equal(mine["length"], theirs["length"]):
            return False
        weight, their_weight = (a["whole"] + a["fraction"] / _ONE for a in (mine, theirs))
        return close(weight, their_weight, rtol) and all(
            close(mine[key], theirs[key], rtol) for key in ("least", "greatest")
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays.

        length, shift     (n_numeric, n_classes) int64   cells, and bits that they are short of
        least, greatest   (sum of length,) float64       extremes of each cell
        whole, fraction   (sum of length,) int64         weight, and its part below 1 in 2^-44
        """
        size = (self.shape.n_numeric, self.shape.n_classes)
        length, shifts = np.zeros(size, np.int64), np.zeros(size, np.int64)
        every = [NONE]
        for at, entries, shift in self._all():
            length[at], shifts[at] = len(entries.least), shift
            every.append(entries)
        together = Entries(*(np.concatenate(part) for part in zip(*every, strict=True)))
        return {
            "length": length,
            "shift": shifts,
            "least": numbers(together.least),
            "greatest": numbers(together.greatest),
            "whole": together.whole,
            "fraction": together.fraction,
        }

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> ClassSketches:
        """Return the statistic held by the arrays of `arrays()`."""
        size = (shape.n_numeric, shape.n_classes)
        for key in ("length", "shift"):
            check_fit(key, arrays[key], np.int64, size)
            if (arrays[key] < 0).any():
                raise ValueError(f"{key} does not fit the schema: it holds a number below 0")
        total = (int(arrays["length"].sum()),)
        for key in ("least", "greatest"):
            check_fit(key, arrays[key], np.float64, total)
        for key in ("whole", "fraction"):
            check_fit(key, arrays[key], np.int64, total)
        least, greatest, whole, fraction = (
            np.ascontiguousarray(arrays[key]) for key in ("least", "greatest", "whole", "fraction")
        )
        ordered = np.isfinite(least) & np.isfinite(greatest) & (least <= greatest)
        weighs = (whole >= 0) & (fraction >= 0) & (fraction < _ONE) & ((whole | fraction) != 0)
        if not (ordered & weighs).all():
            raise ValueError("least, greatest, whole and fraction hold what is no sketch")
        result, first = cls(shape), 0
        for at in zip(*np.nonzero(arrays["length"]), strict=True):
            end = first + int(arrays["length"][at])
            one, shift = slice(first, end), int(arrays["shift"][at])
            low, high = keys(least[one]), keys(greatest[one])
            cells = low >> np.uint64(min(shift, 63))
            if shift > 63 or end - first > LIMIT or (cells[1:] <= cells[:-1]).any():
                raise ValueError("least holds what is no sketch")
            label = np.zeros(end - first, np.uint16)
            entries = Entries(label, low, high, whole[one], fraction[one])
            result._cells[int(at[0]), int(at[1])] = _holding(entries, shift)
            first = end
        return result


def _holding(entries: Entries, shift: int) -> Any:
    cells = SketchEntries(LIMIT, LIMIT)
    cells.take(entries, shift)
    return cells


def _weight(entries: Entries) -> Floats:
    return np.asarray(entries.whole + entries.fraction / _ONE)


def _some(entries: Entries, kept: NDArray[np.bool_]) -> Entries:
    return Entries(*(array[kept] for array in entries))
