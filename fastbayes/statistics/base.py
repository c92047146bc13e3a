"""What all statistics have in common: arrays with named axes, and the algebra that follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, code_type
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Alignment, Schema, Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.retraction import left

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Classes = NDArray[np.unsignedinteger]


class RetractionError(DataError):
    """What cannot be taken away, by index of numeric feature and class; -1 stands for all."""

    def __init__(self, message: str, feature: int = -1, label: int = -1) -> None:
        super().__init__(message)
        self.feature, self.label = int(feature), int(label)


# Up to so many classes known, sums are formed in the same order however many of them occur.
FEW_CLASSES = 4


def occurring(batch: Batch, classes: Classes) -> tuple[Classes, Ints]:
    """Return codes among the classes that occur in a batch, and where these stand among all.

    How many are known by now depends on what other threads have read, and the order of additions
    within a block on how many there are.
    """
    n_classes = batch.n_classes
    if n_classes <= FEW_CLASSES or batch.every_class:
        return classes, np.arange(n_classes)
    dispatch.in_python()
    here = np.flatnonzero(np.bincount(classes, minlength=n_classes))
    if len(here) == n_classes:
        return classes, here
    place = np.zeros(n_classes, code_type(len(here)))
    place[here] = np.arange(len(here))
    return place[classes], here


class Axis(NamedTuple):
    """What the places along an axis of an array stand for.

    size    number of places in a shape
    origin  where each place of a wanted shape stands in the shape that there is; -1 is nowhere
    moves   (begin, end, new begin) of places that stay together in a larger shape
    """

    size: Callable[[Shape], int]
    origin: Callable[[Shape, Alignment], Ints]
    moves: Callable[[Shape, Shape], list[tuple[int, int, int]]]


def _slot_origin(shape: Shape, to: Alignment) -> Ints:
    begins, ends = shape.offsets, to.shape.offsets
    where = np.empty(int(ends[-1]), np.int64)
    of_value = np.ones(len(where), np.bool_)
    of_value[ends[1:] - 1] = False  # the last slot of a column is that of its missing values
    values = np.concatenate([np.empty(0, np.int64), *to.values])
    first = np.repeat(begins[to.categorical], to.shape.sizes)
    where[of_value] = np.where(values < 0, -1, values + first)
    where[~of_value] = begins[to.categorical + 1] - 1
    return where


class _Origin(NamedTuple):
    """Where the places along an axis come from.

    places   as `Axis.origin` gives them
    nowhere  those that come from nowhere; None if all come from somewhere
    stays    whether each stays where it is
    """

    places: Ints
    nowhere: Ints | None
    stays: bool

    @classmethod
    def of(cls, places: Ints, size: int) -> _Origin:
        ends = 0 < len(places) == size and places[0] == 0 and places[-1] == size - 1
        stays = bool(ends and (places[1:] > places[:-1]).all())
        known = stays or places.min(initial=0) >= 0
        return cls(places, None if known else np.flatnonzero(places < 0), stays)


def _slot_moves(shape: Shape, larger: Shape) -> list[tuple[int, int, int]]:
    # Where a feature has more values, what follows them moves on, its own missing slot first.
    more = np.flatnonzero(shape.sizes != larger.sizes) + 1
    ends = [*(shape.offsets[more] - 1).tolist(), int(shape.offsets[-1])]
    begins = [0, *(larger.offsets[more] - 1).tolist()]
    return list(zip([0, *ends[:-1]], ends, begins, strict=True))


CLASSES = Axis(
    lambda shape: shape.n_classes,
    lambda _, to: to.classes,
    lambda shape, _: [(0, shape.n_classes, 0)],
)
NUMERIC = Axis(
    lambda shape: shape.n_numeric,
    lambda _, to: to.numeric,
    lambda shape, _: [(0, shape.n_numeric, 0)],
)
# The values of each categorical feature, and after them a place for its missing ones.
SLOTS = Axis(lambda shape: int(shape.sizes.sum()) + len(shape.sizes), _slot_origin, _slot_moves)


class ArraySpec(NamedTuple):
    """What `array` declares."""

    axes: tuple[Axis, ...]
    rows: bool
    merge: np.ufunc
    empty: float
    scales: bool
    rounding: bool
    optional: bool

    def made(self, shape: Shape, kind: Any) -> NDArray[Any]:
        """Return the array of no rows."""
        size = tuple(axis.size(shape) for axis in self.axes)
        # Zeros are pages that nobody touches before they are counted in.
        return np.full(size, self.empty, kind) if self.empty else np.zeros(size, kind)


def array(
    *axes: Axis,
    rows: bool = False,
    merge: np.ufunc = np.add,
    empty: float = 0.0,
    scales: bool = True,
    rounding: bool = False,
    optional: bool = False,
) -> Any:
    """Declare an array of a statistic.

    Parameters
    ----------
    axes
        `CLASSES`, `NUMERIC` or `SLOTS` for each axis.
    rows
        Whether it counts rows: then it is int64 unless rows carry weights, else float64.
    merge
        What makes one of the arrays of two parts of the rows.
    empty
        What it holds where there are no rows.
    scales
        Whether rows that weigh twice as much make it twice as large.
    rounding
        Whether it is what rounding took from another one, which no comparison looks at.
    optional
        Whether it may be None.
    """
    return ArraySpec(axes, rows, merge, empty, scales and merge is np.add, rounding, optional)


class Room(NamedTuple):
    """What there is to count: the sizes on which the bytes of a statistic depend.

    shape   sizes, at least one class among them
    widths  (n_categorical,) values of each categorical column, and one more if any is missing
    copies  sets of statistics, one for each thread and one of the result
    rows    most rows that there can be
    gaps    whether numeric values are missing
    """

    shape: Shape
    widths: Ints
    copies: int
    rows: float = math.inf
    gaps: bool = True


class Need(NamedTuple):
    """Bytes that a statistic takes.

    columns  (n_categorical,) of each categorical column
    numbers  of all numeric columns
    rest     of what depends on no column
    """

    columns: Ints
    numbers: int = 0
    rest: int = 0


class Statistic:
    """A sufficient statistic: a value that adds, subtracts, scales, aligns, saves and ships.

    A new one declares its arrays, says in `update` what a batch of rows adds to them (or in `_add`,
    which gets classes and weights besides), and is registered (`fastbayes.statistics.registry`).
    All else follows from the declarations, and can be replaced by a method where a statistic is
    more than its arrays.

    Parameters
    ----------
    shape
        Sizes to allocate for.
    weighted
        Whether rows carry weights.
    """

    # What it is called in files and in messages.
    name: ClassVar[str]
    title: ClassVar[str]
    # How `count` is asked for it, where it has a parameter of its own; else by its name.
    option: ClassVar[str] = ""
    # How a memory limit names the work, and the columns that need the most of it.
    work: ClassVar[str] = "counting"
    most: ClassVar[str] = "{numbers:,} numeric columns need {bytes:,} bytes,"
    # Whether half of the machine's memory is the limit where none is given.
    limited: ClassVar[bool] = True
    # Whether it holds of each column what that column alone tells.
    by_column: ClassVar[bool] = False
    # Whether a difference is as exact as a sum.
    comes_apart: ClassVar[bool] = True
    # What numeric columns are to be, where it matters: "bins", or "numbers" as they are.
    numeric_as: ClassVar[str] = ""
    # Whether what it holds besides its arrays counts rows: whole numbers unless rows carry weights.
    counts_rows: ClassVar[bool] = False
    # Whether adding a batch does nothing with its rows but call kernels by `dispatch.call`.
    repeatable: ClassVar[bool] = False
    # Whether adding numbers, where none is missing or each column is by itself, looks at nothing
    # else but classes and is so, too.
    sums_repeatable: ClassVar[bool] = False
    # Statistics that are counted with it.
    companions: ClassVar[tuple[str, ...]] = ()

    _specs: ClassVar[dict[str, ArraySpec]] = {}

    shape: Shape

    def __init_subclass__(cls) -> None:
        own = {key: spec for key, spec in vars(cls).items() if isinstance(spec, ArraySpec)}
        for key in own:
            delattr(cls, key)
        cls._specs = {**cls._specs, **own}
        if any(spec.merge is not np.add for spec in own.values()):
            cls.comes_apart = False

    def __init__(self, shape: Shape, *, weighted: bool = False) -> None:
        self.shape = shape
        for key, spec in self._specs.items():
            kind = np.int64 if spec.rows and not weighted else np.float64
            setattr(self, key, None if spec.optional else spec.made(shape, kind))

    @classmethod
    def zeros(cls, shape: Shape, *, weighted: bool = False, **options: Any) -> Self:
        """Return the empty statistic."""
        return cls(shape, weighted=weighted, **options)

    @classmethod
    def order_free(cls, weighted: bool) -> bool:
        """Return whether the order in which rows are added changes no bit."""
        return all(
            spec.merge is not np.add or (spec.rows and not weighted) for spec in cls._specs.values()
        ) and not (weighted and cls.counts_rows)

    @classmethod
    def vacuous(cls, n_numeric: int) -> bool:
        """Return whether there is nothing to count, for want of numeric columns."""
        held = [NUMERIC in spec.axes for spec in cls._specs.values()]
        return not n_numeric and bool(held) and all(held)

    @classmethod
    def class_codes(cls, n_classes: int) -> type[np.unsignedinteger]:
        """Return the type of codes of classes that kernels add sums by, where these repeat."""
        raise NotImplementedError

    @classmethod
    def tables(cls, n_columns: int, **options: Any) -> int:
        """Return to how many tables a row of so many columns adds; options as for `zeros`."""
        return n_columns

    @classmethod
    def need(cls, room: Room, **options: Any) -> Need:
        """Return the bytes of so many copies, of each column; options as for `zeros`."""
        shape, columns = room.shape, np.zeros(len(room.shape.sizes), np.int64)
        numbers = rest = 0
        for spec in cls._specs.values():
            others = (axis.size(shape) for axis in spec.axes if axis is not SLOTS)
            cells = 8 * room.copies * math.prod(others) * (not spec.optional)
            if SLOTS in spec.axes:
                columns += cells * (shape.sizes + 1)
            elif NUMERIC in spec.axes:
                numbers += cells
            else:
                rest += cells
        return Need(columns, numbers, rest)

    # -- counting ------------------------------------------------------------------------------

    def update(self, batch: Batch) -> None:
        """Add the rows of a batch; the code of a missing value is the size in this shape."""
        assert batch.classes is not None
        weight = batch.weight
        if self.weighted and weight is None:
            weight = np.ones(batch.n_rows)
        self._add(batch, batch.classes, weight)

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        """Add the rows of a batch; without weights each one counts 1."""
        raise NotImplementedError

    @classmethod
    def of_columns(cls, parts: Sequence[Self], shape: Shape) -> Self:
        """Return the statistic of the columns of all parts, of the same rows each, in order."""
        arrays = {}
        for key, spec in cls._specs.items():
            held = [getattr(part, key) for part in parts]
            along = [i for i, axis in enumerate(spec.axes) if axis is not CLASSES]
            arrays[key] = np.concatenate(held, axis=along[0]) if along else held[0]
        return parts[0]._holding(arrays, shape)

    @property
    def weighted(self) -> bool:
        """Whether the counts are sums of weights."""
        return any(
            spec.rows and getattr(self, k).dtype.kind == "f" for k, spec in self._specs.items()
        )

    @property
    def gaps(self) -> bool:
        """Whether missing numbers were met which need more room."""
        return False

    @property
    def n_groups(self) -> int | None:
        """Groups of features that are counted together, None where there are no groups."""
        return None

    def unforeseen(self) -> tuple[int, str]:
        """Return the bytes of one copy that only the rows could tell, and what takes them."""
        return 0, ""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(held.nbytes for held in self.arrays().values())

    @property
    def added_to(self) -> list[NDArray[Any]]:
        """The arrays that rows are added to: others as soon as these have no room for them."""
        return [*self.arrays().values()]

    def blank(self) -> Self:
        """Return the statistic of no rows, laid out like this one."""
        made = {
            key: self._specs[key].made(self.shape, held.dtype)
            for key, held in self.arrays().items()
        }
        return self._holding(made)

    def side_by_side(self, n: int) -> tuple[list[Self], list[NDArray[Any]]]:
        """Return n such statistics of no rows, and the arrays in which theirs are side by side."""
        arrays = {k: np.stack([held] * n) for k, held in self.blank().arrays().items()}
        parts = [self._holding({k: held[i] for k, held in arrays.items()}) for i in range(n)]
        return parts, [*arrays.values()]

    def of_number(self, j: int) -> Self:
        """Return what is held of one numeric column: what is added to it is added here."""
        held = {}
        for key, array in self.arrays().items():
            at = self._specs[key].axes.index(NUMERIC)
            held[key] = array[(slice(None),) * at + (slice(j, j + 1),)]
        return self._holding(held, self.shape._replace(n_numeric=1))

    def copy(self) -> Self:
        """Return the same statistic in memory of its own."""
        return self._holding({key: array.copy() for key, array in self.arrays().items()})

    def is_laid_out_like(self, other: Self) -> bool:
        """Return whether each cell stands where it does in another one."""
        return self.shape.equals(other.shape)

    # -- layout --------------------------------------------------------------------------------

    def _holding(self, arrays: Mapping[str, Any], shape: Shape | None = None) -> Self:
        result = type(self).__new__(type(self))
        result.shape = self.shape if shape is None else shape
        for key in self._specs:
            setattr(result, key, arrays.get(key))
        return result

    def take(self, to: Alignment) -> Self:
        """Return the statistic with its cells moved to another shape; new cells are empty."""
        arrays, origins = {}, dict[Axis, _Origin]()
        for key, held in self.arrays().items():
            spec = self._specs[key]
            if not held.size:
                arrays[key] = spec.made(to.shape, held.dtype)
                continue
            found = held
            for i, axis in enumerate(spec.axes):
                if axis not in origins:
                    origins[axis] = _Origin.of(axis.origin(self.shape, to), held.shape[i])
                origin = origins[axis]
                if not origin.stays:
                    found = found.take(origin.places, axis=i)
                if origin.nowhere is not None:
                    found[(slice(None),) * i + (origin.nowhere,)] = spec.empty
            arrays[key] = found.copy() if found is held else found
        return self._holding(arrays, to.shape)

    def grown(self, shape: Shape) -> Self:
        """Return the statistic with room for at least `shape`; values and classes are appended."""
        larger = union(self.shape, shape)
        axes = {axis for spec in self._specs.values() for axis in spec.axes}
        if all(axis.size(larger) == axis.size(self.shape) for axis in axes):
            return self
        arrays = {}
        for key, held in self.arrays().items():
            spec = self._specs[key]
            arrays[key] = made = spec.made(larger, held.dtype)
            # What moves together is copied together.
            for moves in product(*(axis.moves(self.shape, larger) for axis in spec.axes)):
                there = tuple(slice(new, new + end - begin) for begin, end, new in moves)
                made[there] = held[tuple(slice(begin, end) for begin, end, _ in moves)]
        return self._holding(arrays, larger)

    # -- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Self) -> Self:
        mine, theirs = self.arrays(), other.arrays()
        return self._holding({k: self._specs[k].merge(mine[k], theirs[k]) for k in mine})

    def __sub__(self, other: Self) -> Self:
        if any(spec.merge is not np.add for spec in self._specs.values()):
            raise RetractionError(
                "parts of it cannot be taken away; count the remaining rows instead"
            )
        mine, theirs = self.arrays(), other.arrays()
        rows = {k for k, spec in self._specs.items() if spec.rows}
        return self._holding(
            {k: (left if k in rows else np.subtract)(mine[k], theirs[k]) for k in mine}
        )

    def __mul__(self, factor: float) -> Self:
        if factor == 0:
            return type(self)(self.shape, weighted=True)
        return self._holding(
            {k: v * factor if self._specs[k].scales else v.copy() for k, v in self.arrays().items()}
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        # By value: twice a count is the count of twice the rows, whichever type holds it.
        return mine.keys() == theirs.keys() and all(
            np.array_equal(held, theirs[key]) for key, held in mine.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: Self, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array.

        Means agree relative to the spread about them, too: that of 2 and -2 is but rounding.
        """
        mine, theirs = self.arrays(), other.arrays()
        spread = self._spread()
        return mine.keys() == theirs.keys() and all(
            close(held, theirs[key], rtol, 0.0 if self._specs[key].scales else spread)
            for key, held in mine.items()
            if not self._specs[key].rounding
        )

    def _spread(self) -> float:
        """Return the largest root mean square deviation from the means; 0 without means."""
        return 0.0

    def check_left(self, schema: Schema) -> None:
        """Raise DataError where a count is below 0: rows were taken away that were never added."""

    # -- as arrays -----------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        held = {key: getattr(self, key) for key in self._specs}
        return {key: values for key, values in held.items() if values is not None}

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        held = {key: arrays[key] for key, spec in cls._specs.items()
                if not spec.optional or key in arrays}  # fmt: skip
        # Before anything is made of a size that a file only claims.
        for key, array in held.items():
            size = tuple(axis.size(shape) for axis in cls._specs[key].axes)
            check_fit(key, array, array.dtype, size)
        rows = [array for key, array in held.items() if cls._specs[key].rows]
        result = cls(shape, weighted=any(array.dtype == np.float64 for array in rows[:1]))
        for key, array in held.items():
            place = getattr(result, key)
            check_fit(key, array, np.float64 if place is None else place.dtype, array.shape)
            setattr(result, key, np.array(array))
        return result


def union(a: Shape, b: Shape) -> Shape:
    """Return the shape that has room for either."""
    if a is b:
        return a
    return Shape(np.maximum(a.sizes, b.sizes), a.n_numeric, max(a.n_classes, b.n_classes))


def close(a: NDArray[Any], b: NDArray[Any], rtol: float, scale: float = 0.0) -> bool:
    """Return whether two arrays agree, relative to `scale` and the largest number of the first."""
    if a.shape != b.shape:
        return False
    # Infinite is what an extreme of no rows is.
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=scale))
    return bool(np.allclose(a, b, rtol=rtol, atol=rtol * scale))


def check_fit(key: str, held: NDArray[Any], kind: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError where an array of a file is not of this type and shape."""
    if held.shape != shape or held.dtype != kind:
        raise ValueError(
            f"{key}: {held.dtype}{held.shape} does not fit the schema, which wants "
            f"{np.dtype(kind)}{shape}"
        )
