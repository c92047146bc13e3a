"""How often two values of two categorical features occur together, with each class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.schema import Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import Floats, Ints, Need, Room
from fastbayes.statistics.packed_counts import BlockLayout, PackedCounts


class Steps(NamedTuple):
    """Where the cells of one feature p and each feature j stand, (m,) each.

    n       values of p, missing included
    base    first cell of (p = 0, j = 0)
    of_p    cells to the next value of p
    of_j    cells to the next value of j
    widths  values of j that have cells, missing included; 0 where no pair was counted
    """

    n: int
    base: Ints
    of_p: Ints
    of_j: Ints
    widths: Ints


class PairLayout(BlockLayout):
    """Where the block of each pair of features stands; `members` are i < j, sorted."""

    @cached_property
    def first(self) -> Ints:
        """The first feature of each pair, (n_pairs,)."""
        return np.ascontiguousarray(self.members[:, 0])

    @cached_property
    def second(self) -> Ints:
        """The second feature of each pair, (n_pairs,)."""
        return np.ascontiguousarray(self.members[:, 1])

    @cached_property
    def complete(self) -> bool:
        """Whether every pair of features is there."""
        m = len(self.sizes)
        return len(self.members) == m * (m - 1) // 2

    def place(self, i: int, j: int) -> int:
        """Return the position of the pair (i, j), i < j; KeyError where it is not there."""
        if (q := self.find(i, j)) < 0:
            raise KeyError((i, j))
        return q

    def find(self, i: Any, j: Any) -> Any:
        """Return the position of pairs (i, j), i < j, -1 where one is not among the pairs."""
        m = len(self.sizes)
        if self.complete:
            return i * (2 * m - i - 1) // 2 + j - i - 1
        q = np.searchsorted(self._key, i * m + j)
        return np.where(np.append(self._key, -1)[q] == i * m + j, q, -1)

    @cached_property
    def _key(self) -> Ints:
        return self.first * len(self.sizes) + self.second

    def steps_from(self, p: int) -> Steps:
        """Return where the cells of p and each feature stand; p itself has none.

        Raises KeyError when another pair was not counted.
        """
        every = np.arange(len(self.sizes))
        others = every != p
        q = np.full(len(every), -1)
        q[others] = self.find(np.minimum(every, p)[others], np.maximum(every, p)[others])
        if (q[others] < 0).any() and p in self.members:
            for j in every[(q < 0) & others & np.isin(every, self.members)].tolist():
                raise KeyError((p, j))
        left, k = every < p, self.n_classes
        return Steps(
            int(self.widths[p]),
            np.append(self.starts, 0)[q],
            np.where(left, 1, self.widths) * k,
            np.where(left, self.widths[p], 1) * k,
            np.where(q >= 0, self.widths, 0),
        )


def all_pairs(m: int) -> tuple[Ints, Ints]:
    """Return the features of all pairs i < j, sorted."""
    first = np.repeat(np.arange(m), np.arange(m)[::-1])
    begins = first * (2 * m - first - 1) // 2
    return first, np.arange(len(first)) - begins + first + 1


def runs_of_pairs(names: Sequence[str], widths: Ints, n_classes: int, limit: int) -> Iterator[Ints]:
    """Yield stretches of the sorted pairs of features whose counts fit, placed, in so many bytes.

    `widths` are the values of each feature, and one more where a value is missing. Raises
    MemoryLimitError where the counts of two features alone do not fit.
    """
    first, second = all_pairs(len(widths))
    placing = PairCounts.placing(len(first), 2, 1) // max(len(first), 1)
    needed = np.cumsum(8 * n_classes * widths[first] * widths[second] + placing)
    begin = 0
    while begin < len(first):
        done = int(needed[begin - 1]) if begin else 0
        end = int(np.searchsorted(needed, done + limit, side="right"))
        if end == begin:
            raise MemoryLimitError(
                f"columns {names[first[begin]]!r} and {names[second[begin]]!r}: their counts alone "
                f"need {int(needed[begin]) - done:,} bytes, over the {limit:,} that there are; "
                "leave one out or group its values, or raise memory_limit"
            )
        yield np.stack((first[begin:end], second[begin:end]), axis=1)
        begin = end


class PairCounts(PackedCounts):
    """Counts n(class, feature i = a, feature j = b): the statistic of one-dependence models.

    Parameters
    ----------
    shape, weighted
        As for all statistics.
    pairs
        (n_pairs, 2) features i < j, sorted; None for all pairs.

    Notes
    -----
    `flat` holds one block (w_i, w_j, n_classes) per pair; memory is 8 K sum_{i<j} w_i w_j bytes.
    """

    name = "pairs"
    title = "counts of pairs"
    option = "pairs=True"
    work = "counting pairs"
    repeatable = True
    _layout: ClassVar[type[BlockLayout]] = PairLayout

    layout: PairLayout

    def __init__(self, shape: Shape, *, weighted: bool = False, pairs: Ints | None = None) -> None:
        members = np.stack(all_pairs(len(shape.sizes)), axis=1) if pairs is None else pairs
        super().__init__(shape, weighted, np.asarray(members, np.int64))

    @classmethod
    def tables(cls, n_columns: int, *, pairs: Ints | None = None, **options: Any) -> int:
        """Return the number of pairs."""
        return math.comb(n_columns, 2) if pairs is None else len(pairs)

    @classmethod
    def need(cls, room: Room, *, pairs: Ints | None = None, **options: Any) -> Need:
        """Return the bytes of so many copies, half of each pair's given to either feature."""
        widths, cell, m = room.widths, 4 * room.copies * room.shape.n_classes, len(room.widths)
        placing = cls.placing(m * (m - 1) // 2 if pairs is None else len(pairs), 2, room.copies)
        if pairs is None:
            return Need(cell * widths * (widths.sum() - widths), 0, placing)
        both = cell * widths[pairs[:, 0]] * widths[pairs[:, 1]]
        result = np.zeros_like(widths)
        for side in (0, 1):
            np.add.at(result, pairs[:, side], both)
        return Need(result, 0, placing)

    # -- reading -------------------------------------------------------------------------------

    def block(self, i: int, j: int) -> NDArray[Any]:
        """Return the (w_i, w_j, n_classes) counts of two features, missing values included."""
        if i > j:
            return self.block(j, i).transpose(1, 0, 2)
        return self.group(self.layout.place(i, j))

    def of(self, i: int, j: int) -> NDArray[Any]:
        """Return the (S_i, S_j, n_classes) counts of rows where both features are known, a view."""
        return self.block(i, j)[: self.shape.sizes[i], : self.shape.sizes[j]]

    def beside(self, p: int) -> NDArray[Any]:
        """Return n(class, p = a, j = b), (S_p + 1, n, n_classes), in slots of the other features.

        The last row and the last slot of each feature are missing values, as in `ValueCounts`. 0
        for a feature that is in no pair.

        Raises
        ------
        KeyError
            When another pair was not counted.
        """
        layout, shape, k = self.layout, self.shape, self.shape.n_classes
        others = np.delete(np.arange(len(shape.sizes)), p)
        base, step_p, step_j, widths = (part[others] for part in layout.steps_from(p)[1:])
        slots = shape.sizes[others] + 1
        first = np.cumsum(slots) - slots
        result = np.zeros((int(shape.sizes[p]) + 1, int(slots.sum()), k), self.flat.dtype)
        feature = np.repeat(np.arange(len(others)), widths)
        begins = np.cumsum(widths) - widths
        value = np.arange(len(feature)) - begins[feature]
        cell = base[feature] + value * step_j[feature]
        cell = cell + np.arange(layout.widths[p])[:, None] * step_p[feature]
        each = max(layout.n_classes, 1)
        result[: layout.widths[p], first[feature] + value] = self.flat.reshape(-1, each)[
            cell // each
        ]
        return result

    def at(self, steps: Steps, value: Ints, feature: Ints, code: Ints) -> NDArray[Any]:
        """Return n(class, p = value, feature = code), (..., n_classes), of some cells.

        Codes behind the values are missing ones. 0 where a cell is not there.

        steps  those of p
        """
        k = self.shape.n_classes
        there = (value < steps.n) & (code < steps.widths[feature])
        cell = steps.base[feature] + value * steps.of_p[feature] + code * steps.of_j[feature]
        result = np.zeros((*there.shape, k), self.flat.dtype)
        result[there] = self.flat[cell[there][:, None] + np.arange(k)]
        return result

    # -- groups --------------------------------------------------------------------------------

    def _count(self, columns: list[NDArray[Any]], batch: Batch, weight: Floats | None) -> None:
        layout = self.layout
        dispatch.load("counting.pairs", batch.cells).add_pair_counts(
            *(columns, layout.widths, batch.classes, weight, layout.n_classes),
            *(layout.first, layout.second, layout.starts, self.flat),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        return super().arrays() | (
            {} if self.layout.complete else {"pairs": self.layout.members.copy()}
        )

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]], **options: Any) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        m, pairs = len(shape.sizes), arrays.get("pairs")
        if pairs is not None:
            key = pairs[:, 0] * m + pairs[:, 1]
            inside = (pairs >= 0).all() and (pairs < m).all()
            if not (inside and (pairs[:, 0] < pairs[:, 1]).all() and (np.diff(key) > 0).all()):
                raise ValueError("the pairs of columns are no sorted pairs")
        return super().from_arrays(shape, arrays, pairs=pairs)
