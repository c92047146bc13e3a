"""Sufficient statistics: values that add, subtract, align, save and ship."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.schema import Alignment, Shape
from fastbayes.statistics.cell_counts import CellCounts
from fastbayes.statistics.cell_scatter import CellScatter
from fastbayes.statistics.class_moments import ClassMoments
from fastbayes.statistics.class_scatter import ClassScatter
from fastbayes.statistics.class_sketches import ClassSketches
from fastbayes.statistics.family_counts import FamilyCounts
from fastbayes.statistics.pair_counts import PairCounts
from fastbayes.statistics.triple_counts import TripleCounts
from fastbayes.statistics.value_counts import ValueCounts


class Statistic(Protocol):
    """The contract of every statistic. A new one is one file and one line in `REGISTRY`."""

    name: str
    shape: Shape

    @classmethod
    def zeros(cls, shape: Shape, *, weighted: bool = False) -> Self:
        """Return the empty statistic."""
        ...

    @classmethod
    def order_free(cls, weighted: bool) -> bool:
        """Return whether the order of addition changes no bit."""
        ...

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic held by the arrays of `arrays()`."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        ...

    def update(self, batch: Batch) -> None:
        """Add the rows of a batch."""
        ...

    def take(self, to: Alignment) -> Self:
        """Return the statistic with its cells moved to another shape."""
        ...

    def grown(self, shape: Shape) -> Self:
        """Return the statistic with room for at least `shape`."""
        ...

    def allclose(self, other: Self, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        ...

    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def __mul__(self, factor: float) -> Self: ...
    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...


REGISTRY: dict[str, type[Any]] = {
    s.name: s
    for s in (
        *(ValueCounts, ClassMoments, PairCounts, FamilyCounts, TripleCounts, ClassScatter),
        *(CellCounts, CellScatter),
        ClassSketches,
    )
}

__all__ = [
    "REGISTRY",
    "CellCounts",
    "CellScatter",
    "ClassMoments",
    "ClassScatter",
    "ClassSketches",
    "FamilyCounts",
    "PairCounts",
    "Statistic",
    "TripleCounts",
    "ValueCounts",
]
