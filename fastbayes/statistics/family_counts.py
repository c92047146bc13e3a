"""How often values of a feature occur together with those of its parents, with each class."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Alignment, Shape
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import Floats, Ints, Need, Room
from fastbayes.statistics.packed_counts import PackedCounts

Family = tuple[int, ...]

# What the class is in a family: it has no part in it, is a parent as well, or is the child of all
# features of it.
APART, ABOVE, BELOW = 0, 1, 2


def members_of(families: Sequence[Sequence[int]]) -> Ints:
    """Return families as (n_families, most), -1 after the last feature of each."""
    most = max(map(len, families), default=0)
    return np.array(
        [[*family, *[-1] * (most - len(family))] for family in families], np.int64
    ).reshape(len(families), most)


def numbered(families: Iterable[Sequence[str]], names: Sequence[str]) -> list[Family]:
    """Return families of names as families of positions among these names.

    Raises
    ------
    SchemaError
        When a name is not there or stands twice in a family, or a family is empty or stands twice.
    """
    where = {name: j for j, name in enumerate(names)}
    result: dict[Family, None] = {}
    for family in families:
        if isinstance(family, str) or not len(family):
            raise SchemaError(f"families: {family!r} is no family; give tuples of column names")
        if unknown := [name for name in family if name not in where]:
            raise SchemaError(
                f"families: there is no categorical column {unknown[0]!r}; there are {[*names]}"
            )
        found = tuple(where[name] for name in family)
        if len({*found}) < len(found) or found in result:
            raise SchemaError(f"families: {tuple(family)} holds a column twice, or stands twice")
        result[found] = None
    return list(result)


class FamilyCounts(PackedCounts):
    """Counts n(class, parents, feature): the statistic of networks in which parents are several.

    Parameters
    ----------
    shape, weighted
        As for all statistics.
    families
        The features of each family, parents first, the feature itself last. Families keep their
        order and so do the features within: it may say which structure they belong to.
    class_is
        What the class is in each family of a structure, APART, ABOVE or BELOW; None for ABOVE.
        Whatever it is, counts are of each class.

    Notes
    -----
    `flat` holds one block (w_parent, ..., w_feature, n_classes) per family; memory is 8 K times
    the sum of the products of w.
    """

    name = "families"
    title = "counts of families"
    option = "families=[...]"
    work = "counting families"
    most = f"that of {PackedCounts.most}"
    repeatable = True

    def __init__(
        self,
        shape: Shape,
        *,
        weighted: bool = False,
        families: Sequence[Sequence[int]] = (),
        class_is: Sequence[int] | None = None,
    ) -> None:
        super().__init__(shape, weighted, members_of(families))
        self.class_is: tuple[int, ...] = (
            (ABOVE,) * len(families) if class_is is None else tuple(class_is)
        )

    @classmethod
    def tables(
        cls, n_columns: int, *, families: Sequence[Sequence[int]] = (), **options: Any
    ) -> int:
        """Return the number of families."""
        return len(families)

    @classmethod
    def need(cls, room: Room, *, families: Sequence[Sequence[int]] = (), **options: Any) -> Need:
        """Return the bytes of so many copies, those of each family given to its last feature."""
        result, n_classes = np.zeros_like(room.widths), room.shape.n_classes
        for family in families:
            # More than any machine has need not be distinguished.
            cells = min(math.prod(room.widths[list(family)].tolist()), (1 << 44) // n_classes)
            result[family[-1]] += 8 * room.copies * n_classes * cells
        return Need(result)

    @property
    def families(self) -> list[Family]:
        """The features of each family, parents first."""
        return [self.features(q) for q in range(len(self.layout.members))]

    def of(self, q: int) -> NDArray[Any]:
        """Return the (S_parent, ..., S_feature, n_classes) counts of rows where all are known.

        A view of the counts of family q.
        """
        return self.group(q)[tuple(slice(self.shape.sizes[f]) for f in self.features(q))]

    # -- groups --------------------------------------------------------------------------------

    def _count(self, columns: list[NDArray[Any]], batch: Batch, weight: Floats | None) -> None:
        layout = self.layout
        dispatch.load("counting.families", batch.cells).add_family_counts(
            *(columns, layout.widths, batch.classes, weight, layout.n_classes),
            *(self.families, layout.starts, self.flat),
        )

    def _among(self, wanted: Ints) -> tuple[Ints, Ints, Ints]:
        old = self.layout.members
        members = wanted[old]
        kept = np.flatnonzero(((members >= 0) == (old >= 0)).all(axis=1))
        axes = np.broadcast_to(np.arange(old.shape[1]), (len(kept), old.shape[1]))
        return members[kept], kept, axes

    def take(self, to: Alignment) -> Self:
        """Return the statistic with its cells moved to another shape; new cells are 0."""
        result = super().take(to)
        inverse = np.full(len(self.layout.sizes) + 1, -1)
        inverse[to.categorical] = np.arange(len(to.categorical))
        result.class_is = tuple(self.class_is[q] for q in self._among(inverse)[1].tolist())
        return result

    def _together(self, other: Self) -> tuple[Self, Self]:
        both = super()._together(other)
        if self.class_is != other.class_is:
            raise SchemaError("the counts are of different structures; count both alike")
        return both

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        found = super().arrays() | {"families": self.layout.members.copy()}
        if {*self.class_is} - {ABOVE}:
            found["class_is"] = np.array(self.class_is, np.uint8)
        return found

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]], **options: Any) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        members = arrays["families"]
        if members.ndim != 2 or members.dtype != np.int64:
            raise ValueError(f"families: {members.dtype}{members.shape} does not fit the schema")
        _check_members(members.tobytes(), members.shape, len(shape.sizes))
        class_is = arrays.get("class_is", np.full(len(members), ABOVE, np.uint8))
        if class_is.shape != (len(members),) or {*class_is.tolist()} - {APART, ABOVE, BELOW}:
            raise ValueError("class_is: it does not fit the families")
        given = {"families": members.tolist(), "class_is": class_is.tolist()}
        return super().from_arrays(shape, arrays, **given)


# The parts of a job have all the same.
@functools.lru_cache(4)
def _check_members(data: bytes, shape: tuple[int, int], m: int) -> None:
    """Raise ValueError unless rows are tuples of different ones of m columns, filled up with -1."""
    members = np.frombuffer(data, np.int64).reshape(shape)
    there, ordered = members >= 0, np.sort(members, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if (
        not ((members >= -1) & (members < m)).all()
        or not there[:, :1].all()
        or (there[:, 1:] > there[:, :-1]).any()
        or repeated.any()
        or not there.any(axis=0).all()
        or members.shape[1] < min(len(members), 1)
    ):
        raise ValueError("families: they are no tuples of different columns")
