"""How often two values of two categorical features occur together, with each class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.schema import Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import Floats, Ints, Need, Room
from fastbayes.statistics.packed_counts import BlockLayout, PackedCounts


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
        """Return the position of the pair (i, j), i < j.

        Raises
        ------
        KeyError
            When it is not among the pairs.
        """
        if (q := self.find(i, j)) < 0:
            raise KeyError((i, j))
        return q

    def find(self, i: int, j: int) -> int:
        """Return the position of the pair (i, j), i < j, -1 where it is not among the pairs."""
        m = len(self.sizes)
        if self.complete:
            return i * (2 * m - i - 1) // 2 + j - i - 1
        q = int(np.searchsorted(self._key, i * m + j))
        return q if q < len(self._key) and self._key[q] == i * m + j else -1

    @cached_property
    def _key(self) -> Ints:
        return self.first * len(self.sizes) + self.second


def all_pairs(m: int) -> tuple[Ints, Ints]:
    """Return the features of all pairs i < j, sorted."""
    first, second = np.triu_indices(m, 1)
    return first.astype(np.int64), second.astype(np.int64)


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
    work = "counting pairs"
    repeatable = True
    _layout: ClassVar[type[BlockLayout]] = PairLayout

    layout: PairLayout

    def __init__(self, shape: Shape, *, weighted: bool = False, pairs: Ints | None = None) -> None:
        members = np.stack(all_pairs(len(shape.sizes)), axis=1) if pairs is None else pairs
        super().__init__(shape, weighted, np.asarray(members, np.int64))

    @classmethod
    def need(cls, room: Room, *, pairs: Ints | None = None, **options: Any) -> Need:
        """Return the bytes of so many copies, half of each pair's given to either feature."""
        widths, cell = room.widths, 4 * room.copies * room.shape.n_classes
        if pairs is None:
            return Need(cell * widths * (widths.sum() - widths))
        both = cell * widths[pairs[:, 0]] * widths[pairs[:, 1]]
        result = np.zeros_like(widths)
        for side in (0, 1):
            np.add.at(result, pairs[:, side], both)
        return Need(result)

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
        # Place of (p = 0, j = 0), and how far the next value of p and of j stands.
        q = np.array([layout.find(min(p, j), max(p, j)) for j in others.tolist()], np.int64)
        if len(absent := others[q < 0]) and p in layout.members:
            for j in absent[np.isin(absent, layout.members)].tolist():
                raise KeyError((p, j))
        base, left = np.append(layout.starts, 0)[q], others < p
        widths = np.where(q >= 0, layout.widths[others], 0)
        step_p = np.where(left, 1, widths) * k
        step_j = np.where(left, layout.widths[p], 1) * k
        slots = shape.sizes[others] + 1
        first = np.cumsum(slots) - slots
        result = np.zeros((int(shape.sizes[p]) + 1, int(slots.sum()), k), self.flat.dtype)
        feature = np.repeat(np.arange(len(others)), widths)
        begins = np.cumsum(widths) - widths
        value = np.arange(len(feature)) - begins[feature]
        cell = base[feature] + value * step_j[feature]
        rows = np.arange(layout.widths[p])[:, None, None] * step_p[feature][:, None]
        result[: layout.widths[p], first[feature] + value] = self.flat[
            cell[:, None] + rows + np.arange(k)
        ]
        return result

    # -- groups --------------------------------------------------------------------------------

    def _count(self, columns: list[NDArray[Any]], batch: Batch, weight: Floats | None) -> None:
        layout = self.layout
        dispatch.load("pairs", batch.cells).add_pair_counts(
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
